// The ends of endpoints and of their shared receive queue in the fake world: the buffers and completions that are left.
// SPDX-License-Identifier: BSL-1.0
#include "pool_fake.hpp"

#include <dat/rmr.hpp>
#include <dat/srq.hpp>

#include <poll.h>

using namespace shared_queues;
using namespace unit;
using dat::ep_state;
using dat::return_subtype;
using dat::return_type;

TEST_CASE("a buffer that is too small breaks the connection that took it, and no other",
          "[SRQ-019][SRQ-073][SRQ-085]") {
  const clean_world clean;
  pool p(2);
  p.post(1, 3);
  p.send(0, 17);
  CHECK(p.received() == events{"0:local length error 1"});
  constexpr auto tells_the_length = []<class E>(std::type_identity<E>) {
    return requires(const E& e) { e.bytes(); };
  };
  STATIC_REQUIRE_FALSE(tells_the_length(std::type_identity<dat::dto_failure>()));
  p.settle();
  CHECK(p.b.take() == events{"broken"});
  CHECK(p.to[0].state() == ep_state::disconnected);
  p.send(1);
  CHECK(p.received() == events{"1:received 2"});
  CHECK(p.outstanding() == 1);
}

TEST_CASE("a shared queue that failed takes buffers and endpoints, is told of once, and can only be closed", "") {
  const clean_world clean;
  pool p(2);
  p.post(1, 3);
  fake::async(IBV_EVENT_SRQ_ERR, p.srq.native_handle());
  fake::async(IBV_EVENT_SRQ_ERR, p.srq.native_handle());
  p.settle();
  const auto e = must(p.b.ia.async_evd().dequeue());
  REQUIRE(std::holds_alternative<dat::srq_error>(e));
  CHECK(std::get<dat::srq_error>(e).srq() == p.srq);
  CHECK(std::get<dat::srq_error>(e).is_of(p.b.ia));
  SHOWS("EVENT-086", "EVENT-014", "REQ-165");
  CHECK(async_of(p.b.ia).empty());
  SHOWS("SRQ-024");
  CHECK(p.now().state == dat::srq_state::error);
  CHECK(to_string(p.now().state) == "error");
  SHOWS("SRQ-023");
  const dat::error state(return_type::invalid_state, return_subtype::srq_error);
  CHECK(refusal(p.srq.set_low_watermark(1)) == state);
  SHOWS("SRQ-043");
  CHECK(refusal(p.srq.resize(20)) == state);
  SHOWS("SRQ-022", "SRQ-069");
  // A buffer that the device refuses returns to the consumer when the queue ends, like all posted ones.
  fake::fail(fake::call::ibv_post_srq_recv, 1, EIO);
  must(p.srq.post(dat::recv{p.b.at(0, 8)}));
  CHECK(p.outstanding() == 4);
  SHOWS("SRQ-028");
  p.add();
  CHECK(p.to[2].state() == ep_state::connected);
  CHECK_FALSE(must(p.to[2].recv_query()).allocated);
  SHOWS("SRQ-027", "EP-033", "EP-065");
  // The endpoint that needed a buffer fails, and no other.
  fake::async(IBV_EVENT_QP_FATAL, p.to[0].native_handle());
  p.settle();
  CHECK(p.b.take() == events{"broken"});
  CHECK(p.to[0].state() == ep_state::disconnected);
  CHECK(p.received().empty()); // the endpoint has received no buffer
  CHECK(p.to[1].state() == ep_state::connected);
  SHOWS("SRQ-025");
  CHECK(refusal(p.srq.close()) == dat::error(return_type::invalid_state, return_subtype::srq_in_use));
  for (auto& ep : p.to) must(ep.close());
  CHECK(p.now().state == dat::srq_state::error);
  must(p.srq.close());
  CHECK(p.received().empty());
  must(p.b.mem.close());
  SHOWS("SRQ-026", "SRQ-045");
}

