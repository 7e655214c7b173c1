// Where in a range of blocks something is free: a buddy allocator that keeps its books elsewhere.
//
// What a peer writes by mistake into registered memory then cannot damage them.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/basics.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>

namespace dat::inline v0::detail {

/// Numbers of blocks, in pieces of 2^order of them. Not synchronised.
class buddy {
public:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  /// For 2^orders blocks, all of them free. False when out of memory.
  [[nodiscard]] bool reserve(unsigned orders) noexcept {
    const std::size_t n = std::size_t{1} << orders;
    blocks_ = owned_array<block>(new (std::nothrow) block[n]);
    if (!blocks_) return false;
    orders_ = orders;
    free_.fill(none);
    push(0, orders);
    return true;
  }
  /// The first block of a free piece, or none.
  [[nodiscard]] std::uint32_t allocate(unsigned order) noexcept {
    unsigned found = order;
    while (found <= orders_ && free_[found] == none) ++found;
    if (found > orders_) return none;
    const std::uint32_t first = free_[found];
    remove(first, found);
    while (found > order) {
      --found;
      push(first + (1u << found), found);
    }
    return first;
  }
  /// Gives back what `allocate(order)` gave.
  void free(std::uint32_t first, unsigned order) noexcept {
    while (order < orders_) {
      const std::uint32_t other = first ^ (1u << order);
      if (blocks_[other].order != order) break; // in use, or in smaller pieces
      remove(other, order);
      first &= ~(1u << order);
      ++order;
    }
    push(first, order);
  }
  /// Whether the piece that begins there is free: it was freed twice then.
  [[nodiscard]] bool is_free(std::uint32_t first) const noexcept { return blocks_[first].order != in_use; }

private:
  static constexpr std::uint8_t in_use = 0xff;
  struct block {
    std::uint32_t next = none;
    std::uint32_t before = none;
    std::uint8_t order = in_use; ///< of the free piece that begins here
  };

  void push(std::uint32_t first, unsigned order) noexcept {
    block& b = blocks_[first];
    b = {free_[order], none, static_cast<std::uint8_t>(order)};
    if (b.next != none) blocks_[b.next].before = first;
    free_[order] = first;
  }
  void remove(std::uint32_t first, unsigned order) noexcept {
    block& b = blocks_[first];
    (b.before != none ? blocks_[b.before].next : free_[order]) = b.next;
    if (b.next != none) blocks_[b.next].before = b.before;
    b = {};
  }

  owned_array<block> blocks_;
  unsigned orders_ = 0;
  std::array<std::uint32_t, 32> free_{};
};

} // namespace dat::inline v0::detail
