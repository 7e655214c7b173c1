// The registry: names, ports, versions, relations; and ia::open by the names of dat.conf.
// SPDX-License-Identifier: BSL-1.0
#include "dat_conf_lines.hpp"
#include "world.hpp"

#include <dat/registry.hpp>

#include <support/worker.hpp>

#include <cstdlib>
#include <fstream>
#include <set>

namespace {

using namespace unit;
using type = dat::return_type;
using subtype = dat::return_subtype;

} // namespace

TEST_CASE("the registry lists every port of every device, and what dat.conf adds",
          "[registry][REG-004][REG-007][REG-033][REG-034][CONF-020][HA-006]") {
  const dat::registry r({port("dev", 1, "10.0.0.1"), port("dev", 2, "10.0.1.1")},
                        dat::conf::parse(line("a", "dev 2") + line("b", "nosuch 1") + line("c", "dev", "k1.2") +
                                         line("a", "dev 1", "u2.0", "nonthreadsafe") + line("dev", "dev 2")));
  std::vector<std::string> names;
  for (const auto& p : r.list()) names.push_back(p.name);
  CHECK(names == std::vector<std::string>{"dev", "dev/2", "a", "b", "a"});
  CHECK(must(r.find("dev")).port.value().port == 1);
  CHECK(must(r.find("dev/2")).port.value().addresses.front() == must(dat::ia_address::parse("10.0.1.1")));
  CHECK(must(r.find("a")).port.value().port == 2);
  CHECK(must(r.find("a", {.thread_safe = false})).port.value().port == 1);
  CHECK_FALSE(must(r.find("b")).port);
  CHECK(r.list().size() == names.size());
}

TEST_CASE("instance data names a device, an interface or an address", "[registry][CONF-014][CONF-016]"
                                                                      "[NAME-014]") {
  const dat::registry r({port("dev", 1, "10.0.0.1"), port("dev", 2, "10.0.1.1")},
                        dat::conf::parse(line("a", "dev") + line("b", "dev 0") + line("c", "net2") +
                                         line("d", "10.0.1.1") + line("e", "  net2\t2 ") + line("f", "net2 1") +
                                         line("g", "dev 3") + line("h", "dev x") + line("i", "") +
                                         line("j", "dev 256")));
  for (const auto* name : {"a", "b"}) CHECK(must(r.find(name)).port.value().port == 1);
  for (const auto* name : {"c", "d", "e"}) CHECK(must(r.find(name)).port.value().port == 2);
  for (const auto* name : {"f", "g", "h", "i", "j"}) CHECK_FALSE(must(r.find(name)).port);
}

TEST_CASE("a provider is found by name, major version, minor version and thread safety", "[registry]") {
  const dat::registry r({port("dev", 1, "")}, dat::conf::parse(line("x", "dev", "u2.3") + line("x", "dev", "u2.0") +
                                                               line("x", "dev", "u2.5", "nonthreadsafe") +
                                                               line("x", "dev", "u3.1", "nonthreadsafe")));
  const auto minor = [&](std::uint16_t major, std::uint16_t least, std::optional<bool> safe = {}) {
    return must(r.find("x", {major, least, safe})).api_minor;
  };
  CHECK(minor(2, 0) == 0);
  CHECK(minor(2, 1) == 3);
  SHOWS("REG-027");
  CHECK(minor(2, 3, true) == 3);
  CHECK(minor(2, 4) == 5);
  CHECK(minor(2, 0, false) == 5);
  CHECK(minor(3, 0) == 1);
  SHOWS("REQ-017", "VER-005");
  CHECK(failure(r, "y") == dat::error(type::provider_not_found, subtype::name_not_registered));
  CHECK(failure(r, "x", {1, 0}) == dat::error(type::provider_not_found, subtype::major_not_found));
  SHOWS("REG-028");
  CHECK(failure(r, "x", {2, 6}) == dat::error(type::provider_not_found, subtype::minor_not_found));
  CHECK(failure(r, "x", {2, 4, true}) == dat::error(type::provider_not_found, subtype::thread_safety_not_found));
  SHOWS("ERR-037", "REG-026", "VER-008");
  CHECK(must(r.find("dev", {2, 0, false})).origin == "device");
  CHECK(failure(r, "dev", {2, 0, true}) == dat::error(type::provider_not_found, subtype::thread_safety_not_found));
  CHECK(failure(r, "dev", {3, 0}) == dat::error(type::provider_not_found, subtype::major_not_found));
}

