// Objects and state of the simulated world; used by the sources of the fake only.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "fake_verbs.hpp"

#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <netinet/in.h>

#include <infiniband/sa.h>

namespace fake::impl {

inline constexpr std::size_t call_count = 0
#define X(symbol, group_, errno_) +1
    FAKE_VERBS_CALLS(X)
#undef X
    ;

enum class kind : unsigned { context, pd, mr, comp_channel, cq, srq, qp, event_channel, id, count };
const char* kind_name(kind k);

/// Base of everything that a program holds a pointer to. Dead objects stay allocated until reset().
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
  signal_fd();
  ~signal_fd();
  signal_fd(const signal_fd&) = delete;
  signal_fd& operator=(const signal_fd&) = delete;
  int fd() const { return fd_; }
  void set(bool readable);

private:
  int fd_;
  bool readable_ = false;
};

struct device_state {
  device_config cfg;
  ibv_device dev{};
  ibv_device_attr attr{};
  __be64 guid = 0;
  bool removed = false;
  struct context_obj* cm_context = nullptr; ///< librdmacm's own
};

struct context_obj : object {
  static constexpr kind k = kind::context;
  verbs_context v{};
  device_state* dev = nullptr;
  signal_fd async_fd;
  std::deque<ibv_async_event> events;
  std::size_t unacked = 0;
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
  std::uint64_t iova = 0;
  unsigned access = 0;
  mr_obj() : ibv_mr{}, object{k} {}
  ibv_mr* as_c() { return this; }
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
  bool is_inline = false;
  bool held = false;   ///< waits for complete()
  bool parked = false; ///< refused by post_send, waits for the next doorbell
  enum class wait { none, receive, peer, forever } waits = wait::none;
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
  std::size_t unacked_async = 0;
  qp_obj() : ibv_qp{}, object{k} {}
  ibv_qp* as_c() { return this; }
  ibv_qp_state true_state() const { return attr.qp_state; }
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
  std::function<void()> arrive; ///< the receiver's change of state
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
  int ack_timeout = -1;
  std::uint32_t own_qpn = 0, peer_qpn = 0;
  std::uint8_t responder_resources = 0, initiator_depth = 0, retry = 7, rnr_retry = 7;
  int backlog = 0;
  std::size_t unread = 0;  ///< CONNECT_REQUESTs not fetched yet
  std::size_t unacked = 0; ///< events fetched, not acknowledged
  std::unique_ptr<ibv_sa_path_rec> path;
  id_obj() : rdma_cm_id{}, object{k} {}
  rdma_cm_id* as_c() { return this; }
};

struct event_obj : rdma_cm_event {
  std::array<std::byte, 256> bytes{};
  id_obj* counts_on = nullptr;
  event_obj() : rdma_cm_event{} {}
};

struct fault {
  call which;
  unsigned left;
  int error;
  std::size_t ticket;
};

struct trace_line {
  call which;
  kind what;
  unsigned serial; ///< 0: no object
  kind made;
  unsigned made_serial; ///< 0: nothing made
  int error;            ///< 0: fine
  bool injected;
  unsigned times;
};

struct state {
  world cfg;
  std::vector<std::unique_ptr<device_state>> devices;
  std::vector<std::unique_ptr<object>> objects;
  std::unordered_map<const void*, object*> by_handle;
  std::array<unsigned, std::size_t(kind::count)> serials{};
  std::map<std::uint32_t, qp_obj*> qp_nums;
  std::map<std::uint32_t, mr_obj*> keys;
  std::map<const void*, std::unique_ptr<ibv_device*[]>> device_lists;
  std::map<const void*, std::unique_ptr<ibv_context*[]>> cm_device_lists;
  std::map<const rdma_cm_event*, std::unique_ptr<event_obj>> cm_events;
  std::uint32_t next_qpn = 17, next_key = 1, next_psn = 1000;
  std::uint16_t next_port = 32768;
  std::vector<qp_obj*> work; ///< queue pairs whose send queue may make progress
  std::vector<fault> faults;
  std::size_t tickets = 0;
  std::vector<std::size_t> hits;
  std::array<std::size_t, call_count> counts{};
  std::deque<trace_line> lines;
  std::vector<std::string> wrong_orders;
  std::map<rdma_cm_event_type, unsigned> drops;
  bool hold_all = false;
  std::vector<rdma_cm_event_type> hold_types;
  std::deque<cm_record> held;
};

std::mutex& mutex();
std::condition_variable& acked();
state& the_world(); ///< mutex held
[[noreturn]] void die(const std::string& why);

/// Registers a new object; the world owns it.
template <class T>
T& adopt(std::unique_ptr<T> o) {
  auto& w = the_world();
  T& ref = *o;
  ref.serial = ++w.serials[std::size_t(T::k)];
  w.by_handle[static_cast<const void*>(ref.as_c())] = &ref;
  w.objects.push_back(std::move(o));
  return ref;
}
/// The object behind a handle, dead or alive; nullptr if the handle is unknown or of another kind.
template <class T>
T* peek(const void* handle) {
  auto& w = the_world();
  const auto it = w.by_handle.find(handle);
  return it == w.by_handle.end() || it->second->what != T::k ? nullptr : static_cast<T*>(it->second);
}
/// The live object behind a handle; aborts with `who` in the message if there is none.
template <class T>
T& live_object(const void* handle, const char* who) {
  T* o = peek<T>(handle);
  if (!o) die(std::string{who} + ": not a " + kind_name(T::k) + " of this world (null, freed or of another kind)");
  if (!o->alive) die(std::string{who} + ": " + o->name() + " was destroyed before");
  return *o;
}
/// All live objects of a kind, in order of creation.
template <class T>
std::vector<T*> all_live() {
  std::vector<T*> r;
  for (auto& o : the_world().objects)
    if (o->what == T::k && o->alive) r.push_back(static_cast<T*>(o.get()));
  return r;
}

