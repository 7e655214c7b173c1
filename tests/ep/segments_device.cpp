// Data transfer on a device: every operation, every size, lists of segments.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <dat/ep_params.hpp>

#include <algorithm>
#include <cstring>
#include <random>

namespace device { namespace segment_tests {
namespace {

constexpr std::size_t mebi = 1024 * 1024;

/// A connection with completions-only evds for its completions.
struct lean_pair {
  using completions = dat::evd<dat::stream::dto>;
  using events = dat::evd<dat::stream::connection | dat::stream::connection_requests>;
  struct half {
    dat::ia ia;
    dat::pz pz;
    completions requests;
    completions receives;
    events others;
    endpoint ep;
    explicit half(std::size_t which, const dat::ep_attributes& attributes = {})
        : ia(must(dat::ia::open(addresses().at(which)))),
          pz(must(ia.create_pz())),
          requests(must(ia.create_evd<dat::stream::dto>(256))),
          receives(must(ia.create_evd<dat::stream::dto>(256))),
          others(must(ia.create_evd<dat::stream::connection | dat::stream::connection_requests>(16))),
          ep(must(pz.create_ep<dat::rc>({.recv = receives, .request = requests, .connect = others}, attributes))) {}
  };
  half a{0};
  half b{1};

  lean_pair() {
    const auto port = next_port();
    const auto psp = must(b.ia.create_psp(port, b.others));
    must(a.ep.connect(b.ia.address(), port, patience));
    must(must(b.others.wait_for<dat::connection_request>(patience)).accept(b.ep));
    must(a.others.wait_for<dat::established>(patience));
    must(b.others.wait_for<dat::established>(patience));
  }
  endpoint& from() { return a.ep; }
  endpoint& to() { return b.ep; }
  completions& sends() { return a.requests; }
  completions& receives() { return b.receives; }
  void no_more() {
    CHECK(is_empty(a.requests));
    CHECK(is_empty(a.receives));
    CHECK(is_empty(a.others));
    CHECK(is_empty(b.requests));
    CHECK(is_empty(b.receives));
    CHECK(is_empty(b.others));
  }
};

struct merged_pair : connected_pair {
  using connected_pair::connected_pair;
  endpoint& from() { return active; }
  endpoint& to() { return passive; }
  queue& sends() { return a.evd; }
  queue& receives() { return b.evd; }
  void no_more() {
    CHECK(is_empty(a.evd));
    CHECK(is_empty(b.evd));
  }
};

/// Cuts `whole` into `count` pieces at random places; pieces may be empty.
template <std::size_t N, class Segment>
auto cut(const Segment& whole, std::size_t count, std::mt19937& random) {
  dat::iov<N, Segment::rights> list;
  std::vector<std::size_t> cuts{0, whole.size()};
  for (std::size_t i = 1; i < count; ++i)
    cuts.push_back(std::uniform_int_distribution<std::size_t>(0, whole.size())(random));
  std::sort(cuts.begin(), cuts.end());
  for (std::size_t i = 0; i < count; ++i)
    if (!list.push_back(must(whole.slice(cuts[i], cuts[i + 1] - cuts[i])))) fail("list full", place::here());
  return list;
}

constexpr std::size_t sizes_of_all[] = {0, 1, 1023, 1024, 1025, 65536, mebi};
constexpr std::size_t few_segments[] = {1, 2, 3, 4};

/// Pieces for up to N segments.
template <std::size_t N = 4, class Link>
void every_operation(Link& link, std::span<const std::size_t> sizes = sizes_of_all,
                     std::span<const std::size_t> counts = few_segments) {
  INFO("DAT_TEST_SEED=" << random_seed());
  std::mt19937 random(random_seed());
  const std::size_t room = sizes.back() + 256;
  buffer out(link.a.pz, room);
  buffer in(link.b.pz, room);
  buffer back(link.a.pz, room);
  fill(out.bytes, 1);
  constexpr std::byte canary{0xc5};
  for (const std::size_t size : sizes)
    for (const std::size_t segments : counts) {
      if (size == mebi && segments % 3 != 1) continue; // large messages are slow, and are cut like small ones
      INFO(size << " bytes, " << segments << " segments");
      // Random alignment, with bytes before and behind that must not change.
      const std::size_t source = random() % 64;
      const std::size_t sink = 8 + random() % 64;
      const auto expected = std::span<const std::byte>(out.bytes).subspan(source, size);
      const auto pieces = [&] { return cut<N>(out.slice(source, size), segments, random); };
      const auto arrived = [&](buffer& where) {
        CHECK(std::memcmp(where.bytes.data() + sink, expected.data(), size) == 0);
        CHECK(where.bytes[sink - 1] == canary);
        CHECK(where.bytes[sink + size] == canary);
        std::fill(where.bytes.begin(), where.bytes.begin() + std::ptrdiff_t(sink + size + 64), canary);
      };
      std::fill(in.bytes.begin(), in.bytes.end(), canary);
      std::fill(back.bytes.begin(), back.bytes.end(), canary);

      // send; the receive is larger than the message
      must(link.to().post(dat::recv{cut<N>(in.slice(sink, size + 32), segments, random)}.cookie(1)));
      must(link.from().post(dat::send{pieces()}.cookie(2)));
      const auto sent = next<dat::send_done>(link.sends());
      CHECK(sent.cookie() == dat::cookie(2));
      CHECK(sent.bytes() == size);
      CHECK(sent.ep() == link.from());
      SHOWS("DTO-094", "DTO-049", "COMP-051", "COMP-068");
      const auto received = next<dat::recv_done>(link.receives());
      CHECK(received.cookie() == dat::cookie(1));
      CHECK(received.bytes() == size);
      CHECK(received.ep() == link.to());
      SHOWS("DTO-048", "DTO-049", "DTO-114", "COMP-069");
      arrived(in);
      SHOWS("DTO-001", "DTO-002", "DTO-004", "DTO-010", "DTO-015", "DTO-094", "DTO-109", "REQ-085", "REQ-098",
            "MODEL-011", "MODEL-022", "MODEL-041", "MODEL-004");

      // send with immediate data
      must(link.to().post(dat::recv{cut<N>(in.slice(sink, size), segments, random)}.cookie(3)));
      must(link.from().post(dat::send{pieces()}.immediate(0x01020304).cookie(4)));
      const auto told = next<dat::send_done>(link.sends());
      CHECK(told.cookie() == dat::cookie(4));
      CHECK(told.bytes() == size);
      SHOWS("DTO-036", "DTO-049");
      const auto with = next<dat::ib::recv_immediate_done>(link.receives());
      CHECK(with.immediate() == 0x01020304);
      SHOWS("IBX-005", "IBX-014", "IBX-018", "IBX-032");
      CHECK(with.bytes() == size);
      CHECK(with.cookie() == dat::cookie(3));
      SHOWS("IBX-019", "COMP-071");
      arrived(in);

      // RDMA write: uses no receive, and leads to no event at the peer
      must(link.to().post(dat::recv{}.cookie(5)));
      must(link.from().post(dat::rdma_write{pieces(), in.remote(sink, size)}.cookie(6)));
      const auto written = next<dat::rdma_write_done>(link.sends());
      CHECK(written.cookie() == dat::cookie(6));
      CHECK(written.bytes() == size);
      CHECK(written.ep() == link.from());
      SHOWS("DTO-036", "DTO-049", "DTO-156", "COMP-010", "REQ-099", "REQ-133", "MODEL-008");
      arrived(in);
      SHOWS("DTO-008", "DTO-015", "DTO-148", "MODEL-046");

      // RDMA write with immediate data: uses the receive from above, whose empty buffer stays unchanged
      must(link.from().post(dat::rdma_write{pieces(), in.remote(sink, size)}.immediate(0xfffefdfc).cookie(7)));
      const auto announced = next<dat::ib::recv_write_immediate_done>(link.receives());
      CHECK(announced.immediate() == 0xfffefdfc);
      SHOWS("IBX-014", "IBX-017", "IBX-018", "IBX-019", "EXT05-007", "DOCA-028");
      CHECK(announced.bytes() == size);
      SHOWS("IBX-029", "IBX-026");
      CHECK(announced.cookie() == dat::cookie(5));
      SHOWS("DTO-150", "IBX-020", "IBX-030", "COMP-073");
      arrived(in);
      SHOWS("IBX-022", "IBX-017", "EXT05-007");
      const auto written_too = next<dat::ib::rdma_write_immediate_done>(link.sends());
      CHECK(written_too.cookie() == dat::cookie(7));
      CHECK(written_too.bytes() == size);
      SHOWS("IBX-025", "IBX-028");

      // RDMA read
      std::copy(expected.begin(), expected.end(), in.bytes.begin());
      must(link.from().post(
          dat::rdma_read{cut<N>(back.slice(sink, size), segments, random), in.remote(0, size)}.cookie(8)));
      const auto read = next<dat::rdma_read_done>(link.sends());
      CHECK(read.cookie() == dat::cookie(8));
      CHECK(read.bytes() == size);
      CHECK(read.ep() == link.from());
      SHOWS("DTO-048");
      SHOWS("DTO-036", "DTO-049", "DTO-131", "COMP-010", "COMP-069", "REQ-099", "REQ-133", "MODEL-008", "REQ-136");
      arrived(back);
      SHOWS("MODEL-046", "DTO-128", "MODEL-040", "REQ-106", "COMP-001", "COMP-046", "DTO-004", "DTO-008", "DTO-015");
    }
  // Keeps the memory registered: on a busy machine a completed read may be requested again, and rxe ends the connection
  // if the memory is no longer registered.
  link.no_more();
  SHOWS("REQ-131"); // each event has arrived once, and at one evd
}

/// Sends, writes and reads, for devices without immediate data.
template <class Link>
void plain_operations(Link& link) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{1025}, mebi}) {
    INFO(size << " bytes");
    buffer out(link.a.pz, size + 8);
    buffer in(link.b.pz, size + 8);
    const auto piece = out.slice(4, size);
    fill(out.part(4, size), 1);
    must(link.to().post(dat::recv{in.slice(4, size)}.cookie(1)));
    must(link.from().post(dat::send{piece}.cookie(2)));
    const auto sent = next<dat::send_done>(link.sends());
    CHECK((sent.cookie() == dat::cookie(2) && sent.bytes() == size));
    const auto received = next<dat::recv_done>(link.receives());
    CHECK((received.cookie() == dat::cookie(1) && received.bytes() == size));
    CHECK(has_pattern(in.part(4, size), 1));
    fill(out.part(4, size), 2);
    must(link.from().post(dat::rdma_write{piece, in.remote(4, size)}.cookie(3)));
    CHECK(next<dat::rdma_write_done>(link.sends()).cookie() == dat::cookie(3));
    CHECK(has_pattern(in.part(4, size), 2));
    fill(in.part(4, size), 3);
    must(link.from().post(dat::rdma_read{piece, in.remote(4, size)}.cookie(4)));
    CHECK(next<dat::rdma_read_done>(link.sends()).bytes() == size);
    CHECK(has_pattern(out.part(4, size), 3));
    CHECK((in.bytes.front() == std::byte{} && in.bytes.back() == std::byte{}));
  }
  link.no_more();
}

} // namespace

