// The provider: each entry with right arguments, and with each argument wrong in turn; freed and foreign handles;
// threads. SPDX-License-Identifier: BSL-1.0
#include "calls.h"
#include "check.h"
#include "side.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

// provider_test PROVIDER ADAPTER ADAPTER: the library, and two adapters that reach each other.

static struct side a, b;
static DAT_PSP_HANDLE psp;
enum { port = 7471 };

static DAT_EVENT completion(struct side* s, DAT_UINT64 cookie, int operation, DAT_SEG_LENGTH length) {
  const DAT_EVENT e = event_of(s->evd, DAT_DTO_COMPLETION_EVENT);
  const DAT_DTO_COMPLETION_EVENT_DATA* d = &e.event_data.dto_completion_event_data;
  CHECK(d->ep_handle == s->ep && d->user_cookie.as_64 == cookie && d->status == DAT_DTO_SUCCESS);
  CHECK((int)d->operation == operation && d->transfered_length == length);
  return e;
}

static void extended(struct side* s, DAT_UINT64 cookie, int operation, int type, DAT_UINT32 immediate) {
  const DAT_EVENT e = event_of(s->evd, DAT_IB_DTO_EVENT);
  const DAT_DTO_COMPLETION_EVENT_DATA* d = &e.event_data.dto_completion_event_data;
  const DAT_IB_EXTENSION_EVENT_DATA* x = (const DAT_IB_EXTENSION_EVENT_DATA*)e.event_extension_data;
  CHECK(d->ep_handle == s->ep && d->user_cookie.as_64 == cookie && d->status == DAT_DTO_SUCCESS);
  CHECK((int)d->operation == operation && (int)x->type == type && x->status == DAT_OP_SUCCESS);
  CHECK(x->val.immed.data == immediate);
}

static void moves_data(void) {
  DAT_LMR_TRIPLET from = local(&a, 0, 8), into = local(&b, 64, 16);
  DAT_LMR_TRIPLET pieces[5] = {local(&a, 0, 2), local(&a, 2, 2), local(&a, 0, 0), local(&a, 4, 2), local(&a, 6, 2)};
  DAT_RMR_TRIPLET there = remote(&b, 128, 8);
  strcpy(a.memory, "payload");
  SUCCEEDS(dat_ep_post_recv(b.ep, 1, &into, cookie_of(1), DAT_COMPLETION_DEFAULT_FLAG));
  SUCCEEDS(dat_ep_post_send(a.ep, 1, &from, cookie_of(2), DAT_COMPLETION_SOLICITED_WAIT_FLAG));
  (void)completion(&a, 2, DAT_DTO_SEND, 8);
  (void)completion(&b, 1, DAT_DTO_RECEIVE, 8);
  CHECK(strcmp(b.memory + 64, "payload") == 0);

  SUCCEEDS(dat_ep_post_recv(b.ep, 0, NULL, cookie_of(3), DAT_COMPLETION_DEFAULT_FLAG));
  SUCCEEDS(dat_ep_post_send(a.ep, 0, NULL, cookie_of(4), DAT_COMPLETION_DEFAULT_FLAG));
  (void)completion(&a, 4, DAT_DTO_SEND, 0);
  (void)completion(&b, 3, DAT_DTO_RECEIVE, 0);

  SUCCEEDS(dat_ep_post_rdma_write(a.ep, 5, pieces, cookie_of(5), &there, DAT_COMPLETION_DEFAULT_FLAG));
  (void)completion(&a, 5, DAT_DTO_RDMA_WRITE, 8);
  CHECK(strcmp(b.memory + 128, "payload") == 0);
  from = local(&a, 256, 8);
  SUCCEEDS(dat_ep_post_rdma_read(a.ep, 1, &from, cookie_of(6), &there, DAT_COMPLETION_BARRIER_FENCE_FLAG));
  (void)completion(&a, 6, DAT_DTO_RDMA_READ, 8);
  CHECK(strcmp(a.memory + 256, "payload") == 0);
  SUCCEEDS(dat_ep_post_rdma_write(a.ep, 1, &from, cookie_of(7), &there, DAT_COMPLETION_SUPPRESS_FLAG));
  SUCCEEDS(dat_ep_post_rdma_write(a.ep, 1, &from, cookie_of(8), &there, DAT_COMPLETION_DEFAULT_FLAG));
  (void)completion(&a, 8, DAT_DTO_RDMA_WRITE, 8); // the suppressed one has none
}

