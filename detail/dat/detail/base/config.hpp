// Decides whether dat's definitions are compiled in every source file or in one, and whether they have trace points.
//
// By default dat is header-only: each header brings its definitions (`*.ipp`), which are inline. With
// DAT_SEPARATE_COMPILATION in all of its source files a program gets declarations only, and one of the files includes
// <dat/src.hpp>, which has the definitions.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/checked.hpp> // the linker checks DAT_CHECKED, too

// This check precedes all other headers of dat, so that its message is the first one of the compiler.
static_assert(sizeof(void*) == 8, "dat: needs a 64-bit system: it reserves gigabytes of addresses for each ia");

// The linker refuses a program that mixes the two: this name is a thread-local variable in one form and not in the
// other.
#ifdef DAT_SEPARATE_COMPILATION
#define DAT_DECL
extern "C" thread_local char dat_define_DAT_SEPARATE_COMPILATION_in_all_source_files_or_in_none;
#else
#define DAT_DECL inline
extern "C" {
extern char dat_define_DAT_SEPARATE_COMPILATION_in_all_source_files_or_in_none;
// NOLINTNEXTLINE(misc-definitions-in-headers): the linker keeps one of several weak definitions
[[gnu::weak, gnu::used]] char dat_define_DAT_SEPARATE_COMPILATION_in_all_source_files_or_in_none;
}
#endif

// Whether this build has trace points and a log (DAT_TRACE), in the same way: in all source files or in none.
#ifdef DAT_TRACE
extern "C" {
extern thread_local char dat_define_DAT_TRACE_in_all_source_files_or_in_none;
// NOLINTNEXTLINE(misc-definitions-in-headers): the linker keeps one of several weak definitions
[[gnu::weak, gnu::used]] thread_local char dat_define_DAT_TRACE_in_all_source_files_or_in_none;
}
namespace dat { inline namespace v0 { namespace detail {
inline constexpr bool trace_build = true;
}}} // namespace dat::v0::detail
#else
extern "C" {
extern char dat_define_DAT_TRACE_in_all_source_files_or_in_none;
// NOLINTNEXTLINE(misc-definitions-in-headers): the linker keeps one of several weak definitions
[[gnu::weak, gnu::used]] char dat_define_DAT_TRACE_in_all_source_files_or_in_none;
}
namespace dat { inline namespace v0 { namespace detail {
inline constexpr bool trace_build = false;
}}} // namespace dat::v0::detail
#endif
