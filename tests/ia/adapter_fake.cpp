// An adapter at the limits of what verbs reports, descriptors of its addresses, and its end in a forked child.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/descriptor.hpp>
#include <dat/registry.hpp>

#include <dat/detail/adapter/path.hpp>
#include <dat/detail/adapter/place.hpp>
#include <dat/detail/handle/core_access.hpp>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <unistd.h>

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
  const fake::with manner{fake::personality::kind}; // `ib` has no Ethernet port
  fake::world w;
  const auto [link, layer] = GENERATE(std::pair(int{IBV_LINK_LAYER_ETHERNET}, dat::link_layer::ethernet),
                                      std::pair(int{IBV_LINK_LAYER_INFINIBAND}, dat::link_layer::infiniband));
  w.devices[0].ports[0].link_layer = static_cast<std::uint8_t>(link);
  const clean_world world(w);
  end a;
  a.make_ep();
  CHECK(must(a.ep.export_descriptor()).link_layer() == layer);
}

TEST_CASE("an adapter finds its GIDs by their bytes, the first one too", "[ia]") {
  fake::world w;
  w.devices[1].ports[0].link_layer = IBV_LINK_LAYER_INFINIBAND;
  const clean_world world(w);
  for (const char* name : {"fk1", "fk2"}) {
    CAPTURE(name);
    const auto ia = must(dat::ia::open(name, manual));
    const auto& core = *dat::detail::core_access::of(ia);
    ibv_port_attr port{};
    REQUIRE(ibv_query_port(core.context(), 1, &port) == 0);
    ibv_gid gid{};
    for (int i = 0; ibv_query_gid(core.context(), 1, i, &gid) == 0 && i < 3; ++i)
      if (i == 0 || gid.raw[0] != 0 || gid.raw[10] != 0) CHECK(dat::detail::gid_index_of(core, port, gid) == i);
    gid.raw[15] = static_cast<std::uint8_t>(gid.raw[15] ^ 0x55);
    CHECK(dat::detail::gid_index_of(core, port, gid) < 0);
  }
}

TEST_CASE("the distance of a node is at its place in the list of nodes that are online", "[ia]") {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("dat-places-" + std::to_string(::getpid()));
  fs::remove_all(root);
  fs::create_directories(root / "devices/system/cpu/cpu0/node2");
  const auto write = [&](const char* file, const char* text) {
    fs::create_directories((root / "devices/system" / file).parent_path());
    std::ofstream(root / "devices/system" / file) << text << '\n';
  };
  ibv_device device{};
  (root / "class/infiniband/fk1").string().copy(device.ibdev_path, sizeof device.ibdev_path - 1);
  write("node/node2/distance", "11 12 13 14");
  struct {
    const char* online;
    std::uint32_t node;
    std::optional<std::uint32_t> distance;
  } const rows[] = {{"2", 2, 11},   {"2-2", 2, 11},     {"0-0,2", 2, 12},   {"0-1,3-3", 3, 13}, {"0-3", 3, 14},
                    {"0-3", 0, 11}, {"1,3,5,7", 7, 14}, {"1,3,5,7", 4, {}}, {"3-2,4", 4, {}},   {"0-4", 4, {}},
                    {"4;5", 5, {}}, {"0,", 1, {}},      {"0-2,4-5", 4, 14}, {"0-2,4-5", 5, {}}};
  for (const auto& row : rows) {
    CAPTURE(row.online, row.node);
    write("node/online", row.online);
    CHECK(dat::detail::numa_distance(device, row.node, 0) == row.distance);
  }
  fs::remove_all(root);
}

TEST_CASE("a name is free when its ia is closed, also while the program keeps a request of it", "[ia][registry]") {
  const clean_world world;
  auto names = must(dat::registry::system());
  must(names.add({.name = "mine", .port = must(names.find("fk2")).port}));
  dat::cr request;
  {
    end a("fk1");
    a.make_ep();
    auto ia = must(names.open("mine", {}, manual));
    auto evd = must(ia.create_evd<all_streams>(8));
    {
      const auto psp = must(ia.create_psp(service, evd));
      must(a.ep.connect(ia.address(), service, plenty));
      settle(a.ia, ia);
      request = request_on(evd);
    }
    must(evd.close());
    CHECK(names.remove("mine").error() == dat::error(return_type::provider_in_use));
    must(ia.close(dat::close_mode::graceful));
    must(names.remove("mine"));
  }
  is_error(request.reject(), return_type::invalid_handle, return_subtype::handle_cr);
}

TEST_CASE("an RDMA read of iWARP fills one segment", "[iwarp]") {
  const fake::with manner{fake::personality::iwarp};
  const clean_world world;
  pair p;
  const auto from = must(p.b.mem.remote().slice(0, 8));
  must(p.a.ep.post(dat::rdma_read{p.a.at(0, 8), from}));
  const dat::iov two{p.a.at(0, 4), p.a.at(8, 4)};
  is_error(p.a.ep.post(dat::rdma_read{two, from}), return_type::invalid_parameter, return_subtype::arg2);
  must(p.a.ep.post(dat::rdma_write{two, from}));
  CHECK(p.a.take().size() == 2);
}
