// Binds of memory windows in the fake world: refusals, entries of the request queue, flags, failures.
// SPDX-License-Identifier: BSL-1.0
#include "windows_fake.hpp"

#include <dat/rmr.hpp>

#include <support/worker.hpp>

#include <atomic>
#include <utility>

using namespace unit;
using namespace windows;

TEST_CASE("wait_for takes binds and unbinds as bind_done, and never as send_done", "[rmr][evd]") {
  const clean_world world;
  two t;
  dat::rmr rmr = make(t.b, true);
  const auto no_send = [&] {
    return t.b.evd.wait_for<dat::send_done>(dat::timeout(0)).error().type() == dat::return_type::timeout_expired;
  };
  (void)must(rmr.bind(t.b.ep, dat::bind{t.b.mem, 16, 32, both}.cookie(5)));
  CHECK(no_send());
  const auto bound = must(t.b.evd.wait_for<dat::bind_done>(plenty));
  CHECK(bound.cookie().value() == 5);
  CHECK(bound.operation() == dat::dto_operation::bind);
  CHECK(must(rmr.query()).binding);
  must(rmr.unbind(t.b.ep, dat::unbind{}.cookie(6)));
  CHECK(no_send());
  const auto unbound = must(t.b.evd.wait_for<dat::bind_done>(plenty));
  CHECK(unbound.cookie().value() == 6);
  CHECK(unbound.operation() == dat::dto_operation::unbind);
  CHECK_FALSE(must(rmr.query()).binding);
}

