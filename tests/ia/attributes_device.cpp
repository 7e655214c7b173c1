// Attributes of an adapter and of the library, and checks that they are true.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <dat/registry.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

namespace device {

TEST_CASE("an adapter's attributes are those of its device, and equal for all programs", "[ia]") {
  auto ia = must(dat::ia::open(addresses()[0]));
  const auto a = must(ia.query());
  ibv_device_attr d{};
  REQUIRE(ibv_query_device(ia.native_handle(), &d) == 0);
  CHECK(a.adapter_name.view() == ia.name());
  const auto ends_in_time = [](const auto& text) {
    return ::strnlen(text.c_str(), 256) == text.view().size() && text.view().size() < 256;
  };
  CHECK((ends_in_time(a.adapter_name) && ends_in_time(a.device_name)));
  CHECK((ends_in_time(a.vendor_name) && ends_in_time(a.firmware_version)));
  SHOWS("IA-146");
  CHECK(a.address == ia.address());
  SHOWS("IA-076");
  CHECK(a.state == dat::port_state::active);
  CHECK(a.active_mtu >= 256);
  CHECK(a.hardware_version_major == d.hw_ver);
  CHECK(a.hardware_version_minor == 0);
  SHOWS("IA-074");
  CHECK(a.firmware_version.view() == d.fw_ver);
  unsigned major = 0;
  unsigned minor = 0;
  (void)std::sscanf(d.fw_ver, "%u.%u", &major, &minor);
  CHECK((a.firmware_version_major == major && a.firmware_version_minor == minor));
  SHOWS("IA-075");
  CHECK(a.max_eps == static_cast<std::uint32_t>(d.max_qp));
  SHOWS("IA-077", "REQ-003");
  // One request of each queue is the library's own.
  CHECK(a.max_dto_per_ep == static_cast<std::uint32_t>(std::min({d.max_qp_wr, d.max_cqe, 1 << 20})) - 1);
  SHOWS("IA-078");
  CHECK(a.max_evds == static_cast<std::uint32_t>(d.max_cq));
  SHOWS("IA-081");
  CHECK(a.max_lmrs == static_cast<std::uint32_t>(d.max_mr));
  SHOWS("IA-084");
  CHECK(a.max_pzs == static_cast<std::uint32_t>(d.max_pd));
  SHOWS("IA-087");
  CHECK(a.num_comp_vectors == static_cast<std::uint32_t>(ia.native_handle()->num_comp_vectors));
  // The kernel's text of the link: "10 Gb/sec (1X FDR10)".
  std::ifstream rate(std::string(ia.native_handle()->device->ibdev_path) + "/ports/" + std::to_string(a.port) +
                     "/rate");
  double gigabits = 0;
  std::string unit;
  std::string lanes;
  REQUIRE(rate >> gigabits >> unit >> lanes);
  CHECK(static_cast<double>(a.link_speed) == gigabits * 1e9);
  CHECK(lanes == "(" + std::to_string(a.link_width) + "X");
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(ia.native_handle(), a.port, &port) == 0);
  CHECK(a.max_message_size == std::min<std::size_t>(port.max_msg_sz, longest_length));
  CHECK(a.max_rdma_size == a.max_message_size);
  SHOWS("IA-089");
  const auto at_most_255 = [](int n) { return static_cast<std::uint32_t>(n < 255 ? n : 255); };
  CHECK(a.max_rdma_read_per_ep_in == at_most_255(d.max_qp_rd_atom));
  SHOWS("IA-079");
  CHECK(a.max_rdma_read_per_ep_out == at_most_255(d.max_qp_init_rd_atom));
  SHOWS("IA-080");
  CHECK(a.max_rdma_read_in == static_cast<std::uint32_t>(d.max_res_rd_atom));
  SHOWS("IA-097");
  const bool enough = std::int64_t{d.max_res_rd_atom} >= std::int64_t{d.max_qp} * d.max_qp_rd_atom;
  CHECK(a.max_rdma_read_per_ep_in_kind == (enough ? dat::read_resources::guaranteed : dat::read_resources::shared));
  STATIC_REQUIRE(static_cast<int>(dat::read_resources::guaranteed) == 0); // DAT_FALSE
  STATIC_REQUIRE(static_cast<int>(dat::read_resources::shared) == 1);     // DAT_TRUE
  SHOWS("IA-099");
  CHECK(a.max_rdma_read_per_ep_out_kind == dat::read_resources::guaranteed); // each queue pair has its own resources
  SHOWS("IA-100");
  CHECK(a.max_rdma_read_out == std::uint64_t{a.max_eps} * a.max_rdma_read_per_ep_out);
  SHOWS("IA-098");
  CHECK(a.max_iov_segments_per_dto == at_most_255(d.max_sge));
  SHOWS("IA-083");
  CHECK(a.max_iov_segments_per_rdma_write == a.max_iov_segments_per_dto);
  SHOWS("IA-096");
  const bool iwarp = ia.native_handle()->device->transport_type == IBV_TRANSPORT_IWARP;
  const int of_reads = d.max_sge_rd > 0 ? std::min(d.max_sge, d.max_sge_rd) : d.max_sge;
  CHECK(a.max_iov_segments_per_rdma_read == (iwarp ? 1u : at_most_255(of_reads)));
  SHOWS("IA-095");
  // Memory at any address of a process can be registered, and bound.
  CHECK(a.max_lmr_virtual_address == std::numeric_limits<std::uint64_t>::max());
  SHOWS("IA-086");
  CHECK(a.max_rmr_target_address == std::numeric_limits<std::uint64_t>::max());
  SHOWS("IA-091");
  CHECK(a.max_lmr_block_size == d.max_mr_size);
  SHOWS("IA-085");
  CHECK(a.max_rmrs == static_cast<std::uint32_t>(d.max_mw));
  SHOWS("IA-090");
  // The named attributes.
  std::array<char, 16> vendor{};
  (void)std::snprintf(vendor.data(), vendor.size(), "0x%06x", d.vendor_id);
  CHECK(a.vendor_name.view() == vendor.data());
  SHOWS("IA-073");
  const auto* gid = a.transport.find("gid");
  REQUIRE(gid != nullptr);
  CHECK(gid->view().size() == 39);
  const auto named = [&](const dat::named_attributes& all) {
    return std::ranges::all_of(all, [&](const auto& n) { return !n.name.empty() && ends_in_time(n.value); });
  };
  CHECK((a.transport.size() == 4 && named(a.transport)));
  SHOWS("IA-104");
  const auto* guid = a.vendor.find("node_guid");
  REQUIRE(guid != nullptr);
  CHECK(guid->view() != "0x0000000000000000");
  CHECK((a.vendor.size() == 5 && named(a.vendor)));
  SHOWS("IA-105", "IA-146");
  // The extensions, on everything but iWARP.
  const auto p = must(ia.query<dat::provider_attributes>());
  const bool infiniband = ia.native_handle()->device->transport_type != IBV_TRANSPORT_IWARP;
  CHECK((a.extension_supported == dat::extension::infiniband) == infiniband);
  SHOWS("IA-102");
  CHECK(a.extension_version == (infiniband ? 2u : 0u));
  SHOWS("IA-103");
  CHECK(p.rdma_write_for_rdma_read_req == !infiniband);
  CHECK(p.rdma_read_lmr_rmr_context_exposure == !infiniband);
  SHOWS("IA-133", "REQ-104");
  CHECK((p.specific.find("DAT_IB_IMMED_DATA_OP") != nullptr) == infiniband);
  CHECK((p.specific.find("DAT_IB_FETCH_AND_ADD_OP") != nullptr) == (infiniband && d.atomic_cap != IBV_ATOMIC_NONE));
  CHECK((!p.provider_name.empty() && ::strnlen(p.provider_name.data(), 256) == p.provider_name.size()));
  CHECK(named(p.specific));
  SHOWS("IA-138", "IA-146");

