// The members that all objects share: context, kind, identity; and threads that use objects at once.
// SPDX-License-Identifier: BSL-1.0
#include "../support/worker.hpp"
#include <rig.hpp>

#include <dat/csp.hpp>
#include <dat/ep_params.hpp>
#include <dat/memory.hpp>
#include <dat/rmr.hpp>
#include <dat/rsp.hpp>
#include <dat/srq.hpp>

#include <dat/detail/handle/core_access.hpp>

#include <array>
#include <atomic>
#include <netinet/in.h>
#include <thread>
#include <unordered_set>

using namespace std::chrono_literals;
using dat::object_kind;
using dat::return_type;
using rig::must;
using rig::patience;
using support::worker;

namespace {

constexpr auto all_streams = dat::stream::dto | dat::stream::connection | dat::stream::connection_requests;
constexpr auto all_rights = dat::local_read | dat::local_write | dat::remote_read | dat::remote_write;
using region = dat::lmr<char, all_rights.value>;
constexpr dat::communicator tcp{AF_INET, SOCK_STREAM, IPPROTO_TCP};

/// One object of each kind, and two endpoints, which are connecting.
struct everything {
  everything() {
    rig::begin();
    ia = rig::open(rig::manual);
    pz = must(ia.create_pz());
    evd = must(ia.create_evd<all_streams>(64));
    completions_only = must(ia.create_evd<dat::stream::dto>(64));
    cno = must(ia.create_cno());
    psp = must(ia.create_psp(port, evd));
    csp = must(ia.create_csp(tcp, evd));
    lmr = must(pz.register_memory(memory, all_rights));
    rmr = must(pz.create_rmr());
    srq = must(pz.create_srq());
    ep = must(pz.create_ep<dat::rc>(evd));
    far = must(pz.create_ep<dat::rc>(evd));
    reserved = must(pz.create_ep<dat::rc>(evd));
    rsp = must(ia.create_rsp(rig::port(), reserved, evd));
    must(ep.connect(ia.address(), port, patience));
    request = must(evd.wait_for<dat::connection_request>(patience));
  }
  /// Calls `f` with each object.
  template <class F>
  void each(F f) {
    f(ia), f(pz), f(evd), f(completions_only), f(cno), f(psp), f(csp), f(rsp), f(lmr), f(rmr), f(srq), f(ep), f(far),
        f(request);
  }
  std::array<char, 64> memory{};
  dat::conn_qual port = rig::port();
  dat::ia ia;
  dat::pz pz;
  dat::evd<all_streams> evd;
  dat::evd<dat::stream::dto> completions_only;
  dat::cno cno;
  dat::psp psp;
  dat::csp csp;
  region lmr;
  dat::rmr rmr;
  dat::srq srq;
  dat::ep<dat::rc> ep, far, reserved;
  dat::rsp rsp;
  dat::cr request;
};

enum class color { red = 7 };

} // namespace

TEST_CASE("every object carries one context, none at first, that moves with its handle",
          "[object][CTX-001][CTX-002][CTX-003][CTX-004][CTX-005][CTX-008][CTX-010][MODEL-006]") {
  NEEDS_FEATURE(windows);
  everything all;
  std::uint64_t next = 1;
  all.each([](auto& handle) { CHECK(must(handle.context()).value() == 0); });
  all.each([&](auto& handle) { must(handle.set_context(next++)); });
  next = 1;
  all.each([&](auto& handle) { CHECK(must(handle.context()).value() == next++); });

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
}

namespace {
template <class T>
concept leads_to_a_context = requires(const T& named) {
  named.template context<int>();
};
} // namespace

