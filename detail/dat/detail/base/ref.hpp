// Intrusive reference counting: shared objects without the allocation of a shared_ptr.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstdint>

namespace dat { inline namespace v0 { namespace detail {

/// Base of every object that handles share. A new object has one reference.
///
/// The derived class passes the function that the last release calls. This is not a virtual function, since g++ emits
/// the table of an inline class, and all code that the table names, into every file that sees the class.
class counted {
public:
  using last_release_function = void (*)(counted&) noexcept;

  counted(const counted&) = delete;
  counted& operator=(const counted&) = delete;

  void add_ref() noexcept { refs_.fetch_add(1, std::memory_order_relaxed); }
  /// Takes a reference unless the last one has been released. Lists that do not own their elements use it.
  [[nodiscard]] bool try_add_ref() noexcept {
    std::uint32_t n = refs_.load(std::memory_order_relaxed);
    while (n != 0)
      if (refs_.compare_exchange_weak(n, n + 1, std::memory_order_relaxed)) return true;
    return false;
  }
  void release() noexcept {
    if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) last_release_(*this);
  }

protected:
  explicit counted(last_release_function f) noexcept : last_release_(f) {}
  ~counted() = default;

private:
  last_release_function last_release_;
  std::atomic<std::uint32_t> refs_{1};
};

struct adopt_t {};
inline constexpr adopt_t adopt{};

/// Owning pointer to a counted object.
template <class T>
class ref {
public:
  constexpr ref() noexcept = default;
  explicit ref(T* p) noexcept : p_(p) {
    if (p_) p_->add_ref();
  }
  /// Takes over a reference, such as the first one of a new object.
  constexpr ref(T* p, adopt_t) noexcept : p_(p) {}
  ref(const ref& o) noexcept : ref(o.p_) {}
  // Moves are written out: std::exchange and std::swap cost a compiler several classes of traits for each `T`.
  constexpr ref(ref&& o) noexcept : p_(o.p_) { o.p_ = nullptr; }
  ref& operator=(ref o) noexcept {
    T* const old = p_;
    p_ = o.p_;
    o.p_ = old;
    return *this;
  }
  ~ref() {
    if (p_) p_->release();
  }

  [[nodiscard]] T* get() const noexcept { return p_; }
  T* operator->() const noexcept { return p_; }
  T& operator*() const noexcept { return *p_; }
  explicit operator bool() const noexcept { return p_ != nullptr; }
  /// Gives the reference away without releasing it.
  [[nodiscard]] T* detach() noexcept {
    T* const given = p_;
    p_ = nullptr;
    return given;
  }
  /// Empties the pointer, and then releases the reference.
  void reset() noexcept {
    if (T* const old = detach()) old->release();
  }

private:
  T* p_ = nullptr;
};

}}} // namespace dat::v0::detail
