// Endpoints: creating, modifying, querying; shared receive queues and watermarks.
// SPDX-License-Identifier: BSL-1.0
#include "rules.h"

static void creating(void) {
  open_side(&one);
  open_side(&two);
  DAT_EP_HANDLE ep = DAT_HANDLE_NULL;
  DAT_EP_ATTR attributes = default_attributes();
  SUCCEEDS(dat_ep_create(one.ia, one.pz, one.dto_evd, one.dto_evd, one.evd, &attributes, &ep));
  DAT_EP_PARAM param;
  memset(&param, 0, sizeof param);
  SUCCEEDS(dat_ep_query(ep, DAT_EP_FIELD_ALL, &param));
  CHECK(param.ep_state == DAT_EP_STATE_UNCONNECTED && param.ia_handle == one.ia && param.pz_handle == one.pz);
  CHECK(param.recv_evd_handle == one.dto_evd && param.request_evd_handle == one.dto_evd &&
        param.connect_evd_handle == one.evd);
  shows("EP-001 EP-002 EP-007 EP-049");
  const DAT_EP_ATTR* is = &param.ep_attr;
  CHECK(is->max_recv_dtos >= attributes.max_recv_dtos && is->max_request_dtos >= attributes.max_request_dtos);
  CHECK(is->max_recv_iov >= attributes.max_recv_iov && is->max_request_iov >= attributes.max_request_iov);
  shows("EP-011 EPATTR-008 EPATTR-010 EPATTR-011 EPATTR-012");
  CHECK(is->max_message_size == attributes.max_message_size && is->max_rdma_size == attributes.max_rdma_size);
  CHECK(is->max_rdma_read_in == attributes.max_rdma_read_in && is->max_rdma_read_out == attributes.max_rdma_read_out);
  shows("EP-012 EPATTR-003 EPATTR-013 EPATTR-014");
  CHECK(is->service_type == DAT_SERVICE_TYPE_RC && is->qos == DAT_QOS_BEST_EFFORT);
  shows("EP-013 EPATTR-001");
  CHECK(param.srq_handle == DAT_HANDLE_NULL && is->srq_soft_hw == DAT_HW_DEFAULT);
  shows("EP-054 EPATTR-016");
  FAILS(dat_ep_query(ep, BEYOND(DAT_EP_FIELD_ALL), &param), DAT_INVALID_PARAMETER);
  FAILS(dat_ep_query(ep, DAT_EP_FIELD_ALL, NULL), DAT_INVALID_PARAMETER);
  FAILS(dat_ep_query(DAT_HANDLE_NULL, DAT_EP_FIELD_ALL, &param), DAT_INVALID_HANDLE);
  shows("EP-050");
  DAT_EP_HANDLE plain = create_ep(&one, NULL);
  SUCCEEDS(dat_ep_query(plain, DAT_EP_FIELD_EP_ATTR_ALL, &param));
  CHECK(is->max_recv_dtos > 0 && is->max_request_dtos > 0 && is->max_message_size > 0);
  shows("EP-010 EPATTR-022");

  DAT_EP_HANDLE other = DAT_HANDLE_NULL;
  FAILS(dat_ep_create(DAT_HANDLE_NULL, one.pz, one.dto_evd, one.dto_evd, one.evd, NULL, &other), DAT_INVALID_HANDLE);
  FAILS(dat_ep_create(one.ia, one.evd, one.dto_evd, one.dto_evd, one.evd, NULL, &other), DAT_INVALID_HANDLE);
  FAILS(dat_ep_create(one.ia, one.pz, one.pz, one.dto_evd, one.evd, NULL, &other), DAT_INVALID_HANDLE);
  FAILS(dat_ep_create(one.ia, one.pz, one.dto_evd, one.dto_evd, one.evd, NULL, NULL), DAT_INVALID_PARAMETER);
  attributes.max_message_size = UINT32_MAX;
  CHECK(dat_ep_create(one.ia, one.pz, one.dto_evd, one.dto_evd, one.evd, &attributes, &other) != DAT_SUCCESS);
  attributes = default_attributes();
  attributes.max_recv_dtos = -4;
  CHECK(dat_ep_create(one.ia, one.pz, one.dto_evd, one.dto_evd, one.evd, &attributes, &other) != DAT_SUCCESS);
  shows("EP-014 ERR-033");
  CHECK(dat_ep_create(one.ia, one.pz, one.evd, one.dto_evd, one.evd, NULL, &other) != DAT_SUCCESS);
  CHECK(dat_ep_create(one.ia, one.pz, one.dto_evd, one.dto_evd, one.dto_evd, NULL, &other) != DAT_SUCCESS);
  CHECK(dat_ep_create(one.ia, one.pz, two.dto_evd, one.dto_evd, one.evd, NULL, &other) != DAT_SUCCESS);
  CHECK(dat_ep_create(one.ia, two.pz, one.dto_evd, one.dto_evd, one.evd, NULL, &other) != DAT_SUCCESS);
  shows("EP-008 EVENT-006 EVENT-026 CONN-035");

  DAT_EP_STATE state;
  DAT_BOOLEAN recv_idle = DAT_FALSE, request_idle = DAT_FALSE;
  SUCCEEDS(dat_ep_get_status(ep, &state, &recv_idle, &request_idle));
  CHECK(recv_idle == DAT_TRUE && request_idle == DAT_TRUE);
  one.ep = ep;
  SUCCEEDS(post_recv(&one, 0, 8, 1));
  SUCCEEDS(dat_ep_get_status(ep, &state, &recv_idle, &request_idle));
  CHECK(recv_idle == DAT_FALSE && request_idle == DAT_TRUE);
  shows("EP-045 EP-046");
  FAILS(dat_ep_get_status(DAT_HANDLE_NULL, &state, &recv_idle, &request_idle), DAT_INVALID_HANDLE);
  shows("EP-048");
  close_link();
}

