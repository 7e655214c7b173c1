// What may be registered, and with which verbs access flags.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/privileges.hpp>
#include <dat/segment.hpp>

#include <infiniband/verbs.h>

#include <ranges>
#include <type_traits>

namespace dat::inline v0::detail {

template <class R>
using element_of = std::remove_reference_t<std::ranges::range_reference_t<R>>;

template <class R>
concept registrable = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    std::ranges::borrowed_range<R> && transferable<std::remove_const_t<element_of<R>>>;

[[nodiscard]] constexpr bool writes(mem_priv p) noexcept {
  return (p & (mem_priv::local_write | mem_priv::remote_write | mem_priv::remote_atomic)) != mem_priv::none;
}

[[nodiscard]] constexpr int verbs_access(mem_priv p) noexcept {
  int access = 0; // verbs always grants local read
  // Verbs wants the adapter to have local write wherever a peer may write.
  if (writes(p)) access |= IBV_ACCESS_LOCAL_WRITE;
  if (includes(p, mem_priv::remote_read)) access |= IBV_ACCESS_REMOTE_READ;
  if (includes(p, mem_priv::remote_write)) access |= IBV_ACCESS_REMOTE_WRITE;
  if (includes(p, mem_priv::remote_atomic)) access |= IBV_ACCESS_REMOTE_ATOMIC;
  return access;
}

} // namespace dat::inline v0::detail
