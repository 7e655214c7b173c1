// Adapters: every way to open them, both ways to close them, and handles that outlive them.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <dat/csp.hpp>
#include <dat/registry.hpp>
#include <dat/rmr.hpp>
#include <dat/rsp.hpp>
#include <dat/srq.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace device {
namespace {

dat::ia open_first() { return must(dat::ia::open(addresses()[0])); }

} // namespace

TEST_CASE("an adapter opens by address, by name, and as the host's first", "[ia][IA-076]"
                                                                           "[IA-019]") {
  const auto by_address = open_first();
  CHECK(by_address.address() == addresses()[0].with_port(0));
  CHECK(by_address);
  REQUIRE_FALSE(by_address.name().empty());
  const std::string name(by_address.name());

  const auto by_name = must(dat::ia::open(name));
  CHECK(by_name.name() == name);
  CHECK(by_name.native_handle() != by_address.native_handle());
  const auto by_port = must(dat::ia::open(name + "/1"));
  CHECK(by_port.name() == name);
  CHECK(must(by_address.query()).adapter_name.view() == name);
  CHECK(must(by_name.query()).adapter_name.view() == name);
  CHECK(must(by_port.query()).adapter_name.view() == name + "/1");
  CHECK(must(by_port.query()).device_name.view() == name);
  CHECK(must(by_port.query()).port == 1);
  SHOWS("IA-072", "REQ-007");

  const auto first = must(dat::ia::open());
  CHECK_FALSE(first.name().empty());
  CHECK_FALSE(first.address().is_any());
}

TEST_CASE("an adapter opens by its IPv6 address", "[ia]") {
  const auto ia = open_first();
  const auto v6 = ia.address(dat::address_family::ipv6);
  if (!v6) SKIP("the adapter has no IPv6 address");
  const auto again = must(dat::ia::open(v6.assume_value()));
  CHECK(again.name() == ia.name());
  CHECK(must(again.address(dat::address_family::ipv6)) == v6.assume_value());
}

TEST_CASE("an adapter opens by the route to a host", "[ia]") {
  if (!in_lab()) SKIP("which adapter leads where is known in the lab only");
  const auto ia = must(dat::ia::open_by_route(addresses()[1].host_string()));
  CHECK(ia.name() == open_first().name());
  CHECK(ia.address() == addresses()[0]);

  // TEST-NET-1 (RFC 5737) has no route.
  const auto nowhere = error_of(dat::ia::open_by_route("192.0.2.1", {}, 200ms));
  CHECK(nowhere == dat::error(type::invalid_address, subtype::address_unreachable));
  SHOWS("ERR-039");
  CHECK(nowhere.verb() == "rdma_resolve_addr");
  CHECK(nowhere.sys_errno() != 0);
}

namespace {
/// The name of one of the lab's adapters.
std::string rx(int n) { return (this_device().name == "siw" ? "siw" : "rx") + std::to_string(n); }
} // namespace

TEST_CASE("names, interfaces and addresses lead to adapters, and adapters to names",
          "[ia][registry][NAME-002][NAME-013][NAME-014][REQ-171][REQ-172]") {
  if (!in_lab()) SKIP("which names there are is known in the lab only");
  for (const int n : {1, 2}) { // each link of the pair
    const std::string device = rx(n);
    const std::string host = "10.78." + std::to_string(n) + ".1";
    const std::string six = "fd00:78:" + std::to_string(n) + "::1";
    const auto address = must(dat::ia_address::parse(host));
    CHECK(must(dat::find_adapter(address)) == device);
    CHECK(must(dat::find_adapter(must(dat::ia_address::parse("::ffff:" + host)))) == device);
    CHECK(must(dat::find_adapter(must(dat::ia_address::parse(six)))) == device);
    CHECK(must(dat::find_adapter_on("v" + std::to_string(n))) == device);
    // The adapter that reaches a peer's address is at the other end of the wire.
    const std::string partner = rx(3 - n);
    CHECK(must(dat::find_adapter_reaching(host)) == partner);
    CHECK(must(dat::find_adapter_reaching(six)) == partner);
    CHECK(must(dat::find_adapter_reaching(device)) == partner); // the lab's resolver knows the devices' names
    const auto resolved = must(dat::resolve(device));
    CHECK(std::count(resolved.begin(), resolved.end(), address) == 1);
    CHECK(must(dat::host_name(address)) == "rx" + std::to_string(n));
    SHOWS("NAME-001", "NAME-006");
  }
  CHECK(error_of(dat::find_adapter_on("lo")) == dat::error(type::invalid_address, subtype::address_unreachable));

  // Connects by a name, and by an IPv4 address in the form of IPv6.
  two_sides link;
  auto active = link.a.make_ep();
  auto passive = link.b.make_ep();
  for (const auto& to :
       {must(dat::resolve("rx2"))[0], must(dat::ia_address::parse("::ffff:" + addresses()[1].host_string()))}) {
    must(active.connect(to, link.port(), patience));
    must(link.at_b<dat::connection_request>().accept(passive));
    (void)link.at_a<dat::established>();
    (void)link.at_b<dat::established>();
    CHECK(must(active.remote_address()).with_port(0) == addresses()[1]);
    SHOWS("NAME-016"); // a connect that succeeds has reached the address
    link.disconnect(active, passive);
    must(active.reset());
    must(passive.reset());
  }
}

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

