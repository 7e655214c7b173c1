// The endpoint behind dat::ep: its queue pair, its rings, and the path of one post.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ep_attributes.hpp>
#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <dat/detail/ep_connection.hpp>
#include <dat/detail/evd_core.hpp>
#include <dat/detail/ia_core.hpp>
#include <dat/detail/pz_core.hpp>
#include <dat/detail/work_request.hpp>
#include <dat/detail/work_ring.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <tuple>
#include <utility>

namespace dat::inline v0::detail {

/// What `state` holds once the endpoint is gone: no DAT state, every call answers invalid_handle.
inline constexpr ep_state ep_dead = static_cast<ep_state>(255);

/// Reliable connections are the stream sockets of IP.
[[nodiscard]] constexpr bool is_supported(const communicator& c) noexcept {
  return (c.domain == AF_INET || c.domain == AF_INET6) && c.type == SOCK_STREAM &&
         (c.protocol == 0 || c.protocol == IPPROTO_TCP);
}
[[nodiscard]] inline bool fits(const communicator& c, const ia_address& a) noexcept {
  return c.domain == (a.family() == address_family::ipv4 ? AF_INET : AF_INET6);
}

/// Whether a zone or an evd is missing, and with them the queue pair.
[[nodiscard]] constexpr bool is_unconfigured(ep_state s) noexcept {
  return s == ep_state::unconfigured_unconnected || s == ep_state::unconfigured_reserved ||
         s == ep_state::unconfigured_passive || s == ep_state::unconfigured_tentative;
}
/// The state once nothing is missing any more.
[[nodiscard]] constexpr ep_state configured(ep_state s) noexcept {
  switch (s) {
  case ep_state::unconfigured_unconnected:
    return ep_state::unconnected;
  case ep_state::unconfigured_reserved:
    return ep_state::reserved;
  case ep_state::unconfigured_passive:
    return ep_state::passive_connection_pending;
  case ep_state::unconfigured_tentative:
    return ep_state::tentative_connection_pending;
  default:
    return s;
  }
}

/// How far a queue pair came on its way to RTS, and what stopped it.
struct rts_result {
  const char* verb = nullptr;
  int err = 0;
  bool spoiled = false; ///< past INIT: the way back would lose posted receives
  explicit operator bool() const noexcept { return err == 0; }
};

class ep_core final : public ia_child {
public:
  struct queues {
    ref<evd_core> recv;
    ref<evd_core> request;
    ref<evd_core> connect;
  };

  /// The zone and the evds may be missing.
  [[nodiscard]] static result<ref<ep_core>> create(const char* call, const ref<ia_core>& ia, const ref<pz_core>& pz,
                                                   const queues& evds, const ep_attributes& attributes) noexcept;
  /// An endpoint for a request, which the consumer is to configure. Null when there is no room.
  [[nodiscard]] static ref<ep_core> create_for(const ref<ep_connection>& request) noexcept;
  ep_core(ref<ia_core> ia, ref<pz_core> pz, const queues& evds) noexcept;

