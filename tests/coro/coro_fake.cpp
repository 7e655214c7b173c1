// Coroutines on a driver: which coroutine gets which event and when, what an await returns, and how a driver runs.
// SPDX-License-Identifier: BSL-1.0
#include "text_tasks.hpp"

#include "../support/worker.hpp"
#include "allocations.hpp"

#include <dat/coro.hpp>
#include <dat/try.hpp>

#include <array>
#include <atomic>
#include <stop_token>

using namespace text_tasks;
using namespace unit;
using dat::return_type;
using support::task;
using support::worker;

TEST_CASE("a completion resumes its own coroutine, and other events go to the visitor", "[coro]") {
  clean_world world;
  driven_pair p;
  must(p.b.ep.post(dat::recv{p.b.mem}.cookie(1)));
  must(p.a.ep.post(dat::send{p.a.at(0, 5)}.cookie(2)));
  auto got = arrive(p.far, p.b, 7);
  auto sent = request(p.near, p.a.ep, dat::send{p.a.at(0, 9)}.cookie(8));
  CHECK_FALSE(sent.done());
  CHECK(p.run() == events{"sent 2", "received 1"});
  CHECK(sent.result() == "9 with 8");
  CHECK(got.result() == "9 with 7");
}

TEST_CASE("immediate data, RDMA writes and suppressed requests reach the coroutines", "[coro]") {
  clean_world world;
  driven_pair p;
  const auto window = p.b.mem.remote();
  auto got = arrive(p.far, p.b, 1);
  auto got_written = arrive(p.far, p.b, 2);
  auto sent = request(p.near, p.a.ep, dat::send{p.a.at(0, 4)}.immediate(77).suppress_completion().cookie(3));
  auto written = request(p.near, p.a.ep, dat::rdma_write{p.a.at(0, 6), window}.immediate(78).cookie(4));
  auto read = request(p.near, p.a.ep, dat::rdma_read{p.a.at(0, 8), window}.cookie(5));
  CHECK(p.run().empty());
  CHECK(got.result() == "4 with 1 and 77");
  CHECK(got_written.result() == "6 with 2 and 78 written");
  CHECK(sent.result() == "4 with 3");
  CHECK(written.result() == "6 with 4");
  CHECK(read.result() == "8 with 5");
}

TEST_CASE("two coroutines exchange messages, each on its own driver", "[coro]") {
  clean_world world;
  driven_pair p;
  static constexpr int rounds = 100;
  const auto player = [](queue_driver& d, end& e, bool serves) -> task<int> {
    for (int n = 0; n < rounds; ++n) {
      auto ball = d.post(e.ep, dat::recv{e.mem}); // posted before the peer can answer
      if ((serves || n != 0) && !co_await d.post(e.ep, dat::send{e.at(0, 1)})) co_return -n;
      if (!co_await ball) co_return -n;
    }
    if (!serves && !co_await d.post(e.ep, dat::send{e.at(0, 1)})) co_return -rounds;
    co_return rounds;
  };
  auto far = player(p.far, p.b, false);
  auto near = player(p.near, p.a, true);
  CHECK(p.run().empty());
  CHECK(near.result() == rounds);
  CHECK(far.result() == rounds);
}

TEST_CASE("coroutines resume in the order of their events, each before the next event is taken", "[coro]") {
  clean_world world;
  driven_pair p;
  events log;
  const auto member = [](queue_driver& d, end& e, events& all, int number) -> text_task {
    for (int i = 0; i < 2; ++i) {
      (void)co_await d.post(e.ep, dat::recv{});
      all.push_back("member " + std::to_string(number));
    }
    co_return "";
  };
  auto first = member(p.far, p.b, log, 1);
  auto second = member(p.far, p.b, log, 2);
  must(p.b.ep.post(dat::recv{}.cookie(9)));
  for (int i = 0; i < 3; ++i) must(p.a.ep.post(dat::send{}));
  p.settle();
  CHECK(p.far.poll([&](const auto& e) { log.push_back(describe{}(e)); }) == 3);
  CHECK(log == events{"member 1", "member 2", "received 9"});
  must(p.a.ep.post(dat::send{}));
  must(p.a.ep.post(dat::send{}));
  CHECK(p.run() == events{"sent 0", "sent 0", "sent 0", "sent 0", "sent 0"});
  CHECK(log == events{"member 1", "member 2", "received 9", "member 1", "member 2"});
}

