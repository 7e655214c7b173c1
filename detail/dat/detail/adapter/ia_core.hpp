// The adapter instance behind dat::ia: device context, event channel, reactor, and everything created from it.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>
#include <dat/error.hpp>
#include <dat/expected.hpp>
#include <dat/qos.hpp>
#include <dat/status.hpp>

#include <dat/detail/adapter/async_info.hpp>
#include <dat/detail/adapter/ia_child.hpp>
#include <dat/detail/base/config.hpp>
#include <dat/detail/base/control_mutex.hpp>
#include <dat/detail/base/ref.hpp>
#include <dat/detail/base/utility.hpp>
#include <dat/detail/progress/reactor.hpp>
#include <dat/detail/text/result.hpp>
#include <dat/detail/verbs/extended_post.hpp>
#include <dat/detail/work/work_arena.hpp>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

/// The outcome of a bind: its window and its operation. A null window means that the consumer has received the outcome
/// already.
struct bind_outcome {
  const void* window = nullptr;
  dto_operation operation{};
};

/// The functions of the object that records the memory of posted operations, in programs that use dat::tracked: see
/// tracked_posts.hpp.
struct posts_observer {
  /// Called before a region closes; `ending`: the close cannot be refused. The error names an operation that needs it.
  expected<void> (*region_ends)(posts_observer&, const ibv_mr&, bool ending) noexcept;
  void (*destroy)(posts_observer&) noexcept;
  /// The operation of an entry is about to move to another entry. Returns false when memory is exhausted.
  bool (*moves)(posts_observer&, std::uint64_t from, std::uint64_t to) noexcept = nullptr;
};

/// The functions of the memory windows of an ia. rmr_core.hpp has the windows; only programs that use them compile it.
struct window_table {
  bind_outcome (*bind_done)(window_table&, std::uint32_t key) noexcept;
  bind_outcome (*bind_failed)(window_table&, std::uint32_t key, bool first_half) noexcept;
  bool (*invalidated)(window_table&, std::uint32_t key) noexcept;
  void (*release)(window_table&, const ia_child& user) noexcept;
  void (*destroy)(window_table&) noexcept;
  bool (*in_use)(const window_table&) noexcept; ///< whether a thread has locked it
};

/// The device, port and addresses of an adapter: the results of discovery, before there is a device context.
struct adapter_location {
  std::array<char, 64> device{};
  std::uint8_t port = 1;
  std::uint16_t pkey = 0xffff;         ///< the P_Key of the interface; InfiniBand only
  std::array<ia_address, 2> address{}; // IPv4, IPv6
  std::array<bool, 2> has{};
};

class ia_core final : public counted {
public:
  [[nodiscard]] static result<ref<ia_core>> open(const adapter_location& where, bool automatic,
                                                 const dat::qos& qos = {}) noexcept;

