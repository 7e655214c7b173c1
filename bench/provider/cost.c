// What a call through the provider costs: posts and dequeues on two connected endpoints of the fake devices.
// SPDX-License-Identifier: BSL-1.0
#include "side.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// cost PROVIDER JOB COUNT: does the job COUNT times. JOB is write (rdma write, dequeue), send (recv, send, two
// dequeues), or waits (16 rdma writes, then 16 waits; COUNT is a multiple of 16).

static struct side a, b;
enum { port = 7471, together = 16 };

static void take(struct side* s) {
  DAT_EVENT e;
  if (dat_evd_dequeue(s->evd, &e) != DAT_SUCCESS) exit(3); // the device completes at once
}

static void write_and_wait(DAT_LMR_TRIPLET* from, const DAT_RMR_TRIPLET* to) {
  DAT_EVENT e;
  DAT_COUNT more;
  for (int i = 0; i != together; ++i)
    if (dat_ep_post_rdma_write(a.ep, 1, from, cookie_of(1), to, DAT_COMPLETION_DEFAULT_FLAG) != DAT_SUCCESS) exit(3);
  for (int i = 0; i != together; ++i)
    if (dat_evd_wait(a.evd, DAT_TIMEOUT_INFINITE, 1, &e, &more) != DAT_SUCCESS || more != together - 1 - i) exit(3);
}

int main(int argc, char** argv) {
  char path[] = "/tmp/provider_cost.XXXXXX";
  DAT_PSP_HANDLE psp;
  if (argc != 4) return 2;
  FILE* const file = fdopen(mkstemp(path), "w");
  if (!file) return 2;
  fprintf(file, "dat-a u2.0 nonthreadsafe default %s dat.0.1 \"fk1\" \"\"\n", argv[1]);
  fprintf(file, "dat-b u2.0 nonthreadsafe default %s dat.0.1 \"fk2\" \"\"\n", argv[1]);
  fclose(file);
  setenv("DAT_OVERRIDE", path, 1);
  open_side(&a, "dat-a");
  open_side(&b, "dat-b");
  SUCCEEDS(dat_psp_create(b.ia, port, b.evd, DAT_PSP_CONSUMER_FLAG, &psp));
  connect_sides(&a, &b, port);
  unlink(path);
  DAT_LMR_TRIPLET from = local(&a, 0, 8), into = local(&b, 64, 8);
  const DAT_RMR_TRIPLET to = remote(&b, 128, 8);
  if (strcmp(argv[2], "waits") == 0) {
    for (long n = atol(argv[3]); n != 0; n -= together) write_and_wait(&from, &to);
    return checked();
  }
  const int writes = strcmp(argv[2], "write") == 0;
  for (long n = atol(argv[3]); n != 0; --n) {
    if (writes) {
      if (dat_ep_post_rdma_write(a.ep, 1, &from, cookie_of(1), &to, DAT_COMPLETION_DEFAULT_FLAG) != DAT_SUCCESS)
        return 3;
    } else {
      if (dat_ep_post_recv(b.ep, 1, &into, cookie_of(2), DAT_COMPLETION_DEFAULT_FLAG) != DAT_SUCCESS) return 3;
      if (dat_ep_post_send(a.ep, 1, &from, cookie_of(1), DAT_COMPLETION_DEFAULT_FLAG) != DAT_SUCCESS) return 3;
      take(&b);
    }
    take(&a);
  }
  return checked();
}
