// Operations with completion tokens of Boost.Asio: whole lives of connections by callbacks, futures and awaitables.
// SPDX-License-Identifier: BSL-1.0
#include "driven_pair.hpp"

#include <dat/asio_coro.hpp>
#include <dat/try.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#if defined(BOOST_ASIO_HAS_CO_AWAIT)
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>
#endif

#include <algorithm>
#include <future>
#include <optional>
#include <stop_token>

using namespace unit;
using dat::return_type;

namespace {

using looping = dat::asio::loop<all_streams>;

/// Two ends in one io_context, and the results of their operations.
struct joined {
  explicit joined(const dat::ia_options& how = automatic) : a("fk1", how), b("fk2", how) {
    a.make_ep();
    b.make_ep();
  }
  boost::asio::io_context io;
  end a;
  end b;
  dat::psp psp = must(b.ia.create_psp(service, b.evd));
  looping near = must(looping::create(io.get_executor(), a.ia, a.evd));
  looping far = must(looping::create(io.get_executor(), b.ia, b.evd));
  events log;

  auto note(std::string what) {
    return [this, what](const auto& result) { log.push_back(what + " " + told(result)); };
  }
  void run() {
    io.restart();
    io.run();
  }
  void connect() {
    dat::asio::async_next<dat::connection_request>(far, [this](dat::expected<dat::cr> request) {
      dat::asio::async_accept(far, std::move(request).value(), b.ep, note("accept"));
    });
    dat::asio::async_connect(near, a.ep, b.ia.address(), service, plenty, note("connect"));
    run();
    std::sort(log.begin(), log.end());
    CHECK(log == events{"accept good", "connect good"});
    log.clear();
  }
};

} // namespace

TEST_CASE("operations with callbacks connect, transfer and part in an io_context", "[asio][coro]") {
  clean_world world;
  joined j(GENERATE(automatic, manual));
  j.connect();
  dat::asio::async_post(j.far, j.b.ep, dat::recv{j.b.mem}.cookie(3), [&](auto got) {
    j.log.push_back("got " + std::to_string(got.value().bytes()) + " " + std::to_string(got.value().cookie().value()));
  });
  dat::asio::async_post(j.near, j.a.ep, dat::send{j.a.at(0, 7)}, j.note("send"));
  CHECK(j.log.empty()); // the handler never runs before the function returns
  j.run();
  std::sort(j.log.begin(), j.log.end());
  CHECK(j.log == events{"got 7 3", "send good"});
  j.log.clear();
  dat::asio::async_next<dat::disconnected>(j.far, j.note("end"), j.b.ep);
  dat::asio::async_disconnect(j.near, j.a.ep, dat::close_mode::graceful, j.note("disconnect"));
  j.run();
  std::sort(j.log.begin(), j.log.end());
  CHECK(j.log == events{"disconnect good", "end good"});
}

TEST_CASE("an operation that cannot begin completes with its error, and futures work", "[asio][coro]") {
  clean_world world;
  joined j;
  auto refused = dat::asio::async_post(j.near, j.a.ep, dat::send{}, boost::asio::use_future); // unconnected
  j.run();
  CHECK(told(refused.get()) == "invalid_state");
}

TEST_CASE("a stop ends an operation of an io_context", "[asio][coro]") {
  clean_world world;
  joined j;
  std::stop_source source;
  dat::asio::async_next<dat::connection_request>(j.far, j.note("next"), {}, source.get_token());
  j.io.poll();
  CHECK(j.log.empty());
  source.request_stop();
  j.run();
  CHECK(j.log == events{"next interrupted_call"});
}

