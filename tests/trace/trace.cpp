// Each trace point: the contents of its record, and when there is none.
// SPDX-License-Identifier: BSL-1.0
#include "datagram_end.hpp"
#include "records.hpp"

#include <dat/batch.hpp>
#include <dat/rmr.hpp>
#include <dat/srq.hpp>
#include <dat/ud.hpp>

#include <atomic>

using namespace trace_tests;

TEST_CASE("trace points have their names", "[trace]") {
  STATIC_REQUIRE(dat::trace::enabled);
  STATIC_REQUIRE(to_string(point::post) == "post");
  STATIC_REQUIRE(to_string(point::notify) == "notify");
  STATIC_REQUIRE(to_string(static_cast<point>(dat::trace::point_count)) == "unknown point");
}

TEST_CASE("a message leaves a record of each post and each completion", "[trace]") {
  const clean_world world;
  pair p;
  records trace;
  must(p.b.ep.post(dat::recv{p.b.at(0, 100)}.cookie(1)));
  must(p.a.ep.post(dat::send{p.a.at(0, 60)}.cookie(2)));
  p.a.take();
  p.b.take();
  const auto all = trace.take({point::post, point::completion});
  CHECK(texts_of(all) == texts{"post recv 100 1", "post send 60 2", "completion send 60 2", "completion recv 60 1"});
  REQUIRE(all.size() == 4);
  CHECK(all[0].number == p.b.ep.number());
  CHECK(all[1].number == p.a.ep.number());
  CHECK(all[2].number == p.a.ep.number());
  CHECK(all[3].number == p.b.ep.number());
  for (std::size_t i = 1; i < all.size(); ++i) CHECK(all[i - 1].time <= all[i].time);
  CHECK_FALSE(all[0].shared);

  SECTION("no record without a sink") {
    dat::trace::set_sink(nullptr);
    must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}));
    p.a.take();
    CHECK(trace.take().empty());
  }
  SECTION("a poll that finds nothing leaves none") {
    p.a.take();
    CHECK(trace.take({point::completion}).empty());
  }
}

TEST_CASE("every operation is traced by its name, and so is what arrives", "[trace]") {
  const clean_world world;
  pair p;
  records trace;
  for (unsigned i = 1; i <= 2; ++i) must(p.b.ep.post(dat::recv{p.b.at(0, 8)}.cookie(i)));
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 5), p.b.mem.remote()}.cookie(3)));
  must(p.a.ep.post(dat::rdma_read{p.a.at(0, 6), p.b.mem.remote()}.cookie(4)));
  must(p.a.ep.post(dat::send{p.a.at(0, 7)}.immediate(9).cookie(5)));
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}.immediate(9).cookie(6)));
  p.a.take();
  p.b.take();
  CHECK(texts_of(trace.take({point::completion})) ==
        texts{"completion rdma_write 5 3", "completion rdma_read 6 4", "completion send_immediate 7 5",
              "completion rdma_write_immediate 8 6", "completion recv_immediate 7 1",
              "completion recv_rdma_immediate 8 2"});
}

TEST_CASE("an atomic write and a flush are traced", "[trace][ib]") {
  fake::world w;
  for (auto& d : w.devices) d.atomic_writes = d.flushes = true;
  const clean_world world(w);
  pair p;
  std::array<std::uint64_t, 1> word{};
  const auto mem = must(p.b.pz.register_memory(word, all_rights | dat::flush_global));
  records trace;
  must(p.a.ep.post(dat::ib::atomic_write{mem.remote(), 7}.cookie(5)));
  p.a.take();
  CHECK(texts_of(trace.take()) == texts{"post atomic_write 8 5", "completion atomic_write 8 5"});
  must(p.a.ep.post(dat::ib::flush{mem.remote(), dat::persistence::global}.cookie(6)));
  p.a.take();
  CHECK(texts_of(trace.take()) == texts{"post flush 0 6", "completion flush 0 6"});
}

