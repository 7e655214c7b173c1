// The adapter instance behind dat::ia: device context, event channel, reactor, and everything created from it.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>
#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <dat/detail/async_info.hpp>
#include <dat/detail/basics.hpp>
#include <dat/detail/errno.hpp>
#include <dat/detail/reactor.hpp>
#include <dat/detail/ref.hpp>
#include <dat/detail/result.hpp>
#include <dat/detail/work_arena.hpp>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <pthread.h>
#include <string_view>
#include <type_traits>

namespace dat::inline v0::detail {

/// Kinds of children in the order in which an abrupt close tears them down: users before what they use.
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

class ia_core;
class merged_evd;
class ia_child;
class connection_base;
struct cm_event;

/// What differs between the kinds of children: see counted for why this is not a virtual table.
struct child_type {
  child_kind kind;
  void (*teardown)(ia_child&) noexcept;
  void (*destroy)(ia_child&) noexcept;
  // Owners of an rdma_cm_id, see connection_base.
  bool (*on_event)(connection_base&, const cm_event&) noexcept = nullptr;
  void (*on_request)(connection_base&, rdma_cm_id* child, const rdma_cm_event&) noexcept = nullptr;
  void (*abandon)(connection_base&) noexcept = nullptr;
};

/// How often this process and its ancestors were forked since the first ia was opened.
inline std::atomic<std::uint32_t> forks{0};
/// Returns 0 or an errno.
[[nodiscard]] inline int count_forks() noexcept {
  static const int err =
      ::pthread_atfork(nullptr, nullptr, []() noexcept { forks.fetch_add(1, std::memory_order_relaxed); });
  return err;
}

/// Whatever lives in an ia and must end with it.
class ia_child : public counted, public list_node {
public:
  [[nodiscard]] ia_core& ia() const noexcept { return *ia_; }
  [[nodiscard]] child_kind kind() const noexcept { return type_.kind; }
  [[nodiscard]] bool dead() const noexcept { return dead_.load(std::memory_order_acquire); }

  std::atomic<std::uint64_t> consumer_context{0}; ///< the consumer's

  /// Releases the verbs objects. Called once, by close, by the last handle, or by an abrupt close of the ia.
  void end() noexcept;

  /// From now on ia_core::for_each finds it: it is whole.
  void show() noexcept { shown_.store(true, std::memory_order_release); }
  [[nodiscard]] bool shown() const noexcept { return shown_.load(std::memory_order_acquire); }

protected:
  ia_child(ref<ia_core> ia, const child_type& type) noexcept;
  ~ia_child();
  [[nodiscard]] const child_type& type() const noexcept { return type_; }

  /// The table of a class with `static constexpr child_kind kind_of_child` and `teardown()`.
  template <class T>
  [[nodiscard]] static constexpr child_type type_for() noexcept {
    return {T::kind_of_child, [](ia_child& c) noexcept { static_cast<T&>(c).teardown(); },
            [](ia_child& c) noexcept { delete static_cast<T*>(&c); }};
  }

private:
  ref<ia_core> ia_;
  const child_type& type_;
  std::atomic<bool> dead_{false};
  std::atomic<bool> shown_{false};
};

class ep_core;
class ep_connection;
class service_point;

/// How a bind ended: of which window, and what it was. No window: the consumer was told before.
struct bind_outcome {
  const void* window = nullptr;
  dto_operation operation{};
};
/// What remembers the memory that posted operations name, where a program asks for it: see watch.hpp.
struct post_watch {
  /// A region is closed, or `ending` for good. The error names an operation that needs it.
  expected<void> (*region_ends)(post_watch&, const ibv_mr&, bool ending) noexcept;
  void (*destroy)(post_watch&) noexcept;
};

/// What the library at large knows of memory windows. They are in rmr_core.hpp, which only programs that have some need
/// to compile.
struct window_table {
  bind_outcome (*bind_ended)(window_table&, std::uint32_t key, bool done, bool first_half) noexcept;
  bool (*invalidated)(window_table&, std::uint32_t key) noexcept;
  void (*let_go)(window_table&, const ia_child& user) noexcept;
  void (*destroy)(window_table&) noexcept;
};

class ia_core final : public counted {
public:
  /// What `open` found out before it had a context.
  struct place {
    std::array<char, 64> device{};
    std::uint8_t port = 1;
    std::array<ia_address, 2> address{}; // IPv4, IPv6
    std::array<bool, 2> has{};
  };

