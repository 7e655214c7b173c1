// Remote memory regions: windows that open a part of an lmr to peers, and close it again, as cheaply as a DTO.
// SPDX-License-Identifier: BSL-1.0
#pragma once

//     DAT_TRY(auto rmr, pz.create_rmr_for_ep());
//     DAT_TRY(auto window, rmr.bind(ep, dat::bind{lmr, 0, 100, dat::remote_write}));
//     ep.post(dat::send{...});                // with window.to_wire() in it: no need to wait for the bind
//     ...                                     // the peer writes, and sends a message
//     rmr.unbind(ep);
//
// This header also has the send that closes a window of the peer, and the RDMA read into a window.

#include <dat/attributes.hpp>
#include <dat/dto.hpp>
#include <dat/ep.hpp>
#include <dat/event.hpp>
#include <dat/expected.hpp>
#include <dat/lmr.hpp>
#include <dat/object.hpp>
#include <dat/privileges.hpp>
#include <dat/pz.hpp>
#include <dat/segment.hpp>

#include <dat/detail/endpoint/rmr_core.hpp>
#include <dat/detail/handle/unique_object.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace dat { inline namespace v0 {

/// No rights: for a bind that grants nothing.
inline constexpr privileges<mem_priv::none> no_rights{};

/// The target of a bind: elements of an lmr, with the remote rights that peers get (uDAPL 2.0 §6.7.3.5). Local rights
/// in `R` have no effect. Reading needs an lmr with `local_read`, writing and atomics one with `local_write`. The lmr
/// needs no remote right.
///
/// Members return the object itself: `dat::bind{lmr, dat::remote_read}.cookie(7).fence()`.
template <class T, mem_priv P, mem_priv R>
class bind : public detail::request<bind<T, P, R>, 0> {
public:
  /// The whole region.
  bind(const lmr<T, P>& region, privileges<R> rights) noexcept : bind(region, 0, region.size(), rights) {}
  /// Binds the whole region and grants no rights, as uDAPL does by default.
  explicit bind(const lmr<T, P>& region) noexcept requires(R == mem_priv::none) : bind(region, no_rights) {}
  /// Elements [first, first + count).
  bind(const lmr<T, P>& region, std::size_t first, std::size_t count, privileges<R>) noexcept
      : region_(&region), first_(first), count_(count) {
    static_assert(!detail::includes_any(R, mem_priv::remote_read) || includes(P, mem_priv::local_read),
                  "dat: a window with dat::remote_read needs an lmr with dat::local_read");
    static_assert(!detail::includes_any(R, mem_priv::remote_write | mem_priv::remote_atomic) ||
                      includes(P, mem_priv::local_write),
                  "dat: a window with dat::remote_write or remote_atomic needs an lmr with dat::local_write");
    static_assert(!detail::includes_any(R, mem_priv::flush_global | mem_priv::flush_persistent),
                  "dat: a window cannot grant flushes: give the peer a segment of the lmr");
  }
  template <class... A>
  explicit bind(lmr<T, P>&&, const A&...) = delete; // the lmr must outlive the binding, so pass an lvalue

  /// The peer addresses the window from 0, not by the addresses of this process. Only for an rmr of
  /// `create_rmr_for_ep`; for others `bind` returns `model_not_supported`.
  bind& zero_based() & noexcept { return zero_based_ = true, *this; }
  bind&& zero_based() && noexcept { return zero_based_ = true, std::move(*this); }

private:
  friend class rmr;
  const lmr<T, P>* region_;
  std::size_t first_;
  std::size_t count_;
  bool zero_based_ = false;
};
template <class T, mem_priv P>
bind(const lmr<T, P>&) -> bind<T, P, mem_priv::none>;
template <class T, mem_priv P, mem_priv R>
bind(const lmr<T, P>&, privileges<R>) -> bind<T, P, R>;
template <class T, mem_priv P, mem_priv R>
bind(const lmr<T, P>&, std::size_t, std::size_t, privileges<R>) -> bind<T, P, R>;