TEST_CASE("several operations of one call leave a record each", "[trace]") {
  const clean_world world;
  pair p;
  records trace;
  const auto wanted = [](unsigned n) {
    texts all;
    for (unsigned i = 0; i < n; ++i) all.push_back("post send 8 " + std::to_string(i));
    return all;
  };
  SECTION("post") {
    must(p.a.ep.post(dat::send{p.a.at(0, 8)}.cookie(0), dat::send{p.a.at(0, 8)}.cookie(1)));
    CHECK(texts_of(trace.take({point::post})) == wanted(2));
  }
  SECTION("post_n, with several doorbells") {
    must(p.a.ep.post_n(20, [&](std::size_t i) { return dat::send{p.a.at(0, 8)}.cookie(i); }));
    CHECK(texts_of(trace.take({point::post})) == wanted(20));
  }
  SECTION("batch") {
    dat::batch<3> batch;
    for (unsigned i = 0; i < 3; ++i) REQUIRE(batch.push_back(dat::send{p.a.at(0, 8)}.cookie(i)));
    must(p.a.ep.post(batch));
    CHECK(texts_of(trace.take({point::post})) == wanted(3));
  }
  SECTION("a list of segments") {
    must(p.a.ep.post(dat::send{dat::iov{p.a.at(0, 8), p.a.at(16, 4)}}.cookie(7)));
    CHECK(texts_of(trace.take({point::post})) == texts{"post send 12 7"});
  }
}

TEST_CASE("operations that the device did not take are taken back", "[trace]") {
  const clean_world world;
  pair p;
  records trace;
  SECTION("by the device, from the second one on") {
    fake::fail(fake::call::ibv_post_send, 1, ENOMEM);
    CHECK_FALSE(p.a.ep.post(dat::send{p.a.at(0, 8)}.cookie(1), dat::send{p.a.at(0, 8)}.cookie(2)));
    const auto all = trace.take({point::post, point::refused});
    REQUIRE(all.size() == 3);
    CHECK(all[2].code == ENOMEM);
    CHECK(all[2].bytes == 2);
    CHECK(all[2].number == p.a.ep.number());
  }
  SECTION("by the state of the endpoint") {
    p.a.make_ep();
    trace.take();
    CHECK_FALSE(p.a.ep.post(dat::send{p.a.at(0, 8)}.cookie(1)));
    CHECK(texts_of(trace.take()) == texts{"post send 8 1", "refused 1"});
  }
  SECTION("by the device, receives") {
    fake::fail(fake::call::ibv_post_recv, 1, ENOMEM);
    CHECK_FALSE(p.a.ep.post(dat::recv{p.a.at(0, 8)}.cookie(1), dat::recv{p.a.at(0, 8)}.cookie(2)));
    CHECK(texts_of(trace.take()) == texts{"post recv 8 1", "post recv 8 2", "refused 2 code 12"});
  }
  SECTION("a request that dat refuses before the device leaves nothing") {
    CHECK_FALSE(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), must(p.b.mem.remote().slice(0, 4))}));
    CHECK(trace.take({point::post, point::refused}).empty());
  }
}

TEST_CASE("a failed operation has its status", "[trace]") {
  const clean_world world;
  pair p;
  must(p.b.ep.post(dat::recv{p.b.at(0, 8)}.cookie(1)));
  records trace;
  must(p.b.ep.disconnect(dat::close_mode::abrupt));
  p.settle();
  p.b.take();
  const auto failed = trace.take({point::completion});
  REQUIRE(failed.size() == 1);
  CHECK(failed[0].code == IBV_WC_WR_FLUSH_ERR);
  CHECK(failed[0].bytes == 0);
  CHECK(failed[0].cookie == 1);
}