  [[nodiscard]] ep_state state() const noexcept { return state_.load(std::memory_order_acquire); }
  [[nodiscard]] const ep_attributes& attributes() const noexcept { return attributes_; }
  [[nodiscard]] std::uint32_t number() const noexcept { return number_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t max_inline() const noexcept { return max_inline_; }
  [[nodiscard]] std::uint32_t max_message() const noexcept { return max_message_; }
  [[nodiscard]] std::uint8_t read_depth() const noexcept { return read_depth_; }
  [[nodiscard]] std::uint8_t read_in() const noexcept { return read_in_; }
  [[nodiscard]] std::uint8_t read_out() const noexcept { return read_out_; }
  [[nodiscard]] const pz_core* pz() const noexcept { return pz_.get(); }
  [[nodiscard]] ibv_qp* qp() const noexcept { return qp_; }
  [[nodiscard]] ep_tag tag() const noexcept { return tag_; }
  [[nodiscard]] const queues& evds() const noexcept { return evds_; } ///< empty once it is gone
  [[nodiscard]] error at(error e, const char* call) const noexcept { return e.at(call, object_kind::ep, number()); }

  // --- posting ---------------------------------------------------------------------------------------------------

  /// Requests, with one doorbell. Inlined into the caller, where what the request is is known: what remains of it are
  /// the few stores that verbs needs, and the checks.
  template <std::size_t... N>
  [[nodiscard, gnu::always_inline]] expected<void> post(const send_request<N>&... r) noexcept {
    const std::uint32_t tail = sq_.tail();
    if (!(sq_.takes(tail, sizeof...(N)) && (simply_acceptable(r) && ...))) [[unlikely]]
      return post_slowly(r.copy()...); // copies, so that the originals need not be in memory
    return post_checked(tail, r...);
  }

  /// The requests of a batch: staged before, but for what only this endpoint knows.
  [[nodiscard]] expected<void> post_staged(ibv_send_wr* wr, work_entry* entries, std::uint32_t n) noexcept {
    const std::uint32_t tail = sq_.tail();
    if (!takes_requests()) [[unlikely]]
      return wrong_state("ep.post(batch)");
    if (!sq_.has_room(tail, n)) [[unlikely]]
      return queue_full("ep.post(batch)", 0);
    const std::uint64_t id = wr_id_;
    sq_.put(tail, entries, n, [&](std::uint32_t i, std::uint32_t index) { wr[i].wr_id = id | index; });
    return submit(wr, n, tail);
  }

  template <std::size_t... N>
  [[nodiscard, gnu::always_inline]] expected<void> post(const recv_request<N>&... r) noexcept {
    const std::uint32_t tail = rq_.tail();
    if (!(rq_.takes(tail, sizeof...(N)) && (simply_acceptable(r) && ...))) [[unlikely]]
      return post_slowly(r.copy()...);
    return post_checked(tail, r...);
  }

  /// Whether the endpoint's limits admit a request with a tidy list; the conditions that only run time knows
  /// (uDAPL 2.0 §6.6.20).
  template <std::size_t N>
  [[nodiscard]] bool acceptable(const send_request<N>& r) const noexcept {
    return r.data.within(pz_.get()) && within_limits(r);
  }
  template <std::size_t N>
  [[nodiscard]] bool acceptable(const recv_request<N>& r) const noexcept {
    return r.gather.within(pz_.get()) && within_limits(r);
  }
  /// The error for a request that is not acceptable.
  template <std::size_t N>
  [[nodiscard, gnu::cold, gnu::noinline]] error refuse(const send_request<N>& r, std::uint32_t index) const noexcept {
    return refusal(r.data.count(), r.data.bytes(), r.data.within(pz_.get()), r, index);
  }
  template <std::size_t N>
  [[nodiscard, gnu::cold, gnu::noinline]] error refuse(const recv_request<N>& r) const noexcept {
    if (!r.gather.within(pz_.get())) return wrong_zone("ep.post(recv)");
    return at(error(return_type::invalid_parameter, return_subtype::arg2), "ep.post(recv)")
        .hint("more segments than the endpoint's max_recv_iov");
  }

  // --- completing ------------------------------------------------------------------------------------------------

  [[nodiscard]] work_ring& requests() noexcept { return sq_; }
  [[nodiscard]] work_ring& receives() noexcept { return rq_; }
  [[nodiscard]] work_ring& ring_of(std::uint64_t wr_id) noexcept { return (wr_id & recv_bit) != 0 ? rq_ : sq_; }
  [[nodiscard]] bool is_marker(std::uint64_t wr_id) noexcept {
    return (wr_id & recv_bit) == 0 && sq_.peek(index_of(wr_id)).kind == entry_kind::marker;
  }
  /// Whether completions may appear on `e`: not before ESTABLISHED does, where both go to the same evd.
  [[nodiscard]] bool announced_on(const evd_core* e) const noexcept { return e != evds_.connect.get() || announced_; }
  /// Called with the evd's lock held as a connection event is appended.
  void announce(bool done) noexcept { announced_ = done; }

  /// Data has been taken. On an accepted connection that is not established yet, it proves that it is.
  [[gnu::cold]] void arrived() noexcept;
  /// The completion of a marker has been taken: it ends a graceful disconnect.
  [[gnu::cold]] void marker_taken(std::uint64_t wr_id, ibv_wc_status status) noexcept;
  /// An operation of the life `whose` failed: the connection is broken. Idempotent.
  [[gnu::cold]] void broke(ep_tag whose) noexcept;
  /// The same for the present life,
  void broke() noexcept;
  /// if its completions go to `e`.
  void broke_with(const evd_core& e) noexcept;
  /// All requests of that life before the marker are done.
  void drained(ep_tag whose) noexcept;
  /// The same, from a place that may not lock the endpoint: done by the reactor.
  void defer_break(ep_tag whose) noexcept { defer(deferred_break, whose); }
  void defer_arrival(ep_tag whose) noexcept { defer(deferred_arrival, whose); }
  void defer_marker(const ibv_wc& c) noexcept {
    if (c.status == IBV_WC_SUCCESS) defer(deferred_marker, tag_of(c.wr_id));
  }

  // --- connecting ------------------------------------------------------------------------------------------------

  [[nodiscard]] expected<void> connect(const ia_address& to, std::uint16_t port, timeout limit,
                                       std::span<const std::byte> data) noexcept;
  [[nodiscard]] expected<void> common_connect(const ia_address& to, timeout limit,
                                              std::span<const std::byte> data) noexcept;
  [[nodiscard]] expected<void> dup_connect(ep_core& original, timeout limit, std::span<const std::byte> data) noexcept;
  /// Accepts a request, which either brings this endpoint or brings none.
  [[nodiscard]] expected<void> accept(ep_connection& request, std::span<const std::byte> data) noexcept;
  [[nodiscard]] expected<void> disconnect(close_flags how) noexcept;
  [[nodiscard]] expected<void> reset() noexcept;
  [[nodiscard]] ref<ep_connection> current() noexcept {
    const std::lock_guard lock(mutex_);
    return connection_;
  }

  // --- service points -------------------------------------------------------------------------------------------

  /// For a reserved service point.
  [[nodiscard]] expected<void> reserve(const char* call, const ia_core& of) noexcept;
  void unreserve() noexcept;
  /// The request that it was reserved for. `push` announces it, and has the last word.
  template <class Push>
  [[nodiscard]] bool take_request(const ref<ep_connection>& request, Push push) noexcept {
    const std::lock_guard lock(mutex_);
    const ep_state s = state();
    if (s != ep_state::reserved && s != ep_state::unconfigured_reserved) return false;
    // The state first: who sees the event sees the state.
    connection_ = request;
    request->brings(ref<ia_child>(this));
    set_state(s == ep_state::reserved ? ep_state::passive_connection_pending : ep_state::unconfigured_passive);
    if (push()) return true;
    connection_ = {};
    request->brings({});
    set_state(s);
    return false;
  }
  [[nodiscard]] bool has_request_of(const service_id& service) noexcept {
    const std::lock_guard lock(mutex_);
    return (state() == ep_state::passive_connection_pending || state() == ep_state::unconfigured_passive) &&
           connection_->service() == service;
  }
  /// It was answered with no, or is another's.
  void request_gone() noexcept;
  /// Whether it may be freed by its handle: not while a service point or a request has it.
  [[nodiscard]] expected<void> check_free() const noexcept;

  // --- parameters, see ep_params.hpp -----------------------------------------------------------------------------

  struct changes;
  [[nodiscard]] expected<void> modify(const changes& wanted) noexcept;
  /// Calls `look(*this)` with the endpoint locked.
  template <class Look>
  void locked(Look look) noexcept {
    const std::lock_guard lock(mutex_);
    look(*this);
  }
  [[nodiscard]] const ia_address& own_address() const noexcept { return own_; }
  [[nodiscard]] const ref<ep_connection>& connection() const noexcept { return connection_; }

private:
  friend class ep_connection;
  friend class ia_child;

  ~ep_core() = default;
  void teardown() noexcept;
  static constexpr child_kind kind_of_child = child_kind::endpoint;
  static const child_type table;

  // The same for any list; false also for one that is to be tidied first.
  template <std::size_t N>
  [[nodiscard, gnu::always_inline]] bool simply_acceptable(const send_request<N>& r) const noexcept {
    return r.data.simply_within(pz_.get()) && within_limits(r);
  }
  template <std::size_t N>
  [[nodiscard, gnu::always_inline]] bool simply_acceptable(const recv_request<N>& r) const noexcept {
    return r.gather.simply_within(pz_.get()) && within_limits(r);
  }
  template <std::size_t N>
  [[nodiscard, gnu::always_inline]] bool within_limits(const send_request<N>& r) const noexcept {
    if (N > 0 && r.data.bytes() > max_message_) return false;
    if (N > 1 && r.data.count() > attributes_.max_request_iov) return false;
    if (r.one_sided() && (r.data.bytes() > r.remote.length || (r.opcode == IBV_WR_RDMA_READ && read_depth_ == 0)))
      return false;
    return (r.flags & IBV_SEND_INLINE) == 0 || r.data.bytes() <= max_inline_;
  }
  template <std::size_t N>
  [[nodiscard, gnu::always_inline]] bool within_limits(const recv_request<N>& r) const noexcept {
    return N <= 1 || r.gather.count() <= attributes_.max_recv_iov;
  }

  [[nodiscard, gnu::always_inline]] bool takes_requests() const noexcept {
    return state_.load(std::memory_order_acquire) == ep_state::connected || flushes_requests();
  }
  template <std::size_t... N>
  [[nodiscard, gnu::always_inline]] expected<void> post_checked(std::uint32_t tail,
                                                                const send_request<N>&... r) noexcept {
    constexpr std::uint32_t n = sizeof...(N);
    std::array<ibv_send_wr, n> wr;
    std::tuple<posted_list<N>...> lists;
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (stage(wr[I], std::get<I>(lists), r, tail + static_cast<std::uint32_t>(I)), ...);
      ((wr[I].next = I + 1 < n ? &wr[I] + 1 : nullptr), ...);
    }
    (std::make_index_sequence<n>());
    return submit(wr.data(), n, tail);
  }
  template <std::size_t... N>
  [[nodiscard, gnu::always_inline]] expected<void> post_checked(std::uint32_t tail,
                                                                const recv_request<N>&... r) noexcept {
    constexpr std::uint32_t n = sizeof...(N);
    std::array<ibv_recv_wr, n> wr;
    std::tuple<posted_list<N>...> lists;
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (stage(wr[I], std::get<I>(lists), r, tail + static_cast<std::uint32_t>(I)), ...);
      ((wr[I].next = I + 1 < n ? &wr[I] + 1 : nullptr), ...);
    }
    (std::make_index_sequence<n>());
    rq_.set_tail(tail + n);
    ibv_recv_wr* bad = nullptr;
    if (const int err = ibv_post_recv(qp_, wr.data(), &bad)) [[unlikely]]
      return recv_post_failed(err, tail, bad ? static_cast<std::uint32_t>(bad - wr.data()) : 0);
    // A receive that slips in after the QP went to the error state is not flushed by every device.
    if (state_.load(std::memory_order_acquire) == ep_state::disconnected) [[unlikely]]
      flush_queues();
    return success();
  }

