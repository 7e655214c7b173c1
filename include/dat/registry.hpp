// The adapters of this host and their names in dat.conf. Not part of <dat/dat.hpp>, because it includes containers.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>
#include <dat/expected.hpp>
#include <dat/ia.hpp>
#include <dat/port.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/discovery/registered_names.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dat { inline namespace v0 {

/// A remark about a line of dat.conf: the line has no meaning, or probably not the intended one.
struct conf_diagnostic {
  std::string file;
  std::uint32_t line = 0;   ///< counted from 1; 0: the file as a whole
  std::uint32_t column = 0; ///< counted from 1, in bytes; 0: the line as a whole
  std::string text;

  /// The remark as text: "/etc/dat.conf:3:12: no closing quote". Allocates.
  [[nodiscard]] std::string message() const;
};

/// "acme.2.1": the provider and its version (uDAPL 2.0 §8.5.3.1).
struct provider_version {
  std::string id;
  std::uint16_t major_part = 0;
  std::uint16_t minor_part = 0;

  friend bool operator==(const provider_version&, const provider_version&) = default;
};

/// An entry of dat.conf, with every field (uDAPL 2.0 §8.5.3.1).
struct conf_entry {
  std::string ia_name;
  bool user_level = true; ///< API version u...; false: k..., of the kernel interface
  std::uint16_t api_major = 2;
  std::uint16_t api_minor = 0;
  bool thread_safe = false;
  bool is_default = false;
  std::string library; ///< kept, but never loaded: dat itself serves every entry
  provider_version version;
  std::string instance_data; ///< "DEVICE PORT": a device, an interface or an address, and a port; 0 or none: derive it
  std::string platform_data; ///< kept, but never evaluated
  std::string extra;         ///< fields after the eighth, of API versions beyond 2.0, unchanged
  std::string file;
  std::uint32_t line = 0;
  bool chosen = false; ///< the entry for its name, API version and thread safety: the default, or the override's
};

/// The contents of dat.conf and DAT_OVERRIDE: valid lines as entries in the order of the file, those of the override
/// first; invalid lines as diagnostics.
struct conf {
  std::vector<conf_entry> entries;
  std::vector<conf_diagnostic> diagnostics;

  /// Reads texts. A line of the override with `default` or `nondefault` as fourth field is an entry; any other line
  /// selects the provider version for a name (uDAPL 2.0 §8.5.3.2 has the second kind; sites have the first as well).
  /// \param file, override_file names for diagnostics. Allocates.
  [[nodiscard]] static conf parse(std::string_view text, std::string_view file = "dat.conf",
                                  std::string_view override_text = {}, std::string_view override_file = "DAT_OVERRIDE");

  /// Reads files; each may be empty for none. A file that cannot be read is a diagnostic. Allocates; reads files.
  [[nodiscard]] static conf read(const std::string& file, const std::string& override_file = {});

  /// /etc/dat.conf, or /etc/rdma/dat.conf if the first is missing, and the file that DAT_OVERRIDE names. A missing
  /// dat.conf is an empty one. Allocates; reads files and the environment.
  [[nodiscard]] static conf system();
};

/// One port of one RDMA device.
struct device_port {
  std::string device;
  std::uint8_t port = 1;
  port_state state = port_state::unknown; ///< unknown also when the device may not be opened
  dat::link_layer link_layer = dat::link_layer::unspecified;
  std::string interface;  ///< the network interface that has its addresses; empty when it has none
  address_list addresses; ///< the first 16; IPv6 link-local ones are left out
  std::uint64_t system_image_guid = 0;

  /// The name as ia::open takes it: "mlx5_0", "mlx5_0/2".
  [[nodiscard]] std::string name() const { return port == 1 ? device : device + '/' + std::to_string(port); }
};

/// The RDMA devices of this host, port by port. The call opens each device for a moment. Without a device the list is
/// empty. To find the addresses, the call uses librdmacm, which keeps each device that has an address open until the
/// device is gone or the process ends. The kernel cannot remove a Soft-RoCE device before then (docs/reliability.md).
/// ia::list_adapters leaves no device open.
/// Errors: the errno of ibv_get_device_list or getifaddrs; `insufficient_resources`: no descriptor or memory to open a
/// device or to read its addresses.
/// Allocates: yes.
/// Blocks: briefly, in the kernel.
/// Thread safety: safe.
[[nodiscard]] expected<std::vector<device_port>> list_devices();

