// The limits of dat.conf: characters, numbers and lengths that are read, and those next to them that are refused.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/registry.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace {

using namespace unit;
using type = dat::return_type;
using subtype = dat::return_subtype;

/// An entry of dat.conf with these fields.
std::string entry(const std::string& name, const std::string& api = "u2.0", const std::string& version = "acme.2.0",
                  const std::string& mark = "default", const std::string& instance = "dev") {
  return name + ' ' + api + " threadsafe " + mark + " lib.so " + version + " \"" + instance + "\" \"\"";
}

/// The text has one entry, and no diagnostic.
dat::conf_entry good(const std::string& text) {
  INFO(text);
  const auto c = dat::conf::parse(text, "sys");
  for (const auto& d : c.diagnostics) CHECK(d.message() == "");
  REQUIRE(c.entries.size() == 1);
  return c.entries[0];
}
/// The only diagnostic of a text without an entry.
std::string fault(const std::string& text) {
  INFO(text);
  const auto c = dat::conf::parse(text, "sys");
  CHECK(c.entries.empty());
  REQUIRE(c.diagnostics.size() == 1);
  return c.diagnostics[0].message();
}
/// The only diagnostic of a file that DAT_OVERRIDE names.
std::string override_fault(const std::string& text) {
  INFO(text);
  const auto c = dat::conf::parse({}, "sys", text, "ov");
  CHECK(c.entries.empty());
  REQUIRE(c.diagnostics.size() == 1);
  return c.diagnostics[0].message();
}

/// A temporary file, which DAT_OVERRIDE names while the object exists.
class conf_on_disk {
public:
  explicit conf_on_disk(const std::string& text)
      : path_(std::filesystem::temp_directory_path() / ("dat_conf_test." + std::to_string(::getpid()))) {
    std::ofstream(path_) << text;
    ::setenv("DAT_OVERRIDE", path_.c_str(), 1);
  }
  conf_on_disk(const conf_on_disk&) = delete;
  conf_on_disk& operator=(const conf_on_disk&) = delete;
  ~conf_on_disk() {
    ::unsetenv("DAT_OVERRIDE");
    std::filesystem::remove(path_);
  }
  [[nodiscard]] std::string path() const { return path_.string(); }

private:
  std::filesystem::path path_;
};

} // namespace

TEST_CASE("a process without standard input reads dat.conf by descriptor 0", "[registry]") {
  const conf_on_disk file(entry("a"));
  const int input = ::dup(0);
  REQUIRE(input > 0);
  ::close(0);
  const auto c = dat::conf::read(file.path());
  ::dup2(input, 0);
  ::close(input);
  CHECK(c.diagnostics.empty());
  REQUIRE(c.entries.size() == 1);
  CHECK(c.entries[0].ia_name == "a");
}

TEST_CASE("numbers of dat.conf are below 65536 and have at most five digits", "[registry]") {
  for (const auto& [text, value] :
       {std::pair{"0", 0}, {"9", 9}, {"00001", 1}, {"65535", 65535}, {"09999", 9999}, {"10", 10}}) {
    const std::string digits = text;
    const auto e = good(entry("a", "u" + digits + '.' + digits, "v." + digits + '.' + digits));
    CHECK(e.api_major == value);
    CHECK(e.api_minor == value);
    CHECK(e.version == dat::provider_version{"v", std::uint16_t(value), std::uint16_t(value)});
  }
  for (const auto* text : {"65536", "99999", "000001", "100000", "", "1/", "1:", "/", ":", "-1", " "}) {
    const std::string digits = text;
    CHECK(fault(entry("a", "u" + digits + ".0")) == "sys:1:3: an API version is u or k and major.minor: u2.0");
    if (digits == " ") continue; // a blank ends the field
    CHECK(fault(entry("a", "u0." + digits)) == "sys:1:3: an API version is u or k and major.minor: u2.0");
    const std::string version = "sys:1:34: a provider version is id.major.minor: acme.2.0";
    CHECK(fault(entry("a", "u2.0", "v." + digits + ".0")) == version);
    CHECK(fault(entry("a", "u2.0", "v.0." + digits)) == version);
  }
}

