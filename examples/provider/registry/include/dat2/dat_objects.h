// The second part of dat.h: parameters of endpoints, queues, zones, service points and requests, and events. Included
// by dat.h only. SPDX-License-Identifier: BSL-1.0
#ifndef DAT_OBJECTS_H
#define DAT_OBJECTS_H

typedef enum dat_service_type {
  DAT_SERVICE_TYPE_RC
#ifdef DAT_EXTENSIONS
  ,
  DAT_SERVICE_TYPE_EXTENSION_BASE
#endif
} DAT_SERVICE_TYPE;

typedef struct dat_ep_attr {
  DAT_SERVICE_TYPE service_type;
  DAT_SEG_LENGTH max_message_size;
  DAT_SEG_LENGTH max_rdma_size;
  DAT_QOS qos;
  DAT_COMPLETION_FLAGS recv_completion_flags;
  DAT_COMPLETION_FLAGS request_completion_flags;
  DAT_COUNT max_recv_dtos;
  DAT_COUNT max_request_dtos;
  DAT_COUNT max_recv_iov;
  DAT_COUNT max_request_iov;
  DAT_COUNT max_rdma_read_in;
  DAT_COUNT max_rdma_read_out;
  DAT_COUNT srq_soft_hw;
  DAT_COUNT max_rdma_read_iov;
  DAT_COUNT max_rdma_write_iov;
  DAT_COUNT ep_transport_specific_count;
  DAT_NAMED_ATTR* ep_transport_specific;
  DAT_COUNT ep_provider_specific_count;
  DAT_NAMED_ATTR* ep_provider_specific;
} DAT_EP_ATTR;

typedef enum dat_ep_state {
  DAT_EP_STATE_UNCONNECTED,
  DAT_EP_STATE_UNCONFIGURED_UNCONNECTED,
  DAT_EP_STATE_RESERVED,
  DAT_EP_STATE_UNCONFIGURED_RESERVED,
  DAT_EP_STATE_PASSIVE_CONNECTION_PENDING,
  DAT_EP_STATE_UNCONFIGURED_PASSIVE,
  DAT_EP_STATE_ACTIVE_CONNECTION_PENDING,
  DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING,
  DAT_EP_STATE_UNCONFIGURED_TENTATIVE,
  DAT_EP_STATE_CONNECTED,
  DAT_EP_STATE_DISCONNECT_PENDING,
  DAT_EP_STATE_DISCONNECTED,
  DAT_EP_STATE_COMPLETION_PENDING,
  DAT_EP_STATE_CONNECTED_SINGLE_PATH,
  DAT_EP_STATE_CONNECTED_MULTI_PATH
} DAT_EP_STATE;
#define DAT_EP_STATE_ERROR DAT_EP_STATE_DISCONNECTED // the name of DAT 1

typedef struct dat_ep_param {
  DAT_IA_HANDLE ia_handle;
  DAT_EP_STATE ep_state;
  DAT_COMM comm;
  DAT_IA_ADDRESS_PTR local_ia_address_ptr;
  DAT_PORT_QUAL local_port_qual;
  DAT_IA_ADDRESS_PTR remote_ia_address_ptr;
  DAT_PORT_QUAL remote_port_qual;
  DAT_PZ_HANDLE pz_handle;
  DAT_EVD_HANDLE recv_evd_handle;
  DAT_EVD_HANDLE request_evd_handle;
  DAT_EVD_HANDLE connect_evd_handle;
  DAT_SRQ_HANDLE srq_handle;
  DAT_EP_ATTR ep_attr;
} DAT_EP_PARAM;

