// The event queue behind dat::evd: its completion queue, its waiter, its cno and the queues that feed it.
//
// A completions-only evd (dat::stream::dto) is a completion queue and nothing else. A merged evd (merged_evd.hpp)
// adds a ring, in which the completions and the events of the other streams have one order.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/checked.hpp>
#include <dat/ep_attributes.hpp>
#include <dat/error.hpp>
#include <dat/streams.hpp>

#include <dat/detail/adapter/ia_core.hpp>
#include <dat/detail/base/control_mutex.hpp>
#include <dat/detail/base/deadline.hpp>
#include <dat/detail/events/cno_core.hpp>
#include <dat/detail/events/cq_arming.hpp>
#include <dat/detail/events/evd_polling.hpp>
#include <dat/detail/events/wakeup.hpp>

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <sched.h>

namespace dat { inline namespace v0 { namespace detail {

class merged_evd;

/// A queue of an endpoint whose completions go to an evd.
struct evd_feed {
  completion_notification mode = completion_notification::evd_threshold;
  std::uint32_t entries = 0;    ///< the largest number of its completions in the evd
  bool requests = false;        ///< true for requests, false for receives
  const void* shared = nullptr; ///< the srq of the receives, if any: its endpoints need room for its entries once
};

/// Feeds of an evd that are about to detach. They have no completions, and need not agree on the mode.
struct leaving_feeds {
  std::uint32_t count = 0;
  std::uint32_t entries = 0; ///< the completions that they reserve, those of an srq left out
};

class evd_core : public ia_child, public evd_polling {
public:
  /// Without a `vector`, evds take the completion vectors of the device in turn.
  [[nodiscard]] static result<ref<evd_core>> create(const ref<ia_core>& ia, streams which, std::uint32_t qlen,
                                                    std::optional<std::uint32_t> vector = {}) noexcept;
  evd_core(ref<ia_core> ia, streams which, std::uint32_t qlen, const child_type& type = table) noexcept;

  [[nodiscard]] streams stream_set() const noexcept { return streams_; }
  [[nodiscard]] std::uint32_t qlen() const noexcept { return qlen_.load(std::memory_order_relaxed); }
  [[nodiscard]] ibv_cq* cq() const noexcept { return cq_; }
  [[nodiscard]] std::uint32_t completion_vector() const noexcept { return vector_; }
  /// Names the evd in notifications and errors: unique in its ia, and not used again.
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
  [[nodiscard]] error at(error e, const char* call) const noexcept { return e.at(call, object_kind::evd, number_); }
  [[nodiscard]] error closed(const char* call) const noexcept { return at(error(return_type::invalid_handle), call); }
  /// Makes room for at least `n` events.
  [[nodiscard]] expected<void> resize(std::uint32_t n) noexcept;

  std::atomic<std::uint32_t> users{0}; ///< number of endpoints and service points that feed the evd

  // --- the queues that feed it ---------------------------------------------------------------------------------------

  /// Adds a queue of an endpoint. Makes room for all its completions, and for `more` of a queue that is attached next,
  /// or refuses with `insufficient_resources` and the number of events needed.
  [[nodiscard]] expected<void> attach(const evd_feed& f, const leaving_feeds& leaving, std::uint32_t more = 0) noexcept;
  void detach(const evd_feed& f) noexcept;
  /// The mode of a queue whose consumer has chosen none: selective if the queues that feed the evd now are so, or if it
  /// is `shared` (the receives of an srq) and the evd may have that mode; otherwise evd_threshold.
  [[nodiscard]] completion_notification usual_mode(bool shared) noexcept;
  /// Restores the mode after an attach was undone.
  void restore_mode(completion_notification f) noexcept;
  /// Makes room before an srq that feeds the evd grows.
  [[nodiscard]] expected<void> grow_feed(const void* shared, std::uint32_t entries) noexcept;
  /// A connection completes on this evd from now on: a merged evd detects when it breaks, even if no thread takes its
  /// completions. The endpoint may be locked.
  void watch_connection() noexcept;
  void unwatch_connection() noexcept;

  // --- waiting -------------------------------------------------------------------------------------------------------

