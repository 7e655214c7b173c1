// Waits of coroutines for other things than events: times, time limits, values of each other. Also the graceful end of
// a driver.
// SPDX-License-Identifier: BSL-1.0
#include "../support/worker.hpp"
#include "driven_pair.hpp"
#include <support/streams.hpp>

#include <dat/coro.hpp>
#include <dat/task.hpp>

#include <dat/detail/delivery/coro_timer.hpp>

#include <algorithm>
#include <deque>
#include <random>
#include <stop_token>
#include <vector>

using namespace unit;
using dat::return_type;
using support::worker;

namespace {

using text = dat::task<std::string>;
using support::ignore;

/// A started task.
template <class T>
dat::task<T> started(dat::task<T> t) {
  t.start();
  return t;
}

text sleep(queue_driver& d, dat::timeout t, std::stop_token stop = {}) {
  co_return told(co_await d.sleep_for(t, stop));
}
text receive_within(queue_driver& d, dat::ep_ref ep, dat::timeout t, std::stop_token stop = {}) {
  co_return told(co_await d.within(t, d.post(ep, dat::recv{}), stop));
}

} // namespace

TEST_CASE("timers expire in the order of their times, whichever of them were cancelled", "[coro]") {
  using namespace dat::detail;
  static std::vector<int> expired;
  struct numbered : timer_node {
    explicit numbered(int i) noexcept
        : timer_node([](timer_node& t) noexcept { expired.push_back(static_cast<numbered&>(t).number); }), number(i) {}
    int number;
  };
  expired.clear();
  std::minstd_rand random(5);
  timer_heap heap;
  CHECK(heap.first().never());
  CHECK(heap.expire() == 0);
  const auto past = clock::now() - 1h;
  std::deque<numbered> all;
  std::vector<std::pair<int, int>> expected; // time and number
  constexpr int n = 500;
  for (int i = 0; i < n; ++i) {
    const int time = i < 5 ? i : static_cast<int>(random() % 100'000) * n + i; // all times are different
    all.emplace_back(i).set(heap, {past + std::chrono::microseconds(time / n)});
    expected.emplace_back(time / n, i);
    if (i % 50 == 49) { // removes entries from all parts of the tree
      for (int k = 0; k < 10; ++k) {
        const auto which = random() % all.size();
        all[which].cancel();
        std::erase_if(expected, [&](const auto& e) { return e.second == static_cast<int>(which); });
      }
    }
  }
  numbered later(n);
  later.set(heap, {clock::now() + 1h});
  CHECK(heap.expire() == expected.size());
  REQUIRE(expired.size() == expected.size());
  std::vector<int> times;
  std::vector<int> time_of(n);
  for (const auto& e : expected) time_of[static_cast<std::size_t>(e.second)] = e.first;
  for (const int i : expired) times.push_back(time_of[static_cast<std::size_t>(i)]);
  CHECK(std::is_sorted(times.begin(), times.end()));
  std::sort(expired.begin(), expired.end());
  for (std::size_t i = 0; i < expired.size(); ++i) CHECK(expired[i] == expected[i].second);
  CHECK_FALSE(heap.first().never());
  later.cancel();
  CHECK(heap.first().never());
}

TEST_CASE("a request to stop an operation that has ended is forgotten, and those before and after it are served",
          "[coro]") {
  using namespace dat::detail;
  static std::vector<const coro_entry*> served;
  struct operation : coro_operation {
    explicit operation(coro_schedule& s) noexcept
        : coro_operation(s, nullptr, [](coro_entry& o) noexcept { served.push_back(&o); }) {}
    using coro_operation::watch;
  };
  served.clear();
  const clean_world world;
  end e{"fk1"};
  coro_schedule schedule(core_access::of(e.evd));
  std::stop_source source;
  operation first(schedule), second(schedule), third(schedule);
  for (operation* o : {&first, &second, &third}) o->watch(source.get_token());
  source.request_stop();
  second.fail(dat::error(return_type::abort));
  CHECK(schedule.has_due());
  CHECK(schedule.take_due() == 2);
  std::ranges::sort(served);
  std::vector<const coro_entry*> others{&first, &third};
  std::ranges::sort(others);
  CHECK(served == others);
  CHECK_FALSE(schedule.has_due());
}

TEST_CASE("coroutines that sleep resume in the order of their times, and the driver waits for them", "[coro]") {
  clean_world world;
  end e{"fk1"};
  queue_driver d{e.evd};
  events log;
  const auto naps = [](queue_driver& q, dat::timeout t, events& all) -> text {
    const auto r = co_await q.sleep_for(t);
    all.push_back(std::to_string(t.count()) + " " + told(r));
    co_return "";
  };
  CHECK(d.until_timer() == dat::infinite);
  auto third = started(naps(d, 9ms, log));
  auto first = started(naps(d, 1ms, log));
  auto second = started(naps(d, 5ms, log));
  auto at_once = started(naps(d, 0us, log));
  CHECK(d.until_timer() <= 1ms);
  CHECK(at_once.done());
  must(d.run_until([&] { return third.done(); }, ignore, plenty));
  CHECK(log == events{"0 good", "1000 good", "5000 good", "9000 good"});
  CHECK(d.until_timer() == dat::infinite);
}

TEST_CASE("a stop, the end of the ia and the end of the driver end a sleep", "[coro]") {
  clean_world world;
  end e{"fk1"};
  std::stop_source source;
  text forgotten;
  {
    queue_driver d{e.evd};
    auto stopped = started(sleep(d, plenty, source.get_token()));
    auto sleeping = started(sleep(d, dat::infinite));
    forgotten = started(sleep(d, plenty));
    source.request_stop();
    d.poll(ignore);
    CHECK(stopped.result() == "interrupted_call");
    CHECK(started(sleep(d, plenty, source.get_token())).result() == "interrupted_call");
    CHECK_FALSE(sleeping.done());
    must(e.ia.close(dat::close_mode::abrupt));
    d.poll(ignore);
    CHECK(sleeping.result() == "abort");
    forgotten = started(sleep(d, plenty));
  }
  CHECK_FALSE(forgotten.done());
}

TEST_CASE("a time limit ends the waiting and leaves the operation, which can be awaited again", "[coro]") {
  clean_world world;
  driven_pair p;
  const auto patient = [](driven_pair& w) -> text {
    auto got = w.far.post(w.b.ep, dat::recv{}.cookie(7));
    std::string all = told(co_await w.far.within(1us, got));
    all += " " + told(co_await w.far.within(0us, got));
    const auto last = co_await w.far.within(plenty, got);
    co_return all + " " + (last ? std::to_string(last.value().cookie().value()) : "nothing");
  };
  auto t = started(patient(p));
  const auto timed_out = [&] { return p.far.until_timer() > 1s; }; // the second and the third wait have begun
  must(p.far.run_until(timed_out, ignore, plenty));
  must(p.a.ep.post(dat::send{}.suppress_completion()));
  CHECK(p.run().empty());
  CHECK(t.result() == "timeout_expired timeout_expired 7");
}

TEST_CASE("an operation that was abandoned completes late without an event, and the connection lives", "[coro]") {
  clean_world world;
  driven_pair p;
  auto t = started(receive_within(p.far, p.b.ep, 1us));
  must(p.far.run_until([&] { return t.done(); }, ignore, plenty));
  CHECK(t.result() == "timeout_expired");
  auto next = started(receive_within(p.far, p.b.ep, plenty));
  must(p.a.ep.post(dat::send{}.suppress_completion()));
  CHECK(p.run().empty()); // the abandoned receive took the message
  CHECK_FALSE(next.done());
  must(p.a.ep.post(dat::send{}.suppress_completion()));
  CHECK(p.run().empty());
  CHECK(next.result() == "good");
  CHECK(p.b.ep.state() == dat::ep_state::connected);
}

TEST_CASE("a stop ends a limited wait and leaves the connection, from any thread", "[coro]") {
  clean_world world;
  driven_pair p;
  std::stop_source source;
  auto t = started(receive_within(p.far, p.b.ep, dat::infinite, source.get_token()));
  worker other([&](worker&) { source.request_stop(); });
  must(p.far.run_until([&] { return t.done(); }, ignore, plenty));
  other.join();
  CHECK(t.result() == "interrupted_call");
  CHECK(started(receive_within(p.far, p.b.ep, plenty, source.get_token())).result() == "interrupted_call");
  CHECK(p.run().empty());
  CHECK(p.b.ep.state() == dat::ep_state::connected);
}

TEST_CASE("a time limit for a task destroys it, with all that it waits for", "[coro]") {
  clean_world world;
  driven_pair p;
  const auto held = std::make_shared<int>(1);
  const auto call = [](driven_pair& w, std::shared_ptr<int>) -> dat::task<dat::expected<std::size_t>> {
    auto answer = w.near.post(w.a.ep, dat::recv{});
    if (auto sent = co_await w.near.post(w.a.ep, dat::send{}); !sent) co_return sent.error();
    const auto got = co_await answer;
    if (!got) co_return got.error();
    co_return got.value().bytes();
  };
  const auto limited = [&](driven_pair& w, std::shared_ptr<int> shared, dat::timeout limit) -> text {
    const auto r = co_await w.near.within(limit, call(w, std::move(shared)));
    co_return told(r);
  };
  for (int i = 0; i < 2; ++i) must(p.b.ep.post(dat::recv{}.cookie(1)));
  auto late = started(limited(p, held, 1us));
  must(p.near.run_until([&] { return late.done(); }, ignore, plenty));
  CHECK(late.result() == "timeout_expired");
  CHECK(held.use_count() == 1);
  auto in_time = started(limited(p, held, plenty));
  for (int i = 0; i < 2; ++i) must(p.b.ep.post(dat::send{}.suppress_completion())); // the first answer is late
  CHECK(p.run() == events{"received 1", "received 1"});
  CHECK(in_time.result() == "good");
  CHECK(held.use_count() == 1);
  CHECK(p.a.ep.state() == dat::ep_state::connected);
}

TEST_CASE("what ends with its limit in the same round counts, once", "[coro]") {
  clean_world world;
  driven_pair p;
  std::stop_source source;
  auto slot = p.far.make_slot<int>();
  const auto waits = [](queue_driver& d, dat::coro::slot<int>& s, std::stop_token stop) -> text {
    co_return told(co_await d.within(plenty, s, stop));
  };
  auto t = started(waits(p.far, slot, source.get_token()));
  SECTION("the value first") {
    CHECK(slot.set(1));
    source.request_stop();
  }
  SECTION("the stop first, the value before the coroutine resumes") {
    source.request_stop();
    CHECK(slot.set(1));
  }
  p.far.poll(ignore);
  CHECK(t.result() == "good");
}

TEST_CASE("a driver that ends, or whose ia ends, resumes a limited wait at most once", "[coro]") {
  clean_world world;
  driven_pair p;
  std::stop_source source;
  text forgotten;
  {
    queue_driver own{p.b.evd};
    forgotten = started(receive_within(own, p.b.ep, plenty, source.get_token()));
  }
  source.request_stop();
  forgotten = {};
  auto received = started(receive_within(p.far, p.b.ep, plenty));
  const auto task_within = [](queue_driver& d) -> text {
    const auto inner = [](queue_driver& q) -> dat::task<dat::expected<void>> {
      co_return co_await q.sleep_for(plenty);
    };
    co_return told(co_await d.within(plenty, inner(d)));
  };
  auto slept = started(task_within(p.far));
  must(p.b.ia.close(dat::close_mode::abrupt));
  p.far.poll(ignore);
  CHECK(received.result() == "abort");
  CHECK(slept.result() == "abort");
}

TEST_CASE("a slot gives one value to the coroutine that awaits it", "[coro]") {
  clean_world world;
  driven_pair p;
  auto slot = p.far.make_slot<std::string>();
  const auto takes = [](dat::coro::slot<std::string>& s) -> text {
    auto r = co_await s;
    co_return r ? std::move(r).value() : told(r);
  };
  auto t = started(takes(slot));
  CHECK_FALSE(t.done());
  CHECK(slot.set("a value"));
  CHECK_FALSE(slot.set("another"));
  CHECK_FALSE(t.done()); // resumed by the driver
  p.far.poll(ignore);
  CHECK(t.result() == "a value");
  CHECK(started(takes(slot)).result() == "invalid_state"); // taken
  auto early = p.far.make_slot<std::string>();
  CHECK(early.set("early"));
  CHECK(started(takes(early)).result() == "early");
  auto never = p.far.make_slot<std::string>();
  auto aborted = started(takes(never));
  must(p.b.ia.close(dat::close_mode::abrupt));
  p.far.poll(ignore);
  CHECK(aborted.result() == "abort");
  CHECK_FALSE(never.set("late"));
}

TEST_CASE("a driver that another thread stops lets its coroutines finish what they began", "[coro]") {
  clean_world world;
  driven_pair p;
  dat::task_group group;
  events log;
  const auto serve = [](driven_pair& w, events& all) -> dat::task<> {
    auto got = w.far.post(w.b.ep, dat::recv{}); // the receive has begun, and ends with its message
    const auto request = co_await w.far.next<dat::connection_request>();
    all.push_back("requests: " + told(request));
    const auto again = co_await w.far.next<dat::connection_request>();
    all.push_back("again: " + told(again));
    must(w.a.ep.post(dat::send{}.suppress_completion()));
    all.push_back("receive: " + told(co_await got));
  };
  const auto tick = [](driven_pair& w, events& all) -> dat::task<> {
    while (co_await w.far.sleep_for(plenty)) {
    }
    all.push_back("no more ticks");
  };
  group.spawn(serve(p, log));
  group.spawn(tick(p, log));
  CHECK_FALSE(p.far.stopping());
  worker other([&](worker&) { p.far.stop(); });
  must(p.far.run_until([&] { return group.empty(); }, ignore, plenty));
  other.join();
  CHECK(p.far.stopping());
  CHECK(log == events{"requests: interrupted_call", "again: interrupted_call", "no more ticks", "receive: good"});
}

TEST_CASE("a driver that is stopped refuses the requests that it keeps, and those that come", "[coro]") {
  clean_world world;
  driven_pair p;
  const auto first = [](queue_driver& d) -> text { co_return told(co_await d.next<dat::connection_request>()); };
  auto active = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  auto other = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  auto server = started(first(p.far));
  must(active.connect(p.b.ia.address(), service, plenty));
  must(other.connect(p.b.ia.address(), service, plenty));
  for (int i = 0; i < 3; ++i) p.settle(), p.far.poll(ignore);
  CHECK(server.result() == "good");
  CHECK(p.far.kept() == 1);
  p.far.stop();
  p.far.poll(ignore);
  CHECK(p.far.kept() == 0);
  p.settle();
  CHECK(p.a.take() == events{"non_peer_rejected 35", "non_peer_rejected 35"});
}
