// Shared receive queues in the fake world: creation, counts, resizing, refusals, and failed calls.
// SPDX-License-Identifier: BSL-1.0
#include "pool_fake.hpp"

#include <dat/ep_params.hpp>
#include <dat/srq.hpp>

#include <algorithm>
#include <unordered_set>

using namespace shared_queues;
using namespace unit;
using dat::ep_state;
using dat::return_subtype;
using dat::return_type;

TEST_CASE("a shared receive queue begins operational and empty, with at least the requested room", "") {
  const clean_world clean;
  end b;
  auto srq = must(b.pz.create_srq({.max_recv_dtos = 10, .max_recv_iov = 3}));
  auto p = must(srq.query());
  CHECK(p.state == dat::srq_state::operational);
  SHOWS("SRQ-007");
  CHECK(p.pz == b.pz.identity());
  CHECK(p.max_recv_dtos == 15); // the device rounds the size up
  CHECK(p.max_recv_iov >= 3);
  SHOWS("SRQ-010");
  CHECK(p.low_watermark == 0);
  SHOWS("SRQ-053");
  CHECK(p.outstanding == 0);
  CHECK(p.available == 0u);
  SHOWS("SRQ-008");
  const dat::iov three{b.at(0, 8), b.at(8, 8), b.at(16, 8)};
  for (int i = 0; i < 15; ++i) must(srq.post(dat::recv{three}.cookie(i)));
  const auto full = refusal(srq.post(dat::recv{three}));
  CHECK(full == dat::error(return_type::insufficient_resources, return_subtype::resource_srq));
  CHECK(full.call() == "srq.post");
  CHECK(must(srq.query()).outstanding == 15);
  CHECK_THAT(refusal(srq.set_low_watermark(16)).message(), support::contains_text("srq_params::max_recv_dtos"));
  CHECK(refusal(srq.set_low_watermark(16)).type() == return_type::invalid_parameter);
  must(srq.set_low_watermark(15));
  SHOWS("SRQ-041");
  must(srq.close());
  CHECK(fake::live().srqs == 0);
  SHOWS("SRQ-045");

  const auto limits = must(b.ia.query());
  CHECK(limits.max_srqs > 0);
  CHECK(limits.max_ep_per_srq > 0);
  CHECK(limits.max_recv_per_srq > 0);
  const std::pair<dat::srq_attributes, const char*> wrong[] = {
      {{.max_recv_dtos = 0}, "max_recv_dtos must be within 1..ia_attributes::max_recv_per_srq"},
      {{.max_recv_dtos = limits.max_recv_per_srq + 1}, "max_recv_dtos must be within"},
      {{.max_recv_dtos = ~0u}, "max_recv_dtos must be within"},
      {{.max_recv_iov = 0}, "max_recv_iov must be at least 1"},
      {{.max_recv_iov = 1000}, "max_srq_sge"},
      {{.max_recv_iov = ~0u}, "max_srq_sge"}};
  for (const auto& [bad, said] : wrong) {
    const auto r = b.pz.create_srq(bad);
    REQUIRE_FALSE(r);
    CHECK(r.error().type() == return_type::invalid_parameter);
    CHECK_THAT(r.error().message(), support::contains_text(said));
    SHOWS("SRQ-003", "SRQ-014");
  }
  const auto offered = must(b.ia.query<dat::provider_attributes>());
  CHECK(offered.srq_supported);
  SHOWS("IA-125", "REQ-113");
  CHECK(offered.srq_watermarks_supported.dat_code() == 0x111);
  SHOWS("IA-126");
  CHECK(offered.srq_info_supported.dat_code() == 0x11);
  SHOWS("IA-128");
  CHECK_FALSE(offered.srq_ep_pz_difference_supported);
  SHOWS("IA-127");
  CHECK_FALSE(offered.ep_recv_info_supported);
  SHOWS("IA-129", "SRQ-002");
}

