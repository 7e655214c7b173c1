// Connections from beginning to end: which side ends them, how, and with which operations in flight. Also many
// connections at once, and connections with other programs.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "rig.hpp"
#include "support.hpp"

#include <dat/csp.hpp>
#include <dat/srq.hpp>
#include <dat/ud.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <malloc.h>
#include <spawn.h>
#include <sys/wait.h>

extern char** environ;

namespace device {
namespace {

constexpr bool instrumented = rig::instrumented; // with a sanitizer the heap is not the program's own

// --- the matrix of endings -------------------------------------------------------------------------------------------

enum class how { abrupt, graceful, closed };
enum class load { nothing, receives, sends, shared };

/// "sent 3", "received 3", "flushed 3", "disconnected": an event with its cookie.
std::string brief(const event& e) {
  return std::visit(
      []<class E>(const E& one) -> std::string {
        if constexpr (std::is_same_v<E, dat::dto_failure>)
          return std::string(to_string(one.status())) + ' ' + std::to_string(one.cookie().value());
        else if constexpr (std::is_same_v<E, dat::send_done>)
          return "sent " + std::to_string(one.cookie().value());
        else if constexpr (std::is_same_v<E, dat::recv_done>)
          return "received " + std::to_string(one.cookie().value());
        else
          return describe(one);
      },
      e);
}

/// The events of a connection, sorted by queue. Events of one queue are in order, and errors have no order to events of
/// other queues (uDAPL 2.0 §6.3.1). Also records whether a success came after the end.
struct story {
  std::vector<std::string> receives;
  std::vector<std::string> requests;
  std::vector<std::string> connection;
  bool late = false;

  explicit story(const std::vector<event>& all) {
    for (const auto& e : all) {
      const auto text = brief(e);
      if (const auto* f = std::get_if<dat::dto_failure>(&e)) {
        (f->operation() == dat::dto_operation::recv ? receives : requests).push_back(text);
        continue;
      }
      if (text.starts_with("sent") || text.starts_with("received")) late = late || !connection.empty();
      (text.starts_with("sent") ? requests : text.starts_with("received") ? receives : connection).push_back(text);
    }
  }
};

using texts = std::vector<std::string>;

/// "flushed 1" ... "flushed n".
texts each(const char* what, unsigned first, unsigned last) {
  texts w;
  for (unsigned i = first; i <= last; ++i) w.push_back(std::string(what) + ' ' + std::to_string(i));
  return w;
}
texts operator+(texts a, const texts& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// --- other programs --------------------------------------------------------------------------------------------------

/// A program of the rdma-core package.
class rdma_program {
public:
  explicit rdma_program(const std::vector<std::string>& command) {
    std::vector<char*> argv;
    for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    const int err = ::posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (err != 0) pid_ = -1;
  }
  rdma_program(const rdma_program&) = delete;
  rdma_program& operator=(const rdma_program&) = delete;
  ~rdma_program() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    (void)wait();
  }
  explicit operator bool() const noexcept { return pid_ > 0; }
  /// The exit code of the program, or 128 + n for signal n.
  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

private:
  pid_t pid_ = -1;
};

/// The communicator of stream sockets of the adapter's address.
dat::communicator stream_of(const side& s) {
  return {s.ia.address().family() == dat::address_family::ipv4 ? AF_INET : AF_INET6, SOCK_STREAM, 0};
}

/// Connects to a program that may not be listening yet; by common_connect where the endpoint has a communicator.
void connect_to(side& a, endpoint& ep, dat::conn_qual port, const std::function<void()>& prepare,
                std::span<const std::byte> data = {}, const std::function<void(const dat::established&)>& up = {},
                place where = place::here()) {
  const auto until = std::chrono::steady_clock::now() + patience;
  for (;;) {
    prepare();
    if (ep.attributes().comm.domain != 0)
      must(ep.common_connect(addresses()[1].with_port(port.port()), patience, data), where);
    else
      must(ep.connect(addresses()[1], port, patience, data), where);
    auto e = a.evd.wait_for_any<dat::established, dat::non_peer_rejected>(ep, patience);
    if (!e) fail(e.assume_error().message(), where);
    if (const auto* there = std::get_if<dat::established>(&e.assume_value())) {
      if (up) up(*there);
      return;
    }
    if (std::chrono::steady_clock::now() > until) fail("the program does not listen", where);
    must(ep.reset(), where);
    while (a.evd.dequeue()) { // receives, flushed
    }
  }
}

void put_be(std::byte* to, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) to[i] = static_cast<std::byte>(value >> (8 * (bytes - 1 - i)));
}

/// The bytes that rping sends: address, key, length, all big-endian.
constexpr std::size_t rping_message = 16;
void rping_format(std::span<std::byte> to, const buffer& memory, std::size_t first, std::size_t count) {
  const auto wire = memory.remote(first, count).to_wire();
  std::copy_n(wire.begin(), 8, to.begin());
  std::copy_n(wire.begin() + 16, 4, to.begin() + 8);
  put_be(&to[12], count, 4);
}
window rping_window(std::span<const std::byte> from, const buffer& any) {
  window::wire wire = any.remote().to_wire(); // rping does not send element size, rights and version
  std::copy_n(from.begin(), 8, wire.begin());
  std::fill_n(wire.begin() + 8, 8, std::byte{0});
  std::copy_n(from.begin() + 12, 4, wire.begin() + 12);
  std::copy_n(from.begin() + 8, 4, wire.begin() + 16);
  return must(window::from_wire(wire));
}

#define NEEDS(p)                                                                                                       \
  if (!(p)) SKIP("the program is not installed: rdmacm-utils")

} // namespace

