// The values of datagrams: headers, views, address handles, completions and qualities of service, at their limits.
// SPDX-License-Identifier: BSL-1.0
#include <unit/datagram_end.hpp>
#include <unit/world.hpp>

#include <dat/buffer.hpp>
#include <dat/ud.hpp>

#include <array>
#include <cstring>
#include <utility>

using namespace unit;
using dat::return_subtype;
using dat::return_type;

namespace {

using raw_header = std::array<std::uint8_t, dat::ib::grh::size>;

dat::ib::grh header_from(const raw_header& bytes) {
  dat::ib::grh h{};
  std::memcpy(static_cast<void*>(&h), bytes.data(), sizeof h);
  return h;
}

/// A header of IPv6: from 2001:db8::1 to 2001:db8::2.
raw_header ipv6_header() {
  raw_header b{};
  b[0] = 0x60;
  b[7] = 61;
  b[8] = b[24] = 0x20;
  b[9] = b[25] = 0x01;
  b[10] = b[26] = 0x0d;
  b[11] = b[27] = 0xb8;
  b[23] = 1;
  b[39] = 2;
  return b;
}
/// A header of IPv4: from 10.99.1.1 to 10.99.2.1, behind unused bytes.
raw_header ipv4_header() {
  raw_header b{};
  b[0] = 0x15;
  b[20] = 0x45;
  b[28] = 62;
  const std::array<std::uint8_t, 8> addresses{10, 99, 1, 1, 10, 99, 2, 1};
  std::memcpy(&b[32], addresses.data(), addresses.size());
  return b;
}

dat::ib::datagram_recv_done arrived(std::uint32_t bytes) {
  ibv_wc wc{};
  wc.byte_len = bytes;
  wc.src_qp = 17;
  return dat::detail::event_access::make<dat::ib::datagram_recv_done>(nullptr, dat::cookie(1), wc);
}

const dat::ia_address no_host = must(dat::ia_address::parse("::"));

} // namespace

TEST_CASE("the header of a datagram shows its addresses and hop limit, of IPv4 and of IPv6", "[ud]") {
  const auto v6 = header_from(ipv6_header());
  CHECK_FALSE(v6.is_ipv4());
  CHECK(v6.source() == must(dat::ia_address::parse("2001:db8::1")));
  CHECK(v6.destination() == must(dat::ia_address::parse("2001:db8::2")));
  CHECK(v6.hop_limit() == 61);
  const auto v4 = header_from(ipv4_header());
  CHECK(v4.is_ipv4());
  CHECK(v4.source() == must(dat::ia_address::parse("10.99.1.1")));
  CHECK(v4.destination() == must(dat::ia_address::parse("10.99.2.1")));
  CHECK(v4.hop_limit() == 62);
  // An IPv6 address may have any byte where the version of an IPv4 header is.
  auto mixed = ipv6_header();
  mixed[20] = 0x45;
  CHECK_FALSE(header_from(mixed).is_ipv4());
  CHECK_FALSE(header_from({}).is_ipv4());
  CHECK(header_from({}).source() == no_host);
}

TEST_CASE("a received datagram has the bytes behind its header as payload, and none if it is too short", "[ud]") {
  CHECK(arrived(0).payload_bytes() == 0);
  CHECK(arrived(39).payload_bytes() == 0);
  CHECK(arrived(40).payload_bytes() == 0);
  CHECK(arrived(41).payload_bytes() == 1);
  CHECK(arrived(41).source_qp_number() == 17);
  CHECK(arrived(41).bytes() == 41);
}

TEST_CASE("a view of a datagram ends with the message or with the buffer, whichever is shorter", "[ud]") {
  std::array<std::byte, 64> buffer{};
  const auto header = ipv6_header();
  std::memcpy(buffer.data(), header.data(), header.size());
  const std::uint32_t value = 0x01020304;
  std::memcpy(&buffer[40], &value, sizeof value);
  const dat::ib::datagram_view whole(arrived(44), buffer);
  CHECK(whole.payload().size() == 4);
  CHECK(whole.payload().data() == &buffer[40]);
  CHECK(whole.header().source() == must(dat::ia_address::parse("2001:db8::1")));
  CHECK(whole.payload_as<std::uint32_t>() == value);
  CHECK_FALSE(whole.payload_as<std::uint64_t>());
  CHECK(dat::ib::datagram_view(arrived(43), buffer).payload().size() == 3);
  CHECK_FALSE(dat::ib::datagram_view(arrived(43), buffer).payload_as<std::uint32_t>());
  CHECK(dat::ib::datagram_view(arrived(1000), buffer).payload().size() == 24);
  // A message of a header alone, and a buffer that is shorter than a header.
  CHECK(dat::ib::datagram_view(arrived(40), buffer).payload().empty());
  CHECK(dat::ib::datagram_view(arrived(40), buffer).header().hop_limit() == 61);
  const dat::ib::datagram_view short_one(arrived(39), buffer);
  CHECK(short_one.payload().empty());
  CHECK(short_one.header().hop_limit() == 0);
}

