// Definitions of connection_base, and of ia_core: reading the events of the connection manager.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/adapter/cm_id_owner.hpp>
#include <dat/detail/text/errno.hpp>

#include <cerrno>
#include <cstring>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL cm_event::cm_event(const rdma_cm_event& e) noexcept : type(e.event), status(e.status), id(e.id) {
  switch (type) { // other events have no connection parameters
  case RDMA_CM_EVENT_CONNECT_REQUEST:
  case RDMA_CM_EVENT_CONNECT_RESPONSE:
  case RDMA_CM_EVENT_REJECTED:
  case RDMA_CM_EVENT_UNREACHABLE: // of datagrams: a reject
  case RDMA_CM_EVENT_ESTABLISHED: {
    const rdma_conn_param& p = e.param.conn; // both kinds of parameters begin with the same members
    if (type == RDMA_CM_EVENT_ESTABLISHED && e.id->ps == RDMA_PS_UDP) datagram = e.param.ud;
    responder_resources = p.responder_resources;
    initiator_depth = p.initiator_depth;
    flow_control = p.flow_control;
    if (p.private_data && p.private_data_len > 0) {
      private_size = p.private_data_len;
      std::memcpy(private_data.data(), p.private_data, private_size);
    }
    break;
  }
  case RDMA_CM_EVENT_MULTICAST_JOIN:
    datagram = e.param.ud;
    break;
  default:
    break;
  }
}

// --- the id ----------------------------------------------------------------------------------------------------------

DAT_DECL void connection_base::on_request(rdma_cm_id* child, const rdma_cm_event& e) noexcept {
  if (type().on_request)
    type().on_request(*this, child, e);
  else
    rdma_destroy_id(child);
}

DAT_DECL void connection_base::drop_id() noexcept {
  if ((id_use_.fetch_or(id_dropped, std::memory_order_acq_rel) & id_used) == 0) destroy_id();
}

DAT_DECL void connection_base::destroy_id() noexcept {
  rdma_cm_id* old;
  {
    const std::lock_guard lock(id_mutex_);
    old = id_.exchange(nullptr, std::memory_order_acq_rel);
  }
  if (!old) return;
  rdma_destroy_id(old);
  release(); // the reference that the id keeps
}

DAT_DECL int connection_base::create_id(rdma_port_space space) noexcept {
  rdma_cm_id* fresh = nullptr;
  if (rdma_create_id(ia().channel(), &fresh, static_cast<connection_base*>(this), space) != 0) return errno;
  adopt_id(fresh);
  return 0;
}

DAT_DECL void connection_base::adopt_id(rdma_cm_id* fresh) noexcept {
  fresh->context = static_cast<connection_base*>(this);
  add_ref();
  id_use_.store(0, std::memory_order_relaxed);
  id_.store(fresh, std::memory_order_release);
  ia().release_to_reactor();
}

DAT_DECL expected<void> connection_base::bind_id(const ia_address& where, rdma_port_space space) noexcept {
  if (const int err = create_id(space)) return map_errno(err).from("rdma_create_id", err);
  int only = 1; // without it, :: would take the IPv4 port, too
  if (where.family() == address_family::ipv6 &&
      rdma_set_option(id(), RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof only) != 0)
    return map_errno(errno).from("rdma_set_option", errno);
  if (rdma_bind_addr(id(), const_cast<sockaddr*>(where.native_handle())) != 0)
    return map_errno(errno).from("rdma_bind_addr", errno);
  keep_addresses();
  return success();
}

DAT_DECL expected<void> connection_base::listen_id() noexcept {
  ia().release_to_reactor();
  // 0: the system's limit of unread requests; the reactor reads at once, and the evd limits the requests
  if (rdma_listen(id(), 0) != 0) return map_errno(errno).from("rdma_listen", errno);
  return success();
}

DAT_DECL void connection_base::keep_private_data(std::span<const std::byte> data) noexcept {
  private_size_ = static_cast<std::uint8_t>(min(data.size(), private_.size()));
  copy_bytes(data.first(private_size_), private_.data());
}

DAT_DECL void connection_base::keep_addresses() noexcept {
  (void)with_id([this](rdma_cm_id* i) noexcept {
    (void)copy_address(rdma_get_peer_addr(i), sizeof(sockaddr_storage), remote_);
    (void)copy_address(rdma_get_local_addr(i), sizeof(sockaddr_storage), local_);
    return 0;
  });
}

DAT_DECL void connection_base::keep_addresses(const connection_base& listener) noexcept {
  keep_addresses();
  const ia_address* own = ia().address(address_family::ipv6);
  const std::uint32_t scope = listener.local_.scope_id() != 0 ? listener.local_.scope_id() : own ? own->scope_id() : 0;
  for (ia_address* a : {&remote_, &local_}) {
    if (a->family() != address_family::ipv6 || !a->is_link_local() || a->scope_id() != 0) continue;
    sockaddr_in6 native{};
    std::memcpy(&native, a->native_handle(), sizeof native);
    native.sin6_scope_id = scope;
    *a = ia_address(native);
  }
}

// --- reading events -------------------------------------------------------------------------------------------------

DAT_DECL void ia_core::on_cm(event_source& s) noexcept { static_cast<member_source&>(s).self->read_cm_events(); }

DAT_DECL void ia_core::read_cm_events() noexcept {
  for (int n = 0; n < cm_events_per_round;) {
    rdma_cm_event* e = nullptr;
    if (rdma_get_cm_event(channel(), &e) != 0) {
      if (!read_failed(cm_source_, errno)) return;
      continue;
    }
    ++n;
    cm_source_.failures = 0;
    acquire_from_callers();
    ref<connection_base> done;
    reactor.batching_tasks([&]() noexcept { done = take_cm_event(*e); });
    if (done) done->drop_id(); // wakes only now, so that the woken thread does not wait for this lock
  }
}

DAT_DECL ref<connection_base> ia_core::take_cm_event(rdma_cm_event& e) noexcept {
  const cm_event copy(e);
  // The id and its owner cannot end before the acknowledgement: take a reference now.
  const bool request = e.event == RDMA_CM_EVENT_CONNECT_REQUEST;
  rdma_cm_id* owning = request ? e.listen_id : e.id;
  ref<connection_base> owner(static_cast<connection_base*>(owning->context));
  if (request) owner->on_request(e.id, e);
  rdma_ack_cm_event(&e);
  const bool done = !request && owner->on_event(copy);
  if (copy.type == RDMA_CM_EVENT_DEVICE_REMOVAL) catastrophe();
  if (!done) owner = {};
  return owner;
}

DAT_DECL void abandon_request(ref<connection_base>& owner) noexcept {
  owner->abandon();
  owner.reset();
}

}}} // namespace dat::v0::detail