  /// What could not be posted at once: made tidy and checked in the order that errors are reported in.
  template <std::size_t... N>
  [[nodiscard, gnu::cold, gnu::noinline]] expected<void> post_slowly(send_request<N>... r) noexcept {
    (r.data.tidy(), ...);
    if (!takes_requests()) return wrong_state("ep.post");
    const std::uint32_t tail = sq_.tail();
    if (!sq_.has_room(tail, sizeof...(N))) return queue_full("ep.post", 0);
    error refused;
    if (!((acceptable(r) || (refused = refuse(r, 0), false)) && ...)) {
      if constexpr (sizeof...(N) > 1) return refused.hint("the other operations of the call were not posted either");
      return refused;
    }
    return post_checked(tail, r...);
  }
  template <std::size_t... N>
  [[nodiscard, gnu::cold, gnu::noinline]] expected<void> post_slowly(recv_request<N>... r) noexcept {
    (r.gather.tidy(), ...);
    if (state() == ep_dead || is_unconfigured(state())) return wrong_state("ep.post(recv)");
    const std::uint32_t tail = rq_.tail();
    if (!rq_.has_room(tail, sizeof...(N))) return recv_queue_full();
    error refused;
    if (!((acceptable(r) || (refused = refuse(r), false)) && ...)) return refused;
    return post_checked(tail, r...);
  }

