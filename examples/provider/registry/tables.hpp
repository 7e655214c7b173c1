// Which providers there are, as the calls on the data path see it: whether a handle points to an object of one of them.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat2/dat_registry.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace dat_registry {

/// The word of an error.
constexpr DAT_RETURN failure(DAT_RETURN_TYPE type, DAT_RETURN_SUBTYPE subtype = DAT_NO_SUBTYPE) noexcept {
  return DAT_CLASS_ERROR | static_cast<DAT_RETURN>(type) | static_cast<DAT_RETURN>(subtype);
}

/// The tables of the providers that are registered. Looking one up takes no lock, and no search for the two that were
/// looked up last and have all functions. Null is none of them.
class provider_tables {
public:
  void insert(const DAT_PROVIDER* table);
  void erase(const DAT_PROVIDER* table) noexcept;

  [[nodiscard]] bool has(const DAT_PROVIDER* table) noexcept { return is_recent(table) || search(table); }
  /// Whether the table is one of the two that were found last. These have all functions.
  [[nodiscard]] bool is_recent(const DAT_PROVIDER* table) const noexcept {
    return table == recent_[0].load(std::memory_order_relaxed) || table == recent_[1].load(std::memory_order_relaxed);
  }

private:
  struct node {
    std::atomic<const DAT_PROVIDER*> table;
    node* next; // a node is never freed: searches take no lock
  };
  [[nodiscard]] bool search(const DAT_PROVIDER* table) noexcept;

  std::atomic<node*> first_{nullptr};
  static constexpr DAT_PROVIDER none{}; // no handle points to it
  std::atomic<const DAT_PROVIDER*> recent_[2]{&none, &none};
};

[[gnu::visibility("hidden")]] extern provider_tables tables;

/// The table that a handle points to, which may be that of no provider; null for what points nowhere. The handle must
/// be null or point to memory that can be read.
[[nodiscard]] inline const DAT_PROVIDER* table_at(DAT_HANDLE handle) noexcept {
  constexpr std::uintptr_t page = 4096; // DAT_EVD_ASYNC_EXISTS and other small numbers point nowhere
  const auto address = reinterpret_cast<std::uintptr_t>(handle);
  if (address < page) return nullptr;
  const DAT_PROVIDER* table;
  std::memcpy(&table, handle, sizeof table); // what is no handle may have any address
  return table;
}
/// The table of the provider that issued a handle; null for what no registered provider has issued.
[[nodiscard]] inline const DAT_PROVIDER* provider_of(DAT_HANDLE handle) noexcept {
  const DAT_PROVIDER* const table = table_at(handle);
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

/// As `call`, with a search for the provider.
template <auto Function, class... Arguments>
[[nodiscard, gnu::cold, gnu::noinline]] DAT_RETURN search_and_call(DAT_RETURN_SUBTYPE bad, DAT_HANDLE handle,
                                                                   Arguments... arguments) {
  return call_in<Function>(provider_of(handle), bad, handle, arguments...);
}

/// Calls a function of the provider that issued a handle. A handle of no provider is the error `bad`. The usual call is
/// a jump, which leaves the arguments where they are.
template <auto Function, class... Arguments>
[[nodiscard, gnu::always_inline]] inline DAT_RETURN call(DAT_RETURN_SUBTYPE bad, DAT_HANDLE handle,
                                                         Arguments... arguments) {
  const DAT_PROVIDER* const table = table_at(handle);
  if (tables.is_recent(table)) [[likely]]            // which null never is
    return (table->*Function)(handle, arguments...); // NOLINT(clang-analyzer-core.NullDereference)
  return search_and_call<Function>(bad, handle, arguments...);
}

} // namespace dat_registry
