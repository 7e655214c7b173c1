// Events: the types of an evd's variant, their members, and how they compare.
// SPDX-License-Identifier: BSL-1.0
#include <dat/dat.hpp>

#include <support/catch.hpp>

#include <type_traits>
#include <unordered_set>
#include <variant>

using dat::event;

// The type of an evd names the events that it can deliver.
static_assert(
    std::is_same_v<event<dat::stream::dto>,
                   std::variant<dat::send_done, dat::recv_done, dat::rdma_write_done, dat::rdma_read_done,
                                dat::dto_failure, dat::ib::recv_immediate_done, dat::ib::recv_write_immediate_done,
                                dat::ib::rdma_write_immediate_done, dat::ib::fetch_and_add_done,
                                dat::ib::compare_and_swap_done, dat::ib::atomic_write_done, dat::ib::flush_done>>);
static_assert(std::is_same_v<event<dat::stream::connection>,
                             std::variant<dat::established, dat::peer_rejected, dat::non_peer_rejected,
                                          dat::accept_completion_error, dat::disconnected, dat::connection_broken,
                                          dat::connection_timed_out, dat::connection_unreachable>>);
static_assert(std::is_same_v<event<dat::stream::connection_requests>, std::variant<dat::cr>>);
static_assert(std::is_same_v<dat::connection_request, dat::cr>);
static_assert(std::variant_size_v<event<dat::stream::dto | dat::stream::connection>> == 20);
static_assert(std::variant_size_v<event<dat::stream::dto | dat::stream::connection_requests>> == 13);
static_assert(std::variant_size_v<event<dat::stream::connection | dat::stream::connection_requests>> == 9);
static_assert(
    std::variant_size_v<event<dat::stream::dto | dat::stream::connection | dat::stream::connection_requests>> == 21);
static_assert(std::is_same_v<event<dat::stream::connection | dat::stream::dto>,
                             event<dat::stream::dto | dat::stream::connection>>);

// Completions are small values; a request has one owner.
static_assert(sizeof(dat::recv_done) <= 16 + sizeof(dat::cookie) &&
              sizeof(dat::dto_failure) <= 24 + sizeof(dat::cookie));
static_assert(std::is_trivially_copyable_v<dat::recv_done> && std::is_trivially_copyable_v<dat::dto_failure>);
static_assert(std::is_nothrow_move_constructible_v<dat::cr> && !std::is_copy_constructible_v<dat::cr>);
static_assert(std::is_copy_constructible_v<dat::established> && std::is_nothrow_move_constructible_v<dat::established>);

// Only the library can construct events.
static_assert(!std::is_default_constructible_v<dat::recv_done> && !std::is_default_constructible_v<dat::established>);
static_assert(!std::is_default_constructible_v<dat::dto_failure> &&
              !std::is_default_constructible_v<dat::connection_broken>);

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
template <class E>
constexpr bool has_invalidated = requires(const E& e) {
  e.invalidated();
};
} // namespace

TEST_CASE("an event has only the members that are valid for it",
          "[type][EVENT-012][EVENT-020][DTO-066][DTO-119][DTO-048][SRQ-085][DOCA-028]") {
  STATIC_REQUIRE(has_bytes<dat::recv_done>);
  STATIC_REQUIRE(has_bytes<dat::send_done>);
  STATIC_REQUIRE_FALSE(has_bytes<dat::dto_failure>);
  STATIC_REQUIRE(has_status<dat::dto_failure>);
  STATIC_REQUIRE_FALSE(has_status<dat::recv_done>);
  STATIC_REQUIRE(has_immediate<dat::ib::recv_immediate_done>);
  STATIC_REQUIRE(has_immediate<dat::ib::recv_write_immediate_done>);
  STATIC_REQUIRE_FALSE(has_immediate<dat::recv_done>);
  STATIC_REQUIRE_FALSE(has_immediate<dat::ib::rdma_write_immediate_done>);
  STATIC_REQUIRE_FALSE(has_immediate<dat::dto_failure>);
  STATIC_REQUIRE(has_invalidated<dat::recv_done>);
  STATIC_REQUIRE_FALSE(has_invalidated<dat::dto_failure>);
  STATIC_REQUIRE(has_private_data<dat::established>);
  STATIC_REQUIRE(has_private_data<dat::peer_rejected>);
  STATIC_REQUIRE_FALSE(has_private_data<dat::non_peer_rejected>);
  STATIC_REQUIRE_FALSE(has_private_data<dat::disconnected>);
}

TEST_CASE("an empty ep_ref returns empty values") {
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

TEST_CASE("overloaded makes one visitor of several lambdas") {
  const dat::overloaded f{[](int) { return 1; }, [](const char*) { return 2; }, [](const auto&) { return 3; }};
  CHECK(f(0) == 1);
  CHECK(f("x") == 2);
  CHECK(f(0.5) == 3);
}