static void unconfigured(void) {
  open_side(&one);
  DAT_EP_HANDLE ep = DAT_HANDLE_NULL;
  SUCCEEDS(dat_ep_create(one.ia, DAT_HANDLE_NULL, DAT_HANDLE_NULL, DAT_HANDLE_NULL, DAT_HANDLE_NULL, NULL, &ep));
  CHECK(state_of(ep) == DAT_EP_STATE_UNCONFIGURED_UNCONNECTED);
  shows("EPS-076 EP-009");
  FAILS(connect_to(ep, 1024, ""), DAT_INVALID_STATE);
  shows("EPS-077 CONN-039");
  DAT_EP_PARAM param;
  memset(&param, 0, sizeof param);
  param.pz_handle = one.pz;
  param.connect_evd_handle = one.evd;
  param.recv_evd_handle = param.request_evd_handle = one.dto_evd;
  SUCCEEDS(dat_ep_modify(ep, DAT_EP_FIELD_PZ_HANDLE | DAT_EP_FIELD_CONNECT_EVD_HANDLE, &param));
  CHECK(state_of(ep) == DAT_EP_STATE_UNCONFIGURED_UNCONNECTED);
  shows("EPS-083");
  SUCCEEDS(dat_ep_modify(ep, DAT_EP_FIELD_RECV_EVD_HANDLE | DAT_EP_FIELD_REQUEST_EVD_HANDLE, &param));
  CHECK(state_of(ep) == DAT_EP_STATE_UNCONNECTED);
  shows("EPS-080 EP-075");
  SUCCEEDS(dat_ep_free(ep));
  SUCCEEDS(dat_ep_create(one.ia, DAT_HANDLE_NULL, DAT_HANDLE_NULL, DAT_HANDLE_NULL, DAT_HANDLE_NULL, NULL, &ep));
  SUCCEEDS(dat_ep_free(ep));
  shows("EPS-078");
  close_side(&one);
}

