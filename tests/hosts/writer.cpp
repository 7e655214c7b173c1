// Writes to the memory of a dat-ping server until the connection ends, and prints the events: for tests with several
// hosts. SPDX-License-Identifier: BSL-1.0
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <dat/dat.hpp>
#include <dat/try.hpp>
#include <iostream>
#include <string_view>
#include <thread>
using namespace std::chrono_literals;

namespace {

using clock = std::chrono::steady_clock;
using window = dat::remote_segment<char, dat::mem_priv::remote_read | dat::mem_priv::remote_write>;

/// Prints an event, and the milliseconds since the last write that succeeded.
void tell(std::string_view what, clock::time_point since) {
  std::cout << what << ' ' << std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - since).count()
            << std::endl;
}

dat::expected<void> run(const char* host, std::chrono::milliseconds ack_timeout) {
  DAT_TRY(const auto addresses, dat::resolve(host));
  DAT_TRY(auto ia, dat::ia::open_by_route(host));
  DAT_TRY(auto pz, ia.create_pz());
  DAT_TRY(auto evd, (ia.create_evd<dat::stream::dto | dat::stream::connection>(16)));
  DAT_TRY(auto ep, pz.create_ep<dat::rc>(evd, {.ack_timeout = ack_timeout}));
  std::array<char, 8> text{};
  DAT_TRY(auto out, pz.register_memory(text, dat::local_read));
  DAT_TRYV(ep.connect(addresses.front(), 7500, 30s));
  DAT_TRY(const auto up, evd.wait_for<dat::established>(ep, 31s));
  DAT_TRY(const auto granted, window::from_wire(up.private_data()));
  DAT_TRY(const auto target, granted.slice(0, text.size()));

  auto last = clock::now();
  bool terminal = false;
  for (std::uint64_t done = 0; !terminal;) {
    if (ep.state() == dat::ep_state::connected) DAT_TRYV(ep.post(dat::rdma_write{out, target}));
    for (bool next = false; !next && !terminal;) {
      DAT_TRY(const auto event, evd.wait(120s));
      if (std::holds_alternative<dat::rdma_write_done>(event)) {
        last = clock::now();
        next = true;
        if (++done % 10 == 0) std::cout << "written " << done << std::endl;
        std::this_thread::sleep_for(5ms); // the pause leaves the processors to the other hosts
      } else if (std::holds_alternative<dat::dto_failure>(event)) {
        tell("dto_failure", last);
      } else {
        terminal = true;
        tell(std::holds_alternative<dat::connection_broken>(event) ? "connection_broken" : "another event", last);
      }
    }
  }
  if (evd.wait(dat::timeout::zero())) std::cout << "one event more\n";
  DAT_TRYV(ep.reset()); // the endpoint can be used again
  tell("reset", last);
  return dat::success();
}

} // namespace

int main(int argc, char** argv) {
  const std::string_view given = argc > 2 ? argv[2] : "67";
  int ack_timeout = 0;
  std::from_chars(given.data(), given.data() + given.size(), ack_timeout);
  const auto done = run(argc > 1 ? argv[1] : "", std::chrono::milliseconds(ack_timeout));
  if (!done) std::cout << "error " << done.error().message() << std::endl;
  return done ? 0 : 1;
}
