// The state of one connection, or of one attempt at one: its phase, its deadline, and the data of both sides.
//
// An id of rdma_cm serves one attempt only. Each attempt has its own object, so that a late event of an old attempt
// cannot reach an endpoint that was reset meanwhile.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/end_reason.hpp>
#include <dat/error.hpp>
#include <dat/service_id.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/adapter/cm_id_owner.hpp>
#include <dat/detail/base/config.hpp>
#include <dat/detail/base/control_mutex.hpp>
#include <dat/detail/base/deadline.hpp>
#include <dat/detail/connection/connection_observer.hpp>
#include <dat/detail/connection/private_data.hpp>
#include <dat/detail/verbs/qp_transitions.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <span>

namespace dat { inline namespace v0 { namespace detail {

/// The queue pair of a connection, and its parameters. The queue pair does not change while the connection is attached.
struct connection_qp {
  ibv_qp* qp = nullptr;
  qp_settings settings{};
  qp_init_state* now = nullptr; ///< the endpoint's copy of the attributes of INIT
  bool shared_receives = false; ///< receives come from an srq
};

class connection_state final : public connection_base {
public:
  enum class phase : std::uint8_t {
    resolving,   ///< active: resolves the address and the route
    requested,   ///< active: has sent the request
    stale,       ///< active: the peer still has an older connection, and this side repeats the request soon
    waiting,     ///< passive: waits for the consumer's answer
    completing,  ///< passive: accepted
    established, ///< both
    over         ///< the user has ended it; the id may linger until the peer has answered
  };

  explicit connection_state(ref<ia_core> ia, phase p) noexcept : connection_base(std::move(ia), table), phase_(p) {
    timer_.run = &on_timer;
    timer_.self = this;
  }

  // --- the user, an endpoint -----------------------------------------------------------------------------------------

  /// From now on events of the connection go to `user`. The connection does not keep its user alive.
  void attach(ia_child& user, const connection_observer& observer) noexcept;
  void detach() noexcept;

  // --- an active connection: the user is locked ----------------------------------------------------------------------

  /// Creates the id and binds it to `from`, which selects the adapter and the local port. `data` has at most
  /// max_private_data bytes.
  [[nodiscard]] verb_result prepare(const ia_address& from, const ia_address& to, std::span<const std::byte> data,
                                    const connection_qp& qp) noexcept;
  /// Sets the time limit of the attempt and arms its timer.
  void set_limit(timeout limit) noexcept;
  /// Starts to resolve the address. Called with the user unlocked, because the answer may arrive before the call
  /// returns. Returns 0 or errno.
  [[nodiscard]] int resolve() noexcept;

  /// Uses a path from a peer's descriptor in place of rdma_cm. `peer_responder_resources` is the peer's number.
  [[nodiscard]] rts_result connect_directly(const connection_qp& qp, const qp_path& path,
                                            std::uint8_t peer_responder_resources, const ia_address& local,
                                            const ia_address& remote) noexcept;
  /// True for a connection that was made from a descriptor.
  [[nodiscard]] bool direct() const noexcept { return direct_; }

  // --- a passive connection ------------------------------------------------------------------------------------------

  /// Takes over the id of a request. Called before the event is acknowledged.
  void adopt_request(rdma_cm_id* child, const cm_event& request, const connection_base& listener) noexcept;
  /// Moves the queue pair to RTS, with the user locked.
  [[nodiscard]] rts_result prepare_accept(const connection_qp& qp) noexcept;
  /// Records that the request is accepted, with the user attached and locked. `limit`: how long the peer may take to
  /// complete the handshake.
  void begin_accept(timeout limit) noexcept;
  /// Sends the accept. Called with the user unlocked, as `resolve`. Returns 0 or errno.
  [[nodiscard]] int accept(std::span<const std::byte> data) noexcept;
  /// Called when data of the peer has arrived, which proves that the peer has the accept. The user is locked.
  void data_arrived() noexcept;
  /// Answers a request with a reject. Errors: `invalid_parameter` for too much data; otherwise by errno.
  [[nodiscard]] expected<void> reject(std::span<const std::byte> data) noexcept;
  /// Hands the request to another service point of the ia.
  [[nodiscard]] expected<void> hand_off(std::uint16_t port) noexcept;

