// Adapters, the registry's list, protection zones, and the context of an object.
// SPDX-License-Identifier: BSL-1.0
#include "rules.h"

static DAT_IA_ATTR ia_attr;
static DAT_PROVIDER_ATTR provider_attr;

static void opening(void) {
  DAT_IA_HANDLE ia = DAT_HANDLE_NULL;
  DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
  char none[] = "no such adapter", empty[] = "";
  FAILS(dat_ia_open(none, 8, &evd, &ia), DAT_PROVIDER_NOT_FOUND);
  CHECK(ia == DAT_HANDLE_NULL && evd == DAT_HANDLE_NULL);
  RETURNS(dat_ia_open(none, 8, &evd, &ia), DAT_NAME_NOT_FOUND, DAT_NAME_NOT_REGISTERED);
  shows("IA-003 ERR-022 IA-016 REG-020 REG-026");
  RETURNS(dat_ia_openv(one.name, 8, &evd, &ia, 9, 0, DAT_FALSE), DAT_PROVIDER_NOT_FOUND, DAT_MAJOR_NOT_FOUND);
  RETURNS(dat_ia_openv(one.name, 8, &evd, &ia, 2, 9, DAT_FALSE), DAT_PROVIDER_NOT_FOUND, DAT_MINOR_NOT_FOUND);
  shows("IA-017 VER-005 ERR-037");
  FAILS(dat_ia_open(NULL, 8, &evd, &ia), DAT_INVALID_PARAMETER);
  FAILS(dat_ia_open(empty, 8, &evd, &ia), DAT_INVALID_PARAMETER);
  char longest[DAT_NAME_MAX_LENGTH + 1];
  memset(longest, 'n', DAT_NAME_MAX_LENGTH);
  longest[DAT_NAME_MAX_LENGTH] = 0;
  FAILS(dat_ia_open(longest, 8, &evd, &ia), DAT_INVALID_PARAMETER);
  shows("IA-004");

  SUCCEEDS(open_adapter(&one));
  CHECK(one.async_evd != DAT_HANDLE_NULL && one.ia != DAT_HANDLE_NULL);
  DAT_EVD_PARAM param;
  memset(&param, 0, sizeof param);
  SUCCEEDS(dat_evd_query(one.async_evd, DAT_EVD_FIELD_ALL, &param));
  CHECK(param.evd_qlen >= 8 && param.ia_handle == one.ia);
  shows("IA-005");
  CHECK(param.cno_handle == DAT_HANDLE_NULL);
  shows("IA-007");
  CHECK(param.evd_flags & DAT_EVD_ASYNC_FLAG);
  CHECK((param.evd_state & DAT_EVD_STATE_ENABLED) && (param.evd_state & DAT_EVD_STATE_WAITABLE));
  shows("IA-008 EVD-007 EVENT-082");
  SUCCEEDS(dat_evd_resize(one.async_evd, 32));
  shows("EVD-044");

  // A second instance of the same adapter, whose async evd is another one.
  struct side second = one;
  SUCCEEDS(open_adapter(&second));
  CHECK(second.ia != one.ia && second.async_evd != one.async_evd);
  shows("IA-001");
  SUCCEEDS(dat_pz_create(one.ia, &one.pz));
  SUCCEEDS(dat_ia_close(second.ia, DAT_CLOSE_GRACEFUL_FLAG));
  DAT_PZ_PARAM pz;
  SUCCEEDS(dat_pz_query(one.pz, DAT_PZ_FIELD_ALL, &pz)); // the first instance still works
  shows("IA-046");
  FAILS(dat_pz_create(second.ia, &second.pz), DAT_INVALID_HANDLE);
  FAILS(dat_ia_close(second.ia, DAT_CLOSE_GRACEFUL_FLAG), DAT_INVALID_HANDLE);
  shows("IA-037 ERR-017 REG-021");

  // A graceful close is refused while an object is left, and has no effect then. The async evd does not count.
  RETURNS(dat_ia_close(one.ia, DAT_CLOSE_GRACEFUL_FLAG), DAT_INVALID_STATE, DAT_INVALID_STATE_IA_IN_USE);
  SUCCEEDS(dat_pz_query(one.pz, DAT_PZ_FIELD_ALL, &pz));
  SUCCEEDS(dat_pz_free(one.pz));
  FAILS(dat_ia_close(one.ia, (DAT_CLOSE_FLAGS)7), DAT_INVALID_PARAMETER);
  shows("IA-042");
  SUCCEEDS(dat_ia_close(one.ia, DAT_CLOSE_GRACEFUL_FLAG));
  shows("IA-034 IA-035 EVD-019");
}

