// The scatter/gather array in the form that verbs takes, built once and posted without a copy.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/fwd.hpp>
#include <dat/privileges.hpp>

#include <dat/detail/segment_access.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace dat::inline v0::detail {

// An LMR triplet and an ibv_sge are the same three numbers (uDAPL 2.0 §A.4).
static_assert(sizeof(ibv_sge) == 16 && offsetof(ibv_sge, length) == 8 && offsetof(ibv_sge, lkey) == 12);

/// Copies the three numbers as one word: taken one by one, compilers keep them one by one.
[[gnu::always_inline]] inline void copy_triplet(void* to, const void* from) noexcept {
  using word [[gnu::vector_size(16), gnu::aligned(8), gnu::may_alias]] = std::uint64_t;
  *static_cast<word*>(to) = *static_cast<const word*>(from);
}

/// What can stand for local memory in a DTO: a local_segment, or an lmr as a whole.
template <class S>
inline constexpr bool is_segment = false;
template <class T, mem_priv P>
inline constexpr bool is_segment<local_segment<T, P>> = true;
template <class S>
inline constexpr bool is_lmr = false;
template <class T, mem_priv P>
inline constexpr bool is_lmr<lmr<T, P>> = true;
template <class S>
inline constexpr bool is_remote = false;
template <class T, mem_priv P>
inline constexpr bool is_remote<remote_segment<T, P>> = true;

template <class S>
concept names_memory = is_segment<std::remove_cvref_t<S>> || is_lmr<std::remove_cvref_t<S>>;
template <class S>
concept names_remote = is_remote<std::remove_cvref_t<S>>;

/// The same, or just a word of it.
template <class S>
concept names_word = names_memory<S> || std::is_same_v<std::remove_cvref_t<S>, ib::local_word>;
template <class S>
concept names_remote_word = names_remote<S> || std::is_same_v<std::remove_cvref_t<S>, ib::remote_word>;

template <class S>
inline constexpr mem_priv rights_of = std::remove_cvref_t<S>::rights;
template <class... S>
inline constexpr mem_priv common_rights = (rights_of<S> & ...);

/// An lmr given as an rvalue would die before the adapter is done with it; a segment owns nothing.
template <class S>
inline constexpr bool outlives_call = !is_lmr<std::remove_cvref_t<S>> || std::is_lvalue_reference_v<S>;

/// By reference where there is a segment: a copy of it would be made in memory.
template <class S>
requires is_lmr<S>
constexpr raw_segment raw_of(const S& region) noexcept { return segment_access::raw(region.whole()); }
template <class S>
constexpr const raw_segment& raw_of(const S& segment) noexcept {
  return segment_access::raw(segment);
}

/// At most N segments. Those of length 0 must not reach the device: zero means 2^31 bytes to some adapters, and the key
/// may be invalid. Rather than look for them each time, they are marked in their zone, and `tidy` removes them.
template <std::size_t N>
class gather {
public:
  gather() noexcept {}

  /// Copies segment by segment, for the compiler's sake: what is copied as a whole has to be in memory.
  [[gnu::always_inline]] void assign(const gather& o) noexcept {
    zone_ = o.zone_;
    bytes_ = o.bytes_;
    count_ = o.count_;
    each([&](std::size_t i) __attribute__((always_inline)) { sge_[i] = o.sge_[i]; });
  }

  /// The list that a DTO is made with, likewise with constant places.
  template <class... Raw>
  [[gnu::always_inline]] void start(const Raw&... segments) noexcept {
    std::size_t i = 0;
    (put(i++, segments), ...);
    count_ = sizeof...(Raw);
  }
  /// Likewise of one whose length is known when compiling.
  template <std::uint32_t Bytes>
  [[gnu::always_inline]] void start_sized(const raw_segment& segment) noexcept {
    start(segment);
    bytes_ = Bytes;
  }
  void push(const raw_segment& s) noexcept { put(count_++, s); }
  [[gnu::cold]] void push(const ibv_sge& s, common_zone zone) noexcept {
    sge_[count_++] = s;
    zone_ = zone;
    bytes_ += s.length;
  }
  /// Removes segments of length 0, and the marks.
  [[gnu::cold]] void tidy() noexcept {
    if (!zone_.marked()) return;
    std::uint32_t kept = 0;
    for (std::uint32_t i = 0; i < count_; ++i)
      if (sge_[i].length != 0) sge_[kept++] = sge_[i];
    count_ = kept;
    zone_ = zone_.unmarked();
  }

