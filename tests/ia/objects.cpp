// The members that all objects share: context, kind, identity.
// SPDX-License-Identifier: BSL-1.0
#include "../support/worker.hpp"
#include "everything.hpp"
#include <rig.hpp>

#include <dat/csp.hpp>
#include <dat/ep_params.hpp>
#include <dat/rmr.hpp>
#include <dat/rsp.hpp>
#include <dat/srq.hpp>

#include <atomic>
#include <unordered_set>

using dat::object_kind;
using rig::must;
using rig::patience;
using support::worker;
using namespace objects;

namespace {

enum class color { red = 7 };

} // namespace

TEST_CASE("every object carries one context, none at first, that moves with its handle", "[object]") {
  NEEDS_FEATURE(windows);
  everything all;
  std::uint64_t next = 1;
  all.each([](auto& handle) { CHECK(must(handle.context()).value() == 0); });
  SHOWS("CTX-002");
  all.each([&](auto& handle) { must(handle.set_context(next++)); });
  next = 1;
  all.each([&](auto& handle) { CHECK(must(handle.context()).value() == next++); });
  SHOWS("CTX-001", "CTX-010", "MODEL-006");

  all.each([](auto& handle) {
    INFO(to_string(handle.kind));
    int something = 0;
    must(handle.set_context(&something));
    auto moved = std::move(handle);
    CHECK(moved.template context<int>() == &something);
    CHECK(handle.template context<int>() == nullptr); // NOLINT(bugprone-use-after-move)
    handle = std::move(moved);
    CHECK(handle.template context<int>() == &something);
    must(handle.set_context(dat::cookie(color::red)));
    CHECK(must(handle.context()).template as<color>() == color::red);
    must(handle.set_context(~0ull));
    CHECK(must(handle.context()).value() == ~0ull);
    must(handle.set_context({}));
    CHECK(must(handle.context()).value() == 0);
  });
  SHOWS("CTX-003", "CTX-004", "CTX-005", "CTX-008");
}

TEST_CASE("an endpoint's context outlives its connections, and its events lead to it", "[object][ep][CTX-012]") {
  NEEDS_FEATURE(windows);
  everything all;
  int session = 0;
  must(all.ep.set_context(&session));
  must(all.request.accept(all.far));
  auto moved = std::move(all.ep); // events still name the endpoint after the move
  const auto up = must(all.evd.wait_for<dat::established>(moved, patience));
  CHECK(up.ep().context<int>() == &session);
  must(all.far.post(dat::recv{all.lmr}));
  must(moved.post(dat::send{all.lmr}));
  CHECK(must(all.evd.wait_for<dat::send_done>(patience)).ep().context<int>() == &session);
  CHECK(must(all.evd.wait_for<dat::recv_done>(patience)).ep().context<int>() == nullptr); // of the other endpoint
  must(moved.disconnect());
  CHECK(must(all.evd.wait_for<dat::disconnected>(moved, patience)).ep().context<int>() == &session);
  must(moved.reset());
  CHECK(moved.context<int>() == &session);
}

