// The InfiniBand extensions on a device: atomics.
// SPDX-License-Identifier: BSL-1.0
#include "../support/worker.hpp"
#include "device_table.hpp"
#include "support.hpp"

#include <dat/ib_query.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <list>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace device {

namespace {

constexpr auto atomic_rights = all_rights | dat::remote_atomic;
constexpr auto word_rights = decltype(atomic_rights)::value;
using word_region = dat::lmr<std::uint64_t, word_rights>;
using remote_words = dat::remote_segment<std::uint64_t, word_rights>;

/// Words that peers may change, and words for old values.
struct words {
  std::array<std::uint64_t, 8> value{};
  word_region lmr;
  explicit words(dat::pz& pz) : lmr(must(pz.register_memory(value, atomic_rights))) {}
  [[nodiscard]] auto at(std::size_t i) const { return must(lmr.slice(i, 1)); }
  [[nodiscard]] remote_words remote(std::size_t i) const {
    return must(must(remote_words::from_wire(lmr.remote().to_wire())).slice(i, 1));
  }
  [[nodiscard]] auto old(std::size_t i) const { return must(lmr.whole().word(i)); }
  [[nodiscard]] auto word(std::size_t i) const { return must(lmr.remote().word(i)); }
};

struct atomic_pair : connected_pair {
  words near{a.pz};
  words far{b.pz};

  template <class E, class D>
  std::uint64_t done(const D& operation) {
    must(active.post(operation));
    const auto e = next<E>(a.evd);
    if (e.bytes() != 8) FAIL("an atomic of " << e.bytes() << " bytes");
    return near.value[0];
  }
  std::uint64_t add(std::uint64_t n) {
    return done<dat::ib::fetch_and_add_done>(dat::ib::fetch_and_add{near.old(0), far.word(0), n}.cookie(5));
  }
  std::uint64_t swap(std::uint64_t expected, std::uint64_t desired) {
    return done<dat::ib::compare_and_swap_done>(
        dat::ib::compare_and_swap{near.at(0), far.remote(0), expected, desired}.cookie(6));
  }
  /// The completion of a fenced read or atomic. No completion comes if Soft-RoCE has lost a packet of the operation,
  /// see docs/devices.md.
  template <class E>
  std::optional<E> fenced_done() {
    auto r = a.evd.wait(5s);
    if (!r) return std::nullopt;
    const auto* e = std::get_if<E>(&r.assume_value());
    if (!e) fail("another event came: " + describe(r.assume_value()), place::here());
    return *e;
  }
};

/// Runs `part` on a new connection. As long as `part` returns that its completion did not come, runs it on another
/// connection.
template <class Part>
void with_fenced(const Part& part) {
  for (int connections = 0; connections < 8; ++connections) {
    atomic_pair link;
    if (part(link)) return;
  }
  fail("of eight fenced requests none has completed", place::here());
}

} // namespace

