// Finding the adapter: by name, by local address, by what reaches a remote address. rdma_cm decides which device and
// port an address belongs to, on every link layer alike.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>
#include <dat/expected.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/basics.hpp>
#include <dat/detail/conf.hpp>
#include <dat/detail/deadline.hpp>
#include <dat/detail/ia_core.hpp>

#include <ifaddrs.h>
#include <string>
#include <string_view>

namespace dat::inline v0::detail {

/// The one ia handle's part in the core: it holds the adapter open.
class ia_handle {
public:
  ia_handle() noexcept = default;
  explicit ia_handle(ref<ia_core> core) noexcept : core_(std::move(core)) {
    if (core_) core_->hold();
  }
  ia_handle(ia_handle&&) noexcept = default;
  ia_handle& operator=(ia_handle&& o) noexcept {
    if (this != &o) {
      drop();
      core_ = std::move(o.core_);
    }
    return *this;
  }
  ~ia_handle() { drop(); }

  [[nodiscard]] ia_core* operator->() const noexcept { return core_.get(); }
  [[nodiscard]] const ref<ia_core>& shared() const noexcept { return core_; }
  explicit operator bool() const noexcept { return static_cast<bool>(core_); }

  [[nodiscard]] expected<void> close(bool graceful) noexcept {
    if (core_->foreign()) {
      drop();
      return error(return_type::invalid_handle, return_subtype::handle_ia)
          .at("ia.close", object_kind::ia)
          .hint("a forked child does not inherit the objects of its parent");
    }
    if (graceful && core_->in_use())
      return error(return_type::invalid_state, return_subtype::ia_in_use)
          .at("ia.close", object_kind::ia)
          .hint("close what was made from the ia first, or close abruptly");
    if (graceful)
      core_->close_gracefully();
    else
      core_->close_abruptly();
    drop();
    return success();
  }

private:
  void drop() noexcept {
    if (core_) core_->let_go();
    core_ = {};
  }
  ref<ia_core> core_;
};

/// An event channel and one id on it, for questions to rdma_cm that no ia exists for yet.
class probe {
public:
  explicit probe(rdma_port_space space = RDMA_PS_TCP) noexcept : channel_(rdma_create_event_channel()) {
    if (!channel_) {
      failed("rdma_create_event_channel");
    } else if (rdma_create_id(channel_.get(), &id_, nullptr, space) != 0) {
      id_ = nullptr;
      failed("rdma_create_id");
    }
  }
  probe(const probe&) = delete;
  probe& operator=(const probe&) = delete;
  ~probe() {
    if (id_) rdma_destroy_id(id_);
  }

  /// False when rdma_cm cannot be asked at all.
  [[nodiscard]] bool ready() const noexcept { return id_ != nullptr; }
  /// Whether the local address is on an RDMA device. `verb()` and `err()` tell why not.
  [[nodiscard]] bool bind(const ia_address& local) noexcept {
    if (!id_) return false;
    const ia_address any_port = local.with_port(0);
    if (rdma_bind_addr(id_, const_cast<sockaddr*>(any_port.native_handle())) != 0) return failed("rdma_bind_addr");
    return id_->verbs != nullptr;
  }

  /// Whether the remote address can be reached through an RDMA device.
  [[nodiscard]] bool reach(const ia_address& remote, timeout limit) noexcept {
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
      pollfd p{channel_->fd, POLLIN, 0};
      if (poll_until(&p, 1, until) == 0) return errno = ETIMEDOUT, failed("rdma_resolve_addr");
    }
    const bool resolved = e->event == RDMA_CM_EVENT_ADDR_RESOLVED;
    const int status = e->status;
    rdma_ack_cm_event(e);
    if (!resolved) return errno = std::abs(status), failed("rdma_resolve_addr");
    return id_->verbs != nullptr;
  }

