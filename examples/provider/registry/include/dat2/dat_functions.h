// The functions of dat.h. Included by dat.h only.
// SPDX-License-Identifier: BSL-1.0
#ifndef DAT_FUNCTIONS_H
#define DAT_FUNCTIONS_H

extern DAT_RETURN DAT_API dat_ia_openv(DAT_NAME_PTR ia_name, DAT_COUNT async_evd_min_qlen,
                                       DAT_EVD_HANDLE* async_evd_handle, DAT_IA_HANDLE* ia_handle, DAT_UINT32 dat_major,
                                       DAT_UINT32 dat_minor, DAT_BOOLEAN thread_safety);
#define dat_ia_open(name, qlen, async_evd, ia)                                                                         \
  dat_ia_openv((name), (qlen), (async_evd), (ia), DAT_VERSION_MAJOR, DAT_VERSION_MINOR, DAT_THREADSAFE)
extern DAT_RETURN DAT_API dat_ia_query(DAT_IA_HANDLE ia_handle, DAT_EVD_HANDLE* async_evd_handle,
                                       DAT_IA_ATTR_MASK ia_attr_mask, DAT_IA_ATTR* ia_attr,
                                       DAT_PROVIDER_ATTR_MASK provider_attr_mask, DAT_PROVIDER_ATTR* provider_attr);
extern DAT_RETURN DAT_API dat_ia_close(DAT_IA_HANDLE ia_handle, DAT_CLOSE_FLAGS close_flags);
extern DAT_RETURN DAT_API dat_set_consumer_context(DAT_HANDLE dat_handle, DAT_CONTEXT context);
extern DAT_RETURN DAT_API dat_get_consumer_context(DAT_HANDLE dat_handle, DAT_CONTEXT* context);
extern DAT_RETURN DAT_API dat_get_handle_type(DAT_HANDLE dat_handle, DAT_HANDLE_TYPE* handle_type);

extern DAT_RETURN DAT_API dat_cr_query(DAT_CR_HANDLE cr_handle, DAT_CR_PARAM_MASK mask, DAT_CR_PARAM* param);
extern DAT_RETURN DAT_API dat_cr_accept(DAT_CR_HANDLE cr_handle, DAT_EP_HANDLE ep_handle, DAT_COUNT private_data_size,
                                        DAT_PVOID private_data);
extern DAT_RETURN DAT_API dat_cr_reject(DAT_CR_HANDLE cr_handle, DAT_COUNT private_data_size, DAT_PVOID private_data);
extern DAT_RETURN DAT_API dat_cr_handoff(DAT_CR_HANDLE cr_handle, DAT_CONN_QUAL handoff);

extern DAT_RETURN DAT_API dat_evd_resize(DAT_EVD_HANDLE evd_handle, DAT_COUNT evd_min_qlen);
extern DAT_RETURN DAT_API dat_evd_post_se(DAT_EVD_HANDLE evd_handle, const DAT_EVENT* event);
extern DAT_RETURN DAT_API dat_evd_dequeue(DAT_EVD_HANDLE evd_handle, DAT_EVENT* event);
extern DAT_RETURN DAT_API dat_evd_query(DAT_EVD_HANDLE evd_handle, DAT_EVD_PARAM_MASK mask, DAT_EVD_PARAM* param);
extern DAT_RETURN DAT_API dat_evd_free(DAT_EVD_HANDLE evd_handle);

extern DAT_RETURN DAT_API dat_ep_create(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle,
                                        DAT_EVD_HANDLE recv_evd_handle, DAT_EVD_HANDLE request_evd_handle,
                                        DAT_EVD_HANDLE connect_evd_handle, const DAT_EP_ATTR* ep_attributes,
                                        DAT_EP_HANDLE* ep_handle);
extern DAT_RETURN DAT_API dat_ep_create_with_srq(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle,
                                                 DAT_EVD_HANDLE recv_evd_handle, DAT_EVD_HANDLE request_evd_handle,
                                                 DAT_EVD_HANDLE connect_evd_handle, DAT_SRQ_HANDLE srq_handle,
                                                 const DAT_EP_ATTR* ep_attributes, DAT_EP_HANDLE* ep_handle);
extern DAT_RETURN DAT_API dat_ep_query(DAT_EP_HANDLE ep_handle, DAT_EP_PARAM_MASK mask, DAT_EP_PARAM* param);
extern DAT_RETURN DAT_API dat_ep_modify(DAT_EP_HANDLE ep_handle, DAT_EP_PARAM_MASK mask, const DAT_EP_PARAM* param);
extern DAT_RETURN DAT_API dat_ep_connect(DAT_EP_HANDLE ep_handle, DAT_IA_ADDRESS_PTR remote_ia_address,
                                         DAT_CONN_QUAL remote_conn_qual, DAT_TIMEOUT timeout,
                                         DAT_COUNT private_data_size, DAT_PVOID private_data,
                                         DAT_QOS quality_of_service, DAT_CONNECT_FLAGS connect_flags);
