// Shared receive queues.
// SPDX-License-Identifier: BSL-1.0
#include "provider_test.h"

void shared_queues(void) {
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
