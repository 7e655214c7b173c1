// The connection on which a test provokes a completion status: its memory, its window, and forged segments.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "support.hpp"

#include <dat/rmr.hpp>
#include <dat/srq.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace device { namespace status_tests {

inline constexpr auto bind_streams = dat::stream::dto | dat::stream::rmr_bind;

inline constexpr auto word_rights = all_rights | dat::remote_atomic;
using words = dat::lmr<std::uint64_t, word_rights.value>;
using plain_words = dat::lmr<std::uint64_t, all_rights.value>;

/// A remote segment that its owner did not grant: with other rights, another address or another key.
template <class Segment, class Of>
Segment forged(const Of& from, std::int64_t by = 0, std::uint32_t other_key = 0) {
  auto raw = dat::detail::segment_access::raw(from);
  raw.address += static_cast<std::uint64_t>(by);
  raw.key ^= other_key;
  return dat::detail::segment_access::make<Segment>(raw);
}

/// A connection on which failures are provoked. The initiator is on side a.
struct stage {
  two_sides& on;
  side& a;
  side& b;
  dat::evd<bind_streams> requests = must(a.ia.create_evd<bind_streams>(64)); ///< the evd of the initiator
  dat::evd<bind_streams> theirs = must(b.ia.create_evd<bind_streams>(64));   ///< of the responder
  dat::srq srq; ///< the queue of the responder's receives, if it has one
  endpoint initiator;
  endpoint responder;
  buffer near{a.pz, 4096};
  buffer far{b.pz, 4096};
  std::vector<std::byte> bytes = pattern(4096, 4);
  dat::lmr<std::byte, (dat::local_read | dat::remote_read).value> readable =
      must(b.pz.register_memory(bytes, dat::local_read | dat::remote_read));
  dat::lmr<std::byte, (dat::local_write | dat::remote_write).value> writable =
      must(b.pz.register_memory(bytes, dat::local_write | dat::remote_write));
  std::array<std::uint64_t, 2> old{};
  std::array<std::uint64_t, 2> counters{1, 2};
  words olds = must(a.pz.register_memory(old, word_rights));
  words words_there = must(b.pz.register_memory(counters, word_rights));
  plain_words plain = must(b.pz.register_memory(counters, all_rights));
  dat::lmr<std::byte, dat::mem_priv::none> unusable = must(b.pz.register_memory(bytes, dat::no_rights));
  dat::rmr rmr;

  stage(two_sides& sides, bool shared, bool gone) : on(sides), a(sides.a), b(sides.b) {
    // Fast retries: a request that a busy machine repeats by mistake can hide the peer's refusal.
    const dat::ep_attributes hasty{
        .rnr_retry_count = 1, .ack_timeout = gone ? 20'000us : 4'000'000us, .min_rnr_timer = 10us};
    initiator = must(a.pz.create_ep<dat::rc>({.recv = a.evd, .request = requests, .connect = a.evd}, hasty));
    if (shared) {
      srq = must(b.pz.create_srq({.max_recv_dtos = 8}));
      responder = must(b.pz.create_ep<dat::rc>({.recv = b.evd, .request = theirs, .connect = b.evd}, srq, hasty));
    } else {
      responder = must(b.pz.create_ep<dat::rc>({.recv = b.evd, .request = theirs, .connect = b.evd}, hasty));
    }
    on.connect(initiator, responder);
  }
  /// Two receives at the responder, of 64 bytes each.
  void receive() {
    for (std::uint64_t i = 0; i < 2; ++i) {
      const auto r = dat::recv{far.slice(i * 64, 64)}.cookie(8 + i);
      must(srq ? srq.post(r) : dat::ep_ref(responder).post(r));
    }
  }
  /// 64 bytes of `far`, opened by a window of the responder.
  template <class R>
  auto open(R rights) {
    rmr = must(b.pz.create_rmr_for_ep());
    const auto w = must(rmr.bind(responder, dat::bind{far.lmr, 1024, 64, rights}));
    (void)next<dat::bind_done>(theirs);
    return w;
  }
  /// The difference between the keys of a region and of the one without rights, which has no key for peers.
  template <class Region>
  [[nodiscard]] std::uint32_t key_of_unusable(const Region& other) const {
    return other.native_handle()->rkey ^ unusable.native_handle()->lkey;
  }
  template <class D>
  void seven(D&& request) {
    must(initiator.post(request.cookie(7)));
  }
  template <class W>
  void write(const W& to) {
    seven(dat::rdma_write{near.slice(0, 64), to});
  }
  template <class W>
  void read(const W& from) {
    seven(dat::rdma_read{near.slice(0, 64), from});
  }
};

}} // namespace device::status_tests
