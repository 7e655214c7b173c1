// Counters of operations, completions, waits and connections, and the counters of the device.
//
// The numbers can be read as a struct, as Prometheus text and as JSON. Not part of <dat/dat.hpp>: a program that does
// not count pays nothing.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/batch.hpp>
#include <dat/completions.hpp>
#include <dat/connection_events.hpp>
#include <dat/cr.hpp>
#include <dat/datagram.hpp>
#include <dat/ep.hpp>
#include <dat/evd.hpp>
#include <dat/event.hpp>
#include <dat/expected.hpp>
#include <dat/ia.hpp>
#include <dat/srq.hpp>
#include <dat/status.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/handle/core_access.hpp>
#include <dat/detail/posting/post_path.hpp>
#include <dat/detail/request/work_request.hpp>

#include <array>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace dat { inline namespace v0 {

/// The events of connections that are counted.
enum class connection_outcome : std::uint8_t {
  established,
  peer_rejected,
  non_peer_rejected,
  accept_completion_error,
  disconnected,
  broken,
  timed_out,
  unreachable
};
inline constexpr std::size_t connection_outcome_count = 8; ///< of dat::connection_outcome
/// Returns the name of the enumerator, or "unknown ..." for a value outside the enumeration. Never allocates.
[[nodiscard]] constexpr std::string_view to_string(connection_outcome value) noexcept {
  return detail::enum_name(value,
                           {"established", "peer_rejected", "non_peer_rejected", "accept_completion_error",
                            "disconnected", "broken", "timed_out", "unreachable"},
                           "unknown connection_outcome");
}

/// The numbers of a `counters` object at one moment. A value.
struct counter_values {
  struct by_operation {
    std::uint64_t posted = 0;       ///< operations that a post has accepted
    std::uint64_t posted_bytes = 0; ///< the lengths of their segments together
    std::uint64_t completed = 0;    ///< successful completions; none for suppressed ones
    std::uint64_t bytes = 0;        ///< the bytes of those completions
    friend bool operator==(const by_operation&, const by_operation&) = default;
  };
  std::array<by_operation, dto_operation_count> operations{};                ///< by dto_operation
  std::array<std::uint64_t, dto_status_count> failures{};                    ///< failed completions by dto_status
  std::array<std::uint64_t, connection_outcome_count> connection_outcomes{}; ///< by connection_outcome
  std::uint64_t connection_requests = 0; ///< requests of peers, for connections and for datagrams
  std::uint64_t other_events = 0;        ///< software events, asynchronous events, memberships of groups
  std::uint64_t refused_posts = 0;       ///< posts that returned an error
  std::uint64_t drains = 0;              ///< calls of drain and wait_and_drain
  std::uint64_t empty_drains = 0;        ///< calls of drain that found nothing
  std::uint64_t expired_waits = 0;       ///< calls of wait_and_drain that ended without an event
  std::uint64_t wake_ups = 0;            ///< calls of wait_and_drain that had to wait for the event they ended with
  std::uint64_t most_drained = 0;        ///< events that one drain has taken at most
  std::uint64_t most_requests = 0;       ///< requests that were outstanding on an endpoint at a time, at most
  std::uint64_t most_receives = 0;       ///< receives that were outstanding on an endpoint or a shared queue, at most

  [[nodiscard]] const by_operation& of(dto_operation which) const noexcept {
    return operations[static_cast<std::size_t>(which)];
  }
  [[nodiscard]] std::uint64_t of(dto_status which) const noexcept { return failures[static_cast<std::size_t>(which)]; }
  [[nodiscard]] std::uint64_t of(connection_outcome which) const noexcept {
    return connection_outcomes[static_cast<std::size_t>(which)];
  }
  friend bool operator==(const counter_values&, const counter_values&) = default;
};

/// A label of the samples of a metric.
struct metric_label {
  std::string_view name;
  std::string_view value;
};

/// Labels of samples in the text format of Prometheus: {{"ep", "17"}, {"host", "a"}} is `ep="17",host="a"`. Characters
/// that the format does not allow in a value are escaped.
/// Errors: `invalid_parameter` (arg1) when a name is not of letters, digits and _, or begins with a digit.
/// Allocates: yes; std::bad_alloc passes through.
/// Blocks: never.
/// Thread safety: safe.
[[nodiscard]] expected<std::string> prometheus_labels(std::initializer_list<metric_label> labels);

/// The numbers of one object, and the labels of its samples.
struct labelled_counters {
  std::string_view labels; ///< see prometheus_labels; empty for none
  counter_values values;
};

