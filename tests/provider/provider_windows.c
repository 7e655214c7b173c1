// Memory windows: bind, query, read into one, with right arguments and with each argument wrong in turn.
// SPDX-License-Identifier: BSL-1.0
#include "provider_test.h"

void windows(void) {
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
  completion(&a, 7, DAT_DTO_RDMA_READ, 8);

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
