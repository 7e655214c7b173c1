// What libdat2 calls by name: loading, the tables of the names of dat.conf, and the fast query.
// SPDX-License-Identifier: BSL-1.0
#include "entries.hpp"
#include "objects.hpp"

#include <exception>
#include <list>
#include <mutex>
#include <string_view>

namespace provider {

void fill(DAT_PROVIDER& table) noexcept {
  table.ia_open_func = ia_open;
  table.ia_query_func = ia_query;
  table.ia_close_func = ia_close;
  table.set_consumer_context_func = set_consumer_context;
  table.get_consumer_context_func = get_consumer_context;
  table.get_handle_type_func = get_handle_type;
  table.cno_create_func = cno_create;
  table.cno_modify_agent_func = cno_modify_agent;
  table.cno_query_func = cno_query;
  table.cno_free_func = cno_free;
  table.cno_wait_func = cno_wait;
  table.cr_query_func = cr_query;
  table.cr_accept_func = cr_accept;
  table.cr_reject_func = cr_reject;
  table.cr_handoff_func = cr_handoff;
  table.evd_create_func = evd_create;
  table.evd_query_func = evd_query;
  table.evd_modify_cno_func = evd_modify_cno;
  table.evd_enable_func = evd_enable;
  table.evd_disable_func = evd_disable;
  table.evd_wait_func = evd_wait;
  table.evd_resize_func = evd_resize;
  table.evd_post_se_func = evd_post_se;
  table.evd_dequeue_func = evd_dequeue;
  table.evd_free_func = evd_free;
  table.ep_create_func = ep_create;
  table.ep_query_func = ep_query;
  table.ep_modify_func = ep_modify;
  table.ep_connect_func = ep_connect;
  table.ep_dup_connect_func = ep_dup_connect;
  table.ep_disconnect_func = ep_disconnect;
  table.ep_post_send_func = ep_post_send;
  table.ep_post_recv_func = ep_post_recv;
  table.ep_post_rdma_read_func = ep_post_rdma_read;
  table.ep_post_rdma_write_func = ep_post_rdma_write;
  table.ep_get_status_func = ep_get_status;
  table.ep_free_func = ep_free;
  table.lmr_create_func = lmr_create;
  table.lmr_query_func = lmr_query;
  table.lmr_free_func = lmr_free;
  table.rmr_create_func = rmr_create;
  table.rmr_query_func = rmr_query;
  table.rmr_bind_func = rmr_bind;
  table.rmr_free_func = rmr_free;
  table.psp_create_func = psp_create;
  table.psp_query_func = psp_query;
  table.psp_free_func = psp_free;
  table.rsp_create_func = rsp_create;
  table.rsp_query_func = rsp_query;
  table.rsp_free_func = rsp_free;
  table.pz_create_func = pz_create;
  table.pz_query_func = pz_query;
  table.pz_free_func = pz_free;
  table.psp_create_any_func = psp_create_any;
  table.ep_reset_func = ep_reset;
  table.evd_set_unwaitable_func = evd_set_unwaitable;
  table.evd_clear_unwaitable_func = evd_clear_unwaitable;
  table.lmr_sync_rdma_read_func = lmr_sync_rdma_read;
  table.lmr_sync_rdma_write_func = lmr_sync_rdma_write;
  table.ep_create_with_srq_func = ep_create_with_srq;
  table.ep_recv_query_func = ep_recv_query;
  table.ep_set_watermark_func = ep_set_watermark;
  table.srq_create_func = srq_create;
  table.srq_free_func = srq_free;
  table.srq_post_recv_func = srq_post_recv;
  table.srq_query_func = srq_query;
  table.srq_resize_func = srq_resize;
  table.srq_set_lw_func = srq_set_lw;
  table.csp_create_func = csp_create;
  table.csp_query_func = csp_query;
  table.csp_free_func = csp_free;
  table.ep_common_connect_func = ep_common_connect;
  table.rmr_create_for_ep_func = rmr_create_for_ep;
  table.ep_post_send_with_invalidate_func = ep_post_send_with_invalidate;
  table.ep_post_rdma_read_to_rmr_func = ep_post_rdma_read_to_rmr;
  table.cno_fd_create_func = cno_fd_create;
  table.cno_trigger_func = cno_trigger;
  table.ia_ha_related_func = ia_ha_related;
  table.handle_extendedop_func = handle_extendedop;
}

namespace {

std::mutex entries_mutex;
std::list<entry> entries; // their addresses are in handles: none is erased while the library is loaded

/// The first word of the instance data, which names the adapter.
[[nodiscard]] std::string_view first_word(std::string_view text) noexcept {
  const auto begin = std::min(text.find_first_not_of(" \t"), text.size());
  text.remove_prefix(begin);
  return text.substr(0, text.find_first_of(" \t"));
}

} // namespace

const entry* find_entry(std::string_view name) noexcept {
  const std::lock_guard lock(entries_mutex);
  for (const entry& e : entries)
    if (e.loaded && e.name == name) return &e;
  return nullptr;
}

} // namespace provider

extern "C" {

/// Called when a name of dat.conf that leads to this library is opened first. Reports the table to libdat2; without
/// memory the name stays unknown.
[[gnu::visibility("default")]] void dat_provider_init(const DAT_PROVIDER_INFO* info, const char* instance_data) {
  using namespace provider;
  try {
    const std::lock_guard lock(entries_mutex);
    entry& e = entries.emplace_back();
    e.info = *info;
    e.name = info->ia_name;
    e.adapter = first_word(instance_data ? instance_data : "");
    fill(e.table);
    e.table.device_name = e.name.c_str();
    e.table.extension = &e;
    if (dat_registry_add_provider(&e.table, info) != DAT_SUCCESS) entries.pop_back();
  } catch (const std::exception&) { // no memory
  }
}

/// Called when the last ia of a name was closed.
[[gnu::visibility("default")]] void dat_provider_fini(const DAT_PROVIDER_INFO* info) {
  using namespace provider;
  const std::lock_guard lock(entries_mutex);
  for (entry& e : entries)
    if (e.loaded && e.name == info->ia_name) {
      (void)dat_registry_remove_provider(&e.table, info);
      e.loaded = false; // the entry stays, because handles may still point to its table
    }
}
}
