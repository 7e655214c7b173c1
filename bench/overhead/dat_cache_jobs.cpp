// The jobs of a program that finds its registrations by <dat/registration_cache.hpp>, dat's side.
// SPDX-License-Identifier: BSL-1.0
#include "taking.hpp"

namespace overhead {
namespace {

[[gnu::noinline]] void counted_cached(place& p, long n) {
  for (long i = 0; i < n; ++i) {
    const auto found = p.cache.find_or_register(p.cached);
    if (!found) wrong();
    if (!p.completions_only.ep.post(dat::send{found.assume_value().whole()}.cookie(i))) wrong();
    take_one<dat::send_done>(p.completions_only.evd);
  }
}

constexpr job jobs[] = {{"send, cached region", counted_cached}};

} // namespace

std::span<const job> dat_cache_jobs() { return jobs; }

} // namespace overhead
