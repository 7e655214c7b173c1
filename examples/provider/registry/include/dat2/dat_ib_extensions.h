// The InfiniBand extensions of uDAPL 2.0, as dat_extension_op takes them.
//
// The constants of collective operations are here because the numbers after them depend on them. dat has no such
// operations.
// SPDX-License-Identifier: BSL-1.0
#ifndef _DAT_IB_EXTENSIONS_H_
#define _DAT_IB_EXTENSIONS_H_

#include <dat2/udat.h>

struct ibv_ah;

#define DAT_IB_EXTENSION_VERSION 209 // 2.0.9

// The names of provider-specific attributes that say which operations a provider has.
#define DAT_IB_ATTR_COUNTERS "DAT_COUNTERS"
#define DAT_IB_ATTR_FETCH_AND_ADD "DAT_IB_FETCH_AND_ADD"
#define DAT_IB_ATTR_CMP_AND_SWAP "DAT_IB_CMP_AND_SWAP"
#define DAT_IB_ATTR_IMMED_DATA "DAT_IB_IMMED_DATA"
#define DAT_IB_ATTR_UD "DAT_IB_UD"

#define DAT_IB_COLL_SET_CLOCK "DAT_COLL_SET_CLOCK"
#define DAT_IB_COLL_READ_CLOCK "DAT_COLL_READ_CLOCK"
#define DAT_IB_COLL_BROADCAST "DAT_COLL_BROADCAST"
#define DAT_IB_COLL_BARRIER "DAT_COLL_BARRIER"
#define DAT_IB_COLL_SCATTER "DAT_COLL_SCATTER"
#define DAT_IB_COLL_SCATTERV "DAT_COLL_SCATTERV"
#define DAT_IB_COLL_GATHER "DAT_COLL_GATHER"
#define DAT_IB_COLL_GATHERV "DAT_COLL_GATHERV"
#define DAT_IB_COLL_ALLGATHER "DAT_COLL_ALLGATHER"
#define DAT_IB_COLL_ALLGATHERV "DAT_COLL_ALLGATHERV"
#define DAT_IB_COLL_ALLTOALL "DAT_COLL_ALLTOALL"
#define DAT_IB_COLL_ALLTOALLV "DAT_COLL_ALLTOALLV"
#define DAT_IB_COLL_REDUCE "DAT_COLL_REDUCE"
#define DAT_IB_COLL_ALLREDUCE "DAT_COLL_ALLREDUCE"
#define DAT_IB_COLL_REDUCE_SCATTER "DAT_COLL_REDUCE_SCATTER"
#define DAT_IB_COLL_SCAN "DAT_COLL_SCAN"

typedef DAT_HANDLE DAT_IB_COLLECTIVE_HANDLE;
typedef unsigned int DAT_IB_COLLECTIVE_RANK;
typedef unsigned int DAT_IB_COLLECTIVE_ID;
typedef void* DAT_IB_COLLECTIVE_MEMBER;

// Event numbers of the extensions.
typedef enum dat_ib_event_number {
  DAT_IB_DTO_EVENT = DAT_IB_EXTENSION_RANGE_BASE,
  DAT_IB_UD_CONNECTION_REQUEST_EVENT,
  DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED,
  DAT_IB_UD_CONNECTION_REJECT_EVENT,
  DAT_IB_UD_CONNECTION_ERROR_EVENT,
  DAT_IB_COLLECTIVE_EVENT
} DAT_IB_EVENT_NUMBER;

