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

// Catch2's own macros compile an expression three times, for the sake of warnings, and a report of the result beside
// each. These compile it once, and main.cpp has the report.
#undef CHECK
#undef CHECK_FALSE
#undef REQUIRE
#undef REQUIRE_FALSE
#define DAT_TESTS_ASSERT(kind, ...)                                                                                    \
  ::support::assertion(::support::assertion_kind::kind, __FILE__, __LINE__, #__VA_ARGS__,                              \
                       ::support::decomposer{} <=> __VA_ARGS__)
#define CHECK(...) DAT_TESTS_ASSERT(check, __VA_ARGS__)
#define CHECK_FALSE(...) DAT_TESTS_ASSERT(check_false, __VA_ARGS__)
#define REQUIRE(...) DAT_TESTS_ASSERT(require, __VA_ARGS__)
#define REQUIRE_FALSE(...) DAT_TESTS_ASSERT(require_false, __VA_ARGS__)

namespace support {

enum class assertion_kind { check, check_false, require, require_false };

/// Reports the result of an assertion to Catch2.
void assertion(assertion_kind kind, const char* file, unsigned line, const char* text,
               const Catch::ITransientExpression& expression);
template <class T>
void assertion(assertion_kind kind, const char* file, unsigned line, const char* text,
               const Catch::ExprLhs<T>& expression) {
  assertion(kind, file, line, text, expression.makeUnaryExpr());
}

/// Takes the left side of an expression. Compilers warn about parentheses beside `<=`, but not beside `<=>`, which has
/// the higher precedence.
struct decomposer {
  template <class T>
  friend Catch::ExprLhs<const T&> operator<=>(decomposer, const T& left) {
    return Catch::ExprLhs<const T&>(left);
  }
  friend Catch::ExprLhs<bool> operator<=>(decomposer, bool left) { return Catch::ExprLhs<bool>(left); }
};

} // namespace support

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
