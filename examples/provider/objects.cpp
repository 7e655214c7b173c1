// The list of an adapter's objects, their ends, and the table of its regions.
// SPDX-License-Identifier: BSL-1.0
#include "objects.hpp"

#include <new>

namespace provider {

post_to::post_to(DAT_HANDLE named, handle::queue to) noexcept : use(static_cast<handle*>(named)), to_(to) {
  while (call_on<ep_object>(named)) {
    object_ = at_->idle[to].exchange(nullptr, std::memory_order_acquire);
    if (*this) return;
    ::sched_yield();
  }
}

bool ep_object::stop_posts() noexcept {
  for (const handle::queue q : {handle::requests, handle::receives})
    if (self->idle[q].exchange(nullptr, std::memory_order_acquire)) {
      known[q] = &no_region;
      stopped[q].store(true);
    }
  return stopped[handle::requests] && stopped[handle::receives];
}

void ep_object::start_posts() noexcept {
  for (const handle::queue q : {handle::requests, handle::receives})
    if (stopped[q].exchange(false)) self->idle[q].store(this, std::memory_order_release);
}

void ep_object::await_posts() noexcept {
  for (const handle::queue q : {handle::requests, handle::receives}) {
    bool idle = false;
    while (!(idle = self->idle[q].exchange(nullptr, std::memory_order_acquire)) && !stopped[q]) ::sched_yield();
    if (!idle) continue;
    known[q] = &no_region;
    self->idle[q].store(this, std::memory_order_release);
  }
}

bool region_table::add(const lmr_object& region) noexcept {
  const std::lock_guard lock(lock_);
  try {
    by_key_.insert_or_assign(region.known.key, &region);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void region_table::remove(const lmr_object& region) noexcept {
  const std::lock_guard lock(lock_);
  const auto at = by_key_.find(region.known.key);
  if (at != by_key_.end() && at->second == &region) by_key_.erase(at);
}

lmr_object::~lmr_object() {
  const std::lock_guard lock(ia.mutex);
  ia.regions.remove(*this);
}

bool adapter::list(object& made) noexcept {
  if (!handle::make(&from.table, made)) return false;
  const std::lock_guard lock(mutex);
  object*& head = objects_[index(made.type)];
  made.next = head;
  if (head) head->previous = &made;
  head = &made;
  made.issued();
  return true;
}

void adapter::remove(object& o) noexcept {
  handle* const named = o.self;
  {
    const std::lock_guard lock(mutex);
    (o.previous ? o.previous->next : objects_[index(o.type)]) = o.next;
    if (o.next) o.next->previous = o.previous;
  }
  delete &o;
  named->release();
}

bool adapter::in_use() const noexcept {
  for (const object* head : objects_)
    for (const object* o = head; o; o = o->next)
      if (o->self != async_evd && o->type != peer_object::handle_type) return true;
  return false;
}

void adapter::await_posts() noexcept {
  const std::lock_guard lock(mutex);
  for (object* o = objects_[index(DAT_HANDLE_TYPE_EP)]; o; o = o->next) static_cast<ep_object*>(o)->await_posts();
  for (object* o = objects_[index(DAT_HANDLE_TYPE_SRQ)]; o; o = o->next) {
    auto& queue = *static_cast<srq_object*>(o);
    const std::lock_guard post(queue.posting);
    queue.known = &no_region;
  }
}

bool adapter::retire() noexcept {
  bool busy = false;
  for (object* head : objects_)
    for (object* o = head; o; o = o->next) {
      if (o->self->target.exchange(nullptr, std::memory_order_seq_cst)) o->retired = true;
      busy |= o->self->calls.load(std::memory_order_acquire) > static_cast<std::uint32_t>(o->waiters.load());
      if (o->type == DAT_HANDLE_TYPE_EP) busy |= !static_cast<ep_object*>(o)->stop_posts();
    }
  return !busy;
}

void adapter::restore() noexcept {
  for (object* head : objects_)
    for (object* o = head; o; o = o->next) {
      if (!std::exchange(o->retired, false)) continue; // another thread may be ending it
      o->self->target.store(o, std::memory_order_seq_cst);
      if (o->type == DAT_HANDLE_TYPE_EP) static_cast<ep_object*>(o)->start_posts();
    }
}

void adapter::delete_objects() noexcept {
  for (object*& head : objects_)
    while (head) {
      object* const o = head;
      // A wait that has ended returns. The first object has no previous one: remove() makes the next one the first.
      // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDelete)
      while (o->self->calls.load(std::memory_order_acquire) != 0) ::sched_yield();
      remove(*o);
    }
}

} // namespace provider
