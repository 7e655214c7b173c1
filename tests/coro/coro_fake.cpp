// Coroutines on a driver: which coroutine gets which event and when, cancellation, and the end of each object.
// SPDX-License-Identifier: BSL-1.0
#include <support/coroutine.hpp>
#include <support/streams.hpp>

#include "../support/worker.hpp"
#include "allocations.hpp"
#include "driven_pair.hpp"

#include <dat/coro.hpp>
#include <dat/try.hpp>

#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <stop_token>
#include <thread>

using namespace unit;
using dat::dto_status;
using dat::return_subtype;
using dat::return_type;
using support::task;
using support::worker;

namespace {

using text_task = task<std::string>;

using support::ignore;

text_task receive(queue_driver& d, dat::ep_ref ep, std::uint64_t cookie = 0, std::stop_token stop = {}) {
  const auto got = co_await d.post(ep, dat::recv{}.cookie(cookie), stop);
  co_return told(got, "received");
}
template <class D>
text_task request(queue_driver& d, dat::ep_ref ep, D operation) {
  const auto done = co_await d.post(ep, operation);
  if (!done) co_return std::string(to_string(done.error().type()));
  co_return std::to_string(done.value().bytes()) + " with " + std::to_string(done.value().cookie().value());
}
text_task arrive(queue_driver& d, end& e, std::uint64_t cookie) {
  const auto got = co_await d.post(e.ep, dat::recv{e.mem}.cookie(cookie));
  if (!got) co_return std::string(to_string(got.error().type()));
  co_return std::to_string(got.value().bytes()) + " with " + std::to_string(got.value().cookie().value()) +
      (got.value().immediate() ? " and " + std::to_string(*got.value().immediate()) : "") +
      (got.value().written() ? " written" : "") + (got.value().ep() == e.ep ? "" : " elsewhere");
}
/// Records every event that no other coroutine takes.
text_task listen(queue_driver& d, events& log, std::stop_token stop = {}) {
  for (;;) {
    const auto e = co_await d.next(stop);
    if (!e) co_return std::string(to_string(e.error().type()));
    log.push_back(std::visit(describe{}, e.value()));
  }
}
template <class E>
text_task next(queue_driver& d, dat::ep_ref of = {}, std::stop_token stop = {}) {
  const auto e = co_await d.template next<E>(of, stop);
  co_return e ? describe{}(e.value()) : std::string(to_string(e.error().type()));
}
text_task connect(queue_driver& d, dat::ep<dat::rc>& ep, dat::ia_address to, std::stop_token stop = {}) {
  auto attempt = d.connect(ep, to, service, plenty, {}, stop);
  const auto up = co_await attempt;
  if (up) co_return "established";
  co_return std::string(to_string(up.error().type())) +
      (attempt.outcome() ? ", " + std::visit(describe{}, *attempt.outcome()) : "");
}
text_task accept(queue_driver& d, dat::ep<dat::rc>& ep, std::stop_token stop = {}) {
  auto request = co_await d.next<dat::connection_request>();
  if (!request) co_return std::string(to_string(request.error().type()));
  co_return told(co_await d.accept(request.value(), ep, {}, stop), "established");
}
text_task disconnect(queue_driver& d, dat::ep<dat::rc>& ep, dat::close_mode how, std::stop_token stop = {}) {
  co_return told(co_await d.disconnect(ep, how, stop), "disconnected");
}

} // namespace

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

TEST_CASE("a disconnect resumes every outstanding operation with a failure", "[coro]") {
  clean_world world;
  driven_pair p;
  const auto fails = [](queue_driver& d, dat::ep_ref ep) -> text_task {
    auto op = d.post(ep, dat::recv{}.cookie(4));
    const auto got = co_await op;
    const auto f = op.failure();
    if (got || !f) co_return "no failure";
    co_return std::string(to_string(f->status())) + " " + std::to_string(f->cookie().value()) + ", " +
        std::string(to_string(got.error().subtype())) + (got.error().hint().empty() ? "" : " with a hint");
  };
  auto one = fails(p.near, p.a.ep);
  auto two = fails(p.far, p.b.ep);
  auto end_of = next<dat::disconnected>(p.far, p.b.ep);
  auto received = next<dat::recv_done>(p.far, p.b.ep);
  must(p.b.ep.post(dat::recv{}.cookie(5))); // nobody's
  auto bye = disconnect(p.near, p.a.ep, dat::close_mode::abrupt);
  const events foreign = p.run();
  CHECK(one.result() == "flushed 4, ep_disconnected with a hint");
  CHECK(two.result() == "flushed 4, ep_disconnected with a hint");
  CHECK(bye.result() == "disconnected");
  CHECK(end_of.result() == "disconnected");
  CHECK(received.result() == "invalid_state"); // no message can come after the end
  CHECK(foreign.empty());                      // the receive that no coroutine awaits completed as `recv_done`
  CHECK(disconnect(p.near, p.a.ep, dat::close_mode::graceful).result() == "disconnected"); // ends at once
}