TEST_CASE("the version of a provider has an identifier, which may have dots", "[registry]") {
  CHECK(good(entry("a", "u2.0", "a.b.3.4")).version == dat::provider_version{"a.b", 3, 4});
  CHECK(good(entry("a", "u2.0", "x.3.4")).version == dat::provider_version{"x", 3, 4});
  CHECK(good(entry("a", "u2.0", "..3.4")).version == dat::provider_version{".", 3, 4});
  for (const auto* version : {".", "..", ".1", "1.", ".1.2", "x", "x.1", "\"\""})
    CHECK(fault(entry("a", "u2.0", version)) == "sys:1:34: a provider version is id.major.minor: acme.2.0");
  for (const auto* api : {"\"\"", ".1", "u", "u.", "v2.0", "t2.0", "j2.0", "l2.0"})
    CHECK(fault(entry("a", api)) == "sys:1:3: an API version is u or k and major.minor: u2.0");
  CHECK_FALSE(good(entry("a", "k2.0")).user_level);
}

TEST_CASE("every white space of C separates the fields of dat.conf, and other characters do not", "[registry]") {
  for (const char blank : {' ', '\t', '\v', '\f', '\r'}) {
    std::string text = "a u2.0 threadsafe default lib v.1.0 dev data ";
    for (char& c : text)
      if (c == ' ') c = blank;
    const auto e = good(text);
    CHECK(e.library == "lib");
    CHECK(e.platform_data == "data");
  }
  for (const char other : {'\b', '\x0e', '!', '\x1f'})
    CHECK(good(entry(std::string("a") + other + 'b')).ia_name == std::string("a") + other + 'b');
}

TEST_CASE("a comment of dat.conf may follow a field at once", "[registry]") {
  CHECK(good("a u2.0 threadsafe default lib v.1.0 dev data#comment").platform_data == "data");
  CHECK(good("a u2.0 threadsafe default lib v.1.0 dev \"data\"#comment").platform_data == "data");
  CHECK(fault("a u2.0 threadsafe default lib v.1.0 dev#data") == "sys:1:40: fewer than the eight fields of an entry");
  CHECK(fault("#\na") == "sys:2:2: fewer than the eight fields of an entry");
  CHECK(fault(" a  # a comment") == "sys:1:3: fewer than the eight fields of an entry");
}

