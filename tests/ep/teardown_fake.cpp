// What endpoints leave behind when they are reset or end: completions, queue pairs, entries, and counts.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/descriptor.hpp>
#include <dat/ep_params.hpp>
#include <dat/srq.hpp>

#include <dat/detail/handle/core_access.hpp>

using namespace unit;
using dat::ep_state;

TEST_CASE("a reset endpoint knows nothing of its last connection", "[ep]") {
  const clean_world world;
  pair p;
  must(p.a.ep.disconnect());
  p.settle();
  must(p.a.ep.reset());
  const auto now = must(p.a.ep.query());
  CHECK(now.state == ep_state::unconnected);
  CHECK_FALSE(now.remote_address);
  CHECK(now.local_address == p.a.ia.address());
  CHECK_FALSE(p.a.ep.remote_address());
  CHECK_FALSE(dat::detail::core_access::of(p.a.ep)->connection());
}