TEST_CASE("ports of one device are related, devices are not, unless they are one adapter",
          "[registry][REG-040][REG-044][HA-007][REQ-183]") {
  const dat::registry r({port("one", 1, "", 5), port("one", 2, "", 5), port("two", 1, "", 7), port("three", 1, "", 5),
                         port("four", 1, ""), port("five", 1, "")},
                        dat::conf::parse(line("alias", "one 2") + line("absent", "nosuch")));
  using dat::ha_relationship;
  const auto check = [&](std::string_view a, std::string_view b, ha_relationship expected) {
    INFO(a << ", " << b);
    CHECK(must(r.related(a, b)) == expected);
    CHECK(must(r.related(b, a)) == expected);
  };
  check("one", "one", ha_relationship::related);
  check("one", "one/2", ha_relationship::related);
  check("one", "alias", ha_relationship::related);
  check("one", "three", ha_relationship::related);
  check("one", "two", ha_relationship::unrelated);
  check("four", "five", ha_relationship::unrelated); // two missing GUIDs are not equal
  check("one", "absent", ha_relationship::unknown);
  check("absent", "absent", ha_relationship::related);
  CHECK(r.related("no", "one").error() == dat::error(type::invalid_parameter, subtype::arg1));
  CHECK(r.related("one", "no").error() == dat::error(type::invalid_parameter, subtype::arg2));
}

TEST_CASE("the registry has the adapter that each device of this host reports", "[registry]") {
  const clean_world world;
  const auto r = must(dat::registry::system());
  CHECK(must(r.find("fk1")).port->system_image_guid == 0x000000fffe000001);
  CHECK(must(r.find("fk2")).port->system_image_guid == 0x000000fffe000002);
  CHECK(must(r.related("fk1", "fk2")) == dat::ha_relationship::unrelated);
}

TEST_CASE("the devices of this host are listed port by port with addresses and state", "[registry][REG-003]") {
  fake::reset({.devices = {{"fk1", {{{"10.99.1.1", "fd99:1::1"}}, {{"10.99.3.1"}, IBV_PORT_DOWN}}}, {"fk2", {{{}}}}}});
  const auto ports = must(dat::list_devices());
  REQUIRE(ports.size() == 3);
  CHECK(ports[0].name() == "fk1");
  CHECK(ports[0].state == dat::port_state::active);
  CHECK(ports[0].link_layer == dat::link_layer::ethernet);
  CHECK(ports[0].addresses.size() == 2);
  CHECK_FALSE(ports[0].interface.empty());
  CHECK(ports[1].name() == "fk1/2");
  CHECK(ports[1].state == dat::port_state::down);
  CHECK(ports[1].addresses.front() == must(dat::ia_address::parse("10.99.3.1")));
  CHECK(ports[2].name() == "fk2");
  CHECK(ports[2].addresses.empty());
  CHECK(fake::live().total() == 0);

  fake::fail(fake::call::ibv_open_device);
  const auto closed = must(dat::list_devices());
  REQUIRE(closed.size() == 2); // a device that may not be opened has one port of unknown state
  CHECK(closed[0].state == dat::port_state::unknown);
  fake::fail(fake::call::ibv_get_device_list, 1, EACCES);
  CHECK(dat::list_devices().error().verb() == "ibv_get_device_list");
  fake::fail(fake::call::ibv_get_device_list, 1, ENOSYS);
  CHECK(must(dat::list_devices()).empty());
  CHECK(fake::leaks().empty());
}

