// dat on iWARP: connections, whose queue pairs the kernel moves, and features that such an adapter lacks.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/descriptor.hpp>
#include <dat/ib.hpp>
#include <dat/srq.hpp>
#include <dat/ud.hpp>

using namespace unit;
using dat::return_type;

namespace {

/// Adapters of siw. Checks that no object is left at the end.
struct iwarp_world {
  fake::with manner{fake::personality::iwarp};
  clean_world clean;
};

struct two_ends {
  end a{"fk1"};
  end b{"fk2"};
  dat::psp psp = must(b.ia.create_psp(service, b.evd));
  two_ends() {
    a.make_ep();
    b.make_ep();
  }
  void connect(std::string_view data = {}) {
    must(a.ep.connect(b.ia.address(), service, plenty, std::as_bytes(std::span(data))));
    settle();
  }
  void settle() { unit::settle(a, b); }
};

struct sharing_end : end {
  using end::end;
  dat::srq srq = must(pz.create_srq({.max_recv_dtos = 10, .max_recv_iov = 2}));
};

} // namespace

TEST_CASE("an adapter of iWARP is opened by name, by address, and where there is no other", "[ia][iwarp]") {
  const iwarp_world world;
  CHECK(must(dat::ia::open("fk2", manual)).name() == "fk2");
  CHECK(must(dat::ia::open(must(dat::ia_address::parse("10.99.2.1")), manual)).name() == "fk2");
  CHECK(must(dat::ia::open(manual)).name() == "fk1");
  CHECK(must(dat::ia::list_adapters()).size() == 2);
}

TEST_CASE("a connection of iWARP carries messages, writes and reads both ways", "[iwarp]") {
  const iwarp_world world;
  pair p;
  must(p.b.ep.post(dat::recv{p.b.at(0, 16)}.cookie(2)));
  p.a.memory[0] = 'x';
  must(p.a.ep.post(dat::send{p.a.at(0, 16)}.cookie(1)));
  CHECK(p.a.take() == events{"sent 1"});
  CHECK(p.b.take() == events{"received 2"});
  CHECK(p.b.memory[0] == 'x');
  p.b.memory[100] = 'y';
  must(p.b.ep.post(dat::rdma_write{p.b.at(100, 8), must(p.a.mem.remote().slice(200, 8))}.cookie(3)));
  CHECK(p.b.take().size() == 1);
  CHECK(p.a.memory[200] == 'y');
  must(p.a.ep.post(dat::rdma_read{p.a.at(300, 8), must(p.b.mem.remote().slice(100, 8))}.cookie(4)));
  CHECK(p.a.take().size() == 1);
  CHECK(p.a.memory[300] == 'y');
}

TEST_CASE("private data of iWARP arrives with its length, of requests, replies and rejects", "[iwarp]") {
  const iwarp_world world;
  two_ends e;
  e.connect("a question");
  auto request = request_on(e.b.evd);
  CHECK(text_of(request.private_data()) == "a question");
  CHECK(fake::connection_parameters().at(0).private_data_len == 10); // without a mark of dat
  SECTION("reply") {
    must(request.accept(e.b.ep, bytes_of("answer")));
    e.settle();
    auto up = must(e.a.evd.dequeue());
    REQUIRE(std::holds_alternative<dat::established>(up));
    CHECK(text_of(std::get<dat::established>(up).private_data()) == "answer");
    CHECK(fake::connection_parameters().at(1).private_data_len == 6);
  }
  SECTION("empty reply") {
    must(request.accept(e.b.ep));
    e.settle();
    auto up = must(e.a.evd.dequeue());
    REQUIRE(std::holds_alternative<dat::established>(up));
    CHECK(std::get<dat::established>(up).private_data().empty());
  }
  SECTION("reject") {
    must(request.reject(bytes_of("no")));
    e.settle();
    auto no = must(e.a.evd.dequeue());
    REQUIRE(std::holds_alternative<dat::peer_rejected>(no));
    CHECK(text_of(std::get<dat::peer_rejected>(no).private_data()) == "no");
  }
  SECTION("empty reject") {
    must(request.reject());
    e.settle();
    auto no = must(e.a.evd.dequeue());
    REQUIRE(std::holds_alternative<dat::peer_rejected>(no));
    CHECK(std::get<dat::peer_rejected>(no).private_data().empty());
  }
  e.b.take();
}

