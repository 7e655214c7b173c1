// The provider's functions that uDAPL shares with kDAPL: their types, and macros that call them (uDAPL 2.0 Appendix
// B.3). SPDX-License-Identifier: BSL-1.0
#ifndef _DAT_REDIRECTION_H_
#define _DAT_REDIRECTION_H_

#include <stdarg.h>

typedef struct dat_provider DAT_PROVIDER;

// The structure that a handle points to begins with a pointer to the provider.
#ifndef DAT_HANDLE_TO_PROVIDER
#define DAT_HANDLE_TO_PROVIDER(handle) (*(DAT_PROVIDER**)(handle))
#endif

typedef DAT_RETURN(DAT_API* DAT_IA_OPEN_FUNC)(DAT_NAME_PTR ia_name, DAT_COUNT async_evd_min_qlen,
                                              DAT_EVD_HANDLE* async_evd_handle, DAT_IA_HANDLE* ia_handle);
typedef DAT_RETURN(DAT_API* DAT_IA_OPENV_FUNC)(DAT_NAME_PTR ia_name, DAT_COUNT async_evd_min_qlen,
                                               DAT_EVD_HANDLE* async_evd_handle, DAT_IA_HANDLE* ia_handle,
                                               DAT_UINT32 dat_major, DAT_UINT32 dat_minor, DAT_BOOLEAN thread_safety);
typedef DAT_RETURN(DAT_API* DAT_IA_QUERY_FUNC)(DAT_IA_HANDLE ia_handle, DAT_EVD_HANDLE* async_evd_handle,
                                               DAT_IA_ATTR_MASK ia_attr_mask, DAT_IA_ATTR* ia_attr,
                                               DAT_PROVIDER_ATTR_MASK provider_attr_mask,
                                               DAT_PROVIDER_ATTR* provider_attr);
typedef DAT_RETURN(DAT_API* DAT_IA_CLOSE_FUNC)(DAT_IA_HANDLE ia_handle, DAT_CLOSE_FLAGS close_flags);
typedef DAT_RETURN(DAT_API* DAT_SET_CONSUMER_CONTEXT_FUNC)(DAT_HANDLE dat_handle, DAT_CONTEXT context);
typedef DAT_RETURN(DAT_API* DAT_GET_CONSUMER_CONTEXT_FUNC)(DAT_HANDLE dat_handle, DAT_CONTEXT* context);
typedef DAT_RETURN(DAT_API* DAT_GET_HANDLE_TYPE_FUNC)(DAT_HANDLE dat_handle, DAT_HANDLE_TYPE* handle_type);
typedef DAT_RETURN(DAT_API* DAT_CR_QUERY_FUNC)(DAT_CR_HANDLE cr_handle, DAT_CR_PARAM_MASK mask, DAT_CR_PARAM* param);
typedef DAT_RETURN(DAT_API* DAT_CR_ACCEPT_FUNC)(DAT_CR_HANDLE cr_handle, DAT_EP_HANDLE ep_handle,
                                                DAT_COUNT private_data_size, DAT_PVOID private_data);
typedef DAT_RETURN(DAT_API* DAT_CR_REJECT_FUNC)(DAT_CR_HANDLE cr_handle, DAT_COUNT private_data_size,
                                                DAT_PVOID private_data);
typedef DAT_RETURN(DAT_API* DAT_CR_HANDOFF_FUNC)(DAT_CR_HANDLE cr_handle, DAT_CONN_QUAL handoff);
typedef DAT_RETURN(DAT_API* DAT_EVD_RESIZE_FUNC)(DAT_EVD_HANDLE evd_handle, DAT_COUNT evd_min_qlen);
typedef DAT_RETURN(DAT_API* DAT_EVD_POST_SE_FUNC)(DAT_EVD_HANDLE evd_handle, const DAT_EVENT* event);
typedef DAT_RETURN(DAT_API* DAT_EVD_DEQUEUE_FUNC)(DAT_EVD_HANDLE evd_handle, DAT_EVENT* event);
typedef DAT_RETURN(DAT_API* DAT_EVD_QUERY_FUNC)(DAT_EVD_HANDLE evd_handle, DAT_EVD_PARAM_MASK mask,
                                                DAT_EVD_PARAM* param);
