// File descriptors owned by the library, and the few system calls made on them.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

namespace dat::inline v0::detail {

class unique_fd {
public:
  constexpr unique_fd() noexcept = default;
  explicit constexpr unique_fd(int fd) noexcept : fd_(fd) {}
  unique_fd(unique_fd&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  unique_fd& operator=(unique_fd&& o) noexcept {
    if (this != &o) {
      reset();
      fd_ = std::exchange(o.fd_, -1);
    }
    return *this;
  }
  ~unique_fd() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  void reset() noexcept {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

private:
  int fd_ = -1;
};

/// Sets O_NONBLOCK; returns 0 or errno.
inline int make_nonblocking(int fd) noexcept {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) return errno;
  return 0;
}

/// An eventfd that is raised until somebody clears it.
class wake_fd {
public:
  /// Returns 0 or errno.
  [[nodiscard]] int open() noexcept {
    fd_ = unique_fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    return fd_ ? 0 : errno;
  }
  [[nodiscard]] int get() const noexcept { return fd_.get(); }
  void raise() const noexcept {
    const std::uint64_t one = 1;
    // Only EAGAIN is possible (counter at its limit), and then the descriptor is readable already.
    [[maybe_unused]] const auto n = ::write(fd_.get(), &one, sizeof one);
  }
  void clear() const noexcept {
    std::uint64_t count;
    [[maybe_unused]] const auto n = ::read(fd_.get(), &count, sizeof count);
  }

private:
  unique_fd fd_;
};

} // namespace dat::inline v0::detail
