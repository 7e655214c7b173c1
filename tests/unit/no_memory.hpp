// Flows in which each request for memory fails once in turn.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "allocations.hpp"
#include "world.hpp"

#include <dat/detail/text/remedy.hpp>

#include <string>
#include <type_traits>
#include <utility>

namespace unit {

/// Checks that the error names a resource, the call, the object, and what helps.
inline void explains(const dat::error& e) {
  INFO(e.message());
  CHECK(to_string(e.type()) == to_string(dat::return_type::insufficient_resources));
  CHECK_FALSE(e.call().empty());
  CHECK(e.object() != dat::object_kind::none);
  CHECK_FALSE(dat::detail::remedy(e).empty());
}

/// The calls of a flow. A call that fails for want of memory is repeated, and then succeeds.
class no_memory_steps {
public:
  template <class Call>
  auto operator()(Call call) {
    auto r = call();
    if (!r) {
      CHECK(out_of_memory::failed());
      explains(r.error());
      reported_ = true;
      r = call();
      if (!r) FAIL("failed again: " << r.error().message());
    }
    if constexpr (std::is_void_v<std::remove_reference_t<decltype(r.value())>>)
      return;
    else
      return std::move(r).value();
  }
  /// An event, or its absence, is what the consumer sees of the failure.
  void seen(const std::string& what) {
    INFO("instead: " << what);
    REQUIRE(out_of_memory::failed());
    reported_ = true;
  }
  [[nodiscard]] bool reported() const noexcept { return reported_; }

private:
  bool reported_ = false;
};

/// Runs the flow in new worlds until no request for memory is left that could fail. Each failure is reported, and
/// leaves nothing behind. Returns the number of failures.
template <class Flow>
int for_each_allocation(Flow flow) {
  for (int n = 0;; ++n) {
    INFO("request for memory number " << n << " fails");
    const clean_world world;
    no_memory_steps step;
    {
      const out_of_memory limit(n);
      flow(step);
    }
    if (!out_of_memory::failed()) return n;
    CHECK(step.reported());
    REQUIRE(n < 200);
  }
}

} // namespace unit
