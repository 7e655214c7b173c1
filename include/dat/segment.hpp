// Segments: pieces of registered memory, local or remote, that a DTO reads or writes.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>
#include <dat/expected.hpp>
#include <dat/fwd.hpp>
#include <dat/privileges.hpp>

#include <dat/detail/base/big_endian.hpp>
#include <dat/detail/request/sge_list.hpp>

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

namespace dat { inline namespace v0 {

/// Element types whose bytes may be sent and received as they are.
template <class T>
concept transferable = std::is_trivially_copyable_v<T> && !std::is_reference_v<T> && !std::is_volatile_v<T>;

/// A contiguous piece of an lmr in this process, an LMR triplet in uDAPL. `lmr::slice` creates it, and so does naming
/// the lmr itself. Its bounds were checked at creation; posts do not check them again. It does not keep the region
/// alive: the lmr must outlive the completion of every DTO that names it.
///
/// `T` is the element type, `P` the rights of the region. Copyable, 24 bytes.
/// Thread safety: a value.
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
  /// Errors: `invalid_parameter` when the range exceeds the segment.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  [[nodiscard]] constexpr expected<local_segment> slice(std::size_t first, std::size_t count) const noexcept {
    const std::size_t end = first + count;
    if (end < first || end > size())
      return error(return_type::invalid_parameter)
          .at("local_segment.slice", object_kind::lmr, raw_.key)
          .hint("The range first + count must not exceed size().");
    local_segment s = *this;
    s.raw_.address += first * sizeof(T);
    s.raw_.length = static_cast<std::uint32_t>(count * sizeof(T));
    if (count == 0) s.raw_.zone = detail::zone_tag::no_bytes();
    return s;
  }

  /// `count` elements of another type that begin `offset` bytes from the start of this segment: a member of a
  /// structure, the words of a buffer.
  ///
  ///     table.slice(7, 1)->as<std::uint64_t>(offsetof(row, lock), 1)
  ///
  /// Errors: `invalid_parameter` when the elements exceed the segment, or are not aligned for `U`.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
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
    if (count == 0) raw.zone = detail::zone_tag::no_bytes();
    return detail::segment_access::make<local_segment<U, P>>(raw);
  }

  /// The word at `index`, as the place for the old value of an atomic (IB extensions §3, local_iov). Include
  /// <dat/ib.hpp>. Posts do not check it again.
  /// Errors: `invalid_parameter` when `index` is not below size().
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  [[nodiscard]] constexpr expected<ib::local_word> word(std::size_t index = 0) const noexcept;

private:
  friend struct detail::segment_access;
  detail::raw_segment raw_{};
};

