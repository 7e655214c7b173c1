// Adapters of a process that reads dat.conf and DAT_OVERRIDE.
// SPDX-License-Identifier: BSL-1.0
#include "open_adapters.hpp"
#include "support.hpp"

#include <dat/registry.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <unistd.h>

namespace device {
namespace {

/// The first call of this process opens an adapter by name.
int open_name_role(channel& to, const std::vector<std::string>& args) {
  const auto ia = dat::ia::open(args.at(0));
  to.say(ia ? std::string(ia.assume_value().name()) : std::string(to_string(ia.assume_error().subtype())));
  return 0;
}
const role open_name_registered("open name", &open_name_role);

std::string opened_as(const std::string& name) { return peer_process("open name", {name}).hear(); }

} // namespace

TEST_CASE("the first call of a process opens an adapter by device name, or by a name of dat.conf",
          "[ia][registry][REG-067][CONF-004][REQ-017][REG-002][REG-063]") {
  const std::string device(open_first().name());
  CHECK(opened_as(device) == device);
  if (!in_lab()) SKIP("writes /etc/dat.conf");                 // the lab discards its file system
  for (const int n : {1, 2}) CHECK(opened_as(rx(n)) == rx(n)); // each adapter has its name from the start
  const char* const places[] = {"/etc/dat.conf", "/etc/rdma/dat.conf"};
  const std::string line = " u2.0 threadsafe default libdaplofa.so.2 dapl.2.0 \"v2 0\" \"\"\n";
  CHECK(opened_as("site-name") == "name_not_registered");
  (void)!std::system("mkdir -p /etc/rdma");
  for (const char* file : places) {
    INFO(file);
    std::ofstream(file) << "site-name" << line;
    CHECK(opened_as("site-name") == rx(2));
    ::unlink(file);
  }
  // When both files exist, the first one counts.
  std::ofstream(places[0]) << "first" << line;
  std::ofstream(places[1]) << "second" << line;
  CHECK(opened_as("first") == rx(2));
  CHECK(opened_as("second") == "name_not_registered");
  for (const char* file : places) ::unlink(file);
}

TEST_CASE("a process reads dat.conf and the file of DAT_OVERRIDE when it opens an adapter", "[ia][registry]") {
  if (!in_lab()) SKIP("writes /etc/dat.conf"); // the lab discards its file system
  constexpr const char* system = "/etc/dat.conf";
  constexpr const char* local = "/tmp/dat-override.conf";
  const struct at_end {
    ~at_end() {
      ::unsetenv("DAT_OVERRIDE");
      ::unlink(system);
      ::unlink(local);
    }
  } at_end;
  // A comment, a line that is malformed, fields in quotes, a library that does not exist, and a device that is absent.
  std::ofstream(system) << "# names of this site\n\n \t\nnonsense\n"
                           "site u2.0 threadsafe default libdaplofa.so.2 one.2.0 \"v1 0\" \"\" # the first link\n"
                           "site u2.0 threadsafe nondefault libdaplofa.so.2 two.2.0 \"v2 0\" \"\"\n"
                           "device u2.0 threadsafe default libdaplofa.so.2 one.2.0 "
                        << rx(2)
                        << " \"\"\n"
                           "address u2.0 threadsafe default libdaplofa.so.2 one.2.0 10.78.2.1 \"\"\n"
                           "absent u2.0 threadsafe default libdaplofa.so.2 one.2.0 \"nosuch 1\" \"\"\n";
  CHECK(opened_as("site") == rx(1));
  SHOWS("CONF-001", "CONF-005", "CONF-006", "CONF-007", "CONF-013", "CONF-014", "CONF-022");
  CHECK(opened_as("device") == rx(2));
  CHECK(opened_as("address") == rx(2));
  SHOWS("CONF-016", "NAME-014");
  CHECK(opened_as("absent") == "resource_device");
  SHOWS("CONF-020", "ERR-031");
  // DAT_OVERRIDE: a line that chooses another version of the provider, and whole entries, with and without the mark.
  std::ofstream(local) << "# of this process\n\"site\" u2.0\tthreadsafe two.2.0 # the second link\n"
                          "own u2.0 threadsafe default libdaplofa.so.2 one.2.0 \"v1 0\" \"\"\n"
                          "device u2.0 threadsafe default libdaplofa.so.2 one.2.0 "
                       << rx(1)
                       << " \"\"\n"
                          "address u2.0 threadsafe nondefault libdaplofa.so.2 four.2.0 "
                       << rx(1)
                       << " \"\"\n"
                          "address u2.0 threadsafe four.2.0\n";
  ::setenv("DAT_OVERRIDE", local, 1);
  CHECK(opened_as("site") == rx(2));
  SHOWS("CONF-002", "CONF-013", "CONF-023", "CONF-024", "REG-060", "REQ-017");
  CHECK(opened_as("own") == rx(1));
  CHECK(opened_as("device") == rx(1)); // this entry comes before the entry of the system
  CHECK(opened_as("address") == rx(1));
  SHOWS("CONF-028");
  // A line is valid for one version and one thread safety, and may have more fields.
  std::ofstream(local) << "site u2.0 nonthreadsafe two.2.0\nsite u1.2 threadsafe two.2.0\n";
  CHECK(opened_as("site") == rx(1));
  std::ofstream(local) << "site u2.0 threadsafe two.2.0 \"\" \"\"\n";
  CHECK(opened_as("site") == rx(2));
  SHOWS("CONF-024");
  std::ofstream(local) << "site u2.0 threadsafe zzz.9.9\n";
  CHECK(opened_as("site") == "name_not_registered");
  CHECK(opened_as("device") == rx(2));
  const auto remarks = must(dat::registry::system()).diagnostics();
  CHECK(std::ranges::count(remarks, std::string(local), &dat::conf_diagnostic::file) == 1);
  SHOWS("CONF-027");
  ::unlink(local);
  CHECK(opened_as("site") == rx(1));
  SHOWS("CONF-023"); // the file is missing
  std::ofstream(local) << "site u2.0 threadsafe two.2.0\n";
  ::unsetenv("DAT_OVERRIDE");
  CHECK(opened_as("site") == rx(1)); // the file is there, and no variable names it
  SHOWS("REG-060", "CONF-002");
  std::ofstream(system) << "other u2.0 threadsafe default libdaplofa.so.2 one.2.0 \"v2 0\" \"\"\n";
  CHECK(opened_as("other") == rx(2));
  SHOWS("REG-059");
  CHECK(opened_as("site") == "name_not_registered");
  SHOWS("REG-071");
}

TEST_CASE("entries of a host's dat.conf are kept field by field, chosen by their words, and refused one by one",
          "[ia][registry]") {
  if (!in_lab()) SKIP("writes /etc/dat.conf"); // the lab discards its file system
  constexpr const char* system = "/etc/dat.conf";
  const struct at_end {
    ~at_end() { ::unlink(system); }
  } at_end;
  std::ofstream(system) << "site u2.0 threadsafe default /no/such/lib.so com.acme.2.13 \"v1 0\" \"site data\"\n"
                           "site u2.0 nonthreadsafe default other.so xyz.5.1 \"v2 0\" \"\"\n"
                           "seven u1.2 threadsafe default lib y.1.0 \"v1 0\"\n"
                           "nine u2.0 threadsafe default lib y.1.0 \"v1 0\" \"\" more\n"
                           "word u2.0 threadsafeX default lib y.1.0 \"v1 0\" \"\"\n"
                           "mark u2.0 threadsafe Default lib y.1.0 \"v1 0\" \"\"\n"
                           "version u2.0 threadsafe default lib xyz.5 \"v1 0\" \"\"\n"
                           "number u2.0 threadsafe default lib xyz.5.x \"v1 0\" \"\"\n"
                           "twice\tu2.0\tthreadsafe \t default lib y.1.0 \"v1 0\"\t\"\"\n"
                           "twice u2.0 threadsafe default lib y.2.0 \"v2 0\" \"\"\n"
                           "never u2.0 threadsafe nondefault lib y.1.0 \"v1 0\" \"\"\n";
  const auto read = dat::conf::system();
  REQUIRE(read.entries.size() == 5);
  const auto& first = read.entries[0];
  CHECK((first.ia_name == "site" && first.library == "/no/such/lib.so" && first.instance_data == "v1 0"));
  SHOWS("REG-073", "CONF-014");
  CHECK((first.user_level && first.api_major == 2 && first.api_minor == 0 && first.thread_safe && first.is_default));
  CHECK(first.version == dat::provider_version{"com.acme", 2, 13});
  CHECK(first.platform_data == "site data");
  SHOWS("CONF-003");
  CHECK_FALSE(read.entries[1].thread_safe);
  CHECK(read.entries[1].version == dat::provider_version{"xyz", 5, 1});
  dat::registry registry(must(dat::list_devices()), read); // of its own: the names below are not left in the process
  std::vector<std::uint32_t> refused;
  for (const auto& d : registry.diagnostics()) refused.push_back(d.line);
  CHECK(refused == std::vector<std::uint32_t>{3, 4, 5, 6, 7, 8, 10, 11});
  SHOWS("CONF-009", "CONF-012", "CONF-015");
  // Of two defaults the first one counts, and a name without a default cannot be opened.
  CHECK(opened_as("twice") == rx(1));
  CHECK(opened_as("never") == "name_not_registered");
  SHOWS("CONF-009", "CONF-013");
  for (const auto* name : {"seven", "word", "version"}) CHECK(opened_as(name) == "name_not_registered");
  // Both versions of a name are listed, and the consumer chooses one of them by its words.
  CHECK(std::ranges::count(registry.list(), "site", &dat::provider_info::name) == 2);
  const auto safe_site = [](const dat::provider_info& p) { return p.name == "site" && p.thread_safe; };
  CHECK(std::ranges::count_if(registry.list(), safe_site) == 1);
  CHECK(must(registry.open("site", {2, 0, true})).name() == rx(1));
  CHECK(must(registry.open("site", {2, 0, false})).name() == rx(2));
  CHECK(error_of(registry.find("site", {2, 4})).subtype() == subtype::minor_not_found);
  must(registry.add({.name = "site", .api_minor = 4, .thread_safe = true, .port = must(registry.find(rx(2))).port}));
  CHECK(must(registry.open("site", {2, 4})).name() == rx(2)); // the program has added this entry
  SHOWS("REG-007", "REQ-017", "REQ-018");
  auto of_process = must(dat::registry::system());
  must(of_process.add({.name = "ours", .port = must(registry.find(rx(2))).port}));
  CHECK(must(dat::ia::open("ours")).name() == rx(2));
  CHECK(opened_as("ours") == "name_not_registered"); // another process opens it, and has a registry of its own
  DEVIATES("REQ-015");
  SHOWS("REQ-016");
  must(of_process.remove("ours"));
}

} // namespace device
