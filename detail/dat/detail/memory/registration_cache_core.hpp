// The regions of a cache of registrations: an index by address, and a list of those that are not in use.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <dat/detail/base/intrusive_list.hpp>
#include <dat/detail/base/quick_mutex.hpp>
#include <dat/detail/base/ref.hpp>
#include <dat/detail/base/utility.hpp>
#include <dat/detail/memory/lmr_core.hpp>

#include <cstddef>
#include <cstdint>
#include <mutex>

namespace dat { inline namespace v0 { namespace detail {

/// The regions of a cache, one for each range of memory.
///
/// No range of the index contains another one. So both the first and the last addresses are in ascending order, and at
/// most one range has to be compared to find one that covers a request. Regions are registered and deregistered without
/// the lock, because the system may take long to pin pages.
class registration_cache_core : public list_node {
public:
  struct entry : list_node { // an element of unused_ or unlisted_
    ref<lmr_core> region;
    std::uintptr_t first = 0;
    std::uintptr_t last = 0; // behind the last byte
    std::uint32_t uses = 0;
    bool listed = false; // in the index
    entry* next_free = nullptr;
  };
  struct numbers {
    std::uint64_t hits = 0, misses = 0, evicted = 0, forgotten = 0;
    std::size_t bytes = 0;
    std::uint32_t regions = 0, in_use = 0;
  };

  [[nodiscard]] static expected<registration_cache_core*> create(const ref<pz_core>& pz, int access, bool whole_pages,
                                                                 std::size_t max_bytes, std::uint32_t max_regions);
  registration_cache_core(const registration_cache_core&) = delete;
  registration_cache_core& operator=(const registration_cache_core&) = delete;

  /// True in a forked child of the process that made the cache. There the cache has no effect, and takes no lock, which
  /// another thread may have held during the fork.
  [[nodiscard]] bool foreign() const noexcept { return made_.foreign(); }
  /// Finds or registers a region that covers the bytes, and counts another use of it.
  [[nodiscard]] expected<entry*> acquire(std::uintptr_t first, std::size_t bytes) noexcept {
    if (!foreign()) [[likely]] {
      const std::lock_guard lock(mutex_);
      if (entry* const e = bytes != 0 ? covering(first, first + bytes) : nullptr) [[likely]] {
        ++numbers_.hits;
        use(*e);
        return e;
      }
    }
    return register_range(first, bytes);
  }
  void release(entry& e) noexcept {
    if (foreign()) [[unlikely]]
      return;
    mutex_.lock();
    if (--e.uses == 0) {
      --numbers_.in_use;
      (e.listed ? unused_ : unlisted_).push_back(e);
    }
    if (unlisted_.empty()) [[likely]]
      mutex_.unlock();
    else
      end_unlisted();
  }

  /// Removes the regions that overlap the bytes from the index. Returns how many of them are in use.
  std::size_t forget(std::uintptr_t first, std::size_t bytes) noexcept;
  /// Ends the regions that are neither in the index nor in use.
  void collect() noexcept;
  /// Ends unused regions, the least recently used first, until at most `bytes` are left.
  std::size_t trim(std::size_t bytes) noexcept;
  [[nodiscard]] numbers read() const noexcept {
    if (foreign()) return {};
    const std::lock_guard lock(mutex_);
    return numbers_;
  }
  /// The handle ends. Frees the cache, or leaves that to the last use of a region.
  void abandon() noexcept;

  /// Calls forget of all caches of the process.
  static std::size_t forget_in_all(std::uintptr_t first, std::size_t bytes) noexcept;

private:
  struct place {
    std::uintptr_t first;
    std::uintptr_t last;
    entry* of;
  };
  struct all_caches {
    quick_mutex mutex;
    intrusive_list<registration_cache_core> list;
  };

  registration_cache_core(ref<pz_core> pz, int access, bool whole_pages, std::size_t max_bytes,
                          std::uint32_t max_regions) noexcept;
  ~registration_cache_core();

  /// The index of the first range that begins behind `first`.
  [[nodiscard]] std::uint32_t behind(std::uintptr_t first) const noexcept {
    std::uint32_t low = 0;
    std::uint32_t high = listed_;
    while (low < high) {
      const std::uint32_t middle = low + (high - low) / 2;
      if (places_[middle].first <= first)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
  [[nodiscard]] entry* covering(std::uintptr_t first, std::uintptr_t last) const noexcept {
    const std::uint32_t i = behind(first);
    if (i == 0 || places_[i - 1].last < last) return nullptr;
    entry* const e = places_[i - 1].of;
    return e->region->mr() ? e : nullptr; // an abrupt close of the ia ends regions
  }
  void use(entry& e) noexcept {
    if (e.uses++ != 0) return;
    ++numbers_.in_use;
    e.unlink();
  }

  [[nodiscard]] expected<entry*> register_range(std::uintptr_t first, std::size_t bytes) noexcept;
  [[nodiscard]] expected<entry*> make_room(std::size_t bytes) noexcept;
  [[nodiscard]] bool evict_one() noexcept;
  [[nodiscard]] ref<lmr_core> take_region(entry& e) noexcept;
  void insert(entry& e) noexcept;
  void end_unlisted() noexcept;
  void unlist(std::uint32_t from, std::uint32_t to) noexcept;
  [[nodiscard, gnu::visibility("default")]] static all_caches& all() noexcept; // one for all shared objects

  const ref<pz_core> pz_;
  const int access_;
  const bool whole_pages_;
  const std::size_t max_bytes_;
  const fork_mark made_;
  unique_array<place> places_;
  unique_array<entry> entries_;

  mutable quick_mutex mutex_; // guards the following members and the entries
  std::uint32_t listed_ = 0;
  entry* free_ = nullptr;
  intrusive_list<entry> unused_;   // in the index; the least recently used one is the first
  intrusive_list<entry> unlisted_; // neither in the index nor in use
  bool abandoned_ = false;
  numbers numbers_;
};

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/memory/registration_cache_core.ipp>
#endif
