// Datagram endpoints on a device.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "link_local.hpp"
#include "support.hpp"

#include <dat/dat_code.hpp>
#include <dat/ud.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <list>
#include <rdma/rdma_cma.h>
#include <thread>
#include <utility>

namespace device {

namespace {

constexpr auto streams = all_streams | dat::stream::datagrams;
using datagrams = dat::ep<dat::ud>;
using address = dat::ib::address_handle;

struct ud_side {
  dat::ia ia;
  dat::pz pz;
  dat::evd<streams> evd;
  explicit ud_side(std::size_t which, std::uint32_t qlen = 1024) : ud_side(addresses()[which], qlen) {}
  explicit ud_side(const dat::ia_address& at, std::uint32_t qlen = 1024)
      : ia(must(dat::ia::open(at))), pz(must(ia.create_pz())), evd(must(ia.create_evd<streams>(qlen))) {}
  [[nodiscard]] datagrams make_ep(const dat::ep_attributes& a = {}) { return must(pz.create_ep<dat::ud>(evd, a)); }
};

/// Waits for the next event, which must be an E.
template <class E, dat::streams S>
E expect(dat::evd<S>& at, place where = place::here()) {
  auto r = at.wait(patience);
  if (!r) fail(r.assume_error().message(), where);
  auto* e = std::get_if<E>(&r.assume_value());
  if (!e) fail("another event came, alternative " + std::to_string(r.assume_value().index()), where);
  return std::move(*e);
}

/// Two endpoints, each with the address handle of the other.
struct ud_pair {
  ud_side a{0};
  ud_side b{1};
  datagrams active = a.make_ep();
  datagrams passive = b.make_ep();
  dat::ib::datagram_service service = must(dat::ib::datagram_service::listen(b.ia, next_port(), b.evd));
  buffer out{a.pz, 4200};
  buffer in{b.pz, 4200};
  buffer back{a.pz, 4200};
  address to_b;
  address to_a;

