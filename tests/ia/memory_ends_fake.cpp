// The memory of objects, connections and attempts is freed when they end, and not later.
// SPDX-License-Identifier: BSL-1.0
#include "allocations.hpp"
#include "datagram_end.hpp"
#include "world.hpp"

#include <dat/policies.hpp>
#include <dat/rmr.hpp>
#include <dat/srq.hpp>
#include <dat/ud.hpp>

#include <dat/detail/events/event_queue.hpp>

using namespace unit;

namespace {

constexpr const char* no_counts = "the sanitizer has its own operators new, and finds leaks by itself";

/// How many pieces of memory a second and a third call of `use` leave in use.
template <class Use>
long kept_by(Use use) {
  use();
  const unfreed memory(&fake::inside);
  use();
  use();
  return memory.count();
}
template <class Use>
bool keeps_nothing(Use use) {
  return kept_by(use) == 0;
}

} // namespace

TEST_CASE("the ring of an evd ends with its memory", "[evd]") {
  if (!counts_allocations) SKIP(no_counts);
  const unfreed memory([]() noexcept { return false; });
  {
    dat::detail::event_queue q;
    REQUIRE(q.reserve(8));
    CHECK(memory.count() == 1);
    REQUIRE(q.reserve(16));
    CHECK(memory.count() == 1);
    REQUIRE(q.push(dat::detail::record()));
  }
  CHECK(memory.count() == 0);
}

TEST_CASE("a shared queue ends with the memory of its blocks and of its table of endpoints", "[srq]") {
  if (!counts_allocations) SKIP(no_counts);
  const clean_world world;
  end a;
  auto evd = must(a.ia.create_evd<dat::stream::dto | dat::stream::software>(64));
  CHECK(keeps_nothing([&] {
    auto srq = must(a.pz.create_srq({.max_recv_dtos = 4}));
    auto ep = must(a.pz.create_ep<dat::rc>({.recv = evd, .request = a.evd, .connect = a.evd}, srq));
    must(ep.close());
    must(srq.close());
  }));
}

TEST_CASE("an ia ends with the memory of its table of windows and of its record of tracked posts", "[ia]") {
  if (!counts_allocations) SKIP(no_counts);
  const clean_world world;
  // The fake frees memory of its contexts in calls other than those that allocated it.
  const long unused = kept_by([] {
    end a;
    a.make_ep();
  });
  SECTION("windows") {
    CHECK(kept_by([] {
            end a;
            a.make_ep();
            const auto window = must(a.pz.create_rmr());
          }) == unused);
  }
  SECTION("tracked posts") {
    CHECK(kept_by([] {
            end a;
            a.make_ep();
            must(a.ep.post<dat::tracked>(dat::recv{a.at(0, 8)}));
          }) == unused);
  }
}

TEST_CASE("an attempt to connect that has ended is freed with its last event, before its time limit", "[connection]") {
  if (!counts_allocations) SKIP(no_counts);
  const clean_world world;
  end a("fk1"), b("fk2");
  const auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep();
  b.make_ep();
  const auto attempt = [&](auto answer) {
    return keeps_nothing([&] {
      must(a.ep.connect(b.ia.address(), service, 1h));
      settle(a, b);
      answer(request_on(b.evd));
      settle(a, b);
      (void)a.take();
      (void)b.take();
      must(a.ep.reset());
      if (b.ep.state() == dat::ep_state::disconnected) must(b.ep.reset());
      settle(a, b);
    });
  };
  SECTION("because the peer refused") {
    CHECK(attempt([](dat::cr request) { must(request.reject()); }));
  }
  SECTION("because the caller gave up") {
    CHECK(attempt([&](dat::cr request) {
      must(a.ep.disconnect());
      must(request.reject());
    }));
  }
  SECTION("after a connection") {
    CHECK(attempt([&](dat::cr request) {
      must(request.accept(b.ep));
      settle(a, b);
      must(a.ep.disconnect(dat::close_mode::abrupt));
    }));
  }
}

TEST_CASE("a datagram attempt that has its outcome is freed with its event, before its time limit", "[ud]") {
  if (!counts_allocations) SKIP(no_counts);
  const clean_world world;
  datagram_end a("fk1");
  auto other = must(dat::ia::open("fk2", manual));
  CHECK(keeps_nothing([&] {
    must(a.ep.connect(other.address(), service, 1h)); // no service listens there
    settle(a.ia, other);
    auto e = must(a.evd.dequeue());
    CHECK(std::holds_alternative<dat::non_peer_rejected>(e));
  }));
}