  /// How many, those of length 0 included.
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
  /// How many that transfer something.
  [[nodiscard]] std::uint32_t size() const noexcept {
    if (!zone_.marked()) return count_;
    gather copy = *this;
    copy.tidy();
    return copy.count_;
  }
  [[nodiscard, gnu::always_inline]] std::uint64_t bytes() const noexcept {
    if constexpr (N <= 1) return bytes_;
    std::uint64_t n = 0;
    each([&](std::size_t i) __attribute__((always_inline)) { n += sge_[i].length; });
    return n;
  }
  /// The same for lists that are simply within a zone, which are not long.
  [[nodiscard]] auto few_bytes() const noexcept { return bytes_; }
  [[nodiscard]] common_zone zone() const noexcept { return zone_; }
  /// True when all segments are of this zone, none is empty, and none long.
  [[nodiscard]] bool simply_within(common_zone z) const noexcept { return N == 0 || zone_ == z; }
  /// True when all segments are of this zone. An empty list is of every zone. For tidy lists.
  [[nodiscard]] bool within(common_zone z) const noexcept { return zone_ == z || count_ == 0; }
  /// For few segments: with constant places, so that a list that is known when compiling need not be in memory.
  [[gnu::always_inline]] void copy_to(ibv_sge* to) const noexcept {
    each([&](std::size_t i) __attribute__((always_inline)) { copy_triplet(&to[i], &sge_[i]); });
  }
  // Verbs takes a pointer to non-const and does not write through it.
  [[nodiscard]] ibv_sge* list() const noexcept { return const_cast<ibv_sge*>(sge_); }
  [[nodiscard]] const ibv_sge& operator[](std::size_t i) const noexcept { return sge_[i]; }

private:
  [[gnu::always_inline]] void put(std::size_t i, const raw_segment& s) noexcept {
    bytes_ += s.length; // before the copy: what was copied as one word is not well taken apart
    const common_zone its = common_zone::of(s.zone.value()); // as a number: copied as a whole, it has to be in memory
    zone_ = i == 0 ? its : zone_ | its;
    copy_triplet(&sge_[i], &s);
  }
  /// Of few segments, with constant places.
  template <class F>
  [[gnu::always_inline]] void each(F f) const noexcept {
    if constexpr (N <= 8) {
      [&]<std::size_t... I>(std::index_sequence<I...>) __attribute__((always_inline)) {
        ((I < count_ ? f(I) : static_cast<void>(0)), ...);
      }
      (std::make_index_sequence<N>());
    } else {
      for (std::uint32_t i = 0; i < count_; ++i) f(i);
    }
  }

  ibv_sge sge_[N == 0 ? 1 : N];
  common_zone zone_;
  std::conditional_t<(N > 1), std::uint32_t, std::uint64_t> bytes_ = 0; ///< of more than one, the low part
  std::uint32_t count_ = 0;
};

/// Room for the list of one work request, filled from a gather that stays untouched: as nobody else gets to know the
/// gather's address, the compiler need not put it into memory at all.
template <std::size_t N>
class posted_list {
public:
  [[nodiscard, gnu::always_inline]] ibv_sge* from(const gather<N>& g) noexcept {
    if constexpr (N <= most) {
      [&]<std::size_t... I>(std::index_sequence<I...>) {
        ((I < g.count() ? static_cast<void>(sge_[I] = g[I]) : static_cast<void>(0)), ...);
      }
      (std::make_index_sequence<N>());
      return sge_;
    } else {
      return g.list();
    }
  }

private:
  static constexpr std::size_t most = 8;
  ibv_sge sge_[N == 0 || N > most ? 1 : N];
};

struct gather_access {
  template <class I>
  static const auto& of(const I& list) noexcept {
    return list.gather_;
  }
};

} // namespace dat::inline v0::detail
