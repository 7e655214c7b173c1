// The registry: dat.conf and DAT_OVERRIDE, names, versions, relations; and ia::open by the names of dat.conf.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/registry.hpp>

#include <support/worker.hpp>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

namespace {

using namespace unit;
using type = dat::return_type;
using subtype = dat::return_subtype;

dat::device_port port(std::string device, std::uint8_t number, std::string address, std::uint64_t image = 0) {
  dat::device_port p;
  p.device = std::move(device);
  p.port = number;
  p.state = dat::port_state::active;
  p.interface = "net" + std::to_string(number);
  if (!address.empty()) p.addresses.push_back(must(dat::ia_address::parse(address)));
  p.system_image_guid = image;
  return p;
}

/// An entry of a dat.conf with these fields; the other fields are ordinary.
std::string line(const std::string& name, const std::string& instance = "dev 1", const std::string& api = "u2.0",
                 const std::string& safety = "threadsafe", const std::string& mark = "default",
                 const std::string& version = "acme.2.0") {
  return name + ' ' + api + ' ' + safety + ' ' + mark + " lib.so " + version + " \"" + instance + "\" \"\"\n";
}

/// The column of the only diagnostic of a text; 0 when there is none or several.
std::uint32_t fault_column(const std::string& text) {
  const auto c = dat::conf::parse(text);
  return c.diagnostics.size() == 1 && c.entries.empty() ? c.diagnostics[0].column : 0;
}

dat::error failure(const dat::registry& r, std::string_view name, const dat::provider_request& wanted = {}) {
  const auto found = r.find(name, wanted);
  if (found) return {type::success};
  return found.error();
}

template <class T>
constexpr bool has_platform_data = requires(const T& t) {
  t.platform_data;
};

/// A temporary file, which DAT_OVERRIDE names while the object exists.
class override_file {
public:
  explicit override_file(const std::string& text)
      : path_(std::filesystem::temp_directory_path() / ("dat_registry_test." + std::to_string(::getpid()))) {
    std::ofstream(path_) << text;
    ::setenv("DAT_OVERRIDE", path_.c_str(), 1);
  }
  override_file(const override_file&) = delete;
  override_file& operator=(const override_file&) = delete;
  ~override_file() {
    ::unsetenv("DAT_OVERRIDE");
    std::filesystem::remove(path_);
  }
  [[nodiscard]] std::string path() const { return path_.string(); }

private:
  std::filesystem::path path_;
};

} // namespace

TEST_CASE("every field of an entry of dat.conf is kept as written",
          "[registry][CONF-003][CONF-007][CONF-017][REG-073]") {
  const auto c =
      dat::conf::parse("ib0 u1.2 nonthreadsafe default /no/such/lib.so com.acme.2.1 \"rxe0 1\" \"site data\"");
  REQUIRE(c.entries.size() == 1);
  const auto& e = c.entries[0];
  CHECK(e.ia_name == "ib0");
  CHECK(e.user_level);
  CHECK(e.api_major == 1);
  CHECK(e.api_minor == 2);
  CHECK_FALSE(e.thread_safe);
  CHECK(e.is_default);
  CHECK(e.library == "/no/such/lib.so");
  SHOWS("CONF-014");
  CHECK(e.version == dat::provider_version{"com.acme", 2, 1});
  CHECK(e.instance_data == "rxe0 1");
  CHECK(e.platform_data == "site data");
  // The platform data stays in the entry: results of a registry have none.
  STATIC_REQUIRE(has_platform_data<dat::conf_entry>);
  STATIC_REQUIRE_FALSE(has_platform_data<dat::provider_info>);
  CHECK(e.line == 1);
  CHECK(e.chosen);
  CHECK(c.diagnostics.empty());
}

