// An evd without a connection: software events, resizing, waitability, parameters, and invalid calls.
// SPDX-License-Identifier: BSL-1.0
#include "../support/worker.hpp"
#include "one_evd.hpp"
#include <support/streams.hpp>

#include <dat/ep_params.hpp>

#include <optional>

using namespace one_evd;
using namespace std::chrono_literals;
using dat::return_subtype;
using dat::return_type;
using rig::must;
using rig::patience;
using support::worker;

TEST_CASE("software events are taken in the order of posting", "[EVD-069][EVD-072][EVD-073][EVD-045]"
                                                               "[REQ-160][MODEL-027]") {
  rig::begin();
  queue<soft> q;
  int object = 0;
  must(q.evd.post(1));
  must(q.evd.post(&object));
  must(q.evd.post(~std::uint64_t{0}));
  CHECK(number(must(q.evd.wait(patience))) == 1); // posted before the wait
  SHOWS("EVD-060");
  CHECK(std::get<dat::software_event>(must(q.evd.dequeue())).cookie().as<int*>() == &object);
  CHECK(number(must(q.evd.dequeue())) == ~std::uint64_t{0});
  SHOWS("EVENT-033", "REQ-150");
  CHECK(q.evd.dequeue().error() == dat::error(return_type::queue_empty));
}

TEST_CASE("a software event beyond the capacity is refused and changes nothing", "[EVENT-070][EVENT-076][EVD-069]"
                                                                                 "[REQ-161]") {
  rig::begin();
  queue<soft> q(4);
  for (std::uint64_t i = 0; i < 4; ++i) must(q.evd.post(i));
  CHECK(q.evd.post(4).error() == dat::error(return_type::queue_full));
  CHECK(must(q.evd.query()).qlen == 4); // as many events as it has taken
  CHECK(number(must(q.evd.dequeue())) == 0);
  must(q.evd.post(5)); // there is room again
  for (const std::uint64_t i : {1u, 2u, 3u, 5u}) CHECK(number(must(q.evd.dequeue())) == i);
  SHOWS("EVENT-075", "EVD-002");
  // A disabled and unwaitable evd keeps queueing, and fills up as well.
  must(q.evd.disable());
  must(q.evd.set_unwaitable());
  for (std::uint64_t i = 0; i < 4; ++i) must(q.evd.post(i));
  CHECK(q.evd.post(4).error() == dat::error(return_type::queue_full));
  SHOWS("EVENT-080", "EVD-034");
  CHECK(number(must(q.evd.dequeue())) == 0); // its events can still be taken
  SHOWS("EVENT-060", "EVD-065", "EVENT-102");
  CHECK(q.ia.async_evd().dequeue().error() == dat::error(return_type::queue_empty)); // no overflow is reported
}

TEST_CASE("an unwaitable evd refuses waits, and its events can still be taken",
          "[EVD-032][EVD-034][EVENT-063][EVENT-060][EVD-065]") {
  rig::begin();
  queue<soft> q;
  CHECK(q.evd.waitable());
  must(q.evd.post(1));
  for (int twice = 0; twice < 2; ++twice) must(q.evd.set_unwaitable());
  CHECK_FALSE(q.evd.waitable());
  CHECK_FALSE(must(q.evd.query()).waitable);
  CHECK(q.evd.wait(patience).error() == dat::error(return_type::invalid_state, return_subtype::evd_unwaitable));
  SHOWS("EVD-058", "ERR-034");
  CHECK(q.evd.wait(patience, 1).error() == dat::error(return_type::invalid_state, return_subtype::evd_unwaitable));
  must(q.evd.post(2));
  CHECK(number(must(q.evd.dequeue())) == 1);
  for (int twice = 0; twice < 2; ++twice) must(q.evd.clear_unwaitable());
  CHECK(q.evd.waitable());
  CHECK(must(q.evd.query()).waitable);
  CHECK(number(must(q.evd.wait(patience))) == 2);
  SHOWS("EVENT-059");
}

TEMPLATE_TEST_CASE_SIG("making an evd unwaitable releases its waiter, which takes nothing",
                       "[EVENT-057][EVD-033][EVD-035]", ((dat::streams S), S), dat::stream::dto, soft, mixed) {
  rig::begin();
  queue<S> q;
  for (const bool at_once : {false, true}) {
    worker other([&](worker& w) {
      until_waited(q.evd);
      w.check(q.evd.set_unwaitable().has_value());
      if (at_once) w.check(q.evd.clear_unwaitable().has_value()); // the waiter leaves in any case
    });
    CHECK(q.evd.wait(dat::infinite).error() == dat::error(return_type::invalid_state, return_subtype::evd_unwaitable));
    other.join();
    CHECK(q.evd.waitable() == at_once);
    SHOWS("EVD-050");
    must(q.evd.clear_unwaitable());
  }
  CHECK(q.evd.wait(0us).error() == dat::error(return_type::timeout_expired));
}