typedef DAT_UINT64 DAT_EP_PARAM_MASK;
#define DAT_EP_FIELD_IA_HANDLE UINT64_C(0x00000001)
#define DAT_EP_FIELD_EP_STATE UINT64_C(0x00000002)
#define DAT_EP_FIELD_COMM UINT64_C(0x00000004)
#define DAT_EP_FIELD_LOCAL_IA_ADDRESS_PTR UINT64_C(0x00000008)
#define DAT_EP_FIELD_LOCAL_PORT_QUAL UINT64_C(0x00000010)
#define DAT_EP_FIELD_REMOTE_IA_ADDRESS_PTR UINT64_C(0x00000020)
#define DAT_EP_FIELD_REMOTE_PORT_QUAL UINT64_C(0x00000040)
#define DAT_EP_FIELD_PZ_HANDLE UINT64_C(0x00000080)
#define DAT_EP_FIELD_RECV_EVD_HANDLE UINT64_C(0x00000100)
#define DAT_EP_FIELD_REQUEST_EVD_HANDLE UINT64_C(0x00000200)
#define DAT_EP_FIELD_CONNECT_EVD_HANDLE UINT64_C(0x00000400)
#define DAT_EP_FIELD_SRQ_HANDLE UINT64_C(0x00000800)
#define DAT_EP_FIELD_EP_ATTR_SERVICE_TYPE UINT64_C(0x00001000)
#define DAT_EP_FIELD_EP_ATTR_MAX_MESSAGE_SIZE UINT64_C(0x00002000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_SIZE UINT64_C(0x00004000)
#define DAT_EP_FIELD_EP_ATTR_QOS UINT64_C(0x00008000)
#define DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS UINT64_C(0x00010000)
#define DAT_EP_FIELD_EP_ATTR_REQUEST_COMPLETION_FLAGS UINT64_C(0x00020000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS UINT64_C(0x00040000)
#define DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS UINT64_C(0x00080000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RECV_IOV UINT64_C(0x00100000)
#define DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_IOV UINT64_C(0x00200000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IN UINT64_C(0x00400000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_OUT UINT64_C(0x00800000)
#define DAT_EP_FIELD_EP_ATTR_SRQ_SOFT_HW UINT64_C(0x01000000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IOV UINT64_C(0x02000000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_WRITE_IOV UINT64_C(0x04000000)
#define DAT_EP_FIELD_EP_ATTR_NUM_TRANSPORT_ATTR UINT64_C(0x08000000)
#define DAT_EP_FIELD_EP_ATTR_TRANSPORT_SPECIFIC_ATTR UINT64_C(0x10000000)
#define DAT_EP_FIELD_EP_ATTR_NUM_PROVIDER_ATTR UINT64_C(0x20000000)
#define DAT_EP_FIELD_EP_ATTR_PROVIDER_SPECIFIC_ATTR UINT64_C(0x40000000)
#define DAT_EP_FIELD_EP_ATTR_ALL UINT64_C(0x7FFFF000)
#define DAT_EP_FIELD_ALL UINT64_C(0x7FFFFFFF)

#define DAT_WATERMARK_INFINITE ((DAT_COUNT)~0)
#define DAT_HW_DEFAULT DAT_WATERMARK_INFINITE
#define DAT_SRQ_LW_DEFAULT 0x0
#define DAT_VALUE_UNKNOWN (((DAT_COUNT)~0) - 1)

typedef enum dat_srq_state { DAT_SRQ_STATE_ERROR, DAT_SRQ_STATE_OPERATIONAL, DAT_SRQ_STATE_SHUTDOWN } DAT_SRQ_STATE;

typedef struct dat_srq_attr {
  DAT_COUNT max_recv_dtos;
  DAT_COUNT max_recv_iov;
  DAT_COUNT low_watermark;
} DAT_SRQ_ATTR;

typedef struct dat_srq_param {
  DAT_IA_HANDLE ia_handle;
  DAT_SRQ_STATE srq_state;
  DAT_PZ_HANDLE pz_handle;
  DAT_COUNT max_recv_dtos;
  DAT_COUNT max_recv_iov;
  DAT_COUNT low_watermark;
  DAT_COUNT available_dto_count;
  DAT_COUNT outstanding_dto_count;
} DAT_SRQ_PARAM;

