// Streams, rights and memory that are known at run time only. Not part of <dat/dat.hpp>.
// SPDX-License-Identifier: BSL-1.0
#pragma once

// It is for language bindings, plugins and libraries with an interface of their own, which get these as arguments. Each
// call checks at run time what the compiler checks elsewhere, and returns the typed object that the rest of dat takes:
//
//     DAT_TRY(auto evd, dat::dynamic::create_evd(ia, streams, 64));               // dat::streams streams
//     DAT_TRY(auto memory, dat::dynamic::register_memory(pz, bytes, rights));     // dat::mem_priv rights
//     DAT_TRY(auto completions, evd.to<dat::stream::dto>());                      // an evd_ref, or invalid_parameter
//     DAT_TRY(auto out, memory.slice(offset, length, dat::local_read));           // a segment, or privileges_violation
//     ep.post(dat::send{out});

#include <dat/datagram.hpp>
#include <dat/dto.hpp>
#include <dat/error.hpp>
#include <dat/evd.hpp>
#include <dat/expected.hpp>
#include <dat/ia.hpp>
#include <dat/memory.hpp>
#include <dat/object.hpp>
#include <dat/privileges.hpp>
#include <dat/pz.hpp>
#include <dat/rmr.hpp>
#include <dat/segment.hpp>
#include <dat/streams.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/delivery/dequeue.hpp>
#include <dat/detail/handle/core_access.hpp>
#include <dat/detail/handle/unique_object.hpp>
#include <dat/detail/memory/lmr_core.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 { namespace dynamic {

/// The streams that a visitor of a dynamic evd must be able to take.
inline constexpr streams every_stream = streams::software | streams::connection_requests | streams::dto |
                                        streams::connection | streams::rmr_bind | streams::async | streams::datagrams;

// --- event dispatchers -----------------------------------------------------------------------------------------------

/// An evd whose streams are known at run time. `dynamic::create_evd` creates it. It has the members of a dat::evd with
/// every stream. A member that needs a stream checks at run time that the evd has the stream.
///
/// It is always a merged evd, also with dat::stream::dto alone: any number of threads may take from it, and a wait may
/// have a threshold. A visitor must be able to take the events of all streams; a generic lambda takes the rest.
///
/// Move-only.
/// Thread safety: as a merged evd.
class evd : private dat::evd<every_stream> {
  using base = dat::evd<every_stream>;

public:
  using base::is_unique_object;
  using base::kind;

  evd() noexcept = default; ///< names no evd
  using base::operator bool;

  using base::capacity;
  using base::clear_unwaitable;
  using base::close;
  using base::context;
  using base::dequeue;
  using base::disable;
  using base::drain;
  using base::enable;
  using base::enabled;
  using base::id;
  using base::identity;
  using base::modify_cno;
  using base::native_handle;
  using base::owner;
  using base::resize;
  using base::set_context;
  using base::set_unwaitable;
  using base::wait;
  using base::wait_and_drain;
  using base::wait_for;
  using base::wait_for_any;
  using base::waitable;
  using base::wake;

  /// The streams that it was created with.
  [[nodiscard]] streams stream_set() const noexcept { return streams_; }

