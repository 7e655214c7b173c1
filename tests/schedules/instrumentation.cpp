// The functions that a compiler calls with -fsanitize=thread. The program is linked without the sanitizer's library:
// each operation on an atomic is a point, and has the strongest order. Accesses to other memory are none:
// ThreadSanitizer itself finds those that are not ordered. SPDX-License-Identifier: BSL-1.0
#include "agents.hpp"

#include <cstddef>
#include <cstdint>

using schedule::impl::access;
using schedule::impl::point;

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_read_range(void*, std::size_t) {}
void __tsan_write_range(void*, std::size_t) {}
void __tsan_atomic_signal_fence(int) {}
void __tsan_atomic_thread_fence(int) {
  point();
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#define ACCESSES(n)                                                                                                    \
  void __tsan_read##n(void*) { access(); }                                                                             \
  void __tsan_write##n(void*) { access(); }                                                                            \
  void __tsan_unaligned_read##n(void*) { access(); }                                                                   \
  void __tsan_unaligned_write##n(void*) { access(); }                                                                  \
  void __tsan_volatile_read##n(void*) { access(); }                                                                    \
  void __tsan_volatile_write##n(void*) {}
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
#undef ACCESSES

#define CHANGE(bits, operation)                                                                                        \
  std::uint##bits##_t __tsan_atomic##bits##_##operation(volatile std::uint##bits##_t* at, std::uint##bits##_t value,   \
                                                        int) {                                                         \
    point();                                                                                                           \
    return __atomic_##operation(at, value, __ATOMIC_SEQ_CST);                                                          \
  }
#define ATOMICS(bits)                                                                                                  \
  std::uint##bits##_t __tsan_atomic##bits##_load(const volatile std::uint##bits##_t* at, int) {                        \
    point();                                                                                                           \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                                      \
  }                                                                                                                    \
  void __tsan_atomic##bits##_store(volatile std::uint##bits##_t* at, std::uint##bits##_t value, int) {                 \
    point();                                                                                                           \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                                     \
  }                                                                                                                    \
  std::uint##bits##_t __tsan_atomic##bits##_exchange(volatile std::uint##bits##_t* at, std::uint##bits##_t value,      \
                                                     int) {                                                            \
    point();                                                                                                           \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                                           \
  }                                                                                                                    \
  CHANGE(bits, fetch_add)                                                                                              \
  CHANGE(bits, fetch_sub)                                                                                              \
  CHANGE(bits, fetch_and)                                                                                              \
  CHANGE(bits, fetch_or)                                                                                               \
  CHANGE(bits, fetch_xor)                                                                                              \
  CHANGE(bits, fetch_nand)                                                                                             \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile std::uint##bits##_t* at, std::uint##bits##_t* expected,   \
                                                    std::uint##bits##_t desired, int, int) {                           \
    point();                                                                                                           \
    return __atomic_compare_exchange_n(at, expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);              \
  }                                                                                                                    \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile std::uint##bits##_t* at, std::uint##bits##_t* expected,     \
                                                  std::uint##bits##_t desired, int, int) {                             \
    point();                                                                                                           \
    return __atomic_compare_exchange_n(at, expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);              \
  }
ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)
#undef ATOMICS
#undef CHANGE

} // extern "C"
