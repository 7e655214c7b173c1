// Asks poll about the readability of a descriptor.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <poll.h>

namespace dat { inline namespace v0 { namespace detail {

/// Asks poll whether a descriptor can be read, or has failed. poll leaves out negative descriptors.
[[nodiscard]] inline pollfd to_read(int fd) noexcept {
  pollfd p{};
  p.fd = fd;
  p.events = POLLIN;
  return p;
}

}}} // namespace dat::v0::detail
