// Definitions of ep_core: creation, the queue pair, and the end of a life.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/inside_dat.hpp>
#include <dat/detail/endpoint/ep_core.hpp>
#include <dat/detail/text/errno.hpp>
#include <dat/detail/verbs/ib_time.hpp>

#include <bit>
#include <ctime>

namespace dat { inline namespace v0 { namespace detail {

inline constexpr const char* other_zone_hint =
    "The endpoint and its srq must be of one zone: adapters differ in which of the two zones they use for receives.";

DAT_DECL ep_core::ep_core(ref<ia_core> ia, ref<pz_core> pz, const queues& evds, ref<srq_core> srq) noexcept
    : ia_child(std::move(ia), table), pz_(std::move(pz)), evds_(evds), srq_(std::move(srq)) {
  set_object(*this, [](completion_owner& ep, std::uint32_t what, ep_generation whose) noexcept {
    endpoint_of(ep).defer_to_reactor(what, whose);
  });
  connect_evd_ = evds_.connect.get();
  shares_ = static_cast<bool>(srq_);
  if (srq_) srq_->users.fetch_add(1, std::memory_order_relaxed);
  if (pz_) pz_->users.fetch_add(1, std::memory_order_relaxed);
  for (evd_core* e : {evds_.recv.get(), evds_.request.get(), evds_.connect.get()})
    if (e) e->users.fetch_add(1, std::memory_order_relaxed);
  work_.self = this;
  work_.run = [](task& t) noexcept {
    const ref<ep_core> self(static_cast<work_task&>(t).self, adopt); // the task was armed with a reference
    self->run_deferred();
  };
  test_.self = this;
  test_.run = [](task& t) noexcept {
    const ref<ep_core> self(static_cast<work_task&>(t).self, adopt); // as above
    self->test_peer();
  };
}

// --- attributes and evds ---------------------------------------------------------------------------------------------

DAT_DECL expected<void> ep_core::check_evds(const ia_core& ia, const queues& evds) noexcept {
  const std::pair<const ref<evd_core>&, return_subtype> attached[] = {
      {evds.recv, return_subtype::handle_evd_recv},
      {evds.request, return_subtype::handle_evd_request},
      {evds.connect, return_subtype::handle_evd_conn}};
  for (const auto& [evd, which] : attached) {
    if (!evd) continue;
    // Connection events need nothing of the device: another ia of the adapter may have their evd.
    const bool fits = &evd == &evds.connect ? evd->ia().same_adapter(ia) : &evd->ia() == &ia;
    if (evd->dead() || !fits)
      return error(return_type::invalid_handle, which).hint("The evd is closed or belongs to another ia.");
  }
  return success();
}

DAT_DECL expected<void> ep_core::check_attributes(const ia_core& ia, const ep_attributes& a, bool shared) noexcept {
  const auto invalid = [](const char* hint) {
    return error(return_type::invalid_parameter, return_subtype::arg7).hint(hint);
  };
  const ibv_device_attr& device = ia.device();
  const auto most = [](int limit, std::uint32_t cap) { return min(static_cast<std::uint32_t>(max(limit, 0)), cap); };
  // All operations of a queue may complete in one evd. Receives of a shared queue are counted elsewhere.
  const std::uint32_t max_wr = most(min(device.max_qp_wr, device.max_cqe), max_ring);
  constexpr auto year = std::chrono::hours(8760); // later times may not fit the clock
  if (a.keep_alive.count() < 0 || a.keep_alive > year)
    return invalid("keep_alive must be within 0..8760 h, where 0 disables the test of the peer.");
  // Some requests of the send queue are the library's own, so max_wr itself is too many.
  if (a.max_request_dtos >= max_wr || request_places(a) > max_wr)
    return invalid("max_request_dtos must be within 0..ia_attributes::max_dto_per_ep, and one less with keep_alive.");
  if (!shared && a.max_recv_dtos >= max_wr)
    return invalid("max_recv_dtos must be within 0..ia_attributes::max_dto_per_ep.");
  const std::uint32_t max_sge = most(device.max_sge, 255);
  if (a.max_request_iov == 0 || a.max_request_iov > max_sge)
    return invalid("max_request_iov must be within 1..ia_attributes::max_iov_segments_per_dto.");
  if (!shared && (a.max_recv_iov == 0 || a.max_recv_iov > max_sge))
    return invalid("max_recv_iov must be within 1..ia_attributes::max_iov_segments_per_dto.");
  if (a.retry_count > 6) return invalid("retry_count must be within 0..6: some adapters retry indefinitely with 7.");
  if (a.rnr_retry_count > 7) return invalid("rnr_retry_count must be within 0..7, where 7 means indefinitely.");
  if (a.min_rnr_timer.count() < 0 || a.min_rnr_timer.count() > 655'360)
    return invalid("min_rnr_timer must be within 0..655.36 ms.");
  if (a.ack_timeout.count() <= 0 || a.ack_timeout > longest_ack_timeout)
    return invalid("ack_timeout must be within 1 us..8796 s. detect_dead_peer_within takes a positive limit.");
  if (a.accept_timeout.count() <= 0 || a.accept_timeout > year)
    return invalid("accept_timeout must be within 1 ms..8760 h.");
  if (a.max_message_size.value_or(0) > ia.max_message())
    return invalid("max_message_size must be at most ia_attributes::max_message_size, which is its default.");
  if (a.max_rdma_read_out.value_or(0) > device.max_qp_init_rd_atom)
    return invalid("max_rdma_read_out must be within 0..ia_attributes::max_rdma_read_per_ep_out.");
  if (a.max_rdma_read_in.value_or(0) > device.max_qp_rd_atom)
    return invalid("max_rdma_read_in must be within 0..ia_attributes::max_rdma_read_per_ep_in.");
  if (a.request_completion != completion_notification::by_default &&
      a.request_completion != completion_notification::selective &&
      a.request_completion != completion_notification::evd_threshold)
    return invalid("request_completion must be evd_threshold or selective.");
  if (a.recv_completion != completion_notification::by_default &&
      a.recv_completion != completion_notification::selective &&
      a.recv_completion != completion_notification::evd_threshold &&
      a.recv_completion != completion_notification::solicited_wait)
    return invalid("recv_completion must be evd_threshold, selective or solicited_wait.");
  if (a.recv_completion == completion_notification::solicited_wait && ia.siw())
    return error(return_type::model_not_supported)
        .hint("Soft-iWARP never notifies of a solicited message: recv_completion must be evd_threshold or selective.");
  if (!is_watermark(a.soft_high_watermark) || !is_watermark(a.hard_high_watermark))
    return invalid("soft_high_watermark and hard_high_watermark must be below 2^31, or no_watermark.");
  if (a.comm != communicator{} && !is_supported(a.comm))
    return invalid("A communicator is {AF_INET or AF_INET6, SOCK_STREAM, 0 or IPPROTO_TCP}.");
  return check_qos(a.qos, ia.iwarp(), return_subtype::arg7);
}

DAT_DECL void ep_core::set_attributes(const ep_attributes& a) noexcept {
  const ibv_device_attr& device = ia().device();
  const auto reads = [](int limit) { return static_cast<std::uint8_t>(min(limit, 16)); };
  attributes_ = a;
  // Adapters round up to a power of two. dat rounds down, so that the endpoint runs no more reads than requested.
  initiator_depth_ = std::bit_floor(a.max_rdma_read_out.value_or(reads(device.max_qp_init_rd_atom)));
  responder_resources_ = a.max_rdma_read_in.value_or(reads(device.max_qp_rd_atom));
  constexpr unsigned invalidating =
      IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  invalidates_ = (device.device_cap_flags & invalidating) != 0;
  has_immediate_ = !ia().iwarp();
  has_atomics_ = device.atomic_cap != IBV_ATOMIC_NONE;
  max_message_ = a.max_message_size.value_or(ia().max_message());
  max_inline_message_ = min(max_message_, max_inline_);
  // A datagram has at most the MTU, and its receive has room for a header, too.
  max_receive_ = a.max_message_size && !datagrams_ ? max_message_ : unlimited;
  max_read_iov_ = ia().iwarp()            ? 1
                  : device.max_sge_rd > 0 ? min(a.max_request_iov, static_cast<std::uint32_t>(device.max_sge_rd))
                                          : a.max_request_iov;
  own_zone_ = pz_ ? zone_tag(pz_.get()) : zone_tag::none();
}

static constexpr const char* shared_hint =
    "The receives of a shared queue need an evd that can set completions aside. Create the recv evd with "
    "dat::stream::dto | dat::stream::software.";

DAT_DECL expected<void> ep_core::add_sink(const char* call, const ref<ia_core>& ia, queues& evds) noexcept {
  if (!evds.no_recv && !evds.no_request && !evds.no_connect) return success();
  auto sink = merged_evd::sink_of(ia);
  if (!sink) return sink.assume_error().at(call, object_kind::ep);
  if (evds.no_recv) evds.recv = sink.assume_value();
  if (evds.no_request) evds.request = sink.assume_value();
  if (evds.no_connect) evds.connect = sink.assume_value();
  return success();
}

DAT_DECL void ep_core::choose_completions(const queues& evds, bool shared, ep_attributes& a) noexcept {
  using mode = completion_notification;
  auto& recv = a.recv_completion;
  auto& request = a.request_completion;
  // Both queues on one evd need the same mode.
  const bool one = evds.recv && evds.recv.get() == evds.request.get();
  // Without an evd, the choice waits for the evd.
  if (recv == mode::by_default && evds.recv)
    recv = one && request != mode::by_default ? request : evds.recv->usual_mode(shared);
  if (request == mode::by_default && evds.request)
    request = one && recv == mode::selective ? recv : evds.request->usual_mode(false);
}

DAT_DECL expected<void> ep_core::attach(const queues& evds, const places& n, const ep_attributes& a,
                                        const srq_core* srq, const queues& leaving, const places& left) noexcept {
  if (srq && evds.recv && !merged(evds.recv.get())) return error(return_type::model_not_supported).hint(shared_hint);
  const auto leaves = [&](const evd_core& e) {
    const bool recv = leaving.recv.get() == &e;
    const bool request = leaving.request.get() == &e;
    return leaving_feeds{(recv ? 1u : 0u) + (request ? 1u : 0u),
                         (recv && !srq ? left.recv : 0) + (request ? left.request : 0)};
  };
  const evd_feed receives{a.recv_completion, n.recv, false, srq};
  const evd_feed requests{a.request_completion, n.request, true, nullptr};
  const bool one = evds.recv && evds.recv.get() == evds.request.get();
  if (evds.recv)
    if (auto ok = evds.recv->attach(receives, leaves(*evds.recv), one ? n.request : 0); !ok) return ok;
  expected<void> ok = success();
  if (evds.recv && srq) ok = evds.recv->grow_feed(srq, srq->most_completions()); // it may have grown meanwhile
  if (ok && evds.request) {
    const bool agreed = one && a.recv_completion == a.request_completion;
    leaving_feeds with = leaves(*evds.request);
    if (agreed) ++with.count;
    ok = evds.request->attach(requests, with);
  }
  if (ok && evds.connect) {
    ok = static_cast<merged_evd*>(evds.connect.get())->add_endpoint();
    if (!ok && evds.request) evds.request->detach(requests);
  }
  if (!ok && evds.recv) evds.recv->detach(receives);
  return ok;
}

DAT_DECL void ep_core::detach(const queues& evds, const places& n, const srq_core* srq, const ep_core* whose) noexcept {
  if (evds.recv) evds.recv->detach({.entries = n.recv, .shared = srq});
  if (evds.request) evds.request->detach({.entries = n.request, .requests = true});
  if (evds.connect) static_cast<merged_evd*>(evds.connect.get())->remove_endpoint(whose);
}

// --- creation --------------------------------------------------------------------------------------------------------

DAT_DECL result<ref<ep_core>> ep_core::create(const char* call, const ref<ia_core>& ia, const ref<pz_core>& pz,
                                              const queues& evds, const ep_attributes& given, const ref<srq_core>& srq,
                                              const datagram_part* datagrams) noexcept {
  const inside_dat section;
  const auto at = [&](error e) { return e.at(call, object_kind::ep); };
  if (pz && pz->dead()) return at(error(return_type::invalid_handle, return_subtype::handle_pz));
  if (ia->closed()) return at(error(return_type::invalid_handle, return_subtype::handle_ia));
  if (datagrams)
    if (auto ok = ia->check_infiniband(); !ok) return at(ok.assume_error());
  if (auto ok = check_evds(*ia, evds); !ok) return at(ok.assume_error());
  if (auto ok = check_attributes(*ia, given, static_cast<bool>(srq)); !ok) return at(ok.assume_error());
  if (srq && (srq->dead() || &srq->ia() != ia.get()))
    return at(error(return_type::invalid_handle, return_subtype::handle_srq))
        .hint("The srq is closed or belongs to another ia.");
  if (srq && pz && srq->pz().get() != pz.get())
    return at(error(return_type::invalid_parameter, return_subtype::arg6)).hint(other_zone_hint);
  queues fed = evds;
  if (auto ok = add_sink(call, ia, fed); !ok) return ok.assume_error();
  ep_attributes a = given;
  choose_completions(fed, static_cast<bool>(srq), a);
  const places n = places_of(srq.get(), a);
  if (auto ok = attach(fed, n, a, srq.get(), {}, {}); !ok) return at(ok.assume_error());
  ref<ep_core> ep(new (std::nothrow) ep_core(ia, pz, fed, srq), adopt);
  if (!ep) {
    detach(fed, n, srq.get(), nullptr);
    return at(error(return_type::insufficient_resources, return_subtype::resource_memory));
  }
  ep->attached_ = n;
  if (auto ok = ep->take_place(return_subtype::resource_tep); !ok) return at(ok.assume_error());
  if (datagrams) {
    ep->datagrams_ = datagrams->core;
    *datagrams->endpoint = ep.get();
    ep->counter_ = datagrams->sent;
    ep->requeue_ = datagrams->requeue;
    ep->announced_ = true; // no connection event has to come before its completions
  }
  ep->set_attributes(a);
  if (!datagrams) ep->extended_ops_ = ia->extended_ops();
  if (datagrams && !a.max_message_size) ep->max_message_ = datagrams->mtu;
  ep->watermarks_.set(a.soft_high_watermark, a.hard_high_watermark);
  ep->set_state(ep_state::unconfigured_unconnected);
  if (ep->complete() || ep->has_kept_receives())
    if (auto ok = ep->equip(call); !ok) return ok.assume_error();
  if (ep->complete()) ep->set_state(datagrams ? ep_datagram : ep_state::unconnected);
  ep->publish();
  return ep;
}

DAT_DECL void ep_core::use_depth(std::uint8_t initiator_depth) noexcept {
  max_read_ = initiator_depth != 0 ? max_message_ : 0;
  atomic_size_ = max_read_ >= word_size && has_atomics_ ? word_size : 0;
}

// --- queue pair ------------------------------------------------------------------------------------------------------

DAT_DECL int ep_core::remote_access() const noexcept {
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  if (responder_resources_ != 0) {
    access |= IBV_ACCESS_REMOTE_READ;
    if (ia().device().atomic_cap != IBV_ATOMIC_NONE) access |= IBV_ACCESS_REMOTE_ATOMIC;
    access |= ia().flush_access();
  }
  return access;
}

DAT_DECL qp_settings ep_core::settings() const noexcept {
  qp_settings s;
  s.port = ia().where().port;
  s.pkey_index = ia().pkey_index();
  s.ethernet = ia().ethernet();
  s.access = remote_access();
  s.initiator_depth = initiator_depth_;
  s.responder_resources = responder_resources_;
  s.retry_count = attributes_.retry_count;
  s.rnr_retry_count = attributes_.rnr_retry_count;
  s.ack_timeout = attributes_.ack_timeout;
  s.min_rnr_timer = attributes_.min_rnr_timer;
  s.qos = quality_of_service();
  return s;
}

DAT_DECL void ep_core::await_last_wqe() noexcept {
  // A message that has arrived in part holds an entry of the shared queue. The device completes it some time after the
  // queue pair was moved to the error state, and drops the completion if the queue pair is destroyed before.
  // IBV_EVENT_QP_LAST_WQE_REACHED reports that. With devices that lack that event, such as Soft-RoCE, the call takes
  // its whole time limit.
  constexpr auto limit = std::chrono::milliseconds(20);
  clock::time_point until;
  {
    const std::lock_guard lock(mutex_);
    if (!srq_ || !qp_ || !was_up_ || ia().closed()) return;
    until = flushed_at_ + limit;
  }
  while (!last_wqe_seen_.load(std::memory_order_acquire) && clock::now() < until) {
    ia().progress(0);
    const timespec pause{0, 100'000};
    ::nanosleep(&pause, nullptr);
  }
}

DAT_DECL void ep_core::leave_srq() noexcept {
  if (!srq_) return;
  merged(evds_.recv.get())->forget(tag(), true);
  srq_->endpoints.erase(qp_->qp_num);
}

DAT_DECL expected<void> ep_core::reset() noexcept {
  static constexpr const char* call = "ep.reset";
  const auto done = [](ep_state s) { return s == ep_state::unconnected || s == ep_datagram; };
  if (done(state())) return success();
  if (state() != ep_state::disconnected) return wrong_state(call);
  await_last_wqe();
  ref<connection_state> old; // released without the lock
  const std::lock_guard lock(mutex_);
  if (done(state())) return success();
  if (state() != ep_state::disconnected) return wrong_state(call);
  ep_life* const fresh = make_life();
  if (!fresh) return at(error(return_type::insufficient_resources, return_subtype::resource_memory), call);
  // Creates a new queue pair, because it has a new number. So neither late packets nor the peer's connection manager
  // can mistake the new connection for the old one.
  kept_receives* const kept = has_kept_receives() ? make_kept() : nullptr;
  if (has_kept_receives() && !kept) {
    fresh->end(ia());
    return at(error(return_type::insufficient_resources, return_subtype::resource_memory), call);
  }
  auto qp = make_qp(call, fresh->generation());
  if (!qp) {
    kept_receives::destroy(kept);
    fresh->end(ia());
    return qp.assume_error(); // still disconnected
  }
  leave_srq();
  // Takes the completions of the old life from the device now. Some devices keep them, and repeated resets would fill
  // the queue.
  for (evd_core* e : {evds_.recv.get(), evds_.request.get()})
    if (merged_evd* m = merged(e)) m->forget(tag(), true);
  life_->forget(ia());
  // A thread that found an entry before may be inside one of the evds: wait until it has left.
  for (evd_core* e : {evds_.recv.get(), evds_.request.get()})
    if (merged_evd* m = merged(e)) m->forget(tag(), false);
  part_from_windows();
  watermarks_.clear();
  if (ia().reactor.cancel(work_)) release();
  if (datagrams_) requeue_(*datagrams_, qp.assume_value());
  ibv_destroy_qp(use_life(*fresh, qp.assume_value()));
  kept_.put(kept);
  if (!datagrams_) static_cast<merged_evd*>(evds_.connect.get())->expect_announcement(*this);
  old = std::move(connection_);
  set_state(datagrams_ ? ep_datagram : ep_state::unconnected);
  return success();
}

DAT_DECL void ep_core::teardown() noexcept {
  ref<connection_state> last;
  {
    const std::lock_guard lock(mutex_);
    // Ends the connection like an abrupt disconnect, but without an event. A request that was not answered can still be
    // answered.
    end_connection(record::kind::disconnected, -1);
    set_state(ep_dead);
    last = std::move(connection_);
  }
  await_last_wqe();
  if (qp_) leave_srq();
  if (life_) {
    if (evds_.request && life_->requests().used() != 0) evds_.request->left_outstanding();
    if (qp_ && evds_.recv && life_->receives().used() != 0) evds_.recv->left_outstanding();
    life_->forget(ia());
  }
  // A thread that found this endpoint by a completion may be inside one of the evds: wait until it has left.
  for (evd_core* e : {evds_.recv.get(), evds_.request.get()})
    if (merged_evd* m = merged(e)) m->forget(tag(), false);
  // No completion finds the endpoint from here on, so none can defer work, which would keep the endpoint alive.
  if (ia().reactor.cancel(work_)) release();
  part_from_windows();
  if (qp_) {
    if (datagrams_) requeue_(*datagrams_, nullptr);
    ibv_destroy_qp(qp_);
    qp_ = nullptr;
  }
  if (datagrams_) datagrams_->end(); // the address handles, which no send uses any longer
  sq_.set(nullptr);
  rq_.set(nullptr);
  for (ep_life& l : lives_) l.end(ia());
  detach(evds_, attached_, srq_.get(), this);
  // Queued events must not give access to a context that the consumer has freed.
  if (!ia().closed()) consumer_context.store(0, std::memory_order_relaxed);
  for (evd_core* e : {evds_.recv.get(), evds_.request.get(), evds_.connect.get()})
    if (e) e->users.fetch_sub(1, std::memory_order_release);
  if (pz_) pz_->users.fetch_sub(1, std::memory_order_release);
  if (srq_) srq_->users.fetch_sub(1, std::memory_order_release);
  queues fed;          // a queued event in these evds keeps this object: break the reference cycle
  ref<srq_core> drawn; // a shared queue may keep it, too
  const std::lock_guard lock(mutex_);
  std::swap(fed, evds_);
  connect_evd_ = nullptr;
  std::swap(drawn, srq_);
}

#ifdef DAT_SEPARATE_COMPILATION
template void end_with_handle(ref<pz_core>&) noexcept;
template void end_with_handle(ref<lmr_core>&) noexcept;
template void end_with_handle(ref<cno_core>&) noexcept;
template void end_with_handle(ref<evd_core>&) noexcept;
template void end_with_handle(ref<service_point>&) noexcept;
template void end_with_handle(ref<ep_core>&) noexcept;
#endif

}}} // namespace dat::v0::detail
