// Which completions wake a thread: threshold, selective and solicited endpoints, in every row of the specification's
// tables.
// SPDX-License-Identifier: BSL-1.0
#include "../support/worker.hpp"
#include "datagram_end.hpp"
#include "lock_waits.hpp"
#include "world.hpp"
#include <support/streams.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <sys/types.h>
#include <thread>
#include <unistd.h>

using namespace unit;
using dat::completion_notification;
using dat::return_subtype;
using dat::return_type;
using support::worker;

namespace {

using support::mixed;

/// A connection; one of its sides has an evd with a cno for completions, and another evd for connection events.
template <dat::streams S>
struct watched {
  explicit watched(const dat::ep_attributes& a, bool own_requests = false)
      : evd(must(p.a.ia.create_evd<S>(32))),
        requests(must(p.a.ia.create_evd<dat::stream::dto>(32))),
        cno(must(p.a.ia.create_cno())),
        ep(own_requests ? must(p.a.pz.create_ep<dat::rc>({.recv = evd, .request = requests, .connect = p.a.evd}, a))
                        : must(p.a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = p.a.evd}, a))),
        far(must(p.b.pz.create_ep<dat::rc>(p.b.evd))) {
    must(evd.modify_cno(cno));
    p.connect(ep, far);
    (void)p.a.take();
    (void)p.b.take();
    (void)woken();
  }
  pair p;
  dat::evd<S> evd;
  dat::evd<dat::stream::dto> requests;
  dat::cno cno;
  dat::ep<dat::rc> ep;
  dat::ep<dat::rc> far;

  /// Whether the cno was triggered since the last call. All work is done in this thread, so the answer is exact.
  bool woken() { return cno.wait(0s).has_value(); }
  template <class D>
  void to_far(const D& operation) {
    must(far.post(dat::recv{}));
    must(ep.post(operation));
  }
  /// Makes the next post fail in the device.
  template <class D>
  void fail(const D& operation) {
    fake::hold(ep.native_handle());
    must(ep.post(operation));
    REQUIRE(fake::complete(ep.native_handle(), {}, IBV_WC_RETRY_EXC_ERR));
  }
};

constexpr dat::ep_attributes choosy{.recv_completion = completion_notification::selective,
                                    .request_completion = completion_notification::selective};

/// Returns when a thread waits on the evd, which has no event.
template <dat::streams S>
void until_a_thread_waits(dat::evd<S>& evd) {
  for (;;) {
    const auto e = evd.dequeue();
    if (!e && e.error().subtype() == return_subtype::evd_waiter) return;
    std::this_thread::yield();
  }
}

} // namespace

TEST_CASE("selective endpoints: a completion wakes a waiter unless its operation was posted without notification",
          "[evd]") {
  const clean_world clean;
  watched<mixed> w(choosy);
  CHECK(must(w.evd.query()).config == completion_notification::selective);
  w.to_far(dat::send{}.cookie(1));
  CHECK(w.woken());
  SHOWS("COMP-018");
  w.to_far(dat::send{}.cookie(2).suppress_notification());
  CHECK_FALSE(w.woken());
  SHOWS("CNO-013", "DTO-040");
  w.to_far(dat::send{}.cookie(3).suppress_completion());
  w.to_far(dat::send{}.cookie(4).suppress_completion().suppress_notification());
  CHECK_FALSE(w.woken());
  must(w.ep.post(dat::recv{}.cookie(5).suppress_notification(), dat::recv{}.cookie(6), dat::recv{}.cookie(7)));
  must(w.far.post(dat::send{}.solicited())); // `.solicited()` has no effect in this mode
  CHECK_FALSE(w.woken());
  must(w.far.post(dat::send{}));
  CHECK(w.woken());
  must(w.far.post(dat::send{}.solicited()));
  CHECK(w.woken());
  SHOWS("COMP-022");
  dat::batch<2> b;
  REQUIRE(b.push_back(dat::send{}.cookie(8).suppress_notification()));
  must(w.far.post(dat::recv{}));
  must(w.ep.post(b));
  CHECK_FALSE(w.woken());
  SHOWS("EVENT-043", "DTO-162");
  // All completions were queued, in order.
  CHECK(take(w.evd) == events{"sent 1", "sent 2", "received 5", "received 6", "received 7", "sent 8"});
  SHOWS("EVENT-044", "COMP-016", "COMP-019", "COMP-021", "EVD-067");
}

