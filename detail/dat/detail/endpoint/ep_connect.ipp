// Definitions of ep_core: connecting, accepting, disconnecting, and the events of a connection.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/adapter/path.hpp>
#include <dat/detail/connection/direct_peer.hpp>
#include <dat/detail/endpoint/ep_core.hpp>
#include <dat/detail/text/errno.hpp>

#include <cerrno>
#include <new>
#include <string_view>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL const connection_observer ep_core::observer = {
    [](ia_child& user) noexcept -> control_mutex& { return static_cast<ep_core&>(user).mutex_; },
    [](ia_child& user) noexcept { static_cast<ep_core&>(user).look_for_message(); },
    [](ia_child& user) noexcept { static_cast<ep_core&>(user).established(); },
    [](ia_child& user, record::kind what, int reason) noexcept {
      static_cast<ep_core&>(user).end_connection(what, reason);
    }};

// --- the state of the connection -------------------------------------------------------------------------------------

DAT_DECL void ep_core::announce_event(record::kind what, int reason) noexcept {
  if (what == record::kind::established) {
    guard_queues(true);
    if (watermarks_.exceeded()) defer(deferred_watermark, tag()); // data arrived earlier
  }
  static_cast<merged_evd*>(evds_.connect.get())
      ->push_connection(record(what, ref<counted>(this), ref<connection_base>(connection_.get()), reason), *this);
}

DAT_DECL void ep_core::established() noexcept {
  was_up_ = true;
  use_depth(connection_->initiator_depth());
  set_state(ep_state::connected);
  begin_tests();
  announce_event(record::kind::established);
}

DAT_DECL void ep_core::arrived(ep_generation whose) noexcept {
  if (state() != ep_state::completion_pending) return;
  // The peer has sent data, so it has received the accept: data can overtake the last handshake message.
  const std::lock_guard lock(mutex_);
  if (state() == ep_state::completion_pending && is_life(whose)) established_by_data();
}

DAT_DECL void ep_core::established_by_data() noexcept {
  connection_->data_arrived();
  established();
}

DAT_DECL void ep_core::look_for_message() noexcept {
  if (state() != ep_state::completion_pending) return;
  merged_evd* const m = merged(evds_.recv.get());
  if (m && m->holds_message(tag())) established_by_data();
}

DAT_DECL void ep_core::flush() noexcept {
  flushed_at_ = clock::now();
  flush_queues();
}

/// Every end of a connection takes this path: the state first, then the flush, then the peer, then the event. So a
/// thread that takes the event sees the state, and no success can follow the event.
DAT_DECL void ep_core::end_connection(record::kind what, int reason) noexcept {
  const ep_state was = state();
  if (was != ep_state::active_connection_pending && was != ep_state::completion_pending && was != ep_state::connected &&
      was != ep_state::disconnect_pending)
    return;
  set_state(ep_state::disconnected);
  end_tests();
  if (was == ep_state::connected || was == ep_state::disconnect_pending) guard_queues(false);
  const auto phase = connection_->leave();
  flush();
  connection_->part(phase, what == record::kind::disconnected);
  if (reason >= 0) announce_event(what, reason);
}

DAT_DECL void ep_core::end_datagrams(record::kind what, end_reason why) noexcept {
  if (state() != ep_datagram) return;
  set_state(ep_state::disconnected);
  flush();
  announce_event(what, static_cast<int>(why));
}

DAT_DECL void ep_core::guard_queues(bool yes) noexcept {
  for (evd_core* e : {evds_.recv.get(), evds_.request.get()}) yes ? e->watch_connection() : e->unwatch_connection();
}

// --- connecting ------------------------------------------------------------------------------------------------------

DAT_DECL expected<void> ep_core::check_start(const char* call, const attempt& with, return_subtype limit_arg,
                                             return_subtype data_arg, return_subtype qos_arg) const noexcept {
  if (with.limit <= timeout::zero())
    return at(error(return_type::invalid_parameter, limit_arg), call).hint("`limit` must be positive.");
  if (with.data.size() > max_private_data)
    return at(error(return_type::invalid_parameter, data_arg), call).hint(private_data_hint);
  if (auto ok = check_options(with.options, ia().iwarp(), qos_arg, return_subtype::arg8); !ok)
    return at(ok.assume_error(), call);
  return success();
}

DAT_DECL expected<void> ep_core::connect(const ia_address& to, std::uint16_t port, const attempt& with) noexcept {
  static constexpr const char* call = "ep.connect";
  if (auto ok = check_start(call, with, return_subtype::arg4, return_subtype::arg5, return_subtype::arg7); !ok)
    return ok;
  if (auto ok = ia().check_remote(to); !ok) return at(ok.assume_error(), call);
  return start(std::unique_lock(mutex_), call, to, port, with,
               error(return_type::invalid_address, return_subtype::address_unreachable));
}

