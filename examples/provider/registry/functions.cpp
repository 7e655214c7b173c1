// The functions in which the registry itself takes part: opening and closing adapters, the list of providers, extended
// operations (uDAPL 2.0 §8.2, §8.3.3).
// SPDX-License-Identifier: BSL-1.0
#include "providers.hpp"

#include <cstdarg>
#include <cstring>
#include <new>
#include <optional>

using namespace dat_registry;

namespace {

providers& all() { return providers::instance(); }

/// Whether a name has 1 to 255 characters.
bool usable(const char* name) noexcept {
  const std::size_t length = name ? ::strnlen(name, DAT_NAME_MAX_LENGTH) : 0;
  return length > 0 && length < DAT_NAME_MAX_LENGTH;
}

/// Runs the body of a function of the C interface, out of which no exception may come.
template <class Body>
DAT_RETURN guarded(Body body) noexcept {
  const inside here;
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return failure(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
  } catch (...) {
    return failure(DAT_INTERNAL_ERROR);
  }
}

/// Calls a function of a provider.
template <class... Parameters, class... Arguments>
DAT_RETURN ask(DAT_RETURN (*function)(Parameters...), Arguments... arguments) {
  const outside provider;
  return function(arguments...);
}

/// A use of a provider, which ends with this object unless an adapter keeps it.
class use {
public:
  use() = default;
  use(const use&) = delete;
  use& operator=(const use&) = delete;
  ~use() {
    if (provider_) all().release(provider_);
  }