TEST_CASE("every operation moves every size in any number of segments, on one evd for everything",
          "[dto][EVENT-001][EVENT-002][EP-007]") {
  merged_pair link;
  if (!has(feature::immediate_data)) plain_operations(link);
  NEEDS_FEATURE(immediate_data);
  every_operation(link); // with default attributes

  // Operations without a segment.
  must(link.passive.post(dat::recv{}.cookie(1)));
  must(link.active.post(dat::send{}.cookie(2)));
  const auto empty = next<dat::recv_done>(link.b.evd);
  CHECK((empty.bytes() == 0 && empty.cookie() == dat::cookie(1)));
  SHOWS("EP-010");
  SHOWS("DTO-095", "DTO-110");
  CHECK(next<dat::send_done>(link.a.evd).cookie() == dat::cookie(2));

  // A write takes the flags of every request except the flag for receives. The first write has no completion.
  buffer from(link.a.pz, 8);
  buffer into(link.b.pz, 8);
  fill(from.bytes, 3);
  must(link.active.post(dat::rdma_write{from.slice(0, 4), into.remote(0, 4)}.suppress_completion().cookie(3)));
  must(link.active.post(dat::rdma_write{from.slice(4, 4), into.remote(4, 4)}.fence().cookie(4)));
  CHECK(next<dat::rdma_write_done>(link.a.evd).cookie() == dat::cookie(4));
  CHECK(has_pattern(into.bytes, 3));
  SHOWS("DTO-152");
  link.no_more();
}

