// Communicators: the kind of socket of an address.
// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace dat { inline namespace v0 {

/// Socket domain, type and protocol with the values of the platform (DAT_COMM, uDAPL 2.0 §6.4.3): of a common service
/// point, and of an endpoint that `common_connect` is called on. Supported: {AF_INET or AF_INET6, SOCK_STREAM, 0 or
/// IPPROTO_TCP}. All zero: none.
struct communicator {
  int domain = 0;
  int type = 0;
  int protocol = 0; ///< 0: the protocol of the type

  friend constexpr bool operator==(const communicator&, const communicator&) noexcept = default;
};

}} // namespace dat::v0
