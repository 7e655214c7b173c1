// What verbs and rdma_cm get for a connection: each member of their structures, compared with the attributes.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/descriptor.hpp>
#include <dat/ep_params.hpp>
#include <dat/srq.hpp>

#include <bit>

using namespace unit;

namespace {

using namespace std::chrono_literals;

/// Attributes that all differ from their defaults. Sizes of queues, with the library's own request, and numbers of
/// reads are those to which a device rounds.
const dat::ep_attributes unusual{.max_request_dtos = 30,
                                 .max_recv_dtos = 63,
                                 .max_request_iov = 3,
                                 .max_recv_iov = 2,
                                 .max_inline = 40,
                                 .max_rdma_read_out = 8,
                                 .max_rdma_read_in = 4,
                                 .retry_count = 3,
                                 .rnr_retry_count = 2,
                                 .ack_timeout = 4ms,
                                 .min_rnr_timer = 120us};

struct qp_view {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
};
qp_view view_of(ibv_qp* qp) {
  qp_view v;
  REQUIRE(ibv_query_qp(qp, &v.attr, IBV_QP_CAP, &v.init) == 0);
  return v;
}

/// A side with a shared queue or without, and the other one.
struct two_sides {
  explicit two_sides(bool shared, const dat::ep_attributes& first = unusual, const dat::ep_attributes& second = {}) {
    if (shared) {
      queue = must(a.pz.create_srq());
      a.ep = must(a.pz.create_ep<dat::rc>(a.evd, queue, first));
    } else {
      a.make_ep(first);
    }
    b.make_ep(second);
  }
  end a{"fk1"};
  end b{"fk2"};
  dat::srq queue;
  dat::psp at_a = must(a.ia.create_psp(service, a.evd));
  dat::psp at_b = must(b.ia.create_psp(service, b.evd));

  void connect(end& from, end& to) {
    must(from.ep.connect(to.ia.address(), service, plenty));
    settle(from, to);
    must(request_on(to.evd).accept(to.ep));
    settle(from, to);
    CHECK(from.take() == events{"established"});
    CHECK(to.take() == events{"established"});
  }
};

} // namespace

TEST_CASE("the request and the reply of a connection carry the attributes of their endpoint", "[connection]") {
  const bool shared = GENERATE(false, true);
  const bool active = GENERATE(false, true);
  INFO((shared ? "shared queue, " : "own queue, ") << (active ? "connects" : "accepts"));
  const clean_world world;
  two_sides s(shared);
  active ? s.connect(s.a, s.b) : s.connect(s.b, s.a);
  const auto all = fake::connection_parameters();
  REQUIRE(all.size() == 2);
  const rdma_conn_param& p = all[active ? 0 : 1];
  CHECK(p.qp_num == s.a.ep.number());
  CHECK(p.srq == (shared ? 1 : 0));
  CHECK(p.retry_count == 3);
  CHECK(p.rnr_retry_count == 2);
  CHECK(p.flow_control == 1);
  CHECK(p.responder_resources == 4);
  CHECK(p.initiator_depth == 8);
  const rdma_conn_param& other = all[active ? 1 : 0];
  CHECK(other.qp_num == s.b.ep.number());
  CHECK(other.srq == 0);
  CHECK(other.retry_count == dat::ep_attributes().retry_count);
  CHECK(other.rnr_retry_count == dat::ep_attributes().rnr_retry_count);
}

TEST_CASE("a request has no bit of flow control if its private data only ends like a mark of dat", "[connection]") {
  const clean_world world;
  two_sides s(false, {});
  for (const char* const end : {"DAT4", "DAT5"}) { // '4' is 52, and '5' is no length
    must(s.a.ep.connect(s.b.ia.address(), service, plenty, bytes_of(std::string(52, 'x') + end)));
    settle(s.a, s.b);
    must(request_on(s.b.evd).reject());
    settle(s.a, s.b);
    (void)s.a.take();
    must(s.a.ep.reset());
  }
  const auto all = fake::connection_parameters();
  REQUIRE(all.size() == 2);
  CHECK(all[0].flow_control == 0);
  CHECK(all[1].flow_control == 1);
}

TEST_CASE("an adapter without RDMA reads has endpoints without them", "[ep]") {
  fake::world w;
  w.devices[0].attr = fake::rxe_attr();
  w.devices[0].attr->max_qp_rd_atom = w.devices[0].attr->max_qp_init_rd_atom = 0;
  const clean_world world(w);
  end e;
  CHECK(e.pz.create_ep<dat::rc>(e.evd));
  is_error(e.pz.create_ep<dat::rc>(e.evd, {.max_rdma_read_in = std::uint8_t{1}}), dat::return_type::invalid_parameter,
           dat::return_subtype::arg7);
}

