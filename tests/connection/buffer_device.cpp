// Buffers on a device: the data sections of chains, to which receives and writes append.
// SPDX-License-Identifier: BSL-1.0
#include "descriptor_text.hpp"
#include "device_table.hpp"
#include "support.hpp"

#include <dat/buffer.hpp>
#include <dat/ep_params.hpp>
#include <dat/ud.hpp>

#include <algorithm>

namespace device {
namespace {

constexpr auto job_rights = decltype(all_rights)::value;
template <std::size_t N>
using chain = dat::buffer<N, job_rights>;

/// A chain of N buffers of 16 bytes.
template <std::size_t N>
chain<N> pieces_of(const buffer& b, std::size_t data_in_first = 0) {
  chain<N> c;
  for (std::size_t i = 0; i < N; ++i)
    if (!c.push_back(b.slice(16 * i, 16), i == 0 ? data_in_first : 0)) throw failure("no room in the chain");
  return c;
}

template <class E>
constexpr bool has_immediate = requires(const E& e) {
  e.immediate();
};
template <class E>
constexpr bool names_its_sender = requires(const E& e) {
  e.source_qp_number();
};
template <class Job>
constexpr bool takes_immediate = requires(Job& job) {
  job.immediate(1);
};

} // namespace

TEST_CASE("receives append to the data sections of a chain, and sends transmit these sections",
          "[descriptor][DOCA-001][DOCA-009][DOCA-010][DOCA-012][DOCA-014][DOCA-016][DOCA-028]") {
  connected_pair link;
  buffer out(link.a.pz, 64);
  buffer in(link.b.pz, 64);
  fill(out.bytes, 1);
  fill(in.bytes, 2);
  auto inbox = pieces_of<3>(in, 10);
  CHECK(inbox.data_size() == 10);
  CHECK(inbox.room_size() == 38);
  CHECK_FALSE(inbox.push_back(in.slice(48, 16)));
  auto text = pieces_of<2>(out);
  REQUIRE(text.append(20)); // 16 bytes and 4 bytes
  must(link.passive.post(dat::recv{inbox.room()}.cookie(0xfedcba9876543210)));
  must(link.active.post(dat::send{text.data()}.cookie(5)));
  CHECK(next<dat::send_done>(link.a.evd).cookie() == dat::cookie(5));
  const auto got = next<dat::recv_done>(link.b.evd);
  CHECK(got.cookie() == dat::cookie(0xfedcba9876543210)); // the consumer's data is unchanged
  CHECK(got.bytes() == 20);
  // The peer is the one of the connection. Its address is reported with datagrams only.
  CHECK(got.ep() == link.passive);
  STATIC_REQUIRE_FALSE(names_its_sender<dat::recv_done>);
  STATIC_REQUIRE(names_its_sender<dat::ib::datagram_recv_done>);
  SHOWS("DOCA-007");
  // The receive of a plain send has no immediate data, and neither has a failed one.
  STATIC_REQUIRE_FALSE(has_immediate<dat::recv_done>);
  STATIC_REQUIRE_FALSE(has_immediate<dat::dto_failure>);
  REQUIRE(inbox.append(got.bytes()));
  CHECK(inbox.data_size(0) == 16);
  CHECK(inbox.data_size(1) == 14);
  CHECK(inbox.data_size(2) == 0);
  CHECK(first_difference(in.part(0, 10), 2) == 10); // the earlier data is kept
  for (std::size_t i = 0; i < 20; ++i)
    if (in.bytes[10 + i] != out.bytes[i]) FAIL("byte " << i);
  CHECK_FALSE(inbox.append(19));
  CHECK(inbox.data_size() == 30); // unchanged
  NEEDS_FEATURE(immediate_data);
  // Immediate data in a byte order that both sides agree on, with and without a message.
  must(link.passive.post(dat::recv{inbox.room()}, dat::recv{}));
  must(link.active.post(dat::send{}.immediate(__builtin_bswap32(0x01020304)), dat::send{}.immediate(0)));
  (void)next<dat::send_done>(link.a.evd);
  (void)next<dat::send_done>(link.a.evd);
  const auto with = next<dat::ib::recv_immediate_done>(link.b.evd);
  CHECK(__builtin_bswap32(with.immediate()) == 0x01020304);
  CHECK(with.bytes() == 0);
  CHECK(next<dat::ib::recv_immediate_done>(link.b.evd).immediate() == 0);
  SHOWS("DOCA-004");
  inbox.clear();
  CHECK(inbox.data().empty());
  // A chain with more buffers than the endpoint's limit.
  buffer long_one(link.b.pz, 16 * 5);
  CHECK(error_of(link.passive.post(dat::recv{pieces_of<5>(long_one).room()})).type() == type::invalid_parameter);
  must(link.passive.post(dat::recv{pieces_of<4>(long_one).room()})); // as many buffers as the limit allows
  // A job needs an endpoint.
  endpoint none;
  CHECK(error_of(none.post(dat::send{text.data()})) == dat::error(type::invalid_handle, subtype::handle_ep));
}

TEST_CASE("writes append at the peer and reads append here, up to the available room and data",
          "[descriptor][DOCA-004][DOCA-017][DOCA-018][DOCA-019][DOCA-020][DOCA-021][DOCA-023][DOCA-006]") {
  connected_pair link;
  buffer out(link.a.pz, 128);
  buffer in(link.b.pz, 100);
  fill(out.bytes, 3);
  dat::remote_buffer<job_rights> remote(in.remote());
  chain<1> mine(out.slice(0, 64), 40);
  for (int i = 0; i < 2; ++i) {
    must(link.active.post(dat::rdma_write{mine.data(), remote.room()}));
    CHECK(next<dat::rdma_write_done>(link.a.evd).bytes() == 40);
    REQUIRE(remote.append(mine.data_size()));
  }
  CHECK(remote.data_size() == 80);
  CHECK(has_pattern(in.part(0, 40), 3));
  CHECK(has_pattern(in.part(40, 40), 3));
  CHECK(std::ranges::count(in.part(80, 20), std::byte{}) == 20); // no further byte was written
  // The peer has room for 20 of 40 bytes: this side refuses the write.
  CHECK(error_of(link.active.post(dat::rdma_write{mine.data(), remote.room()})).type() == type::length_error);
  CHECK_FALSE(remote.append(40));
  CHECK(remote.data_size() == 80); // unchanged
  SHOWS("DOCA-013");
  NEEDS_FEATURE(immediate_data);
  // A write with immediate data uses a receive at the peer, and may be empty.
  must(link.passive.post(dat::recv{}));
  must(link.active.post(
      dat::rdma_write{chain<1>(out.slice(0, 8)).data(), remote.room()}.immediate(__builtin_bswap32(0x01020304))));
  (void)next<dat::ib::rdma_write_immediate_done>(link.a.evd);
  const auto told = next<dat::ib::recv_write_immediate_done>(link.b.evd);
  CHECK(told.immediate() == 0x04030201); // all 32 bits, in the order that both sides agree on
  CHECK(told.bytes() == 0);
  must(link.active.post(dat::rdma_write{chain<1>(out.slice(0, 8)).data(), remote.room()})); // has no immediate data
  (void)next<dat::rdma_write_done>(link.a.evd);
  CHECK(is_empty(link.b.evd));
  SHOWS("DOCA-022");
  // First the peer has 80 bytes and this side has room for 60. Then the peer has 80 bytes and this side has room for
  // 100.
  fill(in.bytes, 6);
  chain<1> small(out.slice(0, 64), 4);
  must(link.active.post(dat::rdma_read{small.room_for(remote), remote.data()}));
  const auto read = next<dat::rdma_read_done>(link.a.evd);
  CHECK(read.bytes() == 60);
  REQUIRE(small.append(read.bytes()));
  CHECK(small.data_size() == 64);
  CHECK(has_pattern(out.part(4, 60), 6));
  CHECK(first_difference(out.part(0, 4), 3) == 4); // the earlier data is kept
  STATIC_REQUIRE(takes_immediate<dat::rdma_write<1>>);
  STATIC_REQUIRE_FALSE(takes_immediate<dat::rdma_read<1>>);
  chain<1> large(out.slice(0, 100));
  const std::vector<std::byte> behind(out.bytes.begin() + 80, out.bytes.end());
  must(link.active.post(dat::rdma_read{large.room_for(remote), remote.data()}));
  CHECK(next<dat::rdma_read_done>(link.a.evd).bytes() == 80);
  CHECK(has_pattern(out.part(0, 80), 6));
  CHECK(std::equal(behind.begin(), behind.end(), out.bytes.begin() + 80));
  // The room is the sum of all pieces.
  const auto in_pieces = must(link.a.ia.query()).max_iov_segments_per_rdma_read > 1;
  for (const std::uint32_t piece : {in_pieces ? 50u : 100u, in_pieces ? 20u : 40u}) {
    std::ranges::fill(out.bytes, std::byte{});
    chain<2> two(out.slice(0, piece));
    if (in_pieces) REQUIRE(two.push_back(out.slice(piece, piece)));
    const std::uint32_t all = std::min(80u, in_pieces ? 2 * piece : piece);
    must(link.active.post(dat::rdma_read{two.room_for(remote), remote.data()}));
    CHECK(next<dat::rdma_read_done>(link.a.evd).bytes() == all);
    CHECK(has_pattern(out.part(0, all), 6));
    CHECK(std::ranges::count(out.part(all, 128 - all), std::byte{}) == 128 - all);
  }
  // An empty RDMA read.
  must(link.active.post(dat::rdma_read{chain<1>(out.slice(0, 0)).room(), remote.data()}));
  CHECK(next<dat::rdma_read_done>(link.a.evd).bytes() == 0);
  // Empty jobs without any buffer on either side.
  const dat::local_segment<std::byte, job_rights> here;
  const dat::remote_segment<std::byte, job_rights> there;
  must(link.passive.post(dat::recv{here}.cookie(1), dat::recv{here}.cookie(2), dat::recv{here}.cookie(3)));
  must(link.active.post(dat::send{here}.cookie(4), dat::send{here}.immediate(1).cookie(5)));
  must(link.active.post(dat::rdma_write{here, there}.cookie(6), dat::rdma_write{here, there}.immediate(2).cookie(7)));
  must(link.active.post(dat::rdma_read{here, there}.cookie(8)));
  const auto is = [](const auto& e, std::uint64_t cookie) {
    CHECK(e.bytes() == 0);
    CHECK(e.cookie() == dat::cookie(cookie));
  };
  is(next<dat::recv_done>(link.b.evd), 1);
  is(next<dat::ib::recv_immediate_done>(link.b.evd), 2);
  is(next<dat::ib::recv_write_immediate_done>(link.b.evd), 3);
  is(next<dat::send_done>(link.a.evd), 4);
  is(next<dat::send_done>(link.a.evd), 5);
  is(next<dat::rdma_write_done>(link.a.evd), 6);
  is(next<dat::ib::rdma_write_immediate_done>(link.a.evd), 7);
  is(next<dat::rdma_read_done>(link.a.evd), 8);
  SHOWS("DOCA-001");
}

TEST_CASE("data that does not fit is refused, or fails at the peer and changes nothing",
          "[descriptor][DOCA-005][DOCA-008][DOCA-011][DOCA-015]") {
  pair_options options;
  options.active.max_message_size = 48;
  options.active.rnr_retry_count = 1;
  // The passive side cannot end the connection before the active side has its completion.
  options.progress = dat::progress::manual;
  connected_pair link(options);
  options.progress = dat::progress::automatic;
  buffer out(link.a.pz, 64);
  buffer in(link.b.pz, 64);
  chain<1> text(out.slice(0, 64), 49);
  CHECK(error_of(link.active.post(dat::send{text.data()})).type() == type::length_error);
  text = chain<1>(out.slice(0, 64), 40);
  auto inbox = pieces_of<2>(in, 2); // room for 30 bytes
  must(link.passive.post(dat::recv{inbox.room()}));
  must(link.active.post(dat::send{text.data()}));
  if (!this_device().completes_at_peer)
    take_refused_send(link.a.evd);
  else
    CHECK(next<dat::dto_failure>(link.a.evd).status() == dat::dto_status::remote_responder);
  CHECK(link.at_b<dat::dto_failure>().status() == dat::dto_status::local_length);
  SHOWS("ERR-020"); // the failure of a receive that is too small, which its post cannot detect
  CHECK(inbox.data_size() == 2);
  CHECK(text.data_size() == 40);
  SHOWS("DOCA-013");

  NEEDS_FEATURE(immediate_data);
  // The peer has no receive, and each of these is retried once.
  for (const int job : {0, 1, 2}) {
    INFO(job);
    connected_pair other(options);
    buffer more(other.a.pz, 8);
    buffer there(other.b.pz, 8);
    if (job == 0) must(other.active.post(dat::send{more.lmr}));
    if (job == 1) must(other.active.post(dat::send{more.lmr}.immediate(1)));
    if (job == 2) must(other.active.post(dat::rdma_write{more.lmr, there.remote()}.immediate(1)));
    CHECK(next<dat::dto_failure>(other.a.evd).status() == dat::dto_status::receiver_not_ready);
    if (job == 2) SHOWS("DOCA-023");
  }
}

} // namespace device
