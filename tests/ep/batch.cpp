// Batches: requests that are collected at run time.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

using namespace unit;
using dat::return_type;

static_assert(!std::is_copy_constructible_v<dat::batch<4>> && !std::is_copy_assignable_v<dat::batch<4>>);

TEST_CASE("a batch counts its requests, has a capacity, and is unchanged when it refuses") {
  dat::batch<3, 2> b;
  CHECK(b.empty());
  CHECK(b.push_back(dat::send{}));
  CHECK(b.push_back(dat::send{}));
  CHECK_FALSE(b.full());
  CHECK(b.push_back(dat::send{}));
  CHECK(b.full());
  CHECK_FALSE(b.push_back(dat::send{}));
  CHECK(b.size() == 3);
  b.clear();
  CHECK(b.empty());
  STATIC_REQUIRE(decltype(b)::capacity == 3);
}

TEST_CASE("a batch is posted with one call to the device and completes in order", "[DTO-091]") {
  clean_world world;
  pair p;
  std::strcpy(p.a.memory.data(), "abcdefgh");
  for (std::uint64_t i = 0; i < 2; ++i) must(p.b.ep.post(dat::recv{p.b.at(i * 16, 16)}.cookie(50 + i)));
  dat::batch<5, 2> b;
  const auto target = p.b.mem.remote(100, 100).value();
  CHECK(b.push_back(dat::send{p.a.at(0, 2)}.cookie(1)));
  CHECK(b.push_back(dat::rdma_write{dat::iov{p.a.at(2, 2), p.a.at(4, 2)}, target}.cookie(2)));
  CHECK(b.push_back(dat::rdma_read{p.a.at(200, 4), target}.cookie(3)));
  CHECK(b.push_back(dat::rdma_write{p.a.at(0, 1), target}.suppress_completion()));
  CHECK(b.push_back(dat::rdma_write{p.a.at(6, 2), target.slice(10, 10).value()}.immediate(9).cookie(4)));
  const auto calls = fake::count(fake::call::ibv_post_send);
  must(p.a.ep.post(b));
  CHECK(fake::count(fake::call::ibv_post_send) == calls + 1);
  CHECK(p.a.take() == events{"sent 1", "written 2", "read 3", "written immediate 4"});
  CHECK(p.b.take() == events{"received 50", "write arrived 51"});
  CHECK(std::string(p.b.memory.data(), 2) == "ab");
  CHECK(std::string(p.b.memory.data() + 100, 4) == "adef");
  CHECK(std::string(p.b.memory.data() + 110, 2) == "gh");
  CHECK(std::string(p.a.memory.data() + 200, 4) == "cdef");
}

TEST_CASE("a batch can be posted again, and to another endpoint of its zone") {
  clean_world world;
  pair p;
  pair* q = &p;
  dat::batch<2> b;
  CHECK(b.push_back(dat::rdma_write{p.a.at(0, 4), p.b.mem.remote()}.cookie(1)));
  CHECK(b.push_back(dat::rdma_write{p.a.at(0, 4), p.b.mem.remote()}.cookie(2)));
  for (int i = 0; i < 100; ++i) {
    must(q->a.ep.post(b));
    CHECK(q->a.take() == events{"written 1", "written 2"});
  }
  auto second_a = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  auto second_b = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  p.connect(second_a, second_b);
  CHECK(p.a.take() == events{"established"});
  must(second_a.post(b));
  CHECK(p.a.take() == events{"written 1", "written 2"});
}

TEST_CASE("a batch that was posted takes more requests, and the next post has all of them") {
  clean_world world;
  pair p;
  dat::batch<3> b;
  events expected;
  for (std::uint64_t n = 1; n <= 3; ++n) {
    CHECK(b.push_back(dat::rdma_write{p.a.at(0, 4), p.b.mem.remote()}.cookie(n)));
    must(p.a.ep.post(b));
    expected.push_back("written " + std::to_string(n));
    CHECK(p.a.take() == expected);
  }
}

