// The functions that the registry passes on: name, subtype of the error for a bad handle, and arguments.
// SPDX-License-Identifier: BSL-1.0
#ifndef CALLS_H
#define CALLS_H

#define CALLS(ROW)                                                                                                     \
  ROW(ia_query, DAT_INVALID_HANDLE_IA, h, 0, 0, 0, 0, 0)                                                               \
  ROW(set_consumer_context, DAT_INVALID_HANDLE1, h, cookie)                                                            \
  ROW(get_consumer_context, DAT_INVALID_HANDLE1, h, 0)                                                                 \
  ROW(get_handle_type, DAT_INVALID_HANDLE1, h, 0)                                                                      \
  ROW(cno_create, DAT_INVALID_HANDLE_IA, h, agent, 0)                                                                  \
  ROW(cno_fd_create, DAT_INVALID_HANDLE_IA, h, 0, 0)                                                                   \
  ROW(cno_trigger, DAT_INVALID_HANDLE_CNO, h, 0)                                                                       \
  ROW(cno_modify_agent, DAT_INVALID_HANDLE_CNO, h, agent)                                                              \
  ROW(cno_query, DAT_INVALID_HANDLE_CNO, h, 0, 0)                                                                      \
  ROW(cno_free, DAT_INVALID_HANDLE_CNO, h)                                                                             \
  ROW(cno_wait, DAT_INVALID_HANDLE_CNO, h, 0, 0)                                                                       \
  ROW(evd_resize, DAT_INVALID_HANDLE1, h, 0)                                                                           \
  ROW(evd_post_se, DAT_INVALID_HANDLE1, h, 0)                                                                          \
  ROW(evd_dequeue, DAT_INVALID_HANDLE1, h, 0)                                                                          \
  ROW(evd_query, DAT_INVALID_HANDLE1, h, 0, 0)                                                                         \
  ROW(evd_free, DAT_INVALID_HANDLE1, h)                                                                                \
  ROW(evd_create, DAT_INVALID_HANDLE_IA, h, 0, 0, 0, 0)                                                                \
  ROW(evd_modify_cno, DAT_INVALID_HANDLE1, h, 0)                                                                       \
  ROW(evd_enable, DAT_INVALID_HANDLE1, h)                                                                              \
  ROW(evd_disable, DAT_INVALID_HANDLE1, h)                                                                             \
  ROW(evd_set_unwaitable, DAT_INVALID_HANDLE1, h)                                                                      \
  ROW(evd_clear_unwaitable, DAT_INVALID_HANDLE1, h)                                                                    \
  ROW(evd_wait, DAT_INVALID_HANDLE1, h, 0, 0, 0, 0)                                                                    \
  ROW(ep_create, DAT_INVALID_HANDLE_IA, h, 0, 0, 0, 0, 0, 0)                                                           \
  ROW(ep_create_with_srq, DAT_INVALID_HANDLE_IA, h, 0, 0, 0, 0, 0, 0, 0)                                               \
  ROW(ep_query, DAT_INVALID_HANDLE_EP, h, 0, 0)                                                                        \
  ROW(ep_modify, DAT_INVALID_HANDLE_EP, h, 0, 0)                                                                       \
  ROW(ep_connect, DAT_INVALID_HANDLE_EP, h, 0, 0, 0, 0, 0, 0, 0)                                                       \
  ROW(ep_common_connect, DAT_INVALID_HANDLE_EP, h, 0, 0, 0, 0)                                                         \
  ROW(ep_dup_connect, DAT_INVALID_HANDLE_EP, h, 0, 0, 0, 0, 0)                                                         \
  ROW(ep_disconnect, DAT_INVALID_HANDLE_EP, h, 0)                                                                      \
  ROW(ep_post_send, DAT_INVALID_HANDLE_EP, h, 0, 0, cookie, 0)                                                         \
  ROW(ep_post_send_with_invalidate, DAT_INVALID_HANDLE_EP, h, 0, 0, cookie, 0, 0, 0)                                   \
  ROW(ep_post_recv, DAT_INVALID_HANDLE_EP, h, 0, 0, cookie, 0)                                                         \
  ROW(ep_post_rdma_read, DAT_INVALID_HANDLE_EP, h, 0, 0, cookie, 0, 0)                                                 \
  ROW(ep_post_rdma_read_to_rmr, DAT_INVALID_HANDLE_EP, h, 0, cookie, 0, 0)                                             \
  ROW(ep_post_rdma_write, DAT_INVALID_HANDLE_EP, h, 0, 0, cookie, 0, 0)                                                \
  ROW(ep_get_status, DAT_INVALID_HANDLE_EP, h, 0, 0, 0)                                                                \
  ROW(ep_free, DAT_INVALID_HANDLE_EP, h)                                                                               \
  ROW(ep_reset, DAT_INVALID_HANDLE_EP, h)                                                                              \
  ROW(ep_recv_query, DAT_INVALID_HANDLE_EP, h, 0, 0)                                                                   \
  ROW(ep_set_watermark, DAT_INVALID_HANDLE_EP, h, 0, 0)                                                                \
  ROW(cr_query, DAT_INVALID_HANDLE_CR, h, 0, 0)                                                                        \
  ROW(cr_accept, DAT_INVALID_HANDLE_CR, h, 0, 0, 0)                                                                    \
  ROW(cr_reject, DAT_INVALID_HANDLE_CR, h, 0, 0)                                                                       \
  ROW(cr_handoff, DAT_INVALID_HANDLE_CR, h, 0)                                                                         \
  ROW(psp_create, DAT_INVALID_HANDLE_IA, h, 0, 0, 0, 0)                                                                \
  ROW(psp_create_any, DAT_INVALID_HANDLE_IA, h, 0, 0, 0, 0)                                                            \
  ROW(psp_query, DAT_INVALID_HANDLE_PSP, h, 0, 0)                                                                      \
  ROW(psp_free, DAT_INVALID_HANDLE_PSP, h)                                                                             \
  ROW(rsp_create, DAT_INVALID_HANDLE_IA, h, 0, 0, 0, 0)                                                                \
  ROW(rsp_query, DAT_INVALID_HANDLE_RSP, h, 0, 0)                                                                      \
  ROW(rsp_free, DAT_INVALID_HANDLE_RSP, h)                                                                             \
  ROW(csp_create, DAT_INVALID_HANDLE_IA, h, 0, 0, 0, 0)                                                                \
  ROW(csp_query, DAT_INVALID_HANDLE_CSP, h, 0, 0)                                                                      \
  ROW(csp_free, DAT_INVALID_HANDLE_CSP, h)                                                                             \
  ROW(pz_create, DAT_INVALID_HANDLE_IA, h, 0)                                                                          \
  ROW(pz_query, DAT_INVALID_HANDLE_PZ, h, 0, 0)                                                                        \
  ROW(pz_free, DAT_INVALID_HANDLE_PZ, h)                                                                               \
  ROW(lmr_free, DAT_INVALID_HANDLE_LMR, h)                                                                             \
  ROW(lmr_sync_rdma_read, DAT_INVALID_HANDLE_IA, h, 0, 0)                                                              \
  ROW(lmr_sync_rdma_write, DAT_INVALID_HANDLE_IA, h, 0, 0)                                                             \
  ROW(lmr_create, DAT_INVALID_HANDLE_IA, h, 0, region, 0, 0, 0, 0, 0, 0, 0, 0, 0)                                      \
  ROW(lmr_query, DAT_INVALID_HANDLE_LMR, h, 0, 0)                                                                      \
  ROW(rmr_create, DAT_INVALID_HANDLE_PZ, h, 0)                                                                         \
  ROW(rmr_create_for_ep, DAT_INVALID_HANDLE_PZ, h, 0)                                                                  \
  ROW(rmr_query, DAT_INVALID_HANDLE_RMR, h, 0, 0)                                                                      \
  ROW(rmr_bind, DAT_INVALID_HANDLE_RMR, h, 0, 0, 0, 0, 0, cookie, 0, 0)                                                \
  ROW(rmr_free, DAT_INVALID_HANDLE_RMR, h)                                                                             \
  ROW(srq_create, DAT_INVALID_HANDLE_IA, h, 0, 0, 0)                                                                   \
  ROW(srq_free, DAT_INVALID_HANDLE_SRQ, h)                                                                             \
  ROW(srq_post_recv, DAT_INVALID_HANDLE_SRQ, h, 0, 0, cookie)                                                          \
  ROW(srq_query, DAT_INVALID_HANDLE_SRQ, h, 0, 0)                                                                      \
  ROW(srq_resize, DAT_INVALID_HANDLE_SRQ, h, 0)                                                                        \
  ROW(srq_set_lw, DAT_INVALID_HANDLE_SRQ, h, 0)

#endif