  /// The service point that delivered the request.
  [[nodiscard]] const service_id& service() const noexcept { return service_; }
  /// Sets the endpoint of the request and returns the previous one. Only while no other thread knows of the request.
  service_id set_service(const service_id& s) noexcept { return std::exchange(service_, s); }
  /// The endpoint that was reserved for the request or created for it; null for other requests.
  [[nodiscard]] ia_child* endpoint() const noexcept { return endpoint_.get(); }
  void set_endpoint(ref<ia_child> ep, const request_endpoints* functions) noexcept {
    endpoint_ = std::move(ep);
    endpoint_functions_ = functions;
  }
  /// The offer of a request's peer: the RDMA reads that it serves, and those that it runs.
  [[nodiscard]] std::uint8_t peer_responder_resources() const noexcept { return peer_responder_resources_; }
  [[nodiscard]] std::uint8_t peer_initiator_depth() const noexcept { return peer_initiator_depth_; }

  // --- both ----------------------------------------------------------------------------------------------------------

  /// The number of RDMA reads and atomics that this side may run at a time: as many as both sides support. Once
  /// established.
  [[nodiscard]] std::uint8_t initiator_depth() const noexcept { return qp_.settings.initiator_depth; }
  /// The user has ended the connection: it gets no further event. Returns the phase that has ended. The user
  /// is locked.
  phase leave() noexcept;
  /// Notifies the peer of the end of a connection that was in phase `was`. `called_off`: the user itself has cancelled
  /// an accept that was not complete.
  void part(phase was, bool called_off) noexcept;

  // Used by the table that ia_child::type_for makes.
  ~connection_state() = default;
  void teardown() noexcept {
    cancel_timer();
    destroy_id();
  }
  static constexpr child_kind kind_of_child = child_kind::connection;

private:
  static const child_type table;
  [[nodiscard]] static consteval child_type make_table() noexcept {
    child_type t = type_for<connection_state>();
    t.on_event = [](connection_base& c, const cm_event& e) noexcept {
      return static_cast<connection_state&>(c).handle(e);
    };
    t.abandon = [](connection_base& c) noexcept { static_cast<connection_state&>(c).refuse(); };
    return t;
  }

  // Each function that takes an event returns true when the id has no further use.
  [[nodiscard]] bool handle(const cm_event& e) noexcept;
  [[nodiscard]] bool lingering_event(const cm_event& e) noexcept;
  // These functions run with the user locked.
  void active_event(const cm_event& e) noexcept;
  [[nodiscard]] bool connected_event(const cm_event& e) noexcept;
  void response(const cm_event& e) noexcept;
  void iwarp_established(const cm_event& e) noexcept;
  void rejected(const cm_event& e) noexcept;
  /// A new id, bound to the local address, with the type of service of the queue pair.
  [[nodiscard]] verb_result make_id(const ia_address& from) noexcept;
  [[nodiscard]] bool ask_later() noexcept;
  void ask_again() noexcept;
  void ended(record::kind what, int reason) noexcept { observer_->ended(*user_, what, reason); }
  void established() noexcept;

  void refuse() noexcept;
  void give_back_endpoint() noexcept;

  [[nodiscard]] ref<ia_child> user() noexcept;
  [[nodiscard]] rts_result to_rts(std::uint8_t peer_responder_resources) noexcept;
  /// The parameters for the peer, in a request or in an accept.
  [[nodiscard]] rdma_conn_param parameters(std::span<const std::byte> data) const noexcept;

  struct owned_timer : task {
    connection_state* self = nullptr;
  };
  static void on_timer(task& t) noexcept;
  void arm_timer(clock::time_point at) noexcept {
    add_ref(); // each caller has cancelled the timer, or it has fired
    ia().reactor.defer(timer_, at);
  }
  void cancel_timer() noexcept {
    if (ia().reactor.cancel(timer_)) release();
  }
  /// The timeout of rdma_resolve_* in milliseconds: the time that is left, at least 1 and at most 10,000. rdma_cm
  /// reports a failed lookup only when that time has passed.
  [[nodiscard]] int resolve_ms() const noexcept;

  control_mutex user_mutex_; // guards user_; a leaf
  ia_child* user_ = nullptr;
  const connection_observer* observer_ = nullptr;
  std::atomic<phase> phase_;
  bool direct_ = false;
  service_id service_;
  ref<ia_child> endpoint_;
  const request_endpoints* endpoint_functions_ = nullptr;
  std::uint8_t peer_responder_resources_ = 0;
  std::uint8_t peer_initiator_depth_ = 0;
  connection_qp qp_;
  std::uint8_t data_size_ = 0;
  std::array<std::byte, max_private_data> data_{}; // the data of a connect, sent once the route is known
  deadline deadline_;
  std::chrono::milliseconds pause_{20}; // delay before a stale peer gets the request again
  owned_timer timer_;
};

inline constexpr child_type connection_state::table = make_table();

}}} // namespace dat::v0::detail
