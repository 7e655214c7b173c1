// Endpoints: one end of a connection, where operations are posted.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>
#include <dat/dto.hpp>
#include <dat/ep_attributes.hpp>
#include <dat/error.hpp>
#include <dat/expected.hpp>
#include <dat/fwd.hpp>
#include <dat/object.hpp>
#include <dat/qos.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/base/misuse.hpp>
#include <dat/detail/endpoint/core.hpp>
#include <dat/detail/endpoint/track.hpp>
#include <dat/detail/handle/core_access.hpp>
#include <dat/detail/handle/handle.hpp>
#include <dat/detail/handle/unique_object.hpp>
#include <dat/detail/posting/endpoint_queues.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace dat { inline namespace v0 {

template <std::size_t N, std::size_t Iov>
class batch;

/// An ep_ref names an endpoint without owning it. Events carry it. It is copyable, as cheap as a pointer, comparable
/// and hashable.
///
/// The ep_ref of a DTO completion is valid until its endpoint is closed. The ep_ref of a connection event is valid as
/// long as the event.
/// Thread safety: two posts of requests to one endpoint must not overlap, and neither must two posts of receives. A
/// post of requests may overlap a post of receives, and both may overlap calls that take completions from an evd.
class ep_ref : public dat::object<ep_ref, object_kind::ep> {
public:
  constexpr ep_ref() noexcept = default;

  /// Posts operations in order, with one doorbell for all of them.
  ///
  ///     ep.post(dat::send{out}.cookie(1));
  ///     ep.post(dat::rdma_write{block, window}.suppress_completion(), dat::rdma_write{tail, rest}.immediate(7));
  ///     ep.post(dat::recv{a}, dat::recv{b});
  ///
  /// Requests (send, RDMA) need a connection (uDAPL 2.0 §6.6.20-§6.6.25). Receives may be posted in any state. On a
  /// disconnected endpoint both complete as flushed.
  ///
  /// Errors: the checks come before anything reaches the device, and they cover all operations of the call together:
  /// - `invalid_state` with the endpoint's state as subtype: a request without a connection
  /// - `insufficient_resources`: no room in the queue. The endpoint stays usable: take completions, then post again.
  /// - `protection_violation`: memory of another protection zone, or a segment of 4 GiB and more. The subtype is the
  ///   use of the memory by the operation: `protection_read`; RDMA reads, atomics and receives `protection_write`
  /// - `length_error`: the operation is longer than max_message_size, than the remote segment, or than max_inline for
  ///   `.inlined()`
  /// - `invalid_parameter`: more segments than the endpoint's limit; a read of more segments than the adapter's
  ///   max_iov_segments_per_rdma_read; a read on a connection that allows none
  /// - `privileges_violation`: a segment is of an lmr that is empty or closed. The subtype is `privileges_read` or
  ///   `privileges_write`, as above.
  /// - `invalid_handle`: the endpoint is closed
  /// - the device's errno: the device refused an operation. `error().index()` is the number of operations before it,
  ///   which are posted.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: must not overlap another post of the same kind (requests or receives) to this endpoint.
  template <class... D>
  requires(sizeof...(D) > 0) [[gnu::always_inline]] expected<void> post(const D&... operations) const noexcept {
    constexpr bool receives = (detail::is_recv<D> && ...);
    constexpr bool requests = (detail::is_request<D> && ...);
    static_assert(receives || requests, "dat: post either receives or requests (send, rdma_write, rdma_read) in one "
                                        "call: they go to different queues");
    if constexpr (detail::checked_build)
      if (auto ok = detail::track(*core_, detail::request_access::of(operations)...); !ok) return ok;
    if constexpr (receives)
      return detail::post(detail::recv_queue(*core_), detail::request_access::of(operations)...);
    else if constexpr (requests)
      return detail::post(detail::queue_for<detail::request_queue, D...>(*core_),
                          detail::request_access::of(operations)...);
  }

