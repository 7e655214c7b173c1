// Attributes and states of endpoints: defaults, limits, and the values that the device gets.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/ep_params.hpp>

#include <support/ep_states.hpp>

#include <bit>
#include <functional>

using namespace unit;
using dat::ep_attributes;
using dat::ep_state;
using dat::return_type;

namespace {

/// Creates an endpoint with these attributes, or returns the error.
dat::expected<dat::ep<dat::rc>> made(end& e, const ep_attributes& a) { return e.pz.create_ep<dat::rc>(e.evd, a); }

ep_attributes with(const std::function<void(ep_attributes&)>& change) {
  ep_attributes a;
  change(a);
  return a;
}

fake::world small_endpoint_device() {
  auto attr = fake::rxe_attr();
  attr.max_qp_wr = 128;
  attr.max_sge = 6;
  attr.max_qp_init_rd_atom = 5;
  attr.max_qp_rd_atom = 9;
  fake::world w;
  w.devices[0].attr = attr;
  return w;
}

ibv_qp_init_attr asked(ibv_qp* qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  REQUIRE(ibv_query_qp(qp, &attr, IBV_QP_CAP, &init) == 0);
  return init;
}

} // namespace

TEST_CASE("endpoint states have the values of DAT_EP_STATE and a name each") {
  int value = 0;
  for (const auto s : support::all_ep_states) {
    CHECK(static_cast<int>(s) == value++);
    CHECK(to_string(s).find("unknown") == std::string_view::npos);
  }
  CHECK(to_string(static_cast<ep_state>(77)) == "unknown ep_state");
}

TEST_CASE("close modes have the values of DAT_CLOSE_FLAGS", "[DISC-002]") {
  CHECK(static_cast<int>(dat::close_mode::abrupt) == 0);
  CHECK(static_cast<int>(dat::close_mode::graceful) == 1);
}

TEST_CASE("attributes are kept as given and can be queried", "[EP-012][EP-013]") {
  clean_world world;
  end e;
  auto ep = must(made(e, {.max_recv_dtos = 7, .max_message_size = 1000, .max_rdma_read_in = 3}));
  CHECK(ep.attributes().max_recv_dtos == 7);
  CHECK(ep.attributes().max_message_size == 1000);
  CHECK(ep.attributes().max_rdma_read_in == 3);
  CHECK(ep.attributes().max_request_dtos == ep_attributes().max_request_dtos);
  const ep_attributes given{.max_inline = 16,
                            .max_rdma_read_out = 4,
                            .retry_count = 3,
                            .rnr_retry_count = 2,
                            .ack_timeout = std::chrono::milliseconds(5),
                            .min_rnr_timer = std::chrono::microseconds(30),
                            .accept_timeout = std::chrono::milliseconds(700),
                            .keep_alive = std::chrono::milliseconds(90),
                            .soft_high_watermark = 8,
                            .hard_high_watermark = 9,
                            .comm = {AF_INET, SOCK_STREAM, 0},
                            .qos = dat::qos::economy()};
  const auto other = must(made(e, given));
  const auto kept = must(other.query()).attributes;
  CHECK((kept.max_inline == given.max_inline && kept.max_rdma_read_out == given.max_rdma_read_out));
  CHECK((kept.retry_count == given.retry_count && kept.rnr_retry_count == given.rnr_retry_count));
  CHECK((kept.ack_timeout == given.ack_timeout && kept.min_rnr_timer == given.min_rnr_timer));
  CHECK((kept.accept_timeout == given.accept_timeout && kept.keep_alive == given.keep_alive));
  CHECK((kept.soft_high_watermark == 8 && kept.hard_high_watermark == 9));
  CHECK((kept.comm == given.comm && kept.qos == given.qos));
  CHECK(dat::ep<dat::rc>().attributes().max_recv_dtos == ep_attributes().max_recv_dtos);
}

