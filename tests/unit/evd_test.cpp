// Event dispatchers: what needs a connection, or a device that fails. The rest of their tests is in tests/events.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <thread>

using namespace unit;
using dat::return_subtype;
using dat::return_type;

namespace {

constexpr auto mixed = dat::dto | dat::software;

/// An adapter of the fake world and one evd.
template <dat::streams S>
struct queue {
  explicit queue(std::uint32_t qlen = 8, const dat::ia_options& options = automatic)
      : ia(must(dat::ia::open("fk1", options))), evd(must(ia.create_evd<S>(qlen))) {}
  dat::ia ia;
  dat::evd<S> evd;
};

} // namespace

TEST_CASE("completions and software events fill a merged evd apart from each other", "[EVENT-081]") {
  fake::reset();
  constexpr auto streams = mixed | dat::connection | dat::connection_requests;
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
  while (evd.drain(dat::overloaded{[&](const dat::software_event&) { ++software; }, [&](const dat::sent&) { ++sent; },
                                   [](const auto&) {}}) != 0) {
  }
  CHECK(software == 8);
  CHECK(sent == 8);
}

TEST_CASE("a device that cannot resize its queue leaves the evd as it was", "[EVD-041][EVD-042]") {
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

TEST_CASE("events of an endpoint that nobody wants are dropped, and free its places",
          "[EVENT-101][EVENT-102][EP-006]") {
  const clean_world clean;
  const auto how = GENERATE(dat::progress::manual, dat::progress::automatic);
  auto ia = must(dat::ia::open("fk1", {.progress = how}));
  auto pz = must(ia.create_pz());
  std::array<char, 64> memory{};
  auto mem = must(pz.register_memory(memory, all_rights));
  auto evd = must(ia.create_evd<dat::dto | dat::connection | dat::connection_requests>(64));
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
      REQUIRE(posted.error().type() == return_type::insufficient_resources); // until the reactor has looked
      ia.run();
      std::this_thread::yield();
    }
    CHECK(must(evd.wait_for<dat::received>(plenty)).cookie() == i++);
  }
  for (int i = 0; i < 40; ++i) { // and receives
    for (;;) {
      auto posted = mute.post(dat::recv{});
      if (posted) break;
      ia.run();
      std::this_thread::yield();
    }
    must(heard.post(dat::send{}));
    (void)must(evd.wait_for<dat::sent>(plenty));
  }
  // A failure breaks the connection all the same, suppressed or not; the peer hears of it.
  fake::hold(mute.native_handle());
  must(mute.post(dat::send{}.suppress()));
  REQUIRE(fake::complete(mute.native_handle(), {}, IBV_WC_RETRY_EXC_ERR));
  (void)must(evd.wait_for<dat::disconnected>(heard, plenty));
  CHECK(mute.state() == dat::ep_state::disconnected);
  must(mute.reset());
  must(mute.close());
  must(heard.close());
  must(psp.close());
  must(evd.close());
}

TEST_CASE("an evd handle that names nothing is a mistake, and no wish for no events", "[EVENT-102][EP-008]") {
  const clean_world clean;
  end a;
  dat::evd<dat::dto> none;
  auto dtos = must(a.ia.create_evd<dat::dto>(8));
  CHECK(a.pz.create_ep<dat::rc>({.recv = none, .request = dtos, .connect = a.evd}).error() ==
        dat::error(return_type::invalid_handle, return_subtype::handle_evd_recv));
  // Some of them: the streams that are wanted come.
  auto ep = must(a.pz.create_ep<dat::rc>({.recv = dtos, .request = dat::drop_events, .connect = dat::drop_events}));
  CHECK(dtos.close().error().subtype() == return_subtype::evd_in_use);
  must(ep.close());
  must(dtos.close());
}

TEST_CASE("a broken connection is noticed though nobody takes the completions of its evd", "[EPS-060][COMP-030]") {
  const clean_world clean;
  const auto lean = GENERATE(true, false);
  pair p;
  auto dtos = must(p.a.ia.create_evd<dat::dto>(8));
  auto merged = must(p.a.ia.create_evd<dat::dto | dat::software>(8));
  auto ep = must(lean ? p.a.pz.create_ep<dat::rc>({.recv = dtos, .request = dtos, .connect = p.a.evd})
                      : p.a.pz.create_ep<dat::rc>({.recv = merged, .request = merged, .connect = p.a.evd}));
  p.b.ep = must(p.b.pz.create_ep<dat::rc>(p.b.evd)); // the pair's own goes
  p.settle();
  (void)p.a.take();
  must(ep.connect(p.b.ia.address(), service, plenty));
  p.settle();
  must(request_on(p.b.evd).accept(p.b.ep));
  p.settle();
  CHECK(p.a.take() == events{"established"});
  CHECK(p.b.take() == events{"established"});
  fake::hold(ep.native_handle());
  must(ep.post(dat::send{}.cookie(1)));
  REQUIRE(fake::complete(ep.native_handle(), {}, IBV_WC_RNR_RETRY_EXC_ERR));
  // Only the connection's evd is looked at, and the adapter works.
  CHECK(must(p.a.evd.wait_for<dat::broken>(ep, plenty)).ep() == ep);
  p.b.ia.run();
  CHECK(p.b.take() == events{"disconnected"});
  auto failure = lean ? describe{}(std::get<dat::dto_failure>(must(dtos.dequeue())))
                      : describe{}(std::get<dat::dto_failure>(must(merged.dequeue())));
  CHECK(failure == "receiver not ready 1");
}

// --- some more rules of the event model ------------------------------------------------------------------------------

TEST_CASE("completions that one taker leaves, and those that come later, trigger the cno again",
          "[CNO-012][EVD-068][EVD-005][EVENT-039]") {
  const clean_world clean;
  pair p;
  auto evd = must(p.b.ia.create_evd<mixed>(16));
  auto cno = must(p.b.ia.create_cno());
  must(evd.modify_cno(cno));
  auto far = must(p.b.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = p.b.evd}));
  auto near = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  must(near.connect(p.b.ia.address(), service, plenty));
  p.settle();
  must(request_on(p.b.evd).accept(far));
  p.settle();
  while (cno.wait(0s)) {
  }
  for (std::uint64_t i = 0; i < 4; ++i) must(far.post(dat::recv{}.cookie(i)));
  for (int i = 0; i < 3; ++i) must(near.post(dat::send{}));
  must(evd.post(9)); // came after them, in this thread
  CHECK(describe{}(std::get<dat::received>(must(evd.dequeue()))) == "received 0");
  CHECK(must(cno.wait(0s)) == evd.id());
  CHECK(cno.wait(0s).error().type() == return_type::queue_empty);
  must(near.post(dat::send{}));
  CHECK(must(cno.wait(0s)) == evd.id());
  CHECK(take(evd) == events{"received 1", "received 2", "software 9", "received 3"});
}
