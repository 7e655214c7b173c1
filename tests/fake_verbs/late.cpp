// Actions of devices some time after the calls that cause them, and slow calls.
// SPDX-License-Identifier: BSL-1.0
#include "state.hpp"

#include <atomic>
#include <chrono>
#include <thread>

namespace fake::impl {

namespace {

std::atomic<unsigned> call_us{0}, query_us{0};

std::condition_variable& due() {
  static auto* c = new std::condition_variable;
  return *c;
}

/// The thread of the devices. It runs as long as the process, which never joins it.
void start_device_thread() {
  static const bool started = [] {
    std::thread([] {
      std::unique_lock lock{mutex()};
      for (;;) {
        due().wait(lock, [] { return !the_world().late.empty() && !the_world().late_held; });
        // The pause is long enough for the call to return, and for its caller to poll. No result depends on the pause.
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds{100});
        lock.lock();
        if (!the_world().late_held) finish_late();
      }
    }).detach();
    return true;
  }();
  (void)started;
}

} // namespace

void do_late(late_work what) {
  start_device_thread();
  the_world().late.push_back(what);
  due().notify_one();
}

namespace {
void finish_first() {
  auto& all = the_world().late;
  const auto next = all.front();
  all.pop_front();
  if (next.cq)
    push_wc(*next.cq, next.wc, true);
  else if (next.qp->alive)
    last_wqe_reached(*next.qp);
}
} // namespace

void finish_late() {
  while (!the_world().late.empty()) finish_first();
}

void age_late() {
  constexpr unsigned late_by = 3;
  auto& w = the_world();
  if (w.late_held) return;
  for (auto& l : w.late) ++l.calls;
  while (!w.late.empty() && w.late.front().calls > late_by) finish_first();
}

void forget_late(const qp_obj& q) {
  std::erase_if(the_world().late, [&](const late_work& l) { return l.qp == &q; });
}

void set_pace(const manners& m) {
  call_us = m.slow_call_us;
  query_us = m.slow_query_us;
}

void pace(call c) {
  const bool query = c == call::ibv_query_qp || c == call::ibv_query_srq;
  const bool slow = has(group::setup | group::teardown, group_of(c));
  const auto us = std::max(query ? query_us.load(std::memory_order_relaxed) : 0u,
                           slow ? call_us.load(std::memory_order_relaxed) : 0u);
  if (us != 0) std::this_thread::sleep_for(std::chrono::microseconds{us});
}

} // namespace fake::impl

namespace fake {

void finish() {
  const std::lock_guard hold{impl::mutex()};
  impl::the_world().late_held = false;
  impl::finish_late();
}

void hold_late() {
  const std::lock_guard hold{impl::mutex()};
  impl::the_world().late_held = true;
}

} // namespace fake