TEST_CASE("the buffers that an ended endpoint held return to its shared queue", "") {
  const clean_world clean;
  pool p(3);
  p.post(1, 9);
  for (const std::size_t i : {0u, 1u, 2u, 0u}) p.send(i);
  CHECK(p.now().available == 5u);
  must(p.to[0].close());
  CHECK(p.outstanding() == 7); // this completion is not taken either
  CHECK(p.received() == events{"1:received 2", "2:received 3"});
  CHECK(p.outstanding() == 5);
  SHOWS("EPS-075", "EP-038", "EP-039");
  // Reset keeps the shared queue and its buffers.
  p.send(1);
  must(p.to[1].disconnect());
  p.settle();
  must(p.to[1].reset());
  CHECK(p.outstanding() == 4);
  CHECK(p.now().available == 4u);
  SHOWS("SRQ-059", "EPS-070", "EPS-073", "DISC-032");
  CHECK(p.received().empty());
  (void)p.a.take();
  CHECK(p.b.take() == events{"disconnected"});
  must(p.from[1].reset());
  p.connect(p.from[1], p.to[1]);
  p.send(1);
  p.send(2);
  CHECK(p.received() == events{"1:received 6", "2:received 7"});
  SHOWS("DISC-052");
  // A failed accept takes no buffer.
  auto late = must(p.b.pz.create_ep<dat::rc>(p.b.evd, p.srq));
  auto eager = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  must(eager.connect(p.b.ia.address(), service, plenty));
  p.settle();
  const auto before = p.now().available;
  fake::fail(fake::call::rdma_accept);
  must(request_on(p.b.evd).accept(late));
  p.settle();
  CHECK(p.b.take() == events{"accept_completion_error " + std::to_string(EINVAL)});
  CHECK(p.now().available == before);
  SHOWS("CR-040");
  must(late.close());
  must(eager.close());
  p.settle();
  (void)p.a.take();
  // After a disconnect, queued completions can still be taken.
  p.send(2);
  must(p.to[2].disconnect());
  CHECK(p.received() == events{"2:received 8"});
  SHOWS("SRQ-084");
  // The queue's handle is destroyed before its endpoints, which keep the queue.
  { const dat::srq gone = std::move(p.srq); }
  p.send(1);
  CHECK(p.received() == events{"1:received 9"});
  SHOWS("SRQ-047");
  CHECK(fake::live().srqs == 1);
  p.to.clear();
  CHECK(fake::live().srqs == 0);
}

TEST_CASE("a shared buffer that holds half a message is flushed when the connection ends, and the others stay",
          "[srq]") {
  const bool by_peer = GENERATE(false, true);
  CAPTURE(by_peer);
  const clean_world clean;
  pool p(2);
  p.post(1, 4);
  REQUIRE(fake::begin_message(p.to[0].native_handle()));
  CHECK(p.outstanding() == 4); // a buffer at the endpoint counts, too
  SHOWS("SRQ-029");
  must(by_peer ? p.from[0].disconnect() : p.to[0].disconnect());
  p.settle();
  CHECK(p.received() == events{"0:flushed 1"});
  CHECK((p.now().available == 3u && p.outstanding() == 3));
  SHOWS("SRQ-083", "EP-064");
  p.send(1);
  CHECK(p.received() == events{"1:received 2"});
}

TEST_CASE("completions in an evd are dropped or kept, without harm, when endpoints and queue have ended",
          "[SRQ-049][EPS-075][SRQ-047]") {
  const clean_world clean;
  {
    pool<data_streams> other(1);
    other.post(1, 3);
    other.send(0);
    other.send(0);
    must(other.to[0].close());
    CHECK(other.received().empty());
    must(other.evd.close()); // like a program that takes no further events
    CHECK(other.outstanding() == 1);
    SHOWS("SRQ-059");
    must(other.srq.close());
  }
  pool p(1);
  p.post(1, 3);
  p.send(0);
  CHECK(p.now().available == 2u); // the completion is in the ring already
  p.send(0);
  p.to.clear();
  p.srq = must(p.b.pz.create_srq());
  must(p.srq.post(dat::recv{p.b.at(0, 8)}));
  CHECK(p.received().empty());
  CHECK(p.outstanding() == 1);
}