  DAT_RETURN of(std::string_view name, const request& wanted) { return all().acquire(name, wanted, provider_); }
  [[nodiscard]] const DAT_PROVIDER& table() const noexcept { return *provider_->table; }
  void keep_for(DAT_IA_HANDLE ia, opened_by how) {
    all().opened(ia, provider_, how);
    provider_.reset();
  }

private:
  provider_ref provider_;
};

DAT_RETURN open(use& provider, DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE* async_evd, DAT_IA_HANDLE* ia) {
  const DAT_PROVIDER& table = provider.table();
  if (!table.ia_open_func || !table.ia_close_func) return failure(DAT_NOT_IMPLEMENTED);
  DAT_IA_HANDLE opened = DAT_HANDLE_NULL;
  const DAT_RETURN result = ask(table.ia_open_func, name, qlen, async_evd, &opened);
  if (result != DAT_SUCCESS) return result;
  if (!opened || !*static_cast<DAT_PROVIDER* const*>(opened)) return failure(DAT_INTERNAL_ERROR);
  try {
    provider.keep_for(opened, opened_by::open);
  } catch (...) {
    (void)ask(table.ia_close_func, opened, DAT_CLOSE_ABRUPT_FLAG);
    throw;
  }
  *ia = opened;
  return DAT_SUCCESS;
}

DAT_RETURN open_query(DAT_NAME_PTR name, DAT_EXTENDED_OP operation, va_list arguments) {
  if (!usable(name)) return failure(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
  use provider;
  if (const DAT_RETURN result = provider.of(name, {DAT_VERSION_MAJOR, DAT_VERSION_MINOR})) return result;
  va_list peek;
  va_copy(peek, arguments);
  DAT_HANDLE* const ia = va_arg(peek, DAT_HANDLE*);
  va_end(peek);
  if (!ia) return failure(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  const auto function = provider.table().handle_extendedop_func;
  if (!function) return failure(DAT_NOT_IMPLEMENTED);
  const DAT_RETURN result = ask(function, name, operation, arguments);
  if (result == DAT_SUCCESS) provider.keep_for(*ia, opened_by::query);
  return result;
}

/// Closes an adapter: `call(table)` calls its provider.
template <class Call>
DAT_RETURN close(DAT_IA_HANDLE ia, opened_by how, Call call) {
  const adapter a = all().closing(ia, how);
  if (!a.table) return failure(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
  const DAT_RETURN result = call(*a.table);
  all().closed(ia, a, result == DAT_SUCCESS);
  return result;
}

DAT_RETURN close(DAT_IA_HANDLE ia, DAT_CLOSE_FLAGS flags) {
  return close(ia, opened_by::open, [&](const DAT_PROVIDER& table) { return ask(table.ia_close_func, ia, flags); });
}

DAT_RETURN close_query(DAT_HANDLE ia, DAT_EXTENDED_OP operation, va_list arguments) {
  return close(ia, opened_by::query,
               [&](const DAT_PROVIDER& table) { return ask(table.handle_extendedop_func, ia, operation, arguments); });
}

/// The relation of an open adapter to another one, as its provider reports it. Empty when the provider reports none.
std::optional<bool> asks(DAT_IA_HANDLE ia, DAT_NAME_PTR other) {
  const DAT_PROVIDER* table = all().table_of(ia);
  DAT_BOOLEAN answer = DAT_FALSE;
  if (!table || !table->ia_ha_related_func || ask(table->ia_ha_related_func, ia, other, &answer) != DAT_SUCCESS)
    return std::nullopt;
  return answer != DAT_FALSE;
}

/// As asks, for a name: of an adapter that is open, or that is opened for the question.
std::optional<bool> asks_by_name(DAT_NAME_PTR name, DAT_NAME_PTR other) {
  if (const DAT_IA_HANDLE ia = all().adapter_of(name)) return asks(ia, other);
  use provider;
  DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
  DAT_IA_HANDLE ia = DAT_HANDLE_NULL;
  if (provider.of(name, {DAT_VERSION_MAJOR, DAT_VERSION_MINOR}) != DAT_SUCCESS ||
      open(provider, name, 8, &async_evd, &ia) != DAT_SUCCESS)
    return std::nullopt;
  const auto answer = asks(ia, other);
  (void)close(ia, DAT_CLOSE_ABRUPT_FLAG);
  return answer;
}

/// Whether dat.conf or a program has given a name to an adapter.
bool known(DAT_NAME_PTR name) {
  use provider;
  if (!usable(name)) return false;
  DAT_COUNT number = 0;
  (void)dat_registry_list_providers(0, &number, nullptr);
  std::vector<DAT_PROVIDER_INFO> infos(static_cast<std::size_t>(number));
  std::vector<DAT_PROVIDER_INFO*> list;
  list.reserve(infos.size());
  for (DAT_PROVIDER_INFO& info : infos) list.push_back(&info);
  if (dat_registry_list_providers(number, &number, list.data()) != DAT_SUCCESS) return false;
  for (const DAT_PROVIDER_INFO& info : infos)
    if (std::string_view(info.ia_name) == name) return true;
  return false;
}

} // namespace

extern "C" {

DAT_RETURN dat_ia_openv(DAT_NAME_PTR ia_name, DAT_COUNT async_evd_min_qlen, DAT_EVD_HANDLE* async_evd_handle,
                        DAT_IA_HANDLE* ia_handle, DAT_UINT32 dat_major, DAT_UINT32 dat_minor,
                        DAT_BOOLEAN thread_safety) {
  if (!usable(ia_name)) return failure(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
  if (!async_evd_handle) return failure(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  if (!ia_handle) return failure(DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
  if (dat_major > UINT16_MAX) return failure(DAT_PROVIDER_NOT_FOUND, DAT_MAJOR_NOT_FOUND);
  if (dat_minor > UINT16_MAX) return failure(DAT_PROVIDER_NOT_FOUND, DAT_MINOR_NOT_FOUND);
  return guarded([&]() -> DAT_RETURN {
    use provider;
    const request wanted{static_cast<std::uint16_t>(dat_major), static_cast<std::uint16_t>(dat_minor),
                         thread_safety != DAT_FALSE};
    if (const DAT_RETURN result = provider.of(ia_name, wanted)) return result;
    return open(provider, ia_name, async_evd_min_qlen, async_evd_handle, ia_handle);
  });
}

// A signal handler may call it (§6.9.1), also where the handler interrupts the registry, which may hold its locks then.
DAT_RETURN dat_ia_close(DAT_IA_HANDLE ia_handle, DAT_CLOSE_FLAGS close_flags) {
  if (inside::is()) return failure(DAT_INSUFFICIENT_RESOURCES);
  return guarded([&] { return close(ia_handle, close_flags); });
}

DAT_RETURN dat_registry_list_providers(DAT_COUNT max_to_return, DAT_COUNT* number_entries,
                                       DAT_PROVIDER_INFO*(dat_provider_list[])) {
  return guarded([&] { return all().list(max_to_return, number_entries, dat_provider_list); });
}

DAT_RETURN dat_registry_add_provider(const DAT_PROVIDER* provider, const DAT_PROVIDER_INFO* provider_info) {
  return guarded([&] { return all().add(provider, provider_info); });
}

DAT_RETURN dat_registry_remove_provider(const DAT_PROVIDER* provider, const DAT_PROVIDER_INFO* provider_info) {
  return guarded([&] { return all().remove(provider, provider_info); });
}

DAT_RETURN dat_registry_providers_related(DAT_NAME_PTR ia1_name, DAT_NAME_PTR ia2_name,
                                          DAT_HA_RELATIONSHIP* relationship) {
  if (!relationship) return failure(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  return guarded([&]() -> DAT_RETURN {
    if (!known(ia1_name)) return failure(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
    if (!known(ia2_name)) return failure(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    *relationship = DAT_HA_TRUE;
    if (std::string_view(ia1_name) == ia2_name) return DAT_SUCCESS;
    const auto first = asks_by_name(ia1_name, ia2_name);
    const auto second = asks_by_name(ia2_name, ia1_name);
    *relationship = !first || !second   ? DAT_HA_UNKNOWN
                    : *first != *second ? DAT_HA_CONFLICTING
                    : *first            ? DAT_HA_TRUE
                                        : DAT_HA_FALSE;
    return DAT_SUCCESS;
  });
}

DAT_RETURN dat_extension_op(DAT_HANDLE handle, DAT_EXTENDED_OP operation, ...) {
  va_list arguments;
  va_start(arguments, operation);
  DAT_RETURN result = DAT_SUCCESS;
  if (operation & DAT_OPEN_EXTENSION_BASE) {
    DAT_NAME_PTR name = va_arg(arguments, DAT_NAME_PTR);
    result = guarded([&] { return open_query(name, operation, arguments); });
  } else if (operation & DAT_CLOSE_EXTENSION_BASE) {
    result = inside::is() ? failure(DAT_INSUFFICIENT_RESOURCES) // as dat_ia_close
                          : guarded([&] { return close_query(handle, operation, arguments); });
  } else {
    const DAT_PROVIDER* table = provider_of(handle);
    result = !table                          ? failure(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1)
             : table->handle_extendedop_func ? table->handle_extendedop_func(handle, operation, arguments)
                                             : failure(DAT_NOT_IMPLEMENTED);
  }
  va_end(arguments);
  return result;
}

/// For providers: the adapter's handle that the provider has issued. Programs have the same one.
DAT_RETURN dats_get_ia_handle(DAT_IA_HANDLE handle, DAT_IA_HANDLE* ia_handle);
DAT_RETURN dats_get_ia_handle(DAT_IA_HANDLE handle, DAT_IA_HANDLE* ia_handle) {
  if (!ia_handle) return failure(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  if (!all().table_of(handle)) return failure(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
  *ia_handle = handle;
  return DAT_SUCCESS;
}

} // extern "C"
