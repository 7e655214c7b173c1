// A cache of registrations: memory is registered on its first use, and stays registered for the next one.
// SPDX-License-Identifier: BSL-1.0
#pragma once

//     DAT_TRY(auto cache, dat::registration_cache<P>::create(pz));
//     DAT_TRY(auto memory, cache.find_or_register(buffer)); // registers, or finds a region that covers the buffer
//     ep.post(dat::send{memory.whole()}.cookie(1));         // `memory` lives until the completion
//
//     cache.forget(p, bytes);                               // before the program unmaps memory
//     ::munmap(p, bytes);
//
// A region names the pages that were mapped when it was registered. If a program unmaps the memory and maps other
// memory at its address, the region still names the old pages, and an operation would send or change those. The kernel
// does not report this to a program in time: userfaultfd needs a privilege and a thread of the library, and `munmap`
// returns as soon as that thread has read the event, before it can act. So the program calls `forget` itself, or its
// allocator calls `dat::memory_unmapped`. docs/guide.md shows both, and the settings with which malloc never unmaps.
//
// Not part of <dat/dat.hpp>.

#include <dat/error.hpp>
#include <dat/expected.hpp>
#include <dat/privileges.hpp>
#include <dat/pz.hpp>
#include <dat/segment.hpp>

#include <dat/detail/base/misuse.hpp>
#include <dat/detail/handle/core_access.hpp>
#include <dat/detail/memory/registration.hpp>
#include <dat/detail/memory/registration_cache_core.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 {

template <mem_priv P>
class registration_cache;

/// The limits of the memory that a registration_cache keeps registered.
struct registration_cache_limits {
  std::size_t bytes =
      std::size_t{1} << 30;     ///< the total of all regions, also those in use; RLIMIT_MEMLOCK limits it, too
  std::uint32_t regions = 1024; ///< the cache needs about 100 bytes of memory for each of them
};

/// The numbers of a registration_cache at one moment. A value.
struct registration_cache_values {
  std::uint64_t hits = 0;      ///< calls that have found a region
  std::uint64_t misses = 0;    ///< calls that have registered memory, or tried to
  std::uint64_t evicted = 0;   ///< regions that were deregistered because a limit was reached, or by trim
  std::uint64_t forgotten = 0; ///< regions that forget and memory_unmapped have removed
  std::size_t bytes = 0;       ///< bytes that are registered
  std::uint32_t regions = 0;   ///< regions that are registered
  std::uint32_t in_use = 0;    ///< regions that a cached_registration holds
};

/// Elements of registered memory, as `registration_cache::find_or_register` returns them. The region stays registered
/// while this object lives, so it must live until the last operation that names the memory has completed.
///
/// Move-only. It may outlive the cache.
/// Thread safety: queries and slices are safe; `release`, moving and destruction must not overlap them.
template <class T, mem_priv P>
class cached_registration {
public:
  using element_type = T;
  static constexpr mem_priv rights = P;
  static constexpr bool remotely_accessible = (P & detail::peer_rights) != mem_priv::none;

  cached_registration() noexcept = default; ///< names no memory; whole() is empty
  cached_registration(cached_registration&& o) noexcept
      : cache_(std::exchange(o.cache_, nullptr)), entry_(std::exchange(o.entry_, nullptr)), memory_(o.memory_) {}
  cached_registration& operator=(cached_registration&& o) noexcept {
    if (this == &o) return *this;
    release();
    cache_ = std::exchange(o.cache_, nullptr);
    entry_ = std::exchange(o.entry_, nullptr);
    memory_ = o.memory_;
    return *this;
  }
  ~cached_registration() { release(); }

  /// Ends the use of the region, as the destructor does. The object is empty afterwards.
  void release() noexcept {
    if (entry_) cache_->release(*entry_);
    entry_ = nullptr;
  }

