// The bytes of each wire form are the same on every machine.
// SPDX-License-Identifier: BSL-1.0
#include <worlds/wire_forms.hpp>

#include <support/catch.hpp>

#include <string>

TEST_CASE("each wire form has these bytes on every machine, and is read back", "[wire]") {
  for (const auto& form : worlds::forms()) {
    INFO(form.name);
    CHECK(worlds::to_hex(form.write()) == form.golden);
    CHECK(form.reads(worlds::from_hex(form.golden)));
  }
}

TEST_CASE("a changed bit of a wire form is noticed, or changes a value", "[wire]") {
  for (const auto& form : worlds::forms()) {
    const auto whole = worlds::from_hex(form.golden);
    REQUIRE_FALSE(whole.empty());
    std::size_t unnoticed = 0;
    for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      auto changed = whole;
      changed[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      unnoticed += form.reads(changed) ? 1 : 0;
    }
    INFO(form.name);
    CHECK(unnoticed == form.free_bits);
  }
}
