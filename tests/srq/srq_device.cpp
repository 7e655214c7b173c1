// Shared receive queues on a device: their counts, queries and refusals, and which completions notify.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "pool_device.hpp"

#include <dat/ep_params.hpp>
#include <dat/srq.hpp>

#include <algorithm>
#include <malloc.h>

namespace device { namespace srq_tests {

TEST_CASE("counts of a shared queue follow the specification's example on a device", "[srq]") {
  pool p(1, {.max_recv_dtos = 10, .max_recv_iov = 3});
  slots receive(p.b.pz, 16, 16);
  buffer out(p.a.pz, 16);
  const std::uint32_t size = p.now().max_recv_dtos;
  CHECK(size >= 10);
  SHOWS("SRQ-007");
  CHECK(p.now().max_recv_iov >= 3);
  SHOWS("SRQ-010");
  CHECK(p.now().available == 0u);
  SHOWS("SRQ-008");
  const auto in_use = ::mallinfo2().uordblks; // allocations of this thread, or of threads that share its heap
  for (unsigned i = 0; i < 3; ++i) receive.post(p.srq, i);
  CHECK(::mallinfo2().uordblks == in_use);
  SHOWS("SRQ-081");
  CHECK((p.now().available == 3u && p.now().outstanding == 3));
  SHOWS("SRQ-055", "SRQ-056", "SRQ-058");
  must(p.from[0].post(dat::send{out.slice(0, 8)}));
  (void)next<dat::send_done>(p.a.evd); // the peer's adapter has the message
  p.until_available(2);
  CHECK(p.now().outstanding == 3);
  SHOWS("SRQ-029");
  (void)next<dat::recv_done>(p.b.evd);
  CHECK((p.now().available == 2u && p.now().outstanding == 2));
  SHOWS("SRQ-057", "SRQ-055");
  // The queue is full when that many buffers are outstanding, posted or completed.
  for (std::uint32_t i = 2; i < size; ++i) receive.post(p.srq, 3);
  must(p.from[0].post(dat::send{out.slice(0, 8)}));
  (void)next<dat::send_done>(p.a.evd);
  p.until_available(size - 1);
  CHECK(p.now().outstanding == size);
  CHECK(error_of(p.srq.post(dat::recv{})) == dat::error(type::insufficient_resources, subtype::resource_srq));
  SHOWS("ERR-031", "SRQ-086", "SRQ-010", "SRQ-029", "SRQ-056");
  CHECK(error_of(p.srq.resize(9)).type() == type::invalid_state);
  CHECK(error_of(p.srq.resize(size - 1)) == dat::error(type::invalid_state, subtype::srq_in_use)); // one is not taken
  CHECK(p.now().max_recv_dtos == size);
  SHOWS("SRQ-063");
  (void)next<dat::recv_done>(p.b.evd);
  must(p.srq.post(dat::recv{}));
  const auto limit = must(p.b.ia.query()).max_recv_per_srq;
  CHECK(error_of(p.srq.resize(limit + 1)).type() == type::invalid_parameter);
  CHECK(error_of(p.srq.resize(0)).type() == type::invalid_parameter);
  SHOWS("SRQ-066");
  CHECK(error_of(p.b.pz.create_srq({.max_recv_dtos = limit + 1})).type() == type::invalid_parameter);
  CHECK(error_of(p.b.pz.create_srq({.max_recv_iov = 100'000})).type() == type::invalid_parameter);
  CHECK(error_of(p.b.pz.create_srq({.max_recv_dtos = 0})).type() == type::invalid_parameter);
  CHECK(error_of(p.b.pz.create_srq({.max_recv_iov = 0})).type() == type::invalid_parameter);
  CHECK(error_of(p.b.pz.create_srq({.max_recv_dtos = limit + 1})).verb().empty()); // dat does not call the device
  SHOWS("SRQ-003", "SRQ-014");
  CHECK(error_of(p.srq.set_low_watermark(size + 1)).type() == type::invalid_parameter);
  must(p.srq.set_low_watermark(size));
  CHECK(p.now().low_watermark == size);
  SHOWS("SRQ-041");
}

TEST_CASE("a message longer than max_message_size of an endpoint arrives in a buffer of its shared queue", "[srq]") {
  pool p(2, {.max_recv_dtos = 4}, {.max_message_size = 64});
  slots receive(p.b.pz, 1, 256);
  buffer out(p.a.pz, 128);
  receive.post(p.srq, 0); // for the endpoint that the first message arrives at
  must(p.from[1].post(dat::send{out.lmr}));
  const auto arrived = next<dat::recv_done>(p.b.evd);
  CHECK((arrived.bytes() == 128 && arrived.ep().number() == p.to[1].number()));
  DEVIATES("COMP-032", "EPATTR-002");
  (void)next<dat::send_done>(p.a.evd);
  CHECK(p.to[1].state() == state::connected);
}

TEST_CASE("queries and refusals of shared queues on this device", "[srq]") {
  side b(1);
  const auto offered = must(b.ia.query<dat::provider_attributes>());
  REQUIRE(offered.srq_supported);
  SHOWS("IA-125", "REQ-113");
  CHECK(offered.srq_watermarks_supported.dat_code() == 0x111);
  STATIC_REQUIRE(dat::srq_watermarks().dat_code() == 0);
  STATIC_REQUIRE(dat::srq_watermarks{.low = true}.dat_code() == 0x001);
  STATIC_REQUIRE(dat::srq_watermarks{.soft_high = true}.dat_code() == 0x010);
  STATIC_REQUIRE(dat::srq_watermarks{.hard_high = true}.dat_code() == 0x100);
  SHOWS("IA-126", "DTO-022", "SRQ-042", "EP-086");
  CHECK(offered.srq_info_supported.dat_code() == 0x11);
  STATIC_REQUIRE(dat::srq_counts{.available = true}.dat_code() == 0x01);
  STATIC_REQUIRE(dat::srq_counts{.outstanding = true}.dat_code() == 0x10);
  SHOWS("IA-128", "SRQ-058");
  CHECK_FALSE(offered.srq_ep_pz_difference_supported);
  SHOWS("IA-127", "DTO-022");
  CHECK_FALSE(offered.ep_recv_info_supported);
  SHOWS("IA-129", "SRQ-002", "REQ-113", "DTO-022");
  const auto limits = must(b.ia.query());
  ibv_device_attr device{};
  REQUIRE(::ibv_query_device(b.ia.native_handle(), &device) == 0);
  CHECK(limits.max_srqs == static_cast<std::uint32_t>(device.max_srq));
  SHOWS("IA-092", "DTO-021");
  CHECK(limits.max_recv_per_srq == static_cast<std::uint32_t>(device.max_srq_wr));
  SHOWS("IA-094");
  CHECK(limits.max_ep_per_srq == limits.max_eps); // verbs has no limit of its own
  SHOWS("IA-093", "SRQ-003");
  auto srq = must(b.pz.create_srq({.max_recv_iov = 2}));
  const auto fresh = must(srq.query());
  CHECK((fresh.state == dat::srq_state::operational && fresh.available == 0u && fresh.outstanding == 0));
  SHOWS("SRQ-008");
  auto zone = must(b.ia.create_pz());
  CHECK(error_of(zone.create_ep<dat::rc>(b.evd, srq)).type() == type::invalid_parameter);
  SHOWS("SRQ-018", "DTO-033", "EP-030", "REQ-121");
  buffer foreign(zone, 16);
  buffer mine(b.pz, 64);
  CHECK(error_of(srq.post(dat::recv{foreign.lmr})).type() == type::protection_violation);
  SHOWS("SRQ-088", "SRQ-009", "DTO-032", "EP-023", "REQ-121");
  const auto most = must(srq.query()).max_recv_iov;
  dat::iov<40, mine.lmr.rights> many;
  for (std::uint32_t i = 0; i < most; ++i) REQUIRE(many.push_back(mine.slice(i, 1)));
  must(srq.post(dat::recv{many}));
  REQUIRE(many.push_back(mine.slice(most, 1)));
  CHECK(error_of(srq.post(dat::recv{many})).type() == type::invalid_parameter);
  CHECK(must(srq.query()).outstanding == 1);
  SHOWS("SRQ-074", "SRQ-010");
  side elsewhere(0);
  const auto no_queue = dat::error(type::invalid_handle, subtype::handle_srq);
  CHECK(error_of(elsewhere.pz.create_ep<dat::rc>(elsewhere.evd, srq)) == no_queue);
  CHECK(error_of(b.pz.create_ep<dat::rc>(b.evd, dat::srq())) == no_queue);
  CHECK(error_of(dat::pz().create_ep<dat::rc>(b.evd, srq)) == dat::error(type::invalid_handle, subtype::handle_pz));
  const auto refused_with = [&](const dat::ep_evds& evds) {
    return error_of(b.pz.create_ep<dat::rc>(evds, srq)).subtype();
  };
  CHECK(refused_with({.recv = elsewhere.evd, .request = b.evd, .connect = b.evd}) == subtype::handle_evd_recv);
  CHECK(refused_with({.recv = b.evd, .request = elsewhere.evd, .connect = b.evd}) == subtype::handle_evd_request);
  CHECK(refused_with({.recv = b.evd, .request = b.evd, .connect = elsewhere.evd}) == subtype::handle_evd_conn);
  CHECK(error_of(b.pz.create_ep<dat::rc>(b.evd, srq, {.max_request_iov = 255})).type() == type::invalid_parameter);
  const auto completions_only = must(b.ia.create_evd<dat::stream::dto>(8));
  CHECK(error_of(b.pz.create_ep<dat::rc>({.recv = completions_only, .request = b.evd, .connect = b.evd}, srq)).type() ==
        type::model_not_supported);
  SHOWS("EP-014", "EP-030");
  auto ep = must(
      b.pz.create_ep<dat::rc>(b.evd, srq, {.max_recv_iov = 999, .soft_high_watermark = 7, .hard_high_watermark = 9}));
  CHECK(ep.state() == state::unconnected);
  SHOWS("EP-022");
  // The queue stays in use in each state of the endpoint: unconfigured, unconnected, connecting, disconnected.
  const auto in_use = dat::error(type::invalid_state, subtype::srq_in_use);
  {
    auto other = must(b.pz.create_srq());
    auto early = must(b.ia.create_ep<dat::rc>({.recv = b.evd, .request = b.evd, .connect = b.evd}, other));
    CHECK(early.state() == state::unconfigured_unconnected);
    auto without_evds = must(b.pz.create_ep<dat::rc>({.connect = b.evd}, other));
    CHECK(without_evds.state() == state::unconfigured_unconnected);
    SHOWS("EP-022");
    must(without_evds.close());
    CHECK(error_of(other.close()) == in_use);
    must(early.close());
    must(other.close());
  }
  CHECK(error_of(srq.close()) == in_use);
  must(ep.connect(b.ia.address(), next_port(), patience));
  CHECK(error_of(srq.close()) == in_use);
  (void)next<dat::non_peer_rejected>(b.evd);
  CHECK(error_of(srq.close()) == in_use);
  SHOWS("SRQ-046", "EP-032", "REQ-115", "REQ-005", "ERR-034");
  must(ep.reset());
  const auto params = must(ep.query());
  CHECK(params.srq == srq);
  SHOWS("EP-026", "REQ-124");
  CHECK(params.attributes.max_recv_iov == 0);
  CHECK(error_of(ep.modify({.max_recv_dtos = 7})).type() == type::invalid_parameter);
  SHOWS("EP-068", "EP-069");
  must(ep.modify({.max_recv_iov = 999}));
  CHECK(must(ep.query()).attributes.max_recv_iov == 0);
  SHOWS("EP-028", "EPATTR-011");
  SHOWS("EP-068");
  CHECK(params.attributes.hard_high_watermark == 9);
  CHECK(params.attributes.soft_high_watermark == 7);
  CHECK(params.attributes.max_recv_dtos == 9); // in DAT this attribute is the hard watermark
  SHOWS("EP-055", "EP-097");
  CHECK(params.attributes.max_request_dtos >= dat::ep_attributes().max_request_dtos);
  CHECK(params.attributes.max_request_iov >= dat::ep_attributes().max_request_iov);
  SHOWS("EP-027", "DTO-035");
  CHECK_FALSE(must(b.make_ep().query()).srq);
  SHOWS("EP-054");
  const dat::ep_ref ref = ep;
  CHECK(error_of(ref.post(dat::recv{mine.lmr})).type() == type::invalid_state);
  SHOWS("EP-025", "DTO-027", "DTO-122", "DTO-124", "REQ-116");
  CHECK_FALSE(must(ep.recv_query()).allocated);
  CHECK_FALSE(must(ep.recv_query()).span);
  SHOWS("EP-061", "REQ-120", "DTO-031", "SRQ-034"); // DAT has the value -2 instead
  CHECK(error_of(srq.close()) == dat::error(type::invalid_state, subtype::srq_in_use));
  // No segment can exceed its region, and buffers may differ.
  CHECK(error_of(mine.lmr.slice(60, 5)).type() == type::invalid_parameter);
  CHECK(error_of(mine.lmr.slice(SIZE_MAX, 2)).type() == type::invalid_parameter);
  SHOWS("SRQ-087", "DTO-080");
  must(srq.post(dat::recv{mine.slice(0, 1)}, dat::recv{mine.lmr}));
  const auto told = must(srq.query());
  CHECK(told.pz == b.pz.identity());
  CHECK(told.outstanding == 3);
  SHOWS("SRQ-004", "SRQ-009", "REQ-114");
  CHECK(told.low_watermark == 0);
  CHECK((told.state == dat::srq_state::operational && told.available == 3u && told.max_recv_iov == most));
  CHECK(told.max_recv_dtos == fresh.max_recv_dtos);
  CHECK(srq.owner() == b.ia.identity());
  SHOWS("SRQ-053", "SRQ-034");
  // An endpoint without a shared queue is not affected.
  const auto plain = b.make_ep();
  CHECK(plain.attributes().soft_high_watermark == dat::no_watermark);
  CHECK(plain.attributes().hard_high_watermark == dat::no_watermark);
  CHECK(plain.attributes().max_recv_dtos == dat::ep_attributes().max_recv_dtos);
  CHECK(plain.attributes().max_recv_iov == dat::ep_attributes().max_recv_iov);
  CHECK(plain.attributes().recv_completion == dat::completion_notification::evd_threshold);
  SHOWS("SRQ-006", "DTO-035", "EP-054", "SRQ-034", "REQ-124");
  must(ep.close());
  must(srq.close()); // the end of its endpoint has released the queue
  SHOWS("DTO-025", "EP-026", "EP-038");
  const dat::error empty(type::invalid_handle, subtype::handle_srq);
  auto taken = must(b.pz.create_srq());
  const auto holds = std::move(taken);
  for (dat::srq* nothing : {&srq, &taken}) {
    CHECK(error_of(nothing->post(dat::recv{mine.lmr})) == empty);
    SHOWS("SRQ-090");
    CHECK(error_of(nothing->set_low_watermark(1)) == empty);
    CHECK(error_of(nothing->resize(1)) == empty);
    CHECK(error_of(nothing->query()) == empty);
    SHOWS("SRQ-054");
    CHECK(error_of(nothing->close()) == empty);
    SHOWS("SRQ-050");
  }
  CHECK(error_of(dat::pz().create_srq()) == dat::error(type::invalid_handle, subtype::handle_pz));
  auto ended = must(b.ia.create_pz());
  must(ended.close());
  CHECK(error_of(ended.create_srq()) == dat::error(type::invalid_handle, subtype::handle_pz));
  SHOWS("SRQ-013");
  side stranger(0);
  CHECK_FALSE(stranger.pz.create_ep<dat::rc>(stranger.evd, holds));
  // An abrupt close of the adapter ends a queue and the endpoints that use it.
  auto last = must(b.pz.create_srq());
  const auto user = must(b.pz.create_ep<dat::rc>(b.evd, last));
  must(b.ia.close(dat::close_mode::abrupt));
  CHECK(error_of(last.query()).type() == type::invalid_handle);
  CHECK(error_of(user.query()).type() == type::invalid_handle);
  SHOWS("REQ-115", "DTO-026", "SRQ-052");
  CHECK(error_of(b.pz.create_srq()).type() == type::invalid_handle);
  SHOWS("SRQ-013");
}

TEST_CASE("the endpoint that takes a shared buffer decides whether its completion notifies",
          "[srq][SRQ-079][SRQ-080][SRQ-092][COMP-028][EPATTR-005]") {
  NEEDS_FEATURE(solicited_waits);
  two_sides t;
  auto srq = must(t.b.pz.create_srq({.max_recv_dtos = 8}));
  buffer in(t.b.pz, 64);
  buffer out(t.a.pz, 8);
  fill(out.bytes, 3);
  dat::iov<2, all_rights.value> parts{in.slice(1, 3), in.slice(5, 13)}; // any alignment
  for (std::uint64_t i = 0; i < 6; ++i) must(srq.post(dat::recv{parts}.cookie(i)));
  parts.clear(); // a post copies the list
  for (const auto how : {dat::completion_notification::evd_threshold, dat::completion_notification::selective,
                         dat::completion_notification::solicited_wait}) {
    INFO(to_string(how));
    auto evd = must(t.b.ia.create_evd<dat::stream::dto | dat::stream::software>(16));
    auto cno = must(t.b.ia.create_cno());
    auto own = must(t.b.ia.create_evd<dat::stream::dto>(16));
    auto from = t.a.make_ep();
    auto to = must(
        t.b.pz.create_ep<dat::rc>({.recv = evd, .request = own, .connect = t.b.evd}, srq, {.recv_completion = how}));
    must(evd.modify_cno(cno));
    t.connect(from, to);
    const auto woken = [&](bool expected) {
      const auto r = cno.wait(expected ? patience : dat::timeout(0s));
      return r ? r.assume_value() == evd.id() : false;
    };
    const auto arrived = [&] {
      for (;;)
        if (auto e = evd.dequeue()) {
          CHECK(std::get<dat::recv_done>(e.assume_value()).bytes() == 8);
          CHECK(std::equal(out.bytes.begin(), out.bytes.begin() + 3, in.bytes.begin() + 1));
          CHECK(std::equal(out.bytes.begin() + 3, out.bytes.end(), in.bytes.begin() + 5));
          return;
        }
    };
    const bool choosy = how == dat::completion_notification::solicited_wait;
    must(from.post(dat::send{out.lmr}));
    (void)next<dat::send_done>(t.a.evd);
    if (choosy) CHECK_FALSE(woken(false));
    if (choosy) SHOWS("CNO-013");
    if (!choosy) CHECK(woken(true)); // a buffer has no flag against notification
    arrived();
    must(from.post(dat::send{out.lmr}.solicited()));
    CHECK(woken(true));
    arrived();
    (void)next<dat::send_done>(t.a.evd);
    t.disconnect(from, to);
  }
}

TEST_CASE("the endpoint that takes a message from a shared queue decides whether it notifies",
          "[srq][SRQ-079][COMP-028][EPATTR-005][REQ-124]") {
  NEEDS_FEATURE(solicited_waits);
  two_sides link({.progress = dat::progress::manual});
  auto plain = link.b.make_ep();
  CHECK_FALSE(must(plain.query()).srq); // by default there is no watermark
  auto srq = must(link.b.pz.create_srq());
  for (int i = 0; i < 8; ++i) must(i < 3 ? srq.post(dat::recv{}.cookie(7)) : srq.post(dat::recv{}));
  struct listener {
    dat::evd<dat::stream::dto | dat::stream::software> evd;
    dat::cno cno;
    endpoint from;
    shared_ep to;
  };
  std::vector<listener> all;
  for (const auto how : {dat::completion_notification::evd_threshold, dat::completion_notification::selective,
                         dat::completion_notification::solicited_wait}) {
    auto evd = must(link.b.ia.create_evd<dat::stream::dto | dat::stream::software>(16));
    auto to = must(link.b.pz.create_ep<dat::rc>({.recv = evd, .request = link.b.evd, .connect = link.b.evd}, srq,
                                                {.recv_completion = how}));
    CHECK(must(to.query()).srq == srq);
    all.push_back({std::move(evd), must(link.b.ia.create_cno()), link.a.make_ep(), std::move(to)});
    must(all.back().evd.modify_cno(all.back().cno));
    link.connect(all.back().from, all.back().to);
    (void)all.back().cno.wait(0s);
  }
  for (const bool solicited : {false, true})
    for (auto& l : all) {
      INFO("endpoint " << &l - all.data() << ", " << (solicited ? "solicited" : "not solicited"));
      auto message = dat::send{};
      if (solicited) message.solicited();
      must(l.from.post(message));
      (void)link.at_a<dat::send_done>(); // the message has arrived
      if (solicited || &l != &all[2])
        CHECK(must(l.cno.wait(patience)) == l.evd.id()); // the second buffer has no flag against notification
      else
        CHECK(error_of(l.cno.wait(0s)).type() == type::queue_empty);
      // Each buffer counts towards a threshold.
      if (&l != all.data()) continue;
      const auto two = l.evd.wait(solicited ? patience : dat::timeout(0s), 2);
      CHECK(two.has_value() == solicited);
    }
  SHOWS("SRQ-079");
  CHECK(count_of<dat::recv_done>(take(all[0].evd, 1)) == 1); // the wait returned the other event
  for (std::size_t i : {1u, 2u}) {
    const auto arrived = take(all[i].evd, 2);
    CHECK(count_of<dat::recv_done>(arrived) == 2);
    SHOWS("SRQ-017", "SRQ-078"); // each endpoint has an evd of its own
    // Several buffers have one cookie, and others none.
    CHECK(std::get<dat::recv_done>(arrived[0]).cookie() == dat::cookie(7));
    CHECK(std::get<dat::recv_done>(arrived[1]).cookie() == dat::cookie());
    SHOWS("SRQ-077");
  }
}

}} // namespace device::srq_tests
