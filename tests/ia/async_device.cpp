// Asynchronous events that Soft-RoCE raises, and evds that overflow.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <dat/rmr.hpp>
#include <dat/srq.hpp>

#include <cstdlib>
#include <poll.h>
#include <type_traits>
#include <variant>

namespace device {

namespace {

/// The next asynchronous event of type E; other events, for example port changes, are skipped.
template <class E, dat::streams S>
E next_async(dat::evd<S>& evd, place where = place::here()) {
  return must(evd.template wait_for<E>(patience), where);
}

/// Sends more messages than `small` has room for. The passive side's receives complete there, and no thread takes them.
template <dat::streams S>
void flood(endpoint& active, endpoint& passive, dat::evd<S>& small) {
  // The evd has grown with its endpoint, so the test shrinks it without the library's knowledge.
  REQUIRE(ibv_resize_cq(small.native_handle(), 4) == 0);
  const int more = 240; // many more than its room, because the reactor may move some to the ring of a merged evd
  for (int i = 0; i < more; ++i) must(passive.post(dat::recv{}.cookie(i)));
  for (int i = 0; i < more; ++i) must(active.post(dat::send{}.suppress_completion()));
}

template <dat::streams S>
void overflow_completions() {
  two_sides link;
  auto bystander = must(dat::ia::open(addresses()[1])); // opens another instance of the adapter
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
  SHOWS("EVENT-014", "EVENT-068", "EVENT-084", "REQ-165");
  (void)link.at_b<dat::connection_broken>(passive);
  CHECK(passive.state() == state::disconnected);
  CHECK(other_passive.state() == state::connected);
  // The queued events are delivered in order, before the error.
  int expected = 0;
  for (;;) {
    const auto got = small.wait(patience);
    if (!got) {
      CHECK(error_of(got) == dat::error(type::invalid_state));
      break;
    }
    const auto* r = std::get_if<dat::recv_done>(&got.assume_value());
    if (r) CHECK(r->cookie() == dat::cookie(expected++));
  }
  CHECK(expected > 4);
  SHOWS("EVENT-073", "EVENT-074", "EVENT-076");
  must(passive.close());
  must(small.close());
  // The overflow is reported once, however many completions were lost.
  CHECK(error_of(link.b.ia.async_evd().wait_for<dat::evd_overflow>(0s)) == dat::error(type::timeout_expired));
  CHECK(error_of(link.a.ia.async_evd().wait_for<dat::evd_overflow>(0s)) == dat::error(type::timeout_expired));
  CHECK(error_of(bystander.async_evd().wait_for<dat::evd_overflow>(0s)) == dat::error(type::timeout_expired));
  SHOWS("EVENT-069", "REQ-013", "REQ-153");
  must(other_passive.post(dat::recv{}.cookie(7)));
  must(other_active.post(dat::send{}));
  CHECK(link.at_b<dat::recv_done>(other_passive).cookie() == dat::cookie(7));
}

} // namespace

TEST_CASE("overflowing completions break the connections of the evd and are reported once", "[async]") {
  if (!this_device().resizes_queues) SKIP("shrinks the queue of an evd, which this device does not");
  SECTION("of a completions-only evd") { overflow_completions<dat::stream::dto>(); }
  SECTION("merged") { overflow_completions<dat::stream::dto | dat::stream::software>(); }
}

TEST_CASE("overflowing connection events are lost and reported, and the state still changes", "[async]") {
  two_sides link;
  auto shared = must(link.a.ia.create_evd<dat::stream::async>(2));
  auto completions = must(link.a.ia.create_evd<dat::stream::dto>(64));
  using events = dat::evd<dat::stream::connection | dat::stream::software>;
  std::vector<events> full;
  std::vector<endpoint> actives;
  std::vector<endpoint> passives;
  for (std::uint64_t i = 0; i < 4; ++i) {
    full.push_back(must(link.a.ia.create_evd<events::stream_set>(1)));
    must(full[i].post(i));
    actives.push_back(
        must(link.a.pz.create_ep<dat::rc>({.recv = completions, .request = completions, .connect = full[i]})));
    passives.push_back(link.b.make_ep());
    must(actives[i].connect(link.target(), link.port(), patience));
    must(link.at_b<dat::connection_request>().accept(passives[i]));
    (void)link.at_b<dat::established>(passives[i]);
    // The two events of this life have places of their own.
    must(passives[i].disconnect());
    (void)link.at_b<dat::disconnected>(passives[i]);
    while (actives[i].state() != state::disconnected) std::this_thread::yield();
    must(actives[i].reset());
    must(passives[i].reset());
    // The next life has no place until these events are taken.
    must(actives[i].connect(link.target(), link.port(), patience));
    must(link.at_b<dat::connection_request>().accept(passives[i]));
    (void)link.at_b<dat::established>(passives[i]);
    CHECK(next_async<dat::evd_overflow>(link.a.ia.async_evd()).evd() == full[i].id());
    SHOWS("EVENT-068");
    CHECK(actives[i].state() == state::connected); // though its event was lost
  }
  // The small evd of asynchronous events has room for two; its last event is its own overflow.
  CHECK(next<dat::evd_overflow>(shared).evd() == full[0].id());
  CHECK(next<dat::evd_overflow>(shared).evd() == full[1].id());
  SHOWS("IA-013");
  CHECK(next<dat::evd_overflow>(shared).evd() == shared.id());
  SHOWS("EVENT-077", "REQ-150", "REQ-153");
  CHECK(is_empty(shared));
  must(passives[0].disconnect());
  (void)link.at_b<dat::disconnected>(passives[0]);
  // The end of a connection and the refusal of an attempt change the state without a place for their events, too.
  while (actives[0].state() != state::disconnected) std::this_thread::yield();
  must(actives[0].reset());
  must(actives[0].connect(link.target(), link.port(), patience));
  CHECK(actives[0].state() == state::active_connection_pending);
  must(link.at_b<dat::connection_request>().reject());
  while (actives[0].state() == state::active_connection_pending) std::this_thread::yield();
  CHECK(actives[0].state() == state::disconnected);
  for (std::uint64_t i = 0; i < 4; ++i) {
    CHECK(next<dat::software_event>(full[i]).cookie() == dat::cookie(i)); // the queued events are unchanged
    (void)next<dat::established>(full[i]);
    (void)next<dat::disconnected>(full[i]);
    if (i == 0) continue;
    must(passives[i].disconnect()); // there is room again
    (void)next<dat::disconnected>(full[i]);
    CHECK(actives[i].state() == state::disconnected);
    SHOWS("CONN-034", "EVENT-033", "EVENT-072", "EVENT-075", "REQ-150");
  }
}

TEST_CASE("an ia can send its asynchronous events to the evd of another ia",
          "[async][IA-009][IA-010][IA-035][REQ-012][EVD-008]"
          "[EVD-014]") {
  auto first = must(dat::ia::open(addresses()[0]));
  auto shared = must(first.create_evd<dat::stream::async | dat::stream::software>(16));
  // The length of the queue has no effect if open creates no evd.
  auto opened = must(dat::ia::open(addresses()[0], {.async_qlen = 0, .async_evd = shared}));
  CHECK_FALSE(opened.async_evd());
  {
    auto owner = must(dat::ia::open(addresses()[0]));
    const auto ended = must(owner.create_evd<dat::stream::async>(4));
    must(owner.close());
    CHECK(error_of(dat::ia::open(addresses()[0], {.async_evd = ended})) ==
          dat::error(type::invalid_handle, subtype::handle_evd_async));
    SHOWS("ERR-032");
  }
  side b(1);
  CHECK(error_of(dat::ia::open(addresses()[1], {.async_evd = shared})) ==
        dat::error(type::invalid_handle, subtype::handle_evd_async));
  auto events =
      must(opened.create_evd<dat::stream::connection | dat::stream::connection_requests | dat::stream::software>(1));
  auto completions = must(opened.create_evd<dat::stream::dto>(16));
  auto pz = must(opened.create_pz());
  must(events.post(1));
  must(events.disable()); // neither this call nor the next one prevents events on the evd
  must(events.set_unwaitable());
  auto ep = must(pz.create_ep<dat::rc>({.recv = completions, .request = completions, .connect = events}));
  // No service point listens. The refusals of two attempts have places of their own, and the refusal of the third has
  // none.
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (attempt != 0) must(ep.reset());
    must(ep.connect(b.ia.address(), next_port(), patience));
    while (ep.state() != state::disconnected) std::this_thread::yield();
  }
  const auto e = next<dat::evd_overflow>(shared);
  CHECK(e.evd() == events.id());
  CHECK(e.is_of(opened));
  SHOWS("EVENT-082", "EVENT-080", "EVD-034");
  CHECK(ep.state() == state::disconnected);
  SHOWS("EVENT-072");
  CHECK(is_empty(first.async_evd()));