DAT_DECL expected<void> ep_core::common_connect(const ia_address& to, const attempt& with) noexcept {
  static constexpr const char* call = "ep.common_connect";
  const auto invalid = [&](const char* hint) {
    return at(error(return_type::invalid_parameter, return_subtype::arg2), call).hint(hint);
  };
  if (auto ok = check_start(call, with, return_subtype::arg3, return_subtype::arg4, return_subtype::arg6); !ok)
    return ok;
  if (auto ok = ia().check_remote(to); !ok) {
    const std::string_view why = ok.assume_error().hint();
    return invalid(why.empty() ? "No peer can be reached at such an address." : why.data());
  }
  if (to.port() == 0) return invalid("The address names no port: see ia_address::with_port.");
  std::unique_lock lock(mutex_);
  if (state() != ep_state::unconnected) return wrong_state(call);
  if (attributes_.comm == communicator{})
    return at(error(return_type::invalid_state, return_subtype::ep_notready), call)
        .hint(
            "The endpoint has no communicator: create it with ep_attributes::comm, or set the communicator by modify.");
  if (!fits(attributes_.comm, to)) return invalid("The address is not of the domain of the endpoint's communicator.");
  return start(std::move(lock), call, to, to.port(), with,
               error(return_type::invalid_parameter, return_subtype::arg2)
                   .hint("No path leads from the endpoint's local address to `remote`."));
}

DAT_DECL expected<void> ep_core::dup_connect(ep_core& original, const attempt& with) noexcept {
  static constexpr const char* call = "ep.dup_connect";
  if (auto ok = check_start(call, with, return_subtype::arg3, return_subtype::arg4, return_subtype::arg6); !ok)
    return ok;
  if (&original.ia() != &ia())
    return at(error(return_type::invalid_parameter, return_subtype::arg2), call)
        .hint("The two endpoints are of different ias.");
  ia_address to;
  ia_address from;
  {
    const std::lock_guard lock(original.mutex_);
    if (original.state() != ep_state::connected) return original.wrong_state(call);
    const auto refuse = [&](const char* hint) {
      return original.at(error(return_type::invalid_state, return_subtype::ep_connected), call).hint(hint);
    };
    if (original.connection_->direct())
      return refuse("That endpoint was connected by a descriptor: its peer need not listen anywhere.");
    if (original.connection_->passive())
      return refuse("That endpoint was accepted: its peer requested the connection and need not listen anywhere.");
    to = original.connection_->remote_address();
    from = original.connection_->local_address();
  }
  return start(std::unique_lock(mutex_), call, to, to.port(), with,
               error(return_type::invalid_parameter, return_subtype::arg2)
                   .hint("No path leads from the endpoint's local address to the peer of `original`."),
               &from);
}

DAT_DECL expected<void> ep_core::start(std::unique_lock<control_mutex> lock, const char* call, const ia_address& to,
                                       std::uint16_t port, const attempt& with, const error& no_path,
                                       const ia_address* usual) noexcept {
  const bool mine = !local_address_.is_any() || local_address_.port() != 0;
  const ia_address* own = mine ? &local_address_ : usual ? usual : ia().address(to.family());
  if (!own || own->family() != to.family())
    return at(no_path, call).hint("The adapter has no address of the same family as the remote address.");
  if (state() != ep_state::unconnected) return wrong_state(call);
  ref<connection_state> c(new (std::nothrow) connection_state(ref(&ia()), connection_state::phase::resolving), adopt);
  if (!c) return at(error(return_type::insufficient_resources, return_subtype::resource_memory), call);
  const auto failed = [&](const verb_result& r) -> expected<void> {
    connection_ = {};
    set_state(ep_state::unconnected);
    c->detach();
    c->end();
    error e = map_errno(r.err, return_subtype::resource_tep);
    // The route leaves the host through an interface without an RDMA device.
    const bool astray = r.err == ENODEV && std::string_view(r.verb) == "rdma_resolve_addr";
    if (astray || ((mine || usual) && r.err == EADDRNOTAVAIL) || e.type() == return_type::invalid_address) e = no_path;
    if (mine && r.err == EADDRINUSE) e = error(return_type::invalid_parameter);
    return at(e.from(r.verb, r.err), call);
  };
  if (const auto r = c->prepare(mine ? *own : own->with_port(0), to.with_port(port), with.data,
                                qp_of_connection(with.options.qos));
      !r)
    return failed(r);
  c->attach(*this, observer);
  connection_ = c;
  set_state(ep_state::active_connection_pending);
  c->set_limit(with.limit);
  lock.unlock(); // the answer may arrive before the call returns, and the thread that takes it needs the lock
  const int err = c->resolve();
  if (err == 0) return success();
  lock.lock();
  if (connection_.get() != c.get() || state() != ep_state::active_connection_pending)
    return success(); // an event has reported the outcome, or the endpoint was reset first
  return failed({"rdma_resolve_addr", err});
}

