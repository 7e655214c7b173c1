// The trace points of a build with DAT_TRACE: a probe of USDT and a record for the sink. Empty in any other build.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/config.hpp>

#ifdef DAT_TRACE
#include <dat/trace.hpp>

#include <dat/detail/verbs/null_device.hpp>
#include <dat/detail/work/work_ring.hpp>

#include <infiniband/verbs.h>

#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#define DAT_PROBE1(name, a) DTRACE_PROBE1(dat, name, a)
#define DAT_PROBE2(name, a, b) DTRACE_PROBE2(dat, name, a, b)
#define DAT_PROBE3(name, a, b, c) DTRACE_PROBE3(dat, name, a, b, c)
#define DAT_PROBE4(name, a, b, c, d) DTRACE_PROBE4(dat, name, a, b, c, d)
#define DAT_PROBE5(name, a, b, c, d, e) DTRACE_PROBE5(dat, name, a, b, c, d, e)
#else
#define DAT_PROBE1(name, a) (void)0
#define DAT_PROBE2(name, a, b) (void)0
#define DAT_PROBE3(name, a, b, c) (void)0
#define DAT_PROBE4(name, a, b, c, d) (void)0
#define DAT_PROBE5(name, a, b, c, d, e) (void)0
#endif
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace dat { inline namespace v0 { namespace detail {

#ifdef DAT_TRACE

/// Gives a record to the sink, if there is one.
class trace_points {
public:
  /// The last `n` entries of a ring are about to go to the device, as a chain of work requests.
  template <class Wr>
  static void post_last(std::uint32_t number, const work_ring& ring, const Wr* first, std::size_t n) noexcept {
    const work_entry* e = ring.before(ring.next(), static_cast<std::uint32_t>(n));
    for (const Wr* wr = first; n != 0 && wr; --n, wr = wr->next, e = e->next) post(number, *e, *wr);
  }
  template <class Wr>
  static void post(std::uint32_t number, const work_entry& e, const Wr& wr, bool shared = false) noexcept {
    std::uint64_t bytes = e.posted.bytes();
    if constexpr (std::is_same_v<Wr, ibv_recv_wr>) {
      bytes = 0;
      for (int i = 0; i < wr.num_sge; ++i) bytes += wr.sg_list[i].length;
    }
    post(number, e.posted.operation(), bytes, e.posted.cookie.value(), shared);
  }
  static void post(std::uint32_t number, dto_operation operation, std::uint64_t bytes, std::uint64_t cookie,
                   bool shared = false) noexcept {
    DAT_PROBE4(post, number, static_cast<unsigned>(operation), bytes, cookie);
    if (!wanted()) return;
    trace::record r;
    r.what = trace::point::post;
    r.operation = operation;
    r.shared = shared;
    r.number = number;
    r.bytes = bytes;
    r.cookie = cookie;
    give(r);
  }
  /// The device, or the null device of a state without posts, did not take the last `n` operations of the call.
  static void refused(std::uint32_t number, std::uint32_t n, int err) noexcept {
    err = err == null_device_errno ? 0 : err < 0 ? -err : err; // some drivers negate it
    DAT_PROBE3(refused, number, n, err);
    if (!wanted()) return;
    trace::record r;
    r.what = trace::point::refused;
    r.number = number;
    r.code = err;
    r.bytes = n;
    give(r);
  }
  /// A poll got `n` completions. Completions of endpoints that have ended do not count.
  static void completed(const work_entries& entries, const ibv_wc* wc, int n) noexcept {
    for (; n > 0; --n, ++wc)
      if (work_entry * e; entries.find(wc->wr_id, e)) completed(*wc, work_queue::read(*e));
  }
  static void state(std::uint32_t number, ep_state from, ep_state to) noexcept {
    if (from == to) return;
    DAT_PROBE3(state, number, static_cast<unsigned>(from), static_cast<unsigned>(to));
    if (!wanted()) return;
    trace::record r;
    r.what = trace::point::state;
    r.from = from;
    r.to = to;
    r.number = number;
    give(r);
  }
  static void connection(std::uint32_t number, const char* event, int reason) noexcept {
    DAT_PROBE3(connection, number, event, reason);
    if (!wanted()) return;
    trace::record r;
    r.what = trace::point::connection;
    r.number = number;
    r.event = event;
    r.code = reason;
    give(r);
  }
  static void request(std::uint32_t port, int err) noexcept {
    DAT_PROBE2(request, port, err);
    number_and_code(trace::point::request, port, err);
  }
  static void arm(std::uint32_t evd, int err) noexcept {
    DAT_PROBE2(arm, evd, err);
    number_and_code(trace::point::arm, evd, err);
  }
  static void sleep(std::uint32_t evd) noexcept {
    DAT_PROBE1(sleep, evd);
    number_and_code(trace::point::sleep, evd, 0);
  }
  static void wake(std::uint32_t evd, int err) noexcept {
    DAT_PROBE2(wake, evd, err);
    number_and_code(trace::point::wake, evd, err);
  }
  static void notify(std::uint32_t evd) noexcept {
    DAT_PROBE1(notify, evd);
    number_and_code(trace::point::notify, evd, 0);
  }

private:
  [[nodiscard]] static bool wanted() noexcept { return trace_to.sink.load(std::memory_order_relaxed) != nullptr; }
  [[gnu::cold, gnu::noinline]] static void give(trace::record& r) noexcept {
    trace_to.inside.fetch_add(1, std::memory_order_seq_cst);
    if (trace::sink* const to = trace_to.sink.load(std::memory_order_seq_cst)) {
      r.time = trace_time();
      to->take(r);
    }
    trace_to.inside.fetch_sub(1, std::memory_order_seq_cst);
  }
  static void number_and_code(trace::point what, std::uint32_t number, int code) noexcept {
    if (!wanted()) return;
    trace::record r;
    r.what = what;
    r.number = number;
    r.code = code;
    give(r);
  }
  [[nodiscard]] static dto_operation operation_of(const ibv_wc& c, const posted_work& posted) noexcept {
    const dto_operation posted_as = posted.operation();
    if (!posted.is_receive() || (c.wc_flags & IBV_WC_WITH_IMM) == 0) return posted_as;
    if (posted_as == dto_operation::recv_ud) return dto_operation::recv_ud_immediate;
    return c.opcode == IBV_WC_RECV_RDMA_WITH_IMM ? dto_operation::recv_rdma_immediate : dto_operation::recv_immediate;
  }
  static void completed(const ibv_wc& c, const posted_work& posted) noexcept {
    if (has_bits(posted.kind, own_bit)) return; // no operation of the consumer
    if (posted.is_first_half()) return;
    const bool done = c.status == IBV_WC_SUCCESS;
    const dto_operation operation = operation_of(c, posted);
    const std::uint64_t bytes = !done || posted.is_bind() ? 0 : posted.is_receive() ? c.byte_len : posted.bytes();
    const std::uint64_t cookie = posted.cookie.value();
    DAT_PROBE5(completion, c.qp_num, static_cast<unsigned>(operation), bytes, cookie, static_cast<int>(c.status));
    if (!wanted()) return;
    trace::record r;
    r.what = trace::point::completion;
    r.operation = operation;
    r.number = c.qp_num;
    r.code = static_cast<std::int32_t>(c.status);
    r.bytes = bytes;
    r.cookie = cookie;
    give(r);
  }
};

#else

/// Without DAT_TRACE, each function is empty.
struct trace_points {
  static constexpr void post_last(const auto&...) noexcept {}
  static constexpr void post(const auto&...) noexcept {}
  static constexpr void refused(const auto&...) noexcept {}
  static constexpr void completed(const auto&...) noexcept {}
  static constexpr void state(const auto&...) noexcept {}
  static constexpr void connection(const auto&...) noexcept {}
  static constexpr void request(const auto&...) noexcept {}
  static constexpr void arm(const auto&...) noexcept {}
  static constexpr void sleep(const auto&...) noexcept {}
  static constexpr void wake(const auto&...) noexcept {}
  static constexpr void notify(const auto&...) noexcept {}
};

#endif

}}} // namespace dat::v0::detail

#ifdef DAT_TRACE
#undef DAT_PROBE1
#undef DAT_PROBE2
#undef DAT_PROBE3
#undef DAT_PROBE4
#undef DAT_PROBE5
#endif
