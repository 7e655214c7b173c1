// The rings of posted work, and the arena that finds an entry by the wr_id of a completion.
// SPDX-License-Identifier: BSL-1.0
#include <dat/detail/work/work_arena.hpp>

#include <support/catch.hpp>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace ring_tests {

using namespace dat::detail;

namespace {

constexpr work_kind sends = kind_of_work(dat::dto_operation::send);

/// A ring in an array of its own.
struct ring_of {
  explicit ring_of(std::uint32_t capacity) : entries(capacity + 1) {
    ring.place(entries.data(), capacity, nullptr, sends);
  }
  work_entry* post(std::uint64_t cookie) {
    work_entry* e = ring.next();
    e->posted.cookie = dat::cookie(cookie);
    ring.set_next(e->next);
    return e;
  }
  [[nodiscard]] bool has_room(std::uint32_t n) const { return ring.has_room(ring.next(), n); }
  std::vector<work_entry> entries;
  work_ring ring;
};

std::uint64_t cookie_of(const work_entry& e) { return work_ring::read(e).cookie.value(); }

struct arena : work_arena {
  arena() { REQUIRE(reserve() == 0); }
};

} // namespace

TEST_CASE("a kind of work is recognised when it is joined with any status") {
  std::set<std::int64_t> seen;
  for (int op = 0; op <= 15; ++op)
    for (std::int32_t status = 0; status < 32; ++status)
      CHECK(seen.insert(static_cast<std::int32_t>(kind_of_work(static_cast<dat::dto_operation>(op))) | status).second);
  for (const work_kind own : {marker_work, pre_connect_recv_work})
    CHECK(seen.insert(static_cast<std::int32_t>(own)).second);
  CHECK(posted_work{{}, 0, pre_connect_recv_work}.operation() == dat::dto_operation::recv);
  CHECK(posted_work{{}, 0, pre_connect_recv_work}.is_receive());
  CHECK(posted_work{{}, 0, kind_of_work(dat::dto_operation::recv)}.is_receive());
  CHECK_FALSE(posted_work{{}, 0, kind_of_work(dat::dto_operation::rdma_read)}.is_receive());
  CHECK(posted_work{{}, 0, kind_of_work(dat::dto_operation::rdma_read)}.operation() == dat::dto_operation::rdma_read);
}

TEST_CASE("a ring takes exactly its capacity", "[DTO-072][COMP-002]") {
  for (const std::uint32_t capacity : {1u, 2u, 3u, 7u, 8u, 63u, 64u, 65u}) {
    ring_of r(capacity);
    INFO(capacity);
    CHECK(r.ring.capacity() == capacity);
    work_entry* first = r.ring.next();
    for (std::uint32_t i = 0; i < capacity; ++i) {
      REQUIRE(r.has_room(1));
      CHECK(r.has_room(capacity - i));
      CHECK_FALSE(r.has_room(capacity - i + 1));
      r.post(i);
    }
    CHECK_FALSE(r.has_room(1));
    CHECK(r.ring.used() == capacity);
    work_ring::retire(*first);
    CHECK(r.has_room(1));
    CHECK_FALSE(r.has_room(2));
    work_ring::retire(*r.ring.before(r.ring.next()));
    CHECK(r.ring.used() == 0);
    CHECK(r.has_room(capacity));
  }
}

TEST_CASE("retiring an entry frees the suppressed ones before it", "[COMP-004][DTO-072]") {
  ring_of r(8);
  work_entry* last = nullptr;
  for (std::uint64_t i = 0; i < 8; ++i) last = r.post(100 + i);
  CHECK(cookie_of(*last) == 107);
  work_ring::retire(*last);
  CHECK(r.ring.used() == 0);
}

TEST_CASE("completions are taken as they come, set aside, and taken as they come again", "[COMP-010]") {
  ring_of r(6);
  for (std::uint64_t round = 0; round < 20; ++round) {
    INFO(round);
    std::vector<work_entry*> e;
    for (std::uint64_t i = 0; i < 6; ++i) e.push_back(r.post(i));
    r.ring.retire_next(*e[round % 2]);
    CHECK(r.ring.used() == 5 - round % 2);
    const std::uint32_t older = r.ring.position(*e[2]), newer = r.ring.position(*e[3]);
    r.ring.retire_through(*e[3], newer);
    CHECK(r.ring.used() == 2);
    r.ring.retire_through(*e[2], older); // taken later than the newer one: frees no entry, and reuses none
    CHECK(r.ring.used() == 2);
    r.ring.retire_next(*e[5]);
    CHECK(r.ring.used() == 0);
  }
}

