// The owner of an rdma_cm_id: a listener, a connection, or a request that waits for an answer.
//
// An id keeps one reference to its owner. rdma_destroy_id returns only when every event that was read for the id has
// been acknowledged, so the reactor, between reading and acknowledging, may take a reference of its own: no table of
// live ids is needed, and an event of a dead id cannot reach a new object.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>

#include <dat/detail/adapter/ia_core.hpp>
#include <dat/detail/base/utility.hpp>
#include <dat/detail/handle/handle.hpp>
#include <dat/detail/text/errno.hpp>

#include <rdma/rdma_cma.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>

namespace dat { inline namespace v0 { namespace detail {

/// A copy of an rdma_cm_event for use after the event is acknowledged.
struct cm_event {
  rdma_cm_event_type type{};
  int status = 0;
  rdma_cm_id* id = nullptr; // only for comparison after the acknowledgement
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t private_size = 0;
  std::array<std::byte, 256> private_data{};
  rdma_ud_param datagram{}; // for ids of datagrams, and for those whose connections exist

  explicit cm_event(const rdma_cm_event& e) noexcept : type(e.event), status(e.status), id(e.id) {
    switch (type) { // other events have no connection parameters
    case RDMA_CM_EVENT_CONNECT_REQUEST:
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_UNREACHABLE: // of datagrams: a reject
    case RDMA_CM_EVENT_ESTABLISHED: {
      const rdma_conn_param& p = e.param.conn; // both kinds of parameters begin alike
      if (type == RDMA_CM_EVENT_ESTABLISHED && e.id->ps == RDMA_PS_UDP) datagram = e.param.ud;
      responder_resources = p.responder_resources;
      initiator_depth = p.initiator_depth;
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
  [[nodiscard]] std::span<const std::byte> data() const noexcept { return {private_data.data(), private_size}; }
};

class connection_base : public ia_child {
public:
  using ia_child::ia_child;

  /// Called on the reactor with no lock held, the event acknowledged. Returns true when the id has no further use: the
  /// caller then drops the id.
  [[nodiscard]] bool on_event(const cm_event& e) noexcept { return type().on_event(*this, e); }
  /// Called between reading a CONNECT_REQUEST and acknowledging it. Takes over the new id.
  void on_request(rdma_cm_id* child, const rdma_cm_event& e) noexcept {
    if (type().on_request)
      type().on_request(*this, child, e);
    else
      rdma_destroy_id(child);
  }

  /// Refuses a request that no call can answer any more, so that the peer need not wait.
  void abandon() noexcept {
    if (!ia().foreign()) type().abandon(*this);
  }

  [[nodiscard]] rdma_cm_id* id() const noexcept { return id_.load(std::memory_order_acquire); }
  /// Calls `use(id)` while no other thread can end the id. Returns the result of `use`, or 0 without a call when the id
  /// has ended. `use` must be short. The caller has a reference.
  template <class Use>
  int with_id(Use use) noexcept {
    int result = 0;
    bool dropped = false;
    {
      const std::lock_guard lock(id_mutex_);
      id_use_.fetch_or(id_used, std::memory_order_relaxed);
      if (rdma_cm_id* const i = id()) result = use(i);
      // Takes the lock, so that the mark of another thread that waits for the lock is not cleared.
      dropped = (id_use_.fetch_and(~id_used, std::memory_order_acq_rel) & id_dropped) != 0;
    }
    if (dropped) destroy_id();
    return result;
  }

  /// True when the peer requested the connection.
  [[nodiscard]] bool passive() const noexcept { return passive_; }
  [[nodiscard]] const ia_address& remote_address() const noexcept { return remote_; }
  [[nodiscard]] const ia_address& local_address() const noexcept { return local_; }
  [[nodiscard]] std::span<const std::byte> private_data() const noexcept { return {private_.data(), private_size_}; }

  /// Ends an id that has no further use. If another thread uses the id at this moment, that thread ends it: an event
  /// may arrive before the call that caused it returns, and the reactor must not wait for the call.
  void drop_id() noexcept {
    if ((id_use_.fetch_or(id_dropped, std::memory_order_acq_rel) & id_used) == 0) destroy_id();
  }
  /// Ends the id. First waits until no thread reads an event of the id; that takes no lock and is short.
  void destroy_id() noexcept {
    rdma_cm_id* old;
    {
      const std::lock_guard lock(id_mutex_);
      old = id_.exchange(nullptr, std::memory_order_acq_rel);
    }
    if (!old) return;
    rdma_destroy_id(old);
    release(); // the reference that the id keeps
  }

protected:
  ~connection_base() = default;

  /// Makes a new id on the ia's channel. Returns 0 or errno.
  [[nodiscard]] int create_id(rdma_port_space space = RDMA_PS_TCP) noexcept {
    rdma_cm_id* fresh = nullptr;
    if (rdma_create_id(ia().channel(), &fresh, static_cast<connection_base*>(this), space) != 0) return errno;
    adopt_id(fresh);
    return 0;
  }
  void adopt_id(rdma_cm_id* fresh) noexcept {
    fresh->context = static_cast<connection_base*>(this);
    add_ref();
    id_use_.store(0, std::memory_order_relaxed);
    id_.store(fresh, std::memory_order_release);
    ia().release_to_reactor();
  }
  /// Makes the id a listener: binds it to an address and port, and starts to listen.
  [[nodiscard]] expected<void> bind_id(const ia_address& where, rdma_port_space space = RDMA_PS_TCP) noexcept {
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
  /// A request may arrive before the call returns.
  [[nodiscard]] expected<void> listen_id() noexcept {
    ia().release_to_reactor();
    // 0: the system's limit of unread requests; the reactor reads at once, and the evd limits the requests
    if (rdma_listen(id(), 0) != 0) return map_errno(errno).from("rdma_listen", errno);
    return success();
  }
  void keep_private_data(std::span<const std::byte> data) noexcept {
    private_size_ = static_cast<std::uint8_t>(min(data.size(), private_.size()));
    copy_bytes(data.first(private_size_), private_.data());
  }
  void keep_addresses() noexcept {
    (void)with_id([this](rdma_cm_id* i) noexcept {
      (void)copy_address(rdma_get_peer_addr(i), sizeof(sockaddr_storage), remote_);
      (void)copy_address(rdma_get_local_addr(i), sizeof(sockaddr_storage), local_);
      return 0;
    });
  }
  /// Adds the scope to link-local addresses of a request: that of the interface where `listener` listens.
  void keep_addresses(const connection_base& listener) noexcept {
    keep_addresses();
    const ia_address* own = ia().address(address_family::ipv6);
    const std::uint32_t scope = listener.local_.scope_id() != 0 ? listener.local_.scope_id()
                                : own                           ? own->scope_id()
                                                                : 0;
    for (ia_address* a : {&remote_, &local_}) {
      if (a->family() != address_family::ipv6 || !a->is_link_local() || a->scope_id() != 0) continue;
      sockaddr_in6 native{};
      std::memcpy(&native, a->native_handle(), sizeof native);
      native.sin6_scope_id = scope;
      *a = ia_address(native);
    }
  }

  ia_address remote_{};
  ia_address local_{};
  bool passive_ = false;

private:
  std::mutex id_mutex_; // serialises the end of the id with its use by other threads; a leaf
  std::atomic<rdma_cm_id*> id_{nullptr};
  static constexpr unsigned id_used = 1;
  static constexpr unsigned id_dropped = 2;
  std::atomic<unsigned> id_use_{0};
  std::array<std::byte, 196> private_{};
  std::uint8_t private_size_ = 0;
};

inline void abandon_request(connection_base& request) noexcept { request.abandon(); }

/// Move-only token for an unanswered connection request. It moves from the ring to the event to the consumer's cr.
/// Destroying it unanswered refuses the request; otherwise the id would keep the request alive indefinitely.
class request_ref : public unique_ref<connection_base, &abandon_request> {
public:
  using unique_ref::unique_ref;

  /// The request was answered.
  void done() noexcept { forget(); }
};

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/adapter/ia_events.ipp>
#endif