TEST_CASE("a connection leaves its requests, events and states on both sides", "[trace]") {
  const clean_world world;
  end a("fk1");
  end b("fk2");
  auto psp = must(b.ia.create_psp(service, b.evd));
  records trace;
  a.make_ep();
  CHECK(texts_of(trace.take({point::state})) ==
        texts{"state none -> unconfigured unconnected", "state unconfigured unconnected -> unconnected"});
  b.make_ep();
  trace.take();
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(b.ep));
  settle(a, b);
  must(a.ep.disconnect(dat::close_mode::abrupt));
  settle(a, b);
  const auto all = trace.take({point::state, point::connection, point::request});
  texts of_a;
  texts of_b;
  for (const record& r : all)
    (r.what == point::request || r.number == b.ep.number() ? of_b : of_a).push_back(text_of(r));
  CHECK(of_a == texts{"state unconnected -> active connection pending", "state active connection pending -> connected",
                      "connection established", "state connected -> disconnected", "connection disconnected"});
  CHECK(of_b == texts{"request", "state unconnected -> completion pending", "state completion pending -> connected",
                      "connection established", "state connected -> disconnected", "connection disconnected code 1"});
  const auto number = a.ep.number();
  must(a.ep.close());
  const auto last = trace.take({point::state});
  REQUIRE_FALSE(last.empty());
  CHECK(text_of(last.back()) == "state disconnected -> none");
  CHECK(last.back().number == number);
}

TEST_CASE("a request that the evd has no room for leaves a record with the reason", "[trace]") {
  const clean_world world;
  end a("fk1");
  end b("fk2");
  a.make_ep();
  auto small = must(b.ia.create_evd<dat::stream::connection_requests>(1));
  auto psp = must(b.ia.create_psp(service, small));
  records trace;
  for (int i = 0; i < 2; ++i) {
    auto ep = must(a.pz.create_ep<dat::rc>(a.evd));
    must(ep.connect(b.ia.address(), service, plenty));
    settle(a, b);
  }
  const auto requests = trace.take({point::request});
  REQUIRE(requests.size() == 2);
  CHECK(requests[0].code == 0);
  CHECK(requests[1].code == ENOBUFS);
  CHECK(requests[1].number == service);
}

TEST_CASE("a thread that waits leaves its arming, its sleep, its notification and its waking", "[trace]") {
  const clean_world world;
  end e("fk1", automatic);
  e.make_ep(); // the endpoint causes the device to be armed
  auto evd = must(e.ia.create_evd<dat::stream::software | dat::stream::dto>(8));
  auto fed = must(e.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = e.evd}));
  records trace;
  std::jthread waits([&] { (void)evd.wait_for<dat::software_event>(plenty); });
  trace.await(point::sleep);
  must(evd.post(dat::cookie(1)));
  waits.join();
  auto all = trace.take({point::arm, point::sleep, point::notify, point::wake});
  std::erase_if(all, [&](const record& r) { return dat::evd_id(r.number) != evd.id(); });
  CHECK(texts_of(all) == texts{"arm", "sleep", "notify", "wake"});

  SECTION("a wait that ends at its time limit") {
    CHECK_FALSE(evd.wait_for<dat::software_event>(1us));
    const auto ended = trace.take({point::notify, point::wake});
    for (const record& r : ended) CHECK(r.code == ETIMEDOUT); // none if the time has passed before the sleep
    CHECK(ended.size() <= 1);
  }
  SECTION("a wait that need not sleep") {
    must(evd.post(dat::cookie(2)));
    must(evd.wait_for<dat::software_event>(plenty));
    CHECK(trace.take({point::sleep, point::wake, point::notify}).empty());
  }
}

TEST_CASE("a shared receive queue traces its buffers under its own number", "[trace][srq]") {
  const clean_world world;
  end a("fk1");
  end b("fk2");
  auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep();
  auto srq = must(b.pz.create_srq({.max_recv_dtos = 8, .max_recv_iov = 1}));
  auto ep = must(b.pz.create_ep<dat::rc>(b.evd, srq));
  records trace;
  must(srq.post(dat::recv{b.at(0, 16)}.cookie(7)));
  const auto posted = trace.take();
  CHECK(texts_of(posted) == texts{"post recv 16 7"});
  REQUIRE(posted.size() == 1);
  CHECK(posted[0].shared);
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(ep));
  settle(a, b);
  trace.take();
  must(a.ep.post(dat::send{a.at(0, 3)}.cookie(1)));
  a.take();
  b.take();
  const auto done = trace.take({point::completion});
  CHECK(texts_of(done) == texts{"completion send 3 1", "completion recv 3 7"});
  REQUIRE(done.size() == 2);
  CHECK(done[1].number == ep.number());
  fake::fail(fake::call::ibv_post_srq_recv, 1, ENOMEM);
  CHECK_FALSE(srq.post(dat::recv{b.at(0, 16)}.cookie(8)));
  CHECK(texts_of(trace.take()) == texts{"post recv 16 8", "refused 1 code 12"});
}

