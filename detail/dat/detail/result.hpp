// A value or an error inside the library: what dat::expected is outside.
//
// The core makes about ten such types that no consumer sees. Each basic_result costs some milliseconds of every
// compilation; this costs none.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>

#include <utility>

namespace dat::inline v0::detail {

template <class T>
class [[nodiscard]] result {
public:
  // One member of the union stays as it is: the analyzer takes that for forgotten.
  result(T value) noexcept : value_(std::move(value)), ok_(true) {} // NOLINT
  result(const error& why) noexcept : why_(why) {}                  // NOLINT(google-explicit-constructor)

  explicit operator bool() const noexcept { return ok_; }
  [[nodiscard]] T& assume_value() & noexcept { return value_; }
  [[nodiscard]] T&& assume_value() && noexcept { return std::move(value_); }
  [[nodiscard]] const error& assume_error() const noexcept { return why_; }

private:
  T value_{};
  error why_;
  bool ok_ = false;
};

} // namespace dat::inline v0::detail
