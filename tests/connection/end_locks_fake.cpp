// The locks of connections that begin and end, of the list of an ia's objects, and of what a cno and an evd share with
// the reactor: what waits for each.
// SPDX-License-Identifier: BSL-1.0
#include "lock_waits.hpp"

#include <dat/cno.hpp>
#include <dat/descriptor.hpp>
#include <dat/ep_params.hpp>
#include <dat/rsp.hpp>
#include <dat/srq.hpp>

#include <dat/detail/connection/connection_state.hpp>
#include <dat/detail/connection/service_point.hpp>
#include <dat/detail/events/cno_core.hpp>
#include <dat/detail/events/evd_core.hpp>
#include <dat/detail/handle/core_access.hpp>

#include <support/streams.hpp>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <optional>
#include <poll.h>
#include <pthread.h>

namespace unit {

struct lock_of_user {
  friend dat::detail::control_mutex dat::detail::connection_state::*member(lock_of_user);
};
template struct opened_member<lock_of_user, &dat::detail::connection_state::user_mutex_>;

struct lock_of_shared_cno {
  friend dat::detail::control_mutex dat::detail::cno_core::*member(lock_of_shared_cno);
};
template struct opened_member<lock_of_shared_cno, &dat::detail::cno_core::mutex_>;

struct unseen_trigger {
  friend bool dat::detail::cno_core::*member(unseen_trigger);
};
template struct opened_member<unseen_trigger, &dat::detail::cno_core::unseen_>;

struct taking_of_cno {
  friend bool (dat::detail::cno_core::*member(taking_of_cno))(std::uint64_t&) noexcept;
};
template struct opened_member<taking_of_cno, &dat::detail::cno_core::take>;

struct lock_of_watch {
  friend dat::detail::control_mutex dat::detail::evd_core::*member(lock_of_watch);
};
template struct opened_member<lock_of_watch, &dat::detail::evd_core::cno_mutex_>;

struct lock_of_feeds {
  friend dat::detail::control_mutex dat::detail::evd_core::*member(lock_of_feeds);
};
template struct opened_member<lock_of_feeds, &dat::detail::evd_core::feed_mutex_>;

struct lock_of_service_point {
  friend dat::detail::control_mutex dat::detail::service_point::*member(lock_of_service_point);
};
template struct opened_member<lock_of_service_point, &dat::detail::service_point::mutex_>;

struct reserved_endpoint {
  friend dat::detail::ref<dat::detail::ia_child> dat::detail::service_point::*member(reserved_endpoint);
};
template struct opened_member<reserved_endpoint, &dat::detail::service_point::ep_>;

struct lock_of_events {
  friend auto member(lock_of_events);
};
template <auto Member>
struct opened_lock_of_events {
  friend auto member(lock_of_events) { return Member; }
};
template struct opened_lock_of_events<&dat::detail::merged_evd::mutex_>;

} // namespace unit

using namespace unit;
using dat::ep_state;
using dat::detail::connection_base;
using dat::detail::connection_state;
using dat::detail::core_access;

namespace {

auto& user_lock(connection_state& c) { return c.*member(lock_of_user()); }

/// Names what evd_core has for its derived classes alone.
struct channel_watch : dat::detail::evd_core {
  static constexpr auto always = watching::always;
  static constexpr auto dead = watching::dead;
  static constexpr auto state = &channel_watch::channel_watched;
};
auto watch_of(const dat::detail::evd_core& evd) { return (evd.*channel_watch::state)(); }

/// The connection of the newest id.
connection_state& newest_connection() {
  return static_cast<connection_state&>(*static_cast<connection_base*>(fake::ids().back()->context));
}

/// Whether `other` waits while another thread has the lock of the ia's list of objects. The ia has an endpoint.
template <class Other>
bool waits_for_list(const dat::ia& ia, Other other) {
  const auto hold = [&](auto inside) {
    (void)core_access::of(ia)->find(dat::detail::child_kind::endpoint, [&](dat::detail::ia_child&) {
      inside();
      return false;
    });
  };
  return waits_while(hold, other);
}

/// Waits until the processor has spent that time on the other thread, which does not sleep.
void until_it_has_run(other_call& call, std::chrono::nanoseconds time) {
  clockid_t clock;
  REQUIRE(::pthread_getcpuclockid(call.native_handle(), &clock) == 0);
  const auto spent = [&] {
    timespec t{};
    ::clock_gettime(clock, &t);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
  };
  const auto before = spent();
  while (!call.done() && spent() - before < time) std::this_thread::yield();
}

bool is_readable(int fd) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, 0) == 1;
}

} // namespace