typedef DAT_RETURN(DAT_API* DAT_EVD_FREE_FUNC)(DAT_EVD_HANDLE evd_handle);
typedef DAT_RETURN(DAT_API* DAT_EP_CREATE_FUNC)(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle,
                                                DAT_EVD_HANDLE recv_evd_handle, DAT_EVD_HANDLE request_evd_handle,
                                                DAT_EVD_HANDLE connect_evd_handle, const DAT_EP_ATTR* ep_attributes,
                                                DAT_EP_HANDLE* ep_handle);
typedef DAT_RETURN(DAT_API* DAT_EP_CREATE_WITH_SRQ_FUNC)(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle,
                                                         DAT_EVD_HANDLE recv_evd_handle,
                                                         DAT_EVD_HANDLE request_evd_handle,
                                                         DAT_EVD_HANDLE connect_evd_handle, DAT_SRQ_HANDLE srq_handle,
                                                         const DAT_EP_ATTR* ep_attributes, DAT_EP_HANDLE* ep_handle);
typedef DAT_RETURN(DAT_API* DAT_EP_QUERY_FUNC)(DAT_EP_HANDLE ep_handle, DAT_EP_PARAM_MASK mask, DAT_EP_PARAM* param);
typedef DAT_RETURN(DAT_API* DAT_EP_MODIFY_FUNC)(DAT_EP_HANDLE ep_handle, DAT_EP_PARAM_MASK mask,
                                                const DAT_EP_PARAM* param);
typedef DAT_RETURN(DAT_API* DAT_EP_CONNECT_FUNC)(DAT_EP_HANDLE ep_handle, DAT_IA_ADDRESS_PTR remote_ia_address,
                                                 DAT_CONN_QUAL remote_conn_qual, DAT_TIMEOUT timeout,
                                                 DAT_COUNT private_data_size, DAT_PVOID private_data,
                                                 DAT_QOS quality_of_service, DAT_CONNECT_FLAGS connect_flags);
typedef DAT_RETURN(DAT_API* DAT_EP_COMMON_CONNECT_FUNC)(DAT_EP_HANDLE ep_handle, DAT_IA_ADDRESS_PTR remote_ia_address,
                                                        DAT_TIMEOUT timeout, DAT_COUNT private_data_size,
                                                        DAT_PVOID private_data);
typedef DAT_RETURN(DAT_API* DAT_EP_DUP_CONNECT_FUNC)(DAT_EP_HANDLE ep_handle, DAT_EP_HANDLE dup_ep_handle,
                                                     DAT_TIMEOUT timeout, DAT_COUNT private_data_size,
                                                     DAT_PVOID private_data, DAT_QOS quality_of_service);
typedef DAT_RETURN(DAT_API* DAT_EP_DISCONNECT_FUNC)(DAT_EP_HANDLE ep_handle, DAT_CLOSE_FLAGS close_flags);
typedef DAT_RETURN(DAT_API* DAT_EP_POST_SEND_FUNC)(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments,
                                                   DAT_LMR_TRIPLET* local_iov, DAT_DTO_COOKIE user_cookie,
                                                   DAT_COMPLETION_FLAGS completion_flags);
typedef DAT_RETURN(DAT_API* DAT_EP_POST_SEND_WITH_INVALIDATE_FUNC)(
    DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET* local_iov, DAT_DTO_COOKIE user_cookie,
    DAT_COMPLETION_FLAGS completion_flags, DAT_BOOLEAN invalidate_flag, DAT_RMR_CONTEXT rmr_context);
typedef DAT_RETURN(DAT_API* DAT_EP_POST_RECV_FUNC)(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments,
                                                   DAT_LMR_TRIPLET* local_iov, DAT_DTO_COOKIE user_cookie,
                                                   DAT_COMPLETION_FLAGS completion_flags);
