// dat::expected<T>: a value or a dat::error, over Boost.Outcome.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>

#include <boost/outcome/basic_result.hpp>

#include <dat/detail/no_value_policy.hpp>

namespace dat::inline v0 {

/// A T, or the dat::error that explains why there is none. Converts implicitly from T and from dat::error, tests like
/// a bool, and has Outcome's members: has_value(), error(), value(), assume_value(), assume_error(), as_failure().
///
/// value() on an error throws dat::failure where exceptions are enabled and ends the program by std::terminate
/// otherwise; error() on a value throws std::logic_error, or terminates likewise. assume_value() and assume_error()
/// do not check. Nothing in dat throws: it happens only where a consumer calls value() or error() unchecked.
template <class T>
using expected = boost::outcome_v2::basic_result<T, error, detail::no_value_policy>;

/// `return dat::success();` makes an expected<void>, `return dat::success(x);` an expected of x's type.
using boost::outcome_v2::success;

} // namespace dat::inline v0
