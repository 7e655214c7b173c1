// Public service points of every kind, and handoff, on a device; random calls.
// SPDX-License-Identifier: BSL-1.0
#include "device_ends.hpp"
#include "device_table.hpp"

#include <dat/csp.hpp>
#include <dat/ep_params.hpp>
#include <dat/rsp.hpp>

#include <support/connection_fuzz.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <netinet/in.h>
#include <set>
#include <sys/socket.h>
#include <unistd.h>

namespace device {

TEST_CASE("service points on any free qualifier get different qualifiers, and peers can connect to each",
          "[service_point]") {
  ends e;
  std::vector<dat::psp> psps;
  std::set<std::uint16_t> ports;
  for (int i = 0; i < 20; ++i) {
    psps.push_back(must(e.b.ia.create_psp_any(e.b.evd)));
    CHECK(must(psps.back().query()).id.port() == psps.back().port());
    SHOWS("PSP-042");
    ports.insert(psps.back().port());
  }
  CHECK(ports.size() == psps.size());
  CHECK(*ports.begin() >= 1024);
  SHOWS("PSP-030");
  for (const std::size_t which : {std::size_t{3}, std::size_t{17}}) {
    auto ep = e.ask(psps[which].port());
    auto request = e.request();
    CHECK(request.service() == psps[which].id());
    SHOWS("MODEL-005", "PSP-003", "PSP-029");
    must(psps[which].close());
    // The id still names the closed service point.
    CHECK(request.service().port() == ep.remote_address().value().port());
    SHOWS("PSP-037");
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
