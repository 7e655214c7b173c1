// Attributes of endpoints on a device: limits of messages and of RDMA reads, values of 0, and values that are refused.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <dat/ep_params.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace device {

TEST_CASE("a message longer than the receiver's max_message_size breaks the connection, though its buffer has room",
          "[dto]") {
  struct row {
    std::uint32_t limit, sent;
    bool in_two; ///< the buffer has two segments, and the limit lies in the second one
  };
  for (const row& r : {row{64, 128, false}, row{64, 65, true}, row{1024, 1025, false}, row{8192, 8193, true}}) {
    CAPTURE(r.limit, r.sent, r.in_two);
    // With manual progress the passive side cannot end the connection before the active side has its completion.
    connected_pair link({.progress = dat::progress::manual, .passive = {.max_message_size = r.limit}});
    const auto become_disconnected = [&](endpoint& ep) {
      return comes_true([&] {
        link.a.ia.run();
        link.b.ia.run();
        return ep.state() == state::disconnected;
      });
    };
    buffer out(link.a.pz, r.sent);
    buffer in(link.b.pz, 2 * r.limit);
    const auto receive = [&](std::uint64_t cookie) {
      const std::size_t first = r.limit / 2;
      must(r.in_two ? link.passive.post(
                          dat::recv{dat::iov{in.slice(0, first), in.slice(first, 2 * r.limit - first)}}.cookie(cookie))
                    : link.passive.post(dat::recv{in.lmr}.cookie(cookie)));
    };
    fill(out.bytes, 6);
    receive(1);
    receive(2);
    must(link.active.post(dat::send{out.slice(0, r.limit)}));
    CHECK(next<dat::recv_done>(link.b.evd).bytes() == r.limit);
    CHECK(has_pattern(std::span(in.bytes).first(r.limit), 6));
    (void)next<dat::send_done>(link.a.evd);
    const std::vector<std::byte> before(in.bytes.begin(), in.bytes.end());
    must(link.active.post(dat::send{out.lmr}));
    if (!this_device().completes_at_peer)
      take_refused_send(link.a.evd);
    else
      CHECK(next<dat::dto_failure>(link.a.evd).status() == dat::dto_status::remote_responder);
    const auto failed = link.at_b<dat::dto_failure>();
    CHECK((failed.status() == dat::dto_status::local_length && failed.cookie() == dat::cookie(2)));
    CHECK(become_disconnected(link.passive));
    CHECK(become_disconnected(link.active));
    CHECK(std::ranges::equal(std::span(in.bytes).subspan(r.limit), std::span(before).subspan(r.limit)));
  }
}

TEST_CASE("max_message_size limits what its own side sends, and not what the peer does", "[dto]") {
  connected_pair link({.passive = {.max_message_size = 64}});
  buffer out(link.a.pz, 65);
  buffer in(link.b.pz, 65);
  CHECK(error_of(link.passive.post(dat::send{in.lmr})).type() == type::length_error);
  must(link.active.post(dat::recv{out.lmr}));
  must(link.passive.post(dat::send{in.slice(0, 64)}));
  CHECK(next<dat::recv_done>(link.a.evd).bytes() == 64);
  (void)next<dat::send_done>(link.b.evd);
  // A write needs no receive, so its length is limited by the side that posts it.
  must(link.active.post(dat::rdma_write{out.lmr, in.remote()}));
  CHECK(next<dat::rdma_write_done>(link.a.evd).bytes() == 65);
}

