// Receives that move to another queue pair: failures on the way, memory, and what the old queue pair must not do.
// SPDX-License-Identifier: BSL-1.0
#include <unit/late_handshake.hpp>
#include <unit/lock_waits.hpp>
#include <unit/no_memory.hpp>

#include <dat/ep_params.hpp>
#include <dat/policies.hpp>

#include <dat/detail/endpoint/ep_core.hpp>

#include <array>
#include <cerrno>
#include <string>
#include <utility>

namespace unit {
struct slot_of_endpoint {
  friend dat::detail::kept_slot dat::detail::ep_posting::*member(slot_of_endpoint);
};
template struct opened_member<slot_of_endpoint, &dat::detail::ep_posting::kept_>;
} // namespace unit

namespace kept_receive_tests {

using namespace unit;
using dat::ep_state;
using dat::return_subtype;
using dat::return_type;

namespace {

bool keeps_copies(dat::ep<dat::rc>& ep) {
  return (dat::detail::core_access::of(ep)->*member(slot_of_endpoint())).get() != nullptr;
}
void post_two(end& e, dat::ep<dat::rc>& ep) {
  must(ep.post(dat::recv{e.at(0, 8)}.cookie(1)));
  must(ep.post(dat::recv{dat::iov{e.at(8, 4), e.at(16, 4)}}.cookie(2)));
}
/// Connects `a` to `b`, and sends two messages.
events connected_and_sent(asking_ends& s) {
  must(s.ask().accept(s.b.ep));
  settle(s.a, s.b);
  CHECK(s.a.take() == events{"established"});
  must(s.a.ep.post(dat::send{s.a.at(0, 8)}, dat::send{s.a.at(8, 8)}));
  return s.b.take();
}
const events both_arrive{"established", "received 1", "received 2"};

} // namespace

TEST_CASE("a modify that fails leaves the queue pair with its receives", "[EP-073]") {
  const clean_world world;
  asking_ends s;
  post_two(s.b, s.b.ep);
  auto other = must(s.b.ia.create_evd<all_streams>(64));
  const auto before = must(s.b.ep.query());
  auto* const qp = s.b.ep.native_handle();
  using fake::call;
  const std::pair<call, unsigned> failures[] = {
      {call::ibv_create_qp, 1}, {call::ibv_modify_qp, 1}, {call::ibv_post_recv, 1}, {call::ibv_post_recv, 2}};
  for (const auto& [which, nth] : failures) {
    INFO(fake::name(which) << " " << nth);
    fake::fail(which, nth, ENOMEM);
    const auto refused = s.b.ep.modify({.recv = other, .max_recv_dtos = 9, .max_inline = 16});
    is_error(refused, return_type::insufficient_resources, return_subtype::resource_tep);
    CHECK(fake::forget_faults() == 0);
    const auto now = must(s.b.ep.query());
    CHECK((now.number == before.number && now.recv == before.recv));
    CHECK((now.attributes.max_recv_dtos == 64 && now.attributes.max_inline == before.attributes.max_inline));
    CHECK(s.b.ep.native_handle() == qp);
    CHECK(fake::posted_receives(qp) == 2);
    CHECK(must(s.b.ep.recv_query()).allocated == 2);
  }
  CHECK(connected_and_sent(s) == both_arrive);
  CHECK(take(other).empty());
}

TEST_CASE("an endpoint whose configuration fails keeps its receives for the next attempt", "[ep][modify]") {
  const clean_world world;
  asking_ends s;
  s.b.ep = must(s.b.ia.create_ep<dat::rc>());
  post_two(s.b, s.b.ep);
  const dat::ep_changes all{.pz = &s.b.pz, .recv = s.b.evd, .request = s.b.evd, .connect = s.b.evd};
  using fake::call;
  for (const call which : {call::ibv_create_qp, call::ibv_modify_qp, call::ibv_post_recv}) {
    INFO(fake::name(which));
    fake::fail(which, 1, ENOMEM);
    is_error(s.b.ep.modify(all), return_type::insufficient_resources, return_subtype::resource_tep);
    CHECK(s.b.ep.state() == ep_state::unconfigured_unconnected);
    CHECK(s.b.ep.native_handle() == nullptr);
    CHECK(must(s.b.ep.recv_query()).allocated == 2);
  }
  must(s.b.ep.modify(all));
  CHECK(fake::posted_receives(s.b.ep.native_handle()) == 2);
  CHECK(connected_and_sent(s) == both_arrive);
}

TEST_CASE("endpoints keep and move their receives when any request for memory fails", "[no_room][ep]") {
  needs_refusals();
  const int failures = for_each_allocation_with<asking_ends>([](no_memory_steps& step, asking_ends& s) {
    s.b.ep = step([&] { return s.b.ia.create_ep<dat::rc>(); });
    step([&] { return s.b.ep.post<dat::tracked>(dat::recv{s.b.at(0, 8)}.cookie(1)); });
    must(s.b.ep.post(dat::recv{dat::iov{s.b.at(8, 4), s.b.at(16, 4)}}.cookie(2)));
    step([&] { return s.b.ep.modify({.pz = &s.b.pz, .max_recv_dtos = 9}); });
    step([&] { return s.b.ep.modify({.recv = s.b.evd, .request = s.b.evd, .connect = s.b.evd}); });
    step([&] { return s.b.ep.modify({.max_recv_dtos = 5, .max_recv_iov = 2}); });
    CHECK(must(s.b.ep.recv_query()).allocated == 2);
    is_error(s.b.mem.close(), return_type::invalid_state, return_subtype::lmr_in_use);
    must(s.b.ep.close());
  });
  CHECK(failures >= 8);
}

TEST_CASE("a completion of the queue pair that modify has replaced is no event", "[EP-073]") {
  const clean_world world;
  asking_ends s;
  post_two(s.b, s.b.ep);
  auto& ring = dat::detail::core_access::of(s.b.ep)->receives();
  ibv_wc late{};
  late.wr_id = ring.before(ring.next(), 2)->id();
  late.status = GENERATE(IBV_WC_WR_FLUSH_ERR, IBV_WC_SUCCESS);
  late.opcode = IBV_WC_RECV;
  late.qp_num = s.b.ep.number();
  auto* const cq = s.b.ep.native_handle()->recv_cq;
  must(s.b.ep.modify({.max_recv_dtos = 4}));
  fake::forge(cq, late);
  CHECK(s.b.take().empty());
  CHECK(must(s.b.ep.recv_query()).allocated == 2);
  CHECK(s.b.ep.state() == ep_state::unconnected);
  CHECK(connected_and_sent(s) == both_arrive);
}

TEST_CASE("posts before the connection allocate nothing", "[ep]") {
  if (!counts_allocations) SKIP("the sanitizer has the operators");
  const clean_world world;
  end e;
  const bool configured = GENERATE(false, true);
  auto ep = configured ? must(e.pz.create_ep<dat::rc>(e.evd, {.max_recv_dtos = 3}))
                       : must(e.ia.create_ep<dat::rc>({}, {.max_recv_dtos = 3}));
  const auto one = e.at(0, 8);
  const auto two = e.at(8, 8);
  dat::expected<void> posted = dat::success();
  dat::expected<void> refused = dat::success();
  std::size_t made = 0;
  long unfreed_ones = 0;
  const std::size_t before = allocations();
  {
    const unfreed counted(&fake::inside);
    posted = ep.post(dat::recv{one}, dat::recv{dat::iov{one, two}}, dat::recv{});
    refused = ep.post(dat::recv{one});
    made = allocations() - before;
    unfreed_ones = counted.count();
  }
  CHECK(unfreed_ones == 0);
  CHECK(posted);
  is_error(refused, return_type::insufficient_resources, return_subtype::resource_tep);
  if (!configured) CHECK(made == 0); // the fake allocates for each receive that it gets
}

TEST_CASE("an endpoint has copies of its receives until it is connected, and again after a reset", "[ep]") {
  const clean_world world;
  asking_ends s;
  CHECK((keeps_copies(s.a.ep) && keeps_copies(s.b.ep)));
  auto request = s.ask();
  CHECK(keeps_copies(s.a.ep));
  must(request.accept(s.b.ep));
  settle(s.a, s.b);
  CHECK_FALSE((keeps_copies(s.a.ep) || keeps_copies(s.b.ep)));
  must(s.b.ep.disconnect());
  settle(s.a, s.b);
  CHECK_FALSE(keeps_copies(s.b.ep));
  must(s.b.ep.reset());
  CHECK(keeps_copies(s.b.ep));
  auto shared = must(s.b.pz.create_srq());
  dat::ep<dat::rc> sharing = must(s.b.pz.create_ep<dat::rc>(s.b.evd, shared));
  CHECK_FALSE(keeps_copies(sharing));
}

TEST_CASE("a receive that is posted while the connection comes up is posted once", "[ep]") {
  const clean_world world;
  late_handshake s;
  s.accept();
  must(s.b.ep.post(dat::recv{s.b.at(0, 8)}.cookie(1)));
  fake::intercept(fake::call::ibv_post_recv, [&] {
    fake::intercept(fake::call::ibv_post_recv, {});
    fake::release_events();
    settle(s.a, s.b);
  });
  must(s.b.ep.post(dat::recv{s.b.at(8, 8)}.cookie(2)));
  CHECK(s.b.ep.state() == ep_state::connected);
  CHECK_FALSE(keeps_copies(s.b.ep));
  CHECK(fake::posted_receives(s.b.ep.native_handle()) == 2);
  must(s.a.ep.post(dat::send{s.a.at(0, 8)}, dat::send{s.a.at(8, 8)}));
  CHECK(s.b.take() == both_arrive);
}

TEST_CASE("copies that are taken for a post while they are dropped end with the post", "[ep]") {
  using dat::detail::kept_receives;
  dat::detail::kept_slot slot;
  slot.put(kept_receives::make(2, 1));
  kept_receives* const taken = slot.take();
  REQUIRE(taken != nullptr);
  slot.put(nullptr); // the connection is up: nothing to drop
  CHECK(slot.take() == nullptr);
  slot.put(taken);
  CHECK(slot.get() == taken);
  slot.put(nullptr);
  CHECK(slot.get() == nullptr);
}

TEST_CASE("receives whose queue pair a device has refused in part are moved as far as it took them", "[ep][modify]") {
  const clean_world world;
  asking_ends s;
  fake::fail(fake::call::ibv_post_recv, 1, ENOMEM);
  CHECK(s.b.ep.post(dat::recv{s.b.at(0, 8)}, dat::recv{s.b.at(8, 8)}).error().index() == 0);
  post_two(s.b, s.b.ep);
  must(s.b.ep.modify({.max_recv_dtos = 2}));
  CHECK(fake::posted_receives(s.b.ep.native_handle()) == 2);
  CHECK(connected_and_sent(s) == both_arrive);
}

TEST_CASE("receives without notification move as they were posted", "[ep][modify]") {
  const clean_world world;
  asking_ends s;
  auto recv = must(s.b.ia.create_evd<dat::stream::dto | dat::stream::software>(16));
  s.b.ep = must(s.b.ia.create_ep<dat::rc>({}, {.recv_completion = dat::completion_notification::selective}));
  must(s.b.ep.post(dat::recv{s.b.at(0, 8)}.cookie(1).suppress_notification(), dat::recv{s.b.at(8, 8)}.cookie(2)));
  must(s.b.ep.modify({.pz = &s.b.pz, .recv = recv, .request = s.b.evd, .connect = s.b.evd}));
  must(s.b.ep.modify({.max_recv_dtos = 4}));
  auto& ring = dat::detail::core_access::of(s.b.ep)->receives();
  CHECK_FALSE(ring.before(ring.next(), 2)->posted.notifies());
  CHECK(ring.before(ring.next(), 1)->posted.notifies());
  CHECK(connected_and_sent(s) == events{"established"});
  CHECK(take(recv) == events{"received 1", "received 2"});
}

TEST_CASE("the policy tracked knows a receive that has moved until its completion is taken", "[policies][modify]") {
  const clean_world world;
  asking_ends s;
  std::array<char, 16> bytes{};
  auto early = must(s.b.pz.register_memory(bytes, all_rights));
  s.b.ep = must(s.b.ia.create_ep<dat::rc>());
  must(s.b.ep.post<dat::tracked>(dat::recv{must(early.slice(0, 8))}.cookie(1)));
  is_error(early.close(), return_type::invalid_state, return_subtype::lmr_in_use);
  must(s.b.ep.modify({.pz = &s.b.pz, .recv = s.b.evd, .request = s.b.evd, .connect = s.b.evd}));
  is_error(early.close(), return_type::invalid_state, return_subtype::lmr_in_use);
  must(s.b.ep.modify({.max_recv_dtos = 2}));
  is_error(early.close(), return_type::invalid_state, return_subtype::lmr_in_use);
  must(s.b.ep.post(dat::recv{s.b.at(0, 8)}.cookie(2)));
  CHECK(connected_and_sent(s) == both_arrive);
  must(early.close());
}

TEST_CASE("a receive that was posted unchecked is moved, too", "[policies][modify]") {
  const clean_world world;
  asking_ends s;
  s.b.ep = must(s.b.ia.create_ep<dat::rc>());
  must(s.b.ep.post<dat::unchecked>(dat::recv{s.b.at(0, 8)}.cookie(1)));
  must(s.b.ep.post(dat::recv{s.b.at(8, 8)}.cookie(2)));
  must(s.b.ep.modify({.pz = &s.b.pz, .recv = s.b.evd, .request = s.b.evd, .connect = s.b.evd}));
  CHECK(connected_and_sent(s) == both_arrive);
}

namespace {

/// Two sides whose passive endpoint posted a receive before it had a zone, of its later zone or of another one.
struct moved_receive : asking_ends {
  std::array<char, 8> bytes{};
  dat::pz zone = must(b.ia.create_pz());
  decltype(must(zone.register_memory(bytes, all_rights))) far = must(zone.register_memory(bytes, all_rights));

