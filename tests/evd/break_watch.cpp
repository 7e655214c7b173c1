// The watch for broken connections: one check for each notification, after a pause, and none after the watch has ended.
// SPDX-License-Identifier: BSL-1.0
#include <dat/detail/events/break_watch.hpp>

#include <support/catch.hpp>

#include <atomic>
#include <thread>

using dat::detail::break_watch;
using dat::detail::counted;
using dat::detail::reactor;

namespace {

struct watch_owner : counted {
  watch_owner() : counted([](counted&) noexcept {}) {}
  int looks = 0;
};

struct watch_rig {
  watch_rig() { REQUIRE(r.open() == 0); }
  reactor r;
  watch_owner o;
  break_watch w{o, r, [](counted& c) noexcept { ++static_cast<watch_owner&>(c).looks; }};
  void until_looked(int n) {
    while (o.looks < n) r.run(1000);
  }
};

} // namespace

TEST_CASE("one check follows any number of notifications", "[evd][break_watch]") {
  watch_rig t;
  CHECK(t.w.add_connection());
  CHECK_FALSE(t.w.add_connection());
  t.w.look_later();
  t.w.look_later();
  t.r.run(0);
  CHECK(t.o.looks == 0); // after the pause
  t.until_looked(1);
  t.r.run(0);
  CHECK(t.o.looks == 1);
  t.w.look_later(); // checks again after a check
  t.until_looked(2);
  CHECK(t.o.looks == 2);
}

TEST_CASE("without connections no check runs", "[evd][break_watch]") {
  watch_rig t;
  t.w.look_later();
  t.w.stop(); // would wait for a check that is due
  CHECK(t.o.looks == 0);
}

TEST_CASE("when all connections end before the check is due, no check runs", "[evd][break_watch]") {
  watch_rig t;
  REQUIRE(t.w.add_connection());
  t.w.look_later();
  t.w.remove_connection();
  CHECK_FALSE(t.w.has_connections());
  REQUIRE(t.w.add_connection()); // the first connection again: the caller arms the device
  t.until_looked(1);
  CHECK(t.o.looks == 1);
}

TEST_CASE("after stop no check follows and none is under way", "[evd][break_watch]") {
  watch_rig t;
  REQUIRE(t.w.add_connection());
  t.w.look_later();
  t.w.stop();
  t.w.look_later();
  struct : dat::detail::task {
    bool ran = false;
  } later;
  later.run = [](dat::detail::task& task) noexcept { static_cast<decltype(later)&>(task).ran = true; };
  REQUIRE(t.r.defer(later, dat::detail::clock::now() + break_watch::pause)); // after any check
  while (!later.ran) t.r.run(1000);
  CHECK(t.o.looks == 0);
}

TEST_CASE("stop waits for a check that runs in another thread", "[evd][break_watch]") {
  struct slow : counted {
    slow() : counted([](counted&) noexcept {}) {}
    std::atomic<bool> entered{false};
    std::atomic<bool> left{false};
  };
  reactor r;
  REQUIRE(r.open() == 0);
  slow o;
  break_watch w(o, r, [](counted& c) noexcept {
    auto& self = static_cast<slow&>(c);
    self.entered = true;
    for (int i = 0; i < 100; ++i) std::this_thread::yield();
    self.left = true;
  });
  REQUIRE(w.add_connection());
  w.look_later();
  std::jthread service([&] {
    while (!o.left) r.run(1000);
  });
  while (!o.entered) std::this_thread::yield();
  w.stop();
  CHECK(o.left);
  service.join();
}
