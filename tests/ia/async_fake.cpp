// Asynchronous events, and evds that overflow.
// SPDX-License-Identifier: BSL-1.0
#include "../support/worker.hpp"
#include "world.hpp"

#include <dat/detail/handle/core_access.hpp>

#include <thread>

using namespace unit;
using dat::return_subtype;
using dat::return_type;
using support::worker;

namespace {

/// The name of an asynchronous event, and its data.
struct name_of {
  std::string operator()(const dat::evd_overflow& e) const {
    return std::string("overflow ").append(std::to_string(e.evd().number()));
  }
  std::string operator()(const dat::ia_catastrophic&) const { return "catastrophic"; }
  std::string operator()(const dat::ep_broken& e) const {
    return std::string(e.reason() == dat::ep_error::transfer_to_error ? "ep failed " : "ep error ")
        .append(std::to_string(e.ep().number()));
  }
  std::string operator()(const dat::operation_timed_out&) const { return "timed out"; }
  std::string operator()(const dat::provider_internal_error& e) const {
    return std::string(e.verb()).append(" ").append(fake::errno_name(e.code()));
  }
  std::string operator()(const dat::ha_down_to_1&) const { return "one path"; }
  std::string operator()(const dat::ha_up_to_multi_path&) const { return "several paths"; }
  std::string operator()(const dat::port_down&) const { return "port down"; }
  std::string operator()(const dat::port_active&) const { return "port active"; }
  std::string operator()(const dat::port_changed& e) const {
    return std::string("changed ").append(std::to_string(static_cast<int>(e.change())));
  }
  std::string operator()(const dat::srq_low_watermark&) const { return "srq low"; }
  std::string operator()(const dat::srq_error&) const { return "srq error"; }
  std::string operator()(const dat::ep_soft_high_watermark&) const { return "ep high"; }
  std::string operator()(const auto& e) const { return describe{}(e); }
};

template <dat::streams S>
events all_of(dat::evd<S>& evd) {
  events all;
  while (evd.drain([&](const auto& e) { all.push_back(name_of{}(e)); }) != 0) {
  }
  return all;
}

} // namespace

TEST_CASE("every asynchronous event of the device has its type, and connection steps give none", "[ia]") {
  const clean_world clean;
  pair p;
  auto* const context = p.a.ia.native_handle();
  auto& evd = p.a.ia.async_evd();
  for (const auto type : {IBV_EVENT_COMM_EST, IBV_EVENT_SQ_DRAINED, IBV_EVENT_PATH_MIG, IBV_EVENT_PATH_MIG_ERR,
                          IBV_EVENT_QP_LAST_WQE_REACHED})
    fake::async(type, p.a.ep.native_handle());
  for (const auto type : {IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_LID_CHANGE, IBV_EVENT_PKEY_CHANGE,
                          IBV_EVENT_GID_CHANGE, IBV_EVENT_SM_CHANGE, IBV_EVENT_CLIENT_REREGISTER})
    fake::async(type, context);
  fake::async(IBV_EVENT_PORT_ERR, context, 2); // another port of the device belongs to another ia
  p.settle();
  CHECK(all_of(evd) ==
        events{"port down", "port active", "changed 0", "changed 1", "changed 2", "changed 3", "changed 4"});
  SHOWS("EVENT-012", "EVENT-030", "EVENT-088");
  CHECK(p.a.ep.state() == dat::ep_state::connected);
  CHECK(p.a.take().empty());
  SHOWS("EVENT-089", "EVENT-090");

  const std::string number = std::to_string(p.a.ep.number());
  fake::async(IBV_EVENT_QP_ACCESS_ERR, p.a.ep.native_handle());
  fake::async(IBV_EVENT_QP_REQ_ERR, p.a.ep.native_handle());
  fake::async(IBV_EVENT_QP_FATAL, p.a.ep.native_handle());
  p.settle();
  const auto e = must(evd.dequeue());
  CHECK(std::get<dat::ep_broken>(e).ep() == p.a.ep);
  SHOWS("CTX-014");
  CHECK(std::get<dat::ep_broken>(e).is_of(p.a.ia));
  CHECK_FALSE(std::get<dat::ep_broken>(e).is_of(p.b.ia));
  CHECK(static_cast<int>(std::get<dat::ep_broken>(e).reason()) == 1); // DAT_EP_OTHER_ERROR
  // Another event of the same kind, and DAT_EP_TRANSFER_TO_ERROR, which is 0.
  CHECK(all_of(evd) == events{"ep error " + number, "ep failed " + number});
  STATIC_REQUIRE(static_cast<int>(dat::ep_error::transfer_to_error) == 0);
  SHOWS("EVENT-014");
  CHECK(p.a.take() == events{"broken"});
  SHOWS("EVENT-085", "HA-016", "REQ-165", "REQ-187");
  CHECK(p.b.take() == events{"disconnected"});
  CHECK(all_of(p.b.ia.async_evd()).empty());
  CHECK(fake::live().unacked_async_events == 0);
}

