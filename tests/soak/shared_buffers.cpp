// The buffers of a shared receive queue: posting them, and whether the queue has lost one.
// SPDX-License-Identifier: BSL-1.0
#include "session.hpp"

#include <dat/try.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace soak {

dat::expected<void> shared_buffers::open(dat::pz& pz, std::uint32_t count) {
  memory.resize(count * largest_message);
  posted.assign(count, false);
  DAT_TRY(region, pz.register_memory(memory, all_rights));
  DAT_TRY(queue, pz.create_srq({.max_recv_dtos = count}));
  for (std::size_t i = 0; i < count; ++i) DAT_TRYV(post(i));
  return dat::success();
}

dat::expected<void> shared_buffers::post(std::size_t buffer) {
  DAT_TRY(const auto one, region.slice(buffer * largest_message, largest_message));
  posted[buffer] = true;
  return queue.post(dat::recv{one}.cookie(buffer));
}

void shared_buffers::check(dat::pz& pz) {
  const auto q = queue.query();
  const auto all = static_cast<std::size_t>(std::count(posted.begin(), posted.end(), true));
  if (!q) return owner->violation(*place, 0, q.error().message());
  const std::size_t outstanding = q.value().outstanding;
  const auto ended = std::exchange(endpoints, 0);
  if (all == posted.size() && outstanding == all) return;
  if (all != posted.size())
    owner->violation(*place, 0, "the lane lost a buffer of its shared queue");
  else if (outstanding > all || all - outstanding > ended)
    owner->violation(*place, 0,
                     "a shared queue has " + std::to_string(outstanding) + " outstanding buffers of " +
                         std::to_string(all) + " after " + std::to_string(ended) + " endpoints");
  else
    owner->note(*place, std::to_string(all - outstanding) + " shared buffers went with endpoints that were closed");
  // Which buffers were lost is known only when the queue ends.
  const auto count = static_cast<std::uint32_t>(posted.size());
  if (auto closed = queue.close(); !closed) return owner->violation(*place, 0, closed.error().message());
  if (auto again = open(pz, count); !again) owner->violation(*place, 0, again.error().message());
}

} // namespace soak