  const auto again = must(must(dat::ia::open(addresses()[0])).query());
  CHECK(again == a);
  // The result is a copy: changing it changes no attribute.
  STATIC_REQUIRE(std::is_same_v<decltype(ia.query()), dat::expected<dat::ia_attributes>>);
  SHOWS("IA-070");
  must(ia.close());
  CHECK(error_of(ia.query()).type() == type::invalid_handle);
  SHOWS("IA-144");
}

TEST_CASE("a queue of the reported maximum length can be created, and no longer queue", "[ia][IA-082]") {
  auto ia = must(dat::ia::open(addresses()[0]));
  const auto a = must(ia.query());
  CHECK(ia.create_evd<all_streams>(a.max_evd_qlen));
  const auto too_long = error_of(ia.create_evd<all_streams>(a.max_evd_qlen + 1));
  CHECK(too_long.type() == type::invalid_parameter);
  CHECK(too_long.verb().empty()); // dat does not call the device
}

namespace {
/// The device contexts that this process has open.
std::ptrdiff_t open_contexts() {
  std::error_code gone; // a descriptor may be closed meanwhile
  return std::ranges::count_if(std::filesystem::directory_iterator("/proc/self/fd"), [&](const auto& fd) {
    return std::filesystem::read_symlink(fd.path(), gone).string().find("uverbs") != std::string::npos;
  });
}
} // namespace