static void async_evds(void) {
  SUCCEEDS(open_adapter(&one));
  struct side second = one;
  second.async_evd = one.async_evd;
  SUCCEEDS(dat_ia_open(second.name, 8, &second.async_evd, &second.ia));
  CHECK(second.async_evd == one.async_evd);
  DAT_EVD_HANDLE is = DAT_HANDLE_NULL;
  SUCCEEDS(dat_ia_query(second.ia, &is, DAT_IA_FIELD_NONE, NULL, DAT_PROVIDER_FIELD_NONE, NULL));
  CHECK(is == one.async_evd);
  shows("IA-009 IA-140 IA-142");
  SUCCEEDS(dat_ia_close(second.ia, DAT_CLOSE_ABRUPT_FLAG));
  DAT_EVD_PARAM param;
  SUCCEEDS(dat_evd_query(one.async_evd, DAT_EVD_FIELD_ALL, &param)); // the evd that was passed in still exists
  second.async_evd = DAT_EVD_ASYNC_EXISTS;
  SUCCEEDS(dat_ia_open(second.name, 8, &second.async_evd, &second.ia));
  SUCCEEDS(dat_ia_query(second.ia, &is, DAT_IA_FIELD_NONE, NULL, DAT_PROVIDER_FIELD_NONE, NULL));
  CHECK(is == DAT_EVD_OUT_OF_SCOPE);
  shows("IA-012");
  SUCCEEDS(dat_ia_close(second.ia, DAT_CLOSE_ABRUPT_FLAG));
  SUCCEEDS(dat_ia_close(one.ia, DAT_CLOSE_ABRUPT_FLAG));
}

