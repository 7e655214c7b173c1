// Several threads at once, as the interface allows, under load. ThreadSanitizer runs this program, too.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <dat/ep_params.hpp>
#include <dat/memory.hpp>
#include <dat/rmr.hpp>
#include <dat/srq.hpp>
#include <support/signal_handler.hpp>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <sched.h>
#include <string>
#include <sys/socket.h>
#include <thread>

namespace device {
namespace {

/// The communicator of stream sockets of the adapter's address.
dat::communicator tcp_of(const side& s) {
  return {s.ia.address().family() == dat::address_family::ipv4 ? AF_INET : AF_INET6, SOCK_STREAM, 0};
}

} // namespace

TEST_CASE("one thread posts, another takes completions, a third waits for the connection's end",
          "[threads][DTO-088][DTO-123][EVENT-107][EVD-066]") {
  two_sides link;
  auto completions_a = must(link.a.ia.create_evd<dat::stream::dto>(256));
  auto completions_b = must(link.b.ia.create_evd<dat::stream::dto>(256));
  auto active =
      must(link.a.pz.create_ep<dat::rc>({.recv = completions_a, .request = completions_a, .connect = link.a.evd}));
  auto passive =
      must(link.b.pz.create_ep<dat::rc>({.recv = completions_b, .request = completions_b, .connect = link.b.evd}));
  link.connect(active, passive);
  constexpr std::uint64_t messages = 2000;

  background ends([&] { return must(link.a.evd.wait_for<dat::disconnected>(patience * 4)); });
  std::atomic<std::uint64_t> receives{0};
  background receive_poster([&] {
    while (receives < messages) {
      const auto r = passive.post(dat::recv{}.cookie(receives.load()));
      if (r)
        ++receives;
      else if (r.assume_error().type() != type::insufficient_resources)
        must(dat::expected<void>(r.assume_error()));
    }
  });
  background receiver([&] {
    std::uint64_t expected = 0;
    while (expected < messages) {
      auto e = must(completions_b.wait(patience));
      if (std::get<dat::recv_done>(e).cookie() != dat::cookie(expected++)) fail("out of order", place::here());
    }
  });
  background sender([&] {
    for (std::uint64_t i = 0; i < messages;) {
      if (!may_send(i, receives)) continue;
      const auto r = active.post(dat::send{}.cookie(i));
      if (r)
        ++i;
      else if (r.assume_error().type() != type::insufficient_resources)
        must(dat::expected<void>(r.assume_error()));
    }
  });
  std::uint64_t sent = 0;
  while (sent < messages)
    completions_a.drain(dat::overloaded{[&](const dat::send_done& s) {
                                          if (s.cookie() != dat::cookie(sent++)) fail("out of order", place::here());
                                        },
                                        [](const auto& e) { fail(describe(e), place::here()); }},
                        64);
  sender.get();
  receiver.get();
  receive_poster.get();
  CHECK_FALSE(ends.done());
  must(passive.disconnect());
  CHECK(ends.get().ep() == active);
}

TEST_CASE("several threads drain one merged evd, and each event is taken once",
          "[threads][EVENT-003][MODEL-009][EVD-066]") {
  connected_pair link({.active = {.max_request_dtos = 64}, .passive = {.max_recv_dtos = 64}});
  constexpr std::uint64_t messages = 1000;
  std::vector<std::atomic<int>> seen(messages);
  std::atomic<std::uint64_t> taken{0};
  const auto taker = [&] {
    while (taken < messages) {
      const auto n = link.b.evd.drain(dat::overloaded{[&](const dat::recv_done& r) { ++seen[r.cookie().value()]; },
                                                      [](const auto& e) { fail(describe(e), place::here()); }},
                                      4);
      taken += n;
      const auto e = link.b.evd.dequeue();
      if (!e) continue;
      ++seen[std::get<dat::recv_done>(e.assume_value()).cookie().value()];
      ++taken;
    }
  };
  background one(taker);
  background two(taker);
  std::atomic<std::uint64_t> receives{0};
  background sender([&] {
    for (std::uint64_t i = 0; i < messages;) {
      if (!may_send(i, receives)) continue;
      const auto r = link.active.post(dat::send{});
      if (r)
        ++i;
      else
        (void)link.a.evd.drain([](const auto&) {});
    }
  });
  for (std::uint64_t i = 0; i < messages;) {
    const auto r = link.passive.post(dat::recv{}.cookie(i));
    if (r)
      receives = ++i;
    else
      std::this_thread::yield();
  }
  one.get();
  two.get();
  sender.get();
  CHECK(taken == messages);
  CHECK(std::all_of(seen.begin(), seen.end(), [](const auto& n) { return n == 1; }));
  SHOWS("EVENT-107");
}

TEST_CASE("endpoints and evds end while messages arrive for them, and the thread that notifies meets neither",
          "[threads][SAFE-030]") {
  side a(0);
  side b(1);
  auto cno = must(b.ia.create_cno());
  const auto port = next_port();
  const auto psp = must(b.ia.create_psp(port, b.evd));
  for (int round = 0; round < 12; ++round) {
    auto evd = must(b.ia.create_evd<all_streams>(64));
    must(evd.modify_cno(cno));
    auto passive = must(b.pz.create_ep<dat::rc>(evd));
    for (int i = 0; i < 16; ++i) must(passive.post(dat::recv{}));
    auto active = a.make_ep();
    must(active.connect(b.ia.address(), port, patience));
    must(next<dat::connection_request>(b.evd).accept(passive));
    (void)next<dat::established>(a.evd);
    for (int i = 0; i < 16; ++i) must(active.post(dat::send{}.suppress_completion()));
    for (int i = 0; i < round; ++i) (void)cno.wait(0us); // in each round, another number of messages has arrived
    CHECK(passive.close().has_value());
    CHECK(evd.close().has_value());
    bool ended = false;
    while (!ended) { // sends that had not arrived are flushed
      const auto e = must(a.evd.wait(patience));
      ended = std::holds_alternative<dat::disconnected>(e) || std::holds_alternative<dat::connection_broken>(e);
    }
    must(active.close());
    while (a.evd.dequeue()) {
    }
  }
  CHECK(cno.close().has_value()); // no evd of the cno is left
  CHECK(is_empty(b.evd));
}

TEST_CASE("threads connect, use and end endpoints of one adapter at the same time",
          "[threads][CONN-063][EPS-084][EPS-085][EVENT-100][EP-015][PZ-003][LMR-027][EVD-009]") {
  side a(0);
  side b(1);
  const auto work = [&](int times) {
    // Each thread has its own evds and service point, and shares the adapters and zones.
    auto here = must(a.ia.create_evd<all_streams>(64));
    auto there = must(b.ia.create_evd<all_streams>(64));
    const auto port = next_port();
    const auto psp = must(b.ia.create_psp(port, there));
    auto pz = must(a.ia.create_pz());
    buffer out(pz, 256);
    buffer in(b.pz, 256);
    const auto make_active = [&] { return must(pz.create_ep<dat::rc>(here, {.comm = tcp_of(b)})); };
    auto active = make_active();
    auto passive = must(b.pz.create_ep<dat::rc>(there));
    for (int i = 0; i < times; ++i) {
      must(passive.post(dat::recv{in.lmr}));
      must(i % 2 == 0 ? active.connect(b.ia.address(), port, patience)
                      : active.common_connect(b.ia.address().with_port(port.port()), patience));
      auto request = there.wait_for<dat::connection_request>(patience);
      if (!request) { // the event on the other evd has more detail
        const auto e = here.dequeue();
        fail("round " + std::to_string(i) + ": " + request.assume_error().message() + "; the active side has " +
                 (e ? describe(e.assume_value()) : "nothing") + " and is " + std::string(to_string(active.state())),
             place::here());
      }
      must(request.assume_value().accept(passive));
      must(here.wait_for<dat::established>(patience));
      must(active.post(dat::send{out.lmr}));
      must(there.wait_for<dat::established>(patience));
      must(there.wait_for<dat::recv_done>(patience));
      must(here.wait_for<dat::send_done>(patience));
      if (i == 0) {
        auto duplicate = make_active();
        must(duplicate.dup_connect(active, patience));
        must(must(there.wait_for<dat::connection_request>(patience)).reject());
        must(here.wait_for<dat::peer_rejected>(patience));
      }
      if (i % 3 == 2) { // replaces the endpoint while it is connected
        active = make_active();
        (void)must(there.wait_for<dat::disconnected>(patience));
      } else {
        must((i % 3 == 0 ? active : passive).disconnect());
        (void)must(here.wait_for<dat::disconnected>(patience));
        (void)must(there.wait_for<dat::disconnected>(patience));
        must(active.reset());
      }
      must(passive.reset());
    }
  };
  constexpr int rounds = 12; // a multiple of three, which is the number of ways to end
  std::atomic<int> rounds_done{0};
  std::list<background<std::function<void()>>> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { work(rounds), rounds_done += rounds; });
  for (auto& t : threads) t.get();
  CHECK(rounds_done == 4 * rounds);
  SHOWS("PSP-013", "CONN-083", "CONN-091", "CONN-084", "EVENT-006");
  CHECK(is_empty(a.evd));
  CHECK(is_empty(b.evd));
}

