// Definitions of registry.hpp: the static registry, its files, and the search for an adapter.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/registry.hpp>

#include <dat/detail/adapter/attributes_query.hpp>
#include <dat/detail/discovery/dat_conf.hpp>
#include <dat/detail/discovery/find_adapter.hpp>
#include <dat/detail/discovery/missing.hpp>
#include <dat/detail/text/errno.hpp>
#include <dat/detail/text/error_text.hpp>
#include <dat/detail/text/remedy.hpp>

#include <algorithm>
#include <cerrno>
#include <netdb.h>
#include <unistd.h>
#include <utility>

namespace dat { inline namespace v0 {
namespace detail {

/// A name that a program has added.
struct added_name final : registered_name {
  explicit added_name(provider_info p) noexcept
      : registered_name(role::added, p.name, [](registered_name& n) noexcept { delete static_cast<added_name*>(&n); }),
        info(std::move(p)) {
    if (info.port) info.port->name().copy(port.data(), port.size() - 1);
    major_part = info.api_major;
    minor_part = info.api_minor;
    thread_safe = info.thread_safe;
  }
  provider_info info;
};
/// A name of the host that a program has removed.
struct removed_name final : registered_name {
  explicit removed_name(std::string_view name) noexcept
      : registered_name(role::removed, name,
                        [](registered_name& n) noexcept { delete static_cast<removed_name*>(&n); }) {}
};

[[nodiscard]] DAT_DECL error no_memory_for_name(const char* call) noexcept {
  return error(return_type::insufficient_resources, return_subtype::resource_memory).at(call, object_kind::ia);
}

[[nodiscard]] DAT_DECL std::string text_of(const conf_field& field) {
  std::string text;
  field.each([&](char c) { text += c; });
  return text;
}

[[nodiscard]] DAT_DECL bool same_key(const conf_entry& a, const conf_entry& b) noexcept {
  return a.ia_name == b.ia_name && a.user_level == b.user_level && a.api_major == b.api_major &&
         a.api_minor == b.api_minor && a.thread_safe == b.thread_safe;
}

[[nodiscard]] DAT_DECL conf_entry entry_of(const conf_item& i, std::string_view file) {
  conf_entry e;
  e.ia_name = text_of(i.name);
  e.user_level = i.user_level;
  e.api_major = i.major;
  e.api_minor = i.minor;
  e.thread_safe = i.thread_safe;
  e.is_default = i.is_default;
  e.library = text_of(i.library);
  e.version = {text_of(i.version_id), i.version_major, i.version_minor};
  e.instance_data = text_of(i.instance);
  e.platform_data = text_of(i.platform);
  e.extra = std::string(i.extra);
  e.file = std::string(file);
  e.line = i.line;
  return e;
}

/// Adds the ports of a device; one port of unknown state when the process may not open the device. Returns the errno if
/// there are no descriptors or memory to open the device; otherwise 0.
[[nodiscard]] DAT_DECL int add_ports(ibv_device* device, std::vector<device_port>& to) {
  device_port p;
  p.device = ibv_get_device_name(device);
  const unique_c<ibv_context, &ibv_close_device> context(ibv_open_device(device));
  const int err = context ? 0 : errno;
  if (map_errno(err).type() == return_type::insufficient_resources) return err;
  ibv_device_attr attr{};
  if (!context || ibv_query_device(context.get(), &attr) != 0) {
    to.push_back(p);
    return 0;
  }
  p.system_image_guid = be64toh(attr.sys_image_guid);
  for (unsigned n = 1; n <= attr.phys_port_cnt; ++n) {
    p.port = static_cast<std::uint8_t>(n);
    p.state = port_state::unknown;
    p.link_layer = link_layer::unspecified;
    ibv_port_attr port{};
    if (ibv_query_port(context.get(), p.port, &port) == 0) {
      p.state = port_state_of(port.state);
      p.link_layer = link_layer_of(port.link_layer);
    }
    to.push_back(p);
  }
  return 0;
}

[[nodiscard]] DAT_DECL std::string name_of(const adapter_location& where) {
  device_port p;
  p.device = where.device.data();
  p.port = where.port;
  return p.name();
}

} // namespace detail

DAT_DECL std::string conf_diagnostic::message() const {
  std::string place = file;
  if (line != 0) place.append(":").append(std::to_string(line));
  if (column != 0) place.append(":").append(std::to_string(column));
  return place + ": " + text;
}

DAT_DECL conf conf::parse(std::string_view text, std::string_view file, std::string_view override_text,
                          std::string_view override_file) {
  using kind = detail::conf_item::kind;
  conf c;
  const detail::conf_texts texts{text, override_text};
  detail::conf_item i;
  const auto say = [&c](std::string_view where, std::uint32_t line, std::uint32_t column, std::string what) {
    c.diagnostics.push_back({std::string(where), line, column, std::move(what)});
  };
  for (const bool overrides : {true, false}) {
    const std::string_view in = overrides ? override_file : file;
    for (detail::conf_reader r(overrides ? override_text : text, overrides); r.next(i);) {
      if (i.what == kind::fault) say(in, i.line, i.column, i.why);
      if (i.what != kind::entry) continue;
      c.entries.push_back(detail::entry_of(i, in));
      c.entries.back().chosen = texts.chosen(i);
    }
  }

  // Chooses the first entry of each key.
  for (std::size_t n = 0; n < c.entries.size(); ++n) {
    conf_entry& e = c.entries[n];
    const conf_entry* before = nullptr;
    bool any = false;
    bool first_of_key = true;
    for (std::size_t m = 0; m < c.entries.size(); ++m) {
      const conf_entry& o = c.entries[m];
      if (!detail::same_key(o, e)) continue;
      any = any || o.chosen || o.is_default;
      if (m < n) first_of_key = false;
      if (m < n && o.chosen && !before) before = &o;
    }
    // An override before a default of the system is intended, so it gets no remark.
    if (e.chosen && e.is_default && before && before->file == e.file)
      say(e.file, e.line, 0,
          "a second default for " + e.ia_name + ": line " + std::to_string(before->line) + " counts");
    if (before) e.chosen = false;
    if (first_of_key && !any) say(e.file, e.line, 0, "no entry for " + e.ia_name + " is marked default");
  }

  // Checks that there is one selection for each key, and that it selects an existing entry.
  detail::conf_item other;
  for (detail::conf_reader r(override_text, true); r.next(i);) {
    if (i.what != kind::selection) continue;
    bool repeated = false;
    for (detail::conf_reader s(override_text, true); s.next(other) && other.line < i.line;)
      repeated = repeated || (other.what == kind::selection && other.same_key(i));
    const conf_entry wanted = detail::entry_of(i, override_file);
    bool found = false;
    for (const conf_entry& e : c.entries) found = found || (detail::same_key(e, wanted) && e.version == wanted.version);
    if (repeated)
      say(override_file, i.line, i.name.column(), "a second override for " + wanted.ia_name + ": the first counts");
    else if (!found)
      say(override_file, i.line, i.version.column(),
          "no entry for " + wanted.ia_name + " has the provider version " + detail::text_of(i.version));
  }
  return c;
}

DAT_DECL conf conf::read(const std::string& file, const std::string& override_file) {
  const detail::conf_text text(file.empty() ? nullptr : file.c_str());
  const detail::conf_text overrides(override_file.empty() ? nullptr : override_file.c_str());
  conf c = parse(text.view(), file, overrides.view(), override_file);
  if (!file.empty() && text.err() != 0) c.diagnostics.push_back({file, 0, 0, detail::errno_text(text.err())});
  if (!override_file.empty() && overrides.err() != 0)
    c.diagnostics.push_back({override_file, 0, 0, detail::errno_text(overrides.err())});
  return c;
}

DAT_DECL conf conf::system() {
  const char* overrides = detail::conf_override();
  const char* file = ::access(detail::conf_file, F_OK) == 0     ? detail::conf_file
                     : ::access(detail::conf_file_2, F_OK) == 0 ? detail::conf_file_2
                                                                : "";
  return read(file, overrides ? overrides : "");
}

DAT_DECL std::vector<std::string> list_missing() {
  std::vector<std::string> all;
  const detail::lacking what = detail::what_is_missing();
  if (what != detail::lacking::none) all.emplace_back(detail::remedy_of(what));
  const auto remedy = [](const char* verb, int err) {
    return detail::remedy(error(return_type::internal_error).from(verb, err));
  };
  int count = 0;
  ibv_device** const devices = ibv_get_device_list(&count);
  const int err = devices ? ENODEV : errno;
  if (count == 0 && what != detail::lacking::device) all.push_back(remedy("ibv_get_device_list", err));
  for (int i = 0; i < count; ++i) {
    const std::string file = std::string("/dev/infiniband/") + devices[i]->dev_name;
    if (::access(file.c_str(), R_OK | W_OK) != 0) all.push_back(file + ": " + remedy("ibv_open_device", errno));
  }
  if (devices) ibv_free_device_list(devices);
  return all;
}

DAT_DECL expected<std::vector<device_port>> list_devices() {
  static constexpr const char* call = "list_devices";
  std::vector<device_port> ports;
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  // ENOSYS: the kernel has no InfiniBand, so there is no device.
  if (!list && errno != ENOSYS)
    return detail::map_errno(errno, return_subtype::resource_device)
        .at(call, object_kind::ia)
        .from("ibv_get_device_list", errno);
  if (!list) return ports;
  {
    const detail::unique_c<ibv_device*, &ibv_free_device_list> owner(list); // the containers may throw
    for (int i = 0; i < count; ++i)
      if (const int err = detail::add_ports(list[i], ports))
        return detail::map_errno(err, return_subtype::resource_device)
            .at(call, object_kind::ia)
            .from("ibv_open_device", err);
  }

  ifaddrs* interfaces = nullptr;
  if (::getifaddrs(&interfaces) != 0) return detail::no_interfaces(call);
  const detail::unique_c<ifaddrs, &::freeifaddrs> owner(interfaces);
  for (const ifaddrs* i = interfaces; i && !ports.empty(); i = i->ifa_next) {
    if (!i->ifa_addr || (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6)) continue;
    const auto address = ia_address::from(i->ifa_addr, sizeof(sockaddr_storage));
    if (!address || address.assume_value().is_loopback()) continue;
    if (address.assume_value().family() == address_family::ipv6 && address.assume_value().is_link_local()) continue;
    detail::probe p;
    const bool found = p.bind(address.assume_value());
    if (p.exhausted()) return detail::probe_failed(p).at(call, object_kind::ia);
    if (!found) continue;
    for (device_port& port : ports) {
      if (port.device != p.device() || port.port != p.port()) continue;
      if (port.interface.empty()) port.interface = i->ifa_name;
      (void)port.addresses.push_back(address.assume_value());
    }
  }
  return ports;
}

DAT_DECL const device_port* registry::port_of(std::string_view instance_data) const noexcept {
  const auto i = detail::conf_instance::of(instance_data);
  if (i.what.empty() || i.port < 0) return nullptr;
  const auto address = ia_address::parse(i.what);
  const auto fits = [&](const device_port& p) { return i.port == 0 || p.port == i.port; };
  // The order is that of detail::adapter_of_instance.
  for (const device_port& p : devices_)
    if (p.device == i.what && p.port == (i.port == 0 ? 1 : i.port)) return &p;
  for (const device_port& p : devices_) {
    if (!fits(p)) continue;
    if (p.interface == i.what) return &p;
    for (const ia_address& a : p.addresses)
      if (address && a == address.assume_value().with_port(0)) return &p;
  }
  return nullptr;
}

DAT_DECL std::vector<provider_info> registry::host_names() const {
  std::vector<provider_info> all;
  for (const device_port& p : devices_)
    all.push_back({p.name(), 2, 0, provider_attributes().is_thread_safe, p, "device"});
  for (const conf_entry& e : conf_.entries) {
    if (!e.user_level || !e.chosen) continue;
    bool listed = false;
    for (const device_port& p : devices_) listed = listed || (p.name() == e.ia_name);
    if (listed) continue; // the name of a device always means that device
    const device_port* p = port_of(e.instance_data);
    all.push_back({e.ia_name, e.api_major, e.api_minor, e.thread_safe, p ? std::optional(*p) : std::nullopt,
                   e.file + ':' + std::to_string(e.line)});
  }
  return all;
}

DAT_DECL std::vector<provider_info> registry::list() const {
  using role = detail::registered_name::role;
  auto all = host_names();
  if (!names_) return all;
  names_->each(role::removed, [&](const detail::registered_name& n) {
    std::erase_if(all, [&](const provider_info& p) { return p.name == n.name(); });
  });
  names_->each(role::added, [&](const detail::registered_name& n) {
    all.push_back(static_cast<const detail::added_name&>(n).info);
  });
  return all;
}

DAT_DECL expected<ia> registry::open(std::string_view name, const provider_request& wanted,
                                     const ia_options& options) const {
  static constexpr const char* call = "registry.open";
  // The name counts as open before it is found: a removal either comes first or finds it in use.
  auto in_use = names_ ? names_->hold(name) : detail::ref<detail::counted>();
  if (names_ && !in_use) return detail::no_memory_for_name(call);
  const auto found = find(name, wanted);
  if (!found) return found.assume_error().at(call, object_kind::ia);
  if (const auto& port = found.assume_value().port) {
    auto opened = ia::make(detail::device_named(port->name()), options);
    if (opened) {
      auto& core = *detail::core_access::of(opened.assume_value());
      core.set_opened_as(name);
      core.keep_until_closed(std::move(in_use));
    }
    return opened;
  }
  return error(return_type::insufficient_resources, return_subtype::resource_device)
      .at(call, object_kind::ia)
      .hint("The registry has that name, but its device is absent.");
}

DAT_DECL expected<void> registry::add(provider_info provider) {
  static constexpr const char* call = "registry.add";
  using role = detail::registered_name::role;
  if (provider.name.empty() || provider.name.size() > detail::conf_name_max)
    return error(return_type::invalid_parameter, return_subtype::arg2)
        .at(call, object_kind::ia)
        .hint("A name has 1 to 255 characters.");
  if (!names_) names_ = detail::registered_names::make(); // needed after a move from this registry
  const std::lock_guard lock(names_->changes());
  const auto same = [&](const provider_info& p) {
    return p.name == provider.name && p.api_major == provider.api_major && p.api_minor == provider.api_minor &&
           p.thread_safe == provider.thread_safe;
  };
  const auto all = list();
  if (std::any_of(all.begin(), all.end(), same))
    return error(return_type::provider_already_registered).at(call, object_kind::ia);
  if (names_->has(role::removed, provider.name))
    for (const provider_info& p : host_names())
      if (same(p) && p.origin == "device" && provider.port && p.port->name() == provider.port->name()) {
        names_->restore(p.name);
        return success();
      }
  if (provider.origin.empty()) provider.origin = "added";
  auto* const made = new (std::nothrow) detail::added_name(std::move(provider));
  if (!made) return detail::no_memory_for_name(call);
  names_->append(*made);
  return success();
}

DAT_DECL expected<void> registry::remove(std::string_view name) {
  static constexpr const char* call = "registry.remove";
  using role = detail::registered_name::role;
  const auto is_it = [&](const provider_info& p) { return p.name == name; };
  const auto has = [&](const std::vector<provider_info>& all) { return std::any_of(all.begin(), all.end(), is_it); };
  const auto unknown = [] {
    return error(return_type::invalid_parameter, return_subtype::arg1)
        .at(call, object_kind::ia)
        .hint("The registry does not have that name.");
  };
  if (!names_) return unknown();
  const std::lock_guard lock(names_->changes());
  if (!has(list())) return unknown();
  const bool of_host = has(host_names()) && !names_->has(role::removed, name);
  auto* const mark = of_host ? new (std::nothrow) detail::removed_name(name) : nullptr;
  if (of_host && !mark) return detail::no_memory_for_name(call);
  if (names_->remove(name, mark)) return success();
  delete mark;
  return error(return_type::provider_in_use)
      .at(call, object_kind::ia)
      .hint("An ia is open under that name: close it first.");
}

DAT_DECL expected<provider_info> registry::find(std::string_view name, const provider_request& wanted) const {
  return_subtype why = return_subtype::name_not_registered;
  const auto all = list();
  for (const bool safe : {true, false}) {
    if (wanted.thread_safe && *wanted.thread_safe != safe) continue;
    detail::version_match m{wanted.api_major, wanted.api_minor, safe};
    const provider_info* best = nullptr;
    for (const provider_info& p : all)
      if (p.name == name && m.offer(p.api_major, p.api_minor, p.thread_safe)) best = &p;
    if (best) return *best;
    why = m.why;
  }
  return error(return_type::provider_not_found, why).at("registry.find", object_kind::ia);
}

DAT_DECL expected<ha_relationship> registry::related(std::string_view a, std::string_view b) const {
  const auto all = list();
  const provider_info* found[2] = {};
  for (const provider_info& p : all) {
    if (p.name == a && !found[0]) found[0] = &p;
    if (p.name == b && !found[1]) found[1] = &p;
  }
  for (const bool second : {false, true})
    if (!found[second ? 1 : 0])
      return error(return_type::invalid_parameter, second ? return_subtype::arg2 : return_subtype::arg1)
          .at("registry.related", object_kind::ia)
          .hint("The registry does not have that name.");
  if (a == b) return ha_relationship::related;
  const auto &p = found[0]->port, &q = found[1]->port;
  if (!p || !q) return ha_relationship::unknown;
  const bool same =
      p->device == q->device || (p->system_image_guid != 0 && p->system_image_guid == q->system_image_guid);
  return same ? ha_relationship::related : ha_relationship::unrelated;
}

DAT_DECL expected<std::string> find_adapter(const ia_address& local) {
  auto where = detail::adapter_at(local);
  if (!where) return where.assume_error().at("find_adapter", object_kind::ia);
  return detail::name_of(where.assume_value());
}

DAT_DECL expected<std::string> find_adapter_on(const std::string& interface) {
  static constexpr const char* call = "find_adapter_on";
  if (interface.empty()) // ports without an interface have an empty name, too
    return error(return_type::invalid_parameter, return_subtype::arg1)
        .at(call, object_kind::ia)
        .hint("Give the name of a network interface, as `ip link` shows it.");
  auto devices = list_devices();
  if (!devices) return devices.assume_error();
  for (const device_port& p : devices.assume_value())
    if (p.interface == interface) return p.name();
  return error(return_type::invalid_address, return_subtype::address_unreachable)
      .at(call, object_kind::ia)
      .hint("No RDMA device has an interface of that name: `rdma link` shows which interfaces have one.");
}

DAT_DECL expected<std::string> find_adapter_reaching(const std::string& remote, timeout limit) {
  auto where = detail::adapter_reaching(remote, limit);
  if (!where) return where.assume_error().at("find_adapter_reaching", object_kind::ia);
  return detail::name_of(where.assume_value());
}

DAT_DECL expected<std::string> host_name(const ia_address& address) {
  std::array<char, NI_MAXHOST> name{};
  const int code = ::getnameinfo(address.native_handle(), address.native_size(), name.data(),
                                 static_cast<socklen_t>(name.size()), nullptr, 0, NI_NAMEREQD);
  if (code == 0) return std::string(name.data());
  return detail::resolver_error(code, "getnameinfo", "No name service has a name for this address.").at("host_name");
}

}} // namespace dat::v0
