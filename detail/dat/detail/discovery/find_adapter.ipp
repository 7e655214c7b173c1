// Definitions of find_adapter.hpp: the search for the device, port and addresses of an adapter.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/deadline.hpp>
#include <dat/detail/base/fd.hpp>
#include <dat/detail/base/to_read.hpp>
#include <dat/detail/discovery/dat_conf.hpp>
#include <dat/detail/discovery/find_adapter.hpp>
#include <dat/detail/discovery/missing.hpp>
#include <dat/detail/discovery/registered_names.hpp>
#include <dat/detail/text/errno.hpp>

#include <cerrno>
#include <cstdlib>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <unistd.h>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL probe::probe(rdma_port_space space) noexcept : channel_(rdma_create_event_channel()) {
  if (!channel_) {
    failed("rdma_create_event_channel");
  } else if (rdma_create_id(channel_.get(), &id_, nullptr, space) != 0) {
    id_ = nullptr;
    failed("rdma_create_id");
  }
}

DAT_DECL bool probe::bind(const ia_address& local) noexcept {
  if (!id_) return false;
  const ia_address any_port = local.with_port(0);
  if (rdma_bind_addr(id_, const_cast<sockaddr*>(any_port.native_handle())) != 0) return failed("rdma_bind_addr");
  return id_->verbs != nullptr;
}

