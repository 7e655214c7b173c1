// What a datagram endpoint hands to rdma_cm and verbs, and what of it the peer reads.
// SPDX-License-Identifier: BSL-1.0
#include "async_events.hpp"
#include "datagram_end.hpp"
#include "world.hpp"

#include <dat/multicast.hpp>
#include <dat/ud.hpp>

#include <cstring>

using namespace unit;

namespace {

/// A program without dat that listens for datagram requests, and never answers.
class raw_listener {
public:
  explicit raw_listener(const dat::ia_address& at) {
    REQUIRE(rdma_create_id(channel_, &id_, nullptr, RDMA_PS_UDP) == 0);
    REQUIRE(rdma_bind_addr(id_, const_cast<sockaddr*>(at.native_handle())) == 0);
    REQUIRE(rdma_listen(id_, 1) == 0);
  }
  raw_listener(const raw_listener&) = delete;
  raw_listener& operator=(const raw_listener&) = delete;
  ~raw_listener() {
    for (rdma_cm_id* i : {asked_, id_})
      if (i) rdma_destroy_id(i);
    rdma_destroy_event_channel(channel_);
  }
  /// The private data of the request that has arrived.
  std::vector<std::byte> request() {
    rdma_cm_event* e = nullptr;
    REQUIRE(rdma_get_cm_event(channel_, &e) == 0);
    REQUIRE(e->event == RDMA_CM_EVENT_CONNECT_REQUEST);
    asked_ = e->id;
    const auto* const data = static_cast<const std::byte*>(e->param.ud.private_data);
    std::vector<std::byte> copy(data, data + e->param.ud.private_data_len);
    rdma_ack_cm_event(e);
    return copy;
  }

private:
  rdma_event_channel* channel_ = rdma_create_event_channel();
  rdma_cm_id* id_ = nullptr;
  rdma_cm_id* asked_ = nullptr;
};

} // namespace

TEST_CASE("a datagram request names its endpoint: number, key and address", "[ud]") {
  const clean_world clean;
  const auto there = must(dat::ia_address::parse("10.99.2.1")).with_port(service);
  raw_listener listener(there);
  datagram_end a("fk1");
  must(a.ep.connect(there.with_port(0), service, plenty, bytes_of("who")));
  CHECK(fake::resolve_timeout_ms() == 2000);
  a.ia.run();
  const auto data = listener.request();
  const auto header = dat::detail::datagram_header::read(data);
  REQUIRE(header);
  CHECK(header->qp_num == a.ep.number());
  CHECK(header->qkey == RDMA_UDP_QKEY);
  const auto own = must(a.ep.address());
  CHECK(std::memcmp(header->gid.raw, own.gid.data(), own.gid.size()) == 0);
  CHECK(header->lid == own.lid);
  constexpr std::size_t size = dat::detail::datagram_header::size;
  CHECK(data[5] == std::byte{3});
  CHECK(unpadded(std::span(data).subspan(size)) == "who");
}

TEST_CASE("the queue pair of a datagram endpoint is ready, in the partition and with the key of rdma_cm", "[ud]") {
  const clean_world clean;
  datagram_end a("fk1", manual,
                 {.max_request_dtos = 6, .max_recv_dtos = 7, .max_request_iov = 2, .max_recv_iov = 3, .max_inline = 8});
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  REQUIRE(ibv_query_qp(a.ep.native_handle(), &attr, IBV_QP_CAP, &init) == 0);
  CHECK(init.qp_type == IBV_QPT_UD);
  CHECK(init.sq_sig_all == 0);
  CHECK(init.cap.max_send_wr == 7);
  CHECK(init.cap.max_recv_wr == 7);
  CHECK(init.cap.max_send_sge == 2);
  CHECK(init.cap.max_recv_sge == 3);
  CHECK(init.cap.max_inline_data >= 8);
  CHECK(attr.qp_state == IBV_QPS_RTS);
  CHECK(attr.qkey == RDMA_UDP_QKEY);
  CHECK(attr.port_num == 1);
  must(a.ep.close());
  CHECK(a.ep == dat::ep_ref());
}

TEST_CASE("a group that a reset cannot attach again is reported, and no longer attached", "[ud][multicast]") {
  const clean_world clean;
  datagram_end a("fk1");
  auto group = must(dat::ib::multicast_group::join(a.ep, must(dat::ia_address::parse("239.1.2.3"))));
  a.ia.run();
  REQUIRE(std::holds_alternative<dat::ib::group_joined>(must(a.evd.dequeue())));
  must(a.ep.disconnect());
  fake::fail(fake::call::ibv_attach_mcast, 1, ENOMEM);
  must(a.ep.reset());
  std::vector<std::string> failed;
  a.ia.async_evd().drain(dat::overloaded{
      [&](const dat::provider_internal_error& e) { failed.push_back(e.verb() + (' ' + std::to_string(e.code()))); },
      [&](const auto& e) { failed.emplace_back(e.name); }});
  CHECK(failed == events{"ibv_attach_mcast " + std::to_string(ENOMEM)});
  const auto detached = fake::count(fake::call::ibv_detach_mcast);
  must(group.leave());
  CHECK(fake::count(fake::call::ibv_detach_mcast) == detached);
}

TEST_CASE("a group leaves the queue pair of an endpoint that ends, once", "[ud][multicast]") {
  const clean_world clean;
  datagram_end a("fk1");
  auto group = must(dat::ib::multicast_group::join(a.ep, must(dat::ia_address::parse("239.1.2.3"))));
  a.ia.run();
  REQUIRE(std::holds_alternative<dat::ib::group_joined>(must(a.evd.dequeue())));
  must(a.ep.close());
  CHECK(fake::count(fake::call::ibv_detach_mcast) == 1);
  must(group.leave());
  CHECK(fake::count(fake::call::ibv_detach_mcast) == 1);
}
