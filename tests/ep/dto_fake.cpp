// DTOs: the work request that each builder makes, and its effect at the peer.
// SPDX-License-Identifier: BSL-1.0
#include "refused_post.hpp"
#include "world.hpp"

#include <cstring>

using namespace unit;
using dat::dto_operation;
using dat::mem_priv;
using dat::return_type;

namespace {

constexpr auto local_all = mem_priv::local_read | mem_priv::local_write;

dat::local_segment<char, local_all> piece(std::uint64_t address, std::uint32_t length) {
  return dat::detail::segment_access::make<dat::local_segment<char, local_all>>(
      dat::detail::raw_segment{address, length, 0x55, {}});
}
dat::remote_segment<char, mem_priv::remote_read | mem_priv::remote_write> far(std::uint64_t address,
                                                                              std::uint64_t length) {
  return dat::detail::segment_access::make<dat::remote_segment<char, mem_priv::remote_read | mem_priv::remote_write>>(
      dat::detail::raw_remote{address, length, 0x99});
}

/// The work request of a DTO; members that it does not set are all ones.
template <class D>
ibv_send_wr built(const D& d) {
  ibv_send_wr wr;
  std::memset(&wr, 0xff, sizeof wr);
  dat::detail::request_access::of(d).fill(wr);
  wr.sg_list = dat::detail::request_access::of(d).data.list();
  wr.num_sge = static_cast<int>(dat::detail::request_access::of(d).data.count());
  return wr;
}
template <class D>
dto_operation operation(const D& d) {
  return dat::detail::request_access::of(d).operation();
}

} // namespace

TEST_CASE("a send becomes a signaled verbs send with the same segments", "[DTO-094][DTO-001]") {
  const dat::send one{piece(0x100, 10)};
  auto wr = built(one);
  CHECK(wr.opcode == IBV_WR_SEND);
  CHECK(wr.send_flags == IBV_SEND_SIGNALED);
  REQUIRE(wr.num_sge == 1);
  CHECK(wr.sg_list[0].addr == 0x100);
  CHECK(wr.sg_list[0].length == 10);
  CHECK(wr.sg_list[0].lkey == 0x55);
  CHECK(wr.imm_data == 0xffffffff); // the post neither reads nor writes this member
  CHECK(operation(one) == dto_operation::send);

  const dat::send two{dat::iov{piece(0x100, 10), piece(0x200, 20)}};
  wr = built(two);
  REQUIRE(wr.num_sge == 2);
  CHECK(wr.sg_list[1].addr == 0x200);

  wr = built(dat::send{});
  CHECK(wr.num_sge == 0);
  CHECK(wr.opcode == IBV_WR_SEND);
}

TEST_CASE("request flags become those of verbs, and chain in any order", "[dto]") {
  CHECK(built(dat::send{}.suppress_completion()).send_flags == 0);
  CHECK(built(dat::send{}.fence()).send_flags == (IBV_SEND_SIGNALED | IBV_SEND_FENCE));
  CHECK(built(dat::send{}.solicited()).send_flags == (IBV_SEND_SIGNALED | IBV_SEND_SOLICITED));
  CHECK(built(dat::send{}.inlined()).send_flags == (IBV_SEND_SIGNALED | IBV_SEND_INLINE));
  CHECK(built(dat::send{}.fence().solicited().suppress_completion().inlined().cookie(3)).send_flags ==
        (IBV_SEND_FENCE | IBV_SEND_SOLICITED | IBV_SEND_INLINE));
  SHOWS("DTO-042");
  auto kept = dat::send{piece(1, 1)};
  kept.fence();
  kept.cookie(9).solicited();
  CHECK(built(kept).send_flags == (IBV_SEND_SIGNALED | IBV_SEND_FENCE | IBV_SEND_SOLICITED));
  CHECK(dat::detail::request_access::of(kept).cookie.value() == 9);
  CHECK(built(dat::rdma_write{piece(1, 1), far(2, 1)}.suppress_completion().fence()).send_flags == IBV_SEND_FENCE);
  SHOWS("DTO-152");
  CHECK(built(dat::rdma_read{piece(1, 1), far(2, 1)}.fence()).send_flags == (IBV_SEND_SIGNALED | IBV_SEND_FENCE));
  CHECK(built(dat::rdma_read{piece(1, 1), far(2, 1)}.suppress_completion()).send_flags == 0);
  SHOWS("DTO-140", "REQ-092");
}

