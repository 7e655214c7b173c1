// A provider for the tests of the registry: it keeps a log of what the registry calls, and misbehaves as its instance
// data says. SPDX-License-Identifier: BSL-1.0
#include "stub_provider.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct stub_log log_of_calls;

struct stub_log* stub_log(void) {
  return &log_of_calls;
}

// One provider for each name: the table, and the data of its instance.
struct stub {
  DAT_PROVIDER table;
  char name[DAT_NAME_MAX_LENGTH];
  char manner[64];
  DAT_PROVIDER_INFO info;
  int registered;
};
static struct stub stubs[16];

struct stub_adapter {
  const DAT_PROVIDER* table;
  struct stub* of;
};

static DAT_RETURN ia_open(DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE* async_evd, DAT_IA_HANDLE* ia) {
  (void)qlen;
  for (int i = 0; i < 16; ++i) {
    if (strcmp(stubs[i].name, name) != 0 || !stubs[i].registered) continue;
    if (strcmp(stubs[i].manner, "refuse") == 0) return DAT_CLASS_ERROR | DAT_INSUFFICIENT_RESOURCES;
    struct stub_adapter* a = calloc(1, sizeof *a);
    if (!a) abort();
    a->table = &stubs[i].table;
    a->of = &stubs[i];
    if (strcmp(stubs[i].manner, "no handle") == 0) {
      free(a);
      return DAT_SUCCESS;
    }
    *async_evd = DAT_HANDLE_NULL;
    *ia = a;
    __atomic_add_fetch(&log_of_calls.opens, 1, __ATOMIC_SEQ_CST);
    return DAT_SUCCESS;
  }
  return DAT_CLASS_ERROR | DAT_INTERNAL_ERROR;
}

static DAT_RETURN ia_close(DAT_IA_HANDLE ia, DAT_CLOSE_FLAGS flags) {
  struct stub_adapter* a = ia;
  // Refuses like a provider whose adapter has objects left.
  if (flags == DAT_CLOSE_GRACEFUL_FLAG && strcmp(a->of->manner, "busy") == 0)
    return DAT_CLASS_ERROR | DAT_INVALID_STATE | DAT_INVALID_STATE_IA_IN_USE;
  // A provider is in use until its close has returned. OFA's registry does not accept the null pointer.
  if (strcmp(a->of->manner, "for OFA") != 0) {
    DAT_RETURN removed = dat_registry_remove_provider(&a->of->table, NULL);
    if ((removed & DAT_TYPE_MASK) != DAT_PROVIDER_IN_USE) __atomic_add_fetch(&log_of_calls.faults, 1, __ATOMIC_SEQ_CST);
  }
  free(a);
  __atomic_add_fetch(&log_of_calls.closes, 1, __ATOMIC_SEQ_CST);
  return DAT_SUCCESS;
}

// OFA's registry queries the extensions of each adapter that it opens. By these it finds the entry of an adapter that
// it closes.
static DAT_RETURN ia_query(DAT_IA_HANDLE ia, DAT_EVD_HANDLE* async_evd, DAT_IA_ATTR_MASK mask, DAT_IA_ATTR* attr,
                           DAT_PROVIDER_ATTR_MASK provider_mask, DAT_PROVIDER_ATTR* provider_attr) {
  const struct stub_adapter* a = ia;
  (void)mask, (void)provider_mask;
  if (async_evd) *async_evd = DAT_HANDLE_NULL;
  if (attr) memset(attr, 0, sizeof *attr);
  if (provider_attr) {
    memset(provider_attr, 0, sizeof *provider_attr);
    provider_attr->dapl_version_major = a->of->info.dapl_version_major;
    provider_attr->dapl_version_minor = a->of->info.dapl_version_minor;
    provider_attr->is_thread_safe = a->of->info.is_thread_safe;
  }
  return DAT_SUCCESS;
}

