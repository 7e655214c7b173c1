// Datagrams on a device: headers, lengths, notifications, many peers, lost messages.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "netem.hpp"
#include "support.hpp"
#include "ud_pair.hpp"

#include <dat/ud.hpp>

#include <array>
#include <list>
#include <thread>

namespace device {

TEST_CASE("a datagram arrives behind a header of 40 bytes, which names its sender",
          "[ud][IBX-062][IBX-065][IBX-053][IBX-014][IBX-032][IBX-064]") {
  NEEDS_FEATURE(datagrams);
  ud_pair link;
  fill(link.out.bytes, 9);
  must(link.passive.post(dat::recv{link.in.lmr}.cookie(1)));
  must(link.active.post(dat::ib::send_to{link.out.slice(0, 100), link.to_b}.cookie(2)));
  const auto sent = expect<dat::ib::datagram_send_done>(link.a.evd);
  CHECK(sent.bytes() == 100);
  CHECK(sent.cookie() == dat::cookie(2));
  const auto got = expect<dat::ib::datagram_recv_done>(link.b.evd);
  CHECK(got.bytes() == 140);
  CHECK(got.payload_bytes() == 100);
  SHOWS("DTO-049");
  CHECK(got.ep() == link.passive);
  CHECK(got.source_qp_number() == link.active.number());
  const dat::ib::datagram_view view(got, link.in.lmr);
  CHECK(view.payload().size() == 100);
  CHECK(has_pattern(view.payload(), 9));
  const auto header = view.header();
  CHECK(header.is_ipv4());
  CHECK(header.source() == link.a.ia.address().with_port(0));
  CHECK(header.destination() == link.b.ia.address().with_port(0));
  CHECK(header.hop_limit() > 0);
  if (in_lab()) { // an IP header of 20 bytes, of a UDP packet with the headers of InfiniBand, 100 bytes and a check sum
    CHECK(header.hop_limit() == 64);
    const auto raw = header.bytes().last<20>();
    CHECK((raw[0] == std::byte{0x45} && raw[9] == std::byte{17}));
    CHECK(dat::detail::get_be<std::uint16_t>(&raw[2]) == 20 + 8 + 12 + 8 + 100 + 4);
  }
  CHECK(view.payload_as<std::array<std::byte, 100>>().has_value());
  CHECK_FALSE(view.payload_as<std::array<std::byte, 101>>().has_value());
  // Sends two messages with immediate data, the second of which is empty.
  must(link.passive.post(dat::recv{link.in.lmr}.cookie(5), dat::recv{link.in.slice(0, 40)}.cookie(6)));
  must(link.active.post(dat::ib::send_to{link.out.slice(0, 8), link.to_b}.immediate(0x01020304).suppress_completion(),
                        dat::ib::send_to{link.to_b}.immediate(0xfffefdfc)));
  CHECK(expect<dat::ib::datagram_send_done>(link.a.evd).bytes() == 0);
  const auto first = expect<dat::ib::datagram_recv_immediate_done>(link.b.evd);
  CHECK(first.immediate() == 0x01020304);
  CHECK(first.cookie() == dat::cookie(5));
  CHECK(first.payload_bytes() == 8);
  CHECK(first.bytes() == 48);
  CHECK(first.ep() == link.passive);
  CHECK(first.source_qp_number() == link.active.number());
  CHECK(dat::ib::datagram_view(first, link.in.lmr).header().source() == link.a.ia.address().with_port(0));
  const auto second = expect<dat::ib::datagram_recv_immediate_done>(link.b.evd);
  CHECK(second.immediate() == 0xfffefdfc);
  CHECK(second.payload_bytes() == 0);
  CHECK(second.bytes() == 40);
  CHECK(second.cookie() == dat::cookie(6));
}

TEST_CASE("a datagram longer than its receive is dropped, or on rxe breaks the endpoint until a reset",
          "[ud][rxe-deviation]") {
  NEEDS_FEATURE(datagrams);
  ud_pair link;
  fill(link.out.bytes, 4);
  must(link.passive.post(dat::recv{link.in.slice(0, 139)}.cookie(7)));
  must(link.active.post(dat::ib::send_to{link.out.slice(0, 100), link.to_b}));
  (void)expect<dat::ib::datagram_send_done>(link.a.evd);
  if (in_lab() && this_device().long_datagram_breaks) {
    const auto f = expect<dat::dto_failure>(link.b.evd);
    CHECK(f.cookie() == dat::cookie(7));
    CHECK(f.operation() == dat::dto_operation::recv_ud);
    CHECK(f.status() == dat::dto_status::local_length);
    CHECK(expect<dat::connection_broken>(link.b.evd).ep() == link.passive);
    DEVIATES("IBX-061");
    must(link.passive.reset());
    must(link.passive.post(dat::recv{link.in.slice(0, 139)}.cookie(7)));
    link.to_b = must(link.active.address_of(must(link.passive.address())));
  }
  must(link.active.post(dat::ib::send_to{link.out.slice(0, 99), link.to_b}));
  (void)expect<dat::ib::datagram_send_done>(link.a.evd);
  const auto got = expect<dat::ib::datagram_recv_done>(link.b.evd);
  CHECK(got.cookie() == dat::cookie(7));
  CHECK(has_pattern(dat::ib::datagram_view(got, link.in.lmr).payload(), 4));
  CHECK(got.payload_bytes() == 99);
  CHECK(is_empty(link.b.evd));
}

TEST_CASE("a datagram longer than the MTU never reaches the device", "[ud][IBX-052][IBX-066]") {
  NEEDS_FEATURE(datagrams);
  ud_pair link;
  const auto mtu = link.active.max_message_size();
  REQUIRE(mtu >= 256);
  REQUIRE(mtu < 4100);
  CHECK(must(link.a.ia.query()).active_mtu == mtu);
  must(link.passive.post(dat::recv{link.in.lmr}));
  CHECK(error_of(link.active.post(dat::ib::send_to{link.out.slice(0, mtu + 1), link.to_b})).type() ==
        type::length_error);
  CHECK(is_empty(link.a.evd));
  fill(link.out.bytes, 3);
  must(link.active.post(dat::ib::send_to{link.out.slice(0, mtu), link.to_b}));
  CHECK(expect<dat::ib::datagram_send_done>(link.a.evd).bytes() == mtu);
  const auto got = expect<dat::ib::datagram_recv_done>(link.b.evd);
  CHECK(got.payload_bytes() == mtu);
  CHECK(has_pattern(dat::ib::datagram_view(got, link.in.lmr).payload(), 3));
  CHECK(error_of(link.a.pz.create_ep<dat::ud>(link.a.evd, {.max_message_size = mtu + 1})).type() ==
        type::invalid_parameter);
  auto small = link.a.make_ep({.max_message_size = 10});
  const auto there = must(small.address_of(must(link.passive.address())));
  CHECK(error_of(small.post(dat::ib::send_to{link.out.slice(0, 11), there})).type() == type::length_error);
  must(small.post(dat::ib::send_to{link.out.slice(0, 10), there}));
}

TEST_CASE("reply_to sends to the source of a datagram", "[ud][IBX-063]") {
  NEEDS_FEATURE(datagrams);
  ud_pair link;
  must(link.passive.post(dat::recv{link.in.lmr}));
  must(link.active.post(dat::recv{link.back.lmr}));
  must(link.active.post(dat::ib::send_to{link.out.slice(0, 5), link.to_b}));
  (void)expect<dat::ib::datagram_send_done>(link.a.evd);
  const auto got = expect<dat::ib::datagram_recv_done>(link.b.evd);
  {
    // The handle is dropped at once, before its send has completed.
    const auto who = must(link.passive.reply_to(got, dat::ib::datagram_view(got, link.in.lmr)));
    CHECK(who.qp_number() == link.active.number());
    must(link.passive.post(dat::ib::send_to{must(link.in.lmr.slice(40, 5)), who}));
  }
  (void)expect<dat::ib::datagram_send_done>(link.b.evd);
  CHECK(expect<dat::ib::datagram_recv_done>(link.a.evd).payload_bytes() == 5);
}

TEST_CASE("a datagram wakes threads as its flags say", "[ud][IBX-064]") {
  NEEDS_FEATURE(datagrams);
  ud_pair link;
  constexpr auto completions = dat::stream::dto | dat::stream::datagrams;
  auto sends = must(link.a.ia.create_evd<completions | dat::stream::software>(64));
  auto cno = must(link.a.ia.create_cno());
  auto from =
      must(link.a.pz.create_ep<dat::ud>(dat::ib::datagram_evds{.recv = sends, .request = sends, .connect = link.a.evd},
                                        {.recv_completion = dat::completion_notification::selective,
                                         .request_completion = dat::completion_notification::selective}));
  must(sends.modify_cno(cno));
  auto receives = must(link.b.ia.create_evd<completions>(64));
  auto to = must(link.b.pz.create_ep<dat::ud>(
      dat::ib::datagram_evds{.recv = receives, .request = link.b.evd, .connect = link.b.evd},
      {.recv_completion = dat::completion_notification::solicited_wait}));
  for (std::uint64_t i = 0; i < 2; ++i) must(to.post(dat::recv{link.in.slice(64 * i, 64)}.cookie(i)));
  const auto peer = must(from.address_of(must(to.address())));
  // Polls: a wait would take part in the notification.
  const auto sent = [&] {
    auto e = sends.dequeue();
    for (; !e; e = sends.dequeue()) std::this_thread::yield();
    return std::get<dat::ib::datagram_send_done>(e.assume_value()).bytes();
  };
  background waiter([&] { return receives.wait(patience); });
  waiter.until_asleep();
  const auto start = std::chrono::steady_clock::now();
  must(from.post(dat::ib::send_to{link.out.slice(0, 1), peer}.suppress_notification()));
  CHECK(sent() == 1);
  CHECK(error_of(cno.wait(0s)).type() == type::queue_empty);
  SHOWS("IBX-064");
  waiter.until_asleep();
  CHECK_FALSE(waiter.done()); // the message is not solicited
  must(from.post(dat::ib::send_to{link.out.slice(0, 2), peer}.solicited()));
  CHECK(must(cno.wait(patience)) == sends.id()); // notification is the default
  CHECK(sent() == 2);
  const auto first = must(waiter.get());
  CHECK(std::get<dat::ib::datagram_recv_done>(first).cookie() == dat::cookie(0));
  CHECK(std::chrono::steady_clock::now() - start < patience); // the wait has not ended by its time limit
  CHECK(expect<dat::ib::datagram_recv_done>(receives).payload_bytes() == 2);
}

TEST_CASE("one datagram endpoint exchanges messages with a hundred peers", "[ud][IBX-051][IBX-069]") {
  NEEDS_FEATURE(datagrams);
  constexpr std::size_t peers = dat::detail::thread_sanitizer ? 30 : 100;
  ud_side home(1);
  ud_side away(0, 2048);
  auto hub = home.make_ep({.max_request_dtos = 128, .max_recv_dtos = 128});
  auto service = must(dat::ib::datagram_service::listen(home.ia, next_port(), home.evd));
  const auto port = must(dat::conn_qual::make(service.port()));
  buffer in(away.pz, peers * 64);
  buffer out(home.pz, peers * 8);
  std::list<datagrams> all;
  std::vector<address> known;
  for (std::size_t i = 0; i < peers; ++i) {
    all.push_back(away.make_ep({.max_request_dtos = 2, .max_recv_dtos = 2}));
    must(all.back().post(dat::recv{in.slice(i * 64, 64)}.cookie(i)));
    must(all.back().connect(home.ia.address(), port, patience));
    must(expect<dat::ib::datagram_request>(home.evd).accept(hub));
    known.push_back(must(expect<dat::ib::datagram_established>(home.evd).peer()));
    (void)expect<dat::ib::datagram_established>(away.evd);
  }
  all.front() = {}; // one peer ends
  for (std::size_t i = 0; i < peers; ++i) {
    fill(out.part(i * 8, 8), static_cast<std::uint32_t>(i));
    must(hub.post(dat::ib::send_to{out.slice(i * 8, 8), known[i]}.cookie(i)));
  }
  known.clear(); // the end may come before the sends have completed
  for (std::size_t i = 0; i < peers; ++i)
    CHECK(expect<dat::ib::datagram_send_done>(home.evd).cookie() == dat::cookie(i));
  std::vector<bool> seen(peers);
  for (std::size_t i = 1; i < peers; ++i) {
    const auto e = expect<dat::ib::datagram_recv_done>(away.evd);
    const auto at = static_cast<std::size_t>(e.cookie().value());
    CHECK_FALSE(seen[at]);
    seen[at] = true;
    CHECK(e.source_qp_number() == hub.number());
    CHECK(has_pattern(dat::ib::datagram_view(e, in.slice(at * 64, 64)).payload(), static_cast<std::uint32_t>(at)));
  }
  CHECK(is_empty(away.evd));
}

TEST_CASE("a completions-only evd delivers datagrams through drain", "[ud][IBX-005][IBX-016][IBX-065]") {
  NEEDS_FEATURE(datagrams);
  ud_side a(0);
  ud_side b(1);
  constexpr auto completions_only = dat::stream::dto | dat::stream::datagrams;
  const auto merges = must(a.ia.query<dat::provider_attributes>()).evd_stream_merging_supported;
  CHECK((includes(merges, completions_only) && includes(merges, streams)));
  auto cq_a = must(a.ia.create_evd<completions_only>(64));
  auto cq_b = must(b.ia.create_evd<completions_only>(64));
  auto ep_a =
      must(a.pz.create_ep<dat::ud>(dat::ib::datagram_evds{.recv = cq_a, .request = cq_a, .connect = dat::drop_events}));
  auto ep_b = must(b.pz.create_ep<dat::ud>(dat::ib::datagram_evds{.recv = cq_b, .request = cq_b, .connect = b.evd}));
  buffer out(a.pz, 64);
  buffer in(b.pz, 64 * 8);
  const auto peer = must(ep_a.address_of(must(ep_b.address())));
  for (std::uint32_t i = 0; i < 8; ++i) must(ep_b.post(dat::recv{in.slice(i * 64, 64)}.cookie(i)));
  for (std::uint32_t i = 0; i < 8; ++i) must(ep_a.post(dat::ib::send_to{out.slice(0, i), peer}.immediate(i).cookie(i)));
  std::uint32_t sent = 0;
  std::uint32_t arrived = 0;
  while (sent < 8)
    (void)must(cq_a.wait_and_drain(
        dat::overloaded{[&](const dat::ib::datagram_send_done& e) { sent += e.bytes() < 8 ? 1 : 100; },
                        [](const auto&) { throw failure("another event"); }},
        patience));
  while (arrived < 8)
    (void)must(cq_b.wait_and_drain(dat::overloaded{[&](const dat::ib::datagram_recv_immediate_done& e) {
                                                     if (e.immediate() != arrived || e.payload_bytes() != arrived)
                                                       throw failure("out of order");
                                                     ++arrived;
                                                   },
                                                   [](const auto&) { throw failure("another event"); }},
                                   patience));
  CHECK(sent == 8);
  CHECK(arrived == 8);
  SHOWS("IBX-054", "REQ-164");
  // The stream of datagrams ends with its endpoint.
  CHECK(error_of(cq_a.close()) == dat::error(type::invalid_state, subtype::evd_in_use));
  SHOWS("EVD-015");
  must(ep_a.close());
  CHECK(cq_a.close().has_value());
  SHOWS("EVD-018");
}

TEST_CASE("datagrams that the network loses have no effect", "[ud][loss][IBX-053][IBX-054]") {
  NEEDS_FEATURE(datagrams);
  constexpr bool slow = dat::detail::thread_sanitizer;
  constexpr std::uint32_t count = slow ? 300 : 1500;
  const netem wire(GENERATE("loss 1%", "corrupt 2%")); // a damaged packet is dropped
  CHECK(static_cast<bool>(wire) == in_lab());
  ud_side a(0);
  ud_side b(1, 1024);
  auto near = a.make_ep({.max_request_dtos = 16});
  auto far = b.make_ep({.max_recv_dtos = 512});
  constexpr std::size_t each = 48;
  buffer out(a.pz, 8);
  buffer in(b.pz, 512 * each);
  const auto receive = [&](std::size_t i) { must(far.post(dat::recv{in.slice(i * each, each)}.cookie(i))); };
  for (std::size_t i = 0; i < 512; ++i) receive(i);
  const auto peer = must(near.address_of(must(far.address())));
  std::uint32_t arrived = 0;
  std::uint32_t expected = 0;
  const auto take = [&](const dat::ib::datagram_recv_immediate_done& e) {
    if (e.immediate() < expected) throw failure("out of order");
    expected = e.immediate() + 1;
    ++arrived;
    const auto at = e.cookie().as<std::size_t>();
    const dat::ib::datagram_view view(e, in.slice(at * each, each));
    if (!has_pattern(view.payload(), e.immediate()) || view.payload().size() != 8) throw failure("damaged");
    receive(at);
  };
  const auto visit = dat::overloaded{take, [](const auto&) { throw failure("another event"); }};
  for (std::uint32_t i = 0; i < count; ++i) {
    fill(out.bytes, i);
    must(near.post(dat::ib::send_to{out.lmr, peer}.immediate(i)));
    (void)expect<dat::ib::datagram_send_done>(a.evd); // completes whether or not the message arrives
    b.evd.drain(visit, 512);
  }
  const std::uint32_t of_count = arrived;
  // The last message is repeated until it arrives.
  for (std::uint32_t i = count; expected <= count && i < count + 100; ++i) {
    fill(out.bytes, i);
    must(near.post(dat::ib::send_to{out.lmr, peer}.immediate(i)));
    (void)expect<dat::ib::datagram_send_done>(a.evd);
    (void)b.evd.wait_and_drain(visit, 100ms, 512);
  }
  INFO(arrived << " arrived");
  CHECK(expected > count);
  CHECK(arrived > count / 2);
  if (in_lab() && !slow) CHECK(of_count < count); // some messages were lost
  CHECK(near.state() == state::connected);
  CHECK(far.state() == state::connected);
}

} // namespace device