TEST_CASE("fetch-and-add adds modulo 2^64 and gives the old value",
          "[ib][IBX-005][IBX-036][DOCA-004][DOCA-024][DOCA-025]") {
  NEEDS_FEATURE(atomics);
  atomic_pair link;
  must(link.passive.post(dat::recv{}.cookie(9)));
  link.far.value[0] = 40;
  link.far.value[1] = 7;
  CHECK(link.add(2) == 40);
  CHECK(link.far.value[0] == 42);
  CHECK(link.add(std::numeric_limits<std::uint64_t>::max()) == 42); // adds -1
  CHECK(link.far.value[0] == 41);
  link.far.value[0] = std::numeric_limits<std::uint64_t>::max();
  CHECK(link.add(1) == std::numeric_limits<std::uint64_t>::max());
  CHECK(link.far.value[0] == 0);
  SHOWS("IBX-035", "DOCA-027");
  // A fetch-and-add takes one number, and none to compare with.
  using old_value = decltype(link.near.old(0));
  using far_word = decltype(link.far.word(0));
  STATIC_REQUIRE(std::is_constructible_v<dat::ib::fetch_and_add, old_value, far_word, std::uint64_t>);
  STATIC_REQUIRE_FALSE(
      std::is_constructible_v<dat::ib::fetch_and_add, old_value, far_word, std::uint64_t, std::uint64_t>);
  SHOWS("DOCA-027");
  CHECK(link.add(0x0102030405060708) == 0);
  CHECK(link.far.value[0] == 0x0102030405060708); // both numbers are in the byte order of their hosts
  CHECK(link.add(0) == 0x0102030405060708);
  // Each of its completions notifies, as of every request of this endpoint.
  const auto refused = dat::error(type::invalid_parameter, subtype::arg5);
  const dat::ib::fetch_and_add add{link.near.at(0), link.far.remote(0), 1};
  CHECK(error_of(link.active.post(dat::ib::fetch_and_add{add}.suppress_notification())) == refused);
  const dat::ib::compare_and_swap swap{link.near.at(0), link.far.remote(0), 1, 2};
  CHECK(error_of(link.active.post(dat::ib::compare_and_swap{swap}.suppress_notification())) == refused);
  SHOWS("COMP-025");
  CHECK(link.far.value[1] == 7);                // the neighbouring word is unchanged
  CHECK(link.swap(0, 1) == 0x0102030405060708); // a compare-and-swap takes no receive, either
  CHECK(is_empty(link.a.evd));
  CHECK(is_empty(link.b.evd)); // the peer gets no event
  SHOWS("IBX-048", "EXT05-009");
  // No atomic has taken the receive of the peer.
  must(link.active.post(dat::send{}));
  CHECK(next<dat::recv_done>(link.b.evd).cookie() == dat::cookie(9));
  SHOWS("IBX-040");
  (void)next<dat::send_done>(link.a.evd);
}

TEST_CASE("compare-and-swap replaces an expected value and always returns the old one",
          "[ib][IBX-033][IBX-034][IBX-048][IBX-005][EXT05-009][DOCA-004][DOCA-026]") {
  NEEDS_FEATURE(atomics);
  atomic_pair link;
  link.far.value[0] = 10;
  CHECK(link.swap(10, 20) == 10);
  CHECK(link.far.value[0] == 20);
  CHECK(link.swap(10, 30) == 20); // another
  CHECK(link.far.value[0] == 20);
  CHECK(link.swap(20, 0) == 20);
  CHECK(link.far.value[0] == 0);
  CHECK((is_empty(link.a.evd) && is_empty(link.b.evd))); // the peer gets no event
}

TEST_CASE("an atomic can have a cookie, be suppressed and fenced, and be posted in lists and batches",
          "[ib][IBX-042][EVENT-031]") {
  NEEDS_FEATURE(atomics);
  with_fenced([](atomic_pair& link) {
    const dat::ib::fetch_and_add one{link.near.at(0), link.far.remote(0), 1};
    must(link.active.post(dat::ib::fetch_and_add{one}.suppress_completion(),
                          dat::ib::fetch_and_add{one}.fence().cookie(8)));
    const auto done = link.fenced_done<dat::ib::fetch_and_add_done>();
    if (!done) return false;
    CHECK(done->cookie() == dat::cookie(8));
    CHECK(link.near.value[0] == 1);
    CHECK(link.far.value[0] == 2);
    return true;
  });
  atomic_pair link;
  link.far.value[0] = 2;
  const dat::ib::fetch_and_add one{link.near.at(0), link.far.remote(0), 1};
  dat::batch<4> batch;
  for (std::uint64_t i = 0; i < 3; ++i) REQUIRE(batch.push_back(dat::ib::fetch_and_add{one}.cookie(i)));
  REQUIRE(batch.push_back(dat::ib::compare_and_swap{link.near.at(1), link.far.remote(0), 5, 50}.cookie(3)));
  must(link.active.post(batch));
  for (std::uint64_t i = 0; i < 3; ++i) CHECK(next<dat::ib::fetch_and_add_done>(link.a.evd).cookie() == dat::cookie(i));
  CHECK(next<dat::ib::compare_and_swap_done>(link.a.evd).cookie() == dat::cookie(3));
  SHOWS("IBX-044", "REQ-136", "MODEL-008", "REQ-099", "REQ-133");
  CHECK(link.far.value[0] == 50);
  CHECK(link.near.value[1] == 5);
  // A read that completes before a fenced atomic returns the old word.
  with_fenced([](atomic_pair& other) {
    other.far.value[0] = 50;
    must(other.active.post(dat::rdma_read{other.near.at(2), other.far.remote(0)}.suppress_completion(),
                           dat::ib::fetch_and_add{other.near.at(0), other.far.remote(0), 1}.fence()));
    if (!other.fenced_done<dat::ib::fetch_and_add_done>()) return false;
    CHECK(other.near.value[2] == 50);
    return true;
  });
}

