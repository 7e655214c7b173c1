// Completions on a device: cookies, order, suppressed requests, full queues, and the flush when a connection ends.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <dat/rmr.hpp>

#include <algorithm>
#include <random>

namespace device {
namespace {

struct ending {
  dat::dto_failure first;
  std::vector<event> all;
};
/// Takes events until the connection has ended and `completions` operations have completed.
ending until_broken(queue& evd, std::size_t completions, place where = place::here()) {
  std::vector<event> all;
  std::optional<dat::dto_failure> first;
  std::size_t done = 0;
  int ended = 0;
  while (ended == 0 || done < completions) {
    all.push_back(std::move(take(evd, 1, where).front()));
    const auto& e = all.back();
    if (const auto* f = std::get_if<dat::dto_failure>(&e); f && !first) first = *f;
    if (std::holds_alternative<dat::connection_broken>(e) || std::holds_alternative<dat::disconnected>(e))
      ++ended;
    else
      ++done;
  }
  if (!is_empty(evd) || ended != 1 || done != completions || !first) fail(sequence(all), where);
  return {*first, std::move(all)};
}

} // namespace

TEST_CASE("a completion returns its cookie unchanged, unique or not",
          "[dto][DTO-036][DTO-037][DTO-046][COMP-010][MODEL-008][REQ-099][REQ-133]") {
  connected_pair link;
  int thing = 0;
  const dat::cookie cookies[] = {0, ~std::uint64_t{0}, &thing, &link.active, 7, 7, 7, 7, -1};
  for (const auto c : cookies) {
    must(link.passive.post(dat::recv{}.cookie(c)));
    must(link.active.post(dat::send{}.cookie(c)));
  }
  for (const auto c : cookies) {
    CHECK(next<dat::send_done>(link.a.evd).cookie() == c);
    CHECK(next<dat::recv_done>(link.b.evd).cookie() == c);
  }
  CHECK(is_empty(link.a.evd));
  CHECK(is_empty(link.b.evd));
}

TEST_CASE("operations complete in the order of their posting, each once", "[dto]") {
  NEEDS_FEATURE(immediate_data);
  const dat::ep_attributes wide{.max_request_dtos = 128, .max_recv_dtos = 128};
  connected_pair link({.active = wide, .passive = wide});
  std::mt19937 random(random_seed());
  INFO("DAT_TEST_SEED=" << random_seed());
  buffer mine(link.a.pz, 4096);
  buffer theirs(link.b.pz, 4096);
  std::uint64_t receive = 0;
  for (int round = 0; round < 8; ++round) {
    // kinds: 0 send, 1 send with immediate, 2 write with immediate (these three use a receive), 3 write, 4 read
    std::vector<int> kinds;
    std::uint64_t messages = 0;
    for (std::uint64_t i = 0; i < 100; ++i) {
      const int kind = static_cast<int>(random() % 5);
      kinds.push_back(kind);
      const auto piece = mine.slice(random() % 2048, random() % 2048);
      const auto target = theirs.remote();
      if (kind <= 2) {
        ++messages;
        must(link.passive.post(dat::recv{theirs.slice(0, 4096)}.cookie(receive++)));
      }
      if (kind == 0) must(link.active.post(dat::send{piece}.cookie(i)));
      if (kind == 1) must(link.active.post(dat::send{piece}.immediate(1).cookie(i)));
      if (kind == 2) must(link.active.post(dat::rdma_write{piece, target}.immediate(2).cookie(i)));
      if (kind == 3) must(link.active.post(dat::rdma_write{piece, target}.cookie(i)));
      if (kind == 4) must(link.active.post(dat::rdma_read{piece, target}.cookie(i)));
    }
    const auto done = take(link.a.evd, 100);
    std::uint64_t last_read = 0;
    std::uint64_t last_other = 0;
    std::vector<int> seen(100);
    for (const auto& e : done) {
      const auto one = std::visit(
          []<class E>(const E& c) -> std::pair<std::uint64_t, bool> {
            if constexpr (std::is_base_of_v<dat::transfer, E>)
              return {c.cookie().value(), std::is_same_v<E, dat::rdma_read_done>};
            else
              fail(describe(c), place::here());
          },
          e);
      ++seen[static_cast<std::size_t>(one.first)];
      CHECK((kinds[static_cast<std::size_t>(one.first)] == 4) == one.second);
      // Reads are in order among themselves, and so are the other requests.
      auto& last = one.second ? last_read : last_other;
      CHECK(one.first + 1 > last);
      SHOWS("DTO-091", "IBX-027", "COMP-081", "REQ-086", "REQ-091", "EVENT-033");
      last = one.first + 1;
    }
    CHECK(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
    SHOWS("DTO-046", "EVENT-003", "EVENT-008", "MODEL-041", "DTO-020");
    std::uint64_t expected = receive - messages;
    std::vector<int> receiving;
    std::copy_if(kinds.begin(), kinds.end(), std::back_inserter(receiving), [](int k) { return k <= 2; });
    std::size_t at = 0;
    for (const auto& e : take(link.b.evd, messages)) {
      const int kind = std::holds_alternative<dat::recv_done>(e)                       ? 0
                       : std::holds_alternative<dat::ib::recv_immediate_done>(e)       ? 1
                       : std::holds_alternative<dat::ib::recv_write_immediate_done>(e) ? 2
                                                                                       : -1;
      CHECK(kind == receiving[at]);
      SHOWS("IBX-020", "IBX-021", "MODEL-045", "MODEL-022", "MODEL-024");
      std::visit(
          [&]<class E>(const E& c) {
            if constexpr (std::is_base_of_v<dat::transfer, E>) CHECK(c.cookie() == dat::cookie(expected));
          },
          e);
      SHOWS("DTO-125", "REQ-088", "REQ-091", "MODEL-049", "COMP-081", "EVENT-033", "REQ-150", "CONN-015");
      ++expected;
      ++at;
    }
  }
  still_works(link);
}

namespace {

/// Whether an endpoint has a call that cancels one posted operation, or all of them.
template <class Ep>
concept can_cancel = requires(Ep& ep, dat::cookie which) {
  ep.cancel(which);
}
|| requires(Ep& ep) { ep.cancel(); };

} // namespace

TEST_CASE("posting and taking completions allocate nothing", "[dto][REQ-100][SAFE-022]") {
  if (!allocations_of_this_thread()) SKIP("the requests for memory belong to the sanitizer");
  const auto completions_only = GENERATE(true, false);
  two_sides link({.progress = dat::progress::manual}); // so that this thread does all the work
  auto completions = must(link.a.ia.create_evd<dat::stream::dto>(64));
  auto active =
      completions_only
          ? must(link.a.pz.create_ep<dat::rc>({.recv = completions, .request = completions, .connect = link.a.evd}))
          : link.a.make_ep();
  auto passive = link.b.make_ep();
  link.connect(active, passive);
  buffer near(link.a.pz, 64);
  buffer far(link.b.pz, 64);
  const auto there = far.remote();
  const auto before = *allocations_of_this_thread();
  std::size_t rounds = 0;
  std::size_t failed = 0;
  for (; rounds < 500 && failed == 0; ++rounds) {
    failed += !passive.post(dat::recv{far.lmr}) ||
              !active.post(dat::rdma_write{near.lmr, there}.suppress_completion(), dat::rdma_read{near.lmr, there}) ||
              !active.post(dat::send{near.lmr});
    std::size_t left = 3;
    const auto count =
        dat::overloaded{[&](const dat::dto_failure&) { ++failed, --left; }, [&](const auto&) { --left; }};
    while (left != 0) {
      completions_only ? completions.drain(count) : link.a.evd.drain(count);
      if (link.b.evd.dequeue()) --left;
    }
  }
  CHECK(*allocations_of_this_thread() == before);
  CHECK(failed == 0);
  SHOWS("SAFE-043");
  CHECK(rounds == 500);
  STATIC_REQUIRE_FALSE(can_cancel<endpoint>);
  // Objects come from the heap of the program, in verbs as in dat. It shows that allocations are counted.
  auto another = must(link.a.ia.create_evd<dat::stream::dto>(8));
  CHECK(*allocations_of_this_thread() > before);
  DEVIATES("REQ-033");
}

TEST_CASE("suppressed requests give no event, and the next completion frees their entries", "[dto]") {
  connected_pair link({.active = {.max_request_dtos = 4}});
  const auto full = dat::error(type::insufficient_resources, subtype::resource_tep);
  buffer out(link.a.pz, 64);
  buffer in(link.b.pz, 64);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 3; ++i)
      must(link.active.post(dat::rdma_write{out.slice(0, 64), in.remote(0, 64)}.cookie(i).suppress_completion()));
    must(link.active.post(dat::rdma_write{out.slice(0, 64), in.remote(0, 64)}.cookie(3)));
    CHECK(error_of(link.active.post(dat::send{})) == full);
    CHECK(next<dat::rdma_write_done>(link.a.evd).cookie() == dat::cookie(3));
    CHECK(is_empty(link.a.evd));
    SHOWS("COMP-014", "DTO-043", "DTO-046", "DTO-072", "DTO-077", "EVENT-044", "REQ-111", "REQ-131");
  }
  // The entry of a later request stays taken, although that one has completed, too.
  const dat::rdma_write write{out.slice(0, 64), in.remote(0, 64)};
  for (int i = 0; i < 2; ++i) must(link.active.post(dat::rdma_write{write}.suppress_completion()));
  must(link.active.post(write, write));
  CHECK(must(link.a.evd.wait(patience, 2)).more == 1);
  CHECK(error_of(link.active.post(write, write, write, write)) == full);
  must(link.active.post(write, write, write));
  for (int i = 0; i < 4; ++i) (void)next<dat::rdma_write_done>(link.a.evd);
  // Suppressed requests alone never free their entries.
  for (int i = 0; i < 4; ++i)
    must(link.active.post(dat::rdma_write{out.slice(0, 64), in.remote(0, 64)}.suppress_completion()));
  must(link.passive.post(dat::rdma_read{in.slice(0, 1), out.remote(0, 1)})); // the read completes after the writes
  (void)next<dat::rdma_read_done>(link.b.evd);
  CHECK(error_of(link.active.post(dat::send{})) == full);
  SHOWS("COMP-004", "COMP-005", "DTO-072", "DTO-078");
  link.disconnect(link.active, link.passive);
  must(link.active.reset());
  auto fresh = link.b.make_ep();
  link.connect(link.active, fresh);
  must(fresh.post(dat::recv{}));
  must(link.active.post(dat::send{}));
  (void)next<dat::send_done>(link.a.evd);
}

