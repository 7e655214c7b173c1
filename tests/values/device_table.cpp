// The table of the differences between devices, which dat-info prints and the device tests expect.
// SPDX-License-Identifier: BSL-1.0
#include <support/catch.hpp>

#include "../../examples/tools/dat_info/device_table.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace {

/// The values of a row by their keys, as numbers.
std::map<std::string, std::uint64_t> values_of(const dat_info::device_row& row) {
  std::map<std::string, std::uint64_t> all;
  dat_info::for_each_difference(row, [&](const char* key, const char* subject, auto value) {
    CHECK_FALSE(std::string(subject).empty());
    CHECK(all.emplace(key, static_cast<std::uint64_t>(value)).second); // no key occurs twice
  });
  return all;
}

} // namespace

TEST_CASE("a release of Linux begins with its version", "[tools]") {
  using dat_info::linux_version;
  using dat_info::version_of;
  CHECK(version_of("6.12.9-amd64") == linux_version{6, 12});
  CHECK(version_of("6.1.0-56-cloud-amd64") == linux_version{6, 1});
  CHECK(version_of("7.0") == linux_version{7, 0});
  for (const char* none : {"", "6", "6.", "6-1", ".1", "six.one"}) CHECK(version_of(none) == linux_version{});
}

TEST_CASE("the device table has a row for each driver that the tests have run on", "[tools]") {
  using dat_info::find_device;
  const auto* const rxe = find_device(dat_info::vendor_of_rxe, {6, 1});
  const auto* const later = find_device(dat_info::vendor_of_rxe, {6, 12});
  const auto* const siw = find_device(dat_info::vendor_of_siw, {6, 1});
  REQUIRE(rxe);
  REQUIRE(later);
  REQUIRE(siw);
  CHECK((rxe->name == "rxe" && rxe->seen_on == dat_info::linux_version{6, 1}));
  CHECK((later->name == "rxe" && later->seen_on == dat_info::linux_version{6, 12}));
  CHECK(siw->name == "siw");
  // A kernel between two that were seen has the row of the older one.
  CHECK(find_device(dat_info::vendor_of_rxe, {6, 11}) == rxe);
  CHECK(find_device(dat_info::vendor_of_rxe, {7, 0}) == later);
  CHECK(find_device(dat_info::vendor_of_rxe, {5, 10}) == rxe);
  CHECK(find_device(dat_info::vendor_of_siw, {6, 12}) == siw);
  CHECK(find_device(0x02c9, {6, 1}) == nullptr); // no Mellanox adapter was seen
}

TEST_CASE("the printed differences tell the rows of the device table apart", "[tools]") {
  const auto rxe = values_of(*dat_info::find_device(dat_info::vendor_of_rxe, {6, 1}));
  const auto later = values_of(*dat_info::find_device(dat_info::vendor_of_rxe, {6, 12}));
  const auto siw = values_of(*dat_info::find_device(dat_info::vendor_of_siw, {6, 1}));
  CHECK(rxe.at("immediate_data") == 1);
  CHECK(siw.at("immediate_data") == 0);
  CHECK(rxe.at("padded_private_data") == 56);
  CHECK(siw.at("padded_private_data") == 0);
  CHECK(rxe.at("longest_message") == std::uint64_t{8} << 20);
  CHECK(later.at("longest_message") == dat_info::longest_length);
  CHECK((rxe.at("repeats_binds") == 0 && later.at("repeats_binds") == 1));
}