TEST_CASE("immediate data of sends and writes reaches verbs unchanged", "[IBX-018][IBX-014]") {
  const auto s = dat::send{piece(1, 1)}.immediate(0x01020304);
  CHECK(built(s).opcode == IBV_WR_SEND_WITH_IMM);
  CHECK(built(s).imm_data == 0x01020304);
  CHECK(operation(s) == dto_operation::send_immediate);
  const auto w = dat::rdma_write{piece(1, 1), far(2, 1)}.immediate(7).immediate(8);
  CHECK(built(w).opcode == IBV_WR_RDMA_WRITE_WITH_IMM);
  CHECK(built(w).imm_data == 8);
  CHECK(operation(w) == dto_operation::rdma_write_immediate);
}

TEST_CASE("an RDMA request carries the remote address and key", "[DTO-008][DTO-148][DTO-128]") {
  const dat::rdma_write w{piece(0x100, 10), far(0x7000, 64)};
  auto wr = built(w);
  CHECK(wr.opcode == IBV_WR_RDMA_WRITE);
  CHECK(wr.wr.rdma.remote_addr == 0x7000);
  CHECK(wr.wr.rdma.rkey == 0x99);
  const dat::rdma_read r{dat::iov{piece(0x100, 10), piece(0x200, 5)}, far(0x7000, 64)};
  wr = built(r);
  CHECK(wr.opcode == IBV_WR_RDMA_READ);
  CHECK(wr.num_sge == 2);
  CHECK(wr.wr.rdma.remote_addr == 0x7000);
}

TEST_CASE("each operation completes with its own event, cookie and length",
          "[DTO-048][DTO-049][DTO-046][COMP-010][EVENT-007]") {
  clean_world world;
  pair p;
  const auto target = p.b.mem.remote(1024, 1024).value();
  for (std::uint64_t i = 0; i < 4; ++i) must(p.b.ep.post(dat::recv{p.b.at(64 * i, 64)}.cookie(100 + i)));
  std::strcpy(p.a.memory.data(), "0123456789abcdef");
  std::strcpy(p.b.memory.data() + 1024, "remote");

  must(p.a.ep.post(dat::send{p.a.at(0, 5)}.cookie(1)));
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 6), target.slice(100, 50).value()}.cookie(2)));
  must(p.a.ep.post(dat::rdma_read{p.a.at(200, 7), target}.cookie(3)));
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), target.slice(200, 50).value()}.immediate(0xabcd).cookie(4)));
  must(p.a.ep.post(dat::send{p.a.at(0, 9)}.immediate(0x1234).cookie(5)));
  must(p.a.ep.post(dat::send{}.cookie(6)));

  CHECK(p.a.take() == events{"sent 1", "written 2", "read 3", "written immediate 4", "sent 5", "sent 6"});
  std::vector<std::size_t> bytes;
  std::vector<std::uint32_t> immediates;
  events got;
  p.b.evd.drain(dat::overloaded{[&](const dat::recv_done& r) { bytes.push_back(r.bytes()); },
                                [&](const dat::ib::recv_immediate_done& r) {
                                  bytes.push_back(r.bytes());
                                  immediates.push_back(r.immediate());
                                },
                                [&](const dat::ib::recv_write_immediate_done& r) {
                                  bytes.push_back(r.bytes());
                                  immediates.push_back(r.immediate());
                                  CHECK(r.ep() == p.b.ep);
                                },
                                [](const auto&) { FAIL("another event"); }});
  CHECK(bytes == std::vector<std::size_t>{5, 8, 9, 0});
  CHECK(immediates == std::vector<std::uint32_t>{0xabcd, 0x1234});
  CHECK(std::string(p.b.memory.data(), 5) == "01234");
  CHECK(std::string(p.b.memory.data() + 1124, 6) == "012345");
  CHECK(std::string(p.a.memory.data() + 200, 6) == "remote");
  CHECK(p.b.memory[64] == 0); // the receive of a write with immediate data keeps its buffer
}

