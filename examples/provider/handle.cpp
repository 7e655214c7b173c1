// The memory of handles.
// SPDX-License-Identifier: BSL-1.0
#include "handle.hpp"

#include <cstddef>
#include <mutex>
#include <new>
#include <sys/mman.h>

namespace provider {
namespace {

constexpr std::size_t rest = 1024; // freed handles that stay unused

std::mutex handles_mutex;  // guards the following
handle* handles = nullptr; // where they begin
std::size_t used = 0;      // handles that were issued, freed ones among them
handle* oldest = nullptr;  // of the freed handles, a queue
handle* newest = nullptr;
std::size_t freed = 0;

} // namespace

handle* handle::make(const DAT_PROVIDER* provider, object& target) noexcept {
  const std::lock_guard lock(handles_mutex);
  if (!handles) {
    void* const memory = ::mmap(nullptr, most * sizeof(handle), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    handles = static_cast<handle*>(memory);
    first.store(reinterpret_cast<std::uintptr_t>(memory));
  }
  handle* made = nullptr;
  if (freed > rest || (freed != 0 && used == most)) {
    made = oldest;
    oldest = made->next_free;
    if (!oldest) newest = nullptr;
    --freed;
  } else if (used < most) {
    made = ::new (handles + used) handle;
    ++used;
  } else {
    return nullptr;
  }
  made->provider = provider;
  made->context.store(0);
  target.self = made;
  made->target.store(&target, std::memory_order_seq_cst);
  return made;
}

void handle::release() noexcept {
  const std::lock_guard lock(handles_mutex);
  next_free = nullptr;
  (newest ? newest->next_free : oldest) = this;
  newest = this;
  ++freed;
}

} // namespace provider
