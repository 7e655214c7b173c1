// The ring of a merged evd, and the records that it holds.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/adapter/async_info.hpp>
#include <dat/detail/adapter/cm_id_owner.hpp>
#include <dat/detail/base/ref.hpp>
#include <dat/detail/base/utility.hpp>
#include <dat/detail/work/work_arena.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

/// One event of any stream, before it becomes an event type. The queue slot of a completion becomes free when the event
/// is taken (uDAPL 2.0 §6.8.1). Events may be taken out of order, so a record has a copy of the posted work.
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
  int reason = 0;             // rdma_cm status of a refused connection, or the end_reason of one that was up
  ep_generation tag = 0;      // completions: the life of the endpoint
  ibv_wc wc{};                // completions
  posted_work posted{};       // completions; software events: the cookie
  std::uint32_t position = 0; // completions: the position of the entry in its ring
  /// The endpoint of the event. A connection event keeps its endpoint, so that the event can name it after a reset or a
  /// close. The endpoint of a completion is looked up when the event is taken; it is empty when the endpoint has ended.
  ref<counted> endpoint;
  ref<connection_base> source; // connection events: private data
  request_ref request;         // requests

  record() noexcept {}
  record(const ibv_wc& completion, const posted_work& work, ep_generation whose, std::uint32_t where) noexcept
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
  /// True for events of a connection; false for requests.
  [[nodiscard]] bool is_connection_event() const noexcept {
    return (what >= kind::established && what <= kind::unreachable) || what == kind::datagram_established ||
           what == kind::group_joined;
  }
  /// The contents of the record of an asynchronous event.
  [[nodiscard]] async_info async_what() const noexcept {
    return {reinterpret_cast<const ibv_context*>(static_cast<std::uintptr_t>(posted.cookie.value())),
            reinterpret_cast<const char*>(static_cast<std::uintptr_t>(tag)), position, reason};
  }
};

/// A queue in a circular array that grows when it must. The queue reserves memory, and touches it only when a record is
/// put there. So a long queue costs address space, and memory only for its records. Not synchronised.
class event_queue {
public:
  event_queue() noexcept = default;
  event_queue(event_queue&& o) noexcept { swap(o); }
  event_queue& operator=(event_queue&& o) noexcept {
    swap(o);
    return *this;
  }
  ~event_queue() {
    for (std::uint32_t i = 0; i < size_; ++i) at(i).~record();
    ::operator delete[](records_);
  }

  /// Room for `n` records without a further allocation. Returns false when memory is exhausted.
  [[nodiscard]] bool reserve(std::uint32_t n) noexcept {
    if (n <= capacity_) return true;
    auto* const bigger =
        static_cast<record*>(::operator new[](std::size_t{n} * sizeof(record), std::nothrow)); // NOLINT
    if (!bigger) return false;
    for (std::uint32_t i = 0; i < size_; ++i) {
      ::new (static_cast<void*>(bigger + i)) record(std::move(at(i)));
      at(i).~record();
    }
    ::operator delete[](records_);
    records_ = bigger;
    capacity_ = n;
    first_ = 0;
    return true;
  }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] record& at(std::uint32_t i) noexcept {
    const std::uint32_t j = first_ + i;
    return records_[j < capacity_ ? j : j - capacity_];
  }
  /// Returns false when there is no room and no memory for more; `r` is unchanged then.
  [[nodiscard]] bool push(record&& r) noexcept {
    if (size_ == capacity_ && !reserve(capacity_ == 0 ? 8 : 2 * capacity_)) return false;
    ::new (static_cast<void*>(&at(size_))) record(std::move(r));
    ++size_;
    return true;
  }
  void pop(record& out) noexcept { extract(0, out); }
  /// Takes the element at `i`, keeping the order of the others.
  void extract(std::uint32_t i, record& out) noexcept {
    out = std::move(at(i));
    for (; i > 0; --i) at(i) = std::move(at(i - 1));
    drop_first();
  }
  /// Removes the first element.
  void drop_first() noexcept {
    at(0).~record();
    --size_;
    // An empty queue restarts at the beginning of its memory, so that a short queue uses few pages.
    first_ = size_ == 0 || first_ + 1 == capacity_ ? 0 : first_ + 1;
  }
  /// Removes every element that `gone` accepts, keeping the order of the others.
  template <class Predicate>
  void erase_if(Predicate gone) noexcept {
    std::uint32_t kept = 0;
    for (std::uint32_t i = 0; i < size_; ++i) {
      if (gone(at(i))) continue;
      if (kept != i) at(kept) = std::move(at(i));
      ++kept;
    }
    for (std::uint32_t i = kept; i < size_; ++i) at(i).~record();
    size_ = kept;
  }

private:
  void swap(event_queue& o) noexcept {
    std::swap(records_, o.records_);
    std::swap(capacity_, o.capacity_);
    std::swap(first_, o.first_);
    std::swap(size_, o.size_);
  }

  record* records_ = nullptr; // uninitialised memory, except for size_ records from first_ on
  std::uint32_t capacity_ = 0;
  std::uint32_t first_ = 0;
  std::uint32_t size_ = 0;
};

}}} // namespace dat::v0::detail
