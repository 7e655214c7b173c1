// Runs the curves: `growth dump [MOST]` under callgrind, `growth threads N OPERATIONS` by the clock.
// SPDX-License-Identifier: BSL-1.0
#include "growth.hpp"

#include "../overhead/instant_verbs.hpp"

#include <fake_verbs.hpp>

#include <valgrind/callgrind.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

using namespace std::chrono_literals;

namespace growth {
namespace {
constexpr std::uint16_t port = 7471;
constexpr std::size_t most_bytes = std::size_t{8} << 20;

/// A device whose limits no curve reaches.
fake::world large() {
  ibv_device_attr attr = fake::rxe_attr();
  attr.max_qp = attr.max_cq = attr.max_mr = 1 << 20;
  attr.max_cqe = 1 << 22;
  attr.max_qp_wr = 1 << 16;
  fake::world w;
  for (fake::device_config& d : w.devices) d.attr = attr;
  return w;
}
} // namespace

void wrong(const std::string& what) {
  std::fprintf(stderr, "growth: %s\n", what.c_str());
  std::exit(1);
}

void begin_count() {
  CALLGRIND_START_INSTRUMENTATION;
  CALLGRIND_ZERO_STATS;
}
void end_count(const char* curve, const char* side, long size) {
  CALLGRIND_TOGGLE_COLLECT;
  const std::string label = std::string(curve) + "|" + side + "|" + std::to_string(size);
  CALLGRIND_DUMP_STATS_AT(label.c_str());
  CALLGRIND_TOGGLE_COLLECT;
  CALLGRIND_STOP_INSTRUMENTATION; // the set-up of the next size runs faster
}

world::world() : bytes(most_bytes) {
  fake::reset(large());
  ia = must(dat::ia::open("fk1", {.progress = dat::progress::manual}));
  pz = must(ia.create_pz());
  region = must(pz.register_memory(bytes, rights));
  events_ = must(ia.create_evd<dat::stream::connection | dat::stream::connection_requests>(16));
  peer_completions_ = must(ia.create_evd<dat::stream::dto>(64));
  psp_ = must(ia.create_psp(port, events_));
}

void world::accept(dat::ep<dat::rc>& ep, dat::ep<dat::rc>& peer) {
  peer = must(pz.create_ep<dat::rc>({peer_completions_, peer_completions_, events_}));
  must(ep.connect(ia.address(), port, 10s));
  must(must(events_.wait_for<dat::connection_request>(10s)).accept(peer));
  must(events_.wait_for<dat::established>(peer, 10s));
}
void world::connect(dat::ep<dat::rc>& ep, dat::ep<dat::rc>& peer, lean_evd& evd, const dat::ep_attributes& a) {
  ep = must(pz.create_ep<dat::rc>({evd, evd, events_}, a));
  accept(ep, peer);
  must(events_.wait_for<dat::established>(ep, 10s));
}
void world::connect(dat::ep<dat::rc>& ep, dat::ep<dat::rc>& peer, merged_evd& evd, const dat::ep_attributes& a) {
  ep = must(pz.create_ep<dat::rc>(evd, a));
  accept(ep, peer);
  must(evd.wait_for<dat::established>(ep, 10s));
}

instantly::instantly(const dat::ep<dat::rc>& any) : context_(any.native_handle()->context) {
  instant::take_over(*context_, 0);
}
instantly::~instantly() { instant::give_back(*context_); }

} // namespace growth

int main(int argc, char** argv) {
  using namespace growth;
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what == "threads" && argc == 4) {
    threads(std::max(1L, std::atol(argv[2])), std::max(1L, std::atol(argv[3])));
    return 0;
  }
  if (what != "dump" || argc > 3) {
    std::fputs("usage: growth dump [MOST] | threads N OPERATIONS\n", stderr);
    return 2;
  }
  const long most = argc == 3 ? std::max(1L, std::atol(argv[2])) : 1L << 30;
  const auto each = [most](void (*curve)(long), std::initializer_list<long> sizes) {
    for (const long size : sizes)
      if (size <= most) curve(size);
  };
  each(endpoints, {1, 4, 16, 64, 256, 1024, 4096});
  each(evds_of_a_cno, {1, 4, 16, 64, 256, 1024});
  each(regions, {1, 10, 100, 1000, 10'000});
  each(segments, {1, 2, 4, 8, 16});
  each(batch, {1, 2, 4, 8, 16, 32, 64});
  for (const long size : {1L, 64L, 4096L, 256L << 10, 8L << 20}) bytes(size);
  each(outstanding, {1, 4, 16, 64, 256, 1024});
  return 0;
}
