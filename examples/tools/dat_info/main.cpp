// dat-info: lists the RDMA adapters of this host, which one dat opens, and what is missing.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "interrupts.hpp"

#include <dat/dat.hpp>
#include <dat/registry.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <infiniband/verbs.h>
#include <nlohmann/json.hpp>

#include <arpa/inet.h>
#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <net/if.h>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

using json = nlohmann::ordered_json;

std::string str(std::string_view s) { return std::string(s); }

/// The kind of address of a GID. The kernel has no kind of its own for iWARP, whose GID is the hardware address.
const char* kind_of(const ibv_gid_entry& gid, const ibv_context& of) {
  if (of.device->transport_type == IBV_TRANSPORT_IWARP) return "iWARP";
  return gid.gid_type == IBV_GID_TYPE_IB ? "InfiniBand" : gid.gid_type == IBV_GID_TYPE_ROCE_V1 ? "RoCE v1" : "RoCE v2";
}

/// The GIDs of a port, each with its kind of address and its interface.
json gids_of(ibv_context* device, std::uint8_t port) {
  std::vector<ibv_gid_entry> entries(256);
  const auto count = ibv_query_gid_table(device, entries.data(), entries.size(), 0);
  json all = json::array();
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& e = entries[static_cast<std::size_t>(i)];
    if (e.port_num != port) continue;
    std::array<char, INET6_ADDRSTRLEN> gid{};
    ::inet_ntop(AF_INET6, e.gid.raw, gid.data(), gid.size());
    std::array<char, IF_NAMESIZE> interface {};
    ::if_indextoname(e.ndev_ifindex, interface.data());
    all.push_back(
        {{"index", e.gid_index}, {"gid", gid.data()}, {"type", kind_of(e, *device)}, {"interface", interface.data()}});
  }
  return all;
}

json limits_of(const dat::ia_attributes& a) {
  return {{"max_eps", a.max_eps},
          {"max_dto_per_ep", a.max_dto_per_ep},
          {"max_iov_segments_per_dto", a.max_iov_segments_per_dto},
          {"max_rdma_read_per_ep_in", a.max_rdma_read_per_ep_in},
          {"max_rdma_read_per_ep_out", a.max_rdma_read_per_ep_out},
          {"max_evds", a.max_evds},
          {"max_evd_qlen", a.max_evd_qlen},
          {"max_lmrs", a.max_lmrs},
          {"max_lmr_block_size", a.max_lmr_block_size},
          {"max_pzs", a.max_pzs},
          {"max_rmrs", a.max_rmrs},
          {"max_srqs", a.max_srqs},
          {"max_message_size", a.max_message_size}};
}

json interrupts_of(const std::string& device) {
  json all = json::array();
  for (const auto& i : dat_info::completion_interrupts(device))
    all.push_back({{"vector", i.vector}, {"interrupt", i.number}, {"name", i.name}, {"processors", i.processors}});
  return all;
}

/// The row of the device table for a device on this kernel; null when dat's tests have not run on the device.
json device_table_of(std::uint32_t vendor_id) {
  ::utsname linux_is{};
  ::uname(&linux_is);
  const auto kernel = dat_info::version_of(linux_is.release);
  const auto* const row = dat_info::find_device(vendor_id, kernel);
  if (!row) return nullptr;
  json differences;
  dat_info::for_each_difference(*row, [&](const char* key, const char* subject, auto value) {
    differences[key] = {{"subject", subject}, {"value", value}};
  });
  return {{"device", str(row->name)},
          {"seen_on", fmt::format("Linux {}.{}", row->seen_on.major_part, row->seen_on.minor_part)},
          {"this_kernel", row->seen_on == kernel},
          {"differences", differences}};
}

