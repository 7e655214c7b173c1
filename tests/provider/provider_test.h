// The provider: what the parts of its test share. Each part calls entries with right arguments, and with each argument
// wrong in turn. SPDX-License-Identifier: BSL-1.0
#ifndef PROVIDER_TEST_H
#define PROVIDER_TEST_H

#include "check.h"
#include "side.h"

// Two adapters that are connected, and the service point of b.
extern struct side a, b;
extern DAT_PSP_HANDLE psp;
enum { port = 7471 };

// The next event of a side, which must be this completion.
void completion(struct side* s, DAT_UINT64 cookie, int operation, DAT_SEG_LENGTH length);

// Calls `hook` at the beginning of each call of a verb of the fake devices, in the same thread; null ends this.
void intercept(const char* verb, void (*hook)(void));

void moves_data(void);
void small_requests(void);
void changing_regions(void);
void wrong_posts(void);
void windows(void);
void extensions(void);
void datagrams(void);
void wrong_creations(void);
void queries(void);
void events(void);
void requests(void);
void shared_queues(void);
void bad_handles(void);
void threads(void);
void closes(void);

#endif
