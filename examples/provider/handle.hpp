// DAT handles: what a consumer's handle points to, and calls on it that may overlap its end.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "c_interface.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <sched.h>

namespace provider {

class adapter;
struct ep_object;
struct handle;

/// The object behind a handle. An adapter lists its objects, and deletes those that are left when it closes.
struct object {
  object(DAT_HANDLE_TYPE what, adapter& of) noexcept : type(what), ia(of) {}
  object(const object&) = delete;
  object& operator=(const object&) = delete;
  virtual ~object() = default;
  /// It has its handle now: an object of dat that events name gets the handle as its context.
  virtual void issued() noexcept {}

  const DAT_HANDLE_TYPE type;
  adapter& ia;
  handle* self = nullptr;
  std::atomic<int> waiters{0}; ///< threads that sleep in a call on it
  bool retired = false;        ///< its handle is invalid while its adapter closes
  object* next = nullptr;      ///< in the list of its adapter, as previous
  object* previous = nullptr;
};

/// While the object exists, the thread that constructed it is inside a call that may hold locks. Posts and
/// dat_evd_dequeue construct none, because it would cost time.
class section {
public:
  section() noexcept {
    ++depth;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  section(const section&) = delete;
  section& operator=(const section&) = delete;
  ~section() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    --depth;
  }
  /// Whether the calling thread is inside one already: a signal handler then has interrupted it.
  [[nodiscard]] static bool here() noexcept { return depth != 0; }

private:
  // A signal handler may be the first to read it in a thread, so the access must not allocate memory.
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local unsigned depth = 0;
};

/// A lock for a few instructions, as posts need it. A thread that finds it taken yields the processor.
class short_lock {
public:
  [[nodiscard]] bool try_lock() noexcept { return !taken_.exchange(true, std::memory_order_acquire); }
  void lock() noexcept {
    while (!try_lock()) ::sched_yield();
  }
  void unlock() noexcept { taken_.store(false, std::memory_order_release); }

private:
  std::atomic<bool> taken_{false};
};

/// The memory that a DAT handle points to. It is never given back, so that a call on a freed handle, and one by any
/// other thread while it is freed, finds out. A handle is used again only when many others have been freed since.
struct alignas(64) handle {
  enum queue : std::uint8_t { requests, receives }; ///< of an endpoint, to each of which one thread may post at a time

  const DAT_PROVIDER* provider = nullptr; ///< must be first: libdat2 calls through it
  std::atomic<object*> target{nullptr};   ///< null when freed
  std::atomic<std::uint32_t> calls{0};    ///< calls that use the target
  std::atomic<ep_object*> idle[2]{};      ///< the target as an endpoint, for each queue to which no thread posts now
  std::atomic<std::uint64_t> context{0};  ///< of the consumer
  handle* next_free = nullptr;

  /// The handle that libdat2 has called an entry with. It found the entry through `provider`, so it is a handle.
  [[nodiscard]] static handle& called(DAT_HANDLE named) noexcept { return *static_cast<handle*>(named); }
  /// Whether a consumer names a handle. One that was never issued is memory of zeros: it has no target.
  [[nodiscard]] static bool is(DAT_HANDLE named) noexcept {
    const auto offset = reinterpret_cast<std::uintptr_t>(named) - first.load(std::memory_order_relaxed);
    return offset < most * sizeof(handle) && offset % sizeof(handle) == 0;
  }
  /// The handle that a consumer names; null for a pointer that is none.
  [[nodiscard]] static handle* of(DAT_HANDLE named) noexcept {
    return is(named) ? static_cast<handle*>(named) : nullptr;
  }
  /// A handle for an object; null without memory.
  [[nodiscard]] static handle* make(const DAT_PROVIDER* provider, object& target) noexcept;
  /// Gives it back, for another object. Takes no lock, because a signal handler may close an ia.
  void release() noexcept;

private:
  /// Handles at a time. Their addresses are reserved, not their memory.
  static constexpr std::size_t most = std::size_t{1} << 22;
  static constexpr std::uintptr_t nowhere = std::uintptr_t{1} << 63; ///< far from any pointer of a program
  static inline std::atomic<std::uintptr_t> first{nowhere};          ///< where the handles begin
};
static_assert(sizeof(handle) == 64);

/// A pointer to the object of a handle, for a call on the object or a post to one of its queues. Converts to false when
/// the handle names no object of the type `T`.
template <class T>
class use {
public:
  use(const use&) = delete;
  use& operator=(const use&) = delete;
  explicit operator bool() const noexcept { return object_ != nullptr; }
  T* operator->() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  [[nodiscard]] T* get() const noexcept { return object_; }

protected:
  explicit use(handle* at, T* object = nullptr) noexcept : at_(at), object_(object) {}
  ~use() = default;
  handle* const at_; // a call may delete the object
  T* object_;
};

/// A call on the object of a handle, for its duration. The object lives as long, unless the call itself deletes it.
template <class T>
class call_on : public use<T> {
public:
  explicit call_on(DAT_HANDLE named) noexcept : use<T>(static_cast<handle*>(named)) {
    if (handle::is(named)) begin();
  }
  [[gnu::always_inline]] explicit call_on(handle& called) noexcept : use<T>(&called) { begin(); }
  ~call_on() {
    if (*this) leave();
  }

private:
  void begin() noexcept {
    // Null is no handle: it is far from where the handles begin.
    // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage)
    this->at_->calls.fetch_add(1, std::memory_order_seq_cst);
    object* const o = this->at_->target.load(std::memory_order_seq_cst);
    if (o && o->type == T::handle_type) [[likely]]
      this->object_ = static_cast<T*>(o);
    else
      leave();
  }
  void leave() noexcept { this->at_->calls.fetch_sub(1, std::memory_order_release); }
};

} // namespace provider
