// The row of the device table that belongs to the machine that runs the tests.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <sys/utsname.h>

namespace device {

TEST_CASE("the device table has a row for the lab's device on this kernel", "[tools]") {
  if (!in_lab()) SKIP("other machines may have a device that the table lacks");
  ::utsname linux_is{};
  REQUIRE(::uname(&linux_is) == 0);
  const auto kernel = dat_info::version_of(linux_is.release);
  const auto ia = must(dat::ia::open(addresses()[0]));
  const auto* const row = dat_info::find_device(must(ia.query()).vendor_id, kernel);
  REQUIRE(row);
  CHECK(row == &this_device());
  CHECK(row->seen_on == kernel);
  const bool iwarp = ia.native_handle()->device->transport_type == IBV_TRANSPORT_IWARP;
  CHECK(row->name == (iwarp ? "siw" : "rxe"));
}

} // namespace device
