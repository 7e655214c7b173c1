// The version of dat, for the preprocessor and as a constant.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <compare>

// The only macros of the library, besides the opt-in <dat/try.hpp>. A program that supports several versions of dat
// needs them for the preprocessor.
/// The first number of the version.
#define DAT_VERSION_MAJOR 0
/// The second number: before 1.0, versions that differ in it may not be compatible.
#define DAT_VERSION_MINOR 2
/// The third number.
#define DAT_VERSION_PATCH 0

namespace dat { inline namespace v0 {

/// A semantic version: versions of the same `major_part` (below 1: of the same `minor_part`) are source compatible.
struct version_number {
  int major_part;
  int minor_part;
  int patch_part;

  // NOLINTNEXTLINE(modernize-use-nullptr): no member is a pointer
  friend constexpr auto operator<=>(const version_number&, const version_number&) = default;
};

/// The version of these headers.
inline constexpr version_number version{DAT_VERSION_MAJOR, DAT_VERSION_MINOR, DAT_VERSION_PATCH};

}} // namespace dat::v0
