// Definitions of ep_core: queue pair, errors, and the endpoint's part in a connection's life.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/basics.hpp>
#include <dat/detail/ep_core.hpp>
#include <dat/detail/errno.hpp>
#include <dat/detail/handle.hpp>
#include <dat/detail/ib_time.hpp>

#include <bit>

namespace dat::inline v0::detail {

// --- creation and end ----------------------------------------------------------------------------------------------

inline ep_core::ep_core(ref<ia_core> ia, ref<pz_core> pz, const queues& evds, ref<srq_core> srq) noexcept
    : ia_child(std::move(ia), table), pz_(std::move(pz)), evds_(evds), srq_(std::move(srq)) {
  shares_ = static_cast<bool>(srq_);
  if (srq_) srq_->users.fetch_add(1, std::memory_order_relaxed);
  if (pz_) pz_->users.fetch_add(1, std::memory_order_relaxed);
  for (evd_core* e : {evds_.recv.get(), evds_.request.get(), evds_.connect.get()})
    if (e) e->users.fetch_add(1, std::memory_order_relaxed);
  work_.self = this;
  work_.fired = [](timer& t) noexcept {
    const ref<ep_core> self(static_cast<work_timer&>(t).self, adopt); // armed with a reference
    self->run_deferred();
  };
}

inline expected<void> ep_core::check_evds(const ia_core& ia, const queues& evds) noexcept {
  const std::pair<const ref<evd_core>&, return_subtype> attached[] = {
      {evds.recv, return_subtype::handle_evd_recv},
      {evds.request, return_subtype::handle_evd_request},
      {evds.connect, return_subtype::handle_evd_conn}};
  for (const auto& [evd, which] : attached)
    if (evd && (evd->dead() || &evd->ia() != &ia))
      return error(return_type::invalid_handle, which).hint("the evd is closed or belongs to another ia");
  return success();
}

inline constexpr const char* other_zone_hint =
    "the endpoint and its srq must be of one zone: adapters differ in which of two they take for receives";
inline constexpr const char* uncounted_hint =
    "the receives of an endpoint can be counted only where its recv evd has a queue of its own: create that with "
    "dat::dto | dat::software, or leave the high watermarks out";

/// DAT counts in numbers with a sign.
[[nodiscard]] constexpr bool is_watermark(std::uint32_t n) noexcept { return n == no_watermark || n <= 0x7fffffffu; }

inline expected<void> ep_core::check_attributes(const ia_core& ia, const ep_attributes& a) noexcept {
  const auto invalid = [](const char* hint) {
    return error(return_type::invalid_parameter, return_subtype::arg7).hint(hint);
  };
  const ibv_device_attr& device = ia.device();
  const auto most = [](int limit, std::uint32_t cap) { return smaller(static_cast<std::uint32_t>(limit), cap); };
  const std::uint32_t max_wr = most(device.max_qp_wr, max_ring) - 1; // one slot of the send queue is the library's
  if (a.max_request_dtos == 0 || a.max_request_dtos > max_wr || a.max_recv_dtos == 0 || a.max_recv_dtos > max_wr)
    return invalid("max_request_dtos and max_recv_dtos must be at least 1 and below the device's max_qp_wr");
  const std::uint32_t max_sge = most(device.max_sge, 255);
  if (a.max_request_iov == 0 || a.max_request_iov > max_sge || a.max_recv_iov == 0 || a.max_recv_iov > max_sge)
    return invalid("max_request_iov and max_recv_iov must be at least 1 and at most the device's max_sge");
  if (a.retry_count > 6) return invalid("retry_count must be at most 6: 7 means for ever to some adapters");
  if (a.rnr_retry_count > 7) return invalid("rnr_retry_count must be at most 7, which means for ever");
  if (a.min_rnr_timer.count() < 0 || a.min_rnr_timer.count() > 655'360 || a.ack_timeout.count() <= 0)
    return invalid("min_rnr_timer must be within 0..655.36 ms, ack_timeout positive");
  if (a.max_message_size > ia.max_message()) return invalid("max_message_size exceeds what the device can");
  if (a.max_rdma_read_out.value_or(0) > device.max_qp_init_rd_atom ||
      a.max_rdma_read_in.value_or(0) > device.max_qp_rd_atom)
    return invalid("max_rdma_read_out or max_rdma_read_in exceeds what the device can");
  if (a.request_completion != waking::unsignalled && a.request_completion != waking::evd_threshold)
    return invalid("request_completion must be evd_threshold or unsignalled");
  if (a.recv_completion != waking::unsignalled && a.recv_completion != waking::evd_threshold &&
      a.recv_completion != waking::solicited_wait)
    return invalid("recv_completion must be evd_threshold, unsignalled or solicited_wait");
  if (!is_watermark(a.soft_high_watermark) || !is_watermark(a.hard_high_watermark))
    return invalid("a high watermark must be below 2^31, or no_watermark");
  if (a.comm != communicator{} && !is_supported(a.comm))
    return invalid("a communicator is {AF_INET or AF_INET6, SOCK_STREAM, 0 or IPPROTO_TCP}");
  return success();
}

inline void ep_core::set_attributes(const ep_attributes& a) noexcept {
  const ibv_device_attr& device = ia().device();
  const auto reads = [](int limit) { return static_cast<std::uint8_t>(smaller(limit, 16)); };
  attributes_ = a;
  // Adapters round up to a power of two; rounded down here, none runs more than was asked.
  read_out_ = std::bit_floor(a.max_rdma_read_out.value_or(reads(device.max_qp_init_rd_atom)));
  read_in_ = a.max_rdma_read_in.value_or(reads(device.max_qp_rd_atom));
  constexpr unsigned invalidating =
      IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  invalidates_ = (device.device_cap_flags & invalidating) != 0;
  max_message_ = a.max_message_size != 0 ? a.max_message_size : ia().max_message();
  note_zone();
}

inline result<ref<ep_core>> ep_core::create(const char* call, const ref<ia_core>& ia, const ref<pz_core>& pz,
                                            const queues& evds, const ep_attributes& a, const ref<srq_core>& srq,
                                            const datagram_part* datagrams) noexcept {
  const auto none = [&](return_subtype what) {
    return error(return_type::insufficient_resources, what).at(call, object_kind::ep);
  };
  if (pz && pz->dead()) return error(return_type::invalid_handle, return_subtype::handle_pz).at(call, object_kind::ep);
  if (ia->closed()) return error(return_type::invalid_handle, return_subtype::handle_ia).at(call, object_kind::ep);
  if (auto ok = check_evds(*ia, evds); !ok) return ok.assume_error().at(call, object_kind::ep);
  if (auto ok = check_attributes(*ia, a); !ok) return ok.assume_error().at(call, object_kind::ep);
  if (srq && (srq->dead() || &srq->ia() != ia.get()))
    return error(return_type::invalid_handle, return_subtype::handle_srq)
        .at(call, object_kind::ep)
        .hint("the srq is closed or belongs to another ia");
  if (srq && pz && srq->pz().get() != pz.get())
    return error(return_type::invalid_parameter, return_subtype::arg6).at(call, object_kind::ep).hint(other_zone_hint);
  queues fed = evds;
  if (auto ok = add_sink(call, ia, fed, a, srq.get()); !ok) return ok.assume_error();
  if (auto ok = attach(fed, a, {}); !ok) return ok.assume_error().at(call, object_kind::ep);
  ref<ep_core> ep(new (std::nothrow) ep_core(ia, pz, fed, srq), adopt);
  if (!ep) {
    detach(fed);
    return none(return_subtype::resource_memory);
  }
  if (datagrams) {
    ep->datagrams_ = datagrams->owner;
    ep->ud_ = datagrams->core;
    ep->requeue_ = datagrams->requeue;
    ep->announced_ = true; // its completions wait for nothing
  }
  ep->set_attributes(a);
  if (datagrams && a.max_message_size == 0) ep->max_message_ = datagrams->mtu;
  ep->soft_ = a.soft_high_watermark;
  ep->hard_ = a.hard_high_watermark;
  ep->soft_armed_ = ep->soft_ != no_watermark;
  ep->arm_alarm();
  ep->set_state(ep_state::unconfigured_unconnected);
  if (ep->complete()) {
    if (auto ok = ep->equip(call); !ok) return ok.assume_error();
    ep->set_state(datagrams ? ep_datagram : ep_state::unconnected);
  }
  ep->show();
  return ep;
}

inline expected<void> ep_core::add_sink(const char* call, const ref<ia_core>& ia, queues& evds, const ep_attributes& a,
                                        const srq_core* srq) noexcept {
  if (!evds.no_recv && !evds.no_request && !evds.no_connect) return success();
  const std::uint32_t room = (evds.no_recv ? most_receives(srq, a) : 0) + (evds.no_request ? a.max_request_dtos : 0);
  auto sink = merged_evd::create_sink(ia, room != 0 ? streams::dto : streams::connection, larger(room, 1));
  if (!sink) return sink.assume_error().at(call, object_kind::ep);
  if (evds.no_recv) evds.recv = sink.assume_value();
  if (evds.no_request) evds.request = sink.assume_value();
  if (evds.no_connect) evds.connect = sink.assume_value();
  return success();
}

inline expected<void> ep_core::attach(const queues& evds, const ep_attributes& a, const queues& leaving) noexcept {
  const auto leaves = [&](const evd_core& e) {
    return (leaving.recv.get() == &e ? 1u : 0u) + (leaving.request.get() == &e ? 1u : 0u);
  };
  if (evds.recv)
    if (auto ok = evds.recv->attach(a.recv_completion, false, leaves(*evds.recv)); !ok) return ok;
  if (!evds.request) return success();
  const bool both = evds.recv && evds.recv.get() == evds.request.get() && a.recv_completion == a.request_completion;
  auto ok = evds.request->attach(a.request_completion, true, leaves(*evds.request) + (both ? 1u : 0u));
  if (!ok && evds.recv) evds.recv->detach();
  return ok;
}

inline void ep_core::detach(const queues& evds) noexcept {
  if (evds.recv) evds.recv->detach();
  if (evds.request) evds.request->detach();
}

inline ref<ep_core> ep_core::create_for(const ref<ep_connection>& request) noexcept {
  // What the peer wants to read here is what this end is to serve, and the other way round.
  const ibv_device_attr& device = request->ia().device();
  const auto can = [](std::uint8_t wanted, int limit) {
    return static_cast<std::uint8_t>(smaller<int>(wanted, limit));
  };
  ep_attributes a;
  a.max_rdma_read_in = can(request->peer_wants(), device.max_qp_rd_atom);
  a.max_rdma_read_out = can(request->peer_reads(), device.max_qp_init_rd_atom);
  auto made = create("ia.create_psp", ref(&request->ia()), {}, {}, a);
  if (!made) return {};
  ref<ep_core> ep = std::move(made).assume_value();
  ep->connection_ = request;
  ep->set_state(ep_state::unconfigured_tentative);
  return ep;
}

inline expected<void> ep_core::equip(const char* call) noexcept {
  if ((soft_ != no_watermark || hard_ != no_watermark) && !merged(evds_.recv.get()))
    return at(error(return_type::model_not_supported), call).hint(uncounted_hint);
  const auto sink = [](evd_core& e) {
    const merged_evd* m = merged(&e);
    return m && m->is_sink() ? &e : nullptr;
  };
  evd_core* const of_recv = sink(*evds_.recv);
  evd_core* const of_request = sink(*evds_.request);
  const std::uint32_t room =
      (of_recv ? most_receives(srq_.get(), attributes_) : 0) + (of_request ? attributes_.max_request_dtos : 0);
  for (evd_core* e : {of_recv, of_request})
    if (e && e->qlen() < room)
      if (auto ok = e->resize(room); !ok) return at(ok.assume_error(), call);
  // All of it before anything changes.
  const std::uint32_t receives_here = shares_ ? 0 : attributes_.max_recv_dtos;
  const std::uint32_t n = 3 + attributes_.max_request_dtos + receives_here;
  work_entry* block;
  ep_tag fresh = 0;
  {
    const std::lock_guard lock(ia().work_mutex);
    block = ia().work.allocate(n);
    if (block) fresh = ia().work.renew(block, n);
  }
  if (!block) return at(error(return_type::insufficient_resources, return_subtype::resource_memory), call);
  auto qp = make_qp(call, fresh);
  if (!qp) {
    const std::lock_guard lock(ia().work_mutex);
    work_arena::forget(block, n);
    ia().work.free(block, n);
    return qp.assume_error();
  }
  if (qp_) {
    leave_srq();
    ibv_destroy_qp(qp_);
  }
  free_entries();
  entries_ = block;
  entry_count_ = n;
  tag_ = fresh;
  qp_ = qp.assume_value();
  number_.store(qp_->qp_num, std::memory_order_relaxed);
  work_entry* const requests = entries_ + 1;
  work_entry* const receives = requests + attributes_.max_request_dtos + 1;
  sq_.place(requests, attributes_.max_request_dtos, this,
            kind_of_work(ud_ ? dto_operation::send_ud : dto_operation::send));
  rq_.place(receives, receives_here, this, ud_ ? recv_ud_work : kind_of_work(dto_operation::recv));
  entries_->queue = &sq_;
  entries_->posted.kind = marker_work;
  for (std::size_t i = 0; i < prepared_requests; ++i) {
    prepared_[i].wr.sg_list = &prepared_[i].sge;
    prepared_[i].wr.num_sge = 1;
    prepared_[i].wr.next = i + 1 < prepared_requests ? &prepared_[i + 1].wr : nullptr;
  }
  list_wr_.sg_list = list_sge_;
  recv_wr_.sg_list = &recv_sge_;
  recv_wr_.num_sge = 1;
  note_zone();
  return success();
}

inline void ep_core::free_entries() noexcept {
  if (!entries_) return;
  const std::lock_guard lock(ia().work_mutex);
  work_arena::forget(entries_, entry_count_);
  ia().work.free(entries_, entry_count_);
  entries_ = nullptr;
}

inline void ep_core::note_zone() noexcept {
  own_zone_ = pz_ ? common_zone(pz_.get()) : common_zone::none();
  // A limit of the consumer's own is looked at with every post, for which no segment's zone is the expected one.
  // Nothing that could go that way is posted to a datagram endpoint.
  constexpr common_zone none = common_zone::none();
  const bool simple = ud_ || max_message_ == ia().max_message();
  zones_[0] = none;
  for (std::size_t n = 1; n <= prepared_segments; ++n)
    zones_[n] = simple && n <= larger<std::size_t>(attributes_.max_request_iov, 1) ? own_zone_ : none;
  note_depths();
}

inline void ep_core::note_depths() noexcept {
  read_zone_ = read_depth_ != 0 ? zones_[1] : zones_[0];
  atomic_zone_ = atomic_depth_ != 0 ? zones_[1] : zones_[0];
}

inline void ep_core::agree_on_depth(std::uint8_t peer_reads_in) noexcept {
  read_depth_ = std::bit_floor(smaller(read_out_, peer_reads_in));
  atomic_depth_ = ia().device().atomic_cap != IBV_ATOMIC_NONE ? read_depth_ : std::uint8_t{0};
  note_depths();
}

// --- service points ------------------------------------------------------------------------------------------------

inline expected<void> ep_core::reserve(const char* call, const ia_core& of) noexcept {
  if (&of != &ia())
    return at(error(return_type::invalid_handle, return_subtype::handle_ep), call)
        .hint("the endpoint belongs to another ia");
  const std::lock_guard lock(mutex_);
  const ep_state s = state();
  if (s != ep_state::unconnected && s != ep_state::unconfigured_unconnected) return wrong_state(call);
  set_state(s == ep_state::unconnected ? ep_state::reserved : ep_state::unconfigured_reserved);
  return success();
}

inline void ep_core::unreserve() noexcept {
  const std::lock_guard lock(mutex_);
  if (state() == ep_state::reserved) set_state(ep_state::unconnected);
  if (state() == ep_state::unconfigured_reserved) set_state(ep_state::unconfigured_unconnected);
}

inline void ep_core::request_gone() noexcept {
  ref<ep_connection> last; // released without the lock
  {
    const std::lock_guard lock(mutex_);
    switch (state()) {
    case ep_state::passive_connection_pending:
      set_state(ep_state::unconnected);
      break;
    case ep_state::unconfigured_passive:
      set_state(ep_state::unconfigured_unconnected);
      break;
    case ep_state::tentative_connection_pending:
    case ep_state::unconfigured_tentative:
      break;
    default:
      return; // ended meanwhile
    }
    last = std::move(connection_);
    if (state() == ep_state::unconnected || state() == ep_state::unconfigured_unconnected) return;
  }
  end(); // it was made for that request
}

inline expected<void> ep_core::check_free() const noexcept {
  switch (state()) {
  case ep_state::reserved:
  case ep_state::unconfigured_reserved:
    return wrong_state("ep.close").hint("a reserved service point has it: close that first");
  case ep_state::passive_connection_pending:
  case ep_state::unconfigured_passive:
  case ep_state::tentative_connection_pending:
  case ep_state::unconfigured_tentative:
    return wrong_state("ep.close").hint("a connection request has it: accept, reject or drop that first");
  default:
    return success();
  }
}

inline result<ibv_qp*> ep_core::make_qp(const char* call, ep_tag tag) noexcept {
  ibv_qp_init_attr init{};
  init.qp_context = reinterpret_cast<void*>(static_cast<std::uintptr_t>(tag));
  init.send_cq = evds_.request->cq();
  init.recv_cq = evds_.recv->cq();
  init.qp_type = ud_ ? IBV_QPT_UD : IBV_QPT_RC;
  init.sq_sig_all = 0;
  init.cap.max_send_wr = attributes_.max_request_dtos + 1;
  init.cap.max_send_sge = attributes_.max_request_iov;
  if (srq_) {
    init.srq = srq_->native();
  } else {
    init.cap.max_recv_wr = attributes_.max_recv_dtos;
    init.cap.max_recv_sge = attributes_.max_recv_iov;
  }
  init.cap.max_inline_data = attributes_.max_inline;
  ibv_qp* qp = ibv_create_qp(pz_->pd(), &init);
  if (!qp) return at(map_errno(errno, return_subtype::resource_tep, true).from("ibv_create_qp", errno), call);
  max_inline_ = init.cap.max_inline_data;
  if (const int err = ud_ ? to_datagram_rts(qp) : to_init(qp)) {
    ibv_destroy_qp(qp);
    return at(map_errno(err, return_subtype::resource_tep).from("ibv_modify_qp", err), call);
  }
  if (srq_ && !srq_->endpoints.insert(qp->qp_num, static_cast<std::uint32_t>(tag))) {
    ibv_destroy_qp(qp);
    return at(error(return_type::insufficient_resources, return_subtype::resource_memory), call);
  }
  return qp;
}

inline void ep_core::leave_srq() noexcept {
  if (!srq_) return;
  // Some devices drop the completions of a queue pair that is destroyed: those that are there are accounted for now.
  if (merged_evd* m = merged(evds_.recv.get()))
    m->forget(tag_, true);
  else
    evds_.recv->drop_shared(qp_->qp_num);
  srq_->endpoints.erase(qp_->qp_num);
}

inline void ep_core::teardown() noexcept {
  ref<ep_connection> last;
  {
    const std::lock_guard lock(mutex_);
    // As an abrupt disconnect, but nobody is left to tell. A request that was not answered stays answerable.
    end_connection(record::kind::disconnected, -1);
    set_state(ep_dead);
    last = std::move(connection_);
  }
  if (ia().reactor.cancel(work_)) release();
  if (qp_) leave_srq();
  if (entries_) {
    const std::lock_guard lock(ia().work_mutex);
    work_arena::forget(entries_, entry_count_);
  }
  // A thread that found this endpoint by a completion is inside one of the evds; wait until it has left.
  for (evd_core* e : {evds_.recv.get(), evds_.request.get()})
    if (merged_evd* m = merged(e)) m->forget(tag_, false);
  part_from_windows();
  if (qp_) {
    if (ud_) requeue_(*ud_, nullptr);
    ibv_destroy_qp(qp_);
    qp_ = nullptr;
  }
  if (datagrams_) datagrams_->end(); // addresses, which no send needs any more
  free_entries();
  detach(evds_);
  for (evd_core* e : {evds_.recv.get(), evds_.request.get(), evds_.connect.get()})
    if (e) e->users.fetch_sub(1, std::memory_order_release);
  if (pz_) pz_->users.fetch_sub(1, std::memory_order_release);
  if (srq_) srq_->users.fetch_sub(1, std::memory_order_release);
  queues fed;          // an event that still stands in one of them keeps this object: no circle
  ref<srq_core> drawn; // nor is the queue kept by it
  const std::lock_guard lock(mutex_);
  std::swap(fed, evds_);
  std::swap(drawn, srq_);
}

// --- errors --------------------------------------------------------------------------------------------------------

[[nodiscard]] constexpr return_subtype subtype_of(ep_state s) noexcept {
  constexpr return_subtype subtypes[] = {
      return_subtype::ep_unconnected,    return_subtype::ep_unconfigured,    return_subtype::ep_reserved,
      return_subtype::ep_unconfreserved, return_subtype::ep_passconnpending, return_subtype::ep_unconfpassive,
      return_subtype::ep_actconnpending, return_subtype::ep_tentconnpending, return_subtype::ep_unconftentative,
      return_subtype::ep_connected,      return_subtype::ep_discpending,     return_subtype::ep_disconnected,
      return_subtype::ep_complpending};
  const auto i = static_cast<std::size_t>(s);
  return i < sizeof subtypes / sizeof *subtypes ? subtypes[i] : return_subtype::none;
}

inline error ep_posting::wrong_state(const char* call) const noexcept {
  const ep_state s = state();
  if (this == &no_ep) return empty_handle(call, return_subtype::handle_ep);
  if (s == ep_dead) return at(error(return_type::invalid_handle, return_subtype::handle_ep), call);
  if (s == ep_datagram)
    return at(error(return_type::invalid_handle, return_subtype::handle_ep), call)
        .hint("a datagram endpoint sends to addresses: post dat::ib::send_to");
  return at(error(return_type::invalid_state, subtype_of(s)), call);
}
inline error ep_posting::queue_full(const char* call, std::uint32_t index) const noexcept {
  return at(error(return_type::insufficient_resources, return_subtype::resource_tep), call)
      .index(index)
      .hint("the request queue is full: take completions from the request evd first, or create the endpoint with more "
            "max_request_dtos");
}
inline error ep_posting::recv_queue_full() const noexcept {
  return at(error(return_type::insufficient_resources, return_subtype::resource_tep), "ep.post(recv)")
      .hint("the receive queue is full: take completions from the receive evd first, or create the endpoint with more "
            "max_recv_dtos");
}
inline error ep_posting::receives_elsewhere() const noexcept {
  return at(error(return_type::invalid_state, subtype_of(state())), "ep.post(recv)")
      .hint("this endpoint takes its receives from an srq: post them there");
}
inline error ep_posting::wrong_zone(const char* call) const noexcept {
  return at(error(return_type::protection_violation), call)
      .hint("every segment must be of an lmr of the endpoint's own pz, and of at most 4 GiB");
}
/// How many of a chain come before `bad`.
template <class Wr>
[[nodiscard]] std::uint32_t count_before(const Wr* wr, const Wr* bad) noexcept {
  std::uint32_t n = 0;
  for (; wr && wr != bad; wr = wr->next) ++n;
  return n;
}
inline expected<void> ep_posting::not_posted(int err, ibv_send_wr* wr, const ibv_send_wr* bad,
                                             work_entry* first) noexcept {
  work_entry* const end = sq_.next();
  sq_.set_next(first);
  if (err == refused) {
    if (!takes_requests()) return wrong_state("ep.post");
    sq_.set_next(end); // it was connected just now
    ibv_send_wr* failed = wr;
    err = ibv_post_send(qp_, wr, &failed);
    if (err == 0) return success();
    bad = failed;
  }
  const std::uint32_t taken = count_before(wr, bad);
  sq_.set_next(work_ring::after(first, taken));
  return at(map_errno(err, return_subtype::resource_tep, true).from("ibv_post_send", err), "ep.post").index(taken);
}
inline expected<void> ep_posting::not_posted(int err, ibv_recv_wr* wr, const ibv_recv_wr* bad,
                                             work_entry* first) noexcept {
  work_entry* const end = rq_.next();
  rq_.set_next(first);
  if (err == refused) {
    const ep_state now = state();
    if (now == ep_dead || is_unconfigured(now)) return wrong_state("ep.post(recv)");
    if (!is_up(now))
      for (work_entry* e = first; e != end; e = e->next)
        e->posted.kind = quiet_if(e->posted.is_quiet(), early_recv_work);
    rq_.set_next(end);
    ibv_recv_wr* failed = wr;
    err = ibv_post_recv(qp_, wr, &failed);
    if (err == 0) {
      if (!is_up(state())) came_late();
      return success();
    }
    bad = failed;
  }
  const std::uint32_t taken = count_before(wr, bad);
  rq_.set_next(work_ring::after(first, taken));
  for (work_entry* e = rq_.next(); e != end; e = e->next) e->posted.kind = rq_.usual();
  return at(map_errno(err, return_subtype::resource_tep, true).from("ibv_post_recv", err), "ep.post(recv)")
      .index(taken);
}

template <std::size_t N>
error ep_posting::refusal(std::uint32_t count, std::uint64_t bytes, bool zone_ok, const send_request<N>& r,
                          std::uint32_t index) const noexcept {
  static constexpr const char* call = "ep.post";
  const auto with = [&](error e, const char* hint) { return at(e, call).index(index).hint(hint); };
  if (r.quiet && !takes_quiet_requests())
    return with({return_type::invalid_parameter, return_subtype::arg5}, quiet_hint);
  if (!zone_ok) return wrong_zone(call).index(index);
  if (count > attributes_.max_request_iov)
    return with({return_type::invalid_parameter, return_subtype::arg2},
                "more segments than the endpoint's max_request_iov");
  if (r.is_atomic() && r.remote.address % word_size != 0)
    return with({return_type::invalid_parameter, return_subtype::arg6},
                "the remote word of an atomic must be at a multiple of 8");
  if (r.is_atomic() && bytes != word_size)
    return with(return_type::length_error, "an atomic needs a local word for the old value: the segment is empty");
  if (r.one_sided() && bytes > r.remote.length)
    return with(return_type::length_error, "more local bytes than the remote segment has");
  if (r.opcode == IBV_WR_SEND_WITH_INV && !invalidates_)
    return with(return_type::model_not_supported, "this adapter has no sends that invalidate");
  if (r.is_atomic() && read_depth_ != 0 && atomic_depth_ == 0)
    return with(return_type::model_not_supported, "this adapter has no atomics");
  if ((r.opcode == IBV_WR_RDMA_READ || r.is_atomic()) && read_depth_ == 0)
    return with({return_type::invalid_parameter, return_subtype::arg1},
                "this connection allows no RDMA reads and atomics: give max_rdma_read_out here and max_rdma_read_in at "
                "the peer");
  if ((r.flags & IBV_SEND_INLINE) != 0 && bytes > max_inline_)
    return with(return_type::length_error, "more bytes than the endpoint's max_inline");
  return with(return_type::length_error, "more bytes than the endpoint's max_message_size");
}

// --- queue pair ----------------------------------------------------------------------------------------------------

inline int ep_core::remote_access() const noexcept {
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  if (read_in_ != 0) {
    access |= IBV_ACCESS_REMOTE_READ;
    if (ia().device().atomic_cap != IBV_ATOMIC_NONE) access |= IBV_ACCESS_REMOTE_ATOMIC;
  }
  return access;
}

inline int ep_core::to_init(ibv_qp* qp) noexcept {
  // In INIT from the start, so that receives can be posted before connecting.
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.pkey_index = 0;
  attr.port_num = ia().where().port;
  access_ = remote_access();
  attr.qp_access_flags = static_cast<unsigned>(access_);
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

/// A datagram endpoint has no peer to wait for.
inline int ep_core::to_datagram_rts(ibv_qp* qp) const noexcept {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = ia().where().port;
  attr.qkey = datagram_qkey;
  if (const int err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY))
    return err;
  attr.qp_state = IBV_QPS_RTR;
  if (const int err = ibv_modify_qp(qp, &attr, IBV_QP_STATE)) return err;
  attr.qp_state = IBV_QPS_RTS;
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

/// Moves every request and receive that is posted to its completion. Also legal, and needed on some devices, when the
/// queue pair is in the error state already: a receive posted since is flushed only by this.
inline void ep_posting::flush_queues() noexcept {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ibv_modify_qp(qp_, &attr, IBV_QP_STATE);
}

inline rts_result ep_core::to_rts(rdma_cm_id* id, std::uint8_t peer_read_in) noexcept {
  rts_result r;
  const auto step = [&](ibv_qp_state to, auto adjust) {
    ibv_qp_attr attr{};
    attr.qp_state = to;
    int mask = 0;
    if (rdma_init_qp_attr(id, &attr, &mask) != 0) {
      r.verb = "rdma_init_qp_attr";
      r.err = errno;
      return false;
    }
    if (!adjust(attr)) return true; // it is so already
    r.verb = "ibv_modify_qp";
    r.err = ibv_modify_qp(qp_, &attr, mask);
    return r.err == 0;
  };
  agree_on_depth(peer_read_in);
  // rdma_cm grants what the connect request offers, not what this endpoint allows; and it knows none of the timers.
  const int access = remote_access();
  // Where there are partitions the connection's may be another one.
  if ((!ia().ethernet() || access_ != access) && !step(IBV_QPS_INIT, [&](ibv_qp_attr& a) {
        a.qp_access_flags = static_cast<unsigned>(access);
        return a.pkey_index != 0 || access_ != access;
      }))
    return r;
  access_ = access;
  if (!step(IBV_QPS_RTR, [&](ibv_qp_attr& a) {
        a.min_rnr_timer = rnr_timer_code(attributes_.min_rnr_timer);
        a.max_dest_rd_atomic = read_in_;
        return true;
      }))
    return r;
  r.spoiled = true;
  step(IBV_QPS_RTS, [&](ibv_qp_attr& a) {
    a.timeout = ack_timeout_code(attributes_.ack_timeout);
    a.retry_cnt = attributes_.retry_count;
    a.rnr_retry = attributes_.rnr_retry_count;
    a.max_rd_atomic = read_depth_;
    return true;
  });
  return r;
}

// --- connecting ----------------------------------------------------------------------------------------------------

inline expected<void> ep_core::check_start(const char* call, timeout limit, std::span<const std::byte> data,
                                           return_subtype limit_arg, return_subtype data_arg) const noexcept {
  if (limit <= timeout::zero())
    return at(error(return_type::invalid_parameter, limit_arg), call).hint("the time-out must be positive");
  if (data.size() > max_private_data)
    return at(error(return_type::invalid_parameter, data_arg), call)
        .hint("at most 56 bytes of private data fit a connect request");
  return success();
}

inline expected<void> ep_core::connect(const ia_address& to, std::uint16_t port, timeout limit,
                                       std::span<const std::byte> data) noexcept {
  static constexpr const char* call = "ep.connect";
  if (auto ok = check_start(call, limit, data, return_subtype::arg4, return_subtype::arg5); !ok) return ok;
  if (auto ok = to.check(address_role::remote); !ok) return at(ok.assume_error(), call);
  return start(std::unique_lock(mutex_), call, to, port, limit, data);
}

inline expected<void> ep_core::common_connect(const ia_address& to, timeout limit,
                                              std::span<const std::byte> data) noexcept {
  static constexpr const char* call = "ep.common_connect";
  const auto invalid = [&](const char* hint) {
    return at(error(return_type::invalid_parameter, return_subtype::arg2), call).hint(hint);
  };
  if (auto ok = check_start(call, limit, data, return_subtype::arg3, return_subtype::arg4); !ok) return ok;
  if (!to.check(address_role::remote)) return invalid("nobody can be reached at such an address");
  if (to.port() == 0) return invalid("the address names no port: ia_address::with_port");
  std::unique_lock lock(mutex_);
  if (state() != ep_state::unconnected) return wrong_state(call);
  if (attributes_.comm == communicator{})
    return at(error(return_type::invalid_state, return_subtype::ep_notready), call)
        .hint("the endpoint has no communicator: give ep_attributes::comm, or set it by modify");
  if (!fits(attributes_.comm, to)) return invalid("the address is not of the domain of the endpoint's communicator");
  return start(std::move(lock), call, to, to.port(), limit, data);
}

inline expected<void> ep_core::dup_connect(ep_core& original, timeout limit, std::span<const std::byte> data) noexcept {
  static constexpr const char* call = "ep.dup_connect";
  if (auto ok = check_start(call, limit, data, return_subtype::arg3, return_subtype::arg4); !ok) return ok;
  if (&original.ia() != &ia())
    return at(error(return_type::invalid_parameter, return_subtype::arg2), call)
        .hint("the two endpoints are of different ias");
  ia_address to;
  {
    const std::lock_guard lock(original.mutex_);
    if (original.state() != ep_state::connected) return original.wrong_state(call);
    if (original.connection_->passive())
      return original.at(error(return_type::invalid_state, return_subtype::ep_connected), call)
          .hint("that endpoint was accepted: its peer asked for the connection and listens nowhere");
    to = original.connection_->remote_address();
  }
  return start(std::unique_lock(mutex_), call, to, to.port(), limit, data);
}

inline expected<void> ep_core::start(std::unique_lock<std::mutex> lock, const char* call, const ia_address& to,
                                     std::uint16_t port, timeout limit, std::span<const std::byte> data) noexcept {
  const bool mine = !own_.is_any() || own_.port() != 0;
  const ia_address* own = mine ? &own_ : ia().address(to.family());
  if (!own || own->family() != to.family())
    return at(error(return_type::invalid_address, return_subtype::address_unreachable), call)
        .hint("the adapter has no address of the same family as the remote address");
  if (state() != ep_state::unconnected) return wrong_state(call);
  ref<ep_connection> c(new (std::nothrow) ep_connection(ref(&ia()), ep_connection::phase::resolving), adopt);
  if (!c) return at(error(return_type::insufficient_resources, return_subtype::resource_memory), call);
  const auto failed = [&](const char* verb, int err) -> expected<void> {
    connection_ = {};
    set_state(ep_state::unconnected);
    c->detach();
    c->end();
    error e = map_errno(err, return_subtype::resource_tep);
    if (mine && err == EADDRNOTAVAIL) e = error(return_type::invalid_address, return_subtype::address_unreachable);
    if (mine && err == EADDRINUSE) e = error(return_type::invalid_parameter);
    // The route leaves by an interface without RDMA device.
    if (err == ENODEV && std::string_view(verb) == "rdma_resolve_addr")
      e = error(return_type::invalid_address, return_subtype::address_unreachable);
    return at(e.from(verb, err), call);
  };
  c->out_size_ = static_cast<std::uint8_t>(data.size());
  copy_bytes(data, c->out_.data());
  if (const int err = c->create_id()) return failed("rdma_create_id", err);
  // Binding picks this adapter, whatever the routing table prefers, and the local port.
  const ia_address from = mine ? *own : own->with_port(0);
  if (rdma_bind_addr(c->id(), const_cast<sockaddr*>(from.native_handle())) != 0) return failed("rdma_bind_addr", errno);
  c->keep_addresses();
  const ia_address remote = to.with_port(port);
  c->remote_ = remote;
  c->attach(this);
  connection_ = c;
  set_state(ep_state::active_connection_pending);
  c->deadline_ = deadline::in(limit);
  const int ms = c->resolve_ms();
  c->arm_timer();
  lock.unlock(); // the answer may be here before the call is back, and whoever takes it needs the lock
  const int err = c->with_id([&](rdma_cm_id* id) noexcept {
    return rdma_resolve_addr(id, nullptr, const_cast<sockaddr*>(remote.native_handle()), ms) != 0 ? errno : 0;
  });
  if (err == 0) return success();
  lock.lock();
  if (connection_.get() != c.get() || state() != ep_state::active_connection_pending)
    return success(); // an event tells, or a reset
  return failed("rdma_resolve_addr", err);
}

inline expected<void> ep_core::accept(ep_connection& request, std::span<const std::byte> data) noexcept {
  static constexpr const char* call = "cr.accept";
  if (data.size() > max_private_data)
    return at(error(return_type::invalid_parameter, return_subtype::arg4), call)
        .hint("at most 56 bytes of private data");
  if (&request.ia() != &ia())
    return at(error(return_type::invalid_handle, return_subtype::handle_ep), call)
        .hint("the endpoint belongs to another ia than the request");

  std::unique_lock lock(mutex_);
  const ep_state before = state();
  if (request.brought()
          ? before != ep_state::passive_connection_pending && before != ep_state::tentative_connection_pending
          : before != ep_state::unconnected)
    return wrong_state(call);
  const auto unlike = [&](const char* hint) {
    return at(error(return_type::invalid_parameter, return_subtype::arg2), call).hint(hint);
  };
  const ia_address& here = request.local_address();
  if ((!own_.is_any() && own_.with_port(0) != here.with_port(0)) || (own_.port() != 0 && own_.port() != here.port()))
    return unlike("the request came to another address than the endpoint's own");
  if (attributes_.comm != communicator{} && !fits(attributes_.comm, here))
    return unlike("the request is not of the domain of the endpoint's communicator");
  rdma_cm_id* id = request.id();
  if (!id) return at(error(return_type::invalid_handle, return_subtype::handle_cr), call);
  rts_result moved = to_rts(id, request.peer_reads_);
  // Parameters were checked, so EINVAL from the id means that it is dead: the peer gave up. That is an outcome of the
  // connection, not a fault of this call (uDAPL 2.0 §6.4.5.2). Other failures before RTR leave everything as it was.
  const bool dead_id = moved.err == EINVAL && std::string_view(moved.verb) == "rdma_init_qp_attr";
  if (!moved && !moved.spoiled && !dead_id)
    return at(map_errno(moved.err, return_subtype::resource_tep).from(moved.verb, moved.err), call);
  connection_ = ref(&request);
  request.brings({});
  request.attach(this);
  request.phase_ = ep_connection::phase::completing;
  set_state(ep_state::completion_pending);
  if (moved) {
    rdma_conn_param param{};
    param.private_data = data.data();
    param.private_data_len = static_cast<std::uint8_t>(data.size());
    param.responder_resources = smaller(read_in_, request.peer_wants_);
    param.initiator_depth = read_depth_;
    param.flow_control = 1;
    param.rnr_retry_count = attributes_.rnr_retry_count;
    param.qp_num = qp_->qp_num;
    param.srq = shares_ ? 1 : 0;
    lock.unlock(); // the peer may have its answer, and this side the last message, before the call is back
    const int err = request.with_id([&](rdma_cm_id* i) noexcept { return rdma_accept(i, &param) != 0 ? errno : 0; });
    if (err == 0) return success();
    lock.lock();
    moved.err = err;
    if (connection_.get() != &request || state() != ep_state::completion_pending) { // called off meanwhile
      request.drop_id();
      return success();
    }
  }
  end_connection(record::kind::accept_completion_error, moved.err);
  return success();
}

inline expected<void> ep_core::disconnect(close_flags how) noexcept {
  static constexpr const char* call = "ep.disconnect";
  if (how != close_flags::abrupt && how != close_flags::graceful)
    return at(error(return_type::invalid_parameter, return_subtype::arg2), call)
        .hint("close_flags are abrupt and graceful");
  const std::lock_guard lock(mutex_);
  switch (state()) {
  case ep_state::disconnected:
    return success();
  case ep_state::disconnect_pending:
    if (how == close_flags::graceful) return success();
    break;
  case ep_state::connected:
    if (how == close_flags::graceful && sq_.used() != 0) return start_graceful();
    break;
  case ep_state::active_connection_pending:
  case ep_state::completion_pending:
    break;
  default:
    return wrong_state(call);
  }
  end_connection(record::kind::disconnected, 0);
  return success();
}

inline expected<void> ep_core::start_graceful() noexcept {
  // A last request that moves nothing: a queue completes in order, so its completion says that all before it, also the
  // suppressed ones, are done. A write of length 0 looks at no remote memory.
  ibv_send_wr wr{};
  wr.wr_id = tag_; // an entry outside of the ring
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  set_state(ep_state::disconnect_pending);
  ibv_send_wr* bad;
  if (const int err = ibv_post_send(qp_, &wr, &bad)) {
    set_state(ep_state::connected);
    return at(map_errno(err, return_subtype::resource_tep, true).from("ibv_post_send", err), "ep.disconnect");
  }
  if (merged(evds_.request.get())) defer(deferred_tick, tag_);
  return success();
}

inline expected<void> ep_core::reset() noexcept {
  static constexpr const char* call = "ep.reset";
  ref<ep_connection> old; // released without the lock
  const std::lock_guard lock(mutex_);
  if (state() == ep_state::unconnected || state() == ep_datagram) return success();
  if (state() != ep_state::disconnected) return wrong_state(call);
  leave_srq();
  // A fresh QP rather than the old one through RESET: its number is new, so neither late packets nor the peer's
  // connection manager can take the new connection for the old one.
  ep_tag fresh;
  {
    const std::lock_guard work(ia().work_mutex);
    fresh = ia().work.renew(entries_, entry_count_);
  }
  for (evd_core* e : {evds_.recv.get(), evds_.request.get()})
    if (merged_evd* m = merged(e)) m->forget(tag_, false);
  held_.store(0, std::memory_order_relaxed);
  peak_.store(0, std::memory_order_relaxed);
  deferred_.store(0, std::memory_order_relaxed);
  if (ia().reactor.cancel(work_)) release();
  tag_ = fresh;
  part_from_windows();
  auto qp = make_qp(call, fresh);
  if (!qp) return qp.assume_error(); // still disconnected; the old completions are gone, as reset may do
  if (ud_) requeue_(*ud_, qp.assume_value());
  ibv_destroy_qp(qp_);
  qp_ = qp.assume_value();
  number_.store(qp_->qp_num, std::memory_order_relaxed);
  sq_.clear();
  rq_.clear();
  if (!ud_) static_cast<merged_evd*>(evds_.connect.get())->expect_announcement(*this);
  old = std::move(connection_);
  set_state(ud_ ? ep_datagram : ep_state::unconnected);
  return success();
}

// --- events --------------------------------------------------------------------------------------------------------

inline void ep_core::announce_event(record::kind what, int reason) noexcept {
  if (what == record::kind::established) {
    guard_queues(true);
    if (held_.load(std::memory_order_relaxed) > alarm_.load(std::memory_order_relaxed))
      defer(deferred_watermark, tag_); // data was faster
  }
  static_cast<merged_evd*>(evds_.connect.get())
      ->push_connection(record(what, ref<counted>(this), ref<connection_base>(connection_.get()), reason), *this);
}

/// The one way out of every connection state: the state first, then the flush, then the peer, then the event, so that
/// whoever sees the event sees the state, and no success can follow it.
inline void ep_core::end_connection(record::kind what, int reason) noexcept {
  const ep_state was = state();
  if (was != ep_state::active_connection_pending && was != ep_state::completion_pending && was != ep_state::connected &&
      was != ep_state::disconnect_pending)
    return;
  set_state(ep_state::disconnected);
  if (was == ep_state::connected || was == ep_state::disconnect_pending) guard_queues(false);
  ep_connection& c = *connection_;
  const auto phase = c.phase_.exchange(ep_connection::phase::over);
  c.detach();
  c.cancel_timer();
  flush_queues();
  // The answer of the peer to a disconnect is awaited by the connection alone; in the other phases nothing is out that
  // the end of the id does not undo. But for an accept that is called off: the reject that the end of the id sends may
  // overtake the accept and be ignored, and the peer would take the connection for made. So it waits for the peer's
  // last handshake message, and disconnects then.
  const bool called_off = phase == ep_connection::phase::completing && what == record::kind::disconnected;
  // The reactor may be ending the id: with the endpoint detached, it asks nobody.
  const auto farewell = [](rdma_cm_id* i) noexcept { return rdma_disconnect(i); };
  if (!called_off && (phase != ep_connection::phase::established || c.with_id(farewell) != 0)) c.destroy_id();
  if (reason >= 0) announce_event(what, reason);
}

inline void ep_core::broke(ep_tag whose) noexcept {
  const std::lock_guard lock(mutex_);
  if (tag_ == whose) break_connection();
}

inline void ep_core::broke() noexcept {
  const std::lock_guard lock(mutex_);
  break_connection();
}

inline void ep_core::broke_with(const evd_core& e) noexcept {
  const std::lock_guard lock(mutex_);
  if (completes_on(e)) break_connection();
}

inline void ep_core::look_for_break(const evd_core& e) noexcept {
  const std::lock_guard lock(mutex_);
  if (!completes_on(e) || (state() != ep_state::connected && state() != ep_state::disconnect_pending)) return;
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  if (ibv_query_qp(qp_, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_ERR) break_connection();
}

inline void ep_core::guard_queues(bool yes) noexcept {
  for (evd_core* e : {evds_.recv.get(), evds_.request.get()}) yes ? e->guard() : e->unguard();
}

inline void ep_core::end_datagrams(record::kind what) noexcept {
  if (state() != ep_datagram) return;
  set_state(ep_state::disconnected);
  flush_queues();
  announce_event(what);
}

inline void ep_core::break_connection() noexcept {
  if (ud_) return end_datagrams(record::kind::broken);
  switch (state()) {
  case ep_state::connected:
  case ep_state::disconnect_pending:
    end_connection(record::kind::broken, 0);
    break;
  case ep_state::active_connection_pending:
    end_connection(record::kind::non_peer_rejected, 0);
    break;
  case ep_state::completion_pending:
    end_connection(record::kind::accept_completion_error, 0);
    break;
  default:
    break;
  }
}

inline void ep_core::overdrawn(std::uint32_t n) noexcept {
  if (n > peak_.load(std::memory_order_relaxed)) peak_.store(n, std::memory_order_relaxed);
  defer(deferred_watermark, tag_);
}

inline void ep_core::arm_alarm() noexcept {
  alarm_.store(smaller(soft_armed_ ? soft_ : no_watermark, hard_), std::memory_order_relaxed);
}

inline void ep_core::look_at_watermarks() noexcept {
  const std::uint32_t n = larger(held_.load(std::memory_order_relaxed), peak_.exchange(0, std::memory_order_relaxed));
  if (n > hard_ && (state() == ep_state::connected || state() == ep_state::disconnect_pending)) {
    end_connection(record::kind::broken, 0);
    if (soft_ >= hard_) return; // was reached first
  }
  if (!soft_armed_ || n <= soft_) return;
  soft_armed_ = false;
  arm_alarm();
  ia().raise(async_kind::ep_soft_high_watermark, {}, ref<counted>(this));
}

inline void ep_core::marker_taken(ep_tag whose, ibv_wc_status status) noexcept {
  sq_.retire_all(); // suppressed requests, of which no completion tells
  if (status == IBV_WC_SUCCESS)
    drained(whose);
  else
    broke(whose); // all requests before it were fine, or suppressed: nothing else tells
}

inline void ep_core::arrived() noexcept {
  if (state() != ep_state::completion_pending) return;
  // The peer has sent, so it has the accept: data may be faster than the last handshake message.
  const std::lock_guard lock(mutex_);
  if (state() != ep_state::completion_pending) return;
  // The kernel is not told (rdma_notify): when a disconnect follows at once it forgets to stop repeating the accept,
  // and the end of the id then blocks for a minute. It waits for the message; a disconnect meanwhile goes out after it,
  // see lingering_event.
  connection_->phase_ = ep_connection::phase::established;
  set_state(ep_state::connected);
  announce_event(record::kind::established);
}

inline void ep_core::drained(ep_tag whose) noexcept {
  const std::lock_guard lock(mutex_);
  if (tag_ == whose && state() == ep_state::disconnect_pending) end_connection(record::kind::disconnected, 0);
}

inline void ep_core::defer(unsigned what, ep_tag whose) noexcept {
  deferred_for_.store(whose, std::memory_order_relaxed);
  if (deferred_.fetch_or(what, std::memory_order_acq_rel) != 0) return; // on its way already
  add_ref();
  ia().reactor.arm(work_, what == deferred_tick ? clock::now() + std::chrono::milliseconds(1) : reactor::at_once);
}

inline void ep_core::run_deferred() noexcept {
  unsigned what;
  ep_tag whose;
  {
    const std::lock_guard lock(mutex_); // a reset clears both in one step
    what = deferred_.exchange(0, std::memory_order_acq_rel);
    whose = deferred_for_.load(std::memory_order_relaxed);
  }
  if ((what & deferred_break) != 0) broke(whose);
  if ((what & deferred_marker) != 0) drained(whose);
  if ((what & deferred_arrival) != 0) arrived();
  if ((what & deferred_watermark) != 0) {
    const std::lock_guard lock(mutex_);
    if (tag_ == whose) look_at_watermarks();
  }
  if (state() != ep_state::disconnect_pending) return;
  // Nobody need be looking at the completions while a graceful disconnect waits for them: look here, now and then.
  if (merged_evd* m = merged(evds_.request.get())) {
    m->drain();
    defer(deferred_tick, whose);
  }
}

} // namespace dat::inline v0::detail