TEST_CASE("a failure names the operation of requests with immediate data", "[DTO-048]") {
  clean_world world;
  pair p;
  fake::hold(p.a.ep.native_handle());
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}.immediate(1).cookie(4)));
  fake::complete(p.a.ep.native_handle(), {}, IBV_WC_REM_ACCESS_ERR);
  auto e = must(p.a.evd.dequeue());
  const auto& failure = std::get<dat::dto_failure>(e);
  CHECK(failure.operation() == dto_operation::rdma_write_immediate);
  CHECK(failure.status() == dat::dto_status::remote_access);
  CHECK(failure.verbs_status() == IBV_WC_REM_ACCESS_ERR);
  CHECK_THAT(failure.message(), support::contains_text("rdma_write"));
}

TEST_CASE("segments are sent and filled in the order of the list", "[DTO-002][DTO-003][DTO-109][DTO-013]") {
  clean_world world;
  pair p;
  std::strcpy(p.a.memory.data(), "abcdefgh");
  must(p.b.ep.post(dat::recv{dat::iov{p.b.at(10, 2), p.b.at(0, 3), p.b.at(100, 20)}}));
  must(p.a.ep.post(dat::send{dat::iov{p.a.at(4, 4), p.a.at(0, 4), p.a.at(4, 1)}})); // efghabcde
  CHECK(std::string(p.b.memory.data() + 10, 2) == "ef");
  CHECK(std::string(p.b.memory.data(), 3) == "gha");
  CHECK(std::string(p.b.memory.data() + 100, 5) == "bcde" + std::string(1, '\0'));
}

TEST_CASE("an inlined message is copied during the post", "[DTO-092]") {
  clean_world world;
  pair p({.max_inline = 32});
  fake::hold(p.a.ep.native_handle());
  must(p.b.ep.post(dat::recv{p.b.at(0, 64)}));
  std::strcpy(p.a.memory.data(), "before");
  must(p.a.ep.post(dat::send{p.a.at(0, 7)}.inlined()));
  std::strcpy(p.a.memory.data(), "after!");
  fake::hold(p.a.ep.native_handle(), false);
  CHECK(std::string(p.b.memory.data()) == "before");
  const auto too_long = p.a.ep.post(dat::send{p.a.at(0, 4000)}.inlined());
  expect(too_long, return_type::length_error);
}

TEST_CASE("suppressed requests give no event, and a later completion frees their entries",
          "[DTO-077][COMP-004][DTO-072][COMP-005][DTO-078]") {
  clean_world world;
  pair p({.max_request_dtos = 4});
  const auto target = p.b.mem.remote();
  const auto write = dat::rdma_write{p.a.at(0, 8), target};
  auto quiet = write;
  quiet.suppress_completion();
  must(p.a.ep.post(quiet, quiet, quiet));
  CHECK(p.a.take().empty());
  auto loud = write;
  must(p.a.ep.post(loud.cookie(7)));
  expect(p.a.ep.post(quiet), return_type::insufficient_resources, dat::return_subtype::resource_tep);
  CHECK(p.a.take() == events{"written 7"});
  must(p.a.ep.post(quiet, quiet, quiet, quiet)); // takes the four free entries, which no completion will free
  CHECK(p.a.take().empty());
  expect(p.a.ep.post(loud), return_type::insufficient_resources);
}

