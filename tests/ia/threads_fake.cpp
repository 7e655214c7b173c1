// Threads that wait, post, connect and take events at once, with both kinds of progress.
// SPDX-License-Identifier: BSL-1.0
#include "automatic_pair.hpp"
#include "dat_conf_lines.hpp"
#include "world.hpp"

#include <dat/memory.hpp>

#include <dat/detail/handle/core_access.hpp>

#include <support/worker.hpp>

#include <array>
#include <atomic>
#include <csignal>
#include <optional>
#include <poll.h>
#include <pthread.h>
#include <set>
#include <thread>
#include <vector>

using namespace unit;
using dat::ep_state;

namespace {

std::string next(end& e) {
  auto r = e.evd.wait(plenty);
  return r ? std::visit(describe{}, r.value()) : r.error().message();
}

} // namespace

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

TEST_CASE("a region that another thread registers is complete when a call finds it", "[lmr]") {
  const clean_world world;
  end a;
  std::array<char, 64> memory{};
  std::optional<region> ended = must(a.pz.register_memory(memory, all_rights));
  const auto of_ended = must(ended->slice(0, 8));
  ended.reset();
  // Relaxed, so that nothing but the region itself orders the threads.
  std::atomic<bool> over{false};
  std::atomic<std::size_t> looks{0};
  std::size_t made = 0;
  std::jthread other([&] {
    for (int i = 0; i < 20; ++i) {
      const auto made_now = a.pz.register_memory(memory, all_rights);
      made += made_now.has_value() ? 1 : 0;
      const std::size_t before = looks.load(std::memory_order_relaxed);
      while (looks.load(std::memory_order_relaxed) < before + 2) std::this_thread::yield();
    }
    over.store(true, std::memory_order_relaxed);
  });
  std::size_t refused = 0;
  while (!over.load(std::memory_order_relaxed)) {
    refused += dat::sync_rdma_read(a.ia, of_ended).has_value() ? 0 : 1; // looks at each region
    looks.fetch_add(1, std::memory_order_relaxed);
  }
  other.join();
  CHECK(made == 20);
  CHECK(refused == looks);
}

TEST_CASE("endpoints that two threads create at once have entries of their own", "[ep]") {
  const clean_world world;
  auto ia = must(dat::ia::open("fk1", manual));
  auto pz = must(ia.create_pz());
  using endpoints = std::vector<dat::ep<dat::rc>>;
  endpoints made[2];
  const auto creates = [&](endpoints& into, const dat::evd<all_streams>& evd) {
    for (int i = 0; i < 50; ++i)
      if (auto ep = pz.create_ep<dat::rc>(evd, {.max_request_dtos = 1, .max_recv_dtos = 1}))
        into.push_back(std::move(ep).value());
  };
  const auto first = must(ia.create_evd<all_streams>(256));
  const auto second = must(ia.create_evd<all_streams>(256));
  {
    const std::jthread one(creates, std::ref(made[0]), std::cref(first));
    const std::jthread two(creates, std::ref(made[1]), std::cref(second));
  }
  std::set<std::uint32_t> places;
  for (const endpoints& some : made)
    for (const auto& ep : some) places.insert(static_cast<std::uint32_t>(dat::detail::core_access::of(ep)->tag()));
  CHECK(places.size() == 100);
}

TEST_CASE("a thread adds and removes names while another one opens an adapter by its name", "[registry]") {
  const clean_world world;
  const names_of_program added;
  constexpr int rounds = 50;
  std::atomic<bool> over{false};
  std::atomic<int> opened{0};
  support::worker opens([&](support::worker& w) {
    while (!over) {
      w.check(dat::ia::open("fk1", manual).has_value());
      ++opened;
    }
  });
  auto r = must(dat::registry::system());
  const auto port = must(r.find("fk2")).port;
  int removed = 0;
  for (int i = 0; i < rounds || opened < rounds; ++i) {
    must(r.add({.name = "mine", .port = port}));
    removed += r.remove("mine").has_value() ? 1 : 0;
    must(r.find("fk1"));
    if (i >= rounds) std::this_thread::yield();
  }
  over = true;
  opens.join();
  CHECK(removed >= rounds);
  CHECK(dat::ia::open("mine", manual).error().type() == dat::return_type::provider_not_found);
}