  // Closing the ia that borrowed the evd keeps it, and so does closing its owner while another ia borrows it.
  for (const auto how : {dat::close_mode::abrupt, dat::close_mode::graceful})
    must(must(dat::ia::open(addresses()[0], {.async_evd = shared})).close(how));
  CHECK(error_of(first.close(dat::close_mode::graceful)) == dat::error(type::invalid_state, subtype::ia_in_use));
  first = {};
  auto srq = must(pz.create_srq());
  must(srq.set_low_watermark(1));
  CHECK(next<dat::srq_low_watermark>(shared).srq() == srq);
  SHOWS("EVD-019");
  // The evd may be freed while asynchronous events feed it; these are then dropped.
  must(shared.post(1));
  must(shared.close());
  must(srq.set_low_watermark(1));
  CHECK(opened.query().has_value());
  SHOWS("EVENT-106");
}

TEST_CASE("open creates the evd of asynchronous events, which behaves like others and ends with its ia",
          "[async][IA-005][IA-008][IA-036][IA-035][EVD-019][EVD-044]") {
  CHECK(error_of(dat::ia::open(addresses()[0], {.async_qlen = 0})) ==
        dat::error(type::invalid_parameter, subtype::arg2));
  auto ia = must(dat::ia::open(addresses()[0], {.async_qlen = 2}));
  auto& evd = ia.async_evd();
  const auto made = must(evd.query());
  CHECK(made.streams == dat::stream::async);
  CHECK(made.qlen >= 2);
  // More than the usual length.
  CHECK(must(must(dat::ia::open(addresses()[0], {.async_qlen = 300})).async_evd().query()).qlen >= 300);
  CHECK((made.enabled && made.waitable && !made.cno));
  SHOWS("EVENT-082", "IA-007");
  must(evd.resize(12));
  auto cno = must(ia.create_cno());
  must(evd.modify_cno(cno));
  auto pz = must(ia.create_pz());
  auto srq = must(pz.create_srq());
  for (int i = 0; i < 12; ++i) must(srq.set_low_watermark(1)); // the queue has no buffer, so each call reports at once
  CHECK(must(cno.wait(patience)) == evd.id());
  SHOWS("EVENT-083", "EVENT-042", "EVENT-082", "REQ-163", "MODEL-014");
  for (int i = 0; i < 12; ++i) CHECK(next<dat::srq_low_watermark>(evd).srq() == srq);
  CHECK(is_empty(evd));                   // no overflow is reported
  SHOWS("IA-007", "IA-140", "EVENT-082"); // the evd has been resized
  CHECK(error_of(evd.close()) == dat::error(type::invalid_state, subtype::evd_in_use));
  SHOWS("REQ-005");
  must(evd.modify_cno({}));
  must(cno.close());
  must(srq.close());
  must(pz.close());
  background waiter([&] { return error_of(evd.wait(patience)); });
  waiter.until_asleep();
  must(ia.close(dat::close_mode::graceful)); // no object of the consumer is left, and the evd is the library's
  CHECK(waiter.get().type() == type::abort);
  SHOWS("EVENT-103"); // also by a graceful close
  CHECK(error_of(ia.async_evd().dequeue()).type() == type::invalid_handle);
}