TEST_CASE("a suppressed request that fails is reported", "[DTO-077][COMP-006][COMP-007]") {
  clean_world world;
  pair p;
  fake::hold(p.a.ep.native_handle());
  const dat::rdma_write write{p.a.at(0, 8), p.b.mem.remote()};
  auto first = write;
  auto second = write;
  must(p.a.ep.post(first.suppress_completion().cookie(1), second.suppress_completion().cookie(2)));
  CHECK(fake::complete(p.a.ep.native_handle()));
  CHECK(fake::complete(p.a.ep.native_handle(), {}, IBV_WC_REM_ACCESS_ERR));
  std::string refused(to_string(dat::dto_status::remote_access));
  refused += " 2";
  CHECK(p.a.take().front() == refused);
}

TEST_CASE("a disconnected endpoint takes posts and flushes them in order", "[DTO-070][DTO-121][EPS-065][EPS-066]") {
  clean_world world;
  pair p;
  must(p.a.ep.disconnect());
  p.settle();
  CHECK(p.a.take() == events{"disconnected"});
  const auto flushed = std::string(to_string(dat::dto_status::flushed));
  must(p.a.ep.post(dat::send{p.a.at(0, 8)}.cookie(1), dat::send{}.cookie(2).suppress_completion()));
  must(p.a.ep.post(dat::recv{p.a.at(0, 8)}.cookie(3)));
  CHECK(p.a.take() == events{flushed + " 1", flushed + " 2", flushed + " 3"});
  CHECK(p.a.ep.state() == dat::ep_state::disconnected);
}

TEST_CASE("a receive that is posted late is flushed, also on devices that do not flush it", "[DTO-121][EPS-065]") {
  clean_world world({.flush_late_receives = false});
  pair p;
  must(p.a.ep.disconnect());
  p.settle();
  CHECK(p.a.take() == events{"disconnected"});
  must(p.a.ep.post(dat::recv{p.a.at(0, 8)}.cookie(3)));
  CHECK(p.a.take() == events{std::string(to_string(dat::dto_status::flushed)) + " 3"});
}

TEST_CASE("segments of length 0 do not count and do not reach the device, at any place in a list", "[DTO-055]") {
  clean_world world;
  pair p;
  std::strcpy(p.a.memory.data(), "abcdefgh");
  const auto piece = [&](std::size_t first, std::size_t count) { return p.a.at(first, count); };
  const auto into = [&](std::size_t first, std::size_t count) { return p.b.at(first, count); };
  const auto none = piece(0, 0);
  // Four segments are the limit.
  must(p.b.ep.post(
      dat::recv{dat::iov{into(0, 0), into(0, 1), into(1, 1), into(0, 0), into(2, 1), into(3, 61)}}.cookie(1)));
  must(p.a.ep.post(dat::send{dat::iov{none, piece(0, 2), none, piece(2, 2), piece(4, 2), piece(6, 2)}}.cookie(2)));
  CHECK(p.a.take() == events{"sent 2"});
  CHECK(p.b.take() == events{"received 1"});
  CHECK(std::string(p.b.memory.data(), 8) == "abcdefgh");

  must(p.b.ep.post(dat::recv{into(0, 0)}.cookie(3)));
  must(p.a.ep.post(dat::send{dat::iov{none, none}}.cookie(4), dat::rdma_write{none, p.b.mem.remote()}.cookie(5)));
  CHECK(p.a.take() == events{"sent 4", "written 5"});
  CHECK(p.b.take() == events{"received 3"});

  dat::batch<2, 6> b;
  CHECK(b.push_back(dat::rdma_write{dat::iov{none, piece(7, 1), none, piece(0, 1), piece(1, 1), piece(2, 1)},
                                    p.b.mem.remote(100, 10).value()}
                        .cookie(6)));
  CHECK(b.push_back(dat::rdma_write{none, p.b.mem.remote()}.cookie(7)));
  must(p.a.ep.post(b));
  CHECK(p.a.take() == events{"written 6", "written 7"});
  CHECK(std::string(p.b.memory.data() + 100, 4) == "habc");
}

