// What a driver of coroutines does when it polls: the work of an ia with manual progress, and failures of the device.
// SPDX-License-Identifier: BSL-1.0
#include "async_events.hpp"
#include "world.hpp"

#include <dat/coro.hpp>

#include <support/streams.hpp>

using namespace unit;

TEMPLATE_TEST_CASE_SIG("a driver that polls in vain reports the failure of the poll, once", "[coro]",
                       ((dat::streams S), S), dat::stream::dto, dat::stream::dto | dat::stream::software) {
  const clean_world world;
  auto ia = must(dat::ia::open("fk1", manual));
  auto evd = must(ia.create_evd<S>(8));
  dat::coro::driver driver(evd);
  CHECK(driver.poll(support::ignore) == 0);
  CHECK(take_async<dat::provider_internal_error>(ia) == 0);
  for (int twice = 0; twice < 2; ++twice) {
    fake::fail(fake::call::ibv_poll_cq, 1, EIO);
    CHECK(driver.poll(support::ignore) == 0);
    CHECK(take_async<dat::provider_internal_error>(ia) == (twice == 0 ? 1 : 0));
  }
}

TEST_CASE("a driver that polls does the work of an ia with manual progress", "[coro]") {
  const clean_world world;
  end a("fk1"), b("fk2");
  const auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep();
  must(a.ep.connect(b.ia.address(), service, plenty));
  for (int i = 0; i < 4; ++i) a.ia.run(); // sends the request
  events seen;
  dat::coro::driver driver(b.evd);
  CHECK(driver.poll([&](const auto& e) { seen.push_back(describe{}(e)); }) == 1);
  CHECK(seen == events{"request"});
}
