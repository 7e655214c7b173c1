// Connecting, disconnecting, and the states of endpoints.
// SPDX-License-Identifier: BSL-1.0
#include "rules.h"

static DAT_RETURN connect_with(DAT_EP_HANDLE ep, struct sockaddr_in* address, DAT_CONN_QUAL qualifier,
                               DAT_TIMEOUT timeout, DAT_COUNT size, DAT_PVOID data) {
  return dat_ep_connect(ep, (DAT_IA_ADDRESS_PTR)address, qualifier, timeout, size, data, DAT_QOS_BEST_EFFORT,
                        DAT_CONNECT_DEFAULT_FLAG);
}

static void open_both(void) {
  open_side(&one);
  open_side(&two);
  one.ep = create_ep(&one, NULL);
  two.ep = create_ep(&two, NULL);
}

static void connecting(void) {
  open_both();
  DAT_CONN_QUAL qualifier = 0;
  DAT_PSP_HANDLE psp = listen_on(&qualifier, DAT_PSP_CONSUMER_FLAG);
  char hello[] = "hello", answer[] = "answer";
  CHECK(state_of(one.ep) == DAT_EP_STATE_UNCONNECTED);
  SUCCEEDS(connect_to(one.ep, qualifier, hello));
  const DAT_EVENT event = EXPECT(two.evd, DAT_CONNECTION_REQUEST_EVENT);
  const DAT_CR_ARRIVAL_EVENT_DATA* arrival = &event.event_data.cr_arrival_event_data;
  CHECK(arrival->sp_handle.psp_handle == psp && arrival->conn_qual == qualifier && arrival->cr_handle);
  CHECK(arrival->local_ia_address_ptr &&
        ((struct sockaddr_in*)arrival->local_ia_address_ptr)->sin_addr.s_addr == two.address.sin_addr.s_addr);
  shows("CR-001 CR-011 PSP-004 EVENT-092");
  CHECK(arrival->truncate_flag == DAT_FALSE);
  shows("CR-009");
  DAT_CR_PARAM cr = {0};
  SUCCEEDS(dat_cr_query(arrival->cr_handle, DAT_CR_FIELD_ALL, &cr));
  CHECK(cr.private_data_size >= (DAT_COUNT)strlen(hello) && memcmp(cr.private_data, hello, strlen(hello)) == 0);
  shows("CR-003 CONN-045 EVENT-018");
  CHECK(cr.remote_ia_address_ptr && cr.remote_ia_address_ptr->sa_family == AF_INET);
  shows("CR-004 CONN-049");
  CHECK(cr.local_ep_handle == DAT_HANDLE_NULL);
  shows("CR-005 CR-002");
  FAILS(dat_cr_query(arrival->cr_handle, BEYOND(DAT_CR_FIELD_ALL), &cr), DAT_INVALID_PARAMETER);
  FAILS(dat_cr_query(DAT_HANDLE_NULL, DAT_CR_FIELD_ALL, &cr), DAT_INVALID_HANDLE);
  shows("CR-006");
  CHECK(state_of(one.ep) == DAT_EP_STATE_ACTIVE_CONNECTION_PENDING);
  shows("CONN-037 EPS-005 EP-044");

  // An accept with invalid arguments does not change the request.
  FAILS(dat_cr_accept(arrival->cr_handle, two.ep, -1, answer), DAT_INVALID_PARAMETER);
  FAILS(dat_cr_accept(arrival->cr_handle, two.ep, 4, NULL), DAT_INVALID_PARAMETER);
  shows("CR-024");
  static char large[4096];
  FAILS(dat_cr_accept(arrival->cr_handle, two.ep, sizeof large, large), DAT_INVALID_PARAMETER);
  FAILS(dat_cr_reject(arrival->cr_handle, sizeof large, large), DAT_INVALID_PARAMETER);
  shows("CR-025 CR-057");
  CHECK(dat_cr_accept(arrival->cr_handle, DAT_HANDLE_NULL, 0, NULL) != DAT_SUCCESS);
  CHECK(dat_cr_accept(arrival->cr_handle, one.ep, 0, NULL) != DAT_SUCCESS); // of another adapter, and connecting
  CHECK(state_of(two.ep) == DAT_EP_STATE_UNCONNECTED);
  shows("CR-028");
  SUCCEEDS(dat_cr_accept(arrival->cr_handle, two.ep, (DAT_COUNT)strlen(answer), answer));
  FAILS(dat_cr_query(arrival->cr_handle, DAT_CR_FIELD_ALL, &cr), DAT_INVALID_HANDLE);
  FAILS(dat_cr_reject(arrival->cr_handle, 0, NULL), DAT_INVALID_HANDLE);
  shows("CR-015 CR-033");
  const DAT_EVENT passive = EXPECT(two.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  CHECK(passive.event_data.connect_event_data.ep_handle == two.ep);
  CHECK(passive.event_data.connect_event_data.private_data_size == 0);
  shows("CR-034 CR-035 EVENT-017 EPS-023");
  CHECK(state_of(two.ep) == DAT_EP_STATE_CONNECTED);
  shows("CR-020 CONN-017");
  const DAT_EVENT active = EXPECT(one.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  const DAT_CONNECTION_EVENT_DATA* e = &active.event_data.connect_event_data;
  CHECK(e->ep_handle == one.ep && e->private_data_size >= (DAT_COUNT)strlen(answer));
  CHECK(memcmp(e->private_data, answer, strlen(answer)) == 0);
  CHECK(state_of(one.ep) == DAT_EP_STATE_CONNECTED);
  shows("CONN-018 CONN-064 EVENT-016 EVENT-094 EPS-014 CONN-003");

  DAT_EP_PARAM param;
  memset(&param, 0, sizeof param);
  SUCCEEDS(dat_ep_query(one.ep, DAT_EP_FIELD_ALL, &param));
  CHECK(param.ep_state == DAT_EP_STATE_CONNECTED && param.ia_handle == one.ia && param.pz_handle == one.pz);
  CHECK(param.remote_ia_address_ptr &&
        ((struct sockaddr_in*)param.remote_ia_address_ptr)->sin_addr.s_addr == two.address.sin_addr.s_addr);
  CHECK(param.remote_port_qual == qualifier);
  shows("EP-051 ADDR-018 EP-056");
  CHECK(param.local_ia_address_ptr &&
        ((struct sockaddr_in*)param.local_ia_address_ptr)->sin_addr.s_addr == one.address.sin_addr.s_addr);
  CHECK(param.local_port_qual != 0);
  shows("EP-052 EP-053 ADDR-017");
  RETURNS(connect_to(one.ep, qualifier, ""), DAT_INVALID_STATE, DAT_INVALID_STATE_EP_CONNECTED);
  shows("CONN-038 EPS-001 ERR-035 ERR-019");
  RETURNS(dat_ep_reset(one.ep), DAT_INVALID_STATE, DAT_INVALID_STATE_EP_CONNECTED);
  shows("DISC-046");

  // The end of the connection leads to one event on each side, and then to none.
  FAILS(dat_ep_disconnect(one.ep, (DAT_CLOSE_FLAGS)9), DAT_INVALID_PARAMETER);
  shows("DISC-002");
  SUCCEEDS(dat_ep_disconnect(one.ep, DAT_CLOSE_GRACEFUL_FLAG));
  CHECK(EXPECT(one.evd, DAT_CONNECTION_EVENT_DISCONNECTED).event_data.connect_event_data.ep_handle == one.ep);
  EXPECT(two.evd, DAT_CONNECTION_EVENT_DISCONNECTED);
  CHECK(state_of(one.ep) == DAT_EP_STATE_DISCONNECTED && state_of(two.ep) == DAT_EP_STATE_DISCONNECTED);
  EMPTY(one.evd);
  EMPTY(two.evd);
  shows("CONN-016 CONN-028 DISC-001 DISC-018 DISC-026 EVENT-098 EPS-052 EPS-057 EPS-056");
  CHECK(memcmp(e->private_data, answer, strlen(answer)) == 0); // the data is valid until the endpoint is reset
  shows("CONN-019");
  FAILS(connect_to(one.ep, qualifier, ""), DAT_INVALID_STATE);

  // Posts are accepted and flushed.
  SUCCEEDS(post_recv(&one, 0, 8, 1));
  COMPLETES(&one, 1, DAT_DTO_ERR_FLUSHED);
  SUCCEEDS(post_send(&one, 0, 8, 2));
  COMPLETES(&one, 2, DAT_DTO_ERR_FLUSHED);
  shows("DISC-029 DTO-070 DTO-121 EPS-065 EPS-066 DISC-048");
  SUCCEEDS(dat_ep_reset(one.ep));
  CHECK(state_of(one.ep) == DAT_EP_STATE_UNCONNECTED);
  shows("DISC-044 EPS-070 EPS-068");
  SUCCEEDS(post_recv(&one, 0, 8, 3));
  SUCCEEDS(dat_ep_reset(one.ep)); // no effect on posted receives
  FAILS(post_send(&one, 0, 8, 4), DAT_INVALID_STATE);
  EMPTY(one.dto_evd);
  shows("DISC-045 DISC-053 EPS-071 EPS-072 DTO-038 DTO-069");
  // The endpoint connects again.
  SUCCEEDS(dat_ep_reset(two.ep));
  SUCCEEDS(connect_to(one.ep, qualifier, ""));
  SUCCEEDS(dat_cr_accept(request(), two.ep, 0, NULL));
  EXPECT(one.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  EXPECT(two.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  shows("CONN-069 EPS-074 EPS-002");
  SUCCEEDS(post_send(&two, 0, 8, 5));
  COMPLETES(&one, 3, DAT_DTO_SUCCESS);
  COMPLETES(&two, 5, DAT_DTO_SUCCESS);
  shows("CONN-015 DTO-120 CONN-070");
  SUCCEEDS(dat_psp_free(psp));
  close_link();
}

static void rejections(void) {
  open_both();
  DAT_CONN_QUAL qualifier = 0;
  DAT_PSP_HANDLE psp = listen_on(&qualifier, DAT_PSP_CONSUMER_FLAG);
  char why[] = "because";
  SUCCEEDS(post_recv(&one, 0, 8, 1));
  SUCCEEDS(connect_to(one.ep, qualifier, ""));
  DAT_CR_HANDLE cr = request();
  FAILS(dat_cr_reject(DAT_HANDLE_NULL, 0, NULL), DAT_INVALID_HANDLE);
  FAILS(dat_cr_reject(cr, -1, why), DAT_INVALID_PARAMETER);
  SUCCEEDS(dat_cr_reject(cr, sizeof why, why));
  const DAT_EVENT event = EXPECT(one.evd, DAT_CONNECTION_EVENT_PEER_REJECTED);
  const DAT_CONNECTION_EVENT_DATA* e = &event.event_data.connect_event_data;
  CHECK(e->ep_handle == one.ep && e->private_data_size >= (DAT_COUNT)sizeof why &&
        memcmp(e->private_data, why, sizeof why) == 0);
  CHECK(state_of(one.ep) == DAT_EP_STATE_DISCONNECTED);
  shows("CONN-021 CR-052 EPS-008 EPS-007 EVENT-095");
  COMPLETES(&one, 1, DAT_DTO_ERR_FLUSHED);
  shows("CONN-059 EPS-064");
  SUCCEEDS(dat_psp_free(psp));

  SUCCEEDS(dat_ep_reset(one.ep));
  SUCCEEDS(connect_to(one.ep, qualifier, "")); // no service point listens now
  EXPECT(one.evd, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
  CHECK(state_of(one.ep) == DAT_EP_STATE_DISCONNECTED);
  shows("CONN-022 EPS-009 PSP-034");
  close_link();
}

static void arguments_of_connect(void) {
  open_both();
  DAT_CONN_QUAL qualifier = 0;
  DAT_PSP_HANDLE psp = listen_on(&qualifier, DAT_PSP_CONSUMER_FLAG);
  static char data[4096];
  FAILS(connect_with(DAT_HANDLE_NULL, &two.address, qualifier, ample, 0, NULL), DAT_INVALID_HANDLE);
  FAILS(connect_with(one.pz, &two.address, qualifier, ample, 0, NULL), DAT_INVALID_HANDLE);
  shows("CONN-062");
  FAILS(connect_with(one.ep, &two.address, qualifier, 0, 0, NULL), DAT_INVALID_PARAMETER);
  shows("CONN-040");
  FAILS(connect_with(one.ep, &two.address, qualifier, ample, -1, data), DAT_INVALID_PARAMETER);
  FAILS(connect_with(one.ep, &two.address, qualifier, ample, 8, NULL), DAT_INVALID_PARAMETER);
  FAILS(connect_with(one.ep, &two.address, qualifier, ample, sizeof data, data), DAT_INVALID_PARAMETER);
  shows("CONN-044");
  FAILS(connect_with(one.ep, &two.address, (DAT_CONN_QUAL)1 << 16, ample, 0, NULL), DAT_INVALID_PARAMETER);
  shows("CONN-056");
  struct sockaddr_in bad = two.address;
  CHECK(connect_with(one.ep, NULL, qualifier, ample, 0, NULL) != DAT_SUCCESS);
  bad.sin_addr.s_addr = htonl(0xe0000001); // 224.0.0.1
  RETURNS(connect_with(one.ep, &bad, qualifier, ample, 0, NULL), DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_UNSUPPORTED);
  bad.sin_addr.s_addr = htonl(INADDR_BROADCAST);
  FAILS(connect_with(one.ep, &bad, qualifier, ample, 0, NULL), DAT_INVALID_ADDRESS);
  shows("ADDR-007 ERR-038");
  bad.sin_addr.s_addr = htonl(INADDR_ANY);
  FAILS(connect_with(one.ep, &bad, qualifier, ample, 0, NULL), DAT_INVALID_ADDRESS);
  shows("ADDR-006");
  bad = two.address;
  bad.sin_family = AF_UNIX;
  RETURNS(connect_with(one.ep, &bad, qualifier, ample, 0, NULL), DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_MALFORMED);
  shows("ADDR-005 ERR-040 CONN-054 EPS-012");
  FAILS(dat_ep_connect(one.ep, (DAT_IA_ADDRESS_PTR)&two.address, qualifier, ample, 0, NULL, DAT_QOS_BEST_EFFORT,
                       DAT_CONNECT_MULTIPATH_REQUIRED_FLAG),
        DAT_MODEL_NOT_SUPPORTED);
  shows("CONN-052 ERR-021");
  FAILS(dat_ep_connect(one.ep, (DAT_IA_ADDRESS_PTR)&two.address, qualifier, ample, 0, NULL, (DAT_QOS)0x4000,
                       DAT_CONNECT_DEFAULT_FLAG),
        DAT_INVALID_PARAMETER);
  // None of these calls has changed the endpoint.
  CHECK(state_of(one.ep) == DAT_EP_STATE_UNCONNECTED);
  EMPTY(one.evd);
  EMPTY(two.evd);
  shows("CONN-057 ADDR-020");
  struct sockaddr_in mine = two.address;
  SUCCEEDS(connect_with(one.ep, &mine, qualifier, DAT_TIMEOUT_INFINITE, 0, NULL));
  memset(&mine, 0xff, sizeof mine); // the address belongs to the caller again
  SUCCEEDS(dat_cr_accept(request(), two.ep, 0, NULL));
  EXPECT(one.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  shows("ADDR-009 EPS-015");

  // Another endpoint connects to the same service point.
  DAT_EP_HANDLE third = create_ep(&one, NULL), fourth = create_ep(&two, NULL);
  EXPECT(two.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  SUCCEEDS(dat_ep_dup_connect(third, one.ep, ample, 0, NULL, DAT_QOS_BEST_EFFORT));
  SUCCEEDS(dat_cr_accept(request(), fourth, 0, NULL));
  EXPECT(one.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  shows("CONN-084 CONN-013");
  FAILS(dat_ep_dup_connect(third, one.ep, ample, 0, NULL, DAT_QOS_BEST_EFFORT), DAT_INVALID_STATE);
  DAT_EP_HANDLE fifth = create_ep(&one, NULL), sixth = create_ep(&one, NULL);
  FAILS(dat_ep_dup_connect(fifth, sixth, ample, 0, NULL, DAT_QOS_BEST_EFFORT), DAT_INVALID_STATE);
  shows("CONN-085");
  FAILS(dat_ep_dup_connect(fifth, DAT_HANDLE_NULL, ample, 0, NULL, DAT_QOS_BEST_EFFORT), DAT_INVALID_HANDLE);
  FAILS(dat_ep_dup_connect(DAT_HANDLE_NULL, one.ep, ample, 0, NULL, DAT_QOS_BEST_EFFORT), DAT_INVALID_HANDLE);
  FAILS(dat_ep_dup_connect(fifth, one.ep, 0, 0, NULL, DAT_QOS_BEST_EFFORT), DAT_INVALID_PARAMETER);
  shows("CONN-091");
  SUCCEEDS(dat_psp_free(psp));
  close_link();
}

static void ends(void) {
  open_link(NULL);
  // An abrupt disconnect flushes the outstanding operations, which are receives here.
  SUCCEEDS(post_recv(&one, 0, 8, 1));
  SUCCEEDS(post_recv(&two, 0, 8, 2));
  SUCCEEDS(dat_ep_disconnect(one.ep, DAT_CLOSE_ABRUPT_FLAG));
  COMPLETES(&one, 1, DAT_DTO_ERR_FLUSHED);
  COMPLETES(&two, 2, DAT_DTO_ERR_FLUSHED);
  EXPECT(one.evd, DAT_CONNECTION_EVENT_DISCONNECTED);
  EXPECT(two.evd, DAT_CONNECTION_EVENT_DISCONNECTED);
  shows("DISC-005 DISC-010 EPS-055");
  FAILS(dat_ep_disconnect(DAT_HANDLE_NULL, DAT_CLOSE_ABRUPT_FLAG), DAT_INVALID_HANDLE);
  shows("DISC-034");
  SUCCEEDS(dat_ep_reset(one.ep));
  FAILS(dat_ep_disconnect(one.ep, DAT_CLOSE_ABRUPT_FLAG), DAT_INVALID_STATE);
  FAILS(dat_ep_disconnect(one.ep, DAT_CLOSE_GRACEFUL_FLAG), DAT_INVALID_STATE);
  shows("DISC-003 EPS-045");
  FAILS(dat_ep_reset(DAT_HANDLE_NULL), DAT_INVALID_HANDLE);
  shows("DISC-054");
  close_link();

  // A graceful disconnect lets the requests complete: three sends arrive, then the end.
  open_link(NULL);
  for (unsigned i = 0; i < 3; ++i) SUCCEEDS(post_recv(&two, 64 * i, 64, i));
  for (unsigned i = 0; i < 3; ++i) SUCCEEDS(post_send(&one, 64 * i, 64, 10 + i));
  SUCCEEDS(dat_ep_disconnect(one.ep, DAT_CLOSE_GRACEFUL_FLAG));
  for (unsigned i = 0; i < 3; ++i) COMPLETES(&two, i, DAT_DTO_SUCCESS);
  for (unsigned i = 0; i < 3; ++i) COMPLETES(&one, 10 + i, DAT_DTO_SUCCESS);
  EXPECT(one.evd, DAT_CONNECTION_EVENT_DISCONNECTED);
  shows("DISC-008 EPS-049");
  close_link();

  // Freeing a connected endpoint: no event here, one at the peer.
  open_link(NULL);
  SUCCEEDS(dat_ep_free(one.ep));
  EXPECT(two.evd, DAT_CONNECTION_EVENT_DISCONNECTED);
  EMPTY(one.evd);
  FAILS(dat_ep_free(one.ep), DAT_INVALID_HANDLE);
  shows("EP-034 EP-035 EP-036 EP-041 DISC-037");
  close_link();

  // Disconnecting ends an attempt.
  open_both();
  DAT_CONN_QUAL qualifier = 0;
  DAT_PSP_HANDLE psp = listen_on(&qualifier, DAT_PSP_CONSUMER_FLAG);
  SUCCEEDS(post_recv(&one, 0, 8, 1));
  SUCCEEDS(connect_to(one.ep, qualifier, ""));
  DAT_CR_HANDLE cr = request();
  SUCCEEDS(dat_ep_disconnect(one.ep, DAT_CLOSE_GRACEFUL_FLAG));
  EXPECT(one.evd, DAT_CONNECTION_EVENT_DISCONNECTED);
  COMPLETES(&one, 1, DAT_DTO_ERR_FLUSHED);
  CHECK(state_of(one.ep) == DAT_EP_STATE_DISCONNECTED);
  shows("CONN-005 DISC-021 EPS-016");
  // The request exists until its consumer answers it.
  DAT_CR_PARAM param;
  SUCCEEDS(dat_cr_query(cr, DAT_CR_FIELD_ALL, &param));
  SUCCEEDS(dat_cr_reject(cr, 0, NULL));
  shows("CR-013 CR-014 CR-063");
  SUCCEEDS(dat_psp_free(psp));
  close_link();
}

static void timeouts(void) {
  open_both();
  DAT_CONN_QUAL qualifier = 0;
  DAT_PSP_HANDLE psp = listen_on(&qualifier, DAT_PSP_CONSUMER_FLAG);
  SUCCEEDS(connect_with(one.ep, &two.address, qualifier, 200 * 1000, 0, NULL));
  DAT_CR_HANDLE cr = request(); // the request is not answered in time
  EXPECT(one.evd, DAT_CONNECTION_EVENT_TIMED_OUT);
  CHECK(state_of(one.ep) == DAT_EP_STATE_DISCONNECTED);
  shows("CONN-025 CONN-041 EPS-010");
  SUCCEEDS(dat_cr_accept(cr, two.ep, 0, NULL));
  EXPECT(two.evd, DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR);
  CHECK(state_of(two.ep) == DAT_EP_STATE_DISCONNECTED);
  shows("CONN-027 CR-037 CR-038 EPS-025 EPS-026 EVENT-097");
  SUCCEEDS(dat_psp_free(psp));
  close_link();
}

const struct test_case connection_cases[] = {
    {"a connection is made, ended and made again", connecting},
    {"a request is rejected by the consumer, and by nobody", rejections},
    {"connect refuses arguments that make no sense", arguments_of_connect},
    {"connections end gracefully, abruptly and before they are made", ends},
    {"an attempt ends with its timeout", timeouts},
    {NULL, NULL},
};
