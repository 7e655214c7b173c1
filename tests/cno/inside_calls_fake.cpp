// Agents and signal handlers that act inside a call of the thread that they run on: they wait, and they end objects.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <support/asleep.hpp>
#include <support/streams.hpp>
#include <support/worker.hpp>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <optional>
#include <pthread.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace unit;
using dat::return_type;
using support::soft;

namespace {

/// An adapter that its agent or a signal handler closes.
struct closing_side {
  dat::ia ia;
  std::optional<bool> closed;
  void close() { closed = ia.close().has_value(); }
  /// The agent that closes the ia, with the first trigger.
  dat::wait_proxy_agent agent() {
    return {[](void* self, dat::evd_id) noexcept {
              if (auto& side = *static_cast<closing_side*>(self); !side.closed) side.close();
            },
            this};
  }
};

closing_side* interrupted = nullptr; // the side that the signal handler closes

} // namespace

TEST_CASE("an agent that polls another cno gets an answer, although the reactor has more work", "[cno][progress]") {
  const clean_world world;
  auto ia = must(dat::ia::open("fk1", manual));
  struct polling {
    dat::evd<soft> more;
    dat::cno polled;
    std::optional<return_type> answer;
  } p{must(ia.create_evd<soft>(8)), must(ia.create_cno()), {}};
  auto busy = must(ia.create_cno({[](void*, dat::evd_id) noexcept {}, nullptr}));
  must(p.more.modify_cno(busy));
  auto evd = must(ia.create_evd<soft>(8));
  auto cno = must(ia.create_cno({[](void* to, dat::evd_id) noexcept {
                                   auto& poll = *static_cast<polling*>(to);
                                   (void)poll.more.post(1); // another agent is due from now on
                                   const auto got = poll.polled.wait(0us);
                                   poll.answer = got ? return_type::success : got.error().type();
                                 },
                                 &p}));
  must(evd.modify_cno(cno));
  must(evd.post(1));
  ia.run();
  CHECK(p.answer == return_type::queue_empty);
}

TEST_CASE("a wait on a cno ends at its limit, although another thread keeps the reactor busy", "[cno][progress]") {
  const clean_world world;
  auto ia = must(dat::ia::open("fk1", manual));
  auto cno = must(ia.create_cno());
  std::atomic<bool> inside{false}, leave{false};
  fake::intercept(fake::call::ibv_get_async_event, [&] {
    if (inside.exchange(true)) return;
    while (!leave) std::this_thread::yield();
  });
  fake::async(IBV_EVENT_PORT_ACTIVE, ia.native_handle());
  {
    std::jthread runner([&] { ia.run(); });
    while (!inside) std::this_thread::yield();
    CHECK(cno.wait(1ms).error().type() == return_type::queue_empty);
    leave = true;
  }
  fake::intercept(fake::call::ibv_get_async_event, {});
}

TEST_CASE("an agent closes its ia inside a wait on its cno, which ends with an empty id", "[cno][ia]") {
  const clean_world world;
  closing_side side{must(dat::ia::open("fk1", manual)), {}};
  auto evd = must(side.ia.create_evd<soft>(8));
  auto cno = must(side.ia.create_cno(side.agent()));
  must(evd.modify_cno(cno));
  must(evd.post(1));
  const auto woken = cno.wait(plenty);
  CHECK(side.closed == true);
  REQUIRE(woken);
  CHECK_FALSE(woken.value());
  is_error(cno.wait(0us), return_type::invalid_handle);
}

TEST_CASE("a signal handler closes the ia while its thread waits on a cno, and the wait ends with an empty id",
          "[cno][ia]") {
  if (dat::detail::thread_sanitizer) SKIP("ThreadSanitizer wants no memory freed in a handler");
  const clean_world world;
  closing_side side{must(dat::ia::open("fk1", GENERATE(true, false) ? manual : automatic)), {}};
  auto cno = must(side.ia.create_cno());
  interrupted = &side;
  const auto before = std::signal(SIGUSR1, [](int) { interrupted->close(); });
  std::atomic<pid_t> thread{};
  std::atomic<pthread_t> handle{};
  {
    support::worker waiter([&](support::worker& w) {
      handle = pthread_self();
      thread = ::gettid();
      const auto woken = cno.wait(plenty);
      w.check(woken && !woken.value());
    });
    while (thread == 0) std::this_thread::yield();
    support::until_asleep(thread, plenty);
    REQUIRE(pthread_kill(handle, SIGUSR1) == 0);
  }
  std::signal(SIGUSR1, before);
  CHECK(side.closed == true);
}

TEST_CASE("an ia that an agent closes calls the other armed agents with no evd, and leaves nothing behind",
          "[cno][ia]") {
  const clean_world world;
  std::vector<std::uint32_t> calls;
  {
    closing_side side{must(dat::ia::open("fk1", manual)), {}};
    auto evd = must(side.ia.create_evd<soft>(8));
    auto cno = must(side.ia.create_cno(side.agent()));
    auto other = must(side.ia.create_cno({[](void* to, dat::evd_id id) noexcept {
                                            static_cast<std::vector<std::uint32_t>*>(to)->push_back(id.number());
                                          },
                                          &calls}));
    must(evd.modify_cno(cno));
    must(evd.post(1));
    side.ia.run();
    CHECK(side.closed == true);
  }
  CHECK(calls == std::vector<std::uint32_t>{0});
}

TEST_CASE("an agent may end the ia and everything in it while the program runs the ia", "[cno][ia]") {
  const clean_world world;
  struct session {
    closing_side side;
    dat::evd<soft> evd;
    dat::cno cno;
  } s{{must(dat::ia::open("fk1", manual)), {}}, {}, {}};
  s.evd = must(s.side.ia.create_evd<soft>(8));
  s.cno = must(s.side.ia.create_cno({[](void* self, dat::evd_id) noexcept {
                                       auto& all = *static_cast<session*>(self);
                                       all.side.close();
                                       all.evd = {};
                                       all.cno = {};
                                     },
                                     &s}));
  must(s.evd.modify_cno(s.cno));
  must(s.evd.post(1));
  s.side.ia.run();
  CHECK(s.side.closed == true);
}

TEST_CASE("a cno whose handle has ended ends with its last evd, and its agent is not called", "[cno]") {
  const clean_world world;
  int calls = 0;
  const dat::wait_proxy_agent agent{[](void* n, dat::evd_id) noexcept { ++*static_cast<int*>(n); }, &calls};
  const bool triggered = GENERATE(true, false), detached = GENERATE(true, false);
  auto ia = must(dat::ia::open("fk1", manual));
  auto evd = must(ia.create_evd<soft>(8));
  {
    auto cno = must(ia.create_cno(agent));
    must(evd.modify_cno(cno));
    if (triggered) must(evd.post(1)); // the agent is to be called by the next call that runs the reactor
  }
  CHECK(must(evd.query()).cno);
  if (detached) must(evd.modify_cno({}));
  must(evd.close());
  if (GENERATE(true, false)) ia.run();
  CHECK(calls == 0);
}
