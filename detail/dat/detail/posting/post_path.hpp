// The path of every operation from the consumer to the device: check, take entries, build a chain, ring the doorbell.
// SPDX-License-Identifier: BSL-1.0
#pragma once

// `post` posts the operations of one call, and `post_many` a number that is known at run time. A class Queue has the
// parts that differ from queue to queue:
//
// | member                              | meaning                                                              |
// |-------------------------------------|----------------------------------------------------------------------|
// | work_request                        | ibv_send_wr or ibv_recv_wr                                           |
// | keeps_link(room)                    | whether the endpoint keeps a link of `room` segments                 |
// | kept_link<room>()                   | that link                                                            |
// | refused()                           | where the device puts it when it refuses it; null before             |
// | accepts(r)                          | whether `r` can be posted as it is                                   |
// | supports(r)                         | if not: checks that the adapter has the operation                    |
// | usable(n)                           | then checks state and room                                           |
// | check(r, zone)                      | then checks `r` itself                                               |
// | shorten(r)                          | then cuts `r` to what may arrive; for receives of an endpoint        |
// | reserve<n>()                        | `n` entries: has_room(), take(), commit(), entries()                 |
// | fill(wr, entry, r)                  | fills in all of `r` but its segments                                 |
// | submit(wr, bad, n)                  | hands a chain to the device                                          |
// | not_posted(err, wr, bad, entries)   | why the device refused it                                            |
// | enter(), overlaps()                 | checked builds: the call in its class, and the error of an overlap   |
//
// Nothing here allocates, blocks or calls a virtual function. A refusal comes before anything reaches the device.

#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <dat/detail/base/checked.hpp>
#include <dat/detail/base/utility.hpp>
#include <dat/detail/posting/ep_posting.hpp>
#include <dat/detail/request/work_request.hpp>
#include <dat/detail/work/call_class.hpp>
#include <dat/detail/work/work_ring.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

/// The use that the device makes of the memory of a request, if the memory has an address in the process.
template <class R>
[[nodiscard]] memory_use use_of(const R& r) noexcept {
  if (r.data.zone().has_offsets()) return memory_use::none;
  if constexpr (std::is_base_of_v<request_header, R>)
    return r.is_inlined() ? memory_use::none : r.is_read() || r.is_atomic() ? memory_use::written : memory_use::read;
  else
    return memory_use::written;
}

/// Checked builds: watches the memory of an operation.
template <class R>
void stage(const work_entry& e, const R& r, const ibv_sge* segments) noexcept {
  if (const memory_use use = use_of(r); use != memory_use::none)
    work_watch<checked_build>::stage(e, use, segments, r.data.count());
}

/// Fills a link but for `sg_list` and `next`, which are set, as is `num_sge` of a link with room for one segment.
template <class Queue, std::size_t Room, class R>
[[gnu::always_inline]] inline void fill_link(const Queue& queue, post_link<typename Queue::work_request, Room>& to,
                                             work_entry& e, const R& r) noexcept {
  static_assert(R::max_segments <= Room);
  r.data.copy_to(to.segments);
  if constexpr (Room != 1) to.wr.num_sge = static_cast<int>(r.data.count());
  to.wr.wr_id = e.id();
  queue.fill(to.wr, e, r);
  if constexpr (checked_build) stage(e, r, to.segments);
}

/// A link that is not initialised.
template <class Wr, std::size_t N>
struct raw_link : post_link<Wr, N> {
  raw_link() noexcept {}
};

// Rare cases are out of line, and take their arguments by value so that the common case keeps them in registers.
template <class Queue>
[[nodiscard, gnu::cold, gnu::noinline]] error no_room(const Queue queue) noexcept {
  return queue.no_room();
}
template <class Queue>
[[nodiscard, gnu::cold, gnu::noinline]] expected<void>
not_posted(const Queue queue, int err, typename Queue::work_request* wr, typename Queue::work_request* bad,
           work_entry* const* entries) noexcept {
  auto posted = queue.not_posted(err, wr, bad, entries);
  if constexpr (checked_build)
    if (!posted) work_watch<checked_build>::refused(posted.assume_error().index());
  return posted;
}
/// Reports a refused post of the link that the endpoint keeps. Finds the link again, so that the post need not keep a
/// pointer to it.
template <std::size_t Room, class Queue>
[[nodiscard, gnu::cold, gnu::noinline]] expected<void> kept_not_posted(const Queue queue, int err) noexcept {
  auto* const kept = &queue.template kept_link<Room>()->wr;
  *queue.refused() = nullptr;
  return not_posted(queue, err, kept, kept, nullptr);
}

