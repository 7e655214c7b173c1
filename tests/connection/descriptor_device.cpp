// Endpoints that are connected by descriptors.
// SPDX-License-Identifier: BSL-1.0
#include "descriptor_text.hpp"
#include "device_table.hpp"
#include "support.hpp"

#include <dat/descriptor.hpp>
#include <dat/ep_params.hpp>
#include <dat/ud.hpp>

#include <support/sealed_descriptor.hpp>

#include <algorithm>
#include <cstring>
#include <random>

namespace device {
namespace {

/// Exchanges descriptors with the other end of a channel, each as 128 hexadecimal digits.
descriptor exchange(channel& with, const descriptor& mine) {
  with.say(to_hex(mine.to_wire()));
  return must(descriptor::from_wire(from_hex(with.hear())));
}

/// Echoes one message over a connection, and one datagram, on endpoints that descriptors have connected.
int echo_role(channel& to, const std::vector<std::string>&) {
  side s(1);
  endpoint ep = s.make_ep();
  buffer memory(s.pz, 256);
  must(ep.post(dat::recv{memory.lmr}));
  must(ep.connect(exchange(to, must(ep.export_descriptor()))));
  (void)next<dat::established>(s.evd);
  to.say("ready");
  const auto got = next<dat::ib::recv_immediate_done>(s.evd);
  must(ep.post(dat::send{memory.slice(0, got.bytes())}.immediate(got.immediate() + 1)));
  (void)next<dat::send_done>(s.evd);

  auto evd = must(s.ia.create_evd<ud_streams>(16));
  auto ud = must(s.pz.create_ep<dat::ud>(evd));
  must(ud.post(dat::recv{memory.lmr}));
  const auto peer = must(ud.connect(exchange(to, must(ud.export_descriptor()))));
  to.say("ready");
  const auto datagram = must(evd.wait_for<dat::ib::datagram_recv_done>(patience));
  must(ud.post(dat::ib::send_to{memory.slice(40, datagram.payload_bytes()), peer}));
  (void)must(evd.wait_for<dat::ib::datagram_send_done>(patience));
  if (to.hear() != "end") return 1;
  must(ep.disconnect());
  return 0;
}
const role echo_registered("descriptor echo", &echo_role);

/// The descriptor `w` with another address in its gid.
descriptor::wire moved(const descriptor::wire& w, const char* text) {
  const auto to = must(dat::ia_address::parse(text));
  auto changed = w;
  const ibv_gid gid = dat::detail::gid_of(to);
  std::memcpy(&changed[32], gid.raw, sizeof gid.raw);
  support::seal(changed);
  return changed;
}

/// Arguments: a seed. First sends descriptors that must not work, each with a word before it. The word "no" marks bytes
/// that are no descriptor, "link" an adapter of another kind, "nowhere" an address without a path, and "perhaps" a
/// descriptor that may work. Then sends its real descriptor, and echoes a message.
int liar_role(channel& to, const std::vector<std::string>& args) {
  std::mt19937 random(static_cast<std::uint32_t>(std::stoul(args.at(0))));
  side s(1);
  endpoint ep = s.make_ep();
  buffer memory(s.pz, 8);
  must(ep.post(dat::recv{memory.lmr}));
  const auto mine = must(ep.export_descriptor());
  const auto good = mine.to_wire();
  const auto tell = [&](const char* what, std::span<const std::byte> blob) {
    to.say(std::string(what) + ' ' + to_hex(blob));
  };
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    auto w = good;
    w[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    tell("no", w);
  }
  std::vector<std::byte> any(good.begin(), good.end());
  any.resize(200, std::byte{1});
  for (std::size_t n = 0; n < any.size(); n += n < 70 ? 1 : 13)
    if (n != good.size()) tell("no", std::span(any).first(n));
  for (int i = 0; i < 40; ++i) {
    auto w = good;
    std::generate(w.begin(), w.end(), [&] { return static_cast<std::byte>(random()); });
    if (i % 2 == 0) support::seal(w);
    tell("no", w);
  }
  // Descriptors with a valid checksum and one wrong value: version, byte order, service, number or address.
  for (const auto& w : {with(good, 4, {0}),           with(good, 4, {2}),
                        with(good, 6, {2, 1}),        with(good, 5, {0}),
                        with(good, 5, {3}),           with(good, 8, {0}),
                        with(good, 8, {3}),           with(good, 9, {0}),
                        with(good, 9, {6}),           with(good, 11, {1}),
                        with(good, 12, {0, 0, 0, 1}), with(good, 12, {1, 0, 0, 0}),
                        with(good, 16, {1, 0, 0, 0}), with(good, 24, {0, 1}),
                        with(good, 26, {1}),          with(good, 59, {1}),
                        moved(good, "0.0.0.0"),       moved(good, "::"),
                        moved(good, "239.1.2.3"),     moved(good, "255.255.255.255"),
                        moved(good, "ff02::1")})
    tell("no", w);
  for (const unsigned service : {1u, 2u})
    tell("link", with(with(with(good, 24, {0, 1}), 8, {IBV_LINK_LAYER_INFINIBAND}), 5, {service}));
  // These descriptors are well formed, and no path leads to their addresses.
  for (const unsigned service : {1u, 2u}) tell("nowhere", with(moved(good, "2001:db8::1"), 5, {service}));
  tell("nowhere", moved(good, "10.78.254.254")); // an address in this network that does not answer
  for (int i = 0; i < 40; ++i) {
    auto w = good;
    for (const std::size_t at : {std::size_t{9}, std::size_t{10}, std::size_t{13}, std::size_t{14}, std::size_t{15},
                                 std::size_t{17}, std::size_t{18}, std::size_t{19}, std::size_t{20}, std::size_t{21}})
      if (random() % 2 == 0) w[at] = static_cast<std::byte>(at == 9 ? 1 + random() % 5 : random() | (at == 15 ? 2 : 0));
    if (random() % 8 == 0) w[5] = std::byte{2};
    support::seal(w);
    tell("perhaps", w);
  }
  to.say("truth");
  must(ep.connect(exchange(to, mine)));
  (void)next<dat::established>(s.evd);
  to.say("ready");
  (void)next<dat::recv_done>(s.evd);
  must(ep.post(dat::send{memory.slice(0, 8)}));
  (void)next<dat::send_done>(s.evd);
  return to.hear() == "end" ? 0 : 1;
}
const role liar_registered("descriptor liar", &liar_role);

} // namespace

TEST_CASE("two endpoints of one process are connected by descriptors, with reads and atomics",
          "[descriptor][DOCA-031][DOCA-029][DOCA-030]") {
  NEEDS_FEATURE(descriptors);
  two_sides sides;
  endpoint a = sides.a.make_ep({.max_rdma_read_out = 4});
  endpoint b = sides.b.make_ep({.max_rdma_read_in = 2});
  CHECK(a.state() == state::unconnected);
  const auto of_a = must(a.export_descriptor());
  const auto of_b = must(b.export_descriptor());
  CHECK(of_a.kind() == descriptor::service::rc);
  CHECK(of_a.number() == a.number());
  CHECK(of_a.host() == sides.a.ia.address().with_port(0));
  CHECK(of_a.to_wire() == must(a.export_descriptor()).to_wire()); // a descriptor can be exported any number of times
  buffer out(sides.a.pz, 64);
  buffer in(sides.b.pz, 64);
  must(b.post(dat::recv{in.lmr}.cookie(1))); // posted before connecting, and kept by connect
  must(a.connect(of_b));
  (void)next<dat::established>(sides.a.evd);
  must(b.connect(of_a));
  (void)next<dat::established>(sides.b.evd);
  CHECK(a.state() == state::connected);
  CHECK(must(a.remote_address()) == sides.b.ia.address().with_port(0));
  fill(out.bytes, 4);
  must(a.post(dat::send{out.lmr}));
  (void)next<dat::send_done>(sides.a.evd);
  CHECK(next<dat::recv_done>(sides.b.evd).bytes() == 64);
  CHECK(has_pattern(in.bytes, 4));
  fill(in.bytes, 5);
  must(a.post(dat::rdma_read{out.lmr, in.remote()}));
  (void)next<dat::rdma_read_done>(sides.a.evd);
  CHECK(has_pattern(out.bytes, 5));
  CHECK(error_of(a.connect(of_b)) == dat::error(type::invalid_state, subtype::ep_connected));
  // One side disconnects, and the other side detects that when it sends. Then both sides reset and connect by new
  // descriptors.
  must(b.disconnect());
  (void)next<dat::disconnected>(sides.b.evd);
  must(a.post(dat::send{out.slice(0, 1)}));
  (void)next<dat::dto_failure>(sides.a.evd);
  (void)next<dat::connection_broken>(sides.a.evd);
  CHECK(error_of(a.connect(of_b)) == dat::error(type::invalid_state, subtype::ep_disconnected));
  CHECK(error_of(b.connect(of_a)) == dat::error(type::invalid_state, subtype::ep_disconnected));
  SHOWS("EPS-001");
  CHECK((a.state() == state::disconnected && b.state() == state::disconnected));
  must(a.post(dat::send{out.slice(0, 1)}));
  CHECK(next<dat::dto_failure>(sides.a.evd).status() == dat::dto_status::flushed);
  must(a.reset());
  must(b.reset());
  CHECK((a.state() == state::unconnected && b.state() == state::unconnected));
  const auto again_a = must(a.export_descriptor());
  const auto again_b = must(b.export_descriptor());
  CHECK(again_a.to_wire() != of_a.to_wire());
  must(a.connect(again_b));
  must(b.connect(again_a));
  (void)next<dat::established>(sides.a.evd);
  (void)next<dat::established>(sides.b.evd);
  must(a.post(dat::rdma_write{out.lmr, in.remote()}));
  (void)next<dat::rdma_write_done>(sides.a.evd);
  // A connection can be stopped, too.
  must(a.disconnect());
  (void)next<dat::disconnected>(sides.a.evd);
  must(a.reset());
  CHECK(a.state() == state::unconnected);
}

TEST_CASE("rxe lets a peer run more RDMA reads than its responder allows", "[descriptor][rxe-deviation]") {
  two_sides sides;
  if (!sides.a.ia.name().starts_with("rx")) SKIP("says what Soft-RoCE does");
  endpoint a = sides.a.make_ep({.max_rdma_read_out = 8});
  endpoint b = sides.b.make_ep({.max_rdma_read_in = 1});
  auto w = must(b.export_descriptor()).to_wire();
  CHECK(w[10] == std::byte{1});
  w[10] = std::byte{8}; // the descriptor promises more RDMA reads than the peer serves
  support::seal(w);
  const auto of_a = must(a.export_descriptor());
  must(a.connect(must(descriptor::from_wire(w))));
  must(b.connect(of_a));
  (void)next<dat::established>(sides.a.evd);
  (void)next<dat::established>(sides.b.evd);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  REQUIRE(ibv_query_qp(a.native_handle(), &attr, IBV_QP_MAX_QP_RD_ATOMIC, &init) == 0);
  CHECK(attr.max_rd_atomic == 8);
  buffer mine(sides.a.pz, 64 * 1024);
  buffer theirs(sides.b.pz, 64 * 1024);
  fill(theirs.bytes, 6);
  for (std::size_t i = 0; i < 16; ++i)
    must(a.post(dat::rdma_read{mine.slice(i * 4096, 4096), theirs.remote(i * 4096, 4096)}.cookie(i)));
  for (std::size_t i = 0; i < 16; ++i) CHECK(next<dat::rdma_read_done>(sides.a.evd).cookie() == dat::cookie(i));
  CHECK(has_pattern(mine.bytes, 6));
  CHECK(a.state() == state::connected);
  DEVIATES("DTO-133");
}

TEST_CASE("endpoints of two processes are connected by descriptors that any channel carries",
          "[descriptor][DOCA-031]") {
  NEEDS_FEATURE(descriptors);
  peer_process peer("descriptor echo");
  side s(0);
  endpoint ep = s.make_ep();
  buffer out(s.pz, 100);
  buffer in(s.pz, 140);
  must(ep.post(dat::recv{in.lmr}));
  const auto theirs = must(descriptor::from_wire(from_hex(peer.hear())));
  peer.say(to_hex(must(ep.export_descriptor()).to_wire()));
  must(ep.connect(theirs));
  (void)next<dat::established>(s.evd);
  REQUIRE(peer.hear() == "ready");
  fill(out.bytes, 11);
  must(ep.post(dat::send{out.lmr}.immediate(41)));
  (void)next<dat::send_done>(s.evd);
  const auto back = next<dat::ib::recv_immediate_done>(s.evd);
  CHECK(back.immediate() == 42);
  CHECK(has_pattern(in.part(0, 100), 11));

  auto evd = must(s.ia.create_evd<ud_streams>(16));
  auto ud = must(s.pz.create_ep<dat::ud>(evd));
  must(ud.post(dat::recv{in.lmr}));
  const auto place = must(descriptor::from_wire(from_hex(peer.hear())));
  CHECK(place.kind() == descriptor::service::ud);
  peer.say(to_hex(must(ud.export_descriptor()).to_wire()));
  const auto to = must(ud.connect(place));
  // Descriptors of the other service are refused on both sides.
  CHECK(error_of(ud.connect(theirs)).type() == type::invalid_parameter);
  endpoint other = s.make_ep();
  CHECK(error_of(other.connect(place)).type() == type::invalid_parameter);
  CHECK(error_of(other.connect(descriptor{})).type() == type::invalid_parameter);
  CHECK(other.state() == state::unconnected);
  REQUIRE(peer.hear() == "ready");
  must(ud.post(dat::ib::send_to{out.lmr, to}));
  const auto got = must(evd.wait_for<dat::ib::datagram_recv_done>(patience));
  CHECK(has_pattern(dat::ib::datagram_view(got, in.lmr).payload(), 11));
  peer.say("end");
  CHECK(peer.wait() == 0);
}

TEST_CASE("a bad descriptor from another process gives an error with a reason, or leaves the endpoint usable",
          "[descriptor][DOCA-030][DOCA-031]") {
  NEEDS_FEATURE(descriptors);
  INFO("DAT_TEST_SEED=" << random_seed());
  peer_process liar("descriptor liar", {std::to_string(random_seed())});
  side s(0);
  endpoint ep = s.make_ep();
  auto evd = must(s.ia.create_evd<ud_streams>(16));
  auto ud = must(s.pz.create_ep<dat::ud>(evd));
  buffer memory(s.pz, 64);
  fill(memory.bytes, 3);
  std::size_t believed = 0;
  std::size_t reached = 0;
  for (std::string line = liar.hear(); line != "truth"; line = liar.hear()) {
    INFO(line);
    const auto word = line.substr(0, line.find(' '));
    const auto d = descriptor::from_wire(from_hex(line.substr(word.size() + 1)));
    if (word == "no") {
      const auto e = error_of(d);
      if (e.type() != type::invalid_parameter || e.hint().empty()) FAIL(e.message());
      continue;
    }
    ++believed;
    const bool datagrams = must(d).kind() == descriptor::service::ud;
    const auto to = ud.connect(d.assume_value());
    const auto up = ep.connect(d.assume_value());
    const auto other_service = datagrams ? error_of(up) : error_of(to);
    CHECK(other_service.type() == type::invalid_parameter);
    CHECK_THAT(other_service.message(), support::contains_text("other service"));
    if (word != "perhaps") {
      const auto e = datagrams ? error_of(to) : error_of(up);
      CHECK(e.type() == (word == "link" ? type::invalid_parameter : type::invalid_address));
      CHECK_THAT(e.message(), support::contains_text(word == "link" ? "link layer" : "peer"));
    }
    if (to) {
      must(ud.post(dat::ib::send_to{memory.slice(0, 8), to.assume_value()}));
      (void)must(evd.wait_for<dat::ib::datagram_send_done>(patience));
    }
    CHECK(ud.state() == state::connected);
    CHECK((ep.state() == state::connected) == up.has_value());
    if (!up) {
      CHECK(ep.state() == state::unconnected);
      continue;
    }
    ++reached;
    (void)next<dat::established>(s.evd);
    must(ep.disconnect());
    (void)next<dat::disconnected>(s.evd);
    must(ep.reset());
  }
  CHECK(believed > 40);
  CHECK(reached > 20);
  // The same endpoint connects by the real descriptor, so the invalid descriptors have harmed neither side.
  must(ep.post(dat::recv{memory.slice(8, 8)}));
  must(ep.connect(exchange(liar.talk(), must(ep.export_descriptor()))));
  (void)next<dat::established>(s.evd);
  REQUIRE(liar.hear() == "ready");
  must(ep.post(dat::send{memory.slice(0, 8)}));
  (void)must(s.evd.wait_for<dat::send_done>(patience)); // the two events come in either order
  CHECK(must(s.evd.wait_for<dat::recv_done>(patience)).bytes() == 8);
  CHECK(std::memcmp(&memory.bytes[0], &memory.bytes[8], 8) == 0);
  liar.say("end");
  CHECK(liar.wait() == 0);
}

TEST_CASE("other calls on the endpoint do not wait while the kernel resolves the peer of a descriptor",
          "[descriptor]") {
  NEEDS_FEATURE(descriptors);
  if (!in_lab()) SKIP("needs an address on the link that nobody has");
  side s(0);
  endpoint ep = s.make_ep();
  auto wire = must(ep.export_descriptor()).to_wire();
  const auto nobody = must(dat::ia_address::parse("fe80::dead"));
  std::memcpy(&wire[32], &reinterpret_cast<const sockaddr_in6*>(nobody.native_handle())->sin6_addr, 16);
  support::seal(wire);
  const auto to_nobody = must(descriptor::from_wire(wire));
  bool seen = false;
  for (int tries = 0; tries < 5 && !seen; ++tries) {
    const auto start = std::chrono::steady_clock::now();
    background asks([&] { return ep.connect(to_nobody); });
    while (!asks.done()) {
      // A call that waits for the lock this late overlaps connect, and a call that returns before connect does not wait
      // for it.
      const bool late = std::chrono::steady_clock::now() - start > 200ms;
      (void)must(ep.query());
      seen = seen || (late && !asks.done());
    }
    CHECK(error_of(asks.get()).type() == type::invalid_address);
    CHECK(ep.state() == state::unconnected);
  }
  CHECK(seen);
}

TEST_CASE("a stale, reused or own descriptor is refused by connect or by the peer", "[descriptor][DOCA-030]") {
  NEEDS_FEATURE(descriptors);
  two_sides sides;
  endpoint a = sides.a.make_ep();
  endpoint b = sides.b.make_ep();
  buffer out(sides.a.pz, 16);
  buffer in(sides.b.pz, 16);
  fill(out.bytes, 9);
  const auto nobody_answers = [&](const descriptor& there) {
    endpoint ep = sides.a.make_ep({.retry_count = 1, .ack_timeout = 20ms});
    must(ep.connect(there)); // connect cannot detect that the peer does not answer
    (void)next<dat::established>(sides.a.evd);
    must(ep.post(dat::send{out.lmr}.cookie(4)));
    const auto failed = next<dat::dto_failure>(sides.a.evd);
    CHECK(failed.cookie() == dat::cookie(4));
    CHECK(failed.status() == dat::dto_status::transport);
    (void)next<dat::connection_broken>(sides.a.evd);
    CHECK(ep.state() == state::disconnected);
    must(ep.reset());
    CHECK(ep.state() == state::unconnected);
  };
  {
    endpoint gone = sides.b.make_ep();
    const auto stale = must(gone.export_descriptor());
    must(gone.close());
    nobody_answers(stale);
    CHECK(error_of(gone.export_descriptor()).type() == type::invalid_handle);
    CHECK(error_of(gone.connect(stale)).type() == type::invalid_handle);
  }
  const auto of_b = must(b.export_descriptor());
  must(a.connect(of_b));
  must(b.connect(must(a.export_descriptor())));
  (void)next<dat::established>(sides.a.evd);
  (void)next<dat::established>(sides.b.evd);
  CHECK(error_of(a.connect(of_b)).type() == type::invalid_state); // twice
  const auto moves = [&](endpoint& from, endpoint& to) {
    std::fill(in.bytes.begin(), in.bytes.end(), std::byte{});
    must(to.post(dat::recv{in.lmr}));
    must(from.post(dat::send{out.lmr}));
    (void)next<dat::send_done>(sides.a.evd);
    CHECK(next<dat::recv_done>(sides.b.evd).ep() == to);
    CHECK(has_pattern(in.bytes, 9));
  };
  moves(a, b);
  // A third endpoint connects to b by the same descriptor. It gets no answer, and the connection of b is not affected.
  nobody_answers(of_b);
  moves(a, b);
  CHECK(is_empty(sides.a.evd));
  CHECK(is_empty(sides.b.evd));
  // An endpoint connects to itself.
  endpoint c = sides.a.make_ep();
  buffer back(sides.a.pz, 16);
  must(c.connect(must(c.export_descriptor())));
  (void)next<dat::established>(sides.a.evd);
  must(c.post(dat::recv{back.lmr}));
  must(c.post(dat::send{out.lmr}));
  const auto both = take(sides.a.evd, 2);
  CHECK((count_of<dat::send_done>(both) == 1 && count_of<dat::recv_done>(both) == 1));
  CHECK(has_pattern(back.bytes, 9));
  must(c.disconnect());
  (void)next<dat::disconnected>(sides.a.evd);
  must(c.reset());
  endpoint d = sides.b.make_ep();
  must(c.connect(must(d.export_descriptor())));
  must(d.connect(must(c.export_descriptor())));
  (void)next<dat::established>(sides.a.evd);
  (void)next<dat::established>(sides.b.evd);
  moves(c, d);
}

} // namespace device