/// The attributes that only an opened adapter has.
void add_opened(json& to, const dat::device_port& port) {
  const auto ia = dat::ia::open(port.name());
  if (!ia) {
    to["problem"] = ia.error().message();
    return;
  }
  const auto a = ia.value().query().value();
  const auto p = ia.value().query<dat::provider_attributes>().value();
  const auto atomics = [&] {
    ibv_device_attr device{};
    return ibv_query_device(ia.value().native_handle(), &device) == 0 && device.atomic_cap != IBV_ATOMIC_NONE;
  }();
  to["firmware"] = str(a.firmware_version.view());
  to["vendor"] = fmt::format("0x{:06x}/{}", a.vendor_id, a.vendor_part_id);
  to["mtu"] = a.active_mtu;
  to["link"] = {{"speed", a.link_speed}, {"width", a.link_width}};
  to["num_comp_vectors"] = a.num_comp_vectors;
  to["completion_interrupts"] = interrupts_of(port.device);
  to["pci_address"] = a.pci_address.view().empty() ? json() : json(str(a.pci_address.view()));
  to["numa_node"] = a.numa_node ? json(*a.numa_node) : json();
  to["gids"] = gids_of(ia.value().native_handle(), port.port);
  to["limits"] = limits_of(a);
  to["extensions"] = {{"infiniband", a.extension_supported == dat::extension::infiniband},
                      {"version", a.extension_version},
                      {"immediate_data", p.immediate_data_supported},
                      {"atomics", atomics},
                      {"max_private_data_size", p.max_private_data_size}};
  to["device_table"] = device_table_of(a.vendor_id);
}

json adapter(const dat::device_port& port, std::string_view chosen) {
  json j = {{"name", port.name()},
            {"device", port.device},
            {"port", port.port},
            {"state", str(to_string(port.state))},
            {"link_layer", str(to_string(port.link_layer))},
            {"interface", port.interface},
            {"chosen", port.name() == chosen},
            {"addresses", json::array()}};
  for (const auto& address : port.addresses) j["addresses"].push_back(address.host_string());
  add_opened(j, port);
  return j;
}

json memlock() {
  ::rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return nullptr; // none
  return limit.rlim_cur;
}

/// The adapters in the order of their distance from a processor, and the distances.
json near(std::uint32_t cpu) {
  json j = {{"processor", cpu}, {"adapters", json::array()}};
  const auto sorted = dat::ia::list_adapters_near(cpu);
  if (!sorted) j["problem"] = sorted.error().message();
  if (sorted)
    for (const auto& a : sorted.value())
      j["adapters"].push_back({{"name", str(a.name.view())},
                               {"numa_node", a.numa_node ? json(*a.numa_node) : json()},
                               {"distance", a.numa_distance ? json(*a.numa_distance) : json()}});
  return j;
}

/// The names of dat.conf with their adapters, and with `all` also those without. Distributions install dozens of names
/// for devices that most hosts do not have.
void add_names(json& j, const std::vector<dat::device_port>& ports, bool all) {
  const auto conf = dat::conf::system();
  const dat::registry names(ports, conf);
  json list = json::array();
  std::size_t hidden = 0;
  for (const auto& e : conf.entries) {
    if (!e.chosen) continue;
    const auto found = names.find(e.ia_name, {e.api_major, e.api_minor, e.thread_safe});
    const bool here = found && found.value().port;
    if (here || all)
      list.push_back({{"name", e.ia_name},
                      {"file", e.file},
                      {"line", e.line},
                      {"adapter", here ? json(found.value().port->name()) : json()}});
    else
      ++hidden;
  }
  for (const auto& d : conf.diagnostics) list.push_back({{"problem", d.message()}});
  j["dat_conf"] = list;
  j["dat_conf_hidden"] = hidden;
}

/// All information about the host. `remote` may be empty. `all_names`: see add_names.
json look(const std::string& remote, std::optional<std::uint32_t> cpu, bool all_names) {
  json j = {{"dat", fmt::format("{}.{}.{}", dat::version.major_part, dat::version.minor_part, dat::version.patch_part)},
            {"udapl", "2.0"},
            {"adapters", json::array()},
            {"chosen", nullptr}};
  const auto first = dat::ia::open();
  std::string chosen;
  if (first) {
    const auto a = first.value().query().value();
    chosen = fmt::format("{}{}", a.device_name.view(), a.port == 1 ? "" : fmt::format("/{}", a.port));
    j["chosen"] = chosen;
    j["why"] = "the first in the order of the interfaces that is active and has an IP address";
  } else {
    j["why"] = first.error().message();
  }
  if (!remote.empty()) {
    const auto name = dat::find_adapter_reaching(remote);
    j["to"] = {{"remote", remote}, {"adapter", name ? json(name.value()) : json(nullptr)}};
    if (!name) j["to"]["problem"] = name.error().message();
  }
  if (cpu) j["near"] = near(*cpu);
  std::vector<dat::device_port> ports;
  if (auto devices = dat::list_devices()) ports = std::move(devices).value();
  for (const auto& port : ports) j["adapters"].push_back(adapter(port, chosen));
  add_names(j, ports, all_names);
  j["memlock_bytes"] = memlock();
  j["missing"] = dat::list_missing();
  return j;
}

