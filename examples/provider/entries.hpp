// The entries of the provider table. Each has the type that the table has for it, and is defined in the file of its
// group. SPDX-License-Identifier: BSL-1.0
#pragma once

#include "handle.hpp"

#include <type_traits>

namespace provider {

template <class Pointer>
using entry_of = std::remove_pointer_t<Pointer>;

// ia.cpp
entry_of<DAT_IA_OPEN_FUNC> ia_open;
entry_of<DAT_IA_OPEN_FUNC> ia_open_threadsafe;
entry_of<DAT_IA_QUERY_FUNC> ia_query;
entry_of<DAT_IA_CLOSE_FUNC> ia_close;
entry_of<DAT_SET_CONSUMER_CONTEXT_FUNC> set_consumer_context;
entry_of<DAT_GET_CONSUMER_CONTEXT_FUNC> get_consumer_context;
entry_of<DAT_GET_HANDLE_TYPE_FUNC> get_handle_type;
entry_of<DAT_IA_HA_RELATED_FUNC> ia_ha_related;

// evd.cpp
entry_of<DAT_EVD_CREATE_FUNC> evd_create;
entry_of<DAT_EVD_QUERY_FUNC> evd_query;
entry_of<DAT_EVD_MODIFY_CNO_FUNC> evd_modify_cno;
entry_of<DAT_EVD_ENABLE_FUNC> evd_enable;
entry_of<DAT_EVD_DISABLE_FUNC> evd_disable;
entry_of<DAT_EVD_WAIT_FUNC> evd_wait;
entry_of<DAT_EVD_RESIZE_FUNC> evd_resize;
entry_of<DAT_EVD_POST_SE_FUNC> evd_post_se;
entry_of<DAT_EVD_DEQUEUE_FUNC> evd_dequeue;
entry_of<DAT_EVD_FREE_FUNC> evd_free;
entry_of<DAT_EVD_SET_UNWAITABLE_FUNC> evd_set_unwaitable;
entry_of<DAT_EVD_CLEAR_UNWAITABLE_FUNC> evd_clear_unwaitable;

// cno.cpp
entry_of<DAT_CNO_CREATE_FUNC> cno_create;
entry_of<DAT_CNO_MODIFY_AGENT_FUNC> cno_modify_agent;
entry_of<DAT_CNO_QUERY_FUNC> cno_query;
entry_of<DAT_CNO_FREE_FUNC> cno_free;
entry_of<DAT_CNO_WAIT_FUNC> cno_wait;
entry_of<DAT_CNO_FD_CREATE_FUNC> cno_fd_create;
entry_of<DAT_CNO_TRIGGER_FUNC> cno_trigger;

// connection.cpp
entry_of<DAT_CR_QUERY_FUNC> cr_query;
entry_of<DAT_CR_ACCEPT_FUNC> cr_accept;
entry_of<DAT_CR_REJECT_FUNC> cr_reject;
entry_of<DAT_CR_HANDOFF_FUNC> cr_handoff;
entry_of<DAT_EP_CONNECT_FUNC> ep_connect;
entry_of<DAT_EP_DUP_CONNECT_FUNC> ep_dup_connect;
entry_of<DAT_EP_DISCONNECT_FUNC> ep_disconnect;
entry_of<DAT_PSP_CREATE_FUNC> psp_create;
entry_of<DAT_PSP_QUERY_FUNC> psp_query;
entry_of<DAT_PSP_FREE_FUNC> psp_free;
entry_of<DAT_RSP_CREATE_FUNC> rsp_create;
entry_of<DAT_RSP_QUERY_FUNC> rsp_query;
entry_of<DAT_RSP_FREE_FUNC> rsp_free;
entry_of<DAT_PSP_CREATE_ANY_FUNC> psp_create_any;
entry_of<DAT_CSP_CREATE_FUNC> csp_create;
entry_of<DAT_CSP_QUERY_FUNC> csp_query;
entry_of<DAT_CSP_FREE_FUNC> csp_free;
entry_of<DAT_EP_COMMON_CONNECT_FUNC> ep_common_connect;

// ep.cpp
entry_of<DAT_EP_CREATE_FUNC> ep_create;
entry_of<DAT_EP_QUERY_FUNC> ep_query;
entry_of<DAT_EP_MODIFY_FUNC> ep_modify;
entry_of<DAT_EP_GET_STATUS_FUNC> ep_get_status;
entry_of<DAT_EP_FREE_FUNC> ep_free;
entry_of<DAT_EP_RESET_FUNC> ep_reset;
entry_of<DAT_EP_CREATE_WITH_SRQ_FUNC> ep_create_with_srq;
entry_of<DAT_EP_RECV_QUERY_FUNC> ep_recv_query;
entry_of<DAT_EP_SET_WATERMARK_FUNC> ep_set_watermark;

// dto.cpp
entry_of<DAT_EP_POST_SEND_FUNC> ep_post_send;
entry_of<DAT_EP_POST_RECV_FUNC> ep_post_recv;
entry_of<DAT_EP_POST_RDMA_READ_FUNC> ep_post_rdma_read;
entry_of<DAT_EP_POST_RDMA_WRITE_FUNC> ep_post_rdma_write;
entry_of<DAT_EP_POST_SEND_WITH_INVALIDATE_FUNC> ep_post_send_with_invalidate;
entry_of<DAT_EP_POST_RDMA_READ_TO_RMR_FUNC> ep_post_rdma_read_to_rmr;

// memory.cpp
entry_of<DAT_LMR_CREATE_FUNC> lmr_create;
entry_of<DAT_LMR_QUERY_FUNC> lmr_query;
entry_of<DAT_LMR_FREE_FUNC> lmr_free;
entry_of<DAT_RMR_CREATE_FUNC> rmr_create;
entry_of<DAT_RMR_QUERY_FUNC> rmr_query;
entry_of<DAT_RMR_BIND_FUNC> rmr_bind;
entry_of<DAT_RMR_FREE_FUNC> rmr_free;
entry_of<DAT_PZ_CREATE_FUNC> pz_create;
entry_of<DAT_PZ_QUERY_FUNC> pz_query;
entry_of<DAT_PZ_FREE_FUNC> pz_free;
entry_of<DAT_LMR_SYNC_RDMA_READ_FUNC> lmr_sync_rdma_read;
entry_of<DAT_LMR_SYNC_RDMA_WRITE_FUNC> lmr_sync_rdma_write;
entry_of<DAT_RMR_CREATE_FOR_EP_FUNC> rmr_create_for_ep;

// srq.cpp
entry_of<DAT_SRQ_CREATE_FUNC> srq_create;
entry_of<DAT_SRQ_FREE_FUNC> srq_free;
entry_of<DAT_SRQ_POST_RECV_FUNC> srq_post_recv;
entry_of<DAT_SRQ_QUERY_FUNC> srq_query;
entry_of<DAT_SRQ_RESIZE_FUNC> srq_resize;
entry_of<DAT_SRQ_SET_LW_FUNC> srq_set_lw;

// extensions.cpp
entry_of<DAT_HANDLE_EXTENDEDOP_FUNC> handle_extendedop;

} // namespace provider