/// A name that can be opened, and the port that it names (DAT_PROVIDER_INFO, uDAPL 2.0 §8.2.4).
struct provider_info {
  std::string name = {};
  std::uint16_t api_major = 2;
  std::uint16_t api_minor = 0;
  bool thread_safe = false; ///< provider_attributes::is_thread_safe; for a name of dat.conf, the word of its line
  std::optional<device_port> port = std::nullopt; ///< empty: a name of dat.conf whose device is absent
  std::string origin = {};                        ///< "device", the line of dat.conf: "/etc/dat.conf:3", or "added"
};

/// The version and the thread safety that a program requests (dat_ia_openv, uDAPL 2.0 §8.3.3).
struct provider_request {
  std::uint16_t api_major = 2;
  std::uint16_t api_minor = 0;
  std::optional<bool> thread_safe = std::nullopt; ///< unset: either, with a preference for thread-safe providers
};

/// Whether two adapters share hardware (DAT_HA_RELATIONSHIP, uDAPL 2.0 §8.2.5).
enum class ha_relationship : std::uint8_t { unrelated, related, unknown, conflicting };

[[nodiscard]] constexpr std::string_view to_string(ha_relationship r) noexcept {
  switch (r) {
  case ha_relationship::unrelated:
    return "unrelated";
  case ha_relationship::related:
    return "related";
  case ha_relationship::unknown:
    return "unknown";
  case ha_relationship::conflicting:
    return "conflicting";
  }
  return "unknown ha_relationship";
}

/// The names of this host: one for each port of each device, and those of dat.conf.
///
/// A process has one registry (uDAPL 2.0 §8.1): all objects that `system` returns, in all shared objects of a program,
/// have the names in common that `add` has added and `remove` has removed, and `ia::open` opens the same names. The
/// devices and dat.conf are a snapshot: call `system` again to see their changes. Programs do not share names.
/// Plugins that a program loads share names with it when it exports its symbols (-rdynamic) and itself uses the
/// registry; otherwise those that g++ has compiled share names with each other, and those of clang have their own.
/// Thread safety: all members may be called from several threads at once, except moving and destruction.
class registry {
public:
  /// A registry of these devices and names, independent of the host and of the registry of the process, for tests.
  /// Copies share the names that are added and removed.
  /// Allocates: yes.
  explicit registry(std::vector<device_port> devices, conf names = {})
      : registry(std::move(devices), std::move(names), detail::registered_names::make()) {}

  /// The registry of this process, with the present devices and names of the host.
  /// Errors, Allocates, Blocks and Thread safety: as list_devices.
  [[nodiscard]] static expected<registry> system() {
    auto devices = list_devices();
    if (!devices) return devices.assume_error();
    return registry(std::move(devices).assume_value(), conf::system(), detail::registered_names::of_process());
  }

  /// Every name once for each API version and thread safety: devices first, in their order, then dat.conf in its order.
  /// A name of dat.conf is listed also when its device is absent (dat_registry_list_providers). Allocates.
  [[nodiscard]] std::vector<provider_info> list() const;

  /// The provider for a name: equal major version, the smallest minor version not below the requested one, equal thread
  /// safety. ia::open takes the same provider for the same name.
  /// Errors: `provider_not_found`, whose subtype names what is missing: the name, its major version, its minor version,
  /// or its thread safety.
  /// Allocates: yes.
  /// Blocks: no.
  /// Thread safety: as the class.
  [[nodiscard]] expected<provider_info> find(std::string_view name, const provider_request& wanted = {}) const;

  /// Opens the adapter of a name that fits `wanted` (dat_ia_openv, uDAPL 2.0 §8.3.3).
  /// Errors: as find and ia::open; `insufficient_resources` (resource_device) for a name whose device is absent.
  /// Allocates: yes.
  /// Blocks: briefly, in the kernel.
  /// Thread safety: as the class.
  [[nodiscard]] expected<ia> open(std::string_view name, const provider_request& wanted = {},
                                  const ia_options& options = {}) const;