TEST_CASE("endpoint attributes that the device cannot provide are refused",
          "[dto][EP-013][EP-014][EP-001][EP-021][IA-106]") {
  side a(0);
  const auto before = resources::now();
  const auto refused = [&](const dat::ep_attributes& attributes) {
    CHECK(error_of(a.pz.create_ep<dat::rc>(a.evd, attributes)) == dat::error(type::invalid_parameter, subtype::arg7));
  };
  refused({.max_recv_dtos = 0xffffffff});
  refused({.max_request_dtos = 0xffffffff});
  refused({.max_recv_iov = 0}); // 0 is no default
  refused({.max_request_iov = 0});
  SHOWS("EPATTR-021");
  refused({.max_request_iov = 255});
  refused({.max_message_size = 0xffffffff});
  refused({.max_rdma_read_out = std::uint8_t{255}});
  refused({.retry_count = 7});
  refused({.rnr_retry_count = 8});
  refused({.request_completion = dat::completion_notification::solicited_wait});
  SHOWS("EPATTR-007");
  CHECK(error_of(a.pz.create_ep<dat::rc>(a.evd, {.max_inline = 1u << 30})).type() != type::success);
  // The adapter's reported limits can be used, and one more is refused before the device is called.
  const auto most = must(a.ia.query());
  const dat::ep_attributes largest{.max_request_iov = most.max_iov_segments_per_dto,
                                   .max_recv_iov = most.max_iov_segments_per_dto,
                                   .max_message_size = static_cast<std::uint32_t>(most.max_message_size),
                                   .max_rdma_read_out = static_cast<std::uint8_t>(most.max_rdma_read_per_ep_out),
                                   .max_rdma_read_in = static_cast<std::uint8_t>(most.max_rdma_read_per_ep_in)};
  must(must(a.pz.create_ep<dat::rc>(a.evd, largest)).close());
  // The endpoint keeps the requested attributes that were granted.
  const dat::ep_attributes given{.max_message_size = 1000,
                                 .max_rdma_read_out = std::uint8_t{3},
                                 .max_rdma_read_in = std::uint8_t{5},
                                 .retry_count = 3,
                                 .rnr_retry_count = 2,
                                 .ack_timeout = 5ms,
                                 .min_rnr_timer = 30us,
                                 .accept_timeout = 700ms,
                                 .keep_alive = 90ms,
                                 .recv_completion = dat::completion_notification::selective,
                                 .request_completion = dat::completion_notification::selective,
                                 .soft_high_watermark = 8,
                                 .hard_high_watermark = 9,
                                 .comm = {AF_INET, SOCK_STREAM, 0},
                                 .qos = dat::qos::economy()};
  {
    constexpr auto set_aside = dat::stream::dto | dat::stream::software;
    const auto receives = must(a.ia.create_evd<set_aside>(1024));
    const auto requests = must(a.ia.create_evd<set_aside>(1024));
    const auto exact = must(a.pz.create_ep<dat::rc>({.recv = receives, .request = requests, .connect = a.evd}, given));
    const auto kept = must(exact.query()).attributes;
    CHECK(kept.max_message_size == given.max_message_size);
    CHECK((kept.max_rdma_read_out == given.max_rdma_read_out && kept.max_rdma_read_in == given.max_rdma_read_in));
    CHECK((kept.retry_count == given.retry_count && kept.rnr_retry_count == given.rnr_retry_count));
    CHECK((kept.ack_timeout == given.ack_timeout && kept.min_rnr_timer == given.min_rnr_timer));
    CHECK((kept.accept_timeout == given.accept_timeout && kept.keep_alive == given.keep_alive));
    CHECK((kept.soft_high_watermark == given.soft_high_watermark &&
           kept.hard_high_watermark == given.hard_high_watermark));
    CHECK(kept.recv_completion == given.recv_completion);
    CHECK(kept.request_completion == given.request_completion);
    CHECK((kept.comm == given.comm && kept.qos == given.qos));
  }
  const auto one_more = [&](auto change) {
    auto more = largest;
    change(more);
    refused(more);
    CHECK(error_of(a.pz.create_ep<dat::rc>(a.evd, more)).verb().empty());
  };
  one_more([&](auto& e) { e.max_request_dtos = most.max_dto_per_ep + 1; });
  one_more([&](auto& e) { e.max_recv_dtos = most.max_dto_per_ep + 1; });
  one_more([](auto& e) { ++e.max_request_iov; });
  one_more([](auto& e) { ++e.max_recv_iov; });
  one_more([](auto& e) { ++*e.max_message_size; });
  one_more([](auto& e) { ++*e.max_rdma_read_out; });
  one_more([](auto& e) { ++*e.max_rdma_read_in; });
  CHECK(resources::no_more_than(before));
}

