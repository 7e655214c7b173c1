// Boost.Asio: waiting for evds in an io_context, with callbacks, coroutines and dat's driver.
// SPDX-License-Identifier: BSL-1.0
#include <support/coroutine.hpp>
#include <support/streams.hpp>

#include "../support/worker.hpp"
#include "world.hpp"

#include <dat/asio.hpp>
#include <dat/coro.hpp>

#include <boost/asio/io_context.hpp>
#if defined(BOOST_ASIO_HAS_CO_AWAIT)
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>
#endif

using namespace unit;
using boost::system::error_code;
using support::task;
using support::worker;

namespace {

using support::ignore;
using support::soft;

/// An io_context, a notifier with one watched evd, and the results of its operations.
struct watching {
  explicit watching(const dat::ia_options& options = automatic)
      : ia(must(dat::ia::open("fk1", options))),
        evd(must(ia.create_evd<soft>(64))),
        notifier(must(dat::asio::notifier::create(io.get_executor(), ia))) {
    must(notifier.watch(evd));
  }
  boost::asio::io_context io;
  dat::ia ia;
  dat::evd<soft> evd;
  dat::asio::notifier notifier;
  std::vector<std::string> log;

  auto note() {
    return [this](error_code e, auto result) {
      if (e)
        log.push_back(e == boost::asio::error::operation_aborted ? "aborted" : "bad");
      else if constexpr (std::is_same_v<decltype(result), dat::evd_id>)
        log.push_back(result == evd.id() ? "this evd" : "another evd");
      else
        log.push_back(std::to_string(result));
    };
  }
  void run() {
    io.restart();
    io.run();
  }
};

} // namespace

TEST_CASE("events that any thread causes complete operations in the io_context", "[asio]") {
  fake::reset();
  watching l(GENERATE(automatic, manual));
  l.notifier.async_wait(l.note());
  worker other([&](worker& w) { w.check(l.evd.post(1).has_value()); });
  l.run();
  other.join();
  CHECK(l.log == events{"this evd"});
  CHECK(l.evd.drain(ignore) == 1);
  must(l.evd.post(2)); // before an operation waits
  l.notifier.async_wait(l.note());
  l.run();
  CHECK(l.log == events{"this evd", "this evd"});
}

TEST_CASE("async_drain takes queued events, waits for later ones, and misses none", "[asio]") {
  fake::reset();
  watching l(GENERATE(automatic, manual));
  constexpr std::uint64_t n = 2000;
  std::uint64_t next = 0;
  bool in_order = true;
  const auto visit = [&](const dat::software_event& e) { in_order = e.cookie().value() == next++ && in_order; };
  std::function<void()> again = [&] {
    l.notifier.async_drain(l.evd, visit, [&](error_code e, std::size_t) {
      if (!e && next < n) again();
    });
  };
  again();
  worker other([&](worker&) {
    for (std::uint64_t i = 0; i < n;) {
      if (l.evd.post(i))
        ++i;
      else
        std::this_thread::yield();
    }
  });
  l.run();
  other.join();
  CHECK(next == n);
  CHECK(in_order);
}

TEST_CASE("async_drain takes at most `max` events", "[asio]") {
  fake::reset();
  watching l;
  for (std::uint64_t i = 0; i < 5; ++i) must(l.evd.post(i));
  l.notifier.async_drain(l.evd, ignore, l.note(), 3);
  CHECK(l.log.empty()); // handlers never run inside the call
  l.run();
  l.notifier.async_drain(l.evd, ignore, l.note(), 3);
  l.run();
  CHECK(l.log == events{"3", "2"});
}

TEST_CASE("async_drain refuses a maximum of 0, which no event could end", "[asio]") {
  fake::reset();
  watching l;
  must(l.evd.post(1));
  error_code refused;
  l.notifier.async_drain(
      l.evd, ignore, [&](error_code e, std::size_t) { refused = e; }, 0);
  CHECK_FALSE(refused); // handlers never run inside the call
  l.run();
  CHECK(refused == boost::asio::error::invalid_argument);
  l.notifier.async_drain(l.evd, ignore, l.note());
  l.run();
  CHECK(l.log == events{"1"});
}

