// Sends, receives, RDMA reads and writes.
// SPDX-License-Identifier: BSL-1.0
#include "rules.h"

static void sends(void) {
  open_link(NULL);
  strcpy(one.memory, "a message");
  SUCCEEDS(post_recv(&two, 256, 64, 1));
  SUCCEEDS(post_send(&one, 0, 10, 2));
  DAT_DTO_COMPLETION_EVENT_DATA d = COMPLETES(&one, 2, DAT_DTO_SUCCESS);
  CHECK(d.ep_handle == one.ep && d.operation == DAT_DTO_SEND && d.transfered_length == 10);
  shows("DTO-036 DTO-048 DTO-049 DTO-073 DTO-107 EP-005");
  d = COMPLETES(&two, 1, DAT_DTO_SUCCESS);
  CHECK(d.ep_handle == two.ep && d.operation == DAT_DTO_RECEIVE && d.transfered_length == 10);
  CHECK(strcmp(two.memory + 256, "a message") == 0);
  shows("DTO-094 DTO-109 DTO-114 DTO-115 EP-004");
  EMPTY(one.dto_evd);
  EMPTY(two.dto_evd);
  shows("DTO-046 EVENT-008");
  // Several segments on both sides, in their order.
  DAT_LMR_TRIPLET from[2] = {part(&one, 0, 2), part(&one, 100, 8)};
  DAT_LMR_TRIPLET to[2] = {part(&two, 512, 4), part(&two, 600, 60)};
  memcpy(one.memory, "ab", 2);
  memcpy(one.memory + 100, "cdefghij", 8);
  memset(two.memory, 0x77, memory_size);
  SUCCEEDS(dat_ep_post_recv(two.ep, 2, to, cookie(3), DAT_COMPLETION_DEFAULT_FLAG));
  SUCCEEDS(dat_ep_post_send(one.ep, 2, from, cookie(4), DAT_COMPLETION_DEFAULT_FLAG));
  COMPLETES(&one, 4, DAT_DTO_SUCCESS);
  CHECK(COMPLETES(&two, 3, DAT_DTO_SUCCESS).transfered_length == 10);
  CHECK(memcmp(two.memory + 512, "abcd", 4) == 0 && memcmp(two.memory + 600, "efghij", 6) == 0 &&
        two.memory[606] == 0x77);
  shows("DTO-001 DTO-002 DTO-003 DTO-015");
  // A message may be empty. A segment of length 0 is ignored.
  SUCCEEDS(dat_ep_post_recv(two.ep, 0, NULL, cookie(5), DAT_COMPLETION_DEFAULT_FLAG));
  SUCCEEDS(dat_ep_post_send(one.ep, 0, NULL, cookie(6), DAT_COMPLETION_DEFAULT_FLAG));
  CHECK(COMPLETES(&two, 5, DAT_DTO_SUCCESS).transfered_length == 0);
  COMPLETES(&one, 6, DAT_DTO_SUCCESS);
  shows("DTO-095 DTO-110");
  DAT_LMR_TRIPLET nothing[2] = {{0x1234567, 0, 0x99}, part(&one, 0, 2)};
  SUCCEEDS(post_recv(&two, 256, 64, 7));
  SUCCEEDS(dat_ep_post_send(one.ep, 2, nothing, cookie(8), DAT_COMPLETION_DEFAULT_FLAG));
  COMPLETES(&one, 8, DAT_DTO_SUCCESS);
  CHECK(COMPLETES(&two, 7, DAT_DTO_SUCCESS).transfered_length == 2);
  shows("DTO-055");
  // Any alignment.
  for (unsigned i = 1; i < 4; ++i) {
    SUCCEEDS(post_recv(&two, 1000 + 64 * i + i, 33, i));
    SUCCEEDS(post_send(&one, i, 33, 10 + i));
    COMPLETES(&one, 10 + i, DAT_DTO_SUCCESS);
    COMPLETES(&two, i, DAT_DTO_SUCCESS);
  }
  shows("DTO-010");
  // Completions are in order, even with equal cookies.
  for (unsigned i = 0; i < 4; ++i) SUCCEEDS(post_recv(&two, 2048 + 16 * i, 16, 50));
  for (unsigned i = 0; i < 4; ++i) {
    one.memory[3000 + i] = (char)('a' + i);
    SUCCEEDS(post_send(&one, 3000 + i, 1, 60 + i));
  }
  for (unsigned i = 0; i < 4; ++i) COMPLETES(&one, 60 + i, DAT_DTO_SUCCESS);
  for (unsigned i = 0; i < 4; ++i) COMPLETES(&two, 50, DAT_DTO_SUCCESS);
  for (unsigned i = 0; i < 4; ++i) CHECK(two.memory[2048 + 16 * i] == (char)('a' + i));
  shows("DTO-037 DTO-091 DTO-125");
  // A suppressed completion.
  SUCCEEDS(post_recv(&two, 256, 64, 70));
  SUCCEEDS(post_recv(&two, 320, 64, 71));
  DAT_LMR_TRIPLET iov = part(&one, 0, 4);
  SUCCEEDS(dat_ep_post_send(one.ep, 1, &iov, cookie(72), DAT_COMPLETION_SUPPRESS_FLAG));
  SUCCEEDS(dat_ep_post_send(one.ep, 1, &iov, cookie(73), DAT_COMPLETION_DEFAULT_FLAG));
  COMPLETES(&one, 73, DAT_DTO_SUCCESS);
  COMPLETES(&two, 70, DAT_DTO_SUCCESS);
  COMPLETES(&two, 71, DAT_DTO_SUCCESS);
  EMPTY(one.dto_evd);
  shows("DTO-043 DTO-077");
  SUCCEEDS(post_recv(&two, 256, 64, 74));
  SUCCEEDS(dat_ep_post_send(one.ep, 1, &iov, cookie(75),
                            DAT_COMPLETION_SOLICITED_WAIT_FLAG | DAT_COMPLETION_BARRIER_FENCE_FLAG));
  COMPLETES(&one, 75, DAT_DTO_SUCCESS);
  COMPLETES(&two, 74, DAT_DTO_SUCCESS);
  shows("DTO-044 DTO-097");
  // The message is too long for the receive: both ends get an error, and the connection ends.
  SUCCEEDS(post_recv(&two, 256, 8, 80));
  SUCCEEDS(post_send(&one, 0, 64, 81));
  COMPLETES(&two, 80, DAT_DTO_ERR_LOCAL_LENGTH);
  const DAT_EVENT event = EXPECT(one.dto_evd, DAT_DTO_COMPLETION_EVENT);
  CHECK(event.event_data.dto_completion_event_data.status != DAT_DTO_SUCCESS);
  shows("DTO-118");
  DAT_EVENT end;
  DAT_COUNT more;
  SUCCEEDS(dat_evd_wait(two.evd, ample, 1, &end, &more));
  CHECK(end.event_number == DAT_CONNECTION_EVENT_BROKEN || end.event_number == DAT_CONNECTION_EVENT_DISCONNECTED);
  CHECK(state_of(two.ep) == DAT_EP_STATE_DISCONNECTED);
  SUCCEEDS(dat_evd_wait(one.evd, ample, 1, &end, &more));
  CHECK(state_of(one.ep) == DAT_EP_STATE_DISCONNECTED);
  shows("DTO-090 CONN-031 EPS-059 EPS-062 EPS-061");
  close_link();
}

