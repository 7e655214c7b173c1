// The memory of all work entries of an ia, and the way from a wr_id to its entry.
//
// A wr_id is (generation, offset of the entry), never a pointer: completions outlive destroyed queue pairs, and those
// must be told from the completions of the endpoint that took the memory over. The entry knows its own wr_id, so that
// telling is one comparison.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/work_ring.hpp>

#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>
#include <sys/mman.h>

namespace dat::inline v0::detail {

/// Names one life of an endpoint, from its creation or reset to the next: the wr_id of its marker. Never 0.
using ep_tag = std::uint64_t;

/// Stays mapped while the ia lives: any wr_id may be looked up at any time, also that of work which the consumer
/// posted to a native queue pair.
class work_arena {
public:
  work_arena() noexcept = default;
  work_arena(const work_arena&) = delete;
  work_arena& operator=(const work_arena&) = delete;
  ~work_arena() {
    if (base_) ::munmap(base_, reserved);
  }

  /// Reserves the addresses. Returns 0 or errno.
  [[nodiscard]] int reserve() noexcept {
    // Readable from the start: untouched pages read as zero, which is no entry's wr_id, and count as no memory.
    void* p = ::mmap(nullptr, reserved, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return errno;
    base_ = static_cast<std::byte*>(p);
    if (!commit(used_)) return errno;
    ::new (p) std::uint64_t(~std::uint64_t{0}); // so that a wr_id of 0 finds nothing
    return 0;
  }

  /// Memory for `n` entries, all of them without a wr_id; null when there is none. Locked by the caller.
  [[nodiscard]] work_entry* allocate(std::uint32_t n) noexcept {
    const size_class c = class_of(n);
    work_entry* block = free_[c.index];
    if (block) {
      free_[c.index] = block->next;
    } else {
      if (c.bytes > limit - used_ || !commit(used_ + c.bytes)) return nullptr;
      block = reinterpret_cast<work_entry*>(base_ + used_);
      used_ += c.bytes;
      for (std::uint64_t i = 0; i < c.bytes / sizeof(work_entry); ++i) ::new (static_cast<void*>(block + i)) work_entry;
    }
    return block;
  }
  /// From now on nobody finds these entries. Locked by the caller.
  static void forget(work_entry* first, std::uint32_t n) noexcept {
    for (std::uint32_t i = 0; i < n; ++i) store(first[i].wr_id, 0);
  }
  /// Gives back what `allocate(n)` gave, forgotten. Locked by the caller.
  void free(work_entry* block, std::uint32_t n) noexcept {
    const size_class c = class_of(n);
    block->next = free_[c.index];
    free_[c.index] = block;
  }
  /// Gives `n` entries the wr_ids of a new life; what completes with the old ones is stale from now on. Returns the
  /// first. Locked by the caller.
  std::uint64_t renew(work_entry* first, std::uint32_t n) noexcept {
    generation_ = generation_ == ~0u ? 1 : generation_ + 1;
    for (std::uint32_t i = 0; i < n; ++i) {
      const auto offset = static_cast<std::uint64_t>(reinterpret_cast<std::byte*>(first + i) - base_);
      store(first[i].wr_id, std::uint64_t{generation_} << 32 | offset);
    }
    return first->id();
  }

  /// What `find` starts from.
  [[nodiscard]] const std::byte* base() const noexcept { return base_; }
  /// The entry with this wr_id, or null: the work of an endpoint that is gone or was reset, or not of this library.
  [[nodiscard]] work_entry* find(std::uint64_t wr_id) const noexcept {
    work_entry* e;
    return find(base_, wr_id, e) ? e : nullptr;
  }
  /// The same, false where there is none: no second test is needed where the entry is used.
  // A foreign wr_id may point between entries: what is read there names no entry, aligned or not.
#if defined(__clang__)
  [[clang::no_sanitize("alignment")]]
#else
  [[gnu::no_sanitize("alignment")]]
#endif
  [[nodiscard, gnu::always_inline]] static bool
  find(const std::byte* base, std::uint64_t wr_id, work_entry*& e) noexcept {
    auto* at = reinterpret_cast<const std::uint64_t*>(base + static_cast<std::uint32_t>(wr_id));
    asm("" : "+r"(at)); // clang adds twice otherwise, here and where the entry is used
    e = reinterpret_cast<work_entry*>(const_cast<std::uint64_t*>(at));
    return peek(*at) == wr_id;
  }

private:
  // Blocks come in sizes of four steps to the power of two: at most a quarter is wasted, and a block fits its kind.
  struct size_class {
    std::uint32_t index;
    std::uint64_t bytes;
  };
  [[nodiscard]] static constexpr size_class class_of(std::uint32_t n) noexcept {
    const std::uint64_t units = (std::uint64_t{n} * sizeof(work_entry) + 127) / 128; // 1 or more
    if (units <= 4) return {static_cast<std::uint32_t>(units), units * 128};
    const auto shift = static_cast<unsigned>(std::bit_width(units - 1)) - 3;
    const std::uint64_t steps = ((units - 1) >> shift) + 1; // 5 to 8
    return {static_cast<std::uint32_t>(4 * shift + steps), (steps << shift) * 128};
  }
  [[nodiscard]] bool commit(std::uint64_t bytes) noexcept {
    if (bytes <= committed_) return true;
    constexpr std::uint64_t chunk = 256 * 1024;
    const std::uint64_t more = (bytes - committed_ + chunk - 1) / chunk * chunk;
    if (::mprotect(base_ + committed_, more, PROT_READ | PROT_WRITE) != 0) return false;
    committed_ += more;
    return true;
  }

  static constexpr std::uint64_t limit = std::uint64_t{1} << 32; // what 32 bits of offset reach
  static constexpr std::uint64_t reserved = limit + 4096;        // an offset at the very end may be read, too

  std::byte* base_ = nullptr;
  std::uint64_t used_ = 128; // see reserve
  std::uint64_t committed_ = 0;
  std::uint32_t generation_ = 0;
  std::array<work_entry*, 128> free_{};
};

} // namespace dat::inline v0::detail
