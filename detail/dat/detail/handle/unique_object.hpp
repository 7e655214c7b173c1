// The base of every handle that owns its object.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>
#include <dat/expected.hpp>
#include <dat/object.hpp>

#include <dat/detail/base/ref.hpp>
#include <dat/detail/handle/handle.hpp>

#include <string_view> // std::hash
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

/// A handle that owns its object: move-only, empty or owning, with all members of `object`. A moved-from handle is
/// empty, and so is a closed one. A derived class adds `close` and what its object can do. `Owner` ends the object.
template <class Self, class Core, object_kind Kind, class Owner = handle<Core>>
class unique_object : public object<Self, Kind> {
public:
  static constexpr bool is_unique_object = true;

  explicit unique_object(ref<Core> core) noexcept : core_(std::move(core)) {}
  /// False for an empty handle.
  explicit operator bool() const noexcept { return static_cast<bool>(core_); }

protected:
  unique_object() noexcept = default;
  explicit unique_object(Owner owner) noexcept : core_(std::move(owner)) {}
  unique_object(unique_object&&) noexcept = default;
  unique_object& operator=(unique_object&&) noexcept = default;
  ~unique_object() = default;

  /// The error of `call` on an empty handle.
  [[nodiscard, gnu::cold]] static error empty_handle(const char* call) noexcept {
    return detail::empty_handle(call, handle_subtype(Kind));
  }
  /// Ends the object. `in_use`: the subtype of the error while another object uses it.
  [[nodiscard]] expected<void> close_as(const char* call, return_subtype in_use = return_subtype::none) noexcept {
    return core_.close(call, handle_subtype(Kind), in_use);
  }
  /// True when the handle names an object of this process, and not of a parent that forked.
  [[nodiscard]] bool usable() const noexcept { return core_ && !core_->foreign(); }
  /// True when the handle names such an object that has not ended.
  [[nodiscard]] bool alive() const noexcept { return core_ && !core_->dead(); }

  Owner core_;

private:
  friend object<Self, Kind>;
  friend struct core_access;
  [[nodiscard]] auto* entity() const noexcept { return core_.get(); }
  [[nodiscard]] const ref<Core>& shared() const noexcept { return core_.shared(); }
};

}}} // namespace dat::v0::detail

/// Every handle that owns its object is hashed by its identity.
template <class Handle>
requires(Handle::is_unique_object) struct std::hash<Handle> : dat::detail::handle_hash<Handle> {
};