TEST_CASE("with async_exists, asynchronous events take effect and are not reported",
          "[async][REQ-014][IA-012][IA-140]") {
  side a(0);
  side b(must(dat::ia::open(addresses()[1], {.async_evd = dat::async_exists})), 64);
  CHECK(a.ia.async_evd());
  CHECK_FALSE(b.ia.async_evd());
  CHECK(error_of(b.ia.async_evd().dequeue()).type() == type::invalid_handle);
  CHECK(error_of(b.ia.async_evd().wait(0s)).type() == type::invalid_handle);
  auto small = must(b.ia.create_evd<dat::stream::dto>(4));
  const dat::ep_attributes large{.max_request_dtos = 256, .max_recv_dtos = 256};
  auto active = a.make_ep(large);
  auto passive = must(b.pz.create_ep<dat::rc>({.recv = small, .request = small, .connect = b.evd}, large));
  const auto port = next_port();
  const auto psp = must(b.ia.create_psp(port, b.evd));
  must(active.connect(b.ia.address(), port, patience));
  must(must(b.evd.wait_for<dat::connection_request>(patience)).accept(passive));
  (void)next<dat::established>(a.evd);
  (void)next<dat::established>(b.evd);
  if (!this_device().resizes_queues) SKIP("shrinks the queue of an evd, which this device does not");
  flood(active, passive, small);
  (void)next<dat::connection_broken>(b.evd);
  CHECK(passive.state() == state::disconnected);
  // A program that needs the events later creates an evd for them.
  auto later = must(b.ia.create_evd<dat::stream::async>(4));
  auto srq = must(b.pz.create_srq());
  must(srq.set_low_watermark(1));
  CHECK(next_async<dat::srq_low_watermark>(later).srq() == srq);
}

