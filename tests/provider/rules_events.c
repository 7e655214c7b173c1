// Event dispatchers, software events, and consumer notification objects.
// SPDX-License-Identifier: BSL-1.0
#include "rules.h"

#include <poll.h>
#include <unistd.h>

static DAT_EVD_HANDLE software_evd(DAT_COUNT length, DAT_CNO_HANDLE cno) {
  DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
  SUCCEEDS(dat_evd_create(one.ia, length, cno, DAT_EVD_SOFTWARE_FLAG, &evd));
  return evd;
}

static DAT_RETURN post(DAT_EVD_HANDLE evd, uintptr_t value) {
  DAT_EVENT event = {.event_number = DAT_SOFTWARE_EVENT};
  event.event_data.software_event_data.pointer = (DAT_PVOID)value;
  return dat_evd_post_se(evd, &event);
}

static int took(DAT_EVD_HANDLE evd, uintptr_t value) {
  DAT_EVENT event = {0};
  return dat_evd_dequeue(evd, &event) == DAT_SUCCESS && event.event_number == DAT_SOFTWARE_EVENT &&
         event.evd_handle == evd && event.event_data.software_event_data.pointer == (DAT_PVOID)value;
}

static DAT_EVD_STATE evd_state(DAT_EVD_HANDLE evd) {
  DAT_EVD_PARAM param = {0};
  SUCCEEDS(dat_evd_query(evd, DAT_EVD_FIELD_EVD_STATE, &param));
  return param.evd_state;
}