TEST_CASE("open creates the evd of asynchronous events, which ends with the ia", "[ia]") {
  const clean_world clean;
  CHECK(dat::ia::open("fk1", {.async_qlen = 0}).error() ==
        dat::error(return_type::invalid_parameter, return_subtype::arg2));
  auto ia = must(dat::ia::open("fk1", {.async_qlen = 8}));
  auto& evd = ia.async_evd();
  CHECK(evd.capacity() >= 8);
  SHOWS("IA-005");
  CHECK(evd.enabled());
  CHECK(evd.waitable());
  CHECK(must(evd.query()).streams == dat::stream::async);
  SHOWS("IA-008");
  CHECK_FALSE(must(evd.query()).cno);
  CHECK(evd.native_handle() == nullptr);
  must(evd.resize(64));
  CHECK(evd.capacity() >= 64);
  auto cno = must(ia.create_cno());
  must(evd.modify_cno(cno));
  fake::set_port_state("fk1", 1, IBV_PORT_DOWN);
  CHECK(must(cno.wait(plenty)) == evd.id());
  SHOWS("EVENT-083", "IA-007");
  CHECK(std::holds_alternative<dat::port_down>(must(evd.wait(plenty))));
  CHECK(evd.close().error() == dat::error(return_type::invalid_state, return_subtype::evd_in_use));
  SHOWS("IA-036");
  CHECK(ia.close(dat::close_mode::graceful).error() ==
        dat::error(return_type::invalid_state, return_subtype::ia_in_use)); // the cno is left
  SHOWS("IA-034");
  must(evd.modify_cno({}));
  must(cno.close());
  for (int i = 0; i < 60; ++i) fake::async(IBV_EVENT_LID_CHANGE, ia.native_handle());
  for (int i = 0; i < 60; ++i) CHECK(std::holds_alternative<dat::port_changed>(must(evd.wait(plenty))));
  SHOWS("EVD-044");
  worker waiter([&](worker& w) {
    w.check(evd.wait(plenty).error() == dat::error(return_type::abort, return_subtype::interrupted));
  });
  for (;;) {
    const auto e = evd.dequeue();
    if (!e && e.error().subtype() == return_subtype::evd_waiter) break;
    std::this_thread::yield();
  }
  must(ia.close(dat::close_mode::graceful));
  waiter.join();
  CHECK(ia.async_evd().dequeue().error().type() == return_type::invalid_handle);
  SHOWS("ERR-041", "EVD-019", "IA-035");
}

TEST_CASE("each ia gets its own asynchronous events and those of the adapter", "[REQ-013][IA-013][EVENT-084]") {
  const clean_world clean;
  pair p; // fk1 and fk2
  auto second = must(dat::ia::open("fk1", manual));
  auto also = must(second.create_evd<dat::stream::async | dat::stream::software>(4));
  fake::set_port_state("fk1", 1, IBV_PORT_DOWN);
  fake::async(IBV_EVENT_CQ_ERR, p.a.evd.native_handle());
  p.settle();
  second.run();
  CHECK(all_of(p.a.ia.async_evd()) == events{"port down", "overflow " + std::to_string(p.a.evd.id().number())});
  CHECK(all_of(p.b.ia.async_evd()).empty());
  CHECK(all_of(second.async_evd()) == events{"port down"});
  CHECK(all_of(also) == events{"port down"});
  must(also.close());
  fake::set_port_state("fk1", 1, IBV_PORT_ACTIVE);
  second.run();
  CHECK(all_of(second.async_evd()) == events{"port active"});
}

