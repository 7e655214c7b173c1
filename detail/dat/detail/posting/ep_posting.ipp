// Definitions of ep_posting.hpp: the reasons why a post is refused, and refusals of the device.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/handle/handle.hpp>
#include <dat/detail/posting/endpoint_queues.hpp>
#include <dat/detail/posting/ep_posting.hpp>
#include <dat/detail/posting/kept_receives.hpp>
#include <dat/detail/text/errno.hpp>
#include <dat/detail/verbs/empty_receive.hpp>
#include <dat/detail/verbs/extended_post.hpp>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL return_subtype subtype_of(ep_state s) noexcept {
  static constexpr return_subtype subtypes[] = {
      return_subtype::ep_unconnected,    return_subtype::ep_unconfigured,    return_subtype::ep_reserved,
      return_subtype::ep_unconfreserved, return_subtype::ep_passconnpending, return_subtype::ep_unconfpassive,
      return_subtype::ep_actconnpending, return_subtype::ep_tentconnpending, return_subtype::ep_unconftentative,
      return_subtype::ep_connected,      return_subtype::ep_discpending,     return_subtype::ep_disconnected,
      return_subtype::ep_complpending};
  const auto i = static_cast<std::size_t>(s);
  return i < sizeof subtypes / sizeof *subtypes ? subtypes[i] : return_subtype::none;
}

inline constexpr const char* recv_iov_hint = "The receive has more segments than the endpoint's max_recv_iov.";

// --- errors --------------------------------------------------------------------------------------------------------

DAT_DECL error ep_posting::wrong_state(const char* call) const noexcept {
  const ep_state s = state();
  if (is_null()) return empty_handle(call, return_subtype::handle_ep);
  if (s == ep_dead) return at(error(return_type::invalid_handle, return_subtype::handle_ep), call);
  if (s == ep_datagram)
    return at(error(return_type::invalid_handle, return_subtype::handle_ep), call)
        .hint("A datagram endpoint sends to addresses: post dat::ib::send_to.");
  return at(error(return_type::invalid_state, subtype_of(s)), call);
}
DAT_DECL error ep_posting::queue_full(const char* call, std::uint32_t index) const noexcept {
  return at(error(return_type::insufficient_resources, return_subtype::resource_tep), call)
      .index(index)
      .hint("The request queue is full: take completions from the request evd first, or create the endpoint with a "
            "larger max_request_dtos. A request whose completion is suppressed becomes free with a later one that "
            "completes: post one without suppress_completion before the queue is full.");
}
DAT_DECL error ep_posting::recv_queue_full(const char* call) const noexcept {
  return at(error(return_type::insufficient_resources, return_subtype::resource_tep), call)
      .hint("The receive queue is full: take completions from the recv evd first, or create the endpoint with a larger "
            "max_recv_dtos.");
}
DAT_DECL error ep_posting::no_receives_here(const char* call) const noexcept {
  return at(error(return_type::invalid_state, subtype_of(state())), call)
      .hint("This endpoint takes its receives from an srq: post them there.");
}

DAT_DECL expected<void> ep_posting::check_support(const char* call, const request_header& r) const noexcept {
  if (state() == ep_dead) return success();
  const auto refuse = [&](const char* hint) { return at(return_type::model_not_supported, call).hint(hint); };
  if (r.is_atomic() && !has_atomics_) return refuse("This adapter has no atomics.");
  if (r.is_atomic_write() && !extended_ops_.includes(extended_op::atomic_write))
    return refuse("This adapter has no atomic writes.");
  if (r.is_flush() && !extended_ops_.includes(extended_op::flush)) return refuse("This adapter has no flushes.");
  if (r.opcode == IBV_WR_SEND_WITH_INV && !invalidates_) return refuse("This adapter has no sends that invalidate.");
  if (r.is_immediate() && !has_immediate_) return no_immediate(call, 0);
  return success();
}

