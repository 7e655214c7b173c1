// Owners of objects, from which handles are made: an owner's end is the object's end.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <dat/detail/base/ref.hpp>

#include <atomic>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

[[nodiscard, gnu::cold]] constexpr error empty_handle(const char* call, return_subtype which) noexcept {
  return error(return_type::invalid_handle, which)
      .at(call)
      .hint("The handle is empty: it was moved from or closed, or no create call returned it.");
}

/// Owns a reference to an object, as wil's unique_any: move-only, and `End` ends the object that the owner drops,
/// and then empties the reference.
template <class Core, void (*End)(ref<Core>&) noexcept>
class unique_ref {
public:
  unique_ref() noexcept = default;
  explicit unique_ref(ref<Core> core) noexcept : core_(std::move(core)) {}
  unique_ref(unique_ref&&) noexcept = default;
  unique_ref& operator=(unique_ref&& o) noexcept {
    if (this != &o) {
      drop();
      core_ = std::move(o.core_);
    }
    return *this;
  }
  ~unique_ref() { drop(); }

  [[nodiscard]] Core* get() const noexcept { return core_.get(); }
  Core* operator->() const noexcept { return core_.get(); }
  Core& operator*() const noexcept { return *core_; }
  explicit operator bool() const noexcept { return static_cast<bool>(core_); }
  [[nodiscard]] const ref<Core>& shared() const noexcept { return core_; }

protected:
  /// Ends the object. The owner names it until it has ended, because an agent that runs until then may still use the
  /// owner.
  void drop() noexcept {
    if (core_) End(core_);
  }
  /// Empties the owner and does not end the object.
  void forget() noexcept { core_.reset(); }

private:
  ref<Core> core_;
};

inline constexpr const char* foreign_hint = "A forked child does not inherit the objects of its parent.";

/// Ends an object whose handle is dropped. An endpoint or service point has no users: it ends here, although a thread
/// may hold a reference for a moment. A region ends as well, because its memory may end now, and so do the bindings of
/// windows to it. A cno ends with its last evd, so that its agent is not called later. Other objects end with their
/// last user.
template <class Core>
[[gnu::noinline]] void end_with_handle(ref<Core>& owner) noexcept {
  Core& core = *owner;
  if constexpr (requires { core.handle_ended(); })
    core.handle_ended();
  else if constexpr (
      !requires { core.users; } || requires { Core::ends_with_handle; })
    core.end();
  owner.reset();
}

/// Owns an object. `close` ends it, or else the end of the handle does.
template <class Core>
class handle : public unique_ref<Core, &end_with_handle<Core>> {
public:
  using unique_ref<Core, &end_with_handle<Core>>::unique_ref;

  /// Ends the object now, and empties the handle. Fails with the subtype `in_use` when another object uses it; nothing
  /// changes then.
  [[nodiscard]] expected<void> close(const char* call, return_subtype which,
                                     return_subtype in_use = return_subtype::none) noexcept {
    // A reference of its own: the handle names the object until it has ended, see unique_ref::drop.
    const ref<Core> core = this->shared();
    if (!core) return empty_handle(call, which);
    if (core->dead()) {
      const bool foreign = core->foreign();
      this->forget();
      return error(return_type::invalid_handle, which)
          .at(call)
          .hint(foreign ? foreign_hint : "Its ia was closed, with everything in it.");
    }
    if constexpr (requires { core->users; })
      if (core->users.load(std::memory_order_acquire) != 0) return used(call, in_use);
    core->end();
    this->forget();
    return success();
  }

private:
  static constexpr bool names_itself = requires(const Core& c, const error& e) { c.at(e, ""); };
  /// The subtype, if there is one, implies the hint.
  [[nodiscard]] error used(const char* call, return_subtype in_use) const noexcept {
    error e(return_type::invalid_state, in_use);
    if (in_use == return_subtype::none) e = e.hint("Another object still uses it: end that object first.");
    if constexpr (names_itself)
      return this->get()->at(e, call);
    else
      return e.at(call);
  }
};

/// A reference, such as an ep_ref, that a handle keeps beside its object. It is empty after a move.
template <class Ref>
class emptied_by_move : public Ref {
public:
  using Ref::Ref;
  constexpr emptied_by_move() noexcept = default;
  emptied_by_move(emptied_by_move&& o) noexcept : Ref(std::exchange(static_cast<Ref&>(o), Ref())) {}
  emptied_by_move& operator=(emptied_by_move&& o) noexcept {
    Ref::operator=(std::exchange(static_cast<Ref&>(o), Ref()));
    return *this;
  }
  ~emptied_by_move() = default;
};

}}} // namespace dat::v0::detail
