// dat's side: the same jobs as a user of the library writes them.
// SPDX-License-Identifier: BSL-1.0
#include "taking.hpp"

#include <dat/policies.hpp>

#include <utility>
#include <variant>

namespace overhead {
namespace {

// Each posts one operation and takes its completion.
[[gnu::noinline]] void counted_send(place& p, long n) {
  for (long i = 0; i < n; ++i) {
    if (!p.completions_only.ep.post(dat::send{p.out[0]}.cookie(i))) wrong();
    take_one<dat::send_done>(p.completions_only.evd);
  }
}
[[gnu::noinline]] void counted_send_2(place& p, long n) {
  for (long i = 0; i < n; ++i) {
    if (!p.completions_only.ep.post(dat::send{dat::iov{p.out[0], p.out[1]}}.cookie(i))) wrong();
    take_one<dat::send_done>(p.completions_only.evd);
  }
}
[[gnu::noinline]] void counted_send_4(place& p, long n) {
  for (long i = 0; i < n; ++i) {
    if (!p.completions_only.ep.post(dat::send{dat::iov{p.out[0], p.out[1], p.out[2], p.out[3]}}.cookie(i))) wrong();
    take_one<dat::send_done>(p.completions_only.evd);
  }
}
[[gnu::noinline]] void counted_inline(place& p, long n) {
  for (long i = 0; i < n; ++i) {
    if (!p.completions_only.ep.post(dat::send{p.out[0]}.cookie(i).inlined())) wrong();
    take_one<dat::send_done>(p.completions_only.evd);
  }
}
[[gnu::noinline]] void counted_write(place& p, long n) {
  for (long i = 0; i < n; ++i) {
    if (!p.completions_only.ep.post(dat::rdma_write{p.out[0], p.there}.cookie(i))) wrong();
    take_one<dat::rdma_write_done>(p.completions_only.evd);
  }
}
[[gnu::noinline]] void counted_read(place& p, long n) {
  for (long i = 0; i < n; ++i) {
    if (!p.completions_only.ep.post(dat::rdma_read{p.in, p.there}.cookie(i))) wrong();
    take_one<dat::rdma_read_done>(p.completions_only.evd);
  }
}
[[gnu::noinline]] void counted_write_immediate(place& p, long n) {
  for (long i = 0; i < n; ++i) {
    if (!p.completions_only.ep.post(
            dat::rdma_write{p.out[0], p.there}.cookie(i).immediate(static_cast<std::uint32_t>(i))))
      wrong();
    take_one<dat::ib::rdma_write_immediate_done>(p.completions_only.evd);
  }
}
/// The same send without checks of its segment.
[[gnu::noinline]] void counted_trusting(place& p, long n) {
  for (long i = 0; i < n; ++i) {
    if (!p.completions_only.ep.post<dat::unchecked>(dat::send{p.out[0]}.cookie(i))) wrong();
    take_one<dat::send_done>(p.completions_only.evd);
  }
}
[[gnu::noinline]] void counted_bind(place& p, long n) {
  for (long i = 0; i < n; ++i) {
    if (!p.window.bind(p.binding.ep, dat::bind{*p.region, 0, 64, dat::remote_write}.cookie(i))) wrong();
    take_one<dat::bind_done>(p.binding.evd);
  }
}
[[gnu::noinline]] void counted_recv(place& p, long n) {
  for (long i = 0; i < n; ++i) {
    if (!p.completions_only.ep.post(dat::recv{p.in}.cookie(i))) wrong();
    take_one<dat::recv_done>(p.completions_only.evd);
  }
}

[[gnu::noinline]] void counted_shared_recv(place& p, long n) {
  for (long i = 0; i < n; ++i) {
    if (!p.shared.srq.post(dat::recv{p.in}.cookie(i))) wrong();
    take_one<dat::recv_done>(p.shared.evd);
  }
}

/// Requests are built, posted and completed.
[[gnu::noinline]] void counted_batch(place& p, long n) {
  const dat::ep_ref ep = p.completions_only.ep;
  for (long i = 0; i < n; i += at_a_time) {
    const auto next = [&](std::size_t j) noexcept {
      return dat::send{p.out[0]}.cookie(static_cast<std::size_t>(i) + j);
    };
    if (!ep.post_n(at_a_time, next)) wrong();
    if (p.completions_only.evd.drain(take<dat::send_done>()) != at_a_time) wrong();
  }
}

/// As above, with the requests in a batch first.
[[gnu::noinline]] void counted_kept(place& p, long n) {
  dat::batch<at_a_time> batch;
  for (long i = 0; i < n; i += at_a_time) {
    batch.clear();
    for (long j = i; j < i + at_a_time; ++j)
      if (!batch.push_back(dat::send{p.out[0]}.cookie(j))) wrong();
    if (!p.completions_only.ep.post(batch)) wrong();
    if (p.completions_only.evd.drain(take<dat::send_done>()) != at_a_time) wrong();
  }
}

[[gnu::noinline]] void counted_four(place& p, long n) {
  for (long i = 0; i < n; i += 4) {
    if (!p.completions_only.ep.post(dat::send{p.out[0]}.cookie(i), dat::send{p.out[0]}.cookie(i + 1),
                                    dat::send{p.out[0]}.cookie(i + 2), dat::send{p.out[0]}.cookie(i + 3)))
      wrong();
    if (p.completions_only.evd.drain(take<dat::send_done>()) != 4) wrong();
  }
}

template <auto End>
[[gnu::noinline]] void counted_drain(place& p, long there) {
  if (static_cast<long>((p.*End).evd.drain(take<dat::send_done>())) != there) wrong();
}
template <auto End>
void drain(place& p, long n) {
  for (long i = 0; i < n; i += at_a_time) {
    for (long j = i; j < i + at_a_time; ++j)
      if (!(p.*End).ep.post(dat::send{p.out[0]}.cookie(j))) wrong();
    side volatile counted = counted_drain<End>; // called through a pointer, so that the compiler makes no clone
    counted(p, at_a_time);
  }
}

[[gnu::noinline]] void counted_dequeue(place& p, long n) {
  for (long i = 0; i < n; ++i) {
    if (!p.completions_only.ep.post(dat::send{p.out[0]}.cookie(i))) wrong();
    const auto event = p.completions_only.evd.dequeue();
    if (!event) wrong();
    const auto* sent = std::get_if<dat::send_done>(&event.assume_value());
    if (!sent) wrong();
    consumed += sent->cookie().value();
  }
}

[[gnu::noinline]] void counted_merged(place& p, long n) {
  for (long i = 0; i < n; ++i) {
    if (!p.merged.ep.post(dat::send{p.out[0]}.cookie(i))) wrong();
    take_one<dat::send_done>(p.merged.evd);
  }
}

/// The drain has no maximum of one: it looks for further events.
[[gnu::noinline]] void counted_drain_all(place& p, long n) {
  for (long i = 0; i < n; ++i) {
    if (!p.merged.ep.post(dat::send{p.out[0]}.cookie(i))) wrong();
    while (p.merged.evd.drain(take<dat::send_done>()) == 0) {
    }
  }
}

[[gnu::noinline]] void counted_empty_poll(place& p, long n) {
  for (long i = 0; i < n; ++i) {
    if (p.completions_only.evd.drain(take<dat::send_done>(), 1) != 0) wrong();
    consumed += static_cast<std::uint64_t>(i);
  }
}

constexpr job jobs[] = {
    {"send, 1 segment", counted_send},
    {"send, 2 segments", counted_send_2},
    {"send, 4 segments", counted_send_4},
    {"send, inline", counted_inline},
    {"RDMA write", counted_write},
    {"RDMA write with immediate", counted_write_immediate},
    {"RDMA read", counted_read},
    {"recv", counted_recv},
    {"send, checks off", counted_trusting},
    {"rmr bind", counted_bind},
    {"recv, shared queue", counted_shared_recv},
    {"recv, shared queue, kept", counted_shared_recv},
    {"batch of 16", counted_batch},
    {"batch of 16, chained", counted_batch},
    {"batch of 16, kept", counted_kept},
    {"post of 4", counted_four},
    {"post of 4, chained", counted_four},
    {"drain, 16 there", drain<&place::completions_only>},
    {"drain, 16 there, merged evd", drain<&place::merged>},
    {"send, taken by dequeue", counted_dequeue},
    {"send, merged evd", counted_merged},
    {"drain of all, merged evd", counted_drain_all},
    {"empty poll", counted_empty_poll},
};

} // namespace

std::span<const job> dat_jobs() { return jobs; }

} // namespace overhead
