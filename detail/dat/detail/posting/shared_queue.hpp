// A shared receive queue as posts and completions see it: free entries, and the endpoints that draw from it.
//
// The device uses a buffer for whichever endpoint has a message, so nothing here is a ring: a completion leads to its
// entry by the wr_id, and to its endpoint by the number of the queue pair. Posts and completions take no lock.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <dat/detail/base/config.hpp>
#include <dat/detail/posting/endpoint_table.hpp>
#include <dat/detail/request/work_request.hpp>
#include <dat/detail/verbs/empty_receive.hpp>
#include <dat/detail/verbs/null_device.hpp>
#include <dat/detail/work/call_class.hpp>
#include <dat/detail/work/completion_owner.hpp>
#include <dat/detail/work/trace_points.hpp>
#include <dat/detail/work/work_ring.hpp>

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace dat { inline namespace v0 { namespace detail {

/// The base of every shared receive queue. An object of this class without a derived one acts as a queue that has
/// ended: posts through an empty handle use such an object.
class shared_queue : public work_queue {
public:
  constexpr shared_queue() noexcept = default;

  [[nodiscard]] ibv_srq* native() const noexcept { return srq_ != null_device_instance.srq() ? srq_ : nullptr; }
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
  [[nodiscard]] error at(error e, const char* call) const noexcept { return e.at(call, object_kind::srq, number_); }

  // --- posting -----------------------------------------------------------------------------------------------------

  /// Whether a buffer can be posted as it is; see ep_posting::accepts.
  template <std::size_t N>
  [[nodiscard, gnu::always_inline]] bool accepts(const recv_request<N>& r) const noexcept {
    return (N == 0 || r.data.zone() == zone_) && (N <= 1 || r.data.count() <= max_iov_) && !r.no_notify;
  }
  /// Checks as `accepts`, with the cause as an error, for a tidy list. `zone`: its zone before it was tidied.
  [[nodiscard, gnu::cold]] expected<void> check(bool no_notify, const sge_summary& list, zone_tag zone) const noexcept;
  /// Takes a free entry; false when there is none. The head carries a number that changes with every entry taken, so
  /// that an entry which was taken and returned meanwhile is not mistaken for the one that was read.
  [[nodiscard, gnu::always_inline]] bool take(work_entry*& e) noexcept {
    std::uint64_t head = free_.load(std::memory_order_acquire);
    for (;;) {
      const auto offset = static_cast<std::uint32_t>(head);
      if (offset == 0) [[unlikely]]
        return false;
      e = entry_at(offset);
      const std::uint64_t rest = reinterpret_cast<std::uintptr_t>(__atomic_load_n(&e->next, __ATOMIC_RELAXED));
      const std::uint64_t after = ((head >> 32) + 1) << 32 | rest;
      if (free_.compare_exchange_weak(head, after, std::memory_order_acquire)) [[likely]]
        return true;
    }
  }
  [[gnu::always_inline]] void give_back(work_entry& e) noexcept {
    given_.fetch_add(1, std::memory_order_relaxed);
    const auto offset = static_cast<std::uint32_t>(e.id());
    std::uint64_t head = free_.load(std::memory_order_relaxed);
    std::uint64_t after;
    do {
      // The offset of the next one, in the place of its address, which is more than the head has room for.
      const auto rest = static_cast<std::uintptr_t>(static_cast<std::uint32_t>(head));
      __atomic_store_n(&e.next, reinterpret_cast<work_entry*>(rest), __ATOMIC_RELAXED);
      after = (head >> 32) << 32 | offset;
    } while (!free_.compare_exchange_weak(head, after, std::memory_order_release, std::memory_order_relaxed));
  }
  /// For ThreadSanitizer: see work_queue::tsan_acquire.
  void tsan_release() noexcept {
    if constexpr (thread_sanitizer) (void)next_.exchange(nullptr, std::memory_order_acq_rel);
  }
  [[nodiscard]] ibv_srq* posts_to() const noexcept { return srq_; }
  /// The entry of a receive that is about to be posted.
  [[nodiscard]] const work_entry& entry(const ibv_recv_wr& wr) const noexcept {
    return *entry_at(static_cast<std::uint32_t>(wr.wr_id));
  }
  /// The device took `taken` of `n` entries and refused the others, which this returns.
  [[nodiscard, gnu::cold]] expected<void> not_posted(int err, work_entry* const* entries, std::uint32_t n,
                                                     std::uint32_t taken) noexcept;
  [[nodiscard, gnu::cold]] error full() const noexcept;
  [[nodiscard, gnu::cold]] error gone() const noexcept;

  // --- completing --------------------------------------------------------------------------------------------------

  /// The queue of an entry that `posted.is_shared()`.
  [[nodiscard, gnu::always_inline]] static shared_queue& of(const work_entry& e) noexcept {
    return static_cast<shared_queue&>(*e.queue);
  }
  /// Frees the entry of a receive whose completion was taken, or dropped.
  [[gnu::always_inline]] static void retire(work_entry& e) noexcept {
    if constexpr (checked_build) work_watch<checked_build>::done(e);
    of(e).give_back(e);
  }
  /// The endpoint that has this queue pair now; null when none has.
  [[nodiscard, gnu::always_inline]] completion_owner* owner_of(std::uint32_t qp_num) const noexcept {
    const std::uint32_t marker = endpoints.find(qp_num);
    return marker != 0 ? owner_at(marker) : nullptr;
  }
  /// As owner_of without a search: null also where only a search finds it.
  [[nodiscard, gnu::always_inline]] completion_owner* owner_at_once(std::uint32_t qp_num) const noexcept {
    const std::uint32_t marker = endpoints.find_fast(qp_num);
    return marker != 0 ? owner_at(marker) : nullptr;
  }
  [[nodiscard, gnu::always_inline]] completion_owner* owner_at(std::uint32_t marker) const noexcept {
    return &entry_at(marker)->ring().owner();
  }
  /// `hold` counts a completion that is set aside for later, and `unhold` removes it from the count.
  void hold() noexcept { held_.fetch_add(1, std::memory_order_relaxed); }
  void unhold() noexcept { held_.fetch_sub(1, std::memory_order_relaxed); }

  endpoint_table endpoints;

protected:
  ~shared_queue() = default;

  [[nodiscard]] work_entry* entry_at(std::uint32_t offset) const noexcept {
    return reinterpret_cast<work_entry*>(const_cast<std::byte*>(entries_) + offset);
  }
  /// How many entries can be taken; an approximation while other threads take and return entries.
  [[nodiscard]] std::uint32_t count_free() const noexcept {
    const std::uint32_t given = given_.load(std::memory_order_acquire); // first: later ones count as free
    return given - static_cast<std::uint32_t>(free_.load(std::memory_order_relaxed) >> 32);
  }

  ibv_srq* srq_ = null_device_instance.srq();
  const std::byte* entries_ = nullptr; // where the wr_ids of the ia start
  zone_tag zone_ = zone_tag::none();
  std::uint32_t max_iov_ = 0;
  std::uint32_t number_ = 0;
  std::atomic<bool> failed_{false};     // the device can no longer read it
  std::atomic<std::uint64_t> free_{0};  // see take
  std::atomic<std::uint32_t> given_{0}; // returned entries, as free_ counts the taken ones
  std::atomic<std::uint32_t> held_{0};  // of those in use, completed and set aside
};

/// The queue of empty handles. One for the whole program, also where its parts are compiled with hidden visibility.
[[gnu::visibility("default")]] inline constinit struct null_shared_queue final : shared_queue {
  constexpr null_shared_queue() noexcept = default;
} null_srq;

/// Entries of a shared queue for the operations of one call: all of them, or none.
template <std::size_t N>
class shared_slots {
public:
  explicit shared_slots(shared_queue& queue) noexcept {
    while (taken_ != N && queue.take(entries_[taken_])) ++taken_;
    if (has_room()) return;
    while (taken_ != 0) queue.give_back(*entries_[--taken_]);
  }
  [[nodiscard]] bool has_room() const noexcept { return taken_ == N; }
  [[nodiscard]] work_entry* take() noexcept { return entries_[used_++]; }
  [[nodiscard]] work_entry* const* entries() const noexcept { return entries_; }
  void commit() const noexcept {}

private:
  work_entry* entries_[N];
  std::size_t taken_ = 0;
  std::size_t used_ = 0;
};

/// One entry.
template <>
class shared_slots<1> {
public:
  explicit shared_slots(shared_queue& queue) noexcept {
    if (!queue.take(entry_)) entry_ = nullptr;
  }
  [[nodiscard]] bool has_room() const noexcept { return entry_ != nullptr; }
  [[nodiscard]] work_entry* take() const noexcept { return entry_; }
  [[nodiscard]] work_entry* const* entries() const noexcept { return &entry_; }
  void commit() const noexcept {}

private:
  work_entry* entry_;
};

/// A shared queue as the post path sees it. Any number of threads may post.
class shared_recv_queue {
public:
  using work_request = ibv_recv_wr;
  static consteval bool keeps_link(std::size_t) noexcept { return false; } // any number of threads may post

  explicit shared_recv_queue(shared_queue& queue) noexcept : queue_(queue) {}

  template <std::size_t N>
  [[nodiscard]] bool accepts(const recv_request<N>& r) const noexcept {
    return queue_.accepts(r);
  }
  template <std::size_t N>
  [[nodiscard]] shared_slots<N> reserve() const noexcept {
    return shared_slots<N>(queue_);
  }
  template <std::size_t N>
  void fill(ibv_recv_wr&, work_entry& e, const recv_request<N>& r) const noexcept {
    e.posted.cookie = r.cookie;
  }
  [[nodiscard]] int submit(ibv_recv_wr* wr, ibv_recv_wr** bad, std::size_t) const noexcept {
    queue_.tsan_release();
    if constexpr (trace_build)
      for (const ibv_recv_wr* each = wr; each; each = each->next)
        trace_points::post(number(), queue_.entry(*each), *each, true);
    const int err = ibv_post_srq_recv(queue_.posts_to(), wr, bad);
    if (err == 0) [[likely]]
      return 0;
    if (!refused_for_emptiness(err, *bad)) return err;
    return post_empty_receives(*bad, *bad, [this](ibv_recv_wr* one, ibv_recv_wr** refused) noexcept {
      return ibv_post_srq_recv(queue_.posts_to(), one, refused);
    });
  }

  [[nodiscard]] expected<void> usable(std::size_t) const noexcept {
    if (!queue_.native()) return queue_.gone();
    return success();
  }
  [[nodiscard]] error no_room() const noexcept { return queue_.native() ? queue_.full() : queue_.gone(); }
  template <std::size_t N>
  [[nodiscard]] expected<void> check(const recv_request<N>& r, zone_tag zone) const noexcept {
    return queue_.check(r.no_notify, r.data, zone);
  }
  [[nodiscard]] expected<void> not_posted(int err, ibv_recv_wr* wr, ibv_recv_wr* bad,
                                          work_entry* const* entries) const noexcept {
    return queue_.not_posted(err, entries, chain_length<ibv_recv_wr>(wr, nullptr), chain_length(wr, bad));
  }

  /// Posts may overlap.
  [[nodiscard]] class_member enter() const noexcept { return class_member(nullptr, "srq.post", "srq", 0, true); }
  [[nodiscard]] error overlaps() const noexcept { return queue_.gone(); }
  static constexpr const char* call_name = "srq.post";
  static constexpr const char* object_name = "srq";
  [[nodiscard]] std::uint32_t number() const noexcept { return queue_.number(); }

private:
  shared_queue& queue_;
};

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/posting/shared_queue.ipp>
#endif