static void refused_posts(void) {
  open_link(NULL);
  DAT_LMR_TRIPLET iov[4] = {part(&one, 0, 8), part(&one, 8, 8), part(&one, 16, 8), part(&one, 24, 8)};
  DAT_RMR_TRIPLET remote = remote_part(&two, 0, 64);
  FAILS(dat_ep_post_send(DAT_HANDLE_NULL, 1, iov, cookie(1), DAT_COMPLETION_DEFAULT_FLAG), DAT_INVALID_HANDLE);
  FAILS(dat_ep_post_send(one.evd, 1, iov, cookie(1), DAT_COMPLETION_DEFAULT_FLAG), DAT_INVALID_HANDLE);
  FAILS(dat_ep_post_recv(DAT_HANDLE_NULL, 1, iov, cookie(1), DAT_COMPLETION_DEFAULT_FLAG), DAT_INVALID_HANDLE);
  FAILS(dat_ep_post_rdma_write(DAT_HANDLE_NULL, 1, iov, cookie(1), &remote, DAT_COMPLETION_DEFAULT_FLAG),
        DAT_INVALID_HANDLE);
  FAILS(dat_ep_post_rdma_read(DAT_HANDLE_NULL, 1, iov, cookie(1), &remote, DAT_COMPLETION_DEFAULT_FLAG),
        DAT_INVALID_HANDLE);
  shows("DTO-071");
  FAILS(dat_ep_post_send(one.ep, -1, iov, cookie(1), DAT_COMPLETION_DEFAULT_FLAG), DAT_INVALID_PARAMETER);
  FAILS(dat_ep_post_send(one.ep, 1, NULL, cookie(1), DAT_COMPLETION_DEFAULT_FLAG), DAT_INVALID_PARAMETER);
  FAILS(dat_ep_post_recv(one.ep, 1, NULL, cookie(1), DAT_COMPLETION_DEFAULT_FLAG), DAT_INVALID_PARAMETER);
  FAILS(dat_ep_post_rdma_write(one.ep, 1, iov, cookie(1), NULL, DAT_COMPLETION_DEFAULT_FLAG), DAT_INVALID_PARAMETER);
  shows("DTO-082");
  DAT_EP_PARAM param;
  memset(&param, 0, sizeof param);
  SUCCEEDS(dat_ep_query(one.ep, DAT_EP_FIELD_EP_ATTR_ALL, &param));
  DAT_LMR_TRIPLET* many = calloc((size_t)param.ep_attr.max_request_iov + 1, sizeof *many);
  if (!many) abort();
  for (int i = 0; i <= param.ep_attr.max_request_iov; ++i) many[i] = iov[0];
  FAILS(dat_ep_post_send(one.ep, param.ep_attr.max_request_iov + 1, many, cookie(1), DAT_COMPLETION_DEFAULT_FLAG),
        DAT_INVALID_PARAMETER);
  free(many);
  shows("DTO-081");
  FAILS(dat_ep_post_send(one.ep, 1, iov, cookie(1), (DAT_COMPLETION_FLAGS)0x400), DAT_INVALID_PARAMETER);
  FAILS(dat_ep_post_send(one.ep, 1, iov, cookie(1), DAT_COMPLETION_EVD_THRESHOLD_FLAG), DAT_INVALID_PARAMETER);
  FAILS(dat_ep_post_recv(one.ep, 1, iov, cookie(1), DAT_COMPLETION_SUPPRESS_FLAG), DAT_INVALID_PARAMETER);
  FAILS(dat_ep_post_recv(one.ep, 1, iov, cookie(1), DAT_COMPLETION_BARRIER_FENCE_FLAG), DAT_INVALID_PARAMETER);
  FAILS(dat_ep_post_rdma_read(one.ep, 1, iov, cookie(1), &remote, DAT_COMPLETION_SOLICITED_WAIT_FLAG),
        DAT_INVALID_PARAMETER);
  FAILS(dat_ep_post_rdma_write(one.ep, 1, iov, cookie(1), &remote, DAT_COMPLETION_SOLICITED_WAIT_FLAG),
        DAT_INVALID_PARAMETER);
  shows("DTO-052 DTO-075 DTO-111");
  FAILS(dat_ep_post_send(one.ep, 1, iov, cookie(1), DAT_COMPLETION_UNSIGNALLED_FLAG), DAT_INVALID_PARAMETER);
  FAILS(dat_ep_post_recv(one.ep, 1, iov, cookie(1), DAT_COMPLETION_UNSIGNALLED_FLAG), DAT_INVALID_PARAMETER);
  shows("DTO-076 DTO-112");
  DAT_LMR_TRIPLET bad = part(&one, memory_size - 4, 64);
  FAILS(dat_ep_post_send(one.ep, 1, &bad, cookie(1), DAT_COMPLETION_DEFAULT_FLAG), DAT_INVALID_PARAMETER);
  FAILS(dat_ep_post_recv(one.ep, 1, &bad, cookie(1), DAT_COMPLETION_DEFAULT_FLAG), DAT_INVALID_PARAMETER);
  shows("DTO-080 DTO-124");
  bad = part(&one, 0, 8);
  bad.lmr_context ^= 0x5a5a00;
  FAILS(dat_ep_post_send(one.ep, 1, &bad, cookie(1), DAT_COMPLETION_DEFAULT_FLAG), DAT_PRIVILEGES_VIOLATION);
  // Memory that may only be read, and memory of another zone. (Verbs grants local reading with every region.)
  DAT_LMR_HANDLE lmr;
  DAT_LMR_CONTEXT context;
  DAT_RMR_CONTEXT rmr_context;
  DAT_VLEN size;
  DAT_VADDR address;
  const DAT_REGION_DESCRIPTION region = {.for_va = one.memory};
  SUCCEEDS(dat_lmr_create(one.ia, DAT_MEM_TYPE_VIRTUAL, region, memory_size, one.pz, DAT_MEM_PRIV_LOCAL_READ_FLAG,
                          DAT_VA_TYPE_VA, &lmr, &context, &rmr_context, &size, &address));
  bad = part(&one, 0, 8);
  bad.lmr_context = context;
  RETURNS(dat_ep_post_recv(one.ep, 1, &bad, cookie(1), DAT_COMPLETION_DEFAULT_FLAG), DAT_PRIVILEGES_VIOLATION,
          DAT_PRIVILEGES_WRITE);
  FAILS(dat_ep_post_rdma_read(one.ep, 1, &bad, cookie(1), &remote, DAT_COMPLETION_DEFAULT_FLAG),
        DAT_PRIVILEGES_VIOLATION);
  SUCCEEDS(dat_lmr_free(lmr));
  FAILS(dat_ep_post_send(one.ep, 1, &bad, cookie(1), DAT_COMPLETION_DEFAULT_FLAG), DAT_PRIVILEGES_VIOLATION);
  shows("DTO-135 ERR-036");
  DAT_PZ_HANDLE pz;
  SUCCEEDS(dat_pz_create(one.ia, &pz));
  SUCCEEDS(dat_lmr_create(one.ia, DAT_MEM_TYPE_VIRTUAL, region, memory_size, pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA,
                          &lmr, &context, &rmr_context, &size, &address));
  bad.lmr_context = context;
  FAILS(dat_ep_post_send(one.ep, 1, &bad, cookie(1), DAT_COMPLETION_DEFAULT_FLAG), DAT_PROTECTION_VIOLATION);
  FAILS(dat_ep_post_recv(one.ep, 1, &bad, cookie(1), DAT_COMPLETION_DEFAULT_FLAG), DAT_PROTECTION_VIOLATION);
  FAILS(dat_ep_post_rdma_write(one.ep, 1, &bad, cookie(1), &remote, DAT_COMPLETION_DEFAULT_FLAG),
        DAT_PROTECTION_VIOLATION);
  FAILS(dat_ep_post_rdma_read(one.ep, 1, &bad, cookie(1), &remote, DAT_COMPLETION_DEFAULT_FLAG),
        DAT_PROTECTION_VIOLATION);
  shows("DTO-083 DTO-137 EP-003 ERR-023");
  // The request has more bytes than the remote segment.
  remote.segment_length = 4;
  FAILS(dat_ep_post_rdma_write(one.ep, 1, iov, cookie(1), &remote, DAT_COMPLETION_DEFAULT_FLAG), DAT_LENGTH_ERROR);
  FAILS(dat_ep_post_rdma_read(one.ep, 1, iov, cookie(1), &remote, DAT_COMPLETION_DEFAULT_FLAG), DAT_LENGTH_ERROR);
  shows("DTO-130 DTO-149 ERR-020");
  // The receive queue becomes full.
  DAT_RETURN result = DAT_SUCCESS;
  int posted = 0;
  while (posted < 100000 && (result = post_recv(&one, 0, 8, (DAT_UINT64)posted)) == DAT_SUCCESS) ++posted;
  CHECK((result & DAT_TYPE_MASK) == DAT_INSUFFICIENT_RESOURCES && posted >= param.ep_attr.max_recv_dtos);
  shows("DTO-072 ERR-015");
  // The refused calls have not changed the endpoint.
  CHECK(state_of(one.ep) == DAT_EP_STATE_CONNECTED);
  EMPTY(one.dto_evd);
  EMPTY(one.evd);
  SUCCEEDS(post_recv(&two, 0, 64, 5));
  SUCCEEDS(post_send(&one, 0, 8, 6));
  COMPLETES(&one, 6, DAT_DTO_SUCCESS);
  COMPLETES(&two, 5, DAT_DTO_SUCCESS);
  shows("DTO-086");
  close_link();
}

