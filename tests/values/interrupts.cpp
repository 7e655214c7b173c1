// The interrupts of completion vectors, as dat-info reads them from /proc and /sys.
// SPDX-License-Identifier: BSL-1.0
#include <support/catch.hpp>

#include "../../examples/tools/dat_info/interrupts.hpp"

#include <unistd.h>

namespace {

namespace fs = std::filesystem;

/// A directory tree in place of "/".
struct tree {
  fs::path root = fs::temp_directory_path() / ("dat-interrupts-" + std::to_string(::getpid()));
  tree() { fs::remove_all(root); }
  tree(const tree&) = delete;
  tree& operator=(const tree&) = delete;
  ~tree() { fs::remove_all(root); }
  void write(const char* file, const std::string& text) const {
    fs::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text;
  }
};

} // namespace

TEST_CASE("dat-info names the processor that serves each completion vector", "[tools]") {
  const tree t;
  t.write("proc/interrupts", "           CPU0       CPU1\n"
                             "   8:          0          0   IO-APIC    8-edge      rtc0\n"
                             "  45:          7          0   PCI-MSI 524288-edge      mlx5_async0@pci:0000:3b:00.0\n"
                             "  47:          0          3   PCI-MSI 524290-edge      mlx5_comp1@pci:0000:3b:00.0\n"
                             "  46:        120          0   PCI-MSI 524289-edge      mlx5_comp0@pci:0000:3b:00.0\n"
                             "  60:          1          0   PCI-MSI 624289-edge      mlx5_comp0@pci:0000:af:00.0\n"
                             " NMI:          0          0   Non-maskable interrupts\n"
                             "garbage\n");
  for (const char* irq : {"45", "46", "47"})
    t.write((std::string("sys/class/infiniband/mlx5_0/device/msi_irqs/") + irq).c_str(), "msix\n");
  t.write("proc/irq/46/effective_affinity_list", "5\n");
  t.write("proc/irq/46/smp_affinity_list", "0-7\n");
  t.write("proc/irq/47/effective_affinity_list", "");
  t.write("proc/irq/47/smp_affinity_list", "0-7,16\n");
  auto found = dat_info::completion_interrupts("mlx5_0", t.root);
  REQUIRE(found.size() == 2);
  CHECK(found[0].vector == 0);
  CHECK(found[0].number == 46);
  CHECK(found[0].name == "mlx5_comp0@pci:0000:3b:00.0");
  CHECK(found[0].processors == "5");
  CHECK(found[1].vector == 1);
  CHECK(found[1].processors == "0-7,16");
  CHECK(dat_info::completion_interrupts("rx1", t.root).empty()); // a software device
  fs::remove_all(t.root / "proc/irq");
  found = dat_info::completion_interrupts("mlx5_0", t.root);
  REQUIRE(found.size() == 2);
  CHECK(found[0].processors.empty());
  fs::remove_all(t.root / "proc");
  CHECK(dat_info::completion_interrupts("mlx5_0", t.root).empty());
}

TEST_CASE("the name of an interrupt has its completion vector, as drivers write it", "[tools]") {
  using dat_info::vector_in;
  CHECK(vector_in("mlx5_comp12@pci:0000:3b:00.0") == 12u);
  CHECK(vector_in("efa-comp3@pci:0000:00:06.0") == 3u);
  CHECK(vector_in("bnxt_re-nq-2@pci:0000:5e:00.0") == 2u);
  CHECK(vector_in("irdma-0000:17:00.0-CEQ-4") == 4u);
  CHECK(vector_in("hns-ceq-7") == 7u);
  CHECK(vector_in("erdma-ceq1@pci:0000:00:08.0") == 1u);
  for (const char* other : {"mlx5_async0@pci:0000:3b:00.0", "irdma-0000:17:00.0-AEQ", "eth0-TxRx-1", "comp", ""})
    CHECK_FALSE(vector_in(other));
}
