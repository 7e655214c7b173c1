// The jobs of a program that counts its operations by <dat/counters.hpp>, dat's side.
// SPDX-License-Identifier: BSL-1.0
#include "taking.hpp"

#include <dat/counters.hpp>

namespace overhead {
namespace {

[[gnu::noinline]] void counted_counting(place& p, long n) {
  static dat::counters counters;
  for (long i = 0; i < n; ++i) {
    if (!counters.post(p.completions_only.ep, dat::send{p.out[0]}.cookie(i))) wrong();
    while (counters.drain(p.completions_only.evd, take<dat::send_done>(), 1) == 0) {
    }
  }
}

constexpr job jobs[] = {{"send, with counters", counted_counting}};

} // namespace

std::span<const job> dat_count_jobs() { return jobs; }

} // namespace overhead
