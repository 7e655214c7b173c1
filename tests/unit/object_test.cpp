// What all objects have: kind, identity, and the consumer's context.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/ib_query.hpp>
#include <dat/multicast.hpp>
#include <dat/pool.hpp>
#include <dat/registry.hpp>
#include <dat/srq_attributes.hpp>
#include <dat/ud.hpp>

#include <support/worker.hpp>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <unordered_set>

using namespace unit;
using dat::object_kind;
using dat::return_type;
using support::worker;

namespace {

/// One connected pair, and one of each kind of object besides.
struct everything {
  everything() {
    fake::reset();
    ia = must(dat::ia::open("fk1", manual));
    pz = must(ia.create_pz());
    evd = must(ia.create_evd<all_streams>(64));
    lean = must(ia.create_evd<dat::dto>(64));
    cno = must(ia.create_cno());
    psp = must(ia.create_psp(7471, evd));
    lmr = must(pz.register_memory(memory, all_rights));
    ep = must(pz.create_ep<dat::rc>(evd));
    far = must(pz.create_ep<dat::rc>(evd));
    must(ep.connect(ia.address(), 7471, plenty));
    request = must(evd.wait_for<dat::connection_request>(plenty));
  }
  /// Calls f with each.
  template <class F>
  void each(F f) {
    f(ia), f(pz), f(evd), f(lean), f(cno), f(psp), f(lmr), f(ep), f(far), f(request);
  }
  std::array<char, 64> memory{};
  dat::ia ia;
  dat::pz pz;
  dat::evd<all_streams> evd;
  dat::evd<dat::dto> lean;
  dat::cno cno;
  dat::psp psp;
  region lmr;
  dat::ep<dat::rc> ep, far;
  dat::cr request;
};

enum class color { red = 7 };

} // namespace

TEST_CASE("every object carries one context, none at first, that moves with its handle",
          "[object][CTX-001][CTX-002][CTX-003][CTX-004][CTX-008][CTX-010][MODEL-006]") {
  everything all;
  std::uint64_t next = 1;
  all.each([](auto& handle) { CHECK(handle.context().value() == 0); });
  all.each([&](auto& handle) { must(handle.set_context(next++)); });
  next = 1;
  all.each([&](auto& handle) { CHECK(handle.context().value() == next++); });

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
    CHECK(handle.context().template as<color>() == color::red);
    must(handle.set_context(~0ull));
    CHECK(handle.context().value() == ~0ull);
    must(handle.set_context({}));
    CHECK(handle.context().value() == 0);
  });
}

TEST_CASE("an endpoint's context outlives its connections, and its events lead to it", "[object][ep]"
                                                                                       "[CTX-012]") {
  everything all;
  int session = 0;
  must(all.ep.set_context(&session));
  must(all.request.accept(all.far));
  auto moved = std::move(all.ep); // the events do not mind
  const auto up = must(all.evd.wait_for<dat::established>(moved, plenty));
  CHECK(up.ep().context<int>() == &session);
  must(moved.post(dat::send{all.lmr}));
  must(all.far.post(dat::recv{all.lmr}));
  CHECK(must(all.evd.wait_for<dat::sent>(plenty)).ep().context<int>() == &session);
  CHECK(must(all.evd.wait_for<dat::received>(plenty)).ep().context<int>() == nullptr); // the other endpoint's
  must(moved.disconnect());
  CHECK(must(all.evd.wait_for<dat::disconnected>(moved, plenty)).ep().context<int>() == &session);
  must(moved.reset());
  CHECK(moved.context<int>() == &session);
}

