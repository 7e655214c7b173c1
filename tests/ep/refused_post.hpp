// Checks the error of a post that is refused.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <support/catch.hpp>

#include <dat/dat.hpp>

namespace unit {

inline void expect(const dat::expected<void>& r, dat::return_type type,
                   dat::return_subtype subtype = dat::return_subtype::none) {
  REQUIRE_FALSE(r);
  CHECK(r.error().type() == type);
  if (subtype != dat::return_subtype::none) CHECK(r.error().subtype() == subtype);
  CHECK(r.error().object() == dat::object_kind::ep);
}

} // namespace unit