TEST_CASE("an impossible atomic is refused before it reaches the device", "[ib][IBX-037][IBX-038][IBX-039]") {
  NEEDS_FEATURE(atomics);
  atomic_pair link;
  const auto none = must(link.near.lmr.slice(0, 0));
  CHECK(error_of(link.active.post(dat::ib::fetch_and_add{none, link.far.remote(0), 1})).type() == type::length_error);
  CHECK(error_of(link.active.post(dat::ib::fetch_and_add{link.near.at(0), must(link.far.remote(0).slice(0, 0)), 1}))
            .type() == type::length_error);
  const auto swap_words = [&](const auto& old_value, const auto& word) {
    return error_of(link.active.post(dat::ib::compare_and_swap{old_value, word, 1, 2}));
  };
  CHECK(swap_words(none, link.far.remote(0)) == dat::error(type::length_error));
  CHECK(swap_words(link.near.at(0), must(link.far.remote(0).slice(0, 0))) == dat::error(type::length_error));
  // A peer may send the address of a word that is not aligned; this side refuses it.
  auto wire = link.far.remote(0).to_wire();
  wire[7] |= std::byte{4};
  const auto odd = must(remote_words::from_wire(wire));
  CHECK(error_of(odd.word()).type() == type::invalid_parameter);
  CHECK(error_of(link.active.post(dat::ib::compare_and_swap{link.near.at(0), odd, 1, 2})).type() ==
        type::invalid_parameter);
  SHOWS("DOCA-024");
  dat::batch<2> batch;
  REQUIRE(batch.push_back(dat::ib::fetch_and_add{link.near.at(0), link.far.remote(0), 1}));
  REQUIRE(batch.push_back(dat::ib::fetch_and_add{link.near.at(0), odd, 1}));
  CHECK(error_of(link.active.post(batch)).type() == type::invalid_parameter);
  // Two refusals are those of an RDMA read: memory of another zone, no connection.
  auto zone = must(link.a.ia.create_pz());
  const words foreign(zone);
  const auto add_to = [&](const words& here) { return dat::ib::fetch_and_add{here.at(0), link.far.remote(0), 1}; };
  const auto swap_to = [&](const words& here) {
    return dat::ib::compare_and_swap{here.at(0), link.far.remote(0), 1, 2};
  };
  const auto each = [&](const dat::ep_ref& by, const words& here, const dat::error& why) {
    CHECK(error_of(by.post(add_to(here))) == why);
    CHECK(error_of(by.post(swap_to(here))) == why);
    SHOWS("IBX-049");
  };
  each(link.active, foreign, dat::error(type::protection_violation, subtype::protection_write));
  words closed(link.a.pz);
  must(closed.lmr.close());
  CHECK(swap_words(closed.lmr, link.far.remote(0)) ==
        dat::error(type::privileges_violation, subtype::privileges_write));
  CHECK(error_of(link.active.post(dat::ib::fetch_and_add{closed.lmr, link.far.remote(0), 1})) ==
        dat::error(type::privileges_violation, subtype::privileges_write));
  SHOWS("IBX-049");
  auto apart = link.a.make_ep({.max_request_dtos = 1});
  each(apart, link.near, dat::error(type::invalid_state, subtype::ep_unconnected));
  each(endpoint(), link.near, dat::error(type::invalid_handle, subtype::handle_ep));
  auto far_end = link.b.make_ep();
  link.connect(apart, far_end);
  must(apart.post(dat::send{}.suppress_completion())); // fills the queue
  each(apart, link.near, dat::error(type::insufficient_resources, subtype::resource_tep));
  link.disconnect(apart, far_end);
  CHECK(next<dat::dto_failure>(link.a.evd).status() == dat::dto_status::flushed); // the send
  must(apart.post(swap_to(link.near)));
  const auto late = next<dat::dto_failure>(link.a.evd);
  CHECK((late.status() == dat::dto_status::flushed && late.operation() == dat::dto_operation::compare_and_swap));
  SHOWS("IBX-049");
  CHECK(link.far.value[0] == 0);
  CHECK(link.add(3) == 0); // the endpoint stays usable
  CHECK(link.active.state() == state::connected);
}