static void modifying(void) {
  open_link(NULL);
  DAT_EP_HANDLE ep = create_ep(&one, NULL);
  DAT_EP_PARAM param, before;
  memset(&param, 0, sizeof param);
  memset(&before, 0, sizeof before);
  SUCCEEDS(dat_ep_query(ep, DAT_EP_FIELD_ALL, &before));
  param.ep_attr.max_rdma_read_in = 1;
  param.ep_attr.max_request_dtos = 32;
  SUCCEEDS(dat_ep_modify(ep, DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IN | DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS, &param));
  SUCCEEDS(dat_ep_query(ep, DAT_EP_FIELD_ALL, &param));
  CHECK(param.ep_attr.max_rdma_read_in == 1 && param.ep_attr.max_request_dtos >= 32);
  CHECK(param.ep_attr.max_message_size == before.ep_attr.max_message_size && param.pz_handle == before.pz_handle);
  shows("EP-067 EP-072 EP-080");
  FAILS(dat_ep_modify(ep, DAT_EP_FIELD_IA_HANDLE, &param), DAT_INVALID_PARAMETER);
  FAILS(dat_ep_modify(ep, DAT_EP_FIELD_EP_STATE, &param), DAT_INVALID_PARAMETER);
  FAILS(dat_ep_modify(ep, DAT_EP_FIELD_REMOTE_PORT_QUAL, &param), DAT_INVALID_PARAMETER);
  shows("EP-069");
  FAILS(dat_ep_modify(ep, BEYOND(DAT_EP_FIELD_ALL), &param), DAT_INVALID_PARAMETER);
  SUCCEEDS(dat_ep_modify(ep, 0, &param));
  shows("EP-071");
  FAILS(dat_ep_modify(one.ep, DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IN, &param), DAT_INVALID_STATE);
  RETURNS(dat_ep_modify(one.ep, DAT_EP_FIELD_PZ_HANDLE, &param), DAT_INVALID_STATE, DAT_INVALID_STATE_EP_CONNECTED);
  shows("EP-070 EP-068");
  FAILS(dat_ep_modify(DAT_HANDLE_NULL, DAT_EP_FIELD_PZ_HANDLE, &param), DAT_INVALID_HANDLE);
  FAILS(dat_ep_modify(ep, DAT_EP_FIELD_PZ_HANDLE, NULL), DAT_INVALID_PARAMETER);
  DAT_COUNT buffers = -1, span = -1;
  SUCCEEDS(post_recv(&one, 0, 8, 1));
  SUCCEEDS(dat_ep_recv_query(one.ep, &buffers, &span));
  CHECK(buffers == 1 && span >= buffers);
  shows("EP-058 EP-060");
  SUCCEEDS(dat_ep_recv_query(one.ep, NULL, &span));
  SUCCEEDS(dat_ep_recv_query(one.ep, &buffers, NULL));
  shows("EP-063");
  FAILS(dat_ep_recv_query(DAT_HANDLE_NULL, &buffers, &span), DAT_INVALID_HANDLE);
  close_link();
}

static void watermarks(void) {
  open_side(&one);
  DAT_EP_HANDLE ep = create_ep(&one, NULL);
  DAT_PROVIDER_ATTR* p = calloc(1, sizeof *p);
  if (!p) abort();
  SUCCEEDS(dat_ia_query(one.ia, NULL, 0, NULL, DAT_PROVIDER_FIELD_SRQ_WATERMARKS_SUPPORTED, p));
  FAILS(dat_ep_set_watermark(DAT_HANDLE_NULL, DAT_WATERMARK_INFINITE, DAT_WATERMARK_INFINITE), DAT_INVALID_HANDLE);
  FAILS(dat_ep_set_watermark(ep, -7, DAT_WATERMARK_INFINITE), DAT_INVALID_PARAMETER);
  shows("EP-096");
  if (p->srq_watermarks_supported & 0x010) {
    SUCCEEDS(dat_ep_set_watermark(ep, 2, DAT_WATERMARK_INFINITE));
    shows("EP-085");
  } else {
    FAILS(dat_ep_set_watermark(ep, 2, DAT_WATERMARK_INFINITE), DAT_MODEL_NOT_SUPPORTED);
    shows("EP-086");
  }
  SUCCEEDS(dat_ep_set_watermark(ep, DAT_WATERMARK_INFINITE, DAT_WATERMARK_INFINITE));
  shows("EP-092");
  free(p);
  close_side(&one);
}