TEST_CASE("segments of length 0 do not reach the device, whether or not the endpoint has a message limit of its own",
          "[DTO-055]") {
  static int segments;
  static int (*send)(ibv_qp*, ibv_send_wr*, ibv_send_wr**);
  static int (*receive)(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**);
  for (const auto limit : {std::optional<std::uint32_t>(), std::optional<std::uint32_t>(1000)}) {
    clean_world world;
    pair p({.max_message_size = limit});
    auto& ops = p.a.ep.native_handle()->context->ops;
    send = std::exchange(ops.post_send, [](ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
      segments = wr->num_sge;
      return send(qp, wr, bad);
    });
    receive = std::exchange(ops.post_recv, [](ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
      segments = wr->num_sge;
      return receive(qp, wr, bad);
    });
    INFO(limit.value_or(0));
    const auto none = p.a.at(0, 0);
    must(p.a.ep.post(dat::rdma_write{p.a.at(0, 1), p.b.mem.remote()}));
    CHECK(segments == 1);
    must(p.a.ep.post(dat::rdma_write{none, p.b.mem.remote()}));
    CHECK(segments == 0);
    must(p.a.ep.post(dat::recv{p.a.at(0, 1)}));
    CHECK(segments == 1);
    must(p.a.ep.post(dat::recv{none}));
    CHECK(segments == 0);
  }
}

TEST_CASE("all segments that transfer data count", "[DTO-055]") {
  clean_world world;
  pair p;
  const auto one = p.a.at(0, 1);
  const dat::iov list{one, one, one, one, one};
  CHECK(p.a.ep.post(dat::send{list}).error().type() == dat::return_type::invalid_parameter);
  CHECK(p.a.ep.post(dat::recv{list}).error().type() == dat::return_type::invalid_parameter);
  dat::batch<1, 5> b;
  CHECK(b.push_back(dat::send{list}));
  CHECK(p.a.ep.post(b).error().type() == dat::return_type::invalid_parameter);
  // A segment of length 0 between two others does not hide a foreign zone. A checked build finds that the memory is not
  // registered with this ia before it checks the zone.
  const auto refused =
      dat::detail::checked_build ? dat::return_type::privileges_violation : dat::return_type::protection_violation;
  const auto foreign = p.b.at(0, 1);
  CHECK(p.a.ep.post(dat::send{dat::iov{one, p.a.at(0, 0), foreign}}).error().type() == refused);
  CHECK(p.a.ep.post(dat::send{dat::iov{foreign, p.a.at(0, 0), one}}).error().type() == refused);
  CHECK(p.a.ep.post(dat::send{dat::iov{p.a.at(0, 0), foreign}}).error().type() == refused);
  CHECK(p.a.take().empty());
}

TEST_CASE("an atomic becomes a verbs atomic with its operands", "[IBX-033][IBX-035][IBX-042]") {
  constexpr auto rights = all_rights.value | mem_priv::remote_atomic;
  const auto word = dat::detail::segment_access::make<dat::local_segment<std::uint64_t, rights>>(
      dat::detail::raw_segment{0x1000, 8, 0x55, {}});
  const auto there = dat::detail::segment_access::make<dat::remote_segment<std::uint64_t, rights>>(
      dat::detail::raw_remote{0x2000, 64, 0x66});
  auto wr = built(dat::ib::fetch_and_add{word, there, 7});
  CHECK(wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD);
  CHECK(wr.wr.atomic.remote_addr == 0x2000);
  CHECK(wr.wr.atomic.compare_add == 7);
  CHECK(wr.wr.atomic.rkey == 0x66);
  CHECK(wr.send_flags == IBV_SEND_SIGNALED);
  CHECK(built(dat::ib::fetch_and_add{word, there, 7}.fence()).send_flags == (IBV_SEND_SIGNALED | IBV_SEND_FENCE));
  const auto swap = dat::ib::compare_and_swap{word, there, 1, 2}.fence();
  wr = built(swap);
  CHECK(wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP);
  CHECK(wr.wr.atomic.compare_add == 1);
  CHECK(wr.wr.atomic.swap == 2);
  CHECK(wr.send_flags == (IBV_SEND_SIGNALED | IBV_SEND_FENCE));
  CHECK(wr.sg_list[0].length == 8);
}
