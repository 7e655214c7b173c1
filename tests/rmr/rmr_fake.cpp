// Memory windows in the fake world: the effect of a bind, and how windows end, in every order.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/rmr.hpp>

#include <support/worker.hpp>

#include <unordered_set>
#include <utility>

using namespace unit;

namespace {

constexpr auto with_binds = all_streams | dat::stream::rmr_bind;
constexpr auto lean_with_binds = dat::stream::dto | dat::stream::rmr_bind;
constexpr auto local_rights = dat::local_read | dat::local_write;
using local_region = dat::lmr<char, local_rights.value>;
using window = dat::remote_segment<char, dat::mem_priv::remote_read | dat::mem_priv::remote_write>;
constexpr auto both = dat::remote_read | dat::remote_write;

[[gnu::noinline]] std::string tagged(std::string text, bool invalidating) {
  return invalidating ? text.append(" invalidating") : text;
}
struct describe_binds : describe {
  using describe::operator();
  std::string operator()(const dat::recv_done& e) const {
    return tagged(describe::operator()(e), e.invalidated().has_value());
  }
};

/// One adapter; completions go to a completions-only or a merged evd.
struct place {
  place(std::string_view device, bool lean_one)
      : completions_only(lean_one),
        ia(must(dat::ia::open(device, manual))),
        pz(must(ia.create_pz())),
        evd(must(ia.create_evd<with_binds>(64))),
        completions(must(ia.create_evd<lean_with_binds>(64))),
        mem(must(pz.register_memory(memory, local_rights))),
        own(must(pz.register_memory(inbox, local_rights))) {
    make_ep();
  }
  bool completions_only;
  std::array<char, 256> memory{};
  std::array<char, 64> inbox{};
  dat::ia ia;
  dat::pz pz;
  dat::evd<with_binds> evd;
  dat::evd<lean_with_binds> completions;
  local_region mem;
  local_region own;
  dat::ep<dat::rc> ep;

  dat::ep<dat::rc> new_ep(const dat::ep_attributes& a = {}) {
    if (completions_only) return must(pz.create_ep<dat::rc>(dat::ep_evds{completions, completions, evd}, a));
    return must(pz.create_ep<dat::rc>(evd, a));
  }
  void make_ep() { ep = new_ep(); }
  events take() {
    fake::finish();
    events all;
    const auto keep = [&](const auto& e) { all.push_back(describe_binds{}(e)); };
    while (completions.drain(keep) != 0 || evd.drain(keep) != 0) {
    }
    return all;
  }
};

/// Two adapters: `b` binds, `a` reads and writes.
struct two {
  explicit two(bool completions_only = false)
      : a("fk1", completions_only), b("fk2", completions_only), psp(must(b.ia.create_psp(service, b.evd))) {
    connect(a.ep, b.ep);
  }
  place a;
  place b;
  dat::psp psp;

  void settle() { unit::settle(a.ia, b.ia); }
  void connect(dat::ep<dat::rc>& from, dat::ep<dat::rc>& to) {
    must(from.connect(b.ia.address(), service, plenty));
    settle();
    must(request_on(b.evd).accept(to));
    settle();
    REQUIRE(a.take() == events{"established"});
    REQUIRE(b.take() == events{"established"});
  }
  template <class W>
  std::string write(const W& to, dat::ep<dat::rc>& by) {
    must(by.post(dat::rdma_write{must(a.mem.slice(0, to.size())), to}.cookie(1)));
    const auto seen = a.take();
    REQUIRE_FALSE(seen.empty());
    return seen.front();
  }
  template <class W>
  std::string write(const W& to) {
    return write(to, a.ep);
  }
};

/// A failure in the form of `take`. (This function is out of line: g++ 12 warns about overflows in inlined strings.)
[[gnu::noinline]] std::string failed(dat::dto_status s, std::uint64_t cookie) {
  return std::string(to_string(s)).append(" ").append(std::to_string(cookie));
}
const std::string refused = failed(dat::dto_status::remote_access, 1);

dat::rmr make(place& at, bool for_ep) { return for_ep ? must(at.pz.create_rmr_for_ep()) : must(at.pz.create_rmr()); }

} // namespace

