// An evd that merges its streams into one order.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/quick_mutex.hpp>
#include <dat/detail/events/break_watch.hpp>
#include <dat/detail/events/evd_core.hpp>
#include <dat/detail/events/event_queue.hpp>
#include <dat/detail/events/ready_completions.hpp>

#include <cstdint>
#include <mutex>

namespace dat { inline namespace v0 { namespace detail {

/// Its ring holds events of all streams. When an event of another stream arrives, completions move from the device's
/// queue to the ring, so that each event has the right place. While the ring is empty, completions bypass it.
///
/// Lock order: endpoint before evd. No function calls into an endpoint's lock with the evd's lock held.
///
/// The evd counts completions, connection events and all other events separately, so that a flood of one kind costs no
/// event of another. There is room for every completion of the attached queues, for `qlen` software events, requests
/// and asynchronous events, and for `qlen` connection events or two of each attached endpoint, whichever is more.
class merged_evd final : public evd_core {
public:
  merged_evd(ref<ia_core> ia, streams which, std::uint32_t qlen) noexcept;

  /// Reserves the ring, and opens the descriptor that wakes a waiter.
  [[nodiscard]] expected<void> prepare(const char* call) noexcept;
  void listen() noexcept;

  // --- taking --------------------------------------------------------------------------------------------------------

  /// Takes the next event; returns false when there is none. `left` is the number of events that the ring still has.
  [[nodiscard]] bool take(record& out, std::uint32_t& left) noexcept;
  /// The result of taking completions straight from the device, without the ring. `one`: one completion. `last`:
  /// several, and no more follow. `some`: several, and more may follow. `queued`: the next event is in the ring.
  /// `copied`: one completion, of which the caller has a copy. `marked`: nothing was taken, because the lock is held or
  /// has marks.
  enum class found : std::uint8_t { none, one, last, some, queued, copied, marked };
  /// Takes one completion, if the lock is free and has no marks. So there is no waiter, the ia has a service thread,
  /// and completions bypass the ring. Calls `copy(work, completion, owner)` with the lock held. `copy` returns true
  /// when it has copied all that is needed; then `out` has nothing, and the result is `copied`.
  template <class Copy>
  [[nodiscard, gnu::always_inline]] found take_ready(ready_completion& out, Copy copy) noexcept;
  /// A `copy` that leaves all completions to `out`.
  struct copies_none {
    bool operator()(const posted_work&, const ibv_wc&, completion_owner&) const noexcept { return false; }
  };
  /// Takes up to `max` completions: a single one into `one`, several into `several`.
  [[nodiscard, gnu::always_inline]] found take_ready(ready_completion& one, ready_completions& several,
                                                     int max) noexcept;
  /// As take_ready, whatever marks the lock has. If the ring has events, the result is `queued`.
  template <class Copy>
  [[nodiscard]] found take_marked(ready_completion& out, Copy copy) noexcept;
  [[nodiscard]] found take_marked(ready_completion& out) noexcept;
  [[nodiscard]] found take_marked(ready_completion& one, ready_completions& several, int max) noexcept;
  /// Takes the next event if at least `threshold` events are queued. `count` is the number of queued events, after a
  /// success without the taken one.
  [[nodiscard]] bool take_from(record& out, std::uint32_t threshold, std::uint32_t& count) noexcept;
  /// Takes the next event, if `copy` copies it or it bypasses the ring: the result is `copied` or `one`. Then `left` is
  /// the number of queued events.
  template <class Copy>
  [[nodiscard]] found take_and_count(ready_completion& out, std::uint32_t& left, Copy copy) noexcept;
  /// Takes the next event straight from the device, if a wait may take it at once, and if it is the success of an
  /// operation of `kind`, on the endpoint `of` unless that is null. No thread becomes the waiter. `out` has no
  /// reference to its endpoint.
  [[nodiscard]] bool take_at_once(work_kind kind, const completion_owner* of, ready_completion& out) noexcept;
  /// Takes the first event that `wanted` accepts, leaving the others in order.
  template <class Predicate>
  [[nodiscard]] bool take_if(record& out, Predicate wanted) noexcept;
  /// The number of queued events.
  [[nodiscard]] std::uint32_t count_events() noexcept;
  /// True when an event is queued that wakes a waiter.
  [[nodiscard]] bool has_notification() noexcept;
  /// Moves completions from the device's queue to the ring.
  void drain() noexcept;
  /// A thread has become the waiter, or is about to end its wait.
  void mark_waiter(bool waits) noexcept { set_mark(waiter_mark, waits); }