namespace {
/// Whether this process has a device open.
bool has_device() {
  for (const auto& e : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(e.path(), gone).string().starts_with("/dev/infiniband/")) return true;
  }
  return false;
}
int look_role(channel& to, const std::vector<std::string>& args) {
  const auto say = [&](bool yes) { to.say(yes ? "device" : "none"); };
  say(has_device());
  auto ia = must(dat::ia::open(args.at(0)));
  say(has_device());
  return 0;
}
const role look_registered("look", &look_role);
} // namespace

TEST_CASE("a process has no device open before it opens an adapter", "[ia][registry][REQ-002][REQ-016][REG-030]") {
  peer_process peer("look", {std::string(open_first().name())});
  CHECK(peer.hear() == "none"); // although the program contains all of dat
  CHECK(peer.hear() == "device");
  CHECK(peer.wait() == 0);
}

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
  std::ofstream(local) << "site u2.0 threadsafe two.2.0\n"
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
  auto registry = must(dat::registry::system());
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
  must(registry.add({.name = "ours", .port = must(registry.find(rx(2))).port}));
  CHECK(opened_as("ours") == "name_not_registered"); // another process opens it, and has a registry of its own
  SHOWS("REQ-016");
}

TEST_CASE("opening a missing adapter fails and leaves nothing behind", "[ia][IA-003][IA-004][IA-016]") {
  (void)open_first(); // loads the libraries before the count
  const auto before = resources::now();

  const auto unknown = error_of(dat::ia::open("no-such-adapter"));
  CHECK(unknown == dat::error(type::provider_not_found, subtype::name_not_registered));
  CHECK_THAT(unknown.message(), support::starts_with_text("ia.open"));
  CHECK_THAT(unknown.message(), support::contains_text("No RDMA device of that name"));

  const std::string name(open_first().name());
  CHECK(error_of(dat::ia::open(name + "/200")).type() == type::provider_not_found);
  for (const std::string& bad :
       {std::string(), name + "/0", name + "/x", name + "/1x", name + "/256", std::string("/1"), std::string(256, 'x')})
    CHECK(error_of(dat::ia::open(bad)) == dat::error(type::invalid_parameter, subtype::arg1));
  CHECK(error_of(dat::ia::open(std::string(255, 'x'))).type() == type::provider_not_found);

  for (const char* text : {"192.0.2.1", "127.0.0.1", "0.0.0.0", "2001:db8::1"}) {
    INFO(text);
    const auto e = error_of(dat::ia::open(must(dat::ia_address::parse(text))));
    CHECK(e == dat::error(type::invalid_address, subtype::address_unreachable));
    CHECK_THAT(e.message(), support::contains_text("must be one of this host"));
  }
  CHECK(error_of(dat::ia::open(must(dat::ia_address::parse("192.0.2.1")))).sys_errno() != 0);

  CHECK(resources::no_more_than(before));
}