TEST_CASE("a queue pair for no receives has no room for receives", "[ep]") {
  const clean_world world;
  end e;
  e.make_ep({.max_recv_dtos = 0});
  CHECK(view_of(e.ep.native_handle()).init.cap.max_recv_wr == 0);
}

TEST_CASE("a reply promises to serve no more reads than the request asks for", "[connection]") {
  const clean_world world;
  two_sides s(false, {.max_rdma_read_out = 2}, {.max_rdma_read_in = 9});
  s.connect(s.a, s.b);
  const auto all = fake::connection_parameters();
  REQUIRE(all.size() == 2);
  CHECK(all[0].initiator_depth == 2);
  CHECK(all[1].responder_resources == 2);
}

TEST_CASE("the queue pair of a connection has the attributes of its endpoint", "[connection]") {
  const bool shared = GENERATE(false, true);
  const bool active = GENERATE(false, true);
  const clean_world world;
  two_sides s(shared);
  const auto& ep = s.a.ep;
  const auto before = view_of(ep.native_handle());
  CHECK(before.attr.qp_state == IBV_QPS_INIT);
  CHECK(before.init.qp_type == IBV_QPT_RC);
  CHECK(before.init.send_cq == s.a.evd.native_handle());
  CHECK(before.init.recv_cq == s.a.evd.native_handle());
  CHECK(before.init.sq_sig_all == 0);
  CHECK((before.init.srq != nullptr) == shared);
  CHECK(before.init.cap.max_send_wr == 31); // and one of the library's own
  CHECK(before.init.cap.max_send_sge == 3);
  CHECK(before.init.cap.max_recv_wr == (shared ? 0 : 63));
  CHECK(before.init.cap.max_recv_sge == (shared ? 0 : 2));
  CHECK(before.init.cap.max_inline_data >= 40);
  active ? s.connect(s.a, s.b) : s.connect(s.b, s.a);
  const auto v = view_of(ep.native_handle());
  const auto peer = view_of(s.b.ep.native_handle());
  CHECK(v.attr.qp_state == IBV_QPS_RTS);
  CHECK(v.attr.port_num == 1);
  CHECK(v.attr.pkey_index == before.attr.pkey_index);
  CHECK(v.attr.qp_access_flags ==
        (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC));
  CHECK(v.attr.timeout == 10); // 4.096 us * 2^10 is the first that is not below 4 ms
  CHECK(v.attr.min_rnr_timer == 7);
  CHECK(v.attr.retry_cnt == 3);
  CHECK(v.attr.rnr_retry == 2);
  CHECK(v.attr.max_rd_atomic == 8);
  CHECK(v.attr.max_dest_rd_atomic == 4);
  CHECK(v.attr.dest_qp_num == s.b.ep.number());
  CHECK(peer.attr.dest_qp_num == ep.number());
  CHECK(v.attr.path_mtu == peer.attr.path_mtu);
  CHECK(peer.attr.max_rd_atomic <= 4); // as many as the other side serves
}

TEST_CASE("modify gives the next queue pair the new attributes, and a failed modify the old ones", "[ep]") {
  const bool fails = GENERATE(false, true);
  const clean_world world;
  two_sides s(false, {});
  const dat::ep_attributes old = s.a.ep.attributes();
  const dat::ep_changes all{.max_request_dtos = unusual.max_request_dtos,
                            .max_recv_dtos = unusual.max_recv_dtos,
                            .max_request_iov = unusual.max_request_iov,
                            .max_recv_iov = unusual.max_recv_iov,
                            .max_inline = unusual.max_inline,
                            .max_rdma_read_out = unusual.max_rdma_read_out,
                            .max_rdma_read_in = unusual.max_rdma_read_in,
                            .retry_count = unusual.retry_count,
                            .rnr_retry_count = unusual.rnr_retry_count,
                            .ack_timeout = unusual.ack_timeout,
                            .min_rnr_timer = unusual.min_rnr_timer};
  if (fails) fake::fail(fake::call::ibv_create_qp, 1, ENOMEM);
  CHECK(s.a.ep.modify(all).has_value() != fails);
  const dat::ep_attributes& now = fails ? old : unusual;
  s.connect(s.a, s.b);
  const auto v = view_of(s.a.ep.native_handle());
  CHECK(v.init.cap.max_send_wr == std::bit_ceil(now.max_request_dtos + 2) - 1);
  CHECK(v.init.cap.max_send_sge == now.max_request_iov);
  CHECK(v.init.cap.max_recv_wr == std::bit_ceil(now.max_recv_dtos + 1) - 1);
  CHECK(v.init.cap.max_recv_sge == now.max_recv_iov);
  CHECK(v.attr.retry_cnt == now.retry_count);
  CHECK(v.attr.rnr_retry == now.rnr_retry_count);
  if (fails) return;
  CHECK(v.attr.timeout == 10);
  CHECK(v.attr.min_rnr_timer == 7);
  CHECK(v.attr.max_rd_atomic == 8);
  CHECK(v.attr.max_dest_rd_atomic == 4);
}

