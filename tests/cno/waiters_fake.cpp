// Threads that leave a wait on a cno because its last evd has ended, beside triggers of other evds and other waits.
// SPDX-License-Identifier: BSL-1.0
#include "lock_waits.hpp"
#include "world.hpp"

#include <support/asleep.hpp>
#include <support/streams.hpp>

#include <dat/detail/handle/core_access.hpp>

#include <atomic>
#include <deque>
#include <optional>
#include <thread>

using namespace unit;
using dat::return_type;

namespace {

/// A thread that waits on a cno. From `begin` to `end` the thread is inside a call of verbs, which its wait has made.
struct occupied_waiter {
  dat::ia ia = must(dat::ia::open("fk1", manual));
  dat::cno cno = must(ia.create_cno());
  dat::evd<support::soft> first = must(ia.create_evd<support::soft>(8));
  dat::evd<support::soft> second = must(ia.create_evd<support::soft>(8));

  void begin() {
    must(first.modify_cno(cno));
    while (cno.wait(0us)) { // takes the triggers that modify_cno caused
    }
    fake::intercept(fake::call::ibv_get_async_event, [this] {
      if (inside_.exchange(true)) return;
      while (!leave_) std::this_thread::yield();
    });
    fake::async(IBV_EVENT_PORT_ACTIVE, fake::contexts().at(0));
    thread_.emplace([this] { result_.emplace(cno.wait(plenty)); });
    while (!inside_) std::this_thread::yield();
  }
  /// The result of the wait.
  dat::expected<dat::evd_id> end() {
    leave_ = true;
    thread_.reset();
    fake::intercept(fake::call::ibv_get_async_event, {});
    return *result_;
  }

private:
  std::atomic<bool> inside_{false}, leave_{false};
  std::optional<dat::expected<dat::evd_id>> result_;
  std::optional<std::jthread> thread_;
};

} // namespace

TEST_CASE("a thread that leaves with the last evd leaves the trigger of an evd that was attached since", "[cno]") {
  const clean_world world;
  occupied_waiter w;
  w.begin();
  must(w.first.close());
  must(w.second.modify_cno(w.cno));
  must(w.second.post(1));
  CHECK(must(w.end()) == dat::evd_id());
  CHECK(must(w.cno.wait(0us)) == w.second.id());
}

TEST_CASE("a wait that begins after the last evd has ended takes nothing from the threads that leave", "[cno]") {
  const clean_world world;
  occupied_waiter w;
  w.begin();
  must(w.first.close());
  std::atomic<bool> done{false};
  std::jthread other([&] {
    (void)w.cno.wait(0us);
    done = true;
  });
  for (int i = 0; i < 1000 && !done; ++i) std::this_thread::yield();
  CHECK(must(w.end()) == dat::evd_id());
}

TEST_CASE("every thread that waits returns when the last evd ends, and later ends are triggers again", "[cno]") {
  const clean_world world;
  auto ia = must(dat::ia::open("fk1", automatic));
  auto cno = must(ia.create_cno());
  for (int round = 0; round < 12; ++round) {
    auto evd = must(ia.create_evd<support::soft>(8));
    must(evd.modify_cno(cno));
    while (cno.wait(0us)) { // takes the triggers that modify_cno caused
    }
    std::atomic<int> returned{0}, named{0};
    std::deque<std::atomic<pid_t>> ids(6);
    std::vector<std::jthread> threads;
    for (auto& id : ids) {
      id = 0;
      threads.emplace_back([&] {
        id = static_cast<pid_t>(::syscall(SYS_gettid));
        const auto r = cno.wait(plenty);
        if (r && !r.value()) ++returned;
        if (r && r.value()) ++named;
      });
    }
    for (auto& id : ids) support::until_asleep(id, plenty);
    must(evd.close());
    if (round % 2 == 0) // threads that come later take the trigger of those that leave, and have to return it
      for (int i = 0; i < 100; ++i) (void)cno.wait(0us);
    threads.clear();
    CHECK(returned == 6);
    CHECK(named == 0);
  }
  // Without a waiter, an armed agent is called for the end of the last evd, and the trigger stays.
  std::atomic<int> calls{0};
  must(cno.modify_agent({[](void* n, dat::evd_id) noexcept { ++*static_cast<std::atomic<int>*>(n); }, &calls}));
  while (cno.wait(0us)) {
  }
  auto last = must(ia.create_evd<support::soft>(8));
  must(last.modify_cno(cno));
  must(last.close());
  CHECK(must(cno.wait(plenty)) == dat::evd_id());
  while (calls == 0) std::this_thread::yield();
}

TEST_CASE("a thread that sleeps on a cno does the work of an ia with manual progress", "[cno]") {
  const clean_world world;
  end a("fk1");
  end b("fk2");
  a.make_ep();
  const auto psp = must(b.ia.create_psp(service, b.evd));
  auto cno = must(b.ia.create_cno());
  must(b.evd.modify_cno(cno));
  while (cno.wait(0us)) { // takes the triggers that modify_cno caused
  }
  dat::evd_id triggered;
  other_call waiter([&] {
    if (auto r = cno.wait(plenty)) triggered = r.value();
  });
  support::until_asleep(waiter.id(), plenty);
  must(a.ep.connect(b.ia.address(), service, plenty));
  for (int i = 0; i < 4; ++i) a.ia.run(); // sends the request
  waiter.join();
  CHECK(triggered == b.evd.id());
  CHECK(b.take() == events{"request"});
  settle(a, b);
}
