// Datagram endpoints and paths: ends that overlap events, lost groups, forged headers, and InfiniBand fabrics.
// SPDX-License-Identifier: BSL-1.0
#include "datagram_end.hpp"
#include "lock_waits.hpp"
#include "raw_request.hpp"
#include "world.hpp"

#include <dat/descriptor.hpp>
#include <dat/multicast.hpp>
#include <dat/ud.hpp>

#include <support/worker.hpp>

#include <atomic>
#include <cstring>
#include <endian.h>

using namespace unit;
using type = dat::return_type;

TEST_CASE("another thread may end a datagram endpoint whose connect is under way", "[ud]") {
  const clean_world clean;
  const auto to = must(dat::ia::open("fk2", manual)).address();
  for (const auto where : {fake::call::rdma_resolve_route, fake::call::rdma_connect}) {
    std::atomic<bool> inside{false};
    fake::intercept(where, [&] {
      const auto before = fake::count(fake::call::rdma_destroy_id);
      inside = true;
      // Waits until the id has ended, if its end does not wait for this call.
      for (const auto until = std::chrono::steady_clock::now() + 200ms;
           fake::count(fake::call::rdma_destroy_id) == before && std::chrono::steady_clock::now() < until;)
        std::this_thread::yield();
    });
    {
      datagram_end peer("fk2", automatic);
      const auto listener = must(dat::ib::datagram_service::listen(peer.ia, service, peer.evd));
      datagram_end a("fk1", automatic);
      must(a.ep.connect(to, service, 2s));
      while (!inside) std::this_thread::yield();
    } // all handles are destroyed while the service thread is inside the call
    until_nothing_is_left();
    fake::intercept(where, {});
  }
  CHECK(fake::violations().empty());
}

TEST_CASE("a group that is lost after the join is reported, and can be joined again", "[ud][multicast]") {
  const clean_world clean;
  datagram_end a("fk1");
  const auto address = must(dat::ia_address::parse("239.1.2.3"));
  auto group = must(dat::ib::multicast_group::join(a.ep, address));
  a.ia.run();
  const auto joined = must(a.evd.dequeue());
  REQUIRE(std::holds_alternative<dat::ib::group_joined>(joined));
  CHECK(std::get<dat::ib::group_joined>(joined).group() == address);
  CHECK(group.peer());
  fake::deliver({.event = RDMA_CM_EVENT_MULTICAST_ERROR, .status = -ENETRESET, .id = fake::ids().back()});
  a.ia.run();
  CHECK(std::holds_alternative<dat::connection_unreachable>(must(a.evd.dequeue())));
  is_error(group.peer(), type::invalid_state);
  must(group.leave());
  group = must(dat::ib::multicast_group::join(a.ep, address));
  a.ia.run();
  CHECK(std::holds_alternative<dat::ib::group_joined>(must(a.evd.dequeue())));
}

TEST_CASE("a group that the kernel has no support for is not supported, and an IPv4 group is joined then",
          "[ud][multicast]") {
  constexpr int enotsupp = 524; // an errno that only the kernel defines
  const clean_world clean;
  datagram_end a("fk1");
  fake::fail(fake::call::rdma_join_multicast_ex, 1, enotsupp);
  const auto refused = dat::ib::multicast_group::join(a.ep, must(dat::ia_address::parse("ff0e::1:2")));
  is_error(refused, type::model_not_supported);
  CHECK(refused.error().sys_errno() == enotsupp);
  CHECK_THAT(refused.error().message(),
             support::contains_text("rdma_join_multicast gave ENOTSUPP (Operation is not supported by the kernel). ") &&
                 support::contains_text("join one of 224.0.0.0/4"));
  const auto group = must(dat::ib::multicast_group::join(a.ep, must(dat::ia_address::parse("239.1.2.3"))));
  a.ia.run();
  CHECK(std::holds_alternative<dat::ib::group_joined>(must(a.evd.dequeue())));
  // The error of another failure is not changed.
  fake::fail(fake::call::rdma_join_multicast_ex, 1, EINVAL);
  is_error(dat::ib::multicast_group::join(a.ep, must(dat::ia_address::parse("ff0e::1:2"))), type::internal_error);
}

TEST_CASE("a datagram request that names another host as its sender is refused on RoCE", "[ud]") {
  const fake::with roce{fake::personality::kind};
  const clean_world clean;
  datagram_end b("fk2");
  const auto listener = must(dat::ib::datagram_service::listen(b.ia, service, b.evd));
  const auto from = must(dat::ia_address::parse("10.99.1.1"));
  auto header = header_of(must(dat::ia_address::parse("10.99.1.66")));
  raw_request forged(from.with_port(40001), header, "hi");
  CHECK_FALSE(request_of(b.ia, b.evd));
  CHECK(forged.next() == RDMA_CM_EVENT_UNREACHABLE);
  CHECK(fake::live().ahs == 0);
  header.gid = dat::detail::gid_of(from);
  const raw_request honest(from.with_port(40002), header, "hi");
  CHECK(request_of(b.ia, b.evd));
}