TEST_CASE("a request of iWARP that nobody listens for or answers is no decision of the peer", "[iwarp]") {
  const iwarp_world world;
  two_ends e;
  SECTION("nobody listens") {
    CHECK(e.a.ep.connect(e.b.ia.address(), service + 1, plenty));
    e.settle();
  }
  SECTION("the request is dropped") {
    e.connect();
    CHECK(request_on(e.b.evd).private_data().empty());
    e.settle();
  }
  auto no = must(e.a.evd.dequeue());
  REQUIRE(std::holds_alternative<dat::non_peer_rejected>(no));
  CHECK(std::get<dat::non_peer_rejected>(no).reason() == ECONNREFUSED);
  CHECK(std::string(std::get<dat::non_peer_rejected>(no).message()).find("4791") == std::string::npos);
  CHECK(e.a.ep.state() == dat::ep_state::disconnected);
  must(e.a.ep.reset());
  e.connect();
  must(request_on(e.b.evd).accept(e.b.ep));
  e.settle();
  CHECK(e.a.take() == events{"established"});
  CHECK(e.b.take() == events{"established"});
}

TEST_CASE("a request of iWARP can be handed to another service point", "[iwarp][CR-077]") {
  const iwarp_world world;
  two_ends t;
  const auto other = must(t.b.ia.create_psp(7009, t.b.evd));
  t.connect("from far");
  auto request = request_on(t.b.evd);
  must(request.handoff(must(dat::conn_qual::make(7009))));
  CHECK_FALSE(request);
  auto again = request_on(t.b.evd);
  CHECK(again.service() == other.id());
  must(again.accept(t.b.ep));
  t.settle();
  CHECK(t.a.take() == events{"established"});
  CHECK(t.b.take() == events{"established"});
}

TEST_CASE("rdma_connect may fail at once on iWARP", "[iwarp]") {
  const iwarp_world world;
  two_ends e;
  const auto [error, name] = GENERATE(table<int, const char*>({{ECONNREFUSED, "non_peer_rejected"},
                                                               {EHOSTUNREACH, "connection_unreachable"},
                                                               {ETIMEDOUT, "connection_unreachable"},
                                                               {ENOMEM, "non_peer_rejected"}}));
  fake::fail(fake::call::rdma_connect, 1, error);
  e.connect();
  auto no = must(e.a.evd.dequeue());
  CHECK(std::visit([](const auto& event) { return std::string(event.name); }, no) == name);
}

TEST_CASE("each side of a connection of iWARP gets one end, however it ends", "[iwarp]") {
  const iwarp_world world;
  pair p;
  SECTION("graceful") { CHECK(p.a.ep.disconnect()); }
  SECTION("abrupt") { CHECK(p.a.ep.disconnect(dat::close_mode::abrupt)); }
  SECTION("by the passive side") { CHECK(p.b.ep.disconnect(dat::close_mode::abrupt)); }
  SECTION("by both") {
    CHECK(p.a.ep.disconnect(dat::close_mode::abrupt));
    CHECK(p.b.ep.disconnect(dat::close_mode::abrupt));
  }
  p.settle();
  CHECK(p.a.take() == events{"disconnected"});
  CHECK(p.b.take() == events{"disconnected"});
  must(p.a.ep.reset());
  must(p.b.ep.reset());
  p.connect();
}

TEST_CASE("operations that the end of an iWARP connection flushes do not make it a broken one", "[iwarp]") {
  const iwarp_world world;
  pair p;
  for (unsigned i = 1; i <= 3; ++i) must(p.b.ep.post(dat::recv{p.b.at(0, 8)}.cookie(i)));
  SECTION("a peer that disconnects") { CHECK(p.a.ep.disconnect(dat::close_mode::abrupt)); }
  SECTION("a peer that closes its endpoint") { CHECK(p.a.ep.close()); }
  SECTION("this side is about to disconnect, too") {
    CHECK(p.a.ep.disconnect(dat::close_mode::abrupt));
    CHECK(p.b.ep.disconnect());
  }
  auto all = p.b.take();
  p.settle();
  for (auto& e : p.b.take()) all.push_back(e);
  REQUIRE(all.size() == 4);
  CHECK(std::count(all.begin(), all.end(), "disconnected") == 1);
  CHECK(std::count(all.begin(), all.end(), "broken") == 0);
}