TEST_CASE("names that a program adds are listed, and the version that fits best is found", "[ia][registry]") {
  const auto device = must(dat::find_adapter(addresses()[0]));
  const auto contexts = open_contexts();
  auto own = must(dat::registry::system());
  const auto names = [&] {
    std::vector<std::string> all;
    for (const auto& entry : own.list()) all.push_back(entry.name);
    return all;
  };
  const auto present = names();
  CHECK(open_contexts() == contexts);
  SHOWS("REG-030");
  CHECK(names() == present); // a second call returns the same list
  SHOWS("REG-034");

  const auto port = must(own.find(device)).port;
  for (const auto minor : {std::uint16_t{5}, std::uint16_t{3}, std::uint16_t{0}})
    must(own.add({.name = "mine", .api_major = 1, .api_minor = minor, .thread_safe = false, .port = port}));
  auto with_mine = present;
  with_mine.insert(with_mine.end(), {"mine", "mine", "mine"});
  CHECK(names() == with_mine);
  const auto last = own.list().back();
  CHECK((last.api_major == 1 && last.api_minor == 0));
  CHECK_FALSE(last.thread_safe);
  const auto of_device = own.list().front();
  CHECK((of_device.api_major == 2 && of_device.api_minor == 0 && !of_device.thread_safe));
  CHECK(open_contexts() == contexts); // listed devices are not open
  SHOWS("REG-033");
  CHECK(must(own.find("mine", {1, 0})).api_minor == 0);
  CHECK(must(own.find("mine", {1, 1})).api_minor == 3);
  SHOWS("REG-027", "REG-046");
  const auto missing = [&](const char* name, const dat::provider_request& wanted) {
    return error_of(own.find(name, wanted)).subtype();
  };
  CHECK(missing("yours", {1, 4, true}) == subtype::name_not_registered);
  CHECK(missing("mine", {2, 4, true}) == subtype::major_not_found);
  CHECK(missing("mine", {1, 6, true}) == subtype::minor_not_found);
  CHECK(missing("mine", {1, 1, true}) == subtype::thread_safety_not_found);
  SHOWS("VER-008", "REG-027", "REG-046");
  // Two names of one device are related. For a name without a device, the relation is unknown.
  must(own.add({.name = "absent"}));
  CHECK(must(own.related("mine", device)) == dat::ha_relationship::related);
  CHECK(must(own.related(device, "absent")) == dat::ha_relationship::unknown);
  // dat is the only provider, so no second one reports a conflicting relation.
  STATIC_REQUIRE(dat::ha_relationship::conflicting != dat::ha_relationship::unknown);
  SHOWS("REG-040");
  must(own.remove("absent"));
  {
    const auto one = must(own.open(device));
    const auto other = must(own.open("mine", {1, 0})); // another name of the same port
    CHECK(one.name() == other.name());
    CHECK(one.native_handle() != other.native_handle());
    SHOWS("REG-004", "REQ-018");
  }
  for (int i = 0; i < 100; ++i) must(own.add({.name = "n" + std::to_string(i), .port = port}));
  CHECK(names().size() == with_mine.size() + 100);
  for (const auto* name : {"n0", "n99"}) CHECK(must(own.open(name)).name() == device);
  SHOWS("REG-024");
  for (int i = 0; i < 100; ++i) must(own.remove("n" + std::to_string(i)));
  must(own.remove("mine"));
  CHECK(names() == present);
}