TEST_CASE("an invalid bind is refused and changes nothing", "[rmr]") {
  const clean_world world;
  two t;
  const bool for_ep = GENERATE(false, true);
  dat::rmr rmr = make(t.b, for_ep);
  const window before = must(rmr.bind(t.b.ep, dat::bind{t.b.mem, both}.cookie(1)));
  CHECK(t.b.take() == events{"bind 1"});
  const auto key = must(rmr.query()).binding->key;

  SECTION("empty handles") {
    dat::rmr none;
    local_region nothing;
    is_error(none.bind(t.b.ep, dat::bind{t.b.mem, both}), dat::return_type::invalid_handle,
             dat::return_subtype::handle_rmr);
    is_error(none.unbind(t.b.ep), dat::return_type::invalid_handle, dat::return_subtype::handle_rmr);
    is_error(none.query(), dat::return_type::invalid_handle, dat::return_subtype::handle_rmr);
    is_error(none.close(), dat::return_type::invalid_handle, dat::return_subtype::handle_rmr);
    SHOWS("RMR-011");
    is_error(rmr.bind(t.b.ep, dat::bind{nothing, both}), dat::return_type::invalid_handle,
             dat::return_subtype::handle_lmr);
    is_error(rmr.bind({}, dat::bind{t.b.mem, both}), dat::return_type::invalid_handle, dat::return_subtype::handle_ep);
    is_error(dat::pz().create_rmr(), dat::return_type::invalid_handle, dat::return_subtype::handle_pz);
  }
  SECTION("elements outside") {
    is_error(rmr.bind(t.b.ep, dat::bind{t.b.mem, 1, 256, both}), dat::return_type::invalid_parameter,
             dat::return_subtype::arg3);
    is_error(rmr.bind(t.b.ep, dat::bind{t.b.mem, 257, 0, both}), dat::return_type::invalid_parameter,
             dat::return_subtype::arg3);
    is_error(rmr.bind(t.b.ep, dat::bind{t.b.mem, 3, 0, both}), dat::return_type::invalid_parameter,
             dat::return_subtype::arg3);
    SHOWS("RMR-032");
  }
  SECTION("another zone") {
    dat::pz other = must(t.b.ia.create_pz());
    auto foreign = must(other.register_memory(t.b.memory, local_rights));
    is_error(rmr.bind(t.b.ep, dat::bind{foreign, both}), dat::return_type::protection_violation);
    dat::rmr elsewhere = must(other.create_rmr());
    is_error(elsewhere.bind(t.b.ep, dat::bind{foreign, both}), dat::return_type::protection_violation);
    SHOWS("RMR-029");
  }
  SECTION("another bind is outstanding") {
    must(rmr.unbind(t.b.ep, dat::unbind{}.cookie(2)));
    is_error(rmr.bind(t.b.ep, dat::bind{t.b.own, both}), dat::return_type::invalid_state);
    SHOWS("RMR-035");
    is_error(rmr.close(), dat::return_type::invalid_state);
    CHECK(t.b.take() == events{"unbind 2"});
    must(rmr.bind(t.b.ep, dat::bind{t.b.own, both}.cookie(3)));
    CHECK(t.b.take() == events{"bind 3"});
    return;
  }
  SECTION("before its bind is done, a key gives no access, and later requests wait") {
    fake::hold(t.b.ep.native_handle());
    const window early = must(rmr.bind(t.b.ep, dat::bind{t.b.own, both}.cookie(2)));
    must(t.a.ep.post(dat::recv{}.cookie(3)));
    must(t.b.ep.post(dat::send{}.cookie(4)));
    CHECK(t.b.take().empty());
    CHECK(t.write(early) == refused);
    SHOWS("RMR-022");
    return;
  }
  SECTION("two threads create rmrs") {
    std::atomic<int> made = 0;
    const auto create = [&](support::worker& w) {
      for (int i = 0; i < 20; ++i) {
        w.check((for_ep ? t.b.pz.create_rmr_for_ep() : t.b.pz.create_rmr()).has_value());
        ++made;
      }
    };
    { support::worker one(create), two(create); }
    CHECK(made == 40);
    SHOWS("RMR-006");
  }
  SECTION("the endpoint has no connection, or its evd lacks the stream rmr_bind") {
    auto apart = t.b.new_ep();
    is_error(rmr.bind(apart, dat::bind{t.b.mem, both}), dat::return_type::invalid_state,
             dat::return_subtype::ep_unconnected);
    SHOWS("RMR-025");
    auto plain = must(t.b.ia.create_evd<all_streams>(8));
    auto far = t.a.new_ep();
    auto near = must(t.b.pz.create_ep<dat::rc>(plain));
    must(far.connect(t.b.ia.address(), service, plenty));
    t.settle();
    must(request_on(t.b.evd).accept(near));
    t.settle();
    (void)t.a.take();
    is_error(rmr.bind(near, dat::bind{t.b.mem, both}), dat::return_type::invalid_parameter, dat::return_subtype::arg6);
    SHOWS("EVENT-026");
  }
  SECTION("suppress_notification on an endpoint whose completions all notify") {
    is_error(rmr.bind(t.b.ep, dat::bind{t.b.mem, both}.suppress_notification()), dat::return_type::invalid_parameter,
             dat::return_subtype::arg8);
  }
  SECTION("a verbs call fails") {
    fake::fail(for_ep ? fake::call::ibv_post_send : fake::call::ibv_bind_mw, 1, ENOMEM);
    is_error(rmr.bind(t.b.ep, dat::bind{t.b.own, both}), dat::return_type::insufficient_resources,
             dat::return_subtype::resource_tep);
    SHOWS("RMR-037");
    // The device refuses more requests than the queue has places, and each refused request frees its place.
    dat::rmr unbound = make(t.b, for_ep);
    must(unbound.unbind(t.b.ep));
    CHECK(t.b.take() == events{"unbind 0"});
    for (std::uint32_t i = 0; i <= t.b.ep.attributes().max_request_dtos; ++i) {
      const auto call = for_ep ? fake::call::ibv_post_send : fake::call::ibv_bind_mw;
      fake::fail(call, 1, ENOMEM);
      CHECK(rmr.bind(t.b.ep, dat::bind{t.b.own, both}).error().verb() == fake::name(call));
      fake::fail(fake::call::ibv_post_send, 1, ENOMEM);
      CHECK(unbound.unbind(t.b.ep).error().verb() == "ibv_post_send");
    }
    must(t.b.own.close());
    fake::fail(fake::call::ibv_alloc_mw, 1, ENOMEM);
    is_error(for_ep ? t.b.pz.create_rmr_for_ep() : t.b.pz.create_rmr(), dat::return_type::insufficient_resources,
             dat::return_subtype::resource_memory_region);
    SHOWS("RMR-007");
  }
  REQUIRE(must(rmr.query()).binding);
  CHECK(must(rmr.query()).binding->key == key);
  CHECK(t.write(before) == "written 1");
}

TEST_CASE("a bind of which the device takes only the first half leaves the window unbound", "[rmr]") {
  const clean_world world;
  two t;
  dat::rmr rmr = make(t.b, true);
  (void)must(rmr.bind(t.b.ep, dat::bind{t.b.mem, both}));
  CHECK(t.b.take() == events{"bind 0"});
  static int (*post)(ibv_qp*, ibv_send_wr*, ibv_send_wr**);
  auto& ops = t.b.ep.native_handle()->context->ops;
  post = std::exchange(ops.post_send, [](ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
    *bad = std::exchange(wr->next, nullptr);
    ibv_send_wr* none;
    return post(qp, wr, &none) == 0 ? ENOMEM : EIO;
  });
  is_error(rmr.bind(t.b.ep, dat::bind{t.b.own, both}), dat::return_type::insufficient_resources,
           dat::return_subtype::resource_tep);
  ops.post_send = post;
  CHECK_FALSE(must(rmr.query()).binding);
  must(t.b.mem.close());
  const window now = must(rmr.bind(t.b.ep, dat::bind{t.b.own, both}.cookie(2)));
  CHECK(t.b.take() == events{"bind 2"});
  CHECK(t.write(now) == "written 1");
}