TEST_CASE("selective endpoints: a completion that is taken first hides no notification of the completions after it",
          "[evd]") {
  const clean_world clean;
  watched<mixed> w(choosy);
  must(w.far.post(dat::recv{}, dat::recv{}, dat::recv{}));
  must(w.ep.post(dat::send{}.cookie(1).suppress_notification()));
  must(w.ep.post(dat::send{}.cookie(2)));
  must(w.ep.post(dat::send{}.cookie(3).suppress_notification()));
  fake::finish(); // before the reactor sees the device's notification
  const auto next = [&] { return std::visit(describe{}, must(w.evd.dequeue())); };
  CHECK(next() == "sent 1");
  CHECK(w.woken());
  CHECK_FALSE(w.woken());
  // Nor does one that is taken from the ring.
  must(w.far.post(dat::recv{}));
  must(w.ep.post(dat::send{}.cookie(4)));
  CHECK(next() == "sent 2");
  CHECK(w.woken());
  CHECK(take(w.evd) == events{"sent 3", "sent 4"});
  CHECK_FALSE(w.woken());
  // A wait finds what was suppressed, if it is there already.
  w.to_far(dat::send{}.cookie(5).suppress_notification());
  CHECK(must(w.evd.wait_for<dat::send_done>(0s)).cookie() == dat::cookie(5));
}

TEST_CASE("selective endpoints: a failure wakes unless it was posted without notification, suppressed or not",
          "[COMP-017][COMP-018][COMP-019]") {
  const clean_world clean;
  const auto quiet = GENERATE(false, true);
  const auto suppressed = GENERATE(false, true);
  watched<mixed> w(choosy);
  auto s = dat::send{}.cookie(9);
  if (quiet) s.suppress_notification();
  if (suppressed) s.suppress_completion();
  w.fail(s);
  CHECK(w.woken() == !quiet);
  CHECK(take(w.evd) == events{"transport error 9"});
}

TEST_CASE("threshold endpoints: every completion wakes a waiter, and suppress_notification is refused", "[evd]") {
  const clean_world clean;
  watched<mixed> w({});
  CHECK(must(w.evd.query()).config == completion_notification::evd_threshold);
  for (const bool solicited : {false, true}) {
    must(w.ep.post(dat::recv{}));
    auto s = dat::send{};
    if (solicited) s.solicited();
    must(w.far.post(s));
    CHECK(w.woken());
  }
  SHOWS("COMP-013", "COMP-026");
  w.to_far(dat::send{});
  CHECK(w.woken());
  SHOWS("EVENT-045", "EVD-059");
  w.to_far(dat::send{}.suppress_completion());
  CHECK_FALSE(w.woken());
  CHECK(take(w.evd).size() == 3);
  SHOWS("COMP-014");
  const auto before = fake::count(fake::call::ibv_post_send) + fake::count(fake::call::ibv_post_recv);
  const auto refused = dat::error(return_type::invalid_parameter, return_subtype::arg5);
  CHECK(w.ep.post(dat::send{}.suppress_notification()).error() == refused);
  CHECK(w.ep.post(dat::send{}.suppress_notification().suppress_completion()).error() == refused);
  CHECK(w.ep.post(dat::send{}, dat::send{}.suppress_notification()).error() == refused);
  CHECK(w.ep.post(dat::recv{}.suppress_notification()).error() == refused);
  SHOWS("COMP-012", "DTO-112");
  dat::batch<1> b;
  REQUIRE(b.push_back(dat::send{}.suppress_notification()));
  CHECK(w.ep.post(b).error().type() == return_type::invalid_parameter);
  CHECK(fake::count(fake::call::ibv_post_send) + fake::count(fake::call::ibv_post_recv) == before);
  SHOWS("COMP-011", "COMP-025", "DTO-076");
  w.fail(dat::send{}.suppress_completion().cookie(4));
  CHECK(w.woken());
  CHECK(take(w.evd) == events{"transport error 4"});
  SHOWS("COMP-015", "DTO-162");
}

