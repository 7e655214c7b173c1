// Two endpoints of a device with words for atomics.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "support.hpp"

#include <array>
#include <cstdint>
#include <optional>

namespace device {
namespace atomic_words {

inline constexpr auto atomic_rights = all_rights | dat::remote_atomic;
inline constexpr auto word_rights = decltype(atomic_rights)::value;
using word_region = dat::lmr<std::uint64_t, word_rights>;
using remote_words = dat::remote_segment<std::uint64_t, word_rights>;

/// Words that peers may change, and words for old values.
struct words {
  std::array<std::uint64_t, 8> value{};
  word_region lmr;
  explicit words(dat::pz& pz) : lmr(must(pz.register_memory(value, atomic_rights))) {}
  [[nodiscard]] auto at(std::size_t i) const { return must(lmr.slice(i, 1)); }
  [[nodiscard]] remote_words remote(std::size_t i) const {
    return must(must(remote_words::from_wire(lmr.remote().to_wire())).slice(i, 1));
  }
  [[nodiscard]] auto old(std::size_t i) const { return must(lmr.whole().word(i)); }
  [[nodiscard]] auto word(std::size_t i) const { return must(lmr.remote().word(i)); }
};

struct atomic_pair : connected_pair {
  words near{a.pz};
  words far{b.pz};

  template <class E, class D>
  std::uint64_t done(const D& operation) {
    must(active.post(operation));
    const auto e = next<E>(a.evd);
    if (e.bytes() != 8) FAIL("an atomic of " << e.bytes() << " bytes");
    return near.value[0];
  }
  std::uint64_t add(std::uint64_t n) {
    return done<dat::ib::fetch_and_add_done>(dat::ib::fetch_and_add{near.old(0), far.word(0), n}.cookie(5));
  }
  std::uint64_t swap(std::uint64_t expected, std::uint64_t desired) {
    return done<dat::ib::compare_and_swap_done>(
        dat::ib::compare_and_swap{near.at(0), far.remote(0), expected, desired}.cookie(6));
  }
  /// The completion of a fenced read or atomic. No completion comes if Soft-RoCE has lost a packet of the operation,
  /// see docs/devices.md.
  template <class E>
  std::optional<E> fenced_done() {
    auto r = a.evd.wait(5s);
    if (!r) return std::nullopt;
    const auto* e = std::get_if<E>(&r.assume_value());
    if (!e) fail("another event came: " + describe(r.assume_value()), place::here());
    return *e;
  }
};

inline constexpr std::size_t endpoints_of_one = 4; // for each of two processes
inline constexpr std::uint64_t rounds_of_one = 25;
enum word : std::size_t { counted, locked, guarded };

} // namespace atomic_words

using namespace atomic_words;

} // namespace device
