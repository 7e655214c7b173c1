// Definitions of wait_for.hpp: which records a wait takes, and the errors of those that end it.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/deadline.hpp>
#include <dat/detail/delivery/wait_for.hpp>
#include <dat/detail/events/connection_names.hpp>
#include <dat/detail/events/wait_until.hpp>

#include <optional>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL std::uint32_t becomes(const record& r) noexcept {
  if (r.wc.status != IBV_WC_SUCCESS) return completion_bit<dto_failure>;
  if (r.posted.is_receive()) {
    const bool imm = (r.wc.wc_flags & IBV_WC_WITH_IMM) != 0;
    if (r.posted.is_datagram())
      return imm ? completion_bit<ib::datagram_recv_immediate_done> : completion_bit<ib::datagram_recv_done>;
    if (!imm) return completion_bit<recv_done>;
    return r.wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM ? completion_bit<ib::recv_write_immediate_done>
                                                    : completion_bit<ib::recv_immediate_done>;
  }
  switch (r.posted.operation()) {
  case dto_operation::rdma_write:
    return completion_bit<rdma_write_done>;
  case dto_operation::rdma_read:
    return completion_bit<rdma_read_done>;
  case dto_operation::rdma_write_immediate:
    return completion_bit<ib::rdma_write_immediate_done>;
  case dto_operation::fetch_and_add:
    return completion_bit<ib::fetch_and_add_done>;
  case dto_operation::compare_and_swap:
    return completion_bit<ib::compare_and_swap_done>;
  case dto_operation::atomic_write:
    return completion_bit<ib::atomic_write_done>;
  case dto_operation::flush:
    return completion_bit<ib::flush_done>;
  case dto_operation::send_ud:
    return completion_bit<ib::datagram_send_done>;
  case dto_operation::bind:
  case dto_operation::unbind:
    return completion_bit<bind_done>;
  default:
    return completion_bit<send_done>;
  }
}

DAT_DECL error instead(std::uint32_t ep_number, std::string_view cause) noexcept {
  return error(return_type::invalid_state, return_subtype::ep_disconnected)
      .at("evd.wait_for", object_kind::ep, ep_number)
      .hint(cause.data()); // a literal
}

/// Whether a record is the end of a connection, or of a connection attempt.
[[nodiscard]] DAT_DECL bool ends_connection(const record& r) noexcept {
  return r.what >= record::kind::peer_rejected && r.what <= record::kind::unreachable;
}

DAT_DECL dto_failure failure_of(ep_core& ep, const record& r, const bind_outcome& bind) noexcept {
  std::optional<dto_failure> failure;
  const auto keep = [&](const dto_failure& f) noexcept { failure = f; };
  const dto_operation operation = r.posted.is_bind() ? bind.operation : r.posted.operation();
  visit_failure(ep, r.tag, r.wc, r.posted, keep, operation, bind.window);
  return *failure;
}

/// The error for a taken record that ends a wait.
[[nodiscard]] DAT_DECL error ending(taken_record& taken) noexcept {
  const record& r = taken.of;
  if (r.what == record::kind::completion) return instead(take_as<dto_failure>(taken));
  return instead(ep_ref(static_cast<ep_core*>(r.endpoint.get())).number(), cause_of(r.what, r.reason));
}

/// Applies the effects of taking a completion. Returns false when the record is no event.
[[nodiscard]] DAT_DECL bool take_effect(taken_record& taken) noexcept {
  const record& r = taken.of;
  if (r.what != record::kind::completion) return true;
  auto* const ep = static_cast<ep_core*>(r.endpoint.get());
  if (!ep) return false; // closed or reset meanwhile
  const bool done = r.wc.status == IBV_WC_SUCCESS;
  if (r.posted.is_bind()) {
    taken.bind = ep->ia().bind_ended(r.posted.length, done, r.posted.is_first_half());
    return taken.bind.window && !(done && r.posted.is_internal());
  }
  if (done && becomes(r) == completion_bit<recv_done> && (r.wc.wc_flags & relevant_flags) != 0) {
    const auto keep = [&](const recv_done& e) noexcept { taken.invalidated = e.invalidated().value_or(0); };
    visit_invalidating(*ep, r.wc, r.posted.cookie, keep);
  }
  return true;
}

DAT_DECL expected<void> wait_for_record(evd_core& e, ep_ref of, timeout limit, const wanted_events& what,
                                        taken_record& taken) noexcept {
  const auto matters = [&](const record& r) {
    const bool end = r.what == record::kind::completion ? what.completion_hoped && r.wc.status != IBV_WC_SUCCESS
                                                        : what.connection_hoped && ends_connection(r);
    if (!end && !what.contain(r)) return false;
    if (!of || r.what == record::kind::request || r.what == record::kind::datagram_request ||
        r.what == record::kind::software || r.what >= record::kind::first_async)
      return true;
    if (r.what != record::kind::completion) return r.endpoint.get() == of.native();
    return e.owner_of(r.tag) == of.native();
  };
  auto r = wait_until(e, deadline::in(limit), [&] {
    while (static_cast<merged_evd&>(e).take_if(taken.of, matters))
      if (take_effect(taken)) return true;
    return false;
  });
  if (!r) return r;
  if (!what.contain(taken.of)) return ending(taken);
  return success();
}

}}} // namespace dat::v0::detail
