// The entries of the provider's table, each with the object of its first argument, its name, and what it does. Each
// group of functions has its file. SPDX-License-Identifier: BSL-1.0
#pragma once

#include "calls.hpp"

#include <algorithm>
#include <cstddef>
#include <type_traits>

namespace provider {

/// The name of an entry as a template argument.
struct entry_name {
  template <std::size_t N>
  consteval entry_name(const char (&name)[N]) noexcept {
    std::copy_n(name, N, text);
  }
  char text[40]{};
};

/// Converts to the function of an entry: it calls `Body` on the object of type `T` that its first argument names.
template <class T, entry_name Name, class Body>
struct entry_of {
  template <class... Arguments>
  using function = DAT_RETURN (*)(DAT_HANDLE, Arguments...);
  template <class... Arguments>
  constexpr operator function<Arguments...>() const noexcept { // NOLINT(google-explicit-constructor): it is the entry
    return [](DAT_HANDLE named, Arguments... arguments) -> DAT_RETURN {
      const entry_call<T> object(named, Name.text);
      return object ? word(Body()(object, arguments...)) : object.bad_handle();
    };
  }
};
/// An entry. `body(object, arguments...)` returns a return word or a result of dat.
template <class T, entry_name Name, class Body>
[[nodiscard]] constexpr entry_of<T, Name, Body> entry(Body) noexcept {
  return {};
}
/// The same for a function.
template <class T, entry_name Name, auto Function>
[[nodiscard]] constexpr auto entry() noexcept {
  return entry_of<T, Name, std::integral_constant<decltype(Function), Function>>();
}

/// The entry of a query: `parameters(object)` returns all parameters, or why they cannot be had. `All`: the bits that a
/// mask can have.
template <class T, entry_name Name, auto All, class Parameters>
[[nodiscard]] constexpr auto query(Parameters) noexcept {
  return entry<T, Name>([](auto& object, auto mask, auto* param) -> DAT_RETURN {
    if (!within(mask, All)) return object.bad_argument(2);
    if (!param) return object.bad_argument(3);
    const dat::expected<std::remove_pointer_t<decltype(param)>> answer = Parameters()(*object);
    if (answer) *param = answer.assume_value();
    return word(answer);
  });
}

/// The entry that ends an object: `close(object)` ends the object of dat. `Counter` counts it.
template <class T, entry_name Name, DAT_IA_COUNTERS Counter, class Close>
[[nodiscard]] constexpr auto free(Close) noexcept {
  return entry<T, Name>([](auto& object) {
    return end_object(object, [](T& o) {
      const DAT_RETURN closed = word(Close()(o));
      if (closed == success) o.ia.counters.add(Counter);
      return closed;
    });
  });
}

// Each group of functions fills in its part of the table.
void add_ia_entries(DAT_PROVIDER& table, bool thread_safe) noexcept;
void add_evd_entries(DAT_PROVIDER& table) noexcept;
void add_cno_entries(DAT_PROVIDER& table) noexcept;
void add_connection_entries(DAT_PROVIDER& table) noexcept;
void add_ep_entries(DAT_PROVIDER& table) noexcept;
void add_dto_entries(DAT_PROVIDER& table) noexcept;
void add_memory_entries(DAT_PROVIDER& table) noexcept;
void add_srq_entries(DAT_PROVIDER& table) noexcept;
void add_extensions(DAT_PROVIDER& table) noexcept;

// Entries that others call, too.
DAT_RETURN ia_open(DAT_NAME_PTR name, bool thread_safe, DAT_COUNT qlen, DAT_EVD_HANDLE* async_evd, DAT_IA_HANDLE* ia);
std::remove_pointer_t<DAT_IA_QUERY_FUNC> ia_query;
std::remove_pointer_t<DAT_IA_CLOSE_FUNC> ia_close;

} // namespace provider
