// What may be called from several threads at once, all at once; ThreadSanitizer looks on in its flavour.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <support/worker.hpp>

using namespace unit;
using support::worker;

TEST_CASE("objects of one adapter are made, asked and ended by several threads at once",
          "[safety][SAFE-010][SAFE-011][SAFE-040][SAFE-046][IA-145]") {
  fake::reset();
  end a("fk1", automatic);
  std::atomic<std::uint16_t> next_port = 8000;
  std::atomic<bool> over = false;
  const auto make_and_end = [&](worker& w) {
    int made = 0;
    for (int i = 0; i < 50; ++i) {
      auto pz = a.ia.create_pz();
      auto evd = a.ia.create_evd<all_streams>(16);
      auto lean = a.ia.create_evd<dat::dto>(16);
      auto cno = a.ia.create_cno();
      if (!pz || !evd || !lean || !cno) break;
      std::array<char, 64> memory{};
      auto lmr = a.pz.register_memory(memory, all_rights); // in the zone that all share
      auto ep = a.pz.create_ep<dat::rc>({.recv = lean.assume_value(),
                                         .request = lean.assume_value(),
                                         .connect = a.evd}); // feeds the evd that all share
      auto psp = a.ia.create_psp(dat::conn_qual::make(next_port++).assume_value(), evd.assume_value());
      if (!lmr || !ep || !psp) break;
      if (!ep.assume_value().post(dat::recv{lmr.assume_value()})) break;
      if (!evd.assume_value().modify_cno(cno.assume_value())) break;
      // Half of them are closed in order, half just go.
      if (i % 2 == 0 && (!ep.assume_value().close() || !psp.assume_value().close() || !lmr.assume_value().close()))
        break;
      ++made;
    }
    w.check(made == 50);
  };
  worker asking([&](worker& w) {
    int good = 0, asked = 0;
    while (!over) {
      ++asked;
      good += static_cast<int>(a.ia.query() && a.ia.query<dat::provider_attributes>() && !a.ia.address().is_any() &&
                               a.mem.slice(0, 1) && a.pz.owner() == a.ia.identity());
    }
    w.check(good == asked);
  });
  { worker one(make_and_end), two(make_and_end), three(make_and_end); }
  over = true;
  asking.join();
}

TEST_CASE("one evd and one cno serve several threads at once",
          "[safety][SAFE-012][SAFE-025][SAFE-031][SAFE-041][SAFE-047][REQ-035][MODEL-027]") {
  fake::reset();
  auto ia = must(dat::ia::open("fk1", automatic));
  auto evd = must(ia.create_evd<dat::software>(64));
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
        std::this_thread::yield(); // full: somebody takes
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
      }
      w.check(good);
    });
  }
  CHECK(taken == 2 * each);
  CHECK(posted == taken);
  // A thread that waits is let go before the evd is.
  std::atomic<bool> waiting = false;
  worker waiter([&](worker& w) {
    waiting = true;
    const auto r = evd.wait(plenty);
    w.check(!r && r.assume_error().subtype() == dat::return_subtype::evd_unwaitable);
  });
  while (!waiting) std::this_thread::yield();
  must(evd.set_unwaitable());
  waiter.join();
  must(evd.modify_cno({}));
  must(evd.close());
  must(cno.close());
}