typedef DAT_RETURN(DAT_API* DAT_EP_POST_RDMA_READ_FUNC)(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments,
                                                        DAT_LMR_TRIPLET* local_iov, DAT_DTO_COOKIE user_cookie,
                                                        const DAT_RMR_TRIPLET* remote_buffer,
                                                        DAT_COMPLETION_FLAGS completion_flags);
typedef DAT_RETURN(DAT_API* DAT_EP_POST_RDMA_READ_TO_RMR_FUNC)(DAT_EP_HANDLE ep_handle,
                                                               const DAT_RMR_TRIPLET* local_buffer,
                                                               DAT_DTO_COOKIE user_cookie,
                                                               const DAT_RMR_TRIPLET* remote_buffer,
                                                               DAT_COMPLETION_FLAGS completion_flags);
typedef DAT_RETURN(DAT_API* DAT_EP_POST_RDMA_WRITE_FUNC)(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments,
                                                         DAT_LMR_TRIPLET* local_iov, DAT_DTO_COOKIE user_cookie,
                                                         const DAT_RMR_TRIPLET* remote_buffer,
                                                         DAT_COMPLETION_FLAGS completion_flags);
typedef DAT_RETURN(DAT_API* DAT_EP_GET_STATUS_FUNC)(DAT_EP_HANDLE ep_handle, DAT_EP_STATE* ep_state,
                                                    DAT_BOOLEAN* recv_idle, DAT_BOOLEAN* request_idle);
typedef DAT_RETURN(DAT_API* DAT_EP_FREE_FUNC)(DAT_EP_HANDLE ep_handle);
typedef DAT_RETURN(DAT_API* DAT_EP_RESET_FUNC)(DAT_EP_HANDLE ep_handle);
typedef DAT_RETURN(DAT_API* DAT_EP_RECV_QUERY_FUNC)(DAT_EP_HANDLE ep_handle, DAT_COUNT* nbufs_allocated,
                                                    DAT_COUNT* bufs_alloc_span);
typedef DAT_RETURN(DAT_API* DAT_EP_SET_WATERMARK_FUNC)(DAT_EP_HANDLE ep_handle, DAT_COUNT soft_high_watermark,
                                                       DAT_COUNT hard_high_watermark);
typedef DAT_RETURN(DAT_API* DAT_LMR_FREE_FUNC)(DAT_LMR_HANDLE lmr_handle);
typedef DAT_RETURN(DAT_API* DAT_LMR_SYNC_RDMA_READ_FUNC)(DAT_IA_HANDLE ia_handle, const DAT_LMR_TRIPLET* local_segments,
                                                         DAT_VLEN num_segments);
typedef DAT_RETURN(DAT_API* DAT_LMR_SYNC_RDMA_WRITE_FUNC)(DAT_IA_HANDLE ia_handle,
                                                          const DAT_LMR_TRIPLET* local_segments, DAT_VLEN num_segments);
typedef DAT_RETURN(DAT_API* DAT_RMR_CREATE_FUNC)(DAT_PZ_HANDLE pz_handle, DAT_RMR_HANDLE* rmr_handle);
typedef DAT_RETURN(DAT_API* DAT_RMR_CREATE_FOR_EP_FUNC)(DAT_PZ_HANDLE pz_handle, DAT_RMR_HANDLE* rmr_handle);
typedef DAT_RETURN(DAT_API* DAT_RMR_QUERY_FUNC)(DAT_RMR_HANDLE rmr_handle, DAT_RMR_PARAM_MASK mask,
                                                DAT_RMR_PARAM* param);
typedef DAT_RETURN(DAT_API* DAT_RMR_BIND_FUNC)(DAT_RMR_HANDLE rmr_handle, DAT_LMR_HANDLE lmr_handle,
                                               const DAT_LMR_TRIPLET* lmr_triplet, DAT_MEM_PRIV_FLAGS mem_priv,
                                               DAT_VA_TYPE va_type, DAT_EP_HANDLE ep_handle, DAT_RMR_COOKIE user_cookie,
                                               DAT_COMPLETION_FLAGS completion_flags, DAT_RMR_CONTEXT* context);