TEST_CASE("a call that attaches or detaches a connection waits for an event that looks for its endpoint",
          "[locks][connection]") {
  const clean_world world;
  SECTION("connect attaches it") {
    pair p;
    auto ep = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
    const auto connect = [&] { must(ep.connect(p.b.ia.address(), service, plenty)); };
    CHECK(locked_out_after(
        fake::call::rdma_bind_addr, [&]() -> dat::detail::control_mutex& { return user_lock(newest_connection()); },
        connect));
    p.settle();
  }
  SECTION("disconnect detaches it") {
    pair p;
    auto& lock = user_lock(*core_access::of(p.a.ep)->connection());
    CHECK(locked_out(lock, [&] { must(p.a.ep.disconnect()); }));
    p.settle();
    CHECK(p.a.take() == events{"disconnected"});
  }
  SECTION("an event looks for the endpoint") {
    pair p;
    must(p.b.ep.disconnect());
    auto& lock = user_lock(*core_access::of(p.a.ep)->connection());
    CHECK(locked_out(lock, [&] { p.a.ia.run(); }));
    p.settle();
    CHECK(p.a.take() == events{"disconnected"});
  }
}

TEST_CASE("objects that begin and end by themselves wait for a call that looks through the objects of the ia",
          "[locks][ia]") {
  const clean_world world;
  pair p;
  auto ep = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  SECTION("the connection of a connect") {
    CHECK(waits_for_list(p.a.ia, [&] { must(ep.connect(p.b.ia.address(), service, plenty)); }));
    p.settle();
  }
  SECTION("a closed endpoint, which ends with its last event") {
    fake::async(IBV_EVENT_QP_FATAL, ep.native_handle());
    p.a.ia.run();
    std::optional last(must(p.a.ia.async_evd().dequeue()));
    must(ep.close());
    CHECK(waits_for_list(p.a.ia, [&] { last.reset(); }));
  }
}

TEST_CASE("the completion of a test of the peer waits for a call on its endpoint", "[locks][keep_alive]") {
  const clean_world world;
  pair p;
  auto evd = must(p.a.ia.create_evd<dat::stream::dto>(64));
  auto ep = must(p.a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = p.a.evd}, {.keep_alive = 1h}));
  auto peer = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  p.connect(ep, peer);
  auto& core = *core_access::of(ep);
  const auto requests = [] { return fake::count(fake::call::ibv_post_send); };
  const auto before = requests();
  core.test_peer(); // records the requests that were posted until now
  core.test_peer();
  REQUIRE(requests() == before + 1);
  fake::finish();
  const auto hold = [&](auto inside) { core.locked([&](auto&) { inside(); }); };
  CHECK(waits_while(hold, [&] { (void)evd.dequeue(); }));
  core.test_peer(); // the test is over, so that the next one begins
  CHECK(requests() == before + 2);
  CHECK(take(evd).empty());
}

TEST_CASE("a wait takes a trigger only with the lock of the cno", "[locks][cno]") {
  const clean_world world;
  auto ia = must(dat::ia::open("fk1", manual));
  auto cno = must(ia.create_cno());
  auto evd = must(ia.create_evd<support::soft>(8));
  must(evd.modify_cno(cno));
  must(evd.post(1));
  auto& core = *core_access::of(cno);
  REQUIRE(core.*member(unseen_trigger()));
  fake::async(IBV_EVENT_PORT_ACTIVE, fake::contexts().at(0)); // the wait reads it before it takes the trigger
  CHECK(locked_out_after(
      fake::call::ibv_get_async_event,
      [&]() -> dat::detail::control_mutex& { return core.*member(lock_of_shared_cno()); }, [&] { (void)cno.wait(0us); },
      [&] { CHECK(core.*member(unseen_trigger())); }));
  CHECK_FALSE(core.*member(unseen_trigger()));
}

