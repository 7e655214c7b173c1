// A ticket lock of two words in memory that many hosts access, taken by fetch-and-add and by RDMA reads. Eight
// endpoints increment a third word by reading and writing it, which is correct only under a lock.
// SPDX-License-Identifier: BSL-1.0
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dat/dat.hpp>
#include <dat/try.hpp>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>
using namespace std::chrono_literals;

namespace {

constexpr auto rights = dat::local_read | dat::local_write | dat::remote_read | dat::remote_write | dat::remote_atomic;
constexpr auto streams = dat::stream::dto | dat::stream::connection | dat::stream::connection_requests;
using words = dat::lmr<std::uint64_t, rights>;
using shared = dat::remote_segment<std::uint64_t, rights>;
constexpr std::size_t next_ticket = 0; // the owner's words
constexpr std::size_t now_serving = 1;
constexpr std::size_t counter = 2;
constexpr std::size_t clients = 8; // half of them are in another process
constexpr std::size_t rounds = 25;

/// One endpoint that uses the lock.
class client {
public:
  dat::expected<void> connect(const dat::ia_address& to, std::uint16_t port) {
    DAT_TRY(ia_, dat::ia::open());
    DAT_TRY(pz_, ia_.create_pz());
    DAT_TRY(evd_, ia_.create_evd<streams>(16));
    DAT_TRY(ep_, pz_.create_ep<dat::rc>(evd_));
    DAT_TRY(mine_, pz_.register_memory(word_, rights));
    DAT_TRY(auto inbox, pz_.register_memory(inbox_, dat::local_write));
    DAT_TRY(auto qualifier, dat::conn_qual::make(port));
    DAT_TRYV(ep_.post(dat::recv{inbox})); // receives the address of the words
    DAT_TRYV(ep_.connect(to, qualifier, 10s));
    DAT_TRYV(evd_.wait_for<dat::established>(10s));
    DAT_TRYV(evd_.wait_for<dat::recv_done>(10s));
    DAT_TRY(there_, shared::from_wire(inbox_));
    return dat::success();
  }
  /// Takes a ticket and waits for its turn.
  dat::expected<void> lock() {
    DAT_TRY(const auto ticket, add(next_ticket, 1));
    for (;;) {
      DAT_TRY(const auto serving, read(now_serving));
      if (serving == ticket) return dat::success();
    }
  }
  dat::expected<void> unlock() {
    DAT_TRYV(add(now_serving, 1));
    return dat::success();
  }
  /// A read and a write are two steps: the result is correct only while no other client runs them.
  dat::expected<void> count() {
    DAT_TRY(const auto before, read(counter));
    word_[0] = before + 1;
    DAT_TRY(auto to, there_.slice(counter, 1));
    DAT_TRYV(ep_.post(dat::rdma_write{mine_, to}));
    DAT_TRYV(evd_.wait_for<dat::rdma_write_done>(10s));
    return dat::success();
  }

private:
  dat::expected<std::uint64_t> add(std::size_t word, std::uint64_t n) {
    DAT_TRY(auto to, there_.word(word));
    DAT_TRYV(ep_.post(dat::ib::fetch_and_add{mine_, to, n}));
    DAT_TRYV(evd_.wait_for<dat::ib::fetch_and_add_done>(10s));
    return word_[0];
  }
  dat::expected<std::uint64_t> read(std::size_t word) {
    DAT_TRY(auto from, there_.slice(word, 1));
    DAT_TRYV(ep_.post(dat::rdma_read{mine_, from}));
    DAT_TRYV(evd_.wait_for<dat::rdma_read_done>(10s));
    return word_[0];
  }

  std::array<std::uint64_t, 1> word_{};
  std::array<std::byte, shared::wire_size> inbox_{};
  dat::ia ia_;
  dat::pz pz_;
  dat::evd<streams> evd_;
  words mine_;
  dat::ep<dat::rc> ep_;
  shared there_;
};

/// Half of the clients, each in a thread. False when one of them failed.
bool work(const dat::ia_address& to, std::uint16_t port) {
  std::array<bool, clients / 2> good{};
  std::vector<std::thread> threads;
  threads.reserve(good.size());
  for (bool& ok : good)
    threads.emplace_back([&ok, &to, port] {
      client c;
      auto r = c.connect(to, port);
      for (std::size_t i = 0; r && i < rounds; ++i) {
        r = c.lock();
        if (r) r = c.count();
        if (r) r = c.unlock();
      }
      if (!r) std::fprintf(stderr, "%s\n", r.error().message().c_str());
      ok = static_cast<bool>(r);
    });
  for (auto& t : threads) t.join();
  for (const bool ok : good)
    if (!ok) return false;
  return true;
}

/// Owns the words, and accepts the clients that use them.
dat::expected<std::uint64_t> serve(const char* self) {
  DAT_TRY(auto ia, dat::ia::open());
  DAT_TRY(auto pz, ia.create_pz());
  DAT_TRY(auto evd, ia.create_evd<streams>(64));
  DAT_TRY(auto psp, ia.create_psp_any(evd));
  std::array<std::uint64_t, 3> word{};
  DAT_TRY(auto region, pz.register_memory(word, rights));
  auto wire = region.remote().to_wire();
  DAT_TRY(auto where, pz.register_memory(wire, dat::local_read));
  const std::string port = std::to_string(psp.port());
  pid_t other = 0; // a fork does not inherit RDMA objects: the other half is a new run of this program
  std::array<char*, 3> arguments{const_cast<char*>(self), const_cast<char*>(port.c_str()), nullptr};
  if (::posix_spawn(&other, self, nullptr, nullptr, arguments.data(), ::environ) != 0)
    return dat::error(dat::return_type::insufficient_resources);
  bool good = false;
  std::thread half([&] { good = work(ia.address(), psp.port()); });
  std::vector<dat::ep<dat::rc>> peers;
  dat::expected<void> r = dat::success();
  const auto answer = [&]() -> dat::expected<void> {
    DAT_TRY(auto request, evd.wait_for<dat::connection_request>(20s));
    DAT_TRY(auto ep, pz.create_ep<dat::rc>(evd));
    DAT_TRYV(request.accept(ep));
    DAT_TRYV(evd.wait_for<dat::established>(ep, 10s));
    DAT_TRYV(ep.post(dat::send{where}));
    peers.push_back(std::move(ep));
    return dat::success();
  };
  for (std::size_t i = 0; r && i < clients; ++i) r = answer();
  half.join();
  int status = 1;
  ::waitpid(other, &status, 0);
  if (!r) return r.error();
  if (!good || status != 0) return dat::error(dat::return_type::abort).hint("a client failed");
  return word[counter];
}

} // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    const auto ia = dat::ia::open(); // the same adapter as the server's
    return ia && work(ia.value().address(), static_cast<std::uint16_t>(std::atoi(argv[1]))) ? 0 : 1;
  }
  const auto counted = serve("/proc/self/exe");
  if (!counted) return std::fprintf(stderr, "%s\n", counted.error().message().c_str()), 1;
  std::printf("%zu clients counted to %llu of %zu\n", clients, static_cast<unsigned long long>(counted.value()),
              clients * rounds);
  return counted.value() == clients * rounds ? 0 : 1;
}
