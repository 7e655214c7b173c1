// Exhausted memory, and the data path, which allocates nothing.
// SPDX-License-Identifier: BSL-1.0
#include "allocations.hpp"
#include "world.hpp"

#include <dat/srq.hpp>

#include <optional>

using namespace unit;

namespace {

/// The result of `call`; if it fails for lack of memory, the result of a second call with memory.
template <class Call>
auto with_memory_again(Call& call, int& failures) {
  auto r = call();
  if (!r) {
    INFO(r.error().message());
    CHECK(out_of_memory::failed());
    CHECK(r.error().type() == dat::return_type::insufficient_resources);
    ++failures;
    out_of_memory::stop();
    r = call();
    REQUIRE(r);
  }
  return r;
}

} // namespace

TEST_CASE("running out of memory is an error of the call and leaves nothing behind",
          "[PSP-020][CONN-061][EVD-004][IA-016][LMR-028][PZ-004]") {
  if (!refuses_allocations) SKIP("the requests for memory belong to the sanitizer");
  if (dat::detail::checked_build) SKIP("a checked build allocates to watch posted memory");
  int failures = 0;
  for (int n = 0;; ++n) {
    clean_world world;
    end b("fk2");
    auto psp = must(b.ia.create_psp(service, b.evd));
    b.make_ep();
    std::array<char, 64> memory{};
    out_of_memory limit(n);
    const auto step = [&](auto call) { return with_memory_again(call, failures); };
    auto ia = step([] { return dat::ia::open("fk1", manual); });
    auto pz = step([&] { return ia.value().create_pz(); });
    auto completions_only = step([&] { return ia.value().create_evd<dat::stream::dto>(8); });
    auto evd = step([&] { return ia.value().create_evd<all_streams>(8); });
    auto mem = step([&] { return pz.value().register_memory(memory, all_rights); });
    auto listener = step([&] { return ia.value().create_psp(service, evd.value()); });
    auto ep = step([&] { return pz.value().create_ep<dat::rc>(evd.value()); });
    must(step([&] { return ep.value().connect(b.ia.address(), service, plenty); }));
    settle(ia.value(), b.ia);
    // The request itself needs memory at the peer. A peer without memory refuses the request, like a full evd.
    auto seen = take(evd.value());
    if (seen == events{"non_peer_rejected 28"}) {
      CHECK(out_of_memory::failed());
      ++failures;
      out_of_memory::stop();
      must(ep.value().reset());
      must(ep.value().connect(b.ia.address(), service, plenty));
      settle(ia.value(), b.ia);
      seen = take(evd.value());
    }
    CHECK(seen.empty());
    must(request_on(b.evd).accept(b.ep));
    settle(ia.value(), b.ia);
    CHECK(take(evd.value()) == events{"established"});
    must(b.ep.post(dat::recv{}));
    must(ep.value().post(dat::send{}));
    CHECK(take(evd.value()) == events{"sent 0"});
    must(ep.value().disconnect());
    settle(ia.value(), b.ia);
    must(step([&] { return ep.value().reset(); }));
    if (!out_of_memory::failed()) break;
    REQUIRE(n < 100);
  }
  CHECK(failures > 9);
}