TEST_CASE("the descriptor of a cno stays readable until the last thread has left that waited for ended evds", "[cno]") {
  const clean_world world;
  auto ia = must(dat::ia::open("fk1", manual));
  auto cno = must(ia.create_cno());
  auto evd = must(ia.create_evd<support::soft>(8));
  must(evd.modify_cno(cno));
  while (cno.wait(0us)) { // takes the triggers that modify_cno caused
  }
  auto& core = *core_access::of(cno);
  std::atomic<bool> inside{false}, leave{false};
  fake::intercept(fake::call::ibv_get_async_event, [&] {
    if (inside.exchange(true)) return;
    while (!leave) std::this_thread::yield();
  });
  fake::async(IBV_EVENT_PORT_ACTIVE, fake::contexts().at(0));
  other_call occupied([&] { (void)cno.wait(plenty); });
  while (!inside) std::this_thread::yield();
  other_call second([&] { (void)cno.wait(plenty); });
  while (core.waiters != 2) std::this_thread::yield();
  must(evd.close());
  second.join();
  CHECK(is_readable(cno.fd()));
  std::uint64_t value = 0;
  CHECK_FALSE((core.*member(taking_of_cno()))(value)); // as a wait that begins now
  CHECK(is_readable(cno.fd()));
  leave = true;
  occupied.join();
  fake::intercept(fake::call::ibv_get_async_event, {});
  CHECK_FALSE(is_readable(cno.fd()));
}

TEMPLATE_TEST_CASE_SIG("an abrupt close leaves an evd as it is until the thread that waits on it has left", "[evd]",
                       ((dat::streams S), S), dat::stream::dto, dat::stream::dto | dat::stream::software) {
  const clean_world world;
  end a;
  auto evd = must(a.ia.create_evd<S>(16));
  auto cno = must(a.ia.create_cno());
  must(evd.modify_cno(cno));
  const auto ep = must(a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd}));
  const auto& core = *core_access::of(evd);
  REQUIRE(watch_of(core) == channel_watch::always);
  std::atomic<bool> inside{false}, leave{false};
  fake::intercept(fake::call::ibv_req_notify_cq, [&] {
    if (inside.exchange(true)) return;
    while (!leave) std::this_thread::yield();
  });
  dat::return_type result{};
  other_call waiter([&] { result = evd.wait(plenty).error().type(); });
  while (!inside) std::this_thread::yield();
  other_call closing([&] { (void)a.ia.close(); });
  while (!core.dead()) std::this_thread::yield();
  until_it_has_run(closing, 20ms);
  CHECK(watch_of(core) == channel_watch::always);
  CHECK_FALSE(closing.done());
  leave = true;
  closing.join();
  waiter.join();
  fake::intercept(fake::call::ibv_req_notify_cq, {});
  CHECK(watch_of(core) == channel_watch::dead);
  CHECK(result == dat::return_type::abort);
}

TEST_CASE("the reactor changes its watch of a completion channel only with the lock that attaches a cno",
          "[locks][evd]") {
  const clean_world world;
  SECTION("after a check for broken connections") {
    pair p;
    auto evd = must(p.a.ia.create_evd<dat::stream::dto | dat::stream::connection>(16));
    auto ep = must(p.a.pz.create_ep<dat::rc>(evd));
    auto peer = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
    p.connect(ep, peer);
    (void)take(evd);
    const auto armings = [] { return fake::count(fake::call::ibv_req_notify_cq); };
    fake::forge(evd.native_handle(), ibv_wc{}); // of no endpoint
    const auto before = armings();
    auto& lock = (*core_access::of(evd)).*member(lock_of_watch());
    CHECK(locked_out_after(
        fake::call::ibv_req_notify_cq, [&]() -> dat::detail::control_mutex& { return lock; },
        [&] {
          while (armings() == before) p.a.ia.run();
        }));
  }
  SECTION("when the channel is dead") {
    auto ia = must(dat::ia::open("fk1", manual));
    auto cno = must(ia.create_cno());
    auto evd = must(ia.create_evd<dat::stream::dto>(16));
    must(evd.modify_cno(cno));
    auto& core = *core_access::of(evd);
    REQUIRE(watch_of(core) == channel_watch::always);
    fake::kill_descriptors("fk1");
    CHECK(locked_out(
        core.*member(lock_of_watch()),
        [&] {
          while (watch_of(core) != channel_watch::dead) ia.run();
        },
        [&] { CHECK(watch_of(core) == channel_watch::always); }));
    CHECK(watch_of(core) == channel_watch::dead);
  }
}

