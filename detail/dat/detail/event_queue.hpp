// The ring of a merged evd, and what stands in it.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/async_info.hpp>
#include <dat/detail/basics.hpp>
#include <dat/detail/connection_base.hpp>
#include <dat/detail/ref.hpp>
#include <dat/detail/work_arena.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <new>
#include <utility>

namespace dat::inline v0::detail {

/// One event of any stream, not yet in the consumer's form. The queue slot of a completion becomes free when the event
/// is taken (uDAPL 2.0 §6.8.1); what was posted is copied here, since events may be taken out of order.
struct record {
  enum class kind : std::uint8_t {
    completion,
    software,
    request,
    established,
    peer_rejected,
    non_peer_rejected,
    accept_completion_error,
    disconnected,
    broken,
    timed_out,
    unreachable,
    datagram_request,
    datagram_established,
    group_joined,
    first_async ///< the first of async_kind
  };

  kind what = kind::completion;
  int reason = 0;              // rdma_cm status of a failed connection
  ep_tag tag = 0;              // completions: whose
  ibv_wc wc{};                 // completions
  posted_work posted{};        // completions; software events: the cookie
  std::uint32_t position = 0;  // completions: of the entry in its ring
  ref<counted> endpoint;       // whose. Connection events: kept, so that the event can name it after a reset or free.
                               // Completions: looked up when taken, empty when the endpoint is gone
  ref<connection_base> source; // connection events: private data
  request_ref request;         // requests

  record() noexcept {}
  record(const ibv_wc& completion, const posted_work& work, ep_tag whose, std::uint32_t where) noexcept
      : tag(whose), wc(completion), posted(work), position(where) {}
  explicit record(dat::cookie c) noexcept : what(kind::software) { posted.cookie = c; }
  record(async_kind k, const async_info& i, ref<counted> whose) noexcept
      : what(of(k)),
        reason(i.reason),
        tag(reinterpret_cast<std::uintptr_t>(i.verb)),
        position(i.number),
        endpoint(std::move(whose)) {
    posted.cookie = dat::cookie(reinterpret_cast<std::uintptr_t>(i.context));
  }
  explicit record(request_ref r, kind k = kind::request) noexcept : what(k), request(std::move(r)) {}
  record(kind k, ref<counted> whose, ref<connection_base> from, int why) noexcept
      : what(k), reason(why), endpoint(std::move(whose)), source(std::move(from)) {}

  [[nodiscard]] static constexpr kind of(async_kind k) noexcept {
    return static_cast<kind>(static_cast<std::uint8_t>(kind::first_async) + static_cast<std::uint8_t>(k));
  }
  /// What the record of an asynchronous event says.
  [[nodiscard]] async_info async_what() const noexcept {
    return {reinterpret_cast<const ibv_context*>(static_cast<std::uintptr_t>(posted.cookie.value())),
            reinterpret_cast<const char*>(static_cast<std::uintptr_t>(tag)), position, reason};
  }
};

/// A queue in a circular array that grows when it must. Not synchronised.
class event_queue {
public:
  event_queue() noexcept = default;

  /// Room for `n` without allocating. False when out of memory.
  [[nodiscard]] bool reserve(std::uint32_t n) noexcept {
    if (n <= capacity_) return true;
    owned_array<record> bigger(new (std::nothrow) record[n]);
    if (!bigger) return false;
    for (std::uint32_t i = 0; i < size_; ++i) bigger[i] = std::move(at(i));
    records_ = std::move(bigger);
    capacity_ = n;
    first_ = 0;
    return true;
  }
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] record& at(std::uint32_t i) noexcept {
    const std::uint32_t j = first_ + i;
    return records_[j < capacity_ ? j : j - capacity_];
  }
  /// False when there is no room and no memory for more.
  [[nodiscard]] bool push(record&& r) noexcept {
    if (size_ == capacity_ && !reserve(capacity_ == 0 ? 8 : 2 * capacity_)) return false;
    ++size_;
    at(size_ - 1) = std::move(r);
    return true;
  }
  void pop(record& out) noexcept {
    out = std::move(at(0));
    first_ = first_ + 1 < capacity_ ? first_ + 1 : 0;
    --size_;
  }
  /// Takes the element at `i`, keeping the order of the others.
  void extract(std::uint32_t i, record& out) noexcept {
    out = std::move(at(i));
    for (; i > 0; --i) at(i) = std::move(at(i - 1));
    first_ = first_ + 1 < capacity_ ? first_ + 1 : 0;
    --size_;
  }
  /// Removes what `gone` accepts, keeping the order of the others.
  template <class Predicate>
  void erase_if(Predicate gone) noexcept {
    std::uint32_t kept = 0;
    for (std::uint32_t i = 0; i < size_; ++i) {
      if (gone(at(i))) continue;
      if (kept != i) at(kept) = std::move(at(i));
      ++kept;
    }
    for (std::uint32_t i = kept; i < size_; ++i) at(i) = record();
    size_ = kept;
  }

private:
  owned_array<record> records_;
  std::uint32_t capacity_ = 0;
  std::uint32_t first_ = 0;
  std::uint32_t size_ = 0;
};

} // namespace dat::inline v0::detail
