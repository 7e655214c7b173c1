// The memory of all work entries of an ia, and the way from a wr_id to its entry.
//
// A wr_id is (generation, offset of the entry), never a pointer. Completions outlive destroyed queue pairs, and they
// must differ from the completions of an endpoint that reuses the memory. The entry stores its own wr_id, so that one
// comparison suffices.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/work/work_ring.hpp>

#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>
#include <sys/mman.h>
#include <sys/resource.h>

namespace dat { inline namespace v0 { namespace detail {

/// Names one life of an endpoint, from its creation or reset to the next: the wr_id of its marker. Never 0.
using ep_generation = std::uint64_t;
/// True for two wr_ids of one life: renew sets the same number in the upper half of all of them, and no other life has
/// it.
[[nodiscard]] constexpr bool same_life(std::uint64_t a, std::uint64_t b) noexcept { return a >> 32 == b >> 32; }

/// Stays mapped while the ia lives, because any wr_id may be looked up at any time, even that of work which the
/// consumer posted to a native queue pair.
///
/// Reserves 4 GiB of addresses, the range of a 32-bit offset. With a limit RLIMIT_AS it reserves at most a sixteenth of
/// that limit. If the system refuses, it reserves less, down to 1 MiB. Memory is used only for entries. Under
/// mlockall(MCL_FUTURE) only used memory stays locked. But RLIMIT_MEMLOCK must allow the reserve for a moment,
/// otherwise the reserve is smaller.
class work_arena {
public:
  work_arena() noexcept = default;
  work_arena(const work_arena&) = delete;
  work_arena& operator=(const work_arena&) = delete;
  ~work_arena() {
    if (base_) ::munmap(base_, size_ + guard);
  }

  /// Reserves the addresses. Returns 0 or errno.
  [[nodiscard]] int reserve() noexcept {
    size_ = most_addresses();
    void* p = map(size_);
    for (; p == MAP_FAILED && size_ > least; p = map(size_)) size_ /= 4;
    if (p == MAP_FAILED) return errno;
    base_ = static_cast<std::byte*>(p);
    (void)::munlock(p, size_ + guard);
    // Readable from the start: untouched pages read as zero, which is no entry's wr_id, and count as no memory.
    if (::mprotect(p, size_ + guard, PROT_READ) != 0 || !commit(used_)) return errno;
    // The first word is the mask of offsets. It is no wr_id of offset 0, so that such a wr_id finds nothing.
    ::new (p) std::uint64_t(size_ - 1);
    return 0;
  }

  /// Memory for `n` entries, all of them without a wr_id; null when there is no memory. Locked by the caller.
  [[nodiscard]] work_entry* allocate(std::uint32_t n) noexcept {
    const size_class c = class_of(n);
    work_entry* block = free_[c.index];
    if (block) {
      free_[c.index] = block->next;
    } else {
      if (c.bytes > size_ - used_ || !commit(used_ + c.bytes)) return nullptr;
      block = reinterpret_cast<work_entry*>(base_ + used_);
      used_ += c.bytes;
      for (std::uint64_t i = 0; i < c.bytes / sizeof(work_entry); ++i) ::new (static_cast<void*>(block + i)) work_entry;
    }
    return block;
  }
  /// Removes the wr_ids of these entries, so that none leads to them. Locked by the caller.
  static void forget(work_entry* first, std::uint32_t n) noexcept {
    if constexpr (checked_build)
      for (std::uint32_t i = 0; i < n; ++i) work_watch<checked_build>::forget(first[i]);
    for (std::uint32_t i = 0; i < n; ++i) store(first[i].wr_id, 0);
  }
  /// Frees the entries of `allocate(n)`, after `forget`. Locked by the caller.
  void free(work_entry* block, std::uint32_t n) noexcept {
    const size_class c = class_of(n);
    block->next = free_[c.index];
    free_[c.index] = block;
  }
  /// Gives `n` entries the wr_ids of a new life; completions with the old ones are stale from now on. Returns the first
  /// wr_id. Locked by the caller.
  std::uint64_t renew(work_entry* first, std::uint32_t n) noexcept {
    generation_ = generation_ == ~0u ? 1 : generation_ + 1;
    for (std::uint32_t i = 0; i < n; ++i) {
      const auto offset = static_cast<std::uint64_t>(reinterpret_cast<std::byte*>(first + i) - base_);
      store(first[i].wr_id, std::uint64_t{generation_} << 32 | offset);
    }
    return first->id();
  }

  /// The argument of the static `find`.
  [[nodiscard]] const std::byte* base() const noexcept { return base_; }
  /// The entry with this wr_id, or null: the work of an endpoint that has ended or was reset, or work that this library
  /// did not post.
  [[nodiscard]] work_entry* find(std::uint64_t wr_id) const noexcept {
    work_entry* e;
    return find(base_, wr_id, e) ? e : nullptr;
  }
  [[nodiscard, gnu::always_inline]] static bool find(const std::byte* base, std::uint64_t wr_id,
                                                     work_entry*& e) noexcept {
    return work_entries(base).find(wr_id, e);
  }

private:
  // There are four sizes of blocks for each power of two. So at most a quarter of a block is wasted, and a block can be
  // reused for any request of its size class.
  struct size_class {
    std::uint32_t index;
    std::uint64_t bytes;
  };
  [[nodiscard]] static constexpr size_class class_of(std::uint32_t n) noexcept {
    const std::uint64_t units = (std::uint64_t{n} * sizeof(work_entry) + 127) / 128; // 1 or more
    if (units <= 4) return {static_cast<std::uint32_t>(units), units * 128};
    const auto shift = static_cast<std::uint64_t>(std::bit_width(units - 1)) - 3;
    const std::uint64_t steps = ((units - 1) >> shift) + 1; // 5 to 8
    return {static_cast<std::uint32_t>(4 * shift + steps), (steps << shift) * 128};
  }
  [[nodiscard]] static std::uint64_t most_addresses() noexcept {
    rlimit addresses{};
    if (::getrlimit(RLIMIT_AS, &addresses) != 0 || addresses.rlim_cur == RLIM_INFINITY) return limit;
    const std::uint64_t part = std::bit_floor(std::uint64_t{addresses.rlim_cur} / 16);
    return min(max(part, least), limit);
  }
  /// Without rights at first, so that mlockall makes no pages of it.
  [[nodiscard]] static void* map(std::uint64_t size) noexcept {
    return ::mmap(nullptr, size + guard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  /// Maps the part that comes into use anew, so that mlockall locks it.
  [[nodiscard]] bool commit(std::uint64_t bytes) noexcept {
    if (bytes <= committed_) return true;
    constexpr std::uint64_t chunk = std::uint64_t{256} * 1024;
    const std::uint64_t more = (bytes - committed_ + chunk - 1) / chunk * chunk;
    if (::mmap(base_ + committed_, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
      return false;
    committed_ += more;
    return true;
  }

  static constexpr std::uint64_t limit = std::uint64_t{1} << 32; // the reach of 32 bits of offset
  static constexpr std::uint64_t least = 1 << 20;
  static constexpr std::uint64_t guard = 4096; // an offset at the very end may be read, too

  std::uint64_t size_ = 0; // a power of two
  std::byte* base_ = nullptr;
  std::uint64_t used_ = 128; // see reserve
  std::uint64_t committed_ = 0;
  std::uint32_t generation_ = 0;
  std::array<work_entry*, 128> free_{};
};

}}} // namespace dat::v0::detail
