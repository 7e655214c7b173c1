// Definitions of connection_state: the handling of each message of the connection manager.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/connection/connection_state.hpp>
#include <dat/detail/connection/service_point.hpp>
#include <dat/detail/text/errno.hpp>

#include <bit>
#include <cerrno>
#include <cstdlib>

namespace dat { inline namespace v0 { namespace detail {

// Reasons of RDMA_CM_EVENT_REJECTED (IBA table 107), for which librdmacm has no names.
inline constexpr int rej_stale = 10;
inline constexpr int rej_consumer_defined = 28;

// --- the user --------------------------------------------------------------------------------------------------------

DAT_DECL void connection_state::attach(ia_child& user, const connection_observer& observer) noexcept {
  const std::lock_guard lock(user_mutex_);
  user_ = &user;
  observer_ = &observer;
}

DAT_DECL void connection_state::detach() noexcept {
  const std::lock_guard lock(user_mutex_);
  user_ = nullptr;
}

DAT_DECL ref<ia_child> connection_state::user() noexcept {
  const std::lock_guard lock(user_mutex_);
  if (user_ && user_->try_add_ref()) return {user_, adopt};
  return {};
}

// --- an active connection --------------------------------------------------------------------------------------------

DAT_DECL verb_result connection_state::make_id(const ia_address& from) noexcept {
  if (const int err = create_id()) return {"rdma_create_id", err};
  if (rdma_bind_addr(id(), const_cast<sockaddr*>(from.native_handle())) != 0) return {"rdma_bind_addr", errno};
  // The route is looked up by the type of service, and the peer gets it with the request.
  if (auto tos = qp_.settings.qos.traffic_class;
      tos && rdma_set_option(id(), RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &*tos, sizeof *tos) != 0)
    return {"rdma_set_option", errno};
  return {};
}

DAT_DECL verb_result connection_state::prepare(const ia_address& from, const ia_address& to,
                                               std::span<const std::byte> data, const connection_qp& qp) noexcept {
  qp_ = qp;
  data_size_ = static_cast<std::uint8_t>(data.size());
  copy_bytes(data, data_.data());
  if (const auto r = make_id(from); !r) return r;
  keep_addresses();
  remote_ = to;
  return {};
}

DAT_DECL void connection_state::set_limit(timeout limit) noexcept {
  deadline_ = deadline::in(limit);
  if (!deadline_.never()) arm_timer(deadline_.at);
}

DAT_DECL int connection_state::resolve_ms() const noexcept {
  using std::chrono::milliseconds;
  if (deadline_.never()) return 10'000;
  const auto left = std::chrono::ceil<milliseconds>(deadline_.at - clock::now()).count();
  return static_cast<int>(within<std::int64_t>(1, left, 10'000));
}

DAT_DECL int connection_state::resolve() noexcept {
  const int ms = resolve_ms();
  const ia_address to = remote_;
  return with_id([&](rdma_cm_id* id) noexcept {
    return rdma_resolve_addr(id, nullptr, const_cast<sockaddr*>(to.native_handle()), ms) != 0 ? errno : 0;
  });
}

DAT_DECL rdma_conn_param connection_state::parameters(std::span<const std::byte> data) const noexcept {
  const qp_settings& s = qp_.settings;
  rdma_conn_param p{};
  p.private_data = data.data();
  p.private_data_len = static_cast<std::uint8_t>(data.size());
  p.responder_resources = passive_ ? min(s.responder_resources, peer_initiator_depth_) : s.responder_resources;
  p.initiator_depth = s.initiator_depth;
  p.flow_control = 1; // the private data may have a mark
  p.retry_count = s.retry_count;
  p.rnr_retry_count = s.rnr_retry_count;
  p.qp_num = qp_.qp->qp_num;
  p.srq = qp_.shared_receives ? 1 : 0;
  return p;
}

/// An adapter rounds the number of outstanding reads up to a power of two. So dat first rounds the number down: neither
/// side runs more reads than both agreed.
DAT_DECL rts_result connection_state::to_rts(std::uint8_t peer_responder_resources) noexcept {
  qp_settings& s = qp_.settings;
  s.initiator_depth = std::bit_floor(min(s.initiator_depth, peer_responder_resources));
  return ia().iwarp() ? prepare_iwarp_qp(qp_.qp, s, *qp_.now) : connection_qp_to_rts(qp_.qp, s, *qp_.now, id());
}

DAT_DECL rts_result connection_state::connect_directly(const connection_qp& qp, const qp_path& path,
                                                       std::uint8_t peer_responder_resources, const ia_address& local,
                                                       const ia_address& remote) noexcept {
  direct_ = true;
  qp_ = qp;
  local_ = local;
  remote_ = remote;
  qp_settings& s = qp_.settings;
  s.initiator_depth = std::bit_floor(min(s.initiator_depth, peer_responder_resources));
  return connection_qp_to_rts(qp_.qp, s, *qp_.now, path);
}

// --- a passive connection --------------------------------------------------------------------------------------------

DAT_DECL void connection_state::adopt_request(rdma_cm_id* child, const cm_event& request,
                                              const connection_base& listener) noexcept {
  passive_ = true;
  adopt_id(child);
  keep_addresses(listener);
  const auto data = request.data();
  keep_private_data(ia().iwarp() || request.flow_control == 0 ? data : before_mark(data, request_mark));
  // rdma_cm names both from the recipient's side.
  peer_initiator_depth_ = request.responder_resources;
  peer_responder_resources_ = request.initiator_depth;
}

DAT_DECL rts_result connection_state::prepare_accept(const connection_qp& qp) noexcept {
  qp_ = qp;
  return to_rts(peer_responder_resources_);
}

DAT_DECL void connection_state::begin_accept(timeout limit) noexcept {
  phase_ = phase::completing;
  set_limit(limit);
}

DAT_DECL int connection_state::accept(std::span<const std::byte> data) noexcept {
  const reply_message message(data);
  rdma_conn_param p = parameters(ia().iwarp() ? data : std::span(message.bytes).first(message.size));
  return with_id([&](rdma_cm_id* id) noexcept { return rdma_accept(id, &p) != 0 ? errno : 0; });
}

DAT_DECL void connection_state::data_arrived() noexcept {
  // rdma_notify is not called here, so the kernel does not know yet that the connection is established. If the call
  // were made and a disconnect followed at once, the kernel would continue to repeat the accept, and destroying the id
  // would block for a minute. A disconnect that comes before the peer's last handshake message is sent after that
  // message: see lingering_event.
  phase_ = phase::established;
  cancel_timer();
}

DAT_DECL void connection_state::give_back_endpoint() noexcept {
  const request_endpoints* const functions = endpoint_functions_;
  if (const ref<ia_child> ep = std::exchange(endpoint_, {})) functions->request_gone(*ep);
}

DAT_DECL void connection_state::refuse() noexcept {
  // The reason differs from that of a consumer's reject, so that the peer does not take it for a decision.
  (void)with_id([](rdma_cm_id* i) noexcept { return rdma_reject_ece(i, nullptr, 0); });
  give_back_endpoint();
  end();
}

DAT_DECL expected<void> connection_state::reject(std::span<const std::byte> data) noexcept {
  static constexpr const char* call = "cr.reject";
  const auto at = [&](error e) { return e.at(call, object_kind::cr, service_.port()); };
  if (data.size() > max_private_data)
    return at(error(return_type::invalid_parameter, return_subtype::arg2)).hint(private_data_hint);
  const reject_message<max_private_data> message(data);
  // The end of the last other handle ends the id, too, and another thread may own that handle.
  bool alive = false;
  const int err = with_id([&](rdma_cm_id* i) noexcept {
    alive = true;
    return rdma_reject(i, message.bytes.data(), message.size) != 0 ? errno : 0;
  });
  if (!alive) return at(error(return_type::invalid_handle, return_subtype::handle_cr));
  // EINVAL, or ECONNRESET on iWARP: the peer has given up meanwhile, and nothing is left to reject.
  if (err != 0 && err != EINVAL && err != ECONNRESET)
    return at(map_errno(err, return_subtype::resource_tep).from("rdma_reject", err));
  give_back_endpoint();
  end();
  return success();
}

DAT_DECL expected<void> connection_state::hand_off(std::uint16_t port) noexcept {
  static constexpr const char* call = "cr.handoff";
  const auto at = [&](error e) { return e.at(call, object_kind::cr, service_.port()); };
  const auto invalid = [&](const char* hint) {
    return at(error(return_type::invalid_parameter, return_subtype::arg2)).hint(hint);
  };
  const ref<service_point> target = service_point::find(ia(), port, local_);
  // The service point of the request may be closed, and another one may have its port.
  if (target ? target->service() == service_ : port == service_.port())
    return invalid("The request is at that service point already.");
  if (!target)
    return invalid("No service point of this ia listens at the address and port to which the request was sent.");
  if (!id()) return at(error(return_type::invalid_handle, return_subtype::handle_cr));
  ref<ia_child> mine = std::exchange(endpoint_, {});
  const request_endpoints* const functions = endpoint_functions_;
  // The other service point gets a new request.
  const auto context = consumer_context.exchange(0, std::memory_order_relaxed);
  const ref<connection_state> self(this);
  using delivery = service_point::delivery;
  if (const delivery d = target->deliver(self); d != delivery::taken) {
    set_endpoint(std::move(mine), functions);
    consumer_context.store(context, std::memory_order_relaxed);
    if (d == delivery::no_memory)
      return at(error(return_type::insufficient_resources, return_subtype::resource_memory));
    return at(error(return_type::invalid_state))
        .hint("That service point cannot take a request now: its evd is full, or it is a reserved one that has already "
              "received its request.");
  }
  // The endpoint stays with this service point. From here on the request may belong to another thread.
  if (mine) functions->request_gone(*mine);
  return success();
}

// --- the end ---------------------------------------------------------------------------------------------------------

DAT_DECL connection_state::phase connection_state::leave() noexcept {
  const phase was = phase_.exchange(phase::over);
  detach();
  cancel_timer();
  return was;
}

DAT_DECL void connection_state::part(phase was, bool called_off) noexcept {
  // The connection only waits for the peer's answer to a disconnect. In the other phases, destroying the id undoes
  // every outstanding step, with one exception: an accept that is cancelled. The reject that destroying the id sends
  // may overtake the accept and be ignored, and the peer would consider the connection established. So the connection
  // waits for the peer's last handshake message and then disconnects.
  if (called_off && was == phase::completing) return;
  // The reactor may be ending the id at the same time.
  const auto disconnect = [](rdma_cm_id* i) noexcept { return rdma_disconnect(i); };
  if (was != phase::established || with_id(disconnect) != 0) destroy_id();
}

// --- events ----------------------------------------------------------------------------------------------------------

DAT_DECL bool connection_state::handle(const cm_event& e) noexcept {
  const auto by_phase = [&] {
    const ref<ia_child> u = user();
    if (!u) return lingering_event(e);
    const std::lock_guard lock(observer_->lock(*u));
    if (user_ != u.get() || phase_ == phase::over) return lingering_event(e);
    if (phase_ >= phase::waiting) return connected_event(e);
    active_event(e);
    return false;
  };
  // The peer has its answer. If that answer is lost, the kernel repeats it without the id.
  return by_phase() || (e.type == RDMA_CM_EVENT_DISCONNECTED && phase_ == phase::over);
}

DAT_DECL void connection_state::active_event(const cm_event& e) noexcept {
  using kind = record::kind;
  switch (e.type) {
  case RDMA_CM_EVENT_ADDR_RESOLVED:
    if (!ia().is_ours(*id())) return ended(kind::unreachable, ENETUNREACH);
    if (rdma_resolve_route(id(), resolve_ms()) != 0) ended(kind::unreachable, errno);
    return;
  case RDMA_CM_EVENT_ROUTE_RESOLVED: {
    // On iWARP the queue pair is in RTS before the answer is read.
    if (const auto r = ia().iwarp() ? prepare_iwarp_qp(qp_.qp, qp_.settings, *qp_.now) : rts_result(); !r)
      return ended(kind::non_peer_rejected, r.err);
    const auto data = std::span(data_).first(data_size_);
    const request_message message(data);
    rdma_conn_param p = parameters(ia().iwarp() ? data : std::span(message.bytes).first(message.size));
    // Linux sends this bit to the peer, and does not use it itself.
    p.flow_control = message.may_have_mark ? 1 : 0;
    phase_ = phase::requested;
    if (rdma_connect(id(), &p) == 0) return;
    // Some iWARP drivers make the TCP connection in this call.
    const bool silent = errno == ETIMEDOUT || errno == EHOSTUNREACH || errno == ENETUNREACH;
    return ended(silent ? kind::unreachable : kind::non_peer_rejected, errno);
  }
  case RDMA_CM_EVENT_CONNECT_RESPONSE:
    return response(e);
  case RDMA_CM_EVENT_ESTABLISHED: // on iWARP, in place of the response
    return iwarp_established(e);
  case RDMA_CM_EVENT_REJECTED:
    return rejected(e);
  case RDMA_CM_EVENT_ADDR_ERROR:
  case RDMA_CM_EVENT_ROUTE_ERROR:
  case RDMA_CM_EVENT_UNREACHABLE:
    return ended(kind::unreachable, std::abs(e.status));
  case RDMA_CM_EVENT_CONNECT_ERROR:
  case RDMA_CM_EVENT_DISCONNECTED:
  case RDMA_CM_EVENT_DEVICE_REMOVAL:
    return ended(kind::non_peer_rejected, std::abs(e.status));
  default:
    return;
  }
}

/// The kernel has moved the queue pair to RTS, and the wire carries the length of private data. The event has the
/// limits of this side, not the offer of the peer: siw, erdma and irdma report in responder_resources the reads that
/// this side may run.
DAT_DECL void connection_state::iwarp_established(const cm_event& e) noexcept {
  keep_addresses();
  keep_private_data(e.data());
  qp_settings& s = qp_.settings;
  s.initiator_depth = std::bit_floor(min(s.initiator_depth, e.responder_resources));
  established();
}

DAT_DECL void connection_state::response(const cm_event& e) noexcept {
  keep_addresses();
  // The wire does not carry the length of another program's data. If it is more than dat can send, the consumer gets
  // all of it.
  const auto all = before_mark(e.data(), reply_mark);
  const auto usual = all.first(min(all.size(), max_private_data));
  keep_private_data(any_nonzero(all.subspan(usual.size())) ? all : usual);
  rts_result r = to_rts(e.initiator_depth);
  if (r && rdma_establish(id()) != 0) r.err = errno;
  if (!r) return ended(record::kind::non_peer_rejected, r.err);
  established();
}

DAT_DECL void connection_state::established() noexcept {
  cancel_timer();
  phase_ = phase::established;
  observer_->established(*user_);
}

DAT_DECL void connection_state::rejected(const cm_event& e) noexcept {
  using kind = record::kind;
  if (e.status == rej_stale && ask_later()) return;
  const auto data = e.data();
  const bool consumer = e.status == rej_consumer_defined || ia().iwarp(); // iWARP has no reason of a reject
  if (consumer && is_marked(data)) {
    keep_private_data(behind_mark(data));
    return ended(kind::peer_rejected, std::abs(e.status));
  }
  const bool any = any_nonzero(data);
  keep_private_data(any ? data : std::span<const std::byte>{});
  ended(consumer && any ? kind::peer_rejected : kind::non_peer_rejected, std::abs(e.status));
}

/// The peer's connection manager mistakes the queue pair for that of an earlier connection that it still has. The queue
/// pair keeps its posted receives. Returns false when no time is left for another attempt.
DAT_DECL bool connection_state::ask_later() noexcept {
  const clock::time_point at = clock::now() + pause_;
  if (!deadline_.never() && at >= deadline_.at) return false;
  pause_ = min(2 * pause_, std::chrono::milliseconds(1000));
  phase_ = phase::stale;
  destroy_id();
  cancel_timer();
  arm_timer(at);
  return true;
}

/// The next attempt uses the same port, which the consumer may know already.
DAT_DECL void connection_state::ask_again() noexcept {
  phase_ = phase::resolving;
  int err = make_id(local_).err;
  if (err == 0 && rdma_resolve_addr(id(), nullptr, const_cast<sockaddr*>(remote_.native_handle()), resolve_ms()) != 0)
    err = errno;
  if (err != 0) return ended(record::kind::non_peer_rejected, err);
  if (!deadline_.never()) arm_timer(deadline_.at);
}

/// The reason why a connection that was up has ended.
DAT_DECL end_reason reason_of(const cm_event& e) noexcept {
  return e.type == RDMA_CM_EVENT_DEVICE_REMOVAL ? end_reason::device_failed : end_reason::connection_manager;
}

DAT_DECL bool connection_state::connected_event(const cm_event& e) noexcept {
  using kind = record::kind;
  if (phase_ == phase::completing && e.type != RDMA_CM_EVENT_ESTABLISHED) observer_->look_for_message(*user_);
  const bool completing = phase_ == phase::completing;
  switch (e.type) {
  case RDMA_CM_EVENT_ESTABLISHED:
    if (completing) established(); // otherwise data arrived earlier
    return false;
  case RDMA_CM_EVENT_DISCONNECTED:
    // Ending the connection sends the reply to the peer's disconnect, which the kernel does not send by itself.
    ended(completing ? kind::accept_completion_error : kind::disconnected,
          completing ? 0 : static_cast<int>(end_reason::peer));
    return false;
  case RDMA_CM_EVENT_REJECTED:
    ended(completing ? kind::accept_completion_error : kind::disconnected,
          completing ? std::abs(e.status) : static_cast<int>(end_reason::peer));
    return false;
  case RDMA_CM_EVENT_UNREACHABLE:
    if (completing) ended(kind::accept_completion_error, std::abs(e.status));
    return false;
  case RDMA_CM_EVENT_CONNECT_ERROR:
  case RDMA_CM_EVENT_DEVICE_REMOVAL:
    ended(completing ? kind::accept_completion_error : kind::broken,
          completing ? std::abs(e.status) : static_cast<int>(reason_of(e)));
    return true; // the peer can no longer answer
  default:
    return false; // ADDR_CHANGE, TIMEWAIT_EXIT
  }
}

DAT_DECL bool connection_state::lingering_event(const cm_event& e) noexcept {
  switch (e.type) {
  case RDMA_CM_EVENT_ESTABLISHED: // after a cancelled accept, or data that arrived earlier
    // Called with no endpoint locked, because a close of the ia may be destroying the id at the same time.
    return phase_ == phase::over && with_id([](rdma_cm_id* i) noexcept { return rdma_disconnect(i); }) != 0;
  case RDMA_CM_EVENT_DISCONNECTED:
  case RDMA_CM_EVENT_TIMEWAIT_EXIT:
  case RDMA_CM_EVENT_REJECTED:
  case RDMA_CM_EVENT_UNREACHABLE:
  case RDMA_CM_EVENT_CONNECT_ERROR:
  case RDMA_CM_EVENT_DEVICE_REMOVAL:
    return phase_ == phase::over; // an unanswered request keeps its id: answering it fails with an error
  default:
    return false;
  }
}

DAT_DECL void connection_state::on_timer(task& t) noexcept {
  const ref<connection_state> self(static_cast<owned_timer&>(t).self, adopt); // the task was armed with a reference
  const ref<ia_child> u = self->user();
  if (!u) return;
  const std::lock_guard lock(self->observer_->lock(*u));
  if (self->user_ != u.get()) return;
  switch (self->phase_.load()) {
  case phase::resolving: // the host has not answered yet
    return self->ended(record::kind::unreachable, ETIMEDOUT);
  case phase::requested:
    return self->ended(record::kind::timed_out, ETIMEDOUT);
  case phase::completing:
    self->observer_->look_for_message(*u);
    if (self->phase_ == phase::completing) self->ended(record::kind::accept_completion_error, ETIMEDOUT);
    return;
  case phase::stale:
    return self->ask_again();
  default:
    return;
  }
}

}}} // namespace dat::v0::detail