DAT_DECL bool probe::reach(const ia_address& remote, timeout limit) noexcept {
  if (!id_) return false;
  if (const int err = make_nonblocking(channel_->fd)) return errno = err, failed("fcntl");
  const deadline until = deadline::in(limit);
  const auto ms = within<std::int64_t>(1, std::chrono::ceil<std::chrono::milliseconds>(limit).count(), 60'000);
  const ia_address target = remote.with_port(remote.port() != 0 ? remote.port() : std::uint16_t{1});
  if (rdma_resolve_addr(id_, nullptr, const_cast<sockaddr*>(target.native_handle()), static_cast<int>(ms)) != 0)
    return failed("rdma_resolve_addr");
  rdma_cm_event* e = nullptr;
  while (rdma_get_cm_event(channel_.get(), &e) != 0) {
    if (errno != EAGAIN && errno != EINTR) return failed("rdma_get_cm_event");
    pollfd p = to_read(channel_->fd);
    if (poll_until(&p, 1, until) == 0) return errno = ETIMEDOUT, failed("rdma_resolve_addr");
  }
  const bool resolved = e->event == RDMA_CM_EVENT_ADDR_RESOLVED;
  const int status = e->status;
  rdma_ack_cm_event(e);
  if (!resolved) return errno = std::abs(status), failed("rdma_resolve_addr");
  return id_->verbs != nullptr;
}

DAT_DECL bool probe::exhausted() const noexcept {
  return map_errno(err_).type() == return_type::insufficient_resources;
}

inline constexpr const char* open_call = "ia.open";

DAT_DECL error no_adapter(const char* hint) noexcept {
  return error(return_type::provider_not_found, return_subtype::name_not_registered)
      .at(open_call, object_kind::ia)
      .hint(hint);
}

DAT_DECL error no_interfaces(const char* call) noexcept {
  const int err = errno;
  return map_errno(err, return_subtype::resource_memory).at(call, object_kind::ia).from("getifaddrs", err);
}

/// An error that the name or address did not cause: another way of finding the adapter would fail in the same way, or
/// find a different adapter.
[[nodiscard]] DAT_DECL bool is_exhausted(const error& e) noexcept {
  return e.type() == return_type::insufficient_resources;
}

DAT_DECL error probe_failed(const probe& p) noexcept {
  const auto at = [&](const error& e) { return e.at(open_call, object_kind::ia).from(p.verb(), p.err()); };
  if (p.err() != ENODEV && p.err() != ENOENT) return at(map_errno(p.err(), return_subtype::resource_device));
  const lacking what = what_is_missing();
  const error e =
      at(error(what == lacking::permission ? return_type::privileges_violation : return_type::provider_not_found));
  const char* const remedy = remedy_of(what);
  return remedy ? e.hint(remedy) : e;
}

DAT_DECL result<adapter_location> search(std::string_view device, std::uint8_t port, std::string_view interface,
                                         bool active, bool iwarp) noexcept {
  adapter_location found;
  bool any = false;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return no_interfaces(open_call);
  const unique_c<ifaddrs, &::freeifaddrs> owner(list);
  for (const ifaddrs* i = list; i; i = i->ifa_next) {
    if (!i->ifa_addr || (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6)) continue;
    ia_address a;
    if (!copy_address(i->ifa_addr, sizeof(sockaddr_storage), a) || a.is_loopback()) continue;
    // A link-local address needs its interface.
    if (a.family() == address_family::ipv6 && a.is_link_local()) continue;
    probe p;
    if (!p.bind(a)) {
      if (!p.ready() || p.exhausted()) return probe_failed(p);
      continue;
    }
    if (!interface.empty() && interface != i->ifa_name) continue;
    const bool wanted = any              ? p.device() == found.device.data() && p.port() == found.port
                        : device.empty() ? (iwarp || !p.iwarp()) && (!active || p.active())
                                         : p.device() == device && p.port() == port && (!active || p.active());
    if (!wanted) continue;
    if (!any) {
      p.describe(found);
      interface = i->ifa_name;
      any = true;
    }
    const std::size_t f = a.family() == address_family::ipv4 ? 0 : 1;
    if (!found.has[f]) {
      found.has[f] = true;
      found.address[f] = a;
    }
  }
  if (!any)
    return no_adapter(device.empty() ? "No RDMA device of this host has an IP address. A Soft-RoCE device is made by "
                                       "`modprobe rdma_rxe` and `rdma link add rxe0 type rxe netdev <interface>`."
                                     : "No RDMA device of that name and port has an IP address: see `rdma link` and "
                                       "`ip address`.");
  return found;
}

DAT_DECL result<adapter_location> first_adapter() noexcept {
  // Prefers an adapter with the InfiniBand extensions.
  auto found = search({}, 0, {}, true, false);
  if (!found && !is_exhausted(found.assume_error())) found = search({}, 0, {}, true);
  return found || is_exhausted(found.assume_error()) ? found : search({}, 0);
}

DAT_DECL result<adapter_location> device_named(std::string_view name) noexcept {
  std::uint8_t port = 1;
  std::string_view device = name;
  if (const auto slash = name.rfind('/'); slash != std::string_view::npos) {
    unsigned number = 0;
    const auto digits = name.substr(slash + 1);
    for (const char c : digits) number = c >= '0' && c <= '9' && number < 256 ? 10 * number + unsigned(c - '0') : 256;
    port = static_cast<std::uint8_t>(number);
    if (digits.empty() || number == 0 || number > 255)
      return error(return_type::invalid_parameter, return_subtype::arg1)
          .at(open_call, object_kind::ia)
          .hint("The name of an adapter is a device name, with /PORT for another port than 1: mlx5_0/2.");
    device = name.substr(0, slash);
  }
  if (device.empty())
    return error(return_type::invalid_parameter, return_subtype::arg1)
        .at(open_call, object_kind::ia)
        .hint("The name is empty: ia::open without a name opens the host's adapter.");
  return search(device, port);
}

/// The name of the interface that has this address; empty when there is none.
DAT_DECL result<std::array<char, IF_NAMESIZE>> interface_of(const ia_address& local) noexcept {
  std::array<char, IF_NAMESIZE> name{};
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return no_interfaces(open_call);
  const unique_c<ifaddrs, &::freeifaddrs> owner(list);
  for (const ifaddrs* i = list; i; i = i->ifa_next) {
    ia_address a;
    if (!i->ifa_addr || !copy_address(i->ifa_addr, sizeof(sockaddr_storage), a)) continue;
    if (a.with_port(0) != local.with_port(0)) continue;
    std::string_view(i->ifa_name).copy(name.data(), name.size() - 1);
    break;
  }
  return name;
}

DAT_DECL result<adapter_location> adapter_at(const ia_address& local) noexcept {
  probe p;
  if (!p.ready()) return probe_failed(p);
  const bool here = !local.is_any() && p.bind(local);
  if (p.exhausted()) return probe_failed(p);
  if (!here)
    return error(return_type::invalid_address, return_subtype::address_unreachable)
        .at(open_call, object_kind::ia)
        .from(p.verb(), p.err())
        .hint("The address must be one of this host, on an interface that an RDMA device uses: see `rdma link`.");
  auto on = interface_of(local);
  if (!on) return on.assume_error();
  auto found = search(p.device(), p.port(), on.assume_value().data());
  if (!found && is_exhausted(found.assume_error())) return found;
  if (!found) { // an interface with link-local addresses alone
    adapter_location only;
    p.describe(only);
    found = only;
  }
  const std::size_t f = local.family() == address_family::ipv4 ? 0 : 1;
  found.assume_value().has[f] = true;
  found.assume_value().address[f] = local.with_port(0); // the matching address, where the interface has several
  return found;
}

/// The adapter that the instance data of an entry of dat.conf names.
DAT_DECL result<adapter_location> adapter_of_instance(const conf_field& data) noexcept {
  const error absent = error(return_type::insufficient_resources, return_subtype::resource_device)
                           .at(open_call, object_kind::ia)
                           .hint("The file dat.conf has that name, but this host lacks the device, interface or "
                                 "address in the seventh field of its entry.");
  std::array<char, 256> text;
  const auto i = conf_instance::of(data.copy(text));
  if (i.what.empty() || i.port < 0 || data.size() > text.size()) return absent;
  auto found = search(i.what, static_cast<std::uint8_t>(i.port == 0 ? 1 : i.port));
  if (!found) {
    if (found.assume_error().type() != return_type::provider_not_found) return found;
    found = detail::search({}, 0, i.what); // not std::search, because a string_view would include its header
    if (ia_address address; !found && parse_address(i.what, address)) found = adapter_at(address);
    if (!found && is_exhausted(found.assume_error())) return found;
    if (!found || (i.port != 0 && found.assume_value().port != i.port)) return absent;
  }
  return found;
}

/// Copies the port of the best match among the added names, if that is better than what `match` has found before.
[[nodiscard]] DAT_DECL bool added_port(registered_names& names, std::string_view name, version_match& match,
                                       std::array<char, 72>& port) noexcept {
  bool better = false;
  names.each(registered_name::role::added, [&](const registered_name& n) noexcept {
    if (n.name() != name || !match.offer(n.major_part, n.minor_part, n.thread_safe)) return;
    port = n.port;
    better = true;
  });
  return better;
}

/// The adapter with this name: a name of a device or of dat.conf, or one that the program has added.
DAT_DECL result<adapter_location> adapter_named(std::string_view name) noexcept {
  if (name.size() >= 256) // DAT_NAME_MAX_LENGTH, which includes the terminating zero
    return error(return_type::invalid_parameter, return_subtype::arg1)
        .at(open_call, object_kind::ia)
        .hint("The name of an adapter has at most 255 characters.");
  const auto names = registered_names::of_process();
  const bool removed = names->has(registered_name::role::removed, name);
  auto found = removed ? no_adapter("The program has removed that name from its registry.") : device_named(name);
  if (found || (found.assume_error().type() != return_type::provider_not_found &&
                found.assume_error().type() != return_type::invalid_parameter))
    return found;
  const conf_text overrides(conf_override());
  const conf_text system(::access(conf_file, F_OK) == 0 ? conf_file : conf_file_2);
  // If a file could not be read because no descriptor was left, the file may have the name.
  for (const conf_text* file : {&overrides, &system})
    if (const error e = map_errno(file->err(), return_subtype::resource_memory); is_exhausted(e))
      return e.at(open_call, object_kind::ia).from("open", file->err());
  const conf_texts texts{system.view(), overrides.view()};
  auto why = return_subtype::name_not_registered;
  // dat is thread safe, so it also serves entries that do not require thread safety.
  for (const bool safe : {true, false}) {
    version_match match{2, 0, safe};
    conf_item entry;
    if (!removed) entry = texts.find(name, match);
    if (std::array<char, 72> port; added_port(*names, name, match, port)) {
      if (port[0] != 0) return device_named(port.data());
      return error(return_type::insufficient_resources, return_subtype::resource_device)
          .at(open_call, object_kind::ia)
          .hint("The program has added that name for a device that is absent.");
    }
    if (match.found) return adapter_of_instance(entry.instance);
    why = match.why;
  }
  if (why == return_subtype::name_not_registered) return found;
  return error(return_type::provider_not_found, why)
      .at(open_call, object_kind::ia)
      .hint("The file dat.conf has that name, but not for version u2.0 of the interface.");
}

DAT_DECL result<adapter_location> adapter_reaching(const std::string& remote, timeout limit) noexcept {
  auto addresses = resolve(remote);
  if (!addresses) return addresses.assume_error().at("ia.open_by_route", object_kind::ia);
  error why =
      error(return_type::invalid_address, return_subtype::address_unreachable).at("ia.open_by_route", object_kind::ia);
  for (const ia_address& a : addresses.assume_value()) {
    probe p;
    if (!p.ready()) return probe_failed(p).at("ia.open_by_route", object_kind::ia);
    if (p.reach(a, limit)) {
      ia_address local;
      if (copy_address(p.local(), sizeof(sockaddr_storage), local)) return adapter_at(local);
    }
    if (p.exhausted()) return probe_failed(p).at("ia.open_by_route", object_kind::ia);
    why = why.from(p.verb(), p.err()).hint("No RDMA device of this host leads to that address.");
  }
  return why;
}

}}} // namespace dat::v0::detail
