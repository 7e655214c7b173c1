// Quality of service on the wire: the frames of connections and datagrams, as a packet socket receives them.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <dat/buffer.hpp>
#include <dat/descriptor.hpp>
#include <dat/multicast.hpp>
#include <dat/ud.hpp>

#include <array>
#include <cstring>
#include <linux/if_ether.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <optional>
#include <set>
#include <span>
#include <sys/socket.h>
#include <unistd.h>

namespace device {

namespace {

/// Reads the frames that leave this host. Only root may open a packet socket, and only Soft-RoCE sends by the network
/// stack.
class frame_reader {
public:
  frame_reader() : fd_(::socket(AF_PACKET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, htons(ETH_P_ALL))) {
    const int room = 1 << 22;
    if (fd_ >= 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
  }
  frame_reader(const frame_reader&) = delete;
  frame_reader& operator=(const frame_reader&) = delete;
  ~frame_reader() {
    if (fd_ >= 0) ::close(fd_);
  }
  explicit operator bool() const noexcept { return fd_ >= 0; }

  /// The types of service, or traffic classes, of the RoCE frames from that address since the last call. `op_first` and
  /// `op_last` limit the operation codes: those of connections are 0 to 31, those of datagrams 100 and 101.
  std::set<int> types_of_service(const dat::ia_address& from, int op_first, int op_last) {
    constexpr std::uint16_t roce_port = 4791;
    std::set<int> found;
    std::array<unsigned char, 65536> frame;
    for (;;) {
      const auto n = ::recv(fd_, frame.data(), frame.size(), 0);
      if (n < 0) return found;
      const std::span<const unsigned char> all(frame.data(), static_cast<std::size_t>(n));
      const auto header = from.family() == dat::address_family::ipv4 ? ipv4(all, from) : ipv6(all, from);
      udphdr udp;
      if (!header || all.size() < header->length + sizeof udp + 1) continue;
      std::memcpy(&udp, all.data() + header->length, sizeof udp);
      const int op = all[header->length + sizeof udp];
      if (udp.uh_dport == htons(roce_port) && op >= op_first && op <= op_last) found.insert(header->type_of_service);
    }
  }
  std::set<int> of_connections(const dat::ia_address& from) { return types_of_service(from, 0, 31); }
  std::set<int> of_datagrams(const dat::ia_address& from) { return types_of_service(from, 100, 101); }

private:
  struct ip_header {
    std::size_t length;
    int type_of_service;
  };
  /// The header of a UDP packet from that address; empty for any other frame.
  static std::optional<ip_header> ipv4(std::span<const unsigned char> frame, const dat::ia_address& from) {
    ip header;
    if (frame.size() < sizeof header) return std::nullopt;
    std::memcpy(&header, frame.data(), sizeof header);
    const auto& source = reinterpret_cast<const sockaddr_in*>(from.native_handle())->sin_addr;
    if (header.ip_v != 4 || header.ip_p != IPPROTO_UDP || header.ip_src.s_addr != source.s_addr) return std::nullopt;
    return ip_header{header.ip_hl * std::size_t{4}, header.ip_tos};
  }
  static std::optional<ip_header> ipv6(std::span<const unsigned char> frame, const dat::ia_address& from) {
    ip6_hdr header;
    if (frame.size() < sizeof header) return std::nullopt;
    std::memcpy(&header, frame.data(), sizeof header);
    const auto& source = reinterpret_cast<const sockaddr_in6*>(from.native_handle())->sin6_addr;
    if (header.ip6_vfc >> 4 != 6 || header.ip6_nxt != IPPROTO_UDP || !IN6_ARE_ADDR_EQUAL(&header.ip6_src, &source))
      return std::nullopt;
    return ip_header{sizeof header, static_cast<int>(ntohl(header.ip6_flow) >> 20 & 0xff)};
  }

  int fd_;
};

} // namespace

TEST_CASE("the frames of a connection carry the type of service that each side has set", "[qos]") {
  if (!in_lab() || !this_device().infiniband) SKIP("needs Soft-RoCE, whose frames pass the network stack");
  const auto family = GENERATE(dat::address_family::ipv4, dat::address_family::ipv6);
  INFO(to_string(family));
  side a(0);
  side b(1);
  const auto at_a = must(a.ia.address(family));
  const auto at_b = must(b.ia.address(family));
  frame_reader wire;
  REQUIRE(wire);
  const auto port = next_port();
  auto psp = must(b.ia.create_psp(port, b.evd));
  // Each row has the options of connect, the options of accept, and the type of service that each side then sends.
  struct {
    dat::connect_options asking;
    dat::connect_options accepting;
    int from_a;
    int from_b;
  } const rows[] = {{{}, {}, 0, 0},
                    {{.qos = dat::qos::premium()}, {}, 46 << 2, 46 << 2},
                    {{.qos = {.traffic_class = 26 << 2}}, {}, 26 << 2, 26 << 2},
                    {{.qos = dat::qos::low_latency()}, {.qos = dat::qos::economy()}, 18 << 2, 1 << 2}};
  for (const auto& row : rows) {
    endpoint from = a.make_ep();
    endpoint to = b.make_ep();
    buffer memory(a.pz, 64);
    buffer there(b.pz, 64);
    must(to.post(dat::recv{there.lmr}));
    must(from.post(dat::recv{memory.slice(0, 32)}));
    must(from.connect(at_b, port, patience, {}, row.asking));
    must(next<dat::cr>(b.evd).accept(to, {}, row.accepting));
    (void)next<dat::established>(a.evd);
    (void)next<dat::established>(b.evd);
    (void)wire.of_connections(at_a); // those of earlier connections
    must(from.post(dat::send{memory.slice(32, 8)}));
    (void)next<dat::recv_done>(b.evd);
    (void)next<dat::send_done>(a.evd);
    must(to.post(dat::send{there.slice(0, 8)}));
    (void)next<dat::recv_done>(a.evd);
    (void)next<dat::send_done>(b.evd);
    // One call reads the frames of both sides.
    must(from.post(dat::recv{memory.slice(0, 32)}));
    must(to.post(dat::recv{there.lmr}));
    must(to.post(dat::send{there.slice(0, 8)}));
    (void)next<dat::recv_done>(a.evd);
    (void)next<dat::send_done>(b.evd);
    CHECK(wire.of_connections(at_b) == std::set<int>{row.from_b});
    must(from.post(dat::send{memory.slice(32, 8)}));
    (void)next<dat::recv_done>(b.evd);
    (void)next<dat::send_done>(a.evd);
    CHECK(wire.of_connections(at_a) == std::set<int>{row.from_a});
    SHOWS("CONN-010", "CONN-051", "REQ-060", "EPATTR-004", "IA-116");
    // A duplicate has its own type of service.
    endpoint second = a.make_ep();
    endpoint other = b.make_ep();
    must(second.dup_connect(from, patience, {}, dat::qos::high_throughput()));
    must(next<dat::cr>(b.evd).accept(other));
    (void)must(a.evd.wait_for<dat::established>(second, patience));
    (void)must(b.evd.wait_for<dat::established>(other, patience));
    must(other.post(dat::recv{there.lmr}));
    (void)wire.of_connections(at_a);
    must(second.post(dat::send{memory.slice(32, 8)}));
    (void)must(b.evd.wait_for<dat::recv_done>(other, patience));
    (void)must(a.evd.wait_for<dat::send_done>(second, patience));
    CHECK(wire.of_connections(at_a) == std::set<int>{10 << 2});
    SHOWS("CONN-090", "IA-116", "EPATTR-004");
    must(second.disconnect());
    (void)must(a.evd.wait_for<dat::disconnected>(second, patience));
    (void)must(b.evd.wait_for<dat::disconnected>(other, patience));
    must(from.disconnect());
    (void)next<dat::disconnected>(a.evd);
    (void)next<dat::disconnected>(b.evd);
  }
}

TEST_CASE("a connection by descriptor, and one that sets nothing, have the type of service of endpoint or ia",
          "[qos]") {
  NEEDS_FEATURE(descriptors);
  if (!in_lab()) SKIP("needs Soft-RoCE, whose frames pass the network stack");
  const auto family = GENERATE(dat::address_family::ipv4, dat::address_family::ipv6);
  INFO(to_string(family));
  side usual(0);
  side other(1);
  const auto at_a = must(usual.ia.address(family));
  const auto at_b = must(other.ia.address(family));
  side a(must(dat::ia::open(at_a, {.qos = dat::qos::economy()})), 1024);
  side b(must(dat::ia::open(at_b)), 1024);
  frame_reader wire;
  REQUIRE(wire);
  buffer memory(a.pz, 64);
  buffer there(b.pz, 64);
  const auto port = next_port();
  auto psp = must(b.ia.create_psp(port, b.evd));
  // The quality of service of the endpoint and of the call. Without either, the ia decides.
  struct {
    bool by_descriptor;
    dat::qos of_endpoint;
    dat::qos of_call;
    int from_a;
  } const rows[] = {{false, {}, {}, 1 << 2},
                    {false, dat::qos::premium(), {}, 46 << 2},
                    {false, dat::qos::premium(), dat::qos::low_latency(), 18 << 2},
                    {true, {}, {}, 1 << 2},
                    {true, dat::qos::premium(), {}, 46 << 2},
                    {true, dat::qos::premium(), dat::qos::low_latency(), 18 << 2}};
  for (const auto& row : rows) {
    CAPTURE(row.by_descriptor, row.from_a);
    if (row.by_descriptor && family == dat::address_family::ipv6) continue; // descriptors take the IPv4 address
    endpoint from = a.make_ep({.qos = row.of_endpoint});
    endpoint to = b.make_ep();
    must(to.post(dat::recv{there.lmr}));
    if (row.by_descriptor) {
      const auto mine = must(from.export_descriptor());
      const auto peer = must(to.export_descriptor());
      must(from.connect(peer, row.of_call));
      must(to.connect(mine));
    } else {
      must(from.connect(at_b, port, patience, {}, {.qos = row.of_call}));
      must(next<dat::cr>(b.evd).accept(to));
    }
    (void)next<dat::established>(a.evd);
    (void)next<dat::established>(b.evd);
    (void)wire.of_connections(at_a); // those of earlier connections
    must(from.post(dat::send{memory.slice(0, 8)}));
    (void)next<dat::recv_done>(b.evd);
    (void)next<dat::send_done>(a.evd);
    CHECK(wire.of_connections(at_a) == std::set<int>{row.from_a});
    SHOWS("EPATTR-004");
    must(from.disconnect());
    must(to.disconnect());
    (void)next<dat::disconnected>(a.evd);
    (void)next<dat::disconnected>(b.evd);
  }
}

TEST_CASE("the frames of datagrams carry the type of service of the address handle", "[qos][ud]") {
  NEEDS_FEATURE(datagrams);
  if (!in_lab()) SKIP("needs Soft-RoCE, whose frames pass the network stack");
  const auto family = GENERATE(dat::address_family::ipv4, dat::address_family::ipv6);
  INFO(to_string(family));
  side a(0);
  side b(1);
  frame_reader wire;
  REQUIRE(wire);
  constexpr auto streams = all_streams | dat::stream::datagrams;
  auto from_evd = must(a.ia.create_evd<streams>(64));
  auto to_evd = must(b.ia.create_evd<streams>(64));
  auto from = must(a.pz.create_ep<dat::ud>(from_evd, {.qos = dat::qos::high_throughput()}));
  auto to = must(b.pz.create_ep<dat::ud>(to_evd));
  buffer memory(a.pz, 64);
  buffer there(b.pz, 128);
  const auto peer = must(from.address_of(must(to.address(family))));
  const auto special = must(from.address_of(must(to.address(family)), dat::qos::premium()));
  for (const auto& [handle, expected] : {std::pair{&peer, 10 << 2}, std::pair{&special, 46 << 2}}) {
    must(to.post(dat::recv{there.lmr}));
    must(from.post(dat::ib::send_to{memory.slice(0, 8), *handle}));
    (void)next<dat::ib::datagram_recv_done>(to_evd);
    (void)next<dat::ib::datagram_send_done>(from_evd);
    CHECK(wire.of_datagrams(must(a.ia.address(family))) == std::set<int>{expected});
  }
}

TEST_CASE("the frames to a multicast group carry the type of service that the sender has chosen", "[qos][multicast]") {
  NEEDS_FEATURE(datagrams);
  if (!in_lab()) SKIP("needs Soft-RoCE, whose frames pass the network stack");
  side a(0);
  side b(1);
  frame_reader wire;
  REQUIRE(wire);
  constexpr auto streams = all_streams | dat::stream::datagrams;
  auto from_evd = must(a.ia.create_evd<streams>(64));
  auto to_evd = must(b.ia.create_evd<streams>(64));
  auto from = must(a.pz.create_ep<dat::ud>(from_evd, {.qos = dat::qos::economy()}));
  auto to = must(b.pz.create_ep<dat::ud>(to_evd));
  buffer memory(a.pz, 64);
  buffer there(b.pz, 128);
  const auto where = must(dat::ia_address::parse("239.10.20.31"));
  auto sender = must(dat::ib::multicast_group::join(from, where));
  auto member = must(dat::ib::multicast_group::join(to, where));
  (void)must(from_evd.wait_for<dat::ib::group_joined>(patience));
  (void)must(to_evd.wait_for<dat::ib::group_joined>(patience));
  const auto usual = must(sender.peer());
  const auto special = must(sender.peer(dat::qos::low_latency()));
  CHECK(error_of(sender.peer({.service_level = 16})).type() == type::invalid_parameter);
  for (const auto& [handle, expected] : {std::pair{&usual, 1 << 2}, std::pair{&special, 18 << 2}}) {
    must(to.post(dat::recv{there.lmr}));
    must(from.post(dat::ib::send_to{memory.slice(0, 8), *handle}));
    (void)must(to_evd.wait_for<dat::ib::datagram_recv_done>(patience));
    (void)must(from_evd.wait_for<dat::ib::datagram_send_done>(patience));
    CHECK(wire.of_datagrams(a.ia.address()) == std::set<int>{expected});
  }
}

TEST_CASE("a device refuses several paths and keeps the endpoint usable", "[qos]") {
  side a(0);
  side b(1);
  const auto port = next_port();
  auto psp = must(b.ia.create_psp(port, b.evd));
  endpoint from = a.make_ep();
  endpoint to = b.make_ep();
  for (const auto paths : {dat::multipath::requested, dat::multipath::required}) {
    CHECK(error_of(from.connect(b.ia.address(), port, patience, {}, {.multipath = paths})).type() ==
          type::model_not_supported);
    CHECK(from.state() == state::unconnected);
  }
  STATIC_REQUIRE((dat::multipath{0} == dat::multipath::none && dat::multipath{1} == dat::multipath::requested));
  STATIC_REQUIRE(dat::multipath{2} == dat::multipath::required);
  STATIC_REQUIRE(dat::connect_options().multipath == dat::multipath::none);
  constexpr auto no_number = static_cast<dat::multipath>(3);
  CHECK(error_of(from.connect(b.ia.address(), port, patience, {}, {.multipath = no_number})) ==
        dat::error(type::invalid_parameter, subtype::arg8));
  must(from.connect(b.ia.address(), port, patience));
  auto request = next<dat::cr>(b.evd);
  for (const auto paths : {dat::multipath::requested, dat::multipath::required})
    CHECK(error_of(request.accept(to, {}, {.multipath = paths})) == dat::error(type::model_not_supported));
  SHOWS("ERR-021");
  CHECK(error_of(request.accept(to, {}, {.multipath = no_number})) ==
        dat::error(type::invalid_parameter, subtype::arg5));
  CHECK(to.state() == state::unconnected);
  must(request.accept(to));
  (void)next<dat::established>(a.evd);
  (void)next<dat::established>(b.evd);
  SHOWS("HA-019", "HA-021", "REQ-186", "CR-029", "CONN-011", "CONN-052", "REQ-061");
}

} // namespace device