TEST_CASE("a device that drops the completions of a destroyed queue pair leaves no buffer outstanding",
          "[SRQ-059][EPS-075][EP-039]") {
  const clean_world clean({.destroy_drops = true});
  const auto check = [](auto& p) {
    p.post(1, 9);
    for (const std::size_t i : {0u, 1u, 2u, 0u, 1u, 2u}) p.send(i);
    must(p.to[0].close());
    CHECK(p.outstanding() == 7);
    p.send(1);
    must(p.to[2].disconnect());
    must(p.to[2].reset());
    CHECK(p.outstanding() == 5);
    // Completions of other endpoints stay, in order, and the queue works.
    p.send(1);
    CHECK(p.received() == events{"1:received 2", "1:received 5", "1:received 7", "1:received 8"});
    p.send(1);
    CHECK(p.received() == events{"1:received 9"});
    CHECK(p.outstanding() == 0);
    p.settle();
    (void)p.a.take();
    (void)p.b.take();
  };
  {
    pool<data_streams> other(3);
    check(other);
    // A completion that arrives after its endpoint has ended is no event, and its entry is free.
    other.post(1, 2);
    other.send(1);
    ibv_wc late{};
    REQUIRE(ibv_poll_cq(other.evd.native_handle(), 1, &late) == 1);
    must(other.to[1].close());
    CHECK(other.outstanding() == 2);
    fake::forge(other.evd.native_handle(), late);
    CHECK(other.received().empty());
    CHECK(other.outstanding() == 1);
  }
  pool merged(3);
  check(merged);
  merged.post(1, 2);
  merged.send(1);
  ibv_wc late{};
  REQUIRE(ibv_poll_cq(merged.evd.native_handle(), 1, &late) == 1);
  must(merged.to[1].close());
  fake::forge(merged.evd.native_handle(), late);
  CHECK(merged.received().empty());
  CHECK(merged.outstanding() == 1);
}

TEST_CASE("an endpoint of a shared queue that ends with an untaken completion leaves nothing behind",
          "[SRQ-059][EPS-075][EP-039]") {
  // No call makes progress on the ia afterwards: its progress is manual.
  const std::size_t bytes = GENERATE(std::size_t{8}, std::size_t{32}); // 32 bytes do not fit, so the receive has failed
  CAPTURE(bytes);
  const clean_world clean;
  pool p(1);
  p.post(1, 1);
  p.send(0, bytes);
  CHECK(fake::unread_completions(p.evd.native_handle()) == 1);
  must(p.to[0].close());
  CHECK(p.outstanding() == 0);
}

TEST_CASE("lost completions break the endpoints of that evd, and the queue serves the others", "[SRQ-070][EVENT-031]") {
  const fake::with forgiving{fake::current(), [](fake::manners& m) {
                               m.fatal_overrun = false; // counts the losses
                               m.srq_resize = true;
                             }};
  const clean_world clean;
  pool p(1, {.max_recv_dtos = 200});
  auto tiny = must(p.b.ia.create_evd<data_streams>(1));
  auto peer = must(p.a.pz.create_ep<dat::rc>(p.a.evd, {.max_request_dtos = 200}));
  auto drowned = must(p.b.pz.create_ep<dat::rc>({.recv = tiny, .request = p.b.evd, .connect = p.b.evd}, p.srq));
  p.connect(peer, drowned);
  p.post(1, 200);
  // The evd has room for all buffers of the queue, so completions of no endpoint take most of it.
  for (int i = tiny.native_handle()->cqe - 10; i > 0; --i) fake::forge(tiny.native_handle(), ibv_wc{});
  for (int i = 0; i < 60; ++i) must(peer.post(dat::send{p.a.at(0, 8)}.suppress_completion()));
  p.settle();
  CHECK(drowned.state() == ep_state::disconnected);
  CHECK(p.b.take() == events{"broken"});
  p.send(0);
  CHECK(p.received() == events{"0:received 61"});
  // Lost completions stay outstanding, as documented.
  const std::size_t left = take(tiny).size();
  CHECK(left < 60);
  CHECK(p.outstanding() == 200 - 1 - left);
  p.post(1, static_cast<int>(p.now().max_recv_dtos - p.outstanding()));
  CHECK(refusal(p.srq.post(dat::recv{})).type() == return_type::insufficient_resources);
  // A larger queue does not enlarge the evds of its endpoints.
  const auto room = tiny.capacity();
  must(p.srq.resize(2 * p.now().max_recv_dtos));
  CHECK(tiny.capacity() == room);
}

