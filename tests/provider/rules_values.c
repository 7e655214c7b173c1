// Numbers and names of the interface: the definitions of the headers, and dat_strerror.
// SPDX-License-Identifier: BSL-1.0
#include "rules.h"

static void return_words(void) {
  CHECK(DAT_CLASS_SUCCESS == 0 && DAT_CLASS_WARNING == 0x40000000 && DAT_CLASS_ERROR == 0x80000000);
  shows("ERR-002");
  CHECK(DAT_TYPE_MASK == 0x3fff0000 && DAT_SUBTYPE_MASK == 0x0000ffff);
  shows("ERR-003");
  const DAT_RETURN value = DAT_CLASS_ERROR | DAT_INVALID_STATE | DAT_INVALID_STATE_EP_CONNECTED;
  CHECK(DAT_GET_TYPE(value) == DAT_INVALID_STATE && DAT_GET_SUBTYPE(value) == DAT_INVALID_STATE_EP_CONNECTED);
  CHECK(!DAT_IS_WARNING(value) && DAT_IS_WARNING(DAT_CLASS_WARNING | 1) && sizeof(DAT_RETURN) == 4);
  shows("ERR-001 ERR-005");
  const DAT_RETURN_TYPE types[] = {DAT_SUCCESS,
                                   DAT_ABORT,
                                   DAT_CONN_QUAL_IN_USE,
                                   DAT_INSUFFICIENT_RESOURCES,
                                   DAT_INTERNAL_ERROR,
                                   DAT_INVALID_HANDLE,
                                   DAT_INVALID_PARAMETER,
                                   DAT_INVALID_STATE,
                                   DAT_LENGTH_ERROR,
                                   DAT_MODEL_NOT_SUPPORTED,
                                   DAT_PROVIDER_NOT_FOUND,
                                   DAT_PRIVILEGES_VIOLATION,
                                   DAT_PROTECTION_VIOLATION,
                                   DAT_QUEUE_EMPTY,
                                   DAT_QUEUE_FULL,
                                   DAT_TIMEOUT_EXPIRED,
                                   DAT_PROVIDER_ALREADY_REGISTERED,
                                   DAT_PROVIDER_IN_USE,
                                   DAT_INVALID_ADDRESS,
                                   DAT_INTERRUPTED_CALL,
                                   DAT_CONN_QUAL_UNAVAILABLE};
  for (unsigned i = 0; i < sizeof types / sizeof *types; ++i) CHECK(types[i] == i << 16);
  CHECK(DAT_PORT_IN_USE == 0x00160000 && DAT_COMM_NOT_SUPPORTED == 0x00170000 && DAT_NOT_IMPLEMENTED == 0x3fff0000);
  CHECK(DAT_EXTENSION_BASE == 0x10000000);
  shows("ERR-006");
  CHECK(DAT_NAME_NOT_FOUND == DAT_PROVIDER_NOT_FOUND);
  shows("ERR-008");
  CHECK((DAT_RETURN)DAT_IB_ERR == (DAT_RETURN)DAT_EXTENSION_BASE);
  shows("ERR-009");
}

static void texts_of_return_words(void) {
  const char *major, *minor;
  for (DAT_RETURN subtype = 0; subtype <= DAT_THREAD_SAFETY_NOT_FOUND; ++subtype) {
    major = minor = NULL;
    SUCCEEDS(dat_strerror(DAT_CLASS_ERROR | DAT_INVALID_PARAMETER | subtype, &major, &minor));
    CHECK(major && minor && *major && *minor);
  }
  for (DAT_RETURN type = 0; type <= 0x17; ++type) SUCCEEDS(dat_strerror(DAT_CLASS_ERROR | type << 16, &major, NULL));
  SUCCEEDS(dat_strerror(DAT_CLASS_ERROR | DAT_NOT_IMPLEMENTED, &major, NULL));
  SUCCEEDS(dat_strerror(DAT_CLASS_ERROR | DAT_EXTENSION_BASE, &major, NULL));
  shows("ERR-043 ERR-052");
  const DAT_RETURN undefined[] = {0xC0000000, 0x80180000, 0x8006ffff};
  for (int i = 0; i < 3; ++i) FAILS(dat_strerror(undefined[i], &major, &minor), DAT_INVALID_PARAMETER);
  shows("ERR-044");
  SUCCEEDS(dat_strerror(DAT_SUCCESS, &major, &minor));
  shows("ERR-045");
  SUCCEEDS(dat_strerror(DAT_SUCCESS, NULL, NULL));
  SUCCEEDS(dat_strerror(DAT_SUCCESS, NULL, &minor));
  shows("ERR-047");
}