TEST_CASE("queries of an endpoint are consistent snapshots while connections come and go",
          "[threads][SAFE-024][EP-047]") {
  two_sides link;
  auto active = link.a.make_ep();
  auto passive = link.b.make_ep();
  std::atomic<bool> stop{false};
  background asker([&] {
    int asked = 0;
    for (; !stop || asked < 100; ++asked)
      for (const auto* ep : {&active, &passive}) {
        const auto q = must(ep->query());
        if (q.state == state::connected && !q.remote_address) fail("connected to nobody", place::here());
      }
    return asked;
  });
  for (int i = 0; i < 10; ++i) {
    link.connect(active, passive);
    link.disconnect(active, passive);
    must(active.reset());
    must(passive.reset());
  }
  stop = true;
  CHECK(asker.get() >= 100);
}

TEST_CASE("when several threads request one port, at most one of them gets it", "[threads]") {
  side b(1);
  for (int round = 0; round < 10; ++round) {
    const auto port = next_port();
    std::atomic<int> got{0};
    std::atomic<int> refused{0};
    std::list<background<std::function<void()>>> threads;
    std::mutex mutex;
    std::vector<dat::psp> kept;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        auto psp = b.ia.create_psp(port, b.evd);
        if (!psp && psp.assume_error().type() == type::conn_qual_in_use) ++refused;
        if (!psp) return;
        ++got;
        const std::lock_guard lock(mutex);
        kept.push_back(std::move(psp.assume_value()));
      });
    for (auto& t : threads) t.get();
    CHECK(got <= 1); // no thread gets a service point if each listener blocked another one
    CHECK(got + refused == 4);
  }
}

