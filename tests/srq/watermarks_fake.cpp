// Watermarks of shared receive queues in the fake world: when dat reports each one, and the disconnect at the hard
// watermark. SPDX-License-Identifier: BSL-1.0
#include "pool_fake.hpp"

#include <dat/ep_params.hpp>
#include <dat/srq.hpp>

using namespace shared_queues;
using namespace unit;
using dat::ep_state;
using dat::return_subtype;
using dat::return_type;

TEST_CASE("the low watermark is reported once each time it is set", "[SRQ-011][SRQ-034][SRQ-041]") {
  // Without ibv_query_srq a late limit event cannot be distinguished from that of the next limit.
  const fake::with queried{fake::current(), [](fake::manners& m) { m.srq_query = true; }};
  const clean_world clean;
  pool p(1, {.max_recv_dtos = 30});
  const auto messages = [&](int n) {
    for (int i = 0; i < n; ++i) p.send(0);
    CHECK(p.received().size() == static_cast<std::size_t>(n));
    p.settle();
  };
  // Without a watermark there is no event, nor after the watermark was removed.
  p.post(1, 6);
  messages(6);
  p.post(1, 6);
  must(p.srq.set_low_watermark(5));
  must(p.srq.set_low_watermark(0));
  messages(6);
  CHECK(async_of(p.b.ia).empty());
  SHOWS("SRQ-033");
  // The event comes when fewer buffers than the watermark remain.
  p.post(1, 5);
  must(p.srq.set_low_watermark(3));
  messages(2);
  CHECK(async_of(p.b.ia).empty());
  p.send(0);
  p.settle();
  const auto e = must(p.b.ia.async_evd().dequeue());
  REQUIRE(std::holds_alternative<dat::srq_low_watermark>(e));
  CHECK(refusal(p.srq.set_low_watermark(p.now().max_recv_dtos + 1)).type() == return_type::invalid_parameter);
  CHECK(std::get<dat::srq_low_watermark>(e).srq() == p.srq);
  CHECK(std::get<dat::srq_low_watermark>(e).is_of(p.b.ia));
  SHOWS("SRQ-031", "SRQ-035", "SRQ-037", "SRQ-038", "EVENT-014", "EVENT-083", "DTO-028", "REQ-117");
  CHECK(p.received().size() == 1);
  CHECK(p.now().low_watermark == 3);
  // The event gives access to the queue, so that a handler can post more buffers.
  for (int i = 0; i < 4; ++i) must(std::get<dat::srq_low_watermark>(e).srq().post(dat::recv{p.b.at(0, 16)}));
  messages(6);
  CHECK(async_of(p.b.ia).empty());
  // The count is below the watermark already, so the event comes at once, and no second event follows.
  p.post(1, 6);
  must(p.srq.set_low_watermark(8));
  CHECK(async_of(p.b.ia) == events{"low"});
  SHOWS("SRQ-036");
  messages(6);
  CHECK(async_of(p.b.ia).empty());
  SHOWS("SRQ-032", "SRQ-039");
  // A buffer whose completion is not taken is not available.
  p.post(1, 6);
  p.send(0);
  p.send(0);
  must(p.srq.set_low_watermark(5));
  CHECK(async_of(p.b.ia) == events{"low"});
  CHECK(p.received().size() == 2);
  // The watermark is set again before it is reached: the last value counts.
  p.post(1, 2);
  must(p.srq.set_low_watermark(2));
  must(p.srq.set_low_watermark(5));
  messages(1);
  CHECK(async_of(p.b.ia).empty());
  messages(1);
  CHECK(async_of(p.b.ia) == events{"low"});
  SHOWS("SRQ-040");
  messages(4);
  CHECK(async_of(p.b.ia).empty());
  // The device had reported the earlier watermark, and no thread had read the event.
  p.post(1, 6);
  must(p.srq.set_low_watermark(6));
  p.send(0);
  p.post(7, 12);
  must(p.srq.set_low_watermark(4));
  p.settle();
  CHECK(async_of(p.b.ia).empty());
  CHECK(p.received() == events{"0:received 1"});
  messages(7);
  CHECK(async_of(p.b.ia).empty());
  messages(1);
  CHECK(async_of(p.b.ia) == events{"low"});
  // An event outlives the queue.
  must(p.srq.set_low_watermark(5));
  for (auto& ep : p.to) must(ep.close());
  must(p.srq.close());
  auto last = must(p.b.ia.async_evd().dequeue());
  REQUIRE(std::holds_alternative<dat::srq_low_watermark>(last));
  CHECK(refusal(std::get<dat::srq_low_watermark>(last).srq().post(dat::recv{})).type() == return_type::invalid_handle);
  SHOWS("SRQ-048");
}

