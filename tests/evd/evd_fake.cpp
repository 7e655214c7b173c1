// Event dispatchers: tests that need a connection, or a device that fails. evd.cpp has the others.
// SPDX-License-Identifier: BSL-1.0
#include "../support/worker.hpp"
#include "world.hpp"
#include <support/streams.hpp>

#include <dat/ep_params.hpp>

#include <atomic>
#include <csignal>
#include <fstream>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

using namespace unit;
using dat::return_subtype;
using dat::return_type;

namespace {

using support::mixed;

/// An adapter of the fake world and one evd.
template <dat::streams S>
struct queue {
  explicit queue(std::uint32_t qlen = 8, const dat::ia_options& options = automatic)
      : ia(must(dat::ia::open("fk1", options))), evd(must(ia.create_evd<S>(qlen))) {}
  dat::ia ia;
  dat::evd<S> evd;
};

} // namespace

TEST_CASE("completions and software events have separate room in a merged evd", "[EVENT-081]") {
  fake::reset();
  constexpr auto streams = mixed | dat::stream::connection | dat::stream::connection_requests;
  auto ia = must(dat::ia::open("fk1", manual));
  auto pz = must(ia.create_pz());
  auto evd = must(ia.create_evd<streams>(8));
  auto far_evd = must(ia.create_evd<streams>(8));
  std::array<char, 64> memory{};
  auto mem = must(pz.register_memory(memory, all_rights));
  auto near = must(pz.create_ep<dat::rc>(evd));
  auto far = must(pz.create_ep<dat::rc>(far_evd));
  auto psp = must(ia.create_psp(service, far_evd));
  must(near.connect(ia.address(), service, plenty));
  auto request = must(far_evd.wait_for<dat::connection_request>(plenty));
  must(request.accept(far));
  (void)must(evd.wait_for<dat::established>(plenty));
  for (std::uint64_t i = 0; i < 8; ++i) must(evd.post(i));
  for (int i = 0; i < 8; ++i) must(far.post(dat::recv{mem}));
  for (std::uint64_t i = 0; i < 8; ++i) must(near.post(dat::send{}.cookie(i)));
  CHECK(evd.post(9).error() == dat::error(return_type::queue_full));
  std::size_t software = 0;
  std::size_t sent = 0;
  while (evd.drain(dat::overloaded{[&](const dat::software_event&) { ++software; },
                                   [&](const dat::send_done&) { ++sent; }, [](const auto&) {}}) != 0) {
  }
  CHECK(software == 8);
  CHECK(sent == 8);
}

TEST_CASE("a modify that fails half way leaves the modes of both evds", "[evd]") {
  const fake::with resizing(fake::personality::kind);
  const clean_world world;
  end a;
  auto recv = must(a.ia.create_evd<support::mixed>(8));
  auto request = must(a.ia.create_evd<support::mixed>(8));
  auto ep = must(a.pz.create_ep<dat::rc>({.recv = recv, .request = request, .connect = a.evd}));
  using dat::completion_notification;
  const auto change = [&] {
    return ep.modify({.max_request_dtos = 600,
                      .recv_completion = completion_notification::selective,
                      .request_completion = completion_notification::selective});
  };
  fake::fail(fake::call::ibv_resize_cq, 1, ENOMEM);
  is_error(change(), return_type::insufficient_resources, return_subtype::resource_tevd);
  CHECK(must(recv.query()).config == completion_notification::evd_threshold);
  CHECK(must(request.query()).config == completion_notification::evd_threshold);
  must(change());
  CHECK(must(recv.query()).config == completion_notification::selective);
  CHECK(must(request.query()).config == completion_notification::selective);
}

TEST_CASE("when a device cannot resize its queue, the evd is unchanged", "[EVD-041][EVD-042]") {
  fake::reset();
  queue<mixed> q(8);
  must(q.evd.post(1));
  for (const auto& [err, type] : {std::pair{ENOMEM, return_type::insufficient_resources},
                                  std::pair{EOPNOTSUPP, return_type::model_not_supported}}) {
    fake::fail(fake::call::ibv_resize_cq, 1, err);
    const auto r = q.evd.resize(64);
    REQUIRE_FALSE(r);
    CHECK(r.error().type() == type);
    CHECK(r.error().verb() == "ibv_resize_cq");
    CHECK(q.evd.capacity() == 8);
  }
  must(q.evd.resize(64));
  CHECK(std::get<dat::software_event>(must(q.evd.dequeue())).cookie().value() == 1);
}