TEST_CASE("a disconnect from another thread lets every accepted post complete once",
          "[threads][DISC-031][DISC-035][EPS-086][DTO-046][MODEL-044]"
          "[SAFE-026]") {
  if (!this_device().flushes_late) SKIP(no_late_flush);
  connected_pair link({.active = {.max_request_dtos = 512}, .qlen = 2048});
  for (int round = 0; round < (dat::detail::thread_sanitizer ? 4 : 10); ++round) {
    buffer memory(link.a.pz, 64);
    buffer target(link.b.pz, 64);
    std::atomic<std::uint64_t> accepted{0};
    std::atomic<bool> go{false};
    background poster([&] {
      go = true;
      for (std::uint64_t i = 0; i < 400; ++i)
        if (link.active.post(dat::rdma_write{memory.lmr, target.remote()}.cookie(i))) ++accepted;
    });
    background another([&] {
      while (!go) std::this_thread::yield();
      must(link.active.disconnect());
    });
    while (!go) std::this_thread::yield();
    must(link.active.disconnect());
    another.get();
    poster.get();
    std::uint64_t completed = 0;
    int ended = 0;
    bool failed = false;
    while (completed < accepted || ended == 0) {
      auto e = must(link.a.evd.wait(patience));
      if (std::holds_alternative<dat::disconnected>(e)) {
        ++ended;
        continue;
      }
      ++completed;
      CHECK_FALSE((failed && std::holds_alternative<dat::rdma_write_done>(e))); // behind the first failure all fail
      failed = failed || std::holds_alternative<dat::dto_failure>(e);
    }
    SHOWS("DISC-006");
    CHECK(ended == 1);
    CHECK(completed == accepted);
    CHECK(is_empty(link.a.evd));
    (void)next<dat::disconnected>(link.b.evd);
    must(link.active.reset());
    must(link.passive.reset());
    link.connect(link.active, link.passive);
  }
}

