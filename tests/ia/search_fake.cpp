// The search for an adapter by the route to a peer and by names: its limits, and calls that fail on the way.
// SPDX-License-Identifier: BSL-1.0
#include <unit/lock_waits.hpp>
#include <unit/world.hpp>

#include <dat/registry.hpp>

#include <dat/detail/discovery/registered_names.hpp>

#include <cerrno>
#include <mutex>
#include <optional>

namespace unit {

struct lock_of_names {
  friend dat::detail::control_mutex dat::detail::registered_names::*member(lock_of_names);
};
template struct opened_member<lock_of_names, &dat::detail::registered_names::mutex_>;

} // namespace unit

using namespace unit;
using dat::return_subtype;
using dat::return_type;

TEST_CASE("the search for a route asks the kernel for whole milliseconds, and for a minute at most", "[ia]") {
  const clean_world world;
  struct {
    dat::timeout limit;
    int milliseconds;
  } const all[] = {{1us, 1},           {1ms, 1},           {1001us, 2},
                   {1s, 1000},         {59'999ms, 59'999}, {60s, 60'000},
                   {60'001ms, 60'000}, {1h, 60'000},       {dat::infinite, 60'000}};
  for (const auto& [limit, milliseconds] : all) {
    CHECK(dat::ia::open_by_route("10.99.2.1", manual, limit));
    CHECK(fake::resolve_timeout_ms() == milliseconds);
  }
}

TEST_CASE("a search for a route that gets no answer ends at its limit, and reads on after an interruption", "[ia]") {
  const clean_world world;
  fake::hold_events(RDMA_CM_EVENT_ADDR_RESOLVED);
  const auto late = dat::ia::open_by_route("10.99.2.1", manual, 1ms);
  is_error(late, return_type::invalid_address, return_subtype::address_unreachable);
  CHECK(late.error().verb() == "rdma_resolve_addr");
  CHECK(late.error().sys_errno() == ETIMEDOUT);
  CHECK(late.error().call() == "ia.open_by_route");
  fake::release_events();
  for (const int err : {EAGAIN, EINTR}) {
    fake::fail(fake::call::rdma_get_cm_event, 1, err);
    CHECK(dat::ia::open_by_route("10.99.2.1", manual, plenty));
  }
  fake::fail(fake::call::rdma_get_cm_event, 1, EIO);
  const auto failed = dat::ia::open_by_route("10.99.2.1", manual, plenty);
  is_error(failed, return_type::invalid_address, return_subtype::address_unreachable);
  CHECK(failed.error().verb() == "rdma_get_cm_event");
  CHECK(failed.error().sys_errno() == EIO);
}

TEST_CASE("of equal entries of dat.conf the first one is found", "[registry]") {
  const std::string one = "x u2.3 threadsafe default lib.so dev.1.0 \"fk1\" \"\"\n";
  const dat::registry r({}, dat::conf::parse(one + one, "file"));
  CHECK(must(r.find("x", {2, 0})).origin == "file:1");
  CHECK(must(r.find("x", {2, 3})).origin == "file:1");
}

TEST_CASE("a device that cannot be asked for its ports is listed once", "[ia]") {
  const clean_world world({.devices = {{"fk1", {{{"10.99.1.1"}}, {{"10.99.3.1"}}}}, {"fk2", {{{"10.99.2.1"}}}}}});
  const auto names = [] {
    events all;
    for (const dat::adapter& a : must(dat::ia::list_adapters())) all.emplace_back(a.name.view());
    return all;
  };
  CHECK(names() == events{"fk1", "fk1/2", "fk2"});
  fake::fail(fake::call::ibv_query_device, 1, EIO);
  CHECK(names() == events{"fk1", "fk2"});
  fake::fail(fake::call::ibv_open_device, 1, EACCES);
  CHECK(names() == events{"fk1", "fk2"});
}

TEST_CASE("the names that a registry has opened change one at a time", "[registry][locks]") {
  const auto names = dat::detail::registered_names::make();
  constexpr auto open = dat::detail::registered_name::role::open;
  dat::detail::control_mutex& lock = (*names).*member(lock_of_names());
  std::optional<dat::detail::ref<dat::detail::counted>> held(names->hold("one"));
  SECTION("a look") {
    bool known = false;
    CHECK(locked_out(lock, [&] { known = names->has(open, "one"); }));
    CHECK(known);
  }
  SECTION("an end") {
    CHECK(locked_out(lock, [&] { held.reset(); }));
    CHECK_FALSE(names->has(open, "one"));
  }
  SECTION("another") {
    std::optional<dat::detail::ref<dat::detail::counted>> other;
    CHECK(locked_out(lock, [&] { other.emplace(names->hold("two")); }));
    CHECK(names->has(open, "two"));
    CHECK(names->has(open, "one"));
  }
}