TEST_CASE("a batch that is filled again takes requests of other zones and other segment counts", "[DTO-081][DTO-086]") {
  clean_world world;
  pair p;
  auto zone = must(p.a.ia.create_pz());
  std::array<char, 64> memory{};
  std::strcpy(memory.data(), "foreign");
  auto foreign = must(zone.register_memory(memory, all_rights));
  auto there = must(zone.create_ep<dat::rc>(p.a.evd));
  auto here = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  p.connect(there, here);
  CHECK(p.a.take() == events{"established"});
  std::strcpy(p.a.memory.data(), "abcdefgh");
  const auto target = p.b.mem.remote();

  dat::batch<3, 2> b;
  CHECK(b.push_back(dat::rdma_write{p.a.at(0, 0), target}.cookie(1))); // transfers no data
  CHECK(b.push_back(dat::rdma_write{dat::iov{p.a.at(4, 2), p.a.at(0, 2)}, target}.cookie(2)));
  CHECK(b.push_back(dat::rdma_write{dat::iov{p.a.at(0, 0), p.a.at(7, 1)}, target.slice(10, 10).value()}.cookie(3)));
  must(p.a.ep.post(b));
  CHECK(p.a.take() == events{"written 1", "written 2", "written 3"});
  CHECK(std::string(p.b.memory.data(), 4) == "efab");
  CHECK(p.b.memory[10] == 'h');

  for (int i = 0; i < 2; ++i) { // the second fill expects the zone of the first
    b.clear();
    p.b.memory.fill('-');
    for (std::size_t j = 0; j < 3; ++j)
      CHECK(b.push_back(dat::rdma_write{foreign.slice(j, 1).value(), target.slice(2 * j, 2).value()}.cookie(j)));
    CHECK(p.a.ep.post(b).error().type() == return_type::protection_violation);
    must(there.post(b));
    CHECK(p.a.take() == events{"written 0", "written 1", "written 2"});
    CHECK(std::string(p.b.memory.data(), 6) == "f-o-r-");
  }

  b.clear();
  CHECK(b.push_back(dat::rdma_write{foreign, target}));
  CHECK(b.push_back(dat::rdma_write{p.a.at(0, 1), target}));
  CHECK(p.a.ep.post(b).error().type() == return_type::protection_violation);
  CHECK(there.post(b).error().type() == return_type::protection_violation);

  // A list without data is valid in every zone.
  b.clear();
  CHECK(b.push_back(dat::rdma_write{p.a.at(0, 0), target}.cookie(1)));
  must(p.a.ep.post(b));
  must(there.post(b));
  CHECK(p.a.take() == events{"written 1", "written 1"});
}

TEST_CASE("lists of up to eight segments and of more, and calls of up to four requests and of more, all arrive",
          "[DTO-086][DTO-091]") {
  clean_world world;
  pair p({.max_request_dtos = 32, .max_request_iov = 10});
  std::strcpy(p.a.memory.data(), "abcdefghij");
  const auto target = p.b.mem.remote();
  const auto letter = [&](std::size_t i) { return p.a.at(i, 1); };
  const auto wrote = [&](std::size_t n) {
    auto text = std::string(p.b.memory.data(), n);
    p.b.memory.fill('-');
    return text;
  };
  must(p.a.ep.post(dat::rdma_write{
      dat::iov{letter(7), letter(6), letter(5), letter(4), letter(3), letter(2), letter(1), letter(0)}, target}));
  CHECK(wrote(8) == "hgfedcba");
  must(p.a.ep.post(dat::rdma_write{dat::iov{letter(9), letter(8), letter(7), letter(6), letter(5), letter(4), letter(3),
                                            letter(2), letter(1), letter(0)},
                                   target}));
  CHECK(wrote(10) == "jihgfedcba");
  dat::iov<8, all_rights.value> grown; // the number of segments is known at run time only
  for (std::size_t i = 0; i < 3; ++i) CHECK(grown.push_back(letter(i)));
  must(p.a.ep.post(dat::rdma_write{grown, target}));
  CHECK(wrote(4) == "abc-");
  must(p.a.ep.post(dat::rdma_write{dat::iov<8, all_rights.value>{}, target}));
  CHECK(wrote(1) == "-");
  const auto at = [&](std::size_t i) { return dat::rdma_write{letter(i), target.slice(9 - i, 1).value()}; };
  must(p.a.ep.post(at(0), at(1)));
  must(p.a.ep.post(at(2), at(3), at(4)));
  CHECK(wrote(10) == "-----edcba");
  must(p.a.ep.post(at(0), at(1), at(2), at(3)));
  must(p.a.ep.post(at(4), at(5), at(6), at(7), at(8)));
  CHECK(wrote(10) == "-ihgfedcba");
  CHECK(p.a.take().size() == 18);
}

