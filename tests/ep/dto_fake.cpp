// DTOs: the work request that each builder makes, and its effect at the peer.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <cstring>
#include <sys/mman.h>

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

void expect(const dat::expected<void>& r, return_type type, dat::return_subtype subtype = dat::return_subtype::none) {
  REQUIRE_FALSE(r);
  CHECK(r.error().type() == type);
  if (subtype != dat::return_subtype::none) CHECK(r.error().subtype() == subtype);
  CHECK(r.error().object() == dat::object_kind::ep);
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
  SHOWS("DTO-140");
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

TEST_CASE("a full queue refuses posts, and takes posts again when completions have been taken",
          "[DTO-072][COMP-002][COMP-003]") {
  clean_world world;
  pair p({.max_request_dtos = 2, .max_recv_dtos = 2});
  const dat::rdma_write write{p.a.at(0, 1), p.b.mem.remote()};
  must(p.a.ep.post(write, write));
  // The device has completed the requests, and no thread has taken the completions.
  expect(p.a.ep.post(write), return_type::insufficient_resources, dat::return_subtype::resource_tep);
  CHECK(p.a.ep.state() == dat::ep_state::connected);
  CHECK(p.a.take().size() == 2);
  must(p.a.ep.post(write, write));
  expect(p.a.ep.post(write, write, write), return_type::insufficient_resources);
  must(p.b.ep.post(dat::recv{}, dat::recv{}));
  expect(p.b.ep.post(dat::recv{}), return_type::insufficient_resources);
}

TEST_CASE("an invalid post is refused before any of it reaches the device",
          "[DTO-081][DTO-083][DTO-086][DTO-130][DTO-149][DTO-093]") {
  clean_world world;
  pair p({.max_request_iov = 2, .max_recv_iov = 2, .max_message_size = 1000});
  const auto posts = fake::count(fake::call::ibv_post_send);
  const auto recvs = fake::count(fake::call::ibv_post_recv);
  auto other_zone = must(p.a.ia.create_pz());
  std::array<char, 64> memory{};
  auto foreign = must(other_zone.register_memory(memory, all_rights));
  const auto mine = p.a.at(0, 8);
  const auto target = p.b.mem.remote();

  expect(p.a.ep.post(dat::send{foreign}), return_type::protection_violation, dat::return_subtype::protection_read);
  expect(p.a.ep.post(dat::send{dat::iov{mine, foreign}}), return_type::protection_violation);
  expect(p.a.ep.post(dat::rdma_read{foreign, target}), return_type::protection_violation,
         dat::return_subtype::protection_write);
  expect(p.a.ep.post(dat::recv{foreign}), return_type::protection_violation, dat::return_subtype::protection_write);
  expect(p.a.ep.post(dat::send{dat::iov{mine, mine, mine}}), return_type::invalid_parameter);
  expect(p.a.ep.post(dat::recv{dat::iov{mine, mine, mine}}), return_type::invalid_parameter);
  expect(p.a.ep.post(dat::send{p.a.at(0, 1001)}), return_type::length_error);
  expect(p.a.ep.post(dat::send{dat::iov{p.a.at(0, 500), p.a.at(0, 501)}}), return_type::length_error);
  expect(p.a.ep.post(dat::rdma_write{p.a.at(0, 9), target.slice(0, 8).value()}), return_type::length_error);
  expect(p.a.ep.post(dat::rdma_read{p.a.at(0, 9), target.slice(0, 8).value()}), return_type::length_error);
  expect(p.a.ep.post(dat::send{p.a.at(0, 900)}.inlined()), return_type::length_error);

  // One invalid request keeps the others of its call from being posted.
  const auto r = p.a.ep.post(dat::send{mine}, dat::send{foreign});
  expect(r, return_type::protection_violation);
  CHECK(fake::count(fake::call::ibv_post_send) == posts);
  CHECK(fake::count(fake::call::ibv_post_recv) == recvs);
  CHECK(p.a.ep.state() == dat::ep_state::connected);

  // These receives just fit.
  must(p.b.ep.post(dat::recv{p.b.at(0, 1000)}, dat::recv{p.b.at(0, 1000)}));
  must(p.a.ep.post(dat::send{p.a.at(0, 1000)}));
  must(p.a.ep.post(dat::send{dat::iov{p.a.at(0, 500), p.a.at(0, 500)}}));
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), target.slice(0, 8).value()}));
  CHECK(p.a.take().size() == 3);
}