/// The numbers of several objects in the text format of Prometheus. The format allows each metric once in a text, with
/// the samples of all objects. Operations and statuses that never occurred are left out. Allocates.
[[nodiscard]] std::string to_prometheus(std::span<const labelled_counters> objects);
/// The numbers of one object, with `labels` on every sample.
[[nodiscard]] std::string to_prometheus(const counter_values& values, std::string_view labels = {});
/// The numbers as one JSON object. Operations and statuses that never occurred are left out. Allocates.
[[nodiscard]] std::string to_json(const counter_values& values);

/// Counts the posts and drains that it makes, and the events that it is given. Use one for an endpoint, an evd, an ia
/// or the whole program, as the program needs; `parent` counts everything too.
///
///     dat::counters all;
///     dat::counters mine(&all);
///     mine.post(ep, dat::send{out});              // in place of ep.post(dat::send{out})
///     mine.drain(evd, visitor);                   // in place of evd.drain(visitor)
///     std::cout << to_prometheus(mine.read(), "ep=\"1\"");
///
/// The object does not count calls that do not pass through it:
/// - Posts by a coroutine, `send_credits` or a policy. They are counted when they are given to `note_post`.
/// - Waits by `wait_for` or a coroutine. Their events are counted when they are given to `note`.
/// - Calls of `connect` that are refused at once. The others end with an event, which is counted.
///
/// Allocates: never.
/// Thread safety: safe, as far as the calls that it passes on are. The parent must outlive it.
class counters {
public:
  explicit counters(counters* parent = nullptr) noexcept : parent_(parent) {}
  counters(const counters&) = delete;
  counters& operator=(const counters&) = delete;

  /// Posts operations to `to` and counts them. `to` is an ep<rc>, an ep<ud> or an ep_ref, and for receives an srq or an
  /// srq_ref, too.
  /// Errors, Allocates, Blocks and Thread safety: as the endpoint's or the queue's post.
  template <class Queue, class... D>
  expected<void> post(const Queue& to, const D&... operations) noexcept {
    auto posted = to.post(operations...);
    std::size_t left = posted ? sizeof...(D) : note_refused(posted.assume_error());
    if (left == 0) return posted;
    (note_one(operations, left), ...);
    note_depth(to);
    return posted;
  }
  /// Posts a batch and counts its operations. `ep` is an ep<rc> or an ep_ref.
  /// Errors, Allocates, Blocks and Thread safety: as the endpoint's post.
  template <class Ep, std::size_t N, std::size_t Iov>
  expected<void> post(const Ep& ep, batch<N, Iov>& operations) noexcept {
    auto posted = ep.post(operations);
    const std::size_t n = posted ? operations.size() : note_refused(posted.assume_error());
    if (n != 0) note_depth(ep);
    for (std::size_t i = 0; i != n; ++i) {
      const detail::posted_work& work = operations.kept_[i].work;
      add_posted(work.operation(), work.bytes());
    }
    return posted;
  }
  /// Posts `n` requests that `make` returns, and counts them; see ep_ref::post_n. `ep` is an ep<rc> or an ep_ref.
  /// Errors, Allocates, Blocks and Thread safety: as the endpoint's post_n.
  template <class Ep, std::invocable<std::size_t> Make>
  expected<void> post_n(const Ep& ep, std::size_t n, Make make) noexcept(noexcept(make(std::size_t{}))) {
    constexpr std::size_t group = detail::requests_of_a_doorbell;
    struct {
      dto_operation operation;
      std::uint64_t bytes;
    } made[group]; // requests that the device may still refuse
    const auto count = [&](std::size_t some) noexcept {
      for (std::size_t i = 0; i != some; ++i) add_posted(made[i].operation, made[i].bytes);
    };
    std::size_t first = 0; // the index of made[0]
    auto posted = ep.post_n(n, [&](std::size_t i) noexcept(noexcept(make(std::size_t{}))) -> decltype(auto) {
      if (i == first + group) { // the previous group is posted
        count(group);
        first = i;
      }
      decltype(auto) request = make(i);
      const auto& r = detail::request_access::of(request);
      made[i - first] = {r.operation(), r.data.bytes()};
      return request;
    });
    const std::size_t all = posted ? n : note_refused(posted.assume_error());
    if (all > first) count(all - first);
    if (all != 0) note_depth(ep);
    return posted;
  }
  /// Counts operations that were posted in another way.
  template <class... D>
  void note_post(const D&... operations) noexcept {
    std::size_t left = sizeof...(D);
    (note_one(operations, left), ...);
  }

