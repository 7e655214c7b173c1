// The owner of an rdma_cm_id: a listener, a connection, or a request that waits for an answer.
//
// An id keeps one reference to its owner. rdma_destroy_id returns only when every event that was read for the id has
// been acknowledged, so the reactor, between reading and acknowledging, may take a reference of its own: no table of
// live ids is needed, and an event of a dead id cannot reach a new object.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>

#include <dat/detail/basics.hpp>
#include <dat/detail/ia_core.hpp>

#include <rdma/rdma_cma.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>
#include <utility>

namespace dat::inline v0::detail {

/// What the library keeps of an rdma_cm_event once the event is acknowledged.
struct cm_event {
  rdma_cm_event_type type{};
  int status = 0;
  rdma_cm_id* id = nullptr; // only for comparison after the acknowledgement
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t private_size = 0;
  std::array<std::byte, 256> private_data{};
  rdma_ud_param datagram{}; // of ids for datagrams, whose connections are made

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

  /// Called on the reactor with no lock held, the event acknowledged. True when the id has seen all that it was for:
  /// the caller drops it.
  [[nodiscard]] bool on_event(const cm_event& e) noexcept { return type().on_event(*this, e); }
  /// Called between reading a CONNECT_REQUEST and acknowledging it. Takes over the new id.
  void on_request(rdma_cm_id* child, const rdma_cm_event& e) noexcept {
    if (type().on_request)
      type().on_request(*this, child, e);
    else
      rdma_destroy_id(child);
  }

  /// Nobody will answer this request any more: refuse it, so that the peer need not wait.
  void abandon() noexcept {
    if (!ia().foreign()) type().abandon(*this);
  }

  [[nodiscard]] rdma_cm_id* id() const noexcept { return id_.load(std::memory_order_acquire); }
  /// Calls `use(id)` while the id cannot go; with nothing, 0, when it is gone. For what may happen while another thread
  /// ends the id; `use` must be short. The caller has a reference.
  template <class Use>
  int with_id(Use use) noexcept {
    int result = 0;
    bool dropped = false;
    {
      const std::lock_guard lock(id_mutex_);
      id_use_.fetch_or(id_used, std::memory_order_relaxed);
      if (rdma_cm_id* const i = id()) result = use(i);
      // With the lock: the mark of another user, who waits for it, is not to be taken for this one's.
      dropped = (id_use_.fetch_and(~id_used, std::memory_order_acq_rel) & id_dropped) != 0;
    }
    if (dropped) destroy_id();
    return result;
  }

  /// True when the peer asked for the connection.
  [[nodiscard]] bool passive() const noexcept { return passive_; }
  [[nodiscard]] const ia_address& remote_address() const noexcept { return remote_; }
  [[nodiscard]] const ia_address& local_address() const noexcept { return local_; }
  [[nodiscard]] std::span<const std::byte> private_data() const noexcept { return {private_.data(), private_size_}; }

  /// Ends the id, which has seen all that it was for. Where another thread uses it just now, that one ends it: what the
  /// kernel does at once is here before the call that caused it is back, and the reactor would wait for that.
  void drop_id() noexcept {
    if ((id_use_.fetch_or(id_dropped, std::memory_order_acq_rel) & id_used) == 0) destroy_id();
  }
  /// Ends the id. Waits until no event of it is being read, which takes no lock and is short.
  void destroy_id() noexcept {
    rdma_cm_id* old;
    {
      const std::lock_guard lock(id_mutex_);
      old = id_.exchange(nullptr, std::memory_order_acq_rel);
    }
    if (!old) return;
    rdma_destroy_id(old);
    release(); // the id's reference
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
    ia().hand_over();
  }
  /// What listens: an id that is bound to an address and port, and then hears of requests.
  [[nodiscard]] expected<void> bind_id(const ia_address& where, rdma_port_space space = RDMA_PS_TCP) noexcept {
    if (const int err = create_id(space)) return map_errno(err).from("rdma_create_id", err);
    int only = 1; // :: would take the port for IPv4, too
    if (where.family() == address_family::ipv6 &&
        rdma_set_option(id(), RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof only) != 0)
      return map_errno(errno).from("rdma_set_option", errno);
    if (rdma_bind_addr(id(), const_cast<sockaddr*>(where.native_handle())) != 0)
      return map_errno(errno).from("rdma_bind_addr", errno);
    keep_addresses();
    return success();
  }
  /// A request may be here before this is back.
  [[nodiscard]] expected<void> listen_id() noexcept {
    ia().hand_over();
    // 0: as many requests as the system allows may wait to be read; the reactor reads at once and the evd is the limit.
    if (rdma_listen(id(), 0) != 0) return map_errno(errno).from("rdma_listen", errno);
    return success();
  }
  void keep_private_data(std::span<const std::byte> data) noexcept {
    private_size_ = static_cast<std::uint8_t>(smaller(data.size(), private_.size()));
    copy_bytes(data.first(private_size_), private_.data());
  }
  void keep_addresses() noexcept {
    rdma_cm_id* i = id();
    if (!i) return;
    (void)copy_address(rdma_get_peer_addr(i), sizeof(sockaddr_storage), remote_);
    (void)copy_address(rdma_get_local_addr(i), sizeof(sockaddr_storage), local_);
  }
  /// Of a request: link-local addresses come without a scope, which is that of the interface where `listener` listens.
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
  std::mutex id_mutex_; // ending the id against uses of it by other threads; a leaf
  std::atomic<rdma_cm_id*> id_{nullptr};
  static constexpr unsigned id_used = 1;
  static constexpr unsigned id_dropped = 2;
  std::atomic<unsigned> id_use_{0};
  std::array<std::byte, 196> private_{};
  std::uint8_t private_size_ = 0;
};

/// Owner of the duty to answer a connection request: moved from the ring to the event to the consumer, and where it
/// ends unanswered the request is refused. The id alone would keep the request's object alive for ever.
class request_ref {
public:
  request_ref() noexcept = default;
  explicit request_ref(ref<connection_base> c) noexcept : connection_(std::move(c)) {}
  request_ref(request_ref&&) noexcept = default;
  request_ref& operator=(request_ref&& o) noexcept {
    if (this != &o) {
      drop();
      connection_ = std::move(o.connection_);
    }
    return *this;
  }
  ~request_ref() { drop(); }

  [[nodiscard]] connection_base* get() const noexcept { return connection_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(connection_); }
  /// The duty is fulfilled.
  void done() noexcept { connection_ = {}; }

private:
  void drop() noexcept {
    if (connection_) std::exchange(connection_, {})->abandon();
  }
  ref<connection_base> connection_;
};

} // namespace dat::inline v0::detail
