// The calls that query and modify objects.
// SPDX-License-Identifier: BSL-1.0
#include "provider_test.h"

// Whether the provider has a named attribute, with this value unless that is null.
static int named(const DAT_PROVIDER_ATTR* provider, const char* name, const char* value) {
  for (int i = 0; i < provider->num_provider_specific_attr; ++i)
    if (strcmp(provider->provider_specific_attr[i].name, name) == 0)
      return value ? strcmp(provider->provider_specific_attr[i].value, value) == 0
                   : provider->provider_specific_attr[i].value[0] != '\0';
  return 0;
}

void queries(void) {
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
