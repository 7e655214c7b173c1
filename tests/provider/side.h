// One side of a connection for the tests in C: an adapter, and one object of each kind on it.
// SPDX-License-Identifier: BSL-1.0
#ifndef SIDE_H
#define SIDE_H

#include "check.h"

#include <dat2/dat_ib_extensions.h>

#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// Longer than any wait that a test expects to succeed. Waits end as soon as the event is queued.
#define PLENTY ((DAT_TIMEOUT)60000000)

struct side {
  char memory[4096];
  DAT_IA_HANDLE ia;
  DAT_EVD_HANDLE async_evd;
  DAT_EVD_HANDLE evd; // of all streams
  DAT_PZ_HANDLE pz;
  DAT_LMR_HANDLE lmr;
  DAT_LMR_CONTEXT lmr_context;
  DAT_RMR_CONTEXT rmr_context;
  DAT_EP_HANDLE ep;
  struct sockaddr_in6 address; // of the adapter
};

enum { all_streams = DAT_EVD_DEFAULT_FLAG | DAT_EVD_SOFTWARE_FLAG, all_rights = 0x73 };

static inline DAT_CONTEXT cookie_of(DAT_UINT64 n) {
  DAT_CONTEXT c;
  c.as_64 = n;
  return c;
}

static inline DAT_EP_ATTR usual_attributes(void) {
  DAT_EP_ATTR a;
  memset(&a, 0, sizeof a);
  a.service_type = DAT_SERVICE_TYPE_RC;
  a.recv_completion_flags = a.request_completion_flags = DAT_COMPLETION_EVD_THRESHOLD_FLAG;
  a.max_recv_dtos = a.max_request_dtos = 16;
  a.max_recv_iov = a.max_request_iov = a.max_rdma_read_iov = a.max_rdma_write_iov = 4;
  a.max_rdma_read_in = a.max_rdma_read_out = 4;
  return a;
}

static inline DAT_EP_HANDLE make_ep(struct side* s) {
  const DAT_EP_ATTR attributes = usual_attributes();
  DAT_EP_HANDLE ep = DAT_HANDLE_NULL;
  SUCCEEDS(dat_ep_create(s->ia, s->pz, s->evd, s->evd, s->evd, &attributes, &ep));
  return ep;
}

static inline void open_side(struct side* s, const char* name) {
  DAT_IA_ATTR attr;
  DAT_REGION_DESCRIPTION region;
  DAT_VLEN length;
  DAT_VADDR address;
  memset(s, 0, sizeof *s);
  SUCCEEDS(dat_ia_open((char*)(uintptr_t)name, 8, &s->async_evd, &s->ia));
  if (!s->ia) exit(checked()); // no further test can run
  SUCCEEDS(dat_ia_query(s->ia, NULL, DAT_IA_FIELD_ALL, &attr, 0, NULL));
  memcpy(&s->address, attr.ia_address_ptr, sizeof s->address);
  SUCCEEDS(dat_pz_create(s->ia, &s->pz));
  SUCCEEDS(dat_evd_create(s->ia, 64, DAT_HANDLE_NULL, (DAT_EVD_FLAGS)all_streams, &s->evd));
  region.for_va = s->memory;
  SUCCEEDS(dat_lmr_create(s->ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof s->memory, s->pz, (DAT_MEM_PRIV_FLAGS)all_rights,
                          DAT_VA_TYPE_VA, &s->lmr, &s->lmr_context, &s->rmr_context, &length, &address));
  CHECK(length == sizeof s->memory && address == (DAT_VADDR)(uintptr_t)s->memory);
  s->ep = make_ep(s);
}

static inline DAT_LMR_TRIPLET local(const struct side* s, unsigned offset, DAT_SEG_LENGTH length) {
  const DAT_LMR_TRIPLET t = {(DAT_VADDR)(uintptr_t)s->memory + offset, length, s->lmr_context};
  return t;
}
static inline DAT_RMR_TRIPLET remote(const struct side* s, unsigned offset, DAT_SEG_LENGTH length) {
  const DAT_RMR_TRIPLET t = {(DAT_VADDR)(uintptr_t)s->memory + offset, length, s->rmr_context};
  return t;
}

// The next event of an evd, which must have this number.
static inline DAT_EVENT event_of(DAT_EVD_HANDLE evd, int number) {
  DAT_EVENT e;
  DAT_COUNT more = -1;
  memset(&e, 0, sizeof e);
  SUCCEEDS(dat_evd_wait(evd, PLENTY, 1, &e, &more));
  if ((int)e.event_number != number)
    printf("event 0x%x in place of 0x%x\n", (unsigned)e.event_number, (unsigned)number);
  CHECK((int)e.event_number == number);
  CHECK(e.evd_handle == evd);
  return e;
}

// Connects a to b, which must listen on `port`.
static inline void connect_sides(struct side* a, struct side* b, DAT_CONN_QUAL port) {
  char hello[] = "hello";
  DAT_CR_PARAM request;
  SUCCEEDS(dat_ep_connect(a->ep, (DAT_IA_ADDRESS_PTR)&b->address, port, PLENTY, sizeof hello, hello,
                          DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
  const DAT_EVENT arrived = event_of(b->evd, DAT_CONNECTION_REQUEST_EVENT);
  const DAT_CR_HANDLE cr = arrived.event_data.cr_arrival_event_data.cr_handle;
  CHECK(arrived.event_data.cr_arrival_event_data.conn_qual == port);
  SUCCEEDS(dat_cr_query(cr, DAT_CR_FIELD_ALL, &request));
  CHECK(request.private_data && request.private_data_size == (DAT_COUNT)sizeof hello);
  CHECK(memcmp(request.private_data, hello, sizeof hello) == 0);
  CHECK(request.local_ep_handle == DAT_HANDLE_NULL);
  SUCCEEDS(dat_cr_accept(cr, b->ep, sizeof hello, hello));
  RETURNS(dat_cr_accept(cr, b->ep, 0, NULL), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CR);
  const DAT_EVENT up = event_of(a->evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  CHECK(up.event_data.connect_event_data.ep_handle == a->ep);
  CHECK(up.event_data.connect_event_data.private_data_size == (DAT_COUNT)sizeof hello);
  CHECK(memcmp(up.event_data.connect_event_data.private_data, hello, sizeof hello) == 0);
  (void)event_of(b->evd, DAT_CONNECTION_EVENT_ESTABLISHED);
}

#endif
