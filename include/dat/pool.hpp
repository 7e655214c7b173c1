// Registered memory to allocate from, so that a program need not register each buffer.
// SPDX-License-Identifier: BSL-1.0
#pragma once

//     DAT_TRY(auto pool, dat::memory_pool<P>::create(pz, 16 << 20));
//     std::pmr::vector<int> numbers(1000, &pool.resource());
//     ep.post(dat::send{pool.segment(std::span(numbers)).value()});
//
// Opt-in: <memory_resource> costs to compile.

#include <dat/expected.hpp>
#include <dat/lmr.hpp>
#include <dat/pz.hpp>
#include <dat/segment.hpp>

#include <dat/detail/base/enum_name.hpp>
#include <dat/detail/base/utility.hpp>
#include <dat/detail/memory/buddy.hpp>
#include <dat/detail/memory/pool_core.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 {

/// The page size of a pool's memory.
enum class pages : std::uint8_t {
  normal,
  huge,           ///< huge pages, which the system must have reserved (vm.nr_hugepages)
  huge_or_normal, ///< huge pages if there are enough, otherwise normal ones
};
[[nodiscard]] constexpr std::string_view to_string(pages value) noexcept {
  return detail::enum_name(value, {"normal", "huge", "huge_or_normal"}, "unknown pages");
}

/// One piece of memory, mapped and registered once with the rights `P`, from which allocators take parts.
///
/// An allocation is a power of two of at least 64 bytes, aligned to its size up to a page. The bookkeeping is apart
/// from the memory, so that a stray write of a peer does not damage it. Move-only; the memory does not move. The pool
/// must outlive its allocations.
/// Thread safety: `resource`, `try_allocate`, `deallocate` and `segment` are safe; moving, `close` and destruction must
/// not overlap them.
template <mem_priv P>
class memory_pool {
public:
  memory_pool() noexcept = default; ///< names no memory

  /// Creates a pool of at least `bytes`. A size of up to 2 MiB is rounded up to a power of two of pages, a larger one
  /// to a multiple of 2 MiB.
  /// Errors: as pz::register_memory; `insufficient_resources` also when the system has no such pages;
  /// `invalid_parameter` for 0 bytes, or more than 128 GiB.
  /// Allocates: yes.
  /// Blocks: as pz::register_memory.
  /// Thread safety: safe.
  [[nodiscard]] static expected<memory_pool> create(pz& zone, std::size_t bytes, pages kind = pages::normal) noexcept {
    memory_pool made;
    made.core_.reset(new (std::nothrow) core);
    if (!made.core_)
      return error(return_type::insufficient_resources, return_subtype::resource_memory)
          .at("memory_pool.create", object_kind::lmr);
    if (auto ok = made.core_->shares.map(bytes, kind != pages::normal, kind == pages::huge); !ok)
      return ok.assume_error();
    auto region = zone.register_memory(made.core_->shares.all(), privileges<P>{});
    if (!region) return region.assume_error();
    made.core_->region = std::move(region).assume_value();
    return made;
  }
  /// Creates a pool with rights that an argument names.
  /// Errors, Allocates, Blocks and Thread safety: as above.
  [[nodiscard]] static expected<memory_pool> create(pz& zone, std::size_t bytes, privileges<P>,
                                                    pages kind = pages::normal) noexcept {
    return create(zone, bytes, kind);
  }

  /// The memory resource for containers of std::pmr. Without room it throws std::bad_alloc, as the standard requires; a
  /// program without exceptions is terminated then, and should use `try_allocate`. Must not be called for an empty
  /// pool.
  [[nodiscard]] std::pmr::memory_resource& resource() noexcept { return *core_; }
  /// Allocates from the pool alone. Null without room, and for alignments of more than a page.
  [[nodiscard]] void* try_allocate(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) noexcept {
    return core_ ? core_->shares.allocate(bytes, alignment) : nullptr;
  }
  /// Frees an allocation with the same numbers. No DTO may still use it.
  void deallocate(void* p, std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) noexcept {
    if (core_ && p) core_->shares.deallocate(p, bytes, alignment);
  }

