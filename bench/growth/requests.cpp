// Curves over the size of a request and over the number of requests.
// SPDX-License-Identifier: BSL-1.0
#include "growth.hpp"

#include <string>
#include <vector>

namespace growth {
namespace {

constexpr std::size_t most_segments = 16;
constexpr int repeats = 64; // sends of one pass

/// One endpoint on an evd of its own, over the instant device.
template <class Evd>
struct one_endpoint {
  explicit one_endpoint(const dat::ep_attributes& a = {})
      : evd(must(w.ia.create_evd<Evd::stream_set>(64))), eps(w.connected(1, evd, a)), device(eps.front()) {}

  world w;
  Evd evd;
  std::vector<dat::ep<dat::rc>> eps;
  instantly device;

  dat::ep<dat::rc>& ep() { return eps.front(); }
  ibv_qp* qp() { return ep().native_handle(); }
  ibv_cq* cq() { return evd.native_handle(); }
  ibv_sge sge(std::uint32_t length) {
    return {reinterpret_cast<std::uintptr_t>(w.bytes.data()), length, w.region.native_handle()->lkey};
  }
};

template <class Evd>
void outstanding_on(const std::string& on, long n) {
  one_endpoint<Evd> one({.max_request_dtos = static_cast<std::uint32_t>(n)});
  const std::string curve = "outstanding requests, " + on;
  count(curve.c_str(), "raw", n, [&] {
    for (long i = 0; i < n; ++i) {
      ibv_sge sge = one.sge(64);
      post_raw(one.qp(), &sge, 1, static_cast<std::uint64_t>(i));
    }
    poll_raw(one.cq(), n);
  });
  const auto segment = must(one.w.region.slice(0, 64));
  count(curve.c_str(), "dat", n, [&] {
    for (long i = 0; i < n; ++i) must(one.ep().post(dat::send{segment}.cookie(i)));
    take(one.evd, n);
  });
}

} // namespace

void segments(long n) {
  one_endpoint<lean_evd> one({.max_request_iov = most_segments});
  const auto segment = must(one.w.region.slice(0, 64));
  count("segments of a send", "raw", n, [&] {
    for (int i = 0; i < repeats; ++i) {
      std::array<ibv_sge, most_segments> list;
      for (std::size_t k = 0; k < static_cast<std::size_t>(n); ++k) list[k] = one.sge(64);
      post_raw(one.qp(), list.data(), static_cast<int>(n), 7);
      poll_raw(one.cq(), 1);
    }
  });
  count("segments of a send", "dat", n, [&] {
    for (int i = 0; i < repeats; ++i) {
      dat::iov<most_segments, dat::mem_priv::local_read> list;
      for (long k = 0; k < n; ++k)
        if (!list.push_back(segment)) wrong("a segment");
      must(one.ep().post(dat::send{list}));
      take(one.evd, 1);
    }
  });
}

void batch(long n) {
  one_endpoint<lean_evd> one;
  const auto segment = must(one.w.region.slice(0, 64));
  constexpr std::size_t most = 64;
  count("requests of one call", "raw", n, [&] {
    std::array<ibv_sge, most> sge;
    std::array<ibv_send_wr, most> wr;
    const auto end = static_cast<std::size_t>(n);
    for (std::size_t i = 0; i < end; ++i) {
      sge[i] = one.sge(64);
      wr[i].wr_id = i;
      wr[i].next = i + 1 == end ? nullptr : &wr[i + 1];
      wr[i].sg_list = &sge[i];
      wr[i].num_sge = 1;
      wr[i].opcode = IBV_WR_SEND;
      wr[i].send_flags = IBV_SEND_SIGNALED;
    }
    ibv_send_wr* bad;
    if (ibv_post_send(one.qp(), wr.data(), &bad) != 0) wrong("ibv_post_send");
    poll_raw(one.cq(), n);
  });
  count("requests of one call", "dat", n, [&] {
    must(dat::ep_ref(one.ep()).post_n(static_cast<std::size_t>(n),
                                      [&](std::size_t i) noexcept { return dat::send{segment}.cookie(i); }));
    take(one.evd, n);
  });
}

void bytes(long n) {
  one_endpoint<lean_evd> one;
  count("bytes of a send", "raw", n, [&] {
    for (int i = 0; i < repeats; ++i) {
      ibv_sge sge = one.sge(static_cast<std::uint32_t>(n));
      post_raw(one.qp(), &sge, 1, 7);
      poll_raw(one.cq(), 1);
    }
  });
  const auto segment = must(one.w.region.slice(0, static_cast<std::uint32_t>(n)));
  count("bytes of a send", "dat", n, [&] {
    for (int i = 0; i < repeats; ++i) {
      must(one.ep().post(dat::send{segment}));
      take(one.evd, 1);
    }
  });
}

void outstanding(long n) {
  outstanding_on<lean_evd>("lean evd", n);
  outstanding_on<merged_evd>("merged evd", n);
}

} // namespace growth