TEST_CASE("an attribute of 0 is no default: sides that only receive or only send, and empty messages", "[dto]") {
  connected_pair link({.active = {.max_recv_dtos = 0, .max_message_size = 0}, .passive = {.max_request_dtos = 0}});
  CHECK(must(link.active.query()).attributes.max_recv_dtos == 0);
  CHECK(must(link.active.query()).attributes.max_message_size == 0u);
  CHECK(must(link.passive.query()).attributes.max_request_dtos == 0);
  buffer out(link.a.pz, 16);
  CHECK(error_of(link.active.post(dat::recv{})).type() == type::insufficient_resources);
  CHECK(error_of(link.passive.post(dat::send{})).type() == type::insufficient_resources);
  CHECK(error_of(link.active.post(dat::send{out.slice(0, 1)})).type() == type::length_error);
  for (int i = 0; i < 3; ++i) {
    must(link.passive.post(dat::recv{}.cookie(i)));
    must(link.active.post(dat::send{}));
    CHECK(next<dat::recv_done>(link.b.evd).cookie() == dat::cookie(i));
    (void)next<dat::send_done>(link.a.evd);
  }
  SHOWS("EPATTR-021");
  { // Neither a request is repeated, nor is there a read in either direction.
    const dat::ep_attributes none{.max_rdma_read_out = std::uint8_t{0},
                                  .max_rdma_read_in = std::uint8_t{0},
                                  .retry_count = 0,
                                  .rnr_retry_count = 0};
    auto without = link.a.make_ep(none);
    auto usual = link.b.make_ep();
    link.connect(without, usual);
    const auto kept = must(without.query()).attributes;
    CHECK((kept.max_rdma_read_out == std::uint8_t{0} && kept.max_rdma_read_in == std::uint8_t{0}));
    CHECK((kept.retry_count == 0 && kept.rnr_retry_count == 0));
    if (this_device().name == "rxe") { // siw reports none of these
      ibv_qp_attr attr{};
      ibv_qp_init_attr init{};
      constexpr int mask = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MAX_QP_RD_ATOMIC;
      REQUIRE(ibv_query_qp(without.native_handle(), &attr, mask, &init) == 0);
      CHECK((attr.retry_cnt == 0 && attr.rnr_retry == 0));
      CHECK((attr.max_dest_rd_atomic == 0 && attr.max_rd_atomic == 0));
      SHOWS("EPATTR-021");
    }
    link.disconnect(without, usual);
  }
  // Either side can end the connection and begin another.
  for (endpoint* ep : {&link.active, &link.passive}) {
    must(ep->disconnect(dat::close_mode::graceful));
    (void)next<dat::disconnected>(link.a.evd);
    (void)next<dat::disconnected>(link.b.evd);
    must(link.active.reset());
    must(link.passive.reset());
    link.connect(link.active, link.passive);
  }
}

