// Shared receive queues in the fake world: behaviour that a device does not show on demand, and every error.
// SPDX-License-Identifier: BSL-1.0
#include "../support/worker.hpp"
#include "world.hpp"

#include <dat/ep_params.hpp>
#include <dat/srq.hpp>

#include <algorithm>
#include <deque>
#include <poll.h>
#include <unordered_set>

using namespace unit;
using dat::ep_state;
using dat::return_subtype;
using dat::return_type;
using support::worker;
using shared_ep = dat::ep<dat::with_srq<dat::rc>>;

namespace {

/// The asynchronous events of shared receive queues; another event by its position in the variant.
events async_of(dat::ia& ia) {
  events all;
  while (ia.async_evd().drain(dat::overloaded{
             [&](const dat::srq_low_watermark&) { all.emplace_back("low"); },
             [&](const dat::srq_error&) { all.emplace_back("error"); },
             [&](const dat::ep_soft_high_watermark& e) { all.push_back("soft " + std::to_string(e.ep().number())); },
             [&](const auto&) { all.emplace_back("another"); }}) != 0) {
  }
  return all;
}

/// A side with a queue, and endpoints of the queue that are connected to plain endpoints of another side.
template <dat::streams S = all_streams>
struct pool {
  explicit pool(std::size_t n, const dat::srq_attributes& size = {.max_recv_dtos = 10, .max_recv_iov = 3},
                const dat::ep_attributes& attributes = {}) {
    srq = must(b.pz.create_srq(size));
    for (std::size_t i = 0; i < n; ++i) add(attributes);
  }
  end a{"fk1"};
  end b{"fk2"};
  dat::evd<S> evd = must(b.ia.create_evd<S>(64)); // the evd of the receives
  dat::srq srq;
  dat::psp psp = must(b.ia.create_psp(service, b.evd));
  std::deque<dat::ep<dat::rc>> from; // endpoints at a
  std::deque<shared_ep> to;          // endpoints at b

  void add(const dat::ep_attributes& attributes = {}) {
    // Suppressed requests keep their entries.
    from.push_back(must(a.pz.create_ep<dat::rc>(a.evd, {.max_request_dtos = 900})));
    to.push_back(must(b.pz.create_ep<dat::rc>({.recv = evd, .request = b.evd, .connect = b.evd}, srq, attributes)));
    connect(from.back(), to.back());
  }
  void connect(dat::ep<dat::rc>& active, shared_ep& passive) {
    must(active.connect(b.ia.address(), service, plenty));
    settle();
    must(request_on(b.evd).accept(passive));
    settle();
    CHECK(a.take() == events{"established"});
    CHECK(b.take() == events{"established"});
  }
  void settle() { unit::settle(a, b); }
  /// Posts buffers of 16 bytes with these cookies, one after the other in memory.
  void post(int first, int last) {
    for (int i = first; i <= last; ++i) must(srq.post(dat::recv{b.at(16 * static_cast<std::size_t>(i), 16)}.cookie(i)));
  }
  void send(std::size_t which, std::size_t bytes = 8) {
    must(from[which].post(dat::send{a.at(0, bytes)}.suppress_completion()));
  }
  /// "1:received 7": the index of the endpoint, and the event.
  events received() {
    events all;
    while (evd.drain([&](const auto& e) {
      if constexpr (std::is_base_of_v<dat::completion, std::remove_cvref_t<decltype(e)>>) {
        const auto at = std::find_if(to.begin(), to.end(), [&](const shared_ep& ep) { return ep == e.ep(); });
        all.push_back(std::to_string(at - to.begin()) + ':' + describe{}(e));
      }
    }) != 0) {
    }
    return all;
  }
  [[nodiscard]] dat::srq_params now() { return must(srq.query()); }
  [[nodiscard]] std::uint32_t outstanding() { return now().outstanding; }
};

/// The streams of a recv evd that has no connection events.
constexpr auto data_streams = dat::stream::dto | dat::stream::software;

dat::error refusal(dat::expected<void> r) { return r ? dat::error() : r.error(); }

} // namespace

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

TEST_CASE("an adapter without shared receive queues returns model_not_supported",
          "[SRQ-001][SRQ-002][SRQ-015][SRQ-042][DTO-021][REQ-113][IA-125]") {
  auto attr = fake::rxe_attr();
  attr.max_srq = 0;
  fake::world w;
  w.devices[0].attr = attr;
  const clean_world clean(w);
  end b;
  const auto r = b.pz.create_srq();
  REQUIRE_FALSE(r);
  CHECK(r.error().type() == return_type::model_not_supported);
  const auto offered = must(b.ia.query<dat::provider_attributes>());
  CHECK_FALSE(offered.srq_supported);
  CHECK(offered.srq_watermarks_supported.dat_code() == 0);
  CHECK(must(b.ia.query()).max_srqs == 0);
  CHECK(must(b.ia.query()).max_recv_per_srq == 0);
}

TEST_CASE("the counts follow the example of the specification",
          "[SRQ-029][SRQ-055][SRQ-056][SRQ-057][SRQ-058][SRQ-072][SRQ-086]") {
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
  CHECK(p.received() == events{"0:received 1"});
  CHECK(counts() == three{15, 2, 2});
  // An entry is free when its completion is taken, not before.
  p.post(4, 16);
  CHECK(counts() == three{15, 15, 15});
  p.send(0);
  CHECK(refusal(p.srq.post(dat::recv{})).type() == return_type::insufficient_resources);
  CHECK(p.received() == events{"0:received 2"});
  must(p.srq.post(dat::recv{}.cookie(17)));
  CHECK(p.outstanding() == 15);
}

