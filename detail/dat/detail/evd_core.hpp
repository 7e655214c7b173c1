// Event queues. A lean one (DTO stream only) is a completion queue and nothing else; a merged one adds a ring in which
// the other streams' events and the drained completions stand in one order.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ep_attributes.hpp>
#include <dat/error.hpp>
#include <dat/streams.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/aside_queue.hpp>
#include <dat/detail/cno_core.hpp>
#include <dat/detail/event_queue.hpp>
#include <dat/detail/ia_core.hpp>
#include <dat/detail/null_device.hpp>

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <sys/poll.h>

namespace dat::inline v0::detail {

class ep_core;

class merged_evd;

/// What polling an evd needs. By itself it is an evd that has nothing: such a one stands in where a handle names none.
class evd_polling {
public:
  constexpr evd_polling() noexcept = default;
  explicit evd_polling(const std::byte* entries) noexcept : entries_(entries) {}
  evd_polling(const evd_polling&) = delete;
  evd_polling& operator=(const evd_polling&) = delete;

  /// Up to `n` completions, or a negative number. Nothing without a completion queue, and once the evd is closed.
  [[gnu::always_inline]] int poll(int n, ibv_wc* wc) const noexcept { return ibv_poll_cq(polled_, n, wc); }
  /// The entry of a completion; null when nothing is to be told of it.
  [[nodiscard]] work_entry* find(const ibv_wc& wc) const noexcept {
    work_entry* e;
    return find(wc, e) ? e : nullptr;
  }
  [[nodiscard, gnu::always_inline]] bool find(const ibv_wc& wc, work_entry*& e) const noexcept {
    return work_arena::find(entries_, wc.wr_id, e);
  }
  /// The endpoint that has this life now; null when it is over.
  [[nodiscard]] ep_core* owner_of(ep_tag life) const noexcept {
    work_entry* e;
    return work_arena::find(entries_, life, e) ? &e->ring().owner() : nullptr;
  }

protected:
  ~evd_polling() = default;
  ibv_cq* polled_ = nothing.cq(); // the completion queue, or one that is always empty

private:
  const std::byte* entries_ = nullptr; // where the wr_ids of the ia start
};

inline constinit struct no_events final : evd_polling { constexpr no_events() noexcept = default; } no_evd;

class evd_core : public ia_child, public evd_polling {
public:
  [[nodiscard]] static result<ref<evd_core>> create(const ref<ia_core>& ia, streams which, std::uint32_t qlen) noexcept;

  evd_core(ref<ia_core> ia, streams which, std::uint32_t qlen, const child_type& type = table) noexcept
      : ia_child(std::move(ia), type),
        evd_polling(this->ia().work.base()),
        streams_(which),
        qlen_(qlen),
        number_(this->ia().next_evd_number()) {
    glance_timer_.self = this;
    // Armed without a reference, which would keep an evd that nobody has any more: teardown waits for it.
    glance_timer_.fired = [](timer& t) noexcept { static_cast<glance_timer&>(t).self->glance_due(); };
    later_.self = this;
    later_.done = [](afterthought& a) noexcept {
      const ref<evd_core> self(static_cast<late_kick&>(a).self, adopt);
      self->kick_.raise();
    };
  }

  [[nodiscard]] streams which() const noexcept { return streams_; }
  [[nodiscard]] std::uint32_t qlen() const noexcept { return qlen_.load(std::memory_order_relaxed); }
  [[nodiscard]] ibv_cq* cq() const noexcept { return cq_; }
  /// What names the evd in notifications and errors: unique in its ia, and not used again.
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
  [[nodiscard]] error at(error e, const char* call) const noexcept { return e.at(call, object_kind::evd, number_); }
  [[nodiscard]] error closed(const char* call) const noexcept { return at(error(return_type::invalid_handle), call); }

  /// Arms the completion channel, if there is one and something feeds it: attach does it for what comes later, since
  /// a device that is armed for all completions cannot be armed for fewer. Returns 0 or errno.
  int arm() noexcept {
    if (!cq_ || feeding_.load(std::memory_order_seq_cst) == 0) return 0;
    armed_.store(true, std::memory_order_seq_cst); // before: it may fire at once
    const int err = ibv_req_notify_cq(cq_, mode() == waking::solicited_wait ? 1 : 0);
    if (err != 0) armed_.store(false, std::memory_order_relaxed);
    return err;
  }