TEST_CASE("a connection ends correctly for every way to end it, from either side, with any operation in flight",
          "[lives]") {
  two_sides t;
  buffer here(t.a.pz, 256);
  buffer there(t.b.pz, 256);
  for (const bool passive_ends : {false, true})
    for (const how h : {how::abrupt, how::graceful, how::closed})
      for (const load l : {load::nothing, load::receives, load::sends, load::shared}) {
        INFO((passive_ends ? "passive" : "active")
             << " ends, how " << static_cast<int>(h) << ", load " << static_cast<int>(l));
        const bool shared = l == load::shared; // like sends, but the receives are in shared queues
        // Without a receive at the peer, the message ends the connection before the test does.
        if (!this_device().waits_for_receives && h != how::graceful && (shared || l == load::sends)) continue;
        auto queue_a = must(t.a.pz.create_srq());
        auto queue_b = must(t.b.pz.create_srq());
        const auto make = [&](side& s, const dat::srq& pool) {
          return shared ? endpoint(must(s.pz.create_ep<dat::rc>(s.evd, pool))) : s.make_ep();
        };
        auto active = make(t.a, queue_a);
        auto passive = make(t.b, queue_b);
        t.connect(active, passive);
        side& ender = passive_ends ? t.b : t.a;
        side& other = passive_ends ? t.a : t.b;
        const dat::srq& my_queue = passive_ends ? queue_b : queue_a;
        const dat::srq& their_queue = passive_ends ? queue_a : queue_b;
        endpoint& mine = passive_ends ? passive : active;
        endpoint& theirs = passive_ends ? active : passive;
        buffer& my_memory = passive_ends ? there : here;
        buffer& their_memory = passive_ends ? here : there;
        const auto receives = [&](endpoint& ep, const dat::srq& pool, buffer& m, unsigned n) {
          for (unsigned i = 1; i <= n; ++i) {
            const auto r = dat::recv{m.slice(0, 8)}.cookie(i);
            must(shared ? pool.post(r) : ep.post(r));
          }
        };
        // Sends complete only in a graceful disconnect; otherwise the peer has no receive for them.
        const bool graceful = h == how::graceful;
        unsigned mine_posted = 0;
        unsigned theirs_posted = 0;
        unsigned sends = 0;
        if (l == load::receives) mine_posted = theirs_posted = 4;
        if (l == load::sends || shared) {
          sends = 3;
          mine_posted = 2;
          theirs_posted = graceful ? 5 : 0;
        }
        receives(mine, my_queue, my_memory, mine_posted);
        receives(theirs, their_queue, their_memory, theirs_posted);
        for (unsigned i = 1; i <= sends; ++i) must(mine.post(dat::send{my_memory.slice(64, 8)}.cookie(i)));
        if (h == how::closed)
          must(mine.close());
        else
          must(mine.disconnect(graceful ? dat::close_mode::graceful : dat::close_mode::abrupt));
        if (h == how::abrupt) {
          CHECK(mine.state() == state::disconnected);
          SHOWS("DISC-030");
        }

        const unsigned delivered = graceful ? sends : 0;
        // Buffers of a shared queue stay in the queue.
        const unsigned flushed_there = shared ? 0 : theirs_posted - delivered;
        const unsigned flushed_here = shared ? 0 : mine_posted;
        const story seen(take(other.evd, 1 + delivered + flushed_there));
        CHECK(seen.connection == texts{"disconnected"});
        SHOWS("DISC-018", "DISC-026", "CONN-028", "EPS-057");
        CHECK(seen.receives ==
              each("received", 1, delivered) + each("flushed", delivered + 1, delivered + flushed_there));
        CHECK(seen.requests.empty());
        CHECK_FALSE(seen.late);
        SHOWS("DISC-019", "EPS-058");
        CHECK(theirs.state() == state::disconnected);
        SHOWS("DISC-018", "DISC-026");
        if (h != how::closed) {
          const story own(take(ender.evd, 1 + flushed_here + sends));
          CHECK(own.connection == texts{"disconnected"});
          CHECK(own.receives == each("flushed", 1, flushed_here));
          SHOWS("DISC-010");
          CHECK(own.requests == each(graceful ? "sent" : "flushed", 1, sends));
          SHOWS("EPS-064");
          CHECK_FALSE(own.late);
          SHOWS("EVENT-036");
          CHECK(mine.state() == state::disconnected);
          if (graceful && sends != 0) SHOWS("DISC-008", "EPS-049", "EPS-052", "REQ-072");
          if (h == how::abrupt && sends != 0) SHOWS("DISC-005", "DISC-006", "EPS-055");
        } else {
          CHECK(is_empty(ender.evd));
          SHOWS("DISC-037", "EP-035", "EP-036", "EP-037");
        }
        CHECK(is_empty(ender.evd));
        CHECK(is_empty(other.evd));
        SHOWS("DISC-001");
        if (shared) CHECK(must(my_queue.query()).available == mine_posted);
        if (shared) {
          CHECK(must(their_queue.query()).available == theirs_posted - delivered);
          SHOWS("DISC-032");
        }
      }
}

namespace {
/// Removes the events of one endpoint from `all`, and returns them.
std::vector<event> of(dat::ep_ref ep, std::vector<event>& all) {
  const auto is_its = [&](const event& e) {
    return std::visit(
        [&](const auto& one) {
          if constexpr (requires { one.ep() == ep; })
            return one.ep() == ep;
          else
            return false;
        },
        e);
  };
  const auto others = std::stable_partition(all.begin(), all.end(), [&](const event& e) { return !is_its(e); });
  std::vector<event> its(std::make_move_iterator(others), std::make_move_iterator(all.end()));
  all.erase(others, all.end());
  return its;
}

/// One side of a connection, with operations of each kind in flight.
struct loaded {
  load l;
  dat::srq pool;
  endpoint ep;
  unsigned receives = 0;
  unsigned sends = 0;

  loaded(side& s, load kind) : l(kind) {
    if (l == load::shared) {
      pool = must(s.pz.create_srq());
      ep = must(s.pz.create_ep<dat::rc>(s.evd, pool));
    } else {
      ep = s.make_ep({.retry_count = 3, .ack_timeout = std::chrono::milliseconds(30)});
    }
  }
  void post(buffer& memory) {
    receives = l == load::nothing ? 0 : l == load::receives ? 4 : 2;
    sends = l == load::sends || l == load::shared ? 3 : 0;
    for (unsigned i = 1; i <= receives; ++i) {
      const auto r = dat::recv{memory.slice(0, 8)}.cookie(i);
      must(l == load::shared ? pool.post(r) : ep.post(r));
    }
    for (unsigned i = 1; i <= sends; ++i) must(ep.post(dat::send{memory.slice(64, 8)}.cookie(i)));
  }
  /// The number of receives that are flushed at the end of the connection; those of a shared queue are not.
  [[nodiscard]] unsigned flushed() const { return l == load::shared ? 0 : receives; }
};
constexpr std::array all_loads{load::nothing, load::receives, load::sends, load::shared};

/// A process with connections in both directions; its arguments are its peer's address and port.
int many_ends_role(channel& to, const std::vector<std::string>& args) {
  side b(1);
  const auto port = next_port();
  const auto psp = must(b.ia.create_psp(port, b.evd));
  to.say(std::to_string(port.port()));
  const auto there = must(dat::ia_address::parse(args.at(0)));
  const auto there_port = must(dat::conn_qual::make(std::stoul(args.at(1))));
  std::vector<endpoint> all;
  for (std::size_t i = 0; i < all_loads.size(); ++i) {
    all.push_back(b.make_ep());
    must(next<dat::connection_request>(b.evd).accept(all.back()));
    (void)next<dat::established>(b.evd);
  }
  for (std::size_t i = 0; i < all_loads.size(); ++i) {
    all.push_back(b.make_ep());
    must(all.back().connect(there, there_port, patience));
    (void)next<dat::established>(b.evd);
  }
  to.say("up");
  (void)to.closed();
  return 0;
}
const role many_ends_registered("many ends", &many_ends_role);
} // namespace

