// InfiniBand extensions: operations that uDAPL leaves to them.
//
// Immediate data is a property of sends and RDMA writes: see dto.hpp. Here are the atomics.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/cookie.hpp>
#include <dat/dto.hpp>

#include <dat/detail/basics.hpp>
#include <dat/detail/handle.hpp>

#include <concepts>
#include <cstdint>

namespace dat::inline v0::ib {

/// One 64-bit word of registered memory, for what an atomic finds at the peer. Made by `local_segment::word` of a
/// segment of `std::uint64_t` with `local_write`. It refers to the region without keeping it alive: the lmr must
/// outlive the completion of every atomic that names it. Copyable, 24 bytes. Thread safety: a value.
class local_word {
private:
  friend struct detail::segment_access;
  explicit constexpr local_word(const detail::raw_segment& raw) noexcept : raw_(raw) {}

  detail::raw_segment raw_;
};

/// One 64-bit word of a peer's memory, at a multiple of 8, that atomics may change. Made by `remote_segment::word` of a
/// segment of `std::uint64_t` with `remote_atomic`. Copyable, 16 bytes. Thread safety: a value.
class remote_word {
private:
  friend struct detail::segment_access;
  constexpr remote_word(std::uint64_t address, std::uint32_t key) noexcept : address_(address), key_(key) {}

  std::uint64_t address_;
  std::uint32_t key_;
};

/// What both atomics have in common: one 64-bit word at the peer is changed in one step, as seen by all operations of
/// the peer's adapter, and its old value arrives in one local word, in the byte order of this host (IB extensions §3).
/// An atomic counts as an RDMA read: `max_rdma_read_out` limits how many run at once, `fence()` waits for those before.
/// Other adapters and the peer's processors see steps, too, where `ia_attributes` says so; else only this one's.
///
/// Both words are given as such, a `local_word` and a `remote_word`: what an atomic asks of them was looked at when
/// they were made, and posts look no more. Or as segments and lmrs of `std::uint64_t` with `local_write` and
/// `remote_atomic`: then it is the first word of each.
///
///     DAT_TRY(auto old, mine.whole().word());
///     DAT_TRY(auto counter, there.word(3));
///     DAT_TRYV(ep.post(dat::ib::fetch_and_add{old, counter, 1}.cookie(7)));
///
/// Errors of `post`, besides those of ep_ref::post: `invalid_parameter` on a connection that allows no RDMA reads;
/// `model_not_supported` on an adapter without atomics; of segments also `length_error` when one is empty, and
/// `invalid_parameter` when the remote one is not at a multiple of 8.
template <class Self>
class atomic : public request<Self, 1> {
protected:
  template <class S, class R>
  atomic(dto_operation op, const S& old_value, const R& word, std::uint64_t compare_or_add,
         std::uint64_t swap) noexcept {
    this->wr_.start(op);
    take(old_value);
    this->wr_.at(place(word));
    this->wr_.compare_add = compare_or_add;
    this->wr_.swap = swap;
  }
  template <class S, class R>
  static constexpr void check() noexcept {
    static_assert(detail::outlives_call<S>, "dat: the lmr must outlive the atomic: pass an lvalue, not a temporary");
    if constexpr (detail::names_memory<S>) {
      static_assert(detail::writable<S>,
                    "dat: the old value of an atomic needs memory registered with dat::local_write");
      static_assert(std::same_as<typename std::remove_cvref_t<S>::element_type, std::uint64_t>,
                    "dat: atomics work on std::uint64_t: register the words as such");
    }
    if constexpr (detail::names_remote<R>) {
      static_assert(detail::remotely_atomic<R>, "dat: an atomic needs a remote segment with dat::remote_atomic");
      static_assert(std::same_as<typename std::remove_cvref_t<R>::element_type, std::uint64_t>,
                    "dat: atomics work on std::uint64_t: register the words as such");
    }
  }

private:
  [[gnu::always_inline]] void take(const local_word& w) noexcept {
    this->wr_.data.template start_sized<detail::word_size>(detail::segment_access::raw(w));
  }
  template <class S>
  [[gnu::always_inline]] void take(const S& segment) noexcept {
    detail::raw_segment first = detail::raw_of(segment);
    first.length = detail::smaller(first.length, detail::word_size);
    first.zone = first.zone.marked_short();
    this->wr_.data.start(first);
  }
  [[gnu::always_inline]] static detail::raw_remote place(const remote_word& w) noexcept {
    return detail::segment_access::place(w);
  }
  /// A segment with no word that can be changed is given no room.
  template <class T, mem_priv P>
  [[gnu::always_inline]] static detail::raw_remote place(const remote_segment<T, P>& s) noexcept {
    detail::raw_remote to = detail::segment_access::raw(s);
    if (to.address % detail::word_size != 0) to.length = 0;
    return to;
  }
};

/// Adds to the peer's word, modulo 2^64 (IB extensions §3, dat_ib_post_fetch_and_add). Completes with
/// `ib::fetch_and_add_done`.
class fetch_and_add : public atomic<fetch_and_add> {
public:
  template <detail::names_word S, detail::names_remote_word R>
  fetch_and_add(S&& old_value, const R& word, std::uint64_t add) noexcept
      : atomic(dto_operation::fetch_and_add, old_value, word, add, 0) {
    check<S, R>();
  }
};

/// Replaces the peer's word by `swap` if it is `compare` (IB extensions §3, dat_ib_post_cmp_and_swap). Completes with
/// `ib::compare_and_swap_done`, also when the word was another: the old value tells.
class compare_and_swap : public atomic<compare_and_swap> {
public:
  template <detail::names_word S, detail::names_remote_word R>
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