TEST_CASE("a failed suppressed request is reported", "[dto][COMP-006][COMP-007][DTO-043][DTO-077][REQ-132]") {
  if (!this_device().completes_at_peer) SKIP(completes_early);
  connected_pair link;
  buffer out(link.a.pz, 64);
  std::vector<std::byte> in(64);
  auto gone = must(link.b.pz.register_memory(in, all_rights));
  const auto bad = gone.remote();
  buffer good(link.b.pz, 64);
  fill(out.bytes, 7);
  must(gone.close());
  for (int i = 0; i < 2; ++i)
    must(link.active.post(dat::rdma_write{out.lmr, good.remote()}.cookie(i).suppress_completion()));
  must(link.active.post(dat::rdma_write{out.lmr, bad}.cookie(2).suppress_completion()));
  // These requests may find the connection broken; either way they are flushed.
  must(link.active.post(dat::send{}.cookie(3).suppress_completion()));
  must(link.active.post(dat::send{}.cookie(4)));
  const auto end = until_broken(link.a.evd, 3);
  INFO(sequence(end.all));
  CHECK(end.first.cookie() == dat::cookie(2));
  SHOWS("REQ-099", "COMP-010");
  CHECK(end.first.status() == dat::dto_status::remote_access);
  CHECK(has_pattern(good.bytes, 7)); // the requests before it have succeeded
  std::uint64_t cookie = 2;
  for (const auto& e : end.all)
    if (const auto* f = std::get_if<dat::dto_failure>(&e)) {
      CHECK(f->cookie() == dat::cookie(cookie));
      if (cookie != 2) CHECK(f->status() == dat::dto_status::flushed);
      ++cookie;
    }
  CHECK(cookie == 5);    // all requests that failed, suppressed or not
  must(out.lmr.close()); // covers operations that succeeded, failed and were flushed
  SHOWS("DTO-006");
}

