// File descriptors owned by the library, and the few system calls made on them.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

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

/// An eventfd that is readable from `raise` to `clear`. A thread may raise it while another thread opens it.
class wake_fd {
public:
  wake_fd() noexcept = default;
  wake_fd(const wake_fd&) = delete;
  wake_fd& operator=(const wake_fd&) = delete;
  ~wake_fd() {
    if (get() >= 0) ::close(get());
  }

  /// Returns 0 or errno.
  [[nodiscard]] int open() noexcept {
    const int fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0) return errno;
    fd_.store(fd, std::memory_order_release);
    return 0;
  }
  /// -1 until it is open.
  [[nodiscard]] int get() const noexcept { return fd_.load(std::memory_order_acquire); }
  void raise() const noexcept {
    const std::uint64_t one = 1;
    // Only EAGAIN is possible (counter at its limit), and the descriptor is then already readable.
    [[maybe_unused]] const auto n = ::write(get(), &one, sizeof one);
  }
  void clear() const noexcept {
    std::uint64_t count;
    [[maybe_unused]] const auto n = ::read(get(), &count, sizeof count);
  }

private:
  std::atomic<int> fd_{-1};
};

}}} // namespace dat::v0::detail
