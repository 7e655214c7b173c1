// InfiniBand extensions: atomics, atomic writes and flushes.
//
// Immediate data is a property of sends and RDMA writes: see dto.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/cookie.hpp>
#include <dat/dto.hpp>
#include <dat/expected.hpp>
#include <dat/privileges.hpp>
#include <dat/segment.hpp>

#include <dat/detail/base/utility.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 { namespace ib {

/// One 64-bit word of registered memory, for the old value of an atomic. `local_segment::word` of a segment of
/// `std::uint64_t` with `local_write` creates it. It does not keep the region alive: the lmr must outlive the
/// completion of every atomic that names it. Copyable, 24 bytes.
/// Thread safety: a value.
class local_word {
private:
  friend struct detail::segment_access;
  explicit constexpr local_word(const detail::raw_segment& raw) noexcept : raw_(raw) {}

  detail::raw_segment raw_;
};

/// One 64-bit word of a peer's memory, at a multiple of 8, that atomics may change. `remote_segment::word` of a segment
/// of `std::uint64_t` with `remote_atomic` creates it. Copyable, 16 bytes.
/// Thread safety: a value.
class remote_word {
private:
  friend struct detail::segment_access;
  constexpr remote_word(std::uint64_t address, std::uint32_t key) noexcept : address_(address), key_(key) {}

  std::uint64_t address_;
  std::uint32_t key_;
};