  [[nodiscard]] ibv_context* context() const noexcept { return context_.get(); }
  [[nodiscard]] rdma_event_channel* channel() const noexcept { return channel_.get(); }
  [[nodiscard]] const ibv_device_attr& device() const noexcept { return device_; }
  [[nodiscard]] std::uint32_t max_message() const noexcept { return max_message_; }
  /// The extended requests that the kernel and verbs have. The provider of the device may lack them.
  [[nodiscard]] extended_op_set extended_ops() const noexcept { return extended_ops_; }
  /// The access flags of flushes that memory of this adapter can have.
  [[nodiscard]] int flush_access() const noexcept { return flush_access_; }
  /// True for a port of Ethernet (RoCE, iWARP), which has no partitions and one P_Key.
  [[nodiscard]] bool ethernet() const noexcept { return ethernet_; }
  /// True for an adapter of iWARP: the kernel moves the queue pairs of its connections, and it has no InfiniBand
  /// extensions.
  [[nodiscard]] bool iwarp() const noexcept { return context()->device->transport_type == IBV_TRANSPORT_IWARP; }
  /// Soft-iWARP, whose driver accepts some requests that it does not fulfil.
  [[nodiscard]] bool siw() const noexcept { return iwarp() && device().vendor_id == 0x626d74; }
  /// Whether an operation with this status shows that its connection is broken. On iWARP every end of a connection, a
  /// regular one included, flushes the operations before its event.
  [[nodiscard]] bool is_break(ibv_wc_status status) const noexcept {
    return status != IBV_WC_SUCCESS && !(status == IBV_WC_WR_FLUSH_ERR && iwarp());
  }
  /// The index of the P_Key of the adapter's interface; 0 where there are no partitions.
  [[nodiscard]] std::uint16_t pkey_index() const noexcept;
  [[nodiscard]] const adapter_location& where() const noexcept { return where_; }
  [[nodiscard]] std::string_view name() const noexcept { return where_.device.data(); }
  /// True for another ia of the same adapter.
  [[nodiscard]] bool same_adapter(const ia_core& o) const noexcept {
    return where_.port == o.where_.port && name() == o.name();
  }
  /// The name that the adapter was opened by; empty if it was opened in another way.
  [[nodiscard]] std::string_view opened_as() const noexcept { return opened_as_.data(); }
  /// Sets that name. Only while no other thread knows of the ia.
  void set_opened_as(std::string_view name) noexcept { name.copy(opened_as_.data(), opened_as_.size() - 1); }
  /// Keeps `what` until a close of the ia has ended. Only while no other thread knows of the ia.
  void keep_until_closed(ref<counted> what) noexcept { until_closed_ = std::move(what); }
  [[nodiscard]] bool automatic() const noexcept { return automatic_; }
  /// The quality of service of endpoints that have none of their own.
  [[nodiscard]] const dat::qos& qos() const noexcept { return qos_; }
  /// The adapter's address of this family, or null.
  [[nodiscard]] const ia_address* address(address_family f) const noexcept {
    const std::size_t i = f == address_family::ipv4 ? 0 : 1;
    return where_.has[i] ? &where_.address[i] : nullptr;
  }
  /// Checks an address to connect to. rdma_cm would send a request to a loopback address over an adapter that does not
  /// have it, and the attempt would end at its time limit.
  [[nodiscard]] expected<void> check_remote(const ia_address& to) const noexcept;
  /// Refuses datagrams and descriptors on an adapter that has none.
  [[nodiscard]] expected<void> check_infiniband() const noexcept;
  /// True for an id of librdmacm that is on this adapter's device and port.
  [[nodiscard]] bool is_ours(const rdma_cm_id& id) const noexcept;

  detail::reactor reactor;
  wake_fd closing; ///< raised by a close; every waiter of a cno polls it
  work_arena work;
  control_mutex work_mutex; ///< for the functions of `work` that the caller calls locked

  /// A number for a new evd, never 0.
  [[nodiscard]] std::uint32_t next_evd_number() noexcept {
    return evd_numbers_.fetch_add(1, std::memory_order_relaxed);
  }
  /// A number for a new service point, never 0.
  [[nodiscard]] std::uint32_t next_service_number() noexcept {
    return service_numbers_.fetch_add(1, std::memory_order_relaxed);
  }

  // --- lifetime ------------------------------------------------------------------------------------------------------

  /// True when the ia is closed, and in a forked child.
  [[nodiscard]] bool closed() const noexcept { return closed_.load(std::memory_order_seq_cst) || foreign(); }
  /// True in a forked child of the process that opened the ia. The objects belong to the parent, but the child inherits
  /// the descriptors: an object that the child ends or wakes would end or wake in the parent.
  [[nodiscard]] bool foreign() const noexcept { return opened_.foreign(); }
  [[nodiscard]] bool dead() const noexcept { return closed(); }
  std::atomic<std::uint64_t> consumer_context{0}; ///< belongs to the consumer

  /// The ia handle and every child except connections keep the adapter open. A connection without an endpoint only
  /// waits for the last message of its peer, and ends when nothing else keeps the adapter open.
  void retain_adapter() noexcept { holders_.fetch_add(1, std::memory_order_relaxed); }
  void release_adapter() noexcept {
    if (!foreign() && holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) end_all(child_kind::connection);
  }
  /// Whether the calling thread holds no lock of the library, so that it can close the ia. False in a signal handler
  /// that has interrupted the thread inside the library. The locks of the data path do not show their owner: the call
  /// waits up to a second until other threads have released them.
  [[nodiscard]] bool can_close_here() noexcept;
  /// Ends every child, wakes every waiter, and marks the ia closed.
  void close_abruptly() noexcept;
  /// Marks the ia closed, and ends the connections that linger. The ia has no other children.
  void close_gracefully() noexcept;

  // --- children ------------------------------------------------------------------------------------------------------

  void add(ia_child& c) noexcept;
  void remove(ia_child& c) noexcept;
  /// Hides the child from `find` and `for_each`. When the call returns, no predicate of `find` reads the child.
  void hide(ia_child& c) noexcept;
  /// Counts a child of a kind, or returns false when there are as many as the device has in all.
  [[nodiscard]] bool take_place(child_kind kind) noexcept;
  void leave_place(child_kind kind) noexcept;
  /// Returns true when a child exists to which the consumer has a handle. Lingering connections do not count.
  [[nodiscard]] bool in_use() noexcept;
  /// As in_use, but false while the list of children is locked.
  [[nodiscard]] bool known_in_use() noexcept;
  /// The first published child of a kind that `wanted` accepts, or null. `wanted` runs under a lock, and may use what
  /// the child wrote before it was published.
  template <class Predicate>
  [[nodiscard]] ref<ia_child> find(child_kind kind, Predicate wanted) noexcept;
  /// Calls `f` with each published child of a kind, with no lock held.
  template <class F>
  void for_each(child_kind kind, F f) noexcept;

