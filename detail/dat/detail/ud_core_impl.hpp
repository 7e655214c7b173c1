// Definitions of ud_core.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/ud_core.hpp>

namespace dat::inline v0::detail {

// --- the endpoint and its addresses --------------------------------------------------------------------------------

inline result<ref<ep_core>> ud_core::create_ep(const char* call, const ref<pz_core>& pz, const ep_core::queues& evds,
                                               const ep_attributes& a) noexcept {
  const auto at = [&](error e) { return e.at(call, object_kind::ep); };
  const auto is_missing = [](const ref<evd_core>& e, bool dropped) { return !e && !dropped; };
  if (is_missing(evds.recv, evds.no_recv) || is_missing(evds.request, evds.no_request) ||
      is_missing(evds.connect, evds.no_connect))
    return at(error(return_type::invalid_parameter, return_subtype::arg4))
        .hint("a datagram endpoint needs all its evds from the start; for events that nobody wants, name "
              "dat::drop_events");
  ibv_port_attr port{};
  if (const int err = ibv_query_port(pz->ia().context(), pz->ia().where().port, &port))
    return at(map_errno(err, return_subtype::resource_device).from("ibv_query_port", err));
  const bool known = port.active_mtu >= IBV_MTU_256 && port.active_mtu <= IBV_MTU_4096;
  const std::uint32_t mtu = known ? 128u << port.active_mtu : 256u;
  if (a.max_message_size > mtu)
    return at(error(return_type::invalid_parameter, return_subtype::arg7))
        .hint("max_message_size of a datagram endpoint is at most the MTU of the adapter's port");
  ref<ud_core> made(new (std::nothrow) ud_core(ref(&pz->ia()), pz), adopt);
  if (!made) return at(error(return_type::insufficient_resources, return_subtype::resource_memory));
  const ep_core::datagram_part part{ref<ia_child>(made.get()), made.get(), mtu, &requeue};
  auto ep = ep_core::create(call, ref(&pz->ia()), pz, evds, a, {}, &part);
  if (!ep) return ep;
  const std::lock_guard lock(made->mutex_);
  made->ep_ = ep.assume_value().get();
  return ep;
}

inline void ud_core::teardown() noexcept {
  ref<pz_core>
      last; // released without the lock; an attempt that is still under way keeps this object, but not the zone
  const std::lock_guard lock(mutex_);
  std::swap(last, pz_);
  ep_ = nullptr;
  for (address_node* n = held_.front(); n; n = held_.after(*n)) destroy(*n);
  for (address_node* n = dropped_.front(); n; n = dropped_.after(*n)) destroy(*n);
}

/// Ends the addresses that no send is under way to any more.
inline void ud_core::reap() noexcept {
  const std::uint64_t posted = posted_.load(std::memory_order_acquire); // before what is still out: never too early
  const std::uint64_t done = ep_ ? posted - smaller<std::uint64_t>(posted, ep_->requests().used()) : posted;
  const auto over = [done](const address_node& n) { return n.until <= done; }; // if not, none behind it is
  while (address_node* n = dropped_.pop_front_if(over)) {
    destroy(*n);
    delete n;
  }
}

inline result<address_node*> ud_core::make_address(const char* call, const ibv_ah_attr& path) noexcept {
  const std::lock_guard lock(mutex_);
  if (!ep_ || dead()) return error(return_type::invalid_handle, return_subtype::handle_ep).at(call, object_kind::ep);
  const auto at = [&](error e) { return ep_->at(e, call); };
  reap();
  auto* const node = new (std::nothrow) address_node;
  if (!node) return at(error(return_type::insufficient_resources, return_subtype::resource_memory));
  ibv_ah_attr attr = path;
  node->ah = ibv_create_ah(pz_->pd(), &attr);
  if (!node->ah) {
    const int err = errno;
    delete node;
    return at(no_path("ibv_create_ah", err, return_subtype::resource_memory, true));
  }
  held_.push_back(*node);
  return node;
}

inline void ud_core::drop_address(address_node* node) noexcept {
  if (ia().foreign()) return;
  const std::lock_guard lock(mutex_);
  node->unlink();
  node->until = posted_.load(std::memory_order_relaxed);
  dropped_.push_back(*node);
  reap();
}

inline int ud_core::attach(group_node& group) noexcept {
  const ref<ep_core> ep = endpoint();
  if (!ep) return ENOTCONN;
  const std::lock_guard lock(ep->mutex_);
  if (ep->state() == ep_dead) return ENOTCONN;
  const std::lock_guard mine(mutex_);
  if (const int err = ibv_attach_mcast(ep->qp(), &group.gid, group.lid)) return err;
  group.qp = ep->qp();
  groups_.push_back(group);
  return 0;
}

inline void ud_core::detach(group_node& group) noexcept {
  const std::lock_guard lock(mutex_);
  if (!group.linked()) return; // its queue pair is gone
  ibv_detach_mcast(group.qp, &group.gid, group.lid);
  group.unlink();
}

/// A queue pair that is attached to a group cannot be destroyed.
inline void ud_core::requeue(ud_core& self, ibv_qp* to) noexcept {
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

inline void ud_core::announce(record::kind what, ref<connection_base> source, int reason) noexcept {
  const ref<ep_core> ep = endpoint();
  if (!ep) return;
  const std::lock_guard lock(ep->mutex_);
  if (ep->state() != ep_datagram) return; // disconnected: what came before that is over
  static_cast<merged_evd*>(ep->evds_.connect.get())
      ->push_connection(record(what, ref<counted>(ep.get()), std::move(source), reason), *ep);
}

inline expected<void> ud_core::disconnect() noexcept {
  const ref<ep_core> ep = endpoint();
  if (!ep) return error(return_type::invalid_handle, return_subtype::handle_ep).at("ep.disconnect", object_kind::ep);
  const std::lock_guard lock(ep->mutex_);
  ep->end_datagrams(record::kind::disconnected);
  return success();
}

// --- getting to know each other ------------------------------------------------------------------------------------

inline expected<void> ud_core::connect(const ref<ep_core>& ep, const ia_address& to, std::uint16_t port, timeout limit,
                                       std::span<const std::byte> data) noexcept {
  static constexpr const char* call = "ep.connect";
  const auto at = [&](error e) { return ep->at(e, call); };
  if (limit <= timeout::zero())
    return at(error(return_type::invalid_parameter, return_subtype::arg4)).hint("the time-out must be positive");
  if (data.size() > max_datagram_data)
    return at(error(return_type::invalid_parameter, return_subtype::arg5)).hint("at most 128 bytes of private data");
  if (auto ok = to.check(address_role::remote); !ok) return at(ok.assume_error());
  if (ep->state() != ep_datagram) return ep->wrong_state(call);
  const ia_address* own = ia().address(to.family());
  if (!own)
    return at(error(return_type::invalid_address, return_subtype::address_unreachable))
        .hint("the adapter has no address of the same family as the remote address");
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

inline int ud_connection::start(ref<ud_core> of, const qp_place& own, const ia_address& from, const ia_address& to,
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
  add_ref(); // the id may be gone as soon as the reactor sees an event
  const ref<ud_connection> alive(this, adopt);
  if (!until.never()) {
    add_ref();
    ia().reactor.arm(timer_, until.at);
  }
  verb = "rdma_resolve_addr";
  ia().hand_over();
  const auto use = [&](rdma_cm_id* i) noexcept {
    return rdma_resolve_addr(i, nullptr, const_cast<sockaddr*>(remote_.native_handle()), 2000) != 0 ? errno : 0;
  };
  const int err = with_id(use);
  // What the timer has told of already is no error of the call.
  return err != 0 && over_.exchange(true, std::memory_order_acq_rel) ? 0 : err;
}

inline void ud_connection::handle(const cm_event& e) noexcept {
  using kind = record::kind;
  if (passive() || over_) return; // nothing is to come after an answer
  switch (e.type) {
  case RDMA_CM_EVENT_ADDR_RESOLVED:
    if (rdma_cm_id* i = id(); !ia().is_ours(*i))
      over(kind::unreachable, ENETUNREACH);
    else if (rdma_resolve_route(i, 2000) != 0)
      over(kind::unreachable, errno);
    return;
  case RDMA_CM_EVENT_ROUTE_RESOLVED: {
    rdma_conn_param param{};
    param.private_data = out_.data();
    param.private_data_len = out_size_;
    asked_ = true;
    if (rdma_connect(id(), &param) != 0) over(kind::non_peer_rejected, errno);
    return;
  }
  case RDMA_CM_EVENT_ESTABLISHED:
    return established(e);
  case RDMA_CM_EVENT_UNREACHABLE:
    // A positive status is the peer's: 1 nobody listens, 2 its consumer said no.
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

inline void ud_connection::established(const cm_event& e) noexcept {
  keep_addresses();
  const auto data = e.data();
  keep_private_data(data);
  target_ = datagram_target{e.datagram.ah_attr, e.datagram.qp_num, e.datagram.qkey};
  over(record::kind::datagram_established, 0);
}

/// The outcome, of which there is one. The id is of no more use.
inline void ud_connection::over(record::kind what, int reason) noexcept {
  if (over_.exchange(true, std::memory_order_acq_rel)) return;
  cancel_timer();
  of_->announce(what, ref<connection_base>(this), reason);
  destroy_id();
}

inline void ud_connection::adopt_request(rdma_cm_id* child, const cm_event& request, ref<ud_answers> answers,
                                         const connection_base& listener) noexcept {
  passive_ = true;
  answers_ = std::move(answers);
  adopt_id(child);
  keep_addresses(listener);
  const auto data = request.data();
  peer_ = datagram_header::read(data);
  if (peer_)
    keep_private_data(data.subspan(datagram_header::size, static_cast<std::size_t>(data[5])));
  else
    keep_private_data(data);
}

inline bool ud_connection::asks_like(const ud_connection& other) const noexcept {
  // An attempt of dat has its port to itself. Other programs may ask from one port for several endpoints, and do not
  // say for which: what they ask again is told again.
  const auto mine = private_data();
  const auto its = other.private_data();
  return peer_ && other.peer_ && peer_->qp_num == other.peer_->qp_num && remote_ == other.remote_ &&
         mine.size() == its.size() && std::memcmp(mine.data(), its.data(), mine.size()) == 0;
}

inline int ud_connection::answer(std::uint32_t number, std::span<const std::byte> data) noexcept {
  answer_number_ = number;
  out_size_ = static_cast<std::uint8_t>(data.size());
  copy_bytes(data, out_.data());
  const ref<ud_answers> keeper(peer_ ? answers_.get() : nullptr);
  return keeper ? keeper->give(*this) : answer_by(id());
}

inline int ud_connection::answer_by(rdma_cm_id* id) const noexcept {
  if (answer_number_ == 0) return rdma_reject(id, out_.data(), out_size_) != 0 ? errno : 0;
  rdma_conn_param param{};
  param.private_data = out_.data();
  param.private_data_len = out_size_;
  param.qp_num = answer_number_;
  return rdma_accept(id, &param) != 0 ? errno : 0;
}

inline int ud_answers::give(ud_connection& request) noexcept {
  const auto now = clock::now();
  forget(now, most - 1);
  const std::lock_guard lock(mutex_);
  if (const int err = request.answer_by(request.id())) return err;
  request.answers_ = {}; // the caller has a reference: no circle
  request.add_ref();
  request.answered_.until = now + kept;
  list_.push_back(request.answered_);
  ++size_;
  return 0;
}

inline bool ud_answers::repeat(ud_connection& request) noexcept {
  forget(clock::now(), most);
  const std::lock_guard lock(mutex_);
  for (answered* a = list_.back(); a; a = list_.before(*a))
    if (a->request->asks_like(request)) {
      (void)a->request->answer_by(request.id()); // what fails here was lost like the first one
      return true;
    }
  return false;
}

inline void ud_answers::forget(clock::time_point now, std::uint32_t room) noexcept {
  for (;;) {
    ref<ud_connection> last; // goes without the lock
    const std::lock_guard lock(mutex_);
    const answered* const oldest =
        list_.pop_front_if([&](const answered& a) { return a.until <= now || size_ > room; });
    if (!oldest) return;
    --size_;
    last = ref<ud_connection>(oldest->request, adopt);
  }
}

inline void ud_connection::refuse() noexcept {
  if (id()) (void)answer(0, {});
  end();
}

inline expected<void> ud_connection::reject(std::span<const std::byte> data) noexcept {
  static constexpr const char* call = "datagram_request.reject";
  if (data.size() > max_datagram_data)
    return error(return_type::invalid_parameter, return_subtype::arg2)
        .at(call, object_kind::cr)
        .hint("at most 128 bytes of private data");
  if (!id()) return error(return_type::invalid_handle, return_subtype::handle_cr).at(call, object_kind::cr);
  const reject_message<max_datagram_data> message(data);
  const int err = answer(0, std::span(message.bytes).first(message.size));
  if (err != 0 && err != EINVAL)
    return map_errno(err, return_subtype::resource_tep).from("rdma_reject", err).at(call, object_kind::cr);
  end();
  return success();
}

inline expected<void> ud_connection::accept(ep_core& with, std::span<const std::byte> data) noexcept {
  static constexpr const char* call = "datagram_request.accept";
  const auto at = [&](error e) { return with.at(e, call); };
  if (data.size() > max_datagram_data)
    return at(error(return_type::invalid_parameter, return_subtype::arg4)).hint("at most 128 bytes of private data");
  if (&with.ia() != &ia())
    return at(error(return_type::invalid_handle, return_subtype::handle_ep))
        .hint("the endpoint belongs to another ia than the request");
  if (with.state() != ep_datagram) return with.wrong_state(call);
  if (!id()) return at(error(return_type::invalid_handle, return_subtype::handle_cr));
  if (peer_) {
    auto path = path_to(ia(), *peer_);
    if (!path) return at(path.assume_error());
    target_ = datagram_target{path.assume_value(), peer_->qp_num, peer_->qkey};
  }
  if (const int err = answer(with.number(), data))
    return at(map_errno(err, return_subtype::resource_tep).from("rdma_accept", err));
  of_ = ref<ud_core>(with.datagrams());
  over(record::kind::datagram_established, 0);
  return success();
}

inline result<ref<ud_service>> ud_service::create(const ref<ia_core>& ia, const ref<evd_core>& evd,
                                                  std::uint16_t port) noexcept {
  const auto at = [&](error e) { return e.at("datagram_service.listen", object_kind::psp, port); };
  if (ia->closed()) return at(error(return_type::invalid_handle, return_subtype::handle_ia));
  if (!evd || evd->dead() || &evd->ia() != ia.get())
    return at(error(return_type::invalid_handle, return_subtype::handle_evd_cr));
  ref<ud_service> head;
  const auto failed = [&](error e) {
    if (head) head->end();
    return at(e);
  };
  for (const auto family : {address_family::ipv4, address_family::ipv6}) {
    const ia_address* const where = ia->address(family);
    if (!where) continue;
    ref<ud_answers> answers = head ? head->answers_ : ref<ud_answers>(new (std::nothrow) ud_answers, adopt);
    ref<ud_service> s(answers ? new (std::nothrow) ud_service(ia, evd, std::move(answers)) : nullptr, adopt);
    if (!s) return failed(error(return_type::insufficient_resources, return_subtype::resource_memory));
    ref<ud_service>& mine = head ? head->twin_ : head;
    mine = s;
    if (auto ok = s->listen(where->with_port(port)); !ok) return failed(ok.assume_error());
  }
  if (!head) return at(error(return_type::invalid_address, return_subtype::address_unreachable));
  return head;
}

inline expected<void> ud_service::listen(const ia_address& where) noexcept {
  if (auto ok = bind_id(where, RDMA_PS_UDP); !ok) return ok;
  return listen_id();
}

inline void ud_service::take_request(rdma_cm_id* child, const rdma_cm_event& e) noexcept {
  const cm_event request(e);
  ref<ud_connection> c(new (std::nothrow) ud_connection(ref(&ia())), adopt);
  if (!c) {
    rdma_destroy_id(child);
    return;
  }
  c->adopt_request(child, request, answers_, *this);
  if (answers_->repeat(*c)) return c->end();
  record r{request_ref(ref<connection_base>(c.get())), record::kind::datagram_request};
  // Without room it is refused at once, as the record goes.
  if (ia().is_ours(*child)) (void)merged(evd_.get())->push_request(std::move(r));
}

} // namespace dat::inline v0::detail
