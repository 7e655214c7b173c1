// Hostile peers: plain rdma_cm programs that flood, vanish, do not answer, send too much and guess keys.
// SPDX-License-Identifier: BSL-1.0
#include "support.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <list>
#include <malloc.h>
#include <random>
#include <rdma/rdma_cma.h>
#include <sstream>

namespace device { namespace hostile {
namespace {

void check(bool ok, const char* what, place where = place::here()) {
  if (!ok) fail(std::string(what) + ": " + std::strerror(errno), where);
}

dat::ia_address target_of(const std::vector<std::string>& args) {
  return must(dat::ia_address::parse(args.at(0))).with_port(static_cast<std::uint16_t>(std::stoul(args.at(1))));
}
std::vector<std::string> target(const dat::psp& psp, std::vector<std::string> more = {}) {
  std::vector<std::string> all{addresses()[1].host_string(), std::to_string(psp.port())};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
rdma_conn_param parameters(std::string_view data) {
  rdma_conn_param p{};
  p.private_data = data.data();
  p.private_data_len = static_cast<std::uint8_t>(data.size());
  p.responder_resources = p.initiator_depth = 4;
  p.retry_count = p.rnr_retry_count = 7;
  return p;
}

// --- programs ------------------------------------------------------------------------------------------------------

/// One request without a queue pair, and its progress.
struct bare {
  rdma_cm_id* id = nullptr;
  explicit bare(rdma_event_channel* channel, const dat::ia_address& to) {
    check(rdma_create_id(channel, &id, this, RDMA_PS_TCP) == 0, "rdma_create_id");
    check(rdma_resolve_addr(id, nullptr, const_cast<sockaddr*>(to.native_handle()), 2000) == 0, "rdma_resolve_addr");
  }
  bare(const bare&) = delete;
  bare& operator=(const bare&) = delete;
  ~bare() { rdma_destroy_id(id); }
  /// The next step after an event; the queue pair of the request does not exist.
  void go_on(rdma_cm_event_type event, std::string_view data) const {
    if (event == RDMA_CM_EVENT_ADDR_RESOLVED) check(rdma_resolve_route(id, 2000) == 0, "rdma_resolve_route");
    if (event == RDMA_CM_EVENT_ROUTE_RESOLVED) {
      auto p = parameters(data);
      p.qp_num = 0x900000;
      check(rdma_connect(id, &p) == 0, "rdma_connect");
    }
  }
};

/// Arguments: address, port. Keeps 32 requests under way, and abandons each of them in one of its states, until it is
/// killed.
int flood_role(channel& to, const std::vector<std::string>& args) {
  rdma_event_channel* const events = rdma_create_event_channel();
  std::mt19937 random(random_seed());
  std::list<bare> all;
  for (std::size_t n = 0;;) {
    while (all.size() < 32) all.emplace_back(events, target_of(args));
    rdma_cm_event* e = nullptr;
    check(rdma_get_cm_event(events, &e) == 0, "rdma_get_cm_event");
    const auto type = e->event;
    const auto* const of = static_cast<const bare*>(e->id->context);
    rdma_ack_cm_event(e);
    if (type == RDMA_CM_EVENT_ROUTE_RESOLVED && ++n == 200) to.say("flooding");
    const bool under_way = type == RDMA_CM_EVENT_ADDR_RESOLVED || type == RDMA_CM_EVENT_ROUTE_RESOLVED;
    if (under_way && random() % 8 != 0)
      of->go_on(type, "enemy");
    else
      all.remove_if([&](const bare& b) { return &b == of; });
    // At random times the oldest one vanishes while its request is under way.
    if (random() % 16 == 0 && !all.empty()) all.pop_front();
  }
}
const role flood_registered("hostile flood", &flood_role);

/// Arguments: address, port. Sends a request and prints "asked"; prints "answered" when the reply has arrived. Does not
/// complete the handshake.
int half_open_role(channel& to, const std::vector<std::string>& args) {
  rdma_event_channel* const events = rdma_create_event_channel();
  const bare one(events, target_of(args));
  for (;;) {
    rdma_cm_event* e = nullptr;
    check(rdma_get_cm_event(events, &e) == 0, "rdma_get_cm_event");
    const auto type = e->event;
    rdma_ack_cm_event(e);
    one.go_on(type, "half");
    if (type == RDMA_CM_EVENT_ROUTE_RESOLVED) to.say("asked");
    if (type != RDMA_CM_EVENT_CONNECT_RESPONSE) continue;
    to.say("answered");
    (void)to.closed(); // sends nothing until it ends
    return 0;
  }
}
const role half_open_registered("hostile half open", &half_open_role);

/// A connection with a queue pair and memory.
class intruder {
public:
  static constexpr std::size_t size = 8192;
  explicit intruder(const dat::ia_address& to) : memory_(size, std::byte{0xee}) {
    check(rdma_create_id(nullptr, &id_, nullptr, RDMA_PS_TCP) == 0,
          "rdma_create_id"); // its calls wait for their events
    check(rdma_resolve_addr(id_, nullptr, const_cast<sockaddr*>(to.native_handle()), 2000) == 0, "rdma_resolve_addr");
    check(rdma_resolve_route(id_, 2000) == 0, "rdma_resolve_route");
    ibv_qp_init_attr attr{};
    attr.cap = {64, 4, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    check(rdma_create_qp(id_, nullptr, &attr) == 0, "rdma_create_qp");
    const int access = IBV_ACCESS_LOCAL_WRITE; // the macro mixes enumerations otherwise
    mr_ = ibv_reg_mr(id_->qp->pd, memory_.data(), memory_.size(), access);
    check(mr_ != nullptr, "ibv_reg_mr");
    auto p = parameters("intruder");
    check(rdma_connect(id_, &p) == 0, "rdma_connect");
  }
  intruder(const intruder&) = delete;
  intruder& operator=(const intruder&) = delete;
  ~intruder() {
    rdma_disconnect(id_);
    rdma_destroy_qp(id_);
    ibv_dereg_mr(mr_);
    rdma_destroy_id(id_);
  }
  void post(ibv_wr_opcode what, std::size_t bytes, std::uint64_t address = 0, std::uint32_t key = 0, bool last = true) {
    ibv_sge sge{reinterpret_cast<std::uint64_t>(memory_.data()), static_cast<std::uint32_t>(bytes), mr_->lkey};
    ibv_send_wr wr{};
    wr.opcode = what;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags = last ? IBV_SEND_SIGNALED : 0;
    if (what == IBV_WR_SEND_WITH_INV) wr.invalidate_rkey = key;
    wr.wr.rdma.remote_addr = address;
    wr.wr.rdma.rkey = key;
    ibv_send_wr* bad = nullptr;
    check(ibv_post_send(id_->qp, &wr, &bad) == 0, "ibv_post_send");
  }
  /// The status of the next completion.
  [[nodiscard]] std::string status() const {
    ibv_wc wc{};
    while (ibv_poll_cq(id_->qp->send_cq, 1, &wc) == 0) std::this_thread::yield();
    return wc.status == IBV_WC_SUCCESS ? "success" : "failure";
  }

private:
  rdma_cm_id* id_ = nullptr;
  ibv_mr* mr_ = nullptr;
  std::vector<std::byte> memory_;
};

/// Arguments: address, port. Each line is one attempt, on a connection of its own: "write ADDRESS KEY BYTES", "read
/// ...", "send BYTES", or "burst COUNT", after which the connection stays until the process is killed.
int intruder_role(channel& to, const std::vector<std::string>& args) {
  for (;;) {
    std::istringstream line(to.hear());
    std::string what;
    line >> what;
    if (what == "end") return 0;
    intruder one(target_of(args));
    std::uint64_t address = 0;
    std::uint32_t key = 0;
    std::size_t bytes = 0;
    if (what == "write" || what == "read") {
      line >> address >> key >> bytes;
      one.post(what == "read" ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, bytes, address, key);
    } else if (what == "invalidate") {
      line >> address >> key >> bytes;
      one.post(IBV_WR_SEND_WITH_INV, bytes, 0, key);
    } else {
      line >> bytes;
      const std::size_t count = what == "burst" ? bytes : 1;
      for (std::size_t i = 0; i < count; ++i) one.post(IBV_WR_SEND, what == "burst" ? 8 : bytes);
    }
    if (what == "burst") {
      to.say("posted");
      (void)to.closed();
      return 0;
    }
    to.say(one.status());
  }
}
const role intruder_registered("hostile intruder", &intruder_role);

// --- the attacked side ---------------------------------------------------------------------------------------------

/// All events up to the end of a connection. Several kinds of events can report the end.
std::vector<event> until_ended(queue& evd, const endpoint& ep) {
  std::vector<event> all;
  while (ep.state() != state::disconnected) all.push_back(must(evd.wait(patience)));
  evd.drain([&](auto& e) { all.emplace_back(std::move(e)); }, 1000);
  return all;
}

std::size_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// A client of its own adapter connects, sends a message and disconnects: the service still works.
void friend_works(two_sides& t) {
  auto near = t.a.make_ep();
  auto far = t.b.make_ep();
  buffer out(t.a.pz, 64);
  buffer in(t.b.pz, 64);
  fill(out.bytes, 3);
  must(far.post(dat::recv{in.lmr}));
  must(near.connect(t.target(), t.port(), patience, bytes_of("friend")));
  for (bool found = false; !found;) { // the kernel may still have requests of an enemy that has ended
    auto request = t.at_b<dat::connection_request>({});
    found = text_of(request.private_data()) == "friend";
    if (found) must(request.accept(far));
  }
  (void)t.at_a<dat::established>(near);
  (void)t.at_b<dat::established>(far);
  must(near.post(dat::send{out.lmr}));
  CHECK(t.at_b<dat::recv_done>(far).bytes() == 64);
  CHECK(has_pattern(in.bytes, 3));
  (void)t.at_a<dat::send_done>(near);
  t.disconnect(near, far);
}

} // namespace

TEST_CASE("during a flood of connection requests other clients still connect, and memory and descriptors stay bounded",
          "[hostile][connection]") {
  constexpr int clients = 5;
  two_sides t({.qlen = 64});
  friend_works(t);
  // All requests of other peers are refused by a reject, or by destroying them. A full evd refuses further requests.
  std::atomic<bool> done = false;
  std::atomic<std::size_t> enemies = 0;
  std::vector<endpoint> near;
  std::vector<endpoint> far;
  for (int i = 0; i <= clients; ++i) { // created first, because the evds grow with the endpoints
    near.push_back(t.a.make_ep());
    far.push_back(t.b.make_ep());
  }
  const std::size_t before = descriptors();
  const auto heap = ::mallinfo2().uordblks;
  background server([&] {
    std::size_t next_ep = 0;
    const auto take = dat::overloaded{[&](dat::connection_request& r) {
                                        if (text_of(r.private_data()) == "friend")
                                          must(r.accept(far.at(next_ep++)));
                                        else if (++enemies % 2 == 0)
                                          must(r.reject());
                                      },
                                      [](const auto&) {}};
    while (!done) (void)t.b.evd.wait_and_drain(take, 50ms, 64);
  });
  peer_process enemy("hostile flood", target(t.psp));
  CHECK(enemy.hear() == "flooding");
  std::size_t most_descriptors = 0;
  std::size_t most_heap = 0;
  std::size_t refused = 0;
  const auto befriend = [&](endpoint& ep) {
    // An evd that is full at this moment refuses a friend, too. The friend repeats its request, which arrives in time.
    const auto until = std::chrono::steady_clock::now() + patience;
    for (;;) {
      must(ep.connect(t.target(), t.port(), patience, bytes_of("friend")));
      const auto outcome = must(t.a.evd.wait(patience));
      if (std::holds_alternative<dat::established>(outcome)) return;
      REQUIRE(std::holds_alternative<dat::non_peer_rejected>(outcome));
      REQUIRE(std::chrono::steady_clock::now() < until);
      ++refused;
      must(ep.reset());
    }
  };
  for (int i = 0; i < clients; ++i) {
    befriend(near.at(static_cast<std::size_t>(i)));
    most_descriptors = std::max(most_descriptors, descriptors());
    most_heap = std::max<std::size_t>(most_heap, ::mallinfo2().uordblks);
  }
  CHECK(comes_true([&] { return enemies >= 400; }));
  enemy.kill();
  (void)enemy.wait();
  befriend(near.back()); // the requests of the flood that the kernel has kept come first
  done = true;
  server.get();
  INFO(enemies << " requests of the flood, " << refused << " refusals of friends");
  CHECK(most_descriptors <= before + 4); // two of which lead to the other process
  CHECK(most_heap < heap + 1024 * 1024);
  for (auto* some : {&near, &far})
    for (auto& ep : *some) (void)ep.disconnect();
  t.a.evd.drain([](const auto&) {}, 1000);
  t.b.evd.drain([](const auto&) {}, 1000);
  for (auto* some : {&near, &far})
    for (auto& ep : *some) must(ep.reset());
  const std::size_t left = ::mallinfo2().uordblks;
  CAPTURE(heap, most_heap, left);
  CHECK(left < heap + 64 * 1024);
  friend_works(t);
}

TEST_CASE("a peer that vanishes while its connection is made, at any point, costs one event, and the endpoint is free",
          "[hostile][connection]") {
  two_sides t;
  auto ep = t.b.make_ep();
  { // before its request is answered
    peer_process enemy("hostile half open", target(t.psp));
    CHECK(enemy.hear() == "asked");
    auto request = t.at_b<dat::connection_request>();
    enemy.kill();
    (void)enemy.wait();
    if (request.accept(ep)) (void)t.at_b<dat::accept_completion_error>(ep);
    if (ep.state() == state::disconnected) must(ep.reset());
  }
  friend_works(t);
  { // the enemy has the reply
    peer_process enemy("hostile half open", target(t.psp));
    CHECK(enemy.hear() == "asked");
    must(t.at_b<dat::connection_request>().accept(ep));
    CHECK(enemy.hear() == "answered");
    enemy.kill();
    (void)enemy.wait();
    (void)t.at_b<dat::accept_completion_error>(ep);
    must(ep.reset());
  }
  friend_works(t);
  { // connected, with a message under way
    peer_process enemy("hostile intruder", target(t.psp));
    enemy.say("burst 8");
    must(t.at_b<dat::connection_request>().accept(ep));
    CHECK(enemy.hear() == "posted");
    enemy.kill();
    (void)enemy.wait();
    (void)until_ended(t.b.evd, ep);
    must(ep.reset());
  }
  friend_works(t);
  CHECK(is_empty(t.b.evd));
}

TEST_CASE("a peer that leaves its connection half open holds an endpoint for accept_timeout, and no other client waits",
          "[hostile][connection]") {
  two_sides t;
  auto ep = t.b.make_ep({.accept_timeout = 3s});
  peer_process enemy("hostile half open", target(t.psp));
  CHECK(enemy.hear() == "asked");
  must(t.at_b<dat::connection_request>().accept(ep));
  CHECK(enemy.hear() == "answered");
  CHECK(ep.state() == state::completion_pending);
  (void)t.at_b<dat::accept_completion_error>(ep);
  CHECK(ep.state() == state::disconnected);
  must(ep.reset());
  friend_works(t);
  enemy.kill();
  (void)enemy.wait();
  CHECK(is_empty(t.b.evd));
}

TEST_CASE("a message that is longer than its receive changes nothing beyond it, and ends only its own connection",
          "[hostile][connection]") {
  two_sides t;
  auto near = t.a.make_ep();
  auto far = t.b.make_ep();
  t.connect(near, far);
  auto ep = t.b.make_ep();
  buffer in(t.b.pz, 4096);
  fill(in.bytes, 7);
  const auto unchanged = in.bytes;
  peer_process enemy("hostile intruder", target(t.psp));
  for (const std::size_t bytes : {1024u, 1025u, 8192u}) {
    CAPTURE(bytes);
    must(ep.post(dat::recv{in.slice(1024, 1024)}));
    enemy.say("send " + std::to_string(bytes));
    must(t.at_b<dat::connection_request>().accept(ep));
    CHECK(enemy.hear() == (bytes == 1024 ? "success" : "failure"));
    const auto events = until_ended(t.b.evd, ep);
    CHECK(count_of<dat::recv_done>(events) == (bytes == 1024 ? 1 : 0));
    CHECK(count_of<dat::dto_failure>(events) == (bytes == 1024 ? 0 : 1));
    must(ep.reset());
    // The receive has the peer's bytes or some of them. The bytes before and behind it have not changed.
    CHECK(std::ranges::equal(in.part(0, 1024), std::span(unchanged).first(1024)));
    CHECK(std::ranges::equal(in.part(2048, 2048), std::span(unchanged).subspan(2048)));
  }
  CHECK(near.state() == state::connected);
  CHECK(far.state() == state::connected);
  enemy.say("end");
  CHECK(enemy.wait() == 0);
}

TEST_CASE("more messages than receives wait at their sender, and other connections continue", "[hostile][connection]") {
  two_sides t;
  auto ep = t.b.make_ep({.max_recv_dtos = 4});
  buffer in(t.b.pz, 64);
  for (std::uint64_t i = 0; i < 4; ++i) must(ep.post(dat::recv{in.slice(8 * i, 8)}.cookie(i)));
  peer_process enemy("hostile intruder", target(t.psp));
  enemy.say("burst 48");
  must(t.at_b<dat::connection_request>().accept(ep));
  for (std::uint64_t i = 0; i < 4; ++i) CHECK(t.at_b<dat::recv_done>(ep).cookie() == dat::cookie(i));
  CHECK(enemy.hear() == "posted");
  friend_works(t);
  enemy.kill();
  (void)enemy.wait();
  (void)until_ended(t.b.evd, ep);
}

TEST_CASE(
    "a peer reaches memory with the key, the rights and the bounds of its region only, and each wrong guess costs "
    "its connection",
    "[hostile][connection]") {
  two_sides t;
  auto ep = t.b.make_ep();
  auto other_zone = must(t.b.ia.create_pz());
  buffer open(t.b.pz, 4096);
  buffer elsewhere(other_zone, 4096);
  std::vector<std::byte> readable(4096);
  const auto read_only = must(t.b.pz.register_memory(readable, dat::local_read | dat::local_write | dat::remote_read));
  std::optional<buffer> closed(std::in_place, t.b.pz, 4096);
  const auto of_closed = closed->remote();
  closed.reset();
  fill(open.bytes, 1);
  fill(elsewhere.bytes, 2);
  fill(readable, 3);
  peer_process enemy("hostile intruder", target(t.psp));
  const auto attempt = [&](const std::string& what, std::uint64_t address, std::uint32_t key, std::size_t bytes) {
    enemy.say(what + ' ' + std::to_string(address) + ' ' + std::to_string(key) + ' ' + std::to_string(bytes));
    must(t.at_b<dat::connection_request>().accept(ep));
    const std::string result = enemy.hear();
    (void)until_ended(t.b.evd, ep);
    must(ep.reset());
    return result;
  };
  const auto here = open.remote();
  const std::uint32_t key = here.rkey();
  CHECK(attempt("read", here.address(), key, 64) == "success");
  CHECK(attempt("read", read_only.remote().address(), read_only.remote().rkey(), 64) == "success");
  // Accesses that violate the rights, the zone, the bounds or the lifetime of a region fail.
  CHECK(attempt("write", read_only.remote().address(), read_only.remote().rkey(), 64) == "failure");
  CHECK(attempt("write", elsewhere.remote().address(), elsewhere.remote().rkey(), 64) == "failure");
  CHECK(attempt("write", here.address() + 4090, key, 64) == "failure");
  CHECK(attempt("write", here.address() - 1, key, 64) == "failure");
  CHECK(attempt("write", of_closed.address(), of_closed.rkey(), 64) == "failure");
  // A send that invalidates a window does not close a region.
  must(ep.post(dat::recv{open.slice(512, 64)}));
  (void)attempt("invalidate", 0, key, 8);
  fill(open.bytes, 1);
  CHECK(attempt("read", here.address(), key, 64) == "success");
  // Guessed keys fail.
  std::mt19937 random(random_seed());
  INFO("DAT_TEST_SEED=" << random_seed());
  std::vector<std::uint32_t> guesses{0, 0xffffffff, key + 1, key - 1, key ^ 0x80000000};
  for (int i = 0; i < 4; ++i) guesses.push_back(static_cast<std::uint32_t>(random()));
  for (const std::uint32_t guess : guesses) {
    if (guess == key || guess == read_only.remote().rkey()) continue;
    CAPTURE(guess);
    CHECK(attempt("write", here.address(), guess, 64) == "failure");
  }
  CHECK(has_pattern(open.bytes, 1));
  CHECK(has_pattern(elsewhere.bytes, 2));
  CHECK(has_pattern(readable, 3));
  CHECK(attempt("write", here.address(), key, 64) == "success");
  CHECK(std::ranges::all_of(open.part(0, 64), [](std::byte b) { return b == std::byte{0xee}; }));
  enemy.say("end");
  CHECK(enemy.wait() == 0);
  friend_works(t);
}

}} // namespace device::hostile
