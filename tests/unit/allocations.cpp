// The operators new of the test program. Compiled alone: where they are visible, g++ takes a coroutine's frame for
// memory that another function frees. SPDX-License-Identifier: BSL-1.0
#include "allocations.hpp"

#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <new>
#include <utility>

#if defined(__SANITIZE_THREAD__)
#define DAT_TESTS_TSAN
#elif defined(__SANITIZE_ADDRESS__)
#define DAT_TESTS_ASAN
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define DAT_TESTS_TSAN
#elif __has_feature(address_sanitizer)
#define DAT_TESTS_ASAN
#endif
#endif

namespace unit {
namespace {

[[maybe_unused]] thread_local std::size_t requested = 0;
thread_local int allowed = -1; // -1: no limit
thread_local bool has_failed = false;
thread_local bool (*others_request)() noexcept = nullptr; // null: requests that throw do not count

thread_local bool (*others_memory)() noexcept = nullptr; // null: no object `unfreed` exists
thread_local long held = 0;

[[maybe_unused]] void count_held(long change) noexcept {
  if (others_memory && !others_memory()) held += change;
}

[[maybe_unused]] bool refuse() noexcept {
  if (allowed < 0 || --allowed >= 0) return false;
  has_failed = true;
  return true;
}
/// While the object exists, requests that throw do not count.
class counted_already {
public:
  counted_already() noexcept : before_(std::exchange(others_request, nullptr)) {}
  counted_already(const counted_already&) = delete;
  counted_already& operator=(const counted_already&) = delete;
  ~counted_already() { others_request = before_; }

private:
  bool (*before_)() noexcept;
};
[[maybe_unused]] bool refuse_throwing() noexcept { return others_request && !others_request() && refuse(); }

} // namespace

#if defined(DAT_TESTS_TSAN) || defined(DAT_TESTS_ASAN)
const bool counts_allocations = false;
std::size_t allocations() noexcept { return 0; }
#else
const bool counts_allocations = true;
std::size_t allocations() noexcept { return requested; }
#endif

#if defined(DAT_TESTS_TSAN)
const bool refuses_allocations = false;
#else
const bool refuses_allocations = true;
#endif

unfreed::unfreed(bool (*other)() noexcept) noexcept {
  held = 0;
  others_memory = other;
}
unfreed::~unfreed() { others_memory = nullptr; }
long unfreed::count() const noexcept { return held; }

out_of_memory::out_of_memory(int n) noexcept {
  has_failed = false;
  allowed = n;
}
out_of_memory::~out_of_memory() { stop(); }
bool out_of_memory::failed() noexcept { return has_failed; }
void out_of_memory::stop() noexcept { allowed = -1; }
out_of_memory::throwing::throwing(bool (*other)() noexcept) noexcept { others_request = other; }
out_of_memory::throwing::~throwing() { others_request = nullptr; }

} // namespace unit

#if !defined(DAT_TESTS_TSAN) && !defined(DAT_TESTS_ASAN)
void* operator new(std::size_t n) {
  ++unit::requested;
  if (unit::refuse_throwing()) throw std::bad_alloc();
  if (void* p = std::malloc(n == 0 ? 1 : n)) {
    unit::count_held(1);
    return p;
  }
  throw std::bad_alloc();
}
/// Overwrites the memory, so that a use after its end shows.
static void overwrite_and_free(void* p) noexcept {
  if (p) {
    std::memset(p, 0xdd, ::malloc_usable_size(p));
    unit::count_held(-1);
  }
  asm volatile("" : : "r"(p) : "memory"); // keeps the stores
  std::free(p);
}
void operator delete(void* p) noexcept { overwrite_and_free(p); }
void operator delete(void* p, std::size_t) noexcept { overwrite_and_free(p); }
#endif

#if !defined(DAT_TESTS_TSAN)
void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  if (unit::refuse()) return nullptr;
  const unit::counted_already once;
  try {
    return ::operator new(n);
  } catch (...) {
    return nullptr;
  }
}
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
  if (unit::refuse()) return nullptr;
  const unit::counted_already once;
  try {
    return ::operator new[](n);
  } catch (...) {
    return nullptr;
  }
}
#endif
