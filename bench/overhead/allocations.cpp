// The allocation functions of the C library, counted. libstdc++'s operator new calls malloc or aligned_alloc.
// SPDX-License-Identifier: BSL-1.0
#include "allocations.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>

// The names under which glibc's own functions remain callable when they are replaced (glibc manual, Replacing malloc).
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t n, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* p);
}

namespace {
std::atomic<std::uint64_t> calls{0};
void note() noexcept { calls.fetch_add(1, std::memory_order_relaxed); }
} // namespace

extern "C" {
void* malloc(std::size_t size) noexcept { return note(), __libc_malloc(size); }
void* calloc(std::size_t n, std::size_t size) noexcept { return note(), __libc_calloc(n, size); }
void* realloc(void* old, std::size_t size) noexcept { return note(), __libc_realloc(old, size); }
void* memalign(std::size_t alignment, std::size_t size) noexcept { return note(), __libc_memalign(alignment, size); }
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept { return memalign(alignment, size); }
int posix_memalign(void** out, std::size_t alignment, std::size_t size) noexcept {
  void* p = memalign(alignment, size);
  if (!p) return ENOMEM;
  *out = p;
  return 0;
}
void free(void* p) noexcept { __libc_free(p); }
}

std::uint64_t overhead::allocations() noexcept { return calls.load(std::memory_order_relaxed); }
