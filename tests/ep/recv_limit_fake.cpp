// The limit of what an endpoint receives: the receives that reach the device, and what becomes of longer messages.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/ep_params.hpp>
#include <dat/policies.hpp>
#include <dat/srq.hpp>
#include <dat/ud.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

using namespace unit;

namespace {

using lengths = std::vector<std::uint32_t>;

/// The segments of the receives that reach the device of an endpoint, in order. One object at a time.
class posted_receives {
public:
  explicit posted_receives(ibv_context* device) : ops_(device->ops) {
    seen_.clear();
    real_ = std::exchange(ops_.post_recv, [](ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
      for (const ibv_recv_wr* r = wr; r; r = r->next) note(*r);
      return real_(qp, wr, bad);
    });
    real_srq_ = std::exchange(ops_.post_srq_recv, [](ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
      note(*wr);
      return real_srq_(srq, wr, bad);
    });
  }
  posted_receives(const posted_receives&) = delete;
  posted_receives& operator=(const posted_receives&) = delete;
  ~posted_receives() {
    ops_.post_recv = real_;
    ops_.post_srq_recv = real_srq_;
  }
  [[nodiscard]] static std::vector<lengths> take() { return std::exchange(seen_, {}); }

private:
  static void note(const ibv_recv_wr& r) {
    lengths one;
    for (int i = 0; i < r.num_sge; ++i) one.push_back(r.sg_list[i].length);
    seen_.push_back(one);
  }

  ibv_context_ops& ops_;
  static inline std::vector<lengths> seen_;
  static inline int (*real_)(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**);
  static inline int (*real_srq_)(ibv_srq*, ibv_recv_wr*, ibv_recv_wr**);
};

/// Two connected sides, of which `b` receives at most `limit` bytes.
struct limited_receiver : pair {
  explicit limited_receiver(std::uint32_t limit) : pair({}, {.max_message_size = limit}) {}
  /// Checks that the receive and the send with these cookies have failed, and have broken the connection.
  void breaks(int receive, int send) {
    events at_a, at_b;
    for (int i = 0; i < 3; ++i) {
      for (const auto& e : a.take()) at_a.push_back(e);
      for (const auto& e : b.take()) at_b.push_back(e);
      settle();
    }
    // The side whose break is found first disconnects the other one.
    REQUIRE(at_b.size() == 2);
    CHECK(at_b.front() == "local length error " + std::to_string(receive));
    CHECK(b.ep.state() == dat::ep_state::disconnected);
    REQUIRE(at_a.size() == 2);
    CHECK(at_a.front() == "remote responder error " + std::to_string(send));
    CHECK(a.ep.state() == dat::ep_state::disconnected);
  }
};

} // namespace

TEST_CASE("a receive that is longer than max_message_size reaches the device with that length", "[dto]") {
  const clean_world world;
  pair p({.max_message_size = 64});
  const auto& ep = p.b.ep;
  const posted_receives device(ep.native_handle()->context);
  const auto piece = [&](std::size_t n) { return p.b.at(100, n); };
  must(ep.post(dat::recv{piece(63)}));
  must(ep.post(dat::recv{piece(64)}));
  CHECK(device.take() == std::vector<lengths>{{63}, {64}});
  must(ep.post(dat::recv{piece(65)}));
  must(ep.post(dat::recv{p.b.mem}));
  CHECK(device.take() == std::vector<lengths>{{64}, {64}});
  // A list that ends at the limit, that ends one byte behind it, and one of which a whole segment is left out.
  must(ep.post(dat::recv{dat::iov{piece(24), piece(40)}}));
  must(ep.post(dat::recv{dat::iov{piece(24), piece(41)}}));
  must(ep.post(dat::recv{dat::iov{piece(24), piece(40), piece(1)}}));
  must(ep.post(dat::recv{dat::iov{piece(24), piece(39), piece(9), piece(9)}}));
  CHECK(device.take() == std::vector<lengths>{{24, 40}, {24, 40}, {24, 40}, {24, 39, 1}});
  // Segments of length 0, which no device gets, and several receives of one call.
  const auto none = p.b.at(0, 0);
  must(ep.post(dat::recv{dat::iov{none, piece(60), none, piece(60)}}));
  must(ep.post(dat::recv{piece(8)}, dat::recv{piece(70)}, dat::recv{dat::iov{piece(7), piece(70)}}));
  CHECK(device.take() == std::vector<lengths>{{60, 4}, {8}, {64}, {7, 57}});
  // The list that is cut has to be one that the endpoint takes.
  is_error(ep.post(dat::recv{dat::iov{piece(64), piece(1), piece(1), piece(1), piece(1)}}),
           dat::return_type::invalid_parameter, dat::return_subtype::arg2);
  CHECK(device.take().empty());
}