  // --- appending -----------------------------------------------------------------------------------------------------

  /// Appends a connection event of an endpoint, after every queued completion; the endpoint's parked
  /// completions follow it. An event without room is lost, and the asynchronous evds get an overflow.
  void push_connection(record&& r, completion_owner& whose) noexcept;
  /// Appends a connection request. Returns false without room: the caller then refuses the request.
  [[nodiscard]] bool push_request(record&& r) noexcept { return push_if_room(std::move(r)); }
  /// Appends an asynchronous event. If there is no room, appends one overflow of this evd, which always has room, and
  /// then no event until there is room again (uDAPL 2.0 §6.3.1.3).
  void push_async(record&& r) noexcept;
  /// Appends a software event. Returns false without room.
  [[nodiscard]] bool push_software(dat::cookie posted) noexcept { return push_if_room(record(posted)); }

  // --- endpoints -----------------------------------------------------------------------------------------------------

  /// Reserves two places for the connection events of another endpoint.
  [[nodiscard]] expected<void> add_endpoint() noexcept;
  /// The endpoint has ended, or its connection events go to another evd.
  void remove_endpoint(const counted* whose) noexcept;
  /// Waits until no other thread is inside the evd with a pointer to an endpoint.
  void barrier() noexcept { const std::lock_guard lock(mutex_); }
  /// Drops the queued completions of an endpoint's previous life; with `all`, also those in the device's queue.
  void forget(ep_generation tag, bool all) noexcept;
  /// A new life begins: its completions wait for ESTABLISHED again.
  void expect_announcement(completion_owner& whose) noexcept;
  /// True when a message that has arrived on an endpoint waits for the endpoint's ESTABLISHED.
  [[nodiscard]] bool holds_message(ep_generation tag) noexcept;
  /// The number of posts of a queue that feeds the evd and that have not completed.
  [[nodiscard]] std::uint32_t count_not_completed(const work_ring& of) noexcept {
    const std::lock_guard lock(mutex_);
    drain_locked();
    return of.not_completed();
  }
  /// The watch that checks for broken connections after a notification or a new connection.
  [[nodiscard]] break_watch& breaks() noexcept { return breaks_; }

  // --- sinks ---------------------------------------------------------------------------------------------------------

  /// The evd for events that the consumer drops: the reactor takes and discards them. Each ia has one, while an
  /// endpoint needs it.
  [[nodiscard]] static result<ref<evd_core>> sink_of(const ref<ia_core>& ia) noexcept;
  [[nodiscard]] bool is_sink() const noexcept { return sink_.load(std::memory_order_relaxed); }
  void discard() noexcept;

  [[nodiscard]] expected<void> resize_merged(std::uint32_t n) noexcept; // with feed_mutex_ held
  /// Makes room for `fed` completions. Returns false when memory is exhausted.
  [[nodiscard]] bool reserve_completions(std::uint32_t fed) noexcept;

  // Used by the table that ia_child::type_for makes.
  ~merged_evd() = default;
  void teardown() noexcept;

private:
  static const child_type table;

  /// The marks of the lock: what a call that takes events must check first.
  enum : std::uint32_t {
    queued_mark = quick_mutex::first_mark, // the ring may have events
    waiter_mark = 2 * queued_mark,         // a thread waits
    manual_mark = 4 * queued_mark          // the ia has no service thread
  };
  void set_mark(std::uint32_t which, bool set) noexcept { set ? mutex_.mark(which) : mutex_.unmark(which); }

