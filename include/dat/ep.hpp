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
#include <dat/timeout.hpp>

#include <dat/detail/core.hpp>
#include <dat/detail/handle.hpp>

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

namespace dat::inline v0 {

template <std::size_t N, std::size_t Iov>
class batch;

/// Names an endpoint without owning it: what events carry. Copyable, as cheap as a pointer, comparable, hashable.
///
/// An ep_ref of a DTO completion is valid until its endpoint is closed; one of a connection event, as long as the
/// event. Thread safety: posts of one kind (requests; receives) on one endpoint must not overlap; a post and a receive
/// may, and both may overlap taking completions from an evd.
class ep_ref : public dat::object<ep_ref, object_kind::ep> {
public:
  constexpr ep_ref() noexcept = default;

  /// Posts operations, in order. One doorbell however many there are.
  ///
  ///     ep.post(dat::send{out}.cookie(1));
  ///     ep.post(dat::rdma_write{block, window}.suppress(), dat::rdma_write{tail, rest}.immediate(7));
  ///     ep.post(dat::recv{a}, dat::recv{b});
  ///
  /// Requests (send, RDMA) need a connection; receives may be posted in any state. On a disconnected endpoint both
  /// complete as flushed. (uDAPL 2.0 §6.6.20-§6.6.25)
  ///
  /// Errors, each before anything reaches the device, for all operations of the call together:
  /// - `invalid_state` with the endpoint's state as subtype: a request without a connection
  /// - `insufficient_resources`: no room on the queue; take completions first. Nothing is wrong with the endpoint.
  /// - `protection_violation`: memory of another protection zone, or a segment of 4 GiB and more
  /// - `length_error`: more than max_message_size, than the remote segment, or than max_inline for `.inlined()`
  /// - `invalid_parameter`: more segments than the endpoint's limit; a read on a connection that allows none
  /// - `invalid_handle`: the endpoint is closed
  /// If the device refuses an operation all the same, `error().index()` says how many before it were taken.
  /// Allocates: never. Blocks: never.
  template <class... D>
  requires(sizeof...(D) > 0) [[gnu::always_inline]] expected<void> post(const D&... operations) const noexcept {
    constexpr bool receives = (detail::is_recv<D> && ...);
    constexpr bool requests = (detail::is_request<D> && ...);
    static_assert(receives || requests, "dat: post either receives or requests (send, rdma_write, rdma_read) in one "
                                        "call: they go to different queues");
    return core_->post(detail::request_access::of(operations)...);
  }

  /// The same by a policy of <dat/policies.hpp>: `ep.post<dat::trusting>(...)`, `ep.post<dat::checked>(...)`.
  template <class Policy, class... D>
  requires(Policy::is_posting_policy && sizeof...(D) > 0)
      [[gnu::always_inline]] expected<void> post(const D&... operations) const noexcept {
    static_assert((detail::is_recv<D> && ...) || (detail::is_request<D> && ...),
                  "dat: post either receives or requests (send, rdma_write, rdma_read) in one call: they go to "
                  "different queues");
    return Policy::post(*core_, operations...);
  }

  /// Posts `n` requests, in order: what `make(0)` to `make(n - 1)` return. One doorbell for every 16 of them.
  ///
  ///     ep.post_n(blocks.size(), [&](std::size_t i) { return dat::rdma_write{blocks[i], window[i]}.cookie(i); });
  ///
  /// `make` returns requests of one type and of one segment each, and must not post to this endpoint.
  ///
  /// Errors: as above. Where there is no room for all of them, nothing is posted. A request that is refused is not, nor
  /// what comes after it; those before it are, and `error().index()` says how many. What `make` throws is passed on;
  /// then up to 15 of those before it are not posted either.
  /// Allocates: never. Blocks: never.
  template <std::invocable<std::size_t> Make>
  [[gnu::always_inline]] expected<void> post_n(std::size_t n, Make make) const noexcept(noexcept(make(std::size_t{}))) {
    using made = std::remove_cvref_t<std::invoke_result_t<Make&, std::size_t>>;
    static_assert(detail::is_request<made>, "dat: post_n takes a callable that returns the request of an index (send, "
                                            "rdma_write, rdma_read, atomics); give receives to post");
    static_assert(made::max_segments == 1, "dat: post_n takes requests of one segment: put those of several, or of "
                                           "none, into a dat::batch<N, Iov>");
    return core_->post_made(n, make);
  }