TEST_CASE("a bind opens a part of the region, a new bind moves the window, and an unbind closes it", "[rmr]") {
  const clean_world world;
  const bool for_ep = GENERATE(false, true);
  const bool completions_only = GENERATE(false, true);
  CAPTURE(for_ep, completions_only);
  two t(completions_only);
  dat::rmr rmr = make(t.b, for_ep);
  CHECK_FALSE(must(rmr.query()).binding);
  CHECK(must(rmr.query()).scope == (for_ep ? dat::rmr_scope::ep : dat::rmr_scope::pz));
  SHOWS("RMR-005", "RMR-015");
  CHECK(must(rmr.query()).pz == t.b.pz.identity());
  SHOWS("RMR-014");
  CHECK(rmr.owner() == t.b.ia.identity());
  CHECK(rmr.kind == dat::object_kind::rmr);
  CHECK(std::unordered_set<std::size_t>{std::hash<dat::rmr>{}(rmr)}.size() == 1);
  must(rmr.set_context(std::uint64_t{9}));
  CHECK(must(rmr.context()).value() == 9);
  SHOWS("CTX-001");

  const window first = must(rmr.bind(t.b.ep, dat::bind{t.b.mem, 16, 32, both}.cookie(5)));
  CHECK(first.size() == 32);
  SHOWS("RMR-017");
  bool told = false;
  const auto look = [&]<class E>(const E& e) {
    if constexpr (std::is_same_v<E, dat::bind_done>) {
      CHECK(e.is_of(rmr));
      CHECK_FALSE(e.is_of(dat::rmr()));
      CHECK(e.cookie().value() == 5);
      CHECK(e.operation() == dat::dto_operation::bind);
      CHECK(e.ep() == t.b.ep);
      told = true;
    }
  };
  CHECK_FALSE(must(rmr.query()).binding); // unbound until the completion is taken
  t.b.completions.drain(look);
  t.b.evd.drain(look);
  CHECK(told);
  const auto bound = must(rmr.query()).binding;
  REQUIRE(bound);
  CHECK(bound->address == reinterpret_cast<std::uintptr_t>(t.b.memory.data() + 16));
  CHECK(bound->length == 32);
  CHECK(bound->rights == both.value);
  CHECK(bound->lmr_key == t.b.mem.native_handle()->lkey);
  SHOWS("LMR-019");
  CHECK(rmr.is(bound->key));

  t.a.memory.fill('x');
  CHECK(t.write(first) == "written 1");
  CHECK(t.b.memory[15] == 0);
  CHECK(std::string_view(t.b.memory.data() + 16, 33) == std::string_view(std::string(32, 'x').c_str(), 33));
  SHOWS("RMR-039");

  const window second = must(rmr.bind(t.b.ep, dat::bind{t.b.own, both}.cookie(6)));
  CHECK(t.b.take() == events{"bind 6"});
  CHECK(second.to_wire() != first.to_wire());
  CHECK(must(rmr.query()).binding->key != bound->key);
  SHOWS("RMR-021");
  CHECK(t.write(second) == "written 1");
  CHECK(t.b.inbox[63] == 'x');
  must(t.b.mem.close()); // no window is bound to it now

  must(rmr.unbind(t.b.ep, dat::unbind{}.cookie(7)));
  CHECK(t.b.take() == events{"unbind 7"});
  CHECK_FALSE(must(rmr.query()).binding);
  must(rmr.unbind(t.b.ep, dat::unbind{}.cookie(8))); // the window is not bound
  CHECK(t.b.take() == events{"unbind 8"});
  SHOWS("RMR-034");
  must(t.b.own.close());
  CHECK(t.write(second) == refused);
  SHOWS("RMR-020");
}

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