TEST_CASE("a failure that is no flush breaks an iWARP connection", "[iwarp]") {
  const iwarp_world world;
  pair p;
  {
    auto gone = must(p.b.pz.register_memory(p.b.memory, all_rights));
    const auto there = gone.remote();
    must(gone.close());
    must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), there}.cookie(1)));
  }
  p.settle();
  auto all = p.a.take();
  CHECK(std::count(all.begin(), all.end(), "broken") == 1);
  CHECK(std::count(all.begin(), all.end(), "disconnected") == 0);
}

TEST_CASE("iWARP may need remote_write of the memory that is read into, and a read without it fails and breaks",
          "[iwarp]") {
  const iwarp_world world;
  pair p;
  CHECK(must(p.a.ia.query<dat::provider_attributes>()).rdma_write_for_rdma_read_req);
  const auto sink = must(p.a.pz.register_memory(p.a.memory, dat::local_write));
  fake::hold(p.a.ep.native_handle());
  must(p.a.ep.post(dat::rdma_read{must(sink.slice(0, 8)), p.b.mem.remote()}.cookie(1))); // the post returns no error
  REQUIRE(fake::complete(p.a.ep.native_handle(), {}, IBV_WC_LOC_PROT_ERR));              // the adapter refuses the read
  p.settle();
  const auto all = p.a.take();
  CHECK(std::count(all.begin(), all.end(), std::string(to_string(dat::dto_status::local_protection)) + " 1") == 1);
  CHECK(std::count(all.begin(), all.end(), "broken") == 1);
  CHECK(p.a.ep.state() == dat::ep_state::disconnected);
  SHOWS("DTO-136");
}

TEST_CASE("the peer of an iWARP connection has the rights of the endpoint, not those of the kernel", "[iwarp]") {
  const iwarp_world world;
  end a("fk1");
  end b("fk2");
  auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep({.max_rdma_read_in = 0});
  b.make_ep();
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(b.ep));
  settle(a, b);
  CHECK(a.take() == events{"established"});
  CHECK(b.take() == events{"established"});
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  REQUIRE(ibv_query_qp(a.ep.native_handle(), &attr, IBV_QP_ACCESS_FLAGS, &init) == 0);
  CHECK((attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) == 0);
  CHECK((attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) != 0);
  const auto refused = b.ep.post(dat::rdma_read{b.at(0, 8), a.mem.remote()});
  is_error(refused, return_type::invalid_parameter, dat::return_subtype::arg1);
}

TEST_CASE("each side of an iWARP connection runs as many RDMA reads as the other one serves", "[iwarp]") {
  const iwarp_world world;
  end a("fk1");
  end b("fk2");
  auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep({.max_rdma_read_out = 8, .max_rdma_read_in = 4});
  b.make_ep({.max_rdma_read_in = 0});
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(b.ep));
  settle(a, b);
  a.take();
  b.take();
  is_error(a.ep.post(dat::rdma_read{a.at(0, 8), b.mem.remote()}), return_type::invalid_parameter,
           dat::return_subtype::arg1);
  must(b.ep.post(dat::rdma_read{b.at(0, 8), a.mem.remote()}));
  CHECK(b.take().size() == 1);
}