TEST_CASE("the soft high watermark is reported once for an endpoint that takes too much", "") {
  const clean_world clean;
  pool p(2, {.max_recv_dtos = 60}, {.soft_high_watermark = 3});
  const std::string first = "soft " + std::to_string(p.to[0].number());
  const auto arrive = [&](int n) {
    for (int i = 0; i < n; ++i) p.send(0);
    (void)p.now(); // a query checks the watermarks
    p.settle();
  };
  p.post(1, 60);
  arrive(3);
  CHECK(async_of(p.b.ia).empty());
  arrive(1);
  const auto e = must(p.b.ia.async_evd().dequeue());
  REQUIRE(std::holds_alternative<dat::ep_soft_high_watermark>(e));
  CHECK(std::get<dat::ep_soft_high_watermark>(e).ep() == p.to[0]);
  SHOWS("EP-087", "EPATTR-016");
  arrive(4);
  CHECK(async_of(p.b.ia).empty());
  SHOWS("REQ-118", "DTO-029");
  // The watermark is set again while the count is above it, so the event comes at once.
  must(p.to[0].set_watermark(7, dat::no_watermark));
  CHECK(async_of(p.b.ia) == events{first});
  SHOWS("EP-085", "EP-088");
  must(p.to[0].set_watermark(8, dat::no_watermark));
  CHECK(async_of(p.b.ia).empty());
  arrive(1); // the new value is armed, although the watermark was reported before
  CHECK(async_of(p.b.ia) == events{first});
  SHOWS("EP-090");
  CHECK(p.received().size() == 9);
  must(p.to[0].set_watermark(8, dat::no_watermark));
  // An endpoint whose messages are taken as they come never reaches the watermark.
  for (int i = 0; i < 12; ++i) {
    arrive(1);
    CHECK(p.received().size() == 1);
  }
  CHECK(async_of(p.b.ia).empty());
  SHOWS("EP-094");
  const auto q = must(p.to[0].query());
  CHECK(q.attributes.soft_high_watermark == 8);
  CHECK(q.attributes.hard_high_watermark == dat::no_watermark);
  CHECK(must(p.to[1].query()).attributes.soft_high_watermark == 3);
  SHOWS("EP-097");
  for (const std::uint32_t bad : {~1u, 1u << 31}) {
    CHECK(refusal(p.to[0].set_watermark(bad, 3)) == dat::error(return_type::invalid_parameter, return_subtype::arg2));
    CHECK(refusal(p.to[0].set_watermark(3, bad)) == dat::error(return_type::invalid_parameter, return_subtype::arg3));
    CHECK_FALSE(p.b.pz.create_ep<dat::rc>(p.b.evd, p.srq, {.soft_high_watermark = bad}));
  }
  CHECK(must(p.to[0].query()).attributes.soft_high_watermark == 8);
  SHOWS("EP-096", "SRQ-034");
  must(p.to[0].set_watermark(0, dat::no_watermark)); // the first message exceeds the watermark
  arrive(1);
  CHECK(async_of(p.b.ia) == events{first});
  CHECK(p.to[0].state() == ep_state::connected);
  SHOWS("EP-091");
  must(p.to[0].set_watermark(dat::no_watermark, dat::no_watermark));
  arrive(9);
  CHECK(async_of(p.b.ia).empty());
  SHOWS("EP-092");
}

