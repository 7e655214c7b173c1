// Rules of connections that need a world in which everything can be arranged: late answers, odd rejects, dead peers,
// queries from other threads.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/csp.hpp>
#include <dat/ep_params.hpp>
#include <dat/rsp.hpp>

#include <support/worker.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <netinet/in.h>

using namespace unit;
using dat::ep_state;
using dat::return_subtype;
using dat::return_type;

namespace {

constexpr dat::communicator tcp{AF_INET, SOCK_STREAM, 0};

/// Two ends, the passive one listening.
struct two {
  clean_world world;
  end a{"fk1"};
  end b{"fk2"};
  dat::psp psp = must(b.ia.create_psp(service, b.evd));

  void settle() { unit::settle(a, b); }
  dat::cr ask(std::string_view data = {}) {
    if (!a.ep) a.make_ep();
    must(a.ep.connect(b.ia.address(), service, plenty, bytes_of(data)));
    settle();
    return request_on(b.evd);
  }
};

template <class T>
concept changeable = requires(T& t, dat::ep_changes c) {
  t.modify(c);
};
template <class T>
concept takes_size_and_pointer = requires(T& t, std::size_t n, const std::byte* p) {
  t.reject(n, p);
};
template <class T>
concept takes_mask = requires(T& t, std::uint64_t mask) {
  t.query(mask);
};
template <class T>
concept takes_out_pointers = requires(T& t, std::uint32_t* p) {
  t.recv_query(p, p);
};
template <class T>
concept connects = requires(T& t, dat::ia_address a) {
  t.connect(a, dat::conn_qual(7), dat::timeout(1));
};

} // namespace

TEST_CASE("service points and requests have nothing to change them by, and only endpoints connect",
          "[type][PSP-002][CR-002][CONN-006][CR-024][EP-024][EP-050][EP-063][CR-009]"
          "[REQ-054]") {
  STATIC_REQUIRE_FALSE(changeable<dat::psp>);
  STATIC_REQUIRE_FALSE(changeable<dat::rsp>);
  STATIC_REQUIRE_FALSE(changeable<dat::csp>);
  STATIC_REQUIRE_FALSE(changeable<dat::cr>);
  STATIC_REQUIRE(changeable<dat::ep<dat::rc>>);
  STATIC_REQUIRE_FALSE(connects<dat::ia>);
  STATIC_REQUIRE(connects<dat::ep<dat::rc>>);
  // Data is a span, with no size of its own; attributes are an object, not a pointer; a query has no mask.
  STATIC_REQUIRE_FALSE(takes_size_and_pointer<dat::cr>);
  STATIC_REQUIRE_FALSE(dat::cr::truncated()); // a request cannot carry more than is kept
  STATIC_REQUIRE_FALSE(takes_mask<dat::ep<dat::rc>>);
  STATIC_REQUIRE_FALSE(takes_out_pointers<dat::ep<dat::rc>>);
}

namespace {
int (*true_poll)(ibv_cq*, int, ibv_wc*);
std::atomic<bool> late{false};
} // namespace