/// Hands a chain to the device, whose entries are taken.
template <class Queue, class Slots>
[[nodiscard, gnu::always_inline]] inline expected<void> submit(const Queue& queue, typename Queue::work_request* first,
                                                               std::size_t n, Slots& slots) noexcept {
  if constexpr (checked_build) work_watch<checked_build>::arm();
  slots.commit();
  auto* bad = first; // not every provider sets it
  if (const int err = queue.submit(first, &bad, n)) [[unlikely]]
    if (auto posted = not_posted(queue, err, first, bad, slots.entries()); !posted) return posted.assume_error();
  return success();
}
/// Hands the link that the endpoint keeps to the device.
template <std::size_t Room, class Queue>
[[nodiscard, gnu::always_inline]] inline expected<void> submit_kept(const Queue& queue) noexcept {
  if constexpr (checked_build) work_watch<checked_build>::arm();
  if (const int err = queue.submit(&queue.template kept_link<Room>()->wr, queue.refused(), 1)) [[unlikely]]
    if (auto posted = kept_not_posted<Room>(queue, err); !posted) return posted.assume_error();
  return success();
}

/// Posts operations with one doorbell, in links of its own.
template <class Queue, class... R>
[[nodiscard, gnu::always_inline]] inline expected<void> post_anew(const Queue& queue, const R&... r) noexcept {
  using wr = typename Queue::work_request;
  constexpr std::size_t n = sizeof...(R);
  auto slots = queue.template reserve<n>();
  if (!slots.has_room()) [[unlikely]]
    return no_room(queue);
  std::tuple<raw_link<wr, R::max_segments>...> links;
  [&]<std::size_t... I>(std::index_sequence<I...>) __attribute__((always_inline)) {
    (fill_link(queue, std::get<I>(links), *slots.take(), r), ...);
    ((std::get<I>(links).wr.num_sge = static_cast<int>(r.data.count())), ...);
    ((std::get<I>(links).wr.sg_list = std::get<I>(links).segments), ...);
    wr* const chain[] = {&std::get<I>(links).wr..., nullptr};
    ((std::get<I>(links).wr.next = chain[I + 1]), ...);
  }
  (std::make_index_sequence<n>());
  return submit(queue, &std::get<0>(links).wr, n, slots);
}

/// Posts operations that are accepted, with one doorbell.
template <class Queue, class... R>
[[nodiscard, gnu::always_inline]] inline expected<void> post_accepted(const Queue& queue, const R&... r) noexcept {
  constexpr std::size_t n = sizeof...(R);
  constexpr std::size_t room = (R::max_segments | ...); // that of each, if they are equal
  if constexpr (n == 1 && Queue::keeps_link(room)) {
    auto slots = queue.template reserve<1>();
    if (!slots.has_room()) [[unlikely]]
      return no_room(queue);
    (fill_link(queue, *queue.template kept_link<room>(), *slots.take(), r), ...);
    slots.commit();
    return submit_kept<room>(queue);
  } else {
    return post_anew(queue, r...);
  }
}

/// Removes segments of length 0, checks the operation, then cuts it to the limit of its queue.
template <class Queue, class R>
[[nodiscard]] expected<void> tidy_and_check(const Queue& queue, R& r) noexcept {
  const zone_tag zone = r.data.zone();
  r.data.tidy();
  auto ok = queue.check(r, zone);
  if constexpr (requires { queue.shorten(r); })
    if (ok) queue.shorten(r);
  return ok;
}

/// Checks that the adapter has the operation. Every adapter has receives.
template <class Queue, class R>
[[nodiscard]] expected<void> supports(const Queue& queue, const R& r) noexcept {
  if constexpr (requires { queue.supports(r); }) return queue.supports(r);
  return success();
}

/// Posts operations of which one is not accepted as it is, or returns the reason. Takes copies, so that the caller's
/// operations need not be in memory.
template <class Queue, class... R>
[[nodiscard, gnu::cold, gnu::noinline]] expected<void> post_checked(const Queue queue, R... r) noexcept {
  expected<void> ok = success();
  if (!((ok = supports(queue, r)) && ...) || !(ok = queue.usable(sizeof...(R)))) return ok;
  if (!((ok = tidy_and_check(queue, r)) && ...)) return ok;
  return post_anew(queue, r...);
}

/// In a checked build the call in its class, for its duration; otherwise nothing.
template <class Queue>
[[nodiscard, gnu::always_inline]] inline auto enter(const Queue& queue) noexcept {
  if constexpr (checked_build)
    return queue.enter();
  else
    return unwatched_call();
}

/// Whether a request can be posted together with others.
template <class Queue, class R>
[[nodiscard, gnu::always_inline]] inline bool takes_in_list(const Queue& queue, const R& r) noexcept {
  if constexpr (requires { queue.takes_in_list(r); })
    return queue.takes_in_list(r);
  else
    return true;
}

