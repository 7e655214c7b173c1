// Definitions of group_core.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/datagram/group_core.hpp>
#include <dat/detail/text/errno.hpp>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL expected<ref<group_core>> group_core::join(const ref<ep_core>& ep, const ia_address& group,
                                                    bool receives) noexcept {
  static constexpr const char* call = "multicast_group.join";
  const auto at = [&](error e) { return ep->at(e, call); };
  if (!group.is_multicast())
    return at(error(return_type::invalid_address, return_subtype::address_malformed))
        .hint("A group has a multicast address: 224.0.0.0/4 or ff00::/8.");
  if (ep->state() != ep_datagram) return ep->wrong_state(call); // it would get no event of the answer
  const ia_address* own = ep->ia().address(group.family());
  if (!own)
    return at(error(return_type::invalid_address, return_subtype::address_unreachable))
        .hint("The adapter has no address of the same family as the group.");
  ref<group_core> g(new (std::nothrow) group_core(ud_core::of(*ep), receives), adopt);
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
  g->ia().release_to_reactor();
  if (rdma_join_multicast_ex(g->id(), &how, nullptr) != 0) {
    const int err = errno;
    g->asked_ = false;
    return failed("rdma_join_multicast", err);
  }
  return g;
}

DAT_DECL void group_core::handle(const cm_event& e) noexcept {
  using kind = record::kind;
  kind what = kind::unreachable;
  int reason = std::abs(e.status);
  {
    const std::lock_guard lock(mutex_);
    if (over_ || (target_ && e.type == RDMA_CM_EVENT_MULTICAST_JOIN)) return;
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
    case RDMA_CM_EVENT_DEVICE_REMOVAL: // also after the join: the membership is lost
      target_.reset();
      break;
    default:
      return;
    }
  }
  if (what == kind::unreachable) of_->detach(node_);
  of_->announce(what, ref<connection_base>(this), reason);
}

}}} // namespace dat::v0::detail
