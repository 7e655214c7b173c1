// Script interface of the fake verbs library: the world, faults, events, completions and the resource ledger.
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A test links `fake_verbs` instead of -libverbs -lrdmacm. The library defines the ibv_* and rdma_* symbols over a
// small world simulated inside the process: devices with addresses, protection domains, memory regions, completion
// queues, shared receive queues, RC and UD queue pairs that really move bytes, and connections by rdma_cm. The world
// behaves like Soft-RoCE (rxe) and the kernel's connection manager unless a switch changes that. Event channels,
// completion channels and async fds are real pollable descriptors.
//
// Threads: every function here and every verbs/rdma_cm call may be used from any thread; one mutex guards the world.
// reset() needs all other threads to be out of the library.
// Misuse that would be undefined behaviour with the real libraries (use after destroy, double ack, a destroy that waits
// for its own acknowledgement for 5 s) prints the object, the last calls and aborts.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

namespace fake {

// ---------------------------------------------------------------------------------------------------- world

/// One port of a fake device. The GID table is: 0 link-local, then each IPv4 and IPv6 address in the given order.
struct port_config {
  std::vector<std::string> addresses;     ///< numeric IPv4 and IPv6 addresses of the port's network interface
  ibv_port_state state = IBV_PORT_ACTIVE; ///< state that ibv_query_port reports
  ibv_mtu active_mtu = IBV_MTU_1024;      ///< path MTU of connections
  std::uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;
  std::uint32_t max_msg_sz = 8388608;
  // InfiniBand only.
  std::uint16_t lid = 0;
  std::uint8_t lmc = 0;
  std::uint8_t flags = 0;                      ///< IBV_QPF_GRH_REQUIRED
  std::uint64_t subnet_prefix = 0;             ///< the subnet prefix of GID 0; 0: link-local
  std::vector<std::uint16_t> pkeys = {0xffff}; ///< the P_Key table
  std::size_t interface_pkey = 0;              ///< the index of the P_Key of the port's network interface
  std::uint8_t service_level = 0;              ///< of the path records that lead from here
  /// The name of the network interface of each address, where the port has several (VLANs); empty: one interface.
  std::vector<std::string> interfaces = {};
};

/// One fake device.
struct device_config {
  std::string name;
  std::vector<port_config> ports;
  ibv_transport_type transport = IBV_TRANSPORT_IB;
  /// Limits that ibv_query_device reports and that creating calls enforce; name, GUID and port count are filled in.
  std::optional<ibv_device_attr> attr = {};
  std::string sysfs = {};        ///< ibv_device::ibdev_path: its folder in sysfs
  std::uint8_t active_width = 1; ///< as ibv_query_port reports it: 1 for 1 lane, 16 for 2, 2 for 4, 4 for 8, 8 for 12
  std::uint8_t active_speed = 1; ///< as ibv_query_port reports it: 1 for SDR, 2 for DDR, up to 128 for NDR
  bool atomic_writes = false;    ///< the kernel reports that the device has them
  bool flushes = false;          ///< the kernel reports that the device has both kinds
  bool extended_qps = true;      ///< false: the provider lacks them, because it is older than the kernel
  bool extended_flushes = true;  ///< false: the provider lacks these, because it is older than the kernel
};

/// The work completion statuses of failing operations.
enum class statuses {
  rxe, ///< the status of Soft-RoCE (bad lkey: LOC_QP_OP_ERR, receive too short: LOC_QP_OP_ERR / REM_OP_ERR)
  iba, ///< the status by InfiniBand (LOC_PROT_ERR, LOC_LEN_ERR / REM_INV_REQ_ERR)
};

/// The simulated world. The default has fk1 (10.99.1.1, fd99:1::1) and fk2 (10.99.2.1, fd99:2::1), one port each.
struct world {
  std::vector<device_config> devices = {{"fk1", {{{"10.99.1.1", "fd99:1::1"}}}},
                                        {"fk2", {{{"10.99.2.1", "fd99:2::1"}}}}};
  statuses wc_statuses = statuses::rxe;
  bool flush_late_receives = true; ///< false: a receive posted in ERR stays until the next move to ERR (rxe)
  bool rejected_sends_stay = true; ///< a send refused with EINVAL below RTS stays queued, runs at the next post (rxe)
  bool destroy_drops = false;   ///< true: destroying a queue pair drops its unread completions (mlx5; rxe keeps them)
  bool timewait_exit = false;   ///< true: TIMEWAIT_EXIT follows the end of a disconnect at once
  bool hold_sends = false;      ///< true: sends wait for complete(); hold() sets it for one queue pair
  int max_backlog = 1024;       ///< the meaning of rdma_listen(id, 0)
  std::uint16_t pkey_index = 0; ///< index of the partition of connections by rdma_cm; above 0 on InfiniBand only
  int num_comp_vectors = 2;     ///< ibv_context::num_comp_vectors
  ibv_fork_status fork_status = IBV_FORK_UNNEEDED; ///< the result of ibv_is_fork_initialized() before ibv_fork_init()
};

/// The limits of rxe; a starting point for device_config::attr.
ibv_device_attr rxe_attr();

/// Frees everything and starts a new world. Faults, counts, held events and the trace are cleared, too.
void reset(const world& w = {});
/// Changes the switches of the running world (everything of `world` but the devices).
void tweak(const std::function<void(world&)>& change);

/// Port state change with IBV_EVENT_PORT_ERR / IBV_EVENT_PORT_ACTIVE on every open context of the device.
void set_port_state(std::string_view device, std::uint8_t port, ibv_port_state state);
/// Removes a device: IBV_EVENT_DEVICE_FATAL on its contexts, DEVICE_REMOVAL on ids bound to it, DISCONNECTED at their
/// peers, its queue pairs move to ERR, new objects on it fail with EIO, and it leaves the device list.
void remove_device(std::string_view device);
/// The descriptors of the device's contexts and completion channels fail, as those of a disassociated device do: they
/// poll as POLLHUP (a real one: POLLERR), and reading fails with EIO. Nothing else happens; remove_device does the
/// rest.
void kill_descriptors(std::string_view device);

/// The driver resets the device (mlx5: firmware reset, unbind): every open context of it is disassociated. Its
/// descriptors stay readable, and reading fails with EIO. Ids bound to it get DEVICE_REMOVAL. Its queue pairs process
/// nothing and have no flush completions. The device itself is present again at once and can be opened. (Linux 5.7,
/// drivers/infiniband/core/uverbs_main.c, ib_uverbs_event_read and ib_uverbs_event_poll)
void disassociate(std::string_view device);

// ---------------------------------------------------------------------------------------------------- calls, faults

/// The group of a symbol, for sweeps.
enum class group : unsigned {
  none = 0,     ///< cannot fail
  setup = 1,    ///< creates, queries, changes, connects
  transfer = 2, ///< ibv_post_*, ibv_poll_cq, ibv_req_notify_cq
  harvest = 4,  ///< rdma_get_cm_event, ibv_get_cq_event, ibv_get_async_event
  teardown = 8, ///< destroys, frees, closes, acknowledges
};
constexpr group operator|(group a, group b) { return group(unsigned(a) | unsigned(b)); }
constexpr bool has(group set, group one) { return (unsigned(set) & unsigned(one)) != 0; }

// symbol, group, errno that a sweep injects
#define FAKE_VERBS_CALLS(X)                                                                                            \
  X(ibv_get_device_list, setup, ENOSYS)                                                                                \
  X(ibv_free_device_list, none, 0)                                                                                     \
  X(ibv_get_device_name, none, 0)                                                                                      \
  X(ibv_get_device_guid, none, 0)                                                                                      \
  X(ibv_open_device, setup, EACCES)                                                                                    \
  X(ibv_close_device, teardown, EIO)                                                                                   \
  X(ibv_query_device, setup, EIO)                                                                                      \
  X(ibv_query_port, setup, EIO)                                                                                        \
  X(ibv_query_gid, setup, EIO)                                                                                         \
  X(ibv_query_gid_ex, setup, ENODATA)                                                                                  \
  X(ibv_query_gid_table, setup, EIO)                                                                                   \
  X(ibv_query_pkey, setup, EIO)                                                                                        \
  X(ibv_get_pkey_index, setup, EIO)                                                                                    \
  X(ibv_alloc_pd, setup, ENOMEM)                                                                                       \
  X(ibv_dealloc_pd, teardown, EBUSY)                                                                                   \
  X(ibv_reg_mr, setup, ENOMEM)                                                                                         \
  X(ibv_reg_mr_iova, setup, ENOMEM)                                                                                    \
  X(ibv_reg_mr_iova2, setup, ENOMEM)                                                                                   \
  X(ibv_reg_dmabuf_mr, setup, EOPNOTSUPP)                                                                              \
  X(ibv_dereg_mr, teardown, EINVAL)                                                                                    \
  X(ibv_alloc_mw, setup, ENOMEM)                                                                                       \
  X(ibv_dealloc_mw, teardown, EINVAL)                                                                                  \
  X(ibv_bind_mw, transfer, ENOMEM)                                                                                     \
  X(ibv_create_comp_channel, setup, EMFILE)                                                                            \
  X(ibv_destroy_comp_channel, teardown, EBUSY)                                                                         \
  X(ibv_create_cq, setup, ENOMEM)                                                                                      \
  X(ibv_resize_cq, setup, ENOMEM)                                                                                      \
  X(ibv_destroy_cq, teardown, EBUSY)                                                                                   \
  X(ibv_get_cq_event, harvest, EIO)                                                                                    \
  X(ibv_ack_cq_events, none, 0)                                                                                        \
  X(ibv_poll_cq, transfer, EIO)                                                                                        \
  X(ibv_req_notify_cq, transfer, EIO)                                                                                  \
  X(ibv_create_srq, setup, ENOMEM)                                                                                     \
  X(ibv_query_srq, setup, EIO)                                                                                         \
  X(ibv_modify_srq, setup, ENOMEM)                                                                                     \
  X(ibv_destroy_srq, teardown, EBUSY)                                                                                  \
  X(ibv_post_srq_recv, transfer, ENOMEM)                                                                               \
  X(ibv_create_qp, setup, ENOMEM)                                                                                      \
  X(ibv_query_qp, setup, EIO)                                                                                          \
  X(ibv_modify_qp, setup, EIO)                                                                                         \
  X(ibv_destroy_qp, teardown, EBUSY)                                                                                   \
  X(ibv_post_send, transfer, ENOMEM)                                                                                   \
  X(ibv_post_recv, transfer, ENOMEM)                                                                                   \
  X(ibv_create_ah, setup, ENOMEM)                                                                                      \
  X(ibv_destroy_ah, teardown, EINVAL)                                                                                  \
  X(ibv_init_ah_from_wc, setup, EINVAL)                                                                                \
  X(ibv_attach_mcast, setup, ENOMEM)                                                                                   \
  X(ibv_detach_mcast, teardown, EINVAL)                                                                                \
  X(ibv_get_async_event, harvest, EIO)                                                                                 \
  X(ibv_ack_async_event, none, 0)                                                                                      \
  X(ibv_fork_init, setup, EINVAL)                                                                                      \
  X(rdma_create_event_channel, setup, ENODEV)                                                                          \
  X(rdma_destroy_event_channel, none, 0)                                                                               \
  X(rdma_create_id, setup, ENOMEM)                                                                                     \
  X(rdma_destroy_id, teardown, EINVAL)                                                                                 \
  X(rdma_bind_addr, setup, EADDRNOTAVAIL)                                                                              \
  X(rdma_listen, setup, EADDRINUSE)                                                                                    \
  X(rdma_resolve_addr, setup, ENETUNREACH)                                                                             \
  X(rdma_resolve_route, setup, ENODEV)                                                                                 \
  X(rdma_connect, setup, ENOMEM)                                                                                       \
  X(rdma_establish, setup, EINVAL)                                                                                     \
  X(rdma_accept, setup, EINVAL)                                                                                        \
  X(rdma_reject, setup, EINVAL)                                                                                        \
  X(rdma_reject_ece, setup, EINVAL)                                                                                    \
  X(rdma_notify, setup, EINVAL)                                                                                        \
  X(rdma_disconnect, setup, EINVAL)                                                                                    \
  X(rdma_get_cm_event, harvest, ENOMEM)                                                                                \
  X(rdma_ack_cm_event, teardown, EINVAL)                                                                               \
  X(rdma_init_qp_attr, setup, EINVAL)                                                                                  \
  X(rdma_join_multicast_ex, setup, EINVAL)                                                                             \
  X(rdma_leave_multicast, teardown, EINVAL)                                                                            \
  X(rdma_set_option, setup, EINVAL)                                                                                    \
  X(rdma_migrate_id, setup, EINVAL)                                                                                    \
  X(rdma_get_devices, setup, ENOMEM)                                                                                   \
  X(rdma_free_devices, none, 0)

/// One enumerator for each symbol that is counted, traced and can fail on request.
enum class call : unsigned {
#define X(symbol, group_, errno_) symbol,
  FAKE_VERBS_CALLS(X)
#undef X
};

/// All of them, in table order.
const std::vector<call>& calls();
const char* name(call c);          ///< "ibv_create_qp"
group group_of(call c);            ///< the group of the symbol
int typical_errno(call c);         ///< the errno that a sweep injects
std::string errno_name(int error); ///< "ENOMEM"; "errno 4711" for an unknown number

/// The nth call of `c` from now (1 = the next) fails once with `error` in that function's own style (NULL + errno,
/// -1 + errno, or returned errno) and does nothing else. error 0 takes typical_errno(c); no_errno leaves errno as it
/// is, for functions that return -1, as a read that ends early does.
inline constexpr int no_errno = -1;
void fail(call c, unsigned nth = 1, int error = 0);
/// At the beginning of every call of `c`, before the call checks its arguments, calls `f` in the same thread. An empty
/// function, or reset(), ends this.
void intercept(call c, std::function<void()> f);
/// Whether the calling thread is inside a call of this library, which may allocate at any time.
bool inside() noexcept;
/// Forgets all faults that have not occurred yet, and returns their number.
std::size_t forget_faults();
/// Number of calls since reset(), failed ones included.
std::size_t count(call c);

/// The failure that `sweep` injects into one run. The first run has none.
struct injected {
  bool active = false;
  call which = call::ibv_get_device_list;
  unsigned nth = 0;
  int error = 0;
  std::string text() const; ///< "ibv_create_qp #2 fails with ENOMEM" or "no failure"
  bool hit() const;         ///< the failure has happened in this run
};

struct sweep_options {
  group groups = group::setup | group::transfer;
  unsigned max_per_call = 16; ///< at most this many runs per symbol (polling loops call some of them very often)
  world start = {};           ///< every run starts with reset(start)
  std::vector<call> skip = {};
};

/// The result of a sweep.
struct sweep_result {
  std::size_t runs = 0;             ///< runs with a failure
  std::vector<std::string> not_hit; ///< failures whose call did not occur in their run
  std::vector<std::string> dirty;   ///< runs after which objects were left: failure and leaks()
};

/// Runs `flow` once and counts the fallible calls of the groups, then once for every (call, n) with that call failing.
/// Each run starts in a new world. The flow checks its own expectations.
sweep_result for_each_failure(const std::function<void(const injected&)>& flow, const sweep_options& options = {});

// ---------------------------------------------------------------------------------------------------- ledger, trace

/// The present objects. The objects that librdmacm creates for itself are not counted.
struct live_counts {
  std::size_t contexts = 0, pds = 0, mrs = 0, mws = 0, comp_channels = 0, cqs = 0, srqs = 0, qps = 0, ahs = 0;
  std::size_t event_channels = 0, ids = 0, device_lists = 0;
  std::size_t unacked_cm_events = 0, unacked_cq_events = 0, unacked_async_events = 0;
  std::size_t total() const;
};
live_counts live();
/// Empty when no object is left and no call was made in a wrong order; otherwise a text: "leaked: qp 1 (qp#2), ...".
std::string leaks();
/// Wrong orders that the real libraries do not report (context closed with objects on it, channel with ids).
std::vector<std::string> violations();
/// The last calls with object and result, one a line, oldest first.
std::string trace(std::size_t last = 40);

// ---------------------------------------------------------------------------------------------------- objects

std::vector<ibv_qp*> qps();              ///< live queue pairs in order of creation
std::vector<ibv_cq*> cqs();              ///< live completion queues in order of creation
std::vector<ibv_context*> contexts();    ///< contexts that the program opened
std::vector<rdma_cm_id*> ids();          ///< ids that the program holds, in order of creation
ibv_qp* qp_by_num(std::uint32_t qp_num); ///< nullptr if there is none
/// A flush that the peer's device has performed.
struct flushed_range {
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  unsigned type = 0;         ///< IBV_FLUSH_GLOBAL 1, IBV_FLUSH_PERSISTENT 2
  bool whole_region = false; ///< IBV_FLUSH_MR
  friend bool operator==(const flushed_range&, const flushed_range&) = default;
};
std::vector<flushed_range> flushed(); ///< in the order in which they were performed
int resolve_timeout_ms();             ///< the timeout of the latest rdma_resolve_addr
/// The arguments of each rdma_connect and rdma_accept of a connection, in order. Their private data is gone.
std::vector<rdma_conn_param> connection_parameters();
std::vector<ibv_ah_attr> ah_attributes(); ///< the attributes of the live address handles, in order of creation
/// From now on the descriptor is a dmabuf with this memory, which represents the memory of another device.
void offer_dmabuf(int descriptor, std::span<std::byte> memory);
unsigned mr_access(const ibv_mr* mr);             ///< the access flags that the region was registered with
rdma_cm_id* id_of_qp(std::uint32_t qp_num);       ///< the newest id that was connected or accepted with it
rdma_cm_id* listener(std::uint16_t port);         ///< the listening id on that port (host byte order)
ibv_qp_state qp_state(const ibv_qp* qp);          ///< the device's view, not ibv_qp::state
std::size_t posted_receives(const ibv_qp* qp);    ///< receives that wait in its receive queue
std::size_t pending_sends(const ibv_qp* qp);      ///< sends that wait (held, or no receive at the peer)
std::size_t unread_completions(const ibv_cq* cq); ///< entries that ibv_poll_cq would give

// ---------------------------------------------------------------------------------------------------- cm events

/// An event to inject. Set exactly one target: id, qp_num (see id_of_qp) or port (a listener, for CONNECT_REQUEST).
/// The id's state follows as if a message from the peer had come: after CONNECT_RESPONSE rdma_init_qp_attr and
/// rdma_establish work, after REJECTED they fail.
struct cm_event {
  rdma_cm_event_type event = RDMA_CM_EVENT_ESTABLISHED;
  int status = 0;
  std::string private_data = {};             ///< padded with zeros to the size that the message has
  std::uint32_t remote_qp_num = 0x9999;      ///< CONNECT_REQUEST, CONNECT_RESPONSE
  std::uint8_t responder_resources = 4;      ///< as the event shows it
  std::uint8_t initiator_depth = 4;          ///< as the event shows it
  std::uint8_t flow_control = 0;             ///< CONNECT_REQUEST, CONNECT_RESPONSE
  std::string remote_address = "10.99.1.77"; ///< CONNECT_REQUEST
  rdma_cm_id* id = nullptr;
  std::uint32_t qp_num = 0;
  std::uint16_t port = 0;
};
/// Injects the event, which drop_next() and hold_events() do not affect. Aborts if there is no such target.
void deliver(const cm_event& e);

/// The next `n` events of this type are lost on the wire: there is no event, and the receiver's state does not change.
void drop_next(rdma_cm_event_type type, unsigned n = 1);
/// From now on events (of this type, or all) do not arrive but wait in a list.
void hold_events(std::optional<rdma_cm_event_type> type = {});
/// Types in the list, in order.
std::vector<rdma_cm_event_type> held_events();
/// Lets the event at `index` arrive; releasing 1 before 0 swaps two. False if there is none.
bool release_event(std::size_t index = 0);
/// Lets all of them arrive in order and ends holding.
void release_events();

// ---------------------------------------------------------------------------------------------------- async events

void async(ibv_event_type type, ibv_qp* qp);
void async(ibv_event_type type, ibv_cq* cq);
void async(ibv_event_type type, ibv_srq* srq);
void async(ibv_event_type type, ibv_context* context, int port = 1);

// ---------------------------------------------------------------------------------------------------- completions

/// Sends posted on this queue pair from now on wait for complete(); false lets them and the waiting ones run.
void hold(ibv_qp* qp, bool on = true);
/// Completes a waiting send (the oldest, or the oldest with this wr_id). With success, the request moves the data, and
/// has a work completion if it is signaled. With any other status, the request always has a work completion, moves no
/// data, and moves the queue pair to ERR. False if there is no such send, or if success has to wait (no receive posted
/// at the peer).
bool complete(ibv_qp* qp, std::optional<std::uint64_t> wr_id = {}, ibv_wc_status status = IBV_WC_SUCCESS);
/// The oldest waiting send reaches the peer, but its acknowledgement is lost: the peer gets the data and the completion
/// of its receive, and the sender's queue pair moves to ERR with RETRY_EXC_ERR. False as complete.
bool lose_acknowledgement(ibv_qp* qp);
/// Completes a posted receive, like `complete`. No data is moved, and byte_len is reported on success.
bool complete_recv(ibv_qp* qp, std::optional<std::uint64_t> wr_id = {}, ibv_wc_status status = IBV_WC_SUCCESS,
                   std::uint32_t byte_len = 0);
/// A send that waits for a receive, or for a peer that does not answer, fails: RNR_RETRY_EXC_ERR or RETRY_EXC_ERR, and
/// the queue pair moves to ERR. False if no send waits. (Retry counts 1..6 wait for this call for RNR; 0 fails at once,
/// 7 waits indefinitely.)
bool give_up(ibv_qp* qp);
/// Puts any work completion on a completion queue.
void forge(ibv_cq* cq, const ibv_wc& wc, bool solicited = false);
/// The first part of a message arrives at a queue pair with a shared receive queue: it holds a buffer from now on.
/// After the move to ERR the device completes that buffer late, just before IBV_EVENT_QP_LAST_WQE_REACHED is read
/// (mlx5, with destroy_drops). False if the shared queue has no buffer.
bool begin_message(ibv_qp* qp);
/// The device moves a queue pair to ERR, as after a fatal error: flushes, no event.
void break_qp(ibv_qp* qp);

} // namespace fake
