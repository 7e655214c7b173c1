// State and inner functions of the simulated world; used by the sources of the fake only.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "objects.hpp"
#include "personality.hpp"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>

namespace fake::impl {

inline constexpr std::size_t call_count = 0
#define X(symbol, group_, errno_) +1
    FAKE_VERBS_CALLS(X)
#undef X
    ;

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
  unsigned made_serial; ///< 0: no object was created
  int error;            ///< 0: fine
  bool injected;
  unsigned times;
};

/// Something that a device does some time after the call that causes it: a flush completion, or the event that no
/// more of them follow.
struct late_work {
  qp_obj* qp;
  cq_obj* cq; ///< null: the event
  ibv_wc wc{};
  unsigned calls = 0; ///< calls of the program since then
};

struct state {
  world cfg;
  manners ways;
  std::vector<std::unique_ptr<device_state>> devices;
  std::vector<std::unique_ptr<object>> objects;                      ///< in order of creation, the dead ones too
  std::array<std::vector<object*>, std::size_t(kind::count)> living; ///< by kind; all_live removes the dead ones
  std::unordered_map<const void*, object*> by_handle;
  std::array<unsigned, std::size_t(kind::count)> serials{};
  std::map<std::uint32_t, qp_obj*> qp_nums;
  std::map<std::uint32_t, mr_obj*> keys;
  std::vector<flushed_range> flushed;
  std::map<int, std::span<std::byte>> dmabufs; ///< by their descriptors
  std::map<std::uint32_t, mw_obj*> windows;    ///< by their keys without the low byte
  std::map<const void*, std::unique_ptr<ibv_device*[]>> device_lists;
  std::map<const void*, std::unique_ptr<ibv_context*[]>> cm_device_lists;
  std::map<const rdma_cm_event*, std::unique_ptr<event_obj>> cm_events;
  int resolve_timeout_ms = 0; ///< the timeout of the latest rdma_resolve_addr
  std::vector<rdma_conn_param> connection_parameters;
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
  std::deque<late_work> late;
  bool late_held = false;
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
  w.living[std::size_t(T::k)].push_back(&ref);
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
  auto& kin = the_world().living[std::size_t(T::k)];
  std::erase_if(kin, [](const object* o) { return !o->alive; });
  std::vector<T*> r;
  r.reserve(kin.size());
  for (auto* o : kin) r.push_back(static_cast<T*>(o));
  return r;
}

/// Whether the device has as many objects of a kind as its limit.
template <class T>
bool is_full(const device_state& d, int most) {
  const auto all = all_live<T>();
  return std::count_if(all.begin(), all.end(), [&](const T* o) { return o->ctx->dev == &d; }) >= most;
}

void run_interceptor(call c); ///< without the mutex
void forget_interceptors();

/// While one exists, the thread is inside the library: see fake::inside.
class inside_mark {
public:
  inside_mark() noexcept;
  inside_mark(const inside_mark&) = delete;
  inside_mark& operator=(const inside_mark&) = delete;
  ~inside_mark();
};
[[nodiscard]] bool is_inside() noexcept;

/// Scope of one verbs or rdma_cm call: lock, count, fault, trace.
class entry {
  inside_mark mark_;
  std::unique_lock<std::mutex> lock_; // taken before the world is inspected

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
  void quiet() { quiet_ = true; } ///< this call leaves no line in the trace

private:
  call which_;
  int fault_ = 0;
  int error_ = 0;
  bool quiet_ = false;
  kind what_ = kind::context, made_ = kind::context;
  unsigned serial_ = 0, made_serial_ = 0;
};

/// Waits until `done`, for a call that destroys an object and needs all its events acknowledged. Aborts the program
/// after 5 s: a real device would wait indefinitely.
void wait_acked(std::unique_lock<std::mutex>& lock, const std::string& what, const std::function<bool()>& done);
/// Waits outside of the lock until `fd` is readable. 0, or EAGAIN on a non-blocking descriptor, or EINTR.
int wait_readable(std::unique_lock<std::mutex>& lock, int fd);

// late and slow devices
void do_late(late_work what);      ///< the device does the work when its time has passed
void finish_late();                ///< finishes all delayed work now
void forget_late(const qp_obj& q); ///< a queue pair that was reset or destroyed
void pace(call c);                 ///< without the mutex: takes the time that the call takes
void set_pace(const manners& m);
void age_late(); ///< with each call of the program
/// The manners of the personality; in `w` it sets what is at its default.
manners follow_personality(world& w);

// InfiniBand and iWARP
bool is_infiniband(const device_state& d, unsigned port);
inline bool is_iwarp(const device_state& d) { return d.cfg.transport == IBV_TRANSPORT_IWARP; }
ibv_gid gid_of_port(const sockaddr_storage& a); ///< the GID of the port that owns the address, as rdma_cm uses it
/// The path from the device's port to an address, as rdma_cm sets it in a queue pair or an address handle.
ibv_ah_attr path_between(const device_state& d, std::uint8_t port, const sockaddr_storage& from,
                         const sockaddr_storage& to);
