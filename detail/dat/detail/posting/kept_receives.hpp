// Copies of the receives that were posted before a connection, from which another queue pair gets them.
//
// Verbs cannot read back a posted receive, and an endpoint without its zone or evds has no queue pair. So an endpoint
// that is not connected copies its receives. No completion can exist before the connection: the copies are those of all
// entries of the ring, in the order of the posts.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/config.hpp>
#include <dat/detail/request/sge_list.hpp>
#include <dat/detail/work/work_ring.hpp>

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

/// Has the memory for all receives of an endpoint, so that a post allocates nothing. Used by one thread at a time.
class kept_receives {
public:
  /// Returns null when memory is exhausted.
  [[nodiscard]] static kept_receives* make(std::uint32_t receives, std::uint32_t segments) noexcept;
  static void destroy(kept_receives* what) noexcept;
  kept_receives(const kept_receives&) = delete;
  kept_receives& operator=(const kept_receives&) = delete;

  /// A post begins that checks its receives.
  void begin_checks() noexcept { checked_ = 0; }
  /// A receive of that post has segments of this zone. Where the endpoint has a zone, that is the zone of all.
  void note_zone(zone_tag zone) noexcept;
  /// Copies a chain of `n` receives that were posted to an endpoint of the zone `zone`.
  void add(const ibv_recv_wr* first, std::uint32_t n, zone_tag zone) noexcept;
  /// The most segments of a receive.
  [[nodiscard]] std::uint32_t most_segments() const noexcept;
  /// Copies the receives of `other`, which fit.
  void assign(const kept_receives& other) noexcept;
  /// Posts the receives to the empty ring `to` of an endpoint of the zone `zone`, and to `qp`, if there is one.
  /// `first` is the entry of the first one. Returns 0 or the errno of ibv_post_recv.
  [[nodiscard]] int post(const work_entry* first, work_ring& to, ibv_qp* qp, zone_tag zone) const noexcept;

private:
  struct receive {
    zone_tag zone;
    std::uint32_t first; // of its segments
    std::uint32_t count;
  };
  kept_receives(std::uint32_t receives, receive* list, ibv_sge* segments) noexcept
      : capacity_(receives), receives_(list), segments_(segments) {}
  ~kept_receives() = default;

  std::uint32_t capacity_;
  std::uint32_t count_ = 0;
  std::uint32_t checked_ = 0; // receives of the present post, whose zones are in the places after the last receive
  std::uint32_t used_ = 0;    // segments
  receive* receives_;
  ibv_sge* segments_;
};

/// Owns the copies of an endpoint. The thread that posts takes them out for the time of a post. A thread that connects
/// the endpoint during the post finds no copies to drop. The thread that posts drops them afterwards.
class kept_slot {
public:
  constexpr kept_slot() noexcept = default;
  kept_slot(const kept_slot&) = delete;
  kept_slot& operator=(const kept_slot&) = delete;

  [[nodiscard]] kept_receives* get() const noexcept { return kept_.load(std::memory_order_relaxed); }
  /// Null: they are taken, or there are none.
  [[nodiscard]] kept_receives* take() noexcept { return kept_.exchange(nullptr, std::memory_order_acq_rel); }
  void put(kept_receives* what) noexcept { kept_receives::destroy(kept_.exchange(what, std::memory_order_acq_rel)); }

private:
  std::atomic<kept_receives*> kept_{nullptr};
};

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/posting/kept_receives.ipp>
#endif