TEST_CASE("receives of an endpoint's earlier life do not count towards its watermark", "[srq]") {
  const clean_world clean;
  pool p(1, {.max_recv_dtos = 20}, {.soft_high_watermark = 3});
  p.post(1, 12);
  const auto arrive = [&](int n) {
    for (int i = 0; i < n; ++i) p.send(0);
    (void)p.now();
    p.settle();
  };
  arrive(3);
  must(p.from[0].disconnect(dat::close_mode::abrupt));
  p.settle();
  must(p.to[0].reset());
  must(p.from[0].reset());
  (void)p.a.take();
  (void)p.b.take();
  (void)async_of(p.b.ia);
  p.connect(p.from[0], p.to[0]);
  arrive(3);
  CHECK(async_of(p.b.ia).empty());
  arrive(1);
  CHECK(async_of(p.b.ia) == events{"soft " + std::to_string(p.to[0].number())});
}

TEST_CASE("the hard high watermark disconnects an endpoint, and no other", "") {
  const clean_world clean;
  pool p(2, {.max_recv_dtos = 60}, {.soft_high_watermark = 7, .hard_high_watermark = 5});
  CHECK(must(p.to[0].query()).attributes.max_recv_dtos == 5);
  SHOWS("EP-027", "EP-055", "EPATTR-009");
  p.post(1, 60);
  const auto arrive = [&](std::size_t which, int n) {
    for (int i = 0; i < n; ++i) p.send(which);
    (void)p.now();
    p.settle();
  };
  arrive(0, 5);
  CHECK(p.to[0].state() == ep_state::connected);
  arrive(0, 4);
  CHECK(p.to[0].state() == ep_state::disconnected);
  CHECK(p.b.take() == events{"broken"});
  SHOWS("EP-089", "REQ-119", "DTO-030");
  (void)p.a.take();
  CHECK(async_of(p.b.ia).empty()); // the hard watermark, which is lower, was reached first
  SHOWS("EP-093");
  CHECK(p.received().size() == 9); // messages that have arrived stay in the evd
  SHOWS("EP-091");
  arrive(1, 3);
  CHECK(p.received().size() == 3);
  // The watermark holds in the next life as well, and can be changed.
  must(p.to[0].reset());
  must(p.from[0].reset());
  p.connect(p.from[0], p.to[0]);
  must(p.to[0].set_watermark(dat::no_watermark, dat::no_watermark));
  arrive(0, 8);
  CHECK(p.to[0].state() == ep_state::connected);
  SHOWS("EP-092");
  must(p.to[0].set_watermark(6, 7)); // both watermarks are exceeded
  CHECK(p.to[0].state() == ep_state::disconnected);
  CHECK(async_of(p.b.ia) == events{"soft " + std::to_string(p.to[0].number())});
  CHECK(p.b.take() == events{"broken"});
  SHOWS("EP-090");
  must(p.to[0].set_watermark(3, 9)); // allowed in any state
  CHECK(async_of(p.b.ia) == events{"soft " + std::to_string(p.to[0].number())});
  SHOWS("EP-085");
  must(p.to[0].reset());
  p.settle();
  CHECK(must(p.to[0].query()).attributes.hard_high_watermark == 9);
  SHOWS("EP-097", "EPS-074");
  // An endpoint with a receive queue of its own has watermarks, too.
  auto plain = must(p.b.pz.create_ep<dat::rc>(p.b.evd, {.hard_high_watermark = 2}));
  for (int i = 0; i < 5; ++i) must(plain.post(dat::recv{p.b.at(0, 16)}.cookie(i)));
  must(p.from[0].reset());
  must(p.from[0].connect(p.b.ia.address(), service, plenty));
  p.settle();
  must(request_on(p.b.evd).accept(plain));
  p.settle();
  for (int i = 0; i < 3; ++i) p.send(0);
  p.settle();
  must(plain.set_watermark(1, 2));
  CHECK(plain.state() == ep_state::disconnected);
  CHECK(async_of(p.b.ia) == events{"soft " + std::to_string(plain.number())});
  SHOWS("EP-095");
  must(plain.set_watermark(3, dat::no_watermark));
  p.settle();
  CHECK(async_of(p.b.ia).empty()); // flushed receives are no messages
}
