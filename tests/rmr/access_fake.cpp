// Memory windows in the fake world: the access that a window opens, adapters without windows, and failed calls.
// SPDX-License-Identifier: BSL-1.0
#include "../lmr/reserved_addresses.hpp"
#include "windows_fake.hpp"

#include <dat/rmr.hpp>

#include <unordered_set>
#include <utility>

using namespace unit;
using namespace windows;

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

TEST_CASE("a window allows exactly its rights, and for one endpoint only if it was bound so", "[rmr]") {
  const clean_world world;
  two t;
  dat::ep<dat::rc> far = t.a.new_ep();
  dat::ep<dat::rc> near = t.b.new_ep();
  t.connect(far, near);
  dat::rmr for_one = make(t.b, true);
  dat::rmr for_all = make(t.b, false);
  is_error(dat::rmr().query(), dat::return_type::invalid_handle, dat::return_subtype::handle_rmr);
  SHOWS("RMR-016");

  SECTION("an rmr for one endpoint works on its connection alone") {
    const window w = must(for_one.bind(t.b.ep, dat::bind{t.b.mem, both}));
    CHECK(t.write(w) == "written 1");
    CHECK(t.write(w, far) == refused);
    SHOWS("RMR-002", "RMR-027");
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
    SHOWS("RMR-040");
  }
  SECTION("local rights have no effect, and a window without rights gives no access") {
    const window w = must(for_all.bind(t.b.ep, dat::bind{t.b.mem, both | local_rights}));
    CHECK(t.write(w) == "written 1");
    const auto none = must(for_one.bind(t.b.ep, dat::bind{t.b.mem, dat::no_rights}));
    CHECK(t.write(dat::detail::segment_access::make<window>(dat::detail::segment_access::raw(none))) == refused);
    SHOWS("RMR-031");
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
    SHOWS("RMR-033");
  }
  SECTION("an access beyond the ends of the window fails") {
    window w = must(for_all.bind(t.b.ep, dat::bind{t.b.mem, 8, 16, both}));
    auto raw = dat::detail::segment_access::raw(w);
    raw.address += 1;
    CHECK(t.write(dat::detail::segment_access::make<window>(raw)) == refused);
    SHOWS("RMR-039");
  }
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
  CHECK_FALSE(must(t.b.ia.query<dat::provider_attributes>()).rmr_supported); // so there is no scope
  is_error(dat::pz().create_rmr(), dat::return_type::invalid_handle, dat::return_subtype::handle_pz);
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

TEST_CASE("an RDMA read can have a window as its target", "[rmr][dto]") {
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
  CHECK(dat::detail::raw_of(sink).key == t.b.mem.native_handle()->lkey); // no key that a peer may use
  must(t.b.ep.post(dat::rdma_read{sink, source.remote()}.cookie(4)));
  CHECK(t.b.take() == events{"read 4"});
  SHOWS("DTO-147");
  CHECK(t.b.memory[109] == 0);
  CHECK(std::string_view(t.b.memory.data() + 110, 41) == std::string_view(std::string(40, 'r').c_str(), 41));
  SHOWS("DTO-017", "DTO-142");
  is_error(rmr.read_target<char>(t.b.ep, 10, 41), dat::return_type::invalid_parameter, dat::return_subtype::arg3);
  SHOWS("DTO-143");
  is_error(rmr.read_target<char>(near, 0, 1), dat::return_type::protection_violation,
           dat::return_subtype::protection_write);
  SHOWS("DTO-144");
  is_error(rmr.read_target<char>({}, 0, 1), dat::return_type::invalid_handle, dat::return_subtype::handle_ep);
  CHECK(must(rmr.read_target<char>(t.b.ep, 50, 0)).empty());
  auto source_only = must(t.b.pz.register_memory(t.b.inbox, dat::local_read));
  dat::rmr readable = make(t.b, false);
  must(readable.bind(t.b.ep, dat::bind{source_only, dat::remote_read}));
  (void)t.b.take();
  is_error(readable.read_target<char>(t.b.ep, 0, 1), dat::return_type::privileges_violation, unwritable);
  SHOWS("DTO-145");
}

TEST_CASE("the target of an RDMA read in a window has at most 4 GiB - 1", "[rmr][dto]") {
  const clean_world world(with_large_regions());
  two t;
  constexpr std::size_t most = 0xffffffff;
  const reserved_addresses memory(most + 1);
  const auto region = must(t.b.pz.register_memory(memory.all, local_rights));
  dat::rmr rmr = make(t.b, false);
  must(rmr.bind(t.b.ep, dat::bind{region, both}));
  (void)t.b.take();
  CHECK(must(rmr.read_target<std::byte>(t.b.ep, 0, most)).size_bytes() == most);
  CHECK(must(rmr.read_target<std::byte>(t.b.ep, 1, most)).size_bytes() == most);
  is_error(rmr.read_target<std::byte>(t.b.ep, 0, most + 1), dat::return_type::length_error);
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
