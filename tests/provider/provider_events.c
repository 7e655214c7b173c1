// Event dispatchers and consumer notification objects.
// SPDX-License-Identifier: BSL-1.0
#include "provider_test.h"

void events(void) {
  DAT_EVENT e = {0}, taken;
  DAT_COUNT more;
  DAT_CNO_HANDLE cno;
  DAT_EVD_HANDLE which;
  DAT_CNO_PARAM param;
  DAT_OS_WAIT_PROXY_AGENT none = {NULL, NULL};
  // Returns the number without the class of an error on evds of completions: programs that were written on OFA's
  // provider compare the whole word. On other evds the number has the class of an error.
  CHECK(dat_evd_dequeue(a.evd, &taken) == DAT_QUEUE_EMPTY);
  for (unsigned stream = 0x1; stream <= DAT_EVD_ASYNC_FLAG; stream <<= 1) {
    const int completions = stream == DAT_EVD_DTO_FLAG || stream == DAT_EVD_RMR_BIND_FLAG;
    if ((all_streams & stream) == 0) continue;
    DAT_EVD_HANDLE one_stream;
    SUCCEEDS(dat_evd_create(a.ia, 4, DAT_HANDLE_NULL, (DAT_EVD_FLAGS)stream, &one_stream));
    CHECK(dat_evd_dequeue(one_stream, &taken) == (completions ? 0 : DAT_CLASS_ERROR) + DAT_QUEUE_EMPTY);
    SUCCEEDS(dat_evd_free(one_stream));
  }
  RETURNS(dat_evd_dequeue(a.evd, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_evd_wait(a.evd, 0, 0, &taken, &more), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_evd_wait(a.evd, 0, 100000, &taken, &more), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_evd_wait(a.evd, 0, 1, NULL, &more), DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
  RETURNS(dat_evd_wait(a.evd, 0, 1, &taken, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
  RETURNS(dat_evd_wait(a.evd, 0, 1, &taken, &more), DAT_TIMEOUT_EXPIRED, 0);
  RETURNS(dat_evd_post_se(a.evd, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_evd_post_se(a.evd, &e), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  e.event_number = DAT_SOFTWARE_EVENT;
  for (uintptr_t i = 1; i != 4; ++i) {
    e.event_data.software_event_data.pointer = (DAT_PVOID)i;
    SUCCEEDS(dat_evd_post_se(a.evd, &e));
  }
  RETURNS(dat_evd_wait(a.evd, 0, 4, &taken, &more), DAT_TIMEOUT_EXPIRED, 0);
  CHECK(more == 3);
  SUCCEEDS(dat_evd_wait(a.evd, 0, 3, &taken, &more));
  CHECK(more == 2 && taken.event_data.software_event_data.pointer == (DAT_PVOID)1);
  SUCCEEDS(dat_evd_dequeue(a.evd, &taken));
  SUCCEEDS(dat_evd_dequeue(a.evd, &taken));
  RETURNS(dat_evd_resize(a.evd, 0), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  SUCCEEDS(dat_evd_resize(a.evd, 128));
  SUCCEEDS(dat_evd_set_unwaitable(a.evd));
  RETURNS(dat_evd_wait(a.evd, 0, 1, &taken, &more), DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_UNWAITABLE);
  SUCCEEDS(dat_evd_clear_unwaitable(a.evd));

  SUCCEEDS(dat_cno_create(a.ia, none, &cno));
  RETURNS(dat_cno_trigger(cno, &which), DAT_QUEUE_EMPTY, 0);
  RETURNS(dat_evd_modify_cno(a.evd, a.pz), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO);
  SUCCEEDS(dat_evd_modify_cno(a.evd, cno));
  RETURNS(dat_cno_free(cno), DAT_INVALID_STATE, DAT_INVALID_STATE_CNO_IN_USE);
  RETURNS(dat_cno_wait(cno, 0, &which), DAT_QUEUE_EMPTY, 0);
  RETURNS(dat_cno_wait(cno, 0, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_cno_trigger(cno, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  SUCCEEDS(dat_evd_disable(a.evd));
  SUCCEEDS(dat_evd_enable(a.evd));
  SUCCEEDS(dat_evd_post_se(a.evd, &e));
  SUCCEEDS(dat_cno_wait(cno, PLENTY, &which));
  CHECK(which == a.evd);
  SUCCEEDS(dat_evd_dequeue(a.evd, &taken));
  SUCCEEDS(dat_cno_query(cno, DAT_CNO_FIELD_ALL, &param));
  CHECK(param.ia_handle == a.ia && param.proxy_type == DAT_PROXY_TYPE_NONE);
  RETURNS(dat_cno_query(cno, (DAT_CNO_PARAM_MASK)0x10, &param), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_cno_query(cno, DAT_CNO_FIELD_ALL, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  none.instance_data = &none;
  RETURNS(dat_cno_modify_agent(cno, none), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  SUCCEEDS(dat_evd_modify_cno(a.evd, DAT_HANDLE_NULL));
  SUCCEEDS(dat_cno_free(cno));
}
