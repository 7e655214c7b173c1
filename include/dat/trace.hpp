// Trace points: what dat does, step by step, for a program that is built with DAT_TRACE.
//
// Each step is a probe of USDT where <sys/sdt.h> is installed (provider `dat`; perf, bpftrace and gdb attach to it),
// and a record for the sink of the program. A build without DAT_TRACE has neither, and no instruction for them.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ep_attributes.hpp>
#include <dat/status.hpp>

#include <dat/detail/base/config.hpp>
#include <dat/detail/base/enum_name.hpp>

#include <atomic>
#include <cstdint>
#include <string_view>
#include <time.h> // NOLINT(modernize-deprecated-headers): clock_gettime is a function of POSIX

namespace dat { inline namespace v0 { namespace trace {

/// The steps that are traced. The USDT probe and its arguments are in parentheses.
enum class point : std::uint8_t {
  post,       ///< dat passes an operation to the device (`dat:post`: number, operation, bytes, cookie)
  refused,    ///< the device refused the last operations (`dat:refused`: number, how many, errno)
  completion, ///< a poll returned a completion (`dat:completion`: number, operation, bytes, cookie, verbs status)
  state,      ///< the state of an endpoint has changed (`dat:state`: number, old state, new state)
  connection, ///< an event of a connection was queued (`dat:connection`: number, its name, reason)
  request,    ///< a peer requests a connection (`dat:request`: port, 0 or the errno of its refusal)
  arm,        ///< an evd asks the device to notify (`dat:arm`: number, errno)
  sleep,      ///< a thread that waits on an evd sleeps (`dat:sleep`: number)
  wake,       ///< the waiting thread has woken (`dat:wake`: number, errno)
  notify,     ///< another thread wakes the waiting thread (`dat:notify`: number)
};
inline constexpr std::size_t point_count = 10; ///< of dat::trace::point
/// Returns the name of the enumerator, or "unknown ..." for a value outside the enumeration. Never allocates.
[[nodiscard]] constexpr std::string_view to_string(point value) noexcept {
  return detail::enum_name(
      value, {"post", "refused", "completion", "state", "connection", "request", "arm", "sleep", "wake", "notify"},
      "unknown point");
}

/// In a record, the state of an endpoint that does not exist yet, or no longer exists.
inline constexpr ep_state no_state = static_cast<ep_state>(255);

/// One step. A value; its texts are literals.
struct record {
  point what{};
  dto_operation operation{}; ///< for post and completion
  ep_state from{};           ///< for state: the old state
  ep_state to{};             ///< for state: the new state
  bool shared = false;       ///< for post: to a shared receive queue
  /// The ep::number of the endpoint for post, refused, completion, state and connection; the number of the evd, as in
  /// errors, for arm, sleep, wake and notify; the port for request. A receive that is posted to a shared queue has the
  /// number of that queue.
  std::uint32_t number = 0;
  /// The verbs status of a completion, 0 for success; the reason of a connection event; the errno of refused, arm, wake
  /// and request. A wake at the time limit has ETIMEDOUT; a post that the state of the endpoint does not allow has 0.
  std::int32_t code = 0;
  std::uint64_t time = 0; ///< nanoseconds of CLOCK_MONOTONIC
  /// The bytes of a post; of a successful completion, the bytes that arrived or those of the request. For refused: the
  /// number of refused operations, which are the last that this thread has posted with this number.
  std::uint64_t bytes = 0;
  std::uint64_t cookie = 0;    ///< for post and completion
  std::string_view event = {}; ///< for connection: the name of its event, such as "established"
};

/// Takes the records. The program derives from it, and passes an object to `set_sink`.
class sink {
public:
  /// A sink whose `function` gets each record in the thread of the step, so several threads may call it at the same
  /// time. The caller may hold locks of dat: `function` must not call dat, nor wait for a thread that does.
  explicit constexpr sink(void (*function)(sink& self, const record& r) noexcept) noexcept : take_(function) {}
  sink(const sink&) = delete;
  sink& operator=(const sink&) = delete;
  void take(const record& r) noexcept { take_(*this, r); }

protected:
  ~sink() = default;

private:
  void (*take_)(sink& self, const record& r) noexcept;
};

}}} // namespace dat::v0::trace

namespace dat { inline namespace v0 { namespace detail {

/// The sink, and the number of threads that may be inside it. One for the whole program, also where its parts are
/// compiled with hidden visibility.
struct trace_output {
  std::atomic<trace::sink*> sink{nullptr};
  std::atomic<std::uint32_t> inside{0};
};
[[gnu::visibility("default")]] inline constinit trace_output trace_to;

/// Nanoseconds of CLOCK_MONOTONIC.
[[nodiscard]] inline std::uint64_t trace_time() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

}}} // namespace dat::v0::detail

namespace dat { inline namespace v0 { namespace trace {

/// Whether this program is built with DAT_TRACE.
inline constexpr bool enabled = detail::trace_build;

/// Gives all records of the program to `to` from now on; null: to no sink. When the call returns, no thread is inside
/// the sink that it replaces, which may end then. A build without DAT_TRACE makes no records.
/// Errors: none.
/// Allocates: never.
/// Blocks: while another thread is inside the present sink.
/// Thread safety: safe. Must not be called inside a sink.
inline void set_sink(sink* to) noexcept {
  // Either a thread that is about to enter sees the new sink, or this one sees that it is inside.
  detail::trace_to.sink.store(to, std::memory_order_seq_cst);
  while (detail::trace_to.inside.load(std::memory_order_seq_cst) != 0) {
    const timespec pause{0, 1000};
    ::nanosleep(&pause, nullptr);
  }
}

}}} // namespace dat::v0::trace
