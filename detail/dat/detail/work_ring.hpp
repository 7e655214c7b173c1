// What was posted and not yet completed, per queue; and the wr_id that leads from a completion back to it.
//
// A wr_id is (generation, endpoint slot, queue, ring index), never a pointer: completions outlive destroyed QPs, and
// those must be told from the completions of the endpoint that took the slot over.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/cookie.hpp>
#include <dat/status.hpp>

#include <dat/detail/basics.hpp>

#include <atomic>
#include <bit>
#include <cstdint>
#include <new>

namespace dat::inline v0::detail {

inline constexpr unsigned index_bits = 20;
inline constexpr unsigned slot_bits = 20;
inline constexpr std::uint32_t max_ring = 1u << index_bits;
inline constexpr std::uint32_t max_slots = 1u << slot_bits;
inline constexpr std::uint64_t recv_bit = std::uint64_t{1} << index_bits;

/// Generation and slot of an endpoint: the upper bits of its wr_ids. Never 0 for a live endpoint.
using ep_tag = std::uint64_t;
inline constexpr unsigned tag_shift = index_bits + 1;

[[nodiscard]] constexpr ep_tag tag_of(std::uint64_t wr_id) noexcept { return wr_id >> tag_shift; }
[[nodiscard]] constexpr std::uint32_t slot_of(ep_tag tag) noexcept {
  return static_cast<std::uint32_t>(tag) & (max_slots - 1);
}
[[nodiscard]] constexpr std::uint32_t index_of(std::uint64_t wr_id) noexcept {
  return static_cast<std::uint32_t>(wr_id) & (max_ring - 1);
}

enum class entry_kind : std::uint8_t {
  consumer, ///< posted by the consumer
  marker    ///< posted by the library to learn that all before it is done; no event
};

/// The operation of a marker's entry: none that a consumer can post, so that telling it apart costs others nothing.
inline constexpr dto_operation marker_operation = static_cast<dto_operation>(255);

struct work_entry {
  dat::cookie cookie;
  std::uint32_t length;
  dto_operation operation;
  entry_kind kind;
};

/// The entries of one queue in posting order. One thread may post while another retires: head and tail are the only
/// shared words, and each side writes only its own.
class work_ring {
public:
  /// Room for `capacity` entries of the consumer and `reserved` of the library. False when out of memory: nothing has
  /// changed then.
  [[nodiscard]] bool allocate(std::uint32_t capacity, std::uint32_t reserved) noexcept {
    const std::uint32_t n = std::bit_ceil(capacity + reserved);
    auto* const entries = new (std::nothrow) work_entry[n];
    if (!entries) return false;
    entries_.reset(entries);
    mask_ = n - 1;
    capacity_ = capacity;
    open(true);
    clear();
    return true;
  }
  /// Forgets everything posted. Nobody may post or retire meanwhile.
  void clear() noexcept {
    head_.store(0, std::memory_order_relaxed);
    tail_.store(0, std::memory_order_relaxed);
  }

  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::uint32_t used() const noexcept {
    return tail_.load(std::memory_order_acquire) - head_.load(std::memory_order_acquire);
  }

