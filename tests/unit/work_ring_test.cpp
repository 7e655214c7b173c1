// The rings of posted work and the table that finds an endpoint by a completion's wr_id.
// SPDX-License-Identifier: BSL-1.0
#include <dat/detail/work_ring.hpp>

#include <support/catch.hpp>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

using namespace dat::detail;

namespace {

work_entry numbered(std::uint64_t n) {
  return {dat::cookie(n), static_cast<std::uint32_t>(n), dat::dto_operation::send, entry_kind::consumer};
}

std::uint32_t post(work_ring& ring, std::uint64_t cookie) {
  const std::uint32_t tail = ring.tail();
  ring.at(tail) = numbered(cookie);
  ring.set_tail(tail + 1);
  return ring.index(tail);
}

ep_core* fake_ep(std::uintptr_t n) { return reinterpret_cast<ep_core*>(n); }

} // namespace

TEST_CASE("a wr_id is taken apart into what it was put together from") {
  const ep_tag tag = (ep_tag{0x7ffff} << slot_bits) | 0xabcde;
  const std::uint64_t id = (tag << tag_shift) | recv_bit | 0xfedcb;
  CHECK(tag_of(id) == tag);
  CHECK(slot_of(tag) == 0xabcde);
  CHECK(index_of(id) == 0xfedcb);
  CHECK((id & recv_bit) != 0);
  CHECK(tag_of(id ^ recv_bit) == tag);
}

TEST_CASE("a ring has room for as many entries as were asked for, not more", "[DTO-072][COMP-002]") {
  for (const std::uint32_t capacity : {1u, 2u, 3u, 7u, 8u, 63u, 64u, 65u}) {
    work_ring ring;
    REQUIRE(ring.allocate(capacity, 1));
    INFO(capacity);
    for (std::uint32_t i = 0; i < capacity; ++i) {
      REQUIRE(ring.has_room(ring.tail(), 1));
      post(ring, i);
    }
    CHECK_FALSE(ring.has_room(ring.tail(), 1));
    CHECK(ring.used() == capacity);
    (void)ring.retire(0);
    CHECK(ring.has_room(ring.tail(), 1));
    CHECK_FALSE(ring.has_room(ring.tail(), 2));
  }
}

TEST_CASE("retiring an entry frees the suppressed ones before it", "[COMP-004][DTO-072]") {
  work_ring ring;
  REQUIRE(ring.allocate(8, 0));
  std::uint32_t last = 0;
  for (std::uint64_t i = 0; i < 8; ++i) last = post(ring, 100 + i);
  CHECK(ring.retire(last).cookie.value() == 107);
  CHECK(ring.used() == 0);
}

TEST_CASE("a ring gives back what was posted, in a million random steps", "[DTO-036][COMP-010]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (const std::uint32_t capacity : {1u, 5u, 64u, 1000u}) {
    work_ring ring;
    REQUIRE(ring.allocate(capacity, 1));
    struct posted {
      std::uint64_t cookie;
      std::uint32_t index;
    };
    std::deque<posted> model;
    std::uint64_t next = 0;
    bool good = true;
    for (int step = 0; step < 250'000 && good; ++step) {
      const auto n = static_cast<std::uint32_t>(1 + random() % 4);
      good = good && ring.has_room(ring.tail(), n) == (model.size() + n <= capacity) && ring.used() == model.size();
      if (random() % 2 == 0) {
        if (!ring.has_room(ring.tail(), n)) continue;
        for (std::uint32_t i = 0; i < n; ++i, ++next) model.push_back({next, post(ring, next)});
      } else if (!model.empty()) {
        // A completion of one of them: those before it were suppressed.
        const auto which = random() % std::min<std::size_t>(model.size(), 3);
        const auto& p = model[which];
        good = good && ring.peek(p.index).cookie.value() == p.cookie && ring.retire(p.index).cookie.value() == p.cookie;
        model.erase(model.begin(), model.begin() + static_cast<std::ptrdiff_t>(which) + 1);
      }
    }
    CHECK(good);
  }
}

TEST_CASE("entries taken out of order free the ring once, in a million random steps", "[COMP-003]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (const std::uint32_t capacity : {1u, 4u, 64u, 100u}) {
    work_ring ring;
    REQUIRE(ring.allocate(capacity, 0));
    struct posted {
      std::uint64_t cookie;
      std::uint32_t index;
    };
    std::deque<posted> outstanding;     // posted, in order; the device completes from the front
    std::vector<std::uint32_t> waiting; // positions of completions that nobody has taken yet
    std::uint32_t head = 0;             // first position that is not free, by the model
    std::uint64_t next = 0;
    bool good = true;
    for (int step = 0; step < 250'000 && good; ++step) {
      good = good && ring.used() == ring.tail() - head;
      switch (random() % 3) {
      case 0:
        if (ring.has_room(ring.tail(), 1)) outstanding.push_back({next, post(ring, next)}), ++next;
        break;
      case 1:
        if (!outstanding.empty()) { // the device completes, the completion is queued
          waiting.push_back(ring.position(outstanding.front().index));
          good = good && ring.peek(outstanding.front().index).cookie.value() == outstanding.front().cookie;
          outstanding.pop_front();
        }
        break;
      default:
        if (!waiting.empty()) { // somebody takes one of them, not always the first
          const auto which = static_cast<std::ptrdiff_t>(random() % waiting.size());
          const std::uint32_t position = waiting[static_cast<std::size_t>(which)];
          ring.retire_through(position);
          waiting.erase(waiting.begin() + which);
          if (static_cast<std::int32_t>(position + 1 - head) > 0) head = position + 1;
        }
        break;
      }
      // What is outstanding at the device is never counted as free.
      good = good && ring.used() >= outstanding.size();
    }
    CHECK(good);
  }
}