TEST_CASE("several opens of one adapter are independent of each other", "[ia][IA-001][IA-046][EVENT-006][REQ-008]"
                                                                        "[REQ-159]") {
  side one(open_first(), 64);
  side two(open_first(), 64);
  CHECK(one.ia.native_handle() != two.ia.native_handle());

  // Objects of one ia cannot be used with the other.
  CHECK(error_of(one.pz.create_ep<dat::rc>(two.evd)) == dat::error(type::invalid_handle, subtype::handle_evd_recv));
  CHECK(error_of(one.ia.create_psp(next_port(), two.evd)) == dat::error(type::invalid_handle, subtype::handle_evd_cr));

  // The two can connect to each other, while a third one is opened and closed.
  const auto port = next_port();
  const auto psp = must(two.ia.create_psp(port, two.evd));
  auto active = one.make_ep();
  auto passive = two.make_ep();
  must(active.connect(two.ia.address(), port, patience));
  {
    side three(open_first(), 64);
    const auto unused = three.make_ep();
    must(three.ia.close());
  }
  must(must(two.evd.wait_for<dat::connection_request>(patience)).accept(passive));
  (void)next<dat::established>(one.evd);
  (void)next<dat::established>(two.evd);
  must(passive.post(dat::recv{}));
  {
    side three(open_first(), 64);
    must(three.ia.close());
  }
  must(active.post(dat::send{}));
  (void)next<dat::send_done>(one.evd);
  (void)next<dat::recv_done>(two.evd);
}

TEST_CASE("a graceful close is refused while objects exist", "[ia][EVD-015][IA-034][IA-037][REQ-005]") {
  NEEDS_FEATURE(windows);
  auto ia = open_first();
  const auto refused = [&] {
    const auto e = error_of(ia.close(dat::close_mode::graceful));
    CHECK(e == dat::error(type::invalid_state, subtype::ia_in_use));
    CHECK_THAT(e.message(), support::starts_with_text("ia.close"));
    CHECK(ia);
  };
  auto cno = must(ia.create_cno());
  refused();
  must(cno.close());
  auto unconfigured = must(ia.create_ep<dat::rc>());
  refused();
  must(unconfigured.close());
  auto pz = must(ia.create_pz());
  refused();
  auto evd = must(ia.create_evd<all_streams>(16));
  must(pz.close());
  refused();
  pz = must(ia.create_pz()); // the adapter works after a refusal
  auto psp = must(ia.create_psp(next_port(), evd));
  auto ep = must(pz.create_ep<dat::rc>(evd));
  std::array<std::byte, 64> bytes{};
  auto lmr = must(pz.register_memory(bytes, all_rights));

  // Users are closed before the objects that they use.
  CHECK(error_of(evd.close()) == dat::error(type::invalid_state, subtype::evd_in_use));
  CHECK(error_of(pz.close()) == dat::error(type::invalid_state, subtype::pz_in_use));
  SHOWS("ERR-034");
  must(psp.close());
  refused();
  const auto keeps_its_evd = [&](auto service_point, auto& requests) {
    CHECK(error_of(requests.close()) == dat::error(type::invalid_state, subtype::evd_in_use));
    must(service_point.close());
    CHECK(requests.close().has_value());
  };
  auto of_rsp = must(ia.create_evd<dat::stream::connection_requests>(4));
  keeps_its_evd(must(ia.create_rsp(next_port(), ep, of_rsp)), of_rsp);
  auto of_csp = must(ia.create_evd<dat::stream::connection_requests>(4));
  keeps_its_evd(must(ia.create_csp({.domain = AF_INET, .type = SOCK_STREAM}, of_csp)), of_csp);
  must(ep.close());
  must(evd.close());
  CHECK(error_of(pz.close()) == dat::error(type::invalid_state, subtype::pz_in_use));
  must(lmr.close());
  const auto keeps_the_zone = [&](auto object) {
    CHECK(error_of(pz.close()) == dat::error(type::invalid_state, subtype::pz_in_use));
    must(object.close());
  };
  keeps_the_zone(must(pz.create_rmr()));
  keeps_the_zone(must(pz.create_srq()));
  must(pz.close());
  CHECK(error_of(ia.close(static_cast<dat::close_mode>(2))) == dat::error(type::invalid_parameter, subtype::arg2));
  CHECK(ia);
  must(ia.close(dat::close_mode::graceful));
  CHECK_FALSE(ia);
  CHECK(error_of(ia.close()) == dat::error(type::invalid_handle, subtype::handle_ia));
  SHOWS("IA-042");
  const auto next_one = open_first(); // the new ia does not make the closed handle valid again
  CHECK(error_of(ia.create_pz()) == dat::error(type::invalid_handle, subtype::handle_ia));
  CHECK(ia != next_one);
}

