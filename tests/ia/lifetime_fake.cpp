// Lifetimes: handles in any order, the service thread as the last owner, exhausted memory, and both kinds of progress.
// SPDX-License-Identifier: BSL-1.0
#include "allocations.hpp"
#include "world.hpp"

#include <dat/srq.hpp>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <new>
#include <optional>
#include <poll.h>
#include <pthread.h>
#include <thread>

using namespace unit;
using dat::ep_state;

namespace {

/// The result of `call`; if it fails for lack of memory, the result of a second call with memory.
template <class Call>
auto with_memory_again(Call& call, int& failures) {
  auto r = call();
  if (!r) {
    INFO(r.error().message());
    CHECK(out_of_memory::failed());
    CHECK(r.error().type() == dat::return_type::insufficient_resources);
    ++failures;
    out_of_memory::stop();
    r = call();
    REQUIRE(r);
  }
  return r;
}

std::string next(end& e) {
  auto r = e.evd.wait(plenty);
  return r ? std::visit(describe{}, r.value()) : r.error().message();
}

/// Two sides with service threads of their own.
struct automatic_pair {
  end a{"fk1", automatic};
  end b{"fk2", automatic};
  dat::psp psp = must(b.ia.create_psp(service, b.evd));
  automatic_pair() {
    a.make_ep();
    b.make_ep();
    connect();
  }
  void connect() {
    must(a.ep.connect(b.ia.address(), service, plenty));
    must(must(b.evd.wait_for<dat::connection_request>(plenty)).accept(b.ep));
    must(a.evd.wait_for<dat::established>(plenty));
    must(b.evd.wait_for<dat::established>(plenty));
  }
};

} // namespace

TEST_CASE("running out of memory is an error of the call and leaves nothing behind",
          "[PSP-020][CONN-061][EVD-004][IA-016][LMR-028][PZ-004]") {
  if (!refuses_allocations) SKIP("the requests for memory belong to the sanitizer");
  if (dat::detail::checked_build) SKIP("a checked build allocates to watch posted memory");
  int failures = 0;
  for (int n = 0;; ++n) {
    clean_world world;
    end b("fk2");
    auto psp = must(b.ia.create_psp(service, b.evd));
    b.make_ep();
    std::array<char, 64> memory{};
    out_of_memory limit(n);
    const auto step = [&](auto call) { return with_memory_again(call, failures); };
    auto ia = step([] { return dat::ia::open("fk1", manual); });
    auto pz = step([&] { return ia.value().create_pz(); });
    auto completions_only = step([&] { return ia.value().create_evd<dat::stream::dto>(8); });
    auto evd = step([&] { return ia.value().create_evd<all_streams>(8); });
    auto mem = step([&] { return pz.value().register_memory(memory, all_rights); });
    auto listener = step([&] { return ia.value().create_psp(service, evd.value()); });
    auto ep = step([&] { return pz.value().create_ep<dat::rc>(evd.value()); });
    must(step([&] { return ep.value().connect(b.ia.address(), service, plenty); }));
    settle(ia.value(), b.ia);
    // The request itself needs memory at the peer. A peer without memory refuses the request, like a full evd.
    auto seen = take(evd.value());
    if (seen == events{"non_peer_rejected 28"}) {
      CHECK(out_of_memory::failed());
      ++failures;
      out_of_memory::stop();
      must(ep.value().reset());
      must(ep.value().connect(b.ia.address(), service, plenty));
      settle(ia.value(), b.ia);
      seen = take(evd.value());
    }
    CHECK(seen.empty());
    must(request_on(b.evd).accept(b.ep));
    settle(ia.value(), b.ia);
    CHECK(take(evd.value()) == events{"established"});
    must(b.ep.post(dat::recv{}));
    must(ep.value().post(dat::send{}));
    CHECK(take(evd.value()) == events{"sent 0"});
    must(ep.value().disconnect());
    settle(ia.value(), b.ia);
    must(ep.value().reset());
    if (!out_of_memory::failed()) break;
    REQUIRE(n < 100);
  }
  CHECK(failures > 9);
}

