// What a provider calls, and what it exports (uDAPL 2.0 Appendix B.1). Consumers do not include this header.
// SPDX-License-Identifier: BSL-1.0
#ifndef _DAT_REGISTRY_H_
#define _DAT_REGISTRY_H_

#include <dat2/udat.h>

#ifdef __cplusplus
extern "C" {
#endif

#include <dat2/udat_redirection.h>

extern DAT_RETURN DAT_API dat_registry_add_provider(const DAT_PROVIDER* provider,
                                                    const DAT_PROVIDER_INFO* provider_info);
extern DAT_RETURN DAT_API dat_registry_remove_provider(const DAT_PROVIDER* provider,
                                                       const DAT_PROVIDER_INFO* provider_info);

// A provider that dat.conf names exports two functions. The first adds the provider, the second removes it.
#define DAT_PROVIDER_INIT_FUNC_NAME dat_provider_init
#define DAT_PROVIDER_FINI_FUNC_NAME dat_provider_fini
#define DAT_PROVIDER_INIT_FUNC_STR "dat_provider_init"
#define DAT_PROVIDER_FINI_FUNC_STR "dat_provider_fini"
typedef void(DAT_API* DAT_PROVIDER_INIT_FUNC)(const DAT_PROVIDER_INFO* provider_info, const char* instance_data);
typedef void(DAT_API* DAT_PROVIDER_FINI_FUNC)(const DAT_PROVIDER_INFO* provider_info);

// Whether two adapters share hardware.
typedef enum dat_ha_relationship {
  DAT_HA_FALSE,
  DAT_HA_TRUE,
  DAT_HA_UNKNOWN,
  DAT_HA_CONFLICTING, // the providers disagree
  DAT_HA_EXTENSION_BASE
} DAT_HA_RELATIONSHIP;

extern DAT_RETURN DAT_API dat_registry_providers_related(DAT_NAME_PTR ia1_name, DAT_NAME_PTR ia2_name,
                                                         DAT_HA_RELATIONSHIP* relationship);

#ifdef __cplusplus
}
#endif

#endif