// The operations of dat_extension_op. The registry itself takes part in the two queries.
typedef enum dat_ib_op {
  DAT_IB_FETCH_AND_ADD_OP,
  DAT_IB_CMP_AND_SWAP_OP,
  DAT_IB_RDMA_WRITE_IMMED_OP,
  DAT_IB_UD_SEND_OP,
  DAT_IB_QUERY_COUNTERS_OP,
  DAT_IB_PRINT_COUNTERS_OP,
  DAT_IB_COLLECTIVE_CREATE_MEMBER_OP,
  DAT_IB_COLLECTIVE_FREE_MEMBER_OP,
  DAT_IB_COLLECTIVE_CREATE_GROUP_OP,
  DAT_IB_COLLECTIVE_FREE_GROUP_OP,
  DAT_IB_COLLECTIVE_SET_CLOCK_OP,
  DAT_IB_COLLECTIVE_READ_CLOCK_OP,
  DAT_IB_COLLECTIVE_SCATTER_OP,
  DAT_IB_COLLECTIVE_SCATTERV_OP,
  DAT_IB_COLLECTIVE_GATHER_OP,
  DAT_IB_COLLECTIVE_GATHERV_OP,
  DAT_IB_COLLECTIVE_ALLGATHER_OP,
  DAT_IB_COLLECTIVE_ALLGATHERV_OP,
  DAT_IB_COLLECTIVE_ALLTOALL_OP,
  DAT_IB_COLLECTIVE_ALLTOALLV_OP,
  DAT_IB_COLLECTIVE_REDUCE_OP,
  DAT_IB_COLLECTIVE_ALLREDUCE_OP,
  DAT_IB_COLLECTIVE_REDUCE_SCATTER_OP,
  DAT_IB_COLLECTIVE_SCAN_OP,
  DAT_IB_COLLECTIVE_BROADCAST_OP,
  DAT_IB_COLLECTIVE_BARRIER_OP,
  DAT_IB_START_COUNTERS_OP,
  DAT_IB_STOP_COUNTERS_OP,
  DAT_IB_UD_CM_FREE_OP,
  DAT_IB_UD_AH_FREE_OP,
  DAT_IB_OPEN_QUERY_OP = DAT_OPEN_EXTENSION_BASE,
  DAT_IB_CLOSE_QUERY_OP = DAT_CLOSE_EXTENSION_BASE
} DAT_IB_OP;

// The kind of an extension event: DAT_IB_EXTENSION_EVENT_DATA::type.
typedef enum dat_ib_ext_type {
  DAT_IB_FETCH_AND_ADD,
  DAT_IB_CMP_AND_SWAP,
  DAT_IB_RDMA_WRITE_IMMED,
  DAT_IB_RDMA_WRITE_IMMED_DATA,
  DAT_IB_RECV_IMMED_DATA,
  DAT_IB_UD_CONNECT_REQUEST,
  DAT_IB_UD_REMOTE_AH,
  DAT_IB_UD_PASSIVE_REMOTE_AH,
  DAT_IB_UD_SEND,
  DAT_IB_UD_RECV,
  DAT_IB_UD_CONNECT_REJECT,
  DAT_IB_UD_CONNECT_ERROR,
  DAT_IB_COLLECTIVE_CREATE_STATUS,
  DAT_IB_COLLECTIVE_CREATE_DATA,
  DAT_IB_COLLECTIVE_CLOCK_SET_STATUS,
  DAT_IB_COLLECTIVE_SCATTER_STATUS,
  DAT_IB_COLLECTIVE_SCATTERV_STATUS,
  DAT_IB_COLLECTIVE_GATHER_STATUS,
  DAT_IB_COLLECTIVE_GATHERV_STATUS,
  DAT_IB_COLLECTIVE_ALLGATHER_STATUS,
  DAT_IB_COLLECTIVE_ALLGATHERV_STATUS,
  DAT_IB_COLLECTIVE_ALLTOALL_STATUS,
  DAT_IB_COLLECTIVE_ALLTOALLV_STATUS,
  DAT_IB_COLLECTIVE_REDUCE_STATUS,
  DAT_IB_COLLECTIVE_ALLREDUCE_STATUS,
  DAT_IB_COLLECTIVE_REDUCE_SCATTER_STATUS,
  DAT_IB_COLLECTIVE_SCAN_STATUS,
  DAT_IB_COLLECTIVE_BROADCAST_STATUS,
  DAT_IB_COLLECTIVE_BARRIER_STATUS
} DAT_IB_EXT_TYPE;

typedef enum dat_ib_status { DAT_OP_SUCCESS = DAT_SUCCESS, DAT_IB_OP_ERR, DAT_IB_COLL_COMP_ERR } DAT_IB_STATUS;