TEST_CASE("the adapters of the host are listed, and each can be opened by its name", "[ia][registry]") {
  const auto listed = must(dat::ia::list_adapters());
  std::set<std::string> names;
  for (const auto& a : listed) names.emplace(a.name.view());
  CHECK(names.size() == listed.size());
  for (const auto& name : names) CHECK(std::ranges::all_of(name, [](unsigned char c) { return c > ' ' && c < 0x7f; }));
  SHOWS("REG-001");
  int devices = 0;
  ibv_device** const of_verbs = ::ibv_get_device_list(&devices);
  REQUIRE((of_verbs != nullptr && devices > 0));
  const auto ports = must(dat::list_devices());
  for (int i = 0; i < devices; ++i) {
    const std::string name = ::ibv_get_device_name(of_verbs[i]);
    CHECK(names.count(name) == 1); // none is missing
    ibv_context* const context = ::ibv_open_device(of_verbs[i]);
    REQUIRE(context != nullptr);
    ibv_device_attr d{};
    const int err = ::ibv_query_device(context, &d);
    ::ibv_close_device(context);
    REQUIRE(err == 0);
    CHECK(std::ranges::count(ports, name, &dat::device_port::device) == d.phys_port_cnt); // nor a port of it
  }
  ::ibv_free_device_list(of_verbs);
  SHOWS("REQ-183");
  const auto registry = must(dat::registry::system());
  for (const auto& address : addresses()) {
    const auto name = must(dat::find_adapter(address));
    CHECK(names.count(name) == 1);
    SHOWS("REQ-183", "HA-006");
    CHECK(must(must(registry.open(name)).query()).adapter_name.view() == name);
    CHECK(must(registry.find(name)).name == name);
    SHOWS("REG-018", "MODEL-031");
    // A search by address finds the same adapters.
    const auto with_address = [&](const dat::ia_address& wanted) {
      std::vector<std::string> all;
      for (const auto& a : listed)
        if (const auto ia = registry.open(a.name.view()); ia && ia.value().address() == wanted)
          all.emplace_back(a.name.view());
      return all;
    };
    CHECK(with_address(address) == std::vector{name}); // exactly one adapter has the address
    CHECK(with_address(must(dat::ia_address::parse("192.0.2.1"))).empty());
    SHOWS("NAME-012", "NAME-015");
    CHECK(must(registry.find(name)).thread_safe ==
          must(must(dat::ia::open(name)).query<dat::provider_attributes>()).is_thread_safe);
    SHOWS("SAFE-014", "VER-009", "REQ-023");
    CHECK(must(registry.related(name, name)) == dat::ha_relationship::related);
    SHOWS("REG-044", "REQ-183");
    const auto other = must(dat::find_adapter(addresses()[address == addresses()[0] ? 1 : 0]));
    if (in_lab()) { // the lab has two devices
      CHECK(must(registry.related(name, other)) == dat::ha_relationship::unrelated);
      CHECK(must(registry.related(other, name)) == dat::ha_relationship::unrelated);
      SHOWS("REG-040", "REG-044", "REQ-183");
    }
    CHECK(error_of(registry.related("no-" + name, name)) == dat::error(type::invalid_parameter, subtype::arg1));
    CHECK(error_of(registry.related(name, "no-" + name)) == dat::error(type::invalid_parameter, subtype::arg2));
    // Opening by name, version and thread safety.
    CHECK(must(registry.open(name, {2, 0, false})).name() == name);
    constexpr dat::provider_request usual; // the request of a plain open
    STATIC_REQUIRE((usual.api_major == 2 && usual.api_minor == 0 && !usual.thread_safe));
    SHOWS("IA-017", "VER-005", "VER-001");
    const auto refused = [&](const dat::provider_request& wanted) { return error_of(registry.open(name, wanted)); };
    CHECK(refused({3, 0}) == dat::error(type::provider_not_found, subtype::major_not_found));
    CHECK(refused({2, 1}) == dat::error(type::provider_not_found, subtype::minor_not_found));
    SHOWS("REQ-018", "REG-028", "IA-003");
    CHECK(refused({2, 0, true}) == dat::error(type::provider_not_found, subtype::thread_safety_not_found));
    SHOWS("IA-003", "VER-005");
    CHECK(error_of(registry.open("no-" + name)) == dat::error(type::provider_not_found, subtype::name_not_registered));
    SHOWS("REG-020", "REG-026", "ERR-022", "ERR-037");
  }
  // A process has one registry: what one object adds or removes, the other one and ia.open have or lack, too.
  auto own = must(dat::registry::system());
  const auto first = must(own.find(*names.begin())).port;
  const auto size = registry.list().size();
  must(own.add({.name = "mine", .port = first}));
  CHECK(must(own.open("mine")).name() == *names.begin());
  SHOWS("REG-061", "REG-062");
  CHECK(registry.list().size() == size + 1);
  SHOWS("REG-023");
  CHECK(error_of(own.add({.name = "mine", .port = first})).type() == type::provider_already_registered);
  SHOWS("REG-045");
  CHECK(error_of(own.add({.name = ""})) == dat::error(type::invalid_parameter, subtype::arg2));
  CHECK(error_of(own.add({.name = std::string(256, 'x')})) == dat::error(type::invalid_parameter, subtype::arg2));
  SHOWS("REG-048", "REG-032");
  const std::string longest(255, 'x');
  must(own.add({.name = longest, .port = first}));
  CHECK(must(own.open(longest)).name() == *names.begin());
  must(own.remove(longest));
  SHOWS("REG-032");
  must(own.remove("mine"));
  CHECK(error_of(own.open("mine")) == dat::error(type::provider_not_found, subtype::name_not_registered));
  CHECK(error_of(own.remove("mine")) == dat::error(type::invalid_parameter, subtype::arg1));
  SHOWS("REG-051", "REG-062", "REG-023");
  must(own.add({.name = "mine", .port = first}));
  auto open = must(own.open(*names.begin()));
  CHECK(error_of(own.remove(*names.begin())) == dat::error(type::provider_in_use));
  must(own.remove("mine")); // another name of the same port
  CHECK(open.query());
  SHOWS("REG-049");
  must(open.close());
  must(own.remove(*names.begin()));
  SHOWS("REG-050", "REG-021", "REG-023");
  CHECK(error_of(own.open(*names.begin())).type() == type::provider_not_found);
  CHECK_FALSE(registry.find(*names.begin()));
  CHECK(error_of(dat::ia::open(*names.begin())).type() == type::provider_not_found);
  must(own.add({.name = *names.begin(), .port = first})); // undoes the removal
  CHECK(registry.find(*names.begin()));
  {
    const auto again = must(dat::ia::open(*names.begin()));
    CHECK(error_of(own.remove(*names.begin())) == dat::error(type::provider_in_use)); // one count of what is open
    SHOWS("MODEL-021", "REG-009");
  }
  CHECK(registry.list().size() == size);
  // Several threads may use the registry at once.
  const auto ask = [&] {
    int answers = 0;
    for (int i = 0; i < 50; ++i)
      answers += static_cast<int>(registry.list().size() >= listed.size() && registry.find(*names.begin()) &&
                                  registry.related(*names.begin(), *names.rbegin()));
    return answers;
  };
  background one(ask);
  background two(ask);
  CHECK(one.get() == 50);
  CHECK(two.get() == 50);
  SHOWS("SAFE-045", "SAFE-048", "REG-039", "REG-044");
}

