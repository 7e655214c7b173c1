// What a service for datagrams has answered of late: a peer whose answer was lost asks again, and gets the same one.
//
// The kernel sends a question up to 16 times, 4.1 s apart, and knows a repeated one only until the first is answered.
// After that it is an event like any other.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/connection_base.hpp>
#include <dat/detail/deadline.hpp>
#include <dat/detail/ref.hpp>

#include <chrono>
#include <cstdint>
#include <mutex>

namespace dat::inline v0::detail {

class ud_connection;

/// A request that was answered, in the list of those.
struct answered : list_node {
  ud_connection* request = nullptr;
  clock::time_point until{};
};

class ud_answers final : public counted {
public:
  static constexpr std::chrono::seconds kept{70}; // after that nobody asks again
  static constexpr std::uint32_t most = 256;      // of busy services the latest

  ud_answers() noexcept : counted([](counted& c) noexcept { delete static_cast<ud_answers*>(&c); }) {}

  /// Gives the answer of `request`, and keeps it. Returns 0 or errno; then it is not kept.
  [[nodiscard]] int give(ud_connection& request) noexcept;
  /// Whether `request` is one that was answered: then it has that answer now.
  [[nodiscard]] bool repeat(ud_connection& request) noexcept;

private:
  ~ud_answers() { forget(clock::time_point::max(), 0); }
  /// Those that are old, or more than `room`.
  void forget(clock::time_point now, std::uint32_t room) noexcept;

  std::mutex mutex_; // a leaf; the kernel's answer and the list change in one step
  intrusive_list<answered> list_;
  std::uint32_t size_ = 0;
};

} // namespace dat::inline v0::detail