TEMPLATE_TEST_CASE_SIG("solicited receives: the sender decides which receives wake",
                       "[EVENT-050][COMP-026][CNO-013][DTO-097][DTO-113][DTO-162]", ((dat::streams S), S),
                       dat::stream::dto, mixed) {
  const clean_world clean;
  watched<S> w({.recv_completion = completion_notification::solicited_wait}, true);
  CHECK(must(w.evd.query()).config == completion_notification::solicited_wait);
  CHECK(must(w.requests.query()).config == completion_notification::evd_threshold);
  for (int i = 0; i < 6; ++i) must(w.ep.post(dat::recv{}.cookie(i)));
  must(w.far.post(dat::send{}));
  must(w.far.post(dat::send{}));
  CHECK_FALSE(w.woken());
  must(w.far.post(dat::send{}.solicited()));
  CHECK(w.woken());
  must(w.far.post(dat::send{}));
  CHECK_FALSE(w.woken());
  must(w.evd.disable());
  must(w.far.post(dat::send{}));
  fake::finish();
  must(w.evd.enable()); // triggers the cno, unless dat can detect that no solicited receive and no failure has arrived
  CHECK(w.woken() == (S == dat::stream::dto));
  CHECK(take(w.evd) == events{"received 0", "received 1", "received 2", "received 3", "received 4"});
  fake::break_qp(w.ep.native_handle()); // a failure wakes the waiter
  fake::finish();
  CHECK(w.woken());
  CHECK(take(w.evd) == events{"flushed 5"});
}

TEMPLATE_TEST_CASE_SIG(
    "an evd that has a cno, or was waited on, before anything fed it can be one of solicited receives",
    "[EVENT-009][EVENT-050][EVD-005][EVD-011]", ((dat::streams S), S), dat::stream::dto, mixed) {
  const clean_world clean;
  pair p;
  auto evd = must(p.a.ia.create_evd<S>(32));
  auto requests = must(p.a.ia.create_evd<dat::stream::dto>(32));
  auto cno = must(p.a.ia.create_cno());
  must(evd.modify_cno(cno));
  CHECK(evd.wait(1us).error().type() == return_type::timeout_expired);
  (void)cno.wait(0s);
  const bool solicited = GENERATE(true, false);
  auto ep = must(p.a.pz.create_ep<dat::rc>({.recv = evd, .request = requests, .connect = p.a.evd},
                                           {.recv_completion = solicited ? completion_notification::solicited_wait
                                                                         : completion_notification::evd_threshold}));
  auto far = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  for (int i = 0; i < 5; ++i) must(ep.post(dat::recv{}.cookie(i)));
  p.connect(ep, far);
  CHECK_FALSE(cno.wait(0s));
  must(far.post(dat::send{}));
  CHECK(cno.wait(0s).has_value() == !solicited);
  must(far.post(dat::send{}.solicited()));
  CHECK(cno.wait(0s));
  CHECK(take(evd).size() == 2);
}

TEST_CASE("an endpoint with selective completions cannot attach while a thread waits for several events",
          "[EVENT-048][EVD-049]") {
  const clean_world clean;
  end a("fk1", automatic);
  auto evd = must(a.ia.create_evd<mixed>(8));
  worker waiter([&](worker& w) { w.check(evd.wait(plenty, 2).has_value()); });
  until_a_thread_waits(evd);
  const auto refused = a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd}, choosy);
  REQUIRE_FALSE(refused);
  CHECK(refused.error() == dat::error(return_type::invalid_state, return_subtype::evd_waiter));
  CHECK(a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd}));
  must(evd.post(1));
  must(evd.post(2));
  waiter.join();
}