  /// Posts operations by a policy of <dat/policies.hpp>: `ep.post<dat::unchecked>(...)`, `ep.post<dat::tracked>(...)`.
  /// Errors, Allocates, Blocks and Thread safety: as the policy documents.
  template <class Policy, class... D>
  requires(Policy::is_posting_policy && sizeof...(D) > 0)
      [[gnu::always_inline]] expected<void> post(const D&... operations) const noexcept {
    static_assert((detail::is_recv<D> && ...) || (detail::is_request<D> && ...),
                  "dat: post either receives or requests (send, rdma_write, rdma_read) in one call: they go to "
                  "different queues");
    return Policy::post(*core_, operations...);
  }

  /// Posts `n` requests in order, with one doorbell for every 16 of them. `make(0)` to `make(n - 1)` return the
  /// requests.
  ///
  ///     ep.post_n(blocks.size(), [&](std::size_t i) { return dat::rdma_write{blocks[i], window[i]}.cookie(i); });
  ///
  /// `make` returns requests of one type and of one segment each, and must not post to this endpoint.
  ///
  /// Errors: as post, with one difference. If the queue has no room for all `n` requests, none is posted. If a request
  /// is refused, those before it are posted, and `error().index()` is their number; that request and those after it are
  /// not posted. An exception of `make` is passed on, and up to 15 requests before it are then not posted either.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: must not overlap another post of requests to this endpoint.
  template <std::invocable<std::size_t> Make>
  [[gnu::always_inline]] expected<void> post_n(std::size_t n, Make make) const noexcept(noexcept(make(std::size_t{}))) {
    using made = std::remove_cvref_t<std::invoke_result_t<Make&, std::size_t>>;
    static_assert(detail::is_request<made>, "dat: post_n takes a callable that returns the request of an index (send, "
                                            "rdma_write, rdma_read, atomics); give receives to post");
    static_assert(made::max_segments == 1, "dat: post_n takes requests of one segment: put those of several, or of "
                                           "none, into a dat::batch<N, Iov>");
    if constexpr (made::max_segments == 1)
      return detail::post_many(detail::basic_request_queue<detail::ep_post_n>(*core_), n, make);
  }

  /// Posts a batch that was filled at run time; see batch.hpp. The batch is unchanged and may be posted again.
  /// Errors, Allocates, Blocks and Thread safety: as post_n.
  template <std::size_t N, std::size_t Iov>
  expected<void> post(batch<N, Iov>& operations) const noexcept {
    return operations.post_to(*core_);
  }

  /// The current state; `disconnected` for an endpoint that is empty or closed.
  /// Thread safety: safe.
  [[nodiscard]] ep_state state() const noexcept {
    const ep_state s = core_->state();
    return s == detail::ep_dead ? ep_state::disconnected : s == detail::ep_datagram ? ep_state::connected : s;
  }
  /// The queue pair number, by which adapters, counters and `rdma resource show` identify the endpoint.
  [[nodiscard]] std::uint32_t number() const noexcept { return core_->number(); }
  /// False for an ep_ref that names nothing.
  explicit operator bool() const noexcept { return core_ != &detail::null_ep; }
  [[nodiscard]] const detail::ep_core* native() const noexcept { return entity(); }

  explicit ep_ref(detail::ep_core* core) noexcept {
    if (core) core_ = core;
  }

private:
  friend dat::object<ep_ref, object_kind::ep>;
  friend struct detail::core_access;
  detail::ep_posting* core_ = &detail::null_ep; // never null, so a post does not check it
  [[nodiscard]] detail::ep_core* entity() const noexcept {
    return *this ? static_cast<detail::ep_core*>(core_) : nullptr;
  }
};

/// An endpoint of a service: dat::ep<dat::rc> of connections, or dat::ep<dat::ud> of datagrams (<dat/ud.hpp>).
template <class Service>
class ep;

/// A reliable-connection endpoint (uDAPL 2.0 §6.6). `pz::create_ep<dat::rc>` creates it. `connect` on one side and
/// `cr::accept` on the other connect it, and then `post` moves data.
///
/// Move-only. The destructor ends the connection as `close` does. It cannot fail and does not wait for the peer.
/// Thread safety: for posts, see ep_ref. Any thread may call `connect`, `disconnect`, `reset` and the queries, with two
/// exceptions: a graceful `disconnect` counts as a post of a request, and `reset` must not overlap posts. `close`,
/// moving and destruction must not overlap any other use, nor a call that takes completions from a completions-only
/// evd to which the endpoint is attached.
template <>
class ep<rc> : public detail::unique_object<ep<rc>, detail::ep_core, object_kind::ep> {
public:
  ep() noexcept = default; ///< names no endpoint; every call answers invalid_handle

