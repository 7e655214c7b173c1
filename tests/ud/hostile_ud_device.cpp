// Hostile datagrams: floods of requests, and packets that a program forges without an RDMA device.
// SPDX-License-Identifier: BSL-1.0
#include "../device/device_table.hpp"
#include "../device/support.hpp"

#include <dat/descriptor.hpp>
#include <dat/multicast.hpp>
#include <dat/ud.hpp>

#include <dat/detail/base/big_endian.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <list>
#include <netinet/in.h>
#include <random>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>
#include <unistd.h>

namespace device { namespace hostile_ud {
namespace {

constexpr auto streams = all_streams | dat::stream::datagrams;

void check(bool ok, const char* what, place where = place::here()) {
  if (!ok) fail(std::string(what) + ": " + std::strerror(errno), where);
}

struct end {
  explicit end(std::size_t which)
      : ia(must(dat::ia::open(addresses()[which]))), pz(must(ia.create_pz())), evd(must(ia.create_evd<streams>(64))) {}
  dat::ia ia;
  dat::pz pz;
  dat::evd<streams> evd;
};

template <class E>
E expect(end& at, place where = place::here()) {
  auto r = at.evd.wait(patience);
  if (!r) fail(r.assume_error().message(), where);
  auto* e = std::get_if<E>(&r.assume_value());
  if (!e) fail("another event came, alternative " + std::to_string(r.assume_value().index()), where);
  return std::move(*e);
}

/// Arguments: address, port. Sends requests with all kinds of headers, 32 at a time, until it is killed.
int flood_role(channel& to, const std::vector<std::string>& args) {
  const auto there =
      must(dat::ia_address::parse(args.at(0))).with_port(static_cast<std::uint16_t>(std::stoul(args.at(1))));
  rdma_event_channel* const events = rdma_create_event_channel();
  std::mt19937 random(random_seed());
  std::list<rdma_cm_id*> all;
  for (std::size_t n = 0;;) {
    while (all.size() < 32) {
      check(rdma_create_id(events, &all.emplace_back(), nullptr, RDMA_PS_UDP) == 0, "rdma_create_id");
      check(rdma_resolve_addr(all.back(), nullptr, const_cast<sockaddr*>(there.native_handle()), 2000) == 0,
            "rdma_resolve_addr");
    }
    rdma_cm_event* e = nullptr;
    check(rdma_get_cm_event(events, &e) == 0, "rdma_get_cm_event");
    const auto type = e->event;
    rdma_cm_id* const id = e->id;
    rdma_ack_cm_event(e);
    if (type == RDMA_CM_EVENT_ADDR_RESOLVED) {
      check(rdma_resolve_route(id, 2000) == 0, "rdma_resolve_route");
    } else if (type == RDMA_CM_EVENT_ROUTE_RESOLVED) {
      // The header has the sender's own address or that of a third host, or there is no header.
      std::array<std::byte, 180> data{};
      dat::detail::qp_place from;
      const auto* own = reinterpret_cast<const sockaddr_in*>(rdma_get_local_addr(id));
      const auto third = must(dat::ia_address::parse("10.78.1.66"));
      from.gid = dat::detail::gid_of(random() % 2 == 0 ? dat::ia_address(*own) : third);
      from.qp_num = static_cast<std::uint32_t>(random());
      from.qkey = static_cast<std::uint32_t>(random());
      if (random() % 4 != 0)
        std::memcpy(dat::detail::datagram_header::write(from, random() % 256, data.data()), "enemy", 5);
      rdma_conn_param p{};
      p.private_data = data.data();
      p.private_data_len = data.size();
      check(rdma_connect(id, &p) == 0, "rdma_connect");
      if (++n == 100) to.say("flooding");
    } else {
      all.remove(id);
      rdma_destroy_id(id);
    }
  }
}
const role flood_registered("hostile datagram flood", &flood_role);

/// Sends packets of RoCE v2 as any program with raw sockets can: IPv4, UDP, transport header, payload, ICRC.
class forger {
public:
  explicit forger(const dat::ia_address& from) : from_(ipv4(from)) {
    const int on = 1;
    const char link[] = "v1";
    check(socket_ >= 0 && ::setsockopt(socket_, IPPROTO_IP, IP_HDRINCL, &on, sizeof on) == 0, "raw socket");
    check(::setsockopt(socket_, SOL_SOCKET, SO_BINDTODEVICE, link, sizeof link) == 0, "SO_BINDTODEVICE");
  }
  forger(const forger&) = delete;
  forger& operator=(const forger&) = delete;
  ~forger() { ::close(socket_); }