TEST_CASE("one evd takes the events of every stream with their types, and a second evd takes its own",
          "[async][EVENT-012][EVENT-022][EVENT-024][EVENT-030][EVENT-042][MODEL-010][REQ-187]") {
  NEEDS_FEATURE(windows);
  constexpr auto all = dat::stream::async | dat::stream::software | dat::stream::dto | dat::stream::connection |
                       dat::stream::connection_requests | dat::stream::rmr_bind;
  auto ia = must(dat::ia::open(addresses()[0]));
  auto pz = must(ia.create_pz());
  auto evd = must(ia.create_evd<all>(32));
  auto other = must(ia.create_evd<dat::stream::software>(4));
  auto cno = must(ia.create_cno());
  must(evd.modify_cno(cno));
  const auto notified = [&] {
    CHECK(must(cno.wait(patience)) == evd.id());
    while (cno.wait(0s)) {
    }
  };
  const auto port = next_port();
  const auto psp = must(ia.create_psp(port, evd));
  auto near = must(pz.create_ep<dat::rc>(evd, {.ack_timeout = 4s})); // so that rxe does not repeat the bind
  auto far = must(pz.create_ep<dat::rc>(evd));
  std::array<std::byte, 64> bytes{};
  auto lmr = must(pz.register_memory(bytes, dat::local_read | dat::local_write));
  auto rmr = must(pz.create_rmr());
  auto srq = must(pz.create_srq());
  must(near.connect(ia.address(), port, patience));
  notified(); // the event of the request has triggered
  must(next<dat::connection_request>(evd).accept(far));
  notified(); // the event of the connection has triggered
  SHOWS("REQ-163", "MODEL-014");
  CHECK(count_of<dat::established>(take(evd, 2)) == 2);
  must(far.post(dat::recv{}.cookie(1)));
  must(near.post(dat::send{}.cookie(2)));
  (void)must(rmr.bind(near, dat::bind{lmr, dat::remote_read}.cookie(3)));
  must(evd.post(4));
  must(other.post(5));
  must(srq.set_low_watermark(1));
  auto reached = must(evd.wait(patience, 5)); // events of four streams reach the threshold together
  CHECK(reached.more == 4);
  SHOWS("EVENT-067");
  auto got = take(evd, 4);
  got.push_back(std::move(reached.first));
  CHECK(count_of<dat::recv_done>(got) == 1);
  CHECK(count_of<dat::send_done>(got) == 1);
  CHECK(count_of<dat::bind_done>(got) == 1);
  CHECK(count_of<dat::software_event>(got) == 1);
  CHECK(count_of<dat::srq_low_watermark>(got) == 1);
  SHOWS("MODEL-009", "EVENT-007", "EVENT-001", "EVENT-002"); // both ends of one connection
  must(near.disconnect());
  const auto ends = take(evd, 2);
  CHECK(count_of<dat::disconnected>(ends) == 2);
  // Events about several paths are asynchronous events, which only such an evd can have. They never come.
  const auto delivers_paths = []<class... E>(const std::variant<E...>*) {
    return (std::is_same_v<E, dat::ha_down_to_1> || ...) && (std::is_same_v<E, dat::ha_up_to_multi_path> || ...);
  };
  CHECK(delivers_paths(static_cast<const dat::event<dat::stream::async>*>(nullptr)));
  constexpr auto others = dat::stream::software | dat::stream::dto | dat::stream::connection |
                          dat::stream::connection_requests | dat::stream::rmr_bind;
  CHECK_FALSE(delivers_paths(static_cast<const dat::event<others>*>(nullptr)));
  SHOWS("HA-015");
  CHECK(count_of<dat::ha_down_to_1>(got) + count_of<dat::ha_up_to_multi_path>(got) == 0);
  CHECK_FALSE(must(ia.query<dat::provider_attributes>()).ha_supported);
  CHECK(is_empty(evd));
  CHECK(next<dat::software_event>(other).cookie() == dat::cookie(5));
  SHOWS("EVENT-006");
  CHECK(is_empty(other));
}