TEST_CASE("killing a peer ends all its connections, active and passive, with any operation in flight",
          "[lives][CONN-030][DISC-039][EPS-049][EPS-055][EPS-058][EPS-064][SRQ-083]") {
  if (!this_device().flushes_late) SKIP(no_late_flush);
  side a(0);
  buffer memory(a.pz, 256);
  const auto port = next_port();
  const auto psp = must(a.ia.create_psp(port, a.evd));
  peer_process peer("many ends", {addresses()[0].host_string(), std::to_string(port.port())});
  const auto there = must(dat::conn_qual::make(std::stoul(peer.hear())));
  std::vector<loaded> ends;
  for (const bool passive : {false, true})
    for (const load l : all_loads) {
      ends.emplace_back(a, l);
      if (passive)
        must(next<dat::connection_request>(a.evd).accept(ends.back().ep));
      else
        must(ends.back().ep.connect(addresses()[1], there, patience));
      (void)next<dat::established>(a.evd);
    }
  CHECK(peer.hear() == "up");
  std::size_t expected = 0;
  for (auto& e : ends) {
    e.post(memory);
    expected += 1 + e.flushed() + e.sends;
  }
  peer.kill();
  auto all = take(a.evd, expected);
  for (auto& e : ends) {
    INFO("load " << static_cast<int>(e.l));
    const story seen(of(e.ep, all));
    CHECK(seen.connection == texts{"disconnected"});
    CHECK(seen.receives == each("flushed", 1, e.flushed()));
    CHECK(seen.requests == each("flushed", 1, e.sends));
    CHECK_FALSE(seen.late);
    CHECK(e.ep.state() == state::disconnected);
    if (e.l == load::shared) CHECK(must(e.pool.query()).available == e.receives);
  }
  CHECK(is_empty(a.evd));
}

TEST_CASE("a thousand connections on twenty pairs of endpoints leave no resource behind",
          "[lives][DISC-044][EPS-002][EPS-070][CONN-069][DISC-050]") {
  two_sides t;
  constexpr std::size_t pairs = 20;
  std::vector<endpoint> active;
  std::vector<endpoint> passive;
  for (std::size_t i = 0; i < pairs; ++i) {
    active.push_back(t.a.make_ep());
    passive.push_back(t.b.make_ep());
  }
  const auto all_are = [&]<class E>(const E*) {
    CHECK(count_of<E>(take(t.a.evd, pairs)) == pairs);
    CHECK(count_of<E>(take(t.b.evd, pairs)) == pairs);
  };
  const auto round = [&](int n) {
    for (auto& ep : active) must(ep.connect(t.target(), t.port(), patience));
    for (auto& ep : passive) must(t.at_b<dat::connection_request>().accept(ep));
    all_are(static_cast<const dat::established*>(nullptr));
    for (auto& ep : n % 2 == 0 ? active : passive)
      must(ep.disconnect(n % 4 < 2 ? dat::close_mode::graceful : dat::close_mode::abrupt));
    all_are(static_cast<const dat::disconnected*>(nullptr));
    for (auto* side : {&active, &passive})
      for (auto& ep : *side) must(ep.reset());
  };
  for (int i = 0; i < (instrumented ? 1 : 4); ++i) round(i);
  const auto before = resources::now();
  const auto heap = ::mallinfo2().uordblks;
  for (int i = 0; i < (instrumented ? 1 : 50); ++i) round(i);
  CHECK(resources::no_more_than(before));
  if (!instrumented) CHECK(::mallinfo2().uordblks <= heap + 16 * 1024);
  CHECK(is_empty(t.a.evd));
  CHECK(is_empty(t.b.evd));
}

TEST_CASE("hundreds of endpoints connect at once, with one evd on each side",
          "[lives][EVENT-006][EP-007][EPS-028][PSP-005][REQ-020]") {
  two_sides t({.qlen = 4096});
  const std::size_t many = instrumented ? 32 : 256;
  std::vector<endpoint> active;
  std::vector<endpoint> passive;
  buffer here(t.a.pz, 64);
  buffer there(t.b.pz, 64);
  const dat::ep_attributes small{.max_request_dtos = 2, .max_recv_dtos = 2, .max_request_iov = 1, .max_recv_iov = 1};
  for (std::size_t i = 0; i < many; ++i) {
    active.push_back(t.a.make_ep(small));
    passive.push_back(t.b.make_ep(small));
    must(passive.back().post(dat::recv{there.slice(0, 8)}.cookie(i)));
    must(active.back().connect(t.target(), t.port(), patience));
  }
  for (std::size_t i = 0; i < many; ++i) must(t.at_b<dat::connection_request>().accept(passive[i]));
  // Each endpoint gets exactly one event, which names it.
  const auto up = [&](side& s, const std::vector<endpoint>& all) {
    const auto events = take(s.evd, many);
    CHECK(count_of<dat::established>(events) == many);
    for (const auto& ep : all)
      CHECK(std::count_if(events.begin(), events.end(), [&](const event& e) {
              const auto* one = std::get_if<dat::established>(&e);
              return one && one->ep() == ep;
            }) == 1);
  };
  up(t.a, active);
  up(t.b, passive);
  for (auto& ep : active) must(ep.post(dat::send{here.slice(0, 8)}));
  CHECK(count_of<dat::send_done>(take(t.a.evd, many)) == many);
  CHECK(count_of<dat::recv_done>(take(t.b.evd, many)) == many);
  // One side ends half of the connections, and the other side ends the rest.
  const auto end = [&](std::vector<endpoint>& some, std::size_t n) {
    for (auto& ep : some)
      if (ep.state() == state::connected && n != 0) must(ep.disconnect()), --n;
    CHECK(count_of<dat::disconnected>(take(t.a.evd, many / 2)) == many / 2);
    CHECK(count_of<dat::disconnected>(take(t.b.evd, many / 2)) == many / 2);
  };
  end(active, many / 2);
  end(passive, many / 2);
}

TEST_CASE("a cut wire is detected by the sender, and disconnecting does not wait for the peer",
          "[lives][CONN-032][COMP-042][DISC-018][DISC-036][EPS-055][EPS-059][MODEL-043][HA-011]") {
  if (!this_device().breaks_in_time) SKIP(tcp_repeats);
  if (!in_lab()) SKIP("cuts the wire of the lab");
  two_sides t;
  std::array<endpoint, 3> active{t.a.make_ep(), t.a.make_ep(), t.a.make_ep()};
  std::array<endpoint, 3> passive{t.b.make_ep(), t.b.make_ep(), t.b.make_ep()};
  for (std::size_t i = 0; i < 3; ++i) t.connect(active[i], passive[i]);
  buffer memory(t.a.pz, 64);
  const cut_wire cut(cut_wire::of::first);
  REQUIRE(cut);
  must(active[0].disconnect());
  (void)next<dat::disconnected>(t.a.evd); // the peer's reply cannot have arrived
  CHECK(active[0].state() == state::disconnected);
  must(active[1].post(dat::send{memory.slice(0, 8)}.cookie(4)));
  const auto failure = must(t.a.evd.wait_for<dat::dto_failure>(active[1], patience));
  CHECK(failure.cookie() == dat::cookie(4));
  (void)must(t.a.evd.wait_for<dat::connection_broken>(active[1], patience));
  CHECK(active[1].state() == state::disconnected);
  // When the last path is lost, that event comes alone: there is no event about paths.
  CHECK(error_of(t.a.ia.async_evd().wait_for<dat::ha_down_to_1>(0s)) == dat::error(type::timeout_expired));
  SHOWS("REQ-187");
  // Connections without traffic detect nothing.
  CHECK(active[2].state() == state::connected);
  for (const auto& ep : passive) CHECK(ep.state() == state::connected);
  CHECK(is_empty(t.a.evd));
  CHECK(is_empty(t.b.evd));
  CHECK((is_empty(t.a.ia.async_evd()) && is_empty(t.b.ia.async_evd()))); // no event about paths
  SHOWS("HA-016");
}

