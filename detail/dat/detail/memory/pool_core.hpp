// The memory of a pool, and the allocation of its parts.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <dat/detail/memory/buddy.hpp>
#include <dat/detail/text/errno.hpp>

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <span>
#include <sys/mman.h>

namespace dat { inline namespace v0 { namespace detail {

[[noreturn, gnu::cold]] inline void out_of_memory() {
#if defined(__cpp_exceptions)
  throw std::bad_alloc();
#else
  std::terminate();
#endif
}

class shared_out {
public:
  shared_out() noexcept = default;
  shared_out(const shared_out&) = delete;
  shared_out& operator=(const shared_out&) = delete;
  ~shared_out() {
    if (base_) ::munmap(base_, size_);
  }

  [[nodiscard]] expected<void> map(std::size_t bytes, bool huge, bool only_huge) noexcept {
    static constexpr const char* call = "memory_pool.create";
    constexpr std::size_t page = 4096;
    constexpr std::size_t huge_page = 2 << 20;
    if (bytes == 0 || bytes > block << 31)
      return error(return_type::invalid_parameter, return_subtype::arg2)
          .at(call, object_kind::lmr)
          .hint("A pool has at least 1 byte and at most 128 GiB.");
    const auto try_map = [&](std::size_t size, int flags) {
      size_ = size;
      void* m = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
      base_ = m == MAP_FAILED ? nullptr : static_cast<std::byte*>(m);
    };
    // Small pools are a power of two of pages. Large ones are not rounded up to twice the request.
    const auto rounded = [&](std::size_t unit) {
      return bytes <= huge_page ? std::bit_ceil(max(bytes, unit)) : (bytes + huge_page - 1) / huge_page * huge_page;
    };
    if (huge) try_map(rounded(huge_page), MAP_HUGETLB);
    huge_ = base_ != nullptr;
    if (!base_ && !only_huge) try_map(rounded(page), 0);
    if (!base_) return not_mapped(errno, only_huge).at(call, object_kind::lmr);
    if (!books_.reserve(size_ / block))
      return error(return_type::insufficient_resources, return_subtype::resource_memory).at(call, object_kind::lmr);
    return success();
  }

  /// The error of an mmap that failed with `reason`.
  [[nodiscard]] static error not_mapped(int reason, bool only_huge) noexcept {
    const bool none = only_huge && reason == ENOENT; // neither the processor nor the kernel has huge pages
    const error e = map_errno(none ? ENOMEM : reason, return_subtype::resource_memory).from("mmap", reason);
    if (none) return e.hint("This system has no huge pages.");
    return only_huge ? e.hint("The system has not set that many huge pages aside: see vm.nr_hugepages.") : e;
  }

  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
    if (bytes > size_ || alignment > 4096) return nullptr;
    const unsigned order = order_of(bytes, alignment);
    const std::lock_guard lock(mutex_);
    const std::uint32_t first = books_.allocate(order);
    if (first == buddy::none) return nullptr;
    used_ += block << order;
    return base_ + std::size_t{first} * block;
  }
  void deallocate(void* p, std::size_t bytes, std::size_t alignment) noexcept {
    const unsigned order = order_of(bytes, alignment);
    const auto first = static_cast<std::uint32_t>(static_cast<std::size_t>(static_cast<std::byte*>(p) - base_) / block);
    const std::lock_guard lock(mutex_);
    books_.free(first, order);
    used_ -= block << order;
  }

  [[nodiscard]] std::span<std::byte> all() const noexcept { return {base_, size_}; }
  [[nodiscard]] bool huge() const noexcept { return huge_; }
  [[nodiscard]] std::size_t used() const noexcept {
    const std::lock_guard lock(mutex_);
    return used_;
  }

private:
  static constexpr std::size_t block = 64;
  [[nodiscard]] static unsigned order_of(std::size_t bytes, std::size_t alignment) noexcept {
    const std::size_t most = max(max(bytes, alignment), block);
    return static_cast<unsigned>(std::countr_zero(std::bit_ceil(most) / block));
  }

  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
  bool huge_ = false;
  mutable std::mutex mutex_; // guards the following members
  buddy books_;
  std::size_t used_ = 0;
};

}}} // namespace dat::v0::detail