  /// Posts operations; see ep_ref::post.
  /// Errors, Allocates, Blocks and Thread safety: as ep_ref::post.
  template <class... D>
  requires(sizeof...(D) > 0) [[gnu::always_inline]] expected<void> post(const D&... operations) const noexcept {
    return ref_.post(operations...);
  }
  /// Posts operations by a policy; see ep_ref::post.
  /// Errors, Allocates, Blocks and Thread safety: as ep_ref::post.
  template <class Policy, class... D>
  requires(Policy::is_posting_policy && sizeof...(D) > 0)
      [[gnu::always_inline]] expected<void> post(const D&... operations) const noexcept {
    return ref_.template post<Policy>(operations...);
  }
  /// Posts a batch; see batch.hpp.
  /// Errors, Allocates, Blocks and Thread safety: as ep_ref::post.
  template <std::size_t N, std::size_t Iov>
  expected<void> post(batch<N, Iov>& operations) const noexcept {
    return ref_.post(operations);
  }
  /// Posts a number of requests that is known at run time; see ep_ref::post_n.
  /// Errors, Allocates, Blocks and Thread safety: as ep_ref::post_n.
  template <std::invocable<std::size_t> Make>
  [[gnu::always_inline]] expected<void> post_n(std::size_t n, Make make) const noexcept(noexcept(make(std::size_t{}))) {
    return ref_.post_n(n, std::move(make));
  }

  /// Asks the service `qualifier` at the adapter address `remote` for a connection (uDAPL 2.0 §6.6.14). Returns at
  /// once. The connect evd gets exactly one of `established`, `peer_rejected`, `non_peer_rejected`,
  /// `connection_unreachable` and `connection_timed_out` within `limit`. The peer gets `data`, at most 56 bytes, with
  /// the request. Up to 52 bytes, a peer that does not use dat finds zeros behind the data, and a mark of dat in the
  /// last four of 56 bytes. `options`: the quality of service; see <dat/qos.hpp>.
  /// Errors: all of them leave the endpoint unconnected with its receives posted:
  /// - `invalid_state`: the endpoint is not unconnected
  /// - `invalid_parameter`: `limit` is not positive, `data` is too long, or a value of `options` is out of its range
  /// - `model_not_supported`: `options` asks for several paths, or for what iWARP does not have
  /// - `invalid_address`: no peer can have that address, or the adapter has no address of its family
  /// - `insufficient_resources`: no memory, or no id of the connection manager
  /// - `invalid_handle`: the handle is empty or its ia is closed
  /// Allocates: yes.
  /// Blocks: no.
  /// Thread safety: safe.
  expected<void> connect(const ia_address& remote, conn_qual qualifier, timeout limit,
                         std::span<const std::byte> data = {}, const connect_options& options = {}) noexcept;
  template <class Port, detail::no_time_limit Limit>
  void connect(const ia_address&, Port, Limit, std::span<const std::byte> = {}, const connect_options& = {}) noexcept {
    static_assert(detail::never<Limit>,
                  "dat: a time limit is a whole number with a unit of microseconds or more, such as 5ms or 2s");
  }