TEST_CASE("every handle returns invalid_handle after an abrupt close",
          "[ia][IA-030][IA-031][IA-043][REQ-004][LMR-040][PZ-008][PSP-040][EP-041][EVD-017]"
          "[IA-038]") {
  (void)open_first();
  const auto before = resources::now();
  {
    connected_pair link;
    buffer memory(link.a.pz, 4096);
    auto& [ia, pz, evd] = link.a;
    auto psp = must(ia.create_psp(next_port(), evd));
    must(link.active.post(dat::recv{memory.slice(0, 1024)}));
    const auto whole = memory.slice(0, 1024);

    must(ia.close());
    CHECK_FALSE(ia);

    const auto is_gone = [](const dat::error& e) { return e.type() == type::invalid_handle; };
    CHECK(is_gone(error_of(link.active.post(dat::send{whole}))));
    CHECK(is_gone(error_of(link.active.post(dat::recv{whole}))));
    SHOWS("DTO-071", "DTO-124");
    CHECK(is_gone(error_of(link.active.connect(link.target(), link.port(), 1s))));
    CHECK(is_gone(error_of(link.active.disconnect())));
    CHECK(is_gone(error_of(link.active.reset())));
    CHECK(link.active.native_handle() == nullptr);
    CHECK(is_gone(error_of(memory.lmr.slice(0, 1))));
    CHECK(memory.lmr.size_bytes() == 0);
    CHECK(is_gone(error_of(evd.dequeue())));
    CHECK(is_gone(error_of(evd.wait(0s))));
    CHECK(evd.drain([](const auto&) {}) == 0);
    CHECK(is_gone(error_of(ia.async_evd().dequeue())));
    SHOWS("IA-035");
    CHECK(is_gone(error_of(pz.create_ep<dat::rc>(evd))));
    CHECK(is_gone(error_of(pz.register_memory(memory.bytes, dat::local_read))));
    SHOWS("LMR-028");
    { // The old handles do not name objects that are created later.
      side again(0);
      buffer fresh(again.pz, 64);
      CHECK(is_gone(error_of(pz.register_memory(fresh.bytes, dat::local_read))));
      CHECK(is_gone(error_of(memory.lmr.slice(1, 1))));
      SHOWS("PZ-008", "LMR-040");
    }

    // Closing a handle of an ended object returns an error once; the handle is empty afterwards.
    CHECK(error_of(link.active.close()) == dat::error(type::invalid_handle, subtype::handle_ep));
    CHECK(error_of(memory.lmr.close()) == dat::error(type::invalid_handle, subtype::handle_lmr));
    CHECK(error_of(psp.close()) == dat::error(type::invalid_handle, subtype::handle_psp));
    CHECK(error_of(pz.close()) == dat::error(type::invalid_handle, subtype::handle_pz));
    CHECK(error_of(evd.close()).type() == type::invalid_handle);
    CHECK_FALSE(link.active);

    // The peer is notified.
    (void)next<dat::disconnected>(link.b.evd);
  }
  CHECK(resources::no_more_than(before));
}

TEST_CASE("an abrupt close of the adapter refuses the requests that wait",
          "[ia][PSP-012][CR-017][EVENT-105][EVD-012]") {
  two_sides link;
  auto first = link.a.make_ep();
  auto second = link.a.make_ep();
  must(first.connect(link.target(), link.port(), patience));
  must(second.connect(link.target(), link.port(), patience));
  // One request is held by the consumer, the other is in the evd.
  const auto held = must(link.b.evd.wait(patience, 2));
  REQUIRE(std::holds_alternative<dat::connection_request>(held.first));
  CHECK(held.more == 1);
  SHOWS("EVD-054");
  must(link.b.ia.close());
  (void)next<dat::non_peer_rejected>(link.a.evd);
  (void)next<dat::non_peer_rejected>(link.a.evd);
}