  /// How completions wake: what all endpoints that feed this evd say (uDAPL 2.0 §6.3.1, §6.8.1).
  [[nodiscard]] waking mode() const noexcept { return mode_.load(std::memory_order_acquire); }
  /// Some events do not wake who waits.
  [[nodiscard]] bool is_choosy() const noexcept { return mode() != waking::evd_threshold; }
  /// Another queue of an endpoint feeds it, in that mode. `leaving` of those that feed it have no say any more.
  [[nodiscard]] expected<void> attach(waking f, bool requests, std::uint32_t leaving = 0) noexcept;
  void detach() noexcept;
  /// The mode before an attach that came to nothing.
  void feed_as(waking f) noexcept;
  /// What wakes has come since this was last asked.
  [[nodiscard]] bool take_notice() noexcept { return noticed_.exchange(false, std::memory_order_seq_cst); }
  void notice() noexcept { noticed_.store(true, std::memory_order_seq_cst); }
  /// The device is not armed any more since this was last asked: its notice was consumed.
  [[nodiscard]] bool take_fired() noexcept { return fired_.exchange(false, std::memory_order_seq_cst); }
  /// How many events who waits asked for.
  std::atomic<std::uint32_t> awaited{1};

  /// Sleeps until a completion or kick arrives, the ia closes, the reactor has work (manual progress), or the deadline
  /// passes. Returns an error for the last, for signals, and for a closed ia; the caller looks into its queue else.
  [[nodiscard]] expected<void> sleep(const deadline& until) noexcept;

  /// Lets waits fail, and ends the one that is under way; or lets them be again.
  void set_waitable(bool waitable) noexcept;
  [[nodiscard]] bool waitable() const noexcept { return waitable_.load(std::memory_order_acquire); }
  /// Changes each time waiting is forbidden: a waiter that sees it change has to leave, even if it is allowed by then.
  [[nodiscard]] std::uint32_t forbidden() const noexcept { return forbidden_.load(std::memory_order_seq_cst); }
  /// Ends the wait that is under way, or else the next one.
  void interrupt() noexcept {
    interrupted_.store(true,
                       std::memory_order_seq_cst); // before looking for a waiter, who looks for this after it came
    wake();
  }
  /// Whether it was interrupted since this was last asked.
  [[nodiscard]] bool take_interrupt() noexcept {
    return interrupted_.load(std::memory_order_seq_cst) && interrupted_.exchange(false, std::memory_order_seq_cst);
  }
  /// The descriptor that wakes the waiter; a lean evd gets it with its first wait. Returns 0 or errno.
  [[nodiscard]] int open_kick() noexcept { return kick_.get() >= 0 ? 0 : kick_.open(); }
  /// Before the waiter arms the device: reads what it was told of when it slept last. Only now, on the way to sleep
  /// again: the way back then is as short as it can be.
  void read_channel() noexcept {
    if (unread_) take_channel_events();
  }

  // A poll of the device that fails says no more than that. Calls that wait for an answer tell of it; what fails where
  // nobody waits is told of once, by an asynchronous event.
  void poll_failed() noexcept { poll_failed_.store(true, std::memory_order_seq_cst); }
  [[nodiscard]] bool take_poll_failure() noexcept {
    return poll_failed_.load(std::memory_order_seq_cst) && poll_failed_.exchange(false, std::memory_order_seq_cst);
  }
  [[nodiscard]] error poll_error(const char* call) const noexcept {
    return at(map_errno(EIO).from("ibv_poll_cq", EIO), call).hint("the device failed; what was posted is still there");
  }
  void tell_poll_failure() noexcept {
    if (take_poll_failure() && !poll_failure_told_.exchange(true, std::memory_order_relaxed))
      ia().failed_inside("ibv_poll_cq", EIO, number());
  }

  /// Notifies `cno` from now on, and no other; null: none. Returns what keeps the device's events from being watched.
  [[nodiscard]] expected<void> set_cno(ref<cno_core> cno) noexcept;
  /// Whether events notify the cno.
  void set_enabled(bool enabled) noexcept;
  [[nodiscard]] bool enabled() const noexcept { return enabled_.load(std::memory_order_acquire); }
  [[nodiscard]] bool has_cno() noexcept {
    const std::lock_guard lock(cno_mutex_);
    return static_cast<bool>(cno_);
  }