TEST_CASE("completions that the device flushes late are told once each", "[DISC-020]") {
  const auto flushed_late = [](auto& completions, end& a, end& b, dat::ep<dat::rc>& ep) {
    auto& ops = ep.native_handle()->context->ops;
    true_poll =
        std::exchange(ops.poll_cq, [](ibv_cq* cq, int n, ibv_wc* wc) { return late ? 0 : true_poll(cq, n, wc); });
    fake::hold(ep.native_handle());
    must(ep.post(dat::recv{}.cookie(1), dat::recv{}.cookie(2)));
    must(ep.post(dat::send{}.cookie(1), dat::send{}.cookie(2)));
    late = true;
    must(ep.disconnect());
    CHECK(ep.state() == ep_state::disconnected);
    settle(a, b);
    events all = take(completions);
    late = false;
    settle(a, b);
    for (const auto& e : take(completions)) all.push_back(e);
    CHECK(std::count(all.begin(), all.end(), "flushed 1") == 2);
    CHECK(std::count(all.begin(), all.end(), "flushed 2") == 2);
    must(ep.post(dat::recv{}.cookie(3)));
    settle(a, b);
    CHECK(take(completions) == events{"flushed 3"});
    must(ep.reset());
    settle(a, b);
    CHECK(take(completions).empty());
    ops.poll_cq = true_poll;
  };
  two t;
  SECTION("on an evd for everything") {
    t.a.make_ep();
    t.b.make_ep();
    must(t.ask().accept(t.b.ep));
    t.settle();
    (void)t.a.take();
    flushed_late(t.a.evd, t.a, t.b, t.a.ep);
  }
  SECTION("on an evd of completions alone") {
    auto lean = must(t.a.ia.create_evd<dat::dto>(16));
    t.a.ep = must(t.a.pz.create_ep<dat::rc>({.recv = lean, .request = lean, .connect = t.a.evd}));
    t.b.make_ep();
    must(t.ask().accept(t.b.ep));
    t.settle();
    flushed_late(lean, t.a, t.b, t.a.ep);
  }
}

TEST_CASE("what was given to connect is copied by the call", "[ADDR-009][CONN-045]") {
  two t;
  t.a.make_ep();
  auto address = std::make_unique<dat::ia_address>(t.b.ia.address());
  auto data = std::make_unique<std::string>("mine");
  must(t.a.ep.connect(*address, service, plenty, bytes_of(*data)));
  *address = dat::ia_address();
  *data = "gone";
  address.reset();
  data.reset();
  t.settle();
  auto request = request_on(t.b.evd);
  CHECK(unpadded(request.private_data()) == "mine");
}

TEST_CASE("a request keeps what the peer sent, whatever becomes of the peer",
          "[CR-003][CR-010][CR-013][CR-027][CR-033][EPS-020]") {
  two t;
  auto request = t.ask("remember me");
  const auto from = must(t.a.ep.local_address());
  must(t.a.ep.close());
  t.settle();
  CHECK(unpadded(request.private_data()) == "remember me");
  CHECK(request.remote_address() == from);
  CHECK(request.service() == t.psp.id());
  // An endpoint of another adapter does not do; the request is as it was.
  auto foreign = must(t.a.pz.create_ep<dat::rc>(t.a.evd));
  CHECK(request.accept(foreign).error().type() == return_type::invalid_handle);
  CHECK(unpadded(request.private_data()) == "remember me");
  t.b.make_ep();
  must(request.accept(t.b.ep));
  CHECK(request.private_data().empty());
  CHECK_FALSE(request.service());
  CHECK(request.remote_address() == dat::ia_address());
  CHECK(request.reject().error().subtype() == return_subtype::handle_cr);
  CHECK(dat::conn_qual::make(0x10000).error().type() == return_type::invalid_parameter);
}

TEST_CASE("an accept that the connection manager refuses at the last step is an event, and the peer is refused",
          "[CR-039][CR-041][EPS-025][EPS-027]") {
  for (const int err : {EINVAL, ENOMEM, EIO}) {
    two t;
    t.b.make_ep();
    must(t.b.ep.post(dat::recv{t.b.at(0, 8)}.cookie(1)));
    auto request = t.ask();
    fake::fail(fake::call::rdma_accept, 1, err);
    must(request.accept(t.b.ep));
    t.settle();
    CHECK(t.b.ep.state() == ep_state::disconnected);
    auto seen = t.b.take();
    std::sort(seen.begin(), seen.end());
    CHECK(seen == events{"accept_completion_error " + std::to_string(err), "flushed 1"});
    CHECK(t.a.take() == events{"non_peer_rejected 28"});
  }
}

