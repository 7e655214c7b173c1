// Sends, receives, reads and writes, with right arguments and with each argument wrong in turn.
// SPDX-License-Identifier: BSL-1.0
#include "provider_test.h"

void moves_data(void) {
  DAT_LMR_TRIPLET from = local(&a, 0, 8), into = local(&b, 64, 16);
  DAT_LMR_TRIPLET pieces[5] = {local(&a, 0, 2), local(&a, 2, 2), local(&a, 0, 0), local(&a, 4, 2), local(&a, 6, 2)};
  DAT_RMR_TRIPLET there = remote(&b, 128, 8);
  strcpy(a.memory, "payload");
  SUCCEEDS(dat_ep_post_recv(b.ep, 1, &into, cookie_of(1), DAT_COMPLETION_DEFAULT_FLAG));
  SUCCEEDS(dat_ep_post_send(a.ep, 1, &from, cookie_of(2), DAT_COMPLETION_SOLICITED_WAIT_FLAG));
  completion(&a, 2, DAT_DTO_SEND, 8);
  completion(&b, 1, DAT_DTO_RECEIVE, 8);
  CHECK(strcmp(b.memory + 64, "payload") == 0);

  SUCCEEDS(dat_ep_post_recv(b.ep, 0, NULL, cookie_of(3), DAT_COMPLETION_DEFAULT_FLAG));
  SUCCEEDS(dat_ep_post_send(a.ep, 0, NULL, cookie_of(4), DAT_COMPLETION_DEFAULT_FLAG));
  completion(&a, 4, DAT_DTO_SEND, 0);
  completion(&b, 3, DAT_DTO_RECEIVE, 0);

  SUCCEEDS(dat_ep_post_rdma_write(a.ep, 5, pieces, cookie_of(5), &there, DAT_COMPLETION_DEFAULT_FLAG));
  completion(&a, 5, DAT_DTO_RDMA_WRITE, 8);
  CHECK(strcmp(b.memory + 128, "payload") == 0);
  from = local(&a, 256, 8);
  SUCCEEDS(dat_ep_post_rdma_read(a.ep, 1, &from, cookie_of(6), &there, DAT_COMPLETION_BARRIER_FENCE_FLAG));
  completion(&a, 6, DAT_DTO_RDMA_READ, 8);
  CHECK(strcmp(a.memory + 256, "payload") == 0);
  SUCCEEDS(dat_ep_post_rdma_write(a.ep, 1, &from, cookie_of(7), &there, DAT_COMPLETION_SUPPRESS_FLAG));
  SUCCEEDS(dat_ep_post_rdma_write(a.ep, 1, &from, cookie_of(8), &there, DAT_COMPLETION_DEFAULT_FLAG));
  completion(&a, 8, DAT_DTO_RDMA_WRITE, 8); // the suppressed request has no completion
}

// A small send waits for a receive while its memory is reused.
void small_requests(void) {
  DAT_LMR_TRIPLET from = local(&a, 0, 8), into = local(&b, 64, 16);
  strcpy(a.memory, "payload");
  SUCCEEDS(dat_ep_post_send(a.ep, 1, &from, cookie_of(1), DAT_COMPLETION_DEFAULT_FLAG));
  strcpy(a.memory, "changed");
  SUCCEEDS(dat_ep_post_recv(b.ep, 1, &into, cookie_of(2), DAT_COMPLETION_DEFAULT_FLAG));
  completion(&a, 1, DAT_DTO_SEND, 8);
  completion(&b, 2, DAT_DTO_RECEIVE, 8);
  CHECK(strcmp(b.memory + 64, "payload") == 0);
}

// A post finds the region of the post before it, and another one, and no region that was freed or lacks the right.
void changing_regions(void) {
  DAT_LMR_TRIPLET first = local(&a, 0, 8), second = first;
  const DAT_RMR_TRIPLET there = remote(&b, 128, 8);
  DAT_LMR_HANDLE read_only;
  DAT_REGION_DESCRIPTION region;
  region.for_va = a.memory;
  SUCCEEDS(dat_lmr_create(a.ia, DAT_MEM_TYPE_VIRTUAL, region, 64, a.pz, DAT_MEM_PRIV_LOCAL_READ_FLAG, DAT_VA_TYPE_VA,
                          &read_only, &second.lmr_context, NULL, NULL, NULL));
  const DAT_LMR_TRIPLET* const each[] = {&second, &second, &first, &second};
  for (unsigned i = 0; i != 4; ++i) {
    DAT_LMR_TRIPLET from = *each[i];
    SUCCEEDS(dat_ep_post_rdma_write(a.ep, 1, &from, cookie_of(i), &there, DAT_COMPLETION_DEFAULT_FLAG));
    completion(&a, i, DAT_DTO_RDMA_WRITE, 8);
  }
  const DAT_CONTEXT c = cookie_of(0);
  second.segment_length = 65;
  RETURNS(dat_ep_post_rdma_write(a.ep, 1, &second, c, &there, 0), DAT_INVALID_PARAMETER, 0);
  second.segment_length = 8;
  RETURNS(dat_ep_post_rdma_read(a.ep, 1, &second, c, &there, 0), DAT_PRIVILEGES_VIOLATION, DAT_PRIVILEGES_WRITE);
  SUCCEEDS(dat_lmr_free(read_only));
  RETURNS(dat_ep_post_rdma_write(a.ep, 1, &second, c, &there, 0), DAT_PRIVILEGES_VIOLATION, 0);
}

void wrong_posts(void) {
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