TEST_CASE("a wait that a signal interrupts returns the event that the handler has queued", "[evd]") {
  static queue<mixed>* signalled = nullptr;
  queue<mixed> q;
  must(q.evd.post(1)); // allocates the memory of the ring, because a handler must not allocate
  (void)must(q.evd.dequeue());
  signalled = &q;
  std::atomic<::pid_t> thread{0};
  support::worker waiter([&](support::worker& w) {
    thread = ::gettid();
    const auto e = q.evd.wait(plenty);
    w.check(e && std::get<dat::software_event>(e.value()).cookie() == dat::cookie(7));
  });
  for (;;) {
    const auto e = q.evd.dequeue();
    if (!e && e.error().subtype() == return_subtype::evd_waiter) break;
    std::this_thread::yield();
  }
  const auto asleep = [&] {
    std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string word;
    while (stat >> word && !word.ends_with(')')) {
    }
    return stat >> word && word == "S";
  };
  while (!asleep()) std::this_thread::yield();
  const auto before = std::signal(SIGUSR1, [](int) { (void)signalled->evd.post(7); });
  REQUIRE(::syscall(SYS_tgkill, ::getpid(), thread.load(), SIGUSR1) == 0);
  waiter.join();
  std::signal(SIGUSR1, before);
}

TEST_CASE("events for drop_events are dropped and free their entries", "[EVENT-101][EVENT-102][EP-006]") {
  const clean_world clean;
  const auto how = GENERATE(dat::progress::manual, dat::progress::automatic);
  auto ia = must(dat::ia::open("fk1", {.progress = how}));
  auto pz = must(ia.create_pz());
  std::array<char, 64> memory{};
  auto mem = must(pz.register_memory(memory, all_rights));
  auto evd = must(ia.create_evd<dat::stream::dto | dat::stream::connection | dat::stream::connection_requests>(64));
  auto psp = must(ia.create_psp(service, evd));
  auto mute = must(pz.create_ep<dat::rc>(dat::ep_evds{dat::drop_events, dat::drop_events, dat::drop_events},
                                         {.max_request_dtos = 4, .max_recv_dtos = 4}));
  auto heard = must(pz.create_ep<dat::rc>(evd));
  must(mute.connect(ia.address(), service, plenty));
  must(must(evd.wait_for<dat::connection_request>(plenty)).accept(heard));
  (void)must(evd.wait_for<dat::established>(heard, plenty));
  while (mute.state() != dat::ep_state::connected) ia.run();
  for (std::uint64_t i = 0; i < 40;) {
    must(heard.post(dat::recv{}.cookie(i)));
    for (;;) {
      auto posted = mute.post(dat::send{});
      if (posted) break;
      // Repeats until the reactor has drained the dropped completions.
      REQUIRE(posted.error().type() == return_type::insufficient_resources);
      ia.run();
      std::this_thread::yield();
    }
    CHECK(must(evd.wait_for<dat::recv_done>(plenty)).cookie() == i++);
  }
  for (int i = 0; i < 40; ++i) { // posts receives, too
    for (;;) {
      auto posted = mute.post(dat::recv{});
      if (posted) break;
      ia.run();
      std::this_thread::yield();
    }
    must(heard.post(dat::send{}));
    (void)must(evd.wait_for<dat::send_done>(plenty));
  }
  // A failure still breaks the connection, suppressed or not, and the peer is notified.
  fake::hold(mute.native_handle());
  must(mute.post(dat::send{}.suppress_completion()));
  REQUIRE(fake::complete(mute.native_handle(), {}, IBV_WC_RETRY_EXC_ERR));
  (void)must(evd.wait_for<dat::disconnected>(heard, plenty));
  CHECK(mute.state() == dat::ep_state::disconnected);
  must(mute.reset());
  must(mute.close());
  must(heard.close());
  must(psp.close());
  must(evd.close());
}

TEST_CASE("a message whose event is dropped frees its receive, also if it arrives before the handshake ends", "[evd]") {
  const clean_world clean;
  end a("fk1");
  end b("fk2");
  auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep();
  auto mute = must(b.pz.create_ep<dat::rc>({.recv = dat::drop_events, .request = b.evd, .connect = dat::drop_events},
                                           {.max_recv_dtos = 1}));
  must(mute.post(dat::recv{b.at(0, 8)}));
  CHECK_FALSE(mute.post(dat::recv{b.at(0, 8)}));
  fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(mute));
  settle(a, b);
  must(a.ep.post(dat::send{a.at(0, 8)}));
  settle(a, b);
  CHECK(mute.state() == dat::ep_state::connected);
  must(mute.post(dat::recv{b.at(0, 8)}));
  fake::release_events();
  settle(a, b);
}