TEST_CASE("an atomic on a longer segment uses its first word, also in lists and batches", "[ib][IBX-038][IBX-039]") {
  NEEDS_FEATURE(atomics);
  atomic_pair link;
  auto& near = link.near;
  near.value.fill(7);
  const auto all = must(remote_words::from_wire(link.far.lmr.remote().to_wire()));
  const dat::ib::fetch_and_add one{near.lmr, all, 1};
  (void)link.done<dat::ib::fetch_and_add_done>(one);
  must(link.active.post(one, one));
  must(link.active.post_n(3, [&](std::size_t) { return one; }));
  dat::batch<1> batch;
  REQUIRE(batch.push_back(one));
  must(link.active.post(batch));
  for (int i = 0; i < 6; ++i) CHECK(next<dat::ib::fetch_and_add_done>(link.a.evd).bytes() == 8);
  CHECK(near.value[0] == 6);
  CHECK(near.value[1] == 7);
  CHECK(link.far.value[0] == 7);
  CHECK(link.far.value[1] == 0);
  SHOWS("DOCA-024", "DOCA-025");
}

TEST_CASE("a connection without reads refuses atomics", "[ib][IBX-045]") {
  NEEDS_FEATURE(atomics);
  pair_options options;
  if (GENERATE(false, true))
    options.active.max_rdma_read_out = 0;
  else
    options.passive.max_rdma_read_in = 0;
  connected_pair link(options);
  words near(link.a.pz);
  words far(link.b.pz);
  CHECK(error_of(link.active.post(dat::ib::fetch_and_add{near.at(0), far.remote(0), 1})).type() ==
        type::invalid_parameter);
  CHECK(error_of(link.active.post(dat::ib::compare_and_swap{near.at(0), far.remote(0), 0, 1})).type() ==
        type::invalid_parameter);
  must(link.active.post(dat::rdma_write{near.at(0), far.remote(0)}));
  (void)next<dat::rdma_write_done>(link.a.evd);
}

namespace {
constexpr std::size_t endpoints_of_one = 4; // for each of two processes
constexpr std::uint64_t rounds_of_one = 25;
enum word : std::size_t { counted, locked, guarded };

/// An endpoint whose peer gives access to its words.
struct client {
  side s{0};
  words mine{s.pz};
  endpoint ep{s.make_ep()};
  std::optional<remote_words> theirs;

