// Posts by ibv_post_send and by ibv_wr_* on the first RDMA device, for callgrind: the instructions of a post alone.
// SPDX-License-Identifier: BSL-1.0
#include <infiniband/verbs.h>

#include <valgrind/callgrind.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace posting {

/// Two queue pairs of one device that are connected to each other.
struct link {
  ibv_qp* qp = nullptr;
  ibv_qp_ex* extended = nullptr; ///< of `qp`
  ibv_cq* cq = nullptr;          ///< of the requests of `qp`
  ibv_qp* peer = nullptr;
  ibv_cq* arrivals = nullptr; ///< of the receives of `peer`
  ibv_sge from{};
  ibv_sge into{};
  std::uint64_t address = 0;
  std::uint32_t key = 0;
};

namespace {

constexpr int at_a_time = 16;
constexpr std::uint32_t bytes = 64;

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "posting: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}
template <class T>
T* made(const char* what, T* object) {
  if (!object) give_up(what);
  return object;
}

[[gnu::always_inline]] inline void begin(ibv_send_wr& wr, ibv_sge& sge, const link& l, ibv_wr_opcode opcode,
                                         unsigned flags, int i) {
  sge = l.from;
  wr.wr_id = static_cast<std::uint64_t>(i);
  wr.next = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = opcode;
  wr.send_flags = flags;
  if (opcode != IBV_WR_SEND) {
    wr.wr.rdma.remote_addr = l.address;
    wr.wr.rdma.rkey = l.key;
  }
}
[[gnu::always_inline]] inline void begin_extended(const link& l, ibv_wr_opcode opcode, unsigned flags, int i) {
  ibv_qp_ex* const to = l.extended;
  to->wr_id = static_cast<std::uint64_t>(i);
  to->wr_flags = flags;
  if (opcode == IBV_WR_SEND)
    ibv_wr_send(to);
  else if (opcode == IBV_WR_RDMA_WRITE)
    ibv_wr_rdma_write(to, l.key, l.address);
  else
    ibv_wr_rdma_read(to, l.key, l.address);
  if ((flags & IBV_SEND_INLINE) != 0)
    ibv_wr_set_inline_data(to, reinterpret_cast<void*>(l.from.addr), l.from.length);
  else
    ibv_wr_set_sge(to, l.from.lkey, l.from.addr, l.from.length);
}

// Each of these posts 16 requests.
template <ibv_wr_opcode Opcode, unsigned Flags = 0>
[[gnu::noinline]] void counted_post_send(link& l) {
  for (int i = 0; i < at_a_time; ++i) {
    ibv_sge sge;
    ibv_send_wr wr;
    begin(wr, sge, l, Opcode, Flags | IBV_SEND_SIGNALED, i);
    ibv_send_wr* bad;
    if (ibv_post_send(l.qp, &wr, &bad) != 0) give_up("ibv_post_send");
  }
}
template <ibv_wr_opcode Opcode, unsigned Flags = 0>
[[gnu::noinline]] void counted_extended(link& l) {
  for (int i = 0; i < at_a_time; ++i) {
    ibv_wr_start(l.extended);
    begin_extended(l, Opcode, Flags | IBV_SEND_SIGNALED, i);
    if (ibv_wr_complete(l.extended) != 0) give_up("ibv_wr_complete");
  }
}
/// Fills a chain of 16 sends.
[[gnu::always_inline]] inline void fill(ibv_send_wr* wr, ibv_sge* sge, const link& l) {
  for (int i = 0; i < at_a_time; ++i) {
    begin(wr[i], sge[i], l, IBV_WR_SEND, IBV_SEND_SIGNALED, i);
    wr[i].next = &wr[i] + 1;
  }
  wr[at_a_time - 1].next = nullptr;
}
[[gnu::noinline]] void counted_chain(link& l) {
  ibv_sge sge[at_a_time];
  ibv_send_wr wr[at_a_time];
  fill(wr, sge, l);
  ibv_send_wr* bad;
  if (ibv_post_send(l.qp, wr, &bad) != 0) give_up("ibv_post_send");
}
[[gnu::noinline]] void counted_extended_batch(link& l) {
  ibv_wr_start(l.extended);
  for (int i = 0; i < at_a_time; ++i) begin_extended(l, IBV_WR_SEND, IBV_SEND_SIGNALED, i);
  if (ibv_wr_complete(l.extended) != 0) give_up("ibv_wr_complete");
}

/// Posts a chain by an extended queue pair, as a library has to whose requests are links of a chain.
[[gnu::noinline]] int post_links(ibv_qp_ex* to, const ibv_send_wr* wr) {
  ibv_wr_start(to);
  for (; wr; wr = wr->next) {
    to->wr_id = wr->wr_id;
    to->wr_flags = wr->send_flags;
    if (wr->opcode == IBV_WR_SEND)
      ibv_wr_send(to);
    else if (wr->opcode == IBV_WR_RDMA_WRITE)
      ibv_wr_rdma_write(to, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
    else
      ibv_wr_rdma_read(to, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
    if ((wr->send_flags & IBV_SEND_INLINE) != 0)
      ibv_wr_set_inline_data(to, reinterpret_cast<void*>(wr->sg_list->addr), wr->sg_list->length);
    else if (wr->num_sge == 1)
      ibv_wr_set_sge(to, wr->sg_list->lkey, wr->sg_list->addr, wr->sg_list->length);
    else
      ibv_wr_set_sge_list(to, static_cast<std::size_t>(wr->num_sge), wr->sg_list);
  }
  return ibv_wr_complete(to);
}
template <ibv_wr_opcode Opcode, unsigned Flags = 0>
[[gnu::noinline]] void counted_link(link& l) {
  for (int i = 0; i < at_a_time; ++i) {
    ibv_sge sge;
    ibv_send_wr wr;
    begin(wr, sge, l, Opcode, Flags | IBV_SEND_SIGNALED, i);
    if (post_links(l.extended, &wr) != 0) give_up("ibv_wr_complete");
  }
}
[[gnu::noinline]] void counted_extended_chain(link& l) {
  ibv_sge sge[at_a_time];
  ibv_send_wr wr[at_a_time];
  fill(wr, sge, l);
  if (post_links(l.extended, wr) != 0) give_up("ibv_wr_complete");
}

void take(ibv_cq* cq, int n) {
  for (int taken = 0; taken < n;) {
    ibv_wc wc[at_a_time];
    const int k = ibv_poll_cq(cq, n - taken, wc);
    for (int i = 0; i < k; ++i)
      if (wc[i].status != IBV_WC_SUCCESS) {
        std::fprintf(stderr, "posting: %s\n", ibv_wc_status_str(wc[i].status));
        std::exit(1);
      }
    taken += k;
  }
}

/// Posts 16 requests, which are sends or not, and takes their completions.
void round(link& l, void (*post)(link&), bool sends) {
  for (int i = 0; sends && i < at_a_time; ++i) {
    ibv_recv_wr wr{0, nullptr, &l.into, 1};
    ibv_recv_wr* bad;
    if (ibv_post_recv(l.peer, &wr, &bad) != 0) give_up("ibv_post_recv");
  }
  post(l);
  take(l.cq, at_a_time);
  if (sends) take(l.arrivals, at_a_time);
}

struct job {
  const char* name;
  bool sends;
  void (*post_send)(link&);
  void (*extended)(link&);
  void (*link)(posting::link&); ///< by the extended queue pair, from an ibv_send_wr
};
template <ibv_wr_opcode Opcode, unsigned Flags = 0>
constexpr job one(const char* name) {
  return {name, Opcode == IBV_WR_SEND, counted_post_send<Opcode, Flags>, counted_extended<Opcode, Flags>,
          counted_link<Opcode, Flags>};
}
constexpr job jobs[] = {
    one<IBV_WR_SEND>("send"),
    one<IBV_WR_RDMA_WRITE>("RDMA write"),
    one<IBV_WR_RDMA_WRITE, IBV_SEND_INLINE>("RDMA write, inline"),
    one<IBV_WR_RDMA_READ>("RDMA read"),
    {"each of 16 sends", true, counted_chain, counted_extended_batch, counted_extended_chain},
};

/// The index of the device's RoCE v2 address for IPv4, which Linux lists; otherwise 0.
int address_index(ibv_context* context, ibv_gid_entry& entry) {
  for (std::uint32_t i = 0; i < 16; ++i)
    if (ibv_query_gid_ex(context, 1, i, &entry, 0) == 0 && entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
        entry.gid.raw[0] == 0 && entry.gid.raw[11] == 0xff)
      return static_cast<int>(i);
  if (ibv_query_gid_ex(context, 1, 0, &entry, 0) != 0) give_up("ibv_query_gid_ex");
  return 0;
}

void connect(ibv_qp* qp, const ibv_qp* to, const ibv_port_attr& port, const ibv_gid& gid, int index) {
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_INIT;
  a.port_num = 1;
  a.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  errno = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (errno != 0) give_up("ibv_modify_qp to INIT");
  a.qp_state = IBV_QPS_RTR;
  a.path_mtu = port.active_mtu;
  a.dest_qp_num = to->qp_num;
  a.max_dest_rd_atomic = 1;
  a.min_rnr_timer = 12;
  a.ah_attr.is_global = 1;
  a.ah_attr.grh.dgid = gid;
  a.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(index);
  a.ah_attr.grh.hop_limit = 64;
  a.ah_attr.dlid = port.lid;
  a.ah_attr.port_num = 1;
  errno = ibv_modify_qp(qp, &a,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (errno != 0) give_up("ibv_modify_qp to RTR");
  a.qp_state = IBV_QPS_RTS;
  a.timeout = 14;
  a.retry_cnt = a.rnr_retry = 7;
  a.max_rd_atomic = 1;
  errno = ibv_modify_qp(qp, &a,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC);
  if (errno != 0) give_up("ibv_modify_qp to RTS");
}

ibv_qp* make_qp(ibv_pd* pd, ibv_cq* sends, ibv_cq* receives, std::uint64_t functions) {
  ibv_qp_init_attr_ex a{};
  a.send_cq = sends;
  a.recv_cq = receives;
  a.cap = {2 * at_a_time, 2 * at_a_time, 1, 1, bytes};
  a.qp_type = IBV_QPT_RC;
  a.comp_mask = IBV_QP_INIT_ATTR_PD;
  a.pd = pd;
  if (functions != 0) a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  a.send_ops_flags = functions;
  return made("ibv_create_qp_ex", ibv_create_qp_ex(pd->context, &a));
}

link open_link() {
  static char memory[4096];
  int n = 0;
  ibv_device** const devices = ibv_get_device_list(&n);
  if (!devices || n == 0) give_up("no RDMA device");
  ibv_context* const context = made("ibv_open_device", ibv_open_device(devices[0]));
  ibv_port_attr port{};
  if (ibv_query_port(context, 1, &port) != 0) give_up("ibv_query_port");
  ibv_gid_entry entry{};
  const int index = address_index(context, entry);
  ibv_pd* const pd = made("ibv_alloc_pd", ibv_alloc_pd(context));
  constexpr int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  const ibv_mr* const mr = made("ibv_reg_mr", ibv_reg_mr(pd, memory, sizeof memory, rights));
  link l;
  l.cq = made("ibv_create_cq", ibv_create_cq(context, 64, nullptr, nullptr, 0));
  l.arrivals = made("ibv_create_cq", ibv_create_cq(context, 64, nullptr, nullptr, 0));
  l.qp = make_qp(pd, l.cq, l.arrivals, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ);
  l.peer = make_qp(pd, l.cq, l.arrivals, 0);
  l.extended = made("ibv_qp_to_qp_ex", ibv_qp_to_qp_ex(l.qp));
  connect(l.qp, l.peer, port, entry.gid, index);
  connect(l.peer, l.qp, port, entry.gid, index);
  const auto at = reinterpret_cast<std::uint64_t>(&memory[0]);
  l.from = {at, bytes, mr->lkey};
  l.into = {at + 1024, bytes, mr->lkey};
  l.address = at + 2048;
  l.key = mr->rkey;
  return l;
}

} // namespace
} // namespace posting

int main(int argc, char** argv) {
  using namespace posting;
  if (argc != 3 || std::strcmp(argv[1], "dump") != 0) {
    std::fputs("usage: posting dump N   (N: times 16 operations)\n", stderr);
    return 2;
  }
  const long n = std::atol(argv[2]);
  link l = open_link();
  const auto count = [&](const std::string& name, const char* side, void (*post)(link&), bool sends) {
    round(l, post, sends); // work that is done once, such as binding symbols
    for (const long times : {1L, 2L}) {
      CALLGRIND_ZERO_STATS;
      for (long i = 0; i < times * n; ++i) round(l, post, sends);
      const std::string label = name + "|" + side + "|" + std::to_string(times);
      CALLGRIND_DUMP_STATS_AT(label.c_str());
    }
  };
  for (const job& j : jobs) {
    const std::string name = j.name;
    count(name, "raw", j.post_send, j.sends);
    count(name, "dat", j.extended, j.sends);
    count(name + ", from a link", "raw", j.post_send, j.sends);
    count(name + ", from a link", "dat", j.link, j.sends);
  }
  return 0;
}