TEST_CASE("posting an empty batch does nothing") {
  clean_world world;
  pair p;
  dat::batch<2> b;
  const auto calls = fake::count(fake::call::ibv_post_send);
  must(p.a.ep.post(b));
  CHECK(fake::count(fake::call::ibv_post_send) == calls);
  CHECK(dat::ep<dat::rc>().post(b).error().type() == return_type::invalid_handle);
}

TEST_CASE("a batch keeps all that its requests have, when one of them is checked by itself") {
  clean_world world;
  constexpr auto rights = all_rights | dat::remote_atomic;
  pair p({.max_inline = 16});
  std::array<std::uint64_t, 4> words{1, 2, 3, 4};
  auto mine = must(p.a.pz.register_memory(words, rights));
  std::array<std::uint64_t, 2> there{40, 50};
  auto theirs = must(p.b.pz.register_memory(there, rights));
  std::strcpy(p.a.memory.data(), "abcdefgh");
  must(p.b.ep.post(dat::recv{p.b.at(0, 16)}.cookie(7), dat::recv{p.b.at(16, 16)}.cookie(8)));
  const auto target = p.b.mem.remote(100, 100).value();
  dat::batch<6, 2> b;
  CHECK(b.push_back(dat::ib::fetch_and_add{must(mine.slice(0, 1)), theirs.remote(), 2}.cookie(1)));
  CHECK(b.push_back(dat::ib::compare_and_swap{must(mine.slice(1, 1)), must(theirs.remote(1, 1)), 50, 51}.cookie(2)));
  CHECK(b.push_back(dat::send{dat::iov{p.a.at(0, 2), p.a.at(0, 0)}}.inlined().immediate(9).cookie(3)));
  CHECK(b.push_back(dat::rdma_write{p.a.at(2, 0), target}.cookie(4)));
  CHECK(b.push_back(dat::rdma_write{p.a.at(2, 2), target}.immediate(10).cookie(5)));
  CHECK(b.push_back(dat::rdma_read{p.a.at(200, 2), target}.cookie(6)));
  for (int round = 1; round <= 2; ++round) {
    if (round == 2) must(p.b.ep.post(dat::recv{p.b.at(0, 16)}.cookie(7), dat::recv{p.b.at(16, 16)}.cookie(8)));
    must(p.a.ep.post(b));
    CHECK(p.a.take().size() == 6);
    CHECK(p.b.take().size() == 2);
    CHECK(there == std::array<std::uint64_t, 2>{40 + 2 * static_cast<std::uint64_t>(round), 51});
    CHECK(words[1] == (round == 1 ? 50u : 51u));
  }
  CHECK(std::string(p.b.memory.data(), 2) == "ab");
  CHECK(std::string(p.b.memory.data() + 100, 2) == "cd");
  CHECK(std::string(p.a.memory.data() + 200, 2) == "cd");
}

TEST_CASE("an invalid batch is refused as a whole", "[DTO-081][DTO-083][DTO-149][DTO-086]") {
  clean_world world;
  pair p({.max_request_dtos = 3, .max_request_iov = 1, .max_message_size = 1000, .max_rdma_read_out = 0});
  auto other = must(p.a.ia.create_pz());
  std::array<char, 64> memory{};
  auto foreign = must(other.register_memory(memory, all_rights));
  const auto target = p.b.mem.remote();
  const auto calls = fake::count(fake::call::ibv_post_send);
  const auto refused = [&](const auto& bad) {
    dat::batch<4, 2> b;
    CHECK(b.push_back(dat::rdma_write{p.a.at(0, 4), target}));
    CHECK(b.push_back(bad));
    const auto r = p.a.ep.post(b);
    if (r) return return_type::success;
    CHECK(r.error().call() == "ep.post(batch)");
    return r.error().type();
  };
  CHECK(refused(dat::rdma_write{foreign, target}) == return_type::protection_violation);
  CHECK(refused(dat::rdma_write{dat::iov{p.a.at(0, 1), p.a.at(1, 1)}, target}) == return_type::invalid_parameter);
  CHECK(refused(dat::send{p.a.at(0, 1001)}) == return_type::length_error);
  CHECK(refused(dat::rdma_write{p.a.at(0, 5), target.slice(0, 4).value()}) == return_type::length_error);
  CHECK(refused(dat::rdma_read{p.a.at(0, 5), target}) == return_type::invalid_parameter);
  CHECK(refused(dat::send{p.a.at(0, 900)}.inlined()) == return_type::length_error);
  dat::batch<4> four;
  for (int i = 0; i < 4; ++i) CHECK(four.push_back(dat::rdma_write{p.a.at(0, 4), target}));
  CHECK(p.a.ep.post(four).error().type() == return_type::insufficient_resources);
  CHECK(fake::count(fake::call::ibv_post_send) == calls);
  CHECK(refused(dat::rdma_write{p.a.at(0, 4), target}) == return_type::success);
  CHECK(p.a.take().size() == 2);

  end unconnected("fk1");
  unconnected.make_ep();
  dat::batch<1> one;
  CHECK(one.push_back(dat::send{}));
  CHECK(unconnected.ep.post(one).error().subtype() == dat::return_subtype::ep_unconnected);
  CHECK(dat::ep<dat::rc>().post(one).error().type() == return_type::invalid_handle);
}