TEST_CASE("the id of an evd or of a service point leads to the context of the object", "[object][CTX-012]") {
  NEEDS_FEATURE(windows);
  everything all;
  int loop = 0, service = 0;
  must(all.evd.set_context(&loop));
  must(all.psp.set_context(&service));
  must(all.csp.set_context(2));
  must(all.evd.modify_cno(all.cno));
  CHECK(must(all.request.query()).service == all.psp.id());
  CHECK(all.ia.context_of<int>(all.request.service()) == &service);
  must(all.request.reject());
  const auto woken_by = must(all.cno.wait(patience));
  CHECK(all.ia.context_of<int>(woken_by) == &loop);
  CHECK(must(all.ia.context_of(all.csp.id())) == dat::cookie(2));
  CHECK(must(all.ia.context_of(all.rsp.id())) == dat::cookie());
  must(all.rsp.set_context(3));
  CHECK(must(all.ia.context_of(all.rsp.id())) == dat::cookie(3));
  CHECK(must(all.ia.context_of(all.completions_only.id())) == dat::cookie());
  const auto moved_evd = std::move(all.evd);
  const auto moved_psp = std::move(all.psp);
  CHECK(all.ia.context_of<int>(moved_evd.id()) == &loop);
  CHECK(all.ia.context_of<int>(moved_psp.id()) == &service);
  // An id that names no object of the ia, or no longer one, leads nowhere.
  const auto ended = all.csp.id();
  must(all.csp.close());
  const auto other = rig::open(rig::manual);
  const auto refuses = [](const dat::expected<dat::cookie>& r) {
    REQUIRE_FALSE(r);
    CHECK(r.error().type() == dat::return_type::invalid_handle);
    CHECK(r.error().call() == "ia.context_of");
  };
  refuses(all.ia.context_of(ended));
  refuses(all.ia.context_of(dat::evd_id()));
  refuses(all.ia.context_of(dat::service_id()));
  refuses(other.context_of(moved_psp.id()));
  refuses(dat::ia().context_of(moved_evd.id()));
  CHECK(all.ia.context_of<int>(ended) == nullptr);
}

TEST_CASE("a handed-off request, and an endpoint that dat created, begin without a context", "[object][CTX-011]") {
  NEEDS_FEATURE(windows);
  everything all;
  int mine = 0;
  must(all.request.set_context(&mine));
  const auto at = rig::port();
  const auto at_making = rig::port();
  auto other = must(all.ia.create_psp(at, all.evd));
  auto making = must(all.ia.create_psp(at_making, all.evd, dat::psp_flags::provider));
  must(all.request.handoff(at));
  auto request = must(all.evd.wait_for<dat::connection_request>(patience));
  CHECK(request.context<int>() == nullptr);
  must(request.set_context(&mine));
  // The accepted request has ended; the context of its endpoint is unchanged.
  must(request.accept(all.far));
  CHECK(request.context<int>() == nullptr);
  CHECK(all.far.context<int>() == nullptr);
  must(all.far.set_context(&mine));
  (void)must(all.evd.wait_for<dat::established>(all.ep, patience));
  (void)must(all.evd.wait_for<dat::established>(all.far, patience));
  must(all.far.disconnect());
  (void)must(all.evd.wait_for<dat::disconnected>(all.far, patience));
  must(all.far.reset());
  CHECK(all.far.context<int>() == &mine);

  auto third = must(all.pz.create_ep<dat::rc>(all.evd));
  must(all.far.connect(all.ia.address(), at, patience));
  must(must(all.evd.wait_for<dat::connection_request>(patience)).accept(third));
  (void)must(all.evd.wait_for<dat::established>(all.far, patience));
  CHECK(all.far.context<int>() == &mine);

  auto fourth = must(all.pz.create_ep<dat::rc>(all.evd));
  must(fourth.connect(all.ia.address(), at_making, patience));
  auto brought = must(all.evd.wait_for<dat::connection_request>(patience));
  REQUIRE(brought.ep());
  CHECK(brought.ep().context<int>() == nullptr);
}

