// Segments: pieces of registered memory, local or remote, that a DTO reads or writes.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>
#include <dat/expected.hpp>
#include <dat/fwd.hpp>
#include <dat/privileges.hpp>

#include <dat/detail/segment_access.hpp>
#include <dat/detail/wire.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

namespace dat::inline v0 {

/// Element types whose bytes may be sent and received as they are.
template <class T>
concept transferable = std::is_trivially_copyable_v<T> && !std::is_reference_v<T> && !std::is_volatile_v<T>;

/// A contiguous piece of an lmr in this process: what uDAPL calls an LMR triplet. Made by `lmr::slice` or by naming the
/// lmr itself; bounds were checked then, so posting does not check them again. It refers to the region without keeping
/// it alive: the lmr must outlive the completion of every DTO that names it.
///
/// `T` is the element type, `P` the rights of the region. Copyable, 24 bytes. Thread safety: a value.
template <class T, mem_priv P>
class local_segment {
public:
  using element_type = T;
  static constexpr mem_priv rights = P;

  /// An empty segment: transfers nothing, whatever its address (uDAPL 2.0 §A.4, DAT_LMR_TRIPLET).
  constexpr local_segment() noexcept = default;

  /// Number of elements.
  [[nodiscard]] constexpr std::size_t size() const noexcept { return raw_.length / sizeof(T); }
  [[nodiscard]] constexpr std::size_t size_bytes() const noexcept { return raw_.length; }
  [[nodiscard]] constexpr bool empty() const noexcept { return raw_.length == 0; }
  /// The memory itself.
  [[nodiscard]] T* data() const noexcept { return reinterpret_cast<T*>(static_cast<std::uintptr_t>(raw_.address)); }
  [[nodiscard]] std::span<T> elements() const noexcept { return {data(), size()}; }

  /// Elements [first, first + count) of this segment.
  /// Errors: `invalid_parameter` when the range is not inside. Allocates: no.
  [[nodiscard]] constexpr expected<local_segment> slice(std::size_t first, std::size_t count) const noexcept {
    if (first > size() || count > size() - first)
      return error(return_type::invalid_parameter)
          .at("local_segment.slice", object_kind::lmr, raw_.key)
          .hint("first + count must not exceed size()");
    local_segment s = *this;
    s.raw_.address += first * sizeof(T);
    s.raw_.length = static_cast<std::uint32_t>(count * sizeof(T));
    if (count == 0) s.raw_.zone = detail::common_zone::no_bytes();
    return s;
  }

  /// `count` elements of another type that begin `offset` bytes from the start of this segment: a member of a
  /// structure, the words of a buffer.
  ///
  ///     table.slice(7, 1)->as<std::uint64_t>(offsetof(row, lock), 1)
  ///
  /// Errors: `invalid_parameter` when they are not inside, or not aligned for `U`. Allocates: no.
  template <transferable U>
  [[nodiscard]] expected<local_segment<U, P>> as(std::size_t offset, std::size_t count) const noexcept {
    static_assert(std::is_const_v<U> || !std::is_const_v<T>, "dat: const elements stay const");
    if (!detail::fits<U>(raw_.address, raw_.length, offset, count))
      return error(return_type::invalid_parameter)
          .at("local_segment.as", object_kind::lmr, raw_.key)
          .hint(detail::fits_hint);
    detail::raw_segment raw = raw_;
    raw.address += offset;
    raw.length = static_cast<std::uint32_t>(count * sizeof(U));
    if (count == 0) raw.zone = detail::common_zone::no_bytes();
    return detail::segment_access::make<local_segment<U, P>>(raw);
  }

  /// The word at `index`, for what an atomic finds, see <dat/ib.hpp>: one that is there, so posts need not look.
  /// Errors: `invalid_parameter` when there is no such word. Allocates: no. Clause: IB extensions §3 (local_iov).
  template <class Word = ib::local_word>
  [[nodiscard]] constexpr expected<Word> word(std::size_t index = 0) const noexcept {
    static_assert(std::is_same_v<T, std::uint64_t>, "dat: atomics work on std::uint64_t: register the words as such");
    static_assert(includes(P, mem_priv::local_write),
                  "dat: the old value of an atomic needs memory registered with dat::local_write");
    if (index >= size())
      return error(return_type::invalid_parameter)
          .at("local_segment.word", object_kind::lmr, raw_.key)
          .hint("index must be less than size()");
    detail::raw_segment one = raw_;
    one.address += index * sizeof(T);
    one.length = sizeof(T);
    one.zone = raw_.zone.marked_short();
    return detail::segment_access::make_word<Word>(one);
  }

private:
  friend struct detail::segment_access;
  detail::raw_segment raw_{};
};

/// Memory of another process that this side may RDMA to: what uDAPL calls an RMR triplet. Made by `lmr::remote()` at
/// the owner, carried to the peer as 24 bytes (`to_wire` / `from_wire`) by any means, typically private data or a send.
///
/// `T` is the element type, `P` the rights that the owner gave. Copyable. Thread safety: a value.
template <class T, mem_priv P>
class remote_segment {
public:
  using element_type = T;
  static constexpr mem_priv rights = P;

  /// Bytes of the wire form: address (8), length in bytes (8), rkey (4), element size (2), rights (1), version (1);
  /// all numbers big-endian.
  static constexpr std::size_t wire_size = 24;
  using wire = std::array<std::byte, wire_size>;

  constexpr remote_segment() noexcept = default;

