// Whether this is a checked build: the only place where DAT_CHECKED is consulted, apart from includes.
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The linker refuses a program of which some source files define DAT_CHECKED and others do not: this name is a
// thread-local variable in one form and not in the other.
#ifdef DAT_CHECKED
extern "C" {
extern thread_local char dat_define_DAT_CHECKED_in_all_source_files_or_in_none;
// NOLINTNEXTLINE(misc-definitions-in-headers): the linker keeps one of several weak definitions
[[gnu::weak, gnu::used]] thread_local char dat_define_DAT_CHECKED_in_all_source_files_or_in_none;
}
namespace dat { inline namespace v0 { namespace detail {
inline constexpr bool checked_build = true;
}}} // namespace dat::v0::detail
#else
extern "C" {
extern char dat_define_DAT_CHECKED_in_all_source_files_or_in_none;
// NOLINTNEXTLINE(misc-definitions-in-headers): the linker keeps one of several weak definitions
[[gnu::weak, gnu::used]] char dat_define_DAT_CHECKED_in_all_source_files_or_in_none;
}
namespace dat { inline namespace v0 { namespace detail {
inline constexpr bool checked_build = false;
}}} // namespace dat::v0::detail
#endif