static void adapter_attributes(void) {
  SUCCEEDS(open_adapter(&one));
  memset(&ia_attr, 0x5a, sizeof ia_attr);
  SUCCEEDS(dat_ia_query(one.ia, NULL, DAT_IA_FIELD_ALL, &ia_attr, DAT_PROVIDER_FIELD_NONE, NULL));
  CHECK(memchr(ia_attr.adapter_name, 0, DAT_NAME_MAX_LENGTH) && memchr(ia_attr.vendor_name, 0, DAT_NAME_MAX_LENGTH));
  shows("IA-141 IA-146");
  CHECK(strcmp(ia_attr.adapter_name, one.name) == 0);
  shows("IA-072 REG-018");
  CHECK(ia_attr.ia_address_ptr && ia_attr.ia_address_ptr->sa_family == AF_INET);
  CHECK(((struct sockaddr_in*)ia_attr.ia_address_ptr)->sin_addr.s_addr == one.address.sin_addr.s_addr);
  shows("IA-076 ADDR-002 IA-019");
  CHECK(ia_attr.max_eps > 0);
  shows("IA-077");
  CHECK(ia_attr.max_dto_per_ep > 0);
  shows("IA-078");
  CHECK(ia_attr.max_rdma_read_per_ep_in > 0 && ia_attr.max_rdma_read_per_ep_out > 0);
  shows("IA-079 IA-080");
  CHECK(ia_attr.max_evds > 0);
  shows("IA-081");
  CHECK(ia_attr.max_evd_qlen > 0);
  shows("IA-082");
  CHECK(ia_attr.max_iov_segments_per_dto > 1 && ia_attr.max_iov_segments_per_rdma_read > 1 &&
        ia_attr.max_iov_segments_per_rdma_write > 1);
  shows("IA-083 IA-095 IA-096 DTO-012");
  CHECK(ia_attr.max_lmrs > 0 && ia_attr.max_lmr_block_size > 0 && ia_attr.max_lmr_virtual_address > 0);
  shows("IA-084 IA-085 IA-086");
  CHECK(ia_attr.max_pzs > 0);
  shows("IA-087");
  CHECK(ia_attr.max_message_size >= 65536 && ia_attr.max_rdma_size >= 65536);
  shows("IA-088 IA-089");
  CHECK(ia_attr.max_srqs > 0 && ia_attr.max_ep_per_srq > 0 && ia_attr.max_recv_per_srq > 0);
  shows("IA-092 IA-093 IA-094 SRQ-003");
  CHECK(ia_attr.max_rdma_read_in > 0 && ia_attr.max_rdma_read_out > 0);
  shows("IA-097 IA-098");
  CHECK(ia_attr.max_rdma_read_per_ep_in_guaranteed == DAT_FALSE ||
        ia_attr.max_rdma_read_per_ep_in_guaranteed == DAT_TRUE);
  CHECK(ia_attr.extension_supported == DAT_EXTENSION_IB && ia_attr.extension_version > 0);
  shows("IA-102 IA-103");
  CHECK(ia_attr.num_transport_attr >= 0 && (ia_attr.num_transport_attr == 0 || ia_attr.transport_attr));
  CHECK(ia_attr.num_vendor_attr >= 0 && (ia_attr.num_vendor_attr == 0 || ia_attr.vendor_attr));
  for (int i = 0; i < ia_attr.num_transport_attr; ++i)
    CHECK(ia_attr.transport_attr[i].name && ia_attr.transport_attr[i].value);
  for (int i = 0; i < ia_attr.num_vendor_attr; ++i) CHECK(ia_attr.vendor_attr[i].name && ia_attr.vendor_attr[i].value);
  shows("IA-104 IA-105");
  FAILS(dat_ia_query(one.ia, NULL, BEYOND(DAT_IA_FIELD_ALL), &ia_attr, 0, NULL), DAT_INVALID_PARAMETER);
  FAILS(dat_ia_query(one.ia, NULL, DAT_IA_FIELD_ALL, NULL, 0, NULL), DAT_INVALID_PARAMETER);
  FAILS(dat_ia_query(one.ia, NULL, 0, NULL, BEYOND(DAT_PROVIDER_FIELD_ALL), &provider_attr), DAT_INVALID_PARAMETER);
  FAILS(dat_ia_query(one.ia, NULL, 0, NULL, DAT_PROVIDER_FIELD_ALL, NULL), DAT_INVALID_PARAMETER);
  shows("IA-143");
  FAILS(dat_ia_query(DAT_HANDLE_NULL, NULL, 0, NULL, 0, NULL), DAT_INVALID_HANDLE);
  shows("IA-144");
  // A reported value is a limit.
  DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
  FAILS(dat_evd_create(one.ia, INT32_MAX, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &evd), DAT_INVALID_PARAMETER);
  shows("IA-108 EVD-003");
  SUCCEEDS(dat_ia_close(one.ia, DAT_CLOSE_ABRUPT_FLAG));
}

