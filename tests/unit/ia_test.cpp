// Opening and closing an ia: which adapter, how often, what fork and versions mean.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

using namespace unit;
using type = dat::return_type;

TEST_CASE("without a name the first adapter whose port is active is opened, or else the first", "[ia]") {
  fake::reset();
  const auto chosen = [] { return std::string(must(dat::ia::open(manual)).name()); };
  CHECK(chosen() == "fk1");
  fake::set_port_state("fk1", 1, IBV_PORT_DOWN);
  CHECK(chosen() == "fk2");
  fake::set_port_state("fk2", 1, IBV_PORT_DOWN);
  CHECK(chosen() == "fk1");
  CHECK(must(must(dat::ia::open("fk1", manual)).query()).state == dat::port_state::down);
}
