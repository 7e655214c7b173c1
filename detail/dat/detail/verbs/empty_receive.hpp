// Receives without a segment, for drivers that refuse them.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>

namespace dat { inline namespace v0 { namespace detail {

/// Posts a chain of receives whose first receive a driver (libsiw) has refused because it has no segment. Posts one at
/// a time, and adds a segment of length 0 to each empty one. Other devices do not get such a segment: to some of them a
/// length of 0 means 2^31 bytes. `post(wr, bad)` posts a chain. Returns 0 or the errno, and then `bad`.
template <class Post>
[[nodiscard, gnu::cold]] int post_empty_receives(ibv_recv_wr* first, ibv_recv_wr*& bad, Post post) noexcept {
  for (ibv_recv_wr* wr = first; wr; wr = wr->next) {
    ibv_sge none{};
    ibv_recv_wr one = *wr;
    one.next = nullptr;
    if (one.num_sge == 0) {
      one.sg_list = &none;
      one.num_sge = 1;
    }
    ibv_recv_wr* refused = nullptr;
    bad = wr;
    if (const int err = post(&one, &refused); err != 0) return err;
  }
  return 0;
}

/// Whether a driver has refused a receive because the receive has no segment.
[[nodiscard]] inline bool refused_for_emptiness(int err, const ibv_recv_wr* bad) noexcept {
  return (err == EINVAL || err == -EINVAL) && bad && bad->num_sge == 0;
}

}}} // namespace dat::v0::detail