/// Cookie and flags of an unbind: `dat::unbind{}.cookie(8)`.
class unbind : public detail::request<unbind, 0> {
public:
  unbind() noexcept = default;
};

/// The memory that an rmr is bound to.
struct rmr_binding {
  std::uint64_t address; ///< the address of the first byte, as the peer names it
  std::uint64_t length;  ///< in bytes
  std::uint32_t key;     ///< DAT_RMR_CONTEXT
  mem_priv rights;       ///< remote rights only
  bool zero_based;       ///< DAT_VA_TYPE_ZB
  std::uint32_t lmr_key; ///< DAT_LMR_CONTEXT of its lmr
};

/// The parameters of an rmr (DAT_RMR_PARAM).
struct rmr_params {
  const void* ia = nullptr;           ///< the identity of its ia
  const void* pz = nullptr;           ///< the identity of its zone
  rmr_scope scope{};                  ///< ep or pz
  std::optional<rmr_binding> binding; ///< empty while the rmr is not bound
};

/// A remote memory region (uDAPL 2.0 §6.7.3). It names a part of an lmr for peers, by a key that each bind renews.
/// `pz::create_rmr` and `pz::create_rmr_for_ep` create it, unbound.
///
/// An lmr to which an rmr is bound cannot be closed. It can be destroyed, and so can the endpoint through which an rmr
/// of `create_rmr_for_ep` is bound; the rmr is then unbound. Moving is cheap.
/// Thread safety: queries are safe; `bind` and `unbind` count as posts of a request to their endpoint, and must not
/// overlap other calls of the same rmr.
class rmr : public detail::unique_object<rmr, detail::rmr_core, object_kind::rmr> {
public:
  rmr() noexcept = default; ///< names no rmr

  /// Posts a bind (uDAPL 2.0 §6.7.3.5 dat_rmr_bind). From its completion on, peers may use the returned segment, until
  /// the next bind, an unbind, or a message that invalidates it. The previous binding ends at that completion.
  /// Operations that are posted to `through` afterwards start after the bind, so the same endpoint may send the segment
  /// to the peer at once. The bind completes with `bind_done` on the request evd, which needs dat::stream::rmr_bind. A
  /// failed bind is a dto_failure, breaks the connection, and leaves the previous binding.
  ///
  /// If the peer may have invalidated the window, take the receive that reports it before the next bind or unbind.
  /// Otherwise the device is asked to invalidate a key that is already invalid, which is an error on some devices.
  ///
  /// Errors: all of them leave the rmr unchanged:
  /// - `invalid_handle`: the rmr, the lmr or the endpoint is empty or closed
  /// - `invalid_state`: the endpoint takes no requests; another bind of this rmr is posted; the rmr is bound through
  ///   another connected endpoint
  /// - `invalid_parameter`: no elements, or elements outside the lmr; an evd without dat::stream::rmr_bind;
  ///   `.suppress_notification()` on an endpoint whose completions all notify
  /// - `protection_violation`: rmr, lmr and endpoint are not all of one zone
  /// - `privileges_violation`: the process cannot write to the memory
  /// - `model_not_supported`: zero_based() of an rmr of `create_rmr`
  /// - `insufficient_resources`: no room in the queue. An rmr of `create_rmr_for_ep` that is bound takes two places.
  /// Allocates: no.
  /// Blocks: no; briefly in the driver if the endpoint or lmr of the previous binding has ended.
  /// Thread safety: as a post of a request to `through`; must not overlap other calls of this rmr.
  template <class T, mem_priv P, mem_priv R>
  [[nodiscard, gnu::always_inline]] expected<remote_segment<T, (R & detail::remote_rights)>>
  bind(const ep<rc>& through, const dat::bind<T, P, R>& what) noexcept {
    if (!core_) return empty_handle("rmr.bind");
    const lmr<T, P>& region = *what.region_;
    if (!region || what.first_ > region.size() || what.count_ > region.size() - what.first_ || what.count_ == 0)
        [[unlikely]]
      return core_->no_such_memory(static_cast<bool>(region));
    constexpr mem_priv rights = R & detail::remote_rights;
    detail::lmr_core* const memory = detail::core_access::of(region).get();
    const detail::window_place place{.region = memory,
                                     .address = memory->address() + what.first_ * sizeof(T),
                                     .length = what.count_ * sizeof(T),
                                     .rights = rights,
                                     .zero_based = what.zero_based_,
                                     .writable = includes(P, mem_priv::local_write)};
    auto bound = core_->bind(detail::core_access::of(through), place, detail::request_access::of(what));
    if (!bound) [[unlikely]]
      return bound.assume_error();
    return detail::segment_access::make<remote_segment<T, rights>>(
        detail::raw_remote{place.first(), place.length, bound.assume_value()});
  }