  [[nodiscard]] remote_words at(word w) const { return must(theirs->slice(w, 1)); }
  template <class E, class D>
  std::uint64_t done(const D& operation) {
    must(ep.post(operation));
    (void)next<E>(s.evd);
    return mine.value[0];
  }
  std::uint64_t add(word w) { return done<dat::ib::fetch_and_add_done>(dat::ib::fetch_and_add{mine.at(0), at(w), 1}); }
  std::uint64_t swap(word w, std::uint64_t from, std::uint64_t to) {
    return done<dat::ib::compare_and_swap_done>(dat::ib::compare_and_swap{mine.at(0), at(w), from, to});
  }
  /// Only the holder of the lock may do this: read a number, then write the next one.
  void count_guarded() {
    (void)done<dat::rdma_read_done>(dat::rdma_read{mine.at(0), at(guarded)});
    ++mine.value[0];
    (void)done<dat::rdma_write_done>(dat::rdma_write{mine.at(0), at(guarded)});
  }
};

int hammer_role(channel& to, const std::vector<std::string>& args) {
  std::list<client> clients(endpoints_of_one);
  for (auto& c : clients) {
    must(c.ep.connect(addresses()[1], must(dat::conn_qual::make(std::stoull(args.at(0)))), patience));
    const auto up = must(c.s.evd.wait_for<dat::established>(c.ep, patience));
    c.theirs = must(remote_words::from_wire(up.private_data()));
  }
  to.say("connected");
  if (to.hear() != "go") return 1;
  std::atomic<bool> fine{true};
  {
    std::list<support::worker> workers;
    for (auto& c : clients)
      workers.emplace_back([&c, &fine](support::worker&) {
        try {
          for (std::uint64_t i = 0; i < rounds_of_one; ++i) {
            (void)c.add(counted);
            while (c.swap(locked, 0, 1) != 0) {
            }
            c.count_guarded();
            if (c.swap(locked, 1, 0) != 1) fine = false;
          }
        } catch (const failure&) {
          fine = false;
        }
      });
  }
  to.say(fine ? "done" : "failed");
  return to.hear() == "end" ? 0 : 1;
}
const role hammer_registered("hammer", &hammer_role);
} // namespace

TEST_CASE("atomics of eight endpoints in two processes on one word lose no update, and a lock of atomics excludes",
          "[ib][IBX-041]") {
  NEEDS_FEATURE(atomics);
  side home(1);
  words shared(home.pz);
  auto psp = must(home.ia.create_psp(next_port(), home.evd));
  std::list<peer_process> peers;
  std::list<endpoint> passive;
  for (int n = 0; n < 2; ++n) {
    auto& peer = peers.emplace_back("hammer", std::vector{std::to_string(psp.port())});
    for (std::size_t i = 0; i < endpoints_of_one; ++i) {
      auto& ep = passive.emplace_back(home.make_ep());
      auto request = must(home.evd.wait_for<dat::connection_request>(patience));
      must(request.accept(ep, shared.lmr.remote().to_wire()));
      (void)must(home.evd.wait_for<dat::established>(ep, patience));
    }
    CHECK(peer.hear() == "connected");
  }
  for (auto& peer : peers) peer.say("go");
  for (auto& peer : peers) CHECK(peer.hear() == "done");
  const auto all = peers.size() * endpoints_of_one * rounds_of_one;
  CHECK(shared.value[counted] == all);
  SHOWS("REG-006");
  CHECK(shared.value[locked] == 0);
  CHECK(shared.value[guarded] == all);
  for (auto& peer : peers) peer.say("end");
  for (auto& peer : peers) CHECK(peer.wait() == 0);
}

