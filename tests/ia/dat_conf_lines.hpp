// Lines of a dat.conf, and ports for its entries.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "world.hpp"

#include <dat/registry.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace unit {

inline dat::device_port port(std::string device, std::uint8_t number, std::string address, std::uint64_t image = 0) {
  dat::device_port p;
  p.device = std::move(device);
  p.port = number;
  p.state = dat::port_state::active;
  p.interface = "net" + std::to_string(number);
  if (!address.empty()) p.addresses.push_back(must(dat::ia_address::parse(address)));
  p.system_image_guid = image;
  return p;
}

/// An entry of a dat.conf with these fields; the other fields are ordinary.
inline std::string line(const std::string& name, const std::string& instance = "dev 1", const std::string& api = "u2.0",
                        const std::string& safety = "threadsafe", const std::string& mark = "default",
                        const std::string& version = "acme.2.0") {
  return name + ' ' + api + ' ' + safety + ' ' + mark + " lib.so " + version + " \"" + instance + "\" \"\"\n";
}

inline dat::error failure(const dat::registry& r, std::string_view name, const dat::provider_request& wanted = {}) {
  const auto found = r.find(name, wanted);
  if (found) return {dat::return_type::success};
  return found.error();
}

/// Its destructor removes the names that the program has added to the registry of the process.
struct names_of_program {
  names_of_program() = default;
  names_of_program(const names_of_program&) = delete;
  names_of_program& operator=(const names_of_program&) = delete;
  ~names_of_program() {
    auto all = must(dat::registry::system());
    for (const auto& p : all.list())
      if (p.origin == "added") (void)all.remove(p.name);
  }
};

/// A temporary file, which DAT_OVERRIDE names while the object exists.
class override_file {
public:
  explicit override_file(const std::string& text)
      : path_(std::filesystem::temp_directory_path() / ("dat_registry_test." + std::to_string(::getpid()))) {
    std::ofstream(path_) << text;
    ::setenv("DAT_OVERRIDE", path_.c_str(), 1);
  }
  override_file(const override_file&) = delete;
  override_file& operator=(const override_file&) = delete;
  ~override_file() {
    ::unsetenv("DAT_OVERRIDE");
    std::filesystem::remove(path_);
  }
  [[nodiscard]] std::string path() const { return path_.string(); }

private:
  std::filesystem::path path_;
};

} // namespace unit
