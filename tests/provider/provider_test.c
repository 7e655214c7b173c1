// The provider: each entry with right arguments, and with each argument wrong in turn; freed and foreign handles;
// threads. SPDX-License-Identifier: BSL-1.0
#include "provider_test.h"

#include <unistd.h>

// provider_test PROVIDER ADAPTER ADAPTER [small]: the library, and two adapters that reach each other; only the test of
// small requests.

struct side a, b;
DAT_PSP_HANDLE psp;

void completion(struct side* s, DAT_UINT64 cookie, int operation, DAT_SEG_LENGTH length) {
  const DAT_EVENT e = event_of(s->evd, DAT_DTO_COMPLETION_EVENT);
  const DAT_DTO_COMPLETION_EVENT_DATA* d = &e.event_data.dto_completion_event_data;
  CHECK(d->ep_handle == s->ep && d->user_cookie.as_64 == cookie && d->status == DAT_DTO_SUCCESS);
  CHECK((int)d->operation == operation && d->transfered_length == length);
}

// Opens two lines of dat.conf that differ only in the thread safety, at the same time and again.
static void lines_of_one_name(void) {
  for (int i = 0; i != 2; ++i) {
    DAT_IA_HANDLE ia[2];
    DAT_PROVIDER_ATTR attr;
    for (int safe = 0; safe != 2; ++safe) {
      DAT_EVD_HANDLE async_evd = DAT_EVD_ASYNC_EXISTS;
      char name[] = "both";
      SUCCEEDS(dat_ia_openv(name, 8, &async_evd, &ia[safe], 2, 0, (DAT_BOOLEAN)safe));
      CHECK(async_evd == DAT_EVD_OUT_OF_SCOPE);
      SUCCEEDS(dat_ia_query(ia[safe], NULL, 0, NULL, DAT_PROVIDER_FIELD_ALL, &attr));
      CHECK((int)attr.is_thread_safe == safe);
    }
    for (int safe = 0; safe != 2; ++safe) SUCCEEDS(dat_ia_close(ia[safe], DAT_CLOSE_GRACEFUL_FLAG));
  }
}

// All tests except the test of small requests.
static void others(void) {
  moves_data();
  extensions();
  datagrams();
  windows();
  wrong_posts();
  wrong_creations();
  queries();
  events();
  requests();
  shared_queues();
  bad_handles();
  lines_of_one_name();
  threads();
  closes();
}

int main(int argc, char** argv) {
  char path[] = "/tmp/provider_test.XXXXXX";
  if (argc != 4 && (argc != 5 || strcmp(argv[4], "small") != 0)) return 2;
  FILE* const file = fdopen(mkstemp(path), "w");
  if (!file) return 2;
  fprintf(file, "dat-a u2.0 nonthreadsafe default %s dat.0.1 \"%s\" \"\"\n", argv[1], argv[2]);
  fprintf(file, "dat-b u2.0 nonthreadsafe default %s dat.0.1 \"%s\" \"\"\n", argv[1], argv[3]);
  fprintf(file, "both u2.0 nonthreadsafe default %s dat.0.1 \"%s\" \"\"\n", argv[1], argv[2]);
  fprintf(file, "both u2.0 threadsafe default %s dat.0.1 \"%s\" \"\"\n", argv[1], argv[2]);
  fclose(file);
  setenv("DAT_OVERRIDE", path, 1);
  open_side(&a, "dat-a");
  open_side(&b, "dat-b");
  SUCCEEDS(dat_psp_create(b.ia, port, b.evd, DAT_PSP_CONSUMER_FLAG, &psp));
  RETURNS(dat_psp_create(b.ia, port, b.evd, DAT_PSP_CONSUMER_FLAG, &psp), DAT_CONN_QUAL_IN_USE, 0);
  connect_sides(&a, &b, port);
  if (argc == 4) others();
  small_requests();
  changing_regions();
  SUCCEEDS(dat_ep_disconnect(a.ep, DAT_CLOSE_ABRUPT_FLAG));
  (void)event_of(a.evd, DAT_CONNECTION_EVENT_DISCONNECTED);
  (void)event_of(b.evd, DAT_CONNECTION_EVENT_DISCONNECTED);
  SUCCEEDS(dat_ep_free(a.ep));
  SUCCEEDS(dat_evd_free(a.evd));
  SUCCEEDS(dat_lmr_free(a.lmr));
  SUCCEEDS(dat_pz_free(a.pz));
  SUCCEEDS(dat_ia_close(a.ia, DAT_CLOSE_GRACEFUL_FLAG));
  SUCCEEDS(dat_ia_close(b.ia, DAT_CLOSE_ABRUPT_FLAG));
  unlink(path);
  return checked();
}
