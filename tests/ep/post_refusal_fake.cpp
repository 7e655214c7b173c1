// Refusals of a post before any of it reaches the device, on every path: memory that is no longer registered, and RDMA
// reads into more segments than the adapter can read into.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/batch.hpp>
#include <dat/policies.hpp>
#include <dat/srq.hpp>
#include <dat/ud.hpp>

using namespace unit;
using dat::return_subtype;
using dat::return_type;

namespace {

/// The post needs a right to memory that is no longer registered.
void no_right(const dat::expected<void>& r, return_subtype to = return_subtype::privileges_read) {
  is_error(r, return_type::privileges_violation, to);
}
constexpr auto to_write = return_subtype::privileges_write;

} // namespace

TEST_CASE("a part of a segment is of the zone of the whole, and a part without bytes is of every zone", "[posting]") {
  clean_world world;
  pair p;
  auto zone = must(p.a.ia.create_pz());
  std::array<char, 64> elsewhere{};
  const auto foreign = must(zone.register_memory(elsewhere, all_rights));
  const auto segment = must(foreign.slice(0, 64));
  is_error(p.a.ep.post(dat::send{must(segment.as<unsigned char>(0, 8))}), return_type::protection_violation,
           return_subtype::protection_read);
  must(p.b.ep.post(dat::recv{p.b.at(0, 8)}));
  must(p.a.ep.post(dat::send{must(segment.as<unsigned char>(8, 0))}));
  CHECK(p.a.take() == events{"sent 0"});
}

TEST_CASE("memory of a moved-from or closed lmr is refused on every post path", "[posting][DTO-084][DTO-124]") {
  clean_world world;
  pair p;
  auto kept = std::move(p.a.mem);
  auto closed = must(p.a.pz.register_memory(p.a.memory, all_rights));
  must(closed.close());
  const auto target = p.b.mem.remote();
  const auto calls = fake::count(fake::call::ibv_post_send);
  const auto receives = fake::count(fake::call::ibv_post_recv);
  for (const region* gone : {&p.a.mem, &closed}) { // NOLINT(bugprone-use-after-move): that is what is tested
    no_right(p.a.ep.post(dat::send{*gone}));
    no_right(p.a.ep.post(dat::send{*gone}.inlined()));
    no_right(p.a.ep.post(dat::rdma_write{*gone, target}));
    no_right(p.a.ep.post(dat::rdma_read{*gone, target}), to_write);
    no_right(p.a.ep.post(dat::send{dat::iov{*gone, *gone}}));
    no_right(p.a.ep.post(dat::send{}, dat::send{*gone}));
    dat::iov<2, all_rights.value> list;
    CHECK(list.push_back(kept));
    CHECK(list.push_back(*gone));
    no_right(p.a.ep.post(dat::send{list}));
    no_right(p.a.ep.post(dat::recv{*gone}), to_write);
    no_right(p.a.ep.post<dat::tracked>(dat::send{*gone}));
    dat::batch<2> b;
    CHECK(b.push_back(dat::send{}));
    CHECK(b.push_back(dat::send{*gone}));
    no_right(p.a.ep.post(b));
    no_right(p.a.ep.post_n(1, [&](std::size_t) { return dat::send{*gone}; }));
  }
  CHECK(fake::count(fake::call::ibv_post_send) == calls);
  CHECK(fake::count(fake::call::ibv_post_recv) == receives);
  SHOWS("DTO-067");

  // An empty part of a region, and a default segment, transfer nothing and are accepted.
  must(p.b.ep.post(dat::recv{}));
  must(p.b.ep.post(dat::recv{}));
  must(p.a.ep.post(dat::send{kept.slice(0, 0).value()}.cookie(1)));
  must(p.a.ep.post(dat::send{dat::local_segment<char, all_rights.value>()}.cookie(2)));
  CHECK(p.a.take() == events{"sent 1", "sent 2"});
  SHOWS("DTO-055");
}

TEST_CASE("a request that meets the moment of connecting is posted once, or its error is returned", "[posting]") {
  const fake::with positive(fake::personality::kind); // other personalities negate the errno of the null device
  const clean_world world;
  pair p;
  // The error of a post that began just before the endpoint was connected.
  fake::fail(fake::call::ibv_post_send, 1, dat::detail::null_device_errno);
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}.cookie(1)));
  CHECK(p.a.take() == events{"written 1"});
  fake::fail(fake::call::ibv_post_send, 1, dat::detail::null_device_errno);
  fake::fail(fake::call::ibv_post_send, 2, ENOMEM);
  is_error(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}.cookie(2)),
           dat::return_type::insufficient_resources, dat::return_subtype::resource_tep);
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}.cookie(3)));
  CHECK(p.a.take() == events{"written 3"});
}

TEST_CASE("memory of a moved-from lmr is refused by a shared queue and by datagram endpoints",
          "[posting][srq][ud][SRQ-089][IBX-066]") {
  clean_world world;
  end e("fk1");
  region gone;
  auto srq = must(e.pz.create_srq());
  no_right(srq.post(dat::recv{gone}), to_write);
  no_right(srq.post(dat::recv{e.at(0, 8)}, dat::recv{gone}), to_write);
  CHECK(must(srq.query()).outstanding == 0);
  must(srq.post(dat::recv{e.at(0, 0)}));

  auto evd = must(e.ia.create_evd<dat::stream::dto | dat::stream::datagrams>(16));
  auto ud =
      must(e.pz.create_ep<dat::ud>(dat::ib::datagram_evds{.recv = evd, .request = evd, .connect = dat::drop_events}));
  const auto self = must(ud.address_of(must(ud.address())));
  no_right(ud.post(dat::ib::send_to{gone, self}));
  no_right(ud.post(dat::recv{gone}), to_write);
  must(ud.post(dat::ib::send_to{e.at(0, 0), self}));
}

TEST_CASE("an RDMA read into more segments than max_sge_rd is refused, and other requests are not", "[posting]") {
  fake::world w;
  auto attr = fake::rxe_attr();
  attr.max_sge_rd = 2;
  for (auto& d : w.devices) d.attr = attr;
  clean_world world(w);
  pair p({.max_request_iov = 3});
  const dat::iov three{p.a.at(0, 1), p.a.at(1, 1), p.a.at(2, 1)};
  const dat::iov two{p.a.at(0, 1), p.a.at(1, 1)};
  const auto target = p.b.mem.remote();
  is_error(p.a.ep.post(dat::rdma_read{three, target}), return_type::invalid_parameter, return_subtype::arg2);
  dat::batch<1, 3> b;
  CHECK(b.push_back(dat::rdma_read{three, target}));
  is_error(p.a.ep.post(b), return_type::invalid_parameter);
  must(p.a.ep.post(dat::rdma_read{two, target}.cookie(1)));
  // A segment of length 0 does not count.
  must(p.a.ep.post(dat::rdma_read{dat::iov{p.a.at(0, 1), p.a.at(5, 0), p.a.at(1, 1)}, target}.cookie(2)));
  must(p.a.ep.post(dat::rdma_write{three, target}.cookie(3)));
  CHECK(p.a.take() == events{"read 1", "read 2", "written 3"});
}