TEST_CASE("a request that was handed off, and an endpoint that dat made, begin without a context",
          "[object][CTX-011]") {
  everything all;
  int mine = 0;
  must(all.request.set_context(&mine));
  auto other = must(all.ia.create_psp(7472, all.evd));
  auto making = must(all.ia.create_psp(7473, all.evd, dat::psp_flags::provider));
  must(all.request.handoff(7472));
  auto request = must(all.evd.wait_for<dat::connection_request>(plenty));
  CHECK(request.context<int>() == nullptr);
  must(request.set_context(&mine));
  // An accepted request is no more; its endpoint's context is the endpoint's own.
  must(request.accept(all.far));
  CHECK(request.context<int>() == nullptr);
  CHECK(all.far.context<int>() == nullptr);
  must(all.far.set_context(&mine));
  (void)must(all.evd.wait_for<dat::established>(all.ep, plenty));
  (void)must(all.evd.wait_for<dat::established>(all.far, plenty));
  must(all.far.disconnect());
  (void)must(all.evd.wait_for<dat::disconnected>(all.far, plenty));
  must(all.far.reset());
  CHECK(all.far.context<int>() == &mine);

  auto third = must(all.pz.create_ep<dat::rc>(all.evd));
  must(third.connect(all.ia.address(), 7473, plenty));
  auto brought = must(all.evd.wait_for<dat::connection_request>(plenty));
  REQUIRE(brought.ep());
  CHECK(brought.ep().context<int>() == nullptr);
}

TEST_CASE("an empty or closed handle takes no context and shows none", "[object][CTX-016]") {
  const auto refused = [](auto& handle) {
    INFO(to_string(handle.kind));
    const auto r = handle.set_context(1);
    CHECK(!r);
    CHECK(r.error() == dat::error(return_type::invalid_handle, handle_subtype(handle.kind)));
    CHECK(r.error().call() == "set_context");
  };
  everything all;
  all.each([&](auto& handle) {
    std::remove_reference_t<decltype(handle)> empty;
    refused(empty);
    CHECK(empty.context().value() == 0);
    CHECK(empty.identity() == nullptr);
    CHECK(empty.owner() == nullptr);
  });
  all.each([](auto& handle) { must(handle.set_context(5)); });
  must(all.ia.close(dat::close_flags::abrupt));
  all.each([&](auto& handle) {
    // What is left of an object still says what the consumer has to clean up; nothing new is taken.
    if (handle.kind != object_kind::ia) CHECK(handle.context().value() == 5);
    refused(handle);
  });
}

TEST_CASE("every handle knows what it is, by DAT's number", "[object][CTX-013][CTX-015]"
                                                            "[SAFE-002][CTX-014]") {
  STATIC_REQUIRE(dat::cr::kind == object_kind::cr);
  STATIC_REQUIRE(dat::ep<dat::rc>::kind == object_kind::ep);
  STATIC_REQUIRE(dat::ep_ref::kind == object_kind::ep);
  STATIC_REQUIRE(dat::evd<dat::dto>::kind == object_kind::evd);
  STATIC_REQUIRE(dat::ia::kind == object_kind::ia);
  STATIC_REQUIRE(region::kind == object_kind::lmr);
  STATIC_REQUIRE(dat::psp::kind == object_kind::psp);
  STATIC_REQUIRE(dat::pz::kind == object_kind::pz);
  STATIC_REQUIRE(dat::cno::kind == object_kind::cno);
  const object_kind in_order[] = {object_kind::cr,  object_kind::ep,  object_kind::evd, object_kind::ia,
                                  object_kind::lmr, object_kind::psp, object_kind::pz,  object_kind::rmr,
                                  object_kind::rsp, object_kind::cno, object_kind::srq, object_kind::csp};
  std::uint32_t number = 0;
  for (const auto kind : in_order) CHECK(dat_code(kind) == number++);
  CHECK_FALSE(dat_code(object_kind::none));
  CHECK_FALSE(dat_code(static_cast<object_kind>(77)));
}

