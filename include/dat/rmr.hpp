// Remote memory regions: windows that open a part of an lmr to peers, and close it again, as cheaply as a DTO.
// SPDX-License-Identifier: BSL-1.0
#pragma once

//     DAT_TRY(auto rmr, pz.create_rmr_for_ep());
//     DAT_TRY(auto window, rmr.bind(ep, dat::bind{lmr, 0, 100, dat::remote_write}));
//     ep.post(dat::send{...});                // with window.to_wire() in it: no need to wait for the bind
//     ...                                     // the peer writes, and says so
//     rmr.unbind(ep);
//
// Besides: the send that closes a window of the peer's, and the RDMA read into a window.

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

#include <dat/detail/rmr_core.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace dat::inline v0 {

/// No rights at all: for a bind that opens nothing.
inline constexpr privileges<mem_priv::none> no_rights{};

/// What to bind an rmr to: elements of an lmr, with the remote rights that peers get (uDAPL 2.0 §6.7.3.5). Local rights
/// in `R` have no effect. Reading needs an lmr with `local_read`, writing and atomics one with `local_write`; the lmr
/// needs no remote right itself.
///
/// Members return the object itself: `dat::bind{lmr, dat::remote_read}.cookie(7).fence()`.
template <class T, mem_priv P, mem_priv R>
class bind : public request<bind<T, P, R>, 0> {
public:
  /// The whole region.
  bind(const lmr<T, P>& region, privileges<R> rights) noexcept : bind(region, 0, region.size(), rights) {}
  /// Elements [first, first + count).
  bind(const lmr<T, P>& region, std::size_t first, std::size_t count, privileges<R>) noexcept
      : region_(&region), first_(first), count_(count) {
    static_assert(!detail::includes_any(R, mem_priv::remote_read) || includes(P, mem_priv::local_read),
                  "dat: a window with dat::remote_read needs an lmr with dat::local_read");
    static_assert(!detail::includes_any(R, mem_priv::remote_write | mem_priv::remote_atomic) ||
                      includes(P, mem_priv::local_write),
                  "dat: a window with dat::remote_write or remote_atomic needs an lmr with dat::local_write");
  }
  template <class... A>
  explicit bind(lmr<T, P>&&, const A&...) = delete; // the lmr must outlive the binding: name one that lives on

  /// The peer addresses the window from 0, not by the addresses of this process. Only for rmrs of
  /// `create_rmr_for_ep`; others give `model_not_supported`.
  bind& zero_based() & noexcept { return zero_based_ = true, *this; }
  bind&& zero_based() && noexcept { return zero_based_ = true, std::move(*this); }

private:
  friend class rmr;
  const lmr<T, P>* region_;
  std::size_t first_;
  std::size_t count_;
  bool zero_based_ = false;
};
template <class T, mem_priv P, mem_priv R>
bind(const lmr<T, P>&, privileges<R>) -> bind<T, P, R>;
template <class T, mem_priv P, mem_priv R>
bind(const lmr<T, P>&, std::size_t, std::size_t, privileges<R>) -> bind<T, P, R>;

/// Cookie and flags of an unbind: `dat::unbind{}.cookie(8)`.
class unbind : public request<unbind, 0> {
public:
  unbind() noexcept = default;
};

/// What an rmr is bound to.
struct rmr_binding {
  std::uint64_t address; ///< of the first byte, as the peer names it
  std::uint64_t length;  ///< in bytes
  std::uint32_t key;     ///< DAT_RMR_CONTEXT
  mem_priv rights;       ///< remote ones only
  bool zero_based;       ///< DAT_VA_TYPE_ZB
  std::uint32_t lmr_key; ///< DAT_LMR_CONTEXT of its lmr
};

/// What `rmr::query` tells (DAT_RMR_PARAM).
struct rmr_params {
  const void* ia = nullptr;           ///< the identities of its ia
  const void* pz = nullptr;           ///< and its zone
  rmr_scope scope{};                  ///< ep or pz
  std::optional<rmr_binding> binding; ///< nothing while it is not bound
};

/// A remote memory region (uDAPL 2.0 §6.7.3): names a part of an lmr towards peers, by a key that each bind makes anew.
/// Made by `pz::create_rmr` and `pz::create_rmr_for_ep`, not bound at first.
///
/// An lmr that it is bound to cannot be closed; it and the endpoint that an rmr of `create_rmr_for_ep` is bound through
/// can be destroyed, and the rmr is unbound then. Moving is cheap. Thread safety: queries are safe; `bind` and `unbind`
/// count as posts of a request to their endpoint, and must not overlap other calls of the same rmr.
class rmr : public dat::object<rmr, object_kind::rmr> {
public:
  rmr() noexcept = default; ///< names no rmr
  rmr(rmr&&) noexcept = default;
  rmr& operator=(rmr&&) noexcept = default;
  ~rmr() = default;