typedef enum dat_srq_param_mask {
  DAT_SRQ_FIELD_IA_HANDLE = 0x001,
  DAT_SRQ_FIELD_SRQ_STATE = 0x002,
  DAT_SRQ_FIELD_PZ_HANDLE = 0x004,
  DAT_SRQ_FIELD_MAX_RECV_DTO = 0x008,
  DAT_SRQ_FIELD_MAX_RECV_IOV = 0x010,
  DAT_SRQ_FIELD_LOW_WATERMARK = 0x020,
  DAT_SRQ_FIELD_AVAILABLE_DTO_COUNT = 0x040,
  DAT_SRQ_FIELD_OUTSTANDING_DTO_COUNT = 0x080,
  DAT_SRQ_FIELD_ALL = 0x0FF
} DAT_SRQ_PARAM_MASK;

typedef struct dat_pz_param {
  DAT_IA_HANDLE ia_handle;
} DAT_PZ_PARAM;

typedef enum dat_pz_param_mask { DAT_PZ_FIELD_IA_HANDLE = 0x01, DAT_PZ_FIELD_ALL = 0x01 } DAT_PZ_PARAM_MASK;

typedef struct dat_psp_param {
  DAT_IA_HANDLE ia_handle;
  DAT_CONN_QUAL conn_qual;
  DAT_EVD_HANDLE evd_handle;
  DAT_PSP_FLAGS psp_flags;
} DAT_PSP_PARAM;

typedef enum dat_psp_param_mask {
  DAT_PSP_FIELD_IA_HANDLE = 0x01,
  DAT_PSP_FIELD_CONN_QUAL = 0x02,
  DAT_PSP_FIELD_EVD_HANDLE = 0x04,
  DAT_PSP_FIELD_PSP_FLAGS = 0x08,
  DAT_PSP_FIELD_ALL = 0x0F
} DAT_PSP_PARAM_MASK;

typedef struct dat_rsp_param {
  DAT_IA_HANDLE ia_handle;
  DAT_CONN_QUAL conn_qual;
  DAT_EVD_HANDLE evd_handle;
  DAT_EP_HANDLE ep_handle;
} DAT_RSP_PARAM;

typedef enum dat_rsp_param_mask {
  DAT_RSP_FIELD_IA_HANDLE = 0x01,
  DAT_RSP_FIELD_CONN_QUAL = 0x02,
  DAT_RSP_FIELD_EVD_HANDLE = 0x04,
  DAT_RSP_FIELD_EP_HANDLE = 0x08,
  DAT_RSP_FIELD_ALL = 0x0F
} DAT_RSP_PARAM_MASK;

typedef struct dat_csp_param {
  DAT_IA_HANDLE ia_handle;
  DAT_COMM* comm;
  DAT_IA_ADDRESS_PTR address_ptr;
  DAT_EVD_HANDLE evd_handle;
} DAT_CSP_PARAM;

typedef enum dat_csp_param_mask {
  DAT_CSP_FIELD_IA_HANDLE = 0x01,
  DAT_CSP_FIELD_COMM = 0x02,
  DAT_CSP_FIELD_IA_ADDRESS = 0x04,
  DAT_CSP_FIELD_EVD_HANDLE = 0x08,
  DAT_CSP_FIELD_ALL = 0x0F
} DAT_CSP_PARAM_MASK;

// local_ep_handle is the endpoint of the service point, the only one that can accept, or DAT_HANDLE_NULL.
typedef struct dat_cr_param {
  DAT_IA_ADDRESS_PTR remote_ia_address_ptr;
  DAT_PORT_QUAL remote_port_qual;
  DAT_COUNT private_data_size;
  DAT_PVOID private_data;
  DAT_EP_HANDLE local_ep_handle;
} DAT_CR_PARAM;

typedef enum dat_cr_param_mask {
  DAT_CR_FIELD_REMOTE_IA_ADDRESS_PTR = 0x01,
  DAT_CR_FIELD_REMOTE_PORT_QUAL = 0x02,
  DAT_CR_FIELD_PRIVATE_DATA_SIZE = 0x04,
  DAT_CR_FIELD_PRIVATE_DATA = 0x08,
  DAT_CR_FIELD_LOCAL_EP_HANDLE = 0x10,
  DAT_CR_FIELD_ALL = 0x1F
} DAT_CR_PARAM_MASK;