TEST_CASE("exhausted memory is an error of the srq call that needs it; posts and ends need none",
          "[SRQ-015][SRQ-067][SRQ-081][EP-030]") {
  if (!refuses_allocations) SKIP("the requests for memory belong to the sanitizer");
  if (dat::detail::checked_build) SKIP("a checked build allocates to watch posted memory");
  const fake::with resizable{fake::current(), [](fake::manners& m) { m.srq_resize = true; }};
  int failures = 0;
  for (int n = 0;; ++n) {
    clean_world world;
    end a("fk1");
    end b("fk2");
    a.make_ep();
    auto apart = must(b.ia.create_evd<dat::stream::dto | dat::stream::software>(8));
    auto psp = must(b.ia.create_psp(service, b.evd));
    std::optional<out_of_memory> limit(n);
    const auto step = [&](auto call) { return with_memory_again(call, failures); };
    auto srq = step([&] { return b.pz.create_srq({.max_recv_dtos = 3}); });
    must(step([&] { return srq.value().resize(20); }));
    auto one = step([&] { return b.pz.create_ep<dat::rc>(b.evd, srq.value()); });
    auto two =
        step([&] { return b.pz.create_ep<dat::rc>({.recv = apart, .request = b.evd, .connect = b.evd}, srq.value()); });
    const bool done = !out_of_memory::failed();
    limit.reset();
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle(a, b);
    must(request_on(b.evd).accept(two.value()));
    settle(a, b);
    {
      const out_of_memory none(0);
      for (int i = 0; i < 4; ++i) must(srq.value().post(dat::recv{b.at(0, 8)}.cookie(i)));
      CHECK_FALSE(out_of_memory::failed());
      must(a.ep.post(dat::send{a.at(0, 8)}.suppress_completion()));
      CHECK(take(apart) == events{"received 0"});
      must(a.ep.post(dat::send{a.at(0, 8)}.suppress_completion()));
      CHECK_FALSE(out_of_memory::failed());
      must(two.value().close());
    }
    CHECK(take(apart).empty());
    CHECK(must(srq.value().query()).outstanding == 2);
    must(one.value().close());
    must(srq.value().close());
    if (done) break;
  }
  CHECK(failures >= 6);
}

TEST_CASE("the data path allocates nothing", "[DTO-074]"
                                             "[REQ-100][SAFE-022]") {
  if (!refuses_allocations) SKIP("the requests for memory belong to the sanitizer");
  if (dat::detail::checked_build) SKIP("a checked build allocates to watch posted memory");
  clean_world world;
  pair p;
  const auto target = p.b.mem.remote();
  must(p.b.ep.post(dat::recv{p.b.at(0, 8)}));
  out_of_memory limit(0);
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), target}, dat::rdma_read{p.a.at(0, 8), target}, dat::send{}));
  must(p.b.ep.post(dat::recv{p.b.at(0, 8)}));
  std::size_t n = 0;
  while (p.a.evd.drain([](const auto&) {}) != 0) ++n;
  CHECK(p.b.evd.dequeue());
  must(p.a.ep.disconnect());
  CHECK_FALSE(out_of_memory::failed());
  CHECK(n == 1);
}

TEST_CASE("handles may be destroyed in any order, and each object lives as long as it is used",
          "[IA-045][PZ-007][EP-038]") {
  const auto order = GENERATE(range(0, 24));
  clean_world world;
  end b("fk2");
  auto psp = must(b.ia.create_psp(service, b.evd));
  b.make_ep();
  {
    auto a = std::make_unique<end>("fk1");
    a->make_ep();
    must(a->ep.connect(b.ia.address(), service, plenty));
    settle(*a, b);
    must(request_on(b.evd).accept(b.ep));
    settle(*a, b);
    std::vector<int> which{0, 1, 2, 3};
    for (int i = 0; i < order; ++i) std::next_permutation(which.begin(), which.end());
    for (const int w : which) {
      if (w == 0) a->ia = {};
      if (w == 1) a->pz = {};
      if (w == 2) a->evd = {};
      if (w == 3) {
        must(a->ep.disconnect());
        a->ep = {};
      }
    }
  }
  for (int i = 0; i < 8; ++i) b.ia.run();
  CHECK(b.take() == events{"established", "disconnected"});
}