  // --- the connection manager ----------------------------------------------------------------------------------------

  /// A write of a thread before its call of the connection manager happens before the reactor uses the event that
  /// follows. The kernel orders the two; this pair of functions shows that order to the C++ memory model (and to
  /// ThreadSanitizer).
  void release_to_reactor() noexcept { cm_order_.fetch_add(1, std::memory_order_release); }
  void acquire_from_callers() const noexcept { (void)cm_order_.load(std::memory_order_acquire); }

  // --- memory windows ------------------------------------------------------------------------------------------------

  /// The bind of the window with that key has completed. `first_half`: the request only removed the old binding.
  [[nodiscard]] bind_outcome bind_ended(std::uint32_t key, bool done, bool first_half = false) noexcept {
    window_table* const t = windows.load(std::memory_order_acquire);
    if (!t) return {};
    return done ? t->bind_done(*t, key) : t->bind_failed(*t, key, first_half);
  }
  /// A peer has invalidated the window with that key. Returns false when there is no such window.
  [[nodiscard]] bool invalidated(std::uint32_t key) noexcept {
    window_table* const t = windows.load(std::memory_order_acquire);
    return t && t->invalidated(*t, key);
  }
  /// An endpoint or a region is about to end: the windows that need it end first.
  void release_windows(const ia_child& user) noexcept {
    if (window_table* const t = windows.load(std::memory_order_acquire)) t->release(*t, user);
  }
  std::atomic<window_table*> windows{nullptr};

  /// Whether a region may end. It always may, unless a policy tracks posted operations.
  [[nodiscard]] expected<void> region_ends(const ibv_mr& mr, bool ending) noexcept {
    posts_observer* const w = posts_observed_by.load(std::memory_order_acquire);
    return w ? w->region_ends(*w, mr, ending) : success();
  }
  std::atomic<posts_observer*> posts_observed_by{nullptr};

  // --- asynchronous events -------------------------------------------------------------------------------------------

  /// An evd that gets every asynchronous event while it is linked.
  struct listener : list_node {
    ia_child* evd = nullptr;
  };
  void listen(listener& l) noexcept {
    const std::lock_guard lock(async_mutex_);
    listeners_.push_back(l);
  }
  void unlisten(listener& l) noexcept {
    const std::lock_guard lock(async_mutex_);
    l.unlink();
  }
  /// Sets the evd made by `open`. The evd ends with the handle of the ia and does not count as in use.
  void set_own_evd(const ia_child* evd) noexcept { own_evd_ = evd; }
  /// Adds an evd of another ia as a listener.
  void borrow_evd(ref<ia_child> evd) noexcept { borrowed_evd_ = std::move(evd); }
  /// Gives the event to all listeners. The caller may hold the lock of an endpoint, but of no evd.
  void raise(async_kind what, const async_info& more = {}, const ref<counted>& endpoint = {}) noexcept;
  /// Reports that an evd has lost events.
  void overflowed(std::uint32_t evd) noexcept { raise(async_kind::evd_overflow, {.number = evd}); }
  /// Reports a failed call whose error no call of the consumer can return. After a failure of the device, it reports
  /// nothing, because the report of that failure covers the consequences.
  void failed_inside(const char* verb, int err, std::uint32_t evd = 0) noexcept {
    if (catastrophic_.load(std::memory_order_relaxed)) return;
    raise(async_kind::provider_internal_error, {.verb = verb, .number = evd, .reason = err < 0 ? -err : err}); // siw
  }

  // --- progress ------------------------------------------------------------------------------------------------------

  /// Runs the reactor once in the caller's thread, unless the ia has a service thread.
  [[gnu::always_inline]] void progress(int wait_ms) noexcept {
    if (automatic_) [[likely]]
      return;
    const ref<ia_core> alive(this); // an agent may end the last object that keeps the ia
    passed_over_.store(0, std::memory_order_relaxed);
    reactor.run(wait_ms);
  }
  /// Every eighth call runs the reactor, without waiting. A wait calls it before it checks for events. A wait that
  /// finds no event sleeps until the reactor has work; waits that always find an event run the reactor here.
  void progress_now_and_then() noexcept {
    if (!automatic_ && passed_over_.fetch_add(1, std::memory_order_relaxed) >= 7) progress(0);
  }

private:
  ia_core() noexcept;
  ~ia_core();
  void last_release() noexcept;

