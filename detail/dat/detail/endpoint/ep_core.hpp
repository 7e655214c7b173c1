// The endpoint behind dat::ep: its queue pair, its lives, and its part in a connection.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/end_reason.hpp>
#include <dat/ep_attributes.hpp>
#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <dat/detail/adapter/ia_core.hpp>
#include <dat/detail/base/config.hpp>
#include <dat/detail/base/control_mutex.hpp>
#include <dat/detail/connection/connection_observer.hpp>
#include <dat/detail/connection/connection_state.hpp>
#include <dat/detail/endpoint/ep_life.hpp>
#include <dat/detail/endpoint/srq_core.hpp>
#include <dat/detail/events/evd_core.hpp>
#include <dat/detail/memory/pz_core.hpp>
#include <dat/detail/posting/ep_posting.hpp>
#include <dat/detail/verbs/qp_transitions.hpp>

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

struct direct_peer;

/// The state that follows `s` when an unconfigured endpoint has received its zone and its evds.
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

/// The key of all datagram endpoints: the one that rdma_cm uses by default.
inline constexpr std::uint32_t datagram_qkey = RDMA_UDP_QKEY;

inline constexpr const char* uncounted_hint =
    "The receives of an endpoint can be counted only where its recv evd has a queue of its own. Create that evd with "
    "dat::stream::dto | dat::stream::software, or leave the high watermarks out.";

/// Lock order: the endpoint's lock, then those of evds, then the rest.
class ep_core final : public ep_posting, public ia_child {
public:
  struct queues {
    ref<evd_core> recv;
    ref<evd_core> request;
    ref<evd_core> connect;
    // Set where an evd is empty because the consumer passed drop_events.
    bool no_recv = false;
    bool no_request = false;
    bool no_connect = false;
  };

  /// The parameters of a datagram endpoint.
  struct datagram_part {
    ref<ia_child> core;
    ep_core** endpoint; ///< gets the endpoint before any other thread can end it
    post_counter* sent;
    std::uint32_t mtu; ///< bytes
    /// The endpoint's queue pair is about to be destroyed. `to` is the queue pair that replaces it; null if none does.
    void (*requeue)(ia_child& core, ibv_qp* to) noexcept;
  };

  /// The zone and the evds may be missing, but not for datagrams.
  [[nodiscard]] static result<ref<ep_core>> create(const char* call, const ref<ia_core>& ia, const ref<pz_core>& pz,
                                                   const queues& evds, const ep_attributes& attributes,
                                                   const ref<srq_core>& srq = {},
                                                   const datagram_part* datagrams = nullptr) noexcept;
  ep_core(ref<ia_core> ia, ref<pz_core> pz, const queues& evds, ref<srq_core> srq) noexcept;

  /// The functions that connections and service points call.
  static const connection_observer observer;
  static const request_endpoints request_functions;

  /// RDMA reads and atomics that the endpoint serves at a time, and that it may run at a time.
  [[nodiscard]] std::uint8_t responder_resources() const noexcept { return responder_resources_; }
  [[nodiscard]] std::uint8_t initiator_depth() const noexcept { return initiator_depth_; }
  [[nodiscard]] const pz_core* pz() const noexcept { return pz_.get(); } ///< null while the zone is missing
  [[nodiscard]] const queues& evds() const noexcept { return evds_; }    ///< empty once the endpoint has ended
  /// The datagram part of the endpoint; null for others.
  [[nodiscard]] ia_child* datagrams() const noexcept { return datagrams_.get(); }
  /// The shared queue that its receives come from; null: they come from a queue of its own.
  [[nodiscard]] const ref<srq_core>& srq() const noexcept { return srq_; }

  /// The quality of service of packets from this endpoint, where no call sets another.
  [[nodiscard]] qos quality_of_service() const noexcept { return attributes_.qos.or_else(ia().qos()); }
  /// A window was bound through the endpoint. Bindings that still exist end before the queue pair of the endpoint.
  std::atomic<bool> has_windows{false};

  // --- completing ----------------------------------------------------------------------------------------------------

