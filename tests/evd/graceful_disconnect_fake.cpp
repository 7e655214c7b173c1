// Graceful disconnects that wait for completions, and those that cannot finish.
// SPDX-License-Identifier: BSL-1.0
#include "completion_pairs.hpp"

#include <dat/ep_params.hpp>

using namespace unit;
using dat::ep_state;

TEST_CASE("a graceful disconnect waits for every request, suppressed ones included", "[evd]") {
  SECTION("merged") {
    clean_world world;
    merged_pair p;
    fake::hold(p.qp());
    must(p.a.ep.post(p.write(1), p.write(2).suppress_completion(), p.write(3), p.write(4).suppress_completion()));
    must(p.a.ep.disconnect(dat::close_mode::graceful));
    CHECK(p.a.ep.state() == ep_state::disconnect_pending);
    const auto refused = p.a.ep.post(p.write(5));
    CHECK(refused.error().subtype() == dat::return_subtype::ep_discpending);
    SHOWS("DISC-011");
    must(p.a.ep.post(dat::recv{}.cookie(9)));           // receives may be posted
    must(p.a.ep.disconnect(dat::close_mode::graceful)); // a second disconnect has no effect
    for (int i = 0; i < 4; ++i) {
      p.settle();
      CHECK(p.a.ep.state() == ep_state::disconnect_pending);
      CHECK(fake::complete(p.qp()));
    }
    p.settle();
    CHECK(p.a.ep.state() == ep_state::disconnect_pending); // the marker is outstanding
    SHOWS("DISC-009", "EPS-051");
    CHECK(fake::complete(p.qp()));
    auto seen = p.a.take();
    while (p.a.ep.state() != ep_state::disconnected) p.settle();
    p.settle();
    for (auto& e : p.a.take()) seen.push_back(e);
    std::erase(seen, flushed_status + " 9");
    CHECK(seen == events{"written 1", "written 3", "disconnected"});
    SHOWS("DISC-008", "DISC-014", "EPS-049", "EPS-050");
    CHECK(p.b.take() == events{"disconnected"});
    SHOWS("EPS-052");
  }
  SECTION("on a completions-only evd, when the completions are taken") {
    lean_pair p;
    fake::hold(p.qp());
    must(p.a.ep.post(p.write(1), p.write(2).suppress_completion()));
    must(p.a.ep.disconnect(dat::close_mode::graceful));
    fake::hold(p.qp(), false);
    p.settle();
    CHECK(p.a.ep.state() == ep_state::disconnect_pending);
    CHECK(take(p.completions) == events{"written 1"});
    CHECK(p.a.ep.state() == ep_state::disconnected);
    p.settle();
    CHECK(p.a.take() == events{"disconnected"});
    CHECK(p.b.take() == events{"disconnected"});
  }
  SECTION("no request is outstanding") {
    clean_world world;
    merged_pair p;
    must(p.a.ep.disconnect(dat::close_mode::graceful));
    CHECK(p.a.ep.state() == ep_state::disconnected);
    p.settle();
    CHECK(p.a.take() == events{"disconnected"});
  }
}

TEST_CASE("a graceful disconnect that cannot finish ends with the cause",
          "[DISC-012][DISC-013][DISC-015][DISC-016][EPS-053][EPS-054]") {
  SECTION("the last request fails: completions-only evd") {
    lean_pair p;
    fake::hold(p.qp());
    must(p.a.ep.post(p.write(1)));
    must(p.a.ep.disconnect(dat::close_mode::graceful));
    fake::complete(p.qp());
    fake::complete(p.qp(), {}, IBV_WC_RETRY_EXC_ERR); // the marker
    CHECK(take(p.completions) == events{"written 1"});
    p.settle();
    CHECK(p.a.ep.state() == ep_state::disconnected);
    CHECK(p.a.take() == events{"broken"});
  }
  SECTION("the last request fails: merged evd") {
    clean_world world;
    merged_pair p;
    fake::hold(p.qp());
    must(p.a.ep.post(p.write(1)));
    must(p.a.ep.disconnect(dat::close_mode::graceful));
    fake::complete(p.qp());
    fake::complete(p.qp(), {}, IBV_WC_RETRY_EXC_ERR);
    auto seen = p.a.take();
    while (p.a.ep.state() != ep_state::disconnected) p.settle();
    for (auto& e : p.a.take()) seen.push_back(e);
    CHECK(seen == events{"written 1", "broken"});
  }
  SECTION("an abrupt disconnect follows, and the next life of the endpoint is not affected") {
    clean_world world;
    merged_pair p;
    for (int round = 0; round < 4; ++round) {
      fake::hold(p.qp());
      must(p.a.ep.post(p.write(1)));
      must(p.a.ep.disconnect(dat::close_mode::graceful));
      must(p.a.ep.disconnect(dat::close_mode::abrupt));
      CHECK(p.a.ep.state() == ep_state::disconnected);
      p.settle();
      auto seen = p.a.take();
      std::erase(seen, flushed_status + " 1");
      CHECK(seen == events{"disconnected"});
      p.b.take();
      must(p.a.ep.reset());
      must(p.b.ep.reset());
      p.connect();
    }
  }
  SECTION("the peer disconnects") {
    clean_world world;
    merged_pair p;
    fake::hold(p.qp());
    must(p.a.ep.post(p.write(1)));
    must(p.a.ep.disconnect(dat::close_mode::graceful));
    must(p.b.ep.disconnect());
    p.settle();
    auto seen = p.a.take();
    std::erase(seen, flushed_status + " 1");
    CHECK(seen == events{"disconnected"});
  }
  SECTION("the endpoint is closed") {
    clean_world world;
    merged_pair p;
    fake::hold(p.qp());
    must(p.a.ep.post(p.write(1)));
    must(p.a.ep.disconnect(dat::close_mode::graceful));
    must(p.a.ep.close());
    p.settle();
    CHECK(p.a.take().empty());
    CHECK(p.b.take() == events{"disconnected"});
  }
  SECTION("the device refuses the marker: the connection stays up") {
    clean_world world;
    merged_pair p;
    fake::hold(p.qp());
    must(p.a.ep.post(p.write(1)));
    fake::fail(fake::call::ibv_post_send);
    const auto r = p.a.ep.disconnect(dat::close_mode::graceful);
    REQUIRE_FALSE(r);
    CHECK(r.error().call() == "ep.disconnect");
    CHECK(p.a.ep.state() == ep_state::connected);
    fake::hold(p.qp(), false);
    CHECK(p.a.take() == events{"written 1"});
    must(p.a.ep.post(p.write(2)));
    CHECK(p.a.take() == events{"written 2"});
    SHOWS("DISC-033");
  }
}

