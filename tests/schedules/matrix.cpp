// Two calls that may overlap, on one set of objects, in many orders.
// SPDX-License-Identifier: BSL-1.0
#include "schedule.hpp"

#include <ep/call_matrix.hpp>

using namespace unit;

TEST_CASE("two calls that may overlap leave all objects whole, in many orders", "[schedules][SAFE-060]") {
  const clean_world world;
  schedule::session s(1);
  matrix m;
  std::uint64_t seed = 1;
  // All pairs take minutes. Unless DAT_SCHEDULES requests more than usual, every seventh pair is tried once.
  const unsigned asked = schedule::runs(schedule::usual);
  const bool more = asked > schedule::usual;
  const unsigned each = more ? asked : 1;
  const unsigned step = more ? 1 : 7;
  unsigned pairs = 0;
  for (std::size_t i = 0; i < m.all.size(); ++i)
    for (std::size_t k = i; k < m.all.size(); ++k) {
      if (m.all[i].lane != 0 && m.all[i].lane == m.all[k].lane) continue;
      if (pairs++ % step != 0) continue;
      for (unsigned n = 0; n < each; ++n) {
        s.reseed(++seed);
        s.together({m.all[i].call, m.all[k].call});
        m.take_all();
        if (m.ep.state() != dat::ep_state::connected)
          FAIL(m.all[i].name << " beside " << m.all[k].name << ", seed " << seed);
      }
    }
  CHECK(pairs > 1400);
  must(m.evd.modify_cno(m.cno));
  must(m.ep.post(dat::rdma_write{m.a.at(0, 8), m.b.mem.remote()}.cookie(99)));
  CHECK(must(m.evd.wait_for<dat::rdma_write_done>(plenty)).cookie() == dat::cookie(99));
  must(m.request.reject());
}
