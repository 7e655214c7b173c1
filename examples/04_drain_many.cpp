// Many messages: a visitor takes the events, receives are posted ahead, and buffers are used in turn. The client sends
// only messages for which the server has receives: the server reports each group of receives that it has posted again.
// Start `04_drain_many`, then `04_drain_many HOST`. SPDX-License-Identifier: BSL-1.0
#include "peer.hpp"
#include <cstdint>

namespace {

constexpr std::size_t messages = 2000;
constexpr std::size_t buffers = 32; // receives of the server, and sends of the client, that are under way at a time
constexpr std::size_t news = 16;    // the number of receives that the server reports at once
using numbers = std::array<std::uint64_t, buffers>;

/// The server: adds up the numbers that arrive. Each receive is posted again as soon as its number has been read.
struct receiver {
  peer<>& self;
  numbers inbox{};
  dat::lmr<std::uint64_t, dat::local_write> memory{};
  std::size_t count = 0;
  std::uint64_t sum = 0;
  bool over = false;
  dat::expected<void> result = dat::success();

  dat::expected<void> post(std::size_t buffer) {
    DAT_TRY(const auto one, memory.slice(buffer, 1));
    return self.ep.post(dat::recv{one}.cookie(buffer)); // the completion returns the cookie
  }
  void operator()(const dat::recv_done& got) {
    const auto buffer = got.cookie().as<std::size_t>();
    sum += inbox[buffer];
    ++count;
    if (auto posted = post(buffer); !posted) result = posted;
    if (count % news == 0)
      if (auto told = self.ep.post(dat::send{}); !told) result = told; // an empty message
  }
  void operator()(const dat::disconnected&) { over = true; }
  void operator()(const auto&) {} // `established`; receives that the end of the connection flushes
};

/// The client: a buffer is free again when its send has completed. Sends complete in order.
struct sender {
  peer<>& self;
  numbers outbox{};
  dat::lmr<std::uint64_t, dat::local_read> memory{};
  std::size_t sent = 0;
  std::size_t completed = 0;
  std::size_t granted = buffers; // this number of messages find a receive
  dat::expected<void> result = dat::success();

  dat::expected<void> post() {
    const std::size_t buffer = sent % buffers;
    outbox[buffer] = ++sent;
    DAT_TRY(const auto one, memory.slice(buffer, 1));
    return self.ep.post(dat::send{one});
  }
  void go_on() {
    while (result && sent < std::min(messages, granted) && sent - completed < buffers) result = post();
  }
  void operator()(const dat::send_done&) {
    ++completed;
    go_on();
  }
  void operator()(const dat::recv_done&) { // the reports of the server
    granted += news;
    if (auto posted = self.ep.post(dat::recv{}); !posted) result = posted;
    go_on();
  }
  void operator()(const dat::dto_failure& failed) {
    std::cerr << failed.message() << '\n';
    result = dat::error(dat::return_type::abort).at("04_drain_many");
  }
  void operator()(const auto&) {}
};

dat::expected<void> run(const char* host) {
  peer<> self{host};
  DAT_TRYV(self.open());
  if (host) {
    sender all{self};
    DAT_TRY(all.memory, self.pz.register_memory(all.outbox, dat::local_read));
    for (std::size_t i = 0; i < buffers / news; ++i) DAT_TRYV(self.ep.post(dat::recv{}));
    DAT_TRYV(self.connect());
    all.go_on();
    while (all.result && (all.completed < messages || all.granted < messages + buffers)) // all have arrived
      DAT_TRYV(self.evd.wait_and_drain(all, self.limit));
    return all.result ? self.finish() : all.result;
  }
  receiver all{self};
  DAT_TRY(all.memory, self.pz.register_memory(all.inbox, dat::local_write));
  for (std::size_t i = 0; i < buffers; ++i) DAT_TRYV(all.post(i));
  DAT_TRYV(self.connect());
  while (all.result && !all.over) DAT_TRYV(self.evd.wait_and_drain(all, self.limit));
  std::cout << all.count << " messages, sum " << all.sum << '\n';
  return all.result;
}

} // namespace

int main(int argc, char** argv) { return report(run(argc > 1 ? argv[1] : nullptr)); }
