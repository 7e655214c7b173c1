// Agents and signal handlers that act inside a call of the thread that they run on.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <support/streams.hpp>

#include <atomic>
#include <optional>
#include <thread>

using namespace unit;
using dat::return_type;
using support::soft;

TEST_CASE("an agent that polls another cno gets an answer, although the reactor has more work", "[cno][progress]") {
  const clean_world world;
  auto ia = must(dat::ia::open("fk1", manual));
  struct polling {
    dat::evd<soft> more;
    dat::cno polled;
    std::optional<return_type> answer;
  } p{must(ia.create_evd<soft>(8)), must(ia.create_cno()), {}};
  auto busy = must(ia.create_cno({[](void*, dat::evd_id) noexcept {}, nullptr}));
  must(p.more.modify_cno(busy));
  auto evd = must(ia.create_evd<soft>(8));
  auto cno = must(ia.create_cno({[](void* to, dat::evd_id) noexcept {
                                   auto& poll = *static_cast<polling*>(to);
                                   (void)poll.more.post(1); // another agent is due from now on
                                   const auto got = poll.polled.wait(0us);
                                   poll.answer = got ? return_type::success : got.error().type();
                                 },
                                 &p}));
  must(evd.modify_cno(cno));
  must(evd.post(1));
  ia.run();
  CHECK(p.answer == return_type::queue_empty);
}

TEST_CASE("a wait on a cno ends at its limit, although another thread keeps the reactor busy", "[cno][progress]") {
  const clean_world world;
  auto ia = must(dat::ia::open("fk1", manual));
  auto cno = must(ia.create_cno());
  std::atomic<bool> inside{false}, leave{false};
  fake::intercept(fake::call::ibv_get_async_event, [&] {
    if (inside.exchange(true)) return;
    while (!leave) std::this_thread::yield();
  });
  fake::async(IBV_EVENT_PORT_ACTIVE, ia.native_handle());
  {
    std::jthread runner([&] { ia.run(); });
    while (!inside) std::this_thread::yield();
    CHECK(cno.wait(1ms).error().type() == return_type::queue_empty);
    leave = true;
  }
  fake::intercept(fake::call::ibv_get_async_event, {});
}
