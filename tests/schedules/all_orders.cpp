// The small protocols between two threads, in every order with few preemptions: what the seeds of the other files may
// miss cannot be missed here. SPDX-License-Identifier: BSL-1.0
#include "schedule.hpp"

#include <dat/srq.hpp>

#include <support/catch.hpp>
#include <unit/world.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

using namespace unit;
using schedule::explore_all;
using schedule::session;

namespace {

/// The orders in which two threads pass `points` points each, and how many times each was tried.
std::map<std::string, int> orders_of_two(unsigned preemptions, std::size_t points) {
  std::map<std::string, int> seen;
  explore_all(preemptions, [&](session& s) {
    std::atomic<std::size_t> n{0};
    std::string out(2 * points, ' ');
    const auto pass = [&](char name) {
      return [&n, &out, points, name] {
        for (std::size_t i = 0; i < points; ++i) out[n++] = name;
      };
    };
    s.together({pass('a'), pass('b')});
    ++seen[out];
  });
  return seen;
}

/// The preemptions that an order of two threads needs: the changes from a thread that had more to do.
int needed(const std::string& order) {
  int n = 0;
  for (std::size_t i = 1; i < order.size(); ++i)
    n += order[i] != order[i - 1] && order.find(order[i - 1], i) != std::string::npos;
  return n;
}

} // namespace

TEST_CASE("every order of two threads is tried, and none with more preemptions", "[schedules]") {
  for (const unsigned preemptions : {0u, 1u, 2u, 8u}) {
    INFO(preemptions << " preemptions");
    const auto seen = orders_of_two(preemptions, 3);
    std::string order = "aaabbb";
    std::size_t expected = 0;
    do {
      INFO(order);
      const bool reachable = needed(order) <= static_cast<int>(preemptions);
      expected += reachable;
      CHECK(seen.count(order) == std::size_t{reachable});
    } while (std::next_permutation(order.begin(), order.end()));
    CHECK(seen.size() == expected);
  }
}

TEST_CASE("a search finds a lost update with one preemption, and none without", "[schedules]") {
  for (const unsigned preemptions : {0u, 1u}) {
    std::set<int> sums;
    explore_all(preemptions, [&](session& s) {
      std::atomic<int> n{0};
      const auto add = [&] { n.store(n.load() + 1); };
      s.together({add, add});
      sums.insert(n);
    });
    CHECK(sums == (preemptions == 0 ? std::set<int>{2} : std::set<int>{1, 2}));
  }
}

namespace {

/// Runs a test of two calls in every order, and shows how many there are.
void in_every_order(unsigned preemptions, const std::function<void(session&)>& body) {
  const std::size_t orders = explore_all(schedule::most_preemptions(preemptions), body);
  CAPTURE(orders);
  CHECK((orders > 100 || schedule::replays()));
}

/// An evd for software events alone.
struct software_queue {
  clean_world world;
  dat::ia ia = must(dat::ia::open("fk1", manual));
  dat::evd<dat::stream::software> evd = must(ia.create_evd<dat::stream::software>(4));
};

constexpr dat::timeout an_hour = 1h; // an hour of the virtual clock: a wait that times out has missed its event

} // namespace

TEST_CASE("a software event wakes the thread that waits for it, in every order", "[schedules]") {
  in_every_order(2, [](session& s) {
    software_queue q;
    bool woken = false;
    s.together({[&] { woken = q.evd.wait_for<dat::software_event>(an_hour).has_value(); },
                [&] { must(q.evd.post(dat::cookie(7))); }});
    CHECK(woken);
  });
}

TEST_CASE("wake ends the wait of another thread or the next one, in every order", "[schedules]") {
  in_every_order(2, [](session& s) {
    software_queue q;
    dat::error ended;
    s.together({[&] { ended = q.evd.wait_for<dat::software_event>(an_hour).error(); }, [&] { must(q.evd.wake()); }});
    CHECK(ended.type() == dat::return_type::interrupted_call);
    is_error(q.evd.wait_for<dat::software_event>(0s), dat::return_type::timeout_expired);
  });
}

