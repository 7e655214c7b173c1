// Descriptors that are refused: by their bits, by the endpoint, by the device.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/descriptor.hpp>
#include <dat/ud.hpp>

#include <support/sealed_descriptor.hpp>

#include <cstring>
#include <random>

using namespace unit;

namespace {

using datagram_evd = dat::evd<ud_streams>;

} // namespace

TEST_CASE("a descriptor is refused unless every bit is valid", "[descriptor][DOCA-031]") {
  clean_world world;
  end e;
  e.make_ep();
  const auto good = must(e.ep.export_descriptor()).to_wire();
  CHECK(must(dat::ib::descriptor::from_wire(good)).to_wire() == good);
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    auto bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    if (dat::ib::descriptor::from_wire(bad)) FAIL("bit " << bit << " does not matter");
  }
  std::vector<std::byte> longer(good.begin(), good.end());
  longer.push_back({});
  for (std::size_t n = 0; n <= longer.size(); ++n)
    CHECK(dat::ib::descriptor::from_wire(std::span(longer).first(n)).has_value() == (n == good.size()));
  auto swapped = good;
  std::swap(swapped[6], swapped[7]);
  CHECK_THAT(dat::ib::descriptor::from_wire(swapped).error().message(), support::contains_text("byte order"));
  auto newer = good;
  newer[4] = std::byte{2};
  CHECK_THAT(dat::ib::descriptor::from_wire(newer).error().message(), support::contains_text("version"));
}

TEST_CASE("a hostile descriptor gives an error, or a connection to the endpoint it names", "[descriptor][DOCA-031]") {
  clean_world world;
  end e;
  datagram_evd evd = must(e.ia.create_evd<ud_streams>(8));
  auto ud = must(e.pz.create_ep<dat::ud>(evd));
  std::mt19937 random(20240607);
  std::size_t taken = 0;
  for (int i = 0; i < 2000; ++i) {
    e.make_ep();
    auto w = must(e.ep.export_descriptor()).to_wire();
    const auto changes = 1 + random() % 6;
    for (std::size_t n = 0; n < changes; ++n) w[4 + random() % 56] = static_cast<std::byte>(random());
    if (random() % 4 == 0)
      for (auto& b : w) b = static_cast<std::byte>(random());
    if (random() % 8 != 0) {
      std::memcpy(w.data(), "DATE\1", 5);
      w[6] = std::byte{1};
      w[7] = std::byte{2};
    }
    support::seal(w);
    const auto d = dat::ib::descriptor::from_wire(w);
    if (!d) continue;
    ++taken;
    const auto r = e.ep.connect(d.value());
    CHECK((e.ep.state() == dat::ep_state::connected) == r.has_value());
    (void)ud.connect(d.value());
    e.evd.drain([](const auto&) {});
  }
  CHECK(taken > 0);
  CHECK(taken < 2000);
}

TEST_CASE("a connection by descriptors that the device refuses half way needs a reset", "[descriptor]") {
  clean_world world;
  end a("fk1");
  end b("fk2");
  a.make_ep();
  b.make_ep();
  must(a.ep.post(dat::recv{a.at(0, 10)}.cookie(1)));
  const auto to_b = must(b.ep.export_descriptor());
  fake::fail(fake::call::ibv_modify_qp, 1, EIO);
  CHECK(a.ep.connect(to_b).error().sys_errno() == EIO);
  CHECK(a.ep.state() == dat::ep_state::unconnected);   // its receive is still posted
  fake::fail(fake::call::ibv_modify_qp, 1, ETIMEDOUT); // the host does not answer
  CHECK(a.ep.connect(to_b).error().type() == dat::return_type::invalid_address);
  fake::fail(fake::call::ibv_modify_qp, 2, EIO);
  CHECK_THAT(a.ep.connect(to_b).error().message(), support::contains_text("reset"));
  CHECK(a.ep.state() == dat::ep_state::disconnected);
  CHECK(a.take() == events{"non_peer_rejected 5", "flushed 1"});
  must(a.ep.reset());
  must(a.ep.connect(to_b));
  must(b.ep.connect(must(a.ep.export_descriptor())));
  CHECK(a.take() == events{"established"});
}

TEST_CASE("an empty descriptor is refused as empty", "[descriptor]") {
  const clean_world world;
  end e;
  e.make_ep();
  const auto refused = e.ep.connect(dat::ib::descriptor{});
  is_error(refused, dat::return_type::invalid_parameter, dat::return_subtype::arg2);
  CHECK_THAT(refused.error().message(), support::contains_text("The descriptor is empty."));
}
