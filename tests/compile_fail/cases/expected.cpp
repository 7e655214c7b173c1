// <dat/expected.hpp>, <dat/cookie.hpp>: results may not be dropped, cookies hold 64 bits.
// SPDX-License-Identifier: BSL-1.0
#include <dat/cookie.hpp>
#include <dat/dat.hpp>
#include <dat/expected.hpp>
#include <dat/strerror.hpp>
#include <dat/try.hpp>

#include <variant>

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

//! case: DAT_TRY in a function that returns no expected
//! error(gcc): cannot convert .*a_function_that_uses_DAT_TRY_returns_dat_expected
//! error(clang): no viable conversion from returned value of type .*a_function_that_uses_DAT_TRY_returns_dat_expected
//! lines: 25
#ifdef DAT_EXPECT_FAIL
int start(dat::expected<int> number) {
  DAT_TRY(const int n, std::move(number));
  return n;
}
#else
dat::expected<int> start(dat::expected<int> number) {
  DAT_TRY(const int n, std::move(number));
  return n;
}
#endif

//! case: DAT_TRY into a member of another type
//! error(gcc): no match for 'operator=' in 'r.one_region::numbers = .*operand types are .*lmr<int
//! error(clang): no viable overloaded '='
//! lines: 25
struct one_region {
  dat::lmr<int, dat::local_read> numbers;
  dat::lmr<char, dat::local_read> text;
};
#ifdef DAT_EXPECT_FAIL
dat::expected<void> keep(one_region& r, dat::expected<dat::lmr<char, dat::local_read>> made) {
  DAT_TRY(r.numbers, std::move(made));
  return dat::success();
}
#else
dat::expected<void> keep(one_region& r, dat::expected<dat::lmr<char, dat::local_read>> made) {
  DAT_TRY(r.text, std::move(made));
  return dat::success();
}
#endif

//! case: a member function of an expected that is not unwrapped
//! error(gcc): 'dat::.*expected<dat::.*ia>'.* has no member named 'create_pz'
//! error(clang): no member named 'create_pz' in 'boost::outcome_v2.*::basic_result<dat::.*ia
//! lines: 25
#ifdef DAT_EXPECT_FAIL
auto unopened(dat::expected<dat::ia>& ia) { return ia.create_pz(); }
#else
auto opened(dat::expected<dat::ia>& ia) { return ia.value().create_pz(); }
#endif

//! case: std::get of an event that the evd does not deliver
//! error: T must occur exactly once in alternatives
using delivered = dat::event<dat::stream::dto | dat::stream::connection>;
#ifdef DAT_EXPECT_FAIL
auto never(const delivered& e) { return std::get<dat::connection_request>(e).service(); }
#else
auto maybe(const delivered& e) { return std::get<dat::established>(e).ep(); }
#endif
