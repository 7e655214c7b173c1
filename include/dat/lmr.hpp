// Local memory regions: memory that the adapter may read and write.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/expected.hpp>
#include <dat/object.hpp>
#include <dat/privileges.hpp>
#include <dat/segment.hpp>

#include <dat/detail/handle/core_access.hpp>
#include <dat/detail/handle/unique_object.hpp>
#include <dat/detail/memory/lmr_core.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace dat { inline namespace v0 {

/// A registered, contiguous range of `T` with the rights `P` (uDAPL 2.0 §6.7.2). `pz::register_memory` creates it.
///
/// The range must stay mapped while the region lives, and the region must live until the last operation that names it
/// has completed. A DTO takes the region as a whole (`dat::send{lmr}`), or slices of it. Move-only; segments stay valid
/// when the lmr object moves.
/// Thread safety: queries and slices are safe; `close` and destruction must not overlap them.
template <class T, mem_priv P>
class lmr : public detail::unique_object<lmr<T, P>, detail::lmr_core, object_kind::lmr> {
public:
  using element_type = T;
  static constexpr mem_priv rights = P;
  static constexpr bool remotely_accessible = (P & detail::peer_rights) != mem_priv::none;

  lmr() noexcept = default; ///< names no region; whole() is empty

  /// Elements [first, first + count) as a segment for DTOs.
  /// Errors: `invalid_parameter` when the range exceeds the region; `length_error` when it has 4 GiB or more;
  /// `invalid_handle` for a closed region.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  [[nodiscard]] expected<local_segment<T, P>> slice(std::size_t first, std::size_t count) const noexcept {
    if (auto ok = check("lmr.slice", first, count); !ok) return ok.assume_error();
    if (count * sizeof(T) > std::numeric_limits<std::uint32_t>::max())
      return error(return_type::length_error)
          .at("lmr.slice", object_kind::lmr, core_->mr()->lkey)
          .hint("One segment names less than 4 GiB: slice the region into several.");
    return detail::segment_access::make<local_segment<T, P>>(
        detail::raw_segment{core_->address() + first * sizeof(T), static_cast<std::uint32_t>(count * sizeof(T)),
                            core_->mr()->lkey, core_->zone_of(count * sizeof(T))});
  }

  /// The whole region as a segment. For a region of 4 GiB or more, posting it fails with `protection_violation`; use
  /// slices.
  [[nodiscard]] local_segment<T, P> whole() const noexcept {
    detail::raw_segment raw{.zone = detail::zone_tag::no_region()};
    if (core_ && core_->mr()) {
      const bool fits = size_bytes() <= std::numeric_limits<std::uint32_t>::max();
      raw = {core_->address(), fits ? static_cast<std::uint32_t>(size_bytes()) : 1u, core_->mr()->lkey,
             fits ? core_->zone_of(size_bytes()) : detail::zone_tag::unpostable()};
    }
    return detail::segment_access::make<local_segment<T, P>>(raw);
  }

  /// The whole region for a peer, which gets it as `to_wire()`. Only for regions with a remote right.
  [[nodiscard]] remote_segment<T, P> remote() const noexcept {
    static_assert(remotely_accessible,
                  "dat: register the memory with dat::remote_read, remote_write or remote_atomic first");
    detail::raw_remote raw;
    if (core_ && core_->mr()) raw = {core_->address(), size_bytes(), core_->mr()->rkey};
    return detail::segment_access::make<remote_segment<T, P>>(raw);
  }
  /// Elements [first, first + count) for a peer.
  /// Errors: `invalid_parameter` when the range exceeds the region; `invalid_handle` for a closed region.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  [[nodiscard]] expected<remote_segment<T, P>> remote(std::size_t first, std::size_t count) const noexcept {
    if (auto ok = check("lmr.remote", first, count); !ok) return ok.assume_error();
    return remote().slice(first, count);
  }

  /// Ends the registration (uDAPL 2.0 §6.7.2.2). Operations that still name the region fail and break their connection.
  /// The destructor ends the registration in any case.
  /// Errors: `invalid_state` (lmr_in_use) while an rmr is bound to it, while the completion of a bind to it is not
  /// taken, and while an operation that was posted by the policy dat::tracked names it; `invalid_handle`.
  /// Allocates: no.
  /// Blocks: while the system unpins the pages.
  /// Thread safety: must not overlap any other use of the region.
  expected<void> close() noexcept {
    if (core_ && core_->mr())
      if (auto ok = core_->may_close(); !ok) return ok;
    return this->close_as("lmr.close", return_subtype::lmr_in_use);
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_bytes() / sizeof(T); }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return core_ && core_->mr() ? core_->mr()->length : 0; }
  /// The memory itself.
  [[nodiscard]] T* data() const noexcept { return core_ && core_->mr() ? static_cast<T*>(core_->mr()->addr) : nullptr; }
  [[nodiscard]] std::span<T> elements() const noexcept { return {data(), size()}; }

  /// The verbs memory region. Null for an empty or closed region.
  [[nodiscard]] ibv_mr* native_handle() const noexcept { return core_ ? core_->mr() : nullptr; }

  using lmr::unique_object::unique_object;

private:
  using lmr::unique_object::core_;

  [[nodiscard]] expected<void> check(const char* call, std::size_t first, std::size_t count) const noexcept {
    if (!core_ || !core_->mr()) return this->empty_handle(call);
    if (first > size() || count > size() - first)
      return error(return_type::invalid_parameter)
          .at(call, object_kind::lmr, core_->mr()->lkey)
          .hint("The elements [first, first + count) must lie inside size().");
    return success();
  }
};

}} // namespace dat::v0
