// The registry, libdat2.so.2: loading and counting providers, names of dat.conf, wrong arguments, threads.
// SPDX-License-Identifier: BSL-1.0
#include "calls.h"
#include "check.h"
#include "stub_provider.h"

#include <dat2/dat_ib_extensions.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

DAT_RETURN dats_get_ia_handle(DAT_IA_HANDLE handle, DAT_IA_HANDLE* ia_handle);

static const char* library; // the path of the stub provider
static struct stub_log* stub;
static char conf_path[64];

// Writes the file that DAT_OVERRIDE names. %s in the text is the path of the stub provider.
static void conf(const char* text) {
  FILE* file = fopen(conf_path, "w");
  if (!file) abort();
  for (const char* at = text; *at; ++at) {
    if (at[0] == '%' && at[1] == 's') {
      fputs(library, file);
      ++at;
    } else {
      fputc(*at, file);
    }
  }
  fclose(file);
}

static DAT_RETURN open_named(const char* name, DAT_UINT32 major, DAT_UINT32 minor, DAT_BOOLEAN safe,
                             DAT_IA_HANDLE* ia) {
  DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
  *ia = DAT_HANDLE_NULL;
  return dat_ia_openv((char*)(uintptr_t)name, 8, &async_evd, ia, major, minor, safe);
}

static DAT_RETURN open_stub(const char* name, DAT_IA_HANDLE* ia) { return open_named(name, 2, 0, DAT_TRUE, ia); }

static const char stubs[] = "stub u2.0 threadsafe default %s stub.1.0 \"plain\" \"\"\n"
                            "busy u2.0 threadsafe default %s stub.1.0 \"busy\" \"\"\n"
                            "stays u2.0 threadsafe default %s stub.1.0 \"stays\" \"\"\n"
                            "idle u2.0 threadsafe default %s stub.1.0 \"idle\" \"\"\n"
                            "refuse u2.0 threadsafe default %s stub.1.0 \"refuse\" \"\"\n"
                            "none u2.0 threadsafe default %s stub.1.0 \"no handle\" \"\"\n"
                            "other u2.0 threadsafe default %s stub.1.0 \"other name\" \"\"\n"
                            "yes u2.0 threadsafe default %s stub.1.0 \"related\" \"\"\n"
                            "yes2 u2.0 threadsafe default %s stub.1.0 \"related\" \"\"\n"
                            "no u2.0 threadsafe default %s stub.1.0 \"unrelated\" \"\"\n"
                            "no2 u2.0 threadsafe default %s stub.1.0 \"unrelated\" \"\"\n"
                            "nested u2.0 threadsafe default %s stub.1.0 \"opens stub\" \"\"\n"
                            "missing u2.0 threadsafe default /nonexistent/libprovider.so stub.1.0 \"\" \"\"\n"
                            "odd u2.0 threadsafe default libc.so.6 stub.1.0 \"\" \"\"\n"
                            "old u1.2 nonthreadsafe default %s stub.1.0 \"plain\" \"\"\n"
                            "mixed u2.0 nonthreadsafe default %s stub.1.0 \"plain\" \"\"\n"
                            "mixed u2.3 nonthreadsafe default %s stub.1.0 \"plain\" \"\"\n"
                            "kernel k2.0 threadsafe default %s stub.1.0 \"plain\" \"\"\n"
                            "second u2.0 threadsafe nondefault %s stub.1.0 \"plain\" \"\"\n"
                            "this line has no meaning\n";
enum { visible = 16 };

