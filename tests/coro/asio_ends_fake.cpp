// Boost.Asio: notifiers and loops that are assigned to, and operations that cannot continue.
// SPDX-License-Identifier: BSL-1.0
#include "driven_pair.hpp"

#include <support/streams.hpp>

#include <dat/asio.hpp>
#include <dat/asio_coro.hpp>

#include <boost/asio/io_context.hpp>
#if defined(BOOST_ASIO_HAS_CO_AWAIT)
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>
#endif

#include <optional>

using namespace unit;
using boost::system::error_code;

namespace {

using software_loop = dat::asio::loop<support::soft>;

/// An adapter with an evd, for operations in an io_context.
struct asio_end {
  boost::asio::io_context io;
  dat::ia ia = must(dat::ia::open("fk1", manual));
  dat::evd<support::soft> evd = must(ia.create_evd<support::soft>(8));
  events log;

  dat::asio::notifier notifier() { return must(dat::asio::notifier::create(io.get_executor(), ia)); }
  software_loop loop() { return must(software_loop::create(io.get_executor(), ia, evd)); }
  /// Notes the end of a wait, or of a drain with the number of its events.
  auto note() {
    return [this](error_code e, auto result) {
      std::string what = e == boost::asio::error::operation_aborted ? "aborted" : e ? "bad" : "good";
      if constexpr (std::is_same_v<decltype(result), std::size_t>) what += " " + std::to_string(result);
      log.push_back(std::move(what));
    };
  }
  auto next(software_loop& of) {
    return dat::asio::async_next<dat::software_event>(of, [this](const auto& r) { log.push_back(told(r)); });
  }
  void run() {
    io.restart();
    io.poll();
  }
};

} // namespace

TEST_CASE("a notifier that is assigned to ends its own waits, and continues as the other one", "[asio]") {
  const clean_world world;
  asio_end e;
  auto kept = e.notifier();
  {
    auto other = e.notifier();
    must(other.watch(e.evd));
    kept.async_wait(e.note());
    e.run();
    CHECK(e.log.empty());
    kept = std::move(other);
    e.run();
    CHECK(e.log == events{"aborted"});
  }
  kept.async_wait(e.note());
  e.run();
  CHECK(e.log.size() == 1); // the wait continues
  auto& same = kept;
  kept = std::move(same);
  e.run();
  CHECK(e.log.size() == 1);
  must(e.evd.post(1));
  e.run();
  CHECK(e.log == events{"aborted", "good"});
}

TEST_CASE("a drain that is cancelled has no events", "[asio]") {
  const clean_world world;
  asio_end e;
  auto notifier = e.notifier();
  must(notifier.watch(e.evd));
  notifier.async_drain(e.evd, support::ignore, e.note());
  e.run();
  notifier.cancel();
  e.run();
  CHECK(e.log == events{"aborted 0"});
}

TEST_CASE("a drain of an evd that is closed, or that is none, has no events", "[asio]") {
  const clean_world world;
  asio_end e;
  auto notifier = e.notifier();
  must(notifier.watch(e.evd));
  notifier.async_drain(dat::evd<support::soft>(), support::ignore, e.note());
  notifier.async_drain(e.evd, support::ignore, e.note());
  must(e.evd.close());
  e.run();
  CHECK(e.log == events{"bad 0", "bad 0"});
}

TEST_CASE("an assignment to a loop aborts its operations, and moves those of the other loop into it", "[asio][coro]") {
  const clean_world world;
  asio_end e;
  asio_end idle;
  auto kept = must(software_loop::create(e.io.get_executor(), idle.ia, idle.evd));
  {
    auto other = e.loop();
    e.next(kept);
    e.run();
    CHECK(e.log.empty());
    kept = std::move(other);
    e.run();
    CHECK(e.log == events{"abort"});
  }
  e.next(kept);
  auto& same = kept;
  kept = std::move(same);
  e.run();
  CHECK(e.log.size() == 1);
  must(e.evd.post(1));
  e.run();
  CHECK(e.log == events{"abort", "good"});
}

#if defined(BOOST_ASIO_HAS_CO_AWAIT)
TEST_CASE("an awaitable that is awaited after the end of its loop gets an abort that names the loop", "[asio][coro]") {
  const clean_world world;
  asio_end e;
  std::optional<software_loop> loop(e.loop());
  std::optional<dat::error> why;
  const auto wait = [](boost::asio::awaitable<dat::expected<dat::software_event>> later,
                       std::optional<dat::error>& out) -> boost::asio::awaitable<void> {
    auto r = co_await std::move(later);
    if (!r) out = r.error();
  };
  auto later = dat::asio::async_next<dat::software_event>(*loop, boost::asio::use_awaitable);
  loop.reset();
  boost::asio::co_spawn(e.io, wait(std::move(later), why), boost::asio::detached);
  e.run();
  REQUIRE(why);
  CHECK(why->type() == dat::return_type::abort);
  CHECK(why->subtype() == dat::return_subtype::interrupted);
  CHECK(why->call() == "asio::loop");
  CHECK(why->object() == dat::object_kind::evd);
  CHECK(std::string(why->hint()) == "The loop was destroyed.");
}
#endif
