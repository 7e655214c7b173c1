// Rails: several adapters or ports to one peer as one endpoint. A rail fails under way, and every message arrives once.
// This program has both ends, and both rails use one adapter. With two adapters, name a different one in each path.
// SPDX-License-Identifier: BSL-1.0
#include <array>
#include <cstdint>
#include <dat/dat.hpp>
#include <dat/rails.hpp>
#include <dat/try.hpp>
#include <iostream>
#include <vector>
using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t messages = 1000;
constexpr std::uint32_t slots = 64; // the receiver's memory; a message takes the slot of the one 64 before it

/// Handles the events of the receiver: counts the messages that arrive in order.
struct receiver {
  std::vector<std::uint32_t>& memory;
  std::uint32_t in_order = 0;
  void operator()(const dat::rails_message& m) { in_order += memory[m.tag % slots] == in_order; }
  void operator()(const auto&) {}
};

struct sender {
  std::uint32_t done = 0;
  void operator()(const dat::rails_write_done&) { ++done; }
  void operator()(const dat::rail_up& e) { std::cout << "rail " << e.rail << " is up\n"; }
  void operator()(const dat::rail_down& e) { std::cout << "rail " << e.rail << " is down: " << e.cause << '\n'; }
  void operator()(const auto&) {}
};

dat::expected<void> run() {
  DAT_TRY(auto ia, dat::ia::open());
  const std::array paths{dat::rail_path{&ia, ia.address(), 7471}, dat::rail_path{&ia, ia.address(), 7472}};
  DAT_TRY(auto server, dat::rails::listen(paths));
  DAT_TRY(auto client, dat::rails::connect(paths, {.cool_down = 100ms}));

  std::vector<std::uint32_t> in(slots, messages);
  std::vector<std::uint32_t> out(messages);
  DAT_TRY(const auto into, server.register_memory(in));
  DAT_TRY(const auto from, client.register_memory(out));
  DAT_TRY(const auto there, dat::rails_remote::from_wire(into.to_wire())); // by any channel between two programs

  receiver got{in};
  sender sent;
  for (std::uint32_t next = 0; sent.done < messages || got.in_order < messages;) {
    // A slot is free when its previous message was taken.
    if (next < messages && next < got.in_order + slots) {
      out[next] = next;
      const dat::rails_write properties{.cookie = next, .tag = static_cast<std::uint16_t>(next), .ordered = true};
      DAT_TRYV(client.write(from, next * sizeof(next), sizeof(next), there, next % slots * sizeof(next), properties));
      if (++next == messages / 2) DAT_TRYV(client.disconnect(0)); // as if its cable were pulled
    }
    DAT_TRYV(client.run(sent)); // the rails have no thread: each side calls run or wait
    DAT_TRYV(server.run(got));
  }
  std::cout << got.in_order << " messages, each once and in order\n";
  return dat::success();
}

} // namespace

int main() {
  const auto ok = run();
  if (!ok) std::cerr << ok.error().message() << '\n';
  return ok ? 0 : 1;
}