TEST_CASE("a connection breaks while other threads post to its endpoint and query it", "[threads][EPS-084]") {
  if (!this_device().flushes_late) SKIP(no_late_flush);
  connected_pair link({.passive = {.max_recv_dtos = 64}, .qlen = 256});
  buffer out(link.a.pz, 64);
  buffer in(link.b.pz, 8);
  for (int round = 0; round < 5; ++round) {
    std::atomic<bool> over{false};
    must(link.passive.post(dat::recv{in.lmr}));
    background asker([&] {
      do must(link.passive.query());
      while (!over);
    });
    background poster([&] {
      std::uint64_t accepted = 1;
      while (!over) {
        const auto r = link.passive.post(dat::recv{in.lmr});
        if (r)
          ++accepted;
        else if (r.assume_error().type() != type::insufficient_resources &&
                 r.assume_error().type() != type::invalid_state)
          fail(r.assume_error().message(), place::here());
      }
      return accepted;
    });
    const auto posted = link.active.post(dat::send{out.lmr}); // longer than its receive
    int ended = 0;
    std::uint64_t completed = 0;
    const auto take = [&](const event& e) {
      if (std::holds_alternative<dat::dto_failure>(e))
        ++completed;
      else
        ++ended;
    };
    while (ended == 0) {
      const auto e = link.b.evd.wait(patience);
      if (!e) break;
      take(e.assume_value());
    }
    over = true;
    asker.get();
    const auto accepted = poster.get();
    must(posted);
    while (ended != 0 && completed < accepted) take(must(link.b.evd.wait(patience)));
    CHECK(ended == 1);
    CHECK(completed == accepted);
    CHECK(is_empty(link.b.evd));
    CHECK(link.passive.state() == state::disconnected);
    (void)must(link.a.evd.wait_for_any<dat::connection_broken, dat::disconnected>(link.active, patience));
    while (link.a.evd.dequeue()) {
    }
    must(link.active.reset());
    must(link.passive.reset());
    link.connect(link.active, link.passive);
  }
}

TEST_CASE("adapters are opened and closed by many threads", "[threads][IA-015][REQ-020][IA-043]"
                                                            "[REG-031]") {
  cpu_set_t all;
  REQUIRE(::sched_getaffinity(0, sizeof all, &all) == 0);
  std::atomic<int> opened{0};
  std::list<background<std::function<void()>>> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([i, &opened] {
      for (int n = 0; n < 10; ++n, ++opened) {
        side s(static_cast<std::size_t>(i) % 2, n % 2 == 0 ? dat::progress::automatic : dat::progress::manual, 16);
        buffer memory(s.pz, 64);
        const auto ep = s.make_ep();
        if (n % 3 == 0) must(s.ia.close());
      }
    });
  for (auto& t : threads) t.get();
  CHECK(opened == 40);
  // No thread is bound to a processor, neither the program's nor the library's.
  connected_pair link;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    cpu_set_t its;
    if (::sched_getaffinity(std::stoi(task.path().filename()), sizeof its, &its) == 0) CHECK(CPU_EQUAL(&its, &all));
  }
  // On each processor, memory of another zone is refused.
  auto zone = must(link.a.ia.create_pz());
  const buffer foreign(zone, 8);
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &all)) continue;
    background there([&] {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      if (::sched_setaffinity(0, sizeof one, &one) != 0) fail("sched_setaffinity", place::here());
      return error_of(link.active.post(dat::send{foreign.lmr})).type();
    });
    CHECK(there.get() == type::protection_violation);
  }
}

