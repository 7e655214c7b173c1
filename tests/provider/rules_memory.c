// Registered memory, windows, and memory that has to be synchronised.
// SPDX-License-Identifier: BSL-1.0
#include "rules.h"

struct registered {
  DAT_LMR_HANDLE lmr;
  DAT_LMR_CONTEXT lmr_context;
  DAT_RMR_CONTEXT rmr_context;
  DAT_VLEN size;
  DAT_VADDR address;
};

static DAT_RETURN enroll(struct registered* r, DAT_MEM_TYPE type, DAT_REGION_DESCRIPTION region, DAT_VLEN length,
                         DAT_PZ_HANDLE pz, DAT_MEM_PRIV_FLAGS rights) {
  memset(r, 0, sizeof *r);
  return dat_lmr_create(one.ia, type, region, length, pz, rights, DAT_VA_TYPE_VA, &r->lmr, &r->lmr_context,
                        &r->rmr_context, &r->size, &r->address);
}

static void regions(void) {
  open_side(&one);
  open_side(&two);
  struct registered r, s;
  const DAT_REGION_DESCRIPTION region = {.for_va = one.memory};
  SUCCEEDS(enroll(&r, DAT_MEM_TYPE_VIRTUAL, region, 4096, one.pz, DAT_MEM_PRIV_LOCAL_READ_FLAG));
  CHECK(r.address <= (DAT_VADDR)(uintptr_t)one.memory && r.address + r.size >= (DAT_VADDR)(uintptr_t)one.memory + 4096);
  shows("LMR-005 LMR-020");
  CHECK(r.rmr_context == 0);
  shows("LMR-018");
  DAT_LMR_PARAM param;
  memset(&param, 0, sizeof param);
  SUCCEEDS(dat_lmr_query(r.lmr, DAT_LMR_FIELD_ALL, &param));
  CHECK(param.ia_handle == one.ia && param.mem_type == DAT_MEM_TYPE_VIRTUAL && param.region_desc.for_va == one.memory &&
        param.length == 4096 && param.pz_handle == one.pz && param.lmr_context == r.lmr_context &&
        param.registered_size == r.size && param.registered_address == r.address);
  shows("LMR-001 LMR-041");
  CHECK(param.mem_priv == DAT_MEM_PRIV_LOCAL_READ_FLAG && param.va_type == DAT_VA_TYPE_VA);
  shows("LMR-042");
  FAILS(dat_lmr_query(r.lmr, BEYOND(DAT_LMR_FIELD_ALL), &param), DAT_INVALID_PARAMETER);
  FAILS(dat_lmr_query(r.lmr, DAT_LMR_FIELD_ALL, NULL), DAT_INVALID_PARAMETER);
  FAILS(dat_lmr_query(DAT_HANDLE_NULL, DAT_LMR_FIELD_ALL, &param), DAT_INVALID_HANDLE);
  shows("LMR-043");
  // Registers the same memory twice, and by the handle of another region.
  SUCCEEDS(enroll(&s, DAT_MEM_TYPE_VIRTUAL, region, 4096, one.pz, DAT_MEM_PRIV_ALL_FLAG));
  CHECK(s.lmr_context != r.lmr_context && s.rmr_context != 0);
  shows("LMR-014 LMR-015 LMR-019");
  SUCCEEDS(dat_lmr_free(s.lmr));
  const DAT_REGION_DESCRIPTION same = {.for_lmr_handle = r.lmr};
  SUCCEEDS(enroll(&s, DAT_MEM_TYPE_LMR, same, 0, one.pz, DAT_MEM_PRIV_ALL_FLAG));
  CHECK(s.size == r.size && s.address == r.address && s.rmr_context != 0);
  shows("LMR-006");
  SUCCEEDS(dat_lmr_free(s.lmr));
  SUCCEEDS(enroll(&s, DAT_MEM_TYPE_VIRTUAL, region, 4096, one.pz, DAT_MEM_PRIV_NONE_FLAG));
  SUCCEEDS(dat_lmr_free(s.lmr));
  shows("LMR-016");
  FAILS(enroll(&s, DAT_MEM_TYPE_VIRTUAL, region, 4096, one.pz, (DAT_MEM_PRIV_FLAGS)0x8000), DAT_INVALID_PARAMETER);
  // dat's own right flush_global, which uDAPL does not have.
  FAILS(enroll(&s, DAT_MEM_TYPE_VIRTUAL, region, 4096, one.pz, (DAT_MEM_PRIV_FLAGS)0x04), DAT_INVALID_PARAMETER);
  shows("LMR-017");
  CHECK(enroll(&s, (DAT_MEM_TYPE)0x40, region, 4096, one.pz, DAT_MEM_PRIV_ALL_FLAG) != DAT_SUCCESS);
  shows("LMR-013");
  FAILS(enroll(&s, DAT_MEM_TYPE_VIRTUAL, region, 4096, DAT_HANDLE_NULL, DAT_MEM_PRIV_ALL_FLAG), DAT_INVALID_HANDLE);
  CHECK(enroll(&s, DAT_MEM_TYPE_VIRTUAL, region, 4096, two.pz, DAT_MEM_PRIV_ALL_FLAG) != DAT_SUCCESS);
  FAILS(enroll(&s, DAT_MEM_TYPE_LMR, region, 0, one.pz, DAT_MEM_PRIV_ALL_FLAG), DAT_INVALID_HANDLE);
  FAILS(enroll(&s, DAT_MEM_TYPE_VIRTUAL, (DAT_REGION_DESCRIPTION){.for_va = NULL}, 4096, one.pz, DAT_MEM_PRIV_ALL_FLAG),
        DAT_INVALID_PARAMETER);
  shows("LMR-028");
  SUCCEEDS(dat_lmr_free(r.lmr));
  FAILS(dat_lmr_free(r.lmr), DAT_INVALID_HANDLE);
  FAILS(dat_lmr_query(r.lmr, DAT_LMR_FIELD_ALL, &param), DAT_INVALID_HANDLE);
  FAILS(dat_lmr_free(DAT_HANDLE_NULL), DAT_INVALID_HANDLE);
  shows("LMR-039 LMR-040");
  // Synchronising.
  DAT_LMR_TRIPLET segments[2] = {part(&one, 0, 64), part(&one, 128, 64)};
  SUCCEEDS(dat_lmr_sync_rdma_read(one.ia, segments, 2));
  SUCCEEDS(dat_lmr_sync_rdma_write(one.ia, segments, 2));
  shows("SYNC-002 SYNC-004");
  SUCCEEDS(dat_lmr_sync_rdma_read(one.ia, NULL, 0));
  shows("SYNC-010");
  segments[1] = (DAT_LMR_TRIPLET){12345, 0, 99};
  SUCCEEDS(dat_lmr_sync_rdma_write(one.ia, segments, 2));
  shows("SYNC-011");
  segments[1] = part(&one, memory_size - 4, 64);
  FAILS(dat_lmr_sync_rdma_read(one.ia, segments, 2), DAT_INVALID_PARAMETER);
  segments[1] = part(&one, 0, 64);
  segments[1].lmr_context ^= 0x5a5a00;
  FAILS(dat_lmr_sync_rdma_write(one.ia, segments, 2), DAT_INVALID_PARAMETER);
  shows("SYNC-008");
  FAILS(dat_lmr_sync_rdma_read(DAT_HANDLE_NULL, segments, 1), DAT_INVALID_HANDLE);
  shows("SYNC-009");
  close_link();
}

