// Ends of connections that take long, and the end of an rdma_cm_id that another thread uses.
// SPDX-License-Identifier: BSL-1.0
#include "late_handshake.hpp"

#include <dat/descriptor.hpp>

#include <dat/detail/connection/private_data.hpp>
#include <dat/detail/handle/core_access.hpp>

#include <support/asleep.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <set>
#include <thread>
#include <unistd.h>

using namespace unit;

namespace {

/// Waits briefly for `done`, which must not happen yet. The wait is short because no test can observe that another
/// thread waits.
template <class Done>
void wait_a_while_for(Done done) {
  for (const auto until = std::chrono::steady_clock::now() + 200ms;
       !done() && std::chrono::steady_clock::now() < until;)
    std::this_thread::sleep_for(1ms);
}

} // namespace

TEST_CASE("a graceful close returns when the service thread has ended the last connection", "[IA-034]") {
  clean_world world;
  end b{"fk2"};
  b.make_ep();
  auto psp = must(b.ia.create_psp(service, b.evd));
  const auto caller = std::this_thread::get_id();
  std::atomic<bool> ending = false;
  std::atomic<bool> closed = false;
  {
    end a{"fk1", automatic};
    a.make_ep();
    must(a.ep.connect(b.ia.address(), service, plenty));
    must(must(b.evd.wait_for<dat::cr>(plenty)).accept(b.ep));
    must(a.evd.wait_for<dat::established>(a.ep, plenty));
    must(b.evd.wait_for<dat::established>(b.ep, plenty));
    must(a.ep.disconnect(dat::close_mode::graceful));
    must(a.ep.close()); // the connection waits for the peer's answer
    must(a.evd.close());
    must(a.mem.close());
    must(a.pz.close());
    fake::intercept(fake::call::rdma_destroy_id, [&] {
      if (std::this_thread::get_id() == caller || ending.exchange(true)) return;
      wait_a_while_for([&] { return closed.load(); });
    });
    must(b.evd.wait_for<dat::disconnected>(b.ep, plenty)); // the answer
    while (!ending) std::this_thread::yield();
    must(a.ia.close(dat::close_mode::graceful));
    CHECK(fake::live().contexts == 1); // the context of b
    closed = true;
  }
  fake::intercept(fake::call::rdma_destroy_id, {});
}

TEST_CASE("a graceful close ends a connection that waits for its peer", "[IA-034]") {
  clean_world world;
  pair p;
  fake::hold_events(); // the peer does not answer
  must(p.a.ep.disconnect());
  must(p.a.ep.close());
  must(p.a.evd.close());
  must(p.a.mem.close());
  must(p.a.pz.close());
  const auto before = fake::live();
  must(p.a.ia.close(dat::close_mode::graceful));
  CHECK(fake::live().ids == before.ids - 1);
  CHECK(fake::live().contexts == before.contexts - 1);
  fake::release_events();
}

TEST_CASE("an endpoint that is destroyed gets no completions any more", "[ep]") {
  clean_world world;
  pair p;
  const bool polled = GENERATE(false, true);
  CAPTURE(polled);
  auto evd = must(p.a.ia.create_evd<dat::stream::dto>(16));
  if (polled) {
    p.a.ep = must(p.a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = p.a.evd}));
    p.b.make_ep();
    (void)p.b.take();
    p.settle();
    p.connect();
  }
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}.cookie(1)));
  fake::finish();
  bool destroyed = false;
  std::size_t seen = 0;
  const auto count = [&](const auto&) { ++seen; };
  fake::intercept(fake::call::ibv_destroy_qp, [&] {
    destroyed = true;
    (void)p.a.evd.drain(count);
    (void)evd.drain(count);
  });
  must(p.a.ep.close());
  fake::intercept(fake::call::ibv_destroy_qp, {});
  CHECK(destroyed);
  CHECK(seen == 0);
}