TEST_CASE("a slot table finds endpoints by their present tag only", "[COMP-074][COMP-075]") {
  slot_table table;
  REQUIRE(table.reserve(4) == 0);
  CHECK(table.find(0) == nullptr);
  for (const ep_tag t : {ep_tag{12345}, ep_tag{max_slots - 1}, tag_of(~std::uint64_t{0})})
    CHECK(table.find(t) == nullptr);
  const auto first = table.acquire(fake_ep(1));
  REQUIRE(first != 0);
  CHECK(table.find(first) == fake_ep(1));
  const auto second = table.renew(first);
  CHECK(second != first);
  CHECK(slot_of(second) == slot_of(first));
  CHECK(table.find(first) == nullptr);
  CHECK(table.find(second) == fake_ep(1));
  table.release(second);
  CHECK(table.find(second) == nullptr);
  const auto third = table.acquire(fake_ep(2));
  CHECK(slot_of(third) == slot_of(first)); // used again
  CHECK(third != first);
  CHECK(third != second);
  CHECK(table.find(second) == nullptr);
  CHECK(table.find(third) == fake_ep(2));
}

TEST_CASE("a full slot table says so, and takes more when one has gone") {
  slot_table table;
  REQUIRE(table.reserve(3) == 0);
  std::vector<ep_tag> tags;
  for (std::uintptr_t i = 1; i <= 3; ++i) tags.push_back(table.acquire(fake_ep(i)));
  CHECK(std::set<ep_tag>(tags.begin(), tags.end()).size() == 3);
  CHECK(std::count(tags.begin(), tags.end(), 0u) == 0);
  CHECK(table.acquire(fake_ep(4)) == 0);
  table.release(tags[1]);
  CHECK(table.acquire(fake_ep(4)) != 0);
  CHECK(table.acquire(fake_ep(5)) == 0);
}

TEST_CASE("the generations of a slot go round without ever being a free slot's") {
  slot_table table;
  REQUIRE(table.reserve(1) == 0);
  auto tag = table.acquire(fake_ep(1));
  const auto first = tag;
  constexpr std::uint64_t generations = (std::uint64_t{1} << (64 - tag_shift - slot_bits)) - 1;
  std::uint64_t steps = 0;
  bool good = true;
  do {
    tag = table.renew(tag);
    good = good && tag != 0 && (tag << tag_shift >> tag_shift) == tag && slot_of(tag) == 0;
    ++steps;
  } while (tag != first && steps <= generations);
  CHECK(good);
  CHECK(steps == generations);
}

TEST_CASE("a slot table follows a map through random steps", "[COMP-074]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  slot_table table;
  constexpr std::uint32_t slots = 37;
  REQUIRE(table.reserve(slots) == 0);
  std::map<ep_tag, ep_core*> model;
  std::vector<ep_tag> stale;
  std::uintptr_t next = 1;
  bool good = true;
  for (int step = 0; step < 300'000 && good; ++step) {
    const auto any = [&] { return std::next(model.begin(), static_cast<std::ptrdiff_t>(random() % model.size())); };
    switch (random() % 4) {
    case 0: {
      const auto tag = table.acquire(fake_ep(next));
      good = good && (tag != 0) == (model.size() < slots) && !model.contains(tag);
      if (tag != 0) model[tag] = fake_ep(next++);
      break;
    }
    case 1:
      if (!model.empty()) {
        const auto it = any();
        const auto tag = table.renew(it->first);
        stale.push_back(it->first);
        good = good && !model.contains(tag);
        model[tag] = it->second;
        model.erase(stale.back());
      }
      break;
    case 2:
      if (!model.empty()) {
        const auto it = any();
        table.release(it->first);
        stale.push_back(it->first);
        model.erase(it);
      }
      break;
    default:
      for (const auto& [tag, ep] : model) good = good && table.find(tag) == ep;
      if (stale.size() > 64) stale.erase(stale.begin(), stale.end() - 64);
      for (const auto tag : stale) good = good && table.find(tag) == nullptr;
    }
  }
  CHECK(good);
}