TEST_CASE("a second wait that is refused changes nothing for the thread that waits for several events", "[evd]") {
  const clean_world clean;
  end a("fk1", automatic);
  auto evd = must(a.ia.create_evd<mixed>(8));
  worker waiter([&](worker& w) { w.check(evd.wait(plenty, 2).has_value()); });
  until_a_thread_waits(evd);
  is_error(evd.wait(0us, 3), return_type::invalid_state, return_subtype::evd_waiter);
  is_error(a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd}, choosy), return_type::invalid_state,
           return_subtype::evd_waiter);
  must(evd.post(1));
  must(evd.post(2));
  waiter.join();
  CHECK(a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd}, choosy));
}

TEST_CASE("a thread that waited before any endpoint fed the evd arms the device for the first one", "[evd]") {
  const clean_world clean;
  end a("fk1", automatic);
  auto evd = must(a.ia.create_evd<mixed>(8));
  worker waiter([&](worker& w) { w.check(evd.wait(plenty).has_value()); });
  until_a_thread_waits(evd);
  const auto arms = [] { return fake::count(fake::call::ibv_req_notify_cq); };
  const auto before = arms();
  const auto ep = must(a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd}, choosy));
  for (const auto until = std::chrono::steady_clock::now() + plenty;
       arms() == before && std::chrono::steady_clock::now() < until;)
    std::this_thread::yield();
  CHECK(arms() > before);
  must(evd.post(1));
  waiter.join();
}

TEST_CASE("a thread that sleeps until a solicited receive comes sleeps through others, and gets the first of them",
          "[evd][arming]") {
  const clean_world clean;
  pair p;
  auto evd = must(p.a.ia.create_evd<dat::stream::dto>(8));
  auto ep = must(p.a.pz.create_ep<dat::rc>({.recv = evd, .request = p.a.evd, .connect = p.a.evd},
                                           {.recv_completion = completion_notification::solicited_wait}));
  auto far = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  p.connect(ep, far);
  for (unsigned i = 0; i < 9; ++i) must(ep.post(dat::recv{}.cookie(i)));
  for (unsigned i = 0; i < 3; ++i) {
    const auto before = fake::count(fake::call::ibv_req_notify_cq);
    worker waiter([&](worker& w) {
      const auto e = evd.wait(plenty);
      w.check(e && std::visit(describe{}, e.value()) == "received " + std::to_string(3 * i));
    });
    while (fake::count(fake::call::ibv_req_notify_cq) == before) std::this_thread::yield(); // it is about to sleep
    must(far.post(dat::send{}));
    must(far.post(dat::send{}));
    must(far.post(dat::send{}.solicited()));
    waiter.join();
    CHECK(take(evd).size() == 2);
  }
}

TEST_CASE("wait_for_any sleeps through other completions and gets the first event of its types",
          "[EVENT-009][EVENT-046][EVENT-047][EVENT-058][EVENT-062]") {
  const clean_world clean;
  watched<mixed> w(choosy);
  w.to_far(dat::send{}.cookie(1).suppress_notification());
  CHECK(describe{}(std::get<dat::send_done>(must(w.evd.wait(plenty)))) ==
        "sent 1"); // the completion is queued already, so the wait does not sleep
  for (const bool software : {false, true}) {
    worker waiter([&](worker& inner) {
      const auto e = w.evd.wait(plenty);
      inner.check(e && std::holds_alternative<dat::send_done>(e.value()) &&
                  std::get<dat::send_done>(e.value()).cookie() == dat::cookie(2));
    });
    for (;;) {
      const auto e = w.evd.dequeue();
      if (!e && e.error().subtype() == return_subtype::evd_waiter) break;
      std::this_thread::yield();
    }
    for (std::uint64_t i = 2; i < 12; ++i) w.to_far(dat::send{}.cookie(i).suppress_notification());
    if (software)
      must(w.evd.post(12));
    else
      w.to_far(dat::send{}.cookie(12));
    waiter.join();
    std::size_t left = take(w.evd).size();
    CHECK(left == 10);
  }
}