TEST_CASE("a peer that has not forgotten an older connection is asked again while there is time",
          "[CONN-069][EPS-013]") {
  two t;
  t.a.make_ep();
  must(t.a.ep.post(dat::recv{t.a.at(0, 8)}.cookie(1)));
  const auto stale = [&] {
    fake::deliver({.event = RDMA_CM_EVENT_REJECTED, .status = 10, .qp_num = t.a.ep.number()});
    t.settle();
  };
  const auto number = t.a.ep.number();
  dat::cr request = t.ask("the same");
  const auto from = must(t.a.ep.local_address());
  SECTION("until it has") {
    for (int tries = 0; tries < 2; ++tries) {
      stale();
      CHECK(t.a.take().empty());
      CHECK(t.a.ep.state() == ep_state::active_connection_pending);
      (void)t.b.take();
      while (fake::count(fake::call::rdma_connect) < static_cast<std::size_t>(tries) + 2) t.settle();
      request = request_on(t.b.evd);
      CHECK(request.remote_address() == from);
      CHECK(unpadded(request.private_data()) == "the same");
    }
    t.b.make_ep();
    must(request.accept(t.b.ep));
    t.settle();
    CHECK(t.a.take() == events{"established"});
    CHECK(t.a.ep.number() == number);
    must(t.b.ep.post(dat::send{t.b.at(0, 8)}));
    CHECK(t.a.take() == events{"received 1"});
  }
  SECTION("until the endpoint ends it") {
    stale();
    must(t.a.ep.disconnect());
    t.settle();
    CHECK(t.a.take() == events{"disconnected", "flushed 1"});
  }
  SECTION("until a call fails") {
    const auto which = GENERATE(fake::call::rdma_create_id, fake::call::rdma_bind_addr, fake::call::rdma_resolve_addr);
    fake::fail(which, 1, ENOMEM);
    stale();
    while (t.a.ep.state() == ep_state::active_connection_pending) t.settle();
    CHECK(t.a.take() == events{"non_peer_rejected " + std::to_string(ENOMEM), "flushed 1"});
  }
  SECTION("while there is time") {
    must(t.a.ep.disconnect());
    (void)t.a.take();
    must(t.a.ep.reset());
    must(t.a.ep.connect(t.b.ia.address(), service, 300ms));
    t.settle();
    while (t.a.ep.state() == ep_state::active_connection_pending) {
      if (fake::id_of_qp(t.a.ep.number())) stale();
      t.settle();
    }
    CHECK(t.a.take() == events{"non_peer_rejected 10"});
    CHECK(fake::count(fake::call::rdma_connect) > 2);
  }
}

TEST_CASE("rejects that redirect are no reject of a consumer", "[CONN-012][CONN-023][EPS-019]") {
  for (const int reason : {1, 12, 17, 24, 25, 26, 32}) {
    two t;
    auto request = t.ask();
    fake::deliver({.event = RDMA_CM_EVENT_REJECTED, .status = reason, .qp_num = t.a.ep.number()});
    t.settle();
    CHECK(t.a.take() == events{"non_peer_rejected " + std::to_string(reason)});
    CHECK(t.a.ep.state() == ep_state::disconnected);
    must(t.a.ep.reset());
  }
}

TEST_CASE("however long the consumer would wait, what the connection manager finds out ends it",
          "[CONN-042][CONN-080][EPS-011]") {
  two t;
  SECTION("for ever, and nobody answers") {
    t.a.make_ep();
    must(t.a.ep.connect(t.b.ia.address(), service, dat::infinite));
    t.settle();
    fake::deliver({.event = RDMA_CM_EVENT_UNREACHABLE, .status = -ETIMEDOUT, .qp_num = t.a.ep.number()});
    t.settle();
    CHECK(t.a.take() == events{"unreachable " + std::to_string(ETIMEDOUT)});
  }
  SECTION("a moment, by common_connect") {
    t.a.make_ep({.comm = tcp});
    must(t.a.ep.common_connect(t.b.ia.address().with_port(service), 30ms));
    t.settle(); // the request is out
    const auto e = must(t.a.evd.wait(plenty));
    CHECK(std::visit(describe{}, e) == "timed_out");
  }
}