  /// Connects without a connection manager to the endpoint that `peer` describes. The peer does the same with the
  /// descriptor of this endpoint. Needs <dat/descriptor.hpp>. The connect evd gets `established` at once. A message
  /// that is sent before the peer has connected may be lost, and the connection with it, so each side should inform the
  /// other when it is connected. The peer gets no event of a disconnect: its connection breaks when it sends. Members
  /// of `quality` that are not set are those of the endpoint.
  ///
  /// Errors: all but the last leave the endpoint unconnected with its receives posted:
  /// - `invalid_state`: the endpoint is not unconnected
  /// - `invalid_parameter`: the descriptor is of a datagram endpoint or of another link layer; a value of `quality` is
  ///   out of its range
  /// - `invalid_address`: no path leads to the peer
  /// - `insufficient_resources`: no memory
  /// - the device's errno: if the second transition fails, the endpoint becomes disconnected and the connect evd gets
  ///   `non_peer_rejected`
  /// Allocates: yes.
  /// Blocks: up to a second in the kernel, while it resolves the peer's link address; normally without the endpoint's
  /// lock.
  /// Thread safety: safe.
  expected<void> connect(const ib::descriptor& peer, const qos& quality = {}) noexcept;
  /// The descriptor of this endpoint, for a peer that calls `connect(descriptor)`. It is valid until the next
  /// `reset` or `modify`.
  /// Errors: `invalid_state` for an unconfigured endpoint; `invalid_address` when the adapter has no address;
  /// `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  template <class Descriptor = ib::descriptor>
  [[nodiscard]] expected<detail::if_complete<Descriptor>> export_descriptor() const noexcept {
    static_assert(detail::complete<Descriptor>, "dat: include <dat/descriptor.hpp> to export descriptors");
    if constexpr (detail::complete<Descriptor>) return detail::dependent<Descriptor>(*this).make_descriptor();
  }

  /// Asks the service at `remote` for a connection (uDAPL 2.0 §6.6.15). `remote` includes the port, as the address of a
  /// socket does. The endpoint needs a communicator of the family of `remote`: see ep_attributes::comm and `modify`.
  ///
  /// Errors: as `connect`, but never `invalid_address`, and also
  /// - `invalid_parameter`: the address has no port, cannot be a peer's, is not of the communicator's domain, or cannot
  ///   be reached from the endpoint's local address
  /// - `invalid_state` (ep_notready): the endpoint has no communicator
  /// Allocates: yes.
  /// Blocks: no.
  /// Thread safety: safe.
  expected<void> common_connect(const ia_address& remote, timeout limit, std::span<const std::byte> data = {}) noexcept;

  /// Asks for a second connection to the service to which `original` is connected (uDAPL 2.0 §6.6.16). Later changes of
  /// `original` have no effect. The quality of service is this endpoint's own, or `quality`. The local address is this
  /// endpoint's own, or else that of `original`.
  ///
  /// Errors: as `connect`, but never `invalid_address`, and also
  /// - `invalid_state`: `original` is not connected, was accepted, or was connected by a descriptor; its peer may not
  ///   listen anywhere
  /// - `invalid_parameter`: `original` is of another ia, or its peer cannot be reached from this endpoint's address
  /// Allocates: yes.
  /// Blocks: no.
  /// Thread safety: safe.
  expected<void> dup_connect(const ep& original, timeout limit, std::span<const std::byte> data = {},
                             const qos& quality = {}) noexcept;

  /// Ends the connection, or an attempt at one (uDAPL 2.0 §6.6.17). Both sides get `disconnected` on the connect evd.
  /// On a disconnected endpoint the call succeeds and has no effect.
  ///
  /// - `close_mode::abrupt`: at once. Outstanding operations are flushed.
  /// - `close_mode::graceful`: the endpoint takes no new requests, and the connection ends when all posted requests
  ///   have completed. If their evd is completions-only, the connection ends when their completions are taken. The
  ///   connection may never end if the peer posts no receive; an abrupt disconnect or `close` ends the connection then.
  ///
  /// Errors: `invalid_state` on an unconnected endpoint; `invalid_parameter` for another value of `how`;
  /// `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe; a graceful disconnect must not overlap posts of requests.
  expected<void> disconnect(close_mode how = close_mode::abrupt) noexcept;

  /// Makes a disconnected endpoint ready for another connection (uDAPL 2.0 §6.6.18). Completions that were not taken
  /// are lost. The call has no effect on an unconnected endpoint. With a completions-only evd, take the flushed
  /// completions first: some adapters keep them in the completion queue, which may fill up after several resets.
  ///
  /// Errors: `invalid_state` in other states; `insufficient_resources` when the device has no queue pair left, or when
  /// memory is exhausted; `invalid_handle`.
  /// Allocates: the memory for copies of receives that are posted before the next connection.
  /// Blocks: with an srq, up to 20 ms after the end of the connection, until the device has released the buffers of
  /// messages that had arrived in part.
  /// Thread safety: must not overlap posts, nor a call that takes completions from a completions-only evd of the
  /// endpoint.
  expected<void> reset() noexcept;

