// <dat/expected.hpp>, <dat/cookie.hpp>: results may not be dropped, cookies hold 64 bits.
// SPDX-License-Identifier: BSL-1.0
#include <dat/cookie.hpp>
#include <dat/expected.hpp>
#include <dat/strerror.hpp>

//! case: the texts of a return word without a check for an error
//! error(gcc): has no member named 'major'
//! error(clang): no member named 'major'
//! tags: [ERR-046]
#ifdef DAT_EXPECT_FAIL
auto unasked() { return dat::strerror(0).major; }
#else
auto asked() { return dat::strerror(0).value().major; }
#endif

//! case: a floating-point number as cookie
//! error(gcc): no matching function for call to
//! error(clang): no matching conversion for functional-style cast
#ifdef DAT_EXPECT_FAIL
auto number() { return dat::cookie(1.5); }
#else
auto number() { return dat::cookie(15); }
#endif
