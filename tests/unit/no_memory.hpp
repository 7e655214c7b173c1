// Flows in which each request for memory fails once in turn.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "allocations.hpp"
#include "world.hpp"

#include <dat/detail/text/remedy.hpp>

#include <string>
#include <utility>

namespace unit {

/// Checks that the error names a resource, the call, the object, and a remedy.
inline void explains(const dat::error& e) {
  INFO(e.message());
  CHECK(to_string(e.type()) == to_string(dat::return_type::insufficient_resources));
  CHECK_FALSE(e.call().empty());
  CHECK(e.object() != dat::object_kind::none);
  CHECK_FALSE(dat::detail::remedy(e).empty());
}

/// The calls of a flow. A call that fails without memory is repeated, and then succeeds.
class no_memory_steps {
public:
  template <class Call>
  auto operator()(Call call) {
    auto r = refusing(call);
    if (r) return must(std::move(r));
    CHECK(out_of_memory::failed());
    explains(r.error());
    reported_ = true;
    return must(refusing(call));
  }
  /// The consumer sees the failure as an event, or as the absence of one.
  void seen(const std::string& what) {
    INFO("instead: " << what);
    REQUIRE(out_of_memory::failed());
    reported_ = true;
  }
  [[nodiscard]] bool reported() const noexcept { return reported_; }

private:
  /// dat reports missing memory and does not throw, so a request that throws ends the program.
  template <class Call>
  static auto refusing(Call& call) noexcept {
    const out_of_memory::throwing all(&fake::inside);
    return call();
  }
  bool reported_ = false;
};

/// Runs the flow in new worlds, each time with the failure of another request for memory, until each has failed. Each
/// failure is reported, and leaves no object behind. Returns the number of failures. `Prepared` is made in each world
/// before the first request can fail.
template <class Prepared, class Flow>
int for_each_allocation_with(Flow flow) {
  for (int n = 0;; ++n) {
    INFO("request for memory number " << n << " fails");
    const clean_world world;
    no_memory_steps step;
    {
      Prepared prepared;
      const out_of_memory limit(n);
      flow(step, prepared);
    }
    if (!out_of_memory::failed()) return n;
    if (!dat::detail::checked_build) CHECK(step.reported()); // a watch that gets no memory watches less
    REQUIRE(n < 200);
  }
}
template <class Flow>
int for_each_allocation(Flow flow) {
  struct nothing {};
  return for_each_allocation_with<nothing>([&](no_memory_steps& step, nothing&) { flow(step); });
}

/// Skips the case if the sanitizer does not let a test refuse memory.
inline void needs_refusals() {
  if (!refuses_allocations) SKIP("the requests for memory belong to the sanitizer");
}

} // namespace unit