TEST_CASE("a resize keeps the queued events", "[EVD-036][EVD-037][EVD-039]") {
  rig::begin();
  queue<mixed> q(4);
  for (std::uint64_t i = 0; i < 4; ++i) must(q.evd.post(i));
  CHECK(q.evd.post(4).error() == dat::error(return_type::queue_full));
  must(q.evd.resize(100));
  CHECK(q.evd.capacity() >= 100); // when the call has returned
  SHOWS("EVD-043");
  for (std::uint64_t i = 4; i < 100; ++i) must(q.evd.post(i));
  std::uint64_t next = 0;
  while (q.evd.drain([&](auto& e) {
    if constexpr (std::is_same_v<std::decay_t<decltype(e)>, dat::software_event>) CHECK(e.cookie().value() == next++);
  }) != 0) {
  }
  CHECK(next == 100);
  SHOWS("REQ-152");
  must(q.evd.resize(20));
  CHECK(q.evd.capacity() >= 20);
  for (std::uint64_t i = 0; i < 20; ++i) must(q.evd.post(i));
  CHECK(q.evd.drain([](auto&) {}) == 20);
  must(q.evd.resize(1));
  CHECK(q.evd.capacity() >= 1);
}

TEST_CASE("a resize that would lose events, or is out of range, changes nothing", "[EVD-038][EVD-040][EVD-042]") {
  rig::begin();
  queue<mixed> q(8);
  for (std::uint64_t i = 0; i < 5; ++i) must(q.evd.post(i));
  CHECK(q.evd.resize(3).error().type() == return_type::invalid_state);
  for (const std::uint32_t bad : {0u, 1u << 30, ~0u})
    CHECK(q.evd.resize(bad).error() == dat::error(return_type::invalid_parameter, return_subtype::arg2));
  CHECK(q.evd.capacity() == 8);
  for (std::uint64_t i = 5; i < 8; ++i) must(q.evd.post(i));
  CHECK(q.evd.post(8).error() == dat::error(return_type::queue_full));
  for (std::uint64_t i = 0; i < 8; ++i)
    CHECK(std::get<dat::software_event>(must(q.evd.dequeue())).cookie() == dat::cookie(i));
}

TEST_CASE("a resize lets a wait for a threshold continue", "[EVD-043]") {
  rig::begin();
  queue<soft> q(4);
  worker other([&](worker& w) {
    until_waited(q.evd);
    w.check(q.evd.resize(16).has_value());
    for (std::uint64_t i = 0; i < 3; ++i) w.check(q.evd.post(i).has_value());
  });
  CHECK(must(q.evd.wait(patience, 3)).more == 2);
  other.join();
  CHECK(q.evd.capacity() >= 16);
}

TEST_CASE("a closed or empty evd answers every call with invalid_handle", "[EVD-017][EVENT-103]") {
  rig::begin();
  dat::evd<soft> empty;
  queue<soft> q;
  must(q.ia.close(dat::close_mode::abrupt));
  CHECK(empty.wait(0us, 0).error().type() == return_type::invalid_handle);
  SHOWS("EVD-046"); // a wrong handle comes before a wrong parameter
  for (auto* e : {&empty, &q.evd}) {
    CHECK(e->post(1).error().type() == return_type::invalid_handle);
    CHECK(e->wait(0us).error().type() == return_type::invalid_handle);
    CHECK(e->wait(0us, 1).error().type() == return_type::invalid_handle);
    CHECK(e->dequeue().error().type() == return_type::invalid_handle);
    CHECK(e->wake().error().type() == return_type::invalid_handle);
    CHECK(e->wait_and_drain([](auto&) {}, 0us).error().type() == return_type::invalid_handle);
    CHECK(e->set_unwaitable().error().type() == return_type::invalid_handle);
    CHECK(e->clear_unwaitable().error().type() == return_type::invalid_handle);
    CHECK(e->resize(8).error().type() == return_type::invalid_handle);
    CHECK(e->enable().error().type() == return_type::invalid_handle);
    CHECK(e->disable().error().type() == return_type::invalid_handle);
    CHECK(e->modify_cno({}).error().type() == return_type::invalid_handle);
    CHECK(e->drain([](auto&) {}) == 0);
    CHECK(e->close().error().type() == return_type::invalid_handle);
    SHOWS("EVENT-102", "EVD-027", "EVD-029", "EVD-032", "EVD-069");
  }
}

TEST_CASE("wait_for leaves software events in their order", "[EVENT-040]") {
  rig::begin();
  queue<soft> q;
  must(q.evd.post(1));
  CHECK(must(q.evd.wait_for<dat::software_event>(patience)).cookie().value() == 1);
}

namespace {

template <class T>
concept evd_query_takes_a_mask = requires(T& evd, std::uint64_t mask) {
  evd.query(mask);
};

} // namespace