typedef DAT_RETURN(DAT_API* DAT_RMR_FREE_FUNC)(DAT_RMR_HANDLE rmr_handle);
typedef DAT_RETURN(DAT_API* DAT_PSP_CREATE_FUNC)(DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL conn_qual,
                                                 DAT_EVD_HANDLE evd_handle, DAT_PSP_FLAGS psp_flags,
                                                 DAT_PSP_HANDLE* psp_handle);
typedef DAT_RETURN(DAT_API* DAT_PSP_CREATE_ANY_FUNC)(DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL* conn_qual,
                                                     DAT_EVD_HANDLE evd_handle, DAT_PSP_FLAGS psp_flags,
                                                     DAT_PSP_HANDLE* psp_handle);
typedef DAT_RETURN(DAT_API* DAT_PSP_QUERY_FUNC)(DAT_PSP_HANDLE psp_handle, DAT_PSP_PARAM_MASK mask,
                                                DAT_PSP_PARAM* param);
typedef DAT_RETURN(DAT_API* DAT_PSP_FREE_FUNC)(DAT_PSP_HANDLE psp_handle);
typedef DAT_RETURN(DAT_API* DAT_RSP_CREATE_FUNC)(DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL conn_qual,
                                                 DAT_EP_HANDLE ep_handle, DAT_EVD_HANDLE evd_handle,
                                                 DAT_RSP_HANDLE* rsp_handle);
typedef DAT_RETURN(DAT_API* DAT_RSP_QUERY_FUNC)(DAT_RSP_HANDLE rsp_handle, DAT_RSP_PARAM_MASK mask,
                                                DAT_RSP_PARAM* param);
typedef DAT_RETURN(DAT_API* DAT_RSP_FREE_FUNC)(DAT_RSP_HANDLE rsp_handle);
typedef DAT_RETURN(DAT_API* DAT_CSP_CREATE_FUNC)(DAT_IA_HANDLE ia_handle, DAT_COMM* comm, DAT_IA_ADDRESS_PTR address,
                                                 DAT_EVD_HANDLE evd_handle, DAT_CSP_HANDLE* csp_handle);
typedef DAT_RETURN(DAT_API* DAT_CSP_QUERY_FUNC)(DAT_CSP_HANDLE csp_handle, DAT_CSP_PARAM_MASK mask,
                                                DAT_CSP_PARAM* param);
typedef DAT_RETURN(DAT_API* DAT_CSP_FREE_FUNC)(DAT_CSP_HANDLE csp_handle);
typedef DAT_RETURN(DAT_API* DAT_PZ_CREATE_FUNC)(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE* pz_handle);
typedef DAT_RETURN(DAT_API* DAT_PZ_QUERY_FUNC)(DAT_PZ_HANDLE pz_handle, DAT_PZ_PARAM_MASK mask, DAT_PZ_PARAM* param);
typedef DAT_RETURN(DAT_API* DAT_PZ_FREE_FUNC)(DAT_PZ_HANDLE pz_handle);
typedef DAT_RETURN(DAT_API* DAT_SRQ_CREATE_FUNC)(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle,
                                                 DAT_SRQ_ATTR* srq_attr, DAT_SRQ_HANDLE* srq_handle);
typedef DAT_RETURN(DAT_API* DAT_SRQ_FREE_FUNC)(DAT_SRQ_HANDLE srq_handle);
typedef DAT_RETURN(DAT_API* DAT_SRQ_POST_RECV_FUNC)(DAT_SRQ_HANDLE srq_handle, DAT_COUNT num_segments,
                                                    DAT_LMR_TRIPLET* local_iov, DAT_DTO_COOKIE user_cookie);
typedef DAT_RETURN(DAT_API* DAT_SRQ_QUERY_FUNC)(DAT_SRQ_HANDLE srq_handle, DAT_SRQ_PARAM_MASK mask,
                                                DAT_SRQ_PARAM* param);