TEST_CASE("resets use the memory of two lives in turn", "[ep]") {
  clean_world world;
  end a;
  end b("fk2");
  a.make_ep();
  b.make_ep();
  std::set<std::uint32_t> places;
  for (int i = 0; i < 8; ++i) {
    places.insert(static_cast<std::uint32_t>(dat::detail::core_access::of(a.ep)->tag()));
    must(a.ep.connect(must(b.ep.export_descriptor())));
    must(a.ep.disconnect());
    must(a.ep.reset());
    (void)a.take();
  }
  CHECK(places.size() == 2);
}

TEST_CASE("an ia ends what observes its posts", "[ia]") {
  clean_world world;
  struct observer : dat::detail::posts_observer {
    observer() : posts_observer{nullptr, [](posts_observer& o) noexcept { static_cast<observer&>(o).ended = true; }} {}
    bool ended = false;
  } o;
  {
    auto ia = must(dat::ia::open("fk1", manual));
    dat::detail::core_access::of(ia)->posts_observed_by.store(&o);
    must(ia.close());
  }
  CHECK(o.ended);
}

TEST_CASE("a connection whose id has ended calls nothing with it", "[connection]") {
  clean_world world;
  end a;
  using dat::detail::connection_state;
  const dat::detail::ref<connection_state> c(
      new connection_state(dat::detail::ref(&*dat::detail::core_access::of(a.ia)), connection_state::phase::over),
      dat::detail::adopt);
  bool called = false;
  CHECK(c->with_id([&](rdma_cm_id*) noexcept {
    called = true;
    return ENODEV;
  }) == 0);
  CHECK_FALSE(called);
}

TEST_CASE("only the mark and a length begin the reject of a consumer", "[connection]") {
  using dat::detail::behind_mark;
  using dat::detail::is_marked;
  const dat::detail::reject_message<8> message(bytes_of("abc"));
  const std::span<const std::byte> all = message.bytes;
  const auto whole = all.first(message.size);
  REQUIRE(whole.size() == 7);
  CHECK(is_marked(whole));
  CHECK(text_of(behind_mark(whole)) == "abc");
  CHECK(text_of(behind_mark(whole.first(6))) == "ab"); // the end was lost on the wire
  CHECK(is_marked(whole.first(4)));
  CHECK_FALSE(is_marked(whole.first(3)));
  CHECK_FALSE(is_marked(whole.subspan(1)));
}

TEST_CASE("the peer of a cancelled accept is disconnected when its last handshake message arrives", "[CONN-020]") {
  const clean_world world;
  late_handshake late;
  end& a = late.a;
  end& b = late.b;
  late.accept();
  settle(a, b);
  const bool closed = GENERATE(false, true);
  CAPTURE(closed);
  must(closed ? b.ep.close() : b.ep.disconnect());
  settle(a, b);
  const auto ids = fake::live().ids;
  const auto before = fake::count(fake::call::rdma_disconnect);
  CHECK(a.take() == events{"established"});
  fake::release_events();
  settle(a, b);
  CHECK(fake::count(fake::call::rdma_disconnect) > before);
  CHECK(a.take() == events{"disconnected"});
  settle(a, b);
  CHECK(fake::live().ids < ids); // the peer's answer has ended the id of the accept
}

TEST_CASE("the last handshake message may arrive while another thread cancels the accept", "[connection]") {
  const clean_world world;
  end a{"fk1", automatic};
  end b{"fk2", automatic};
  const auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep();
  b.make_ep();
  fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
  must(a.ep.connect(b.ia.address(), service, plenty));
  auto request = must(b.evd.wait_for<dat::connection_request>(plenty));
  must(request.accept(b.ep));
  must(a.evd.wait_for<dat::established>(plenty));
  // The disconnect checks for a message that has arrived, and holds the endpoint's lock during the check. At that time
  // the service thread has read the handshake message, and waits for the endpoint's lock.
  const auto caller = std::this_thread::get_id();
  fake::intercept(fake::call::ibv_poll_cq, [&] {
    if (std::this_thread::get_id() != caller) return;
    fake::intercept(fake::call::ibv_poll_cq, {});
    const auto read = fake::count(fake::call::rdma_ack_cm_event);
    fake::release_events();
    while (fake::count(fake::call::rdma_ack_cm_event) == read) std::this_thread::yield();
  });
  must(b.ep.disconnect());
  must(a.evd.wait_for<dat::disconnected>(plenty));
  CHECK(b.ep.state() == dat::ep_state::disconnected);
}