  /// Posts a bind: from its completion on peers may use what is returned, until the next bind, an unbind, or a message
  /// that invalidates it; what it was bound to before is closed then (uDAPL 2.0 §6.7.3.5 dat_rmr_bind). All that is
  /// posted to `through` afterwards starts after it, so the segment may be sent to the peer at once, by that endpoint.
  /// Completes with `bind_done` on the request evd, which needs streams::rmr_bind; a failure is a dto_failure, breaks
  /// the connection, and leaves the old binding.
  ///
  /// When the peer may have invalidated it, take the receive that says so before binding or unbinding again: what is
  /// posted before that tells the device to invalidate what is invalid already, which devices take amiss.
  ///
  /// Errors, with nothing changed: `invalid_handle` for an empty rmr, lmr or endpoint; `invalid_state` for an endpoint
  /// that takes no requests, while another bind of this rmr is posted, and while it is bound through another connected
  /// endpoint; `invalid_parameter` for elements outside the lmr or none, an evd without streams::rmr_bind, and
  /// `unsignalled` where the endpoint has no such; `protection_violation` unless rmr, lmr and endpoint are of one zone;
  /// `privileges_violation` for memory that the process cannot write to; `model_not_supported` for zero_based of an
  /// rmr for all endpoints; `insufficient_resources`: no room on the queue (an rmr for one endpoint takes two places
  /// where it is bound already). Allocates: no. Blocks: no; after the end of an endpoint or lmr that it was bound to,
  /// briefly in the driver.
  template <class T, mem_priv P, mem_priv R>
  [[nodiscard]] expected<remote_segment<T, (R & detail::remote_rights)>> bind(const ep<rc>& through,
                                                                              const dat::bind<T, P, R>& what) noexcept {
    if (!core_) return detail::empty_handle("rmr.bind", return_subtype::handle_rmr);
    const lmr<T, P>& region = *what.region_;
    if (region && (what.first_ > region.size() || what.count_ > region.size() - what.first_ || what.count_ == 0))
      return core_->at({return_type::invalid_parameter, return_subtype::arg3}, "rmr.bind")
          .hint("first + count must not exceed the lmr's size(), and count must not be 0: to close the window, unbind");
    auto bound = core_->bind(through.entity(), region.entity(), what.first_ * sizeof(T), what.count_ * sizeof(T), R,
                             what.zero_based_, includes(P, mem_priv::local_write), detail::request_access::of(what));
    if (!bound) return bound.assume_error();
    const std::uint64_t address = what.zero_based_ ? 0 : region.entity()->address() + what.first_ * sizeof(T);
    return detail::segment_access::make<remote_segment<T, (R & detail::remote_rights)>>(
        detail::raw_remote{address, what.count_ * sizeof(T), bound.assume_value()});
  }

  /// Posts the end of the binding, also when there is none (a bind of length 0 in uDAPL). Completes like bind.
  /// Errors: as bind.
  expected<void> unbind(const ep<rc>& through, const dat::unbind& how = {}) noexcept {
    if (!core_) return detail::empty_handle("rmr.unbind", return_subtype::handle_rmr);
    return core_->unbind(through.entity(), detail::request_access::of(how));
  }

  /// Elements [first, first + count) of what it is bound to, for an RDMA read by `reader` into the window (uDAPL 2.0
  /// §6.6.24 dat_ep_post_rdma_read_to_rmr): `ep.post(dat::rdma_read{sink, from})`. The adapter is given the key of the
  /// lmr, which never leaves this host.
  /// Errors: `privileges_violation` when it is not bound, or its lmr has no `local_write`; `protection_violation` when
  /// `reader` is of another zone, or not the endpoint that it is bound through, where that matters; `invalid_parameter`
  /// when the elements are not inside, or `T` does not fit the window's alignment; `length_error` for 4 GiB or more;
  /// `invalid_handle`. Allocates: no.
  template <transferable T>
  [[nodiscard]] expected<local_segment<T, mem_priv::local_write>> sink(const ep<rc>& reader, std::size_t first,
                                                                       std::size_t count) const noexcept;