  /// Posts a batch that was filled at run time; see batch.hpp. The batch is unchanged and may be posted again.
  /// Errors: as above. Allocates: never.
  template <std::size_t N, std::size_t Iov>
  expected<void> post(batch<N, Iov>& operations) const noexcept {
    return operations.post_to(*core_);
  }

  /// The state now; `disconnected` for an endpoint that is empty or closed. Thread safety: safe.
  [[nodiscard]] ep_state state() const noexcept {
    const ep_state s = core_->state();
    return s == detail::ep_dead ? ep_state::disconnected : s == detail::ep_datagram ? ep_state::connected : s;
  }
  /// The queue pair number, which adapters, counters and `rdma resource show` know the endpoint by.
  [[nodiscard]] std::uint32_t number() const noexcept { return core_->number(); }
  /// False for an ep_ref that names nothing.
  explicit operator bool() const noexcept { return core_ != &detail::no_ep; }
  [[nodiscard]] const detail::ep_core* native() const noexcept { return entity(); }

private:
  friend dat::object<ep_ref, object_kind::ep>;
  template <class>
  friend class ep;
  friend class completion;
  friend class connection_event;
  friend class ep_broken;
  friend class ep_soft_high_watermark;
  friend class cr;
  friend class rsp;
  friend struct rsp_params;
  friend struct detail::core_access;
  explicit ep_ref(detail::ep_core* core) noexcept {
    if (core) core_ = core;
  }
  detail::ep_posting* core_ = &detail::no_ep; // never null: a post need not ask
  [[nodiscard]] detail::ep_core* entity() const noexcept {
    return *this ? static_cast<detail::ep_core*>(core_) : nullptr;
  }
};

template <class Service>
class ep;

/// A reliable-connection endpoint. Made by `pz::create_ep<dat::rc>`, connected by `connect` on one side and
/// `cr::accept` on the other; afterwards `post` moves data. (uDAPL 2.0 §6.6)
///
/// Move-only. The destructor ends the connection as `close` does; it does not fail and does not wait for the peer.
/// Thread safety: see ep_ref for posting. `connect`, `disconnect`, `reset` and queries may be called from any thread,
/// but a graceful `disconnect` counts as a post of a request, and `reset` must not overlap posts;
/// `close`, moving and destruction must not overlap any other use, nor taking completions from an evd of streams::dto
/// alone that this endpoint uses.
template <>
class ep<rc> : public dat::object<ep<rc>, object_kind::ep> {
public:
  ep() noexcept = default; ///< names no endpoint; every call answers invalid_handle
  ep(ep&& o) noexcept : core_(std::move(o.core_)), ref_(std::exchange(o.ref_, {})) {}
  ep& operator=(ep&& o) noexcept {
    if (this == &o) return *this;
    ref_ = std::exchange(o.ref_, {});
    core_ = std::move(o.core_);
    return *this;
  }
  ~ep() = default;

  /// Posts operations; see ep_ref::post.
  template <class... D>
  requires(sizeof...(D) > 0) [[gnu::always_inline]] expected<void> post(const D&... operations) const noexcept {
    return ref_.post(operations...);
  }
  template <class Policy, class... D>
  requires(Policy::is_posting_policy && sizeof...(D) > 0)
      [[gnu::always_inline]] expected<void> post(const D&... operations) const noexcept {
    return ref_.template post<Policy>(operations...);
  }
  template <std::size_t N, std::size_t Iov>
  expected<void> post(batch<N, Iov>& operations) const noexcept {
    return ref_.post(operations);
  }
  /// As many requests as are wanted at run time; see ep_ref::post_n.
  template <std::invocable<std::size_t> Make>
  [[gnu::always_inline]] expected<void> post_n(std::size_t n, Make make) const noexcept(noexcept(make(std::size_t{}))) {
    return ref_.post_n(n, std::move(make));
  }