TEST_CASE("what the peer said in its answer stays readable, also when the connection is over",
          "[CONN-019][EPS-014][EPS-022][DISC-043][EP-056]") {
  two t;
  auto request = t.ask();
  t.b.make_ep();
  fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
  must(request.accept(t.b.ep, bytes_of("welcome")));
  CHECK(t.b.ep.state() == ep_state::completion_pending);
  fake::release_events();
  t.settle();
  auto e = must(t.a.evd.dequeue());
  auto* up = std::get_if<dat::established>(&e);
  REQUIRE(up);
  CHECK(unpadded(up->private_data()) == "welcome");
  const auto params = must(t.a.ep.query());
  must(t.a.ep.disconnect());
  CHECK(t.a.ep.state() == ep_state::disconnected);
  for (const auto how : {dat::close_flags::abrupt, dat::close_flags::graceful}) must(t.a.ep.disconnect(how));
  t.settle();
  CHECK(t.a.take() == events{"disconnected"});
  must(t.a.ep.close());
  CHECK(unpadded(up->private_data()) == "welcome");
  CHECK(params.remote_address == t.b.ia.address().with_port(service)); // a copy: the endpoint is gone
}

TEST_CASE("attributes are the same before, during and after a connection", "[CONN-009][CONN-067][CR-045][EP-020]"
                                                                           "[EPS-074][EPATTR-021][EPATTR-022]"
                                                                           "[REQ-059]") {
  two t;
  t.a.make_ep({.max_request_dtos = 7, .max_rdma_read_out = std::uint8_t{16}, .comm = tcp});
  t.b.make_ep({.max_rdma_read_out = std::uint8_t{1}, .max_rdma_read_in = std::uint8_t{2}});
  const auto same = [](const dat::ep_attributes& x, const dat::ep_attributes& y) {
    return x.max_request_dtos == y.max_request_dtos && x.max_recv_dtos == y.max_recv_dtos &&
           x.max_request_iov == y.max_request_iov && x.max_recv_iov == y.max_recv_iov &&
           x.max_message_size == y.max_message_size && x.max_rdma_read_in == y.max_rdma_read_in &&
           x.max_rdma_read_out == y.max_rdma_read_out && x.rnr_retry_count == y.rnr_retry_count && x.comm == y.comm;
  };
  const auto a = must(t.a.ep.query()).attributes;
  const auto b = must(t.b.ep.query()).attributes;
  CHECK(a.max_recv_dtos > 0); // defaults are of use
  CHECK(a.max_message_size > 0);
  must(t.ask().accept(t.b.ep));
  t.settle();
  CHECK(same(must(t.a.ep.query()).attributes, a));
  CHECK(same(must(t.b.ep.query()).attributes, b));
  must(t.a.ep.disconnect());
  t.settle();
  for (auto* ep : {&t.a.ep, &t.b.ep}) must(ep->reset());
  CHECK(same(must(t.a.ep.query()).attributes, a));
  CHECK(same(must(t.b.ep.query()).attributes, b));
}

TEST_CASE("two sides ask each other at once, and get two connections", "[CONN-071]") {
  two t;
  auto at_a = must(t.a.pz.create_ep<dat::rc>(t.a.evd));
  auto at_b = must(t.b.pz.create_ep<dat::rc>(t.b.evd));
  auto rsp_a = must(t.a.ia.create_rsp(7100, at_a, t.a.evd));
  auto rsp_b = must(t.b.ia.create_rsp(7100, at_b, t.b.evd));
  t.a.make_ep();
  t.b.make_ep();
  must(t.a.ep.connect(t.b.ia.address(), 7100, plenty));
  must(t.b.ep.connect(t.a.ia.address(), 7100, plenty));
  t.settle();
  must(request_on(t.a.evd).accept());
  must(request_on(t.b.evd).accept());
  t.settle();
  for (const auto* ep : {&at_a, &at_b, &t.a.ep, &t.b.ep}) CHECK(ep->state() == ep_state::connected);
  CHECK(t.a.take() == events{"established", "established"});
  CHECK(t.b.take() == events{"established", "established"});
}

