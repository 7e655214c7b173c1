// A shared receive queue in the fake world, with endpoints that are connected to plain endpoints of another side.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "world.hpp"

#include <dat/ep_params.hpp>
#include <dat/srq.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <type_traits>

namespace shared_queues {

using namespace unit;

using shared_ep = dat::ep<dat::with_srq<dat::rc>>;

/// The asynchronous events of shared receive queues; another event by its position in the variant.
inline events async_of(dat::ia& ia) {
  events all;
  while (ia.async_evd().drain(dat::overloaded{
             [&](const dat::srq_low_watermark&) { all.emplace_back("low"); },
             [&](const dat::srq_error&) { all.emplace_back("error"); },
             [&](const dat::ep_soft_high_watermark& e) { all.push_back("soft " + std::to_string(e.ep().number())); },
             [&](const auto&) { all.emplace_back("another"); }}) != 0) {
  }
  return all;
}

/// A side with a queue, and endpoints of the queue that are connected to plain endpoints of another side.
template <dat::streams S = all_streams>
struct pool {
  explicit pool(std::size_t n, const dat::srq_attributes& size = {.max_recv_dtos = 10, .max_recv_iov = 3},
                const dat::ep_attributes& attributes = {}) {
    srq = must(b.pz.create_srq(size));
    for (std::size_t i = 0; i < n; ++i) add(attributes);
  }
  end a{"fk1"};
  end b{"fk2"};
  dat::evd<S> evd = must(b.ia.create_evd<S>(64)); // the evd of the receives
  dat::srq srq;
  dat::psp psp = must(b.ia.create_psp(service, b.evd));
  std::deque<dat::ep<dat::rc>> from; // endpoints at a
  std::deque<shared_ep> to;          // endpoints at b

  void add(const dat::ep_attributes& attributes = {}) {
    // Suppressed requests keep their entries.
    from.push_back(must(a.pz.create_ep<dat::rc>(a.evd, {.max_request_dtos = 900})));
    to.push_back(must(b.pz.create_ep<dat::rc>({.recv = evd, .request = b.evd, .connect = b.evd}, srq, attributes)));
    connect(from.back(), to.back());
  }
  void connect(dat::ep<dat::rc>& active, shared_ep& passive) {
    must(active.connect(b.ia.address(), service, plenty));
    settle();
    must(request_on(b.evd).accept(passive));
    settle();
    CHECK(a.take() == events{"established"});
    CHECK(b.take() == events{"established"});
  }
  void settle() { unit::settle(a, b); }
  /// Posts buffers of 16 bytes with these cookies, one after the other in memory.
  void post(int first, int last) {
    for (int i = first; i <= last; ++i) must(srq.post(dat::recv{b.at(16 * static_cast<std::size_t>(i), 16)}.cookie(i)));
  }
  void send(std::size_t which, std::size_t bytes = 8) {
    must(from[which].post(dat::send{a.at(0, bytes)}.suppress_completion()));
  }
  /// "1:received 7": the index of the endpoint, and the event.
  events received() {
    events all;
    while (evd.drain([&](const auto& e) {
      if constexpr (std::is_base_of_v<dat::completion, std::remove_cvref_t<decltype(e)>>) {
        const auto at = std::find_if(to.begin(), to.end(), [&](const shared_ep& ep) { return ep == e.ep(); });
        all.push_back(std::to_string(at - to.begin()) + ':' + describe{}(e));
      }
    }) != 0) {
    }
    return all;
  }
  [[nodiscard]] dat::srq_params now() { return must(srq.query()); }
  [[nodiscard]] std::uint32_t outstanding() { return now().outstanding; }
};

/// The streams of a recv evd that has no connection events.
inline constexpr auto data_streams = dat::stream::dto | dat::stream::software;

inline dat::error refusal(dat::expected<void> r) { return r ? dat::error() : r.error(); }

} // namespace shared_queues
