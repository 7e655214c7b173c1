// DAT_TRY and the other opt-in macros that unwrap an expected or return its error. Not part of dat.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/expected.hpp>

#include <utility>

namespace dat { inline namespace v0 { namespace detail {

/// The failure that DAT_TRY returns. Compilers print its name where the function returns another type than an expected,
/// as `main` does.
template <class Failure>
struct a_function_that_uses_DAT_TRY_returns_dat_expected : Failure {
  constexpr explicit a_function_that_uses_DAT_TRY_returns_dat_expected(Failure&& failure)
      : Failure(std::move(failure)) {}
};

/// Outcome's observers of a result that DAT_TRY has checked. Without a second check, which each type would compile
/// anew.
struct checked_result : unwrap_by_value_or_DAT_TRY {
  template <class Result>
  static constexpr auto&& value(Result&& from) noexcept {
    return base::_value(static_cast<Result&&>(from));
  }
  template <class Result>
  static constexpr auto failure(Result&& from) noexcept {
    return pass_on(base::_error(from));
  }

private:
  template <class E>
  static constexpr auto pass_on(const E& why) noexcept {
    return a_function_that_uses_DAT_TRY_returns_dat_expected(boost::outcome_v2::failure(why));
  }
};

/// The value of an expected, with a type that compilers print in few words where it does not fit its target.
template <class T, class E, class Policy>
constexpr T& value_of(boost::outcome_v2::basic_result<T, E, Policy>& from) noexcept {
  return checked_result::value(from);
}
template <class T, class E, class Policy>
constexpr const T& value_of(const boost::outcome_v2::basic_result<T, E, Policy>& from) noexcept {
  return checked_result::value(from);
}
template <class T, class E, class Policy>
constexpr T&& value_of(boost::outcome_v2::basic_result<T, E, Policy>&& from) noexcept {
  return checked_result::value(std::move(from));
}

}}} // namespace dat::v0::detail

/// DAT_TRY(declaration, expression): evaluates an expected, returns its error from the enclosing function, or
/// initialises (or assigns) `declaration` with its value:
///
///     DAT_TRY(auto pz, ia.create_pz());
///     DAT_TRY(segment.length, parse_length(text));
///
/// The enclosing function returns any dat::expected<U>; `main` calls such a function. Commas in the expression are
/// fine; a declaration with commas is not. An expected that is a named variable must be moved: DAT_TRY(auto x,
/// std::move(maybe_x)). The macro is two statements: put it into braces after an `if`. No statement expression, so it
/// is standard C++.
#define DAT_TRY(declaration, ...) DAT_DETAIL_TRY_1(__COUNTER__, declaration, __VA_ARGS__)

/// DAT_TRYV(expression): as DAT_TRY for expected<void>, or to drop the value. One statement.
#define DAT_TRYV(...) DAT_DETAIL_TRYV_1(__COUNTER__, __VA_ARGS__)

/// DAT_CO_TRY(declaration, expression): as DAT_TRY in a coroutine, which returns the error by co_return:
///
///     DAT_CO_TRY(const auto got, co_await driver.post(ep, dat::recv{in}));
#define DAT_CO_TRY(declaration, ...) DAT_DETAIL_CO_TRY_1(__COUNTER__, declaration, __VA_ARGS__)
/// DAT_CO_TRYV(expression): as DAT_TRYV in a coroutine.
#define DAT_CO_TRYV(...) DAT_DETAIL_CO_TRYV_1(__COUNTER__, __VA_ARGS__)

// __COUNTER__ becomes a number only when it is passed to a second macro.
#define DAT_DETAIL_TRY_NAME(unique) dat_try_result_##unique
#define DAT_DETAIL_TRY_CHECK(give_back, name, ...)                                                                     \
  auto&& name = (__VA_ARGS__);                                                                                         \
  if (!name.has_value()) [[unlikely]]                                                                                  \
  give_back ::dat::detail::checked_result::failure(name)
#define DAT_DETAIL_TRY_TAKE(give_back, name, declaration, ...)                                                         \
  DAT_DETAIL_TRY_CHECK(give_back, name, __VA_ARGS__);                                                                  \
  declaration = ::dat::detail::value_of(static_cast<decltype(name)>(name))
#define DAT_DETAIL_TRY_DROP(give_back, name, ...)                                                                      \
  do {                                                                                                                 \
    DAT_DETAIL_TRY_CHECK(give_back, name, __VA_ARGS__);                                                                \
  } while (false)

#define DAT_DETAIL_TRY_1(unique, declaration, ...)                                                                     \
  DAT_DETAIL_TRY_TAKE(return, DAT_DETAIL_TRY_NAME(unique), declaration, __VA_ARGS__)
#define DAT_DETAIL_TRYV_1(unique, ...) DAT_DETAIL_TRY_DROP(return, DAT_DETAIL_TRY_NAME(unique), __VA_ARGS__)
#define DAT_DETAIL_CO_TRY_1(unique, declaration, ...)                                                                  \
  DAT_DETAIL_TRY_TAKE(co_return, DAT_DETAIL_TRY_NAME(unique), declaration, __VA_ARGS__)
#define DAT_DETAIL_CO_TRYV_1(unique, ...) DAT_DETAIL_TRY_DROP(co_return, DAT_DETAIL_TRY_NAME(unique), __VA_ARGS__)
