// The few parts of <algorithm> and <memory> that the core needs. Those two headers alone would double what dat costs to
// compile.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

namespace dat::inline v0::detail {

template <class T>
[[nodiscard]] constexpr T smaller(T a, std::type_identity_t<T> b) noexcept {
  return b < a ? b : a;
}
template <class T>
[[nodiscard]] constexpr T larger(T a, std::type_identity_t<T> b) noexcept {
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

/// Owns a C object that `Free` ends.
template <class T, auto Free>
class owned {
public:
  owned() noexcept = default;
  explicit owned(T* p) noexcept : p_(p) {}
  owned(owned&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  owned& operator=(owned&& o) noexcept {
    if (this != &o) reset(std::exchange(o.p_, nullptr));
    return *this;
  }
  ~owned() { reset(); }

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
class owned_array : public owned<T, delete_array<T>> {
public:
  using owned<T, delete_array<T>>::owned;
  T& operator[](std::size_t i) const noexcept { return this->get()[i]; }
};

} // namespace dat::inline v0::detail
