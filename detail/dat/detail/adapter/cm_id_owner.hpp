// The owner of an rdma_cm_id: a listener, a connection, or a request that waits for an answer.
//
// An id keeps one reference to its owner. rdma_destroy_id returns only when every event that was read for the id has
// been acknowledged, so the reactor may take its own reference between reading and acknowledging. So dat needs no table
// of live ids, and an event of a dead id cannot reach a new object.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>

#include <dat/detail/adapter/ia_core.hpp>
#include <dat/detail/base/control_mutex.hpp>
#include <dat/detail/base/utility.hpp>
#include <dat/detail/handle/handle.hpp>

#include <rdma/rdma_cma.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
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
  std::uint8_t flow_control = 0;
  std::uint8_t private_size = 0;
  std::array<std::byte, 256> private_data{};
  rdma_ud_param datagram{}; // for ids of datagrams, and for those whose connections exist

  explicit cm_event(const rdma_cm_event& e) noexcept;
  [[nodiscard]] std::span<const std::byte> data() const noexcept { return {private_data.data(), private_size}; }
};

class connection_base : public ia_child {
public:
  using ia_child::ia_child;

  /// Called on the reactor with no lock held, the event acknowledged. Returns true when the id has no further use: the
  /// caller then drops the id.
  [[nodiscard]] bool on_event(const cm_event& e) noexcept { return type().on_event(*this, e); }
  /// Called between reading a CONNECT_REQUEST and acknowledging it. Takes over the new id.
  void on_request(rdma_cm_id* child, const rdma_cm_event& e) noexcept;

  /// Refuses a request that no call can answer any longer, so that the peer does not wait.
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
      // With the lock held, so that this does not clear the mark of another thread that waits for the lock.
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

  /// Ends an id that has no further use. If another thread uses the id at this moment, that thread ends it. The reactor
  /// must not wait for the call of that thread, because an event may arrive before the call that caused it returns.
  void drop_id() noexcept;
  /// Ends the id. First waits until no thread reads an event of the id; such a read takes no lock and is short.
  void destroy_id() noexcept;

protected:
  ~connection_base() = default;

  /// Makes a new id on the ia's channel. Returns 0 or errno.
  [[nodiscard]] int create_id(rdma_port_space space = RDMA_PS_TCP) noexcept;
  void adopt_id(rdma_cm_id* fresh) noexcept;
  /// Makes the id a listener: binds it to an address and port, and starts to listen.
  [[nodiscard]] expected<void> bind_id(const ia_address& where, rdma_port_space space = RDMA_PS_TCP) noexcept;
  /// A request may arrive before the call returns.
  [[nodiscard]] expected<void> listen_id() noexcept;
  void keep_private_data(std::span<const std::byte> data) noexcept;
  void keep_addresses() noexcept;
  /// Adds the scope to link-local addresses of a request: that of the interface where `listener` listens.
  void keep_addresses(const connection_base& listener) noexcept;

  ia_address remote_{};
  ia_address local_{};
  bool passive_ = false;

private:
  control_mutex id_mutex_; // serialises the end of the id with its use by other threads; a leaf
  std::atomic<rdma_cm_id*> id_{nullptr};
  static constexpr unsigned id_used = 1;
  static constexpr unsigned id_dropped = 2;
  std::atomic<unsigned> id_use_{0};
  std::array<std::byte, 196> private_{};
  std::uint8_t private_size_ = 0;
};

void abandon_request(ref<connection_base>& owner) noexcept;

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
#include <dat/detail/adapter/cm_id_owner.ipp>
#include <dat/detail/adapter/ia_events.ipp>
#endif
