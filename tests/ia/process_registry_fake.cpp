// The one registry of a process: names that a program adds and removes, in all objects and in ia.open.
// SPDX-License-Identifier: BSL-1.0
#include "dat_conf_lines.hpp"
#include "world.hpp"

#include <dat/registry.hpp>

#include <string>
#include <vector>

using namespace unit;
using subtype = dat::return_subtype;
using type = dat::return_type;

namespace {

const dat::error in_use(type::provider_in_use);
const dat::error unknown_name(type::provider_not_found, subtype::name_not_registered);

dat::error open_error(std::string_view name) {
  const auto opened = dat::ia::open(name, manual);
  return opened ? dat::error(type::success) : opened.assume_error();
}
std::vector<std::string> names_of(const dat::registry& r) {
  std::vector<std::string> all;
  for (const auto& p : r.list()) all.push_back(p.name);
  return all;
}

} // namespace

TEST_CASE("a name that one object of the registry adds is listed and opened by the others",
          "[registry][MODEL-021][REG-009]") {
  const clean_world world;
  const names_of_program added;
  const auto seen = must(dat::registry::system());
  const auto before = names_of(seen);
  CHECK(open_error("mine") == unknown_name);
  {
    auto r = must(dat::registry::system());
    must(r.add({.name = "mine", .port = must(r.find("fk2")).port}));
    CHECK(r.add({.name = "mine"}).error() == dat::error(type::provider_already_registered));
  }
  auto after = before;
  after.emplace_back("mine");
  CHECK(names_of(seen) == after);
  CHECK(names_of(must(dat::registry::system())) == after);
  CHECK(must(seen.open("mine", {}, manual)).name() == "fk2");
  auto other = must(dat::registry::system());
  {
    const auto open = must(dat::ia::open("mine", manual));
    CHECK(open.name() == "fk2");
    CHECK(must(open.query()).adapter_name.view() == "mine");
    CHECK(other.remove("mine").error() == in_use); // ia.open counts, too
  }
  must(other.remove("mine"));
  CHECK(open_error("mine") == unknown_name);
  CHECK(names_of(seen) == before);
}

TEST_CASE("a registry of given devices has names of its own", "[registry]") {
  const clean_world world;
  const auto host = must(dat::registry::system());
  dat::registry own(must(dat::list_devices()));
  must(own.add({.name = "mine", .port = must(own.find("fk2")).port}));
  must(own.remove("fk1"));
  CHECK(names_of(own) == std::vector<std::string>{"fk2", "mine"});
  CHECK_FALSE(host.find("mine"));
  CHECK(host.find("fk1"));
  CHECK(open_error("mine") == unknown_name);
  CHECK(must(dat::ia::open("fk1", manual)).name() == "fk1");
  CHECK(must(own.open("mine", {}, manual)).name() == "fk2");
  const auto copy = own;
  must(own.add({.name = "later"}));
  CHECK(copy.find("later")); // copies have the same names
}

TEST_CASE("a device that a program removes is not opened by its name until the program adds it again", "[registry]") {
  const clean_world world;
  const names_of_program added;
  auto r = must(dat::registry::system());
  const auto before = names_of(r);
  const auto port = must(r.find("fk1")).port;
  must(r.remove("fk1"));
  CHECK(open_error("fk1") == unknown_name);
  CHECK(must(dat::registry::system()).find("fk1").error() == unknown_name);
  CHECK(must(dat::ia::open("fk2", manual)).name() == "fk2");
  CHECK(dat::ia::open(must(dat::ia_address::parse("10.99.1.1")), manual)); // by its address
  SECTION("for another port") {
    must(r.add({.name = "fk1", .port = must(r.find("fk2")).port}));
    CHECK(must(dat::ia::open("fk1", manual)).name() == "fk2");
    must(r.remove("fk1"));
    CHECK(open_error("fk1") == unknown_name);
  }
  SECTION("without a port") {
    must(r.add({.name = "fk1"}));
    CHECK(open_error("fk1") == dat::error(type::insufficient_resources, subtype::resource_device));
    must(r.remove("fk1"));
  }
  must(r.add({.name = "fk1", .port = port}));
  CHECK(names_of(r) == before);
  CHECK(must(dat::ia::open("fk1", manual)).name() == "fk1");
}

TEST_CASE("ia.open takes an added name of version 2.0, and the smallest minor version from there", "[registry]") {
  const clean_world world;
  const names_of_program added;
  auto r = must(dat::registry::system());
  must(r.add({.name = "old", .api_major = 1, .port = must(r.find("fk1")).port}));
  CHECK(open_error("old") == dat::error(type::provider_not_found, subtype::major_not_found));
  must(r.add({.name = "new", .api_minor = 2, .port = must(r.find("fk2")).port}));
  must(r.add({.name = "new", .api_minor = 1, .port = must(r.find("fk1")).port}));
  CHECK(must(dat::ia::open("new", manual)).name() == "fk1");
  const override_file file(line("new", "fk2 1"));
  CHECK(must(dat::ia::open("new", manual)).name() == "fk2"); // 2.0 of dat.conf
}