/// The common part of both atomics (IB extensions §3). An atomic changes one 64-bit word at the peer in one step, as
/// seen by all operations of the peer's adapter. The old value arrives in one local word, in the byte order of this
/// host. An atomic counts as an RDMA read: `max_rdma_read_out` limits how many run at once, and `fence()` waits for
/// earlier ones. Whether the change is one step for other adapters and the peer's processors is an attribute of the ia
/// (ib_query.hpp).
///
/// The arguments are a `local_word` and a `remote_word`, whose requirements were checked at their creation, so that
/// posts do not check again. Or they are segments and lmrs of `std::uint64_t` with `local_write` and `remote_atomic`,
/// of which the atomic uses the first word.
///
///     DAT_TRY(auto old, mine.whole().word());
///     DAT_TRY(auto counter, there.word(3));
///     DAT_TRYV(ep.post(dat::ib::fetch_and_add{old, counter, 1}.cookie(7)));
///
/// Errors of `post`, besides those of ep_ref::post: `invalid_parameter` on a connection that allows no RDMA reads;
/// `model_not_supported` on an adapter without atomics. With segments also `length_error` when one is empty, and
/// `invalid_parameter` when the remote one is not at a multiple of 8.
template <class Self>
class atomic : public detail::request<Self, 1> {
protected:
  template <class S, class R>
  atomic(dto_operation op, const S& old_value, const R& word, std::uint64_t compare_or_add,
         std::uint64_t swap) noexcept {
    this->wr_.start(op);
    take(old_value);
    this->wr_.target(place(word));
    this->wr_.compare_add = compare_or_add;
    this->wr_.swap = swap;
  }
  template <class S, class R>
  static constexpr void check() noexcept {
    static_assert(detail::outlives_call<S>, "dat: the lmr must outlive the atomic: pass an lvalue, not a temporary");
    if constexpr (detail::names_memory<S>) {
      static_assert(detail::writable<S>,
                    "dat: the old value of an atomic needs memory registered with dat::local_write");
      static_assert(std::is_same_v<typename std::remove_cvref_t<S>::element_type, std::uint64_t>,
                    "dat: atomics work on std::uint64_t: register the words as such");
    }
    if constexpr (detail::names_remote<R>) {
      static_assert(detail::remotely_atomic<R>, "dat: an atomic needs a remote segment with dat::remote_atomic");
      static_assert(std::is_same_v<typename std::remove_cvref_t<R>::element_type, std::uint64_t>,
                    "dat: atomics work on std::uint64_t: register the words as such");
    }
  }

private:
  [[gnu::always_inline]] void take(const local_word& w) noexcept {
    this->wr_.data.start_word(detail::segment_access::raw(w));
  }
  template <class S>
  [[gnu::always_inline]] void take(const S& segment) noexcept {
    detail::raw_segment first = detail::raw_of(segment);
    first.length = detail::min(first.length, detail::word_size);
    this->wr_.data.start(first);
  }
  [[gnu::always_inline]] static detail::raw_remote place(const remote_word& w) noexcept {
    return detail::segment_access::place(w);
  }
  /// A segment without a word that can be changed gets length 0, which the post refuses.
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

/// Replaces the peer's word by `swap` if it equals `compare` (IB extensions §3, dat_ib_post_cmp_and_swap). Completes
/// with `ib::compare_and_swap_done` in both cases; the old value shows which.
class compare_and_swap : public atomic<compare_and_swap> {
public:
  template <detail::names_word S, detail::names_remote_word R>
  compare_and_swap(S&& old_value, const R& word, std::uint64_t compare, std::uint64_t swap) noexcept
      : atomic(dto_operation::compare_and_swap, old_value, word, compare, swap) {
    check<S, R>();
  }
};

/// Writes one 64-bit word at the peer in one step: a reader there sees the old value or the new one, never a part. The
/// value, in the byte order of this host, travels with the request, so that no local memory is needed. Requests are
/// performed in order, so a peer that sees the word sees the RDMA writes that were posted before it. Completes with
/// `ib::atomic_write_done`. (InfiniBand 1.5, atomic write; not of uDAPL)
///
/// The argument is a remote segment of `std::uint64_t` with `remote_write`, of which it writes the first word.
///
///     DAT_TRY(auto head, ring.slice(0, 1));
///     DAT_TRYV(ep.post(dat::ib::atomic_write{head, produced}.cookie(7)));
///
/// Post it in a separate call: verbs has a separate function for it, so a batch or a post of several requests cannot
/// contain it. `query_extensions` returns whether the kernel has it for this adapter: Soft-RoCE does since Linux 6.3.
///
/// Errors of `post`, besides those of ep_ref::post: `model_not_supported` on an adapter without atomic writes;
/// `length_error` when the segment is empty; `invalid_parameter` when it is not at a multiple of 8.
class atomic_write : public detail::request<atomic_write, 0> {
public:
  template <detail::names_remote R>
  atomic_write(const R& word, std::uint64_t value) noexcept {
    static_assert(detail::remotely_writable<R>, "dat: an atomic write needs a remote segment with dat::remote_write");
    static_assert(std::is_same_v<typename R::element_type, std::uint64_t>,
                  "dat: an atomic write works on std::uint64_t: register the words as such");
    this->wr_.start(dto_operation::atomic_write);
    this->wr_.target(word);
    this->wr_.compare_add = value;
  }
};

}}} // namespace dat::v0::ib

