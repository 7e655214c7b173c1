// Each request for memory fails once in each main flow: the call or an event reports it, the call succeeds when it is
// repeated, data and events are complete, and nothing is left behind.
// SPDX-License-Identifier: BSL-1.0
#include "datagram_end.hpp"
#include "no_memory.hpp"

#include <dat/csp.hpp>
#include <dat/descriptor.hpp>
#include <dat/ep_params.hpp>
#include <dat/multicast.hpp>
#include <dat/pool.hpp>
#include <dat/rmr.hpp>
#include <dat/rsp.hpp>
#include <dat/srq.hpp>
#include <dat/ud.hpp>

#include <algorithm>
#include <netinet/in.h>

using namespace unit;

namespace no_memory {
namespace {

using steps = no_memory_steps;
constexpr auto streams_of_all = ud_streams | dat::stream::rmr_bind;
constexpr auto streams_of_lean = dat::stream::dto | dat::stream::rmr_bind;
using datagram_ep = dat::ep<dat::ud>;

/// One adapter with all objects that a flow uses.
struct site {
  site(steps& step, const char* device, bool lean_evds = false)
      : lean(lean_evds),
        ia(step([&] { return dat::ia::open(device, manual); })),
        pz(step([&] { return ia.create_pz(); })),
        evd(step([&] { return ia.create_evd<streams_of_all>(64); })),
        completions(step([&] { return ia.create_evd<streams_of_lean>(64); })),
        mem(step([&] { return pz.register_memory(memory, all_rights); })) {}

  std::array<char, 1024> memory{};
  bool lean;
  dat::ia ia;
  dat::pz pz;
  dat::evd<streams_of_all> evd;
  dat::evd<streams_of_lean> completions;
  region mem;
  dat::ep<dat::rc> ep;

