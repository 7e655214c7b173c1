// The smallest and the largest value of each member of a descriptor.
// SPDX-License-Identifier: BSL-1.0
#include <unit/datagram_end.hpp>
#include <unit/world.hpp>

#include <dat/descriptor.hpp>

#include <support/sealed_descriptor.hpp>

#include <cstring>

using namespace unit;

namespace {

/// A valid descriptor of an Ethernet port, some bytes of which a test replaces.
class wire {
public:
  explicit wire(const dat::ib::descriptor& d) : bytes_(d.to_wire()) {
    bytes_[8] = std::byte{IBV_LINK_LAYER_ETHERNET};
    bytes_[24] = bytes_[25] = std::byte{0}; // the local identifier of an InfiniBand port
  }
  /// Whether the descriptor is accepted with `value` in `count` bytes from `first` on, in the byte order of networks.
  [[nodiscard]] bool takes(std::size_t first, std::size_t count, std::uint32_t value) const {
    auto w = bytes_;
    for (std::size_t i = 0; i < count; ++i) w[first + i] = static_cast<std::byte>(value >> 8 * (count - 1 - i));
    support::seal(w);
    return dat::ib::descriptor::from_wire(w).has_value();
  }

private:
  dat::ib::descriptor::wire bytes_;
};

/// The descriptor of a new endpoint.
dat::ib::descriptor exported() {
  end e;
  e.make_ep();
  return must(e.ep.export_descriptor());
}

} // namespace

TEST_CASE("a datagram has at most the bytes of one packet, or fewer if the endpoint says so", "[ud]") {
  clean_world world;
  datagram_end a("fk1");
  CHECK(a.ep.max_message_size() == must(a.ia.query()).active_mtu);
  const auto fewer = must(a.pz.create_ep<dat::ud>(a.evd, {.max_message_size = 10}));
  CHECK(fewer.max_message_size() == 10);
}

TEST_CASE("on RoCE the address of an endpoint is that of its host, with its number and its key", "[ud]") {
  const fake::with roce(fake::personality::kind);
  clean_world world;
  datagram_end a("fk1");
  const auto own = must(a.ep.address());
  CHECK(dat::ib::datagram_address::at(a.ia.address(), a.ep.number()) == own);
  const auto other = dat::ib::datagram_address::at(a.ia.address(), a.ep.number(), 77);
  CHECK(other.qkey == 77);
  CHECK(other.gid == own.gid);
  CHECK(other.qp_number == own.qp_number);
}

TEST_CASE("endpoints connect by descriptors when their adapters have only IPv6 addresses", "[descriptor]") {
  clean_world world({.devices = {{"fk1", {{{"fd99:1::1"}}}}, {"fk2", {{{"fd99:2::1"}}}}}});
  end a("fk1");
  end b("fk2");
  a.make_ep();
  b.make_ep();
  const auto to_a = must(a.ep.export_descriptor());
  must(a.ep.connect(must(b.ep.export_descriptor())));
  must(b.ep.connect(to_a));
  CHECK(a.take() == events{"established"});
}

TEST_CASE("a descriptor has numbers within the limits of verbs", "[descriptor][DOCA-031]") {
  clean_world world;
  const wire w(exported());
  // The field of the service.
  CHECK_FALSE(w.takes(5, 1, 0));
  CHECK(w.takes(5, 1, 1));
  CHECK(w.takes(5, 1, 2));
  CHECK_FALSE(w.takes(5, 1, 3));
  // The field of the link layer. A descriptor of InfiniBand has a local identifier.
  CHECK_FALSE(w.takes(8, 1, 0));
  CHECK_FALSE(w.takes(8, 1, IBV_LINK_LAYER_INFINIBAND));
  CHECK(w.takes(8, 1, IBV_LINK_LAYER_ETHERNET));
  CHECK_FALSE(w.takes(8, 1, 3));
  CHECK_FALSE(w.takes(24, 2, 1));
  // The field of the mtu.
  CHECK_FALSE(w.takes(9, 1, 0));
  CHECK(w.takes(9, 1, IBV_MTU_256));
  CHECK(w.takes(9, 1, IBV_MTU_4096));
  CHECK_FALSE(w.takes(9, 1, 6));
  // The field of the queue pair. The numbers 0 and 1 are not for consumers.
  CHECK_FALSE(w.takes(12, 4, 1));
  CHECK(w.takes(12, 4, 2));
  CHECK(w.takes(12, 4, 0xff'ffff));
  CHECK_FALSE(w.takes(12, 4, 0x100'0000));
  // The field of the first packet number.
  CHECK(w.takes(16, 4, 0));
  CHECK(w.takes(16, 4, 0xff'ffff));
  CHECK_FALSE(w.takes(16, 4, 0x100'0000));
}

TEST_CASE("a descriptor of an InfiniBand port has a local identifier", "[descriptor][DOCA-031]") {
  clean_world world;
  auto w = exported().to_wire();
  w[8] = std::byte{IBV_LINK_LAYER_INFINIBAND};
  w[25] = std::byte{1};
  support::seal(w);
  CHECK(dat::ib::descriptor::from_wire(w).has_value());
  w[8] = std::byte{3};
  support::seal(w);
  CHECK_FALSE(dat::ib::descriptor::from_wire(w).has_value());
}

TEST_CASE("a descriptor that an InfiniBand port exports has the first GID of the port", "[descriptor]") {
  fake::world w;
  for (auto& d : w.devices) d.ports[0].link_layer = IBV_LINK_LAYER_INFINIBAND, d.ports[0].lid = 7;
  clean_world world(w);
  end e;
  e.make_ep();
  const auto bytes = must(e.ep.export_descriptor()).to_wire();
  ibv_gid first{};
  REQUIRE(ibv_query_gid(e.ia.native_handle(), 1, 0, &first) == 0);
  CHECK(std::memcmp(bytes.data() + 32, first.raw, sizeof first) == 0);
}

TEST_CASE("each byte of a descriptor that has no meaning yet is 0", "[descriptor][DOCA-031]") {
  clean_world world;
  const wire w(exported());
  CHECK(w.takes(11, 1, 0));
  std::vector<std::size_t> unused{11};
  for (std::size_t i = 26; i < 32; ++i) unused.push_back(i);
  for (std::size_t i = 48; i < 60; ++i) unused.push_back(i);
  for (const std::size_t at : unused) {
    INFO("byte " << at);
    CHECK_FALSE(w.takes(at, 1, 1));
  }
}
