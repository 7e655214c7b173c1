// All definitions of dat, for one source file of a program that defines DAT_SEPARATE_COMPILATION.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#ifndef DAT_SEPARATE_COMPILATION
#error "dat: <dat/src.hpp> is for programs that define DAT_SEPARATE_COMPILATION for all of their source files"
#endif

#include <dat/detail/base/config.hpp>

// clang-format off
// ADD NEW .ipp FILES HERE, in alphabetical order.
#include <dat/detail/adapter/async_info.ipp>
#include <dat/detail/adapter/attributes_query.ipp>
#include <dat/detail/adapter/cm_id_owner.ipp>
#include <dat/detail/adapter/ia_core.ipp>
#include <dat/detail/adapter/ia_events.ipp>
#include <dat/detail/adapter/ia_handle.ipp>
#include <dat/detail/adapter/place.ipp>
#include <dat/detail/base/deadline.ipp>
#include <dat/detail/base/quick_mutex.ipp>
#include <dat/detail/connection/connection_state.ipp>
#include <dat/detail/connection/csp.ipp>
#include <dat/detail/connection/service_point.ipp>
#include <dat/detail/datagram/group_core.ipp>
#include <dat/detail/datagram/ud_core.ipp>
#include <dat/detail/delivery/coro_core.ipp>
#include <dat/detail/delivery/coro_operation.ipp>
#include <dat/detail/delivery/coro_schedule.ipp>
#include <dat/detail/delivery/coro_timer.ipp>
#include <dat/detail/delivery/dequeue.ipp>
#include <dat/detail/delivery/wait_for.ipp>
#include <dat/detail/discovery/find_adapter.ipp>
#include <dat/detail/discovery/missing.ipp>
#include <dat/detail/endpoint/ep_connect.ipp>
#include <dat/detail/endpoint/ep_core.ipp>
#include <dat/detail/endpoint/ep_equip.ipp>
#include <dat/detail/endpoint/ep_events.ipp>
#include <dat/detail/endpoint/ep_requests.ipp>
#include <dat/detail/endpoint/rmr_core.ipp>
#include <dat/detail/endpoint/srq_core.ipp>
#include <dat/detail/events/break_watch.ipp>
#include <dat/detail/events/cno_core.ipp>
#include <dat/detail/events/cq_arming.ipp>
#include <dat/detail/events/evd_core.ipp>
#include <dat/detail/events/merged_evd.ipp>
#include <dat/detail/events/wait_until.ipp>
#include <dat/detail/events/wakeup.ipp>
#include <dat/detail/impl/cno.ipp>
#include <dat/detail/impl/counters.ipp>
#include <dat/detail/impl/cr.ipp>
#include <dat/detail/impl/csp.ipp>
#include <dat/detail/impl/descriptor.ipp>
#include <dat/detail/impl/dynamic.ipp>
#include <dat/detail/impl/ep.ipp>
#include <dat/detail/impl/ep_modify.ipp>
#include <dat/detail/impl/ep_params.ipp>
#include <dat/detail/impl/evd.ipp>
#include <dat/detail/impl/ia.ipp>
#include <dat/detail/impl/memory.ipp>
#include <dat/detail/impl/psp.ipp>
#include <dat/detail/impl/pz.ipp>
#include <dat/detail/impl/rails.ipp>
#include <dat/detail/impl/rails_run.ipp>
#include <dat/detail/impl/registry.ipp>
#include <dat/detail/impl/rmr.ipp>
#include <dat/detail/impl/rsp.ipp>
#include <dat/detail/impl/srq.ipp>
#include <dat/detail/impl/trace_recorder.ipp>
#include <dat/detail/impl/ud.ipp>
#include <dat/detail/memory/lmr_core.ipp>
#include <dat/detail/memory/pz_core.ipp>
#include <dat/detail/memory/registration_cache_core.ipp>
#include <dat/detail/posting/ep_posting.ipp>
#include <dat/detail/posting/kept_receives.ipp>
#include <dat/detail/posting/shared_queue.ipp>
#include <dat/detail/progress/reactor.ipp>
#include <dat/detail/text/address_text.ipp>
#include <dat/detail/text/error_text.ipp>
#include <dat/detail/text/event_text.ipp>
#include <dat/detail/verbs/qp_transitions.ipp>
// clang-format on

thread_local char dat_define_DAT_SEPARATE_COMPILATION_in_all_source_files_or_in_none;
