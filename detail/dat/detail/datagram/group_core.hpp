// The membership of a datagram endpoint in a multicast group: an rdma_cm_id, and the queue pair's attachment.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/control_mutex.hpp>
#include <dat/detail/datagram/ud_core.hpp>

namespace dat { inline namespace v0 { namespace detail {

class group_core final : public connection_base {
public:
  explicit group_core(ref<ud_core> of, bool receives) noexcept
      : connection_base(ref(&of->ia()), table), of_(std::move(of)), receives_(receives) {}

  [[nodiscard]] static expected<ref<group_core>> join(const ref<ep_core>& ep, const ia_address& group,
                                                      bool receives) noexcept;
  [[nodiscard]] const ref<ud_core>& of() const noexcept { return of_; }
  /// The address handle of the group, once the endpoint has joined.
  [[nodiscard]] std::optional<datagram_target> target() noexcept {
    const std::lock_guard lock(mutex_);
    return target_;
  }

  // Used by the table that ia_child::type_for makes.
  ~group_core() = default;
  void teardown() noexcept {
    bool joined;
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
      joined = asked_;
    }
    of_->detach(node_);
    const auto leave = [&](rdma_cm_id* i) noexcept {
      return rdma_leave_multicast(i, const_cast<sockaddr*>(remote_.native_handle()));
    };
    if (joined) (void)with_id(leave);
    destroy_id();
  }
  static constexpr child_kind kind_of_child = child_kind::connection;

private:
  static const child_type table;
  [[nodiscard]] static consteval child_type make_table() noexcept {
    child_type t = type_for<group_core>();
    t.on_event = [](connection_base& c, const cm_event& e) noexcept {
      static_cast<group_core&>(c).handle(e);
      return false;
    };
    return t;
  }
  void handle(const cm_event& e) noexcept;

  ref<ud_core> of_;
  bool receives_;
  control_mutex mutex_; // serialises the answer of the connection manager with the end of the group
  bool asked_ = false;
  bool over_ = false;
  std::optional<datagram_target> target_;
  group_node node_;
};

inline constexpr child_type group_core::table = group_core::make_table();

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/datagram/group_core.ipp>
#endif