static void provider_attributes(void) {
  const DAT_PROVIDER_ATTR* p = &provider_attr;
  SUCCEEDS(open_adapter(&one));
  memset(&provider_attr, 0x5a, sizeof provider_attr);
  SUCCEEDS(dat_ia_query(one.ia, NULL, DAT_IA_FIELD_NONE, NULL, DAT_PROVIDER_FIELD_ALL, &provider_attr));
  CHECK(memchr(p->provider_name, 0, DAT_NAME_MAX_LENGTH) && p->provider_name[0]);
  shows("IA-111");
  CHECK(p->provider_version_major < 1000 && p->provider_version_minor < 1000);
  shows("IA-112");
  CHECK(p->dapl_version_major == 2 && p->dapl_version_minor == 0);
  shows("IA-113");
  CHECK((p->lmr_mem_types_supported & (DAT_MEM_TYPE_LMR | DAT_MEM_TYPE_SHARED_VIRTUAL)) ==
        (DAT_MEM_TYPE_LMR | DAT_MEM_TYPE_SHARED_VIRTUAL));
  shows("IA-114 LMR-012");
  CHECK(p->iov_ownership_on_return == DAT_IOV_CONSUMER);
  shows("IA-115 DTO-007");
  CHECK(p->dat_qos_supported < 16);
  shows("IA-116");
  CHECK((p->completion_flags_supported & 0xf) == 0xf);
  shows("IA-117");
  CHECK(p->is_thread_safe == DAT_TRUE || p->is_thread_safe == DAT_FALSE);
  CHECK(p->max_private_data_size > 0);
  CHECK(p->supports_multipath == DAT_FALSE);
  shows("IA-120");
  CHECK(p->ep_creator == DAT_PSP_CREATES_EP_IFASKED);
  shows("IA-121 PSP-015 EPS-032");
  CHECK(p->pz_support == DAT_PZ_UNIQUE || p->pz_support == DAT_PZ_SHAREABLE);
  shows("IA-122 PZ-014");
  CHECK(p->optimal_buffer_alignment > 0 && DAT_OPTIMAL_ALIGNMENT % p->optimal_buffer_alignment == 0);
  shows("IA-123 DTO-011");
  for (int i = 0; i < 6; ++i) {
    CHECK(p->evd_stream_merging_supported[i][i] == DAT_TRUE);
    for (int j = 0; j < 6; ++j) CHECK(p->evd_stream_merging_supported[i][j] == p->evd_stream_merging_supported[j][i]);
  }
  shows("IA-124 EVENT-021 IA-147");
  CHECK(p->srq_supported == DAT_TRUE);
  shows("IA-125");
  CHECK((p->srq_watermarks_supported & ~0x111) == 0);
  shows("IA-126");
  CHECK(p->srq_ep_pz_difference_supported == DAT_TRUE || p->srq_ep_pz_difference_supported == DAT_FALSE);
  shows("IA-127");
  CHECK((p->srq_info_supported & ~0x11) == 0 && (p->ep_recv_info_supported & ~0x11) == 0);
  shows("IA-128 IA-129");
  CHECK(p->lmr_sync_req == DAT_FALSE);
  shows("IA-130");
  CHECK(p->rdma_write_for_rdma_read_req == DAT_FALSE);
  shows("IA-132");
  CHECK(p->rmr_scope_supported == DAT_RMR_SCOPE_EP || p->rmr_scope_supported == DAT_RMR_SCOPE_PZ ||
        p->rmr_scope_supported == DAT_RMR_SCOPE_ANY);
  shows("IA-134");
  CHECK(p->is_signal_safe == DAT_FALSE || p->is_signal_safe == DAT_TRUE);
  CHECK(p->ha_supported == DAT_FALSE && p->ha_loadbalancing == DAT_HA_LB_NONE);
  shows("IA-136 IA-137");
  CHECK(p->num_provider_specific_attr >= 0 && (p->num_provider_specific_attr == 0 || p->provider_specific_attr));
  for (int i = 0; i < p->num_provider_specific_attr; ++i)
    CHECK(p->provider_specific_attr[i].name && p->provider_specific_attr[i].value);
  shows("IA-138");
  SUCCEEDS(dat_ia_close(one.ia, DAT_CLOSE_ABRUPT_FLAG));
}

static void the_list_of_providers(void) {
  DAT_COUNT number = -1, again = -1;
  FAILS(dat_registry_list_providers(0, &number, NULL), DAT_INVALID_PARAMETER);
  CHECK(number > 1);
  shows("REG-036 REG-037");
  DAT_PROVIDER_INFO* infos = calloc((size_t)number, sizeof *infos);
  DAT_PROVIDER_INFO** list = calloc((size_t)number, sizeof *list);
  if (!infos || !list) abort();
  for (int i = 0; i < number; ++i) list[i] = &infos[i];
  SUCCEEDS(dat_registry_list_providers(number, &again, list));
  CHECK(again == number);
  int found = 0;
  for (int i = 0; i < number; ++i)
    found += (!strcmp(infos[i].ia_name, one.name) || !strcmp(infos[i].ia_name, two.name)) &&
             infos[i].dapl_version_major == 2;
  CHECK(found == 2);
  shows("REG-033 REG-034 REG-035");
  DAT_HA_RELATIONSHIP related = DAT_HA_EXTENSION_BASE;
  SUCCEEDS(dat_registry_providers_related(one.name, one.name, &related));
  CHECK(related == DAT_HA_TRUE);
  SUCCEEDS(dat_registry_providers_related(one.name, two.name, &related));
  CHECK(related == DAT_HA_FALSE || related == DAT_HA_UNKNOWN);
  shows("REG-040 REG-044");
  char none[] = "no such adapter";
  FAILS(dat_registry_providers_related(one.name, none, &related), DAT_INVALID_PARAMETER);
  shows("REG-043");
  free(list);
  free(infos);
}

