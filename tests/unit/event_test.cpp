// Events: which types an evd's variant has, what they hold, and how they compare.
// SPDX-License-Identifier: BSL-1.0
#include <dat/dat.hpp>

#include <support/catch.hpp>

#include <type_traits>
#include <unordered_set>
#include <variant>

using dat::event;

// What an evd can deliver is in its type, no more and no less.
static_assert(
    std::is_same_v<event<dat::dto>, std::variant<dat::sent, dat::received, dat::rdma_write_done, dat::rdma_read_done,
                                                 dat::dto_failure, dat::ib::received_immediate,
                                                 dat::ib::received_write_immediate, dat::ib::rdma_write_immediate_done,
                                                 dat::ib::fetch_and_add_done, dat::ib::compare_and_swap_done>>);
static_assert(
    std::is_same_v<event<dat::connection>, std::variant<dat::established, dat::peer_rejected, dat::non_peer_rejected,
                                                        dat::accept_completion_error, dat::disconnected, dat::broken,
                                                        dat::timed_out, dat::unreachable>>);
static_assert(std::is_same_v<event<dat::connection_requests>, std::variant<dat::cr>>);
static_assert(std::is_same_v<dat::connection_request, dat::cr>);
static_assert(std::variant_size_v<event<dat::dto | dat::connection>> == 18);
static_assert(std::variant_size_v<event<dat::dto | dat::connection_requests>> == 11);
static_assert(std::variant_size_v<event<dat::connection | dat::connection_requests>> == 9);
static_assert(std::variant_size_v<event<dat::dto | dat::connection | dat::connection_requests>> == 19);
static_assert(std::is_same_v<event<dat::connection | dat::dto>, event<dat::dto | dat::connection>>);

// Completions are small values; requests can be taken by one owner only.
static_assert(sizeof(dat::received) <= 24 && sizeof(dat::dto_failure) <= 32);
static_assert(std::is_trivially_copyable_v<dat::received> && std::is_trivially_copyable_v<dat::dto_failure>);
static_assert(std::is_nothrow_move_constructible_v<dat::cr> && !std::is_copy_constructible_v<dat::cr>);
static_assert(std::is_copy_constructible_v<dat::established> && std::is_nothrow_move_constructible_v<dat::established>);

// Nobody but the library makes events.
static_assert(!std::is_default_constructible_v<dat::received> && !std::is_default_constructible_v<dat::established>);
static_assert(!std::is_default_constructible_v<dat::dto_failure> && !std::is_default_constructible_v<dat::broken>);

namespace {
template <class E>
constexpr bool has_bytes = requires(const E& e) {
  e.bytes();
};
template <class E>
constexpr bool has_status = requires(const E& e) {
  e.status();
};
template <class E>
constexpr bool has_private_data = requires(const E& e) {
  e.private_data();
};
template <class E>
constexpr bool has_immediate = requires(const E& e) {
  e.immediate();
};
} // namespace

TEST_CASE("an event has only what is valid for it", "[EVENT-020][DTO-066][DTO-119][DTO-048]") {
  STATIC_REQUIRE(has_bytes<dat::received>);
  STATIC_REQUIRE(has_bytes<dat::sent>);
  STATIC_REQUIRE_FALSE(has_bytes<dat::dto_failure>);
  STATIC_REQUIRE(has_status<dat::dto_failure>);
  STATIC_REQUIRE_FALSE(has_status<dat::received>);
  STATIC_REQUIRE(has_immediate<dat::ib::received_immediate>);
  STATIC_REQUIRE(has_immediate<dat::ib::received_write_immediate>);
  STATIC_REQUIRE_FALSE(has_immediate<dat::received>);
  STATIC_REQUIRE_FALSE(has_immediate<dat::ib::rdma_write_immediate_done>);
  STATIC_REQUIRE(has_private_data<dat::established>);
  STATIC_REQUIRE(has_private_data<dat::peer_rejected>);
  STATIC_REQUIRE_FALSE(has_private_data<dat::non_peer_rejected>);
  STATIC_REQUIRE_FALSE(has_private_data<dat::disconnected>);
}

TEST_CASE("an ep_ref that names nothing answers everything with nothing") {
  const dat::ep_ref none;
  CHECK_FALSE(none);
  CHECK(none == dat::ep_ref());
  CHECK(none.number() == 0);
  CHECK(none.state() == dat::ep_state::disconnected);
  const auto r = none.post(dat::recv{});
  REQUIRE_FALSE(r);
  CHECK(r.error().type() == dat::return_type::invalid_handle);
  CHECK(r.error().subtype() == dat::return_subtype::handle_ep);
  std::unordered_set<dat::ep_ref> set{none, dat::ep_ref()};
  CHECK(set.size() == 1);
}

TEST_CASE("overloaded makes one visitor of several") {
  const dat::overloaded f{[](int) { return 1; }, [](const char*) { return 2; }, [](const auto&) { return 3; }};
  CHECK(f(0) == 1);
  CHECK(f("x") == 2);
  CHECK(f(0.5) == 3);
}
