// One life of an endpoint, from its creation or reset to the next reset: its entries, its rings and its generation.
//
// A thread that takes completions may hold an entry while another thread resets the endpoint. So a reset makes a new
// life, and the old one is freed with the reset after it, or with the endpoint.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/adapter/ia_core.hpp>
#include <dat/detail/work/work_arena.hpp>
#include <dat/detail/work/work_ring.hpp>

#include <cstdint>
#include <mutex>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

class ep_life {
public:
  struct plan {
    std::uint32_t requests;
    std::uint32_t receives;
    work_kind request_kind;
    work_kind receive_kind;
  };

  ep_life() noexcept = default;
  ep_life(const ep_life&) = delete;
  ep_life& operator=(const ep_life&) = delete;

  /// Allocates the entries and links them into rings. Returns false when memory is exhausted.
  [[nodiscard]] bool begin(ia_core& ia, completion_owner* owner, const plan& p) noexcept {
    const std::uint32_t n = 4 + p.requests + p.receives; // marker, probe, and one entry of each ring that stays free
    {
      const std::lock_guard lock(ia.work_mutex);
      entries_ = ia.work.allocate(n);
      if (!entries_) return false;
      generation_ = ia.work.renew(entries_, n);
    }
    count_ = n;
    work_entry* const requests = entries_ + 2;
    requests_.place(requests, p.requests, owner, p.request_kind);
    receives_.place(requests + p.requests + 1, p.receives, owner, p.receive_kind);
    for (work_entry* const own : {entries_, entries_ + 1}) own->queue = &requests_;
    entries_[0].posted.kind = marker_work;
    entries_[1].posted.kind = probe_work;
    return true;
  }
  /// From now on no completion finds an entry of this life.
  void forget(ia_core& ia) noexcept {
    if (!entries_) return;
    const std::lock_guard lock(ia.work_mutex);
    work_arena::forget(entries_, count_);
  }
  /// Frees the entries, which no completion finds: they are forgotten, or nothing was posted.
  void end(ia_core& ia) noexcept {
    if (!entries_) return;
    const std::lock_guard lock(ia.work_mutex);
    ia.work.free(std::exchange(entries_, nullptr), count_);
  }

  /// The first of the receives that are posted and not retired.
  [[nodiscard]] work_entry* first_receive() const noexcept {
    return receives_.before(receives_.next(), receives_.used());
  }
  [[nodiscard]] work_ring& requests() noexcept { return requests_; }
  [[nodiscard]] work_ring& receives() noexcept { return receives_; }
  /// The wr_id of the marker, too.
  [[nodiscard]] ep_generation generation() const noexcept { return generation_; }
  /// The wr_id of the probe.
  [[nodiscard]] std::uint64_t probe() const noexcept { return entries_[1].id(); }

private:
  work_entry* entries_ = nullptr;
  std::uint32_t count_ = 0;
  ep_generation generation_ = 0;
  work_ring requests_;
  work_ring receives_;
};

}}} // namespace dat::v0::detail
