// Attributes of an adapter and of the library, and checks that they are true.
// SPDX-License-Identifier: BSL-1.0
#include "support.hpp"

#include <dat/registry.hpp>

#include <cstdio>
#include <set>

namespace device {

TEST_CASE("an adapter's attributes are those of its device, and equal for all programs",
          "[ia][IA-070][IA-073][IA-074][IA-077][IA-079][IA-080][IA-081][IA-083][IA-084][IA-086][IA-087][IA-089][IA-095]"
          "[IA-096][IA-097][IA-098][IA-102][IA-103][IA-104][IA-105][IA-138][IA-144][REQ-003]"
          "[IA-085][IA-090][IA-091][IA-075][IA-099][IA-100][IA-133]") {
  auto ia = must(dat::ia::open(addresses()[0]));
  const auto a = must(ia.query());
  ibv_device_attr d{};
  REQUIRE(ibv_query_device(ia.native_handle(), &d) == 0);
  CHECK(a.adapter_name.view() == ia.name());
  CHECK(a.address == ia.address());
  CHECK(a.state == dat::port_state::active);
  CHECK(a.active_mtu >= 256);
  CHECK(a.hardware_version_major == d.hw_ver);
  CHECK(a.hardware_version_minor == 0);
  CHECK(a.firmware_version.view() == d.fw_ver);
  unsigned major = 0;
  unsigned minor = 0;
  (void)std::sscanf(d.fw_ver, "%u.%u", &major, &minor);
  CHECK((a.firmware_version_major == major && a.firmware_version_minor == minor));
  CHECK(a.max_eps == static_cast<std::uint32_t>(d.max_qp));
  CHECK(a.max_evds == static_cast<std::uint32_t>(d.max_cq));
  CHECK(a.max_lmrs == static_cast<std::uint32_t>(d.max_mr));
  CHECK(a.max_pzs == static_cast<std::uint32_t>(d.max_pd));
  CHECK(a.max_message_size > 0);
  CHECK(a.max_rdma_size == a.max_message_size);
  const auto at_most_255 = [](int n) { return static_cast<std::uint32_t>(n < 255 ? n : 255); };
  CHECK(a.max_rdma_read_per_ep_in == at_most_255(d.max_qp_rd_atom));
  CHECK(a.max_rdma_read_per_ep_out == at_most_255(d.max_qp_init_rd_atom));
  CHECK(a.max_rdma_read_in == static_cast<std::uint32_t>(d.max_res_rd_atom));
  const bool enough = std::int64_t{d.max_res_rd_atom} >= std::int64_t{d.max_qp} * d.max_qp_rd_atom;
  CHECK(a.max_rdma_read_per_ep_in_kind == (enough ? dat::read_resources::guaranteed : dat::read_resources::shared));
  CHECK(a.max_rdma_read_per_ep_out_kind == dat::read_resources::guaranteed); // queue pairs have their own
  CHECK(a.max_rdma_read_out == std::uint64_t{a.max_eps} * a.max_rdma_read_per_ep_out);
  CHECK(a.max_iov_segments_per_dto == at_most_255(d.max_sge));
  CHECK(a.max_iov_segments_per_rdma_write == a.max_iov_segments_per_dto);
  CHECK(a.max_iov_segments_per_rdma_read <= a.max_iov_segments_per_dto);
  CHECK(a.max_iov_segments_per_rdma_read >= 1);
  CHECK(a.max_lmr_virtual_address >= reinterpret_cast<std::uintptr_t>(&d));
  CHECK(a.max_lmr_block_size == d.max_mr_size);
  CHECK(a.max_rmrs == static_cast<std::uint32_t>(d.max_mw));
  // The named attributes.
  CHECK(a.vendor_name.view().starts_with("0x"));
  const auto* gid = a.transport.find("gid");
  REQUIRE(gid != nullptr);
  CHECK(gid->view().size() == 39);
  const auto* guid = a.vendor.find("node_guid");
  REQUIRE(guid != nullptr);
  CHECK(guid->view() != "0x0000000000000000");
  // The extensions, on everything but iWARP.
  const auto p = must(ia.query<dat::provider_attributes>());
  const bool infiniband = ia.native_handle()->device->transport_type != IBV_TRANSPORT_IWARP;
  CHECK((a.extension_supported == dat::extension::infiniband) == infiniband);
  CHECK(a.extension_version == (infiniband ? 2u : 0u));
  CHECK(p.rdma_write_for_rdma_read_req == !infiniband);
  CHECK(p.rdma_read_lmr_rmr_context_exposure == !infiniband);
  CHECK((p.specific.find("DAT_IB_IMMED_DATA_OP") != nullptr) == infiniband);
  CHECK((p.specific.find("DAT_IB_FETCH_AND_ADD_OP") != nullptr) == (infiniband && d.atomic_cap != IBV_ATOMIC_NONE));

  const auto again = must(must(dat::ia::open(addresses()[0])).query());
  CHECK(again.node_guid == a.node_guid);
  CHECK(again.max_eps == a.max_eps);
  CHECK(again.max_message_size == a.max_message_size);
  must(ia.close());
  CHECK(error_of(ia.query()).type() == type::invalid_handle);
}

TEST_CASE("a queue of the reported maximum length can be created, and no longer queue", "[ia][IA-082]") {
  auto ia = must(dat::ia::open(addresses()[0]));
  const auto a = must(ia.query());
  CHECK(ia.create_evd<all_streams>(a.max_evd_qlen));
  CHECK(error_of(ia.create_evd<all_streams>(a.max_evd_qlen + 1)).type() == type::invalid_parameter);
}

TEST_CASE("the adapters of the host are listed, and each can be opened by its name",
          "[ia][registry][REQ-015][REQ-183][REG-001][REG-066][NAME-012][HA-006][MODEL-031][IA-017][REQ-018][SAFE-045]"
          "[SAFE-048][REG-018][REG-020][REG-026][REG-028][VER-005][ERR-037][NAME-015]") {
  const auto listed = must(dat::ia::list_adapters());
  std::set<std::string> names;
  for (const auto& a : listed) names.emplace(a.name.view());
  CHECK(names.size() == listed.size());
  const auto registry = must(dat::registry::system());
  for (const auto& address : addresses()) {
    const auto name = must(dat::find_adapter(address));
    CHECK(names.count(name) == 1);
    CHECK(must(must(registry.open(name)).query()).adapter_name.view() == name);
    // The adapters that their addresses lead to are the same.
    std::string found;
    for (const auto& a : listed)
      if (const auto ia = registry.open(a.name.view()); ia && ia.value().address() == address) found = a.name.view();
    CHECK(found == name);
    CHECK(must(registry.find(name)).thread_safe ==
          must(must(dat::ia::open(name)).query<dat::provider_attributes>()).is_thread_safe);
    CHECK(must(registry.related(name, name)) == dat::ha_relationship::related);
    // Opening by name, version and thread safety.
    CHECK(must(registry.open(name, {2, 0, true})).name() == name);
    const auto refused = [&](const dat::provider_request& wanted) { return error_of(registry.open(name, wanted)); };
    CHECK(refused({3, 0}) == dat::error(type::provider_not_found, subtype::major_not_found));
    CHECK(refused({2, 1}) == dat::error(type::provider_not_found, subtype::minor_not_found));
    CHECK(refused({2, 0, false}) == dat::error(type::provider_not_found, subtype::thread_safety_not_found));
    CHECK(error_of(registry.open("no-" + name)) == dat::error(type::provider_not_found, subtype::name_not_registered));
  }
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
}

TEST_CASE("provider attributes are the same for every adapter",
          "[ia][IA-118][IA-120][IA-135][IA-136][IA-137][HA-001][HA-003][SAFE-015][SAFE-016][REQ-023][REQ-180]"
          "[COMP-048][EVENT-110]"
          "[IA-110][IA-116][REQ-061][IA-122][IA-131][IA-132][DTO-011][DTO-018][DTO-042][DTO-136][DTO-160][PZ-014]") {
  auto ia = must(dat::ia::open(addresses()[0]));
  const auto p = must(ia.query<dat::provider_attributes>());
  CHECK(p.is_thread_safe);
  CHECK_FALSE(p.is_signal_safe);
  CHECK_FALSE(p.supports_multipath);
  CHECK_FALSE(p.ha_supported);
  CHECK(p.ha_loadbalancing == dat::ha_load_balancing::none);
  CHECK(p.qos_supported == 0); // DAT_QOS_BEST_EFFORT
  CHECK(p.pz_support == dat::pz_support::unique);
  CHECK(p.completion_flags_supported == dat::completion_flags{true, true, true, true, true});
  CHECK(256 % p.optimal_buffer_alignment == 0);
  const bool iwarp = ia.native_handle()->device->transport_type == IBV_TRANSPORT_IWARP;
  CHECK(p.dto_async_return_guaranteed == !iwarp);
  CHECK(p.rdma_write_for_rdma_read_req == iwarp);
  CHECK(p.rdma_read_lmr_rmr_context_exposure == iwarp);
  CHECK(p.srq_supported == (must(ia.query()).max_srqs != 0));
  must(ia.close());
  CHECK(error_of(ia.query<dat::provider_attributes>()).type() == type::invalid_handle);
}

} // namespace device