TEST_CASE("the queue pair gets the sizes of the attributes, and one request for the library", "[EP-011]") {
  clean_world world;
  end e;
  auto ep = must(made(
      e, {.max_request_dtos = 10, .max_recv_dtos = 20, .max_request_iov = 3, .max_recv_iov = 2, .max_inline = 32}));
  CHECK(fake::qp_state(ep.native_handle()) == IBV_QPS_INIT); // in this state the queue pair takes receives
  const auto cap = asked(ep.native_handle()).cap;
  CHECK(cap.max_send_wr >= 11);
  CHECK(cap.max_recv_wr >= 20);
  CHECK(cap.max_send_sge >= 3);
  CHECK(cap.max_recv_sge >= 2);
  CHECK(cap.max_inline_data >= 32);
}

TEST_CASE("an endpoint has up to 16 RDMA reads by default, and none where the adapter has none", "[EPS-018]") {
  struct {
    int device;
    std::uint8_t endpoint;
  } const reads[] = {{0, 0}, {1, 1}, {15, 15}, {16, 16}, {64, 16}};
  for (const auto& r : reads) {
    INFO("reads of the device: " << r.device);
    auto w = small_endpoint_device();
    w.devices[0].attr->max_qp_rd_atom = r.device;
    w.devices[0].attr->max_qp_init_rd_atom = r.device;
    clean_world world(w);
    end e;
    const auto ep = must(made(e, {}));
    const auto found = must(ep.query()).attributes;
    CHECK(found.max_rdma_read_in == r.endpoint);
    CHECK(found.max_rdma_read_out == std::bit_floor(r.endpoint));
    const pair connected; // whatever the defaults are, they connect
    CHECK(connected.a.ep.state() == ep_state::connected);
  }
}