  [[nodiscard]] wakeup& waking() noexcept { return wakeup_; }
  [[nodiscard]] cq_arming& arming() noexcept { return arming_; }
  [[nodiscard]] completion_notification mode() const noexcept { return arming_.mode(); }
  [[nodiscard]] bool has_waiter() const noexcept { return wakeup_.has_waiter(); }
  [[nodiscard]] bool waitable() const noexcept { return wakeup_.allowed(); }
  /// Sleeps until a completion or wake-up arrives, the ia closes, the reactor has work (manual progress), or the
  /// deadline passes. Fails at the deadline, for a signal, for a closed ia, and for a removed device; otherwise the
  /// caller checks for events.
  [[nodiscard]] expected<void> sleep(const deadline& until) noexcept;
  /// Forbids or allows waiting; forbidding ends the present wait.
  void set_waitable(bool waitable) noexcept {
    wakeup_.allow(waitable);
    note_change();
    if (!waitable) wake();
  }
  /// Ends the present wait or, if no thread waits, the next one.
  void interrupt() noexcept {
    wakeup_.interrupt();
    wake();
  }
  /// The number of events that the waiter needs; 0 while no thread waits, and for a moment after a wait has begun.
  std::atomic<std::uint32_t> awaited{0};
  /// Whether a thread waits for more than one event.
  [[nodiscard]] bool awaits_several() const noexcept {
    std::uint32_t n = 0;
    while (has_waiter() && (n = awaited.load(std::memory_order_relaxed)) == 0) ::sched_yield();
    return n > 1;
  }

  /// Counts the changes of the values that a query reports, each after it was made. A query reads all values again when
  /// the count has changed while it read them.
  [[nodiscard]] std::uint32_t changes() const noexcept { return changes_.load(std::memory_order_seq_cst); }

  // --- failures ------------------------------------------------------------------------------------------------------

  // The device reports no details of a failed poll. A wait or dequeue returns the failure; otherwise one asynchronous
  // event reports the first failure.
  void note_poll_failure() noexcept { poll_failed_.store(true, std::memory_order_seq_cst); }
  [[nodiscard]] bool take_poll_failure() noexcept {
    return poll_failed_.load(std::memory_order_seq_cst) && poll_failed_.exchange(false, std::memory_order_seq_cst);
  }
  [[nodiscard]] error poll_error(const char* call) const noexcept;
  void report_poll_failure() noexcept;

  /// Records lost completions: the evd delivers the events that it still holds, and no others. Returns false when the
  /// loss was recorded before.
  [[nodiscard]] bool lost_completions() noexcept {
    const bool first = !overflowed_.exchange(true, std::memory_order_seq_cst);
    if constexpr (checked_build)
      if (first)
        report_misuse({checked::finding::evd_overflow, "evd", "", "evd", number_, nullptr, nullptr,
                       "The evd has lost completions: take the completions of an endpoint before its reset, and create "
                       "the evd with room for all operations that can complete."});
    if (first) wake();
    return first;
  }
  /// An endpoint has ended with outstanding operations, which get no completions.
  void left_outstanding() noexcept { left_outstanding_.store(true, std::memory_order_relaxed); }
  /// No event came in time.
  [[nodiscard]] error expired(const char* call) const noexcept;
  /// The device reports that the completion queue overran.
  void queue_failed() noexcept;
  [[nodiscard]] bool overflowed() const noexcept { return overflowed_.load(std::memory_order_seq_cst); }

  // --- the cno -------------------------------------------------------------------------------------------------------

  /// Attaches `cno` and detaches the present one; null: only detaches.
  [[nodiscard]] expected<void> set_cno(ref<cno_core> cno) noexcept;
  [[nodiscard]] const cno_core* cno() noexcept {
    const std::lock_guard lock(cno_mutex_);
    return cno_.get();
  }
  /// Enables or disables notifications of the cno.
  void set_enabled(bool enabled) noexcept;
  [[nodiscard]] bool enabled() const noexcept { return enabled_.load(std::memory_order_acquire); }
  /// Triggers the cno.
  void notify() noexcept;

  // Used by the table that ia_child::type_for makes.
  ~evd_core();
  void teardown() noexcept;
  static constexpr child_kind kind_of_child = child_kind::events;

protected:
  static const child_type table;
  /// Adds the functions that all kinds of evds have in common.
  [[nodiscard]] static constexpr child_type with_common(child_type t) noexcept {
    t.on_device = [](ia_child& c, const device_report&) noexcept { static_cast<evd_core&>(c).queue_failed(); };
    t.on_close = [](ia_child& c) noexcept { static_cast<evd_core&>(c).wakeup_.kick(); };
    return t;
  }