TEST_CASE("provider attributes are the same for every adapter", "[ia]") {
  auto ia = must(dat::ia::open(addresses()[0]));
  const auto p = must(ia.query<dat::provider_attributes>());
  CHECK_FALSE(p.is_thread_safe); // posts of one kind on one endpoint must not overlap: a mixture is not thread-safe
  SHOWS("IA-118", "REQ-023", "SAFE-023", "SAFE-014", "VER-009");
  CHECK_FALSE(p.is_signal_safe);
  SHOWS("IA-135", "SAFE-015", "SAFE-016", "SAFE-043", "SAFE-044", "EVENT-110");
  DEVIATES("SAFE-047", "DTO-074", "SRQ-091");
  SHOWS("REG-031", "REG-039", "SAFE-040", "SAFE-045", "SAFE-048");
  CHECK_FALSE(p.supports_multipath);
  SHOWS("IA-120", "REQ-061");
  CHECK_FALSE(p.ha_supported);
  SHOWS("IA-136", "HA-001", "HA-004", "REQ-180");
  CHECK(p.ha_loadbalancing == dat::ha_load_balancing::none);
  SHOWS("IA-137", "HA-003", "REQ-181");
  CHECK(p.qos_supported == 0x0f); // all bits of DAT_QOS
  SHOWS("IA-116");
  CHECK(p.pz_support == dat::pz_support::unique);
  STATIC_REQUIRE(static_cast<int>(dat::pz_support::unique) == 0);
  STATIC_REQUIRE(static_cast<int>(dat::pz_support::shareable) == 1);
  SHOWS("IA-122", "PZ-014");
  CHECK(p.completion_flags_supported == dat::completion_flags{true, true, true, true, true});
  SHOWS("DTO-042");
  CHECK(256 % p.optimal_buffer_alignment == 0);
  SHOWS("DTO-011", "REQ-098", "SRQ-092");
  const bool iwarp = ia.native_handle()->device->transport_type == IBV_TRANSPORT_IWARP;
  CHECK(p.dto_async_return_guaranteed == !iwarp);
  SHOWS("IA-131", "COMP-048", "DTO-160");
  CHECK(p.rdma_write_for_rdma_read_req == iwarp);
  SHOWS("IA-132", "DTO-136", "REQ-149");
  CHECK(p.rdma_read_lmr_rmr_context_exposure == iwarp);
  SHOWS("DTO-018");
  CHECK(p.srq_supported == (must(ia.query()).max_srqs != 0));
  // Another instance of the same adapter, with progress by the consumer's calls, has its own attributes.
  const auto other = must(dat::ia::open(addresses()[0], {.progress = dat::progress::manual}));
  const auto its = must(other.query<dat::provider_attributes>());
  must(ia.close());
  CHECK(its.pz_support == must(other.query<dat::provider_attributes>()).pz_support);
  CHECK(error_of(ia.query<dat::provider_attributes>()).type() == type::invalid_handle);
  // The result is a copy: changing it changes no attribute.
  STATIC_REQUIRE(
      std::is_same_v<decltype(ia.query<dat::provider_attributes>()), dat::expected<dat::provider_attributes>>);
  SHOWS("IA-110", "IA-144");
}

} // namespace device
