// Interface adapters, consumer contexts and types of handles.
// SPDX-License-Identifier: BSL-1.0
#include "entries.hpp"

#include <chrono>
#include <dat/registry.hpp>
#include <new>

namespace provider {

const conf_line* find_entry(std::string_view name, std::optional<bool> thread_safe = {}) noexcept; // provider.cpp

namespace {

/// Makes the evd of asynchronous events of a new adapter.
[[nodiscard]] DAT_RETURN make_async_evd(adapter& a, DAT_COUNT qlen) noexcept {
  auto evd = dat::dynamic::create_evd(a.ia, dat::streams::async, static_cast<std::uint32_t>(qlen));
  if (!evd) return word(evd);
  a.async_evd = a.add(make_object<evd_object>(a, std::move(evd).assume_value()));
  return a.async_evd ? success : no_memory("dat_ia_open");
}

template <class Texts>
[[nodiscard]] DAT_COUNT to_names(const dat::named_attributes& from, Texts& to) noexcept {
  std::size_t n = 0;
  for (const dat::named_attribute& a : from) to[n++] = {a.name.data(), a.value.c_str()};
  return static_cast<DAT_COUNT>(n);
}

template <std::size_t N, class Text>
void copy_text(char (&to)[N], const Text& from) noexcept {
  std::memset(to, 0, N);
  const std::string_view text = from;
  std::memcpy(to, text.data(), std::min(text.size(), N - 1));
}

void fill(DAT_IA_ATTR& to, adapter& a) noexcept {
  const dat::ia_attributes& from = a.attributes;
  to = {};
  copy_text(to.adapter_name, a.from.name); // §6.2.1.3: the name that dat_ia_open takes
  copy_text(to.vendor_name, from.vendor_name.view());
  to.hardware_version_major = from.hardware_version_major;
  to.hardware_version_minor = from.hardware_version_minor;
  to.firmware_version_major = from.firmware_version_major;
  to.firmware_version_minor = from.firmware_version_minor;
  to.ia_address_ptr = keep(a.address, from.address);
  to.max_eps = to_count(from.max_eps);
  to.max_dto_per_ep = to_count(from.max_dto_per_ep);
  to.max_rdma_read_per_ep_in = to_count(from.max_rdma_read_per_ep_in);
  to.max_rdma_read_per_ep_out = to_count(from.max_rdma_read_per_ep_out);
  to.max_evds = to_count(from.max_evds);
  to.max_evd_qlen = to_count(from.max_evd_qlen);
  to.max_iov_segments_per_dto = to_count(from.max_iov_segments_per_dto);
  to.max_lmrs = to_count(from.max_lmrs);
  to.max_lmr_block_size = to_length(from.max_lmr_block_size);
  to.max_lmr_virtual_address = from.max_lmr_virtual_address;
  to.max_pzs = to_count(from.max_pzs);
  to.max_message_size = to_length(from.max_message_size);
  to.max_rdma_size = to_length(from.max_rdma_size);
  to.max_rmrs = to_count(from.max_rmrs);
  to.max_rmr_target_address = from.max_rmr_target_address;
  to.max_srqs = to_count(from.max_srqs);
  to.max_ep_per_srq = to_count(from.max_ep_per_srq);
  to.max_recv_per_srq = to_count(from.max_recv_per_srq);
  to.max_iov_segments_per_rdma_read = to_count(from.max_iov_segments_per_rdma_read);
  to.max_iov_segments_per_rdma_write = to_count(from.max_iov_segments_per_rdma_write);
  to.max_rdma_read_in = to_count(from.max_rdma_read_in);
  to.max_rdma_read_out = to_count(from.max_rdma_read_out);
  const auto guaranteed = dat::read_resources::guaranteed;
  to.max_rdma_read_per_ep_in_guaranteed = to_boolean(from.max_rdma_read_per_ep_in_kind == guaranteed);
  to.max_rdma_read_per_ep_out_guaranteed = to_boolean(from.max_rdma_read_per_ep_out_kind == guaranteed);
  to.zb_supported = to_boolean(a.provider_attributes.zb_supported);
  const bool ib = from.extension_supported == dat::extension::infiniband;
  to.extension_supported = ib ? DAT_EXTENSION_IB : DAT_EXTENSION_NONE;
  to.extension_version = ib ? DAT_IB_EXTENSION_VERSION : 0;
  to.num_transport_attr = to_names(from.transport, a.transport);
  to.transport_attr = a.transport.data();
  to.num_vendor_attr = to_names(from.vendor, a.vendor);
  to.vendor_attr = a.vendor.data();
}

/// Appends to the `n` names of extensions what programs of OFA's look for, and returns how many there are: some take
/// the size of their buffers from one, and dtest leaves out what needs RDMA reads without another.
[[nodiscard]] DAT_COUNT add_names(adapter& a, std::size_t n) noexcept {
  const dat::ia_attributes& from = a.attributes;
  const auto text = [](const dat::named_attributes& list, const char* name) {
    const auto* found = list.find(name);
    return found ? found->c_str() : "";
  };
  const DAT_NAMED_ATTR names[adapter::more_names] = {
      {"DAT_IB_PROVIDER_NAME", "CMA"}, // connections are made by librdmacm
      {"DAT_IB_DEVICE_NAME", from.device_name.c_str()},
      {"DAT_IB_CONNECTIVITY_MODE", "DIRECT"},
      {"DAT_IB_RDMA_READ", from.max_rdma_read_per_ep_out != 0 ? "TRUE" : "FALSE"},
      {"DAT_IB_NODE_GUID", text(from.vendor, "node_guid")},
      {"DAT_IB_GID", text(from.transport, "gid")},
      {"DAT_IB_TRANSPORT_MTU", text(from.transport, "active_mtu")},
      {"DAT_IB_PORT_STATUS", from.state == dat::port_state::active ? "ACTIVE" : "DOWN"},
      {"DAT_IB_PORT_NUMBER", text(from.vendor, "port")},
  };
  std::copy(std::begin(names), std::end(names), a.specific.begin() + static_cast<std::ptrdiff_t>(n));
  return static_cast<DAT_COUNT>(adapter::more_names);
}

void fill(DAT_PROVIDER_ATTR& to, adapter& a) noexcept {
  const dat::provider_attributes& from = a.provider_attributes;
  std::memset(static_cast<void*>(&to), 0, sizeof to); // it has a const member, which `=` cannot change
  copy_text(to.provider_name, a.from.name);
  to.provider_version_major = from.provider_version_major;
  to.provider_version_minor = from.provider_version_minor;
  // libdat2 finds the provider of an ia that closes by these three, so they are those of its line in dat.conf.
  to.dapl_version_major = a.from.info.dapl_version_major;
  to.dapl_version_minor = a.from.info.dapl_version_minor;
  to.is_thread_safe = a.from.info.is_thread_safe;
  to.lmr_mem_types_supported =
      static_cast<DAT_MEM_TYPE>(DAT_MEM_TYPE_VIRTUAL | DAT_MEM_TYPE_LMR | DAT_MEM_TYPE_SHARED_VIRTUAL);
  to.iov_ownership_on_return = static_cast<DAT_IOV_OWNERSHIP>(from.iov_ownership_on_return);
  to.dat_qos_supported = static_cast<DAT_QOS>(from.qos_supported);
  to.completion_flags_supported = static_cast<DAT_COMPLETION_FLAGS>(
      DAT_COMPLETION_SUPPRESS_FLAG | DAT_COMPLETION_SOLICITED_WAIT_FLAG | DAT_COMPLETION_UNSIGNALLED_FLAG |
      DAT_COMPLETION_BARRIER_FENCE_FLAG | DAT_COMPLETION_EVD_THRESHOLD_FLAG);
  to.max_private_data_size = to_count(from.max_private_data_size);
  to.supports_multipath = to_boolean(from.supports_multipath);
  to.ep_creator = static_cast<DAT_EP_CREATOR_FOR_PSP>(from.ep_creator);
  to.pz_support = static_cast<DAT_PZ_SUPPORT>(from.pz_support);
  to.optimal_buffer_alignment = static_cast<DAT_UINT32>(from.optimal_buffer_alignment);
  auto& merging = const_cast<DAT_BOOLEAN(&)[6][6]>(to.evd_stream_merging_supported);
  for (auto& row : merging) std::fill(std::begin(row), std::end(row), DAT_TRUE);
  to.srq_supported = to_boolean(from.srq_supported);
  to.srq_watermarks_supported = to_count(from.srq_watermarks_supported.dat_code());
  to.srq_ep_pz_difference_supported = to_boolean(from.srq_ep_pz_difference_supported);
  to.srq_info_supported = to_count(from.srq_info_supported.dat_code());
  to.ep_recv_info_supported = from.ep_recv_info_supported ? 1 : 0;
  to.lmr_sync_req = to_boolean(from.lmr_sync_req);
  to.dto_async_return_guaranteed = to_boolean(from.dto_async_return_guaranteed);
  to.rdma_write_for_rdma_read_req = to_boolean(from.rdma_write_for_rdma_read_req);
  to.rdma_read_lmr_rmr_context_exposure = to_boolean(from.rdma_read_lmr_rmr_context_exposure);
  to.rmr_scope_supported = static_cast<DAT_RMR_SCOPE>(from.rmr_scope_supported);
  to.is_signal_safe = to_boolean(from.is_signal_safe);
  to.ha_supported = to_boolean(from.ha_supported);
  to.ha_loadbalancing = static_cast<DAT_HA_LB>(from.ha_loadbalancing);
  to.num_provider_specific_attr = to_names(from.specific, a.specific) + add_names(a, from.specific.size());
  to.provider_specific_attr = a.specific.data();
}

} // namespace

DAT_RETURN query_attributes(adapter& a, DAT_IA_ATTR* ia_attr, DAT_PROVIDER_ATTR* provider_attr) noexcept {
  const auto ia = a.ia.query();
  if (!ia) return word(ia);
  const auto provider = a.ia.query<dat::provider_attributes>();
  if (!provider) return word(provider);
  const std::lock_guard lock(a.mutex); // two queries fill the same arrays, with the same texts
  a.attributes = ia.assume_value();
  a.provider_attributes = provider.assume_value();
  if (ia_attr) fill(*ia_attr, a);
  if (provider_attr) fill(*provider_attr, a);
  return success;
}

DAT_RETURN ia_open(DAT_NAME_PTR name, bool thread_safe, DAT_COUNT qlen, DAT_EVD_HANDLE* async_evd, DAT_IA_HANDLE* ia) {
  static constexpr const char* call = "dat_ia_open";
  const section here;
  if (!name) return bad_argument(1, call);
  if (!async_evd) return bad_argument(3, call);
  if (!ia) return bad_argument(4, call);
  const conf_line* const from = find_entry(name, thread_safe);
  if (!from) return refuse(return_type::provider_not_found, return_subtype::name_not_registered, call);
  dat::ia_options options;
  options.async_evd = dat::async_exists; // the evd of asynchronous events is an object like others: make_async_evd
  const bool makes_evd = *async_evd == DAT_HANDLE_NULL;
  const bool exists = *async_evd == DAT_EVD_ASYNC_EXISTS;
  if (makes_evd && qlen < 1) return bad_argument(2, call);
  const call_on<evd_object> given(makes_evd || exists ? DAT_HANDLE_NULL : *async_evd);
  if (!makes_evd && !exists) {
    const auto target = given ? given->evd.to_async() : dat::error(return_type::invalid_handle);
    if (!target) return bad_handle(return_subtype::handle_evd_async, call);
    options.async_evd = target.assume_value();
  }
  auto opened = from->adapter.empty() ? dat::ia::open(options) : dat::ia::open(from->adapter, options);
  if (!opened) return word(opened);
  auto a = make_object<adapter>(*from, std::move(opened).assume_value());
  if (!a || !handle::make(&from->table, *a)) return no_memory(call);
  const auto fail = [&](DAT_RETURN why) {
    a->self->target.store(nullptr);
    a->self->release();
    return why;
  };
  if (makes_evd)
    if (const DAT_RETURN failed = make_async_evd(*a, qlen)) return fail(failed);
  if (const DAT_RETURN failed = query_attributes(*a, nullptr, nullptr)) return fail(failed);
  if (!makes_evd) a->async_evd = exists ? DAT_EVD_OUT_OF_SCOPE : *async_evd;
  *async_evd = a->async_evd;
  *ia = a.release()->self;
  return success;
}

namespace {

/// Makes the handles of an adapter's objects invalid, when no call on them is under way but those that sleep. Gives up
/// after a second: in a signal handler, the call that was interrupted does not end meanwhile.
[[nodiscard]] DAT_RETURN retire(adapter& a, DAT_CLOSE_FLAGS flags, const char* call) noexcept {
  const auto last = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  std::unique_lock lock(a.mutex, std::defer_lock); // which the interrupted call may hold
  bool in_use = false, begun = false;
  while (!in_use && std::chrono::steady_clock::now() < last) {
    if (lock.try_lock()) {
      begun = true;
      in_use = flags == DAT_CLOSE_GRACEFUL_FLAG && a.in_use();
      if (!in_use && a.retire() && a.self->calls.load() == 1) return success;
      lock.unlock(); // a call that is under way may take it, and may make or free an object
    }
    ::sched_yield();
  }
  if (begun) {
    lock.lock();
    a.restore();
  }
  return in_use ? refuse(return_type::invalid_state, return_subtype::ia_in_use, call)
                : refuse(return_type::insufficient_resources, return_subtype::none, call);
}

} // namespace

DAT_RETURN ia_close(DAT_IA_HANDLE ia, DAT_CLOSE_FLAGS flags) {
  const bool interrupts = section::here(); // a call, which may hold locks
  const entry_call<adapter> a(ia, "dat_ia_close");
  if (!a) return a.bad_handle();
  if (flags != DAT_CLOSE_ABRUPT_FLAG && flags != DAT_CLOSE_GRACEFUL_FLAG) return a.bad_argument(2);
  if (interrupts) return a.refuse(return_type::insufficient_resources);
  object* expected = a.get();
  if (!a->self->target.compare_exchange_strong(expected, nullptr)) return a.bad_handle();
  if (const DAT_RETURN refused = retire(*a, flags, a.name())) {
    a->self->target.store(a.get());
    return refused;
  }
  const auto closed = a->ia.close(dat::close_mode::abrupt);                             // ends what sleeps
  if (!closed && closed.assume_error().type() == return_type::insufficient_resources) { // may succeed later
    const std::lock_guard lock(a->mutex);
    a->restore();
    a->self->target.store(a.get());
    return word(closed);
  }
  a->delete_objects();
  handle* const named = a->self;
  delete a.get();
  named->release();
  return word(closed);
}

DAT_RETURN ia_query(DAT_IA_HANDLE ia, DAT_EVD_HANDLE* async_evd, DAT_IA_ATTR_MASK ia_mask, DAT_IA_ATTR* ia_attr,
                    DAT_PROVIDER_ATTR_MASK provider_mask, DAT_PROVIDER_ATTR* provider_attr) {
  const entry_call<adapter> a(ia, "dat_ia_query");
  if (!a) return a.bad_handle();
  if (!within(ia_mask, DAT_IA_FIELD_ALL)) return a.bad_argument(3);
  if (ia_mask != 0 && !ia_attr) return a.bad_argument(4);
  if (!within(provider_mask, DAT_PROVIDER_FIELD_ALL)) return a.bad_argument(5);
  if (provider_mask != 0 && !provider_attr) return a.bad_argument(6);
  if (async_evd) *async_evd = a->async_evd;
  if (ia_mask == 0 && provider_mask == 0) return success;
  return query_attributes(*a, ia_mask != 0 ? ia_attr : nullptr, provider_mask != 0 ? provider_attr : nullptr);
}

namespace {

[[nodiscard]] DAT_RETURN ha_related(const entry_call<adapter>& a, DAT_NAME_PTR name, DAT_BOOLEAN* answer) noexcept {
  if (!answer) return a.bad_argument(3);
  const conf_line* const other = name ? find_entry(name) : nullptr;
  if (!other) return a.bad_argument(2);
  *answer = DAT_FALSE;
  try {
    const auto names = dat::registry::system();
    if (!names) return word(names);
    const auto related = names.assume_value().related(a->from.adapter, other->adapter);
    *answer = to_boolean(related && related.assume_value() == dat::ha_relationship::related);
    return success;
  } catch (const std::bad_alloc&) {
    return a.no_memory();
  }
}

// A handle of any type.

DAT_RETURN set_consumer_context(DAT_HANDLE named, DAT_CONTEXT context) {
  handle* const at = handle::of(named);
  if (!at || !at->target.load()) return bad_handle(return_subtype::handle1, "dat_set_consumer_context");
  at->context.store(context.as_64);
  return success;
}

DAT_RETURN get_consumer_context(DAT_HANDLE named, DAT_CONTEXT* context) {
  static constexpr const char* call = "dat_get_consumer_context";
  const handle* const at = handle::of(named);
  if (!at || !at->target.load()) return bad_handle(return_subtype::handle1, call);
  if (!context) return bad_argument(2, call);
  context->as_64 = at->context.load();
  return success;
}

DAT_RETURN get_handle_type(DAT_HANDLE named, DAT_HANDLE_TYPE* type) {
  static constexpr const char* call = "dat_get_handle_type";
  handle* const at = handle::of(named);
  if (!at) return bad_handle(return_subtype::handle1, call);
  at->calls.fetch_add(1); // keeps the object, as call_on, which would have to know the type
  const object* const o = at->target.load();
  if (o && type) *type = o->type;
  at->calls.fetch_sub(1);
  if (!o) return bad_handle(return_subtype::handle1, call);
  return type ? success : bad_argument(2, call);
}

/// The entry that opens the name of a line of dat.conf.
template <bool ThreadSafe>
DAT_RETURN open_name(DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE* async_evd, DAT_IA_HANDLE* ia) {
  return ia_open(name, ThreadSafe, qlen, async_evd, ia);
}

} // namespace

void add_ia_entries(DAT_PROVIDER& table, bool thread_safe) noexcept {
  table.ia_open_func = thread_safe ? open_name<true> : open_name<false>;
  table.ia_query_func = ia_query;
  table.ia_close_func = ia_close;
  table.ia_ha_related_func = entry<adapter, "dat_ia_ha_related", ha_related>();
  table.set_consumer_context_func = set_consumer_context;
  table.get_consumer_context_func = get_consumer_context;
  table.get_handle_type_func = get_handle_type;
}

} // namespace provider