  /// What it is and what it is bound to; a bind counts once its completion has been taken (uDAPL 2.0 §6.7.3.4).
  /// Errors: `invalid_handle`.
  template <class Params = rmr_params>
  [[nodiscard]] expected<Params> query() const noexcept {
    if (!core_ || core_->dead()) return detail::empty_handle("rmr.query", return_subtype::handle_rmr);
    Params p;
    p.ia = &core_->ia();
    p.pz = &core_->pz();
    p.scope = core_->for_ep() ? rmr_scope::ep : rmr_scope::pz;
    if (const detail::window_binding b = core_->binding())
      p.binding = rmr_binding{b.first(), b.length, b.key, b.rights, b.zero_based, b.region->mr()->lkey};
    return p;
  }
  /// Whether `key` is one of this rmr's, now or after some binds: `rmr.is(*received.invalidated())`.
  [[nodiscard]] bool is(std::uint32_t key) const noexcept { return core_ && core_->is(key); }

  /// Frees it, and ends its binding: what peers send it from now on fails, and breaks their connections (uDAPL 2.0
  /// §6.7.3.3). The destructor does so as well, but waits for the completion of a bind to be taken.
  /// Errors: `invalid_state` while a bind is posted and its completion not taken; `invalid_handle`. Blocks: briefly, in
  /// the driver.
  expected<void> close() noexcept { return core_.close("rmr.close", return_subtype::handle_rmr); }

  explicit operator bool() const noexcept { return static_cast<bool>(core_); }

  /// The verbs memory window. Null for an empty or closed rmr, and when what it was bound to has gone.
  [[nodiscard]] ibv_mw* native_handle() const noexcept { return core_ ? core_->window() : nullptr; }

private:
  friend dat::object<rmr, object_kind::rmr>;
  friend class pz;
  explicit rmr(detail::ref<detail::rmr_core> core) noexcept : core_(std::move(core)) {}
  [[nodiscard]] static expected<rmr> create(const detail::ref<detail::pz_core>& zone, bool for_ep) noexcept {
    auto core = detail::rmr_core::create(zone, for_ep);
    if (!core) return core.assume_error();
    return rmr(std::move(core).assume_value());
  }
  [[nodiscard]] auto* entity() const noexcept { return core_.get(); }
  detail::handle<detail::rmr_core> core_;
};

inline bool bind_done::is_of(const rmr& which) const noexcept { return which && which.identity() == window_; }

/// Sends a message, and with it closes a window of the peer's: the peer's `received` says which (uDAPL 2.0 §6.6.21
/// dat_ep_post_send_with_invalidate). Completes with `sent`.
///
///     ep.post(dat::send_with_invalidate{answer, window});
///     ep.post(dat::send_with_invalidate{window});           // an empty message
///
/// It has to be a window that the peer has bound, by an rmr of `create_rmr_for_ep`, through the other end of this
/// connection, and that is open: for any other key the peer's receive fails, and the connection breaks.
/// Errors of `post`, besides those of ep_ref::post: `model_not_supported` on an adapter without such sends.
template <std::size_t N>
class send_with_invalidate : public request<send_with_invalidate<N>, N> {
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
  /// Asks that the matching receive at the peer be a notification (DAT_COMPLETION_SOLICITED_WAIT_FLAG).
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
expected<local_segment<T, mem_priv::local_write>> rmr::sink(const ep<rc>& reader, std::size_t first,
                                                            std::size_t count) const noexcept {
  static constexpr const char* call = "rmr.sink";
  if (!core_ || core_->dead()) return detail::empty_handle(call, return_subtype::handle_rmr);
  if (!reader) return detail::empty_handle(call, return_subtype::handle_ep);
  const detail::window_binding b = core_->binding();
  if (!b || !b.sink)
    return core_->at(error(return_type::privileges_violation), call)
        .hint("an RDMA read needs an rmr that is bound to an lmr with dat::local_write");
  if (reader.entity()->pz() != &core_->pz() || (b.through && b.through != reader.entity()))
    return core_->at(error(return_type::protection_violation), call)
        .hint("the endpoint is of another zone, or not the one that the rmr is bound through");
  const std::uint64_t size = b.length / sizeof(T);
  if (first > size || count > size - first || b.address % alignof(T) != 0)
    return core_->at({return_type::invalid_parameter, return_subtype::arg3}, call)
        .hint("first + count must not exceed what the rmr is bound to, and the elements must be aligned");
  if (count * sizeof(T) > 0xffffffffu)
    return core_->at(error(return_type::length_error), call).hint("one segment names less than 4 GiB");
  return detail::segment_access::make<local_segment<T, mem_priv::local_write>>(
      detail::raw_segment{b.address + first * sizeof(T), static_cast<std::uint32_t>(count * sizeof(T)),
                          b.region->mr()->lkey, b.region->zone_of(count * sizeof(T))});
}

} // namespace dat::inline v0

namespace dat::inline v0::detail {
template <std::size_t N>
inline constexpr bool is_request<send_with_invalidate<N>> = true;
} // namespace dat::inline v0::detail

template <>
struct std::hash<dat::rmr> : dat::detail::handle_hash<dat::rmr> {};