/// The kernel of an iWARP device moves the queue pair of an id to RTS.
void iwarp_rts(id_obj& id);
int iwarp_accept(id_obj& id, const rdma_conn_param& shown, const void* data, std::size_t n);
void iwarp_close(id_obj& id); ///< both ends
int iwarp_init_attr(const id_obj& id, ibv_qp_attr& attr, int& mask);
/// 0, or the errno with which libsiw refuses a request.
int iwarp_refuses(const qp_obj& q, const ibv_send_wr& wr);

// devices
device_state* device_named(std::string_view name);
context_obj& new_context(device_state& d, bool of_cm);
context_obj& cm_context(device_state& d);
void push_async(context_obj& ctx, const ibv_async_event& e);
void kill_descriptors_of(const device_state& d);
void discard_async_of(context_obj& ctx, const void* handle); ///< unread events of one object
/// Finds the port that owns the address, whose port number is ignored; false if there is none.
struct owner {
  device_state* dev = nullptr;
  std::uint8_t port = 0;
};
owner owner_of(const sockaddr_storage& a);
bool same_subnet(const sockaddr_storage& a, const sockaddr_storage& b);
sockaddr_storage parse_address(const std::string& text);
ibv_gid gid_of(const sockaddr_storage& a);
ibv_gid gid_at(const device_state& d, std::uint8_t port, int index);
int gid_count(const device_state& d, unsigned port); ///< entries of the GID table; InfiniBand: one
int gid_index(const device_state& d, std::uint8_t port, const ibv_gid& g);
bool has_gid(const device_state& d, const ibv_gid& g);
const port_config* port_of(const device_state& d, unsigned port);

// completion queues
void push_wc(cq_obj& cq, const ibv_wc& wc, bool solicited);

// memory
mr_obj* local_region(qp_obj& q, const ibv_sge& s, bool write);
/// The memory that a peer reaches by the key of a region or a window; null without access.
std::byte* remote_memory(qp_obj& responder, std::uint32_t rkey, std::uint64_t addr, std::uint64_t length,
                         unsigned access);
/// Whether a peer may use the whole region of a key in this way.
bool remote_region(qp_obj& responder, std::uint32_t rkey, unsigned access);
std::byte* pointer_into(const mr_obj& m, std::uint64_t addr);

ibv_mw* op_alloc_mw(ibv_pd*, ibv_mw_type);
int op_dealloc_mw(ibv_mw*);
int op_bind_mw(ibv_qp*, ibv_mw*, ibv_mw_bind*);
bool bind_window(qp_obj& q, const send_wqe& s);       ///< executes IBV_WR_BIND_MW
bool invalidate_window(qp_obj& q, std::uint32_t key); ///< of type 2, bound through that queue pair
void unbind(mw_obj& m);

// queue pairs and data path
std::uint32_t ring_depth(std::uint32_t asked); ///< 2^n-1 that holds `asked`
ibv_wc failed_wc(const qp_obj& q, std::uint64_t wr_id, ibv_wc_status status);
qp_obj* find_qp(std::uint32_t num);
void flush_wc(qp_obj& q, bool receive, std::uint64_t wr_id);
void flush_at_once(qp_obj& q, bool receive, std::uint64_t wr_id); ///< also where flush completions are late
void last_wqe_reached(qp_obj& q);
void to_error(qp_obj& q);
void kick(qp_obj& q);
void kick_peer(qp_obj& q);
void run();
bool execute(qp_obj& q, send_wqe& wqe); ///< true: finished (successfully or not), false: has to wait
void deliver_datagram(qp_obj& q, const send_wqe& s, const std::vector<std::byte>& data);
void fail_send(qp_obj& q, const send_wqe& wqe, ibv_wc_status status);
void check_limit(srq_obj& s);
std::vector<ibv_sge> copy_sges(const ibv_sge* list, int n);
int op_post_send(ibv_qp*, ibv_send_wr*, ibv_send_wr**);
int op_query_device_ex(ibv_context*, const ibv_query_device_ex_input*, ibv_device_attr_ex*, std::size_t);
ibv_qp* op_create_qp_ex(ibv_context*, ibv_qp_init_attr_ex*);
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
id_obj& new_child(id_obj& listener, id_obj& asking, const owner& at); ///< for the request of another id
void destroy_on_wire(id_obj& id);
void send_reject(id_obj& from, int status, std::vector<std::byte> data);
void send_dreq(id_obj& from);
int ask_datagram(id_obj& id, const rdma_conn_param* param); ///< 0 or errno, like the next two
int accept_datagram(id_obj& id, const rdma_conn_param* param);
int reject_datagram(id_obj& id, const void* data, std::size_t n);
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

/// Copies like a device, without checks of AddressSanitizer, because a posted buffer may be poisoned.
void dma_copy(std::byte* to, const std::byte* from, std::size_t n);

} // namespace fake::impl