TEST_CASE("a reserved service point without an endpoint gets one with its only request", "[RSP-008][RSP-001][CR-053]") {
  two t;
  auto rsp = must(t.b.ia.create_rsp(7100, t.b.evd));
  CHECK_FALSE(must(rsp.query()).ep);
  const auto ask = [&] {
    auto ep = must(t.a.pz.create_ep<dat::rc>(t.a.evd));
    must(ep.connect(t.b.ia.address(), 7100, plenty));
    t.settle();
    return ep;
  };
  auto first = ask();
  auto second = ask();
  CHECK(t.a.take() == events{"non_peer_rejected 35"});
  auto request = request_on(t.b.evd);
  CHECK(request.service() == rsp.id());
  REQUIRE(request.ep());
  CHECK(request.ep().state() == ep_state::unconfigured_tentative);
  const bool accepts = GENERATE(true, false);
  if (accepts) {
    must(request.ep().modify({.pz = &t.b.pz, .recv = t.b.evd, .request = t.b.evd, .connect = t.b.evd}));
    must(request.accept());
    t.settle();
    CHECK(request.ep().state() == ep_state::connected);
  } else {
    const auto kept = std::move(request.ep());
    must(request.reject());
    CHECK(kept.query().error().type() == return_type::invalid_handle);
  }
}

TEST_CASE("requests and connection events that share an evd share its room", "[PSP-011][CSP-002][PSP-006]") {
  two t;
  auto small = must(t.b.ia.create_evd<dat::connection | dat::connection_requests | dat::dto>(2));
  auto csp = must(t.b.ia.create_csp(tcp, t.b.ia.address().with_port(7100), small));
  auto psp = must(t.b.ia.create_psp(7101, small));
  std::vector<dat::ep<dat::rc>> asks;
  const auto ask = [&](std::uint16_t port) {
    asks.push_back(must(t.a.pz.create_ep<dat::rc>(t.a.evd)));
    must(asks.back().connect(t.b.ia.address(), must(dat::conn_qual::make(port)), plenty));
    t.settle();
    return t.a.take();
  };
  CHECK(ask(7100).empty());
  // A connection event takes the other place.
  auto ep = must(t.b.pz.create_ep<dat::rc>({.recv = small, .request = small, .connect = small}));
  must(ep.connect(t.a.ia.address(), 7009, plenty));
  t.settle();
  CHECK(ask(7100) == events{"non_peer_rejected 35"});
  CHECK(ask(7101) == events{"non_peer_rejected 35"});
  auto request = request_on(small);
  CHECK(ask(7101).empty());
  CHECK(ask(7100) == events{"non_peer_rejected 35"});
}

TEST_CASE("a common service point that is closed leaves its requests, and its handle says so",
          "[CSP-018][CSP-019][CSP-020][CSP-021]") {
  two t;
  auto csp = must(t.b.ia.create_csp(tcp, t.b.ia.address().with_port(7100), t.b.evd));
  t.a.make_ep({.comm = tcp});
  must(t.a.ep.common_connect(t.b.ia.address().with_port(7100), plenty));
  t.settle();
  must(csp.close());
  CHECK(csp.query().error().subtype() == return_subtype::handle_csp);
  CHECK(csp.close().error().subtype() == return_subtype::handle_csp);
  CHECK(csp.port() == 0);
  auto again = must(t.b.ia.create_csp(tcp, t.b.ia.address().with_port(7100), t.b.evd)); // free at once
  auto request = request_on(t.b.evd);
  CHECK(request.service().port() == 7100);
  CHECK(request.service() != again.id());
  t.b.make_ep();
  must(request.accept(t.b.ep));
  t.settle();
  CHECK(t.a.take() == events{"established"});
  must(t.b.ia.close());
  CHECK(again.query().error().subtype() == return_subtype::handle_csp);
}

