// Gives the core object of a handle to headers that combine handles with other parts.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>
#include <dat/fwd.hpp>

namespace dat { inline namespace v0 { namespace detail {

/// Every handle makes it a friend. Its functions are templates, so that it belongs to the lowest layer.
struct core_access {
  /// The counted reference of a handle; of an endpoint or an ep_ref, the pointer.
  template <class Handle>
  [[nodiscard]] static decltype(auto) of(const Handle& h) noexcept {
    if constexpr (Handle::kind == object_kind::ep)
      return h.entity();
    else
      return h.shared();
  }
  /// The core to which an ep_ref posts. Never null.
  template <class Ref>
  [[nodiscard]] static auto& posting(const Ref& r) noexcept {
    return *r.core_;
  }
  /// The evd that a reference names.
  template <streams S>
  [[nodiscard]] static decltype(auto) of(const evd_ref<S>& e) noexcept {
    return e.shared();
  }
  /// Makes the handle of a new core, or a handle from other arguments.
  template <class Handle, class... A>
  [[nodiscard]] static Handle make(A&&... a) noexcept {
    return Handle(static_cast<A&&>(a)...);
  }
};

}}} // namespace dat::v0::detail