  /// The evd for an object that feeds the streams `Needed`.
  /// Errors: `invalid_parameter` when the evd lacks one of them; `invalid_handle`.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  template <streams Needed>
  [[nodiscard]] expected<evd_ref<Needed>> to() const noexcept {
    if (auto ok = check("evd.to", Needed); !ok) return ok.assume_error();
    return evd_ref<Needed>(static_cast<const base&>(*this));
  }
  /// The evd for ia_options::async_evd.
  /// Errors: `invalid_parameter` when the evd lacks dat::stream::async; `invalid_handle`.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  [[nodiscard]] expected<async_target> to_async() const noexcept {
    if (auto ok = check("evd.to_async", streams::async); !ok) return ok.assume_error();
    return async_target(static_cast<const base&>(*this));
  }

  /// The parameters of the evd; see dat::evd::query.
  /// Errors, Allocates, Blocks and Thread safety: as dat::evd::query.
  [[nodiscard]] expected<evd_attributes> query() const noexcept;

  /// Appends a software event; see dat::evd::post.
  /// Errors: as dat::evd::post; `invalid_parameter` when the evd lacks dat::stream::software.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  expected<void> post(cookie posted) noexcept {
    if (auto ok = check("evd.post", streams::software); !ok) return ok;
    return base::post(posted);
  }

  /// Takes the next event if one is queued and calls `visit` with it, without building a variant (uDAPL 2.0 §6.3.4.11).
  /// Errors: `queue_empty`; `invalid_state` (evd_waiter) while another thread waits on the evd; `invalid_handle`.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  template <class Visitor>
  [[gnu::always_inline]] expected<void>
  dequeue(Visitor&& visit) noexcept(detail::visits_all_noexcept<Visitor, detail::event_list<every_stream>>) {
    if (!core_) [[unlikely]]
      return empty_handle("evd.dequeue");
    return detail::dequeue_one<every_stream>(*core_, visit);
  }
  /// As above, for interfaces whose completions are plain numbers: `copy(operation, cookie, bytes, endpoint)` takes
  /// most sends, receives, RDMA writes and reads that succeeded, in place of `visit`. `endpoint` is the context of the
  /// endpoint. This costs less than an event, which keeps its endpoint alive. `copy` only stores its arguments: it must
  /// not call dat, because the evd is locked meanwhile. `visit` gets all other events, including completions that the
  /// evd had queued and those with immediate data or an invalidated rmr.
  ///
  ///     evd.dequeue(visit, [&](dat::dto_operation what, dat::cookie posted, std::size_t bytes,
  ///                            dat::cookie endpoint) noexcept { out = {what, posted, bytes, endpoint}; });
  ///
  /// Errors, Allocates, Blocks and Thread safety: as above.
  template <class Visitor, class Copy>
  [[gnu::always_inline]] expected<void>
  dequeue(Visitor&& visit,
          Copy&& copy) noexcept(detail::visits_all_noexcept<Visitor, detail::event_list<every_stream>>) {
    static_assert(std::is_nothrow_invocable_v<Copy&, dto_operation, cookie, std::size_t, cookie>,
                  "dat: the second function takes (dto_operation, cookie, std::size_t, cookie) and is noexcept");
    if (!core_) [[unlikely]]
      return empty_handle("evd.dequeue");
    return detail::dequeue_one<every_stream>(*core_, visit, copy);
  }

  /// Takes the next event when at least `threshold` events are queued, waits up to `limit` for that, and calls `visit`
  /// with the event (uDAPL 2.0 §6.3.4.10). Returns the number of events that are left. While `visit` runs, the evd
  /// counts as waited on.
  /// Errors: as dat::evd::wait, with the number of queued events in `error().index()`; `invalid_parameter` for a
  /// threshold of 0 or beyond the capacity. A call that fails takes no event.
  /// Allocates: never.
  /// Blocks: up to `limit`.
  /// Thread safety: as dat::evd::wait.
  template <class Visitor>
  [[nodiscard]] expected<std::size_t>
  wait(Visitor&& visit, timeout limit,
       std::size_t threshold) noexcept(detail::visits_all_noexcept<Visitor, detail::event_list<every_stream>>) {
    if (!core_) return empty_handle("evd.wait");
    return detail::take_when<every_stream>(*core_, limit, threshold, visit);
  }
  /// As above, with `copy` as for dequeue. With a threshold of 1, a completion that has already arrived is taken as
  /// dequeue takes it. That costs less, and the evd does not count as waited on.
  /// Errors, Allocates, Blocks and Thread safety: as above.
  template <class Visitor, class Copy>
  [[nodiscard]] expected<std::size_t>
  wait(Visitor&& visit, timeout limit, std::size_t threshold,
       Copy&& copy) noexcept(detail::visits_all_noexcept<Visitor, detail::event_list<every_stream>>) {
    static_assert(std::is_nothrow_invocable_v<Copy&, dto_operation, cookie, std::size_t, cookie>,
                  "dat: the last function takes (dto_operation, cookie, std::size_t, cookie) and is noexcept");
    if (!core_) return empty_handle("evd.wait");
    if (threshold == 1)
      if (const auto left = detail::take_queued<every_stream>(*core_, visit, copy)) return *left;
    return detail::take_when<every_stream>(*core_, limit, threshold, visit);
  }

  friend bool operator==(const evd& a, const evd& b) noexcept { return a.identity() == b.identity(); }