  [[nodiscard]] constexpr std::uint64_t size() const noexcept { return raw_.length / sizeof(T); }
  [[nodiscard]] constexpr std::uint64_t size_bytes() const noexcept { return raw_.length; }
  [[nodiscard]] constexpr bool empty() const noexcept { return raw_.length == 0; }

  /// Elements [first, first + count).
  /// Errors: `invalid_parameter` when the range is not inside. Allocates: no.
  [[nodiscard]] constexpr expected<remote_segment> slice(std::uint64_t first, std::uint64_t count) const noexcept {
    if (first > size() || count > size() - first)
      return error(return_type::invalid_parameter)
          .at("remote_segment.slice", object_kind::rmr, raw_.key)
          .hint("first + count must not exceed size()");
    remote_segment s = *this;
    s.raw_.address += first * sizeof(T);
    s.raw_.length = count * sizeof(T);
    return s;
  }

  /// `count` elements of another type that begin `offset` bytes from the start of this segment: a member of a
  /// structure, such as the word that an atomic changes.
  ///
  ///     table.slice(7, 1)->as<std::uint64_t>(offsetof(row, lock), 1)
  ///
  /// Errors: `invalid_parameter` when they are not inside, or not aligned for `U`. Allocates: no.
  template <transferable U>
  [[nodiscard]] expected<remote_segment<U, P>> as(std::uint64_t offset, std::uint64_t count) const noexcept {
    if (!detail::fits<U>(raw_.address, raw_.length, offset, count))
      return error(return_type::invalid_parameter)
          .at("remote_segment.as", object_kind::rmr, raw_.key)
          .hint(detail::fits_hint);
    return detail::segment_access::make<remote_segment<U, P>>(
        detail::raw_remote{raw_.address + offset, count * sizeof(U), raw_.key});
  }

  /// The word at `index`, for atomics, see <dat/ib.hpp>. What an atomic asks of it is looked at here, once.
  /// Errors: `invalid_parameter` when there is no such word, or the peer's memory is not at a multiple of 8.
  /// Allocates: no. Clause: IB extensions §3 (remote_iov).
  template <class Word = ib::remote_word>
  [[nodiscard]] constexpr expected<Word> word(std::uint64_t index = 0) const noexcept {
    static_assert(std::is_same_v<T, std::uint64_t>, "dat: atomics work on std::uint64_t: register the words as such");
    static_assert(includes(P, mem_priv::remote_atomic),
                  "dat: an atomic needs a remote segment with dat::remote_atomic");
    const auto bad = [&](const char* hint) {
      return error(return_type::invalid_parameter).at("remote_segment.word", object_kind::rmr, raw_.key).hint(hint);
    };
    if (index >= size()) return bad("index must be less than size()");
    if (raw_.address % sizeof(T) != 0) return bad("the peer's words must be at multiples of 8: only there are atomics");
    return detail::segment_access::make_word<Word>(raw_.address + index * sizeof(T), raw_.key);
  }

  /// The fixed big-endian form to hand to the peer.
  [[nodiscard]] constexpr wire to_wire() const noexcept {
    static_assert(sizeof(T) <= std::numeric_limits<std::uint16_t>::max(),
                  "dat: element type too large for the wire form");
    wire w{};
    detail::put_be(w.data(), raw_.address);
    detail::put_be(w.data() + 8, raw_.length);
    detail::put_be(w.data() + 16, raw_.key);
    detail::put_be(w.data() + 20, static_cast<std::uint16_t>(sizeof(T)));
    w[22] = static_cast<std::byte>(P);
    w[23] = static_cast<std::byte>(detail::segment_wire_version);
    return w;
  }

  /// Reads what a peer's `to_wire` gave. The peer may have granted more rights than `P`, not fewer.
  /// Errors: `invalid_parameter` when there are fewer than `wire_size` bytes, the version is unknown, the element size
  /// differs from sizeof(T), the length is no multiple of it or wraps around the address space;
  /// `privileges_violation` when a right of `P` is missing. Allocates: no.
  [[nodiscard]] static constexpr expected<remote_segment> from_wire(std::span<const std::byte> bytes) noexcept {
    const auto bad = [](const char* hint) {
      return error(return_type::invalid_parameter).at("remote_segment.from_wire", object_kind::rmr, 0).hint(hint);
    };
    if (bytes.size() < wire_size) return bad("the wire form of a remote segment has 24 bytes");
    const std::byte* p = bytes.data();
    if (p[23] != static_cast<std::byte>(detail::segment_wire_version))
      return bad("unknown version: the peer does not speak this version's wire form, or these bytes are no segment");
    remote_segment s;
    s.raw_.address = detail::get_be<std::uint64_t>(p);
    s.raw_.length = detail::get_be<std::uint64_t>(p + 8);
    s.raw_.key = detail::get_be<std::uint32_t>(p + 16);
    if (detail::get_be<std::uint16_t>(p + 20) != sizeof(T) || s.raw_.length % sizeof(T) != 0)
      return bad("the peer's element size differs: both sides must use the same element type");
    if (s.raw_.length > std::numeric_limits<std::uint64_t>::max() - s.raw_.address)
      return bad("address + length exceeds 64 bits");
    if (!includes(static_cast<mem_priv>(p[22]), P))
      return error(return_type::privileges_violation)
          .at("remote_segment.from_wire", object_kind::rmr, s.raw_.key)
          .hint("the owner registered the memory without a right that this segment type asks for");
    return s;
  }

private:
  friend struct detail::segment_access;
  detail::raw_remote raw_{};
};

} // namespace dat::inline v0