TEST_CASE("a waiter of an evd where not all completions notify arms the device once, however often it looks again",
          "[evd][arming]") {
  const clean_world clean;
  end a;
  auto evd = must(a.ia.create_evd<mixed>(8));
  const auto ep = must(a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd}, choosy));
  other_call waiter([&] { (void)evd.wait(plenty); });
  support::until_asleep(waiter.id(), plenty);
  const auto armed = fake::count(fake::call::ibv_req_notify_cq);
  for (std::uint32_t i = 0; i < 3; ++i) {
    const auto polls = fake::count(fake::call::ibv_poll_cq);
    must(evd.resize(9 + i)); // polls, and wakes the waiter, which polls after it has armed the device
    while (fake::count(fake::call::ibv_poll_cq) < polls + 2) std::this_thread::yield();
  }
  CHECK(fake::count(fake::call::ibv_req_notify_cq) == armed);
  must(evd.post(1));
  waiter.join();
}

TEST_CASE("a waiter of an evd where not all completions notify looks for completions itself", "[evd][arming]") {
  const clean_world clean;
  pair p;
  auto evd = must(p.a.ia.create_evd<mixed>(16));
  auto ep = must(p.a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = p.a.evd}, choosy));
  auto far = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  p.connect(ep, far);
  must(ep.disconnect()); // from here on the reactor does not look for a break either
  p.settle();
  (void)p.a.take();
  std::string got;
  other_call waiter([&] {
    const auto e = evd.wait(plenty);
    got = e ? std::visit(describe{}, e.value()) : std::string(e.error().message());
  });
  support::until_asleep(waiter.id(), plenty);
  must(ep.post(dat::recv{}.cookie(7)));
  fake::finish();
  waiter.join();
  CHECK(got == std::string(to_string(dat::dto_status::flushed)) + " 7");
}

TEST_CASE("a waiter arms the device again after a notification for no event, whatever the evd notifies besides",
          "[evd][arming][cno]") {
  const clean_world clean;
  datagram_end a("fk1", automatic);
  datagram_end b("fk2");
  std::array<char, 8> memory{};
  auto mem = must(a.pz.register_memory(memory, all_rights));
  const auto to_b = must(a.ep.connect(must(b.ep.export_descriptor())));
  auto cno = must(a.ia.create_cno());
  must(a.evd.modify_cno(cno)); // from now on the reactor reads the notifications
  const std::string besides = GENERATE("a cno", "no cno any more", "a cno, but it is disabled");
  CAPTURE(besides);
  if (besides == "no cno any more") must(a.evd.modify_cno({}));
  if (besides == "a cno, but it is disabled") must(a.evd.disable());
  const auto arms = [] { return fake::count(fake::call::ibv_req_notify_cq); };
  const auto before = arms();
  std::atomic<pid_t> thread{};
  std::atomic<bool> notified{false}, polled{false};
  fake::intercept(fake::call::ibv_poll_cq, [&] {
    if (::gettid() != thread) {
      if (notified) polled = true; // by the reactor, which holds the lock of the evd
      return;
    }
    if (arms() == before || notified) return;
    // The waiter is about to sleep. A completion that is no event comes, and the reactor reads its notification.
    const auto read = fake::count(fake::call::ibv_ack_cq_events);
    fake::forge(a.evd.native_handle(), {});
    while (fake::count(fake::call::ibv_ack_cq_events) == read) std::this_thread::yield();
    notified = true;
  });
  worker waiter([&](worker& w) {
    thread = ::gettid();
    const auto e = a.evd.wait(plenty);
    w.check(e && std::visit(describe_datagrams{}, e.value()) == "sent 7");
  });
  while (!polled) std::this_thread::yield();
  CHECK(a.evd.drain([](const auto&) {}) == 0); // gets the lock when the reactor has polled
  for (const auto until = std::chrono::steady_clock::now() + 5s;
       arms() < before + 2 && std::chrono::steady_clock::now() < until;)
    std::this_thread::yield();
  CHECK(arms() >= before + 2);
  must(a.ep.post(dat::ib::send_to{must(mem.slice(0, 8)), to_b}.cookie(7)));
  waiter.join();
  fake::intercept(fake::call::ibv_poll_cq, {});
}