TEST_CASE("a failed modify leaves the evds that it names as they were", "[ep]") {
  const clean_world world;
  end e;
  auto ep = must(e.pz.create_ep<dat::rc>(e.evd));
  auto spare = must(e.ia.create_evd<dat::stream::dto | dat::stream::software>(64));
  fake::fail(fake::call::ibv_create_qp, 1, ENOMEM);
  is_error(ep.modify({.recv = spare, .recv_completion = dat::completion_notification::selective}),
           dat::return_type::insufficient_resources, dat::return_subtype::resource_tep);
  CHECK(must(ep.query()).recv == e.evd.id());
  // An endpoint of another mode may use the evd, which no endpoint uses.
  auto other = must(e.pz.create_ep<dat::rc>({.recv = spare, .request = spare, .connect = e.evd}));
  must(other.close());
  must(spare.close());
}

TEST_CASE("a failed modify leaves the modes of the evds of the endpoint as they were", "[ep]") {
  const clean_world world;
  end e;
  auto receives = must(e.ia.create_evd<dat::stream::dto | dat::stream::software>(64));
  auto requests = must(e.ia.create_evd<dat::stream::dto | dat::stream::software>(64));
  auto ep = must(e.pz.create_ep<dat::rc>({.recv = receives, .request = requests, .connect = e.evd}));
  fake::fail(fake::call::ibv_create_qp, 1, ENOMEM);
  is_error(ep.modify({.max_request_iov = 3,
                      .recv_completion = dat::completion_notification::selective,
                      .request_completion = dat::completion_notification::selective}),
           dat::return_type::insufficient_resources, dat::return_subtype::resource_tep);
  // An evd accepts only endpoints of its own mode, so this call succeeds only if the mode is the default again.
  auto other = must(e.pz.create_ep<dat::rc>({.recv = receives, .request = requests, .connect = e.evd}));
}

TEST_CASE("the events of a connection go to the evd that modify has set", "[ep]") {
  const clean_world world;
  two_sides s(false, {});
  auto other = must(s.a.ia.create_evd<all_streams>(16));
  must(s.a.ep.modify({.connect = other}));
  must(s.a.ep.connect(s.b.ia.address(), service, plenty));
  settle(s.a, s.b);
  must(request_on(s.b.evd).accept(s.b.ep));
  settle(s.a, s.b);
  CHECK(s.a.take().empty());
  CHECK(take(other) == events{"established"});
}

TEST_CASE("an evd that does not count receives allows no watermark", "[ep]") {
  const clean_world world;
  end e;
  auto plain = must(e.ia.create_evd<dat::stream::dto>(64));
  auto ep = must(e.pz.create_ep<dat::rc>({.recv = plain, .request = plain, .connect = e.evd}));
  must(ep.set_watermark(dat::no_watermark, dat::no_watermark));
  is_error(ep.set_watermark(dat::no_watermark, 5), dat::return_type::model_not_supported);
  is_error(ep.set_watermark(5, dat::no_watermark), dat::return_type::model_not_supported);
}

TEST_CASE("an atomic of words names them, and that of a segment without a word is refused", "[ib]") {
  const clean_world world;
  two_sides s(false, {});
  s.connect(s.a, s.b);
  std::array<std::uint64_t, 4> here{9, 9, 9, 9};
  std::array<std::uint64_t, 4> there{1, 10, 100, 1000};
  constexpr auto rights = dat::local_read | dat::local_write | dat::remote_atomic;
  auto mine = must(s.a.pz.register_memory(here, rights));
  auto theirs = must(s.b.pz.register_memory(there, rights));
  const auto old = must(mine.slice(0, 4));
  const auto target = theirs.remote();
  must(s.a.ep.post(dat::ib::fetch_and_add{must(old.word(1)), must(target.word(2)), 5}.cookie(1)));
  must(s.a.ep.post(dat::ib::compare_and_swap{must(old.word(3)), must(target.word(3)), 1000, 7}.cookie(2)));
  must(s.a.ep.post(dat::ib::compare_and_swap{must(old.word(0)), must(target.word(1)), 11, 7}.cookie(3)));
  CHECK(s.a.take() == events{"added 1", "compared 2", "compared 3"});
  CHECK(here == std::array<std::uint64_t, 4>{10, 100, 9, 1000});
  CHECK(there == std::array<std::uint64_t, 4>{1, 10, 105, 7});
  auto wire = target.to_wire();
  wire[7] ^= std::byte{4}; // the address: between two words
  const auto between = must(decltype(target)::from_wire(wire));
  is_error(s.a.ep.post(dat::ib::fetch_and_add{must(old.slice(0, 1)), between, 1}), dat::return_type::invalid_parameter,
           dat::return_subtype::arg6);
  CHECK(s.a.take().empty());
  CHECK(there == std::array<std::uint64_t, 4>{1, 10, 105, 7});
}

