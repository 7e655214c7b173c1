// Attributes of an ia on devices with different limits: the reported values are those that are enforced.
// SPDX-License-Identifier: BSL-1.0
#include "small_device.hpp"
#include "world.hpp"

#include <dat/ib_query.hpp>
#include <dat/registry.hpp>
#include <dat/rmr.hpp>
#include <dat/srq.hpp>

#include <bit>
#include <cerrno>
#include <limits>
#include <vector>

using namespace unit;
using type = dat::return_type;
using subtype = dat::return_subtype;

TEST_CASE("the leading numbers of a firmware version are parsed", "[ia][IA-075]") {
  const auto check = [](std::string_view text, std::uint32_t major, std::uint32_t minor) {
    INFO(text);
    CHECK(dat::detail::firmware_of(text).major == major);
    CHECK(dat::detail::firmware_of(text).minor == minor);
  };
  check("20.31.1014", 20, 31);
  check("0.0.0", 0, 0);
  check("7", 7, 0);
  check("7.", 7, 0);
  check("7.8", 7, 8);
  check("7-8", 7, 0);
  check("", 0, 0);
  check("weird", 0, 0);
  check(".5", 0, 0);
  check("123456789.5", 123'456'789, 5);
  check("1234567890.5", 123'456'789, 0); // a number has at most nine digits
  check("v1.2", 0, 0);
}

TEST_CASE("reads are guaranteed only when the device has enough for every endpoint", "[ia][IA-099][IA-100]") {
  using dat::read_resources;
  CHECK(dat::detail::reads_for_all(900, 100, 9) == read_resources::guaranteed);
  CHECK(dat::detail::reads_for_all(899, 100, 9) == read_resources::shared);
  auto w = small_device();
  CHECK(must(opened(w).query()).max_rdma_read_per_ep_in_kind == read_resources::guaranteed);
  w.devices[0].attr->max_res_rd_atom = 899;
  const auto a = must(opened(w).query());
  CHECK(a.max_rdma_read_per_ep_in_kind == read_resources::shared);
  CHECK(a.max_rdma_read_per_ep_out_kind == read_resources::guaranteed);
}

TEST_CASE("an adapter reports the attributes of its device", "[ia][IA-070]") {
  auto device = small_device();
  device.devices[0].attr->max_mw = 13;
  device.devices[0].attr->max_srq = 14;
  device.devices[0].attr->max_srq_wr = 150;
  const auto ia = opened(device);
  const auto a = must(ia.query());
  CHECK(a.adapter_name.view() == "fk1");
  CHECK(a.port == 1);
  CHECK(a.vendor_id == 0x02c9);
  CHECK(a.vendor_part_id == 4119);
  CHECK(a.hardware_version_major == 3);
  SHOWS("IA-074");
  CHECK(a.firmware_version.view() == "20.31.1014");
  CHECK(a.firmware_version_major == 20);
  CHECK(a.firmware_version_minor == 31);
  SHOWS("IA-075");
  CHECK(a.address == ia.address());
  CHECK(a.link_layer == dat::link_layer::ethernet);
  CHECK(a.state == dat::port_state::active);
  CHECK(a.active_mtu == 4096);
  // Soft-RoCE has one number for many of these limits; this device has another for each.
  CHECK(a.max_eps == 100);
  CHECK(a.max_dto_per_ep == 127);
  SHOWS("IA-077", "IA-078");
  CHECK(a.max_rdma_read_per_ep_in == 9);
  CHECK(a.max_rdma_read_per_ep_out == 5);
  SHOWS("IA-079", "IA-080");
  CHECK(a.max_rdma_read_in == 900);
  CHECK(a.max_rdma_read_out == 500);
  SHOWS("IA-097", "IA-098");
  CHECK(a.max_evds == 77);
  CHECK(a.max_evd_qlen == 200);
  SHOWS("IA-081", "IA-082");
  CHECK(a.max_iov_segments_per_dto == 6);
  CHECK(a.max_iov_segments_per_rdma_write == 6);
  CHECK(a.max_iov_segments_per_rdma_read == 3);
  SHOWS("IA-083", "IA-095", "IA-096");
  CHECK(a.max_lmrs == 11);
  CHECK(a.max_lmr_block_size == std::uint64_t{1} << 40);
  SHOWS("IA-084", "IA-085");
  CHECK(a.max_pzs == 12);
  CHECK(a.max_rmrs == 13);
  SHOWS("IA-087", "IA-090");
  CHECK(a.max_srqs == 14);
  CHECK(a.max_ep_per_srq == 100);
  CHECK(a.max_recv_per_srq == 150);
  SHOWS("IA-092", "IA-093", "IA-094");
  CHECK(a.max_lmr_virtual_address == std::numeric_limits<std::uint64_t>::max());
  CHECK(a.max_rmr_target_address == std::numeric_limits<std::uint64_t>::max());
  CHECK(a.num_comp_vectors == 2);
  CHECK(a.vendor_name.view() == "0x0002c9");
  CHECK(a.node_guid != 0);
  CHECK(a.max_message_size == 8388608);
  CHECK(a.max_rdma_size == a.max_message_size);
  CHECK(a.extension_supported == dat::extension::infiniband);
  CHECK(a.extension_version == 2);

  const auto again = must(dat::ia::open("fk1", manual));
  CHECK(must(again.query()) == a);
  const auto other = must(dat::ia::open("fk2", manual));
  CHECK(must(other.query()) != a);
  CHECK(must(other.query()).max_eps != a.max_eps);
  CHECK(must(other.query()).node_guid != a.node_guid);
}

