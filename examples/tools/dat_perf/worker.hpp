// Moves the data of one side during a run, and counts it.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "histogram.hpp"
#include "links.hpp"

#include <dat/credits.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace perf {

/// One endpoint in one run.
struct flow {
  flow(const links& on, std::uint32_t depth);

  dat::send_credits credits;            ///< messages for which the peer has receives
  std::uint32_t owed = 0;               ///< receives that are posted again, and not yet credited
  std::vector<std::uint32_t> free;      ///< places of requests
  std::vector<clock::time_point> began; ///< the start of the operation in each place
  std::uint64_t posted = 0, completed = 0, received = 0, lost = 0;
  std::uint64_t credits_sent = 0, credits_received = 0;
  std::uint32_t credits_under_way = 0;
  std::uint32_t sequence = 0; ///< the number of a message there and back, and of its answer
  bool waits_for_answer = false;
  histogram times;
};

/// Called from time to time during a run, with the number of operations so far.
using observer = std::function<void(clock::time_point, std::uint64_t)>;

class worker {
public:
  virtual ~worker() = default;
  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;

  /// Prepares a run with operations of `size` bytes. The peer may send from now on.
  void begin(std::uint32_t size);
  /// Begins to send.
  void start(observer seen);
  /// Moves data until `condition` is true. Checks the condition after each event, wake included.
  virtual void run(const std::function<bool()>& condition) = 0;
  virtual void wake() = 0;

  /// Whether all operations of this run are done.
  [[nodiscard]] bool sending_over() const { return !sending_ && under_way_ == 0; }
  /// Whether there is something to do for a side that does not send.
  [[nodiscard]] bool has_receives() const { return links_.receive_slots() != 0; }
  /// Whether everything has arrived that the peer has sent. Datagrams may be lost, so for them: whether nothing has
  /// come for a while.
  [[nodiscard]] bool all_received(const std::vector<std::uint64_t>& sent) const;
  [[nodiscard]] bool all_credits(const std::vector<std::uint64_t>& sent) const;

  [[nodiscard]] std::vector<std::uint64_t> sent() const;
  [[nodiscard]] std::vector<std::uint64_t> received() const;
  [[nodiscard]] std::vector<std::uint64_t> credits_sent() const;
  [[nodiscard]] std::uint64_t lost() const; ///< messages there and back without an answer
  [[nodiscard]] double seconds() const;     ///< from start to the last completion
  [[nodiscard]] histogram times() const;    ///< of all endpoints

protected:
  worker(links& on, const parameters& run, bool client) : links_(on), run_(run), client_(client) {}
  virtual void start_sending() = 0;

  /// Whether endpoint `e` sends another operation in this run.
  [[nodiscard]] bool sends_more(const flow& f) const {
    return sending_ && (run_.iterations == 0 || f.posted < run_.iterations + warm_up());
  }
  [[nodiscard]] std::uint64_t warm_up() const { return run_.test == test::latency ? run_.warm_up : 0; }
  void count_posted(flow& f, std::uint32_t slot) {
    ++f.posted;
    ++under_way_;
    if (++posted_ == (run_.iterations + warm_up()) * run_.endpoints && run_.iterations != 0) sending_ = false;
    if (run_.test == test::latency) f.began[slot] = clock::now();
  }
  /// A credit message of the peer returns this number of credits.
  [[nodiscard]] std::uint32_t credits_of_message() const { return run_.depth > 1 ? run_.depth / 2 : 1; }
  /// Whether the next message with credits is due, which the caller then posts.
  [[nodiscard]] bool takes_credits_due(flow& f);
  void count_completed(flow& f, std::uint32_t slot);
  /// Checks the length of a message, and counts it.
  void count_received(flow& f, std::uint32_t bytes);
  /// Checks the clock: ends the run when its time is over, and reports to the observer.
  void look_at_clock();

  links& links_;
  const parameters& run_;
  bool client_;
  std::deque<flow> flows_;
  std::uint32_t size_ = 0;
  bool sending_ = false;
  std::uint64_t under_way_ = 0, posted_ = 0, completed_ = 0; // of all endpoints
  clock::time_point now_, began_, last_, last_arrival_;

private:
  observer seen_;
};

[[nodiscard]] std::unique_ptr<worker> make_worker(links& on, const parameters& run, bool client);
[[nodiscard]] std::unique_ptr<worker> make_event_worker(links& on, const parameters& run, bool client);
[[nodiscard]] std::unique_ptr<worker> make_coroutine_worker(links& on, const parameters& run, bool client);

} // namespace perf