DAT_DECL expected<void> ep_posting::check(const char* call, const request_header& r, const sge_summary& list,
                                          zone_tag zone) const noexcept {
  if (auto ok = check_support(call, r); !ok) return ok;
  const auto refuse = [&](error e, const char* hint) { return at(e, call).hint(hint); };
  const std::uint64_t bytes = list.bytes();
  const bool writes_here = r.is_read() || r.is_atomic();
  if (zone.has_no_region())
    return refuse({return_type::privileges_violation,
                   writes_here ? return_subtype::privileges_write : return_subtype::privileges_read},
                  no_region_hint);
  if (r.is_inlined() && zone.has_offsets())
    return refuse({return_type::invalid_parameter, return_subtype::arg5},
                  "An inlined post copies data from addresses of this process, and a region that is addressed from 0 "
                  "has none: post it without inlined().");
  if (r.no_notify && !takes_no_notify_requests())
    return refuse({return_type::invalid_parameter, return_subtype::arg5}, no_notify_hint);
  if (!list.is_within(own_zone_))
    return refuse({return_type::protection_violation,
                   writes_here ? return_subtype::protection_write : return_subtype::protection_read},
                  "Every segment must be of an lmr of the endpoint's own pz, and of at most 4 GiB.");
  if (list.count() > attributes_.max_request_iov)
    return refuse({return_type::invalid_parameter, return_subtype::arg2},
                  "The request has more segments than the endpoint's max_request_iov.");
  if (r.is_read() && list.count() > max_read_iov_)
    return refuse({return_type::invalid_parameter, return_subtype::arg2},
                  "The RDMA read has more segments than this adapter can read into at once: see max_iov_segments_per_"
                  "rdma_read in ia_attributes.");
  if ((r.is_atomic() || r.is_atomic_write()) && r.remote.address % word_size != 0)
    return refuse({return_type::invalid_parameter, return_subtype::arg6},
                  "The remote word of an atomic must be at a multiple of 8.");
  if (r.is_atomic_write() && r.remote.length < word_size)
    return refuse(return_type::length_error, "An atomic write needs a remote word, and the segment is empty.");
  if (r.is_flush() && !r.covers_region() && (r.remote.length == 0 || r.remote.length > longest_flush))
    return refuse(return_type::length_error,
                  "A flush of a range covers 1 byte to 4 GiB - 1. Flush several ranges, or the "
                  "whole_region().");
  if (r.is_atomic() && bytes != word_size)
    return refuse(return_type::length_error,
                  "An atomic needs a local word for the old value, and the segment is empty.");
  if (r.is_one_sided() && bytes > r.remote.length)
    return refuse(return_type::length_error, "The request has more local bytes than the remote segment has.");
  if ((r.is_read() || r.is_atomic() || r.is_flush()) && max_read_ == 0)
    return refuse({return_type::invalid_parameter, return_subtype::arg1},
                  "This connection allows no RDMA reads, atomics and flushes: set max_rdma_read_out here and "
                  "max_rdma_read_in at the peer.");
  if (r.is_inlined() && bytes > max_inline_)
    return refuse(return_type::length_error, "The request has more bytes than the endpoint's max_inline.");
  if (bytes > max_message_)
    return refuse(return_type::length_error, counter_ ? "A datagram is one packet: it has at most max_message_size "
                                                        "bytes, which is at most the MTU."
                                                      : "The request has more bytes than the endpoint's "
                                                        "max_message_size.");
  return success();
}

DAT_DECL expected<void> ep_posting::check(const char* call, bool no_notify, const sge_summary& list,
                                          zone_tag zone) const noexcept {
  const auto refuse = [&](error e, const char* hint) { return at(e, call).hint(hint); };
  if (zone.has_no_region())
    return refuse({return_type::privileges_violation, return_subtype::privileges_write}, no_region_hint);
  const bool any_zone = lacks_zone() && list.zone() != zone_tag::unpostable();
  if (!any_zone && !list.is_within(own_zone_))
    return refuse({return_type::protection_violation, return_subtype::protection_write},
                  "Every segment must be of an lmr of the endpoint's own pz, and of at most 4 GiB.");
  if (list.count() > attributes_.max_recv_iov)
    return refuse({return_type::invalid_parameter, return_subtype::arg2}, recv_iov_hint);
  if (no_notify && attributes_.recv_completion != completion_notification::selective)
    return refuse({return_type::invalid_parameter, return_subtype::arg5}, no_notify_hint);
  if (any_zone) kept_.get()->note_zone(list.zone());
  return success();
}

DAT_DECL bool ep_posting::lacks_immediate(const ibv_send_wr& wr) const noexcept {
  return !has_immediate_ && (wr.opcode == IBV_WR_SEND_WITH_IMM || wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM);
}
DAT_DECL error ep_posting::no_immediate(const char* call, std::uint32_t index) const noexcept {
  return at(return_type::model_not_supported, call).index(index).hint(no_immediate_hint);
}

// --- posts that failed ---------------------------------------------------------------------------------------------

