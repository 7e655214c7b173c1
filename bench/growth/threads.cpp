// Tests whether threads that post to endpoints of their own, on one ia, disturb each other.
// SPDX-License-Identifier: BSL-1.0
#include "growth.hpp"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>

namespace growth {
namespace {

/// A device with one place for each thread: a post fills it, and a poll empties it.
struct place_of_thread {
  std::uint64_t id = 0;
  bool full = false;
};
thread_local place_of_thread place;

int post_send(ibv_qp*, ibv_send_wr* wr, ibv_send_wr**) {
  place = {wr->wr_id, true};
  return 0;
}
int poll_cq(ibv_cq*, int, ibv_wc* wc) {
  if (!place.full) return 0;
  place.full = false;
  wc->wr_id = place.id;
  wc->status = IBV_WC_SUCCESS;
  wc->opcode = IBV_WC_SEND;
  wc->wc_flags = 0;
  return 1;
}

struct worker {
  std::optional<lean_evd> evd;
  std::vector<dat::ep<dat::rc>> eps;
};

/// Nanoseconds of an operation, when every worker does `operations` in a thread of its own at the same time.
template <class Work>
double together(std::vector<std::unique_ptr<worker>>& workers, long operations, const Work& work) {
  std::atomic<std::size_t> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> all;
  for (auto& one : workers)
    all.emplace_back([&] {
      work(*one, 1000L);
      ready.fetch_add(1);
      while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
      work(*one, operations);
    });
  while (ready.load() != workers.size()) std::this_thread::yield();
  const auto start = std::chrono::steady_clock::now();
  go.store(true, std::memory_order_release);
  for (auto& t : all) t.join();
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
  return took.count() / static_cast<double>(operations);
}

} // namespace

void threads(long n, long operations) {
  world w;
  std::vector<std::unique_ptr<worker>> workers;
  for (long i = 0; i < n; ++i) {
    auto& one = *workers.emplace_back(std::make_unique<worker>());
    one.evd = must(w.ia.create_evd<dat::stream::dto>(64));
    one.eps = w.connected(1, *one.evd);
  }
  ibv_context& context = *workers.front()->eps.front().native_handle()->context;
  const ibv_context_ops own = context.ops;
  context.ops.post_send = post_send;
  context.ops.poll_cq = poll_cq;
  const ibv_sge sge = {reinterpret_cast<std::uintptr_t>(w.bytes.data()), 64, w.region.native_handle()->lkey};
  const double raw = together(workers, operations, [&](worker& one, long times) {
    ibv_qp* const qp = one.eps.front().native_handle();
    ibv_cq* const cq = one.evd->native_handle();
    for (long i = 0; i < times; ++i) {
      ibv_sge list = sge;
      post_raw(qp, &list, 1, static_cast<std::uint64_t>(i));
      poll_raw(cq, 1);
    }
  });
  const auto segment = must(w.region.slice(0, 64));
  const double dat = together(workers, operations, [&](worker& one, long times) {
    for (long i = 0; i < times; ++i) {
      must(one.eps.front().post(dat::send{segment}.cookie(i)));
      take(*one.evd, 1);
    }
  });
  context.ops = own;
  std::printf("%.2f|%.2f\n", raw, dat);
}

} // namespace growth