private:
  friend expected<evd> create_evd(ia&, streams, std::uint32_t, const evd_options&) noexcept;
  evd(detail::ref<detail::evd_core> core, streams which) noexcept : base(std::move(core)), streams_(which) {}
  [[nodiscard]] expected<void> check(const char* call, streams needed) const noexcept;

  streams streams_{};
};

/// Creates an evd with the streams `which`, and room for `qlen` events (uDAPL 2.0 §6.3.4.1); see ia::create_evd.
/// Errors: as ia::create_evd; `invalid_parameter` for no stream, and for a bit that is no stream.
/// Allocates: yes.
/// Blocks: briefly, in the driver.
/// Thread safety: safe.
[[nodiscard]] expected<evd> create_evd(ia& at, streams which, std::uint32_t qlen,
                                       const evd_options& options = {}) noexcept;

// --- memory ----------------------------------------------------------------------------------------------------------

/// A registered range of bytes whose rights are known at run time (uDAPL 2.0 §6.7.2). The functions below create it.
/// `slice` and `remote` give its segments the rights that the use needs, if the region has them.
///
/// Move-only. Lifetimes and thread safety: as dat::lmr.
class lmr : public detail::unique_object<lmr, detail::lmr_core, object_kind::lmr> {
public:
  lmr() noexcept = default; ///< names no region

  /// `bytes` bytes, which begin `offset` bytes after the first of the region, for DTOs that need the rights `P`. The
  /// segment of a zero-based region has no pointer: its `data` is an offset.
  /// Errors: `privileges_violation` with the missing right as subtype; `invalid_parameter` when the range exceeds the
  /// region; `length_error` for 4 GiB and more; `invalid_handle`.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  template <mem_priv P>
  [[nodiscard, gnu::always_inline]] expected<local_segment<std::byte, P>> slice(std::size_t offset, std::size_t bytes,
                                                                                privileges<P>) const noexcept {
    const detail::lmr_core* const r = core_.get();
    if (r && includes(rights_, P) && r->mr() && offset <= r->length() && bytes <= r->length() - offset &&
        bytes <= std::numeric_limits<std::uint32_t>::max()) [[likely]] {
      detail::raw_segment raw{r->address() + offset, static_cast<std::uint32_t>(bytes), r->local_key(),
                              r->zone_of(bytes)};
      if (r->zero_based && bytes != 0) [[unlikely]]
        raw.zone = raw.zone.with_offset_bit();
      return detail::segment_access::make<local_segment<std::byte, P>>(raw);
    }
    return refusal("lmr.slice", offset, bytes, P);
  }

  /// `bytes` bytes, which begin `offset` bytes after the first of the region, for a peer.
  /// Errors: as slice, without `length_error`.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  template <mem_priv P>
  [[nodiscard]] expected<remote_segment<std::byte, P>> remote(std::size_t offset, std::size_t bytes,
                                                              privileges<P>) const noexcept {
    static_assert((P & (mem_priv::local_read | mem_priv::local_write)) == mem_priv::none,
                  "dat: a peer gets remote rights: dat::remote_read, remote_write, remote_atomic");
    const detail::lmr_core* const r = core_.get();
    if (!r || !r->mr() || !includes(rights_, P) || offset > r->length() || bytes > r->length() - offset)
      return refusal("lmr.remote", offset, bytes, P);
    return detail::segment_access::make<remote_segment<std::byte, P>>(
        detail::raw_remote{r->address() + offset, bytes, r->mr()->rkey});
  }

  /// The rights that it was registered with.
  [[nodiscard]] mem_priv rights() const noexcept { return rights_; }
  /// The address of the first byte, as segments and peers name it; 0 for a zero-based region.
  [[nodiscard]] std::uint64_t address() const noexcept { return core_ ? core_->address() : 0; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return core_ && core_->mr() ? core_->length() : 0; }

  /// The parameters of the region (uDAPL 2.0 §6.7.2.3 dat_lmr_query).
  /// Errors: `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  [[nodiscard]] expected<lmr_params> query() const noexcept;

