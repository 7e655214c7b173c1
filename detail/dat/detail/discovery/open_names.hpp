// The names of a registry by which adapters are open now.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/ref.hpp>
#include <dat/detail/base/slow_mutex.hpp>

#include <algorithm>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

/// A registry and the ias that it has opened share one object. Any thread may close such an ia, also after the end of
/// the registry.
class open_names : public counted {
public:
  [[nodiscard]] static ref<open_names> make() { return ref<open_names>(new open_names, adopt); }

  [[nodiscard]] bool has(std::string_view name) const {
    const std::lock_guard lock(mutex_);
    return std::find(names_.begin(), names_.end(), name) != names_.end();
  }
  /// Counts the name as open until the last reference to the result is released.
  [[nodiscard]] ref<counted> hold(std::string_view name) {
    ref<counted> result(new one_name(ref<open_names>(this), name), adopt);
    return result;
  }

private:
  /// One opened adapter.
  struct one_name : counted {
    one_name(ref<open_names> all, std::string_view name)
        : counted([](counted& c) noexcept { delete static_cast<one_name*>(&c); }), of(std::move(all)) {
      const std::lock_guard lock(of->mutex_);
      at = of->names_.emplace(of->names_.end(), name);
    }
    ~one_name() {
      const std::lock_guard lock(of->mutex_);
      of->names_.erase(at);
    }
    one_name(const one_name&) = delete;
    one_name& operator=(const one_name&) = delete;

    ref<open_names> of;
    std::list<std::string>::iterator at;
  };

  open_names() noexcept : counted([](counted& c) noexcept { delete static_cast<open_names*>(&c); }) {}

  mutable slow_mutex mutex_;
  std::list<std::string> names_; // erasing one leaves the iterators to the others valid
};

}}} // namespace dat::v0::detail