TEST_CASE("retiring up to an entry frees nothing that was posted after it, and nothing twice") {
  ring_of r(4);
  for (std::uint64_t round = 0; round < 6; ++round) {
    CAPTURE(round);
    (void)r.post(1);
    work_entry* const last = r.post(2);
    work_entry* const later = r.post(3);
    r.ring.retire_up_to(*last);
    CHECK(r.ring.used() == 1);
    r.ring.retire_up_to(*last);
    CHECK(r.ring.used() == 1);
    CHECK(r.ring.holds(*later));
    work_ring::retire(*later);
    CHECK(r.ring.used() == 0);
  }
}

TEST_CASE("a ring of the largest size takes all of its requests in one call") {
  const ring_of r(max_ring);
  CHECK(r.has_room(max_ring));
  CHECK_FALSE(r.has_room(max_ring + 1));
}

TEST_CASE("the work of a send tells whether it has immediate data, and its length") {
  for (const auto o : {dat::dto_operation::send, dat::dto_operation::send_immediate}) {
    posted_work w;
    w.set(longest_message, kind_of_work(o));
    CHECK(w.operation() == o);
    CHECK(w.bytes() == longest_message);
    CHECK_FALSE(w.is_receive());
    CHECK(w.notifies());
    CHECK_FALSE(w.is_internal());
    CHECK(w.is_plain_success(IBV_WC_SUCCESS));
  }
}

TEST_CASE("only the success of an ordinary operation is a plain one") {
  const auto plain = [](work_kind k, ibv_wc_status s) { return posted_work{{}, 0, k}.is_plain_success(s); };
  for (const work_kind k : {sends, kind_of_work(dat::dto_operation::recv), kind_of_work(dat::dto_operation::rdma_read),
                            kind_of_work(dat::dto_operation::bind)}) {
    CHECK(plain(k, IBV_WC_SUCCESS));
    CHECK_FALSE(plain(k, IBV_WC_WR_FLUSH_ERR));
    for (const std::int32_t bit : {pre_connect_bit, no_notify_bit, shared_bit, internal_bit, first_half_bit, own_bit})
      CHECK_FALSE(plain(with_bits(k, bit), IBV_WC_SUCCESS));
  }
  CHECK_FALSE(plain(marker_work, IBV_WC_SUCCESS));
}

TEST_CASE("a ring retires what was posted, in a million random steps", "[DTO-036][COMP-010]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (const std::uint32_t capacity : {1u, 5u, 64u, 1000u}) {
    ring_of r(capacity);
    struct posted {
      std::uint64_t cookie;
      work_entry* entry;
    };
    std::deque<posted> model;
    std::uint64_t next = 0;
    bool good = true;
    for (int step = 0; step < 250'000 && good; ++step) {
      const auto n = static_cast<std::uint32_t>(1 + random() % 4);
      good = good && r.has_room(n) == (model.size() + n <= capacity) && r.ring.used() == model.size();
      if (random() % 2 == 0) {
        if (!r.has_room(n)) continue;
        for (std::uint32_t i = 0; i < n; ++i, ++next) model.push_back({next, r.post(next)});
      } else if (!model.empty()) {
        // Completes one of the operations: those before it were suppressed.
        const auto which = random() % std::min<std::size_t>(model.size(), 3);
        const auto& p = model[which];
        good = good && cookie_of(*p.entry) == p.cookie;
        work_ring::retire(*p.entry);
        model.erase(model.begin(), model.begin() + static_cast<std::ptrdiff_t>(which) + 1);
      }
    }
    CHECK(good);
  }
}

TEST_CASE("entries that are taken out of order are freed once, in a million random steps", "[COMP-003]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (const std::uint32_t capacity : {1u, 4u, 64u, 100u}) {
    ring_of r(capacity);
    struct posted {
      std::uint64_t cookie;
      work_entry* entry;
    };
    struct waiting_completion {
      work_entry* entry;
      std::uint32_t position;
    };
    std::deque<posted> outstanding;          // posted, in order; the device completes from the front
    std::vector<waiting_completion> waiting; // completions that no thread has taken yet
    std::uint32_t freed = 0;                 // number of free posts, by the model
    std::uint32_t made = 0;
    std::uint32_t expected = 0;
    bool good = true;
    for (int step = 0; step < 250'000 && good; ++step) {
      good = good && r.ring.used() == made - freed;
      switch (random() % 3) {
      case 0:
        if (r.has_room(1)) outstanding.push_back({made, r.post(made)}), ++made;
        break;
      case 1:
        if (!outstanding.empty()) { // the device completes an operation, and the completion is queued
          work_entry* e = outstanding.front().entry;
          waiting.push_back({e, r.ring.position(*e)});
          good = good && waiting.back().position == ++expected && cookie_of(*e) == outstanding.front().cookie;
          outstanding.pop_front();
        }
        break;
      default:
        if (!waiting.empty()) { // a thread takes one of the completions, not always the first
          const auto which = static_cast<std::ptrdiff_t>(random() % waiting.size());
          const auto taken = waiting[static_cast<std::size_t>(which)];
          r.ring.retire_through(*taken.entry, taken.position);
          waiting.erase(waiting.begin() + which);
          freed = std::max(freed, taken.position);
        }
        break;
      }
      // An operation that is outstanding at the device is never counted as free.
      good = good && r.ring.used() >= outstanding.size();
    }
    CHECK(good);
  }
}