  /// The elements as a segment for DTOs. If they have 4 GiB or more, posting it fails with `protection_violation`; use
  /// slices.
  [[nodiscard]] local_segment<T, P> whole() const noexcept {
    detail::raw_segment raw{.zone = detail::zone_tag::no_region()};
    if (const detail::lmr_core* const r = region()) {
      const bool fits = size_bytes() <= std::numeric_limits<std::uint32_t>::max();
      raw = {address(), fits ? static_cast<std::uint32_t>(size_bytes()) : 1u, r->local_key(),
             fits ? r->zone_of(size_bytes()) : detail::zone_tag::unpostable()};
    }
    return detail::segment_access::make<local_segment<T, P>>(raw);
  }
  /// Elements [first, first + count) as a segment for DTOs.
  /// Errors: as lmr::slice.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  [[nodiscard]] expected<local_segment<T, P>> slice(std::size_t first, std::size_t count) const noexcept {
    static constexpr const char* call = "cached_registration.slice";
    if (auto ok = check(call, first, count); !ok) return ok.assume_error();
    if (count * sizeof(T) > std::numeric_limits<std::uint32_t>::max())
      return error(return_type::length_error)
          .at(call, object_kind::lmr, region()->local_key())
          .hint("One segment names less than 4 GiB: slice the memory into several.");
    return detail::segment_access::make<local_segment<T, P>>(
        detail::raw_segment{address() + first * sizeof(T), static_cast<std::uint32_t>(count * sizeof(T)),
                            region()->local_key(), region()->zone_of(count * sizeof(T))});
  }

  /// The elements for a peer, which gets them as `to_wire()`. Only with a remote right.
  [[nodiscard]] remote_segment<T, P> remote() const noexcept {
    static_assert(remotely_accessible,
                  "dat: create the cache with dat::remote_read, remote_write or remote_atomic first");
    detail::raw_remote raw;
    if (const detail::lmr_core* const r = region()) raw = {address(), size_bytes(), r->mr()->rkey};
    return detail::segment_access::make<remote_segment<T, P>>(raw);
  }

  [[nodiscard]] std::size_t size() const noexcept { return elements().size(); }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return elements().size_bytes(); }
  /// The memory itself.
  [[nodiscard]] T* data() const noexcept { return elements().data(); }
  [[nodiscard]] std::span<T> elements() const noexcept { return entry_ ? memory_ : std::span<T>(); }
  /// False for an object that names no memory.
  explicit operator bool() const noexcept { return entry_ != nullptr; }

private:
  friend class registration_cache<P>;
  cached_registration(detail::registration_cache_core& cache, detail::registration_cache_core::entry& of,
                      std::span<T> memory) noexcept
      : cache_(&cache), entry_(&of), memory_(memory) {}

  /// Null when the region has ended with its ia.
  [[nodiscard]] const detail::lmr_core* region() const noexcept {
    return entry_ && entry_->region->mr() ? entry_->region.get() : nullptr;
  }
  [[nodiscard]] std::uint64_t address() const noexcept { return reinterpret_cast<std::uintptr_t>(memory_.data()); }
  [[nodiscard]] expected<void> check(const char* call, std::size_t first, std::size_t count) const noexcept {
    if (!region()) return detail::empty_handle(call, return_subtype::handle_lmr);
    if (first > size() || count > size() - first)
      return error(return_type::invalid_parameter)
          .at(call, object_kind::lmr, region()->local_key())
          .hint("The elements [first, first + count) must lie inside size().");
    return success();
  }

  detail::registration_cache_core* cache_ = nullptr;
  detail::registration_cache_core::entry* entry_ = nullptr;
  std::span<T> memory_;
};

/// Registers memory with the rights `P` on its first use, and keeps the region for later uses of the same memory or of
/// a part of it. When a limit is reached, the cache deregisters the region that was not used for the longest time. It
/// never deregisters a region that a cached_registration holds.
///
/// Without remote rights, regions consist of whole pages. With a remote right they consist of exactly the elements, so
/// that a peer cannot access other memory. A cache suits memory that the program does not allocate itself. For its own
/// allocations, a `dat::memory_pool` needs neither lookups nor `forget`.
///
/// Move-only. Every region keeps the zone in use: `close` or `trim` the cache before the zone is closed.
/// Thread safety: all calls are safe but `close`, moving and destruction, which must not overlap another use, the end
/// of a cached_registration included. No thread waits for another one that registers memory.
template <mem_priv P>
class registration_cache {
public:
  static constexpr mem_priv rights = P;

  registration_cache() noexcept = default; ///< names no cache
  registration_cache(registration_cache&& o) noexcept : core_(std::exchange(o.core_, nullptr)) {}
  registration_cache& operator=(registration_cache&& o) noexcept {
    if (this == &o) return *this;
    if (core_) core_->abandon();
    core_ = std::exchange(o.core_, nullptr);
    return *this;
  }
  /// Deregisters the memory. A region that is in use is deregistered at the end of its last use.
  ~registration_cache() {
    if (core_) core_->abandon();
  }

  /// Creates an empty cache.
  /// Errors: `invalid_parameter` for a limit of 0; `insufficient_resources`; `invalid_handle` for an empty or closed
  /// zone.
  /// Allocates: yes.
  /// Blocks: never.
  /// Thread safety: safe.
  [[nodiscard]] static expected<registration_cache> create(pz& zone,
                                                           const registration_cache_limits& limits = {}) noexcept {
    if (!zone) return detail::empty_handle("registration_cache.create", return_subtype::handle_pz);
    constexpr bool local = !cached_registration<std::byte, P>::remotely_accessible;
    auto core = detail::registration_cache_core::create(detail::core_access::of(zone), detail::verbs_access(P), local,
                                                        limits.bytes, limits.regions);
    if (!core) return core.assume_error();
    registration_cache made;
    made.core_ = core.assume_value();
    return made;
  }
  /// Creates a cache with rights that an argument names.
  /// Errors, Allocates, Blocks and Thread safety: as above.
  [[nodiscard]] static expected<registration_cache> create(pz& zone, privileges<P>,
                                                           const registration_cache_limits& limits = {}) noexcept {
    return create(zone, limits);
  }