/// Memory of another process that RDMA operations of this side may access, an RMR triplet in uDAPL. The owner creates
/// it by `lmr::remote()`. It reaches the peer as 24 bytes (`to_wire`, `from_wire`) by any channel, typically as private
/// data or in a send.
///
/// `T` is the element type, `P` the rights that the owner granted. Copyable.
/// Thread safety: a value.
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
  /// A segment with more rights, for a function that needs fewer.
  template <mem_priv Q>
  requires(Q != P && includes(Q, P)) constexpr remote_segment(const remote_segment<T, Q>& more) noexcept
      : raw_(detail::segment_access::raw(more)) {}

  /// `count` elements that a peer describes by address and rkey in a protocol of its own, in host byte order. Nothing
  /// shows whether the owner granted the rights `P`: an operation without the right fails at the peer.
  /// Errors: `invalid_parameter` when the elements exceed the address space.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  [[nodiscard]] static constexpr expected<remote_segment> make(std::uint64_t address, std::uint64_t count,
                                                               std::uint32_t rkey) noexcept {
    if (count > (std::numeric_limits<std::uint64_t>::max() - address) / sizeof(T))
      return error(return_type::invalid_parameter)
          .at("remote_segment.make", object_kind::rmr, rkey)
          .hint("The sum address + count * sizeof(T) exceeds 64 bits.");
    return detail::segment_access::make<remote_segment>(detail::raw_remote{address, count * sizeof(T), rkey});
  }

  /// The address and the key in the memory of the owner, for protocols that exchange them without dat's wire form.
  [[nodiscard]] constexpr std::uint64_t address() const noexcept { return raw_.address; }
  [[nodiscard]] constexpr std::uint32_t rkey() const noexcept { return raw_.key; }
  [[nodiscard]] constexpr std::uint64_t size() const noexcept { return raw_.length / sizeof(T); }
  [[nodiscard]] constexpr std::uint64_t size_bytes() const noexcept { return raw_.length; }
  [[nodiscard]] constexpr bool empty() const noexcept { return raw_.length == 0; }

  /// Elements [first, first + count).
  /// Errors: `invalid_parameter` when the range exceeds the segment.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  [[nodiscard]] constexpr expected<remote_segment> slice(std::uint64_t first, std::uint64_t count) const noexcept {
    if (first > size() || count > size() - first)
      return error(return_type::invalid_parameter)
          .at("remote_segment.slice", object_kind::rmr, raw_.key)
          .hint("The range first + count must not exceed size().");
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
  /// Errors: `invalid_parameter` when the elements exceed the segment, or are not aligned for `U`.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  template <transferable U>
  [[nodiscard]] expected<remote_segment<U, P>> as(std::uint64_t offset, std::uint64_t count) const noexcept {
    if (!detail::fits<U>(raw_.address, raw_.length, offset, count))
      return error(return_type::invalid_parameter)
          .at("remote_segment.as", object_kind::rmr, raw_.key)
          .hint(detail::fits_hint);
    return detail::segment_access::make<remote_segment<U, P>>(
        detail::raw_remote{raw_.address + offset, count * sizeof(U), raw_.key});
  }

  /// The word at `index`, for atomics; include <dat/ib.hpp>. The requirements of atomics are checked here, once (IB
  /// extensions §3, remote_iov).
  /// Errors: `invalid_parameter` when `index` is not below size(), or the peer's memory is not at a multiple of 8.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  [[nodiscard]] constexpr expected<ib::remote_word> word(std::uint64_t index = 0) const noexcept;

  /// The fixed big-endian form that is sent to the peer.
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

  /// Reads the bytes of a peer's `to_wire`. The peer may have granted more rights than `P`, not fewer.
  /// Errors: `invalid_parameter` when there are fewer than `wire_size` bytes, the version is unknown, the element size
  /// differs from sizeof(T), or the length is no multiple of it or exceeds the address space; `privileges_violation`
  /// when a right of `P` is missing, with that right as subtype.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  [[nodiscard]] static constexpr expected<remote_segment> from_wire(std::span<const std::byte> bytes) noexcept {
    const auto bad = [](const char* hint) {
      return error(return_type::invalid_parameter).at("remote_segment.from_wire", object_kind::rmr, 0).hint(hint);
    };
    if (bytes.size() < wire_size) return bad("The wire form of a remote segment has 24 bytes.");
    const std::byte* p = bytes.data();
    if (p[23] != static_cast<std::byte>(detail::segment_wire_version))
      return bad("The version is unknown: the peer uses another wire form, or these bytes are no segment.");
    remote_segment s;
    s.raw_.address = detail::get_be<std::uint64_t>(p);
    s.raw_.length = detail::get_be<std::uint64_t>(p + 8);
    s.raw_.key = detail::get_be<std::uint32_t>(p + 16);
    if (detail::get_be<std::uint16_t>(p + 20) != sizeof(T) || s.raw_.length % sizeof(T) != 0)
      return bad("The element size of the peer differs: both sides must use the same element type.");
    if (s.raw_.length > std::numeric_limits<std::uint64_t>::max() - s.raw_.address)
      return bad("The sum address + length exceeds 64 bits.");
    const auto granted = static_cast<mem_priv>(p[22]);
    if (!includes(granted, P))
      return error(return_type::privileges_violation,
                   includes(P, mem_priv::remote_read) && !includes(granted, mem_priv::remote_read)
                       ? return_subtype::privileges_rdma_read
                       : return_subtype::privileges_rdma_write)
          .at("remote_segment.from_wire", object_kind::rmr, s.raw_.key)
          .hint("The owner registered the memory without a right that this segment type needs.");
    return s;
  }

private:
  friend struct detail::segment_access;
  detail::raw_remote raw_{};
};

/// Converts an rkey, an lkey, an address or a length, for peers that agree on a byte order in place of the wire form of
/// remote_segment: `to_lsb` returns the number whose bytes in memory begin with the least significant one, `to_msb` the
/// one whose bytes begin with the most significant one. Each of them also converts back to the order of the host (uDAPL
/// 2.0 appendix A.4, DAT_RMRC_TO_LSB and the other seven macros).
///
///     message m{dat::to_lsb(region.rkey()), dat::to_lsb(region.address()), dat::to_lsb(region.size_bytes())};
///
/// Allocates: never.
/// Blocks: never.
/// Thread safety: safe.
template <std::unsigned_integral U>
[[nodiscard]] constexpr U to_lsb(U host) noexcept {
  return std::endian::native == std::endian::little ? host : detail::swap_bytes(host);
}
/// See to_lsb.
template <std::unsigned_integral U>
[[nodiscard]] constexpr U to_msb(U host) noexcept {
  return std::endian::native == std::endian::big ? host : detail::swap_bytes(host);
}

}} // namespace dat::v0