  /// What the consumer may know of it.
  [[nodiscard]] const cno_core* cno() noexcept {
    const std::lock_guard lock(cno_mutex_);
    return cno_.get();
  }

  /// Room for at least `n` events from now on.
  [[nodiscard]] expected<void> resize(std::uint32_t n) noexcept;

  /// Completions were lost: the evd gives what it still holds, and nothing else. False when that was known.
  [[nodiscard]] bool lost_completions() noexcept {
    const bool first = !overflowed_.exchange(true, std::memory_order_seq_cst);
    if (first) wake();
    return first;
  }
  [[nodiscard]] bool overflowed() const noexcept { return overflowed_.load(std::memory_order_seq_cst); }

  /// From now on a connection's completions come here: the reactor looks now and then whether it has broken, also if
  /// nobody takes the completions. Until unguard. May be called with the endpoint locked.
  void guard() noexcept;
  void unguard() noexcept { guarded_.fetch_sub(1, std::memory_order_relaxed); }

  /// Frees the buffers of shared queues that stand in the completion queue for a queue pair that is about to go: some
  /// devices drop its completions then, and nothing would ever tell of them. The others are kept, in their order.
  /// Nobody may be taking meanwhile.
  void drop_shared(std::uint32_t qp_num) noexcept;

  std::atomic<std::uint32_t> users{0}; ///< endpoints and service points that feed it
  std::atomic<bool> waited{false};     ///< one waiter at a time (uDAPL 2.0 §6.3.4.10)
  /// The waiter sleeps, or is about to and has still to look at all that it waits for: it is to be kicked, once. At
  /// other times it looks by itself.
  std::atomic<bool> asleep{false};

protected:
  friend class ia_child;
  ~evd_core() = default;
  void teardown() noexcept;
  static constexpr child_kind kind_of_child = child_kind::events;
  static const child_type table;
  /// An abrupt close of the ia has woken the waiter; what it uses may go only when it has left.
  void await_waiter() const noexcept;
  [[nodiscard]] expected<void> create_queue(const char* call) noexcept;
  [[nodiscard]] std::uint32_t queue_depth(std::uint32_t n) const noexcept;
  [[nodiscard]] expected<void> check_length(std::uint32_t n, const char* call) const noexcept;
  [[nodiscard]] expected<void> resize_queue(std::uint32_t n) noexcept;
  /// Something is there: wakes the waiter, or else notifies the cno. Called with or without the lock of a merged evd.
  void wake() noexcept {
    if (waited.load(std::memory_order_seq_cst))
      kick();
    else
      notify();
  }
  /// After whatever the waiter is to see has been written.
  void kick() noexcept {
    if (!asleep.load(std::memory_order_seq_cst) || !asleep.exchange(false, std::memory_order_seq_cst)) return;
    // The reactor has locks here that the waiter would run into.
    if (try_add_ref()) {
      if (ia().reactor.put_off(later_)) return;
      release();
    }
    kick_.raise();
  }
  void notify() noexcept;
  /// The device has told of something. With solicited completions that is what wakes, for it says not of which.
  void device_fired() noexcept {
    armed_.store(false, std::memory_order_seq_cst);
    fired_.store(true, std::memory_order_seq_cst);
    if (mode() == waking::solicited_wait) notice();
  }
  /// Ends the connection to cno and reactor.
  void detach_cno() noexcept;

  /// How the reactor sees what the device tells: not, now and then, or all.
  enum class watching : std::uint8_t { off, sometimes, always };
  /// With cno_mutex_ held.
  void set_mode(waking f) noexcept {
    if (mode_.exchange(f, std::memory_order_acq_rel) != f) armed_.store(false, std::memory_order_seq_cst);
  }
  /// At least that. Returns 0 or errno. With cno_mutex_ held.
  [[nodiscard]] int watch_channel(watching how) noexcept;

private:
  friend class merged_evd;
  struct channel_source : event_source {
    evd_core* self;
  };
  static void on_channel(event_source& s) noexcept { static_cast<channel_source&>(s).self->channel_ready(); }
  void channel_ready() noexcept;
  /// Arms the device and tells the cno of what may be there already.
  void arm_for_cno() noexcept;
  void take_channel_events() noexcept;
  /// The reactor has polled: who waits is to see a failure, or else all are told.
  void answer_poll_failure() noexcept {
    if (waited.load(std::memory_order_seq_cst))
      kick();
    else
      tell_poll_failure();
  }