typedef DAT_RETURN(DAT_API* DAT_SRQ_RESIZE_FUNC)(DAT_SRQ_HANDLE srq_handle, DAT_COUNT srq_max_recv_dto);
typedef DAT_RETURN(DAT_API* DAT_SRQ_SET_LW_FUNC)(DAT_SRQ_HANDLE srq_handle, DAT_COUNT low_watermark);
typedef DAT_RETURN(DAT_API* DAT_IA_HA_RELATED_FUNC)(DAT_IA_HANDLE ia_handle, DAT_NAME_PTR ia_name, DAT_BOOLEAN* answer);
#ifdef DAT_EXTENSIONS
typedef DAT_RETURN(DAT_API* DAT_HANDLE_EXTENDEDOP_FUNC)(DAT_HANDLE handle, DAT_EXTENDED_OP operation,
                                                        va_list arguments);
#endif

#define DAT_IA_QUERY(ia_handle, async_evd_handle, ia_attr_mask, ia_attr, provider_attr_mask, provider_attr)            \
  (*DAT_HANDLE_TO_PROVIDER(ia_handle)->ia_query_func)((ia_handle), (async_evd_handle), (ia_attr_mask), (ia_attr),      \
                                                      (provider_attr_mask), (provider_attr))
#define DAT_SET_CONSUMER_CONTEXT(dat_handle, context)                                                                  \
  (*DAT_HANDLE_TO_PROVIDER(dat_handle)->set_consumer_context_func)((dat_handle), (context))
#define DAT_GET_CONSUMER_CONTEXT(dat_handle, context)                                                                  \
  (*DAT_HANDLE_TO_PROVIDER(dat_handle)->get_consumer_context_func)((dat_handle), (context))
#define DAT_GET_HANDLE_TYPE(dat_handle, handle_type)                                                                   \
  (*DAT_HANDLE_TO_PROVIDER(dat_handle)->get_handle_type_func)((dat_handle), (handle_type))
#define DAT_CR_QUERY(cr_handle, mask, param)                                                                           \
  (*DAT_HANDLE_TO_PROVIDER(cr_handle)->cr_query_func)((cr_handle), (mask), (param))
#define DAT_CR_ACCEPT(cr_handle, ep_handle, private_data_size, private_data)                                           \
  (*DAT_HANDLE_TO_PROVIDER(cr_handle)->cr_accept_func)((cr_handle), (ep_handle), (private_data_size), (private_data))
#define DAT_CR_REJECT(cr_handle, private_data_size, private_data)                                                      \
  (*DAT_HANDLE_TO_PROVIDER(cr_handle)->cr_reject_func)((cr_handle), (private_data_size), (private_data))
#define DAT_CR_HANDOFF(cr_handle, handoff) (*DAT_HANDLE_TO_PROVIDER(cr_handle)->cr_handoff_func)((cr_handle), (handoff))
#define DAT_EVD_RESIZE(evd_handle, evd_min_qlen)                                                                       \
  (*DAT_HANDLE_TO_PROVIDER(evd_handle)->evd_resize_func)((evd_handle), (evd_min_qlen))
#define DAT_EVD_POST_SE(evd_handle, event)                                                                             \
  (*DAT_HANDLE_TO_PROVIDER(evd_handle)->evd_post_se_func)((evd_handle), (event))
#define DAT_EVD_DEQUEUE(evd_handle, event)                                                                             \
  (*DAT_HANDLE_TO_PROVIDER(evd_handle)->evd_dequeue_func)((evd_handle), (event))
#define DAT_EVD_QUERY(evd_handle, mask, param)                                                                         \
  (*DAT_HANDLE_TO_PROVIDER(evd_handle)->evd_query_func)((evd_handle), (mask), (param))
