// The main flows on the fake: everything a program does with dat from opening to closing.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

using namespace unit;

TEST_CASE("one adapter sends a message to another in the same process") {
  clean_world world;
  pair p;
  must(p.b.ep.post(dat::recv{p.b.at(0, 16)}.cookie(2)));
  p.a.memory[0] = 'x';
  must(p.a.ep.post(dat::send{p.a.at(0, 16)}.cookie(1)));
  CHECK(p.a.take() == events{"sent 1"});
  CHECK(p.b.take() == events{"received 2"});
  CHECK(p.b.memory[0] == 'x');
}