typedef enum dat_ib_return { DAT_IB_ERR = DAT_EXTENSION_BASE, DAT_IB_COLLECTIVE_ERR } DAT_IB_RETURN;

typedef enum dat_ib_dtos {
  DAT_IB_DTO_RDMA_WRITE_IMMED = DAT_DTO_EXTENSION_BASE,
  DAT_IB_DTO_RECV_IMMED,
  DAT_IB_DTO_FETCH_ADD,
  DAT_IB_DTO_CMP_SWAP,
  DAT_IB_DTO_RECV_MSG_IMMED,
  DAT_IB_DTO_SEND_UD,
  DAT_IB_DTO_RECV_UD,
  DAT_IB_DTO_RECV_UD_IMMED,
  DAT_IB_DTO_COLLECTIVES
} DAT_IB_DTOS;

typedef enum dat_ib_handle_type {
  DAT_IB_HANDLE_TYPE_EXT = DAT_HANDLE_TYPE_EXTENSION_BASE,
  DAT_IB_HANDLE_TYPE_COLLECTIVE
} DAT_IB_HANDLE_TYPE;

typedef enum dat_ib_evd_extension_flags {
  DAT_IB_EVD_EXTENSION_FLAG = DAT_EVD_EXTENSION_BASE
} DAT_IB_EVD_EXTENSION_FLAGS;

typedef enum dat_ib_mem_priv_flags {
  DAT_IB_MEM_PRIV_REMOTE_ATOMIC = DAT_MEM_PRIV_EXTENSION_BASE
} DAT_IB_MEM_PRIV_FLAGS;

typedef enum dat_ib_service_type { DAT_IB_SERVICE_TYPE_UD = DAT_SERVICE_TYPE_EXTENSION_BASE } DAT_IB_SERVICE_TYPE;

// The peer of a datagram, as DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED gives it.
typedef struct dat_ib_addr_handle {
  struct ibv_ah* ah;
  DAT_UINT32 qpn;
  DAT_SOCK_ADDR6 ia_addr;
} DAT_IB_ADDR_HANDLE;

typedef struct dat_ib_immed_data {
  DAT_UINT32 data;
} DAT_IB_IMMED_DATA;

typedef struct dat_ib_collective_event_data {
  DAT_HANDLE handle;
  DAT_CONTEXT context;
} DAT_IB_COLLECTIVE_EVENT_DATA;

typedef struct dat_ib_collective_group {
  int local_size;
  int local_rank;
  int* local_ranks;
  int external_size;
  int external_rank;
  int* external_ranks;
  int* intranode_table;
  int* internode_table;
  int is_comm_world;
} DAT_IB_COLLECTIVE_GROUP;

// What DAT_EVENT::event_extension_data holds.
typedef struct dat_ib_extension_event_data {
  DAT_IB_EXT_TYPE type;
  DAT_IB_STATUS status;
  union {
    DAT_IB_IMMED_DATA immed;
  } val;
  __extension__ union {
    DAT_IB_ADDR_HANDLE remote_ah;
    DAT_IB_COLLECTIVE_EVENT_DATA coll;
  };
  DAT_CONTEXT context;
} DAT_IB_EXTENSION_EVENT_DATA;

#include <dat2/dat_ib_counters.h>

