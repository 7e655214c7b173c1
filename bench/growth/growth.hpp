// Shared parts of the curves: the adapter with its connected endpoints, and the counting of instructions.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/dat.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace growth {

/// Ends the program because a step failed.
[[noreturn]] void wrong(const std::string& what);

template <class T>
T must(dat::expected<T>&& result) {
  if (!result) wrong(result.error().message());
  if constexpr (!std::is_void_v<T>) return std::move(result.assume_value());
}

// Begin and end the counted code: begin_count sets the counters to 0, and end_count dumps them as `curve|side|size`.
void begin_count();
void end_count(const char* curve, const char* side, long size);

/// Counts one call of `pass`, after `warm` calls that are not counted.
template <class Pass>
void count(const char* curve, const char* side, long size, const Pass& pass, int warm = 1) {
  for (; warm > 0; --warm) pass();
  begin_count();
  pass();
  end_count(curve, side, size);
}

using lean_evd = dat::evd<dat::stream::dto>;
using merged_evd = dat::evd<dat::stream::dto | dat::stream::connection>;
using event_evd = dat::evd<dat::stream::connection | dat::stream::connection_requests>;
inline constexpr auto rights = dat::local_read | dat::local_write;
using memory = dat::lmr<char, decltype(rights)::value>;

/// An adapter of the fake verbs library without a service thread, so that all its work is counted.
class world {
public:
  world();

  /// Makes connected endpoints whose completions go to `evd`.
  template <class Evd>
  [[nodiscard]] std::vector<dat::ep<dat::rc>> connected(std::size_t n, Evd& evd, const dat::ep_attributes& a = {}) {
    std::vector<dat::ep<dat::rc>> all(n);
    const std::size_t first = peers_.size();
    peers_.resize(first + n);
    for (std::size_t i = 0; i < n; ++i) connect(all[i], peers_[first + i], evd, a);
    return all;
  }
  /// Closes the peers of all endpoints.
  void forget_peers() { peers_.clear(); }

  dat::ia ia;
  dat::pz pz;
  std::vector<char> bytes;
  memory region; ///< `bytes`

private:
  void accept(dat::ep<dat::rc>& ep, dat::ep<dat::rc>& peer);
  void connect(dat::ep<dat::rc>& ep, dat::ep<dat::rc>& peer, lean_evd& evd, const dat::ep_attributes& a);
  void connect(dat::ep<dat::rc>& ep, dat::ep<dat::rc>& peer, merged_evd& evd, const dat::ep_attributes& a);

  event_evd events_;
  lean_evd peer_completions_;
  dat::psp psp_;
  std::vector<dat::ep<dat::rc>> peers_;
};

/// While the object exists, the device of an endpoint completes each operation at once.
class instantly {
public:
  explicit instantly(const dat::ep<dat::rc>& any);
  instantly(const instantly&) = delete;
  instantly& operator=(const instantly&) = delete;
  ~instantly();

private:
  ibv_context* context_;
};

/// A send by hand, with one or more segments.
inline void post_raw(ibv_qp* qp, ibv_sge* list, int segments, std::uint64_t id) {
  ibv_send_wr wr;
  wr.wr_id = id;
  wr.next = nullptr;
  wr.sg_list = list;
  wr.num_sge = segments;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad;
  if (ibv_post_send(qp, &wr, &bad) != 0) wrong("ibv_post_send");
}
/// Takes `n` completions by hand, 16 at a time.
inline void poll_raw(ibv_cq* cq, long n) {
  std::array<ibv_wc, 16> wc;
  while (n > 0) {
    const int k = ibv_poll_cq(cq, static_cast<int>(wc.size()), wc.data());
    for (int i = 0; i < k; ++i)
      if (wc[static_cast<std::size_t>(i)].status != IBV_WC_SUCCESS) wrong("a completion");
    n -= k;
  }
}
/// Takes the completions of `n` sends by a visitor.
template <class Evd>
void take(Evd& evd, long n) {
  const auto visit =
      dat::overloaded{[](const dat::send_done&) noexcept {}, [](const auto&) noexcept { wrong("another event"); }};
  while (n > 0) n -= static_cast<long>(evd.drain(visit));
}

// The curves of each subject; a call measures one size.
void endpoints(long n);         ///< on one evd: connect, send, wait, close
void evds_of_a_cno(long n);     ///< one event on each evd
void regions(long n);           ///< registers one more region, and finds one in a cache
void segments(long n);          ///< the segments of one send
void batch(long n);             ///< the requests of one call
void bytes(long n);             ///< the bytes of one send
void outstanding(long n);       ///< requests that are posted before the first completion is taken
void threads(long n, long ops); ///< threads with an endpoint each: prints nanoseconds of an operation

} // namespace growth