TEST_CASE("an ia can send its asynchronous events to the evd of another ia",
          "[IA-009][IA-010][IA-035][REQ-012][EVD-008][EVD-014]") {
  const clean_world clean;
  auto first = must(dat::ia::open("fk1", manual));
  auto shared = must(first.create_evd<dat::stream::async | dat::stream::software>(8));
  const auto refused = dat::error(return_type::invalid_handle, return_subtype::handle_evd_async);
  CHECK(dat::ia::open("fk2", {.async_evd = shared}).error() == refused);
  auto second = must(dat::ia::open("fk1", {.progress = dat::progress::manual, .async_evd = shared}));
  CHECK_FALSE(second.async_evd());
  auto completions = must(second.create_evd<dat::stream::dto>(4));
  fake::async(IBV_EVENT_CQ_ERR, completions.native_handle());
  second.run();
  {
    const auto e = must(shared.dequeue());
    CHECK(std::get<dat::evd_overflow>(e).evd() == completions.id());
    CHECK(std::get<dat::evd_overflow>(e).is_of(second));
    CHECK_FALSE(std::get<dat::evd_overflow>(e).is_of(first));
  }
  // The first ia's handle is closed. The objects of the ia, and the evd that another ia borrows, still exist.
  CHECK(first.close(dat::close_mode::graceful).error().subtype() == return_subtype::ia_in_use);
  first = {};
  fake::async(IBV_EVENT_PORT_ERR, second.native_handle());
  second.run();
  CHECK(all_of(shared) == events{"port down"});
  // Closing the evd ends the stream.
  must(shared.post(1));
  must(shared.close());
  fake::async(IBV_EVENT_PORT_ACTIVE, second.native_handle());
  second.run();
  CHECK(fake::live().unacked_async_events == 0);
  must(completions.close());
  must(second.close(dat::close_mode::graceful));
}

TEST_CASE("with async_exists an ia has no evd for asynchronous events", "[REQ-014][IA-012][IA-140]") {
  const clean_world clean;
  auto usual = must(dat::ia::open("fk1", manual));
  auto ia = must(dat::ia::open("fk1", {.progress = dat::progress::manual, .async_evd = dat::async_exists}));
  CHECK(usual.async_evd());
  CHECK_FALSE(ia.async_evd());
  CHECK(ia.async_evd().dequeue().error().type() == return_type::invalid_handle);
  CHECK(ia.async_evd().wait(0s).error().type() == return_type::invalid_handle);
  // The events are read from the kernel, and have their usual effects.
  auto pz = must(ia.create_pz());
  auto evd = must(ia.create_evd<dat::stream::dto | dat::stream::connection | dat::stream::connection_requests>(16));
  auto psp = must(ia.create_psp(service, evd));
  auto near = must(pz.create_ep<dat::rc>(evd));
  auto far = must(pz.create_ep<dat::rc>(evd));
  must(near.connect(ia.address(), service, plenty));
  must(must(evd.wait_for<dat::connection_request>(plenty)).accept(far));
  (void)must(evd.wait_for<dat::established>(near, plenty));
  fake::async(IBV_EVENT_PORT_ERR, ia.native_handle());
  fake::async(IBV_EVENT_QP_FATAL, near.native_handle());
  ia.run();
  CHECK(near.state() == dat::ep_state::disconnected);
  CHECK(fake::live().unacked_async_events == 0);
  // A program that needs the events later creates an evd for them.
  auto later = must(ia.create_evd<dat::stream::async>(4));
  fake::async(IBV_EVENT_PORT_ACTIVE, ia.native_handle());
  ia.run();
  CHECK(all_of(later) == events{"port active"});
  must(later.close());
  must(near.close());
  must(far.close());
  must(psp.close());
  must(evd.close());
  must(pz.close());
  must(ia.close(dat::close_mode::graceful));
}