  [[nodiscard]] static result<ref<ia_core>> open(const place& where, bool automatic) noexcept;

  [[nodiscard]] ibv_context* context() const noexcept { return context_.get(); }
  [[nodiscard]] rdma_event_channel* channel() const noexcept { return channel_.get(); }
  [[nodiscard]] const ibv_device_attr& device() const noexcept { return device_; }
  [[nodiscard]] std::uint32_t max_message() const noexcept { return max_message_; }
  /// Its port is one of Ethernet (RoCE): there are no partitions, and one key for them.
  [[nodiscard]] bool ethernet() const noexcept { return ethernet_; }
  [[nodiscard]] const place& where() const noexcept { return where_; }
  [[nodiscard]] std::string_view name() const noexcept { return where_.device.data(); }
  [[nodiscard]] bool automatic() const noexcept { return automatic_; }
  /// The address of this family that this adapter has, or null.
  [[nodiscard]] const ia_address* address(address_family f) const noexcept {
    const std::size_t i = f == address_family::ipv4 ? 0 : 1;
    return where_.has[i] ? &where_.address[i] : nullptr;
  }
  /// Whether an id of librdmacm sits on this adapter's device and port.
  [[nodiscard]] bool is_ours(const rdma_cm_id& id) const noexcept;

  detail::reactor reactor;
  wake_fd closing; ///< raised by an abrupt close: every waiter watches it
  work_arena work;
  std::mutex work_mutex; ///< for the calls of `work` that say so

  /// A number for a new evd, never 0.
  [[nodiscard]] std::uint32_t next_evd_number() noexcept {
    return evd_numbers_.fetch_add(1, std::memory_order_relaxed);
  }

  /// A number for a new service point, never 0.
  [[nodiscard]] std::uint32_t next_service_number() noexcept {
    return service_numbers_.fetch_add(1, std::memory_order_relaxed);
  }

  /// Closed, or inherited over a fork: then it is the parent's.
  [[nodiscard]] bool closed() const noexcept { return closed_.load(std::memory_order_acquire) || foreign(); }
  /// This process is a child of the one that opened the ia. Its objects live in the parent, but the descriptors were
  /// inherited: whatever is ended or woken here would be ended or woken there.
  [[nodiscard]] bool foreign() const noexcept { return forks_ != forks.load(std::memory_order_relaxed); }
  [[nodiscard]] bool dead() const noexcept { return closed(); }
  std::atomic<std::uint64_t> consumer_context{0}; ///< the consumer's
  /// Children that a handle of the consumer stands for; connections that only linger do not count.
  [[nodiscard]] bool in_use() noexcept;
  void add(ia_child& c) noexcept;
  void remove(ia_child& c) noexcept;
  /// The first live child of a kind that `wanted` accepts, or null.
  template <class Predicate>
  [[nodiscard]] ref<ia_child> find(child_kind kind, Predicate wanted) noexcept;
  /// The ia handle, and every child but connections, keep the ia going. A connection whose endpoint is gone only waits
  /// for its peer's last word; when nothing else is left, nobody waits for that.
  void hold() noexcept { holders_.fetch_add(1, std::memory_order_relaxed); }
  void let_go() noexcept {
    if (!foreign() && holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) end_all(child_kind::connection);
  }
  /// Ends every child, wakes every waiter, and marks the ia closed.
  void close_abruptly() noexcept;
  /// Marks the ia closed; it has no children.
  void close_gracefully() noexcept {
    closed_.store(true, std::memory_order_release);
    closing.raise(); // whoever waits for asynchronous events leaves
  }