  ud_pair() {
    must(active.connect(b.ia.address(), port(), patience, bytes_of("hello")));
    auto request = expect<dat::ib::datagram_request>(b.evd);
    if (request.remote_number() != active.number()) FAIL("another number");
    must(request.accept(passive, bytes_of("welcome")));
    to_a = must(expect<dat::ib::datagram_established>(b.evd).peer());
    to_b = must(expect<dat::ib::datagram_established>(a.evd).peer());
  }
  [[nodiscard]] dat::conn_qual port() const { return must(dat::conn_qual::make(service.port())); }
};

/// Sends one message to an address and checks that it arrives at `there`.
void reach(ud_side& from, datagrams& ep, const address& to, ud_side& at, datagrams& there) {
  buffer out(from.pz, 64);
  buffer in(at.pz, 256);
  must(there.post(dat::recv{in.slice(0, 256)}));
  must(ep.post(dat::ib::send_to{out.slice(0, 64), to}));
  CHECK(expect<dat::ib::datagram_recv_done>(at.evd).payload_bytes() == 64);
  (void)expect<dat::ib::datagram_send_done>(from.evd);
}

template <class Request>
concept hands_on = requires(Request& r) {
  r.handoff(dat::conn_qual(7));
};
template <class Request, class Endpoint>
concept accepts = requires(Request& r, Endpoint& ep) {
  r.accept(ep);
};

/// Whether an event has this number of DAT and this kind of the extensions.
template <class Event>
bool is_numbered(const Event& e, unsigned number, unsigned kind) {
  return dat::event_number_of(e) == dat::event_number(number) && dat::ib_ext_type_of(e) == dat::ib_ext_type(kind);
}

std::string text_of(std::span<const std::byte> s) {
  std::string t(reinterpret_cast<const char*>(s.data()), s.size());
  return t.substr(0, t.find('\0'));
}

} // namespace

TEST_CASE(
    "datagram endpoints reach each other at either address of an adapter, and a link-local one leads to its interface",
    "[ud][IBX-050][ADDR-002][ADDR-005]") {
  NEEDS_FEATURE(datagrams);
  const auto at = link_local_interfaces();
  if (at[0].host.empty()) SKIP("no link-local addresses");
  ud_side a(at[0].seen_from(at[0]));
  ud_side b(at[1].seen_from(at[1]));
  const auto service = must(dat::ib::datagram_service::listen(b.ia, next_port(), b.evd));
  CHECK(error_of(dat::ib::datagram_service::listen(b.ia, must(dat::conn_qual::make(service.port())), b.evd)).type() ==
        type::conn_qual_in_use);
  for (const bool link_local : {false, true}) {
    INFO((link_local ? "link-local" : "IPv4"));
    auto active = a.make_ep();
    auto passive = b.make_ep();
    const auto to = link_local ? at[1].seen_from(at[0]) : addresses()[1];
    must(active.connect(to, must(dat::conn_qual::make(service.port())), patience));
    auto request = expect<dat::ib::datagram_request>(b.evd);
    // The address of the sender with its scope, so that a program could connect to it.
    CHECK(request.remote_address().with_port(0) == (link_local ? at[0].seen_from(at[1]) : addresses()[0]));
    CHECK(request.local_address().with_port(0) == (link_local ? at[1].seen_from(at[1]) : addresses()[1]));
    must(request.accept(passive));
    const auto to_a = must(expect<dat::ib::datagram_established>(b.evd).peer());
    const auto to_b = must(expect<dat::ib::datagram_established>(a.evd).peer());
    reach(a, active, to_b, b, passive);
    reach(b, passive, to_a, a, active);
  }
}

TEST_CASE("a datagram request gives each side the other's address, and either may send first",
          "[ud][IBX-050][IBX-056][IBX-057][IBX-059]") {
  NEEDS_FEATURE(datagrams);
  // Connection requests and datagram requests are accepted on their own kinds of endpoints.
  STATIC_REQUIRE_FALSE(accepts<dat::ib::datagram_request, endpoint>);
  ud_side a(0);
  ud_side b(1);
  auto active = a.make_ep();
  auto passive = b.make_ep();
  CHECK(active.state() == state::connected);
  CHECK(active.native_handle()->qp_type == IBV_QPT_UD);
  auto service = must(dat::ib::datagram_service::listen(b.ia, next_port(), b.evd));
  const auto port = must(dat::conn_qual::make(service.port()));
  const auto data = pattern(128, 5);
  must(active.connect(b.ia.address(), port, patience, data));
  auto request = expect<dat::ib::datagram_request>(b.evd);
  CHECK(request.remote_number() == active.number());
  CHECK(request.remote_address().with_port(0) == a.ia.address().with_port(0));
  CHECK(request.local_address().port() == service.port());
  CHECK(std::ranges::equal(request.private_data(), data)); // the data has its exact length
  CHECK(is_numbered(request, 0x40001, 5));
  must(request.accept(passive, bytes_of("welcome")));
  CHECK_FALSE(request);
  const auto at_b = expect<dat::ib::datagram_established>(b.evd);
  CHECK(at_b.is_passive());
  CHECK(at_b.ep() == passive);
  CHECK(at_b.remote_address().with_port(0) == a.ia.address().with_port(0));
  CHECK(std::ranges::equal(at_b.private_data(), data)); // the data of the request
  const auto at_a = expect<dat::ib::datagram_established>(a.evd);
  CHECK_FALSE(at_a.is_passive());
  CHECK(at_a.ep() == active);
  CHECK(at_a.remote_address() == b.ia.address().with_port(service.port()));
  CHECK(text_of(at_a.private_data()) == "welcome");
  SHOWS("IBX-058", "CONN-036");
  CHECK((is_numbered(at_a, 0x40002, 6) && is_numbered(at_b, 0x40002, 7)));
  SHOWS("IBX-004", "IBX-007");
  const auto to_a = must(at_b.peer());
  const auto to_b = must(at_a.peer());
  CHECK(to_a.qp_number() == active.number());
  CHECK(to_b.qp_number() == passive.number());
  CHECK(to_b.qkey() == dat::ib::default_qkey);
  CHECK(to_a.native_handle() != nullptr);
  SHOWS("IBX-013", "CR-050", "CONN-036", "CONN-072", "IBX-057", "IBX-058", "IBX-060");

  // The side that accepted sends first.
  buffer from_b(b.pz, 100);
  buffer into_a(a.pz, 140);
  fill(from_b.bytes, 7);
  must(active.post(dat::recv{into_a.lmr}.cookie(3)));
  must(passive.post(dat::ib::send_to{from_b.lmr, to_a}.cookie(4)));
  const auto sent = expect<dat::ib::datagram_send_done>(b.evd);
  CHECK(sent.cookie() == dat::cookie(4));
  CHECK(sent.bytes() == 100);
  CHECK(sent.ep() == passive);
  const auto got = expect<dat::ib::datagram_recv_done>(a.evd);
  CHECK(got.cookie() == dat::cookie(3));
  CHECK(got.ep() == active);
  CHECK((got.bytes() == 140 && got.payload_bytes() == 100));
  CHECK(has_pattern(dat::ib::datagram_view(got, into_a.lmr).payload(), 7));
  CHECK(got.source_qp_number() == passive.number());
  CHECK((is_numbered(sent, 0x40000, 8) && is_numbered(got, 0x40000, 9)));
  SHOWS("IBX-005", "IBX-007", "IBX-065");
}

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

TEST_CASE("an address from another channel works, and a wrong key or a missing peer gives no event",
          "[ud][IBX-013][IBX-053][IBX-060][DOCA-007]") {
  NEEDS_FEATURE(datagrams);
  ud_pair link;
  const auto where = must(link.passive.address());
  CHECK(where.qp_number == link.passive.number());
  CHECK(where == dat::ib::datagram_address::at(link.b.ia.address(), link.passive.number()));
  auto other = link.a.make_ep();
  const auto peer = must(other.address_of(where));
  auto wrong = where;
  wrong.qkey ^= 1;
  const auto stranger = must(other.address_of(wrong));
  // No receive is posted, so the first is lost; the second has the wrong key; the third arrives.
  must(other.post(dat::ib::send_to{link.out.slice(0, 1), peer}));
  (void)expect<dat::ib::datagram_send_done>(link.a.evd);
  must(link.passive.post(dat::recv{link.in.lmr}));
  must(other.post(dat::ib::send_to{link.out.slice(0, 2), stranger}, dat::ib::send_to{link.out.slice(0, 3), peer}));
  (void)expect<dat::ib::datagram_send_done>(link.a.evd);
  (void)expect<dat::ib::datagram_send_done>(link.a.evd);
  std::size_t arrived = expect<dat::ib::datagram_recv_done>(link.b.evd).payload_bytes();
  if (arrived == 1) { // On a busy machine, the first datagram can be so late that it finds the receive.
    must(link.passive.post(dat::recv{link.in.lmr}));
    must(other.post(dat::ib::send_to{link.out.slice(0, 3), peer}));
    (void)expect<dat::ib::datagram_send_done>(link.a.evd);
    arrived = expect<dat::ib::datagram_recv_done>(link.b.evd).payload_bytes();
  }
  CHECK(arrived == 3);
}

TEST_CASE("unsupported calls on a datagram endpoint are refused without loss",
          "[ud][IBX-066][IBX-067][IBX-040][IBX-064]") {
  NEEDS_FEATURE(datagrams);
  ud_pair link;
  buffer foreign(link.b.pz, 10);
  CHECK(error_of(link.active.post(dat::ib::send_to{foreign.slice(0, 1), link.to_b})).type() ==
        type::protection_violation);
  CHECK(error_of(link.active.post(dat::ib::send_to{link.out.slice(0, 1), link.to_a})).type() ==
        type::protection_violation);
  CHECK(error_of(link.active.post(dat::ib::send_to{link.out.slice(0, 1), address{}})).type() ==
        type::protection_violation);
  CHECK(error_of(link.active.post(dat::ib::send_to{link.out.slice(0, 1), link.to_b}.suppress_notification())).type() ==
        type::invalid_parameter);
  // Requests for connections are posted through an ep_ref, whose type does not forbid them.
  const dat::ep_ref name = link.active;
  CHECK(name.state() == state::connected); // the state of each endpoint until a disconnect: there is no other
  CHECK(error_of(name.post(dat::send{link.out.slice(0, 1)})).type() == type::invalid_handle);
  CHECK(error_of(name.post(dat::rdma_write{link.out.slice(0, 1), link.in.remote(0, 1)})).type() ==
        type::invalid_handle);
  CHECK(error_of(name.post(dat::rdma_read{link.out.slice(0, 1), link.in.remote(0, 1)})).type() == type::invalid_handle);
  std::array<std::uint64_t, 2> values{};
  const auto words =
      must(link.a.pz.register_memory(values, all_rights | dat::remote_atomic)); // the peer's rights do not matter
  const auto word = must(words.slice(0, 1));
  CHECK(error_of(name.post(dat::ib::fetch_and_add{word, words.remote(), 1})).type() == type::invalid_handle);
  CHECK(error_of(name.post(dat::ib::compare_and_swap{word, words.remote(), 0, 1})).type() == type::invalid_handle);
  CHECK(is_empty(link.a.evd));
  dat::batch<2> batch;
  REQUIRE(batch.push_back(dat::send{link.out.slice(0, 1)}));
  CHECK(error_of(name.post(batch)).type() == type::invalid_handle);
  must(link.passive.post(dat::recv{link.in.lmr}));
  must(link.active.post(dat::ib::send_to{link.out.slice(0, 1), link.to_b}));
  (void)expect<dat::ib::datagram_recv_done>(link.b.evd);
  CHECK(error_of(link.active.connect(link.b.ia.address(), link.port(), 0s)).type() == type::invalid_parameter);
  CHECK(error_of(link.active.connect(link.b.ia.address(), link.port(), 1s, pattern(129, 1))).type() ==
        type::invalid_parameter);
  // Two refusals are those of a send: memory that is no longer registered, and a full queue.
  std::array<std::byte, 8> bytes{};
  auto closed = must(link.a.pz.register_memory(bytes, all_rights));
  must(closed.close());
  CHECK(error_of(link.active.post(dat::ib::send_to{closed, link.to_b})) ==
        dat::error(type::privileges_violation, subtype::privileges_read));
  auto one = link.a.make_ep({.max_request_dtos = 1});
  const auto there = must(one.address_of(must(link.passive.address())));
  must(one.post(dat::ib::send_to{there}));
  CHECK(error_of(one.post(dat::ib::send_to{there})) == dat::error(type::insufficient_resources, subtype::resource_tep));
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

TEST_CASE("a datagram request that is rejected, dropped or unanswered gives an event, and another may follow",
          "[ud][IBX-056][CONN-036][CONN-072][CR-051][CR-065]") {
  NEEDS_FEATURE(datagrams);
  ud_pair link;
  must(link.active.connect(link.b.ia.address(), link.port(), patience));
  {
    auto request = expect<dat::ib::datagram_request>(link.b.evd);
    CHECK(error_of(request.reject(pattern(129, 1))).type() == type::invalid_parameter);
    const auto why = pattern(20, 3);
    must(request.reject(why));
    CHECK(std::ranges::equal(expect<dat::peer_rejected>(link.a.evd).private_data(), why)); // exactly
  }
  must(link.active.connect(link.b.ia.address(), link.port(), patience));
  (void)expect<dat::ib::datagram_request>(link.b.evd); // dropped
  CHECK(expect<dat::peer_rejected>(link.a.evd).private_data().empty());
  must(link.active.connect(link.b.ia.address(), next_port(), patience));
  (void)expect<dat::non_peer_rejected>(link.a.evd);
  must(link.active.connect(link.b.ia.address(), link.port(), unanswered_limit)); // no program answers
  (void)expect<dat::connection_timed_out>(link.a.evd);
  (void)expect<dat::ib::datagram_request>(link.b.evd);
  if (in_lab()) { // whose network is known to have no such host
    must(link.active.connect(must(dat::ia_address::parse("10.78.1.99")), link.port(), std::chrono::milliseconds(300)));
    CHECK(expect<dat::connection_unreachable>(link.a.evd).ep() == link.active);
  }
  CHECK(link.active.state() == state::connected);
  // Both endpoints can connect again after a request and its answer.
  for (int i = 0; i < 2; ++i) {
    must(link.active.connect(link.b.ia.address(), link.port(), patience));
    must(expect<dat::ib::datagram_request>(link.b.evd).accept(link.passive));
    CHECK(expect<dat::ib::datagram_established>(link.b.evd).ep() == link.passive);
    CHECK(expect<dat::ib::datagram_established>(link.a.evd).ep() == link.active);
    CHECK((link.active.state() == state::connected && link.passive.state() == state::connected));
  }
  must(link.active.connect(link.b.ia.address(), link.port(), patience));
  must(expect<dat::ib::datagram_request>(link.b.evd).accept(link.passive));
  (void)expect<dat::ib::datagram_established>(link.b.evd);
  const auto peer = must(expect<dat::ib::datagram_established>(link.a.evd).peer());
  reach(link.a, link.active, peer, link.b, link.passive);
  SHOWS("CONN-072");
  // The endpoint that has accepted can ask for others as well.
  must(link.passive.connect(link.a.ia.address(), next_port(), patience));
  CHECK(expect<dat::non_peer_rejected>(link.b.evd).ep() == link.passive);
  CHECK(link.passive.state() == state::connected);
}

TEST_CASE("connection and datagram requests at one qualifier arrive with their own types", "[ud]") {
  NEEDS_FEATURE(datagrams);
  ud_pair link;
  const auto psp = must(link.b.ia.create_psp(link.port(), link.b.evd));
  auto connecting = must(link.a.pz.create_ep<dat::rc>(link.a.evd));
  must(connecting.connect(link.b.ia.address(), link.port(), patience));
  auto request = expect<dat::connection_request>(link.b.evd);
  const auto datagrams = must(dat::ib::datagram_service::listen(link.b.ia, next_port(), link.b.evd));
  CHECK(error_of(request.handoff(must(dat::conn_qual::make(datagrams.port())))).type() == type::invalid_parameter);
  SHOWS("CR-067"); // no service point for connections has that qualifier
  must(request.reject());
  (void)expect<dat::peer_rejected>(link.a.evd);
  must(link.active.connect(link.b.ia.address(), link.port(), patience));
  must(expect<dat::ib::datagram_request>(link.b.evd).accept(link.passive));
  (void)expect<dat::ib::datagram_established>(link.b.evd);
  (void)expect<dat::ib::datagram_established>(link.a.evd);
  CHECK(error_of(link.b.ia.create_psp(link.port(), link.b.evd)).type() == type::conn_qual_in_use);
  STATIC_REQUIRE_FALSE(hands_on<dat::ib::datagram_request>);
  STATIC_REQUIRE(hands_on<dat::connection_request>);
  DEVIATES("CR-018");
  DEVIATES("PSP-028", "IBX-055"); // the two requests came to the psp and to the datagram_service
}

TEST_CASE("disconnect flushes posted operations, and reset makes the endpoint ready again",
          "[ud][IBX-068][IBX-069][DISC-040]") {
  NEEDS_FEATURE(datagrams);
  ud_pair link;
  must(link.passive.post(dat::recv{link.in.lmr}.cookie(8)));
  must(link.passive.disconnect());
  must(link.passive.disconnect());
  CHECK(link.passive.state() == state::disconnected);
  CHECK(error_of(link.passive.connect(link.a.ia.address(), link.port(), patience)) ==
        dat::error(type::invalid_state, subtype::ep_disconnected));
  SHOWS("EPS-001");
  std::size_t flushed = 0;
  for (int i = 0; i < 2; ++i) {
    auto e = must(link.b.evd.wait(patience));
    if (const auto* f = std::get_if<dat::dto_failure>(&e)) {
      CHECK(f->status() == dat::dto_status::flushed);
      CHECK(f->cookie() == dat::cookie(8));
      CHECK(f->operation() == dat::dto_operation::recv_ud);
      CHECK(f->ep() == link.passive);
      ++flushed;
    } else {
      CHECK(std::holds_alternative<dat::disconnected>(e));
    }
  }
  CHECK(flushed == 1);
  CHECK(is_empty(link.a.evd)); // a datagram endpoint has no connection that a peer could lose
  // A post is flushed at once.
  must(link.passive.post(dat::recv{link.in.lmr}.cookie(9)));
  CHECK(expect<dat::dto_failure>(link.b.evd).cookie() == dat::cookie(9));
  must(link.passive.post(dat::ib::send_to{link.in.slice(0, 1), link.to_a}.cookie(10)));
  const auto unsent = expect<dat::dto_failure>(link.b.evd);
  CHECK(unsent.status() == dat::dto_status::flushed);
  CHECK(unsent.operation() == dat::dto_operation::send_ud);
  SHOWS("IBX-066"); // like a send in this state
  const auto old = link.passive.number();
  must(link.passive.reset());
  CHECK(link.passive.state() == state::connected);
  CHECK(link.passive.number() != old);
  must(link.active.post(dat::recv{link.back.lmr}));
  must(link.passive.post(dat::ib::send_to{link.in.slice(0, 1), link.to_a})); // the address handle is the old one
  (void)expect<dat::ib::datagram_recv_done>(link.a.evd);
  // A close of the endpoint suffices, too: its posted receive gives no event, and its memory is free.
  (void)expect<dat::ib::datagram_send_done>(link.b.evd);
  must(link.passive.post(dat::recv{link.in.lmr}.cookie(11)));
  must(link.passive.close());
  must(link.in.lmr.close());
  CHECK(is_empty(link.b.evd));
  CHECK(error_of(link.passive.post(dat::recv{})).type() == type::invalid_handle);
  CHECK(error_of(link.passive.address_of({})).type() == type::invalid_handle);
}

TEST_CASE("one datagram endpoint exchanges messages with a hundred peers", "[ud][IBX-051][IBX-069]") {
  NEEDS_FEATURE(datagrams);
  constexpr std::size_t peers = 100;
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
  struct lossy { // 1 % of the packets
    bool done = in_lab() && std::system("tc qdisc add dev v1 root netem loss 1%") == 0;
    lossy() = default;
    lossy(const lossy&) = delete;
    lossy& operator=(const lossy&) = delete;
    ~lossy() {
      if (done) (void)!std::system("tc qdisc del dev v1 root");
    }
  } const wire;
  CHECK(wire.done == in_lab());
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

namespace {

// --- a peer without dat: plain rdma_cm and verbs --------------------------------------------------------------------

void check(bool ok, const char* what, place where = place::here()) {
  if (!ok) fail(std::string(what) + ": " + std::strerror(errno), where);
}

/// A UD queue pair on an id, with one receive of 240 bytes posted.
struct plain_end {
  rdma_event_channel* channel = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  rdma_cm_id* listener = nullptr;
  ibv_ah* ah = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  std::array<char, 240> memory{};
  std::vector<ibv_wc> taken; // taken from the completion queue, and not needed yet

  plain_end() { check(channel != nullptr, "rdma_create_event_channel"); }
  plain_end(const plain_end&) = delete;
  plain_end& operator=(const plain_end&) = delete;
  ~plain_end() {
    if (ah) ibv_destroy_ah(ah);
    if (mr) ibv_dereg_mr(mr);
    if (id) rdma_destroy_qp(id);
    if (cq) ibv_destroy_cq(cq);
    if (pd) ibv_dealloc_pd(pd);
    for (rdma_cm_id* i : {id, listener})
      if (i) rdma_destroy_id(i);
    rdma_destroy_event_channel(channel);
  }
  void equip(rdma_cm_id* on) {
    id = on;
    pd = ibv_alloc_pd(id->verbs);
    cq = ibv_create_cq(id->verbs, 8, nullptr, nullptr, 0);
    check(pd && cq, "ibv_create_cq");
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {4, 4, 1, 1, 0};
    attr.qp_type = IBV_QPT_UD;
    attr.sq_sig_all = 1;
    check(rdma_create_qp(id, pd, &attr) == 0, "rdma_create_qp");
    const int access = IBV_ACCESS_LOCAL_WRITE; // the macro mixes enumerations otherwise
    mr = ibv_reg_mr(pd, memory.data(), memory.size(), access);
    check(mr != nullptr, "ibv_reg_mr");
    ibv_sge sge{reinterpret_cast<std::uint64_t>(memory.data()), static_cast<std::uint32_t>(memory.size()), mr->lkey};
    ibv_recv_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    check(ibv_post_recv(id->qp, &wr, &bad) == 0, "ibv_post_recv");
  }
  rdma_cm_event* next(rdma_cm_event_type type) {
    rdma_cm_event* e = nullptr;
    check(rdma_get_cm_event(channel, &e) == 0, "rdma_get_cm_event");
    if (e->event != type) fail(rdma_event_str(e->event), place::here());
    return e;
  }
  /// The next completion of this kind. The answer to a message may complete before the message itself does.
  ibv_wc poll(ibv_wc_opcode wanted) {
    const auto until = std::chrono::steady_clock::now() + patience;
    for (;;) {
      for (auto it = taken.begin(); it != taken.end(); ++it)
        if (it->opcode == wanted) {
          const ibv_wc found = *it;
          taken.erase(it);
          return found;
        }
      ibv_wc wc{};
      while (ibv_poll_cq(cq, 1, &wc) == 0)
        if (std::chrono::steady_clock::now() > until) fail("no completion", place::here());
      check(wc.status == IBV_WC_SUCCESS, "completion");
      taken.push_back(wc);
    }
  }
  void send(std::uint32_t qpn, std::uint32_t qkey, const char* text) {
    std::strcpy(memory.data() + 100, text);
    ibv_sge sge{reinterpret_cast<std::uint64_t>(memory.data() + 100), 8, mr->lkey};
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = qpn;
    wr.wr.ud.remote_qkey = qkey;
    ibv_send_wr* bad = nullptr;
    check(ibv_post_send(id->qp, &wr, &bad) == 0, "ibv_post_send");
    (void)poll(IBV_WC_SEND);
  }
};

sockaddr_in address_of(const std::string& host, const std::string& port) {
  const auto a = must(dat::ia_address::parse(host)).with_port(static_cast<std::uint16_t>(std::stoi(port)));
  sockaddr_in s{};
  std::memcpy(&s, a.native_handle(), sizeof s);
  return s;
}

/// Arguments: address, port. Connects, sends a message, and waits for its answer.
int plain_ud_client(channel& to, const std::vector<std::string>& args) {
  plain_end e;
  rdma_cm_id* id = nullptr;
  check(rdma_create_id(e.channel, &id, nullptr, RDMA_PS_UDP) == 0, "rdma_create_id");
  auto there = address_of(args.at(0), args.at(1));
  check(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&there), 2000) == 0, "rdma_resolve_addr");
  rdma_ack_cm_event(e.next(RDMA_CM_EVENT_ADDR_RESOLVED));
  check(rdma_resolve_route(id, 2000) == 0, "rdma_resolve_route");
  rdma_ack_cm_event(e.next(RDMA_CM_EVENT_ROUTE_RESOLVED));
  e.equip(id);
  rdma_conn_param p{};
  p.private_data = "foreign";
  p.private_data_len = 7;
  p.qp_num = id->qp->qp_num;
  check(rdma_connect(id, &p) == 0, "rdma_connect");
  rdma_cm_event* up = e.next(RDMA_CM_EVENT_ESTABLISHED);
  e.ah = ibv_create_ah(e.pd, &up->param.ud.ah_attr);
  e.send(up->param.ud.qp_num, up->param.ud.qkey, "question");
  rdma_ack_cm_event(up);
  const auto wc = e.poll(IBV_WC_RECV);
  to.say(std::to_string(wc.byte_len) + ' ' + std::string(e.memory.data() + 40, 6));
  return 0;
}
const role plain_ud_client_registered("plain ud client", &plain_ud_client);

/// Arguments: address, port. Accepts one request, and answers the message that arrives.
int plain_ud_server(channel& to, const std::vector<std::string>& args) {
  plain_end e;
  check(rdma_create_id(e.channel, &e.listener, nullptr, RDMA_PS_UDP) == 0, "rdma_create_id");
  auto here = address_of(args.at(0), args.at(1));
  check(rdma_bind_addr(e.listener, reinterpret_cast<sockaddr*>(&here)) == 0, "rdma_bind_addr");
  check(rdma_listen(e.listener, 1) == 0, "rdma_listen");
  to.say("listening");
  rdma_cm_event* request = e.next(RDMA_CM_EVENT_CONNECT_REQUEST);
  e.equip(request->id);
  rdma_conn_param p{};
  p.qp_num = e.id->qp->qp_num;
  check(rdma_accept(e.id, &p) == 0, "rdma_accept");
  rdma_ack_cm_event(request);
  auto wc = e.poll(IBV_WC_RECV);
  e.ah = ibv_create_ah_from_wc(e.pd, &wc, reinterpret_cast<ibv_grh*>(e.memory.data()), e.id->port_num);
  check(e.ah != nullptr, "ibv_create_ah_from_wc");
  e.send(wc.src_qp, 0x01234567, "answer!!");
  to.say("done");
  return 0;
}
const role plain_ud_server_registered("plain ud server", &plain_ud_server);

} // namespace

TEST_CASE("reply_to reaches a plain rdma_cm program that sends no queue pair number in its request",
          "[ud][foreign][IBX-057]") {
  NEEDS_FEATURE(datagrams);
  ud_side s(1);
  auto ep = s.make_ep();
  buffer in(s.pz, 256);
  must(ep.post(dat::recv{in.lmr}));
  auto service = must(dat::ib::datagram_service::listen(s.ia, next_port(), s.evd));
  peer_process peer("plain ud client", {s.ia.address().to_string(), std::to_string(service.port())});
  auto request = expect<dat::ib::datagram_request>(s.evd);
  CHECK(request.remote_number() == 0);
  CHECK(request.private_data().size() >= 56);
  CHECK(text_of(request.private_data()) == "foreign");
  must(request.accept(ep));
  std::optional<dat::ib::datagram_recv_done> got;
  for (int i = 0; i < 2; ++i) { // the peer does not wait for this side, so the peer's message may come first
    auto e = must(s.evd.wait(patience));
    if (auto* message = std::get_if<dat::ib::datagram_recv_done>(&e))
      got = *message;
    else
      CHECK(error_of(std::get<dat::ib::datagram_established>(e).peer()).type() == type::model_not_supported);
  }
  REQUIRE(got);
  const dat::ib::datagram_view view(*got, in.lmr);
  CHECK(text_of(view.payload()) == "question");
  const auto who = must(ep.reply_to(*got, view));
  must(ep.post(dat::ib::send_to{must(in.lmr.slice(40, 6)), who}));
  (void)expect<dat::ib::datagram_send_done>(s.evd);
  CHECK(peer.hear() == "46 questi");
  CHECK(peer.wait() == 0);
}

TEST_CASE("a datagram request reaches a plain rdma_cm program", "[ud][foreign][IBX-058]") {
  NEEDS_FEATURE(datagrams);
  ud_side s(0);
  auto ep = s.make_ep();
  buffer in(s.pz, 256);
  buffer out(s.pz, 16);
  must(ep.post(dat::recv{in.lmr}));
  const auto port = next_port();
  peer_process peer("plain ud server", {addresses()[1].with_port(0).to_string(), std::to_string(port.port())});
  REQUIRE(peer.hear() == "listening");
  must(ep.connect(addresses()[1], port, patience));
  const auto to = must(expect<dat::ib::datagram_established>(s.evd).peer());
  must(ep.post(dat::ib::send_to{out.lmr, to}));
  (void)must(s.evd.wait_for<dat::ib::datagram_send_done>(patience)); // the answer may come first
  const auto got = must(s.evd.wait_for<dat::ib::datagram_recv_done>(patience));
  CHECK(text_of(dat::ib::datagram_view(got, in.lmr).payload()).substr(0, 6) == "answer");
  CHECK(peer.hear() == "done");
  CHECK(peer.wait() == 0);
}

} // namespace device