TEST_CASE("closing an object in use is refused and changes nothing", "[PZ-005][PZ-006][EVD-015][IA-034]") {
  clean_world world;
  pair p;
  CHECK(p.a.pz.close().error().subtype() == dat::return_subtype::pz_in_use);
  CHECK(p.a.evd.close().error().type() == dat::return_type::invalid_state);
  CHECK(p.a.ia.close(dat::close_mode::graceful).error().subtype() == dat::return_subtype::ia_in_use);
  CHECK(p.b.evd.close().error().type() == dat::return_type::invalid_state);
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 1), p.b.mem.remote()}));
  CHECK(p.a.take() == events{"written 0"});
  must(p.a.ep.close());
  CHECK(p.a.pz.close().error().subtype() == dat::return_subtype::pz_in_use); // the region keeps the zone in use
  must(p.a.mem.close());
  must(p.a.pz.close());
  must(p.a.evd.close());
  must(p.a.ia.close(dat::close_mode::graceful));
  CHECK_FALSE(p.a.ia);
  CHECK(p.a.ia.close().error().type() == dat::return_type::invalid_handle);
  p.b.ia.run();
}

TEST_CASE("every handle returns an error after an abrupt close", "[IA-030][IA-031][IA-033][IA-047][EVENT-105]") {
  clean_world world;
  pair p;
  must(p.a.ep.post(dat::recv{p.a.at(0, 8)}.cookie(1)));
  const auto segment = p.a.at(0, 8);
  must(p.a.ia.close());
  using dat::return_type;
  CHECK(p.a.ep.post(dat::recv{segment}).error().type() == return_type::invalid_handle);
  CHECK(p.a.ep.post(dat::send{segment}).error().type() == return_type::invalid_handle);
  CHECK(p.a.ep.connect(p.b.ia.address(), service, plenty).error().type() == return_type::invalid_handle);
  CHECK(p.a.ep.disconnect().error().type() == return_type::invalid_handle);
  CHECK(p.a.ep.reset().error().type() == return_type::invalid_handle);
  CHECK(p.a.ep.state() == ep_state::disconnected);
  CHECK(p.a.ep.native_handle() == nullptr);
  CHECK(p.a.evd.dequeue().error().type() == return_type::invalid_handle);
  CHECK(p.a.evd.wait(0us).error().type() == return_type::invalid_handle);
  CHECK(p.a.take().empty());
  CHECK(p.a.mem.slice(0, 1).error().type() == return_type::invalid_handle);
  CHECK(p.a.mem.whole().empty());
  CHECK(p.a.pz.register_memory(p.a.memory, all_rights).error().type() == return_type::invalid_handle);
  CHECK(p.a.pz.create_ep<dat::rc>(p.b.evd).error().type() == return_type::invalid_handle);
  CHECK(p.a.ep.close().error().type() == return_type::invalid_handle);
  CHECK(p.a.mem.close().error().type() == return_type::invalid_handle);
  CHECK(p.a.pz.close().error().type() == return_type::invalid_handle);
  CHECK(p.a.evd.close().error().type() == return_type::invalid_handle);
  p.b.ia.run();
  CHECK(p.b.take() == events{"disconnected"});
}

TEST_CASE("a waiter is released by an abrupt close of its ia", "[IA-033][EVENT-103][ERR-013]") {
  const auto how = GENERATE(manual, automatic);
  const auto completions_only = GENERATE(false, true);
  clean_world world;
  auto ia = must(dat::ia::open("fk1", how));
  auto completions = must(ia.create_evd<dat::stream::dto>(8));
  auto all = must(ia.create_evd<all_streams>(8));
  std::atomic<bool> waiting = false;
  dat::return_type result = dat::return_type::success;
  std::jthread waiter([&] {
    waiting = true;
    const auto wait = [&](auto& evd) { result = evd.wait(plenty).error().type(); };
    completions_only ? wait(completions) : wait(all);
  });
  while (!waiting) std::this_thread::yield();
  // At this time, the waiter may be asleep, or before its sleep.
  must(ia.close());
  waiter.join();
  CHECK((result == dat::return_type::abort || result == dat::return_type::invalid_handle));
}

