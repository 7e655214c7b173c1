// Public, reserved and common service points, and requests that change hands.
// SPDX-License-Identifier: BSL-1.0
#include "rules.h"

static void open_both(void) {
  open_side(&one);
  open_side(&two);
  one.ep = create_ep(&one, NULL);
  two.ep = create_ep(&two, NULL);
}

static void public_ones(void) {
  open_both();
  DAT_CONN_QUAL qualifier = 0, other = 0;
  DAT_PSP_HANDLE psp = listen_on(&qualifier, DAT_PSP_CONSUMER_FLAG), second = DAT_HANDLE_NULL;
  CHECK(qualifier >= 1024);
  shows("PSP-016 PSP-029 PSP-030");
  DAT_PSP_PARAM param = {0};
  SUCCEEDS(dat_psp_query(psp, DAT_PSP_FIELD_ALL, &param));
  CHECK(param.ia_handle == two.ia && param.conn_qual == qualifier && param.evd_handle == two.evd);
  CHECK(param.psp_flags == DAT_PSP_CONSUMER_FLAG);
  shows("PSP-042");
  FAILS(dat_psp_query(psp, BEYOND(DAT_PSP_FIELD_ALL), &param), DAT_INVALID_PARAMETER);
  FAILS(dat_psp_query(DAT_HANDLE_NULL, DAT_PSP_FIELD_ALL, &param), DAT_INVALID_HANDLE);
  shows("PSP-041");
  FAILS(dat_psp_create(two.ia, qualifier, two.evd, DAT_PSP_CONSUMER_FLAG, &second), DAT_CONN_QUAL_IN_USE);
  shows("PSP-001 PSP-019 ERR-014 ADDR-013");
  FAILS(dat_psp_create(DAT_HANDLE_NULL, qualifier, two.evd, DAT_PSP_CONSUMER_FLAG, &second), DAT_INVALID_HANDLE);
  FAILS(dat_psp_create(two.ia, qualifier + 1, DAT_HANDLE_NULL, DAT_PSP_CONSUMER_FLAG, &second), DAT_INVALID_HANDLE);
  FAILS(dat_psp_create(two.ia, qualifier + 1, two.pz, DAT_PSP_CONSUMER_FLAG, &second), DAT_INVALID_HANDLE);
  shows("PSP-018");
  FAILS(dat_psp_create(two.ia, qualifier + 1, two.evd, (DAT_PSP_FLAGS)2, &second), DAT_INVALID_PARAMETER);
  shows("PSP-017");
  CHECK(dat_psp_create(two.ia, qualifier + 1, two.dto_evd, DAT_PSP_CONSUMER_FLAG, &second) != DAT_SUCCESS);
  CHECK(dat_psp_create(two.ia, qualifier + 1, one.evd, DAT_PSP_CONSUMER_FLAG, &second) != DAT_SUCCESS);
  shows("PSP-010");
  // Two service points feed one evd.
  SUCCEEDS(dat_psp_create_any(two.ia, &other, two.evd, DAT_PSP_CONSUMER_FLAG, &second));
  CHECK(other != qualifier);
  SUCCEEDS(connect_to(one.ep, other, ""));
  DAT_EVENT event = EXPECT(two.evd, DAT_CONNECTION_REQUEST_EVENT);
  CHECK(event.event_data.cr_arrival_event_data.sp_handle.psp_handle == second);
  shows("PSP-003");
  // A request outlives its service point.
  SUCCEEDS(dat_psp_free(second));
  SUCCEEDS(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, two.ep, 0, NULL));
  EXPECT(two.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  EXPECT(one.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  shows("PSP-036 PSP-025");
  FAILS(dat_psp_free(second), DAT_INVALID_HANDLE);
  FAILS(dat_psp_query(second, DAT_PSP_FIELD_ALL, &param), DAT_INVALID_HANDLE);
  shows("PSP-040");
  SUCCEEDS(dat_psp_free(psp));
  SUCCEEDS(dat_psp_create(two.ia, qualifier, two.evd, DAT_PSP_CONSUMER_FLAG, &psp)); // free again
  shows("PSP-038");
  SUCCEEDS(dat_psp_free(psp));
  close_link();
}

static void provider_made_endpoints(void) {
  open_both();
  DAT_CONN_QUAL qualifier = 0;
  DAT_PSP_HANDLE psp = listen_on(&qualifier, DAT_PSP_PROVIDER_FLAG);
  SUCCEEDS(connect_to(one.ep, qualifier, ""));
  DAT_CR_HANDLE cr = request();
  DAT_CR_PARAM param;
  SUCCEEDS(dat_cr_query(cr, DAT_CR_FIELD_ALL, &param));
  DAT_EP_HANDLE made = param.local_ep_handle;
  CHECK(made != DAT_HANDLE_NULL);
  DAT_EP_PARAM ep;
  memset(&ep, 0, sizeof ep);
  SUCCEEDS(dat_ep_query(made, DAT_EP_FIELD_ALL, &ep));
  CHECK(ep.pz_handle == DAT_HANDLE_NULL && ep.recv_evd_handle == DAT_HANDLE_NULL &&
        ep.request_evd_handle == DAT_HANDLE_NULL && ep.connect_evd_handle == DAT_HANDLE_NULL);
  CHECK(ep.ep_state == DAT_EP_STATE_UNCONFIGURED_TENTATIVE);
  shows("PSP-021 EPS-040 CR-005");
  CHECK(dat_cr_accept(cr, DAT_HANDLE_NULL, 0, NULL) != DAT_SUCCESS);
  FAILS(dat_ep_free(made), DAT_INVALID_STATE);
  shows("EPS-042 EPS-047");
  ep.pz_handle = two.pz;
  ep.recv_evd_handle = ep.request_evd_handle = two.dto_evd;
  ep.connect_evd_handle = two.evd;
  SUCCEEDS(dat_ep_modify(made,
                         DAT_EP_FIELD_PZ_HANDLE | DAT_EP_FIELD_RECV_EVD_HANDLE | DAT_EP_FIELD_REQUEST_EVD_HANDLE |
                             DAT_EP_FIELD_CONNECT_EVD_HANDLE,
                         &ep));
  CHECK(state_of(made) == DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING);
  shows("EPS-041 EP-083");
  CHECK(dat_cr_accept(cr, two.ep, 0, NULL) != DAT_SUCCESS); // the request can use only its own endpoint
  shows("CR-021");
  SUCCEEDS(dat_cr_accept(cr, DAT_HANDLE_NULL, 0, NULL));
  CHECK(EXPECT(two.evd, DAT_CONNECTION_EVENT_ESTABLISHED).event_data.connect_event_data.ep_handle == made);
  EXPECT(one.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  CHECK(state_of(made) == DAT_EP_STATE_CONNECTED);
  shows("PSP-024 CR-022");
  DAT_CONTEXT context = {.as_64 = 1};
  SUCCEEDS(dat_get_consumer_context(made, &context));
  CHECK(context.as_64 == 0);
  shows("CTX-011");
  // Rejecting returns the endpoint.
  DAT_EP_HANDLE again = create_ep(&one, NULL);
  SUCCEEDS(connect_to(again, qualifier, ""));
  cr = request();
  SUCCEEDS(dat_cr_query(cr, DAT_CR_FIELD_ALL, &param));
  SUCCEEDS(dat_cr_reject(cr, 0, NULL));
  DAT_EP_STATE state;
  DAT_BOOLEAN idle;
  FAILS(dat_ep_get_status(param.local_ep_handle, &state, &idle, &idle), DAT_INVALID_HANDLE);
  EXPECT(one.evd, DAT_CONNECTION_EVENT_PEER_REJECTED);
  shows("CR-053 EPS-043");
  SUCCEEDS(dat_psp_free(psp));
  close_link();
}

static void reserved_ones(void) {
  open_both();
  DAT_CONN_QUAL qualifier = 0;
  DAT_PSP_HANDLE psp = listen_on(&qualifier, DAT_PSP_CONSUMER_FLAG);
  SUCCEEDS(dat_psp_free(psp)); // the qualifier is free
  DAT_RSP_HANDLE rsp = DAT_HANDLE_NULL, second = DAT_HANDLE_NULL;
  SUCCEEDS(post_recv(&two, 0, 64, 1));
  SUCCEEDS(dat_rsp_create(two.ia, qualifier, two.ep, two.evd, &rsp));
  CHECK(state_of(two.ep) == DAT_EP_STATE_RESERVED);
  shows("EPS-033");
  DAT_RSP_PARAM param = {0};
  SUCCEEDS(dat_rsp_query(rsp, DAT_RSP_FIELD_ALL, &param));
  CHECK(param.ia_handle == two.ia && param.conn_qual == qualifier && param.evd_handle == two.evd &&
        param.ep_handle == two.ep);
  FAILS(dat_rsp_query(rsp, BEYOND(DAT_RSP_FIELD_ALL), &param), DAT_INVALID_PARAMETER);
  FAILS(dat_rsp_query(DAT_HANDLE_NULL, DAT_RSP_FIELD_ALL, &param), DAT_INVALID_HANDLE);
  shows("RSP-027");
  FAILS(dat_rsp_create(two.ia, qualifier + 1, two.ep, two.evd, &second), DAT_INVALID_STATE);
  shows("RSP-006 RSP-009");
  RETURNS(dat_ep_free(two.ep), DAT_INVALID_STATE, DAT_INVALID_STATE_EP_RESERVED);
  shows("RSP-010");
  FAILS(dat_ep_disconnect(two.ep, DAT_CLOSE_ABRUPT_FLAG), DAT_INVALID_STATE);
  FAILS(dat_ep_reset(two.ep), DAT_INVALID_STATE);
  FAILS(connect_to(two.ep, qualifier, ""), DAT_INVALID_STATE);
  shows("RSP-011 DISC-025");
  DAT_EP_HANDLE spare = create_ep(&two, NULL);
  FAILS(dat_rsp_create(two.ia, qualifier, spare, two.evd, &second), DAT_CONN_QUAL_IN_USE);
  FAILS(dat_rsp_create(DAT_HANDLE_NULL, qualifier + 1, spare, two.evd, &second), DAT_INVALID_HANDLE);
  FAILS(dat_rsp_create(two.ia, qualifier + 1, spare, DAT_HANDLE_NULL, &second), DAT_INVALID_HANDLE);
  FAILS(dat_rsp_create(two.ia, qualifier + 1, two.pz, two.evd, &second), DAT_INVALID_HANDLE);
  CHECK(dat_rsp_create(two.ia, qualifier + 1, one.ep, two.evd, &second) != DAT_SUCCESS);
  shows("RSP-012 RSP-007");

  // The request comes with the endpoint. After a reject, the endpoint is free again, and its posted receives stay.
  SUCCEEDS(connect_to(one.ep, qualifier, ""));
  DAT_CR_HANDLE cr = request();
  DAT_CR_PARAM request_param;
  SUCCEEDS(dat_cr_query(cr, DAT_CR_FIELD_ALL, &request_param));
  CHECK(request_param.local_ep_handle == two.ep && state_of(two.ep) == DAT_EP_STATE_PASSIVE_CONNECTION_PENDING);
  shows("RSP-014 RSP-005 EPS-035");
  SUCCEEDS(dat_rsp_query(rsp, DAT_RSP_FIELD_ALL, &param));
  shows("RSP-003");
  SUCCEEDS(dat_cr_reject(cr, 0, NULL));
  CHECK(state_of(two.ep) == DAT_EP_STATE_UNCONNECTED);
  EXPECT(one.evd, DAT_CONNECTION_EVENT_PEER_REJECTED);
  EMPTY(two.dto_evd);
  shows("RSP-018 CR-054 EPS-037");
  // A reserved service point reports one request only.
  SUCCEEDS(dat_ep_reset(one.ep));
  SUCCEEDS(connect_to(one.ep, qualifier, ""));
  EXPECT(one.evd, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
  shows("RSP-001 RSP-002");
  SUCCEEDS(dat_rsp_free(rsp));
  FAILS(dat_rsp_free(rsp), DAT_INVALID_HANDLE);
  shows("RSP-026");
  // After a free without a request, the endpoint is unchanged.
  SUCCEEDS(dat_rsp_create(two.ia, qualifier, two.ep, two.evd, &rsp));
  SUCCEEDS(dat_rsp_free(rsp));
  CHECK(state_of(two.ep) == DAT_EP_STATE_UNCONNECTED);
  EMPTY(two.dto_evd);
  shows("RSP-023 RSP-004 EPS-034");
  // This request is accepted.
  SUCCEEDS(dat_rsp_create(two.ia, qualifier, two.ep, two.evd, &rsp));
  SUCCEEDS(dat_ep_reset(one.ep));
  SUCCEEDS(connect_to(one.ep, qualifier, ""));
  cr = request();
  SUCCEEDS(dat_rsp_free(rsp)); // the request and its endpoint remain
  SUCCEEDS(dat_cr_accept(cr, DAT_HANDLE_NULL, 0, NULL));
  EXPECT(two.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  EXPECT(one.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  shows("RSP-017 RSP-024 EPS-036");
  SUCCEEDS(post_send(&one, 0, 8, 2));
  COMPLETES(&two, 1, DAT_DTO_SUCCESS);
  close_link();
}

static void common_ones(void) {
  open_both();
  DAT_COMM comm = {AF_INET, SOCK_STREAM, 0};
  DAT_CSP_HANDLE csp = DAT_HANDLE_NULL, second = DAT_HANDLE_NULL;
  struct sockaddr_in address = two.address;
  address.sin_port = 0;
  SUCCEEDS(dat_csp_create(two.ia, &comm, (DAT_IA_ADDRESS_PTR)&address, two.evd, &csp));
  DAT_CSP_PARAM param = {0};
  SUCCEEDS(dat_csp_query(csp, DAT_CSP_FIELD_ALL, &param));
  CHECK(param.ia_handle == two.ia && param.evd_handle == two.evd && param.comm && param.comm->domain == AF_INET &&
        param.comm->type == SOCK_STREAM);
  const struct sockaddr_in* at = (const struct sockaddr_in*)param.address_ptr;
  CHECK(at && at->sin_port != 0 && at->sin_addr.s_addr == two.address.sin_addr.s_addr);
  shows("CSP-001 CSP-003 CSP-005 CSP-007 CSP-022");
  FAILS(dat_csp_query(csp, BEYOND(DAT_CSP_FIELD_ALL), &param), DAT_INVALID_PARAMETER);
  FAILS(dat_csp_query(DAT_HANDLE_NULL, DAT_CSP_FIELD_ALL, &param), DAT_INVALID_HANDLE);
  shows("CSP-021");
  address = *at;
  RETURNS(dat_csp_create(two.ia, &comm, (DAT_IA_ADDRESS_PTR)&address, two.evd, &second), DAT_PORT_IN_USE,
          DAT_NO_SUBTYPE);
  shows("CSP-010 ERR-029");
  DAT_COMM odd = {AF_INET, SOCK_DGRAM, 0};
  FAILS(dat_csp_create(two.ia, &odd, (DAT_IA_ADDRESS_PTR)&two.address, two.evd, &second), DAT_COMM_NOT_SUPPORTED);
  odd = (DAT_COMM){AF_INET6, SOCK_STREAM, 0};
  CHECK(dat_csp_create(two.ia, &odd, (DAT_IA_ADDRESS_PTR)&two.address, two.evd, &second) != DAT_SUCCESS);
  shows("CSP-004 CSP-013");
  FAILS(dat_csp_create(DAT_HANDLE_NULL, &comm, (DAT_IA_ADDRESS_PTR)&two.address, two.evd, &second), DAT_INVALID_HANDLE);
  FAILS(dat_csp_create(two.ia, &comm, (DAT_IA_ADDRESS_PTR)&two.address, DAT_HANDLE_NULL, &second), DAT_INVALID_HANDLE);
  FAILS(dat_csp_create(two.ia, NULL, (DAT_IA_ADDRESS_PTR)&two.address, two.evd, &second), DAT_INVALID_PARAMETER);
  shows("CSP-011");

  // An endpoint with a communicator connects to an address with a port.
  FAILS(dat_ep_common_connect(one.ep, (DAT_IA_ADDRESS_PTR)&address, ample, 0, NULL), DAT_INVALID_STATE);
  shows("CONN-074");
  DAT_EP_PARAM ep;
  memset(&ep, 0, sizeof ep);
  ep.comm = comm;
  SUCCEEDS(dat_ep_modify(one.ep, DAT_EP_FIELD_COMM, &ep));
  FAILS(dat_ep_common_connect(one.ep, (DAT_IA_ADDRESS_PTR)&address, 0, 0, NULL), DAT_INVALID_PARAMETER);
  FAILS(dat_ep_common_connect(one.ep, NULL, ample, 0, NULL), DAT_INVALID_PARAMETER);
  shows("CONN-079");
  SUCCEEDS(dat_ep_common_connect(one.ep, (DAT_IA_ADDRESS_PTR)&address, ample, 0, NULL));
  DAT_EVENT event = EXPECT(two.evd, DAT_CONNECTION_REQUEST_EVENT);
  const DAT_CR_ARRIVAL_EVENT_DATA* arrival = &event.event_data.cr_arrival_event_data;
  CHECK(arrival->sp_handle.csp_handle == csp && arrival->conn_qual == ntohs(address.sin_port));
  shows("CSP-017 CONN-073 CONN-004 ADDR-011 ADDR-014");
  DAT_CR_PARAM cr;
  SUCCEEDS(dat_cr_query(arrival->cr_handle, DAT_CR_FIELD_ALL, &cr));
  CHECK(cr.remote_ia_address_ptr && cr.remote_port_qual != 0);
  shows("CSP-014 CONN-077");
  SUCCEEDS(dat_csp_free(csp));
  FAILS(dat_csp_free(csp), DAT_INVALID_HANDLE);
  shows("CSP-020");
  SUCCEEDS(dat_cr_accept(arrival->cr_handle, two.ep, 0, NULL));
  EXPECT(two.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  EXPECT(one.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  shows("CSP-019 CONN-078 EPS-030");
  DAT_EP_HANDLE again = create_ep(&one, NULL);
  SUCCEEDS(dat_ep_modify(again, DAT_EP_FIELD_COMM, &ep));
  SUCCEEDS(dat_ep_common_connect(again, (DAT_IA_ADDRESS_PTR)&address, ample, 0, NULL));
  EXPECT(one.evd, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
  shows("CSP-018");
  close_link();
}

static void handoffs(void) {
  open_both();
  DAT_CONN_QUAL first = 0, target = 0;
  DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
  SUCCEEDS(dat_evd_create(two.ia, 8, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &evd));
  DAT_PSP_HANDLE psp = listen_on(&first, DAT_PSP_CONSUMER_FLAG), other = DAT_HANDLE_NULL;
  SUCCEEDS(dat_psp_create_any(two.ia, &target, evd, DAT_PSP_CONSUMER_FLAG, &other));
  SUCCEEDS(connect_to(one.ep, first, "data"));
  DAT_CR_HANDLE cr = request();
  FAILS(dat_cr_handoff(cr, 1), DAT_INVALID_PARAMETER); // no service point listens on this port
  DAT_CR_PARAM param;
  SUCCEEDS(dat_cr_query(cr, DAT_CR_FIELD_ALL, &param));
  shows("CR-069");
  SUCCEEDS(dat_cr_handoff(cr, target));
  FAILS(dat_cr_query(cr, DAT_CR_FIELD_ALL, &param), DAT_INVALID_HANDLE);
  shows("CR-074");
  const DAT_EVENT event = EXPECT(evd, DAT_CONNECTION_REQUEST_EVENT);
  const DAT_CR_ARRIVAL_EVENT_DATA* arrival = &event.event_data.cr_arrival_event_data;
  CHECK(arrival->sp_handle.psp_handle == other && arrival->conn_qual == target);
  SUCCEEDS(dat_cr_query(arrival->cr_handle, DAT_CR_FIELD_ALL, &param));
  CHECK(param.private_data_size >= 4 && memcmp(param.private_data, "data", 4) == 0);
  shows("CR-066 CR-067");
  SUCCEEDS(dat_cr_handoff(arrival->cr_handle, first));
  cr = request();
  SUCCEEDS(dat_cr_accept(cr, two.ep, 0, NULL));
  EXPECT(two.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  EXPECT(one.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  shows("CR-076");
  FAILS(dat_cr_handoff(DAT_HANDLE_NULL, first), DAT_INVALID_HANDLE);
  SUCCEEDS(dat_psp_free(psp));
  SUCCEEDS(dat_psp_free(other));
  close_link();
}

static void full_queues(void) {
  open_both();
  DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
  DAT_PSP_HANDLE psp = DAT_HANDLE_NULL;
  DAT_CONN_QUAL qualifier = 0;
  SUCCEEDS(dat_evd_create(two.ia, 1, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &evd));
  DAT_EVD_PARAM length = {0};
  SUCCEEDS(dat_evd_query(evd, DAT_EVD_FIELD_EVD_QLEN, &length));
  SUCCEEDS(dat_psp_create_any(two.ia, &qualifier, evd, DAT_PSP_CONSUMER_FLAG, &psp));
  // Sends as many requests as the queue takes, and then one more.
  DAT_EVD_HANDLE events = DAT_HANDLE_NULL;
  SUCCEEDS(dat_evd_create(one.ia, length.evd_qlen * 2 + 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &events));
  DAT_EVENT event;
  DAT_COUNT more;
  int sent = 0;
  for (; sent <= length.evd_qlen; ++sent) {
    DAT_EP_HANDLE ep = DAT_HANDLE_NULL;
    SUCCEEDS(dat_ep_create(one.ia, one.pz, one.dto_evd, one.dto_evd, events, NULL, &ep));
    SUCCEEDS(connect_to(ep, qualifier, ""));
  }
  SUCCEEDS(dat_evd_wait(events, ample, 1, &event, &more));
  CHECK(event.event_number == DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
  shows("PSP-005 PSP-007");
  EMPTY(two.async_evd);
  for (int i = 0; i < length.evd_qlen; ++i) {
    SUCCEEDS(dat_evd_wait(evd, ample, 1, &event, &more));
    CHECK(event.event_number == DAT_CONNECTION_REQUEST_EVENT);
    SUCCEEDS(dat_cr_reject(event.event_data.cr_arrival_event_data.cr_handle, 0, NULL));
  }
  EMPTY(evd);
  shows("PSP-008");
  SUCCEEDS(dat_psp_free(psp));
  close_link();
}

const struct test_case service_point_cases[] = {
    {"a public service point makes requests until it is freed", public_ones},
    {"the provider makes an endpoint for a request", provider_made_endpoints},
    {"a reserved service point makes one request with its endpoint", reserved_ones},
    {"a common service point listens at an address", common_ones},
    {"a request is handed to another service point", handoffs},
    {"a request that finds the queue full is rejected", full_queues},
    {NULL, NULL},
};
