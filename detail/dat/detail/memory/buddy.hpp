// A buddy allocator of block numbers whose bookkeeping is apart from the blocks.
//
// So a stray write of a peer into registered memory cannot damage the bookkeeping.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/utility.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace dat { inline namespace v0 { namespace detail {

inline constexpr auto free_memory = [](void* p) { std::free(p); };

/// Numbers of blocks, in pieces of 2^order of them. Not synchronised.
class buddy {
public:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  /// Starts with the blocks 0 to n - 1, all of them free; n is at most 2^31. Returns false when memory is exhausted.
  /// Bookkeeping memory is used only where pieces begin: untouched pages read as zero, which means that no piece begins
  /// there.
  [[nodiscard]] bool reserve(std::size_t n) noexcept {
    blocks_.reset(static_cast<block*>(std::calloc(n, sizeof(block))));
    if (!blocks_) return false;
    size_ = n;
    free_.fill(none);
    std::size_t first = 0;
    for (unsigned order = most_order + 1; order-- > 0;) {
      if ((n >> order & 1) == 0) continue;
      push(static_cast<std::uint32_t>(first), order);
      first += std::size_t{1} << order;
    }
    return true;
  }
  /// The first block of a free piece, or none.
  [[nodiscard]] std::uint32_t allocate(unsigned order) noexcept {
    unsigned found = order;
    while (found <= most_order && free_[found] == none) ++found;
    if (found > most_order) return none;
    const std::uint32_t first = free_[found];
    remove(first, found);
    while (found > order) {
      --found;
      push(first + (1u << found), found);
    }
    return first;
  }
  /// Frees a piece that `allocate(order)` returned.
  void free(std::uint32_t first, unsigned order) noexcept {
    for (; order < most_order; ++order) {
      const std::uint32_t other = first ^ (1u << order);
      // Marks a block that is in use, inside a larger piece, or beyond the end.
      if (other >= size_ || at(other).order != order + 1) break;
      remove(other, order);
      first &= ~(1u << order);
    }
    push(first, order);
  }

private:
  static constexpr unsigned most_order = 31;
  // Zeros: no free piece begins here.
  struct block {
    std::uint32_t next;
    std::uint32_t before;
    std::uint8_t order; ///< the order of the free piece that begins here, plus 1
  };

  [[nodiscard]] block& at(std::uint32_t i) const noexcept { return blocks_.get()[i]; }
  void push(std::uint32_t first, unsigned order) noexcept {
    block& b = at(first);
    b = {free_[order], none, static_cast<std::uint8_t>(order + 1)};
    if (b.next != none) at(b.next).before = first;
    free_[order] = first;
  }
  void remove(std::uint32_t first, unsigned order) noexcept {
    block& b = at(first);
    (b.before != none ? at(b.before).next : free_[order]) = b.next;
    if (b.next != none) at(b.next).before = b.before;
    b = {};
  }

  unique_c<block, free_memory> blocks_;
  std::size_t size_ = 0;
  std::array<std::uint32_t, most_order + 1> free_{};
};

}}} // namespace dat::v0::detail