static void protection_zones(void) {
  open_side(&one);
  DAT_PZ_HANDLE pz = DAT_HANDLE_NULL;
  SUCCEEDS(dat_pz_create(one.ia, &pz));
  DAT_PZ_PARAM param = {0};
  SUCCEEDS(dat_pz_query(pz, DAT_PZ_FIELD_IA_HANDLE, &param));
  CHECK(param.ia_handle == one.ia);
  shows("PZ-001 PZ-010");
  FAILS(dat_pz_query(pz, BEYOND(DAT_PZ_FIELD_ALL), &param), DAT_INVALID_PARAMETER);
  FAILS(dat_pz_query(DAT_HANDLE_NULL, DAT_PZ_FIELD_ALL, &param), DAT_INVALID_HANDLE);
  shows("PZ-011");
  FAILS(dat_pz_create(DAT_HANDLE_NULL, &pz), DAT_INVALID_HANDLE);
  FAILS(dat_pz_create(one.ia, NULL), DAT_INVALID_PARAMETER);
  shows("PZ-004");
  RETURNS(dat_pz_free(one.pz), DAT_INVALID_STATE, DAT_INVALID_STATE_PZ_IN_USE); // the lmr uses the zone
  shows("PZ-005");
  SUCCEEDS(dat_pz_query(one.pz, DAT_PZ_FIELD_ALL, &param));
  DAT_EP_HANDLE ep = create_ep(&one, NULL);
  shows("PZ-006");
  SUCCEEDS(dat_ep_free(ep));
  SUCCEEDS(dat_lmr_free(one.lmr));
  SUCCEEDS(dat_pz_free(one.pz));
  FAILS(dat_pz_free(one.pz), DAT_INVALID_HANDLE);
  FAILS(dat_pz_free(DAT_HANDLE_NULL), DAT_INVALID_HANDLE);
  shows("PZ-008 PZ-009");
  close_side(&one);
}