TEST_CASE("a wait that begins while its ia is closed uses no object that has ended", "[IA-033][EVENT-103]") {
  const auto how = GENERATE(manual, automatic);
  const auto completions_only = GENERATE(false, true);
  clean_world world;
  for (int round = 0; round < 200; ++round) {
    auto ia = must(dat::ia::open("fk1", how));
    auto completions = must(ia.create_evd<dat::stream::dto>(8));
    auto all = must(ia.create_evd<all_streams>(8));
    std::atomic<bool> ready = false;
    std::atomic<bool> go = false;
    dat::return_type result = dat::return_type::success;
    std::jthread waiter([&] {
      const auto wait = [&](auto& evd) { result = evd.wait(plenty).error().type(); };
      ready = true;
      while (!go) std::this_thread::yield();
      completions_only ? wait(completions) : wait(all);
    });
    while (!ready) std::this_thread::yield();
    go = true;
    must(ia.close());
    waiter.join();
    REQUIRE((result == dat::return_type::abort || result == dat::return_type::invalid_handle));
  }
}

TEST_CASE("a visitor of a drain with a time limit may close the ia abruptly", "[IA-033][EVENT-103]") {
  const auto how = GENERATE(manual, automatic);
  clean_world world;
  auto ia = must(dat::ia::open("fk1", how));
  auto evd = must(ia.create_evd<dat::stream::software>(8));
  must(evd.post(1));
  must(evd.post(1));
  std::size_t visited = 0;
  const auto taken = evd.wait_and_drain(
      [&](const dat::software_event&) {
        ++visited;
        must(ia.close());
      },
      plenty);
  CHECK(must(dat::expected<std::size_t>(taken)) == visited);
  CHECK(visited == 1);
  CHECK(evd.wait(0us).error().type() == dat::return_type::invalid_handle);
}

TEST_CASE("a second thread cannot wait on the same evd", "[EVENT-054]") {
  clean_world world;
  auto ia = must(dat::ia::open("fk1", automatic));
  auto evd = must(ia.create_evd<all_streams>(8));
  std::atomic<int> refused = 0;
  std::atomic<int> ended = 0;
  const auto wait = [&] {
    const auto r = evd.wait(plenty);
    if (r.error().type() == dat::return_type::invalid_state) {
      CHECK(r.error().subtype() == dat::return_subtype::evd_waiter);
      ++refused;
    } else {
      ++ended;
    }
  };
  std::jthread one(wait);
  std::jthread two(wait);
  while (refused == 0) std::this_thread::yield(); // the second waiter is refused
  must(ia.close());
  one.join();
  two.join();
  CHECK(refused == 1);
  CHECK(ended == 1);
}

TEST_CASE("a signal interrupts a waiter", "[COMP-082][EVENT-055][ERR-027]") {
  clean_world world;
  end e("fk1", automatic);
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) {};
  sigaction(SIGUSR2, &action, &before);
  std::atomic<bool> done = false;
  dat::return_type result = dat::return_type::success;
  std::jthread waiter([&] {
    result = e.evd.wait(plenty).error().type();
    done = true;
  });
  while (!done) {
    pthread_kill(waiter.native_handle(), SIGUSR2); // until a signal arrives while the thread sleeps
    std::this_thread::yield();
  }
  waiter.join();
  CHECK(result == dat::return_type::interrupted_call);
  sigaction(SIGUSR2, &before, nullptr);
}

TEST_CASE("the service thread may release the last reference to an ia", "[IA-043]") {
  clean_world world;
  for (int round = 0; round < 60; ++round) {
    automatic_pair p;
    switch (round % 4) {
    case 0:
      must(p.a.ep.disconnect());
      break;
    case 1:
      must(p.b.ep.disconnect());
      break;
    case 2:
      fake::async(IBV_EVENT_QP_FATAL, p.a.ep.native_handle());
      break;
    default: // a connection attempt under way
      must(p.a.ep.disconnect());
      must(p.a.ep.reset());
      must(p.a.ep.connect(p.b.ia.address(), service, plenty));
    }
    if (round % 8 < 4) {
      must(p.a.ep.close());
      p.a.ia = {};
    }
    // All handles are destroyed here, while messages are in flight.
  }
  // The last threads may still be ending.
  while (fake::live().total() != 0) std::this_thread::yield();
}