  [[nodiscard]] std::string_view device() const noexcept { return ibv_get_device_name(id_->verbs->device); }
  [[nodiscard]] std::uint8_t port() const noexcept { return id_->port_num; }
  /// Whether the port carries data now.
  [[nodiscard]] bool active() const noexcept {
    ibv_port_attr a{};
    return ibv_query_port(id_->verbs, id_->port_num, &a) == 0 && a.state == IBV_PORT_ACTIVE;
  }
  [[nodiscard]] const sockaddr* local() const noexcept { return rdma_get_local_addr(id_); }
  [[nodiscard]] const char* verb() const noexcept { return verb_; }
  [[nodiscard]] int err() const noexcept { return err_; }
  /// The last call failed for want of something that may be there another time: it says nothing of the address.
  [[nodiscard]] bool exhausted() const noexcept {
    return map_errno(err_).type() == return_type::insufficient_resources;
  }

private:
  bool failed(const char* verb) noexcept {
    verb_ = verb;
    err_ = errno;
    return false;
  }

  owned<rdma_event_channel, &rdma_destroy_event_channel> channel_;
  rdma_cm_id* id_ = nullptr;
  const char* verb_ = nullptr;
  int err_ = 0;
};

inline constexpr const char* open_call = "ia.open";

[[nodiscard]] inline error no_adapter(const char* hint) noexcept {
  return error(return_type::provider_not_found, return_subtype::name_not_registered)
      .at(open_call, object_kind::ia)
      .hint(hint);
}

/// rdma_cm itself could not be asked: nothing is known of any address.
[[nodiscard]] inline error probe_failed(const probe& p) noexcept {
  return (p.err() == ENODEV || p.err() == ENOENT ? error(return_type::provider_not_found)
                                                 : map_errno(p.err(), return_subtype::resource_device))
      .at(open_call, object_kind::ia)
      .from(p.verb(), p.err());
}

/// Walks the host's addresses, in the order of the interfaces, and fills in those that lie on the wanted device and
/// port. An empty device takes the first that is found, on that interface if one is given, or whose port is active.
[[nodiscard]] inline result<ia_core::place> search(std::string_view device, std::uint8_t port,
                                                   std::string_view interface = {}, bool active = false) noexcept {
  ia_core::place found;
  bool any = false;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0)
    return map_errno(errno, return_subtype::resource_memory).at(open_call, object_kind::ia).from("getifaddrs", errno);
  const owned<ifaddrs, &::freeifaddrs> owner(list);
  for (const ifaddrs* i = list; i; i = i->ifa_next) {
    if (!i->ifa_addr || (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6)) continue;
    ia_address a;
    if (!copy_address(i->ifa_addr, sizeof(sockaddr_storage), a) || a.is_loopback()) continue;
    // A link-local address is of use only to those who name an interface with it.
    if (a.family() == address_family::ipv6 && a.is_link_local()) continue;
    probe p;
    if (!p.bind(a)) {
      if (!p.ready() || p.exhausted()) return probe_failed(p);
      continue;
    }
    const bool wanted = any ? p.device() == found.device.data() && p.port() == found.port
                            : (device.empty() || (p.device() == device && p.port() == port)) &&
                                  (interface.empty() || interface == i->ifa_name) && (!active || p.active());
    if (!wanted) continue;
    if (!any) {
      p.device().copy(found.device.data(), found.device.size() - 1);
      found.port = p.port();
      any = true;
    }
    const std::size_t f = a.family() == address_family::ipv4 ? 0 : 1;
    if (!found.has[f]) {
      found.has[f] = true;
      found.address[f] = a;
    }
  }
  if (!any)
    return no_adapter(device.empty() ? "no RDMA device of this host has an IP address; for a software device: modprobe "
                                       "rdma_rxe; rdma link add rxe0 type rxe netdev <interface>"
                                     : "no RDMA device of that name and port has an IP address: see `rdma link` and "
                                       "`ip address`");
  return found;
}

[[nodiscard]] inline result<ia_core::place> first_adapter() noexcept {
  auto found = search({}, 0, {}, true);
  return found ? found : search({}, 0);
}

[[nodiscard]] inline result<ia_core::place> device_named(std::string_view name) noexcept {
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
          .hint("an adapter's name is a device name, with /PORT for another port than 1: mlx5_0/2");
    device = name.substr(0, slash);
  }
  if (device.empty())
    return error(return_type::invalid_parameter, return_subtype::arg1)
        .at(open_call, object_kind::ia)
        .hint("an empty name: ia::open() opens the host's adapter");
  return search(device, port);
}