  /// What a thread gives to the connection manager comes back to the reactor as an event. The kernel orders the two,
  /// but no rule of C++ knows that: this pair does.
  void hand_over() noexcept { handed_over_.fetch_add(1, std::memory_order_release); }
  void take_over() const noexcept { (void)handed_over_.load(std::memory_order_acquire); }

  // --- memory windows ----------------------------------------------------------------------------------------------

  /// The bind of the window with that key has completed. `first_half`: it did not get further than to take the old
  /// binding away.
  [[nodiscard]] bind_outcome bind_ended(std::uint32_t key, bool done, bool first_half = false) noexcept {
    window_table* const t = windows.load(std::memory_order_acquire);
    return t ? t->bind_ended(*t, key, done, first_half) : bind_outcome{};
  }
  /// A peer has invalidated the window with that key. False when there is none.
  [[nodiscard]] bool invalidated(std::uint32_t key) noexcept {
    window_table* const t = windows.load(std::memory_order_acquire);
    return t && t->invalidated(*t, key);
  }
  /// An endpoint or a region is about to end: the windows that need it end before.
  void let_windows_go(const ia_child& user) noexcept {
    if (window_table* const t = windows.load(std::memory_order_acquire)) t->let_go(*t, user);
  }
  std::atomic<window_table*> windows{nullptr};

  /// Whether a region may end; always, unless operations are posted by a policy that remembers.
  [[nodiscard]] expected<void> region_ends(const ibv_mr& mr, bool ending) noexcept {
    post_watch* const w = watched.load(std::memory_order_acquire);
    return w ? w->region_ends(*w, mr, ending) : success();
  }
  std::atomic<post_watch*> watched{nullptr};

  // --- asynchronous events -----------------------------------------------------------------------------------------

  /// An evd that gets every asynchronous event from now on.
  struct listener : list_node {
    merged_evd* evd = nullptr;
  };
  void listen(listener& l) noexcept {
    const std::lock_guard lock(async_mutex_);
    listeners_.push_back(l);
  }
  void unlisten(listener& l) noexcept {
    const std::lock_guard lock(async_mutex_);
    l.unlink();
  }
  /// The evd made by `open`, which goes with the ia's handle: it does not count as in use.
  void own(const ia_child* evd) noexcept { own_ = evd; }
  /// An evd of another ia, to listen as well.
  void borrow(ref<ia_child> evd) noexcept { borrowed_ = std::move(evd); }
  /// Tells all that listen. The caller may hold the lock of an endpoint, but of no evd.
  void raise(async_kind what, const async_info& more = {}, const ref<counted>& endpoint = {}) noexcept;
  /// An evd has lost events.
  void overflowed(std::uint32_t evd) noexcept { raise(async_kind::evd_overflow, {.number = evd}); }
  /// A call failed that nobody waits for.
  void failed_inside(const char* verb, int err, std::uint32_t evd = 0) noexcept {
    raise(async_kind::provider_internal_error, {.verb = verb, .number = evd, .reason = err});
  }

  /// Calls `f` with each child of a kind; no lock is held then.
  template <class F>
  void for_each(child_kind kind, F f) noexcept;
  template <class F>
  void for_each_endpoint(F f) noexcept;

  /// Runs the reactor once in the caller's thread, unless a service thread does it.
  void progress(int wait_ms) noexcept {
    if (automatic_) return;
    passed_over_.store(0, std::memory_order_relaxed);
    reactor.run(wait_ms);
  }
  /// The same with no waiting, before a wait looks for what it may find at once: the eighth time only. If it finds
  /// nothing it sleeps, and its sleep ends when the reactor has work. If it always finds something, that work gets on
  /// all the same.
  void progress_now_and_then() noexcept {
    if (!automatic_ && passed_over_.fetch_add(1, std::memory_order_relaxed) >= 7) progress(0);
  }

private:
  ia_core() noexcept : counted([](counted& c) noexcept { static_cast<ia_core&>(c).last_release(); }) {}
  ~ia_core() {
    if (window_table* const t = windows.load(std::memory_order_relaxed)) t->destroy(*t);
    if (post_watch* const w = watched.load(std::memory_order_relaxed)) w->destroy(*w);
  }
  void last_release() noexcept;

