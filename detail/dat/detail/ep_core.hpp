// The endpoint behind dat::ep: its queue pair, its rings, and the path of one post.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ep_attributes.hpp>
#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <dat/detail/ep_connection.hpp>
#include <dat/detail/ep_posting.hpp>
#include <dat/detail/evd_core.hpp>
#include <dat/detail/ia_core.hpp>
#include <dat/detail/pz_core.hpp>
#include <dat/detail/srq_core.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <tuple>
#include <utility>

namespace dat::inline v0::detail {

/// Reliable connections are the stream sockets of IP.
[[nodiscard]] constexpr bool is_supported(const communicator& c) noexcept {
  return (c.domain == AF_INET || c.domain == AF_INET6) && c.type == SOCK_STREAM &&
         (c.protocol == 0 || c.protocol == IPPROTO_TCP);
}
[[nodiscard]] inline bool fits(const communicator& c, const ia_address& a) noexcept {
  return c.domain == (a.family() == address_family::ipv4 ? AF_INET : AF_INET6);
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

/// The key of all datagram endpoints: the one that rdma_cm gives to those who name none.
inline constexpr std::uint32_t datagram_qkey = RDMA_UDP_QKEY;

class ep_core final : public ia_child, public ep_posting {
public:
  struct queues {
    ref<evd_core> recv;
    ref<evd_core> request;
    ref<evd_core> connect;
    /// Which of the empty ones are so because nobody wants those events.
    bool no_recv = false;
    bool no_request = false;
    bool no_connect = false;
  };

  /// What makes it a datagram endpoint.
  struct datagram_part {
    ref<ia_child> owner;
    ud_core* core;
    std::uint32_t mtu; ///< bytes
    /// The queue pair goes, and this one or none takes its place.
    void (*requeue)(ud_core&, ibv_qp* to) noexcept;
  };

  /// The zone and the evds may be missing, but not for datagrams.
  [[nodiscard]] static result<ref<ep_core>> create(const char* call, const ref<ia_core>& ia, const ref<pz_core>& pz,
                                                   const queues& evds, const ep_attributes& attributes,
                                                   const ref<srq_core>& srq = {},
                                                   const datagram_part* datagrams = nullptr) noexcept;
  /// An endpoint for a request, which the consumer is to configure. Null when there is no room.
  [[nodiscard]] static ref<ep_core> create_for(const ref<ep_connection>& request) noexcept;
  ep_core(ref<ia_core> ia, ref<pz_core> pz, const queues& evds, ref<srq_core> srq) noexcept;

  [[nodiscard]] std::uint8_t read_in() const noexcept { return read_in_; }
  [[nodiscard]] std::uint8_t read_out() const noexcept { return read_out_; }
  [[nodiscard]] ep_tag tag() const noexcept { return tag_; }
  [[nodiscard]] const pz_core* pz() const noexcept { return pz_.get(); } ///< null while it has none
  [[nodiscard]] const queues& evds() const noexcept { return evds_; }    ///< empty once it is gone
  /// Where its receives come from, if not from a queue of its own.
  [[nodiscard]] const ref<srq_core>& srq() const noexcept { return srq_; }

  /// Windows that are bound through it, or about to be: they end before its queue pair does.
  std::atomic<std::uint32_t> windows{0};

  // --- completing ------------------------------------------------------------------------------------------------

  [[nodiscard]] work_ring& requests() noexcept { return sq_; }
  [[nodiscard]] work_ring& receives() noexcept { return rq_; }
  /// Whether completions may appear on `e`: not before ESTABLISHED does, where both go to the same evd.
  [[nodiscard]] bool announced_on(const evd_core* e) const noexcept { return e != evds_.connect.get() || announced_; }
  /// Called with the evd's lock held as a connection event is appended.
  void announce(bool done) noexcept { announced_ = done; }

  /// Whether its completions may pass the ring of `e`: nothing of the connection has to come first, and nobody counts.
  [[nodiscard]] bool hands_over(const evd_core* e) const noexcept {
    return announced_on(e) && alarm_.load(std::memory_order_relaxed) == no_watermark;
  }

  /// A message has arrived and stands in the recv evd, whose lock is held; or was taken from it.
  void hold_receive() noexcept {
    const std::uint32_t n = held_.load(std::memory_order_relaxed) + 1;
    held_.store(n, std::memory_order_relaxed);
    if (n > alarm_.load(std::memory_order_relaxed)) [[unlikely]]
      overdrawn(n);
  }
  void release_receive() noexcept { held_.store(held_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed); }
  [[nodiscard]] expected<void> set_watermark(std::uint32_t soft, std::uint32_t hard) noexcept;
  [[nodiscard]] std::uint32_t soft_watermark() const noexcept { return soft_; } ///< with the endpoint locked
  [[nodiscard]] std::uint32_t hard_watermark() const noexcept { return hard_; }

  /// Data has been taken. On an accepted connection that is not established yet, it proves that it is.
  [[gnu::cold]] void arrived() noexcept;
  /// The completion of a marker has been taken: it ends a graceful disconnect.
  [[gnu::cold]] void marker_taken(ep_tag whose, ibv_wc_status status) noexcept;
  /// An operation of the life `whose` failed: the connection is broken. Idempotent.
  [[gnu::cold]] void broke(ep_tag whose) noexcept;
  /// The same for the present life,
  void broke() noexcept;
  /// if its completions go to `e`.
  void broke_with(const evd_core& e) noexcept;
  /// Notices a break that the device knows of, though nobody has taken a completion that says so.
  void look_for_break(const evd_core& e) noexcept;
  /// All requests of that life before the marker are done.
  void drained(ep_tag whose) noexcept;
  /// The same, from a place that may not lock the endpoint: done by the reactor.
  void defer_break(ep_tag whose) noexcept { defer(deferred_break, whose); }
  void defer_arrival(ep_tag whose) noexcept { defer(deferred_arrival, whose); }
  void defer_drained(ep_tag whose) noexcept { defer(deferred_marker, whose); }

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
    pending_ = request->service();
    request->brings(ref<ia_child>(this));
    set_state(s == ep_state::reserved ? ep_state::passive_connection_pending : ep_state::unconfigured_passive);
    if (push()) return true;
    connection_ = ref<ep_connection>(); // not {}: clang 14 forgets to end what was there, in a template
    request->brings(ref<ia_child>());
    set_state(s);
    return false;
  }
  [[nodiscard]] bool has_request_of(const service_id& service) noexcept {
    const std::lock_guard lock(mutex_);
    return (state() == ep_state::passive_connection_pending || state() == ep_state::unconfigured_passive) &&
           pending_ == service;
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
  friend class ud_core;
  friend class ud_connection;
  friend struct direct_connection;
  friend class ia_child;
  friend class rmr_core;

  ~ep_core() = default;
  void teardown() noexcept;
  static constexpr child_kind kind_of_child = child_kind::endpoint;
  static const child_type table;

  // The queue pair.
  [[nodiscard]] static expected<void> check_attributes(const ia_core& ia, const ep_attributes& a) noexcept;
  [[nodiscard]] static expected<void> check_evds(const ia_core& ia, const queues& evds) noexcept;
  void set_attributes(const ep_attributes& a) noexcept;
  /// The evds learn how completions that come from here are to wake; all that feed one must agree.
  /// Feeds them as the attributes say; `leaving`: the queues that this endpoint feeds now, and is about to leave.
  [[nodiscard]] static expected<void> attach(const queues& evds, const ep_attributes& a,
                                             const queues& leaving) noexcept;
  static void detach(const queues& evds) noexcept;
  /// Puts a hidden evd where nobody wants the events.
  [[nodiscard]] static expected<void> add_sink(const char* call, const ref<ia_core>& ia, queues& evds,
                                               const ep_attributes& a, const srq_core* srq) noexcept;
  [[nodiscard]] bool complete() const noexcept { return pz_ && evds_.recv && evds_.request && evds_.connect; }
  /// The queue pair and its rings, from what the members say.
  [[nodiscard]] expected<void> equip(const char* call) noexcept;
  /// With `lock` on mutex_.
  [[nodiscard]] expected<void> start(std::unique_lock<std::mutex> lock, const char* call, const ia_address& to,
                                     std::uint16_t port, timeout limit, std::span<const std::byte> data) noexcept;
  [[nodiscard]] expected<void> check_start(const char* call, timeout limit, std::span<const std::byte> data,
                                           return_subtype limit_arg, return_subtype data_arg) const noexcept;
  [[nodiscard]] result<ibv_qp*> make_qp(const char* call, ep_tag tag) noexcept;
  void free_entries() noexcept;
  void part_from_windows() noexcept {
    if (windows.load(std::memory_order_acquire) != 0) ia().let_windows_go(*this);
  }
  void note_zone() noexcept;
  void note_depths() noexcept;
  /// Reads and atomics under way at a time: as many as both sides can.
  void agree_on_depth(std::uint8_t peer_reads_in) noexcept;
  /// How many receives can have completed and not be taken.
  [[nodiscard]] static std::uint32_t most_receives(const srq_core* srq, const ep_attributes& a) noexcept {
    return srq ? srq->capacity() : a.max_recv_dtos;
  }
  /// Completions of the queue pair lead nowhere from now on. With a shared queue, whose entries would else never be
  /// free again.
  void leave_srq() noexcept;
  [[nodiscard]] int to_init(ibv_qp* qp) noexcept;
  [[nodiscard]] int to_datagram_rts(ibv_qp* qp) const noexcept;
  [[nodiscard]] rts_result to_rts(rdma_cm_id* id, std::uint8_t peer_read_in) noexcept;
  [[nodiscard]] int remote_access() const noexcept;

  // Deferred work: done by the reactor because its cause appears where the endpoint may not be locked.
  enum : unsigned {
    deferred_break = 1,
    deferred_marker = 2,
    deferred_tick = 4,
    deferred_arrival = 8,
    deferred_watermark = 16
  };
  struct work_timer : timer {
    ep_core* self = nullptr;
  };
  void defer(unsigned what, ep_tag whose) noexcept;
  void run_deferred() noexcept;

  // High watermarks: counted where receives complete, acted on by the reactor.
  void overdrawn(std::uint32_t n) noexcept;
  void look_at_watermarks() noexcept; // with mutex_ held
  void arm_alarm() noexcept;          // likewise

  // Connection life; all with mutex_ held.
  void announce_event(record::kind what, int reason = 0) noexcept;
  void end_connection(record::kind what, int reason) noexcept;
  void break_connection() noexcept;
  void end_datagrams(record::kind what) noexcept;
  [[nodiscard]] bool completes_on(const evd_core& e) const noexcept {
    return evds_.recv.get() == &e || evds_.request.get() == &e;
  }
  void guard_queues(bool yes) noexcept;
  [[nodiscard]] expected<void> start_graceful() noexcept;

  bool announced_ = false; // guarded by the connect evd's lock
  ref<pz_core> pz_;
  work_entry* entries_ = nullptr; // the marker's, those of sq_, those of rq_
  std::uint32_t entry_count_ = 0;
  ep_tag tag_ = 0;
  queues evds_;
  std::uint8_t read_out_ = 0; // what the consumer or the device allows
  std::uint8_t read_in_ = 0;
  int access_ = 0;                // remote_access() as the queue pair was last told
  std::mutex mutex_;              // state changes, connection_, qp_
  ref<ep_connection> connection_; // also the request that it waits for an answer to
  service_id pending_;            // where that request came to
  ia_address own_;                // what the consumer set; any: the adapter's
  ref<ia_child> datagrams_;       // the ud_core that ud_ points to
  void (*requeue_)(ud_core&, ibv_qp* to) noexcept = nullptr;
  std::atomic<unsigned> deferred_{0};
  std::atomic<ep_tag> deferred_for_{0};
  work_timer work_;
  ref<srq_core> srq_;
  std::atomic<std::uint32_t> held_{0};             // written with the recv evd's lock held
  std::atomic<std::uint32_t> peak_{0};             // the most of held_ since the watermarks were last looked at
  std::atomic<std::uint32_t> alarm_{no_watermark}; // the lower of the watermarks that are armed
  std::uint32_t soft_ = no_watermark;
  std::uint32_t hard_ = no_watermark;
  bool soft_armed_ = false;
};

inline constexpr child_type ep_core::table = type_for<ep_core>();

} // namespace dat::inline v0::detail
