// From LMR triplets to the segments that operations of dat take.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "calls.hpp"

#include <concepts>
#include <cstdint>

namespace provider {

/// The most segments of one operation.
inline constexpr DAT_COUNT most_segments = 64;

/// The segment that a triplet names in a region; null: no region has its lmr_context.
template <dat::mem_priv P>
[[nodiscard]] inline dat::expected<dat::local_segment<std::byte, P>>
segment(const lmr_object* region, const DAT_LMR_TRIPLET& t, dat::privileges<P> rights) noexcept {
  if (!region) return dat::error(return_type::privileges_violation).hint("No region has the lmr_context of a segment.");
  return region->lmr.slice(t.virtual_address - region->lmr.address(), t.segment_length, rights);
}

/// Calls `post` with a list that has room for `N` segments. A triplet of length 0 names no memory, whatever else it
/// has.
template <std::size_t N, dat::mem_priv P, class Post>
[[nodiscard]] DAT_RETURN with_list(const adapter& a, DAT_COUNT n, const DAT_LMR_TRIPLET* iov, dat::privileges<P> rights,
                                   Post post) noexcept {
  dat::iov<N, P> list;
  for (DAT_COUNT i = 0; i < n; ++i) {
    dat::local_segment<std::byte, P> memory;
    if (iov[i].segment_length != 0) {
      const auto s = segment(a.regions.find(iov[i].lmr_context), iov[i], rights);
      if (!s) return word(s);
      memory = s.assume_value();
    }
    (void)list.push_back(memory);
  }
  return post(list);
}

/// Calls `post(memory)` with the memory that a list of triplets names, as a segment or a dat::iov. A region that is
/// named alone is `known` from now on.
template <dat::mem_priv P, class Post>
[[nodiscard]] DAT_RETURN with_local(const adapter& a, const known_region*& known, DAT_COUNT n,
                                    const DAT_LMR_TRIPLET* iov, dat::privileges<P> rights, const char* call,
                                    Post post) noexcept {
  if (n < 0 || n > most_segments) return bad_argument(2, call);
  if (n != 0 && !iov) return bad_argument(3, call);
  if (n != 1 || iov->segment_length == 0)
    return n <= 4 ? with_list<4>(a, n, iov, rights, post) : with_list<most_segments>(a, n, iov, rights, post);
  const lmr_object* const region = a.regions.find(iov->lmr_context);
  if (region) known = &region->known;
  const auto s = segment(region, *iov, rights);
  return s ? post(s.assume_value()) : word(s);
}

/// Sets the completion flags of an operation. False when it cannot have one of them.
template <class Operation>
[[nodiscard, gnu::always_inline]] inline bool set_flags(Operation& operation, DAT_COMPLETION_FLAGS flags) noexcept {
  if (flags == DAT_COMPLETION_DEFAULT_FLAG) [[likely]]
    return true;
  constexpr bool can_fence = requires {
    { operation.fence() } -> std::same_as<Operation&>;
  };
  constexpr bool can_solicit = requires { operation.solicited(); };
  constexpr bool can_suppress = requires { operation.suppress_completion(); };
  constexpr std::uint32_t all = DAT_COMPLETION_UNSIGNALLED_FLAG | (can_suppress ? DAT_COMPLETION_SUPPRESS_FLAG : 0) |
                                (can_fence ? DAT_COMPLETION_BARRIER_FENCE_FLAG : 0) |
                                (can_solicit ? DAT_COMPLETION_SOLICITED_WAIT_FLAG : 0);
  if (!within(flags, all)) return false;
  if ((flags & DAT_COMPLETION_UNSIGNALLED_FLAG) != 0) operation.suppress_notification();
  if constexpr (can_suppress)
    if ((flags & DAT_COMPLETION_SUPPRESS_FLAG) != 0) operation.suppress_completion();
  if constexpr (can_fence)
    if ((flags & DAT_COMPLETION_BARRIER_FENCE_FLAG) != 0) operation.fence();
  if constexpr (can_solicit)
    if ((flags & DAT_COMPLETION_SOLICITED_WAIT_FLAG) != 0) operation.solicited();
  return true;
}

/// Lets a request of `bytes` carry its data when it is small; a receive or a read carries none.
template <class Operation>
[[gnu::always_inline]] inline void carry_small(Operation& operation, const ep_object& e, std::uint64_t bytes) noexcept {
  if constexpr (requires { operation.inlined(); })
    if (bytes <= e.max_inline) [[likely]]
      operation.inlined();
}

/// The segment of a peer's memory that a triplet names, for operations that need the rights `P`. Null names none.
template <dat::mem_priv P>
[[nodiscard]] inline dat::expected<dat::remote_segment<std::byte, P>> remote_segment(const DAT_RMR_TRIPLET* t,
                                                                                     dat::privileges<P>) noexcept {
  if (!t) [[unlikely]]
    return dat::error(return_type::invalid_parameter);
  return dat::remote_segment<std::byte, P>::make(t->virtual_address, t->segment_length, t->rmr_context);
}

} // namespace provider