TEST_CASE("a completion names the endpoint that took the buffer, and the buffer's cookie, in any order",
          "[SRQ-017][SRQ-021][SRQ-068][SRQ-077][SRQ-078][COMP-068][DTO-023][EP-022][REQ-114][MODEL-025]") {
  const fake::with resizable{fake::current(), [](fake::manners& m) { m.srq_resize = true; }};
  const clean_world clean;
  pool p(3);
  p.post(1, 6);
  for (const std::size_t i : {2u, 0u, 1u, 0u}) p.send(i);
  CHECK(p.received() == events{"2:received 1", "0:received 2", "1:received 3", "0:received 4"});
  // Growing keeps the posted buffers; cookies need not be unique.
  must(p.srq.resize(100));
  p.post(5, 5);
  for (const std::size_t i : {1u, 2u, 0u}) p.send(i);
  CHECK(p.received() == events{"1:received 5", "2:received 6", "0:received 5"});
  CHECK(p.outstanding() == 0);
  // Buffers that complete on different evds have no common order.
  auto other = must(p.b.ia.create_evd<dat::stream::dto | dat::stream::software>(16));
  auto apart = must(p.b.pz.create_ep<dat::rc>({.recv = other, .request = p.b.evd, .connect = p.b.evd}, p.srq));
  auto peer = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  p.connect(peer, apart);
  p.post(1, 4);
  must(peer.post(dat::send{p.a.at(0, 8)}.suppress_completion()));
  p.send(0);
  must(peer.post(dat::send{p.a.at(0, 8)}.suppress_completion()));
  p.send(1);
  CHECK(p.outstanding() == 4);
  CHECK(p.received() == events{"0:received 2", "1:received 4"});
  CHECK(p.outstanding() == 2);
  p.post(5, 6);
  CHECK(take(other) == events{"received 1", "received 3"});
  CHECK(p.outstanding() == 2);
  p.send(2);
  CHECK(p.received() == events{"2:received 5"});
  // A buffer without a cookie.
  p.send(0);
  CHECK(p.received() == events{"0:received 6"});
  must(p.srq.post(dat::recv{p.b.at(0, 8)}));
  p.send(1);
  CHECK(p.received() == events{"1:received 0"});
}

TEST_CASE("an evd without connection events delivers the completions of a shared queue as well",
          "[srq][SRQ-058][SRQ-078][SRQ-059]") {
  const clean_world clean;
  pool<data_streams> p(2);
  p.post(1, 9);
  for (const std::size_t i : {1u, 0u, 1u}) p.send(i);
  CHECK(p.outstanding() == 9);
  CHECK(p.received() == events{"1:received 1", "0:received 2", "1:received 3"});
  CHECK(p.outstanding() == 6);
  must(p.from[0].post(dat::send{p.a.at(0, 8)}.immediate(5).suppress_completion()));
  must(p.from[0].post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}.immediate(6).suppress_completion()));
  CHECK(p.received() == events{"0:received immediate 4", "0:write arrived 5"});
  // Completions of a closed or reset endpoint are no events; their entries are free again.
  p.send(0);
  p.send(1);
  must(p.to[0].close());
  must(p.to[1].disconnect());
  must(p.to[1].reset());
  CHECK(p.outstanding() == 2);
  CHECK(p.received().empty());
  p.settle();
  CHECK(p.b.take() == events{"disconnected"});
  CHECK(p.a.take().size() == 2);
  must(p.from[1].reset());
  p.connect(p.from[1], p.to[1]);
  p.send(1);
  CHECK(p.received() == events{"1:received 8"});
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

