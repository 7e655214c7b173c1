// Each entry with a freed handle, and with one of another type.
// SPDX-License-Identifier: BSL-1.0
#include "calls.h"
#include "provider_test.h"

// Every function with a handle that was freed, one of another type, and one inside the memory of handles.
void bad_handles(void) {
  const DAT_CONTEXT cookie = cookie_of(0);
  const DAT_OS_WAIT_PROXY_AGENT agent = {NULL, NULL};
  DAT_REGION_DESCRIPTION region;
  DAT_PZ_HANDLE freed;
  memset(&region, 0, sizeof region);
  SUCCEEDS(dat_pz_create(a.ia, &freed));
  SUCCEEDS(dat_pz_free(freed));
#define ROW(name, subtype, ...) RETURNS(dat_##name(__VA_ARGS__), DAT_INVALID_HANDLE, subtype);
  {
    DAT_HANDLE const h = freed;
    CALLS(ROW)
  }
#undef ROW
  // A handle of another type names an object that most functions cannot use.
#define ROW(name, subtype, ...)                                                                                        \
  if (subtype != DAT_INVALID_HANDLE1 && subtype != (int)DAT_INVALID_HANDLE_PSP)                                        \
    RETURNS(dat_##name(__VA_ARGS__), DAT_INVALID_HANDLE, subtype);
  {
    DAT_HANDLE const h = psp;
    CALLS(ROW)
  }
#undef ROW
  RETURNS(dat_evd_free(a.ep), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1);
}
