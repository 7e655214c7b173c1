// Whether the process may read memory that is to be registered.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace dat { inline namespace v0 { namespace detail {

/// Whether a mapping of the process that overlaps [first, last) lacks the right to read.
[[nodiscard]] inline bool has_unreadable_mapping(std::uintptr_t first, std::uintptr_t last) noexcept {
  std::FILE* const maps = std::fopen("/proc/self/maps", "re");
  if (!maps) return false;
  bool found = false;
  bool at_start = true; // the end of a long line comes separately
  for (char line[256]; !found && std::fgets(line, sizeof line, maps);) {
    unsigned long from = 0, to = 0;
    char read = 0;
    if (at_start && std::sscanf(line, "%lx-%lx %c", &from, &to, &read) == 3)
      found = from < last && first < to && read != 'r';
    at_start = std::strchr(line, '\n') != nullptr;
  }
  std::fclose(maps);
  return found;
}

/// Whether the process may read all of the memory. The kernel registers memory for reading that the process may not
/// read (PROT_NONE). Memory that is not mapped at all is left to the kernel, which refuses it.
[[nodiscard]] inline bool may_read(const void* address, std::size_t length) noexcept {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t first = start & ~(page - 1);
  // Reads each page as the registration will. EINVAL: memory that cannot be read, or memory of a device, or Linux
  // before 5.14.
  if (::madvise(reinterpret_cast<void*>(first), start + length - first, MADV_POPULATE_READ) == 0 || errno != EINVAL)
    return true;
  return !has_unreadable_mapping(first, start + length);
}

}}} // namespace dat::v0::detail
