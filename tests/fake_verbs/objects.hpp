// The objects of the simulated world to which a program has pointers; used by the sources of the fake only.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "fake_verbs.hpp"

#include <array>
#include <deque>
#include <memory>

#include <netinet/in.h>

#include <infiniband/sa.h>

namespace fake::impl {

enum class kind : unsigned { context, pd, mr, mw, comp_channel, cq, srq, qp, event_channel, id, ah, count };
const char* kind_name(kind k);

/// Base of every object to which a program has a pointer. Dead objects stay allocated until reset().
struct object {
  kind what;
  unsigned serial = 0;
  bool alive = true;
  bool counted = true; ///< false: belongs to librdmacm, or not yet seen by the program
  explicit object(kind k) : what{k} {}
  object(const object&) = delete;
  object& operator=(const object&) = delete;
  virtual ~object() = default;
  std::string name() const;
};

/// A real descriptor that is readable exactly while `set`.
class signal_fd {
public:
  signal_fd() = default; ///< dead until `open`
  /// 0 or an errno: the process may have no descriptor left.
  [[nodiscard]] int open();
  ~signal_fd();
  signal_fd(const signal_fd&) = delete;
  signal_fd& operator=(const signal_fd&) = delete;
  int fd() const { return fd_; }
  void set(bool readable);
  /// The descriptor polls like that of a removed device, with POLLHUP in place of POLLERR.
  void kill();
  bool dead() const { return other_end_ < 0; }

private:
  int fd_ = -1;        // the reading end of a pipe
  int other_end_ = -1; // its writing end
  bool readable_ = false;
};

struct device_state {
  device_config cfg;
  ibv_device dev{};
  ibv_device_attr attr{};
  __be64 guid = 0;
  bool removed = false;
  struct context_obj* cm_context = nullptr; ///< belongs to librdmacm
};

struct context_obj : object {
  static constexpr kind k = kind::context;
  verbs_context v{};
  device_state* dev = nullptr;
  signal_fd async_fd;
  std::deque<ibv_async_event> events;
  std::size_t unacked = 0;
  bool disassociated = false;
  context_obj() : object{k} {}
  ibv_context* as_c() { return &v.context; }
};

struct pd_obj : ibv_pd, object {
  static constexpr kind k = kind::pd;
  context_obj* ctx = nullptr;
  unsigned users = 0;
  pd_obj() : ibv_pd{}, object{k} {}
  ibv_pd* as_c() { return this; }
};

struct mr_obj : ibv_mr, object {
  static constexpr kind k = kind::mr;
  pd_obj* domain = nullptr;
  std::byte* memory = nullptr; ///< ibv_mr::addr is an offset in regions of a dmabuf
  std::uint64_t iova = 0;
  unsigned access = 0;
  unsigned windows = 0; ///< windows bound to it
  mr_obj() : ibv_mr{}, object{k} {}
  ibv_mr* as_c() { return this; }
};

struct mw_obj : ibv_mw, object {
  static constexpr kind k = kind::mw;
  pd_obj* domain = nullptr;
  std::uint32_t key = 0;            ///< the key of the device; ibv_mw::rkey is the key of the program
  mr_obj* region = nullptr;         ///< null: not bound
  struct qp_obj* through = nullptr; ///< type 2: the only queue pair on which it is valid
  std::uint64_t start = 0, size = 0;
  unsigned access = 0;
  mw_obj() : ibv_mw{}, object{k} {}
  ibv_mw* as_c() { return this; }
};

struct channel_obj : ibv_comp_channel, object {
  static constexpr kind k = kind::comp_channel;
  signal_fd signal;
  std::deque<struct cq_obj*> events;
  context_obj* ctx = nullptr;
  channel_obj() : ibv_comp_channel{}, object{k} {}
  ibv_comp_channel* as_c() { return this; }
};

struct cq_obj : ibv_cq, object {
  static constexpr kind k = kind::cq;
  context_obj* ctx = nullptr;
  channel_obj* chan = nullptr;
  std::deque<ibv_wc> entries;
  enum class arm { none, solicited, all } armed = arm::none;
  unsigned users = 0;
  std::size_t unacked = 0;       ///< completion events read, not acknowledged
  std::size_t unacked_async = 0; ///< async events read, not acknowledged
  bool overrun = false;          ///< the completion queue is dead, because it overran
  cq_obj() : ibv_cq{}, object{k} {}
  ibv_cq* as_c() { return this; }
};

struct recv_wqe {
  std::uint64_t wr_id = 0;
  std::vector<ibv_sge> sges;
};

struct srq_obj : ibv_srq, object {
  static constexpr kind k = kind::srq;
  context_obj* ctx = nullptr;
  pd_obj* domain = nullptr;
  std::deque<recv_wqe> rq;
  std::uint32_t depth = 0, max_sge = 0, limit = 0;
  unsigned users = 0;
  std::size_t unacked_async = 0;
  srq_obj() : ibv_srq{}, object{k} {}
  ibv_srq* as_c() { return this; }
};

struct send_wqe {
  ibv_send_wr wr{};
  std::vector<ibv_sge> sges;
  std::vector<std::byte> inlined;
  std::uint32_t window_key = 0; ///< bind: the window's key for the program at the time of the post
  bool is_inline = false;
  bool held = false;   ///< waits for complete()
  bool parked = false; ///< refused by post_send, waits for the next doorbell
  enum class wait { none, receive, peer, forever } waits = wait::none;
};

/// IBV_WR_FLUSH, which the headers of rdma-core 44 lack.
inline constexpr ibv_wr_opcode flush_opcode = static_cast<ibv_wr_opcode>(14);

/// The functions by which an extended queue pair posts. The first member is the one that verbs declares.
struct extended_qp {
  ibv_qp_ex verbs{};
  /// ibv_qp_ex::wr_flush, which the headers of rdma-core 44 and earlier lack: the library has it behind their last
  /// member.
  void (*wr_flush)(ibv_qp_ex*, std::uint32_t, std::uint64_t, std::size_t, std::uint8_t, std::uint8_t) = nullptr;
  ibv_qp* qp = nullptr;
  std::vector<ibv_send_wr> begun; ///< the requests since wr_start
};

/// A multicast group that a queue pair is attached to.
struct attachment {
  ibv_gid gid;
  std::uint16_t lid;
};

struct qp_obj : ibv_qp, object {
  static constexpr kind k = kind::qp;
  context_obj* ctx = nullptr;
  pd_obj* domain = nullptr;
  cq_obj* scq = nullptr;
  cq_obj* rcq = nullptr;
  srq_obj* shared = nullptr;
  ibv_qp_cap asked{};
  std::uint32_t sq_depth = 0, rq_depth = 0;
  bool sig_all = false;
  bool held = false;
  ibv_qp_attr attr{}; ///< qp_state in it is the true state
  std::deque<send_wqe> sq;
  std::deque<recv_wqe> rq;
  std::optional<std::uint64_t> held_wr_id; ///< of the shared buffer that an unfinished message holds
  std::vector<attachment> groups;          ///< multicast groups that it is attached to
  std::size_t unacked_async = 0;
  std::optional<extended_qp> extended;
  qp_obj() : ibv_qp{}, object{k} {}
  ibv_qp* as_c() { return this; }
  ibv_qp_state true_state() const { return attr.qp_state; }
};

struct ah_obj : ibv_ah, object {
  static constexpr kind k = kind::ah;
  pd_obj* domain = nullptr;
  ibv_ah_attr attr{};
  ah_obj() : ibv_ah{}, object{k} {}
  ibv_ah* as_c() { return this; }
};

struct id_obj;

/// An event on its way to, or in, an event channel.
struct cm_record {
  id_obj* id = nullptr;       ///< the child for CONNECT_REQUEST
  id_obj* listener = nullptr; ///< CONNECT_REQUEST only
  rdma_cm_event_type type = RDMA_CM_EVENT_ADDR_RESOLVED;
  int status = 0;
  rdma_conn_param conn{};
  std::vector<std::byte> data;
  std::function<void()> arrive; ///< applies the receiver's change of state
  bool datagram = false;        ///< the event has `ud` instead of `conn`
  rdma_ud_param ud{};
};

struct evchan_obj : rdma_event_channel, object {
  static constexpr kind k = kind::event_channel;
  signal_fd signal;
  std::deque<cm_record> queue;
  evchan_obj() : rdma_event_channel{}, object{k} {}
  rdma_event_channel* as_c() { return this; }
};

enum class cma { idle, bound, addr_query, addr_resolved, route_query, route_resolved, connect, listen, removed };
enum class ib { none, req_sent, rep_rcvd, req_rcvd, rep_sent, established, dreq_sent, dreq_rcvd, timewait, dead };

struct id_obj : rdma_cm_id, object {
  static constexpr kind k = kind::id;
  evchan_obj* chan = nullptr;
  cma state = cma::idle;
  ib wire = ib::none;
  id_obj* peer = nullptr;
  device_state* dev = nullptr;
  std::uint8_t dev_port = 0;
  sockaddr_storage src{}, dst{}, remote{}; ///< remote: address of the other end of a connection
  bool reuse_addr = false, af_only = false;
  bool child = false; ///< created by a request
  int ack_timeout = -1;
  std::uint8_t tos = 0; ///< the traffic class; for a request, the peer's one
  std::uint32_t own_qpn = 0, peer_qpn = 0;
  std::uint8_t responder_resources = 0, initiator_depth = 0, retry = 7, rnr_retry = 7;
  int backlog = 0;
  std::size_t unread = 0;  ///< CONNECT_REQUESTs not fetched yet
  std::size_t unacked = 0; ///< events fetched, not acknowledged
  std::unique_ptr<ibv_sa_path_rec> path;
  std::vector<ibv_gid> receives; ///< groups whose messages the network delivers to the port
  id_obj() : rdma_cm_id{}, object{k} {}
  rdma_cm_id* as_c() { return this; }
};

struct event_obj : rdma_cm_event {
  std::array<std::byte, 256> bytes{};
  id_obj* counts_on = nullptr;
  event_obj() : rdma_cm_event{} {}
};

} // namespace fake::impl
