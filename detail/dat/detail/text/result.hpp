// A value or an error inside the library; dat::expected is the public form.
//
// The core uses about ten such types that no consumer sees. Each basic_result adds some milliseconds to every
// compilation; this type adds none.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>

#include <utility>

namespace dat { inline namespace v0 { namespace detail {

template <class T>
class [[nodiscard]] result {
public:
  // One member of the union stays uninitialised, which the static analyser would report.
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

}}} // namespace dat::v0::detail
