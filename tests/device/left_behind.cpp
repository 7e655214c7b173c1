// What each test case leaves behind on the device: the kernel's counts of RDMA objects and this process's descriptors
// are compared before and after. Only in the lab, where no other program uses the adapters. Also: on which devices the
// tests ran. SPDX-License-Identifier: BSL-1.0
#include "support.hpp"

#include <support/record.hpp>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <linux/netlink.h>
#include <memory>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>
#include <thread>

namespace device { namespace {

using counts = std::map<std::string, std::uint64_t>;

/// Calls f(type, payload) for each attribute.
template <class F>
void each_attribute(std::span<const char> text, F f) {
  while (text.size() >= sizeof(nlattr)) {
    nlattr head;
    std::memcpy(&head, text.data(), sizeof head);
    if (head.nla_len < sizeof head || head.nla_len > text.size()) return;
    f(head.nla_type & NLA_TYPE_MASK, text.subspan(sizeof head, head.nla_len - sizeof head));
    text = text.subspan(std::min<std::size_t>(NLA_ALIGN(head.nla_len), text.size()));
  }
}

void add_summary(std::span<const char> attributes, counts& all) {
  each_attribute(attributes, [&](int type, std::span<const char> table) {
    if (type != RDMA_NLDEV_ATTR_RES_SUMMARY) return;
    each_attribute(table, [&](int, std::span<const char> entry) {
      std::string kind;
      std::uint64_t n = 0;
      each_attribute(entry, [&](int field, std::span<const char> value) {
        if (field == RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME) kind.assign(value.data());
        if (field == RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR) std::memcpy(&n, value.data(), sizeof n);
      });
      all[kind] += n;
    });
  });
}

/// The counts of `rdma resource` on all devices. Empty if the kernel does not report them.
counts rdma_objects() {
  counts all;
  const int socket = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
  if (socket < 0) return all;
  nlmsghdr request{};
  request.nlmsg_len = sizeof request;
  request.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_RES_GET);
  request.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  bool more = ::send(socket, &request, sizeof request, 0) == sizeof request;
  std::array<char, 16384> answer;
  while (more) {
    const auto got = ::recv(socket, answer.data(), answer.size(), 0);
    more = got > 0;
    std::span<const char> rest(answer.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
    while (rest.size() >= sizeof(nlmsghdr)) {
      nlmsghdr head;
      std::memcpy(&head, rest.data(), sizeof head);
      if (head.nlmsg_type == NLMSG_DONE || head.nlmsg_type == NLMSG_ERROR || head.nlmsg_len < sizeof head ||
          head.nlmsg_len > rest.size()) {
        more = false;
        break;
      }
      add_summary(rest.subspan(sizeof head, head.nlmsg_len - sizeof head), all);
      rest = rest.subspan(std::min<std::size_t>(NLMSG_ALIGN(head.nlmsg_len), rest.size()));
    }
  }
  ::close(socket);
  return all;
}

counts now() {
  counts all = rdma_objects();
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++all["descriptors"];
  return all;
}

counts before;

void begin_case() {
  // The first use of the libraries opens descriptors that stay open.
  static const bool used = [] {
    connected_pair link;
    link.disconnect(link.active, link.passive);
    return true;
  }();
  (void)used;
  before = now();
}

/// The kernel ends the objects of a peer process a moment after the process, and an adapter's thread those of the
/// adapter.
std::string left_behind() {
  const auto until = std::chrono::steady_clock::now() + patience;
  std::string excess;
  do {
    excess.clear();
    for (const auto& [kind, n] : now())
      if (n > before[kind])
        excess += (excess.empty() ? "" : ", ") + kind + ": " + std::to_string(n) + " where there were " +
                  std::to_string(before[kind]);
    if (excess.empty()) return {};
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < until);
  return excess;
}

/// The driver of a device: Soft-RoCE, Soft-iWARP, or the number of the vendor.
std::string driver_of(const ibv_device_attr& attr) {
  if (attr.vendor_id == 0xff'ffff) return "rxe";
  if (attr.vendor_id == 0x62'6d74) return "siw";
  return "vendor " + std::to_string(attr.vendor_id);
}

/// The devices of this machine, each with its driver.
std::string describe_devices() {
  std::string all;
  int n = 0;
  ibv_device** list = ::ibv_get_device_list(&n);
  for (int i = 0; i < n; ++i) {
    ibv_context* context = ::ibv_open_device(list[i]);
    ibv_device_attr attr{};
    if (context && ::ibv_query_device(context, &attr) == 0)
      all += (all.empty() ? "" : ", ") + std::string(::ibv_get_device_name(list[i])) + " (" + driver_of(attr) + ")";
    if (context) ::ibv_close_device(context);
  }
  if (list) ::ibv_free_device_list(list);
  return all;
}

[[maybe_unused]] const bool watched = [] {
  support::world().describe = describe_devices;
  if (in_lab() && !std::getenv("DAT_TEST_ROLE")) { // a peer process belongs to the case that has started it
    support::world().begin_case = begin_case;
    support::world().left_behind = left_behind;
  }
  return true;
}();

}} // namespace device
