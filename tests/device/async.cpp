// Asynchronous events that Soft-RoCE raises, and evds that overflow.
// SPDX-License-Identifier: BSL-1.0
#include "support.hpp"

#include <cstdlib>

namespace device {

namespace {

/// The next asynchronous event of type E; others, such as news of the port, are passed over.
template <class E, dat::streams S>
E next_async(dat::evd<S>& evd, place where = place::here()) {
  return must(evd.template wait_for<E>(patience), where);
}

/// Sends more than `small` has room for. The passive side's receives complete there, and nobody takes them.
template <dat::streams S>
void flood(endpoint& active, endpoint& passive, dat::evd<S>& small) {
  const int more = small.native_handle()->cqe + 4;
  for (int i = 0; i < more; ++i) must(passive.post(dat::recv{}.cookie(i)));
  for (int i = 0; i < more; ++i) must(active.post(dat::send{}.suppress()));
}

template <dat::streams S>
void overflow_completions() {
  two_sides link;
  auto small = must(link.b.ia.create_evd<S>(4));
  const dat::ep_attributes large{.max_request_dtos = 256, .max_recv_dtos = 256};
  auto active = link.a.make_ep(large);
  auto passive = must(link.b.pz.create_ep<dat::rc>({.recv = small, .request = small, .connect = link.b.evd}, large));
  auto other_active = link.a.make_ep();
  auto other_passive = link.b.make_ep();
  link.connect(active, passive);
  link.connect(other_active, other_passive);
  flood(active, passive, small);
  const auto e = next_async<dat::evd_overflow>(link.b.ia.async_evd());
  CHECK(e.evd() == small.id());
  CHECK(e.is_of(link.b.ia));
  (void)link.at_b<dat::broken>(passive);
  CHECK(passive.state() == state::disconnected);
  CHECK(other_passive.state() == state::connected);
  // What was queued comes out, in order, before it says that there is no more.
  int expected = 0;
  for (;;) {
    const auto got = small.wait(patience);
    if (!got) {
      CHECK(error_of(got) == dat::error(type::invalid_state));
      break;
    }
    const auto* r = std::get_if<dat::received>(&got.assume_value());
    if (r) CHECK(r->cookie() == dat::cookie(expected++));
  }
  CHECK(expected > 4);
  must(passive.close());
  must(small.close());
  // Told once, however many were lost.
  CHECK(error_of(link.b.ia.async_evd().wait_for<dat::evd_overflow>(0s)) == dat::error(type::timeout_expired));
  CHECK(error_of(link.a.ia.async_evd().wait_for<dat::evd_overflow>(0s)) == dat::error(type::timeout_expired));
  must(other_passive.post(dat::recv{}.cookie(7)));
  must(other_active.post(dat::send{}));
  CHECK(link.at_b<dat::received>(other_passive).cookie() == dat::cookie(7));
}

} // namespace

TEST_CASE("completions beyond the room of their evd break its connections and are told of once",
          "[async][EVENT-068][EVENT-069][EVENT-073][EVENT-074][EVENT-076][EVENT-084][EVENT-014][REQ-013]"
          "[REQ-153]") {
  SECTION("of completions alone") { overflow_completions<dat::dto>(); }
  SECTION("merged") { overflow_completions<dat::dto | dat::software>(); }
}

TEST_CASE("connection events beyond the room of their evd are lost, told of, and change the state all the same",
          "[async][EVENT-068][EVENT-069][EVENT-072][EVENT-075][EVENT-077][CONN-034]"
          "[REQ-153]") {
  two_sides link;
  auto shared = must(link.a.ia.create_evd<dat::async>(2));
  auto completions = must(link.a.ia.create_evd<dat::dto>(64));
  using events = dat::evd<dat::connection | dat::software>;
  std::vector<events> full;
  std::vector<endpoint> actives;
  std::vector<endpoint> passives;
  for (std::uint64_t i = 0; i < 4; ++i) {
    full.push_back(must(link.a.ia.create_evd<events::held>(1)));
    must(full[i].post(i));
    actives.push_back(
        must(link.a.pz.create_ep<dat::rc>({.recv = completions, .request = completions, .connect = full[i]})));
    passives.push_back(link.b.make_ep());
    must(actives[i].connect(link.target(), link.port(), patience));
    must(link.at_b<dat::connection_request>().accept(passives[i]));
    (void)link.at_b<dat::established>(passives[i]);
    CHECK(next_async<dat::evd_overflow>(link.a.ia.async_evd()).evd() == full[i].id());
    CHECK(actives[i].state() == state::connected); // though nobody was told
  }
  // The small evd of asynchronous events had room for two; its last event is about itself.
  CHECK(next<dat::evd_overflow>(shared).evd() == full[0].id());
  CHECK(next<dat::evd_overflow>(shared).evd() == full[1].id());
  CHECK(next<dat::evd_overflow>(shared).evd() == shared.id());
  CHECK(is_empty(shared));
  must(passives[0].disconnect());
  (void)link.at_b<dat::disconnected>(passives[0]);
  for (std::uint64_t i = 0; i < 4; ++i) {
    CHECK(next<dat::software_event>(full[i]).cookie() == dat::cookie(i)); // what stood there was not disturbed
    if (i == 0) continue;
    must(passives[i].disconnect()); // there is room again
    (void)next<dat::disconnected>(full[i]);
    CHECK(actives[i].state() == state::disconnected);
  }
}

TEST_CASE("an ia can give its asynchronous events to another's evd", "[async][IA-009][REQ-012][EVD-008]") {
  auto first = must(dat::ia::open(addresses()[0]));
  auto shared = must(first.create_evd<dat::async | dat::software>(16));
  auto opened = must(dat::ia::open(addresses()[0], {.async_evd = shared}));
  CHECK_FALSE(opened.async_evd());
  side b(1);
  CHECK(error_of(dat::ia::open(addresses()[1], {.async_evd = shared})) ==
        dat::error(type::invalid_handle, subtype::handle_evd_async));
  auto events = must(opened.create_evd<dat::connection | dat::connection_requests | dat::software>(1));
  auto completions = must(opened.create_evd<dat::dto>(16));
  auto pz = must(opened.create_pz());
  must(events.post(1));
  auto ep = must(pz.create_ep<dat::rc>({.recv = completions, .request = completions, .connect = events}));
  must(ep.connect(b.ia.address(), next_port(), patience)); // nobody listens: the refusal has no room
  const auto e = next<dat::evd_overflow>(shared);
  CHECK(e.evd() == events.id());
  CHECK(e.is_of(opened));
  CHECK(ep.state() == state::disconnected);
  CHECK(is_empty(first.async_evd()));
}

TEST_CASE("a port that goes down and comes up again is told of, and is no catastrophe",
          "[async][EVENT-088][EVENT-082][IA-007][REQ-013]") {
  if (!in_lab()) SKIP("takes a network interface down");
  auto first = must(dat::ia::open(addresses()[0]));
  auto second = must(dat::ia::open(addresses()[0]));
  auto cno = must(first.create_cno());
  must(first.async_evd().modify_cno(cno));
  REQUIRE(std::system("ip link set v1 down") == 0);
  CHECK(must(cno.wait(patience)) == first.async_evd().id());
  CHECK(next_async<dat::port_down>(first.async_evd()).is_of(first));
  CHECK(next_async<dat::port_down>(second.async_evd()).is_of(second));
  REQUIRE(std::system("ip link set v1 up && sh $DAT_LAB_NET restore") == 0);
  (void)next_async<dat::port_active>(first.async_evd());
  (void)next_async<dat::port_active>(second.async_evd());
  CHECK(error_of(first.async_evd().wait_for<dat::ia_catastrophic>(0s)) == dat::error(type::timeout_expired));
  must(first.async_evd().modify_cno({}));
  connected_pair link; // all is as before
}

} // namespace device