TEST_CASE("iWARP takes receives without memory, in any place of a call", "[iwarp]") {
  const iwarp_world world;
  two_ends e;
  must(e.b.ep.post(dat::recv{}.cookie(1))); // posted before the connection
  e.connect();
  must(request_on(e.b.evd).accept(e.b.ep));
  e.settle();
  e.a.take();
  e.b.take();
  must(e.b.ep.post(dat::recv{e.b.at(0, 8)}.cookie(2), dat::recv{}.cookie(3), dat::recv{e.b.at(8, 8)}.cookie(4)));
  must(e.b.ep.post(dat::recv{}.cookie(5)));
  for (int i = 0; i < 5; ++i) must(e.a.ep.post(dat::send{}));
  CHECK(e.a.take().size() == 5);
  CHECK(e.b.take() == events{"received 1", "received 2", "received 3", "received 4", "received 5"});
}

TEST_CASE("a receive without memory that is refused for another reason is not posted", "[iwarp]") {
  const iwarp_world world;
  pair p;
  fake::fail(fake::call::ibv_post_recv, 2, ENOMEM); // the driver refuses the first try, which has no segment
  const auto refused = p.b.ep.post(dat::recv{}.cookie(1));
  is_error(refused, return_type::insufficient_resources, dat::return_subtype::resource_tep);
  must(p.b.ep.post(dat::recv{}.cookie(2)));
  must(p.a.ep.post(dat::send{}));
  CHECK(p.a.take().size() == 1);
  CHECK(p.b.take() == events{"received 2"});
}

TEST_CASE("a shared queue on iWARP takes receives without memory", "[iwarp]") {
  const iwarp_world world;
  end a("fk1");
  sharing_end b("fk2");
  auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep();
  auto shared = must(b.pz.create_ep<dat::rc>(b.evd, b.srq));
  must(b.srq.post(dat::recv{}.cookie(1)));
  must(b.srq.post(dat::recv{b.at(0, 8)}.cookie(2), dat::recv{}.cookie(3)));
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(shared));
  settle(a, b);
  a.take();
  b.take();
  for (int i = 0; i < 3; ++i) must(a.ep.post(dat::send{}));
  CHECK(a.take().size() == 3);
  CHECK(b.take() == events{"received 1", "received 2", "received 3"});
}

TEST_CASE("what iWARP does not have is refused by name, and nothing is lost", "[iwarp]") {
  const iwarp_world world;
  pair p;
  is_error(p.a.ep.post(dat::send{p.a.at(0, 8)}.immediate(7)), return_type::model_not_supported);
  is_error(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}.immediate(7)), return_type::model_not_supported);
  // Lists are refused, too: libsiw posts the requests before the one that it refuses, and reports success.
  is_error(p.a.ep.post(dat::send{p.a.at(0, 8)}, dat::send{}.immediate(7)), return_type::model_not_supported);
  is_error(p.a.ep.post_n(2, [&](std::size_t) { return dat::send{p.a.at(0, 8)}.immediate(7); }),
           return_type::model_not_supported);
  dat::batch<2> list;
  REQUIRE(list.push_back(dat::send{p.a.at(0, 8)}));
  REQUIRE(list.push_back(dat::send{p.a.at(0, 8)}.immediate(7)));
  is_error(p.a.ep.post(list), return_type::model_not_supported);
  SHOWS("IBX-027");
  const auto apart = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  is_error(apart.post(dat::send{p.a.at(0, 8)}.immediate(7)), return_type::model_not_supported);
  is_error(apart.post(dat::send{p.a.at(0, 8)}), return_type::invalid_state, dat::return_subtype::ep_unconnected);
  SHOWS("IBX-003");
  const auto merges = must(p.a.ia.query<dat::provider_attributes>()).evd_stream_merging_supported;
  CHECK_FALSE(includes(merges, dat::stream::datagrams));
  is_error(p.a.ep.export_descriptor(), return_type::model_not_supported);
  const auto datagrams = must(p.a.ia.create_evd<ud_streams>(64));
  is_error(p.a.pz.create_ep<dat::ud>(datagrams), return_type::model_not_supported);
  must(p.b.ep.post(dat::recv{p.b.at(0, 8)}.cookie(1)));
  must(p.a.ep.post(dat::send{p.a.at(0, 8)}.cookie(2)));
  CHECK(p.a.take() == events{"sent 2"});
  CHECK(p.b.take() == events{"received 1"});
}

