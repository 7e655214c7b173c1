// A plain rdma_cm program as peer, as client and as server.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

namespace device {
namespace {

// --- the plain rdma_cm program, in the style of C -------------------------------------------------------------------

void check(bool ok, const char* what, place where = place::here()) {
  if (!ok) fail(std::string(what) + ": " + std::strerror(errno), where);
}

std::string hex(const void* data, std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<const unsigned char*>(data)[i]);
    text += two;
  }
  return text;
}
std::string hex(std::span<const std::byte> s) { return hex(s.data(), s.size()); }

rdma_cm_id* make_id(const std::string& host, const std::string& port, bool passive) {
  rdma_addrinfo hints{};
  hints.ai_port_space = RDMA_PS_TCP;
  hints.ai_flags = passive ? RAI_PASSIVE : 0;
  rdma_addrinfo* res = nullptr;
  check(rdma_getaddrinfo(host.c_str(), port.c_str(), &hints, &res) == 0, "rdma_getaddrinfo");
  ibv_qp_init_attr attr{};
  attr.cap = {4, 4, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  attr.sq_sig_all = 1;
  rdma_cm_id* id = nullptr;
  const int r = rdma_create_ep(&id, res, nullptr, &attr);
  rdma_freeaddrinfo(res);
  check(r == 0, "rdma_create_ep");
  return id;
}

rdma_conn_param parameters(const std::vector<char>& data) {
  rdma_conn_param p{};
  p.private_data = data.data();
  p.private_data_len = static_cast<std::uint8_t>(data.size());
  p.responder_resources = 4;
  p.initiator_depth = 4;
  p.retry_count = 6;
  p.rnr_retry_count = 7;
  return p;
}

/// Returns one message.
void echo(rdma_cm_id* id, char* memory, ibv_mr* mr) {
  ibv_wc wc{};
  check(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "rdma_get_recv_comp");
  check(rdma_post_send(id, nullptr, memory, wc.byte_len, mr, 0) == 0, "rdma_post_send");
  check(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "rdma_get_send_comp");
}

/// Arguments: address, port, the answer to the request (accept, accept-long, reject, or reject and a number of bytes).
int plain_server_role(channel& to, const std::vector<std::string>& args) {
  rdma_cm_id* listener = make_id(args.at(0), args.at(1), true);
  check(rdma_listen(listener, 4) == 0, "rdma_listen");
  to.say("listening");
  rdma_cm_id* id = nullptr;
  check(rdma_get_request(listener, &id) == 0, "rdma_get_request");
  const auto& conn = id->event->param.conn;
  to.say(hex(conn.private_data, conn.private_data_len));
  if (args.at(2) == "reject") {
    const std::string no(std::stoul(args.at(3)), 'n');
    check(rdma_reject(id, no.data(), static_cast<std::uint8_t>(no.size())) == 0, "rdma_reject");
    rdma_destroy_ep(id);
    rdma_destroy_ep(listener);
    return 0;
  }
  std::vector<char> memory(4096);
  ibv_mr* mr = rdma_reg_msgs(id, memory.data(), memory.size());
  check(mr != nullptr, "rdma_reg_msgs");
  check(rdma_post_recv(id, nullptr, memory.data(), memory.size(), mr) == 0, "rdma_post_recv");
  std::vector<char> data(args.at(2) == "accept-long" ? 196 : 7);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i + 1);
  auto p = parameters(data);
  check(rdma_accept(id, &p) == 0, "rdma_accept");
  echo(id, memory.data(), mr);
  if (args.at(2) == "accept-long") {
    check(rdma_disconnect(id) == 0, "rdma_disconnect"); // this side ends it
  } else {
    check(to.hear() == "end", "word");
    check(rdma_disconnect(id) == 0, "rdma_disconnect");
  }
  to.say("done");
  rdma_dereg_mr(mr);
  rdma_destroy_ep(id);
  rdma_destroy_ep(listener);
  return 0;
}
const role plain_server_registered("plain server", &plain_server_role);

