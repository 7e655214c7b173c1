// The table that leads a completion of a shared receive queue to its endpoint.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/control_mutex.hpp>
#include <dat/detail/base/utility.hpp>
#include <dat/detail/work/work_ring.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

/// Maps the number of a queue pair to its endpoint. Readers take no lock: a slot is one word. A change that runs at the
/// same time can hide an entry from a reader and never shows a wrong one, so a reader that finds none looks again with
/// the lock.
class endpoint_table {
public:
  constexpr endpoint_table() noexcept = default;
  endpoint_table(const endpoint_table&) = delete;
  endpoint_table& operator=(const endpoint_table&) = delete;
  ~endpoint_table() = default;
  /// Frees the table, when no thread reads it. (A destructor would have to run for null_srq as well.)
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
    // Entries behind the hole move back, so that a search may end at the first empty slot.
    for (std::uint32_t i = (hole + 1) & b.mask; b.slots[i] != 0; i = (i + 1) & b.mask) {
      const std::uint32_t home = number_of(b.slots[i]) & b.mask;
      if (((i - home) & b.mask) < ((i - hole) & b.mask)) continue;
      store(b.slots[hole], b.slots[i]);
      hole = i;
    }
    store(b.slots[hole], 0);
    --count_;
  }
  /// The marker that was inserted with that number, or 0.
  [[nodiscard]] std::uint32_t find(std::uint32_t qp_num) const noexcept {
    const std::uint32_t marker = find_fast(qp_num);
    return marker != 0 ? marker : search(qp_num);
  }
  /// As find without a search: 0 if the first slot has another number.
  [[nodiscard, gnu::always_inline]] std::uint32_t find_fast(std::uint32_t qp_num) const noexcept {
    const block* const b = published_.load(std::memory_order_acquire);
    if (!b) [[unlikely]]
      return 0;
    const std::uint64_t s = load_plain(b->slots[qp_num & b->mask]);
    return number_of(s) == qp_num ? static_cast<std::uint32_t>(s) : 0;
  }

private:
  /// Outgrown blocks stay until the end: a reader may be in one.
  struct block {
    block* older;
    std::uint32_t mask;
    unique_array<std::uint64_t> slots;
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
    unique_array<std::uint64_t> slots(new (std::nothrow) std::uint64_t[size]());
    if (!slots) return false;
    block* const bigger = new (std::nothrow) block{newest_, size - 1, std::move(slots)};
    if (!bigger) return false;
    for (std::uint32_t i = 0; newest_ && i <= newest_->mask; ++i)
      if (newest_->slots[i] != 0) put(*bigger, newest_->slots[i]);
    newest_ = bigger;
    published_.store(bigger, std::memory_order_release);
    return true;
  }

  std::atomic<block*> published_{nullptr}; // newest_, for readers without the lock
  mutable control_mutex mutex_;            // a leaf
  block* newest_ = nullptr;
  std::uint32_t count_ = 0;
};

}}} // namespace dat::v0::detail