TEST_CASE("an empty evd handle is an error, not drop_events", "[EVENT-102]") {
  const clean_world clean;
  end a;
  dat::evd<dat::stream::dto> none;
  auto dtos = must(a.ia.create_evd<dat::stream::dto>(8));
  CHECK(a.pz.create_ep<dat::rc>({.recv = none, .request = dtos, .connect = a.evd}).error() ==
        dat::error(return_type::invalid_handle, return_subtype::handle_evd_recv));
  // With some events dropped, the others arrive.
  auto ep = must(a.pz.create_ep<dat::rc>({.recv = dtos, .request = dat::drop_events, .connect = dat::drop_events}));
  CHECK(dtos.close().error().subtype() == return_subtype::evd_in_use);
  must(ep.close());
  must(dtos.close());
}

TEST_CASE("a merged evd from which no thread takes completions reports a broken connection", "[evd][COMP-030]") {
  const clean_world clean;
  pair p;
  auto merged = must(p.a.ia.create_evd<dat::stream::dto | dat::stream::software>(8));
  auto ep = must(p.a.pz.create_ep<dat::rc>({.recv = merged, .request = merged, .connect = p.a.evd}));
  p.b.ep = must(p.b.pz.create_ep<dat::rc>(p.b.evd)); // replaces the endpoint of the pair
  p.settle();
  (void)p.a.take();
  p.connect(ep, p.b.ep);
  CHECK(p.a.take() == events{"established"});
  CHECK(p.b.take() == events{"established"});
  fake::hold(ep.native_handle());
  must(ep.post(dat::send{}.cookie(1)));
  REQUIRE(fake::complete(ep.native_handle(), {}, IBV_WC_RNR_RETRY_EXC_ERR));
  // The thread takes events of the connect evd only, and the adapter finds the break.
  CHECK(must(p.a.evd.wait_for<dat::connection_broken>(ep, plenty)).ep() == ep);
  p.b.ia.run();
  CHECK(p.b.take() == events{"disconnected"});
  CHECK(describe{}(std::get<dat::dto_failure>(must(merged.dequeue()))) == "receiver not ready 1");
}

TEST_CASE("a merged evd does not look for breaks after the end of its connections", "[evd]") {
  const clean_world clean;
  pair p;
  auto merged = must(p.a.ia.create_evd<dat::stream::dto | dat::stream::software>(8));
  auto ep = must(p.a.pz.create_ep<dat::rc>({.recv = merged, .request = merged, .connect = p.a.evd}));
  auto far = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  p.connect(ep, far);
  must(ep.post(dat::recv{}));
  must(ep.disconnect()); // the flushed receive causes the device to notify
  const auto armed = fake::count(fake::call::ibv_req_notify_cq);
  const auto late = std::chrono::steady_clock::now() + 4 * dat::detail::break_watch::pause;
  while (std::chrono::steady_clock::now() < late) p.a.ia.run(1ms); // a check would be due meanwhile
  CHECK(fake::count(fake::call::ibv_req_notify_cq) == armed);
  CHECK(take(merged) == events{"flushed 0"});
}

// --- some more rules of the event model ------------------------------------------------------------------------------

TEST_CASE("completions that one thread leaves in the evd, and later completions, trigger the cno again",
          "[EVD-068][EVD-005][EVENT-039]") {
  const clean_world clean;
  pair p;
  auto evd = must(p.b.ia.create_evd<mixed>(16));
  auto cno = must(p.b.ia.create_cno());
  must(evd.modify_cno(cno));
  auto far = must(p.b.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = p.b.evd}));
  auto near = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  p.connect(near, far);
  while (cno.wait(0s)) {
  }
  for (std::uint64_t i = 0; i < 4; ++i) must(far.post(dat::recv{}.cookie(i)));
  for (int i = 0; i < 3; ++i) must(near.post(dat::send{}));
  CHECK(describe{}(std::get<dat::recv_done>(must(evd.dequeue()))) == "received 0");
  CHECK(must(cno.wait(0s)) == evd.id()); // two completions are left
  SHOWS("CNO-012");
  must(evd.post(9)); // an event behind the completions, posted by this thread
  CHECK(must(cno.wait(0s)) == evd.id());
  CHECK(cno.wait(0s).error().type() == return_type::queue_empty);
  must(near.post(dat::send{}));
  CHECK(must(cno.wait(0s)) == evd.id());
  CHECK(take(evd) == events{"received 1", "received 2", "software 9", "received 3"});
}