static void extensions(void) {
  CHECK((int)DAT_IB_DTO_EVENT == 0x40000 && (int)DAT_IB_UD_CONNECTION_REQUEST_EVENT == 0x40001 &&
        (int)DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED == 0x40002);
  shows("IBX-004");
  CHECK(DAT_IB_FETCH_AND_ADD_OP == 0 && DAT_IB_CMP_AND_SWAP_OP == 1 && DAT_IB_RDMA_WRITE_IMMED_OP == 2 &&
        DAT_IB_UD_SEND_OP == 3);
  shows("IBX-006");
  CHECK(DAT_IB_FETCH_AND_ADD == 0 && DAT_IB_CMP_AND_SWAP == 1 && DAT_IB_RDMA_WRITE_IMMED == 2 &&
        DAT_IB_RDMA_WRITE_IMMED_DATA == 3 && DAT_IB_RECV_IMMED_DATA == 4 && DAT_IB_UD_CONNECT_REQUEST == 5 &&
        DAT_IB_UD_REMOTE_AH == 6 && DAT_IB_UD_PASSIVE_REMOTE_AH == 7 && DAT_IB_UD_SEND == 8 && DAT_IB_UD_RECV == 9);
  shows("IBX-007");
  CHECK(DAT_OP_SUCCESS == 0 && DAT_IB_OP_ERR == 1);
  shows("IBX-008");
  CHECK((DAT_RETURN)DAT_IB_ERR == 0x10000000);
  shows("IBX-009");
  CHECK((int)DAT_IB_EVD_EXTENSION_FLAG == 0x200 && (int)DAT_IB_HANDLE_TYPE_EXT == (int)DAT_HANDLE_TYPE_EXTENSION_BASE);
  shows("IBX-011");
  CHECK((int)DAT_IB_MEM_PRIV_REMOTE_ATOMIC == 0x40);
  shows("IBX-012");
  CHECK(sizeof(DAT_IB_EXTENSION_EVENT_DATA) <= sizeof(((DAT_EVENT*)0)->event_extension_data));
  shows("IBX-015");
}

