// Helpers for consumers on a device: tracked posts, pools of registered memory, credits.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <dat/credits.hpp>
#include <dat/policies.hpp>
#include <dat/pool.hpp>

#include <cstring>
#include <fstream>
#include <memory_resource>
#include <numeric>
#include <sys/mman.h>
#include <unistd.h>

namespace device {
namespace {

std::uint32_t blamed = 0;
void blame(const dat::error& e) noexcept { blamed = e.object_id(); }

} // namespace

TEST_CASE("memory: a tracked post names the operation whose region or memory was removed",
          "[memory][policies][LMR-036]") {
  connected_pair link;
  const auto culprit_is = [&](dat::dto_operation what, std::uint64_t cookie) {
    const auto c = dat::tracked::last_offender(link.a.ia);
    REQUIRE(c);
    CHECK(c->operation == what);
    CHECK(c->cookie == dat::cookie(cookie));
    CHECK(c->ep == link.active.number());
  };
  std::vector<std::byte> bytes(64);
  auto mem = must(link.a.pz.register_memory(bytes, all_rights));
  const auto piece = must(mem.slice(0, 8));
  must(link.active.post<dat::tracked>(dat::recv{piece}.cookie(77)));
  const auto refused = error_of(mem.close());
  CHECK(refused == dat::error(type::invalid_state, subtype::lmr_in_use));
  culprit_is(dat::dto_operation::recv, 77);
  CHECK(error_of(dat::tracked::unreferenced(link.a.ia, bytes)).type() == type::invalid_state);
  must(link.passive.post(dat::send{}));
  CHECK(next<dat::recv_done>(link.a.evd).cookie() == dat::cookie(77));
  must(dat::tracked::unreferenced(link.a.ia, bytes));
  must(mem.close()); // no posted operation names the region now
  CHECK(error_of(link.active.post<dat::tracked>(dat::send{piece}.cookie(78))).type() == type::privileges_violation);
  culprit_is(dat::dto_operation::send, 78);
  CHECK(link.active.state() == state::connected);

  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* map = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(map != MAP_FAILED);
  const auto mapped = must(link.a.pz.register_memory(std::span(static_cast<std::byte*>(map), page), all_rights));
  must(link.active.post<dat::tracked>(dat::recv{mapped}.cookie(79)));
  must(dat::tracked::verify(link.a.ia));
  ::munmap(map, page);
  CHECK(error_of(dat::tracked::verify(link.a.ia)).type() == type::invalid_state);
  culprit_is(dat::dto_operation::recv, 79);
  must(link.passive.post(dat::send{})); // an empty message changes nothing
  CHECK(next<dat::recv_done>(link.a.evd).cookie() == dat::cookie(79));
  must(dat::tracked::verify(link.a.ia));

  // A destructor cannot return an error, so it calls the function of on_misuse, before the device reports the
  // operation.
  auto other = must(link.a.pz.register_memory(bytes, all_rights));
  buffer out(link.b.pz, 8);
  must(link.active.post<dat::tracked>(dat::recv{must(other.slice(0, 8))}.cookie(80)));
  dat::tracked::on_misuse(&blame);
  other = {};
  dat::tracked::on_misuse(nullptr);
  CHECK(blamed == link.active.number());
  culprit_is(dat::dto_operation::recv, 80);
  for (int i = 0; i < 2; ++i) (void)next<dat::send_done>(link.b.evd);
  must(link.passive.post(dat::send{out.lmr}));
  CHECK(next<dat::dto_failure>(link.a.evd).cookie() == dat::cookie(80));
}

TEST_CASE("memory: containers in a pool are sent and written as they are, on huge pages, too",
          "[memory][policies][pool]") {
  connected_pair link;
  using pool = dat::memory_pool<all_rights.value>;
  const auto huge_pages = [](int n) { std::ofstream("/proc/sys/vm/nr_hugepages") << n << std::flush; };
  for (const auto kind : {dat::pages::normal, dat::pages::huge}) {
    if (kind == dat::pages::huge && !in_lab()) continue;
    CAPTURE(to_string(kind));
    if (kind == dat::pages::huge && ::access("/sys/kernel/mm/hugepages", F_OK) != 0) { // such as emulated s390x
      const auto refused = error_of(pool::create(link.a.pz, 4 * 1024 * 1024, kind));
      CHECK(refused.type() == type::insufficient_resources);
      CHECK_THAT(refused.message(), support::contains_text("This system has no huge pages."));
      CHECK_FALSE(must(pool::create(link.a.pz, 4 * 1024 * 1024, dat::pages::huge_or_normal)).is_huge());
      continue;
    }
    if (kind == dat::pages::huge) huge_pages(8);
    auto from = must(pool::create(link.a.pz, 4 * 1024 * 1024, kind));
    auto to = must(pool::create(link.b.pz, 4 * 1024 * 1024, kind));
    CHECK(from.is_huge() == (kind == dat::pages::huge));
    std::optional<resources> before;
    if (kind == dat::pages::normal) before = resources::now();
    {
      std::pmr::vector<std::uint32_t> numbers(100'000, &from.resource());
      std::pmr::vector<std::uint32_t> inbox(100'000, &to.resource());
      std::iota(numbers.begin(), numbers.end(), 7u);
      must(link.passive.post(dat::recv{must(to.segment(inbox))}));
      must(link.active.post(dat::send{must(from.segment(numbers))}));
      (void)next<dat::send_done>(link.a.evd);
      CHECK(next<dat::recv_done>(link.b.evd).bytes() == 400'000);
      CHECK(numbers == inbox);
    }
    for (std::uint32_t i = 1; i < 100; ++i) { // these posts need no registration
      std::pmr::vector<std::uint32_t> numbers(i, i, &from.resource());
      std::pmr::vector<std::uint32_t> inbox(i, &to.resource());
      must(link.active.post(dat::rdma_write{must(from.segment(numbers)), must(to.remote(inbox))}));
      (void)next<dat::rdma_write_done>(link.a.evd);
      if (!arrives([&] { return numbers == inbox; })) FAIL("vector " << i);
    }
    if (before) CHECK(resources::now().count == before->count);
    CHECK((from.used_bytes() == 0 && to.used_bytes() == 0));
    if (kind == dat::pages::huge) {
      std::ifstream maps("/proc/self/smaps");
      const auto start = reinterpret_cast<std::uintptr_t>(from.region().data());
      bool inside = false;
      std::string of_it;
      for (std::string line; std::getline(maps, line);) {
        char* end = nullptr;
        const auto first = std::strtoull(line.c_str(), &end, 16);
        if (*end == '-') // a mapping: first-last
          inside = first == start;
        else if (inside && line.starts_with("KernelPageSize:"))
          of_it = line;
      }
      CHECK_THAT(of_it, support::contains_text("2048 kB"));
    }
    must(from.close());
    must(to.close());
    if (kind == dat::pages::huge) {
      huge_pages(0);
      CHECK(error_of(pool::create(link.a.pz, 4 * 1024 * 1024, kind)).type() == type::insufficient_resources);
      CHECK_FALSE(must(pool::create(link.a.pz, 4 * 1024 * 1024, dat::pages::huge_or_normal)).is_huge());
    }
  }
}

TEST_CASE("memory: credits prevent messages to a peer without receives", "[memory][policies][credits]") {
  NEEDS_FEATURE(immediate_data);
  connected_pair link({.active = {.rnr_retry_count = 0}}); // a message without a receive would break the connection
  constexpr std::uint32_t receives = 5;
  dat::send_credits there(receives);
  dat::recv_credits here(receives);
  const auto receive = [&] { must(link.passive.post(dat::recv{})); };
  for (std::uint32_t i = 0; i < receives; ++i) receive();
  for (std::uint32_t sent = 0; sent < 200;) {
    must(link.active.post(dat::recv{}));
    const auto first = sent;
    for (;; ++sent)
      if (const auto r = there.post(link.active, dat::send{}.cookie(sent)); !r) {
        CHECK(r.assume_error() == dat::error(type::insufficient_resources, subtype::resource_credits));
        SHOWS("ERR-031", "DTO-067");
        break;
      }
    CHECK(there.left() == 0);
    std::uint32_t owed = 0;
    for (auto i = first; i < sent; ++i) {
      (void)next<dat::recv_done>(link.b.evd);
      receive();
      here.reposted();
      owed += here.take(i + 1 == sent);
    }
    CHECK(owed == sent - first);
    must(link.passive.post(dat::send{}.immediate(owed)));
    (void)next<dat::send_done>(link.b.evd);
    // A device may complete the receive before the last send that the peer has answered.
    auto done = first;
    bool given = false;
    while (done != sent || !given)
      link.a.evd.drain(dat::overloaded{[&](const dat::send_done& e) { CHECK(e.cookie() == dat::cookie(done++)); },
                                       [&](const dat::ib::recv_immediate_done& e) {
                                         there.give(e.immediate());
                                         given = true;
                                       },
                                       [](const auto&) { FAIL("another event"); }});
  }
  CHECK(link.active.state() == state::connected);
}

} // namespace device
