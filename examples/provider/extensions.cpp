// Extended operations: immediate data, atomics, datagrams and counters, with the arguments of OFA's
// dat_ib_extensions.h. SPDX-License-Identifier: BSL-1.0
#include "entries.hpp"
#include "local_memory.hpp"

#include <cstdarg>
#include <cstdio>
#include <dat/counters.hpp>
#include <dat/ib.hpp>
#include <new>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace provider {

namespace {

// The names of the counters, in the order of their numbers.
constexpr std::string_view ia_names =
    "pz_create pz_free lmr_create lmr_free rmr_create rmr_free psp_create psp_create_any psp_free rsp_create "
    "rsp_free evd_create evd_free ep_create ep_free srq_create srq_free sp_cr sp_cr_accepted sp_cr_rejected "
    "mem_alloc mem_alloc_data mem_free async_error async_qp_error async_cq_error cm_listen cm_req_tx cm_req_rx "
    "cm_rep_tx cm_rep_rx cm_rtu_tx cm_rtu_rx cm_user_rej_tx cm_user_rej_rx cm_active_est cm_passive_est "
    "cm_ah_req_tx cm_ah_req_rx cm_ah_resolved cm_dreq_tx cm_dreq_rx cm_drep_tx cm_drep_rx cm_mra_tx cm_mra_rx "
    "cm_req_fullq_poll cm_err cm_err_req_fullq cm_err_req_dup cm_err_req_retry cm_err_rep_dup cm_err_rep_retry "
    "cm_err_rtu_dup cm_err_rtu_retry cm_err_refused cm_err_reset cm_err_timeout cm_err_rej_tx cm_err_rej_rx "
    "cm_err_dreq_dup cm_err_dreq_retry cm_err_drep_dup cm_err_drep_retry cm_err_mra_dup cm_err_mra_retry "
    "cm_err_unexpected lnk_err_rcv lnk_err_rcv_rem_phys lnk_err_rcv_constraint lnk_err_xmt_discards "
    "lnk_err_xmt_contraint lnk_err_integrity lnk_err_exc_buf_overrun lnk_warn_rcv_sw_relay lnk_warn_xmt_wait "
    "diag_err_rq_rae diag_err_rq_oos diag_err_rq_rire diag_err_rq_udsdprd diag_err_sq_rae diag_err_sq_oos "
    "diag_err_sq_rire diag_err_sq_rree diag_err_sq_tree";
constexpr std::string_view ep_names =
    "connect disconnect post_send post_send_data post_send_ud post_send_ud_data post_recv post_recv_data "
    "post_write post_write_data post_write_imm post_write_imm_data post_read post_read_data post_cmp_swap "
    "post_fetch_add recv recv_data recv_ud recv_ud_data recv_imm recv_imm_data recv_rdma_imm recv_rdma_imm_data";
constexpr std::string_view evd_names =
    "wait wait_blocked wait_notify dequeue dequeue_found dequeue_not_found dequeue_poll dequeue_poll_found "
    "conn_callback dto_callback";

/// The device's counter of a link's counter; its name as drivers have it.
struct link_counter {
  DAT_IA_COUNTERS which;
  std::string_view name;
};
constexpr link_counter link_counters[] = {{DCNT_IA_LNK_ERR_RCV, "port_rcv_errors"},
                                          {DCNT_IA_LNK_ERR_RCV_REM_PHYS, "port_rcv_remote_physical_errors"},
                                          {DCNT_IA_LNK_ERR_RCV_CONSTRAINT, "port_rcv_constraint_errors"},
                                          {DCNT_IA_LNK_ERR_XMT_DISCARDS, "port_xmit_discards"},
                                          {DCNT_IA_LNK_ERR_XMT_CONTRAINT, "port_xmit_constraint_errors"},
                                          {DCNT_IA_LNK_ERR_INTEGRITY, "local_link_integrity_errors"},
                                          {DCNT_IA_LNK_ERR_EXC_BUF_OVERRUN, "excessive_buffer_overrun_errors"},
                                          {DCNT_IA_LNK_WARN_RCV_SW_RELAY, "port_rcv_switch_relay_errors"},
                                          {DCNT_IA_LNK_WARN_XMT_WAIT, "port_xmit_wait"}};

template <class Operation>
[[nodiscard]] DAT_RETURN post_one(ep_object& e, Operation& operation, DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags,
                                  const char* call) noexcept {
  if (!set_flags(operation, flags)) return bad_argument(8, call);
  operation.cookie(dat::cookie(cookie.as_64));
  return word(e.ref.post(operation));
}

/// Posts the atomic that `make(old, remote)` makes of one word here and one at the peer.
template <class Make>
[[nodiscard]] DAT_RETURN post_atomic(DAT_HANDLE ep, const DAT_LMR_TRIPLET* local, DAT_DTO_COOKIE cookie,
                                     const DAT_RMR_TRIPLET* remote, DAT_COMPLETION_FLAGS flags, DAT_EP_COUNTERS counter,
                                     const char* call, Make make) noexcept {
  const post_to e(ep, handle::requests);
  if (!e) return bad_handle(return_subtype::handle_ep, call);
  if (!local || !remote) return bad_argument(local ? 6 : 4, call);
  if (local->segment_length < sizeof(std::uint64_t) || remote->segment_length < sizeof(std::uint64_t))
    return refuse(return_type::length_error, return_subtype::none, call);
  const auto here = segment(e->ia.regions.find(local->lmr_context), *local, dat::local_write);
  if (!here) return word(here);
  const auto old = here.assume_value().as<std::uint64_t>(0, 1);
  const auto there = dat::remote_segment<std::uint64_t, dat::mem_priv::remote_atomic>::make(remote->virtual_address, 1,
                                                                                            remote->rmr_context);
  if (!old || !there) return bad_argument(old ? 6 : 4, call);
  e->counters.add(counter);
  auto operation = make(old.assume_value(), there.assume_value());
  return post_one(*e, operation, cookie, flags, call);
}

// The operations have the arguments of the macros of dat_ib_extensions.h, in their order.

[[nodiscard]] DAT_RETURN fetch_and_add(DAT_HANDLE ep, DAT_UINT64 add, DAT_LMR_TRIPLET* local, DAT_DTO_COOKIE cookie,
                                       DAT_RMR_TRIPLET* remote, DAT_COMPLETION_FLAGS flags) noexcept {
  return post_atomic(ep, local, cookie, remote, flags, DCNT_EP_POST_FETCH_ADD, "dat_ib_post_fetch_and_add",
                     [=](auto& old, auto& there) { return dat::ib::fetch_and_add(old, there, add); });
}

[[nodiscard]] DAT_RETURN compare_and_swap(DAT_HANDLE ep, DAT_UINT64 compare, DAT_UINT64 swap, DAT_LMR_TRIPLET* local,
                                          DAT_DTO_COOKIE cookie, DAT_RMR_TRIPLET* remote,
                                          DAT_COMPLETION_FLAGS flags) noexcept {
  return post_atomic(ep, local, cookie, remote, flags, DCNT_EP_POST_CMP_SWAP, "dat_ib_post_cmp_and_swap",
                     [=](auto& old, auto& there) { return dat::ib::compare_and_swap(old, there, compare, swap); });
}

[[nodiscard]] DAT_RETURN write_immediate(DAT_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET* local, DAT_DTO_COOKIE cookie,
                                         DAT_RMR_TRIPLET* remote, DAT_UINT32 immediate,
                                         DAT_COMPLETION_FLAGS flags) noexcept {
  static constexpr const char* call = "dat_ib_post_rdma_write_immed";
  const post_to e(ep, handle::requests);
  if (!e) return bad_handle(return_subtype::handle_ep, call);
  const auto post = [=, to_ep = e.get()](const auto& memory) {
    const auto to = remote_segment(remote, dat::remote_write);
    if (!to) return bad_argument(6, call);
    dat::rdma_write operation(memory, to.assume_value());
    if ((flags & DAT_COMPLETION_SOLICITED_WAIT_FLAG) != 0)
      operation.solicited_immediate(immediate);
    else
      operation.immediate(immediate);
    to_ep->counters.add(DCNT_EP_POST_WRITE_IMM);
    to_ep->counters.add(DCNT_EP_POST_WRITE_IMM_DATA, memory.size_bytes());
    carry_small(operation, *to_ep, memory.size_bytes());
    const int others = flags & ~DAT_COMPLETION_SOLICITED_WAIT_FLAG;
    return post_one(*to_ep, operation, cookie, static_cast<DAT_COMPLETION_FLAGS>(others), call);
  };
  return with_local(e->ia, e.region(), n, local, dat::local_read, call, post);
}

[[nodiscard]] DAT_RETURN send_datagram(DAT_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET* local, DAT_IB_ADDR_HANDLE* peer,
                                       DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags) noexcept {
  static constexpr const char* call = "dat_ib_post_send_ud";
  const post_to e(ep, handle::requests);
  if (!e || !e->is_datagram()) return bad_handle(return_subtype::handle_ep, call);
  if (!peer) return bad_argument(5, call);
  const call_on<peer_object> to(reinterpret_cast<DAT_HANDLE>(peer->ah));
  if (!to) return bad_argument(5, call);
  const auto post = [=, from = e.get(), &peer_of = *to](const auto& memory) {
    dat::ib::send_to operation(memory, peer_of.to);
    from->counters.add(DCNT_EP_POST_SEND_UD);
    from->counters.add(DCNT_EP_POST_SEND_UD_DATA, memory.size_bytes());
    carry_small(operation, *from, memory.size_bytes());
    // A datagram has no fence: the flag is one that it cannot have.
    if (!set_flags(operation, flags)) return bad_argument(7, call);
    operation.cookie(dat::cookie(cookie.as_64));
    return word(from->ud.post(operation));
  };
  return with_local(e->ia, e.region(), n, local, dat::local_read, call, post);
}

[[nodiscard]] DAT_RETURN free_peer(DAT_HANDLE ep, DAT_IB_ADDR_HANDLE* peer) noexcept {
  const entry_call<ep_object> e(ep, "dat_ib_ud_ah_free");
  if (!e) return e.bad_handle();
  if (!peer) return e.bad_argument(3);
  return end_object(entry_call<peer_object>(peer->ah, e.name()), [](peer_object&) { return success; });
}

// --- counters --------------------------------------------------------------------------------------------------------

/// Adds the counters of the port to those of an ia.
void read_link(adapter& a, DAT_UINT64* values) noexcept {
  try {
    const auto device = dat::read_device_counters(a.ia);
    if (!device) return;
    for (const dat::device_counter& c : device.assume_value())
      for (const link_counter& l : link_counters)
        if (c.name == l.name) values[l.which] = c.value;
  } catch (const std::bad_alloc&) { // they stay 0
  }
}

/// Reads the counters of an ia, an endpoint or an evd: the one with the number `which`, or all. `take(names, number,
/// value)`.
template <class Take>
[[nodiscard]] DAT_RETURN read_counters(DAT_HANDLE of, int which, bool reset, const char* call, Take take) noexcept {
  const section here;
  const auto read = [&](std::string_view names, int all, auto value) {
    if (which < 0 || which > all) return bad_argument(3, call);
    for (int i = 0; i < all; ++i)
      if (which == all || which == i) take(names, i, value(static_cast<std::size_t>(i)));
    return success;
  };
  if (const call_on<ep_object> e(of); e) {
    const post_to no_request(of, handle::requests), no_receive(of, handle::receives);
    return read(ep_names, DCNT_EP_ALL_COUNTERS, [&](std::size_t i) { return e->counters.read(i, reset); });
  }
  if (const call_on<evd_object> e(of); e)
    return read(evd_names, DCNT_EVD_ALL_COUNTERS, [&](std::size_t i) {
      DAT_UINT64 value = e->counters.read(i, reset);
      if (i == DCNT_EVD_DEQUEUE) // which is not counted itself
        for (const auto each : {DCNT_EVD_DEQUEUE_FOUND, DCNT_EVD_DEQUEUE_NOT_FOUND})
          value += e->counters.read(each, false);
      return value;
    });
  if (const call_on<adapter> a(of); a) {
    DAT_UINT64 link[DCNT_IA_ALL_COUNTERS] = {};
    read_link(*a, link);
    return read(ia_names, DCNT_IA_ALL_COUNTERS, [&](std::size_t i) { return link[i] + a->counters.read(i, reset); });
  }
  return bad_handle(return_subtype::handle1, call);
}

[[nodiscard]] DAT_RETURN query_counters(DAT_HANDLE of, int which, DAT_UINT64* out, int reset) noexcept {
  static constexpr const char* call = "dat_ib_query_counters";
  if (!out) return bad_argument(4, call);
  return read_counters(of, which, reset != 0, call, [&](std::string_view, int, DAT_UINT64 value) { *out++ = value; });
}

[[nodiscard]] DAT_RETURN print_counters(DAT_HANDLE of, int which, int reset) noexcept {
  const auto print = [](std::string_view names, int number, DAT_UINT64 value) {
    for (; number != 0; --number) names.remove_prefix(names.find(' ') + 1);
    const std::string_view name = names.substr(0, names.find(' '));
    std::printf("%-28.*s %llu\n", static_cast<int>(name.size()), name.data(), static_cast<unsigned long long>(value));
  };
  return read_counters(of, which, reset != 0, "dat_ib_print_counters", print);
}

/// Starts or stops the sampling of a kind of counters. All of them always run; so only whether they exist is answered.
[[nodiscard]] DAT_RETURN sample_counters(DAT_HANDLE ia, int type) noexcept {
  const entry_call<adapter> a(ia, "dat_ib_start_counter");
  if (!a) return a.bad_handle();
  if (type == DCNT_IA_CM || type == DCNT_IA_LNK) return success;
  return type == DCNT_IA_DIAG ? a.refuse(return_type::model_not_supported) : a.bad_argument(3);
}

// --- the fast query --------------------------------------------------------------------------------------------------

[[nodiscard]] DAT_RETURN open_query(DAT_HANDLE, DAT_NAME_PTR name, DAT_HANDLE* ia, DAT_IA_ATTR_MASK ia_mask,
                                    DAT_IA_ATTR* ia_attr, DAT_PROVIDER_ATTR_MASK provider_mask,
                                    DAT_PROVIDER_ATTR* provider_attr) noexcept {
  static constexpr const char* call = "dat_ib_open_query";
  if (!name) return bad_argument(3, call);
  if (!ia) return bad_argument(4, call);
  DAT_EVD_HANDLE async_evd = DAT_EVD_ASYNC_EXISTS;
  DAT_RETURN opened = ia_open(name, false, 1, &async_evd, ia);
  if (DAT_GET_TYPE(opened) == DAT_PROVIDER_NOT_FOUND) opened = ia_open(name, true, 1, &async_evd, ia);
  if (opened != success) return opened;
  return ia_query(*ia, nullptr, ia_attr ? ia_mask : 0, ia_attr, provider_attr ? provider_mask : 0, provider_attr);
}

[[nodiscard]] DAT_RETURN close_query(DAT_HANDLE ia) noexcept { return ia_close(ia, DAT_CLOSE_ABRUPT_FLAG); }

/// The event ended the objects that connected a datagram endpoint to its peer: nothing is left to free.
[[nodiscard]] DAT_RETURN free_connection(DAT_HANDLE ep) noexcept {
  return call_on<ep_object>(ep) ? success : bad_handle(return_subtype::handle_ep, "dat_ib_ud_cm_free");
}

// --- the arguments ---------------------------------------------------------------------------------------------------

template <class Argument> // in a list, enumerators are numbers
using in_list = std::conditional_t<std::is_enum_v<Argument>, int, Argument>;

template <auto Operation>
struct operation;
template <class... Arguments, DAT_RETURN (*Operation)(DAT_HANDLE, Arguments...) noexcept>
struct operation<Operation> {
  /// Reads the arguments of an operation from the list, and calls the operation with them.
  static DAT_RETURN call(DAT_HANDLE named, [[maybe_unused]] va_list args) noexcept {
    // In braces, so that they are taken in their order.
    const std::tuple<Arguments...> taken{static_cast<Arguments>(va_arg(args, in_list<Arguments>))...};
    return std::apply([&](const Arguments&... arguments) { return Operation(named, arguments...); }, taken);
  }
};

constexpr std::pair<DAT_IB_OP, DAT_RETURN (*)(DAT_HANDLE, va_list) noexcept> extended_operations[] = {
    {DAT_IB_FETCH_AND_ADD_OP, operation<fetch_and_add>::call},
    {DAT_IB_CMP_AND_SWAP_OP, operation<compare_and_swap>::call},
    {DAT_IB_RDMA_WRITE_IMMED_OP, operation<write_immediate>::call},
    {DAT_IB_UD_SEND_OP, operation<send_datagram>::call},
    {DAT_IB_UD_AH_FREE_OP, operation<free_peer>::call},
    {DAT_IB_UD_CM_FREE_OP, operation<free_connection>::call},
    {DAT_IB_QUERY_COUNTERS_OP, operation<query_counters>::call},
    {DAT_IB_PRINT_COUNTERS_OP, operation<print_counters>::call},
    {DAT_IB_START_COUNTERS_OP, operation<sample_counters>::call},
    {DAT_IB_STOP_COUNTERS_OP, operation<sample_counters>::call},
    {DAT_IB_OPEN_QUERY_OP, operation<open_query>::call},
    {DAT_IB_CLOSE_QUERY_OP, operation<close_query>::call},
};

DAT_RETURN extended_operation(DAT_HANDLE named, DAT_EXTENDED_OP op, va_list args) {
  for (const auto& [number, call] : extended_operations)
    if (op == static_cast<DAT_EXTENDED_OP>(number)) return call(named, args);
  return refuse(return_type::model_not_supported, return_subtype::none, "dat_extension_op"); // collective ones, too
}

} // namespace

void add_extensions(DAT_PROVIDER& table) noexcept { table.handle_extendedop_func = extended_operation; }

} // namespace provider

/// The function that libdat2 calls for an extended operation without a handle.
extern "C" [[gnu::visibility("default")]] DAT_RETURN dapl_extensions(DAT_HANDLE named, DAT_EXTENDED_OP op,
                                                                     va_list args) {
  return provider::extended_operation(named, op, args);
}
