// What libdat2 calls by name: loading, the tables of the names of dat.conf, and the fast query.
// SPDX-License-Identifier: BSL-1.0
#include "entries.hpp"
#include "objects.hpp"

#include <algorithm>
#include <exception>
#include <list>
#include <mutex>
#include <optional>
#include <string_view>

namespace provider {
namespace {

// In the order of the table; each entry has the type of its place.
// clang-format off
constexpr DAT_PROVIDER all_entries = {
    nullptr, nullptr, ia_open, ia_query, ia_close, set_consumer_context, get_consumer_context, get_handle_type,
    cno_create, cno_modify_agent, cno_query, cno_free, cno_wait, cr_query, cr_accept, cr_reject, cr_handoff,
    evd_create, evd_query, evd_modify_cno, evd_enable, evd_disable, evd_wait, evd_resize, evd_post_se, evd_dequeue,
    evd_free, ep_create, ep_query, ep_modify, ep_connect, ep_dup_connect, ep_disconnect, ep_post_send, ep_post_recv,
    ep_post_rdma_read, ep_post_rdma_write, ep_get_status, ep_free, lmr_create, lmr_query, lmr_free, rmr_create,
    rmr_query, rmr_bind, rmr_free, psp_create, psp_query, psp_free, rsp_create, rsp_query, rsp_free, pz_create,
    pz_query, pz_free, psp_create_any, ep_reset, evd_set_unwaitable, evd_clear_unwaitable, lmr_sync_rdma_read,
    lmr_sync_rdma_write, ep_create_with_srq, ep_recv_query, ep_set_watermark, srq_create, srq_free, srq_post_recv,
    srq_query, srq_resize, srq_set_lw, csp_create, csp_query, csp_free, ep_common_connect, rmr_create_for_ep,
    ep_post_send_with_invalidate, ep_post_rdma_read_to_rmr, cno_fd_create, cno_trigger, ia_ha_related,
    handle_extendedop};
// clang-format on

std::mutex entries_mutex;
std::list<entry> entries; // their addresses are in handles: none is erased while the library is loaded

/// The first word of the instance data, which names the adapter.
[[nodiscard]] std::string_view first_word(std::string_view text) noexcept {
  const auto begin = std::min(text.find_first_not_of(" \t"), text.size());
  text.remove_prefix(begin);
  return text.substr(0, text.find_first_of(" \t"));
}

} // namespace

const entry* find_entry(std::string_view name, std::optional<bool> thread_safe) noexcept {
  const std::lock_guard lock(entries_mutex);
  for (const entry& e : entries)
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
    const std::lock_guard lock(entries_mutex);
    const std::string_view adapter = first_word(instance_data ? instance_data : "");
    const auto is = [&](const entry& e) {
      return !e.loaded && e.name == info->ia_name && e.adapter == adapter &&
             e.info.is_thread_safe == info->is_thread_safe;
    };
    const auto found = std::find_if(entries.begin(), entries.end(), is); // it was loaded before
    entry& e = found != entries.end() ? *found : entries.emplace_back();
    e.info = *info;
    e.name = info->ia_name;
    e.adapter = adapter;
    e.table = all_entries;
    // Two lines of dat.conf may differ in this word alone, and libdat2 passes nothing but the name.
    if (info->is_thread_safe) e.table.ia_open_func = ia_open_threadsafe;
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
  const std::lock_guard lock(entries_mutex);
  for (entry& e : entries)
    if (e.loaded && e.name == info->ia_name && e.info.is_thread_safe == info->is_thread_safe) {
      (void)dat_registry_remove_provider(&e.table, info);
      e.loaded = false; // the entry stays, because handles may still point to its table
    }
}
}
