// Two adapters without a service point, on a device.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "support.hpp"

#include <sys/socket.h>

namespace device {
namespace unconnected {

inline constexpr bool under_tsan = dat::detail::thread_sanitizer;

inline constexpr dat::communicator tcp{AF_INET, SOCK_STREAM, 0};
inline constexpr dat::communicator tcp6{AF_INET6, SOCK_STREAM, 0};

/// Two adapters without a service point.
struct ends {
  side a{0};
  side b{1};

  endpoint ask(std::uint16_t port, std::string_view data = {}) {
    auto ep = a.make_ep();
    must(ep.connect(b.ia.address(), must(dat::conn_qual::make(port)), patience, bytes_of(data)));
    return ep;
  }
  dat::cr request() { return next<dat::connection_request>(b.evd); }
};

/// Sends one message each way.
inline void exchange(side& a, endpoint& one, side& b, endpoint& other) {
  buffer here(a.pz, 64);
  buffer there(b.pz, 64);
  must(other.post(dat::recv{there.slice(0, 32)}));
  must(one.post(dat::recv{here.slice(0, 32)}));
  must(one.post(dat::send{here.slice(32, 32)}));
  must(other.post(dat::send{there.slice(32, 32)}));
  CHECK(count_of<dat::recv_done>(take(a.evd, 2)) == 1);
  CHECK(count_of<dat::recv_done>(take(b.evd, 2)) == 1);
}

} // namespace unconnected

using namespace unconnected;

} // namespace device
