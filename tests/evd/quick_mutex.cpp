// The mutex of merged evds: one thread at a time, and a thread that sleeps for it gets it.
// SPDX-License-Identifier: BSL-1.0
#include <dat/detail/base/quick_mutex.hpp>

#include <support/catch.hpp>
#include <support/worker.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <pthread.h>
#include <thread>
#include <utility>

using dat::detail::quick_mutex;
using support::worker;

TEST_CASE("a quick_mutex admits one thread at a time", "[evd][mutex]") {
  quick_mutex m;
  int counted = 0; // guarded by m
  bool inside = false;
  const auto count = [&](worker& me) {
    for (int i = 0; i < 5000; ++i) {
      const std::lock_guard lock(m);
      me.check(!std::exchange(inside, true));
      ++counted;
      inside = false;
    }
  };
  { worker one(count), two(count), three(count); }
  CHECK(counted == 15000);
}

TEST_CASE("threads that sleep for a quick_mutex get it, each in its turn", "[evd][mutex]") {
  quick_mutex m;
  std::atomic<int> coming{0};
  int passed = 0; // guarded by m
  const auto pass = [&](worker&) {
    coming.fetch_add(1);
    const std::lock_guard lock(m);
    ++passed;
  };
  m.lock();
  worker one(pass), two(pass), three(pass);
  while (coming.load() != 3) std::this_thread::yield();
  CHECK(passed == 0); // no thread passes while the mutex is locked
  m.unlock();
  one.join();
  two.join();
  three.join();
  CHECK(passed == 3);
  const std::lock_guard lock(m); // the mutex is free afterwards
}

TEST_CASE("a quick_mutex with a mark is locked as any other, but not by a call that accepts no mark", "[evd][mutex]") {
  quick_mutex m;
  REQUIRE(m.try_lock_unmarked());
  CHECK_FALSE(m.try_lock_unmarked()); // it is locked
  m.unlock();
  constexpr std::uint32_t one = quick_mutex::first_mark, other = 2 * one;
  m.mark(one);
  CHECK_FALSE(m.try_lock_unmarked());
  m.lock();
  m.mark(other);
  m.unmark(one);
  m.unlock();
  CHECK_FALSE(m.try_lock_unmarked()); // the other mark is left
  m.unmark(other);
  REQUIRE(m.try_lock_unmarked());
  m.unlock();
}

TEST_CASE("threads that sleep for a quick_mutex get it while its marks change", "[evd][mutex]") {
  quick_mutex m;
  std::atomic<int> coming{0};
  int passed = 0; // guarded by m
  const auto pass = [&](worker&) {
    coming.fetch_add(1);
    for (int i = 0; i < 1000; ++i) {
      const std::lock_guard lock(m);
      m.mark(quick_mutex::first_mark);
      ++passed;
      m.unmark(quick_mutex::first_mark);
    }
  };
  m.lock();
  m.mark(2 * quick_mutex::first_mark);
  worker one(pass), two(pass);
  while (coming.load() != 2) std::this_thread::yield();
  CHECK(passed == 0);
  m.unlock();
  one.join();
  two.join();
  CHECK(passed == 2000);
  CHECK_FALSE(m.try_lock_unmarked());
  m.unmark(2 * quick_mutex::first_mark);
  CHECK(m.try_lock_unmarked());
}

TEST_CASE("a thread with a pending cancellation locks a quick_mutex, and ends at its next own point", "[evd][mutex]") {
  quick_mutex m;
  struct seen {
    quick_mutex& m;
    std::atomic<bool> coming{false};
    bool locked = false; // guarded by m
  } s{m};
  m.lock();
  pthread_t thread;
  const auto body = [](void* of) -> void* {
    auto& it = *static_cast<seen*>(of);
    int before;
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    ::pthread_cancel(::pthread_self());
    ::pthread_setcancelstate(before, nullptr);
    it.coming = true;
    it.m.lock();
    it.locked = true;
    it.m.unlock();
    ::pthread_testcancel();
    return nullptr;
  };
  REQUIRE(::pthread_create(&thread, nullptr, body, &s) == 0);
  while (!s.coming.load()) std::this_thread::yield();
  m.unlock();
  void* how = nullptr;
  REQUIRE(::pthread_join(thread, &how) == 0);
  CHECK(how == PTHREAD_CANCELED);
  CHECK(s.locked);
}