TEST_CASE("an atomic is ordered after earlier writes and before later reads", "[ib][IBX-043]") {
  NEEDS_FEATURE(atomics);
  with_fenced([](atomic_pair& link) {
    link.near.value[2] = 70;
    must(link.active.post(dat::rdma_write{link.near.at(2), link.far.remote(0)}.suppress_completion(),
                          dat::ib::fetch_and_add{link.near.at(0), link.far.remote(0), 5}.suppress_completion(),
                          dat::rdma_read{link.near.at(3), link.far.remote(0)}.fence()));
    if (!link.fenced_done<dat::rdma_read_done>()) return false;
    CHECK(link.near.value[0] == 70);
    CHECK(link.near.value[3] == 75); // because the read is fenced
    SHOWS("DTO-140");
    return true;
  });
  // The atomic is also done before a later write, which needs no fence.
  atomic_pair link;
  link.far.value[0] = 75;
  link.near.value[4] = 99;
  must(link.active.post(dat::ib::fetch_and_add{link.near.at(0), link.far.remote(0), 5}.suppress_completion(),
                        dat::rdma_write{link.near.at(4), link.far.remote(0)}));
  (void)next<dat::rdma_write_done>(link.a.evd);
  CHECK(link.near.value[0] == 75);
  CHECK(link.far.value[0] == 99);
  // The peer has no receive to solicit, so atomics have no such flag.
  constexpr auto solicits = []<class T>(const T&) {
    return requires(T & t) { t.solicited(); };
  };
  const dat::ib::fetch_and_add one{link.near.at(0), link.far.remote(0), 1};
  const dat::ib::compare_and_swap two{link.near.at(0), link.far.remote(0), 1, 2};
  STATIC_REQUIRE_FALSE(solicits(one));
  STATIC_REQUIRE_FALSE(solicits(two));
  DEVIATES("IBX-046");
  const dat::rdma_write three{link.near.at(0), link.far.remote(0)};
  STATIC_REQUIRE_FALSE(solicits(three));
}

TEST_CASE("each extension event carries exactly its operation's data, on the right side",
          "[ib][IBX-005][IBX-014][IBX-017][IBX-019][IBX-022][IBX-042][IBX-048]") {
  NEEDS_FEATURE(atomics);
  atomic_pair link;
  constexpr std::uint32_t word = 0x80c0e0f1;
  buffer out(link.a.pz, 100);
  buffer in(link.b.pz, 100);
  buffer inbox(link.b.pz, 100);
  fill(out.bytes, 1);
  const auto is = [](const auto& e, const endpoint& ep, std::uint64_t cookie, std::size_t bytes) {
    CHECK(e.ep() == ep);
    CHECK(e.cookie() == dat::cookie(cookie));
    CHECK(e.bytes() == bytes);
  };
  constexpr auto tells = []<class E>(std::type_identity<E>) {
    return requires(const E& e) { e.immediate(); };
  };
  // The sender knows its own data.
  STATIC_REQUIRE_FALSE(tells(std::type_identity<dat::ib::rdma_write_immediate_done>{}));
  STATIC_REQUIRE_FALSE(tells(std::type_identity<dat::ib::fetch_and_add_done>{}));
  STATIC_REQUIRE_FALSE(tells(std::type_identity<dat::ib::compare_and_swap_done>{}));
  STATIC_REQUIRE_FALSE(tells(std::type_identity<dat::send_done>{}));
  STATIC_REQUIRE_FALSE(tells(std::type_identity<dat::recv_done>{}));
  // A message of four bytes is not immediate data; each of these sends uses one receive.
  for (std::uint64_t i = 0; i < 4; ++i) must(link.passive.post(dat::recv{inbox.slice(i * 20, 20)}.cookie(50 + i)));
  must(link.active.post(dat::send{out.slice(0, 4)}.cookie(10),
                        dat::rdma_write{out.slice(10, 90), in.remote(5, 95)}.immediate(word).cookie(11),
                        dat::send{out.slice(20, 20)}.immediate(~word).cookie(12),
                        dat::rdma_write{out.slice(0, 0), in.remote(0, 0)}.immediate(0).cookie(13)));
  is(next<dat::recv_done>(link.b.evd), link.passive, 50, 4);
  const auto written = next<dat::ib::recv_write_immediate_done>(link.b.evd);
  is(written, link.passive, 51, 90);
  CHECK(written.immediate() == word);
  CHECK(std::equal(out.bytes.begin() + 10, out.bytes.end(), in.bytes.begin() + 5));
  const auto came = next<dat::ib::recv_immediate_done>(link.b.evd);
  is(came, link.passive, 52, 20);
  CHECK(came.immediate() == ~word);
  CHECK(std::equal(out.bytes.begin() + 20, out.bytes.begin() + 40, inbox.bytes.begin() + 40));
  const auto notice = next<dat::ib::recv_write_immediate_done>(link.b.evd);
  is(notice, link.passive, 53, 0);
  CHECK(notice.immediate() == 0);
  for (const std::size_t untouched : {std::size_t{4}, std::size_t{20}, std::size_t{60}, std::size_t{80}})
    CHECK(inbox.bytes[untouched] == std::byte{});
  SHOWS("IBX-029");
  is(next<dat::send_done>(link.a.evd), link.active, 10, 4);
  is(next<dat::ib::rdma_write_immediate_done>(link.a.evd), link.active, 11, 90);
  is(next<dat::send_done>(link.a.evd), link.active, 12, 20);
  is(next<dat::ib::rdma_write_immediate_done>(link.a.evd), link.active, 13, 0);
  // The old value of an atomic is in the local word, even if other events come in between. The peer gets no event.
  link.far.value = {word, 7, 9};
  must(link.active.post(dat::ib::fetch_and_add{link.near.at(3), link.far.remote(0), 5}.cookie(14),
                        dat::ib::compare_and_swap{link.near.at(4), link.far.remote(1), 7, 70}.cookie(15),
                        dat::ib::compare_and_swap{link.near.at(5), link.far.remote(2), 8, 80}.cookie(16)));
  is(next<dat::ib::fetch_and_add_done>(link.a.evd), link.active, 14, 8);
  is(next<dat::ib::compare_and_swap_done>(link.a.evd), link.active, 15, 8);
  is(next<dat::ib::compare_and_swap_done>(link.a.evd), link.active, 16, 8);
  SHOWS("DTO-036", "DTO-048", "DTO-049", "COMP-068", "COMP-069", "COMP-010");
  CHECK(link.near.value == decltype(link.near.value){0, 0, 0, word, 7, 9});
  CHECK(link.far.value == decltype(link.far.value){word + 5u, 70, 9});
  CHECK(is_empty(link.a.evd));
  CHECK(is_empty(link.b.evd));
  SHOWS("DTO-046");
  SHOWS("DOCA-001");
}