// Sends with an atomic operation, with immediate data, to the peer of a datagram.
#define dat_ib_post_fetch_and_add(ep, add_value, local_iov, cookie, remote_iov, flags)                                 \
  dat_extension_op((ep), DAT_IB_FETCH_AND_ADD_OP, (DAT_UINT64)(add_value), (DAT_LMR_TRIPLET*)(local_iov), (cookie),    \
                   (DAT_RMR_TRIPLET*)(remote_iov), (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_post_cmp_and_swap(ep, cmp_value, swap_value, local_iov, cookie, remote_iov, flags)                      \
  dat_extension_op((ep), DAT_IB_CMP_AND_SWAP_OP, (DAT_UINT64)(cmp_value), (DAT_UINT64)(swap_value),                    \
                   (DAT_LMR_TRIPLET*)(local_iov), (cookie), (DAT_RMR_TRIPLET*)(remote_iov),                            \
                   (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_post_rdma_write_immed(ep, segments, local_iov, cookie, remote_iov, immediate, flags)                    \
  dat_extension_op((ep), DAT_IB_RDMA_WRITE_IMMED_OP, (DAT_COUNT)(segments), (DAT_LMR_TRIPLET*)(local_iov), (cookie),   \
                   (DAT_RMR_TRIPLET*)(remote_iov), (DAT_UINT32)(immediate), (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_post_send_ud(ep, segments, local_iov, address, cookie, flags)                                           \
  dat_extension_op((ep), DAT_IB_UD_SEND_OP, (DAT_COUNT)(segments), (DAT_LMR_TRIPLET*)(local_iov),                      \
                   (DAT_IB_ADDR_HANDLE*)(address), (cookie), (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_post_recv_ud dat_ep_post_recv

// Frees what the establishment of a datagram peer has left, and the peer's address.
#define dat_ib_ud_cm_free(ep, cm) dat_extension_op((ep), DAT_IB_UD_CM_FREE_OP, (DAT_CONTEXT)(cm))
#define dat_ib_ud_ah_free(ep, address) dat_extension_op((ep), DAT_IB_UD_AH_FREE_OP, (DAT_IB_ADDR_HANDLE*)(address))

// Counters of an ia, an ep or an evd: one, or with DCNT_..._ALL_COUNTERS all of them.
#define dat_ib_query_counters(handle, counter, values, reset)                                                          \
  dat_extension_op((handle), DAT_IB_QUERY_COUNTERS_OP, (int)(counter), (DAT_UINT64*)(values), (int)(reset))
#define dat_ib_print_counters(handle, counter, reset)                                                                  \
  dat_extension_op((handle), DAT_IB_PRINT_COUNTERS_OP, (int)(counter), (int)(reset))
#define dat_ib_start_counter(ia, type) dat_extension_op((ia), DAT_IB_START_COUNTERS_OP, (DAT_IA_COUNTER_TYPE)(type))
#define dat_ib_stop_counter(ia, type) dat_extension_op((ia), DAT_IB_STOP_COUNTERS_OP, (DAT_IA_COUNTER_TYPE)(type))

// Attributes of an adapter without opening all of it.
#define dat_ib_open_query(name, ia_handle, ia_mask, ia_attr, provider_mask, provider_attr)                             \
  dat_extension_op((DAT_HANDLE)0, DAT_IB_OPEN_QUERY_OP, (DAT_NAME_PTR)(name), (DAT_HANDLE*)(ia_handle),                \
                   (DAT_IA_ATTR_MASK)(ia_mask), (DAT_IA_ATTR*)(ia_attr), (DAT_PROVIDER_ATTR_MASK)(provider_mask),      \
                   (DAT_PROVIDER_ATTR*)(provider_attr))
#define dat_ib_close_query(ia_handle) dat_extension_op((ia_handle), DAT_IB_CLOSE_QUERY_OP)

// The text of a DAT_RETURN that may be of the extensions.
static inline DAT_RETURN dat_strerror_extension(DAT_IB_RETURN value, const char** message) {
  if (DAT_GET_TYPE(value) != DAT_IB_ERR) return dat_strerror((DAT_RETURN)value, message, NULL);
  *message = "DAT_IB_ERR";
  return DAT_SUCCESS;
}

// The text of the status of an extension event.
static inline DAT_RETURN dat_strerror_ext_status(DAT_IB_STATUS value, const char** message) {
  *message = value == DAT_OP_SUCCESS ? " " : value == DAT_IB_OP_ERR ? "DAT_IB_OP_ERR" : "unknown extension status";
  return value == DAT_OP_SUCCESS || value == DAT_IB_OP_ERR ? DAT_SUCCESS : DAT_INVALID_PARAMETER;
}

// Earlier names
#define DAT_ATTR_COUNTERS DAT_IB_ATTR_COUNTERS
#define DAT_QUERY_COUNTERS_OP DAT_IB_QUERY_COUNTERS_OP
#define DAT_PRINT_COUNTERS_OP DAT_IB_PRINT_COUNTERS_OP
#define dat_query_counters dat_ib_query_counters
#define dat_print_counters dat_ib_print_counters

#endif
