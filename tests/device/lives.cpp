// Lives of connections: who ends them, how, and with what in flight; many of them; with programs that are not ours.
// SPDX-License-Identifier: BSL-1.0
#include "support.hpp"

#include <dat/srq.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <spawn.h>
#include <sys/wait.h>

extern char** environ;

namespace device {
namespace {

constexpr bool slow = dat::detail::thread_sanitizer;

// --- the matrix of endings -------------------------------------------------------------------------------------------

enum class how { abrupt, graceful, closed };
enum class load { nothing, receives, sends, shared };

/// "sent 3", "received 3", "flushed 3", "disconnected": an event with its cookie.
std::string brief(const event& e) {
  return std::visit(
      []<class E>(const E& one) -> std::string {
        if constexpr (std::is_same_v<E, dat::dto_failure>)
          return std::string(to_string(one.status())) + ' ' + std::to_string(one.cookie().value());
        else if constexpr (std::is_same_v<E, dat::sent>)
          return "sent " + std::to_string(one.cookie().value());
        else if constexpr (std::is_same_v<E, dat::received>)
          return "received " + std::to_string(one.cookie().value());
        else
          return describe(one);
      },
      e);
}

/// What came, sorted into the queues: each is in order, errors have no order to other queues' events
/// (uDAPL 2.0 §6.3.1); and whether a success came after the end.
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

using words = std::vector<std::string>;

/// "flushed 1" ... "flushed n".
words each(const char* what, unsigned first, unsigned last) {
  words w;
  for (unsigned i = first; i <= last; ++i) w.push_back(std::string(what) + ' ' + std::to_string(i));
  return w;
}
words operator+(words a, const words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// --- other programs --------------------------------------------------------------------------------------------------

/// A program of the rdma-core package.
class program {
public:
  explicit program(const std::vector<std::string>& command) {
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
  program(const program&) = delete;
  program& operator=(const program&) = delete;
  ~program() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    (void)wait();
  }
  explicit operator bool() const noexcept { return pid_ > 0; }
  /// Its exit code, 128 + n for signal n.
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

/// Connects to a program that may not be listening yet.
void connect_to(side& a, endpoint& ep, dat::conn_qual port, const std::function<void()>& prepare,
                place where = place::here()) {
  const auto until = std::chrono::steady_clock::now() + patience;
  for (;;) {
    prepare();
    must(ep.connect(addresses()[1], port, patience), where);
    auto e = a.evd.wait_for_any<dat::established, dat::non_peer_rejected>(ep, patience);
    if (!e) fail(e.assume_error().message(), where);
    if (std::holds_alternative<dat::established>(e.assume_value())) return;
    if (std::chrono::steady_clock::now() > until) fail("the program does not listen", where);
    must(ep.reset(), where);
    while (a.evd.dequeue()) { // receives, flushed
    }
  }
}

void put_be(std::byte* to, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) to[i] = static_cast<std::byte>(value >> (8 * (bytes - 1 - i)));
}

/// What rping sends: address, key, length, all big-endian.
constexpr std::size_t rping_message = 16;
void rping_format(std::span<std::byte> to, const buffer& memory, std::size_t first, std::size_t count) {
  const auto wire = memory.remote(first, count).to_wire();
  std::copy_n(wire.begin(), 8, to.begin());
  std::copy_n(wire.begin() + 16, 4, to.begin() + 8);
  put_be(&to[12], count, 4);
}
window rping_window(std::span<const std::byte> from, const buffer& any) {
  window::wire wire = any.remote().to_wire(); // what rping does not say: size of an element, rights, version
  std::copy_n(from.begin(), 8, wire.begin());
  std::fill_n(wire.begin() + 8, 8, std::byte{0});
  std::copy_n(from.begin() + 12, 4, wire.begin() + 12);
  std::copy_n(from.begin() + 8, 4, wire.begin() + 16);
  return must(window::from_wire(wire));
}

#define NEEDS(p)                                                                                                       \
  if (!(p)) SKIP("the program is not installed: rdmacm-utils")

} // namespace

TEST_CASE("a connection ends as it should, whoever ends it, however, and whatever is in flight",
          "[lives][DISC-001][DISC-005][DISC-006][DISC-008][DISC-010][DISC-018][DISC-019][DISC-026][DISC-030][DISC-037]"
          "[EPS-049][EPS-052][EPS-055][EPS-057][EPS-058][EPS-064][EP-035][EP-036][EP-037][CONN-028][EP-064][DISC-032]"
          "[SRQ-083]") {
  two_sides t;
  buffer here(t.a.pz, 256);
  buffer there(t.b.pz, 256);
  for (const bool passive_ends : {false, true})
    for (const how h : {how::abrupt, how::graceful, how::closed})
      for (const load l : {load::nothing, load::receives, load::sends, load::shared}) {
        INFO((passive_ends ? "passive" : "active")
             << " ends, how " << static_cast<int>(h) << ", load " << static_cast<int>(l));
        const bool shared = l == load::shared; // as sends, but the receives are on queues that others might draw from
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
        // Sends complete only in a graceful end; in the others the peer has no receive for them.
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
          must(mine.disconnect(graceful ? dat::close_flags::graceful : dat::close_flags::abrupt));
        if (h == how::abrupt) CHECK(mine.state() == state::disconnected);

        const unsigned delivered = graceful ? sends : 0;
        const unsigned flushed_there = shared ? 0 : theirs_posted - delivered; // buffers of a shared queue stay there
        const unsigned flushed_here = shared ? 0 : mine_posted;
        const story seen(take(other.evd, 1 + delivered + flushed_there));
        CHECK(seen.connection == words{"disconnected"});
        CHECK(seen.receives ==
              each("received", 1, delivered) + each("flushed", delivered + 1, delivered + flushed_there));
        CHECK(seen.requests.empty());
        CHECK_FALSE(seen.late);
        CHECK(theirs.state() == state::disconnected);
        if (h != how::closed) {
          const story own(take(ender.evd, 1 + flushed_here + sends));
          CHECK(own.connection == words{"disconnected"});
          CHECK(own.receives == each("flushed", 1, flushed_here));
          CHECK(own.requests == each(graceful ? "sent" : "flushed", 1, sends));
          CHECK_FALSE(own.late);
          CHECK(mine.state() == state::disconnected);
        }
        CHECK(is_empty(ender.evd));
        CHECK(is_empty(other.evd));
        if (shared) CHECK(must(my_queue.query()).available == mine_posted);
        if (shared) CHECK(must(their_queue.query()).available == theirs_posted - delivered);
      }
}

TEST_CASE("connections, one after the other, leave nothing behind",
          "[lives][DISC-044][EPS-002][EPS-070][CONN-069][REQ-007][DISC-050]") {
  two_sides t;
  auto active = t.a.make_ep();
  auto passive = t.b.make_ep();
  const auto round = [&](bool graceful) {
    t.connect(active, passive);
    must(active.disconnect(graceful ? dat::close_flags::graceful : dat::close_flags::abrupt));
    (void)next<dat::disconnected>(t.a.evd);
    (void)next<dat::disconnected>(t.b.evd);
    must(active.reset());
    must(passive.reset());
  };
  for (int i = 0; i < 3; ++i) round(i % 2 == 0);
  const auto before = resources::now();
  for (int i = 0; i < (slow ? 10 : 60); ++i) round(i % 2 == 0);
  CHECK(resources::no_more_than(before));
  CHECK(is_empty(t.a.evd));
  CHECK(is_empty(t.b.evd));
}

TEST_CASE("hundreds of endpoints are connected at once, all on one evd a side",
          "[lives][EVENT-006][EP-007][EPS-028][PSP-005][REQ-020]") {
  two_sides t({.qlen = 4096});
  const std::size_t many = slow ? 32 : 256;
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
  // Each is there once, and is its own.
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
  CHECK(count_of<dat::sent>(take(t.a.evd, many)) == many);
  CHECK(count_of<dat::received>(take(t.b.evd, many)) == many);
  // Half of them end here, the others there.
  const auto end = [&](std::vector<endpoint>& some, std::size_t n) {
    for (auto& ep : some)
      if (ep.state() == state::connected && n != 0) must(ep.disconnect()), --n;
    CHECK(count_of<dat::disconnected>(take(t.a.evd, many / 2)) == many / 2);
    CHECK(count_of<dat::disconnected>(take(t.b.evd, many / 2)) == many / 2);
  };
  end(active, many / 2);
  end(passive, many / 2);
}

namespace {
/// The wire takes nothing of what the first adapter sends, as long as this lives.
struct cut_wire {
  bool done = std::system("tc qdisc add dev v1 root netem loss 100%") == 0;
  cut_wire() = default;
  cut_wire(const cut_wire&) = delete;
  cut_wire& operator=(const cut_wire&) = delete;
  ~cut_wire() {
    if (done) (void)!std::system("tc qdisc del dev v1 root");
  }
};
} // namespace

TEST_CASE("a wire that is cut is noticed by who sends; who ends a connection does not wait for it",
          "[lives][CONN-029][CONN-032][DISC-018][DISC-036][EPS-055][EPS-059]"
          "[MODEL-043][HA-011]") {
  if (!in_lab()) SKIP("cuts the wire of the lab");
  two_sides t;
  std::array<endpoint, 3> active{t.a.make_ep(), t.a.make_ep(), t.a.make_ep()};
  std::array<endpoint, 3> passive{t.b.make_ep(), t.b.make_ep(), t.b.make_ep()};
  for (std::size_t i = 0; i < 3; ++i) t.connect(active[i], passive[i]);
  buffer memory(t.a.pz, 64);
  const cut_wire cut;
  REQUIRE(cut.done);
  must(active[0].disconnect());
  (void)next<dat::disconnected>(t.a.evd); // the peer cannot have answered
  CHECK(active[0].state() == state::disconnected);
  must(active[1].post(dat::send{memory.slice(0, 8)}.cookie(4)));
  const auto failure = must(t.a.evd.wait_for<dat::dto_failure>(active[1], patience));
  CHECK(failure.cookie() == dat::cookie(4));
  (void)must(t.a.evd.wait_for<dat::broken>(active[1], patience));
  CHECK(active[1].state() == state::disconnected);
  // Nobody has sent anything here: there is nothing to notice.
  CHECK(active[2].state() == state::connected);
  for (const auto& ep : passive) CHECK(ep.state() == state::connected);
  CHECK(is_empty(t.a.evd));
  CHECK(is_empty(t.b.evd));
}

TEST_CASE("a wire with a smaller MTU than its ends lets small messages through, fails large ones, and is named",
          "[lives]") {
  if (!in_lab()) SKIP("changes the wire of the lab");
  connected_pair link({.active = {.retry_count = 1}});
  buffer out(link.a.pz, 4096);
  buffer in(link.b.pz, 4096);
  // At the far end, as a switch would do it: what the sender's own end refuses to send is not lost, but tried again.
  struct smaller {
    bool done = std::system("tc qdisc add dev v2 ingress && tc filter add dev v2 parent ffff: protocol ip u32 "
                            "match u16 0x0400 0xfc00 at 2 action drop") == 0; // IP packets of 1024 bytes and more
    smaller() = default;
    smaller(const smaller&) = delete;
    smaller& operator=(const smaller&) = delete;
    ~smaller() { (void)!std::system("tc qdisc del dev v2 ingress"); }
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
/// Has a hundred endpoints and memory that its parent may write, until it is killed.
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

TEST_CASE("what a killed process had is free again, and its memory is out of reach", "[lives][REQ-029][REQ-031]") {
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
  // Who goes on writing is told; nothing of it arrives in memory that somebody else has now.
  for (;;) {
    if (!ep.post(dat::rdma_write{out.lmr, must(there.slice(0, 4096))}.cookie(7))) break; // the end came first
    const auto e = must(link.a.evd.wait(patience));
    if (!std::holds_alternative<dat::rdma_write_done>(e)) break;
  }
  while (ep.state() != state::disconnected) (void)must(link.a.evd.wait(patience));
  (void)peer.wait();
  for (const auto until = std::chrono::steady_clock::now() + patience;
       !resources::of(peer.id()).count.empty() && std::chrono::steady_clock::now() < until;)
    std::this_thread::yield();
  CHECK(resources::of(peer.id()).count.empty());
  const auto again = must(link.b.ia.create_psp(port, link.b.evd));
  link.a.evd.drain([](const auto&) {}, 100);
  auto second = link.a.make_ep();
  auto passive = link.b.make_ep();
  link.connect(second, passive);
}

TEST_CASE("data that the wire damages is sent again, or the operation fails: it never arrives wrong",
          "[lives][MODEL-042]") {
  if (!in_lab()) SKIP("damages packets of the lab");
  connected_pair link;
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
  const auto repairs = [] { // what the devices count of packets that came in the wrong order, or not at all
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
  CHECK((repairs() > before || !up)); // something was damaged, indeed
}

// --- programs of rdma-core -------------------------------------------------------------------------------------------

TEST_CASE("rping is served", "[programs][CONN-001][CR-019][CSP-015][MODEL-030][CONN-015]") {
  side b(1);
  const auto port = next_port();
  auto psp = must(b.ia.create_psp(port, b.evd));
  constexpr std::size_t size = 100;
  program rping({"rping", "-c", "-a", addresses()[1].host_string(), "-p", std::to_string(port.port()), "-C", "4", "-S",
                 std::to_string(size), "-V"});
  NEEDS(rping);
  buffer memory(b.pz, 4096);
  auto ep = b.make_ep();
  const auto receive = [&] { must(ep.post(dat::recv{memory.slice(0, rping_message)})); };
  receive();
  auto request = next<dat::connection_request>(b.evd);
  must(request.accept(ep));
  (void)next<dat::established>(b.evd);
  for (int i = 0; i < 4; ++i) {
    (void)must(b.evd.wait_for<dat::received>(patience));
    const auto source = rping_window(memory.part(0, rping_message), memory);
    receive();
    must(ep.post(dat::rdma_read{memory.slice(1024, size), source}));
    must(ep.post(dat::send{memory.slice(64, rping_message)}.fence()));
    (void)must(b.evd.wait_for<dat::rdma_read_done>(patience));
    const std::string text(reinterpret_cast<const char*>(&memory.bytes[1024]), 10);
    CHECK(text == "rdma-ping-");
    (void)must(b.evd.wait_for<dat::sent>(patience));
    (void)must(b.evd.wait_for<dat::received>(patience));
    const auto sink = rping_window(memory.part(0, rping_message), memory);
    receive();
    must(ep.post(dat::rdma_write{memory.slice(1024, size), sink}));
    must(ep.post(dat::send{memory.slice(64, rping_message)}));
    (void)must(b.evd.wait_for<dat::rdma_write_done>(patience));
    (void)must(b.evd.wait_for<dat::sent>(patience));
  }
  CHECK(rping.wait() == 0); // it compares what comes back
}

TEST_CASE("rping serves", "[programs][CONN-001][CONN-081][MODEL-030][CONN-015]") {
  side a(0);
  const auto port = next_port();
  constexpr std::size_t size = 100;
  program rping({"rping", "-s", "-a", addresses()[1].host_string(), "-p", std::to_string(port.port()), "-S",
                 std::to_string(size)});
  NEEDS(rping);
  buffer memory(a.pz, 4096);
  auto ep = a.make_ep();
  const auto receive = [&] { must(ep.post(dat::recv{memory.slice(0, rping_message)})); };
  connect_to(a, ep, port, receive);
  for (std::uint32_t i = 0; i < 3; ++i) {
    // It writes back a text, up to its end.
    std::fill_n(memory.bytes.begin() + 1024, size - 1, static_cast<std::byte>('a' + i));
    memory.bytes[1024 + size - 1] = std::byte{0};
    rping_format(memory.part(64, rping_message), memory, 1024, size);
    must(ep.post(dat::send{memory.slice(64, rping_message)}));
    (void)must(a.evd.wait_for<dat::received>(patience)); // it has read
    receive();
    rping_format(memory.part(128, rping_message), memory, 2048, size);
    must(ep.post(dat::send{memory.slice(128, rping_message)}));
    (void)must(a.evd.wait_for<dat::received>(patience)); // and written
    receive();
    CHECK(std::equal(memory.bytes.begin() + 1024, memory.bytes.begin() + 1024 + size, memory.bytes.begin() + 2048));
  }
  must(ep.disconnect());
  CHECK(rping.wait() == 0);
}

TEST_CASE("rdma_client and rdma_server are understood", "[programs][CONN-001][CR-019]") {
  const auto port = next_port();
  SECTION("rdma_client") {
    side b(1);
    buffer memory(b.pz, 64);
    auto psp = must(b.ia.create_psp(port, b.evd));
    program client({"rdma_client", "-s", addresses()[1].host_string(), "-p", std::to_string(port.port())});
    NEEDS(client);
    auto ep = b.make_ep();
    must(ep.post(dat::recv{memory.slice(0, 16)}));
    must(next<dat::connection_request>(b.evd).accept(ep));
    (void)must(b.evd.wait_for<dat::received>(patience));
    must(ep.post(dat::send{memory.slice(0, 16)}));
    (void)must(b.evd.wait_for<dat::sent>(patience));
    (void)must(b.evd.wait_for<dat::disconnected>(patience));
    CHECK(client.wait() == 0);
  }
  SECTION("rdma_server") {
    side a(0);
    buffer memory(a.pz, 64);
    program server({"rdma_server", "-s", addresses()[1].host_string(), "-p", std::to_string(port.port())});
    NEEDS(server);
    auto ep = a.make_ep();
    connect_to(a, ep, port, [&] { must(ep.post(dat::recv{memory.slice(0, 16)})); });
    must(ep.post(dat::send{memory.slice(16, 16)}));
    (void)must(a.evd.wait_for<dat::received>(patience));
    (void)must(a.evd.wait_for<dat::disconnected>(patience));
    CHECK(server.wait() == 0);
  }
}

TEST_CASE("ucmatose is understood, as server and as client, on several connections", "[programs][CONN-001][CR-019]") {
  const auto port = next_port();
  constexpr unsigned connections = 3;
  constexpr unsigned messages = 5;
  constexpr std::size_t size = 64;
  const std::vector<std::string> common{"-p", std::to_string(port.port()), "-c", std::to_string(connections),
                                        "-C", std::to_string(messages),    "-S", std::to_string(size)};
  const auto command = [&](const char* flag) { return words{"ucmatose", flag, addresses()[1].host_string()} + common; };
  std::vector<endpoint> eps;
  const auto receives = [](endpoint& ep, buffer& memory) {
    for (unsigned i = 0; i < messages; ++i) must(ep.post(dat::recv{memory.slice(0, size)}));
  };
  SECTION("client") {
    side b(1);
    buffer memory(b.pz, 256);
    auto psp = must(b.ia.create_psp(port, b.evd));
    program client(command("-s"));
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
        (void)must(b.evd.wait_for<dat::sent>(ep, patience));
        (void)must(b.evd.wait_for<dat::received>(ep, patience));
      }
    for (auto& ep : eps) must(ep.disconnect()); // with this program, the server's part
    CHECK(client.wait() == 0);
  }
  SECTION("server") {
    side a(0);
    buffer memory(a.pz, 256);
    program server(command("-b"));
    NEEDS(server);
    for (unsigned i = 0; i < connections; ++i) {
      eps.push_back(a.make_ep());
      connect_to(a, eps.back(), port, [&] { receives(eps.back(), memory); });
    }
    for (auto& ep : eps)
      for (unsigned i = 0; i < messages; ++i) (void)must(a.evd.wait_for<dat::received>(ep, patience));
    for (auto& ep : eps)
      for (unsigned i = 0; i < messages; ++i) must(ep.post(dat::send{memory.slice(128, size)}));
    for (auto& ep : eps)
      for (unsigned i = 0; i < messages; ++i) (void)must(a.evd.wait_for<dat::sent>(ep, patience));
    for (auto& ep : eps) (void)must(a.evd.wait_for<dat::disconnected>(ep, patience));
    CHECK(server.wait() == 0);
  }
}

} // namespace device