  /// Ends the registration (uDAPL 2.0 §6.7.2.2).
  /// Errors, Allocates, Blocks and Thread safety: as dat::lmr::close.
  expected<void> close() noexcept;

  /// The verbs memory region. Null for an empty or closed region.
  [[nodiscard]] ibv_mr* native_handle() const noexcept { return core_ ? core_->mr() : nullptr; }

private:
  friend struct memory_maker;
  lmr(detail::ref<detail::lmr_core> core, mem_priv rights) noexcept : unique_object(std::move(core)), rights_(rights) {}
  /// The reason why a range cannot be used with the rights `needed`.
  [[nodiscard, gnu::cold]] error refusal(const char* call, std::size_t offset, std::size_t bytes,
                                         mem_priv needed) const noexcept;

  mem_priv rights_ = mem_priv::none;
};

/// Registers bytes with rights that are known at run time; see pz::register_memory. To register const elements, use a
/// const_cast and reading rights only.
/// Errors: as pz::register_memory; `invalid_parameter` (arg6) for a bit that is no right.
/// Allocates: yes.
/// Blocks: while the system pins the pages.
/// Thread safety: safe.
[[nodiscard]] expected<lmr> register_memory(pz& zone, std::span<std::byte> memory, mem_priv rights) noexcept;
/// Registers the memory of `original` once more (DAT_MEM_TYPE_LMR); see dat::register_over.
/// Errors: as register_memory; `invalid_handle` when `original` is empty or closed.
/// Allocates, Blocks and Thread safety: as register_memory.
[[nodiscard]] expected<lmr> register_over(pz& zone, const lmr& original, mem_priv rights) noexcept;
/// Registers memory that several processes share (DAT_MEM_TYPE_SHARED_VIRTUAL); see dat::register_shared.
/// Errors: as register_memory and dat::register_shared.
/// Allocates, Blocks and Thread safety: as register_memory.
[[nodiscard]] expected<lmr> register_shared(pz& zone, std::span<std::byte> memory, const shared_cookie& name,
                                            mem_priv rights) noexcept;
/// Registers memory so that it is addressed from 0 (DAT_VA_TYPE_ZB); see dat::register_zero_based.
/// Errors: as register_memory and dat::register_zero_based.
/// Allocates, Blocks and Thread safety: as register_memory.
[[nodiscard]] expected<lmr> register_zero_based(pz& zone, std::span<std::byte> memory, mem_priv rights) noexcept;

/// The target of a bind whose rights are known at run time; see dat::bind. Only remote rights count.
///
///     dynamic::post(rmr, ep, dynamic::bind{lmr, offset, bytes, rights}.cookie(7));
class bind : public detail::request<bind, 0> {
public:
  bind(const lmr& region, std::size_t offset, std::size_t bytes, mem_priv rights) noexcept
      : region_(&region), offset_(offset), bytes_(bytes), rights_(rights) {}
  explicit bind(lmr&&, std::size_t, std::size_t, mem_priv) = delete; // the lmr must outlive the binding: pass an lvalue

  /// See dat::bind::zero_based.
  bind& zero_based() & noexcept { return zero_based_ = true, *this; }
  bind&& zero_based() && noexcept { return zero_based_ = true, std::move(*this); }

private:
  friend expected<remote_segment<std::byte, mem_priv::none>> post(rmr&, const ep<rc>&, const bind&) noexcept;
  const lmr* region_;
  std::size_t offset_;
  std::size_t bytes_;
  mem_priv rights_;
  bool zero_based_ = false;
};

/// Posts a bind; see rmr::bind. The returned segment has the address and the key of the window; the peer gets them from
/// its members.
/// Errors: as rmr::bind; `privileges_violation` when the region lacks the local right that a remote one needs, and for
/// a right of flushes, which no window grants.
/// Allocates, Blocks and Thread safety: as rmr::bind.
[[nodiscard]] expected<remote_segment<std::byte, mem_priv::none>> post(rmr& window, const ep<rc>& through,
                                                                       const bind& what) noexcept;

}}} // namespace dat::v0::dynamic

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/impl/dynamic.ipp>
#endif