TEST_CASE("a graceful disconnect resumes when all posted operations are done", "[coro]") {
  clean_world world;
  driven_pair p;
  auto got = receive(p.far, p.b.ep);
  auto sent = request(p.near, p.a.ep, dat::send{}.cookie(1));
  auto bye = disconnect(p.near, p.a.ep, dat::close_mode::graceful);
  CHECK_FALSE(bye.done());
  must(p.near.run_until([&] { return bye.done(); }, ignore, plenty));
  CHECK(p.run() == events{"disconnected"}); // the peer's event
  CHECK(got.result() == "received");
  CHECK(sent.result() == "0 with 1");
  CHECK(bye.result() == "disconnected");
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

TEST_CASE("a stop ends a wait for events and loses none of them", "[coro]") {
  clean_world world;
  driven_pair p;
  std::stop_source source;
  events log;
  auto all = listen(p.far, log, source.get_token());
  auto one = next<dat::recv_done>(p.far, {}, source.get_token());
  source.request_stop();
  CHECK_FALSE(all.done()); // a stop takes effect in the driver's calls, not in the requesting thread
  must(p.b.ep.post(dat::recv{}.cookie(1)));
  must(p.a.ep.post(dat::send{}.suppress_completion()));
  p.settle();
  CHECK(p.run() == events{"received 1"});
  CHECK(all.result() == "interrupted_call");
  CHECK(one.result() == "interrupted_call");
  CHECK(log.empty());
  CHECK(listen(p.far, log, source.get_token()).result() == "interrupted_call"); // already stopped: no wait
  CHECK(next<dat::recv_done>(p.far, {}, source.get_token()).result() == "interrupted_call");
}

TEST_CASE("a stop ends a posted operation by ending its connection", "[coro]") {
  clean_world world;
  driven_pair p;
  std::stop_source source;
  auto stopped = receive(p.near, p.a.ep, 0, source.get_token());
  auto beside = receive(p.near, p.a.ep);
  auto far = receive(p.far, p.b.ep);
  source.request_stop();
  CHECK(p.run() == events{"disconnected", "disconnected"});
  CHECK(stopped.result() == "interrupted_call");
  CHECK(beside.result() == "invalid_state");
  CHECK(far.result() == "invalid_state");
  CHECK(receive(p.near, p.a.ep, 0, source.get_token()).result() == "interrupted_call");
}

TEST_CASE("an operation that completes before the stop takes effect is a success", "[coro]") {
  clean_world world;
  driven_pair p;
  std::stop_source source;
  auto got = receive(p.far, p.b.ep, 0, source.get_token());
  must(p.a.ep.post(dat::send{}.suppress_completion()));
  p.settle();
  source.request_stop();
  CHECK(p.run() == events{"disconnected", "disconnected"});
  CHECK(got.result() == "received");
}

TEST_CASE("a stop cannot end a receive without a connection, but the driver's close can", "[coro]") {
  clean_world world;
  end e{"fk1"};
  e.make_ep();
  queue_driver d{e.evd};
  std::stop_source source;
  auto got = receive(d, e.ep, 0, source.get_token());
  source.request_stop();
  CHECK(d.poll(ignore) == 1); // the request to stop counts as one
  CHECK_FALSE(got.done());
  must(d.close(e.ep));
  CHECK_FALSE(got.done());
  d.poll(ignore);
  CHECK(got.result() == "abort");
}

TEST_CASE("a stop cancels a connection attempt, also one that has just succeeded", "[coro]") {
  clean_world world;
  end a{"fk1"};
  end b{"fk2"};
  auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep();
  b.make_ep();
  queue_driver near{a.evd};
  queue_driver far{b.evd};
  std::stop_source source;
  const auto foreign = [&] {
    events all;
    const auto note = [&](const auto& e) { all.push_back(describe{}(e)); };
    for (std::size_t n = 1; n != 0;) {
      settle(a, b);
      n = near.poll(note) + far.poll(note);
    }
    return all;
  };
  SECTION("the peer does not answer") {
    auto up = connect(near, a.ep, b.ia.address(), source.get_token());
    settle(a, b);
    source.request_stop();
    near.poll(ignore);
    CHECK(up.result() == "interrupted_call, disconnected");
  }
  SECTION("the peer has accepted, and the driver has not taken the event") {
    auto up = connect(near, a.ep, b.ia.address(), source.get_token());
    auto taken = accept(far, b.ep);
    for (int i = 0; i < 4; ++i) {
      settle(a, b);
      far.poll(ignore);
    }
    REQUIRE(a.ep.state() == dat::ep_state::connected);
    source.request_stop();
    CHECK(foreign() == events{"disconnected"}); // the peer's event
    CHECK(up.result() == "interrupted_call, disconnected");
    CHECK(taken.result() == "established");
  }
  SECTION("on the passive side") {
    auto up = connect(near, a.ep, b.ia.address());
    auto taken = accept(far, b.ep, source.get_token());
    fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
    settle(a, b);
    far.poll(ignore);
    source.request_stop();
    far.poll(ignore);
    CHECK(taken.result() == "interrupted_call");
    fake::release_events();
    (void)foreign();
    CHECK(up.done());
  }
  SECTION("before the attempt begins") {
    source.request_stop();
    CHECK(connect(near, a.ep, b.ia.address(), source.get_token()).result() == "interrupted_call");
    CHECK(a.ep.state() == dat::ep_state::unconnected);
  }
  CHECK(b.ep.state() != dat::ep_state::connected);
}

TEST_CASE("a stop turns a graceful disconnect into an abrupt one", "[coro]") {
  clean_world world;
  driven_pair p;
  std::stop_source source;
  auto sent = request(p.near, p.a.ep, dat::send{}); // the peer has no receive for the send
  auto bye = disconnect(p.near, p.a.ep, dat::close_mode::graceful, source.get_token());
  (void)p.run();
  CHECK_FALSE(bye.done());
  source.request_stop();
  (void)p.run();
  CHECK(bye.result() == "interrupted_call");
  CHECK(sent.result() == "invalid_state");
}

TEST_CASE("the late completion of a destroyed coroutine is dropped, and reaches no coroutine at the same address",
          "[coro]") {
  clean_world world;
  driven_pair p;
  auto first = receive(p.far, p.b.ep, 1);
  first = {};
  auto second = receive(p.far, p.b.ep, 2); // the frame is probably at the same address as the first one
  must(p.a.ep.post(dat::send{}.suppress_completion()));
  p.settle();
  std::size_t foreign = 0;
  CHECK(p.far.poll([&](const auto&) { ++foreign; }) == 1);
  CHECK(foreign == 0);
  CHECK_FALSE(second.done());
  must(p.a.ep.post(dat::send{}.suppress_completion()));
  CHECK(p.run().empty());
  CHECK(second.result() == "received");
}

TEST_CASE("a coroutine may be destroyed at any await, also by another coroutine", "[coro]") {
  clean_world world;
  driven_pair p;
  std::stop_source source;
  events log;
  text_task victims[] = {
      listen(p.far, log, source.get_token()), next<dat::disconnected>(p.far, p.b.ep, source.get_token()),
      receive(p.far, p.b.ep, 0, source.get_token()), disconnect(p.near, p.a.ep, dat::close_mode::abrupt)};
  const auto killer = [](queue_driver& d, dat::ep_ref ep, text_task* all) -> text_task {
    (void)co_await d.next<dat::disconnected>(ep);
    for (int i = 0; i < 4; ++i) all[i] = {};
    co_return "killed";
  };
  auto k = killer(p.near, p.a.ep, victims); // the killer is behind the fourth victim, which has got the event
  source.request_stop();                    // the stop is pending when the victims are destroyed
  p.settle();
  p.near.poll(ignore);
  CHECK(victims[3].done());
  k = killer(p.far, p.b.ep, victims); // two coroutines wait for one event: one gets it, and then both are destroyed
  (void)p.run();
  CHECK(log.empty());
}

TEST_CASE("a ready coroutine that another coroutine destroys is not resumed", "[coro]") {
  clean_world world;
  driven_pair p;
  text_task other;
  const auto closes = [](driven_pair& w, text_task& t) -> text_task {
    (void)co_await w.far.post(w.b.ep, dat::recv{});
    must(w.far.close(w.b.ep)); // makes the other coroutine ready
    t = {};
    co_return "closed";
  };
  auto k = closes(p, other);
  other = receive(p.far, p.b.ep);
  must(p.a.ep.post(dat::send{}.suppress_completion()));
  (void)p.run();
  CHECK(k.result() == "closed");
}

TEST_CASE("driver.close and driver.reset end the operations of that endpoint and no others", "[coro]") {
  clean_world world;
  driven_pair p;
  auto other = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  auto got = receive(p.far, p.b.ep);
  auto event = next<dat::recv_done>(p.far, p.b.ep);
  auto spared = receive(p.far, other);
  auto spared_too = next<dat::connection_request>(p.far);
  CHECK(p.far.reset(p.b.ep).error().type() == return_type::invalid_state); // connected
  p.far.poll(ignore);
  CHECK_FALSE(got.done());
  SECTION("close") {
    must(p.far.close(p.b.ep));
    CHECK_FALSE(p.b.ep);
  }
  SECTION("reset") {
    must(p.b.ep.disconnect());
    must(p.far.reset(p.b.ep));
    CHECK(p.b.ep.state() == dat::ep_state::unconnected);
  }
  p.far.poll(ignore);
  CHECK(got.result() == "abort");
  CHECK(event.result() == "abort");
  CHECK_FALSE(spared.done());
  CHECK_FALSE(spared_too.done());
}

TEST_CASE("an abrupt close of the ia ends every operation with abort", "[coro]") {
  clean_world world;
  driven_pair p;
  events log;
  auto got = receive(p.far, p.b.ep);
  auto all = listen(p.far, log);
  auto request = next<dat::connection_request>(p.far);
  must(p.b.ia.close(dat::close_mode::abrupt));
  CHECK_FALSE(got.done());
  CHECK(p.far.run_once(ignore, plenty).error().type() == return_type::invalid_handle);
  CHECK(got.result() == "abort");
  CHECK(all.result() == "abort");
  CHECK(request.result() == "abort");
}

TEST_CASE("a destroyed driver resumes no coroutine, and its coroutines can still be destroyed", "[coro]") {
  clean_world world;
  driven_pair p;
  std::stop_source source;
  text_task got;
  text_task event;
  {
    queue_driver d{p.b.evd};
    got = receive(d, p.b.ep, 0, source.get_token());
    event = next<dat::recv_done>(d, {}, source.get_token());
  }
  source.request_stop();
  CHECK_FALSE(got.done());
  CHECK_FALSE(event.done());
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

TEST_CASE("several threads may request stops while the driver runs", "[coro]") {
  clean_world world;
  end e{"fk1", automatic};
  queue_driver d{e.evd};
  std::stop_source all;
  static constexpr int rounds = 300;
  std::atomic<std::stop_source*> current{nullptr};
  worker asker([&](worker&) {
    for (int i = 0; i < rounds;)
      if (const auto* s = current.exchange(nullptr)) {
        std::stop_source own = *s; // a copy, because the other thread may destroy its own before the request ends
        own.request_stop();
        ++i;
      } else {
        std::this_thread::yield();
      }
    all.request_stop();
  });
  const auto waits = [](queue_driver& q, std::atomic<std::stop_source*>& shown) -> task<int> {
    int n = 0;
    for (; n < rounds; ++n) {
      std::stop_source source;
      events log;
      // Some of these coroutines are destroyed while they are being stopped.
      auto beside = listen(q, log, source.get_token());
      shown = &source;
      (void)co_await q.next<dat::disconnected>(source.get_token());
    }
    co_return n;
  };
  auto t = waits(d, current);
  must(d.run_until(all.get_token(), ignore));
  while (!t.done()) must(d.run_until([&] { return t.done(); }, ignore, plenty));
  asker.join();
  CHECK(t.result() == rounds);
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