static void creating_and_querying(void) {
  open_side(&one);
  DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
  DAT_CNO_HANDLE cno = DAT_HANDLE_NULL;
  SUCCEEDS(dat_cno_create(one.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
  SUCCEEDS(dat_evd_create(one.ia, 10, cno, DAT_EVD_DEFAULT_FLAG, &evd));
  DAT_EVD_PARAM param = {0};
  SUCCEEDS(dat_evd_query(evd, DAT_EVD_FIELD_ALL, &param));
  CHECK(param.ia_handle == one.ia && param.cno_handle == cno && param.evd_flags == DAT_EVD_DEFAULT_FLAG);
  shows("EVD-001 EVD-005 EVD-020");
  CHECK(param.evd_qlen >= 10);
  shows("EVD-002");
  CHECK((param.evd_state & DAT_EVD_STATE_ENABLED) && (param.evd_state & DAT_EVD_STATE_WAITABLE));
  CHECK(!(param.evd_state & DAT_EVD_STATE_DISABLED) && !(param.evd_state & DAT_EVD_STATE_UNWAITABLE));
  shows("EVD-021 ERR-042");
  FAILS(dat_evd_query(evd, BEYOND(DAT_EVD_FIELD_ALL), &param), DAT_INVALID_PARAMETER);
  FAILS(dat_evd_query(evd, DAT_EVD_FIELD_ALL, NULL), DAT_INVALID_PARAMETER);
  FAILS(dat_evd_query(DAT_HANDLE_NULL, DAT_EVD_FIELD_ALL, &param), DAT_INVALID_HANDLE);
  DAT_EVD_HANDLE other = DAT_HANDLE_NULL;
  FAILS(dat_evd_create(one.ia, 0, DAT_HANDLE_NULL, DAT_EVD_DEFAULT_FLAG, &other), DAT_INVALID_PARAMETER);
  FAILS(dat_evd_create(one.ia, -1, DAT_HANDLE_NULL, DAT_EVD_DEFAULT_FLAG, &other), DAT_INVALID_PARAMETER);
  FAILS(dat_evd_create(one.ia, 8, DAT_HANDLE_NULL, (DAT_EVD_FLAGS)0x8000, &other), DAT_INVALID_PARAMETER);
  FAILS(dat_evd_create(one.ia, 8, DAT_HANDLE_NULL, DAT_EVD_DEFAULT_FLAG, NULL), DAT_INVALID_PARAMETER);
  shows("ERR-018");
  FAILS(dat_evd_create(DAT_HANDLE_NULL, 8, DAT_HANDLE_NULL, DAT_EVD_DEFAULT_FLAG, &other), DAT_INVALID_HANDLE);
  FAILS(dat_evd_create(one.ia, 8, one.pz, DAT_EVD_DEFAULT_FLAG, &other), DAT_INVALID_HANDLE);
  shows("EVD-006");

  SUCCEEDS(dat_evd_modify_cno(evd, DAT_HANDLE_NULL));
  SUCCEEDS(dat_evd_query(evd, DAT_EVD_FIELD_CNO, &param));
  CHECK(param.cno_handle == DAT_HANDLE_NULL);
  shows("EVD-024");
  SUCCEEDS(dat_evd_modify_cno(evd, cno));
  SUCCEEDS(dat_evd_query(evd, DAT_EVD_FIELD_CNO, &param));
  CHECK(param.cno_handle == cno);
  FAILS(dat_evd_modify_cno(evd, one.lmr), DAT_INVALID_HANDLE);
  shows("EVD-023 EVD-027 CNO-002");
  RETURNS(dat_cno_free(cno), DAT_INVALID_STATE, DAT_INVALID_STATE_CNO_IN_USE);
  shows("CNO-025");
  SUCCEEDS(dat_evd_free(evd));
  FAILS(dat_evd_free(evd), DAT_INVALID_HANDLE);
  FAILS(dat_evd_query(evd, DAT_EVD_FIELD_ALL, &param), DAT_INVALID_HANDLE);
  shows("EVD-017");
  SUCCEEDS(dat_cno_free(cno));
  FAILS(dat_cno_free(cno), DAT_INVALID_HANDLE);
  shows("CNO-026");
  DAT_EP_HANDLE ep = create_ep(&one, NULL);
  FAILS(dat_evd_free(one.dto_evd), DAT_INVALID_STATE);
  FAILS(dat_evd_free(one.evd), DAT_INVALID_STATE);
  shows("EVD-015 EVENT-106");
  SUCCEEDS(dat_ep_free(ep));
  SUCCEEDS(dat_evd_free(one.dto_evd));
  SUCCEEDS(dat_evd_free(one.evd));
  shows("EP-038 EVD-014");
  close_side(&one);
}

static void software_events(void) {
  SUCCEEDS(open_adapter(&one));
  DAT_EVD_HANDLE evd = software_evd(4, DAT_HANDLE_NULL);
  for (uintptr_t i = 1; i <= 3; ++i) SUCCEEDS(post(evd, i));
  for (uintptr_t i = 1; i <= 3; ++i) CHECK(took(evd, i));
  shows("EVD-045 EVD-064 EVD-069 EVD-072 EVD-073 EVENT-003 EVENT-012 EVENT-013");
  EMPTY(evd);
  RETURNS(dat_evd_dequeue(evd, &(DAT_EVENT){0}), DAT_QUEUE_EMPTY, DAT_NO_SUBTYPE);
  shows("ERR-024 EVD-066");
  DAT_EVENT event = {.event_number = DAT_DTO_COMPLETION_EVENT};
  FAILS(dat_evd_post_se(evd, &event), DAT_INVALID_PARAMETER);
  FAILS(dat_evd_post_se(evd, NULL), DAT_INVALID_PARAMETER);
  shows("EVD-070");
  DAT_EVD_HANDLE other = DAT_HANDLE_NULL;
  SUCCEEDS(dat_evd_create(one.ia, 4, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &other));
  CHECK(post(other, 1) != DAT_SUCCESS);
  shows("EVD-071");
  FAILS(post(DAT_HANDLE_NULL, 1), DAT_INVALID_HANDLE);
  FAILS(dat_evd_dequeue(evd, NULL), DAT_INVALID_PARAMETER);

  // The evd is full: the event is refused, and the queued events are unchanged.
  uintptr_t in = 0;
  DAT_RETURN result = DAT_SUCCESS;
  while (in < 100000 && (result = post(evd, in + 1)) == DAT_SUCCESS) ++in;
  RETURNS(result, DAT_QUEUE_FULL, DAT_NO_SUBTYPE);
  CHECK(in >= 4);
  for (uintptr_t i = 1; i <= in; ++i) CHECK(took(evd, i));
  EMPTY(evd);
  shows("ERR-025");

  // Resizing keeps the queued events.
  for (uintptr_t i = 1; i <= 3; ++i) SUCCEEDS(post(evd, i));
  SUCCEEDS(dat_evd_resize(evd, 100));
  DAT_EVD_PARAM param = {0};
  SUCCEEDS(dat_evd_query(evd, DAT_EVD_FIELD_EVD_QLEN, &param));
  CHECK(param.evd_qlen >= 100);
  shows("EVD-036");
  FAILS(dat_evd_resize(evd, 0), DAT_INVALID_PARAMETER);
  FAILS(dat_evd_resize(evd, -5), DAT_INVALID_PARAMETER);
  shows("EVD-040");
  for (uintptr_t i = 1; i <= 3; ++i) CHECK(took(evd, i));
  EMPTY(evd);
  shows("EVD-037 EVD-042");
  SUCCEEDS(post(evd, 1));
  SUCCEEDS(dat_evd_free(evd)); // an event is queued
  shows("EVD-012 EVD-018");
  SUCCEEDS(dat_ia_close(one.ia, DAT_CLOSE_ABRUPT_FLAG));
}

static void waiting(void) {
  SUCCEEDS(open_adapter(&one));
  DAT_EVD_HANDLE evd = software_evd(8, DAT_HANDLE_NULL);
  DAT_EVENT event;
  DAT_COUNT more = -1;
  RETURNS(dat_evd_wait(evd, 0, 1, &event, &more), DAT_TIMEOUT_EXPIRED, DAT_NO_SUBTYPE);
  CHECK(more == 0);
  shows("EVD-052 ERR-026");
  RETURNS(dat_evd_wait(evd, 1000, 1, &event, &more), DAT_TIMEOUT_EXPIRED, DAT_NO_SUBTYPE);
  shows("EVD-050");
  SUCCEEDS(post(evd, 1));
  SUCCEEDS(post(evd, 2));
  RETURNS(dat_evd_wait(evd, 1000, 3, &event, &more), DAT_TIMEOUT_EXPIRED, DAT_NO_SUBTYPE);
  CHECK(more == 2);
  shows("EVD-051 EVD-054");
  SUCCEEDS(post(evd, 3));
  SUCCEEDS(dat_evd_wait(evd, 1000, 3, &event, &more));
  CHECK(event.event_data.software_event_data.pointer == (DAT_PVOID)1 && more == 2);
  shows("EVD-053 EVD-056 EVD-057");
  FAILS(dat_evd_wait(evd, 0, 0, &event, &more), DAT_INVALID_PARAMETER);
  FAILS(dat_evd_wait(evd, 0, -1, &event, &more), DAT_INVALID_PARAMETER);
  shows("EVD-047");
  FAILS(dat_evd_wait(evd, 0, INT32_MAX, &event, &more), DAT_INVALID_PARAMETER);
  shows("EVD-048");
  FAILS(dat_evd_wait(DAT_HANDLE_NULL, 0, 1, &event, &more), DAT_INVALID_HANDLE);
  FAILS(dat_evd_wait(evd, 0, 1, NULL, &more), DAT_INVALID_PARAMETER);
  shows("EVD-058");

  SUCCEEDS(dat_evd_set_unwaitable(evd));
  SUCCEEDS(dat_evd_set_unwaitable(evd));
  CHECK((evd_state(evd) & DAT_EVD_STATE_UNWAITABLE) && !(evd_state(evd) & DAT_EVD_STATE_WAITABLE));
  FAILS(dat_evd_wait(evd, 0, 1, &event, &more), DAT_INVALID_STATE);
  SUCCEEDS(post(evd, 4));
  CHECK(took(evd, 2));
  shows("EVD-034 EVD-065");
  SUCCEEDS(dat_evd_clear_unwaitable(evd));
  SUCCEEDS(dat_evd_clear_unwaitable(evd));
  CHECK((evd_state(evd) & DAT_EVD_STATE_WAITABLE) && !(evd_state(evd) & DAT_EVD_STATE_UNWAITABLE));
  SUCCEEDS(dat_evd_wait(evd, 0, 1, &event, &more));
  CHECK(event.event_data.software_event_data.pointer == (DAT_PVOID)3);
  shows("EVD-032");
  SUCCEEDS(dat_evd_disable(evd));
  SUCCEEDS(dat_evd_disable(evd));
  CHECK((evd_state(evd) & DAT_EVD_STATE_DISABLED) && !(evd_state(evd) & DAT_EVD_STATE_ENABLED));
  SUCCEEDS(post(evd, 5));
  SUCCEEDS(dat_evd_wait(evd, 0, 1, &event, &more)); // a waiter owns the evd, enabled or not
  SUCCEEDS(dat_evd_enable(evd));
  SUCCEEDS(dat_evd_enable(evd));
  CHECK((evd_state(evd) & DAT_EVD_STATE_ENABLED) && !(evd_state(evd) & DAT_EVD_STATE_DISABLED));
  shows("EVD-029 EVENT-080");
  FAILS(dat_evd_enable(DAT_HANDLE_NULL), DAT_INVALID_HANDLE);
  FAILS(dat_evd_disable(DAT_HANDLE_NULL), DAT_INVALID_HANDLE);
  FAILS(dat_evd_set_unwaitable(DAT_HANDLE_NULL), DAT_INVALID_HANDLE);
  FAILS(dat_evd_clear_unwaitable(DAT_HANDLE_NULL), DAT_INVALID_HANDLE);
  SUCCEEDS(dat_ia_close(one.ia, DAT_CLOSE_ABRUPT_FLAG));
}

static DAT_COUNT threshold;

static void* waits(void* evd) {
  DAT_EVENT event;
  DAT_COUNT more;
  return (void*)(uintptr_t)dat_evd_wait(evd, DAT_TIMEOUT_INFINITE, threshold, &event, &more);
}

static void until_waiting(DAT_EVD_HANDLE evd) {
  DAT_EVENT event;
  while ((dat_evd_dequeue(evd, &event) & DAT_TYPE_MASK) != DAT_INVALID_STATE) {
  }
}

static void waiters(void) {
  SUCCEEDS(open_adapter(&one));
  pthread_t thread;
  void* result = NULL;
  DAT_EVD_HANDLE evd = software_evd(8, DAT_HANDLE_NULL);
  threshold = 1;
  if (pthread_create(&thread, NULL, waits, evd) != 0) abort();
  until_waiting(evd);
  DAT_EVENT event;
  DAT_COUNT more;
  FAILS(dat_evd_wait(evd, 0, 1, &event, &more), DAT_INVALID_STATE); // a single waiter
  FAILS(dat_evd_free(evd), DAT_INVALID_STATE);
  shows("EVD-016");
  SUCCEEDS(post(evd, 1));
  pthread_join(thread, &result);
  CHECK(result == NULL);
  shows("EVD-060 EVENT-108");
  threshold = 2;
  if (pthread_create(&thread, NULL, waits, evd) != 0) abort();
  until_waiting(evd);
  SUCCEEDS(post(evd, 1));
  SUCCEEDS(post(evd, 2));
  pthread_join(thread, &result);
  CHECK(result == NULL && took(evd, 2));
  if (pthread_create(&thread, NULL, waits, evd) != 0) abort();
  until_waiting(evd);
  SUCCEEDS(dat_evd_set_unwaitable(evd));
  SUCCEEDS(dat_evd_clear_unwaitable(evd));
  pthread_join(thread, &result);
  CHECK(((DAT_RETURN)(uintptr_t)result & DAT_TYPE_MASK) == DAT_INVALID_STATE);
  shows("EVD-033 EVD-035");
  SUCCEEDS(dat_evd_free(evd));
  SUCCEEDS(dat_ia_close(one.ia, DAT_CLOSE_ABRUPT_FLAG));
}

const struct test_case event_cases[] = {
    {"an evd is created, queried and freed", creating_and_querying},
    {"software events go through an evd in order", software_events},
    {"waiting on an evd ends by events, time and state", waiting},
    {"a thread that waits on an evd is released", waiters},
    {NULL, NULL},
};

// ---- consumer notification objects -------------------------------------------------------------------------------

static void cnos(void) {
  SUCCEEDS(open_adapter(&one));
  DAT_CNO_HANDLE cno = DAT_HANDLE_NULL;
  DAT_EVD_HANDLE is = (DAT_EVD_HANDLE)1;
  SUCCEEDS(dat_cno_create(one.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
  DAT_CNO_PARAM param;
  memset(&param, 0x5a, sizeof param);
  SUCCEEDS(dat_cno_query(cno, DAT_CNO_FIELD_ALL, &param));
  CHECK(param.ia_handle == one.ia && param.proxy_type == DAT_PROXY_TYPE_NONE);
  shows("CNO-001 CNO-014 CNO-041");
  FAILS(dat_cno_query(cno, (DAT_CNO_PARAM_MASK)0x10, &param), DAT_INVALID_PARAMETER);
  FAILS(dat_cno_query(cno, DAT_CNO_FIELD_ALL, NULL), DAT_INVALID_PARAMETER);
  FAILS(dat_cno_query(DAT_HANDLE_NULL, DAT_CNO_FIELD_ALL, &param), DAT_INVALID_HANDLE);
  shows("CNO-042");
  FAILS(dat_cno_create(DAT_HANDLE_NULL, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno), DAT_INVALID_HANDLE);
  shows("CNO-016");
  RETURNS(dat_cno_wait(cno, 0, &is), DAT_QUEUE_EMPTY, DAT_NO_SUBTYPE);
  CHECK(is == DAT_HANDLE_NULL);
  RETURNS(dat_cno_wait(cno, 1000, &is), DAT_QUEUE_EMPTY, DAT_NO_SUBTYPE);
  shows("CNO-031 CNO-034");
  FAILS(dat_cno_wait(DAT_HANDLE_NULL, 0, &is), DAT_INVALID_HANDLE);
  FAILS(dat_cno_wait(cno, 0, NULL), DAT_INVALID_PARAMETER);

  DAT_EVD_HANDLE evd = software_evd(8, cno);
  SUCCEEDS(post(evd, 1));
  SUCCEEDS(dat_cno_wait(cno, ample, &is));
  CHECK(is == evd);
  shows("CNO-003 CNO-006 CNO-029");
  FAILS(dat_cno_wait(cno, 0, &is), DAT_QUEUE_EMPTY);
  shows("CNO-030");
  CHECK(took(evd, 1));
  SUCCEEDS(dat_evd_disable(evd));
  SUCCEEDS(post(evd, 2));
  FAILS(dat_cno_wait(cno, 0, &is), DAT_QUEUE_EMPTY);
  CHECK(took(evd, 2));
  shows("CNO-008 EVD-031");
  SUCCEEDS(dat_evd_enable(evd));
  SUCCEEDS(post(evd, 3));
  SUCCEEDS(dat_cno_trigger(cno, &is));
  CHECK(is == evd);
  shows("CNO-036");
  SUCCEEDS(dat_cno_wait(cno, ample, &is));
  CHECK(is == evd && took(evd, 3));
  // Two evds.
  DAT_EVD_HANDLE second = software_evd(8, cno);
  SUCCEEDS(post(second, 4));
  SUCCEEDS(dat_cno_wait(cno, ample, &is));
  CHECK(is == second && took(second, 4));
  shows("CNO-009");
  SUCCEEDS(dat_evd_free(second));
  SUCCEEDS(dat_evd_free(evd));
  SUCCEEDS(dat_cno_free(cno));
  SUCCEEDS(dat_ia_close(one.ia, DAT_CLOSE_GRACEFUL_FLAG));
}

static void descriptors(void) {
  SUCCEEDS(open_adapter(&one));
  DAT_CNO_HANDLE cno = DAT_HANDLE_NULL;
  DAT_FD fd = -1;
  SUCCEEDS(dat_cno_fd_create(one.ia, &fd, &cno));
  CHECK(fd >= 0);
  DAT_CNO_PARAM param;
  SUCCEEDS(dat_cno_query(cno, DAT_CNO_FIELD_ALL, &param));
  CHECK(param.proxy_type == DAT_PROXY_TYPE_FD && param.proxy.fd == fd && param.ia_handle == one.ia);
  shows("CNO-017");
  FAILS(dat_cno_fd_create(DAT_HANDLE_NULL, &fd, &cno), DAT_INVALID_HANDLE);
  FAILS(dat_cno_fd_create(one.ia, NULL, &cno), DAT_INVALID_PARAMETER);
  shows("CNO-018");
  DAT_EVD_HANDLE evd = software_evd(8, cno), is = DAT_HANDLE_NULL;
  struct pollfd wait = {.fd = fd, .events = POLLIN};
  CHECK(poll(&wait, 1, 0) == 0);
  SUCCEEDS(post(evd, 1));
  CHECK(poll(&wait, 1, ample / 1000) == 1 && (wait.revents & POLLIN));
  SUCCEEDS(dat_cno_trigger(cno, &is));
  CHECK(is == evd && took(evd, 1));
  shows("CNO-019 CNO-046");
  SUCCEEDS(dat_cno_wait(cno, ample, &is));
  CHECK(is == evd && poll(&wait, 1, 0) == 0);
  SUCCEEDS(dat_evd_free(evd));
  SUCCEEDS(dat_cno_free(cno));
  SUCCEEDS(dat_ia_close(one.ia, DAT_CLOSE_GRACEFUL_FLAG));
}

static pthread_mutex_t told = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;
static int calls;
static DAT_EVD_HANDLE called_with;
static DAT_PVOID called_for;

static void agent(DAT_PVOID data, DAT_EVD_HANDLE evd) {
  pthread_mutex_lock(&told);
  ++calls;
  called_with = evd;
  called_for = data;
  pthread_cond_signal(&news);
  pthread_mutex_unlock(&told);
}

static void until_called(int times) {
  pthread_mutex_lock(&told);
  while (calls < times) pthread_cond_wait(&news, &told);
  pthread_mutex_unlock(&told);
}

static void agents(void) {
  SUCCEEDS(open_adapter(&one));
  DAT_CNO_HANDLE cno = DAT_HANDLE_NULL;
  int data = 0;
  const DAT_OS_WAIT_PROXY_AGENT mine = {&data, agent};
  calls = 0;
  SUCCEEDS(dat_cno_create(one.ia, mine, &cno));
  DAT_CNO_PARAM param;
  SUCCEEDS(dat_cno_query(cno, DAT_CNO_FIELD_ALL, &param));
  CHECK(param.proxy_type == DAT_PROXY_TYPE_AGENT && param.proxy.agent.proxy_agent_func == agent &&
        param.proxy.agent.instance_data == &data);
  DAT_EVD_HANDLE evd = software_evd(8, cno), is = DAT_HANDLE_NULL;
  SUCCEEDS(post(evd, 1));
  until_called(1);
  CHECK(called_with == evd && called_for == &data && took(evd, 1));
  shows("CNO-015 CNO-043 CNO-047");
  SUCCEEDS(dat_cno_wait(cno, ample, &is)); // the waiter gets the trigger, too
  CHECK(is == evd);
  shows("CNO-007");
  SUCCEEDS(dat_cno_query(cno, DAT_CNO_FIELD_ALL, &param));
  CHECK(param.proxy_type == DAT_PROXY_TYPE_NONE);
  SUCCEEDS(post(evd, 2));
  SUCCEEDS(dat_cno_wait(cno, ample, &is));
  CHECK(took(evd, 2) && calls == 1);
  shows("CNO-045");
  SUCCEEDS(dat_cno_modify_agent(cno, mine));
  SUCCEEDS(post(evd, 3));
  until_called(2);
  CHECK(took(evd, 3));
  shows("CNO-037 CNO-038");
  SUCCEEDS(dat_cno_modify_agent(cno, mine));
  SUCCEEDS(dat_cno_modify_agent(cno, DAT_OS_WAIT_PROXY_AGENT_NULL));
  FAILS(dat_cno_modify_agent(DAT_HANDLE_NULL, mine), DAT_INVALID_HANDLE);
  shows("CNO-040");
  // The end of the adapter calls the agent once, with no evd.
  SUCCEEDS(dat_cno_modify_agent(cno, mine));
  const int before = calls;
  SUCCEEDS(dat_ia_close(one.ia, DAT_CLOSE_ABRUPT_FLAG));
  until_called(before + 1);
  CHECK(calls == before + 1 && called_with == DAT_HANDLE_NULL);
  shows("CNO-048 IA-032");
}

const struct test_case cno_cases[] = {
    {"a cno is triggered by its evds", cnos},
    {"a cno has a descriptor to poll", descriptors},
    {"an agent is called once for each time it is set", agents},
    {NULL, NULL},
};
