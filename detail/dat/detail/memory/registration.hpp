// The types of memory that can be registered, and the verbs access flags of each right.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/privileges.hpp>
#include <dat/segment.hpp>

#include <dat/detail/verbs/extended_post.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

template <class R>
inline constexpr bool is_span = false;
template <class T, std::size_t N>
inline constexpr bool is_span<std::span<T, N>> = true;
/// Whether a range is contiguous and sized. (std::span decides, because <ranges> costs more to compile than all of
/// verbs. A span needs no such question, because the constraints of its constructors are expensive, too.)
template <class R>
concept contiguous = is_span<std::remove_cvref_t<R>> || requires(R&& r) {
  std::span(r);
};
/// The span over a contiguous range.
template <class R>
[[nodiscard]] constexpr auto span_over(R& range) noexcept {
  if constexpr (is_span<std::remove_const_t<R>>)
    return range;
  else
    return std::span(range);
}
template <class R>
using element_of = typename decltype(span_over(std::declval<R&>()))::element_type;

/// Whether the elements outlive the range object: those of an lvalue do, and those of views such as std::span.
template <class R>
inline constexpr bool elements_live_on =
    std::is_lvalue_reference_v<R> || std::ranges::enable_borrowed_range<std::remove_cvref_t<R>>;

[[nodiscard]] constexpr bool writes(mem_priv p) noexcept {
  return (p & (mem_priv::local_write | mem_priv::remote_write | mem_priv::remote_atomic)) != mem_priv::none;
}

[[nodiscard]] constexpr int verbs_access(mem_priv p) noexcept {
  int access = 0; // verbs always grants local read
  // Verbs requires local write wherever a peer may write.
  if (writes(p)) access |= IBV_ACCESS_LOCAL_WRITE;
  if (includes(p, mem_priv::remote_read)) access |= IBV_ACCESS_REMOTE_READ;
  if (includes(p, mem_priv::remote_write)) access |= IBV_ACCESS_REMOTE_WRITE;
  if (includes(p, mem_priv::remote_atomic)) access |= IBV_ACCESS_REMOTE_ATOMIC;
  if (includes(p, mem_priv::flush_global)) access |= access_flush_global;
  if (includes(p, mem_priv::flush_persistent)) access |= access_flush_persistent;
  return access;
}

}}} // namespace dat::v0::detail
