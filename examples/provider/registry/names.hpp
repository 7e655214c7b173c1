// The names of dat.conf and of the providers that programs add, read and matched by dat. The C headers and dat's both
// define DAT_VERSION_MAJOR, so this header includes neither.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dat_registry {

/// The key under which a provider is registered.
struct key {
  std::string name;
  std::uint16_t major_version = 2;
  std::uint16_t minor_version = 0;
  bool thread_safe = false;

  friend bool operator==(const key&, const key&) = default;
};

/// The provider that a program requests. Without a value for thread safety, both kinds match.
struct request {
  std::uint16_t major_version = 2;
  std::uint16_t minor_version = 0;
  std::optional<bool> thread_safe = std::nullopt;
};

/// The first part of a request that no provider has.
enum class missing { nothing, name, major_version, minor_version, thread_safety };

/// The provider for a request. One that no program has added has a library.
struct found {
  missing what = missing::nothing;
  key provider;
  std::string library;
  std::string instance_data;
  std::string where; // "/etc/dat.conf:3"
};

/// The names of dat.conf, of DAT_OVERRIDE, and of `added`.
[[nodiscard]] std::vector<key> list(const std::vector<key>& added);
/// The best provider for a request (uDAPL 2.0 §8.2.4.1). `remarks` gets what is wrong with dat.conf.
[[nodiscard]] found find(const std::vector<key>& added, std::string_view name, const request& wanted,
                         std::vector<std::string>& remarks);
/// Whether this host has a dat.conf, or a file that DAT_OVERRIDE names.
[[nodiscard]] bool has_conf();

} // namespace dat_registry
