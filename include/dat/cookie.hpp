// dat::cookie: the consumer's 64 bits that a completion returns.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/checked.hpp>

#include <dat/detail/base/checked.hpp>
#include <dat/detail/base/cookie_type.hpp>

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view> // std::hash, at a tenth of the compile time of <functional>
#include <type_traits>

namespace dat { inline namespace v0 {

/// 64 bits that dat returns unchanged with the completion of the operation that they were posted with (DAT_DTO_COOKIE,
/// uDAPL 2.0 §5.4). Holds an integer, an enumerator or a pointer; it need not be unique, and dat never reads it.
/// Trivially copyable; no member allocates or blocks. A checked build (DAT_CHECKED) adds a word for the type.
class cookie : detail::cookie_type<detail::checked_build> {
  using type = detail::cookie_type<detail::checked_build>;

public:
  constexpr cookie() noexcept = default;

  /// Any integer of up to 64 bits; as<its type>() returns a negative one.
  template <std::integral I>
  requires(!std::same_as<std::remove_cv_t<I>, bool> &&
           sizeof(I) <= sizeof(std::uint64_t)) constexpr cookie(I number) noexcept
      : type(std::type_identity<I>()), value_{static_cast<std::uint64_t>(number)} {}

  /// Any enumerator; as<its type>() returns it.
  template <class E>
  requires std::is_enum_v<E>
  constexpr cookie(E enumerator) noexcept
      : type(std::type_identity<E>()), value_{cookie{static_cast<std::underlying_type_t<E>>(enumerator)}.value_} {}

  /// Stores the pointer only: the consumer owns its target, which must live as long as the consumer reads it.
  template <class T>
  requires(!std::is_function_v<T>) cookie(T* pointer)
  noexcept
      : type(std::type_identity<T*>()),
        value_{reinterpret_cast<std::uintptr_t>(const_cast<const void*>(static_cast<const volatile void*>(pointer)))} {}

  /// Nothing else. Compilers print the name of the parameter.
  template <class a_cookie_is_an_integer_an_enumerator_or_a_pointer>
  requires(detail::is_no_cookie<a_cookie_is_an_integer_an_enumerator_or_a_pointer>)
      cookie(a_cookie_is_an_integer_an_enumerator_or_a_pointer)
  = delete;

  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return value_; }

  /// The value as the integer, enumerator or pointer type from which it was created. A checked build reports another
  /// type: another enumeration, a pointer to another type (void excepted), a pointer as a number or a number as a
  /// pointer, and an integer type that cannot represent the value.
  template <class T>
  requires(std::integral<T> || std::is_enum_v<T>) [[nodiscard]] constexpr T as() const noexcept {
    if constexpr (detail::checked_build) this->template check<T>(value_);
    return static_cast<T>(value_);
  }
  template <class P>
  requires std::is_pointer_v<P>
  [[nodiscard]] P as() const noexcept {
    if constexpr (detail::checked_build) this->template check<P>(value_);
    return reinterpret_cast<P>(static_cast<std::uintptr_t>(value_));
  }
  /// The pointer; equal to as<T*>().
  template <class T>
  [[nodiscard]] T* pointer() const noexcept {
    return as<T*>();
  }

  [[nodiscard]] friend constexpr bool operator==(cookie a, cookie b) noexcept { return a.value_ == b.value_; }
  [[nodiscard]] friend constexpr std::strong_ordering operator<=>(cookie a, cookie b) noexcept {
    return a.value_ <=> b.value_;
  }

private:
  std::uint64_t value_ = 0;
};

static_assert(sizeof(cookie) == (detail::checked_build ? 16 : 8) && std::is_trivially_copyable_v<cookie>);
static_assert(sizeof(std::uintptr_t) <= sizeof(std::uint64_t));

}} // namespace dat::v0

template <>
struct std::hash<dat::cookie> {
  [[nodiscard]] std::size_t operator()(dat::cookie c) const noexcept { return std::hash<std::uint64_t>{}(c.value()); }
};