TEST_CASE("a connection whose completions are lost during a disconnect that is refused breaks once",
          "[connection][evd]") {
  const clean_world world;
  end a{"fk1", automatic};
  end b{"fk2", automatic};
  const auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep();
  b.make_ep();
  must(a.ep.connect(b.ia.address(), service, plenty));
  must(must(b.evd.wait_for<dat::connection_request>(plenty)).accept(b.ep));
  must(a.evd.wait_for<dat::established>(plenty));
  fake::hold(a.ep.native_handle());
  must(a.ep.post(dat::rdma_write{a.at(0, 8), b.mem.remote()}));
  // The disconnect holds the endpoint's lock while it posts. At that time the service thread has read the device's
  // report, and waits for the endpoint's lock.
  const auto caller = std::this_thread::get_id();
  std::atomic<pid_t> reading = 0;
  fake::intercept(fake::call::ibv_get_async_event, [&] { reading = ::gettid(); });
  fake::intercept(fake::call::ibv_post_send, [&] {
    if (std::this_thread::get_id() != caller) return;
    fake::async(IBV_EVENT_CQ_ERR, a.evd.native_handle());
    while (reading == 0) std::this_thread::yield();
    support::until_locked_out(reading, plenty, [&] { return a.ep.state() == dat::ep_state::disconnected; });
  });
  fake::fail(fake::call::ibv_post_send, 1, EIO);
  CHECK(a.ep.disconnect(dat::close_mode::graceful).error().sys_errno() == EIO);
  fake::intercept(fake::call::ibv_post_send, {});
  fake::intercept(fake::call::ibv_get_async_event, {});
  for (const auto until = std::chrono::steady_clock::now() + plenty;
       a.ep.state() != dat::ep_state::disconnected && std::chrono::steady_clock::now() < until;)
    std::this_thread::yield();
  must(a.ep.reset()); // waits for the service thread
  const auto seen = a.take();
  CHECK(std::ranges::count(seen, "broken") == 1);
}

TEST_CASE("a graceful disconnect waits for a slow request, and no thread takes completions", "[DISC-033]") {
  const clean_world world;
  pair p;
  fake::hold(p.a.ep.native_handle());
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}.cookie(1)));
  must(p.a.ep.disconnect(dat::close_mode::graceful));
  const auto run_while = [&](auto condition) {
    for (const auto until = std::chrono::steady_clock::now() + plenty;
         condition() && std::chrono::steady_clock::now() < until;)
      (void)p.a.ia.run(1ms);
  };
  // The reactor polls the device repeatedly. Polling alone ends no connection.
  const auto polls = fake::count(fake::call::ibv_poll_cq);
  run_while([&] {
    return p.a.ep.state() == dat::ep_state::disconnect_pending && fake::count(fake::call::ibv_poll_cq) < polls + 3;
  });
  CHECK(fake::count(fake::call::ibv_poll_cq) >= polls + 3);
  CHECK(p.a.ep.state() == dat::ep_state::disconnect_pending);
  fake::hold(p.a.ep.native_handle(), false);
  run_while([&] { return p.a.ep.state() == dat::ep_state::disconnect_pending; });
  CHECK(p.a.ep.state() == dat::ep_state::disconnected);
  p.settle();
  CHECK(p.a.take() == events{"written 1", "disconnected"});
  CHECK(p.b.take() == events{"disconnected"});
}