TEST_CASE("receives are as long as they are posted where nothing limits them", "[dto]") {
  const clean_world world;
  SECTION("no max_message_size is set") {
    pair p;
    const posted_receives device(p.b.ep.native_handle()->context);
    must(p.b.ep.post(dat::recv{p.b.mem}));
    CHECK(device.take() == std::vector<lengths>{{4096}});
  }
  SECTION("the policy unchecked posts them") {
    pair p({.max_message_size = 64});
    const posted_receives device(p.b.ep.native_handle()->context);
    must(p.b.ep.post<dat::unchecked>(dat::recv{p.b.at(0, 65)}));
    CHECK(device.take() == std::vector<lengths>{{65}});
    must(p.b.ep.post<dat::tracked>(dat::recv{p.b.at(0, 65)})); // checks
    CHECK(device.take() == std::vector<lengths>{{64}});
  }
  SECTION("the endpoint is for datagrams, whose receives have a header") {
    end a;
    const auto evd = must(a.ia.create_evd<ud_streams>(64));
    const auto ep = must(a.pz.create_ep<dat::ud>(evd, {.max_message_size = 64}));
    const posted_receives device(a.ia.native_handle());
    must(ep.post(dat::recv{a.at(0, 64 + dat::ib::grh::size)}));
    CHECK(device.take() == std::vector<lengths>{{64 + dat::ib::grh::size}});
  }
  SECTION("the queue is a shared one, which has no endpoint") {
    end a;
    const auto srq = must(a.pz.create_srq());
    const auto ep = must(a.pz.create_ep<dat::rc>(a.evd, srq, {.max_message_size = 64}));
    const posted_receives device(a.ia.native_handle());
    must(srq.post(dat::recv{a.at(0, 65)}));
    CHECK(device.take() == std::vector<lengths>{{65}});
  }
}

TEST_CASE("a message of max_message_size arrives, and a longer one breaks the connection and writes no more", "[dto]") {
  const clean_world world;
  const std::uint32_t limit = GENERATE(64u, 1024u);
  limited_receiver p(limit);
  p.a.memory.fill('x');
  const bool split = GENERATE(false, true);
  const auto receive = [&](std::uint64_t cookie) {
    if (split)
      must(p.b.ep.post(dat::recv{dat::iov{p.b.at(0, 24), p.b.at(24, 2 * limit)}}.cookie(cookie)));
    else
      must(p.b.ep.post(dat::recv{p.b.at(0, 2 * limit)}.cookie(cookie)));
  };
  receive(1);
  must(p.a.ep.post(dat::send{p.a.at(0, limit)}.cookie(2)));
  CHECK(p.a.take() == events{"sent 2"});
  CHECK(p.b.take() == events{"received 1"});
  CHECK(std::string(p.b.memory.data(), limit + 1) == std::string(limit, 'x') + '\0');
  p.b.memory.fill('.');
  receive(3);
  must(p.a.ep.post(dat::send{p.a.at(0, limit + 1)}.cookie(4)));
  p.breaks(3, 4);
  CHECK(std::string(p.b.memory.data() + limit, limit) == std::string(limit, '.'));
}

TEST_CASE("with a max_message_size of 0 only empty messages arrive", "[dto]") {
  const clean_world world;
  limited_receiver p(0);
  must(p.b.ep.post(dat::recv{p.b.mem}.cookie(1)));
  must(p.a.ep.post(dat::send{}.cookie(2)));
  CHECK(p.b.take() == events{"received 1"});
  CHECK(p.a.take() == events{"sent 2"});
  must(p.b.ep.post(dat::recv{p.b.mem}.cookie(3)));
  must(p.a.ep.post(dat::send{p.a.at(0, 1)}.cookie(4)));
  p.breaks(3, 4);
}

TEST_CASE("a receive keeps the max_message_size with which it was posted", "[dto]") {
  const clean_world world;
  end a;
  a.make_ep({.max_message_size = 64});
  const posted_receives device(a.ia.native_handle());
  must(a.ep.post(dat::recv{a.at(0, 100)}));
  CHECK(device.take() == std::vector<lengths>{{64}});
  must(a.ep.modify({.max_message_size = 80}));
  must(a.ep.post(dat::recv{a.at(0, 100)}));
  CHECK(device.take() == std::vector<lengths>{{80}});
  must(a.ep.modify({.retry_count = std::uint8_t{1}}));
  must(a.ep.post(dat::recv{a.at(0, 100)}));
  CHECK(device.take() == std::vector<lengths>{{80}});
}

TEST_CASE("a write with immediate data may be longer than the receiver's max_message_size", "[dto]") {
  const clean_world world;
  limited_receiver p(64);
  must(p.b.ep.post(dat::recv{p.b.at(0, 100)}.cookie(1)));
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 65), must(p.b.mem.remote(200, 65))}.immediate(1).cookie(2)));
  CHECK(p.b.take() == events{"write arrived 1"});
}
