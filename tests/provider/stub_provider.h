// The data of the stub provider that the tests of the registry use.
// SPDX-License-Identifier: BSL-1.0
#ifndef STUB_PROVIDER_H
#define STUB_PROVIDER_H

#include <dat2/udat.h>

#include <dat2/dat_registry.h>

struct stub_log {
  int inits;
  int finis;
  int opens;
  int closes;
  int faults;         // calls of the registry that were out of order
  DAT_RETURN added;   // the result of the last dat_registry_add_provider
  DAT_RETURN removed; // the result of the last dat_registry_remove_provider
  char queried[300];  // the arguments of the last dat_ib_open_query
};

struct stub_log* stub_log(void);
void dat_provider_init(const DAT_PROVIDER_INFO* info, const char* instance_data);
void dat_provider_fini(const DAT_PROVIDER_INFO* info);
void dapl_extensions(void);

#endif