  /// Ends the connection without an event and frees the endpoint (uDAPL 2.0 §6.6.8). Outstanding operations never
  /// complete, and the consumer may reuse their memory when the call returns. The handle is empty afterwards.
  ///
  /// Errors: `invalid_handle` when the handle was empty or its ia was closed; `invalid_state` while a reserved service
  /// point or an unanswered connection request holds the endpoint.
  /// Allocates: no.
  /// Blocks: with an srq, as `reset`.
  /// Thread safety: must not overlap any other use.
  expected<void> close() noexcept;

  // Parameters. These functions and their types are in <dat/ep_params.hpp>; include it to call them.

  /// Changes the parameters that the endpoint was created with, or supplies missing ones, all or none (uDAPL 2.0
  /// §6.6.12).
  ///
  ///     ep.modify({.pz = &pz, .recv = evd, .max_recv_dtos = 512});
  ///
  /// Allowed until connect or accept. The zone, the communicator and the local address cannot change once the endpoint
  /// is reserved. recv_completion, once it is chosen, can change only while no receive is posted. Posted receives stay
  /// posted, in their order. A receive of another zone than the new one fails when a message uses it
  /// (`local_protection`), and the connection breaks.
  ///
  /// Errors: all of them leave the endpoint unchanged:
  /// - `invalid_state`: in any other state, or posted receives do not fit the new max_recv_dtos or max_recv_iov
  /// - `invalid_parameter`: a value that the device cannot provide
  /// - `invalid_handle`: a zone or evd that is closed or of another ia
  /// - `insufficient_resources`: the device or its memory is exhausted, or an evd cannot hold the completions
  /// Allocates: yes.
  /// Blocks: briefly, in the driver.
  /// Thread safety: must not overlap posts, attributes, status and recv_query.
  expected<void> modify(const ep_changes& wanted) noexcept;
  /// All parameters of the endpoint (uDAPL 2.0 §6.6.10).
  /// Errors: `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  template <class Result = ep_params>
  [[nodiscard]] expected<detail::if_complete<Result>> query() const noexcept {
    static_assert(detail::complete<Result>, "dat: include <dat/ep_params.hpp> to query the parameters of an endpoint");
    if constexpr (detail::complete<Result>) return detail::dependent<Result>(*this).read_params();
  }
  /// The state, and whether anything is outstanding (uDAPL 2.0 §6.6.9).
  /// Errors: `invalid_handle`.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe, also in signal handlers.
  template <class Result = ep_status>
  [[nodiscard]] expected<detail::if_complete<Result>> status() const noexcept {
    static_assert(detail::complete<Result>, "dat: include <dat/ep_params.hpp> to query the status of an endpoint");
    if constexpr (detail::complete<Result>) return detail::dependent<Result>(*this).read_status();
  }
  /// The number of receives that are posted and have not completed, where it can be known (uDAPL 2.0 §6.6.11): see
  /// ep_recv_buffers.
  /// Errors: `invalid_handle`.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  template <class Result = ep_recv_buffers>
  [[nodiscard]] expected<detail::if_complete<Result>> recv_query() const noexcept {
    static_assert(detail::complete<Result>,
                  "dat: include <dat/ep_params.hpp> to query the receive buffers of an endpoint");
    if constexpr (detail::complete<Result>) return detail::dependent<Result>(*this).read_recv_buffers();
  }
  /// Sets and arms the soft and the hard high watermark of receives (uDAPL 2.0 §6.6.13); see ep_attributes.
  /// `no_watermark` removes one. Allowed in any state. A watermark that is already exceeded takes effect during the
  /// call, otherwise within some milliseconds.
  /// Errors: `model_not_supported` when the recv evd is completions-only; `invalid_parameter` for 2^31 and more;
  /// `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  expected<void> set_watermark(std::uint32_t soft, std::uint32_t hard) noexcept;

