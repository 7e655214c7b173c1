// Intrusive lists: an object is in a list by a node of its own, without allocation.
// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace dat { inline namespace v0 { namespace detail {

/// A node of an intrusive, circular, doubly linked list. A node can tell whether it is linked.
struct list_node {
  list_node* prev = nullptr; // valid while it is linked
  list_node* next = nullptr;

  [[nodiscard]] bool linked() const noexcept { return next != nullptr; }
  void unlink() noexcept {
    if (linked()) leave();
  }
  /// As unlink, for a node that is linked.
  void leave() noexcept {
    prev->next = next;
    next->prev = prev;
    next = nullptr;
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
  /// The first element that is `wanted`, or null.
  template <class F>
  [[nodiscard]] T* find(F wanted) noexcept {
    for (list_node* n = head_.next; n != &head_; n = n->next)
      if (T& t = static_cast<T&>(*n); wanted(t)) return &t;
    return nullptr;
  }
  void push_back(T& t) noexcept { insert(head_, node(t)); }
  /// Unlinks the first element and returns it. Returns null when the list is empty.
  T* pop_front() noexcept {
    return pop_front_if([](const T&) { return true; });
  }
  /// Unlinks the first element and returns it. Returns null when the list is empty or the element is not `wanted`.
  template <class F>
  T* pop_front_if(F wanted) noexcept {
    T* const first = front();
    if (!first || !wanted(*first)) return nullptr;
    list_node& n = *first;
    head_.next = n.next;
    n.next->prev = &head_;
    n.next = nullptr;
    return first;
  }
  /// Links `t` behind `where`, or first when `where` is null.
  void insert_after(T* where, T& t) noexcept { insert(where ? *node(*where).next : *head_.next, node(t)); }

private:
  static list_node& node(T& t) noexcept { return t; }
  T* from(list_node* n) noexcept { return n == &head_ ? nullptr : static_cast<T*>(n); }
  static void insert(list_node& where, list_node& n) noexcept {
    n.prev = where.prev;
    n.prev->next = &n;
    n.next = &where;
    where.prev = &n;
  }

  list_node head_;
};

}}} // namespace dat::v0::detail
