// Answers of a datagram service that are kept for peers that repeat their request: for how long, and which end first.
// SPDX-License-Identifier: BSL-1.0
#include <unit/datagram_end.hpp>
#include <unit/lock_waits.hpp>
#include <unit/raw_request.hpp>
#include <unit/world.hpp>

#include <dat/ud.hpp>

#include <dat/detail/datagram/ud_core.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>

namespace unit {

struct core_of_listener {
  friend dat::detail::handle<dat::detail::ud_service> dat::ib::datagram_service::*member(core_of_listener);
};
template struct opened_member<core_of_listener, &dat::ib::datagram_service::core_>;
struct answers_of_service {
  friend dat::detail::ref<dat::detail::reply_cache> dat::detail::ud_service::*member(answers_of_service);
};
template struct opened_member<answers_of_service, &dat::detail::ud_service::answers_>;
struct lock_of_answers {
  friend dat::detail::control_mutex dat::detail::reply_cache::*member(lock_of_answers);
};
template struct opened_member<lock_of_answers, &dat::detail::reply_cache::mutex_>;
struct list_of_answers {
  friend dat::detail::intrusive_list<dat::detail::answered> dat::detail::reply_cache::*member(list_of_answers);
};
template struct opened_member<list_of_answers, &dat::detail::reply_cache::list_>;

} // namespace unit

using namespace unit;

namespace {

using dat::detail::answered;
const dat::ia_address asking_host = must(dat::ia_address::parse("10.99.1.1"));

/// A service that a test peer asks, and its kept answers.
struct asked_service {
  clean_world world;
  datagram_end b{"fk2"};
  dat::ib::datagram_service listener = must(dat::ib::datagram_service::listen(b.ia, service, b.evd));

  /// A request from the port reaches the consumer.
  bool asks(std::uint16_t from) {
    const raw_request r(asking_host.with_port(from), header_of(asking_host), "who");
    return request_of(b.ia, b.evd).has_value(); // dropped, and so refused
  }
  dat::detail::reply_cache& cache() {
    auto& core = listener.*member(core_of_listener());
    return *((*core.operator->()).*member(answers_of_service()));
  }
  dat::detail::intrusive_list<answered>& kept() { return cache().*member(list_of_answers()); }
  std::size_t number() {
    std::size_t n = 0;
    for (auto* a = kept().front(); a; a = kept().after(*a)) ++n;
    return n;
  }
};

} // namespace

TEST_CASE("an answer to a datagram request is kept for 70 seconds, and the request is an event again then", "[ud]") {
  using namespace std::chrono_literals;
  using dat::detail::clock;
  asked_service s;
  const auto before = clock::now();
  REQUIRE(s.asks(40001));
  const auto after = clock::now();
  REQUIRE(s.number() == 1);
  CHECK(s.kept().front()->until >= before + 70s);
  CHECK(s.kept().front()->until <= after + 70s);
  CHECK_FALSE(s.asks(40001)); // repeated
  s.kept().front()->until = clock::now();
  CHECK(s.asks(40001));
  CHECK(s.number() == 1);
  CHECK(s.kept().front()->until >= before + 70s);
}

TEST_CASE("a new answer of a datagram service drops those that are too old, and no other", "[ud]") {
  asked_service s;
  for (const std::uint16_t port : std::array<std::uint16_t, 3>{40001, 40002, 40003}) REQUIRE(s.asks(port));
  s.kept().front()->until = dat::detail::clock::now();
  REQUIRE(s.asks(40004));
  CHECK(s.number() == 3);
  CHECK_FALSE(s.asks(40002));
  CHECK_FALSE(s.asks(40003));
}

TEST_CASE("answers of a datagram service that are too old leave their room to others", "[ud]") {
  asked_service s;
  for (std::uint16_t i = 0; i < 300; ++i) {
    REQUIRE(s.asks(static_cast<std::uint16_t>(40000 + i)));
    s.kept().front()->until = dat::detail::clock::now();
  }
  for (std::uint16_t i = 0; i < 3; ++i) REQUIRE(s.asks(static_cast<std::uint16_t>(41000 + i)));
  CHECK(s.number() == 3);
}

TEST_CASE("an answer to a datagram request, and a request that may repeat one, wait while the answers change", "[ud]") {
  asked_service s;
  dat::detail::control_mutex& lock = s.cache().*member(lock_of_answers());
  const raw_request first(asking_host.with_port(40001), header_of(asking_host), "who");
  auto request = request_of(s.b.ia, s.b.evd);
  REQUIRE(request);
  bool rejected = false;
  CHECK(locked_out(lock, [&] { rejected = request->reject().has_value(); }));
  CHECK(rejected);
  REQUIRE(s.number() == 1);
  const raw_request second(asking_host.with_port(40002), header_of(asking_host), "who");
  CHECK(locked_out(lock, [&] { s.b.ia.run(); }));
  CHECK(request_of(s.b.ia, s.b.evd));
}