TEST_CASE("a window allows exactly its rights, and for one endpoint only if it was bound so",
          "[rmr][RMR-002][RMR-016][RMR-027][RMR-031][RMR-033][RMR-039][RMR-040]") {
  const clean_world world;
  two t;
  dat::ep<dat::rc> far = t.a.new_ep();
  dat::ep<dat::rc> near = t.b.new_ep();
  t.connect(far, near);
  dat::rmr for_one = make(t.b, true);
  dat::rmr for_all = make(t.b, false);

  SECTION("an rmr for one endpoint works on its connection alone") {
    const window w = must(for_one.bind(t.b.ep, dat::bind{t.b.mem, both}));
    CHECK(t.write(w) == "written 1");
    CHECK(t.write(w, far) == refused);
  }
  SECTION("an rmr of the zone works on every connection") {
    const window w = must(for_all.bind(t.b.ep, dat::bind{t.b.mem, both}));
    CHECK(t.write(w) == "written 1");
    CHECK(t.write(w, far) == "written 1");
  }
  SECTION("a window for reading refuses writes") {
    const auto w = must(for_all.bind(t.b.ep, dat::bind{t.b.mem, dat::remote_read}));
    must(t.a.ep.post(dat::rdma_read{t.a.mem, w}.cookie(1)));
    CHECK(t.a.take() == events{"read 1"});
    CHECK(t.write(dat::detail::segment_access::make<window>(dat::detail::segment_access::raw(w))) == refused);
  }
  SECTION("local rights have no effect, and a window without rights gives no access") {
    const window w = must(for_all.bind(t.b.ep, dat::bind{t.b.mem, both | local_rights}));
    CHECK(t.write(w) == "written 1");
    const auto none = must(for_one.bind(t.b.ep, dat::bind{t.b.mem, dat::no_rights}));
    CHECK(t.write(dat::detail::segment_access::make<window>(dat::detail::segment_access::raw(none))) == refused);
  }
  SECTION("a zero-based window starts at 0, for one endpoint only") {
    const window w = must(for_one.bind(t.b.ep, dat::bind{t.b.mem, 8, 16, both}.zero_based()));
    CHECK(dat::detail::segment_access::raw(w).address == 0);
    t.a.memory.fill('z');
    CHECK(t.write(w) == "written 1");
    CHECK(t.b.memory[8] == 'z');
    (void)t.b.take();
    REQUIRE(must(for_one.query()).binding);
    CHECK(must(for_one.query()).binding->zero_based);
    is_error(for_all.bind(t.b.ep, dat::bind{t.b.mem, both}.zero_based()), dat::return_type::model_not_supported);
  }
  SECTION("an access beyond the ends of the window fails") {
    window w = must(for_all.bind(t.b.ep, dat::bind{t.b.mem, 8, 16, both}));
    auto raw = dat::detail::segment_access::raw(w);
    raw.address += 1;
    CHECK(t.write(dat::detail::segment_access::make<window>(raw)) == refused);
  }
}