TEST_CASE("private data of exactly 56 bytes reaches the peer in each message", "[connection]") {
  const clean_world world;
  const std::string most(56, 'x');
  two_sides s(false, {});
  must(s.a.ep.connect(s.b.ia.address(), service, plenty, bytes_of(most)));
  settle(s.a, s.b);
  auto request = request_on(s.b.evd);
  CHECK(text_of(request.private_data()) == most);
  must(request.accept(s.b.ep, bytes_of(most)));
  settle(s.a, s.b);
  CHECK(text_of(must(s.a.evd.wait_for<dat::established>(0s)).private_data()) == most);
  auto other = must(s.a.pz.create_ep<dat::rc>(s.a.evd));
  must(other.connect(s.b.ia.address(), service, plenty));
  settle(s.a, s.b);
  (void)s.b.evd.wait_for<dat::established>(0s);
  must(must(s.b.evd.wait_for<dat::connection_request>(0s)).reject(bytes_of(most)));
  settle(s.a, s.b);
  CHECK(text_of(must(s.a.evd.wait_for<dat::peer_rejected>(0s)).private_data()) == most);
}

TEST_CASE("a connection by descriptors gives the peer the rights of the latest attributes", "[descriptor]") {
  const fake::with roce(fake::personality::kind);
  const clean_world world;
  two_sides s(false, {.max_rdma_read_in = std::uint8_t{0}});
  must(s.a.ep.modify({.max_rdma_read_in = std::uint8_t{4}}));
  const auto of_a = must(s.a.ep.export_descriptor());
  const auto of_b = must(s.b.ep.export_descriptor());
  must(s.a.ep.connect(of_b));
  must(s.b.ep.connect(of_a));
  const auto v = view_of(s.a.ep.native_handle());
  CHECK(v.attr.port_num == 1);
  CHECK((v.attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) != 0);
  CHECK(v.attr.max_dest_rd_atomic == 4);
  CHECK(v.attr.dest_qp_num == s.b.ep.number());
  const auto peer = view_of(s.b.ep.native_handle());
  CHECK(v.attr.rq_psn == peer.attr.sq_psn);
  CHECK(v.attr.sq_psn == peer.attr.rq_psn);
  // On RoCE an endpoint is named by the IPv4 address of its adapter, if there is one.
  CHECK(of_a.host() == must(dat::ia_address::parse("10.99.1.1")));
}

TEST_CASE("a wait that expires says that operations of an ended endpoint have no completions", "[evd]") {
  const clean_world world;
  const bool receives = GENERATE(false, true);
  two_sides s(false, {});
  s.connect(s.a, s.b);
  const auto hint = [&] { return std::string(s.a.evd.wait(0s).error().hint()); };
  CHECK(hint().empty());
  fake::hold(s.a.ep.native_handle());
  if (receives)
    must(s.a.ep.post(dat::recv{}));
  else
    must(s.a.ep.post(dat::send{}));
  must(s.a.ep.close());
  (void)s.a.take();
  CHECK_THAT(hint(), support::contains_text("were outstanding"));
}

TEST_CASE("Soft-iWARP, which refuses an empty queue, gets one entry where an endpoint needs none", "[ep][iwarp]") {
  const fake::with manner{fake::personality::iwarp};
  fake::world siw;
  for (auto& d : siw.devices) {
    d.transport = IBV_TRANSPORT_IWARP;
    d.attr = fake::rxe_attr();
    d.attr->vendor_id = 0x626d74;
  }
  const clean_world world(siw);
  end e;
  const auto ep = must(e.pz.create_ep<dat::rc>(e.evd, {.max_request_dtos = 4, .max_recv_dtos = 0}));
  CHECK(view_of(ep.native_handle()).init.cap.max_recv_wr == 1);
}