TEST_CASE("of two connections over a cut wire, that with the shorter time for a dead peer breaks first", "[lives]") {
  if (!this_device().breaks_in_time) SKIP(tcp_repeats);
  if (!in_lab()) SKIP("cuts the wire of the lab");
  two_sides t;
  dat::ep_attributes soon;
  dat::ep_attributes late;
  soon.detect_dead_peer_within(100ms);
  CHECK(late.detect_dead_peer_within(60s).usual > 7s);
  endpoint impatient = t.a.make_ep(soon);
  endpoint patient = t.a.make_ep(late);
  endpoint first = t.b.make_ep();
  endpoint second = t.b.make_ep();
  t.connect(impatient, first);
  t.connect(patient, second);
  buffer memory(t.a.pz, 64);
  const cut_wire cut(cut_wire::of::both);
  REQUIRE(cut);
  must(patient.post(dat::send{memory.slice(0, 8)})); // posted before the send below
  must(impatient.post(dat::send{memory.slice(0, 8)}));
  (void)must(t.a.evd.wait_for<dat::connection_broken>(impatient, patience));
  CHECK(patient.state() == state::connected);
}

TEST_CASE("an idle connection over a cut wire breaks if it tests its peer, and lives on if it does not", "[lives]") {
  if (!this_device().breaks_in_time) SKIP(tcp_repeats);
  if (!in_lab()) SKIP("cuts the wire of the lab");
  two_sides t;
  dat::ep_attributes testing;
  testing.detect_dead_peer_within(200ms);
  endpoint watches = t.a.make_ep(testing);
  endpoint idle = t.a.make_ep();
  endpoint first = t.b.make_ep(); // this endpoint only receives
  endpoint second = t.b.make_ep();
  t.connect(watches, first);
  t.connect(idle, second);
  const cut_wire cut(cut_wire::of::both);
  REQUIRE(cut);
  (void)must(t.a.evd.wait_for<dat::connection_broken>(watches, patience)); // nothing was posted
  CHECK(idle.state() == state::connected);
}

TEST_CASE("tests of an idle connection are no event on either side", "[lives]") {
  two_sides t;
  dat::ep_attributes testing;
  testing.keep_alive = 1ms;
  endpoint active = t.a.make_ep(testing);
  endpoint passive = t.b.make_ep(testing);
  t.connect(active, passive);
  // Keep-alive tests run between the messages. The only events are those of the messages.
  for (unsigned i = 0; i < 200; ++i) {
    must(passive.post(dat::recv{}.cookie(i)));
    must(active.post(dat::send{}.cookie(i)));
    CHECK(must(t.a.evd.wait_for<dat::send_done>(active, patience)).cookie() == dat::cookie(i));
    CHECK(must(t.b.evd.wait_for<dat::recv_done>(passive, patience)).cookie() == dat::cookie(i));
  }
  CHECK(active.state() == state::connected);
  CHECK(passive.state() == state::connected);
  CHECK(is_empty(t.a.evd));
  CHECK(is_empty(t.b.evd));
}

TEST_CASE("every object can be closed in every state on a cut wire, without waiting for the peer",
          "[lives][DISC-018][DISC-036][EPS-046][EPS-055][EP-034][EP-040][IA-047]") {
  if (!this_device().breaks_in_time) SKIP(tcp_repeats);
  if (!in_lab()) SKIP("cuts the wire of the lab");
  two_sides t;
  std::array<endpoint, 5> active{t.a.make_ep(), t.a.make_ep(), t.a.make_ep(), t.a.make_ep(), t.a.make_ep()};
  std::array<endpoint, 3> passive{t.b.make_ep(), t.b.make_ep(), t.b.make_ep()};
  buffer memory(t.a.pz, 64);
  t.connect(active[0], passive[0]);
  t.connect(active[1], passive[1]);
  must(active[2].connect(t.target(), t.port(), patience));
  auto request = t.at_b<dat::connection_request>();
  must(active[3].connect(t.target(), t.port(), patience));
  auto unanswered = t.at_b<dat::connection_request>();
  const cut_wire cut(cut_wire::of::both);
  REQUIRE(cut);
  must(active[1].post(dat::send{memory.slice(0, 8)}));
  must(active[1].disconnect(dat::close_mode::graceful));
  must(active[4].connect(t.target(), t.port(), patience));
  must(request.accept(passive[2]));
  CHECK(active[1].state() == state::disconnect_pending);
  CHECK(active[2].state() == state::active_connection_pending);
  CHECK(passive[2].state() == state::completion_pending);
  const bool all_at_once = GENERATE(false, true);
  const background ending([&] {
    if (!all_at_once) {
      for (auto& ep : active) must(ep.close());
      for (auto& ep : passive) must(ep.close());
      must(unanswered.reject());
      must(t.psp.close());
    }
    must(t.a.ia.close());
    must(t.b.ia.close());
  });
  CHECK(comes_true([&] { return ending.done(); })); // the connection manager gives up after a minute
  SHOWS("DISC-038");
}

TEST_CASE("a lost accept ends in connection_timed_out here and accept_completion_error at the peer",
          "[lives][CONN-025][CONN-027][CONN-041][EPS-010][EPS-022][EPS-025][CR-037][REQ-077]") {
  if (!this_device().breaks_in_time) SKIP(tcp_repeats);
  if (!in_lab()) SKIP("cuts the wire of the lab");
  two_sides t;
  auto first = t.a.make_ep();
  auto other = t.b.make_ep();
  t.connect(first, other); // fills the neighbour table
  auto active = t.a.make_ep();
  auto passive = t.b.make_ep();
  must(passive.post(dat::recv{}.cookie(2)));
  const cut_wire cut(cut_wire::of::second);
  REQUIRE(cut);
  must(active.connect(t.target(), t.port(), unanswered_limit));
  must(t.at_b<dat::connection_request>().accept(passive));
  CHECK(passive.state() == state::completion_pending);
  SHOWS("EPS-021");
  (void)next<dat::connection_timed_out>(t.a.evd);
  CHECK(active.state() == state::disconnected);
  const story seen(take(t.b.evd, 2));
  CHECK(seen.connection == texts{"accept_completion_error, reason 4"});
  SHOWS("DISC-041");
  CHECK(seen.receives == texts{"flushed 2"});
  CHECK(passive.state() == state::disconnected);
  CHECK(is_empty(t.a.evd));
}

TEST_CASE("a lost reject succeeds here and ends in connection_timed_out at the peer", "[lives][CR-058]") {
  if (!in_lab()) SKIP("cuts the wire of the lab");
  two_sides t;
  auto active = t.a.make_ep();
  must(active.connect(t.target(), t.port(), unanswered_limit));
  auto request = t.at_b<dat::connection_request>();
  const cut_wire cut(cut_wire::of::second);
  REQUIRE(cut);
  must(request.reject(bytes_of("not delivered")));
  CHECK_FALSE(request);
  (void)next<dat::connection_timed_out>(t.a.evd);
  CHECK(active.state() == state::disconnected);
  CHECK(is_empty(t.a.evd));
}

