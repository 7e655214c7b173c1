// The parts of DTOs: the zone, address, length and key of segments, and lists of segments in the form of verbs.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/fwd.hpp>
#include <dat/privileges.hpp>

#include <infiniband/verbs.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

/// The reason why a post refuses a list whose zone_tag has no region.
inline constexpr const char* no_region_hint = "A segment is of an lmr that is empty or closed.";

/// The protection zones of some segments, together. An endpoint compares it with its own, once per list.
///
/// The word of a zone is its address beside the number of zero bits in that address (a Berger code). No such word is a
/// bitwise subset of another, so the OR of several is the word of a zone only if all of them are equal. Mark bits use
/// address bits that are always zero: a list with a mark equals no zone, and the post checks it segment by segment. The
/// address is compared and never used: the zone may be closed already.
class zone_tag {
public:
  /// The tag of a list without segments.
  constexpr zone_tag() noexcept = default;
  explicit zone_tag(const void* pz) noexcept {
    const auto address = std::uint64_t{reinterpret_cast<std::uintptr_t>(pz)};
    constexpr std::uint64_t counted = (one << address_bits) - 1;
    value_ = address | static_cast<std::uint64_t>(std::popcount(~address & counted)) << address_bits;
  }
  /// The tag of an endpoint without a zone. No list has it.
  [[nodiscard]] static constexpr zone_tag none() noexcept { return zone_tag(one); }
  /// The tag of a segment of length 0.
  [[nodiscard]] static constexpr zone_tag no_bytes() noexcept { return zone_tag(empty_mark); }
  /// The tag of an lmr that is empty or closed. A list that holds it cannot be posted.
  [[nodiscard]] static constexpr zone_tag no_region() noexcept { return zone_tag(gone_mark | empty_mark); }
  /// The tag of a region that is too long for one segment. A list that holds it cannot be posted.
  [[nodiscard]] static constexpr zone_tag unpostable() noexcept { return zone_tag(~(marks | one)); }

  /// The tag of memory that is addressed from 0: its addresses are no pointers, so the CPU cannot copy from them.
  [[nodiscard]] constexpr zone_tag with_offset_bit() const noexcept { return zone_tag(value_ | offset_mark); }
  [[nodiscard]] constexpr bool marked() const noexcept { return (value_ & marks) != 0; }
  [[nodiscard]] constexpr bool has_offsets() const noexcept { return (value_ & offset_mark) != 0; }
  [[nodiscard]] constexpr bool has_no_region() const noexcept { return (value_ & gone_mark) != 0; }
  [[nodiscard]] constexpr zone_tag unmarked() const noexcept { return zone_tag(value_ & ~marks); }

  friend constexpr zone_tag operator|(zone_tag a, zone_tag b) noexcept { return zone_tag(a.value_ | b.value_); }
  friend constexpr bool operator==(zone_tag, zone_tag) noexcept = default;

private:
  static constexpr std::uint64_t one = 1;
  static constexpr unsigned address_bits =
      48; // bits of a user-space address; a pointer tag above bit 53 is part of the word
  // Zones are aligned to 16 bytes, so the low four bits are free.
  static constexpr std::uint64_t gone_mark = one; // also the word of none(); in a list it occurs only with empty_mark
  static constexpr std::uint64_t empty_mark = 2;
  static constexpr std::uint64_t offset_mark = 8;
  static constexpr std::uint64_t marks = empty_mark | offset_mark;

  constexpr explicit zone_tag(std::uint64_t value) noexcept : value_(value) {}

  std::uint64_t value_ = 0;
};

/// Bytes of the word that an atomic works on.
inline constexpr std::uint32_t word_size = 8;

/// A piece of local memory with its key.
struct raw_segment {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint32_t key = 0;
  zone_tag zone = zone_tag::no_bytes();
};

/// A piece of a peer's memory with its key.
struct raw_remote {
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint32_t key = 0;
};

struct segment_access {
  template <class S>
  static constexpr const auto& raw(const S& s) noexcept {
    return s.raw_;
  }
  template <class S, class R>
  static constexpr S make(const R& raw) noexcept {
    S s;
    s.raw_ = raw;
    return s;
  }
  template <class W, class... A>
  static constexpr W make_word(const A&... a) noexcept {
    return W(a...);
  }
  /// The memory that an atomic changes.
  template <class W>
  [[gnu::always_inline]] static constexpr raw_remote place(const W& word) noexcept {
    return {word.address_, sizeof(std::uint64_t), word.key_};
  }
};

/// Whether `count` elements of `U` that begin `offset` bytes after `address` are inside `length` bytes and aligned.
template <class U>
[[nodiscard]] constexpr bool fits(std::uint64_t address, std::uint64_t length, std::uint64_t offset,
                                  std::uint64_t count) noexcept {
  return offset <= length && count <= (length - offset) / sizeof(U) && (address + offset) % alignof(U) == 0;
}
inline constexpr const char* fits_hint =
    "The range offset + count * sizeof(U) must not exceed size_bytes(), and its first byte must be aligned for U.";

// An LMR triplet and an ibv_sge are the same three numbers (uDAPL 2.0 §A.4).
static_assert(sizeof(ibv_sge) == 16 && offsetof(ibv_sge, length) == 8 && offsetof(ibv_sge, lkey) == 12);

// A list whose number of segments is known at run time copies as many segments as it has. g++ does not see that the
// others are not read, and would warn in the consumer's build.
#ifndef __clang__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
/// Copies the 16 bytes that both types begin with, as one word.
[[gnu::always_inline]] inline void copy_16(void* to, const void* from) noexcept {
  using word [[gnu::vector_size(16), gnu::aligned(8), gnu::may_alias]] = std::uint64_t;
  *static_cast<word*>(to) = *static_cast<const word*>(from);
}
#ifndef __clang__
#pragma GCC diagnostic pop
#endif
static_assert(offsetof(raw_segment, length) == 8 && offsetof(raw_segment, key) == 12);

