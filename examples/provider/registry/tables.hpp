// Which providers there are, as the calls on the data path see it: whether a handle points to an object of one of them.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat2/dat_registry.h>

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace dat_registry {

/// The word of an error.
constexpr DAT_RETURN failure(DAT_RETURN_TYPE type, DAT_RETURN_SUBTYPE subtype = DAT_NO_SUBTYPE) noexcept {
  return DAT_CLASS_ERROR | static_cast<DAT_RETURN>(type) | static_cast<DAT_RETURN>(subtype);
}

/// The tables of the providers that are registered. Looking one up takes no lock: two loads for the one that was looked
/// up before.
class provider_tables {
public:
  void insert(const DAT_PROVIDER* table);
  void erase(const DAT_PROVIDER* table) noexcept;

  [[nodiscard]] bool has(const DAT_PROVIDER* table) noexcept {
    return table == recent_.load(std::memory_order_relaxed) || search(table);
  }

private:
  struct node {
    std::atomic<const DAT_PROVIDER*> table;
    node* next; // a node is never freed: searches take no lock
  };
  [[nodiscard]] bool search(const DAT_PROVIDER* table) noexcept;

  std::atomic<node*> first_{nullptr};
  std::atomic<const DAT_PROVIDER*> recent_{nullptr};
};

extern provider_tables tables;

/// The table of the provider that issued a handle; null for what no registered provider has issued. The handle must be
/// null or point to memory that can be read.
[[nodiscard]] inline const DAT_PROVIDER* provider_of(DAT_HANDLE handle) noexcept {
  constexpr std::uintptr_t page = 4096; // DAT_EVD_ASYNC_EXISTS and other small numbers point nowhere
  const auto address = reinterpret_cast<std::uintptr_t>(handle);
  if (address < page || address % alignof(const DAT_PROVIDER*) != 0) return nullptr;
  const DAT_PROVIDER* table = *static_cast<const DAT_PROVIDER* const*>(handle);
  return table && tables.has(table) ? table : nullptr;
}

/// Calls a function of a provider's table, which a provider may have left empty.
template <auto Function, class Handle, class... Arguments>
[[nodiscard]] DAT_RETURN call_in(const DAT_PROVIDER* table, DAT_RETURN_SUBTYPE bad, Handle handle,
                                 Arguments... arguments) {
  if (!table) return failure(DAT_INVALID_HANDLE, bad);
  const auto function = table->*Function;
  if (!function) return failure(DAT_NOT_IMPLEMENTED);
  return function(handle, arguments...);
}

/// Calls a function of the provider that issued a handle. A handle of no provider is the error `bad`.
template <auto Function, class... Arguments>
[[nodiscard]] DAT_RETURN call(DAT_RETURN_SUBTYPE bad, DAT_HANDLE handle, Arguments... arguments) {
  return call_in<Function>(provider_of(handle), bad, handle, arguments...);
}

} // namespace dat_registry