typedef enum dat_dto_completion_status {
  DAT_DTO_SUCCESS = 0,
  DAT_DTO_ERR_FLUSHED = 1,
  DAT_DTO_ERR_LOCAL_LENGTH = 2,
  DAT_DTO_ERR_LOCAL_EP = 3,
  DAT_DTO_ERR_LOCAL_PROTECTION = 4,
  DAT_DTO_ERR_BAD_RESPONSE = 5,
  DAT_DTO_ERR_REMOTE_ACCESS = 6,
  DAT_DTO_ERR_REMOTE_RESPONDER = 7,
  DAT_DTO_ERR_TRANSPORT = 8,
  DAT_DTO_ERR_RECEIVER_NOT_READY = 9,
  DAT_DTO_ERR_PARTIAL_PACKET = 10,
  DAT_RMR_OPERATION_FAILED = 11,
  DAT_DTO_ERR_LOCAL_MM_ERROR = 12 // of kDAPL
} DAT_DTO_COMPLETION_STATUS;

// The names of DAT 1
#define DAT_DTO_LENGTH_ERROR DAT_DTO_ERR_LOCAL_LENGTH
#define DAT_DTO_FAILURE DAT_DTO_ERR_FLUSHED
#define DAT_RMR_BIND_SUCCESS DAT_DTO_SUCCESS
#define DAT_RMR_BIND_FAILURE DAT_DTO_ERR_FLUSHED
#define DAT_RMR_BIND_COMPLETION_STATUS DAT_DTO_COMPLETION_STATUS

// After a failure only ep_handle, user_cookie and status are defined.
typedef struct dat_dto_completion_event_data {
  DAT_EP_HANDLE ep_handle;
  DAT_DTO_COOKIE user_cookie;
  DAT_DTO_COMPLETION_STATUS status;
  DAT_SEG_LENGTH transfered_length;
  DAT_DTOS operation;
  DAT_RMR_CONTEXT rmr_context;
} DAT_DTO_COMPLETION_EVENT_DATA;

typedef struct dat_rmr_bind_completion_event_data {
  DAT_RMR_HANDLE rmr_handle;
  DAT_RMR_COOKIE user_cookie;
  DAT_RMR_BIND_COMPLETION_STATUS status;
} DAT_RMR_BIND_COMPLETION_EVENT_DATA;

typedef union dat_sp_handle {
  DAT_RSP_HANDLE rsp_handle;
  DAT_PSP_HANDLE psp_handle;
  DAT_CSP_HANDLE csp_handle;
} DAT_SP_HANDLE;

// truncate_flag: the peer sent more private data than the request has.
typedef struct dat_cr_arrival_event_data {
  DAT_SP_HANDLE sp_handle;
  DAT_IA_ADDRESS_PTR local_ia_address_ptr;
  DAT_CONN_QUAL conn_qual;
  DAT_CR_HANDLE cr_handle;
  DAT_BOOLEAN truncate_flag;
} DAT_CR_ARRIVAL_EVENT_DATA;

typedef struct dat_connection_event_data {
  DAT_EP_HANDLE ep_handle;
  DAT_COUNT private_data_size;
  DAT_PVOID private_data;
} DAT_CONNECTION_EVENT_DATA;

// reason is of the enumeration for the kind of the handle.
typedef struct dat_asynch_error_event_data {
  DAT_HANDLE dat_handle;
  DAT_COUNT reason;
} DAT_ASYNCH_ERROR_EVENT_DATA;

