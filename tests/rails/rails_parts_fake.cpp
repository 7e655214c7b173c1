// The parts of rails: their bytes on the wire, their queue of places, and the limits of their arguments.
// SPDX-License-Identifier: BSL-1.0
#include "ends.hpp"

#include <dat/detail/impl/rails_state.hpp>

namespace rails_test {

namespace {

template <std::size_t N>
std::array<std::byte, N> bytes_of(const int (&numbers)[N]) {
  std::array<std::byte, N> bytes{};
  for (std::size_t i = 0; i < N; ++i) bytes[i] = static_cast<std::byte>(numbers[i]);
  return bytes;
}

} // namespace

TEST_CASE("the immediate data of a message has its tag, its number and its kind, the lowest byte first", "[rails]") {
  using dat::detail::rail::label;
  const auto text = [](std::uint32_t immediate) {
    std::array<unsigned char, 4> bytes{};
    std::memcpy(bytes.data(), &immediate, 4);
    return std::vector<int>(bytes.begin(), bytes.end());
  };
  CHECK(text(label{}.immediate()) == std::vector{0, 0, 0, 0});
  CHECK(text(label{.tag = 0x1234}.immediate()) == std::vector{0x34, 0x12, 0, 0});
  CHECK(text(label{.sequence = 0x2a5b}.immediate()) == std::vector{0, 0, 0x5b, 0x2a});
  CHECK(text(label{.ordered = true}.immediate()) == std::vector{0, 0, 0, 0x40});
  CHECK(text(label{.skip = true}.immediate()) == std::vector{0, 0, 0, 0x80});
  for (const bool ordered : {false, true})
    for (const bool skip : {false, true})
      for (const std::uint32_t sequence : {0u, 1u, 0x2a5bu, 0x3fffu})
        for (const auto tag : std::array<std::uint16_t, 4>{0, 1, 0xbeef, 0xffff}) {
          const auto back = label::of(label{ordered, skip, sequence, tag}.immediate());
          CHECK(back.ordered == ordered);
          CHECK(back.skip == skip);
          CHECK(back.sequence == sequence);
          CHECK(back.tag == tag);
        }
}

TEST_CASE("control messages and greetings have the bytes of the protocol, and others are refused", "[rails]") {
  using dat::detail::rail::control;
  using dat::detail::rail::greeting;
  auto wire = bytes_of({2,    7,    1,    0,    0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24,
                        0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38});
  const control c{control::kind_type::credit, 7, 0x11121314, 0x2122232425262728, 0x3132333435363738};
  std::array<std::byte, control::size> written{};
  written.fill(std::byte{0xee});
  c.write(written);
  CHECK(written == wire);
  const auto read = control::read(wire);
  REQUIRE(read);
  CHECK(read->kind == c.kind);
  CHECK(read->rail == c.rail);
  CHECK(read->life == c.life);
  CHECK(read->count == c.count);
  CHECK(read->session == c.session);
  CHECK_FALSE(control::read(std::span(wire).first(control::size - 1)));
  for (const int kind : {0, 1, 2, 3, 4}) {
    wire[0] = static_cast<std::byte>(kind);
    CHECK(control::read(wire).has_value() == (kind >= 1 && kind <= 3));
  }
  wire[0] = std::byte{1};
  wire[2] = std::byte{2};
  CHECK_FALSE(control::read(wire));

  auto hello = bytes_of(
      {'d', 'a', 't', 'r', 1, 3, 4, 0, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28});
  const greeting g{3, 4, 0x11121314, 0x2122232425262728};
  CHECK(g.bytes() == hello);
  const auto heard = greeting::read(hello);
  REQUIRE(heard);
  CHECK(heard->rail == 3);
  CHECK(heard->rails == 4);
  CHECK(heard->life == g.life);
  CHECK(heard->session == g.session);
  CHECK_FALSE(greeting::read(std::span(hello).first(greeting::size - 1)));
  for (const std::size_t i : {0u, 1u, 2u, 3u, 4u}) {
    auto other = hello;
    other[i] ^= std::byte{1};
    CHECK_FALSE(greeting::read(other));
  }
}

TEST_CASE("a queue of places keeps its order when both of its ends wrap", "[rails]") {
  dat::detail::rail::place_queue q(3);
  CHECK(q.empty());
  q.push_front(2); // wraps around before the first place
  q.push_front(1);
  q.push_back(3); // wraps around behind the last place
  CHECK(q.size() == 3);
  CHECK_FALSE(q.empty());
  for (const std::uint32_t i : {0u, 1u, 2u}) CHECK(q[i] == i + 1);
  for (std::uint32_t n = 4; n < 12; ++n) {
    CHECK(q.pop_front() == n - 3);
    CHECK(q.size() == 2);
    q.push_back(n);
  }
  for (std::uint32_t n = 9; n < 12; ++n) CHECK(q.pop_front() == n);
  CHECK(q.empty());
}

TEST_CASE("rails take every option at its limits, and up to 16 paths", "[rails]") {
  const unit::clean_world world(world_of(16));
  end a;
  a.open('a', 16);
  for (const dat::rails_options& good : {dat::rails_options{.failover_within = 90ms},
                                         {.failover_within = 60s},
                                         {.cool_down = 0ms, .max_cool_down = 0ms},
                                         {.depth = 1},
                                         {.depth = 4096},
                                         {.window = 1},
                                         {.window = 8192}}) {
    CHECK(dat::rails::connect(std::span(a.paths).first(1), good));
    CHECK(dat::rails::listen(std::span(a.paths).first(1), good));
  }
  a.rails = must(dat::rails::connect(a.paths));
  CHECK(a.rails.size() == 16);
  const auto wire = must(a.rails.register_memory(a.out)).to_wire();
  CHECK(wire.size() == 16u * 24);
  CHECK(dat::rails_remote::from_wire(wire));
  auto more = wire;
  more.insert(more.end(), wire.begin(), wire.begin() + 24);
  is_error(dat::rails_remote::from_wire(more), dat::return_type::invalid_parameter);
  CHECK(a.rails.descriptors().size() == 32); // the descriptors of each rail's cno and ia
}

TEST_CASE("the descriptors of rails name an adapter's once, and none of an ia that has a thread", "[rails]") {
  const unit::clean_world world(world_of(2));
  end a;
  a.open('a', 1);
  const std::vector<dat::rail_path> same{a.paths[0], a.paths[0]};
  const auto rails = must(dat::rails::connect(same));
  const auto fds = rails.descriptors();
  CHECK(fds.size() == 3);
  CHECK(std::count(fds.begin(), fds.end(), a.ias.front().fd()) == 1);
  auto own_thread = must(dat::ia::open("a1", unit::automatic));
  dat::rail_path path = a.paths[0];
  path.ia = &own_thread;
  CHECK(must(dat::rails::connect(std::span(&path, 1))).descriptors().size() == 1);
}

TEST_CASE("a write to rails may reach the end of both memories and the longest message, and no further", "[rails]") {
  auto w = world_of(2);
  w.devices[1].ports[0].max_msg_sz = 4096; // this is the limit of a1, and the smallest limit counts
  const unit::clean_world world(w);
  end a;
  a.open('a', 2);
  a.rails = must(dat::rails::connect(a.paths, {.window = 4, .clock = &the_clock}));
  a.register_all();
  a.learn(a);
  const std::size_t all = a.out.size();
  const auto write = [&](std::size_t first, std::size_t bytes, std::uint64_t at) {
    return a.rails.write(a.from, first, bytes, a.there, at);
  };
  must(write(all, 0, all));
  must(write(all - 8, 8, all - 8));
  must(write(0, 4096, 0));
  is_error(write(0, 4097, 0), dat::return_type::length_error);
  is_error(write(all + 1, 0, 0), dat::return_type::invalid_parameter, dat::return_subtype::arg3);
  is_error(write(all - 8, 9, 0), dat::return_type::invalid_parameter, dat::return_subtype::arg3);
  is_error(write(0, 0, all + 1), dat::return_type::invalid_parameter, dat::return_subtype::arg5);
  is_error(write(0, 9, all - 8), dat::return_type::invalid_parameter, dat::return_subtype::arg5);
  CHECK(a.rails.not_done() == 3);
  must(write(0, 1, 0));
  is_error(write(0, 1, 0), dat::return_type::insufficient_resources, dat::return_subtype::resource_credits);
}

TEST_CASE("the oldest message that is not done limits the numbers of those behind it", "[rails]") {
  const bool ordered = GENERATE(false, true);
  ends e(2, {.depth = 4, .window = 8192});
  REQUIRE(e.all_up());
  fake::hold(qp_of('a', 0));
  const auto write = [&] { return e.a.rails.write(e.a.from, 0, 8, e.a.there, 0, {.ordered = ordered}); };
  std::uint32_t written = 0;
  for (bool refused = false; !refused; e.turn()) {
    while (!refused && e.a.rails.not_done() < 8) {
      const auto ok = write();
      refused = !ok;
      written += !refused;
    }
    if (written > 8192) break;
  }
  CHECK(written == 8191 - 2 * 4); // the peer may take as many of the other rail before the oldest one
  fake::hold(qp_of('a', 0), false);
  e.some_turns();
  CHECK(e.a.rails.not_done() == 0);
  must(write());
  CHECK(e.all_done());
  e.some_turns();
  CHECK(e.b.rails.duplicates() == 0);
  CHECK(e.b.rails.health(0).received + e.b.rails.health(1).received == written + 1);
}

TEST_CASE("messages that arrive while the peer takes an older one are not lost, however far they are ahead",
          "[rails]") {
  const bool ordered = GENERATE(false, true);
  const std::size_t slow = GENERATE(0u, 1u);
  ends e(2, {.depth = 64});
  REQUIRE(e.all_up());
  fake::hold(qp_of('a', slow));
  std::uint32_t written = 0;
  const auto write = [&] {
    const auto ok = e.a.rails.write(e.a.from, 0, 8, e.a.there, 0, {.ordered = ordered});
    written += ok.has_value();
    return ok.has_value();
  };
  // One rail holds its message, and the other one carries as many as the numbers allow.
  REQUIRE((write() && write()));
  CHECK(e.a.rails.health(slow).under_way == 1);
  for (bool refused = false; !refused; e.turn())
    while (!refused && e.a.rails.not_done() < 64) refused = !write();
  // The message arrives, and the other rail carries more, before the peer takes it.
  fake::hold(qp_of('a', slow), false);
  const std::uint32_t before = written;
  for (bool more = true; more;) {
    fake::finish();
    e.a.run();
    more = false;
    while (e.a.rails.not_done() < 64 && write()) more = true;
  }
  CHECK(written > before);
  CHECK(e.all_done());
  e.some_turns();
  CHECK(e.b.rails.duplicates() == 0);
  CHECK(e.b.rails.health(0).received + e.b.rails.health(1).received == written);
}

TEST_CASE("rails are as deep as the numbers of messages allow that several rails carry at once", "[rails]") {
  const auto [n, depth] = GENERATE(std::pair(2u, 2048u), std::pair(3u, 1024u), std::pair(16u, 136u));
  ends e(n, {.spread = dat::rails_spread::round_robin, .depth = depth, .window = 8192});
  REQUIRE(e.all_up());
  is_error(dat::rails::connect(e.a.paths, {.depth = depth + 1}), dat::return_type::invalid_parameter,
           dat::return_subtype::arg2);
  std::uint32_t written = 0;
  for (bool more = true; more;) { // all that the peer's queues hold, which the peer does not take
    more = false;
    for (; e.a.rails.write(e.a.from, 0, 8, e.a.there, 0); ++written) more = true;
    fake::finish();
    e.a.run();
  }
  CHECK(written > n * depth);
  CHECK(e.all_done());
  e.some_turns();
  CHECK(e.b.rails.duplicates() == 0);
  std::uint64_t received = 0;
  for (std::size_t i = 0; i < n; ++i) received += e.b.rails.health(i).received;
  CHECK(received == written);
}

TEST_CASE("a visitor that throws at each message of rails loses none of them", "[rails]") {
  struct thrown {};
  ends e(1);
  REQUIRE(e.all_up());
  std::uint32_t written = 0, arrived = 0;
  const auto visit = [&](const auto& event) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(event)>, dat::rails_message>) {
      CHECK(event.tag == static_cast<std::uint16_t>(arrived++));
      throw thrown();
    }
  };
  const std::uint32_t all = 10'000; // more than the numbers of messages that are not delivered
  const auto write = [&] {
    return written < all &&
           e.a.rails.write(e.a.from, 0, 8, e.a.there, 0, {.tag = static_cast<std::uint16_t>(written), .ordered = true});
  };
  for (std::uint32_t turn = 0; turn < 2 * all && arrived < all; ++turn) {
    while (e.a.rails.not_done() < 64 && write()) ++written;
    e.a.run();
    fake::finish();
    try {
      must(e.b.rails.run(visit));
    } catch (const thrown&) {
    }
    fake::finish();
  }
  CHECK(arrived == all);
  CHECK(e.b.rails.duplicates() == 0);
  CHECK(e.all_done());
}

} // namespace rails_test
