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
  static void set_invalidated(received& e, std::uint32_t key) noexcept { e.invalidated_ = key; }
};

// What datagram endpoints give. Defined where their events are, in <dat/ud.hpp>.
template <streams S, class Visitor>
void visit_datagram(ep_core& ep, const ibv_wc& wc, const posted_work& posted, Visitor& visit);
template <streams S, class Visitor>
[[nodiscard]] bool take_datagram_sent(work_entry& e, Visitor& visit);
template <streams S, class Visitor>
[[nodiscard]] bool take_datagram_received(work_entry& e, const ibv_wc& wc, Visitor& visit);
template <streams S, class Visitor>
[[nodiscard]] bool take_datagram_record(record& r, Visitor& visit);

/// Calls `visit` with the event of a completion whose queue entry is known: of an operation that failed,
template <class Visitor>
[[gnu::cold, gnu::noinline]] void visit_failure(ep_core& ep, const ibv_wc& wc, posted_work posted, Visitor& visit,
                                                dto_operation reported) {
  ep.broke(ep.tag());
  auto e = event_access::make<dto_failure>(&ep, posted.cookie, reported, to_dto_status(wc.status, posted.operation()),
                                           wc.vendor_err, static_cast<std::uint8_t>(wc.status));
  visit(e);
}
/// of a bind, which also changes its window; false when it is not to be told,
template <streams S, class Visitor>
[[gnu::cold, gnu::noinline]] bool visit_bind(ep_core& ep, const ibv_wc& wc, posted_work posted, Visitor& visit) {
  const bool done = wc.status == IBV_WC_SUCCESS;
  const bool silent = posted.is_silent();
  const bind_outcome outcome = ep.ia().bind_ended(posted.length, done, posted.is_first_half());
  if (!outcome.window || (done && silent)) return false;
  if (!done) {
    visit_failure(ep, wc, posted, visit, outcome.operation);
    return true;
  }
  if constexpr (includes(S, streams::rmr_bind)) {
    auto e = event_access::make<bind_done>(&ep, posted.cookie, outcome.operation, outcome.window);
    visit(e);
  }
  return includes(S, streams::rmr_bind);
}
/// of a message that invalidated a window,
template <class Visitor>
[[gnu::cold, gnu::noinline]] void visit_invalidating(ep_core& ep, const ibv_wc& wc, dat::cookie posted,
                                                     Visitor& visit) {
  auto e = event_access::make<received>(&ep, posted, wc.byte_len);
  // rxe says so by the kernel's bit, which is that of a checksum in libibverbs: there, a window must know the key.
  const bool known = ep.ia().invalidated(wc.invalidated_rkey);
  if (known || (wc.wc_flags & IBV_WC_WITH_INV) != 0) event_access::set_invalidated(e, wc.invalidated_rkey);
  visit(e);
}
/// of a receive,
template <class Visitor>
[[gnu::always_inline]] inline void visit_received(ep_core& ep, const ibv_wc& wc, const posted_work& posted,
                                                  Visitor& visit) {
  using access = event_access;
  if ((wc.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK)) == 0) [[likely]] {
    auto e = access::make<received>(&ep, posted.cookie, wc.byte_len);
    visit(e);
  } else if ((wc.wc_flags & IBV_WC_WITH_IMM) == 0) {
    visit_invalidating(ep, wc, posted.cookie, visit);
  } else if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    auto e = access::make<ib::received_write_immediate>(&ep, posted.cookie, wc.byte_len, wc.imm_data);
    visit(e);
  } else {
    auto e = access::make<ib::received_immediate>(&ep, posted.cookie, wc.byte_len, wc.imm_data);
    visit(e);
  }
}
/// and of a request.
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
  default:
    return give(std::type_identity<sent>{});
  }
}

