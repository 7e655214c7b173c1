// Echo in an io_context of Boost.Asio: RDMA events beside timers, sockets and the other work of the loop.
// Start `13_asio`, then `13_asio HOST`.
// SPDX-License-Identifier: BSL-1.0
#include "peer.hpp"
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <dat/asio.hpp>
using namespace std::chrono_literals;

namespace {

constexpr auto rights = dat::local_read | dat::local_write;

/// The server or its client. The io_context calls `on` for every event.
struct echo {
  peer<>& self;
  boost::asio::io_context& io;
  dat::asio::notifier& notifier;
  std::array<char, 64> chars{};
  dat::lmr<char, rights.value> memory{};
  std::size_t half = 0; // where the half of `memory` begins that receives the next message
  int left = 3;
  dat::expected<void> result = dat::success();

  void run() {
    notifier.async_drain(
        self.evd, [this](auto& event) { check(on(event)); },
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
    DAT_TRYV(receive());
    return request.accept(self.ep);
  }
  dat::expected<void> on(dat::established&) { return self.host ? ask() : dat::success(); }
  dat::expected<void> on(dat::recv_done& got) {
    if (!self.host) { // the server returns the message
      DAT_TRY(const auto text, memory.slice(half, got.bytes()));
      half = 32 - half;
      DAT_TRYV(receive()); // before the echo, after which the next message may come at once
      return self.ep.post(dat::send{text});
    }
    std::cout << "echo of " << got.bytes() << " bytes\n";
    if (--left != 0) return ask();
    return self.ep.disconnect(dat::close_mode::graceful);
  }
  dat::expected<void> on(dat::disconnected&) {
    io.stop();
    return dat::success();
  }
  dat::expected<void> on(auto&) { return dat::success(); }

  dat::expected<void> ask() {
    DAT_TRY(const auto text, memory.slice(32, static_cast<std::size_t>(left)));
    DAT_TRYV(receive());
    return self.ep.post(dat::send{text});
  }
  dat::expected<void> receive() {
    DAT_TRY(const auto room, memory.slice(half, 32));
    return self.ep.post(dat::recv{room});
  }
};

dat::expected<void> run(const char* host) {
  peer<> self{host};
  DAT_TRYV(self.open());
  boost::asio::io_context io;
  DAT_TRY(auto notifier, dat::asio::notifier::create(io.get_executor(), self.ia));
  DAT_TRYV(notifier.watch(self.evd));
  echo all{self, io, notifier};
  DAT_TRY(all.memory, self.pz.register_memory(all.chars, rights));
  all.run();

  dat::psp psp{};
  if (host) {
    DAT_TRY(const auto addresses, dat::resolve(host));
    DAT_TRYV(self.ep.connect(addresses.front(), 7471, self.limit));
  } else {
    DAT_TRY(psp, self.listen());
  }
  boost::asio::steady_timer too_long(io, 50s); // a timer of the same loop
  too_long.async_wait([&](boost::system::error_code cancelled) {
    if (!cancelled) all.check(dat::error(dat::return_type::timeout_expired));
  });
  io.run();
  return all.result;
}

} // namespace

int main(int argc, char** argv) { return report(run(argc > 1 ? argv[1] : nullptr)); }
