// Runs the cases, and prints which passed and which rules they have shown.
// SPDX-License-Identifier: BSL-1.0
#include "rules.h"

#include <arpa/inet.h>
#include <unistd.h>

struct side one, two;

static char shown[4096];

void shows(const char* rules) {
  if (strlen(shown) + strlen(rules) + 2 > sizeof shown) abort();
  strcat(strcat(shown, " "), rules);
}

void check_type(const char* file, int line, const char* what, DAT_RETURN is, DAT_RETURN_TYPE wanted) {
  const DAT_RETURN subtype = is & DAT_SUBTYPE_MASK;
  check_word(file, line, what, is, wanted ? DAT_CLASS_ERROR | (DAT_RETURN)wanted | subtype : DAT_SUCCESS);
}

DAT_RETURN open_adapter(struct side* s) {
  s->async_evd = DAT_HANDLE_NULL;
  return dat_ia_open(s->name, 8, &s->async_evd, &s->ia);
}

void open_side(struct side* s) {
  SUCCEEDS(open_adapter(s));
  SUCCEEDS(dat_pz_create(s->ia, &s->pz));
  SUCCEEDS(dat_evd_create(s->ia, 32, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG | DAT_EVD_CONNECTION_FLAG, &s->evd));
  SUCCEEDS(dat_evd_create(s->ia, 64, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG, &s->dto_evd));
  s->memory = aligned_alloc(4096, memory_size);
  if (!s->memory) abort();
  memset(s->memory, 0, memory_size);
  const DAT_REGION_DESCRIPTION region = {.for_va = s->memory};
  DAT_VLEN size = 0;
  DAT_VADDR address = 0;
  SUCCEEDS(dat_lmr_create(s->ia, DAT_MEM_TYPE_VIRTUAL, region, memory_size, s->pz, DAT_MEM_PRIV_ALL_FLAG,
                          DAT_VA_TYPE_VA, &s->lmr, &s->lmr_context, &s->rmr_context, &size, &address));
  s->ep = DAT_HANDLE_NULL;
}

void close_side(struct side* s) {
  SUCCEEDS(dat_ia_close(s->ia, DAT_CLOSE_ABRUPT_FLAG));
  free(s->memory);
  s->memory = NULL;
}

DAT_EP_HANDLE create_ep(struct side* s, const DAT_EP_ATTR* attributes) {
  DAT_EP_HANDLE ep = DAT_HANDLE_NULL;
  SUCCEEDS(dat_ep_create(s->ia, s->pz, s->dto_evd, s->dto_evd, s->evd, attributes, &ep));
  return ep;
}

DAT_EP_ATTR default_attributes(void) {
  return (DAT_EP_ATTR){.service_type = DAT_SERVICE_TYPE_RC,
                       .max_message_size = 65536,
                       .max_rdma_size = 65536,
                       .qos = DAT_QOS_BEST_EFFORT,
                       .max_recv_dtos = 8,
                       .max_request_dtos = 8,
                       .max_recv_iov = 2,
                       .max_request_iov = 2,
                       .max_rdma_read_in = 2,
                       .max_rdma_read_out = 2,
                       .srq_soft_hw = DAT_HW_DEFAULT,
                       .max_rdma_read_iov = 2,
                       .max_rdma_write_iov = 2};
}

DAT_EP_STATE state_of(DAT_EP_HANDLE ep) {
  DAT_EP_STATE state = (DAT_EP_STATE)-1;
  DAT_BOOLEAN recv_idle, request_idle;
  SUCCEEDS(dat_ep_get_status(ep, &state, &recv_idle, &request_idle));
  return state;
}

DAT_EVENT expect_at(const char* file, int line, DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER number) {
  DAT_EVENT event = {0};
  DAT_COUNT more = 0;
  check_word(file, line, "waiting for an event", dat_evd_wait(evd, ample, 1, &event, &more), DAT_SUCCESS);
  if (event.event_number != number) printf("    event 0x%x, not 0x%x\n", event.event_number, number);
  check_that(file, line, "the expected event", event.event_number == number && event.evd_handle == evd);
  return event;
}

DAT_PSP_HANDLE listen_on(DAT_CONN_QUAL* qualifier, DAT_PSP_FLAGS flags) {
  DAT_PSP_HANDLE psp = DAT_HANDLE_NULL;
  SUCCEEDS(dat_psp_create_any(two.ia, qualifier, two.evd, flags, &psp));
  return psp;
}

