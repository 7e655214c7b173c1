// The type that a cookie was made from, which checked builds keep.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/checked.hpp>

#include <dat/detail/base/checked.hpp>

#include <cstdint>
#include <type_traits>

namespace dat { inline namespace v0 { namespace detail {

/// Has no members in builds that are not checked.
template <bool Checked>
struct cookie_type {
  constexpr cookie_type() noexcept = default;
  template <class T>
  constexpr explicit cookie_type(std::type_identity<T>) noexcept {}

protected:
  template <class T>
  static constexpr void check(std::uint64_t) noexcept {}
};

/// A type that a cookie is made from: the address of `type_mark` identifies it.
struct marked_type {
  bool is_pointer;
};
template <class T>
[[gnu::visibility("default")]] inline constexpr marked_type type_mark{std::is_pointer_v<T>};

template <>
struct cookie_type<true> {
  /// A cookie without a value has every type.
  constexpr cookie_type() noexcept = default;
  template <class T>
  constexpr explicit cookie_type(std::type_identity<T>) noexcept : mark_(mark_of<T>()) {}

protected:
  /// Reports `as<T>` of a cookie that was made from another type.
  template <class T>
  constexpr void check(std::uint64_t value) const noexcept {
    if (std::is_constant_evaluated() || !mark_ || fits<T>(value)) return;
    report_misuse({checked::finding::wrong_cookie_type, "cookie.as", "cookie", "cookie", 0, nullptr, nullptr,
                   "The cookie was made from another type: read it as that type."});
  }

private:
  /// Integers have one mark, and so have pointers to T of any constness.
  template <class T>
  [[nodiscard]] static constexpr const marked_type* mark_of() noexcept {
    if constexpr (std::is_integral_v<T>)
      return &type_mark<int>;
    else if constexpr (std::is_pointer_v<T>)
      return std::is_void_v<std::remove_pointer_t<T>> ? &type_mark<void*>
                                                      : &type_mark<std::remove_cv_t<std::remove_pointer_t<T>>*>;
    else
      return &type_mark<std::remove_cv_t<T>>;
  }
  template <class T>
  [[nodiscard]] constexpr bool fits(std::uint64_t value) const noexcept {
    if constexpr (std::is_integral_v<T>)
      return mark_ == mark_of<T>() && static_cast<std::uint64_t>(static_cast<T>(value)) == value;
    else if constexpr (std::is_enum_v<T>)
      return mark_ == mark_of<T>();
    else if constexpr (std::is_void_v<std::remove_pointer_t<T>>)
      return mark_->is_pointer;
    else
      return mark_->is_pointer && (mark_ == mark_of<T>() || mark_ == &type_mark<void*>);
  }
  const marked_type* mark_ = nullptr;
};

/// Types that programs try to make cookies from, and cannot.
template <class T>
inline constexpr bool is_no_cookie = std::is_floating_point_v<T> || std::is_same_v<T, bool>;
template <class T>
requires(std::is_class_v<T> ||
         std::is_union_v<T>) inline constexpr bool is_no_cookie<T> = !std::is_base_of_v<cookie_type<checked_build>, T>;

}}} // namespace dat::v0::detail