  void drain_locked() noexcept;
  /// The rest of take_ready and take_marked, with the lock held.
  template <class Copy>
  [[nodiscard, gnu::always_inline]] found take_locked(ready_completion& out, Copy copy) noexcept;
  [[nodiscard, gnu::always_inline]] found take_locked(ready_completion& one, ready_completions& several,
                                                      int max) noexcept;
  /// Whether the completion `c` of `e` is an ordinary success of a running connection, so that it bypasses the ring.
  [[nodiscard, gnu::always_inline]] bool is_ready(const ibv_wc& c, const work_entry& e) const noexcept {
    return is_plain_success(e, c) && e.ring().owner().may_bypass_ring(this);
  }
  /// Whether completions bypass the ring, although the lock has marks. Removes the mark of an empty ring.
  [[nodiscard]] bool bypasses_ring() noexcept;
  /// The rest of take_locked, for completions that are not ordinary successes of a running connection. Handles the `n`
  /// completions and the events after them.
  [[nodiscard]] found take_unready(int n, ready_completion& out) noexcept;
  /// The rest of take_unready, for all but an ordinary receive of a shared queue.
  [[nodiscard, gnu::cold]] found take_rare(int n, ready_completion& out) noexcept;
  /// Takes the first event of the ring, if it is a completion that `copy` copies.
  template <class Copy>
  [[nodiscard]] bool copy_first(Copy copy) noexcept;
  /// Takes the first of the `n` completions in `c` as the only one, if it is an ordinary success of a running
  /// connection: returns `one` or `copied`. Otherwise returns `none`.
  template <class Copy>
  [[nodiscard, gnu::always_inline]] found take_only(int n, const ibv_wc& c, ready_completion& out, Copy copy) noexcept;
  /// The rest of take_locked, for the `n` completions of `out` from `c` on.
  [[nodiscard]] found take_several(ready_completions& out, ibv_wc* c, int n, int max) noexcept;
  /// Whether a receive of a shared queue may bypass the ring. `ep` is its endpoint, or null. Names the life of the
  /// endpoint in `c`.
  [[nodiscard]] bool take_shared(ibv_wc& c, const completion_owner* ep) const noexcept;
  /// Takes the receive of `e` as the only completion, if it may bypass the ring.
  [[nodiscard]] bool take_shared(ready_completion& out, work_entry& e, completion_owner* ep) const noexcept;
  /// Appends a completion to the ring, if it is an event. Returns true when it wakes a waiter.
  [[nodiscard]] bool append(const ibv_wc& c, work_entry& e) noexcept;
  /// Wakes the waiter or triggers the cno.
  void announce() noexcept {
    arming().mark_notified();
    wake();
  }
  [[nodiscard]] bool wakes(const ibv_wc& c, const posted_work& posted) const noexcept;
  [[nodiscard]] bool push_if_room(record&& r) noexcept;
  /// Appends to the ring. Returns false without memory.
  [[nodiscard]] bool enqueue(record&& r) noexcept {
    mutex_.mark(queued_mark);
    return ring_.push(std::move(r));
  }
  void extract(std::uint32_t i, record& out) noexcept;
  /// A completion left the ring, taken or dropped: frees its work entry. Returns the endpoint, or null when it has
  /// ended.
  completion_owner* release_entry(const record& r) noexcept;
  [[nodiscard]] std::uint32_t completions() const noexcept {
    return ring_.size() - others_ - connection_events_ + parked_.size();
  }
  [[nodiscard]] std::uint32_t connection_places() const noexcept;
  [[nodiscard]] bool has_place_for(const completion_owner& whose) noexcept;
  [[nodiscard]] bool reserve_ring(std::uint32_t n) noexcept;
  void check_for_breaks() noexcept;
  /// Reports lost completions, on the reactor, because the thread that lost them holds the lock.
  void report_loss() noexcept;

  struct loss_task : task {
    merged_evd* self = nullptr;
  };

