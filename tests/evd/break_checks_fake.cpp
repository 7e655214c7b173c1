// The checks for broken connections that the reactor makes, and failures of the device that only they find.
// SPDX-License-Identifier: BSL-1.0
#include "async_events.hpp"
#include "world.hpp"

#include <support/asleep.hpp>

#include <dat/detail/handle/core_access.hpp>

#include <atomic>
#include <optional>
#include <thread>

using namespace unit;
using dat::return_type;

namespace {

constexpr auto checked_streams = dat::stream::dto | dat::stream::connection;

std::size_t polls() { return fake::count(fake::call::ibv_poll_cq); }

/// A connection whose evd the reactor checks, on an adapter with manual progress.
struct watched_pair : pair {
  dat::evd<checked_streams> evd = must(a.ia.create_evd<checked_streams>(16));
  dat::ep<dat::rc> ep = must(a.pz.create_ep<dat::rc>(evd));
  dat::ep<dat::rc> peer = must(b.pz.create_ep<dat::rc>(b.evd));

  watched_pair() {
    connect(ep, peer);
    (void)unit::take(evd);
  }
  /// Lets the device notify, and runs until the check that follows has polled the device.
  void run_check() {
    fake::forge(evd.native_handle(), ibv_wc{}); // of no endpoint
    const auto before = polls();
    while (polls() == before) a.ia.run();
  }
  /// The failures that no call could return, by the name of the verb.
  events failures() {
    events all;
    a.ia.async_evd().drain(dat::overloaded{[&](const dat::provider_internal_error& e) { all.emplace_back(e.verb()); },
                                           [](const auto&) {}});
    return all;
  }
};

} // namespace

TEST_CASE("a poll that fails in a check for broken connections is reported, because no call returns it", "[evd]") {
  const clean_world world;
  watched_pair p;
  p.run_check();
  CHECK(p.failures().empty());
  fake::fail(fake::call::ibv_poll_cq, 1, EIO);
  p.run_check();
  CHECK(p.failures() == events{"ibv_poll_cq"});
  must(p.ep.post(dat::rdma_write{p.a.at(0, 1), p.b.mem.remote()}.cookie(4)));
  CHECK(unit::take(p.evd) == events{"written 4"});
}

TEST_CASE("a device that a check for broken connections cannot arm is reported, and polled all the same", "[evd]") {
  const clean_world world;
  watched_pair p;
  fake::fail(fake::call::ibv_req_notify_cq, 1, EIO);
  p.run_check();
  CHECK(p.failures() == events{"ibv_req_notify_cq"});
}

TEST_CASE("a device that cannot be armed for a new connection is reported, and the connection is established",
          "[evd]") {
  const bool fails = GENERATE(false, true);
  const clean_world world;
  watched_pair p;
  const auto evd = must(p.a.ia.create_evd<checked_streams>(16));
  auto ep = must(p.a.pz.create_ep<dat::rc>(evd));
  auto peer = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  (void)p.b.take();
  if (fails) fake::fail(fake::call::ibv_req_notify_cq, 1, EIO);
  p.connect(ep, peer);
  CHECK(p.failures() == (fails ? events{"ibv_req_notify_cq"} : events{}));
  CHECK(ep.state() == dat::ep_state::connected);
}

TEST_CASE("a wait returns the failure of a poll that the reactor has made", "[evd]") {
  const clean_world world;
  auto ia = must(dat::ia::open("fk1", automatic));
  auto pz = must(ia.create_pz());
  auto evd = must(ia.create_evd<all_streams>(16));
  auto psp = must(ia.create_psp(service, evd));
  auto near = must(pz.create_ep<dat::rc>(evd));
  auto far = must(pz.create_ep<dat::rc>(evd));
  must(near.connect(ia.address(), service, plenty));
  must(must(evd.wait_for<dat::connection_request>(plenty)).accept(far));
  (void)must(evd.wait_for<dat::established>(near, plenty));
  (void)must(evd.wait_for<dat::established>(far, plenty));

  std::atomic<pid_t> waiter{0};
  std::atomic<bool> done{false};
  std::optional<dat::error> why;
  std::jthread other([&] {
    waiter = static_cast<pid_t>(::syscall(SYS_gettid));
    const auto r = evd.wait_for<dat::disconnected>(plenty);
    if (!r) why = r.error();
    done = true;
  });
  support::until_asleep(waiter, plenty);
  std::atomic<bool> failed{false};
  fake::intercept(fake::call::ibv_poll_cq, [&] {
    const bool reactor = ::syscall(SYS_gettid) != waiter;
    if (reactor && !failed.exchange(true)) fake::fail(fake::call::ibv_poll_cq, 1, EIO);
  });
  // Each completion wakes the waiter, which finds no event. The check follows, unless the waiter was the first to read
  // the notification.
  while (!done) {
    if (!failed && fake::unread_completions(evd.native_handle()) == 0) fake::forge(evd.native_handle(), ibv_wc{});
    std::this_thread::yield();
  }
  other.join();
  fake::intercept(fake::call::ibv_poll_cq, {});
  CHECK(failed);
  REQUIRE(why);
  CHECK(why->type() != return_type::timeout_expired);
  CHECK(why->verb() == "ibv_poll_cq");
  CHECK(why->sys_errno() == EIO);
}

TEST_CASE("an evd whose completion channel is dead can be attached to a cno, for its other events", "[evd][cno]") {
  const clean_world world;
  watched_pair p;
  for (unsigned n = 1; n <= 8; ++n) fake::fail(fake::call::ibv_get_cq_event, n, EIO);
  fake::forge(p.evd.native_handle(), ibv_wc{});
  const auto reads = [] { return fake::count(fake::call::ibv_get_cq_event); };
  for (const auto before = reads(); reads() < before + 8;) p.a.ia.run();
  CHECK(p.failures() == events{"ibv_get_cq_event"});
  auto cno = must(p.a.ia.create_cno());
  must(p.evd.modify_cno(cno));
  while (cno.wait(0us)) { // takes the triggers that modify_cno caused
  }
  must(p.ep.disconnect());
  p.settle();
  CHECK(must(cno.wait(plenty)) == p.evd.id());
  CHECK(unit::take(p.evd) == events{"disconnected"});
}

TEST_CASE("a completion that is no event yet triggers no cno when a call takes it from the device", "[evd][cno]") {
  const clean_world world;
  end a("fk1"), b("fk2");
  const auto psp = must(b.ia.create_psp(service, b.evd));
  auto cno = must(b.ia.create_cno());
  a.make_ep();
  b.make_ep();
  for (std::uint64_t n = 0; n < 2; ++n) must(b.ep.post(dat::recv{}.cookie(n)));
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
  must(request_on(b.evd).accept(b.ep));
  a.ia.run();
  CHECK(a.take() == events{"established"});
  must(b.evd.modify_cno(cno));
  while (cno.wait(0us)) { // takes the triggers that modify_cno caused
  }
  // The message comes after the reactor has run, so that the call itself takes its completion.
  fake::intercept(fake::call::ibv_poll_cq, [&] {
    fake::intercept(fake::call::ibv_poll_cq, {});
    must(a.ep.post(dat::send{}));
    fake::finish();
  });
  is_error(b.evd.dequeue(), return_type::queue_empty);
  fake::intercept(fake::call::ibv_poll_cq, {});
  must(b.evd.modify_cno({})); // before the reactor runs again
  CHECK_FALSE(cno.wait(0us));
  settle(a, b);
  CHECK(b.take() == events{"established", "received 0"});
  fake::release_events();
}