TEST_CASE("one of many threads reserves an endpoint, and each gets a port of its own",
          "[RSP-013][CSP-012][PSP-013][EP-015]") {
  clean_world world;
  end e("fk1", automatic);
  e.make_ep();
  std::atomic<int> reserved{0};
  std::array<std::uint16_t, 4> ports{};
  std::array<dat::rsp, 4> rsps;
  std::array<dat::csp, 4> csps;
  {
    std::vector<std::unique_ptr<support::worker>> workers;
    for (std::size_t i = 0; i < 4; ++i)
      workers.push_back(std::make_unique<support::worker>([&, i](support::worker& w) {
        auto r = e.ia.create_rsp(must(dat::conn_qual::make(7100 + i)), e.ep, e.evd);
        if (r) {
          ++reserved;
          rsps[i] = std::move(r).value();
        } else {
          w.check(r.error().subtype() == return_subtype::ep_reserved);
        }
        auto c = e.ia.create_csp(tcp, e.evd);
        w.check(c.has_value());
        if (c) {
          ports[i] = c.value().port();
          csps[i] = std::move(c).value();
        }
      }));
    for (auto& w : workers) w->join();
  }
  CHECK(reserved == 1);
  CHECK(e.ep.state() == ep_state::reserved);
  std::sort(ports.begin(), ports.end());
  CHECK(std::adjacent_find(ports.begin(), ports.end()) == ports.end());
}

namespace {
dat::ep<dat::rc>* watched = nullptr;
std::atomic<int> statuses{0};
void look_at_status(int) {
  const int saved = errno;
  if (watched->status()) statuses.fetch_add(1, std::memory_order_relaxed);
  errno = saved;
}
} // namespace

TEST_CASE("queries are answered in other threads and in signal handlers while connections come and go",
          "[PSP-043][CSP-021][RSP-027][CR-007][EP-047][EP-048][EP-057][EP-066]"
          "[SAFE-022][SAFE-024]") {
  clean_world world;
  end a("fk1", automatic);
  end b("fk2", automatic);
  auto psp = must(b.ia.create_psp(service, b.evd));
  auto csp = must(b.ia.create_csp(tcp, b.evd));
  auto reserved = must(b.pz.create_ep<dat::rc>(b.evd));
  auto rsp = must(b.ia.create_rsp(7100, reserved, b.evd));
  a.make_ep();
  b.make_ep();
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  support::worker asks([&](support::worker& w) {
    while (!stop) {
      w.check(psp.query().has_value() && csp.query().has_value() && rsp.query().has_value());
      for (auto* ep : {&a.ep, &b.ep, &reserved}) {
        const auto q = ep->query();
        w.check(q.has_value());
        // One moment: a connection has both ends, or neither is there.
        if (q && q.value().state == ep_state::connected) w.check(q.value().remote_address.has_value());
        const auto r = ep->recv_query();
        w.check(r && r.value().span >= r.value().allocated);
        w.check(ep->status().has_value());
      }
      ++rounds;
    }
  });
  watched = &a.ep;
  std::signal(SIGUSR1, &look_at_status);
  for (int i = 0; i < 20 || rounds < 20; ++i) {
    must(a.ep.connect(b.ia.address(), service, plenty));
    std::raise(SIGUSR1);
    auto request = must(b.evd.wait_for<dat::connection_request>(plenty));
    must(b.ep.post(dat::recv{b.at(0, 8)}));
    must(request.accept(b.ep));
    (void)must(a.evd.wait_for<dat::established>(plenty));
    (void)must(b.evd.wait_for<dat::established>(plenty));
    must(a.ep.disconnect());
    (void)must(a.evd.wait_for<dat::disconnected>(plenty));
    while (b.ep.state() != ep_state::disconnected) (void)b.evd.wait(10ms);
    std::raise(SIGUSR1);
    must(a.ep.reset());
    must(b.ep.reset());
    (void)a.take();
    (void)b.take();
  }
  std::signal(SIGUSR1, SIG_DFL);
  stop = true;
  asks.join();
  CHECK(statuses >= 40);
}