TEST_CASE("an operation may be awaited after it is done, and several may be outstanding", "[coro]") {
  clean_world world;
  driven_pair p;
  bool early = true;
  const auto many = [](driven_pair& w, bool& was_done) -> text_task {
    auto a = w.far.post(w.b.ep, dat::recv{w.b.mem}.cookie(1));
    auto b = w.far.post(w.b.ep, dat::recv{w.b.mem}.cookie(2));
    auto c = w.far.post(w.b.ep, dat::recv{w.b.mem}.cookie(3));
    const auto third = co_await c; // the other two coroutines are done before
    was_done = a.done() && b.done();
    std::string all;
    for (const auto& r : {co_await b, co_await a, third}) all += std::to_string(r.value().cookie().value());
    co_return all;
  };
  auto t = many(p, early);
  early = false;
  for (int i = 0; i < 3; ++i) must(p.a.ep.post(dat::send{}));
  (void)p.run();
  CHECK(early);
  CHECK(t.result() == "213");
}

TEST_CASE("a completed operation can be posted again, and an outstanding one is left unchanged", "[coro]") {
  clean_world world;
  driven_pair p;
  const auto takes = [](driven_pair& w) -> text_task {
    std::array<dat::coro::posted<dat::coro::receive_result>, 2> ahead;
    auto& first = ahead[0];
    std::string all = told(co_await first, "something");
    for (std::uint64_t i = 0; i < 4; ++i) {
      auto& slot = ahead[i % 2];
      if (i >= 2) all += " " + std::to_string((co_await slot).value().cookie().value());
      must(w.far.post(slot, w.b.ep, dat::recv{}.cookie(i)));
      if (w.far.post(slot, w.b.ep, dat::recv{}).error().type() != return_type::invalid_state) all += " twice";
    }
    for (auto& slot : ahead) all += " " + told(co_await slot, "got");
    must(w.b.ep.disconnect());
    (void)w.far.post(first, w.b.ep, dat::recv{});
    all += " " + told(co_await first, "got");
    co_return all;
  };
  auto t = takes(p);
  for (int i = 0; i < 4; ++i) {
    must(p.a.ep.post(dat::send{}.suppress_completion()));
    (void)p.run();
  }
  CHECK(t.result() == "invalid_handle 0 1 got got invalid_state");
}

TEST_CASE("awaiting a refused post returns its error at once", "[coro]") {
  clean_world world;
  driven_pair p(dat::ep_attributes{.max_recv_dtos = 1});
  auto first = receive(p.far, p.b.ep);
  auto second = receive(p.far, p.b.ep);
  CHECK_FALSE(first.done());
  CHECK(second.result() == "insufficient_resources");
  dat::ep<dat::rc> none;
  CHECK(receive(p.far, none).result() == "invalid_handle");
  auto other = must(p.b.ia.create_evd<dat::stream::dto>(8));
  auto elsewhere = must(p.b.pz.create_ep<dat::rc>({.recv = other, .request = p.b.evd, .connect = p.b.evd}));
  CHECK(receive(p.far, elsewhere).result() == "invalid_handle");
  CHECK(request(p.far, elsewhere, dat::send{}).result() == "invalid_state"); // unconnected
  CHECK(connect(p.far, p.a.ep, p.b.ia.address()).result() == "invalid_handle");
  CHECK(disconnect(p.far, p.a.ep, dat::close_mode::abrupt).result() == "invalid_handle");
  CHECK(p.a.ep.state() == dat::ep_state::connected);
  queue_driver of_nothing{dat::evd<all_streams>()};
  CHECK(of_nothing.poll(ignore) == 0);
  CHECK(of_nothing.run_once(ignore, 0us).error().type() == return_type::invalid_handle);
}

TEST_CASE("awaiting an operation with which nothing was posted says so", "[coro]") {
  const auto awaits = [](dat::error& why) -> task<bool> {
    dat::coro::posted<dat::transfer> nothing;
    const auto done = co_await nothing;
    if (!done) why = done.error();
    co_return done.has_value();
  };
  dat::error why;
  CHECK_FALSE(awaits(why).result());
  CHECK(why == dat::error(return_type::invalid_handle));
  CHECK(why.hint() == "Nothing was posted with this operation.");
}