TEST_CASE("asynchronous events merge with every other stream",
          "[EVENT-021][EVENT-022][EVENT-024][EVENT-042][MODEL-010]") {
  const clean_world clean;
  constexpr auto all = dat::stream::async | dat::stream::software | dat::stream::dto | dat::stream::connection |
                       dat::stream::connection_requests;
  auto ia = must(dat::ia::open("fk1", manual));
  auto pz = must(ia.create_pz());
  auto evd = must(ia.create_evd<all>(16));
  auto psp = must(ia.create_psp(service, evd));
  auto near = must(pz.create_ep<dat::rc>(evd));
  auto far = must(pz.create_ep<dat::rc>(evd));
  must(near.connect(ia.address(), service, plenty));
  must(must(evd.wait_for<dat::connection_request>(plenty)).accept(far));
  must(far.post(dat::recv{}.cookie(4)));
  (void)must(evd.wait_for<dat::established>(near, plenty));
  (void)must(evd.wait_for<dat::established>(far, plenty));
  must(near.post(dat::send{}.cookie(3)));
  must(evd.post(5));
  fake::async(IBV_EVENT_PORT_ERR, ia.native_handle());
  auto found = must(evd.wait_for<dat::port_down>(plenty));
  CHECK(found.is_of(ia));
  CHECK(all_of(evd) == events{"received 4", "sent 3", "software 5"});
}

TEST_CASE("a failed device is reported once and can be closed", "[EVENT-078][EVENT-087]"
                                                                "[REQ-151]") {
  // With the second personality, the descriptors fail as well. That is part of the reported failure.
  const fake::with manner{GENERATE(fake::current(), fake::personality::removed)};
  const clean_world clean;
  {
    pair p;
    auto second = must(p.a.ia.create_evd<dat::stream::async>(4));
    fake::async(IBV_EVENT_DEVICE_FATAL, p.a.ia.native_handle()); // without an event of the connection manager
    p.settle();
    CHECK(all_of(p.a.ia.async_evd()) == events{"catastrophic"});
    const auto e = must(second.dequeue());
    CHECK(std::get<dat::ia_catastrophic>(e).is_of(p.a.ia));
    CHECK_FALSE(std::get<dat::ia_catastrophic>(e).is_of(p.b.ia));
    SHOWS("EVENT-014", "REQ-165");
    CHECK(p.a.take() == events{"broken"});
    fake::remove_device("fk1");
    p.settle();
    CHECK(all_of(p.a.ia.async_evd()) == events{});
    must(p.a.ia.close());
  }
}

TEST_CASE("failures that no call can return are asynchronous events", "[EVENT-091]") {
  const clean_world clean;
  pair p;
  auto cno = must(p.b.ia.create_cno());
  must(p.b.evd.modify_cno(cno));
  must(p.b.ep.post(dat::recv{}));
  fake::fail(fake::call::ibv_req_notify_cq, 1, EIO);
  must(p.a.ep.post(dat::send{}));
  p.b.ia.run();
  const auto e = must(p.b.ia.async_evd().dequeue());
  CHECK(name_of{}(std::get<dat::provider_internal_error>(e)) == "ibv_req_notify_cq EIO");
  CHECK(std::get<dat::provider_internal_error>(e).evd() == p.b.evd.id());
  CHECK(std::get<dat::provider_internal_error>(e).is_of(p.b.ia));
  SHOWS("EVENT-014");
  CHECK(must(cno.wait(plenty)) == p.b.evd.id()); // no event was lost
  fake::fail(fake::call::rdma_get_cm_event, 1, EIO);
  fake::fail(fake::call::rdma_get_cm_event, 2, EIO);
  must(p.a.ep.disconnect());
  p.settle();
  const auto other = must(p.b.ia.async_evd().dequeue());
  const auto& of_ia = std::get<dat::provider_internal_error>(other);
  CHECK(name_of{}(of_ia) == "rdma_get_cm_event EIO");
  CHECK((of_ia.is_of(p.b.ia) && !of_ia.is_of(p.a.ia) && of_ia.evd() == dat::evd_id())); // no evd: the ia itself
  SHOWS("EVENT-014");
  CHECK(all_of(p.b.ia.async_evd()).empty());
  CHECK(p.b.take() == events{"received 0", "disconnected"});
}