TEST_CASE("handles of one object are equal and hash alike, those of others are not", "[object][IA-002]") {
  everything all;
  std::unordered_set<const void*> different;
  all.each([&](auto& handle) {
    using handle_type = std::remove_reference_t<decltype(handle)>;
    INFO(to_string(handle.kind));
    CHECK(different.insert(handle.identity()).second);
    CHECK(handle.owner() == all.ia.identity()); // an ia is its own
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
  const auto second = must(dat::ia::open("fk1", manual)); // the same adapter, another ia
  CHECK(second != all.ia);
  CHECK(all.pz.owner() != second.identity());
}

TEST_CASE("one thread may give a context while another looks", "[object][CTX-006][CTX-007][SAFE-042]") {
  everything all;
  std::atomic<bool> over = false;
  worker writer([&](worker& w) {
    for (std::uint64_t i = 1; i <= 1000; ++i) w.check(all.evd.set_context(i).has_value());
    over = true;
  });
  std::uint64_t last = 0;
  bool forward = true;
  while (!over) {
    const auto seen = all.evd.context().value();
    forward = forward && seen >= last;
    last = seen;
  }
  writer.join();
  CHECK(forward);
  CHECK(all.evd.context().value() == 1000);
}

TEST_CASE("what all handles have costs them nothing", "[object][type]") {
  STATIC_REQUIRE(sizeof(dat::ep_ref) == sizeof(void*));
  STATIC_REQUIRE(std::is_trivially_copyable_v<dat::ep_ref>);
  STATIC_REQUIRE(sizeof(dat::ep<dat::rc>) == 2 * sizeof(void*));
  STATIC_REQUIRE(sizeof(dat::evd<dat::dto>) == 2 * sizeof(void*));
  STATIC_REQUIRE(sizeof(dat::pz) == sizeof(void*));
  STATIC_REQUIRE(sizeof(region) == sizeof(void*));
}

namespace {

/// Values 0 to last of an enumeration have names of their own, and others none.
template <class E>
void all_named(E last, std::string_view otherwise) {
  INFO(otherwise);
  std::set<std::string_view> names;
  for (unsigned i = 0; i < 256; ++i) {
    const auto name = to_string(static_cast<E>(i));
    if (i <= static_cast<unsigned>(last)) {
      CHECK(names.insert(name).second);
      CHECK(name.find("unknown ") == std::string_view::npos);
    } else if (name != otherwise) {
      FAIL_CHECK(i << " is called " << name);
    }
  }
}

/// The same for values with gaps between them.
template <class E>
void these_named(std::initializer_list<E> values, std::string_view otherwise) {
  INFO(otherwise);
  std::set<std::string_view> names;
  for (unsigned i = 0; i < 256; ++i) {
    const auto name = to_string(static_cast<E>(i));
    if (std::find(values.begin(), values.end(), static_cast<E>(i)) != values.end())
      CHECK((name != otherwise && names.insert(name).second));
    else if (name != otherwise)
      FAIL_CHECK(i << " is called " << name);
  }
}

} // namespace

TEST_CASE("every enumerator has a name of its own, and other values are called unknown", "[object]") {
  all_named(dat::ep_state::completion_pending, "unknown ep_state");
  all_named(dat::port_state::active_deferred, "unknown port_state");
  all_named(dat::rmr_scope::any, "unknown rmr_scope");
  all_named(dat::srq_state::error, "unknown srq_state");
  all_named(dat::ha_relationship::conflicting, "unknown ha_relationship");
  all_named(dat::pages::huge_or_normal, "unknown pages");
  all_named(dat::ib::membership::send_only, "unknown membership");
  all_named(dat::ib::atomic_scope::global, "unknown atomic_scope");
  these_named({dat::waking::solicited_wait, dat::waking::unsignalled, dat::waking::evd_threshold}, "unknown waking");
  all_named(dat::address_family::ipv6, "unknown address_family");
  all_named(dat::address_role::remote, "unknown address_role");
  all_named(dat::ep_error::other_error, "unknown ep_error");
  all_named(dat::port_change::client_reregister, "unknown port_change");
  all_named(dat::read_resources::shared, "unknown read_resources");
  all_named(dat::extension::none, "unknown extension");
  all_named(dat::iov_ownership::provider_modify, "unknown iov_ownership");
  all_named(dat::mem_type::shared_virtual, "unknown mem_type");
  all_named(dat::psp_creates_ep::always, "unknown psp_creates_ep");
  all_named(dat::pz_support::shareable, "unknown pz_support");
  all_named(dat::ha_load_balancing::intra_connection, "unknown ha_load_balancing");
  all_named(dat::close_flags::graceful, "unknown close_flags");
  all_named(dat::progress::manual, "unknown progress");
  all_named(dat::link_layer::ethernet, "unknown link_layer");
  all_named(dat::service_kind::csp, "unknown service_kind");
  all_named(dat::psp_flags::provider, "unknown psp_flags");
  all_named(object_kind::ep, "unknown object_kind");
}
