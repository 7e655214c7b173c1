// Closing an adapter in a signal handler, and a close that dat refuses: both leave the adapter usable.
// SPDX-License-Identifier: BSL-1.0
#include "provider_test.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#if defined(__SANITIZE_THREAD__)
enum { thread_sanitizer = 1 };
#elif defined(__has_feature)
enum { thread_sanitizer = __has_feature(thread_sanitizer) };
#else
enum { thread_sanitizer = 0 };
#endif

static struct side c, d; // two endpoints of one adapter, connected with each other
static pthread_t tested;
static volatile DAT_RETURN closed; // of the handler
static volatile sig_atomic_t handled;
static int released, inside;

static void open_pair(void) {
  DAT_PSP_HANDLE listens;
  open_side(&c, "dat-a");
  d = c;
  SUCCEEDS(dat_evd_create(d.ia, 64, DAT_HANDLE_NULL, (DAT_EVD_FLAGS)all_streams, &d.evd));
  d.ep = make_ep(&d);
  SUCCEEDS(dat_psp_create(d.ia, port + 1, d.evd, DAT_PSP_CONSUMER_FLAG, &listens));
  connect_sides(&c, &d, port + 1);
}

static DAT_RETURN write_once(void) {
  DAT_LMR_TRIPLET from = local(&c, 0, 8);
  const DAT_RMR_TRIPLET to = remote(&c, 128, 8);
  return dat_ep_post_rdma_write(c.ep, 1, &from, cookie_of(5), &to, DAT_COMPLETION_DEFAULT_FLAG);
}

// Every object of the pair works.
static void all_work(void) {
  DAT_LMR_PARAM region;
  DAT_EVD_PARAM evd;
  SUCCEEDS(write_once());
  completion(&c, 5, DAT_DTO_RDMA_WRITE, 8);
  SUCCEEDS(dat_lmr_query(c.lmr, DAT_LMR_FIELD_ALL, &region));
  SUCCEEDS(dat_evd_query(d.evd, DAT_EVD_FIELD_ALL, &evd));
  DAT_PZ_HANDLE pz;
  SUCCEEDS(dat_pz_create(c.ia, &pz));
  SUCCEEDS(dat_pz_free(pz));
}

static void handler(int number) {
  (void)number;
  closed = dat_ia_close(c.ia, DAT_CLOSE_ABRUPT_FLAG);
  ++handled;
}

static void interrupts_once(void) {
  if (pthread_equal(pthread_self(), tested) && handled == 0) raise(SIGUSR1);
}

static void creates_a_zone(void) {
  DAT_PZ_HANDLE pz;
  SUCCEEDS(dat_pz_create(c.ia, &pz));
}
static void creates_a_zone_elsewhere(void) {
  DAT_PZ_HANDLE pz;
  SUCCEEDS(dat_pz_create(b.ia, &pz));
}
static void dequeues(void) {
  DAT_EVENT e;
  RETURNS(dat_evd_dequeue(d.async_evd, &e), DAT_QUEUE_EMPTY, 0);
  CHECK(dat_evd_dequeue(d.evd, &e) == DAT_QUEUE_EMPTY);
}
static void waits(void) {
  DAT_EVENT e;
  DAT_COUNT more;
  RETURNS(dat_evd_wait(d.evd, 1, 1, &e, &more), DAT_TIMEOUT_EXPIRED, 0);
}
static void opens(void) {
  struct side other;
  open_side(&other, "dat-b");
  SUCCEEDS(dat_ia_close(other.ia, DAT_CLOSE_ABRUPT_FLAG));
}
static void writes(void) {
  SUCCEEDS(write_once());
  completion(&c, 5, DAT_DTO_RDMA_WRITE, 8);
}

// `action` is interrupted inside its first call of `verb`, by a handler that closes the adapter. The close is refused.
static void refuses_inside(const char* verb, void (*action)(void)) {
  handled = 0;
  intercept(verb, interrupts_once);
  action();
  intercept(verb, NULL);
  CHECK(handled == 1);
  RETURNS(closed, DAT_INSUFFICIENT_RESOURCES, 0);
  all_work();
}

static void holds(void) {
  if (pthread_equal(pthread_self(), tested)) return;
  __atomic_store_n(&inside, 1, __ATOMIC_RELEASE);
  while (!__atomic_load_n(&released, __ATOMIC_ACQUIRE)) sched_yield();
}

void closes(void) {
  tested = pthread_self();
  open_pair();
  void (*const before)(int) = signal(SIGUSR1, handler);
  refuses_inside("ibv_alloc_pd", creates_a_zone);
  refuses_inside("ibv_alloc_pd", creates_a_zone_elsewhere);
  refuses_inside("ibv_alloc_pd", opens);
  refuses_inside("ibv_poll_cq", dequeues);
  refuses_inside("ibv_poll_cq", waits);
  refuses_inside("ibv_post_send", writes);

  // dat's service thread is inside of the device: the close is refused by dat, which waits for that thread.
  intercept("ibv_poll_cq", holds);
  SUCCEEDS(write_once()); // that thread polls soon after a completion
  while (!__atomic_load_n(&inside, __ATOMIC_ACQUIRE)) sched_yield();
  RETURNS(dat_ia_close(c.ia, DAT_CLOSE_ABRUPT_FLAG), DAT_INSUFFICIENT_RESOURCES, 0);
  __atomic_store_n(&released, 1, __ATOMIC_RELEASE);
  intercept("ibv_poll_cq", NULL);
  completion(&c, 5, DAT_DTO_RDMA_WRITE, 8);
  all_work();

  // Outside of the provider, the handler closes the adapter.
  if (thread_sanitizer) // which wants no memory freed in a handler
    handler(0);
  else
    raise(SIGUSR1);
  SUCCEEDS(closed);
  signal(SIGUSR1, before);
  RETURNS(dat_evd_free(c.evd), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1);
  RETURNS(dat_ia_close(c.ia, DAT_CLOSE_ABRUPT_FLAG), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
}
