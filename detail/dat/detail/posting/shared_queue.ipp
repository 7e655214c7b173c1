// Definitions of shared_queue.hpp: why a buffer is refused, and what becomes of it.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/handle/handle.hpp>
#include <dat/detail/posting/shared_queue.hpp>
#include <dat/detail/text/errno.hpp>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL error shared_queue::gone() const noexcept {
  if (this == &null_srq) return empty_handle("srq.post", return_subtype::handle_srq);
  return at({return_type::invalid_handle, return_subtype::handle_srq}, "srq.post").hint("The srq is closed.");
}

DAT_DECL error shared_queue::full() const noexcept {
  return at({return_type::insufficient_resources, return_subtype::resource_srq}, "srq.post")
      .hint("The shared receive queue is full: take completions of its endpoints first, or resize it.");
}

DAT_DECL expected<void> shared_queue::check(bool no_notify, const sge_summary& list, zone_tag zone) const noexcept {
  if (zone.has_no_region())
    return at({return_type::privileges_violation, return_subtype::privileges_write}, "srq.post").hint(no_region_hint);
  if (!list.is_within(zone_))
    return at({return_type::protection_violation, return_subtype::protection_write}, "srq.post")
        .hint("Every segment must be of an lmr of the queue's own pz, and of at most 4 GiB.");
  if (no_notify)
    return at({return_type::invalid_parameter, return_subtype::arg5}, "srq.post")
        .hint("A buffer of an srq has no completion flags: the endpoint that takes it decides whether its completion "
              "notifies.");
  if (list.count() > max_iov_)
    return at({return_type::invalid_parameter, return_subtype::arg2}, "srq.post")
        .hint("The receive has more segments than the queue's max_recv_iov.");
  return success();
}

DAT_DECL expected<void> shared_queue::not_posted(int err, work_entry* const* entries, std::uint32_t n,
                                                 std::uint32_t taken) noexcept {
  // A queue that failed keeps its buffers until it is closed, and these are among them (uDAPL 2.0 §6.5.7).
  if (failed_.load(std::memory_order_acquire)) return success();
  if (err == null_device_errno) taken = 0;
  trace_points::refused(number_, n - taken, err);
  for (std::uint32_t i = taken; i < n; ++i) give_back(*entries[i]);
  if (err == null_device_errno) return gone();
  return at(map_errno(err, return_subtype::resource_srq, true).from("ibv_post_srq_recv", err), "srq.post").index(taken);
}

}}} // namespace dat::v0::detail
