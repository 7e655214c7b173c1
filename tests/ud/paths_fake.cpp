// The paths of datagrams and connections by descriptors: what of a path record, a port and its GIDs they use.
// SPDX-License-Identifier: BSL-1.0
#include <unit/datagram_end.hpp>
#include <unit/world.hpp>

#include <dat/ud.hpp>

#include <array>
#include <cerrno>
#include <cstring>

using namespace unit;
using dat::return_subtype;
using dat::return_type;

namespace {

/// A port of InfiniBand with four LIDs, and a peer in its subnet.
struct fabric_port {
  static fake::world world() {
    fake::world w;
    auto& port = w.devices[0].ports[0];
    port.link_layer = IBV_LINK_LAYER_INFINIBAND;
    port.lid = 0x20;
    port.lmc = 2;
    return w;
  }
  clean_world clean{world()};
  dat::ia ia = must(dat::ia::open("fk1", manual));
  dat::detail::qp_place to;
  fabric_port() {
    to.lid = 0x11;
    REQUIRE(ibv_query_gid(ia.native_handle(), 1, 0, &to.gid) == 0);
  }
  ibv_ah_attr path(std::uint16_t from, std::uint16_t lid) {
    ibv_sa_path_rec record{};
    record.sl = 5;
    record.slid = htobe16(from);
    record.dlid = htobe16(lid);
    rdma_route route{};
    route.path_rec = &record;
    route.num_paths = 1;
    auto found = dat::detail::path_to(*dat::detail::core_access::of(ia), to, &route);
    REQUIRE(found);
    return found.assume_value();
  }
};

} // namespace

TEST_CASE("on InfiniBand a path leaves by the LID of its path record, of those that the port has", "[ud]") {
  fabric_port p;
  CHECK(p.path(0x20, 0x77).src_path_bits == 0);
  CHECK(p.path(0x21, 0x77).src_path_bits == 1);
  CHECK(p.path(0x23, 0x77).src_path_bits == 3);
  CHECK(p.path(0x24, 0x77).src_path_bits == 0);
}

TEST_CASE("on InfiniBand a path goes to the LID of its path record, and else to that of the peer", "[ud]") {
  fabric_port p;
  for (const std::uint16_t lid : std::array<std::uint16_t, 3>{1, 0x100, 0xbfff}) {
    const auto path = p.path(0x20, lid);
    CHECK(path.dlid == lid);
    CHECK(path.is_global == 0);
    CHECK(path.sl == 5);
    CHECK(path.port_num == 1);
  }
  CHECK(p.path(0x20, 0).dlid == 0x11);
  p.to.lid = 0; // a peer without a LID is reached by its GID
  const auto global = p.path(0x20, 0);
  CHECK(global.is_global == 1);
  CHECK(global.grh.hop_limit == 64);
  CHECK(std::memcmp(global.grh.dgid.raw, p.to.gid.raw, sizeof p.to.gid.raw) == 0);
}

TEST_CASE("an address whose port cannot be queried gives an error that names the call", "[ud]") {
  const clean_world world;
  datagram_end a("fk1");
  fake::fail(fake::call::ibv_query_port, 1, EIO);
  const auto no_port = a.ep.address();
  REQUIRE_FALSE(no_port);
  CHECK(no_port.error().verb() == "ibv_query_port");
  CHECK(no_port.error().sys_errno() == EIO);
  CHECK(no_port.error().call() == "ep.address");
}

TEST_CASE("on InfiniBand an address whose GID cannot be read names the call", "[ud]") {
  const clean_world world(fabric_port::world());
  datagram_end a("fk1");
  fake::fail(fake::call::ibv_query_gid, 1, EIO);
  const auto no_gid = a.ep.address();
  REQUIRE_FALSE(no_gid);
  CHECK(no_gid.error().verb() == "ibv_query_gid");
  CHECK(no_gid.error().sys_errno() == EIO);
}
