// Coroutines: each session of a server is a coroutine. All of them run in one thread, and none blocks it.
// Start `12_coroutine`, then three times `12_coroutine HOST`.
// SPDX-License-Identifier: BSL-1.0
#include "peer.hpp"
#include <dat/coro.hpp>
#include <dat/task.hpp>
#include <string_view>
#include <utility>
using namespace std::chrono_literals;

namespace {

// Any coroutine type will do. This one is dat's own.
using task = dat::task<dat::expected<void>>;
using driver = dat::coro::driver<peer<>::streams>;
constexpr auto rights = dat::local_read | dat::local_write;
constexpr int clients = 3;

/// The objects of a session are variables of its coroutine, and end with it.
task echo(peer<>& self, driver& events, dat::connection_request request) {
  std::array<char, 64> chars{};
  DAT_CO_TRY(auto memory, self.pz.register_memory(chars, rights));
  DAT_CO_TRY(const auto in, memory.slice(0, 32));
  DAT_CO_TRY(auto ep, self.pz.create_ep<dat::rc>(self.evd));
  auto message = events.post(ep, dat::recv{in}); // posted before the client can send
  DAT_CO_TRYV(co_await events.accept(request, ep));
  while (const auto got = co_await message) { // until the client disconnects
    std::copy_n(&chars[0], got.value().bytes(), &chars[32]);
    DAT_CO_TRYV(events.post(message, ep, dat::recv{in})); // posted before the answer, and so before the next message
    DAT_CO_TRY(const auto text, memory.slice(32, got.value().bytes()));
    if (const auto sent = co_await events.post(ep, dat::send{text}); !sent) break;
  }
  co_return dat::success();
}

task serve(peer<>& self, driver& events, dat::task_group& sessions) {
  DAT_CO_TRY(const auto psp, self.listen());
  for (int i = 0; i < clients; ++i) {
    DAT_CO_TRY(auto request, co_await events.next<dat::connection_request>());
    sessions.spawn(echo(self, events, std::move(request))); // runs on its own, and this loop continues
  }
  co_return dat::success();
}

task ask(peer<>& self, driver& events) {
  std::array<char, 64> chars{};
  DAT_CO_TRY(auto memory, self.pz.register_memory(chars, rights));
  DAT_CO_TRY(const auto addresses, dat::resolve(self.host));
  DAT_CO_TRYV(co_await events.connect(self.ep, addresses.front(), 7471, self.limit));
  for (const std::string_view word : {"one", "two", "three"}) {
    std::copy(word.begin(), word.end(), chars.begin());
    DAT_CO_TRY(const auto out, memory.slice(0, word.size()));
    DAT_CO_TRY(const auto in, memory.slice(32, 32));
    auto answer = events.post(self.ep, dat::recv{in});
    DAT_CO_TRYV(co_await events.post(self.ep, dat::send{out}));
    DAT_CO_TRY(const auto got, co_await answer);
    std::cout << std::string_view(&chars[32], got.bytes()) << '\n';
  }
  DAT_CO_TRYV(co_await events.disconnect(self.ep, dat::close_mode::graceful));
  co_return dat::success();
}

dat::expected<void> run(const char* host) {
  peer<> self{host};
  DAT_TRYV(self.open());
  driver events(self.evd); // takes the events, and resumes the coroutines that wait for them
  dat::task_group tasks;
  tasks.spawn(host ? ask(self, events) : serve(self, events, tasks));
  const auto all_ended = [&] { return tasks.empty(); };
  const auto others = [](const auto&) {}; // events for which no coroutine waits
  DAT_TRYV(events.run_until(all_ended, others, 60s));
  if (tasks.failure()) return *tasks.failure();
  return dat::success();
}

} // namespace

int main(int argc, char** argv) { return report(run(argc > 1 ? argv[1] : nullptr)); }