  [[nodiscard]] work_ring& requests() noexcept { return sq_; }
  [[nodiscard]] work_ring& receives() noexcept { return rq_; }
  /// Called when a completion has been taken. On an accepted connection without the last handshake message, data proves
  /// that the connection is established.
  [[gnu::cold]] void arrived(ep_generation whose) noexcept;
  /// The completion of an internal request has been taken. It is the marker of a graceful disconnect, which completes
  /// the disconnect, or the probe of an idle connection.
  [[gnu::cold]] void own_taken(work_kind kind, ep_generation whose, ibv_wc_status status) noexcept;
  /// An operation of the life `whose` failed, so the connection is broken. In another life the call has no effect.
  [[gnu::cold]] void broke(ep_generation whose, end_reason why = end_reason::operation_failed) noexcept;
  /// The present connection is broken.
  void broke() noexcept;
  /// The present connection is broken if its completions go to `e`.
  void broke_with(const evd_core& e) noexcept;
  /// Handles a report of the device about this endpoint, or about an object that it needs.
  void on_device(const device_report& r) noexcept;
  /// All requests of that life have completed.
  void drained(ep_generation whose) noexcept;
  /// The device has completed the last receive that it took from the shared queue for a queue pair in error.
  void last_wqe_reached(ep_generation whose) noexcept;

  // --- connecting ----------------------------------------------------------------------------------------------------

  /// The parameters of an attempt to connect.
  struct attempt {
    timeout limit;
    std::span<const std::byte> data;
    connect_options options{};
  };
  [[nodiscard]] expected<void> connect(const ia_address& to, std::uint16_t port, const attempt& with) noexcept;
  [[nodiscard]] expected<void> common_connect(const ia_address& to, const attempt& with) noexcept;
  [[nodiscard]] expected<void> dup_connect(ep_core& original, const attempt& with) noexcept;
  /// Connects to the endpoint of a descriptor.
  [[nodiscard]] expected<void> connect_directly(const direct_peer& peer, const qos& q) noexcept;
  /// The contents of a descriptor of this endpoint. `family` is preferred; a datagram endpoint takes no other.
  [[nodiscard]] result<direct_peer> describe(const char* call, address_family family) noexcept;
  /// Accepts a request on this endpoint, which the request may have brought.
  [[nodiscard]] expected<void> accept(connection_state& request, std::span<const std::byte> data,
                                      const connect_options& options) noexcept;
  [[nodiscard]] expected<void> disconnect(close_mode how) noexcept;
  [[nodiscard]] expected<void> reset() noexcept;
  /// Whether its handle may close it: not while a service point or a request holds it.
  [[nodiscard]] expected<void> check_free() const noexcept;

  // --- parameters, see ep_params.hpp ---------------------------------------------------------------------------------

  struct changes;
  [[nodiscard]] expected<void> modify(const changes& wanted) noexcept;
  [[nodiscard]] expected<void> set_watermark(std::uint32_t soft, std::uint32_t hard) noexcept;
  // Called with the endpoint locked.
  [[nodiscard]] std::uint32_t soft_watermark() const noexcept { return watermarks_.soft(); }
  [[nodiscard]] std::uint32_t hard_watermark() const noexcept { return watermarks_.hard(); }
  /// Tests the peer if the connection has posted no request since the last call. Posts a request that moves no data,
  /// and that fails like any other request when the peer does not answer. Called on the reactor, twice in each
  /// keep_alive.
  void test_peer() noexcept;
  /// Calls `look(*this)` with the endpoint locked.
  template <class Look>
  void locked(Look look) noexcept {
    const std::lock_guard lock(mutex_);
    look(*this);
  }
  /// The address that the consumer set; any: the adapter's.
  [[nodiscard]] const ia_address& local_address() const noexcept { return local_address_; }
  /// Announces the end of a datagram endpoint's service, after which it neither sends nor receives.
  void end_datagrams(record::kind what, end_reason why) noexcept;
  /// The connection, the attempt at one, or the request that waits for an answer.
  [[nodiscard]] const ref<connection_state>& connection() const noexcept { return connection_; }

  // Used by the table that ia_child::type_for makes.
  ~ep_core() = default;
  void teardown() noexcept;
  static constexpr child_kind kind_of_child = child_kind::endpoint;

private:
  static const child_type table;

  // --- creation and the queue pair, see ep_core.ipp and ep_equip.ipp -------------------------------------------------

