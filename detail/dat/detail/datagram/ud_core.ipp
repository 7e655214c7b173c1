// Definitions of datagram endpoints, their addresses, requests and services.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/inside_dat.hpp>
#include <dat/detail/connection/service_point.hpp>
#include <dat/detail/datagram/ud_core.hpp>
#include <dat/detail/text/errno.hpp>

namespace dat { inline namespace v0 { namespace detail {

// --- the endpoint and its addresses --------------------------------------------------------------------------------

DAT_DECL result<ref<ep_core>> ud_core::create_ep(const char* call, const ref<pz_core>& pz, const ep_core::queues& evds,
                                                 const ep_attributes& a) noexcept {
  const auto at = [&](error e) { return e.at(call, object_kind::ep); };
  const auto is_missing = [](const ref<evd_core>& e, bool dropped) { return !e && !dropped; };
  if (is_missing(evds.recv, evds.no_recv) || is_missing(evds.request, evds.no_request) ||
      is_missing(evds.connect, evds.no_connect))
    return at(error(return_type::invalid_parameter, return_subtype::arg4))
        .hint("A datagram endpoint needs all its evds from the start. In place of an evd whose events are not wanted, "
              "name "
              "dat::drop_events.");
  ibv_port_attr port{};
  if (const int err = ibv_query_port(pz->ia().context(), pz->ia().where().port, &port))
    return at(map_errno(err, return_subtype::resource_device).from("ibv_query_port", err));
  const bool known = port.active_mtu >= IBV_MTU_256 && port.active_mtu <= IBV_MTU_4096;
  const std::uint32_t mtu = known ? 128u << port.active_mtu : 256u;
  if (a.max_message_size.value_or(0) > mtu)
    return at(error(return_type::invalid_parameter, return_subtype::arg7))
        .hint("The max_message_size of a datagram endpoint is at most the MTU of the adapter's port.");
  ref<ud_core> made(new (std::nothrow) ud_core(ref(&pz->ia()), pz), adopt);
  if (!made) return at(error(return_type::insufficient_resources, return_subtype::resource_memory));
  const ep_core::datagram_part part{ref<ia_child>(made.get()), &made->ep_, &made->sent, mtu, &requeue};
  return ep_core::create(call, ref(&pz->ia()), pz, evds, a, {}, &part);
}

DAT_DECL void ud_core::teardown() noexcept {
  ref<pz_core> last; // released without the lock; an attempt that is under way keeps this object, but not the zone
  const std::lock_guard lock(mutex_);
  std::swap(last, pz_);
  ep_ = nullptr;
  for (address_node* n = held_.front(); n; n = held_.after(*n)) destroy(*n);
  for (address_node* n = dropped_.front(); n; n = dropped_.after(*n)) destroy(*n);
}

/// Destroys the address handles that no outstanding send names.
DAT_DECL void ud_core::reap() noexcept {
  const std::uint64_t posted = sent.value(); // read before the outstanding sends, so that no handle is freed too early
  const std::uint64_t done = ep_ ? posted - min<std::uint64_t>(posted, ep_->requests().used()) : posted;
  // If one handle is still in use, so are the handles behind it, because they were dropped later.
  const auto over = [done](const address_node& n) { return n.until <= done; };
  while (address_node* n = dropped_.pop_front_if(over)) {
    destroy(*n);
    delete n;
  }
}

DAT_DECL result<address_node*> ud_core::make_address(const char* call, const ibv_ah_attr& path,
                                                     const qos& quality) noexcept {
  const std::lock_guard lock(mutex_);
  if (!ep_ || dead()) return error(return_type::invalid_handle, return_subtype::handle_ep).at(call, object_kind::ep);
  const auto at = [&](error e) { return ep_->at(e, call); };
  reap();
  auto* const node = new (std::nothrow) address_node;
  if (!node) return at(error(return_type::insufficient_resources, return_subtype::resource_memory));
  ibv_ah_attr attr = path;
  set_qos(attr, quality.or_else(ep_->quality_of_service()));
  ibv_ah* const ah = ibv_create_ah(pz_->pd(), &attr);
  if (!ah) {
    const int err = errno;
    delete node;
    return at(no_path("ibv_create_ah", err, return_subtype::resource_memory, true));
  }
  node->ah = ah;
  held_.push_back(*node);
  return node;
}

DAT_DECL void ud_core::drop_address(address_node* node) noexcept {
  if (ia().foreign()) return;
  const std::lock_guard lock(mutex_);
  node->unlink();
  node->until = sent.value();
  dropped_.push_back(*node);
  reap();
}

DAT_DECL int ud_core::attach(group_node& group) noexcept {
  const ref<ep_core> ep = endpoint();
  if (!ep) return ENOTCONN;
  int err = ENOTCONN;
  ep->locked([&](ep_core& of) noexcept {
    if (of.state() == ep_dead) return;
    const std::lock_guard mine(mutex_);
    err = ibv_attach_mcast(of.qp(), &group.gid, group.lid);
    if (err != 0) return;
    group.qp = of.qp();
    groups_.push_back(group);
  });
  return err;
}

DAT_DECL void ud_core::detach(group_node& group) noexcept {
  const std::lock_guard lock(mutex_);
  if (!group.linked()) return; // the queue pair is destroyed
  ibv_detach_mcast(group.qp, &group.gid, group.lid);
  group.unlink();
}

/// Moves the attachments to another queue pair: one that is attached to a group cannot be destroyed.
DAT_DECL void ud_core::requeue(ia_child& core, ibv_qp* to) noexcept {
  auto& self = static_cast<ud_core&>(core);
  const std::lock_guard lock(self.mutex_);
  for (group_node *g = self.groups_.front(), *next; g; g = next) {
    next = self.groups_.after(*g);
    ibv_detach_mcast(g->qp, &g->gid, g->lid);
    g->qp = to;
    const int err = to ? ibv_attach_mcast(to, &g->gid, g->lid) : 0;
    if (err != 0) self.ia().failed_inside("ibv_attach_mcast", err);
    if (!to || err != 0) g->unlink();
  }
}

DAT_DECL void ud_core::announce(record::kind what, ref<connection_base> source, int reason) noexcept {
  const ref<ep_core> ep = endpoint();
  if (!ep) return;
  ep->locked([&](ep_core& to) noexcept {
    if (to.state() != ep_datagram) return; // the endpoint was disconnected, so it gets no more events of earlier calls
    merged(to.evds().connect.get())->push_connection(record(what, ref<counted>(&to), std::move(source), reason), to);
  });
}

DAT_DECL expected<void> ud_core::disconnect() noexcept {
  const ref<ep_core> ep = endpoint();
  if (!ep) return error(return_type::invalid_handle, return_subtype::handle_ep).at("ep.disconnect", object_kind::ep);
  ep->locked([](ep_core& of) noexcept { of.end_datagrams(record::kind::disconnected, end_reason::local); });
  return success();
}

// --- exchanging addresses ------------------------------------------------------------------------------------

DAT_DECL expected<void> ud_core::connect(const ref<ep_core>& ep, const ia_address& to, std::uint16_t port,
                                         timeout limit, std::span<const std::byte> data) noexcept {
  static constexpr const char* call = "ep.connect";
  const auto at = [&](error e) { return ep->at(e, call); };
  if (limit <= timeout::zero())
    return at(error(return_type::invalid_parameter, return_subtype::arg4))
        .hint("The timeout `limit` must be positive.");
  if (data.size() > max_datagram_data)
    return at(error(return_type::invalid_parameter, return_subtype::arg5))
        .hint("There is room for at most 128 bytes of private data.");
  if (auto ok = ia().check_remote(to); !ok) return at(ok.assume_error());
  if (ep->state() != ep_datagram) return ep->wrong_state(call);
  const ia_address* own = ia().address(to.family());
  if (!own)
    return at(error(return_type::invalid_address, return_subtype::address_unreachable))
        .hint("The adapter has no address of the same family as the remote address.");
  auto here = place_of(ia(), to.family() == address_family::ipv4);
  if (!here) return at(here.assume_error());
  qp_place place = here.assume_value().place;
  place.qp_num = ep->number();
  place.qkey = datagram_qkey;
  ref<ud_connection> c(new (std::nothrow) ud_connection(ref(&ia())), adopt);
  if (!c) return at(error(return_type::insufficient_resources, return_subtype::resource_memory));
  const char* verb = "";
  const int err = c->start(ref<ud_core>(this), place, own->with_port(0), to.with_port(port), limit, data, verb);
  if (err == 0) return success();
  c->end();
  error e = map_errno(err, return_subtype::resource_tep);
  if (err == ENODEV) e = error(return_type::invalid_address, return_subtype::address_unreachable);
  return at(e.from(verb, err));
}

DAT_DECL int ud_connection::start(ref<ud_core> of, const qp_place& own, const ia_address& from, const ia_address& to,
                                  timeout limit, std::span<const std::byte> data, const char*& verb) noexcept {
  of_ = std::move(of);
  std::byte* const after = datagram_header::write(own, data.size(), out_.data());
  copy_bytes(data, after);
  out_size_ = static_cast<std::uint8_t>(datagram_header::size + data.size());
  remote_ = to;
  verb = "rdma_create_id";
  if (const int err = create_id(RDMA_PS_UDP)) return err;
  verb = "rdma_bind_addr";
  if (rdma_bind_addr(id(), const_cast<sockaddr*>(from.native_handle())) != 0) return errno;
  const deadline until = deadline::in(limit);
  add_ref(); // the reactor may end the id as soon as it reads an event
  const ref<ud_connection> alive(this, adopt);
  if (!until.never()) {
    add_ref();
    ia().reactor.defer(timer_, until.at);
  }
  verb = "rdma_resolve_addr";
  ia().release_to_reactor();
  const auto use = [&](rdma_cm_id* i) noexcept {
    return rdma_resolve_addr(i, nullptr, const_cast<sockaddr*>(remote_.native_handle()), 2000) != 0 ? errno : 0;
  };
  const int err = with_id(use);
  // When the timer has reported the outcome already, the call succeeds.
  return err != 0 && over_.exchange(true, std::memory_order_acq_rel) ? 0 : err;
}

DAT_DECL void ud_connection::handle(const cm_event& e) noexcept {
  using kind = record::kind;
  if (passive() || over_) return; // no event follows a reply
  switch (e.type) {
  // The owner may end the id at any time: see with_id.
  case RDMA_CM_EVENT_ADDR_RESOLVED: {
    const int err = with_id([this](rdma_cm_id* i) noexcept {
      if (!ia().is_ours(*i)) return ENETUNREACH;
      return rdma_resolve_route(i, 2000) != 0 ? errno : 0;
    });
    if (err != 0) over(kind::unreachable, err);
    return;
  }
  case RDMA_CM_EVENT_ROUTE_RESOLVED: {
    rdma_conn_param param{};
    param.private_data = out_.data();
    param.private_data_len = out_size_;
    asked_ = true;
    const int err = with_id([&](rdma_cm_id* i) noexcept { return rdma_connect(i, &param) != 0 ? errno : 0; });
    if (err != 0) over(kind::non_peer_rejected, err);
    return;
  }
  case RDMA_CM_EVENT_ESTABLISHED:
    return established(e);
  case RDMA_CM_EVENT_UNREACHABLE:
    // A positive status is the peer's: 1 means that no service listens, 2 that its consumer refused.
    keep_private_data(is_marked(e.data()) ? behind_mark(e.data()) : std::span<const std::byte>{});
    if (e.status > 0) return over(e.status == 2 ? kind::peer_rejected : kind::non_peer_rejected, e.status);
    return over(kind::unreachable, -e.status);
  case RDMA_CM_EVENT_ADDR_ERROR:
  case RDMA_CM_EVENT_ROUTE_ERROR:
  case RDMA_CM_EVENT_CONNECT_ERROR:
    return over(kind::unreachable, std::abs(e.status));
  case RDMA_CM_EVENT_REJECTED:
  case RDMA_CM_EVENT_DEVICE_REMOVAL:
    return over(kind::non_peer_rejected, std::abs(e.status));
  default:
    return;
  }
}

DAT_DECL void ud_connection::established(const cm_event& e) noexcept {
  keep_addresses();
  keep_private_data(before_mark(e.data(), max_datagram_data));
  target_ = datagram_target{e.datagram.ah_attr, e.datagram.qp_num, e.datagram.qkey};
  over(record::kind::datagram_established, 0);
}

/// Reports the outcome, once. The id has no further use.
DAT_DECL void ud_connection::over(record::kind what, int reason) noexcept {
  if (over_.exchange(true, std::memory_order_acq_rel)) return;
  cancel_timer();
  of_->announce(what, ref<connection_base>(this), reason);
  drop_id();
}

DAT_DECL void ud_connection::adopt_request(rdma_cm_id* child, const cm_event& request, ref<reply_cache> answers,
                                           const connection_base& listener) noexcept {
  passive_ = true;
  answers_ = std::move(answers);
  adopt_id(child);
  keep_addresses(listener);
  service_port = local_.port();
  const auto data = request.data();
  peer_ = datagram_header::read(data);
  if (peer_)
    keep_private_data(data.subspan(datagram_header::size, static_cast<std::size_t>(data[5])));
  else
    keep_private_data(data);
}

/// A datagram endpoint of dat connects from the address in its header. On RoCE the GID is that address: with another
/// GID the reply, and the datagrams after it, would go to a third host.
DAT_DECL bool ud_connection::names_its_address() const noexcept {
  if (!peer_ || !ia().ethernet()) return true;
  const ibv_gid asked_from = gid_of(remote_);
  return std::memcmp(asked_from.raw, peer_->gid.raw, sizeof asked_from.raw) == 0;
}

DAT_DECL bool ud_connection::asks_like(const ud_connection& other) const noexcept {
  // Each attempt of dat uses a port of its own. Other programs may send requests for several endpoints from one port,
  // without naming them: a repeated request of theirs is an event like any other.
  const auto mine = private_data();
  const auto its = other.private_data();
  return peer_ && other.peer_ && peer_->qp_num == other.peer_->qp_num && remote_ == other.remote_ &&
         mine.size() == its.size() && std::memcmp(mine.data(), its.data(), mine.size()) == 0;
}

DAT_DECL int ud_connection::answer(std::uint32_t number, std::span<const std::byte> data) noexcept {
  answer_number_ = number;
  out_ = {};
  out_size_ = static_cast<std::uint8_t>(data.size());
  copy_bytes(data, out_.data());
  if (number != 0) out_size_ = mark_end(out_.data(), data.size(), max_datagram_data);
  const ref<reply_cache> keeper(peer_ ? answers_.get() : nullptr);
  return keeper ? keeper->give(*this) : answer_by(id());
}

DAT_DECL int ud_connection::answer_by(rdma_cm_id* id) const noexcept {
  if (answer_number_ == 0) return rdma_reject(id, out_.data(), out_size_) != 0 ? errno : 0;
  rdma_conn_param param{};
  param.private_data = out_.data();
  param.private_data_len = out_size_;
  param.qp_num = answer_number_;
  return rdma_accept(id, &param) != 0 ? errno : 0;
}

DAT_DECL reply_cache::dropped::~dropped() {
  while (const answered* const a = list.pop_front()) a->request->release();
}

DAT_DECL int reply_cache::give(ud_connection& request) noexcept {
  dropped over;
  const std::lock_guard lock(mutex_);
  const auto now = clock::now();
  forget(now, most - 1, over);
  keep_share(request, over);
  if (const int err = request.answer_by(request.id())) return err;
  request.answers_ = {}; // the caller has a reference, so no reference cycle arises
  request.add_ref();
  request.answered_.until = now + kept;
  list_.push_back(request.answered_);
  ++size_;
  return 0;
}

DAT_DECL bool reply_cache::repeat(ud_connection& request) noexcept {
  dropped over;
  const std::lock_guard lock(mutex_);
  forget(clock::now(), most, over);
  for (answered* a = list_.back(); a; a = list_.before(*a))
    if (a->request->asks_like(request)) {
      (void)a->request->answer_by(request.id()); // after a failed reply the peer repeats its request
      return true;
    }
  return false;
}

DAT_DECL void reply_cache::forget(clock::time_point now, std::uint32_t room, dropped& to) noexcept {
  while (answered* const oldest =
             list_.pop_front_if([&](const answered& a) { return a.until <= now || size_ > room; })) {
    --size_;
    to.list.push_back(*oldest);
  }
}

DAT_DECL void reply_cache::keep_share(const ud_connection& request, dropped& to) noexcept {
  const ia_address peer = request.remote_.with_port(0);
  answered* first = nullptr;
  std::uint32_t n = 0;
  for (answered* a = list_.front(); a; a = list_.after(*a)) {
    if (a->request->remote_.with_port(0) != peer) continue;
    if (n++ == 0) first = a;
  }
  if (n < most_of_address) return;
  first->unlink();
  --size_;
  to.list.push_back(*first);
}

DAT_DECL void ud_connection::refuse() noexcept {
  if (id()) (void)answer(0, {});
  end();
}

DAT_DECL expected<void> ud_connection::reject(std::span<const std::byte> data) noexcept {
  static constexpr const char* call = "datagram_request.reject";
  if (data.size() > max_datagram_data)
    return error(return_type::invalid_parameter, return_subtype::arg2)
        .at(call, object_kind::cr)
        .hint("There is room for at most 128 bytes of private data.");
  if (!id()) return error(return_type::invalid_handle, return_subtype::handle_cr).at(call, object_kind::cr);
  const reject_message<max_datagram_data> message(data);
  const int err = answer(0, std::span(message.bytes).first(message.size));
  if (err != 0 && err != EINVAL)
    return map_errno(err, return_subtype::resource_tep).from("rdma_reject", err).at(call, object_kind::cr);
  end();
  return success();
}

DAT_DECL expected<void> ud_connection::accept(ep_core& with, std::span<const std::byte> data) noexcept {
  static constexpr const char* call = "datagram_request.accept";
  const auto at = [&](error e) { return with.at(e, call); };
  if (data.size() > max_datagram_data)
    return at(error(return_type::invalid_parameter, return_subtype::arg4))
        .hint("There is room for at most 128 bytes of private data.");
  if (&with.ia() != &ia())
    return at(error(return_type::invalid_handle, return_subtype::handle_ep))
        .hint("The endpoint belongs to another ia than the request.");
  if (with.state() != ep_datagram) return with.wrong_state(call);
  if (!id()) return at(error(return_type::invalid_handle, return_subtype::handle_cr));
  if (peer_) {
    rdma_route route{};
    (void)with_id([&](rdma_cm_id* i) noexcept { return route = i->route, 0; });
    auto path = path_to(ia(), *peer_, &route);
    if (!path) return at(path.assume_error());
    target_ = datagram_target{path.assume_value(), peer_->qp_num, peer_->qkey};
  }
  if (const int err = answer(with.number(), data))
    return at(map_errno(err, return_subtype::resource_tep).from("rdma_accept", err));
  of_ = ud_core::of(with);
  over(record::kind::datagram_established, 0);
  return success();
}

DAT_DECL result<ref<ud_service>> ud_service::create(const ref<ia_core>& ia, const ref<evd_core>& evd,
                                                    std::uint16_t port) noexcept {
  const inside_dat section;
  const auto at = [&](error e) { return e.at("datagram_service.listen", object_kind::psp, port); };
  if (ia->closed()) return at(error(return_type::invalid_handle, return_subtype::handle_ia));
  if (!evd || evd->dead() || &evd->ia() != ia.get())
    return at(error(return_type::invalid_handle, return_subtype::handle_evd_cr));
  if (auto ok = ia->check_infiniband(); !ok) return at(ok.assume_error());
  ref<ud_service> head;
  const auto failed = [&](error e) {
    if (head) head->end();
    return at(e);
  };
  for (const auto family : {address_family::ipv4, address_family::ipv6}) {
    const ia_address* const where = ia->address(family);
    if (!where) continue;
    ref<reply_cache> answers = head ? head->answers_ : ref<reply_cache>(new (std::nothrow) reply_cache, adopt);
    ref<ud_service> s(answers ? new (std::nothrow) ud_service(ia, evd, std::move(answers)) : nullptr, adopt);
    if (!s) return failed(error(return_type::insufficient_resources, return_subtype::resource_memory));
    ref<ud_service>& mine = head ? head->other_family_ : head;
    mine = s;
    if (auto ok = s->listen(where->with_port(port)); !ok) return failed(ok.assume_error());
  }
  if (!head) return at(error(return_type::invalid_address, return_subtype::address_unreachable));
  head->publish();
  return head;
}

DAT_DECL expected<void> ud_service::hand_off(const ref<ud_connection>& request, std::uint16_t port) noexcept {
  const std::uint16_t before = request->service_port;
  const auto at = [&](return_type type, return_subtype subtype, const char* hint) {
    return error(type, subtype).at("datagram_request.handoff", object_kind::cr, before).hint(hint);
  };
  const auto invalid = [&](const char* hint) { return at(return_type::invalid_parameter, return_subtype::arg2, hint); };
  if (port == before) return invalid("The request is at that datagram service already.");
  const ref<ia_child> target = request->ia().find(
      child_kind::datagram_service, [&](ia_child& c) noexcept { return static_cast<ud_service&>(c).port() == port; });
  if (!target) return invalid("No datagram service of this ia listens at that qualifier.");
  // Once queued, the request may belong to another thread.
  request->service_port = port;
  record r{request_ref(ref<connection_base>(request.get())), record::kind::datagram_request};
  if (merged(static_cast<ud_service&>(*target).evd_.get())->push_request(std::move(r))) return success();
  // The caller keeps the request: a push that fails has not moved it.
  r.request.done(); // NOLINT(bugprone-use-after-move)
  request->service_port = before;
  return at(return_type::invalid_state, return_subtype::none, "The evd of that datagram service is full.");
}

DAT_DECL expected<void> ud_service::listen(const ia_address& where) noexcept {
  if (auto ok = bind_id(where, RDMA_PS_UDP); !ok) return ok;
  return listen_id();
}

DAT_DECL void ud_service::take_request(rdma_cm_id* child, const rdma_cm_event& e) noexcept {
  const cm_event request(e);
  ref<ud_connection> c(new (std::nothrow) ud_connection(ref(&ia())), adopt);
  if (!c) {
    rdma_destroy_id(child);
    return;
  }
  c->adopt_request(child, request, answers_, *this);
  if (!c->names_its_address()) return c->drop_unanswered();
  if (answers_->repeat(*c)) return c->end();
  record r{request_ref(ref<connection_base>(c.get())), record::kind::datagram_request};
  // Without room, destroying the record refuses the request. The refusal is no decision of the consumer: a repeated
  // request may find room.
  if (!ia().is_ours(*child)) return c->keep_no_answer();
  const bool taken = merged(evd_.get())->push_request(std::move(r));
  note_request(port(), taken ? 0 : ENOBUFS);
  if (!taken) c->keep_no_answer();
}

}}} // namespace dat::v0::detail