TEST_CASE("an ia opens by the name that dat.conf gives it", "[registry][ia]") {
  fake::reset();
  CHECK(dat::ia::open("site-name", manual).error().subtype() == subtype::name_not_registered);
  {
    const override_file file(line("site-name", "fk2 1") + line("by-address", "10.99.1.1 0") + line("gone", "nosuch 1") +
                             line("old", "fk2 1", "u1.2") + line("legacy", "fk1", "u2.0", "nonthreadsafe") +
                             line("fk1", "fk2 1") + line("\"slash/ed\"", "fd99:2::1"));
    CHECK(must(dat::ia::open("site-name", manual)).name() == "fk2");
    SHOWS("REG-002", "REG-063", "REQ-017");
    CHECK(must(dat::ia::open("by-address", manual)).name() == "fk1");
    CHECK(must(dat::ia::open("legacy", manual)).name() == "fk1");
    CHECK(must(dat::ia::open("slash/ed", manual)).name() == "fk2");
    CHECK(must(dat::ia::open("fk1", manual)).name() == "fk1"); // a device's own name always names the device
    const auto interface = must(dat::list_devices()).at(1).interface;
    CHECK(dat::ia::open("gone", manual).error() == dat::error(type::insufficient_resources, subtype::resource_device));
    SHOWS("CONF-020");
    CHECK(dat::ia::open("old", manual).error() == dat::error(type::provider_not_found, subtype::major_not_found));
    CHECK(dat::ia::open("other", manual).error() == dat::error(type::provider_not_found, subtype::name_not_registered));
    SHOWS("ERR-022", "REG-020");
    const override_file by_interface(line("by-interface", interface));
    CHECK(must(dat::ia::open("by-interface", manual)).name() == "fk2");

    const auto host = must(dat::registry::system());
    CHECK(must(host.find("by-interface")).port.value().device == "fk2");
    CHECK(host.diagnostics().empty());
  }
  CHECK(dat::ia::open("site-name", manual).error().subtype() == subtype::name_not_registered);
  SHOWS("CONF-002", "REG-060");
  CHECK(fake::leaks().empty());
}

TEST_CASE("the adapter of an address, and the one that reaches an address, are found without opening",
          "[registry][NAME-013]") {
  fake::reset({.devices = {{"fk1", {{{"10.99.1.1"}}, {{"10.99.3.1"}}}}, {"fk2", {{{"10.99.2.1"}}}}}});
  CHECK(must(dat::find_adapter(must(dat::ia_address::parse("10.99.3.1")))) == "fk1/2");
  CHECK(must(dat::find_adapter_reaching("10.99.2.1")) == "fk2");
  for (const char* port : {"fk1/9", "fk1/10"}) // valid names of ports that do not exist
    CHECK(dat::ia::open(port).error() == dat::error(type::provider_not_found, subtype::name_not_registered));
  const auto nowhere = dat::find_adapter(must(dat::ia_address::parse("192.0.2.1"))).error();
  CHECK(nowhere == dat::error(type::invalid_address, subtype::address_unreachable));
  CHECK(nowhere.call() == "find_adapter");
  CHECK(dat::find_adapter_reaching("192.0.2.1").error() ==
        dat::error(type::invalid_address, subtype::address_unreachable));
  CHECK(fake::live().contexts == 0);
  CHECK(fake::leaks().empty());
}

TEST_CASE("an adapter is found by the name of its network interface", "[registry][NAME-014]") {
  fake::reset({.devices = {{"fk1", {{{"10.99.1.1"}}, {{"10.99.3.1"}}}}, {"fk2", {{{"10.99.2.1"}}}}}});
  const auto devices = must(dat::list_devices());
  REQUIRE(devices.size() == 3);
  for (const auto& d : devices) CHECK(must(dat::find_adapter_on(d.interface)) == d.name());
  const auto none = dat::find_adapter_on("no-such0").error();
  CHECK(none == dat::error(type::invalid_address, subtype::address_unreachable));
  CHECK_THAT(none.message(), support::contains_text("rdma link"));
  CHECK(dat::find_adapter_on("").error() == dat::error(type::invalid_parameter, subtype::arg1));
  CHECK(fake::live().contexts == 0);
}

