// What a shared receive queue leaves behind when it ends, and what it asks of the device when its size changes.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/srq.hpp>

namespace srq_ends_tests {

using namespace unit;
using dat::return_subtype;
using dat::return_type;

namespace {

/// The work entry that the next post to a queue takes.
const void* next_entry(const dat::srq& srq) {
  auto& queue = *dat::detail::core_access::of(srq);
  dat::detail::work_entry* e = nullptr;
  REQUIRE(queue.take(e));
  queue.give_back(*e);
  return e;
}

/// A world whose devices resize shared queues and report their sizes.
struct resizable {
  fake::with manner{fake::current(), [](fake::manners& m) { m.srq_resize = m.srq_query = true; }};
  clean_world world;
  end a;
  dat::srq srq = must(a.pz.create_srq({.max_recv_dtos = 31}));
  std::size_t fill() {
    std::size_t posted = 0;
    while (srq.post(dat::recv{a.at(0, 8)})) ++posted;
    return posted;
  }
  [[nodiscard]] std::uint32_t size() const { return must(srq.query()).max_recv_dtos; }
};

} // namespace

TEST_CASE("the work entries of a shared queue that has ended serve the next queue", "[srq]") {
  const clean_world world;
  end e;
  auto srq = must(e.pz.create_srq({.max_recv_dtos = 100}));
  const void* const first = next_entry(srq);
  must(srq.close());
  srq = must(e.pz.create_srq({.max_recv_dtos = 100}));
  CHECK(next_entry(srq) == first);
}

TEST_CASE("a shared queue that has ended has no free entry", "[srq]") {
  const clean_world world;
  end e;
  auto srq = must(e.pz.create_srq({.max_recv_dtos = 3}));
  const auto core = dat::detail::core_access::of(srq);
  must(srq.close());
  dat::detail::work_entry* entry = nullptr;
  CHECK_FALSE(core->take(entry));
}

TEST_CASE("completions of a shared queue that has ended lead to no entry", "[srq]") {
  const clean_world world;
  end e;
  auto srq = must(e.pz.create_srq({.max_recv_dtos = 3}));
  const auto ia = dat::detail::core_access::of(e.ia);
  std::vector<std::uint64_t> ids;
  auto& queue = *dat::detail::core_access::of(srq);
  std::vector<dat::detail::work_entry*> entries;
  for (dat::detail::work_entry* one = nullptr; queue.take(one);) entries.push_back(one);
  for (auto* one : entries) {
    ids.push_back(one->id());
    CHECK(ia->work.find(one->id()) == one);
    queue.give_back(*one);
  }
  must(srq.close());
  for (const std::uint64_t id : ids) CHECK(ia->work.find(id) == nullptr);
  CHECK(ids.size() >= 3);
}

TEST_CASE("a shared queue that keeps its size asks nothing of the device", "[srq]") {
  resizable r;
  const auto modified = fake::count(fake::call::ibv_modify_srq);
  const auto queried = fake::count(fake::call::ibv_query_srq);
  must(r.srq.resize(31));
  CHECK(fake::count(fake::call::ibv_modify_srq) == modified);
  CHECK(fake::count(fake::call::ibv_query_srq) == queried);
}

TEST_CASE("a shared queue takes its old entries again when it grows after it has shrunk", "[srq]") {
  resizable r;
  for (int round = 0; round < 3; ++round) {
    must(r.srq.resize(7));
    CHECK(r.size() == 7);
    CHECK(r.fill() == 7);
    CHECK(must(r.srq.query()).outstanding == 7);
    is_error(r.srq.resize(3), return_type::invalid_state, return_subtype::srq_in_use);
    CHECK(r.size() == 7);
    must(r.srq.resize(63));
    CHECK(r.size() == 63);
    CHECK(must(r.srq.query()).outstanding == 7);
    CHECK(r.fill() == 56);
    CHECK(must(r.srq.query()).available == 63);
    must(r.srq.close());
    r.srq = must(r.a.pz.create_srq({.max_recv_dtos = 31}));
  }
}

TEST_CASE("a shared queue that cannot shrink keeps every entry", "[srq]") {
  resizable r;
  for (int i = 0; i < 20; ++i) must(r.srq.post(dat::recv{r.a.at(0, 8)}));
  for (int i = 0; i < 5; ++i) {
    is_error(r.srq.resize(19), return_type::invalid_state, return_subtype::srq_in_use);
    CHECK(must(r.srq.query()).outstanding == 20);
  }
  CHECK(r.fill() == 11);
}

TEST_CASE("the size of a shared queue and its low watermark limit each other exactly", "[srq]") {
  resizable r;
  must(r.srq.set_low_watermark(31));
  is_error(r.srq.set_low_watermark(32), return_type::invalid_parameter, return_subtype::arg2);
  must(r.srq.set_low_watermark(15));
  is_error(r.srq.resize(14), return_type::invalid_state, return_subtype::srq_in_use);
  must(r.srq.resize(15));
  CHECK(r.size() == 15);
  CHECK(must(r.srq.query()).low_watermark == 15);
}

} // namespace srq_ends_tests
