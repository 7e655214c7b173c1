// Atomics on a device.
// SPDX-License-Identifier: BSL-1.0
#include "../support/worker.hpp"
#include "atomic_pair.hpp"
#include "device_table.hpp"
#include "support.hpp"

#include <support/streams.hpp>

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
    SHOWS("IBX-046");
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
  with_fenced([](atomic_pair& other) {
    other.far.value[0] = 7;
    must(other.active.post(dat::ib::compare_and_swap{other.near.at(0), other.far.remote(0), 7, 8}.suppress_completion(),
                           dat::rdma_read{other.near.at(2), other.far.remote(0)}.suppress_completion(),
                           dat::ib::compare_and_swap{other.near.at(1), other.far.remote(0), 8, 9}.fence().cookie(4)));
    const auto done = other.fenced_done<dat::ib::compare_and_swap_done>();
    if (!done) return false;
    CHECK(done->cookie() == dat::cookie(4)); // the first swap has no event
    CHECK((other.near.value[0] == 7 && other.near.value[1] == 8 && other.far.value[0] == 9));
    CHECK(other.near.value[2] == 8);
    SHOWS("IBX-046");
    return true;
  });
  // A read that completes before a fenced atomic returns the old word.
  with_fenced([](atomic_pair& other) {
    other.far.value[0] = 50;
    must(other.active.post(dat::rdma_read{other.near.at(2), other.far.remote(0)}.suppress_completion(),
                           dat::ib::fetch_and_add{other.near.at(0), other.far.remote(0), 1}.fence()));
    if (!other.fenced_done<dat::ib::fetch_and_add_done>()) return false;
    CHECK(other.near.value[2] == 50);
    SHOWS("IBX-046");
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

TEST_CASE("an atomic without notification triggers no cno, and every other atomic triggers one", "[ib][IBX-046]") {
  NEEDS_FEATURE(atomics);
  two_sides link;
  auto evd = must(link.a.ia.create_evd<support::mixed>(16));
  auto cno = must(link.a.ia.create_cno());
  must(evd.modify_cno(cno));
  auto from = must(link.a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = link.a.evd},
                                                {.recv_completion = dat::completion_notification::selective,
                                                 .request_completion = dat::completion_notification::selective}));
  auto to = link.b.make_ep();
  link.connect(from, to);
  const words near(link.a.pz);
  const words far(link.b.pz);
  const auto each = [&]<class Done, class Atomic>(std::type_identity<Done>, const Atomic& atomic) {
    // Polls: a wait would take part in the notification.
    const auto poll = [&] {
      auto e = evd.dequeue();
      for (; !e; e = evd.dequeue()) std::this_thread::yield();
      return std::get<Done>(e.assume_value()).cookie();
    };
    must(from.post(Atomic{atomic}.cookie(1).suppress_notification()));
    CHECK(poll() == dat::cookie(1));
    CHECK(error_of(cno.wait(0s)).type() == type::queue_empty);
    must(from.post(Atomic{atomic}.cookie(2)));
    CHECK(must(cno.wait(patience)) == evd.id());
    CHECK(poll() == dat::cookie(2));
    SHOWS("IBX-046");
  };
  each(std::type_identity<dat::ib::fetch_and_add_done>(), dat::ib::fetch_and_add{near.at(0), far.remote(0), 1});
  each(std::type_identity<dat::ib::compare_and_swap_done>(),
       dat::ib::compare_and_swap{near.at(1), far.remote(1), 0, 5});
  CHECK((far.value[0] == 2 && far.value[1] == 5));
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

/// An endpoint whose peer allows access to its words.
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
  // An atomic takes no receive of the peer that it could solicit, so neither has such a flag.
  constexpr auto solicits = []<class T>(const T&) {
    return requires(T & t) { t.solicited(); };
  };
  const dat::ib::fetch_and_add one{link.near.at(0), link.far.remote(0), 1};
  const dat::ib::compare_and_swap two{link.near.at(0), link.far.remote(0), 1, 2};
  STATIC_REQUIRE_FALSE(solicits(one));
  STATIC_REQUIRE_FALSE(solicits(two));
  SHOWS("IBX-046");
  const dat::rdma_write three{link.near.at(0), link.far.remote(0)};
  STATIC_REQUIRE_FALSE(solicits(three));
}

} // namespace device
