// The part of an endpoint that posts: its state, its limits, and the rings of posted work.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ep_attributes.hpp>
#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <dat/detail/base/config.hpp>
#include <dat/detail/posting/kept_receives.hpp>
#include <dat/detail/request/work_request.hpp>
#include <dat/detail/verbs/extended_post.hpp>
#include <dat/detail/verbs/null_device.hpp>
#include <dat/detail/work/call_class.hpp>
#include <dat/detail/work/completion_owner.hpp>
#include <dat/detail/work/current_ring.hpp>
#include <dat/detail/work/trace_points.hpp>
#include <dat/detail/work/work_ring.hpp>

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace dat { inline namespace v0 { namespace detail {

inline constexpr const char* no_immediate_hint = "The adapter is one of iWARP, which has no immediate data.";
inline constexpr const char* no_notify_hint =
    "Suppressing notifications needs an endpoint whose attribute for that queue, recv_completion or "
    "request_completion, is completion_notification::selective.";

/// The state of a datagram endpoint that may send. The consumer sees `connected`, but a request needs an address.
inline constexpr ep_state ep_datagram = static_cast<ep_state>(254);
[[nodiscard]] constexpr bool is_up(ep_state s) noexcept { return s == ep_state::connected || s == ep_datagram; }

/// Whether a zone or an evd is missing, and with them the queue pair.
[[nodiscard]] constexpr bool is_unconfigured(ep_state s) noexcept {
  return s == ep_state::unconfigured_unconnected || s == ep_state::unconfigured_reserved ||
         s == ep_state::unconfigured_passive || s == ep_state::unconfigured_tentative;
}
/// The subtype of an error that a state is the cause of.
[[nodiscard]] return_subtype subtype_of(ep_state s) noexcept;

/// Counts the requests of a datagram endpoint that the device has taken, so that an address handle can outlive them.
/// Written by the thread that posts, read by any.
class post_counter {
public:
  void add(std::uint32_t n) noexcept { n_.store(n_.load(std::memory_order_relaxed) + n, std::memory_order_release); }
  [[nodiscard]] std::uint64_t value() const noexcept { return n_.load(std::memory_order_acquire); }

private:
  std::atomic<std::uint64_t> n_{0};
};

/// The base of every endpoint. An object of this class without a derived one acts as an endpoint that has ended: posts
/// through an empty handle use such an object.
/// Thread safety: requests are posted by one thread at a time, and receives by one thread at a time.
class ep_posting : public completion_owner, public posting_classes<checked_build> {
public:
  constexpr ep_posting() noexcept = default;
  [[nodiscard]] const ep_attributes& attributes() const noexcept { return attributes_; }
  [[nodiscard]] std::uint32_t number() const noexcept { return number_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t max_inline() const noexcept { return max_inline_; }
  [[nodiscard]] std::uint32_t max_message() const noexcept { return static_cast<std::uint32_t>(max_message_); }
  [[nodiscard]] bool takes_no_notify_requests() const noexcept {
    return attributes_.request_completion == completion_notification::selective;
  }
  /// Whether its connection allows RDMA reads.
  [[nodiscard]] bool has_reads() const noexcept { return max_read_ != 0; }
  /// The extended requests that it takes, if it is connected.
  [[nodiscard]] extended_op_set extended_ops() const noexcept { return extended_ops_; }
  /// Whether its receives come from a shared queue.
  [[nodiscard]] bool shares_receives() const noexcept { return shares_; }
  /// The counter of a datagram endpoint; null for others.
  [[nodiscard]] post_counter* datagram_counter() const noexcept { return counter_; }
  [[nodiscard]] ibv_qp* qp() const noexcept { return qp_; }
  [[nodiscard]] error at(error e, const char* call) const noexcept { return e.at(call, object_kind::ep, number()); }
  /// Whether it is the endpoint of an empty handle.
  [[nodiscard]] bool is_null() const noexcept;

  // --- members for posts -------------------------------------------------------------------------------------------

  [[nodiscard]] work_ring& requests() noexcept { return sq_; }
  [[nodiscard]] work_ring& receives() noexcept { return rq_; }
  /// The queue pair that takes requests in the present state, or the null device.
  [[nodiscard]] ibv_qp* send_to() const noexcept { return send_to_.load(std::memory_order_acquire); }
  /// The queue pair that takes receives, and sends of datagrams, in the present state, or the null device.
  [[nodiscard]] ibv_qp* recv_to() const noexcept { return recv_to_.load(std::memory_order_acquire); }
  [[nodiscard]] bool takes_requests() const noexcept {
    return state() == ep_state::connected || (state() == ep_state::disconnected && !counter_);
  }
  [[nodiscard]] bool takes_datagrams() const noexcept {
    return counter_ && (state() == ep_datagram || state() == ep_state::disconnected);
  }

  /// Whether a request can be posted as it is (uDAPL 2.0 §6.6.20). False also for a list with segments of length 0,
  /// which `tidy` removes; then `check` decides.
  template <std::size_t N>
  [[nodiscard, gnu::always_inline]] bool accepts(const send_request<N>& r) const noexcept {
    using size = std::conditional_t<(N > 1), std::uint64_t, std::uint32_t>; // one segment has less than 4 GiB
    const auto bytes = static_cast<size>(r.data.bytes());
    if (N != 0 && r.data.zone() != own_zone_) return false;
    if (r.is_atomic() ? bytes != atomic_size_
                      : bytes > static_cast<size>(r.is_read()      ? max_read_
                                                  : r.is_inlined() ? max_inline_message_
                                                                   : max_message_))
      return false;
    if (N > 1 && r.data.count() > (r.is_read() ? max_read_iov_ : attributes_.max_request_iov)) return false;
    if (r.is_one_sided() && bytes > r.remote.length) return false;
    if (r.opcode == IBV_WR_SEND_WITH_INV && !invalidates_) return false;
    return !r.no_notify || takes_no_notify_requests();
  }
  [[nodiscard]] bool has_immediate() const noexcept { return has_immediate_; }
  /// Whether a request that it accepts can be posted together with others. Alone, a request with immediate data is left
  /// to the driver. In a list, libsiw drops it and what follows, and reports no error.
  [[nodiscard, gnu::always_inline]] bool takes_in_list(const request_header& r) const noexcept {
    return !r.is_immediate() || has_immediate_;
  }
  template <std::size_t N>
  [[nodiscard, gnu::always_inline]] bool accepts(const recv_request<N>& r) const noexcept {
    using size = std::conditional_t<(N > 1), std::uint64_t, std::uint32_t>; // one segment has less than 4 GiB
    return (N == 0 || r.data.zone() == own_zone_) && (N <= 1 || r.data.count() <= attributes_.max_recv_iov) &&
           (N == 0 || static_cast<size>(r.data.bytes()) <= static_cast<size>(max_receive_)) &&
           (!r.no_notify || attributes_.recv_completion == completion_notification::selective);
  }
  /// Cuts a receive to max_message_size. Verbs has no such limit, but the device breaks the connection when a message
  /// is longer than its receive.
  template <std::size_t N>
  [[gnu::cold]] void shorten(recv_request<N>& r) const noexcept {
    r.data.cut(max_receive_);
  }
  [[nodiscard]] bool accepts(zone_tag zone, std::uint64_t bytes) const noexcept {
    return zone == own_zone_ && bytes <= max_message_;
  }
  /// Checks that the adapter supports the operation. Succeeds for an endpoint that has ended, which other checks
  /// report.
  [[nodiscard, gnu::cold]] expected<void> check_support(const char* call, const request_header& r) const noexcept;
  /// Checks as `accepts`, with the cause as an error, for a tidy list. `zone`: its zone before it was tidied.
  [[nodiscard, gnu::cold]] expected<void> check(const char* call, const request_header& r, const sge_summary& list,
                                                zone_tag zone) const noexcept;
  [[nodiscard, gnu::cold]] expected<void> check(const char* call, bool no_notify, const sge_summary& list,
                                                zone_tag zone) const noexcept;
  /// A post of receives begins whose receives are checked.
  void begin_recv_checks() const noexcept {
    if (lacks_zone()) kept_.get()->begin_checks();
  }

  /// A work request of one segment, which the endpoint keeps. Its `sg_list`, `num_sge` and `next` never change. Only
  /// the thread that posts requests uses it.
  using request_link = post_link<ibv_send_wr, 1>;
  [[nodiscard]] request_link* link() noexcept { return &link_; }
  /// A link of up to `wide` segments, of which `sg_list` and `next` are set.
  static constexpr std::size_t wide = 4;
  [[nodiscard]] post_link<ibv_send_wr, wide>* wide_link() noexcept { return &wide_link_; }
  /// As link() for receives, and the thread that posts them.
  using recv_link = post_link<ibv_recv_wr, 1>;
  [[nodiscard]] recv_link* link_of_receive() noexcept { return &recv_link_; }
  /// Where the device puts the request that it refuses, and the receive. Null otherwise, so that posts need not set it.
  [[nodiscard]] ibv_send_wr** refused_request() noexcept { return &refused_request_; }
  [[nodiscard]] ibv_recv_wr** refused_receive() noexcept { return &refused_receive_; }

  // --- errors ------------------------------------------------------------------------------------------------------

  [[nodiscard, gnu::cold]] error wrong_state(const char* call) const noexcept;
  /// The request queue has no room for a call.
  [[nodiscard, gnu::cold]] error queue_full(const char* call, std::uint32_t index) const noexcept;
  [[nodiscard, gnu::cold]] error recv_queue_full(const char* call) const noexcept;
  [[nodiscard, gnu::cold]] error no_receives_here(const char* call) const noexcept;
  /// The adapter has no immediate data, which a request of a call has.
  [[nodiscard, gnu::cold]] error no_immediate(const char* call, std::uint32_t index) const noexcept;
  /// Another post of the same class runs (checked builds).
  [[nodiscard, gnu::cold]] error overlaps(const char* call) const noexcept {
    return at(error(return_type::invalid_state), call)
        .hint("Another call posts to the same queue of this endpoint: posts of one kind must not overlap.");
  }
  /// Called when the queue pair refused the last requests of the ring. When the null device refused them and the state
  /// of the endpoint is now `usable`, posts them again. Sets `taken` to the number that the device took.
  [[nodiscard, gnu::cold]] expected<void> not_posted(const char* call, bool usable, int err, ibv_send_wr* wr,
                                                     ibv_send_wr* bad, std::uint32_t& taken) noexcept;
  [[nodiscard, gnu::cold]] expected<void> not_posted(const char* call, int err, ibv_recv_wr* wr,
                                                     ibv_recv_wr* bad) noexcept;
  /// Called after a receive was posted: some devices do not flush a receive that is posted after the flush.
  void flush_if_down() noexcept {
    if (!load_plain(up_)) [[unlikely]]
      flush_late_receive();
  }

protected:
  ~ep_posting() = default;

  /// Sets what does not change in the links; before the first post.
  void set_up_links() noexcept {
    link_.wr.sg_list = link_.segments;
    link_.wr.num_sge = 1;
    wide_link_.wr.sg_list = wide_link_.segments;
    recv_link_.wr.sg_list = recv_link_.segments;
    recv_link_.wr.num_sge = 1;
  }

  /// Whether the zone of its receives is still unknown. The endpoint then keeps them, and cannot be connected.
  [[nodiscard]] bool lacks_zone() const noexcept {
    return own_zone_ == zone_tag::none() && is_unconfigured(state()) && kept_.get() != nullptr;
  }
  /// Copies the first `n` receives of a chain, unless a connection has begun.
  [[gnu::cold]] void keep(const ibv_recv_wr* first, std::uint32_t n) noexcept;
  /// Whether the receives that are posted in a state may be moved to another queue pair.
  [[nodiscard]] static constexpr bool keeps_receives(ep_state s) noexcept {
    return !is_up(s) && s != ep_state::disconnect_pending && s != ep_state::disconnected && s != ep_dead;
  }

  /// Whether a request has immediate data, and the adapter does not.
  [[nodiscard, gnu::cold]] bool lacks_immediate(const ibv_send_wr& wr) const noexcept;
  /// Moves all that is posted to its completion.
  void flush_queues() noexcept;
  [[gnu::cold]] void flush_late_receive() noexcept;

  void set_state(ep_state s) noexcept {
    if constexpr (trace_build) {
      const auto seen = [](ep_state of) { return of == ep_datagram ? ep_state::connected : of; };
      trace_points::state(number(), seen(state()), seen(s));
    }
    // The null device replaces a queue pair that takes no posts in this state.
    const bool up = is_up(s);
    const bool requests = s == ep_state::connected || s == ep_state::disconnected;
    send_to_.store(requests && !counter_ ? qp_ : null_device_instance.qp(), std::memory_order_release);
    recv_to_.store(up ? qp_ : null_device_instance.qp(), std::memory_order_release);
    store(up_, up);
    state_.store(s, std::memory_order_release);
    if (!keeps_receives(s)) kept_.put(nullptr);
  }

  static constexpr std::uint64_t unlimited = ~std::uint64_t{0};

  bool up_ = false;               // is_up(state_)
  bool shares_ = false;           // receives come from a shared queue, and rq_ has no room
  bool invalidates_ : 1 = false;  // the adapter can invalidate a peer's window
  bool has_immediate_ : 1 = true; // iWARP has no immediate data
  bool has_atomics_ : 1 = true;   // the adapter has atomics
  extended_op_set extended_ops_;  // of its queue pair; before there is one, of the adapter
  std::uint32_t max_inline_ = 0;
  std::uint64_t max_message_ = 0;        // 64 bits, as the bytes of a list, which are compared with these
  std::uint64_t max_inline_message_ = 0; // the smaller of the two
  std::uint64_t max_read_ = 0;           // bytes of an RDMA read; 0 when the connection allows none
  std::uint32_t atomic_size_ = 0;  // bytes of an atomic; 0 when the connection, the adapter or max_message_ allows none
  std::uint32_t max_read_iov_ = 0; // segments of an RDMA read
  zone_tag own_zone_;
  std::atomic<ibv_qp*> send_to_{null_device_instance.qp()};
  std::atomic<ibv_qp*> recv_to_{null_device_instance.qp()};
  current_ring sq_;
  current_ring rq_;
  request_link link_ = {};
  post_link<ibv_send_wr, wide> wide_link_ = {};
  std::uint64_t max_receive_ = 0; // bytes of a receive; `unlimited` unless max_message_size was given
  recv_link recv_link_ = {};
  ibv_send_wr* refused_request_ = nullptr;
  ibv_recv_wr* refused_receive_ = nullptr;
  ibv_qp* qp_ = nullptr;
  kept_slot kept_;                       // the receives that were posted before the connection
  post_counter* counter_ = nullptr;      // the owner of the endpoint keeps it
  std::atomic<std::uint32_t> number_{0}; // read by any thread, also while reset replaces qp_
  ep_attributes attributes_{};
};

/// The endpoint of empty handles. One for the whole program, also where its parts are compiled with hidden visibility.
[[gnu::visibility("default")]] inline constinit struct no_endpoint final : ep_posting {
  constexpr no_endpoint() noexcept = default;
} null_ep;

inline bool ep_posting::is_null() const noexcept { return this == &null_ep; }

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/posting/ep_posting.ipp>
#endif