TEST_CASE("a shared queue has the members of every object, and an empty handle returns an error",
          "[SRQ-043][SRQ-050][SRQ-054][SRQ-069][SRQ-090][CTX-001][CTX-005][SRQ-013]") {
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
  const dat::error empty(return_type::invalid_handle, return_subtype::handle_srq);
  for (dat::srq* none : {&srq, &second}) {
    if (none == &second) must(second.close());
    CHECK(refusal(none->post(dat::recv{})) == empty);
    CHECK(refusal(none->post(dat::recv{b.at(0, 8)})) == empty);
    CHECK(refusal(none->post(dat::recv{b.at(0, 8)}, dat::recv{b.at(0, 8)})) == empty);
    CHECK(refusal(none->set_low_watermark(1)) == empty);
    CHECK(refusal(none->resize(1)) == empty);
    CHECK(none->query().error() == empty);
    CHECK(refusal(none->close()) == empty);
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
  SHOWS("SRQ-079");
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

TEST_CASE("a buffer that is too small breaks the connection that took it, and no other",
          "[SRQ-019][SRQ-073][SRQ-085]") {
  const clean_world clean;
  pool p(2);
  p.post(1, 3);
  p.send(0, 17);
  CHECK(p.received() == events{"0:local length error 1"});
  p.settle();
  CHECK(p.b.take() == events{"broken"});
  CHECK(p.to[0].state() == ep_state::disconnected);
  p.send(1);
  CHECK(p.received() == events{"1:received 2"});
  CHECK(p.outstanding() == 1);
}

TEST_CASE("the low watermark is reported once each time it is set", "[SRQ-011][SRQ-034][SRQ-041]") {
  // Without ibv_query_srq a late limit event cannot be distinguished from that of the next limit.
  const fake::with queried{fake::current(), [](fake::manners& m) { m.srq_query = true; }};
  const clean_world clean;
  pool p(1, {.max_recv_dtos = 30});
  const auto messages = [&](int n) {
    for (int i = 0; i < n; ++i) p.send(0);
    CHECK(p.received().size() == static_cast<std::size_t>(n));
    p.settle();
  };
  // Without a watermark there is no event, nor after the watermark was removed.
  p.post(1, 6);
  messages(6);
  p.post(1, 6);
  must(p.srq.set_low_watermark(5));
  must(p.srq.set_low_watermark(0));
  messages(6);
  CHECK(async_of(p.b.ia).empty());
  SHOWS("SRQ-033");
  // The event comes when fewer buffers than the watermark remain.
  p.post(1, 5);
  must(p.srq.set_low_watermark(3));
  messages(2);
  CHECK(async_of(p.b.ia).empty());
  p.send(0);
  p.settle();
  const auto e = must(p.b.ia.async_evd().dequeue());
  REQUIRE(std::holds_alternative<dat::srq_low_watermark>(e));
  CHECK(std::get<dat::srq_low_watermark>(e).srq() == p.srq);
  CHECK(std::get<dat::srq_low_watermark>(e).is_of(p.b.ia));
  SHOWS("SRQ-031", "SRQ-035", "SRQ-037", "SRQ-038", "EVENT-014", "EVENT-083", "DTO-028", "REQ-117");
  CHECK(p.received().size() == 1);
  CHECK(p.now().low_watermark == 3);
  // The event gives access to the queue, so that a handler can post more buffers.
  for (int i = 0; i < 4; ++i) must(std::get<dat::srq_low_watermark>(e).srq().post(dat::recv{p.b.at(0, 16)}));
  messages(6);
  CHECK(async_of(p.b.ia).empty());
  // The count is below the watermark already, so the event comes at once, and no second event follows.
  p.post(1, 6);
  must(p.srq.set_low_watermark(8));
  CHECK(async_of(p.b.ia) == events{"low"});
  SHOWS("SRQ-036");
  messages(6);
  CHECK(async_of(p.b.ia).empty());
  SHOWS("SRQ-032", "SRQ-039");
  // A buffer whose completion is not taken is not available.
  p.post(1, 6);
  p.send(0);
  p.send(0);
  must(p.srq.set_low_watermark(5));
  CHECK(async_of(p.b.ia) == events{"low"});
  CHECK(p.received().size() == 2);
  // The watermark is set again before it is reached: the last value counts.
  p.post(1, 2);
  must(p.srq.set_low_watermark(2));
  must(p.srq.set_low_watermark(5));
  messages(1);
  CHECK(async_of(p.b.ia).empty());
  messages(1);
  CHECK(async_of(p.b.ia) == events{"low"});
  SHOWS("SRQ-040");
  messages(4);
  CHECK(async_of(p.b.ia).empty());
  // The device had reported the earlier watermark, and no thread had read the event.
  p.post(1, 6);
  must(p.srq.set_low_watermark(6));
  p.send(0);
  p.post(7, 12);
  must(p.srq.set_low_watermark(4));
  p.settle();
  CHECK(async_of(p.b.ia).empty());
  CHECK(p.received() == events{"0:received 1"});
  messages(7);
  CHECK(async_of(p.b.ia).empty());
  messages(1);
  CHECK(async_of(p.b.ia) == events{"low"});
  // An event outlives the queue.
  must(p.srq.set_low_watermark(5));
  for (auto& ep : p.to) must(ep.close());
  must(p.srq.close());
  auto last = must(p.b.ia.async_evd().dequeue());
  REQUIRE(std::holds_alternative<dat::srq_low_watermark>(last));
  CHECK(refusal(std::get<dat::srq_low_watermark>(last).srq().post(dat::recv{})).type() == return_type::invalid_handle);
  SHOWS("SRQ-048");
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

TEST_CASE("a shared queue that failed takes buffers and endpoints, is told of once, and can only be closed", "") {
  const clean_world clean;
  pool p(2);
  p.post(1, 3);
  fake::async(IBV_EVENT_SRQ_ERR, p.srq.native_handle());
  fake::async(IBV_EVENT_SRQ_ERR, p.srq.native_handle());
  p.settle();
  const auto e = must(p.b.ia.async_evd().dequeue());
  REQUIRE(std::holds_alternative<dat::srq_error>(e));
  CHECK(std::get<dat::srq_error>(e).srq() == p.srq);
  CHECK(std::get<dat::srq_error>(e).is_of(p.b.ia));
  SHOWS("EVENT-086", "EVENT-014", "REQ-165");
  CHECK(async_of(p.b.ia).empty());
  SHOWS("SRQ-024");
  CHECK(p.now().state == dat::srq_state::error);
  CHECK(to_string(p.now().state) == "error");
  SHOWS("SRQ-023");
  const dat::error state(return_type::invalid_state, return_subtype::srq_error);
  CHECK(refusal(p.srq.set_low_watermark(1)) == state);
  SHOWS("SRQ-043");
  CHECK(refusal(p.srq.resize(20)) == state);
  SHOWS("SRQ-022", "SRQ-069");
  // A buffer that the device refuses returns to the consumer when the queue ends, like all posted ones.
  fake::fail(fake::call::ibv_post_srq_recv, 1, EIO);
  must(p.srq.post(dat::recv{p.b.at(0, 8)}));
  CHECK(p.outstanding() == 4);
  SHOWS("SRQ-028");
  p.add();
  CHECK(p.to[2].state() == ep_state::connected);
  CHECK_FALSE(must(p.to[2].recv_query()).allocated);
  SHOWS("SRQ-027", "EP-033", "EP-065");
  // The endpoint that needed a buffer fails, and no other.
  fake::async(IBV_EVENT_QP_FATAL, p.to[0].native_handle());
  p.settle();
  CHECK(p.b.take() == events{"broken"});
  CHECK(p.to[0].state() == ep_state::disconnected);
  CHECK(p.received().empty()); // the endpoint has got no buffer
  CHECK(p.to[1].state() == ep_state::connected);
  SHOWS("SRQ-025");
  CHECK(refusal(p.srq.close()) == dat::error(return_type::invalid_state, return_subtype::srq_in_use));
  for (auto& ep : p.to) must(ep.close());
  CHECK(p.now().state == dat::srq_state::error);
  must(p.srq.close());
  CHECK(p.received().empty());
  must(p.b.mem.close());
  SHOWS("SRQ-026", "SRQ-045");
}

TEST_CASE("the buffers that an ended endpoint held return to its shared queue", "") {
  const clean_world clean;
  pool p(3);
  p.post(1, 9);
  for (const std::size_t i : {0u, 1u, 2u, 0u}) p.send(i);
  CHECK(p.now().available == 5u);
  must(p.to[0].close());
  CHECK(p.outstanding() == 7); // this completion is not taken either
  CHECK(p.received() == events{"1:received 2", "2:received 3"});
  CHECK(p.outstanding() == 5);
  SHOWS("EPS-075", "EP-038", "EP-039");
  // Reset keeps the shared queue and its buffers.
  p.send(1);
  must(p.to[1].disconnect());
  p.settle();
  must(p.to[1].reset());
  CHECK(p.outstanding() == 4);
  CHECK(p.now().available == 4u);
  SHOWS("SRQ-059", "EPS-070", "EPS-073", "DISC-032");
  CHECK(p.received().empty());
  (void)p.a.take();
  CHECK(p.b.take() == events{"disconnected"});
  must(p.from[1].reset());
  p.connect(p.from[1], p.to[1]);
  p.send(1);
  p.send(2);
  CHECK(p.received() == events{"1:received 6", "2:received 7"});
  SHOWS("DISC-052");
  // A failed accept takes no buffer.
  auto late = must(p.b.pz.create_ep<dat::rc>(p.b.evd, p.srq));
  auto eager = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  must(eager.connect(p.b.ia.address(), service, plenty));
  p.settle();
  const auto before = p.now().available;
  fake::fail(fake::call::rdma_accept);
  must(request_on(p.b.evd).accept(late));
  p.settle();
  CHECK(p.b.take() == events{"accept_completion_error " + std::to_string(EINVAL)});
  CHECK(p.now().available == before);
  SHOWS("CR-040");
  must(late.close());
  must(eager.close());
  p.settle();
  (void)p.a.take();
  // After a disconnect, queued completions can still be taken.
  p.send(2);
  must(p.to[2].disconnect());
  CHECK(p.received() == events{"2:received 8"});
  SHOWS("SRQ-084");
  // The queue's handle is destroyed before its endpoints, which keep the queue.
  { const dat::srq gone = std::move(p.srq); }
  p.send(1);
  CHECK(p.received() == events{"1:received 9"});
  SHOWS("SRQ-047");
  CHECK(fake::live().srqs == 1);
  p.to.clear();
  CHECK(fake::live().srqs == 0);
}

TEST_CASE("a shared buffer that holds half a message is flushed when the connection ends, and the others stay",
          "[srq]") {
  const bool by_peer = GENERATE(false, true);
  CAPTURE(by_peer);
  const clean_world clean;
  pool p(2);
  p.post(1, 4);
  REQUIRE(fake::begin_message(p.to[0].native_handle()));
  CHECK(p.outstanding() == 4); // a buffer at the endpoint counts, too
  SHOWS("SRQ-029");
  must(by_peer ? p.from[0].disconnect() : p.to[0].disconnect());
  p.settle();
  CHECK(p.received() == events{"0:flushed 1"});
  CHECK((p.now().available == 3u && p.outstanding() == 3));
  SHOWS("SRQ-083", "EP-064");
  p.send(1);
  CHECK(p.received() == events{"1:received 2"});
}

TEST_CASE("completions in an evd are dropped or kept, without harm, when endpoints and queue have ended",
          "[SRQ-049][EPS-075][SRQ-047]") {
  const clean_world clean;
  {
    pool<data_streams> other(1);
    other.post(1, 3);
    other.send(0);
    other.send(0);
    must(other.to[0].close());
    CHECK(other.received().empty());
    must(other.evd.close()); // like a program that takes no further events
    CHECK(other.outstanding() == 1);
    SHOWS("SRQ-059");
    must(other.srq.close());
  }
  pool p(1);
  p.post(1, 3);
  p.send(0);
  CHECK(p.now().available == 2u); // the completion is in the ring already
  p.send(0);
  p.to.clear();
  p.srq = must(p.b.pz.create_srq());
  must(p.srq.post(dat::recv{p.b.at(0, 8)}));
  CHECK(p.received().empty());
  CHECK(p.outstanding() == 1);
}

TEST_CASE("a device that drops the completions of a destroyed queue pair leaves no buffer outstanding",
          "[SRQ-059][EPS-075][EP-039]") {
  const clean_world clean({.destroy_drops = true});
  const auto check = [](auto& p) {
    p.post(1, 9);
    for (const std::size_t i : {0u, 1u, 2u, 0u, 1u, 2u}) p.send(i);
    must(p.to[0].close());
    CHECK(p.outstanding() == 7);
    p.send(1);
    must(p.to[2].disconnect());
    must(p.to[2].reset());
    CHECK(p.outstanding() == 5);
    // Completions of other endpoints stay, in order, and the queue works.
    p.send(1);
    CHECK(p.received() == events{"1:received 2", "1:received 5", "1:received 7", "1:received 8"});
    p.send(1);
    CHECK(p.received() == events{"1:received 9"});
    CHECK(p.outstanding() == 0);
    p.settle();
    (void)p.a.take();
    (void)p.b.take();
  };
  {
    pool<data_streams> other(3);
    check(other);
    // A completion that arrives after its endpoint has ended is no event, and its entry is free.
    other.post(1, 2);
    other.send(1);
    ibv_wc late{};
    REQUIRE(ibv_poll_cq(other.evd.native_handle(), 1, &late) == 1);
    must(other.to[1].close());
    CHECK(other.outstanding() == 2);
    fake::forge(other.evd.native_handle(), late);
    CHECK(other.received().empty());
    CHECK(other.outstanding() == 1);
  }
  pool merged(3);
  check(merged);
  merged.post(1, 2);
  merged.send(1);
  ibv_wc late{};
  REQUIRE(ibv_poll_cq(merged.evd.native_handle(), 1, &late) == 1);
  must(merged.to[1].close());
  fake::forge(merged.evd.native_handle(), late);
  CHECK(merged.received().empty());
  CHECK(merged.outstanding() == 1);
}

TEST_CASE("an endpoint of a shared queue that ends with an untaken completion leaves nothing behind",
          "[SRQ-059][EPS-075][EP-039]") {
  // No call makes progress on the ia afterwards: its progress is manual.
  const std::size_t bytes = GENERATE(std::size_t{8}, std::size_t{32}); // 32 bytes do not fit, so the receive has failed
  CAPTURE(bytes);
  const clean_world clean;
  pool p(1);
  p.post(1, 1);
  p.send(0, bytes);
  CHECK(fake::unread_completions(p.evd.native_handle()) == 1);
  must(p.to[0].close());
  CHECK(p.outstanding() == 0);
}

TEST_CASE("lost completions break the endpoints of that evd, and the queue serves the others", "[SRQ-070][EVENT-031]") {
  const fake::with forgiving{fake::current(), [](fake::manners& m) { m.fatal_overrun = false; }}; // counts the losses
  const clean_world clean;
  pool p(1, {.max_recv_dtos = 200});
  auto tiny = must(p.b.ia.create_evd<data_streams>(1));
  auto peer = must(p.a.pz.create_ep<dat::rc>(p.a.evd, {.max_request_dtos = 200}));
  auto drowned = must(p.b.pz.create_ep<dat::rc>({.recv = tiny, .request = p.b.evd, .connect = p.b.evd}, p.srq));
  p.connect(peer, drowned);
  p.post(1, 200);
  // The evd has room for all buffers of the queue, so completions of no endpoint take most of it.
  for (int i = tiny.native_handle()->cqe - 10; i > 0; --i) fake::forge(tiny.native_handle(), ibv_wc{});
  for (int i = 0; i < 60; ++i) must(peer.post(dat::send{p.a.at(0, 8)}.suppress_completion()));
  p.settle();
  CHECK(drowned.state() == ep_state::disconnected);
  CHECK(p.b.take() == events{"broken"});
  p.send(0);
  CHECK(p.received() == events{"0:received 61"});
  // Lost completions stay outstanding, as the documentation says.
  const std::size_t left = take(tiny).size();
  CHECK(left < 60);
  CHECK(p.outstanding() == 200 - 1 - left);
  p.post(1, static_cast<int>(p.now().max_recv_dtos - p.outstanding()));
  CHECK(refusal(p.srq.post(dat::recv{})).type() == return_type::insufficient_resources);
}

TEST_CASE("data that arrives before the last handshake message waits for ESTABLISHED, also with a shared queue",
          "[SRQ-084][EVENT-036]") {
  const clean_world clean;
  const bool is_apart = GENERATE(false, true);
  CAPTURE(is_apart);
  end a{"fk1"};
  end b{"fk2"};
  auto psp = must(b.ia.create_psp(service, b.evd));
  auto srq = must(b.pz.create_srq());
  auto completions = must(b.ia.create_evd<data_streams>(16));
  a.make_ep();
  auto ep = is_apart ? must(b.pz.create_ep<dat::rc>({.recv = completions, .request = b.evd, .connect = b.evd}, srq))
                     : must(b.pz.create_ep<dat::rc>(b.evd, srq));
  for (int i = 1; i <= 2; ++i) must(srq.post(dat::recv{b.at(0, 16)}.cookie(i)));
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
  must(request_on(b.evd).accept(ep));
  settle(a, b);
  CHECK(a.take() == events{"established"});
  CHECK(ep.state() == ep_state::completion_pending);
  must(a.ep.post(dat::send{a.at(0, 8)}.suppress_completion()));
  if (is_apart) {
    CHECK(take(completions) == events{"received 1"});
    settle(a, b);
    CHECK(b.take() == events{"established"});
  } else {
    events all = b.take();
    settle(a, b);
    for (const auto& e : b.take()) all.push_back(e);
    CHECK(all == events{"established", "received 1"});
  }
  CHECK(ep.state() == ep_state::connected);
  fake::release_events();
  settle(a, b);
  CHECK(b.take().empty());
  // An endpoint that ends while its completions wait returns their entries.
  if (is_apart) return;
  auto peer = must(a.pz.create_ep<dat::rc>(a.evd));
  auto second = must(b.pz.create_ep<dat::rc>(b.evd, srq));
  must(peer.connect(b.ia.address(), service, plenty));
  settle(a, b);
  fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
  must(request_on(b.evd).accept(second));
  settle(a, b);
  must(peer.post(dat::send{a.at(0, 8)}.suppress_completion()));
  CHECK(must(srq.query()).available == 0u);
  CHECK(must(srq.query()).outstanding == 1);
  must(second.close());
  CHECK(must(srq.query()).outstanding == 0);
  fake::release_events();
  settle(a, b);
}

TEST_CASE("the soft high watermark is reported once for an endpoint that takes too much", "") {
  const clean_world clean;
  pool p(2, {.max_recv_dtos = 60}, {.soft_high_watermark = 3});
  const std::string first = "soft " + std::to_string(p.to[0].number());
  const auto arrive = [&](int n) {
    for (int i = 0; i < n; ++i) p.send(0);
    (void)p.now(); // a query checks the watermarks
    p.settle();
  };
  p.post(1, 60);
  arrive(3);
  CHECK(async_of(p.b.ia).empty());
  arrive(1);
  const auto e = must(p.b.ia.async_evd().dequeue());
  REQUIRE(std::holds_alternative<dat::ep_soft_high_watermark>(e));
  CHECK(std::get<dat::ep_soft_high_watermark>(e).ep() == p.to[0]);
  SHOWS("EP-087", "EPATTR-016");
  arrive(4);
  CHECK(async_of(p.b.ia).empty());
  SHOWS("REQ-118", "DTO-029");
  // The watermark is set again while the count is above it, so the event comes at once.
  must(p.to[0].set_watermark(7, dat::no_watermark));
  CHECK(async_of(p.b.ia) == events{first});
  SHOWS("EP-085", "EP-088");
  must(p.to[0].set_watermark(8, dat::no_watermark));
  CHECK(async_of(p.b.ia).empty());
  arrive(1); // the new value is armed, although the watermark was reported before
  CHECK(async_of(p.b.ia) == events{first});
  SHOWS("EP-090");
  CHECK(p.received().size() == 9);
  must(p.to[0].set_watermark(8, dat::no_watermark));
  // An endpoint whose messages are taken as they come never reaches the watermark.
  for (int i = 0; i < 12; ++i) {
    arrive(1);
    CHECK(p.received().size() == 1);
  }
  CHECK(async_of(p.b.ia).empty());
  SHOWS("EP-094");
  const auto q = must(p.to[0].query());
  CHECK(q.attributes.soft_high_watermark == 8);
  CHECK(q.attributes.hard_high_watermark == dat::no_watermark);
  CHECK(must(p.to[1].query()).attributes.soft_high_watermark == 3);
  SHOWS("EP-097");
  for (const std::uint32_t bad : {~1u, 1u << 31}) {
    CHECK(refusal(p.to[0].set_watermark(bad, 3)) == dat::error(return_type::invalid_parameter, return_subtype::arg2));
    CHECK(refusal(p.to[0].set_watermark(3, bad)) == dat::error(return_type::invalid_parameter, return_subtype::arg3));
    CHECK_FALSE(p.b.pz.create_ep<dat::rc>(p.b.evd, p.srq, {.soft_high_watermark = bad}));
  }
  CHECK(must(p.to[0].query()).attributes.soft_high_watermark == 8);
  SHOWS("EP-096", "SRQ-034");
  must(p.to[0].set_watermark(0, dat::no_watermark)); // the first message exceeds the watermark
  arrive(1);
  CHECK(async_of(p.b.ia) == events{first});
  CHECK(p.to[0].state() == ep_state::connected);
  SHOWS("EP-091");
  must(p.to[0].set_watermark(dat::no_watermark, dat::no_watermark));
  arrive(9);
  CHECK(async_of(p.b.ia).empty());
  SHOWS("EP-092");
}

TEST_CASE("an endpoint that has taken its last buffer is reset without further waiting", "[srq]") {
  const fake::with reports(fake::personality::kind, [](fake::manners& m) { m.last_wqe_event = true; });
  const clean_world clean;
  pool p(1);
  p.post(1, 2);
  must(p.from[0].disconnect(dat::close_mode::abrupt));
  p.settle(); // the device reports the last buffer
  // A wait would handle pending work.
  auto other = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  must(other.connect(p.b.ia.address(), service, plenty));
  for (int i = 0; i < 4; ++i) p.a.ia.run();
  pollfd pending{p.b.ia.fd(), POLLIN, 0};
  REQUIRE(::poll(&pending, 1, 0) == 1);
  must(p.to[0].reset());
  CHECK(::poll(&pending, 1, 0) == 1);
  CHECK(p.to[0].state() == ep_state::unconnected);
}

TEST_CASE("receives of an endpoint's earlier life do not count towards its watermark", "[srq]") {
  const clean_world clean;
  pool p(1, {.max_recv_dtos = 20}, {.soft_high_watermark = 3});
  p.post(1, 12);
  const auto arrive = [&](int n) {
    for (int i = 0; i < n; ++i) p.send(0);
    (void)p.now();
    p.settle();
  };
  arrive(3);
  must(p.from[0].disconnect(dat::close_mode::abrupt));
  p.settle();
  must(p.to[0].reset());
  must(p.from[0].reset());
  (void)p.a.take();
  (void)p.b.take();
  (void)async_of(p.b.ia);
  p.connect(p.from[0], p.to[0]);
  arrive(3);
  CHECK(async_of(p.b.ia).empty());
  arrive(1);
  CHECK(async_of(p.b.ia) == events{"soft " + std::to_string(p.to[0].number())});
}

TEST_CASE("the hard high watermark disconnects an endpoint, and no other", "") {
  const clean_world clean;
  pool p(2, {.max_recv_dtos = 60}, {.soft_high_watermark = 7, .hard_high_watermark = 5});
  CHECK(must(p.to[0].query()).attributes.max_recv_dtos == 5);
  SHOWS("EP-027", "EP-055", "EPATTR-009");
  p.post(1, 60);
  const auto arrive = [&](std::size_t which, int n) {
    for (int i = 0; i < n; ++i) p.send(which);
    (void)p.now();
    p.settle();
  };
  arrive(0, 5);
  CHECK(p.to[0].state() == ep_state::connected);
  arrive(0, 4);
  CHECK(p.to[0].state() == ep_state::disconnected);
  CHECK(p.b.take() == events{"broken"});
  SHOWS("EP-089", "REQ-119", "DTO-030");
  (void)p.a.take();
  CHECK(async_of(p.b.ia).empty()); // the hard watermark, which is lower, was reached first
  SHOWS("EP-093");
  CHECK(p.received().size() == 9); // messages that have arrived stay in the evd
  SHOWS("EP-091");
  arrive(1, 3);
  CHECK(p.received().size() == 3);
  // The watermark holds in the next life as well, and can be changed.
  must(p.to[0].reset());
  must(p.from[0].reset());
  p.connect(p.from[0], p.to[0]);
  must(p.to[0].set_watermark(dat::no_watermark, dat::no_watermark));
  arrive(0, 8);
  CHECK(p.to[0].state() == ep_state::connected);
  SHOWS("EP-092");
  must(p.to[0].set_watermark(6, 7)); // both watermarks are exceeded
  CHECK(p.to[0].state() == ep_state::disconnected);
  CHECK(async_of(p.b.ia) == events{"soft " + std::to_string(p.to[0].number())});
  CHECK(p.b.take() == events{"broken"});
  SHOWS("EP-090");
  must(p.to[0].set_watermark(3, 9)); // allowed in any state
  CHECK(async_of(p.b.ia) == events{"soft " + std::to_string(p.to[0].number())});
  SHOWS("EP-085");
  must(p.to[0].reset());
  p.settle();
  CHECK(must(p.to[0].query()).attributes.hard_high_watermark == 9);
  SHOWS("EP-097", "EPS-074");
  // An endpoint with a receive queue of its own has watermarks, too.
  auto plain = must(p.b.pz.create_ep<dat::rc>(p.b.evd, {.hard_high_watermark = 2}));
  for (int i = 0; i < 5; ++i) must(plain.post(dat::recv{p.b.at(0, 16)}.cookie(i)));
  must(p.from[0].reset());
  must(p.from[0].connect(p.b.ia.address(), service, plenty));
  p.settle();
  must(request_on(p.b.evd).accept(plain));
  p.settle();
  for (int i = 0; i < 3; ++i) p.send(0);
  p.settle();
  must(plain.set_watermark(1, 2));
  CHECK(plain.state() == ep_state::disconnected);
  CHECK(async_of(p.b.ia) == events{"soft " + std::to_string(plain.number())});
  SHOWS("EP-095");
  must(plain.set_watermark(3, dat::no_watermark));
  p.settle();
  CHECK(async_of(p.b.ia).empty()); // flushed receives are no messages
}

TEST_CASE("the endpoint that takes a shared buffer decides which waiter its completion wakes",
          "[SRQ-079][COMP-028][EPATTR-005]") {
  const clean_world clean;
  end a{"fk1"};
  end b{"fk2"};
  auto psp = must(b.ia.create_psp(service, b.evd));
  auto srq = must(b.pz.create_srq());
  for (int i = 0; i < 8; ++i) must(srq.post(dat::recv{b.at(0, 8)}.cookie(i)));
  struct listener {
    dat::evd<dat::stream::dto | dat::stream::software> evd;
    dat::cno cno;
    dat::ep<dat::rc> from;
    shared_ep to;
    bool woken() { return cno.wait(0s).has_value(); }
  };
  std::deque<listener> all;
  for (const auto how : {dat::completion_notification::evd_threshold, dat::completion_notification::selective,
                         dat::completion_notification::solicited_wait}) {
    all.push_back({must(b.ia.create_evd<dat::stream::dto | dat::stream::software>(16)), must(b.ia.create_cno()),
                   must(a.pz.create_ep<dat::rc>(a.evd)), shared_ep()});
    auto& l = all.back();
    l.to = must(
        b.pz.create_ep<dat::rc>({.recv = l.evd, .request = b.evd, .connect = b.evd}, srq, {.recv_completion = how}));
    must(l.evd.modify_cno(l.cno));
    must(l.from.connect(b.ia.address(), service, plenty));
    settle(a, b);
    must(request_on(b.evd).accept(l.to));
    settle(a, b);
    (void)b.take();
    (void)l.woken();
  }
  const auto send = [&](listener& l, bool solicited) {
    auto message = dat::send{}.suppress_completion();
    must(l.from.post(solicited ? message.solicited() : message));
    settle(a, b);
  };
  for (auto& l : all) send(l, false);
  CHECK(all[0].woken());
  CHECK(all[1].woken()); // a buffer has no flag against notification
  CHECK_FALSE(all[2].woken());
  for (auto& l : all) send(l, true);
  for (auto& l : all) CHECK(l.woken());
  for (auto& l : all) CHECK(take(l.evd).size() == 2);
  auto plain = must(b.pz.create_ep<dat::rc>(b.evd, srq));
  CHECK(must(plain.query()).attributes.recv_completion == dat::completion_notification::evd_threshold);
  DEVIATES("EP-031", "EPATTR-006");
  // All queues that feed one evd need the same mode.
  CHECK_FALSE(b.pz.create_ep<dat::rc>({.recv = all[1].evd, .request = b.evd, .connect = b.evd}, srq));
  CHECK_FALSE(b.pz.create_ep<dat::rc>({.recv = all[0].evd, .request = b.evd, .connect = b.evd}, srq,
                                      {.recv_completion = dat::completion_notification::selective}));
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

TEST_CASE("an abrupt close of the ia ends endpoints, then the shared queue", "[SRQ-052][DTO-026][REQ-115]") {
  const clean_world clean;
  pool p(2);
  p.post(1, 5);
  p.send(0);
  must(p.b.ia.close(dat::close_mode::abrupt));
  CHECK(fake::live().srqs == 0);
  CHECK(refusal(p.srq.post(dat::recv{})).type() == return_type::invalid_handle);
}

TEST_CASE("dropped events do not exhaust a shared queue", "[SRQ-059][EVENT-006]") {
  const clean_world clean;
  end a{"fk1"};
  end b{"fk2"};
  auto psp = must(b.ia.create_psp(service, b.evd));
  auto srq = must(b.pz.create_srq({.max_recv_dtos = 3}));
  a.make_ep();
  auto ep = must(b.pz.create_ep<dat::rc>({.recv = dat::drop_events, .request = b.evd, .connect = b.evd}, srq));
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(ep));
  settle(a, b);
  for (int i = 0; i < 20; ++i) {
    must(srq.post(dat::recv{b.at(0, 8)}));
    must(a.ep.post(dat::send{a.at(0, 8)}.suppress_completion()));
    settle(a, b);
  }
  CHECK(must(srq.query()).outstanding == 0);
}

TEST_CASE("threads post to one shared queue while others take, resize and query",
          "[SRQ-016][SRQ-044][SRQ-060][SRQ-071][SRQ-091][EP-099][EP-066]") {
  const fake::with resizable{fake::current(), [](fake::manners& m) { m.srq_resize = true; }};
  const clean_world clean;
  pool p(2, {.max_recv_dtos = 20});
  constexpr int each = 150;
  int left = 2 * each;
  std::atomic<std::size_t> armed{0};
  const auto poster = [&](worker& w) {
    for (int i = 0; i < each;) {
      const auto r = p.srq.post(dat::recv{p.b.at(0, 8)}.cookie(i));
      if (r)
        ++i;
      else
        w.check(r.error().type() == return_type::insufficient_resources);
      if (!r) std::this_thread::yield();
    }
  };
  {
    worker one(poster);
    worker two(poster);
    worker maker([&](worker& w) {
      for (int i = 0; i < 20; ++i) {
        auto q = p.b.pz.create_srq({.max_recv_dtos = 3});
        w.check(q.has_value());
      }
    });
    worker meddler([&](worker& w) {
      for (int i = 0; i < 60; ++i) {
        const auto n = p.srq.query();
        w.check(n && n.assume_value().available.value_or(0) <= n.assume_value().outstanding &&
                n.assume_value().outstanding <= n.assume_value().max_recv_dtos);
        const auto r = p.srq.resize(i % 2 == 0 ? 40 : 20);
        w.check(r || r.error().type() == return_type::invalid_state);
        const auto s = p.srq.set_low_watermark(static_cast<std::uint32_t>(i % 3));
        w.check(s.has_value());
        if (i % 3 != 0) ++armed;
        w.check(p.to[0].set_watermark(40, dat::no_watermark).has_value());
      }
    });
    // This thread sends, and waits for room each time.
    int sent = 0;
    while (left > 0) {
      if (sent < 2 * each && sent - (2 * each - left) < 20) {
        must(p.from[static_cast<std::size_t>(sent % 2)].post(dat::send{p.a.at(0, 8)}));
        ++sent;
      }
      left -= static_cast<int>(p.received().size());
      (void)p.a.take();
      p.settle();
    }
  }
  CHECK(p.outstanding() == 0);
  CHECK(p.now().available == 0u);
  const auto told = async_of(p.b.ia);
  CHECK(static_cast<std::size_t>(std::count(told.begin(), told.end(), "low")) <= armed);
}
