// Datagram endpoints and a peer without dat: plain rdma_cm and verbs.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"
#include "ud_pair.hpp"

#include <dat/ud.hpp>

#include <array>
#include <cstring>
#include <rdma/rdma_cma.h>

namespace device {
namespace {

void check_verbs(bool ok, const char* what, place where = place::here()) {
  if (!ok) fail(std::string(what) + ": " + std::strerror(errno), where);
}

/// A UD queue pair on an id, with one receive of 240 bytes posted.
struct plain_end {
  rdma_event_channel* channel = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  rdma_cm_id* listener = nullptr;
  ibv_ah* ah = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  std::array<char, 240> memory{};
  std::vector<ibv_wc> taken; // taken from the completion queue, and not needed yet

  plain_end() { check_verbs(channel != nullptr, "rdma_create_event_channel"); }
  plain_end(const plain_end&) = delete;
  plain_end& operator=(const plain_end&) = delete;
  ~plain_end() {
    if (ah) ibv_destroy_ah(ah);
    if (mr) ibv_dereg_mr(mr);
    if (id) rdma_destroy_qp(id);
    if (cq) ibv_destroy_cq(cq);
    if (pd) ibv_dealloc_pd(pd);
    for (rdma_cm_id* i : {id, listener})
      if (i) rdma_destroy_id(i);
    rdma_destroy_event_channel(channel);
  }
  void equip(rdma_cm_id* on) {
    id = on;
    pd = ibv_alloc_pd(id->verbs);
    cq = ibv_create_cq(id->verbs, 8, nullptr, nullptr, 0);
    check_verbs(pd && cq, "ibv_create_cq");
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {4, 4, 1, 1, 0};
    attr.qp_type = IBV_QPT_UD;
    attr.sq_sig_all = 1;
    check_verbs(rdma_create_qp(id, pd, &attr) == 0, "rdma_create_qp");
    const int access = IBV_ACCESS_LOCAL_WRITE; // the macro mixes enumerations otherwise
    mr = ibv_reg_mr(pd, memory.data(), memory.size(), access);
    check_verbs(mr != nullptr, "ibv_reg_mr");
    ibv_sge sge{reinterpret_cast<std::uint64_t>(memory.data()), static_cast<std::uint32_t>(memory.size()), mr->lkey};
    ibv_recv_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    check_verbs(ibv_post_recv(id->qp, &wr, &bad) == 0, "ibv_post_recv");
  }
  rdma_cm_event* next(rdma_cm_event_type type) {
    rdma_cm_event* e = nullptr;
    check_verbs(rdma_get_cm_event(channel, &e) == 0, "rdma_get_cm_event");
    if (e->event != type) fail(rdma_event_str(e->event), place::here());
    return e;
  }
  /// The next completion of this kind. The answer to a message may complete before the message itself does.
  ibv_wc poll(ibv_wc_opcode wanted) {
    const auto until = std::chrono::steady_clock::now() + patience;
    for (;;) {
      for (auto it = taken.begin(); it != taken.end(); ++it)
        if (it->opcode == wanted) {
          const ibv_wc found = *it;
          taken.erase(it);
          return found;
        }
      ibv_wc wc{};
      while (ibv_poll_cq(cq, 1, &wc) == 0)
        if (std::chrono::steady_clock::now() > until) fail("no completion", place::here());
      check_verbs(wc.status == IBV_WC_SUCCESS, "completion");
      taken.push_back(wc);
    }
  }
  void send(std::uint32_t qpn, std::uint32_t qkey, const char* text) {
    std::strcpy(memory.data() + 100, text);
    ibv_sge sge{reinterpret_cast<std::uint64_t>(memory.data() + 100), 8, mr->lkey};
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = qpn;
    wr.wr.ud.remote_qkey = qkey;
    ibv_send_wr* bad = nullptr;
    check_verbs(ibv_post_send(id->qp, &wr, &bad) == 0, "ibv_post_send");
    (void)poll(IBV_WC_SEND);
  }
};

sockaddr_in address_of(const std::string& host, const std::string& port) {
  const auto a = must(dat::ia_address::parse(host)).with_port(static_cast<std::uint16_t>(std::stoi(port)));
  sockaddr_in s{};
  std::memcpy(&s, a.native_handle(), sizeof s);
  return s;
}

/// Arguments: address, port. Connects, sends a message, and waits for its answer.
int plain_ud_client(channel& to, const std::vector<std::string>& args) {
  plain_end e;
  rdma_cm_id* id = nullptr;
  check_verbs(rdma_create_id(e.channel, &id, nullptr, RDMA_PS_UDP) == 0, "rdma_create_id");
  auto there = address_of(args.at(0), args.at(1));
  check_verbs(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&there), 2000) == 0, "rdma_resolve_addr");
  rdma_ack_cm_event(e.next(RDMA_CM_EVENT_ADDR_RESOLVED));
  check_verbs(rdma_resolve_route(id, 2000) == 0, "rdma_resolve_route");
  rdma_ack_cm_event(e.next(RDMA_CM_EVENT_ROUTE_RESOLVED));
  e.equip(id);
  rdma_conn_param p{};
  p.private_data = "foreign";
  p.private_data_len = 7;
  p.qp_num = id->qp->qp_num;
  check_verbs(rdma_connect(id, &p) == 0, "rdma_connect");
  rdma_cm_event* up = e.next(RDMA_CM_EVENT_ESTABLISHED);
  e.ah = ibv_create_ah(e.pd, &up->param.ud.ah_attr);
  e.send(up->param.ud.qp_num, up->param.ud.qkey, "question");
  rdma_ack_cm_event(up);
  const auto wc = e.poll(IBV_WC_RECV);
  to.say(std::to_string(wc.byte_len) + ' ' + std::string(e.memory.data() + 40, 6));
  return 0;
}
const role plain_ud_client_registered("plain ud client", &plain_ud_client);

