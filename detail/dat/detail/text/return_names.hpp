// Names and meanings of all DAT return types and subtypes.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>

#include <array>

namespace dat { inline namespace v0 {
namespace detail {

// Literals, because a constexpr string_view would be evaluated in every compilation.
struct name_and_meaning {
  const char* name;
  const char* meaning;
};

constexpr name_and_meaning describe(return_type type) noexcept {
  switch (type) {
  case return_type::success:
    return {"success", "the operation succeeded"};
  case return_type::abort:
    return {"abort", "the object was closed while the call was waiting"};
  case return_type::conn_qual_in_use:
    return {"conn_qual_in_use", "the connection qualifier is in use"};
  case return_type::insufficient_resources:
    return {"insufficient_resources", "a resource limit was reached"};
  case return_type::internal_error:
    return {"internal_error", "internal error"};
  case return_type::invalid_handle:
    return {"invalid_handle", "the handle is empty or its adapter was closed"};
  case return_type::invalid_parameter:
    return {"invalid_parameter", "an argument is not valid"};
  case return_type::invalid_state:
    return {"invalid_state", "the object is not in a state that allows this"};
  case return_type::length_error:
    return {"length_error", "the data does not fit"};
  case return_type::model_not_supported:
    return {"model_not_supported", "not supported by this adapter"};
  case return_type::provider_not_found:
    return {"provider_not_found", "no such adapter"};
  case return_type::privileges_violation:
    return {"privileges_violation", "a permission is missing"};
  case return_type::protection_violation:
    return {"protection_violation", "memory and endpoint are in different protection zones"};
  case return_type::queue_empty:
    return {"queue_empty", "the queue is empty"};
  case return_type::queue_full:
    return {"queue_full", "the queue is full"};
  case return_type::timeout_expired:
    return {"timeout_expired", "the time-out expired"};
  case return_type::provider_already_registered:
    return {"provider_already_registered", "the adapter is registered already"};
  case return_type::provider_in_use:
    return {"provider_in_use", "the adapter is in use"};
  case return_type::invalid_address:
    return {"invalid_address", "the address cannot be used"};
  case return_type::interrupted_call:
    return {"interrupted_call", "a signal interrupted the call"};
  case return_type::conn_qual_unavailable:
    return {"conn_qual_unavailable", "no connection qualifier is free"};
  case return_type::port_in_use:
    return {"port_in_use", "the port is in use"};
  case return_type::comm_not_supported:
    return {"comm_not_supported", "the communicator is not supported"};
  case return_type::extension_base:
    return {"extension_base", "an InfiniBand extension failed"};
  case return_type::not_implemented:
    return {"not_implemented", "not implemented"};
  }
  return {"unknown return_type", "unknown return type"};
}

// Indexed by value: the subtypes are numbered 0..102 without gaps.
inline constexpr std::array<name_and_meaning, 103> subtype_table{{
    {"none", "no detail"},
    {"interrupted", "interrupted"},
    {"resource_memory", "host memory"},
    {"resource_device", "device"},
    {"resource_tep", "queue pairs or their queue entries"},
    {"resource_tevd", "completion queues"},
    {"resource_protection_domain", "protection domains"},
    {"resource_memory_region", "memory that may be registered"},
    {"resource_error_handler", "asynchronous error handler"},
    {"resource_credits", "RDMA read credits"},
    {"resource_srq", "shared receive queues or their entries"},
    {"handle_ia", "ia handle"},
    {"handle_ep", "ep handle"},
    {"handle_lmr", "lmr handle"},
    {"handle_rmr", "rmr handle"},
    {"handle_pz", "pz handle"},
    {"handle_psp", "psp handle"},
    {"handle_rsp", "rsp handle"},
    {"handle_cr", "cr handle"},
    {"handle_cno", "cno handle"},
    {"handle_evd_cr", "evd for connection requests"},
    {"handle_evd_request", "evd for request completions"},
    {"handle_evd_recv", "evd for receive completions"},
    {"handle_evd_conn", "evd for connection events"},
    {"handle_evd_async", "evd for asynchronous errors"},
    {"handle_srq", "srq handle"},
    {"handle_csp", "csp handle"},
    {"handle1", "handle argument 1"},
    {"handle2", "handle argument 2"},
    {"handle3", "handle argument 3"},
    {"handle4", "handle argument 4"},
    {"handle5", "handle argument 5"},
    {"handle6", "handle argument 6"},
    {"handle7", "handle argument 7"},
    {"handle8", "handle argument 8"},
    {"handle9", "handle argument 9"},
    {"handle10", "handle argument 10"},
    {"arg1", "argument 1"},
    {"arg2", "argument 2"},
    {"arg3", "argument 3"},
    {"arg4", "argument 4"},
    {"arg5", "argument 5"},
    {"arg6", "argument 6"},
    {"arg7", "argument 7"},
    {"arg8", "argument 8"},
    {"arg9", "argument 9"},
    {"arg10", "argument 10"},
    {"ep_unconnected", "the endpoint is not connected"},
    {"ep_actconnpending", "the endpoint is connecting"},
    {"ep_passconnpending", "the endpoint is waiting for a connection to be accepted"},
    {"ep_tentconnpending", "the endpoint is tentatively bound to a connection request"},
    {"ep_connected", "the endpoint is connected"},
    {"ep_disconnected", "the endpoint is disconnected"},
    {"ep_reserved", "the endpoint is reserved by a service point"},
    {"ep_complpending", "the endpoint is completing a connection"},
    {"ep_discpending", "the endpoint is disconnecting"},
    {"ep_providercontrol", "the endpoint is under the provider's control"},
    {"ep_notready", "the endpoint is not ready"},
    {"ep_recv_watermark", "the endpoint's receive watermark"},
    {"ep_pz", "the endpoint's protection zone"},
    {"ep_evd_request", "the endpoint's evd for request completions"},
    {"ep_evd_recv", "the endpoint's evd for receive completions"},
    {"ep_evd_connect", "the endpoint's evd for connection events"},
    {"ep_unconfigured", "the endpoint is not configured"},
    {"ep_unconfreserved", "the endpoint is reserved and not configured"},
    {"ep_unconfpassive", "the endpoint is accepting and not configured"},
    {"ep_unconftentative", "the endpoint is tentatively bound and not configured"},
    {"cno_in_use", "the cno is in use"},
    {"cno_dead", "the cno is dead"},
    {"evd_open", "the evd is open"},
    {"evd_enabled", "the evd is enabled"},
    {"evd_disabled", "the evd is disabled"},
    {"evd_waitable", "the evd may be waited on"},
    {"evd_unwaitable", "the evd may not be waited on"},
    {"evd_in_use", "the evd is in use"},
    {"evd_config_notify", "the evd notifies by completion flags"},
    {"evd_config_solicited", "the evd notifies on solicited events"},
    {"evd_config_threshold", "the evd notifies by threshold"},
    {"evd_waiter", "another thread waits on the evd"},
    {"evd_async", "the evd belongs to asynchronous errors"},
    {"ia_in_use", "the adapter still has objects"},
    {"lmr_in_use", "the lmr is in use"},
    {"lmr_free", "the lmr is free"},
    {"pz_in_use", "the protection zone is in use"},
    {"pz_free", "the protection zone is free"},
    {"srq_operational", "the shared receive queue is operational"},
    {"srq_error", "the shared receive queue is in error"},
    {"srq_in_use", "the shared receive queue is in use"},
    {"privileges_read", "local read access"},
    {"privileges_write", "local write access"},
    {"privileges_rdma_read", "remote read access"},
    {"privileges_rdma_write", "remote write access"},
    {"protection_read", "memory for local reading"},
    {"protection_write", "memory for local writing"},
    {"protection_rdma_read", "memory for remote reading"},
    {"protection_rdma_write", "memory for remote writing"},
    {"address_unsupported", "no endpoint can have such an address"},
    {"address_unreachable", "no route leads to the address"},
    {"address_malformed", "it is no valid address"},
    {"name_not_registered", "no adapter of this name"},
    {"major_not_found", "no adapter of this major version"},
    {"minor_not_found", "no adapter of this minor version"},
    {"thread_safety_not_found", "no adapter of this thread safety"},
}};

constexpr name_and_meaning describe(return_subtype subtype) noexcept {
  const auto value = static_cast<std::size_t>(subtype);
  if (value < subtype_table.size()) return subtype_table[value];
  return {"unknown return_subtype", "unknown detail"};
}

static_assert(subtype_table[static_cast<std::size_t>(return_subtype::thread_safety_not_found)].name ==
              std::string_view("thread_safety_not_found"));

} // namespace detail

constexpr std::string_view to_string(return_class c) noexcept {
  switch (c) {
  case return_class::success:
    return "success";
  case return_class::warning:
    return "warning";
  case return_class::error:
    return "error";
  }
  return "unknown return_class";
}

constexpr std::string_view to_string(return_type type) noexcept { return detail::describe(type).name; }
constexpr std::string_view to_string(return_subtype subtype) noexcept { return detail::describe(subtype).name; }

constexpr std::string_view to_string(object_kind kind) noexcept {
  switch (kind) {
  case object_kind::none:
    return "none";
  case object_kind::ia:
    return "ia";
  case object_kind::pz:
    return "pz";
  case object_kind::lmr:
    return "lmr";
  case object_kind::rmr:
    return "rmr";
  case object_kind::srq:
    return "srq";
  case object_kind::evd:
    return "evd";
  case object_kind::cno:
    return "cno";
  case object_kind::psp:
    return "psp";
  case object_kind::rsp:
    return "rsp";
  case object_kind::csp:
    return "csp";
  case object_kind::cr:
    return "cr";
  case object_kind::ep:
    return "ep";
  }
  return "unknown object_kind";
}

constexpr bool valid_pair(return_type type, return_subtype subtype) noexcept {
  const auto s = static_cast<unsigned>(subtype);
  const auto within = [s](unsigned first, unsigned last) { return s >= first && s <= last; };
  if (s == 0) return to_string(type) != "unknown return_type";
  switch (type) {
  case return_type::abort:
    return s == 1;
  case return_type::insufficient_resources:
    return within(2, 10);
  case return_type::invalid_handle:
    return within(11, 36);
  case return_type::invalid_parameter:
    return within(37, 46);
  case return_type::invalid_state:
    return within(47, 87);
  case return_type::privileges_violation:
    return within(88, 91);
  case return_type::protection_violation:
    return within(92, 95);
  case return_type::invalid_address:
    return within(96, 98);
  case return_type::provider_not_found:
    return within(99, 102);
  default:
    return false;
  }
}

constexpr std::string_view error::major() const noexcept { return detail::describe(type_).meaning; }
constexpr std::string_view error::minor() const noexcept { return detail::describe(subtype_).meaning; }

}} // namespace dat::v0
