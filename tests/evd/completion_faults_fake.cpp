// Completions that are late, stale, foreign or failed, and waits for one kind of event.
// SPDX-License-Identifier: BSL-1.0
#include "completion_pairs.hpp"

#include <algorithm>

using namespace unit;
using dat::ep_state;

namespace {

ibv_wc completion(std::uint64_t wr_id, ibv_wc_status status = IBV_WC_SUCCESS) {
  ibv_wc wc{};
  wc.wr_id = wr_id;
  wc.status = status;
  return wc;
}

/// wr_ids that belong to no endpoint.
std::vector<std::uint64_t> foreign_ids() {
  return {0,
          1,
          0xffff,
          ~std::uint64_t{0},
          std::uint64_t{1} << 63,
          std::uint64_t{77} << 40,
          128,
          (std::uint64_t{1} << 32) + 129};
}

} // namespace

TEST_CASE_METHOD(lean_pair, "completions of no endpoint are not events: completions-only evd", "[COMP-074]") {
  for (const auto id : foreign_ids())
    for (const auto status : {IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR})
      fake::forge(completions.native_handle(), completion(id, status));
  CHECK(take(completions).empty());
  CHECK(completions.dequeue().error().type() == dat::return_type::queue_empty);
  CHECK(a.ep.state() == ep_state::connected);
  must(a.ep.post(write(1)));
  CHECK(take(completions) == events{"written 1"});
}

TEST_CASE_METHOD(lean_pair, "an evd without completions has not failed", "[evd]") {
  CHECK(completions.drain([](const auto&) {}) == 0);
  is_error(completions.dequeue(), dat::return_type::queue_empty);
  CHECK(completions.wait(0s).error().type() == dat::return_type::timeout_expired);
  is_error(a.ia.async_evd().dequeue(), dat::return_type::queue_empty);
}

TEST_CASE("completions of no endpoint are not events: merged evd", "[COMP-074]") {
  clean_world world;
  merged_pair p;
  for (const auto id : foreign_ids())
    for (const auto status : {IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR})
      fake::forge(p.a.evd.native_handle(), completion(id, status));
  CHECK(p.a.take().empty());
  p.settle();
  CHECK(p.a.ep.state() == ep_state::connected);
  must(p.a.ep.post(p.write(1)));
  CHECK(p.a.take() == events{"written 1"});
}

TEST_CASE("dropped completions do not block those behind them", "[COMP-074][EVD-064][EVENT-066]") {
  clean_world world;
  merged_pair p;
  auto cno = must(p.a.ia.create_cno());
  const auto behind_many = [&](std::uint64_t cookie) {
    for (int i = 0; i < 20; ++i) fake::forge(p.a.evd.native_handle(), completion(1, IBV_WC_WR_FLUSH_ERR));
    must(p.a.ep.post(p.write(cookie)));
  };
  behind_many(1);
  CHECK(std::get<dat::rdma_write_done>(must(p.a.evd.dequeue())).cookie() == dat::cookie(1));
  behind_many(2);
  CHECK(std::get<dat::rdma_write_done>(must(p.a.evd.wait(0us))).cookie() == dat::cookie(2));
  behind_many(3);
  CHECK(p.a.evd.drain([](const auto&) {}) == 1);
  // Nor do completions that wait for another endpoint's ESTABLISHED block other completions.
  auto other = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  auto far = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  must(other.post(dat::recv{}.cookie(7)));
  must(far.connect(p.b.ia.address(), service, plenty));
  p.settle();
  fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
  must(request_on(p.b.evd).accept(other));
  p.settle(); // connected, but the passive side has no ESTABLISHED yet
  must(far.post(dat::send{}.suppress_completion()));
  must(p.b.ep.post(dat::rdma_write{p.b.at(0, 8), p.a.mem.remote()}.cookie(8)));
  CHECK(std::get<dat::rdma_write_done>(must(p.b.evd.dequeue())).cookie() == dat::cookie(8));
  fake::release_events();
  p.settle();
  CHECK(p.b.take() == events{"established", "received 7"});
}

TEST_CASE_METHOD(lean_pair,
                 "completions of an endpoint's previous life are not events of the next: completions-only evd",
                 "[COMP-075][DISC-047][DISC-049]") {
  must(a.ep.post(write(1)));              // completed, but not taken
  must(a.ep.post(dat::recv{}.cookie(2))); // flushed, but not taken
  must(a.ep.disconnect());
  settle();
  CHECK(a.take() == events{"disconnected"});
  b.take();
  must(a.ep.reset());
  must(b.ep.reset());
  connect();
  CHECK(take(completions).empty());
  CHECK(a.ep.state() == ep_state::connected);
  must(a.ep.post(write(3)));
  CHECK(take(completions) == events{"written 3"});
}

