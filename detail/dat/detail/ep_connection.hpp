// One connection attempt: its rdma_cm_id, its timer, and what the peer said.
//
// An id serves one attempt only. Keeping it in an object of its own means that a late event of an old attempt can never
// reach an endpoint that has been reset since.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>
#include <dat/service_id.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/connection_base.hpp>
#include <dat/detail/event_queue.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>

namespace dat::inline v0::detail {

class ep_core;

/// Private data that fits an rdma_cm connect request over IP; the one limit for all three messages.
inline constexpr std::size_t max_private_data = 56;

/// First bytes of a reject that a consumer made: nothing else tells it from the kernel's own. The fourth byte is the
/// length of the data that follows.
inline constexpr std::array<std::byte, 3> reject_mark{std::byte{'D'}, std::byte{'A'}, std::byte{'T'}};

/// The bytes of such a reject, of a consumer's `data` that is not longer than Most.
template <std::size_t Most>
struct reject_message {
  std::array<std::byte, reject_mark.size() + 1 + Most> bytes{};
  std::uint8_t size;

  explicit reject_message(std::span<const std::byte> data) noexcept
      : size(static_cast<std::uint8_t>(reject_mark.size() + 1 + data.size())) {
    std::byte* out = copy_bytes(reject_mark, bytes.data());
    *out++ = static_cast<std::byte>(data.size());
    copy_bytes(data, out);
  }
};

/// Whether a reject's data has the mark.
[[nodiscard]] inline bool is_marked(std::span<const std::byte> data) noexcept {
  return data.size() > reject_mark.size() && std::memcmp(reject_mark.data(), data.data(), reject_mark.size()) == 0;
}
/// What the consumer said, of a reject that has the mark.
[[nodiscard]] inline std::span<const std::byte> behind_mark(std::span<const std::byte> data) noexcept {
  const auto length = static_cast<std::size_t>(data[reject_mark.size()]);
  const auto rest = data.subspan(reject_mark.size() + 1);
  return rest.first(smaller(length, rest.size()));
}

class ep_connection final : public connection_base {
public:
  enum class phase : std::uint8_t {
    resolving,   ///< active: address
    routing,     ///< active: route
    requested,   ///< active: the request is out
    stale,       ///< active: the peer has remnants of an older connection; it is asked again in a moment
    waiting,     ///< passive: the consumer has not answered
    completing,  ///< passive: accepted
    established, ///< both
    over         ///< nothing more to come for an endpoint; the id may linger until the peer has answered
  };

  explicit ep_connection(ref<ia_core> ia, phase p) noexcept : connection_base(std::move(ia), table), phase_(p) {
    timer_.fired = &on_timer;
    timer_.self = this;
  }

  /// Passive: takes over the id of a request. Called before the event is acknowledged.
  void adopt_request(rdma_cm_id* child, const cm_event& request, const connection_base& listener) noexcept;
  /// Answers a request with no. `data` is at most max_private_data bytes.
  [[nodiscard]] expected<void> reject(std::span<const std::byte> data) noexcept;

  /// Passive: the service point that delivered the request; and the endpoint that it brings, if it does.
  [[nodiscard]] const service_id& service() const noexcept { return service_; }
  [[nodiscard]] ep_core* brought() const noexcept;
  /// Sets it; returns the one before. Like brings, only while nobody but the caller knows of the request.
  service_id came_to(const service_id& s) noexcept { return std::exchange(service_, s); }
  void brings(ref<ia_child> ep) noexcept { own_ = std::move(ep); }
  [[nodiscard]] std::uint8_t peer_reads() const noexcept { return peer_reads_; }
  [[nodiscard]] std::uint8_t peer_wants() const noexcept { return peer_wants_; }
  /// Hands the request to another service point of the ia.
  [[nodiscard]] expected<void> hand_off(std::uint16_t port) noexcept;

private:
  friend class ep_core;
  friend struct direct_connection;
  friend class ia_child;

  ~ep_connection() = default;
  static constexpr child_kind kind_of_child = child_kind::connection;
  static const child_type table;
  [[nodiscard]] static constexpr child_type make_table() noexcept {
    child_type t = type_for<ep_connection>();
    t.on_event = [](connection_base& c, const cm_event& e) noexcept {
      return static_cast<ep_connection&>(c).handle(e);
    };
    t.abandon = [](connection_base& c) noexcept { static_cast<ep_connection&>(c).refuse(); };
    return t;
  }

  // What takes an event says whether the id has seen all that it was for.
  [[nodiscard]] bool handle(const cm_event&) noexcept;
  [[nodiscard]] bool handle_for(ep_core& ep, const cm_event&) noexcept;
  void refuse() noexcept;
  /// The endpoint that was reserved for the request is free again; one that was made for it goes.
  static void give_back(ref<ia_child> ep) noexcept;

  struct owned_timer : timer {
    ep_connection* self = nullptr;
  };
  static void on_timer(timer& t) noexcept;

  void teardown() noexcept {
    cancel_timer();
    destroy_id();
  }

  // The endpoint is not kept alive by its connection; whoever wants it asks whether it is still there.
  void attach(ep_core* ep) noexcept {
    const std::lock_guard lock(link_);
    ep_ = ep;
  }
  void detach() noexcept { attach(nullptr); }
  [[nodiscard]] ref<ep_core> endpoint() noexcept;

  void arm_timer() noexcept {
    if (deadline_.never()) return;
    add_ref();
    ia().reactor.arm(timer_, deadline_.at);
  }
  void cancel_timer() noexcept {
    if (ia().reactor.cancel(timer_)) release();
  }
  /// Milliseconds for rdma_resolve_*: what is left, at least 1, at most 10 s. A failed lookup is reported only then.
  [[nodiscard]] int resolve_ms() const noexcept;

  // With the endpoint locked.
  void active_event(ep_core& ep, const cm_event& e) noexcept;
  [[nodiscard]] bool connected_event(ep_core& ep, const cm_event& e) noexcept;
  void rejected(ep_core& ep, const cm_event& e) noexcept;
  [[nodiscard]] bool ask_later() noexcept;
  void ask_again(ep_core& ep) noexcept;

  [[nodiscard]] bool lingering_event(const cm_event& e) noexcept;

  std::mutex link_; // guards ep_
  ep_core* ep_ = nullptr;
  std::atomic<phase> phase_;
  service_id service_;
  ref<ia_child> own_;           // passive: the endpoint that was reserved for the request, or made for it
  std::uint8_t peer_reads_ = 0; // passive: reads that the peer serves
  std::uint8_t peer_wants_ = 0; // passive: reads that the peer wants to run
  std::uint8_t out_size_ = 0;
  std::array<std::byte, max_private_data> out_{}; // active: private data, needed after the route is known
  deadline deadline_;
  std::chrono::milliseconds pause_{20}; // active: before the peer is asked again
  owned_timer timer_;
};

inline constexpr child_type ep_connection::table = make_table();

} // namespace dat::inline v0::detail
