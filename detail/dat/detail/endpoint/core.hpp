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
#include <dat/detail/handle/handle.hpp>

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/events/evd_core.ipp>
#include <dat/detail/events/merged_evd.ipp>
#include <dat/detail/posting/ep_posting.ipp>
#include <dat/detail/endpoint/ep_core.ipp>
#include <dat/detail/endpoint/ep_equip.ipp>
#include <dat/detail/endpoint/ep_connect.ipp>
#include <dat/detail/endpoint/ep_events.ipp>
#include <dat/detail/endpoint/ep_requests.ipp>
#include <dat/detail/connection/service_point.ipp>
#include <dat/detail/connection/connection_state.ipp>
#endif
// clang-format on

#ifdef DAT_SEPARATE_COMPILATION
namespace dat { inline namespace v0 { namespace detail {
// Compiled once, in ep_core.ipp.
extern template void end_with_handle(ref<pz_core>&) noexcept;
extern template void end_with_handle(ref<lmr_core>&) noexcept;
extern template void end_with_handle(ref<cno_core>&) noexcept;
extern template void end_with_handle(ref<evd_core>&) noexcept;
extern template void end_with_handle(ref<service_point>&) noexcept;
extern template void end_with_handle(ref<ep_core>&) noexcept;
}}} // namespace dat::v0::detail
#endif
