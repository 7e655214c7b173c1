// Descriptors that a forked child does not inherit: Linux copies all descriptors, and the child closes these.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/control_mutex.hpp>
#include <dat/detail/base/intrusive_list.hpp>

#include <mutex>
#include <new>
#include <unistd.h>

namespace dat { inline namespace v0 { namespace detail {

/// A descriptor that the child of a fork closes, while it is in the list of the process.
class closed_on_fork : public list_node {
public:
  closed_on_fork() noexcept = default;
  closed_on_fork(const closed_on_fork&) = delete;
  closed_on_fork& operator=(const closed_on_fork&) = delete;
  ~closed_on_fork() { forget(); }

  void remember(int fd) noexcept {
    const std::lock_guard lock(all().mutex);
    fd_ = fd;
    all().list.push_back(*this);
  }
  void forget() noexcept {
    const std::lock_guard lock(all().mutex);
    unlink();
  }

  // For pthread_atfork. Between the first and one of the others the list does not change.
  static void before_fork() noexcept { all().mutex.lock(); }
  static void in_parent() noexcept { all().mutex.unlock(); }
  static void in_child() noexcept {
    while (closed_on_fork* const d = all().list.pop_front()) ::close(d->fd_);
    all().mutex.unlock();
  }

private:
  struct everything {
    control_mutex mutex;
    intrusive_list<closed_on_fork> list;
  };
  /// Lives as long as the process: handles may end after the static objects.
  [[nodiscard]] static everything& all() noexcept {
    alignas(everything) static unsigned char room[sizeof(everything)];
    static everything* const made = new (room) everything;
    return *made;
  }
  int fd_ = -1;
};

}}} // namespace dat::v0::detail
