// Adapters that are added and removed while the process runs: lists of adapters, and objects that keep an adapter.
// SPDX-License-Identifier: BSL-1.0
#include "support.hpp"

#include <dat/registry.hpp>

#include <algorithm>
#include <cstdlib>
#include <poll.h>
#include <spawn.h>
#include <string>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace device {
namespace {

/// A Soft-RoCE adapter on a link of its own, which has no address.
class added_adapter {
public:
  static constexpr const char* name = "hotplug";

  added_adapter() {
    made_ = std::system("ip link add hot1 type veth peer name hot2 && "
                        "rdma link add hotplug type rxe netdev hot1") == 0;
  }
  added_adapter(const added_adapter&) = delete;
  added_adapter& operator=(const added_adapter&) = delete;
  /// Deleting the link also removes the adapter. If the removal waits, the destructor waits, too.
  ~added_adapter() {
    if (!waits_) (void)!std::system("ip link delete hot1");
  }

  [[nodiscard]] bool made() const noexcept { return made_; }
  /// Whether the kernel removes the adapter without waiting for this process.
  [[nodiscard]] bool remove() {
    const char* const command[] = {"rdma", "link", "delete", name, nullptr};
    pid_t child = -1;
    if (::posix_spawnp(&child, command[0], nullptr, nullptr, const_cast<char* const*>(command), environ) != 0)
      return false;
    pollfd end{static_cast<int>(::syscall(SYS_pidfd_open, child, 0)), POLLIN, 0};
    waits_ = ::poll(&end, 1, static_cast<int>(patience / 1ms)) != 1;
    ::close(end.fd);
    int status = -1;
    return !waits_ && ::waitpid(child, &status, 0) == child && status == 0;
  }

private:
  bool made_ = false;
  bool waits_ = false;
};

bool has_adapter(std::string_view name) {
  const auto all = must(dat::ia::list_adapters());
  return std::any_of(all.begin(), all.end(), [&](const dat::adapter& a) { return a.name.view() == name; });
}

} // namespace

TEST_CASE("an adapter that is added is listed at once, and one that was listed can be removed",
          "[ia][registry][REG-072]") {
  if (!in_lab()) SKIP("adds an adapter to the host");
  CHECK_FALSE(has_adapter(added_adapter::name));
  added_adapter adapter;
  REQUIRE(adapter.made());
  CHECK(has_adapter(added_adapter::name));
  CHECK(must(dat::registry::system()).find(added_adapter::name));
  REQUIRE(adapter.remove());
  CHECK_FALSE(has_adapter(added_adapter::name));
  CHECK_FALSE(must(dat::registry::system()).find(added_adapter::name));
}

} // namespace device
