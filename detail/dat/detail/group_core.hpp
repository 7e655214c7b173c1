// The membership of a datagram endpoint in a multicast group: an rdma_cm_id, and the queue pair's attachment.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/ud_core.hpp>

namespace dat::inline v0::detail {

class group_core final : public connection_base {
public:
  explicit group_core(ref<ud_core> of, bool receives) noexcept
      : connection_base(ref(&of->ia()), table), of_(std::move(of)), receives_(receives) {}

  [[nodiscard]] static expected<ref<group_core>> join(const ref<ep_core>& ep, const ia_address& group,
                                                      bool receives) noexcept;
  [[nodiscard]] const ref<ud_core>& of() const noexcept { return of_; }
  /// How to send to the group, once it is joined.
  [[nodiscard]] std::optional<datagram_target> target() noexcept {
    const std::lock_guard lock(mutex_);
    return target_;
  }

private:
  friend class ia_child;
  ~group_core() = default;
  static constexpr child_kind kind_of_child = child_kind::connection;
  static const child_type table;
  [[nodiscard]] static constexpr child_type make_table() noexcept {
    child_type t = type_for<group_core>();
    t.on_event = [](connection_base& c, const cm_event& e) noexcept {
      static_cast<group_core&>(c).handle(e);
      return false;
    };
    return t;
  }
  void handle(const cm_event& e) noexcept;
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

  ref<ud_core> of_;
  bool receives_;
  std::mutex mutex_; // the answer against the end
  bool asked_ = false;
  bool over_ = false;
  std::optional<datagram_target> target_;
  group_node node_;
};

inline constexpr child_type group_core::table = group_core::make_table();

inline expected<ref<group_core>> group_core::join(const ref<ep_core>& ep, const ia_address& group,
                                                  bool receives) noexcept {
  static constexpr const char* call = "multicast_group.join";
  const auto at = [&](error e) { return ep->at(e, call); };
  if (!group.is_multicast())
    return at(error(return_type::invalid_address, return_subtype::address_malformed))
        .hint("a group has a multicast address: 224.0.0.0/4 or ff00::/8");
  const ia_address* own = ep->ia().address(group.family());
  if (!own)
    return at(error(return_type::invalid_address, return_subtype::address_unreachable))
        .hint("the adapter has no address of the same family as the group");
  ref<group_core> g(new (std::nothrow) group_core(ref<ud_core>(ep->datagrams()), receives), adopt);
  if (!g) return at(error(return_type::insufficient_resources, return_subtype::resource_memory));
  const auto failed = [&](const char* verb, int err) {
    g->end();
    return at(map_errno(err, return_subtype::resource_tep).from(verb, err));
  };
  g->remote_ = group.with_port(0);
  if (const int err = g->create_id(RDMA_PS_UDP)) return failed("rdma_create_id", err);
  const ia_address from = own->with_port(0);
  if (rdma_bind_addr(g->id(), const_cast<sockaddr*>(from.native_handle())) != 0) return failed("rdma_bind_addr", errno);
  g->keep_addresses();
  g->remote_ = group.with_port(0);
  rdma_cm_join_mc_attr_ex how{};
  how.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  how.join_flags = receives ? RDMA_MC_JOIN_FLAG_FULLMEMBER : RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
  how.addr = const_cast<sockaddr*>(g->remote_.native_handle());
  g->asked_ = true;
  g->ia().hand_over();
  if (rdma_join_multicast_ex(g->id(), &how, nullptr) != 0) {
    const int err = errno;
    g->asked_ = false;
    return failed("rdma_join_multicast", err);
  }
  return g;
}

inline void group_core::handle(const cm_event& e) noexcept {
  using kind = record::kind;
  kind what = kind::unreachable;
  int reason = std::abs(e.status);
  {
    const std::lock_guard lock(mutex_);
    if (over_ || target_) return;
    switch (e.type) {
    case RDMA_CM_EVENT_MULTICAST_JOIN:
      node_.gid = e.datagram.ah_attr.grh.dgid;
      node_.lid = e.datagram.ah_attr.dlid;
      reason = receives_ ? of_->attach(node_) : 0;
      if (reason == 0) {
        what = kind::group_joined;
        target_ = datagram_target{e.datagram.ah_attr, e.datagram.qp_num, e.datagram.qkey};
      }
      break;
    case RDMA_CM_EVENT_MULTICAST_ERROR:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      break;
    default:
      return;
    }
  }
  of_->announce(what, ref<connection_base>(this), reason);
}

} // namespace dat::inline v0::detail