/// Whether a type names local memory in a DTO: a local_segment, or an lmr as a whole.
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

/// Memory, or one word of it, for the old value of an atomic.
template <class S>
concept names_word = names_memory<S> || std::is_same_v<std::remove_cvref_t<S>, ib::local_word>;
template <class S>
concept names_remote_word = names_remote<S> || std::is_same_v<std::remove_cvref_t<S>, ib::remote_word>;

template <class S>
inline constexpr mem_priv rights_of = std::remove_cvref_t<S>::rights;
template <class... S>
inline constexpr mem_priv common_rights = (rights_of<S> & ...);

/// False for an lmr that is an rvalue, because it would close before the adapter has finished with the memory. A
/// segment owns nothing.
template <class S>
inline constexpr bool outlives_call = !is_lmr<std::remove_cvref_t<S>> || std::is_lvalue_reference_v<S>;

/// The contents of a segment, or of the segment that an lmr is as a whole.
template <class S>
requires is_lmr<S>
constexpr raw_segment raw_of(const S& region) noexcept { return segment_access::raw(region.whole()); }
template <class S>
constexpr const raw_segment& raw_of(const S& segment) noexcept {
  return segment_access::raw(segment);
}

/// The properties of a list as a whole, for any capacity.
class sge_summary {
public:
  /// The number of segments, those of length 0 included.
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] zone_tag zone() const noexcept { return zone_; }
  /// Whether all segments are of this zone. An empty list is of every zone. For tidy lists.
  [[nodiscard]] bool is_within(zone_tag z) const noexcept { return zone_ == z || count_ == 0; }

protected:
  zone_tag zone_;
  std::uint64_t bytes_ = 0;
  std::uint32_t count_ = 0;
};

/// At most N segments. Segments of length 0 must not reach the device: zero means 2^31 bytes to some adapters, and the
/// key may be invalid. They mark the zone of their list, so that the comparison of zones in posts
/// detects them, and `tidy` removes them.
template <std::size_t N>
class sge_list : public sge_summary {
public:
  sge_list() noexcept {} // sge_ stays uninitialised
  /// The segments of a DTO that is made with them.
  template <class... Raw>
  [[gnu::always_inline]] void start(const Raw&... segments) noexcept {
    std::size_t i = 0;
    (put(i++, segments), ...);
    count_ = sizeof...(Raw);
  }
  /// One segment that is known to be a word.
  [[gnu::always_inline]] void start_word(const raw_segment& s) noexcept {
    start(s);
    bytes_ = word_size;
  }
  void push(const raw_segment& s) noexcept { put(count_++, s); }
  /// Takes over a list of at most N segments. Copies only the segments that exist. The operator `=` copies a block,
  /// which would put a list from registers into memory.
  template <std::size_t M>
  [[gnu::always_inline]] void assign(const sge_list<M>& o) noexcept {
    zone_ = o.zone();
    bytes_ = o.bytes();
    count_ = o.count();
    o.copy_to(sge_);
  }
  /// Takes over the segments of a work request.
  void restore(const ibv_sge* segments, std::uint32_t count, zone_tag zone) noexcept {
    zone_ = zone;
    bytes_ = 0;
    count_ = count;
    for (std::uint32_t i = 0; i < count; ++i) {
      sge_[i] = segments[i];
      bytes_ += segments[i].length;
    }
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

  /// Shortens the list to `most` bytes: drops the last segments, and cuts the one in which the limit lies.
  [[gnu::cold]] void cut(std::uint64_t most) noexcept {
    if (bytes_ <= most) return;
    std::uint32_t kept = 0;
    for (std::uint64_t left = most; left != 0; left -= sge_[kept++].length)
      if (sge_[kept].length > left) sge_[kept].length = static_cast<std::uint32_t>(left);
    bytes_ = most;
    count_ = kept;
  }

  /// The number of segments that transfer something.
  [[nodiscard]] std::uint32_t size() const noexcept {
    sge_list copy = *this;
    copy.tidy();
    return copy.count_;
  }
  /// Copies the segments to where a work request points to. Unrolled for few segments.
  [[gnu::always_inline]] void copy_to(ibv_sge* to) const noexcept {
    if constexpr (N <= 8) {
      [&]<std::size_t... I>(std::index_sequence<I...>) __attribute__((always_inline)) {
        ((I < count_ ? copy_16(&to[I], &sge_[I]) : static_cast<void>(0)), ...);
      }
      (std::make_index_sequence<N>());
    } else {
      for (std::uint32_t i = 0; i < count_; ++i) to[i] = sge_[i];
    }
  }
  // Verbs takes a pointer to non-const and does not write through it.
  [[nodiscard]] ibv_sge* list() const noexcept { return const_cast<ibv_sge*>(sge_); }
  [[nodiscard]] const ibv_sge& operator[](std::size_t i) const noexcept { return sge_[i]; }

private:
  [[gnu::always_inline]] void put(std::size_t i, const raw_segment& s) noexcept {
    // Before the copy, so that this is a separate load. After it, the compiler would extract the length from the copy.
    bytes_ += s.length;
    copy_16(&sge_[i], &s);
    zone_ = i == 0 ? s.zone : zone_ | s.zone;
  }

  ibv_sge sge_[N == 0 ? 1 : N];
};

/// Access to the list of an iov.
struct sge_list_access {
  template <class I>
  static const auto& of(const I& list) noexcept {
    return list.list_;
  }
};

}}} // namespace dat::v0::detail
