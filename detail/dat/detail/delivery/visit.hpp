// Turns a completion or a record of a merged evd into its event: the common part of draining and waiting.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/event.hpp>
#include <dat/log.hpp>

#include <dat/detail/endpoint/core.hpp>
#include <dat/detail/handle/event_key.hpp>
#include <dat/detail/verbs/wc_status.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

// The functions for completions of datagram endpoints. <dat/ud.hpp>, which has their events, defines them.
template <streams S, class Visitor>
void visit_datagram(ep_core& ep, const ibv_wc& wc, const posted_work& posted, Visitor& visit);
template <streams S, class Visitor>
[[nodiscard]] bool take_datagram_send_done(work_entry& e, Visitor& visit);
template <streams S, class Visitor>
[[nodiscard]] bool take_datagram_received(work_entry& e, const ibv_wc& wc, Visitor& visit);
template <streams S, class Visitor>
[[nodiscard]] bool take_datagram_record(record& r, Visitor& visit);

// Each function calls `visit` with the event of a completion whose queue entry is known. `life` is the wr_id of the
// completion, or the generation of its endpoint: it distinguishes the lives of an endpoint.

/// Visits the failure of an operation. `window` is the window of a bind.
template <class Visitor>
[[gnu::cold, gnu::noinline]] void visit_failure(ep_core& ep, ep_generation life, const ibv_wc& wc, posted_work posted,
                                                Visitor& visit, dto_operation reported, const void* window = nullptr) {
  if (ep.ia().is_break(wc.status)) ep.broke(life);
  // rxe and siw have one status for memory of another zone and for other faults.
  const bool unnamed = wc.status == IBV_WC_LOC_QP_OP_ERR || wc.status == IBV_WC_GENERAL_ERR;
  const int status = posted.is_foreign() && unnamed ? IBV_WC_LOC_PROT_ERR : wc.status;
  auto e = event_access::make<dto_failure>(&ep, posted.cookie, reported, to_dto_status(status, posted.operation()),
                                           wc.vendor_err, static_cast<std::uint8_t>(wc.status), window);
  if constexpr (trace_build)
    if (wc.status != IBV_WC_WR_FLUSH_ERR) log_event(log_level::error, [&] { return e.message(); });
  visit(e);
}
/// A bind that has succeeded: its window changes now. Returns false when it is no event.
template <streams S, class Visitor>
bool visit_bound(ep_core& ep, const posted_work& posted, Visitor& visit) {
  const bind_outcome outcome = ep.ia().bind_ended(posted.length, true);
  if (!outcome.window) return false;
  auto e = event_access::make<bind_done>(&ep, posted.cookie, outcome.operation, outcome.window);
  visit(e);
  return true;
}
/// A bind, which also changes its window. Returns false when it is no event.
template <streams S, class Visitor>
[[gnu::cold, gnu::noinline]] bool visit_bind(ep_core& ep, ep_generation life, const ibv_wc& wc, posted_work posted,
                                             Visitor& visit) {
  const bool done = wc.status == IBV_WC_SUCCESS;
  const bool internal = posted.is_internal();
  const bind_outcome outcome = ep.ia().bind_ended(posted.length, done, posted.is_first_half());
  if (!outcome.window || (done && internal)) return false;
  if (!done) {
    visit_failure(ep, life, wc, posted, visit, outcome.operation, outcome.window);
    return true;
  }
  if constexpr (includes(S, streams::rmr_bind)) {
    auto e = event_access::make<bind_done>(&ep, posted.cookie, outcome.operation, outcome.window);
    visit(e);
  }
  return includes(S, streams::rmr_bind);
}
/// A message that invalidated a window.
template <class Visitor>
[[gnu::cold, gnu::noinline]] void visit_invalidating(ep_core& ep, const ibv_wc& wc, dat::cookie posted,
                                                     Visitor& visit) {
  // rxe reports the invalidation with the kernel's bit, which libibverbs interprets as a checksum bit. Then the key
  // counts only if it belongs to a window.
  const bool known = ep.ia().invalidated(wc.invalidated_rkey);
  const std::uint32_t key = known || (wc.wc_flags & IBV_WC_WITH_INV) != 0 ? wc.invalidated_rkey : 0;
  auto e = event_access::make<recv_done>(&ep, posted, wc.byte_len, key);
  visit(e);
}
/// A receive.
template <class Visitor>
[[gnu::always_inline]] inline void visit_received(ep_core& ep, const ibv_wc& wc, const posted_work& posted,
                                                  Visitor& visit) {
  using access = event_access;
  if ((wc.wc_flags & relevant_flags) == 0) [[likely]] {
    auto e = access::make<recv_done>(&ep, posted.cookie, wc.byte_len);
    visit(e);
  } else if ((wc.wc_flags & IBV_WC_WITH_IMM) == 0) {
    visit_invalidating(ep, wc, posted.cookie, visit);
  } else if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    auto e = access::make<ib::recv_write_immediate_done>(&ep, posted.cookie, wc.byte_len, wc.imm_data);
    visit(e);
  } else {
    auto e = access::make<ib::recv_immediate_done>(&ep, posted.cookie, wc.byte_len, wc.imm_data);
    visit(e);
  }
}
/// A request that succeeded.
template <class Visitor>
[[gnu::always_inline]] inline void visit_requested(ep_core& ep, const posted_work& posted, Visitor& visit) {
  const auto give = [&]<class E>(std::type_identity<E>) {
    auto e = event_access::make<E>(&ep, posted.cookie, posted.bytes());
    visit(e);
  };
  switch (posted.operation()) {
  case dto_operation::rdma_write:
    return give(std::type_identity<rdma_write_done>{});
  case dto_operation::rdma_read:
    return give(std::type_identity<rdma_read_done>{});
  case dto_operation::rdma_write_immediate:
    return give(std::type_identity<ib::rdma_write_immediate_done>{});
  case dto_operation::fetch_and_add:
    return give(std::type_identity<ib::fetch_and_add_done>{});
  case dto_operation::compare_and_swap:
    return give(std::type_identity<ib::compare_and_swap_done>{});
  case dto_operation::atomic_write:
    return give(std::type_identity<ib::atomic_write_done>{});
  case dto_operation::flush:
    return give(std::type_identity<ib::flush_done>{});
  default:
    return give(std::type_identity<send_done>{});
  }
}

