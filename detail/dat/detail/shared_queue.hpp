// A shared receive queue as posts and completions see it: free entries, and the endpoints that draw from it.
//
// The device gives a buffer to whichever endpoint has a message, so nothing here is a ring: a completion leads to its
// entry by the wr_id, and to its endpoint by the number of the queue pair. Nobody who posts or takes takes a lock.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <dat/detail/basics.hpp>
#include <dat/detail/errno.hpp>
#include <dat/detail/null_device.hpp>
#include <dat/detail/work_arena.hpp>
#include <dat/detail/work_request.hpp>
#include <dat/detail/work_ring.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <tuple>
#include <utility>

namespace dat::inline v0::detail {

/// From the number of a queue pair to its endpoint. Readers take no lock: a slot is one word. What changes meanwhile
/// can hide an entry from them, never show a wrong one; so who does not find one looks again with the lock.
class endpoint_table {
public:
  constexpr endpoint_table() noexcept = default;
  endpoint_table(const endpoint_table&) = delete;
  endpoint_table& operator=(const endpoint_table&) = delete;
  ~endpoint_table() = default;
  /// Called once nobody looks any more. (A destructor that does it would have to run for no_srq, too.)
  void free() noexcept {
    published_.store(nullptr, std::memory_order_relaxed);
    while (newest_) delete std::exchange(newest_, newest_->older);
  }

  /// `marker` is the offset of the endpoint's first entry in the arena, never 0. False when there is no memory.
  [[nodiscard]] bool insert(std::uint32_t qp_num, std::uint32_t marker) noexcept {
    const std::lock_guard lock(mutex_);
    if (!newest_ || 2 * (count_ + 1) > newest_->mask + 1)
      if (!grow()) return false;
    put(*newest_, slot_of(qp_num, marker));
    ++count_;
    return true;
  }
  void erase(std::uint32_t qp_num) noexcept {
    const std::lock_guard lock(mutex_);
    if (!newest_) return;
    block& b = *newest_;
    std::uint32_t hole = qp_num & b.mask;
    for (;; hole = (hole + 1) & b.mask) {
      if (b.slots[hole] == 0) return;
      if (number_of(b.slots[hole]) == qp_num) break;
    }
    // What was pushed on by it moves back, so that a search may end at the first empty slot.
    for (std::uint32_t i = (hole + 1) & b.mask; b.slots[i] != 0; i = (i + 1) & b.mask) {
      const std::uint32_t home = number_of(b.slots[i]) & b.mask;
      if (((i - home) & b.mask) < ((i - hole) & b.mask)) continue;
      store(b.slots[hole], b.slots[i]);
      hole = i;
    }
    store(b.slots[hole], 0);
    --count_;
  }
  /// What was inserted with that number, or 0.
  [[nodiscard]] std::uint32_t find(std::uint32_t qp_num) const noexcept {
    const std::uint32_t marker = glance(qp_num);
    return marker != 0 ? marker : search(qp_num);
  }
  /// The same, or 0 where that takes a search.
  [[nodiscard, gnu::always_inline]] std::uint32_t glance(std::uint32_t qp_num) const noexcept {
    const block* const b = published_.load(std::memory_order_acquire);
    if (!b) [[unlikely]]
      return 0;
    const std::uint64_t s = peek(b->slots[qp_num & b->mask]);
    return number_of(s) == qp_num ? static_cast<std::uint32_t>(s) : 0;
  }

private:
  /// Grown-out blocks stay until the end: a reader may be in one.
  struct block {
    block* older;
    std::uint32_t mask;
    owned_array<std::uint64_t> slots;
  };
  [[nodiscard]] static std::uint64_t slot_of(std::uint32_t qp_num, std::uint32_t marker) noexcept {
    return std::uint64_t{qp_num} << 32 | marker;
  }
  [[nodiscard]] static std::uint32_t number_of(std::uint64_t slot) noexcept {
    return static_cast<std::uint32_t>(slot >> 32);
  }
  [[nodiscard, gnu::cold, gnu::noinline]] std::uint32_t search(std::uint32_t qp_num) const noexcept {
    const std::lock_guard lock(mutex_);
    if (!newest_) return 0;
    for (std::uint32_t i = qp_num & newest_->mask; newest_->slots[i] != 0; i = (i + 1) & newest_->mask)
      if (number_of(newest_->slots[i]) == qp_num) return static_cast<std::uint32_t>(newest_->slots[i]);
    return 0;
  }
  static void put(block& b, std::uint64_t slot) noexcept {
    std::uint32_t i = number_of(slot) & b.mask;
    while (b.slots[i] != 0) i = (i + 1) & b.mask;
    store(b.slots[i], slot);
  }
  [[nodiscard]] bool grow() noexcept {
    const std::uint32_t size = newest_ ? 2 * (newest_->mask + 1) : 16;
    owned_array<std::uint64_t> slots(new (std::nothrow) std::uint64_t[size]());
    if (!slots) return false;
    block* const bigger = new (std::nothrow) block{newest_, size - 1, std::move(slots)};
    if (!bigger) return false;
    for (std::uint32_t i = 0; newest_ && i <= newest_->mask; ++i)
      if (newest_->slots[i] != 0) put(*bigger, newest_->slots[i]);
    newest_ = bigger;
    published_.store(bigger, std::memory_order_release);
    return true;
  }

