// The extended operations: atomics, immediate data, counters and datagrams.
// SPDX-License-Identifier: BSL-1.0
#include "provider_test.h"

static void extended(struct side* s, DAT_UINT64 cookie, int operation, int type, DAT_UINT32 immediate) {
  const DAT_EVENT e = event_of(s->evd, DAT_IB_DTO_EVENT);
  const DAT_DTO_COMPLETION_EVENT_DATA* d = &e.event_data.dto_completion_event_data;
  const DAT_IB_EXTENSION_EVENT_DATA* x = (const DAT_IB_EXTENSION_EVENT_DATA*)e.event_extension_data;
  CHECK(d->ep_handle == s->ep && d->user_cookie.as_64 == cookie && d->status == DAT_DTO_SUCCESS);
  CHECK((int)d->operation == operation && (int)x->type == type && x->status == DAT_OP_SUCCESS);
  CHECK(x->val.immed.data == immediate);
}

void extensions(void) {
  DAT_LMR_TRIPLET word_here = local(&a, 512, 8), from = local(&a, 0, 8);
  DAT_RMR_TRIPLET word_there = remote(&b, 1024, 8), there = remote(&b, 128, 8);
  DAT_UINT64* const counter = (DAT_UINT64*)(void*)(b.memory + 1024);
  DAT_UINT64 counts[DCNT_EP_ALL_COUNTERS];
  *counter = 40;
  SUCCEEDS(dat_ib_post_fetch_and_add(a.ep, 2, &word_here, cookie_of(1), &word_there, DAT_COMPLETION_DEFAULT_FLAG));
  extended(&a, 1, DAT_IB_DTO_FETCH_ADD, DAT_IB_FETCH_AND_ADD, 0);
  CHECK(*counter == 42 && *(DAT_UINT64*)(void*)(a.memory + 512) == 40);
  SUCCEEDS(dat_ib_post_cmp_and_swap(a.ep, 42, 7, &word_here, cookie_of(2), &word_there, DAT_COMPLETION_DEFAULT_FLAG));
  extended(&a, 2, DAT_IB_DTO_CMP_SWAP, DAT_IB_CMP_AND_SWAP, 0);
  CHECK(*counter == 7);
  SUCCEEDS(dat_ep_post_recv(b.ep, 0, NULL, cookie_of(3), DAT_COMPLETION_DEFAULT_FLAG));
  SUCCEEDS(dat_ib_post_rdma_write_immed(a.ep, 1, &from, cookie_of(4), &there, 0x1234, DAT_COMPLETION_DEFAULT_FLAG));
  extended(&a, 4, DAT_IB_DTO_RDMA_WRITE_IMMED, DAT_IB_RDMA_WRITE_IMMED, 0);
  extended(&b, 3, DAT_IB_DTO_RECV_IMMED, DAT_IB_RDMA_WRITE_IMMED_DATA, 0x1234);

  word_there.virtual_address += 4;
  RETURNS(dat_ib_post_fetch_and_add(a.ep, 2, &word_here, cookie_of(1), &word_there, DAT_COMPLETION_DEFAULT_FLAG),
          DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
  word_here.segment_length = 4;
  RETURNS(dat_ib_post_fetch_and_add(a.ep, 2, &word_here, cookie_of(1), &word_there, DAT_COMPLETION_DEFAULT_FLAG),
          DAT_LENGTH_ERROR, 0);
  RETURNS(dat_ib_post_fetch_and_add(a.ep, 2, NULL, cookie_of(1), &word_there, 0), DAT_INVALID_PARAMETER,
          DAT_INVALID_ARG4);
  RETURNS(dat_ib_post_cmp_and_swap(a.ep, 2, 3, &word_here, cookie_of(1), NULL, 0), DAT_INVALID_PARAMETER,
          DAT_INVALID_ARG6);
  RETURNS(dat_ib_post_rdma_write_immed(a.ep, 1, &from, cookie_of(1), NULL, 0, 0), DAT_INVALID_PARAMETER,
          DAT_INVALID_ARG6);
  RETURNS(dat_ib_post_rdma_write_immed(a.evd, 1, &from, cookie_of(1), &there, 0, 0), DAT_INVALID_HANDLE,
          DAT_INVALID_HANDLE_EP);
  RETURNS(dat_ib_post_send_ud(a.ep, 1, &from, NULL, cookie_of(1), 0), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
  RETURNS(dat_extension_op(a.ep, DAT_IB_COLLECTIVE_BARRIER_OP, cookie_of(0), 0), DAT_MODEL_NOT_SUPPORTED, 0);
  RETURNS(dat_extension_op(a.ep, 999), DAT_MODEL_NOT_SUPPORTED, 0);

  SUCCEEDS(dat_ib_query_counters(a.ep, DCNT_EP_ALL_COUNTERS, counts, 0));
  CHECK(counts[DCNT_EP_POST_FETCH_ADD] >= 1 && counts[DCNT_EP_POST_SEND] == 2 && counts[DCNT_EP_CONNECT] == 1);
  SUCCEEDS(dat_ib_query_counters(a.ep, DCNT_EP_POST_SEND, counts, 1));
  CHECK(counts[0] == 2);
  SUCCEEDS(dat_ib_query_counters(a.ep, DCNT_EP_POST_SEND, counts, 0));
  CHECK(counts[0] == 0);
  SUCCEEDS(dat_ib_query_counters(a.evd, DCNT_EVD_WAIT, counts, 0));
  CHECK(counts[0] != 0);
  SUCCEEDS(dat_ib_query_counters(a.evd, DCNT_EVD_ALL_COUNTERS, counts, 0));
  CHECK(counts[DCNT_EVD_DEQUEUE] == counts[DCNT_EVD_DEQUEUE_FOUND] + counts[DCNT_EVD_DEQUEUE_NOT_FOUND]);
  SUCCEEDS(dat_ib_query_counters(a.ia, DCNT_IA_PZ_CREATE, counts, 0));
  CHECK(counts[0] == 1);
  RETURNS(dat_ib_query_counters(a.ep, DCNT_EP_ALL_COUNTERS + 1, counts, 0), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_ib_query_counters(a.ep, -1, counts, 0), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_ib_query_counters(a.ep, 0, NULL, 0), DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
  RETURNS(dat_ib_query_counters(a.pz, 0, counts, 0), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1);
}

void datagrams(void) {
  DAT_EP_ATTR attributes = usual_attributes();
  DAT_EP_HANDLE near, far;
  DAT_EP_STATE state;
  DAT_BOOLEAN recv_idle, request_idle;
  DAT_LMR_TRIPLET out = local(&a, 0, 8), in = local(&b, 2048, 256);
  DAT_IB_EXTENSION_EVENT_DATA known;
  DAT_CR_PARAM request;
  char hello[] = "hello";
  attributes.service_type = (DAT_SERVICE_TYPE)DAT_IB_SERVICE_TYPE_UD;
  SUCCEEDS(dat_ep_create(a.ia, a.pz, a.evd, a.evd, a.evd, &attributes, &near));
  SUCCEEDS(dat_ep_create(b.ia, b.pz, b.evd, b.evd, b.evd, &attributes, &far));
  SUCCEEDS(dat_ep_get_status(far, &state, &recv_idle, &request_idle));
  CHECK(state == DAT_EP_STATE_CONNECTED && recv_idle && request_idle);
  SUCCEEDS(dat_ep_post_recv(far, 1, &in, cookie_of(9), DAT_COMPLETION_DEFAULT_FLAG));
  SUCCEEDS(dat_ep_get_status(far, NULL, &recv_idle, &request_idle));
  CHECK(!recv_idle && request_idle);
  SUCCEEDS(dat_ep_connect(near, (DAT_IA_ADDRESS_PTR)&b.address, port, PLENTY, sizeof hello, hello, DAT_QOS_BEST_EFFORT,
                          DAT_CONNECT_DEFAULT_FLAG));
  const DAT_EVENT arrived = event_of(b.evd, DAT_IB_UD_CONNECTION_REQUEST_EVENT);
  const DAT_CR_HANDLE cr = arrived.event_data.cr_arrival_event_data.cr_handle;
  CHECK(arrived.event_data.cr_arrival_event_data.sp_handle.psp_handle == psp);
  SUCCEEDS(dat_cr_query(cr, DAT_CR_FIELD_ALL, &request));
  CHECK(request.private_data_size == (DAT_COUNT)sizeof hello);
  RETURNS(dat_cr_accept(cr, b.ep, 0, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2); // of another service
  SUCCEEDS(dat_cr_accept(cr, far, 0, NULL));
  const DAT_EVENT up = event_of(a.evd, DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED);
  const DAT_EVENT passive = event_of(b.evd, DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED);
  memcpy(&known, passive.event_extension_data, sizeof known);
  CHECK(known.type == DAT_IB_UD_PASSIVE_REMOTE_AH && known.remote_ah.ah);
  SUCCEEDS(dat_ib_ud_ah_free(far, &known.remote_ah));
  memcpy(&known, up.event_extension_data, sizeof known);
  CHECK(known.type == DAT_IB_UD_REMOTE_AH && known.status == DAT_OP_SUCCESS && known.remote_ah.qpn != 0);
  SUCCEEDS(dat_extension_op(near, DAT_IB_UD_CM_FREE_OP, known.context)); // dat_ib_ud_cm_free casts to a union
  SUCCEEDS(dat_ib_post_send_ud(near, 1, &out, &known.remote_ah, cookie_of(8), DAT_COMPLETION_DEFAULT_FLAG));
  const DAT_EVENT sent = event_of(a.evd, DAT_IB_DTO_EVENT);
  CHECK((int)sent.event_data.dto_completion_event_data.operation == DAT_IB_DTO_SEND_UD);
  const DAT_EVENT got = event_of(b.evd, DAT_IB_DTO_EVENT);
  CHECK((int)got.event_data.dto_completion_event_data.operation == DAT_IB_DTO_RECV_UD);
  CHECK(got.event_data.dto_completion_event_data.transfered_length == 40 + 8);
  SUCCEEDS(dat_ep_get_status(far, NULL, &recv_idle, NULL));
  CHECK(recv_idle);
  RETURNS(dat_ib_post_send_ud(near, 1, &out, &known.remote_ah, cookie_of(8), DAT_COMPLETION_BARRIER_FENCE_FLAG),
          DAT_INVALID_PARAMETER, DAT_INVALID_ARG7);
  RETURNS(dat_ib_post_send_ud(near, 1, &out, NULL, cookie_of(8), 0), DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
  SUCCEEDS(dat_ib_ud_ah_free(near, &known.remote_ah));
  RETURNS(dat_ib_ud_ah_free(near, &known.remote_ah), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1);
  RETURNS(dat_ib_post_send_ud(near, 1, &out, &known.remote_ah, cookie_of(8), 0), DAT_INVALID_PARAMETER,
          DAT_INVALID_ARG5);
  SUCCEEDS(dat_ep_free(near));
  SUCCEEDS(dat_ep_free(far));
}