  /// A message of a connection: the only packet of a send.
  void connected(const dat::ia_address& to, std::uint32_t qp, std::uint32_t psn, std::span<const std::byte> payload) {
    send(to, 0x04, qp, psn, {}, payload);
  }
  void datagram(const dat::ia_address& to, std::uint32_t qp, std::uint32_t qkey, std::uint32_t source,
                std::span<const std::byte> payload) {
    std::vector<std::byte> more(8);
    dat::detail::put_be(more.data(), qkey);
    dat::detail::put_be(more.data() + 4, source);
    send(to, 0x64, qp, 0, more, payload);
  }

private:
  static std::uint32_t ipv4(const dat::ia_address& a) {
    std::uint32_t n = 0;
    std::memcpy(&n, &reinterpret_cast<const sockaddr_in*>(a.native_handle())->sin_addr, sizeof n);
    return n;
  }
  static std::uint32_t crc(std::span<const std::byte> bytes) {
    std::uint32_t sum = 0xdebb20e3; // the CRC of the eight bytes 0xff in the place of a link header
    for (const std::byte b : bytes) {
      sum ^= static_cast<std::uint32_t>(b);
      for (int i = 0; i < 8; ++i) sum = (sum >> 1) ^ ((sum & 1) != 0 ? 0xedb88320u : 0u);
    }
    return ~sum;
  }
  void send(const dat::ia_address& to, std::uint8_t opcode, std::uint32_t qp, std::uint32_t psn,
            std::span<const std::byte> extended, std::span<const std::byte> payload) {
    using dat::detail::put_be;
    constexpr std::size_t ip = 0, udp = 20, bth = 28, body = 40;
    std::vector<std::byte> p(body + extended.size() + payload.size());
    const auto whole = static_cast<std::uint16_t>(p.size() + 4);
    p[ip] = std::byte{0x45};
    put_be(&p[ip + 2], whole);
    put_be(&p[ip + 4], std::uint16_t{0x4711});
    p[ip + 8] = std::byte{64};
    p[ip + 9] = std::byte{IPPROTO_UDP};
    std::memcpy(&p[ip + 12], &from_, 4);
    const std::uint32_t target = ipv4(to);
    std::memcpy(&p[ip + 16], &target, 4);
    put_be(&p[udp], std::uint16_t{0xc123});
    put_be(&p[udp + 2], std::uint16_t{4791});
    put_be(&p[udp + 4], static_cast<std::uint16_t>(whole - udp));
    p[bth] = std::byte{opcode};
    put_be(&p[bth + 2], std::uint16_t{0xffff});
    put_be(&p[bth + 4], qp);
    put_be(&p[bth + 8], psn);
    std::ranges::copy(extended, p.begin() + body);
    std::ranges::copy(payload, p.begin() + body + static_cast<std::ptrdiff_t>(extended.size()));
    // The ICRC does not cover the fields that routers change.
    auto masked = p;
    for (const std::size_t i : {ip + 1, ip + 8, ip + 10, ip + 11, udp + 6, udp + 7, bth + 4})
      masked[i] = std::byte{0xff};
    const std::uint32_t sum = crc(masked);
    for (int i = 0; i < 4; ++i) p.push_back(static_cast<std::byte>(sum >> (8 * i)));
    sockaddr_in there{};
    there.sin_family = AF_INET;
    there.sin_addr.s_addr = target;
    const auto out = [&] {
      check(::sendto(socket_, p.data(), p.size(), 0, reinterpret_cast<const sockaddr*>(&there), sizeof there) ==
                static_cast<ssize_t>(p.size()),
            "sendto");
    };
    out();
    // Soft-RoCE of Linux 6.1 has the ICRC in the byte order of the processor. It drops the packet with the other one.
    if constexpr (std::endian::native == std::endian::big) {
      std::reverse(p.end() - 4, p.end());
      out();
    }
  }
  int socket_ = ::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
  std::uint32_t from_;
};

std::string text_of(std::span<const std::byte> s) { return {reinterpret_cast<const char*>(s.data()), s.size()}; }

} // namespace

TEST_CASE("during a flood of datagram requests another endpoint still exchanges addresses", "[hostile][ud]") {
  NEEDS_FEATURE(datagrams);
  end a(0);
  end b(1);
  const auto service = must(dat::ib::datagram_service::listen(b.ia, next_port(), b.evd));
  auto near = must(a.pz.create_ep<dat::ud>(a.evd));
  auto far = must(b.pz.create_ep<dat::ud>(b.evd));
  std::atomic<bool> done = false;
  std::atomic<std::size_t> enemies = 0;
  background server([&] {
    const auto take = dat::overloaded{[&](dat::ib::datagram_request& r) {
                                        if (text_of(r.private_data()) == "friend")
                                          must(r.accept(far));
                                        else if (++enemies % 2 == 0)
                                          must(r.reject());
                                      },
                                      [](const auto&) {}};
    while (!done) (void)b.evd.wait_and_drain(take, 50ms, 64);
  });
  peer_process enemy("hostile datagram flood", {b.ia.address().host_string(), std::to_string(service.port())});
  CHECK(enemy.hear() == "flooding");
  for (int i = 0; i < 5; ++i) {
    const auto until = std::chrono::steady_clock::now() + patience;
    for (;;) { // an evd that is full at this moment refuses friends, too
      must(near.connect(b.ia.address(), must(dat::conn_qual::make(service.port())), patience, bytes_of("friend")));
      const auto outcome = must(a.evd.wait(patience));
      if (std::holds_alternative<dat::ib::datagram_established>(outcome)) break;
      REQUIRE(std::chrono::steady_clock::now() < until);
    }
  }
  CHECK(comes_true([&] { return enemies >= 100; }));
  enemy.kill();
  (void)enemy.wait();
  done = true;
  server.get();
}

TEST_CASE("a forged packet of a connection needs the packet number, and a replayed one is dropped",
          "[hostile][forged]") {
  NEEDS_FEATURE(descriptors);
  if (!in_lab()) SKIP("sends raw packets on the lab's wire");
  two_sides t;
  auto a = t.a.make_ep();
  auto b = t.b.make_ep();
  buffer out(t.a.pz, 64);
  buffer in(t.b.pz, 1024);
  const auto of_a = must(a.export_descriptor());
  must(b.connect(of_a));
  must(a.connect(must(b.export_descriptor())));
  (void)t.at_a<dat::established>(a);
  (void)t.at_b<dat::established>(b);
  for (std::uint64_t i = 0; i < 8; ++i) must(b.post(dat::recv{in.slice(64 * i, 64)}.cookie(i)));
  const auto message = [&](std::uint32_t seed) {
    fill(out.bytes, seed);
    must(a.post(dat::send{out.lmr}));
    (void)t.at_a<dat::send_done>(a);
    const auto done = t.at_b<dat::recv_done>(b);
    CHECK(done.cookie() == dat::cookie(seed)); // no other message has taken a receive
    CHECK(has_pattern(in.part(64 * seed, 64), seed));
  };
  const auto first = dat::detail::get_be<std::uint32_t>(of_a.to_wire().data() + 16);
  const auto lie = pattern(64, 99);
  forger enemy(addresses()[0]);
  const auto forge = [&](std::uint32_t psn) { enemy.connected(addresses()[1], b.number(), psn & 0xff'ffff, lie); };
  message(0);   // this packet has the first packet number
  forge(first); // a replay, with other contents
  forge(first + 0x200000);
  forge(first - 0x200000);
  forge(first + 17);
  message(1);
  CHECK(a.state() == state::connected);
  // With the right number the packet counts as the peer's: RoCE authenticates nothing.
  forge(first + 2);
  CHECK(t.at_b<dat::recv_done>(b).cookie() == dat::cookie(2));
  CHECK(has_pattern(in.part(128, 64), 99));
}

TEST_CASE("a forged datagram needs number and key of the endpoint, and may name any sender; a replay arrives again",
          "[hostile][forged][ud]") {
  NEEDS_FEATURE(datagrams);
  if (!in_lab()) SKIP("sends raw packets on the lab's wire");
  end b(1);
  auto ep = must(b.pz.create_ep<dat::ud>(b.evd));
  buffer in(b.pz, 8 * 128);
  for (std::uint64_t i = 0; i < 8; ++i) must(ep.post(dat::recv{in.slice(128 * i, 128)}.cookie(i)));
  forger enemy(addresses()[0]);
  const auto lie = [&](std::uint32_t seed) { return pattern(32, seed); };
  const auto send = [&](std::uint32_t qp, std::uint32_t key, std::uint32_t seed) {
    enemy.datagram(addresses()[1], qp, key, 0x123456, lie(seed));
  };
  const auto arrived = [&](std::uint64_t slot, std::uint32_t seed) {
    const auto got = expect<dat::ib::datagram_recv_done>(b);
    CHECK(got.cookie() == dat::cookie(slot));
    CHECK(got.source_qp_number() == 0x123456); // no endpoint has this number
    const dat::ib::datagram_view view(got, in.slice(128 * slot, 128));
    CHECK(has_pattern(view.payload(), seed));
    CHECK(view.header().source() == addresses()[0]);
  };
  send(ep.number(), dat::ib::default_qkey + 1, 1);
  send(ep.number(), 0, 2);
  send(ep.number() + 0x1000, dat::ib::default_qkey, 3);
  send(ep.number(), dat::ib::default_qkey, 4);
  send(ep.number(), dat::ib::default_qkey, 4);
  arrived(0, 4);
  arrived(1, 4);
  // A sender need not be a member of the group.
  const auto where = must(dat::ia_address::parse("239.10.20.77"));
  auto group = must(dat::ib::multicast_group::join(ep, where));
  (void)expect<dat::ib::group_joined>(b);
  enemy.datagram(where, 0xff'ffff, dat::ib::default_qkey + 1, 0x123456, lie(5));
  enemy.datagram(where, 0xff'ffff, dat::ib::default_qkey, 0x123456, lie(6));
  arrived(2, 6);
  CHECK(ep.state() == state::connected);
}

}} // namespace device::hostile_ud