TEST_CASE("datagrams and binds are traced", "[trace][ud][rmr]") {
  const clean_world world;
  SECTION("datagrams") {
    datagram_end a("fk1");
    std::array<char, 128> memory{};
    const auto mem = must(a.pz.register_memory(memory, all_rights));
    const auto self = must(a.ep.address_of(must(a.ep.address())));
    records trace;
    must(a.ep.post(dat::recv{must(mem.slice(0, 64))}.cookie(1)));
    must(a.ep.post(dat::ib::send_to{must(mem.slice(100, 8)), self}.cookie(2)));
    fake::finish();
    while (a.evd.drain([](const auto&) {}) != 0) {
    }
    auto all = texts_of(trace.take({point::post, point::completion}));
    REQUIRE(all.size() == 4);
    std::sort(all.begin() + 2, all.end()); // the loopback decides which of the two completes first
    CHECK(all == texts{"post recv_ud 64 1", "post send_ud 8 2", "completion recv_ud 48 1", "completion send_ud 8 2"});
  }
  SECTION("binds") {
    pair p;
    auto evd = must(p.b.ia.create_evd<all_streams | dat::stream::rmr_bind>(16));
    p.a.make_ep();
    p.b.ep = must(p.b.pz.create_ep<dat::rc>(evd));
    must(p.a.ep.connect(p.b.ia.address(), service, plenty));
    p.settle();
    must(request_on(p.b.evd).accept(p.b.ep));
    p.settle();
    const auto drain = [&] {
      fake::finish();
      while (evd.drain([](const auto&) {}) != 0) {
      }
    };
    drain();
    const bool for_ep = GENERATE(false, true);
    CAPTURE(for_ep);
    dat::rmr rmr = for_ep ? must(p.b.pz.create_rmr_for_ep()) : must(p.b.pz.create_rmr());
    records trace;
    (void)must(rmr.bind(p.b.ep, dat::bind{p.b.mem, 0, 8, dat::remote_write}.cookie(5)));
    drain();
    CHECK(texts_of(trace.take({point::post, point::completion})) == texts{"post bind 0 5", "completion bind 0 5"});
    auto window = must(p.b.pz.create_rmr_for_ep());
    const auto unbind = [&] { return for_ep ? window.unbind(p.b.ep, dat::unbind{}.cookie(6)) : rmr.unbind(p.b.ep); };
    fake::fail(for_ep ? fake::call::ibv_post_send : fake::call::ibv_bind_mw, 1, ENOMEM);
    CHECK_FALSE(unbind());
    const auto refused = texts_of(trace.take({point::post, point::refused}));
    REQUIRE(refused.size() == 2);
    CHECK(refused[0] == (for_ep ? "post unbind 0 6" : "post unbind 0 0"));
    CHECK(refused[1] == "refused 1 code 12");
    must(rmr.close());
  }
}

TEST_CASE("a sink that is replaced gets no more records when set_sink returns", "[trace]") {
  const clean_world world;
  pair p;
  struct gate : dat::trace::sink {
    gate() : sink(&take) {}
    static void take(sink& self, const record& r) noexcept {
      auto& g = static_cast<gate&>(self);
      if (r.what != point::post) return;
      g.entered.store(true);
      while (!g.open.load()) std::this_thread::yield();
      g.left.store(true);
    }
    std::atomic<bool> entered{false};
    std::atomic<bool> open{false};
    std::atomic<bool> left{false};
  } g;
  dat::trace::set_sink(&g);
  std::jthread posts([&] { must(p.a.ep.post(dat::send{p.a.at(0, 8)})); });
  while (!g.entered.load()) std::this_thread::yield();
  std::atomic<bool> replaced{false};
  bool left_first = false;
  std::jthread replaces([&] {
    dat::trace::set_sink(nullptr);
    left_first = g.left.load();
    replaced.store(true);
  });
  CHECK_FALSE(replaced.load());
  g.open.store(true);
  posts.join();
  replaces.join();
  CHECK(left_first);
}