  /// Posts the end of the binding, also when the rmr is unbound (a bind of length 0 in uDAPL). It completes like bind.
  /// Errors, Allocates, Blocks and Thread safety: as bind.
  expected<void> unbind(const ep<rc>& through, const dat::unbind& how = {}) noexcept;

  /// Elements [first, first + count) of the window, as the target of an RDMA read by `reader` (uDAPL 2.0 §6.6.24
  /// dat_ep_post_rdma_read_to_rmr): `ep.post(dat::rdma_read{target, from})`. The adapter gets the key of the lmr, which
  /// never leaves this host.
  ///
  /// Errors:
  /// - `privileges_violation`: the rmr is not bound, or its lmr has no `local_write`
  /// - `protection_violation`: `reader` is of another zone, or is not the endpoint through which an rmr of
  ///   `create_rmr_for_ep` is bound
  /// - `invalid_parameter`: the elements exceed the window, or the window is not aligned for `T`
  /// - `length_error`: the elements have 4 GiB or more
  /// - `invalid_handle`: the rmr or the endpoint is empty or closed
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  template <transferable T>
  [[nodiscard]] expected<local_segment<T, mem_priv::local_write>> read_target(const ep<rc>& reader, std::size_t first,
                                                                              std::size_t count) const noexcept;

  /// The parameters of the rmr, with its binding (uDAPL 2.0 §6.7.3.4). A bind counts when its completion has been
  /// taken.
  /// Errors: `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  [[nodiscard]] expected<rmr_params> query() const noexcept;
  /// Whether `key` is a key of this rmr, now or after later binds: `rmr.is(*received.invalidated())`.
  [[nodiscard]] bool is(std::uint32_t key) const noexcept { return core_ && core_->is(key); }

  /// Frees the rmr and ends its binding (uDAPL 2.0 §6.7.3.3). Operations of peers on it then fail and break their
  /// connections. The destructor does so as well, but only when the completion of a posted bind has been taken.
  /// Errors: `invalid_state` while the completion of a posted bind is not taken; `invalid_handle`.
  /// Allocates: no.
  /// Blocks: briefly, in the driver.
  /// Thread safety: must not overlap any other use of the object.
  expected<void> close() noexcept { return close_as("rmr.close"); }

  /// The verbs memory window. Null for an empty or closed rmr, and when the object that it was bound to has ended.
  [[nodiscard]] ibv_mw* native_handle() const noexcept { return core_ ? core_->window() : nullptr; }

  using unique_object::unique_object;
};