TEST_CASE("clear also removes the limits of a batch") {
  clean_world world;
  pair p({.max_message_size = 100});
  dat::batch<2> b;
  CHECK(b.push_back(dat::rdma_write{p.a.at(0, 101), p.b.mem.remote()}));
  CHECK_FALSE(p.a.ep.post(b));
  b.clear();
  CHECK(b.push_back(dat::rdma_write{p.a.at(0, 100), p.b.mem.remote()}));
  must(p.a.ep.post(b));
  CHECK(p.a.take().size() == 1);
}

TEST_CASE("index() gives the position at which the device refused a batch") {
  clean_world world;
  pair p({.max_request_dtos = 8});
  auto* qp = p.a.ep.native_handle();
  fake::hold(qp);
  ibv_send_wr stranger{};
  stranger.opcode = IBV_WR_RDMA_WRITE;
  ibv_send_wr* bad = nullptr;
  while (ibv_post_send(qp, &stranger, &bad) == 0) {
  }
  for (int i = 0; i < 3; ++i) REQUIRE(fake::complete(qp));
  dat::batch<5> b;
  for (std::uint64_t i = 0; i < 5; ++i) CHECK(b.push_back(dat::rdma_write{p.a.at(0, 4), p.b.mem.remote()}.cookie(i)));
  const auto r = p.a.ep.post(b);
  REQUIRE_FALSE(r);
  CHECK(r.error().index() == 3);
  fake::hold(qp, false);
  CHECK(p.a.take() == events{"written 0", "written 1", "written 2"});
  must(p.a.ep.post(b));
  CHECK(p.a.take().size() == 5);
}

TEST_CASE("post_n posts the requests of a callable in order, with one doorbell for sixteen", "[DTO-091][DTO-086]") {
  clean_world world;
  const bool limited = GENERATE(false, true); // a limit of the consumer takes the slow check
  CAPTURE(limited);
  pair p({.max_request_dtos = 50,
          .max_recv_dtos = 50,
          .max_message_size = limited ? 1000 : dat::ep_attributes{}.max_message_size});
  for (std::size_t i = 0; i < 40; ++i) p.a.memory[i] = static_cast<char>('0' + i);
  const auto target = p.b.mem.remote();
  const auto letter = [&](std::size_t i) {
    return dat::rdma_write{p.a.at(i, 1), target.slice(99 - i, 1).value()}.cookie(i);
  };
  for (const std::size_t n : {0u, 1u, 3u, 4u, 15u, 16u, 17u, 40u}) {
    INFO(n);
    p.b.memory.fill('-');
    const auto calls = fake::count(fake::call::ibv_post_send);
    must(p.a.ep.post_n(n, letter));
    CHECK(fake::count(fake::call::ibv_post_send) == calls + (n + 15) / 16);
    events wanted;
    for (std::size_t i = 0; i < n; ++i) wanted.push_back("written " + std::to_string(i));
    CHECK(p.a.take() == wanted);
    for (std::size_t i = 0; i < 41; ++i) CHECK(p.b.memory[99 - i] == (i < n ? p.a.memory[i] : '-'));
  }
  // A request without data among others is skipped, and the kept chain of links is intact afterwards.
  for (int round = 0; round < 2; ++round) {
    p.b.memory.fill('-');
    must(p.a.ep.post_n(9, [&](std::size_t i) {
      return dat::rdma_write{i == 5 ? p.a.at(0, 0) : p.a.at(i, 1), target.slice(i, 1).value()}.cookie(i);
    }));
    CHECK(p.a.take().size() == 9);
    CHECK(std::string(p.b.memory.data(), 10) == "01234-678-");
  }
  must(p.a.ep.post_n(3, [&](std::size_t i) {
    auto w = dat::rdma_write{p.a.at(i, 1), target}.cookie(i);
    if (i != 2) w.suppress_completion();
    return w;
  }));
  CHECK(p.a.take() == events{"written 2"});
}