TEST_CASE("posts of every kind work in a signal handler", "[threads]") {
  constexpr auto streams = dat::stream::dto | dat::stream::rmr_bind | dat::stream::software;
  const dat::ep_attributes patient{.ack_timeout = 20s}; // otherwise Soft-RoCE may repeat a bind
  two_sides link;
  auto here = must(link.a.ia.create_evd<streams>(64));
  auto there = must(link.b.ia.create_evd<streams>(64));
  auto active = must(link.a.pz.create_ep<dat::rc>({.recv = here, .request = here, .connect = link.a.evd}, patient));
  auto passive = must(link.b.pz.create_ep<dat::rc>({.recv = there, .request = there, .connect = link.b.evd}, patient));
  link.connect(active, passive);
  buffer near(link.a.pz, 64);
  buffer far(link.b.pz, 64);
  using support::in_handler;
  CHECK(in_handler([&] { return here.post(1).has_value(); }));
  CHECK(next<dat::software_event>(here).cookie() == dat::cookie(1));
  CHECK(in_handler([&] {
    return here.disable() && here.enable() && here.set_unwaitable() && here.clear_unwaitable() && here.post(2) &&
           here.dequeue();
  }));
  SHOWS("EVENT-110");

  fill(near.bytes, 2);
  CHECK(in_handler([&] { return passive.post(dat::recv{far.lmr}.cookie(2)).has_value(); }));
  CHECK(in_handler([&] { return active.post(dat::send{near.lmr}.cookie(3)).has_value(); }));
  CHECK(next<dat::send_done>(here).cookie() == dat::cookie(3));
  CHECK(next<dat::recv_done>(there).cookie() == dat::cookie(2));
  CHECK(has_pattern(far.bytes, 2));

  fill(near.bytes, 4);
  CHECK(in_handler([&] { return active.post(dat::rdma_write{near.lmr, far.remote()}.cookie(4)).has_value(); }));
  CHECK(next<dat::rdma_write_done>(here).cookie() == dat::cookie(4));
  CHECK(has_pattern(far.bytes, 4));

  fill(far.bytes, 5);
  CHECK(in_handler([&] { return active.post(dat::rdma_read{near.lmr, far.remote()}.cookie(5)).has_value(); }));
  CHECK(next<dat::rdma_read_done>(here).cookie() == dat::cookie(5));
  CHECK(has_pattern(near.bytes, 5));

  NEEDS_FEATURE(windows);
  auto rmr = must(link.b.pz.create_rmr_for_ep());
  std::optional<dat::remote_segment<std::byte, dat::mem_priv::remote_write>> opened;
  CHECK(in_handler([&] {
    const auto bound = rmr.bind(passive, dat::bind{far.lmr, dat::remote_write}.cookie(6));
    if (bound) opened = bound.assume_value();
    return bound.has_value();
  }));
  CHECK(next<dat::bind_done>(there).cookie() == dat::cookie(6));
  REQUIRE(opened);

  fill(near.bytes, 7);
  const auto sink = must(rmr.read_target<std::byte>(passive, 0, 64));
  CHECK(in_handler([&] { return passive.post(dat::rdma_read{sink, near.remote()}.cookie(7)).has_value(); }));
  CHECK(next<dat::rdma_read_done>(there).cookie() == dat::cookie(7));
  CHECK(has_pattern(far.bytes, 7));

  must(passive.post(dat::recv{}.cookie(8)));
  CHECK(in_handler([&] { return active.post(dat::send_with_invalidate{*opened}.cookie(9)).has_value(); }));
  CHECK(next<dat::send_done>(here).cookie() == dat::cookie(9));
  const auto closing = next<dat::recv_done>(there);
  CHECK(closing.cookie() == dat::cookie(8));
  CHECK(closing.invalidated());
  SHOWS("DTO-102");

  auto srq = must(link.a.pz.create_srq());
  CHECK(in_handler([&] { return srq.post(dat::recv{near.lmr}).has_value(); }));
  CHECK(must(srq.query()).available == 1);
  SHOWS("SAFE-043");

  // The other calls that uDAPL allows in a signal handler succeed, too.
  must(here.post(10));
  CHECK(in_handler([&] { return here.dequeue().has_value(); }));
  CHECK(is_empty(here));
  CHECK((in_handler([&] { return here.disable().has_value(); }) && !must(here.query()).enabled));
  CHECK((in_handler([&] { return here.enable().has_value(); }) && must(here.query()).enabled));
  CHECK((in_handler([&] { return here.set_unwaitable().has_value(); }) && !here.waitable()));
  CHECK((in_handler([&] { return here.clear_unwaitable().has_value(); }) && here.waitable()));
  CHECK(in_handler([&] { return active.status().has_value(); }));
  CHECK(in_handler([&] { return dat::strerror(0).has_value(); }));
  CHECK(in_handler([&] { return here.dequeue().error().type() == type::queue_empty; }));
  SHOWS("SAFE-015", "SAFE-022");
  CHECK(in_handler([&] { return dat::sync_rdma_read(link.a.ia, near.lmr).has_value(); }));
  CHECK(in_handler([&] { return dat::sync_rdma_write(link.a.ia, near.lmr).has_value(); }));
  SHOWS("SAFE-044");
}

} // namespace device