TEST_CASE("every operation moves every size in any number of segments, on completions-only evds",
          "[dto][EP-004][EP-005][EP-006][EVENT-001][EVENT-038][EVD-010][REQ-090][REQ-164]") {
  lean_pair link;
  if (!has(feature::immediate_data)) plain_operations(link);
  NEEDS_FEATURE(immediate_data);
  every_operation(link);
  // Operations that are posted after the end are flushed at once, each to the evd of its queue.
  must(link.a.ep.disconnect());
  (void)next<dat::disconnected>(link.a.others);
  must(link.a.ep.post(dat::recv{}.cookie(11)));
  must(link.a.ep.post(dat::send{}.cookie(12)));
  const auto receive = next<dat::dto_failure>(link.a.receives);
  CHECK((receive.status() == dat::dto_status::flushed && receive.cookie() == dat::cookie(11)));
  const auto request = next<dat::dto_failure>(link.a.requests);
  CHECK((request.status() == dat::dto_status::flushed && request.cookie() == dat::cookie(12)));
  CHECK((is_empty(link.a.receives) && is_empty(link.a.requests) && is_empty(link.a.others)));
  SHOWS("DTO-070", "DTO-121", "EVENT-008");
}

TEST_CASE("every operation moves messages of any size in up to the adapter's number of segments",
          "[dto][DTO-002][DTO-012][DTO-081][DTO-094][DTO-128][DTO-148][EP-011][EPATTR-011]") {
  constexpr std::size_t room = 256;
  const std::size_t n = must(must(dat::ia::open(addresses()[0])).query()).max_iov_segments_per_dto;
  REQUIRE((n > 4 && n <= room));
  const dat::ep_attributes wide{.max_request_iov = static_cast<std::uint32_t>(n),
                                .max_recv_iov = static_cast<std::uint32_t>(n),
                                .ack_timeout = 20s};
  merged_pair link({.active = wide, .passive = wide});
  if (!has(feature::immediate_data)) plain_operations(link);
  NEEDS_FEATURE(immediate_data);
  every_operation<room>(link, std::array<std::size_t, 4>{1, 1025, 65537, 8 * mebi}, std::array<std::size_t, 1>{n});
}