TEST_CASE("a region of 4 GiB and more can be posted in slices only", "[DTO-059][DTO-060]") {
  clean_world world;
  pair p;
  constexpr std::size_t size = (std::size_t{1} << 32) + 4096;
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  {
    auto huge = must(p.a.pz.register_memory(std::span(static_cast<char*>(memory), size), all_rights));
    CHECK(huge.size() == size);
    const auto target = p.b.mem.remote();
    expect(p.a.ep.post(dat::send{huge}), return_type::protection_violation);
    expect(p.a.ep.post(dat::rdma_write{huge, target}), return_type::protection_violation);
    dat::batch<2> batch;
    REQUIRE(batch.push_back(dat::rdma_write{huge, target}));
    expect(p.a.ep.post(batch), return_type::protection_violation);
    REQUIRE(batch.push_back(dat::rdma_write{p.a.at(0, 1), target}));
    expect(p.a.ep.post(batch), return_type::protection_violation);
    batch.clear();
    REQUIRE(batch.push_back(dat::rdma_write{p.a.at(0, 1), target}));
    REQUIRE(batch.push_back(dat::rdma_write{huge, target}));
    expect(p.a.ep.post(batch), return_type::protection_violation);
    // 4 GiB and one byte in total: a 32-bit sum would not show it.
    const auto half = huge.slice(0, std::size_t{1} << 31).value();
    const dat::iov wraps{half, half, huge.slice(0, 1).value()};
    expect(p.a.ep.post(dat::send{wraps}), return_type::length_error);
    expect(p.a.ep.post(dat::rdma_write{wraps, target}), return_type::length_error);
    expect(p.a.ep.post(dat::rdma_read{wraps, target}), return_type::length_error);
    dat::batch<1, 3> sums;
    REQUIRE(sums.push_back(dat::rdma_write{wraps, target}));
    expect(p.a.ep.post(sums), return_type::length_error);
    CHECK(p.a.take().empty());
    CHECK(huge.remote().size() == size);
    CHECK(huge.remote(size - 1, 1).value().size() == 1);
    CHECK(huge.slice(0, size).error().type() == return_type::length_error);
    auto end_of_it = huge.slice(size - 8, 8).value();
    std::memcpy(end_of_it.data(), "the end", 8);
    must(p.a.ep.post(dat::rdma_write{end_of_it, target}));
    CHECK(std::string(p.b.memory.data()) == "the end");
  }
  ::munmap(memory, size);
}

TEST_CASE("a connection that allows no reads refuses them at the post", "[CR-044]") {
  clean_world world;
  pair p({.max_rdma_read_out = 0});
  const auto target = p.b.mem.remote();
  expect(p.a.ep.post(dat::rdma_read{p.a.at(0, 8), target}), return_type::invalid_parameter);
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), target}));
  CHECK(p.a.take() == events{"written 0"});
}

