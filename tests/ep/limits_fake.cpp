// Each limit of a post: what is exactly at the limit is posted, and one more is refused, whatever way the post takes.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/batch.hpp>
#include <dat/ep_params.hpp>
#include <dat/srq.hpp>

#include <optional>

using namespace unit;
using dat::return_subtype;
using dat::return_type;

namespace {

/// The ways in which an endpoint takes a request.
enum class way { alone, in_a_list, in_a_batch };

template <class Request>
dat::expected<void> posted(const dat::ep<dat::rc>& ep, const Request& r, way how) {
  if (how == way::in_a_list) return ep.post(r, r);
  if (how == way::alone) return ep.post(r);
  dat::batch<2, 5> b;
  REQUIRE(b.push_back(r));
  return ep.post(b);
}

const dat::ep_attributes limited{.max_request_dtos = 16,
                                 .max_recv_dtos = 16,
                                 .max_request_iov = 3,
                                 .max_recv_iov = 2,
                                 .max_inline = 48, // that of three segments
                                 .max_message_size = 64};

/// Two connected sides, with a segment for each number of bytes.
struct limits : pair {
  limits() : pair(limited) {}
  auto mine(std::size_t n) { return a.at(0, n); }
  auto theirs(std::size_t n) { return must(b.mem.remote(0, n)); }
  void drop_all() {
    settle();
    (void)a.take(), (void)b.take();
  }
  /// Checks a request that is within a limit, and one that exceeds it.
  template <class Good, class Bad>
  void limit(way how, const Good& good, const Bad& bad, return_type type, return_subtype subtype = {}) {
    while (b.ep.post(dat::recv{b.mem})) {
    }
    CHECK(posted(a.ep, good, how).has_value());
    // In a batch no argument of the call is to blame.
    is_error(posted(a.ep, bad, how), type, how == way::in_a_batch ? return_subtype::none : subtype);
    drop_all();
  }
};

} // namespace

TEST_CASE("a request at each limit is posted, and one above is refused", "[dto]") {
  const clean_world world;
  limits p;
  const way how = GENERATE(way::alone, way::in_a_list, way::in_a_batch);
  constexpr auto length = return_type::length_error;
  const auto none = p.a.at(0, 0);
  // Bytes of a message, in one segment, in two, and beside an empty one.
  p.limit(how, dat::send{p.mine(64)}, dat::send{p.mine(65)}, length);
  p.limit(how, dat::send{dat::iov{p.mine(32), p.mine(32)}}, dat::send{dat::iov{p.mine(32), p.mine(33)}}, length);
  p.limit(how, dat::send{dat::iov{none, p.mine(64)}}, dat::send{dat::iov{none, p.mine(65)}}, length);
  p.limit(how, dat::rdma_write{p.mine(64), p.theirs(100)}, dat::rdma_write{p.mine(65), p.theirs(100)}, length);
  p.limit(how, dat::rdma_read{p.mine(64), p.theirs(100)}, dat::rdma_read{p.mine(65), p.theirs(100)}, length);
  p.limit(how, dat::rdma_read{dat::iov{none, p.mine(64)}, p.theirs(100)},
          dat::rdma_read{dat::iov{none, p.mine(65)}, p.theirs(100)}, length);
  // Bytes that are inlined.
  p.limit(how, dat::send{p.mine(48)}.inlined(), dat::send{p.mine(49)}.inlined(), length);
  p.limit(how, dat::send{dat::iov{none, p.mine(48)}}.inlined(), dat::send{dat::iov{none, p.mine(49)}}.inlined(),
          length);
  p.limit(how, dat::rdma_write{p.mine(48), p.theirs(48)}.inlined(), dat::rdma_write{p.mine(49), p.theirs(49)}.inlined(),
          length);
  // Bytes of the remote segment.
  p.limit(how, dat::rdma_write{p.mine(8), p.theirs(8)}, dat::rdma_write{p.mine(8), p.theirs(7)}, length);
  p.limit(how, dat::rdma_read{p.mine(8), p.theirs(8)}, dat::rdma_read{p.mine(8), p.theirs(7)}, length);
  p.limit(how, dat::rdma_write{dat::iov{p.mine(4), p.mine(4)}, p.theirs(8)},
          dat::rdma_write{dat::iov{p.mine(4), p.mine(5)}, p.theirs(8)}, length);
  p.limit(how, dat::rdma_write{dat::iov{none, p.mine(8)}, p.theirs(8)},
          dat::rdma_write{dat::iov{none, p.mine(8)}, p.theirs(7)}, length);
  // Segments, of which empty ones do not count.
  const auto s = p.mine(4);
  constexpr auto bad = return_type::invalid_parameter;
  p.limit(how, dat::send{dat::iov{s, s, s}}, dat::send{dat::iov{s, s, s, s}}, bad, return_subtype::arg2);
  p.limit(how, dat::send{dat::iov{s, none, s, s}}, dat::send{dat::iov{s, none, s, s, s}}, bad, return_subtype::arg2);
  p.limit(how, dat::rdma_write{dat::iov{s, s, s}, p.theirs(16)}, dat::rdma_write{dat::iov{s, s, s, s}, p.theirs(16)},
          bad, return_subtype::arg2);
  p.limit(how, dat::rdma_read{dat::iov{s, s, s}, p.theirs(16)}, dat::rdma_read{dat::iov{s, s, s, s}, p.theirs(16)}, bad,
          return_subtype::arg2);
}