TEST_CASE("an adapter without shared receive queues returns model_not_supported", "[srq]") {
  auto attr = fake::rxe_attr();
  attr.max_srq = 0;
  fake::world w;
  w.devices[0].attr = attr;
  const clean_world clean(w);
  end b;
  const auto r = b.pz.create_srq();
  REQUIRE_FALSE(r);
  CHECK(r.error().type() == return_type::model_not_supported);
  SHOWS("SRQ-015");
  const auto offered = must(b.ia.query<dat::provider_attributes>());
  CHECK_FALSE(offered.srq_supported);
  SHOWS("DTO-021", "IA-125", "REQ-113", "SRQ-001");
  CHECK(offered.srq_watermarks_supported.dat_code() == 0);
  SHOWS("SRQ-002", "SRQ-042");
  CHECK(must(b.ia.query()).max_srqs == 0);
  CHECK(must(b.ia.query()).max_recv_per_srq == 0);
}

TEST_CASE("the counts follow the example of the specification", "[srq]") {
  const clean_world clean;
  pool p(1);
  const auto counts = [&] {
    const auto n = p.now();
    return std::vector<std::uint32_t>{n.max_recv_dtos, n.available.value_or(99), n.outstanding};
  };
  using three = std::vector<std::uint32_t>;
  const auto calls = fake::count(fake::call::ibv_post_srq_recv);
  p.post(1, 3);
  CHECK(fake::count(fake::call::ibv_post_srq_recv) == calls + 3); // the device has the buffers when the posts return
  SHOWS("SRQ-081");
  CHECK(counts() == three{15, 3, 3});
  p.send(0);
  CHECK(counts() == three{15, 2, 3});
  SHOWS("SRQ-055");
  CHECK(p.received() == events{"0:received 1"});
  SHOWS("SRQ-072");
  CHECK(counts() == three{15, 2, 2});
  SHOWS("SRQ-056", "SRQ-057");
  // An entry is free when its completion is taken, not before.
  p.post(4, 16);
  CHECK(counts() == three{15, 15, 15});
  p.send(0);
  CHECK(refusal(p.srq.post(dat::recv{})).type() == return_type::insufficient_resources);
  SHOWS("SRQ-086");
  CHECK(p.received() == events{"0:received 2"});
  must(p.srq.post(dat::recv{}.cookie(17)));
  CHECK(p.outstanding() == 15);
  SHOWS("SRQ-029");
}