TEST_CASE("every handle reports its DAT kind", "[object][CTX-013][CTX-015]"
                                               "[SAFE-002][CTX-014]") {
  STATIC_REQUIRE(dat::cr::kind == object_kind::cr);
  STATIC_REQUIRE(dat::ep<dat::rc>::kind == object_kind::ep);
  STATIC_REQUIRE(dat::ep_ref::kind == object_kind::ep);
  STATIC_REQUIRE(dat::evd<dat::stream::dto>::kind == object_kind::evd);
  STATIC_REQUIRE(dat::ia::kind == object_kind::ia);
  STATIC_REQUIRE(region::kind == object_kind::lmr);
  STATIC_REQUIRE(dat::psp::kind == object_kind::psp);
  STATIC_REQUIRE(dat::pz::kind == object_kind::pz);
  STATIC_REQUIRE(dat::rmr::kind == object_kind::rmr);
  STATIC_REQUIRE(dat::rsp::kind == object_kind::rsp);
  STATIC_REQUIRE(dat::cno::kind == object_kind::cno);
  STATIC_REQUIRE(dat::srq::kind == object_kind::srq);
  STATIC_REQUIRE(dat::csp::kind == object_kind::csp);
  const object_kind in_order[] = {object_kind::cr,  object_kind::ep,  object_kind::evd, object_kind::ia,
                                  object_kind::lmr, object_kind::psp, object_kind::pz,  object_kind::rmr,
                                  object_kind::rsp, object_kind::cno, object_kind::srq, object_kind::csp};
  std::uint32_t number = 0;
  for (const auto kind : in_order) CHECK(dat_code(kind) == number++);
  CHECK(number == 12); // higher numbers are kinds of extensions
  CHECK_FALSE(dat_code(object_kind::none));
  CHECK_FALSE(dat_code(static_cast<object_kind>(77)));
  SHOWS("CTX-009", "SAFE-042"); // constants: any thread and any handler may read them
}

TEST_CASE("objects are outside of their handles, and no memory of the consumer becomes one", "[object]") {
  NEEDS_FEATURE(windows);
  everything all;
  int objects = 0;
  const auto outside = [&]<class H>(const H& handle) {
    const auto at = reinterpret_cast<std::uintptr_t>(handle.identity());
    const auto mine = reinterpret_cast<std::uintptr_t>(&all);
    CHECK((at != 0 && (at < mine || at >= mine + sizeof all)));
    STATIC_REQUIRE_FALSE(std::is_aggregate_v<H>);
    STATIC_REQUIRE_FALSE(std::is_trivially_copyable_v<H>);
    STATIC_REQUIRE_FALSE(std::is_constructible_v<H, void*>);
    ++objects;
  };
  all.each(outside);
  CHECK(objects == 14);
  SHOWS("SAFE-004", "LMR-031", "REQ-138", "REG-017");
}

TEST_CASE("handles of one object are equal and hash alike, and handles of others are not equal", "[object][IA-002]") {
  NEEDS_FEATURE(windows);
  everything all;
  std::unordered_set<const void*> different;
  all.each([&](auto& handle) {
    using handle_type = std::remove_reference_t<decltype(handle)>;
    INFO(to_string(handle.kind));
    CHECK(different.insert(handle.identity()).second);
    CHECK(handle.owner() == all.ia.identity()); // an ia is its own owner
    CHECK(handle == handle);
    CHECK(handle != handle_type());
    CHECK(handle_type() == handle_type());
    const void* before = handle.identity();
    const auto hashed = std::hash<handle_type>{}(handle);
    auto moved = std::move(handle);
    CHECK(moved.identity() == before);
    CHECK(std::hash<handle_type>{}(moved) == hashed);
    handle = std::move(moved);
  });
  CHECK(all.ep != all.far);
  const dat::ep_ref named = all.ep;
  CHECK(named == all.ep);
  CHECK(all.ep == named);
  CHECK(named != dat::ep_ref(all.far));
  CHECK(named.identity() == all.ep.identity());
  CHECK(std::unordered_set<dat::ep_ref>{named, all.far, all.ep}.size() == 2);
  const auto second = rig::open(rig::manual); // the same adapter, another ia
  CHECK(second != all.ia);
  CHECK(all.pz.owner() != second.identity());
}

TEST_CASE("one thread may set a context while another reads it", "[object][CTX-006][CTX-007][SAFE-042]") {
  NEEDS_FEATURE(windows);
  everything all;
  std::atomic<bool> over = false;
  worker writer([&](worker& w) {
    for (std::uint64_t i = 1; i <= 1000; ++i) w.check(all.evd.set_context(i).has_value());
    over = true;
  });
  std::uint64_t last = 0;
  bool forward = true;
  while (!over) {
    const auto seen = must(all.evd.context()).value();
    forward = forward && seen >= last;
    last = seen;
  }
  writer.join();
  CHECK(forward);
  CHECK(must(all.evd.context()).value() == 1000);
}