DAT_DECL expected<void> ep_core::accept(connection_state& request, std::span<const std::byte> data,
                                        const connect_options& options) noexcept {
  static constexpr const char* call = "cr.accept";
  if (data.size() > max_private_data)
    return at(error(return_type::invalid_parameter, return_subtype::arg4), call).hint(private_data_hint);
  if (auto ok = check_options(options, ia().iwarp(), return_subtype::arg6, return_subtype::arg5); !ok)
    return at(ok.assume_error(), call);
  if (ia().iwarp() && options.qos != qos{})
    return at(error(return_type::model_not_supported), call)
        .hint("On iWARP the side that connects chooses the quality of service: pass it to connect.");
  if (&request.ia() != &ia())
    return at(error(return_type::invalid_handle, return_subtype::handle_ep), call)
        .hint("The endpoint belongs to another ia than the request.");

  std::unique_lock lock(mutex_);
  const ep_state before = state();
  if (request.endpoint()
          ? before != ep_state::passive_connection_pending && before != ep_state::tentative_connection_pending
          : before != ep_state::unconnected)
    return wrong_state(call);
  const auto unlike = [&](const char* hint) {
    return at(error(return_type::invalid_parameter, return_subtype::arg2), call).hint(hint);
  };
  const ia_address& here = request.local_address();
  if ((!local_address_.is_any() && local_address_.with_port(0) != here.with_port(0)) ||
      (local_address_.port() != 0 && local_address_.port() != here.port()))
    return unlike("The request was sent to another address than the endpoint's own.");
  if (attributes_.comm != communicator{} && !fits(attributes_.comm, here))
    return unlike("The request is not of the domain of the endpoint's communicator.");
  if (!request.id()) return at(error(return_type::invalid_handle, return_subtype::handle_cr), call);
  rts_result moved = request.prepare_accept(qp_of_connection(options.qos));
  // Parameters were checked, so EINVAL from the id means that it is dead: the peer gave up. The failure is an outcome
  // of the connection, not a fault of this call (uDAPL 2.0 §6.4.5.2). Other failures before RTR change nothing.
  const bool dead_id = moved.err == EINVAL && std::string_view(moved.verb) == "rdma_init_qp_attr";
  if (!moved && !moved.past_init && !dead_id)
    return at(map_errno(moved.err, return_subtype::resource_tep).from(moved.verb, moved.err), call);
  was_up_ = true; // the peer may send as soon as it gets the accept
  connection_ = ref(&request);
  request.set_endpoint({}, nullptr);
  request.attach(*this, observer);
  request.begin_accept(attributes_.accept_timeout);
  set_state(ep_state::completion_pending);
  if (moved) {
    lock.unlock(); // before the call returns, the peer may get the accept and this side the last handshake message
    moved.err = request.accept(data);
    if (moved.err == 0) return success();
    lock.lock();
    // Leaves if another thread has cancelled the accept.
    if (connection_.get() != &request || state() != ep_state::completion_pending) {
      request.drop_id();
      return success();
    }
  }
  end_connection(record::kind::accept_completion_error, moved.err);
  return success();
}

// --- descriptors -----------------------------------------------------------------------------------------------------

DAT_DECL result<direct_peer> ep_core::describe(const char* call, address_family family) noexcept {
  // A reset in another thread replaces the queue pair.
  bool any = false;
  locked([&](const ep_core& e) { any = e.qp() != nullptr; });
  if (!any) return wrong_state(call);
  if (auto ok = ia().check_infiniband(); !ok) return at(ok.assume_error(), call);
  auto found = place_of(ia(), family == address_family::ipv4);
  if (!found && !datagrams_) found = place_of(ia(), family != address_family::ipv4);
  if (!found) return at(found.assume_error(), call);
  const port_place& here = found.assume_value();
  direct_peer d;
  const std::lock_guard lock(mutex_);
  d.place = here.place;
  d.place.qp_num = number();
  d.link = here.link;
  d.mtu = static_cast<std::uint8_t>(here.mtu);
  if (datagrams_) {
    d.service = direct_peer::datagrams;
    d.place.qkey = datagram_qkey;
  } else {
    d.service = direct_peer::connections;
    d.psn = psn_;
    d.reads_in = responder_resources_;
  }
  return d;
}

