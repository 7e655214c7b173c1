// Two ends of rails in the fake world, with a clock that the test moves, and counts of every message.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "world.hpp"

#include <dat/rails.hpp>

#include <algorithm>
#include <cstring>
#include <list>
#include <map>

namespace rails_test {

using namespace std::chrono_literals;
using unit::is_error;
using unit::must;

inline std::chrono::steady_clock::time_point simulated{};
inline std::chrono::steady_clock::time_point the_clock() noexcept { return simulated; }

/// A world with `n` adapters for each end: a0, a1, ... and b0, b1, ...
inline fake::world world_of(std::size_t n) {
  fake::world w;
  w.devices.clear();
  for (const std::string side : {"a", "b"})
    for (std::size_t i = 0; i < n; ++i) {
      const std::string address = "10." + std::to_string(side == "a" ? 1 : 2) + "." + std::to_string(i) + ".1";
      w.devices.push_back({side + std::to_string(i), {{{address}}}});
    }
  return w;
}

/// The events of one end.
struct account {
  std::map<std::uint64_t, int> done, failed; ///< indexed by cookie
  std::map<std::uint16_t, int> arrived;      ///< indexed by tag
  std::vector<std::uint16_t> order;          ///< tags of ordered messages
  std::vector<std::string> rails;            ///< "up 0", "down 1"
  void operator()(const dat::rails_write_done& e) { ++done[e.cookie]; }
  void operator()(const dat::rails_write_failed& e) { ++failed[e.cookie]; }
  void operator()(const dat::rails_message& e) {
    ++arrived[e.tag];
    if (e.ordered) order.push_back(e.tag);
  }
  void operator()(const dat::rail_up& e) { rails.push_back("up " + std::to_string(e.rail)); }
  void operator()(const dat::rail_down& e) {
    CHECK_FALSE(e.cause.empty());
    rails.push_back("down " + std::to_string(e.rail));
  }
};

inline constexpr std::size_t slot = 64; ///< bytes of memory for each message

struct end {
  std::list<dat::ia> ias;
  std::vector<dat::rail_path> paths;
  dat::rails rails;
  std::vector<std::byte> out = std::vector<std::byte>(slot * 1024);
  std::vector<std::byte> in = std::vector<std::byte>(slot * 1024);
  dat::rails_memory from, into;
  dat::rails_remote there;
  account seen;
  std::uint64_t written = 0;

  void open(char side, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      ias.push_back(must(dat::ia::open(side + std::to_string(i), unit::manual)));
      const std::string peer = "10." + std::to_string(side == 'a' ? 2 : 1) + "." + std::to_string(i) + ".1";
      paths.push_back({&ias.back(), must(dat::ia_address::parse(peer)), 7471});
    }
  }
  void register_all() {
    from = must(rails.register_memory(out));
    into = must(rails.register_memory(in));
  }
  void learn(const end& other) { there = must(dat::rails_remote::from_wire(other.into.to_wire())); }
  void run() { must(rails.run(seen)); }
  /// Writes the next message into its own slot. Each byte is 1 + the number of the message modulo 251.
  dat::expected<void> write(bool ordered = true, std::size_t bytes = slot) {
    const std::size_t at = written * slot;
    std::memset(out.data() + at, int(written % 251) + 1, slot);
    auto ok = rails.write(from, at, bytes, there, at,
                          {.cookie = written, .tag = static_cast<std::uint16_t>(written), .ordered = ordered});
    if (ok) ++written;
    return ok;
  }
};

struct ends {
  explicit ends(std::size_t n, dat::rails_options options = {}) : world(world_of(n)) {
    simulated = {};
    options.clock = &the_clock;
    a.open('a', n);
    b.open('b', n);
    b.rails = must(dat::rails::listen(b.paths, options));
    a.rails = must(dat::rails::connect(a.paths, options));
    for (end* e : {&a, &b}) e->register_all();
    a.learn(b);
    b.learn(a);
  }
  unit::clean_world world;
  end a, b;

  void turn() {
    a.run();
    fake::finish();
    b.run();
    fake::finish();
  }
  /// Runs both ends until the condition holds; false when it does not after many turns.
  template <class Condition>
  bool until(Condition holds, int turns = 400) {
    for (int i = 0; i < turns; ++i) {
      if (holds()) return true;
      turn();
    }
    return holds();
  }
  /// Like `until`, and advances the clock by a tenth of a second in each turn.
  template <class Condition>
  bool until_later(Condition holds, int turns = 4000) {
    for (int i = 0; i < turns; ++i) {
      if (holds()) return true;
      simulated += 100ms;
      turn();
    }
    return holds();
  }
  bool all_up() {
    return until([&] { return a.rails.up() == a.rails.size() && b.rails.up() == b.rails.size(); });
  }
  bool all_done() {
    return until([&] { return a.rails.not_done() == 0 && b.rails.not_done() == 0; });
  }
  void some_turns(int n = 20) {
    for (int i = 0; i < n; ++i) turn();
  }
};

/// The queue pair of a rail; null while there is none.
inline ibv_qp* qp_of(char side, std::size_t rail) {
  const std::string name = side + std::to_string(rail);
  for (ibv_qp* q : fake::qps())
    if (name == ibv_get_device_name(q->context->device)) return q;
  return nullptr;
}

/// Every message of `from` is done once and has arrived at `to` once, with its bytes; the ordered ones in order.
inline void exact(const end& from, const end& to) {
  CHECK(from.seen.done.size() == from.written);
  CHECK(to.seen.arrived.size() == from.written);
  CHECK(from.seen.failed.empty());
  std::size_t wrong = 0;
  for (std::uint64_t i = 0; i < from.written; ++i) {
    const auto done = from.seen.done.find(i);
    const auto arrived = to.seen.arrived.find(static_cast<std::uint16_t>(i));
    wrong += done == from.seen.done.end() || done->second != 1;
    wrong += arrived == to.seen.arrived.end() || arrived->second != 1;
    wrong += std::memcmp(from.out.data() + i * slot, to.in.data() + i * slot, slot) != 0;
  }
  CHECK(wrong == 0);
  CHECK(std::is_sorted(to.seen.order.begin(), to.seen.order.end()));
  CHECK(to.rails.duplicates() == 0);
}

} // namespace rails_test
