// Protection zones, local and remote memory regions.
// SPDX-License-Identifier: BSL-1.0
#include "entries.hpp"
#include "local_memory.hpp"

namespace provider {
namespace {

constexpr std::uint32_t all_rights = DAT_MEM_PRIV_ALL_FLAG | std::uint32_t{DAT_IB_MEM_PRIV_REMOTE_ATOMIC};
[[nodiscard]] dat::mem_priv to_rights(DAT_MEM_PRIV_FLAGS flags) noexcept { // the bits are the same
  return static_cast<dat::mem_priv>(static_cast<std::uint32_t>(flags));
}

/// Registers memory of any type. `cookie`: where that of shared memory is kept.
[[nodiscard]] dat::expected<dat::dynamic::lmr> register_region(pz_object& zone, DAT_MEM_TYPE type,
                                                               const DAT_REGION_DESCRIPTION& what, DAT_VLEN length,
                                                               dat::mem_priv rights, DAT_VA_TYPE va_type,
                                                               dat::shared_cookie& cookie) noexcept {
  const auto bytes = [length](DAT_PVOID first) { return std::span(static_cast<std::byte*>(first), length); };
  const dat::error bad_description(return_type::invalid_parameter, return_subtype::arg3);
  const bool zero_based = va_type == DAT_VA_TYPE_ZB;
  switch (type) {
  case DAT_MEM_TYPE_VIRTUAL:
    if (!what.for_va && length != 0) return bad_description;
    return zero_based ? dat::dynamic::register_zero_based(zone.pz, bytes(what.for_va), rights)
                      : dat::dynamic::register_memory(zone.pz, bytes(what.for_va), rights);
  case DAT_MEM_TYPE_LMR: {
    const call_on<lmr_object> original(what.for_lmr_handle);
    if (!original || &original->ia != &zone.ia)
      return dat::error(return_type::invalid_handle, return_subtype::handle_lmr);
    if (zero_based) return dat::error(return_type::model_not_supported);
    return dat::dynamic::register_over(zone.pz, original->lmr, rights);
  }
  case DAT_MEM_TYPE_SHARED_VIRTUAL: {
    const DAT_SHARED_MEMORY& shared = what.for_shared_memory;
    if (!shared.virtual_address || !shared.shared_memory_id) return bad_description;
    if (zero_based) return dat::error(return_type::model_not_supported);
    std::memcpy(cookie.data(), *shared.shared_memory_id, cookie.size());
    return dat::dynamic::register_shared(zone.pz, bytes(shared.virtual_address), cookie, rights);
  }
  }
  return dat::error(return_type::invalid_parameter, return_subtype::arg2);
}

/// Synchronises the segments one after the other; all must be of the adapter.
template <class Sync>
[[nodiscard]] DAT_RETURN synchronise(const entry_call<adapter>& a, const DAT_LMR_TRIPLET* segments, DAT_VLEN n,
                                     Sync sync) noexcept {
  if (!segments && n != 0) return a.bad_argument(2);
  const std::lock_guard lock(a->mutex); // no region ends meanwhile
  for (DAT_VLEN i = 0; i < n; ++i) {
    if (segments[i].segment_length == 0) continue;
    const auto s = segment(a->regions.find(segments[i].lmr_context), segments[i], dat::no_rights);
    if (!s) return a.bad_argument(2);
    if (const auto done = sync(a->ia, s.assume_value()); !done) return word(done);
  }
  return success;
}

[[nodiscard]] DAT_RETURN create_lmr(const entry_call<adapter>& a, DAT_MEM_TYPE type, DAT_REGION_DESCRIPTION what,
                                    DAT_VLEN length, DAT_PZ_HANDLE pz, DAT_MEM_PRIV_FLAGS privileges,
                                    DAT_VA_TYPE va_type, DAT_LMR_HANDLE* lmr, DAT_LMR_CONTEXT* lmr_context,
                                    DAT_RMR_CONTEXT* rmr_context, DAT_VLEN* registered_length,
                                    DAT_VADDR* registered_address) noexcept {
  const call_on<pz_object> zone(pz);
  if (!zone || &zone->ia != a.get()) return a.bad_handle(return_subtype::handle_pz);
  if (!within(privileges, all_rights)) return a.bad_argument(6);
  if (va_type != DAT_VA_TYPE_VA && va_type != DAT_VA_TYPE_ZB) return a.bad_argument(7);
  if (!lmr) return a.bad_argument(8);
  dat::shared_cookie cookie{};
  // Verbs grants local reading with every region, and programs count on it: they send from memory that they have
  // registered to receive into.
  const dat::mem_priv rights = to_rights(privileges) | dat::mem_priv::local_read;
  auto made = register_region(*zone, type, what, length, rights, va_type, cookie);
  if (!made) return word(made);
  auto region = make_object<lmr_object>(*a, std::move(made).assume_value());
  if (!region) return a.no_memory();
  const auto params = region->lmr.query();
  if (!params) return word(params);
  const dat::lmr_params& p = params.assume_value();
  region->known.key = p.lmr_key;
  // A region of 4 GiB or more has no segment as a whole.
  if (const auto whole = region->lmr.slice(0, p.registered_size, dat::local_read))
    region->known.readable = whole.assume_value();
  if (const auto whole = region->lmr.slice(0, p.registered_size, dat::local_write))
    region->known.writable = whole.assume_value();
  region->cookie = cookie;
  DAT_LMR_PARAM& c = region->param;
  c = {a->self,
       type,
       what,
       p.registered_size,
       pz,
       privileges,
       va_type,
       p.lmr_key,
       p.remote_key.value_or(0),
       p.registered_size,
       p.registered_address};
  if (type == DAT_MEM_TYPE_SHARED_VIRTUAL)
    c.region_desc.for_shared_memory.shared_memory_id = reinterpret_cast<DAT_LMR_COOKIE>(region->cookie.data());
  if (lmr_context) *lmr_context = c.lmr_context;
  if (rmr_context) *rmr_context = c.rmr_context;
  if (registered_length) *registered_length = c.registered_size;
  if (registered_address) *registered_address = c.registered_address;
  {
    const std::lock_guard lock(a->mutex);
    if (!a->regions.add(*region)) return a.no_memory();
  }
  return issue(*a, std::move(region), lmr, DCNT_IA_LMR_CREATE, a.name());
}

/// Ends a region, unless a window is bound to it.
[[nodiscard]] dat::expected<void> close(lmr_object& region) noexcept {
  adapter& a = region.ia;
  {
    const std::lock_guard lock(a.mutex);
    a.regions.remove(region);
  }
  a.await_posts(); // of threads that have found it
  auto closed = region.lmr.close();
  if (!closed) {
    const std::lock_guard lock(a.mutex);
    (void)a.regions.add(region);
  }
  return closed;
}

[[nodiscard]] dat::expected<DAT_RMR_PARAM> parameters(const rmr_object& r) noexcept {
  const auto from = r.rmr.query();
  if (!from) return from.assume_error();
  DAT_RMR_PARAM to{};
  to.ia_handle = r.ia.self;
  to.pz_handle = r.zone;
  to.rmr_scope = static_cast<DAT_RMR_SCOPE>(from.assume_value().scope);
  if (const auto& binding = from.assume_value().binding) {
    to.lmr_triplet = {binding->address, to_length(binding->length), binding->lmr_key};
    to.mem_priv = static_cast<DAT_MEM_PRIV_FLAGS>(binding->rights);
    to.rmr_context = binding->key;
    to.va_type = binding->zero_based ? DAT_VA_TYPE_ZB : DAT_VA_TYPE_VA;
  }
  return to;
}

[[nodiscard]] DAT_RETURN bind(const entry_call<rmr_object>& r, DAT_LMR_HANDLE lmr, const DAT_LMR_TRIPLET* triplet,
                              DAT_MEM_PRIV_FLAGS privileges, DAT_VA_TYPE va_type, DAT_EP_HANDLE ep,
                              DAT_RMR_COOKIE cookie, DAT_COMPLETION_FLAGS flags, DAT_RMR_CONTEXT* context) noexcept {
  const std::lock_guard alone(r->binding);
  if (!triplet) return r.bad_argument(3);
  if (!within(privileges, all_rights)) return r.bad_argument(4);
  if (va_type != DAT_VA_TYPE_VA && va_type != DAT_VA_TYPE_ZB) return r.bad_argument(5);
  const post_to through(ep, handle::requests);
  if (!through || &through->ia != &r->ia || through->is_datagram()) return r.bad_handle(return_subtype::handle_ep);
  const auto set = [&](auto& operation) {
    operation.cookie(dat::cookie(cookie.as_64));
    return set_flags(operation, flags);
  };
  if (triplet->segment_length == 0) {
    dat::unbind operation;
    if (!set(operation)) return r.bad_argument(8);
    if (context) *context = 0;
    return word(r->rmr.unbind(through->rc, operation));
  }
  const call_on<lmr_object> region(lmr);
  if (!region || &region->ia != &r->ia) return r.bad_handle(return_subtype::handle_lmr);
  if (!context) return r.bad_argument(9);
  if (triplet->lmr_context != region->known.key) return r.bad_argument(3);
  dat::dynamic::bind operation(region->lmr, triplet->virtual_address - region->lmr.address(), triplet->segment_length,
                               to_rights(privileges));
  if (va_type == DAT_VA_TYPE_ZB) operation.zero_based();
  if (!set(operation)) return r.bad_argument(8);
  const auto bound = dat::dynamic::post(r->rmr, through->rc, operation);
  if (bound) *context = bound.assume_value().rkey();
  return word(bound);
}

} // namespace

void add_memory_entries(DAT_PROVIDER& table) noexcept {
  table.pz_create_func = entry<adapter, "dat_pz_create">([](auto& a, DAT_PZ_HANDLE* pz) {
    return pz ? issue<pz_object>(*a, a->ia.create_pz(), pz, DCNT_IA_PZ_CREATE, a.name()) : a.bad_argument(2);
  });
  table.pz_query_func = query<pz_object, "dat_pz_query", DAT_PZ_FIELD_ALL>(
      [](auto& zone) { return DAT_PZ_PARAM{.ia_handle = zone.ia.self}; });
  table.pz_free_func = free<pz_object, "dat_pz_free", DCNT_IA_PZ_FREE>([](auto& zone) { return zone.pz.close(); });

  table.lmr_create_func = entry<adapter, "dat_lmr_create", create_lmr>();
  table.lmr_query_func =
      query<lmr_object, "dat_lmr_query", DAT_LMR_FIELD_ALL>([](auto& region) { return region.param; });
  table.lmr_free_func = free<lmr_object, "dat_lmr_free", DCNT_IA_LMR_FREE>([](auto& region) { return close(region); });
  table.lmr_sync_rdma_read_func =
      entry<adapter, "dat_lmr_sync_rdma_read">([](auto& a, const DAT_LMR_TRIPLET* segments, DAT_VLEN n) {
        return synchronise(a, segments, n, [](auto& ia, auto& s) { return dat::sync_rdma_read(ia, s); });
      });
  table.lmr_sync_rdma_write_func =
      entry<adapter, "dat_lmr_sync_rdma_write">([](auto& a, const DAT_LMR_TRIPLET* segments, DAT_VLEN n) {
        return synchronise(a, segments, n, [](auto& ia, auto& s) { return dat::sync_rdma_write(ia, s); });
      });

  table.rmr_create_func = entry<pz_object, "dat_rmr_create">([](auto& zone, DAT_RMR_HANDLE* rmr) {
    if (!rmr) return zone.bad_argument(2);
    return issue<rmr_object>(zone->ia, zone->pz.create_rmr(), rmr, DCNT_IA_RMR_CREATE, zone.name(), zone->self);
  });
  table.rmr_create_for_ep_func = entry<pz_object, "dat_rmr_create_for_ep">([](auto& zone, DAT_RMR_HANDLE* rmr) {
    if (!rmr) return zone.bad_argument(2);
    return issue<rmr_object>(zone->ia, zone->pz.create_rmr_for_ep(), rmr, DCNT_IA_RMR_CREATE, zone.name(), zone->self);
  });
  table.rmr_query_func = query<rmr_object, "dat_rmr_query", DAT_RMR_FIELD_ALL>([](auto& r) { return parameters(r); });
  table.rmr_bind_func = entry<rmr_object, "dat_rmr_bind", bind>();
  table.rmr_free_func = free<rmr_object, "dat_rmr_free", DCNT_IA_RMR_FREE>([](auto& r) { return r.rmr.close(); });
}

} // namespace provider