TEST_CASE("data that overtakes a lost last handshake message establishes the connection", "[lives][CR-036][EPS-024]") {
  if (!this_device().breaks_in_time) SKIP(tcp_repeats);
  if (!in_lab()) SKIP("changes the wire of the lab");
  two_sides t;
  auto active = t.a.make_ep();
  auto passive = t.b.make_ep();
  buffer out(t.a.pz, 16);
  buffer in(t.b.pz, 16);
  must(active.connect(t.target(), t.port(), patience));
  auto request = t.at_b<dat::connection_request>();
  must(passive.post(dat::recv{in.lmr}.cookie(5)));
  {
    // Drops data packets that arrive at the far end. Messages of the connection manager, which go to queue pair 1,
    // pass.
    struct deaf {
      bool done = std::system("tc qdisc add dev v2 ingress && tc filter add dev v2 parent ffff: protocol ip u32 "
                              "match u32 0x00000001 0x00ffffff at 32 action drop") == 0;
      deaf() = default;
      deaf(const deaf&) = delete;
      deaf& operator=(const deaf&) = delete;
      ~deaf() { (void)!std::system("tc qdisc del dev v2 ingress"); }
    } const end;
    REQUIRE(end.done);
    must(request.accept(passive));
    (void)next<dat::established>(t.a.evd);
    CHECK(passive.state() == state::completion_pending);
    CHECK(is_empty(t.b.evd));
    must(active.post(dat::send{out.lmr}));
    (void)next<dat::established>(t.b.evd);
    CHECK(next<dat::recv_done>(t.b.evd).cookie() == dat::cookie(5));
    CHECK(passive.state() == state::connected);
    (void)next<dat::send_done>(t.a.evd);
  }
  t.disconnect(active, passive);
}

TEST_CASE("a lost reply to a datagram request is repeated, and the consumer gets one request",
          "[lives][ud][CR-050][CONN-016]") {
  NEEDS_FEATURE(datagrams);
  if (!in_lab()) SKIP("cuts the wire of the lab");
  constexpr auto streams = all_streams | dat::stream::datagrams;
  side a(0);
  side b(1);
  auto at_a = must(a.ia.create_evd<streams>(16));
  auto at_b = must(b.ia.create_evd<streams>(16));
  auto active = must(a.pz.create_ep<dat::ud>(at_a));
  auto passive = must(b.pz.create_ep<dat::ud>(at_b));
  const auto port = next_port();
  const auto service = must(dat::ib::datagram_service::listen(b.ia, port, at_b));
  must(active.connect(b.ia.address(), port, patience));
  {
    auto request = std::get<dat::ib::datagram_request>(must(at_b.wait(patience)));
    const cut_wire lost(cut_wire::of::second);
    REQUIRE(lost);
    must(request.accept(passive));
    CHECK(error_of(at_a.wait(300ms)).type() == type::timeout_expired);
  }
  CHECK(std::get<dat::ib::datagram_established>(must(at_b.wait(patience))).is_passive());
  const auto known = std::get<dat::ib::datagram_established>(must(at_a.wait(patience))); // after 4.1 s
  CHECK(known.peer().assume_value().qp_number() == passive.number());
  CHECK(is_empty(at_b));
}

TEST_CASE("a wire with a smaller MTU passes small messages, fails large ones, and the error names the MTU", "[lives]") {
  if (!this_device().breaks_in_time) SKIP(tcp_repeats);
  if (!in_lab()) SKIP("changes the wire of the lab");
  connected_pair link({.active = {.retry_count = 1}});
  buffer out(link.a.pz, 4096);
  buffer in(link.b.pz, 4096);
  // Drops at the far end, as a switch would: a packet that the sender's own queue refuses is not lost but sent again.
  struct min {
    bool done = std::system("tc qdisc add dev v2 ingress && tc filter add dev v2 parent ffff: protocol ip u32 "
                            "match u16 0x0400 0xfc00 at 2 action drop") == 0; // IP packets of 1024 bytes and more
    min() = default;
    min(const min&) = delete;
    min& operator=(const min&) = delete;
    ~min() { (void)!std::system("tc qdisc del dev v2 ingress"); }
  } const wire;
  REQUIRE(wire.done);
  must(link.active.post(dat::rdma_write{out.slice(0, 64), in.remote()}));
  (void)next<dat::rdma_write_done>(link.a.evd);
  must(link.active.post(dat::rdma_write{out.lmr, in.remote()}));
  const auto failure = must(link.a.evd.wait_for<dat::dto_failure>(patience));
  CHECK(failure.status() == dat::dto_status::transport);
  CHECK_THAT(failure.message(), support::contains_text("MTU"));
}

namespace {
/// Keeps a hundred endpoints, and memory that its parent may write to, until it is killed.
int hoard_role(channel& to, const std::vector<std::string>&) {
  side b(1);
  const auto port = next_port();
  const auto psp = must(b.ia.create_psp(port, b.evd));
  std::vector<endpoint> many;
  for (int i = 0; i < 100; ++i)
    many.push_back(must(b.pz.create_ep<dat::rc>(b.evd, {.max_request_dtos = 1, .max_recv_dtos = 1})));
  buffer memory(b.pz, 4096);
  to.say(std::to_string(port.port()));
  must(must(b.evd.wait_for<dat::connection_request>(patience)).accept(many[0], memory.lmr.remote().to_wire()));
  (void)to.closed();
  return 0;
}
const role hoard_registered("hoard", &hoard_role);
} // namespace

TEST_CASE("the resources of a killed process are free again, and its memory cannot be accessed",
          "[lives][REQ-029][REQ-031]") {
  two_sides link;
  peer_process peer("hoard");
  const auto port = must(dat::conn_qual::make(std::stoul(peer.hear())));
  auto ep = link.a.make_ep();
  must(ep.connect(addresses()[1], port, patience));
  const auto up = must(link.a.evd.wait_for<dat::established>(patience));
  const auto there = must(window::from_wire(up.private_data()));
  buffer out(link.a.pz, 4096);
  must(ep.post(dat::rdma_write{out.lmr, must(there.slice(0, 4096))}));
  (void)next<dat::rdma_write_done>(link.a.evd);
  if (in_lab()) CHECK(resources::of(peer.id()).count["lqpn"] >= 100);
  CHECK(error_of(link.b.ia.create_psp(port, link.b.evd)).type() == type::conn_qual_in_use);
  peer.kill();
  // The process that continues to write gets an event. It changes no memory that now belongs to another process.
  for (;;) {
    if (!ep.post(dat::rdma_write{out.lmr, must(there.slice(0, 4096))}.cookie(7))) break; // the connection ended first
    const auto e = must(link.a.evd.wait(patience));
    if (!std::holds_alternative<dat::rdma_write_done>(e)) break;
  }
  while (ep.state() != state::disconnected) (void)must(link.a.evd.wait(patience));
  (void)peer.wait();
  CHECK(comes_true([&] { return resources::of(peer.id()).count.empty(); }));
  const auto again = must(link.b.ia.create_psp(port, link.b.evd));
  link.a.evd.drain([](const auto&) {}, 100);
  auto second = link.a.make_ep({.ack_timeout = 20s}); // a refused write is not repeated
  auto passive = link.b.make_ep({.ack_timeout = 20s});
  link.connect(second, passive);
  if (!this_device().completes_at_peer) SKIP(completes_early);
  // The key of the ended process gives no access over another connection either.
  must(second.post(dat::rdma_write{out.slice(0, 8), must(there.slice(0, 8))}));
  CHECK(must(link.a.evd.wait_for<dat::dto_failure>(second, patience)).status() == dat::dto_status::remote_access);
}