  /// A descriptor that the reactor watches for the ia.
  struct member_source : event_source {
    ia_core* self = nullptr;
    int fd = -1;
    const char* verb = nullptr; ///< the call that reads it
    int failures = 0;           ///< consecutive failures of that call
  };
  struct member_task : task {
    ia_core* self = nullptr;
  };

  static void* service(void* self) noexcept;
  static void on_cm(event_source&) noexcept;
  static void on_async(event_source&) noexcept;
  void read_cm_events() noexcept;
  /// Returns the owner of an id that has no further use.
  [[nodiscard]] ref<connection_base> take_cm_event(rdma_cm_event& e) noexcept;
  void read_async_events() noexcept;
  void take_async(const ibv_async_event& e) noexcept;
  /// A read of a descriptor has failed. Returns true when the caller should read again at once.
  [[nodiscard]] bool read_failed(member_source& s, int err) noexcept;
  /// The endpoint whose queue pair has this generation, or null.
  [[nodiscard]] ref<ia_child> endpoint_of(std::uint64_t generation) noexcept;
  void catastrophe() noexcept;
  [[nodiscard]] bool has_child_in_use() noexcept; // called with mutex_ held
  /// Marks the ia closed, and wakes every waiter.
  void end_waits() noexcept;
  void end_all(child_kind kind) noexcept;
  [[nodiscard]] intrusive_list<ia_child>& children(child_kind kind) noexcept {
    return children_[static_cast<std::size_t>(kind)];
  }

  /// The largest number of events that are read in a row; the reactor does other work in between.
  static constexpr int cm_events_per_round = 32;
  static constexpr int async_events_per_round = 128;
  /// The number of consecutive failures after which a descriptor counts as dead.
  static constexpr int failures_of_dead = 8;

  unique_c<ibv_context, &ibv_close_device> context_;
  unique_c<rdma_event_channel, &rdma_destroy_event_channel> channel_;
  ibv_device_attr device_{};
  std::uint32_t max_message_ = 0;
  extended_op_set extended_ops_;
  int flush_access_ = 0;
  bool ethernet_ = false;
  adapter_location where_{};
  bool automatic_ = true;
  std::array<char, 256> opened_as_{}; // DAT_NAME_MAX_LENGTH
  ref<counted> until_closed_;
  dat::qos qos_;
  bool orphaned_ = false; // the service thread released the last reference and deletes this object
  const fork_mark opened_;
  std::atomic<bool> closed_{false};
  std::atomic<std::uint32_t> holders_{0};
  std::atomic<std::uint32_t> evd_numbers_{1};
  std::atomic<std::uint32_t> service_numbers_{1};
  std::atomic<std::uint32_t> passed_over_{0}; // number of checks since the reactor ran, with manual progress
  std::atomic<std::uint32_t> cm_order_{0};
  control_mutex mutex_; // guards children_ and places_
  std::array<intrusive_list<ia_child>, child_kinds> children_;
  std::array<int, child_kinds> places_{};
  const ia_child* own_evd_ = nullptr;
  std::atomic<bool> catastrophic_{false};
  control_mutex async_mutex_; // guards listeners_; taken before the locks of the evds
  intrusive_list<listener> listeners_;
  ref<ia_child> borrowed_evd_;
  member_source cm_source_{};
  member_source async_source_{};
  member_task retry_{}; // watches descriptors again whose events could not be read for lack of memory
};

template <class Predicate>
ref<ia_child> ia_core::find(child_kind kind, Predicate wanted) noexcept {
  const std::lock_guard lock(mutex_);
  return {children(kind).find([&](ia_child& c) { return c.published() && wanted(c) && c.try_add_ref(); }), adopt};
}

template <class F>
void ia_core::for_each(child_kind kind, F f) noexcept {
  auto& of_kind = children(kind);
  ref<ia_child> at;
  for (;;) {
    ref<ia_child> next; // released without the lock
    {
      const std::lock_guard lock(mutex_);
      if (at && !at->linked()) return; // the ia is being closed
      ia_child* c = at ? of_kind.after(*at) : of_kind.front();
      while (c && !(c->published() && c->try_add_ref())) c = of_kind.after(*c);
      if (!c) return;
      next = ref<ia_child>(c, adopt);
    }
    f(*next);
    at = std::move(next);
  }
}

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/adapter/ia_core.ipp>
#endif