TEST_CASE("extensions are queried by value and by name", "[ib][IBX-001][IBX-002]") {
  side s(0);
  const auto e = must(dat::ib::query_extensions(s.ia));
  const auto a = must(s.ia.query());
  CHECK(e.version == a.extension_version);
  ibv_device_attr device{};
  REQUIRE(::ibv_query_device(s.ia.native_handle(), &device) == 0);
  CHECK((e.fetch_and_add && e.compare_and_swap) == (device.atomic_cap != IBV_ATOMIC_NONE));
  CHECK(e.atomic_write == this_device().atomic_writes);
  if (in_lab() && !this_device().infiniband)
    CHECK((e.version == 0 && !e.immediate_data && !e.fetch_and_add && !e.datagrams));
  else if (in_lab())
    CHECK((e.version == 2 && e.immediate_data && e.fetch_and_add && e.datagrams));
  CHECK((e.version != 0) == (a.extension_supported == dat::extension::infiniband));
  const auto named = must(s.ia.query<dat::provider_attributes>()).specific;
  const auto said = [&](const char* name) {
    const auto* value = named.find(name);
    CHECK((!value || value->view() == "TRUE")); // the presence of the name means support
    return value != nullptr;
  };
  for (const char* name : {"DAT_IB_IMMED_DATA_OP", "DAT_IB_IMMED_DATA", "DAT_EXT_RDMA_WRITE_IMMED"})
    CHECK(said(name) == e.immediate_data);
  for (const char* name : {"DAT_IB_FETCH_AND_ADD_OP", "DAT_IB_FETCH_AND_ADD", "DAT_EXT_FETCH_AND_ADD"})
    CHECK(said(name) == e.fetch_and_add);
  for (const char* name : {"DAT_IB_CMP_AND_SWAP_OP", "DAT_IB_CMP_AND_SWAP", "DAT_EXT_CMP_AND_SWAP"})
    CHECK(said(name) == e.compare_and_swap);
  CHECK(said("DAT_IB_UD") == e.datagrams);
  CHECK(said("DAT_EXTENSION_INTERFACE") == (e.version != 0));
  const auto* version = named.find("DAT_EXTENSION_VERSION");
  CHECK((version ? version->view() == std::to_string(e.version) : e.version == 0));
  CHECK_FALSE(e.masked_atomics);
}

