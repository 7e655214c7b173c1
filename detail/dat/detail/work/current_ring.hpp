// The ring that an endpoint posts to now: each life of an endpoint has its own rings.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/work/work_ring.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace dat { inline namespace v0 { namespace detail {

/// The ring of an endpoint that has none. It has no room.
inline constinit struct empty_ring final : work_ring { constexpr empty_ring() noexcept = default; } null_ring;

/// Names a work_ring and forwards to it. A thread that still holds an entry of an earlier life writes to that life's
/// ring, and cannot harm the present one.
class current_ring {
public:
  constexpr current_ring() noexcept = default;
  current_ring(const current_ring&) = delete;
  current_ring& operator=(const current_ring&) = delete;

  void set(work_ring* ring) noexcept { ring_.store(ring ? ring : &null_ring, std::memory_order_release); }
  [[nodiscard, gnu::always_inline]] work_ring& get() const noexcept { return *ring_.load(std::memory_order_acquire); }
  [[gnu::always_inline]] operator work_ring&() const noexcept { return get(); }

  [[nodiscard, gnu::always_inline]] work_entry* next() const noexcept { return get().next(); }
  [[nodiscard, gnu::always_inline]] bool taken(const work_entry* e) const noexcept { return get().taken(e); }
  [[nodiscard, gnu::always_inline]] bool has_room(const work_entry* e, std::size_t n) const noexcept {
    return get().has_room(e, n);
  }
  [[nodiscard]] work_entry* before(work_entry* e, std::uint32_t n) const noexcept { return get().before(e, n); }
  [[gnu::always_inline]] void set_next(work_entry* e) const noexcept { get().set_next(e); }
  [[nodiscard]] std::uint32_t used() const noexcept { return get().used(); }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return get().capacity(); }
  [[nodiscard]] work_kind usual() const noexcept { return get().usual(); }

private:
  std::atomic<work_ring*> ring_{&null_ring};
};

}}} // namespace dat::v0::detail