TEST_CASE("set_unwaitable ends the wait of another thread or refuses the next one, in every order", "[schedules]") {
  in_every_order(2, [](session& s) {
    software_queue q;
    dat::error ended;
    s.together({[&] { ended = q.evd.wait(an_hour).error(); }, [&] { must(q.evd.set_unwaitable()); }});
    CHECK(ended.type() == dat::return_type::invalid_state);
    CHECK(ended.subtype() == dat::return_subtype::evd_unwaitable);
  });
}

TEST_CASE("a completion wakes the thread that waits for it, in every order", "[schedules]") {
  const bool merged = GENERATE(true, false);
  INFO((merged ? "merged evd" : "completions-only evd"));
  in_every_order(2, [merged](session& s) {
    const clean_world world;
    pair p;
    auto lean = must(p.a.ia.create_evd<dat::stream::dto>(16));
    auto ep = must(p.a.pz.create_ep<dat::rc>({.recv = lean, .request = lean, .connect = p.a.evd}));
    auto peer = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
    p.connect(ep, peer);
    (void)p.a.take(), (void)p.b.take();
    dat::ep<dat::rc>& mine = merged ? p.a.ep : ep;
    dat::ep<dat::rc>& other = merged ? p.b.ep : peer;
    must(mine.post(dat::recv{p.a.at(0, 8)}));
    bool woken = false;
    s.together({[&] {
                  woken =
                      merged ? p.a.evd.wait_for<dat::recv_done>(an_hour).has_value() : lean.wait(an_hour).has_value();
                },
                [&] { must(other.post(dat::send{p.b.at(0, 8)})); }});
    CHECK(woken);
  });
}

TEST_CASE("an event triggers the cno that a thread waits on, in every order", "[schedules]") {
  in_every_order(2, [](session& s) {
    software_queue q;
    auto cno = must(q.ia.create_cno());
    must(q.evd.modify_cno(cno));
    bool triggered = false;
    s.together({[&] { triggered = cno.wait(an_hour).has_value(); }, [&] { must(q.evd.post(dat::cookie(7))); }});
    CHECK(triggered);
    CHECK(must(q.evd.dequeue()).index() != std::variant_npos);
  });
}

TEST_CASE("the end of the last evd of a cno wakes all that wait on the cno, in every order with one preemption",
          "[schedules]") {
  // Three threads with more preemptions have too many orders.
  const std::size_t orders = explore_all(1, [](session& s) {
    software_queue q;
    auto cno = must(q.ia.create_cno());
    must(q.evd.modify_cno(cno));
    while (cno.wait(0s)) { // takes the trigger that modify_cno may have caused
    }
    const auto begin = std::chrono::steady_clock::now();
    std::array<bool, 2> in_time{};
    const auto wait = [&](bool& to) {
      return [&] {
        const auto woken = cno.wait(an_hour); // the wait times out if it begins after the end
        to = !woken || (!woken.value() && std::chrono::steady_clock::now() - begin < an_hour);
      };
    };
    s.together({wait(in_time[0]), wait(in_time[1]), [&] { must(q.evd.close()); }});
    CHECK(in_time[0]);
    CHECK(in_time[1]);
  });
  CHECK((orders > 100 || schedule::replays()));
}

TEST_CASE("two threads that take from a merged evd take each event once, in every order", "[schedules]") {
  in_every_order(2, [](session& s) {
    software_queue q;
    for (const std::uint64_t n : {1u, 2u}) must(q.evd.post(dat::cookie(n)));
    std::array<std::uint64_t, 2> taken{};
    const auto take = [&](std::uint64_t& to) {
      return [&] { to = std::get<dat::software_event>(must(q.evd.dequeue())).cookie().value(); };
    };
    s.together({take(taken[0]), take(taken[1])});
    CHECK(taken[0] + taken[1] == 3);
    CHECK(taken[0] * taken[1] == 2);
  });
}

