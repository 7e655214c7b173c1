// A connected pair on a device whose completion evds take binds, with memory that only windows open.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "support.hpp"

#include <dat/rmr.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace device { namespace window_tests {

inline constexpr auto binds = dat::stream::dto | dat::stream::rmr_bind;
inline constexpr auto local = dat::local_read | dat::local_write;
inline constexpr auto both = dat::remote_read | dat::remote_write;
using inner = dat::lmr<std::byte, local.value>;
using open_window = dat::remote_segment<std::byte, both.value>;

/// A connected pair whose completions go to evds of their own with the stream rmr_bind.
struct linked : two_sides {
  dat::evd<binds> at_active = must(a.ia.create_evd<binds>(256));
  dat::evd<binds> at_passive = must(b.ia.create_evd<binds>(256));
  std::vector<std::byte> a_bytes = std::vector<std::byte>(4096);
  std::vector<std::byte> b_bytes = std::vector<std::byte>(4096);
  inner a_mem = must(a.pz.register_memory(a_bytes, local));
  inner b_mem = must(b.pz.register_memory(b_bytes, local)); // no remote right: only windows allow access
  endpoint active;
  endpoint passive;

  linked() : active(new_active()), passive(new_passive()) { connect(active, passive); }
  /// Long ack_timeout: when a busy machine answers late and a request is repeated, Soft-RoCE ignores the answer; if the
  /// answer was a refusal, the peer may disconnect first, and the request is flushed. Soft-RoCE also repeats binds
  /// behind such a request, and the repeated bind fails.
  static constexpr dat::ep_attributes patient{.ack_timeout = 20s};
  endpoint new_active() { return must(a.pz.create_ep<dat::rc>(dat::ep_evds{at_active, at_active, a.evd}, patient)); }
  endpoint new_passive() { return must(b.pz.create_ep<dat::rc>(dat::ep_evds{at_passive, at_passive, b.evd}, patient)); }

  dat::rmr make(bool for_ep) { return for_ep ? must(b.pz.create_rmr_for_ep()) : must(b.pz.create_rmr()); }
  open_window bind(dat::rmr& rmr, std::size_t first, std::size_t count) {
    const auto w = must(rmr.bind(passive, dat::bind{b_mem, first, count, both}.cookie(1)));
    const auto done = next<dat::bind_done>(at_passive);
    if (!done.is_of(rmr) || done.cookie() != dat::cookie(1)) fail("the bind of another rmr", place::here());
    return w;
  }
  template <class W>
  void write(const W& to, std::uint32_t seed) {
    fill(std::span(a_bytes).first(to.size()), seed);
    must(active.post(dat::rdma_write{must(a_mem.slice(0, to.size())), to}));
    (void)next<dat::rdma_write_done>(at_active);
  }
  template <class W>
  dat::dto_status refused(const W& to, endpoint& by) {
    must(by.post(dat::rdma_write{must(a_mem.slice(0, to.size())), to}));
    return next<dat::dto_failure>(at_active).status();
  }
};

template <class W>
W moved(const W& from, std::uint64_t by) {
  auto raw = dat::detail::segment_access::raw(from);
  raw.address += by;
  return dat::detail::segment_access::make<W>(raw);
}

}} // namespace device::window_tests
