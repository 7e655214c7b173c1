// Attributes of an ia on devices with different limits: the reported values are those that are enforced.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/detail/adapter/place.hpp>
#include <dat/ib_query.hpp>
#include <dat/registry.hpp>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

using namespace unit;
using type = dat::return_type;

namespace {

fake::world small_device() {
  auto attr = fake::rxe_attr();
  std::strcpy(attr.fw_ver, "20.31.1014");
  attr.vendor_id = 0x02c9;
  attr.vendor_part_id = 4119;
  attr.hw_ver = 3;
  attr.max_qp = 100;
  attr.max_qp_wr = 128;
  attr.max_qp_rd_atom = 9;
  attr.max_qp_init_rd_atom = 5;
  attr.max_res_rd_atom = 900;
  attr.max_cq = 77;
  attr.max_cqe = 200;
  attr.max_sge = 6;
  attr.max_sge_rd = 3;
  attr.max_mr = 11;
  attr.max_mr_size = std::uint64_t{1} << 40;
  attr.max_pd = 12;
  fake::world w;
  w.devices[0].attr = attr;
  w.devices[0].ports[0].active_mtu = IBV_MTU_4096;
  return w;
}

dat::ia opened(const fake::world& w) {
  fake::reset(w);
  return must(dat::ia::open("fk1", manual));
}

/// The core of an adapter that dat::ia::open refuses.
dat::detail::ref<dat::detail::ia_core> core_of(const fake::world& w) {
  fake::reset(w);
  dat::detail::adapter_location where;
  std::string_view("fk1").copy(where.device.data(), where.device.size() - 1);
  auto core = dat::detail::ia_core::open(where, false);
  REQUIRE(core);
  return core.assume_value();
}

} // namespace

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

TEST_CASE("a name that only begins as a PCI address is none, and one may be followed by anything", "[ia]") {
  using dat::detail::is_pci_address;
  constexpr std::string_view longer = "0000:3b:00.01";
  CHECK(is_pci_address(longer.substr(0, 12)));
  CHECK_FALSE(is_pci_address(longer));
  CHECK_FALSE(is_pci_address(longer.substr(0, 11)));
  const auto with = [](std::size_t place, char c) {
    std::string name = "0000:3b:00.1";
    name[place] = c;
    return name;
  };
  for (const char digit : std::string_view("0123456789abcdef")) CHECK(is_pci_address(with(5, digit)));
  for (const char other : std::string_view("/:`g")) CHECK_FALSE(is_pci_address(with(5, other)));
  for (const std::size_t sign : {4u, 7u, 10u}) CHECK_FALSE(is_pci_address(with(sign, '0')));
}

TEST_CASE("an adapter reports where it sits in the machine, if sysfs says so", "[ia]") {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("dat-sysfs-" + std::to_string(::getpid()));
  const auto with = [&](const std::string& device, const std::string& node) {
    fs::remove_all(root);
    fs::create_directories(root / "fk1");
    if (!device.empty()) {
      fs::create_directories(root / "pci" / device);
      fs::create_directory_symlink("../pci/" + device, root / "fk1/device");
      if (!node.empty()) std::ofstream(root / "fk1/device/numa_node") << node << '\n';
    }
    auto w = small_device();
    w.devices[0].sysfs = (root / "fk1").string();
    return must(opened(w).query());
  };
  auto a = with("0000:3b:00.1", "1");
  CHECK(a.pci_address.view() == "0000:3b:00.1");
  CHECK(a.numa_node == 1u);
  a = with("0000:af:1f.0", "-1"); // a host with one node
  CHECK(a.pci_address.view() == "0000:af:1f.0");
  CHECK_FALSE(a.numa_node);
  a = with("0000:3b:00.0", "");
  CHECK_FALSE(a.numa_node);
  std::ofstream(root / "fk1/device/numa_node") << '7'; // the text has no end of line
  CHECK(must(must(dat::ia::open("fk1", manual)).query()).numa_node == 7u);
  for (const char* other : {"virtio1", "0000:3b:00", "0000:3b:00.01", "0000:3g:00.0", "0000:3b:00:0"}) {
    INFO(other);
    a = with(other, "0");
    CHECK(a.pci_address.view().empty());
    CHECK(a.numa_node == 0u);
  }
  a = with("", ""); // a software device
  CHECK(a.pci_address.view().empty());
  CHECK_FALSE(a.numa_node);
  fs::remove_all(root);
}