  /// Called after an event was queued, with or without the lock of a merged evd: wakes the waiter, or else triggers the
  /// cno.
  void wake() noexcept {
    if (wakeup_.has_waiter())
      wakeup_.kick();
    else
      notify();
  }
  /// After an abrupt close of the ia: wakes the waiter, and waits until it has left the evd. A visitor that closes the
  /// ia runs in the waiter itself.
  void await_waiter() noexcept;
  [[nodiscard]] expected<void> create_queue(const char* call, std::optional<std::uint32_t> vector) noexcept;
  [[nodiscard]] expected<void> check_length(std::uint32_t n, const char* call) const noexcept;
  [[nodiscard]] expected<void> resize_queue(std::uint32_t n) noexcept; // called with feed_mutex_ held
  /// The largest number of completions that the attached queues can have in the evd. Called with feed_mutex_ held.
  [[nodiscard]] std::uint32_t fed() const noexcept { return fed_; }
  /// Removes the channel from the reactor and ends the attachment to the cno.
  void detach_cno() noexcept;

  // Whether the reactor watches the completion channel, and for the next notification only or for all. A dead channel
  // stays unwatched.
  enum class watching : std::uint8_t { off, once, always, dead };
  /// Watches at least as `how`. Returns 0 or errno. Called with cno_mutex_ held.
  [[nodiscard]] int watch_channel(watching how) noexcept;
  void watch_again() noexcept;
  [[nodiscard]] watching channel_watched() const noexcept { return watching_.load(std::memory_order_acquire); }
  /// Reports a failed poll of the reactor: to a waiter, or as an asynchronous event.
  void answer_poll_failure() noexcept;
  [[nodiscard]] bool poll_has_failed() const noexcept { return poll_failed_.load(std::memory_order_relaxed); }

  control_mutex feed_mutex_; // guards the feeds and the size of the evd; taken before the lock of a merged evd
  control_mutex cno_mutex_;  // guards cno_ and its flags; a leaf

private:
  struct channel_source : event_source {
    evd_core* self;
  };
  /// The entries of an srq that feeds the evd, counted once for all its endpoints.
  struct shared_feed {
    const void* srq;
    std::uint32_t entries;
    std::uint32_t users;
    shared_feed* next;
  };

  void channel_ready() noexcept;
  void channel_failed(int err) noexcept;
  /// Arms the device, and triggers the cno for events that are already queued.
  void arm_for_cno() noexcept;
  void note_change() noexcept { changes_.fetch_add(1, std::memory_order_seq_cst); }
  [[nodiscard]] std::uint32_t queue_depth(std::uint32_t n) const noexcept;
  [[nodiscard]] expected<void> check_mode(const evd_feed& f, std::uint32_t leaving) const noexcept;
  // The following members are called with feed_mutex_ held.
  /// `leaving`: the entries of feeds that are about to be removed.
  [[nodiscard]] expected<void> add_entries(const evd_feed& f, std::uint32_t more, std::uint32_t leaving) noexcept;
  void remove_entries(const evd_feed& f) noexcept;
  [[nodiscard]] expected<void> make_room(std::uint32_t entries) noexcept;
  [[nodiscard]] shared_feed** find_shared(const void* srq) noexcept;

  streams streams_;
  std::atomic<std::uint32_t> qlen_;
  std::uint32_t number_;
  std::uint32_t vector_ = 0;
  ibv_cq* cq_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  wakeup wakeup_;
  cq_arming arming_;
  std::atomic<bool> overflowed_{false};
  std::atomic<bool> poll_failed_{false};
  std::atomic<bool> poll_failure_reported_{false};
  std::atomic<bool> left_outstanding_{false};
  std::uint32_t fed_ = 0;         // with feed_mutex_ held
  shared_feed* shared_ = nullptr; // with feed_mutex_ held
  std::atomic<bool> enabled_{true};
  std::atomic<std::uint32_t> changes_{0};
  ref<cno_core> cno_;
  std::atomic<watching> watching_{watching::off}; // written with cno_mutex_ held
  int channel_failures_ = 0;                      // consecutive failures; used by the reactor only
  channel_source channel_source_;
};

inline constexpr child_type evd_core::table = with_common(type_for<evd_core>());

/// The merged evd behind `e`; null for a completions-only evd, and for null.
[[nodiscard]] inline merged_evd* merged(evd_core* e) noexcept;

/// The evd for the asynchronous events of a new ia: `given` or, if that is null, a new one.
[[nodiscard]] result<ref<evd_core>> async_evd_for(ia_core& ia, evd_core* given, std::uint32_t qlen) noexcept;

}}} // namespace dat::v0::detail

#include <dat/detail/events/merged_evd.hpp>