TEST_CASE("a write with immediate data takes the flags of a write, and a failed one is no success at the peer",
          "[ib][IBX-023][IBX-024][IBX-027][IBX-031]") {
  NEEDS_FEATURE(immediate_data);
  connected_pair link;
  buffer out(link.a.pz, 32);
  buffer in(link.b.pz, 32);
  // A fenced write waits for the read before it: it writes the last bytes that were read.
  constexpr std::size_t size = 256 * 1024;
  buffer source(link.b.pz, size);
  buffer sink(link.a.pz, size);
  for (std::uint32_t round = 1; round <= 4; ++round) {
    fill(source.bytes, round);
    must(link.passive.post(dat::recv{}));
    must(link.active.post(dat::rdma_read{sink.lmr, source.remote()}.suppress_completion(),
                          dat::rdma_write{sink.slice(size - 8, 8), in.remote(0, 8)}.immediate(round).fence()));
    CHECK(next<dat::ib::recv_write_immediate_done>(link.b.evd).immediate() == round);
    CHECK(std::ranges::equal(in.part(0, 8), source.part(size - 8, 8)));
    SHOWS("IBX-024");
    (void)next<dat::ib::rdma_write_immediate_done>(link.a.evd);
  }
  fill(out.bytes, 8);
  for (std::uint64_t i = 1; i <= 3; ++i) must(link.passive.post(dat::recv{}.cookie(i)));
  must(link.active.post(dat::rdma_write{out.lmr, in.remote()}.solicited_immediate(1).suppress_completion(),
                        dat::rdma_write{out.lmr, in.remote()}.immediate(2).fence().cookie(9)));
  // There is one completion, because the first write is suppressed.
  const auto done = next<dat::ib::rdma_write_immediate_done>(link.a.evd);
  CHECK(done.cookie() == dat::cookie(9));
  CHECK(done.bytes() == 32);
  CHECK(next<dat::ib::recv_write_immediate_done>(link.b.evd).immediate() == 1);
  CHECK(next<dat::ib::recv_write_immediate_done>(link.b.evd).immediate() == 2);
  CHECK(has_pattern(in.bytes, 8));
  // An invalid key: the write fails, and the waiting receive is neither a success nor immediate data.
  auto wire = in.remote().to_wire();
  wire[16] ^= std::byte{0xff};
  must(link.active.post(dat::rdma_write{out.lmr, must(window::from_wire(wire))}.immediate(3).cookie(10)));
  const auto failed = next<dat::dto_failure>(link.a.evd);
  CHECK(failed.operation() == dat::dto_operation::rdma_write_immediate);
  CHECK(failed.status() == dat::dto_status::remote_access);
  // The peer detects the failure, too. On a busy machine the peer may be the first to end the connection.
  (void)must(link.a.evd.wait_for_any<dat::connection_broken, dat::disconnected>(link.active, patience));
  const auto unmet = link.at_b<dat::dto_failure>();
  CHECK(unmet.cookie() == dat::cookie(3));
  CHECK(unmet.operation() == dat::dto_operation::recv);
  SHOWS("DOCA-022", "DOCA-028");
  // The next operation is flushed, like a write.
  must(link.active.post(dat::rdma_write{out.lmr, in.remote()}.immediate(4).cookie(11)));
  const auto late = next<dat::dto_failure>(link.a.evd);
  CHECK(late.status() == dat::dto_status::flushed);
  CHECK(late.operation() == dat::dto_operation::rdma_write_immediate);
}

} // namespace device