TEST_CASE("a bind uses the request queue, with all flags of requests", "[rmr][RMR-023][RMR-024][DTO-072][DTO-078]") {
  const clean_world world;
  const bool completions_only = GENERATE(false, true);
  const bool for_ep = GENERATE(false, true);
  CAPTURE(completions_only, for_ep);
  two t(completions_only);
  dat::rmr rmr = make(t.b, for_ep);
  const auto connect_with_two_places = [&] {
    t.b.ep = {};
    t.a.make_ep();
    t.settle();
    (void)t.a.take();
    t.b.ep = t.b.new_ep({.max_request_dtos = 2});
    t.connect(t.a.ep, t.b.ep);
  };
  SECTION("a suppressed bind gives no event, and keeps its entry until a later completion is taken") {
    const window w = must(rmr.bind(t.b.ep, dat::bind{t.b.mem, both}.suppress_completion().fence()));
    CHECK(t.b.take().empty());
    CHECK(must(rmr.query()).binding);
    is_error(t.b.mem.close(), dat::return_type::invalid_state, dat::return_subtype::lmr_in_use);
    CHECK(t.write(w) == "written 1");
    must(rmr.unbind(t.b.ep, dat::unbind{}.suppress_completion()));
    must(t.a.ep.post(dat::recv{}));
    must(t.b.ep.post(dat::send{}.cookie(4)));
    CHECK(t.b.take() == events{"sent 4"});
    CHECK_FALSE(must(rmr.query()).binding);
    must(t.b.mem.close());
  }
  SECTION("a wait that finds nothing but a suppressed bind triggers no cno") {
    auto cno = must(t.b.ia.create_cno());
    must(t.b.evd.modify_cno(cno));
    while (cno.wait(0us)) { // takes the trigger that modify_cno caused
    }
    (void)must(rmr.bind(t.b.ep, dat::bind{t.b.mem, both}.suppress_completion()));
    fake::finish();
    is_error(t.b.evd.wait_for<dat::rdma_write_done>(0us), dat::return_type::timeout_expired);
    is_error(cno.wait(0us), dat::return_type::queue_empty);
    CHECK(t.b.take().empty());
    CHECK(must(rmr.query()).binding);
    must(t.b.evd.modify_cno({}));
  }
  SECTION("a fence reaches the device, on binds and unbinds") {
    static unsigned flags;
    static int (*post)(ibv_qp*, ibv_send_wr*, ibv_send_wr**);
    static int (*bind)(ibv_qp*, ibv_mw*, ibv_mw_bind*);
    auto& ops = t.b.ep.native_handle()->context->ops;
    post = std::exchange(ops.post_send, [](ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
      flags = wr->send_flags; // the flags of the first request, behind which the others wait
      return post(qp, wr, bad);
    });
    bind = std::exchange(ops.bind_mw, [](ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* how) {
      flags = how->send_flags;
      return bind(qp, mw, how);
    });
    for (const bool fenced : {false, true, false}) {
      const auto is_so = [&] { return ((flags & IBV_SEND_FENCE) != 0) == fenced; };
      for (int i = 0; i < 2; ++i) { // the first round binds the window, and the second moves it
        auto what = dat::bind{t.b.mem, both};
        if (fenced) what.fence();
        (void)must(rmr.bind(t.b.ep, what));
        CHECK(is_so());
        (void)t.b.take();
      }
      auto nothing = dat::unbind{};
      if (fenced) nothing.fence();
      must(rmr.unbind(t.b.ep, nothing));
      CHECK(is_so());
      (void)t.b.take();
    }
  }
  SECTION("the queue takes as many binds as it has places") {
    connect_with_two_places();
    must(rmr.bind(t.b.ep, dat::bind{t.b.mem, both}.suppress_completion()));
    (void)t.b.take();
    dat::rmr second = make(t.b, for_ep);
    must(second.bind(t.b.ep, dat::bind{t.b.mem, both}.suppress_completion()));
    (void)t.b.take();
    is_error(second.bind(t.b.ep, dat::bind{t.b.mem, both}), dat::return_type::insufficient_resources,
             dat::return_subtype::resource_tep);
    is_error(second.unbind(t.b.ep), dat::return_type::insufficient_resources, dat::return_subtype::resource_tep);
  }
  SECTION("the last place takes an unbind of an unbound window, and no bind that needs two places") {
    connect_with_two_places();
    must(rmr.bind(t.b.ep, dat::bind{t.b.mem, both}));
    (void)t.b.take();
    dat::rmr unbound = make(t.b, for_ep);
    must(t.b.ep.post(dat::rdma_write{must(t.b.mem.slice(0, 0)), dat::remote_segment<char, both.value>{}}));
    if (for_ep) {
      const auto full = rmr.bind(t.b.ep, dat::bind{t.b.mem, both});
      is_error(full, dat::return_type::insufficient_resources, dat::return_subtype::resource_tep);
      CHECK_THAT(full.error().message(), support::contains_text("takes two places"));
      CHECK(full.error().index() == 0);
    }
    must(unbound.unbind(t.b.ep));
    is_error(unbound.unbind(t.b.ep), dat::return_type::invalid_state);
    dat::rmr third = make(t.b, for_ep);
    const auto none = third.unbind(t.b.ep);
    is_error(none, dat::return_type::insufficient_resources, dat::return_subtype::resource_tep);
    CHECK(none.error().index() == 0);
  }
}