TEST_CASE("a request needs a connection, and a receive does not", "[DTO-038][DTO-069][EPS-001]") {
  clean_world world;
  end e;
  e.make_ep();
  expect(e.ep.post(dat::send{}), return_type::invalid_state, dat::return_subtype::ep_unconnected);
  must(e.ep.post(dat::recv{e.at(0, 8)}));
  CHECK(fake::posted_receives(e.ep.native_handle()) == 1);
  const dat::ep<dat::rc> empty;
  const auto r = empty.post(dat::send{});
  REQUIRE_FALSE(r);
  CHECK(r.error().type() == return_type::invalid_handle);
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

TEST_CASE("when the device refuses an operation of a call, those before it stay posted", "[DTO-086]") {
  clean_world world;
  pair p({.max_request_dtos = 8, .max_recv_dtos = 8});
  // The device's queue is as long as the library's, so the test fills it without the library's knowledge.
  auto* qp = p.a.ep.native_handle();
  fake::hold(qp);
  ibv_send_wr stranger{};
  stranger.opcode = IBV_WR_RDMA_WRITE;
  ibv_send_wr* bad = nullptr;
  int room = 0;
  while (ibv_post_send(qp, &stranger, &bad) == 0) ++room;
  REQUIRE(room >= 8);
  for (int i = 0; i < 2; ++i) REQUIRE(fake::complete(qp)); // the device has room for two
  const dat::rdma_write write{p.a.at(0, 4), p.b.mem.remote()};
  auto w1 = write, w2 = write, w3 = write, w4 = write;
  const auto r = p.a.ep.post(w1.cookie(1), w2.cookie(2), w3.cookie(3), w4.cookie(4));
  expect(r, return_type::insufficient_resources);
  CHECK(r.error().index() == 2);
  CHECK(r.error().verb() == "ibv_post_send");
  CHECK(r.error().sys_errno() == ENOMEM);
  fake::hold(qp, false);
  CHECK(p.a.take() == events{"written 1", "written 2"});
  must(p.a.ep.post(write, write, write, write, write, write, write, write)); // all eight entries are free
  CHECK(p.a.take().size() == 8);
}

TEST_CASE("a refused post leaves no trace: its cookie is not seen again", "[DTO-073][DTO-086][EPS-067]") {
  clean_world world;
  pair p({.max_request_dtos = 2, .max_recv_dtos = 2});
  const dat::rdma_write write{p.a.at(0, 4), p.b.mem.remote()};
  for (int round = 0; round < 5; ++round) {
    fake::fail(fake::call::ibv_post_send, 1, ENOMEM);
    auto bad = write;
    const auto r = p.a.ep.post(bad.cookie(666));
    expect(r, return_type::insufficient_resources);
    CHECK(r.error().index() == 0);
    auto good = write;
    // Success means that the device has the request: the fake completes the requests that it was given, and no others.
    const auto posts = fake::count(fake::call::ibv_post_send);
    must(p.a.ep.post(good.cookie(1)));
    CHECK(fake::count(fake::call::ibv_post_send) == posts + 1);
    CHECK(p.a.take() == events{"written 1"});
    fake::fail(fake::call::ibv_post_recv, 1, ENOMEM);
    expect(p.b.ep.post(dat::recv{p.b.at(0, 8)}.cookie(666)), return_type::insufficient_resources);
    CHECK(fake::posted_receives(p.b.ep.native_handle()) == 0);
    must(p.b.ep.post(dat::recv{p.b.at(0, 8)}.cookie(2)));
    CHECK(fake::posted_receives(p.b.ep.native_handle()) == 1);
    must(p.a.ep.post(dat::send{p.a.at(0, 4)}));
    CHECK(fake::count(fake::call::ibv_post_send) == posts + 2);
    CHECK(p.a.take() == events{"sent 0"});
    CHECK(p.b.take() == events{"received 2"});
    must(p.a.ep.post(dat::rdma_read{p.a.at(0, 4), p.b.mem.remote()}));
    CHECK(fake::count(fake::call::ibv_post_send) == posts + 3);
    CHECK(p.a.take() == events{"read 0"});
  }
}

TEST_CASE("one bad request among several is refused with its own remedy, and none is posted") {
  clean_world world;
  pair p;
  const dat::rdma_write good{p.a.at(0, 4), p.b.mem.remote()};
  const dat::rdma_write bad{p.a.at(0, 8), must(p.b.mem.remote(0, 4))};
  const auto r = p.a.ep.post(good, bad);
  expect(r, return_type::length_error);
  CHECK(r.error().index() == 0);
  CHECK_THAT(std::string(r.error().hint()), support::contains_text("more local bytes than the remote segment has"));
  CHECK(p.a.take().empty());
}

TEST_CASE("when the device refuses without a position, no operation of the call is posted") {
  clean_world world;
  pair p({.max_request_dtos = 4});
  // Below RTS the provider of Soft-RoCE gives EINVAL and leaves bad_wr alone.
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  REQUIRE(ibv_modify_qp(p.a.ep.native_handle(), &attr, IBV_QP_STATE) == 0);
  const dat::rdma_write write{p.a.at(0, 4), p.b.mem.remote()};
  const auto r = p.a.ep.post(write, write);
  REQUIRE_FALSE(r);
  CHECK(r.error().index() == 0);
  CHECK(r.error().sys_errno() == EINVAL);
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

TEST_CASE("an endpoint with messages shorter than a word refuses atomics") {
  clean_world world;
  const std::uint32_t longest = GENERATE(7u, 8u);
  pair p({.max_message_size = longest});
  std::array<std::uint64_t, 2> words{};
  constexpr auto rights = all_rights | dat::remote_atomic;
  const auto mine = must(p.a.pz.register_memory(words, rights));
  const auto theirs = must(p.b.pz.register_memory(words, rights));
  const auto posted = p.a.ep.post(dat::ib::fetch_and_add{must(mine.slice(0, 1)), theirs.remote(), 1}.cookie(1));
  if (longest == 8)
    CHECK(posted);
  else
    expect(posted, return_type::length_error);
}

TEST_CASE("a post checks first whether the adapter has the operation", "[IBX-003]") {
  fake::world w;
  auto attr = fake::rxe_attr();
  attr.atomic_cap = IBV_ATOMIC_NONE;
  for (auto& d : w.devices) d.attr = attr;
  clean_world world(w);
  pair p({.max_request_dtos = 4});
  std::array<std::uint64_t, 2> words{};
  constexpr auto rights = all_rights | dat::remote_atomic;
  const auto mine = must(p.a.pz.register_memory(words, rights));
  const auto of_another_zone = must(p.b.pz.register_memory(words, rights));
  const dat::ib::fetch_and_add add{must(mine.slice(0, 1)), mine.remote(), 1};
  const dat::ib::compare_and_swap swap{must(of_another_zone.slice(0, 1)), mine.remote(), 1, 2};
  // The adapter is checked before the state of the endpoint.
  auto apart = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  expect(apart.post(dat::send{}), return_type::invalid_state, dat::return_subtype::ep_unconnected);
  expect(apart.post(add), return_type::model_not_supported);
  expect(apart.post(swap), return_type::model_not_supported);
  expect(apart.post(dat::send{}, add), return_type::model_not_supported);
  dat::batch<1> list;
  REQUIRE(list.push_back(add));
  expect(apart.post(list), return_type::model_not_supported);
  // The adapter is checked before the operation, and before the room of the queue.
  expect(p.a.ep.post(swap), return_type::model_not_supported);
  for (int i = 0; i != 4; ++i) must(p.a.ep.post(dat::send{}.suppress_completion()));
  expect(p.a.ep.post(dat::send{}), return_type::insufficient_resources);
  expect(p.a.ep.post(add), return_type::model_not_supported);
  expect(p.a.ep.post(list), return_type::model_not_supported);
  // A closed endpoint has no adapter.
  must(apart.close());
  CHECK(apart.post(add).error().type() == return_type::invalid_handle);
}

TEST_CASE("an adapter without atomics refuses them, and the endpoint stays usable", "[IBX-049]") {
  auto attr = fake::rxe_attr();
  attr.atomic_cap = IBV_ATOMIC_NONE;
  fake::world w;
  for (auto& d : w.devices) d.attr = attr;
  clean_world world(w);
  pair p;
  std::array<std::uint64_t, 2> words{};
  constexpr auto rights = all_rights | dat::remote_atomic;
  const auto mine = must(p.a.pz.register_memory(words, rights));
  const dat::ib::fetch_and_add add{must(mine.slice(0, 1)), mine.remote(), 1};
  expect(p.a.ep.post(add), return_type::model_not_supported);
  const dat::ib::compare_and_swap swap{must(mine.slice(0, 1)), mine.remote(), 1, 2};
  expect(p.a.ep.post(swap), return_type::model_not_supported);
  DEVIATES("EXT05-002");
  const auto named = must(p.a.ia.query<dat::provider_attributes>()).specific;
  CHECK_FALSE(named.find("DAT_EXT_FETCH_AND_ADD"));
  DEVIATES("EXT05-003");
  dat::batch<1> batch;
  REQUIRE(batch.push_back(add));
  expect(p.a.ep.post(batch), return_type::model_not_supported);
  must(p.b.ep.post(dat::recv{}));
  must(p.a.ep.post(dat::send{}.cookie(1)));
  CHECK(p.a.take() == events{"sent 1"});
}
