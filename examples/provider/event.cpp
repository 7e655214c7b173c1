// From the events of dat to DAT_EVENT. (The common completions are in convert.hpp.)
// SPDX-License-Identifier: BSL-1.0
#include "calls.hpp"

#include <cstring>
#include <new>

namespace provider {

/// The data of an event of the extensions.
DAT_IB_EXTENSION_EVENT_DATA& event_writer::extend(dat::ib_ext_type kind) const noexcept {
  static_assert(sizeof(DAT_IB_EXTENSION_EVENT_DATA) <= sizeof to.event_extension_data);
  void* const place = std::memset(to.event_extension_data, 0, sizeof to.event_extension_data);
  auto& data = *::new (place) DAT_IB_EXTENSION_EVENT_DATA{};
  data.type = static_cast<DAT_IB_EXT_TYPE>(kind);
  data.status = DAT_OP_SUCCESS;
  return data;
}

/// A completion, with the data of an extension where it is one.
void event_writer::completion(const dat::completion& e, dat::dto_operation what, dat::dto_status status,
                              std::size_t bytes, std::uint32_t immediate, std::uint32_t rmr_context) const noexcept {
  // OFA's header has one number more than the specification, DAT_DTO_BIND_MW, before those of the extensions.
  static_assert(static_cast<int>(dat::dto_operation::recv_with_invalidate) == DAT_DTO_RECEIVE_WITH_INVALIDATE);
  static_assert(static_cast<int>(dat::dto_operation::rdma_write_immediate) + 1 == DAT_IB_DTO_RDMA_WRITE_IMMED);
  static_assert(static_cast<int>(dat::dto_operation::recv_ud_immediate) + 1 == DAT_IB_DTO_RECV_UD_IMMED);
  const auto kind = dat::ib_ext_type_of(what);
  const auto number = static_cast<dat::dto_operation>(dat::dat_code(what).value_or(DAT_DTO_SEND) + (kind ? 1 : 0));
  write_dto(to, evd.self, number, e.cookie(), bytes, dat::cookie(e.ep().context<handle>()));
  auto& data = to.event_data.dto_completion_event_data;
  data.status = static_cast<DAT_DTO_COMPLETION_STATUS>(status);
  data.rmr_context = rmr_context;
  if (kind) {
    to.event_number = static_cast<DAT_EVENT_NUMBER>(DAT_IB_DTO_EVENT);
    DAT_IB_EXTENSION_EVENT_DATA& more = extend(*kind);
    if (status != dat::dto_status::success) more.status = DAT_IB_OP_ERR;
    more.val.immed.data = immediate;
  }
}

template <class E>
void event_writer::bind(const E& e, dat::dto_status status) const noexcept {
  auto& data = to.event_data.rmr_completion_event_data;
  data.rmr_handle = evd.ia.find<rmr_object>([&e](const rmr_object& r) { return e.is_of(r.rmr); });
  data.user_cookie.as_64 = e.cookie().value();
  data.status = static_cast<DAT_DTO_COMPLETION_STATUS>(status);
}
template void event_writer::bind(const dat::bind_done&, dat::dto_status) const noexcept;
template void event_writer::bind(const dat::dto_failure&, dat::dto_status) const noexcept;

void event_writer::connection(const dat::connection_event& e, std::span<const std::byte> data) const noexcept {
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
  connection(e, e.private_data());
  DAT_IB_EXTENSION_EVENT_DATA& data = extend(*dat::ib_ext_type_of(e));
  if (auto peer = e.peer()) {
    data.remote_ah.qpn = peer.assume_value().qp_number();
    auto made = make_object<peer_object>(evd.ia, std::move(peer).assume_value());
    data.remote_ah.ah = reinterpret_cast<ibv_ah*>(evd.ia.add(std::move(made)));
  }
  if (!data.remote_ah.ah) data.status = DAT_IB_OP_ERR;
  const dat::ia_address from = e.remote_address();
  std::memcpy(&data.remote_ah.ia_addr, from.native_handle(), from.native_size());
}

/// A request. `take(object)` moves the request of dat into its object, unless memory is missing: then it is refused.
template <class Request, class Take>
void event_writer::arrived(Request& e, DAT_HANDLE service, std::uint16_t port, Take take) const noexcept {
  auto made = make_object<cr_object>(evd.ia);
  cr_object* const request = made.get();
  if (made) {
    keep(made->local, e.local_address());
    keep(made->remote, e.remote_address());
    made->private_data.assign(e.private_data());
  }
  auto& arrival = to.event_data.cr_arrival_event_data;
  arrival.cr_handle = made && take(*made) ? evd.ia.add(std::move(made)) : DAT_HANDLE_NULL;
  if (!arrival.cr_handle) {
    to.event_number = DAT_EVENT_NUMBER{};
    return;
  }
  evd.ia.counters.add(DCNT_IA_SP_CR);
  arrival.sp_handle.psp_handle = service;
  arrival.local_ia_address_ptr = reinterpret_cast<DAT_IA_ADDRESS_PTR>(&request->local);
  arrival.conn_qual = port;
  arrival.truncate_flag = DAT_FALSE;
}

void event_writer::write(dat::cr& e) const noexcept {
  const dat::service_id id = e.service();
  const auto is = [id](const auto& s) { return s.id == id; };
  DAT_HANDLE service = evd.ia.find<psp_object>(is);
  if (!service) service = evd.ia.find<rsp_object>(is);
  if (!service) service = evd.ia.find<csp_object>(is);
  arrived(e, service, id.port(), [&](cr_object& request) {
    if (e.ep()) { // created for this request
      auto ep = make_object<ep_object>(evd.ia, std::move(e.ep()));
      if (ep) ep->made_for_request = true;
      request.local_ep = evd.ia.add(std::move(ep));
      if (!request.local_ep) return false;
    } else if (const dat::ep_ref reserved = e.local_ep()) {
      request.local_ep = reserved.context<handle>();
    }
    request.cr = std::move(e);
    return true;
  });
}

void event_writer::write(dat::ib::datagram_request& e) const noexcept {
  const std::uint16_t port = e.local_address().port();
  arrived(e, evd.ia.find<psp_object>([port](const psp_object& p) { return p.id.port() == port; }), port,
          [&](cr_object& request) {
            request.datagrams = std::move(e);
            return true;
          });
  extend(dat::ib_ext_type::ud_connect_request);
}

void event_writer::async(DAT_HANDLE about, DAT_COUNT reason) const noexcept {
  to.event_data.asynch_error_event_data.dat_handle = about;
  to.event_data.asynch_error_event_data.reason = reason;
  evd.ia.counters.add(DCNT_IA_ASYNC_ERROR);
}
} // namespace provider