TEST_CASE("each attribute above the device's limit is refused, and the limit itself is not", "[EP-014][EP-013]") {
  clean_world world(small_endpoint_device());
  end e;
  struct limit {
    const char* said; ///< the text in the message: the member and its range
    std::function<void(ep_attributes&)> good;
    std::function<void(ep_attributes&)> bad;
  };
  using std::chrono::microseconds;
  const limit limits[] = {
      {"max_request_dtos must be within 0..ia_attributes::max_dto_per_ep", [](auto& a) { a.max_request_dtos = 127; },
       [](auto& a) { a.max_request_dtos = 128; }},
      {"max_request_dtos must be within 0..", [](auto& a) { a.max_request_dtos = 0; },
       [](auto& a) { a.max_request_dtos = ~0u; }},
      {"max_recv_dtos must be within 0..ia_attributes::max_dto_per_ep", [](auto& a) { a.max_recv_dtos = 127; },
       [](auto& a) { a.max_recv_dtos = 129; }},
      {"max_recv_dtos must be within 0..", [](auto& a) { a.max_recv_dtos = 0; },
       [](auto& a) { a.max_recv_dtos = ~0u; }},
      {"max_request_iov must be within 1..ia_attributes::max_iov_segments_per_dto",
       [](auto& a) { a.max_request_iov = 6; }, [](auto& a) { a.max_request_iov = 7; }},
      {"max_request_iov must be within 1..", [](auto& a) { a.max_request_iov = 1; },
       [](auto& a) { a.max_request_iov = 0; }},
      {"max_recv_iov must be within 1..ia_attributes::max_iov_segments_per_dto", [](auto& a) { a.max_recv_iov = 6; },
       [](auto& a) { a.max_recv_iov = 7; }},
      {"max_recv_iov must be within 1..", [](auto& a) { a.max_recv_iov = 1; }, [](auto& a) { a.max_recv_iov = 0; }},
      {"max_message_size must be at most ia_attributes::max_message_size",
       [](auto& a) { a.max_message_size = 8388608; }, [](auto& a) { a.max_message_size = 8388609; }},
      {"max_rdma_read_out must be within 0..ia_attributes::max_rdma_read_per_ep_out",
       [](auto& a) { a.max_rdma_read_out = 5; }, [](auto& a) { a.max_rdma_read_out = 6; }},
      {"max_rdma_read_in must be within 0..ia_attributes::max_rdma_read_per_ep_in",
       [](auto& a) { a.max_rdma_read_in = 9; }, [](auto& a) { a.max_rdma_read_in = 10; }},
      {"retry_count must be within 0..6", [](auto& a) { a.retry_count = 6; }, [](auto& a) { a.retry_count = 7; }},
      {"rnr_retry_count must be within 0..7", [](auto& a) { a.rnr_retry_count = 7; },
       [](auto& a) { a.rnr_retry_count = 8; }},
      {"min_rnr_timer must be within 0..655.36 ms", [](auto& a) { a.min_rnr_timer = microseconds(655'360); },
       [](auto& a) { a.min_rnr_timer = microseconds(655'361); }},
      {"min_rnr_timer must be within 0..655.36 ms", [](auto& a) { a.min_rnr_timer = microseconds(0); },
       [](auto& a) { a.min_rnr_timer = microseconds(-1); }},
      {"accept_timeout must be within 1 ms..8760 h", [](auto& a) { a.accept_timeout = std::chrono::milliseconds(1); },
       [](auto& a) { a.accept_timeout = {}; }},
      {"accept_timeout must be within 1 ms..8760 h", [](auto& a) { a.accept_timeout = std::chrono::hours(8760); },
       [](auto& a) { a.accept_timeout = std::chrono::milliseconds::max(); }},
      {"keep_alive must be within 0..8760 h", [](auto& a) { a.keep_alive = microseconds(1); },
       [](auto& a) { a.keep_alive = microseconds(-1); }},
      {"keep_alive must be within 0..8760 h", [](auto& a) { a.keep_alive = std::chrono::hours(8760); },
       [](auto& a) { a.keep_alive = microseconds::max(); }},
      {"one less with keep_alive",
       [](auto& a) {
         a.max_request_dtos = 126;
         a.keep_alive = microseconds(1);
       },
       [](auto& a) {
         a.max_request_dtos = 127;
         a.keep_alive = microseconds(1);
       }},
      {"recv_completion must be", [](auto&) {},
       [](auto& a) { a.recv_completion = static_cast<dat::completion_notification>(1); }},
      {"request_completion must be", [](auto&) {},
       [](auto& a) { a.request_completion = dat::completion_notification::solicited_wait; }},
      {"soft_high_watermark and hard_high_watermark must be below 2^31",
       [](auto& a) { a.soft_high_watermark = (1u << 31) - 1; }, [](auto& a) { a.soft_high_watermark = 1u << 31; }},
      {"must be below 2^31", [](auto& a) { a.hard_high_watermark = dat::no_watermark; },
       [](auto& a) { a.hard_high_watermark = dat::no_watermark - 1; }},
      {"A communicator is {AF_INET or AF_INET6", [](auto&) {},
       [](auto& a) {
         a.comm = {AF_INET, SOCK_DGRAM, 0};
       }},
      {"qos.service_level must be within 0..15", [](auto& a) { a.qos.service_level = 15; },
       [](auto& a) { a.qos.service_level = 16; }},
      {"qos.flow_label must be within 0..0xfffff", [](auto& a) { a.qos.flow_label = 0xfffff; },
       [](auto& a) { a.qos.flow_label = 0x100000; }},
      {"ack_timeout must be within 1 us..8796 s", [](auto& a) { a.ack_timeout = microseconds(1); },
       [](auto& a) { a.ack_timeout = {}; }},
      {"ack_timeout must be within 1 us..8796 s", [](auto& a) { a.ack_timeout = microseconds(8'796'093'022); },
       [](auto& a) { a.ack_timeout = microseconds(8'796'093'023); }},
      {"detect_dead_peer_within takes a positive limit", [](auto& a) { a.detect_dead_peer_within(microseconds(1)); },
       [](auto& a) { a.detect_dead_peer_within(microseconds(0)); }},
      {"detect_dead_peer_within takes a positive limit", [](auto&) {},
       [](auto& a) { a.detect_dead_peer_within(std::chrono::seconds(-5)); }},
      {"Try a smaller max_inline", [](auto& a) { a.max_inline = 16; }, [](auto& a) { a.max_inline = 1u << 30; }},
  };
  for (const auto& l : limits) {
    INFO(l.said);
    const auto good = made(e, with(l.good));
    CHECK(good.has_value());
    const auto before = fake::live().qps;
    const auto bad = made(e, with(l.bad));
    REQUIRE_FALSE(bad.has_value());
    CHECK(bad.error().type() == return_type::invalid_parameter);
    CHECK(bad.error().call() == "pz.create_ep");
    CHECK(bad.error().object() == dat::object_kind::ep);
    CHECK(bad.error().message().find(l.said) != std::string::npos);
    CHECK(fake::live().qps == before);
  }
}

TEST_CASE("unset RDMA read limits become the device's, rounded down to a power of two", "[CONN-066][CR-043]") {
  clean_world world(small_endpoint_device());
  pair p;
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  REQUIRE(ibv_query_qp(p.a.ep.native_handle(), &attr, IBV_QP_MAX_QP_RD_ATOMIC, &init) == 0);
  CHECK(attr.max_rd_atomic == 4); // at most 5
}

TEST_CASE("retry counts and timers reach the queue pair as codes", "[CONN-068][CONN-067]") {
  clean_world world;
  pair p({.retry_count = 3,
          .rnr_retry_count = 5,
          .ack_timeout = std::chrono::milliseconds(1),
          .min_rnr_timer = std::chrono::microseconds(100)});
  for (auto* e : {&p.a, &p.b}) {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    REQUIRE(ibv_query_qp(e->ep.native_handle(), &attr,
                         IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT | IBV_QP_MIN_RNR_TIMER, &init) == 0);
    CHECK(attr.retry_cnt == 3);
    CHECK(attr.rnr_retry == 5);
    CHECK(attr.timeout == 8);       // 4.096 us * 256
    CHECK(attr.min_rnr_timer == 7); // 120 us
  }
}

TEST_CASE("the time in which a dead peer is to be noticed sets ack_timeout, retry_count and keep_alive") {
  const clean_world world;
  struct {
    std::chrono::microseconds limit;
    std::chrono::microseconds ack_timeout;
    int retry_count;
    std::chrono::microseconds keep_alive;
  } const rows[] = {{2s, 33'554us, 6, 1'060'488us}, {1s, 16'777us, 6, 530'244us}, {200ms, 4'194us, 6, 82'568us},
                    {100ms, 4'194us, 3, 32'896us},  {60ms, 4'194us, 2, 10'000us}, {1us, 4'194us, 2, 10'000us},
                    {0us, 0us, 2, 10'000us},        {-5s, 0us, 2, 10'000us}};
  for (const auto& row : rows) {
    ep_attributes a;
    const auto chosen = a.detect_dead_peer_within(row.limit);
    INFO(row.limit.count() << " us");
    CHECK(chosen.ack_timeout == row.ack_timeout);
    CHECK(chosen.retry_count == row.retry_count);
    CHECK(chosen.keep_alive == row.keep_alive);
    CHECK(a.ack_timeout == chosen.ack_timeout);
    CHECK(a.retry_count == chosen.retry_count);
    CHECK(a.keep_alive == chosen.keep_alive);
    CHECK(chosen.usual == row.ack_timeout * (row.retry_count + 1));
    CHECK(chosen.longest == chosen.usual * 4);
    if (row.limit < 67ms) continue;
    CHECK(chosen.longest + chosen.keep_alive <= row.limit);
    CHECK(chosen.longest > row.limit / 3); // nor is it much shorter than the requested limit
  }
  // The largest code of the adapter, and no more.
  CHECK(ep_attributes().detect_dead_peer_within(std::chrono::hours(10'000)).ack_timeout == 8'796'093'022us);
  // The queue pair gets the code of this time.
  pair p([] {
    ep_attributes a;
    a.detect_dead_peer_within(2s);
    return a;
  }());
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  REQUIRE(ibv_query_qp(p.a.ep.native_handle(), &attr, IBV_QP_TIMEOUT, &init) == 0);
  CHECK(attr.timeout == 13);
  CHECK(attr.retry_cnt == 6);
}
