// Completions on their way from the device to the visitor that bypass the ring of a merged evd.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/verbs/wc_status.hpp>
#include <dat/detail/work/completion_owner.hpp>
#include <dat/detail/work/work_ring.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <new>

namespace dat { inline namespace v0 { namespace detail {

/// True for the success of an ordinary operation.
[[nodiscard, gnu::always_inline]] inline bool is_plain_success(const work_entry& e, const ibv_wc& c) noexcept {
  work_queue::tsan_acquire(e);
  return e.posted.is_plain_success(c.status);
}

/// True for the success of a receive of a shared queue.
[[nodiscard, gnu::always_inline]] inline bool is_shared_success(const work_entry& e, const ibv_wc& c) noexcept {
  work_queue::tsan_acquire(e);
  return c.status == IBV_WC_SUCCESS && e.posted.is_shared();
}

/// True for the success of an operation of `kind`, with nothing in its completion that changes its event. `kind` must
/// not have any of the flag bits of work_kind.
[[nodiscard, gnu::always_inline]] inline bool is_success_of(work_kind kind, const work_entry& e,
                                                            const ibv_wc& c) noexcept {
  work_queue::tsan_acquire(e);
  // One comparison suffices, because kinds and statuses have no bits in common.
  return (static_cast<std::int32_t>(e.posted.kind) | static_cast<std::int32_t>(c.status)) ==
             static_cast<std::int32_t>(kind) &&
         (c.wc_flags & relevant_flags) == 0;
}

/// One such completion. The caller that takes it owns a reference to the object of its endpoint.
struct ready_completion {
  ready_completion() noexcept {} // NOLINT: uninitialised, and read when a completion has been taken
  /// Takes a reference to the object of the endpoint.
  void set(completion_owner& of, const posted_work& work) noexcept {
    of.object().add_ref();
    ep = &of;
    ::new (static_cast<void*>(&posted)) posted_work(work);
  }
  ibv_wc wc;
  completion_owner* ep;
  union {
    posted_work posted;
  };
};

/// Several of them, in runs: completions of one queue that follow each other. Keeps the endpoints alive.
class ready_completions {
public:
  static constexpr int most = 32;
  /// `count` completions from `first` on, and the work that they complete.
  struct run {
    completion_owner* ep;
    const ibv_wc* first;
    const posted_work* posted;
    int count;
  };

  ready_completions() noexcept {} // leaves the arrays uninitialised: only added elements are read
  ready_completions(const ready_completions&) = delete;
  ready_completions& operator=(const ready_completions&) = delete;
  ~ready_completions() { clear(); }
  /// Releases the endpoints.
  void clear() noexcept {
    for (const run& r : *this) r.ep->object().release();
    runs_ = 0;
  }

  /// The array for up to `most` completions.
  [[nodiscard]] ibv_wc* wc() noexcept { return wc_; }

  // The following are called with the lock of the evd held, so that no endpoint can end.
  /// Adds the completion `c`, of `e`, and those behind it that are ordinary successes of the same queue, of the
  /// `n` completions from `c` on. They need no check of their own, and the last one frees the entries of all. Returns
  /// their number.
  int add_run(const work_entries& entries, work_entry* e, const ibv_wc* c, int n) noexcept {
    work_ring& ring = e->ring();
    run& added = add(ring.owner(), c);
    posted_work* posted = posted_ + (c - wc_);
    added.posted = posted;
    int left = n;
    work_entry* last;
    do {
      ::new (static_cast<void*>(posted++)) posted_work(e->posted);
      last = e;
    } while (--left != 0 && follows(entries, *last, *++c, e) && is_plain_success(*e, *c));
    ring.retire_next(*last);
    return added.count = n - left;
  }
  /// Adds the completion `c` alone.
  void add_one(completion_owner& ep, const posted_work& posted, const ibv_wc* c) noexcept {
    run& added = add(ep, c);
    added.posted = ::new (static_cast<void*>(posted_ + (c - wc_))) posted_work(posted);
    added.count = 1;
  }

  [[nodiscard]] bool empty() const noexcept { return runs_ == 0; }
  [[nodiscard]] const run* begin() const noexcept { return run_; }
  [[nodiscard]] const run* end() const noexcept { return run_ + runs_; }

private:
  /// Finds the entry of `c`, if it is in the ring of `last`. It is the next entry, unless requests between the two are
  /// suppressed.
  [[nodiscard, gnu::always_inline]] static bool follows(const work_entries& entries, const work_entry& last,
                                                        const ibv_wc& c, work_entry*& e) noexcept {
    e = last.next;
    if (load_plain(e->wr_id) == c.wr_id) [[likely]]
      return true;
    return entries.find(c.wr_id, e) && e->queue == last.queue;
  }
  [[nodiscard]] run& add(completion_owner& ep, const ibv_wc* c) noexcept {
    ep.object().add_ref();
    run& added = run_[runs_++];
    added.ep = &ep;
    added.first = c;
    return added;
  }

  std::uint32_t runs_ = 0;
  run run_[most];
  ibv_wc wc_[most];
  union {
    posted_work posted_[most];
  };
};

}}} // namespace dat::v0::detail
