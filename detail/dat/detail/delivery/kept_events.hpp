// Events that arrived while no coroutine waited for them: kept until the next wait, oldest first.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/event.hpp>

#include <dat/detail/base/intrusive_list.hpp>
#include <dat/detail/endpoint/core.hpp>
#include <dat/detail/handle/core_access.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>
#include <variant>

namespace dat { inline namespace v0 { namespace detail {

/// Sets of the events of an evd, by their places in its list.
using event_set = std::uint64_t;
inline constexpr event_set every_event = ~event_set{0};
template <class E, class L>
inline constexpr event_set event_bit = 0;
template <class E, class... T>
inline constexpr event_set event_bit<E, type_list<T...>> = [] {
  event_set found = 0;
  event_set next = 1;
  ((found |= std::is_same_v<E, T> ? next : 0, next <<= 1), ...);
  return found;
}();

template <streams S>
class kept_events {
public:
  explicit kept_events(std::size_t most) noexcept : most_(most) {}
  kept_events(const kept_events&) = delete;
  kept_events& operator=(const kept_events&) = delete;
  ~kept_events() { clear(); }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// A coroutine has had an event of this set and may wait again.
  void expect_wait(event_set s) noexcept { between_ |= s; }
  /// A wait has ended without an event, so no further wait may follow.
  void expect_no_wait(event_set s) noexcept { between_ &= ~s; }

  /// Keeps an event that comes between two waits. False, and the event is unchanged, for any other, and when there is
  /// no room. A completion is not kept, because it does not keep its endpoint alive.
  template <class E>
  [[nodiscard]] bool keep(E& e) noexcept {
    if constexpr (std::is_base_of_v<completion, E>) {
      return false;
    } else {
      if ((between_ & event_bit<E, event_list<S>>) == 0 || size_ >= most_) return false;
      node* const n = new (std::nothrow) node(std::in_place_type<E>, std::move(e));
      if (!n) return false;
      list_.push_back(*n);
      ++size_;
      return true;
    }
  }

  /// Passes the oldest event that `take` returns true for, and removes it. Returns false when there is no such event.
  template <class F>
  bool take_if(F take) noexcept {
    node* const taken = list_.find([&](node& n) { return std::visit(take, n.kept); });
    if (taken) erase(taken);
    return taken != nullptr;
  }
  /// Drops the events of an endpoint.
  void drop(const ep_core* of) noexcept {
    while (take_if([of]<class E>(const E& e) {
      if constexpr (requires { e.ep(); })
        return core_access::of(e.ep()) == of;
      else
        return false;
    })) {
    }
  }
  /// Drops all events, which refuses the connection requests among them.
  void clear() noexcept {
    while (node* n = list_.front()) erase(n);
  }

private:
  struct node : list_node {
    template <class E>
    node(std::in_place_type_t<E> which, std::type_identity_t<E>&& e) noexcept : kept(which, std::move(e)) {}
    event<S> kept;
  };
  void erase(node* n) noexcept {
    n->unlink();
    --size_;
    delete n;
  }

  intrusive_list<node> list_;
  std::size_t size_ = 0;
  std::size_t most_;
  event_set between_ = 0;
};

}}} // namespace dat::v0::detail