TEST_CASE("damaged packets are retransmitted or the operation fails; data never arrives wrong",
          "[lives][MODEL-042][CONN-015]") {
  if (!this_device().breaks_in_time) SKIP(tcp_repeats);
  if (!in_lab()) SKIP("damages packets of the lab");
  connected_pair link;
  auto hasty = link.a.make_ep({.retry_count = 1, .ack_timeout = 20'000us});
  auto far = link.b.make_ep();
  link.connect(hasty, far);
  constexpr std::size_t size = 200 * 1024;
  buffer out(link.a.pz, size);
  buffer in(link.b.pz, size);
  struct damage {
    bool done = std::system("tc qdisc add dev v1 root netem corrupt 2%") == 0;
    damage() = default;
    damage(const damage&) = delete;
    damage& operator=(const damage&) = delete;
    ~damage() { (void)!std::system("tc qdisc del dev v1 root"); }
  } const wire;
  REQUIRE(wire.done);
  const auto repairs = [] { // counters of packets that arrived out of order or not at all
    std::uint64_t sum = 0;
    for (const char* name : {"rx1/ports/1/hw_counters/completer_retry_err", "rx1/ports/1/hw_counters/rcvd_seq_err",
                             "rx2/ports/1/hw_counters/out_of_seq_request"}) {
      std::uint64_t n = 0;
      std::ifstream(std::string("/sys/class/infiniband/") + name) >> n;
      sum += n;
    }
    return sum;
  };
  const auto before = repairs();
  bool up = true;
  for (std::uint32_t i = 0; i < 4 && up; ++i) {
    fill(out.bytes, i);
    must(link.active.post(dat::rdma_write{out.lmr, in.remote()}));
    const auto e = must(link.a.evd.wait(patience * 4));
    up = std::holds_alternative<dat::rdma_write_done>(e);
    if (up)
      CHECK(has_pattern(in.bytes, i));
    else
      CHECK(std::get<dat::dto_failure>(e).status() == dat::dto_status::transport);
  }
  // Shows that packets were damaged. The kernel may return values that it has read a moment ago.
  CHECK((!up || comes_true([&] { return repairs() > before; })));
  // If no packet arrives undamaged, the operation fails.
  REQUIRE(std::system("tc qdisc change dev v1 root netem corrupt 100%") == 0);
  must(hasty.post(dat::rdma_write{out.lmr, in.remote()}));
  const auto failure = must(link.a.evd.wait_for<dat::dto_failure>(hasty, patience));
  CHECK(failure.status() == dat::dto_status::transport);
}

TEST_CASE("a cut wire breaks the connections that send, and the others continue when it is restored",
          "[lives][CONN-015][CONN-032][EPS-055][EPS-059][EPS-062][SRQ-083]") {
  if (!this_device().breaks_in_time) SKIP(tcp_repeats);
  if (!in_lab()) SKIP("cuts the wire of the lab");
  if (instrumented) SKIP("nothing in it that the same endings, without a cut, would not show to a sanitizer");
  two_sides t;
  buffer here(t.a.pz, 256);
  buffer there(t.b.pz, 256);
  struct link {
    bool passive_has_it; ///< the passive side has the operation
    loaded mine;
    endpoint theirs;
  };
  std::vector<link> links;
  for (const bool passive : {false, true})
    for (const load l : all_loads) {
      links.push_back({passive, loaded(passive ? t.b : t.a, l), (passive ? t.a : t.b).make_ep()});
      auto& k = links.back();
      t.connect(passive ? k.theirs : k.mine.ep, passive ? k.mine.ep : k.theirs);
    }
  std::array<std::size_t, 2> expected{};
  {
    const cut_wire cut(cut_wire::of::both);
    REQUIRE(cut);
    for (auto& k : links) {
      must(k.theirs.post(dat::recv{(k.passive_has_it ? here : there).slice(128, 8)}.cookie(9)));
      k.mine.post(k.passive_has_it ? there : here);
      if (k.mine.sends != 0) expected[k.passive_has_it ? 1 : 0] += 1 + k.mine.flushed() + k.mine.sends;
    }
    std::array all{take(t.a.evd, expected[0]), take(t.b.evd, expected[1])};
    for (auto& k : links) {
      INFO((k.passive_has_it ? "passive" : "active") << ", load " << static_cast<int>(k.mine.l));
      const story seen(of(k.mine.ep, all[k.passive_has_it ? 1 : 0]));
      if (k.mine.sends == 0) { // no side can have detected the cut
        CHECK(seen.connection.empty());
        CHECK(k.mine.ep.state() == state::connected);
        continue;
      }
      CHECK(seen.connection == texts{"broken"});
      CHECK(seen.receives == each("flushed", 1, k.mine.flushed()));
      CHECK(seen.requests == texts{"transport error 1"} + each("flushed", 2, k.mine.sends));
      CHECK_FALSE(seen.late);
      CHECK(k.mine.ep.state() == state::disconnected);
    }
  }
  // After the repair the peer of each broken connection is notified, and the other connections work.
  const auto broken = static_cast<std::size_t>(
      std::count_if(links.begin(), links.end(), [](const link& k) { return k.mine.sends != 0; }));
  // Two events for each connection, half of them on either side.
  std::array all{take(t.a.evd, broken), take(t.b.evd, broken)};
  for (auto& k : links) {
    side& other = k.passive_has_it ? t.a : t.b;
    INFO((k.passive_has_it ? "passive" : "active") << ", load " << static_cast<int>(k.mine.l));
    const story seen(of(k.theirs, all[k.passive_has_it ? 0 : 1]));
    if (k.mine.sends != 0) {
      CHECK(seen.connection == texts{"disconnected"});
      SHOWS("EPS-063", "CONN-030");
      CHECK(seen.receives == texts{"flushed 9"});
      continue;
    }
    CHECK(seen.connection.empty());
    must(k.mine.ep.post(dat::send{(k.passive_has_it ? there : here).slice(64, 8)}));
    CHECK(must(other.evd.wait_for<dat::recv_done>(k.theirs, patience)).cookie() == dat::cookie(9));
    SHOWS("HA-011");
  }
}

// --- programs of rdma-core -------------------------------------------------------------------------------------------

TEST_CASE("dat serves rping", "[programs][CONN-001][CR-019][CSP-015][MODEL-030][CONN-015]") {
  side b(1);
  const auto port = next_port();
  auto csp = must(b.ia.create_csp(stream_of(b), b.ia.address().with_port(port.port()), b.evd));
  constexpr std::size_t size = 100;
  rdma_program rping({"rping", "-c", "-a", addresses()[1].host_string(), "-p", std::to_string(port.port()), "-C", "4",
                      "-S", std::to_string(size), "-V"});
  NEEDS(rping);
  buffer memory(b.pz, 4096);
  auto ep = b.make_ep();
  const auto receive = [&] { must(ep.post(dat::recv{memory.slice(0, rping_message)})); };
  receive();
  auto request = next<dat::connection_request>(b.evd);
  must(request.accept(ep));
  (void)next<dat::established>(b.evd);
  for (int i = 0; i < 4; ++i) {
    (void)must(b.evd.wait_for<dat::recv_done>(patience));
    const auto source = rping_window(memory.part(0, rping_message), memory);
    receive();
    must(ep.post(dat::rdma_read{memory.slice(1024, size), source}));
    must(ep.post(dat::send{memory.slice(64, rping_message)}.fence()));
    (void)must(b.evd.wait_for<dat::rdma_read_done>(patience));
    const std::string text(reinterpret_cast<const char*>(&memory.bytes[1024]), 10);
    CHECK(text == "rdma-ping-");
    (void)must(b.evd.wait_for<dat::send_done>(patience));
    (void)must(b.evd.wait_for<dat::recv_done>(patience));
    const auto sink = rping_window(memory.part(0, rping_message), memory);
    receive();
    must(ep.post(dat::rdma_write{memory.slice(1024, size), sink}));
    must(ep.post(dat::send{memory.slice(64, rping_message)}));
    (void)must(b.evd.wait_for<dat::rdma_write_done>(patience));
    (void)must(b.evd.wait_for<dat::send_done>(patience));
  }
  CHECK(rping.wait() == 0); // rping compares the data that comes back
}

TEST_CASE("rping serves", "[programs][CONN-001][CONN-081][MODEL-030][CONN-015][EPS-020]") {
  side a(0);
  const auto port = next_port();
  constexpr std::size_t size = 100;
  rdma_program rping({"rping", "-s", "-a", addresses()[1].host_string(), "-p", std::to_string(port.port()), "-S",
                      std::to_string(size)});
  NEEDS(rping);
  buffer memory(a.pz, 4096);
  auto ep = a.make_ep({.comm = stream_of(a)}); // by common_connect
  const auto receive = [&] { must(ep.post(dat::recv{memory.slice(0, rping_message)})); };
  connect_to(a, ep, port, receive);
  for (std::uint32_t i = 0; i < 3; ++i) {
    // rping writes back a text that ends with NUL.
    std::fill_n(memory.bytes.begin() + 1024, size - 1, static_cast<std::byte>('a' + i));
    memory.bytes[1024 + size - 1] = std::byte{0};
    rping_format(memory.part(64, rping_message), memory, 1024, size);
    must(ep.post(dat::send{memory.slice(64, rping_message)}));
    (void)must(a.evd.wait_for<dat::recv_done>(patience)); // rping has read the data
    receive();
    rping_format(memory.part(128, rping_message), memory, 2048, size);
    must(ep.post(dat::send{memory.slice(128, rping_message)}));
    (void)must(a.evd.wait_for<dat::recv_done>(patience)); // rping has also written
    receive();
    CHECK(std::equal(memory.bytes.begin() + 1024, memory.bytes.begin() + 1024 + size, memory.bytes.begin() + 2048));
  }
  must(ep.disconnect());
  CHECK(rping.wait() == 0);
}

TEST_CASE("dat interoperates with rdma_client and rdma_server", "[programs][CONN-001][CR-019]") {
  const auto port = next_port();
  SECTION("rdma_client") {
    side b(1);
    buffer memory(b.pz, 64);
    auto psp = must(b.ia.create_psp(port, b.evd));
    rdma_program client({"rdma_client", "-s", addresses()[1].host_string(), "-p", std::to_string(port.port())});
    NEEDS(client);
    auto ep = b.make_ep();
    must(ep.post(dat::recv{memory.slice(0, 16)}));
    must(next<dat::connection_request>(b.evd).accept(ep));
    (void)must(b.evd.wait_for<dat::recv_done>(patience));
    must(ep.post(dat::send{memory.slice(0, 16)}));
    (void)must(b.evd.wait_for<dat::send_done>(patience));
    (void)must(b.evd.wait_for<dat::disconnected>(patience));
    CHECK(client.wait() == 0);
  }
  SECTION("rdma_server") {
    side a(0);
    buffer memory(a.pz, 64);
    rdma_program server({"rdma_server", "-s", addresses()[1].host_string(), "-p", std::to_string(port.port())});
    NEEDS(server);
    auto ep = a.make_ep();
    connect_to(a, ep, port, [&] { must(ep.post(dat::recv{memory.slice(0, 16)})); });
    must(ep.post(dat::send{memory.slice(16, 16)}));
    (void)must(a.evd.wait_for<dat::recv_done>(patience));
    (void)must(a.evd.wait_for<dat::disconnected>(patience));
    CHECK(server.wait() == 0);
  }
}

TEST_CASE("dat interoperates with ucmatose as server and client, on several connections",
          "[programs][CONN-001][CR-019]") {
  const auto port = next_port();
  constexpr unsigned connections = 3;
  constexpr unsigned messages = 5;
  constexpr std::size_t size = 64;
  const std::vector<std::string> common{"-p", std::to_string(port.port()), "-c", std::to_string(connections),
                                        "-C", std::to_string(messages),    "-S", std::to_string(size)};
  const auto command = [&](const char* flag) { return texts{"ucmatose", flag, addresses()[1].host_string()} + common; };
  std::vector<endpoint> eps;
  const auto receives = [](endpoint& ep, buffer& memory) {
    for (unsigned i = 0; i < messages; ++i) must(ep.post(dat::recv{memory.slice(0, size)}));
  };
  SECTION("client") {
    side b(1);
    buffer memory(b.pz, 256);
    auto psp = must(b.ia.create_psp(port, b.evd));
    rdma_program client(command("-s"));
    NEEDS(client);
    for (unsigned i = 0; i < connections; ++i) {
      eps.push_back(b.make_ep());
      receives(eps.back(), memory);
      must(must(b.evd.wait_for<dat::connection_request>(patience)).accept(eps.back()));
    }
    for (auto& ep : eps) (void)must(b.evd.wait_for<dat::established>(ep, patience));
    for (auto& ep : eps)
      for (unsigned i = 0; i < messages; ++i) must(ep.post(dat::send{memory.slice(128, size)}));
    for (auto& ep : eps)
      for (unsigned i = 0; i < messages; ++i) {
        (void)must(b.evd.wait_for<dat::send_done>(ep, patience));
        (void)must(b.evd.wait_for<dat::recv_done>(ep, patience));
      }
    for (auto& ep : eps) must(ep.disconnect()); // this process replaces the server program
    CHECK(client.wait() == 0);
  }
  SECTION("server") {
    side a(0);
    buffer memory(a.pz, 256);
    rdma_program server(command("-b"));
    NEEDS(server);
    for (unsigned i = 0; i < connections; ++i) {
      eps.push_back(a.make_ep());
      connect_to(a, eps.back(), port, [&] { receives(eps.back(), memory); });
    }
    for (auto& ep : eps)
      for (unsigned i = 0; i < messages; ++i) (void)must(a.evd.wait_for<dat::recv_done>(ep, patience));
    for (auto& ep : eps)
      for (unsigned i = 0; i < messages; ++i) must(ep.post(dat::send{memory.slice(128, size)}));
    for (auto& ep : eps)
      for (unsigned i = 0; i < messages; ++i) (void)must(a.evd.wait_for<dat::send_done>(ep, patience));
    for (auto& ep : eps) (void)must(a.evd.wait_for<dat::disconnected>(ep, patience));
    CHECK(server.wait() == 0);
  }
}

// --- OFA's uDAPL -----------------------------------------------------------------------------------------------------

namespace {
/// Starts the program ofa_peer, which is built where OFA's library is installed.
rdma_program ofa_peer(const char* what, std::size_t at, dat::conn_qual port) {
  std::array<char, 4096> self{};
  (void)!::readlink("/proc/self/exe", self.data(), self.size() - 1);
  const std::string path(self.data());
  return rdma_program({path.substr(0, path.rfind('/')) + "/ofa_peer", what, addresses()[at].host_string(),
                       addresses()[1 - at].host_string(), std::to_string(port.port())});
}

/// The private data of both sides: the name of the sender, and the memory that the peer may write to.
constexpr std::size_t hello_size = 24;
std::vector<std::byte> ofa_hello(const buffer& memory) {
  std::vector<std::byte> h(hello_size);
  rping_format(h, memory, 0, 1024);
  const auto word = bytes_of("dat here");
  std::copy(word.begin(), word.end(), h.begin() + 12);
  return h;
}
window ofa_window(std::span<const std::byte> told, const buffer& any) {
  REQUIRE(told.size() >= hello_size);
  CHECK(std::string(reinterpret_cast<const char*>(&told[12])) == "ofa here");
  std::array<std::byte, rping_message> w{};
  std::copy_n(told.begin(), 12, w.begin());
  put_be(&w[12], 1024, 4);
  return rping_window(w, any);
}

/// The conversation of ofa_peer, from dat's side.
void talk_to_ofa(side& s, endpoint& ep, buffer& memory, const window& there) {
  for (std::size_t i = 0; i < 1024; ++i) memory.bytes[1024 + i] = static_cast<std::byte>(i % 251);
  const auto word = bytes_of("ready");
  std::copy(word.begin(), word.end(), memory.bytes.begin() + 2048);
  must(ep.post(dat::rdma_write{memory.slice(1024, 1024), there}.suppress_completion(),
               dat::send{memory.slice(2048, 5)}));
  (void)must(s.evd.wait_for<dat::send_done>(patience)); // the two may come in either order
  CHECK(must(s.evd.wait_for<dat::recv_done>(patience)).bytes() == 7);
  for (std::size_t i = 0; i < 1024; ++i)
    if (memory.bytes[i] != static_cast<std::byte>(i % 241)) FAIL("byte " << i << " of what the peer has written");
}
} // namespace

TEST_CASE("OFA's uDAPL connects, exchanges RDMA writes and disconnects", "[programs][ofa][CONN-001][CR-019][REQ-040]") {
  side b(1);
  buffer memory(b.pz, 4096);
  const auto port = next_port();
  const auto psp = must(b.ia.create_psp(port, b.evd));
  auto peer = ofa_peer("connect", 0, port);
  if (!peer) SKIP("built without libdapl-dev");
  auto ep = b.make_ep();
  must(ep.post(dat::recv{memory.slice(3072, 64)}));
  auto request = next<dat::connection_request>(b.evd);
  const auto there = ofa_window(request.private_data(), memory);
  must(request.accept(ep, ofa_hello(memory)));
  (void)next<dat::established>(b.evd);
  talk_to_ofa(b, ep, memory, there);
  (void)next<dat::disconnected>(b.evd);
  CHECK(peer.wait() == 0);
  CHECK(is_empty(b.evd));
}

TEST_CASE("OFA's uDAPL accepts, exchanges RDMA writes and is disconnected", "[programs][ofa][CONN-001][REQ-040]") {
  side a(0);
  buffer memory(a.pz, 4096);
  const auto port = next_port();
  auto peer = ofa_peer("serve", 1, port);
  if (!peer) SKIP("built without libdapl-dev");
  auto ep = a.make_ep();
  std::optional<window> there;
  connect_to(
      a, ep, port, [&] { must(ep.post(dat::recv{memory.slice(3072, 64)})); }, ofa_hello(memory),
      [&](const dat::established& e) { there = ofa_window(e.private_data(), memory); });
  talk_to_ofa(a, ep, memory, *there);
  must(ep.disconnect(dat::close_mode::graceful));
  (void)next<dat::disconnected>(a.evd);
  CHECK(peer.wait() == 0);
  CHECK(is_empty(a.evd));
}

TEST_CASE("OFA's uDAPL and dat recognise each other's rejects", "[programs][ofa][CONN-021][CR-058][CR-060]") {
  const auto port = next_port();
  SECTION("dat rejects") {
    side b(1);
    const auto psp = must(b.ia.create_psp(port, b.evd));
    auto peer = ofa_peer("connect", 0, port);
    if (!peer) SKIP("built without libdapl-dev");
    must(next<dat::connection_request>(b.evd).reject(bytes_of("dat busy")));
    CHECK(peer.wait() == 3); // rejected by the peer, with that data
  }
  SECTION("nobody decides") {
    side b(1);
    const auto psp = must(b.ia.create_psp(port, b.evd));
    auto peer = ofa_peer("connect", 0, port);
    if (!peer) SKIP("built without libdapl-dev");
    (void)next<dat::connection_request>(b.evd); // dropped
    CHECK(peer.wait() == 4);                    // rejected, but not by a peer
  }
  SECTION("OFA rejects") {
    side a(0);
    buffer memory(a.pz, 4096);
    auto peer = ofa_peer("refuse", 1, port);
    if (!peer) SKIP("built without libdapl-dev");
    auto ep = a.make_ep();
    const auto until = std::chrono::steady_clock::now() + patience;
    for (;;) {
      must(ep.connect(addresses()[1], port, patience, ofa_hello(memory)));
      auto e = must(a.evd.wait_for_any<dat::peer_rejected, dat::non_peer_rejected>(ep, patience));
      if (const auto* no = std::get_if<dat::peer_rejected>(&e)) {
        // Four bytes of OFA's provider precede the consumer's.
        REQUIRE(no->private_data().size() >= 4 + hello_size);
        CHECK(std::string(reinterpret_cast<const char*>(&no->private_data()[4 + 12])) == "ofa here");
        break;
      }
      if (std::chrono::steady_clock::now() > until) FAIL("the program does not listen");
      must(ep.reset());
    }
    CHECK(peer.wait() == 0);
  }
}

} // namespace device
