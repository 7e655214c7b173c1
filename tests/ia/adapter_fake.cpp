// An adapter at the limits of what verbs reports, descriptors of its addresses, and its end in a forked child.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/descriptor.hpp>
#include <dat/registry.hpp>

#include <dat/detail/handle/core_access.hpp>

using namespace unit;
using dat::return_subtype;
using dat::return_type;

TEST_CASE("an ia that a child inherits is not the child's to close", "[ia]") {
  const clean_world world;
  auto ia = must(dat::ia::open("fk1", manual));
  auto& forks = dat::detail::forks;
  forks.fetch_add(1);
  dat::ia inherited = std::move(ia);
  auto* const core = &*dat::detail::core_access::of(inherited);
  core->add_ref(); // of the parent
  is_error(inherited.close(), return_type::invalid_handle, return_subtype::handle_ia);
  CHECK_FALSE(inherited);
  CHECK(fake::live().contexts == 1);
  forks.fetch_sub(1);
  core->release();
}

TEST_CASE("a descriptor names the link layer of the adapter", "[descriptor]") {
  fake::world w;
  const auto [link, layer] = GENERATE(std::pair(int{IBV_LINK_LAYER_ETHERNET}, dat::link_layer::ethernet),
                                      std::pair(int{IBV_LINK_LAYER_INFINIBAND}, dat::link_layer::infiniband));
  w.devices[0].ports[0].link_layer = static_cast<std::uint8_t>(link);
  const clean_world world(w);
  end a;
  a.make_ep();
  CHECK(must(a.ep.export_descriptor()).link_layer() == layer);
}
