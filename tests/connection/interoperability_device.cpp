// Connections with other programs: those of rdma-core, and a peer on OFA's uDAPL.
// SPDX-License-Identifier: BSL-1.0
#include "loads.hpp"
#include "support.hpp"

#include <dat/csp.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <spawn.h>
#include <sys/wait.h>

extern char** environ;

namespace device {
namespace {

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
