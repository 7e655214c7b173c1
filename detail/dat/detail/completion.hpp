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

/// Calls `visit` with the event of a completion whose queue entry is known: of an operation that failed,
template <class Visitor>
[[gnu::cold, gnu::noinline]] void visit_failure(ep_core& ep, const ibv_wc& wc, work_entry entry, Visitor& visit) {
  ep.broke(tag_of(wc.wr_id));
  auto e =
      event_access::make<dto_failure>(&ep, entry.cookie, entry.operation, to_dto_status(wc.status, entry.operation),
                                      wc.vendor_err, static_cast<std::uint8_t>(wc.status));
  visit(e);
}
/// of a receive,
template <class Visitor>
[[gnu::always_inline]] inline void visit_received(ep_core& ep, const ibv_wc& wc, const work_entry& entry,
                                                  Visitor& visit) {
  using access = event_access;
  if ((wc.wc_flags & IBV_WC_WITH_IMM) == 0) [[likely]] {
    auto e = access::make<received>(&ep, entry.cookie, wc.byte_len);
    visit(e);
  } else if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    auto e = access::make<ib::received_write_immediate>(&ep, entry.cookie, wc.byte_len, wc.imm_data);
    visit(e);
  } else {
    auto e = access::make<ib::received_immediate>(&ep, entry.cookie, wc.byte_len, wc.imm_data);
    visit(e);
  }
}
/// and of a request.
template <class Visitor>
[[gnu::always_inline]] inline void visit_requested(ep_core& ep, const work_entry& entry, Visitor& visit) {
  const auto give = [&]<class E>(std::type_identity<E>) {
    auto e = event_access::make<E>(&ep, entry.cookie, entry.length);
    visit(e);
  };
  if (entry.operation == dto_operation::send) [[likely]]
    give(std::type_identity<sent>{});
  else if (entry.operation == dto_operation::rdma_write)
    give(std::type_identity<rdma_write_done>{});
  else if (entry.operation == dto_operation::rdma_read)
    give(std::type_identity<rdma_read_done>{});
  else if (entry.operation == dto_operation::rdma_write_immediate)
    give(std::type_identity<ib::rdma_write_immediate_done>{});
  else
    give(std::type_identity<sent>{});
}

template <class Visitor>
void visit_completion(ep_core& ep, const ibv_wc& wc, const work_entry& entry, Visitor& visit) {
  if (wc.status != IBV_WC_SUCCESS) [[unlikely]]
    visit_failure(ep, wc, entry, visit);
  else if ((wc.wr_id & recv_bit) != 0)
    visit_received(ep, wc, entry, visit);
  else
    visit_requested(ep, entry, visit);
}

/// The lean path: resolves a completion straight from the device. False when it yields no event.
template <class Visitor>
[[gnu::always_inline]] inline bool take_completion(const slot_table& slots, const ibv_wc& wc, Visitor& visit) {
  const std::uint64_t wr_id = wc.wr_id;
  ep_core* ep;
  if (!slots.find(tag_of(wr_id), ep)) [[unlikely]]
    return false; // of an endpoint that is gone or was reset
  if ((wr_id & recv_bit) == 0) {
    const work_entry entry = ep->requests().retire(index_of(wr_id));
    if (wc.status == IBV_WC_SUCCESS && entry.operation == dto_operation::send) [[likely]]
      visit_requested(*ep, entry, visit);
    else if (entry.operation == marker_operation) [[unlikely]]
      return ep->marker_taken(wr_id, wc.status), false;
    else if (wc.status != IBV_WC_SUCCESS) [[unlikely]]
      visit_failure(*ep, wc, entry, visit);
    else
      visit_requested(*ep, entry, visit);
  } else {
    const work_entry entry = ep->receives().retire(index_of(wr_id));
    if (wc.status != IBV_WC_SUCCESS) [[unlikely]]
      return visit_failure(*ep, wc, entry, visit), true;
    if (ep->state() != ep_state::connected) [[unlikely]]
      ep->arrived();
    visit_received(*ep, wc, entry, visit);
  }
  return true;
}

template <class Visitor, class... E>
void visit_async(record& r, Visitor& visit, type_list<E...>) {
  const async_info what = r.async_what();
  auto nth = static_cast<unsigned>(r.what) - static_cast<unsigned>(record::kind::first_async);
  const auto give = [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_same_v<T, ep_broken>) {
      auto e = event_access::make<T>(what, ref<ep_core>(static_cast<ep_core*>(r.endpoint.detach()), adopt));
      visit(e);
    } else {
      auto e = event_access::make<T>(what);
      visit(e);
    }
  };
  ((nth-- == 0 ? give(std::type_identity<E>()) : void()), ...);
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
  if constexpr (includes(S, streams::async)) {
    if (r.what >= kind::first_async) {
      visit_async(r, visit, async_events());
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