TEST_CASE("a queue that one thread fills while another empties it keeps all its entries, in every order",
          "[schedules]") {
  in_every_order(2, [](session& s) {
    const clean_world world;
    pair p({.max_request_dtos = 2, .max_recv_dtos = 8});
    const auto count = [&] { return p.a.evd.drain([](const auto&) {}, 8); };
    for (int i = 0; i < 8; ++i) must(p.b.ep.post(dat::recv{}));
    for (int i = 0; i < 2; ++i) must(p.a.ep.post(dat::send{}));
    std::size_t posted = 2, done = 0;
    s.together({[&] {
                  for (int i = 0; i < 2; ++i) posted += p.a.ep.post(dat::send{}).has_value();
                },
                [&] { done += count(); }});
    done += count();
    CHECK(done == posted);
    for (int i = 0; i < 2; ++i) must(p.a.ep.post(dat::send{}));
    CHECK_FALSE(p.a.ep.post(dat::send{}));
  });
}

TEST_CASE("a shared queue that two threads fill while one of them empties it keeps all its entries, in every order",
          "[schedules]") {
  in_every_order(2, [](session& s) {
    const clean_world world;
    end a("fk1"), b("fk2");
    auto srq = must(b.pz.create_srq({.max_recv_dtos = 3}));
    a.make_ep();
    b.ep = must(b.pz.create_ep<dat::rc>(b.evd, srq));
    auto psp = must(b.ia.create_psp(service, b.evd));
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle(a, b);
    must(request_on(b.evd).accept(b.ep));
    settle(a, b);
    must(srq.post(dat::recv{}));
    must(a.ep.post(dat::send{}));
    must(a.ep.post(dat::send{})); // waits for a receive
    std::size_t done = 0;
    std::atomic<std::size_t> posted{1};
    const auto post = [&] { posted += srq.post(dat::recv{}).has_value(); };
    const auto take = [&] {
      b.evd.drain(
          [&](const auto& e) {
            if constexpr (requires { e.cookie(); }) ++done;
          },
          8);
    };
    s.together({post, [&] { post(), take(), post(); }});
    CHECK(posted >= 3); // two places were free
    take();
    CHECK(done == 2);
    while (srq.post(dat::recv{})) ++posted;
    CHECK(posted == 5); // the three of its capacity, and the two that were taken
  });
}

TEST_CASE("a post beside a disconnect completes once, or is refused, in every order", "[schedules]") {
  in_every_order(2, [](session& s) {
    const clean_world world;
    pair p;
    bool posted = false;
    s.together({[&] { posted = p.a.ep.post(dat::recv{}.cookie(7)).has_value(); }, [&] { must(p.a.ep.disconnect()); }});
    p.settle();
    std::size_t completed = 0, ends = 0;
    p.a.evd.drain(
        [&](const auto& e) {
          if constexpr (requires { e.cookie(); })
            ++completed;
          else
            ++ends;
        },
        8);
    CHECK(completed == std::size_t{posted});
    CHECK(ends == 1);
  });
}

TEST_CASE("an ia closes while another thread uses an evd that triggers a cno, in every order", "[schedules]") {
  const bool posts = GENERATE(true, false);
  INFO((posts ? "post" : "modify_cno"));
  in_every_order(2, [posts](session& s) {
    const clean_world world;
    auto ia = must(dat::ia::open("fk1", manual));
    auto evd = must(ia.create_evd<dat::stream::dto | dat::stream::software>(4));
    auto cno = must(ia.create_cno());
    if (posts) {
      must(evd.modify_cno(cno));
      cno = {}; // only the evd refers to it
    }
    s.together({[&] { must(ia.close(dat::close_mode::abrupt)); },
                [&] { posts ? (void)evd.post(dat::cookie(7)) : (void)evd.modify_cno(cno); }});
    is_error(evd.post(dat::cookie(8)), dat::return_type::invalid_handle);
  });
}

TEST_CASE("a software event beside an abrupt close is queued or returns invalid_handle, in every order",
          "[schedules]") {
  in_every_order(2, [](session& s) {
    software_queue q;
    std::optional<dat::expected<void>> posted;
    s.together({[&] { must(q.ia.close(dat::close_mode::abrupt)); }, [&] { posted = q.evd.post(dat::cookie(7)); }});
    if (!posted->has_value()) is_error(*posted, dat::return_type::invalid_handle);
  });
}
