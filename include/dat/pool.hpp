// Registered memory to allocate from: so that what is sent and received need not be registered each time.
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

#include <dat/detail/basics.hpp>
#include <dat/detail/buddy.hpp>
#include <dat/detail/enum_name.hpp>
#include <dat/detail/pool_core.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace dat::inline v0 {

/// What a pool's memory is made of.
enum class pages : std::uint8_t {
  normal,
  huge,           ///< huge pages, which the system must have set aside (vm.nr_hugepages)
  huge_or_normal, ///< those, or else normal ones
};
[[nodiscard]] constexpr std::string_view to_string(pages value) noexcept {
  return detail::enum_name(value, {"normal", "huge", "huge_or_normal"}, "unknown pages");
}

/// One piece of memory, mapped and registered once with the rights `P`, that allocators share out.
///
/// What is allocated is a power of two of at least 64 bytes, aligned to its size up to a page. The books are kept apart
/// from the memory, so that a peer that writes where it should not harms no allocation. Move-only; the memory stays
/// where it is. The pool must outlive what was allocated from it. Thread safety: `resource`, `try_allocate`,
/// `deallocate` and `segment` are safe; moving, `close` and destruction must not overlap them.
template <mem_priv P>
class memory_pool {
public:
  memory_pool() noexcept = default; ///< of no memory

  /// A pool of at least `bytes`, rounded up to a power of two of pages.
  /// Errors: as pz::register_memory; `insufficient_resources` also when the system has no such pages;
  /// `invalid_parameter` for 0 bytes, or more than 128 GiB.
  [[nodiscard]] static expected<memory_pool> create(pz& zone, std::size_t bytes, pages kind = pages::normal) noexcept {
    memory_pool made;
    made.core_.reset(new (std::nothrow) core);
    if (!made.core_)
      return error(return_type::insufficient_resources, return_subtype::resource_memory).at("memory_pool.create");
    if (auto ok = made.core_->shares.map(bytes, kind != pages::normal, kind == pages::huge); !ok)
      return ok.assume_error();
    auto region = zone.register_memory(made.core_->shares.all(), privileges<P>{});
    if (!region) return region.assume_error();
    made.core_->region = std::move(region).assume_value();
    return made;
  }
  /// The same, with the rights named.
  [[nodiscard]] static expected<memory_pool> create(pz& zone, std::size_t bytes, privileges<P>,
                                                    pages kind = pages::normal) noexcept {
    return create(zone, bytes, kind);
  }

  /// For containers of std::pmr. Where there is no room it throws std::bad_alloc, as the standard wants it; a program
  /// without exceptions is terminated then, and should ask `try_allocate`. Not for a pool of no memory.
  [[nodiscard]] std::pmr::memory_resource& resource() noexcept { return *core_; }
  /// Null when there is no room, and for alignments of more than a page. Does not allocate elsewhere.
  [[nodiscard]] void* try_allocate(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) noexcept {
    return core_ ? core_->shares.allocate(bytes, alignment) : nullptr;
  }
  /// Gives back what was allocated with the same numbers. No DTO may use it any more.
  void deallocate(void* p, std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) noexcept {
    if (core_ && p) core_->shares.deallocate(p, bytes, alignment);
  }

  /// Elements that lie in the pool, for DTOs.
  /// Errors: `invalid_parameter` when they do not, `length_error` for 4 GiB or more, `invalid_handle`.
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
  /// The same for a peer. Only for pools with a remote right.
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

  /// Ends the registration and gives the memory back to the system. Errors: as lmr::close; the pool stays usable then.
  expected<void> close() noexcept {
    if (!core_) return detail::empty_handle("memory_pool.close", return_subtype::handle_lmr);
    if (auto ok = core_->region.close(); !ok) return ok;
    core_.reset();
    return success();
  }

  [[nodiscard]] std::size_t size_bytes() const noexcept { return core_ ? core_->shares.all().size() : 0; }
  /// Bytes that are allocated, rounded up as they are.
  [[nodiscard]] std::size_t used_bytes() const noexcept { return core_ ? core_->shares.used() : 0; }
  /// Whether its memory is of huge pages.
  [[nodiscard]] bool is_huge() const noexcept { return core_ && core_->shares.huge(); }
  /// The registration of the whole.
  [[nodiscard]] const lmr<std::byte, P>& region() const noexcept {
    static const lmr<std::byte, P> nothing;
    return core_ ? core_->region : nothing;
  }
  explicit operator bool() const noexcept { return core_ != nullptr; }

private:
  struct core final : std::pmr::memory_resource {
    detail::shared_out shares; // first, so that the memory outlives its registration
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
          .hint("the elements do not lie in the pool's memory");
    return static_cast<std::size_t>(at - base);
  }

  std::unique_ptr<core> core_;
};

} // namespace dat::inline v0
