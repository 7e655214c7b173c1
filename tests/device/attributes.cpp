// Attributes: what an adapter and the library say of themselves, and that it is so.
// SPDX-License-Identifier: BSL-1.0
#include "support.hpp"

namespace device {

TEST_CASE("an adapter's attributes are those of its device, alike for all who open it",
          "[ia][IA-070][IA-074][IA-077][IA-081][IA-084][IA-087][IA-144]") {
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
  CHECK(a.max_eps == static_cast<std::uint32_t>(d.max_qp));
  CHECK(a.max_evds == static_cast<std::uint32_t>(d.max_cq));
  CHECK(a.max_lmrs == static_cast<std::uint32_t>(d.max_mr));
  CHECK(a.max_pzs == static_cast<std::uint32_t>(d.max_pd));
  CHECK(a.max_message_size > 0);

  const auto again = must(must(dat::ia::open(addresses()[0])).query());
  CHECK(again.node_guid == a.node_guid);
  CHECK(again.max_eps == a.max_eps);
  CHECK(again.max_message_size == a.max_message_size);
  must(ia.close());
  CHECK(error_of(ia.query()).type() == type::invalid_handle);
}

TEST_CASE("the longest queue that an adapter reports can be made, and no longer one", "[ia][IA-082]") {
  auto ia = must(dat::ia::open(addresses()[0]));
  const auto a = must(ia.query());
  CHECK(ia.create_evd<all_streams>(a.max_evd_qlen));
  CHECK(error_of(ia.create_evd<all_streams>(a.max_evd_qlen + 1)).type() == type::invalid_parameter);
}

TEST_CASE("the library says of itself what holds on every adapter",
          "[ia][IA-118][IA-120][IA-135][IA-136][IA-137][HA-001][HA-003][SAFE-016]") {
  auto ia = must(dat::ia::open(addresses()[0]));
  const auto p = must(ia.query<dat::provider_attributes>());
  CHECK(p.is_thread_safe);
  CHECK_FALSE(p.is_signal_safe);
  CHECK_FALSE(p.supports_multipath);
  CHECK_FALSE(p.ha_supported);
  CHECK(p.ha_loadbalancing == dat::ha_load_balancing::none);
  CHECK_FALSE(p.srq_supported);
  CHECK(must(ia.query()).max_srqs == 0);
  must(ia.close());
  CHECK(error_of(ia.query<dat::provider_attributes>()).type() == type::invalid_handle);
}

} // namespace device
