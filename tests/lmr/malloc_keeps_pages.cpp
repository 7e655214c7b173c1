// The settings of docs/guide.md with which malloc of glibc keeps freed memory mapped, as a registration_cache needs it.
// SPDX-License-Identifier: BSL-1.0
//
// A region names pages. So a buffer that is freed and allocated again may be used by its old region only if it still
// has the same pages. The memory of glibc shows its behaviour with the settings, and without them: a page that was
// returned to the kernel is not mapped, or is empty when it is mapped again.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

constexpr std::size_t small = std::size_t{64} << 10; // below the threshold from which malloc uses mmap
constexpr std::size_t large = std::size_t{8} << 20;
constexpr std::uint64_t mark = 0x6461'7420'7061'6765;

/// A buffer from malloc, which the test reads after it has freed it. The buffer is kept as an integer, so that the
/// compiler cannot assume that no such read occurs.
class buffer {
public:
  enum class state { written, untouched };
  explicit buffer(std::size_t size, state wanted = state::written)
      : start_(reinterpret_cast<std::uintptr_t>(allocate(size))), size_(size) {
    if (wanted == state::untouched) return;
    std::memset(pointer(), 'x', size);
    *middle() = mark;
  }
  void free() const { std::free(pointer()); }
  /// Whether the page in the middle, where malloc keeps no data of its own, is mapped.
  [[nodiscard]] bool is_mapped() const {
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    unsigned char resident;
    return ::mincore(at((start_ + size_ / 2) / page * page), page, &resident) == 0;
  }
  [[nodiscard]] bool has_its_page() const { return is_mapped() && *middle() == mark; }
  [[nodiscard]] bool has_an_empty_page() const { return is_mapped() && *middle() == 0; }
  friend bool operator==(const buffer&, const buffer&) = default;

private:
  [[gnu::noinline]] static void* allocate(std::size_t size) {
    void* volatile p = std::malloc(size);
    if (!p) std::abort();
    return p;
  }
  [[nodiscard]] static void* at(std::uintptr_t address) {
    void* volatile p = reinterpret_cast<void*>(address); // NOLINT(performance-no-int-to-ptr)
    return p;
  }
  [[nodiscard]] void* pointer() const { return at(start_); }
  [[nodiscard]] volatile std::uint64_t* middle() const {
    return static_cast<volatile std::uint64_t*>(at(start_ + size_ / 2 / 8 * 8));
  }

  std::uintptr_t start_;
  std::size_t size_;
};

std::vector<buffer> freed(std::size_t n, std::size_t size) {
  std::vector<buffer> all;
  all.reserve(n);
  for (std::size_t i = 0; i != n; ++i) all.emplace_back(size);
  for (const buffer& b : all) b.free();
  return all;
}
/// How many of `n` buffers, which were all written and freed, still have their pages with the same contents.
std::size_t kept(std::size_t n, std::size_t size) {
  std::size_t same = 0;
  for (const buffer& b : freed(n, size)) same += b.has_its_page() ? 1 : 0;
  return same;
}
const char* end_of_heap() { return static_cast<const char*>(::sbrk(0)); }

/// The result of a child process, which has one thread and a fresh heap.
template <class Body>
bool in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int failures = 0;
template <class Body>
void expect(const char* what, Body body) {
  if (in_child(body)) return;
  std::printf("FAILED: %s\n", what);
  ++failures;
}

bool set_as_in_the_guide() {
  return ::mallopt(M_MMAP_MAX, 0) == 1 && ::mallopt(M_TRIM_THRESHOLD, -1) == 1 && ::mallopt(M_ARENA_MAX, 1) == 1;
}

} // namespace

int main(int argc, char**) {
  if (argc > 1) // the same settings by GLIBC_TUNABLES
    return kept(2, large) == 2 && kept(128, small) == 128 ? 0 : 1;

  // Without settings, malloc returns memory to the kernel in both ways, so the checks of the settings can fail.
  expect("without settings a large buffer is unmapped", [] { return kept(1, large) == 0; });
  expect("without settings the end of the heap goes back by brk", [] {
    const char* const before = end_of_heap();
    return kept(128, small) < 128 && end_of_heap() < before + 128 * small;
  });
  expect("without settings a large buffer goes back by brk when one of its size was freed before", [] {
    (void)kept(1, large); // from now on, malloc takes buffers of this size from the heap
    const char* const before = end_of_heap();
    return kept(3, large) < 3 && end_of_heap() < before + 3 * large;
  });
  expect("without settings a buffer that is allocated again has another page", [] {
    (void)kept(1, large);
    const auto first = freed(3, large);
    const buffer again(large, buffer::state::untouched);
    return again == first[0] && again.has_an_empty_page();
  });

  expect("with the settings large buffers keep their pages",
         [] { return set_as_in_the_guide() && kept(4, large) == 4; });
  expect("with the settings small buffers keep their pages",
         [] { return set_as_in_the_guide() && kept(128, small) == 128; });
  expect("with the settings a buffer that is allocated again has its old page", [] {
    if (!set_as_in_the_guide()) return false;
    const buffer first(large);
    first.free();
    const buffer second(large, buffer::state::untouched);
    return second == first && second.has_its_page();
  });
  expect("with the settings the heap never shrinks", [] {
    if (!set_as_in_the_guide()) return false;
    (void)kept(3, large);
    const char* const before = end_of_heap();
    (void)kept(3, large);
    (void)kept(64, small);
    return end_of_heap() == before;
  });
  expect("with the settings buffers of threads stay mapped when the threads have ended", [] {
    if (!set_as_in_the_guide()) return false;
    std::vector<buffer> all[4];
    std::vector<std::jthread> threads;
    for (auto& some : all) threads.emplace_back([&some] { some = freed(16, small); });
    for (auto& thread : threads) thread.join();
    for (const auto& some : all)
      for (const buffer& b : some)
        if (!b.is_mapped()) return false;
    return true;
  });
  expect("malloc_trim takes pages in spite of the settings", [] {
    if (!set_as_in_the_guide()) return false;
    const buffer one(large);
    const buffer behind(small); // so that the first one is not the end of the heap
    one.free();
    const bool there = one.has_its_page();
    ::malloc_trim(0);
    const bool gone = one.has_an_empty_page();
    behind.free();
    return there && gone;
  });
  expect("GLIBC_TUNABLES makes the same settings", [] {
    ::setenv("GLIBC_TUNABLES",
             "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=0xffffffffffffffff:glibc.malloc.arena_max=1", 1);
    ::execl("/proc/self/exe", "malloc_keeps_pages", "tunables", static_cast<char*>(nullptr));
    return false;
  });
  std::printf("%d failed\n", failures);
  return failures == 0 ? 0 : 1;
}
