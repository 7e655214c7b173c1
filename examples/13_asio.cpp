// Echo in an io_context of Boost.Asio: RDMA events beside timers, sockets and the other work of the loop.
// SPDX-License-Identifier: BSL-1.0
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <dat/asio.hpp>
#include <dat/dat.hpp>
#include <dat/try.hpp>
#include <iostream>
using namespace std::chrono_literals;

constexpr auto streams = dat::stream::dto | dat::stream::connection | dat::stream::connection_requests;
using buffer = dat::lmr<char, (dat::local_read | dat::local_write)>;

// One adapter, a server and a client: the io_context calls `on` for every event.
struct echo {
  boost::asio::io_context& io;
  dat::evd<streams>& evd;
  dat::asio::notifier& notifier;
  dat::ep<dat::rc>& client;
  dat::ep<dat::rc>& server;
  buffer& out;
  buffer& in;
  int left = 3;
  dat::expected<void> result = dat::success();

  void run() {
    notifier.async_drain(
        evd, [this](auto& event) { check(on(event)); },
        [this](boost::system::error_code failed, std::size_t) {
          if (!failed && result) run(); // the next events
        });
  }
  void check(const dat::expected<void>& done) {
    if (done) return;
    result = done;
    io.stop();
  }

  dat::expected<void> on(dat::connection_request& request) {
    DAT_TRYV(server.post(dat::recv{in}));
    return request.accept(server);
  }
  dat::expected<void> on(dat::established& e) {
    if (client == e.ep()) DAT_TRYV(ask());
    return dat::success();
  }
  dat::expected<void> on(dat::recv_done& got) {
    if (server == got.ep()) { // the server returns the message
      DAT_TRY(const auto text, in.slice(0, got.bytes()));
      DAT_TRYV(server.post(dat::send{text}));
      return server.post(dat::recv{in});
    }
    std::cout << "echo of " << got.bytes() << " bytes\n";
    if (--left != 0) return ask();
    return client.disconnect(dat::close_mode::graceful);
  }
  dat::expected<void> on(dat::disconnected& e) {
    if (client == e.ep()) io.stop();
    return dat::success();
  }
  template <class Other>
  dat::expected<void> on(Other&) {
    return dat::success();
  }
  dat::expected<void> ask() {
    DAT_TRY(const auto text, out.slice(0, static_cast<std::size_t>(left)));
    DAT_TRY(const auto answer, out.slice(32, 32));
    DAT_TRYV(client.post(dat::recv{answer}));
    return client.post(dat::send{text});
  }
};

dat::expected<void> run() {
  std::array<char, 64> outward{};
  std::array<char, 64> inward{};
  boost::asio::io_context io;
  DAT_TRY(auto ia, dat::ia::open());
  DAT_TRY(auto pz, ia.create_pz());
  DAT_TRY(auto evd, ia.create_evd<streams>(64));
  DAT_TRY(auto psp, ia.create_psp(7471, evd));
  DAT_TRY(auto client, pz.create_ep<dat::rc>(evd));
  DAT_TRY(auto server, pz.create_ep<dat::rc>(evd));
  DAT_TRY(auto out, pz.register_memory(outward, dat::local_read | dat::local_write));
  DAT_TRY(auto in, pz.register_memory(inward, dat::local_read | dat::local_write));

  DAT_TRY(auto notifier, dat::asio::notifier::create(io.get_executor(), ia));
  DAT_TRYV(notifier.watch(evd));
  echo all{io, evd, notifier, client, server, out, in};
  all.run();
  DAT_TRYV(client.connect(ia.address(), 7471, 2s));

  boost::asio::steady_timer too_long(io, 10s); // a timer of the same loop
  too_long.async_wait([&](boost::system::error_code cancelled) {
    if (!cancelled) all.check(dat::error(dat::return_type::timeout_expired));
  });
  io.run();
  return all.result;
}

int main() {
  const auto done = run();
  if (!done) std::cerr << done.error().message() << '\n';
  return done ? 0 : 1;
}