  [[nodiscard]] ep_state state() const noexcept { return ref().state(); }
  [[nodiscard]] std::uint32_t number() const noexcept { return ref().number(); }
  /// The attributes that the endpoint was created with, as `modify` has changed them; the defaults for an empty handle.
  [[nodiscard]] const ep_attributes& attributes() const noexcept {
    static constexpr ep_attributes defaults;
    return core_ ? core_->attributes() : defaults;
  }
  /// The address and port of the peer of a connection, or of an attempt at one as soon as `connect` has returned.
  /// Errors: `invalid_state` without a connection or an attempt at one; `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  [[nodiscard]] expected<ia_address> remote_address() const noexcept;
  /// The address and port of this end of a connection, or of an attempt at one.
  /// Errors: `invalid_state` without a connection or an attempt at one; `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  [[nodiscard]] expected<ia_address> local_address() const noexcept;

  operator ep_ref() const noexcept { return ref(); }
  friend bool operator==(const ep& a, ep_ref b) noexcept { return a.ref() == b; }

  /// The queue pair, for verbs calls that dat does not cover. Null for an empty or closed endpoint. `reset` and
  /// `modify` destroy it and make another one: they must not overlap this call, nor a use of the queue pair.
  [[nodiscard]] ibv_qp* native_handle() const noexcept { return core_ ? core_->qp() : nullptr; }

  explicit ep(detail::ref<detail::ep_core> core) noexcept : unique_object(std::move(core)), ref_(core_.get()) {}

private:
  [[nodiscard]] ep_ref ref() const noexcept { return ref_; }
  [[nodiscard]] expected<ia_address> address(const char* call, bool remote) const noexcept;
  [[nodiscard]] expected<ib::descriptor> make_descriptor() const noexcept; // defined in <dat/descriptor.hpp>
  // Defined in <dat/ep_params.hpp>.
  [[nodiscard]] expected<ep_params> read_params() const noexcept;
  [[nodiscard]] expected<ep_status> read_status() const noexcept;
  [[nodiscard]] expected<ep_recv_buffers> read_recv_buffers() const noexcept;
  detail::emptied_by_move<ep_ref> ref_;
};

/// An endpoint whose receives come from a shared receive queue (uDAPL 2.0 §6.6.5). In everything else it is an `ep<rc>`
/// and converts to one. Posting a receive to it does not compile; through an ep_ref, which has lost the type, it
/// returns `invalid_state`.
template <>
class ep<with_srq<rc>> : public ep<rc> {
public:
  ep() noexcept = default; ///< names no endpoint

  /// Posts requests; see ep_ref::post.
  /// Errors, Allocates, Blocks and Thread safety: as ep_ref::post.
  template <class... D>
  requires(sizeof...(D) > 0) [[gnu::always_inline]] expected<void> post(const D&... operations) const noexcept {
    static_assert(!(detail::is_recv<D> || ...), "dat: this endpoint takes its receives from a shared receive queue: "
                                                "post them there, srq.post(dat::recv{...})");
    return ep<rc>::post(operations...);
  }
  /// Posts requests by a policy; see ep_ref::post.
  /// Errors, Allocates, Blocks and Thread safety: as ep_ref::post.
  template <class Policy, class... D>
  requires(Policy::is_posting_policy && sizeof...(D) > 0)
      [[gnu::always_inline]] expected<void> post(const D&... operations) const noexcept {
    static_assert(!(detail::is_recv<D> || ...), "dat: this endpoint takes its receives from a shared receive queue: "
                                                "post them there, srq.post(dat::recv{...})");
    return ep<rc>::post<Policy>(operations...);
  }
  /// Posts a batch; see batch.hpp.
  /// Errors, Allocates, Blocks and Thread safety: as ep_ref::post.
  template <std::size_t N, std::size_t Iov>
  expected<void> post(batch<N, Iov>& operations) const noexcept {
    return ep<rc>::post(operations);
  }

  explicit ep(detail::ref<detail::ep_core> core) noexcept : ep<rc>(std::move(core)) {}
};

}} // namespace dat::v0

template <>
struct std::hash<dat::ep_ref> : dat::detail::handle_hash<dat::ep_ref> {};

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/impl/ep.ipp>
#endif