  [[nodiscard]] static expected<void> check_attributes(const ia_core& ia, const ep_attributes& a, bool shared) noexcept;
  [[nodiscard]] static expected<void> check_evds(const ia_core& ia, const queues& evds) noexcept;
  void set_attributes(const ep_attributes& a) noexcept;
  /// The requests of the library's own that a queue may have: see start_graceful and test_peer.
  [[nodiscard]] static std::uint32_t own_requests(const ep_attributes& a) noexcept {
    return a.keep_alive.count() != 0 ? 2 : 1;
  }
  /// The places that completions of a queue need in its evd.
  [[nodiscard]] static std::uint32_t request_places(const ep_attributes& a) noexcept {
    return a.max_request_dtos + own_requests(a);
  }
  [[nodiscard]] static std::uint32_t receive_places(const srq_core* srq, const ep_attributes& a) noexcept {
    return srq ? srq->capacity() : a.max_recv_dtos;
  }
  struct places {
    std::uint32_t recv = 0;
    std::uint32_t request = 0;
  };
  [[nodiscard]] static places places_of(const srq_core* srq, const ep_attributes& a) noexcept {
    return {receive_places(srq, a), request_places(a)};
  }
  /// Chooses the notifications that the consumer has left to the endpoint, for the queues that have an evd. `shared`:
  /// its receives come from an srq.
  static void choose_completions(const queues& evds, bool shared, ep_attributes& a) noexcept;
  /// Attaches the queues to their evds. `leaving`: the evds that the endpoint feeds now and is about to leave; `left`:
  /// its completions there.
  [[nodiscard]] static expected<void> attach(const queues& evds, const places& n, const ep_attributes& a,
                                             const srq_core* srq, const queues& leaving, const places& left) noexcept;
  /// `whose`: the endpoint that may have connection events in its evd; null: none yet.
  static void detach(const queues& evds, const places& n, const srq_core* srq, const ep_core* whose) noexcept;
  /// Adds a hidden evd for the events that the consumer drops.
  [[nodiscard]] static expected<void> add_sink(const char* call, const ref<ia_core>& ia, queues& evds) noexcept;
  [[nodiscard]] bool complete() const noexcept { return pz_ && evds_.recv && evds_.request && evds_.connect; }
  /// Creates the queue pair and its rings from the members, and posts the kept receives to them: all or none. While the
  /// zone or an evd is missing, creates only the ring of receives.
  [[nodiscard]] expected<void> equip(const char* call) noexcept;
  /// Whether it has receives of its own that it must keep until it is connected.
  [[nodiscard]] bool has_kept_receives() const noexcept { return !shares_ && !datagrams_; }
  /// Posts the kept receives to a new life and its queue pair, which is null while the zone or an evd is missing.
  [[nodiscard]] expected<void> move_receives(const char* call, ep_life& to, ibv_qp* qp) noexcept;
  /// Prepares the copies of the receives of a new life. Returns null when memory is exhausted.
  [[nodiscard]] kept_receives* make_kept() const noexcept {
    return kept_receives::make(attributes_.max_recv_dtos, attributes_.max_recv_iov);
  }
  /// Prepares the next life, in the storage of the life before the present one. Returns null when memory is exhausted.
  [[nodiscard]] ep_life* make_life() noexcept;
  [[nodiscard]] result<ibv_qp*> make_qp(const char* call, ep_generation life) noexcept;
  /// Makes the new life and its queue pair the present ones. Returns the old queue pair. `qp` is null while the zone or
  /// an evd is missing: then the life has receives only, and no completions.
  ibv_qp* use_life(ep_life& fresh, ibv_qp* qp) noexcept;
  void use_depth(std::uint8_t initiator_depth) noexcept;
  [[nodiscard]] int remote_access() const noexcept;
  [[nodiscard]] qp_settings settings() const noexcept;
  [[nodiscard]] connection_qp qp_of_connection(const qos& wanted) noexcept {
    connection_qp c{qp_, settings(), &init_, shares_};
    c.settings.qos = wanted.or_else(c.settings.qos);
    return c;
  }
  void part_from_windows() noexcept {
    if (has_windows.load(std::memory_order_acquire)) ia().release_windows(*this);
  }
  /// Returns the entries of the shared queue that the queue pair still has. Waits for a short time until the device
  /// has completed them. Called without the lock.
  void await_last_wqe() noexcept;
  /// Takes the completions of the queue pair that are there, and erases the endpoint from the shared queue.
  void leave_srq() noexcept;

  // --- service points, see ep_requests.ipp ---------------------------------------------------------------------------

  [[nodiscard]] static ref<ia_child> create_for(const ref<connection_state>& request) noexcept;
  [[nodiscard]] expected<void> reserve(const char* call, const ia_core& of) noexcept;
  void unreserve() noexcept;
  [[nodiscard]] bool take_request(const ref<connection_state>& request, bool (*push)(void*) noexcept,
                                  void* context) noexcept;
  [[nodiscard]] bool has_request_of(const service_id& service) noexcept;
  void request_gone() noexcept;

  // --- connecting, see ep_connect.ipp --------------------------------------------------------------------------------

