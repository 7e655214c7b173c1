// The few parts of <algorithm> and <memory> that the core needs. Those two headers alone would double what dat costs to
// compile.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

template <class T>
[[nodiscard]] constexpr T min(T a, std::type_identity_t<T> b) noexcept {
  return b < a ? b : a;
}
template <class T>
[[nodiscard]] constexpr T max(T a, std::type_identity_t<T> b) noexcept {
  return a < b ? b : a;
}
template <class T>
[[nodiscard]] constexpr T within(T low, T value, T high) noexcept {
  return value < low ? low : high < value ? high : value;
}

/// Copies bytes to `to`; returns the end of the copy. An empty span may point nowhere.
inline std::byte* copy_bytes(std::span<const std::byte> from, std::byte* to) noexcept {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
  return to + from.size();
}
[[nodiscard]] inline bool any_nonzero(std::span<const std::byte> bytes) noexcept {
  for (const std::byte b : bytes)
    if (b != std::byte{0}) return true;
  return false;
}

/// An object that only the calling thread has: its address identifies the thread.
[[nodiscard]] inline const char& this_thread() noexcept {
  thread_local const char place = 0;
  return place;
}

/// Owns a C object that `Free` frees.
template <class T, auto Free>
class unique_c {
public:
  unique_c() noexcept = default;
  explicit unique_c(T* p) noexcept : p_(p) {}
  unique_c(unique_c&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  unique_c& operator=(unique_c&& o) noexcept {
    if (this != &o) reset(std::exchange(o.p_, nullptr));
    return *this;
  }
  ~unique_c() { reset(); }

  [[nodiscard]] T* get() const noexcept { return p_; }
  T* operator->() const noexcept { return p_; }
  explicit operator bool() const noexcept { return p_ != nullptr; }
  void reset(T* p = nullptr) noexcept {
    if (T* old = std::exchange(p_, p)) Free(old);
  }

private:
  T* p_ = nullptr;
};

template <class T>
inline constexpr auto delete_object = [](T* p) { delete p; };
template <class T>
inline constexpr auto delete_array = [](T* p) { delete[] p; };
/// An array from `new (std::nothrow) T[n]`.
template <class T>
class unique_array : public unique_c<T, delete_array<T>> {
public:
  using unique_c<T, delete_array<T>>::unique_c;
  T& operator[](std::size_t i) const noexcept { return this->get()[i]; }
};

}}} // namespace dat::v0::detail