  auto at(std::size_t first, std::size_t count) { return must(mem.slice(first, count)); }
  void make_ep(steps& step) {
    if (lean)
      ep = step([&] { return pz.create_ep<dat::rc>(dat::ep_evds{completions, completions, evd}); });
    else
      ep = step([&] { return pz.create_ep<dat::rc>(evd); });
  }
  events take() {
    fake::finish();
    events all;
    const auto keep = [&](const auto& e) { all.push_back(describe_datagrams{}(e)); };
    while (completions.drain(keep) + evd.drain(keep) != 0) {
    }
    return all;
  }
};

/// Runs the pending work of both.
void settle(site& a, site& b) {
  for (int i = 0; i < 12; ++i) {
    fake::finish();
    const out_of_memory::throwing all(&fake::inside);
    a.ia.run();
    b.ia.run();
  }
}

/// The request that has arrived; empty when it was lost by a failure.
template <class Evd>
std::optional<dat::cr> arrived(Evd& evd) {
  auto e = evd.dequeue();
  if (!e) return {};
  auto* r = std::get_if<dat::cr>(&e.value());
  REQUIRE(r);
  return std::move(*r);
}

/// Sends requests from `ep` until one has arrived. A request for which the peer has no memory is refused.
dat::cr ask(steps& step, site& a, dat::ep<dat::rc>& ep, site& b, std::uint16_t port) {
  for (int attempt = 0;; ++attempt) {
    REQUIRE(attempt < 2);
    step([&] { return ep.connect(b.ia.address(), port, plenty, bytes_of("hello")); });
    settle(a, b);
    if (auto r = arrived(b.evd)) {
      CHECK(text_of(r->private_data()) == "hello");
      return std::move(*r);
    }
    const auto instead = a.take();
    REQUIRE(instead.size() == 1);
    CHECK(instead[0].starts_with("non_peer_rejected"));
    step.seen("a refused request");
    step([&] { return ep.reset(); });
  }
}

void both_established(site& a, site& b) {
  settle(a, b);
  CHECK(a.take() == events{"established"});
  CHECK(b.take() == events{"established"});
}

void connect(steps& step, site& a, site& b) {
  auto r = ask(step, a, a.ep, b, service);
  step([&] { return r.accept(b.ep, bytes_of("welcome")); });
  both_established(a, b);
}

/// Every kind of operation, with data.
void transfer(steps& step, site& a, site& b) {
  std::copy_n("sixteen letters", 16, a.memory.data());
  const auto from = a.at(0, 16);
  const auto to = must(b.mem.remote(64, 16));
  for (std::uint64_t i = 0; i < 3; ++i) step([&] { return b.ep.post(dat::recv{b.at(0, 32)}.cookie(i)); });
  step([&] { return a.ep.post(dat::send{from}.cookie(1)); });
  step([&] { return a.ep.post(dat::rdma_write{from, to}.immediate(5).cookie(2)); });
  step([&] { return a.ep.post(dat::rdma_read{a.at(128, 16), to}.cookie(3)); });
  dat::batch<2> batch;
  CHECK(batch.push_back(dat::rdma_write{from, to}.suppress_completion()));
  CHECK(batch.push_back(dat::send{from}.cookie(4)));
  step([&] { return a.ep.post(batch); });
  CHECK(a.take() == events{"sent 1", "written immediate 2", "read 3", "sent 4"});
  CHECK(b.take() == events{"received 0", "write arrived 1", "received 2"});
  for (const char* text : {a.memory.data() + 128, b.memory.data() + 64, b.memory.data()})
    CHECK(std::string(text) == "sixteen letters");
}

/// Ends a connection, and closes its endpoints.
void disconnect(steps& step, site& a, site& b) {
  step([&] { return a.ep.disconnect(); });
  settle(a, b);
  CHECK(a.take() == events{"disconnected"});
  CHECK(b.take() == events{"disconnected"});
  for (site* s : {&a, &b}) {
    step([&] { return s->ep.reset(); });
    step([&] { return s->ep.close(); });
  }
}

} // namespace

TEST_CASE("a connection keeps its data and its events when any request for memory fails, on either side",
          "[no_room][CONN-061][EP-030][EVD-004][PSP-020][CR-028]") {
  needs_refusals();
  const bool lean = GENERATE(false, true);
  CAPTURE(lean);
  const int failures = for_each_allocation([&](steps& step) {
    site a(step, "fk1", lean);
    site b(step, "fk2", lean);
    a.make_ep(step);
    b.make_ep(step);
    auto psp = step([&] { return b.ia.create_psp(service, b.evd); });
    connect(step, a, b);
    transfer(step, a, b);
    disconnect(step, a, b);
    // Further endpoints of the same objects need memory again, as does a rejected request.
    a.make_ep(step);
    auto r = ask(step, a, a.ep, b, service);
    step([&] { return r.reject(bytes_of("no")); });
    settle(a, b);
    CHECK(a.take() == events{"peer_rejected"});
  });
  CHECK(failures > 20);
}

TEST_CASE("connections through each kind of service point survive a failed request for memory",
          "[no_room][PSP-020][RSP-012][CSP-011][CR-028]") {
  needs_refusals();
  const int failures = for_each_allocation([](steps& step) {
    site a(step, "fk1");
    site b(step, "fk2");
    const auto finish = [&](dat::cr& r) {
      step([&] { return r.accept(b.ep); });
      both_established(a, b);
      transfer(step, a, b);
      disconnect(step, a, b);
    };
    { // a reserved service point with an endpoint
      a.make_ep(step);
      b.make_ep(step);
      auto rsp = step([&] { return b.ia.create_rsp(7001, b.ep, b.evd); });
      auto r = ask(step, a, a.ep, b, 7001);
      step([&] { return r.accept(); });
      both_established(a, b);
      transfer(step, a, b);
      disconnect(step, a, b);
    }
    { // a common service point that hands the request to a psp
      a.make_ep(step);
      b.make_ep(step);
      const auto here = b.ia.address();
      auto csp = step([&] { return b.ia.create_csp({AF_INET, SOCK_STREAM, 0}, here.with_port(7002), b.evd); });
      auto psp = step([&] { return b.ia.create_psp(7003, b.evd); });
      auto r = ask(step, a, a.ep, b, 7002);
      step([&] { return r.handoff(must(dat::conn_qual::make(7003))); });
      auto again = arrived(b.evd);
      REQUIRE(again);
      finish(*again);
    }
    { // a psp that hands the request to one that creates the endpoint
      auto psp = step([&] { return b.ia.create_psp(7004, b.evd); });
      auto provider = step([&] { return b.ia.create_psp(7005, b.evd, dat::psp_flags::provider); });
      a.make_ep(step);
      auto first = ask(step, a, a.ep, b, 7004);
      step([&] { return first.handoff(must(dat::conn_qual::make(7005))); });
      auto r = arrived(b.evd);
      REQUIRE(r);
      b.ep = std::move(r->ep());
      step([&] { return b.ep.modify({.pz = &b.pz, .recv = b.evd, .request = b.evd, .connect = b.evd}); });
      step([&] { return r->accept(); });
      both_established(a, b);
      transfer(step, a, b);
      disconnect(step, a, b);
      a.make_ep(step);
      auto direct = ask(step, a, a.ep, b, 7005);
      CHECK(direct.ep());
    }
  });
  CHECK(failures > 20);
}

TEST_CASE("windows open and close when any request for memory fails", "[no_room][rmr][RMR-008]") {
  needs_refusals();
  const bool lean = GENERATE(false, true);
  const bool for_ep = GENERATE(false, true);
  CAPTURE(lean, for_ep);
  const int failures = for_each_allocation([&](steps& step) {
    site a(step, "fk1", lean);
    site b(step, "fk2", lean);
    a.make_ep(step);
    b.make_ep(step);
    auto psp = step([&] { return b.ia.create_psp(service, b.evd); });
    connect(step, a, b);
    auto rmr = step([&] { return for_ep ? b.pz.create_rmr_for_ep() : b.pz.create_rmr(); });
    auto other = step([&] { return b.pz.create_rmr(); });
    constexpr auto both = dat::remote_read | dat::remote_write;
    const auto bound = step([&] { return rmr.bind(b.ep, dat::bind{b.mem, 16, 32, both}.cookie(5)); });
    CHECK(b.take() == events{"bind 5"});
    const auto beside = step([&] { return other.bind(b.ep, dat::bind{b.mem, 16, 32, both}.cookie(7)); });
    CHECK(b.take() == events{"bind 7"});
    step([&] { return a.ep.post(dat::rdma_write{a.at(0, 32), bound}.cookie(6)); });
    CHECK(a.take() == events{"written 6"});
    step([&] { return a.ep.post(dat::rdma_write{a.at(0, 32), beside}.cookie(8)); });
    CHECK(a.take() == events{"written 8"});
    step([&] { return rmr.unbind(b.ep); });
    CHECK(b.take().size() == 1);
    step([&] { return rmr.close(); });
  });
  CHECK(failures > 15);
}

TEST_CASE("pools, shared queues and their watermarks work when any request for memory fails",
          "[no_room][SRQ-015][SRQ-067][LMR-028]") {
  needs_refusals();
  const int failures = for_each_allocation([](steps& step) {
    site a(step, "fk1");
    site b(step, "fk2");
    auto pool = step([&] { return dat::memory_pool<all_rights.value>::create(b.pz, 8192); });
    void* const part = pool.try_allocate(64);
    REQUIRE(part);
    const std::span bytes(static_cast<char*>(part), 64);
    auto srq = step([&] { return b.pz.create_srq({.max_recv_dtos = 4}); });
    auto ep = step([&] { return b.pz.create_ep<dat::rc>(b.evd, srq); });
    a.make_ep(step);
    auto psp = step([&] { return b.ia.create_psp(service, b.evd); });
    auto r = ask(step, a, a.ep, b, service);
    step([&] { return r.accept(ep); });
    both_established(a, b);
    for (std::uint64_t i = 0; i < 3; ++i) {
      const auto room = must(pool.segment(bytes));
      step([&] { return srq.post(dat::recv{room}.cookie(i)); });
    }
    step([&] { return srq.set_low_watermark(3); });
    for (std::uint64_t i = 0; i < 2; ++i) {
      step([&] { return a.ep.post(dat::send{a.at(0, 8)}.cookie(i)); });
      CHECK(a.take() == events{"sent " + std::to_string(i)});
      CHECK(b.take() == events{"received " + std::to_string(i)});
    }
    settle(a, b);
    auto low = b.ia.async_evd().dequeue();
    REQUIRE(low);
    CHECK(std::holds_alternative<dat::srq_low_watermark>(low.value()));
    pool.deallocate(part, 64);
    step([&] { return ep.close(); });
    step([&] { return srq.close(); });
    step([&] { return pool.close(); });
  });
  CHECK(failures > 20);
}

TEST_CASE("endpoints connect by descriptors when any request for memory fails", "[no_room][descriptor]") {
  needs_refusals();
  const int failures = for_each_allocation([](steps& step) {
    site a(step, "fk1");
    site b(step, "fk2");
    a.make_ep(step);
    b.make_ep(step);
    const auto of_a = step([&] { return a.ep.export_descriptor(); });
    const auto of_b = step([&] { return b.ep.export_descriptor(); });
    step([&] { return a.ep.connect(of_b); });
    step([&] { return b.ep.connect(of_a); });
    CHECK(a.take() == events{"established"});
    CHECK(b.take() == events{"established"});
    transfer(step, a, b);
  });
  CHECK(failures > 15);
}

TEST_CASE("datagrams, their requests and groups work when any request for memory fails", "[no_room][ud][multicast]") {
  needs_refusals();
  const fake::with roce{fake::personality::kind};
  const auto address = must(dat::ia_address::parse("239.1.2.3"));
  const int failures = for_each_allocation([&](steps& step) {
    site a(step, "fk1");
    site b(step, "fk2");
    datagram_ep near = step([&] { return a.pz.create_ep<dat::ud>(a.evd); });
    datagram_ep far = step([&] { return b.pz.create_ep<dat::ud>(b.evd); });
    auto listener = step([&] { return dat::ib::datagram_service::listen(b.ia, service, b.evd); });
    std::optional<dat::ib::datagram_request> request;
    for (int attempt = 0; !request; ++attempt) {
      REQUIRE(attempt < 2);
      step([&] { return near.connect(b.ia.address(), service, plenty, bytes_of("who")); });
      settle(a, b);
      auto e = b.evd.dequeue();
      if (e) {
        request = std::move(std::get<dat::ib::datagram_request>(e.value()));
        continue;
      }
      const auto instead = a.take();
      CHECK(instead == events{"peer_rejected"}); // rdma_cm has one reason for refused requests of datagrams
      step.seen("a refused request");
    }
    CHECK(text_of(request->private_data()) == "who");
    step([&] { return request->accept(far); });
    settle(a, b);
    CHECK(b.take() == events{"known"});
    auto e = must(a.evd.dequeue());
    REQUIRE(std::holds_alternative<dat::ib::datagram_established>(e));
    const auto to_far = step([&] { return std::get<dat::ib::datagram_established>(e).peer(); });
    const auto send = [&](const dat::ib::address_handle& to) {
      step([&] { return far.post(dat::recv{b.at(0, 64)}.cookie(1)); });
      step([&] { return near.post(dat::ib::send_to{a.at(0, 5), to}.cookie(2)); });
      CHECK(a.take() == events{"sent 2"});
      CHECK(b.take() == events{"received 1"});
    };
    send(to_far);
    const auto where = step([&] { return far.export_descriptor(); });
    send(step([&] { return near.connect(where); }));
    auto group = step([&] { return dat::ib::multicast_group::join(far, address); });
    auto sender = step([&] { return dat::ib::multicast_group::join(near, address, dat::ib::membership::send_only); });
    settle(a, b);
    CHECK(a.take() == events{"joined"});
    CHECK(b.take() == events{"joined"});
    send(step([&] { return sender.peer(); }));
    step([&] { return group.leave(); });
    step([&] { return far.disconnect(); });
    CHECK(b.take() == events{"disconnected"});
    step([&] { return far.reset(); });
  });
  CHECK(failures > 20);
}

} // namespace no_memory