TEST_CASE("handles can be dropped in every order", "[ia][REQ-006][PZ-007][IA-049][EVD-013]"
                                                   "[REG-017]") {
  (void)open_first();
  const auto before = resources::now();
  const auto port = next_port();
  std::array<std::byte, 64> bytes{};
  // The adapter's handle is destroyed before all others, or after them, in turn.
  bool adapter_first = false;
  std::array<int, 5> order{0, 1, 2, 3, 4};
  do {
    adapter_first = !adapter_first;
    dat::ia ia = open_first();
    dat::pz pz = must(ia.create_pz());
    queue evd = must(ia.create_evd<all_streams>(8));
    region lmr = must(pz.register_memory(bytes, all_rights));
    endpoint ep = must(pz.create_ep<dat::rc>(evd, {.max_request_dtos = 1, .max_recv_dtos = 1}));
    dat::psp psp = must(ia.create_psp(port, evd));
    must(ep.post(dat::recv{lmr}));
    if (adapter_first) ia = {};
    for (const int which : order) {
      if (which == 0) pz = {};
      if (which == 1) evd = {};
      if (which == 2) lmr = {};
      if (which == 3) ep = {};
      if (which == 4) psp = {};
    }
    // The dropped handles leave no object for which a graceful close would be refused.
    if (ia) CHECK(ia.close(dat::close_mode::graceful));
  } while (std::next_permutation(order.begin(), order.end()));
  CHECK(resources::no_more_than(before));
}

TEST_CASE("repeated opening, connecting and closing leaves no resource behind",
          "[ia][IA-016][IA-043][REQ-002][REQ-020][EVD-001]"
          "[REG-021][IA-045]") {
  const auto how = GENERATE(dat::progress::automatic, dat::progress::manual);
  const auto flags = GENERATE(dat::close_mode::abrupt, dat::close_mode::graceful);
  const auto threads = [] {
    namespace fs = std::filesystem;
    return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
  };
  (void)open_first();
  const auto before = resources::now();
  const auto threads_before = threads();
  for (int i = 0; i < 5; ++i) {
    connected_pair link({.progress = how, .qlen = 16});
    endpoint third;
    if (flags == dat::close_mode::abrupt) { // with messages under way, queued events and a connect without answer
      for (int n = 0; n < 8; ++n) must(link.passive.post(dat::recv{}));
      for (int n = 0; n < 8; ++n) must(link.active.post(dat::send{}));
      third = link.a.make_ep();
      must(third.connect(link.target(), link.port(), patience));
    } else {
      must(link.active.close());
      must(link.passive.close());
      must(link.psp.close());
      for (side* s : {&link.a, &link.b}) {
        must(s->evd.close());
        must(s->pz.close());
      }
    }
    must(link.a.ia.close(flags));
    must(link.b.ia.close(flags));
  }
  CHECK(resources::no_more_than(before));
  CHECK(comes_true([&] { return threads() <= threads_before; }));
}

TEST_CASE("with manual progress, work is done in calls only, and a descriptor shows when to call", "[ia]") {
  auto automatic = open_first();
  CHECK(automatic.fd() == -1);
  auto manual = must(dat::ia::open(addresses()[0], {.progress = dat::progress::manual}));
  CHECK(manual.fd() >= 0);

  side a(std::move(manual), 64);
  side b(1);
  const auto psp = must(b.ia.create_psp(next_port(), b.evd));
  auto ep = a.make_ep();
  must(ep.connect(b.ia.address(), must(dat::conn_qual::make(psp.port())), patience));
  // The request is sent after its address is resolved, and with manual progress that needs a call.
  pollfd ready{a.ia.fd(), POLLIN, 0};
  REQUIRE(::poll(&ready, 1, 30'000) == 1);
  CHECK(is_empty(b.evd));
  std::optional<dat::connection_request> request;
  while (!request) {
    a.ia.run();
    CHECK(ep.state() == state::active_connection_pending);
    if (auto r = b.evd.wait_for<dat::connection_request>(1ms)) request = std::move(r.assume_value());
  }
  auto passive = b.make_ep();
  must(request->accept(passive));
  REQUIRE(::poll(&ready, 1, 30'000) == 1);
  CHECK(ep.state() == state::active_connection_pending); // the answer has arrived, and no call has read it
  a.ia.run();
  CHECK(ep.state() == state::connected);
  (void)next<dat::established>(a.evd);
  (void)next<dat::established>(b.evd);
}

} // namespace device