  /// Asks the service `qualifier` at the adapter address `remote` for a connection (uDAPL 2.0 §6.6.14). Returns at
  /// once; the connect evd gets exactly one of `established`, `peer_rejected`, `non_peer_rejected`, `unreachable`,
  /// `timed_out` within `limit`. `data` (at most 56 bytes) is shown to the peer with the request.
  ///
  /// Errors, all leaving the endpoint unconnected with its receives posted: `invalid_state` unless unconnected;
  /// `invalid_parameter` for a time-out that is not positive or too much data; `invalid_address` for an address that
  /// nobody can be reached at, or of a family that the adapter has no address of; `insufficient_resources`.
  /// Allocates: yes. Blocks: no.
  expected<void> connect(const ia_address& remote, conn_qual qualifier, timeout limit,
                         std::span<const std::byte> data = {}) noexcept {
    if (!core_) return detail::empty_handle("ep.connect", return_subtype::handle_ep);
    return core_->connect(remote, qualifier.port(), limit, data);
  }

  /// Connects without a connection manager to the endpoint that a peer has described; the peer does the same with what
  /// this endpoint exports. Include <dat/descriptor.hpp>. The connect evd gets `established` at once; what is sent
  /// before the peer has connected as well may be lost with the connection, so tell each other that it is done. A
  /// disconnect is not told to the peer, whose connection breaks when it sends. Errors, all but the last leaving the
  /// endpoint unconnected with its receives posted: `invalid_state` unless unconnected; `invalid_parameter` for a
  /// descriptor of a datagram endpoint or another link layer; `invalid_address` when no way leads there;
  /// `insufficient_resources`; by errno when the device refuses; where that comes late, the endpoint is disconnected,
  /// and the connect evd gets non_peer_rejected. Allocates: yes. Blocks: in the kernel, for a second at most, where the
  /// peer's link address is not known yet; other calls on the endpoint do not wait for that, unless the address is
  /// forgotten again just then.
  expected<void> connect(const ib::descriptor& peer) noexcept;
  /// What a peer needs for that. Errors: `invalid_state` for an unconfigured endpoint; `invalid_address` when the
  /// adapter has no address; `invalid_handle`. Allocates: no.
  template <class Descriptor = ib::descriptor> // a template, so that only who calls it pays for compiling it
  [[nodiscard]] expected<Descriptor> export_descriptor() const noexcept;

  /// The same by an address that names the port, as sockets do (uDAPL 2.0 §6.6.15). The endpoint needs a communicator
  /// of the address's family: ep_attributes::comm, or modify.
  /// Errors: as connect; but `invalid_parameter` for a bad address, and `invalid_state` (ep_notready) without a
  /// communicator. Allocates: yes. Blocks: no.
  expected<void> common_connect(const ia_address& remote, timeout limit,
                                std::span<const std::byte> data = {}) noexcept {
    if (!core_) return detail::empty_handle("ep.common_connect", return_subtype::handle_ep);
    return core_->common_connect(remote, limit, data);
  }

  /// A second connection to where `original` is connected to (uDAPL 2.0 §6.6.16). What becomes of `original` later does
  /// not matter.
  /// Errors: as connect; `invalid_state` also unless `original` is connected, and was the one that asked for its
  /// connection; `invalid_parameter` when it is of another ia. Allocates: yes. Blocks: no.
  expected<void> dup_connect(const ep& original, timeout limit, std::span<const std::byte> data = {}) noexcept {
    static constexpr const char* call = "ep.dup_connect";
    if (!core_ || !original.core_) return detail::empty_handle(call, return_subtype::handle_ep);
    return core_->dup_connect(*original.core_, limit, data);
  }