TEST_CASE("a queue takes exactly its number of operations, and takes more when completions are taken", "[dto]") {
  connected_pair link({.active = {.max_request_dtos = 10}, .passive = {.max_recv_dtos = 10}});
  const auto full = dat::error(type::insufficient_resources, subtype::resource_tep);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 10; ++i) must(link.passive.post(dat::recv{}.cookie(i)));
    CHECK(error_of(link.passive.post(dat::recv{})) == full);
    SHOWS("DTO-124", "EPATTR-008", "ERR-015", "ERR-031");
    for (int i = 0; i < 10; ++i) must(link.active.post(dat::send{}.cookie(i)));
    CHECK(error_of(link.active.post(dat::send{})) == full);
    CHECK(error_of(link.active.post(dat::send{}, dat::send{})) == full);
    SHOWS("DTO-072", "EP-011", "IA-078");
    (void)next<dat::recv_done>(link.b.evd);
    CHECK(next<dat::send_done>(link.a.evd).cookie() == dat::cookie(0));
    // The queue has room for one request, not for two.
    CHECK(error_of(link.active.post(dat::send{}, dat::send{})) == full);
    CHECK(error_of(link.passive.post(dat::recv{}, dat::recv{})) == full);
    must(link.passive.post(dat::recv{}.cookie(10)));
    CHECK(error_of(link.passive.post(dat::recv{})) == full);
    must(link.active.post(dat::send{}.cookie(10)));
    CHECK(error_of(link.active.post(dat::send{})) == full);
    SHOWS("COMP-003");
    for (int i = 1; i <= 10; ++i) {
      CHECK(next<dat::send_done>(link.a.evd).cookie() == dat::cookie(i));
      CHECK(next<dat::recv_done>(link.b.evd).cookie() == dat::cookie(i));
    }
  }
  // An operation that has completed keeps its entry until its event is taken.
  for (int i = 0; i < 10; ++i) must(link.passive.post(dat::recv{}));
  for (int i = 0; i < 10; ++i) must(link.active.post(dat::send{}));
  CHECK(must(link.a.evd.wait(patience, 10)).more == 9); // all messages have arrived, and one event is taken
  CHECK(error_of(link.active.post(dat::send{}, dat::send{})) == full);
  for (int i = 0; i < 9; ++i) (void)next<dat::send_done>(link.a.evd);
  CHECK(error_of(link.passive.post(dat::recv{})) == full);
  SHOWS("COMP-002");
  for (int i = 0; i < 10; ++i) (void)next<dat::recv_done>(link.b.evd);
  // Sends, writes and reads fill the queue together.
  buffer near(link.a.pz, 8);
  buffer far(link.b.pz, 8);
  const dat::rdma_write write{near.lmr, far.remote()};
  const dat::rdma_read read{near.lmr, far.remote()};
  for (int i = 0; i < 4; ++i) must(link.passive.post(dat::recv{}));
  for (int i = 0; i < 4; ++i) must(link.active.post(dat::send{}));
  for (int i = 0; i < 3; ++i) must(link.active.post(write, read));
  CHECK(error_of(link.active.post(dat::send{})) == full);
  CHECK(error_of(link.active.post(write)) == full);
  CHECK(error_of(link.active.post(read)) == full);
  SHOWS("EPATTR-010");
  const auto all = take(link.a.evd, 10);
  CHECK((count_of<dat::send_done>(all) == 4 && count_of<dat::rdma_write_done>(all) == 3));
  CHECK(count_of<dat::rdma_read_done>(all) == 3);
  CHECK(count_of<dat::recv_done>(take(link.b.evd, 4)) == 4);
  still_works(link);
  SHOWS("DTO-086");
}

