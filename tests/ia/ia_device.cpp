// Adapters on a device: opened by address, name, route and interface, several times, with manual progress.
// SPDX-License-Identifier: BSL-1.0
#include "open_adapters.hpp"
#include "support.hpp"

#include <dat/registry.hpp>

#include <algorithm>
#include <filesystem>
#include <poll.h>
#include <unistd.h>

namespace device {

TEST_CASE("an adapter opens by address, by name, and as the host's first", "[ia][IA-076]"
                                                                           "[IA-019]") {
  auto by_address = open_first();
  CHECK(by_address.address() == addresses()[0].with_port(0));
  CHECK(by_address);
  REQUIRE_FALSE(by_address.name().empty());
  const std::string name(by_address.name());

  auto by_name = must(dat::ia::open(name));
  CHECK(by_name.name() == name);
  CHECK(by_name.native_handle() != by_address.native_handle());
  auto by_port = must(dat::ia::open(name + "/1"));
  CHECK(by_port.name() == name);
  CHECK(must(by_address.query()).adapter_name.view() == name);
  CHECK(must(by_name.query()).adapter_name.view() == name);
  CHECK(must(by_port.query()).adapter_name.view() == name + "/1");
  CHECK(must(by_port.query()).device_name.view() == name);
  CHECK(must(by_port.query()).port == 1);
  SHOWS("IA-072", "REQ-007");
  must(by_name.close()); // the other ias of the device stay open
  CHECK_FALSE(by_name);
  for (auto* open : {&by_address, &by_port}) CHECK(open->create_pz());
  by_name = must(dat::ia::open(name));
  CHECK(by_name.create_pz());
  SHOWS("REQ-007");

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

TEST_CASE("several opens of one adapter are independent of each other", "[ia][IA-001][IA-046][REQ-008]") {
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