  template <std::size_t N>
  [[gnu::always_inline]] void stage(ibv_send_wr& wr, posted_list<N>& list, const send_request<N>& r,
                                    std::uint32_t position) noexcept {
    sq_.put(position, r.cookie, static_cast<std::uint32_t>(r.data.bytes()), r.operation);
    wr.wr_id = wr_id_ | sq_.index(position);
    wr.sg_list = list.from(r.data);
    r.fill(wr);
  }
  template <std::size_t N>
  [[gnu::always_inline]] void stage(ibv_recv_wr& wr, posted_list<N>& list, const recv_request<N>& r,
                                    std::uint32_t position) noexcept {
    rq_.put(position, r.cookie, static_cast<std::uint32_t>(r.gather.bytes()), dto_operation::recv);
    wr.wr_id = wr_id_ | recv_bit | rq_.index(position);
    wr.sg_list = list.from(r.gather);
    wr.num_sge = static_cast<int>(r.gather.count());
  }
  [[nodiscard, gnu::always_inline]] expected<void> submit(ibv_send_wr* wr, std::uint32_t n,
                                                          std::uint32_t tail) noexcept {
    sq_.set_tail(tail + n);
    ibv_send_wr* bad;
    if (n > 1) bad = wr; // not every provider sets it
    if (const int err = ibv_post_send(qp_, wr, &bad)) [[unlikely]]
      return post_failed(err, tail, n > 1 ? static_cast<std::uint32_t>(bad - wr) : 0);
    return success();
  }