TEST_CASE("sends, writes, reads and binds fill the request queue together, and one more of any kind is refused",
          "[rmr][dto]") {
  const clean_world world;
  const bool for_ep = GENERATE(false, true);
  CAPTURE(for_ep);
  two t;
  dat::ep<dat::rc> far = t.a.new_ep();
  dat::ep<dat::rc> near = t.b.new_ep({.max_request_dtos = 6});
  t.connect(far, near);
  auto shared = must(t.a.pz.register_memory(t.a.memory, all_rights));
  const auto target = must(shared.remote(0, 64));
  dat::rmr first = make(t.b, for_ep);
  dat::rmr second = make(t.b, for_ep);
  dat::rmr third = make(t.b, for_ep);
  const auto refuses = [](const auto& r) {
    is_error(r, dat::return_type::insufficient_resources, dat::return_subtype::resource_tep);
  };
  for (int round = 0; round < 2; ++round) {
    CAPTURE(round);
    must(far.post(dat::recv{}.cookie(7), dat::recv{}.cookie(8)));
    fake::hold(near.native_handle());
    must(near.post(dat::send{}.cookie(1)));
    must(near.post(dat::rdma_write{t.b.own, target}.cookie(2)));
    must(near.post(dat::rdma_read{t.b.own, target}.cookie(3)));
    must(first.bind(near, dat::bind{t.b.mem, both}.cookie(4)));
    must(second.bind(near, dat::bind{t.b.mem, both}.cookie(5)));
    must(near.post(dat::send{}.cookie(6)));
    refuses(near.post(dat::send{}));
    refuses(near.post(dat::rdma_write{t.b.own, target}));
    refuses(near.post(dat::rdma_read{t.b.own, target}));
    refuses(third.bind(near, dat::bind{t.b.mem, both}));
    refuses(third.unbind(near));
    SHOWS("EPATTR-010");
    fake::hold(near.native_handle(), false);
    CHECK(t.b.take() == events{"sent 1", "written 2", "read 3", "bind 4", "bind 5", "sent 6"});
    CHECK(t.a.take() == events{"received 7", "received 8"});
    // The next bind of a bound rmr would take two places.
    must(first.unbind(near));
    must(second.unbind(near));
    CHECK(t.b.take().size() == 2);
  }
}

TEST_CASE("binds that are outstanding when the connection ends are flushed in order", "[rmr]") {
  const clean_world world;
  const bool for_ep = GENERATE(false, true);
  const bool completions_only = GENERATE(false, true);
  const bool by_peer = GENERATE(false, true);
  CAPTURE(for_ep, completions_only, by_peer);
  two t(completions_only);
  dat::rmr moved = make(t.b, for_ep);
  dat::rmr fresh = make(t.b, for_ep);
  must(moved.bind(t.b.ep, dat::bind{t.b.mem, both}.cookie(1)));
  CHECK(t.b.take() == events{"bind 1"});
  const auto key = must(moved.query()).binding->key;
  fake::hold(t.b.ep.native_handle());
  must(t.b.ep.post(dat::send{}.cookie(2)));
  must(moved.bind(t.b.ep, dat::bind{t.b.own, both}.cookie(3)));
  must(fresh.bind(t.b.ep, dat::bind{t.b.own, both}.cookie(4)));
  must(t.b.ep.post(dat::send{}.cookie(5)));
  CHECK(t.b.take().empty());
  must((by_peer ? t.a : t.b).ep.disconnect());
  t.settle();
  auto seen = t.b.take();
  CHECK(std::erase(seen, "disconnected") == 1);
  const auto lost = [](std::uint64_t cookie) { return failed(dat::dto_status::flushed, cookie); };
  CHECK(seen == events{lost(2), lost(3), lost(4), lost(5)});
  SHOWS("EPS-064", "DISC-005");
  CHECK(t.b.ep.state() == dat::ep_state::disconnected);
  // No flushed bind has had an effect.
  CHECK(must(moved.query()).binding->key == key);
  CHECK_FALSE(must(fresh.query()).binding);
  must(t.b.own.close());
}