TEST_CASE("posts return before their operations have completed", "[dto][DTO-050]") {
  if (!this_device().waits_for_receives) SKIP(no_wait);
  connected_pair link({.passive = {.min_rnr_timer = 10us}});
  buffer near(link.a.pz, 16);
  buffer far(link.b.pz, 16);
  // The peer has no receive for the send, behind which all other requests wait.
  must(link.active.post(dat::recv{near.slice(0, 8)}.cookie(1)));
  must(link.active.post(dat::send{near.slice(0, 8)}.cookie(2)));
  must(link.active.post(dat::rdma_write{near.slice(0, 8), far.remote(8, 8)}.cookie(3)));
  must(link.active.post(dat::rdma_read{near.slice(8, 8), far.remote(8, 8)}.cookie(4)));
  CHECK(is_empty(link.a.evd));
  must(link.passive.post(dat::recv{far.slice(0, 8)}.cookie(5)));
  CHECK(next<dat::send_done>(link.a.evd).cookie() == dat::cookie(2));
  CHECK(next<dat::rdma_write_done>(link.a.evd).cookie() == dat::cookie(3));
  CHECK(next<dat::rdma_read_done>(link.a.evd).cookie() == dat::cookie(4));
  CHECK(next<dat::recv_done>(link.b.evd).cookie() == dat::cookie(5));
  SHOWS("DTO-099"); // the send was repeated until it met the receive
  must(link.passive.post(dat::send{}));
  CHECK(next<dat::recv_done>(link.a.evd).cookie() == dat::cookie(1));
  (void)next<dat::send_done>(link.b.evd);
}

