// A peer that violates datcp's protocol, for the tests: odd_peer ROLE CASE ADDRESS PORT.
// SPDX-License-Identifier: BSL-1.0
#include "../../examples/datcp/channel.hpp"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace datcp;

/// The private data of a foreign program, or of another version of datcp.
std::vector<std::byte> private_data(const std::string& which, remote_ring::wire ring) {
  greeting g{.blocks = 16, .block_size = 64 * 1024, .ring = ring};
  if (which == "no-greeting") return {};
  if (which == "other-magic") g.protocol = {};
  if (which == "other-version") g.version = 77;
  if (which == "no-blocks") g.blocks = 0;
  if (which == "huge-blocks") g.block_size = ~0u;
  if (which == "small-ring") g.blocks = 255; // more messages than the ring holds
  if (which == "no-ring") g.ring = {};
  return encode_prefix(g);
}

/// Connects with unusual private data, and reports the outcome.
int connect_oddly(const std::string& which, const dat::ia_address& server, dat::conn_qual port) {
  auto ia = dat::ia::open_by_route(server.host_string()).value();
  auto pz = ia.create_pz().value();
  auto evd = ia.create_evd<dat::stream::dto | dat::stream::connection>(16).value();
  std::vector<std::byte> memory(1024 * 1024);
  auto ring = pz.register_memory(memory, dat::local_write | dat::remote_write).value();
  auto ep = pz.create_ep<dat::rc>(evd).value();
  ep.connect(server, port, 5s, private_data(which, ring.remote().to_wire())).value();
  auto event = evd.wait(5s).value();
  if (const auto* no = std::get_if<dat::peer_rejected>(&event)) {
    const auto r = decode_prefix<refusal>(no->private_data());
    std::printf("refused: %s\n", r.reason.c_str());
    return 0;
  }
  std::puts(std::holds_alternative<dat::established>(event) ? "accepted" : "neither accepted nor refused");
  return 1;
}

/// Listens with unusual private data.
int accept_oddly(const std::string& which, const dat::ia_address& here, dat::conn_qual port) {
  auto ia = dat::ia::open(here).value();
  auto pz = ia.create_pz().value();
  auto evd = ia.create_evd<dat::stream::dto | dat::stream::connection | dat::stream::connection_requests>(16).value();
  std::vector<std::byte> memory(1024 * 1024);
  auto ring = pz.register_memory(memory, dat::local_write | dat::remote_write).value();
  auto ep = pz.create_ep<dat::rc>(evd).value();
  const auto psp = ia.create_psp(port, evd).value();
  std::puts("listening");
  std::fflush(stdout);
  auto request = evd.wait_for<dat::connection_request>(30s).value();
  if (which == "reject")
    request.reject().value();
  else
    request.accept(ep, private_data(which, ring.remote().to_wire())).value();
  // Waits until the client disconnects.
  while (auto event = evd.wait(5s))
    if (std::holds_alternative<dat::disconnected>(event.assume_value())) break;
  return 0;
}

/// A client that connects correctly and then violates the protocol. Ends when the server has disconnected.
int speak_oddly(const std::string& which, const dat::ia_address& server, dat::conn_qual port) {
  auto ia = dat::ia::open_by_route(server.host_string()).value();
  channel c(ia, {.block_size = 4096, .blocks = 4}, [] { return false; });
  c.connect(server, port);
  const auto put = [&] {
    c.send(request{.what = request::kind::put, .path = "odd"});
    if (!c.receive<reply>().ok) std::puts("not taken");
    c.send(total{});
  };
  const entry file{.what = entry::kind::file, .mode = 0644, .size = 100, .path = "odd"};
  const auto start = [&] {
    put();
    c.send(file);
    (void)c.receive<answer>();
    c.send(begin{});
  };
  if (which == "wrong-turn") c.send(finished{});
  if (which == "block-first") (void)c.next_block(), c.write_block(100);
  if (which == "dotdot") put(), c.send(entry{.what = entry::kind::file, .size = 1, .path = "x/../../y"});
  if (which == "zero-byte") put(), c.send(entry{.what = entry::kind::directory, .path = std::string("x\0y", 3)});
  if (which == "unknown-kind") put(), c.send(entry{.what = static_cast<entry::kind>(9), .path = "x"});
  if (which == "credit") c.send(credit{5});
  if (which == "too-much") start(), (void)c.next_block(), c.write_block(200), c.send(done{.ok = true});
  if (which == "too-little") start(), c.send(done{.ok = true});
  if (which == "wrong-sum") start(), (void)c.next_block(), c.write_block(100), c.send(done{.ok = true});
  if (which == "middle") put(), c.send(file), (void)c.receive<answer>(), c.send(begin{50});
  try {
    for (;;) {
      const auto m = c.receive();
      if (const auto* verdict = std::get_if<stored>(&m)) {
        std::printf("stored: %s\n", verdict->ok ? "yes" : verdict->text.c_str());
        return 0;
      }
      if (const auto* verdict = std::get_if<answer>(&m)) {
        std::printf("answer: %s\n", verdict->text.c_str());
        return 0;
      }
    }
  } catch (const connection_error&) {
    std::puts("hung up");
  }
  return 0;
}

/// A server that sends messages which the client must not accept.
int serve_oddly(const std::string& which, const dat::ia_address& here, dat::conn_qual port) {
  auto ia = dat::ia::open(here).value();
  auto requests = ia.create_evd<dat::stream::connection_requests>(16).value();
  const auto psp = ia.create_psp(port, requests).value();
  channel c(ia, {}, [] { return false; });
  std::puts("listening");
  std::fflush(stdout);
  c.accept(std::get<dat::connection_request>(requests.wait(30s).value()));
  (void)c.receive<request>();
  c.send(reply{.ok = true});
  c.send(total{});
  try {
    if (which == "serve-dotdot") c.send(entry{.what = entry::kind::file, .path = "x/../../evil"});
    if (which == "serve-absolute") c.send(entry{.what = entry::kind::file, .path = "/evil"});
    if (which == "serve-link") {
      c.send(entry{.what = entry::kind::symlink, .path = "link", .text = ".."});
      (void)c.receive<answer>();
      c.send(entry{.what = entry::kind::file, .mode = 0644, .path = "link/evil"});
      std::printf("answer: %s\n", c.receive<answer>().text.c_str());
      c.send(finished{});
    }
    for (;;) (void)c.receive();
  } catch (const connection_error&) {
    std::puts("hung up");
  }
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::string role = argv[1], which = argv[2];
  const auto address = dat::ia_address::parse(argv[3]).value();
  const auto port = dat::conn_qual::make(std::strtoul(argv[4], nullptr, 10)).value();
  try {
    if (role == "connect") return connect_oddly(which, address, port);
    if (role == "accept") return accept_oddly(which, address, port);
    if (role == "speak") return speak_oddly(which, address, port);
    if (role == "serve") return serve_oddly(which, address, port);
  } catch (const std::exception& e) {
    std::printf("exception: %s\n", e.what());
    return 1;
  }
  return 2;
}
