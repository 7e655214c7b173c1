// All core objects and their definitions, in the order of their dependencies.
// SPDX-License-Identifier: BSL-1.0
#pragma once

// clang-format off
#include <dat/detail/adapter/ia_core.hpp>
#include <dat/detail/memory/pz_core.hpp>
#include <dat/detail/adapter/cm_id_owner.hpp>
#include <dat/detail/events/event_queue.hpp>
#include <dat/detail/endpoint/srq_core.hpp>
#include <dat/detail/events/cno_core.hpp>
#include <dat/detail/events/evd_core.hpp>
#include <dat/detail/connection/service_point.hpp>
#include <dat/detail/endpoint/ep_core.hpp>

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/events/evd_core.ipp>
#include <dat/detail/events/merged_evd.ipp>
#include <dat/detail/posting/ep_posting.ipp>
#include <dat/detail/endpoint/ep_core.ipp>
#include <dat/detail/endpoint/ep_connect.ipp>
#include <dat/detail/endpoint/ep_events.ipp>
#include <dat/detail/endpoint/ep_requests.ipp>
#include <dat/detail/connection/service_point.ipp>
#include <dat/detail/connection/connection_state.ipp>
#endif
// clang-format on
