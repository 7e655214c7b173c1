// A device that was reset, unbound or removed: its descriptors are dead, and no wait lasts or spins because of it.
// SPDX-License-Identifier: BSL-1.0
#include "../support/worker.hpp"
#include "async_events.hpp"
#include "world.hpp"

#include <dat/detail/handle/core_access.hpp>

#include <pthread.h>
#include <unistd.h>

using namespace unit;
using dat::return_type;
using support::worker;

namespace {

template <dat::streams S>
struct fed {
  explicit fed(const dat::ia_options& options)
      : a("fk1", options),
        evd(must(a.ia.create_evd<S>(64))),
        ep(must(a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd}))) {}
  end a;
  dat::evd<S> evd;
  dat::ep<dat::rc> ep;
};
template <dat::streams S>
void until_waited(dat::evd<S>& evd) {
  for (;;) {
    const auto e = evd.dequeue();
    if (!e && e.error().subtype() == dat::return_subtype::evd_waiter) return;
    std::this_thread::yield();
  }
}

} // namespace

TEMPLATE_TEST_CASE_SIG("a wait on an evd of a removed device fails at once", "[evd]", ((dat::streams S), S),
                       dat::stream::dto, dat::stream::dto | dat::stream::software) {
  const clean_world clean;
  fed<S> f(GENERATE(0, 1) == 0 ? automatic : manual);
  fake::kill_descriptors("fk1");
  const auto armed = fake::count(fake::call::ibv_req_notify_cq);
  for (int i = 0; i < 3; ++i) {
    const auto r = f.evd.wait(plenty);
    is_error(r, return_type::internal_error);
    CHECK_THAT(r.error().message(), support::contains_text("reset, removed or unbound"));
  }
  CHECK(fake::count(fake::call::ibv_req_notify_cq) <= armed + 3); // no loop
}

TEST_CASE("a wait ends at once when the descriptor that wakes it is dead", "[evd]") {
  const clean_world clean;
  fed<dat::stream::dto> f(manual);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  ::close(ends[1]); // from here on the other end has hung up
  dat::detail::wakeup& waking = dat::detail::core_access::of(f.evd)->waking();
  REQUIRE(waking.open() == 0);
  REQUIRE(::dup2(ends[0], waking.fd()) >= 0);
  ::close(ends[0]);
  is_error(f.evd.wait(plenty), return_type::abort, dat::return_subtype::interrupted);
}

TEST_CASE("a sleeping wait ends with an error when the device is removed", "[evd]") {
  const clean_world clean;
  fed<dat::stream::dto> f(automatic);
  worker waiter([&](worker& w) {
    const auto r = f.evd.wait(plenty);
    w.check(!r && r.error().type() == return_type::internal_error);
  });
  until_waited(f.evd);
  fake::kill_descriptors("fk1");
  waiter.join();
}

TEST_CASE("queued events can be taken after the device was removed", "[evd]") {
  const clean_world clean;
  fed<dat::stream::dto | dat::stream::software> f(manual);
  must(f.evd.post(7));
  fake::kill_descriptors("fk1");
  CHECK(std::get<dat::software_event>(must(f.evd.wait(plenty))).cookie() == dat::cookie(7));
  is_error(f.evd.wait(plenty), return_type::internal_error);
}

TEST_CASE("the reactor stops watching a dead completion channel", "[evd][reactor]") {
  const clean_world clean;
  fed<dat::stream::dto | dat::stream::software> f(manual);
  auto cno = must(f.a.ia.create_cno());
  must(f.evd.modify_cno(cno));
  (void)cno.wait(0us);
  fake::kill_descriptors("fk1");
  const auto reads = fake::count(fake::call::ibv_get_cq_event);
  for (int i = 0; i < 50; ++i) f.a.ia.run();
  CHECK(fake::count(fake::call::ibv_get_cq_event) == reads + 1); // the descriptor itself shows that the channel is dead
  CHECK(take_async<dat::provider_internal_error>(f.a.ia) >= 1);
  CHECK(cno.wait(0us)); // the trigger wakes the consumer, which then gets the error
}

TEST_CASE("a wait whose sleeps all end early still ends at its deadline", "[evd]") {
  const clean_world clean;
  fed<dat::stream::dto> f(automatic);
  fake::forge(f.evd.native_handle(), ibv_wc{}); // a completion of no endpoint ends the sleep and is no event
  is_error(f.evd.wait(1us), return_type::timeout_expired);
}

TEST_CASE("a cancelled thread ends after its wait has returned", "[evd][cno]") {
  const clean_world clean;
  auto ia = must(dat::ia::open("fk1", automatic));
  auto evd = must(ia.create_evd<dat::stream::software>(8));
  struct shared {
    dat::evd<dat::stream::software>* evd;
    bool came_back = false;
    bool went_on = false;
  } s{&evd};
  pthread_t t{};
  REQUIRE(pthread_create(
              &t, nullptr,
              [](void* p) -> void* {
                auto& mine = *static_cast<shared*>(p);
                mine.came_back = mine.evd->wait(plenty).has_value();
                pthread_testcancel();
                mine.went_on = true;
                return nullptr;
              },
              &s) == 0);
  until_waited(evd);
  REQUIRE(pthread_cancel(t) == 0);
  must(evd.post(1));
  void* result = nullptr;
  REQUIRE(pthread_join(t, &result) == 0);
  CHECK(result == PTHREAD_CANCELED);
  CHECK(s.came_back);
  CHECK_FALSE(s.went_on);
  CHECK(evd.wait(0us).error().type() == return_type::timeout_expired); // the evd can be waited on again
}
