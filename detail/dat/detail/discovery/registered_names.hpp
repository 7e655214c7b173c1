// The names that programs add to a registry or remove from it, and those by which their ias are open.
//
// <dat/ia.hpp> includes this header, so that it has no containers.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/control_mutex.hpp>
#include <dat/detail/base/intrusive_list.hpp>
#include <dat/detail/base/ref.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <string_view>

namespace dat { inline namespace v0 { namespace detail {

/// One name. The part of an added name that opening it needs; registry.ipp has the rest.
struct registered_name : list_node {
  enum class role : std::uint8_t { added, removed, open };

  registered_name(role r, std::string_view n, void (*d)(registered_name&) noexcept) noexcept
      : what(r), size(static_cast<std::uint8_t>(n.copy(text.data(), text.size()))), destroy(d) {}
  registered_name(const registered_name&) = delete;
  registered_name& operator=(const registered_name&) = delete;
  [[nodiscard]] std::string_view name() const noexcept { return {text.data(), size}; }

  std::array<char, 255> text{}; // DAT_NAME_MAX_LENGTH without the NUL; a name may have a NUL of its own
  const role what;
  const std::uint8_t size;
  void (*const destroy)(registered_name&) noexcept;
  // Of an added name:
  std::array<char, 72> port{}; ///< as ia::open takes it; empty: the device is absent
  std::uint16_t major_part = 2;
  std::uint16_t minor_part = 0;
  bool thread_safe = false;

protected:
  ~registered_name() = default;
};

/// The changes of one registry. All registries of the host in a process share those of the process.
class registered_names : public counted {
public:
  using role = registered_name::role;

  /// Throws std::bad_alloc, as the containers of a registry do.
  [[nodiscard]] static ref<registered_names> make() { return {new registered_names, adopt}; }
  /// Those of the process. Default visibility, so that all shared objects of a program have the same. They live as long
  /// as the process, because handles may end after the static objects.
  [[nodiscard, gnu::visibility("default")]] static ref<registered_names> of_process() noexcept {
    alignas(registered_names) static unsigned char room[sizeof(registered_names)];
    static registered_names* const made = new (room) registered_names;
    return ref(made);
  }

  /// Serialises additions and removals. Taken before the lock of the list.
  [[nodiscard]] control_mutex& changes() noexcept { return changes_; }

  void append(registered_name& n) noexcept {
    const std::lock_guard lock(mutex_);
    names_.push_back(n);
  }
  [[nodiscard]] bool has(role what, std::string_view name) noexcept {
    const std::lock_guard lock(mutex_);
    return first(what, name) != nullptr;
  }
  /// Undoes the removal of a name.
  void restore(std::string_view name) noexcept {
    const std::lock_guard lock(mutex_);
    erase(role::removed, name);
  }
  /// Removes a name with all that the program has added by it. `mark` is appended to hide the host's own entry of that
  /// name; it is null when the host has none. Returns false, and changes nothing, while the name is open.
  [[nodiscard]] bool remove(std::string_view name, registered_name* mark) noexcept {
    const std::lock_guard lock(mutex_);
    if (first(role::open, name)) return false;
    erase(role::added, name);
    if (mark) names_.push_back(*mark);
    return true;
  }
  /// Calls `f` with each entry of that role, in the order of their additions, with the list locked.
  template <class F>
  void each(role what, F f) {
    const std::lock_guard lock(mutex_);
    for (registered_name* n = names_.front(); n; n = names_.after(*n))
      if (n->what == what) f(*n);
  }
  /// Counts the name as open until the last reference to the result is released. Null without memory.
  [[nodiscard]] ref<counted> hold(std::string_view name) noexcept {
    open_name* const held = new (std::nothrow) open_name(ref(this), name);
    if (held) append(*held);
    return ref<counted>(held, adopt);
  }

private:
  /// One opened adapter.
  struct open_name : counted, registered_name {
    open_name(ref<registered_names> all, std::string_view name) noexcept
        : counted([](counted& c) noexcept { delete static_cast<open_name*>(&c); }),
          registered_name(role::open, name, nullptr),
          of(std::move(all)) {}
    ~open_name() {
      const std::lock_guard lock(of->mutex_);
      unlink();
    }
    ref<registered_names> of;
  };

  registered_names() noexcept : counted([](counted& c) noexcept { delete static_cast<registered_names*>(&c); }) {}
  ~registered_names() {
    while (registered_name* const n = names_.pop_front()) n->destroy(*n); // open names hold a reference: none is left
  }
  void erase(role what, std::string_view name) noexcept {
    while (registered_name* const n = first(what, name)) {
      n->unlink();
      n->destroy(*n);
    }
  }
  [[nodiscard]] registered_name* first(role what, std::string_view name) noexcept {
    return names_.find([&](const registered_name& n) { return n.what == what && n.name() == name; });
  }

  control_mutex changes_;
  control_mutex mutex_; // a leaf
  intrusive_list<registered_name> names_;
};

}}} // namespace dat::v0::detail