TEST_CASE("completions of an endpoint's previous life are not events of the next: merged evd",
          "[COMP-075][DISC-047][DISC-049]") {
  clean_world world;
  merged_pair p;
  must(p.a.ep.post(p.write(1)));
  must(p.a.ep.post(dat::recv{}.cookie(2)));
  must(p.a.ep.disconnect());
  p.settle();
  p.b.take();
  must(p.a.ep.reset());
  must(p.b.ep.reset());
  CHECK(p.a.take() == events{"disconnected"}); // the event of the connection stays queued
  p.connect();
  p.settle();
  CHECK(p.a.take().empty());
  must(p.a.ep.post(p.write(3)));
  CHECK(p.a.take() == events{"written 3"});
  CHECK(p.a.ep.state() == ep_state::connected);
}

TEST_CASE("completions of a closed endpoint are not events of the endpoint that reuses its memory",
          "[COMP-074][EP-039]") {
  clean_world world;
  merged_pair p;
  auto completions_only = must(p.a.ia.create_evd<dat::stream::dto>(16));
  for (const bool merged : {true, false}) {
    const dat::ep_evds evds =
        merged ? dat::ep_evds{p.a.evd, p.a.evd, p.a.evd} : dat::ep_evds{completions_only, completions_only, p.a.evd};
    auto first = must(p.a.pz.create_ep<dat::rc>(evds));
    must(first.post(dat::recv{}.cookie(666)));
    must(first.connect(p.b.ia.address(), 9999, plenty));
    p.settle();
    CHECK(first.state() == ep_state::disconnected); // flushed
    must(first.close());
    auto second = must(p.a.pz.create_ep<dat::rc>(evds));
    must(second.post(dat::recv{}.cookie(1)));
    for (const auto& e : p.a.take()) CHECK(e.find("666") == std::string::npos);
    CHECK(take(completions_only).empty());
    CHECK(second.state() == ep_state::unconnected);
  }
}

TEST_CASE("a failed operation breaks the connection once, on merged and completions-only evds",
          "[COMP-030][DTO-090][CONN-031][EPS-062][EPS-059][COMP-031]") {
  SECTION("merged") {
    clean_world world;
    merged_pair p;
    fake::hold(p.qp());
    for (std::uint64_t i = 1; i <= 3; ++i) must(p.a.ep.post(p.write(i)));
    must(p.a.ep.post(dat::recv{}.cookie(9)));
    fake::complete(p.qp());
    fake::complete(p.qp(), {}, IBV_WC_REM_ACCESS_ERR);
    auto seen = p.a.take();
    p.settle();
    for (auto& e : p.a.take()) seen.push_back(e);
    CHECK(std::count(seen.begin(), seen.end(), "broken") == 1);
    std::erase(seen, "broken");
    REQUIRE(seen.size() == 4);
    CHECK(seen[0] == "written 1");
    CHECK(seen[1] == std::string(to_string(dat::dto_status::remote_access)) + " 2");
    std::sort(seen.begin() + 2, seen.end());
    CHECK(seen[2] == flushed_status + " 3");
    CHECK(seen[3] == flushed_status + " 9");
    CHECK(p.a.ep.state() == ep_state::disconnected);
    CHECK(p.b.take() == events{"disconnected"});
  }
  SECTION("lean") {
    lean_pair p;
    fake::hold(p.qp());
    for (std::uint64_t i = 1; i <= 3; ++i) must(p.a.ep.post(p.write(i)));
    fake::complete(p.qp());
    fake::complete(p.qp(), {}, IBV_WC_RETRY_EXC_ERR);
    CHECK(p.a.take().empty());
    CHECK(take(p.completions) ==
          events{"written 1", std::string(to_string(dat::dto_status::transport)) + " 2", flushed_status + " 3"});
    CHECK(p.a.ep.state() == ep_state::disconnected);
    CHECK(p.a.take() == events{"broken"});
    p.settle();
    CHECK(p.b.take() == events{"disconnected"});
    CHECK(p.a.take().empty());
  }
}

TEST_CASE("on a merged evd a failure that no thread takes breaks the connection", "[evd]") {
  clean_world world;
  merged_pair p;
  auto other = must(p.a.ia.create_evd<dat::stream::connection>(8));
  fake::hold(p.qp());
  must(p.a.ep.post(p.write(1)));
  fake::complete(p.qp(), {}, IBV_WC_REM_ACCESS_ERR);
  fake::async(IBV_EVENT_QP_ACCESS_ERR, p.qp()); // the device also reports an asynchronous event
  p.settle();
  CHECK(p.a.ep.state() == ep_state::disconnected);
  auto seen = p.a.take();
  CHECK(std::count(seen.begin(), seen.end(), "broken") == 1);
}