  static void* service(void* self) noexcept;
  static void on_cm(event_source&) noexcept;
  static void on_async(event_source&) noexcept;
  void read_cm_events() noexcept;
  /// Returns the owner of an id that has seen all that it was for.
  [[nodiscard]] ref<connection_base> take_cm_event(rdma_cm_event& e) noexcept;
  void end_all(child_kind kind) noexcept;
  void read_async_events() noexcept;
  void take_async(const ibv_async_event& e) noexcept;
  void catastrophe() noexcept;

  struct member_source : event_source {
    ia_core* self;
  };

  owned<ibv_context, &ibv_close_device> context_;
  owned<rdma_event_channel, &rdma_destroy_event_channel> channel_;
  ibv_device_attr device_{};
  std::uint32_t max_message_ = 0;
  bool ethernet_ = false;
  place where_{};
  bool automatic_ = true;
  bool orphaned_ = false; // the last reference went on the service thread, which then deletes this
  const std::uint32_t forks_ = forks.load(std::memory_order_relaxed);
  std::atomic<bool> closed_{false};
  std::atomic<std::uint32_t> holders_{0};
  std::atomic<std::uint32_t> evd_numbers_{1};
  std::atomic<std::uint32_t> service_numbers_{1};
  // Looks since the reactor ran, with manual progress.
  std::atomic<std::uint32_t> passed_over_{0};
  std::atomic<std::uint32_t> handed_over_{0};
  std::mutex mutex_; // guards children_
  intrusive_list<ia_child> children_;
  const ia_child* own_ = nullptr;
  bool cm_fails_ = false;
  std::atomic<bool> catastrophic_{false};
  std::mutex async_mutex_; // guards listeners_; taken before the locks of the evds
  intrusive_list<listener> listeners_;
  ref<ia_child> borrowed_;
  member_source cm_source_{};
  member_source async_source_{};
};

inline ia_child::ia_child(ref<ia_core> ia, const child_type& type) noexcept
    : counted([](counted& c) noexcept {
        auto& self = static_cast<ia_child&>(c);
        if (self.ia_->foreign()) return; // the parent's; see ia_core::foreign
        self.end();
        self.type_.destroy(self);
      }),
      ia_(std::move(ia)),
      type_(type) {
  ia_->add(*this);
  if (kind() != child_kind::connection) ia_->hold();
}
inline void ia_child::end() noexcept {
  if (ia_->foreign() || dead_.exchange(true, std::memory_order_acq_rel)) return;
  type_.teardown(*this);
  if (kind() != child_kind::connection) ia_->let_go();
}
inline ia_child::~ia_child() { ia_->remove(*this); }

inline void ia_core::add(ia_child& c) noexcept {
  const std::lock_guard lock(mutex_);
  children_.push_back(c);
}
inline void ia_core::remove(ia_child& c) noexcept {
  const std::lock_guard lock(mutex_);
  c.unlink();
}

template <class Predicate>
ref<ia_child> ia_core::find(child_kind kind, Predicate wanted) noexcept {
  const std::lock_guard lock(mutex_);
  for (ia_child* c = children_.front(); c; c = children_.after(*c))
    if (c->kind() == kind && !c->dead() && wanted(*c) && c->try_add_ref()) return {c, adopt};
  return {};
}

inline bool ia_core::in_use() noexcept {
  const std::lock_guard lock(mutex_);
  for (ia_child* c = children_.front(); c; c = children_.after(*c))
    if (!c->dead() && c->kind() != child_kind::connection && c != own_) return true;
  return false;
}

inline void ia_core::close_abruptly() noexcept {
  closed_.store(true, std::memory_order_release);
  closing.raise();
  for (const auto kind : {child_kind::service_point, child_kind::datagram_service, child_kind::window,
                          child_kind::endpoint, child_kind::connection, child_kind::shared_queue, child_kind::memory,
                          child_kind::events, child_kind::notification, child_kind::zone})
    end_all(kind);
  reactor.settle(); // what it holds for a moment goes before this returns
}

inline void ia_core::end_all(child_kind kind) noexcept {
  for (;;) {
    ref<ia_child> victim;
    {
      const std::lock_guard lock(mutex_);
      ia_child* c = children_.front();
      while (c && c->kind() != kind) c = children_.after(*c);
      if (!c) return;
      c->unlink(); // its destructor's unlink is then without effect
      if (c->try_add_ref()) victim = ref<ia_child>(c, adopt);
    }
    if (victim) victim->end();
  }
}

inline bool ia_core::is_ours(const rdma_cm_id& id) const noexcept {
  return id.verbs && id.port_num == where_.port && name() == ibv_get_device_name(id.verbs->device);
}

inline result<ref<ia_core>> ia_core::open(const place& where, bool automatic) noexcept {
  static constexpr const char* call = "ia.open";
  const auto failed = [](const char* verb, int err, return_subtype resource = return_subtype::resource_device) {
    return map_errno(err, resource).at(call, object_kind::ia).from(verb, err);
  };
  ref<ia_core> core(new (std::nothrow) ia_core, adopt);
  if (!core) return failed("operator new", ENOMEM, return_subtype::resource_memory);
  core->where_ = where;
  core->automatic_ = automatic;
  if (const int err = count_forks()) return failed("pthread_atfork", err, return_subtype::resource_memory);

  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (!list) return failed("ibv_get_device_list", errno);
  ibv_device* found = nullptr;
  for (int i = 0; i < count; ++i)
    if (core->name() == ibv_get_device_name(list[i])) found = list[i];
  if (found) core->context_.reset(ibv_open_device(found));
  const int open_errno = errno;
  ibv_free_device_list(list);
  if (!found)
    return error(return_type::provider_not_found, return_subtype::name_not_registered).at(call, object_kind::ia);
  if (!core->context_) return failed("ibv_open_device", open_errno);

  if (const int err = ibv_query_device(core->context(), &core->device_)) return failed("ibv_query_device", err);
  ibv_port_attr port{};
  if (const int err = ibv_query_port(core->context(), where.port, &port)) return failed("ibv_query_port", err);
  core->max_message_ = smaller(port.max_msg_sz, longest_message);
  core->ethernet_ = port.link_layer == IBV_LINK_LAYER_ETHERNET;

  core->channel_.reset(rdma_create_event_channel());
  if (!core->channel_) return failed("rdma_create_event_channel", errno);
  if (const int err = core->work.reserve()) return failed("mmap", err, return_subtype::resource_memory);
  if (const int err = core->closing.open()) return failed("eventfd", err);
  if (const int err = core->reactor.open()) return failed("epoll_create1", err);
  for (const int fd : {core->channel_->fd, core->context_->async_fd})
    if (const int err = make_nonblocking(fd)) return failed("fcntl", err);
  core->cm_source_ = {{&on_cm}, core.get()};
  core->async_source_ = {{&on_async}, core.get()};
  if (const int err = core->reactor.watch(core->channel_->fd, core->cm_source_)) return failed("epoll_ctl", err);
  if (const int err = core->reactor.watch(core->context_->async_fd, core->async_source_))
    return failed("epoll_ctl", err);
  if (automatic)
    if (const int err = core->reactor.start(&service, core.get())) return failed("pthread_create", err);
  return core;
}

inline void* ia_core::service(void* self) noexcept {
  auto* core = static_cast<ia_core*>(self);
  core->reactor.loop();
  if (core->orphaned_) delete core;
  return nullptr;
}

inline void ia_core::last_release() noexcept {
  if (foreign()) return;
  // Deleting joins the service thread. When that thread itself dropped the last reference, it must finish its round
  // first and delete on its way out.
  orphaned_ = reactor.on_service_thread();
  reactor.stop();
  if (!orphaned_) delete this;
}

inline void ia_core::on_cm(event_source& s) noexcept { static_cast<member_source&>(s).self->read_cm_events(); }
inline void ia_core::on_async(event_source& s) noexcept { static_cast<member_source&>(s).self->read_async_events(); }

} // namespace dat::inline v0::detail
