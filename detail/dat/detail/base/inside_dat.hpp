// The mark of a thread that is inside the library, which a signal handler on that thread reads.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

/// How many sections of the library the calling thread is inside of. Default visibility, so that all shared objects of
/// a program have one counter.
[[gnu::visibility("default")]] inline constinit thread_local unsigned sections_of_this_thread = 0;

/// A section of the library: while the object exists, the thread that constructed it is inside the library. A signal
/// handler on that thread must not wait for the section to end.
class inside_dat {
public:
  inside_dat() noexcept { enter(); }
  inside_dat(const inside_dat&) = delete;
  inside_dat& operator=(const inside_dat&) = delete;
  ~inside_dat() { leave(); }

  [[nodiscard]] static bool here() noexcept { return sections_of_this_thread != 0; }
  // The fences keep the compiler from moving the section out of its marks.
  static void enter() noexcept {
    ++sections_of_this_thread;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  static void leave() noexcept {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    --sections_of_this_thread;
  }
};

/// Takes the mark off while the library calls code of the consumer.
class outside_dat {
public:
  outside_dat() noexcept : before_(std::exchange(sections_of_this_thread, 0u)) {}
  outside_dat(const outside_dat&) = delete;
  outside_dat& operator=(const outside_dat&) = delete;
  ~outside_dat() { sections_of_this_thread = before_; }

private:
  const unsigned before_;
};

}}} // namespace dat::v0::detail
