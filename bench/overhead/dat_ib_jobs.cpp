// The jobs of the InfiniBand extensions, dat's side. They are in a file of their own, so that they do not change what
// the compiler inlines in the other jobs.
// SPDX-License-Identifier: BSL-1.0
#include "taking.hpp"

namespace overhead {
namespace {

[[gnu::noinline]] void counted_send_immediate(place& p, long n) {
  for (long i = 0; i < n; ++i) {
    if (!p.completions_only.ep.post(dat::send{p.out[0]}.cookie(i).immediate(static_cast<std::uint32_t>(i)))) wrong();
    take_one<dat::send_done>(p.completions_only.evd);
  }
}
[[gnu::noinline]] void counted_add(place& p, long n) {
  for (long i = 0; i < n; ++i) {
    if (!p.completions_only.ep.post(dat::ib::fetch_and_add{*p.old, *p.word, 1}.cookie(i))) wrong();
    take_one<dat::ib::fetch_and_add_done>(p.completions_only.evd);
  }
}
[[gnu::noinline]] void counted_swap(place& p, long n) {
  for (long i = 0; i < n; ++i) {
    if (!p.completions_only.ep.post(dat::ib::compare_and_swap{*p.old, *p.word, 0, 1}.cookie(i))) wrong();
    take_one<dat::ib::compare_and_swap_done>(p.completions_only.evd);
  }
}
[[gnu::noinline]] void counted_ud(place& p, long n) {
  for (long i = 0; i < n; ++i) {
    if (!p.ud.post(dat::ib::send_to{p.out[0], p.peer}.cookie(i))) wrong();
    take_one<dat::ib::datagram_send_done>(p.ud_evd);
  }
}

constexpr job jobs[] = {
    {"send with immediate", counted_send_immediate},
    {"fetch and add", counted_add},
    {"compare and swap", counted_swap},
    {"UD send", counted_ud},
};

} // namespace

std::span<const job> dat_ib_jobs() { return jobs; }

} // namespace overhead
