// Whether the limits of a process, which some tests set, have an effect here.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/resource.h>

namespace support {

/// False under qemu-user, which accepts a limit on addresses and ignores it, because the emulator needs addresses, too.
inline bool limits_addresses() {
  rlimit before{};
  if (::getrlimit(RLIMIT_AS, &before) != 0) return false;
  rlimit now = before;
  now.rlim_cur = before.rlim_cur == RLIM_INFINITY ? RLIM_INFINITY / 2 : before.rlim_cur - 1;
  rlimit read{};
  const bool taken = ::setrlimit(RLIMIT_AS, &now) == 0 && ::getrlimit(RLIMIT_AS, &read) == 0;
  return ::setrlimit(RLIMIT_AS, &before) == 0 && taken && read.rlim_cur == now.rlim_cur;
}

inline constexpr const char* no_limit_on_addresses = "a limit on addresses has no effect here (qemu-user ignores it)";

} // namespace support