TEST_CASE("evd.query reports the parameters of the evd", "[EVD-007][EVD-020][EVD-021][EVD-022][EVENT-102]"
                                                         "[ERR-042]") {
  rig::begin();
  auto ia = rig::open(rig::manual);
  auto evd = must(ia.create_evd<mixed>(5));
  STATIC_REQUIRE_FALSE(evd_query_takes_a_mask<dat::evd<mixed>>); // a query returns all members, so no mask can be wrong
  auto a = must(evd.query());
  CHECK(a.streams == mixed);
  CHECK(a.qlen >= 5);
  CHECK(a.enabled);
  CHECK(a.waitable);
  CHECK(a.config == dat::completion_notification::evd_threshold);
  CHECK_FALSE(a.cno);
  CHECK(evd.owner() == ia.identity());
  auto cno = must(ia.create_cno());
  auto other = must(ia.create_cno());
  must(evd.modify_cno(cno));
  // Enabled and waitable change one at a time.
  must(evd.disable());
  CHECK((!must(evd.query()).enabled && must(evd.query()).waitable));
  must(evd.enable());
  must(evd.set_unwaitable());
  CHECK((must(evd.query()).enabled && !must(evd.query()).waitable));
  must(evd.disable());
  must(evd.resize(50));
  a = must(evd.query());
  CHECK(a.qlen >= 50);
  SHOWS("EVD-002");
  CHECK_FALSE(a.enabled);
  CHECK_FALSE(a.waitable);
  CHECK(a.cno == cno);
  CHECK_FALSE(a.cno == other);
  must(evd.modify_cno({}));
  CHECK_FALSE(must(evd.query()).cno);
  const auto nothing = must(dat::evd<mixed>().query()); // the null evd can be queried, and has no other effect
  CHECK(nothing.streams == dat::streams{});
  CHECK(nothing.qlen == 0);
  CHECK_FALSE(nothing.enabled);
  CHECK(dat::evd<mixed>().wait(0s).error().type() == return_type::invalid_handle);
  must(cno.close());
  must(other.close());
  must(ia.close());
  CHECK(evd.query().error().type() == return_type::invalid_handle);
}

TEST_CASE("evd.query returns values that the evd had at the same time, while another thread changes them",
          "[EVD-020]") {
  rig::begin();
  auto ia = rig::open(rig::manual);
  auto evd = must(ia.create_evd<mixed>(5));
  auto cno = must(ia.create_cno());
  std::atomic<bool> over{false};
  // The evd is never unwaitable while it is enabled, and has no cno then.
  worker other([&](worker& w) {
    for (int i = 0; i < 10000; ++i)
      w.check(evd.disable() && evd.set_unwaitable() && evd.modify_cno(cno) && evd.modify_cno({}) &&
              evd.clear_unwaitable() && evd.enable());
    over = true;
  });
  int mixtures = 0;
  do {
    const auto a = evd.query();
    if (!a || (a.assume_value().enabled && (!a.assume_value().waitable || a.assume_value().cno))) ++mixtures;
  } while (!over);
  other.join();
  CHECK(mixtures == 0);
}

TEST_CASE("an invalid call on an evd returns its name, the evd and a remedy, and has no effect", "[evd]") {
  rig::begin();
  adapter a;
  auto evd = must(a.ia.create_evd<mixed>(8));
  const auto answered = [&](const dat::error& e, return_type type, std::string_view call, std::string_view remedy) {
    const std::string text = e.message();
    INFO(text);
    CHECK(e.type() == type);
    CHECK(text.starts_with(std::string(call) + " on evd " + std::to_string(evd.id().number())));
    CHECK(text.find(remedy) != std::string::npos);
  };
  for (std::uint64_t i = 0; i < 5; ++i) must(evd.post(i));
  answered(evd.wait(patience, 9).error(), return_type::invalid_parameter, "evd.wait", "at most the evd's capacity");
  SHOWS("EVD-048");
  answered(evd.resize(3).error(), return_type::invalid_state, "evd.resize", "Take them first");
  must(evd.set_unwaitable());
  answered(evd.wait(patience).error(), return_type::invalid_state, "evd.wait", "Make the evd waitable again");
  SHOWS("EVENT-063");
  must(evd.clear_unwaitable());
  {
    const auto ep = must(a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd},
                                                 {.recv_completion = dat::completion_notification::selective,
                                                  .request_completion = dat::completion_notification::selective}));
    answered(evd.wait(patience, 2).error(), return_type::invalid_state, "evd.wait", "Wait for one event at a time");
    SHOWS("EVD-049", "EVENT-048");
    answered(evd.close().error(), return_type::invalid_state, "evd.close", "Free the endpoints");
    SHOWS("EVD-015");
  }
  for (std::uint64_t i = 0; i < 5; ++i)
    CHECK(std::get<dat::software_event>(must(evd.dequeue())).cookie() == dat::cookie(i));
  SHOWS("EVD-038");
  std::optional<dat::error> wait, dequeue, close;
  worker other([&](worker& w) {
    until_waited(evd);
    wait = evd.wait(patience).error();
    dequeue = evd.dequeue().error();
    close = evd.close().error();
    w.check(evd.post(5).has_value());
  });
  CHECK(std::get<dat::software_event>(must(evd.wait(patience))).cookie() == dat::cookie(5));
  other.join();
  answered(*wait, return_type::invalid_state, "evd.wait", "Only one thread at a time");
  answered(*dequeue, return_type::invalid_state, "evd.dequeue", "Only one thread at a time");
  SHOWS("EVENT-054");
  answered(*close, return_type::invalid_state, "evd.close", "Release it first");
  must(evd.close());
}