TEST_CASE("the last other handle ends a request only when a reject under way is done", "[CR-028]") {
  clean_world world;
  end a{"fk1"};
  a.make_ep();
  dat::cr request;
  std::atomic<bool> gone = false;
  std::atomic<bool> gone_early = false;
  std::optional<end> b;
  std::jthread other;
  {
    b.emplace("fk2");
    auto psp = must(b->ia.create_psp(service, b->evd));
    must(a.ep.connect(b->ia.address(), service, plenty));
    settle(a.ia, b->ia);
    request = request_on(b->evd);
    must(psp.close());
    fake::intercept(fake::call::rdma_reject, [&] {
      other = std::jthread([&] {
        b.reset();
        gone = true;
      });
      wait_a_while_for([&] { return gone.load(); });
      gone_early = gone.load();
    });
    must(request.reject(bytes_of("no")));
    fake::intercept(fake::call::rdma_reject, {});
    other.join();
  }
  CHECK_FALSE(gone_early);
  a.ia.run();
  CHECK(a.take() == events{"peer_rejected"});
}

TEST_CASE("a connection that the peer ended keeps no id", "[connection]") {
  const clean_world world;
  pair p;
  const auto connected = fake::live().ids;
  must(p.a.ep.disconnect());
  p.settle();
  CHECK(p.b.take() == events{"disconnected"});
  CHECK(p.a.take() == events{"disconnected"});
  CHECK(fake::live().ids == connected - 2);
}

TEST_CASE("an evd reports outstanding operations of an ended endpoint, and none that a graceful disconnect awaited",
          "[evd]") {
  const clean_world world;
  pair p;
  const auto text = [](auto& evd) { return evd.wait(0s).error().message(); };
  const auto lost = support::contains_text("while operations of it were outstanding");
  const auto watched = [&] {
    return dat::detail::merged(&*dat::detail::core_access::of(p.a.evd))->breaks().has_connections();
  };
  must(p.a.ep.disconnect());
  p.settle();
  CHECK_FALSE(watched());
  auto completions = must(p.a.ia.create_evd<dat::stream::dto>(16));
  auto from = must(p.a.pz.create_ep<dat::rc>({.recv = p.a.evd, .request = completions, .connect = p.a.evd}));
  auto to = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  (void)p.a.take();
  (void)p.b.take();
  p.connect(from, to);
  CHECK(watched());
  must(from.post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}.suppress_completion()));
  must(from.disconnect(dat::close_mode::graceful));
  CHECK(take(completions).empty()); // the last request of the disconnect
  p.settle();
  CHECK(from.state() == dat::ep_state::disconnected);
  CHECK_FALSE(watched());
  must(from.close());
  CHECK_THAT(text(completions), !lost);
  (void)p.b.take();
  CHECK_THAT(text(p.b.evd), !lost);
  must(p.b.ep.reset());
  must(p.b.ep.post(dat::recv{p.b.at(0, 8)}));
  must(p.b.ep.close());
  CHECK_THAT(text(p.b.evd), lost);
}

TEST_CASE("receives that a reset has dropped do not count towards a watermark", "[ep]") {
  const clean_world world;
  pair p({.soft_high_watermark = 3});
  const auto arrive = [&](int n) {
    for (int i = 0; i < n; ++i) {
      must(p.b.ep.post(dat::recv{p.b.at(0, 8)}));
      must(p.a.ep.post(dat::send{p.a.at(0, 8)}));
    }
    (void)p.a.take();
    fake::finish();
  };
  arrive(3);
  must(p.a.ep.disconnect());
  p.settle();
  must(p.b.ep.reset());
  must(p.a.ep.reset());
  (void)p.a.take();
  (void)p.b.take();
  p.connect();
  arrive(3);
  CHECK(p.b.take() == events{"received 0", "received 0", "received 0"});
  p.settle();
  CHECK_FALSE(p.b.ia.async_evd().dequeue());
}