#define DAT_EVD_FREE(evd_handle) (*DAT_HANDLE_TO_PROVIDER(evd_handle)->evd_free_func)((evd_handle))
#define DAT_EP_CREATE(ia_handle, pz_handle, recv_evd_handle, request_evd_handle, connect_evd_handle, ep_attributes,    \
                      ep_handle)                                                                                       \
  (*DAT_HANDLE_TO_PROVIDER(ia_handle)->ep_create_func)((ia_handle), (pz_handle), (recv_evd_handle),                    \
                                                       (request_evd_handle), (connect_evd_handle), (ep_attributes),    \
                                                       (ep_handle))
#define DAT_EP_CREATE_WITH_SRQ(ia_handle, pz_handle, recv_evd_handle, request_evd_handle, connect_evd_handle,          \
                               srq_handle, ep_attributes, ep_handle)                                                   \
  (*DAT_HANDLE_TO_PROVIDER(ia_handle)->ep_create_with_srq_func)((ia_handle), (pz_handle), (recv_evd_handle),           \
                                                                (request_evd_handle), (connect_evd_handle),            \
                                                                (srq_handle), (ep_attributes), (ep_handle))
#define DAT_EP_QUERY(ep_handle, mask, param)                                                                           \
  (*DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_query_func)((ep_handle), (mask), (param))
#define DAT_EP_MODIFY(ep_handle, mask, param)                                                                          \
  (*DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_modify_func)((ep_handle), (mask), (param))
#define DAT_EP_CONNECT(ep_handle, remote_ia_address, remote_conn_qual, timeout, private_data_size, private_data,       \
                       quality_of_service, connect_flags)                                                              \
  (*DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_connect_func)((ep_handle), (remote_ia_address), (remote_conn_qual),          \
                                                        (timeout), (private_data_size), (private_data),                \
                                                        (quality_of_service), (connect_flags))
#define DAT_EP_COMMON_CONNECT(ep_handle, remote_ia_address, timeout, private_data_size, private_data)                  \
  (*DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_common_connect_func)((ep_handle), (remote_ia_address), (timeout),            \
                                                               (private_data_size), (private_data))
#define DAT_EP_DUP_CONNECT(ep_handle, dup_ep_handle, timeout, private_data_size, private_data, quality_of_service)     \
  (*DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_dup_connect_func)((ep_handle), (dup_ep_handle), (timeout),                   \
                                                            (private_data_size), (private_data), (quality_of_service))
#define DAT_EP_DISCONNECT(ep_handle, close_flags)                                                                      \
  (*DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_disconnect_func)((ep_handle), (close_flags))
#define DAT_EP_POST_SEND(ep_handle, num_segments, local_iov, user_cookie, completion_flags)                            \
  (*DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_post_send_func)((ep_handle), (num_segments), (local_iov), (user_cookie),     \
                                                          (completion_flags))
#define DAT_EP_POST_SEND_WITH_INVALIDATE(ep_handle, num_segments, local_iov, user_cookie, completion_flags,            \
                                         invalidate_flag, rmr_context)                                                 \
  (*DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_post_send_with_invalidate_func)(                                             \
      (ep_handle), (num_segments), (local_iov), (user_cookie), (completion_flags), (invalidate_flag), (rmr_context))
#define DAT_EP_POST_RECV(ep_handle, num_segments, local_iov, user_cookie, completion_flags)                            \
  (*DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_post_recv_func)((ep_handle), (num_segments), (local_iov), (user_cookie),     \
                                                          (completion_flags))
#define DAT_EP_POST_RDMA_READ(ep_handle, num_segments, local_iov, user_cookie, remote_buffer, completion_flags)        \
  (*DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_post_rdma_read_func)((ep_handle), (num_segments), (local_iov),               \
                                                               (user_cookie), (remote_buffer), (completion_flags))
#define DAT_EP_POST_RDMA_READ_TO_RMR(ep_handle, local_buffer, user_cookie, remote_buffer, completion_flags)            \
  (*DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_post_rdma_read_to_rmr_func)((ep_handle), (local_buffer), (user_cookie),      \
                                                                      (remote_buffer), (completion_flags))
#define DAT_EP_POST_RDMA_WRITE(ep_handle, num_segments, local_iov, user_cookie, remote_buffer, completion_flags)       \
  (*DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_post_rdma_write_func)((ep_handle), (num_segments), (local_iov),              \
                                                                (user_cookie), (remote_buffer), (completion_flags))