extern DAT_RETURN DAT_API dat_ep_common_connect(DAT_EP_HANDLE ep_handle, DAT_IA_ADDRESS_PTR remote_ia_address,
                                                DAT_TIMEOUT timeout, DAT_COUNT private_data_size,
                                                DAT_PVOID private_data);
extern DAT_RETURN DAT_API dat_ep_dup_connect(DAT_EP_HANDLE ep_handle, DAT_EP_HANDLE dup_ep_handle, DAT_TIMEOUT timeout,
                                             DAT_COUNT private_data_size, DAT_PVOID private_data,
                                             DAT_QOS quality_of_service);
extern DAT_RETURN DAT_API dat_ep_disconnect(DAT_EP_HANDLE ep_handle, DAT_CLOSE_FLAGS close_flags);
extern DAT_RETURN DAT_API dat_ep_post_send(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET* local_iov,
                                           DAT_DTO_COOKIE user_cookie, DAT_COMPLETION_FLAGS completion_flags);
extern DAT_RETURN DAT_API dat_ep_post_send_with_invalidate(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments,
                                                           DAT_LMR_TRIPLET* local_iov, DAT_DTO_COOKIE user_cookie,
                                                           DAT_COMPLETION_FLAGS completion_flags,
                                                           DAT_BOOLEAN invalidate_flag, DAT_RMR_CONTEXT rmr_context);
extern DAT_RETURN DAT_API dat_ep_post_recv(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET* local_iov,
                                           DAT_DTO_COOKIE user_cookie, DAT_COMPLETION_FLAGS completion_flags);
extern DAT_RETURN DAT_API dat_ep_post_rdma_read(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments,
                                                DAT_LMR_TRIPLET* local_iov, DAT_DTO_COOKIE user_cookie,
                                                const DAT_RMR_TRIPLET* remote_buffer,
                                                DAT_COMPLETION_FLAGS completion_flags);
extern DAT_RETURN DAT_API dat_ep_post_rdma_read_to_rmr(DAT_EP_HANDLE ep_handle, const DAT_RMR_TRIPLET* local_buffer,
                                                       DAT_DTO_COOKIE user_cookie, const DAT_RMR_TRIPLET* remote_buffer,
                                                       DAT_COMPLETION_FLAGS completion_flags);
extern DAT_RETURN DAT_API dat_ep_post_rdma_write(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments,
                                                 DAT_LMR_TRIPLET* local_iov, DAT_DTO_COOKIE user_cookie,
                                                 const DAT_RMR_TRIPLET* remote_buffer,
                                                 DAT_COMPLETION_FLAGS completion_flags);
extern DAT_RETURN DAT_API dat_ep_get_status(DAT_EP_HANDLE ep_handle, DAT_EP_STATE* ep_state, DAT_BOOLEAN* recv_idle,
                                            DAT_BOOLEAN* request_idle);
extern DAT_RETURN DAT_API dat_ep_free(DAT_EP_HANDLE ep_handle);
extern DAT_RETURN DAT_API dat_ep_reset(DAT_EP_HANDLE ep_handle);
extern DAT_RETURN DAT_API dat_ep_recv_query(DAT_EP_HANDLE ep_handle, DAT_COUNT* nbufs_allocated,
                                            DAT_COUNT* bufs_alloc_span);
extern DAT_RETURN DAT_API dat_ep_set_watermark(DAT_EP_HANDLE ep_handle, DAT_COUNT soft_high_watermark,
                                               DAT_COUNT hard_high_watermark);

extern DAT_RETURN DAT_API dat_lmr_free(DAT_LMR_HANDLE lmr_handle);
extern DAT_RETURN DAT_API dat_lmr_sync_rdma_read(DAT_IA_HANDLE ia_handle, const DAT_LMR_TRIPLET* local_segments,
                                                 DAT_VLEN num_segments);
extern DAT_RETURN DAT_API dat_lmr_sync_rdma_write(DAT_IA_HANDLE ia_handle, const DAT_LMR_TRIPLET* local_segments,
                                                  DAT_VLEN num_segments);