  /// Ends the connection, or an attempt at one (uDAPL 2.0 §6.6.17). `close_flags::abrupt`: at once, outstanding
  /// operations are flushed. `close_flags::graceful`: no new requests, and the connection ends when all posted ones
  /// have completed; if their evd is of streams::dto alone, that is when their completions have been taken from it. May
  /// last for ever when the peer posts no receive; an abrupt disconnect or close ends it.
  /// Both sides get `disconnected` on the connect evd. On a disconnected endpoint: success, no effect.
  /// Errors: `invalid_state` on an unconnected endpoint; `invalid_parameter` when `how` is neither. Allocates: no.
  /// Blocks: no.
  expected<void> disconnect(close_flags how = close_flags::abrupt) noexcept {
    if (!core_) return detail::empty_handle("ep.disconnect", return_subtype::handle_ep);
    return core_->disconnect(how);
  }

  /// Makes a disconnected endpoint ready for another connection (uDAPL 2.0 §6.6.18). Completions that were not taken
  /// yet may be lost. No effect on an unconnected endpoint. Must not overlap posts; with an srq, nor taking completions
  /// from a recv evd of streams::dto alone.
  /// Errors: `invalid_state` in other states; `insufficient_resources` when the device has no queue pair left.
  expected<void> reset() noexcept {
    if (!core_) return detail::empty_handle("ep.reset", return_subtype::handle_ep);
    return core_->reset();
  }

  /// Ends the connection without an event and frees the endpoint (uDAPL 2.0 §6.6.8). What is outstanding never
  /// completes; its memory is free when this returns. The handle is empty afterwards.
  /// Errors: `invalid_handle` when it was empty, or its ia was closed; `invalid_state` while a reserved service point
  /// or an unanswered request has it. Blocks: no.
  expected<void> close() noexcept {
    if (core_)
      if (auto ok = core_->check_free(); !ok) return ok;
    ref_ = {};
    return core_.close("ep.close", return_subtype::handle_ep);
  }

  // Parameters. Their types, and these functions, are in <dat/ep_params.hpp>, which a program that calls them includes.

  /// Changes what the endpoint was created with, or supplies what was missing then; all or nothing (uDAPL 2.0 §6.6.12):
  ///
  ///     ep.modify({.pz = &pz, .recv = evd, .max_recv_dtos = 512});
  ///
  /// Until connect or accept; the zone, the communicator and the own address also not once it is reserved. The zone,
  /// the evds of completions, the sizes and recv_completion only while no receive is posted. Must not overlap posts,
  /// status and recv_query. Errors, with nothing changed: `invalid_state`; `invalid_parameter` for a value that the
  /// device cannot provide; `invalid_handle` for a zone or evd that is closed or of another ia;
  /// `insufficient_resources`. Allocates: yes.
  expected<void> modify(const ep_changes& wanted) noexcept;
  /// All that is known of the endpoint (uDAPL 2.0 §6.6.10). Errors: `invalid_handle`. Thread safety: safe.
  [[nodiscard]] expected<ep_params> query() const noexcept;
  /// State, and whether anything is outstanding (uDAPL 2.0 §6.6.9). Errors: `invalid_handle`. Allocates and blocks:
  /// never; may be called from signal handlers.
  [[nodiscard]] expected<ep_status> status() const noexcept;
  /// Receives that are posted and not taken as completed (uDAPL 2.0 §6.6.11). Errors: `invalid_handle`.
  [[nodiscard]] expected<ep_recv_buffers> recv_query() const noexcept;
  /// Sets and arms the soft and the hard high watermark of receives, see ep_attributes; no_watermark for none (uDAPL
  /// 2.0 §6.6.13). In any state. What is exceeded already takes effect during the call, else with a lag of some
  /// milliseconds. Errors: `model_not_supported` when the recv evd is of streams::dto alone; `invalid_parameter` for
  /// 2^31 and more; `invalid_handle`. Allocates: no. Blocks: no. Thread safety: safe.
  expected<void> set_watermark(std::uint32_t soft, std::uint32_t hard) noexcept;