namespace dat { inline namespace v0 {

/// The guarantee of a flush that has completed: one of two constants, each with the right that the peer's memory needs.
struct persistence {
  template <mem_priv Right>
  struct level {
    static constexpr mem_priv right = Right;
  };
  /// Every agent of the peer's host sees the bytes: other adapters, and the processors. Needs `flush_global`.
  static constexpr level<mem_priv::flush_global> global{};
  /// The bytes are in persistent memory: a crash of the peer does not lose them. Needs `flush_persistent`.
  static constexpr level<mem_priv::flush_persistent> persistent{};
};

namespace ib {

/// Completes when the bytes that were written before it to a range of the peer's memory are visible there, or
/// persistent (InfiniBand 1.5, memory placement extensions; not of uDAPL). The completion of an RDMA write only means
/// that the peer's adapter has the bytes. A flush covers the requests that were posted before it to the same
/// connection. It completes with `ib::flush_done`.
///
/// The arguments are a remote segment and a constant of `dat::persistence`. The segment's type must have the right of
/// this constant: the peer registers the memory with `dat::flush_global` or `dat::flush_persistent`.
///
///     DAT_TRYV(ep.post(dat::rdma_write{out, log}.suppress_completion()));
///     DAT_TRYV(ep.post(dat::ib::flush{log, dat::persistence::persistent}.cookie(8)));
///
/// Post it in a separate call, as an atomic write. `query_extensions` returns whether the kernel has flushes for this
/// adapter: Soft-RoCE does since Linux 6.2. A flush counts as an RDMA read: the connection must allow some.
///
/// Errors of `post`, besides those of ep_ref::post: `model_not_supported` on an adapter without flushes, and with a
/// library that is older than rdma-core 45; `length_error` when the range is empty or has 4 GiB or more;
/// `invalid_parameter` on a connection that allows no RDMA reads.
class flush : public detail::request<flush, 0> {
public:
  template <detail::names_remote R, mem_priv Right>
  flush(const R& range, persistence::level<Right>) noexcept {
    static_assert(includes(detail::rights_of<R>, Right),
                  "dat: a flush needs a remote segment with the right of its persistence: dat::flush_global or "
                  "dat::flush_persistent");
    this->wr_.start(dto_operation::flush);
    this->wr_.target(range);
    this->wr_.swap = Right == mem_priv::flush_global ? detail::flush_type_global : detail::flush_type_persistent;
  }

  /// Covers the whole region that the segment is of, whatever its range; the segment may be empty.
  flush& whole_region() & noexcept { return this->wr_.swap |= detail::flush_region, *this; }
  flush&& whole_region() && noexcept { return this->wr_.swap |= detail::flush_region, std::move(*this); }
};

} // namespace ib

template <class T, mem_priv P>
constexpr expected<ib::local_word> local_segment<T, P>::word(std::size_t index) const noexcept {
  static_assert(std::is_same_v<T, std::uint64_t>, "dat: atomics work on std::uint64_t: register the words as such");
  static_assert(includes(P, mem_priv::local_write),
                "dat: the old value of an atomic needs memory registered with dat::local_write");
  if (index >= size())
    return error(return_type::invalid_parameter)
        .at("local_segment.word", object_kind::lmr, raw_.key)
        .hint("The argument index must be less than size().");
  detail::raw_segment one = raw_;
  one.address += index * sizeof(T);
  one.length = sizeof(T);
  return detail::segment_access::make_word<ib::local_word>(one);
}

template <class T, mem_priv P>
constexpr expected<ib::remote_word> remote_segment<T, P>::word(std::uint64_t index) const noexcept {
  static_assert(std::is_same_v<T, std::uint64_t>, "dat: atomics work on std::uint64_t: register the words as such");
  static_assert(includes(P, mem_priv::remote_atomic), "dat: an atomic needs a remote segment with dat::remote_atomic");
  const auto bad = [&](const char* hint) {
    return error(return_type::invalid_parameter).at("remote_segment.word", object_kind::rmr, raw_.key).hint(hint);
  };
  if (index >= size()) return bad("The argument index must be less than size().");
  if (raw_.address % sizeof(T) != 0)
    return bad("The words of the peer must be at multiples of 8: atomics work only there.");
  return detail::segment_access::make_word<ib::remote_word>(raw_.address + index * sizeof(T), raw_.key);
}

}} // namespace dat::v0

namespace dat { inline namespace v0 { namespace detail {
template <>
inline constexpr bool is_request<ib::fetch_and_add> = true;
template <>
inline constexpr bool is_request<ib::compare_and_swap> = true;
template <>
inline constexpr bool is_request<ib::atomic_write> = true;
template <>
inline constexpr bool is_posted_alone<ib::atomic_write> = true;
template <>
inline constexpr bool is_request<ib::flush> = true;
template <>
inline constexpr bool is_posted_alone<ib::flush> = true;
}}} // namespace dat::v0::detail
