// Checked builds: the memory of posted work, from its post until its event is taken, and registered memory.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/checked.hpp>

#include <cstddef>
#include <cstdint>

namespace dat { inline namespace v0 { namespace detail {

struct work_entry;

/// The use of the memory of an operation.
enum class memory_use : std::uint8_t { none, read, written };

/// The watch over posted work and registered memory. This class does nothing. Checked builds have the class in
/// posted_memory.hpp instead.
template <bool Checked>
struct work_watch {
  /// The completion of the entry's work was taken.
  static constexpr void done(const work_entry&) noexcept {}
  /// The entry's work ended without a completion: its endpoint was reset or closed.
  static constexpr void forget(const work_entry&) noexcept {}
  /// The entry's work has become that of another entry.
  static constexpr void moved(const work_entry&, const work_entry&) noexcept {}
  static constexpr void begin(const char*, const char*, std::uint32_t) noexcept {}
  template <class Sge>
  static constexpr void stage(const work_entry&, memory_use, const Sge*, std::uint32_t) noexcept {}
  static constexpr void arm() noexcept {}
  static constexpr void refused(std::uint32_t) noexcept {}
  static constexpr void registered(const void*, const void*, std::size_t, std::uint32_t) noexcept {}
  static constexpr void unregistered(const void*) noexcept {}
};

template <>
struct work_watch<true> {
  static void done(const work_entry& e) noexcept;
  static void forget(const work_entry& e) noexcept;
  static void moved(const work_entry& from, const work_entry& to) noexcept;
  /// A post begins in the calling thread. Records the place of the caller.
  static void begin(const char* call, const char* object, std::uint32_t id) noexcept;
  /// An operation of the post, with its entry.
  template <class Sge>
  static void stage(const work_entry& e, memory_use use, const Sge* list, std::uint32_t count) noexcept;
  /// The staged operations are about to reach the device.
  static void arm() noexcept;
  /// The device took `taken` of the operations of the last `arm`.
  static void refused(std::uint32_t taken) noexcept;
  /// The lmr with the key `id` has registered memory of this process.
  static void registered(const void* lmr, const void* memory, std::size_t bytes, std::uint32_t id) noexcept;
  static void unregistered(const void* lmr) noexcept;
};

}}} // namespace dat::v0::detail
