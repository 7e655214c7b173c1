// Service points of every kind, handoff, endpoints that are configured late, second connections: on a device.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "link_local.hpp"

#include <dat/csp.hpp>
#include <dat/ep_params.hpp>
#include <dat/rsp.hpp>

#include <support/connection_fuzz.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <net/if.h>
#include <netinet/in.h>
#include <set>
#include <sys/socket.h>
#include <unistd.h>

namespace device {
namespace {

constexpr bool under_tsan = dat::detail::thread_sanitizer;

constexpr dat::communicator tcp{AF_INET, SOCK_STREAM, 0};
constexpr dat::communicator tcp6{AF_INET6, SOCK_STREAM, 0};

/// Two adapters without a service point.
struct ends {
  side a{0};
  side b{1};

  endpoint ask(std::uint16_t port, std::string_view data = {}) {
    auto ep = a.make_ep();
    must(ep.connect(b.ia.address(), must(dat::conn_qual::make(port)), patience, bytes_of(data)));
    return ep;
  }
  dat::cr request() { return next<dat::connection_request>(b.evd); }
};

/// Sends one message each way.
void exchange(side& a, endpoint& one, side& b, endpoint& other) {
  buffer here(a.pz, 64);
  buffer there(b.pz, 64);
  must(other.post(dat::recv{there.slice(0, 32)}));
  must(one.post(dat::recv{here.slice(0, 32)}));
  must(one.post(dat::send{here.slice(32, 32)}));
  must(other.post(dat::send{there.slice(32, 32)}));
  CHECK(count_of<dat::recv_done>(take(a.evd, 2)) == 1);
  CHECK(count_of<dat::recv_done>(take(b.evd, 2)) == 1);
}

std::string text_of(std::span<const std::byte> data) {
  std::string s(reinterpret_cast<const char*>(data.data()), data.size());
  s.resize(s.find_last_not_of('\0') + 1);
  return s;
}

} // namespace

TEST_CASE("service points on any free qualifier get different qualifiers, and peers can connect to each",
          "[service_point][PSP-003][PSP-004][PSP-029][PSP-030][PSP-037][PSP-041][PSP-042]"
          "[MODEL-005]") {
  ends e;
  std::vector<dat::psp> psps;
  std::set<std::uint16_t> ports;
  for (int i = 0; i < 20; ++i) {
    psps.push_back(must(e.b.ia.create_psp_any(e.b.evd)));
    CHECK(must(psps.back().query()).id.port() == psps.back().port());
    ports.insert(psps.back().port());
  }
  CHECK(ports.size() == psps.size());
  CHECK(*ports.begin() >= 1024);
  for (const std::size_t which : {std::size_t{3}, std::size_t{17}}) {
    auto ep = e.ask(psps[which].port());
    auto request = e.request();
    CHECK(request.service() == psps[which].id());
    must(psps[which].close());
    // The id still names the closed service point.
    CHECK(request.service().port() == ep.remote_address().value().port());
    must(request.reject());
    (void)next<dat::peer_rejected>(e.a.evd);
  }
}

TEST_CASE("service points and their connections give the program no socket, and leave TCP its ports",
          "[service_point]") {
  const auto sockets = [] {
    std::error_code gone; // a descriptor may be closed meanwhile
    return std::ranges::count_if(std::filesystem::directory_iterator("/proc/self/fd"), [&](const auto& fd) {
      return std::filesystem::read_symlink(fd.path(), gone).string().starts_with("socket:");
    });
  };
  ends e;
  const auto before = sockets();
  const auto port = next_port();
  const auto reserved_port = next_port();
  auto passive = e.b.make_ep();
  auto reserved = e.b.make_ep();
  const auto psp = must(e.b.ia.create_psp(port, e.b.evd));
  const auto rsp = must(e.b.ia.create_rsp(reserved_port, reserved, e.b.evd));
  auto one = e.ask(port.port());
  must(e.request().accept(passive));
  (void)next<dat::established>(e.a.evd);
  (void)next<dat::established>(e.b.evd);
  auto other = e.ask(reserved_port.port());
  must(e.request().accept());
  (void)next<dat::established>(e.a.evd);
  (void)next<dat::established>(e.b.evd);
  exchange(e.a, one, e.b, passive);
  exchange(e.a, other, e.b, reserved);
  CHECK(sockets() == before);
  if (this_device().name == "rxe") { // on iWARP the kernel listens on the port of TCP
    for (const auto& p : {port, reserved_port}) {
      const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in any{};
      any.sin_family = AF_INET;
      any.sin_port = htons(p.port());
      CHECK((::bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0 && ::listen(fd, 1) == 0));
      ::close(fd);
    }
    SHOWS("PSP-027", "RSP-020");
  }
}

TEST_CASE("a provider psp makes an endpoint for each request", "[service_point]") {
  ends e;
  CHECK(must(e.b.ia.query<dat::provider_attributes>()).ep_creator == dat::psp_creates_ep::if_asked);
  SHOWS("IA-121", "PSP-015", "EPS-032");
  const auto port = next_port();
  auto psp = must(e.b.ia.create_psp(port, e.b.evd, dat::psp_flags::provider));
  auto active = e.a.make_ep({.max_rdma_read_out = std::uint8_t{4}, .max_rdma_read_in = std::uint8_t{2}});
  must(active.connect(e.b.ia.address(), port, patience));
  auto request = e.request();
  REQUIRE(request.ep());
  CHECK(request.ep().state() == state::unconfigured_tentative);
  SHOWS("CR-005", "PSP-023", "EPS-076");
  const auto made = must(request.ep().query());
  CHECK(made.attributes.max_rdma_read_in == 4);
  CHECK(made.attributes.max_rdma_read_out == 2);
  SHOWS("PSP-022", "CR-043");
  CHECK(made.remote_address == request.remote_address());
  SHOWS("EP-051");
  CHECK_FALSE(made.has_pz);
  SHOWS("EPS-040", "PSP-021");
  CHECK(error_of(request.accept()).subtype() == subtype::ep_unconftentative);
  SHOWS("EPS-042", "EPS-077");
  auto connections = must(e.b.ia.create_evd<dat::stream::connection>(4));
  must(request.ep().modify({.pz = &e.b.pz, .recv = e.b.evd, .request = e.b.evd, .connect = connections}));
  CHECK(request.ep().state() == state::tentative_connection_pending);
  SHOWS("EPS-041");
  must(request.accept(bytes_of("made for you")));
  endpoint passive = std::move(request.ep());
  CHECK(text_of(next<dat::established>(e.a.evd).private_data()) == "made for you");
  SHOWS("REQ-055");
  CHECK(next<dat::established>(connections).ep() == passive);
  CHECK(is_empty(e.b.evd));
  CHECK(passive.state() == state::connected);
  SHOWS("PSP-024", "REQ-043");
  exchange(e.a, active, e.b, passive);
  SHOWS("EPS-029", "REQ-045", "REQ-055", "PSP-017", "PSP-023", "CR-020");

  // The next request is rejected, and its endpoint ends.
  auto second = e.ask(port.port());
  auto refused = e.request();
  auto kept = std::move(refused.ep());
  CHECK(kept.state() == state::unconfigured_tentative);
  must(refused.reject(bytes_of("no")));
  CHECK(next<dat::peer_rejected>(e.a.evd).private_data().size() == 2);
  CHECK(error_of(kept.query()).type() == type::invalid_handle);
  SHOWS("CR-053", "EPS-043", "PSP-024", "PSP-017");
  must(e.b.ia.close(dat::close_mode::abrupt));
  CHECK(error_of(passive.query()).type() == type::invalid_handle); // the consumer's endpoint, until its ia has ended
  SHOWS("EPS-029");
}

TEST_CASE("a reserved service point brings one request to its endpoint", "[service_point]") {
  ends e;
  const auto port = next_port();
  buffer memory(e.b.pz, 64);
  auto passive = e.b.make_ep();
  must(passive.post(dat::recv{memory.slice(0, 32)}.cookie(1)));
  auto rsp = must(e.b.ia.create_rsp(port, passive, e.b.evd));
  CHECK(passive.state() == state::reserved);
  SHOWS("EPS-033");
  must(rsp.close()); // the endpoint is free again, with its receive
  CHECK(passive.state() == state::unconnected);
  SHOWS("RSP-023", "EPS-034");
  {
    auto nobody = e.ask(port.port());
    CHECK(next<dat::non_peer_rejected>(e.a.evd).reason() == this_device().no_listener);
    CHECK(nobody.state() == state::disconnected);
    SHOWS("RSP-021", "RSP-002");
  }
  rsp = must(e.b.ia.create_rsp(port, passive, e.b.evd));
  auto first = e.ask(port.port());
  {
    auto request = e.request();
    CHECK(request.local_ep() == passive);
    CHECK(request.service() == rsp.id());
    DEVIATES("EVENT-019");
    SHOWS("EPS-039");
    CHECK_FALSE(request.truncated());
    CHECK(passive.state() == state::passive_connection_pending);
    SHOWS("EPS-035");
    auto second = e.ask(port.port());
    (void)next<dat::non_peer_rejected>(e.a.evd);
    CHECK(second.state() == state::disconnected);
    SHOWS("RSP-001", "RSP-002", "EPS-039");
    must(request.reject());
  }
  (void)next<dat::peer_rejected>(e.a.evd);
  CHECK(passive.state() == state::unconnected);
  SHOWS("EPS-037", "CR-054", "RSP-018");
  CHECK(must(rsp.query()).ep == dat::ep_ref());
  SHOWS("RSP-003", "RSP-027", "EPS-039");
  CHECK(error_of(e.b.ia.create_psp(port, e.b.evd)) == dat::error(type::conn_qual_in_use));
  SHOWS("RSP-004", "PSP-001", "ERR-014", "REQ-052");
  must(rsp.close());
  SHOWS("RSP-003");

  rsp = must(e.b.ia.create_rsp(port, passive, e.b.evd));
  must(first.reset());
  must(first.connect(e.b.ia.address(), port, patience));
  CHECK(comes_true([&] { return passive.state() == state::passive_connection_pending; }));
  must(rsp.close()); // the event of the request is still queued
  CHECK(passive.state() == state::passive_connection_pending);
  auto queued = e.b.evd.wait_for<dat::connection_request>(0s); // the event was queued with the change of the state
  CHECK(queued);
  SHOWS("EPS-004", "EPS-035");
  auto request = must(std::move(queued));
  CHECK(request.local_ep() == passive);
  must(request.accept(bytes_of("reserved")));
  const auto begun = passive.state();
  CHECK((begun == state::completion_pending || begun == state::connected));
  CHECK(text_of(next<dat::established>(e.a.evd).private_data()) == "reserved");
  (void)next<dat::established>(e.b.evd);
  CHECK(passive.state() == state::connected);
  SHOWS("RSP-017", "RSP-024", "RSP-025", "EPS-036", "REQ-055", "MODEL-019");
  buffer out(e.a.pz, 32);
  must(first.post(dat::send{out.slice(0, 32)}));
  CHECK(next<dat::recv_done>(e.b.evd).cookie().value() == 1); // posted before the connection, and before the reject
  SHOWS("CONN-020", "RSP-018", "RSP-023", "CR-054", "EPS-034", "EPS-037");
}

TEST_CASE("closing a reserved service point while its request arrives loses nothing",
          "[service_point][RSP-022][RSP-025][EPS-038]") {
  ends e;
  const auto port = next_port();
  int delivered = 0;
  const int rounds = under_tsan ? 5 : 40;
  for (int i = 0; i < rounds; ++i) {
    auto passive = e.b.make_ep();
    auto rsp = must(e.b.ia.create_rsp(port, passive, e.b.evd));
    auto active = e.ask(port.port());
    for (int spin = 0; spin < i * 40; ++spin) (void)passive.state();
    must(rsp.close());
    CHECK(error_of(rsp.close()) == dat::error(type::invalid_handle, subtype::handle_rsp));
    CHECK(error_of(rsp.query()) == dat::error(type::invalid_handle, subtype::handle_rsp));
    SHOWS("RSP-026", "RSP-027", "PSP-012");
    // After close there are two outcomes: the request is queued and its endpoint waits for the answer, or there is no
    // request.
    if (passive.state() == state::passive_connection_pending) {
      ++delivered;
      auto request = e.b.evd.wait_for<dat::connection_request>(0s); // its event was queued with the change of the state
      CHECK(request);
      must(must(std::move(request)).reject());
      (void)next<dat::peer_rejected>(e.a.evd);
    } else {
      CHECK(passive.state() == state::unconnected);
      CHECK(is_empty(e.b.evd));
      (void)next<dat::non_peer_rejected>(e.a.evd);
    }
  }
  INFO(delivered << " of " << rounds << " requests came before the close");
}

TEST_CASE("a common service point listens on the port of a socket address", "[service_point]") {
  ends e;
  const bool six = GENERATE(false, true);
  const auto comm = six ? tcp6 : tcp;
  const bool wild = GENERATE(false, true);
  const auto own = e.b.ia.address(six ? dat::address_family::ipv6 : dat::address_family::ipv4);
  if (!own) SKIP("the adapter has no IPv6 address");
  auto any = must(dat::ia_address::parse(six ? "::" : "0.0.0.0"));
  auto csp = wild ? must(e.b.ia.create_csp(comm, any, e.b.evd)) : must(e.b.ia.create_csp(comm, e.b.evd));
  const auto where = own.value().with_port(csp.port());
  CHECK(must(csp.query()).address == (wild ? any.with_port(csp.port()) : where));
  SHOWS("CSP-005", "CSP-006", "CSP-007", "CSP-008", "CSP-021");
  CHECK(must(csp.query()).comm == dat::communicator{comm.domain, SOCK_STREAM, IPPROTO_TCP});
  SHOWS("CSP-022", "ADDR-015");
  CHECK(error_of(e.b.ia.create_csp(comm, where, e.b.evd)) == dat::error(type::port_in_use));
  CHECK(error_of(e.b.ia.create_csp({.domain = AF_UNIX, .type = SOCK_STREAM}, where, e.b.evd)) ==
        dat::error(type::comm_not_supported));
  STATIC_REQUIRE(static_cast<std::uint32_t>(type::port_in_use) == 0x00160000);
  STATIC_REQUIRE(static_cast<std::uint32_t>(type::comm_not_supported) == 0x00170000);
  SHOWS("CSP-010", "ERR-029", "REQ-052");

  auto active = e.a.make_ep({.comm = {comm.domain, SOCK_STREAM, IPPROTO_TCP}});
  must(active.common_connect(where, patience, bytes_of("a socket?")));
  const auto asked_with = active.attributes();
  const auto from = must(active.local_address()); // the port is known when connect returns
  CHECK(from.port() != 0);
  SHOWS("CONN-049", "EP-052");
  CHECK(from.with_port(0) == must(e.a.ia.address(six ? dat::address_family::ipv6 : dat::address_family::ipv4)));
  SHOWS("CONN-076");
  CHECK(must(active.remote_address()) == where);
  SHOWS("CONN-004", "CONN-073", "REQ-048");
  auto request = e.request();
  CHECK(request.service() == csp.id());
  CHECK(request.service().port() == csp.port());
  SHOWS("CSP-001", "CSP-017");
  CHECK(request.remote_address() == from);
  SHOWS("CR-004", "CSP-014", "CONN-077");
  CHECK(request.local_address() == where);
  SHOWS("CSP-017");
  CHECK(text_of(request.private_data()) == "a socket?");
  auto passive = e.b.make_ep();
  must(request.accept(passive, bytes_of("a socket")));
  CHECK(text_of(next<dat::established>(e.a.evd).private_data()) == "a socket");
  (void)next<dat::established>(e.b.evd);
  const auto there = must(passive.query());
  CHECK(there.comm.domain == comm.domain);
  CHECK(there.comm.protocol == IPPROTO_TCP);
  CHECK(there.comm.type == SOCK_STREAM);
  SHOWS("CR-030", "ADDR-016", "CR-020", "CSP-014", "CONN-077");
  CHECK(there.remote_address == from);
  SHOWS("CR-032");
  CHECK(there.local_address == where);
  SHOWS("CR-046", "ADDR-003", "CR-030");
  const auto here = must(active.query());
  CHECK(here.comm == dat::communicator{comm.domain, SOCK_STREAM, IPPROTO_TCP});
  CHECK((here.local_address == from && here.remote_address == where));
  SHOWS("CONN-004");
  exchange(e.a, active, e.b, passive);
  SHOWS("EPS-030", "REQ-044", "REQ-055");
  buffer near(e.a.pz, 64);
  buffer far(e.b.pz, 64);
  fill(far.bytes, 9);
  must(active.post(dat::rdma_read{near.lmr, far.remote()}));
  (void)next<dat::rdma_read_done>(e.a.evd);
  CHECK(has_pattern(near.bytes, 9));
  CHECK(active.attributes().max_rdma_read_out == asked_with.max_rdma_read_out);
  CHECK(active.attributes().max_request_dtos == asked_with.max_request_dtos);
  SHOWS("CONN-083");

  auto plain = e.a.make_ep();
  must(plain.connect(where.with_port(9), must(dat::conn_qual::make(csp.port())), patience));
  must(e.request().reject());
  CHECK(next<dat::peer_rejected>(e.a.evd).ep() == plain);
  SHOWS("ADDR-001", "ADDR-011", "CSP-016");
  must(csp.close());
  must(plain.reset());
  must(plain.connect(where, must(dat::conn_qual::make(where.port())), patience));
  CHECK(next<dat::non_peer_rejected>(e.a.evd).reason() == this_device().no_listener);
  SHOWS("CSP-018");
}

TEST_CASE("a link-local address leads to its interface, also from an adapter that was opened by such an address",
          "[service_point][ADDR-002][ADDR-003][ADDR-005][ADDR-017][CONN-049]") {
  const auto at = link_local_interfaces();
  if (at[0].host.empty()) SKIP("no link-local addresses");
  side a(must(dat::ia::open(at[0].seen_from(at[0]))), 16);
  side b(must(dat::ia::open(at[1].seen_from(at[1]))), 16);
  CHECK(must(a.ia.address(dat::address_family::ipv6)) == at[0].seen_from(at[0]));
  CHECK(a.ia.name() != b.ia.name());
  const auto port = next_port();
  const auto psp = must(b.ia.create_psp(port, b.evd));
  const auto csp = must(b.ia.create_csp(tcp6, b.evd));
  for (const bool common : {false, true}) {
    const auto to = at[1].seen_from(at[0]); // with the interface in its scope
    auto active = a.make_ep({.comm = tcp6});
    auto passive = b.make_ep();
    must(passive.modify({.local_address = at[1].seen_from(at[1])})); // the endpoint accepts at this address only
    if (common)
      must(active.common_connect(to.with_port(csp.port()), patience));
    else
      must(active.connect(to, port, patience));
    auto request = next<dat::connection_request>(b.evd);
    CHECK(request.service() == (common ? csp.id() : psp.id()));
    // The addresses of the request have their scope, so a program can connect to them.
    CHECK(request.remote_address().with_port(0) == at[0].seen_from(at[1]));
    CHECK(request.local_address().with_port(0) == at[1].seen_from(at[1]));
    must(request.accept(passive));
    (void)next<dat::established>(a.evd);
    (void)next<dat::established>(b.evd);
    CHECK(must(active.local_address()).with_port(0) == at[0].seen_from(at[0]));
    CHECK(must(active.remote_address()).with_port(0) == to);
    exchange(a, active, b, passive);
    must(active.disconnect());
    (void)next<dat::disconnected>(a.evd);
    (void)next<dat::disconnected>(b.evd);
  }
  // At the wildcard address a common service point is reached at each address of its adapter.
  ends global;
  const auto far = global.b.ia.address(dat::address_family::ipv6);
  if (!far || far.value().is_link_local()) SKIP("the adapter has one IPv6 address");
  const auto everywhere = must(b.ia.create_csp(tcp6, must(dat::ia_address::parse("::")), b.evd));
  const auto reached = [&](side& from, const dat::ia_address& to) {
    auto active = from.make_ep({.comm = tcp6});
    must(active.common_connect(to.with_port(everywhere.port()), patience));
    auto request = next<dat::connection_request>(b.evd);
    CHECK(request.service() == everywhere.id());
    const auto at_address = request.local_address().host_string();
    must(request.reject());
    (void)next<dat::peer_rejected>(from.evd);
    return at_address;
  };
  CHECK(reached(a, at[1].seen_from(at[0])) == at[1].seen_from(at[1]).host_string());
  CHECK(reached(global.a, far.value()) == far.value().host_string());
  SHOWS("CSP-008");
  // An endpoint with a local address uses that address, and not the address by which its adapter was opened.
  const auto own = at[0].seen_from(at[0]);
  CHECK(must(global.a.ia.address(dat::address_family::ipv6)) != own);
  auto active = global.a.make_ep();
  must(active.modify({.local_address = own}));
  must(active.connect(at[1].seen_from(at[0]), must(dat::conn_qual::make(everywhere.port())), patience));
  auto request = next<dat::connection_request>(b.evd);
  CHECK(request.remote_address().with_port(0) == at[0].seen_from(at[1]));
  SHOWS("CONN-050");
  must(request.reject());
  (void)next<dat::peer_rejected>(global.a.evd);
}

TEST_CASE("a common connect ends with the events of a connect", "[service_point]") {
  if (!in_lab()) SKIP("only the lab's network is known to have no such host");
  ends e;
  auto csp = must(e.b.ia.create_csp(tcp, e.b.evd));
  const auto where = must(csp.query()).address;
  auto ep = e.a.make_ep({.comm = tcp});
  const auto again = [&](const dat::ia_address& to, dat::timeout limit) {
    must(ep.reset());
    must(ep.common_connect(to, limit));
  };
  again(where, patience);
  auto refused = e.request();
  // Only an attempt that waits for this program's answer is certainly still under way.
  CHECK(ep.state() == state::active_connection_pending);
  must(refused.reject());
  CHECK(next<dat::peer_rejected>(e.a.evd).ep() == ep);
  CHECK(ep.state() == state::disconnected);
  again(where.with_port(next_port().port()), patience);
  CHECK(next<dat::non_peer_rejected>(e.a.evd).ep() == ep);
  again(where, unanswered_limit);
  const auto unanswered = e.request();
  CHECK(next<dat::connection_timed_out>(e.a.evd).ep() == ep);
  again(must(dat::ia_address::parse("10.78.1.99")).with_port(where.port()), 300ms);
  CHECK(next<dat::connection_unreachable>(e.a.evd).ep() == ep);
  CHECK(ep.state() == state::disconnected);
  again(where, patience);
  auto passive = e.b.make_ep();
  must(e.request().accept(passive));
  CHECK(next<dat::established>(e.a.evd).ep() == ep);
  CHECK(ep.state() == state::connected);
  CHECK(next<dat::established>(e.b.evd).ep() == passive);
  SHOWS("CONN-078", "CONN-080", "MODEL-010", "REQ-044", "CONN-073");
  // A request whose sender has stopped waiting stays queued until its ia ends. The sender gets no event about the
  // request.
  CHECK(must(unanswered.query()).service == csp.id());
  must(e.b.ia.close());
  CHECK(error_of(unanswered.query()) == dat::error(type::invalid_handle, subtype::handle_cr));
  CHECK(next<dat::disconnected>(e.a.evd).ep() == ep);
  CHECK(is_empty(e.a.evd));
  SHOWS("REQ-050");
}

TEST_CASE("a service point on any qualifier fails when no qualifier is free", "[service_point]") {
  if (!in_lab()) SKIP("narrows the host's range of ports");
  ends e;
  constexpr const char* range = "/proc/sys/net/ipv4/ip_local_port_range";
  std::string before;
  std::getline(std::ifstream(range), before);
  const struct at_end {
    const std::string& before;
    ~at_end() { std::ofstream(range) << before; }
  } at_end{before};
  std::ofstream(range) << "50122 50123"; // two calls, because the kernel never assigns one port twice in a row
  const auto any = [&] { return must(e.b.ia.create_psp_any(e.b.evd)).port(); };
  {
    const auto one = must(e.b.ia.create_psp_any(e.b.evd));
    const auto two = must(e.b.ia.create_psp_any(e.b.evd));
    CHECK(one.port() + two.port() == 50122 + 50123);
    CHECK(error_of(e.b.ia.create_psp_any(e.b.evd)) == dat::error(type::conn_qual_unavailable));
    SHOWS("PSP-032", "ERR-028");
  }
  CHECK(any() + any() == 50122 + 50123); // the failed call left no service point behind
  SHOWS("PSP-031");
  // A qualifier that another instance of the adapter uses is not chosen.
  std::ofstream(range) << "50122 50124";
  side other(1);
  const auto theirs = must(other.ia.create_psp_any(other.evd));
  for (int i = 0; i < 8; ++i) CHECK(any() != theirs.port());
  SHOWS("PSP-030");
}

TEST_CASE("requests are handed from service point to service point, and the peer sees no difference",
          "[service_point]") {
  ends e;
  auto first = must(e.b.ia.create_psp_any(e.b.evd));
  auto making = must(e.b.ia.create_psp_any(e.b.evd, dat::psp_flags::provider));
  auto reserved = e.b.make_ep();
  const auto port = next_port();
  auto rsp = must(e.b.ia.create_rsp(port, reserved, e.b.evd));
  auto csp = must(e.b.ia.create_csp(tcp, e.b.evd));
  auto active = e.ask(first.port(), "from far");
  auto r = e.request();
  CHECK_FALSE(r.ep()); // dat creates no endpoint unless the consumer requests it
  SHOWS("IA-121");
  CHECK(error_of(r.handoff(must(dat::conn_qual::make(first.port())))).type() == type::invalid_parameter);
  SHOWS("CR-072");
  CHECK(error_of(r.handoff(next_port())).type() == type::invalid_parameter);
  SHOWS("CR-069");
  {
    peer_process stranger("hold request"); // a service point of another process, at an address of the same host
    CHECK(error_of(r.handoff(must(dat::conn_qual::make(std::stoul(stranger.hear()))))).type() ==
          type::invalid_parameter);
    DEVIATES("REQ-024", "REQ-064", "CR-068");
  }
  must(r.handoff(must(dat::conn_qual::make(making.port()))));
  CHECK_FALSE(r);
  SHOWS("SAFE-032");
  r = e.request();
  CHECK(r.service() == making.id());
  SHOWS("CR-066");
  CHECK(r.ep().state() == state::unconfigured_tentative);
  SHOWS("CR-067");
  const endpoint made = std::move(r.ep());
  must(r.handoff(port));
  CHECK(error_of(made.query()).type() == type::invalid_handle);
  r = e.request();
  CHECK(r.local_ep() == reserved);
  SHOWS("CR-076");
  must(r.handoff(must(dat::conn_qual::make(csp.port()))));
  CHECK(reserved.state() == state::unconnected);
  SHOWS("CR-073", "EPS-048");
  r = e.request();
  CHECK(r.service() == csp.id());
  SHOWS("CR-075");
  CHECK(text_of(r.private_data()) == "from far");
  CHECK(r.remote_address() == must(active.local_address()));
  SHOWS("CR-066");
  must(r.accept(reserved));
  (void)next<dat::established>(e.a.evd);
  (void)next<dat::established>(e.b.evd);
  CHECK(must(active.remote_address()).port() == first.port());
  SHOWS("CR-011");
  exchange(e.a, active, e.b, reserved);
  SHOWS("REQ-055");
  // The requests above were accepted and handed on. The third answer is a reject.
  const auto again = e.ask(first.port());
  must(e.request().reject());
  CHECK(next<dat::peer_rejected>(e.a.evd).ep() == again);
  SHOWS("REQ-042", "CONN-003");
}

TEST_CASE("dup_connect reaches the peer of the first connection",
          "[service_point][CONN-013][CONN-084][CONN-086][CONN-088]"
          "[CONN-092][REQ-063][HA-008]") {
  ends e;
  auto csp = must(e.b.ia.create_csp(tcp, e.b.evd));
  auto first = e.a.make_ep({.comm = tcp});
  must(first.common_connect(e.b.ia.address().with_port(csp.port()), patience));
  auto passive = e.b.make_ep();
  must(e.request().accept(passive));
  (void)next<dat::established>(e.a.evd);
  (void)next<dat::established>(e.b.evd);
  auto stranger = e.b.make_ep();
  CHECK(error_of(stranger.dup_connect(passive, patience)).type() == type::invalid_state);
  auto second = e.a.make_ep();
  must(second.dup_connect(first, patience, bytes_of("the second")));
  CHECK(must(second.local_address()).with_port(0) == must(first.local_address()).with_port(0));
  CHECK(must(second.remote_address()) == must(first.remote_address()));
  SHOWS("CONN-089");
  CHECK(must(second.local_address()).port() != 0);
  must(first.close());
  (void)must(e.b.evd.wait_for<dat::disconnected>(patience)); // in either order with the request
  auto request = e.request();
  CHECK(request.service() == csp.id());
  CHECK(text_of(request.private_data()) == "the second");
  SHOWS("EVENT-018");
  must(request.accept(stranger));
  (void)next<dat::established>(e.a.evd);
  (void)next<dat::established>(e.b.evd);
  exchange(e.a, second, e.b, stranger);
  // Its failures are the same as those of a connect.
  auto third = e.a.make_ep();
  must(third.dup_connect(second, patience));
  must(e.request().reject());
  CHECK(next<dat::peer_rejected>(e.a.evd).ep() == third);
  must(third.reset());
  if (this_device().attempts_end_at_once) {
    must(third.dup_connect(second, unanswered_limit));
    const auto unanswered = e.request();
    CHECK(next<dat::connection_timed_out>(e.a.evd).ep() == third);
    must(third.reset());
  }
  must(csp.close());
  must(third.dup_connect(second, patience));
  CHECK(next<dat::non_peer_rejected>(e.a.evd).ep() == third);
  SHOWS("CONN-091");
}

TEST_CASE("an endpoint that is configured late works like any other", "[service_point]") {
  ends e;
  auto port = must(e.b.ia.create_psp_any(e.b.evd));
  auto active = must(e.a.ia.create_ep<dat::rc>({.connect = e.a.evd}));
  CHECK(active.state() == state::unconfigured_unconnected);
  CHECK(error_of(active.connect(e.b.ia.address(), must(dat::conn_qual::make(port.port())), patience)).subtype() ==
        subtype::ep_unconfigured);
  SHOWS("EPS-076", "EP-002");
  auto completions = must(e.a.ia.create_evd<dat::stream::dto>(16));
  must(active.modify({.pz = &e.a.pz, .recv = completions}));
  CHECK(active.state() == state::unconfigured_unconnected);
  SHOWS("EPS-083");
  const auto own_port = next_port();
  must(active.modify({.request = completions,
                      .local_address = e.a.ia.address().with_port(own_port.port()),
                      .max_recv_dtos = 5,
                      .max_message_size = 32,
                      .max_rdma_read_out = std::uint8_t{2}}));
  CHECK(active.state() == state::unconnected);
  SHOWS("EPS-080");
  must(active.modify({.recv = e.a.evd, .request = e.a.evd})); // a new queue pair
  must(completions.close());
  const auto before = must(active.query());
  must(active.connect(e.b.ia.address(), must(dat::conn_qual::make(port.port())), patience));
  auto request = e.request();
  CHECK(request.remote_address() == e.a.ia.address().with_port(own_port.port()));
  SHOWS("CONN-050", "EP-079");
  CHECK(must(active.query()).local_address == e.a.ia.address().with_port(own_port.port()));
  SHOWS("CONN-076", "EP-053", "EP-049");
  auto passive = e.b.make_ep();
  must(request.accept(passive));
  (void)next<dat::established>(e.a.evd);
  (void)next<dat::established>(e.b.evd);
  const auto up = must(active.query());
  CHECK(up.state == state::connected);
  CHECK(up.number == before.number);
  CHECK(up.attributes.max_recv_dtos == 5);
  CHECK(up.attributes.max_message_size == 32);
  SHOWS("EP-080");
  CHECK(up.attributes.max_rdma_read_out == 2);
  CHECK(up.attributes.max_rdma_read_in == before.attributes.max_rdma_read_in);
  SHOWS("CONN-009", "CONN-067", "EP-020", "REQ-059");
  exchange(e.a, active, e.b, passive);
  SHOWS("EP-075", "EVD-013");
  buffer memory(e.a.pz, 64);
  CHECK(error_of(active.post(dat::send{memory.slice(0, 33)})).type() == type::length_error);
  CHECK(error_of(active.modify({.max_recv_dtos = 6})).subtype() == subtype::ep_connected);
  SHOWS("EP-067");
}

TEST_CASE("a thousand random calls on a device follow the state table", "[fuzz]") {
  INFO("DAT_TEST_SEED=" << random_seed());
  const auto before = resources::now();
  std::string what;
  try {
    fuzz::walk walk(addresses()[0], addresses()[1], next_port().port(), random_seed());
    walk.run(under_tsan ? 150 : 1000, 2ms);
    for (int more = 0; walk.connections() == 0 && more < 20; ++more) walk.run(100, 50ms); // for a slow machine
    CHECK(walk.connections() > 0);
  } catch (const fuzz::wrong& w) {
    what = w.what();
  }
  CHECK(what == "");
  SHOWS("EPS-001", "EPS-007", "EPS-015", "EPS-017", "EPS-021", "EPS-068", "EPS-069", "CONN-016", "CONN-017", "DISC-022",
        "DISC-028", "DISC-055");
  CHECK(resources::no_more_than(before));
}

} // namespace device
