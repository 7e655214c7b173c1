// The adapters for tests that run in both worlds; here, those of the host.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "device_table.hpp"
#include "support.hpp"

#include <support/words.hpp>

namespace rig {

using device::must;
using device::patience;
inline constexpr dat::ia_options manual{.progress = dat::progress::manual};
inline constexpr dat::ia_options automatic{.progress = dat::progress::automatic};

inline void begin() {}
inline dat::ia open(const dat::ia_options& options = automatic) {
  return must(dat::ia::open(device::addresses()[0], options));
}
inline dat::conn_qual port() { return device::next_port(); }

struct [[maybe_unused]] world {}; // a device that the test does not own

/// The text of an event with the reasons of InfiniBand: another adapter has other reasons.
inline std::string usual_words(std::string text) {
  constexpr const char* rejected = "non_peer_rejected ";
  const auto& here = device::this_device();
  if (here.infiniband || !text.starts_with(rejected)) return text;
  if (text == rejected + std::to_string(here.no_listener)) return std::string(rejected) + '8';
  if (text == rejected + std::to_string(here.dropped)) return std::string(rejected) + "35";
  return text;
}
inline constexpr dat::ia_options usual = automatic;
/// Takes `n` events, and any further ones that are queued.
template <dat::streams S>
support::events take(dat::evd<S>& evd, std::size_t n, device::place where = device::place::here()) {
  support::events all;
  for (const auto& e : device::take(evd, n, where)) all.push_back(usual_words(std::visit(support::describe{}, e)));
  while (auto more = evd.dequeue()) all.push_back(usual_words(std::visit(support::describe{}, more.value())));
  return all;
}
/// One of two adapters.
struct end : device::side {
  explicit end(std::size_t which, const dat::ia_options& options = usual)
      : side(which, options.progress), mem(must(pz.register_memory(memory, device::all_rights))) {}

  static constexpr auto streams = device::all_streams;
  std::array<char, 4096> memory{};
  dat::lmr<char, device::all_rights.value> mem;
  device::endpoint ep;

  auto at(std::size_t first, std::size_t count) { return must(mem.slice(first, count)); }
  void make_ep(const dat::ep_attributes& a = {}) { ep = side::make_ep(a); }
  support::events take(std::size_t n, device::place where = device::place::here()) { return rig::take(evd, n, where); }
};
/// While the object exists, the last handshake message to `b`'s peer `a` is lost. Works in the lab only.
struct lost_handshake : device::cut_wire {
  static inline const bool possible = device::in_lab();
  lost_handshake() : cut_wire(of::second) {}
};
/// Progress is automatic, so the other side needs no call.
inline void settle(end&, end&) {}
/// Waits a moment; no result depends on the length of the wait.
inline void some_way(end& a, end&) {
  for (int i = 0; i < 200; ++i) (void)a.ia.address();
}
/// Takes the next event of an evd, which must be a request.
template <dat::streams S>
dat::cr request_on(dat::evd<S>& evd, device::place where = device::place::here()) {
  return device::next<dat::connection_request>(evd, where);
}

// The amount of work of the stress test: sanitizers take ten times as long on emulated processors.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool instrumented = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool instrumented = true;
#else
inline constexpr bool instrumented = false;
#endif
#else
inline constexpr bool instrumented = false;
#endif
inline constexpr std::uint64_t stress_events = instrumented ? 25'000 : 250'000;
inline constexpr std::uint64_t stress_messages = instrumented ? 200 : 1'000; ///< of each of four connections
inline constexpr int thread_rounds = 10; ///< in each of them, three threads create objects

} // namespace rig