/// Resolves the link address of the peer with no lock held, so that the transition to RTR need not wait for it. The
/// kernel may take up to a second for it, and other calls on the endpoint do not wait.
DAT_DECL expected<void> ep_core::find_link(const ibv_ah_attr& path, const char* call) noexcept {
  if (path.is_global == 0) return success();
  ref<pz_core> pz;
  locked([&](ep_core& e) {
    if (e.state() == ep_state::unconnected) pz = e.pz_;
  });
  if (!pz) return wrong_state(call);
  ibv_ah_attr attr = path;
  ibv_ah* const found = ibv_create_ah(pz->pd(), &attr);
  if (!found) return at(no_path("ibv_create_ah", errno, return_subtype::resource_tep), call);
  ibv_destroy_ah(found);
  return success();
}

DAT_DECL expected<void> ep_core::connect_directly(const direct_peer& peer, const qos& q) noexcept {
  static constexpr const char* call = "ep.connect";
  if (auto ok = ia().check_infiniband(); !ok) return at(ok.assume_error(), call);
  if (auto ok = check_descriptor(ia(), peer, direct_peer::connections); !ok) return at(ok.assume_error(), call);
  if (auto ok = check_qos(q, false, return_subtype::arg3); !ok) return at(ok.assume_error(), call);
  auto path = path_to(ia(), peer.place);
  if (!path) return at(path.assume_error(), call);
  auto found = place_of(ia(), is_ipv4(peer.place.gid));
  if (!found) return at(found.assume_error(), call);
  const port_place& here = found.assume_value();
  if (auto ok = find_link(path.assume_value(), call); !ok) return ok;

  const std::lock_guard lock(mutex_);
  if (state() != ep_state::unconnected) return wrong_state(call);
  ref<connection_state> c(new (std::nothrow) connection_state(ref(&ia()), connection_state::phase::established), adopt);
  if (!c) return at(error(return_type::insufficient_resources, return_subtype::resource_memory), call);
  const qp_path way{.address = path.assume_value(),
                    .mtu = static_cast<ibv_mtu>(min<int>(here.mtu, peer.mtu)),
                    .dest_qp_num = peer.place.qp_num,
                    .rq_psn = peer.psn,
                    .sq_psn = psn_};
  const rts_result moved = c->connect_directly(qp_of_connection(q), way, peer.reads_in, address_of(here.place.gid),
                                               address_of(peer.place.gid));
  const auto failed = [&] { return at(no_path(moved.verb, moved.err, return_subtype::resource_tep), call); };
  if (!moved && !moved.past_init) {
    c->end();
    return failed();
  }
  connection_ = std::move(c);
  if (moved) {
    established();
    return success();
  }
  // Returning to INIT would lose the receives.
  was_up_ = true;
  set_state(ep_state::disconnected);
  flush();
  announce_event(record::kind::non_peer_rejected, moved.err);
  return failed().hint("The endpoint is disconnected: reset it before another attempt.");
}

// --- disconnecting ---------------------------------------------------------------------------------------------------

DAT_DECL expected<void> ep_core::disconnect(close_mode how) noexcept {
  static constexpr const char* call = "ep.disconnect";
  if (how != close_mode::abrupt && how != close_mode::graceful)
    return at(error(return_type::invalid_parameter, return_subtype::arg2), call)
        .hint("`how` must be close_mode::abrupt or close_mode::graceful.");
  const std::lock_guard lock(mutex_);
  switch (state()) {
  case ep_state::disconnected:
    return success();
  case ep_state::disconnect_pending:
    if (how == close_mode::graceful) return success();
    break;
  case ep_state::connected:
    if (how == close_mode::graceful && sq_.used() != 0) return start_graceful();
    break;
  case ep_state::completion_pending:
    look_for_message();
    break;
  case ep_state::active_connection_pending:
    break;
  default:
    return wrong_state(call);
  }
  end_connection(record::kind::disconnected, static_cast<int>(end_reason::local));
  return success();
}

DAT_DECL expected<void> ep_core::start_graceful() noexcept {
  // The marker: a last request that moves no data. A queue completes in order, so the completion of the marker shows
  // that all earlier requests have completed, suppressed ones included. A write of length 0 touches no remote memory.
  // Its completion has a place in the evd, see request_places.
  ibv_send_wr wr{};
  wr.wr_id = tag(); // the entry is not part of the ring
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  before_marker_ = sq_.before(sq_.next(), 1);
  set_state(ep_state::disconnect_pending);
  ibv_send_wr* bad;
  if (const int err = ibv_post_send(qp_, &wr, &bad)) {
    set_state(ep_state::connected);
    return at(map_errno(err, return_subtype::resource_tep, true).from("ibv_post_send", err), "ep.disconnect");
  }
  if (merged(evds_.request.get())) defer(deferred_tick, tag());
  return success();
}

}}} // namespace dat::v0::detail