TEST_CASE("a bind that fails leaves the old binding, and breaks the connection", "[rmr][RMR-026][RMR-036][DTO-157]") {
  const clean_world world;
  const bool for_ep = GENERATE(false, true);
  const bool completions_only = GENERATE(false, true);
  CAPTURE(for_ep, completions_only);
  two t(completions_only);
  dat::rmr rmr = make(t.b, for_ep);
  must(rmr.bind(t.b.ep, dat::bind{t.b.mem, both}.cookie(1)));
  CHECK(t.b.take() == events{"bind 1"});
  const auto key = must(rmr.query()).binding->key;
  fake::hold(t.b.ep.native_handle());
  must(rmr.bind(t.b.ep, dat::bind{t.b.own, both}.cookie(2)));
  is_error(t.b.mem.close(), dat::return_type::invalid_state, dat::return_subtype::lmr_in_use);
  is_error(t.b.own.close(), dat::return_type::invalid_state, dat::return_subtype::lmr_in_use);
  // For a window of one endpoint the first half fails and the second is flushed: one event reports both.
  REQUIRE(fake::complete(t.b.ep.native_handle(), {}, for_ep ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_MW_BIND_ERR));
  auto seen = t.b.take();
  REQUIRE_FALSE(seen.empty());
  CHECK(seen.front() == failed(dat::dto_status::rmr_operation_failed, 2));
  t.settle();
  const auto later = t.b.take();
  seen.insert(seen.end(), later.begin(), later.end());
  CHECK(seen.size() == 2); // the failure, and the broken connection
  CHECK(t.b.ep.state() == dat::ep_state::disconnected);
  CHECK(must(rmr.query()).binding->key == key);
  must(t.b.own.close());
  is_error(t.b.mem.close(), dat::return_type::invalid_state, dat::return_subtype::lmr_in_use);

  // On the disconnected endpoint every bind is flushed.
  auto again = must(t.b.pz.register_memory(t.b.inbox, local_rights));
  must(rmr.bind(t.b.ep, dat::bind{again, both}.cookie(3)));
  CHECK(t.b.take() == events{failed(dat::dto_status::flushed, 3)});
  SHOWS("DISC-029", "EPS-065");
  CHECK(must(rmr.query()).binding->key == key);
  // A bind that failed has not used up a key.
  const window first = must(rmr.bind(t.b.ep, dat::bind{again, both}));
  (void)t.b.take();
  const window second = must(rmr.bind(t.b.ep, dat::bind{again, both}));
  (void)t.b.take();
  CHECK(first.rkey() == second.rkey());
  must(rmr.bind(t.b.ep, dat::bind{again, both}.cookie(4)));
  fake::finish();
  int named = 0;
  const auto name = [&]<class E>(const E& event) {
    if constexpr (std::is_same_v<E, dat::dto_failure>) named += event.is_of(rmr) && !event.is_of(dat::rmr());
  };
  while (t.b.completions.drain(name) != 0 || t.b.evd.drain(name) != 0) {
  }
  CHECK(named == 1);
  must(rmr.close());
  must(again.close());
  must(t.b.mem.close());
}

TEST_CASE("two threads may post binds and receives of one endpoint", "[rmr][RMR-038][DTO-088]"
                                                                     "[SAFE-027][SAFE-028]") {
  const clean_world world;
  two t;
  dat::rmr rmr = make(t.b, GENERATE(false, true));
  support::worker receiver([&](support::worker& w) {
    for (int i = 0; i < 50; ++i) w.check(t.b.ep.post(dat::recv{}.cookie(100)).has_value());
  });
  std::size_t bound = 0;
  for (std::uint64_t i = 0; i < 50; ++i) {
    must(rmr.bind(t.b.ep, dat::bind{t.b.mem, i, 8, both}.cookie(i)));
    bound += t.b.take().size();
  }
  receiver.join();
  CHECK(bound == 50);
}
