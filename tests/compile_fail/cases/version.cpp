// <dat/version.hpp>: the version cannot be mistaken for something else.
// SPDX-License-Identifier: BSL-1.0
#include <dat/version.hpp>

//! case: assigning to the version of the headers
//! error(gcc): assignment of member '.*minor_part' in read-only object
//! error(clang): cannot assign to variable 'version' with const-qualified type
#ifdef DAT_EXPECT_FAIL
void assign() { dat::version.minor_part = 7; }
#else
void assign() {
  auto copy = dat::version;
  copy.minor_part = 7;
}
#endif

//! case: comparing a version with a number
//! error(gcc): no match for 'operator<'
//! error(clang): invalid operands to binary expression
#ifdef DAT_EXPECT_FAIL
static_assert(dat::version < 7);
#else
static_assert(dat::version < dat::version_number{7, 0, 0});
#endif
