// Connection requests, and the three ways in which a service point answers them.
// SPDX-License-Identifier: BSL-1.0
#include "provider_test.h"

void requests(void) {
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
  RETURNS(dat_ep_common_connect(c.ep, NULL, PLENTY, 0, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_ep_common_connect(c.ep, (DAT_IA_ADDRESS_PTR)(uintptr_t)&nowhere, PLENTY, 0, NULL), DAT_INVALID_PARAMETER,
          DAT_INVALID_ARG2);

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

  // The endpoint of a reserved service point accepts.
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
  SUCCEEDS(dat_ia_close(c.ia, DAT_CLOSE_ABRUPT_FLAG)); // closes all remaining objects
}
