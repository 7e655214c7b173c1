// Tracing: writes every step of dat to a file for https://ui.perfetto.dev, and errors and connection events to a log.
// SPDX-License-Identifier: BSL-1.0
#ifndef DAT_TRACE
#define DAT_TRACE // a program of several source files defines it for all of them: -DDAT_TRACE
#endif
#include <array>
#include <dat/dat.hpp>
#include <dat/log.hpp>
#include <dat/trace_recorder.hpp>
#include <dat/try.hpp>
#include <iostream>
#include <string>
#include <thread>
using namespace std::chrono_literals;

namespace {

constexpr auto streams = dat::stream::dto | dat::stream::connection | dat::stream::connection_requests;
constexpr int rounds = 20;

/// One side of the connection: its own evd, endpoint and memory.
struct side {
  dat::evd<streams> evd;
  dat::ep<dat::rc> ep;
  std::array<char, 256> bytes{};
  dat::lmr<char, dat::local_read | dat::local_write> memory;

  dat::expected<void> make(dat::ia& ia, dat::pz& pz) {
    DAT_TRY(evd, ia.create_evd<streams>(64));
    DAT_TRY(ep, pz.create_ep<dat::rc>(evd));
    DAT_TRY(memory, pz.register_memory(bytes, dat::local_read | dat::local_write));
    return dat::success();
  }
  dat::expected<void> receive() {
    DAT_TRYV(evd.wait_for<dat::recv_done>(ep, 10s));
    return ep.post(dat::recv{memory}.cookie(1));
  }
  dat::expected<void> send() {
    DAT_TRY(const auto text, memory.slice(0, 64));
    return ep.post(dat::send{text}.cookie(2));
  }
};

/// Answers each message.
dat::expected<void> serve(side& server) {
  DAT_TRY(auto request, server.evd.wait_for<dat::connection_request>(10s));
  DAT_TRYV(server.ep.post(dat::recv{server.memory}.cookie(1)));
  DAT_TRYV(request.accept(server.ep));
  for (int i = 0; i < rounds; ++i) {
    DAT_TRYV(server.receive());
    DAT_TRYV(server.send());
  }
  DAT_TRYV(server.evd.wait_for<dat::disconnected>(server.ep, 10s));
  return dat::success();
}

dat::expected<void> ask(side& client, const dat::ia_address& address, dat::conn_qual port) {
  DAT_TRYV(client.ep.post(dat::recv{client.memory}.cookie(1)));
  DAT_TRYV(client.ep.connect(address, port, 5s));
  DAT_TRYV(client.evd.wait_for<dat::established>(client.ep, 10s));
  for (int i = 0; i < rounds; ++i) {
    DAT_TRYV(client.send());
    DAT_TRYV(client.receive());
  }
  return client.ep.disconnect(dat::close_mode::graceful);
}

dat::expected<void> run(const std::string& file) {
  dat::trace::recorder recorder; // records from here on
  DAT_TRY(auto ia, dat::ia::open());
  DAT_TRY(auto pz, ia.create_pz());
  side client, server;
  DAT_TRYV(client.make(ia, pz));
  DAT_TRYV(server.make(ia, pz));
  DAT_TRY(auto psp, ia.create_psp_any(server.evd));
  DAT_TRY(const auto port, dat::conn_qual::make(psp.port()));

  dat::expected<void> served = dat::success();
  std::thread thread([&] { served = serve(server); });
  const auto asked = ask(client, ia.address(), port);
  thread.join();
  DAT_TRYV(asked);
  DAT_TRYV(served);

  (void)dat::ia::open("no_such_device"); // the log has an error even when the program does not check it
  DAT_TRYV(recorder.write(file));
  std::cout << recorder.size() << " steps are in " << file << ": open it at https://ui.perfetto.dev\n";
  return dat::success();
}

} // namespace

int main(int argc, char** argv) {
  // The function must not call dat, and several threads may run it at once.
  dat::on_log([](const dat::log_entry& e) noexcept {
    std::clog << std::string(to_string(e.level())).append(": ").append(e.message()).append("\n");
  });
  return run(argc > 1 ? argv[1] : "trace.json") ? 0 : 1; // the log has the error
}