static void flags_and_sizes(void) {
  CHECK(DAT_COMPLETION_DEFAULT_FLAG == 0 && DAT_COMPLETION_SUPPRESS_FLAG == 1 &&
        DAT_COMPLETION_SOLICITED_WAIT_FLAG == 2);
  CHECK(DAT_COMPLETION_UNSIGNALLED_FLAG == 4 && DAT_COMPLETION_BARRIER_FENCE_FLAG == 8);
  CHECK(DAT_COMPLETION_EVD_THRESHOLD_FLAG == 0x10);
  shows("DTO-051");
  CHECK(sizeof(((DAT_LMR_TRIPLET*)0)->virtual_address) == 8 && sizeof(((DAT_LMR_TRIPLET*)0)->segment_length) == 4);
  CHECK(sizeof(((DAT_RMR_TRIPLET*)0)->virtual_address) == 8 && sizeof(((DAT_RMR_TRIPLET*)0)->rmr_context) == 4);
  shows("DTO-056");
  CHECK(sizeof(DAT_LMR_CONTEXT) == 4 && sizeof(DAT_RMR_CONTEXT) == 4 && sizeof(DAT_VLEN) == 8 &&
        sizeof(DAT_VADDR) == 8);
  CHECK(sizeof(DAT_SEG_LENGTH) == 4);
  shows("DTO-059");
  CHECK(DAT_MEM_PRIV_NONE_FLAG == 0 && DAT_MEM_PRIV_LOCAL_READ_FLAG == 1 && DAT_MEM_PRIV_REMOTE_READ_FLAG == 2);
  CHECK(DAT_MEM_PRIV_LOCAL_WRITE_FLAG == 0x10 && DAT_MEM_PRIV_REMOTE_WRITE_FLAG == 0x20 &&
        DAT_MEM_PRIV_ALL_FLAG == 0x33);
  shows("DTO-061");
  CHECK(DAT_MEM_PRIV_READ_FLAG == 0x03 && DAT_MEM_PRIV_WRITE_FLAG == 0x30);
  shows("DTO-062");
  CHECK(DAT_VA_TYPE_VA == 0 && DAT_VA_TYPE_ZB == 1);
  shows("DTO-063");
  CHECK(DAT_DTO_SUCCESS == 0 && DAT_DTO_ERR_FLUSHED == 1 && DAT_DTO_ERR_LOCAL_LENGTH == 2 && DAT_DTO_ERR_LOCAL_EP == 3);
  CHECK(DAT_DTO_ERR_LOCAL_PROTECTION == 4 && DAT_DTO_ERR_BAD_RESPONSE == 5 && DAT_DTO_ERR_REMOTE_ACCESS == 6);
  CHECK(DAT_DTO_ERR_REMOTE_RESPONDER == 7 && DAT_DTO_ERR_TRANSPORT == 8 && DAT_DTO_ERR_RECEIVER_NOT_READY == 9);
  CHECK(DAT_DTO_ERR_PARTIAL_PACKET == 10 && DAT_RMR_OPERATION_FAILED == 11);
  shows("DTO-064");
  CHECK(DAT_DTO_LENGTH_ERROR == DAT_DTO_ERR_LOCAL_LENGTH && DAT_DTO_FAILURE == DAT_DTO_ERR_FLUSHED);
  CHECK(DAT_RMR_BIND_SUCCESS == DAT_DTO_SUCCESS && DAT_RMR_BIND_FAILURE == DAT_DTO_ERR_FLUSHED);
  shows("DTO-065");
  CHECK(DAT_EVD_DEFAULT_FLAG ==
        (DAT_EVD_CR_FLAG | DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG | DAT_EVD_RMR_BIND_FLAG | DAT_EVD_ASYNC_FLAG));
  CHECK(!(DAT_EVD_DEFAULT_FLAG & (DAT_EVD_SOFTWARE_FLAG | DAT_EVD_EXTENSION_BASE)));
  shows("EVENT-025");
  CHECK(DAT_WATERMARK_INFINITE == -1 && DAT_HW_DEFAULT == -1 && DAT_VALUE_UNKNOWN == -2 && DAT_SRQ_LW_DEFAULT == 0);
  shows("SRQ-034");
  CHECK(DAT_QOS_BEST_EFFORT == 0 && DAT_QOS_HIGH_THROUGHPUT == 1 && DAT_QOS_LOW_LATENCY == 2 && DAT_QOS_ECONOMY == 4 &&
        DAT_QOS_PREMIUM == 8);
  shows("EPATTR-004");
  CHECK(DAT_VERSION_MAJOR == 2 && DAT_VERSION_MINOR == 0);
  CHECK(DAT_HANDLE_TYPE_CR == 0 && DAT_HANDLE_TYPE_EP == 1 && DAT_HANDLE_TYPE_EVD == 2 && DAT_HANDLE_TYPE_IA == 3 &&
        DAT_HANDLE_TYPE_LMR == 4 && DAT_HANDLE_TYPE_PSP == 5 && DAT_HANDLE_TYPE_PZ == 6 && DAT_HANDLE_TYPE_RMR == 7 &&
        DAT_HANDLE_TYPE_RSP == 8 && DAT_HANDLE_TYPE_CNO == 9 && DAT_HANDLE_TYPE_SRQ == 10 && DAT_HANDLE_TYPE_CSP == 11);
}

const struct test_case value_cases[] = {
    {"return words have class, type and subtype", return_words},
    {"dat_strerror knows all return words", texts_of_return_words},
    {"flags, statuses and sizes have the numbers of the specification", flags_and_sizes},
    {"the extensions have the numbers of their specification", extensions},
    {NULL, NULL},
};