static void rdma(void) {
  open_link(NULL);
  for (int i = 0; i < memory_size; ++i) one.memory[i] = (char)i;
  memset(two.memory, 0, memory_size);
  DAT_LMR_TRIPLET iov[2] = {part(&one, 10, 100), part(&one, 500, 50)};
  DAT_RMR_TRIPLET remote = remote_part(&two, 1000, 200);
  SUCCEEDS(dat_ep_post_rdma_write(one.ep, 2, iov, cookie(1), &remote, DAT_COMPLETION_DEFAULT_FLAG));
  DAT_DTO_COMPLETION_EVENT_DATA d = COMPLETES(&one, 1, DAT_DTO_SUCCESS);
  CHECK(d.operation == DAT_DTO_RDMA_WRITE);
  SUCCEEDS(post_recv(&two, 8000, 8, 2)); // a message follows the data
  SUCCEEDS(post_send(&one, 0, 8, 3));
  COMPLETES(&one, 3, DAT_DTO_SUCCESS);
  COMPLETES(&two, 2, DAT_DTO_SUCCESS);
  CHECK(memcmp(two.memory + 1000, one.memory + 10, 100) == 0 && memcmp(two.memory + 1100, one.memory + 500, 50) == 0);
  CHECK(two.memory[1150] == 0 && two.memory[999] == 0);
  shows("DTO-148 DTO-008 LMR-021");
  EMPTY(two.dto_evd);
  shows("DTO-150");
  iov[0] = part(&one, 4000, 30);
  iov[1] = part(&one, 4100, 120);
  SUCCEEDS(dat_ep_post_rdma_read(one.ep, 2, iov, cookie(4), &remote, DAT_COMPLETION_DEFAULT_FLAG));
  d = COMPLETES(&one, 4, DAT_DTO_SUCCESS);
  CHECK(d.operation == DAT_DTO_RDMA_READ && d.transfered_length == 150);
  CHECK(memcmp(one.memory + 4000, two.memory + 1000, 30) == 0 &&
        memcmp(one.memory + 4100, two.memory + 1030, 120) == 0);
  shows("DTO-128 DTO-129");
  SUCCEEDS(dat_ep_post_rdma_read(one.ep, 0, NULL, cookie(5), &remote, DAT_COMPLETION_DEFAULT_FLAG));
  COMPLETES(&one, 5, DAT_DTO_SUCCESS);
  shows("DTO-131");
  // Posts more reads than may be in flight.
  for (unsigned i = 0; i < 6; ++i) {
    iov[0] = part(&one, 6000 + 64 * i, 64);
    SUCCEEDS(dat_ep_post_rdma_read(one.ep, 1, iov, cookie(10 + i), &remote, DAT_COMPLETION_DEFAULT_FLAG));
  }
  for (unsigned i = 0; i < 6; ++i) COMPLETES(&one, 10 + i, DAT_DTO_SUCCESS);
  shows("DTO-134 DTO-019 DTO-020");
  // An access to memory without the peer's permission breaks the connection.
  remote.rmr_context ^= 0x5a5a00;
  SUCCEEDS(dat_ep_post_rdma_write(one.ep, 1, iov, cookie(20), &remote, DAT_COMPLETION_DEFAULT_FLAG));
  COMPLETES(&one, 20, DAT_DTO_ERR_REMOTE_ACCESS);
  DAT_EVENT end;
  DAT_COUNT more;
  SUCCEEDS(dat_evd_wait(one.evd, ample, 1, &end, &more));
  CHECK(end.event_number == DAT_CONNECTION_EVENT_BROKEN || end.event_number == DAT_CONNECTION_EVENT_DISCONNECTED);
  shows("EVENT-099");
  close_link();

  // A send without a posted receive at the peer is retried until the peer posts one.
  open_link(NULL);
  SUCCEEDS(post_send(&one, 0, 8, 30));
  SUCCEEDS(post_recv(&two, 0, 8, 31));
  COMPLETES(&one, 30, DAT_DTO_SUCCESS);
  COMPLETES(&two, 31, DAT_DTO_SUCCESS);
  // A send that ends the peer's right to use memory.
  SUCCEEDS(post_recv(&two, 0, 8, 32));
  DAT_LMR_TRIPLET message = part(&one, 0, 8);
  SUCCEEDS(
      dat_ep_post_send_with_invalidate(one.ep, 1, &message, cookie(33), DAT_COMPLETION_DEFAULT_FLAG, DAT_FALSE, 0));
  COMPLETES(&one, 33, DAT_DTO_SUCCESS);
  CHECK(COMPLETES(&two, 32, DAT_DTO_SUCCESS).operation == DAT_DTO_RECEIVE);
  shows("DTO-101");
  close_link();
}

