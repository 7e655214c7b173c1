// Posts that meet a change of state: of the endpoint, of the shared queue, or of the device in the middle of a call.
// SPDX-License-Identifier: BSL-1.0
#include "datagram_end.hpp"
#include "world.hpp"

#include <dat/batch.hpp>
#include <dat/srq.hpp>

namespace moments_tests {

using namespace unit;
using dat::return_subtype;
using dat::return_type;

namespace {

/// The next post to the device fails as one that began while the queue took no posts.
void meet_change(fake::call verb) { fake::fail(verb, 1, dat::detail::null_device_errno); }

struct datagrams : datagram_end {
  datagrams() : datagram_end("fk1", manual, {.max_request_dtos = 4}) {}
  std::array<char, 128> memory{};
  region mem = must(pz.register_memory(memory, all_rights));
  dat::ib::address_handle self = must(ep.address_of(must(ep.address())));
  auto out() { return dat::ib::send_to{must(mem.slice(0, 8)), self}; }
  void drain() {
    fake::finish();
    while (evd.drain([](const auto&) {}) != 0) {
    }
  }
};

} // namespace

TEST_CASE("an address handle outlives each datagram of a call that met a change of state", "[posting][ud]") {
  const fake::with positive(fake::personality::kind); // other personalities negate the errno of the null device
  const clean_world world;
  datagrams d;
  const std::uint32_t n = GENERATE(1u, 2u);
  CAPTURE(n);
  fake::hold(d.ep.native_handle());
  meet_change(fake::call::ibv_post_send);
  must(n == 1 ? d.ep.post(d.out()) : d.ep.post(d.out(), d.out()));
  d.self = {};
  for (std::uint32_t i = 1; i < n; ++i) REQUIRE(fake::complete(d.ep.native_handle()));
  d.drain();
  {
    const auto other = must(d.ep.address_of(must(d.ep.address()))); // frees the handles that no send uses
    CHECK(fake::live().ahs == 2);
  }
  REQUIRE(fake::complete(d.ep.native_handle()));
  d.drain();
  const auto last = must(d.ep.address_of(must(d.ep.address())));
  CHECK(fake::live().ahs == 1);
}

TEST_CASE("an address handle outlives its datagram while others are sent", "[posting][ud]") {
  const clean_world world;
  datagrams d;
  auto second = must(d.ep.address_of(must(d.ep.address())));
  auto third = must(d.ep.address_of(must(d.ep.address())));
  fake::hold(d.ep.native_handle());
  must(d.ep.post(d.out()));
  d.self = std::move(second);
  must(d.ep.post(d.out()));
  third = {}; // frees the handles that no send uses
  CHECK(fake::live().ahs == 3);
  for (int i = 0; i < 2; ++i) REQUIRE(fake::complete(d.ep.native_handle()));
  d.drain();
  d.self = {};
  CHECK(fake::live().ahs == 0);
}

TEST_CASE("datagrams that a change of state refuses use neither room nor their address", "[posting][ud]") {
  const fake::with positive(fake::personality::kind);
  const clean_world world;
  datagrams d;
  fake::hold(d.ep.native_handle());
  for (int i = 0; i < 8; ++i) {
    meet_change(fake::call::ibv_post_send);
    fake::fail(fake::call::ibv_post_send, 2, ENOMEM);
    const auto r = d.ep.post(d.out(), d.out());
    is_error(r, return_type::insufficient_resources, return_subtype::resource_tep);
    CHECK(r.error().index() == 0);
  }
  must(d.ep.post(d.out(), d.out(), d.out(), d.out()));
  const auto full = d.ep.post(d.out());
  is_error(full, return_type::insufficient_resources, return_subtype::resource_tep);
  CHECK(full.error().index() == 0);
  for (int i = 0; i < 4; ++i) REQUIRE(fake::complete(d.ep.native_handle()));
  d.drain();
  d.self = {};
  CHECK(fake::live().ahs == 0);
}

TEST_CASE("requests that an endpoint refuses for its state leave the room to later ones", "[posting]") {
  const clean_world world;
  end a("fk1"), b("fk2");
  a.make_ep({.max_request_dtos = 4});
  b.make_ep();
  const auto psp = must(b.ia.create_psp(service, b.evd));
  const dat::send one{a.at(0, 1)};
  for (int i = 0; i < 6; ++i) {
    is_error(a.ep.post(one), return_type::invalid_state, return_subtype::ep_unconnected);
    is_error(a.ep.post(one, one, one), return_type::invalid_state, return_subtype::ep_unconnected);
    is_error(a.ep.post_n(3, [&](std::size_t) { return one; }), return_type::invalid_state,
             return_subtype::ep_unconnected);
    CHECK(a.ep.state() == dat::ep_state::unconnected);
  }
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(b.ep));
  settle(a, b);
  CHECK(a.take() == events{"established"});
  fake::hold(a.ep.native_handle());
  must(a.ep.post(one, one, one, one));
  is_error(a.ep.post(one), return_type::insufficient_resources, return_subtype::resource_tep);
  fake::hold(a.ep.native_handle(), false);
}

