// DAT handles: what a consumer's handle points to, and calls on it that may overlap its end.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "c_interface.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <sched.h>

namespace provider {

class adapter;
struct handle;
struct known_region;
extern const known_region no_region; ///< which no key names

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
  object* next = nullptr;      ///< in the list of its adapter, as previous
  object* previous = nullptr;
};

/// A lock for a few instructions, as posts need it. A thread that finds it taken gives up the processor.
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
  /// The queues of an object, to each of which one thread may post at a time. A shared queue is the first.
  enum queue : std::uint8_t { requests, receives };

  const DAT_PROVIDER* provider = nullptr; ///< must be first: libdat2 calls through it
  std::atomic<object*> target{nullptr};   ///< null when freed
  std::atomic<std::uint32_t> calls{0};    ///< calls that use the target
  short_lock posting[2];                  ///< held by a post, for each queue
  /// The region that was posted last to a queue: that of the next post, usually. The lock of the queue guards it.
  const known_region* region[2] = {&no_region, &no_region};
  std::atomic<std::uint64_t> context{0}; ///< of the consumer
  handle* next_free = nullptr;

  /// Waits until no post is under way that began before, and forgets the regions that they used.
  void await_posts() noexcept {
    for (const queue q : {requests, receives}) {
      const std::lock_guard wait(posting[q]);
      region[q] = &no_region;
    }
  }

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
  /// Gives it back, for another object.
  void release() noexcept;

private:
  /// Handles at a time. Their addresses are reserved, not their memory.
  static constexpr std::size_t most = std::size_t{1} << 22;
  static constexpr std::uintptr_t nowhere = std::uintptr_t{1} << 63; ///< far from any pointer of a program
  static inline std::atomic<std::uintptr_t> first{nowhere};          ///< where the handles begin
};
static_assert(sizeof(handle) == 64);

/// The use of an object: a call on it, or a post to one of its queues. False when the handle names no object of the
/// type `T`.
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
  use() noexcept = default;
  ~use() = default;
  /// Whether `o` is such an object.
  [[nodiscard]] bool take(object* o) noexcept {
    if (!o || o->type != T::handle_type) [[unlikely]]
      return false;
    object_ = static_cast<T*>(o);
    return true;
  }

private:
  T* object_ = nullptr;
};

/// A call on the object of a handle, for its duration. The object lives as long, unless the call itself deletes it.
template <class T>
class call_on : public use<T> {
public:
  [[gnu::always_inline]] explicit call_on(DAT_HANDLE named) noexcept : at_(static_cast<handle*>(named)) {
    if (!handle::is(named)) return;
    // Null is no handle: it is far from where the handles begin.
    // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage)
    at_->calls.fetch_add(1, std::memory_order_seq_cst);
    if (!this->take(at_->target.load(std::memory_order_seq_cst))) leave();
  }
  ~call_on() {
    if (*this) leave();
  }

private:
  void leave() noexcept { at_->calls.fetch_sub(1, std::memory_order_release); }
  handle* const at_; // the call may delete the object
};

/// A post to a queue, for its duration: alone, and before or after the end of the object, not meanwhile. With `Wait`,
/// it waits for the post of another thread; without, it is false then.
template <class T, bool Wait = true>
class post_to : public use<T> {
public:
  [[gnu::always_inline]] post_to(DAT_HANDLE named, handle::queue to) noexcept : to_(to) {
    if (!handle::is(named)) return;
    handle& at = *static_cast<handle*>(named);
    if constexpr (Wait)
      at.posting[to].lock();
    else if (!at.posting[to].try_lock())
      return;
    if (!this->take(at.target.load(std::memory_order_relaxed))) at.posting[to].unlock();
  }
  ~post_to() {
    if (*this) this->get()->self->posting[to_].unlock();
  }
  /// The region that was posted last.
  [[nodiscard]] const known_region*& region() const noexcept { return this->get()->self->region[to_]; }

private:
  const handle::queue to_;
};

} // namespace provider