#define DAT_EP_GET_STATUS(ep_handle, ep_state, recv_idle, request_idle)                                                \
  (*DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_get_status_func)((ep_handle), (ep_state), (recv_idle), (request_idle))
#define DAT_EP_FREE(ep_handle) (*DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_free_func)((ep_handle))
#define DAT_EP_RESET(ep_handle) (*DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_reset_func)((ep_handle))
#define DAT_EP_RECV_QUERY(ep_handle, nbufs_allocated, bufs_alloc_span)                                                 \
  (*DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_recv_query_func)((ep_handle), (nbufs_allocated), (bufs_alloc_span))
#define DAT_EP_SET_WATERMARK(ep_handle, soft_high_watermark, hard_high_watermark)                                      \
  (*DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_set_watermark_func)((ep_handle), (soft_high_watermark), (hard_high_watermark))
#define DAT_LMR_FREE(lmr_handle) (*DAT_HANDLE_TO_PROVIDER(lmr_handle)->lmr_free_func)((lmr_handle))
#define DAT_LMR_SYNC_RDMA_READ(ia_handle, local_segments, num_segments)                                                \
  (*DAT_HANDLE_TO_PROVIDER(ia_handle)->lmr_sync_rdma_read_func)((ia_handle), (local_segments), (num_segments))
#define DAT_LMR_SYNC_RDMA_WRITE(ia_handle, local_segments, num_segments)                                               \
  (*DAT_HANDLE_TO_PROVIDER(ia_handle)->lmr_sync_rdma_write_func)((ia_handle), (local_segments), (num_segments))
#define DAT_RMR_CREATE(pz_handle, rmr_handle)                                                                          \
  (*DAT_HANDLE_TO_PROVIDER(pz_handle)->rmr_create_func)((pz_handle), (rmr_handle))
#define DAT_RMR_CREATE_FOR_EP(pz_handle, rmr_handle)                                                                   \
  (*DAT_HANDLE_TO_PROVIDER(pz_handle)->rmr_create_for_ep_func)((pz_handle), (rmr_handle))
#define DAT_RMR_QUERY(rmr_handle, mask, param)                                                                         \
  (*DAT_HANDLE_TO_PROVIDER(rmr_handle)->rmr_query_func)((rmr_handle), (mask), (param))
#define DAT_RMR_BIND(rmr_handle, lmr_handle, lmr_triplet, mem_priv, va_type, ep_handle, user_cookie, completion_flags, \
                     context)                                                                                          \
  (*DAT_HANDLE_TO_PROVIDER(rmr_handle)->rmr_bind_func)((rmr_handle), (lmr_handle), (lmr_triplet), (mem_priv),          \
                                                       (va_type), (ep_handle), (user_cookie), (completion_flags),      \
                                                       (context))
#define DAT_RMR_FREE(rmr_handle) (*DAT_HANDLE_TO_PROVIDER(rmr_handle)->rmr_free_func)((rmr_handle))
#define DAT_PSP_CREATE(ia_handle, conn_qual, evd_handle, psp_flags, psp_handle)                                        \
  (*DAT_HANDLE_TO_PROVIDER(ia_handle)->psp_create_func)((ia_handle), (conn_qual), (evd_handle), (psp_flags),           \
                                                        (psp_handle))
#define DAT_PSP_CREATE_ANY(ia_handle, conn_qual, evd_handle, psp_flags, psp_handle)                                    \
  (*DAT_HANDLE_TO_PROVIDER(ia_handle)->psp_create_any_func)((ia_handle), (conn_qual), (evd_handle), (psp_flags),       \
                                                            (psp_handle))
#define DAT_PSP_QUERY(psp_handle, mask, param)                                                                         \
  (*DAT_HANDLE_TO_PROVIDER(psp_handle)->psp_query_func)((psp_handle), (mask), (param))
