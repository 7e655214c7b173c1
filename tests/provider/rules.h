// The specification in its own language: cases in C, each of which names the rules of docs/conformance/rules that it
// shows. SPDX-License-Identifier: BSL-1.0
#ifndef RULES_H
#define RULES_H

#include "check.h"

#include <dat2/dat_ib_extensions.h>
#include <dat2/dat_registry.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// Records the rules, separated by blanks, once the case has passed. It follows the assertions that show them.
void shows(const char* rules);

struct test_case {
  const char* name;
  void (*run)(void);
};
extern const struct test_case value_cases[], ia_cases[], event_cases[], cno_cases[], connection_cases[],
    service_point_cases[], endpoint_cases[], srq_cases[], memory_cases[], transfer_cases[], extension_cases[];

// The call returns an error of this type, of any subtype.
#define FAILS(call, type) check_type(__FILE__, __LINE__, #call, (call), (type))
void check_type(const char* file, int line, const char* what, DAT_RETURN is, DAT_RETURN_TYPE wanted);

// The limit for events that must come: a machine may be slow, but not by this much.
enum { ample = 60 * 1000 * 1000 };

// Two open adapters that exchange messages. Both belong to this process.
struct side {
  char name[DAT_NAME_MAX_LENGTH];
  struct sockaddr_in address;
  DAT_IA_HANDLE ia;
  DAT_EVD_HANDLE async_evd;
  DAT_PZ_HANDLE pz;
  DAT_EVD_HANDLE evd;     // the evd of requests, connections and service points
  DAT_EVD_HANDLE dto_evd; // the evd of completions
  char* memory;
  DAT_LMR_HANDLE lmr;
  DAT_LMR_CONTEXT lmr_context;
  DAT_RMR_CONTEXT rmr_context;
  DAT_EP_HANDLE ep;
};
enum { memory_size = 16384 };
extern struct side one, two;

DAT_RETURN open_adapter(struct side* s);
void open_side(struct side* s);  // opens all objects except the endpoint
void close_side(struct side* s); // abruptly
DAT_EP_HANDLE create_ep(struct side* s, const DAT_EP_ATTR* attributes);
DAT_EP_ATTR default_attributes(void);
DAT_EP_STATE state_of(DAT_EP_HANDLE ep);

// Takes the next event, which must be this one.
#define EXPECT(evd, number) expect_at(__FILE__, __LINE__, (evd), (number))
DAT_EVENT expect_at(const char* file, int line, DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER number);
// The class of DAT_QUEUE_EMPTY depends on the evd: OFA's programs compare the whole word.
#define EMPTY(evd) CHECK(DAT_GET_TYPE(dat_evd_dequeue((evd), &(DAT_EVENT){0})) == DAT_QUEUE_EMPTY)

// A service point of `two` on a free qualifier; `one` connects to it.
DAT_PSP_HANDLE listen_on(DAT_CONN_QUAL* qualifier, DAT_PSP_FLAGS flags);
DAT_RETURN connect_to(DAT_EP_HANDLE ep, DAT_CONN_QUAL qualifier, const char* private_data);
DAT_CR_HANDLE request(void); // the handle of the request that arrives at `two`
// Opens both sides, with endpoints that are connected.
void open_link(const DAT_EP_ATTR* attributes);
void close_link(void);

DAT_LMR_TRIPLET part(struct side* s, unsigned offset, unsigned length);
DAT_RMR_TRIPLET remote_part(struct side* s, unsigned offset, unsigned length);
DAT_DTO_COOKIE cookie(DAT_UINT64 value);
DAT_RETURN post_send(struct side* s, unsigned offset, unsigned length, DAT_UINT64 value);
DAT_RETURN post_recv(struct side* s, unsigned offset, unsigned length, DAT_UINT64 value);
// The next completion of a side, which must have this cookie and status.
#define COMPLETES(s, value, status) complete_at(__FILE__, __LINE__, (s), (value), (status))
DAT_DTO_COMPLETION_EVENT_DATA complete_at(const char* file, int line, struct side* s, DAT_UINT64 value,
                                          DAT_DTO_COMPLETION_STATUS status);

// The bit above the bits of a mask.
#define BEYOND(all) ((all) + 1)

#endif