static void contexts(void) {
  open_side(&one);
  DAT_EP_HANDLE ep = create_ep(&one, NULL);
  DAT_CNO_HANDLE cno = DAT_HANDLE_NULL;
  DAT_RMR_HANDLE rmr = DAT_HANDLE_NULL;
  DAT_PSP_HANDLE psp = DAT_HANDLE_NULL;
  DAT_SRQ_HANDLE srq = DAT_HANDLE_NULL;
  DAT_CONN_QUAL qualifier = 0;
  DAT_SRQ_ATTR srq_attr = {8, 1, DAT_SRQ_LW_DEFAULT};
  SUCCEEDS(dat_cno_create(one.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
  SUCCEEDS(dat_rmr_create(one.pz, &rmr));
  SUCCEEDS(dat_psp_create_any(one.ia, &qualifier, one.evd, DAT_PSP_CONSUMER_FLAG, &psp));
  SUCCEEDS(dat_srq_create(one.ia, one.pz, &srq_attr, &srq));
  const struct {
    DAT_HANDLE handle;
    DAT_HANDLE_TYPE type;
  } all[] = {{one.ia, DAT_HANDLE_TYPE_IA}, {ep, DAT_HANDLE_TYPE_EP},     {one.evd, DAT_HANDLE_TYPE_EVD},
             {cno, DAT_HANDLE_TYPE_CNO},   {one.pz, DAT_HANDLE_TYPE_PZ}, {one.lmr, DAT_HANDLE_TYPE_LMR},
             {rmr, DAT_HANDLE_TYPE_RMR},   {psp, DAT_HANDLE_TYPE_PSP},   {srq, DAT_HANDLE_TYPE_SRQ}};
  const size_t count = sizeof all / sizeof *all;
  DAT_CONTEXT context;
  for (size_t i = 0; i < count; ++i) {
    context.as_64 = 1;
    SUCCEEDS(dat_get_consumer_context(all[i].handle, &context));
    CHECK(context.as_64 == 0);
    context.as_64 = i + 100;
    SUCCEEDS(dat_set_consumer_context(all[i].handle, context));
    DAT_HANDLE_TYPE type = DAT_HANDLE_TYPE_EXTENSION_BASE;
    SUCCEEDS(dat_get_handle_type(all[i].handle, &type));
    CHECK(type == all[i].type);
  }
  shows("CTX-002 CTX-013 CTX-014");
  for (size_t i = 0; i < count; ++i) {
    SUCCEEDS(dat_get_consumer_context(all[i].handle, &context));
    CHECK(context.as_64 == i + 100);
    context.as_64 = ~(DAT_UINT64)0;
    SUCCEEDS(dat_set_consumer_context(all[i].handle, context)); // any value is valid
    context.as_64 = 0;
    SUCCEEDS(dat_get_consumer_context(all[i].handle, &context));
    CHECK(context.as_64 == ~(DAT_UINT64)0);
    context.as_64 = 0;
    SUCCEEDS(dat_set_consumer_context(all[i].handle, context));
    SUCCEEDS(dat_get_consumer_context(all[i].handle, &context));
    CHECK(context.as_64 == 0);
  }
  shows("CTX-001 CTX-003 CTX-004 CTX-005 CTX-008 CTX-010");
  DAT_HANDLE_TYPE type;
  FAILS(dat_get_consumer_context(DAT_HANDLE_NULL, &context), DAT_INVALID_HANDLE);
  FAILS(dat_set_consumer_context(DAT_HANDLE_NULL, context), DAT_INVALID_HANDLE);
  FAILS(dat_get_handle_type(DAT_HANDLE_NULL, &type), DAT_INVALID_HANDLE);
  SUCCEEDS(dat_ep_free(ep));
  FAILS(dat_get_handle_type(ep, &type), DAT_INVALID_HANDLE);
  shows("CTX-015");
  close_side(&one);
}

static void* waits_for_ever(void* evd) {
  DAT_EVENT event;
  DAT_COUNT more;
  return (void*)(uintptr_t)dat_evd_wait(evd, DAT_TIMEOUT_INFINITE, 1, &event, &more);
}

static void closing_abruptly(void) {
  open_link(NULL);
  pthread_t thread;
  DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
  SUCCEEDS(dat_evd_create(one.ia, 8, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &evd));
  if (pthread_create(&thread, NULL, waits_for_ever, evd) != 0) abort();
  DAT_EVENT event;
  while ((dat_evd_dequeue(evd, &event) & DAT_TYPE_MASK) != DAT_INVALID_STATE) {
  } // returns when the thread waits
  shows("EVD-064");
  SUCCEEDS(dat_ia_close(one.ia, DAT_CLOSE_ABRUPT_FLAG));
  void* result = NULL;
  pthread_join(thread, &result);
  CHECK(((DAT_RETURN)(uintptr_t)result & DAT_TYPE_MASK) == DAT_ABORT);
  shows("IA-033 EVENT-103 ERR-013");
  FAILS(dat_evd_dequeue(one.evd, &event), DAT_INVALID_HANDLE);
  FAILS(dat_ep_free(one.ep), DAT_INVALID_HANDLE);
  FAILS(dat_lmr_free(one.lmr), DAT_INVALID_HANDLE);
  FAILS(dat_pz_free(one.pz), DAT_INVALID_HANDLE);
  shows("IA-030 IA-031 EVENT-105");
  EXPECT(two.evd, DAT_CONNECTION_EVENT_DISCONNECTED);
  shows("IA-047 DISC-038");
  free(one.memory);
  close_side(&two);
}

const struct test_case ia_cases[] = {
    {"an adapter is opened and closed by its name", opening},
    {"an adapter takes an async evd of another instance", async_evds},
    {"an adapter reports its attributes", adapter_attributes},
    {"an adapter reports its provider's attributes", provider_attributes},
    {"the registry lists the providers", the_list_of_providers},
    {"a protection zone is in use by what was made from it", protection_zones},
    {"every object keeps a context, and knows its kind", contexts},
    {"an abrupt close ends all objects and waiters", closing_abruptly},
    {NULL, NULL},
};
