// Moves data by completions, which are polled or waited for.
// SPDX-License-Identifier: BSL-1.0
#include "worker.hpp"

#include <algorithm>

namespace perf {

namespace {

using namespace std::chrono_literals;
constexpr auto answer_limit = 100ms; // after this time a datagram, or its answer, counts as lost

class event_worker final : public worker {
public:
  event_worker(links& on, const parameters& run, bool client) : worker(on, run, client), source_(on.completions()) {}

  void wake() override {
    if (run_.mode == mode::waiting) source_.wake();
  }

  void run(const std::function<bool()>& condition) override {
    const bool waits = run_.mode == mode::waiting;
    for (unsigned turn = 0; !condition(); ++turn) {
      const auto done = waits ? source_.wait(longest_wait()) : source_.poll();
      for (const finished& f : done) handle(f);
      if (!done.empty() && run_.test != test::latency) last_ = clock::now();
      if (waits || turn % 16 == 0) {
        look_at_clock();
        if (run_.operation == operation::datagram && run_.there_and_back() && client_) repeat_lost();
      }
    }
  }

private:
  void start_sending() override {
    for (std::uint32_t e = 0; e < flows_.size(); ++e)
      if (run_.there_and_back())
        send_message(e);
      else
        fill(e);
  }

  /// For the events that no completion reports: the end of the time, lost datagrams.
  [[nodiscard]] dat::timeout longest_wait() const {
    if (run_.operation == operation::datagram) return 20ms;
    if (!sending_ || run_.iterations != 0) return 500ms;
    const auto left = as_timeout(run_.seconds - std::chrono::duration<double>(now_ - began_).count());
    return std::clamp<dat::timeout>(left, 1ms, 500ms);
  }

  void fill(std::uint32_t e) {
    flow& f = flows_[e];
    while (!f.free.empty() && sends_more(f) && f.credits.take()) {
      const std::uint32_t slot = f.free.back();
      f.free.pop_back();
      count_posted(f, slot);
      links_.post_request(e, slot);
    }
  }

  void send_message(std::uint32_t e) {
    flow& f = flows_[e];
    if (!sends_more(f)) return;
    f.waits_for_answer = true;
    ++f.sequence;
    count_posted(f, 0);
    links_.post_message(e, f.sequence);
  }

  void handle(const finished& what) {
    const std::uint32_t e = what.of.endpoint;
    flow& f = flows_[e];
    switch (what.of.what) {
    case ticket::kind::request:
      if (run_.there_and_back()) return; // its answer counts
      if (run_.atomic()) links_.check_word(e, what.of.slot);
      count_completed(f, what.of.slot);
      f.free.push_back(what.of.slot);
      return fill(e);
    case ticket::kind::credit:
      --f.credits_under_way;
      return return_credits(e);
    case ticket::kind::receive:
      links_.post_receive(e, what.of.slot);
      last_arrival_ = clock::now();
      if (run_.there_and_back()) return client_ ? take_answer(e, what) : send_answer(e, what);
      if (links_.with_credits() && links_.active() && what.bytes == 0) {
        ++f.credits_received;
        f.credits.give(credits_of_message());
        return fill(e);
      }
      count_received(f, what.bytes);
      return return_credits(e);
    }
  }

  void return_credits(std::uint32_t e) {
    while (takes_credits_due(flows_[e])) links_.post_credit(e);
  }

  void take_answer(std::uint32_t e, const finished& what) {
    flow& f = flows_[e];
    if (run_.operation == operation::datagram && (!f.waits_for_answer || what.immediate != f.sequence)) return; // late
    f.waits_for_answer = false;
    count_received(f, what.bytes);
    count_completed(f, 0);
    send_message(e);
  }

  void send_answer(std::uint32_t e, const finished& what) {
    count_received(flows_[e], what.bytes);
    links_.post_message(e, what.immediate);
  }

  void repeat_lost() {
    for (std::uint32_t e = 0; e < flows_.size(); ++e) {
      flow& f = flows_[e];
      if (!f.waits_for_answer || now_ - f.began[0] < answer_limit) continue;
      f.waits_for_answer = false;
      ++f.lost;
      --under_way_;
      send_message(e);
    }
  }

  completion_source& source_;
};

} // namespace

std::unique_ptr<worker> make_event_worker(links& on, const parameters& run, bool client) {
  return std::make_unique<event_worker>(on, run, client);
}

} // namespace perf