TEST_CASE("a full request queue has room for a graceful disconnect", "[DISC-033]") {
  clean_world world;
  pair p({.max_request_dtos = 2});
  fake::hold(p.a.ep.native_handle());
  const dat::rdma_write write{p.a.at(0, 8), p.b.mem.remote()};
  must(p.a.ep.post(write, write));
  CHECK(p.a.ep.post(write).error().type() == dat::return_type::insufficient_resources);
  must(p.a.ep.disconnect(dat::close_mode::graceful));
  fake::hold(p.a.ep.native_handle(), false);
  auto seen = p.a.take();
  while (p.a.ep.state() != ep_state::disconnected) p.settle();
  for (auto& e : p.a.take()) seen.push_back(e);
  CHECK(seen == events{"written 0", "written 0", "disconnected"});
}

TEST_CASE("a graceful disconnect ends although no thread takes completions", "[evd]") {
  clean_world world;
  end a("fk1");
  end b("fk2");
  const auto psp = must(b.ia.create_psp(service, b.evd));
  b.make_ep();
  if (GENERATE(true, false)) // the completions stay in the evd, or are dropped
    a.make_ep();
  else
    a.ep = must(a.pz.create_ep<dat::rc>({.recv = a.evd, .request = dat::drop_events, .connect = a.evd}));
  must(a.ep.connect(b.ia.address(), service, plenty));
  unit::settle(a, b);
  must(request_on(b.evd).accept(b.ep));
  unit::settle(a, b);
  fake::hold(a.ep.native_handle());
  must(a.ep.post(dat::rdma_write{a.at(0, 8), b.mem.remote()}));
  must(a.ep.disconnect(dat::close_mode::graceful));
  CHECK(a.ep.state() == ep_state::disconnect_pending);
  fake::hold(a.ep.native_handle(), false);
  for (const auto until = std::chrono::steady_clock::now() + plenty;
       a.ep.state() != ep_state::disconnected && std::chrono::steady_clock::now() < until;)
    unit::settle(a, b);
  CHECK(a.ep.state() == ep_state::disconnected);
}

TEST_CASE("requests that are posted after an abrupt end of a graceful disconnect keep their entries", "[evd][ep]") {
  const clean_world clean;
  end a{"fk1"};
  end b{"fk2"};
  auto requests = must(a.ia.create_evd<dat::stream::dto>(16));
  a.ep = must(a.pz.create_ep<dat::rc>({.recv = a.evd, .request = requests, .connect = a.evd}, {.max_request_dtos = 3}));
  b.make_ep();
  auto psp = must(b.ia.create_psp(service, b.evd));
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(b.ep));
  settle(a, b);
  const auto write = [&](std::uint64_t cookie) { return dat::rdma_write{a.at(0, 8), b.mem.remote()}.cookie(cookie); };
  fake::hold(a.ep.native_handle());
  must(a.ep.post(write(1), write(9).suppress_completion()));
  must(a.ep.disconnect(dat::close_mode::graceful));
  must(a.ep.disconnect());
  fake::finish();
  // The drain that takes the first completion also takes the completion of the graceful disconnect.
  events seen;
  bool posted = false;
  const auto visit = [&](const auto& e) {
    seen.push_back(describe{}(e));
    if (!std::exchange(posted, true)) must(a.ep.post(write(2), write(3)));
  };
  CHECK(requests.drain(visit) == 2); // a suppressed request that fails has a completion
  CHECK_FALSE(must(a.ep.status()).request_idle);
  is_error(a.ep.post(write(5), write(6)), dat::return_type::insufficient_resources, dat::return_subtype::resource_tep);
  must(a.ep.post(write(4)));
  while (seen.size() < 5) {
    fake::finish();
    requests.drain(visit);
  }
  events expected;
  for (const char* cookie : {" 1", " 9", " 2", " 3", " 4"}) expected.push_back(flushed_status + cookie);
  CHECK(seen == expected);
  CHECK(must(a.ep.status()).request_idle);
}