/// Posts the operations of one call, with one doorbell; all or none of them, unless the device refuses one.
template <class Queue, class... R>
[[nodiscard, gnu::always_inline]] inline expected<void> post(const Queue queue, const R&... r) noexcept {
  [[maybe_unused]] const auto inside = enter(queue);
  if constexpr (checked_build) {
    if (!inside.alone()) return queue.overlaps();
    work_watch<checked_build>::begin(Queue::call_name, Queue::object_name, queue.number());
  }
  if (((queue.accepts(r) && (sizeof...(R) == 1 || takes_in_list(queue, r))) && ...)) [[likely]]
    return post_accepted(queue, r...);
  if (auto posted = post_checked(queue, R(r)...); !posted) return posted.assume_error();
  return success();
}

/// Fills the link of a request that is not accepted as it is, or returns the reason.
template <class Queue, std::size_t Room, class R>
[[nodiscard, gnu::cold, gnu::noinline]] expected<void>
fill_checked(const Queue queue, post_link<typename Queue::work_request, Room>& to, work_entry& e, R r) noexcept {
  auto ok = tidy_and_check(queue, r);
  if (!ok) return ok;
  fill_link(queue, to, e, r);
  to.wr.num_sge = static_cast<int>(r.data.count());
  return ok;
}

/// An error of a chain, which begins after `before` operations of the call.
[[nodiscard, gnu::cold]] inline error after(std::size_t before, const error& e) noexcept {
  return e.index(static_cast<std::uint32_t>(before) + e.index());
}

/// Hands a chain of `n` links to the device.
template <class Queue>
[[nodiscard, gnu::always_inline]] inline expected<void>
submit_chain(const Queue& queue, typename Queue::work_request* first, std::size_t n) noexcept {
  if constexpr (checked_build) work_watch<checked_build>::arm();
  auto* bad = first; // not every provider sets it
  if (const int err = queue.submit(first, &bad, n)) [[unlikely]]
    if (auto posted = not_posted(queue, err, first, bad, nullptr); !posted) return posted.assume_error();
  return success();
}
/// Posts the first `k` requests of a chain whose next one is refused. It begins after `i` operations.
template <class Queue, class Link>
[[nodiscard, gnu::cold, gnu::noinline]] error post_before(const Queue queue, Link* links, std::size_t k, std::size_t i,
                                                          error refusal) noexcept {
  if (k != 0) {
    links[k - 1].wr.next = nullptr;
    queue.ring().set_next(work_ring::after(queue.ring().next(), static_cast<std::uint32_t>(k)));
    if (auto posted = submit_chain(queue, &links->wr, k); !posted) return after(i, posted.assume_error());
  }
  return after(i + k, refusal);
}

/// The requests that post_many posts with one doorbell.
inline constexpr std::size_t requests_of_a_doorbell = 16;

/// Posts `n` operations of one segment, which `make(0)` to `make(n - 1)` return, with one doorbell for each
/// chain of links. Operations before one that is refused are posted, and `error().index()` is
/// how many the device took. `make` may throw: then nothing of the chain under way is posted.
template <class Queue, class Make>
[[nodiscard, gnu::always_inline]] inline expected<void> post_many(const Queue queue, std::size_t n,
                                                                  Make& make) noexcept(noexcept(make(std::size_t{}))) {
  [[maybe_unused]] const auto inside = enter(queue);
  if constexpr (checked_build) {
    if (!inside.alone()) return queue.overlaps();
    work_watch<checked_build>::begin(Queue::call_name, Queue::object_name, queue.number());
  }
  if (!queue.has_room(n)) [[unlikely]]
    return no_room(queue);
  using wr = typename Queue::work_request;
  constexpr std::size_t most = requests_of_a_doorbell;
  raw_link<wr, 1> links[most + 1]; // the last one is only pointed to
  for (std::size_t i = 0; i < n; i += most) {
    const std::size_t group = min(n - i, most);
    work_entry* next = queue.ring().next();
    for (std::size_t k = 0; k != group; ++k) {
      const auto& made = make(i + k);
      const auto& r = request_access::of(made);
      work_entry& e = *std::exchange(next, next->next);
      auto& link = links[k];
      link.wr.sg_list = link.segments;
      link.wr.num_sge = 1;
      link.wr.next = &links[k + 1].wr;
      if (queue.accepts(r) && takes_in_list(queue, r)) [[likely]] {
        fill_link(queue, link, e, r);
      } else if (auto ok = fill_checked(queue, link, e, std::remove_cvref_t<decltype(r)>(r)); !ok) {
        return post_before(queue, links, k, i, ok.assume_error());
      }
    }
    links[group - 1].wr.next = nullptr;
    queue.ring().set_next(next);
    if (auto posted = submit_chain(queue, &links->wr, group); !posted) [[unlikely]]
      return after(i, posted.assume_error());
  }
  return success();
}

}}} // namespace dat::v0::detail