TEST_CASE("one thread may take events while another ends the endpoints", "[COMP-074][EP-037]"
                                                                         "[SAFE-030]") {
  clean_world world;
  end a("fk1", automatic);
  end b("fk2", automatic);
  std::jthread consumer([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      a.evd.drain([](const auto&) {});
      b.evd.drain([](const auto&) {});
    }
  });
  for (int round = 0; round < 100; ++round) {
    auto ep = must(a.pz.create_ep<dat::rc>(a.evd));
    for (std::uint64_t i = 0; i < 8; ++i) must(ep.post(dat::recv{}.cookie(i)));
    must(ep.connect(b.ia.address(), 9999, plenty)); // the refusal flushes the receives
    if (round % 2 == 0)
      while (ep.state() != ep_state::disconnected) std::this_thread::yield();
    must(ep.close());
  }
  consumer.request_stop();
  consumer.join();
}

TEST_CASE("a post does not wait for a connect that another thread is inside", "[EPS-084]") {
  clean_world world;
  end a("fk1");
  end b("fk2");
  auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep();
  b.make_ep();
  bool posted = false;
  fake::intercept(fake::call::rdma_bind_addr, [&] { // connect holds the lock of the endpoint
    fake::intercept(fake::call::rdma_bind_addr, {});
    std::jthread other([&] { posted = a.ep.post(dat::recv{a.at(0, 8)}.cookie(1)) && !a.ep.post(dat::send{}); });
    other.join();
  });
  must(a.ep.connect(b.ia.address(), service, plenty));
  CHECK(posted); // only the receive is posted; the send is refused
  settle(a, b);
  must(request_on(b.evd).accept(b.ep));
  settle(a, b);
  CHECK(a.take() == events{"established"});
  must(b.ep.post(dat::send{}));
  CHECK(a.take() == events{"received 1"});
}

TEST_CASE("the queue pair number may be read while the endpoint is reset", "[EPS-084]") {
  clean_world world;
  automatic_pair p;
  const dat::ep_ref name = p.a.ep;
  std::uint64_t sum = 0;
  std::jthread reader([&](const std::stop_token& stop) {
    do // reads at least once, even if the thread starts late
      sum += name.number() + static_cast<unsigned>(name.state());
    while (!stop.stop_requested());
  });
  for (int i = 0; i < 20; ++i) {
    must(p.a.ep.disconnect());
    must(p.a.evd.wait_for<dat::disconnected>(plenty) ? dat::expected<void>(dat::success()) : dat::success());
    must(p.b.ep.disconnect());
    must(p.a.ep.reset());
    must(p.b.ep.reset());
    unit::take(p.a.evd);
    unit::take(p.b.evd);
    must(p.a.ep.connect(p.b.ia.address(), service, plenty));
    must(must(p.b.evd.wait_for<dat::connection_request>(plenty)).accept(p.b.ep));
    must(p.a.evd.wait_for<dat::established>(plenty));
    must(p.b.evd.wait_for<dat::established>(p.b.ep, plenty));
  }
  reader.request_stop();
  reader.join();
  CHECK(sum > 0);
}

TEST_CASE("one thread sends, another receives, a third takes both sides' events", "[DTO-123][DTO-088]") {
  clean_world world;
  automatic_pair p;
  constexpr std::uint64_t n = 2000;
  std::atomic<std::uint64_t> sent = 0;
  std::atomic<std::uint64_t> got = 0;
  std::jthread sender([&] {
    for (std::uint64_t i = 0; i < n; ++i)
      while (!p.a.ep.post(dat::send{p.a.at(0, 8)}.cookie(i))) std::this_thread::yield();
  });
  std::jthread receiver([&] {
    for (std::uint64_t i = 0; i < n; ++i)
      while (!p.b.ep.post(dat::recv{p.b.at(0, 8)}.cookie(i))) std::this_thread::yield();
  });
  while (sent < n || got < n) {
    p.a.evd.drain(dat::overloaded{[&](const dat::send_done& e) { sent += e.cookie().value() == sent; },
                                  [](const auto&) { FAIL_CHECK("another event"); }});
    p.b.evd.drain(dat::overloaded{[&](const dat::recv_done& e) { got += e.cookie().value() == got; },
                                  [](const auto&) { FAIL_CHECK("another event"); }});
  }
  sender.join();
  receiver.join();
  CHECK(sent == n);
  CHECK(got == n);
}