  // Posting side.
  [[nodiscard]] std::uint32_t tail() const noexcept { return tail_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool has_room(std::uint32_t tail, std::uint32_t n) const noexcept {
    return tail - head_.load(std::memory_order_acquire) + n <= capacity_;
  }
  /// has_room, and open: one question for what hardly ever has another answer than yes.
  [[nodiscard, gnu::always_inline]] bool takes(std::uint32_t tail, std::uint32_t n) const noexcept {
    const std::uint32_t limit = limit_.load(std::memory_order_acquire);
    const std::uint32_t used = tail - head_.load(std::memory_order_acquire);
    return n == 1 ? used < limit : used + n <= limit;
  }
  /// A ring that is not open takes nothing.
  void open(bool yes) noexcept { limit_.store(yes ? capacity_ : 0, std::memory_order_release); }
  [[nodiscard]] std::uint32_t index(std::uint32_t position) const noexcept { return position & mask_; }
  work_entry& at(std::uint32_t position) noexcept { return entries_[position & mask_]; }
  void put(std::uint32_t position, dat::cookie cookie, std::uint32_t length, dto_operation operation) noexcept {
    work_entry& e = at(position); // member by member: two or three stores, where a copy of the whole takes more
    e.cookie = cookie;
    e.length = length;
    e.operation = operation;
    e.kind = entry_kind::consumer;
  }
  /// Several, and tells the index of each.
  template <class Tell>
  void put(std::uint32_t position, const work_entry* from, std::uint32_t n, Tell tell) noexcept {
    work_entry* const entries = entries_.get(); // what is stored may not alias these
    const std::uint32_t mask = mask_;
    for (std::uint32_t i = 0; i < n; ++i) {
      const std::uint32_t index = (position + i) & mask;
      entries[index] = from[i];
      tell(i, index);
    }
  }
  void set_tail(std::uint32_t tail) noexcept { tail_.store(tail, std::memory_order_release); }

  // Retiring side.
  /// Takes the entry at `index` and, with it, all earlier ones: a queue completes in order, so they are done as well.
  [[nodiscard]] work_entry retire(std::uint32_t index) noexcept {
    (void)tail_.load(std::memory_order_acquire); // pairs with set_tail: the entry is visible
    const work_entry& e = entries_[index];
    const work_entry entry{e.cookie, e.length, e.operation, e.kind}; // by member: what nobody reads costs nothing
    const std::uint32_t head = head_.load(std::memory_order_relaxed);
    head_.store(head + ((index - head) & mask_) + 1, std::memory_order_release);
    return entry;
  }
  /// Position of the entry at `index`, none of whose successors was freed: for completions that are set aside now and
  /// taken later, when the index may stand for another entry.
  [[nodiscard]] std::uint32_t position(std::uint32_t index) const noexcept {
    const std::uint32_t head = head_.load(std::memory_order_relaxed);
    return head + ((index - head) & mask_);
  }
  /// Frees the entry at `position` and all earlier ones, unless a later one was freed before.
  void retire_through(std::uint32_t position) noexcept {
    const std::uint32_t head = head_.load(std::memory_order_relaxed);
    if (static_cast<std::int32_t>(position + 1 - head) > 0) head_.store(position + 1, std::memory_order_release);
  }
  [[nodiscard]] const work_entry& peek(std::uint32_t index) const noexcept {
    (void)tail_.load(std::memory_order_acquire);
    return entries_[index];
  }

private:
  owned_array<work_entry> entries_;
  std::uint32_t mask_ = 0;
  std::uint32_t capacity_ = 0;
  std::atomic<std::uint32_t> limit_{0};
  std::atomic<std::uint32_t> head_{0};
  std::atomic<std::uint32_t> tail_{0};
};

class ep_core;

/// Which endpoint a completion belongs to: one entry per endpoint slot of an ia, with the tag it has now.
class slot_table {
public:
  slot_table() noexcept = default;
  slot_table(const slot_table&) = delete;
  slot_table& operator=(const slot_table&) = delete;
  ~slot_table();

  /// Reserves address space for `slots` endpoints; pages are used as endpoints come. Returns 0 or errno.
  [[nodiscard]] int reserve(std::uint32_t slots) noexcept;
  /// Gives `ep` a slot and a new tag; 0 when all slots are taken. Locked by the caller.
  [[nodiscard]] ep_tag acquire(ep_core* ep) noexcept;
  /// A new tag for the same slot: completions that carry the old one are stale from now on.
  [[nodiscard]] ep_tag renew(ep_tag tag) noexcept;
  /// Frees the slot. Locked by the caller.
  void release(ep_tag tag) noexcept;
  /// The endpoint with this tag, or null when it is gone.
  [[nodiscard]] ep_core* find(ep_tag tag) const noexcept {
    const slot& s = slots_[slot_of(tag)];
    return s.tag.load(std::memory_order_acquire) == tag ? s.ep : nullptr;
  }
  /// The same, false when it is gone: no second test is needed where the pointer is used.
  [[nodiscard]] bool find(ep_tag tag, ep_core*& ep) const noexcept {
    const slot& s = slots_[slot_of(tag)];
    ep = s.ep;
    return s.tag.load(std::memory_order_acquire) == tag;
  }

private:
  struct alignas(32) slot {  // a power of two: indexing is a shift
    std::atomic<ep_tag> tag; // 0: free
    ep_core* ep;
    std::uint32_t generation;
    std::uint32_t next_free;
  };

  slot* slots_ = nullptr;
  std::uint32_t capacity_ = 0;
  std::uint32_t used_ = 0; // slots below were used once
  std::uint32_t free_ = none_;
  static constexpr std::uint32_t none_ = ~0u;
};

} // namespace dat::inline v0::detail

#include <dat/detail/slot_table.hpp> // definitions