TEST_CASE("exhausted memory is an error of the srq call that needs it; posts and ends need none",
          "[SRQ-015][SRQ-067][SRQ-081][EP-030]") {
  if (!refuses_allocations) SKIP("the requests for memory belong to the sanitizer");
  if (dat::detail::checked_build) SKIP("a checked build allocates to watch posted memory");
  const fake::with resizable{fake::current(), [](fake::manners& m) { m.srq_resize = true; }};
  int failures = 0;
  for (int n = 0;; ++n) {
    clean_world world;
    end a("fk1");
    end b("fk2");
    a.make_ep();
    auto apart = must(b.ia.create_evd<dat::stream::dto | dat::stream::software>(8));
    auto psp = must(b.ia.create_psp(service, b.evd));
    std::optional<out_of_memory> limit(n);
    const auto step = [&](auto call) { return with_memory_again(call, failures); };
    auto srq = step([&] { return b.pz.create_srq({.max_recv_dtos = 3}); });
    must(step([&] { return srq.value().resize(20); }));
    auto one = step([&] { return b.pz.create_ep<dat::rc>(b.evd, srq.value()); });
    auto two =
        step([&] { return b.pz.create_ep<dat::rc>({.recv = apart, .request = b.evd, .connect = b.evd}, srq.value()); });
    const bool done = !out_of_memory::failed();
    limit.reset();
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle(a, b);
    must(request_on(b.evd).accept(two.value()));
    settle(a, b);
    {
      const out_of_memory none(0);
      for (int i = 0; i < 4; ++i) must(srq.value().post(dat::recv{b.at(0, 8)}.cookie(i)));
      CHECK_FALSE(out_of_memory::failed());
      must(a.ep.post(dat::send{a.at(0, 8)}.suppress_completion()));
      CHECK(take(apart) == events{"received 0"});
      must(a.ep.post(dat::send{a.at(0, 8)}.suppress_completion()));
      CHECK_FALSE(out_of_memory::failed());
      must(two.value().close());
    }
    CHECK(take(apart).empty());
    CHECK(must(srq.value().query()).outstanding == 2);
    must(one.value().close());
    must(srq.value().close());
    if (done) break;
  }
  CHECK(failures >= 6);
}

TEST_CASE("the data path allocates nothing", "[REQ-100][SAFE-022]") {
  if (!refuses_allocations) SKIP("the requests for memory belong to the sanitizer");
  if (dat::detail::checked_build) SKIP("a checked build allocates to watch posted memory");
  clean_world world;
  pair p;
  const auto target = p.b.mem.remote();
  must(p.b.ep.post(dat::recv{p.b.at(0, 8)}));
  out_of_memory limit(0);
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), target}, dat::rdma_read{p.a.at(0, 8), target}, dat::send{}));
  must(p.b.ep.post(dat::recv{p.b.at(0, 8)}));
  std::size_t n = 0;
  while (p.a.evd.drain([](const auto&) {}) != 0) ++n;
  CHECK(p.b.evd.dequeue());
  must(p.a.ep.disconnect());
  CHECK_FALSE(out_of_memory::failed());
  CHECK(n == 1);
}

TEST_CASE("taking and posting do not allocate, however full an evd is", "[evd]") {
  const clean_world clean;
  constexpr auto S = all_streams | dat::stream::software;
  end a;
  end b("fk2");
  auto evd = must(a.ia.create_evd<S>(16));
  auto psp = must(b.ia.create_psp(service, b.evd));
  auto ep = must(a.pz.create_ep<dat::rc>(evd, {.max_request_dtos = 8, .max_recv_dtos = 8}));
  b.make_ep();
  must(ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  for (int i = 0; i < 8; ++i) must(b.ep.post(dat::recv{}));
  must(request_on(b.evd).accept(b.ep));
  settle(a, b);
  (void)take(evd);
  for (std::uint64_t i = 0; i < 16; ++i) must(evd.post(i));
  CHECK(evd.post(16).error() == dat::error(dat::return_type::queue_full));
  for (std::uint64_t i = 0; i < 8; ++i) must(ep.post(dat::send{}.cookie(i)));
  std::size_t sent = 0;
  std::size_t software = 0;
  {
    const out_of_memory at_once(0);
    if (evd.wait_for<dat::send_done>(0us)) ++sent; // moves all completions to the ring
    while (evd.drain(dat::overloaded{[&](const dat::send_done&) { ++sent; },
                                     [&](const dat::software_event&) { ++software; }, [](const auto&) {}}) != 0) {
    }
  }
  CHECK_FALSE(out_of_memory::failed()); // no allocation was attempted
  CHECK(sent == 8);
  CHECK(software == 16);
}
