// The order of events where one evd holds completions and connection events, in every interleaving that the device and
// the connection manager can make of them.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <support/worker.hpp>

#include <algorithm>

using namespace unit;

namespace {

constexpr std::uint64_t most = 5;

events received(std::uint64_t first, std::uint64_t last) {
  events e;
  for (std::uint64_t i = first; i < last; ++i) e.push_back("received " + std::to_string(i));
  return e;
}
void append(events& to, events&& from) { to.insert(to.end(), from.begin(), from.end()); }

/// Two sides, connected up to the message that the test holds back.
struct ends {
  explicit ends(std::uint32_t qlen = 64) : evd(must(b.ia.create_evd<all_streams>(qlen))) {
    a.make_ep();
    b.ep = must(b.pz.create_ep<dat::rc>(evd));
    for (std::uint64_t i = 0; i < most; ++i) must(b.ep.post(dat::recv{b.at(0, 8)}.cookie(i)));
    psp = must(b.ia.create_psp(service, b.evd));
  }
  end a{"fk1"};
  end b{"fk2"};
  dat::evd<all_streams> evd; // the evd of b's endpoint
  dat::psp psp;

  void accept() {
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle();
    must(request_on(b.evd).accept(b.ep));
    settle();
    REQUIRE(a.take() == events{"established"});
  }
  void settle() { unit::settle(a, b); }
};

} // namespace

TEST_CASE("established comes once and before the first completion, whenever it arrives",
          "[EVENT-035][CONN-020][EPS-024][CR-036]") {
  // The message arrives after `before` sends; the consumer polls after each step of `looks`, or not.
  for (std::uint64_t before = 0; before <= most; ++before)
    for (unsigned looks = 0; looks < 1u << (most + 1); ++looks) {
      clean_world world;
      ends e;
      fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
      e.accept();
      events seen;
      const auto look = [&](std::uint64_t step) {
        if ((looks >> step & 1) != 0) append(seen, take(e.evd));
      };
      for (std::uint64_t i = 0; i < most; ++i) {
        if (i == before) fake::release_events();
        look(i);
        must(e.a.ep.post(dat::send{e.a.at(0, 8)}));
      }
      if (before == most) fake::release_events();
      look(most);
      e.settle();
      append(seen, take(e.evd));
      e.settle();
      append(seen, take(e.evd));
      events expected{"established"};
      append(expected, received(0, most));
      INFO("released after " << before << ", looked " << looks);
      REQUIRE(seen == expected);
    }
}

TEST_CASE("without a handshake message, a wait for two events gets established and the completion behind it",
          "[EVENT-035][CONN-020][CR-036][EVENT-058]") {
  clean_world world;
  ends e;
  fake::hold_events(RDMA_CM_EVENT_ESTABLISHED); // the data alone shows that the connection is established
  e.accept();
  std::string first;
  support::worker waiter([&](support::worker& w) {
    auto got = e.evd.wait(plenty, 2);
    w.check(got.has_value());
    if (got) first = std::visit(describe{}, got.value().first);
  });
  must(e.a.ep.post(dat::send{e.a.at(0, 8)}));
  waiter.join();
  CHECK(first == "established");
  CHECK(take(e.evd) == received(0, 1));
  fake::release_events();
}

TEST_CASE("successful completions come before disconnected, whenever it arrives", "[EVENT-036][DISC-019][EPS-058]") {
  for (std::uint64_t sends = 0; sends <= most; ++sends)
    for (std::uint64_t taken = 0; taken <= sends; ++taken)
      for (const bool held : {false, true})
        for (const bool graceful : {false, true}) {
          clean_world world;
          ends e;
          e.accept();
          e.settle();
          REQUIRE(take(e.evd) == events{"established"});
          if (held) fake::hold_events(RDMA_CM_EVENT_DISCONNECTED);
          events seen;
          const auto note = [&](const auto& x) { seen.push_back(describe{}(x)); };
          for (std::uint64_t i = 0; i < sends; ++i) must(e.a.ep.post(dat::send{e.a.at(0, 8)}));
          e.a.take();
          must(e.a.ep.disconnect(graceful ? dat::close_mode::graceful : dat::close_mode::abrupt));
          e.evd.drain(note, taken);
          e.settle();
          fake::release_events();
          e.settle();
          append(seen, take(e.evd));
          std::erase_if(seen, [](const auto& s) { return s.starts_with(to_string(dat::dto_status::flushed)); });
          events expected = received(0, sends);
          expected.push_back("disconnected");
          INFO(sends << " sends, " << taken << " taken, held " << held << ", graceful " << graceful);
          REQUIRE(seen == expected);
        }
}

