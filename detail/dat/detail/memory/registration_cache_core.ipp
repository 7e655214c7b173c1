// Definitions of registration_cache_core.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/memory/pz_core.hpp>
#include <dat/detail/memory/registration_cache_core.hpp>

#include <limits>
#include <new>
#include <unistd.h>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL registration_cache_core::registration_cache_core(ref<pz_core> pz, int access, bool whole_pages,
                                                          std::size_t max_bytes, std::uint32_t max_regions) noexcept
    : pz_(std::move(pz)),
      access_(access),
      whole_pages_(whole_pages),
      max_bytes_(max_bytes),
      places_(new (std::nothrow) place[max_regions]),
      entries_(new (std::nothrow) entry[max_regions]) {
  for (std::uint32_t i = entries_ ? max_regions : 0; i > 0; --i) {
    entries_[i - 1].next_free = free_;
    free_ = &entries_[i - 1];
  }
  all_caches& caches = all();
  const std::lock_guard lock(caches.mutex);
  caches.list.push_back(*this);
}
DAT_DECL registration_cache_core::~registration_cache_core() = default;

DAT_DECL registration_cache_core::all_caches& registration_cache_core::all() noexcept {
  static all_caches caches;
  return caches;
}

DAT_DECL expected<registration_cache_core*> registration_cache_core::create(const ref<pz_core>& pz, int access,
                                                                            bool whole_pages, std::size_t max_bytes,
                                                                            std::uint32_t max_regions) {
  static constexpr const char* call = "registration_cache.create";
  if (max_bytes == 0 || max_regions == 0)
    return error(return_type::invalid_parameter, return_subtype::arg3)
        .at(call, object_kind::lmr)
        .hint("The limits `bytes` and `regions` must be at least 1.");
  if (pz->dead()) return error(return_type::invalid_handle, return_subtype::handle_pz).at(call, object_kind::pz);
  auto* const made = new (std::nothrow) registration_cache_core(pz, access, whole_pages, max_bytes, max_regions);
  if (made && made->places_ && made->entries_) return made;
  if (made) made->abandon();
  return error(return_type::insufficient_resources, return_subtype::resource_memory).at(call, object_kind::lmr);
}

DAT_DECL void registration_cache_core::abandon() noexcept {
  if (foreign()) return; // the cache belongs to the parent process
  {
    all_caches& caches = all();
    const std::lock_guard lock(caches.mutex);
    unlink();
  }
  bool in_use = false;
  {
    const std::lock_guard lock(mutex_);
    unlist(0, listed_);
    in_use = numbers_.in_use != 0;
    abandoned_ = in_use;
  }
  collect();
  if (!in_use) delete this;
}

/// Takes the region out of an entry, which becomes free. The caller has the lock, and ends the region without it.
DAT_DECL ref<lmr_core> registration_cache_core::take_region(entry& e) noexcept {
  numbers_.bytes -= e.last - e.first;
  --numbers_.regions;
  e.next_free = std::exchange(free_, &e);
  return std::exchange(e.region, {});
}

DAT_DECL void registration_cache_core::collect() noexcept {
  if (foreign()) return;
  for (;;) {
    ref<lmr_core> region;
    {
      const std::lock_guard lock(mutex_);
      entry* const e = unlisted_.pop_front();
      if (!e) return;
      region = take_region(*e);
    }
    if (region) region->end();
  }
}

/// The end of a use, for a caller that has the lock. After the end of the handle, each use ends its own region, and the
/// last one frees the cache.
DAT_DECL void registration_cache_core::end_unlisted() noexcept {
  const ref<lmr_core> region = take_region(*unlisted_.pop_front());
  const bool abandoned = abandoned_;
  const bool last = abandoned && numbers_.in_use == 0;
  mutex_.unlock();
  if (region) region->end();
  if (last)
    delete this;
  else if (!abandoned)
    collect();
}

/// Removes the ranges [from, to) from the index.
DAT_DECL void registration_cache_core::unlist(std::uint32_t from, std::uint32_t to) noexcept {
  for (std::uint32_t i = from; i < to; ++i) {
    entry& e = *places_[i].of;
    e.listed = false;
    if (e.uses != 0) continue;
    e.unlink();
    unlisted_.push_back(e);
  }
  for (std::uint32_t i = to; i < listed_; ++i) places_[i - (to - from)] = places_[i];
  listed_ -= to - from;
}

DAT_DECL std::size_t registration_cache_core::forget(std::uintptr_t first, std::size_t bytes) noexcept {
  if (bytes == 0 || foreign()) return 0;
  const std::uintptr_t last = bytes > std::numeric_limits<std::uintptr_t>::max() - first
                                  ? std::numeric_limits<std::uintptr_t>::max()
                                  : first + bytes;
  const std::lock_guard lock(mutex_);
  std::uint32_t from = behind(first);
  while (from > 0 && places_[from - 1].last > first) --from;
  std::uint32_t to = from;
  std::size_t used = 0;
  for (; to < listed_ && places_[to].first < last; ++to) used += places_[to].of->uses != 0;
  numbers_.forgotten += to - from;
  unlist(from, to);
  return used;
}

