// Notification: cnos over evds of every kind, thresholds, wake-ups that must not be lost.
// SPDX-License-Identifier: BSL-1.0
#include "../support/worker.hpp"
#include "rig.hpp"
#include <support/streams.hpp>

#include <atomic>
#include <sys/epoll.h>
#include <thread>
#include <unistd.h>

namespace device {
namespace {

using support::mixed;

/// Two connected endpoints of one adapter: one completes on a completions-only evd, the other on a merged evd.
struct watched_pair {
  explicit watched_pair(dat::progress how = dat::progress::automatic)
      : ia(must(dat::ia::open({.progress = how}))),
        pz(must(ia.create_pz())),
        cno(must(ia.create_cno())),
        completions_only(must(ia.create_evd<dat::stream::dto>(128))),
        merged(must(ia.create_evd<mixed>(128))),
        events(must(ia.create_evd<dat::stream::connection | dat::stream::connection_requests>(16))),
        psp(must(ia.create_psp(7481, events))),
        near(must(pz.create_ep<dat::rc>({.recv = completions_only, .request = completions_only, .connect = events}))),
        far(must(pz.create_ep<dat::rc>({.recv = merged, .request = merged, .connect = events}))) {
    must(near.connect(ia.address(), 7481, patience));
    must(must(events.wait_for<dat::connection_request>(patience)).accept(far));
    (void)must(events.wait_for<dat::established>(near, patience));
    (void)must(events.wait_for<dat::established>(far, patience));
  }
  dat::ia ia;
  dat::pz pz;
  dat::cno cno;
  dat::evd<dat::stream::dto> completions_only;
  dat::evd<mixed> merged;
  dat::evd<dat::stream::connection | dat::stream::connection_requests> events;
  dat::psp psp;
  dat::ep<dat::rc> near;
  dat::ep<dat::rc> far;

