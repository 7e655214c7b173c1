// The reactor: descriptors, deferred tasks, the wake-up, and the threads that may run it.
// SPDX-License-Identifier: BSL-1.0
#include "opened_reactor.hpp"

#include <dat/detail/progress/reactor.hpp>

#include <support/catch.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <future>
#include <thread>
#include <type_traits>
#include <vector>

using namespace std::chrono_literals;
using dat::detail::event_source;
using dat::detail::wake_fd;

namespace reactors {

TEST_CASE("each of many sources that are ready at once is called once by the reactor itself") {
  opened r;
  struct : event_source {
    reactor* where = nullptr;
    wake_fd* fd = nullptr;
    int calls = 0;
    bool on_reactor = false;
  } all[40];
  wake_fd fds[40];
  for (std::size_t i = 0; i < 40; ++i) {
    REQUIRE(fds[i].open() == 0);
    fds[i].raise();
    all[i].ready = [](event_source& s) noexcept {
      auto& self = static_cast<std::remove_reference_t<decltype(all[0])>&>(s);
      ++self.calls;
      self.on_reactor = self.where->runs_here();
      self.fd->clear();
    };
    all[i].where = &r;
    all[i].fd = &fds[i];
    REQUIRE(r.watch(fds[i].get(), all[i]) == 0);
  }
  for (int round = 0; round < 4; ++round) r.run(0);
  for (const auto& one : all) {
    CHECK(one.calls == 1);
    CHECK(one.on_reactor);
  }
}

TEST_CASE("a source that another one removes in the same round is not called") {
  opened r;
  struct : event_source {
    reactor* where = nullptr;
    event_source* other = nullptr;
    int other_fd = -1;
    int* calls = nullptr;
  } both[2];
  wake_fd fds[2];
  int calls = 0;
  for (int i = 0; i < 2; ++i) {
    REQUIRE(fds[i].open() == 0);
    fds[i].raise();
    both[i].ready = [](event_source& s) noexcept {
      auto& self = static_cast<std::remove_reference_t<decltype(both[0])>&>(s);
      ++*self.calls;
      self.where->unwatch(self.other_fd, *self.other);
    };
    both[i].where = &r;
    both[i].calls = &calls;
  }
  for (int i = 0; i < 2; ++i) {
    both[i].other = &both[1 - i];
    both[i].other_fd = fds[1 - i].get();
  }
  for (int i = 0; i < 2; ++i) REQUIRE(r.watch(fds[i].get(), both[i]) == 0);
  r.run(0);
  CHECK(calls == 1);
}

TEST_CASE("settle runs the tasks that are due, and those that they defer") {
  opened r;
  std::vector<int> fired;
  noting second(fired, 2);
  struct : task {
    reactor* where = nullptr;
    task* then = nullptr;
  } first;
  first.where = &r;
  first.then = &second;
  first.run = [](task& t) noexcept {
    auto& self = static_cast<decltype(first)&>(t);
    self.where->defer(*self.then);
  };
  r.defer(first);
  r.settle();
  CHECK(fired == std::vector<int>{2});
}

TEST_CASE("tasks deferred while the reactor batches them run when the batch ends") {
  opened r;
  wake_fd fd;
  REQUIRE(fd.open() == 0);
  struct noted : task {
    std::vector<int> order;
  } kick;
  kick.run = [](task& t) noexcept { static_cast<noted&>(t).order.push_back(2); };
  struct source : event_source {
    opened& r;
    wake_fd& fd;
    noted& kick;
  } s{{[](event_source& e) noexcept {
        auto& self = static_cast<source&>(e);
        self.fd.clear();
        CHECK_FALSE(self.r.batches_tasks());
        self.r.batching_tasks([&]() noexcept {
          CHECK(self.r.batches_tasks());
          CHECK(self.r.defer(self.kick));
          CHECK_FALSE(self.r.defer(self.kick)); // the task is armed already
          self.kick.order.push_back(1);
        });
        self.kick.order.push_back(3);
      }},
      r,
      fd,
      kick};
  REQUIRE(r.watch(fd.get(), s) == 0);
  CHECK_FALSE(r.batches_tasks());
  for (int i = 0; i < 2; ++i) {
    fd.raise();
    r.run(1000);
  }
  CHECK(kick.order == std::vector<int>{1, 2, 3, 1, 2, 3});
  r.unwatch(fd.get(), s);
}

TEST_CASE("a task runs once however often it is deferred, at the earliest time") {
  opened r;
  struct counting : task {
    int calls = 0;
  } t;
  t.run = [](task& self) noexcept { ++static_cast<counting&>(self).calls; };
  CHECK(r.defer(t, now() + 1h));
  CHECK_FALSE(r.defer(t)); // the new time is earlier, so the task moves forward
  CHECK_FALSE(r.defer(t, now() + 1h));
  r.run(1000);
  CHECK(t.calls == 1);

  SECTION("a cancelled task does not run, and can be deferred again") {
    CHECK(r.defer(t));
    CHECK(r.cancel(t));
    CHECK(r.defer(t));
    r.run(1000);
    CHECK(t.calls == 2);
  }
  SECTION("a task that defers itself lets the reactor do other work first") {
    struct restless : task {
      opened* r;
      int runs = 0;
    } again;
    again.r = &r;
    again.run = [](task& x) noexcept {
      auto& self = static_cast<restless&>(x);
      ++self.runs;
      self.r->defer(self);
    };
    r.defer(again);
    r.run(1000);
    CHECK(again.runs == 1);
    r.run(1000);
    CHECK(again.runs == 2);
    CHECK(r.cancel(again));
  }
}

TEST_CASE("running the reactor from a function that it calls has no effect") {
  opened r;
  struct nested : task {
    opened* r;
    int runs = 0;
  } t;
  t.r = &r;
  t.run = [](task& x) noexcept {
    auto& self = static_cast<nested&>(x);
    ++self.runs;
    self.r->run(-1); // this call would wait indefinitely
    self.r->settle();
  };
  r.defer(t);
  r.run(1000);
  CHECK(t.runs == 1);
}

TEST_CASE("settle waits for the round of another thread") {
  opened r;
  struct slow : task {
    std::promise<void> entered;
    std::promise<void> leave;
    std::atomic<bool> done{false};
  } t;
  t.run = [](task& x) noexcept {
    auto& self = static_cast<slow&>(x);
    self.entered.set_value();
    self.leave.get_future().wait();
    self.done = true;
  };
  r.defer(t);
  std::jthread worker([&] { r.run(1000); });
  t.entered.get_future().wait();
  std::promise<void> settling;
  auto settled = std::async(std::launch::async, [&] {
    settling.set_value();
    r.settle();
    return t.done.load();
  });
  settling.get_future().wait();
  t.leave.set_value();
  CHECK(settled.get());
  worker.join();
}

TEST_CASE("no thread joins a service thread that stops its own reactor") {
  struct stopping : task {
    opened r;
    int detached = -1;
    std::atomic<bool> left{false};
  } t;
  t.run = [](task& x) noexcept {
    auto& self = static_cast<stopping&>(x);
    self.r.stop();
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
    pthread_attr_getdetachstate(&attributes, &self.detached);
    pthread_attr_destroy(&attributes);
  };
  const auto body = [](void* context) -> void* {
    auto& self = *static_cast<stopping*>(context);
    self.r.loop();
    self.left = true;
    return nullptr;
  };
  REQUIRE(t.r.start(body, &t) == 0);
  t.r.defer(t);
  while (!t.left) std::this_thread::yield();
  CHECK(t.detached == PTHREAD_CREATE_DETACHED);
}

TEST_CASE("a watched descriptor is handled while it is readable") {
  opened r;
  wake_fd fd;
  REQUIRE(fd.open() == 0);
  struct counting : event_source {
    wake_fd* fd;
    int calls = 0;
  };
  counting source{{[](event_source& s) noexcept {
                    auto& self = static_cast<counting&>(s);
                    if (++self.calls == 2) self.fd->clear();
                  }},
                  &fd};
  REQUIRE(r.watch(fd.get(), source) == 0);
  r.run(0);
  CHECK(source.calls == 0);
  fd.raise();
  CHECK(r.ready());
  r.run(0);
  r.run(0);
  r.run(0);
  CHECK(source.calls == 2);
  CHECK_FALSE(r.ready());
  CHECK(r.watch(-1, source) == EBADF);
}

TEST_CASE("a service thread runs timers, blocks signals, and ends on request", "[COMP-083]") {
  opened r;
  struct announcing : task {
    std::promise<std::pair<bool, bool>> seen;
    opened* r;
  };
  announcing t;
  t.r = &r;
  t.run = [](task& x) noexcept {
    auto& self = static_cast<announcing&>(x);
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    self.seen.set_value({self.r->on_service_thread(), sigismember(&blocked, SIGINT) == 1 &&
                                                          sigismember(&blocked, SIGUSR1) == 1 &&
                                                          sigismember(&blocked, SIGCHLD) == 1});
  };
  sigset_t before;
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  REQUIRE(r.start(
              [](void* self) -> void* {
                static_cast<opened*>(self)->loop();
                return nullptr;
              },
              &r) == 0);
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  CHECK(sigismember(&before, SIGUSR1) == sigismember(&after, SIGUSR1));
  CHECK_FALSE(r.on_service_thread());
  r.defer(t);
  const auto [there, blocked] = t.seen.get_future().get();
  CHECK(there);
  CHECK(blocked);
  r.stop();
  r.stop(); // a second stop has no effect
  CHECK_FALSE(r.on_service_thread());
}

TEST_CASE("of two threads that run the reactor, one does the work and the other returns") {
  opened r;
  wake_fd fd;
  REQUIRE(fd.open() == 0);
  struct blocking : event_source {
    wake_fd* fd;
    std::promise<void> entered;
    std::promise<void> leave;
  };
  blocking source;
  source.fd = &fd;
  source.ready = [](event_source& s) noexcept {
    auto& self = static_cast<blocking&>(s);
    self.fd->clear();
    self.entered.set_value();
    self.leave.get_future().wait();
  };
  REQUIRE(r.watch(fd.get(), source) == 0);
  fd.raise();
  std::jthread worker([&] { r.run(-1); });
  source.entered.get_future().wait();
  r.run(-1); // must return at once; otherwise the test does not end
  source.leave.set_value();
  worker.join();
  SUCCEED();
}

TEST_CASE("tasks that other threads defer while the reactor runs are called once for each time that they were armed") {
  opened r;
  struct counting : task {
    std::atomic<int> calls{0};
  } tasks[2];
  std::atomic<int> armed = 0;
  std::atomic<int> deferring = 2;
  const auto defers = [&](counting& t) {
    t.run = [](task& self) noexcept { ++static_cast<counting&>(self).calls; };
    for (int i = 0; i < 20000; ++i)
      if (r.defer(t)) ++armed;
    --deferring;
  };
  std::jthread one(defers, std::ref(tasks[0]));
  std::jthread two(defers, std::ref(tasks[1]));
  while (deferring != 0) r.run(0);
  one.join();
  two.join();
  r.settle();
  CHECK(tasks[0].calls + tasks[1].calls == armed);
  CHECK((tasks[0].calls > 0 && tasks[1].calls > 0));
}

} // namespace reactors
