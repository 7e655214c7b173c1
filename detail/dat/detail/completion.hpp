// From a work completion to the event that the consumer sees.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/event.hpp>

#include <dat/detail/core.hpp>
#include <dat/detail/wc_status.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <type_traits>

namespace dat::inline v0::detail {

/// How the library makes events, whose constructors are not the consumer's.
struct event_access {
  template <class E, class... A>
  static E make(A&&... a) noexcept {
    return E(std::forward<A>(a)...);
  }
};

/// Calls `visit` with the event of a completion whose queue entry is known.
template <class Visitor>
[[gnu::always_inline]] inline void visit_completion(ep_core& ep, const ibv_wc& wc, const work_entry& entry,
                                                    Visitor&& visit) {
  using access = event_access;
  if (wc.status != IBV_WC_SUCCESS) [[unlikely]] {
    ep.broke(tag_of(wc.wr_id));
    auto e = access::make<dto_failure>(&ep, entry.cookie, entry.operation, to_dto_status(wc.status, entry.operation),
                                       wc.vendor_err, static_cast<std::uint8_t>(wc.status));
    return static_cast<void>(visit(e));
  }
  if ((wc.wr_id & recv_bit) != 0) {
    if ((wc.wc_flags & IBV_WC_WITH_IMM) == 0) [[likely]] {
      auto e = access::make<received>(&ep, entry.cookie, wc.byte_len);
      return static_cast<void>(visit(e));
    }
    if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
      auto e = access::make<ib::received_write_immediate>(&ep, entry.cookie, wc.byte_len, wc.imm_data);
      return static_cast<void>(visit(e));
    }
    auto e = access::make<ib::received_immediate>(&ep, entry.cookie, wc.byte_len, wc.imm_data);
    return static_cast<void>(visit(e));
  }
  if (entry.operation == dto_operation::send) [[likely]] {
    auto e = access::make<sent>(&ep, entry.cookie, entry.length);
    return static_cast<void>(visit(e));
  }
  switch (entry.operation) {
  case dto_operation::rdma_write: {
    auto e = access::make<rdma_write_done>(&ep, entry.cookie, entry.length);
    return static_cast<void>(visit(e));
  }
  case dto_operation::rdma_read: {
    auto e = access::make<rdma_read_done>(&ep, entry.cookie, entry.length);
    return static_cast<void>(visit(e));
  }
  case dto_operation::rdma_write_immediate: {
    auto e = access::make<ib::rdma_write_immediate_done>(&ep, entry.cookie, entry.length);
    return static_cast<void>(visit(e));
  }
  default: {
    auto e = access::make<sent>(&ep, entry.cookie, entry.length);
    return static_cast<void>(visit(e));
  }
  }
}

/// The lean path: resolves a completion straight from the device. False when it yields no event.
template <class Visitor>
[[gnu::always_inline]] inline bool take_completion(const slot_table& slots, const ibv_wc& wc, Visitor&& visit) {
  ep_core* ep = slots.find(tag_of(wc.wr_id));
  if (!ep) [[unlikely]]
    return false; // of an endpoint that is gone or was reset
  const work_entry entry = ep->ring_of(wc.wr_id).retire(index_of(wc.wr_id));
  if (ep->state() != ep_state::connected) [[unlikely]]
    if (!ep->completed_unconnected(wc.wr_id, wc.status, entry.kind)) return false;
  visit_completion(*ep, wc, entry, visit);
  return true;
}

/// The merged path: turns a record into its event. False when it yields none.
template <streams S, class Visitor>
bool take_record(record& r, Visitor&& visit) {
  using access = event_access;
  using kind = record::kind;
  if constexpr (includes(S, streams::dto)) {
    if (r.what == kind::completion) {
      const ref<ep_core> ep(static_cast<ep_core*>(r.endpoint.detach()), adopt);
      if (!ep) return false; // gone, or reset since
      visit_completion(*ep, r.wc, r.entry, visit);
      return true;
    }
  }
  if constexpr (includes(S, streams::software)) {
    if (r.what == kind::software) {
      auto e = access::make<software_event>(r.entry.cookie);
      visit(e);
      return true;
    }
  }
  if constexpr (includes(S, streams::connection_requests)) {
    if (r.what == kind::request) {
      auto e = access::make<cr>(std::move(r.request));
      visit(e);
      return true;
    }
  }
  if constexpr (includes(S, streams::connection)) {
    ref<ep_core> ep(static_cast<ep_core*>(r.endpoint.detach()), adopt);
    const auto give = [&]<class E>(std::type_identity<E>) {
      auto e = access::make<E>(std::move(ep), std::move(r.source), r.reason);
      visit(e);
    };
    switch (r.what) {
    case kind::established:
      give(std::type_identity<established>{});
      return true;
    case kind::peer_rejected:
      give(std::type_identity<peer_rejected>{});
      return true;
    case kind::non_peer_rejected:
      give(std::type_identity<non_peer_rejected>{});
      return true;
    case kind::accept_completion_error:
      give(std::type_identity<accept_completion_error>{});
      return true;
    case kind::disconnected:
      give(std::type_identity<disconnected>{});
      return true;
    case kind::broken:
      give(std::type_identity<broken>{});
      return true;
    case kind::timed_out:
      give(std::type_identity<timed_out>{});
      return true;
    case kind::unreachable:
      give(std::type_identity<unreachable>{});
      return true;
    default:
      return false;
    }
  }
  return false;
}

} // namespace dat::inline v0::detail
