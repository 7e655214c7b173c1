// The numbers of DAT for events, operations and flags.
// SPDX-License-Identifier: BSL-1.0
#include "datagram_end.hpp"
#include "world.hpp"

#include <dat/dat_code.hpp>
#include <dat/rmr.hpp>
#include <dat/ud.hpp>

#include <set>

using namespace unit;
using dat::completion_flag;
using dat::dto_operation;
using dat::event_number;
using dat::event_number_of;
using dat::ib_ext_type;
using dat::ib_ext_type_of;

TEST_CASE("events have the numbers of uDAPL and of its extensions, by their type", "[dat_code]") {
  STATIC_REQUIRE(static_cast<unsigned>(*event_number_of<dat::send_done>()) == 0x1);
  STATIC_REQUIRE(event_number_of<dat::recv_done>() == event_number::dto_completion);
  STATIC_REQUIRE(event_number_of<dat::rdma_write_done>() == event_number::dto_completion);
  STATIC_REQUIRE(event_number_of<dat::rdma_read_done>() == event_number::dto_completion);
  STATIC_REQUIRE(static_cast<unsigned>(*event_number_of<dat::bind_done>()) == 0x1001);
  STATIC_REQUIRE(static_cast<unsigned>(*event_number_of<dat::cr>()) == 0x2001);
  SHOWS("CR-001");
  STATIC_REQUIRE(static_cast<unsigned>(*event_number_of<dat::established>()) == 0x4001);
  STATIC_REQUIRE(static_cast<unsigned>(*event_number_of<dat::peer_rejected>()) == 0x4002);
  STATIC_REQUIRE(static_cast<unsigned>(*event_number_of<dat::non_peer_rejected>()) == 0x4003);
  STATIC_REQUIRE(static_cast<unsigned>(*event_number_of<dat::accept_completion_error>()) == 0x4004);
  STATIC_REQUIRE(static_cast<unsigned>(*event_number_of<dat::disconnected>()) == 0x4005);
  STATIC_REQUIRE(static_cast<unsigned>(*event_number_of<dat::connection_broken>()) == 0x4006);
  STATIC_REQUIRE(static_cast<unsigned>(*event_number_of<dat::connection_timed_out>()) == 0x4007);
  STATIC_REQUIRE(static_cast<unsigned>(*event_number_of<dat::connection_unreachable>()) == 0x4008);
  STATIC_REQUIRE(static_cast<unsigned>(*event_number_of<dat::evd_overflow>()) == 0x8001);
  STATIC_REQUIRE(static_cast<unsigned>(*event_number_of<dat::ia_catastrophic>()) == 0x8002);
  STATIC_REQUIRE(static_cast<unsigned>(*event_number_of<dat::ep_broken>()) == 0x8003);
  STATIC_REQUIRE(static_cast<unsigned>(*event_number_of<dat::operation_timed_out>()) == 0x8004);
  STATIC_REQUIRE(static_cast<unsigned>(*event_number_of<dat::provider_internal_error>()) == 0x8005);
  STATIC_REQUIRE(static_cast<unsigned>(*event_number_of<dat::software_event>()) == 0x10001);
  STATIC_REQUIRE(static_cast<unsigned>(*event_number_of<dat::ha_down_to_1>()) == 0x8101);
  STATIC_REQUIRE(static_cast<unsigned>(*event_number_of<dat::ha_up_to_multi_path>()) == 0x8102);
  SHOWS("HA-015");
  STATIC_REQUIRE(static_cast<unsigned>(*event_number_of<dat::ib::fetch_and_add_done>()) == 0x40000);
  STATIC_REQUIRE(event_number_of<dat::ib::datagram_recv_done>() == event_number::ib_dto_event);
  STATIC_REQUIRE(static_cast<unsigned>(*event_number_of<dat::ib::datagram_request>()) == 0x40001);
  STATIC_REQUIRE(static_cast<unsigned>(*event_number_of<dat::ib::datagram_established>()) == 0x40002);
  SHOWS("IBX-004");
  // Events that DAT does not have.
  STATIC_REQUIRE_FALSE(event_number_of<dat::port_down>().has_value());
  STATIC_REQUIRE_FALSE(event_number_of<dat::srq_low_watermark>().has_value());
  STATIC_REQUIRE_FALSE(event_number_of<dat::ib::group_joined>().has_value());
}

TEST_CASE("operations of the extensions have their own numbers, others have none", "[dat_code]") {
  using dat::ib_op;
  using dat::ib_op_of;
  const auto value = [](auto v) { return static_cast<unsigned>(*v); };
  CHECK(value(ib_op_of(dto_operation::fetch_and_add)) == 0);
  CHECK(value(ib_op_of(dto_operation::compare_and_swap)) == 1);
  CHECK(value(ib_op_of(dto_operation::rdma_write_immediate)) == 2);
  CHECK(value(ib_op_of(dto_operation::send_ud)) == 3);
  std::size_t with = 0;
  for (int i = 0; i < 256; ++i) with += ib_op_of(static_cast<dto_operation>(i)).has_value() ? 1u : 0u;
  CHECK(with == 4);
  SHOWS("IBX-006");
}