TEST_CASE("an invalid bind is refused and changes nothing",
          "[rmr][RMR-006][RMR-011][RMR-022][RMR-025][RMR-029][RMR-032][RMR-035]") {
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
  }
  SECTION("another zone") {
    dat::pz other = must(t.b.ia.create_pz());
    auto foreign = must(other.register_memory(t.b.memory, local_rights));
    is_error(rmr.bind(t.b.ep, dat::bind{foreign, both}), dat::return_type::protection_violation);
    dat::rmr elsewhere = must(other.create_rmr());
    is_error(elsewhere.bind(t.b.ep, dat::bind{foreign, both}), dat::return_type::protection_violation);
  }
  SECTION("another bind is outstanding") {
    must(rmr.unbind(t.b.ep, dat::unbind{}.cookie(2)));
    is_error(rmr.bind(t.b.ep, dat::bind{t.b.own, both}), dat::return_type::invalid_state);
    is_error(rmr.close(), dat::return_type::invalid_state);
    CHECK(t.b.take() == events{"unbind 2"});
    must(rmr.bind(t.b.ep, dat::bind{t.b.own, both}.cookie(3)));
    CHECK(t.b.take() == events{"bind 3"});
    return;
  }
  SECTION("the endpoint has no connection, or its evd lacks the stream rmr_bind") {
    auto apart = t.b.new_ep();
    is_error(rmr.bind(apart, dat::bind{t.b.mem, both}), dat::return_type::invalid_state,
             dat::return_subtype::ep_unconnected);
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

TEST_CASE("the objects that a window needs may end in any order",
          "[rmr][RMR-009][RMR-010][RMR-012][RMR-013][LMR-033][PZ-005]") {
  const clean_world world;
  const bool for_ep = GENERATE(false, true);
  const bool posted = GENERATE(false, true); // the completion of the bind is not taken
  CAPTURE(for_ep, posted);
  two t;
  dat::rmr rmr = make(t.b, for_ep);
  is_error(t.b.pz.close(), dat::return_type::invalid_state, dat::return_subtype::pz_in_use);
  const window w = must(rmr.bind(t.b.ep, dat::bind{t.b.mem, both}.cookie(1)));
  if (!posted) CHECK(t.b.take() == events{"bind 1"});
  is_error(t.b.mem.close(), dat::return_type::invalid_state, dat::return_subtype::lmr_in_use);

  SECTION("the rmr") {
    rmr = {};
    if (posted) {
      is_error(t.b.mem.close(), dat::return_type::invalid_state, dat::return_subtype::lmr_in_use);
      CHECK(t.b.take() == events{"bind 1"}); // the event comes although the handle is destroyed
    }
    must(t.b.mem.close());
    CHECK(t.write(w) == refused);
  }
  SECTION("the region") {
    t.b.mem = {};
    CHECK_FALSE(must(rmr.query()).binding);
    if (posted) CHECK(t.b.take() == events{"bind 1"});
    CHECK_FALSE(must(rmr.query()).binding);
    const window next = must(rmr.bind(t.b.ep, dat::bind{t.b.own, both}.cookie(2)));
    CHECK(t.b.take() == events{"bind 2"});
    CHECK(t.write(next) == "written 1");
    CHECK(t.write(w) == refused);
  }
  SECTION("the endpoint") {
    must(t.b.ep.close());
    const bool unbound = for_ep || posted;
    CHECK(must(rmr.query()).binding.has_value() != unbound);
    if (unbound) must(t.b.mem.close());
    t.settle();
    (void)t.a.take();
    (void)t.b.take();
    t.b.make_ep();
    t.a.make_ep();
    t.connect(t.a.ep, t.b.ep);
    const window next = must(rmr.bind(t.b.ep, dat::bind{t.b.own, both}.cookie(2)));
    CHECK(t.b.take() == events{"bind 2"});
    CHECK(t.write(next) == "written 1");
  }
  SECTION("the endpoint is reset") {
    must(t.b.ep.disconnect());
    t.settle();
    must(t.b.ep.reset());
    CHECK(must(rmr.query()).binding.has_value() != (for_ep || posted));
    (void)t.b.take();
  }
  SECTION("the endpoint ends, then the ia") {
    must(t.b.ia.close(dat::close_mode::abrupt));
    is_error(rmr.query(), dat::return_type::invalid_handle, dat::return_subtype::handle_rmr);
    is_error(rmr.unbind(t.b.ep), dat::return_type::invalid_handle, dat::return_subtype::handle_rmr);
  }
  SECTION("the zone's handle ends, then all others") {
    t.b.pz = {};
    t.b.mem = {};
    t.b.own = {};
    t.b.ep = {};
    CHECK_FALSE(must(rmr.query()).binding);
  }
}

TEST_CASE("an rmr for one endpoint can be bound to another endpoint when the first has no connection", "[rmr]") {
  const clean_world world;
  two t;
  auto far = t.a.new_ep();
  auto near = t.b.new_ep();
  t.connect(far, near);
  dat::rmr rmr = make(t.b, true);
  must(rmr.bind(t.b.ep, dat::bind{t.b.mem, both}));
  (void)t.b.take();
  is_error(rmr.bind(near, dat::bind{t.b.mem, both}), dat::return_type::invalid_state);
  must(t.b.ep.disconnect());
  t.settle();
  (void)t.a.take();
  (void)t.b.take();
  const window w = must(rmr.bind(near, dat::bind{t.b.mem, both}.cookie(3)));
  CHECK(t.b.take() == events{"bind 3"});
  CHECK(t.write(w, far) == "written 1");
}

TEST_CASE("a send can close a window of the peer, and the receive names the window",
          "[rmr][dto][DTO-100][DTO-101][DTO-102][DTO-105][DTO-106][DTO-107][DTO-115][DTO-116][DTO-117][RMR-020]") {
  const auto statuses = GENERATE(fake::statuses::rxe, fake::statuses::iba);
  const clean_world world({.wc_statuses = statuses});
  const bool completions_only = GENERATE(false, true);
  two t(completions_only);
  dat::rmr rmr = make(t.b, true);
  const window w = must(rmr.bind(t.b.ep, dat::bind{t.b.mem, both}));
  (void)t.b.take();
  must(t.b.ep.post(dat::recv{t.b.own}.cookie(1)));
  must(t.b.ep.post(dat::recv{}.cookie(2)));
  must(t.b.ep.post(dat::recv{}.cookie(3)));
  must(t.a.ep.post(dat::send{}.cookie(8))); // takes the first receive
  must(t.a.ep.post(dat::send_with_invalidate{w}.cookie(9)));
  CHECK(t.a.take() == events{"sent 8", "sent 9"});
  CHECK(t.b.take() == events{"received 1", "received 2 invalidating"});
  CHECK_FALSE(must(rmr.query()).binding);
  must(t.b.mem.close());

  // The window can be bound again, and closed by a message with data.
  const window next = must(rmr.bind(t.b.ep, dat::bind{t.b.own, both}));
  (void)t.b.take();
  CHECK(t.write(next) == "written 1");
  must(t.b.ep.post(dat::recv{t.b.own}.cookie(4)));
  must(t.a.ep.post(dat::send{}.cookie(8)));
  must(t.a.ep.post(dat::send_with_invalidate{must(t.a.mem.slice(0, 8)), next}.solicited().cookie(9)));
  CHECK(t.a.take() == events{"sent 8", "sent 9"});
  CHECK(t.b.take() == events{"received 3", "received 4 invalidating"});
  if (!completions_only) { // an event that a wait takes names the window, too
    const window last = must(rmr.bind(t.b.ep, dat::bind{t.b.own, both}));
    (void)t.b.take();
    must(t.b.ep.post(dat::recv{}.cookie(5)));
    must(t.a.ep.post(dat::send_with_invalidate{last}));
    fake::finish();
    const auto closing = must(t.b.evd.wait_for<dat::recv_done>(plenty));
    REQUIRE(closing.invalidated());
    CHECK(rmr.is(*closing.invalidated()));
    CHECK_FALSE(must(rmr.query()).binding);
    (void)t.a.take();
  }
  CHECK(t.write(next) == refused);
}

TEST_CASE("a message may close a window before the completion of its bind is taken", "[rmr][dto][DTO-105][RMR-020]") {
  const clean_world world;
  two t;
  auto near = t.a.new_ep();
  auto far = must(t.b.pz.create_ep<dat::rc>(dat::ep_evds{t.b.evd, t.b.completions, t.b.evd}));
  t.connect(near, far);
  dat::rmr rmr = make(t.b, true);
  for (std::uint64_t round = 0; round < 3; ++round) {
    must(far.post(dat::recv{t.b.own}.cookie(1)));
    const window w = must(rmr.bind(far, dat::bind{t.b.mem, both}.cookie(2)));
    must(near.post(dat::send_with_invalidate{w}.cookie(9)));
    CHECK(t.a.take() == events{"sent 9"});
    events first;
    while (t.b.evd.drain([&](const auto& e) { first.push_back(describe_binds{}(e)); }) != 0) {
    }
    CHECK(first == events{"received 1 invalidating"});
    is_error(rmr.bind(far, dat::bind{t.b.mem, both}), dat::return_type::invalid_state); // the first bind is outstanding
    CHECK(t.b.take() == events{"bind 2"});
    CHECK_FALSE(must(rmr.query()).binding);
  }
  must(t.b.mem.close()); // nothing is bound to it
  CHECK(far.state() == dat::ep_state::connected);
}

TEST_CASE("an invalid key in a send with invalidate fails at the receiver", "[rmr][dto][COMP-042]") {
  const clean_world world;
  two t;
  auto open_region = must(t.b.pz.register_memory(t.b.inbox, local_rights | dat::remote_write));
  must(t.b.ep.post(dat::recv{}.cookie(1)));
  must(t.a.ep.post(dat::send_with_invalidate{open_region.remote()}.cookie(2)));
  CHECK(t.a.take().front() == "sent 2");
  CHECK(t.b.take().front() == failed(dat::dto_status::local_ep, 1));
  t.settle();
  CHECK(t.b.ep.state() == dat::ep_state::disconnected);
}

TEST_CASE("an adapter without windows refuses rmrs and registers regions without window access",
          "[rmr][RMR-003][RMR-004][RMR-007][DTO-103]"
          "[ERR-021]") {
  fake::world w;
  for (auto& d : w.devices) {
    d.attr = fake::rxe_attr();
    d.attr->device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN;
  }
  const clean_world world(w);
  two t;
  is_error(t.b.pz.create_rmr(), dat::return_type::model_not_supported);
  is_error(t.b.pz.create_rmr_for_ep(), dat::return_type::model_not_supported);
  const window none;
  is_error(t.a.ep.post(dat::send_with_invalidate{none}), dat::return_type::model_not_supported);
  is_error(t.a.ep.post(dat::send{}, dat::send_with_invalidate{none}), dat::return_type::model_not_supported);
  dat::batch<2> b;
  REQUIRE(b.push_back(dat::send_with_invalidate{none}));
  is_error(t.a.ep.post(b), dat::return_type::model_not_supported);
}

TEST_CASE("read-only memory is registered without window access", "[rmr][lmr][RMR-030]") {
  const clean_world world;
  two t;
  fail_registration(EFAULT); // the kernel's errno for a window over memory that the process may not write
  auto mem = must(t.b.pz.register_memory(t.b.memory, dat::local_read));
  dat::rmr rmr = make(t.b, false);
  is_error(rmr.bind(t.b.ep, dat::bind{mem, dat::remote_read}), dat::return_type::privileges_violation,
           dat::return_subtype::privileges_write);
  SHOWS("RMR-037");
}

TEST_CASE("an RDMA read can have a window as its target",
          "[rmr][dto][DTO-017][DTO-142][DTO-143][DTO-144][DTO-145][DTO-146][DTO-147]") {
  const clean_world world;
  two t;
  auto far = t.a.new_ep();
  auto near = t.b.new_ep();
  t.connect(far, near);
  auto source = must(t.a.pz.register_memory(t.a.inbox, dat::local_read | dat::remote_read));
  t.a.inbox.fill('r');
  dat::rmr rmr = make(t.b, true);
  const auto unwritable = dat::return_subtype::privileges_write;
  is_error(rmr.read_target<char>(t.b.ep, 0, 1), dat::return_type::privileges_violation, unwritable);
  must(rmr.bind(t.b.ep, dat::bind{t.b.mem, 100, 50, dat::remote_write}));
  (void)t.b.take();
  const auto sink = must(rmr.read_target<char>(t.b.ep, 10, 40));
  must(t.b.ep.post(dat::rdma_read{sink, source.remote()}.cookie(4)));
  CHECK(t.b.take() == events{"read 4"});
  CHECK(t.b.memory[109] == 0);
  CHECK(std::string_view(t.b.memory.data() + 110, 41) == std::string_view(std::string(40, 'r').c_str(), 41));
  is_error(rmr.read_target<char>(t.b.ep, 10, 41), dat::return_type::invalid_parameter, dat::return_subtype::arg3);
  is_error(rmr.read_target<char>(near, 0, 1), dat::return_type::protection_violation,
           dat::return_subtype::protection_write);
  is_error(rmr.read_target<char>({}, 0, 1), dat::return_type::invalid_handle, dat::return_subtype::handle_ep);
  CHECK(must(rmr.read_target<char>(t.b.ep, 50, 0)).empty());
  auto source_only = must(t.b.pz.register_memory(t.b.inbox, dat::local_read));
  dat::rmr readable = make(t.b, false);
  must(readable.bind(t.b.ep, dat::bind{source_only, dat::remote_read}));
  (void)t.b.take();
  is_error(readable.read_target<char>(t.b.ep, 0, 1), dat::return_type::privileges_violation, unwritable);
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

TEST_CASE("every call of windows fails once in turn, and the next call works", "[rmr][sweep][RMR-007]") {
  const auto flow = [](const fake::injected& i) {
    INFO(i.text());
    const auto again = [&](auto call) {
      auto r = call();
      if (!r) {
        REQUIRE(i.hit());
        CHECK(r.error().verb() == fake::name(i.which));
        r = call();
      }
      return must(std::move(r));
    };
    two t;
    for (const bool for_ep : {false, true}) {
      dat::rmr rmr = again([&] { return for_ep ? t.b.pz.create_rmr_for_ep() : t.b.pz.create_rmr(); });
      again([&] { return rmr.bind(t.b.ep, dat::bind{t.b.mem, both}.cookie(1)); });
      CHECK(t.b.take() == events{"bind 1"});
      const window w = again([&] { return rmr.bind(t.b.ep, dat::bind{t.b.own, both}.cookie(2)); });
      CHECK(t.b.take() == events{"bind 2"});
      t.a.memory.fill('s');
      CHECK(t.write(w) == "written 1");
      again([&] { return rmr.unbind(t.b.ep, dat::unbind{}.cookie(3)); });
      CHECK(t.b.take() == events{"unbind 3"});
      again([&] { return rmr.unbind(t.b.ep, dat::unbind{}.cookie(4)); });
      CHECK(t.b.take() == events{"unbind 4"});
    }
  };
  fake::sweep_options only;
  for (const auto c : fake::calls())
    if (c != fake::call::ibv_alloc_mw && c != fake::call::ibv_bind_mw) only.skip.push_back(c);
  const auto result = fake::for_each_failure(flow, only);
  CHECK(result.runs >= 5);
  CHECK(result.not_hit.empty());
  CHECK(result.dirty.empty());
}