/// Scope of one verbs or rdma_cm call: lock, count, fault, trace.
class entry {
  std::unique_lock<std::mutex> lock_; // taken before the world is looked at

public:
  state& w;
  explicit entry(call c);
  ~entry();
  entry(const entry&) = delete;
  entry& operator=(const entry&) = delete;

  int fault() const { return fault_; } ///< injected errno, 0 if none

  template <class T>
  T& use(const void* handle) {
    T& o = live_object<T>(handle, name(which_));
    what_ = T::k;
    serial_ = o.serial;
    return o;
  }
  void made(const object& o) {
    made_ = o.what;
    made_serial_ = o.serial;
  }
  int code(int error);            ///< returns the errno
  int minus1(int error);          ///< sets errno, returns -1; 0 for error 0
  std::nullptr_t null(int error); ///< sets errno
  std::unique_lock<std::mutex>& lock() { return lock_; }
  void quiet() { quiet_ = true; } ///< leave no line in the trace

private:
  call which_;
  int fault_ = 0;
  int error_ = 0;
  bool quiet_ = false;
  kind what_ = kind::context, made_ = kind::context;
  unsigned serial_ = 0, made_serial_ = 0;
};

/// Waits until `done`, at most 5 s, then aborts: a destroy that waits for acknowledgements.
void wait_acked(std::unique_lock<std::mutex>& lock, const std::string& what, const std::function<bool()>& done);
/// Waits outside of the lock until `fd` is readable. 0, or EAGAIN on a non-blocking descriptor, or EINTR.
int wait_readable(std::unique_lock<std::mutex>& lock, int fd);

// devices
device_state* device_named(std::string_view name);
context_obj& new_context(device_state& d, bool of_cm);
context_obj& cm_context(device_state& d);
void push_async(context_obj& ctx, const ibv_async_event& e);
void discard_async_of(context_obj& ctx, const void* handle); ///< unread events of one object
/// Port that owns the address (port ignored); false if none.
struct owner {
  device_state* dev = nullptr;
  std::uint8_t port = 0;
};
owner owner_of(const sockaddr_storage& a);
bool same_subnet(const sockaddr_storage& a, const sockaddr_storage& b);
sockaddr_storage parse_address(const std::string& text);
ibv_gid gid_of(const sockaddr_storage& a);
ibv_gid gid_at(const device_state& d, std::uint8_t port, int index);
int gid_index(const device_state& d, std::uint8_t port, const ibv_gid& g);
bool has_gid(const device_state& d, const ibv_gid& g);
const port_config* port_of(const device_state& d, unsigned port);

// completion queues
void push_wc(cq_obj& cq, const ibv_wc& wc, bool solicited);

// memory
mr_obj* local_region(qp_obj& q, const ibv_sge& s, bool write);
mr_obj* remote_region(qp_obj& responder, std::uint32_t rkey, std::uint64_t addr, std::uint64_t length, unsigned access);
std::byte* pointer_into(const mr_obj& m, std::uint64_t addr);

// queue pairs and data path
std::uint32_t ring_depth(std::uint32_t asked); ///< 2^n-1 that holds `asked`
qp_obj* find_qp(std::uint32_t num);
void flush_wc(qp_obj& q, bool receive, std::uint64_t wr_id);
void to_error(qp_obj& q);
void kick(qp_obj& q);
void kick_peer(qp_obj& q);
void run();
bool execute(qp_obj& q, send_wqe& wqe); ///< true: finished (successfully or not), false: has to wait
void fail_send(qp_obj& q, const send_wqe& wqe, ibv_wc_status status);
void check_limit(srq_obj& s);
std::vector<ibv_sge> copy_sges(const ibv_sge* list, int n);
int op_post_send(ibv_qp*, ibv_send_wr*, ibv_send_wr**);
int op_post_recv(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**);
int op_post_srq_recv(ibv_srq*, ibv_recv_wr*, ibv_recv_wr**);
int op_poll_cq(ibv_cq*, int, ibv_wc*);
int op_req_notify_cq(ibv_cq*, int);

// connection manager
inline constexpr std::size_t req_data = 56, rep_data = 196, rej_data = 148;
std::vector<std::byte> padded(const void* data, std::size_t n, std::size_t size);
void post_event(cm_record r);   ///< subject to drops and holding
void arrive_event(cm_record r); ///< state change and queue
id_obj& new_child(id_obj& listener);
void destroy_on_wire(id_obj& id);
void send_reject(id_obj& from, int status, std::vector<std::byte> data);
void send_dreq(id_obj& from);
void send_drep(id_obj& from);
void discard_events(id_obj& id);
void set_addresses(id_obj& id);
std::uint16_t port_number(const sockaddr_storage& a); ///< host byte order
void set_port_number(sockaddr_storage& a, std::uint16_t port);
bool is_any(const sockaddr_storage& a);
bool is_loopback(const sockaddr_storage& a);
bool same_address(const sockaddr_storage& a, const sockaddr_storage& b);
int copy_address(sockaddr_storage& to, const sockaddr* from); ///< 0 or errno
id_obj* find_listener(const sockaddr_storage& dst, rdma_port_space ps);

} // namespace fake::impl
