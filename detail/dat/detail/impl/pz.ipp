// Definitions of pz.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/pz.hpp>

namespace dat { inline namespace v0 {

DAT_DECL detail::result<detail::ep_core::queues> ep_evds::shared() const noexcept {
  const auto lost = [](return_subtype which) {
    return error(return_type::invalid_handle, which).hint("The evd is closed or belongs to another ia.");
  };
  if (recv.lost()) return lost(return_subtype::handle_evd_recv);
  if (request.lost()) return lost(return_subtype::handle_evd_request);
  if (connect.lost()) return lost(return_subtype::handle_evd_conn);
  return detail::ep_core::queues{detail::core_access::of(recv),
                                 detail::core_access::of(request),
                                 detail::core_access::of(connect),
                                 recv.dropped(),
                                 request.dropped(),
                                 connect.dropped()};
}

namespace detail {

DAT_DECL result<ref<ep_core>> create_ep(const char* call, ia_core& ia, const ref<pz_core>& pz, const ep_evds& evds,
                                        const ep_attributes& attributes, const ref<srq_core>& srq) noexcept {
  auto queues = evds.shared();
  if (!queues) return queues.assume_error().at(call, object_kind::ep);
  return ep_core::create(call, ref<ia_core>(&ia), pz, queues.assume_value(), attributes, srq);
}

} // namespace detail
}} // namespace dat::v0