TEST_CASE("a view of a datagram takes a segment or a whole registration as its buffer", "[ud]") {
  const clean_world clean;
  end e;
  e.memory[40] = 'x';
  const dat::ib::datagram_view of_segment(arrived(41), e.at(0, 64));
  const dat::ib::datagram_view of_region(arrived(41), e.mem);
  CHECK(text_of(of_segment.payload()) == "x");
  CHECK(text_of(of_region.payload()) == "x");
}

TEST_CASE("an address handle names its peer until it is moved, dropped, or its endpoint ends", "[ud]") {
  const clean_world clean;
  datagram_end a("fk1");
  datagram_end b("fk2");
  dat::ib::address_handle none;
  CHECK_FALSE(none);
  CHECK(none.native_handle() == nullptr);
  CHECK(none.qp_number() == 0);
  auto to = must(b.ep.address());
  to.qkey = 77;
  auto one = must(a.ep.address_of(to));
  CHECK(one);
  CHECK(one.native_handle() != nullptr);
  CHECK(one.qp_number() == b.ep.number());
  CHECK(one.qkey() == 77);
  auto* const native = one.native_handle();
  auto moved = std::move(one);
  CHECK_FALSE(one);
  CHECK(one.qp_number() == 0);
  CHECK(one.native_handle() == nullptr);
  CHECK(moved.native_handle() == native);
  auto& same = moved;
  moved = std::move(same);
  CHECK(moved.native_handle() == native);
  CHECK(fake::live().ahs == 1);
  moved = must(a.ep.address_of(to)); // frees the earlier one
  CHECK(fake::live().ahs == 1);
  none = std::move(moved);
  CHECK_FALSE(moved);
  CHECK(none.qp_number() == b.ep.number());
  must(a.ep.close());
  CHECK(none);
  CHECK(none.native_handle() == nullptr);
}

