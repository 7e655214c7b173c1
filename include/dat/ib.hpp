// InfiniBand extensions: operations that uDAPL leaves to them.
//
// Immediate data is a property of sends and RDMA writes: see dto.hpp. Here are the atomics.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/cookie.hpp>
#include <dat/dto.hpp>

#include <dat/detail/handle.hpp>

#include <concepts>
#include <cstdint>

namespace dat::inline v0::ib {

/// What both atomics have in common: one 64-bit word at the peer is changed in one step, as seen by all operations of
/// the peer's adapter, and its old value arrives in one local word, in the byte order of this host (IB extensions §3).
/// An atomic counts as an RDMA read: `max_rdma_read_out` limits how many run at once, `fence()` waits for those before.
/// Other adapters and the peer's processors see steps, too, where `ia_attributes` says so; else only this one's.
///
/// Post them like other requests: `ep.post(dat::ib::fetch_and_add{old, counter, 1}.cookie(7))`. Errors of `post`,
/// besides those of ep_ref::post: `length_error` unless the local segment is one word, or when the remote one has none;
/// `invalid_parameter` for a remote address that is no multiple of 8, and on a connection that allows no RDMA reads;
/// `model_not_supported` on an adapter without atomics.
template <class Self>
class atomic : public request<Self, 1> {
protected:
  template <class S, class R>
  atomic(dto_operation op, const S& old_value, const R& word, std::uint64_t compare_or_add,
         std::uint64_t swap) noexcept {
    this->wr_.start(op, old_value);
    this->wr_.target(word);
    this->wr_.compare_add = compare_or_add;
    this->wr_.swap = swap;
  }
  template <class S, class R>
  static constexpr void check() noexcept {
    static_assert(detail::writable<S>, "dat: the old value of an atomic needs memory registered with dat::local_write");
    static_assert(detail::outlives_call<S>, "dat: the lmr must outlive the atomic: pass an lvalue, not a temporary");
    static_assert(detail::remotely_atomic<R>, "dat: an atomic needs a remote segment with dat::remote_atomic");
    static_assert(std::same_as<typename std::remove_cvref_t<S>::element_type, std::uint64_t> &&
                      std::same_as<typename std::remove_cvref_t<R>::element_type, std::uint64_t>,
                  "dat: atomics work on std::uint64_t: register the words as such");
  }
};

/// Adds to the peer's word, modulo 2^64 (IB extensions §3, dat_ib_post_fetch_and_add). Completes with
/// `ib::fetch_and_add_done`.
class fetch_and_add : public atomic<fetch_and_add> {
public:
  /// `old_value`: one word, with `local_write`, for what the word was before. `word`: the first word of the segment is
  /// changed; it needs `remote_atomic`.
  template <detail::names_memory S, detail::names_remote R>
  fetch_and_add(S&& old_value, const R& word, std::uint64_t add) noexcept
      : atomic(dto_operation::fetch_and_add, old_value, word, add, 0) {
    check<S, R>();
  }
};

/// Replaces the peer's word by `swap` if it is `compare` (IB extensions §3, dat_ib_post_cmp_and_swap). Completes with
/// `ib::compare_and_swap_done`, also when the word was another: the old value tells.
class compare_and_swap : public atomic<compare_and_swap> {
public:
  template <detail::names_memory S, detail::names_remote R>
  compare_and_swap(S&& old_value, const R& word, std::uint64_t compare, std::uint64_t swap) noexcept
      : atomic(dto_operation::compare_and_swap, old_value, word, compare, swap) {
    check<S, R>();
  }
};

} // namespace dat::inline v0::ib

namespace dat::inline v0::detail {
template <>
inline constexpr bool is_request<ib::fetch_and_add> = true;
template <>
inline constexpr bool is_request<ib::compare_and_swap> = true;
} // namespace dat::inline v0::detail