  streams streams_;
  std::atomic<std::uint32_t> qlen_;
  std::atomic<bool> waitable_{true};
  std::atomic<bool> overflowed_{false};
  std::atomic<waking> mode_{waking::evd_threshold}; // written with cno_mutex_ held
  std::atomic<std::uint32_t> feeding_{0};           // likewise: queues of endpoints
  std::atomic<bool> noticed_{false};
  std::atomic<bool> fired_{false};
  std::atomic<bool> armed_{false}; ///< the device is, or its notice has not been read; false where that is not known
  std::atomic<bool> spent_{false}; ///< the reactor was told once, and does not watch until watch_channel
  std::atomic<std::uint32_t> forbidden_{0};
  std::atomic<bool> interrupted_{false};
  wake_fd kick_;
  struct late_kick : afterthought {
    evd_core* self = nullptr;
  };
  late_kick later_;
  ibv_cq* cq_ = nullptr;
  owned<aside_queue, delete_object<aside_queue>> aside_; // guarded by cno_mutex_; see drop_shared
  ibv_comp_channel* channel_ = nullptr;
  unsigned unacked_ = 0; // the waiter's, as is what follows
  bool unread_ = false;  // the channel has something for it
  std::atomic<bool> poll_failed_{false};
  std::atomic<bool> poll_failure_told_{false};
  std::uint32_t number_;
  std::atomic<bool> enabled_{true};
  std::mutex cno_mutex_; // guards cno_; a leaf
  ref<cno_core> cno_;
  std::atomic<watching> watching_{watching::off}; // written with cno_mutex_ held
  // The watch for connections that break while nobody looks at their completions.
  struct glance_timer : timer {
    evd_core* self = nullptr;
  };
  void glance_later() noexcept;
  void glance_due() noexcept;
  void glance() noexcept;
  std::atomic<std::uint32_t> guarded_{0}; // connections
  std::atomic<bool> glance_due_{false};   // glance_timer_ is armed
  std::atomic<bool> glancing_{false};
  std::atomic<bool> completed_{false}; // something has, since the last glance
  glance_timer glance_timer_;
  channel_source channel_source_{{&on_channel}, this};
};

/// Completions that were taken from the device without a stop in the ring. Their endpoints stay until it goes.
class ready_completions {
public:
  static constexpr std::uint32_t most = 16;
  struct item {
    ep_core* ep;
    const ibv_wc* wc;
    posted_work posted;
  };

  ready_completions() noexcept {} // nothing of it is read before it is written
  ready_completions(const ready_completions&) = delete;
  ready_completions& operator=(const ready_completions&) = delete;
  ~ready_completions();

  [[nodiscard]] ibv_wc* room() noexcept { return wc_; }
  /// With the lock of the evd held, so that the endpoint is there: completions of `ep` follow.
  void begin_run(ep_core& ep) noexcept;
  void add(ep_core& ep, const ibv_wc& wc, const posted_work& posted) noexcept {
    ::new (static_cast<void*>(items_ + size_)) item{&ep, &wc, posted};
    ++size_;
  }
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] const item* begin() const noexcept { return items_; }
  [[nodiscard]] const item* end() const noexcept { return items_ + size_; }

private:
  std::uint32_t size_ = 0;
  std::uint32_t kept_ = 0;
  ibv_wc wc_[most];
  ep_core* keeps_[most]; // the first kept_ of them, not the same one twice in a row
  union {
    item items_[most];
  };
};

/// A merged evd. Lock order: endpoint before evd, so nothing here calls into an endpoint with the lock held.
class merged_evd final : public evd_core {
public:
  merged_evd(ref<ia_core> ia, streams which, std::uint32_t qlen) noexcept
      : evd_core(std::move(ia), which, qlen, table) {}

  /// Room for the ring and the descriptor that wakes a waiter.
  [[nodiscard]] expected<void> prepare(const char* call) noexcept;

