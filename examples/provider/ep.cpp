// Endpoints: creation, parameters, state and end.
// SPDX-License-Identifier: BSL-1.0
#include "entries.hpp"

#include <type_traits>

namespace provider {
namespace {

/// The evd for a use of an endpoint; none for DAT_HANDLE_NULL.
template <dat::streams Needed, bool AnyIa = false>
[[nodiscard]] dat::expected<dat::evd_ref<Needed>> feed(const adapter& a, DAT_EVD_HANDLE evd,
                                                       return_subtype which) noexcept {
  if (!evd) return dat::evd_ref<Needed>();
  return evd_for<Needed, AnyIa>(a, evd, which);
}

/// The three evds of an endpoint.
template <class Evds>
[[nodiscard]] dat::expected<Evds> feeds(const adapter& a, DAT_EVD_HANDLE recv, DAT_EVD_HANDLE request,
                                        DAT_EVD_HANDLE connect) {
  constexpr bool datagrams = std::is_same_v<Evds, dat::ib::datagram_evds>;
  constexpr dat::streams more = datagrams ? dat::streams::datagrams : dat::streams{};
  auto in = feed<dat::streams::dto | more>(a, recv, return_subtype::handle_evd_recv);
  if (!in) return in.assume_error();
  auto out = feed<dat::streams::dto | more>(a, request, return_subtype::handle_evd_request);
  if (!out) return out.assume_error();
  // Of another ia of the adapter, too, as dapltest has it.
  auto connections = feed<dat::streams::connection | more, !datagrams>(a, connect, return_subtype::handle_evd_conn);
  if (!connections) return connections.assume_error();
  return Evds{in.assume_value(), out.assume_value(), connections.assume_value()};
}

/// Creates an endpoint by `create(attributes)`. Small requests of a configured one carry their data, as with OFA's
/// provider, where the adapter can.
template <class Create>
[[nodiscard]] auto create_with_inline(bool configured, dat::ep_attributes attributes, Create create) noexcept {
  for (const std::uint32_t bytes : {256U, 64U}) { // no verb reports the limit of an adapter
    if (!configured) break;
    attributes.max_inline = bytes;
    auto made = create(attributes);
    if (made || made.assume_error().type() != return_type::invalid_parameter) return made;
  }
  attributes.max_inline = 0;
  return create(attributes);
}

/// Creates an endpoint at a zone or an ia, with or without a shared queue.
template <class Parent>
[[nodiscard]] dat::expected<dat::ep<dat::rc>> create_rc(Parent& at, const dat::ep_evds& evds, const srq_object* queue,
                                                        const dat::ep_attributes& attributes) noexcept {
  if (!queue) return at.template create_ep<dat::rc>(evds, attributes);
  auto made = at.template create_ep<dat::rc>(evds, queue->srq, attributes);
  if (!made) return made.assume_error();
  return dat::ep<dat::rc>(std::move(made).assume_value()); // an ep with an srq is an ep
}

[[nodiscard]] DAT_RETURN create_ep(const entry_call<adapter>& a, DAT_PZ_HANDLE pz, DAT_EVD_HANDLE recv,
                                   DAT_EVD_HANDLE request, DAT_EVD_HANDLE connect, DAT_SRQ_HANDLE srq, bool with_srq,
                                   const DAT_EP_ATTR* attr, DAT_EP_HANDLE* ep) noexcept {
  const call_on<pz_object> zone(pz);
  if (pz && (!zone || &zone->ia != a.get())) return a.bad_handle(return_subtype::handle_pz);
  const call_on<srq_object> queue(srq);
  if (with_srq && (!queue || &queue->ia != a.get())) return a.bad_handle(return_subtype::handle_srq);
  const unsigned attr_position = with_srq ? 7 : 6;
  if (!ep) return a.bad_argument(attr_position + 1);
  const auto attributes = to_attributes(attr, with_srq);
  const bool known = !attr || attr->service_type == DAT_SERVICE_TYPE_RC ||
                     attr->service_type == static_cast<DAT_SERVICE_TYPE>(DAT_IB_SERVICE_TYPE_UD);
  if ((with_srq && !attr) || !attributes || !known) return a.bad_argument(attr_position);
  DAT_EP_PARAM param{};
  param.ia_handle = a->self;
  param.pz_handle = pz;
  param.recv_evd_handle = recv;
  param.request_evd_handle = request;
  param.connect_evd_handle = connect;
  param.srq_handle = srq;
  if (attr) param.ep_attr = *attr;
  const bool configured = zone && recv && request && connect;
  if (param.ep_attr.service_type != DAT_SERVICE_TYPE_RC) {
    const auto evds = feeds<dat::ib::datagram_evds>(*a, recv, request, connect);
    if (!evds) return word(evds);
    if (!zone) return a.bad_handle(return_subtype::handle_pz); // it has no unconfigured state
    if (queue) return a.refuse(return_type::model_not_supported);
    auto made = create_with_inline(configured, *attributes, [&](const dat::ep_attributes& with) {
      return zone->pz.create_ep<dat::ud>(evds.assume_value(), with);
    });
    return issue<ep_object>(*a, std::move(made), ep, DCNT_IA_EP_CREATE, a.name(), param);
  }
  const auto evds = feeds<dat::ep_evds>(*a, recv, request, connect);
  if (!evds) return word(evds);
  auto made = create_with_inline(configured, *attributes, [&](const dat::ep_attributes& with) {
    return zone ? create_rc(zone->pz, evds.assume_value(), queue.get(), with)
                : create_rc(a->ia, evds.assume_value(), queue.get(), with);
  });
  return issue<ep_object>(*a, std::move(made), ep, DCNT_IA_EP_CREATE, a.name(), param);
}

/// The changes that a mask names.
[[nodiscard]] DAT_RETURN to_changes(ep_object& e, DAT_EP_PARAM_MASK mask, const DAT_EP_PARAM& p,
                                    const call_on<pz_object>& zone, dat::ep_changes& to, const char* call) noexcept {
  const auto has = [mask](DAT_EP_PARAM_MASK field) { return (mask & field) != 0; };
  if (has(DAT_EP_FIELD_PZ_HANDLE)) {
    if (!zone || &zone->ia != &e.ia) return bad_handle(return_subtype::handle_pz, call);
    to.pz = &zone->pz;
  }
  // A mask that names one evd leaves the others as they are.
  const auto given = [&](DAT_EP_PARAM_MASK field, DAT_EVD_HANDLE evd) { return has(field) ? evd : DAT_HANDLE_NULL; };
  const auto evds = feeds<dat::ep_evds>(e.ia, given(DAT_EP_FIELD_RECV_EVD_HANDLE, p.recv_evd_handle),
                                        given(DAT_EP_FIELD_REQUEST_EVD_HANDLE, p.request_evd_handle),
                                        given(DAT_EP_FIELD_CONNECT_EVD_HANDLE, p.connect_evd_handle));
  if (!evds) return word(evds);
  to.recv = evds.assume_value().recv;
  to.request = evds.assume_value().request;
  to.connect = evds.assume_value().connect;
  if (has(DAT_EP_FIELD_LOCAL_IA_ADDRESS_PTR)) {
    const auto local = to_address(p.local_ia_address_ptr);
    if (!local) return bad_argument(3, call);
    to.local_address = local.assume_value();
  }
  if (has(DAT_EP_FIELD_LOCAL_PORT_QUAL)) {
    if (p.local_port_qual > 0xffff) return bad_argument(3, call);
    to.local_address =
        to.local_address.value_or(e.ia.ia.address()).with_port(static_cast<std::uint16_t>(p.local_port_qual));
  }
  if (has(DAT_EP_FIELD_COMM)) to.comm = dat::communicator{p.comm.domain, p.comm.type, p.comm.protocol};
  const bool with_srq = e.param.srq_handle != DAT_HANDLE_NULL;
  DAT_EP_ATTR named{}; // what the mask does not name stays 0, the default of each
  const DAT_EP_ATTR& in = p.ep_attr;
  if (has(DAT_EP_FIELD_EP_ATTR_QOS)) named.qos = in.qos;
  if (has(DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS)) named.recv_completion_flags = in.recv_completion_flags;
  if (has(DAT_EP_FIELD_EP_ATTR_REQUEST_COMPLETION_FLAGS)) named.request_completion_flags = in.request_completion_flags;
  if (has(DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS)) named.max_recv_dtos = in.max_recv_dtos;
  if (has(DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS)) named.max_request_dtos = in.max_request_dtos;
  if (has(DAT_EP_FIELD_EP_ATTR_MAX_RECV_IOV)) named.max_recv_iov = in.max_recv_iov;
  if (has(DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_IOV)) named.max_request_iov = in.max_request_iov;
  if (has(DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IOV)) named.max_rdma_read_iov = in.max_rdma_read_iov;
  if (has(DAT_EP_FIELD_EP_ATTR_MAX_RDMA_WRITE_IOV)) named.max_rdma_write_iov = in.max_rdma_write_iov;
  if (has(DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IN)) named.max_rdma_read_in = in.max_rdma_read_in;
  if (has(DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_OUT)) named.max_rdma_read_out = in.max_rdma_read_out;
  if (has(DAT_EP_FIELD_EP_ATTR_MAX_MESSAGE_SIZE)) named.max_message_size = in.max_message_size;
  if (has(DAT_EP_FIELD_EP_ATTR_MAX_RDMA_SIZE)) named.max_rdma_size = in.max_rdma_size;
  if (has(DAT_EP_FIELD_EP_ATTR_NUM_TRANSPORT_ATTR)) named.ep_transport_specific_count = in.ep_transport_specific_count;
  if (has(DAT_EP_FIELD_EP_ATTR_NUM_PROVIDER_ATTR)) named.ep_provider_specific_count = in.ep_provider_specific_count;
  if (has(DAT_EP_FIELD_EP_ATTR_SERVICE_TYPE) && in.service_type != DAT_SERVICE_TYPE_RC)
    return refuse(return_type::model_not_supported, return_subtype::none, call);
  const auto attributes = to_attributes(&named, with_srq);
  if (!attributes) return bad_argument(3, call);
  constexpr auto iovs = DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_IOV | DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IOV |
                        DAT_EP_FIELD_EP_ATTR_MAX_RDMA_WRITE_IOV;
  constexpr auto sizes = DAT_EP_FIELD_EP_ATTR_MAX_MESSAGE_SIZE | DAT_EP_FIELD_EP_ATTR_MAX_RDMA_SIZE;
  // Only what the mask has, so that the rest stays even where its change is not allowed now.
  if (has(DAT_EP_FIELD_EP_ATTR_QOS)) to.qos = attributes->qos;
  if (has(DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS)) to.recv_completion = attributes->recv_completion;
  if (has(DAT_EP_FIELD_EP_ATTR_REQUEST_COMPLETION_FLAGS)) to.request_completion = attributes->request_completion;
  if (has(DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS) && !with_srq) to.max_recv_dtos = attributes->max_recv_dtos;
  if (has(DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS)) to.max_request_dtos = attributes->max_request_dtos;
  if (has(DAT_EP_FIELD_EP_ATTR_MAX_RECV_IOV) && !with_srq) to.max_recv_iov = attributes->max_recv_iov;
  if (has(DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IN)) to.max_rdma_read_in = attributes->max_rdma_read_in;
  if (has(DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_OUT)) to.max_rdma_read_out = attributes->max_rdma_read_out;
  if (has(iovs)) to.max_request_iov = attributes->max_request_iov;
  if (has(sizes)) to.max_message_size = attributes->max_message_size;
  return success;
}

[[nodiscard]] dat::expected<DAT_EP_PARAM> parameters(ep_object& e) noexcept {
  const std::lock_guard lock(e.mutex);
  DAT_EP_PARAM to = e.param;
  if (e.is_datagram()) {
    to.ep_state = static_cast<DAT_EP_STATE>(e.ud.state());
    to.ep_attr.max_message_size = e.ud.max_message_size();
    to.local_ia_address_ptr = keep(e.local, e.ia.ia.address());
    return to;
  }
  const auto from = e.rc.query();
  if (!from) return from.assume_error();
  const dat::ep_params& p = from.assume_value();
  to.ep_state = static_cast<DAT_EP_STATE>(p.state);
  to.comm = {p.comm.domain, p.comm.type, p.comm.protocol};
  to.local_ia_address_ptr = keep(e.local, p.local_address);
  to.local_port_qual = p.local_address.port();
  to.remote_ia_address_ptr = p.remote_address ? keep(e.remote, *p.remote_address) : nullptr;
  to.remote_port_qual = p.remote_address ? p.remote_address->port() : 0;
  to.ep_attr = from_attributes(p.attributes, false, to.srq_handle != DAT_HANDLE_NULL);
  return to;
}

[[nodiscard]] DAT_RETURN modify(const entry_call<ep_object>& e, DAT_EP_PARAM_MASK mask,
                                const DAT_EP_PARAM* param) noexcept {
  constexpr DAT_EP_PARAM_MASK fixed = DAT_EP_FIELD_IA_HANDLE | DAT_EP_FIELD_EP_STATE |
                                      DAT_EP_FIELD_REMOTE_IA_ADDRESS_PTR | DAT_EP_FIELD_REMOTE_PORT_QUAL |
                                      DAT_EP_FIELD_SRQ_HANDLE | DAT_EP_FIELD_EP_ATTR_SRQ_SOFT_HW;
  if (!within(mask, DAT_EP_FIELD_ALL) || (mask & fixed) != 0) return e.bad_argument(2);
  if (!param) return e.bad_argument(3);
  if (e->is_datagram()) return e.refuse(return_type::invalid_state, return_subtype::ep_connected);
  const call_on<pz_object> zone((mask & DAT_EP_FIELD_PZ_HANDLE) != 0 ? param->pz_handle : DAT_HANDLE_NULL);
  const post_to no_request(e->self, handle::requests), no_receive(e->self, handle::receives);
  const std::lock_guard lock(e->mutex);
  dat::ep_changes changes;
  if (const DAT_RETURN refused = to_changes(*e, mask, *param, zone, changes, e.name())) return refused;
  const auto modified = e->rc.modify(changes);
  if (!modified) return word(modified);
  if ((mask & DAT_EP_FIELD_PZ_HANDLE) != 0) e->param.pz_handle = param->pz_handle;
  if ((mask & DAT_EP_FIELD_RECV_EVD_HANDLE) != 0) e->param.recv_evd_handle = param->recv_evd_handle;
  if ((mask & DAT_EP_FIELD_REQUEST_EVD_HANDLE) != 0) e->param.request_evd_handle = param->request_evd_handle;
  if ((mask & DAT_EP_FIELD_CONNECT_EVD_HANDLE) != 0) e->param.connect_evd_handle = param->connect_evd_handle;
  return success;
}

[[nodiscard]] DAT_RETURN get_status(const entry_call<ep_object>& e, DAT_EP_STATE* state, DAT_BOOLEAN* recv_idle,
                                    DAT_BOOLEAN* request_idle) noexcept {
  const auto status = e->is_datagram() ? e->ud.status() : e->rc.status();
  if (!status) return word(status);
  const dat::ep_status& now = status.assume_value();
  if (state) *state = static_cast<DAT_EP_STATE>(now.state);
  if (recv_idle) *recv_idle = to_boolean(now.recv_idle);
  if (request_idle) *request_idle = to_boolean(now.request_idle);
  return success;
}

[[nodiscard]] DAT_RETURN recv_query(const entry_call<ep_object>& e, DAT_COUNT* allocated, DAT_COUNT* span) noexcept {
  if (e->is_datagram()) return e.refuse(return_type::model_not_supported);
  const auto buffers = e->rc.recv_query();
  if (!buffers) return word(buffers);
  const auto in_c = [](std::optional<std::uint32_t> n) { return n ? to_count(*n) : DAT_COUNT{DAT_VALUE_UNKNOWN}; };
  if (allocated) *allocated = in_c(buffers.assume_value().allocated);
  if (span) *span = in_c(buffers.assume_value().span);
  return success;
}

} // namespace

void add_ep_entries(DAT_PROVIDER& table) noexcept {
  table.ep_create_func =
      entry<adapter, "dat_ep_create">([](auto& a, DAT_PZ_HANDLE pz, DAT_EVD_HANDLE recv, DAT_EVD_HANDLE request,
                                         DAT_EVD_HANDLE connect, const DAT_EP_ATTR* attr, DAT_EP_HANDLE* ep) {
        return create_ep(a, pz, recv, request, connect, DAT_HANDLE_NULL, false, attr, ep);
      });
  table.ep_create_with_srq_func = entry<adapter, "dat_ep_create_with_srq">(
      [](auto& a, DAT_PZ_HANDLE pz, DAT_EVD_HANDLE recv, DAT_EVD_HANDLE request, DAT_EVD_HANDLE connect,
         DAT_SRQ_HANDLE srq, const DAT_EP_ATTR* attr,
         DAT_EP_HANDLE* ep) { return create_ep(a, pz, recv, request, connect, srq, true, attr, ep); });
  table.ep_query_func = query<ep_object, "dat_ep_query", DAT_EP_FIELD_ALL>([](auto& e) { return parameters(e); });
  table.ep_modify_func = entry<ep_object, "dat_ep_modify", modify>();
  table.ep_get_status_func = entry<ep_object, "dat_ep_get_status", get_status>();
  table.ep_recv_query_func = entry<ep_object, "dat_ep_recv_query", recv_query>();
  table.ep_set_watermark_func = entry<ep_object, "dat_ep_set_watermark">([](auto& e, DAT_COUNT soft, DAT_COUNT hard) {
    if (e->is_datagram()) return e.refuse(return_type::model_not_supported);
    return word(e->rc.set_watermark(static_cast<std::uint32_t>(soft), static_cast<std::uint32_t>(hard)));
  });
  table.ep_reset_func = entry<ep_object, "dat_ep_reset">([](auto& e) {
    const post_to no_request(e->self, handle::requests), no_receive(e->self, handle::receives);
    return e->is_datagram() ? e->ud.reset() : e->rc.reset();
  });
  table.ep_free_func = free<ep_object, "dat_ep_free", DCNT_IA_EP_FREE>(
      [](auto& e) { return e.is_datagram() ? e.ud.close() : e.rc.close(); });
}

} // namespace provider