TEST_CASE("a receive of as many segments as the endpoint or the queue takes is posted, and one more is refused",
          "[dto][srq]") {
  const clean_world world;
  end e;
  const std::uint32_t most = GENERATE(1u, 2u, 3u);
  const bool shared = GENERATE(false, true);
  e.make_ep({.max_recv_iov = most});
  auto srq = must(e.pz.create_srq({.max_recv_dtos = 15, .max_recv_iov = most}));
  const std::uint32_t room = shared ? must(srq.query()).max_recv_iov : most;
  const auto s = e.at(0, 4);
  const auto none = e.at(0, 0);
  const auto post = [&](std::uint32_t n, const auto& list) {
    INFO(n << " segments of " << room);
    const dat::recv r{list};
    const auto one = shared ? srq.post(r) : e.ep.post(r);
    const auto two = shared ? srq.post(r, r) : e.ep.post(r, r);
    for (const auto& done : {one, two})
      if (n <= room)
        CHECK(done.has_value());
      else
        is_error(done, return_type::invalid_parameter, return_subtype::arg2);
  };
  post(1, dat::iov{s});
  post(2, dat::iov{s, s});
  post(3, dat::iov{s, s, s});
  post(4, dat::iov{s, s, s, s});
  post(2, dat::iov{s, none, s});
  if (!shared) CHECK(must(e.ep.recv_query()).allocated == (room == 1 ? 3u : room == 2 ? 9u : 12u));
}

TEST_CASE("a queue takes exactly its number of requests and of receives, also in lists", "[dto]") {
  const clean_world world;
  pair p({.max_request_dtos = 5, .max_recv_dtos = 5});
  fake::hold(p.a.ep.native_handle());
  const dat::rdma_write w{p.a.at(0, 1), p.b.mem.remote()};
  must(p.a.ep.post(w, w, w));
  is_error(p.a.ep.post(w, w, w), return_type::insufficient_resources, return_subtype::resource_tep);
  must(p.a.ep.post(w, w));
  is_error(p.a.ep.post(w), return_type::insufficient_resources, return_subtype::resource_tep);
  const dat::recv r;
  must(p.b.ep.post(r, r, r));
  is_error(p.b.ep.post(r, r, r), return_type::insufficient_resources, return_subtype::resource_tep);
  must(p.b.ep.post(r, r));
  is_error(p.b.ep.post(r), return_type::insufficient_resources, return_subtype::resource_tep);
  fake::hold(p.a.ep.native_handle(), false);
  CHECK(p.a.take().size() == 5);
  must(p.a.ep.post(w, w, w, w, w));
  is_error(p.a.ep.post(w), return_type::insufficient_resources, return_subtype::resource_tep);
  (void)p.a.take();
}