static void loads_and_counts(void) {
  DAT_IA_HANDLE ia, again, known;
  DAT_IA_HANDLE* const none = NULL;
  stub->inits = stub->finis = 0;
  SUCCEEDS(open_stub("stub", &ia));
  CHECK(stub->inits == 1 && stub->finis == 0 && stub->added == DAT_SUCCESS);
  SUCCEEDS(open_stub("stub", &again));
  CHECK(ia != again && stub->inits == 1);
  SUCCEEDS(dats_get_ia_handle(ia, &known));
  CHECK(known == ia);
  RETURNS(dats_get_ia_handle(ia, none), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  SUCCEEDS(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
  CHECK(stub->finis == 0);
  RETURNS(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
  RETURNS(dats_get_ia_handle(ia, &known), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
  SUCCEEDS(dat_ia_close(again, DAT_CLOSE_ABRUPT_FLAG));
  CHECK(stub->finis == 1 && stub->removed == DAT_SUCCESS);
  SUCCEEDS(open_stub("stub", &ia));
  CHECK(stub->inits == 2);
  SUCCEEDS(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
  CHECK(stub->finis == 2);

  // A provider that refuses to close stays open, and can be closed in another way.
  SUCCEEDS(open_stub("busy", &ia));
  RETURNS(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG), DAT_INVALID_STATE, DAT_INVALID_STATE_IA_IN_USE);
  SUCCEEDS(dats_get_ia_handle(ia, &known));
  SUCCEEDS(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));

  // A provider that its fini does not deregister is removed, too.
  for (int i = 0; i < 2; ++i) {
    SUCCEEDS(open_stub("stays", &ia));
    SUCCEEDS(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
  }
  CHECK(stub->inits == 5 && stub->finis == 5);

  // A library that opens another provider while it is loaded is counted as any other.
  SUCCEEDS(open_stub("nested", &ia));
  CHECK(stub->inits == 7 && stub->finis == 6);
  SUCCEEDS(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
  CHECK(stub->finis == 7);
  CHECK(stub->faults == 0 && stub->opens == stub->closes);
}

static void failures_leave_nothing(void) {
  DAT_IA_HANDLE ia;
  const int inits = stub->inits - stub->finis;
  RETURNS(open_stub("idle", &ia), DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED);
  RETURNS(open_stub("other", &ia), DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED);
  CHECK(stub->added == (DAT_CLASS_ERROR | DAT_INVALID_PARAMETER | DAT_INVALID_ARG2));
  RETURNS(open_stub("missing", &ia), DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED);
  RETURNS(open_stub("odd", &ia), DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED);
  CHECK(stub->inits - stub->finis == inits + 2); // idle and other never became providers
  stub->finis = stub->inits;
  RETURNS(open_stub("refuse", &ia), DAT_INSUFFICIENT_RESOURCES, DAT_NO_SUBTYPE);
  RETURNS(open_stub("none", &ia), DAT_INTERNAL_ERROR, DAT_NO_SUBTYPE);
  CHECK(stub->inits == stub->finis);
}

static void matches_versions(void) {
  DAT_IA_HANDLE ia;
  char name[300];
  RETURNS(open_stub("absent", &ia), DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED);
  RETURNS(open_stub("second", &ia), DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED);
  RETURNS(open_stub("kernel", &ia), DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED);
  RETURNS(open_named("old", 2, 0, DAT_FALSE, &ia), DAT_PROVIDER_NOT_FOUND, DAT_MAJOR_NOT_FOUND);
  RETURNS(open_named("old", 70000, 0, DAT_FALSE, &ia), DAT_PROVIDER_NOT_FOUND, DAT_MAJOR_NOT_FOUND);
  RETURNS(open_named("stub", 2, 1, DAT_TRUE, &ia), DAT_PROVIDER_NOT_FOUND, DAT_MINOR_NOT_FOUND);
  RETURNS(open_named("stub", 2, 70000, DAT_TRUE, &ia), DAT_PROVIDER_NOT_FOUND, DAT_MINOR_NOT_FOUND);
  RETURNS(open_named("stub", 2, 0, DAT_FALSE, &ia), DAT_PROVIDER_NOT_FOUND, DAT_THREAD_SAFETY_NOT_FOUND);
  SUCCEEDS(open_named("mixed", 2, 1, DAT_FALSE, &ia)); // found by the entry with u2.3
  SUCCEEDS(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
  SUCCEEDS(open_named("old", 1, 2, DAT_FALSE, &ia));
  SUCCEEDS(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));

  DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
  memset(name, 'n', sizeof name);
  name[DAT_NAME_MAX_LENGTH] = 0;
  RETURNS(dat_ia_openv(NULL, 8, &evd, &ia, 2, 0, DAT_TRUE), DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
  RETURNS(open_stub("", &ia), DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
  RETURNS(open_stub(name, &ia), DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
  name[DAT_NAME_MAX_LENGTH - 1] = 0;
  RETURNS(open_stub(name, &ia), DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED);
  RETURNS(dat_ia_openv(name, 8, NULL, &ia, 2, 0, DAT_TRUE), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_ia_openv(name, 8, &evd, NULL, 2, 0, DAT_TRUE), DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
}

static void lists(void) {
  DAT_PROVIDER_INFO infos[visible + 1];
  DAT_PROVIDER_INFO* list[visible + 1];
  DAT_COUNT number = -1;
  for (int i = 0; i <= visible; ++i) list[i] = &infos[i];
  memset(infos, 0x55, sizeof infos);
  RETURNS(dat_registry_list_providers(0, &number, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
  const DAT_COUNT all = number;
  CHECK(all >= visible); // more if the host has a dat.conf
  RETURNS(dat_registry_list_providers(all, NULL, list), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_registry_list_providers(all, &number, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_registry_list_providers(-1, &number, list), DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
  CHECK(number == all);
  DAT_PROVIDER_INFO** room = calloc((size_t)all + 1, sizeof *room);
  DAT_PROVIDER_INFO* storage = calloc((size_t)all + 1, sizeof *storage);
  if (!room || !storage) abort();
  for (int i = 0; i < all; ++i) room[i] = &storage[i];
  SUCCEEDS(dat_registry_list_providers(all + 1, &number, room)); // room[all] is null, and is not read
  CHECK(number == all && strcmp(storage[0].ia_name, "stub") == 0 && storage[0].is_thread_safe == DAT_TRUE);
  CHECK(storage[0].dapl_version_major == 2 && storage[0].dapl_version_minor == 0 && storage[all].ia_name[0] == 0);
  room[1] = NULL;
  RETURNS(dat_registry_list_providers(all, &number, room), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  free(room);
  free(storage);
}

static void relations(void) {
  struct {
    const char *first, *second;
    DAT_HA_RELATIONSHIP wanted;
  } const table[] = {{"yes", "yes2", DAT_HA_TRUE},      {"no", "no2", DAT_HA_FALSE},
                     {"yes", "no", DAT_HA_CONFLICTING}, {"no", "yes", DAT_HA_CONFLICTING},
                     {"stub", "yes", DAT_HA_UNKNOWN},   {"yes", "missing", DAT_HA_UNKNOWN},
                     {"stub", "stub", DAT_HA_TRUE}};
  DAT_HA_RELATIONSHIP is = DAT_HA_EXTENSION_BASE;
  DAT_IA_HANDLE ia;
  const int inits = stub->inits - stub->finis;
  for (int open = 0; open < 2; ++open) {
    if (open) SUCCEEDS(open_stub("yes", &ia));
    for (size_t i = 0; i < sizeof table / sizeof *table; ++i) {
      SUCCEEDS(
          dat_registry_providers_related((char*)(uintptr_t)table[i].first, (char*)(uintptr_t)table[i].second, &is));
      CHECK(is == table[i].wanted);
    }
  }
  SUCCEEDS(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
  CHECK(stub->inits - stub->finis == inits);
  char yes[] = "yes", absent[] = "absent";
  RETURNS(dat_registry_providers_related(absent, yes, &is), DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
  RETURNS(dat_registry_providers_related(yes, absent, &is), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_registry_providers_related(NULL, yes, &is), DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
  RETURNS(dat_registry_providers_related(yes, NULL, &is), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_registry_providers_related(yes, yes, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
}

static void extended_operations(void) {
  DAT_IA_HANDLE ia, query = DAT_HANDLE_NULL;
  DAT_IA_ATTR attributes;
  char name[] = "stub";
  SUCCEEDS(open_stub("stub", &ia));
  RETURNS(dat_extension_op(ia, 5, (int)(DAT_CLASS_ERROR | DAT_QUEUE_FULL)), DAT_QUEUE_FULL, DAT_NO_SUBTYPE);
  RETURNS(dat_extension_op(DAT_HANDLE_NULL, 5, 0), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1);
  SUCCEEDS(dat_ib_open_query(name, &query, 77, &attributes, 0, NULL));
  CHECK(query == (DAT_HANDLE)stub && strcmp(stub->queried, "stub 77") == 0);
  SUCCEEDS(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
  CHECK(stub->inits == stub->finis + 1); // the query uses the provider
  RETURNS(dat_ia_close(query, DAT_CLOSE_ABRUPT_FLAG), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
  RETURNS(dat_ib_close_query(&ia), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
  SUCCEEDS(dat_ib_close_query(query));
  CHECK(stub->inits == stub->finis);
  RETURNS(dat_ib_close_query(query), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
  RETURNS(dat_ib_open_query(NULL, &query, 0, NULL, 0, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
  RETURNS(dat_ib_open_query(name, NULL, 0, NULL, 0, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_ib_open_query("absent", &query, 0, NULL, 0, NULL), DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED);
  CHECK(stub->inits == stub->finis);
}

// ---- a provider in this program ------------------------------------------------------------------------------

// Functions that return their place in the table.
// clang-format off
#define ENTRY(n) static DAT_RETURN entry_##n(void) { return n; }
#define NAME(n) entry_##n,
#define TEN(f, t) f(t##0) f(t##1) f(t##2) f(t##3) f(t##4) f(t##5) f(t##6) f(t##7) f(t##8) f(t##9)
#define EACH(f) TEN(f, ) TEN(f, 1) TEN(f, 2) TEN(f, 3) TEN(f, 4) TEN(f, 5) TEN(f, 6) TEN(f, 7) TEN(f, 8)
EACH(ENTRY)
static DAT_RETURN (*const entries[])(void) = {EACH(NAME)};
// clang-format on

struct own_handle {
  const DAT_PROVIDER* table;
};
static DAT_PROVIDER own_table;
static struct own_handle own_ia = {&own_table};

static DAT_RETURN own_open(DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE* evd, DAT_IA_HANDLE* ia) {
  (void)name, (void)qlen, (void)evd;
  *ia = &own_ia;
  return DAT_SUCCESS;
}
static DAT_RETURN own_close(DAT_IA_HANDLE ia, DAT_CLOSE_FLAGS flags) {
  (void)ia, (void)flags;
  return DAT_SUCCESS;
}

static void each_call_reaches_its_function(void) {
  const DAT_CONTEXT cookie = {0};
  const DAT_REGION_DESCRIPTION region = {0};
  const DAT_OS_WAIT_PROXY_AGENT agent = DAT_OS_WAIT_PROXY_AGENT_NULL;
  const size_t words = sizeof own_table / sizeof(void*);
  DAT_PROVIDER_INFO info = {.ia_name = "own", .dapl_version_major = 2, .is_thread_safe = DAT_TRUE};
  DAT_IA_HANDLE ia;
  memcpy((void**)&own_table + 2, entries + 2, (words - 2) * sizeof(void*));
  own_table.ia_open_func = own_open;
  own_table.ia_close_func = own_close;

  RETURNS(dat_registry_add_provider(NULL, &info), DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
  RETURNS(dat_registry_add_provider(&own_table, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  DAT_PROVIDER_INFO bad = info;
  bad.ia_name[0] = 0;
  RETURNS(dat_registry_add_provider(&own_table, &bad), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  memset(bad.ia_name, 'n', sizeof bad.ia_name);
  RETURNS(dat_registry_add_provider(&own_table, &bad), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  SUCCEEDS(dat_registry_add_provider(&own_table, &info));
  RETURNS(dat_registry_add_provider(&own_table, &info), DAT_PROVIDER_ALREADY_REGISTERED, DAT_NO_SUBTYPE);
  SUCCEEDS(open_stub("own", &ia));
  RETURNS(dat_registry_remove_provider(&own_table, &info), DAT_PROVIDER_IN_USE, DAT_NO_SUBTYPE);

  DAT_HANDLE h = ia;
#define REACHES(name, subtype, ...)                                                                                    \
  CHECK(dat_##name(__VA_ARGS__) == offsetof(DAT_PROVIDER, name##_func) / sizeof(void*));
  CALLS(REACHES)
  CHECK(dat_extension_op(h, 3) == offsetof(DAT_PROVIDER, handle_extendedop_func) / sizeof(void*));

  // Handles that belong to no provider, and functions that a provider lacks.
  static _Alignas(16) char memory[64];
  void* points_to_itself[1] = {points_to_itself};
  DAT_HANDLE const bad_handles[] = {NULL,   DAT_EVD_ASYNC_EXISTS, DAT_EVD_OUT_OF_SCOPE,
                                    memory, memory + 1,           points_to_itself};
#define REFUSES(name, subtype, ...) RETURNS(dat_##name(__VA_ARGS__), DAT_INVALID_HANDLE, subtype);
  for (size_t i = 0; i < sizeof bad_handles / sizeof *bad_handles; ++i) {
    h = bad_handles[i];
    CALLS(REFUSES)
    RETURNS(dat_extension_op(h, 3), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1);
    RETURNS(dat_ia_close(h, DAT_CLOSE_ABRUPT_FLAG), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
  }
  SUCCEEDS(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
  SUCCEEDS(dat_registry_remove_provider(&own_table, &info));
  memset((void**)&own_table + 2, 0, (words - 2) * sizeof(void*));
  own_table.ia_open_func = own_open;
  own_table.ia_close_func = own_close;
  SUCCEEDS(dat_registry_add_provider(&own_table, &info));
  SUCCEEDS(open_stub("own", &ia));
  h = ia;
#define LACKS(name, subtype, ...) RETURNS(dat_##name(__VA_ARGS__), DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);
  CALLS(LACKS)
  RETURNS(dat_extension_op(h, 3), DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);

  SUCCEEDS(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
  own_table.ia_open_func = NULL;
  RETURNS(open_stub("own", &ia), DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);
  SUCCEEDS(dat_registry_remove_provider(&own_table, NULL));
  RETURNS(dat_registry_remove_provider(&own_table, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
  RETURNS(dat_registry_remove_provider(NULL, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
  RETURNS(open_stub("own", &ia), DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED);
  h = &own_ia;
  CALLS(REFUSES) // the provider has been removed
}

static void has_room_for_many(void) {
  static DAT_PROVIDER tables[100];
  DAT_PROVIDER_INFO info = {.dapl_version_major = 2, .is_thread_safe = DAT_TRUE};
  DAT_COUNT before = 0, after = 0;
  (void)dat_registry_list_providers(0, &before, NULL);
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 100; ++i) {
      snprintf(info.ia_name, sizeof info.ia_name, "many%d", i);
      SUCCEEDS(dat_registry_add_provider(&tables[i], &info));
    }
    (void)dat_registry_list_providers(0, &after, NULL);
    CHECK(after == before + 100);
    for (int i = 0; i < 100; ++i) SUCCEEDS(dat_registry_remove_provider(&tables[i], NULL));
  }
}

static void texts(void) {
  const char *major = NULL, *minor = NULL;
  SUCCEEDS(dat_strerror(DAT_CLASS_ERROR | DAT_INVALID_PARAMETER | DAT_INVALID_ARG3, &major, &minor));
  CHECK(strcmp(major, "DAT_INVALID_PARAMETER") == 0 && strcmp(minor, "DAT_INVALID_ARG3") == 0);
  SUCCEEDS(dat_strerror(DAT_CLASS_ERROR | DAT_PROVIDER_NOT_FOUND | DAT_THREAD_SAFETY_NOT_FOUND, NULL, &minor));
  CHECK(strcmp(minor, "DAT_THREAD_SAFETY_NOT_FOUND") == 0);
  SUCCEEDS(dat_strerror(DAT_SUCCESS, &major, NULL));
  CHECK(strcmp(major, "DAT_SUCCESS") == 0);
  SUCCEEDS(dat_strerror(DAT_CLASS_WARNING, &major, &minor));
  const DAT_RETURN bad[] = {0xC0000000, DAT_CLASS_ERROR | 0x00180000, DAT_CLASS_ERROR | DAT_INVALID_PARAMETER | 0xFFFF,
                            DAT_CLASS_ERROR | (DAT_THREAD_SAFETY_NOT_FOUND + 1)};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i)
    RETURNS(dat_strerror(bad[i], &major, &minor), DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
}

// ---- interruptions ----------------------------------------------------------------------------------------------

static DAT_IA_HANDLE spare, spare_query; // what is closed in a call
static int interruptions, refusals;

// Stands for a signal handler in the registry, which holds its locks while it writes a line about a provider.
static ssize_t interrupts(void* unused, const char* text, size_t length) {
  (void)unused, (void)text;
  const DAT_RETURN wanted = DAT_CLASS_ERROR | DAT_INSUFFICIENT_RESOURCES;
  ++interruptions;
  refusals += dat_ia_close(spare, DAT_CLOSE_ABRUPT_FLAG) == wanted && dat_ib_close_query(spare_query) == wanted;
  return (ssize_t)length;
}

static DAT_RETURN closes_spare(DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE* evd, DAT_IA_HANDLE* ia) {
  SUCCEEDS(dat_ia_close(spare, DAT_CLOSE_ABRUPT_FLAG));
  SUCCEEDS(dat_ib_close_query(spare_query));
  return own_open(name, qlen, evd, ia);
}

static void closes_during_calls(void) {
  const char* const names[] = {"other", "idle", "absent"}; // added under a wrong name, not added, unknown
  DAT_PROVIDER_INFO info = {.ia_name = "own", .dapl_version_major = 2, .is_thread_safe = DAT_TRUE};
  DAT_IA_HANDLE ia, known;
  FILE* const errors = stderr;
  SUCCEEDS(open_stub("stub", &spare));
  SUCCEEDS(dat_ib_open_query("stub", &spare_query, 0, NULL, 0, NULL));
  setenv("DAT_DBG_LEVEL", "1", 1);
  stderr = fopencookie(NULL, "w", (cookie_io_functions_t){.write = interrupts});
  if (!stderr) abort();
  setbuf(stderr, NULL);
  alarm(120); // ends the program when a close waits for a lock of its own thread
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    interruptions = refusals = 0;
    RETURNS(open_stub(names[i], &ia), DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED);
    CHECK(interruptions > 0 && refusals == interruptions);
  }
  fclose(stderr);
  stderr = errors;
  unsetenv("DAT_DBG_LEVEL");

  // The handles stay usable. A provider that the registry calls may close adapters of others.
  SUCCEEDS(dats_get_ia_handle(spare, &known));
  own_table.ia_open_func = closes_spare;
  SUCCEEDS(dat_registry_add_provider(&own_table, &info));
  SUCCEEDS(open_stub("own", &ia));
  RETURNS(dat_ia_close(spare, DAT_CLOSE_ABRUPT_FLAG), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
  SUCCEEDS(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
  SUCCEEDS(dat_registry_remove_provider(&own_table, NULL));
  alarm(0);
  stub->finis = stub->inits; // some of these never became providers
}

// ---- threads -----------------------------------------------------------------------------------------------

static void* opens_and_closes(void* argument) {
  const char* const names[] = {"stub", "stays", "busy"};
  for (int i = 0; i < 20; ++i) {
    DAT_IA_HANDLE ia;
    DAT_COUNT number;
    SUCCEEDS(open_stub(names[(i + (int)(intptr_t)argument) % 3], &ia));
    RETURNS(dat_evd_create(ia, 1, NULL, DAT_EVD_DTO_FLAG, NULL), DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);
    (void)dat_registry_list_providers(0, &number, NULL);
    CHECK(number >= visible);
    SUCCEEDS(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
  }
  return NULL;
}

static void* adds_and_removes(void* argument) {
  (void)argument;
  static DAT_PROVIDER table;
  DAT_PROVIDER_INFO info = {.ia_name = "thread", .dapl_version_major = 2, .is_thread_safe = DAT_TRUE};
  for (int i = 0; i < 200; ++i) {
    SUCCEEDS(dat_registry_add_provider(&table, &info));
    SUCCEEDS(dat_registry_remove_provider(&table, &info));
  }
  return NULL;
}

static void many_threads(void) {
  pthread_t threads[9];
  for (intptr_t i = 0; i < 9; ++i)
    if (pthread_create(&threads[i], NULL, i == 8 ? adds_and_removes : opens_and_closes, (void*)i) != 0) abort();
  for (int i = 0; i < 9; ++i) pthread_join(threads[i], NULL);
  CHECK(stub->inits == stub->finis && stub->opens == stub->closes && stub->faults == 0);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: registry_test PROVIDER\n");
    return 2;
  }
  library = argv[1];
  void* handle = dlopen(library, RTLD_NOW);
  struct stub_log* (*get)(void) = NULL;
  if (handle) *(void**)&get = dlsym(handle, "stub_log");
  snprintf(conf_path, sizeof conf_path, "/tmp/registry_test.XXXXXX");
  const int fd = get ? mkstemp(conf_path) : -1;
  if (fd < 0) {
    fprintf(stderr, "registry_test: %s\n", get ? conf_path : dlerror());
    return 2;
  }
  close(fd);
  stub = get();
  setenv("DAT_OVERRIDE", conf_path, 1);
  conf(stubs);

  loads_and_counts();
  failures_leave_nothing();
  matches_versions();
  lists();
  relations();
  extended_operations();
  each_call_reaches_its_function();
  has_room_for_many();
  texts();
  closes_during_calls();
  many_threads();

  conf("stub u2.0 threadsafe default %s stub.1.0 \"refuse\" \"\"\n");
  DAT_IA_HANDLE ia;
  RETURNS(open_stub("stub", &ia), DAT_INSUFFICIENT_RESOURCES, DAT_NO_SUBTYPE); // the file has changed
  unlink(conf_path);
  return checked();
}