TEST_CASE("a disconnected endpoint flushes everything that is posted", "[dto]") {
  if (!this_device().flushes_late) SKIP(no_late_flush);
  connected_pair link;
  buffer out(link.a.pz, 16);
  buffer in(link.b.pz, 16);
  for (int i = 0; i < 3; ++i) must(link.active.post(dat::recv{out.slice(0, 16)}.cookie(i)));
  must(link.active.post(dat::send{out.slice(0, 4)}.cookie(9))); // the peer has no receive for the send
  must(link.active.disconnect());
  must(link.active.post(dat::send{out.lmr}.cookie(10), dat::rdma_write{out.lmr, in.remote()}.cookie(11),
                        dat::rdma_read{out.lmr, in.remote()}.cookie(12),
                        dat::send{}.immediate(1).cookie(13).suppress_completion(),
                        dat::send_with_invalidate{in.remote()}.cookie(14),
                        dat::rdma_write{out.lmr, in.remote()}.immediate(1).cookie(15)));
  must(link.active.post(dat::recv{}.cookie(3)));
  using op = dat::dto_operation;
  std::vector<op> requests{op::send,
                           op::send,
                           op::rdma_write,
                           op::rdma_read,
                           op::send_immediate,
                           op::send_with_invalidate,
                           op::rdma_write_immediate};
  std::array<std::uint64_t, 2> words{};
  constexpr auto rights = all_rights | dat::remote_atomic;
  dat::lmr<std::uint64_t, rights.value> old;
  dat::lmr<std::uint64_t, rights.value> word;
  if (has(feature::atomics)) {
    old = must(link.a.pz.register_memory(words, rights));
    word = must(link.b.pz.register_memory(words, rights));
    const auto there = must(word.remote().slice(0, 1));
    must(link.active.post(dat::ib::fetch_and_add{must(old.slice(0, 1)), there, 1}.cookie(16),
                          dat::ib::compare_and_swap{must(old.slice(1, 1)), there, 1, 2}.cookie(17)));
    requests.insert(requests.end(), {op::fetch_and_add, op::compare_and_swap});
  }
  std::uint64_t receive = 0;
  std::uint64_t request = 9;
  int ended = 0;
  for (const auto& e : take(link.a.evd, 4 + requests.size() + 1)) {
    if (std::holds_alternative<dat::disconnected>(e)) {
      ++ended;
      continue;
    }
    const auto* f = std::get_if<dat::dto_failure>(&e);
    INFO(describe(e));
    REQUIRE(f);
    CHECK(f->status() == dat::dto_status::flushed);
    CHECK(f->ep() == link.active);
    if (f->operation() == op::recv) {
      CHECK(f->cookie() == dat::cookie(receive++)); // the marker completes after all earlier receives
    } else {
      REQUIRE(request < 9 + requests.size());
      CHECK(f->operation() == requests[request - 9]);
      CHECK(f->cookie() == dat::cookie(request++)); // the marker of the requests also completes last
    }
  }
  CHECK(receive == 4);
  SHOWS("DTO-121", "EPS-066");
  CHECK(request == 9 + requests.size());
  SHOWS("COMP-037", "COMP-056", "DISC-029", "DTO-070", "DTO-102", "EPS-065", "REQ-136");
  CHECK(ended == 1);
  CHECK(is_empty(link.a.evd));
  must(link.active.reset()); // no completion is left that the reset could drop
  CHECK(is_empty(link.a.evd));
  SHOWS("DISC-048");
}

namespace {

/// Connects and resets an endpoint on `evd` many times, without taking the completions that are left.
template <dat::streams S>
void many_lives() {
  two_sides link;
  auto evd = must(link.a.ia.create_evd<S>(64));
  auto ep = must(link.a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = link.a.evd}));
  auto peer = link.b.make_ep();
  for (std::uint64_t life = 1; life <= 5; ++life) {
    for (std::uint64_t i = 0; i < 4; ++i) must(ep.post(dat::recv{}.cookie(100 * life + i)));
    must(peer.post(dat::recv{}));
    link.connect(ep, peer);
    must(ep.post(dat::send{}.cookie(100 * life + 50)));
    (void)link.at_b<dat::recv_done>();
    must(peer.post(dat::send{}));
    (void)link.at_b<dat::send_done>(); // one receive has completed, three will be flushed
    link.disconnect(ep, peer);
    must(ep.reset());
    must(peer.reset());
  }
  must(ep.post(dat::recv{}.cookie(7)));
  link.connect(ep, peer);
  must(peer.post(dat::send{}));
  CHECK(next<dat::recv_done>(evd).cookie() == dat::cookie(7));
  CHECK(is_empty(evd));
}

} // namespace

TEST_CASE("events left from an endpoint's previous life do not appear in the next", "[dto][COMP-075]") {
  SECTION("on a completions-only evd") { many_lives<dat::stream::dto>(); }
  SECTION("on a merged evd") { many_lives<dat::stream::dto | dat::stream::software>(); }
}

} // namespace device