TEST_CASE("the end of a loop or of the ia aborts outstanding operations", "[asio][coro]") {
  clean_world world;
  joined j;
  j.connect();
  dat::asio::async_post(j.far, j.b.ep, dat::recv{}, j.note("recv"));
  dat::asio::async_next<dat::disconnected>(j.near, j.note("next"));
  j.io.poll();
  CHECK(j.log.empty());
  SECTION("the end of the loops") {
    { const auto gone = std::move(j.far); }
    { const auto gone = std::move(j.near); }
    CHECK(j.b.ia);
  }
  SECTION("the end of the ias") {
    must(j.b.ia.close(dat::close_mode::abrupt));
    must(j.a.ia.close(dat::close_mode::abrupt));
    CHECK_FALSE(j.b.ia);
  }
  j.run();
  std::sort(j.log.begin(), j.log.end());
  CHECK(j.log == events{"next abort", "recv abort"});
}

TEST_CASE("operations that are outstanding when the io_context ends are destroyed with their handlers",
          "[asio][coro]") {
  clean_world world;
  auto held = std::make_shared<int>(1);
  {
    end e{"fk1", automatic};
    std::optional<looping> loop;
    boost::asio::io_context io;
    loop.emplace(must(looping::create(io.get_executor(), e.ia, e.evd)));
    dat::asio::async_next<dat::connection_request>(*loop, [held](const auto&) {});
    io.poll();
    CHECK(held.use_count() == 2);
    loop.reset(); // posts the handler, which is then never called
  }
  CHECK(held.use_count() == 1);
}

#if defined(BOOST_ASIO_HAS_CO_AWAIT)
TEST_CASE("coroutines of Asio await operations of dat, and unwrap them with DAT_CO_TRY", "[asio][coro]") {
  clean_world world;
  joined j(GENERATE(automatic, manual));
  static constexpr auto& token = boost::asio::use_awaitable;
  using boost::asio::awaitable;
  const auto serve = [](joined& w) -> awaitable<dat::expected<int>> {
    DAT_CO_TRY(auto request, co_await dat::asio::async_next<dat::connection_request>(w.far, token));
    DAT_CO_TRYV(w.b.ep.post(dat::recv{w.b.mem}.cookie(1)));
    DAT_CO_TRYV(co_await dat::asio::async_accept(w.far, std::move(request), w.b.ep, token));
    for (int n = 0;; ++n) {
      const auto got = co_await dat::asio::async_post(w.far, w.b.ep, dat::recv{w.b.mem}, token);
      if (!got) co_return n;
      // The client disconnects when its last question has arrived, so the last answer may fail.
      if (!co_await dat::asio::async_post(w.far, w.b.ep, dat::send{}, token)) co_return n + 1;
    }
  };
  const auto ask = [](joined& w) -> awaitable<dat::expected<int>> {
    DAT_CO_TRYV(co_await dat::asio::async_connect(w.near, w.a.ep, w.b.ia.address(), service, plenty, token));
    DAT_CO_TRYV(co_await dat::asio::async_post(w.near, w.a.ep, dat::send{}, token)); // for the receive posted ahead
    for (int n = 0; n < 20; ++n) {
      DAT_CO_TRYV(w.a.ep.post(dat::recv{w.a.mem}));
      DAT_CO_TRYV(co_await dat::asio::async_post(w.near, w.a.ep, dat::send{w.a.at(0, 3)}, token));
    }
    DAT_CO_TRYV(co_await dat::asio::async_disconnect(w.near, w.a.ep, dat::close_mode::graceful, token));
    co_return 20;
  };
  std::optional<dat::expected<int>> served, asked;
  const auto keep = [](awaitable<dat::expected<int>> from, std::optional<dat::expected<int>>& in) -> awaitable<void> {
    in.emplace(co_await std::move(from));
  };
  boost::asio::co_spawn(j.io, keep(serve(j), served), boost::asio::detached);
  boost::asio::co_spawn(j.io, keep(ask(j), asked), boost::asio::detached);
  j.run();
  REQUIRE(served);
  REQUIRE(asked);
  CHECK(served->value() == 20);
  CHECK(asked->value() == 20);
}
#endif
