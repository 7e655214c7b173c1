// The places of binds in the request queue and in the table of windows: when they are taken, and when they are free
// again. SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/rmr.hpp>

namespace rmr_places_tests {

using namespace unit;
using dat::return_subtype;
using dat::return_type;

namespace {

constexpr auto with_binds = all_streams | dat::stream::rmr_bind;
constexpr auto both = dat::remote_read | dat::remote_write;

/// A connected pair whose second side binds.
struct binders {
  explicit binders(const dat::ep_attributes& attributes = {}) {
    a.make_ep(attributes);
    ep = must(b.pz.create_ep<dat::rc>(evd, attributes));
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle(a, b);
    must(request_on(b.evd).accept(ep));
    settle(a, b);
    REQUIRE(a.take() == events{"established"});
    REQUIRE(take() == events{"established"});
  }
  end a{"fk1"};
  end b{"fk2"};
  dat::evd<with_binds> evd = must(b.ia.create_evd<with_binds>(64));
  dat::psp psp = must(b.ia.create_psp(service, b.evd));
  dat::ep<dat::rc> ep;
  events take() { return unit::take(evd); }
  auto whole() { return dat::bind{b.mem, both}; }
};

/// The queue has no room for the call: the error names the first request.
template <class T>
void is_full(const dat::expected<T>& r) {
  is_error(r, return_type::insufficient_resources, return_subtype::resource_tep);
  CHECK(r.error().index() == 0);
}

} // namespace

TEST_CASE("a bind and an unbind take the last place of the request queue, and one more is refused", "[rmr]") {
  const clean_world world;
  const bool for_ep = GENERATE(false, true);
  CAPTURE(for_ep);
  binders t({.max_request_dtos = 4});
  std::vector<dat::rmr> windows;
  for (int i = 0; i < 5; ++i) windows.push_back(for_ep ? must(t.b.pz.create_rmr_for_ep()) : must(t.b.pz.create_rmr()));
  SECTION("binds") {
    fake::hold(t.ep.native_handle());
    for (int i = 0; i < 4; ++i) must(windows[static_cast<std::size_t>(i)].bind(t.ep, t.whole().cookie(i)));
    is_full(windows[4].bind(t.ep, t.whole()));
    is_full(windows[4].unbind(t.ep));
    fake::hold(t.ep.native_handle(), false);
    CHECK(t.take() == events{"bind 0", "bind 1", "bind 2", "bind 3"});
    must(windows[4].bind(t.ep, t.whole().cookie(4)));
    CHECK(t.take() == events{"bind 4"});
  }
  SECTION("unbinds of windows that are not bound") {
    fake::hold(t.ep.native_handle());
    for (int i = 0; i < 4; ++i) must(windows[static_cast<std::size_t>(i)].unbind(t.ep, dat::unbind{}.cookie(i)));
    is_full(windows[4].unbind(t.ep));
    fake::hold(t.ep.native_handle(), false);
    CHECK(t.take() == events{"unbind 0", "unbind 1", "unbind 2", "unbind 3"});
  }
  SECTION("the device refuses") {
    for (int i = 0; i < 9; ++i) {
      fake::fail(for_ep ? fake::call::ibv_post_send : fake::call::ibv_bind_mw, 1, ENOMEM);
      const auto r = windows[0].bind(t.ep, t.whole());
      is_error(r, return_type::insufficient_resources, return_subtype::resource_tep);
      CHECK(r.error().verb() == (for_ep ? "ibv_post_send" : "ibv_bind_mw"));
      CHECK(r.error().sys_errno() == ENOMEM);
      fake::fail(fake::call::ibv_post_send, 1, ENOMEM);
      const auto u = windows[1].unbind(t.ep);
      is_error(u, return_type::insufficient_resources, return_subtype::resource_tep);
      CHECK(u.error().verb() == "ibv_post_send");
    }
    fake::hold(t.ep.native_handle());
    for (int i = 0; i < 4; ++i) must(windows[static_cast<std::size_t>(i)].bind(t.ep, t.whole().cookie(i)));
    fake::hold(t.ep.native_handle(), false);
    CHECK(t.take().size() == 4);
  }
}

TEST_CASE("a bind of a bound window of one endpoint takes two places, and the refusal says so", "[rmr]") {
  const clean_world world;
  binders t({.max_request_dtos = 4});
  auto window = must(t.b.pz.create_rmr_for_ep());
  must(window.bind(t.ep, t.whole()));
  CHECK(t.take() == events{"bind 0"});
  fake::hold(t.ep.native_handle());
  const auto target = t.a.mem.remote();
  const dat::rdma_write w{t.b.at(0, 1), target};
  const std::size_t others = GENERATE(2u, 3u, 4u);
  for (std::size_t i = 0; i < others; ++i) must(t.ep.post(w));
  const auto again = window.bind(t.ep, t.whole().cookie(1));
  if (others == 2) {
    CHECK(again.has_value());
    is_full(t.ep.post(w));
  } else {
    is_full(again);
    CHECK_THAT(std::string(again.error().hint()), support::contains_text("takes two places of max_request_dtos"));
    const auto ended = window.unbind(t.ep, dat::unbind{}.cookie(2));
    CHECK(ended.has_value() == (others == 3)); // an unbind takes one place
    if (!ended) {
      is_full(ended);
      CHECK_THAT(std::string(ended.error().hint()), support::contains_text("The request queue is full"));
    }
  }
  fake::hold(t.ep.native_handle(), false);
  (void)t.take();
}

TEST_CASE("a bind fails without harm when its region has ended meanwhile", "[rmr]") {
  const clean_world world;
  const bool for_ep = GENERATE(false, true);
  CAPTURE(for_ep);
  binders t;
  std::array<char, 64> memory{};
  auto mem = must(t.b.pz.register_memory(memory, all_rights));
  auto window = for_ep ? must(t.b.pz.create_rmr_for_ep()) : must(t.b.pz.create_rmr());
  fake::hold(t.ep.native_handle());
  must(window.bind(t.ep, dat::bind{mem, both}.cookie(1)));
  mem = {};
  CHECK(window.native_handle() == nullptr);
  REQUIRE(fake::complete(t.ep.native_handle(), {}, IBV_WC_MW_BIND_ERR));
  settle(t.a, t.b);
  const auto seen = t.take();
  REQUIRE_FALSE(seen.empty());
  CHECK(seen.front() == std::string(to_string(dat::dto_status::rmr_operation_failed)) + " 1");
  CHECK_FALSE(must(window.query()).binding);
  must(window.close());
}

TEST_CASE("a failed bind leaves the window the key that it had before", "[rmr]") {
  const clean_world world;
  const bool for_ep = GENERATE(false, true);
  CAPTURE(for_ep);
  binders t;
  auto window = for_ep ? must(t.b.pz.create_rmr_for_ep()) : must(t.b.pz.create_rmr());
  must(window.bind(t.ep, t.whole()));
  CHECK(t.take() == events{"bind 0"});
  const auto key = window.native_handle()->rkey;
  CHECK(must(window.query()).binding->key == key);
  fake::hold(t.ep.native_handle());
  const auto moved = must(window.bind(t.ep, t.whole().cookie(1)));
  CHECK(moved.rkey() != key);
  fake::break_qp(t.ep.native_handle());
  settle(t.a, t.b);
  (void)t.take();
  CHECK(window.native_handle()->rkey == key);
  CHECK(must(window.query()).binding->key == key);
}

TEST_CASE("a message of a list closes a window, and the device gets its key", "[rmr]") {
  const clean_world world;
  binders t;
  auto window = must(t.b.pz.create_rmr_for_ep());
  const auto open = must(window.bind(t.ep, t.whole()));
  CHECK(t.take() == events{"bind 0"});
  must(t.ep.post(dat::recv{t.b.at(0, 64)}.cookie(1)));
  std::copy_n("abcdef", 6, t.a.memory.begin());
  must(t.a.ep.post(dat::send_with_invalidate{dat::iov{t.a.at(4, 2), t.a.at(0, 2)}, open}.cookie(2)));
  CHECK(t.a.take() == events{"sent 2"});
  fake::finish();
  const auto got = must(t.evd.wait_for<dat::recv_done>(0s));
  CHECK(got.invalidated() == std::optional(open.rkey()));
  CHECK(got.bytes() == 4);
  CHECK(window.is(*got.invalidated()));
  CHECK(std::string(t.b.memory.data(), 4) == "efab");
  CHECK_FALSE(must(window.query()).binding);
}

TEST_CASE("windows are found by their keys, whichever of them ends first", "[rmr]") {
  const clean_world world;
  binders t;
  std::vector<dat::rmr> windows;
  for (int i = 0; i < 600; ++i) windows.push_back(must(t.b.pz.create_rmr_for_ep())); // more than the table has chains
  for (const std::size_t step : {7u, 3u, 2u}) {
    for (std::size_t i = 0; i < windows.size(); i += step) windows[i] = {};
    for (std::size_t i = 0; i < windows.size(); i += 50) {
      if (!windows[i]) windows[i] = must(t.b.pz.create_rmr_for_ep());
      const auto open = must(windows[i].bind(t.ep, t.whole().cookie(i)));
      CHECK(t.take() == events{"bind " + std::to_string(i)});
      CHECK(must(windows[i].query()).binding->key == open.rkey());
      CHECK(windows[i].is(open.rkey()));
      CHECK_FALSE(windows[i].is(open.rkey() + 0x100));
    }
  }
}

TEST_CASE("a window of one endpoint is free for another endpoint as soon as its binding has ended", "[rmr]") {
  const clean_world world;
  binders t;
  auto far = must(t.a.pz.create_ep<dat::rc>(t.a.evd));
  auto near = must(t.b.pz.create_ep<dat::rc>(t.evd));
  must(far.connect(t.b.ia.address(), service, plenty));
  settle(t.a, t.b);
  must(request_on(t.b.evd).accept(near));
  settle(t.a, t.b);
  (void)t.take(), (void)t.a.take();
  std::array<char, 64> memory{};
  auto mem = must(t.b.pz.register_memory(memory, all_rights));
  auto window = must(t.b.pz.create_rmr_for_ep());
  const auto open = must(window.bind(t.ep, dat::bind{mem, both}.cookie(1)));
  CHECK(t.take() == events{"bind 1"});
  is_error(window.bind(near, t.whole()), return_type::invalid_state);
  SECTION("by the end of the region") {
    mem = {};
    CHECK(t.take().empty());
  }
  SECTION("by a message of the peer") {
    must(t.ep.post(dat::recv{}));
    must(t.a.ep.post(dat::send_with_invalidate{open}));
    CHECK(t.take().size() == 1);
  }
  SECTION("by an unbind") {
    must(window.unbind(t.ep, dat::unbind{}.cookie(2)));
    CHECK(t.take() == events{"unbind 2"});
  }
  must(window.bind(near, t.whole().cookie(3)));
  CHECK(t.take() == events{"bind 3"});
}

TEST_CASE("a bind of two requests that fails is over when the second one is flushed", "[rmr]") {
  const fake::with manner{fake::current(), [](fake::manners& m) { m.late_flush = true; }};
  const clean_world world;
  binders t;
  auto window = must(t.b.pz.create_rmr_for_ep());
  must(window.bind(t.ep, t.whole()));
  CHECK(t.take() == events{"bind 0"});
  fake::hold(t.ep.native_handle());
  must(window.bind(t.ep, t.whole().cookie(1)));
  fake::hold_late();
  REQUIRE(fake::complete(t.ep.native_handle(), {}, IBV_WC_LOC_QP_OP_ERR));
  events seen;
  const auto keep = [&](const auto& e) { seen.push_back(describe{}(e)); };
  while (t.evd.drain(keep) != 0) {
  }
  REQUIRE_FALSE(seen.empty());
  CHECK(seen.front() == std::string(to_string(dat::dto_status::rmr_operation_failed)) + " 1");
  is_error(window.close(), return_type::invalid_state); // the second request is still the device's
  settle(t.a, t.b);
  seen.clear();
  while (t.evd.drain(keep) != 0) {
  }
  CHECK(std::count_if(seen.begin(), seen.end(), [](const auto& e) { return e.ends_with(" 1"); }) == 0);
  must(window.close());
}

TEST_CASE("an adapter with windows of one scope creates those, and refuses the others", "[rmr]") {
  const unsigned has = GENERATE(unsigned{IBV_DEVICE_MEM_WINDOW}, unsigned{IBV_DEVICE_MEM_WINDOW_TYPE_2B});
  fake::world w;
  auto attr = fake::rxe_attr();
  constexpr unsigned all = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  attr.device_cap_flags = (attr.device_cap_flags & ~all) | has;
  for (auto& d : w.devices) d.attr = attr;
  const clean_world world(w);
  end e;
  const auto for_all = e.pz.create_rmr();
  const auto for_one = e.pz.create_rmr_for_ep();
  CHECK(for_all.has_value() == (has == IBV_DEVICE_MEM_WINDOW));
  CHECK(for_one.has_value() == (has != IBV_DEVICE_MEM_WINDOW));
  const dat::error why = for_all ? for_one.error() : for_all.error();
  CHECK(why.type() == return_type::model_not_supported);
  CHECK(why.call() == (for_all ? "pz.create_rmr_for_ep" : "pz.create_rmr"));
  CHECK_THAT(why.message(), support::contains_text("no memory windows of that scope"));
}

TEST_CASE("an error of a window names the part of its key that stays", "[rmr]") {
  const clean_world world;
  binders t;
  auto window = must(t.b.pz.create_rmr());
  std::array<char, 64> memory{};
  auto zone = must(t.b.ia.create_pz());
  const auto foreign = must(zone.register_memory(memory, all_rights));
  const auto r = window.bind(t.ep, dat::bind{foreign, both});
  is_error(r, return_type::protection_violation);
  CHECK(r.error().object_id() == window.native_handle()->rkey >> 8);
}

TEST_CASE("an empty rmr or zone has no object of verbs", "[rmr]") {
  CHECK(dat::rmr().native_handle() == nullptr);
  CHECK_FALSE(dat::rmr().is(0));
  CHECK(dat::pz().native_handle() == nullptr);
  const clean_world world;
  end e;
  auto window = must(e.pz.create_rmr());
  REQUIRE(window.native_handle());
  CHECK(window.native_handle()->pd == e.pz.native_handle());
  CHECK(window.native_handle()->type == IBV_MW_TYPE_1);
  const auto other = must(e.pz.create_rmr_for_ep());
  CHECK(other.native_handle()->type == IBV_MW_TYPE_2);
  must(window.close());
  CHECK(window.native_handle() == nullptr);
}

} // namespace rmr_places_tests