TEST_CASE("a failed poll is an error of the polling call or an asynchronous event, and loses nothing", "[EVENT-091]") {
  const clean_world clean;
  pair p;
  const auto failed = [](const dat::error& e) {
    CHECK(e.type() == dat::return_type::internal_error);
    CHECK(e.verb() == "ibv_poll_cq");
  };
  auto completions_only = must(p.b.ia.create_evd<dat::stream::dto>(8));
  auto merged = must(p.b.ia.create_evd<dat::stream::dto | dat::stream::software>(8));
  const auto calls = [&](auto& evd) {
    const auto next_fails = [] { fake::fail(fake::call::ibv_poll_cq, 1, EIO); };
    next_fails();
    failed(evd.dequeue().error());
    CHECK(evd.dequeue().error().type() == dat::return_type::queue_empty);
    next_fails();
    failed(evd.wait(plenty).error());
    next_fails();
    failed(evd.wait_and_drain([](auto&) {}, plenty).error());
    fake::fail(fake::call::ibv_poll_cq, 2, EIO); // the poll after arming
    failed(evd.wait(plenty).error());
    CHECK(evd.wait(0us).error().type() == dat::return_type::timeout_expired);
    CHECK(all_of(p.b.ia.async_evd()).empty()); // every failure was returned by a call
    for (int twice = 0; twice < 2; ++twice) {  // a drain cannot return the failure
      next_fails();
      CHECK(evd.drain([](auto&) {}) == 0);
    }
    const auto e = must(p.b.ia.async_evd().dequeue());
    CHECK(name_of{}(std::get<dat::provider_internal_error>(e)) == "ibv_poll_cq EIO");
    CHECK(std::get<dat::provider_internal_error>(e).evd() == evd.id());
    CHECK(all_of(p.b.ia.async_evd()).empty()); // once
  };
  calls(completions_only);
  calls(merged);
  fake::fail(fake::call::ibv_poll_cq, 1, EIO);
  CHECK(merged.wait(plenty, 1).error().verb() == "ibv_poll_cq");
  fake::fail(fake::call::ibv_poll_cq, 1, EIO);
  CHECK(p.a.evd.wait_for<dat::send_done>(plenty).error().verb() == "ibv_poll_cq");
  // The reactor alone polls, for a cno.
  auto cno = must(p.b.ia.create_cno());
  must(p.b.evd.modify_cno(cno));
  must(p.b.ep.post(dat::recv{}));
  must(p.a.ep.post(dat::send{}));
  fake::fail(fake::call::ibv_poll_cq, 1, EIO);
  p.b.ia.run();
  CHECK(all_of(p.b.ia.async_evd()) == events{"ibv_poll_cq EIO"});
  CHECK(p.b.take() == events{"received 0"});
}

// --- overflow ------------------------------------------------------------------------------------------------------

TEST_CASE("lost completions break the connections of the evd and no other", "[ia]") {
  const clean_world clean;
  pair p;
  auto small = must(p.b.ia.create_evd<dat::stream::dto>(4));
  auto victim = must(p.b.pz.create_ep<dat::rc>({.recv = small, .request = small, .connect = p.b.evd}));
  auto sender = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  p.connect(sender, victim);
  CHECK(p.a.take() == events{"established"});
  CHECK(p.b.take() == events{"established"});
  const auto room = static_cast<std::size_t>(small.native_handle()->cqe);
  // The evd has room for all completions of its endpoint, so completions of no endpoint fill it.
  constexpr std::size_t kept = 4;
  for (std::size_t i = kept; i < room; ++i) fake::forge(small.native_handle(), ibv_wc{});
  for (std::size_t i = 0; i < kept + 3; ++i) {
    must(victim.post(dat::recv{}.cookie(i)));
    must(sender.post(dat::send{}.suppress_completion()));
  }
  CHECK(fake::unread_completions(small.native_handle()) == room);
  p.settle();
  CHECK(all_of(p.b.ia.async_evd()) == events{"overflow " + std::to_string(small.id().number())}); // one event for three
  SHOWS("EVENT-014", "EVENT-068", "EVENT-069", "EVENT-084");
  CHECK(victim.state() == dat::ep_state::disconnected);
  CHECK(p.b.take() == events{"broken"});
  CHECK(p.b.ep.state() == dat::ep_state::connected);
  SHOWS("EVENT-073");
  // The queued events are delivered first, then the error.
  for (std::size_t i = 0; i < kept; ++i) CHECK(std::get<dat::recv_done>(must(small.wait(plenty))).cookie() == i);
  const auto none = small.wait(plenty).error();
  CHECK(none == dat::error(return_type::invalid_state));
  SHOWS("EVENT-074", "EVENT-076");
  CHECK_THAT(none.message(), support::contains_text("lost"));
  must(victim.close());
  must(small.close());
}

TEST_CASE("a wait on an evd that has lost completions fails", "[EVENT-074]") {
  const clean_world clean;
  auto ia = must(dat::ia::open("fk1", automatic));
  auto evd = must(ia.create_evd<dat::stream::dto>(4));
  worker waiter([&](worker& w) { w.check(evd.wait(plenty).error() == dat::error(return_type::invalid_state)); });
  fake::async(IBV_EVENT_CQ_ERR, evd.native_handle());
  waiter.join();
}