DAT_DECL expected<void> ep_posting::not_posted(const char* call, bool usable, int err, ibv_send_wr* wr,
                                               ibv_send_wr* bad, std::uint32_t& taken) noexcept {
  work_entry* const end = sq_.next();
  work_entry* const first = sq_.before(end, chain_length<ibv_send_wr>(wr, nullptr));
  taken = 0;
  sq_.set_next(first);
  if (err == null_device_errno) {
    if (!usable) {
      trace_points::refused(number(), chain_length<ibv_send_wr>(wr, nullptr), err);
      return state() != ep_dead && lacks_immediate(*wr) ? no_immediate(call, 0) : wrong_state(call);
    }
    sq_.set_next(end); // the state has changed meanwhile
    bad = wr;          // not every provider sets it
    err = is_posted_extended(wr->opcode) ? post_extended(qp_, *wr) : ibv_post_send(qp_, wr, &bad);
    if (err == 0) {
      taken = chain_length<ibv_send_wr>(wr, nullptr);
      return success();
    }
  }
  taken = chain_length(wr, bad);
  sq_.set_next(work_ring::after(first, taken));
  trace_points::refused(number(), chain_length<ibv_send_wr>(wr, nullptr) - taken, err);
  if (lacks_immediate(*bad)) return no_immediate(call, taken);
  const char* const verb = is_posted_extended(bad->opcode) ? "ibv_wr_complete" : "ibv_post_send";
  return at(map_errno(err, return_subtype::resource_tep, true).from(verb, err), call).index(taken);
}

DAT_DECL expected<void> ep_posting::not_posted(const char* call, int err, ibv_recv_wr* wr, ibv_recv_wr* bad) noexcept {
  work_entry* const end = rq_.next();
  work_entry* const first = rq_.before(end, chain_length<ibv_recv_wr>(wr, nullptr));
  rq_.set_next(first);
  const bool early = err == null_device_errno;
  if (early) {
    const ep_state now = state();
    if (now == ep_dead)
      return trace_points::refused(number(), chain_length<ibv_recv_wr>(wr, nullptr), err), wrong_state(call);
    // An unchecked post comes here as well, and the copies have room for so many segments only.
    for (const ibv_recv_wr* each = wr; each; each = each->next)
      if (static_cast<std::uint32_t>(each->num_sge) > attributes_.max_recv_iov) {
        trace_points::refused(number(), chain_length<ibv_recv_wr>(wr, nullptr), EINVAL);
        return at({return_type::invalid_parameter, return_subtype::arg2}, call).hint(recv_iov_hint);
      }
    if (!is_up(now))
      for (work_entry* e = first; e != end; e = e->next)
        e->posted.kind = no_notify_if(!e->posted.notifies(), pre_connect_recv_work);
    rq_.set_next(end);
    if (is_unconfigured(now)) { // there is no queue pair yet
      keep(wr, chain_length<ibv_recv_wr>(wr, nullptr));
      return success();
    }
    bad = wr;
    err = ibv_post_recv(qp_, wr, &bad);
  }
  if (refused_for_emptiness(err, bad)) {
    rq_.set_next(end);
    err = post_empty_receives(bad, bad, [this](ibv_recv_wr* one, ibv_recv_wr** refused) noexcept {
      return ibv_post_recv(qp_, one, refused);
    });
  }
  if (err == 0) {
    if (early) keep(wr, chain_length<ibv_recv_wr>(wr, nullptr));
    if (!is_up(state())) flush_late_receive();
    return success();
  }
  const std::uint32_t taken = chain_length(wr, bad);
  if (early) keep(wr, taken);
  trace_points::refused(number(), chain_length<ibv_recv_wr>(wr, nullptr) - taken, err);
  rq_.set_next(work_ring::after(first, taken));
  for (work_entry* e = rq_.next(); e != end; e = e->next) e->posted.kind = rq_.usual();
  return at(map_errno(err, return_subtype::resource_tep, true).from("ibv_post_recv", err), call).index(taken);
}

DAT_DECL void ep_posting::keep(const ibv_recv_wr* first, std::uint32_t n) noexcept {
  kept_receives* const kept = kept_.take();
  if (!kept) return;
  kept->add(first, n, own_zone_);
  kept_.put(kept);
  if (!keeps_receives(state())) kept_.put(nullptr);
}

/// Also legal, and needed on some devices, when the queue pair is in the error state already: only this flushes a
/// receive that was posted since.
DAT_DECL void ep_posting::flush_queues() noexcept {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ibv_modify_qp(qp_, &attr, IBV_QP_STATE);
}
DAT_DECL void ep_posting::flush_late_receive() noexcept {
  if (state() == ep_state::disconnected) flush_queues();
}

#ifdef DAT_SEPARATE_COMPILATION
template error no_room(request_queue) noexcept;
template error no_room(recv_queue) noexcept;
template expected<void> not_posted(request_queue, int, ibv_send_wr*, ibv_send_wr*, work_entry* const*) noexcept;
template expected<void> not_posted(recv_queue, int, ibv_recv_wr*, ibv_recv_wr*, work_entry* const*) noexcept;
template expected<void> kept_not_posted<1>(request_queue, int) noexcept;
template expected<void> kept_not_posted<1>(recv_queue, int) noexcept;
template expected<void> post_checked(request_queue, send_request<1>) noexcept;
template expected<void> post_checked(recv_queue, recv_request<1>) noexcept;
#endif

}}} // namespace dat::v0::detail
