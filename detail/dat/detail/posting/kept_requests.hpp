// Requests that are kept as work requests until they are posted, with what their entries and checks need: a dat::batch.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <dat/detail/posting/endpoint_queues.hpp>
#include <dat/detail/posting/post_path.hpp>
#include <dat/detail/request/work_request.hpp>
#include <dat/detail/work/work_ring.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

/// The work request of a kept request. `sg_list` and `next` are set.
template <std::size_t N>
struct kept_link : post_link<ibv_send_wr, N> {
  template <std::size_t M>
  [[gnu::always_inline]] void take(const send_request<M>& r) noexcept {
    r.data.copy_to(this->segments);
    this->wr.num_sge = static_cast<int>(r.data.count());
    r.fill(this->wr);
  }
};

/// The part of a kept request that its verbs work request does not contain.
struct kept_request {
  posted_work work;
  zone_tag zone;
  std::uint64_t remote_length = 0; ///< of one-sided requests

  template <std::size_t M>
  [[gnu::always_inline]] void take(const send_request<M>& r) noexcept {
    note_work(work, r);
    zone = r.data.zone();
    if (r.is_one_sided()) remote_length = r.remote.length;
  }
  /// The request as it was before.
  template <std::size_t N>
  [[nodiscard]] send_request<N> restored(const kept_link<N>& link) const noexcept {
    send_request<N> r;
    r.restore(link.wr);
    r.remote.length = remote_length;
    r.cookie = work.cookie;
    r.no_notify = !work.notifies();
    r.data.restore(link.segments, static_cast<std::uint32_t>(link.wr.num_sge), zone);
    return r;
  }
};

/// The values over all requests of a list that decide whether dat can post the requests unchanged.
struct kept_sum {
  zone_tag zone;           ///< of all segments
  std::uint64_t bytes = 0; ///< of all requests by OR: not below that of any of them
  bool special = false;    ///< a request has limits of its own
  bool immediate = false;  ///< a request has immediate data

  template <std::size_t M>
  [[gnu::always_inline]] void add(const send_request<M>& r) noexcept {
    zone = zone | r.data.zone();
    bytes |= r.data.bytes();
    const bool send = r.opcode == IBV_WR_SEND || r.opcode == IBV_WR_SEND_WITH_IMM;
    const bool write = r.opcode == IBV_WR_RDMA_WRITE || r.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    const bool fits = send || (write && r.data.bytes() <= r.remote.length);
    if (r.is_immediate()) immediate = true;
    if (!fits || r.is_inlined() || r.no_notify || r.data.count() > 1) special = true;
  }
};

/// Checks each request, and removes segments of length 0.
template <std::size_t N>
[[nodiscard, gnu::noinline]] expected<void> check_kept(const batch_queue queue, kept_link<N>* links,
                                                       const kept_request* kept, std::size_t n) noexcept {
  for (std::size_t i = 0; i != n; ++i)
    if (auto ok = queue.supports(kept[i].restored(links[i])); !ok) return ok;
  if (auto ok = queue.usable(n); !ok) return ok;
  for (std::size_t i = 0; i != n; ++i) {
    send_request<N> r = kept[i].restored(links[i]);
    if (queue.accepts(r) && queue.takes_in_list(r)) continue;
    if (auto ok = tidy_and_check(queue, r); !ok) return ok.assume_error().index(0);
    links[i].take(r);
  }
  return success();
}

/// Posts `n` kept requests with one doorbell: all of them, or none, unless the device refuses one.
template <std::size_t N>
[[nodiscard]] expected<void> post_kept(const batch_queue queue, kept_link<N>* links, const kept_request* kept,
                                       std::size_t n, const kept_sum& sum) noexcept {
  [[maybe_unused]] const auto inside = enter(queue);
  if constexpr (checked_build) {
    if (!inside.alone()) return queue.overlaps();
    work_watch<checked_build>::begin(batch_queue::call_name, batch_queue::object_name, queue.number());
  }
  if (!queue.accepts(sum.zone, sum.bytes) || sum.special || (sum.immediate && !queue.has_immediate()))
    if (auto ok = check_kept(queue, links, kept, n); !ok) return ok;
  if (!queue.has_room(n)) [[unlikely]]
    return no_room(queue);
  auto slots = queue.template reserve<1>();
  for (std::size_t i = 0; i != n; ++i) {
    work_entry& e = *slots.take();
    e.posted = kept[i].work;
    links[i].wr.wr_id = e.id();
    if constexpr (checked_build) stage(e, kept[i].restored(links[i]), links[i].segments);
  }
  ibv_send_wr*& end = links[n - 1].wr.next;
  ibv_send_wr* const more = std::exchange(end, nullptr);
  auto posted = submit(queue, &links->wr, n, slots);
  end = more;
  return posted;
}

}}} // namespace dat::v0::detail