TEST_CASE("an arena finds entries by their present wr_id only", "[COMP-074][COMP-075]") {
  arena a;
  for (const std::uint64_t id : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{128}, std::uint64_t{1} << 32,
                                 std::uint64_t{0xffffffff}, ~std::uint64_t{0}, std::uint64_t{1} << 63})
    CHECK(a.find(id) == nullptr);
  work_entry* block = a.allocate(10);
  REQUIRE(block);
  CHECK(a.find(0) == nullptr); // 0 is no wr_id
  const auto first = a.renew(block, 10);
  REQUIRE(first != 0);
  CHECK(a.find(first) == block);
  CHECK(a.find(block[9].id()) == block + 9);
  CHECK(a.find(first + 1) == nullptr); // a number between two entries
  const auto second = a.renew(block, 10);
  CHECK(second != first);
  CHECK(a.find(first) == nullptr);
  CHECK(a.find(second) == block);
  work_arena::forget(block, 10);
  CHECK(a.find(second) == nullptr);
  a.free(block, 10);
  work_entry* again = a.allocate(10);
  CHECK(again == block); // used again
  const auto third = a.renew(again, 10);
  CHECK(a.find(second) == nullptr);
  CHECK(a.find(third) == again);
}

TEST_CASE("an arena agrees with a map through random steps, with blocks of all sizes", "[COMP-074]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  arena a;
  struct block {
    work_entry* first;
    std::uint32_t n;
  };
  std::map<std::uint64_t, block> model; // found by the wr_id of the first entry
  std::vector<std::uint64_t> stale;
  bool good = true;
  const auto disjoint = [&](const block& b) {
    return std::none_of(model.begin(), model.end(), [&](const auto& m) {
      return b.first < m.second.first + m.second.n && m.second.first < b.first + b.n;
    });
  };
  for (int step = 0; step < 40'000 && good; ++step) {
    const auto any = [&] { return std::next(model.begin(), static_cast<std::ptrdiff_t>(random() % model.size())); };
    switch (random() % 4) {
    case 0:
      if (model.size() < 50) {
        const auto n = static_cast<std::uint32_t>(random() % 4 == 0 ? 1 + random() % 5000 : 1 + random() % 60);
        const block b{a.allocate(n), n};
        good = good && b.first && disjoint(b) && a.find(b.first[n - 1].id()) == nullptr;
        model[a.renew(b.first, n)] = b;
      }
      break;
    case 1:
      if (!model.empty()) {
        const auto it = any();
        const block b = it->second;
        stale.push_back(it->first);
        stale.push_back(b.first[b.n - 1].id());
        model.erase(it);
        const auto id = a.renew(b.first, b.n);
        good = good && !model.contains(id);
        model[id] = b;
      }
      break;
    case 2:
      if (!model.empty()) {
        const auto it = any();
        stale.push_back(it->first);
        work_arena::forget(it->second.first, it->second.n);
        a.free(it->second.first, it->second.n);
        model.erase(it);
      }
      break;
    default:
      for (const auto& [id, b] : model) {
        const work_entry* last = b.first + b.n - 1;
        good = good && a.find(id) == b.first && a.find(last->id()) == last;
      }
      if (stale.size() > 64) stale.erase(stale.begin(), stale.end() - 64);
      for (const auto id : stale) good = good && a.find(id) == nullptr;
    }
  }
  CHECK(good);
}

TEST_CASE("an arena without room for a block refuses it, and still has room for smaller ones") {
  arena a;
  work_entry* small = a.allocate(1);
  REQUIRE(small);
  CHECK(a.allocate(128 * max_ring) == nullptr); // more than the whole arena
  a.free(small, 1);
  CHECK(a.allocate(1) == small);
}

} // namespace ring_tests
