// The common part of all DAT objects: a kind, an identity, and a context of the consumer.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/cookie.hpp>
#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <dat/detail/handle/handle.hpp>

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view> // std::hash

namespace dat { inline namespace v0 {

/// The kind's value in DAT_HANDLE_TYPE (uDAPL 2.0 §6.2.2.3); empty for `none`.
[[nodiscard]] constexpr std::optional<std::uint32_t> dat_code(object_kind kind) noexcept {
  switch (kind) {
  case object_kind::cr:
    return 0;
  case object_kind::ep:
    return 1;
  case object_kind::evd:
    return 2;
  case object_kind::ia:
    return 3;
  case object_kind::lmr:
    return 4;
  case object_kind::psp:
    return 5;
  case object_kind::pz:
    return 6;
  case object_kind::rmr:
    return 7;
  case object_kind::rsp:
    return 8;
  case object_kind::cno:
    return 9;
  case object_kind::srq:
    return 10;
  case object_kind::csp:
    return 11;
  case object_kind::none:
    break;
  }
  return std::nullopt;
}

/// The subtype of `invalid_handle` for a kind. The subtype for an evd depends on its use, which is unknown here.
[[nodiscard]] constexpr return_subtype handle_subtype(object_kind kind) noexcept {
  switch (kind) {
  case object_kind::ia:
    return return_subtype::handle_ia;
  case object_kind::pz:
    return return_subtype::handle_pz;
  case object_kind::lmr:
    return return_subtype::handle_lmr;
  case object_kind::rmr:
    return return_subtype::handle_rmr;
  case object_kind::srq:
    return return_subtype::handle_srq;
  case object_kind::cno:
    return return_subtype::handle_cno;
  case object_kind::psp:
    return return_subtype::handle_psp;
  case object_kind::rsp:
    return return_subtype::handle_rsp;
  case object_kind::csp:
    return return_subtype::handle_csp;
  case object_kind::cr:
    return return_subtype::handle_cr;
  case object_kind::ep:
    return return_subtype::handle_ep;
  case object_kind::evd:
    return return_subtype::handle_evd_recv;
  case object_kind::none:
    break;
  }
  return return_subtype::none;
}

namespace detail {
/// The members of every handle.
///
/// No member allocates or blocks.
/// Thread safety: safe; the consumer owns the target of a context.
template <class Self, object_kind Kind>
class object {
public:
  /// The kind of the object (dat_get_handle_type, uDAPL 2.0 §6.2.2.3); `dat_code(kind)` is its number in DAT.
  static constexpr object_kind kind = Kind;

  /// Stores 64 bits of the consumer, a number or a pointer, with the object, and replaces the previous value (uDAPL 2.0
  /// §6.2.2.1). An object begins with 0, which means none. dat never reads the value. The context stays until the
  /// object is freed, also when the handle moves, and when an endpoint is reset and connects again. An event that names
  /// the endpoint gives access to it: `event.ep().context<session>()`.
  /// Errors: `invalid_handle` for an empty handle, or one whose object is closed.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  expected<void> set_context(dat::cookie context) const noexcept {
    auto* const o = self().entity();
    if (!o || o->dead()) return empty_handle("set_context", handle_subtype(Kind));
    o->consumer_context.store(context.value(), std::memory_order_release);
    return success();
  }
  /// The context; 0 when none was set (uDAPL 2.0 §6.2.2.2).
  /// Errors: `invalid_handle` for an empty handle, or one whose object is closed.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  [[nodiscard]] expected<dat::cookie> context() const noexcept {
    auto* const o = self().entity();
    if (!o || o->dead()) return empty_handle("context", handle_subtype(Kind));
    return dat::cookie(o->consumer_context.load(std::memory_order_acquire));
  }
  /// The context as a pointer to a `T`, as it was set; null when there is none, and for an empty handle. The pointer
  /// also serves clean-up: a handle keeps it after its object is closed.
  template <class T>
  [[nodiscard]] T* context() const noexcept {
    auto* const o = self().entity();
    return o ? dat::cookie(o->consumer_context.load(std::memory_order_acquire)).template pointer<T>() : nullptr;
  }

  /// An address that no other object has while this one lives; null for an empty handle.
  [[nodiscard]] const void* identity() const noexcept { return self().entity(); }
  /// The identity of the ia that created the object; of an ia, its own; null for an empty handle: `pz.owner() ==
  /// ia.identity()`.
  [[nodiscard]] const void* owner() const noexcept {
    auto* const o = self().entity();
    if constexpr (requires { o->ia(); })
      return o ? &o->ia() : nullptr;
    else
      return o;
  }
  /// Whether both name the same object, or none.
  friend bool operator==(const Self& a, const Self& b) noexcept { return a.identity() == b.identity(); }
  /// An order for use as a key: that of the identities.
  friend std::strong_ordering operator<=>(const Self& a, const Self& b) noexcept {
    return std::compare_three_way()(a.identity(), b.identity());
  }

protected:
  constexpr object() noexcept = default;
  object(const object&) noexcept = default;
  object& operator=(const object&) noexcept = default;
  ~object() = default;

private:
  [[nodiscard]] const Self& self() const noexcept { return static_cast<const Self&>(*this); }
};

/// The hash of a handle, for std::hash.
template <class Handle>
struct handle_hash {
  [[nodiscard]] std::size_t operator()(const Handle& h) const noexcept {
    return std::hash<const void*>{}(h.identity());
  }
};

} // namespace detail

template <class Self, object_kind Kind>
using object = detail::object<Self, Kind>;

}} // namespace dat::v0
