// One process of the soak: its adapter, its lanes, and the phases that soak.py orders.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "board.hpp"
#include "message.hpp"

#include <dat/dat.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace soak {

using clock = std::chrono::steady_clock;

/// The phases of the lanes, numbered in the order of a run.
enum class phase : int {
  work,   ///< clients begin lives, and servers accept them
  rest,   ///< clients end the lives that are under way, and servers still work
  leave,  ///< all lanes end, because the process ends
  reopen, ///< all lanes end, because the adapter was removed
};

struct settings {
  std::string adapter;
  std::string peer; ///< the address of the other process
  std::string name;
  std::string board;
  std::uint64_t seed = 1;
  std::vector<std::string> services;
  unsigned box = 0; ///< the mailbox of this process's client
};

/// The time beyond its stated limit after which an event counts as lost. It detects events that never come, not slow
/// ones: a busy machine delays everything.
inline constexpr std::chrono::seconds patience{90};

class process;

/// A thread of a process that is a server or a client of one service.
struct lane {
  std::string name;
  unsigned service = 0;
  bool client = false;
  void (*run)(process&, dat::ia&, lane&) = nullptr;
  std::atomic<bool> idle{false};       ///< no life is under way
  std::atomic<std::uint64_t> lives{0}; ///< lives that completed their plan
  std::atomic<std::uint64_t> ends{0};  ///< all others
  std::jthread thread{};
};

class process {
public:
  explicit process(settings given);
  /// Runs until soak.py orders the end. Returns the exit code.
  int run();

  [[nodiscard]] const settings& given() const noexcept { return given_; }
  [[nodiscard]] board& counts() noexcept { return board_; }
  [[nodiscard]] soak::phase now() const noexcept { return phase_.load(); }
  [[nodiscard]] bool leaving() const noexcept { return now() >= phase::leave; }
  [[nodiscard]] random generator(const lane& of) const;
  [[nodiscard]] std::uint16_t port(const lane& of) const noexcept;
  [[nodiscard]] const dat::ia_address& peer() const noexcept { return peer_; }

  /// Sleeps until the phase changes, or for `limit`.
  void pause(std::chrono::milliseconds limit);
  /// Reports a violation, which fails the run.
  void violation(const lane& where, std::uint64_t life, const std::string& what);
  /// Reports an observation in a line of the log.
  void note(const lane& where, const std::string& what);

private:
  void print(const std::string& line);
  void enter(phase next);
  void report_rest();
  bool wait_until_idle(bool clients_only);
  void watch_adapter(dat::ia& ia);
  bool obey(const std::string& order);
  bool one_opening();

  settings given_;
  board board_;
  dat::ia_address peer_{};
  std::vector<std::unique_ptr<lane>> lanes_;
  std::atomic<phase> phase_{phase::rest};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::mutex printing_;
  std::atomic<std::uint64_t> violations_{0};
  std::atomic<std::uint64_t> async_events_{0};
  std::atomic<bool> gone_{false};
  bool stopped_ = false;
};

/// The services, in the order of their numbers. tests/soak/lanes.cpp has the list.
[[nodiscard]] std::vector<std::unique_ptr<lane>> make_lanes(const std::vector<std::string>& services);

} // namespace soak
