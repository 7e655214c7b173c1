// Threads that use the objects of one adapter at once.
// SPDX-License-Identifier: BSL-1.0
#include "../support/worker.hpp"
#include "everything.hpp"
#include <rig.hpp>

#include <dat/csp.hpp>
#include <dat/ep_params.hpp>
#include <dat/memory.hpp>
#include <dat/rmr.hpp>
#include <dat/rsp.hpp>
#include <dat/srq.hpp>

#include <array>
#include <atomic>
#include <thread>

using namespace std::chrono_literals;
using rig::must;
using rig::patience;
using support::worker;
using namespace objects;

TEST_CASE("several threads create, query and close objects of one adapter at once",
          "[safety][SAFE-010][SAFE-011][SAFE-040][SAFE-044][SAFE-046][IA-145]") {
  NEEDS_FEATURE(windows);
  rig::begin();
  auto ia = rig::open();
  auto shared_pz = must(ia.create_pz());
  auto shared_evd = must(ia.create_evd<all_streams>(64));
  std::array<char, 64> shared_memory{};
  auto shared_lmr = must(shared_pz.register_memory(shared_memory, all_rights));
  const auto service = rig::port();
  const auto shared_psp = must(ia.create_psp(service, shared_evd));
  const auto shared_csp = must(ia.create_csp(tcp, shared_evd));
  auto reserved = must(shared_pz.create_ep<dat::rc>(shared_evd));
  const auto shared_rsp = must(ia.create_rsp(rig::port(), reserved, shared_evd));
  auto connecting = must(shared_pz.create_ep<dat::rc>(shared_evd));
  must(connecting.connect(ia.address(), service, patience));
  const auto request = must(shared_evd.wait_for<dat::connection_request>(patience));
  constexpr int rounds = rig::thread_rounds;
  std::atomic<bool> over = false;
  const std::array ports{rig::port(), rig::port(), rig::port()};
  std::atomic<std::size_t> threads = 0;
  const auto make_and_end = [&](worker& w) {
    int made = 0;
    const auto port = ports[threads++];
    for (int i = 0; i < rounds; ++i) {
      auto pz = ia.create_pz();
      auto evd = ia.create_evd<all_streams>(16);
      auto completions_only = ia.create_evd<dat::stream::dto>(16);
      auto cno = ia.create_cno();
      if (!pz || !evd || !completions_only || !cno) break;
      std::array<char, 64> memory{};
      auto lmr = shared_pz.register_memory(memory, all_rights); // the zone is shared by all threads
      auto ep = shared_pz.create_ep<dat::rc>({.recv = completions_only.assume_value(),
                                              .request = completions_only.assume_value(),
                                              .connect = shared_evd}); // feeds the evd that all threads share
      auto psp = ia.create_psp_any(evd.assume_value());
      if (!ia.create_psp(port, evd.assume_value())) break; // closed before the rsp below takes the port
      auto rmr = shared_pz.create_rmr();
      auto srq = shared_pz.create_srq();
      if (!lmr || !ep || !psp || !rmr || !srq) break;
      auto again = dat::ia::open(ia.name(), rig::manual); // the same adapter, another ia
      auto csp = ia.create_csp(tcp, evd.assume_value());
      auto own = shared_pz.create_ep<dat::rc>(shared_evd);
      if (!again || !csp || !own) break;
      if (!ia.create_rsp(port, own.assume_value(), evd.assume_value()) || !shared_pz.create_rmr_for_ep()) break;
      if (evd.assume_value().wait(0us) || cno.assume_value().wait(0us)) break; // both are empty
      if (!shared_pz.create_ep<dat::rc>(shared_evd, srq.assume_value())) break;
      if (!ep.assume_value().post(dat::recv{lmr.assume_value()})) break;
      if (!evd.assume_value().modify_cno(cno.assume_value())) break;
      if (cno.assume_value().fd() < 0 || cno.assume_value().latest() == evd.assume_value().id()) break;
      // Half of the objects are closed in order, half are only destroyed.
      if (i % 2 == 0 && (!ep.assume_value().close() || !psp.assume_value().close() || !lmr.assume_value().close()))
        break;
      ++made;
    }
    w.check(made == rounds);
  };
  const auto is_whole = [&] {
    const auto region = dat::query(shared_lmr);
    return region && region.assume_value().pz == shared_pz.identity() &&
           region.assume_value().registered_size == shared_memory.size() &&
           region.assume_value().rights == all_rights.value;
  };
  worker asking([&](worker& w) {
    int good = 0, asked = 0;
    while (!over) {
      ++asked;
      good += static_cast<int>(ia.query() && ia.query<dat::provider_attributes>() && !ia.address().is_any() &&
                               shared_psp.query() && shared_csp.query() && shared_rsp.query() && request.query() &&
                               shared_lmr.slice(0, 1) && shared_pz.owner() == ia.identity() && is_whole() &&
                               dat::sync_rdma_read(ia, shared_lmr) && dat::sync_rdma_write(ia, shared_lmr));
    }
    w.check(good == asked);
  });
  { worker one(make_and_end), two(make_and_end), three(make_and_end); }
  over = true;
  asking.join();
  CHECK(shared_pz.owner() == ia.identity());
  SHOWS("PZ-012", "PZ-003", "LMR-027", "LMR-044");
}

TEST_CASE("one evd and one cno serve several threads at once",
          "[safety][SAFE-012][SAFE-031][SAFE-041][REQ-035][MODEL-027]") {
  rig::begin();
  auto ia = rig::open();
  auto evd = must(ia.create_evd<dat::stream::software>(64));
  auto cno = must(ia.create_cno());
  must(evd.modify_cno(cno));
  constexpr int each = 300;
  std::atomic<int> taken = 0, posted = 0;
  const auto post = [&](worker& w) {
    int mine = 0;
    while (mine < each) {
      if (evd.post(1))
        ++mine;
      else
        std::this_thread::yield(); // the evd is full; another thread takes events
    }
    posted += mine;
    w.check(mine == each);
  };
  const auto take = [&](worker&) {
    while (taken < 2 * each)
      if (evd.dequeue()) ++taken;
  };
  {
    worker p1(post), p2(post), t1(take), t2(take);
    worker notified([&](worker&) {
      while (taken < 2 * each) (void)cno.wait(1ms);
    });
    worker settings([&](worker& w) {
      bool good = true;
      while (taken < 2 * each) {
        good = good && evd.disable() && evd.enable() && evd.set_unwaitable() && evd.clear_unwaitable();
        good = good && evd.modify_cno({}) && evd.modify_cno(cno) && evd.capacity() == 64 && cno.modify_agent({});
        (void)cno.latest();
        (void)cno.agent();
        good = good && evd.query();
      }
      w.check(good);
    });
  }
  CHECK(taken == 2 * each);
  CHECK(posted == taken);
  SHOWS("EVENT-107");
  // The waiting threads are released before cno and evd are closed.
  while (cno.wait(0us)) {
  }
  worker of_cno([&](worker& w) { w.check(cno.wait(patience).has_value()); });
  must(evd.post(2));
  of_cno.join();
  CHECK(evd.dequeue().has_value());
  std::atomic<bool> waiting = false;
  worker waiter([&](worker& w) {
    waiting = true;
    const auto r = evd.wait(patience);
    w.check(!r && r.assume_error().subtype() == dat::return_subtype::evd_unwaitable);
  });
  while (!waiting) std::this_thread::yield();
  must(evd.set_unwaitable());
  waiter.join();
  must(evd.modify_cno({}));
  must(evd.close());
  must(cno.close());
}