typedef enum ia_async_error_reason { DAT_IA_CATASTROPHIC_ERROR, DAT_IA_OTHER_ERROR } DAT_IA_ASYNC_ERROR_REASON;
typedef enum ep_async_error_reason {
  DAT_EP_TRANSFER_TO_ERROR,
  DAT_EP_OTHER_ERROR,
  DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT
} DAT_EP_ASYNC_ERROR_REASON;
typedef enum evd_async_error_reason { DAT_EVD_OVERFLOW_ERROR, DAT_EVD_OTHER_ERROR } DAT_EVD_ASYNC_ERROR_REASON;
typedef enum srq_async_error_reason {
  DAT_SRQ_TRANSFER_TO_ERROR,
  DAT_SRQ_OTHER_ERROR,
  DAT_SRQ_LOW_WATERMARK_EVENT
} DAT_SRQ_ASYNC_ERROR_REASON;
typedef enum lmr_async_error_reason { DAT_LMR_OTHER_ERROR } DAT_LMR_ASYNC_ERROR_REASON;
typedef enum rmr_async_error_reason { DAT_RMR_OTHER_ERROR } DAT_RMR_ASYNC_ERROR_REASON;
typedef enum pz_async_error_reason { DAT_PZ_OTHER_ERROR } DAT_PZ_ASYNC_ERROR_REASON;

typedef struct dat_software_event_data {
  DAT_PVOID pointer;
} DAT_SOFTWARE_EVENT_DATA;

typedef enum dat_event_number {
  DAT_DTO_COMPLETION_EVENT = 0x00001,
  DAT_RMR_BIND_COMPLETION_EVENT = 0x01001,
  DAT_CONNECTION_REQUEST_EVENT = 0x02001,
  DAT_CONNECTION_EVENT_ESTABLISHED = 0x04001,
  DAT_CONNECTION_EVENT_PEER_REJECTED = 0x04002,
  DAT_CONNECTION_EVENT_NON_PEER_REJECTED = 0x04003,
  DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR = 0x04004,
  DAT_CONNECTION_EVENT_DISCONNECTED = 0x04005,
  DAT_CONNECTION_EVENT_BROKEN = 0x04006,
  DAT_CONNECTION_EVENT_TIMED_OUT = 0x04007,
  DAT_CONNECTION_EVENT_UNREACHABLE = 0x04008,
  DAT_ASYNC_ERROR_EVD_OVERFLOW = 0x08001,
  DAT_ASYNC_ERROR_IA_CATASTROPHIC = 0x08002,
  DAT_ASYNC_ERROR_EP_BROKEN = 0x08003,
  DAT_ASYNC_ERROR_TIMED_OUT = 0x08004,
  DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR = 0x08005,
  DAT_HA_DOWN_TO_1 = 0x08101,
  DAT_HA_UP_TO_MULTI_PATH = 0x08102,
  DAT_SOFTWARE_EVENT = 0x10001
#ifdef DAT_EXTENSIONS
  ,
  DAT_EXTENSION_EVENT = 0x20000,
  DAT_IB_EXTENSION_RANGE_BASE = 0x40000,
  DAT_IW_EXTENSION_RANGE_BASE = 0x80000
#endif
} DAT_EVENT_NUMBER;

typedef union dat_event_data {
  DAT_DTO_COMPLETION_EVENT_DATA dto_completion_event_data;
  DAT_RMR_BIND_COMPLETION_EVENT_DATA rmr_completion_event_data;
  DAT_CR_ARRIVAL_EVENT_DATA cr_arrival_event_data;
  DAT_CONNECTION_EVENT_DATA connect_event_data;
  DAT_ASYNCH_ERROR_EVENT_DATA asynch_error_event_data;
  DAT_SOFTWARE_EVENT_DATA software_event_data;
} DAT_EVENT_DATA;

// event_extension_data is a DAT_IB_EXTENSION_EVENT_DATA where the number is one of the extension's.
typedef struct dat_event {
  DAT_EVENT_NUMBER event_number;
  DAT_EVD_HANDLE evd_handle;
  DAT_EVENT_DATA event_data;
  DAT_UINT64 event_extension_data[8];
} DAT_EVENT;

typedef struct dat_provider_info {
  char ia_name[DAT_NAME_MAX_LENGTH];
  DAT_UINT32 dapl_version_major;
  DAT_UINT32 dapl_version_minor;
  DAT_BOOLEAN is_thread_safe;
} DAT_PROVIDER_INFO;

#endif