template <streams S, class Visitor>
bool visit_completion(ep_core& ep, const ibv_wc& wc, const posted_work& posted, Visitor& visit) {
  if (posted.is_bind()) [[unlikely]]
    return visit_bind<S>(ep, wc, posted, visit);
  if (wc.status != IBV_WC_SUCCESS) [[unlikely]] {
    visit_failure(ep, wc, posted, visit, posted.operation());
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

/// A receive of a shared queue, whatever has become of it. False when its endpoint is gone.
template <class Visitor>
[[gnu::cold, gnu::noinline]] bool take_shared(work_entry& e, const ibv_wc& wc, Visitor& visit) {
  const posted_work posted = work_ring::read(e);
  ep_core* const ep = e.shared().owner_of(wc.qp_num);
  shared_queue::retire(e);
  if (!ep) [[unlikely]]
    return false;
  if (wc.status != IBV_WC_SUCCESS) [[unlikely]] {
    visit_failure(*ep, wc, posted, visit, posted.operation());
    return true;
  }
  if (ep->state() == ep_state::completion_pending) [[unlikely]]
    ep->arrived();
  visit_received(*ep, wc, posted, visit);
  return true;
}

/// What seldom comes: failures, receives of before the connection, binds, and the library's own requests.
template <streams S, class Visitor>
[[gnu::cold, gnu::noinline]] bool take_unusual(work_entry& e, const ibv_wc& wc, Visitor& visit) {
  const posted_work posted = work_ring::read(e);
  ep_core& ep = e.ring().owner();
  if (posted.kind == marker_work) return ep.marker_taken(ep.tag(), wc.status), false;
  if (posted.is_receive()) e.posted.kind = e.ring().usual();
  if (posted.is_early() && wc.status == IBV_WC_SUCCESS) ep.arrived();
  // The slot of a suppressed bind is freed by what the consumer takes, as those of other suppressed requests.
  if (!posted.is_silent() || wc.status != IBV_WC_SUCCESS) work_ring::retire(e);
  return visit_completion<S>(ep, wc, posted, visit);
}

/// What is no plain success of an endpoint's own queue. Not inlined: it would cost the others registers. What is no
/// plain message of a shared queue either is left to others before anything is done: then this one needs to save no
/// registers.
template <streams S, class Visitor>
[[gnu::noinline]] bool take_other(work_entry& e, const ibv_wc& wc, Visitor& visit) {
  if (!e.posted.is_shared()) [[unlikely]]
    return take_unusual<S>(e, wc, visit);
  const std::uint32_t marker = e.shared().endpoints.glance(wc.qp_num);
  if (marker == 0 || (static_cast<std::uint32_t>(wc.status) | wc.wc_flags) != 0) [[unlikely]]
    return take_shared(e, wc, visit);
  ep_core* const ep = e.shared().owner_at(marker);
  if (ep->state() == ep_state::completion_pending) [[unlikely]]
    return take_shared(e, wc, visit);
  const dat::cookie cookie = work_ring::read(e).cookie;
  shared_queue::retire(e);
  auto event = event_access::make<received>(ep, cookie, wc.byte_len);
  visit(event);
  return true;
}

/// A request that is done.
template <class E, class Visitor>
[[gnu::always_inline]] inline bool take_done(work_entry& e, Visitor& visit) {
  const posted_work posted = work_ring::read(e);
  ep_core& ep = e.ring().owner();
  work_ring::retire(e); // first: the visitor may post
  auto event = event_access::make<E>(&ep, posted.cookie, posted.bytes());
  visit(event);
  return true;
}

/// The lean path: resolves a completion straight from the device. False when it yields no event.
template <streams S, class Visitor>
[[gnu::always_inline]] inline bool take_completion(const evd_polling& evd, const ibv_wc& wc, Visitor& visit) {
  work_entry* e;
  if (!evd.find(wc, e)) [[unlikely]]
    return false; // of an endpoint that is gone or was reset
  work_ring::observe(*e);
  // One comparison for each kind of success.
  const auto code = [](dto_operation o) noexcept { return static_cast<std::int32_t>(kind_of_work(o)); };
  std::int32_t outcome = static_cast<std::int32_t>(e->posted.kind) | static_cast<std::int32_t>(wc.status);
  if constexpr (includes(S, streams::datagrams))
    if (outcome == code(dto_operation::send_ud)) return take_datagram_sent<S>(*e, visit);
  if (outcome == code(dto_operation::send)) [[likely]]
    return take_done<sent>(*e, visit);
  if constexpr (includes(S, streams::datagrams)) {
    if (outcome == static_cast<std::int32_t>(recv_ud_work)) return take_datagram_received<S>(*e, wc, visit);
  }
  if (outcome < 0) {
    // Nothing but a plain message has no flags.
    if ((outcome | static_cast<std::int32_t>(wc.wc_flags)) != code(dto_operation::recv)) [[unlikely]]
      return take_other<S>(*e, wc, visit);
    const posted_work posted = work_ring::read(*e);
    ep_core& ep = e->ring().owner();
    work_ring::retire(*e);
    auto event = event_access::make<received>(&ep, posted.cookie, wc.byte_len);
    visit(event);
    return true;
  }
  if (outcome == code(dto_operation::rdma_write)) return take_done<rdma_write_done>(*e, visit);
  if (outcome > code(dto_operation::rdma_write)) {
    if (outcome == code(dto_operation::rdma_write_immediate))
      return take_done<ib::rdma_write_immediate_done>(*e, visit);
    asm("" : "+r"(outcome)); // so that clang does not sort what follows in among what was asked first
    if (outcome == code(dto_operation::fetch_and_add)) return take_done<ib::fetch_and_add_done>(*e, visit);
  } else {
    if (outcome == code(dto_operation::rdma_read)) return take_done<rdma_read_done>(*e, visit);
    asm("" : "+r"(outcome));
    if (outcome == code(dto_operation::compare_and_swap)) return take_done<ib::compare_and_swap_done>(*e, visit);
  }
  return take_unusual<S>(*e, wc, visit);
}

template <class Visitor, class... E>
void visit_async(record& r, Visitor& visit, type_list<E...>) {
  const async_info what = r.async_what();
  auto nth = static_cast<unsigned>(r.what) - static_cast<unsigned>(record::kind::first_async);
  const auto give = [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_same_v<T, ep_broken> || std::is_same_v<T, ep_soft_high_watermark>) {
      auto e = event_access::make<T>(what, ref<ep_core>(static_cast<ep_core*>(r.endpoint.detach()), adopt));
      visit(e);
    } else if constexpr (std::is_same_v<T, srq_low_watermark> || std::is_same_v<T, srq_error>) {
      auto e = event_access::make<T>(what, ref<srq_core>(static_cast<srq_core*>(r.endpoint.detach()), adopt));
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
      return visit_completion<S>(*ep, r.wc, r.posted, visit);
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
