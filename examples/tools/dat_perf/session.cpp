// One run of a test, from the start to counts that agree.
// SPDX-License-Identifier: BSL-1.0
#include "session.hpp"

#include <fmt/format.h>

#include <optional>
#include <stdexcept>

namespace perf {

namespace {

/// Wakes the worker while messages may arrive.
struct waker {
  waker(control& peer, worker& with) : peer_(peer) {
    peer.on_arrival([&with] { with.wake(); });
  }
  waker(const waker&) = delete;
  waker& operator=(const waker&) = delete;
  ~waker() { peer_.on_arrival({}); }
  control& peer_;
};

void same(const std::vector<std::uint64_t>& sent, const std::vector<std::uint64_t>& arrived) {
  for (std::size_t e = 0; e < sent.size(); ++e)
    if (arrived.size() != sent.size() || arrived[e] != sent[e])
      throw std::runtime_error(
          fmt::format("the counts of endpoint {} differ: {} operations were sent, and the peer has "
                      "counted {}",
                      e, sent[e], e < arrived.size() ? arrived[e] : 0));
}

} // namespace

namespace {

outcome run_to_end(control& peer, links& on, worker& with, const parameters& run, observer seen) {
  outcome out;
  const waker wakes(peer, with);
  std::optional<ended> theirs;
  // Throws when the peer fails or ends meanwhile.
  const auto take = [&] {
    if (peer.arrived() && !theirs) theirs = peer.expect<ended>();
    peer.check();
  };
  // A copy: the atomics of the peer change the words.
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
  const std::vector<std::uint64_t> words_before = on.words();
  if (on.active()) {
    with.start(std::move(seen));
    with.run([&] {
      take();
      return with.sending_over();
    });
  }
  out.mine = {with.sent(), with.seconds()};
  peer.send(out.mine);
  if (on.receives()) {
    with.run([&] {
      take();
      return theirs && with.all_received(theirs->sent);
    });
  } else if (!theirs) {
    theirs = peer.expect<ended>(false); // has no limit, because it lasts as long as the peer's test
  }
  out.theirs = *theirs;

  received mine{with.received(), with.credits_sent()};
  if (run.atomic()) {
    mine.counts = on.words();
    for (std::size_t e = 0; e < words_before.size(); ++e) mine.counts[e] -= words_before[e];
  }
  peer.send(mine);
  out.arrived_there = peer.expect<received>();
  if (on.active() && run.operation != operation::datagram && (run.with_receives() || run.atomic()))
    same(out.mine.sent, out.arrived_there.counts);
  if (on.with_credits())
    with.run([&] {
      peer.check();
      return with.all_credits(out.arrived_there.credits);
    });
  return out;
}

} // namespace

outcome exchange(control& peer, links& on, worker& with, const parameters& run, observer seen) {
  try {
    return run_to_end(peer, on, with, run, std::move(seen));
  } catch (const std::exception&) {
    peer.explain();
    throw;
  }
}

} // namespace perf
