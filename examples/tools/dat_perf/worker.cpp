// Counts the operations of one side, and measures their time.
// SPDX-License-Identifier: BSL-1.0
#include "worker.hpp"

#include <fmt/format.h>

#include <stdexcept>

namespace perf {

namespace {

constexpr auto silence = std::chrono::milliseconds(300); // after the last datagram

std::uint32_t credits_of_peer(const links& on, std::uint32_t depth) {
  return on.with_credits() ? 2 * depth : ~std::uint32_t{0};
}

} // namespace

flow::flow(const links& on, std::uint32_t depth) : credits(credits_of_peer(on, depth)), began(depth) {
  for (std::uint32_t slot = depth; slot-- > 0;) free.push_back(slot);
}

void worker::begin(std::uint32_t size) {
  size_ = size;
  links_.set_size(size);
  flows_.clear();
  for (std::uint32_t e = 0; e < run_.endpoints; ++e) flows_.emplace_back(links_, run_.depth);
  under_way_ = posted_ = completed_ = 0;
  now_ = began_ = last_ = last_arrival_ = clock::now();
}

void worker::start(observer seen) {
  seen_ = std::move(seen);
  sending_ = true;
  now_ = began_ = last_ = clock::now();
  start_sending();
}

void worker::look_at_clock() {
  now_ = clock::now();
  if (!sending_) return;
  if (run_.iterations == 0 && std::chrono::duration<double>(now_ - began_).count() >= run_.seconds) sending_ = false;
  if (seen_) seen_(now_, completed_);
}

void worker::count_completed(flow& f, std::uint32_t slot) {
  --under_way_;
  ++f.completed;
  ++completed_;
  if (run_.test == test::latency) {
    last_ = clock::now();
    const std::chrono::duration<double, std::micro> taken = last_ - f.began[slot];
    if (f.completed > warm_up()) f.times.record(run_.there_and_back() ? taken.count() / 2 : taken.count());
  }
}

void worker::count_received(flow& f, std::uint32_t bytes) {
  if (bytes != size_)
    throw std::runtime_error(fmt::format("a message of {} bytes has arrived in place of one of {}", bytes, size_));
  ++f.received;
  if (links_.with_credits()) ++f.owed;
}

// At most four messages with credits are under way, because the peer has credits for twice the depth. So each of them
// finds a receive.
bool worker::takes_credits_due(flow& f) {
  if (f.owed < credits_of_message() || f.credits_under_way == links::credit_slots) return false;
  f.owed -= credits_of_message();
  ++f.credits_under_way;
  ++f.credits_sent;
  return true;
}

bool worker::all_received(const std::vector<std::uint64_t>& sent) const {
  bool all = true;
  for (std::size_t e = 0; e < flows_.size(); ++e) {
    if (flows_[e].received > sent[e])
      throw std::runtime_error(fmt::format("endpoint {} has received {} messages, and its peer has sent {}", e,
                                           flows_[e].received, sent[e]));
    all = all && flows_[e].received == sent[e];
  }
  return all || (run_.operation == operation::datagram && clock::now() - last_arrival_ > silence);
}

bool worker::all_credits(const std::vector<std::uint64_t>& sent) const {
  for (std::size_t e = 0; e < flows_.size(); ++e)
    if (flows_[e].credits_received != sent[e] || flows_[e].credits_under_way != 0) return false;
  return true;
}

namespace {
template <class Member>
std::vector<std::uint64_t> each(const std::deque<flow>& flows, Member member) {
  std::vector<std::uint64_t> out;
  out.reserve(flows.size());
  for (const flow& f : flows) out.push_back(f.*member);
  return out;
}
} // namespace

std::vector<std::uint64_t> worker::sent() const { return each(flows_, &flow::posted); }
std::vector<std::uint64_t> worker::received() const { return each(flows_, &flow::received); }
std::vector<std::uint64_t> worker::credits_sent() const { return each(flows_, &flow::credits_sent); }
std::uint64_t worker::lost() const {
  std::uint64_t sum = 0;
  for (const flow& f : flows_) sum += f.lost;
  return sum;
}
double worker::seconds() const { return std::chrono::duration<double>(last_ - began_).count(); }
histogram worker::times() const {
  histogram all;
  for (const flow& f : flows_) all.merge(f.times);
  return all;
}

std::unique_ptr<worker> make_worker(links& on, const parameters& run, bool client) {
  return run.mode == mode::coroutine ? make_coroutine_worker(on, run, client) : make_event_worker(on, run, client);
}

} // namespace perf