TEST_CASE("a wait that is cancelled, or whose notifier is destroyed, completes with operation_aborted", "[asio]") {
  fake::reset();
  watching l;
  l.notifier.async_wait(l.note());
  l.notifier.async_drain(l.evd, ignore, l.note());
  l.io.poll(); // the second operation waits, too
  l.notifier.cancel();
  l.run();
  CHECK(l.log == events{"aborted", "aborted"});
  l.notifier.async_wait(l.note());
  { const auto gone = std::move(l.notifier); }
  l.run();
  CHECK(l.log == events{"aborted", "aborted", "aborted"});
}

TEST_CASE("a handler that is already posted when the notifier is destroyed still runs safely", "[asio]") {
  fake::reset();
  watching l;
  must(l.evd.post(1));
  l.notifier.async_drain(l.evd, ignore, l.note());
  { const auto gone = std::move(l.notifier); }
  l.run();
  CHECK(l.log == events{"1"});
}

TEST_CASE("waits end when the ia is closed, and a closed evd cannot be waited on", "[asio]") {
  fake::reset();
  watching l;
  l.notifier.async_wait(l.note());
  l.notifier.async_drain(l.evd, ignore, l.note());
  l.io.poll();
  CHECK(l.log.empty());
  must(l.ia.close(dat::close_mode::abrupt));
  l.run();
  CHECK(l.log == events{"bad", "bad"});
  watching other;
  must(other.evd.close());
  const dat::evd<soft> none;
  other.notifier.async_drain(none, ignore, other.note());
  other.run();
  CHECK(other.log == events{"bad"});
}

TEST_CASE("creating a notifier needs an open ia and free descriptors", "[asio]") {
  fake::reset();
  boost::asio::io_context io;
  dat::ia none;
  CHECK(dat::asio::notifier::create(io.get_executor(), none).error().type() == dat::return_type::invalid_handle);
}

TEST_CASE("coroutines of dat run in an io_context, connecting included", "[asio][coro]") {
  clean_world world;
  const auto how = GENERATE(automatic, manual);
  boost::asio::io_context io;
  end e{"fk1", how};
  auto psp = must(e.ia.create_psp(service, e.evd));
  auto client = must(e.pz.create_ep<dat::rc>(e.evd));
  auto server = must(e.pz.create_ep<dat::rc>(e.evd));
  auto notifier = must(dat::asio::notifier::create(io.get_executor(), e.ia));
  must(notifier.watch(e.evd));
  using queue_driver = dat::coro::driver<all_streams>;
  queue_driver driver(e.evd);
  const auto serve = [](queue_driver& d, dat::ep<dat::rc>& ep) -> task<bool> {
    auto request = co_await d.next<dat::connection_request>();
    auto got = d.post(ep, dat::recv{});
    if (!request || !co_await d.accept(request.value(), ep) || !co_await got) co_return false;
    co_return co_await d.post(ep, dat::send{});
  };
  const auto ask = [](queue_driver& d, dat::ep<dat::rc>& ep, dat::ia_address to) -> task<bool> {
    auto answer = d.post(ep, dat::recv{});
    if (!co_await d.connect(ep, to, service, plenty) || !co_await d.post(ep, dat::send{})) co_return false;
    co_return co_await answer;
  };
  auto served = serve(driver, server);
  auto asked = ask(driver, client, e.ia.address());
  std::function<void()> pump = [&] {
    notifier.async_wait([&](error_code error, dat::evd_id) {
      if (error) return;
      driver.poll(ignore);
      if (!served.done() || !asked.done()) pump();
    });
  };
  pump();
  io.run();
  CHECK(served.result());
  CHECK(asked.result());
}

#if defined(BOOST_ASIO_HAS_CO_AWAIT)
TEST_CASE("coroutines of Asio wait on evds", "[asio]") {
  fake::reset();
  watching l;
  std::size_t drained = 0;
  const auto waits = [](watching& loop, std::size_t& n) -> boost::asio::awaitable<void> {
    const dat::evd_id which = co_await loop.notifier.async_wait(boost::asio::use_awaitable);
    if (which == loop.evd.id()) n = co_await loop.notifier.async_drain(loop.evd, ignore, boost::asio::use_awaitable);
  };
  boost::asio::co_spawn(l.io, waits(l, drained), boost::asio::detached);
  l.io.poll();
  CHECK(drained == 0);
  must(l.evd.post(1));
  l.run();
  CHECK(drained == 1);
}
#endif
