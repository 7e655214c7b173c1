// The size of handles, and the names of enumerators. (objects.cpp has the members that all objects share.)
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/ib_query.hpp>
#include <dat/multicast.hpp>
#include <dat/pool.hpp>
#include <dat/registry.hpp>
#include <dat/srq_attributes.hpp>
#include <dat/ud.hpp>

#include <algorithm>
#include <initializer_list>
#include <set>

using namespace unit;
using dat::object_kind;

TEST_CASE("the common base adds nothing to the size of a handle", "[object][type]") {
  STATIC_REQUIRE(sizeof(dat::ep_ref) == sizeof(void*));
  STATIC_REQUIRE(std::is_trivially_copyable_v<dat::ep_ref>);
  STATIC_REQUIRE(sizeof(dat::ep<dat::rc>) == 2 * sizeof(void*));
  STATIC_REQUIRE(sizeof(dat::evd<dat::stream::dto>) == 2 * sizeof(void*));
  STATIC_REQUIRE(sizeof(dat::pz) == sizeof(void*));
  STATIC_REQUIRE(sizeof(region) == sizeof(void*));
}

TEST_CASE("handles and references are keys of ordered containers, too", "[object]") {
  const clean_world world;
  end a;
  const auto one = must(a.pz.create_ep<dat::rc>(a.evd));
  const auto two = must(a.pz.create_ep<dat::rc>(a.evd));
  std::set<dat::ep_ref> known{one, two, one};
  CHECK(known.size() == 2);
  CHECK(known.contains(two));
  CHECK_FALSE(known.contains(dat::ep_ref()));
  CHECK((one < two) != (two < one));
}

namespace {

/// Checks that the values 0 to last of an enumeration have different names, and that other values have none.
template <class E>
void all_named(E last, std::string_view otherwise) {
  INFO(otherwise);
  std::set<std::string_view> names;
  for (unsigned i = 0; i < 256; ++i) {
    const auto name = to_string(static_cast<E>(i));
    if (i <= static_cast<unsigned>(last)) {
      CHECK(names.insert(name).second);
      CHECK(name.find("unknown ") == std::string_view::npos);
    } else if (name != otherwise) {
      FAIL_CHECK(i << " is called " << name);
    }
  }
}

/// Checks the names in the same way for enumerations with gaps.
template <class E>
void these_named(std::initializer_list<E> values, std::string_view otherwise) {
  INFO(otherwise);
  std::set<std::string_view> names;
  for (unsigned i = 0; i < 256; ++i) {
    const auto name = to_string(static_cast<E>(i));
    if (std::find(values.begin(), values.end(), static_cast<E>(i)) != values.end())
      CHECK((name != otherwise && names.insert(name).second));
    else if (name != otherwise)
      FAIL_CHECK(i << " is called " << name);
  }
}

} // namespace

TEST_CASE("every enumerator has its own name, and other values are called unknown", "[object]") {
  all_named(dat::ep_state::completion_pending, "unknown ep_state");
  all_named(dat::port_state::active_deferred, "unknown port_state");
  all_named(dat::rmr_scope::any, "unknown rmr_scope");
  all_named(dat::srq_state::error, "unknown srq_state");
  all_named(dat::ha_relationship::conflicting, "unknown ha_relationship");
  all_named(dat::pages::huge_or_normal, "unknown pages");
  all_named(dat::ib::membership::send_only, "unknown membership");
  all_named(dat::ib::atomic_scope::global, "unknown atomic_scope");
  these_named({dat::completion_notification::by_default, dat::completion_notification::solicited_wait,
               dat::completion_notification::selective, dat::completion_notification::evd_threshold},
              "unknown completion_notification");
  all_named(dat::address_family::ipv6, "unknown address_family");
  all_named(dat::address_role::remote, "unknown address_role");
  all_named(dat::ep_error::other_error, "unknown ep_error");
  all_named(dat::port_change::client_reregister, "unknown port_change");
  all_named(dat::end_reason::connection_manager, "unknown end_reason");
  all_named(dat::read_resources::shared, "unknown read_resources");
  all_named(dat::extension::none, "unknown extension");
  all_named(dat::iov_ownership::provider_modify, "unknown iov_ownership");
  all_named(dat::mem_type::shared_virtual, "unknown mem_type");
  all_named(dat::psp_creates_ep::always, "unknown psp_creates_ep");
  all_named(dat::pz_support::shareable, "unknown pz_support");
  all_named(dat::ha_load_balancing::intra_connection, "unknown ha_load_balancing");
  all_named(dat::close_mode::graceful, "unknown close_mode");
  all_named(dat::progress::manual, "unknown progress");
  all_named(dat::link_layer::ethernet, "unknown link_layer");
  all_named(dat::service_kind::csp, "unknown service_kind");
  all_named(dat::psp_flags::provider, "unknown psp_flags");
  all_named(object_kind::ep, "unknown object_kind");
}
