// What expected<T>::value() and error() do when there is none: throw where exceptions exist, terminate otherwise.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>

#include <boost/outcome/policy/base.hpp>

#include <exception>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace dat::inline v0 {

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
  std::runtime_error text_; // holds the text because it copies without throwing, which std::string does not
};
#endif

namespace detail {

// Out of line: value() in a hot function then costs a test and a cold call.
[[noreturn, gnu::cold, gnu::noinline]] inline void no_value([[maybe_unused]] const error& e) {
#if defined(__cpp_exceptions)
  throw failure(e);
#else
  std::terminate();
#endif
}

[[noreturn, gnu::cold, gnu::noinline]] inline void no_error() {
#if defined(__cpp_exceptions)
  throw std::logic_error("dat: error() called on an expected that holds a value");
#else
  std::terminate();
#endif
}

struct no_value_policy : boost::outcome_v2::policy::base {
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
};

} // namespace detail
} // namespace dat::inline v0