template <streams S, class Visitor>
bool visit_completion(ep_core& ep, ep_generation life, const ibv_wc& wc, const posted_work& posted, Visitor& visit) {
  if (posted.is_bind()) [[unlikely]]
    return visit_bind<S>(ep, life, wc, posted, visit);
  if (wc.status != IBV_WC_SUCCESS) [[unlikely]] {
    visit_failure(ep, life, wc, posted, visit, posted.operation());
    return true;
  }
  if constexpr (includes(S, streams::datagrams))
    if (posted.is_datagram()) {
      visit_datagram<S>(ep, wc, posted, visit);
      return true;
    }
  if (posted.is_receive())
    visit_received(ep, wc, posted, visit);
  else
    visit_requested(ep, posted, visit);
  return true;
}

/// The asynchronous event of a record.
template <class T>
[[nodiscard]] T make_async(record& r) noexcept {
  const async_info what = r.async_what();
  if constexpr (std::is_same_v<T, ep_broken> || std::is_same_v<T, ep_soft_high_watermark>)
    return event_access::make<T>(what, ref<ep_core>(static_cast<ep_core*>(r.endpoint.detach()), adopt));
  else if constexpr (std::is_same_v<T, srq_low_watermark> || std::is_same_v<T, srq_error>)
    return event_access::make<T>(what, ref<srq_core>(static_cast<srq_core*>(r.endpoint.detach()), adopt));
  else
    return event_access::make<T>(what);
}
template <class Visitor, class... E>
void visit_async(record& r, Visitor& visit, type_list<E...>) {
  auto nth = static_cast<unsigned>(r.what) - static_cast<unsigned>(record::kind::first_async);
  const auto give = [&]<class T>(std::type_identity<T>) {
    auto e = make_async<T>(r);
    visit(e);
  };
  ((nth-- == 0 ? give(std::type_identity<E>()) : void()), ...);
}

/// Turns a record of a merged evd into its event. Returns false when the record is no event.
template <streams S, class Visitor>
bool take_record(record& r, Visitor&& visit) {
  using access = event_access;
  using kind = record::kind;
  if constexpr (includes(S, streams::dto)) {
    if (r.what == kind::completion) {
      const ref<ep_core> ep(static_cast<ep_core*>(r.endpoint.detach()), adopt);
      if (!ep) return false; // closed or reset meanwhile
      return visit_completion<S>(*ep, r.tag, r.wc, r.posted, visit);
    }
  }
  if constexpr (includes(S, streams::software)) {
    if (r.what == kind::software) {
      auto e = access::make<software_event>(r.posted.cookie);
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
  if constexpr (includes(S, streams::datagrams))
    if (take_datagram_record<S>(r, visit)) return true;
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
      give(std::type_identity<connection_broken>{});
      return true;
    case kind::timed_out:
      give(std::type_identity<connection_timed_out>{});
      return true;
    case kind::unreachable:
      give(std::type_identity<connection_unreachable>{});
      return true;
    default:
      return false;
    }
  }
  return false;
}

}}} // namespace dat::v0::detail