TEST_CASE("an adapter that was opened by an address has the name of its port", "[ia]") {
  auto w = small_device();
  w.devices[0].ports.push_back({{"10.99.3.1"}});
  fake::reset(w);
  const auto name = [](const char* address) {
    const auto ia = must(dat::ia::open(must(dat::ia_address::parse(address)), manual));
    return std::string(must(ia.query()).adapter_name.view());
  };
  CHECK(name("10.99.1.1") == "fk1");
  CHECK(name("10.99.3.1") == "fk1/2");
  // The highest port is 255, and this adapter has two.
  CHECK(dat::ia::open("fk1/255", manual).error().type() != type::invalid_parameter);
  for (const char* wrong : {"fk1/256", "fk1/0", "fk1/", "fk1/x"})
    CHECK(dat::ia::open(wrong, manual).error().type() == type::invalid_parameter);
}

TEST_CASE("an adapter that was opened by a name has that name", "[ia]") {
  fake::reset();
  for (const char* name : {"fk1", "fk1/1"}) {
    const auto ia = must(dat::ia::open(name, manual));
    CHECK(must(ia.query()).adapter_name.view() == name);
    CHECK(ia.name() == "fk1");
  }
}

TEST_CASE("an adapter reports its link", "[ia]") {
  struct {
    std::uint8_t width, speed;
    std::uint32_t lanes;
    std::uint64_t gigabits;
  } const links[] = {{2, 1, 4, 10},   {1, 2, 1, 5},     {2, 4, 4, 40},    {2, 8, 4, 40},  {8, 16, 12, 168},
                     {2, 32, 4, 100}, {16, 64, 2, 100}, {4, 128, 8, 800}, {2, 255, 4, 0}, {3, 32, 0, 0}};
  for (const auto& link : links) {
    INFO("active_width " << +link.width << ", active_speed " << +link.speed);
    auto w = small_device();
    w.devices[0].active_width = link.width;
    w.devices[0].active_speed = link.speed;
    const auto a = must(opened(w).query());
    CHECK(a.link_width == link.lanes);
    CHECK(a.link_speed == link.gigabits * 1'000'000'000);
  }
  auto w = small_device();
  CHECK(must(opened(w).query()).link_speed == 2'500'000'000);
  w.num_comp_vectors = 5;
  CHECK(must(opened(w).query()).num_comp_vectors == 5);
}

TEST_CASE("an adapter reports the MTU of its port in bytes", "[ia]") {
  auto w = small_device();
  for (const std::uint32_t bytes : {256U, 512U, 1024U, 2048U, 4096U}) {
    const std::uint32_t code = static_cast<std::uint32_t>(std::bit_width(bytes)) - 8;
    w.devices[0].ports[0].active_mtu = static_cast<ibv_mtu>(code);
    CHECK(must(opened(w).query()).active_mtu == bytes);
  }
}

TEST_CASE("an adapter reports the kind of its link, also one that it does not know", "[ia]") {
  struct {
    std::uint8_t verbs;
    dat::link_layer dat;
  } const layers[] = {{IBV_LINK_LAYER_INFINIBAND, dat::link_layer::infiniband},
                      {IBV_LINK_LAYER_UNSPECIFIED, dat::link_layer::unspecified},
                      {77, dat::link_layer::unspecified}};
  for (const auto& layer : layers) {
    INFO("link_layer " << +layer.verbs);
    auto w = small_device();
    w.devices[0].ports[0].link_layer = layer.verbs;
    w.devices[0].ports[0].lid = 3;
    fake::reset(w);
    const auto ports = must(dat::list_devices());
    REQUIRE_FALSE(ports.empty());
    CHECK(ports[0].link_layer == layer.dat);
    CHECK(dat::detail::link_layer_of(layer.verbs) == layer.dat);
  }
}

TEST_CASE("a device that reports no number of something has none of it", "[ia]") {
  auto w = small_device();
  w.devices[0].attr->max_pd = 1;
  w.devices[0].attr->max_mw = -1;
  w.devices[0].attr->max_srq = -1;
  w.devices[0].attr->max_qp_wr = 0;
  const auto a = must(opened(w).query());
  CHECK(a.max_dto_per_ep == 0);
  CHECK(a.max_rmrs == 0);
  CHECK(a.max_srqs == 0);
}

TEST_CASE("the scopes of rmrs follow the types of windows that the device has", "[ia]") {
  constexpr unsigned type_1 = IBV_DEVICE_MEM_WINDOW;
  constexpr unsigned type_2a = IBV_DEVICE_MEM_WINDOW_TYPE_2A;
  constexpr unsigned type_2b = IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  const std::pair<unsigned, dat::rmr_scope> devices[] = {{type_1, dat::rmr_scope::pz},
                                                         {type_2a, dat::rmr_scope::ep},
                                                         {type_2b, dat::rmr_scope::ep},
                                                         {type_1 | type_2b, dat::rmr_scope::any}};
  for (const auto& [types, scope] : devices) {
    INFO(types);
    auto w = small_device();
    w.devices[0].attr->max_mw = 4;
    w.devices[0].attr->device_cap_flags &= ~(type_1 | type_2a | type_2b);
    w.devices[0].attr->device_cap_flags |= types;
    const auto core = core_of(w);
    dat::provider_attributes p;
    must(dat::detail::query(*core, p));
    CHECK(p.rmr_supported);
    CHECK(p.rmr_scope_supported == scope);
  }
  STATIC_REQUIRE(static_cast<int>(dat::rmr_scope::ep) == 0);
  STATIC_REQUIRE(static_cast<int>(dat::rmr_scope::pz) == 1);
  STATIC_REQUIRE(static_cast<int>(dat::rmr_scope::any) == 2);
  SHOWS("IA-134");
}

TEST_CASE("the maximum message size is the device's, but below 2^31", "[ia]") {
  for (const std::uint32_t most : {1u, 1u << 30, (1u << 31) - 1, 1u << 31, ~0u}) {
    INFO(most);
    auto w = small_device();
    w.devices[0].ports[0].max_msg_sz = most;
    CHECK(must(opened(w).query()).max_message_size == std::min(most, (1u << 31) - 1));
  }
  SHOWS("DOCA-005");
}

TEST_CASE("limits beyond those of the connection manager or of dat are reduced to these", "[ia]") {
  auto w = small_device();
  w.devices[0].attr->max_qp_rd_atom = 1000;
  w.devices[0].attr->max_qp_init_rd_atom = 256;
  w.devices[0].attr->max_qp_wr = std::numeric_limits<int>::max();
  w.devices[0].attr->max_cqe = std::numeric_limits<int>::max();
  w.devices[0].attr->max_sge = 1000;
  w.devices[0].attr->max_sge_rd = 0;
  const auto a = must(opened(w).query());
  CHECK(a.max_rdma_read_per_ep_in == 255);
  CHECK(a.max_rdma_read_per_ep_out == 255);
  CHECK(a.max_dto_per_ep == dat::detail::max_ring - 1);
  CHECK(a.max_iov_segments_per_dto == 255);
  CHECK(a.max_iov_segments_per_rdma_read == 255);
}

TEST_CASE("every reported limit can be used, and one more is refused", "[ia][IA-078][IA-082][IA-106][IA-108]") {
  auto device = small_device();
  const int max_cqe = GENERATE(200, 50); // above and below the largest queue of an endpoint
  device.devices[0].attr->max_cqe = max_cqe;
  device.devices[0].attr->max_srq_wr = 150;
  auto ia = opened(device);
  const auto a = must(ia.query());
  auto evd = must(ia.create_evd<all_streams>(a.max_evd_qlen));
  const auto too_long = ia.create_evd<all_streams>(a.max_evd_qlen + 1).error();
  CHECK(too_long.type() == type::invalid_parameter);
  CHECK(too_long.verb().empty()); // dat itself has refused

  auto pz = must(ia.create_pz());
  const dat::ep_attributes largest{.max_request_dtos = a.max_dto_per_ep,
                                   .max_recv_dtos = a.max_dto_per_ep,
                                   .max_request_iov = a.max_iov_segments_per_dto,
                                   .max_recv_iov = a.max_iov_segments_per_dto,
                                   .max_message_size = static_cast<std::uint32_t>(a.max_message_size),
                                   .max_rdma_read_out = static_cast<std::uint8_t>(a.max_rdma_read_per_ep_out),
                                   .max_rdma_read_in = static_cast<std::uint8_t>(a.max_rdma_read_per_ep_in)};
  // An evd has room for all completions of its endpoints, so queues of this size need an evd each.
  auto other = must(ia.create_evd<all_streams>(a.max_evd_qlen));
  CHECK(pz.create_ep<dat::rc>({.recv = evd, .request = other, .connect = evd}, largest));
  const auto refused = [&](auto change) {
    auto more = largest;
    change(more);
    const auto ep = pz.create_ep<dat::rc>({.recv = evd, .request = other, .connect = evd}, more);
    return !ep && ep.assume_error().type() == type::invalid_parameter && ep.assume_error().verb().empty();
  };
  CHECK(refused([](auto& e) { ++e.max_request_dtos; }));
  CHECK(refused([](auto& e) { ++e.max_recv_dtos; }));
  CHECK(refused([](auto& e) { ++e.max_request_iov; }));
  CHECK(refused([](auto& e) { ++e.max_recv_iov; }));
  CHECK(refused([](auto& e) { ++*e.max_message_size; }));
  CHECK(refused([](auto& e) { ++*e.max_rdma_read_out; }));
  CHECK(refused([](auto& e) { ++*e.max_rdma_read_in; }));
  CHECK(pz.create_srq({.max_recv_dtos = a.max_recv_per_srq}));
  const auto too_many = pz.create_srq({.max_recv_dtos = a.max_recv_per_srq + 1}).error();
  CHECK((too_many.type() == type::invalid_parameter && too_many.verb().empty()));
}

TEST_CASE("dat refuses objects beyond the reported counts before it calls the driver", "[ia][IA-108]") {
  auto device = small_device();
  auto& limits = *device.devices[0].attr;
  limits.max_pd = limits.max_cq = limits.max_qp = 3;
  limits.max_srq = limits.max_mw = limits.max_mr = 2;
  limits.max_mr_size = 4096;
  auto ia = opened(device);
  const auto a = must(ia.query());
  std::vector<std::byte> memory(4097);
  const auto none = [](const dat::error& e, subtype resource) {
    CHECK(e == dat::error(type::insufficient_resources, resource));
    CHECK(e.verb().empty()); // dat itself has refused
    CHECK_FALSE(e.hint().empty());
  };
  // Creates as many objects as are reported and no more; a closed one leaves its place to another, and one that could
  // not be created takes none.
  const auto limited = [&](std::uint32_t most, subtype resource, fake::call verb, auto create) {
    INFO(to_string(resource));
    using made = std::decay_t<decltype(must(create()))>;
    std::vector<made> all;
    while (all.size() < most) {
      fake::fail(verb, 1, ENOMEM);
      CHECK_FALSE(create());
      all.push_back(must(create()));
    }
    none(create().error(), resource);
    must(all.back().close());
    all.back() = must(create());
    none(create().error(), resource);
    return all;
  };
  using c = fake::call;
  auto zones = limited(a.max_pzs, subtype::resource_protection_domain, c::ibv_alloc_pd, [&] { return ia.create_pz(); });
  auto& pz = zones[0];
  auto evds =
      limited(a.max_evds, subtype::resource_tevd, c::ibv_create_cq, [&] { return ia.create_evd<all_streams>(8); });
  CHECK(ia.create_evd<dat::stream::software>(8)); // takes nothing of the device
  limited(a.max_eps, subtype::resource_tep, c::ibv_create_qp,
          [&] { return pz.create_ep<dat::rc>(evds[0], {.max_request_dtos = 1, .max_recv_dtos = 1}); });
  limited(a.max_srqs, subtype::resource_srq, c::ibv_create_srq, [&] { return pz.create_srq({.max_recv_dtos = 1}); });
  limited(a.max_rmrs, subtype::resource_memory_region, c::ibv_alloc_mw, [&] { return pz.create_rmr(); });
  const auto region = [&](std::size_t length) {
    return pz.register_memory(std::span(memory).first(length), dat::local_read);
  };
  limited(a.max_lmrs, subtype::resource_memory_region, c::ibv_reg_mr_iova2,
          [&] { return region(a.max_lmr_block_size); });
  const auto longer = region(a.max_lmr_block_size + 1).error();
  CHECK(longer == dat::error(type::invalid_parameter, subtype::arg3));
  CHECK(longer.verb().empty());
  // Another open of the adapter shares the device's numbers, which its driver counts.
  auto other = must(dat::ia::open("fk1", manual));
  const auto beyond = other.create_pz().error();
  CHECK(beyond == dat::error(type::insufficient_resources, subtype::resource_protection_domain));
  CHECK_FALSE(beyond.verb().empty());
}

TEST_CASE("an iWARP adapter is opened by name, and another one when any adapter will do", "[ia]") {
  auto w = small_device();
  w.devices[0].transport = IBV_TRANSPORT_IWARP;
  fake::reset(w);
  CHECK(must(dat::ia::open(w.devices[0].name, manual)).name() == w.devices[0].name);
  CHECK(must(dat::ia::open(manual)).name() == "fk2");
  CHECK(fake::leaks() == "");
}

TEST_CASE("attributes of iWARP differ from those of InfiniBand",
          "[ia][IA-095][IA-102][IA-133][DTO-018][DTO-136][DTO-160]") {
  auto w = small_device();
  w.devices[0].transport = IBV_TRANSPORT_IWARP;
  w.devices[0].attr->vendor_id = 0x626d74; // Soft-iWARP
  const auto iwarp = core_of(w);
  dat::ia_attributes a;
  must(dat::detail::query(*iwarp, a));
  CHECK(a.extension_supported == dat::extension::none);
  CHECK(a.extension_version == 0);
  SHOWS("IA-103");
  CHECK(a.max_iov_segments_per_rdma_read == 1);
  dat::provider_attributes p;
  must(dat::detail::query(*iwarp, p));
  CHECK_FALSE(p.dto_async_return_guaranteed);
  CHECK(p.rdma_write_for_rdma_read_req);
  SHOWS("IA-131", "IA-132");
  CHECK(p.rdma_read_lmr_rmr_context_exposure);
  CHECK_FALSE(p.immediate_data_supported);
  SHOWS("REQ-104", "REQ-149");
  CHECK_FALSE(p.completion_flags_supported.solicited_wait);
  CHECK_FALSE(p.zb_supported);
  SHOWS("IA-101");

  const auto infiniband = must(must(dat::ia::open("fk2", manual)).query<dat::provider_attributes>());
  CHECK(infiniband.dto_async_return_guaranteed);
  CHECK_FALSE(infiniband.rdma_write_for_rdma_read_req);
  CHECK_FALSE(infiniband.rdma_read_lmr_rmr_context_exposure);
  CHECK(infiniband.completion_flags_supported.solicited_wait);
  SHOWS("REQ-110");
  CHECK(infiniband.immediate_data_supported);
  dat::provider_attributes again; // another instance does not change the attributes of the first
  must(dat::detail::query(*iwarp, again));
  CHECK(again.immediate_data_supported == p.immediate_data_supported);
  SHOWS("IA-110");
}

TEST_CASE("a port query returns the current state, and an error for a removed device or a closed ia", "[ia]") {
  auto ia = opened({});
  fake::set_port_state("fk1", 1, IBV_PORT_DOWN);
  CHECK(must(ia.query()).state == dat::port_state::down);
  fake::set_port_state("fk1", 1, IBV_PORT_ACTIVE);
  CHECK(must(ia.query()).state == dat::port_state::active);
  fake::fail(fake::call::ibv_query_port, 1, EIO);
  const auto gone = ia.query();
  REQUIRE_FALSE(gone);
  CHECK(gone.assume_error().verb() == "ibv_query_port");
  CHECK(gone.assume_error().sys_errno() == EIO);
  must(ia.close());
  CHECK(ia.query().error().type() == type::invalid_handle);
  CHECK(ia.query<dat::provider_attributes>().error().type() == type::invalid_handle);
  CHECK(fake::leaks().empty());
}