TEST_CASE("adapters are listed by their distance from a processor", "[ia]") {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("dat-nodes-" + std::to_string(::getpid()));
  fs::remove_all(root);
  const auto write = [](const fs::path& file, const std::string& text) {
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text << '\n';
  };
  const auto system = root / "devices/system";
  fs::create_directories(system / "cpu/cpu0/node2");
  write(system / "node/online", "0,2-3");
  write(system / "node/node2/distance", "20 10 32");
  auto w = small_device();
  w.devices.resize(1);
  const auto add = [&](const char* name, const char* node) {
    auto d = w.devices[0];
    d.name = name;
    d.ports[0].addresses = {};
    d.sysfs = (root / "class/infiniband" / name).string();
    if (node) write(fs::path(d.sysfs) / "device/numa_node", node);
    w.devices.push_back(d);
  };
  w.devices[0].sysfs = (root / "class/infiniband/fk1").string(); // a software device has no node
  add("far", "3");
  add("unknown", "-1");
  add("near", "2");
  add("middle", "0");
  add("offline", "1");
  fake::reset(w);
  const auto names = [](const dat::adapter_list& all) {
    std::string text;
    for (const auto& a : all) text.append(a.name.view()).append(" ");
    return text;
  };
  const std::string plain = "fk1 far unknown near middle offline ";
  const auto sorted = must(dat::ia::list_adapters_near(0));
  CHECK(names(sorted) == "near middle far fk1 unknown offline ");
  CHECK(sorted[0].numa_node == 2u);
  CHECK(sorted[0].numa_distance == 10u);
  CHECK(sorted[1].numa_distance == 20u);
  CHECK(sorted[2].numa_distance == 32u);
  for (std::size_t i = 3; i < 6; ++i) CHECK_FALSE(sorted[i].numa_distance);
  CHECK(sorted[5].numa_node == 1u);
  const auto usual = must(dat::ia::list_adapters());
  CHECK(names(usual) == plain);
  for (const auto& descriptor : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone; // the descriptor of the iterator itself
    CHECK_FALSE(fs::read_symlink(descriptor, gone).string().starts_with(root.string()));
  }
  CHECK(usual[3].numa_node == 2u);
  CHECK_FALSE(usual[3].numa_distance);

  // If the distances in sysfs are incomplete, list_adapters_near returns the order of list_adapters.
  for (const char* text : {"", "-5 10 32", "x"}) {
    INFO(text);
    write(system / "node/node2/distance", text);
    CHECK(names(must(dat::ia::list_adapters_near(0))) == plain);
  }
  for (const char* text : {"20", "20 x 32", "20,10"}) { // the first one is known
    INFO(text);
    write(system / "node/node2/distance", text);
    CHECK(names(must(dat::ia::list_adapters_near(0))) == "middle fk1 far unknown near offline ");
  }
  for (const char* text : {"", "x", "3-2", "0-"}) {
    INFO(text);
    write(system / "node/node2/distance", "20 10 32");
    write(system / "node/online", text);
    CHECK(names(must(dat::ia::list_adapters_near(0))) == plain);
  }
  fs::remove_all(system);
  CHECK(names(must(dat::ia::list_adapters_near(0))) == plain);
  fs::remove_all(root);

  const auto cpus = static_cast<std::uint32_t>(::sysconf(_SC_NPROCESSORS_CONF));
  must(dat::ia::list_adapters_near(cpus - 1));
  for (const std::uint32_t none : {cpus, ~0u}) {
    const auto refused = dat::ia::list_adapters_near(none);
    is_error(refused, dat::return_type::invalid_parameter, dat::return_subtype::arg1);
    CHECK(refused.error().call() == "ia.list_adapters_near");
    CHECK(refused.error().message().find("`cpu` is the number of a processor of this host") != std::string::npos);
  }
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

TEST_CASE("named attributes describe transport, vendor and extensions",
          "[ia][IA-073][IA-104][IA-105][IA-138][IBX-002]") {
  auto w = small_device();
  w.devices[1].attr = fake::rxe_attr();
  w.devices[1].attr->atomic_cap = IBV_ATOMIC_NONE;
  auto ia = opened(w);
  const auto a = must(ia.query());
  CHECK(a.vendor_name.view() == "0x0002c9");
  const auto value = [](const dat::named_attributes& all, std::string_view name) {
    const auto* text = all.find(name);
    return text ? std::string(text->view()) : "(none)";
  };
  CHECK(a.transport.size() == 4);
  CHECK(value(a.transport, "link_layer") == "Ethernet");
  CHECK(value(a.transport, "active_mtu") == "4096");
  CHECK(value(a.transport, "port_state") == "active");
  CHECK(value(a.transport, "gid").starts_with("fe80:0000:0000:0000:"));
  CHECK(a.vendor.size() == 5);
  CHECK(value(a.vendor, "device") == "fk1");
  CHECK(value(a.vendor, "port") == "1");
  CHECK(value(a.vendor, "firmware") == "20.31.1014");
  CHECK(value(a.vendor, "node_guid").size() == 18);
  CHECK(value(a.vendor, "colour") == "(none)");

  const auto names = [](const dat::ia& of) {
    std::string all;
    const auto p = must(of.query<dat::provider_attributes>());
    for (const auto& n : p.specific) all.append(n.name).append("=").append(n.value.view()).append(" ");
    return all;
  };
  const std::string always = "DAT_EXTENSION_INTERFACE=TRUE DAT_EXTENSION_VERSION=2 DAT_IB_IMMED_DATA_OP=TRUE "
                             "DAT_IB_IMMED_DATA=TRUE DAT_IB_UD=TRUE DAT_EXT_RDMA_WRITE_IMMED=TRUE "
                             "DAT_EXT_RECV_IMMED_EVENT=TRUE ";
  CHECK(names(ia) == always + "DAT_IB_FETCH_AND_ADD_OP=TRUE DAT_IB_CMP_AND_SWAP_OP=TRUE DAT_IB_FETCH_AND_ADD=TRUE "
                              "DAT_IB_CMP_AND_SWAP=TRUE DAT_EXT_FETCH_AND_ADD=TRUE DAT_EXT_CMP_AND_SWAP=TRUE ");
  CHECK(names(must(dat::ia::open("fk2", manual))) == always);
  // The same extensions as values.
  const auto here = must(dat::ib::query_extensions(ia));
  CHECK(here.version == 2);
  CHECK(here.atomics != dat::ib::atomic_scope::none);
  for (const auto operation :
       {dat::dto_operation::send_immediate, dat::dto_operation::rdma_write_immediate, dat::dto_operation::fetch_and_add,
        dat::dto_operation::compare_and_swap, dat::dto_operation::send_ud, dat::dto_operation::send})
    CHECK(here.supports(operation));
  CHECK_FALSE(here.supports(dat::dto_operation::unbind));
  const auto there = must(dat::ib::query_extensions(must(dat::ia::open("fk2", manual))));
  CHECK(there.atomics == dat::ib::atomic_scope::none);
  CHECK_FALSE(there.supports(dat::dto_operation::fetch_and_add));
  CHECK(there.supports(dat::dto_operation::send_ud));
  CHECK(dat::ib::query_extensions(dat::ia()).error().type() == dat::return_type::invalid_handle);
  ia = {};
  w.devices[0].transport = IBV_TRANSPORT_IWARP;
  const auto iwarp = core_of(w);
  dat::provider_attributes of_iwarp;
  must(dat::detail::query(*iwarp, of_iwarp));
  CHECK(of_iwarp.specific.size() == 0);
}

TEST_CASE("short texts and lists of names never overflow", "[ia][IA-146]") {
  const std::string long_text(300, 'x');
  dat::short_text text{long_text};
  CHECK(text.view() == long_text.substr(0, 63));
  CHECK(text.c_str()[63] == '\0');
  text.append("more");
  CHECK(text.view().size() == 63);
  for (const std::size_t length : {std::size_t{254}, std::size_t{255}, std::size_t{256}, std::size_t{300}}) {
    const dat::name_text name{long_text.substr(0, length)};
    CHECK(name.view().size() == std::min<std::size_t>(length, 255));
    CHECK(std::string_view(name.c_str()) == name.view()); // the terminating zero is at the last place at the latest
  }
  STATIC_REQUIRE(sizeof(dat::name_text) >= 256);
  dat::named_attributes names;
  for (std::size_t i = 0; i < dat::named_attributes::capacity; ++i) CHECK(names.push_back({"n", text}));
  CHECK_FALSE(names.push_back({"one too many", text}));
  CHECK(names.size() == dat::named_attributes::capacity);
  CHECK(names.find("one too many") == nullptr);
  dat::adapter_list adapters;
  for (std::size_t i = 0; i < dat::adapter_list::capacity; ++i) CHECK(adapters.push_back({text}));
  CHECK_FALSE(adapters.push_back({text}));
  CHECK(dat::detail::number_text(0).view() == "0");
  CHECK(dat::detail::number_text(~0ull).view() == "18446744073709551615");
  CHECK(dat::detail::number_text(~0ull, 16).view() == "0xffffffffffffffff");
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

TEST_CASE("every reported limit can be used, and one more is refused", "[ia][IA-078][IA-082][IA-106]") {
  auto device = small_device();
  const int max_cqe = GENERATE(200, 50); // above and below the largest queue of an endpoint
  device.devices[0].attr->max_cqe = max_cqe;
  auto ia = opened(device);
  const auto a = must(ia.query());
  auto evd = must(ia.create_evd<all_streams>(a.max_evd_qlen));
  CHECK(ia.create_evd<all_streams>(a.max_evd_qlen + 1).error().type() == type::invalid_parameter);

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
    return !ep && ep.assume_error().type() == type::invalid_parameter;
  };
  CHECK(refused([](auto& e) { ++e.max_request_dtos; }));
  CHECK(refused([](auto& e) { ++e.max_recv_dtos; }));
  CHECK(refused([](auto& e) { ++e.max_request_iov; }));
  CHECK(refused([](auto& e) { ++e.max_recv_iov; }));
  CHECK(refused([](auto& e) { ++*e.max_message_size; }));
  CHECK(refused([](auto& e) { ++*e.max_rdma_read_out; }));
  CHECK(refused([](auto& e) { ++*e.max_rdma_read_in; }));
  SHOWS("IA-108");
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
