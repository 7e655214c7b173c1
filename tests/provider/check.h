// Assertions for the tests that are C programs.
// SPDX-License-Identifier: BSL-1.0
#ifndef CHECK_H
#define CHECK_H

#include <dat2/udat.h>

#include <stdio.h>

// One pair of counters for all files of a program.
__attribute__((weak)) int checks_passed;
__attribute__((weak)) int checks_failed;

// The return word as text: "DAT_INVALID_HANDLE DAT_INVALID_HANDLE_EP".
static inline const char* word(DAT_RETURN value) {
  static _Thread_local char text[2][128];
  static _Thread_local int next;
  const char *type = "?", *subtype = "?";
  char* to = text[next = !next];
  if (dat_strerror(value, &type, &subtype) != DAT_SUCCESS)
    snprintf(to, sizeof text[0], "0x%08x", value);
  else
    snprintf(to, sizeof text[0], "%s %s", type, subtype);
  return to;
}

static inline void check_word(const char* file, int line, const char* what, DAT_RETURN is, DAT_RETURN wanted) {
  if (is == wanted) {
    __atomic_add_fetch(&checks_passed, 1, __ATOMIC_RELAXED);
    return;
  }
  __atomic_add_fetch(&checks_failed, 1, __ATOMIC_RELAXED);
  const char* got = word(is);
  printf("%s:%d: %s\n    is %s, not %s\n", file, line, what, got, word(wanted));
}

static inline void check_that(const char* file, int line, const char* what, int holds) {
  if (holds) {
    __atomic_add_fetch(&checks_passed, 1, __ATOMIC_RELAXED);
    return;
  }
  __atomic_add_fetch(&checks_failed, 1, __ATOMIC_RELAXED);
  printf("%s:%d: %s does not hold\n", file, line, what);
}

// The call returns exactly this word: a type, a subtype and, unless it is 0, the class "error".
#define RETURNS(call, type, subtype)                                                                                   \
  check_word(__FILE__, __LINE__, #call, (call),                                                                        \
             (DAT_RETURN)(type) ? DAT_CLASS_ERROR | (DAT_RETURN)(type) | (DAT_RETURN)(subtype) : (DAT_RETURN)0)
#define SUCCEEDS(call) RETURNS(call, DAT_SUCCESS, DAT_NO_SUBTYPE)
#define CHECK(condition) check_that(__FILE__, __LINE__, #condition, !!(condition))

// Prints the counts, and returns the exit code of the program.
static inline int checked(void) {
  printf("%d passed, %d failed\n", checks_passed, checks_failed);
  return checks_failed != 0 || checks_passed == 0;
}

#endif
