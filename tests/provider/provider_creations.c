// The calls that create objects, with each argument wrong in turn.
// SPDX-License-Identifier: BSL-1.0
#include "provider_test.h"

void wrong_creations(void) {
  DAT_EP_ATTR attributes = usual_attributes();
  DAT_EVD_HANDLE evd, only_dto;
  DAT_HANDLE h;
  DAT_REGION_DESCRIPTION region;
  DAT_OS_WAIT_PROXY_AGENT agent = {NULL, NULL};
  DAT_SRQ_ATTR queue = {16, 1, 0};
  DAT_COMM comm = {AF_INET, SOCK_STREAM, 0}, odd = {AF_UNIX, SOCK_DGRAM, 5};
  DAT_CONN_QUAL qual = 0;
  DAT_FD fd;
  region.for_va = a.memory;
  RETURNS(dat_evd_create(a.ia, 0, NULL, DAT_EVD_DTO_FLAG, &evd), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_evd_create(a.ia, -5, NULL, DAT_EVD_DTO_FLAG, &evd), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_evd_create(a.ia, 0x7fffffff, NULL, DAT_EVD_DTO_FLAG, &evd), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_evd_create(a.ia, 8, a.pz, DAT_EVD_DTO_FLAG, &evd), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO);
  RETURNS(dat_evd_create(a.ia, 8, NULL, (DAT_EVD_FLAGS)0, &evd), DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
  RETURNS(dat_evd_create(a.ia, 8, NULL, (DAT_EVD_FLAGS)0x8000, &evd), DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
  RETURNS(dat_evd_create(a.ia, 8, NULL, DAT_EVD_DTO_FLAG, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
  SUCCEEDS(dat_evd_create(a.ia, 8, NULL, DAT_EVD_DTO_FLAG, &only_dto));
  RETURNS(dat_ep_create(a.ia, b.pz, a.evd, a.evd, a.evd, &attributes, &h), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ);
  RETURNS(dat_ep_create(a.ia, a.pz, b.evd, a.evd, a.evd, &attributes, &h), DAT_INVALID_HANDLE,
          DAT_INVALID_HANDLE_EVD_RECV);
  RETURNS(dat_ep_create(a.ia, a.pz, a.evd, a.pz, a.evd, &attributes, &h), DAT_INVALID_HANDLE,
          DAT_INVALID_HANDLE_EVD_REQUEST);
  RETURNS(dat_ep_create(a.ia, a.pz, a.evd, a.evd, only_dto, &attributes, &h), DAT_INVALID_HANDLE,
          DAT_INVALID_HANDLE_EVD_CONN);
  // Connection events can go to the evd of another ia of the adapter, as dapltest has it; completions cannot.
  struct side again;
  open_side(&again, "dat-a");
  RETURNS(dat_ep_create(a.ia, a.pz, a.evd, a.evd, b.evd, &attributes, &h), DAT_INVALID_HANDLE,
          DAT_INVALID_HANDLE_EVD_CONN);
  RETURNS(dat_ep_create(a.ia, a.pz, a.evd, again.evd, a.evd, &attributes, &h), DAT_INVALID_HANDLE,
          DAT_INVALID_HANDLE_EVD_REQUEST);
  SUCCEEDS(dat_ep_create(a.ia, a.pz, a.evd, a.evd, again.evd, &attributes, &h));
  RETURNS(dat_evd_free(again.evd), DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_IN_USE);
  SUCCEEDS(dat_ep_free(h));
  SUCCEEDS(dat_ia_close(again.ia, DAT_CLOSE_ABRUPT_FLAG));
  RETURNS(dat_ep_create(a.ia, a.pz, a.evd, a.evd, a.evd, &attributes, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG7);
  attributes.qos = (DAT_QOS)0x70;
  RETURNS(dat_ep_create(a.ia, a.pz, a.evd, a.evd, a.evd, &attributes, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
  attributes = usual_attributes();
  attributes.service_type = (DAT_SERVICE_TYPE)9;
  RETURNS(dat_ep_create(a.ia, a.pz, a.evd, a.evd, a.evd, &attributes, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
  attributes = usual_attributes();
  attributes.max_recv_dtos = -3;
  RETURNS(dat_ep_create(a.ia, a.pz, a.evd, a.evd, a.evd, &attributes, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
  attributes = usual_attributes();
  attributes.recv_completion_flags = (DAT_COMPLETION_FLAGS)0x400;
  RETURNS(dat_ep_create(a.ia, a.pz, a.evd, a.evd, a.evd, &attributes, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
  attributes = usual_attributes();
  attributes.ep_transport_specific_count = 1;
  RETURNS(dat_ep_create(a.ia, a.pz, a.evd, a.evd, a.evd, &attributes, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
  RETURNS(dat_ep_create_with_srq(a.ia, a.pz, a.evd, a.evd, a.evd, a.pz, &attributes, &h), DAT_INVALID_HANDLE,
          DAT_INVALID_HANDLE_SRQ);
  SUCCEEDS(dat_evd_free(only_dto));
  RETURNS(dat_evd_free(only_dto), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1);
  RETURNS(dat_evd_free(a.evd), DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_IN_USE);
  RETURNS(dat_evd_free(a.async_evd), DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_IN_USE);

  RETURNS(dat_pz_create(a.ia, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_lmr_create(a.ia, (DAT_MEM_TYPE)9, region, 8, a.pz, 0, DAT_VA_TYPE_VA, &h, NULL, NULL, NULL, NULL),
          DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_lmr_create(a.ia, DAT_MEM_TYPE_VIRTUAL, region, 0, a.pz, 0, DAT_VA_TYPE_VA, &h, NULL, NULL, NULL, NULL),
          DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_lmr_create(a.ia, DAT_MEM_TYPE_VIRTUAL, region, 8, b.pz, 0, DAT_VA_TYPE_VA, &h, NULL, NULL, NULL, NULL),
          DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ);
  RETURNS(dat_lmr_create(a.ia, DAT_MEM_TYPE_VIRTUAL, region, 8, a.pz, (DAT_MEM_PRIV_FLAGS)0x100, DAT_VA_TYPE_VA, &h,
                         NULL, NULL, NULL, NULL),
          DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
  RETURNS(dat_lmr_create(a.ia, DAT_MEM_TYPE_VIRTUAL, region, 8, a.pz, 0, (DAT_VA_TYPE)7, &h, NULL, NULL, NULL, NULL),
          DAT_INVALID_PARAMETER, DAT_INVALID_ARG7);
  RETURNS(dat_lmr_create(a.ia, DAT_MEM_TYPE_VIRTUAL, region, 8, a.pz, 0, DAT_VA_TYPE_VA, NULL, NULL, NULL, NULL, NULL),
          DAT_INVALID_PARAMETER, DAT_INVALID_ARG8);
  region.for_va = NULL;
  RETURNS(dat_lmr_create(a.ia, DAT_MEM_TYPE_VIRTUAL, region, 8, a.pz, 0, DAT_VA_TYPE_VA, &h, NULL, NULL, NULL, NULL),
          DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  region.for_lmr_handle = a.pz;
  RETURNS(dat_lmr_create(a.ia, DAT_MEM_TYPE_LMR, region, 8, a.pz, 0, DAT_VA_TYPE_VA, &h, NULL, NULL, NULL, NULL),
          DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_LMR);
  memset(&region, 0, sizeof region);
  RETURNS(
      dat_lmr_create(a.ia, DAT_MEM_TYPE_SHARED_VIRTUAL, region, 8, a.pz, 0, DAT_VA_TYPE_VA, &h, NULL, NULL, NULL, NULL),
      DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_rmr_create(a.pz, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);

  RETURNS(dat_psp_create(a.ia, 0, a.evd, DAT_PSP_CONSUMER_FLAG, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_psp_create(a.ia, 1ull << 40, a.evd, DAT_PSP_CONSUMER_FLAG, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_psp_create(a.ia, 9000, a.async_evd, DAT_PSP_CONSUMER_FLAG, &h), DAT_INVALID_HANDLE,
          DAT_INVALID_HANDLE_EVD_CR);
  RETURNS(dat_psp_create(a.ia, 9000, NULL, DAT_PSP_CONSUMER_FLAG, &h), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_CR);
  RETURNS(dat_psp_create(a.ia, 9000, a.evd, (DAT_PSP_FLAGS)5, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
  RETURNS(dat_psp_create(a.ia, 9000, a.evd, DAT_PSP_CONSUMER_FLAG, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
  RETURNS(dat_psp_create_any(a.ia, NULL, a.evd, DAT_PSP_CONSUMER_FLAG, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  SUCCEEDS(dat_psp_create(a.ia, 0x50000 + 9001, a.evd, DAT_PSP_CONSUMER_FLAG, &h)); // like OFA's programs
  RETURNS(dat_psp_create(a.ia, 9001, a.evd, DAT_PSP_CONSUMER_FLAG, &h), DAT_CONN_QUAL_IN_USE, 0);
  SUCCEEDS(dat_psp_free(h));
  SUCCEEDS(dat_psp_create_any(a.ia, &qual, a.evd, DAT_PSP_PROVIDER_FLAG, &h));
  CHECK(qual != 0);
  RETURNS(dat_psp_free(a.pz), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PSP);
  SUCCEEDS(dat_psp_free(h));
  RETURNS(dat_rsp_create(a.ia, 9000, a.pz, a.evd, &h), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
  RETURNS(dat_rsp_create(a.ia, 0, NULL, a.evd, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_rsp_create(a.ia, 9000, NULL, a.pz, &h), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_CR);
  RETURNS(dat_rsp_create(a.ia, 9000, NULL, a.evd, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
  RETURNS(dat_csp_create(a.ia, NULL, NULL, a.evd, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_csp_create(a.ia, &odd, NULL, a.evd, &h), DAT_COMM_NOT_SUPPORTED, 0);
  RETURNS(dat_csp_create(a.ia, &comm, NULL, a.ep, &h), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_CR);
  RETURNS(dat_csp_create(a.ia, &comm, NULL, a.evd, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
  SUCCEEDS(dat_csp_create(a.ia, &comm, NULL, a.evd, &h));
  SUCCEEDS(dat_csp_free(h));
  RETURNS(dat_srq_create(a.ia, b.pz, &queue, &h), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ);
  RETURNS(dat_srq_create(a.ia, a.pz, NULL, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_srq_create(a.ia, a.pz, &queue, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
  queue.max_recv_dtos = 0;
  RETURNS(dat_srq_create(a.ia, a.pz, &queue, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  RETURNS(dat_cno_create(a.ia, agent, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
  agent.instance_data = &agent;
  RETURNS(dat_cno_create(a.ia, agent, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_cno_fd_create(a.ia, NULL, &h), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
  RETURNS(dat_cno_fd_create(a.ia, &fd, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
}
