// Definitions of merged_evd.hpp: room, completions, taking and appending events, and sinks.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/utility.hpp>
#include <dat/detail/events/connection_names.hpp>
#include <dat/detail/events/evd_core.hpp>
#include <dat/detail/posting/ep_posting.hpp>
#include <dat/detail/posting/shared_queue.hpp>
#include <dat/detail/text/errno.hpp>

#include <array>
#include <mutex>

namespace dat { inline namespace v0 { namespace detail {

// --- creation and end ------------------------------------------------------------------------------------------------

DAT_DECL merged_evd::merged_evd(ref<ia_core> ia, streams which, std::uint32_t qlen) noexcept
    : evd_core(std::move(ia), which, qlen, table),
      breaks_(*this, this->ia().reactor, [](counted& c) noexcept { static_cast<merged_evd&>(c).check_for_breaks(); }) {
  set_mark(manual_mark, !this->ia().automatic());
  loss_.self = this;
  loss_.run = [](task& t) noexcept {
    const ref<merged_evd> self(static_cast<loss_task&>(t).self, adopt); // the task was armed with a reference
    self->ia().overflowed(self->number());
  };
}

DAT_DECL expected<void> merged_evd::prepare(const char* call) noexcept {
  listener_.evd = this;
  if (!reserve_ring(qlen()))
    return at(error(return_type::insufficient_resources, return_subtype::resource_memory), call);
  if (const int err = waking().open())
    return at(map_errno(err, return_subtype::resource_tevd).from("eventfd", err), call);
  return success();
}

DAT_DECL void merged_evd::listen() noexcept { ia().listen(listener_); }

DAT_DECL void merged_evd::teardown() noexcept {
  event_queue ring;
  event_queue parked;
  ia().unlisten(listener_);
  await_waiter(); // without the lock, which the waiter needs to leave
  detach_cno();   // without the lock, which the reactor needs
  breaks_.stop();
  {
    const std::lock_guard lock(mutex_);
    std::swap(ring, ring_);
    std::swap(parked, parked_);
    others_ = connection_events_ = 0;
    evd_core::teardown();
  }
  // Destroying the records refuses the requests that were not taken.
}

// --- room ------------------------------------------------------------------------------------------------------------

DAT_DECL std::uint32_t merged_evd::connection_places() const noexcept { return max(qlen(), 2 * endpoints_); }

/// Called with the lock held, or before any other thread uses the evd.
DAT_DECL bool merged_evd::reserve_ring(std::uint32_t n) noexcept {
  constexpr streams limited = streams::software | streams::connection_requests | streams::async;
  std::uint64_t places = room_for_completions_ + 1; // plus one overflow event, see push_async
  if ((stream_set() & limited) != streams{}) places += n;
  if (includes(stream_set(), streams::connection) && !sink_) places += max(n, 2 * endpoints_);
  return places <= ~0u && ring_.reserve(static_cast<std::uint32_t>(places));
}

DAT_DECL bool merged_evd::reserve_completions(std::uint32_t fed) noexcept {
  const std::lock_guard lock(mutex_);
  const std::uint32_t before = std::exchange(room_for_completions_, max(room_for_completions_, fed));
  // Completions may also be parked in evds that take the connection events of their endpoint.
  const bool parks = includes(stream_set(), streams::connection) && !sink_;
  if (reserve_ring(qlen()) && (!parks || parked_.reserve(room_for_completions_))) return true;
  room_for_completions_ = before;
  return false;
}

DAT_DECL expected<void> merged_evd::add_endpoint() noexcept {
  const std::lock_guard lock(mutex_);
  ++endpoints_;
  if (reserve_ring(qlen())) return success();
  --endpoints_;
  return error(return_type::insufficient_resources, return_subtype::resource_memory);
}

DAT_DECL void merged_evd::remove_endpoint(const counted* whose) noexcept {
  const std::lock_guard lock(mutex_);
  --endpoints_;
  if (connection_events_ <= connection_places()) return;
  // Returns the places of the endpoint, and removes the events that no longer have a place.
  ring_.erase_if([&](const record& r) {
    if (!r.is_connection_event() || r.endpoint.get() != whose) return false;
    --connection_events_;
    return true;
  });
}

DAT_DECL expected<void> merged_evd::resize_merged(std::uint32_t n) noexcept {
  static constexpr const char* call = "evd.resize";
  const std::lock_guard lock(mutex_);
  drain_locked();
  if (n < max(max(others_, connection_events_), completions()))
    return at(error(return_type::invalid_state, return_subtype::evd_in_use), call)
        .hint("More events are queued than the new length has room for. Take them first.");
  if (!reserve_ring(n)) return at(error(return_type::insufficient_resources, return_subtype::resource_memory), call);
  auto r = resize_queue(n);
  wake(); // a waiter may wait for more events than the evd had room for
  return r;
}

// --- completions -----------------------------------------------------------------------------------------------------

/// Whether a completion wakes a waiter and triggers the cno.
DAT_DECL bool merged_evd::wakes(const ibv_wc& c, const posted_work& posted) const noexcept {
  switch (mode()) {
  case completion_notification::selective:
    return posted.notifies();
  case completion_notification::solicited_wait:
    return c.status != IBV_WC_SUCCESS; // only the device can tell whether others were solicited: see cq_arming
  default:
    return true;
  }
}

DAT_DECL bool merged_evd::append(const ibv_wc& c, work_entry& e) noexcept {
  const posted_work posted = work_queue::read(e);
  const bool shared = posted.is_shared();
  completion_owner* const whose = shared ? shared_queue::of(e).owner_of(c.qp_num) : &e.ring().owner();
  if (!whose) {
    shared_queue::retire(e); // the endpoint has ended, but the entry is free again
    return false;
  }
  completion_owner& ep = *whose;
  // The connection may break while no thread takes its completions, so the break is detected here.
  if (ia().is_break(c.status)) ep.defer_break(ep.tag());
  if (posted.kind == probe_work) {
    ep.probe_ended();
    return false;
  }
  if (posted.kind == marker_work) {
    if (c.status == IBV_WC_SUCCESS) ep.defer_drained(ep.tag());
    return false;
  }
  if (posted.is_internal() && c.status == IBV_WC_SUCCESS) {
    (void)ia().bind_ended(posted.length, true);
    return false;
  }
  if (posted.is_receive() && !shared && posted.kind != e.ring().usual()) e.posted.kind = e.ring().usual();
  if ((posted.is_pre_connect() || shared) && c.status == IBV_WC_SUCCESS && ep.state() == ep_state::completion_pending)
    ep.defer_arrival(ep.tag());
  // ESTABLISHED is queued before the first completion, even if the completion arrives first (uDAPL 2.0 §6.3.1).
  record r(c, posted, ep.tag(), shared ? 0 : e.ring().position(e));
  if (shared) shared_queue::of(e).hold();
  if (posted.is_receive() && c.status == IBV_WC_SUCCESS) ep.hold_receive();
  const bool announced = ep.announced_on(this);
  if (announced ? enqueue(std::move(r)) : parked_.push(std::move(r))) return announced && wakes(c, posted);
  // attach has made room for every completion of the feeds, so only a completion of no feed has no room.
  (void)release_entry(r); // NOLINT(bugprone-use-after-move): a push that fails leaves it unchanged
  ep.defer_break(ep.tag());
  report_loss();
  return false;
}

DAT_DECL void merged_evd::report_loss() noexcept {
  if (!lost_completions() || !try_add_ref()) return;
  (void)ia().reactor.defer(loss_); // never pending: this is its only defer, and `lost_completions` is true once
}

DAT_DECL void merged_evd::drain_locked() noexcept {
  std::array<ibv_wc, 16> wc;
  bool woken = false;
  int n;
  do {
    n = poll(16, wc.data());
    for (int i = 0; i < n; ++i)
      if (work_entry * e; find(wc[static_cast<std::size_t>(i)], e)) // otherwise its endpoint has ended or was reset
        woken = append(wc[static_cast<std::size_t>(i)], *e) || woken;
  } while (n == 16);
  if (n < 0) [[unlikely]]
    note_poll_failure();
  if (woken) announce();
}

DAT_DECL void merged_evd::drain() noexcept {
  {
    const std::lock_guard lock(mutex_);
    drain_locked();
  }
  if (sink_) discard();
}

DAT_DECL completion_owner* merged_evd::release_entry(const record& r) noexcept {
  work_entry* const e = find(r.wc);
  if (!e) return nullptr; // its endpoint or shared queue has ended or was reset
  completion_owner* whose;
  if (r.posted.is_shared()) {
    shared_queue::of(*e).unhold();
    shared_queue::retire(*e);
    whose = owner_of(r.tag);
  } else {
    e->ring().retire_through(*e, r.position);
    whose = &e->ring().owner();
  }
  if (whose && r.posted.is_receive() && r.wc.status == IBV_WC_SUCCESS) whose->release_receive();
  return whose;
}

// --- taking ----------------------------------------------------------------------------------------------------------

DAT_DECL bool merged_evd::take_shared(ibv_wc& c, const completion_owner* ep) const noexcept {
  // A message that arrives before the end of the handshake completes the handshake.
  if (!ep || ep->state() == ep_state::completion_pending || !ep->may_bypass_ring(this)) return false;
  c.wr_id = ep->tag(); // in place of the name of the entry, which can be posted again
  return true;
}

DAT_DECL bool merged_evd::take_shared(ready_completion& out, work_entry& e, completion_owner* ep) const noexcept {
  if (!take_shared(out.wc, ep)) return false;
  out.set(*ep, e.posted);
  shared_queue::retire(e);
  return true;
}

DAT_DECL bool merged_evd::bypasses_ring() noexcept {
  if (!ring_.empty()) return false;
  mutex_.unmark(queued_mark);
  return true;
}

DAT_DECL merged_evd::found merged_evd::take_marked(ready_completion& out) noexcept {
  return take_marked(out, copies_none{});
}

DAT_DECL merged_evd::found merged_evd::take_marked(ready_completion& one, ready_completions& several,
                                                   int max) noexcept {
  const std::lock_guard lock(mutex_);
  return bypasses_ring() ? take_locked(one, several, max) : found::queued;
}

DAT_DECL merged_evd::found merged_evd::take_unready(int n, ready_completion& out) noexcept {
  work_entry* e;
  if (n == 1 && find(out.wc, e) && is_shared_success(*e, out.wc) &&
      take_shared(out, *e, shared_queue::of(*e).owner_at_once(out.wc.qp_num)))
    return found::one;
  return take_rare(n, out);
}

DAT_DECL merged_evd::found merged_evd::take_rare(int n, ready_completion& out) noexcept {
  for (; n > 0; n = poll(1, &out.wc)) {
    work_entry* e;
    if (!find(out.wc, e)) continue; // the endpoint has ended or was reset
    if (is_shared_success(*e, out.wc) && take_shared(out, *e, shared_queue::of(*e).owner_of(out.wc.qp_num)))
      return found::one;
    if (append(out.wc, *e)) announce();
    if (!ring_.empty()) return found::queued;
  }
  if (n < 0) note_poll_failure();
  return found::none;
}

DAT_DECL bool merged_evd::take_at_once(work_kind kind, const completion_owner* of, ready_completion& out) noexcept {
  if (foreign() || !waking().undisturbed()) return false;
  ia().progress_now_and_then();
  const std::lock_guard lock(mutex_);
  if (!ring_.empty()) return false;
  const int n = poll(1, &out.wc);
  if (n < 0) [[unlikely]]
    note_poll_failure();
  work_entry* e;
  if (n <= 0 || !find(out.wc, e)) return false;
  if (is_success_of(kind, *e, out.wc)) [[likely]] {
    out.ep = &e->ring().owner();
    if ((!of || out.ep == of) && out.ep->may_bypass_ring(this)) [[likely]] {
      out.posted = e->posted;
      e->ring().retire_next(*e);
      return true;
    }
  }
  if (append(out.wc, *e)) announce();
  return false;
}

DAT_DECL merged_evd::found merged_evd::take_several(ready_completions& out, ibv_wc* c, int n, int max) noexcept {
  const work_entries entries = this->entries();
  ibv_wc* const wc = out.wc();
  bool queued = false;
  bool woken = false;
  for (; n > 0; n = poll(max, c = wc)) {
    while (c < wc + n) {
      work_entry* e;
      if (!entries.find(c->wr_id, e)) { // the endpoint has ended or was reset
        ++c;
        continue;
      }
      // Once a completion is in the ring, the completions after it go to the ring, too.
      if (!queued && is_ready(*c, *e)) [[likely]] {
        c += out.add_run(entries, e, c, static_cast<int>(wc + n - c));
        continue;
      }
      completion_owner* const ep =
          !queued && is_shared_success(*e, *c) ? shared_queue::of(*e).owner_of(c->qp_num) : nullptr;
      if (take_shared(*c, ep)) {
        out.add_one(*ep, e->posted, c);
        shared_queue::retire(*e);
      } else {
        woken = append(*c, *e) || woken;
        queued = !ring_.empty();
      }
      ++c;
    }
    if (!out.empty() || queued) break; // otherwise none of these completions was an event, but later ones may be events
  }
  if (n < 0) [[unlikely]]
    note_poll_failure();
  if (woken) announce();
  if (out.empty()) return queued ? found::queued : found::none;
  return queued || n == max ? found::some : found::last;
}

DAT_DECL bool merged_evd::take(record& out, std::uint32_t& left) noexcept {
  const std::lock_guard lock(mutex_);
  if (ring_.empty()) drain_locked();
  left = ring_.size();
  if (left == 0) return false;
  extract(0, out);
  --left;
  return true;
}

DAT_DECL bool merged_evd::take_from(record& out, std::uint32_t threshold, std::uint32_t& count) noexcept {
  const std::lock_guard lock(mutex_);
  drain_locked();
  count = ring_.size();
  if (count < threshold) return false;
  extract(0, out);
  --count;
  return true;
}

DAT_DECL void merged_evd::extract(std::uint32_t i, record& out) noexcept {
  ring_.extract(i, out);
  if (out.what == record::kind::completion) {
    // Under the lock, because an endpoint that ends waits for the lock: see barrier().
    if (completion_owner* const whose = release_entry(out)) out.endpoint = ref<counted>(&whose->object());
  } else if (out.is_connection_event()) {
    if (--connection_events_ < connection_places()) connection_loss_reported_ = false;
  } else {
    if (--others_ < qlen()) async_loss_reported_ = false;
  }
}

DAT_DECL std::uint32_t merged_evd::count_events() noexcept {
  const std::lock_guard lock(mutex_);
  drain_locked();
  return ring_.size();
}

DAT_DECL bool merged_evd::has_notification() noexcept {
  const std::lock_guard lock(mutex_);
  drain_locked();
  for (std::uint32_t i = 0; i < ring_.size(); ++i) {
    const record& r = ring_.at(i);
    if (r.what != record::kind::completion || wakes(r.wc, r.posted)) return true;
  }
  return false;
}

// --- appending -------------------------------------------------------------------------------------------------------

/// Each endpoint has two places, whatever other events are queued.
DAT_DECL bool merged_evd::has_place_for(const completion_owner& whose) noexcept {
  if (connection_events_ < connection_places()) return true;
  std::uint32_t own = 0;
  for (std::uint32_t i = 0; i < ring_.size(); ++i) {
    const record& r = ring_.at(i);
    if (r.is_connection_event() && r.endpoint.get() == &whose.object()) ++own;
  }
  return own < 2;
}

DAT_DECL void merged_evd::push_connection(record&& r, completion_owner& whose) noexcept {
  if constexpr (trace_build) {
    const std::uint32_t ep = static_cast<const ep_posting&>(whose).number();
    trace_points::connection(ep, name_of(r.what).data(), r.reason); // a literal
    log_event(level_of(r.what), [&] { return connection_text(name_of(r.what), ep, cause_of(r.what, r.reason)); });
  }
  std::unique_lock lock(mutex_);
  if (dead()) return;
  drain_locked(); // successful completions come before DISCONNECTED (uDAPL 2.0 §6.3.1)
  const bool kept = sink_ || (has_place_for(whose) && enqueue(std::move(r)));
  if (kept && !sink_) ++connection_events_;
  whose.announce(true);
  // An endpoint of another ia has no completions here, but its tag may equal that of an endpoint with completions here.
  const bool parks = &static_cast<const ia_child&>(whose.object()).ia() == &ia();
  const auto follows = [&](const record& p) { return parks && p.tag == whose.tag(); };
  for (std::uint32_t i = 0; i < parked_.size(); ++i)
    if (follows(parked_.at(i)) && !enqueue(std::move(parked_.at(i)))) {
      (void)release_entry(parked_.at(i));
      report_loss();
    }
  parked_.erase_if(follows);
  announce();
  const bool report = !kept && !std::exchange(connection_loss_reported_, true);
  lock.unlock();
  if (report) ia().overflowed(number());
  if (sink_) discard();
}

DAT_DECL void merged_evd::push_async(record&& r) noexcept {
  const std::lock_guard lock(mutex_);
  if (dead()) return;
  if (others_ < qlen()) {
    if (!enqueue(std::move(r))) return;
  } else {
    if (std::exchange(async_loss_reported_, true)) return;
    if (!enqueue(record(async_kind::evd_overflow, {.context = ia().context(), .number = number()}, {}))) return;
  }
  ++others_;
  announce();
}

DAT_DECL bool merged_evd::push_if_room(record&& r) noexcept {
  const std::lock_guard lock(mutex_);
  if (dead() || others_ >= qlen()) return false;
  drain_locked(); // moves earlier completions to the ring first
  if (!enqueue(std::move(r))) return false;
  ++others_;
  announce();
  return true;
}

// --- endpoints -------------------------------------------------------------------------------------------------------

DAT_DECL void merged_evd::expect_announcement(completion_owner& whose) noexcept {
  const std::lock_guard lock(mutex_);
  whose.announce(false);
}

DAT_DECL void merged_evd::forget(ep_generation tag, bool all) noexcept {
  const std::lock_guard lock(mutex_);
  if (all) drain_locked();
  const auto old = [&](const record& r) {
    if (r.what != record::kind::completion || r.tag != tag) return false;
    (void)release_entry(r);
    return true;
  };
  parked_.erase_if(old);
  if (all) ring_.erase_if(old);
}

DAT_DECL bool merged_evd::holds_message(ep_generation tag) noexcept {
  const std::lock_guard lock(mutex_);
  drain_locked();
  for (std::uint32_t i = 0; i < parked_.size(); ++i) {
    const record& r = parked_.at(i);
    if (r.tag == tag && (r.posted.is_receive() || r.posted.is_shared()) && r.wc.status == IBV_WC_SUCCESS) return true;
  }
  return false;
}

/// Called by the break watch. Arms the device before it polls the queue, so that later completions notify.
DAT_DECL void merged_evd::check_for_breaks() noexcept {
  if (dead() || channel_watched() == watching::dead) return;
  if (const int err = arming().arm()) ia().failed_inside("ibv_req_notify_cq", err, number());
  watch_again();
  drain();
  if (poll_has_failed()) answer_poll_failure();
}

// --- sinks -----------------------------------------------------------------------------------------------------------

DAT_DECL result<ref<evd_core>> merged_evd::sink_of(const ref<ia_core>& ia) noexcept {
  const auto is_sink = [](const ia_child& c) {
    const auto& e = static_cast<const evd_core&>(c);
    return c.published() && !is_completions_only(e.stream_set()) && static_cast<const merged_evd&>(e).is_sink();
  };
  if (ref<ia_child> known = ia->find(child_kind::events, is_sink))
    return ref<evd_core>(static_cast<evd_core*>(known.get()));
  auto made = evd_core::create(ia, streams::dto | streams::connection, 1);
  if (!made) return made;
  auto& sink = static_cast<merged_evd&>(*made.assume_value());
  sink.sink_ = true;
  int err;
  {
    const std::lock_guard lock(sink.cno_mutex_);
    err = sink.watch_channel(watching::always); // the first endpoint arms the device
  }
  if (err != 0) return sink.at(map_errno(err, return_subtype::resource_tevd), "ia.create_evd");
  return made;
}

DAT_DECL void merged_evd::discard() noexcept {
  std::uint32_t left;
  for (record r; take(r, left);) r = record();
}

}}} // namespace dat::v0::detail
