// The limits of a process that some tests set, and whether they have an effect here.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <support/catch.hpp>

#include <cstdint>
#include <cstdio>
#include <sys/resource.h>
#include <unistd.h>

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

/// Limits the addresses of the process to `more` bytes than it uses, while the object exists. A sanitizer needs some to
/// allocate.
class few_addresses {
public:
  explicit few_addresses(std::uint64_t more) {
    unsigned long long pages = 0;
    std::FILE* const statm = std::fopen("/proc/self/statm", "r");
    REQUIRE(statm);
    const int read = std::fscanf(statm, "%llu", &pages);
    std::fclose(statm);
    REQUIRE(read == 1);
    REQUIRE(::getrlimit(RLIMIT_AS, &before_) == 0);
    rlimit now = before_;
    now.rlim_cur = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) + more;
    REQUIRE(::setrlimit(RLIMIT_AS, &now) == 0);
  }
  few_addresses(const few_addresses&) = delete;
  few_addresses& operator=(const few_addresses&) = delete;
  ~few_addresses() { (void)::setrlimit(RLIMIT_AS, &before_); }

private:
  rlimit before_{};
};

} // namespace support