TEST_CASE("receives that meet a change of state are posted once, or leave their room", "[posting]") {
  const fake::with positive(fake::personality::kind);
  const clean_world world;
  pair p({.max_recv_dtos = 4});
  meet_change(fake::call::ibv_post_recv);
  must(p.b.ep.post(dat::recv{p.b.at(0, 8)}.cookie(1), dat::recv{p.b.at(8, 8)}.cookie(2)));
  CHECK(fake::posted_receives(p.b.ep.native_handle()) == 2);
  meet_change(fake::call::ibv_post_recv);
  fake::fail(fake::call::ibv_post_recv, 2, ENOMEM);
  const auto r = p.b.ep.post(dat::recv{p.b.at(0, 8)}.cookie(3), dat::recv{p.b.at(8, 8)}.cookie(4));
  is_error(r, return_type::insufficient_resources, return_subtype::resource_tep);
  CHECK(r.error().index() == 0);
  CHECK(r.error().verb() == "ibv_post_recv");
  must(p.b.ep.post(dat::recv{p.b.at(0, 8)}.cookie(5), dat::recv{p.b.at(8, 8)}.cookie(6)));
  is_error(p.b.ep.post(dat::recv{}), return_type::insufficient_resources, return_subtype::resource_tep);
  for (int i = 0; i < 4; ++i) must(p.a.ep.post(dat::send{p.a.at(0, 4)}.suppress_completion()));
  CHECK(p.b.take() == events{"received 1", "received 2", "received 5", "received 6"});
}

TEST_CASE("buffers for a shared queue that ends meanwhile return to it", "[posting][srq]") {
  const fake::with positive(fake::personality::kind);
  const clean_world world;
  end e;
  auto srq = must(e.pz.create_srq({.max_recv_dtos = 3}));
  const auto room = must(srq.query()).max_recv_dtos;
  for (std::uint32_t i = 0; i <= room; ++i) {
    meet_change(fake::call::ibv_post_srq_recv);
    is_error(srq.post(dat::recv{e.at(0, 8)}), return_type::invalid_handle, return_subtype::handle_srq);
    meet_change(fake::call::ibv_post_srq_recv);
    is_error(srq.post(dat::recv{e.at(0, 8)}, dat::recv{e.at(8, 8)}), return_type::invalid_handle,
             return_subtype::handle_srq);
    CHECK(must(srq.query()).outstanding == 0);
  }
  for (std::uint32_t i = 0; i < room; ++i) must(srq.post(dat::recv{e.at(0, 8)}));
  is_error(srq.post(dat::recv{e.at(0, 8)}), return_type::insufficient_resources, return_subtype::resource_srq);
}

TEST_CASE("requests behind one that cannot be invalidated or checked are not posted by post_n", "[posting]") {
  const clean_world world;
  pair p({.max_request_dtos = 40, .max_message_size = 64});
  const auto posts = fake::count(fake::call::ibv_post_send);
  const auto target = p.b.mem.remote();
  const std::size_t bad = GENERATE(0u, 1u, 15u, 16u, 17u, 31u);
  CAPTURE(bad);
  const auto r = p.a.ep.post_n(35, [&](std::size_t i) {
    return dat::rdma_write{p.a.at(0, i == bad ? 65 : 8), target}.cookie(i);
  });
  is_error(r, return_type::length_error);
  CHECK(r.error().index() == bad);
  CHECK(fake::count(fake::call::ibv_post_send) == posts + bad / 16 + (bad % 16 != 0 ? 1 : 0));
  CHECK(p.a.take().size() == bad);
  must(p.a.ep.post_n(40, [&](std::size_t) { return dat::rdma_write{p.a.at(0, 8), target}; }));
  CHECK(p.a.take().size() == 40);
}

TEST_CASE("a message that is too long names the limit that it exceeds", "[posting][ud]") {
  const clean_world world;
  SECTION("of a connection") {
    pair p({.max_message_size = 64});
    const auto r = p.a.ep.post(dat::send{p.a.at(0, 65)});
    is_error(r, return_type::length_error);
    CHECK_THAT(std::string(r.error().hint()),
               support::contains_text("more bytes than the endpoint's max_message_size"));
  }
  SECTION("of datagrams") {
    datagram_end d("fk1");
    std::vector<char> memory(1 << 16);
    const auto mem = must(d.pz.register_memory(memory, all_rights));
    const auto self = must(d.ep.address_of(must(d.ep.address())));
    const auto r = d.ep.post(dat::ib::send_to{mem, self});
    is_error(r, return_type::length_error);
    CHECK_THAT(std::string(r.error().hint()), support::contains_text("A datagram is one packet"));
  }
}

} // namespace moments_tests
