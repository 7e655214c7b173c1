// The table of calls, errno names, and the sweep over failures.
// SPDX-License-Identifier: BSL-1.0
#include "state.hpp"

#include <algorithm>
#include <cerrno>

namespace fake {

using namespace impl;

namespace {
struct row {
  const char* name;
  group of;
  int error;
};
constexpr row rows[] = {
#define X(symbol, group_, errno_) {#symbol, group::group_, errno_},
    FAKE_VERBS_CALLS(X)
#undef X
};
} // namespace

const std::vector<call>& calls() {
  static const std::vector<call> all = {
#define X(symbol, group_, errno_) call::symbol,
      FAKE_VERBS_CALLS(X)
#undef X
  };
  return all;
}
const char* name(call c) { return rows[std::size_t(c)].name; }
group group_of(call c) { return rows[std::size_t(c)].of; }
int typical_errno(call c) { return rows[std::size_t(c)].error; }

// Cases in rows.
// clang-format off
std::string errno_name(int error) {
  switch (error) {
#define N(e)                                                                                                           \
  case e:                                                                                                              \
    return #e;
    N(EPERM) N(ENOENT) N(EINTR) N(EIO) N(EBADF) N(EAGAIN) N(ENOMEM) N(EACCES) N(EFAULT) N(EBUSY) N(ENODEV) N(EINVAL)
    N(ENFILE) N(EMFILE) N(ENOSPC) N(EPIPE) N(ERANGE) N(ENOSYS) N(ENODATA) N(EPROTO) N(EOVERFLOW) N(EMSGSIZE)
    N(EPROTONOSUPPORT) N(EOPNOTSUPP) N(EAFNOSUPPORT) N(EADDRINUSE) N(EADDRNOTAVAIL) N(ENETDOWN) N(ENETUNREACH)
    N(ECONNRESET) N(EISCONN) N(ENOTCONN) N(ETIMEDOUT) N(ECONNREFUSED) N(EHOSTUNREACH) N(ECANCELED)
#undef N
  default: return "errno " + std::to_string(error);
  }
}
// clang-format on

std::string injected::text() const {
  if (!active) return "no failure";
  return std::string{name(which)} + " #" + std::to_string(nth) + " fails with " + errno_name(error);
}

bool injected::hit() const {
  if (!active) return false;
  const std::lock_guard hold{mutex()};
  // A sweep injects its failure first in a new world, so the failure has ticket 1.
  const auto& h = the_world().hits;
  return std::find(h.begin(), h.end(), std::size_t{1}) != h.end();
}

sweep_result for_each_failure(const std::function<void(const injected&)>& flow, const sweep_options& options) {
  sweep_result result;
  const auto check = [&](const injected& i) {
    if (const auto left = leaks(); !left.empty()) result.dirty.push_back(i.text() + ": " + left);
  };
  reset(options.start);
  flow({});
  check({});
  std::array<std::size_t, call_count> happened{};
  {
    const std::lock_guard hold{mutex()};
    happened = the_world().counts;
  }
  for (const auto c : calls()) {
    if (!has(options.groups, group_of(c))) continue;
    if (std::find(options.skip.begin(), options.skip.end(), c) != options.skip.end()) continue;
    const auto runs = std::min<std::size_t>(happened[std::size_t(c)], options.max_per_call);
    for (unsigned n = 1; n <= runs; ++n) {
      reset(options.start);
      const injected i{true, c, n, typical_errno(c)};
      fail(c, n, i.error);
      flow(i);
      ++result.runs;
      if (!i.hit()) result.not_hit.push_back(i.text());
      check(i);
    }
  }
  reset(options.start);
  return result;
}

} // namespace fake
