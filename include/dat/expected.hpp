// dat::expected<T>: a value or a dat::error, over Boost.Outcome.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>

#include <boost/outcome/basic_result.hpp>

#include <dat/detail/text/no_value_policy.hpp>

namespace dat { inline namespace v0 {

/// A T, or the dat::error that explains its absence. Converts implicitly from T and from dat::error, tests like a bool,
/// and has Outcome's members: has_value(), error(), value(), assume_value(), assume_error(), as_failure().
///
/// value() on an error throws dat::failure if exceptions are enabled, and otherwise ends the program by std::terminate.
/// error() on a value throws std::logic_error or terminates likewise. assume_value() and assume_error() do not check.
/// dat itself never throws; only an unchecked value() or error() of a consumer does.
template <class T>
using expected = boost::outcome_v2::basic_result<T, error, detail::unwrap_by_value_or_DAT_TRY>;

/// `return dat::success();` creates an expected<void>, `return dat::success(x);` an expected of x's type.
using boost::outcome_v2::success;

}} // namespace dat::v0