/// Runs a call while a request for a connection waits for the ia. Returns whether it still waits afterwards.
template <class Call>
bool leaves_work(pool<>& p, Call call) {
  auto other = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  must(other.connect(p.b.ia.address(), service, plenty));
  for (int i = 0; i < 4; ++i) p.a.ia.run();
  pollfd pending{p.b.ia.fd(), POLLIN, 0};
  REQUIRE(::poll(&pending, 1, 0) == 1);
  call();
  return ::poll(&pending, 1, 0) == 1;
}
bool reset_leaves_work(pool<>& p) {
  return leaves_work(p, [&] { must(p.to[0].reset()); });
}

TEST_CASE("an endpoint that has taken its last buffer is reset without further waiting", "[srq]") {
  const fake::with reports(fake::personality::kind, [](fake::manners& m) { m.last_wqe_event = true; });
  const clean_world clean;
  pool p(1);
  p.post(1, 2);
  must(p.from[0].disconnect(dat::close_mode::abrupt));
  p.settle(); // the device reports the last buffer
  // A wait would handle pending work.
  CHECK(reset_leaves_work(p));
  CHECK(p.to[0].state() == ep_state::unconnected);
}

TEST_CASE("an endpoint waits for the last buffer of each connection, whatever an earlier one has reported", "[srq]") {
  const fake::with silent(fake::personality::kind, [](fake::manners& m) { m.last_wqe_event = false; });
  const clean_world clean;
  pool p(1);
  p.post(1, 4);
  must(p.from[0].disconnect(dat::close_mode::abrupt));
  p.settle();
  fake::async(IBV_EVENT_QP_LAST_WQE_REACHED, p.to[0].native_handle());
  p.b.ia.run();
  must(p.to[0].reset());
  must(p.from[0].reset());
  (void)p.a.take();
  (void)p.b.take();
  p.connect(p.from[0], p.to[0]);
  must(p.from[0].disconnect(dat::close_mode::abrupt));
  p.settle();
  // The wait handles pending work.
  CHECK_FALSE(reset_leaves_work(p));
}

TEST_CASE("an endpoint that was reset has taken no buffer since, and ends without waiting for its last one", "[srq]") {
  const fake::with reports(fake::personality::kind, [](fake::manners& m) { m.last_wqe_event = true; });
  const clean_world clean;
  pool p(1);
  p.post(1, 2);
  must(p.from[0].disconnect(dat::close_mode::abrupt));
  p.settle(); // the device reports the last buffer, so the reset does not wait
  must(p.to[0].reset());
  // A wait would handle pending work.
  CHECK(leaves_work(p, [&] { must(p.to[0].close()); }));
}

TEST_CASE("an abrupt close of the ia ends endpoints, then the shared queue", "[SRQ-052][DTO-026][REQ-115]") {
  const clean_world clean;
  pool p(2);
  p.post(1, 5);
  p.send(0);
  const auto window = must(p.b.pz.create_rmr_for_ep());
  CHECK(static_cast<bool>(window));
  must(p.b.ia.close(dat::close_mode::abrupt));
  CHECK(fake::live().srqs == 0);
  must(p.a.ia.close(dat::close_mode::abrupt));
  const auto left = fake::live(); // the fake refuses to end an object that another one uses
  CHECK((left.qps == 0 && left.cqs == 0 && left.mrs == 0 && left.mws == 0 && left.pds == 0));
  SHOWS("IA-045");
  CHECK(refusal(p.srq.post(dat::recv{})).type() == return_type::invalid_handle);
}