TEST_CASE("unused bits of numbers in the header of a datagram request are ignored", "[ud]") {
  dat::detail::qp_place header;
  header.qp_num = 0xff000011;
  header.qkey = 0x80010000;
  std::array<std::byte, 32> bytes{};
  dat::detail::datagram_header::write(header, 0, bytes.data());
  const auto read = dat::detail::datagram_header::read(bytes);
  REQUIRE(read);
  CHECK(read->qp_num == 0x11);
  CHECK(read->qkey == 0x10000);
}

TEST_CASE("a datagram request that was refused for lack of room reaches the consumer when it is repeated", "[ud]") {
  const clean_world clean;
  datagram_end b("fk2");
  auto few = must(b.ia.create_evd<dat::stream::connection_requests | dat::stream::datagrams>(1));
  const auto listener = must(dat::ib::datagram_service::listen(b.ia, service, few));
  const auto from = must(dat::ia_address::parse("10.99.1.1"));
  const auto header = header_of(from);
  {
    const raw_request first(from.with_port(40001), header, "a");
    raw_request second(from.with_port(40002), header, "b");
    b.ia.run();
    CHECK(second.next() == RDMA_CM_EVENT_UNREACHABLE);
    CHECK(request_of(b.ia, few)); // takes the first request
  }
  const raw_request repeated(from.with_port(40002), header, "b");
  CHECK(request_of(b.ia, few));
}

TEST_CASE("a reply is repeated to its peer while the consumer gives others", "[ud]") {
  const clean_world clean;
  datagram_end b("fk2", automatic);
  const auto listener = must(dat::ib::datagram_service::listen(b.ia, service, b.evd));
  const auto from = must(dat::ia_address::parse("10.99.1.1"));
  const auto header = header_of(from);
  constexpr int others = 40; // fewer than the replies that are kept for one address
  {
    const raw_request first(from.with_port(40001), header, "who");
    must(must(b.evd.wait_for<dat::ib::datagram_request>(plenty)).accept(b.ep));
    must(b.evd.wait_for<dat::ib::datagram_established>(plenty));
  }
  support::worker consumer([&](support::worker& w) {
    // The next request may come before the event of the reply to the one before.
    for (int up = 0; up < others;) {
      auto e = b.evd.wait(plenty);
      w.check(e.has_value());
      if (!e) return;
      if (auto* request = std::get_if<dat::ib::datagram_request>(&e.value()))
        w.check(request->accept(b.ep).has_value());
      else if (std::holds_alternative<dat::ib::datagram_established>(e.value()))
        ++up;
      else
        w.check(false);
    }
  });
  for (std::uint16_t i = 0; i < others; ++i) {
    raw_request one(from.with_port(static_cast<std::uint16_t>(41000 + i)), header, "other");
    raw_request again(from.with_port(40001), header, "who");
    for (raw_request* request : {&again, &one}) {
      std::optional<rdma_cm_event_type> got;
      while (!got) got = request->next();
      CHECK(*got == RDMA_CM_EVENT_ESTABLISHED);
    }
  }
  consumer.join();
  is_error(b.evd.dequeue(), type::queue_empty);
}

TEST_CASE("a reply to a datagram request waits for another reply that is given or repeated", "[ud][locks]") {
  const clean_world clean;
  datagram_end b("fk2");
  const auto listener = must(dat::ib::datagram_service::listen(b.ia, service, b.evd));
  const auto from = must(dat::ia_address::parse("10.99.1.1"));
  const auto header = header_of(from);
  std::optional<raw_request> first(std::in_place, from.with_port(40001), header, "who");
  auto one = request_of(b.ia, b.evd);
  const raw_request second(from.with_port(40002), header, "other");
  auto other = request_of(b.ia, b.evd);
  REQUIRE((one && other));
  const auto reject_other = [&] { (void)other->reject(); };
  SECTION("given") {
    CHECK(waits(
        fake::call::rdma_reject, [&] { must(one->reject()); }, reject_other));
  }
  SECTION("repeated") {
    must(one->reject());
    first.reset(); // which frees its port
    const raw_request again(from.with_port(40001), header, "who");
    CHECK(waits(
        fake::call::rdma_reject, [&] { b.ia.run(); }, reject_other));
  }
}

TEST_CASE("one peer address cannot displace the cached replies to others", "[ud]") {
  fake::world w;
  w.devices[0].ports[0].addresses.push_back("10.99.1.2");
  const clean_world clean(w);
  datagram_end b("fk2");
  const auto listener = must(dat::ib::datagram_service::listen(b.ia, service, b.evd));
  const auto honest = must(dat::ia_address::parse("10.99.1.1"));
  const auto flood = must(dat::ia_address::parse("10.99.1.2"));
  auto header = header_of(honest);
  {
    const raw_request first(honest.with_port(40001), header, "who");
    must(request_of(b.ia, b.evd)->accept(b.ep));
    (void)b.evd.dequeue();
  }
  header.gid = dat::detail::gid_of(flood);
  for (std::uint16_t i = 0; i < 300; ++i) {
    const raw_request one(flood.with_port(static_cast<std::uint16_t>(41000 + i)), header, "x");
    CHECK(request_of(b.ia, b.evd)); // the request is dropped at once
  }
  header.gid = dat::detail::gid_of(honest);
  raw_request again(honest.with_port(40001), header, "who");
  CHECK_FALSE(request_of(b.ia, b.evd));
  CHECK(again.next() == RDMA_CM_EVENT_ESTABLISHED);
}

