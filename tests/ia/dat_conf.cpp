// dat.conf and DAT_OVERRIDE: fields, quotes, diagnostics, defaults.
// SPDX-License-Identifier: BSL-1.0
#include "dat_conf_lines.hpp"
#include "world.hpp"

#include <dat/registry.hpp>

namespace {

using namespace unit;
using type = dat::return_type;
using subtype = dat::return_subtype;

/// The column of the only diagnostic of a text; 0 when there is none or several.
std::uint32_t fault_column(const std::string& text) {
  const auto c = dat::conf::parse(text);
  return c.diagnostics.size() == 1 && c.entries.empty() ? c.diagnostics[0].column : 0;
}

template <class T>
constexpr bool has_platform_data = requires(const T& t) {
  t.platform_data;
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
  for (const auto* text : {"x u2.0 threadsafe xyz.02.00", "x u2.0 threadsafe \"xyz.2.0\""}) { // the same version
    INFO(text);
    CHECK(must(with(text).find("x")).port.value().device == "two");
    CHECK(with(text).diagnostics().empty());
  }
  // Comments, quotes, words and numbers are those of dat.conf.
  const auto written = with("# of this host\n\n\"x\" u2.0\tthreadsafe xyz.2.0 # the second\n");
  CHECK(must(written.find("x")).port.value().device == "two");
  CHECK(written.diagnostics().empty());
  for (const auto& [text, column] :
       {std::pair{"x u2 threadsafe xyz.2.0", 3u}, std::pair{"x u2.0 threadsafeX xyz.2.0", 8u},
        std::pair{"x u2.0 threadsafe xyz.2", 19u}, std::pair{"\"x\\n\" u2.0 threadsafe xyz.2.0", 3u}}) {
    INFO(text);
    const auto malformed = with(text);
    CHECK(must(malformed.find("x")).port.value().device == "one");
    REQUIRE(malformed.diagnostics().size() == 1);
    CHECK(malformed.diagnostics()[0].column == column);
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
