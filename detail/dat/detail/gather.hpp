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

namespace dat::inline v0::detail {

// An LMR triplet and an ibv_sge are the same three numbers (uDAPL 2.0 §A.4).
static_assert(sizeof(ibv_sge) == 16 && offsetof(ibv_sge, length) == 8 && offsetof(ibv_sge, lkey) == 12);

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

template <class S>
inline constexpr mem_priv rights_of = std::remove_cvref_t<S>::rights;
template <class... S>
inline constexpr mem_priv common_rights = (rights_of<S> & ...);

/// An lmr given as an rvalue would die before the adapter is done with it; a segment owns nothing.
template <class S>
inline constexpr bool outlives_call = !is_lmr<std::remove_cvref_t<S>> || std::is_lvalue_reference_v<S>;

template <class S>
constexpr raw_segment raw_of(const S& s) noexcept {
  if constexpr (is_lmr<S>)
    return segment_access::raw(s.whole());
  else
    return segment_access::raw(s);
}

/// Marks a list whose segments are of different protection zones, or too long for one segment: no endpoint's zone
/// equals it, so the one comparison made at post finds it.
inline constexpr std::uintptr_t mixed_zones = 1;

template <std::size_t N>
class gather {
public:
  gather() noexcept {}

  void push(const raw_segment& s) noexcept {
    if (s.length == 0) return; // zero means 2^31 bytes to some adapters, and its key may be invalid
    sge_[count_] = {s.address, s.length, s.key};
    const auto zone = reinterpret_cast<std::uintptr_t>(s.pz);
    zone_ = count_ == 0 || zone_ == zone ? zone : mixed_zones;
    bytes_ += s.length;
    ++count_;
  }

  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uintptr_t zone() const noexcept { return zone_; }
  /// True when all segments are of `pz`. An empty list is of every zone.
  [[nodiscard]] bool within(const pz_core* pz) const noexcept {
    return zone_ == reinterpret_cast<std::uintptr_t>(pz) || count_ == 0;
  }
  // Verbs takes a pointer to non-const and does not write through it.
  [[nodiscard]] ibv_sge* list() const noexcept { return const_cast<ibv_sge*>(sge_); }

private:
  ibv_sge sge_[N == 0 ? 1 : N];
  std::uintptr_t zone_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint32_t count_ = 0;
};

struct gather_access {
  template <class I>
  static const auto& of(const I& list) noexcept {
    return list.gather_;
  }
};

} // namespace dat::inline v0::detail
