// Time limits of waits that do not concern what else ends on their driver.
// SPDX-License-Identifier: BSL-1.0
#include "driven_pair.hpp"

#include <dat/coro.hpp>
#include <dat/task.hpp>

using namespace unit;

TEST_CASE("the close or reset of an endpoint leaves the limited waits for other endpoints", "[coro]") {
  const clean_world world;
  driven_pair p;
  auto other = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  const auto receive = [](driven_pair& w) -> dat::task<std::string> {
    co_return told(co_await w.far.within(plenty, w.far.post(w.b.ep, dat::recv{})));
  };
  auto received = receive(p);
  received.start();
  SECTION("reset") {
    must(other.connect(p.a.ia.address(), service + 1, plenty)); // no service point has that port
    p.settle();
    REQUIRE(other.state() == dat::ep_state::disconnected);
    must(p.far.reset(other));
  }
  SECTION("close") {
    must(p.far.close(other));
    CHECK_FALSE(other);
  }
  (void)p.run();
  CHECK_FALSE(received.done());
  must(p.a.ep.post(dat::send{}.suppress_completion()));
  (void)p.run();
  CHECK(received.result() == "good");
}
