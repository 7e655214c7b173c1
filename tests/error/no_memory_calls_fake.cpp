// Each request for memory fails once in cnos, coroutines, tracked posts, and the search for adapters.
// SPDX-License-Identifier: BSL-1.0
#include <support/coroutine.hpp>
#include <support/streams.hpp>

#include "../coro/driven_pair.hpp"
#include "no_memory.hpp"

#include <dat/coro.hpp>
#include <dat/coro_set.hpp>
#include <dat/policies.hpp>
#include <dat/registry.hpp>
#include <dat/task.hpp>

#include <functional>
#include <new>

using namespace unit;

namespace no_memory_calls {
namespace {

using steps = no_memory_steps;

/// Calls `f` with all requests for memory of this thread counted, except for those of the fake library. Returns whether
/// std::bad_alloc left it.
template <class F>
bool throws_bad_alloc(F f) {
  const out_of_memory::throwing all(&fake::inside);
  try {
    f();
  } catch (const std::bad_alloc&) {
    return true;
  }
  return false;
}

} // namespace

TEST_CASE("cnos, their agents and sets of drivers work when any request for memory fails", "[no_room][cno][CNO-018]") {
  needs_refusals();
  const int failures = for_each_allocation([](steps& step) {
    using support::soft;
    int called = 0;
    const dat::wait_proxy_agent agent{.call = [](void* n, dat::evd_id) noexcept { ++*static_cast<int*>(n); },
                                      .instance = &called};
    auto ia = step([] { return dat::ia::open("fk1", manual); });
    auto cno = step([&] { return ia.create_cno(agent); });
    auto one = step([&] { return ia.create_evd<soft>(8); });
    auto two = step([&] { return ia.create_evd<soft>(8); });
    step([&] { return one.modify_cno(cno); });
    step([&] { return one.post(1); });
    ia.run();
    CHECK(called == 1);
    CHECK(must(cno.wait(0us)) == one.id());
    dat::coro::driver first(one);
    dat::coro::driver second(two);
    auto both = step([&] { return dat::coro::driver_set<soft, soft>::create(ia, first, second); });
    step([&] { return two.post(2); });
    std::uint64_t sum = 0;
    const auto add = [&](const dat::software_event& e) { sum += e.cookie().value(); };
    CHECK(both.poll(add) == 2);
    CHECK(sum == 3);
  });
  CHECK(failures > 5);
}

TEST_CASE("without memory an event that a driver would keep goes to its visitor", "[no_room][coro]") {
  needs_refusals();
  struct crowd {
    end a{"fk1"};
    end b{"fk2"};
    dat::psp psp = must(b.ia.create_psp(service, b.evd));
    std::array<dat::ep<dat::rc>, 3> active{must(a.pz.create_ep<dat::rc>(a.evd)), must(a.pz.create_ep<dat::rc>(a.evd)),
                                           must(a.pz.create_ep<dat::rc>(a.evd))};
    std::array<dat::ep<dat::rc>, 3> passive{must(b.pz.create_ep<dat::rc>(b.evd)), must(b.pz.create_ep<dat::rc>(b.evd)),
                                            must(b.pz.create_ep<dat::rc>(b.evd))};
    queue_driver far{b.evd};
  };
  const auto accept_all = [](crowd& c) -> support::task<int> {
    int n = 0;
    for (auto& ep : c.passive) {
      auto request = co_await c.far.next<dat::connection_request>();
      if (!request) co_return n;
      if (const auto up = co_await c.far.accept(request.value(), ep)) ++n;
    }
    co_return n;
  };
  const int failures = for_each_allocation_with<crowd>([&](steps& step, crowd& c) {
    auto server = accept_all(c);
    for (auto& ep : c.active) step([&] { return ep.connect(c.b.ia.address(), service, plenty); });
    events foreign;
    const auto note = [&](const auto& e) { foreign.push_back(describe{}(e)); };
    for (std::size_t n = 1; n != 0;) {
      settle(c.a, c.b);
      n = c.far.poll(note);
    }
    auto seen = c.a.take();
    settle(c.a, c.b);
    for (const auto& e : c.a.take()) seen.push_back(e);
    CHECK(seen.size() == 3); // each attempt has exactly one outcome
    const auto refused = std::count_if(seen.begin(), seen.end(), [](const auto& e) { return e != "established"; });
    CHECK(refused <= 1);
    if (refused != 0) step.seen("a refused request");
    if (!foreign.empty()) CHECK(foreign == events{"request"});
    for (auto n = refused; n > 0; --n) { // the server waits for another request
      CHECK_FALSE(server.done());
      auto again = must(c.a.pz.create_ep<dat::rc>(c.a.evd));
      must(again.connect(c.b.ia.address(), service, plenty));
      for (std::size_t m = 1; m != 0;) {
        settle(c.a, c.b);
        m = c.far.poll(note);
      }
    }
    REQUIRE(server.done());
    CHECK(server.result() == 3);
  });
  CHECK(failures > 5);
}

TEST_CASE("a coroutine whose frame has no memory throws std::bad_alloc and changes nothing", "[no_room][coro]") {
  if (!counts_allocations) SKIP("the requests for memory belong to the sanitizer");
  const clean_world world;
  driven_pair p;
  const auto answer = [](queue_driver& d, dat::ep_ref ep) -> dat::task<std::string> {
    co_return told(co_await d.post(ep, dat::recv{}), "received");
  };
  const auto ask = [](queue_driver& d, dat::ep_ref ep) -> dat::task<std::string> {
    co_return told(co_await d.post(ep, dat::send{}), "sent");
  };
  const auto serve = [&answer](queue_driver& d, dat::ep_ref ep, int& served) -> dat::task<void> {
    if (co_await answer(d, ep) == "received") ++served;
  };
  int failures = 0;
  for (int n = 0;; ++n) {
    INFO("request for memory number " << n << " fails");
    int served = 0;
    dat::task_group group;
    const out_of_memory limit(n);
    const auto spawn = [&] { group.spawn(serve(p.far, p.b.ep, served)); };
    if (throws_bad_alloc(spawn)) {
      ++failures;
      CHECK(group.empty());
      spawn();
    }
    dat::task<std::string> asked;
    const auto start = [&] {
      asked = ask(p.near, p.a.ep);
      asked.start();
    };
    if (throws_bad_alloc(start)) {
      ++failures;
      start();
    }
    CHECK(p.run().empty());
    CHECK(asked.done());
    CHECK(served == 1);
    CHECK(group.empty());
    if (!out_of_memory::failed()) break;
    REQUIRE(n < 20);
  }
  CHECK(failures >= 4);
}

TEST_CASE("a tracked post without memory posts nothing, and can be repeated", "[no_room][policies]") {
  needs_refusals();
  const int failures = for_each_allocation_with<pair>([](steps& step, pair& p) {
    step([&] {
      return p.b.ep.post<dat::tracked>(dat::recv{p.b.at(0, 8)}.cookie(1), dat::recv{p.b.at(8, 8)}.cookie(2));
    });
    step([&] {
      return p.a.ep.post<dat::tracked>(dat::send{p.a.at(0, 8)}.cookie(3), dat::send{p.a.at(8, 8)}.cookie(4));
    });
    CHECK(p.a.take() == events{"sent 3", "sent 4"});
    CHECK(p.b.take() == events{"received 1", "received 2"});
  });
  CHECK(failures >= 3);
}

TEST_CASE("finding an adapter without memory is an error or std::bad_alloc, and leaves nothing behind",
          "[no_room][registry]") {
  needs_refusals();
  const std::string far = "10.99.2.1";
  const auto local = must(dat::ia_address::parse("10.99.1.1"));
  static constexpr std::string_view file = "a_long_name_of_an_adapter u2.0 threadsafe default /usr/lib/libdat.so "
                                           "dapl.2.0 \"fk1 1\" \"\"\n";
  const auto kept = dat::conf::parse(file, "dat.conf");
  struct way {
    const char* name;
    bool may_throw;
    std::function<dat::expected<void>()> call;
  };
  const auto only_the_error = [](const auto& r) { return r ? dat::expected<void>(dat::success()) : r.error(); };
  const way ways[] = {
      {"the first adapter", false, [&] { return only_the_error(dat::ia::open(manual)); }},
      {"by name", false, [&] { return only_the_error(dat::ia::open("fk2", manual)); }},
      {"by address", false, [&] { return only_the_error(dat::ia::open(local, manual)); }},
      {"by route", false, [&] { return only_the_error(dat::ia::open_by_route(far, manual)); }},
      {"attributes", false, [&] { return only_the_error(dat::ia::list_adapters()); }},
      {"list of devices", true, [&] { return only_the_error(dat::list_devices()); }},
      {"find by address", true, [&] { return only_the_error(dat::find_adapter(local)); }},
      {"find by interface", true, [&] { return only_the_error(dat::find_adapter_on("net-fk1-1")); }},
      {"find by route", true, [&] { return only_the_error(dat::find_adapter_reaching(far)); }},
      {"registry", true,
       [&] {
         auto devices = dat::list_devices();
         if (!devices) return dat::expected<void>(devices.error());
         dat::registry all(std::move(devices).value(), kept);
         if (auto ok = all.add({.name = "another name of an adapter"}); !ok) return ok;
         if (auto found = all.find("a_long_name_of_an_adapter"); !found) return only_the_error(found);
         return only_the_error(all.open("a_long_name_of_an_adapter", {}, manual));
       }},
  };
  for (const way& w : ways) {
    INFO(w.name);
    for (int n = 0;; ++n) {
      INFO("request for memory number " << n << " fails");
      const clean_world world;
      const out_of_memory limit(n);
      std::optional<dat::expected<void>> r;
      const bool threw = throws_bad_alloc([&] { r = w.call(); });
      if (!out_of_memory::failed()) {
        REQUIRE_FALSE(threw);
        must(std::move(*r));
        break;
      }
      out_of_memory::stop();
      if (threw)
        CHECK(w.may_throw);
      else if (!*r)
        explains(r->error());
      else
        FAIL_CHECK("the failure had no effect");
      must(w.call());
      REQUIRE(n < 300);
    }
  }
}

TEST_CASE("when the connection manager has no resources, no way of opening an adapter loses an address", "[no_room]") {
  const std::function<dat::expected<dat::ia>()> ways[] = {
      [] { return dat::ia::open(manual); },
      [] { return dat::ia::open("fk2", manual); },
      [] { return dat::ia::open(must(dat::ia_address::parse("10.99.2.1")), manual); },
      [] { return dat::ia::open_by_route("10.99.2.1", manual); },
  };
  using enum fake::call;
  for (const auto& open : ways)
    for (const auto which : {rdma_create_event_channel, rdma_create_id, rdma_bind_addr, rdma_resolve_addr})
      for (unsigned nth = 1;; ++nth) {
        INFO(fake::name(which) << " number " << nth << " fails");
        const clean_world world;
        fake::fail(which, nth, ENOMEM);
        auto ia = open();
        const bool failed = fake::forget_faults() == 0;
        if (!ia) explains(ia.error());
        CHECK(failed == !ia);
        if (!failed) break;
        ia = open();
        REQUIRE(ia);
        for (const auto family : {dat::address_family::ipv4, dat::address_family::ipv6})
          CHECK(ia.value().address(family));
      }
}

} // namespace no_memory_calls
