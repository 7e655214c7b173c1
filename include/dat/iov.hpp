// Scatter/gather lists: several local segments that one DTO treats as one buffer.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/segment.hpp>

#include <dat/detail/request/sge_list.hpp>

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace dat { inline namespace v0 {

/// A list of at most `N` local segments, used in order (uDAPL 2.0 §6.6.20 local_iov). Every segment must have at least
/// the rights `P`; the DTO that takes the list checks for the right that it needs.
///
///     dat::send{dat::iov{header, payload}}                  // two segments, known at compile time
///     dat::iov<8, dat::mem_priv::local_read> list;          // filled at run time
///     list.push_back(piece);
///
/// Copyable.
/// Allocates: never.
/// Thread safety: a value.
template <std::size_t N, mem_priv P>
class iov {
public:
  static constexpr std::size_t capacity = N;
  static constexpr mem_priv rights = P;

  iov() noexcept = default;

  /// A list of these segments, or of whole lmrs.
  template <class... S>
  requires(sizeof...(S) > 0 && sizeof...(S) <= N && (detail::names_memory<S> && ...))
      [[gnu::always_inline]] explicit iov(S&&... segments) noexcept {
    static_assert((includes(detail::rights_of<S>, P) && ...),
                  "dat: a segment of this iov lacks a right of the list; register its memory with that right");
    static_assert((detail::outlives_call<S> && ...),
                  "dat: the adapter reads or writes this memory after the call; pass an lmr that lives on (an lvalue)");
    list_.start(detail::raw_of(segments)...);
  }

  /// Appends a segment. Returns false when the list is full, and leaves it unchanged.
  template <class S>
  requires detail::names_memory<S>
  [[nodiscard]] bool push_back(S&& segment) noexcept {
    static_assert(includes(detail::rights_of<S>, P), "dat: this segment lacks a right of the list");
    static_assert(detail::outlives_call<S>, "dat: pass an lmr that lives on (an lvalue), not a temporary");
    if (list_.count() == N) return false;
    const detail::raw_segment raw = detail::raw_of(segment);
    // A segment without a region stays in the list, and the post refuses it.
    if (raw.length != 0 || raw.zone.has_no_region()) list_.push(raw);
    return true;
  }

  void clear() noexcept { list_ = detail::sge_list<N>(); }
  /// The number of segments, without empty ones: those transfer nothing and are left out.
  [[nodiscard]] std::size_t size() const noexcept { return list_.size(); }
  [[nodiscard]] bool empty() const noexcept { return list_.size() == 0; }
  /// Total bytes.
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return list_.bytes(); }

private:
  friend struct detail::sge_list_access;
  detail::sge_list<N> list_;
};

template <class... S>
requires(sizeof...(S) > 0) iov(S&&...)
->iov<sizeof...(S), detail::common_rights<S...>>;

}} // namespace dat::v0

namespace dat { inline namespace v0 { namespace detail {
template <class T>
inline constexpr bool is_iov = false;
template <std::size_t N, mem_priv P>
inline constexpr bool is_iov<iov<N, P>> = true;
/// Whether a type names local memory in a DTO.
template <class S>
concept names_local = names_memory<S> || is_iov<std::remove_cvref_t<S>>;
/// For assertions, in place of the concept: clang explains every part of an unsatisfied concept, which takes a page.
template <class S>
inline constexpr bool is_local = names_local<S>;
}}} // namespace dat::v0::detail