TEST_CASE("RDMA reads beyond the limit of the connection wait for their turn",
          "[dto][CONN-065][CONN-067][CR-042][DTO-019][DTO-134][EPATTR-015]"
          "[REQ-105]") {
  if (!this_device().infiniband) SKIP("siw reports the limits of its endpoints exchanged");
  const std::uint8_t out = GENERATE(std::uint8_t{1}, std::uint8_t{3}, std::uint8_t{16});
  const std::uint8_t in = GENERATE(std::uint8_t{1}, std::uint8_t{4});
  connected_pair link({.active = {.max_rdma_read_out = out, .max_rdma_read_in = in},
                       .passive = {.max_rdma_read_out = out, .max_rdma_read_in = in}});
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  REQUIRE(ibv_query_qp(link.active.native_handle(), &attr, IBV_QP_MAX_QP_RD_ATOMIC, &init) == 0);
  CHECK(attr.max_rd_atomic <= std::min(out, in));
  CHECK(attr.max_rd_atomic >= 1);
  CHECK(must(link.active.query()).attributes.max_rdma_read_out == out);
  SHOWS("EPATTR-014");
  CHECK(must(link.passive.query()).attributes.max_rdma_read_in == in);
  SHOWS("EPATTR-013", "EP-012"); // also if the device has another number for this attribute

  buffer mine(link.a.pz, 16 * 1024);
  buffer theirs(link.b.pz, 16 * 1024);
  fill(theirs.bytes, 3);
  buffer inbox(link.b.pz, 8);
  must(link.passive.post(dat::recv{inbox.lmr}));
  for (std::size_t i = 0; i < 16; ++i)
    must(link.active.post(dat::rdma_read{mine.slice(i * 1024, 1024), theirs.remote(i * 1024, 1024)}.cookie(i)));
  // The send behind the reads stalls until all reads have begun. Then as many reads as the limit may be outstanding,
  // and the read before them has its data.
  const std::size_t complete = 15u - attr.max_rd_atomic;
  must(link.active.post(dat::send{mine.slice(complete * 1024, 8)}));
  for (std::size_t i = 0; i < 16; ++i) CHECK(next<dat::rdma_read_done>(link.a.evd).cookie() == dat::cookie(i));
  (void)next<dat::send_done>(link.a.evd);
  (void)next<dat::recv_done>(link.b.evd);
  CHECK(has_pattern(mine.bytes, 3));
  CHECK(std::ranges::equal(inbox.bytes, theirs.part(complete * 1024, 8)));
  // The side that has accepted keeps the limit of its peer as well.
  REQUIRE(ibv_query_qp(link.passive.native_handle(), &attr, IBV_QP_MAX_QP_RD_ATOMIC, &init) == 0);
  CHECK((attr.max_rd_atomic >= 1 && attr.max_rd_atomic <= std::min(out, in)));
  CHECK(must(link.passive.query()).attributes.max_rdma_read_out == out);
  must(link.passive.post(dat::rdma_read{theirs.slice(0, 1024), mine.remote(0, 1024)}));
  (void)next<dat::rdma_read_done>(link.b.evd);
}

TEST_CASE("RDMA reads are refused when one side allows none", "[dto][CR-044][EP-021]") {
  const bool at_peer = GENERATE(false, true);
  const bool passive_reads = GENERATE(false, true);
  if ((at_peer || passive_reads) && !this_device().infiniband) SKIP("iWARP does not report the limit of the peer");
  pair_options options;
  auto& reading = passive_reads ? options.passive : options.active;
  auto& read = passive_reads ? options.active : options.passive;
  (at_peer ? read.max_rdma_read_in : reading.max_rdma_read_out) = std::uint8_t{0};
  connected_pair link(options);
  side& here = passive_reads ? link.b : link.a;
  side& there = passive_reads ? link.a : link.b;
  endpoint& reader = passive_reads ? link.passive : link.active;
  endpoint& other = passive_reads ? link.active : link.passive;
  buffer mine(here.pz, 16);
  buffer theirs(there.pz, 16);
  const auto e = error_of(reader.post(dat::rdma_read{mine.lmr, theirs.remote()}));
  CHECK(e.type() == type::invalid_parameter);
  CHECK_THAT(e.message(), support::contains_text("max_rdma_read_in"));
  DEVIATES("DTO-132");
  still_works(link);
  SHOWS("EPS-018"); // the other side has the default
  // Writes, and reads in the other direction, still work.
  must(reader.post(dat::rdma_write{mine.lmr, theirs.remote()}));
  (void)next<dat::rdma_write_done>(here.evd);
  must(other.post(dat::rdma_read{theirs.lmr, mine.remote()}));
  (void)next<dat::rdma_read_done>(there.evd);
}

} // namespace device