  quick_mutex mutex_;
  event_queue ring_;
  event_queue parked_;                  // completions of endpoints whose ESTABLISHED is not in the ring yet
  std::uint32_t others_ = 0;            // events in ring_ that are neither completions nor connection events
  std::uint32_t connection_events_ = 0; // connection events in ring_
  std::uint32_t endpoints_ = 0;         // number of endpoints whose connection events come here
  std::uint32_t room_for_completions_ = 0;
  bool connection_loss_reported_ = false; // since the evd last had room
  bool async_loss_reported_ = false;      // since the evd last had room
  std::atomic<bool> sink_{false};
  break_watch breaks_;
  loss_task loss_;
  ia_core::listener listener_;
};

inline constexpr child_type merged_evd::table = [] {
  child_type t = with_common(type_for<merged_evd>());
  t.on_async = [](ia_child& c, async_kind what, const async_info& info, const ref<counted>& endpoint) noexcept {
    static_cast<merged_evd&>(c).push_async(record(what, info, endpoint));
  };
  t.in_use = [](const ia_child& c) noexcept { return static_cast<const merged_evd&>(c).mutex_.in_use(); };
  return t;
}();

inline merged_evd* merged(evd_core* e) noexcept {
  return e && !is_completions_only(e->stream_set()) ? static_cast<merged_evd*>(e) : nullptr;
}

template <class Copy>
inline merged_evd::found merged_evd::take_only(int n, const ibv_wc& c, ready_completion& out, Copy copy) noexcept {
  work_entry* e;
  if (n != 1 || !find(c, e) || !is_plain_success(*e, c)) return found::none;
  completion_owner& owner = e->ring().owner();
  if (!owner.may_bypass_ring(this)) return found::none;
  const bool copied = copy(e->posted, c, owner);
  if (!copied) out.set(owner, e->posted);
  e->ring().retire_next(*e);
  return copied ? found::copied : found::one;
}

template <class Copy>
inline merged_evd::found merged_evd::take_locked(ready_completion& out, Copy copy) noexcept {
  const int n = poll(1, &out.wc);
  if (const found only = take_only(n, out.wc, out, copy); only != found::none) [[likely]]
    return only;
  return n == 0 ? found::none : take_unready(n, out);
}

inline merged_evd::found merged_evd::take_locked(ready_completion& one, ready_completions& several, int max) noexcept {
  ibv_wc* c = several.wc();
  const int n = poll(max, c);
  if (take_only(n, *c, one, copies_none{}) == found::one) [[likely]]
    return found::one;
  work_entry* e;
  if (n > 1 && find(*c, e) && is_ready(*c, *e)) {
    c += several.add_run(entries(), e, c, n);
    if (c == several.wc() + n) return n == max ? found::some : found::last;
  }
  return n == 0 ? found::none : take_several(several, c, n, max);
}

template <class Copy>
inline merged_evd::found merged_evd::take_ready(ready_completion& out, Copy copy) noexcept {
  if (!mutex_.try_lock_unmarked()) [[unlikely]]
    return found::marked;
  const std::lock_guard lock(mutex_, std::adopt_lock);
  return take_locked(out, copy);
}

template <class Copy>
merged_evd::found merged_evd::take_marked(ready_completion& out, Copy copy) noexcept {
  const std::lock_guard lock(mutex_);
  return bypasses_ring() ? take_locked(out, copy) : found::queued;
}

template <class Copy>
bool merged_evd::copy_first(Copy copy) noexcept {
  if (ring_.empty()) return false;
  const record& r = ring_.at(0);
  work_entry* e;
  if (r.what != record::kind::completion || r.wc.status != IBV_WC_SUCCESS || !find(r.wc, e)) return false;
  if (!copy(r.posted, r.wc, e->ring().owner())) return false;
  (void)release_entry(r);
  ring_.drop_first();
  return true;
}

template <class Copy>
merged_evd::found merged_evd::take_and_count(ready_completion& out, std::uint32_t& left, Copy copy) noexcept {
  const std::lock_guard lock(mutex_);
  found what = ring_.empty() ? take_locked(out, copy) : found::queued;
  drain_locked();
  if (what == found::queued && copy_first(copy)) what = found::copied;
  left = ring_.size();
  return what;
}

inline merged_evd::found merged_evd::take_ready(ready_completion& one, ready_completions& several, int max) noexcept {
  if (!mutex_.try_lock_unmarked()) [[unlikely]]
    return found::marked;
  const std::lock_guard lock(mutex_, std::adopt_lock);
  return take_locked(one, several, max);
}

template <class Predicate>
bool merged_evd::take_if(record& out, Predicate wanted) noexcept {
  const std::lock_guard lock(mutex_);
  drain_locked();
  for (std::uint32_t i = 0; i < ring_.size(); ++i)
    if (wanted(ring_.at(i))) {
      extract(i, out);
      return true;
    }
  return false;
}

}}} // namespace dat::v0::detail
