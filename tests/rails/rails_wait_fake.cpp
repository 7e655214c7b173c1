// How long rails sleep and on what: the limit and the descriptors that a wait passes to the system.
// SPDX-License-Identifier: BSL-1.0
#include "ends.hpp"

#include <cerrno>
#include <dlfcn.h>
#include <functional>
#include <poll.h>

namespace {

/// One call of ppoll by this thread.
struct sleep_call {
  std::vector<int> descriptors;
  std::vector<short> events;
  std::chrono::nanoseconds limit;
};
/// Takes the calls of ppoll of this thread while it is set. Its result is that of the call.
thread_local std::function<int(const sleep_call&, pollfd*, nfds_t)> sleeps;
thread_local bool at_once = false; ///< takes the calls that do not sleep, too

} // namespace

// With fortified functions of the C library, a program calls other names.
#if !defined(__USE_FORTIFY_LEVEL) || __USE_FORTIFY_LEVEL == 0
constexpr bool watches_sleep = true;
extern "C" int ppoll(pollfd* all, nfds_t n, const timespec* limit, const sigset_t* signals) {
  using function = int (*)(pollfd*, nfds_t, const timespec*, const sigset_t*);
  static const auto real = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "ppoll"));
  if (!sleeps || (limit && limit->tv_sec == 0 && limit->tv_nsec == 0 && !at_once)) return real(all, n, limit, signals);
  sleep_call call{{}, {}, std::chrono::nanoseconds(-1)};
  for (const pollfd& one : std::span(all, n)) {
    call.descriptors.push_back(one.fd);
    call.events.push_back(one.events);
  }
  if (limit) call.limit = std::chrono::seconds(limit->tv_sec) + std::chrono::nanoseconds(limit->tv_nsec);
  return sleeps(call, all, n);
}
#else
constexpr bool watches_sleep = false;
#endif