static void windows(void) {
  open_link(NULL);
  DAT_RMR_HANDLE rmr = DAT_HANDLE_NULL;
  SUCCEEDS(dat_rmr_create(two.pz, &rmr));
  DAT_RMR_PARAM param;
  memset(&param, 0, sizeof param);
  SUCCEEDS(dat_rmr_query(rmr, DAT_RMR_FIELD_ALL, &param));
  CHECK(param.ia_handle == two.ia && param.pz_handle == two.pz && param.rmr_scope == DAT_RMR_SCOPE_PZ);
  shows("RMR-001 RMR-005 RMR-014");
  FAILS(dat_rmr_query(rmr, BEYOND(DAT_RMR_FIELD_ALL), &param), DAT_INVALID_PARAMETER);
  FAILS(dat_rmr_query(DAT_HANDLE_NULL, DAT_RMR_FIELD_ALL, &param), DAT_INVALID_HANDLE);
  shows("RMR-016");
  FAILS(dat_rmr_create(DAT_HANDLE_NULL, &rmr), DAT_INVALID_HANDLE);
  FAILS(dat_rmr_create(two.pz, NULL), DAT_INVALID_PARAMETER);
  shows("RMR-007");
  DAT_LMR_TRIPLET slice = part(&two, 4096, 256);
  DAT_RMR_CONTEXT context = 0, second = 0;
  FAILS(dat_rmr_bind(DAT_HANDLE_NULL, two.lmr, &slice, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, DAT_VA_TYPE_VA, two.ep,
                     cookie(1), DAT_COMPLETION_DEFAULT_FLAG, &context),
        DAT_INVALID_HANDLE);
  FAILS(dat_rmr_bind(rmr, two.pz, &slice, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, DAT_VA_TYPE_VA, two.ep, cookie(1),
                     DAT_COMPLETION_DEFAULT_FLAG, &context),
        DAT_INVALID_HANDLE);
  FAILS(dat_rmr_bind(rmr, two.lmr, &slice, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, DAT_VA_TYPE_VA, DAT_HANDLE_NULL, cookie(1),
                     DAT_COMPLETION_DEFAULT_FLAG, &context),
        DAT_INVALID_HANDLE);
  shows("RMR-037");
  DAT_LMR_TRIPLET outside = part(&two, memory_size - 8, 64);
  FAILS(dat_rmr_bind(rmr, two.lmr, &outside, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, DAT_VA_TYPE_VA, two.ep, cookie(1),
                     DAT_COMPLETION_DEFAULT_FLAG, &context),
        DAT_INVALID_PARAMETER);
  shows("RMR-032");
  SUCCEEDS(dat_rmr_bind(rmr, two.lmr, &slice, DAT_MEM_PRIV_REMOTE_WRITE_FLAG | DAT_MEM_PRIV_REMOTE_READ_FLAG,
                        DAT_VA_TYPE_VA, two.ep, cookie(7), DAT_COMPLETION_DEFAULT_FLAG, &context));
  CHECK(context != 0 && context != two.rmr_context);
  shows("RMR-017");
  DAT_EVENT event = EXPECT(two.dto_evd, DAT_RMR_BIND_COMPLETION_EVENT);
  const DAT_RMR_BIND_COMPLETION_EVENT_DATA* d = &event.event_data.rmr_completion_event_data;
  CHECK(d->rmr_handle == rmr && d->user_cookie.as_64 == 7 && d->status == DAT_RMR_BIND_SUCCESS);
  shows("RMR-019 RMR-018");
  SUCCEEDS(dat_rmr_query(rmr, DAT_RMR_FIELD_ALL, &param));
  CHECK(param.rmr_context == context && param.lmr_triplet.segment_length == 256);
  RETURNS(dat_lmr_free(two.lmr), DAT_INVALID_STATE, DAT_INVALID_STATE_LMR_IN_USE);
  shows("LMR-033");
  // The peer writes and reads through it.
  memcpy(one.memory, "through the window", 19);
  DAT_LMR_TRIPLET iov = part(&one, 0, 19);
  const DAT_RMR_TRIPLET to = {slice.virtual_address, 19, context};
  SUCCEEDS(dat_ep_post_rdma_write(one.ep, 1, &iov, cookie(8), &to, DAT_COMPLETION_DEFAULT_FLAG));
  COMPLETES(&one, 8, DAT_DTO_SUCCESS);
  iov = part(&one, 64, 19);
  SUCCEEDS(dat_ep_post_rdma_read(one.ep, 1, &iov, cookie(9), &to, DAT_COMPLETION_DEFAULT_FLAG));
  COMPLETES(&one, 9, DAT_DTO_SUCCESS);
  CHECK(memcmp(one.memory + 64, "through the window", 19) == 0 &&
        memcmp(two.memory + 4096, "through the window", 19) == 0);
  shows("RMR-020 PZ-013 PZ-002");
  // Another bind has another context; a bind of nothing unbinds.
  SUCCEEDS(dat_rmr_bind(rmr, two.lmr, &slice, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, DAT_VA_TYPE_VA, two.ep, cookie(10),
                        DAT_COMPLETION_DEFAULT_FLAG, &second));
  CHECK(second != context);
  EXPECT(two.dto_evd, DAT_RMR_BIND_COMPLETION_EVENT);
  shows("RMR-021");
  slice.segment_length = 0;
  SUCCEEDS(dat_rmr_bind(rmr, two.lmr, &slice, DAT_MEM_PRIV_NONE_FLAG, DAT_VA_TYPE_VA, two.ep, cookie(11),
                        DAT_COMPLETION_DEFAULT_FLAG, &second));
  EXPECT(two.dto_evd, DAT_RMR_BIND_COMPLETION_EVENT);
  SUCCEEDS(dat_lmr_free(two.lmr));
  shows("RMR-034");
  SUCCEEDS(dat_rmr_free(rmr));
  FAILS(dat_rmr_free(rmr), DAT_INVALID_HANDLE);
  FAILS(dat_rmr_free(DAT_HANDLE_NULL), DAT_INVALID_HANDLE);
  shows("RMR-009 RMR-011");
  SUCCEEDS(dat_rmr_create_for_ep(two.pz, &rmr));
  SUCCEEDS(dat_rmr_query(rmr, DAT_RMR_FIELD_RMR_SCOPE, &param));
  CHECK(param.rmr_scope == DAT_RMR_SCOPE_EP);
  shows("RMR-002");
  close_link();

  // An endpoint that is not connected refuses a bind.
  open_side(&two);
  two.ep = create_ep(&two, NULL);
  SUCCEEDS(dat_rmr_create(two.pz, &rmr));
  slice = part(&two, 0, 64);
  FAILS(dat_rmr_bind(rmr, two.lmr, &slice, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, DAT_VA_TYPE_VA, two.ep, cookie(1),
                     DAT_COMPLETION_DEFAULT_FLAG, &context),
        DAT_INVALID_STATE);
  shows("RMR-025");
  close_side(&two);
}