TEST_CASE("a connection is established through the consumer's own poll set", "[CONN-002]") {
  clean_world world;
  end a("fk1");
  end b("fk2");
  auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep();
  b.make_ep();
  REQUIRE(a.ia.fd() >= 0);
  REQUIRE(b.ia.fd() != a.ia.fd());
  pollfd fds[2] = {{a.ia.fd(), POLLIN, 0}, {b.ia.fd(), POLLIN, 0}};
  CHECK(::poll(fds, 2, 0) == 0);
  must(a.ep.connect(b.ia.address(), service, 10s));
  bool up_a = false;
  bool up_b = false;
  while (!up_a || !up_b) {
    REQUIRE(::poll(fds, 2, 20'000) > 0);
    if (fds[0].revents != 0) a.ia.run();
    if (fds[1].revents != 0) b.ia.run();
    a.evd.drain(dat::overloaded{[&](const dat::established&) { up_a = true; }, [](const auto&) {}});
    b.evd.drain(dat::overloaded{[&](dat::cr& r) { must(r.accept(b.ep)); },
                                [&](const dat::established&) { up_b = true; }, [](const auto&) {}});
  }
  CHECK(::poll(fds, 2, 0) == 0);
  end c("fk1", automatic);
  CHECK(c.ia.fd() == -1);
}

TEST_CASE("with manual progress, work is done in calls only, and ia.run waits up to its limit") {
  clean_world world;
  end a("fk1");
  end b("fk2");
  auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep();
  must(a.ep.connect(b.ia.address(), service, plenty));
  a.ia.run(std::chrono::milliseconds(-1)); // does not wait indefinitely
  a.ia.run(std::chrono::milliseconds(-1));
  a.ia.run();
  b.ia.run(1s); // returns as soon as there is work
  CHECK(b.take() == events{"request"});
  a.ia.run(1s);
  CHECK(a.take() == events{"non_peer_rejected 35"});
  a.ia.run(1ms);
}

TEST_CASE("an ia connects to itself, and two ias of one adapter connect to each other", "[CONN-070][IA-046]") {
  clean_world world;
  end one("fk1");
  end two("fk1");
  auto psp = must(one.ia.create_psp(service, one.evd));
  one.make_ep();
  auto other = must(one.pz.create_ep<dat::rc>(one.evd));
  must(one.ep.connect(one.ia.address(), service, plenty));
  settle(one, two);
  must(request_on(one.evd).accept(other));
  settle(one, two);
  CHECK(one.take() == events{"established", "established"});
  must(other.post(dat::recv{one.at(0, 8)}.cookie(1)));
  must(one.ep.post(dat::send{one.at(8, 8)}.cookie(2)));
  auto seen = one.take();
  CHECK(seen.size() == 2);
  two.make_ep();
  must(two.ep.connect(one.ia.address(), service, plenty));
  settle(one, two);
  auto third = must(one.pz.create_ep<dat::rc>(one.evd));
  must(request_on(one.evd).accept(third));
  settle(one, two);
  CHECK(two.take() == events{"established"});
  must(one.ia.close());
  settle(two, two);
  CHECK(two.take() == events{"disconnected"});
}

TEST_CASE("a visitor may post, accept, reset and end endpoints", "[EVENT-002]") {
  clean_world world;
  SECTION("merged") {
    pair p;
    for (std::uint64_t i = 0; i < 4; ++i) must(p.b.ep.post(dat::recv{p.b.at(0, 8)}.cookie(i)));
    for (int i = 0; i < 4; ++i) must(p.a.ep.post(dat::send{}));
    int count = 0;
    p.b.evd.drain(dat::overloaded{[&](const dat::recv_done& r) {
                                    if (++count == 1) must(r.ep().post(dat::recv{p.b.at(0, 8)}));
                                    if (count == 2) must(p.b.ep.close());
                                  },
                                  [](const auto&) { FAIL_CHECK("another event"); }});
    CHECK(count == 2); // the other sends were dropped with their endpoint
    p.settle();
    p.a.evd.drain(dat::overloaded{[&](const dat::disconnected& d) {
                                    CHECK(d.ep() == p.a.ep);
                                    must(p.a.ep.reset());
                                    must(p.a.ep.close());
                                    CHECK(d.ep().number() != 0); // the event keeps its endpoint
                                  },
                                  [](const auto&) {}});
    CHECK_FALSE(p.a.ep);
  }
  SECTION("lean") {
    pair p;
    auto completions = must(p.b.ia.create_evd<dat::stream::dto>(16));
    auto completions_only =
        must(p.b.pz.create_ep<dat::rc>({.recv = completions, .request = completions, .connect = p.b.evd}));
    for (std::uint64_t i = 0; i < 4; ++i) must(completions_only.post(dat::recv{p.b.at(0, 8)}.cookie(i)));
    auto near = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
    must(near.connect(p.b.ia.address(), service, plenty));
    p.settle();
    p.b.evd.drain(dat::overloaded{[&](dat::cr& r) { must(r.accept(completions_only)); }, [](const auto&) {}});
    p.settle();
    for (int i = 0; i < 4; ++i) must(near.post(dat::send{}));
    int count = 0;
    completions.drain(dat::overloaded{[&](const dat::recv_done&) {
                                        if (++count == 2) must(completions_only.close());
                                      },
                                      [](const auto&) { FAIL_CHECK("another event"); }});
    CHECK(count == 2);
  }
}

TEST_CASE("with a service thread, connections are established without calls", "[EPS-015][CONN-003]") {
  clean_world world;
  automatic_pair p;
  must(p.b.ep.post(dat::recv{p.b.at(0, 8)}.cookie(4)));
  must(p.a.ep.post(dat::send{p.a.at(0, 8)}.cookie(3)));
  CHECK(next(p.a) == "sent 3");
  CHECK(next(p.b) == "received 4");
  must(p.a.ep.disconnect(dat::close_mode::graceful));
  CHECK(next(p.a) == "disconnected");
  CHECK(next(p.b) == "disconnected");
  must(p.a.ep.reset());
  must(p.b.ep.reset());
  p.connect();
}

TEST_CASE("taking and posting do not allocate, however full an evd is", "[evd]") {
  const clean_world clean;
  constexpr auto S = all_streams | dat::stream::software;
  end a;
  end b("fk2");
  auto evd = must(a.ia.create_evd<S>(16));
  auto psp = must(b.ia.create_psp(service, b.evd));
  auto ep = must(a.pz.create_ep<dat::rc>(evd, {.max_request_dtos = 8, .max_recv_dtos = 8}));
  b.make_ep();
  must(ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  for (int i = 0; i < 8; ++i) must(b.ep.post(dat::recv{}));
  must(request_on(b.evd).accept(b.ep));
  settle(a, b);
  (void)take(evd);
  for (std::uint64_t i = 0; i < 16; ++i) must(evd.post(i));
  CHECK(evd.post(16).error() == dat::error(dat::return_type::queue_full));
  for (std::uint64_t i = 0; i < 8; ++i) must(ep.post(dat::send{}.cookie(i)));
  std::size_t sent = 0;
  std::size_t software = 0;
  {
    const out_of_memory at_once(0);
    if (evd.wait_for<dat::send_done>(0us)) ++sent; // moves all completions to the ring
    while (evd.drain(dat::overloaded{[&](const dat::send_done&) { ++sent; },
                                     [&](const dat::software_event&) { ++software; }, [](const auto&) {}}) != 0) {
    }
  }
  CHECK_FALSE(out_of_memory::failed()); // no allocation was attempted
  CHECK(sent == 8);
  CHECK(software == 16);
}