TEST_CASE("a port that cannot be queried has no state of another port", "[registry]") {
  fake::world w;
  w.devices = {{"one", {{{"10.99.1.1"}}, {{"10.99.2.1"}}}}};
  fake::reset(w);
  fake::fail(fake::call::ibv_query_port, 2, EIO);
  const auto ports = must(dat::list_devices());
  REQUIRE(ports.size() == 2);
  CHECK(ports[0].state == dat::port_state::active);
  CHECK(ports[0].link_layer == dat::link_layer::ethernet);
  CHECK(ports[1].state == dat::port_state::unknown);
  CHECK(ports[1].link_layer == dat::link_layer::unspecified);
}

TEST_CASE("addresses have host names, or the lookup fails", "[registry][NAME-001]") {
  const auto loopback = must(dat::ia_address::parse("127.0.0.1"));
  const auto name = must(dat::host_name(loopback));
  CHECK_FALSE(name.empty());
  const auto back = must(dat::resolve(name));
  bool same = false;
  for (const auto& a : back) same = same || a.is_loopback();
  CHECK(same);
  // Documentation addresses (RFC 5737) have no name; without a name server the error is a timeout.
  const auto unknown = dat::host_name(must(dat::ia_address::parse("192.0.2.1")));
  REQUIRE_FALSE(unknown);
  CHECK((unknown.error().type() == type::invalid_address || unknown.error().type() == type::timeout_expired));
  CHECK(unknown.error().verb() == "getnameinfo");
  if (unknown.error().type() == type::invalid_address)
    CHECK(unknown.error().hint() == "No name service has a name for this address.");
}

TEST_CASE("a program can add names of its own and remove names",
          "[registry][REG-045][REG-046][REG-048][REG-051][REG-061][REG-062]") {
  dat::registry r({port("one", 1, ""), port("two", 1, "")}, dat::conf::parse(line("site", "one")));
  must(r.add({.name = "mine", .port = port("two", 1, "")}));
  CHECK(must(r.find("mine")).port.value().name() == "two");
  CHECK(must(r.find("mine")).origin == "added");
  CHECK(r.list().size() == 4);
  CHECK(r.list().back().name == "mine");
  CHECK(must(r.related("mine", "two")) == dat::ha_relationship::related);

  for (const auto* taken : {"mine", "one"})
    CHECK(r.add({.name = taken}).error() == dat::error(type::provider_already_registered));
  must(r.add({.name = "mine", .api_major = 1, .api_minor = 2, .thread_safe = false}));
  CHECK(must(r.find("mine", {1, 2})).api_major == 1);
  CHECK(failure(r, "mine", {1, 3}) == dat::error(type::provider_not_found, subtype::minor_not_found));
  CHECK(r.add({.name = ""}).error() == dat::error(type::invalid_parameter, subtype::arg2));
  CHECK(r.add({.name = std::string(256, 'x')}).error() == dat::error(type::invalid_parameter, subtype::arg2));
  must(r.add({.name = std::string(255, 'x')}));
  CHECK(must(r.find(std::string(255, 'x'))).origin == "added");

  for (const auto* gone : {"mine", "one", "site"}) {
    INFO(gone);
    must(r.remove(gone));
    CHECK(failure(r, gone) == dat::error(type::provider_not_found, subtype::name_not_registered));
    CHECK(r.remove(gone).error() == dat::error(type::invalid_parameter, subtype::arg1));
  }
  CHECK(r.remove("never").error() == dat::error(type::invalid_parameter, subtype::arg1));
  must(r.add({.name = "one", .port = port("two", 1, "")})); // the name is free again
  CHECK(must(r.find("one")).port.value().name() == "two");
  CHECK(r.list().size() == 3);
}