  std::atomic<block*> published_{nullptr}; // newest_, for those without the lock
  mutable std::mutex mutex_;               // a leaf
  block* newest_ = nullptr;
  std::uint32_t count_ = 0;
};

/// The base of every shared receive queue. By itself it is one that is gone: such a one stands in where a handle names
/// none.
class shared_queue : public work_queue {
public:
  constexpr shared_queue() noexcept = default;

  // --- posting -----------------------------------------------------------------------------------------------------

  template <std::size_t... N>
  [[nodiscard, gnu::always_inline]] expected<void> post(const recv_request<N>&... r) noexcept {
    if (!(simply_acceptable(r) && ...)) [[unlikely]]
      return post_slowly(r.copy()...);
    return post_now(r...);
  }

  [[nodiscard]] ibv_srq* native() const noexcept { return srq_ != nothing.srq() ? srq_ : nullptr; }
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
  [[nodiscard]] error at(error e, const char* call) const noexcept { return e.at(call, object_kind::srq, number_); }

  // --- completing --------------------------------------------------------------------------------------------------

  /// Frees the entry of a receive whose completion was taken, or dropped.
  [[gnu::always_inline]] static void retire(work_entry& e) noexcept { e.shared().give_back(e); }
  /// Whose completion it is: of the endpoint that has this queue pair now; null when none has.
  [[nodiscard, gnu::always_inline]] ep_core* owner_of(std::uint32_t qp_num) const noexcept {
    const std::uint32_t marker = endpoints.find(qp_num);
    return marker != 0 ? owner_at(marker) : nullptr;
  }
  [[nodiscard, gnu::always_inline]] ep_core* owner_at(std::uint32_t marker) const noexcept {
    return &entry_at(marker)->ring().owner();
  }
  /// A completion is set aside, to be taken later.
  void hold() noexcept { held_.fetch_add(1, std::memory_order_relaxed); }
  void unhold() noexcept { held_.fetch_sub(1, std::memory_order_relaxed); }

  endpoint_table endpoints;

protected:
  ~shared_queue() = default;

