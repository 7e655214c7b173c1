// Definitions of evd_core and merged_evd.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/basics.hpp>
#include <dat/detail/ep_core.hpp>
#include <dat/detail/evd_core.hpp>

#include <array>
#include <mutex>
#include <sched.h>

namespace dat::inline v0::detail {

inline result<ref<evd_core>> evd_core::create(const ref<ia_core>& ia, streams which, std::uint32_t qlen) noexcept {
  static constexpr const char* call = "ia.create_evd";
  if (ia->closed()) return error(return_type::invalid_handle, return_subtype::handle_ia).at(call, object_kind::ia);
  ref<evd_core> evd(is_lean(which) ? new (std::nothrow) evd_core(ia, which, qlen)
                                   : new (std::nothrow) merged_evd(ia, which, qlen),
                    adopt);
  if (!evd)
    return error(return_type::insufficient_resources, return_subtype::resource_memory).at(call, object_kind::evd);
  if (auto ok = evd->check_length(qlen, call); !ok) return ok.assume_error();
  if (merged_evd* m = merged(evd.get()))
    if (auto r = m->prepare(call); !r) return r.assume_error();
  if (includes(which, streams::dto))
    if (auto r = evd->create_queue(call); !r) return r.assume_error();
  if (includes(which, streams::async)) ia->listen(static_cast<merged_evd*>(evd.get())->listener_);
  evd->show();
  return evd;
}

inline expected<void> evd_core::create_queue(const char* call) noexcept {
  const auto failed = [&](const char* verb, int err, return_subtype resource) {
    return at(map_errno(err, resource).from(verb, err), call);
  };
  channel_ = ibv_create_comp_channel(ia().context());
  if (!channel_) return failed("ibv_create_comp_channel", errno, return_subtype::resource_tevd);
  if (const int err = make_nonblocking(channel_->fd)) return failed("fcntl", err, return_subtype::resource_tevd);
  cq_ = ibv_create_cq(ia().context(), static_cast<int>(queue_depth(qlen())), this, channel_, 0);
  if (!cq_) return failed("ibv_create_cq", errno, return_subtype::resource_tevd);
  polled_ = cq_;
  return success();
}

inline std::uint32_t evd_core::queue_depth(std::uint32_t n) const noexcept {
  // Some room above what was asked, for completions of requests that the library posts itself.
  const auto limit = static_cast<std::uint32_t>(ia().device().max_cqe);
  return n + 16 < limit ? n + 16 : limit;
}

inline expected<void> evd_core::check_length(std::uint32_t n, const char* call) const noexcept {
  if (n != 0 && n <= static_cast<std::uint32_t>(ia().device().max_cqe)) return success();
  return at(error(return_type::invalid_parameter, return_subtype::arg2), call)
      .hint("the queue length must be at least 1 and at most the device's max_cqe");
}

inline expected<void> evd_core::resize_queue(std::uint32_t n) noexcept {
  static constexpr const char* call = "evd.resize";
  if (cq_)
    if (const int err = ibv_resize_cq(cq_, static_cast<int>(queue_depth(n)))) {
      // The length is in range, so the device can only mean that more is queued than would fit.
      if (err == EINVAL)
        return at(error(return_type::invalid_state, return_subtype::evd_in_use).from("ibv_resize_cq", err), call)
            .hint("more events are queued than the new length has room for: take them first");
      return at(map_errno(err, return_subtype::resource_tevd).from("ibv_resize_cq", err), call);
    }
  qlen_.store(n, std::memory_order_relaxed);
  return success();
}

inline expected<void> evd_core::resize(std::uint32_t n) noexcept {
  static constexpr const char* call = "evd.resize";
  if (dead()) return closed(call);
  if (auto ok = check_length(n, call); !ok) return ok;
  if (merged_evd* m = merged(this)) return m->resize_merged(n);
  return resize_queue(n);
}

inline expected<void> merged_evd::resize_merged(std::uint32_t n) noexcept {
  static constexpr const char* call = "evd.resize";
  const std::lock_guard lock(mutex_);
  drain_locked(qlen());
  if (n < larger(others_, completions()))
    return at(error(return_type::invalid_state, return_subtype::evd_in_use), call)
        .hint("more events are queued than the new length has room for: take them first");
  if (!ring_.reserve(n)) return at(error(return_type::insufficient_resources, return_subtype::resource_memory), call);
  auto r = resize_queue(n);
  wake(); // a waiter may have been waiting for room to drain into
  return r;
}

inline void evd_core::set_waitable(bool waitable) noexcept {
  waitable_.store(waitable, std::memory_order_release);
  if (waitable) return;
  forbidden_.fetch_add(1, std::memory_order_seq_cst);
  wake();
}

inline void evd_core::await_waiter() const noexcept {
  while (ia().closed() && waited.load(std::memory_order_acquire)) ::sched_yield();
}

inline void evd_core::teardown() noexcept {
  await_waiter();
  detach_cno();
  if (ia().reactor.cancel(glance_timer_)) glance_due_.store(false, std::memory_order_relaxed);
  while (!ia().reactor.runs_here() &&
         (glance_due_.load(std::memory_order_seq_cst) || glancing_.load(std::memory_order_seq_cst)))
    ::sched_yield();
  polled_ = nothing.cq();
  if (cq_) {
    if (unacked_ != 0) ibv_ack_cq_events(cq_, unacked_); // or destroying would wait for ever
    ibv_destroy_cq(cq_);
    cq_ = nullptr;
  }
  if (channel_) ibv_destroy_comp_channel(channel_);
  channel_ = nullptr;
}

inline void evd_core::drop_shared(std::uint32_t qp_num) noexcept {
  const std::lock_guard lock(cno_mutex_); // several endpoints may be ending
  if (!cq_ || ia().closed()) return;
  if (!aside_) aside_.reset(new (std::nothrow) aside_queue(polled_, cq_));
  if (!aside_) return;
  const auto dropped = [&](const ibv_wc& c) {
    work_entry* const e = c.qp_num == qp_num ? find(c) : nullptr;
    if (!e || !work_queue::read(*e).is_shared()) return false;
    shared_queue::retire(*e);
    return true;
  };
  aside_->erase_if(dropped);
  std::array<ibv_wc, 16> wc;
  for (int left = cq_->cqe; left > 0 && aside_->reserve(16); left -= 16) {
    const int n = ibv_poll_cq(cq_, 16, wc.data());
    for (int i = 0; i < n; ++i)
      if (const ibv_wc& c = wc[static_cast<std::size_t>(i)]; !dropped(c)) aside_->push(c);
    if (n < 16) break;
  }
  aside_->stand_in();
}

inline expected<void> evd_core::set_cno(ref<cno_core> cno) noexcept {
  static constexpr const char* call = "evd.modify_cno";
  if (dead()) return closed(call);
  if (cno && (cno->dead() || &cno->ia() != &ia()))
    return at({return_type::invalid_handle, return_subtype::handle_cno}, call);
  ref<cno_core> old;
  {
    const std::lock_guard lock(cno_mutex_);
    if (cno)
      if (const int err = watch_channel(watching::always))
        return at(map_errno(err, return_subtype::resource_tevd).from("epoll_ctl", err), call);
    if (cno) cno->users.fetch_add(1, std::memory_order_relaxed);
    old = std::exchange(cno_, cno);
  }
  if (old) old->users.fetch_sub(1, std::memory_order_release);
  if (cno) arm_for_cno();
  return success();
}

inline int evd_core::watch_channel(watching how) noexcept {
  const watching now = watching_.load(std::memory_order_relaxed);
  const bool once = how == watching::sometimes;
  if (!channel_ || now > how || (now == how && !(once && spent_.load(std::memory_order_seq_cst)))) return 0;
  spent_.store(false, std::memory_order_seq_cst);
  const int err = now == watching::off ? ia().reactor.watch(channel_->fd, channel_source_, once)
                                       : ia().reactor.watch_again(channel_->fd, channel_source_, once);
  if (err == 0) watching_.store(how, std::memory_order_release);
  return err;
}

inline void evd_core::guard() noexcept {
  // Before looking at what is in force: what ends that looks at the count.
  if (guarded_.fetch_add(1, std::memory_order_seq_cst) != 0 || !channel_) return;
  int err;
  {
    const std::lock_guard lock(cno_mutex_);
    err = watch_channel(watching::sometimes);
  }
  if (err == 0 && !armed_.load(std::memory_order_seq_cst)) err = arm();
  if (err != 0) ia().failed_inside("ibv_req_notify_cq", err, number());
}

/// The device is armed for one completion at a time, and again only after a while: a busy connection costs the reactor
/// some fifty looks a second, and an idle one nothing.
inline void evd_core::glance_later() noexcept {
  completed_.store(true, std::memory_order_relaxed);
  if (guarded_.load(std::memory_order_seq_cst) == 0 || glance_due_.exchange(true, std::memory_order_acq_rel)) return;
  ia().reactor.arm(glance_timer_, clock::now() + std::chrono::milliseconds(20));
}

inline void evd_core::glance_due() noexcept {
  glancing_.store(true, std::memory_order_seq_cst);
  const bool alive = try_add_ref(); // what it looks at may be the last that holds it
  glance_due_.store(false, std::memory_order_seq_cst);
  if (alive) glance();
  glancing_.store(false, std::memory_order_seq_cst); // teardown may go on, and this be gone
  if (alive) release();
}

inline void evd_core::glance() noexcept {
  if (dead() || guarded_.load(std::memory_order_relaxed) == 0) return;
  // A device may report a failure a moment before it shows it in the state, so the last completion gets two looks.
  const bool again = completed_.exchange(false, std::memory_order_relaxed);
  if (const int err = arm()) ia().failed_inside("ibv_req_notify_cq", err, number());
  if (watching_.load(std::memory_order_acquire) == watching::sometimes) {
    spent_.store(false, std::memory_order_seq_cst);
    ia().reactor.watch_again(channel_->fd, channel_source_, true);
  }
  if (merged_evd* m = merged(this)) {
    m->drain();
    if (poll_failed_.load(std::memory_order_relaxed)) answer_poll_failure();
  } else {
    ia().for_each_endpoint([&](ep_core& ep) { ep.look_for_break(*this); });
  }
  if (!again) return;
  glance_later();
  completed_.store(false, std::memory_order_relaxed);
}

inline expected<void> evd_core::attach(waking f, bool requests, std::uint32_t leaving) noexcept {
  const auto refuse = [](const char* hint) {
    return error(return_type::invalid_parameter, return_subtype::arg7).hint(hint);
  };
  const merged_evd* const m = merged(this);
  const bool sink = m && m->is_sink();
  std::unique_lock lock(cno_mutex_);
  if (f != waking::evd_threshold && !sink) {
    if (!includes(streams::dto | streams::rmr_bind | streams::software | streams::datagrams, streams_))
      return refuse("an evd whose completions do not all wake may have no streams but dto, rmr_bind and software");
    if (f == waking::unsignalled && !m)
      return refuse(
          "unsignalled completions have to be set aside, for which an evd of streams::dto alone has no place: "
          "create it with dat::dto | dat::software");
    if (f == waking::solicited_wait && requests) return refuse("only receives can be solicited");
    if (waited.load(std::memory_order_acquire) && awaited.load(std::memory_order_relaxed) > 1)
      return error(return_type::invalid_state, return_subtype::evd_waiter).hint("a thread waits for several events");
  }
  if (feeding_.load(std::memory_order_relaxed) > leaving && mode() != f && !sink)
    return refuse("all queues that feed one evd must have the same recv_completion and request_completion");
  set_mode(sink ? waking::evd_threshold : f);
  feeding_.fetch_add(1, std::memory_order_seq_cst); // before looking for a waiter, who looks for this after it came
  const bool watched = watching_.load(std::memory_order_relaxed) == watching::always;
  lock.unlock();
  if (waited.load(std::memory_order_seq_cst)) { // who is to arm, and in this mode
    fired_.store(true, std::memory_order_seq_cst);
    kick();
  }
  if (!watched) return success();
  if (const int err = arm()) {
    detach();
    return map_errno(err).from("ibv_req_notify_cq", err);
  }
  return success();
}

inline void evd_core::detach() noexcept {
  const std::lock_guard lock(cno_mutex_);
  if (feeding_.fetch_sub(1, std::memory_order_seq_cst) == 1) set_mode(waking::evd_threshold);
}

inline void evd_core::feed_as(waking f) noexcept {
  const merged_evd* const m = merged(this);
  const std::lock_guard lock(cno_mutex_);
  if (!m || !m->is_sink()) set_mode(f);
}

inline void evd_core::set_enabled(bool enabled) noexcept {
  enabled_.store(enabled, std::memory_order_release);
  if (enabled) arm_for_cno();
}

inline void evd_core::arm_for_cno() noexcept {
  // Events that came while nobody listened are notified now: a hint too many is harmless, one too few is not.
  arm();
  if (merged_evd* m = merged(this)) {
    if (m->has_notification()) notify();
  } else {
    notify();
  }
}

inline void evd_core::notify() noexcept {
  if (!enabled()) return;
  ref<cno_core> cno;
  {
    const std::lock_guard lock(cno_mutex_);
    cno = cno_;
  }
  if (cno) cno->trigger(number_);
}

inline void evd_core::channel_ready() noexcept {
  const bool always = watching_.load(std::memory_order_acquire) == watching::always;
  if (!always) spent_.store(true, std::memory_order_seq_cst);
  glance_later();
  if (!always && waited.load(std::memory_order_seq_cst)) return; // the waiter sees it, and takes it
  ibv_cq* cq;
  void* context;
  while (ibv_get_cq_event(channel_, &cq, &context) == 0) {
    device_fired();
    ibv_ack_cq_events(cq, 1);
  }
  if (!always) return wake(); // somebody may have begun to wait
  merged_evd* const m = merged(this);
  const bool sink = m && m->is_sink();
  if (sink || (enabled() && has_cno())) // before looking: what comes after the look raises another event
    if (const int err = arm()) ia().failed_inside("ibv_req_notify_cq", err, number());
  if (sink) return m->discard();
  const bool something = !m || m->look();
  if (poll_failed_.load(std::memory_order_relaxed)) answer_poll_failure();
  if (!something) return;
  if (mode() == waking::unsignalled) return kick(); // looking told of what wakes; who waits has to arm again
  wake();
}

inline void evd_core::detach_cno() noexcept {
  ref<cno_core> cno;
  {
    const std::lock_guard lock(cno_mutex_);
    cno = std::move(cno_);
  }
  if (watching_.exchange(watching::off, std::memory_order_acq_rel) != watching::off)
    ia().reactor.unwatch(channel_->fd, channel_source_);
  if (cno && cno->users.fetch_sub(1, std::memory_order_acq_rel) == 1) cno->abandoned();
}

inline void evd_core::take_channel_events() noexcept {
  unread_ = false;
  ibv_cq* cq;
  void* context;
  while (channel_ && ibv_get_cq_event(channel_, &cq, &context) == 0) {
    device_fired();
    ++unacked_;
    // Nearly always it was the only one. Another only ends the next sleep at once, which is cheaper than asking; but
    // where it says which completions wake, all count.
    if (!is_choosy()) break;
  }
  // Acknowledging takes a lock: do it in bulk.
  if (unacked_ >= 64) ibv_ack_cq_events(cq_, std::exchange(unacked_, 0u));
}

inline expected<void> evd_core::sleep(const deadline& until) noexcept {
  static constexpr const char* call = "evd.wait";
  std::array<pollfd, 4> fds{};
  nfds_t n = 0;
  fds[n++] = {ia().closing.get(), POLLIN, 0};
  fds[n++] = {kick_.get(), POLLIN, 0};
  if (channel_) fds[n++] = {channel_->fd, POLLIN, 0};
  if (!ia().automatic()) fds[n++] = {ia().reactor.fd(), POLLIN, 0};
  const int ready = poll_until(fds.data(), n, until);
  const int err = errno;
  asleep.store(false, std::memory_order_relaxed); // who has seen it true ends the next sleep, which does no harm
  if (ready < 0) return at(map_errno(err).from("ppoll", err), call);
  if (ready == 0) return at(error(return_type::timeout_expired), call);
  if (ia().closed() || dead()) return at(error(return_type::abort), call);
  if (fds[1].revents != 0) kick_.clear(); // before the caller looks: what is raised from now on ends the next sleep
  ia().progress(0);
  unread_ = channel_ && fds[2].revents != 0;
  if (is_choosy()) read_channel();
  return success();
}

inline expected<void> merged_evd::prepare(const char* call) noexcept {
  listener_.evd = this;
  const std::uint32_t reserved = includes(which(), streams::async) ? 1 : 0; // see push_async
  if (!ring_.reserve(qlen() + reserved))
    return at(error(return_type::insufficient_resources, return_subtype::resource_memory), call);
  if (const int err = open_kick()) return at(map_errno(err, return_subtype::resource_tevd).from("eventfd", err), call);
  return success();
}

inline void merged_evd::teardown() noexcept {
  event_queue ring;
  event_queue parked;
  ia().unlisten(listener_);
  await_waiter(); // without the lock, which it needs to leave
  detach_cno();   // likewise, for the reactor
  {
    const std::lock_guard lock(mutex_);
    std::swap(ring, ring_);
    std::swap(parked, parked_);
    others_ = 0;
    evd_core::teardown();
  }
  // Requests that nobody took are refused as the records go.
}

/// Whether a completion releases who waits, and triggers the cno.
inline bool merged_evd::wakes(const ibv_wc& c, const posted_work& posted) const noexcept {
  switch (mode()) {
  case waking::unsignalled:
    return !posted.is_quiet();
  case waking::solicited_wait:
    return c.status != IBV_WC_SUCCESS; // of others only the device knows; see device_fired
  default:
    return true;
  }
}

inline bool merged_evd::has_notification() noexcept {
  const std::lock_guard lock(mutex_);
  drain_locked(qlen());
  for (std::uint32_t i = 0; i < ring_.size(); ++i) {
    const record& r = ring_.at(i);
    if (r.what != record::kind::completion || wakes(r.wc, r.posted)) return true;
  }
  return false;
}

inline ready_completions::~ready_completions() {
  for (std::uint32_t i = 0; i < kept_; ++i) keeps_[i]->release();
}

inline void ready_completions::begin_run(ep_core& ep) noexcept {
  if (kept_ != 0 && keeps_[kept_ - 1] == &ep) return;
  ep.add_ref();
  keeps_[kept_++] = &ep;
}

inline bool merged_evd::set_aside(const ibv_wc& c, work_entry& e) noexcept {
  const posted_work posted = work_queue::read(e);
  const bool shared = posted.is_shared();
  ep_core* const whose = shared ? e.shared().owner_of(c.qp_num) : &e.ring().owner();
  if (!whose) {
    shared_queue::retire(e); // of an endpoint that is gone, but the buffer is there to be posted again
    return false;
  }
  ep_core& ep = *whose;
  // Nobody may be looking at completions when the connection breaks, so the break is noticed here.
  if (c.status != IBV_WC_SUCCESS) ep.defer_break(ep.tag());
  if (posted.kind == marker_work) {
    if (c.status == IBV_WC_SUCCESS) ep.defer_drained(ep.tag());
    return false;
  }
  if (posted.is_silent() && c.status == IBV_WC_SUCCESS) {
    (void)ia().bind_ended(posted.length, true);
    return false;
  }
  if (posted.is_receive() && !shared && posted.kind != e.ring().usual())
    e.posted.kind = e.ring().usual(); // as rings of receives have it
  if (posted.is_early() || shared) {
    if (c.status == IBV_WC_SUCCESS && ep.state() == ep_state::completion_pending) ep.defer_arrival(ep.tag());
  }
  // ESTABLISHED comes before the first completion, whichever thread is faster (uDAPL 2.0 §6.3.1).
  record r(c, posted, ep.tag(), shared ? 0 : e.ring().position(e));
  if (shared) e.shared().hold();
  if (posted.is_receive() && c.status == IBV_WC_SUCCESS) ep.hold_receive();
  const bool announced = ep.announced_on(this);
  if ((announced ? ring_ : parked_).push(std::move(r))) return announced && wakes(c, posted);
  (void)release_entry(r); // no memory; the ring has room for all that it was made for
  return false;
}

inline void merged_evd::drain_locked(std::uint32_t limit) noexcept {
  std::array<ibv_wc, 16> wc;
  bool woken = false;
  while (completions() < limit) {
    const auto room = static_cast<int>(smaller<std::uint32_t>(16, limit - completions()));
    const int n = poll(room, wc.data());
    for (int i = 0; i < n; ++i)
      if (work_entry * e; find(wc[static_cast<std::size_t>(i)], e)) // else of an endpoint that is gone or was reset
        woken = set_aside(wc[static_cast<std::size_t>(i)], *e) || woken;
    if (n < 0) [[unlikely]]
      poll_failed();
    if (n < room) break;
  }
  if (woken) announce();
}

inline merged_evd::found merged_evd::take_ready(ready_completions& out, std::uint32_t max) noexcept {
  const std::lock_guard lock(mutex_);
  if (!ring_.empty() || is_choosy()) return found::queued;
  ibv_wc* const wc = out.room();
  int n;
  bool aside = false;
  bool woken = false;
  do {
    n = poll(static_cast<int>(smaller(max, ready_completions::most)), wc);
    // Those of one queue that follow each other need one look at their endpoint, and the last of them frees all.
    work_ring* run = nullptr;
    work_entry* last = nullptr;
    const auto end_run = [&] {
      if (run) run->retire_through(*last, run->position(*last));
      run = nullptr;
    };
    for (int i = 0; i < n; ++i) {
      work_entry* e;
      if (!find(wc[i], e)) continue; // of an endpoint that is gone or was reset
      work_queue::observe(*e);
      // Once one stands in the ring, those that follow it have to.
      if (!aside && wc[i].status == IBV_WC_SUCCESS && e->posted.is_plain()) [[likely]] {
        work_ring& ring = e->ring();
        if (&ring == run || ring.owner().hands_over(this)) [[likely]] {
          if (&ring != run) {
            end_run();
            run = &ring;
            out.begin_run(ring.owner());
          }
          last = e;
          out.add(ring.owner(), wc[i], e->posted);
          continue;
        }
      }
      end_run();
      woken = set_aside(wc[i], *e) || woken;
      aside = !ring_.empty();
    }
    end_run();
  } while (out.size() == 0 && !aside && n > 0); // none of them is an event yet, but what is behind them may be
  if (n < 0) [[unlikely]]
    poll_failed();
  if (woken) announce();
  return out.size() != 0 ? found::ready : aside ? found::queued : found::none;
}

inline bool merged_evd::take(record& out, std::uint32_t& left) noexcept {
  const std::lock_guard lock(mutex_);
  if (ring_.empty() || is_choosy()) drain_locked(qlen());
  left = ring_.size();
  if (left == 0) return false;
  extract(0, out);
  --left;
  return true;
}

inline bool merged_evd::take_from(record& out, std::uint32_t threshold, std::uint32_t& count) noexcept {
  const std::lock_guard lock(mutex_);
  drain_locked(qlen());
  count = ring_.size();
  if (count < threshold || count == 0) return false;
  extract(0, out);
  --count;
  return true;
}

inline void merged_evd::extract(std::uint32_t i, record& out) noexcept {
  ring_.extract(i, out);
  if (out.what != record::kind::completion) {
    if (--others_ < qlen()) told_lost_ = told_full_ = false;
    return;
  }
  // Under the lock, for which an endpoint that ends waits: see barrier().
  if (ep_core* const whose = release_entry(out)) out.endpoint = ref<counted>(whose);
}

inline ep_core* merged_evd::release_entry(const record& r) noexcept {
  work_entry* const e = find(r.wc);
  if (!e) return nullptr; // its endpoint, or shared queue, is gone or was reset
  ep_core* whose;
  if (r.posted.is_shared()) {
    e->shared().unhold();
    shared_queue::retire(*e);
    whose = owner_of(r.tag);
  } else {
    e->ring().retire_through(*e, r.position);
    whose = &e->ring().owner();
  }
  if (whose && r.posted.is_receive() && r.wc.status == IBV_WC_SUCCESS) whose->release_receive();
  return whose;
}

template <class Predicate>
bool merged_evd::take_if(record& out, Predicate wanted) noexcept {
  const std::lock_guard lock(mutex_);
  drain_locked(qlen());
  for (std::uint32_t i = 0; i < ring_.size(); ++i)
    if (wanted(ring_.at(i))) {
      extract(i, out);
      return true;
    }
  return false;
}

inline bool merged_evd::look() noexcept {
  const std::lock_guard lock(mutex_);
  drain_locked(qlen());
  return !ring_.empty();
}

inline void merged_evd::push_connection(record&& r, ep_core& whose) noexcept {
  std::unique_lock lock(mutex_);
  if (dead()) return;
  drain_locked(~0u); // also beyond qlen: successful completions come before DISCONNECTED (uDAPL 2.0 §6.3.1)
  const bool kept = sink_ || (others_ < qlen() && ring_.push(std::move(r)));
  if (kept && !sink_) ++others_;
  whose.announce(true);
  for (std::uint32_t i = 0; i < parked_.size(); ++i)
    if (parked_.at(i).tag == whose.tag()) (void)ring_.push(std::move(parked_.at(i)));
  parked_.erase_if([&](const record& p) { return p.tag == whose.tag(); });
  notice();
  wake();
  const bool tell = !kept && !std::exchange(told_lost_, true);
  lock.unlock();
  if (tell) ia().overflowed(number());
  if (sink_) discard();
}

inline result<ref<evd_core>> merged_evd::create_sink(const ref<ia_core>& ia, streams which,
                                                     std::uint32_t qlen) noexcept {
  auto made = evd_core::create(ia, which | streams::connection, qlen); // never a lean one
  if (!made) return made;
  auto& sink = static_cast<merged_evd&>(*made.assume_value());
  sink.sink_ = true;
  int err;
  {
    const std::lock_guard lock(sink.cno_mutex_);
    err = sink.watch_channel(watching::always);
  }
  if (err == 0) err = sink.arm();
  if (err != 0) return sink.at(map_errno(err, return_subtype::resource_tevd), "ia.create_evd");
  return made;
}

inline void merged_evd::discard() noexcept {
  std::uint32_t left;
  for (record r; take(r, left);) r = record();
}

inline void merged_evd::push_async(record&& r) noexcept {
  const std::lock_guard lock(mutex_);
  if (dead()) return;
  if (others_ < qlen()) {
    if (!ring_.push(std::move(r))) return;
  } else {
    if (std::exchange(told_full_, true)) return;
    if (!ring_.push(record(async_kind::evd_overflow, {.context = ia().context(), .number = number()}, {}))) return;
  }
  ++others_;
  notice();
  wake();
}

inline bool merged_evd::push_if_room(record&& r) noexcept {
  const std::lock_guard lock(mutex_);
  if (dead() || others_ >= qlen()) return false;
  drain_locked(qlen()); // what came earlier goes first, where that is known
  if (!ring_.push(std::move(r))) return false;
  ++others_;
  notice();
  wake();
  return true;
}

inline void merged_evd::expect_announcement(ep_core& whose) noexcept {
  const std::lock_guard lock(mutex_);
  whose.announce(false);
}

inline void merged_evd::forget(ep_tag tag, bool all) noexcept {
  const std::lock_guard lock(mutex_);
  if (all) drain_locked(~0u);
  const auto old = [&](const record& r) {
    if (r.what != record::kind::completion || r.tag != tag) return false;
    (void)release_entry(r);
    return true;
  };
  parked_.erase_if(old);
  if (all) ring_.erase_if(old);
}

/// The evd that a new ia's asynchronous events go to: one of its own, or, when `given` names one, none.
[[nodiscard]] inline result<ref<evd_core>> async_evd_for(ia_core& ia, evd_core* given, std::uint32_t qlen) noexcept {
  static constexpr const char* call = "ia.open";
  if (!given) {
    auto own = evd_core::create(ref(&ia), streams::async, qlen);
    if (!own) return own.assume_error().at(call, object_kind::ia);
    own.assume_value()->users.store(1, std::memory_order_relaxed); // the ia itself
    ia.own(own.assume_value().get());
    return own;
  }
  const auto& a = given->ia().where();
  const auto& b = ia.where();
  if (given->dead() || a.port != b.port || given->ia().name() != ia.name())
    return error(return_type::invalid_handle, return_subtype::handle_evd_async)
        .at(call, object_kind::ia)
        .hint("the evd for asynchronous events is closed, or of another adapter");
  ia.borrow(ref<ia_child>(given));
  return ref<evd_core>();
}

} // namespace dat::inline v0::detail