static void extensions(void) {
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

static void datagrams(void) {
  DAT_EP_ATTR attributes = usual_attributes();
  DAT_EP_HANDLE near, far;
  DAT_LMR_TRIPLET out = local(&a, 0, 8), in = local(&b, 2048, 256);
  DAT_IB_EXTENSION_EVENT_DATA known;
  DAT_CR_PARAM request;
  char hello[] = "hello";
  attributes.service_type = (DAT_SERVICE_TYPE)DAT_IB_SERVICE_TYPE_UD;
  SUCCEEDS(dat_ep_create(a.ia, a.pz, a.evd, a.evd, a.evd, &attributes, &near));
  SUCCEEDS(dat_ep_create(b.ia, b.pz, b.evd, b.evd, b.evd, &attributes, &far));
  SUCCEEDS(dat_ep_post_recv(far, 1, &in, cookie_of(9), DAT_COMPLETION_DEFAULT_FLAG));
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

static void windows(void) {
  DAT_RMR_HANDLE rmr;
  DAT_RMR_CONTEXT key = 0;
  DAT_RMR_PARAM param;
  DAT_LMR_TRIPLET part = local(&a, 64, 64);
  const DAT_COMPLETION_FLAGS plain = DAT_COMPLETION_DEFAULT_FLAG;
  SUCCEEDS(dat_rmr_create_for_ep(a.pz, &rmr));
  SUCCEEDS(
      dat_rmr_bind(rmr, a.lmr, &part, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, DAT_VA_TYPE_VA, a.ep, cookie_of(6), plain, &key));
  const DAT_EVENT e = event_of(a.evd, DAT_RMR_BIND_COMPLETION_EVENT);
  CHECK(e.event_data.rmr_completion_event_data.rmr_handle == rmr);
  CHECK(e.event_data.rmr_completion_event_data.user_cookie.as_64 == 6 && key != 0);
  SUCCEEDS(dat_rmr_query(rmr, DAT_RMR_FIELD_ALL, &param));
  CHECK(param.rmr_context == key && param.lmr_triplet.segment_length == 64 && param.pz_handle == a.pz);
  CHECK(param.mem_priv == DAT_MEM_PRIV_REMOTE_WRITE_FLAG && param.rmr_scope == DAT_RMR_SCOPE_EP);
  RETURNS(dat_lmr_free(a.lmr), DAT_INVALID_STATE, DAT_INVALID_STATE_LMR_IN_USE);
  const DAT_RMR_TRIPLET target = {part.virtual_address, 8, key}, from = remote(&b, 0, 8);
  SUCCEEDS(dat_ep_post_rdma_read_to_rmr(a.ep, &target, cookie_of(7), &from, plain));
  (void)completion(&a, 7, DAT_DTO_RDMA_READ, 8);

  RETURNS(dat_ep_post_rdma_read_to_rmr(a.ep, NULL, cookie_of(7), &from, plain), DAT_INVALID_PARAMETER,
          DAT_INVALID_ARG2);
  RETURNS(dat_ep_post_rdma_read_to_rmr(a.ep, &target, cookie_of(7), NULL, plain), DAT_INVALID_PARAMETER,
          DAT_INVALID_ARG4);
  const DAT_RMR_TRIPLET foreign = {part.virtual_address, 8, key ^ 0x5500};
  RETURNS(dat_ep_post_rdma_read_to_rmr(a.ep, &foreign, cookie_of(7), &from, plain), DAT_PRIVILEGES_VIOLATION, 0);
  RETURNS(dat_rmr_bind(rmr, a.lmr, NULL, 0, DAT_VA_TYPE_VA, a.ep, cookie_of(6), plain, &key), DAT_INVALID_PARAMETER,
          DAT_INVALID_ARG3);
  RETURNS(dat_rmr_bind(rmr, a.lmr, &part, (DAT_MEM_PRIV_FLAGS)0x80, DAT_VA_TYPE_VA, a.ep, cookie_of(6), plain, &key),
          DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
  RETURNS(dat_rmr_bind(rmr, a.lmr, &part, 0, (DAT_VA_TYPE)2, a.ep, cookie_of(6), plain, &key), DAT_INVALID_PARAMETER,
          DAT_INVALID_ARG5);
  RETURNS(dat_rmr_bind(rmr, a.lmr, &part, 0, DAT_VA_TYPE_VA, a.pz, cookie_of(6), plain, &key), DAT_INVALID_HANDLE,
          DAT_INVALID_HANDLE_EP);
  RETURNS(dat_rmr_bind(rmr, a.pz, &part, 0, DAT_VA_TYPE_VA, a.ep, cookie_of(6), plain, &key), DAT_INVALID_HANDLE,
          DAT_INVALID_HANDLE_LMR);
  RETURNS(dat_rmr_bind(rmr, b.lmr, &part, 0, DAT_VA_TYPE_VA, a.ep, cookie_of(6), plain, &key), DAT_INVALID_HANDLE,
          DAT_INVALID_HANDLE_LMR);
  RETURNS(
      dat_rmr_bind(rmr, a.lmr, &part, 0, DAT_VA_TYPE_VA, a.ep, cookie_of(6), DAT_COMPLETION_SOLICITED_WAIT_FLAG, &key),
      DAT_INVALID_PARAMETER, DAT_INVALID_ARG8);
  RETURNS(dat_rmr_bind(rmr, a.lmr, &part, 0, DAT_VA_TYPE_VA, a.ep, cookie_of(6), plain, NULL), DAT_INVALID_PARAMETER,
          DAT_INVALID_ARG9);
  part.segment_length = 0x10000;
  RETURNS(dat_rmr_bind(rmr, a.lmr, &part, 0, DAT_VA_TYPE_VA, a.ep, cookie_of(6), plain, &key), DAT_INVALID_PARAMETER,
          DAT_INVALID_ARG3);
  RETURNS(dat_rmr_query(rmr, (DAT_RMR_PARAM_MASK)0x80, &param), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_rmr_query(rmr, DAT_RMR_FIELD_ALL, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  part.segment_length = 0;
  SUCCEEDS(dat_rmr_bind(rmr, DAT_HANDLE_NULL, &part, 0, DAT_VA_TYPE_VA, a.ep, cookie_of(8), plain, NULL));
  (void)event_of(a.evd, DAT_RMR_BIND_COMPLETION_EVENT);
  SUCCEEDS(dat_rmr_free(rmr));
  RETURNS(dat_rmr_free(rmr), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_RMR);
}

static void wrong_posts(void) {
  DAT_LMR_TRIPLET good = local(&a, 0, 8), outside = local(&a, 4090, 8), before = good, unknown = good, foreign = good;
  DAT_RMR_TRIPLET there = remote(&b, 0, 8), small = remote(&b, 0, 4), wrapped = {~(DAT_VADDR)0, 8, 1};
  const DAT_CONTEXT c = cookie_of(0);
  DAT_PZ_HANDLE other_zone;
  DAT_LMR_HANDLE other;
  DAT_REGION_DESCRIPTION region;
  before.virtual_address -= 1;
  unknown.lmr_context ^= 0x7700;
  region.for_va = a.memory;
  SUCCEEDS(dat_pz_create(a.ia, &other_zone));
  SUCCEEDS(dat_lmr_create(a.ia, DAT_MEM_TYPE_VIRTUAL, region, 64, other_zone, DAT_MEM_PRIV_LOCAL_READ_FLAG,
                          DAT_VA_TYPE_VA, &other, &foreign.lmr_context, NULL, NULL, NULL));
  RETURNS(dat_ep_post_send(a.ep, 1, &outside, c, 0), DAT_INVALID_PARAMETER, 0);
  RETURNS(dat_ep_post_send(a.ep, 1, &before, c, 0), DAT_INVALID_PARAMETER, 0);
  RETURNS(dat_ep_post_send(a.ep, 1, &unknown, c, 0), DAT_PRIVILEGES_VIOLATION, 0);
  RETURNS(dat_ep_post_send(a.ep, 1, &foreign, c, 0), DAT_PROTECTION_VIOLATION, DAT_PROTECTION_READ);
  RETURNS(dat_ep_post_recv(a.ep, 1, &foreign, c, 0), DAT_PRIVILEGES_VIOLATION, DAT_PRIVILEGES_WRITE);
  RETURNS(dat_ep_post_send(a.ep, -1, &good, c, 0), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_ep_post_send(a.ep, 1 << 20, &good, c, 0), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_ep_post_send(a.ep, 1, NULL, c, 0), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_ep_post_send(a.ep, 1, &good, c, (DAT_COMPLETION_FLAGS)0x40), DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
  RETURNS(dat_ep_post_send(a.ep, 1, &good, c, DAT_COMPLETION_UNSIGNALLED_FLAG), DAT_INVALID_PARAMETER,
          DAT_INVALID_ARG5);
  RETURNS(dat_ep_post_recv(a.ep, 1, &good, c, DAT_COMPLETION_SUPPRESS_FLAG), DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
  RETURNS(dat_ep_post_rdma_write(a.ep, 1, &good, c, NULL, 0), DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
  RETURNS(dat_ep_post_rdma_write(a.ep, 1, &good, c, &wrapped, 0), DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
  RETURNS(dat_ep_post_rdma_write(a.ep, 1, &good, c, &small, 0), DAT_LENGTH_ERROR, 0);
  RETURNS(dat_ep_post_rdma_write(a.ep, 1, &good, c, &there, DAT_COMPLETION_SOLICITED_WAIT_FLAG), DAT_INVALID_PARAMETER,
          DAT_INVALID_ARG6);
  RETURNS(dat_ep_post_rdma_read(a.ep, 1, &good, c, NULL, 0), DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
  RETURNS(dat_ep_post_rdma_read(a.ep, 1, &good, c, &wrapped, 0), DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
  RETURNS(dat_ep_post_send_with_invalidate(a.ep, 1, NULL, c, 0, DAT_TRUE, 1), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_ep_post_send_with_invalidate(a.ep, 1, NULL, c, 0, DAT_FALSE, 1), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_pz_free(other_zone), DAT_INVALID_STATE, DAT_INVALID_STATE_PZ_IN_USE);
  SUCCEEDS(dat_lmr_free(other));
  RETURNS(dat_ep_post_send(a.ep, 1, &foreign, c, 0), DAT_PRIVILEGES_VIOLATION, 0);
  SUCCEEDS(dat_pz_free(other_zone));
}

static void wrong_creations(void) {
  DAT_EP_ATTR attributes = usual_attributes();
  DAT_EVD_HANDLE evd, only_dto;
  DAT_HANDLE h;
  DAT_REGION_DESCRIPTION region;
  DAT_OS_WAIT_PROXY_AGENT agent = {NULL, NULL};
  DAT_SRQ_ATTR queue = {16, 1, 0};
  DAT_COMM comm = {AF_INET, SOCK_STREAM, 0}, odd = {AF_UNIX, SOCK_DGRAM, 5};
  DAT_CONN_QUAL qual = 0;
  DAT_FD fd;
  region.for_va = a.memory;
  RETURNS(dat_evd_create(a.ia, 0, NULL, DAT_EVD_DTO_FLAG, &evd), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_evd_create(a.ia, -5, NULL, DAT_EVD_DTO_FLAG, &evd), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_evd_create(a.ia, 0x7fffffff, NULL, DAT_EVD_DTO_FLAG, &evd), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_evd_create(a.ia, 8, a.pz, DAT_EVD_DTO_FLAG, &evd), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO);
  RETURNS(dat_evd_create(a.ia, 8, NULL, (DAT_EVD_FLAGS)0, &evd), DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
  RETURNS(dat_evd_create(a.ia, 8, NULL, (DAT_EVD_FLAGS)0x8000, &evd), DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
  RETURNS(dat_evd_create(a.ia, 8, NULL, DAT_EVD_DTO_FLAG, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
  SUCCEEDS(dat_evd_create(a.ia, 8, NULL, DAT_EVD_DTO_FLAG, &only_dto));
  RETURNS(dat_ep_create(a.ia, b.pz, a.evd, a.evd, a.evd, &attributes, &h), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ);
  RETURNS(dat_ep_create(a.ia, a.pz, b.evd, a.evd, a.evd, &attributes, &h), DAT_INVALID_HANDLE,
          DAT_INVALID_HANDLE_EVD_RECV);
  RETURNS(dat_ep_create(a.ia, a.pz, a.evd, a.pz, a.evd, &attributes, &h), DAT_INVALID_HANDLE,
          DAT_INVALID_HANDLE_EVD_REQUEST);
  RETURNS(dat_ep_create(a.ia, a.pz, a.evd, a.evd, only_dto, &attributes, &h), DAT_INVALID_HANDLE,
          DAT_INVALID_HANDLE_EVD_CONN);
  // Connection events can go to the evd of another ia of the adapter, as dapltest has it; completions cannot.
  struct side again;
  open_side(&again, "dat-a");
  RETURNS(dat_ep_create(a.ia, a.pz, a.evd, a.evd, b.evd, &attributes, &h), DAT_INVALID_HANDLE,
          DAT_INVALID_HANDLE_EVD_CONN);
  RETURNS(dat_ep_create(a.ia, a.pz, a.evd, again.evd, a.evd, &attributes, &h), DAT_INVALID_HANDLE,
          DAT_INVALID_HANDLE_EVD_REQUEST);
  SUCCEEDS(dat_ep_create(a.ia, a.pz, a.evd, a.evd, again.evd, &attributes, &h));
  RETURNS(dat_evd_free(again.evd), DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_IN_USE);
  SUCCEEDS(dat_ep_free(h));
  SUCCEEDS(dat_ia_close(again.ia, DAT_CLOSE_ABRUPT_FLAG));
  RETURNS(dat_ep_create(a.ia, a.pz, a.evd, a.evd, a.evd, &attributes, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG7);
  attributes.qos = (DAT_QOS)0x70;
  RETURNS(dat_ep_create(a.ia, a.pz, a.evd, a.evd, a.evd, &attributes, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
  attributes = usual_attributes();
  attributes.service_type = (DAT_SERVICE_TYPE)9;
  RETURNS(dat_ep_create(a.ia, a.pz, a.evd, a.evd, a.evd, &attributes, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
  attributes = usual_attributes();
  attributes.max_recv_dtos = -3;
  RETURNS(dat_ep_create(a.ia, a.pz, a.evd, a.evd, a.evd, &attributes, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
  attributes = usual_attributes();
  attributes.recv_completion_flags = (DAT_COMPLETION_FLAGS)0x400;
  RETURNS(dat_ep_create(a.ia, a.pz, a.evd, a.evd, a.evd, &attributes, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
  attributes = usual_attributes();
  attributes.ep_transport_specific_count = 1;
  RETURNS(dat_ep_create(a.ia, a.pz, a.evd, a.evd, a.evd, &attributes, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
  RETURNS(dat_ep_create_with_srq(a.ia, a.pz, a.evd, a.evd, a.evd, a.pz, &attributes, &h), DAT_INVALID_HANDLE,
          DAT_INVALID_HANDLE_SRQ);
  SUCCEEDS(dat_evd_free(only_dto));
  RETURNS(dat_evd_free(only_dto), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1);
  RETURNS(dat_evd_free(a.evd), DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_IN_USE);
  RETURNS(dat_evd_free(a.async_evd), DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_IN_USE);

  RETURNS(dat_pz_create(a.ia, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_lmr_create(a.ia, (DAT_MEM_TYPE)9, region, 8, a.pz, 0, DAT_VA_TYPE_VA, &h, NULL, NULL, NULL, NULL),
          DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_lmr_create(a.ia, DAT_MEM_TYPE_VIRTUAL, region, 0, a.pz, 0, DAT_VA_TYPE_VA, &h, NULL, NULL, NULL, NULL),
          DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_lmr_create(a.ia, DAT_MEM_TYPE_VIRTUAL, region, 8, b.pz, 0, DAT_VA_TYPE_VA, &h, NULL, NULL, NULL, NULL),
          DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ);
  RETURNS(dat_lmr_create(a.ia, DAT_MEM_TYPE_VIRTUAL, region, 8, a.pz, (DAT_MEM_PRIV_FLAGS)0x100, DAT_VA_TYPE_VA, &h,
                         NULL, NULL, NULL, NULL),
          DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
  RETURNS(dat_lmr_create(a.ia, DAT_MEM_TYPE_VIRTUAL, region, 8, a.pz, 0, (DAT_VA_TYPE)7, &h, NULL, NULL, NULL, NULL),
          DAT_INVALID_PARAMETER, DAT_INVALID_ARG7);
  RETURNS(dat_lmr_create(a.ia, DAT_MEM_TYPE_VIRTUAL, region, 8, a.pz, 0, DAT_VA_TYPE_VA, NULL, NULL, NULL, NULL, NULL),
          DAT_INVALID_PARAMETER, DAT_INVALID_ARG8);
  region.for_va = NULL;
  RETURNS(dat_lmr_create(a.ia, DAT_MEM_TYPE_VIRTUAL, region, 8, a.pz, 0, DAT_VA_TYPE_VA, &h, NULL, NULL, NULL, NULL),
          DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  region.for_lmr_handle = a.pz;
  RETURNS(dat_lmr_create(a.ia, DAT_MEM_TYPE_LMR, region, 8, a.pz, 0, DAT_VA_TYPE_VA, &h, NULL, NULL, NULL, NULL),
          DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_LMR);
  memset(&region, 0, sizeof region);
  RETURNS(
      dat_lmr_create(a.ia, DAT_MEM_TYPE_SHARED_VIRTUAL, region, 8, a.pz, 0, DAT_VA_TYPE_VA, &h, NULL, NULL, NULL, NULL),
      DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_rmr_create(a.pz, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);

  RETURNS(dat_psp_create(a.ia, 0, a.evd, DAT_PSP_CONSUMER_FLAG, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_psp_create(a.ia, 1ull << 40, a.evd, DAT_PSP_CONSUMER_FLAG, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_psp_create(a.ia, 9000, a.async_evd, DAT_PSP_CONSUMER_FLAG, &h), DAT_INVALID_HANDLE,
          DAT_INVALID_HANDLE_EVD_CR);
  RETURNS(dat_psp_create(a.ia, 9000, NULL, DAT_PSP_CONSUMER_FLAG, &h), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_CR);
  RETURNS(dat_psp_create(a.ia, 9000, a.evd, (DAT_PSP_FLAGS)5, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
  RETURNS(dat_psp_create(a.ia, 9000, a.evd, DAT_PSP_CONSUMER_FLAG, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
  RETURNS(dat_psp_create_any(a.ia, NULL, a.evd, DAT_PSP_CONSUMER_FLAG, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  SUCCEEDS(dat_psp_create(a.ia, 0x50000 + 9001, a.evd, DAT_PSP_CONSUMER_FLAG, &h)); // as OFA's programs do
  RETURNS(dat_psp_create(a.ia, 9001, a.evd, DAT_PSP_CONSUMER_FLAG, &h), DAT_CONN_QUAL_IN_USE, 0);
  SUCCEEDS(dat_psp_free(h));
  SUCCEEDS(dat_psp_create_any(a.ia, &qual, a.evd, DAT_PSP_PROVIDER_FLAG, &h));
  CHECK(qual != 0);
  RETURNS(dat_psp_free(a.pz), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PSP);
  SUCCEEDS(dat_psp_free(h));
  RETURNS(dat_rsp_create(a.ia, 9000, a.pz, a.evd, &h), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
  RETURNS(dat_rsp_create(a.ia, 0, NULL, a.evd, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_rsp_create(a.ia, 9000, NULL, a.pz, &h), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_CR);
  RETURNS(dat_rsp_create(a.ia, 9000, NULL, a.evd, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
  RETURNS(dat_csp_create(a.ia, NULL, NULL, a.evd, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_csp_create(a.ia, &odd, NULL, a.evd, &h), DAT_COMM_NOT_SUPPORTED, 0);
  RETURNS(dat_csp_create(a.ia, &comm, NULL, a.ep, &h), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_CR);
  RETURNS(dat_csp_create(a.ia, &comm, NULL, a.evd, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
  SUCCEEDS(dat_csp_create(a.ia, &comm, NULL, a.evd, &h));
  SUCCEEDS(dat_csp_free(h));
  RETURNS(dat_srq_create(a.ia, b.pz, &queue, &h), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ);
  RETURNS(dat_srq_create(a.ia, a.pz, NULL, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_srq_create(a.ia, a.pz, &queue, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
  queue.max_recv_dtos = 0;
  RETURNS(dat_srq_create(a.ia, a.pz, &queue, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_cno_create(a.ia, agent, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  agent.instance_data = &agent;
  RETURNS(dat_cno_create(a.ia, agent, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_cno_fd_create(a.ia, NULL, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_cno_fd_create(a.ia, &fd, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
}

// Whether the provider has a named attribute, with this value unless that is null.
static int named(const DAT_PROVIDER_ATTR* provider, const char* name, const char* value) {
  for (int i = 0; i < provider->num_provider_specific_attr; ++i)
    if (strcmp(provider->provider_specific_attr[i].name, name) == 0)
      return value ? strcmp(provider->provider_specific_attr[i].value, value) == 0
                   : provider->provider_specific_attr[i].value[0] != '\0';
  return 0;
}

static void queries(void) {
  DAT_IA_ATTR ia;
  DAT_PROVIDER_ATTR provider;
  DAT_EVD_PARAM evd;
  DAT_EP_PARAM ep;
  DAT_LMR_PARAM lmr;
  DAT_PZ_PARAM pz;
  DAT_PSP_PARAM service;
  DAT_CONTEXT context;
  DAT_HANDLE_TYPE type;
  DAT_EVD_HANDLE async_evd;
  DAT_EP_STATE state;
  DAT_BOOLEAN idle;
  DAT_COUNT n;
  SUCCEEDS(dat_ia_query(a.ia, &async_evd, DAT_IA_FIELD_ALL, &ia, DAT_PROVIDER_FIELD_ALL, &provider));
  CHECK(async_evd == a.async_evd && ia.max_eps > 0 && ia.max_message_size > 0 && provider.max_private_data_size == 56);
  CHECK(provider.evd_stream_merging_supported[0][5] == DAT_TRUE && provider.num_provider_specific_attr > 0);
  // OFA's dtest reads and answers only where the first of these is TRUE.
  CHECK(named(&provider, "DAT_IB_RDMA_READ", "TRUE") && named(&provider, "DAT_IB_DEVICE_NAME", "fk1"));
  CHECK(named(&provider, "DAT_IB_PORT_STATUS", "ACTIVE") && named(&provider, "DAT_IB_PORT_NUMBER", "1"));
  CHECK(named(&provider, "DAT_IB_TRANSPORT_MTU", NULL) && named(&provider, "DAT_IB_CONNECTIVITY_MODE", "DIRECT"));
  CHECK(named(&provider, "DAT_IB_PROVIDER_NAME", "CMA") && named(&provider, "DAT_IB_FETCH_AND_ADD", "TRUE"));
  CHECK(named(&provider, "DAT_IB_NODE_GUID", NULL) && named(&provider, "DAT_IB_GID", NULL));
  CHECK(!named(&provider, "DAT_IB_NO_SUCH_NAME", NULL));
  CHECK(ia.extension_supported == DAT_EXTENSION_IB && ia.num_vendor_attr > 0 && ia.vendor_attr[0].name);
  SUCCEEDS(dat_ia_query(a.ia, NULL, 0, NULL, 0, NULL));
  RETURNS(dat_ia_query(a.ia, NULL, ~UINT64_C(0), &ia, 0, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_ia_query(a.ia, NULL, 1, NULL, 0, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
  RETURNS(dat_ia_query(a.ia, NULL, 0, NULL, ~UINT64_C(0), &provider), DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
  RETURNS(dat_ia_query(a.ia, NULL, 0, NULL, 1, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
  RETURNS(dat_ia_close(a.ia, (DAT_CLOSE_FLAGS)7), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_ia_close(a.ia, DAT_CLOSE_GRACEFUL_FLAG), DAT_INVALID_STATE, DAT_INVALID_STATE_IA_IN_USE);

  SUCCEEDS(dat_evd_query(a.evd, DAT_EVD_FIELD_ALL, &evd));
  CHECK(evd.evd_qlen >= 64 && (int)evd.evd_flags == all_streams && evd.cno_handle == DAT_HANDLE_NULL);
  CHECK((int)evd.evd_state == (DAT_EVD_STATE_ENABLED | DAT_EVD_STATE_WAITABLE | DAT_EVD_STATE_CONFIG_THRESHOLD));
  RETURNS(dat_evd_query(a.evd, (DAT_EVD_PARAM_MASK)0x20, &evd), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_evd_query(a.evd, DAT_EVD_FIELD_ALL, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);

  SUCCEEDS(dat_ep_query(a.ep, DAT_EP_FIELD_ALL, &ep));
  CHECK(ep.ep_state == DAT_EP_STATE_CONNECTED && ep.pz_handle == a.pz && ep.recv_evd_handle == a.evd);
  CHECK(ep.remote_port_qual == port && ep.ep_attr.max_request_dtos == 16 && ep.srq_handle == DAT_HANDLE_NULL);
  CHECK(ep.remote_ia_address_ptr && ep.remote_ia_address_ptr->sa_family == ((struct sockaddr*)&b.address)->sa_family);
  RETURNS(dat_ep_query(a.ep, UINT64_C(1) << 40, &ep), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_ep_query(a.ep, DAT_EP_FIELD_ALL, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_ep_modify(a.ep, UINT64_C(1) << 40, &ep), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_ep_modify(a.ep, DAT_EP_FIELD_IA_HANDLE, &ep), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_ep_modify(a.ep, DAT_EP_FIELD_PZ_HANDLE, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_ep_modify(a.ep, DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS, &ep), DAT_INVALID_STATE,
          DAT_INVALID_STATE_EP_CONNECTED);
  SUCCEEDS(dat_ep_get_status(a.ep, &state, &idle, NULL));
  CHECK(state == DAT_EP_STATE_CONNECTED && idle == DAT_TRUE);
  SUCCEEDS(dat_ep_get_status(a.ep, NULL, NULL, NULL));
  SUCCEEDS(dat_ep_recv_query(a.ep, &n, NULL));
  CHECK(n == 0);
  RETURNS(dat_ep_reset(a.ep), DAT_INVALID_STATE, DAT_INVALID_STATE_EP_CONNECTED);
  SUCCEEDS(dat_ep_set_watermark(a.ep, DAT_WATERMARK_INFINITE, DAT_WATERMARK_INFINITE));
  RETURNS(dat_ep_disconnect(a.ep, (DAT_CLOSE_FLAGS)9), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);

  SUCCEEDS(dat_lmr_query(a.lmr, DAT_LMR_FIELD_ALL, &lmr));
  CHECK(lmr.lmr_context == a.lmr_context && lmr.length == sizeof a.memory && (int)lmr.mem_priv == all_rights);
  RETURNS(dat_lmr_query(a.lmr, (DAT_LMR_PARAM_MASK)0x800, &lmr), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_lmr_query(a.lmr, DAT_LMR_FIELD_ALL, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  SUCCEEDS(dat_pz_query(a.pz, DAT_PZ_FIELD_ALL, &pz));
  RETURNS(dat_pz_query(a.pz, (DAT_PZ_PARAM_MASK)2, &pz), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_pz_query(a.pz, DAT_PZ_FIELD_ALL, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  SUCCEEDS(dat_psp_query(psp, DAT_PSP_FIELD_ALL, &service));
  CHECK(service.conn_qual == port && service.evd_handle == b.evd && service.psp_flags == DAT_PSP_CONSUMER_FLAG);
  RETURNS(dat_psp_query(psp, (DAT_PSP_PARAM_MASK)0x10, &service), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_psp_query(psp, DAT_PSP_FIELD_ALL, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);

  SUCCEEDS(dat_set_consumer_context(a.ep, cookie_of(77)));
  SUCCEEDS(dat_get_consumer_context(a.ep, &context));
  CHECK(context.as_64 == 77);
  RETURNS(dat_get_consumer_context(a.ep, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  SUCCEEDS(dat_get_handle_type(a.lmr, &type));
  CHECK(type == DAT_HANDLE_TYPE_LMR);
  RETURNS(dat_get_handle_type(a.lmr, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  const DAT_LMR_TRIPLET all = local(&a, 0, 64);
  DAT_LMR_TRIPLET unknown = all;
  unknown.lmr_context ^= 0x7700;
  SUCCEEDS(dat_lmr_sync_rdma_read(a.ia, &all, 1));
  SUCCEEDS(dat_lmr_sync_rdma_write(a.ia, &all, 1));
  RETURNS(dat_lmr_sync_rdma_read(a.ia, NULL, 1), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_lmr_sync_rdma_write(a.ia, &unknown, 1), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
}

static void events(void) {
  DAT_EVENT e = {0}, taken;
  DAT_COUNT more;
  DAT_CNO_HANDLE cno;
  DAT_EVD_HANDLE which;
  DAT_CNO_PARAM param;
  DAT_OS_WAIT_PROXY_AGENT none = {NULL, NULL};
  // The bare number where completions come, as programs expect that were written on OFA's provider and compare the
  // whole word; with the class of an error elsewhere.
  CHECK(dat_evd_dequeue(a.evd, &taken) == DAT_QUEUE_EMPTY);
  for (unsigned stream = 0x1; stream <= DAT_EVD_ASYNC_FLAG; stream <<= 1) {
    const int completions = stream == DAT_EVD_DTO_FLAG || stream == DAT_EVD_RMR_BIND_FLAG;
    if ((all_streams & stream) == 0) continue;
    DAT_EVD_HANDLE one_stream;
    SUCCEEDS(dat_evd_create(a.ia, 4, DAT_HANDLE_NULL, (DAT_EVD_FLAGS)stream, &one_stream));
    CHECK(dat_evd_dequeue(one_stream, &taken) == (completions ? 0 : DAT_CLASS_ERROR) + DAT_QUEUE_EMPTY);
    SUCCEEDS(dat_evd_free(one_stream));
  }
  RETURNS(dat_evd_dequeue(a.evd, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_evd_wait(a.evd, 0, 0, &taken, &more), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_evd_wait(a.evd, 0, 100000, &taken, &more), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_evd_wait(a.evd, 0, 1, NULL, &more), DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
  RETURNS(dat_evd_wait(a.evd, 0, 1, &taken, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
  RETURNS(dat_evd_wait(a.evd, 0, 1, &taken, &more), DAT_TIMEOUT_EXPIRED, 0);
  RETURNS(dat_evd_post_se(a.evd, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_evd_post_se(a.evd, &e), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  e.event_number = DAT_SOFTWARE_EVENT;
  for (uintptr_t i = 1; i != 4; ++i) {
    e.event_data.software_event_data.pointer = (DAT_PVOID)i;
    SUCCEEDS(dat_evd_post_se(a.evd, &e));
  }
  RETURNS(dat_evd_wait(a.evd, 0, 4, &taken, &more), DAT_TIMEOUT_EXPIRED, 0);
  CHECK(more == 3);
  SUCCEEDS(dat_evd_wait(a.evd, 0, 3, &taken, &more));
  CHECK(more == 2 && taken.event_data.software_event_data.pointer == (DAT_PVOID)1);
  SUCCEEDS(dat_evd_dequeue(a.evd, &taken));
  SUCCEEDS(dat_evd_dequeue(a.evd, &taken));
  RETURNS(dat_evd_resize(a.evd, 0), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  SUCCEEDS(dat_evd_resize(a.evd, 128));
  SUCCEEDS(dat_evd_set_unwaitable(a.evd));
  RETURNS(dat_evd_wait(a.evd, 0, 1, &taken, &more), DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_UNWAITABLE);
  SUCCEEDS(dat_evd_clear_unwaitable(a.evd));

  SUCCEEDS(dat_cno_create(a.ia, none, &cno));
  RETURNS(dat_cno_trigger(cno, &which), DAT_QUEUE_EMPTY, 0);
  RETURNS(dat_evd_modify_cno(a.evd, a.pz), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO);
  SUCCEEDS(dat_evd_modify_cno(a.evd, cno));
  RETURNS(dat_cno_free(cno), DAT_INVALID_STATE, DAT_INVALID_STATE_CNO_IN_USE);
  RETURNS(dat_cno_wait(cno, 0, &which), DAT_QUEUE_EMPTY, 0);
  RETURNS(dat_cno_wait(cno, 0, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_cno_trigger(cno, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  SUCCEEDS(dat_evd_disable(a.evd));
  SUCCEEDS(dat_evd_enable(a.evd));
  SUCCEEDS(dat_evd_post_se(a.evd, &e));
  SUCCEEDS(dat_cno_wait(cno, PLENTY, &which));
  CHECK(which == a.evd);
  SUCCEEDS(dat_evd_dequeue(a.evd, &taken));
  SUCCEEDS(dat_cno_query(cno, DAT_CNO_FIELD_ALL, &param));
  CHECK(param.ia_handle == a.ia && param.proxy_type == DAT_PROXY_TYPE_NONE);
  RETURNS(dat_cno_query(cno, (DAT_CNO_PARAM_MASK)0x10, &param), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_cno_query(cno, DAT_CNO_FIELD_ALL, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  none.instance_data = &none;
  RETURNS(dat_cno_modify_agent(cno, none), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  SUCCEEDS(dat_evd_modify_cno(a.evd, DAT_HANDLE_NULL));
  SUCCEEDS(dat_cno_free(cno));
}

static void requests(void) {
  struct side c;
  DAT_EVENT arrived;
  DAT_CR_HANDLE cr;
  DAT_CR_PARAM param;
  DAT_RSP_HANDLE rsp;
  DAT_RSP_PARAM reserved;
  const struct sockaddr_in nowhere = {.sin_family = AF_INET};
  const DAT_IA_ADDRESS_PTR to = (DAT_IA_ADDRESS_PTR)&b.address;
  open_side(&c, "dat-a");
  RETURNS(dat_ep_connect(c.ep, NULL, port, PLENTY, 0, NULL, 0, 0), DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_MALFORMED);
  RETURNS(dat_ep_connect(c.ep, (DAT_IA_ADDRESS_PTR)(uintptr_t)&nowhere, port, PLENTY, 0, NULL, 0, 0),
          DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_MALFORMED);
  RETURNS(dat_ep_connect(c.ep, to, 0, PLENTY, 0, NULL, 0, 0), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_ep_connect(c.ep, to, port, 0, 0, NULL, 0, 0), DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
  RETURNS(dat_ep_connect(c.ep, to, port, PLENTY, -1, NULL, 0, 0), DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
  RETURNS(dat_ep_connect(c.ep, to, port, PLENTY, 5, NULL, 0, 0), DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
  RETURNS(dat_ep_connect(c.ep, to, port, PLENTY, 300, c.memory, 0, 0), DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
  RETURNS(dat_ep_connect(c.ep, to, port, PLENTY, 0, NULL, (DAT_QOS)0x70, 0), DAT_INVALID_PARAMETER, DAT_INVALID_ARG7);
  RETURNS(dat_ep_connect(c.ep, to, port, PLENTY, 0, NULL, 0, (DAT_CONNECT_FLAGS)8), DAT_INVALID_PARAMETER,
          DAT_INVALID_ARG8);
  RETURNS(dat_ep_connect(c.ep, to, port, PLENTY, 0, NULL, 0, DAT_CONNECT_MULTIPATH_REQUIRED_FLAG),
          DAT_MODEL_NOT_SUPPORTED, 0);
  RETURNS(dat_ep_dup_connect(c.ep, c.pz, PLENTY, 0, NULL, 0), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
  RETURNS(dat_ep_dup_connect(c.ep, c.ep, PLENTY, 5, NULL, 0), DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
  RETURNS(dat_ep_dup_connect(c.ep, c.ep, PLENTY, 0, NULL, (DAT_QOS)0x70), DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
  RETURNS(dat_ep_common_connect(c.ep, to, PLENTY, 5, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
  RETURNS(dat_ep_common_connect(c.ep, NULL, PLENTY, 0, NULL), DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_MALFORMED);

  SUCCEEDS(dat_ep_connect(c.ep, to, port, PLENTY, 0, NULL, 0, 0));
  arrived = event_of(b.evd, DAT_CONNECTION_REQUEST_EVENT);
  cr = arrived.event_data.cr_arrival_event_data.cr_handle;
  CHECK(arrived.event_data.cr_arrival_event_data.sp_handle.psp_handle == psp);
  RETURNS(dat_cr_query(cr, (DAT_CR_PARAM_MASK)0x20, &param), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_cr_query(cr, DAT_CR_FIELD_ALL, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_cr_accept(cr, b.pz, 0, NULL), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
  RETURNS(dat_cr_accept(cr, NULL, 0, NULL), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
  RETURNS(dat_cr_accept(cr, b.ep, 0, NULL), DAT_INVALID_STATE, DAT_INVALID_STATE_EP_CONNECTED);
  RETURNS(dat_cr_accept(cr, b.ep, 5, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_cr_reject(cr, 5, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_cr_handoff(cr, 0), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_cr_handoff(cr, 5), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  SUCCEEDS(dat_cr_reject(cr, 3, b.memory));
  RETURNS(dat_cr_reject(cr, 0, NULL), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CR);
  const DAT_EVENT no = event_of(c.evd, DAT_CONNECTION_EVENT_PEER_REJECTED);
  CHECK(no.event_data.connect_event_data.private_data_size >= 3);

  // A reserved service point: its endpoint accepts.
  SUCCEEDS(dat_ep_reset(c.ep));
  const DAT_EP_HANDLE waiting = make_ep(&b);
  SUCCEEDS(dat_rsp_create(b.ia, port + 1, waiting, b.evd, &rsp));
  SUCCEEDS(dat_rsp_query(rsp, DAT_RSP_FIELD_ALL, &reserved));
  CHECK(reserved.ep_handle == waiting && reserved.conn_qual == port + 1 && reserved.evd_handle == b.evd);
  RETURNS(dat_ep_free(waiting), DAT_INVALID_STATE, DAT_INVALID_STATE_EP_RESERVED);
  SUCCEEDS(dat_ep_connect(c.ep, to, port + 1, PLENTY, 0, NULL, 0, 0));
  arrived = event_of(b.evd, DAT_CONNECTION_REQUEST_EVENT);
  cr = arrived.event_data.cr_arrival_event_data.cr_handle;
  CHECK(arrived.event_data.cr_arrival_event_data.sp_handle.rsp_handle == rsp);
  SUCCEEDS(dat_cr_query(cr, DAT_CR_FIELD_ALL, &param));
  CHECK(param.local_ep_handle == waiting);
  RETURNS(dat_cr_accept(cr, b.ep, 0, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  SUCCEEDS(dat_cr_accept(cr, NULL, 0, NULL));
  (void)event_of(c.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  (void)event_of(b.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  SUCCEEDS(dat_rsp_free(rsp));
  SUCCEEDS(dat_ep_disconnect(c.ep, DAT_CLOSE_GRACEFUL_FLAG));
  (void)event_of(c.evd, DAT_CONNECTION_EVENT_DISCONNECTED);
  (void)event_of(b.evd, DAT_CONNECTION_EVENT_DISCONNECTED);
  SUCCEEDS(dat_ep_free(waiting));

  // A public service point that creates the endpoint of a request.
  DAT_PSP_HANDLE making;
  DAT_EP_PARAM missing = {0};
  SUCCEEDS(dat_psp_create(b.ia, port + 2, b.evd, DAT_PSP_PROVIDER_FLAG, &making));
  SUCCEEDS(dat_ep_reset(c.ep));
  SUCCEEDS(dat_ep_connect(c.ep, to, port + 2, PLENTY, 0, NULL, 0, 0));
  arrived = event_of(b.evd, DAT_CONNECTION_REQUEST_EVENT);
  cr = arrived.event_data.cr_arrival_event_data.cr_handle;
  SUCCEEDS(dat_cr_query(cr, DAT_CR_FIELD_ALL, &param));
  CHECK(param.local_ep_handle != DAT_HANDLE_NULL);
  RETURNS(dat_cr_accept(cr, NULL, 0, NULL), DAT_INVALID_STATE, DAT_INVALID_STATE_EP_UNCONFTENTATIVE);
  missing.pz_handle = b.pz;
  missing.recv_evd_handle = missing.request_evd_handle = missing.connect_evd_handle = b.evd;
  SUCCEEDS(dat_ep_modify(param.local_ep_handle,
                         DAT_EP_FIELD_PZ_HANDLE | DAT_EP_FIELD_RECV_EVD_HANDLE | DAT_EP_FIELD_REQUEST_EVD_HANDLE |
                             DAT_EP_FIELD_CONNECT_EVD_HANDLE,
                         &missing));
  SUCCEEDS(dat_cr_accept(cr, NULL, 0, NULL));
  (void)event_of(c.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  const DAT_EVENT made = event_of(b.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  CHECK(made.event_data.connect_event_data.ep_handle == param.local_ep_handle);
  SUCCEEDS(dat_ep_free(param.local_ep_handle));
  (void)event_of(c.evd, DAT_CONNECTION_EVENT_DISCONNECTED);
  SUCCEEDS(dat_psp_free(making));
  SUCCEEDS(dat_ia_close(c.ia, DAT_CLOSE_ABRUPT_FLAG)); // with all that is left
}

static void shared_queues(void) {
  DAT_SRQ_ATTR attr = {16, 1, DAT_SRQ_LW_DEFAULT};
  DAT_SRQ_PARAM param;
  DAT_SRQ_HANDLE srq;
  DAT_EP_HANDLE ep;
  DAT_EP_PARAM ep_param;
  DAT_EP_ATTR attributes = usual_attributes();
  DAT_LMR_TRIPLET into = local(&b, 0, 64), outside = local(&b, 4095, 64);
  attributes.srq_soft_hw = DAT_HW_DEFAULT;
  attributes.max_recv_dtos = DAT_HW_DEFAULT;
  SUCCEEDS(dat_srq_create(b.ia, b.pz, &attr, &srq));
  SUCCEEDS(dat_ep_create_with_srq(b.ia, b.pz, b.evd, b.evd, b.evd, srq, &attributes, &ep));
  SUCCEEDS(dat_ep_query(ep, DAT_EP_FIELD_ALL, &ep_param));
  CHECK(ep_param.srq_handle == srq && ep_param.ep_attr.srq_soft_hw == DAT_HW_DEFAULT);
  SUCCEEDS(dat_srq_post_recv(srq, 1, &into, cookie_of(1)));
  RETURNS(dat_ep_post_recv(ep, 1, &into, cookie_of(1), 0), DAT_INVALID_STATE, DAT_INVALID_STATE_EP_UNCONNECTED);
  RETURNS(dat_srq_post_recv(srq, 1, NULL, cookie_of(1)), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_srq_post_recv(srq, -1, &into, cookie_of(1)), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_srq_post_recv(srq, 1, &outside, cookie_of(1)), DAT_INVALID_PARAMETER, 0);
  SUCCEEDS(dat_srq_query(srq, DAT_SRQ_FIELD_ALL, &param));
  CHECK(param.outstanding_dto_count == 1 && param.max_recv_dtos >= 16 && param.pz_handle == b.pz);
  RETURNS(dat_srq_query(srq, (DAT_SRQ_PARAM_MASK)0x100, &param), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_srq_query(srq, DAT_SRQ_FIELD_ALL, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_srq_resize(srq, 0), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  SUCCEEDS(dat_srq_resize(srq, 32));
  RETURNS(dat_srq_set_lw(srq, -1), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_srq_free(srq), DAT_INVALID_STATE, DAT_INVALID_STATE_SRQ_IN_USE);
  SUCCEEDS(dat_ep_free(ep));
  SUCCEEDS(dat_srq_free(srq));
}

// Every function with a handle that was freed, one of another type, and one inside the memory of handles.
static void bad_handles(void) {
  const DAT_CONTEXT cookie = cookie_of(0);
  const DAT_OS_WAIT_PROXY_AGENT agent = {NULL, NULL};
  DAT_REGION_DESCRIPTION region;
  DAT_PZ_HANDLE freed;
  memset(&region, 0, sizeof region);
  SUCCEEDS(dat_pz_create(a.ia, &freed));
  SUCCEEDS(dat_pz_free(freed));
#define ROW(name, subtype, ...) RETURNS(dat_##name(__VA_ARGS__), DAT_INVALID_HANDLE, subtype);
  {
    DAT_HANDLE const h = freed;
    CALLS(ROW)
  }
#undef ROW
  // A handle of another type has an object, which most functions cannot use.
#define ROW(name, subtype, ...)                                                                                        \
  if (subtype != DAT_INVALID_HANDLE1 && subtype != (int)DAT_INVALID_HANDLE_PSP)                                        \
    RETURNS(dat_##name(__VA_ARGS__), DAT_INVALID_HANDLE, subtype);
  {
    DAT_HANDLE const h = psp;
    CALLS(ROW)
  }
#undef ROW
  RETURNS(dat_evd_free(a.ep), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1);
}

// --- threads
// -----------------------------------------------------------------------------------------------------------

enum { rounds = 400, workers = 4 };
static DAT_LMR_HANDLE shaken; // freed and registered again while others post
static int stop;

static void* posts(void* unused) {
  DAT_LMR_TRIPLET from = local(&a, 0, 8);
  DAT_RMR_TRIPLET there = remote(&b, 128, 8);
  for (int i = 0; i != rounds; ++i) {
    const DAT_RETURN r = dat_ep_post_rdma_write(a.ep, 1, &from, cookie_of(1), &there, DAT_COMPLETION_DEFAULT_FLAG);
    if (r != DAT_SUCCESS) { // the queue is full: others take completions
      CHECK(DAT_GET_TYPE(r) == DAT_INSUFFICIENT_RESOURCES);
      sched_yield();
      --i;
    }
  }
  return unused;
}

static void* takes(void* taken) {
  DAT_EVENT e;
  while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
    const DAT_RETURN r = dat_evd_dequeue(a.evd, &e);
    if (r == DAT_SUCCESS)
      __atomic_add_fetch((int*)taken, 1, __ATOMIC_RELAXED);
    else
      sched_yield();
  }
  return NULL;
}

// Creates and frees objects, and frees what another thread has freed.
static void* shakes(void* unused) {
  DAT_REGION_DESCRIPTION region;
  region.for_va = a.memory;
  for (int i = 0; i != rounds / 10; ++i) {
    DAT_LMR_HANDLE lmr;
    DAT_EVD_HANDLE evd;
    DAT_EP_HANDLE ep;
    const DAT_EP_ATTR attributes = usual_attributes();
    SUCCEEDS(dat_lmr_create(a.ia, DAT_MEM_TYPE_VIRTUAL, region, 64, a.pz, (DAT_MEM_PRIV_FLAGS)all_rights,
                            DAT_VA_TYPE_VA, &lmr, NULL, NULL, NULL, NULL));
    (void)dat_lmr_free(__atomic_exchange_n(&shaken, lmr, __ATOMIC_ACQ_REL));
    (void)dat_lmr_free(__atomic_load_n(&shaken, __ATOMIC_ACQUIRE));
    SUCCEEDS(dat_evd_create(a.ia, 8, DAT_HANDLE_NULL, (DAT_EVD_FLAGS)all_streams, &evd));
    SUCCEEDS(dat_ep_create(a.ia, a.pz, evd, evd, evd, &attributes, &ep));
    SUCCEEDS(dat_ep_free(ep));
    SUCCEEDS(dat_evd_free(evd));
  }
  return unused;
}

static void* waits(void* evd) {
  DAT_EVENT e;
  DAT_COUNT more;
  RETURNS(dat_evd_wait(evd, DAT_TIMEOUT_INFINITE, 1, &e, &more), DAT_ABORT, 0);
  return NULL;
}

static void threads(void) {
  pthread_t thread[workers + 2], taker;
  int taken = 0;
  pthread_create(&taker, NULL, takes, &taken);
  for (int i = 0; i != workers; ++i) pthread_create(&thread[i], NULL, posts, NULL);
  for (int i = workers; i != workers + 2; ++i) pthread_create(&thread[i], NULL, shakes, NULL);
  for (int i = 0; i != workers + 2; ++i) pthread_join(thread[i], NULL);
  while (__atomic_load_n(&taken, __ATOMIC_RELAXED) != workers * rounds) sched_yield();
  __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
  pthread_join(taker, NULL);
  (void)dat_lmr_free(shaken);

  // A thread that waits when its evd is to be freed, and when its ia closes.
  struct side c;
  pthread_t waiter;
  DAT_RETURN r;
  open_side(&c, "dat-a");
  pthread_create(&waiter, NULL, waits, c.async_evd);
  DAT_EVENT e;
  do r = dat_evd_dequeue(c.async_evd, &e); // until the thread waits
  while (DAT_GET_TYPE(r) == DAT_QUEUE_EMPTY);
  CHECK(r == (DAT_CLASS_ERROR | DAT_INVALID_STATE | DAT_INVALID_STATE_EVD_WAITER));
  SUCCEEDS(dat_ia_close(c.ia, DAT_CLOSE_ABRUPT_FLAG));
  pthread_join(waiter, NULL);
  RETURNS(dat_evd_free(c.evd), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1);
  RETURNS(dat_ia_close(c.ia, DAT_CLOSE_ABRUPT_FLAG), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
}

// Two lines of dat.conf that differ in the thread safety alone, opened at once and again.
static void lines_of_one_name(void) {
  for (int i = 0; i != 2; ++i) {
    DAT_IA_HANDLE ia[2];
    DAT_PROVIDER_ATTR attr;
    for (int safe = 0; safe != 2; ++safe) {
      DAT_EVD_HANDLE async_evd = DAT_EVD_ASYNC_EXISTS;
      char name[] = "both";
      SUCCEEDS(dat_ia_openv(name, 8, &async_evd, &ia[safe], 2, 0, (DAT_BOOLEAN)safe));
      CHECK(async_evd == DAT_EVD_OUT_OF_SCOPE);
      SUCCEEDS(dat_ia_query(ia[safe], NULL, 0, NULL, DAT_PROVIDER_FIELD_ALL, &attr));
      CHECK((int)attr.is_thread_safe == safe);
    }
    for (int safe = 0; safe != 2; ++safe) SUCCEEDS(dat_ia_close(ia[safe], DAT_CLOSE_GRACEFUL_FLAG));
  }
}

int main(int argc, char** argv) {
  char path[] = "/tmp/provider_test.XXXXXX";
  if (argc != 4) return 2;
  FILE* const file = fdopen(mkstemp(path), "w");
  if (!file) return 2;
  fprintf(file, "dat-a u2.0 nonthreadsafe default %s dat.0.1 \"%s\" \"\"\n", argv[1], argv[2]);
  fprintf(file, "dat-b u2.0 nonthreadsafe default %s dat.0.1 \"%s\" \"\"\n", argv[1], argv[3]);
  fprintf(file, "both u2.0 nonthreadsafe default %s dat.0.1 \"%s\" \"\"\n", argv[1], argv[2]);
  fprintf(file, "both u2.0 threadsafe default %s dat.0.1 \"%s\" \"\"\n", argv[1], argv[2]);
  fclose(file);
  setenv("DAT_OVERRIDE", path, 1);
  open_side(&a, "dat-a");
  open_side(&b, "dat-b");
  SUCCEEDS(dat_psp_create(b.ia, port, b.evd, DAT_PSP_CONSUMER_FLAG, &psp));
  RETURNS(dat_psp_create(b.ia, port, b.evd, DAT_PSP_CONSUMER_FLAG, &psp), DAT_CONN_QUAL_IN_USE, 0);
  connect_sides(&a, &b, port);
  moves_data();
  extensions();
  datagrams();
  windows();
  wrong_posts();
  wrong_creations();
  queries();
  events();
  requests();
  shared_queues();
  bad_handles();
  lines_of_one_name();
  threads();
  SUCCEEDS(dat_ep_disconnect(a.ep, DAT_CLOSE_ABRUPT_FLAG));
  (void)event_of(a.evd, DAT_CONNECTION_EVENT_DISCONNECTED);
  (void)event_of(b.evd, DAT_CONNECTION_EVENT_DISCONNECTED);
  SUCCEEDS(dat_ep_free(a.ep));
  SUCCEEDS(dat_evd_free(a.evd));
  SUCCEEDS(dat_lmr_free(a.lmr));
  SUCCEEDS(dat_pz_free(a.pz));
  SUCCEEDS(dat_ia_close(a.ia, DAT_CLOSE_GRACEFUL_FLAG));
  SUCCEEDS(dat_ia_close(b.ia, DAT_CLOSE_ABRUPT_FLAG));
  unlink(path);
  return checked();
}