  /// Takes the queued events, counts them, and calls `visit` with each; see evd::drain.
  /// Allocates, Blocks and Thread safety: as evd::drain.
  template <streams S, class Visitor>
  std::size_t drain(evd<S>& from, Visitor&& visit, std::size_t max = 256) {
    const std::size_t n = from.drain(visitor(visit), max);
    note_drain(n);
    if (n == 0) each([](counters& c) noexcept { add(c.empty_drains_, 1); });
    return n;
  }
  /// Waits for an event, counts the events, and calls `visit` with each; see evd::wait_and_drain.
  /// Errors, Allocates, Blocks and Thread safety: as evd::wait_and_drain.
  template <streams S, class Visitor>
  [[nodiscard]] expected<std::size_t> wait_and_drain(evd<S>& from, Visitor&& visit, timeout limit,
                                                     std::size_t max = 256) {
    // A wait with a limit of zero shows whether an event is already queued.
    auto n = from.wait_and_drain(visitor(visit), timeout::zero(), max);
    const bool waits = !n && limit > timeout::zero() && n.assume_error().type() == return_type::timeout_expired;
    if (waits) n = from.wait_and_drain(visitor(visit), limit, max);
    note_drain(n ? n.assume_value() : 0);
    if (!n)
      each([](counters& c) noexcept { add(c.expired_waits_, 1); });
    else if (waits)
      each([](counters& c) noexcept { add(c.wake_ups_, 1); });
    return n;
  }
  /// A visitor that counts each event and passes it to `visit`, for calls that take events in another way. `visit` must
  /// live as long as the visitor.
  template <class Visitor>
  [[nodiscard]] auto visitor(Visitor& visit) noexcept {
    return [ this, &visit ]<class E>(E & e) noexcept(noexcept(visit(e))) requires requires { visit(e); }
    {
      this->note(e);
      visit(e);
    };
  }
  /// Counts an event that was taken by `wait_for`, `dequeue` or a coroutine.
  template <class E>
  void note(const E& e) noexcept {
    if constexpr (std::is_base_of_v<completion, E>)
      note_completion(e);
    else if constexpr (requires { outcome_of(e); })
      each([&e](counters& c) noexcept { add(c.outcomes_[static_cast<std::size_t>(outcome_of(e))], 1); });
    else if constexpr (std::is_same_v<E, cr> || std::is_same_v<E, ib::datagram_request>)
      each([](counters& c) noexcept { add(c.requests_, 1); });
    else
      each([](counters& c) noexcept { add(c.others_, 1); });
  }
  template <class... E>
  void note(const std::variant<E...>& e) noexcept {
    std::visit([this](const auto& one) noexcept { this->note(one); }, e);
  }

  /// The numbers now. Numbers that change during the call may be of different moments.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  [[nodiscard]] counter_values read() const noexcept;

private:
  using number = std::atomic<std::uint64_t>;
  struct by_operation {
    number posted{0};
    number posted_bytes{0};
    number completed{0};
    number bytes{0};
  };