  /// A segment of elements that are in the pool, for DTOs.
  /// Errors: `invalid_parameter` for other elements; `length_error` for 4 GiB or more; `invalid_handle`.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  template <class Range>
  [[nodiscard]] auto segment(Range&& elements) const noexcept {
    using element = std::remove_reference_t<decltype(*std::span(elements).data())>;
    using result = expected<local_segment<element, P>>;
    static_assert(transferable<element>, "dat: only trivially copyable elements can be transferred as bytes");
    const std::span all(elements);
    auto at = place_of("memory_pool.segment", all.data(), all.size_bytes());
    if (!at) return result(at.assume_error());
    auto piece = core_->region.slice(at.assume_value(), all.size_bytes());
    if (!piece) return result(piece.assume_error());
    return result(
        detail::segment_access::make<local_segment<element, P>>(detail::segment_access::raw(piece.assume_value())));
  }
  /// A segment of elements that are in the pool, for a peer. Only for pools with a remote right.
  /// Errors: `invalid_parameter` for other elements; `invalid_handle`.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  template <class Range>
  [[nodiscard]] auto remote(Range&& elements) const noexcept {
    using element = std::remove_reference_t<decltype(*std::span(elements).data())>;
    using result = expected<remote_segment<element, P>>;
    const std::span all(elements);
    auto at = place_of("memory_pool.remote", all.data(), all.size_bytes());
    if (!at) return result(at.assume_error());
    auto piece = core_->region.remote(at.assume_value(), all.size_bytes());
    if (!piece) return result(piece.assume_error());
    return result(
        detail::segment_access::make<remote_segment<element, P>>(detail::segment_access::raw(piece.assume_value())));
  }

  /// Ends the registration and returns the memory to the system.
  /// Errors: as lmr::close, which leave the pool usable.
  /// Allocates: no.
  /// Blocks: as lmr::close.
  /// Thread safety: must not overlap any other use.
  expected<void> close() noexcept {
    if (!core_) return detail::empty_handle("memory_pool.close", return_subtype::handle_lmr);
    if (auto ok = core_->region.close(); !ok) return ok;
    core_.reset();
    return success();
  }

  [[nodiscard]] std::size_t size_bytes() const noexcept { return core_ ? core_->shares.all().size() : 0; }
  /// Bytes that are allocated, with their rounding.
  [[nodiscard]] std::size_t used_bytes() const noexcept { return core_ ? core_->shares.used() : 0; }
  /// Whether its memory consists of huge pages.
  [[nodiscard]] bool is_huge() const noexcept { return core_ && core_->shares.huge(); }
  /// The registration of the whole pool.
  [[nodiscard]] const lmr<std::byte, P>& region() const noexcept {
    static const lmr<std::byte, P> nothing;
    return core_ ? core_->region : nothing;
  }
  explicit operator bool() const noexcept { return core_ != nullptr; }

private:
  struct core final : std::pmr::memory_resource {
    detail::shared_out shares; // declared first, so that the memory outlives its registration
    lmr<std::byte, P> region;

  private:
    void* do_allocate(std::size_t bytes, std::size_t alignment) override {
      void* const p = shares.allocate(bytes, alignment);
      if (!p) detail::out_of_memory();
      return p;
    }
    void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) override {
      shares.deallocate(p, bytes, alignment);
    }
    [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
      return this == &other;
    }
  };

  [[nodiscard]] expected<std::size_t> place_of(const char* call, const void* first, std::size_t bytes) const noexcept {
    if (!core_) return detail::empty_handle(call, return_subtype::handle_lmr);
    const auto base = reinterpret_cast<std::uintptr_t>(core_->shares.all().data());
    const auto at = reinterpret_cast<std::uintptr_t>(first);
    if (bytes == 0) return std::size_t{0};
    if (at < base || at - base > core_->shares.all().size() || bytes > core_->shares.all().size() - (at - base))
      return error(return_type::invalid_parameter, return_subtype::arg1)
          .at(call, object_kind::lmr)
          .hint("The elements do not lie in the pool's memory.");
    return static_cast<std::size_t>(at - base);
  }

  std::unique_ptr<core> core_;
};

}} // namespace dat::v0
