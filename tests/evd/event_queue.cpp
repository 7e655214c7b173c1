// The ring of a merged evd, against a std::deque.
// SPDX-License-Identifier: BSL-1.0
#include <dat/dat.hpp>

#include <dat/detail/events/event_queue.hpp>

#include <support/catch.hpp>

#include <algorithm>
#include <deque>
#include <random>

using dat::detail::event_queue;
using dat::detail::record;

namespace {

record numbered(int n) {
  record r;
  r.reason = n;
  return r;
}
int number(const record& r) { return r.reason; }

} // namespace

TEST_CASE("an event queue returns events in their order and grows as needed", "[EVENT-033]") {
  event_queue q;
  CHECK(q.empty());
  record out;
  for (int i = 0; i < 100; ++i) REQUIRE(q.push(numbered(i)));
  CHECK(q.size() == 100);
  for (int i = 0; i < 100; ++i) {
    q.pop(out);
    REQUIRE(number(out) == i);
  }
  CHECK(q.empty());
}

TEST_CASE("reserved room and queued events are kept") {
  event_queue q;
  REQUIRE(q.push(numbered(1)));
  REQUIRE(q.push(numbered(2)));
  record out;
  q.pop(out);
  REQUIRE(q.push(numbered(3)));
  REQUIRE(q.reserve(1000));
  REQUIRE(q.reserve(5)); // the queue never shrinks here
  CHECK(number(q.at(0)) == 2);
  CHECK(number(q.at(1)) == 3);
  CHECK(q.size() == 2);
}

TEST_CASE("a moved event queue has the events and the room of the other one, which can be used again") {
  event_queue first;
  REQUIRE(first.reserve(3));
  for (int i = 1; i <= 4; ++i) {
    if (i == 4) {
      record out;
      first.pop(out); // the events wrap around at the end of the memory
      CHECK(number(out) == 1);
    }
    REQUIRE(first.push(numbered(i)));
  }
  CHECK(first.capacity() == 3);
  event_queue second(std::move(first));
  CHECK(first.empty()); // NOLINT
  CHECK(first.capacity() == 0);
  CHECK(second.size() == 3);
  CHECK(second.capacity() == 3);
  for (int i = 0; i < 3; ++i) CHECK(number(second.at(static_cast<std::uint32_t>(i))) == i + 2);
  REQUIRE(first.push(numbered(9)));
  first = std::move(second);
  CHECK(first.size() == 3);
  CHECK(first.capacity() == 3);
  CHECK(number(first.at(2)) == 4);
  REQUIRE(first.push(numbered(5)));
  CHECK(number(first.at(3)) == 5);
}

TEST_CASE("an event queue agrees with a deque in a million random steps", "[EVENT-003][EVENT-040]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  event_queue q;
  std::deque<int> model;
  int next = 0;
  bool good = true;
  std::size_t longest = 0;
  for (int step = 0; step < 1'000'000 && good; ++step) {
    const auto dice = random() % 100;
    record out;
    // The queue grows and shrinks in turn, so that it wraps around at many lengths.
    if (dice < (step / 5000 % 2 == 0 ? 60u : 45u)) {
      good = q.push(numbered(next));
      model.push_back(next++);
    } else if (dice < 90 && !model.empty()) {
      q.pop(out);
      good = number(out) == model.front();
      model.pop_front();
    } else if (dice < 99 && !model.empty()) {
      const auto i = random() % std::min<std::size_t>(model.size(), 20);
      q.extract(static_cast<std::uint32_t>(i), out);
      good = number(out) == model[i];
      model.erase(model.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      const int divisor = 2 + static_cast<int>(random() % 5);
      q.erase_if([&](const record& r) { return number(r) % divisor == 0; });
      std::erase_if(model, [&](int n) { return n % divisor == 0; });
    }
    good = good && q.size() == model.size() && q.empty() == model.empty();
    if (!model.empty()) good = good && number(q.at(0)) == model.front() && number(q.at(q.size() - 1)) == model.back();
    longest = std::max(longest, model.size());
  }
  CHECK(good);
  CHECK(longest > 100);
  for (std::uint32_t i = 0; i < q.size(); ++i) good = good && number(q.at(i)) == model[i];
  CHECK(good);
}