  static void add(number& to, std::uint64_t n) noexcept { to.fetch_add(n, std::memory_order_relaxed); }
  static void raise(number& to, std::uint64_t n) noexcept {
    std::uint64_t have = to.load(std::memory_order_relaxed);
    while (have < n && !to.compare_exchange_weak(have, n, std::memory_order_relaxed)) {
    }
  }
  template <class F>
  void each(const F& f) noexcept {
    for (counters* c = this; c; c = c->parent_) f(*c);
  }
  void note_drain(std::size_t n) noexcept {
    each([n](counters& c) noexcept {
      add(c.drains_, 1);
      raise(c.most_drained_, n);
    });
  }
  /// Counts a refusal. Returns the number of operations that the call has posted: if the device refused a part of a
  /// chain, those before the refused one.
  [[nodiscard]] std::size_t note_refused(const error& why) noexcept {
    each([](counters& c) noexcept { add(c.refused_posts_, 1); });
    return why.index();
  }
  template <class Queue>
  void note_depth(const Queue& queue) noexcept {
    std::uint64_t requests = 0;
    std::uint64_t receives = 0;
    if constexpr (std::is_constructible_v<srq_ref, const Queue&>) {
      receives = srq_ref(queue).entity()->outstanding();
    } else {
      auto& core = detail::core_access::posting(ep_ref(queue));
      requests = core.requests().used();
      receives = core.receives().used();
    }
    each([=](counters& c) noexcept {
      raise(c.most_requests_, requests);
      raise(c.most_receives_, receives);
    });
  }
  template <class D>
  void note_one(const D& operation, std::size_t& left) noexcept {
    if (left == 0) return;
    --left;
    const auto& r = detail::request_access::of(operation);
    dto_operation op = dto_operation::recv;
    if constexpr (detail::is_send_to<D>)
      op = dto_operation::send_ud;
    else if constexpr (!detail::is_recv<D>)
      op = r.operation();
    add_posted(op, r.data.bytes());
  }
  void add_posted(dto_operation op, std::uint64_t bytes) noexcept {
    each([=](counters& c) noexcept {
      auto& to = c.operations_[static_cast<std::size_t>(op)];
      add(to.posted, 1);
      add(to.posted_bytes, bytes);
    });
  }
  template <class E>
  void note_completion(const E& e) noexcept {
    if constexpr (std::is_same_v<E, dto_failure>) {
      each([&e](counters& c) noexcept { add(c.failures_[static_cast<std::size_t>(e.status())], 1); });
    } else {
      std::uint64_t bytes = 0;
      if constexpr (std::is_base_of_v<transfer, E>) bytes = e.bytes();
      each([&e, bytes](counters& c) noexcept {
        auto& to = c.operations_[static_cast<std::size_t>(operation_of(e))];
        add(to.completed, 1);
        add(to.bytes, bytes);
      });
    }
  }

  /// Receives count as one kind, whether or not the message has invalidated an rmr.
  static dto_operation operation_of(const recv_done&) noexcept { return dto_operation::recv; }
  template <class E>
  static dto_operation operation_of(const E& e) noexcept {
    return e.operation();
  }

  static connection_outcome outcome_of(const established&) noexcept { return connection_outcome::established; }
  static connection_outcome outcome_of(const ib::datagram_established&) noexcept {
    return connection_outcome::established;
  }
  static connection_outcome outcome_of(const peer_rejected&) noexcept { return connection_outcome::peer_rejected; }
  static connection_outcome outcome_of(const non_peer_rejected&) noexcept {
    return connection_outcome::non_peer_rejected;
  }
  static connection_outcome outcome_of(const accept_completion_error&) noexcept {
    return connection_outcome::accept_completion_error;
  }
  static connection_outcome outcome_of(const disconnected&) noexcept { return connection_outcome::disconnected; }
  static connection_outcome outcome_of(const connection_broken&) noexcept { return connection_outcome::broken; }
  static connection_outcome outcome_of(const connection_timed_out&) noexcept { return connection_outcome::timed_out; }
  static connection_outcome outcome_of(const connection_unreachable&) noexcept {
    return connection_outcome::unreachable;
  }

  counters* const parent_;
  std::array<by_operation, dto_operation_count> operations_{};
  std::array<number, dto_status_count> failures_{};
  std::array<number, connection_outcome_count> outcomes_{};
  number requests_{0};
  number others_{0};
  number refused_posts_{0};
  number drains_{0};
  number empty_drains_{0};
  number expired_waits_{0};
  number wake_ups_{0};
  number most_drained_{0};
  number most_requests_{0};
  number most_receives_{0};
};

/// One counter of a device.
struct device_counter {
  std::string name; ///< as the driver names it: "rcvd_pkts", "out_of_sequence", "port_xmit_data"
  std::uint64_t value = 0;
};

/// The counters of the ia's port that its driver reports below /sys/class/infiniband (`counters` and `hw_counters`), in
/// the order of their names. Their meaning is in the documentation of the driver. The kernel may answer with values
/// that it read about 10 ms ago; the file `hw_counters/lifespan` has this time in milliseconds.
/// Errors: `model_not_supported` when the driver reports none; `invalid_handle`.
/// Allocates: yes; std::bad_alloc passes through.
/// Blocks: while the driver reads the counters, for which some adapters need a firmware command.
/// Thread safety: safe.
[[nodiscard]] expected<std::vector<device_counter>> read_device_counters(const ia& of);

/// The counters of a device in the text format of Prometheus: the metric `dat_device_counter`, with the driver's name
/// of the counter as the label `counter`, and `labels` on every sample. Allocates.
[[nodiscard]] std::string to_prometheus(std::span<const device_counter> counters, std::string_view labels = {});
/// The counters of a device as one JSON object. Allocates.
[[nodiscard]] std::string to_json(std::span<const device_counter> counters);

}} // namespace dat::v0

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/impl/counters.ipp>
#endif