TEST_CASE("a receive fills its segments in order, the last one used only in part", "[dto][DTO-003][DTO-013][REQ-094]") {
  connected_pair link;
  buffer out(link.a.pz, 50);
  buffer in(link.b.pz, 192);
  fill(out.bytes, 1);
  must(link.passive.post(dat::recv{dat::iov{in.slice(128, 64), in.slice(0, 64), in.slice(64, 64)}}));
  // The list has the same segment twice: segments that are read may overlap.
  must(link.active.post(dat::send{dat::iov{out.lmr, out.slice(0, 50)}}));
  CHECK(next<dat::recv_done>(link.b.evd).bytes() == 100);
  std::vector<std::byte> message(out.bytes);
  message.insert(message.end(), out.bytes.begin(), out.bytes.end());
  CHECK(std::equal(message.begin(), message.begin() + 64, in.bytes.begin() + 128));
  CHECK(std::equal(message.begin() + 64, message.end(), in.bytes.begin()));
  CHECK(std::all_of(in.bytes.begin() + 36, in.bytes.begin() + 128, [](std::byte b) { return b == std::byte{0}; }));
}

TEST_CASE("segments that are sent may overlap", "[dto][REQ-102][DTO-013]") {
  connected_pair link;
  buffer out(link.a.pz, 300);
  buffer in(link.b.pz, 600);
  fill(out.bytes, 12);
  const dat::iov overlapping{out.slice(0, 200), out.slice(100, 200), out.slice(0, 200)};
  const auto arrived = [&] {
    CHECK(std::memcmp(in.bytes.data(), out.bytes.data(), 200) == 0);
    CHECK(std::memcmp(in.bytes.data() + 200, out.bytes.data() + 100, 200) == 0);
    CHECK(std::memcmp(in.bytes.data() + 400, out.bytes.data(), 200) == 0);
    std::fill(in.bytes.begin(), in.bytes.end(), std::byte{});
  };
  must(link.passive.post(dat::recv{in.lmr}));
  must(link.active.post(dat::send{overlapping}));
  (void)next<dat::recv_done>(link.b.evd);
  arrived();
  (void)next<dat::send_done>(link.a.evd);
  must(link.active.post(dat::rdma_write{overlapping, in.remote()}));
  (void)next<dat::rdma_write_done>(link.a.evd);
  still_works(link);
  arrived();
}

}} // namespace device::segment_tests
