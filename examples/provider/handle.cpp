// The memory of handles.
// SPDX-License-Identifier: BSL-1.0
#include "handle.hpp"

#include <cstddef>
#include <mutex>
#include <new>
#include <sys/mman.h>
#include <utility>

namespace provider {
namespace {

constexpr std::size_t rest = 1024; // freed handles that stay unused

std::mutex handles_mutex;  // guards the following
handle* handles = nullptr; // where they begin
std::size_t used = 0;      // handles that were issued, freed ones among them
handle* ready = nullptr;   // freed handles that can be used again
handle* resting = nullptr; // freed handles that can be used again when `rest` more were freed

std::atomic<handle*> freed{nullptr}; // handles that were freed after those
std::atomic<std::size_t> number_freed{0};

} // namespace

handle* handle::make(const DAT_PROVIDER* provider, object& target) noexcept {
  const section here;
  const std::lock_guard lock(handles_mutex);
  if (!handles) {
    void* const memory = ::mmap(nullptr, most * sizeof(handle), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    handles = static_cast<handle*>(memory);
    first.store(reinterpret_cast<std::uintptr_t>(memory));
  }
  if (!ready && (number_freed.load() > rest || used == most)) {
    number_freed.store(0);
    ready = std::exchange(resting, freed.exchange(nullptr, std::memory_order_acquire));
  }
  if (!ready && used == most) return nullptr;
  handle* const made = ready ? std::exchange(ready, ready->next_free) : ::new (handles + used++) handle;
  made->provider = provider;
  made->context.store(0);
  target.self = made;
  made->target.store(&target, std::memory_order_seq_cst);
  return made;
}

void handle::release() noexcept {
  next_free = freed.load(std::memory_order_relaxed);
  while (!freed.compare_exchange_weak(next_free, this, std::memory_order_release, std::memory_order_relaxed)) {
  }
  number_freed.fetch_add(1);
}

} // namespace provider