/// Arguments: address, port. Accepts one request, and answers the message that arrives.
int plain_ud_server(channel& to, const std::vector<std::string>& args) {
  plain_end e;
  check_verbs(rdma_create_id(e.channel, &e.listener, nullptr, RDMA_PS_UDP) == 0, "rdma_create_id");
  auto here = address_of(args.at(0), args.at(1));
  check_verbs(rdma_bind_addr(e.listener, reinterpret_cast<sockaddr*>(&here)) == 0, "rdma_bind_addr");
  check_verbs(rdma_listen(e.listener, 1) == 0, "rdma_listen");
  to.say("listening");
  rdma_cm_event* request = e.next(RDMA_CM_EVENT_CONNECT_REQUEST);
  e.equip(request->id);
  rdma_conn_param p{};
  p.qp_num = e.id->qp->qp_num;
  check_verbs(rdma_accept(e.id, &p) == 0, "rdma_accept");
  rdma_ack_cm_event(request);
  auto wc = e.poll(IBV_WC_RECV);
  e.ah = ibv_create_ah_from_wc(e.pd, &wc, reinterpret_cast<ibv_grh*>(e.memory.data()), e.id->port_num);
  check_verbs(e.ah != nullptr, "ibv_create_ah_from_wc");
  e.send(wc.src_qp, 0x01234567, "answer!!");
  to.say("done");
  return 0;
}
const role plain_ud_server_registered("plain ud server", &plain_ud_server);

} // namespace

TEST_CASE("reply_to reaches a plain rdma_cm program that sends no queue pair number in its request",
          "[ud][foreign][IBX-057]") {
  NEEDS_FEATURE(datagrams);
  ud_side s(1);
  auto ep = s.make_ep();
  buffer in(s.pz, 256);
  must(ep.post(dat::recv{in.lmr}));
  auto service = must(dat::ib::datagram_service::listen(s.ia, next_port(), s.evd));
  peer_process peer("plain ud client", {s.ia.address().to_string(), std::to_string(service.port())});
  auto request = expect<dat::ib::datagram_request>(s.evd);
  CHECK(request.remote_number() == 0);
  CHECK(request.private_data().size() >= 56);
  CHECK(text_of(request.private_data()) == "foreign");
  must(request.accept(ep));
  std::optional<dat::ib::datagram_recv_done> got;
  for (int i = 0; i < 2; ++i) { // the peer does not wait for this side, so the peer's message may come first
    auto e = must(s.evd.wait(patience));
    if (auto* message = std::get_if<dat::ib::datagram_recv_done>(&e))
      got = *message;
    else
      CHECK(error_of(std::get<dat::ib::datagram_established>(e).peer()).type() == type::model_not_supported);
  }
  REQUIRE(got);
  const dat::ib::datagram_view view(*got, in.lmr);
  CHECK(text_of(view.payload()) == "question");
  const auto who = must(ep.reply_to(*got, view));
  must(ep.post(dat::ib::send_to{must(in.lmr.slice(40, 6)), who}));
  (void)expect<dat::ib::datagram_send_done>(s.evd);
  CHECK(peer.hear() == "46 questi");
  CHECK(peer.wait() == 0);
}

TEST_CASE("a datagram request reaches a plain rdma_cm program", "[ud][foreign][IBX-058]") {
  NEEDS_FEATURE(datagrams);
  ud_side s(0);
  auto ep = s.make_ep();
  buffer in(s.pz, 256);
  buffer out(s.pz, 16);
  must(ep.post(dat::recv{in.lmr}));
  const auto port = next_port();
  peer_process peer("plain ud server", {addresses()[1].with_port(0).to_string(), std::to_string(port.port())});
  REQUIRE(peer.hear() == "listening");
  must(ep.connect(addresses()[1], port, patience));
  const auto to = must(expect<dat::ib::datagram_established>(s.evd).peer());
  must(ep.post(dat::ib::send_to{out.lmr, to}));
  (void)must(s.evd.wait_for<dat::ib::datagram_send_done>(patience)); // the answer may come first
  const auto got = must(s.evd.wait_for<dat::ib::datagram_recv_done>(patience));
  CHECK(text_of(dat::ib::datagram_view(got, in.lmr).payload()).substr(0, 6) == "answer");
  CHECK(peer.hear() == "done");
  CHECK(peer.wait() == 0);
}

} // namespace device
