// Definitions of place.hpp: reads sysfs about a device and the nodes of the machine.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/adapter/place.hpp>

#include <array>
#include <charconv>
#include <cstdio>
#include <dirent.h>
#include <fcntl.h>
#include <string_view>
#include <unistd.h>

namespace dat { inline namespace v0 { namespace detail {

using sysfs_path = std::array<char, IBV_SYSFS_PATH_MAX + 64>;
/// A text of sysfs; the rest of a longer text is cut off.
struct sysfs_text {
  std::array<char, 4096> room; // a file of sysfs has at most a page
  std::size_t size = 0;
  [[nodiscard]] std::string_view view() const noexcept { return {room.data(), size}; }
};

[[nodiscard]] DAT_DECL bool read_file(const sysfs_path& path, sysfs_text& to) noexcept {
  const int file = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t n = ::read(file, to.room.data(), to.room.size());
  ::close(file);
  if (n <= 0) return false;
  to.size = static_cast<std::size_t>(n);
  return true;
}

/// Takes the number at the front of `text`. There may be none, as in "-1".
[[nodiscard]] DAT_DECL std::optional<std::uint32_t> take_number(std::string_view& text) noexcept {
  std::uint32_t n{};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (failed != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return n;
}

DAT_DECL short_text pci_address_of(const ibv_device& device) noexcept {
  sysfs_path path{};
  sysfs_text text;
  std::snprintf(path.data(), path.size(), "%s/device", device.ibdev_path);
  const ssize_t n = ::readlink(path.data(), text.room.data(), text.room.size());
  if (n <= 0) return {};
  std::string_view name(text.room.data(), static_cast<std::size_t>(n));
  name.remove_prefix(name.rfind('/') + 1);
  return is_pci_address(name) ? short_text(name) : short_text();
}

DAT_DECL std::optional<std::uint32_t> numa_node_of(const ibv_device& device) noexcept {
  sysfs_path path{};
  sysfs_text text;
  std::snprintf(path.data(), path.size(), "%s/device/numa_node", device.ibdev_path);
  if (!read_file(path, text)) return std::nullopt;
  std::string_view left = text.view();
  return take_number(left); // the kernel writes -1 when it knows no node
}

/// The position of a node in the list of online nodes, such as "0-1,3". The distances of a node are in the order of
/// that list.
[[nodiscard]] DAT_DECL std::optional<std::uint32_t> position_in(std::string_view online, std::uint32_t node) noexcept {
  std::uint32_t before = 0;
  while (const auto first = take_number(online)) {
    std::optional<std::uint32_t> last = first;
    if (online.starts_with('-')) {
      online.remove_prefix(1);
      last = take_number(online);
      if (!last || *last < *first) return std::nullopt;
    }
    if (*first <= node && node <= *last) return before + (node - *first);
    before += *last - *first + 1;
    if (!online.starts_with(',')) break;
    online.remove_prefix(1);
  }
  return std::nullopt;
}

/// Returns the NUMA node of a processor: the `N` of the link `node<N>` in the sysfs folder of the processor.
[[nodiscard]] DAT_DECL std::optional<std::uint32_t> node_of_cpu(const sysfs_path& folder) noexcept {
  DIR* const list = ::opendir(folder.data());
  if (!list) return std::nullopt;
  std::optional<std::uint32_t> found;
  while (const dirent* entry = ::readdir(list)) {
    std::string_view name = entry->d_name;
    if (!name.starts_with("node")) continue;
    name.remove_prefix(4);
    const auto node = take_number(name);
    if (node && name.empty()) found = node;
  }
  ::closedir(list);
  return found;
}

DAT_DECL std::optional<std::uint32_t> numa_distance(const ibv_device& device, std::uint32_t node,
                                                    std::uint32_t cpu) noexcept {
  // The device is in <sysfs>/class/infiniband, and the machine in <sysfs>/devices/system.
  std::string_view root = device.ibdev_path;
  for (int i = 0; i < 3; ++i) root = root.substr(0, root.rfind('/'));
  const auto length = static_cast<int>(root.size());
  sysfs_path path{};
  sysfs_text text;
  std::snprintf(path.data(), path.size(), "%.*s/devices/system/cpu/cpu%u", length, root.data(), cpu);
  const auto from = node_of_cpu(path);
  std::snprintf(path.data(), path.size(), "%.*s/devices/system/node/online", length, root.data());
  if (!from || !read_file(path, text)) return std::nullopt;
  const auto position = position_in(text.view(), node);
  std::snprintf(path.data(), path.size(), "%.*s/devices/system/node/node%u/distance", length, root.data(), *from);
  if (!position || !read_file(path, text)) return std::nullopt;
  std::string_view left = text.view();
  std::optional<std::uint32_t> distance;
  for (std::uint32_t i = 0; i <= *position; ++i) {
    if (i != 0 && !left.starts_with(' ')) return std::nullopt;
    if (i != 0) left.remove_prefix(1);
    distance = take_number(left);
    if (!distance) return std::nullopt;
  }
  return distance;
}

}}} // namespace dat::v0::detail