TEST_CASE("a name is compared as a whole, whatever characters it has", "[registry]") {
  dat::registry r({port("dev", 1, "10.0.0.1")});
  const std::string longer("d\0ev", 4), longest(255, 'n');
  for (const std::string& name : {std::string("d"), longer, longest})
    must(r.add({.name = name, .port = r.devices().front()}));
  for (const std::string& name : {longer, longest}) {
    must(r.remove(name));
    CHECK(failure(r, name).type() == type::provider_not_found);
    CHECK(r.find("d"));
  }
}

TEST_CASE("a registry has room for a hundred names", "[registry][REG-024]") {
  dat::registry r({});
  for (int i = 0; i < 100; ++i) must(r.add({.name = "n" + std::to_string(i)}));
  CHECK(r.list().size() == 100);
  CHECK(must(r.find("n99")).name == "n99");
}

TEST_CASE("an ia is opened by name, version and thread safety", "[registry][ia][REG-026][IA-017][REQ-018]") {
  fake::reset();
  const names_of_program added;
  auto r = must(dat::registry::system());
  must(r.add({.name = "mine", .port = must(r.find("fk2")).port}));
  must(r.add({.name = "absent"}));
  const auto error_of = [&](std::string_view name, const dat::provider_request& wanted = {}) {
    const auto opened = r.open(name, wanted, manual);
    return opened ? dat::error(type::success) : opened.assume_error();
  };
  CHECK(must(r.open("mine", {}, manual)).name() == "fk2");
  CHECK(must(r.open("fk1", {2, 0, false}, manual)).name() == "fk1");
  CHECK(error_of("fk1", {3, 0}) == dat::error(type::provider_not_found, subtype::major_not_found));
  CHECK(error_of("fk1", {2, 1}) == dat::error(type::provider_not_found, subtype::minor_not_found));
  CHECK(error_of("fk1", {2, 0, true}) == dat::error(type::provider_not_found, subtype::thread_safety_not_found));
  CHECK(error_of("nobody") == dat::error(type::provider_not_found, subtype::name_not_registered));
  CHECK(error_of("nobody").call() == "registry.open");
  CHECK(error_of("absent") == dat::error(type::insufficient_resources, subtype::resource_device));
  // A name stays in use when a later name is added, and when the registry is moved.
  {
    const auto used = must(r.open("mine", {}, manual));
    must(r.add({.name = "later"}));
    CHECK(r.remove("mine").error() == dat::error(type::provider_in_use));
    auto moved = std::move(r);
    CHECK(moved.remove("mine").error() == dat::error(type::provider_in_use));
    must(r.add({.name = "again", .port = must(moved.find("fk2")).port})); // NOLINT(bugprone-use-after-move)
    const auto opened = must(r.open("again", {}, manual));
    CHECK(r.remove("again").error() == dat::error(type::provider_in_use));
    r = std::move(moved);
  }
  // A name keeps the thread safety that the program or the line of dat.conf has given, whatever the provider reports.
  must(r.add({.name = "said", .thread_safe = true, .port = must(r.find("fk2")).port}));
  CHECK(must(r.open("said", {2, 0, true}, manual)).query<dat::provider_attributes>().value().is_thread_safe == false);
  DEVIATES("REG-066");
  {
    // A name in use cannot be removed, not even through a copy of the registry, and not before a close has ended.
    auto first = must(r.open("mine", {}, manual));
    auto second = must(r.open("mine", {}, manual));
    auto copy = r;
    const dat::error in_use(type::provider_in_use);
    CHECK(r.remove("mine").error() == in_use);
    CHECK(must(first.query()).adapter_name.view() == "mine");
    CHECK(must(first.query()).device_name.view() == "fk2");
    must(first.close(dat::close_mode::graceful));
    CHECK(copy.remove("mine").error() == in_use);
    CHECK(copy.add({.name = "mine"}).error() == dat::error(type::provider_already_registered));
    CHECK(must(copy.open("mine", {}, manual)).name() == "fk2"); // the entry is unchanged
    SHOWS("REG-050");
    const auto pz = must(second.create_pz());
    dat::error during(type::success);
    fake::intercept(fake::call::ibv_dealloc_pd, [&] { during = r.remove("mine").error(); });
    must(second.close(dat::close_mode::abrupt));
    fake::intercept(fake::call::ibv_dealloc_pd, {});
    CHECK(during == in_use);
    must(r.remove("mine")); // although a handle of the closed ia exists
    SHOWS("REG-025");
    CHECK(error_of("mine") == dat::error(type::provider_not_found, subtype::name_not_registered));
  }
  {
    // An ia can outlive its registry.
    auto gone = std::make_optional(r);
    const auto open = must(gone->open("fk1", {}, manual));
    gone.reset();
    CHECK(r.remove("fk1").error() == dat::error(type::provider_in_use));
  }
  {
    // A removal prevents new opens only: an adapter that was opened by another name still works.
    auto open = must(r.open("fk2", {}, manual));
    must(r.add({.name = "mine", .port = must(r.find("fk2")).port}));
    must(r.remove("mine"));
    CHECK(error_of("mine") == dat::error(type::provider_not_found, subtype::name_not_registered));
    must(open.create_pz());
    SHOWS("REG-023", "REG-049");
  }
  CHECK(fake::leaks() == "");
}

