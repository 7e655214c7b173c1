// The counters that a driver offers below /sys: read from the folder of the device.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/counters.hpp>

#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace unit;

TEST_CASE("the counters of a device are the numbers in the two folders of its port, by name", "[counters]") {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("dat-counters-" + std::to_string(::getpid()));
  const fs::path port = root / "ports" / "1";
  fs::create_directories(port / "counters");
  fs::create_directories(port / "hw_counters");
  const auto file = [&](const char* name, std::string_view text) { std::ofstream(port / name) << text; };
  file("counters/sent", "12\n");
  file("counters/received", "0\n");
  file("hw_counters/most", "18446744073709551615\n");
  file("hw_counters/lifespan", "10\n");
  file("hw_counters/.hidden", "5\n");
  file("hw_counters/text", "none\n");
  file("hw_counters/empty", "");
  fake::world w;
  w.devices[0].attr = fake::rxe_attr(); // so that no personality replaces the device
  w.devices[0].sysfs = root.string();
  {
    const clean_world world(w);
    const auto ia = must(dat::ia::open("fk1", manual));
    const auto all = must(dat::read_device_counters(ia));
    REQUIRE(all.size() == 3);
    CHECK(all[0].name == "most");
    CHECK(all[0].value == 18446744073709551615u);
    CHECK(all[1].name == "received");
    CHECK(all[1].value == 0);
    CHECK(all[2].name == "sent");
    CHECK(all[2].value == 12);
    // One of the folders is enough.
    fs::remove_all(port / "hw_counters");
    CHECK(must(dat::read_device_counters(ia)).size() == 2);
  }
  fs::remove_all(root);
}