TEST_CASE("an endpoint with a shared queue takes receives by the queue only", "") {
  const clean_world clean;
  pool p(1, {}, {.max_recv_dtos = 999'999, .max_recv_iov = 999});
  const auto refused = [&](ep_state s, return_subtype why) {
    INFO(to_string(s));
    CHECK(p.to[0].state() == s);
    const dat::ep_ref ref = p.to[0];
    const auto e = refusal(ref.post(dat::recv{p.b.at(0, 8)}));
    CHECK(e == dat::error(return_type::invalid_state, why));
    SHOWS("EP-025", "DTO-027", "DTO-122", "REQ-116");
    CHECK_THAT(e.message(), support::contains_text("srq"));
    CHECK(refusal(ref.post(dat::recv{p.b.at(0, 8)}, dat::recv{})).type() == return_type::invalid_state);
    const auto n = must(p.to[0].recv_query());
    CHECK_FALSE(n.allocated);
    CHECK_FALSE(n.span);
    SHOWS("EP-061", "REQ-120", "DTO-031");
  };
  refused(ep_state::connected, return_subtype::ep_connected);
  must(p.to[0].disconnect());
  refused(ep_state::disconnected, return_subtype::ep_disconnected);
  SHOWS("EPS-065", "DISC-029");
  must(p.to[0].reset());
  refused(ep_state::unconnected, return_subtype::ep_unconnected);
  SHOWS("EP-065");
  CHECK(refusal(p.to[0].modify({.max_recv_dtos = 7})).type() == return_type::invalid_parameter);
  SHOWS("EP-068");
  must(p.to[0].modify({.max_recv_iov = 0}));
  must(p.to[0].modify({.max_recv_iov = 999}));
  const auto q = must(p.to[0].query());
  CHECK(q.srq == p.srq);
  SHOWS("EP-026", "REQ-124");
  CHECK(q.attributes.max_recv_dtos == dat::no_watermark);
  SHOWS("EP-055", "EPATTR-009", "EP-027");
  CHECK(q.attributes.max_recv_iov == 0);
  SHOWS("EP-028", "EPATTR-011");
  const auto plain = must(p.from[0].query());
  CHECK_FALSE(plain.srq);
  CHECK(plain.attributes.soft_high_watermark == dat::no_watermark);
  SHOWS("EP-054", "SRQ-006");
  CHECK(plain.attributes.max_recv_iov != 0);
  CHECK(must(p.from[0].recv_query()).allocated == 0u);
}

TEST_CASE("an endpoint and its shared queue need the same zone and ia", "") {
  const clean_world clean;
  end b;
  end other;
  auto zone = must(b.ia.create_pz());
  auto srq = must(b.pz.create_srq());
  CHECK(refusal(b.pz.close()) == dat::error(return_type::invalid_state, return_subtype::pz_in_use));
  SHOWS("PZ-005");
  const auto r = zone.create_ep<dat::rc>(b.evd, srq);
  REQUIRE_FALSE(r);
  CHECK(r.error().type() == return_type::invalid_parameter);
  SHOWS("EP-023", "SRQ-018", "DTO-033", "REQ-121");
  const auto foreign = other.pz.create_ep<dat::rc>(other.evd, srq);
  REQUIRE_FALSE(foreign);
  CHECK(foreign.error() == dat::error(return_type::invalid_handle, return_subtype::handle_srq));
  SHOWS("SRQ-013");
  const auto none = b.pz.create_ep<dat::rc>(b.evd, dat::srq());
  REQUIRE_FALSE(none);
  CHECK(none.error() == dat::error(return_type::invalid_handle, return_subtype::handle_srq));
  SHOWS("EP-030", "EP-014");
  // For an endpoint that is configured later, modify checks the zone.
  auto ep = must(b.ia.create_ep<dat::rc>({.recv = b.evd, .request = b.evd, .connect = b.evd}, srq));
  CHECK(ep.state() == ep_state::unconfigured_unconnected);
  SHOWS("EP-022");
  const dat::ep_ref early = ep;
  CHECK(refusal(early.post(dat::recv{})).type() == return_type::invalid_state);
  CHECK(refusal(srq.close()) == dat::error(return_type::invalid_state, return_subtype::srq_in_use));
  CHECK(refusal(ep.modify({.pz = &zone})).type() == return_type::invalid_parameter);
  SHOWS("EP-032");
  must(ep.modify({.pz = &b.pz}));
  CHECK(ep.state() == ep_state::unconnected);
  CHECK(refusal(srq.close()) == dat::error(return_type::invalid_state, return_subtype::srq_in_use));
  SHOWS("SRQ-046", "DTO-026", "REQ-115");
  must(srq.post(dat::recv{b.at(0, 8)})); // the endpoint stays usable
  must(ep.close());
  // A failed create_ep leaves no user of the queue.
  fake::fail(fake::call::ibv_create_qp, 1, ENOMEM);
  const auto no_room = b.pz.create_ep<dat::rc>(b.evd, srq);
  REQUIRE_FALSE(no_room);
  CHECK(no_room.error().type() == return_type::insufficient_resources);
  SHOWS("EP-030");
  must(srq.close());
  CHECK(refusal(srq.close()) == dat::error(return_type::invalid_handle, return_subtype::handle_srq));
  CHECK(srq == dat::srq_ref());
  SHOWS("DTO-025");
  must(zone.close());
}

TEST_CASE("a shared queue has the members of every object, and an empty handle returns an error", "[srq]") {
  const clean_world clean;
  end b;
  auto srq = must(b.pz.create_srq());
  auto second = must(b.pz.create_srq());
  CHECK(dat::srq::kind == dat::object_kind::srq);
  CHECK(dat::dat_code(srq.kind) == 10u);
  CHECK(srq.owner() == b.ia.identity());
  CHECK(srq != second);
  CHECK(srq == dat::srq_ref(srq));
  int mine = 7;
  must(srq.set_context(&mine));
  CHECK(dat::srq_ref(srq).context<int>() == &mine);
  SHOWS("CTX-001", "CTX-005");
  std::unordered_set<dat::srq_ref> seen{srq, second, srq};
  CHECK(seen.size() == 2);
  CHECK(srq.native_handle() != nullptr);

  const void* const was = srq.identity();
  dat::srq moved = std::move(srq);
  CHECK(moved.identity() == was);
  CHECK_FALSE(srq); // NOLINT(bugprone-use-after-move)
  const auto nowhere = dat::pz().create_srq();
  REQUIRE_FALSE(nowhere);
  CHECK(nowhere.error() == dat::error(return_type::invalid_handle, return_subtype::handle_pz));
  SHOWS("SRQ-013");
  const dat::error empty(return_type::invalid_handle, return_subtype::handle_srq);
  for (dat::srq* none : {&srq, &second}) {
    if (none == &second) must(second.close());
    CHECK(refusal(none->post(dat::recv{})) == empty);
    CHECK(refusal(none->post(dat::recv{b.at(0, 8)})) == empty);
    CHECK(refusal(none->post(dat::recv{b.at(0, 8)}, dat::recv{b.at(0, 8)})) == empty);
    SHOWS("SRQ-090");
    CHECK(refusal(none->set_low_watermark(1)) == empty);
    SHOWS("SRQ-043");
    CHECK(refusal(none->resize(1)) == empty);
    SHOWS("SRQ-069");
    CHECK(none->query().error() == empty);
    SHOWS("SRQ-054");
    CHECK(refusal(none->close()) == empty);
    SHOWS("SRQ-050");
    CHECK(none->native_handle() == nullptr);
  }
  // The ia of this queue was closed.
  const dat::srq_ref left = moved;
  const auto segment = b.at(0, 8);
  must(b.ia.close(dat::close_mode::abrupt));
  CHECK(refusal(moved.post(dat::recv{segment})) == empty);
  CHECK(refusal(left.post(dat::recv{})) == empty);
  CHECK(moved.query().error() == empty);
  CHECK(refusal(moved.resize(3)) == empty);
  CHECK(refusal(moved.close()) == empty);
}

TEST_CASE("a buffer is checked before it is posted", "") {
  const clean_world clean;
  pool p(1);
  auto zone = must(p.b.ia.create_pz());
  std::array<char, 64> elsewhere{};
  auto foreign = must(zone.register_memory(elsewhere, all_rights));
  const auto e = refusal(p.srq.post(dat::recv{foreign}));
  CHECK(e == dat::error(return_type::protection_violation, return_subtype::protection_write));
  SHOWS("SRQ-009", "SRQ-088", "DTO-032");
  CHECK(refusal(p.srq.post(dat::recv{p.b.at(0, 8)}, dat::recv{foreign})).type() == return_type::protection_violation);
  const dat::iov four{p.b.at(0, 8), p.b.at(8, 8), p.b.at(16, 8), p.b.at(24, 8)};
  CHECK(refusal(p.srq.post(dat::recv{four})).type() == return_type::invalid_parameter);
  SHOWS("SRQ-074");
  CHECK(refusal(p.srq.post(dat::recv{p.b.at(0, 8)}.suppress_notification())).type() == return_type::invalid_parameter);
  SHOWS("SRQ-079", "COMP-028");
  CHECK_FALSE(p.b.mem.slice(4090, 7)); // a segment outside the region cannot be created
  SHOWS("SRQ-087");
  CHECK(p.outstanding() == 0);
  CHECK(fake::count(fake::call::ibv_post_srq_recv) == 0);
  // Segments of length 0 are skipped, at any place; odd addresses are valid.
  // Neither their addresses nor their regions count: one is of another zone.
  const dat::iov gaps{p.b.at(1, 3), must(foreign.slice(7, 0)), p.b.at(101, 5), p.b.at(4096, 0)};
  must(p.srq.post(dat::recv{gaps}.cookie(1), dat::recv{}.cookie(2)));
  std::fill_n(p.a.memory.begin(), 6, 'x');
  p.send(0, 6);
  must(p.from[0].post(dat::send{}.suppress_completion()));
  CHECK(p.received() == events{"0:received 1", "0:received 2"});
  SHOWS("SRQ-073", "SRQ-004");
  CHECK(std::string(&p.b.memory[0], 5) == std::string("\0xxx\0", 5));
  CHECK(std::string(&p.b.memory[101], 4) == std::string("xxx\0", 4));
  SHOWS("SRQ-076", "SRQ-092");
}

TEST_CASE("a shared queue grows and shrinks, and keeps all posted buffers", "") {
  const fake::with resizable{fake::current(), [](fake::manners& m) { m.srq_resize = m.srq_query = true; }};
  const clean_world clean;
  pool p(1);
  const auto size = [&] { return p.now().max_recv_dtos; };
  p.post(1, 6);
  must(p.srq.resize(100));
  CHECK(size() == 127);
  CHECK(p.now().max_recv_iov == 3);
  SHOWS("SRQ-061");
  CHECK(p.evd.capacity() == 64);
  SHOWS("SRQ-070");
  p.post(7, 127);
  CHECK(refusal(p.srq.post(dat::recv{})).type() == return_type::insufficient_resources);
  p.send(0);
  p.send(0);
  CHECK(p.now().available == 125u);
  // Completed buffers that are not taken count as outstanding; the device alone would permit the resize.
  CHECK(refusal(p.srq.resize(126)) == dat::error(return_type::invalid_state, return_subtype::srq_in_use));
  SHOWS("SRQ-063");
  CHECK(p.received() == events{"0:received 1", "0:received 2"});
  CHECK(refusal(p.srq.resize(124)).type() == return_type::invalid_state);
  CHECK(size() == 127);
  for (int i = 3; i <= 122; ++i) p.send(0);
  while (!p.received().empty()) {
  }
  CHECK(p.outstanding() == 5);
  must(p.srq.resize(5));
  CHECK(size() == 7);
  p.post(1, 2);
  CHECK(refusal(p.srq.post(dat::recv{})).type() == return_type::insufficient_resources);
  must(p.srq.resize(7));
  must(p.srq.resize(10)); // uses the entries that the shrink put aside
  CHECK(size() == 15);
  p.post(3, 10);
  for (int i = 0; i < 15; ++i) p.send(0);
  events expected;
  for (const int i : {123, 124, 125, 126, 127, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
    expected.push_back("0:received " + std::to_string(i));
  CHECK(p.received() == expected);
  SHOWS("SRQ-062", "SRQ-068", "DTO-035", "REQ-123");

  must(p.srq.set_low_watermark(12));
  (void)async_of(p.b.ia);
  CHECK(refusal(p.srq.resize(11)) == dat::error(return_type::invalid_state, return_subtype::srq_in_use));
  SHOWS("SRQ-064");
  must(p.srq.resize(12));
  const auto limit = must(p.b.ia.query()).max_recv_per_srq;
  for (const std::uint32_t bad : {0u, limit + 1, ~0u})
    CHECK(refusal(p.srq.resize(bad)).type() == return_type::invalid_parameter);
  SHOWS("SRQ-066");
  CHECK(size() == 15);
  // A device that cannot resize: growing is an error, and shrinking may have no effect.
  for (const int err : {EINVAL, EOPNOTSUPP, ENOMEM}) {
    fake::fail(fake::call::ibv_modify_srq, 1, err);
    const auto e = refusal(p.srq.resize(50));
    CHECK(e == dat::error(return_type::insufficient_resources, return_subtype::resource_srq));
    CHECK(e.verb() == "ibv_modify_srq");
    CHECK(e.sys_errno() == err);
    SHOWS("SRQ-067");
    CHECK(size() == 15);
  }
  fake::fail(fake::call::ibv_modify_srq, 1, EINVAL);
  must(p.srq.resize(14)); // the queue has that room already
  must(p.srq.set_low_watermark(0));
  fake::fail(fake::call::ibv_modify_srq, 1, EINVAL);
  must(p.srq.resize(3));
  CHECK(size() == 15);
  SHOWS("SRQ-065");
  fake::fail(fake::call::ibv_modify_srq, 1, EOPNOTSUPP);
  CHECK(refusal(p.srq.set_low_watermark(3)).type() == return_type::model_not_supported);
  CHECK(p.now().low_watermark == 0);
  SHOWS("SRQ-042");
  p.post(1, 15);
  CHECK(p.outstanding() == 15);
}

TEST_CASE("a post that the device refuses takes no entry", "[SRQ-086][DTO-086]") {
  const clean_world clean;
  pool p(1);
  fake::fail(fake::call::ibv_post_srq_recv, 1, ENOMEM);
  const auto e = refusal(p.srq.post(dat::recv{p.b.at(0, 8)}, dat::recv{p.b.at(8, 8)}));
  CHECK(e == dat::error(return_type::insufficient_resources, return_subtype::resource_srq));
  CHECK(e.verb() == "ibv_post_srq_recv");
  CHECK(e.index() == 0);
  CHECK(p.outstanding() == 0);
  // A call posts all of its buffers or none.
  p.post(1, 14);
  CHECK(refusal(p.srq.post(dat::recv{}, dat::recv{})).type() == return_type::insufficient_resources);
  CHECK(p.outstanding() == 14);
  p.post(15, 15);
  CHECK(p.outstanding() == 15);
}

TEST_CASE("a device that takes no empty receive gets one with an empty segment, or its error is returned", "[srq]") {
  const clean_world clean;
  pool p(1);
  fake::fail(fake::call::ibv_post_srq_recv, 1, EINVAL);
  must(p.srq.post(dat::recv{}.cookie(1)));
  CHECK(p.outstanding() == 1);
  fake::fail(fake::call::ibv_post_srq_recv, 1, EINVAL);
  fake::fail(fake::call::ibv_post_srq_recv, 2, ENOMEM);
  const auto e = refusal(p.srq.post(dat::recv{}.cookie(2)));
  CHECK(e == dat::error(return_type::insufficient_resources, return_subtype::resource_srq));
  CHECK(p.outstanding() == 1);
  p.send(0, 0);
  p.settle();
  CHECK(p.received() == events{"0:received 1"});
}

TEST_CASE("failed verbs calls of a shared queue are returned and have no other effect", "[SRQ-007][SRQ-015][EP-032]") {
  const fake::with resizable{fake::current(), [](fake::manners& m) { m.srq_resize = true; }};
  const auto result = fake::for_each_failure([](const fake::injected& i) {
    INFO(i.text());
    const auto step = [&](auto call) {
      auto r = call();
      if (!r) {
        INFO(r.error().message());
        REQUIRE(i.hit());
        CHECK(r.error().sys_errno() == i.error);
        r = call();
        REQUIRE(r);
      }
      return r;
    };
    auto ia = step([] { return dat::ia::open("fk1", manual); });
    auto pz = step([&] { return ia.value().create_pz(); });
    auto evd = step([&] { return ia.value().create_evd<dat::stream::dto | dat::stream::connection>(16); });
    auto srq = step([&] { return pz.value().create_srq({.max_recv_dtos = 7}); });
    auto ep = step([&] { return pz.value().create_ep<dat::rc>(evd.value(), srq.value()); });
    CHECK(srq.value().query().value().max_recv_dtos == 7);
    (void)step([&] { return srq.value().post(dat::recv{}); });
    (void)step([&] { return srq.value().resize(20); });
    (void)step([&] { return srq.value().set_low_watermark(1); });
    (void)step([&] { return srq.value().resize(3); });
    CHECK(srq.value().query().value().max_recv_dtos >= 3);
    CHECK(srq.value().query().value().outstanding == 1);
    must(ep.value().close());
    must(srq.value().close());
  });
  CHECK(result.runs > 15);
  for (const auto& d : result.dirty) FAIL_CHECK(d);
  fake::reset();
}