/// Arguments: address, port.
int plain_client_role(channel& to, const std::vector<std::string>& args) {
  rdma_cm_id* id = make_id(args.at(0), args.at(1), false);
  std::vector<char> memory(4096);
  ibv_mr* mr = rdma_reg_msgs(id, memory.data(), memory.size());
  check(mr != nullptr, "rdma_reg_msgs");
  check(rdma_post_recv(id, nullptr, memory.data(), memory.size(), mr) == 0, "rdma_post_recv");
  std::vector<char> data(56);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(200 - i);
  auto p = parameters(data);
  if (rdma_connect(id, &p) != 0) {
    const int err = errno;
    const auto* e = id->event;
    to.say(std::string(std::strerror(err)) + (e ? ' ' + std::to_string(e->status) : std::string()));
    to.say(e ? hex(e->param.conn.private_data, e->param.conn.private_data_len) : std::string());
  } else {
    const auto& conn = id->event->param.conn;
    to.say("connected");
    to.say(hex(conn.private_data, conn.private_data_len));
    echo(id, memory.data(), mr);
    check(rdma_disconnect(id) == 0, "rdma_disconnect");
  }
  rdma_dereg_mr(mr);
  rdma_destroy_ep(id);
  return 0;
}
const role plain_client_registered("plain client", &plain_client_role);

std::string zeros(std::size_t bytes) { return std::string(2 * bytes, '0'); }

/// Sends a patterned message and waits for its echo.
void bounce(queue& evd, endpoint& ep, buffer& memory) {
  fill(memory.part(0, 1500), 5);
  must(ep.post(dat::recv{memory.slice(2048, 2048)}.cookie(1)));
  must(ep.post(dat::send{memory.slice(0, 1500)}.cookie(2)));
  // On a busy host the receive may complete before the send that it answers.
  (void)must(evd.wait_for<dat::send_done>(patience));
  CHECK(must(evd.wait_for<dat::recv_done>(patience)).bytes() == 1500);
  CHECK(has_pattern(memory.part(2048, 1500), 5));
}

} // namespace

// --- dat -----------------------------------------------------------------------------------------------------------

TEST_CASE("a plain rdma_cm server accepts, echoes and ends a connection",
          "[foreign][CONN-001][CONN-018][CONN-046][CONN-047][REQ-040][MODEL-030][EPS-018]") {
  const bool long_data = GENERATE(false, true);
  side a(0);
  const auto port = next_port();
  peer_process peer("plain server",
                    {addresses()[1].host_string(), std::to_string(port.port()), long_data ? "accept-long" : "accept"});
  REQUIRE(peer.hear() == "listening");
  {
    side b(1);
    CHECK(error_of(b.ia.create_psp(port, b.evd)) == dat::error(type::conn_qual_in_use));
    SHOWS("PSP-001");
  }
  auto ep = a.make_ep();
  buffer memory(a.pz, 4096);
  const auto asked = pattern(10, 1);
  must(ep.connect(addresses()[1], port, patience, asked));
  // The consumer's bytes, zeros, and the mark of dat: "DAT" and the length.
  CHECK(peer.hear() == hex(asked) + zeros(42) + "4441540a");
  const auto up = next<dat::established>(a.evd);
  if (long_data) {
    REQUIRE(up.private_data().size() == 196);
    CHECK(up.private_data()[195] == std::byte{196});
  } else {
    REQUIRE(up.private_data().size() == 56);
    CHECK(up.private_data()[6] == std::byte{7});
    CHECK(up.private_data()[7] == std::byte{0});
  }
  bounce(a.evd, ep, memory);
  if (!long_data) {
    must(ep.disconnect());
    peer.say("end");
  }
  (void)next<dat::disconnected>(a.evd);
  CHECK(peer.hear() == "done");
  CHECK(peer.wait() == 0);
  CHECK(is_empty(a.evd));
}