  moved_receive(bool foreign, std::size_t own_bytes) {
    b.ep = must(b.ia.create_ep<dat::rc>());
    if (foreign)
      must(b.ep.post(dat::recv{far}.cookie(1)));
    else
      must(b.ep.post(dat::recv{b.at(0, own_bytes)}.cookie(1)));
    must(b.ep.modify({.pz = &b.pz, .recv = b.evd, .request = b.evd, .connect = b.evd}));
    must(ask().accept(b.ep));
    settle(a, b);
  }
};

} // namespace

TEST_CASE("a moved receive that fails says whether its zone or the length of the message is at fault", "[ep][modify]") {
  const clean_world world;
  const bool foreign = GENERATE(false, true);
  moved_receive s(foreign, 4);
  must(s.a.ep.post(dat::send{s.a.at(0, 8)}));
  settle(s.a, s.b);
  const auto seen = s.b.take();
  REQUIRE(seen.size() >= 2);
  CHECK(seen[1] == (foreign ? "local protection error 1" : "local length error 1"));
  must(s.b.ep.close());
}

TEST_CASE("a moved receive of another zone has its own status on devices that do not name the fault", "[ep][modify]") {
  const clean_world world;
  const bool foreign = GENERATE(false, true);
  moved_receive s(foreign, 8);
  CHECK(s.b.take() == events{"established"});
  const auto failure = GENERATE(values<std::pair<ibv_wc_status, std::string>>({
      {IBV_WC_GENERAL_ERR, "transport error 1"},      // siw
      {IBV_WC_LOC_QP_OP_ERR, "local length error 1"}, // rxe
      {IBV_WC_LOC_LEN_ERR, "local length error 1"},
  }));
  CAPTURE(foreign, failure.first);
  REQUIRE(fake::complete_recv(s.b.ep.native_handle(), {}, failure.first));
  const auto seen = s.b.take();
  REQUIRE_FALSE(seen.empty());
  const bool named = failure.first == IBV_WC_LOC_LEN_ERR;
  CHECK(seen[0] == (foreign && !named ? "local protection error 1" : failure.second));
  must(s.b.ep.close());
}

TEST_CASE("an unchecked receive before the connection has at most max_recv_iov segments", "[ep][policies]") {
  const clean_world world;
  end a;
  const bool complete = GENERATE(false, true);
  CAPTURE(complete);
  const dat::ep_attributes attributes{.max_recv_dtos = 2, .max_recv_iov = 1};
  auto ep = complete ? must(a.pz.create_ep<dat::rc>(a.evd, attributes))
                     : must(a.pz.create_ep<dat::rc>(dat::ep_evds{a.evd, a.evd, {}}, attributes));
  dat::iov<8, all_rights.value> list;
  for (std::size_t i = 0; i < 8; ++i) CHECK(list.push_back(a.at(i, 1)));
  const auto calls = fake::count(fake::call::ibv_post_recv);
  is_error(ep.post<dat::unchecked>(dat::recv{a.at(0, 8)}, dat::recv{list}), return_type::invalid_parameter,
           return_subtype::arg2);
  CHECK(fake::count(fake::call::ibv_post_recv) == calls);
  CHECK(must(ep.recv_query()).allocated == 0);
  must(ep.post<dat::unchecked>(dat::recv{a.at(0, 8)}, dat::recv{a.at(8, 8)}));
  CHECK(must(ep.recv_query()).allocated == 2);
  must(ep.modify({.connect = a.evd, .max_inline = 16}));
  CHECK(fake::posted_receives(ep.native_handle()) == 2);
}

} // namespace kept_receive_tests
