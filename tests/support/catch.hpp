// Catch2, version 2 or 3, under one set of names; the tests include this file instead of Catch2's own.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#if __has_include(<catch2/catch_test_macros.hpp>)
#define DAT_TESTS_CATCH2 3

#include <catch2/catch_approx.hpp>
#include <catch2/catch_message.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/catch_tostring.hpp>
#include <catch2/catch_version_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#else
#define DAT_TESTS_CATCH2 2

// Each assertion then costs about a third less to compile. An exception inside an assertion still fails the test case,
// but the report does not name the assertion.
#define CATCH_CONFIG_FAST_COMPILE
#include <catch2/catch.hpp>

#endif

#include <support/record.hpp>

// SKIP("reason") ends a test case that the device at hand cannot run. The test case counts neither as passed nor as
// failed, and it shows no rule in the conformance ledger. Catch2 has it from 3.3 on; for earlier versions a warning
// with this prefix in the XML report replaces it, and the macro must be in the body of the test case itself.
#ifndef SKIP
#define SKIP(reason)                                                                                                   \
  do {                                                                                                                 \
    WARN("skipped: " << (reason));                                                                                     \
    SUCCEED("skipped"); /* with -w NoAssertions a case without an assertion fails */                                   \
    return;                                                                                                            \
  } while (false)
#endif

namespace support {

// Matchers on text, for CHECK_THAT.
#if DAT_TESTS_CATCH2 == 3
inline auto contains_text(const std::string& part) { return Catch::Matchers::ContainsSubstring(part); }
#else
inline auto contains_text(const std::string& part) { return Catch::Matchers::Contains(part); }
#endif
inline auto starts_with_text(const std::string& part) { return Catch::Matchers::StartsWith(part); }
inline auto ends_with_text(const std::string& part) { return Catch::Matchers::EndsWith(part); }
inline auto matches_text(const std::string& regex) { return Catch::Matchers::Matches(regex); }

} // namespace support
