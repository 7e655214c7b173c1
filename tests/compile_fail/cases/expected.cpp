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
//! error(gcc): deleted function 'dat.*::cookie::cookie\(a_cookie_is_an_integer_an_enumerator_or_a_pointer\)
//! error(clang): \[with a_cookie_is_an_integer_an_enumerator_or_a_pointer = double\] has been explicitly deleted
#ifdef DAT_EXPECT_FAIL
auto number() { return dat::cookie(1.5); }
#else
auto number() { return dat::cookie(15); }
#endif

//! case: DAT_TRY in a function that returns no expected
//! error(gcc): cannot convert .*a_function_that_uses_DAT_TRY_returns_dat_expected
//! error(clang): no viable conversion from returned value of type .*a_function_that_uses_DAT_TRY_returns_dat_expected
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
//! error(gcc): no match for 'operator=' .*operand types are 'dat::v0::lmr<int, [^']*>' and 'dat::v0::lmr<char, [^']*>'
//! error(clang): no known conversion from 'lmr<char, .*>' to '.*lmr<int, .*>'
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
//! error(gcc): 'dat::.*expected<dat::.*ia>'.*unwrap_by_value_or_DAT_TRY.* has no member named 'create_pz'
//! error(clang): no member named 'create_pz' in '.*<dat::ia, .*unwrap_by_value_or_DAT_TRY>'
#ifdef DAT_EXPECT_FAIL
auto unopened(dat::expected<dat::ia>& ia) { return ia.create_pz(); }
#else
auto opened(dat::expected<dat::ia>& ia) { return ia.value().create_pz(); }
#endif

//! case: dat::get of an event that the evd does not deliver
//! error: dat: this event is never of that type
using connected = dat::event<dat::stream::dto | dat::stream::connection>;
#ifdef DAT_EXPECT_FAIL
auto never_one(const connected& e) { return dat::get<dat::connection_request>(e).service(); }
#else
auto perhaps_one(const connected& e) { return dat::get<dat::established>(e).ep(); }
#endif

//! case: dat::get_if of an event that the evd does not deliver
//! error: dat: this event is never of that type
#ifdef DAT_EXPECT_FAIL
auto never_found(dat::event<dat::stream::dto>& e) { return dat::get_if<dat::established>(&e); }
#else
auto perhaps_found(dat::event<dat::stream::dto>& e) { return dat::get_if<dat::recv_done>(&e); }
#endif

//! case: std::get of an event that the evd does not deliver
//! error: T must occur exactly once in alternatives
//! lines: 300
using delivered = dat::event<dat::stream::dto | dat::stream::connection>;
#ifdef DAT_EXPECT_FAIL
auto never(const delivered& e) { return std::get<dat::connection_request>(e).service(); }
#else
auto maybe(const delivered& e) { return std::get<dat::established>(e).ep(); }
#endif
