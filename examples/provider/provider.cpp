// What libdat2 calls by name: loading, the tables of the names of dat.conf, and the fast query.
// SPDX-License-Identifier: BSL-1.0
#include "entries.hpp"

#include <algorithm>
#include <exception>
#include <list>
#include <mutex>
#include <optional>
#include <string_view>

namespace provider {
namespace {

std::mutex lines_mutex;
std::list<conf_line> lines; // their addresses are in handles: none is erased while the library is loaded

/// The first word of the instance data, which names the adapter.
[[nodiscard]] std::string_view first_word(std::string_view text) noexcept {
  const auto begin = std::min(text.find_first_not_of(" \t"), text.size());
  text.remove_prefix(begin);
  return text.substr(0, text.find_first_of(" \t"));
}

} // namespace

const conf_line* find_entry(std::string_view name, std::optional<bool> thread_safe) noexcept {
  const std::lock_guard lock(lines_mutex);
  for (const conf_line& e : lines)
    if (e.loaded && e.name == name && (!thread_safe || *thread_safe == (e.info.is_thread_safe == DAT_TRUE))) return &e;
  return nullptr;
}

} // namespace provider

extern "C" {

/// Called when a name of dat.conf that leads to this library is opened first. Reports the table to libdat2; without
/// memory the name stays unknown.
[[gnu::visibility("default")]] void dat_provider_init(const DAT_PROVIDER_INFO* info, const char* instance_data) {
  using namespace provider;
  const section here;
  try {
    const std::lock_guard lock(lines_mutex);
    const std::string_view adapter = first_word(instance_data ? instance_data : "");
    const auto is = [&](const conf_line& e) {
      return !e.loaded && e.name == info->ia_name && e.adapter == adapter &&
             e.info.is_thread_safe == info->is_thread_safe;
    };
    const auto found = std::find_if(lines.begin(), lines.end(), is); // it was loaded before
    conf_line& e = found != lines.end() ? *found : lines.emplace_back();
    e.info = *info;
    e.name = info->ia_name;
    e.adapter = adapter;
    // Two lines of dat.conf may differ in this word alone, and libdat2 passes nothing but the name.
    add_ia_entries(e.table, info->is_thread_safe != DAT_FALSE);
    for (const auto add : {add_evd_entries, add_cno_entries, add_connection_entries, add_ep_entries, add_dto_entries,
                           add_memory_entries, add_srq_entries, add_extensions})
      add(e.table);
    e.table.device_name = e.name.c_str();
    e.table.extension = &e;
    e.loaded = dat_registry_add_provider(&e.table, info) == DAT_SUCCESS;
  } catch (const std::exception&) { // no memory
  }
}

/// Called when the last ia of a name was closed.
[[gnu::visibility("default")]] void dat_provider_fini(const DAT_PROVIDER_INFO* info) {
  using namespace provider;
  const section here;
  const std::lock_guard lock(lines_mutex);
  for (conf_line& e : lines)
    if (e.loaded && e.name == info->ia_name && e.info.is_thread_safe == info->is_thread_safe) {
      (void)dat_registry_remove_provider(&e.table, info);
      e.loaded = false; // the entry stays, because handles may still point to its table
    }
}
}