namespace rails_test {

namespace {

/// Watches the sleeps of this thread. A sleep ends as by a signal, unless the test replaces `sleeps`.
struct watched {
  watched() {
    if (!watches_sleep) SKIP("this build cannot watch sleeps");
    sleeps = [this](const sleep_call& call, pollfd*, nfds_t) {
      calls.push_back(call);
      errno = EINTR;
      return -1;
    };
  }
  watched(const watched&) = delete;
  watched& operator=(const watched&) = delete;
  ~watched() { sleeps = {}; }
  std::vector<sleep_call> calls;
};

/// The limit of the sleep of a wait without a limit.
std::chrono::nanoseconds sleep_of(end& e) {
  watched w;
  is_error(e.rails.wait(e.seen, dat::infinite), dat::return_type::interrupted_call);
  REQUIRE(w.calls.size() == 1);
  return w.calls.front().limit;
}

} // namespace

TEST_CASE("a wait of rails sleeps on the descriptors of each rail", "[rails]") {
  ends e(3);
  REQUIRE(e.all_up());
  e.some_turns();
  watched w;
  is_error(e.a.rails.wait(e.a.seen, dat::infinite), dat::return_type::interrupted_call);
  REQUIRE(w.calls.size() == 1);
  auto slept = w.calls.front().descriptors;
  auto all = e.a.rails.descriptors();
  std::sort(slept.begin(), slept.end());
  std::sort(all.begin(), all.end());
  CHECK(slept == all);
  CHECK(w.calls.front().events == std::vector<short>(all.size(), POLLIN));
}

TEST_CASE("rails sleep until they probe an idle rail, and a second at most", "[rails]") {
  ends e(2, {.failover_within = 2s});
  REQUIRE(e.all_up());
  e.some_turns();
  simulated += 200ms;
  CHECK(sleep_of(e.a) == 300ms); // a quarter of failover_within since the rails were last seen to work
  // A rail with a message under way, and one that is being probed, need no probe.
  fake::hold(qp_of('a', 0));
  fake::hold(qp_of('a', 1));
  must(e.a.write());
  CHECK(sleep_of(e.a) == 300ms); // the other rail is idle
  must(e.a.write());
  CHECK(sleep_of(e.a) == 1s);
  for (const std::size_t i : {0u, 1u}) fake::hold(qp_of('a', i), false);
  REQUIRE(e.all_done());
  e.some_turns();
  for (const std::size_t i : {0u, 1u}) fake::hold(qp_of('a', i));
  simulated += 500ms;
  e.a.run();
  CHECK(sleep_of(e.a) == 1s);
  for (const std::size_t i : {0u, 1u}) fake::hold(qp_of('a', i), false);
  e.some_turns();
}

TEST_CASE("rails with messages under way look at them within failover_within", "[rails]") {
  ends e(1, {.failover_within = 400ms});
  REQUIRE(e.all_up());
  fake::hold(qp_of('a', 0));
  must(e.a.write());
  e.some_turns();
  CHECK(sleep_of(e.a) == 400ms);
  fake::hold(qp_of('a', 0), false);
  CHECK(e.all_done());
}

TEST_CASE("the active side sleeps until a rail that is down connects, and the passive side waits for it", "[rails]") {
  ends e(2, {.failover_within = 2s, .cool_down = 350ms, .max_cool_down = 350ms});
  REQUIRE(e.all_up());
  simulated += 10s;
  e.some_turns();
  must(e.a.rails.disconnect(0));
  e.some_turns();
  REQUIRE(e.a.rails.up() == 1);
  simulated += 50ms;
  CHECK(sleep_of(e.a) == 300ms);
  CHECK(sleep_of(e.b) == 450ms); // then it probes the rail that is up
}

TEST_CASE("rails do not sleep when their next work was due before", "[rails]") {
  // Each read of the clock advances it by a minute, so a rail is due to connect when the wait begins to sleep.
  static bool slow;
  slow = false;
  ends e(1);
  REQUIRE(e.all_up());
  e.some_turns();
  end late;
  late.open('a', 1);
  late.paths[0].port = 9; // no program listens there
  late.rails = must(dat::rails::connect(late.paths, {.cool_down = 90s, .max_cool_down = 90s, .clock = []() noexcept {
                                                       if (slow) simulated += 1min;
                                                       return simulated;
                                                     }}));
  for (int i = 0; i < 5; ++i) late.run();
  slow = true;
  at_once = true;
  const auto limit = sleep_of(late);
  at_once = slow = false;
  CHECK(limit == 0ns);
}

TEST_CASE("a wait of rails takes every limit: the longest ones sleep, and one before now has expired", "[rails]") {
  ends e(1);
  REQUIRE(e.all_up());
  e.some_turns();
  const dat::timeout limit = GENERATE(dat::infinite - 1us, dat::timeout(std::chrono::years(1000)));
  {
    watched w;
    is_error(e.a.rails.wait(e.a.seen, limit), dat::return_type::interrupted_call);
    CHECK(w.calls.size() == 1);
  }
  is_error(e.a.rails.wait(e.a.seen, dat::timeout::min()), dat::return_type::timeout_expired);
}

TEST_CASE("a signal ends a wait of rails, and another failure of the sleep does not", "[rails]") {
  ends e(1);
  REQUIRE(e.all_up());
  e.some_turns();
  watched w;
  int slept = 0;
  sleeps = [&](const sleep_call&, pollfd*, nfds_t) {
    ++slept;
    errno = slept == 1 ? ENOMEM : EINTR;
    return slept == 2 ? 0 : -1; // a sleep that ends at its limit leaves errno as it was
  };
  is_error(e.a.rails.wait(e.a.seen, dat::infinite), dat::return_type::interrupted_call);
  CHECK(slept == 3);
}

TEST_CASE("an event that ends a wait of rails leaves no descriptor readable", "[rails]") {
  ends e(2);
  REQUIRE(e.all_up());
  e.some_turns();
  e.a.rails.take_triggers();
  watched w;
  std::vector<int> ready;
  sleeps = [&](const sleep_call&, pollfd* all, nfds_t n) {
    if (ready.empty()) (void)e.b.write();
    fake::finish();
    ready.push_back(::poll(all, n, 0));
    errno = EINTR;
    return ready.size() > 100 ? -1 : ready.back();
  };
  CHECK(must(e.a.rails.wait(e.a.seen, dat::infinite)) == 1);
  sleeps = {};
  CHECK(e.a.seen.arrived.size() == 1);
  CHECK(ready == std::vector{1});
  auto fds = e.a.rails.descriptors();
  for (const int fd : fds) {
    pollfd one{fd, POLLIN, 0};
    CHECK(::poll(&one, 1, 0) == 0);
  }
}

} // namespace rails_test