TEST_CASE("a failed completion in any state gives exactly one end of the connection",
          "[CONN-016][COMP-031][EPS-007][EPS-025]") {
  clean_world world;
  end a("fk1");
  end b("fk2");
  auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep();
  b.make_ep();
  const auto error = std::string(to_string(dat::dto_status::local_protection)) + " 5";
  const auto only_end = [&](end& e, const std::string& expected) {
    settle(a, b);
    auto seen = e.take();
    settle(a, b);
    for (auto& more : e.take()) seen.push_back(more);
    std::erase(seen, error);
    std::erase_if(seen, [](const auto& s) { return s.starts_with(flushed_status); });
    CHECK(seen == events{expected});
    CHECK(e.ep.state() == ep_state::disconnected);
  };
  SECTION("while connecting") {
    must(a.ep.post(dat::recv{}.cookie(5)));
    fake::hold_events(RDMA_CM_EVENT_CONNECT_REQUEST);
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle(a, b);
    fake::complete_recv(a.ep.native_handle(), {}, IBV_WC_LOC_PROT_ERR);
    a.evd.drain([](const auto&) {}, 0);
    only_end(a, "non_peer_rejected 0");
    fake::release_events();
  }
  SECTION("the request is accepted and the connection is not established yet") {
    must(b.ep.post(dat::recv{}.cookie(5)));
    fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle(a, b);
    must(request_on(b.evd).accept(b.ep));
    settle(a, b);
    fake::complete_recv(b.ep.native_handle(), {}, IBV_WC_LOC_PROT_ERR);
    b.evd.drain([](const auto&) {}, 1);
    only_end(b, "accept_completion_error 0");
    fake::release_events();
    settle(a, b);
    CHECK(b.take().empty());
  }
  SECTION("a graceful disconnect is under way") {
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle(a, b);
    must(request_on(b.evd).accept(b.ep));
    settle(a, b);
    a.take();
    fake::hold(a.ep.native_handle());
    must(a.ep.post(dat::send{}.cookie(5)));
    must(a.ep.disconnect(dat::close_mode::graceful));
    CHECK(a.ep.state() == ep_state::disconnect_pending);
    fake::complete(a.ep.native_handle(), {}, IBV_WC_LOC_PROT_ERR);
    a.evd.drain([](const auto&) {}, 1);
    only_end(a, "broken");
  }
}

TEST_CASE("events taken out of order free each entry once, and posted receives keep their cookies",
          "[COMP-002][COMP-003][DTO-036]") {
  clean_world world;
  pair p({.max_request_dtos = 64, .max_recv_dtos = 64});
  const auto target = p.b.mem.remote();
  std::uint64_t next = 0;
  const auto post_recv = [&] { must(p.b.ep.post(dat::recv{p.b.at(0, 8)}.cookie(next++))); };
  for (int i = 0; i < 64; ++i) post_recv();
  must(p.a.ep.post(dat::send{p.a.at(0, 1)}, dat::send{p.a.at(0, 2)}));
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 3), target}.immediate(1)));
  CHECK(p.a.take().size() == 3);
  // The third completion is taken first. It frees the two entries before it, whose events are queued.
  CHECK(must(p.b.evd.wait_for<dat::ib::recv_write_immediate_done>(0us)).cookie().value() == 2);
  for (int i = 0; i < 3; ++i) post_recv();
  CHECK_FALSE(p.b.ep.post(dat::recv{}));
  CHECK(must(p.b.evd.wait_for<dat::recv_done>(0us)).cookie().value() == 0);
  CHECK_FALSE(p.b.ep.post(dat::recv{})); // all 64 requests are posted
  CHECK(must(p.b.evd.wait_for<dat::recv_done>(0us)).cookie().value() == 1);
  for (std::uint64_t i = 3; i < 67; ++i) {
    must(p.a.ep.post(dat::send{}));
    CHECK(p.a.take().size() == 1);
    CHECK(must(p.b.evd.wait_for<dat::recv_done>(0us)).cookie().value() == i);
  }
}

TEST_CASE("one device notification may stand for many completions", "[EVD-062][EVD-063][EVENT-066][EVENT-009]") {
  lean_pair p;
  // Arms the device; several completions follow before a thread polls.
  CHECK(p.completions.wait(0us).error().type() == dat::return_type::timeout_expired);
  for (std::uint64_t i = 0; i < 5; ++i) must(p.a.ep.post(p.write(i)));
  for (std::uint64_t i = 0; i < 5; ++i) {
    auto e = must(p.completions.wait(plenty));
    CHECK(std::visit(unit::describe{}, e) == "written " + std::to_string(i));
  }
  // A notification whose completions were already taken ends no wait.
  CHECK(p.completions.wait(0us).error().type() == dat::return_type::timeout_expired);
  must(p.a.ep.post(p.write(9)));
  CHECK(take(p.completions) == events{"written 9"});
  CHECK(p.completions.wait(1ms).error().type() == dat::return_type::timeout_expired);
  // In many rounds every notification is acknowledged; otherwise close would not return.
  for (std::uint64_t i = 0; i < 300; ++i) {
    CHECK(p.completions.wait(0us).error().type() == dat::return_type::timeout_expired);
    must(p.a.ep.post(p.write(i)));
    CHECK(p.completions.wait(plenty));
  }
  must(p.a.ep.close());
  must(p.completions.close());
}

