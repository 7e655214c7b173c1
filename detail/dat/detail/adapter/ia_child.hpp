// Base of every object that belongs to an ia: its reference to the ia, its table of functions, and its end.
//
// The base uses only the name of ia_core, so that the header of a region or of a protection zone stays small.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/expected.hpp>

#include <dat/detail/base/intrusive_list.hpp>
#include <dat/detail/base/ref.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

struct rdma_cm_id;
struct rdma_cm_event;

namespace dat { inline namespace v0 { namespace detail {

/// Kinds of children, in the order in which an abrupt close ends them: users before what they use.
enum class child_kind : std::uint8_t {
  service_point,
  datagram_service,
  window,
  endpoint,
  connection,
  shared_queue,
  memory,
  events,
  notification,
  zone
};
inline constexpr std::size_t child_kinds = 10;

class ia_core;
class ia_child;
class connection_base;
struct cm_event;
enum class async_kind : std::uint8_t;
struct async_info;

/// A report of the device about one child.
struct device_report {
  enum class kind : std::uint8_t {
    queue_pair_failed, ///< endpoint: the queue pair of life `generation` failed
    last_receive_done, ///< endpoint with a shared queue: the device has completed the last receive that it took
    completions_lost,  ///< evd: its completion queue overran; endpoint: the completion queue of `source` overran
    limit_reached,     ///< shared queue: fewer buffers are left than its limit
    queue_failed,      ///< shared queue: the device can no longer read it
    device_lost        ///< endpoint: the device was removed
  };
  kind what;
  std::uint64_t generation = 0;
  const ia_child* source = nullptr;
};

/// The functions that differ between the kinds of children. `counted` documents why this is no virtual table. A null
/// entry means that the kind has no such function.
struct child_type {
  child_kind kind;
  /// Ends the child, unless it has ended: see ia_child::end.
  void (*end)(ia_child&) noexcept;
  void (*destroy)(ia_child&) noexcept;
  /// Whether the consumer may close the child now.
  expected<void> (*may_close)(ia_child&) noexcept = nullptr;
  void (*on_device)(ia_child&, const device_report&) noexcept = nullptr;
  /// Endpoints: the one whose queue pair has this generation, or null.
  ref<ia_child> (*of_generation)(ia_core&, std::uint64_t generation) noexcept = nullptr;
  /// Evds: takes an asynchronous event.
  void (*on_async)(ia_child&, async_kind what, const async_info&, const ref<counted>& endpoint) noexcept = nullptr;
  /// Evds: ends the present wait, because the ia is closed.
  void (*on_close)(ia_child&) noexcept = nullptr;
  /// Evds with a lock that no thread marks: whether it is in use.
  bool (*in_use)(const ia_child&) noexcept = nullptr;
  // Owners of an rdma_cm_id: see connection_base.
  bool (*on_event)(connection_base&, const cm_event&) noexcept = nullptr;
  void (*on_request)(connection_base&, rdma_cm_id* child, const rdma_cm_event&) noexcept = nullptr;
  void (*abandon)(connection_base&) noexcept = nullptr;
};

/// The number of forks of this process and its ancestors since the process opened its first ia. Default visibility, so
/// that all shared objects of a program have one counter.
[[gnu::visibility("default")]] inline std::atomic<std::uint32_t> forks{0};

/// Remembers in which process an object was made.
class fork_mark {
public:
  /// True in a forked child of that process.
  [[nodiscard]] bool foreign() const noexcept { return forks_ != forks.load(std::memory_order_relaxed); }

private:
  const std::uint32_t forks_ = forks.load(std::memory_order_relaxed);
};

/// The base of objects that live in an ia and end with it.
class ia_child : public counted, public list_node {
public:
  [[nodiscard]] ia_core& ia() const noexcept { return *ia_; }
  [[nodiscard]] child_kind kind() const noexcept { return type_.kind; }
  [[nodiscard]] const child_type& type() const noexcept { return type_; }
  /// Counts the child among those that the adapter's attributes limit, until it ends. Refuses it when the ia has as
  /// many as they report.
  [[nodiscard]] expected<void> take_place(return_subtype resource) noexcept;
  /// Sequentially consistent with begin_end: if a thread registers as a waiter and then finds the child alive, the end
  /// of the child sees that waiter. A forked child of the process finds every object of its parent dead.
  [[nodiscard]] bool dead() const noexcept { return dead_.load(std::memory_order_seq_cst) || foreign(); }
  /// True in a forked child of the process that made the object: see ia_core::foreign.
  [[nodiscard]] bool foreign() const noexcept { return made_.foreign(); }

  std::atomic<std::uint64_t> consumer_context{0}; ///< belongs to the consumer

  /// Releases the verbs objects. close, the last handle, and an abrupt close of the ia call it; only the first call has
  /// an effect.
  void end() noexcept { type_.end(*this); }
  [[nodiscard]] expected<void> may_close() noexcept { return type_.may_close ? type_.may_close(*this) : success(); }

  /// Publishes the complete child: from now on, until the child ends, ia_core::find and ia_core::for_each return it to
  /// other threads.
  void publish() noexcept { published_.store(true, std::memory_order_release); }
  [[nodiscard]] bool published() const noexcept { return published_.load(std::memory_order_acquire); }

protected:
  ia_child(ref<ia_core> ia, const child_type& type) noexcept;
  ~ia_child();

  /// The table of a class that has `static constexpr child_kind kind_of_child` and `teardown()`.
  template <class T>
  [[nodiscard]] static constexpr child_type type_for() noexcept {
    return {T::kind_of_child,
            [](ia_child& c) noexcept {
              if (!c.begin_end()) return;
              static_cast<T&>(c).teardown();
              c.finish_end();
            },
            [](ia_child& c) noexcept { delete static_cast<T*>(&c); }};
  }

private:
  friend class ia_core;
  /// Hides the child from other threads. Returns false when the child has ended, or belongs to the parent process. The
  /// thread counts as inside the library until finish_end.
  [[nodiscard]] bool begin_end() noexcept;
  void finish_end() noexcept;
  static void on_last_release(counted& c) noexcept;

  ia_core* const ia_; // the object has a reference
  const child_type& type_;
  const fork_mark made_;
  bool has_place_ = false; // written before the child is published
  std::atomic<bool> dead_{false};
  std::atomic<bool> published_{false}; // cleared under the lock of the ia's children
};

}}} // namespace dat::v0::detail
