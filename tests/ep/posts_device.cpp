// Posts on a device: several operations in one call, batches, and what may change when the post returns.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <support/signal_handler.hpp>

#include <algorithm>
#include <malloc.h>

namespace device {

TEST_CASE("several operations in one call complete in order and allocate nothing", "[dto][DTO-091][DTO-002]") {
  NEEDS_FEATURE(immediate_data);
  connected_pair link;
  buffer out(link.a.pz, 300);
  buffer in(link.b.pz, 300);
  fill(out.bytes, 9);
  must(link.passive.post(dat::recv{in.slice(0, 100)}.cookie(1), dat::recv{}.cookie(2),
                         dat::recv{in.slice(200, 100)}.cookie(3)));
  must(link.active.post(dat::send{out.slice(0, 100)}.cookie(4),
                        dat::rdma_write{out.slice(100, 100), in.remote(100, 100)}.immediate(5).cookie(6),
                        dat::send{dat::iov{out.slice(200, 50), out.slice(250, 50)}}.cookie(7)));
  CHECK(next<dat::recv_done>(link.b.evd).cookie() == dat::cookie(1));
  CHECK(next<dat::ib::recv_write_immediate_done>(link.b.evd).cookie() == dat::cookie(2));
  CHECK(next<dat::recv_done>(link.b.evd).cookie() == dat::cookie(3));
  CHECK(next<dat::send_done>(link.a.evd).cookie() == dat::cookie(4));
  CHECK(next<dat::ib::rdma_write_immediate_done>(link.a.evd).cookie() == dat::cookie(6));
  CHECK(next<dat::send_done>(link.a.evd).cookie() == dat::cookie(7));
  CHECK(has_pattern(in.bytes, 9));

  // Posts and completions allocate nothing, for one operation or several.
  const auto in_use = ::mallinfo2().uordblks; // allocations of this thread, or of threads that share its heap
  for (int i = 0; i < 100; ++i) {
    must(link.passive.post(dat::recv{in.slice(0, 100)}, dat::recv{}, dat::recv{}));
    must(
        link.active.post(dat::send{out.slice(0, 100)},
                         dat::rdma_write{dat::iov{out.slice(0, 1), out.slice(1, 1)}, in.remote()}.suppress_completion(),
                         dat::rdma_write{out.slice(0, 1), in.remote()}.immediate(1).suppress_completion(),
                         dat::rdma_read{out.slice(0, 100), in.remote(0, 100)}, dat::send{}));
    for (int n = 0; n < 3; ++n) (void)must(link.a.evd.wait(patience));
    for (int n = 0; n < 3; ++n) (void)must(link.b.evd.wait(patience));
  }
  CHECK(::mallinfo2().uordblks == in_use);
  SHOWS("IBX-027");

  // With one invalid request, no request of the call is posted.
  const auto refused = error_of(link.active.post(dat::send{}, dat::rdma_write{out.lmr, in.remote(0, 10)}, dat::send{}));
  CHECK(refused.type() == type::length_error);
  still_works(link);
}

TEST_CASE("post_n delivers all its requests, or those before a refused one", "[dto][DTO-091]") {
  connected_pair link({.active = {.max_request_dtos = 50}});
  constexpr std::size_t piece = 30;
  buffer out(link.a.pz, 41 * piece);
  buffer in(link.b.pz, 41 * piece);
  fill(out.bytes, 11);
  const auto write = [&](std::size_t i) {
    return dat::rdma_write{out.slice(i * piece, piece), in.remote(i * piece, piece)}.cookie(i);
  };
  must(link.active.post_n(41, write));
  for (std::uint64_t i = 0; i < 41; ++i) CHECK(next<dat::rdma_write_done>(link.a.evd).cookie() == dat::cookie(i));
  CHECK(has_pattern(in.bytes, 11));

  const auto refused = error_of(link.active.post_n(30, [&](std::size_t i) {
    return i == 21 ? dat::rdma_write{out.slice(0, 11), in.remote(0, 10)} : write(i);
  }));
  CHECK(refused.type() == type::length_error);
  CHECK(refused.index() == 21);
  for (std::uint64_t i = 0; i < 21; ++i) CHECK(next<dat::rdma_write_done>(link.a.evd).cookie() == dat::cookie(i));
  still_works(link);
}

TEST_CASE("a batch is posted as a whole, can be posted again, and on another endpoint", "[dto]") {
  connected_pair link({.active = {.max_request_dtos = 20}});
  constexpr std::size_t piece = 100;
  buffer out(link.a.pz, 16 * piece);
  buffer in(link.b.pz, 16 * piece);
  dat::batch<16, 2> batch;
  CHECK(batch.empty());
  must(link.active.post(batch)); // has no effect
  for (std::size_t i = 0; i < 15; ++i) {
    dat::rdma_write write(out.slice(i * piece, piece), in.remote(i * piece, piece));
    REQUIRE(batch.push_back(write.cookie(i).suppress_completion()));
  }
  REQUIRE(batch.push_back(
      dat::rdma_write{dat::iov{out.slice(1500, 50), out.slice(1550, 50)}, in.remote(1500, 100)}.cookie(15)));
  CHECK(batch.full());
  CHECK_FALSE(batch.push_back(dat::send{}));

  for (std::uint32_t seed = 1; seed <= 3; ++seed) {
    fill(out.bytes, seed);
    must(link.active.post(batch));
    // 16 of 20 places are used: the batch does not fit, and none of it is posted.
    if (seed == 1)
      CHECK(error_of(link.active.post(batch)) == dat::error(type::insufficient_resources, subtype::resource_tep));
    CHECK(next<dat::rdma_write_done>(link.a.evd).cookie() == dat::cookie(15));
    CHECK(has_pattern(in.bytes, seed));
  }

  auto second = link.a.make_ep();
  CHECK(error_of(second.post(batch)) == dat::error(type::invalid_state, subtype::ep_unconnected));
  auto second_passive = link.b.make_ep();
  link.connect(second, second_passive);
  fill(out.bytes, 4);
  must(second.post(batch));
  CHECK(next<dat::rdma_write_done>(link.a.evd).ep() == second);
  CHECK(has_pattern(in.bytes, 4));

  // Requests that the endpoint cannot take are refused before any is posted.
  auto narrow = link.a.make_ep({.max_request_iov = 1});
  auto narrow_passive = link.b.make_ep();
  link.connect(narrow, narrow_passive);
  CHECK(error_of(narrow.post(batch)).type() == type::invalid_parameter);
  side stranger(0);
  buffer foreign(stranger.pz, 10);
  batch.clear();
  REQUIRE(batch.push_back(dat::send{}));
  REQUIRE(batch.push_back(dat::send{foreign.slice(0, 10)}));
  CHECK(error_of(link.active.post(batch)).type() == type::protection_violation);
  batch.clear();
  REQUIRE(batch.push_back(dat::rdma_write{out.slice(0, 10), in.remote(0, 9)}));
  CHECK(error_of(link.active.post(batch)).type() == type::length_error);
  still_works(link);

  if (!this_device().flushes_late) SKIP(no_late_flush);
  // On a disconnected endpoint a batch completes as flushed, suppressed requests included.
  batch.clear();
  for (int i = 0; i < 4; ++i) REQUIRE(batch.push_back(dat::send{}.cookie(i).suppress_completion()));
  link.disconnect(link.active, link.passive);
  must(link.active.post(batch));
  const auto flushed = take(link.a.evd, 4);
  INFO(sequence(flushed));
  for (int i = 0; i < 4; ++i) {
    const auto* f = std::get_if<dat::dto_failure>(&flushed[static_cast<std::size_t>(i)]);
    REQUIRE(f);
    CHECK(f->status() == dat::dto_status::flushed);
    CHECK(f->cookie() == dat::cookie(i));
  }
}

TEST_CASE("a list of segments may change as soon as the post returns", "[dto][COMP-047][REQ-095]") {
  connected_pair link({.active = {.max_request_iov = 2}, .passive = {.max_recv_iov = 2}});
  buffer out(link.a.pz, 200);
  buffer in(link.b.pz, 200);
  fill(out.bytes, 5);
  using list = dat::iov<2, all_rights.value>;
  list from;
  list to;
  const auto set = [](list& l, const buffer& b, std::size_t first) {
    l = list();
    REQUIRE(l.push_back(b.slice(first, 50)));
    REQUIRE(l.push_back(b.slice(first + 50, 50)));
  };
  set(to, in, 0);
  must(link.passive.post(dat::recv{to}));
  set(to, in, 100);
  set(from, out, 0);
  must(link.active.post(dat::send{from}));
  set(from, out, 100);
  CHECK(next<dat::recv_done>(link.b.evd).bytes() == 100);
  CHECK(has_pattern(std::span(in.bytes).first(100), 5));
  CHECK(std::all_of(in.bytes.begin() + 100, in.bytes.end(), [](std::byte b) { return b == std::byte{}; }));
  SHOWS("DTO-006", "DTO-007");
}

TEST_CASE("inlined data may change as soon as the post returns", "[dto][DTO-092]") {
  connected_pair link({.active = {.max_inline = 64}});
  buffer out(link.a.pz, 64 * 1024);
  buffer in(link.b.pz, 64);
  for (std::uint32_t round = 0; round < 20; ++round) {
    must(link.passive.post(dat::recv{in.lmr}));
    fill(out.part(0, 64), round);
    must(link.active.post(dat::send{dat::iov{out.slice(0, 10), out.slice(10, 54)}}.inlined()));
    std::fill(out.bytes.begin(), out.bytes.end(), std::byte{0xff});
    (void)next<dat::recv_done>(link.b.evd);
    CHECK(has_pattern(in.bytes, round));
    (void)next<dat::send_done>(link.a.evd);
    fill(out.part(0, 64), round + 100);
    must(link.active.post(dat::rdma_write{out.slice(0, 64), in.remote()}.inlined()));
    std::fill(out.bytes.begin(), out.bytes.end(), std::byte{0xff});
    (void)next<dat::rdma_write_done>(link.a.evd);
    CHECK(has_pattern(in.bytes, round + 100));
  }
  const auto e = error_of(link.active.post(dat::send{out.lmr}.inlined()));
  CHECK(e.type() == type::length_error);
  CHECK_THAT(e.message(), support::contains_text("max_inline"));
  still_works(link);
}

TEST_CASE("receives that were posted before connecting are used in order", "[dto][DTO-125][REQ-045]") {
  two_sides link;
  auto active = link.a.make_ep();
  auto passive = link.b.make_ep();
  buffer in(link.b.pz, 400);
  buffer out(link.a.pz, 100);
  for (std::size_t i = 0; i < 3; ++i) must(passive.post(dat::recv{in.slice(i * 100, 100)}.cookie(i)));
  // A signal handler posts the last one, and later all sends.
  using support::in_handler;
  CHECK(in_handler([&] { return passive.post(dat::recv{in.slice(300, 100)}.cookie(3)).has_value(); }));
  link.connect(active, passive);
  for (std::uint32_t i = 0; i < 4; ++i) {
    fill(out.bytes, i);
    CHECK(in_handler([&] { return active.post(dat::send{out.lmr}).has_value(); }));
    (void)next<dat::send_done>(link.a.evd);
    CHECK(next<dat::recv_done>(link.b.evd).cookie() == dat::cookie(i));
    CHECK(has_pattern(in.part(i * 100, 100), i));
  }
}

} // namespace device
