// One adapter with a cno and an evd that notifies it, and an agent that counts its calls, on a device or on the fake.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../support/asleep.hpp"
#include <rig.hpp>
#include <support/streams.hpp>

#include <atomic>
#include <cstdint>
#include <poll.h>
#include <sys/types.h>
#include <thread>

namespace one_cno {

using rig::must;
using rig::patience;

using support::soft;

struct fixture {
  explicit fixture(const dat::ia_options& options = rig::automatic) : ia(rig::open(options)) {
    must(evd.modify_cno(cno));
  }
  dat::ia ia;
  dat::cno cno = must(ia.create_cno());
  dat::evd<soft> evd = must(ia.create_evd<soft>(8));
};

inline bool readable(int fd) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, 0) == 1;
}

inline void until_asleep(const std::atomic<pid_t>& thread) { support::until_asleep(thread, patience); }

/// Counts its calls and remembers the evd of the last call.
struct counting_agent {
  std::atomic<int> calls{0};
  std::atomic<std::uint32_t> last{~0u};
  dat::wait_proxy_agent agent() {
    return {[](void* self, dat::evd_id evd) noexcept {
              auto& a = *static_cast<counting_agent*>(self);
              a.last = evd.number();
              ++a.calls;
            },
            this};
  }
  void await(int n) const {
    while (calls < n) std::this_thread::yield();
  }
};

} // namespace one_cno