TEST_CASE("comments and blank lines of dat.conf have no effect", "[registry][CONF-005][CONF-006]") {
  const auto none = dat::conf::parse("# a comment\n\n \t \r\n   # another\n");
  CHECK(none.entries.empty());
  CHECK(none.diagnostics.empty());

  const auto one = dat::conf::parse("a u2.0 threadsafe default x y.1.0 \"#1\" \"\" # comment \"");
  REQUIRE(one.entries.size() == 1);
  CHECK(one.entries[0].instance_data == "#1");
  CHECK(one.entries[0].extra.empty());
  CHECK(one.diagnostics.empty());
}

TEST_CASE("quotes and escapes of dat.conf are read, others refused with their column", "[registry][CONF-008]") {
  const auto c = dat::conf::parse(R"("a\\b\"c" u2.0 threadsafe default l\n y.1.0 "" "")");
  REQUIRE(c.entries.size() == 1);
  CHECK(c.entries[0].ia_name == R"(a\b"c)");
  CHECK(c.entries[0].library == R"(l\n)"); // a backslash is no escape outside quotes
  CHECK(fault_column(R"("a\n" u2.0 threadsafe default l y.1.0 "" "")") == 3);
  CHECK(fault_column(R"(a u2.0 threadsafe default l y.1.0 "x)") == 35);
  CHECK(fault_column(R"(a u2.0 threadsafe default l y.1.0 "x\)") == 35);
  CHECK(fault_column(R"("a"b u2.0 threadsafe default l y.1.0 "" "")") == 4);
  CHECK(fault_column(R"(a"b" u2.0 threadsafe default l y.1.0 "" "")") == 2);
}

TEST_CASE("an entry of dat.conf has eight fields, no fewer and no more", "[registry][CONF-009][CONF-010]") {
  CHECK(fault_column("a u2.0 threadsafe default lib y.1.0 \"\"") == 39);
  CHECK(fault_column("a u2.0 threadsafe default lib y.1.0 \"\" \"\" more") == 43);
  CHECK(fault_column("a u1.2 threadsafe default lib y.1.0 \"\"") == 39); // of an earlier version, too
  const auto spaced = dat::conf::parse("\ta\tu1.2 \t threadsafe\t\tdefault\tlib\ty.1.0\t\"dev 1\"\t\"x\"\n");
  REQUIRE(spaced.entries.size() == 1);
  CHECK((spaced.entries[0].instance_data == "dev 1" && spaced.entries[0].platform_data == "x"));
  const auto later = dat::conf::parse("a u3.0 threadsafe default lib y.1.0 \"\" \"\" more \"and more\" # not this");
  CHECK(later.diagnostics.empty());
  REQUIRE(later.entries.size() == 1);
  CHECK(later.entries[0].extra == "more \"and more\"");
}

TEST_CASE("keywords and numbers of dat.conf must match exactly", "[registry][CONF-011][CONF-012][CONF-015]") {
  for (const auto* api : {"u2", "2.0", "u2.0x", "u-2.0", "u.0", "u2.", "x2.0", "U2.0", "u", ".", "u65536.0"}) {
    INFO(api);
    CHECK(fault_column(line("a", "d", api)) == 3);
  }
  struct spelling {
    const char* text;
    bool user_level;
    std::uint16_t major, minor;
  };
  for (const auto& api : {spelling{"k1.0", false, 1, 0}, spelling{"u1.0", true, 1, 0}, spelling{"u1.1", true, 1, 1},
                          spelling{"u12.34", true, 12, 34}}) {
    INFO(api.text);
    const auto c = dat::conf::parse(line("a", "d", api.text));
    REQUIRE(c.entries.size() == 1);
    CHECK(c.entries[0].user_level == api.user_level);
    CHECK(c.entries[0].api_major == api.major);
    CHECK(c.entries[0].api_minor == api.minor);
  }
  for (const auto* safety : {"threadsafeX", "Threadsafe", "thread", "nonthreadsafe_"})
    CHECK(fault_column(line("a", "d", "u2.0", safety)) == 8);
  for (const auto* mark : {"Default", "nondefaults", "yes"})
    CHECK(fault_column(line("a", "d", "u2.0", "threadsafe", mark)) == 19);
  for (const auto* version : {"xyz.5", "xyz", ".5.1", "xyz.5.x", "xyz..1", "5.1", "a.1.2.", "a.1.-2"}) {
    INFO(version);
    CHECK(fault_column(line("a", "d", "u2.0", "threadsafe", "default", version)) == 34);
  }
  CHECK(dat::conf::parse(line("a", "d", "u2.0", "threadsafe", "default", "xyz.5.13")).entries.at(0).version ==
        dat::provider_version{"xyz", 5, 13});
}

TEST_CASE("a name may have 255 characters and not 256", "[registry][REG-032]") {
  CHECK(dat::conf::parse(line(std::string(255, 'n'))).entries.size() == 1);
  CHECK(fault_column(line(std::string(256, 'n'))) == 1);
  CHECK(fault_column(line("\"\"")) == 1);
}

TEST_CASE("a bad line of dat.conf is diagnosed with its place and does not affect the others",
          "[registry][CONF-021][CONF-022]") {
  const auto c = dat::conf::parse(line("b") + "nonsense\n" + line("a"), "/etc/dat.conf");
  REQUIRE(c.entries.size() == 2);
  CHECK(c.entries[0].ia_name == "b");
  CHECK(c.entries[1].ia_name == "a");
  CHECK(c.entries[1].line == 3);
  REQUIRE(c.diagnostics.size() == 1);
  CHECK(c.diagnostics[0].message() == "/etc/dat.conf:2:9: fewer than the eight fields of an entry");
}

TEST_CASE("the first of several defaults counts, and a name without a default cannot be opened",
          "[registry][CONF-013]") {
  const dat::registry two({port("one", 1, ""), port("two", 1, "")},
                          dat::conf::parse(line("x", "one") + line("x", "two")));
  CHECK(must(two.find("x")).port.value().device == "one");
  REQUIRE(two.diagnostics().size() == 1);
  CHECK(two.diagnostics()[0].line == 2);
  CHECK(two.diagnostics()[0].column == 0);
  const auto both = dat::conf::parse(line("x", "one") + line("x", "two"));
  REQUIRE(both.entries.size() == 2);
  CHECK(both.entries[0].chosen);
  CHECK_FALSE(both.entries[1].chosen);

  // A name has a default for each combination of thread safety and API version.
  const dat::registry three(
      {port("one", 1, ""), port("two", 1, ""), port("three", 1, "")},
      dat::conf::parse(line("x", "one") + line("x", "two", "u2.0", "nonthreadsafe") + line("x", "three", "u1.2")));
  CHECK(must(three.find("x", {2, 0, true})).port.value().device == "one");
  CHECK(must(three.find("x", {2, 0, false})).port.value().device == "two");
  CHECK(must(three.find("x", {1, 2, true})).port.value().device == "three");
  CHECK(three.diagnostics().empty());

  const dat::registry none({port("one", 1, "")},
                           dat::conf::parse(line("x", "one", "u2.0", "threadsafe", "nondefault")));
  CHECK(failure(none, "x") == dat::error(type::provider_not_found, subtype::name_not_registered));
  CHECK(none.diagnostics().size() == 1);
  const std::string unmarked = line("x", "one", "u2.0", "threadsafe", "nondefault");
  const auto twice = dat::conf::parse(unmarked + unmarked);
  REQUIRE(twice.diagnostics.size() == 1); // one for the name, at its first entry
  CHECK(twice.diagnostics[0].line == 1);
  CHECK(twice.diagnostics[0].column == 0);
}

TEST_CASE("DAT_OVERRIDE chooses another version of a name's provider",
          "[registry][CONF-024][CONF-025][CONF-026][CONF-027]") {
  const auto system = line("x", "one", "u2.0", "threadsafe", "default", "xyz.1.0") +
                      line("x", "two", "u2.0", "threadsafe", "nondefault", "xyz.2.0") + line("y", "one");
  const auto with = [&](const std::string& overrides) {
    return dat::registry({port("one", 1, ""), port("two", 1, "")}, dat::conf::parse(system, "sys", overrides, "ov"));
  };
  CHECK(must(with("").find("x")).port.value().device == "one");
  for (const auto* text : {"x u2.0 threadsafe xyz.2.0", "x u2.0 threadsafe xyz.2.0 \"\" \"\"\n"}) {
    INFO(text);
    CHECK(must(with(text).find("x")).port.value().device == "two");
    CHECK(with(text).diagnostics().empty());
  }
  const auto repeated = with("x u2.0 threadsafe xyz.2.0\nx u2.0 threadsafe xyz.1.0\n");
  CHECK(must(repeated.find("x")).port.value().device == "two");
  REQUIRE(repeated.diagnostics().size() == 1);
  CHECK(repeated.diagnostics()[0].message() == "ov:2:1: a second override for x: the first counts");

  const auto unknown = with("x u2.0 threadsafe zzz.9.9");
  CHECK(failure(unknown, "x") == dat::error(type::provider_not_found, subtype::name_not_registered));
  CHECK(must(unknown.find("y")).port.value().device == "one");
  REQUIRE(unknown.diagnostics().size() == 1);
  CHECK(unknown.diagnostics()[0].column == 19);
  CHECK(must(with("x u2.0 nonthreadsafe xyz.2.0").find("x")).port.value().device == "one");
}

TEST_CASE("DAT_OVERRIDE may hold whole entries, which come before the system's", "[registry][CONF-028]") {
  const auto c =
      dat::conf::parse(line("x", "one"), "sys", line("x", "two") + "y u2.0 threadsafe acme.2.0\n" + line("z"), "ov");
  const dat::registry r({port("one", 1, ""), port("two", 1, "")}, c);
  CHECK(must(r.find("x")).port.value().device == "two");
  CHECK(must(r.find("x")).origin == "ov:1");
  CHECK(must(r.find("z")).origin == "ov:3");
  REQUIRE(r.diagnostics().size() == 1); // the name `y` has no provider to choose from
  CHECK(r.diagnostics()[0].line == 2);
  // An entry that is no default is complete as well: a line of the same file chooses it by its version.
  const dat::registry chosen(
      {port("one", 1, ""), port("two", 1, "")},
      dat::conf::parse(line("x", "one"), "sys",
                       line("x", "two", "u2.0", "threadsafe", "nondefault", "xyz.2.0") + "x u2.0 threadsafe xyz.2.0\n",
                       "ov"));
  CHECK(must(chosen.find("x")).port.value().device == "two");
  CHECK(chosen.diagnostics().empty());
}

TEST_CASE("a missing file gives a diagnostic, and the other file still counts", "[registry][CONF-001][CONF-023]") {
  const override_file file(line("x"));
  const auto good = dat::conf::read(file.path());
  CHECK(good.entries.size() == 1);
  CHECK(good.diagnostics.empty());
  const auto c = dat::conf::read(file.path(), file.path() + ".missing");
  CHECK(c.entries.size() == 1);
  REQUIRE(c.diagnostics.size() == 1);
  CHECK(c.diagnostics[0].message().starts_with(file.path() + ".missing: ENOENT"));
  DEVIATES("REG-038");
  // Without any file, the relations that the devices report are still available.
  const dat::registry bare({port("one", 1, "", 5), port("one", 2, "", 5)}, dat::conf::read(file.path() + ".missing"));
  CHECK(must(bare.related("one", "one/2")) == dat::ha_relationship::related);
  DEVIATES("REG-043");
}

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

TEST_CASE("a provider is found by name, major version, minor version and thread safety",
          "[registry][REG-026][REG-027][REG-028][VER-005][VER-008][ERR-037]"
          "[REQ-017]") {
  const dat::registry r({port("dev", 1, "")}, dat::conf::parse(line("x", "dev", "u2.3") + line("x", "dev", "u2.0") +
                                                               line("x", "dev", "u2.5", "nonthreadsafe") +
                                                               line("x", "dev", "u3.1", "nonthreadsafe")));
  const auto minor = [&](std::uint16_t major, std::uint16_t least, std::optional<bool> safe = {}) {
    return must(r.find("x", {major, least, safe})).api_minor;
  };
  CHECK(minor(2, 0) == 0);
  CHECK(minor(2, 1) == 3);
  CHECK(minor(2, 3, true) == 3);
  CHECK(minor(2, 4) == 5);
  CHECK(minor(2, 0, false) == 5);
  CHECK(minor(3, 0) == 1);
  CHECK(failure(r, "y") == dat::error(type::provider_not_found, subtype::name_not_registered));
  CHECK(failure(r, "x", {1, 0}) == dat::error(type::provider_not_found, subtype::major_not_found));
  CHECK(failure(r, "x", {2, 6}) == dat::error(type::provider_not_found, subtype::minor_not_found));
  CHECK(failure(r, "x", {2, 4, true}) == dat::error(type::provider_not_found, subtype::thread_safety_not_found));
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

TEST_CASE("an ia opens by the name that dat.conf gives it",
          "[registry][ia][REG-002][REG-020][REG-060][REG-063][CONF-002][CONF-020][ERR-022]"
          "[REQ-017]") {
  fake::reset();
  CHECK(dat::ia::open("site-name", manual).error().subtype() == subtype::name_not_registered);
  {
    const override_file file(line("site-name", "fk2 1") + line("by-address", "10.99.1.1 0") + line("gone", "nosuch 1") +
                             line("old", "fk2 1", "u1.2") + line("legacy", "fk1", "u2.0", "nonthreadsafe") +
                             line("fk1", "fk2 1") + line("\"slash/ed\"", "fd99:2::1"));
    CHECK(must(dat::ia::open("site-name", manual)).name() == "fk2");
    CHECK(must(dat::ia::open("by-address", manual)).name() == "fk1");
    CHECK(must(dat::ia::open("legacy", manual)).name() == "fk1");
    CHECK(must(dat::ia::open("slash/ed", manual)).name() == "fk2");
    CHECK(must(dat::ia::open("fk1", manual)).name() == "fk1"); // a device's own name always names the device
    const auto interface = must(dat::list_devices()).at(1).interface;
    CHECK(dat::ia::open("gone", manual).error() == dat::error(type::insufficient_resources, subtype::resource_device));
    CHECK(dat::ia::open("old", manual).error() == dat::error(type::provider_not_found, subtype::major_not_found));
    CHECK(dat::ia::open("other", manual).error() == dat::error(type::provider_not_found, subtype::name_not_registered));
    const override_file by_interface(line("by-interface", interface));
    CHECK(must(dat::ia::open("by-interface", manual)).name() == "fk2");

    const auto host = must(dat::registry::system());
    CHECK(must(host.find("by-interface")).port.value().device == "fk2");
    CHECK(host.diagnostics().empty());
  }
  CHECK(dat::ia::open("site-name", manual).error().subtype() == subtype::name_not_registered);
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

TEST_CASE("a registry has room for a hundred names", "[registry][REG-024]") {
  dat::registry r({});
  for (int i = 0; i < 100; ++i) must(r.add({.name = "n" + std::to_string(i)}));
  CHECK(r.list().size() == 100);
  CHECK(must(r.find("n99")).name == "n99");
}

TEST_CASE("an ia is opened by name, version and thread safety", "[registry][ia][REG-026][IA-017][REQ-018]") {
  fake::reset();
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
  // The names in use are counted beside later additions, and in a registry that was moved from.
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
