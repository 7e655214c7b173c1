// A shared receive queue on a device, with endpoints that are connected to plain endpoints of the other side.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "support.hpp"

#include <dat/ep_params.hpp>
#include <dat/srq.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace device { namespace srq_tests {

inline constexpr bool slow = dat::detail::thread_sanitizer;
using shared_ep = dat::ep<dat::with_srq<dat::rc>>;

/// Plain endpoints at a, connected to endpoints at b with one shared queue.
struct pool : two_sides {
  explicit pool(std::size_t n, const dat::srq_attributes& size, const dat::ep_attributes& passive = {},
                const dat::ep_attributes& active = {})
      : two_sides({.qlen = 8192}), srq(must(b.pz.create_srq(size))) {
    for (std::size_t i = 0; i < n; ++i) {
      from.push_back(a.make_ep(active));
      to.push_back(must(b.pz.create_ep<dat::rc>(b.evd, srq, passive)));
    }
    for (std::size_t i = 0; i < n; ++i) connect(from[i], to[i]);
  }
  dat::srq srq;
  std::vector<endpoint> from;
  std::vector<shared_ep> to;

  [[nodiscard]] dat::srq_params now(place where = place::here()) const { return must(srq.query(), where); }
  /// Waits until the reactor and the device have left `n` buffers available.
  void until_available(std::uint32_t n, place where = place::here()) const {
    if (!comes_true([&] { return now(where).available == n; })) fail("the queue never had " + std::to_string(n), where);
  }
};

/// Buffers in one region, numbered; their cookies are the numbers.
struct slots {
  slots(dat::pz& pz, std::size_t count, std::size_t each) : size(each), memory(pz, count * each) {}
  std::size_t size;
  buffer memory;
  void post(const dat::srq& to, std::uint64_t which, place where = place::here()) const {
    must(to.post(dat::recv{memory.slice(which * size, size)}.cookie(which)), where);
  }
  [[nodiscard]] std::span<std::byte> of(const dat::completion& c) {
    return memory.part(c.cookie().as<std::size_t>() * size, size);
  }
};

}} // namespace device::srq_tests
