// The book of one side of one life: each accepted operation ends exactly once.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "board.hpp"

#include <dat/cookie.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace soak {

class book {
public:
  struct entry {
    operation kind{};
    std::uint32_t slot = 0; ///< the consumer's buffer
    bool ended = false;
  };

  book(std::uint64_t life, side& counts) noexcept : life_(life), counts_(&counts) {}

  /// Adds an operation that is about to be posted. Its cookie names the life, too.
  dat::cookie begin(operation kind, std::size_t slot) {
    entries_.push_back({kind, static_cast<std::uint32_t>(slot), false});
    ++outstanding_;
    ++counts_->accepted[index(kind)];
    return dat::cookie((life_ << index_bits) | (entries_.size() - 1));
  }
  /// Removes the last entry, because its post was refused.
  void refuse() noexcept {
    --counts_->accepted[index(entries_.back().kind)];
    entries_.pop_back();
    --outstanding_;
  }
  /// Ends the operation that a completion names. On a fault returns null, and `why` has the reason.
  entry* end(dat::cookie cookie, bool good, std::size_t bytes, const char*& why) noexcept {
    const auto value = cookie.value();
    const auto at = value & ((std::uint64_t{1} << index_bits) - 1);
    if (value >> index_bits != (life_ & life_mask)) return why = "a completion of another life", nullptr;
    if (at >= entries_.size()) return why = "a completion of an operation that was never accepted", nullptr;
    entry& e = entries_[at];
    if (e.ended) return why = "a second completion of one operation", nullptr;
    e.ended = true;
    --outstanding_;
    ++(good ? counts_->done : counts_->failed)[index(e.kind)];
    if (good) counts_->bytes += bytes;
    return &e;
  }
  /// The endpoint is closed: outstanding operations never complete.
  void drop() noexcept {
    for (entry& e : entries_) {
      if (e.ended) continue;
      e.ended = true;
      ++counts_->dropped[index(e.kind)];
    }
    outstanding_ = 0;
  }
  [[nodiscard]] std::size_t outstanding() const noexcept { return outstanding_; }
  [[nodiscard]] std::size_t outstanding(operation kind) const noexcept {
    std::size_t n = 0;
    for (const entry& e : entries_) n += !e.ended && e.kind == kind;
    return n;
  }

private:
  static constexpr unsigned index_bits = 24;
  static constexpr std::uint64_t life_mask = (std::uint64_t{1} << (64 - index_bits)) - 1;
  [[nodiscard]] static std::size_t index(operation kind) noexcept { return static_cast<std::size_t>(kind); }
  std::vector<entry> entries_;
  std::size_t outstanding_ = 0;
  std::uint64_t life_;
  side* counts_;
};

} // namespace soak