  /// Finds a region that covers a contiguous range, or registers one. The range is not owned: it must stay mapped while
  /// the result lives, so a temporary container is refused.
  ///
  /// Errors: as pz::register_memory, and `insufficient_resources` when a limit is reached and all regions are in use,
  /// or when the range exceeds the limit alone. If the system or the device refuses another region, the cache
  /// deregisters unused ones first.
  /// Allocates: when it registers.
  /// Blocks: as pz::register_memory when it registers, otherwise never.
  /// Thread safety: safe.
  template <class Range>
  [[nodiscard]] auto find_or_register(Range&& range) noexcept {
    static_assert(detail::contiguous<Range>,
                  "dat: find_or_register takes a contiguous range: a std::span, std::vector, "
                  "std::array or a C array");
    if constexpr (detail::contiguous<Range>) {
      using element = detail::element_of<Range>;
      static_assert(detail::elements_live_on<Range>,
                    "dat: the adapter uses this memory after the call: pass a container "
                    "that lives on (an lvalue), not a temporary");
      static_assert(transferable<element>, "dat: only trivially copyable elements can be transferred as bytes");
      static_assert(!std::is_const_v<element> || !detail::writes(P),
                    "dat: const memory can be registered for local_read and remote_read only");
      using result = expected<cached_registration<element, P>>;
      if (!core_) return result(empty("registration_cache.find_or_register"));
      const std::span<element> all(detail::span_over(range));
      auto found = core_->acquire(reinterpret_cast<std::uintptr_t>(all.data()), all.size_bytes());
      if (!found) return result(found.assume_error());
      return result(cached_registration<element, P>(*core_, *found.assume_value(), all));
    }
  }

  /// Removes all regions that overlap the bytes [address, address + bytes), and deregisters those that are not in use.
  /// A program calls it before it unmaps memory, shrinks or moves a mapping, maps something over it, or discards its
  /// pages (`munmap`, `mremap`, `mmap` with MAP_FIXED, `madvise` with MADV_DONTNEED). Returns the number of removed
  /// regions that are still in use: 0 in a correct program. They are deregistered at the end of their last use.
  /// Allocates: never; frees memory.
  /// Blocks: while the system unpins the pages.
  /// Thread safety: safe.
  std::size_t forget(const void* address, std::size_t bytes) noexcept {
    if (!core_) return 0;
    const std::size_t used = core_->forget(reinterpret_cast<std::uintptr_t>(address), bytes);
    core_->collect();
    return used;
  }

  /// Deregisters regions that are not in use, the least recently used first, until at most `bytes` are registered.
  /// Returns the bytes that are left. A region to which a window is bound, or that a tracked post names, stays.
  /// Allocates: never; frees memory.
  /// Blocks: while the system unpins the pages.
  /// Thread safety: safe.
  std::size_t trim(std::size_t bytes = 0) noexcept { return core_ ? core_->trim(bytes) : 0; }

  /// The numbers now.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  [[nodiscard]] registration_cache_values read() const noexcept {
    if (!core_) return {};
    const auto n = core_->read();
    return {n.hits, n.misses, n.evicted, n.forgotten, n.bytes, n.regions, n.in_use};
  }

  /// Deregisters the memory and frees the cache.
  /// Errors: `invalid_state` (lmr_in_use) while a region is in use, which leaves the cache usable; `invalid_handle`.
  /// Allocates: never.
  /// Blocks: while the system unpins the pages.
  /// Thread safety: must not overlap any other use.
  expected<void> close() noexcept {
    static constexpr const char* call = "registration_cache.close";
    if (!core_) return empty(call);
    if (core_->foreign()) {
      core_ = nullptr;
      return error(return_type::invalid_handle, return_subtype::handle_lmr).at(call).hint(detail::foreign_hint);
    }
    if (core_->read().in_use != 0)
      return error(return_type::invalid_state, return_subtype::lmr_in_use)
          .at(call, object_kind::lmr)
          .hint("A cached_registration still holds a region: release it when its operations have completed.");
    std::exchange(core_, nullptr)->abandon();
    return success();
  }
  /// False for an empty or closed cache.
  explicit operator bool() const noexcept { return core_ != nullptr; }

private:
  [[nodiscard, gnu::cold]] static error empty(const char* call) noexcept {
    return detail::empty_handle(call, return_subtype::handle_lmr);
  }

  detail::registration_cache_core* core_ = nullptr;
};

/// The hook for allocators. It does the same as registration_cache::forget for all caches of the process, but it frees
/// no memory and takes only locks of dat. So an allocator may call it with its own locks held. The regions are
/// deregistered by the next call of their cache that registers, forgets or trims, or by the end of a use.
///
/// Returns the number of removed regions that are in use: 0 in a correct program.
/// Allocates: never.
/// Blocks: never.
/// Thread safety: safe.
inline std::size_t memory_unmapped(const void* address, std::size_t bytes) noexcept {
  return detail::registration_cache_core::forget_in_all(reinterpret_cast<std::uintptr_t>(address), bytes);
}

}} // namespace dat::v0