TEST_CASE("an endpoint's context outlives its connections, and its events lead to it", "[object][ep]") {
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
  // An evd and a service point are named by values, which the program compares.
  STATIC_REQUIRE(leads_to_a_context<dat::ep_ref>);
  STATIC_REQUIRE_FALSE(leads_to_a_context<dat::evd_id>);
  STATIC_REQUIRE_FALSE(leads_to_a_context<dat::service_id>);
  DEVIATES("CTX-012");
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

TEST_CASE("an empty or closed handle takes no context and returns none", "[object][CTX-016][IA-031][REQ-004]") {
  NEEDS_FEATURE(windows);
  const auto refused = [](auto& handle) {
    INFO(to_string(handle.kind));
    const dat::error wrong(return_type::invalid_handle, handle_subtype(handle.kind));
    const auto set = handle.set_context(1);
    REQUIRE_FALSE(set);
    CHECK(set.error() == wrong);
    CHECK(set.error().call() == "set_context");
    const auto get = handle.context();
    REQUIRE_FALSE(get);
    CHECK(get.error() == wrong);
    CHECK(get.error().call() == "context");
    SHOWS("CTX-009", "ERR-017", "ERR-032");
  };
  everything all;
  all.each([&](auto& handle) {
    std::remove_reference_t<decltype(handle)> empty;
    refused(empty);
    CHECK(empty.template context<int>() == nullptr);
    CHECK(empty.identity() == nullptr);
    CHECK(empty.owner() == nullptr);
  });
  int session = 0;
  all.each([&](auto& handle) { must(handle.set_context(&session)); });
  must(all.ia.close(dat::close_mode::abrupt));
  all.each([&](auto& handle) {
    // The target of the context of an ended object can still be found, for clean-up.
    if (handle.kind != object_kind::ia) CHECK(handle.template context<int>() == &session);
    refused(handle);
  });
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

TEST_CASE("every call on a handle that is empty or moved from returns invalid_handle", "[object][CTX-016]") {
  NEEDS_FEATURE(windows);
  everything all;
  const auto refused = [](const auto& r) {
    REQUIRE_FALSE(r);
    CHECK(r.error().type() == return_type::invalid_handle);
  };
  /// Makes the calls on a default-constructed handle, and on one that was moved from.
  const auto on_both = []<class H>(H& handle, auto calls) {
    INFO(to_string(handle.kind));
    H empty;
    calls(empty);
    H keeps_object = std::move(handle);
    calls(handle); // NOLINT(bugprone-use-after-move)
    handle = std::move(keeps_object);
  };
  const auto remote = all.ia.address();
  on_both(all.ia, [&](dat::ia& h) {
    refused(h.create_pz());
    refused(h.create_evd<dat::stream::dto>(8));
    refused(h.create_cno());
    refused(h.create_psp(rig::port(), all.evd));
    refused(h.create_psp_any(all.evd));
    refused(h.create_csp(tcp, all.evd));
    refused(h.create_rsp(rig::port(), all.far, all.evd));
    refused(h.create_ep<dat::rc>());
    refused(h.query());
    refused(h.query<dat::provider_attributes>());
    refused(h.address(dat::address_family::ipv4));
    refused(h.close());
    CHECK(h.native_handle() == nullptr);
  });
  on_both(all.pz, [&](dat::pz& h) {
    refused(h.create_ep<dat::rc>(all.evd));
    refused(h.create_srq());
    refused(h.create_rmr());
    refused(h.create_rmr_for_ep());
    refused(h.register_memory(all.memory, all_rights));
    refused(h.close());
  });
  const auto evd = [&](auto& h) {
    refused(h.wait(0us));
    refused(h.dequeue());
    refused(h.wake());
    refused(h.set_unwaitable());
    refused(h.clear_unwaitable());
    refused(h.modify_cno(all.cno));
    refused(h.enable());
    refused(h.disable());
    refused(h.resize(8));
    CHECK(must(h.query()).qlen == 0); // dat_evd_query allows the null evd: EVD-022
    refused(h.close());
    CHECK(h.drain([](auto&) {}) == 0);
  };
  on_both(all.evd, evd);
  on_both(all.evd, [&](dat::evd<all_streams>& h) { refused(h.wait(0us, 1)); });
  auto software = must(all.ia.create_evd<dat::stream::software>(4));
  on_both(software, [&](dat::evd<dat::stream::software>& h) { refused(h.post(1)); });
  on_both(all.completions_only, evd);
  on_both(all.cno, [&](dat::cno& h) {
    refused(h.wait(0us));
    refused(h.modify_agent({}));
    refused(h.query());
    refused(h.close());
    CHECK(h.fd() == -1);
  });
  const auto service_point = [&](auto& h) {
    refused(h.query());
    refused(h.close());
  };
  on_both(all.psp, service_point);
  on_both(all.csp, service_point);
  on_both(all.rsp, service_point);
  on_both(all.lmr, [&](region& h) {
    refused(h.slice(0, 1));
    refused(h.remote(0, 1));
    refused(dat::query(h));
    refused(h.close());
  });
  on_both(all.rmr, [&](dat::rmr& h) {
    refused(h.bind(all.ep, dat::bind{all.lmr, dat::remote_read}));
    refused(h.unbind(all.ep));
    refused(h.query());
    refused(h.close());
  });
  on_both(all.srq, [&](dat::srq& h) {
    refused(h.post(dat::recv{}));
    refused(h.set_low_watermark(1));
    refused(h.resize(8));
    refused(h.query());
    refused(h.close());
  });
  on_both(all.ep, [&](dat::ep<dat::rc>& h) {
    refused(h.post(dat::recv{}));
    refused(h.post(dat::send{}));
    refused(h.connect(remote, rig::port(), patience));
    refused(h.common_connect(remote.with_port(5), patience));
    refused(h.dup_connect(all.far, patience));
    refused(h.disconnect());
    refused(h.reset());
    refused(h.modify({.max_recv_dtos = 5}));
    refused(h.query());
    refused(h.status());
    refused(h.recv_query());
    refused(h.set_watermark(1, 2));
    refused(h.local_address());
    refused(h.remote_address());
    refused(h.close());
    CHECK(h.native_handle() == nullptr);
  });
  on_both(all.request, [&](dat::cr& h) {
    refused(h.query());
    refused(h.accept());
    refused(h.accept(all.far));
    refused(h.reject());
    refused(h.handoff(rig::port()));
  });
  must(all.request.accept(all.far)); // the objects are unchanged
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

// --- several threads at once -----------------------------------------------------------------------------------------

TEST_CASE("several threads create, query and close objects of one adapter at once",
          "[safety][SAFE-010][SAFE-011][SAFE-040][SAFE-044][SAFE-046][IA-145]") {
  NEEDS_FEATURE(windows);
  rig::begin();
  auto ia = rig::open();
  auto shared_pz = must(ia.create_pz());
  auto shared_evd = must(ia.create_evd<all_streams>(64));
  std::array<char, 64> shared_memory{};
  auto shared_lmr = must(shared_pz.register_memory(shared_memory, all_rights));
  const auto service = rig::port();
  const auto shared_psp = must(ia.create_psp(service, shared_evd));
  const auto shared_csp = must(ia.create_csp(tcp, shared_evd));
  auto reserved = must(shared_pz.create_ep<dat::rc>(shared_evd));
  const auto shared_rsp = must(ia.create_rsp(rig::port(), reserved, shared_evd));
  auto connecting = must(shared_pz.create_ep<dat::rc>(shared_evd));
  must(connecting.connect(ia.address(), service, patience));
  const auto request = must(shared_evd.wait_for<dat::connection_request>(patience));
  constexpr int rounds = rig::thread_rounds;
  std::atomic<bool> over = false;
  const std::array ports{rig::port(), rig::port(), rig::port()};
  std::atomic<std::size_t> threads = 0;
  const auto make_and_end = [&](worker& w) {
    int made = 0;
    const auto port = ports[threads++];
    for (int i = 0; i < rounds; ++i) {
      auto pz = ia.create_pz();
      auto evd = ia.create_evd<all_streams>(16);
      auto completions_only = ia.create_evd<dat::stream::dto>(16);
      auto cno = ia.create_cno();
      if (!pz || !evd || !completions_only || !cno) break;
      std::array<char, 64> memory{};
      auto lmr = shared_pz.register_memory(memory, all_rights); // the zone is shared by all threads
      auto ep = shared_pz.create_ep<dat::rc>({.recv = completions_only.assume_value(),
                                              .request = completions_only.assume_value(),
                                              .connect = shared_evd}); // feeds the evd that all threads share
      auto psp = ia.create_psp_any(evd.assume_value());
      if (!ia.create_psp(port, evd.assume_value())) break; // closed before the rsp below takes the port
      auto rmr = shared_pz.create_rmr();
      auto srq = shared_pz.create_srq();
      if (!lmr || !ep || !psp || !rmr || !srq) break;
      auto again = dat::ia::open(ia.name(), rig::manual); // the same adapter, another ia
      auto csp = ia.create_csp(tcp, evd.assume_value());
      auto own = shared_pz.create_ep<dat::rc>(shared_evd);
      if (!again || !csp || !own) break;
      if (!ia.create_rsp(port, own.assume_value(), evd.assume_value()) || !shared_pz.create_rmr_for_ep()) break;
      if (evd.assume_value().wait(0us) || cno.assume_value().wait(0us)) break; // both are empty
      if (!shared_pz.create_ep<dat::rc>(shared_evd, srq.assume_value())) break;
      if (!ep.assume_value().post(dat::recv{lmr.assume_value()})) break;
      if (!evd.assume_value().modify_cno(cno.assume_value())) break;
      if (cno.assume_value().fd() < 0 || cno.assume_value().latest() == evd.assume_value().id()) break;
      // Half of the objects are closed in order, half are only destroyed.
      if (i % 2 == 0 && (!ep.assume_value().close() || !psp.assume_value().close() || !lmr.assume_value().close()))
        break;
      ++made;
    }
    w.check(made == rounds);
  };
  const auto is_whole = [&] {
    const auto region = dat::query(shared_lmr);
    return region && region.assume_value().pz == shared_pz.identity() &&
           region.assume_value().registered_size == shared_memory.size() &&
           region.assume_value().rights == all_rights.value;
  };
  worker asking([&](worker& w) {
    int good = 0, asked = 0;
    while (!over) {
      ++asked;
      good += static_cast<int>(ia.query() && ia.query<dat::provider_attributes>() && !ia.address().is_any() &&
                               shared_psp.query() && shared_csp.query() && shared_rsp.query() && request.query() &&
                               shared_lmr.slice(0, 1) && shared_pz.owner() == ia.identity() && is_whole() &&
                               dat::sync_rdma_read(ia, shared_lmr) && dat::sync_rdma_write(ia, shared_lmr));
    }
    w.check(good == asked);
  });
  { worker one(make_and_end), two(make_and_end), three(make_and_end); }
  over = true;
  asking.join();
  CHECK(shared_pz.owner() == ia.identity());
  SHOWS("PZ-012", "PZ-003", "LMR-027", "LMR-044");
}

TEST_CASE("one evd and one cno serve several threads at once",
          "[safety][SAFE-012][SAFE-031][SAFE-041][SAFE-047][REQ-035][MODEL-027]") {
  rig::begin();
  auto ia = rig::open();
  auto evd = must(ia.create_evd<dat::stream::software>(64));
  auto cno = must(ia.create_cno());
  must(evd.modify_cno(cno));
  constexpr int each = 300;
  std::atomic<int> taken = 0, posted = 0;
  const auto post = [&](worker& w) {
    int mine = 0;
    while (mine < each) {
      if (evd.post(1))
        ++mine;
      else
        std::this_thread::yield(); // the evd is full; another thread takes events
    }
    posted += mine;
    w.check(mine == each);
  };
  const auto take = [&](worker&) {
    while (taken < 2 * each)
      if (evd.dequeue()) ++taken;
  };
  {
    worker p1(post), p2(post), t1(take), t2(take);
    worker notified([&](worker&) {
      while (taken < 2 * each) (void)cno.wait(1ms);
    });
    worker settings([&](worker& w) {
      bool good = true;
      while (taken < 2 * each) {
        good = good && evd.disable() && evd.enable() && evd.set_unwaitable() && evd.clear_unwaitable();
        good = good && evd.modify_cno({}) && evd.modify_cno(cno) && evd.capacity() == 64 && cno.modify_agent({});
        (void)cno.latest();
        (void)cno.agent();
        good = good && evd.query();
      }
      w.check(good);
    });
  }
  CHECK(taken == 2 * each);
  CHECK(posted == taken);
  SHOWS("EVENT-107");
  // The waiting threads are released before cno and evd are closed.
  while (cno.wait(0us)) {
  }
  worker of_cno([&](worker& w) { w.check(cno.wait(patience).has_value()); });
  must(evd.post(2));
  of_cno.join();
  CHECK(evd.dequeue().has_value());
  std::atomic<bool> waiting = false;
  worker waiter([&](worker& w) {
    waiting = true;
    const auto r = evd.wait(patience);
    w.check(!r && r.assume_error().subtype() == dat::return_subtype::evd_unwaitable);
  });
  while (!waiting) std::this_thread::yield();
  must(evd.set_unwaitable());
  waiter.join();
  must(evd.modify_cno({}));
  must(evd.close());
  must(cno.close());
}

// --- the reported attributes of an adapter
// ----------------------------------------------------------------------------

TEST_CASE("any streams can be merged in one evd, as the provider's attribute says", "[IA-124][EVENT-021][EVENT-022]") {
  rig::begin();
  auto ia = rig::open(rig::manual);
  constexpr std::array all{dat::stream::software, dat::stream::connection_requests,
                           dat::stream::dto,      dat::stream::connection,
                           dat::stream::rmr_bind, dat::stream::async};
  const auto told = must(ia.query<dat::provider_attributes>()).evd_stream_merging_supported;
  for (unsigned mask = 1; mask < 1u << all.size(); ++mask) {
    dat::streams merged{};
    for (std::size_t i = 0; i < all.size(); ++i)
      if ((mask >> i & 1u) != 0) merged = merged | all[i];
    INFO(mask);
    CHECK(includes(told, merged));
    // The function that every create_evd<S> calls.
    CHECK(dat::detail::evd_core::create(dat::detail::core_access::of(ia), merged, 8));
  }
}

TEST_CASE("provider attributes describe the library's behaviour", "[ia]") {
  const auto p = must(rig::open(rig::manual).query<dat::provider_attributes>());
  CHECK(p.provider_name == "dat");
  SHOWS("IA-111");
  CHECK(p.provider_version_major == dat::version.major_part);
  CHECK(p.provider_version_minor == dat::version.minor_part);
  SHOWS("IA-112");
  CHECK(p.dapl_version_major == 2);
  CHECK(p.dapl_version_minor == 0);
  SHOWS("IA-113", "VER-001");
  CHECK(256 % p.optimal_buffer_alignment == 0);
  SHOWS("IA-123", "DTO-011");
  CHECK(p.iov_ownership_on_return == dat::iov_ownership::consumer);
  STATIC_REQUIRE(static_cast<int>(dat::iov_ownership::consumer) == 0);
  STATIC_REQUIRE(static_cast<int>(dat::iov_ownership::provider_no_modify) == 1);
  STATIC_REQUIRE(static_cast<int>(dat::iov_ownership::provider_modify) == 2);
  SHOWS("IA-115", "DTO-007");
  CHECK(p.ep_creator == dat::psp_creates_ep::if_asked);
  STATIC_REQUIRE(static_cast<int>(dat::psp_creates_ep::never) == 0);
  STATIC_REQUIRE(static_cast<int>(dat::psp_creates_ep::if_asked) == 1);
  STATIC_REQUIRE(static_cast<int>(dat::psp_creates_ep::always) == 2);
  SHOWS("IA-121", "PSP-015");
  CHECK(p.ha_loadbalancing == dat::ha_load_balancing::none);
  STATIC_REQUIRE(static_cast<int>(dat::ha_load_balancing::none) == 0);
  STATIC_REQUIRE(static_cast<int>(dat::ha_load_balancing::inter_connection) == 1);
  STATIC_REQUIRE(static_cast<int>(dat::ha_load_balancing::intra_connection) == 2);
  SHOWS("IA-137");
  CHECK(p.pz_support == dat::pz_support::unique);
  SHOWS("PZ-014");
  NEEDS_FEATURE(windows);
  CHECK(p.zb_supported);
  SHOWS("IA-101", "LMR-024");
  CHECK(p.completion_flags_supported == dat::completion_flags{true, true, true, true, true});
  SHOWS("IA-117", "DTO-042");
  CHECK_FALSE(p.lmr_sync_req);
  SHOWS("IA-130", "SYNC-002");
  CHECK(p.supports(dat::mem_type::virtual_memory));
  CHECK(p.supports(dat::mem_type::lmr));
  CHECK(p.supports(dat::mem_type::shared_virtual));
  CHECK_FALSE(p.supports(static_cast<dat::mem_type>(3)));
  STATIC_REQUIRE(static_cast<int>(dat::mem_type::virtual_memory) == 0);
  STATIC_REQUIRE(static_cast<int>(dat::mem_type::lmr) == 1);
  STATIC_REQUIRE(static_cast<int>(dat::mem_type::shared_virtual) == 2);
  SHOWS("IA-114", "LMR-012");
  CHECK(p.rmr_supported);
  CHECK(p.rmr_scope_supported == dat::rmr_scope::any);
  SHOWS("IA-134", "RMR-003");
  CHECK(includes(p.evd_stream_merging_supported, all_streams | dat::stream::software));
  CHECK(p.max_private_data_size == dat::detail::max_private_data);
}
