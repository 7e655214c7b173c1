// The part of an evd that polling needs.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/verbs/null_device.hpp>
#include <dat/detail/work/call_class.hpp>
#include <dat/detail/work/completion_owner.hpp>
#include <dat/detail/work/trace_points.hpp>
#include <dat/detail/work/work_arena.hpp>

#include <infiniband/verbs.h>

#include <cstddef>

namespace dat { inline namespace v0 { namespace detail {

/// An object of this class alone is an evd that is always empty. A handle that names no evd polls such an object.
class evd_polling : public taking_class<checked_build> {
public:
  constexpr evd_polling() noexcept = default;
  explicit evd_polling(const std::byte* entries) noexcept : entries_(entries) {}
  evd_polling(const evd_polling&) = delete;
  evd_polling& operator=(const evd_polling&) = delete;

  /// Takes up to `n` completions from the device, and returns their number. The result is negative when the device
  /// fails, and 0 for an evd that is closed or has no completion queue.
  [[gnu::always_inline]] int poll(int n, ibv_wc* wc) const noexcept {
    const int got = ibv_poll_cq(polled_, n, wc);
    if constexpr (trace_build)
      if (got > 0) trace_points::completed(entries(), wc, got);
    return got;
  }
  /// The entry of a completion; null when its endpoint has ended or was reset, so that it is no event.
  [[nodiscard]] work_entry* find(const ibv_wc& wc) const noexcept {
    work_entry* e;
    return find(wc, e) ? e : nullptr;
  }
  [[nodiscard, gnu::always_inline]] bool find(const ibv_wc& wc, work_entry*& e) const noexcept {
    return entries().find(wc.wr_id, e);
  }
  /// Must not be called for an evd that is always empty, because it has no entries.
  [[nodiscard, gnu::always_inline]] const work_entries& entries() const noexcept { return entries_; }
  /// The endpoint of that life if the life is the present one; otherwise null.
  [[nodiscard]] completion_owner* owner_of(ep_generation life) const noexcept {
    work_entry* e;
    return entries_.find(life, e) ? &e->ring().owner() : nullptr;
  }
  /// True while a cno is attached.
  [[nodiscard]] bool notifies_cno() const noexcept { return load_plain(notifies_cno_); }

protected:
  ~evd_polling() = default;
  ibv_cq* polled_ = null_device_instance.cq(); // the completion queue, or one that is always empty
  bool notifies_cno_ = false;

private:
  work_entries entries_; // finds the entry of a wr_id
};

inline constinit struct null_events final : evd_polling { constexpr null_events() noexcept = default; } null_evd;

/// Names what a handle polls. It is never null, so that a poll needs no check: without an evd, it names null_evd.
class polling_ref {
public:
  constexpr polling_ref() noexcept = default;
  explicit polling_ref(const evd_polling* evd) noexcept : evd_(evd) {}
  [[nodiscard]] const evd_polling& operator*() const noexcept { return *evd_; }

private:
  const evd_polling* evd_ = &null_evd;
};

}}} // namespace dat::v0::detail
