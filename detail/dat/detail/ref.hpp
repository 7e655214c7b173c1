// Intrusive reference counting and intrusive lists: object graphs without shared_ptr or allocation of their own.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace dat::inline v0::detail {

/// A node of an intrusive, circular, doubly linked list; knows by itself whether it is linked.
struct list_node {
  list_node* prev = nullptr;
  list_node* next = nullptr;

  [[nodiscard]] bool linked() const noexcept { return next != nullptr; }
  void unlink() noexcept {
    if (!next) return;
    prev->next = next;
    next->prev = prev;
    prev = next = nullptr;
  }
};

/// Intrusive list of `T`, which derives from list_node. Not synchronised.
template <class T>
class intrusive_list {
public:
  intrusive_list() noexcept { head_.prev = head_.next = &head_; }
  intrusive_list(const intrusive_list&) = delete;
  intrusive_list& operator=(const intrusive_list&) = delete;
  ~intrusive_list() = default;

  [[nodiscard]] bool empty() const noexcept { return head_.next == &head_; }
  [[nodiscard]] T* front() noexcept { return from(head_.next); }
  [[nodiscard]] T* back() noexcept { return from(head_.prev); }
  [[nodiscard]] T* after(T& t) noexcept { return from(node(t).next); }
  [[nodiscard]] T* before(T& t) noexcept { return from(node(t).prev); }
  void push_back(T& t) noexcept { insert(head_, node(t)); }
  /// Unlinks the first one and returns it; null when there is none.
  T* pop_front() noexcept {
    return pop_front_if([](const T&) { return true; });
  }
  /// The same, and null when the first one is not `wanted`.
  template <class F>
  T* pop_front_if(F wanted) noexcept {
    T* const first = front();
    if (!first || !wanted(*first)) return nullptr;
    list_node& n = *first;
    head_.next = n.next;
    n.next->prev = &head_;
    n.prev = n.next = nullptr;
    return first;
  }
  /// Links `t` behind `where`, or first when `where` is null.
  void insert_after(T* where, T& t) noexcept { insert(where ? *node(*where).next : *head_.next, node(t)); }

private:
  static list_node& node(T& t) noexcept { return t; }
  T* from(list_node* n) noexcept { return n == &head_ ? nullptr : static_cast<T*>(n); }
  static void insert(list_node& where, list_node& n) noexcept {
    n.prev = where.prev;
    n.next = &where;
    where.prev->next = &n;
    where.prev = &n;
  }

  list_node head_;
};

/// Base of every object that handles share. Born with one reference.
///
/// What the last release does is a function of the derived class, given when it is made. Not a virtual function: g++
/// emits the table of an inline class, and all code that it names, into every file that sees the class.
class counted {
public:
  using last_release_function = void (*)(counted&) noexcept;

  counted(const counted&) = delete;
  counted& operator=(const counted&) = delete;

  void add_ref() noexcept { refs_.fetch_add(1, std::memory_order_relaxed); }
  /// Takes a reference unless the last one is already gone: for lists that do not own what they list.
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
  /// Takes over a reference, such as the one a new object is born with.
  constexpr ref(T* p, adopt_t) noexcept : p_(p) {}
  ref(const ref& o) noexcept : ref(o.p_) {}
  constexpr ref(ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  ref& operator=(ref o) noexcept {
    std::swap(p_, o.p_);
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
  [[nodiscard]] T* detach() noexcept { return std::exchange(p_, nullptr); }

private:
  T* p_ = nullptr;
};

} // namespace dat::inline v0::detail
