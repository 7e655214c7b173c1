// Calls that several threads may make at once, all at once; ThreadSanitizer runs this program, too.
// SPDX-License-Identifier: BSL-1.0
#include "call_matrix.hpp"

#include <support/worker.hpp>

#include <barrier>
#include <functional>

using namespace unit;
using support::worker;

TEST_CASE("each call that may overlap others runs beside each of them on the same objects",
          "[safety][SAFE-060][SAFE-044][SAFE-024]") {
  const clean_world clean;
  {
    matrix m;
    const std::function<void()>* one = nullptr;
    const std::function<void()>* two = nullptr;
    bool over = false;
    std::barrier turn(3);
    const auto run = [&](const std::function<void()>*& mine) {
      return [&](worker&) {
        for (;;) {
          turn.arrive_and_wait();
          if (over) return;
          for (int i = 0; i < 2; ++i) (*mine)();
          turn.arrive_and_wait();
        }
      };
    };
    worker first(run(one));
    worker second(run(two));
    std::size_t pairs = 0;
    for (std::size_t i = 0; i < m.all.size(); ++i)
      for (std::size_t k = i; k < m.all.size(); ++k) {
        if (m.all[i].lane != 0 && m.all[i].lane == m.all[k].lane) continue;
        one = &m.all[i].call;
        two = &m.all[k].call;
        turn.arrive_and_wait();
        turn.arrive_and_wait();
        m.take_all();
        if (m.ep.state() != dat::ep_state::connected) FAIL(m.all[i].name << " beside " << m.all[k].name);
        ++pairs;
      }
    over = true;
    turn.arrive_and_wait();
    first.join();
    second.join();
    CHECK(pairs > 1400);
    SHOWS("SAFE-040", "SAFE-041", "SAFE-046");
    // No object is damaged: operations on all of them still work.
    must(m.evd.modify_cno(m.cno));
    must(m.ep.post(dat::rdma_write{m.a.at(0, 8), m.b.mem.remote()}.cookie(99)));
    CHECK(must(m.evd.wait_for<dat::rdma_write_done>(plenty)).cookie() == dat::cookie(99));
    must(m.request.reject());
  }
}

TEST_CASE("an endpoint answers queries while another thread connects and resets it", "[safety]") {
  const clean_world clean;
  end a{"fk1", automatic};
  end b{"fk2", automatic};
  a.make_ep();
  b.make_ep();
  const auto peer = must(b.ep.export_descriptor());
  std::barrier turn(2);
  int refused = 0;
  worker asks([&](worker&) {
    turn.arrive_and_wait();
    for (int i = 0; i < 50; ++i) {
      if (!a.ep.export_descriptor() || !a.ep.query() || !a.ep.recv_query()) ++refused;
      (void)a.ep.remote_address();
    }
  });
  turn.arrive_and_wait();
  for (int i = 0; i < 50; ++i) {
    must(a.ep.connect(peer));
    must(a.ep.disconnect());
    must(a.ep.reset());
    a.evd.drain([](const auto&) {}, 8);
  }
  asks.join();
  CHECK(refused == 0);
  // Its descriptor is that of the present queue pair.
  CHECK(must(a.ep.export_descriptor()).number() == a.ep.number());
}
