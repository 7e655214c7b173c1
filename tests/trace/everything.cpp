// A sink and a log for a unit program that is built with trace points (-Dtrace=true): they read all that they get.
// SPDX-License-Identifier: BSL-1.0
#include <dat/log.hpp>
#include <dat/trace.hpp>

#include <atomic>
#include <cstdint>

namespace {

std::atomic<std::uint64_t> seen{0};

struct everything : dat::trace::sink {
  everything() : sink(&take_one) {
    dat::trace::set_sink(this);
    dat::on_log([](const dat::log_entry& e) noexcept { seen += e.error() ? e.error()->value() : 1; });
  }
  ~everything() { dat::trace::set_sink(nullptr); }
  static void take_one(sink&, const dat::trace::record& r) noexcept {
    seen += r.number + r.bytes + r.cookie + r.time + r.event.size();
  }
} const takes_everything;

} // namespace