TEST_CASE("errors of the completion channel are returned by wait and do not persist", "[EVD-058][EVENT-091]") {
  lean_pair p;
  fake::fail(fake::call::ibv_req_notify_cq, 1, EIO);
  const auto r = p.completions.wait(0us);
  CHECK(r.error().verb() == "ibv_req_notify_cq");
  CHECK(r.error().sys_errno() == EIO);
  fake::fail(fake::call::ibv_get_cq_event, 1, EIO);
  CHECK(p.completions.wait(0us).error().type() == dat::return_type::timeout_expired);
  must(p.a.ep.post(p.write(1)));
  CHECK(p.completions.wait(plenty));
  fake::forget_faults();
}

TEST_CASE("wait_for fails with the event that came instead and leaves the others", "[EVD-064][EVENT-040]") {
  clean_world world;
  pair p;
  const auto target = p.b.mem.remote();
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 1), target}.cookie(1)));
  must(p.a.ep.post(dat::rdma_read{p.a.at(0, 1), target}.cookie(2)));
  CHECK(must(p.a.evd.wait_for<dat::rdma_read_done>(0us)).cookie().value() == 2);
  CHECK(p.a.evd.wait_for<dat::send_done>(0us).error().type() == dat::return_type::timeout_expired);
  CHECK(p.a.take() == events{"written 1"});

  fake::hold(p.a.ep.native_handle());
  must(p.a.ep.post(dat::send{}.cookie(3)));
  fake::complete(p.a.ep.native_handle(), {}, IBV_WC_RNR_RETRY_EXC_ERR);
  const auto failed = p.a.evd.wait_for<dat::send_done>(0us);
  CHECK(failed.error().type() == dat::return_type::invalid_state);
  CHECK_FALSE(failed.error().hint().empty());
  p.settle();
  const auto broken = p.a.evd.wait_for<dat::send_done>(0us);
  CHECK(broken.error().type() == dat::return_type::invalid_state);
  const auto gone = p.b.evd.wait_for<dat::recv_done>(0us);
  CHECK(gone.error().subtype() == dat::return_subtype::ep_disconnected);
}

TEST_CASE("a wait for the end of a connection leaves the receives that the end has flushed", "[EVD-064][EVENT-040]") {
  clean_world world;
  pair p;
  for (std::uint64_t i = 0; i < 2; ++i) must(p.a.ep.post(dat::recv{p.a.at(8 * i, 8)}.cookie(i)));
  SECTION("the peer disconnects") {
    must(p.b.ep.disconnect());
    p.settle();
    CHECK(must(p.a.evd.wait_for<dat::disconnected>(0us)).ep() == p.a.ep);
  }
  SECTION("an operation breaks the connection") {
    fake::hold(p.a.ep.native_handle());
    must(p.a.ep.post(dat::rdma_write{p.a.at(64, 1), p.b.mem.remote()}.cookie(3)));
    fake::complete(p.a.ep.native_handle(), {}, IBV_WC_RETRY_EXC_ERR);
    p.settle();
    must(p.a.evd.wait_for<dat::connection_broken>(p.a.ep, 0us));
    const auto failure = must(p.a.evd.wait_for<dat::dto_failure>(0us));
    CHECK(failure.cookie().value() == 3);
    CHECK(failure.operation() == dat::dto_operation::rdma_write);
  }
  // A wait for a completion ends with the first flushed receive.
  const auto gone = p.a.evd.wait_for<dat::recv_done>(0us);
  CHECK(gone.error().subtype() == dat::return_subtype::ep_disconnected);
  CHECK(p.a.take() == events{"flushed 1"});
}

TEST_CASE("wait_for with an endpoint takes events of that endpoint only") {
  clean_world world;
  pair p;
  auto other = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  must(other.connect(p.b.ia.address(), 9999, plenty)); // no program listens on this port
  p.settle();
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 1), p.b.mem.remote()}.cookie(1)));
  CHECK(must(p.a.evd.wait_for<dat::rdma_write_done>(p.a.ep, 0us)).cookie().value() == 1);
  CHECK(p.a.evd.wait_for<dat::established>(p.a.ep, 0us).error().type() == dat::return_type::timeout_expired);
  const auto refused = p.a.evd.wait_for<dat::established>(other, 0us);
  CHECK(refused.error().type() == dat::return_type::invalid_state);
  CHECK_THAT(refused.error().message(), support::contains_text("no program listens"));
}