extern DAT_RETURN DAT_API dat_rmr_create(DAT_PZ_HANDLE pz_handle, DAT_RMR_HANDLE* rmr_handle);
extern DAT_RETURN DAT_API dat_rmr_create_for_ep(DAT_PZ_HANDLE pz_handle, DAT_RMR_HANDLE* rmr_handle);
extern DAT_RETURN DAT_API dat_rmr_query(DAT_RMR_HANDLE rmr_handle, DAT_RMR_PARAM_MASK mask, DAT_RMR_PARAM* param);
extern DAT_RETURN DAT_API dat_rmr_bind(DAT_RMR_HANDLE rmr_handle, DAT_LMR_HANDLE lmr_handle,
                                       const DAT_LMR_TRIPLET* lmr_triplet, DAT_MEM_PRIV_FLAGS mem_priv,
                                       DAT_VA_TYPE va_type, DAT_EP_HANDLE ep_handle, DAT_RMR_COOKIE user_cookie,
                                       DAT_COMPLETION_FLAGS completion_flags, DAT_RMR_CONTEXT* context);
extern DAT_RETURN DAT_API dat_rmr_free(DAT_RMR_HANDLE rmr_handle);

extern DAT_RETURN DAT_API dat_psp_create(DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL conn_qual, DAT_EVD_HANDLE evd_handle,
                                         DAT_PSP_FLAGS psp_flags, DAT_PSP_HANDLE* psp_handle);
extern DAT_RETURN DAT_API dat_psp_create_any(DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL* conn_qual,
                                             DAT_EVD_HANDLE evd_handle, DAT_PSP_FLAGS psp_flags,
                                             DAT_PSP_HANDLE* psp_handle);
extern DAT_RETURN DAT_API dat_psp_query(DAT_PSP_HANDLE psp_handle, DAT_PSP_PARAM_MASK mask, DAT_PSP_PARAM* param);
extern DAT_RETURN DAT_API dat_psp_free(DAT_PSP_HANDLE psp_handle);

extern DAT_RETURN DAT_API dat_rsp_create(DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL conn_qual, DAT_EP_HANDLE ep_handle,
                                         DAT_EVD_HANDLE evd_handle, DAT_RSP_HANDLE* rsp_handle);
extern DAT_RETURN DAT_API dat_rsp_query(DAT_RSP_HANDLE rsp_handle, DAT_RSP_PARAM_MASK mask, DAT_RSP_PARAM* param);
extern DAT_RETURN DAT_API dat_rsp_free(DAT_RSP_HANDLE rsp_handle);

extern DAT_RETURN DAT_API dat_csp_create(DAT_IA_HANDLE ia_handle, DAT_COMM* comm, DAT_IA_ADDRESS_PTR address,
                                         DAT_EVD_HANDLE evd_handle, DAT_CSP_HANDLE* csp_handle);
extern DAT_RETURN DAT_API dat_csp_query(DAT_CSP_HANDLE csp_handle, DAT_CSP_PARAM_MASK mask, DAT_CSP_PARAM* param);
extern DAT_RETURN DAT_API dat_csp_free(DAT_CSP_HANDLE csp_handle);

extern DAT_RETURN DAT_API dat_pz_create(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE* pz_handle);
extern DAT_RETURN DAT_API dat_pz_query(DAT_PZ_HANDLE pz_handle, DAT_PZ_PARAM_MASK mask, DAT_PZ_PARAM* param);
extern DAT_RETURN DAT_API dat_pz_free(DAT_PZ_HANDLE pz_handle);

extern DAT_RETURN DAT_API dat_srq_create(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle, DAT_SRQ_ATTR* srq_attr,
                                         DAT_SRQ_HANDLE* srq_handle);
extern DAT_RETURN DAT_API dat_srq_free(DAT_SRQ_HANDLE srq_handle);
extern DAT_RETURN DAT_API dat_srq_post_recv(DAT_SRQ_HANDLE srq_handle, DAT_COUNT num_segments,
                                            DAT_LMR_TRIPLET* local_iov, DAT_DTO_COOKIE user_cookie);
extern DAT_RETURN DAT_API dat_srq_query(DAT_SRQ_HANDLE srq_handle, DAT_SRQ_PARAM_MASK mask, DAT_SRQ_PARAM* param);
extern DAT_RETURN DAT_API dat_srq_resize(DAT_SRQ_HANDLE srq_handle, DAT_COUNT srq_max_recv_dto);
extern DAT_RETURN DAT_API dat_srq_set_lw(DAT_SRQ_HANDLE srq_handle, DAT_COUNT low_watermark);

extern DAT_RETURN DAT_API dat_registry_list_providers(DAT_COUNT max_to_return, DAT_COUNT* number_entries,
                                                      DAT_PROVIDER_INFO*(dat_provider_list[]));
extern DAT_RETURN DAT_API dat_strerror(DAT_RETURN value, const char** major_message, const char** minor_message);

#ifdef DAT_EXTENSIONS
#define DAT_OPEN_EXTENSION_BASE 0x1000
#define DAT_CLOSE_EXTENSION_BASE 0x2000
typedef int DAT_EXTENDED_OP;
extern DAT_RETURN DAT_API dat_extension_op(DAT_HANDLE handle, DAT_EXTENDED_OP operation, ...);
#endif

#endif