TEST_CASE("a connection event without room is lost, and state and evd stay correct",
          "[EVENT-068][EVENT-069][EVENT-072][EVENT-075][EVENT-076]") {
  const clean_world clean;
  constexpr auto streams = dat::stream::connection | dat::stream::software;
  end a;
  auto b = end("fk2");
  auto psp = must(b.ia.create_psp(service, b.evd));
  auto evd = must(a.ia.create_evd<streams>(2));
  auto completions = must(a.ia.create_evd<dat::stream::dto>(8));
  a.ep = must(a.pz.create_ep<dat::rc>({.recv = completions, .request = completions, .connect = evd}));
  b.make_ep();
  const auto live_and_die = [&] {
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle(a, b);
    must(request_on(b.evd).accept(b.ep));
    settle(a, b);
    CHECK(a.ep.state() == dat::ep_state::connected);
    must(b.ep.disconnect());
    settle(a, b);
    CHECK(a.ep.state() == dat::ep_state::disconnected);
    must(a.ep.reset());
    must(b.ep.reset());
    (void)b.take();
  };
  for (int round = 0; round < 3; ++round) {
    must(evd.post(1));
    must(evd.post(2));
    live_and_die(); // the events take the two places of the endpoint
    CHECK(all_of(a.ia.async_evd()).empty());
    live_and_die();                                                                             // has no places
    CHECK(all_of(a.ia.async_evd()) == events{"overflow " + std::to_string(evd.id().number())}); // one event for both
    CHECK(all_of(evd) == events{"software 1", "software 2", "established", "disconnected"});
  }
  // A reject without room ends the attempt as well.
  must(evd.post(1));
  must(evd.post(2));
  live_and_die();
  const auto refused = [&] {
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle(a, b);
    must(request_on(b.evd).reject());
    settle(a, b);
    CHECK(a.ep.state() == dat::ep_state::disconnected);
  };
  refused();
  CHECK(all_of(a.ia.async_evd()) == events{"overflow " + std::to_string(evd.id().number())});
  CHECK(all_of(evd) == events{"software 1", "software 2", "established", "disconnected"});
  must(a.ep.reset());
  refused(); // there is room again
  CHECK(all_of(evd) == events{"peer_rejected"});
  CHECK(all_of(a.ia.async_evd()).empty());
}

TEST_CASE("the last event of a full asynchronous evd is its own overflow", "[EVENT-077]") {
  const clean_world clean;
  auto ia = must(dat::ia::open("fk1", {.progress = dat::progress::manual, .async_qlen = 3}));
  auto& evd = ia.async_evd();
  const std::string itself = "overflow " + std::to_string(evd.id().number());
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 100; ++i) fake::async(IBV_EVENT_SM_CHANGE, ia.native_handle());
    ia.run();
    CHECK(all_of(evd) == events{"changed 3", "changed 3", "changed 3", itself});
  }
  const auto change = [&] {
    fake::async(IBV_EVENT_SM_CHANGE, ia.native_handle());
    ia.run();
  };
  for (int i = 0; i < 4; ++i) change();
  (void)must(evd.dequeue());
  change(); // its overflow is still queued, and so is not reported again
  CHECK(all_of(evd) == events{"changed 3", "changed 3", itself});
}

TEST_CASE("software events and requests without room are refused without an overflow event",
          "[EVENT-070][EVENT-071][EVENT-080][PSP-008]") {
  const clean_world clean;
  end a;
  auto b = end("fk2");
  auto evd = must(b.ia.create_evd<dat::stream::connection_requests | dat::stream::software>(2));
  auto psp = must(b.ia.create_psp(service, evd));
  must(evd.disable());
  must(evd.set_unwaitable());
  must(evd.post(1));
  must(evd.post(2));
  CHECK(evd.post(3).error() == dat::error(return_type::queue_full));
  a.make_ep();
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  CHECK(a.take() == events{"non_peer_rejected 35"});
  CHECK(all_of(b.ia.async_evd()).empty());
  CHECK(all_of(evd) == events{"software 1", "software 2"});
  // The evd still works.
  must(a.ep.reset());
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  CHECK(all_of(evd) == events{"request"});
}
