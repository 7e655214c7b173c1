// Many threads and signal handlers query and call objects while connections begin and end.
// SPDX-License-Identifier: BSL-1.0
#include "sides.hpp"

#include <dat/csp.hpp>
#include <dat/ep_params.hpp>
#include <dat/rsp.hpp>

#include <support/worker.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <memory>
#include <vector>

namespace connections {

TEST_CASE("one of many threads reserves an endpoint, and each service point gets its own port",
          "[RSP-013][CSP-012][PSP-013][PSP-033][EP-015]") {
  rig::world world;
  rig::end e(0, rig::automatic);
  e.make_ep();
  const std::array qualifiers{rig::port(), rig::port(), rig::port(), rig::port()};
  std::atomic<int> reserved{0};
  std::array<std::uint16_t, 8> ports{};
  std::array<dat::rsp, 4> rsps;
  std::array<dat::psp, 4> psps;
  std::array<dat::csp, 4> csps;
  {
    std::vector<std::unique_ptr<support::worker>> workers;
    for (std::size_t i = 0; i < 4; ++i)
      workers.push_back(std::make_unique<support::worker>([&, i](support::worker& w) {
        auto r = e.ia.create_rsp(qualifiers[i], e.ep, e.evd);
        if (r) {
          ++reserved;
          rsps[i] = std::move(r).value();
        } else {
          w.check(r.error().subtype() == return_subtype::ep_reserved);
        }
        auto c = e.ia.create_csp(tcp, e.evd);
        auto p = e.ia.create_psp_any(e.evd);
        w.check(c && p);
        const auto ep = e.pz.create_ep<dat::rc>(e.evd);
        w.check(ep && ep.value().state() == ep_state::unconnected);
        if (c && p) {
          ports[i] = c.value().port();
          ports[4 + i] = p.value().port();
          csps[i] = std::move(c).value();
          psps[i] = std::move(p).value();
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

TEST_CASE("queries return in other threads and in signal handlers while connections begin and end", "[connection]") {
  sides s(rig::automatic);
  auto& a = s.a;
  auto& b = s.b;
  auto psp = must(b.ia.create_psp(s.service, b.evd));
  auto csp = must(b.ia.create_csp(tcp, b.evd));
  auto reserved = must(b.pz.create_ep<dat::rc>(b.evd));
  auto rsp = must(b.ia.create_rsp(s.other, reserved, b.evd));
  a.make_ep();
  b.make_ep();
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  std::atomic<int> of_connected{0}; // queries of an endpoint that was connected
  support::worker asks([&](support::worker& w) {
    while (!stop) {
      w.check(psp.query().has_value() && csp.query().has_value() && rsp.query().has_value());
      const auto at = psp.query();
      w.check(at && at.value().id == psp.id() && at.value().requests == b.evd.id());
      for (auto* ep : {&a.ep, &b.ep, &reserved}) {
        const auto q = ep->query();
        w.check(q.has_value());
        // A query is a snapshot: a connection has both addresses or none.
        if (q && q.value().state == ep_state::connected) {
          w.check(q.value().remote_address.has_value());
          ++of_connected;
        }
        const auto r = ep->recv_query();
        w.check(r && r.value().span >= r.value().allocated);
        w.check(ep->status().has_value());
      }
      ++rounds;
    }
  });
  const struct at_end {
    std::atomic<bool>& stop;
    ~at_end() { stop = true; } // Stops the threads also when the test fails.
  } at_end{stop};
  watched = &a.ep;
  std::signal(SIGUSR1, &look_at_status);
  for (int i = 0; i < 10; ++i) {
    must(a.ep.connect(b.ia.address(), s.service, patience));
    std::raise(SIGUSR1);
    auto request = must(b.evd.wait_for<dat::connection_request>(patience));
    must(b.ep.post(dat::recv{b.at(0, 8)}));
    must(request.accept(b.ep));
    (void)must(a.evd.wait_for<dat::established>(patience));
    (void)must(b.evd.wait_for<dat::established>(patience));
    // The other thread queries both ends while they are connected.
    for (const int now = rounds; rounds < now + 2;) std::this_thread::yield();
    must(a.ep.disconnect());
    (void)must(a.evd.wait_for<dat::disconnected>(patience));
    CHECK(b.take(2).size() == 2); // this includes the flushed receive
    std::raise(SIGUSR1);
    must(a.ep.reset());
    must(b.ep.reset());
  }
  std::signal(SIGUSR1, SIG_DFL);
  stop = true;
  asks.join(); // the thread has checked that each query is one consistent snapshot
  CHECK(of_connected >= 20);
  SHOWS("PSP-043", "CSP-021", "RSP-027", "EP-047", "EP-057", "EP-066", "SAFE-024");
  CHECK(statuses >= 20);
  SHOWS("EP-048", "EP-060", "SAFE-022");
}

TEST_CASE("manual progress advances connections even when every wait finds an event at once", "[progress]") {
  sides s(rig::manual);
  std::array soft{must(s.a.ia.create_evd<dat::stream::software>(1)), must(s.b.ia.create_evd<dat::stream::software>(1))};
  auto active = must(s.a.pz.create_ep<dat::rc>(s.a.evd));
  auto passive = s.make();
  const auto rsp = must(s.b.ia.create_rsp(s.service, passive, s.b.evd));
  // Only the waits make progress, and they never sleep.
  const auto in_time = [&](const auto& reached) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!reached() && std::chrono::steady_clock::now() < end)
      for (auto& evd : soft) {
        must(evd.post(1));
        (void)must(evd.wait(patience));
      }
    return reached();
  };
  must(active.connect(s.b.ia.address(), s.service, patience));
  CHECK(in_time([&] { return passive.state() == ep_state::passive_connection_pending; }));
  auto request = s.request();
  must(request.accept());
  CHECK(in_time([&] { return active.state() == ep_state::connected && passive.state() == ep_state::connected; }));
  must(active.disconnect());
  CHECK(in_time([&] { return passive.state() == ep_state::disconnected; }));
}

} // namespace connections