TEST_CASE("connect and accept return the connection, or the event that came instead", "[coro]") {
  clean_world world;
  end a{"fk1"};
  end b{"fk2"};
  auto psp = must(b.ia.create_psp(service, b.evd));
  queue_driver near{a.evd};
  queue_driver far{b.evd};
  events foreign;
  const auto run = [&] {
    for (std::size_t n = 1; n != 0;) {
      settle(a, b);
      n = near.poll([&](const auto& e) { foreign.push_back(describe{}(e)); }) +
          far.poll([&](const auto& e) { foreign.push_back(describe{}(e)); });
    }
  };
  a.make_ep();
  b.make_ep();
  auto up = connect(near, a.ep, b.ia.address());
  auto taken = accept(far, b.ep);
  run();
  CHECK(up.result() == "established");
  CHECK(taken.result() == "established");
  CHECK(connect(near, a.ep, b.ia.address()).result() == "invalid_state");
  must(near.close(a.ep));
  must(far.close(b.ep));

  a.make_ep();
  const auto reject = [](queue_driver& d) -> text_task {
    auto r = co_await d.next<dat::connection_request>();
    if (r) (void)r.value().reject(bytes_of("no"));
    co_return "rejected";
  };
  auto no = reject(far);
  up = connect(near, a.ep, b.ia.address());
  run();
  CHECK(no.done());
  CHECK(up.result() == "invalid_state, peer_rejected");
  must(near.close(a.ep));

  must(psp.close());
  a.make_ep();
  up = connect(near, a.ep, b.ia.address());
  run();
  CHECK(up.result() == "invalid_state, non_peer_rejected 8");
  CHECK(foreign.empty());
}

TEST_CASE("a loop over next misses no event, and awaits of a given type take precedence", "[coro]") {
  clean_world world;
  driven_pair p;
  events log;
  auto all = listen(p.far, log);
  auto gone = next<dat::disconnected>(p.far);
  auto third = next<dat::recv_done>(p.far, p.b.ep);
  for (std::uint64_t i = 1; i < 5; ++i) must(p.b.ep.post(dat::recv{}.cookie(i)));
  for (int i = 0; i < 3; ++i) must(p.a.ep.post(dat::send{}.suppress_completion()));
  CHECK(p.run().empty());
  CHECK(third.result() == "received 1");
  CHECK(log == events{"received 2", "received 3"});
  must(p.a.ep.disconnect());
  CHECK(p.run() == events{"disconnected"}); // near's
  CHECK(gone.result() == "disconnected");
  CHECK(log == events{"received 2", "received 3", "flushed 4"});
  CHECK_FALSE(all.done());
}

TEST_CASE("a server that awaits requests is not disturbed when connections end", "[coro]") {
  clean_world world;
  driven_pair p;
  auto request = next<dat::connection_request>(p.far);
  auto endpoint = next<dat::established>(p.far, p.b.ep);
  must(p.a.ep.disconnect());
  CHECK(p.run() == events{"disconnected"});
  CHECK(endpoint.result() == "invalid_state");
  CHECK_FALSE(request.done());
  must(p.near.reset(p.a.ep));
  auto up = connect(p.near, p.a.ep, p.b.ia.address());
  p.settle();
  p.far.poll(ignore);
  CHECK(request.result() == "request");
}

TEST_CASE("an exception of the visitor or of a coroutine leaves the driver's call, and no event is lost", "[coro]") {
  clean_world world;
  driven_pair p;
  const auto throws = [](queue_driver& d, dat::ep_ref ep) -> text_task {
    (void)co_await d.post(ep, dat::recv{});
    throw 7;
  };
  must(p.b.ep.post(dat::recv{}.cookie(1)));
  auto t = throws(p.far, p.b.ep);
  auto got = receive(p.far, p.b.ep);
  for (int i = 0; i < 3; ++i) must(p.a.ep.post(dat::send{}.suppress_completion()));
  p.settle();
  CHECK_THROWS_AS(p.far.poll([](const auto&) { throw 6; }), int);
  CHECK_THROWS_AS((void)p.far.run_once(ignore, plenty), int);
  CHECK_FALSE(got.done());
  CHECK(p.run().empty());
  CHECK(got.result() == "received");
}

TEST_CASE("run_until checks its condition, reaches its time limit, and can be woken", "[coro]") {
  clean_world world;
  driven_pair p;
  CHECK(p.far.run_until([] { return true; }, ignore, 0us));
  CHECK(p.far.run_until([] { return false; }, ignore, 1ms).error().type() == return_type::timeout_expired);
  CHECK(p.far.run_once(ignore, 0us).error().type() == return_type::timeout_expired);
  must(p.b.evd.wake());
  CHECK(p.far.run_once(ignore, plenty).error().type() == return_type::interrupted_call);
  std::atomic<bool> flag{false};
  worker waker([&](worker& w) {
    flag = true;
    w.check(p.b.evd.wake().has_value());
  });
  must(p.far.run_until([&] { return flag.load(); }, ignore, plenty));
  waker.join();
}

