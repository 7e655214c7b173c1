// What entries have in common: a handle for a new object, queries, and the end of an object.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "convert.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <sched.h>
#include <type_traits>
#include <utility>

namespace provider {

/// An object of this provider; null without memory.
template <class T, class... Arguments>
[[nodiscard]] std::unique_ptr<T> make_object(Arguments&&... arguments) noexcept {
  const section here;
  return std::unique_ptr<T>(new (std::nothrow) T(std::forward<Arguments>(arguments)...));
}

/// Gives a new object of an adapter its handle, and counts it.
template <class T>
[[nodiscard]] DAT_RETURN issue(adapter& a, std::unique_ptr<T> made, DAT_HANDLE* to, DAT_IA_COUNTERS counter,
                               const char* call) noexcept {
  handle* const named = a.add(std::move(made));
  if (!named) return no_memory(call);
  a.counters.add(counter);
  *to = named;
  return success;
}
/// The same for an object of dat, if it could be made. `more`: what else the constructor of the object takes.
template <class T, class Made, class... More>
[[nodiscard]] DAT_RETURN issue(adapter& a, Made made, DAT_HANDLE* to, DAT_IA_COUNTERS counter, const char* call,
                               More... more) noexcept {
  if (!made) return word(made);
  return issue(a, make_object<T>(a, std::move(made).assume_value(), more...), to, counter, call);
}

/// The evd of a handle for what needs the streams `Needed`, or an error with the subtype `which`. With `AnyIa` dat
/// decides whether the evd may be of another ia.
template <dat::streams Needed, bool AnyIa = false>
[[nodiscard]] dat::expected<dat::evd_ref<Needed>> evd_for(const adapter& a, DAT_EVD_HANDLE evd,
                                                          return_subtype which) noexcept {
  const call_on<evd_object> e(evd);
  if (e && (AnyIa || &e->ia == &a))
    if (auto to = e->evd.to<Needed>()) return to;
  return dat::error(return_type::invalid_handle, which);
}

/// The call of an entry on the object of its first argument, and the errors that the entry finds itself.
template <class T>
class entry_call : public call_on<T> {
public:
  [[gnu::always_inline]] entry_call(DAT_HANDLE named, const char* name) noexcept : call_on<T>(named), name_(name) {}

  [[nodiscard]] const char* name() const noexcept { return name_; }
  [[nodiscard]] DAT_RETURN refuse(return_type type, return_subtype subtype = return_subtype::none) const noexcept {
    return provider::refuse(type, subtype, name_);
  }
  [[nodiscard]] DAT_RETURN bad_handle(return_subtype which = T::handle_error) const noexcept {
    return provider::bad_handle(which, name_);
  }
  [[nodiscard]] DAT_RETURN bad_argument(unsigned position) const noexcept {
    return provider::bad_argument(position, name_);
  }
  [[nodiscard]] DAT_RETURN no_memory() const noexcept { return provider::no_memory(name_); }

private:
  const section here_;
  const char* name_;
};

/// Ends the object of a handle. `close(object)` runs alone, and ends the object of dat, or returns why it cannot.
/// `waited`: the subtype of the error while a thread sleeps in a call on the object.
template <class T, class Close>
[[nodiscard]] DAT_RETURN end_object(const entry_call<T>& o, Close close,
                                    return_subtype waited = return_subtype::none) noexcept {
  object* expected = o.get();
  if (!o || !o->self->target.compare_exchange_strong(expected, nullptr)) return o.bad_handle();
  handle& at = *o->self;
  const auto restore = [&](DAT_RETURN why) {
    at.target.store(o.get());
    return why;
  };
  while (at.calls.load() != 1) {
    if (o->waiters.load() != 0) return restore(o.refuse(return_type::invalid_state, waited));
    ::sched_yield();
  }
  constexpr bool posts = std::is_same_v<T, ep_object>;
  if constexpr (posts)
    while (!o->stop_posts()) ::sched_yield();
  if (const DAT_RETURN refused = word(close(*o))) {
    if constexpr (posts) o->start_posts();
    return restore(refused);
  }
  o->ia.remove(*o);
  return success;
}

} // namespace provider