  [[nodiscard]] expected<void> check_start(const char* call, const attempt& with, return_subtype limit_arg,
                                           return_subtype data_arg, return_subtype qos_arg) const noexcept;
  /// Called with `lock` on mutex_. `no_path` is the error of addresses between which no path leads: uDAPL has
  /// DAT_INVALID_ADDRESS for connect only. An endpoint without an address of its own leaves by `usual`, or else by that
  /// of its ia.
  [[nodiscard]] expected<void> start(std::unique_lock<control_mutex> lock, const char* call, const ia_address& to,
                                     std::uint16_t port, const attempt& with, const error& no_path,
                                     const ia_address* usual = nullptr) noexcept;
  [[nodiscard]] expected<void> start_graceful() noexcept;
  [[nodiscard]] expected<void> find_link(const ibv_ah_attr& path, const char* call) noexcept;

  // --- events, see ep_connect.ipp and ep_events.ipp; with mutex_ held ------------------------------------------------

  void established() noexcept;
  /// Data of the peer has arrived before the last handshake message.
  void established_by_data() noexcept;
  /// Establishes an accepted connection when a message of the peer is waiting, because the message shows that the peer
  /// is connected (uDAPL 2.0 §6.6.11). So the event and the message are queued before the events that end the
  /// connection.
  void look_for_message() noexcept;
  void announce_event(record::kind what, int reason = 0) noexcept;
  /// Ends the connection or the attempt at one. A negative `reason` announces nothing.
  void end_connection(record::kind what, int reason) noexcept;
  void break_connection(end_reason why) noexcept;
  void check_watermarks() noexcept;
  [[nodiscard]] bool completes_on(const evd_core& e) const noexcept {
    return evds_.recv.get() == &e || evds_.request.get() == &e;
  }
  void guard_queues(bool yes) noexcept;
  /// Begins or ends the tests of an idle connection, see ep_attributes::keep_alive.
  void begin_tests() noexcept;
  void end_tests() noexcept;
  void arm_test() noexcept;
  /// Moves the queue pair to the error state, so that all posted work completes as flushed.
  void flush() noexcept;

  // --- deferred work -------------------------------------------------------------------------------------------------

  struct work_task : task {
    ep_core* self = nullptr;
  };
  /// Lets the reactor do `what`: see completion_owner::defer.
  void defer_to_reactor(std::uint32_t what, ep_generation whose) noexcept;
  void run_deferred() noexcept;

  ref<pz_core> pz_;
  queues evds_;
  places attached_; // the completions that the evds reserve for this endpoint
  ref<srq_core> srq_;
  ep_life lives_[2]; // the present life and the previous one
  ep_life* life_ = nullptr;
  std::uint8_t initiator_depth_ = 0; // requested by the consumer, or limited by the device
  std::uint8_t responder_resources_ = 0;
  qp_init_state init_;
  std::uint32_t psn_ = 0; // the first packet number of a connection by descriptor
  control_mutex mutex_;   // guards the state, connection_, qp_
  ref<connection_state> connection_;
  service_id pending_; // the service point at which the request arrived
  ia_address local_address_;
  ref<ia_child> datagrams_; // see datagram_part
  void (*requeue_)(ia_child& core, ibv_qp* to) noexcept = nullptr;
  // The generation of the life that the deferred work belongs to, and the work: see defer.
  std::atomic<std::uint64_t> deferred_{0};
  work_task work_;
  work_task test_;                        // runs test_peer
  const work_entry* last_next_ = nullptr; // the next entry of the request ring at the last test
  work_entry* before_marker_ = nullptr;   // the last request before a graceful disconnect
  bool was_up_ = false;                   // whether the queue pair left INIT in this life
  clock::time_point flushed_at_{};        // the time when the queue pair was moved to the error state
  std::atomic<bool> last_wqe_seen_{false};
};

/// The endpoint to which an entry was posted. Higher layers find the endpoint of a completion only by this function.
[[nodiscard, gnu::always_inline]] inline ep_core& endpoint_of(completion_owner& owner) noexcept {
  return static_cast<ep_core&>(owner);
}
[[nodiscard, gnu::always_inline]] inline ep_core& endpoint_of(const work_entry& e) noexcept {
  return endpoint_of(e.ring().owner());
}

/// The functions of endpoints that an ia calls.
inline constexpr child_type ep_core::table = [] {
  child_type t = type_for<ep_core>();
  t.on_device = [](ia_child& c, const device_report& r) noexcept { static_cast<ep_core&>(c).on_device(r); };
  t.of_generation = [](ia_core& ia, std::uint64_t generation) noexcept {
    const std::lock_guard lock(ia.work_mutex);
    const work_entry* const of = ia.work.find(generation);
    return of && of->ring().owner().object().try_add_ref() ? ref<ia_child>(&endpoint_of(*of), adopt) : ref<ia_child>();
  };
  return t;
}();

}}} // namespace dat::v0::detail