/// Sends a message that also closes a window of the peer; the peer's `recv_done` names the window (uDAPL 2.0 §6.6.21
/// dat_ep_post_send_with_invalidate). Completes with `send_done`.
///
///     ep.post(dat::send_with_invalidate{answer, window});
///     ep.post(dat::send_with_invalidate{window});           // an empty message
///
/// The peer must have bound the window by an rmr of `create_rmr_for_ep`, through the other end of this connection, and
/// the window must be open. For any other key the peer's receive fails and the connection breaks.
/// Errors of `post`, besides those of ep_ref::post: `model_not_supported` on an adapter without such sends.
template <std::size_t N>
class send_with_invalidate : public detail::request<send_with_invalidate<N>, N> {
public:
  template <detail::names_remote R>
  explicit send_with_invalidate(const R& window) noexcept {
    this->wr_.start(dto_operation::send_with_invalidate);
    set(window);
  }
  template <detail::names_memory S, detail::names_remote R>
  send_with_invalidate(S&& from, const R& window) noexcept {
    static_assert(detail::readable<S>, "dat: a send needs memory registered with dat::local_read");
    static_assert(detail::outlives_call<S>, "dat: the lmr must outlive the send: pass an lvalue, not a temporary");
    this->wr_.start(dto_operation::send_with_invalidate, from);
    set(window);
  }
  template <mem_priv P, detail::names_remote R>
  send_with_invalidate(const iov<N, P>& from, const R& window) noexcept {
    static_assert(includes(P, mem_priv::local_read), "dat: a send needs memory registered with dat::local_read");
    this->wr_.start_list(dto_operation::send_with_invalidate, from);
    set(window);
  }
  /// The adapter copies the data during `post`; see send.
  send_with_invalidate& inlined() & noexcept { return this->wr_.set(detail::send_flag::inlined), *this; }
  send_with_invalidate&& inlined() && noexcept { return this->wr_.set(detail::send_flag::inlined), std::move(*this); }
  /// The completion of the matching receive at the peer notifies (DAT_COMPLETION_SOLICITED_WAIT_FLAG).
  send_with_invalidate& solicited() & noexcept { return this->wr_.set(detail::send_flag::solicited), *this; }
  send_with_invalidate&& solicited() && noexcept {
    return this->wr_.set(detail::send_flag::solicited), std::move(*this);
  }

private:
  template <class R>
  void set(const R& window) noexcept {
    this->wr_.imm = detail::segment_access::raw(window).key;
  }
};
template <detail::names_remote R>
send_with_invalidate(const R&) -> send_with_invalidate<0>;
template <detail::names_memory S, detail::names_remote R>
send_with_invalidate(S&&, const R&) -> send_with_invalidate<1>;
template <std::size_t N, mem_priv P, detail::names_remote R>
send_with_invalidate(const iov<N, P>&, const R&) -> send_with_invalidate<N>;

template <transferable T>
expected<local_segment<T, mem_priv::local_write>> rmr::read_target(const ep<rc>& reader, std::size_t first,
                                                                   std::size_t count) const noexcept {
  static constexpr const char* call = "rmr.read_target";
  if (!alive()) return empty_handle(call);
  if (!reader) return detail::empty_handle(call, return_subtype::handle_ep);
  const detail::kept_binding b = core_->binding();
  if (!b || !b.writable)
    return core_->at({return_type::privileges_violation, return_subtype::privileges_write}, call)
        .hint("An RDMA read needs an rmr that is bound to an lmr with dat::local_write.");
  if (detail::core_access::of(reader)->pz() != &core_->pz() ||
      (b.through && b.through != detail::core_access::of(reader)))
    return core_->at({return_type::protection_violation, return_subtype::protection_write}, call)
        .hint("The endpoint is of another zone, or not the one that the rmr is bound through.");
  const std::uint64_t size = b.length / sizeof(T);
  if (first > size || count > size - first || b.address % alignof(T) != 0)
    return core_->at({return_type::invalid_parameter, return_subtype::arg3}, call)
        .hint("The elements [first, first + count) must lie inside what the rmr is bound to, and be aligned.");
  if (count * sizeof(T) > 0xffffffffu)
    return core_->at(error(return_type::length_error), call).hint("One segment names less than 4 GiB.");
  return detail::segment_access::make<local_segment<T, mem_priv::local_write>>(
      detail::raw_segment{b.address + first * sizeof(T), static_cast<std::uint32_t>(count * sizeof(T)),
                          b.region->mr()->lkey, b.region->zone_of(count * sizeof(T))});
}

}} // namespace dat::v0

namespace dat { inline namespace v0 { namespace detail {
template <std::size_t N>
inline constexpr bool is_request<send_with_invalidate<N>> = true;
}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/impl/rmr.ipp>
#endif
