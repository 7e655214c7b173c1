// Remedies of errors: a table by (system call, errno), then one by (type, subtype).
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>

#include <dat/detail/text/kernel_errno.hpp>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <sys/resource.h>

namespace dat { inline namespace v0 { namespace detail {

// Tables of literals, because a constexpr string_view would be evaluated in every compilation.
struct call_remedy {
  const char* verb; // a name, a prefix ending in '*', or "*"
  int errnum;
  const char* text; // "{memlock}" is replaced by the process's limit
};

struct state_remedy {
  return_type type;
  return_subtype subtype; // none: matches every subtype without an entry above
  const char* text;
};

inline constexpr const char* memlock_text =
    "Registered memory is locked, and RLIMIT_MEMLOCK of this process is {memlock}: raise it (`ulimit -l unlimited`, "
    "`memlock` in /etc/security/limits.conf, or LimitMEMLOCK= of the systemd unit) or register less.";

// The remedy if that limit cannot be the reason.
inline constexpr const char* too_large_text = "The adapter or the kernel has no room for this region; RLIMIT_MEMLOCK "
                                              "of this process is unlimited. Register less, "
                                              "several smaller regions, or free others.";

inline constexpr const char* device_permission_text =
    "This user may not open the device: check owner and mode of /dev/infiniband/uverbs* (rdma-core's udev rules make "
    "them accessible to everyone; containers need them passed in, e.g. `--device=/dev/infiniband`).";

inline constexpr const char* address_space_text =
    "No address space is left, or no memory that could be locked: raise `ulimit -v`, and `ulimit -l` of a process that "
    "calls mlockall.";

inline constexpr const char* cgroup_text = "A limit of the cgroup on RDMA objects is reached: raise hca_handle or "
                                           "hca_object in its rdma.max, or free objects.";

// The first match wins.
inline constexpr call_remedy call_remedies[] = {
    {"ibv_reg_*mr", ENOMEM, memlock_text},
    {"ibv_reg_*mr", EFAULT,
     "The whole range must be mapped, and writable if the peer or a receive is to write into it."},
    {"ibv_reg_*mr", EINVAL,
     "Check the combination of rights: remote write and remote atomic access need local write access."},
    {"ibv_reg_*mr", EOPNOTSUPP,
     "This kind of memory cannot be registered here: copy the data into ordinary memory first."},
    {"ibv_reg_*mr", EBUSY, "A memory window is still bound to the region: free the rmr first."},
    {"ibv_dereg_mr", EBUSY, "A memory window is still bound to the region: free the rmr first."},
    {"ibv_get_device_list", ENOSYS,
     "The kernel has no RDMA support loaded: `modprobe ib_uverbs`, then load the adapter's driver, or for "
     "Soft-RoCE `modprobe rdma_rxe && rdma link add rxe0 type rxe netdev <interface>`."},
    {"ibv_get_device_list", ENODEV,
     "There is no RDMA device: load the adapter's driver, or make a Soft-RoCE device on an Ethernet interface: "
     "`modprobe rdma_rxe && rdma link add rxe0 type rxe netdev <interface>`."},
    {"ibv_get_device_list", EPERM, device_permission_text},
    {"ibv_open_device", EACCES, device_permission_text},
    {"ibv_open_device", EPERM, device_permission_text},
    {"ibv_open_device", ENOENT,
     "/dev/infiniband/uverbs* is missing: `modprobe ib_uverbs`, or pass /dev/infiniband into the container."},
    {"ibv_open_device", ENODEV, "The device was removed: see `rdma link` and the kernel log."},
    {"ibv_open_device", EMFILE, "Too many open files in this process: raise `ulimit -n`."},
    {"ibv_fork_init", EINVAL, "Call it before any memory is registered in this process."},
    {"ibv_query_gid*", ENODATA,
     "The port has no GID at this index: give its network interface an IP address and bring it up."},
    {"rdma_create_event_channel", ENODEV, "librdmacm needs the kernel module rdma_ucm: `modprobe rdma_ucm`."},
    {"rdma_create_event_channel", ENOENT,
     "/dev/infiniband/rdma_cm is missing: `modprobe rdma_ucm`, or pass /dev/infiniband into the container."},
    {"rdma_create_event_channel", EACCES, "This user may not open /dev/infiniband/rdma_cm: check its owner and mode."},
    {"rdma_create_event_channel", EMFILE, "Too many open files in this process: raise `ulimit -n`."},
    {"rdma_create_id", ENODEV, "No RDMA device is known to librdmacm: see `rdma link`."},
    {"rdma_bind_addr", EADDRINUSE,
     "Another service point, here or in another process, has this port: choose another one. RDMA ports are "
     "not those of TCP: `rdma resource show cm_id` lists them."},
    {"rdma_bind_addr", EADDRNOTAVAIL,
     "The address belongs to no interface of this host, or another service point listens on the port at the "
     "wildcard address: see `ip address` and `rdma resource show cm_id`."},
    {"rdma_bind_addr", EACCES, "Ports below 1024 need CAP_NET_BIND_SERVICE: choose a higher one."},
    {"rdma_bind_addr", ENODEV,
     "The interface of this address has no RDMA device: `rdma link` shows which interfaces have one; for "
     "Soft-RoCE `rdma link add rxe0 type rxe netdev <interface>`."},
    {"rdma_listen", EADDRINUSE, "Another service point listens on this port: choose another one."},
    {"rdma_resolve_addr", ENODEV,
     "The route to this address leaves by an interface without RDMA device: `ip route get <address>` shows "
     "the interface, `rdma link` the devices."},
    {"rdma_resolve_addr", ENETUNREACH,
     "No route leads there: see `ip route get <address>`, and whether the interface is up (`ip link`, `rdma "
     "link`)."},
    {"rdma_resolve_addr", EHOSTUNREACH,
     "No route leads there: see `ip route get <address>`, and whether the interface is up (`ip link`, `rdma "
     "link`)."},
    {"rdma_resolve_addr", EADDRNOTAVAIL, "The local address belongs to no interface: see `ip address`."},
    {"rdma_resolve_addr", EINVAL, "Local and remote address must both be IPv4 or both IPv6."},
    {"rdma_resolve_addr", ETIMEDOUT,
     "The neighbour does not answer ARP or neighbour discovery: is the host up, and on this network?"},
    {"rdma_resolve_route", ETIMEDOUT, "The peer's path cannot be resolved: is the host up?"},
    {"rdma_connect", ECONNREFUSED, "No program listens on that port: start the server, or check the port."},
    {"rdma_connect", ETIMEDOUT,
     "The peer does not answer: is the host up, and, on RoCE v2, does its firewall let UDP port 4791 through?"},
    {"rdma_join_multicast", kernel_enotsupp,
     "On RoCE v2 the kernel has no groups of IPv6 addresses: join one of 224.0.0.0/4, and give the adapter's interface "
     "an IPv4 address if it has none."},
    {"ibv_create_qp", EINVAL,
     "Request fewer or smaller queues: the adapter's limits are in ia.query() (max_ep, max_iov_segments, "
     "inline bytes)."},
    {"ibv_create_qp", ENOMEM,
     "The device has no room for another endpoint of this size (on some devices its queues also count "
     "against RLIMIT_MEMLOCK, {memlock} here)."},
    {"ibv_create_cq", EINVAL,
     "The evd is longer than the device's largest completion queue, or shorter than 1: see ia.query()."},
    {"ibv_create_cq", ENOMEM,
     "The device has no room for another completion queue of this size (on some devices its memory also "
     "counts against RLIMIT_MEMLOCK, {memlock} here)."},
    {"ibv_create_srq", EINVAL, "The shared receive queue is longer than the device allows: see ia.query()."},
    {"ibv_create_srq", ENOMEM,
     "The device has no room for another shared receive queue of this size: request a shorter one, or share one."},
    {"ibv_alloc_mw", ENOMEM, "The device has no room for another memory window: free rmrs, or bind one again."},
    {"ibv_create_ah", ENOMEM, "The device has no room for another address: free address handles."},
    {"ibv_create_comp_channel", EMFILE, "Too many open files in this process: raise `ulimit -n`."},
    {"ibv_create_ah", EINVAL, "The address has no usable GID here: is the network interface up?"},
    {"ibv_create_ah", ETIMEDOUT, "The peer's link address cannot be found: is the host up, and on this network?"},
    {"ibv_create_ah", ENETUNREACH, "No route leads to the peer: see `ip route get <address>`."},
    {"ibv_modify_qp", EINVAL,
     "The attributes do not fit the connection: path MTU, GID and RDMA read depth must suit both ports."},
    {"ibv_modify_qp", ETIMEDOUT, "The peer's link address cannot be found: is the host up, and on this network?"},
    {"ibv_modify_qp", ENETUNREACH, "No route leads to the peer: see `ip route get <address>`."},
    {"ibv_post_send", ENOMEM,
     "The request queue is full: dequeue completions first, or create the endpoint with a longer one."},
    {"ibv_post_recv", ENOMEM,
     "The receive queue is full: dequeue completions first, or create the endpoint with a longer one."},
    {"ibv_post_srq_recv", ENOMEM, "The shared receive queue is full: dequeue completions first, or create it longer."},
    {"mmap", ENOMEM, address_space_text},
    {"mmap", EAGAIN, address_space_text},
    {"pthread_create", EAGAIN,
     "No further thread may start: raise `ulimit -u` or pids.max of the cgroup, or open the ia with "
     "dat::progress::manual, which needs no thread."},
    {"epoll_ctl", ENOSPC, "This user watches too many descriptors: raise `sysctl fs.epoll.max_user_watches`."},
    {"if_nametoindex", ENODEV, "There is no interface of that name: see `ip link`."},
    {"rdma_*", ENOMEM,
     "The connection manager has no memory for another connection or service point: free some, and call again."},
    {"*", EMFILE, "Too many open files in this process: raise `ulimit -n`."},
    {"*", ENFILE, "Too many open files on this host: raise `sysctl fs.file-max`."},
    {"ibv_*", EAGAIN, cgroup_text},
    {"rdma_*", EAGAIN, cgroup_text},
    {"*", EIO, "The device reports a hardware fault: see the kernel log."},
    {"*", ENODEV, "The device was removed: see `rdma link` and the kernel log."},
};

inline constexpr state_remedy state_remedies[] = {
    {return_type::abort, return_subtype::interrupted, "Nothing is left to wait for: leave the loop."},
    {return_type::conn_qual_in_use, return_subtype::none,
     "Close the other service point, or choose another connection qualifier."},
    {return_type::conn_qual_unavailable, return_subtype::none,
     "Every port is taken: `rdma resource show cm_id` shows the users."},
    {return_type::port_in_use, return_subtype::none, "Choose another port."},
    {return_type::insufficient_resources, return_subtype::resource_memory,
     "Free memory, or raise the limit (`ulimit -v`, memory.max of the cgroup), and call again."},
    {return_type::insufficient_resources, return_subtype::resource_memory_region, memlock_text},
    {return_type::insufficient_resources, return_subtype::resource_tep,
     "Dequeue completions before posting more, or create the endpoint with longer queues."},
    {return_type::insufficient_resources, return_subtype::resource_tevd,
     "Create a shorter evd, or free unused evds: ia.query() returns the limits."},
    {return_type::insufficient_resources, return_subtype::resource_srq,
     "Dequeue completions before posting more, or create a longer shared receive queue."},
    {return_type::insufficient_resources, return_subtype::resource_credits,
     "Request fewer RDMA reads in flight: ia.query() returns the device's limit."},
    {return_type::insufficient_resources, return_subtype::resource_protection_domain,
     "Free unused protection zones, or share one."},
    {return_type::insufficient_resources, return_subtype::none,
     "Free objects that are no longer needed, and call again."},
    {return_type::invalid_handle, return_subtype::none,
     "The handle was moved from or closed, or its adapter was closed."},
    {return_type::invalid_state, return_subtype::ep_unconnected,
     "Connect the endpoint, and wait for the established event, first."},
    {return_type::invalid_state, return_subtype::ep_connected, "Disconnect the endpoint first."},
    {return_type::invalid_state, return_subtype::ep_actconnpending,
     "Wait for the established event, or disconnect to give up."},
    {return_type::invalid_state, return_subtype::ep_complpending, "Wait for the established event."},
    {return_type::invalid_state, return_subtype::ep_discpending, "Wait for the disconnected event."},
    {return_type::invalid_state, return_subtype::ep_disconnected, "Reset the endpoint, then connect it again."},
    {return_type::invalid_state, return_subtype::evd_waiter,
     "Only one thread at a time may wait on an evd: give each thread its own."},
    {return_type::invalid_state, return_subtype::evd_unwaitable,
     "Make the evd waitable again, or attach it to a cno and wait there."},
    {return_type::invalid_state, return_subtype::evd_in_use,
     "Free the endpoints and service points that feed it first."},
    {return_type::invalid_state, return_subtype::cno_in_use, "Free the evds that trigger it first."},
    {return_type::invalid_state, return_subtype::ia_in_use, "Free its objects first, or close the adapter abruptly."},
    {return_type::invalid_state, return_subtype::pz_in_use,
     "Free the endpoints, memory regions and shared receive queues of the zone first."},
    {return_type::invalid_state, return_subtype::lmr_in_use, "Unbind or free the rmrs of this region first."},
    {return_type::invalid_state, return_subtype::srq_in_use, "Free its endpoints first."},
    {return_type::length_error, return_subtype::none,
     "Split the transfer: ep.query() returns the largest message, ia.query() the device's limit."},
    {return_type::provider_not_found, return_subtype::none,
     "`rdma link` lists this host's RDMA devices; a Soft-RoCE device is made by `modprobe rdma_rxe && rdma "
     "link add rxe0 type rxe netdev <interface>`."},
    {return_type::privileges_violation, return_subtype::privileges_read, "Register the memory with dat::local_read."},
    {return_type::privileges_violation, return_subtype::privileges_write, "Register the memory with dat::local_write."},
    {return_type::privileges_violation, return_subtype::privileges_rdma_read,
     "Register the memory with dat::remote_read."},
    {return_type::privileges_violation, return_subtype::privileges_rdma_write,
     "Register the memory with dat::remote_write."},
    {return_type::protection_violation, return_subtype::none,
     "Register the memory in the protection zone of the endpoint."},
    {return_type::queue_full, return_subtype::none,
     "Dequeue events first, or create the evd with a larger minimum length."},
    {return_type::invalid_address, return_subtype::address_malformed,
     "Write it as 10.0.0.1, 10.0.0.1:7471, fd00::1, fe80::1%eth0 or [fd00::1]:7471."},
    {return_type::invalid_address, return_subtype::address_unsupported,
     "Multicast and broadcast addresses cannot be connected to."},
    {return_type::invalid_address, return_subtype::address_unreachable,
     "See `ip route get <address>`, and whether the host name is spelled right."},
    {return_type::interrupted_call, return_subtype::none, "Call again after handling the signal."},
};

// '*' matches any run of characters; an entry has at most one.
[[nodiscard]] constexpr bool matches(std::string_view pattern, std::string_view name) noexcept {
  const auto star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  const auto head = pattern.substr(0, star);
  const auto tail = pattern.substr(star + 1);
  return name.size() >= head.size() + tail.size() && name.starts_with(head) && name.ends_with(tail);
}

// The literal remedy; empty when there is none. An errno without a recorded call matches "*" only.
[[nodiscard]] constexpr std::string_view remedy_text(const error& e) noexcept {
  if (!e.hint().empty()) return e.hint();
  if (e.sys_errno() != 0) {
    for (const auto& r : call_remedies)
      if (r.errnum == e.sys_errno() && matches(r.verb, e.verb())) return r.text;
  }
  for (const auto& r : state_remedies)
    if (r.type == e.type() && (r.subtype == e.subtype() || r.subtype == return_subtype::none)) return r.text;
  return {};
}

inline constexpr std::string_view unlimited = "unlimited";

[[nodiscard]] inline std::string memlock_limit() {
  ::rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "unknown";
  if (limit.rlim_cur == RLIM_INFINITY) return std::string(unlimited);
  return std::to_string(limit.rlim_cur / 1024).append(" KiB");
}

[[nodiscard]] inline std::string remedy(const error& e) {
  std::string text(remedy_text(e));
  constexpr std::string_view placeholder = "{memlock}";
  const auto at = text.find(placeholder);
  if (at == std::string::npos) return text;
  const std::string limit = memlock_limit();
  if (text == memlock_text && limit == unlimited) return too_large_text;
  return text.replace(at, placeholder.size(), limit);
}

}}} // namespace dat::v0::detail