TEST_CASE("one evd of the standard streams serves a service point, an endpoint, its binds and its ia",
          "[async][EVENT-025]") {
  STATIC_REQUIRE(static_cast<std::uint32_t>(dat::stream::standard) == 0x1f0);
  STATIC_REQUIRE_FALSE(includes(dat::stream::standard, dat::stream::software));
  auto first = must(dat::ia::open(addresses()[0]));
  auto evd = must(first.create_evd<dat::stream::standard>(32));
  auto ia = must(dat::ia::open(addresses()[0], {.async_evd = evd}));
  auto zone = must(ia.create_pz());
  auto own = must(ia.create_evd(32));
  STATIC_REQUIRE(std::is_same_v<decltype(own), dat::evd<dat::stream::standard>>);
  SHOWS("EVENT-023");
  CHECK(own.native_handle() != nullptr); // the evd has a completion queue
  const auto port = next_port();
  const auto psp = must(ia.create_psp(port, own));
  auto near = must(zone.create_ep<dat::rc>({.recv = own, .request = own, .connect = own}, {.ack_timeout = 4s}));
  auto far = must(zone.create_ep<dat::rc>({.recv = own, .request = own, .connect = own}));
  must(near.connect(ia.address(), port, patience));
  auto request = next<dat::connection_request>(own);
  CHECK(request.service() == psp.id());
  SHOWS("PSP-010");
  must(request.accept(far));
  CHECK(count_of<dat::established>(take(own, 2)) == 2);
  std::array<std::byte, 8> bytes{};
  auto lmr = must(zone.register_memory(bytes, dat::local_read | dat::local_write));
  NEEDS_FEATURE(windows);
  auto rmr = must(zone.create_rmr());
  must(far.post(dat::recv{}));
  must(near.post(dat::send{}));
  (void)must(rmr.bind(near, dat::bind{lmr, dat::remote_read}));
  auto srq = must(zone.create_srq());
  must(srq.set_low_watermark(1));
  const auto got = take(own, 4);
  CHECK(count_of<dat::recv_done>(got) == 1);
  CHECK(count_of<dat::send_done>(got) == 1);
  CHECK(count_of<dat::bind_done>(got) == 1);
  CHECK(count_of<dat::srq_low_watermark>(got) == 1);
  CHECK(next<dat::srq_low_watermark>(evd).is_of(ia)); // the asynchronous events of its ia, by open
  must(near.disconnect());
  CHECK(count_of<dat::disconnected>(take(own, 2)) == 2);
}

TEST_CASE("device events about connection steps give no asynchronous event", "[async][EVENT-090][REQ-165]") {
  if (!this_device().infiniband) SKIP("iWARP has no state in which the request queue drains");
  connected_pair link({.progress = dat::progress::manual});
  pollfd told{link.a.ia.native_handle()->async_fd, POLLIN, 0};
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_SQD;
  to.en_sqd_async_notify = 1;
  REQUIRE(ibv_modify_qp(link.active.native_handle(), &to, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0);
  REQUIRE(::poll(&told, 1, static_cast<int>(patience / 1ms)) == 1); // IBV_EVENT_SQ_DRAINED
  link.a.ia.run();
  CHECK(::poll(&told, 1, 0) == 0);
  CHECK(is_empty(link.a.ia.async_evd()));
  CHECK(link.active.state() == state::connected);
  CHECK(is_empty(link.a.evd));
}

TEST_CASE("a port that goes down and up gives port_down and port_active",
          "[async][EVENT-088][EVENT-082][IA-007][REQ-013][REQ-165]") {
  if (!in_lab()) SKIP("takes a network interface down");
  auto first = must(dat::ia::open(addresses()[0]));
  auto second = must(dat::ia::open(addresses()[0]));
  auto cno = must(first.create_cno());
  must(first.async_evd().modify_cno(cno));
  REQUIRE(std::system("ip link set v1 down") == 0);
  CHECK(must(cno.wait(patience)) == first.async_evd().id());
  CHECK(next_async<dat::port_down>(first.async_evd()).is_of(first));
  CHECK(next_async<dat::port_down>(second.async_evd()).is_of(second));
  SHOWS("EVENT-014");
  REQUIRE(std::system("ip link set v1 up && sh $DAT_LAB_NET restore") == 0);
  (void)next_async<dat::port_active>(first.async_evd());
  (void)next_async<dat::port_active>(second.async_evd());
  must(first.async_evd().resize(64));
  CHECK(error_of(first.async_evd().wait_for<dat::ia_catastrophic>(0s)) == dat::error(type::timeout_expired));
  must(first.async_evd().modify_cno({}));
  connected_pair link; // every connection still works
}

} // namespace device