TEST_CASE("a plain rdma_cm server rejects", "[foreign][CONN-001][CONN-021][CR-058]") {
  const std::size_t bytes = GENERATE(0u, 1u, 148u); // no data, and the largest number of bytes that fits
  side a(0);
  const auto port = next_port();
  peer_process peer("plain server",
                    {addresses()[1].host_string(), std::to_string(port.port()), "reject", std::to_string(bytes)});
  REQUIRE(peer.hear() == "listening");
  side b(1);
  CHECK(error_of(b.ia.create_psp(port, b.evd)).type() == type::conn_qual_in_use); // the program uses the port
  SHOWS("REQ-052");
  auto ep = a.make_ep();
  must(ep.connect(addresses()[1], port, patience));
  if (bytes != 0) {
    const auto no = next<dat::peer_rejected>(a.evd);
    REQUIRE(no.private_data().size() == 148); // the data is padded, because the wire does not carry its length
    const auto padded = std::string(bytes, 'n') + std::string(148 - bytes, '\0');
    CHECK(std::equal(no.private_data().begin(), no.private_data().end(), bytes_of(padded).begin()));
  } else {
    // The reject equals one that the peer's kernel makes.
    CHECK(next<dat::non_peer_rejected>(a.evd).reason() == 28);
  }
  (void)peer.hear();
  CHECK(peer.wait() == 0);
}

TEST_CASE("a plain rdma_cm client connects, gets its echo and ends the connection",
          "[foreign][CONN-001][CR-019][CR-026][REQ-040]") {
  side b(1);
  const auto port = next_port();
  const auto psp = must(b.ia.create_psp(port, b.evd));
  peer_process peer("plain client", {addresses()[1].host_string(), std::to_string(port.port())});
  auto request = next<dat::connection_request>(b.evd);
  REQUIRE(request.private_data().size() == 56);
  for (std::size_t i = 0; i < 56; ++i) CHECK(request.private_data()[i] == static_cast<std::byte>(200 - i));
  auto ep = b.make_ep();
  buffer memory(b.pz, 4096);
  const auto answer = pattern(9, 2);
  must(request.accept(ep, answer));
  CHECK(peer.hear() == "connected");
  CHECK(peer.hear() == hex(answer) + zeros(56 - 9) + "44415409" + zeros(196 - 60));
  (void)next<dat::established>(b.evd);
  bounce(b.evd, ep, memory);
  (void)next<dat::disconnected>(b.evd);
  CHECK(peer.wait() == 0);
  CHECK(is_empty(b.evd));
}

namespace {
/// A connection request without a queue pair.
struct bare_request {
  rdma_event_channel* channel = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;

