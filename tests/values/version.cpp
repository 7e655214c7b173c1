// <dat/version.hpp>: the version in the header, the constant, and the version of the build.
// SPDX-License-Identifier: BSL-1.0
#include <dat/version.hpp>
#include <support/catch.hpp>

#include <string>

TEST_CASE("the header and the build have the same version") {
  const std::string header = std::to_string(DAT_VERSION_MAJOR) + "." + std::to_string(DAT_VERSION_MINOR) + "." +
                             std::to_string(DAT_VERSION_PATCH);
  CHECK(header == DAT_TESTS_BUILD_VERSION);
}

TEST_CASE("versions are ordered by their parts") {
  STATIC_REQUIRE(dat::version == dat::version_number{DAT_VERSION_MAJOR, DAT_VERSION_MINOR, DAT_VERSION_PATCH});
  STATIC_REQUIRE(dat::version_number{0, 2, 0} > dat::version_number{0, 1, 9});
  STATIC_REQUIRE_FALSE(dat::version_number{1, 0, 0} < dat::version_number{0, 9, 9});
}