static DAT_RETURN ia_ha_related(DAT_IA_HANDLE ia, DAT_NAME_PTR other, DAT_BOOLEAN* answer) {
  struct stub_adapter* a = ia;
  (void)other;
  if (strcmp(a->of->manner, "related") != 0 && strcmp(a->of->manner, "unrelated") != 0)
    return DAT_CLASS_ERROR | DAT_NOT_IMPLEMENTED;
  *answer = strcmp(a->of->manner, "related") == 0 ? DAT_TRUE : DAT_FALSE;
  return DAT_SUCCESS;
}

static DAT_RETURN extended(DAT_HANDLE handle, DAT_EXTENDED_OP operation, va_list arguments) {
  if (operation == DAT_OPEN_EXTENSION_BASE) {
    DAT_HANDLE* ia = va_arg(arguments, DAT_HANDLE*);
    DAT_IA_ATTR_MASK mask = va_arg(arguments, DAT_IA_ATTR_MASK);
    snprintf(log_of_calls.queried, sizeof log_of_calls.queried, "%s %llu", (char*)handle, (unsigned long long)mask);
    *ia = &log_of_calls;
    return DAT_SUCCESS;
  }
  if (operation == DAT_CLOSE_EXTENSION_BASE) return handle == &log_of_calls ? DAT_SUCCESS : DAT_CLASS_ERROR | DAT_ABORT;
  return (DAT_RETURN)va_arg(arguments, int);
}

void dat_provider_init(const DAT_PROVIDER_INFO* info, const char* instance_data) {
  __atomic_add_fetch(&log_of_calls.inits, 1, __ATOMIC_SEQ_CST);
  if (log_of_calls.inits <= log_of_calls.finis) __atomic_add_fetch(&log_of_calls.faults, 1, __ATOMIC_SEQ_CST);
  if (strcmp(instance_data, "idle") == 0) return;
  if (strncmp(instance_data, "opens ", 6) == 0) { // another provider, before it adds itself
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
    DAT_IA_HANDLE other = DAT_HANDLE_NULL;
    char name[32];
    snprintf(name, sizeof name, "%s", instance_data + 6);
    const DAT_RETURN opened = dat_ia_openv(name, 8, &async_evd, &other, 2, 0, DAT_TRUE);
    if (opened != DAT_SUCCESS || dat_ia_close(other, DAT_CLOSE_ABRUPT_FLAG) != DAT_SUCCESS)
      __atomic_add_fetch(&log_of_calls.faults, 1, __ATOMIC_SEQ_CST);
  }
  struct stub* s = NULL;
  for (int i = 15; i >= 0; --i)
    if (!stubs[i].registered) s = &stubs[i];
  if (!s) abort();
  memset(s, 0, sizeof *s);
  snprintf(s->name, sizeof s->name, "%s", info->ia_name);
  snprintf(s->manner, sizeof s->manner, "%s", instance_data);
  s->info = *info;
  s->table.device_name = s->name;
  s->table.ia_open_func = ia_open;
  s->table.ia_close_func = ia_close;
  s->table.ia_query_func = ia_query;
  s->table.ia_ha_related_func = ia_ha_related;
  s->table.handle_extendedop_func = extended;
  DAT_PROVIDER_INFO mine = *info;
  if (strcmp(instance_data, "other name") == 0) snprintf(mine.ia_name, sizeof mine.ia_name, "stub-of-another-name");
  log_of_calls.added = dat_registry_add_provider(&s->table, &mine);
  s->registered = log_of_calls.added == DAT_SUCCESS;
}

void dat_provider_fini(const DAT_PROVIDER_INFO* info) {
  __atomic_add_fetch(&log_of_calls.finis, 1, __ATOMIC_SEQ_CST);
  for (int i = 0; i < 16; ++i) {
    if (!stubs[i].registered || strcmp(stubs[i].name, info->ia_name) != 0) continue;
    stubs[i].registered = 0;
    if (strcmp(stubs[i].manner, "stays") == 0) continue;
    log_of_calls.removed = dat_registry_remove_provider(&stubs[i].table, info);
  }
}

void dapl_extensions(void) {}