// The functions of the second version: a message that closes a window, and a read into a window.
static void windows_and_messages(void) {
  open_link(NULL);
  DAT_RMR_HANDLE rmr = DAT_HANDLE_NULL;
  DAT_RMR_CONTEXT context = 0;
  SUCCEEDS(dat_rmr_create_for_ep(two.pz, &rmr));
  DAT_LMR_TRIPLET slice = part(&two, 4096, 256);
  const DAT_MEM_PRIV_FLAGS remote = DAT_MEM_PRIV_REMOTE_WRITE_FLAG | DAT_MEM_PRIV_REMOTE_READ_FLAG;
  SUCCEEDS(dat_rmr_bind(rmr, two.lmr, &slice, remote, DAT_VA_TYPE_VA, two.ep, cookie(1), DAT_COMPLETION_DEFAULT_FLAG,
                        &context));
  EXPECT(two.dto_evd, DAT_RMR_BIND_COMPLETION_EVENT);
  // Side `two` reads into its own window.
  memcpy(one.memory, "into the window", 16);
  const DAT_RMR_TRIPLET from = remote_part(&one, 0, 16), to = {slice.virtual_address, 16, context};
  SUCCEEDS(dat_ep_post_rdma_read_to_rmr(two.ep, &to, cookie(2), &from, DAT_COMPLETION_DEFAULT_FLAG));
  const DAT_DTO_COMPLETION_EVENT_DATA read = COMPLETES(&two, 2, DAT_DTO_SUCCESS);
  CHECK(read.operation == DAT_DTO_RDMA_READ && strcmp(two.memory + 4096, "into the window") == 0);
  shows("DTO-017 DTO-142 DTO-147");
  const DAT_RMR_TRIPLET outside = {slice.virtual_address + 250, 16, context},
                        unbound = {slice.virtual_address, 16, context ^ 0x5a5a00};
  FAILS(dat_ep_post_rdma_read_to_rmr(two.ep, &outside, cookie(3), &from, DAT_COMPLETION_DEFAULT_FLAG),
        DAT_INVALID_PARAMETER);
  shows("DTO-143");
  FAILS(dat_ep_post_rdma_read_to_rmr(two.ep, &unbound, cookie(3), &from, DAT_COMPLETION_DEFAULT_FLAG),
        DAT_PRIVILEGES_VIOLATION);
  shows("DTO-145");
  FAILS(dat_ep_post_rdma_read_to_rmr(DAT_HANDLE_NULL, &to, cookie(3), &from, DAT_COMPLETION_DEFAULT_FLAG),
        DAT_INVALID_HANDLE);
  // A message of side `one` ends that side's right to the window.
  SUCCEEDS(post_recv(&two, 0, 64, 4));
  DAT_LMR_TRIPLET message = part(&one, 0, 8);
  SUCCEEDS(
      dat_ep_post_send_with_invalidate(one.ep, 1, &message, cookie(5), DAT_COMPLETION_DEFAULT_FLAG, DAT_TRUE, context));
  CHECK(COMPLETES(&one, 5, DAT_DTO_SUCCESS).operation == DAT_DTO_SEND);
  const DAT_DTO_COMPLETION_EVENT_DATA received = COMPLETES(&two, 4, DAT_DTO_SUCCESS);
  CHECK(received.operation == DAT_DTO_RECEIVE_WITH_INVALIDATE && received.rmr_context == context);
  shows("DTO-100 DTO-115 DTO-117");
  SUCCEEDS(dat_lmr_free(two.lmr)); // the window no longer holds the region
  shows("DTO-116");
  SUCCEEDS(dat_rmr_free(rmr));
  close_link();
}

const struct test_case memory_cases[] = {
    {"memory is registered, queried, synchronised and freed", regions},
    {"a window is bound, used and unbound", windows},
    {"a window is the target of a read, and a message closes it", windows_and_messages},
    {NULL, NULL},
};
