// The jobs of programs that take one event after the other, dat's side: dequeue, wait_for and coroutines on a merged
// evd. They are in a file of their own, so that they do not change what the compiler inlines in the other jobs.
// SPDX-License-Identifier: BSL-1.0
#include "taking.hpp"

#include <dat/coro.hpp>

#include <coroutine>
#include <cstddef>
#include <variant>

namespace overhead {
namespace {

[[gnu::noinline]] void counted_dequeue(place& p, long n) {
  for (long i = 0; i < n; ++i) {
    if (!p.merged.ep.post(dat::send{p.out[0]}.cookie(i))) wrong();
    const auto event = p.merged.evd.dequeue();
    if (!event) wrong();
    const auto* sent = std::get_if<dat::send_done>(&event.assume_value());
    if (!sent) wrong();
    consumed += sent->cookie().value();
  }
}

[[gnu::noinline]] void counted_wait_for(place& p, long n) {
  for (long i = 0; i < n; ++i) {
    if (!p.merged.ep.post(dat::send{p.out[0]}.cookie(i))) wrong();
    const auto sent = p.merged.evd.wait_for<dat::send_done>(p.merged.ep);
    if (!sent) wrong();
    consumed += sent.assume_value().cookie().value();
  }
}

/// A coroutine that starts at once and ends with its last statement. Its frame is in static memory, because the gauge
/// counts allocations.
struct routine {
  struct promise_type {
    static void* operator new(std::size_t size) {
      alignas(64) static std::byte memory[4096];
      if (size > sizeof memory) wrong();
      return memory;
    }
    static void operator delete(void*) noexcept {}
    [[nodiscard]] routine get_return_object() const noexcept { return {}; }
    [[nodiscard]] std::suspend_never initial_suspend() const noexcept { return {}; }
    [[nodiscard]] std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() const noexcept { wrong(); }
  };
};

using merged_driver = dat::coro::driver<dat::stream::dto | dat::stream::connection>;

routine send_all(merged_driver& driver, place& p, long n, bool& finished) {
  for (long i = 0; i < n; ++i) {
    const auto sent = co_await driver.post(p.merged.ep, dat::send{p.out[0]}.cookie(i));
    if (!sent) wrong();
    consumed += sent.assume_value().cookie().value();
  }
  finished = true;
}

[[gnu::noinline]] void counted_coroutine(place& p, long n) {
  merged_driver driver(p.merged.evd);
  bool finished = false;
  send_all(driver, p, n, finished);
  if (!driver.run_until([&] { return finished; }, [](const auto&) { wrong(); })) wrong();
}

constexpr job jobs[] = {
    {"dequeue, merged evd", counted_dequeue},
    {"wait_for, merged evd", counted_wait_for},
    {"coroutine, merged evd", counted_coroutine},
};

} // namespace

std::span<const job> dat_wait_jobs() { return jobs; }

} // namespace overhead
