// The functions that name enumerators.
// SPDX-License-Identifier: BSL-1.0
#include "state.hpp"

extern "C" {

// Cases in rows.
// clang-format off
#define S(e)                                                                                                           \
  case e:                                                                                                              \
    return #e;

const char* ibv_wc_status_str(ibv_wc_status status) {
  switch (status) {
    S(IBV_WC_SUCCESS) S(IBV_WC_LOC_LEN_ERR) S(IBV_WC_LOC_QP_OP_ERR) S(IBV_WC_LOC_EEC_OP_ERR) S(IBV_WC_LOC_PROT_ERR)
    S(IBV_WC_WR_FLUSH_ERR) S(IBV_WC_MW_BIND_ERR) S(IBV_WC_BAD_RESP_ERR) S(IBV_WC_LOC_ACCESS_ERR)
    S(IBV_WC_REM_INV_REQ_ERR) S(IBV_WC_REM_ACCESS_ERR) S(IBV_WC_REM_OP_ERR) S(IBV_WC_RETRY_EXC_ERR)
    S(IBV_WC_RNR_RETRY_EXC_ERR) S(IBV_WC_LOC_RDD_VIOL_ERR) S(IBV_WC_REM_INV_RD_REQ_ERR) S(IBV_WC_REM_ABORT_ERR)
    S(IBV_WC_INV_EECN_ERR) S(IBV_WC_INV_EEC_STATE_ERR) S(IBV_WC_FATAL_ERR) S(IBV_WC_RESP_TIMEOUT_ERR)
    S(IBV_WC_GENERAL_ERR) S(IBV_WC_TM_ERR) S(IBV_WC_TM_RNDV_INCOMPLETE)
  }
  return "unknown";
}

const char* ibv_event_type_str(ibv_event_type event) {
  switch (event) {
    S(IBV_EVENT_CQ_ERR) S(IBV_EVENT_QP_FATAL) S(IBV_EVENT_QP_REQ_ERR) S(IBV_EVENT_QP_ACCESS_ERR)
    S(IBV_EVENT_COMM_EST) S(IBV_EVENT_SQ_DRAINED) S(IBV_EVENT_PATH_MIG) S(IBV_EVENT_PATH_MIG_ERR)
    S(IBV_EVENT_DEVICE_FATAL) S(IBV_EVENT_PORT_ACTIVE) S(IBV_EVENT_PORT_ERR) S(IBV_EVENT_LID_CHANGE)
    S(IBV_EVENT_PKEY_CHANGE) S(IBV_EVENT_SM_CHANGE) S(IBV_EVENT_SRQ_ERR) S(IBV_EVENT_SRQ_LIMIT_REACHED)
    S(IBV_EVENT_QP_LAST_WQE_REACHED) S(IBV_EVENT_CLIENT_REREGISTER) S(IBV_EVENT_GID_CHANGE) S(IBV_EVENT_WQ_FATAL)
  }
  return "unknown";
}

const char* ibv_node_type_str(ibv_node_type type) {
  switch (type) {
    S(IBV_NODE_CA) S(IBV_NODE_SWITCH) S(IBV_NODE_ROUTER) S(IBV_NODE_RNIC) S(IBV_NODE_USNIC) S(IBV_NODE_USNIC_UDP)
    S(IBV_NODE_UNSPECIFIED) S(IBV_NODE_UNKNOWN)
  }
  return "unknown";
}

const char* ibv_port_state_str(ibv_port_state state) {
  switch (state) {
    S(IBV_PORT_NOP) S(IBV_PORT_DOWN) S(IBV_PORT_INIT) S(IBV_PORT_ARMED) S(IBV_PORT_ACTIVE) S(IBV_PORT_ACTIVE_DEFER)
  }
  return "unknown";
}

const char* rdma_event_str(rdma_cm_event_type event) {
  switch (event) {
    S(RDMA_CM_EVENT_ADDR_RESOLVED) S(RDMA_CM_EVENT_ADDR_ERROR) S(RDMA_CM_EVENT_ROUTE_RESOLVED)
    S(RDMA_CM_EVENT_ROUTE_ERROR) S(RDMA_CM_EVENT_CONNECT_REQUEST) S(RDMA_CM_EVENT_CONNECT_RESPONSE)
    S(RDMA_CM_EVENT_CONNECT_ERROR) S(RDMA_CM_EVENT_UNREACHABLE) S(RDMA_CM_EVENT_REJECTED)
    S(RDMA_CM_EVENT_ESTABLISHED) S(RDMA_CM_EVENT_DISCONNECTED) S(RDMA_CM_EVENT_DEVICE_REMOVAL)
    S(RDMA_CM_EVENT_MULTICAST_JOIN) S(RDMA_CM_EVENT_MULTICAST_ERROR) S(RDMA_CM_EVENT_ADDR_CHANGE)
    S(RDMA_CM_EVENT_TIMEWAIT_EXIT)
  }
  return "UNKNOWN EVENT";
}

#undef S
// clang-format on

} // extern "C"