TEST_CASE("an address handle has the quality that its creator gives, then that of the endpoint", "[ud][qos]") {
  const clean_world clean;
  dat::ep_attributes attributes;
  attributes.qos = {.traffic_class = std::uint8_t{8}, .service_level = std::uint8_t{2}};
  datagram_end a("fk1", manual, attributes);
  datagram_end b("fk2");
  const auto to = must(b.ep.address());
  const auto plain = must(a.ep.address_of(to));
  const auto chosen = must(a.ep.address_of(to, {.service_level = std::uint8_t{5}, .flow_label = 0xf'ffffu}));
  const auto paths = fake::ah_attributes();
  REQUIRE(paths.size() == 2);
  CHECK(paths[0].sl == 2);
  CHECK(paths[1].sl == 5);
  if (paths[0].is_global != 0) {
    CHECK(paths[0].grh.traffic_class == 8);
    CHECK(paths[0].grh.flow_label == 0);
    CHECK(paths[1].grh.traffic_class == 8);
    CHECK(paths[1].grh.flow_label == 0xf'ffff);
    CHECK(paths[1].grh.hop_limit == 64);
  }
  is_error(a.ep.address_of(to, {.service_level = std::uint8_t{16}}), return_type::invalid_parameter,
           return_subtype::arg3);
  is_error(a.ep.address_of(to, {.flow_label = 0x10'0000u}), return_type::invalid_parameter, return_subtype::arg3);
}

TEST_CASE("the named qualities of service are those of RFC 4594 and RFC 8622", "[qos]") {
  using dat::qos;
  // The traffic class is the DSCP times 4.
  CHECK(qos::best_effort().traffic_class == 0);
  CHECK(qos::high_throughput().traffic_class == 10 * 4);
  CHECK(qos::low_latency().traffic_class == 18 * 4);
  CHECK(qos::economy().traffic_class == 1 * 4);
  CHECK(qos::premium().traffic_class == 46 * 4);
  CHECK_FALSE(qos::premium().service_level);
  CHECK(qos::max_service_level == 15);
  CHECK(to_string(dat::multipath::none) == "none");
  CHECK(to_string(dat::multipath::requested) == "requested");
  CHECK(to_string(dat::multipath::required) == "required");
  CHECK(to_string(static_cast<dat::multipath>(3)) == "unknown multipath");
  const qos all{.traffic_class = std::uint8_t{1}, .service_level = std::uint8_t{2}, .flow_label = 3u};
  CHECK(qos{}.or_else(all) == all);
  CHECK(all.or_else({.traffic_class = std::uint8_t{4}, .service_level = std::uint8_t{5}, .flow_label = 6u}) == all);
}

TEST_CASE("datagrams that arrive on an evd of completions alone show the same as on one of all events", "[ud]") {
  const clean_world clean;
  datagram_end a("fk1");
  auto ia = must(dat::ia::open("fk2", manual));
  auto pz = must(ia.create_pz());
  std::array<char, 256> memory{};
  auto mem = must(pz.register_memory(memory, all_rights));
  constexpr auto completions = dat::stream::dto | dat::stream::datagrams;
  auto got = must(ia.create_evd<completions>(16));
  auto sent = must(ia.create_evd<completions>(16));
  auto rest = must(ia.create_evd<dat::stream::connection | dat::stream::datagrams>(16));
  auto ep = must(pz.create_ep<dat::ud>(dat::ib::datagram_evds{got, sent, rest}));
  // The endpoint sends to itself, a message of two pieces.
  const auto self = must(ep.address_of(must(ep.address())));
  std::memcpy(memory.data(), "abcd", 4);
  const auto part = [&](std::size_t first, std::size_t n) { return must(mem.slice(first, n)); };
  must(ep.post(dat::recv{part(64, 64)}.cookie(1), dat::recv{part(128, 64)}.cookie(2)));
  dat::iov<2, all_rights.value> pieces;
  REQUIRE(pieces.push_back(part(0, 2)));
  REQUIRE(pieces.push_back(part(2, 2)));
  must(ep.post(dat::ib::send_to{pieces, self}.cookie(3)));
  must(ep.post(dat::ib::send_to{part(1, 1), self}.immediate(7).solicited().cookie(4)));
  const auto plain = must(got.dequeue());
  const auto& first = std::get<dat::ib::datagram_recv_done>(plain);
  CHECK(first.cookie() == dat::cookie(1));
  CHECK(first.bytes() == 44);
  CHECK(first.source_qp_number() == ep.number());
  CHECK(text_of(dat::ib::datagram_view(first, part(64, 64)).payload()) == "abcd");
  CHECK(first.message().starts_with("ib::datagram_recv_done"));
  const auto marked = must(got.dequeue());
  const auto& second = std::get<dat::ib::datagram_recv_immediate_done>(marked);
  CHECK(second.cookie() == dat::cookie(2));
  CHECK(second.immediate() == 7);
  CHECK(second.message().starts_with("ib::datagram_recv_immediate_done"));
  for (const std::uint64_t cookie : {3u, 4u}) {
    const auto e = must(sent.dequeue());
    const auto& done = std::get<dat::ib::datagram_send_done>(e);
    CHECK(done.cookie() == dat::cookie(cookie));
    CHECK(done.bytes() == (cookie == 3 ? 4 : 1));
    CHECK(done.message().starts_with("ib::datagram_send_done"));
  }
  // Taking a completion makes room for the next receive.
  auto narrow = must(pz.create_ep<dat::ud>(dat::ib::datagram_evds{got, sent, rest}, {.max_recv_dtos = 1}));
  const auto to_narrow = must(ep.address_of(must(narrow.address())));
  for (int i = 0; i < 4; ++i) {
    must(narrow.post(dat::recv{part(128, 64)}));
    CHECK_FALSE(narrow.post(dat::recv{part(128, 64)}));
    must(ep.post(dat::ib::send_to{to_narrow}));
    REQUIRE(got.dequeue());
    REQUIRE(sent.dequeue());
  }
  // The header of a message names its sender, and the program adds the key.
  const auto view = dat::ib::datagram_view(first, part(64, 64));
  CHECK(must(ep.reply_to(first, view)).qkey() == dat::ib::default_qkey);
  CHECK(must(ep.reply_to(first, view.header(), 78)).qkey() == 78);
  CHECK(must(ep.reply_to(first, view)).qp_number() == ep.number());
  fake::fail(fake::call::ibv_init_ah_from_wc, 1, EINVAL);
  const auto unknown = ep.reply_to(first, view);
  is_error(unknown, return_type::invalid_address, return_subtype::address_unreachable);
  CHECK(unknown.error().verb() == "ibv_init_ah_from_wc");
  CHECK(unknown.error().call() == "ep.reply_to");
}

TEST_CASE("on InfiniBand the address of an endpoint has the LID of its port, and a reply goes to the sender's",
          "[ud]") {
  fake::world w;
  for (std::size_t i = 0; i < 2; ++i) {
    auto& port = w.devices[i].ports[0];
    port.link_layer = IBV_LINK_LAYER_INFINIBAND;
    port.lid = static_cast<std::uint16_t>(0x11 * (i + 1));
    port.service_level = 3;
  }
  const clean_world clean(w);
  datagram_end a("fk1");
  datagram_end b("fk2");
  const auto where = must(b.ep.address());
  CHECK(where.lid == 0x22);
  const auto to_b = must(a.ep.address_of(where));
  CHECK(fake::ah_attributes().back().dlid == 0x22);
  std::array<char, 64> memory{};
  auto mem = must(b.pz.register_memory(memory, all_rights));
  must(b.ep.post(dat::recv{mem}.cookie(1)));
  must(a.ep.post(dat::ib::send_to{to_b}));
  const auto e = must(b.evd.dequeue());
  const auto& got = std::get<dat::ib::datagram_recv_done>(e);
  const auto reply = must(b.ep.reply_to(got, dat::ib::datagram_view(got, mem)));
  CHECK(reply.qp_number() == a.ep.number());
  const auto path = fake::ah_attributes().back();
  CHECK(path.is_global == 0);
  CHECK(path.dlid == 0x11);
  CHECK(path.sl == 3);
  CHECK(path.port_num == 1);
}

TEST_CASE("each call on an empty datagram endpoint answers invalid_handle, and names itself", "[ud]") {
  dat::ep<dat::ud> none;
  const auto named = [](const auto& r, std::string_view call) {
    is_error(r, return_type::invalid_handle, return_subtype::handle_ep);
    CHECK(r.error().call() == call);
  };
  named(none.address(), "ep.address");
  named(none.address_of({}), "ep.address_of");
  named(none.reply_to(arrived(40), header_from({})), "ep.reply_to");
  named(none.export_descriptor(), "ep.export_descriptor");
  named(none.disconnect(), "ep.disconnect");
  named(none.reset(), "ep.reset");
  named(none.close(), "ep.close");
  named(none.connect(no_host, service, plenty), "ep.connect");
  CHECK(none.number() == 0);
  CHECK(none.max_message_size() == 0);
  CHECK(none.max_inline() == 0);
  CHECK(none.native_handle() == nullptr);
}

TEST_CASE("a buffer has room for all of its bytes again after clear, and a peer's buffer counts what was written") {
  const clean_world clean;
  std::array<std::byte, 32> bytes{};
  auto ia = must(dat::ia::open("fk1", manual));
  auto pz = must(ia.create_pz());
  auto region = must(pz.register_memory(bytes, all_rights));
  dat::buffer<2, all_rights.value> chain(must(region.slice(0, 16)), 4);
  REQUIRE(chain.push_back(must(region.slice(16, 16)), 16));
  CHECK(chain.pieces() == 2);
  CHECK(chain.data_size() == 20);
  CHECK(chain.room_size() == 12);
  CHECK(chain.bytes(0).data() == bytes.data());
  CHECK(chain.bytes(0).size() == 4);
  CHECK(chain.room(5).size_bytes() == 5);
  REQUIRE(chain.append(12));
  CHECK(chain.room_size() == 0);
  chain.clear();
  CHECK(chain.data_size() == 0);
  CHECK(chain.room_size() == 32);
  CHECK(chain.room().size_bytes() == 32);
  using remote_buffer = dat::remote_buffer<all_rights.value>;
  CHECK(remote_buffer().data_size() == 0);
  CHECK(remote_buffer().room_size() == 0);
  remote_buffer theirs(region.remote(), 8);
  CHECK(theirs.room_size() == 24);
  CHECK(theirs.data().size() == 8);
  CHECK(theirs.data().address() == region.remote().address());
  CHECK(theirs.room().address() == region.remote().address() + 8);
  CHECK(chain.room_for(theirs).size_bytes() == 8);
  REQUIRE(theirs.append(24));
  CHECK(theirs.data_size() == 32);
  CHECK(theirs.data().size() == 32);
  CHECK(theirs.room_size() == 0);
  CHECK_FALSE(theirs.append(1));
}