const struct test_case transfer_cases[] = {
    {"messages arrive whole and in order", sends},
    {"a post that makes no sense is refused and changes nothing", refused_posts},
    {"RDMA reads and writes reach the peer's memory", rdma},
    {NULL, NULL},
};

// ---- extensions --------------------------------------------------------------------------------------------------

static const DAT_IB_EXTENSION_EVENT_DATA* extension(const DAT_EVENT* event) {
  return (const DAT_IB_EXTENSION_EVENT_DATA*)event->event_extension_data;
}

static void atomics_and_immediate_data(void) {
  open_side(&one);
  open_side(&two);
  // Atomics need a right of their own.
  const DAT_REGION_DESCRIPTION region = {.for_va = two.memory};
  DAT_LMR_HANDLE lmr;
  DAT_LMR_CONTEXT context;
  DAT_RMR_CONTEXT rmr_context;
  DAT_VLEN size;
  DAT_VADDR address;
  SUCCEEDS(dat_lmr_create(two.ia, DAT_MEM_TYPE_VIRTUAL, region, memory_size, two.pz,
                          DAT_MEM_PRIV_ALL_FLAG | (DAT_MEM_PRIV_FLAGS)DAT_IB_MEM_PRIV_REMOTE_ATOMIC, DAT_VA_TYPE_VA,
                          &lmr, &context, &rmr_context, &size, &address));
  one.ep = create_ep(&one, NULL);
  two.ep = create_ep(&two, NULL);
  DAT_CONN_QUAL qualifier = 0;
  DAT_PSP_HANDLE psp = listen_on(&qualifier, DAT_PSP_CONSUMER_FLAG);
  SUCCEEDS(connect_to(one.ep, qualifier, ""));
  SUCCEEDS(dat_cr_accept(request(), two.ep, 0, NULL));
  EXPECT(two.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  EXPECT(one.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  DAT_UINT64* mine = (DAT_UINT64*)(void*)one.memory;
  DAT_UINT64* theirs = (DAT_UINT64*)(void*)two.memory;
  *theirs = 40;
  DAT_LMR_TRIPLET iov = part(&one, 0, 8);
  DAT_RMR_TRIPLET remote = {(DAT_VADDR)(uintptr_t)two.memory, 8, rmr_context};
  DAT_DTO_COOKIE mark = cookie(1);
  SUCCEEDS(dat_ib_post_fetch_and_add(one.ep, 2, &iov, mark, &remote, DAT_COMPLETION_DEFAULT_FLAG));
  DAT_EVENT event = EXPECT(one.dto_evd, (DAT_EVENT_NUMBER)DAT_IB_DTO_EVENT);
  CHECK(extension(&event)->type == DAT_IB_FETCH_AND_ADD &&
        event.event_data.dto_completion_event_data.user_cookie.as_64 == 1);
  CHECK(*mine == 40 && *theirs == 42);
  CHECK(event.event_data.dto_completion_event_data.operation == (DAT_DTOS)DAT_IB_DTO_FETCH_ADD);
  EMPTY(two.dto_evd);
  shows("IBX-005 IBX-035 IBX-036 IBX-040 IBX-048");
  mark = cookie(2);
  SUCCEEDS(dat_ib_post_cmp_and_swap(one.ep, 42, 7, &iov, mark, &remote, DAT_COMPLETION_DEFAULT_FLAG));
  event = EXPECT(one.dto_evd, (DAT_EVENT_NUMBER)DAT_IB_DTO_EVENT);
  CHECK(extension(&event)->type == DAT_IB_CMP_AND_SWAP && *mine == 42 && *theirs == 7);
  SUCCEEDS(dat_ib_post_cmp_and_swap(one.ep, 42, 9, &iov, mark, &remote, DAT_COMPLETION_DEFAULT_FLAG));
  EXPECT(one.dto_evd, (DAT_EVENT_NUMBER)DAT_IB_DTO_EVENT);
  CHECK(*mine == 7 && *theirs == 7);
  shows("IBX-033 IBX-034");
  SUCCEEDS(post_recv(&two, 512, 64, 3));
  remote.segment_length = 16;
  remote.virtual_address += 64;
  mark = cookie(4);
  SUCCEEDS(dat_ib_post_rdma_write_immed(one.ep, 1, &iov, mark, &remote, 0x12345678, DAT_COMPLETION_DEFAULT_FLAG));
  event = EXPECT(one.dto_evd, (DAT_EVENT_NUMBER)DAT_IB_DTO_EVENT);
  CHECK(extension(&event)->type == DAT_IB_RDMA_WRITE_IMMED);
  event = EXPECT(two.dto_evd, (DAT_EVENT_NUMBER)DAT_IB_DTO_EVENT);
  CHECK(extension(&event)->type == DAT_IB_RDMA_WRITE_IMMED_DATA && extension(&event)->val.immed.data == 0x12345678);
  CHECK(event.event_data.dto_completion_event_data.user_cookie.as_64 == 3);
  CHECK(theirs[8] == 7);
  shows("IBX-014 IBX-017 IBX-019 IBX-022 IBX-028 IBX-030");
  FAILS(dat_extension_op(DAT_HANDLE_NULL, DAT_IB_FETCH_AND_ADD_OP), DAT_INVALID_HANDLE);
  SUCCEEDS(dat_psp_free(psp));
  close_link();
}

const struct test_case extension_cases[] = {
    {"atomics and immediate data are extended operations", atomics_and_immediate_data},
    {NULL, NULL},
};