std::string joined(const json& list) {
  std::string text;
  for (const auto& item : list) text += (text.empty() ? "" : ", ") + item.get<std::string>();
  return text.empty() ? "none" : text;
}

void print_device_table(const json& table) {
  if (table.is_null()) {
    fmt::print("  differences not known: dat's tests have not run on this device\n");
    return;
  }
  fmt::print("  differences of {}, as the tests have seen it on {}{}\n", table["device"].get<std::string>(),
             table["seen_on"].get<std::string>(),
             table["this_kernel"].get<bool>() ? "" : ", which is not the kernel of this host");
  for (const auto& [key, difference] : table["differences"].items()) {
    const auto& value = difference["value"];
    fmt::print("    {:<64} {}\n", difference["subject"].get<std::string>(),
               value.is_boolean() ? value.get<bool>() ? "yes" : "no" : value.dump());
  }
}

void print_adapter(const json& a) {
  const auto interface = a["interface"].get<std::string>();
  fmt::print("\n{}{}: {}, {}{}\n", a["name"].get<std::string>(), a["chosen"] ? " (chosen)" : "",
             a["state"].get<std::string>(), a["link_layer"].get<std::string>(),
             interface.empty() ? "" : ", interface " + interface);
  fmt::print("  addresses   {}\n", joined(a["addresses"]));
  if (a.contains("problem")) {
    fmt::print("  problem     {}\n", a["problem"].get<std::string>());
    return;
  }
  for (const auto& gid : a["gids"])
    fmt::print("  GID {:<7} {}, {}\n", gid["index"].get<int>(), gid["gid"].get<std::string>(),
               gid["type"].get<std::string>());
  fmt::print("  device      vendor {}, firmware {}, MTU {}\n", a["vendor"].get<std::string>(),
             a["firmware"].get<std::string>(), a["mtu"].get<int>());
  fmt::print("  link        {:g} Gb/s, lanes {}\n", a["link"]["speed"].get<double>() / 1e9,
             a["link"]["width"].get<int>());
  fmt::print("  place       {}{}; completion vectors {}\n",
             a["pci_address"].is_null() ? "no PCI device" : "PCI " + a["pci_address"].get<std::string>(),
             a["numa_node"].is_null() ? "" : fmt::format(", NUMA node {}", a["numa_node"].get<int>()),
             a["num_comp_vectors"].get<int>());
  for (const auto& i : a["completion_interrupts"])
    fmt::print("  vector {:<4} processor {}, interrupt {} {}\n", i["vector"].get<unsigned>(),
               i["processors"].get<std::string>().empty() ? "unknown" : i["processors"].get<std::string>(),
               i["interrupt"].get<unsigned>(), i["name"].get<std::string>());
  if (a["completion_interrupts"].empty())
    fmt::print("  vectors     no interrupts: the processor that runs the device's work serves them\n");
  for (const auto& [name, value] : a["limits"].items()) fmt::print("  {:<26} {}\n", name, value.dump());
  const auto& x = a["extensions"];
  fmt::print("  extensions  {}{}{}\n", x["infiniband"] ? "InfiniBand" : "none",
             x["immediate_data"] ? ", immediate data" : "", x["atomics"] ? ", atomics" : "");
  print_device_table(a["device_table"]);
}