  std::size_t drain() {
    std::size_t n = 0;
    const auto count = [&](auto&) { ++n; };
    while (completions_only.drain(count) + merged.drain(count) != 0) {
    }
    return n;
  }
};

} // namespace

TEST_CASE("completions-only and merged evds trigger one cno without a missed completion", "[cno]") {
  const auto how = GENERATE(dat::progress::automatic, dat::progress::manual);
  watched_pair link(how);
  auto earlier = must(link.ia.create_cno());
  must(link.completions_only.modify_cno(earlier));
  must(link.merged.modify_cno(earlier));
  must(link.completions_only.modify_cno(link.cno));
  must(link.merged.modify_cno(link.cno));
  while (earlier.wait(0s)) { // takes a trigger that came before the cno was replaced
  }
  constexpr std::size_t rounds = 300;
  for (std::size_t i = 0; i < rounds; ++i) {
    must(link.far.post(dat::recv{}));
    must(link.near.post(dat::send{}));
    for (std::size_t taken = 0; taken < 2; taken += link.drain()) (void)must(link.cno.wait(patience));
  }
  CHECK(link.drain() == 0);
  SHOWS("CNO-001", "CNO-011", "EVD-011", "EVENT-045", "EVENT-066", "MODEL-007");
  CHECK(error_of(earlier.wait(0s)).type() == type::queue_empty); // an evd has one cno
  SHOWS("REQ-154");
  // A cno names an evd. Only the evd has the completion.
  STATIC_REQUIRE(std::is_same_v<decltype(link.cno.wait(patience)), dat::expected<dat::evd_id>>);
  SHOWS("CNO-002", "EVENT-008", "REQ-156");
}

TEST_CASE("after threads have waited on evds, their cno is triggered again", "[cno][CNO-011][EVENT-065]") {
  const auto how = GENERATE(dat::progress::automatic, dat::progress::manual);
  watched_pair link(how);
  must(link.completions_only.modify_cno(link.cno));
  must(link.merged.modify_cno(link.cno));
  const auto message = [&] {
    must(link.far.post(dat::recv{}));
    must(link.near.post(dat::send{}));
  };
  for (int i = 0; i < 50; ++i) {
    message();
    (void)must(link.merged.wait(patience));
    (void)must(link.completions_only.wait(patience));
    while (link.cno.wait(0s)) { // takes the triggers that came before the first wait
    }
    message();
    for (std::size_t taken = 0; taken < 2; taken += link.drain()) (void)must(link.cno.wait(patience));
    CHECK(link.drain() == 0);
  }
}

TEST_CASE("a completion that leaves a blocked thread below its threshold does not trigger the cno",
          "[cno][EVENT-065][CNO-008]") {
  watched_pair link(GENERATE(dat::progress::automatic, dat::progress::manual));
  must(link.merged.modify_cno(link.cno));
  const auto message = [&] {
    must(link.far.post(dat::recv{}));
    must(link.near.post(dat::send{}));
    (void)must(link.completions_only.wait(patience)); // the message has arrived
  };
  background waiter([&] { return link.merged.wait(patience, 2); });
  waiter.until_asleep();
  message();
  waiter.until_asleep();
  CHECK(error_of(link.cno.wait(0s)).type() == type::queue_empty);
  CHECK_FALSE(waiter.done());
  message();
  CHECK(must(waiter.get()).more == 1);
  SHOWS("EVENT-058", "EVENT-062");
}

TEST_CASE("a completion in a disabled evd triggers the cno when the evd is enabled",
          "[cno][CNO-008][EVD-005][EVD-028][EVD-031][EVENT-061]") {
  watched_pair link(GENERATE(dat::progress::automatic, dat::progress::manual));
  must(link.merged.disable());
  must(link.merged.modify_cno(link.cno));
  must(link.far.post(dat::recv{}.cookie(1)));
  must(link.near.post(dat::send{}));
  (void)must(link.completions_only.wait(patience)); // the message has arrived
  link.ia.run();
  CHECK(error_of(link.cno.wait(0s)).type() == type::queue_empty);
  must(link.merged.enable());
  CHECK(must(link.cno.wait(patience)) == link.merged.id());
  CHECK(next<dat::recv_done>(link.merged).cookie() == dat::cookie(1));
}

TEST_CASE("an edge-triggered epoll set over a cno's descriptor sees every burst",
          "[cno][CNO-019][CNO-020][MODEL-015]") {
  watched_pair link;
  must(link.completions_only.modify_cno(link.cno));
  must(link.merged.modify_cno(link.cno));
  const int set = ::epoll_create1(EPOLL_CLOEXEC);
  epoll_event e{};
  e.events = EPOLLIN | EPOLLET;
  REQUIRE(::epoll_ctl(set, EPOLL_CTL_ADD, link.cno.fd(), &e) == 0);
  constexpr std::size_t bursts = 100;
  constexpr std::size_t burst = 8;
  std::jthread sender([&](const std::stop_token& stop) {
    for (std::size_t b = 0; b < bursts; ++b)
      for (std::size_t i = 0; i < burst && !stop.stop_requested();) {
        if (!link.far.post(dat::recv{})) {
          std::this_thread::yield();
          continue;
        }
        while (!link.near.post(dat::send{}) && !stop.stop_requested()) std::this_thread::yield();
        ++i;
      }
  });
  std::size_t taken = 0;
  while (taken < 2 * bursts * burst) {
    REQUIRE(::epoll_wait(set, &e, 1, 30'000) == 1);
    std::uint64_t which;
    (void)!::read(link.cno.fd(), &which, sizeof which);
    taken += link.drain();
  }
  sender.join();
  CHECK(taken == 2 * bursts * burst);
  ::close(set);
}

TEST_CASE("an agent is called for completions while no thread is inside the library",
          "[cno][CNO-007][CNO-011][CNO-038]") {
  watched_pair link;
  must(link.completions_only.modify_cno(link.cno));
  must(link.merged.modify_cno(link.cno));
  struct seen {
    watched_pair* link;
    std::atomic<std::size_t> taken{0};
    static void call(void* self, dat::evd_id) noexcept {
      auto& s = *static_cast<seen*>(self);
      (void)s.link->cno.modify_agent({&call, self});
      s.taken += s.link->drain();
    }
  } s{&link, {}};
  must(link.cno.modify_agent({&seen::call, &s}));
  for (std::size_t i = 1; i <= 100; ++i) {
    must(link.far.post(dat::recv{}));
    must(link.near.post(dat::send{}));
    while (s.taken < 2 * i) std::this_thread::yield();
  }
  must(link.cno.modify_agent({}));
  must(link.completions_only.modify_cno({}));
  must(link.merged.modify_cno({}));
  must(link.cno.close());
  CHECK(s.taken == 200);
}

TEST_CASE("a wait for a threshold counts completions and software events alike",
          "[evd][EVD-054][EVD-056][EVENT-067][EVENT-058]"
          "[REQ-162]") {
  watched_pair link;
  for (std::uint64_t i = 0; i < 3; ++i) must(link.far.post(dat::recv{}.cookie(i)));
  support::worker sender([&](support::worker& w) {
    for (int i = 0; i < 3; ++i) w.check(link.near.post(dat::send{}).has_value());
    w.check(link.merged.post(9).has_value());
  });
  const auto got = must(link.merged.wait(patience, 4));
  sender.join();
  CHECK(got.more == 3);
  CHECK(link.merged.wait(1ms, 4).error() == dat::error(dat::return_type::timeout_expired));
  CHECK(link.merged.wait(1ms, 4).error().index() == 3);
}

TEST_CASE("an evd is resized under traffic, and nothing is lost or out of order", "[evd][EVD-036][EVD-037][EVD-039]"
                                                                                  "[REQ-138][REQ-152]") {
  watched_pair link;
  constexpr std::uint64_t messages = 500;
  std::atomic<int> resized{0};
  std::jthread resizer([&](const std::stop_token& stop) {
    for (std::uint32_t n = 128;; n = n == 512 ? 128 : 2 * n) {
      if (link.merged.resize(n)) ++resized;
      if (stop.stop_requested()) return;
      std::this_thread::yield(); // otherwise the other thread rarely gets the evd's lock
    }
  });
  std::uint64_t posted = 0;
  std::uint64_t sent = 0;
  for (std::uint64_t next = 0; next < messages;) {
    while (posted < messages && posted < next + 32) must(link.far.post(dat::recv{}.cookie(posted++)));
    while (sent < posted && link.near.post(dat::send{})) ++sent;
    (void)link.completions_only.drain([](auto&) {});
    (void)link.merged.drain([&](auto& e) {
      if constexpr (std::is_same_v<std::decay_t<decltype(e)>, dat::recv_done>) {
        if (e.cookie().value() != next) FAIL("got " << e.cookie().value() << ", not " << next);
        ++next;
      }
    });
  }
  resizer.request_stop();
  resizer.join();
  CHECK(resized > 0);
  must(link.merged.resize(512));
  CHECK(link.merged.capacity() >= 512);
  must(link.merged.resize(4000)); // more receives than its endpoint needs
  CHECK(link.merged.native_handle()->cqe >= 4000);
}

TEST_CASE("completions that one thread leaves in the evd, and later completions, trigger the cno again",
          "[cno][EVD-005][EVD-067][EVD-068][EVENT-039][EVENT-042]") {
  watched_pair link;
  must(link.merged.modify_cno(link.cno));
  for (std::uint64_t i = 0; i < 4; ++i) must(link.far.post(dat::recv{}.cookie(i)));
  for (int i = 0; i < 3; ++i) {
    must(link.near.post(dat::send{}));
    (void)must(link.completions_only.wait(patience)); // waits until the message has arrived
  }
  const auto received = [&](std::uint64_t cookie) {
    CHECK(std::get<dat::recv_done>(must(link.merged.dequeue())).cookie() == dat::cookie(cookie));
  };
  received(0);
  CHECK(must(link.cno.wait(patience)) == link.merged.id()); // two completions are left
  must(link.merged.post(9));                                // a software event behind the completions
  CHECK(must(link.cno.wait(patience)) == link.merged.id());
  while (link.cno.wait(0s)) {
  }
  must(link.near.post(dat::send{}));
  // The software events triggered it, with completions still queued.
  CHECK(must(link.cno.wait(patience)) == link.merged.id());
  (void)must(link.completions_only.wait(patience));
  received(1);
  received(2);
  CHECK(std::get<dat::software_event>(must(link.merged.dequeue())).cookie() == dat::cookie(9));
  received(3);
  CHECK(is_empty(link.merged));

  // Completions that arrive while the evd is disabled, and that a dequeuer takes from the device but leaves queued.
  must(link.merged.disable());
  while (link.cno.wait(0s)) {
  }
  for (std::uint64_t i = 4; i < 6; ++i) {
    must(link.far.post(dat::recv{}.cookie(i)));
    must(link.near.post(dat::send{}));
    (void)must(link.completions_only.wait(patience));
  }
  must(link.merged.post(10));
  CHECK(must(link.merged.wait_for<dat::software_event>(patience)).cookie() == dat::cookie(10));
  must(link.merged.enable());
  const dat::evd_id left_queued = must(link.cno.wait(patience));
  CHECK(left_queued == link.merged.id());
  SHOWS("CNO-012");
  received(4);
  received(5);
}

TEST_CASE("completions and software events have separate room in a merged evd",
          "[evd][EVENT-081][EVENT-070][EVENT-080]") {
  watched_pair link;
  auto small = must(link.ia.create_evd<mixed>(8));
  auto near = must(link.pz.create_ep<dat::rc>(
      {.recv = link.completions_only, .request = link.completions_only, .connect = link.events}));
  auto far = must(link.pz.create_ep<dat::rc>({.recv = small, .request = small, .connect = link.events}));
  must(near.connect(link.ia.address(), 7481, patience));
  must(must(link.events.wait_for<dat::connection_request>(patience)).accept(far));
  (void)must(link.events.wait_for<dat::established>(near, patience));
  (void)must(link.events.wait_for<dat::established>(far, patience));
  for (std::uint64_t i = 0; i < 8; ++i) must(small.post(i));
  for (std::uint64_t i = 0; i < 8; ++i) must(far.post(dat::recv{}.cookie(i)));
  for (int i = 0; i < 8; ++i) {
    must(near.post(dat::send{}));
    (void)must(link.completions_only.wait(patience));
  }
  CHECK(error_of(small.post(9)) == dat::error(type::queue_full));
  SHOWS("ERR-025");
  std::uint64_t software = 0;
  std::uint64_t received = 0;
  for (int i = 0; i < 16; ++i) {
    auto e = must(small.dequeue());
    if (const auto* s = std::get_if<dat::software_event>(&e))
      CHECK(s->cookie() == dat::cookie(software++));
    else
      CHECK(std::get<dat::recv_done>(e).cookie() == dat::cookie(received++));
  }
  CHECK(is_empty(small));
  SHOWS("EVD-002");
  CHECK(is_empty(link.ia.async_evd()));
  must(near.disconnect());
}

namespace {

/// Sends and receives `n` messages as fast as possible, and sleeps on one edge-triggered descriptor only.
void flood(endpoint& ep, queue& evd, dat::cno& cno, std::uint64_t n) {
  const int set = ::epoll_create1(EPOLL_CLOEXEC);
  epoll_event e{};
  e.events = EPOLLIN | EPOLLET;
  if (::epoll_ctl(set, EPOLL_CTL_ADD, cno.fd(), &e) != 0) fail("epoll_ctl", place::here());
  std::uint64_t posted = 0;
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  bool ended = false;
  const auto take = dat::overloaded{[&](const dat::send_done& s) {
                                      if (s.cookie() != dat::cookie(sent++)) fail("sent out of order", place::here());
                                    },
                                    [&](const dat::recv_done& r) {
                                      if (r.bytes() != 0 || ended) fail("received out of order", place::here());
                                      ++received;
                                      must(ep.post(dat::recv{}));
                                    },
                                    [&](const dat::disconnected&) { ended = true; },
                                    [&](const auto& other) {
                                      if (!ended) fail(describe(other), place::here());
                                    }};
  while (sent < n || received < n) {
    while (posted < n && posted < received + 24 && ep.post(dat::send{}.cookie(posted))) ++posted;
    if (evd.drain(take) != 0) continue;
    if (posted < n && posted < received + 24 && posted - sent < 32) continue;
    if (::epoll_wait(set, &e, 1, static_cast<int>(patience / 1ms)) != 1)
      fail("a wake-up is missing: " + std::to_string(sent) + " sent, " + std::to_string(received) + " received",
           place::here());
    std::uint64_t which;
    (void)!::read(cno.fd(), &which, sizeof which);
  }
  ::close(set);
}

constexpr dat::ep_attributes flooding{.max_request_dtos = 32, .max_recv_dtos = 64};

int flood_role(channel& to, const std::vector<std::string>& args) {
  side b(1);
  auto cno = must(b.ia.create_cno());
  const auto port = next_port();
  const auto psp = must(b.ia.create_psp(port, b.evd));
  to.say(std::to_string(port.port()));
  auto request = must(b.evd.wait_for<dat::connection_request>(patience));
  auto ep = b.make_ep(flooding);
  for (int i = 0; i < 64; ++i) must(ep.post(dat::recv{}));
  must(request.accept(ep));
  must(b.evd.wait_for<dat::established>(patience));
  must(b.evd.modify_cno(cno));
  flood(ep, b.evd, cno, std::stoul(args.at(0)));
  to.say("done");
  (void)to.closed();
  return 0;
}
const role flood_registered("flood", &flood_role);

} // namespace

TEST_CASE("two processes flood each other, and each sleeps on one edge-triggered descriptor",
          "[cno][CNO-019][CNO-020][EVENT-066][EVENT-109]") {
  constexpr std::uint64_t messages = rig::stress_messages;
  side a(0);
  auto cno = must(a.ia.create_cno());
  peer_process peer("flood", {std::to_string(messages)});
  const auto port = must(dat::conn_qual::make(std::stoul(peer.hear())));
  auto ep = a.make_ep(flooding);
  for (int i = 0; i < 64; ++i) must(ep.post(dat::recv{}));
  must(ep.connect(addresses()[1], port, patience));
  must(a.evd.wait_for<dat::established>(patience));
  must(a.evd.modify_cno(cno));
  flood(ep, a.evd, cno, messages);
  CHECK(peer.hear() == "done");
  CHECK(is_empty(a.evd));
  CHECK(is_empty(a.ia.async_evd()));
  must(ep.disconnect());
  // Takes the completions of the remaining receives.
  while (!std::holds_alternative<dat::disconnected>(must(a.evd.wait(patience)))) {
  }
}

} // namespace device
