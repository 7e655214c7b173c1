// Coroutines and Boost.Asio on a device: connections from begin to end, cancellation, manual and automatic progress.
// SPDX-License-Identifier: BSL-1.0
#include <support/coroutine.hpp>
#include <support/streams.hpp>

#include "../support/worker.hpp"
#include "device_table.hpp"
#include "support.hpp"

#include <dat/asio.hpp>
#include <dat/coro.hpp>

#include <boost/asio/io_context.hpp>

#include <atomic>
#include <functional>
#include <stop_token>

namespace device {
namespace {

using support::task;
using queue_driver = dat::coro::driver<all_streams>;
using byte_region = dat::lmr<char, (dat::local_read | dat::local_write).value>;
using text_task = task<std::string>;
using support::ignore;

/// One side: an adapter, memory, an endpoint, and a driver for the one evd of all events.
struct party {
  explicit party(std::size_t which, dat::progress how = dat::progress::automatic)
      : ia(must(dat::ia::open(addresses()[which], {.progress = how}))),
        pz(must(ia.create_pz())),
        evd(must(ia.create_evd<all_streams>(128))),
        mem(must(pz.register_memory(memory, dat::local_read | dat::local_write))),
        ep(must(pz.create_ep<dat::rc>(evd))) {}
  std::array<char, 256> memory{};
  dat::ia ia;
  dat::pz pz;
  queue evd;
  byte_region mem;
  endpoint ep;
  queue_driver driver{evd};
  std::atomic<bool> accepted{false}; ///< the accept of a server has ended

  void run(const text_task& until) {
    must(driver.run_until([&] { return until.done(); }, ignore, patience));
  }
};

constexpr int rounds = 100;

/// Replies to every message with the next number, until the peer disconnects.
text_task serve(party& s) {
  auto request = co_await s.driver.next<dat::connection_request>();
  if (!request) co_return request.error().message();
  auto next = s.driver.post(s.ep, dat::recv{s.mem});
  if (const auto up = co_await s.driver.accept(request.value(), s.ep); !up) co_return up.error().message();
  s.accepted = true;
  for (;;) {
    const auto got = co_await next;
    if (!got) co_return "served";
    const char number = static_cast<char>(s.memory[0] + 1);
    (void)s.driver.post(next, s.ep, dat::recv{s.mem}); // the peer may send again after the reply
    s.memory[1] = number;
    // The peer may disconnect right after the last reply, so this side may get no completion for the reply.
    if (const auto sent = co_await s.driver.post(s.ep, dat::send{must(s.mem.slice(1, 1))}); !sent) co_return "served";
  }
}

/// `beside`: the server, if it runs in another thread.
text_task ask(party& s, dat::ia_address to, dat::conn_qual port, const party* beside = nullptr) {
  if (const auto up = co_await s.driver.connect(s.ep, to, port, patience); !up) co_return up.error().message();
  if (beside && !this_device().reads_first_message && !comes_true([&] { return beside->accepted.load(); }))
    co_return "not accepted";
  for (int i = 0; i < rounds; ++i) {
    s.memory[1] = static_cast<char>(i);
    auto answer = s.driver.post(s.ep, dat::recv{must(s.mem.slice(0, 1))});
    if (const auto sent = co_await s.driver.post(s.ep, dat::send{must(s.mem.slice(1, 1))}); !sent)
      co_return sent.error().message();
    if (const auto got = co_await answer; !got) co_return got.error().message();
    if (s.memory[0] != static_cast<char>(i + 1)) co_return "wrong answer";
  }
  if (const auto bye = co_await s.driver.disconnect(s.ep, dat::close_mode::graceful); !bye)
    co_return bye.error().message();
  co_return "answered";
}

} // namespace

TEST_CASE("two coroutine endpoints connect, exchange messages and disconnect", "[coro]") {
  const auto how = GENERATE(dat::progress::automatic, dat::progress::manual);
  const auto port = next_port();
  party server(1, how);
  party client(0, how);
  auto psp = must(server.ia.create_psp(port, server.evd));
  support::worker other([&](support::worker& w) {
    auto served = serve(server);
    w.check(server.driver.run_until([&] { return served.done(); }, ignore, patience).has_value());
    w.check(served.done() && served.result() == "served");
  });
  auto asked = ask(client, server.ia.address(), port, &server);
  client.run(asked);
  CHECK(asked.result() == "answered");
  other.join();
}

TEST_CASE("a stop from another thread ends the wait of a coroutine", "[coro]") {
  const auto port = next_port();
  party server(1);
  party client(0);
  auto psp = must(server.ia.create_psp(port, server.evd));
  std::stop_source source;
  std::optional<support::worker> other;
  const auto stop_soon = [&] { other.emplace([&](support::worker&) { source.request_stop(); }); };

  SECTION("a connect to a peer that does not answer") {
    const auto tries = [](party& s, dat::ia_address to, dat::conn_qual at, std::stop_token stop) -> text_task {
      const auto up = co_await s.driver.connect(s.ep, to, at, patience, {}, stop);
      co_return up ? "up" : std::string(to_string(up.error().type()));
    };
    auto t = tries(client, server.ia.address(), port, source.get_token());
    stop_soon();
    client.run(t);
    CHECK(t.result() == "interrupted_call");
    CHECK(client.ep.state() == state::disconnected);
  }
  SECTION("a receive, which ends with its connection") {
    auto served = serve(server);
    bool posted = false;
    const auto waits = [](party& s, dat::ia_address to, dat::conn_qual at, std::stop_token stop,
                          bool& now) -> text_task {
      if (const auto up = co_await s.driver.connect(s.ep, to, at, patience); !up) co_return up.error().message();
      auto beside = s.driver.post(s.ep, dat::recv{});
      auto stoppable = s.driver.post(s.ep, dat::recv{}, stop);
      now = true;
      const auto got = co_await stoppable;
      const auto too = co_await beside;
      co_return std::string(got ? "got" : to_string(got.error().type())) + ", " +
          std::string(too ? "got" : to_string(beside.failure().value().status()));
    };
    auto t = waits(client, server.ia.address(), port, source.get_token(), posted);
    while (!posted) {
      server.driver.poll(ignore);
      (void)client.driver.run_once(ignore, 1ms);
    }
    stop_soon();
    client.run(t);
    CHECK(t.result() == "interrupted_call, flushed");
    server.run(served);
    CHECK(served.result() == "served");
  }
  other->join();
}

TEST_CASE("both ends of a connection run in one io_context", "[coro][asio]") {
  const auto how = GENERATE(dat::progress::automatic, dat::progress::manual);
  const auto port = next_port();
  boost::asio::io_context io;
  party server(1, how);
  party client(0, how);
  auto psp = must(server.ia.create_psp(port, server.evd));
  auto served = serve(server);
  auto asked = ask(client, server.ia.address(), port);
  struct pump {
    party& s;
    const text_task& until;
    dat::asio::notifier notifier;
    pump(boost::asio::io_context& context, party& which, const text_task& t)
        : s(which), until(t), notifier(must(dat::asio::notifier::create(context.get_executor(), which.ia))) {
      must(notifier.watch(s.evd));
      go();
    }
    void go() {
      notifier.async_wait([this](boost::system::error_code failed, dat::evd_id) {
        s.driver.poll(ignore);
        if (!failed && !until.done()) go();
      });
    }
  };
  pump first(io, server, served);
  pump second(io, client, asked);
  io.run_for(patience);
  REQUIRE(served.done());
  REQUIRE(asked.done());
  CHECK(served.result() == "served");
  CHECK(asked.result() == "answered");
}

} // namespace device