  [[nodiscard]] work_entry* entry_at(std::uint32_t offset) const noexcept {
    return reinterpret_cast<work_entry*>(const_cast<std::byte*>(entries_) + offset);
  }
  /// Takes a free entry; false when there is none. The head carries a number that changes with every entry taken: what
  /// was taken and given back meanwhile is not mistaken for what was looked at.
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
      // The offset of the next one; in the place of its address, which is more than the head has room for.
      const auto rest = static_cast<std::uintptr_t>(static_cast<std::uint32_t>(head));
      __atomic_store_n(&e.next, reinterpret_cast<work_entry*>(rest), __ATOMIC_RELAXED);
      after = (head >> 32) << 32 | offset;
    } while (!free_.compare_exchange_weak(head, after, std::memory_order_release, std::memory_order_relaxed));
  }

  /// How many entries can be taken; about as many, while others take some and give them back.
  [[nodiscard]] std::uint32_t count_free() const noexcept {
    const std::uint32_t given = given_.load(std::memory_order_acquire); // first: what is taken later was there
    return given - static_cast<std::uint32_t>(free_.load(std::memory_order_relaxed) >> 32);
  }

  template <std::size_t N>
  [[nodiscard, gnu::always_inline]] bool simply_acceptable(const recv_request<N>& r) const noexcept {
    return r.gather.simply_within(zone_) && (N <= 1 || r.gather.count() <= max_iov_) && !r.quiet;
  }
  template <std::size_t N>
  [[nodiscard]] bool acceptable(const recv_request<N>& r) const noexcept {
    return r.gather.within(zone_) && r.gather.count() <= max_iov_ && !r.quiet;
  }
  template <std::size_t N>
  [[nodiscard]] error refuse(const recv_request<N>& r) const noexcept {
    if (!r.gather.within(zone_))
      return at({return_type::protection_violation, return_subtype::protection_write}, "srq.post")
          .hint("every segment must be of an lmr of the queue's own pz, and of at most 4 GiB");
    if (r.quiet)
      return at({return_type::invalid_parameter, return_subtype::arg5}, "srq.post")
          .hint("a buffer of an srq has no completion flags: the endpoint that takes it decides what its completion "
                "wakes");
    return at({return_type::invalid_parameter, return_subtype::arg2}, "srq.post")
        .hint("more segments than the queue's max_recv_iov");
  }
  /// What could not be posted at once: made tidy and checked in the order that errors are reported in.
  template <std::size_t... N>
  [[nodiscard, gnu::cold, gnu::noinline]] expected<void> post_slowly(recv_request<N>... r) noexcept {
    (r.gather.tidy(), ...);
    if (!native()) return gone();
    error why;
    if (!((acceptable(r) || (why = refuse(r), false)) && ...)) return why;
    return post_now(r...);
  }
  template <std::size_t... N>
  [[nodiscard, gnu::always_inline]] expected<void> post_now(const recv_request<N>&... r) noexcept {
    constexpr std::uint32_t n = sizeof...(N);
    std::array<work_entry*, n> entries;
    for (std::uint32_t i = 0; i < n; ++i) {
      if (!take(entries[i])) [[unlikely]]
        return full(entries.data(), i);
    }
    std::array<ibv_recv_wr, n> wr;
    std::tuple<posted_list<N>...> lists;
    const auto add = [&]<std::size_t M>(std::uint32_t i, posted_list<M>& list, const recv_request<M>& request) {
      entries[i]->posted.cookie = request.cookie;
      wr[i].wr_id = entries[i]->id();
      wr[i].next = i + 1 < n ? &wr[i] + 1 : nullptr;
      wr[i].sg_list = list.from(request.gather);
      wr[i].num_sge = static_cast<int>(request.gather.count());
    };
    [&]<std::size_t... I>(std::index_sequence<I...>) { (add(I, std::get<I>(lists), r), ...); }
    (std::make_index_sequence<n>());
    if constexpr (thread_sanitizer) (void)next_.exchange(nullptr, std::memory_order_acq_rel); // see observe
    ibv_recv_wr* bad = wr.data();
    if (const int err = ibv_post_srq_recv(srq_, wr.data(), &bad)) [[unlikely]]
      return not_posted(err, entries.data(), n, static_cast<std::uint32_t>(bad - wr.data()));
    return success();
  }
  [[nodiscard, gnu::cold]] expected<void> not_posted(int err, work_entry** entries, std::uint32_t n,
                                                     std::uint32_t taken) noexcept;
  [[nodiscard, gnu::cold]] expected<void> full(work_entry** entries, std::uint32_t taken) noexcept;
  [[nodiscard, gnu::cold]] error gone() const noexcept;

  ibv_srq* srq_ = nothing.srq();
  const std::byte* entries_ = nullptr; // where the wr_ids of the ia start
  common_zone zone_ = common_zone::none();
  std::uint32_t max_iov_ = 0;
  std::uint32_t number_ = 0;
  std::atomic<bool> failed_{false};     // the device cannot read it any more
  std::atomic<std::uint64_t> free_{0};  // see take
  std::atomic<std::uint32_t> given_{0}; // entries given back, as free_ counts those taken
  std::atomic<std::uint32_t> held_{0};  // of those in use, completed and set aside
};

inline shared_queue& work_entry::shared() const noexcept { return static_cast<shared_queue&>(*queue); }

inline constinit struct no_shared_queue final : shared_queue { constexpr no_shared_queue() noexcept = default; } no_srq;

} // namespace dat::inline v0::detail
