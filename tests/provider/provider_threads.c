// Calls from several threads: posts, completions, objects that end under them, and waits that a close aborts.
// SPDX-License-Identifier: BSL-1.0
#include "provider_test.h"

#include <pthread.h>
#include <sched.h>

enum { rounds = 400, workers = 4 };
static DAT_LMR_HANDLE shaken; // freed and registered again while other threads post
static int stop;

static void* posts(void* unused) {
  DAT_LMR_TRIPLET from = local(&a, 0, 8);
  DAT_RMR_TRIPLET there = remote(&b, 128, 8);
  for (int i = 0; i != rounds; ++i) {
    const DAT_RETURN r = dat_ep_post_rdma_write(a.ep, 1, &from, cookie_of(1), &there, DAT_COMPLETION_DEFAULT_FLAG);
    if (r != DAT_SUCCESS) { // the queue is full: other threads take completions
      CHECK(DAT_GET_TYPE(r) == DAT_INSUFFICIENT_RESOURCES);
      sched_yield();
      --i;
    }
  }
  return unused;
}

static void* takes(void* taken) {
  DAT_EVENT e;
  while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
    const DAT_RETURN r = dat_evd_dequeue(a.evd, &e);
    if (r == DAT_SUCCESS)
      __atomic_add_fetch((int*)taken, 1, __ATOMIC_RELAXED);
    else
      sched_yield();
  }
  return NULL;
}

// Creates and frees objects, and frees objects that another thread has freed.
static void* shakes(void* unused) {
  DAT_REGION_DESCRIPTION region;
  region.for_va = a.memory;
  for (int i = 0; i != rounds / 10; ++i) {
    DAT_LMR_HANDLE lmr;
    DAT_EVD_HANDLE evd;
    DAT_EP_HANDLE ep;
    const DAT_EP_ATTR attributes = usual_attributes();
    SUCCEEDS(dat_lmr_create(a.ia, DAT_MEM_TYPE_VIRTUAL, region, 64, a.pz, (DAT_MEM_PRIV_FLAGS)all_rights,
                            DAT_VA_TYPE_VA, &lmr, NULL, NULL, NULL, NULL));
    (void)dat_lmr_free(__atomic_exchange_n(&shaken, lmr, __ATOMIC_ACQ_REL));
    (void)dat_lmr_free(__atomic_load_n(&shaken, __ATOMIC_ACQUIRE));
    SUCCEEDS(dat_evd_create(a.ia, 8, DAT_HANDLE_NULL, (DAT_EVD_FLAGS)all_streams, &evd));
    SUCCEEDS(dat_ep_create(a.ia, a.pz, evd, evd, evd, &attributes, &ep));
    SUCCEEDS(dat_ep_free(ep));
    SUCCEEDS(dat_evd_free(evd));
  }
  return unused;
}

static void* waits(void* evd) {
  DAT_EVENT e;
  DAT_COUNT more;
  RETURNS(dat_evd_wait(evd, DAT_TIMEOUT_INFINITE, 1, &e, &more), DAT_ABORT, DAT_SUB_INTERRUPTED);
  return NULL;
}

static void counts(DAT_PVOID called, DAT_EVD_HANDLE evd) {
  (void)evd;
  __atomic_add_fetch((int*)called, 1, __ATOMIC_SEQ_CST);
}

// Replaces an agent while a trigger calls it: one of the two is called, and a called one is not set any longer.
static void replaces_agents(void) {
  DAT_CNO_HANDLE cno;
  DAT_EVD_HANDLE evd;
  DAT_EVENT e = {0};
  DAT_CNO_PARAM param;
  e.event_number = DAT_SOFTWARE_EVENT;
  SUCCEEDS(dat_cno_create(a.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
  SUCCEEDS(dat_evd_create(a.ia, 8, cno, DAT_EVD_SOFTWARE_FLAG, &evd));
  for (int i = 0; i != 10 * rounds; ++i) {
    int called[2] = {0, 0};
    const DAT_OS_WAIT_PROXY_AGENT first = {&called[0], counts}, second = {&called[1], counts};
    SUCCEEDS(dat_cno_modify_agent(cno, first));
    SUCCEEDS(dat_evd_post_se(evd, &e));
    for (volatile int n = 0; n < i % rounds * 50;) n = n + 1;
    SUCCEEDS(dat_cno_modify_agent(cno, second));
    while (!__atomic_load_n(&called[0], __ATOMIC_SEQ_CST) && !__atomic_load_n(&called[1], __ATOMIC_SEQ_CST))
      sched_yield();
    SUCCEEDS(dat_cno_query(cno, DAT_CNO_FIELD_ALL, &param));
    CHECK(called[0] + called[1] == 1);
    CHECK(param.proxy_type == (called[0] ? DAT_PROXY_TYPE_AGENT : DAT_PROXY_TYPE_NONE));
    SUCCEEDS(dat_cno_modify_agent(cno, DAT_OS_WAIT_PROXY_AGENT_NULL));
    SUCCEEDS(dat_evd_dequeue(evd, &e));
  }
  SUCCEEDS(dat_evd_free(evd));
  SUCCEEDS(dat_cno_free(cno));
}

void threads(void) {
  pthread_t thread[workers + 2], taker;
  int taken = 0;
  pthread_create(&taker, NULL, takes, &taken);
  for (int i = 0; i != workers; ++i) pthread_create(&thread[i], NULL, posts, NULL);
  for (int i = workers; i != workers + 2; ++i) pthread_create(&thread[i], NULL, shakes, NULL);
  for (int i = 0; i != workers + 2; ++i) pthread_join(thread[i], NULL);
  while (__atomic_load_n(&taken, __ATOMIC_RELAXED) != workers * rounds) sched_yield();
  __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
  pthread_join(taker, NULL);
  (void)dat_lmr_free(shaken);
  replaces_agents();

  // A thread that waits while its evd is freed, and while its ia closes.
  struct side c;
  pthread_t waiter;
  DAT_RETURN r;
  open_side(&c, "dat-a");
  pthread_create(&waiter, NULL, waits, c.async_evd);
  DAT_EVENT e;
  do r = dat_evd_dequeue(c.async_evd, &e); // returns when the thread waits
  while (DAT_GET_TYPE(r) == DAT_QUEUE_EMPTY);
  CHECK(r == (DAT_CLASS_ERROR | DAT_INVALID_STATE | DAT_INVALID_STATE_EVD_WAITER));
  SUCCEEDS(dat_ia_close(c.ia, DAT_CLOSE_ABRUPT_FLAG));
  pthread_join(waiter, NULL);
  RETURNS(dat_evd_free(c.evd), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1);
  RETURNS(dat_ia_close(c.ia, DAT_CLOSE_ABRUPT_FLAG), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
}