DAT_DECL std::size_t registration_cache_core::forget_in_all(std::uintptr_t first, std::size_t bytes) noexcept {
  all_caches& caches = all();
  const std::lock_guard lock(caches.mutex);
  std::size_t used = 0;
  for (auto* c = caches.list.front(); c; c = caches.list.after(*c)) used += c->forget(first, bytes);
  return used;
}

/// Ends the least recently used region. Returns false when all regions are in use.
DAT_DECL bool registration_cache_core::evict_one() noexcept {
  ref<lmr_core> region;
  {
    const std::lock_guard lock(mutex_);
    entry* e = unused_.front();
    while (e && !e->region->may_close()) e = unused_.after(*e); // a window is bound to it, or a tracked post names it
    if (!e) return false;
    const std::uint32_t i = behind(e->first) - 1;
    unlist(i, i + 1);
    e->unlink(); // from the list of unlisted regions
    region = take_region(*e);
    ++numbers_.evicted;
  }
  region->end();
  return true;
}

DAT_DECL std::size_t registration_cache_core::trim(std::size_t bytes) noexcept {
  collect();
  for (;;) {
    const std::size_t now = read().bytes; // 0 in a forked child
    if (now <= bytes || !evict_one()) return now;
  }
}

/// Reserves an entry for a region of `bytes`.
DAT_DECL expected<registration_cache_core::entry*> registration_cache_core::make_room(std::size_t bytes) noexcept {
  static constexpr const char* call = "registration_cache.find_or_register";
  if (bytes > max_bytes_)
    return error(return_type::insufficient_resources, return_subtype::resource_memory_region)
        .at(call, object_kind::lmr)
        .hint(
            "The range with its pages exceeds the cache's limit `bytes`: raise the limit, or use pz.register_memory.");
  collect();
  do {
    const std::lock_guard lock(mutex_);
    if (!free_ || bytes > max_bytes_ - numbers_.bytes) continue;
    entry* const e = std::exchange(free_, free_->next_free);
    e->last = e->first + bytes;
    numbers_.bytes += bytes;
    ++numbers_.regions;
    return e;
  } while (evict_one());
  return error(return_type::insufficient_resources, return_subtype::resource_memory_region)
      .at(call, object_kind::lmr)
      .hint("All regions of the cache are in use, and a limit is reached: release some, or raise the limit `bytes` or "
            "`regions`.");
}

DAT_DECL expected<registration_cache_core::entry*> registration_cache_core::register_range(std::uintptr_t first,
                                                                                           std::size_t bytes) noexcept {
  static constexpr const char* call = "registration_cache.find_or_register";
  if (foreign()) return error(return_type::invalid_handle, return_subtype::handle_pz).at(call, object_kind::pz);
  std::uintptr_t from = first;
  std::uintptr_t to = first + bytes;
  if (whole_pages_ && bytes != 0) {
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    from = from / page * page;
    to = (to + page - 1) / page * page;
  }
  auto reserved = make_room(to - from);
  if (!reserved) return reserved;
  entry& e = *reserved.assume_value();
  auto region = lmr_core::create(call, pz_, reinterpret_cast<void*>(from), to - from, access_);
  // The system limits pinned memory, and the device limits the number of regions. Unused regions of the cache count, so
  // they end first.
  while (!region && region.assume_error().type() == return_type::insufficient_resources && evict_one())
    region = lmr_core::create(call, pz_, reinterpret_cast<void*>(from), to - from, access_);
  entry* made = &e;
  {
    const std::lock_guard lock(mutex_);
    ++numbers_.misses;
    e.first = from;
    e.last = to;
    if (region) e.region = std::move(region).assume_value();
    // Another thread may have registered the range meanwhile. Of the two regions, one is enough.
    entry* const other = e.region ? covering(first, first + bytes) : nullptr;
    if (other) made = other;
    if (!e.region || other)
      unlisted_.push_back(e);
    else
      insert(e);
    if (e.region) use(*made);
  }
  collect();
  if (!region) return region.assume_error(); // NOLINT(bugprone-use-after-move): then nothing was moved
  return made;
}

/// Puts a region into the index, and removes those that it contains.
DAT_DECL void registration_cache_core::insert(entry& e) noexcept {
  std::uint32_t from = behind(e.first);
  while (from > 0 && places_[from - 1].first == e.first) --from;
  std::uint32_t to = from;
  while (to < listed_ && places_[to].last <= e.last) ++to;
  unlist(from, to);
  for (std::uint32_t i = listed_; i > from; --i) places_[i] = places_[i - 1];
  places_[from] = {e.first, e.last, &e};
  ++listed_;
  e.listed = true;
}

}}} // namespace dat::v0::detail
