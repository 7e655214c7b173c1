// The place of an adapter in its machine, and adapters by their distance from a processor.
// SPDX-License-Identifier: BSL-1.0
#include "small_device.hpp"
#include "world.hpp"

#include <dat/detail/adapter/place.hpp>

#include <filesystem>
#include <fstream>

using namespace unit;

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
