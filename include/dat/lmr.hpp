// Local memory regions: memory that the adapter may read and write.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/expected.hpp>
#include <dat/object.hpp>
#include <dat/privileges.hpp>
#include <dat/segment.hpp>

#include <dat/detail/core.hpp>
#include <dat/detail/handle.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

namespace dat::inline v0 {

/// A registered, contiguous range of `T`, with the rights `P` (uDAPL 2.0 §6.7.2). Made by `pz::register_memory`.
///
/// The range must stay mapped while the region lives, and the region must live until the last operation that names it
/// has completed. It can stand for itself in a DTO (`dat::send{lmr}`), or give slices. Move-only: segments of it stay
/// valid when it moves. Thread safety: queries and slices are safe; `close` and destruction must not overlap them.
template <class T, mem_priv P>
class lmr : public dat::object<lmr<T, P>, object_kind::lmr> {
public:
  using element_type = T;
  static constexpr mem_priv rights = P;
  static constexpr bool reachable =
      (P & (mem_priv::remote_read | mem_priv::remote_write | mem_priv::remote_atomic)) != mem_priv::none;

  lmr() noexcept = default; ///< names no region; whole() is empty
  lmr(lmr&&) noexcept = default;
  lmr& operator=(lmr&&) noexcept = default;
  ~lmr() = default;

  /// Elements [first, first + count) as a segment for DTOs.
  /// Errors: `invalid_parameter` when the range is not inside, `length_error` when it has 4 GiB or more,
  /// `invalid_handle` for a closed region. Allocates: no.
  [[nodiscard]] expected<local_segment<T, P>> slice(std::size_t first, std::size_t count) const noexcept {
    if (auto ok = check("lmr.slice", first, count); !ok) return ok.assume_error();
    if (count * sizeof(T) > std::numeric_limits<std::uint32_t>::max())
      return error(return_type::length_error)
          .at("lmr.slice", object_kind::lmr, core_->mr()->lkey)
          .hint("one segment names less than 4 GiB: slice the region into several");
    return detail::segment_access::make<local_segment<T, P>>(
        detail::raw_segment{core_->address() + first * sizeof(T), static_cast<std::uint32_t>(count * sizeof(T)),
                            core_->mr()->lkey, core_->zone_of(count * sizeof(T))});
  }

  /// The whole region as a segment. A region of 4 GiB or more has none: posting it fails with
  /// `protection_violation`; use slices.
  [[nodiscard]] local_segment<T, P> whole() const noexcept {
    detail::raw_segment raw;
    if (core_ && core_->mr()) {
      const bool fits = size_bytes() <= std::numeric_limits<std::uint32_t>::max();
      raw = {core_->address(), fits ? static_cast<std::uint32_t>(size_bytes()) : 1u, core_->mr()->lkey,
             fits ? core_->zone_of(size_bytes()) : detail::common_zone::unpostable()};
    }
    return detail::segment_access::make<local_segment<T, P>>(raw);
  }

  /// The region as a peer may use it: send it `to_wire()`. Only for regions with a remote right.
  [[nodiscard]] remote_segment<T, P> remote() const noexcept {
    static_assert(reachable, "dat: register the memory with dat::remote_read, remote_write or remote_atomic first");
    detail::raw_remote raw;
    if (core_ && core_->mr()) raw = {core_->address(), size_bytes(), core_->mr()->rkey};
    return detail::segment_access::make<remote_segment<T, P>>(raw);
  }
  /// Elements [first, first + count) for a peer. Errors: as slice, but of any length.
  [[nodiscard]] expected<remote_segment<T, P>> remote(std::size_t first, std::size_t count) const noexcept {
    if (auto ok = check("lmr.remote", first, count); !ok) return ok.assume_error();
    return remote().slice(first, count);
  }

  /// Ends the registration (uDAPL 2.0 §6.7.2.2). Operations that still name it fail and break their connection.
  /// Errors: `invalid_handle`; `invalid_state` (lmr_in_use) while an rmr is bound to it, or a bind to it is posted and
  /// its completion not taken, and while an operation names it that was posted by the policy dat::checked. (The
  /// destructor ends such bindings.) Blocks: while the system unpins the pages.
  expected<void> close() noexcept {
    if (core_ && core_->mr())
      if (auto ok = core_->ia().region_ends(*core_->mr(), false); !ok) return ok;
    return core_.close("lmr.close", return_subtype::handle_lmr, return_subtype::lmr_in_use);
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_bytes() / sizeof(T); }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return core_ && core_->mr() ? core_->mr()->length : 0; }
  /// The memory itself.
  [[nodiscard]] T* data() const noexcept { return core_ && core_->mr() ? static_cast<T*>(core_->mr()->addr) : nullptr; }
  [[nodiscard]] std::span<T> elements() const noexcept { return {data(), size()}; }

  explicit operator bool() const noexcept { return static_cast<bool>(core_); }

  /// The verbs memory region. Null for an empty or closed one.
  [[nodiscard]] ibv_mr* native_handle() const noexcept { return core_ ? core_->mr() : nullptr; }

private:
  friend dat::object<lmr, object_kind::lmr>;
  friend class pz;
  friend class rmr;
  friend struct detail::memory_access;
  explicit lmr(detail::ref<detail::lmr_core> core) noexcept : core_(std::move(core)) {}
  [[nodiscard]] expected<void> check(const char* call, std::size_t first, std::size_t count) const noexcept {
    if (!core_ || !core_->mr()) return detail::empty_handle(call, return_subtype::handle_lmr);
    if (first > size() || count > size() - first)
      return error(return_type::invalid_parameter)
          .at(call, object_kind::lmr, core_->mr()->lkey)
          .hint("first + count must not exceed size()");
    return success();
  }
  [[nodiscard]] auto* entity() const noexcept { return core_.get(); }
  detail::handle<detail::lmr_core> core_;
};

} // namespace dat::inline v0

template <class T, dat::mem_priv P>
struct std::hash<dat::lmr<T, P>> : dat::detail::handle_hash<dat::lmr<T, P>> {};