#define DAT_PSP_FREE(psp_handle) (*DAT_HANDLE_TO_PROVIDER(psp_handle)->psp_free_func)((psp_handle))
#define DAT_RSP_CREATE(ia_handle, conn_qual, ep_handle, evd_handle, rsp_handle)                                        \
  (*DAT_HANDLE_TO_PROVIDER(ia_handle)->rsp_create_func)((ia_handle), (conn_qual), (ep_handle), (evd_handle),           \
                                                        (rsp_handle))
#define DAT_RSP_QUERY(rsp_handle, mask, param)                                                                         \
  (*DAT_HANDLE_TO_PROVIDER(rsp_handle)->rsp_query_func)((rsp_handle), (mask), (param))
#define DAT_RSP_FREE(rsp_handle) (*DAT_HANDLE_TO_PROVIDER(rsp_handle)->rsp_free_func)((rsp_handle))
#define DAT_CSP_CREATE(ia_handle, comm, address, evd_handle, csp_handle)                                               \
  (*DAT_HANDLE_TO_PROVIDER(ia_handle)->csp_create_func)((ia_handle), (comm), (address), (evd_handle), (csp_handle))
#define DAT_CSP_QUERY(csp_handle, mask, param)                                                                         \
  (*DAT_HANDLE_TO_PROVIDER(csp_handle)->csp_query_func)((csp_handle), (mask), (param))
#define DAT_CSP_FREE(csp_handle) (*DAT_HANDLE_TO_PROVIDER(csp_handle)->csp_free_func)((csp_handle))
#define DAT_PZ_CREATE(ia_handle, pz_handle)                                                                            \
  (*DAT_HANDLE_TO_PROVIDER(ia_handle)->pz_create_func)((ia_handle), (pz_handle))
#define DAT_PZ_QUERY(pz_handle, mask, param)                                                                           \
  (*DAT_HANDLE_TO_PROVIDER(pz_handle)->pz_query_func)((pz_handle), (mask), (param))
#define DAT_PZ_FREE(pz_handle) (*DAT_HANDLE_TO_PROVIDER(pz_handle)->pz_free_func)((pz_handle))
#define DAT_SRQ_CREATE(ia_handle, pz_handle, srq_attr, srq_handle)                                                     \
  (*DAT_HANDLE_TO_PROVIDER(ia_handle)->srq_create_func)((ia_handle), (pz_handle), (srq_attr), (srq_handle))
#define DAT_SRQ_FREE(srq_handle) (*DAT_HANDLE_TO_PROVIDER(srq_handle)->srq_free_func)((srq_handle))
#define DAT_SRQ_POST_RECV(srq_handle, num_segments, local_iov, user_cookie)                                            \
  (*DAT_HANDLE_TO_PROVIDER(srq_handle)->srq_post_recv_func)((srq_handle), (num_segments), (local_iov), (user_cookie))
#define DAT_SRQ_QUERY(srq_handle, mask, param)                                                                         \
  (*DAT_HANDLE_TO_PROVIDER(srq_handle)->srq_query_func)((srq_handle), (mask), (param))
#define DAT_SRQ_RESIZE(srq_handle, srq_max_recv_dto)                                                                   \
  (*DAT_HANDLE_TO_PROVIDER(srq_handle)->srq_resize_func)((srq_handle), (srq_max_recv_dto))
#define DAT_SRQ_SET_LW(srq_handle, low_watermark)                                                                      \
  (*DAT_HANDLE_TO_PROVIDER(srq_handle)->srq_set_lw_func)((srq_handle), (low_watermark))
#define DAT_IA_HA_RELATED(ia_handle, ia_name, answer)                                                                  \
  (*DAT_HANDLE_TO_PROVIDER(ia_handle)->ia_ha_related_func)((ia_handle), (ia_name), (answer))
#ifdef DAT_EXTENSIONS
#define DAT_HANDLE_EXTENDEDOP(handle, operation, arguments)                                                            \
  (*DAT_HANDLE_TO_PROVIDER(handle)->handle_extendedop_func)((handle), (operation), (arguments))
#endif

#endif