TEST_CASE("a quoted field of dat.conf may end the line, and must have its closing quote", "[registry]") {
  const std::string seven = "a u2.0 threadsafe default lib v.1.0 dev ";
  CHECK(good(seven + "\"\"").platform_data.empty());
  CHECK(good(seven + R"("\\")").platform_data == "\\");
  CHECK(good(seven + R"("\"")").platform_data == "\"");
  CHECK(good(seven + R"("x\"y\\z")").platform_data == R"(x"y\z)");
  CHECK(good(seven + "\"x\" ").platform_data == "x");
  for (const auto* open : {"\"", "\"x", "\"\\", "\"\\\"", "\"x\\\\"})
    CHECK(fault(seven + open) == "sys:1:41: no closing quote");
  CHECK(fault(seven + R"("x\y")") == "sys:1:43: only \\\\ and \\\" are escapes");
  CHECK(fault(seven + R"("x"y)") == "sys:1:44: text right after a closing quote");
  CHECK(fault(seven + R"("x""y")") == "sys:1:44: text right after a closing quote");
  CHECK(fault(seven + R"(x"y")") == "sys:1:42: a quote in the middle of a field");
}

TEST_CASE("only entries of version 2.1 and later of the interface have more than eight fields", "[registry]") {
  for (const auto* api : {"u2.1", "u3.0", "u2.65535"}) {
    CHECK(good(entry("a", api) + " x").extra == "x");
    CHECK(good(entry("a", api) + " \"x\" y # z").extra == "\"x\" y");
    CHECK(good(entry("a", api)).extra.empty());
  }
  const std::string more = ": more than the eight fields of an entry";
  for (const auto* api : {"u2.0", "u1.9", "u0.1", "u1.0"}) CHECK(fault(entry("a", api) + "  x") == "sys:1:53" + more);
}

TEST_CASE("lines of dat.conf are counted with the blank ones", "[registry]") {
  CHECK(dat::conf::parse("").entries.empty());
  CHECK(dat::conf::parse("\n").diagnostics.empty());
  CHECK(good("\n\n" + entry("a")).line == 3);
  CHECK(good("# x\n" + entry("a") + "\n\n").line == 2);
  const auto c = dat::conf::parse("\nx\n\n" + entry("a") + "\ny", "sys");
  CHECK(c.entries.at(0).line == 4);
  REQUIRE(c.diagnostics.size() == 2);
  CHECK(c.diagnostics[0].line == 2);
  CHECK(c.diagnostics[1].line == 5);
}

TEST_CASE("a line of DAT_OVERRIDE has four fields, or those of an entry", "[registry]") {
  CHECK(override_fault("a u2.0 threadsafe") == "ov:1:18: fewer than the four fields of an override");
  CHECK(override_fault("a") == "ov:1:2: fewer than the four fields of an override");
  for (const std::string mark : {"default", "nondefault"})
    CHECK(override_fault("a u2.0 threadsafe " + mark) ==
          "ov:1:" + std::to_string(19 + mark.size()) + ": fewer than the eight fields of an entry");
  // A selection of a version that no entry has.
  CHECK(override_fault("a u2.0 threadsafe v.1.0") == "ov:1:19: no entry for a has the provider version v.1.0");
  CHECK(override_fault("a u2.0 threadsafe x") == "ov:1:19: a provider version is id.major.minor: acme.2.0");
  CHECK(override_fault("a u2.0 safe v.1.0") == "ov:1:8: neither threadsafe nor nonthreadsafe");
  CHECK(fault("a u2.0 threadsafe v.1.0 l v.1.0 i p") == "sys:1:19: neither default nor nondefault");
  const auto both = dat::conf::parse({}, "sys", entry("a") + '\n' + entry("b"), "ov");
  CHECK(both.entries.size() == 2);
  CHECK(both.diagnostics.empty());
}

TEST_CASE("a selection of DAT_OVERRIDE counts for its name, version of the interface and thread safety alone",
          "[registry]") {
  const std::string system = entry("x", "u2.0", "v.1.0") + '\n' + entry("x", "u2.0", "v.2.0", "nondefault");
  const auto chosen = [&](const std::string& selection) {
    const auto c = dat::conf::parse(system, "sys", selection, "ov");
    REQUIRE(c.entries.size() == 2);
    CHECK(c.entries[0].chosen != c.entries[1].chosen);
    return c.entries[0].chosen ? 1 : 2;
  };
  CHECK(chosen("") == 1);
  CHECK(chosen("x u2.0 threadsafe v.2.0") == 2);
  CHECK(chosen("\"x\" u2.0 threadsafe \"v.2.0\"") == 2);
  for (const auto* other : {"y u2.0 threadsafe v.2.0", "x u2.0 nonthreadsafe v.2.0", "x u2.1 threadsafe v.2.0",
                            "x u3.0 threadsafe v.2.0", "x k2.0 threadsafe v.2.0", "xx u2.0 threadsafe v.2.0"})
    CHECK(chosen(other) == 1);
  // Several lines: the first one of the same key.
  CHECK(chosen("y u2.0 threadsafe v.1.0\nx u2.0 threadsafe v.2.0\nx u2.0 threadsafe v.1.0") == 2);
}

TEST_CASE("each difference of a selection of DAT_OVERRIDE is a diagnostic", "[registry]") {
  const auto remarks = [](const std::string& overrides) {
    std::string all;
    for (const auto& d : dat::conf::parse(entry("x", "u2.0", "v.1.0"), "sys", overrides, "ov").diagnostics)
      all += d.message() + '\n';
    return all;
  };
  CHECK(remarks("x u2.0 threadsafe v.1.0").empty());
  for (const std::string other :
       {"y u2.0 threadsafe v.1.0", "x k2.0 threadsafe v.1.0", "x u3.0 threadsafe v.1.0", "x u2.1 threadsafe v.1.0"}) {
    const std::string name = other.substr(0, 1);
    CHECK(remarks(other) == "ov:1:19: no entry for " + name + " has the provider version v.1.0\n");
  }
  CHECK(remarks("x u2.0 nonthreadsafe v.1.0") == "ov:1:22: no entry for x has the provider version v.1.0\n");
  for (const auto* version : {"v.1.1", "v.2.0", "w.1.0"})
    CHECK(remarks(std::string("x u2.0 threadsafe ") + version) ==
          std::string("ov:1:19: no entry for x has the provider version ") + version + '\n');
  CHECK(remarks("x u2.0 threadsafe v.1.0\n x u2.0 threadsafe v.1.0") ==
        "ov:2:2: a second override for x: the first counts\n");
  // A fault between two selections is none of them.
  CHECK(remarks("x u2.0 threadsafe v\nx u2.0 threadsafe v.1.0") ==
        "ov:1:19: a provider version is id.major.minor: acme.2.0\n");
}

TEST_CASE("a second default of one file is a remark, and one behind an override's is not", "[registry]") {
  const auto c = dat::conf::parse(entry("x") + '\n' + entry("y") + '\n' + entry("x") + '\n' + entry("x"), "sys");
  REQUIRE(c.entries.size() == 4);
  CHECK(c.entries[0].chosen);
  CHECK(c.entries[1].chosen);
  CHECK_FALSE(c.entries[2].chosen);
  CHECK_FALSE(c.entries[3].chosen);
  REQUIRE(c.diagnostics.size() == 2);
  CHECK(c.diagnostics[0].message() == "sys:3: a second default for x: line 1 counts");
  CHECK(c.diagnostics[1].message() == "sys:4: a second default for x: line 1 counts");
  const auto over = dat::conf::parse(entry("x"), "sys", entry("x"), "ov");
  CHECK(over.diagnostics.empty());
  CHECK(over.entries.at(0).chosen);
  CHECK_FALSE(over.entries.at(1).chosen);
  // An entry that is no default does not count as the first one.
  const auto later = dat::conf::parse(entry("x", "u2.0", "v.1.0", "nondefault") + '\n' + entry("x"), "sys");
  CHECK(later.diagnostics.empty());
  CHECK_FALSE(later.entries.at(0).chosen);
  CHECK(later.entries.at(1).chosen);
}

TEST_CASE("a file of dat.conf is read to its end, up to 16 MiB", "[registry]") {
  const std::string last = '\n' + entry("last");
  for (const std::size_t bytes : {std::size_t{4095}, std::size_t{4096}, std::size_t{4097}, std::size_t{8192},
                                  std::size_t{12 << 20}, (std::size_t{16} << 20) - 1}) {
    CAPTURE(bytes);
    const conf_on_disk file(std::string(bytes - last.size(), '#') + last);
    const auto c = dat::conf::read(file.path());
    CHECK(c.diagnostics.empty());
    REQUIRE(c.entries.size() == 1);
    CHECK(c.entries[0].ia_name == "last");
    CHECK(c.entries[0].file == file.path());
  }
  const conf_on_disk large(entry("first") + '\n' + std::string(std::size_t{16} << 20, '#'));
  const auto c = dat::conf::read(large.path());
  CHECK(c.entries.empty()); // a part of a file is no file
  REQUIRE(c.diagnostics.size() == 1);
  CHECK(c.diagnostics[0].message().starts_with(large.path() + ": EFBIG"));
}

TEST_CASE("a file of dat.conf that cannot be read is a diagnostic, whichever of the two it is", "[registry]") {
  const auto folder = std::filesystem::temp_directory_path().string();
  const auto c = dat::conf::read(folder, "/dev/zero");
  CHECK(c.entries.empty());
  REQUIRE(c.diagnostics.size() == 2);
  CHECK(c.diagnostics[0].message().starts_with(folder + ": EISDIR"));
  CHECK(c.diagnostics[1].message().starts_with("/dev/zero: EFBIG"));
  CHECK(dat::conf::read("", "").diagnostics.empty());
  const auto missing = dat::conf::read("", folder + "/no-such-file");
  REQUIRE(missing.diagnostics.size() == 1);
  CHECK(missing.diagnostics[0].message().starts_with(folder + "/no-such-file: ENOENT"));
}

TEST_CASE("the instance data of an entry has at most 256 characters, blanks at its ends included", "[registry][ia]") {
  const clean_world world;
  const auto opens = [](const std::string& instance) {
    const conf_on_disk file(entry("long", "u2.0", "acme.2.0", "default", instance));
    return dat::ia::open("long", manual);
  };
  CHECK(must(opens(std::string(253, ' ') + "fk2")).name() == "fk2");
  CHECK(must(opens("fk2" + std::string(253, ' '))).name() == "fk2");
  CHECK(must(opens("fk2\t \t1")).name() == "fk2");
  CHECK(must(opens("fk2 0")).name() == "fk2");
  CHECK(must(opens("10.99.1.1 1")).name() == "fk1");
  const dat::error absent(type::insufficient_resources, subtype::resource_device);
  CHECK(opens("fk2" + std::string(254, ' ')).error() == absent);
  for (const auto* instance : {"", " ", "fk2 2", "fk2 255", "fk2 256", "fk2 x", "fk2 1 1", "10.99.1.1 2", "10.99.9.9"})
    CHECK(opens(instance).error() == absent);
}

TEST_CASE("the versions of a selection may have 256 characters", "[registry]") {
  const auto selects = [](std::size_t characters) {
    const std::string version = std::string(characters - 4, 'v') + ".1.0";
    const auto c = dat::conf::parse(entry("x", "u2.0", version, "nondefault"), "sys", "x u2.0 threadsafe " + version);
    return c.entries.at(0).chosen;
  };
  CHECK(selects(255));
  CHECK(selects(256));
}