  /// Adds a name, for a port of `devices()` or for none yet (dat_registry_add_provider, uDAPL 2.0 §8.2.3). Other
  /// programs do not see it. Adding the name of a device that was removed, for its port, undoes the removal.
  /// Errors: `provider_already_registered` for a name with the same version and thread safety; `invalid_parameter`
  /// (arg2) for a name that is empty or longer than 255 characters; `insufficient_resources` (resource_memory). They
  /// leave the registry unchanged.
  /// Allocates: yes.
  /// Blocks: no.
  /// Thread safety: as the class.
  expected<void> add(provider_info provider);

  /// Removes a name with all its versions (dat_registry_remove_provider, uDAPL 2.0 §8.2.3): it is no longer listed or
  /// found.
  /// Errors: `provider_in_use` while an ia is open that `open` or, in the registry of the process, `ia::open` has
  /// opened by the name; `invalid_parameter` (arg1) for a name that the registry does not have;
  /// `insufficient_resources` (resource_memory).
  /// Allocates: yes.
  /// Blocks: no.
  /// Thread safety: as the class.
  expected<void> remove(std::string_view name);

  /// Whether two adapters are ports of one device, or devices of one adapter (dat_registry_providers_related). The
  /// result is `unknown` when the device of a name is absent.
  /// Errors: `invalid_parameter` (arg1 or arg2) for a name that the registry does not have.
  /// Allocates: yes.
  /// Blocks: no.
  /// Thread safety: as the class.
  [[nodiscard]] expected<ha_relationship> related(std::string_view a, std::string_view b) const;

  [[nodiscard]] const std::vector<device_port>& devices() const noexcept { return devices_; }
  [[nodiscard]] const std::vector<conf_diagnostic>& diagnostics() const noexcept { return conf_.diagnostics; }

private:
  registry(std::vector<device_port> devices, conf file, detail::ref<detail::registered_names> names)
      : devices_(std::move(devices)), conf_(std::move(file)), names_(std::move(names)) {}
  [[nodiscard]] const device_port* port_of(std::string_view instance_data) const noexcept;
  /// The names of the devices and of dat.conf.
  [[nodiscard]] std::vector<provider_info> host_names() const;

  std::vector<device_port> devices_;
  conf conf_;
  detail::ref<detail::registered_names> names_;
};

/// The requirements of RDMA that this host or this user lacks: a kernel module, a device, a permission. Each text has
/// the remedy, as in the errors of ia::open. Empty when nothing is missing. Allocates; asks the kernel.
[[nodiscard]] std::vector<std::string> list_missing();

/// The name, as ia::open takes it, of the adapter that has this local address (uDAPL 2.0 §9.1.1). Opens nothing.
/// Errors: as ia::open(address).
/// Allocates: yes.
/// Blocks: briefly, in the kernel.
/// Thread safety: safe.
[[nodiscard]] expected<std::string> find_adapter(const ia_address& local);

/// The name, as ia::open takes it, of the adapter that has this network interface, such as "eth0"; the first of several
/// (uDAPL 2.0 §9.1.1). Opens nothing.
/// Errors: as list_devices; `invalid_parameter` (arg1) for an empty name; `invalid_address` (address_unreachable) when
/// no RDMA device has such an interface.
/// Allocates: yes.
/// Blocks: briefly, in the kernel.
/// Thread safety: safe.
[[nodiscard]] expected<std::string> find_adapter_on(const std::string& interface);

/// The name, as ia::open takes it, of the adapter that the host's routing uses to reach `remote`, a name or numeric
/// address (uDAPL 2.0 §9.1.2). Opens nothing.
/// Errors: as ia::open_by_route.
/// Allocates: yes.
/// Blocks: up to `limit` for neighbour resolution, and as long as the host's resolver takes for names.
/// Thread safety: safe.
[[nodiscard]] expected<std::string> find_adapter_reaching(const std::string& remote,
                                                          timeout limit = std::chrono::seconds(2));

/// The name of the host that has an address: the reverse of resolve() (uDAPL 2.0 §5.8).
/// Errors: `invalid_address` (address_unreachable) for an address without a name; `timeout_expired` if the name server
/// does not answer; `insufficient_resources` (resource_memory); other failures by errno.
/// Allocates: yes.
/// Blocks: as long as the resolver does.
/// Thread safety: safe.
[[nodiscard]] expected<std::string> host_name(const ia_address& address);

}} // namespace dat::v0

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/impl/registry.ipp>
#endif
