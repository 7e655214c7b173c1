// The functions that only pass a call on to the provider of the handle (uDAPL 2.0 §8.1.3).
// SPDX-License-Identifier: BSL-1.0
#include "providers.hpp"

using dat_registry::call;

namespace {

/// Calls a function of the provider that has opened an adapter.
template <auto Function, class... Arguments>
[[nodiscard]] DAT_RETURN call_ia(DAT_IA_HANDLE ia, Arguments... arguments) {
  const DAT_PROVIDER* table = dat_registry::providers::instance().table_of(ia);
  return dat_registry::call_in<Function>(table, DAT_INVALID_HANDLE_IA, ia, arguments...);
}

} // namespace

extern "C" {

// Interface adapter

DAT_RETURN dat_ia_query(DAT_IA_HANDLE ia_handle, DAT_EVD_HANDLE* async_evd_handle, DAT_IA_ATTR_MASK ia_attr_mask,
                        DAT_IA_ATTR* ia_attr, DAT_PROVIDER_ATTR_MASK provider_attr_mask,
                        DAT_PROVIDER_ATTR* provider_attr) {
  return call_ia<&DAT_PROVIDER::ia_query_func>(ia_handle, async_evd_handle, ia_attr_mask, ia_attr, provider_attr_mask,
                                               provider_attr);
}

// Consumer context and type of a handle

DAT_RETURN dat_set_consumer_context(DAT_HANDLE dat_handle, DAT_CONTEXT context) {
  return call<&DAT_PROVIDER::set_consumer_context_func>(DAT_INVALID_HANDLE1, dat_handle, context);
}
DAT_RETURN dat_get_consumer_context(DAT_HANDLE dat_handle, DAT_CONTEXT* context) {
  return call<&DAT_PROVIDER::get_consumer_context_func>(DAT_INVALID_HANDLE1, dat_handle, context);
}
DAT_RETURN dat_get_handle_type(DAT_HANDLE dat_handle, DAT_HANDLE_TYPE* handle_type) {
  return call<&DAT_PROVIDER::get_handle_type_func>(DAT_INVALID_HANDLE1, dat_handle, handle_type);
}

// Consumer notification objects

DAT_RETURN dat_cno_create(DAT_IA_HANDLE ia_handle, DAT_OS_WAIT_PROXY_AGENT agent, DAT_CNO_HANDLE* cno_handle) {
  return call_ia<&DAT_PROVIDER::cno_create_func>(ia_handle, agent, cno_handle);
}
DAT_RETURN dat_cno_fd_create(DAT_IA_HANDLE ia_handle, DAT_FD* file_descriptor, DAT_CNO_HANDLE* cno_handle) {
  return call_ia<&DAT_PROVIDER::cno_fd_create_func>(ia_handle, file_descriptor, cno_handle);
}
DAT_RETURN dat_cno_trigger(DAT_CNO_HANDLE cno_handle, DAT_EVD_HANDLE* evd_handle) {
  return call<&DAT_PROVIDER::cno_trigger_func>(DAT_INVALID_HANDLE_CNO, cno_handle, evd_handle);
}
DAT_RETURN dat_cno_modify_agent(DAT_CNO_HANDLE cno_handle, DAT_OS_WAIT_PROXY_AGENT agent) {
  return call<&DAT_PROVIDER::cno_modify_agent_func>(DAT_INVALID_HANDLE_CNO, cno_handle, agent);
}
DAT_RETURN dat_cno_query(DAT_CNO_HANDLE cno_handle, DAT_CNO_PARAM_MASK mask, DAT_CNO_PARAM* param) {
  return call<&DAT_PROVIDER::cno_query_func>(DAT_INVALID_HANDLE_CNO, cno_handle, mask, param);
}
DAT_RETURN dat_cno_free(DAT_CNO_HANDLE cno_handle) {
  return call<&DAT_PROVIDER::cno_free_func>(DAT_INVALID_HANDLE_CNO, cno_handle);
}
DAT_RETURN dat_cno_wait(DAT_CNO_HANDLE cno_handle, DAT_TIMEOUT timeout, DAT_EVD_HANDLE* evd_handle) {
  return call<&DAT_PROVIDER::cno_wait_func>(DAT_INVALID_HANDLE_CNO, cno_handle, timeout, evd_handle);
}

// Event dispatchers

DAT_RETURN dat_evd_resize(DAT_EVD_HANDLE evd_handle, DAT_COUNT evd_min_qlen) {
  return call<&DAT_PROVIDER::evd_resize_func>(DAT_INVALID_HANDLE1, evd_handle, evd_min_qlen);
}
DAT_RETURN dat_evd_post_se(DAT_EVD_HANDLE evd_handle, const DAT_EVENT* event) {
  return call<&DAT_PROVIDER::evd_post_se_func>(DAT_INVALID_HANDLE1, evd_handle, event);
}
DAT_RETURN dat_evd_dequeue(DAT_EVD_HANDLE evd_handle, DAT_EVENT* event) {
  return call<&DAT_PROVIDER::evd_dequeue_func>(DAT_INVALID_HANDLE1, evd_handle, event);
}
DAT_RETURN dat_evd_query(DAT_EVD_HANDLE evd_handle, DAT_EVD_PARAM_MASK mask, DAT_EVD_PARAM* param) {
  return call<&DAT_PROVIDER::evd_query_func>(DAT_INVALID_HANDLE1, evd_handle, mask, param);
}
DAT_RETURN dat_evd_free(DAT_EVD_HANDLE evd_handle) {
  return call<&DAT_PROVIDER::evd_free_func>(DAT_INVALID_HANDLE1, evd_handle);
}
DAT_RETURN dat_evd_create(DAT_IA_HANDLE ia_handle, DAT_COUNT evd_min_qlen, DAT_CNO_HANDLE cno_handle,
                          DAT_EVD_FLAGS evd_flags, DAT_EVD_HANDLE* evd_handle) {
  return call_ia<&DAT_PROVIDER::evd_create_func>(ia_handle, evd_min_qlen, cno_handle, evd_flags, evd_handle);
}
DAT_RETURN dat_evd_modify_cno(DAT_EVD_HANDLE evd_handle, DAT_CNO_HANDLE cno_handle) {
  return call<&DAT_PROVIDER::evd_modify_cno_func>(DAT_INVALID_HANDLE1, evd_handle, cno_handle);
}
DAT_RETURN dat_evd_enable(DAT_EVD_HANDLE evd_handle) {
  return call<&DAT_PROVIDER::evd_enable_func>(DAT_INVALID_HANDLE1, evd_handle);
}
DAT_RETURN dat_evd_disable(DAT_EVD_HANDLE evd_handle) {
  return call<&DAT_PROVIDER::evd_disable_func>(DAT_INVALID_HANDLE1, evd_handle);
}
DAT_RETURN dat_evd_set_unwaitable(DAT_EVD_HANDLE evd_handle) {
  return call<&DAT_PROVIDER::evd_set_unwaitable_func>(DAT_INVALID_HANDLE1, evd_handle);
}
DAT_RETURN dat_evd_clear_unwaitable(DAT_EVD_HANDLE evd_handle) {
  return call<&DAT_PROVIDER::evd_clear_unwaitable_func>(DAT_INVALID_HANDLE1, evd_handle);
}
DAT_RETURN dat_evd_wait(DAT_EVD_HANDLE evd_handle, DAT_TIMEOUT timeout, DAT_COUNT threshold, DAT_EVENT* event,
                        DAT_COUNT* n_more) {
  return call<&DAT_PROVIDER::evd_wait_func>(DAT_INVALID_HANDLE1, evd_handle, timeout, threshold, event, n_more);
}

// Endpoints

DAT_RETURN dat_ep_create(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle, DAT_EVD_HANDLE recv_evd_handle,
                         DAT_EVD_HANDLE request_evd_handle, DAT_EVD_HANDLE connect_evd_handle,
                         const DAT_EP_ATTR* ep_attributes, DAT_EP_HANDLE* ep_handle) {
  return call_ia<&DAT_PROVIDER::ep_create_func>(ia_handle, pz_handle, recv_evd_handle, request_evd_handle,
                                                connect_evd_handle, ep_attributes, ep_handle);
}
DAT_RETURN dat_ep_create_with_srq(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle, DAT_EVD_HANDLE recv_evd_handle,
                                  DAT_EVD_HANDLE request_evd_handle, DAT_EVD_HANDLE connect_evd_handle,
                                  DAT_SRQ_HANDLE srq_handle, const DAT_EP_ATTR* ep_attributes,
                                  DAT_EP_HANDLE* ep_handle) {
  return call_ia<&DAT_PROVIDER::ep_create_with_srq_func>(ia_handle, pz_handle, recv_evd_handle, request_evd_handle,
                                                         connect_evd_handle, srq_handle, ep_attributes, ep_handle);
}
DAT_RETURN dat_ep_query(DAT_EP_HANDLE ep_handle, DAT_EP_PARAM_MASK mask, DAT_EP_PARAM* param) {
  return call<&DAT_PROVIDER::ep_query_func>(DAT_INVALID_HANDLE_EP, ep_handle, mask, param);
}
DAT_RETURN dat_ep_modify(DAT_EP_HANDLE ep_handle, DAT_EP_PARAM_MASK mask, const DAT_EP_PARAM* param) {
  return call<&DAT_PROVIDER::ep_modify_func>(DAT_INVALID_HANDLE_EP, ep_handle, mask, param);
}
DAT_RETURN dat_ep_connect(DAT_EP_HANDLE ep_handle, DAT_IA_ADDRESS_PTR remote_ia_address, DAT_CONN_QUAL remote_conn_qual,
                          DAT_TIMEOUT timeout, DAT_COUNT private_data_size, DAT_PVOID private_data,
                          DAT_QOS quality_of_service, DAT_CONNECT_FLAGS connect_flags) {
  return call<&DAT_PROVIDER::ep_connect_func>(DAT_INVALID_HANDLE_EP, ep_handle, remote_ia_address, remote_conn_qual,
                                              timeout, private_data_size, private_data, quality_of_service,
                                              connect_flags);
}
DAT_RETURN dat_ep_common_connect(DAT_EP_HANDLE ep_handle, DAT_IA_ADDRESS_PTR remote_ia_address, DAT_TIMEOUT timeout,
                                 DAT_COUNT private_data_size, DAT_PVOID private_data) {
  return call<&DAT_PROVIDER::ep_common_connect_func>(DAT_INVALID_HANDLE_EP, ep_handle, remote_ia_address, timeout,
                                                     private_data_size, private_data);
}
DAT_RETURN dat_ep_dup_connect(DAT_EP_HANDLE ep_handle, DAT_EP_HANDLE dup_ep_handle, DAT_TIMEOUT timeout,
                              DAT_COUNT private_data_size, DAT_PVOID private_data, DAT_QOS quality_of_service) {
  return call<&DAT_PROVIDER::ep_dup_connect_func>(DAT_INVALID_HANDLE_EP, ep_handle, dup_ep_handle, timeout,
                                                  private_data_size, private_data, quality_of_service);
}
DAT_RETURN dat_ep_disconnect(DAT_EP_HANDLE ep_handle, DAT_CLOSE_FLAGS close_flags) {
  return call<&DAT_PROVIDER::ep_disconnect_func>(DAT_INVALID_HANDLE_EP, ep_handle, close_flags);
}
DAT_RETURN dat_ep_post_send(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET* local_iov,
                            DAT_DTO_COOKIE user_cookie, DAT_COMPLETION_FLAGS completion_flags) {
  return call<&DAT_PROVIDER::ep_post_send_func>(DAT_INVALID_HANDLE_EP, ep_handle, num_segments, local_iov, user_cookie,
                                                completion_flags);
}
DAT_RETURN dat_ep_post_send_with_invalidate(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET* local_iov,
                                            DAT_DTO_COOKIE user_cookie, DAT_COMPLETION_FLAGS completion_flags,
                                            DAT_BOOLEAN invalidate_flag, DAT_RMR_CONTEXT rmr_context) {
  return call<&DAT_PROVIDER::ep_post_send_with_invalidate_func>(DAT_INVALID_HANDLE_EP, ep_handle, num_segments,
                                                                local_iov, user_cookie, completion_flags,
                                                                invalidate_flag, rmr_context);
}
DAT_RETURN dat_ep_post_recv(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET* local_iov,
                            DAT_DTO_COOKIE user_cookie, DAT_COMPLETION_FLAGS completion_flags) {
  return call<&DAT_PROVIDER::ep_post_recv_func>(DAT_INVALID_HANDLE_EP, ep_handle, num_segments, local_iov, user_cookie,
                                                completion_flags);
}
DAT_RETURN dat_ep_post_rdma_read(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET* local_iov,
                                 DAT_DTO_COOKIE user_cookie, const DAT_RMR_TRIPLET* remote_buffer,
                                 DAT_COMPLETION_FLAGS completion_flags) {
  return call<&DAT_PROVIDER::ep_post_rdma_read_func>(DAT_INVALID_HANDLE_EP, ep_handle, num_segments, local_iov,
                                                     user_cookie, remote_buffer, completion_flags);
}
DAT_RETURN dat_ep_post_rdma_read_to_rmr(DAT_EP_HANDLE ep_handle, const DAT_RMR_TRIPLET* local_buffer,
                                        DAT_DTO_COOKIE user_cookie, const DAT_RMR_TRIPLET* remote_buffer,
                                        DAT_COMPLETION_FLAGS completion_flags) {
  return call<&DAT_PROVIDER::ep_post_rdma_read_to_rmr_func>(DAT_INVALID_HANDLE_EP, ep_handle, local_buffer, user_cookie,
                                                            remote_buffer, completion_flags);
}
DAT_RETURN dat_ep_post_rdma_write(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET* local_iov,
                                  DAT_DTO_COOKIE user_cookie, const DAT_RMR_TRIPLET* remote_buffer,
                                  DAT_COMPLETION_FLAGS completion_flags) {
  return call<&DAT_PROVIDER::ep_post_rdma_write_func>(DAT_INVALID_HANDLE_EP, ep_handle, num_segments, local_iov,
                                                      user_cookie, remote_buffer, completion_flags);
}
DAT_RETURN dat_ep_get_status(DAT_EP_HANDLE ep_handle, DAT_EP_STATE* ep_state, DAT_BOOLEAN* recv_idle,
                             DAT_BOOLEAN* request_idle) {
  return call<&DAT_PROVIDER::ep_get_status_func>(DAT_INVALID_HANDLE_EP, ep_handle, ep_state, recv_idle, request_idle);
}
DAT_RETURN dat_ep_free(DAT_EP_HANDLE ep_handle) {
  return call<&DAT_PROVIDER::ep_free_func>(DAT_INVALID_HANDLE_EP, ep_handle);
}
DAT_RETURN dat_ep_reset(DAT_EP_HANDLE ep_handle) {
  return call<&DAT_PROVIDER::ep_reset_func>(DAT_INVALID_HANDLE_EP, ep_handle);
}
DAT_RETURN dat_ep_recv_query(DAT_EP_HANDLE ep_handle, DAT_COUNT* nbufs_allocated, DAT_COUNT* bufs_alloc_span) {
  return call<&DAT_PROVIDER::ep_recv_query_func>(DAT_INVALID_HANDLE_EP, ep_handle, nbufs_allocated, bufs_alloc_span);
}
DAT_RETURN dat_ep_set_watermark(DAT_EP_HANDLE ep_handle, DAT_COUNT soft_high_watermark, DAT_COUNT hard_high_watermark) {
  return call<&DAT_PROVIDER::ep_set_watermark_func>(DAT_INVALID_HANDLE_EP, ep_handle, soft_high_watermark,
                                                    hard_high_watermark);
}

// Connection requests

DAT_RETURN dat_cr_query(DAT_CR_HANDLE cr_handle, DAT_CR_PARAM_MASK mask, DAT_CR_PARAM* param) {
  return call<&DAT_PROVIDER::cr_query_func>(DAT_INVALID_HANDLE_CR, cr_handle, mask, param);
}
DAT_RETURN dat_cr_accept(DAT_CR_HANDLE cr_handle, DAT_EP_HANDLE ep_handle, DAT_COUNT private_data_size,
                         DAT_PVOID private_data) {
  return call<&DAT_PROVIDER::cr_accept_func>(DAT_INVALID_HANDLE_CR, cr_handle, ep_handle, private_data_size,
                                             private_data);
}
DAT_RETURN dat_cr_reject(DAT_CR_HANDLE cr_handle, DAT_COUNT private_data_size, DAT_PVOID private_data) {
  return call<&DAT_PROVIDER::cr_reject_func>(DAT_INVALID_HANDLE_CR, cr_handle, private_data_size, private_data);
}
DAT_RETURN dat_cr_handoff(DAT_CR_HANDLE cr_handle, DAT_CONN_QUAL handoff) {
  return call<&DAT_PROVIDER::cr_handoff_func>(DAT_INVALID_HANDLE_CR, cr_handle, handoff);
}

// Public service points

DAT_RETURN dat_psp_create(DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL conn_qual, DAT_EVD_HANDLE evd_handle,
                          DAT_PSP_FLAGS psp_flags, DAT_PSP_HANDLE* psp_handle) {
  return call_ia<&DAT_PROVIDER::psp_create_func>(ia_handle, conn_qual, evd_handle, psp_flags, psp_handle);
}
DAT_RETURN dat_psp_create_any(DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL* conn_qual, DAT_EVD_HANDLE evd_handle,
                              DAT_PSP_FLAGS psp_flags, DAT_PSP_HANDLE* psp_handle) {
  return call_ia<&DAT_PROVIDER::psp_create_any_func>(ia_handle, conn_qual, evd_handle, psp_flags, psp_handle);
}
DAT_RETURN dat_psp_query(DAT_PSP_HANDLE psp_handle, DAT_PSP_PARAM_MASK mask, DAT_PSP_PARAM* param) {
  return call<&DAT_PROVIDER::psp_query_func>(DAT_INVALID_HANDLE_PSP, psp_handle, mask, param);
}
DAT_RETURN dat_psp_free(DAT_PSP_HANDLE psp_handle) {
  return call<&DAT_PROVIDER::psp_free_func>(DAT_INVALID_HANDLE_PSP, psp_handle);
}

// Reserved service points

DAT_RETURN dat_rsp_create(DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL conn_qual, DAT_EP_HANDLE ep_handle,
                          DAT_EVD_HANDLE evd_handle, DAT_RSP_HANDLE* rsp_handle) {
  return call_ia<&DAT_PROVIDER::rsp_create_func>(ia_handle, conn_qual, ep_handle, evd_handle, rsp_handle);
}
DAT_RETURN dat_rsp_query(DAT_RSP_HANDLE rsp_handle, DAT_RSP_PARAM_MASK mask, DAT_RSP_PARAM* param) {
  return call<&DAT_PROVIDER::rsp_query_func>(DAT_INVALID_HANDLE_RSP, rsp_handle, mask, param);
}
DAT_RETURN dat_rsp_free(DAT_RSP_HANDLE rsp_handle) {
  return call<&DAT_PROVIDER::rsp_free_func>(DAT_INVALID_HANDLE_RSP, rsp_handle);
}

// Common service points

DAT_RETURN dat_csp_create(DAT_IA_HANDLE ia_handle, DAT_COMM* comm, DAT_IA_ADDRESS_PTR address,
                          DAT_EVD_HANDLE evd_handle, DAT_CSP_HANDLE* csp_handle) {
  return call_ia<&DAT_PROVIDER::csp_create_func>(ia_handle, comm, address, evd_handle, csp_handle);
}
DAT_RETURN dat_csp_query(DAT_CSP_HANDLE csp_handle, DAT_CSP_PARAM_MASK mask, DAT_CSP_PARAM* param) {
  return call<&DAT_PROVIDER::csp_query_func>(DAT_INVALID_HANDLE_CSP, csp_handle, mask, param);
}
DAT_RETURN dat_csp_free(DAT_CSP_HANDLE csp_handle) {
  return call<&DAT_PROVIDER::csp_free_func>(DAT_INVALID_HANDLE_CSP, csp_handle);
}

// Protection zones

DAT_RETURN dat_pz_create(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE* pz_handle) {
  return call_ia<&DAT_PROVIDER::pz_create_func>(ia_handle, pz_handle);
}
DAT_RETURN dat_pz_query(DAT_PZ_HANDLE pz_handle, DAT_PZ_PARAM_MASK mask, DAT_PZ_PARAM* param) {
  return call<&DAT_PROVIDER::pz_query_func>(DAT_INVALID_HANDLE_PZ, pz_handle, mask, param);
}
DAT_RETURN dat_pz_free(DAT_PZ_HANDLE pz_handle) {
  return call<&DAT_PROVIDER::pz_free_func>(DAT_INVALID_HANDLE_PZ, pz_handle);
}

// Local memory regions

DAT_RETURN dat_lmr_free(DAT_LMR_HANDLE lmr_handle) {
  return call<&DAT_PROVIDER::lmr_free_func>(DAT_INVALID_HANDLE_LMR, lmr_handle);
}
DAT_RETURN dat_lmr_sync_rdma_read(DAT_IA_HANDLE ia_handle, const DAT_LMR_TRIPLET* local_segments,
                                  DAT_VLEN num_segments) {
  return call_ia<&DAT_PROVIDER::lmr_sync_rdma_read_func>(ia_handle, local_segments, num_segments);
}
DAT_RETURN dat_lmr_sync_rdma_write(DAT_IA_HANDLE ia_handle, const DAT_LMR_TRIPLET* local_segments,
                                   DAT_VLEN num_segments) {
  return call_ia<&DAT_PROVIDER::lmr_sync_rdma_write_func>(ia_handle, local_segments, num_segments);
}
DAT_RETURN dat_lmr_create(DAT_IA_HANDLE ia_handle, DAT_MEM_TYPE mem_type, DAT_REGION_DESCRIPTION region_description,
                          DAT_VLEN length, DAT_PZ_HANDLE pz_handle, DAT_MEM_PRIV_FLAGS privileges, DAT_VA_TYPE va_type,
                          DAT_LMR_HANDLE* lmr_handle, DAT_LMR_CONTEXT* lmr_context, DAT_RMR_CONTEXT* rmr_context,
                          DAT_VLEN* registered_length, DAT_VADDR* registered_address) {
  return call_ia<&DAT_PROVIDER::lmr_create_func>(ia_handle, mem_type, region_description, length, pz_handle, privileges,
                                                 va_type, lmr_handle, lmr_context, rmr_context, registered_length,
                                                 registered_address);
}
DAT_RETURN dat_lmr_query(DAT_LMR_HANDLE lmr_handle, DAT_LMR_PARAM_MASK mask, DAT_LMR_PARAM* param) {
  return call<&DAT_PROVIDER::lmr_query_func>(DAT_INVALID_HANDLE_LMR, lmr_handle, mask, param);
}

// Remote memory regions

DAT_RETURN dat_rmr_create(DAT_PZ_HANDLE pz_handle, DAT_RMR_HANDLE* rmr_handle) {
  return call<&DAT_PROVIDER::rmr_create_func>(DAT_INVALID_HANDLE_PZ, pz_handle, rmr_handle);
}
DAT_RETURN dat_rmr_create_for_ep(DAT_PZ_HANDLE pz_handle, DAT_RMR_HANDLE* rmr_handle) {
  return call<&DAT_PROVIDER::rmr_create_for_ep_func>(DAT_INVALID_HANDLE_PZ, pz_handle, rmr_handle);
}
DAT_RETURN dat_rmr_query(DAT_RMR_HANDLE rmr_handle, DAT_RMR_PARAM_MASK mask, DAT_RMR_PARAM* param) {
  return call<&DAT_PROVIDER::rmr_query_func>(DAT_INVALID_HANDLE_RMR, rmr_handle, mask, param);
}
DAT_RETURN dat_rmr_bind(DAT_RMR_HANDLE rmr_handle, DAT_LMR_HANDLE lmr_handle, const DAT_LMR_TRIPLET* lmr_triplet,
                        DAT_MEM_PRIV_FLAGS mem_priv, DAT_VA_TYPE va_type, DAT_EP_HANDLE ep_handle,
                        DAT_RMR_COOKIE user_cookie, DAT_COMPLETION_FLAGS completion_flags, DAT_RMR_CONTEXT* context) {
  return call<&DAT_PROVIDER::rmr_bind_func>(DAT_INVALID_HANDLE_RMR, rmr_handle, lmr_handle, lmr_triplet, mem_priv,
                                            va_type, ep_handle, user_cookie, completion_flags, context);
}
DAT_RETURN dat_rmr_free(DAT_RMR_HANDLE rmr_handle) {
  return call<&DAT_PROVIDER::rmr_free_func>(DAT_INVALID_HANDLE_RMR, rmr_handle);
}

// Shared receive queues

DAT_RETURN dat_srq_create(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle, DAT_SRQ_ATTR* srq_attr,
                          DAT_SRQ_HANDLE* srq_handle) {
  return call_ia<&DAT_PROVIDER::srq_create_func>(ia_handle, pz_handle, srq_attr, srq_handle);
}
DAT_RETURN dat_srq_free(DAT_SRQ_HANDLE srq_handle) {
  return call<&DAT_PROVIDER::srq_free_func>(DAT_INVALID_HANDLE_SRQ, srq_handle);
}
DAT_RETURN dat_srq_post_recv(DAT_SRQ_HANDLE srq_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET* local_iov,
                             DAT_DTO_COOKIE user_cookie) {
  return call<&DAT_PROVIDER::srq_post_recv_func>(DAT_INVALID_HANDLE_SRQ, srq_handle, num_segments, local_iov,
                                                 user_cookie);
}
DAT_RETURN dat_srq_query(DAT_SRQ_HANDLE srq_handle, DAT_SRQ_PARAM_MASK mask, DAT_SRQ_PARAM* param) {
  return call<&DAT_PROVIDER::srq_query_func>(DAT_INVALID_HANDLE_SRQ, srq_handle, mask, param);
}
DAT_RETURN dat_srq_resize(DAT_SRQ_HANDLE srq_handle, DAT_COUNT srq_max_recv_dto) {
  return call<&DAT_PROVIDER::srq_resize_func>(DAT_INVALID_HANDLE_SRQ, srq_handle, srq_max_recv_dto);
}
DAT_RETURN dat_srq_set_lw(DAT_SRQ_HANDLE srq_handle, DAT_COUNT low_watermark) {
  return call<&DAT_PROVIDER::srq_set_lw_func>(DAT_INVALID_HANDLE_SRQ, srq_handle, low_watermark);
}

} // extern "C"