TEMPLATE_TEST_CASE_SIG("a driver of completions alone works with automatic and manual progress", "[coro]",
                       ((dat::progress How), How), dat::progress::automatic, dat::progress::manual) {
  clean_world world;
  auto ia = must(dat::ia::open("fk1", {.progress = How}));
  auto pz = must(ia.create_pz());
  auto dtos = must(ia.create_evd<dat::stream::dto>(32));
  auto conn = must(ia.create_evd<dat::stream::connection | dat::stream::connection_requests>(8));
  auto psp = must(ia.create_psp(service, conn));
  auto near = must(pz.create_ep<dat::rc>({.recv = dtos, .request = dtos, .connect = conn}));
  auto far = must(pz.create_ep<dat::rc>({.recv = dtos, .request = dtos, .connect = conn}));
  dat::coro::driver connections(conn);
  dat::coro::driver transfers(dtos);
  using connection_driver = decltype(connections);
  const auto setup = [](connection_driver& d, dat::ia_address to, dat::ep<dat::rc>& active,
                        dat::ep<dat::rc>& passive) -> task<bool> {
    auto up = d.connect(active, to, service, plenty);
    auto request = co_await d.template next<dat::connection_request>();
    const bool accepted = request && co_await d.accept(request.value(), passive);
    co_return accepted&& co_await up;
  };
  auto connected = setup(connections, ia.address(), near, far);
  must(connections.run_until([&] { return connected.done(); }, ignore, plenty));
  REQUIRE(connected.result());
  const auto exchange = [](dat::coro::driver<dat::stream::dto>& d, dat::ep_ref from, dat::ep_ref to) -> task<int> {
    int n = 0;
    for (; n < 50; ++n) {
      auto got = d.post(to, dat::recv{});
      if (!co_await d.post(from, dat::send{}) || !co_await got) break;
    }
    co_return n;
  };
  auto t = exchange(transfers, near, far);
  auto cno = must(ia.create_cno());
  must(dtos.modify_cno(cno));
  std::size_t events_taken = 0;
  while (!t.done()) { // like an event loop of the consumer
    (void)must(cno.wait(plenty));
    events_taken += transfers.poll(ignore);
  }
  CHECK(events_taken == 100); // a send and a receive in each round
  CHECK(t.result() == 50);
  must(dtos.modify_cno({}));
}

TEST_CASE("awaiting an operation allocates nothing beyond what posting and draining allocate", "[coro]") {
  if (!counts_allocations) SKIP("the operators new belong to the sanitizer");
  if (dat::detail::checked_build) SKIP("a checked build allocates to watch posted memory");
  clean_world world;
  driven_pair p;
  static constexpr std::size_t n = 200;
  std::size_t plain = 0;
  std::size_t awaited = 0;
  const auto by_hand = [&] { // the fake device allocates, so the test compares with the same work without coroutines
    const std::size_t before = allocations();
    for (std::size_t i = 0; i < n; ++i) {
      must(p.b.ep.post(dat::recv{}));
      must(p.a.ep.post(dat::send{}));
      std::size_t got = 0;
      while (got != 2) got += p.a.evd.drain(ignore) + p.b.evd.drain(ignore);
    }
    plain = allocations() - before;
  };
  const auto exchange = [](driven_pair& w, std::stop_token stop, std::size_t& count) -> task<int> {
    const std::size_t before = allocations();
    for (std::size_t i = 0; i < n; ++i) {
      auto got = w.far.post(w.b.ep, dat::recv{}, stop);
      (void)co_await w.near.post(w.a.ep, dat::send{}, stop);
      (void)co_await got;
    }
    count = allocations() - before;
    co_return 0;
  };
  const std::stop_source source;
  by_hand();
  auto t = exchange(p, source.get_token(), awaited);
  while (!t.done()) p.near.poll(ignore), p.far.poll(ignore);
  by_hand();
  CHECK(plain < 3 * n);            // with more allocations the comparison would show little
  CHECK(awaited < plain + n / 10); // the device's own allocations vary
}

TEST_CASE("DAT_CO_TRY unwraps an awaited result, and returns an error by co_return", "[coro]") {
  clean_world world;
  driven_pair p;
  const auto size = [](driven_pair& w, bool check) -> task<dat::expected<std::size_t>> {
    if (check)
      DAT_CO_TRYV(w.b.ia.query());
    else
      DAT_CO_TRYV(co_await w.near.post(w.b.ep, dat::send{})); // the endpoint's completions go to another driver's evd
    DAT_CO_TRY(const auto got, co_await w.far.post(w.b.ep, dat::recv{w.b.mem}));
    co_return got.bytes();
  };
  auto good = size(p, true);
  CHECK(size(p, false).result().error().type() == return_type::invalid_handle);
  must(p.a.ep.post(dat::send{p.a.at(0, 3)}));
  (void)p.run();
  CHECK(good.result().value() == 3);
}
