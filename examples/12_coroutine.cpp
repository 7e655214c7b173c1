// Echo with coroutines: a server and a client take turns in one thread, and wait without blocking it.
// SPDX-License-Identifier: BSL-1.0
#include <algorithm>
#include <array>
#include <dat/coro.hpp>
#include <dat/dat.hpp>
#include <dat/try.hpp>
#include <iostream>
#include <optional>
#include <utility>
using namespace std::chrono_literals;

// dat has the awaitables; the program chooses the coroutine type. A coroutine of this type starts at once.
struct task {
  struct promise_type {
    std::optional<dat::expected<void>> result;
    task get_return_object() { return task(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_value(dat::expected<void> r) { result = r; }
    void unhandled_exception() { std::terminate(); }
  };
  explicit task(std::coroutine_handle<promise_type> h) : coroutine(h) {}
  task(task&& o) noexcept : coroutine(std::exchange(o.coroutine, {})) {}
  ~task() {
    if (coroutine) coroutine.destroy();
  }
  [[nodiscard]] bool done() const { return coroutine.done(); }
  [[nodiscard]] const dat::expected<void>& result() const { return *coroutine.promise().result; }
  std::coroutine_handle<promise_type> coroutine;
};

constexpr auto streams = dat::stream::dto | dat::stream::connection | dat::stream::connection_requests;
using driver = dat::coro::driver<streams>;
using buffer = dat::lmr<char, (dat::local_read | dat::local_write)>;

task serve(driver& events, dat::ep<dat::rc>& ep, buffer& memory) {
  auto message = events.post(ep, dat::recv{memory}); // posted before the client can send
  DAT_CO_TRY(auto request, co_await events.next<dat::connection_request>());
  DAT_CO_TRYV(co_await events.accept(request, ep));
  while (const auto got = co_await message) { // until the client disconnects
    DAT_CO_TRY(const auto text, memory.slice(0, got.value().bytes()));
    DAT_CO_TRYV(co_await events.post(ep, dat::send{text}));
    DAT_CO_TRYV(events.post(message, ep, dat::recv{memory}));
  }
  co_return dat::success();
}

task ask(driver& events, dat::ep<dat::rc>& ep, buffer& memory, std::span<char> chars, dat::ia_address server) {
  DAT_CO_TRYV(co_await events.connect(ep, server, 7471, 2s));
  for (const std::string_view word : {"one", "two", "three"}) {
    std::copy(word.begin(), word.end(), chars.begin());
    DAT_CO_TRY(const auto out, memory.slice(0, word.size()));
    DAT_CO_TRY(const auto in, memory.slice(32, 32));
    auto echo = events.post(ep, dat::recv{in});
    DAT_CO_TRYV(co_await events.post(ep, dat::send{out}));
    DAT_CO_TRY(const auto got, co_await echo);
    std::cout << std::string_view(&chars[32], got.bytes()) << '\n';
  }
  DAT_CO_TRYV(co_await events.disconnect(ep, dat::close_mode::graceful));
  co_return dat::success();
}

dat::expected<void> echo() {
  std::array<char, 64> outward{};
  std::array<char, 64> inward{};
  DAT_TRY(auto ia, dat::ia::open());
  DAT_TRY(auto pz, ia.create_pz());
  DAT_TRY(auto evd, ia.create_evd<streams>(64));
  DAT_TRY(auto psp, ia.create_psp(7471, evd));
  DAT_TRY(auto client, pz.create_ep<dat::rc>(evd));
  DAT_TRY(auto server, pz.create_ep<dat::rc>(evd));
  DAT_TRY(auto out, pz.register_memory(outward, dat::local_read | dat::local_write));
  DAT_TRY(auto in, pz.register_memory(inward, dat::local_read | dat::local_write));

  driver events(evd);
  const task serving = serve(events, server, in);
  const task asking = ask(events, client, out, outward, ia.address());
  const auto both = [&] { return serving.done() && asking.done(); };
  DAT_TRYV(events.run_until(
      both, [](const auto&) {}, 10s));
  DAT_TRYV(serving.result());
  return asking.result();
}

int main() {
  const auto done = echo();
  if (!done) std::cerr << done.error().message() << '\n';
  return done ? 0 : 1;
}