TEST_CASE("each type of completion has its operation", "[dat_code]") {
  STATIC_REQUIRE(dat::send_done::operation() == dto_operation::send);
  STATIC_REQUIRE(dat::rdma_write_done::operation() == dto_operation::rdma_write);
  STATIC_REQUIRE(dat::rdma_read_done::operation() == dto_operation::rdma_read);
  STATIC_REQUIRE(dat::ib::rdma_write_immediate_done::operation() == dto_operation::rdma_write_immediate);
  STATIC_REQUIRE(dat::ib::recv_write_immediate_done::operation() == dto_operation::recv_rdma_immediate);
  STATIC_REQUIRE(dat::ib::recv_immediate_done::operation() == dto_operation::recv_immediate);
  STATIC_REQUIRE(dat::ib::fetch_and_add_done::operation() == dto_operation::fetch_and_add);
  STATIC_REQUIRE(dat::ib::compare_and_swap_done::operation() == dto_operation::compare_and_swap);
  STATIC_REQUIRE(dat::ib::atomic_write_done::operation() == dto_operation::atomic_write);
  STATIC_REQUIRE(dat::ib::flush_done::operation() == dto_operation::flush);
  STATIC_REQUIRE(dat::ib::datagram_send_done::operation() == dto_operation::send_ud);
  STATIC_REQUIRE(dat::ib::datagram_recv_done::operation() == dto_operation::recv_ud);
  STATIC_REQUIRE(dat::ib::datagram_recv_immediate_done::operation() == dto_operation::recv_ud_immediate);
  // A write and a flush of memory are operations without a number in DAT.
  STATIC_REQUIRE_FALSE(event_number_of<dat::ib::atomic_write_done>().has_value());
  STATIC_REQUIRE_FALSE(event_number_of<dat::ib::flush_done>().has_value());
}

TEST_CASE("the numbers of DAT have names", "[dat_code]") {
  STATIC_REQUIRE(to_string(event_number::connection_established) == "connection_established");
  STATIC_REQUIRE(to_string(event_number::ib_ud_connection_event_established) == "ib_ud_connection_event_established");
  STATIC_REQUIRE(to_string(static_cast<event_number>(2)) == "unknown event_number");
  STATIC_REQUIRE(to_string(ib_ext_type::ud_recv) == "ud_recv");
  STATIC_REQUIRE(to_string(static_cast<ib_ext_type>(10)) == "unknown ib_ext_type");
  STATIC_REQUIRE(to_string(dat::ib_op::ud_send) == "ud_send");
  STATIC_REQUIRE(to_string(static_cast<dat::ib_op>(4)) == "unknown ib_op");
}

TEST_CASE("events that have happened have the kinds of the extensions", "[dat_code]") {
  clean_world world;
  pair p;
  std::set<unsigned> seen;
  std::vector<std::optional<event_number>> numbers;
  const auto note = [&](const auto& e) {
    numbers.push_back(event_number_of(e));
    if (const auto kind = ib_ext_type_of(e)) seen.insert(static_cast<unsigned>(*kind));
  };
  const auto run = [&](auto& evd) {
    fake::finish();
    while (evd.drain(note) != 0) {
    }
  };
  must(p.b.ep.post(dat::recv{p.b.at(0, 16)}, dat::recv{p.b.at(16, 16)}, dat::recv{p.b.at(32, 16)}));
  must(p.a.ep.post(dat::send{p.a.at(0, 4)}));
  run(p.a.evd);
  CHECK(numbers == std::vector<std::optional<event_number>>{event_number::dto_completion});
  CHECK(seen.empty());
  must(p.a.ep.post(dat::send{p.a.at(0, 4)}.immediate(1)));
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 4), must(p.b.mem.remote(64, 4))}.immediate(2)));
  run(p.a.evd);
  CHECK(seen == std::set<unsigned>{2}); // a send with immediate data has no number of its own
  run(p.b.evd);
  CHECK(seen == std::set<unsigned>{2, 3, 4});
  CHECK(numbers.back() == event_number::ib_dto_event);

  // The variant of an evd has the number of the event in it.
  must(p.a.ep.disconnect());
  p.settle();
  const auto end = must(p.a.evd.dequeue());
  CHECK(event_number_of(end) == event_number::connection_disconnected);
  CHECK_FALSE(ib_ext_type_of(end).has_value());
}