TEST_CASE("the registry and an opened adapter report the same thread safety", "[registry]") {
  fake::reset();
  const auto r = must(dat::registry::system());
  REQUIRE(r.list().size() >= 2);
  for (const auto& p : r.list())
    if (p.origin == "device")
      CHECK(p.thread_safe == must(must(r.open(p.name, {}, manual)).query<dat::provider_attributes>()).is_thread_safe);
}

TEST_CASE("several names may lead to one port, and each name is listed once", "[registry][REG-004][MODEL-031]") {
  const dat::registry r({port("one", 1, ""), port("one", 2, "")},
                        dat::conf::parse(line("a", "one 1") + line("b", "one 1") + line("one", "one 2") +
                                         line("a", "one 2", "u2.0", "threadsafe", "nondefault", "acme.2.1")));
  std::multiset<std::string> names;
  for (const auto& p : r.list()) names.insert(p.name);
  CHECK(names == std::multiset<std::string>{"a", "b", "one", "one/2"});
  CHECK(must(r.find("a")).port.value().name() == "one");
  CHECK(must(r.find("b")).port.value().name() == "one");
}

TEST_CASE("no device is opened before it is requested, and listing leaves no device open",
          "[registry][REG-030][REQ-016][REG-034]") {
  fake::reset();
  CHECK(fake::count(fake::call::ibv_get_device_list) == 0);
  const auto r = must(dat::registry::system());
  CHECK(fake::live().total() == 0);
  const auto calls = fake::count(fake::call::ibv_open_device);
  CHECK(r.list().size() == r.list().size());
  (void)must(r.find("fk1"));
  (void)must(r.related("fk1", "fk2"));
  CHECK(fake::count(fake::call::ibv_open_device) == calls);
  CHECK(fake::leaks() == "");
}

TEST_CASE("a new registry sees what has changed: files and devices", "[registry][REG-071][REG-072]") {
  fake::reset();
  const auto has = [](std::string_view name) { return must(dat::registry::system()).find(name).has_value(); };
  CHECK_FALSE(has("later"));
  {
    const override_file file(line("later", "fk1"));
    CHECK(has("later"));
    std::ofstream(file.path()) << line("other", "fk1");
    CHECK_FALSE(has("later"));
    CHECK(has("other"));
  }
  CHECK(has("fk2"));
  fake::remove_device("fk2");
  CHECK_FALSE(has("fk2"));
  CHECK(has("fk1"));
}

TEST_CASE("several threads may query one registry", "[registry][REG-039][SAFE-045][SAFE-048]") {
  fake::reset();
  const auto r = must(dat::registry::system());
  const auto ask = [&](support::worker& w) {
    int answered = 0;
    for (int i = 0; i < 100; ++i)
      answered += static_cast<int>(r.list().size() >= 2 && r.related("fk1", "fk2") && r.find("fk1"));
    w.check(answered == 100);
  };
  support::worker one(ask), two(ask);
  one.join();
  two.join();
}
