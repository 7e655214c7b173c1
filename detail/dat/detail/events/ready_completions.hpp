// Completions on their way from the device to the visitor that bypass the ring of a merged evd.
// SPDX-License-Identifier: BSL-1.0
#pragma once

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

/// One such completion. The caller that takes it owns a reference to the object of its endpoint.
struct ready_completion {
  ready_completion() noexcept {} // NOLINT: uninitialised, and read when a completion has been taken
  ibv_wc wc;
  completion_owner* ep;
  posted_work posted;
};

/// Several of them. Keeps the endpoints of the completions alive.
class ready_completions {
public:
  static constexpr std::uint32_t most = 16;
  struct item {
    completion_owner* ep;
    const ibv_wc* wc;
    posted_work posted;
  };

  ready_completions() noexcept {} // leaves the arrays uninitialised: only added elements are read
  ready_completions(const ready_completions&) = delete;
  ready_completions& operator=(const ready_completions&) = delete;
  ~ready_completions();

  [[nodiscard]] ibv_wc* room() noexcept { return wc_; }
  /// The completions that are added next belong to `ep`. Called with the lock of the evd held, so that the endpoint
  /// cannot end.
  void begin_run(completion_owner& ep) noexcept;
  void add(completion_owner& ep, const ibv_wc& wc, const posted_work& posted) noexcept {
    ::new (static_cast<void*>(items_ + size_)) item{&ep, &wc, posted};
    ++size_;
  }
  /// Adds the completion `c` of `e`, and those behind it up to `end` that are ordinary successes of the same queue.
  /// They need no check of their own, and the last one frees the entries of all. Returns the next completion.
  [[nodiscard]] const ibv_wc* add_run(const work_entries& entries, work_entry* e, const ibv_wc* c,
                                      const ibv_wc* end) noexcept {
    work_ring& ring = e->ring();
    completion_owner& owner = ring.owner();
    begin_run(owner);
    item* to = items_ + size_;
    work_entry* last;
    do {
      ::new (static_cast<void*>(to++)) item{&owner, c++, e->posted};
      last = e;
    } while (c != end && entries.find(c->wr_id, e) && e->queue == &ring && is_plain_success(*e, *c));
    size_ = static_cast<std::uint32_t>(to - items_);
    ring.retire_next(*last);
    return c;
  }
  /// Whether the evd had further events, or may have had them.
  void set_more(bool more) noexcept { more_ = more; }
  [[nodiscard]] bool more() const noexcept { return more_; }
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] const item* begin() const noexcept { return items_; }
  [[nodiscard]] const item* end() const noexcept { return items_ + size_; }

private:
  std::uint32_t size_ = 0;
  std::uint32_t kept_ = 0;
  bool more_ = true;
  ibv_wc wc_[most];
  counted* keeps_[most]; // references: kept_ of them, no endpoint twice in a row
  union {
    item items_[most];
  };
};

}}} // namespace dat::v0::detail
