// The common part of all handles: one owner, whose end is the object's end.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/dto.hpp>
#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <dat/detail/ref.hpp>

#include <atomic>
#include <type_traits>
#include <utility>

namespace dat::inline v0::detail {

[[nodiscard, gnu::cold]] constexpr error empty_handle(const char* call, return_subtype which) noexcept {
  return error(return_type::invalid_handle, which)
      .at(call)
      .hint("the handle is empty: it was moved from, closed, or never made by a create call");
}

/// Move-only. Dropping it ends objects that nothing else uses; others end with their last user.
template <class Core>
class handle {
public:
  handle() noexcept = default;
  explicit handle(ref<Core> core) noexcept : core_(std::move(core)) {}
  handle(handle&&) noexcept = default;
  handle& operator=(handle&& o) noexcept {
    if (this != &o) {
      drop();
      core_ = std::move(o.core_);
    }
    return *this;
  }
  ~handle() { drop(); }

  [[nodiscard]] Core* get() const noexcept { return core_.get(); }
  Core* operator->() const noexcept { return core_.get(); }
  Core& operator*() const noexcept { return *core_; }
  explicit operator bool() const noexcept { return static_cast<bool>(core_); }
  [[nodiscard]] const ref<Core>& shared() const noexcept { return core_; }

  /// Ends the object now. The handle is empty afterwards, unless the object is in use: then `in_use` is the answer and
  /// the object goes on.
  [[nodiscard]] expected<void> close(const char* call, return_subtype which,
                                     return_subtype in_use = return_subtype::none) noexcept {
    if (!core_) return empty_handle(call, which);
    if (core_->dead() || core_->ia().foreign()) {
      const bool foreign = core_->ia().foreign();
      core_ = {};
      return error(return_type::invalid_handle, which)
          .at(call)
          .hint(foreign ? "a forked child does not inherit the objects of its parent"
                        : "its ia was closed, and everything in it");
    }
    if constexpr (requires { core_->users; })
      if (core_->users.load(std::memory_order_acquire) != 0) return used(call, in_use);
    // The handle names it until it has ended: what runs until then, an agent, may still use it.
    const ref<Core> closing = core_;
    closing->end();
    core_ = {};
    return success();
  }

private:
  static constexpr bool names_itself = requires(const Core& c, const error& e) { c.at(e, ""); };
  /// The subtype, if there is one, says what to do.
  [[nodiscard]] error used(const char* call, return_subtype in_use) const noexcept {
    error e(return_type::invalid_state, in_use);
    if (in_use == return_subtype::none) e = e.hint("something still uses it: end that first");
    if constexpr (names_itself)
      return core_->at(e, call);
    else
      return e.at(call);
  }
  void drop() noexcept {
    // An endpoint or service point has no users: it ends here, whoever still holds a reference for a moment. A region
    // ends as well, as its memory may: windows that are bound to it lose it.
    if constexpr (
        !requires { core_->users; } || requires { Core::ends_with_handle; })
      if (core_) core_->end();
    core_ = {};
  }
  ref<Core> core_;
};

template <class D>
inline constexpr bool is_recv = false;
template <std::size_t N>
inline constexpr bool is_recv<recv<N>> = true;
template <class D>
inline constexpr bool is_request = false;
template <std::size_t N>
inline constexpr bool is_request<send<N>> = true;
template <std::size_t N>
inline constexpr bool is_request<rdma_write<N>> = true;
template <std::size_t N>
inline constexpr bool is_request<rdma_read<N>> = true;

} // namespace dat::inline v0::detail
