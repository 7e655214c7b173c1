// Finding the adapter: by name, by local address, by the route to a remote address. rdma_cm decides which device and
// port an address belongs to, on every link layer alike.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>
#include <dat/expected.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/adapter/ia_core.hpp>
#include <dat/detail/base/config.hpp>
#include <dat/detail/base/utility.hpp>
#include <dat/detail/text/result.hpp>

#include <rdma/rdma_cma.h>

#include <cstdint>
#include <endian.h>
#include <string>
#include <string_view>

namespace dat { inline namespace v0 { namespace detail {

/// An event channel with one id, for queries of rdma_cm before an ia exists.
class probe {
public:
  explicit probe(rdma_port_space space = RDMA_PS_TCP) noexcept;
  probe(const probe&) = delete;
  probe& operator=(const probe&) = delete;
  ~probe() {
    if (id_) rdma_destroy_id(id_);
  }

  /// False when rdma_cm is unavailable.
  [[nodiscard]] bool ready() const noexcept { return id_ != nullptr; }
  /// Whether the local address is on an RDMA device. `verb()` and `err()` have the reason.
  [[nodiscard]] bool bind(const ia_address& local) noexcept;

  /// Whether the remote address can be reached through an RDMA device.
  [[nodiscard]] bool reach(const ia_address& remote, timeout limit) noexcept;

  /// Device, port and partition of the address, as rdma_cm reports them.
  void describe(adapter_location& to) const noexcept {
    device().copy(to.device.data(), to.device.size() - 1);
    to.port = port();
    to.pkey = be16toh(id_->route.addr.addr.ibaddr.pkey);
  }
  [[nodiscard]] std::string_view device() const noexcept { return ibv_get_device_name(id_->verbs->device); }
  [[nodiscard]] bool iwarp() const noexcept { return id_->verbs->device->transport_type == IBV_TRANSPORT_IWARP; }
  [[nodiscard]] std::uint8_t port() const noexcept { return id_->port_num; }
  /// Whether the port carries data now.
  [[nodiscard]] bool active() const noexcept {
    ibv_port_attr a{};
    return ibv_query_port(id_->verbs, id_->port_num, &a) == 0 && a.state == IBV_PORT_ACTIVE;
  }
  [[nodiscard]] const sockaddr* local() const noexcept { return rdma_get_local_addr(id_); }
  [[nodiscard]] const char* verb() const noexcept { return verb_; }
  [[nodiscard]] int err() const noexcept { return err_; }
  /// The last call failed for lack of resources, so its result is not about the address.
  [[nodiscard]] bool exhausted() const noexcept;

private:
  bool failed(const char* verb) noexcept {
    verb_ = verb;
    err_ = errno;
    return false;
  }

  unique_c<rdma_event_channel, &rdma_destroy_event_channel> channel_;
  rdma_cm_id* id_ = nullptr;
  const char* verb_ = nullptr;
  int err_ = 0;
};

/// Walks the host's addresses, in the order of the interfaces, and fills in the first of each family that lies on the
/// wanted device and port. An empty device takes the first device that is found, on that interface if one is given, or
/// with a port that is active, and not of iWARP unless `iwarp`. Both addresses are of one interface: the interfaces of
/// a port may belong to networks that must not meet (VLANs, partitions).
[[nodiscard]] result<adapter_location> search(std::string_view device, std::uint8_t port,
                                              std::string_view interface = {}, bool active = false,
                                              bool iwarp = true) noexcept;
/// The first port that is active and has an IP address; when none is active, the first that has an address.
[[nodiscard]] result<adapter_location> first_adapter() noexcept;
/// The adapter that has this local address.
[[nodiscard]] result<adapter_location> adapter_at(const ia_address& local) noexcept;
/// The adapter of a device name, or of a name in dat.conf.
[[nodiscard]] result<adapter_location> adapter_named(std::string_view name) noexcept;
/// The adapter that the host's routing uses to reach `remote`, a name or numeric address.
[[nodiscard]] result<adapter_location> adapter_reaching(const std::string& remote, timeout limit) noexcept;

/// The error when getifaddrs has failed.
[[nodiscard]] error no_interfaces(const char* call) noexcept;
/// The error when rdma_cm is unavailable.
[[nodiscard]] error probe_failed(const probe& p) noexcept;

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/discovery/find_adapter.ipp>
#endif
