// Reading and matching names: dat's registry, without devices.
// SPDX-License-Identifier: BSL-1.0
#include "names.hpp"

#include <dat/registry.hpp>

#include <cstdlib>
#include <unistd.h>
#include <utility>

namespace dat_registry {

namespace {

dat::registry registry_of(dat::conf conf, const std::vector<key>& added) {
  dat::registry all({}, std::move(conf));
  for (const key& k : added) // a loaded provider is also in dat.conf, and then is not added twice
    (void)all.add(
        {.name = k.name, .api_major = k.major_version, .api_minor = k.minor_version, .thread_safe = k.thread_safe});
  return all;
}

key key_of(const dat::provider_info& p) { return {p.name, p.api_major, p.api_minor, p.thread_safe}; }

missing what(dat::return_subtype subtype) noexcept {
  switch (subtype) {
  case dat::return_subtype::major_not_found:
    return missing::major_version;
  case dat::return_subtype::minor_not_found:
    return missing::minor_version;
  case dat::return_subtype::thread_safety_not_found:
    return missing::thread_safety;
  default:
    return missing::name;
  }
}

} // namespace

std::vector<key> list(const std::vector<key>& added) {
  std::vector<key> all;
  for (const dat::provider_info& p : registry_of(dat::conf::system(), added).list()) all.push_back(key_of(p));
  return all;
}

found find(const std::vector<key>& added, std::string_view name, const request& wanted,
           std::vector<std::string>& remarks) {
  const dat::conf conf = dat::conf::system();
  for (const dat::conf_diagnostic& d : conf.diagnostics) remarks.push_back(d.message());
  const auto best =
      registry_of(conf, added).find(name, {wanted.major_version, wanted.minor_version, wanted.thread_safe});
  found result;
  if (!best) {
    result.what = what(best.error().subtype());
    return result;
  }
  result.provider = key_of(best.assume_value());
  for (const dat::conf_entry& e : conf.entries) {
    if (!e.user_level || !e.chosen || key{e.ia_name, e.api_major, e.api_minor, e.thread_safe} != result.provider)
      continue;
    result.library = e.library;
    result.instance_data = e.instance_data;
    result.where = e.file + ':' + std::to_string(e.line);
    break;
  }
  return result;
}

bool has_conf() {
  return ::access("/etc/dat.conf", R_OK) == 0 || ::access("/etc/rdma/dat.conf", R_OK) == 0 ||
         ::secure_getenv("DAT_OVERRIDE") != nullptr;
}

} // namespace dat_registry