TEST_CASE("the kinds of operations of the extensions are numbered from 0 to 9", "[dat_code]") {
  const auto value = [](auto v) { return static_cast<unsigned>(*v); };
  CHECK(value(ib_ext_type_of(dto_operation::fetch_and_add)) == 0);
  CHECK(value(ib_ext_type_of(dto_operation::compare_and_swap)) == 1);
  CHECK(value(ib_ext_type_of(dto_operation::rdma_write_immediate)) == 2);
  CHECK(value(ib_ext_type_of(dto_operation::recv_rdma_immediate)) == 3);
  CHECK(value(ib_ext_type_of(dto_operation::recv_immediate)) == 4);
  STATIC_REQUIRE(static_cast<unsigned>(*dat::detail::ext_type<dat::ib::datagram_request>()) == 5);
  STATIC_REQUIRE(static_cast<unsigned>(ib_ext_type::ud_remote_ah) == 6);
  STATIC_REQUIRE(static_cast<unsigned>(ib_ext_type::ud_passive_remote_ah) == 7);
  CHECK(value(ib_ext_type_of(dto_operation::send_ud)) == 8);
  CHECK(value(ib_ext_type_of(dto_operation::recv_ud)) == 9);
  CHECK(value(ib_ext_type_of(dto_operation::recv_ud_immediate)) == 9);
  CHECK_FALSE(ib_ext_type_of(dto_operation::send).has_value());
  CHECK_FALSE(ib_ext_type_of(dto_operation::bind).has_value());
  SHOWS("IBX-007");
}

TEST_CASE("both sides of a datagram connection have the kind of their side", "[dat_code]") {
  clean_world world;
  datagram_end a("fk1");
  datagram_end b("fk2");
  auto listener = must(dat::ib::datagram_service::listen(b.ia, service, b.evd));
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a.ia, b.ia);
  auto asked = must(b.evd.dequeue());
  CHECK(event_number_of(asked) == event_number::ib_ud_connection_request_event);
  CHECK(ib_ext_type_of(asked) == ib_ext_type::ud_connect_request);
  must(std::get<dat::ib::datagram_request>(asked).accept(b.ep));
  settle(a.ia, b.ia);
  const auto active = must(a.evd.dequeue());
  const auto passive = must(b.evd.dequeue());
  CHECK(event_number_of(active) == event_number::ib_ud_connection_event_established);
  CHECK(ib_ext_type_of(active) == ib_ext_type::ud_remote_ah);
  CHECK(ib_ext_type_of(passive) == ib_ext_type::ud_passive_remote_ah);
  SHOWS("IBX-007");
}

TEST_CASE("a failed operation has the number of its operation", "[dat_code]") {
  clean_world world;
  pair p;
  auto far = must(p.b.mem.remote(0, 8));
  must(p.b.mem.close());
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), far}));
  fake::finish();
  std::vector<std::optional<event_number>> numbers;
  p.a.evd.drain(
      dat::overloaded{[&](const dat::dto_failure& e) { numbers.push_back(event_number_of(e)); }, [](const auto&) {}});
  CHECK(numbers == std::vector<std::optional<event_number>>{event_number::dto_completion});
}

TEST_CASE("the flags of an operation have the bits of DAT_COMPLETION_FLAGS", "[dat_code]") {
  using dat::completion_flags_of;
  STATIC_REQUIRE(static_cast<unsigned>(completion_flag::default_flag) == 0);
  STATIC_REQUIRE(static_cast<unsigned>(completion_flag::suppress) == 1);
  STATIC_REQUIRE(static_cast<unsigned>(completion_flag::solicited_wait) == 2);
  STATIC_REQUIRE(static_cast<unsigned>(completion_flag::unsignalled) == 4);
  STATIC_REQUIRE(static_cast<unsigned>(completion_flag::barrier_fence) == 8);
  STATIC_REQUIRE(static_cast<unsigned>(completion_flag::evd_threshold) == 0x10);
  STATIC_REQUIRE(static_cast<unsigned>(completion_flag::lmr_invalidate_fence) == 0x20);
  CHECK(completion_flags_of(dat::send{}) == completion_flag::default_flag);
  CHECK(completion_flags_of(dat::send{}.suppress_completion()) == completion_flag::suppress);
  CHECK(completion_flags_of(dat::send{}.solicited()) == completion_flag::solicited_wait);
  CHECK(completion_flags_of(dat::send{}.suppress_notification()) == completion_flag::unsignalled);
  CHECK(completion_flags_of(dat::send{}.fence()) == completion_flag::barrier_fence);
  CHECK(completion_flags_of(dat::send{}.fence().solicited().inlined()) ==
        (completion_flag::barrier_fence | completion_flag::solicited_wait));
  CHECK(completion_flags_of(dat::recv{}) == completion_flag::default_flag);
  CHECK(completion_flags_of(dat::recv{}.suppress_notification()) == completion_flag::unsignalled);
  const dat::remote_segment<char, dat::mem_priv::remote_read | dat::mem_priv::remote_write> there;
  const dat::local_segment<char, dat::mem_priv::local_read | dat::mem_priv::local_write> here;
  CHECK(completion_flags_of(dat::send_with_invalidate{there}) == completion_flag::default_flag);
  CHECK(completion_flags_of(dat::rdma_write{here, there}) == completion_flag::default_flag);
  CHECK(completion_flags_of(dat::rdma_read{here, there}) == completion_flag::default_flag);
  const dat::lmr<char, dat::mem_priv::local_read> region;
  const dat::bind window{region};
  const auto& of_window = dat::detail::request_access::of(window); // a bind shows only the flags of verbs
  CHECK((of_window.flags == IBV_SEND_SIGNALED && !of_window.no_notify));
  SHOWS("DTO-051", "DTO-075", "IA-117");
}