namespace {

/// Two adapters of an InfiniBand fabric.
fake::world fabric() {
  fake::world w;
  for (std::size_t i = 0; i < 2; ++i) {
    auto& port = w.devices[i].ports[0];
    port.link_layer = IBV_LINK_LAYER_INFINIBAND;
    port.lid = static_cast<std::uint16_t>(0x11 * (i + 1));
  }
  return w;
}

} // namespace

TEST_CASE("on InfiniBand a peer of the subnet is reached by its LID, with a GRH only where it is needed",
          "[ud][descriptor]") {
  struct variant {
    const char* name;
    std::uint8_t flags;
    std::uint64_t prefix; // the prefix of the peer's subnet
    bool global;
  };
  for (const auto& v : {variant{"same subnet", 0, 0, false}, variant{"GRH required", IBV_QPF_GRH_REQUIRED, 0, true},
                        variant{"other subnet", 0, 0xfec0000000000001, true}}) {
    INFO(v.name);
    auto w = fabric();
    w.devices[0].ports[0].flags = v.flags;
    w.devices[1].ports[0].subnet_prefix = v.prefix;
    const clean_world clean(w);
    datagram_end a("fk1");
    datagram_end b("fk2");
    const auto to_b = must(a.ep.connect(must(b.ep.export_descriptor())));
    const auto paths = fake::ah_attributes();
    REQUIRE(paths.size() == 1);
    CHECK((paths[0].is_global != 0) == v.global);
    CHECK(paths[0].dlid == 0x22);
    ibv_gid gid{};
    REQUIRE(ibv_query_gid(b.ia.native_handle(), 1, 0, &gid) == 0);
    if (v.global) CHECK(std::memcmp(paths[0].grh.dgid.raw, gid.raw, sizeof gid.raw) == 0);
  }
}

TEST_CASE("on InfiniBand the path record of a request gives service level and LIDs", "[ud]") {
  auto w = fabric();
  w.devices[1].ports[0].service_level = 3;
  const clean_world clean(w);
  auto ia = must(dat::ia::open("fk2", manual));
  dat::detail::qp_place to;
  to.lid = 0x11;
  to.qp_num = 17;
  REQUIRE(ibv_query_gid(ia.native_handle(), 1, 0, &to.gid) == 0);
  ibv_sa_path_rec record{};
  record.sl = 3;
  record.slid = htobe16(0x22);
  record.dlid = htobe16(0x77);
  rdma_route route{};
  route.path_rec = &record;
  route.num_paths = 1;
  const auto& core = *dat::detail::core_access::of(ia);
  auto known = dat::detail::path_to(core, to, &route);
  REQUIRE(known);
  CHECK(known.assume_value().sl == 3);
  CHECK(known.assume_value().dlid == 0x77);
  CHECK(known.assume_value().src_path_bits == 0);
  route.num_paths = 0;
  auto unknown = dat::detail::path_to(core, to, &route);
  REQUIRE(unknown);
  CHECK(unknown.assume_value().sl == 0);
  CHECK(unknown.assume_value().dlid == 0x11);
}

TEST_CASE("on InfiniBand endpoints are in the partition of the adapter's interface", "[ud][descriptor][ep]") {
  auto w = fabric();
  for (auto& d : w.devices) {
    d.ports[0].pkeys = {0xffff, 0x8002, 0x8001};
    d.ports[0].interface_pkey = 2;
  }
  const clean_world clean(w);
  const auto index_of = [](ibv_qp* qp) {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    REQUIRE(ibv_query_qp(qp, &attr, IBV_QP_PKEY_INDEX, &init) == 0);
    return attr.pkey_index;
  };
  const datagram_end d("fk1");
  CHECK(index_of(d.ep.native_handle()) == 2);
  pair p;
  CHECK(index_of(p.a.ep.native_handle()) == 2);
  CHECK(index_of(p.b.ep.native_handle()) == 2);
  auto near = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  auto far = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  const auto from_near = must(near.export_descriptor());
  must(near.connect(must(far.export_descriptor())));
  must(far.connect(from_near));
  CHECK(index_of(near.native_handle()) == 2);
  // Where the table cannot be read, the first partition is the best guess.
  fake::fail(fake::call::ibv_get_pkey_index, 1, EIO);
  const auto other = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  CHECK(index_of(other.native_handle()) == 0);
}
