// Waits on a device: time limits, signals, the one waiter, and what wakes it.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"

#include <atomic>
#include <csignal>
#include <pthread.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace device {

TEST_CASE("setting the wall clock does not change a time limit", "[evd][EVD-050][CNO-029]") {
  if (!in_lab()) SKIP("sets the clock of the machine");
  side a(0);
  auto cno = must(a.ia.create_cno());
  for (const int hours : {1, -1}) {
    const auto wait = [&](auto& at) {
      background waiter([&] {
        const auto start = std::chrono::steady_clock::now();
        (void)error_of(at.wait(150ms));
        return std::chrono::steady_clock::now() - start;
      });
      waiter.until_asleep();
      timespec now{};
      ::clock_gettime(CLOCK_REALTIME, &now);
      now.tv_sec += 3600 * hours;
      REQUIRE(::clock_settime(CLOCK_REALTIME, &now) == 0);
      const auto took = waiter.get();
      CHECK(took >= 150ms);
      CHECK(took < patience); // not an hour later
    };
    wait(a.evd);
    wait(cno);
  }
}

TEST_CASE("a wait ends at its time limit", "[evd][EVD-050][EVD-051][EVD-058]") {
  side a(0);
  auto completions_only = must(a.ia.create_evd<dat::stream::dto>(4));
  const auto expired = dat::error(type::timeout_expired);
  for (const dat::timeout limit : {dat::timeout(0), dat::timeout(-5), dat::timeout(500), dat::timeout(20'000)}) {
    const auto start = std::chrono::steady_clock::now();
    CHECK(error_of(a.evd.wait(limit)) == expired);
    CHECK(error_of(completions_only.wait(limit)) == expired);
    CHECK(error_of(a.evd.wait_for<dat::established>(limit)) == expired);
    CHECK(std::chrono::steady_clock::now() - start >= 3 * limit); // never early; how late depends on the scheduler
  }
  dat::evd<dat::stream::dto> none;
  CHECK(error_of(none.wait(0s)).type() == type::invalid_handle);
  CHECK(error_of(none.dequeue()).type() == type::invalid_handle);
  SHOWS("EVD-064");
  CHECK(none.drain([](const auto&) {}) == 0);
  CHECK(none.capacity() == 0);
}

TEST_CASE("a signal interrupts a wait", "[evd][COMP-082][EVENT-055][REQ-036]") {
  side a(0);
  auto completions_only = must(a.ia.create_evd<dat::stream::dto>(4));
  struct sigaction action {};
  static std::atomic<int> handled;
  handled = 0;
  action.sa_handler = [](int) { ++handled; };
  struct sigaction before {};
  REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
  const auto interrupt = [&](auto& evd) {
    background waiter([&] { return error_of(evd.wait(patience)); });
    waiter.until_asleep();
    ::syscall(SYS_tgkill, ::getpid(), waiter.id(), SIGUSR1);
    CHECK(waiter.get() == dat::error(type::interrupted_call));
    SHOWS("ERR-027");
    CHECK(error_of(evd.wait(0s)) == dat::error(type::timeout_expired)); // the evd can be waited on again
  };
  interrupt(a.evd);
  interrupt(completions_only);
  CHECK(handled > 0);
  sigaction(SIGUSR1, &before, nullptr);
}

TEST_CASE("no signal handler of the process runs in the service thread", "[evd][COMP-083]") {
  side a(0);
  static std::atomic<pthread_t> handler_thread;
  struct sigaction action {};
  action.sa_handler = [](int) { handler_thread = pthread_self(); };
  struct sigaction before {};
  REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
  const auto self = pthread_self();
  for (int i = 0; i < 20; ++i) {
    handler_thread = pthread_t{};
    ::kill(::getpid(), SIGUSR1);
    while (handler_thread == pthread_t{}) std::this_thread::yield();
    CHECK(pthread_equal(handler_thread, self));
  }
  // While this thread blocks the signal, the service thread alone could take it, and does not.
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  handler_thread = pthread_t{};
  REQUIRE(::pthread_sigmask(SIG_BLOCK, &blocked, nullptr) == 0);
  ::kill(::getpid(), SIGUSR1);
  auto cno = must(a.ia.create_cno());
  auto evd = must(a.ia.create_evd<dat::stream::software>(4));
  must(evd.modify_cno(cno));
  std::atomic<bool> called{false};
  must(cno.modify_agent(
      {[](void* flag, dat::evd_id) noexcept { *static_cast<std::atomic<bool>*>(flag) = true; }, &called}));
  must(evd.post(1)); // wakes the service thread
  while (!called) std::this_thread::yield();
  CHECK(pthread_equal(handler_thread, pthread_t{}));
  REQUIRE(::pthread_sigmask(SIG_UNBLOCK, &blocked, nullptr) == 0);
  CHECK(pthread_equal(handler_thread, self));
  sigaction(SIGUSR1, &before, nullptr);
}

TEST_CASE("an evd has one waiter at a time", "[evd][EVENT-054]") {
  connected_pair link;
  background waiter([&] { return link.b.evd.wait(patience); });
  waiter.until_asleep();
  const auto refused = error_of(link.b.evd.wait(patience));
  CHECK(refused == dat::error(type::invalid_state, subtype::evd_waiter));
  SHOWS("ERR-034");
  CHECK_THAT(refused.message(), support::starts_with_text("evd.wait"));
  CHECK(error_of(link.b.evd.wait_for<dat::disconnected>(patience)) == refused);
  must(link.passive.post(dat::recv{}.cookie(3)));
  must(link.active.post(dat::send{}));
  // The first waiter still gets its event.
  CHECK(std::get<dat::recv_done>(must(waiter.get())).cookie() == dat::cookie(3));
  CHECK(error_of(link.b.evd.wait(0s)) == dat::error(type::timeout_expired));
  // On this evd a connection event wakes a thread as a completion does.
  background last([&] { return link.b.evd.wait(patience); });
  last.until_asleep();
  must(link.active.disconnect());
  CHECK(std::holds_alternative<dat::disconnected>(must(last.get())));
  SHOWS("EVD-061");
}

TEST_CASE("an abrupt close of the adapter releases waiting threads", "[evd][EVENT-103][IA-033]") {
  const auto how = GENERATE(dat::progress::automatic, dat::progress::manual);
  side a(0, how);
  auto completions_only = must(a.ia.create_evd<dat::stream::dto>(4));
  auto connections = must(a.ia.create_evd<dat::stream::connection>(4));
  auto software = must(a.ia.create_evd<dat::stream::software>(4));
  auto& of_adapter = a.ia.async_evd();
  background first([&] { return error_of(a.evd.wait()); });
  background second([&] { return error_of(completions_only.wait()); });
  background third([&] { return error_of(connections.wait_for<dat::established>()); });
  background fourth([&] { return error_of(software.wait()); });
  background fifth([&] { return error_of(of_adapter.wait()); });
  first.until_asleep();
  second.until_asleep();
  third.until_asleep();
  fourth.until_asleep();
  fifth.until_asleep();
  // An evd cannot end while a thread waits on it: its close is refused.
  CHECK(error_of(completions_only.close()) == dat::error(type::invalid_state, subtype::evd_waiter));
  must(a.ia.close());
  CHECK(first.get().type() == type::abort);
  SHOWS("ERR-013", "EVD-058");
  CHECK(second.get().type() == type::abort);
  CHECK(third.get().type() == type::abort);
  CHECK(fourth.get().type() == type::abort);
  CHECK(fifth.get().type() == type::abort);
}

TEST_CASE("events wake a waiter on every kind of evd", "[evd][EVD-061][EVD-062][EVD-063][EVENT-066][EVENT-109]") {
  // Both sides only wait for each other's messages: a lost wake-up would leave both asleep until the limit.
  const auto completions_only = GENERATE(false, true);
  two_sides link;
  auto lean_a = must(link.a.ia.create_evd<dat::stream::dto>(16));
  auto lean_b = must(link.b.ia.create_evd<dat::stream::dto>(16));
  const auto make = [&](side& s, dat::evd<dat::stream::dto>& own) {
    return completions_only ? must(s.pz.create_ep<dat::rc>({.recv = own, .request = own, .connect = s.evd}))
                            : s.make_ep();
  };
  auto active = make(link.a, lean_a);
  auto passive = make(link.b, lean_b);
  link.connect(active, passive);
  constexpr int rounds = 300;
  // Posts the receives first, so that no message waits for one.
  for (int i = 0; i < 2; ++i) {
    must(active.post(dat::recv{}));
    must(passive.post(dat::recv{}));
  }
  std::atomic<int> received{0};
  const auto serve = [&](endpoint& ep, queue& merged, dat::evd<dat::stream::dto>& own, bool begins) {
    const auto wait = [&] {
      const auto sort = [&](auto& e) -> bool {
        if (std::get_if<dat::recv_done>(&e)) return true;
        if (!std::get_if<dat::send_done>(&e)) fail("neither sent nor received", place::here());
        return false;
      };
      for (;;) {
        if (completions_only) {
          auto e = must(own.wait(patience));
          if (sort(e)) return;
        } else {
          auto e = must(merged.wait(patience));
          if (sort(e)) return;
        }
      }
    };
    if (begins) must(ep.post(dat::send{}));
    for (int i = 0; i < rounds; ++i, ++received) {
      wait();
      must(ep.post(dat::recv{}));
      if (!begins || i + 1 < rounds) must(ep.post(dat::send{}));
    }
  };
  background other([&] { serve(passive, link.b.evd, lean_b, false); });
  serve(active, link.a.evd, lean_a, true);
  other.get();
  CHECK(received == 2 * rounds);
}

TEST_CASE("the end of a connection wakes a waiter on a completions-only evd", "[evd]") {
  // No thread takes the connection's events; the flushed receive ends the wait.
  two_sides link;
  auto completions = must(link.a.ia.create_evd<dat::stream::dto>(16));
  auto active =
      must(link.a.pz.create_ep<dat::rc>({.recv = completions, .request = completions, .connect = link.a.evd}));
  auto passive = link.b.make_ep();
  must(active.post(dat::recv{}.cookie(8)));
  link.connect(active, passive);
  background waiter([&] { return completions.wait(patience); });
  waiter.until_asleep();
  must(passive.disconnect());
  const auto e = must(waiter.get());
  REQUIRE(std::holds_alternative<dat::dto_failure>(e));
  CHECK(std::get<dat::dto_failure>(e).status() == dat::dto_status::flushed);
  CHECK(std::get<dat::dto_failure>(e).cookie() == dat::cookie(8));
  (void)next<dat::disconnected>(link.a.evd);
}

TEST_CASE("a merged evd from which no thread takes completions reports each broken connection",
          "[evd][COMP-030][MODEL-044]") {
  if (!this_device().reports_breaks) SKIP("this device reports each end as a disconnect");
  // The peer posts no receive, so the send fails; the program takes connection events only.
  two_sides link;
  auto merged = must(link.a.ia.create_evd<dat::stream::dto | dat::stream::software>(16));
  const dat::ep_attributes impatient{.rnr_retry_count = 1};
  for (std::uint64_t life = 0; life < 4; ++life) {
    INFO("life " << life);
    auto active =
        must(link.a.pz.create_ep<dat::rc>({.recv = merged, .request = merged, .connect = link.a.evd}, impatient));
    auto passive = link.b.make_ep();
    link.connect(active, passive);
    must(active.post(dat::send{}.cookie(life)));
    (void)link.at_a<dat::connection_broken>(active);
    CHECK(active.state() == state::disconnected);
    (void)link.at_b<dat::disconnected>(passive);
    CHECK(passive.state() == state::disconnected);
    SHOWS("EVENT-099");
    const auto check = [&](const auto& e, dat::dto_status status, std::uint64_t cookie) {
      REQUIRE(std::holds_alternative<dat::dto_failure>(e));
      CHECK(std::get<dat::dto_failure>(e).status() == status);
      CHECK(std::get<dat::dto_failure>(e).cookie() == dat::cookie(cookie));
    };
    // Completions that arrive while the evd has no connection must not end the watch for breaks.
    const auto both = [&](auto& evd) {
      check(must(evd.dequeue()), dat::dto_status::receiver_not_ready, life);
      for (int i = 0; i < 3; ++i) {
        must(active.post(dat::send{}.cookie(9)));
        check(must(evd.wait(patience)), dat::dto_status::flushed, 9);
      }
    };
    both(merged);
  }
}

TEST_CASE("a notification whose completion was taken neither ends a wait nor hides the next one", "[evd][EVD-062]") {
  two_sides link;
  auto own = must(link.b.ia.create_evd<dat::stream::dto>(8));
  auto active = link.a.make_ep();
  auto passive = must(link.b.pz.create_ep<dat::rc>({.recv = own, .request = own, .connect = link.b.evd}));
  link.connect(active, passive);
  for (int i = 0; i < 20; ++i) {
    CHECK(error_of(own.wait(1ms)) == dat::error(type::timeout_expired)); // leaves the device armed
    must(passive.post(dat::recv{}.cookie(2 * i), dat::recv{}.cookie(2 * i + 1)));
    must(active.post(dat::send{}));
    (void)link.at_a<dat::send_done>(); // the message has arrived
    CHECK(std::get<dat::recv_done>(must(take_arrived(own))).cookie() == dat::cookie(2 * i));
    CHECK(error_of(own.wait(1ms)) == dat::error(type::timeout_expired));
    background waiter([&] { return own.wait(patience); });
    waiter.until_asleep();
    must(active.post(dat::send{}));
    (void)link.at_a<dat::send_done>();
    CHECK(std::get<dat::recv_done>(must(waiter.get())).cookie() == dat::cookie(2 * i + 1));
  }
}

} // namespace device