  [[nodiscard]] ep_state state() const noexcept { return ref().state(); }
  [[nodiscard]] std::uint32_t number() const noexcept { return ref().number(); }
  /// What it was created with; the defaults for an empty handle.
  [[nodiscard]] const ep_attributes& attributes() const noexcept {
    static constexpr ep_attributes defaults;
    return core_ ? core_->attributes() : defaults;
  }
  /// Addresses, with ports, of the two ends of a connection, and of an attempt at one as soon as connect is back.
  /// Errors: `invalid_state` without either.
  template <class Address = ia_address> // templates, so that only who calls them pays for compiling them
  [[nodiscard]] expected<Address> remote_address() const noexcept {
    return address<Address>(true);
  }
  template <class Address = ia_address>
  [[nodiscard]] expected<Address> local_address() const noexcept {
    return address<Address>(false);
  }

  explicit operator bool() const noexcept { return static_cast<bool>(core_); }
  operator ep_ref() const noexcept { return ref(); }
  friend bool operator==(const ep& a, ep_ref b) noexcept { return a.ref() == b; }

  /// The queue pair, for what dat does not cover. Null for an empty or closed endpoint.
  [[nodiscard]] ibv_qp* native_handle() const noexcept { return core_ ? core_->qp() : nullptr; }

private:
  friend dat::object<ep, object_kind::ep>;
  friend class pz;
  friend class ia;
  friend class cr;
  friend class ep<with_srq<rc>>;
  friend class rmr;
  explicit ep(detail::ref<detail::ep_core> core) noexcept : core_(std::move(core)), ref_(core_.get()) {}
  [[nodiscard]] ep_ref ref() const noexcept { return ref_; }
  template <class Address>
  [[nodiscard]] expected<Address> address(bool remote) const noexcept {
    if (!core_) return detail::empty_handle("ep.address", return_subtype::handle_ep);
    std::optional<Address> found;
    core_->locked([&](detail::ep_core& e) {
      const ep_state now = e.state();
      if (!e.connection() || now == ep_state::disconnected || now == detail::ep_dead) return;
      found = remote ? e.connection()->remote_address() : e.connection()->local_address();
    });
    if (!found)
      return error(return_type::invalid_state, detail::subtype_of(core_->state()))
          .at("ep.address", object_kind::ep, core_->number());
    return *found;
  }
  [[nodiscard]] auto* entity() const noexcept { return core_.get(); }
  detail::handle<detail::ep_core> core_;
  ep_ref ref_;
};

/// An endpoint whose receives come from a shared receive queue (uDAPL 2.0 §6.6.5). In everything else it is an
/// `ep<rc>`, and goes wherever one does; posting a receive to it does not compile, or is `invalid_state` where its type
/// is not known.
template <>
class ep<with_srq<rc>> : public ep<rc> {
public:
  ep() noexcept = default; ///< names no endpoint

  /// Posts requests; see ep_ref::post.
  template <class... D>
  requires(sizeof...(D) > 0) [[gnu::always_inline]] expected<void> post(const D&... operations) const noexcept {
    static_assert(!(detail::is_recv<D> || ...), "dat: this endpoint takes its receives from a shared receive queue: "
                                                "post them there, srq.post(dat::recv{...})");
    return ep<rc>::post(operations...);
  }
  template <class Policy, class... D>
  requires(Policy::is_posting_policy && sizeof...(D) > 0)
      [[gnu::always_inline]] expected<void> post(const D&... operations) const noexcept {
    static_assert(!(detail::is_recv<D> || ...), "dat: this endpoint takes its receives from a shared receive queue: "
                                                "post them there, srq.post(dat::recv{...})");
    return ep<rc>::post<Policy>(operations...);
  }
  template <std::size_t N, std::size_t Iov>
  expected<void> post(batch<N, Iov>& operations) const noexcept {
    return ep<rc>::post(operations);
  }

private:
  friend class pz;
  friend class ia;
  explicit ep(detail::ref<detail::ep_core> core) noexcept : ep<rc>(std::move(core)) {}
};

} // namespace dat::inline v0

template <>
struct std::hash<dat::ep_ref> : dat::detail::handle_hash<dat::ep_ref> {};
template <class Service>
struct std::hash<dat::ep<Service>> : dat::detail::handle_hash<dat::ep<Service>> {};
