// From the events of dat to DAT_EVENT. (The common completions are in convert.hpp.)
// SPDX-License-Identifier: BSL-1.0
#include "calls.hpp"

#include <cstring>

namespace provider {
namespace {

/// Fills in the data of an event of the extensions.
void extend(DAT_EVENT& to, const DAT_IB_EXTENSION_EVENT_DATA& data) noexcept {
  static_assert(sizeof data <= sizeof to.event_extension_data);
  std::memset(to.event_extension_data, 0, sizeof to.event_extension_data);
  std::memcpy(to.event_extension_data, &data, sizeof data);
}

/// The number of an operation in C, and its kind where it is one of the extensions.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): the order of the table below
struct operation_in_c {
  dat::dto_operation operation;
  int number;
  bool extended = false;
  DAT_IB_EXT_TYPE type{};
};
using op = dat::dto_operation;
constexpr operation_in_c operations_in_c[] = {
    {op::rdma_write, DAT_DTO_RDMA_WRITE},
    {op::rdma_read, DAT_DTO_RDMA_READ},
    {op::rdma_read_to_rmr, DAT_DTO_RDMA_READ},
    {op::recv, DAT_DTO_RECEIVE},
    {op::recv_with_invalidate, DAT_DTO_RECEIVE_WITH_INVALIDATE},
    {op::rdma_write_immediate, DAT_IB_DTO_RDMA_WRITE_IMMED, true, DAT_IB_RDMA_WRITE_IMMED},
    {op::recv_rdma_immediate, DAT_IB_DTO_RECV_IMMED, true, DAT_IB_RDMA_WRITE_IMMED_DATA},
    {op::recv_immediate, DAT_IB_DTO_RECV_MSG_IMMED, true, DAT_IB_RECV_IMMED_DATA},
    {op::fetch_and_add, DAT_IB_DTO_FETCH_ADD, true, DAT_IB_FETCH_AND_ADD},
    {op::compare_and_swap, DAT_IB_DTO_CMP_SWAP, true, DAT_IB_CMP_AND_SWAP},
    {op::send_ud, DAT_IB_DTO_SEND_UD, true, DAT_IB_UD_SEND},
    {op::recv_ud, DAT_IB_DTO_RECV_UD, true, DAT_IB_UD_RECV},
    {op::recv_ud_immediate, DAT_IB_DTO_RECV_UD_IMMED, true, DAT_IB_UD_RECV},
    {op::bind, DAT_DTO_BIND_MW},
    {op::unbind, DAT_DTO_BIND_MW},
};
[[nodiscard]] operation_in_c in_c(dat::dto_operation operation) noexcept {
  for (const operation_in_c& o : operations_in_c)
    if (o.operation == operation) return o;
  return {operation, DAT_DTO_SEND};
}

} // namespace

void event_writer::operation(dat::dto_operation done, const dat::completion& e, std::size_t bytes,
                             std::uint32_t immediate) const noexcept {
  const operation_in_c c = in_c(done);
  dto(static_cast<DAT_DTOS>(c.number), e, bytes);
  if (!c.extended) return;
  to.event_number = static_cast<DAT_EVENT_NUMBER>(DAT_IB_DTO_EVENT);
  DAT_IB_EXTENSION_EVENT_DATA data{};
  data.type = c.type;
  data.status = DAT_OP_SUCCESS;
  data.val.immed.data = immediate;
  extend(to, data);
}

void event_writer::write(dat::dto_failure& e) const noexcept {
  const operation_in_c failed = in_c(e.operation());
  if (failed.number == DAT_DTO_BIND_MW) {
    auto& data = to.event_data.rmr_completion_event_data;
    to.event_number = DAT_RMR_BIND_COMPLETION_EVENT;
    data.rmr_handle = evd.ia.find<rmr_object>([&e](const rmr_object& r) { return e.is_of(r.rmr); });
    data.user_cookie.as_64 = e.cookie().value();
    data.status = static_cast<DAT_DTO_COMPLETION_STATUS>(e.status());
    return;
  }
  operation(e.operation(), e, 0);
  if (failed.extended) reinterpret_cast<DAT_IB_EXTENSION_EVENT_DATA*>(to.event_extension_data)->status = DAT_IB_OP_ERR;
  to.event_data.dto_completion_event_data.status = static_cast<DAT_DTO_COMPLETION_STATUS>(e.status());
}

void event_writer::write(dat::bind_done& e) const noexcept {
  auto& data = to.event_data.rmr_completion_event_data;
  to.event_number = DAT_RMR_BIND_COMPLETION_EVENT;
  data.rmr_handle = evd.ia.find<rmr_object>([&e](const rmr_object& r) { return e.is_of(r.rmr); });
  data.user_cookie.as_64 = e.cookie().value();
  data.status = DAT_DTO_SUCCESS;
}

void event_writer::connection(DAT_EVENT_NUMBER number, const dat::connection_event& e,
                              std::span<const std::byte> data) const noexcept {
  to.event_number = number;
  auto& c = to.event_data.connect_event_data;
  c.ep_handle = e.ep().context<handle>();
  c.private_data_size = 0;
  c.private_data = nullptr;
  const call_on<ep_object> ep(c.ep_handle);
  if (!ep || data.empty()) return;
  const std::lock_guard lock(ep->mutex);
  ep->private_data.assign(data);
  c.private_data_size = ep->private_data.size();
  c.private_data = ep->private_data.data();
}

void event_writer::write(dat::ib::datagram_established& e) const noexcept {
  connection(static_cast<DAT_EVENT_NUMBER>(DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED), e, e.private_data());
  DAT_IB_EXTENSION_EVENT_DATA data{};
  data.type = e.is_passive() ? DAT_IB_UD_PASSIVE_REMOTE_AH : DAT_IB_UD_REMOTE_AH;
  data.status = DAT_OP_SUCCESS;
  if (auto peer = e.peer()) {
    data.remote_ah.qpn = peer.assume_value().qp_number();
    auto made = make_object<peer_object>(evd.ia, std::move(peer).assume_value());
    data.remote_ah.ah = reinterpret_cast<ibv_ah*>(evd.ia.add(std::move(made)));
  }
  if (!data.remote_ah.ah) data.status = DAT_IB_OP_ERR;
  const dat::ia_address from = e.remote_address();
  std::memcpy(&data.remote_ah.ia_addr, from.native_handle(), from.native_size());
  extend(to, data);
}

void event_writer::arrived(std::unique_ptr<cr_object> made, DAT_EVENT_NUMBER number, DAT_HANDLE service,
                           std::uint16_t port) const noexcept {
  cr_object* const request = made.get();
  auto& arrival = to.event_data.cr_arrival_event_data;
  arrival.cr_handle = evd.ia.add(std::move(made));
  if (!arrival.cr_handle) return; // no memory: the request is refused
  evd.ia.counters.add(DCNT_IA_SP_CR);
  to.event_number = number;
  arrival.sp_handle.psp_handle = service;
  arrival.local_ia_address_ptr = reinterpret_cast<DAT_IA_ADDRESS_PTR>(&request->local);
  arrival.conn_qual = port;
  arrival.truncate_flag = DAT_FALSE;
}

void event_writer::write(dat::cr& e) const noexcept {
  auto made = make_object<cr_object>(evd.ia);
  if (!made) return;
  const dat::service_id id = e.service();
  const auto is = [id](const auto& s) { return s.id == id; };
  DAT_HANDLE service = evd.ia.find<psp_object>(is);
  if (!service) service = evd.ia.find<rsp_object>(is);
  if (!service) service = evd.ia.find<csp_object>(is);
  keep(made->local, e.local_address());
  keep(made->remote, e.remote_address());
  made->private_data.assign(e.private_data());
  if (e.ep()) { // created for this request
    auto ep = make_object<ep_object>(evd.ia, std::move(e.ep()));
    if (ep) ep->made_for_request = true;
    made->local_ep = evd.ia.add(std::move(ep));
    if (!made->local_ep) return;
  } else if (const dat::ep_ref reserved = e.local_ep()) {
    made->local_ep = reserved.context<handle>();
  }
  made->cr = std::move(e);
  arrived(std::move(made), DAT_CONNECTION_REQUEST_EVENT, service, id.port());
}

void event_writer::write(dat::ib::datagram_request& e) const noexcept {
  auto made = make_object<cr_object>(evd.ia);
  if (!made) return;
  const std::uint16_t port = e.local_address().port();
  keep(made->local, e.local_address());
  keep(made->remote, e.remote_address());
  made->private_data.assign(e.private_data());
  made->datagrams = std::move(e);
  arrived(std::move(made), static_cast<DAT_EVENT_NUMBER>(DAT_IB_UD_CONNECTION_REQUEST_EVENT),
          evd.ia.find<psp_object>([port](const psp_object& p) { return p.id.port() == port; }), port);
  if (to.event_number == 0) return;
  DAT_IB_EXTENSION_EVENT_DATA data{};
  data.type = DAT_IB_UD_CONNECT_REQUEST;
  extend(to, data);
}

void event_writer::write(dat::software_event& e) const noexcept {
  to.event_number = DAT_SOFTWARE_EVENT;
  to.event_data.software_event_data.pointer = e.cookie().as<void*>();
}

void event_writer::async(DAT_EVENT_NUMBER number, DAT_HANDLE about, DAT_COUNT reason) const noexcept {
  to.event_number = number;
  to.event_data.asynch_error_event_data.dat_handle = about;
  to.event_data.asynch_error_event_data.reason = reason;
  evd.ia.counters.add(DCNT_IA_ASYNC_ERROR);
}
} // namespace provider