  // Errors, out of line so that the fast path stays small.
  [[nodiscard]] bool flushes_requests() const noexcept { return state() == ep_state::disconnected; }
  [[nodiscard, gnu::cold]] error wrong_state(const char* call) const noexcept;
  [[nodiscard, gnu::cold]] error queue_full(const char* call, std::uint32_t index) const noexcept;
  [[nodiscard, gnu::cold]] error recv_queue_full() const noexcept;
  [[nodiscard, gnu::cold]] error wrong_zone(const char* call) const noexcept;
  [[nodiscard, gnu::cold]] error post_failed(int err, std::uint32_t tail, std::uint32_t taken) noexcept;
  [[nodiscard, gnu::cold]] error recv_post_failed(int err, std::uint32_t tail, std::uint32_t taken) noexcept;
  template <std::size_t N>
  [[nodiscard]] error refusal(std::uint32_t count, std::uint64_t bytes, bool zone_ok, const send_request<N>& r,
                              std::uint32_t index) const noexcept;

  // The queue pair.
  [[nodiscard]] static expected<void> check_attributes(const ia_core& ia, const ep_attributes& a) noexcept;
  [[nodiscard]] static expected<void> check_evds(const ia_core& ia, const queues& evds) noexcept;
  void set_attributes(const ep_attributes& a) noexcept;
  [[nodiscard]] bool complete() const noexcept { return pz_ && evds_.recv && evds_.request && evds_.connect; }
  /// The queue pair and its rings, from what the members say.
  [[nodiscard]] expected<void> equip(const char* call) noexcept;
  [[nodiscard]] expected<void> start(const char* call, const ia_address& to, std::uint16_t port, timeout limit,
                                     std::span<const std::byte> data) noexcept;
  [[nodiscard]] expected<void> check_start(const char* call, timeout limit, std::span<const std::byte> data,
                                           return_subtype limit_arg, return_subtype data_arg) const noexcept;
  [[nodiscard]] result<ibv_qp*> make_qp(const char* call, ep_tag tag) noexcept;
  [[nodiscard]] int to_init(ibv_qp* qp) const noexcept;
  [[nodiscard]] rts_result to_rts(rdma_cm_id* id, std::uint8_t peer_read_in) noexcept;
  void flush_queues() noexcept;
  [[nodiscard]] int remote_access() const noexcept;

  // Deferred work: done by the reactor because its cause appears where the endpoint may not be locked.
  enum : unsigned { deferred_break = 1, deferred_marker = 2, deferred_tick = 4, deferred_arrival = 8 };
  struct work_timer : timer {
    ep_core* self = nullptr;
  };
  void defer(unsigned what, ep_tag whose) noexcept;
  void run_deferred() noexcept;

  // Connection life; all with mutex_ held.
  void set_state(ep_state s) noexcept {
    // The rings first: who sees the state then also sees whether they are open.
    sq_.open(s == ep_state::connected || s == ep_state::disconnected);
    rq_.open(s != ep_dead && !is_unconfigured(s));
    state_.store(s, std::memory_order_release);
  }
  void announce_event(record::kind what, int reason = 0) noexcept;
  void end_connection(record::kind what, int reason) noexcept;
  void break_connection() noexcept;
  [[nodiscard]] expected<void> start_graceful() noexcept;

  std::atomic<ep_state> state_{ep_state::unconnected};
  bool announced_ = false; // guarded by the connect evd's lock
  std::uint8_t read_depth_ = 0;
  std::uint32_t max_message_ = 0;
  std::uint32_t max_inline_ = 0;
  std::uint64_t wr_id_ = 0; // tag, in the place it has in a wr_id
  ibv_qp* qp_ = nullptr;
  std::atomic<std::uint32_t> number_{0}; // asked for from any thread, also while reset replaces qp_
  ref<pz_core> pz_;
  work_ring sq_;
  work_ring rq_;

  ep_tag tag_ = 0;
  queues evds_;
  ep_attributes attributes_;
  std::uint8_t read_out_ = 0; // what the consumer or the device allows
  std::uint8_t read_in_ = 0;
  std::mutex mutex_;              // state changes, connection_, qp_
  ref<ep_connection> connection_; // also the request that it waits for an answer to
  ia_address own_;                // what the consumer set; any: the adapter's
  std::atomic<unsigned> deferred_{0};
  std::atomic<ep_tag> deferred_for_{0};
  work_timer work_;
};

inline constexpr child_type ep_core::table = type_for<ep_core>();

} // namespace dat::inline v0::detail
