// Posts that are refused, by dat or by the device: invalid arguments, full queues, operations that the adapter lacks.
// SPDX-License-Identifier: BSL-1.0
#include "refused_post.hpp"
#include "world.hpp"

#include <cstring>
#include <sys/mman.h>

using namespace unit;
using dat::return_type;

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
    CHECK(must(huge.slice(1, 0xffff'ffff)).size() == 0xffff'ffff);
    CHECK(huge.slice(0, std::size_t{1} << 32).error().type() == return_type::length_error);
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
  // Below RTS the provider of Soft-RoCE returns EINVAL and does not set bad_wr.
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  REQUIRE(ibv_modify_qp(p.a.ep.native_handle(), &attr, IBV_QP_STATE) == 0);
  const dat::rdma_write write{p.a.at(0, 4), p.b.mem.remote()};
  const auto r = p.a.ep.post(write, write);
  REQUIRE_FALSE(r);
  CHECK(r.error().index() == 0);
  CHECK(r.error().sys_errno() == EINVAL);
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