  bare_request(const dat::ia_address& to, rdma_conn_param& p) {
    check(channel && rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
    check(rdma_resolve_addr(id, nullptr, const_cast<sockaddr*>(to.native_handle()), 2000) == 0, "rdma_resolve_addr");
    CHECK(next() == RDMA_CM_EVENT_ADDR_RESOLVED);
    check(rdma_resolve_route(id, 2000) == 0, "rdma_resolve_route");
    CHECK(next() == RDMA_CM_EVENT_ROUTE_RESOLVED);
    check(rdma_connect(id, &p) == 0, "rdma_connect");
  }
  bare_request(const bare_request&) = delete;
  bare_request& operator=(const bare_request&) = delete;
  ~bare_request() {
    if (id) rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
  }
  rdma_cm_event_type next() const {
    rdma_cm_event* e = nullptr;
    check(rdma_get_cm_event(channel, &e) == 0, "rdma_get_cm_event");
    const auto type = e->event;
    rdma_ack_cm_event(e);
    return type;
  }
};
} // namespace

TEST_CASE("requests arrive with any private data unchanged, and a malformed request fails alone",
          "[foreign][EVENT-097][CR-019][CR-037][CONN-001]") {
  INFO("DAT_TEST_SEED=" << random_seed());
  std::mt19937 random(random_seed());
  side b(1);
  const auto port = next_port();
  const auto psp = must(b.ia.create_psp(port, b.evd));
  for (int i = 0; i < (dat::detail::thread_sanitizer ? 4 : 16); ++i) {
    std::vector<std::byte> data(random() % 57);
    for (auto& one : data) one = static_cast<std::byte>(random());
    rdma_conn_param p{};
    p.private_data = data.data();
    p.private_data_len = static_cast<std::uint8_t>(data.size());
    p.responder_resources = static_cast<std::uint8_t>(random() % 129);
    p.initiator_depth = static_cast<std::uint8_t>(random() % 129);
    p.retry_count = static_cast<std::uint8_t>(random() % 8);
    p.rnr_retry_count = static_cast<std::uint8_t>(random() % 8);
    p.qp_num = 0x800000 + static_cast<std::uint32_t>(random() % 0x7fffff); // no queue pair has this number
    bare_request peer(addresses()[1].with_port(port.port()), p);
    auto request = next<dat::connection_request>(b.evd);
    data.resize(this_device().padded);
    REQUIRE(request.private_data().size() == data.size());
    CHECK(std::equal(data.begin(), data.end(), request.private_data().begin(), request.private_data().end()));
    if (i % 3 == 0) {
      must(request.reject());
      CHECK(peer.next() == RDMA_CM_EVENT_REJECTED);
    } else if (i % 3 == 1) {
      request = {};
      CHECK(peer.next() == RDMA_CM_EVENT_REJECTED);
    } else {
      auto ep = b.make_ep();
      must(request.accept(ep));
      CHECK(peer.next() == RDMA_CM_EVENT_CONNECT_RESPONSE);
      rdma_destroy_id(std::exchange(peer.id, nullptr)); // a reject in place of an accept
      (void)next<dat::accept_completion_error>(b.evd);
      CHECK(ep.state() == state::disconnected);
    }
  }
  CHECK(is_empty(b.evd));
}

TEST_CASE("a request of a plain rdma_cm program that only ends like one of dat arrives whole",
          "[foreign][connection]") {
  side b(1);
  const auto port = next_port();
  const auto psp = must(b.ia.create_psp(port, b.evd));
  const auto message = [](std::size_t zero_from, char length) {
    std::string all(52, 'x');
    std::fill(all.begin() + static_cast<std::ptrdiff_t>(zero_from), all.end(), '\0');
    return all + "DAT" + length;
  };
  const struct {
    std::string data;
    std::uint8_t flow_control;
    std::size_t arrives;
  } requests[] = {{message(52, 5), 1, 56}, // no zeros behind five bytes
                  {message(5, 4), 1, 56},
                  {message(5, 53), 1, 56}, // data of 53 bytes has no mark
                  {message(5, 5), 0, 56},  // dat sets the bit
                  {message(5, 5), 1, 5}};
  for (const auto& [data, flow_control, arrives] : requests) {
    rdma_conn_param p{};
    p.private_data = data.data();
    p.private_data_len = static_cast<std::uint8_t>(data.size());
    p.flow_control = flow_control;
    p.qp_num = 0x800000; // no queue pair has this number
    const bare_request peer(addresses()[1].with_port(port.port()), p);
    auto request = next<dat::connection_request>(b.evd);
    const auto given = bytes_of(data).first(arrives);
    CHECK(std::ranges::equal(request.private_data(), given));
    must(request.reject());
    CHECK(peer.next() == RDMA_CM_EVENT_REJECTED);
  }
}

TEST_CASE("a plain rdma_cm client gets the reject data of the consumer, or no data when its request is dropped",
          "[foreign][CONN-001][CR-052][CR-060]") {
  const bool with_data = GENERATE(true, false);
  side b(1);
  const auto port = next_port();
  const auto psp = must(b.ia.create_psp(port, b.evd));
  peer_process peer("plain client", {addresses()[1].host_string(), std::to_string(port.port())});
  {
    auto request = next<dat::connection_request>(b.evd);
    if (with_data) must(request.reject(bytes_of("busy")));
  }
  const std::string refused = std::strerror(ECONNREFUSED);
  if (with_data) {
    // "DAT", the length, the consumer's bytes, zeros.
    CHECK(peer.hear() == refused + " 28");
    CHECK(peer.hear() == "44415404" + hex(bytes_of("busy")) + zeros(148 - 8));
  } else {
    CHECK(peer.hear() == refused + " 35");
    CHECK(peer.hear() == zeros(148));
  }
  CHECK(peer.wait() == 0);
}

} // namespace device
