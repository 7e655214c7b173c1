// Waking a waiter: interleavings of a thread that goes to sleep and a thread that appends an event.
// SPDX-License-Identifier: BSL-1.0
#include <dat/detail/events/wakeup.hpp>

#include <support/catch.hpp>

#include <atomic>
#include <fcntl.h>
#include <poll.h>
#include <thread>
#include <unistd.h>

using dat::detail::counted;
using dat::detail::reactor;
using dat::detail::wakeup;

namespace {

struct owner : counted {
  owner() : counted([](counted&) noexcept {}) {}
};

struct wakeup_rig {
  wakeup_rig() {
    REQUIRE(r.open() == 0);
    REQUIRE(w.open() == 0);
  }
  bool kicked() const {
    pollfd p{w.fd(), POLLIN, 0};
    return ::poll(&p, 1, 0) == 1;
  }
  reactor r;
  owner o;
  wakeup w{o, 1, r};
};

} // namespace

TEST_CASE("one thread at a time is the waiter", "[evd][wakeup]") {
  wakeup_rig t;
  CHECK_FALSE(t.w.has_waiter());
  REQUIRE(t.w.begin_wait());
  CHECK(t.w.has_waiter());
  CHECK_FALSE(t.w.begin_wait());
  t.w.end_wait();
  CHECK_FALSE(t.w.has_waiter());
  CHECK(t.w.begin_wait());
}

TEST_CASE("an event before the waiter prepares to sleep causes no wake-up: the final check finds it", "[evd][wakeup]") {
  wakeup_rig t;
  REQUIRE(t.w.begin_wait());
  t.w.kick();
  CHECK_FALSE(t.kicked());
  t.w.prepare_to_sleep();
  CHECK_FALSE(t.kicked());
}

TEST_CASE("an event after the waiter prepared wakes it once, before or during the sleep", "[evd][wakeup]") {
  wakeup_rig t;
  REQUIRE(t.w.begin_wait());
  t.w.prepare_to_sleep();
  t.w.kick();
  CHECK(t.kicked());
  t.w.woke_up(true);
  CHECK_FALSE(t.kicked());
  t.w.kick(); // the waiter is awake
  CHECK_FALSE(t.kicked());
  t.w.prepare_to_sleep();
  t.w.kick();
  t.w.kick();
  t.w.woke_up(true);
  CHECK_FALSE(t.kicked());
}

TEST_CASE("a waiter that found its event ends the wait, and later events wake no thread", "[evd][wakeup]") {
  wakeup_rig t;
  REQUIRE(t.w.begin_wait());
  t.w.prepare_to_sleep();
  t.w.end_wait();
  t.w.kick();
  CHECK_FALSE(t.kicked());
}

TEST_CASE("a wake-up that is due while the reactor holds locks comes after it has released them", "[evd][wakeup]") {
  wakeup_rig t;
  REQUIRE(t.w.begin_wait());
  t.w.prepare_to_sleep();
  bool early = true;
  struct source : dat::detail::event_source {
    wakeup_rig* t;
    bool* early;
  } s{{[](dat::detail::event_source& e) noexcept {
        auto& self = static_cast<source&>(e);
        self.t->r.batching_tasks([&]() noexcept {
          self.t->w.kick();
          *self.early = self.t->kicked();
        });
      }},
      &t,
      &early};
  dat::detail::wake_fd fd;
  REQUIRE(fd.open() == 0);
  REQUIRE(t.r.watch(fd.get(), s) == 0);
  fd.raise();
  t.r.run(0);
  CHECK_FALSE(early);
  CHECK(t.kicked());
  t.r.unwatch(fd.get(), s);
}

TEST_CASE("two wake-ups that are due together keep their owner until the waiter is woken, and no longer",
          "[evd][wakeup]") {
  static bool ended;
  ended = false;
  struct mortal : counted {
    mortal() : counted([](counted&) noexcept { ended = true; }) {}
  } o;
  reactor r;
  REQUIRE(r.open() == 0);
  wakeup w(o, 1, r);
  REQUIRE(w.open() == 0);
  REQUIRE(w.begin_wait());
  struct source : dat::detail::event_source {
    reactor* r;
    wakeup* w;
  } s{{[](dat::detail::event_source& e) noexcept {
        auto& self = static_cast<source&>(e);
        self.r->batching_tasks([&]() noexcept {
          for (int i = 0; i < 2; ++i) { // the waiter, which another event has woken, sleeps again
            self.w->prepare_to_sleep();
            self.w->kick();
          }
        });
        self.w->end_wait();
      }},
      &r,
      &w};
  dat::detail::wake_fd fd;
  REQUIRE(fd.open() == 0);
  REQUIRE(r.watch(fd.get(), s) == 0);
  fd.raise();
  r.run(0);
  r.unwatch(fd.get(), s);
  for (int i = 0; i < 3; ++i) r.run(0);
  CHECK_FALSE(ended);
  o.release();
  CHECK(ended);
}

TEST_CASE("an interrupt before a wait is kept for it, and several count as one", "[evd][wakeup]") {
  wakeup_rig t;
  t.w.interrupt();
  t.w.interrupt();
  CHECK(t.w.take_interrupt());
  CHECK_FALSE(t.w.take_interrupt());
}

TEST_CASE("a waiter sees that waiting was forbidden, even if it is allowed again", "[evd][wakeup]") {
  wakeup_rig t;
  const auto before = t.w.times_forbidden();
  t.w.allow(true);
  CHECK(t.w.times_forbidden() == before);
  t.w.allow(false);
  CHECK_FALSE(t.w.allowed());
  t.w.allow(true);
  CHECK(t.w.allowed());
  CHECK(t.w.times_forbidden() != before);
}

TEST_CASE("no event is lost between a thread that appends and a thread that goes to sleep", "[evd][wakeup]") {
  wakeup_rig t;
  constexpr int rounds = 20'000;
  std::atomic<int> written{0};
  std::jthread other([&] {
    for (int i = 1; i <= rounds; ++i) {
      written.store(i, std::memory_order_seq_cst);
      t.w.kick();
    }
  });
  int seen = 0;
  REQUIRE(t.w.begin_wait());
  while (seen != rounds) {
    t.w.prepare_to_sleep();
    if (const int now = written.load(std::memory_order_seq_cst); now != seen) {
      seen = now;
      continue;
    }
    pollfd p{t.w.fd(), POLLIN, 0};
    (void)::poll(&p, 1, -1);
    t.w.woke_up(true);
  }
  t.w.end_wait();
  other.join();
  CHECK(seen == rounds);
}

TEST_CASE("a wake-up descriptor may have the number 0", "[evd][wakeup]") {
  const int input = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3); // fails where the program has no standard input
  reactor r;
  owner o;
  REQUIRE(r.open() == 0);
  ::close(STDIN_FILENO);
  {
    wakeup w(o, 1, r);
    REQUIRE(w.open() == 0);
    CHECK(w.fd() == STDIN_FILENO);
    REQUIRE(w.open() == 0);
    CHECK(w.fd() == STDIN_FILENO);
  }
  if (input >= 0) {
    CHECK(::dup2(input, STDIN_FILENO) == STDIN_FILENO);
    ::close(input);
  }
}