DAT_RETURN connect_to(DAT_EP_HANDLE ep, DAT_CONN_QUAL qualifier, const char* private_data) {
  return dat_ep_connect(ep, (DAT_IA_ADDRESS_PTR)&two.address, qualifier, ample, (DAT_COUNT)strlen(private_data),
                        (DAT_PVOID)(uintptr_t)private_data, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG);
}

DAT_CR_HANDLE request(void) {
  return EXPECT(two.evd, DAT_CONNECTION_REQUEST_EVENT).event_data.cr_arrival_event_data.cr_handle;
}

void open_link(const DAT_EP_ATTR* attributes) {
  open_side(&one);
  open_side(&two);
  one.ep = create_ep(&one, attributes);
  two.ep = create_ep(&two, attributes);
  DAT_CONN_QUAL qualifier = 0;
  DAT_PSP_HANDLE psp = listen_on(&qualifier, DAT_PSP_CONSUMER_FLAG);
  SUCCEEDS(connect_to(one.ep, qualifier, ""));
  SUCCEEDS(dat_cr_accept(request(), two.ep, 0, NULL));
  EXPECT(two.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  EXPECT(one.evd, DAT_CONNECTION_EVENT_ESTABLISHED);
  SUCCEEDS(dat_psp_free(psp));
}

void close_link(void) {
  close_side(&one);
  close_side(&two);
}

DAT_LMR_TRIPLET part(struct side* s, unsigned offset, unsigned length) {
  return (DAT_LMR_TRIPLET){(DAT_VADDR)(uintptr_t)s->memory + offset, length, s->lmr_context};
}

DAT_RMR_TRIPLET remote_part(struct side* s, unsigned offset, unsigned length) {
  return (DAT_RMR_TRIPLET){(DAT_VADDR)(uintptr_t)s->memory + offset, length, s->rmr_context};
}

DAT_DTO_COOKIE cookie(DAT_UINT64 value) { return (DAT_DTO_COOKIE){.as_64 = value}; }

DAT_RETURN post_send(struct side* s, unsigned offset, unsigned length, DAT_UINT64 value) {
  DAT_LMR_TRIPLET iov = part(s, offset, length);
  return dat_ep_post_send(s->ep, 1, &iov, cookie(value), DAT_COMPLETION_DEFAULT_FLAG);
}

DAT_RETURN post_recv(struct side* s, unsigned offset, unsigned length, DAT_UINT64 value) {
  DAT_LMR_TRIPLET iov = part(s, offset, length);
  return dat_ep_post_recv(s->ep, 1, &iov, cookie(value), DAT_COMPLETION_DEFAULT_FLAG);
}

DAT_DTO_COMPLETION_EVENT_DATA complete_at(const char* file, int line, struct side* s, DAT_UINT64 value,
                                          DAT_DTO_COMPLETION_STATUS status) {
  const DAT_EVENT event = expect_at(file, line, s->dto_evd, DAT_DTO_COMPLETION_EVENT);
  const DAT_DTO_COMPLETION_EVENT_DATA* d = &event.event_data.dto_completion_event_data;
  if (d->user_cookie.as_64 != value || d->status != status)
    printf("    cookie %llu, status %d\n", (unsigned long long)d->user_cookie.as_64, d->status);
  check_that(file, line, "the expected completion", d->user_cookie.as_64 == value && d->status == status);
  return *d;
}

static void run(const struct test_case* cases, const char* only) {
  for (; cases->name; ++cases) {
    if (only && !strstr(cases->name, only)) continue;
    const int failed = checks_failed;
    shown[0] = 0;
    cases->run();
    const int good = checks_failed == failed;
    printf("%s: %s\n", good ? "passed" : "FAILED", cases->name);
    for (char* rule = good ? strtok(shown, " ") : NULL; rule; rule = strtok(NULL, " ")) printf("shows %s\n", rule);
    fflush(stdout);
  }
}

int main(int argc, char** argv) {
  if (argc < 5) {
    fprintf(stderr, "usage: rules NAME ADDRESS NAME ADDRESS [CASE]\n");
    return 2;
  }
  struct side* const sides[] = {&one, &two};
  for (int i = 0; i < 2; ++i) {
    snprintf(sides[i]->name, sizeof sides[i]->name, "%s", argv[1 + 2 * i]);
    sides[i]->address.sin_family = AF_INET;
    if (inet_pton(AF_INET, argv[2 + 2 * i], &sides[i]->address.sin_addr) != 1) return 2;
  }
  const struct test_case* const all[] = {
      value_cases,    ia_cases,  event_cases,  cno_cases,      connection_cases, service_point_cases,
      endpoint_cases, srq_cases, memory_cases, transfer_cases, extension_cases};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) run(all[i], argc > 5 ? argv[5] : NULL);
  return checked();
}
