// Definitions of ep_connection: what each message of the connection manager means.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/ep_connection.hpp>
#include <dat/detail/ep_core.hpp>
#include <dat/detail/service_point.hpp>

namespace dat::inline v0::detail {

// Reasons of RDMA_CM_EVENT_REJECTED (IBA table 107) that librdmacm names nowhere.
inline constexpr int rej_stale = 10;
inline constexpr int rej_consumer_defined = 28;

inline ref<ep_core> ep_connection::endpoint() noexcept {
  const std::lock_guard lock(link_);
  if (ep_ && ep_->try_add_ref()) return {ep_, adopt};
  return {};
}

inline int ep_connection::resolve_ms() const noexcept {
  using std::chrono::milliseconds;
  if (deadline_.never()) return 10'000;
  const auto left = std::chrono::ceil<milliseconds>(deadline_.at - clock::now()).count();
  return static_cast<int>(within<std::int64_t>(1, left, 10'000));
}

inline ep_core* ep_connection::brought() const noexcept { return static_cast<ep_core*>(own_.get()); }

inline void ep_connection::give_back(ref<ia_child> ep) noexcept {
  if (ep) static_cast<ep_core&>(*ep).request_gone();
}

inline void ep_connection::adopt_request(rdma_cm_id* child, const cm_event& request,
                                         const connection_base& listener) noexcept {
  passive_ = true;
  adopt_id(child);
  keep_addresses(listener);
  keep_private_data(request.data());
  peer_wants_ = request.responder_resources;
  peer_reads_ = request.initiator_depth;
}

inline void ep_connection::refuse() noexcept {
  // Another reason than a consumer's reject, so that the peer is not told that somebody decided against it.
  if (rdma_cm_id* i = id()) rdma_reject_ece(i, nullptr, 0);
  give_back(std::exchange(own_, {}));
  end();
}

inline expected<void> ep_connection::reject(std::span<const std::byte> data) noexcept {
  static constexpr const char* call = "cr.reject";
  const auto at = [&](error e) { return e.at(call, object_kind::cr, service_.port()); };
  if (data.size() > max_private_data)
    return at(error(return_type::invalid_parameter, return_subtype::arg2)).hint("at most 56 bytes of private data");
  rdma_cm_id* i = id();
  if (!i) return at(error(return_type::invalid_handle, return_subtype::handle_cr));
  const reject_message<max_private_data> message(data);
  if (rdma_reject(i, message.bytes.data(), message.size) != 0) {
    const int err = errno;
    // EINVAL: the peer has given up meanwhile, and there is nothing left to reject.
    if (err != EINVAL) return at(map_errno(err, return_subtype::resource_tep).from("rdma_reject", err));
  }
  give_back(std::exchange(own_, {}));
  end();
  return success();
}

inline expected<void> ep_connection::hand_off(std::uint16_t port) noexcept {
  static constexpr const char* call = "cr.handoff";
  const auto at = [&](error e) { return e.at(call, object_kind::cr, service_.port()); };
  const auto invalid = [&](const char* hint) {
    return at(error(return_type::invalid_parameter, return_subtype::arg2)).hint(hint);
  };
  if (port == service_.port()) return invalid("the request is at that service point already");
  const ref<service_point> target = service_point::find(ia(), port, local_);
  if (!target) return invalid("no service point of this ia listens there, at the address that the request came to");
  if (!id()) return at(error(return_type::invalid_handle, return_subtype::handle_cr));
  ref<ia_child> mine = std::exchange(own_, {});
  const auto context = consumer_context.exchange(0, std::memory_order_relaxed); // to the other side it is a new request
  const ref<ep_connection> self(this);
  if (!target->deliver(self)) {
    own_ = std::move(mine);
    consumer_context.store(context, std::memory_order_relaxed);
    return at(error(return_type::invalid_state))
        .hint("that service point takes no request now: its evd is full, or it has had the one it was made for");
  }
  // Its endpoint stays with this side: from here on the request may be another thread's.
  give_back(std::move(mine));
  return success();
}

inline bool ep_connection::handle(const cm_event& e) noexcept {
  const ref<ep_core> ep = endpoint();
  const bool last = ep ? handle_for(*ep, e) : lingering_event(e);
  // The peer has its answer. Should that be lost, the kernel gives it again also without the id.
  return last || (e.type == RDMA_CM_EVENT_DISCONNECTED && phase_ == phase::over);
}

inline bool ep_connection::handle_for(ep_core& ep, const cm_event& e) noexcept {
  const std::lock_guard lock(ep.mutex_);
  if (ep.connection_.get() != this || phase_ == phase::over) return lingering_event(e);
  switch (phase_.load()) {
  case phase::resolving:
  case phase::routing:
  case phase::requested:
  case phase::stale:
    active_event(ep, e);
    return false;
  default:
    return connected_event(ep, e);
  }
}

inline void ep_connection::active_event(ep_core& ep, const cm_event& e) noexcept {
  using kind = record::kind;
  switch (e.type) {
  case RDMA_CM_EVENT_ADDR_RESOLVED:
    if (!ia().is_ours(*id())) return ep.end_connection(kind::unreachable, ENETUNREACH);
    phase_ = phase::routing;
    if (rdma_resolve_route(id(), resolve_ms()) != 0) ep.end_connection(kind::unreachable, errno);
    return;
  case RDMA_CM_EVENT_ROUTE_RESOLVED: {
    rdma_conn_param param{};
    param.private_data = out_.data();
    param.private_data_len = out_size_;
    param.responder_resources = ep.read_in_;
    param.initiator_depth = ep.read_out_;
    param.flow_control = 1;
    param.retry_count = ep.attributes_.retry_count;
    param.rnr_retry_count = ep.attributes_.rnr_retry_count;
    param.qp_num = ep.qp_->qp_num;
    param.srq = ep.shares_ ? 1 : 0;
    phase_ = phase::requested;
    if (rdma_connect(id(), &param) != 0) ep.end_connection(kind::non_peer_rejected, errno);
    return;
  }
  case RDMA_CM_EVENT_CONNECT_RESPONSE: {
    keep_addresses();
    // The length is not on the wire. Data beyond what a DAT peer can send is of another rdma_cm program: pass it on.
    const auto all = e.data();
    const auto usual = all.first(smaller(all.size(), max_private_data));
    keep_private_data(any_nonzero(all.subspan(usual.size())) ? all : usual);
    rts_result r = ep.to_rts(id(), e.initiator_depth);
    if (r && rdma_establish(id()) != 0) r.err = errno;
    if (!r) return ep.end_connection(kind::non_peer_rejected, r.err);
    cancel_timer();
    phase_ = phase::established;
    ep.set_state(ep_state::connected);
    return ep.announce_event(kind::established);
  }
  case RDMA_CM_EVENT_REJECTED:
    return rejected(ep, e);
  case RDMA_CM_EVENT_ADDR_ERROR:
  case RDMA_CM_EVENT_ROUTE_ERROR:
  case RDMA_CM_EVENT_UNREACHABLE:
    return ep.end_connection(kind::unreachable, std::abs(e.status));
  case RDMA_CM_EVENT_CONNECT_ERROR:
  case RDMA_CM_EVENT_DISCONNECTED:
  case RDMA_CM_EVENT_DEVICE_REMOVAL:
    return ep.end_connection(kind::non_peer_rejected, std::abs(e.status));
  default:
    return;
  }
}

inline void ep_connection::rejected(ep_core& ep, const cm_event& e) noexcept {
  using kind = record::kind;
  if (e.status == rej_stale && ask_later()) return;
  const auto data = e.data();
  const bool consumer = e.status == rej_consumer_defined;
  if (consumer && is_marked(data)) {
    keep_private_data(behind_mark(data));
    return ep.end_connection(kind::peer_rejected, e.status);
  }
  const bool any = any_nonzero(data);
  keep_private_data(any ? data : std::span<const std::byte>{});
  ep.end_connection(consumer && any ? kind::peer_rejected : kind::non_peer_rejected, e.status);
}

/// The peer's connection manager takes the queue pair for one of a connection that it has not forgotten yet. The queue
/// pair stays, and with it the receives that are posted. False when there is no time for another try.
inline bool ep_connection::ask_later() noexcept {
  const clock::time_point at = clock::now() + pause_;
  if (!deadline_.never() && at >= deadline_.at) return false;
  pause_ = smaller(2 * pause_, std::chrono::milliseconds(1000));
  phase_ = phase::stale;
  destroy_id();
  cancel_timer();
  add_ref();
  ia().reactor.arm(timer_, at);
  return true;
}

/// From the same port, which the consumer may know already.
inline void ep_connection::ask_again(ep_core& ep) noexcept {
  phase_ = phase::resolving;
  int err = create_id();
  if (err == 0 && rdma_bind_addr(id(), const_cast<sockaddr*>(local_.native_handle())) != 0) err = errno;
  if (err == 0 && rdma_resolve_addr(id(), nullptr, const_cast<sockaddr*>(remote_.native_handle()), resolve_ms()) != 0)
    err = errno;
  if (err != 0) return ep.end_connection(record::kind::non_peer_rejected, err);
  arm_timer();
}

inline bool ep_connection::connected_event(ep_core& ep, const cm_event& e) noexcept {
  using kind = record::kind;
  const bool completing = phase_ == phase::completing;
  switch (e.type) {
  case RDMA_CM_EVENT_ESTABLISHED:
    if (!completing) return false; // data was faster
    phase_ = phase::established;
    ep.set_state(ep_state::connected);
    ep.announce_event(kind::established);
    return false;
  case RDMA_CM_EVENT_DISCONNECTED:
    // Ending it sends the answer, which the kernel does not do by itself.
    ep.end_connection(completing ? kind::accept_completion_error : kind::disconnected, 0);
    return false;
  case RDMA_CM_EVENT_REJECTED:
    ep.end_connection(completing ? kind::accept_completion_error : kind::disconnected, e.status);
    return false;
  case RDMA_CM_EVENT_UNREACHABLE:
    if (completing) ep.end_connection(kind::accept_completion_error, std::abs(e.status));
    return false;
  case RDMA_CM_EVENT_CONNECT_ERROR:
  case RDMA_CM_EVENT_DEVICE_REMOVAL:
    ep.end_connection(completing ? kind::accept_completion_error : kind::broken, std::abs(e.status));
    return true; // no answer of the peer can come
  default:
    return false; // ADDR_CHANGE, TIMEWAIT_EXIT
  }
}

inline bool ep_connection::lingering_event(const cm_event& e) noexcept {
  switch (e.type) {
  case RDMA_CM_EVENT_ESTABLISHED: // of an accept that was called off, or whose data was faster
    // No endpoint is locked: a close of the ia may be ending the id meanwhile.
    return phase_ == phase::over && with_id([](rdma_cm_id* i) noexcept { return rdma_disconnect(i); }) != 0;
  case RDMA_CM_EVENT_DISCONNECTED:
  case RDMA_CM_EVENT_TIMEWAIT_EXIT:
  case RDMA_CM_EVENT_REJECTED:
  case RDMA_CM_EVENT_UNREACHABLE:
  case RDMA_CM_EVENT_CONNECT_ERROR:
  case RDMA_CM_EVENT_DEVICE_REMOVAL:
    return phase_ == phase::over; // a request that waits for its answer keeps its id: answering it fails, and says so
  default:
    return false;
  }
}

inline void ep_connection::on_timer(timer& t) noexcept {
  const ref<ep_connection> self(static_cast<owned_timer&>(t).self, adopt); // armed with a reference
  const ref<ep_core> ep = self->endpoint();
  if (!ep) return;
  const std::lock_guard lock(ep->mutex_);
  if (ep->connection_.get() != self.get()) return;
  switch (self->phase_.load()) {
  case phase::resolving:
  case phase::routing: // nobody has been heard of the host yet
    return ep->end_connection(record::kind::unreachable, ETIMEDOUT);
  case phase::requested:
    return ep->end_connection(record::kind::timed_out, ETIMEDOUT);
  case phase::stale:
    return self->ask_again(*ep);
  default:
    return;
  }
}

} // namespace dat::inline v0::detail
