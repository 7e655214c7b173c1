// Provider attributes describe what the library does.
// SPDX-License-Identifier: BSL-1.0
#include "everything.hpp"

#include <rig.hpp>

#include <dat/ep_params.hpp>
#include <dat/rmr.hpp>

#include <dat/detail/handle/core_access.hpp>

#include <array>

using rig::must;
using namespace objects;

TEST_CASE("any streams can be merged in one evd, as the provider's attribute says", "[IA-124][EVENT-021][EVENT-022]") {
  rig::begin();
  auto ia = rig::open(rig::manual);
  constexpr std::array all{dat::stream::software, dat::stream::connection_requests,
                           dat::stream::dto,      dat::stream::connection,
                           dat::stream::rmr_bind, dat::stream::async};
  const auto told = must(ia.query<dat::provider_attributes>()).evd_stream_merging_supported;
  for (unsigned mask = 1; mask < 1u << all.size(); ++mask) {
    dat::streams merged{};
    for (std::size_t i = 0; i < all.size(); ++i)
      if ((mask >> i & 1u) != 0) merged = merged | all[i];
    INFO(mask);
    CHECK(includes(told, merged));
    // The function that every create_evd<S> calls.
    CHECK(dat::detail::evd_core::create(dat::detail::core_access::of(ia), merged, 8));
  }
}

TEST_CASE("provider attributes describe the library's behaviour", "[ia]") {
  const auto p = must(rig::open(rig::manual).query<dat::provider_attributes>());
  CHECK(p.provider_name == "dat");
  SHOWS("IA-111");
  CHECK(p.provider_version_major == dat::version.major_part);
  CHECK(p.provider_version_minor == dat::version.minor_part);
  SHOWS("IA-112");
  CHECK(p.dapl_version_major == 2);
  CHECK(p.dapl_version_minor == 0);
  SHOWS("IA-113", "VER-001");
  CHECK(256 % p.optimal_buffer_alignment == 0);
  SHOWS("IA-123", "DTO-011");
  CHECK(p.iov_ownership_on_return == dat::iov_ownership::consumer);
  STATIC_REQUIRE(static_cast<int>(dat::iov_ownership::consumer) == 0);
  STATIC_REQUIRE(static_cast<int>(dat::iov_ownership::provider_no_modify) == 1);
  STATIC_REQUIRE(static_cast<int>(dat::iov_ownership::provider_modify) == 2);
  SHOWS("IA-115", "DTO-007");
  CHECK(p.ep_creator == dat::psp_creates_ep::if_asked);
  STATIC_REQUIRE(static_cast<int>(dat::psp_creates_ep::never) == 0);
  STATIC_REQUIRE(static_cast<int>(dat::psp_creates_ep::if_asked) == 1);
  STATIC_REQUIRE(static_cast<int>(dat::psp_creates_ep::always) == 2);
  SHOWS("IA-121", "PSP-015");
  CHECK(p.ha_loadbalancing == dat::ha_load_balancing::none);
  STATIC_REQUIRE(static_cast<int>(dat::ha_load_balancing::none) == 0);
  STATIC_REQUIRE(static_cast<int>(dat::ha_load_balancing::inter_connection) == 1);
  STATIC_REQUIRE(static_cast<int>(dat::ha_load_balancing::intra_connection) == 2);
  SHOWS("IA-137");
  CHECK(p.pz_support == dat::pz_support::unique);
  SHOWS("PZ-014");
  NEEDS_FEATURE(windows);
  CHECK(p.zb_supported);
  SHOWS("IA-101", "LMR-024");
  CHECK(p.completion_flags_supported == dat::completion_flags{true, true, true, true, true});
  SHOWS("IA-117", "DTO-042");
  CHECK_FALSE(p.lmr_sync_req);
  SHOWS("IA-130", "SYNC-002");
  CHECK(p.supports(dat::mem_type::virtual_memory));
  CHECK(p.supports(dat::mem_type::lmr));
  CHECK(p.supports(dat::mem_type::shared_virtual));
  CHECK_FALSE(p.supports(static_cast<dat::mem_type>(3)));
  STATIC_REQUIRE(static_cast<int>(dat::mem_type::virtual_memory) == 0);
  STATIC_REQUIRE(static_cast<int>(dat::mem_type::lmr) == 1);
  STATIC_REQUIRE(static_cast<int>(dat::mem_type::shared_virtual) == 2);
  SHOWS("IA-114", "LMR-012");
  CHECK(p.rmr_supported);
  CHECK(p.rmr_scope_supported == dat::rmr_scope::any);
  SHOWS("IA-134", "RMR-003");
  CHECK(includes(p.evd_stream_merging_supported, all_streams | dat::stream::software));
  CHECK(p.max_private_data_size == dat::detail::max_private_data);
}