TEST_CASE("post_n posts the requests before a refused one", "[DTO-081][DTO-149]") {
  clean_world world;
  pair p({.max_request_dtos = 30, .max_message_size = 1000});
  const auto target = p.b.mem.remote();
  for (const std::size_t bad : {0u, 2u, 7u, 15u, 16u, 21u}) {
    INFO(bad);
    std::size_t made = 0;
    const auto r = p.a.ep.post_n(24, [&](std::size_t i) {
      ++made;
      return dat::rdma_write{p.a.at(0, i == bad ? 1001 : 4), target}.cookie(i);
    });
    REQUIRE_FALSE(r);
    CHECK(r.error().type() == return_type::length_error);
    CHECK(r.error().call() == "ep.post_n");
    CHECK(r.error().index() == bad);
    CHECK(made == bad + 1);
    CHECK(p.a.take().size() == bad);
  }
  // If the requests do not fit, or the endpoint cannot post, post_n calls neither the callable nor the device.
  const auto never = [&](std::size_t) -> dat::rdma_write<1> { throw std::logic_error("asked for"); };
  const auto calls = fake::count(fake::call::ibv_post_send);
  CHECK(p.a.ep.post_n(31, never).error().type() == return_type::insufficient_resources);
  CHECK(p.a.ep.post_n(~std::size_t{}, never).error().type() == return_type::insufficient_resources);
  CHECK(dat::ep<dat::rc>().post_n(1, never).error().type() == return_type::invalid_handle);
  end unconnected("fk1");
  unconnected.make_ep();
  const auto there = [&](std::size_t) { return dat::rdma_write{unconnected.at(0, 1), target}; };
  CHECK(unconnected.ep.post_n(2, there).error().subtype() == dat::return_subtype::ep_unconnected);
  CHECK(fake::count(fake::call::ibv_post_send) == calls);

  // An exception of the callable is passed on, and none of its sixteen requests is posted.
  CHECK_THROWS_AS(p.a.ep.post_n(20,
                                [&](std::size_t i) {
                                  if (i == 18) throw std::runtime_error("no more");
                                  return dat::rdma_write{p.a.at(0, 4), target}.cookie(i);
                                }),
                  std::runtime_error);
  CHECK(p.a.take().size() == 16);
  must(p.a.ep.post_n(30, [&](std::size_t i) { return dat::rdma_write{p.a.at(0, 4), target}.cookie(i); }));
  CHECK(p.a.take().size() == 30);
  // A request without data before the exception leaves no trace in the links.
  p.b.memory.fill('-');
  p.a.memory.fill('+');
  CHECK_THROWS_AS(p.a.ep.post_n(2,
                                [&](std::size_t i) {
                                  if (i == 1) throw std::runtime_error("no more");
                                  return dat::rdma_write{p.a.at(0, 0), target};
                                }),
                  std::runtime_error);
  must(p.a.ep.post_n(2, [&](std::size_t i) { return dat::rdma_write{p.a.at(0, 1), target.slice(i, 1).value()}; }));
  CHECK(p.a.take().size() == 2);
  CHECK(std::string(p.b.memory.data(), 3) == "++-");
}

TEST_CASE("index() gives the position at which the device refused a post_n") {
  clean_world world;
  pair p({.max_request_dtos = 30});
  auto* qp = p.a.ep.native_handle();
  for (const std::size_t room : {3u, 16u, 19u}) {
    INFO(room);
    fake::hold(qp);
    ibv_send_wr stranger{};
    stranger.opcode = IBV_WR_RDMA_WRITE;
    ibv_send_wr* bad = nullptr;
    while (ibv_post_send(qp, &stranger, &bad) == 0) {
    }
    for (std::size_t i = 0; i < room; ++i) REQUIRE(fake::complete(qp));
    const auto write = [&](std::size_t i) { return dat::rdma_write{p.a.at(0, 4), p.b.mem.remote()}.cookie(i); };
    const auto r = p.a.ep.post_n(25, write);
    REQUIRE_FALSE(r);
    CHECK(r.error().index() == room);
    fake::hold(qp, false);
    CHECK(p.a.take().size() == room);
    must(p.a.ep.post_n(25, write));
    CHECK(p.a.take().size() == 25);
  }
}