TEST_CASE("successful completions come before disconnected also when the evd is full", "[EVENT-036][DISC-019]") {
  for (std::uint32_t qlen = 1; qlen <= 4; ++qlen) {
    clean_world world;
    ends e(qlen);
    e.accept();
    e.settle();
    REQUIRE(take(e.evd) == events{"established"});
    for (std::uint64_t i = 0; i < most; ++i) must(e.a.ep.post(dat::send{e.a.at(0, 8)}));
    must(e.a.ep.disconnect());
    e.settle();
    auto seen = take(e.evd);
    std::erase_if(seen, [](const auto& s) { return s.starts_with(to_string(dat::dto_status::flushed)); });
    events expected = received(0, most);
    expected.push_back("disconnected");
    INFO("qlen " << qlen);
    CHECK(seen == expected);
  }
}

TEST_CASE("a connection that ends before its events are taken gives established, data, disconnected",
          "[EVENT-035][EVENT-036][CONN-016]") {
  clean_world world;
  ends e;
  e.accept();
  for (std::uint64_t i = 0; i < most; ++i) must(e.a.ep.post(dat::send{e.a.at(0, 8)}));
  must(e.a.ep.disconnect());
  e.settle();
  events expected{"established"};
  append(expected, received(0, most));
  expected.push_back("disconnected");
  CHECK(take(e.evd) == expected);
}

TEST_CASE("completions of one queue come in the order of posting, with many endpoints on one evd",
          "[EVENT-033][DTO-091][EVENT-007][EVENT-001]") {
  clean_world world;
  end a("fk1");
  end b("fk2");
  auto psp = must(b.ia.create_psp(service, b.evd));
  std::vector<dat::ep<dat::rc>> near;
  std::vector<dat::ep<dat::rc>> far;
  for (int i = 0; i < 4; ++i) {
    near.push_back(must(a.pz.create_ep<dat::rc>(a.evd)));
    far.push_back(must(b.pz.create_ep<dat::rc>(b.evd)));
    must(near.back().connect(b.ia.address(), service, plenty));
    settle(a, b);
    must(request_on(b.evd).accept(far.back()));
    settle(a, b);
    b.take();
  }
  CHECK(a.take().size() == 4);
  const auto target = b.mem.remote();
  for (std::uint64_t n = 0; n < 40; ++n) must(near[n * 7 % 4].post(dat::rdma_write{a.at(0, 1), target}.cookie(n)));
  std::vector<std::uint64_t> last(4, 0);
  int count = 0;
  for (;;) {
    const auto n = a.evd.drain(dat::overloaded{[&](const dat::rdma_write_done& e) {
                                                 ++count;
                                                 const auto which = static_cast<std::size_t>(
                                                     std::find(near.begin(), near.end(), e.ep()) - near.begin());
                                                 REQUIRE(which < 4);
                                                 CHECK(e.cookie().value() >= last[which]);
                                                 last[which] = e.cookie().value();
                                               },
                                               [](const auto&) { FAIL("another event"); }});
    if (n == 0) break;
  }
  CHECK(count == 40);
}

TEST_CASE("a thread that takes an event finds the matching endpoint state", "[CONN-017][EPS-004]") {
  clean_world world;
  pair p;
  must(p.a.ep.disconnect());
  p.settle();
  bool seen = false;
  p.b.evd.drain(dat::overloaded{[&](const dat::disconnected& d) {
                                  seen = true;
                                  CHECK(d.ep() == p.b.ep);
                                  CHECK(d.ep().state() == dat::ep_state::disconnected);
                                },
                                [](const auto&) {}});
  CHECK(seen);
}
