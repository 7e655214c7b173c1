// Definitions of slot_table.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/work_ring.hpp>

#include <cerrno>
#include <sys/mman.h>

namespace dat::inline v0::detail {

inline int slot_table::reserve(std::uint32_t slots) noexcept {
  capacity_ = slots < max_slots ? slots : max_slots;
  // Untouched pages of an anonymous mapping cost nothing and read as zero, which is a free slot. So the table never
  // grows, looking an endpoint up is one load from a fixed place, and there is a place for every wr_id: also for those
  // of work that the consumer posted to a native queue pair.
  void* p = ::mmap(nullptr, max_slots * sizeof(slot), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return errno;
  slots_ = static_cast<slot*>(p);
  return 0;
}

inline slot_table::~slot_table() {
  if (slots_) ::munmap(slots_, max_slots * sizeof(slot));
}

inline ep_tag slot_table::acquire(ep_core* ep) noexcept {
  std::uint32_t i;
  if (free_ != none_) {
    i = free_;
    free_ = slots_[i].next_free;
  } else if (used_ < capacity_) {
    i = used_++;
  } else {
    return 0;
  }
  slots_[i].ep = ep;
  return renew(i);
}

inline ep_tag slot_table::renew(ep_tag tag) noexcept {
  slot& s = slots_[slot_of(tag)];
  constexpr std::uint32_t generations = (1u << (64 - tag_shift - slot_bits)) - 1;
  s.generation = s.generation % generations + 1; // 1..generations: a tag is never 0
  const ep_tag fresh = (ep_tag{s.generation} << slot_bits) | slot_of(tag);
  s.tag.store(fresh, std::memory_order_release);
  return fresh;
}

inline void slot_table::release(ep_tag tag) noexcept {
  slot& s = slots_[slot_of(tag)];
  s.tag.store(0, std::memory_order_release);
  s.ep = nullptr;
  s.next_free = free_;
  free_ = slot_of(tag);
}

} // namespace dat::inline v0::detail