  /// Takes the next event; false when there is none. `left` stand in the ring then.
  [[nodiscard]] bool take(record& out, std::uint32_t& left) noexcept;
  enum class found : std::uint8_t { none, ready, queued };
  /// Takes up to `max` completions that are next, past the ring. `queued`: what is next stands in the ring.
  [[nodiscard]] found take_ready(ready_completions& out, std::uint32_t max) noexcept;
  /// Takes the next event if at least `threshold` are there. `count` is how many there are, or are left.
  [[nodiscard]] bool take_from(record& out, std::uint32_t threshold, std::uint32_t& count) noexcept;
  /// Takes the first event that `wanted` accepts, leaving the others in order.
  template <class Predicate>
  [[nodiscard]] bool take_if(record& out, Predicate wanted) noexcept;
  /// Appends a connection event of an endpoint, after every completion that is there already; the endpoint's parked
  /// completions follow it. When the queue is full the event is lost, and the asynchronous evds are told.
  void push_connection(record&& r, ep_core& whose) noexcept;
  /// Appends a connection request, unless the queue is full: then false, and the caller refuses the request.
  [[nodiscard]] bool push_request(record&& r) noexcept { return push_if_room(std::move(r)); }
  /// Appends an asynchronous event; when the queue is full, an overflow of this evd in its place, for which there is
  /// always room, and nothing more until there is room again (uDAPL 2.0 §6.3.1.3).
  void push_async(record&& r) noexcept;
  /// Appends a software event, unless the queue is full.
  [[nodiscard]] bool push_software(dat::cookie posted) noexcept { return push_if_room(record(posted)); }
  [[nodiscard]] expected<void> resize_merged(std::uint32_t n) noexcept;

  /// Whether something is there that wakes.
  [[nodiscard]] bool has_notification() noexcept;
  /// Whether anything is there.
  [[nodiscard]] bool look() noexcept;
  /// Moves completions from the queue of the device to the ring.
  void drain() noexcept {
    {
      const std::lock_guard lock(mutex_);
      drain_locked(qlen());
    }
    if (sink_) discard();
  }
  /// Makes it the evd of streams that nobody wants: what comes is looked at by the reactor, and dropped.
  [[nodiscard]] static result<ref<evd_core>> create_sink(const ref<ia_core>& ia, streams which,
                                                         std::uint32_t qlen) noexcept;
  [[nodiscard]] bool is_sink() const noexcept { return sink_; }
  /// Takes and drops all that is there.
  void discard() noexcept;
  /// Waits until no other thread is inside with a pointer to an endpoint it looked up.
  void barrier() noexcept { const std::lock_guard lock(mutex_); }
  /// Drops the parked completions of an endpoint's old life; with `all`, also those in the ring and those that the
  /// device still has.
  void forget(ep_tag tag, bool all) noexcept;
  /// A new life: completions wait for its ESTABLISHED again.
  void expect_announcement(ep_core& whose) noexcept;

private:
  friend class ia_child;
  friend class evd_core;
  ~merged_evd() = default;
  void teardown() noexcept;
  static const child_type table;
  /// Until that many events are queued, or the completion queue is empty.
  void drain_locked(std::uint32_t limit) noexcept;
  /// Appends a completion to the ring, if it is an event. True when it wakes.
  bool set_aside(const ibv_wc& c, work_entry& e) noexcept;
  /// Tells of what was set aside.
  void announce() noexcept {
    notice();
    wake();
  }
  [[nodiscard]] bool wakes(const ibv_wc& c, const posted_work& posted) const noexcept;
  [[nodiscard]] bool push_if_room(record&& r) noexcept;
  void extract(std::uint32_t i, record& out) noexcept;
  /// A completion that was set aside has been taken, or is dropped: what it stands for is free. Gives its endpoint, if
  /// that is still there.
  ep_core* release_entry(const record& r) noexcept;
  /// Completions that are queued. They and all other events are counted apart, each against the length of the evd: a
  /// flood of one kind never costs an event of another.
  [[nodiscard]] std::uint32_t completions() const noexcept { return ring_.size() - others_ + parked_.size(); }

  std::mutex mutex_;
  event_queue ring_;
  event_queue parked_;       // completions of endpoints whose ESTABLISHED is not queued yet
  std::uint32_t others_ = 0; // events in ring_ that are not completions
  bool told_lost_ = false;   // of lost connection events, since there was room
  bool told_full_ = false;   // of lost asynchronous events, since there was room
  bool sink_ = false;
  ia_core::listener listener_;
};

inline constexpr child_type evd_core::table = type_for<evd_core>();
inline constexpr child_type merged_evd::table = type_for<merged_evd>();

/// The merged evd behind `e`, or null when it is lean.
[[nodiscard]] inline merged_evd* merged(evd_core* e) noexcept {
  return e && !is_lean(e->which()) ? static_cast<merged_evd*>(e) : nullptr;
}

} // namespace dat::inline v0::detail
