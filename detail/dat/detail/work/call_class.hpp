// Classes of calls that must not overlap, as checked builds watch them.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/checked.hpp>

#include <dat/detail/base/checked.hpp>
#include <dat/detail/base/utility.hpp>

#include <atomic>
#include <cstdint>
#include <string_view>

namespace dat { inline namespace v0 { namespace detail {

/// A class of calls on one object, of which one may run at a time.
struct call_class {
  std::atomic<const char*> call{nullptr};   // the call that runs, a literal
  std::atomic<const char*> thread{nullptr}; // see this_thread
};

/// A call of a class, for its duration. Reports the call that begins while another one runs.
class class_member {
public:
  /// `nested`: whether the thread of a call may begin another one inside it. Null for a class that is not watched.
  class_member(call_class* of, const char* call, std::string_view object, std::uint32_t id, bool nested) noexcept {
    if (!of) return;
    const char* other = nullptr;
    if (of->call.compare_exchange_strong(other, call, std::memory_order_acq_rel)) {
      of->thread.store(&this_thread(), std::memory_order_relaxed);
      class_ = of;
      return;
    }
    if (nested && of->thread.load(std::memory_order_relaxed) == &this_thread()) return;
    alone_ = false;
    report_misuse({checked::finding::overlapping_calls, call, other, object, id, nullptr, nullptr,
                   "These calls on one object must not overlap: give each object to one thread, or take one lock "
                   "around both calls (docs/thread-safety.md)."});
  }
  class_member(const class_member&) = delete;
  class_member& operator=(const class_member&) = delete;
  ~class_member() {
    if (!class_) return;
    class_->thread.store(nullptr, std::memory_order_relaxed);
    class_->call.store(nullptr, std::memory_order_release);
  }
  /// False when another call of the class runs; this call must then not begin.
  [[nodiscard]] bool alone() const noexcept { return alone_; }

private:
  call_class* class_ = nullptr;
  bool alone_ = true;
};

/// The class_member of a build that is not checked: has no effect.
struct unwatched_call {
  [[nodiscard]] static constexpr bool alone() noexcept { return true; }
};

/// The classes of posts to an endpoint. Without members unless the build is checked.
template <bool Checked>
struct posting_classes {
  [[nodiscard]] static constexpr call_class* request_calls() noexcept { return nullptr; }
  [[nodiscard]] static constexpr call_class* recv_calls() noexcept { return nullptr; }
};
template <>
struct posting_classes<true> {
  [[nodiscard]] call_class* request_calls() noexcept { return &requests_; }
  [[nodiscard]] call_class* recv_calls() noexcept { return &receives_; }

private:
  call_class requests_;
  call_class receives_;
};

/// The calls that take from a completions-only evd. Without members unless the build is checked.
template <bool Checked>
struct taking_class {
  [[nodiscard]] static constexpr call_class* taking_calls() noexcept { return nullptr; }
};
template <>
struct taking_class<true> {
  [[nodiscard]] call_class* taking_calls() const noexcept { return &takes_; }

private:
  mutable call_class takes_;
};

}}} // namespace dat::v0::detail