const struct test_case endpoint_cases[] = {
    {"an endpoint has at least the attributes that it was asked for", creating},
    {"an endpoint without zone and evds is configured later", unconfigured},
    {"an endpoint is modified as its state allows", modifying},
    {"an endpoint has watermarks as far as its provider supports them", watermarks},
    {NULL, NULL},
};

// ---- shared receive queues ---------------------------------------------------------------------------------------

static DAT_SRQ_HANDLE srq;

static DAT_RETURN srq_post(unsigned offset, unsigned length, DAT_UINT64 value) {
  DAT_LMR_TRIPLET iov = part(&two, offset, length);
  return dat_srq_post_recv(srq, 1, &iov, cookie(value));
}

static DAT_SRQ_PARAM srq_param(void) {
  DAT_SRQ_PARAM param;
  memset(&param, 0, sizeof param);
  SUCCEEDS(dat_srq_query(srq, DAT_SRQ_FIELD_ALL, &param));
  return param;
}

static void shared_queues(void) {
  open_side(&one);
  open_side(&two);
  DAT_SRQ_ATTR attr = {10, 2, DAT_SRQ_LW_DEFAULT};
  SUCCEEDS(dat_srq_create(two.ia, two.pz, &attr, &srq));
  DAT_SRQ_PARAM param = srq_param();
  CHECK(param.ia_handle == two.ia && param.pz_handle == two.pz && param.srq_state == DAT_SRQ_STATE_OPERATIONAL);
  CHECK(param.available_dto_count == 0 && param.outstanding_dto_count == 0);
  shows("SRQ-007 SRQ-008 SRQ-053");
  CHECK(param.max_recv_dtos >= 10 && param.max_recv_iov >= 2 && param.low_watermark == DAT_SRQ_LW_DEFAULT);
  shows("SRQ-010");
  DAT_SRQ_HANDLE other = DAT_HANDLE_NULL;
  FAILS(dat_srq_create(DAT_HANDLE_NULL, two.pz, &attr, &other), DAT_INVALID_HANDLE);
  FAILS(dat_srq_create(two.ia, DAT_HANDLE_NULL, &attr, &other), DAT_INVALID_HANDLE);
  FAILS(dat_srq_create(two.ia, one.pz, &attr, &other), DAT_INVALID_HANDLE);
  shows("SRQ-013");
  FAILS(dat_srq_create(two.ia, two.pz, NULL, &other), DAT_INVALID_PARAMETER);
  attr.max_recv_dtos = 0;
  FAILS(dat_srq_create(two.ia, two.pz, &attr, &other), DAT_INVALID_PARAMETER);
  attr = (DAT_SRQ_ATTR){10, 2, 3};
  FAILS(dat_srq_create(two.ia, two.pz, &attr, &other), DAT_INVALID_PARAMETER);
  shows("SRQ-011 SRQ-014");
  FAILS(dat_srq_query(srq, BEYOND(DAT_SRQ_FIELD_ALL), &param), DAT_INVALID_PARAMETER);
  FAILS(dat_srq_query(DAT_HANDLE_NULL, DAT_SRQ_FIELD_ALL, &param), DAT_INVALID_HANDLE);
  shows("SRQ-054");

  // Posting.
  for (unsigned i = 0; i < 3; ++i) SUCCEEDS(srq_post(64 * i, 64, i));
  param = srq_param();
  CHECK(param.available_dto_count == 3 && param.outstanding_dto_count == 3);
  shows("SRQ-055 SRQ-056 SRQ-072 SRQ-077");
  DAT_LMR_TRIPLET iov[3] = {part(&two, 0, 8), part(&two, 8, 8), part(&two, 16, 8)};
  FAILS(dat_srq_post_recv(srq, -1, iov, cookie(9)), DAT_INVALID_PARAMETER);
  FAILS(dat_srq_post_recv(srq, param.max_recv_iov + 1, iov, cookie(9)), DAT_INVALID_PARAMETER);
  FAILS(dat_srq_post_recv(srq, 1, NULL, cookie(9)), DAT_INVALID_PARAMETER);
  shows("SRQ-074");
  FAILS(dat_srq_post_recv(DAT_HANDLE_NULL, 1, iov, cookie(9)), DAT_INVALID_HANDLE);
  shows("SRQ-090");
  iov[0] = part(&two, memory_size - 4, 64);
  FAILS(dat_srq_post_recv(srq, 1, iov, cookie(9)), DAT_INVALID_PARAMETER);
  shows("SRQ-087");
  iov[0] = part(&two, 0, 8);
  iov[0].lmr_context ^= 0x5a5a00;
  FAILS(dat_srq_post_recv(srq, 1, iov, cookie(9)), DAT_PRIVILEGES_VIOLATION);
  shows("SRQ-089");

  // An endpoint on it.
  DAT_EP_ATTR attributes = default_attributes();
  attributes.max_recv_dtos = DAT_HW_DEFAULT;
  attributes.recv_completion_flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
  attributes.request_completion_flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
  DAT_EP_HANDLE ep = DAT_HANDLE_NULL;
  FAILS(dat_ep_create_with_srq(two.ia, two.pz, two.dto_evd, two.dto_evd, two.evd, DAT_HANDLE_NULL, &attributes, &ep),
        DAT_INVALID_HANDLE);
  shows("EP-030");
  FAILS(dat_ep_create_with_srq(two.ia, two.pz, two.dto_evd, two.dto_evd, two.evd, srq, NULL, &ep),
        DAT_INVALID_PARAMETER);
  shows("EP-024");
  SUCCEEDS(dat_ep_create_with_srq(two.ia, two.pz, two.dto_evd, two.dto_evd, two.evd, srq, &attributes, &ep));
  two.ep = ep;
  DAT_EP_PARAM ep_param;
  memset(&ep_param, 0, sizeof ep_param);
  SUCCEEDS(dat_ep_query(ep, DAT_EP_FIELD_ALL, &ep_param));
  CHECK(ep_param.srq_handle == srq && ep_param.ep_state == DAT_EP_STATE_UNCONNECTED &&
        ep_param.ep_attr.max_recv_iov == 0);
  shows("EP-022 EP-028 EP-055 SRQ-017");
  FAILS(post_recv(&two, 0, 8, 9), DAT_INVALID_STATE);
  shows("EP-025 DTO-122 DTO-027");
  RETURNS(dat_srq_free(srq), DAT_INVALID_STATE, DAT_INVALID_STATE_SRQ_IN_USE);
  shows("SRQ-046 DTO-026");
  one.ep = create_ep(&one, NULL);
  DAT_CONN_QUAL qualifier = 0;
  DAT_PSP_HANDLE psp = listen_on(&qualifier, DAT_PSP_CONSUMER_FLAG);
  SUCCEEDS(connect_to(one.ep, qualifier, ""));
  SUCCEEDS(dat_cr_accept(request(), ep, 0, NULL));
  EXPECT(two.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  EXPECT(one.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  memcpy(one.memory, "to the shared queue", 20);
  SUCCEEDS(post_send(&one, 0, 20, 20));
  COMPLETES(&one, 20, DAT_DTO_SUCCESS);
  const DAT_EVENT event = EXPECT(two.dto_evd, DAT_DTO_COMPLETION_EVENT);
  const DAT_DTO_COMPLETION_EVENT_DATA* d = &event.event_data.dto_completion_event_data;
  CHECK(d->ep_handle == ep && d->operation == DAT_DTO_RECEIVE && d->transfered_length == 20 &&
        d->user_cookie.as_64 < 3);
  CHECK(memcmp(two.memory + 64 * d->user_cookie.as_64, "to the shared queue", 20) == 0);
  shows("SRQ-078");
  param = srq_param();
  CHECK(param.available_dto_count == 2 && param.outstanding_dto_count == 2);
  shows("SRQ-029 SRQ-057");
  // The low watermark: one event for each time it is set.
  FAILS(dat_srq_set_lw(srq, param.max_recv_dtos + 1), DAT_INVALID_PARAMETER);
  FAILS(dat_srq_set_lw(DAT_HANDLE_NULL, 1), DAT_INVALID_HANDLE);
  shows("SRQ-041 SRQ-043");
  SUCCEEDS(dat_srq_set_lw(srq, 2));
  CHECK(srq_param().low_watermark == 2);
  shows("SRQ-035");
  SUCCEEDS(post_send(&one, 0, 8, 21));
  COMPLETES(&one, 21, DAT_DTO_SUCCESS);
  DAT_EVENT async;
  DAT_COUNT more;
  SUCCEEDS(dat_evd_wait(two.async_evd, ample, 1, &async, &more));
  CHECK(async.event_data.asynch_error_event_data.dat_handle == srq &&
        async.event_data.asynch_error_event_data.reason == DAT_SRQ_LOW_WATERMARK_EVENT);
  shows("SRQ-037 SRQ-038");
  EXPECT(two.dto_evd, DAT_DTO_COMPLETION_EVENT);
  SUCCEEDS(post_send(&one, 0, 8, 22));
  EXPECT(two.dto_evd, DAT_DTO_COMPLETION_EVENT);
  EMPTY(two.async_evd);
  shows("SRQ-032 SRQ-039");
  // Resizing.
  SUCCEEDS(dat_srq_set_lw(srq, DAT_SRQ_LW_DEFAULT));
  SUCCEEDS(dat_srq_resize(srq, 40));
  CHECK(srq_param().max_recv_dtos >= 40);
  shows("SRQ-061");
  FAILS(dat_srq_resize(srq, 0), DAT_INVALID_PARAMETER);
  FAILS(dat_srq_resize(srq, -1), DAT_INVALID_PARAMETER);
  shows("SRQ-066");
  FAILS(dat_srq_resize(DAT_HANDLE_NULL, 40), DAT_INVALID_HANDLE);
  shows("SRQ-069");
  SUCCEEDS(dat_ep_disconnect(one.ep, DAT_CLOSE_ABRUPT_FLAG));
  EXPECT(two.evd, DAT_CONNECTION_EVENT_DISCONNECTED);
  SUCCEEDS(srq_post(0, 8, 30));
  SUCCEEDS(dat_ep_reset(ep));
  CHECK(srq_param().available_dto_count == 1);
  SUCCEEDS(dat_ep_query(ep, DAT_EP_FIELD_SRQ_HANDLE, &ep_param));
  CHECK(ep_param.srq_handle == srq);
  shows("EPS-073 EP-026 DISC-052 DISC-032");
  SUCCEEDS(dat_ep_free(ep));
  SUCCEEDS(dat_srq_free(srq));
  FAILS(dat_srq_free(srq), DAT_INVALID_HANDLE);
  shows("SRQ-045 SRQ-050 DTO-025");
  SUCCEEDS(dat_psp_free(psp));
  close_link();
}

const struct test_case srq_cases[] = {
    {"a shared queue gives its buffers to the endpoints that need them", shared_queues},
    {NULL, NULL},
};
