// One error category and one exception type in a process whose shared objects each include dat.
// SPDX-License-Identifier: BSL-1.0
#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <dat/detail/discovery/registered_names.hpp>
#include <dat/detail/posting/ep_posting.hpp>
#include <dat/detail/posting/shared_queue.hpp>

#include <support/catch.hpp>

#include <dlfcn.h>
#include <memory>
#include <system_error>

namespace {

struct closer {
  void operator()(void* object) const { ::dlclose(object); }
};
using shared_object = std::unique_ptr<void, closer>;

shared_object load(const char* path) {
  shared_object object(::dlopen(path, RTLD_NOW | RTLD_LOCAL));
  if (!object) FAIL(::dlerror());
  return object;
}

template <class Function>
Function* find(const shared_object& object, const char* name) {
  void* const symbol = ::dlsym(object.get(), name);
  if (symbol == nullptr) FAIL(::dlerror());
  return reinterpret_cast<Function*>(symbol);
}

using category_function = const std::error_category*() noexcept;
using code_function = void(std::error_code&) noexcept;
using throwing_function = void();
using object_function = const void*() noexcept;
using changing_function = bool(const char*);
using listing_function = bool(const char*);
using opening_function = dat::return_type(const char*) noexcept;

} // namespace

#if defined(DAT_TESTS_EXPORTED)
TEST_CASE("a program that exports its symbols and its plugins agree on what an empty handle names") {
  const auto one = load(DAT_TESTS_OBJECT_ONE);
  const auto two = load(DAT_TESTS_OBJECT_TWO);
  for (const auto* object : {&one, &two}) {
    CHECK(find<object_function>(*object, "the_null_ep")() == &dat::detail::null_ep);
    CHECK(find<object_function>(*object, "the_null_srq")() == &dat::detail::null_srq);
    CHECK(find<object_function>(*object, "the_null_qp")() == dat::detail::null_device_instance.qp());
  }
}
TEST_CASE("a program that exports its symbols and its plugins have one error category", "[ERR-010]") {
  const auto one = load(DAT_TESTS_OBJECT_ONE);
  const auto two = load(DAT_TESTS_OBJECT_TWO);
  auto* const first = find<category_function>(one, "the_category");
  auto* const second = find<category_function>(two, "the_category");
  REQUIRE(first != second); // two different objects
  CHECK(first() == &dat::category());
  CHECK(second() == &dat::category());
  std::error_code code;
  find<code_function>(one, "make_code")(code);
  CHECK(code == dat::error(dat::return_type::timeout_expired).code());
  CHECK(code != dat::error(dat::return_type::queue_full).code());
}
TEST_CASE("a program that exports its symbols and its plugins have one registry", "[MODEL-021][REG-009]") {
  const auto one = load(DAT_TESTS_OBJECT_ONE);
  const auto two = load(DAT_TESTS_OBJECT_TWO);
  // The program's own part of dat. Without it, two plugins that clang has compiled would not find each other.
  const auto own = dat::detail::registered_names::of_process();
  const auto program_has = [&] { return own->has(dat::detail::registered_name::role::added, "shared"); };
  CHECK_FALSE(find<listing_function>(two, "lists")("shared"));
  CHECK(find<opening_function>(two, "opens")("shared") == dat::return_type::provider_not_found);
  REQUIRE(find<changing_function>(one, "adds")("shared"));
  CHECK(program_has());
  CHECK(find<listing_function>(two, "lists")("shared"));
  // The name is found there; it has no device.
  CHECK(find<opening_function>(two, "opens")("shared") == dat::return_type::insufficient_resources);
  CHECK_FALSE(find<changing_function>(two, "adds")("shared"));
  CHECK(find<changing_function>(two, "removes")("shared"));
  CHECK_FALSE(find<listing_function>(one, "lists")("shared"));
  CHECK_FALSE(program_has());
}
#endif

TEST_CASE("a code made in a plugin equals its return type and std::errc in the program") {
  const auto one = load(DAT_TESTS_OBJECT_ONE);
  std::error_code code;
  find<code_function>(one, "make_code")(code);
  CHECK(code == dat::return_type::timeout_expired);
  CHECK(code == std::errc::timed_out);
  CHECK(code != dat::return_type::queue_full);
  CHECK(code != std::errc::address_in_use);
}

TEST_CASE("a failure that one shared object throws is caught in another") {
  const auto one = load(DAT_TESTS_OBJECT_ONE);
  dat::return_type caught = dat::return_type::success;
  try {
    find<throwing_function>(one, "throw_failure")();
  } catch (const dat::failure& thrown) {
    caught = thrown.error().type();
  }
  CHECK(caught == dat::return_type::queue_full);
}