TEST_CASE("calls that count the completions of an evd wait for each other", "[locks][evd]") {
  const clean_world world;
  end a;
  auto evd = must(a.ia.create_evd<dat::stream::dto | dat::stream::software>(16));
  auto srq = must(a.pz.create_srq({.max_recv_dtos = 4}));
  const auto create = [&] {
    return must(a.pz.create_ep<dat::rc>({.recv = evd, .request = a.evd, .connect = a.evd}, srq));
  };
  auto ep = create();
  auto& lock = (*core_access::of(evd)).*member(lock_of_feeds());
  SECTION("the creation of an endpoint") {
    CHECK(locked_out(lock, [&] { (void)create(); }));
  }
  SECTION("the end of an endpoint") {
    CHECK(locked_out(lock, [&] { ep = {}; }));
  }
  SECTION("the resize of the evd") {
    CHECK(locked_out(lock, [&] { must(evd.resize(32)); }));
  }
  SECTION("the resize of a shared queue") {
    CHECK(locked_out(lock, [&] { (void)srq.resize(40); }));
  }
}

TEST_CASE("calls that reserve or describe an endpoint wait for a call that changes its state", "[locks][connection]") {
  const clean_world world;
  end a;
  a.make_ep();
  const auto during = [&](auto other) {
    return waits_while([&](auto inside) { core_access::of(a.ep)->locked([&](auto&) { inside(); }); }, other);
  };
  SECTION("create_rsp") {
    dat::rsp rsp;
    CHECK(during([&] { rsp = must(a.ia.create_rsp(service, a.ep, a.evd)); }));
    SECTION("and its end") {
      CHECK(during([&] { must(rsp.close()); }));
    }
  }
  SECTION("the reject of its request") {
    end c("fk2");
    c.make_ep();
    const auto rsp = must(a.ia.create_rsp(service, a.ep, a.evd));
    must(c.ep.connect(a.ia.address(), service, plenty));
    settle(a, c);
    auto request = request_on(a.evd);
    REQUIRE(a.ep.state() == ep_state::passive_connection_pending);
    CHECK(during([&] { must(request.reject()); }));
    CHECK(a.ep.state() == ep_state::unconnected);
    settle(a, c);
  }
  SECTION("export_descriptor") {
    CHECK(during([&] { (void)must(a.ep.export_descriptor()); }));
  }
}

TEST_CASE("a service point that tries another port lets its endpoint go only when no request is being delivered",
          "[locks][connection]") {
  using dat::detail::service_point;
  const clean_world world;
  end b("fk2");
  b.make_ep();
  fake::fail(fake::call::rdma_listen, 2, EADDRINUSE);
  dat::detail::ref<service_point> made;
  const auto create = [&] {
    auto r = service_point::create(core_access::of(b.ia), core_access::of(b.evd),
                                   {.call = "ia.create_rsp",
                                    .kind = dat::service_kind::rsp,
                                    .ep = dat::detail::ref<dat::detail::ia_child>(core_access::of(b.ep)),
                                    .endpoints = &dat::detail::ep_core::request_functions});
    if (r) made = std::move(r).assume_value();
  };
  service_point* first = nullptr;
  const auto lock = [&]() -> dat::detail::control_mutex& {
    first = &static_cast<service_point&>(*static_cast<connection_base*>(fake::ids().back()->context));
    return first->*member(lock_of_service_point());
  };
  CHECK(locked_out_after(fake::call::rdma_listen, lock, create, [&] { CHECK(first->*member(reserved_endpoint())); }));
  REQUIRE(made);
  CHECK(b.ep.state() == ep_state::reserved);
  made->end();
}

TEST_CASE("an asynchronous event waits for a call on the evd that gets it", "[locks][evd]") {
  const clean_world world;
  auto ia = must(dat::ia::open("fk1", manual));
  fake::async(IBV_EVENT_PORT_ACTIVE, fake::contexts().at(0));
  auto& evd = static_cast<dat::detail::merged_evd&>(*core_access::of(ia.async_evd()));
  CHECK(locked_out(evd.*member(lock_of_events()), [&] { ia.run(); }));
  CHECK(ia.async_evd().dequeue());
}

TEST_CASE("the end of a service point and the delivery of a request wait for the lock of the service point",
          "[locks][connection]") {
  const clean_world world;
  end a("fk1");
  end b("fk2");
  a.make_ep();
  auto psp = must(b.ia.create_psp(service, b.evd));
  const auto point = core_access::of(b.ia)->find(dat::detail::child_kind::service_point,
                                                 [](const dat::detail::ia_child&) { return true; });
  auto& lock = static_cast<dat::detail::service_point&>(*point).*member(lock_of_service_point());
  SECTION("the end") {
    CHECK(locked_out(lock, [&] { must(psp.close()); }));
  }
  SECTION("the delivery") {
    must(a.ep.connect(b.ia.address(), service, plenty));
    CHECK(locked_out(lock, [&] { settle(a, b); }));
    CHECK(b.take() == events{"request"});
  }
  settle(a, b);
}
