// expected<T>::value() and error() on the wrong alternative: throw if exceptions are enabled, otherwise terminate.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>

#include <boost/outcome/policy/base.hpp>

#ifdef DAT_TRACE
#include <dat/log.hpp>
#endif

#include <exception>
#include <stdexcept>
#include <system_error>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 {

#if defined(__cpp_exceptions)
/// Thrown by expected<T>::value() on an error; what() is error().message().
/// Default visibility, so that it can be caught across shared objects.
class [[gnu::visibility("default")]] failure : public std::system_error {
public:
  explicit failure(const dat::error& e) : std::system_error{e.code()}, error_{e}, text_{e.message()} {}

  [[nodiscard]] const dat::error& error() const noexcept { return error_; }
  [[nodiscard]] const char* what() const noexcept override { return text_.what(); }

private:
  dat::error error_;
  std::runtime_error text_; // holds the text, because a copy must not throw, unlike that of std::string
};
#endif

namespace detail {

// A program may have source files with exceptions and without. For each type, they share one copy of value() and
// error(), which the linker keeps from a file of either kind. Both kinds of copies behave alike. They throw if the
// program has the throwing function, which only files with exceptions define. Otherwise they end the program.
#if defined(__cpp_exceptions)
extern "C" [[noreturn, gnu::cold, gnu::noinline, gnu::visibility("default")]] inline void
dat_v0_throw_no_value(const error& e) {
  throw failure(e);
}
extern "C" [[noreturn, gnu::cold, gnu::noinline, gnu::visibility("default")]] inline void dat_v0_throw_no_error() {
  throw std::logic_error("dat: error() called on an expected that holds a value");
}
// Out of line, so that value() in a hot function costs a test and a cold call.
[[noreturn, gnu::cold, gnu::noinline]] inline void no_value(const error& e) { dat_v0_throw_no_value(e); }
[[noreturn, gnu::cold, gnu::noinline]] inline void no_error() { dat_v0_throw_no_error(); }
#else
extern "C" [[gnu::weak]] void dat_v0_throw_no_value(const error& e);
extern "C" [[gnu::weak]] void dat_v0_throw_no_error();
[[noreturn, gnu::cold, gnu::noinline]] inline void no_value(const error& e) {
  if (&dat_v0_throw_no_value != nullptr) dat_v0_throw_no_value(e);
  std::terminate();
}
[[noreturn, gnu::cold, gnu::noinline]] inline void no_error() {
  if (&dat_v0_throw_no_error != nullptr) dat_v0_throw_no_error();
  std::terminate();
}
#endif

/// Outcome's policy of dat::expected. Compilers print its name, a remedy, where a member of a T is used on an
/// expected<T>.
struct unwrap_by_value_or_DAT_TRY : boost::outcome_v2::policy::base {
  template <class Impl>
  static constexpr void wide_value_check(Impl&& self) {
    if (!base::_has_value(self)) [[unlikely]]
      no_value(base::_error(self));
  }

  template <class Impl>
  static constexpr void wide_error_check(Impl&& self) {
    if (!base::_has_error(self)) [[unlikely]]
      no_error();
  }

#ifdef DAT_TRACE
  /// Called for each expected that is made. The Outcome of Boost 1.74 calls the function below, that of later versions
  /// this one.
  template <class Impl, class From>
  static constexpr void on_result_construction(Impl* self, From&&) noexcept {
    if constexpr (std::is_same_v<std::remove_cvref_t<From>, error>)
      if (!std::is_constant_evaluated()) log_error(base::_error(*self));
  }
#endif
};

#ifdef DAT_TRACE
template <class T, class From>
requires std::is_same_v<std::remove_cvref_t<From>, error>
constexpr void hook_result_construction(boost::outcome_v2::basic_result<T, error, unwrap_by_value_or_DAT_TRY>* self,
                                        From&& from) noexcept {
  unwrap_by_value_or_DAT_TRY::on_result_construction(self, from);
}
#endif

} // namespace detail
}} // namespace dat::v0