[[nodiscard]] inline result<ia_core::place> adapter_at(const ia_address& local) noexcept {
  probe p;
  if (!p.ready()) return probe_failed(p);
  if (local.is_any() || !p.bind(local))
    return error(return_type::invalid_address, return_subtype::address_unreachable)
        .at(open_call, object_kind::ia)
        .from(p.verb(), p.err())
        .hint("the address must be one of this host, on an interface that an RDMA device uses: see `rdma link`");
  auto found = search(p.device(), p.port());
  if (!found) return found;
  const std::size_t f = local.family() == address_family::ipv4 ? 0 : 1;
  found.assume_value().has[f] = true;
  found.assume_value().address[f] = local.with_port(0); // this one, where the interface has several
  return found;
}

/// What the instance data of an entry of dat.conf stands for.
[[nodiscard]] inline result<ia_core::place> adapter_of_instance(const conf_field& data) noexcept {
  const error absent = error(return_type::insufficient_resources, return_subtype::resource_device)
                           .at(open_call, object_kind::ia)
                           .hint("dat.conf has that name, but the device, interface or address in the seventh field "
                                 "of its entry is not here");
  std::array<char, 256> text;
  const auto i = conf_instance::of(data.copy(text));
  if (i.what.empty() || i.port < 0 || data.size() > text.size()) return absent;
  auto found = search(i.what, static_cast<std::uint8_t>(i.port == 0 ? 1 : i.port));
  if (!found) {
    if (found.assume_error().type() != return_type::provider_not_found) return found;
    found = detail::search({}, 0, i.what); // not std::search, which a string_view brings along
    if (ia_address address; !found && parse_address(i.what, address)) found = adapter_at(address);
    if (!found || (i.port != 0 && found.assume_value().port != i.port)) return absent;
  }
  return found;
}

/// A device's name, or one that dat.conf gives.
[[nodiscard]] inline result<ia_core::place> adapter_named(std::string_view name) noexcept {
  if (name.size() >= 256) // DAT_NAME_MAX_LENGTH, which counts the end of a C string
    return error(return_type::invalid_parameter, return_subtype::arg1)
        .at(open_call, object_kind::ia)
        .hint("an adapter's name has at most 255 characters");
  auto found = device_named(name);
  if (found || (found.assume_error().type() != return_type::provider_not_found &&
                found.assume_error().type() != return_type::invalid_parameter))
    return found;
  const conf_text overrides(conf_override());
  const conf_text system(::access(conf_file, F_OK) == 0 ? conf_file : conf_file_2);
  const conf_texts texts{system.view(), overrides.view()};
  auto why = return_subtype::name_not_registered;
  // An entry that does not ask for thread safety is served, too: dat is thread safe.
  for (const bool safe : {true, false}) {
    version_match match{2, 0, safe};
    const conf_item entry = texts.find(name, match);
    if (match.found) return adapter_of_instance(entry.instance);
    why = match.why;
  }
  if (why == return_subtype::name_not_registered) return found;
  return error(return_type::provider_not_found, why)
      .at(open_call, object_kind::ia)
      .hint("dat.conf has that name, but not for version u2.0 of the interface");
}

template <class Addresses> // a template, so that only who calls it pays for compiling it
[[nodiscard]] result<ia_core::place> adapter_reaching(const std::string& remote, timeout limit) noexcept {
  auto addresses = resolve<Addresses>(remote);
  if (!addresses) return addresses.assume_error().at("ia.open_reaching", object_kind::ia);
  error why =
      error(return_type::invalid_address, return_subtype::address_unreachable).at("ia.open_reaching", object_kind::ia);
  for (const ia_address& a : addresses.assume_value()) {
    probe p;
    if (!p.ready()) return probe_failed(p).at("ia.open_reaching", object_kind::ia);
    if (p.reach(a, limit)) {
      ia_address local;
      if (copy_address(p.local(), sizeof(sockaddr_storage), local)) return adapter_at(local);
    }
    why = why.from(p.verb(), p.err()).hint("no RDMA device of this host leads to that address");
  }
  return why;
}

} // namespace dat::inline v0::detail