void print(const json& j) {
  fmt::print("dat {}, uDAPL {}\n", j["dat"].get<std::string>(), j["udapl"].get<std::string>());
  fmt::print("chosen: {} ({})\n", j["chosen"].is_null() ? "none" : j["chosen"].get<std::string>(),
             j["why"].get<std::string>());
  if (j.contains("to"))
    fmt::print("to {}: {}\n", j["to"]["remote"].get<std::string>(),
               j["to"]["adapter"].is_null() ? j["to"]["problem"].get<std::string>()
                                            : j["to"]["adapter"].get<std::string>());
  if (j.contains("near")) {
    const auto& n = j["near"];
    std::string order;
    for (const auto& a : n["adapters"])
      order += fmt::format("{}{} ({})", order.empty() ? "" : ", ", a["name"].get<std::string>(),
                           a["distance"].is_null() ? "distance unknown" : "distance " + a["distance"].dump());
    fmt::print("near processor {}: {}\n", n["processor"].get<unsigned>(),
               n.contains("problem") ? n["problem"].get<std::string>()
               : order.empty()       ? "none"
                                     : order);
  }
  fmt::print("locked memory: {}\n",
             j["memlock_bytes"].is_null() ? "unlimited" : fmt::format("{} bytes", j["memlock_bytes"].dump()));
  for (const auto& m : j["missing"]) fmt::print("missing: {}\n", m.get<std::string>());
  for (const auto& n : j["dat_conf"])
    fmt::print("dat.conf: {}{}\n", n[n.contains("problem") ? "problem" : "name"].get<std::string>(),
               !n.contains("adapter")   ? ""
               : n["adapter"].is_null() ? " (no adapter of this host)"
                                        : " (" + n["adapter"].get<std::string>() + ")");
  if (const auto hidden = j["dat_conf_hidden"].get<std::size_t>(); hidden != 0)
    fmt::print("dat.conf: {} more, which lead to no adapter of this host: --all lists them\n", hidden);
  for (const auto& a : j["adapters"]) print_adapter(a);
}

/// The lines of dat.conf by which uDAPL programs open each adapter through dat's provider (docs/provider.md), one for
/// programs that request a thread-safe provider, and one for those that do not.
void print_provider(const std::string& library) {
  const auto names = dat::registry::system();
  if (!names) throw std::runtime_error(names.error().message());
  for (const dat::device_port& port : names.value().devices())
    for (const char* const safety : {"nonthreadsafe", "threadsafe"})
      fmt::print("dat-{0} u2.0 {1} default {2} dat.{3}.{4} \"{5}\" \"\"\n",
                 port.port == 1 ? port.device : fmt::format("{}-{}", port.device, port.port), safety, library,
                 dat::version.major_part, dat::version.minor_part, port.name());
}

} // namespace

int main(int argc, char** argv) {
  CLI::App app("Shows the RDMA adapters of this host, which one dat takes, and what is missing.\n"
               "Ends with 0 when dat can open an adapter, else with 1; with 2 after wrong use.",
               "dat-info");
  bool as_json = false;
  std::string remote;
  bool all_names = false;
  app.add_flag("--json", as_json, "As JSON on standard output");
  app.add_flag("--all", all_names, "Also the names of dat.conf that lead to no adapter of this host");
  std::optional<std::uint32_t> cpu;
  app.add_option("--to", remote, "Also: which adapter leads to this host");
  app.add_option("--near", cpu, "Also: the adapters in the order of their distance from this processor")
      ->check(CLI::Range(0u, 8191u)); // Linux allows no more; the library reports which of them exist
  std::string library;
  app.add_flag("--provider{libdatprovider.so}", library,
               "Only: lines for dat.conf, by which uDAPL programs in C open each adapter; --provider=LIBRARY names the "
               "file of the library");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  try {
    if (!library.empty()) {
      print_provider(library);
      return 0;
    }
    const json j = look(remote, cpu, all_names);
    if (as_json)
      fmt::print("{}\n", j.dump(2, ' ', false, json::error_handler_t::replace));
    else
      print(j);
    const bool good = !j["chosen"].is_null() && (!j.contains("to") || !j["to"]["adapter"].is_null()) &&
                      !(j.contains("near") && j["near"].contains("problem"));
    return good ? 0 : 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "dat-info: {}\n", e.what());
    return 1;
  }
}