TEST_CASE("Soft-iWARP never notifies of a solicited message, so an endpoint that waits for one is refused", "[iwarp]") {
  const fake::with manner{fake::personality::iwarp};
  fake::world siw;
  for (auto& d : siw.devices) {
    d.transport = IBV_TRANSPORT_IWARP;
    auto limits = fake::rxe_attr();
    limits.vendor_id = 0x626d74;
    limits.max_mw = 0;
    limits.atomic_cap = IBV_ATOMIC_NONE;
    limits.device_cap_flags &= ~unsigned(IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
    d.attr = limits;
  }
  const clean_world world(siw);
  end e;
  CHECK_FALSE(must(e.ia.query<dat::provider_attributes>()).completion_flags_supported.solicited_wait);
  const auto receives = must(e.ia.create_evd<dat::stream::dto>(64));
  const auto requests = must(e.ia.create_evd<dat::stream::dto>(64));
  const auto refused = e.pz.create_ep<dat::rc>({.recv = receives, .request = requests, .connect = e.evd},
                                               {.recv_completion = dat::completion_notification::solicited_wait});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().type() == return_type::model_not_supported);
  SHOWS("DTO-042", "REQ-110");
}

TEST_CASE("an evd on iWARP has room for several endpoints, and says when it has not", "[iwarp][evd]") {
  const iwarp_world world;
  end a("fk1");
  std::vector<dat::ep<dat::rc>> many;
  for (int i = 0; i < 20; ++i) many.push_back(must(a.pz.create_ep<dat::rc>(a.evd)));
  must(a.evd.resize(100));
  must(a.evd.resize(4000));
  must(a.evd.resize(static_cast<std::uint32_t>(a.evd.native_handle()->cqe) - 16)); // fills the queue of the device
  const auto full = a.pz.create_ep<dat::rc>(a.evd, {.max_request_dtos = 8000});
  is_error(full, return_type::insufficient_resources, dat::return_subtype::resource_tevd);
  CHECK(full.error().index() > 8000);
}

TEST_CASE("a connection of iWARP has a traffic class, but no service level and no flow label", "[iwarp][qos]") {
  const iwarp_world world;
  end a("fk1");
  end b("fk2");
  a.make_ep();
  b.make_ep();
  auto psp = must(b.ia.create_psp(service, b.evd));
  is_error(a.ep.connect(b.ia.address(), service, plenty, {}, {.qos = {.service_level = 1}}),
           dat::return_type::model_not_supported);
  is_error(a.ep.connect(b.ia.address(), service, plenty, {}, {.qos = {.flow_label = 1}}),
           dat::return_type::model_not_supported);
  CHECK(a.ep.state() == dat::ep_state::unconnected);
  SHOWS("CONN-051");
  must(a.ep.connect(b.ia.address(), service, plenty, {}, {.qos = dat::qos::premium()}));
  settle(a, b);
  auto request = request_on(b.evd);
  // The accepting side cannot choose the quality of service, and the request stays valid.
  for (const auto& q : {dat::qos::premium(), dat::qos{.service_level = 1}, dat::qos{.flow_label = 1}})
    is_error(request.accept(b.ep, {}, {.qos = q}), dat::return_type::model_not_supported);
  CHECK(b.ep.state() == dat::ep_state::unconnected);
  must(request.accept(b.ep));
  settle(a, b);
  CHECK(a.take() == events{"established"});
}

TEST_CASE("an ia of iWARP has a traffic class for its connections, and nothing else of a quality", "[iwarp][qos]") {
  const iwarp_world world;
  dat::ia_options options = manual;
  for (const auto& q : {dat::qos{.service_level = 1}, dat::qos{.traffic_class = 8, .flow_label = 1}}) {
    options.qos = q;
    const auto refused = dat::ia::open("fk1", options);
    is_error(refused, dat::return_type::model_not_supported);
    CHECK(refused.error().message().find("set qos.traffic_class only") != std::string::npos);
  }
  options.qos = {.service_level = 16};
  is_error(dat::ia::open("fk1", options), dat::return_type::invalid_parameter, dat::return_subtype::arg2);
  options.qos = dat::qos::premium();
  must(dat::ia::open("fk1", options));
}
