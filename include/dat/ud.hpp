// Datagram endpoints: one endpoint, any number of peers, messages of one packet that may be lost (IB extensions §4).
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/datagram.hpp>
#include <dat/descriptor.hpp>
#include <dat/ep.hpp>
#include <dat/ep_attributes.hpp>
#include <dat/evd.hpp>
#include <dat/event.hpp>
#include <dat/expected.hpp>
#include <dat/ia.hpp>
#include <dat/object.hpp>
#include <dat/psp.hpp>
#include <dat/pz.hpp>
#include <dat/service_id.hpp>

#include <dat/detail/datagram/ud_core.hpp>
#include <dat/detail/handle/core_access.hpp>
#include <dat/detail/handle/handle.hpp>
#include <dat/detail/handle/unique_object.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace dat { inline namespace v0 {

/// The evds of a datagram endpoint, the counterpart of ep_evds. All have the stream `dat::stream::datagrams` in
/// addition to the stream of their use, so that their events include those of datagrams. None can be omitted; for
/// events that the consumer does not want, pass `dat::drop_events`.
struct ib::datagram_evds {
  evd_ref<streams::dto | streams::datagrams> recv{};    ///< datagram_recv_done, datagram_recv_immediate_done
  evd_ref<streams::dto | streams::datagrams> request{}; ///< datagram_send_done
  evd_ref<streams::connection | streams::datagrams>
      connect{}; ///< datagram_established, connection_unreachable, peer_rejected, ...

  /// For internal use: the cores of the evds.
  [[nodiscard]] detail::ep_core::queues shared() const noexcept {
    return {detail::core_access::of(recv),
            detail::core_access::of(request),
            detail::core_access::of(connect),
            recv.dropped(),
            request.dropped(),
            connect.dropped()};
  }
};

/// A datagram endpoint (InfiniBand UD). `pz::create_ep<dat::ud>` creates it. It can send at once to every peer for
/// which it has an address handle. The handle comes from `connect` or `accept`, from a message that has arrived, or
/// from an address that the program got in another way.
///
///     auto ep = pz.create_ep<dat::ud>(evd);                  // an evd of dto | connection | datagrams
///     ep->connect(address, 7471, 2s);
///     auto known = evd.wait_for<dat::ib::datagram_established>(2s);
///     auto peer = known->peer();
///     ep->post(dat::ib::send_to{out, *peer});
///
/// Receives need 40 bytes more than the message, for the header that precedes it: see ib::datagram_view. Post them with
/// room for max_message_size and the header. Adapters drop a message that is longer than its receive; on Soft-RoCE it
/// breaks the endpoint (`local_length`, then `connection_broken`; `reset` makes the endpoint ready again).
/// `attributes.max_message_size` is at most the MTU of the adapter's port, which is the default. Attributes of RDMA
/// reads and of retries have no meaning.
///
/// Move-only.
/// Thread safety: as ep<rc>; connect, address_of and reply_to may be called from any thread.
template <>
class ep<ud> : public detail::unique_object<ep<ud>, detail::ep_core, object_kind::ep> {
public:
  ep() noexcept = default; ///< names no endpoint; every call answers invalid_handle

  /// Posts sends to addresses, or receives, with one doorbell for all of them.
  ///
  ///     ep.post(dat::ib::send_to{out, peer}.cookie(1));
  ///     ep.post(dat::recv{in});
  ///
  /// Errors: as ep_ref::post, and also
  /// - `length_error`: a message of more than max_message_size
  /// - `protection_violation`: an address handle that is empty or of another endpoint
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: as ep_ref::post.
  template <class... D>
  requires(sizeof...(D) > 0) [[gnu::always_inline]] expected<void> post(const D&... operations) const noexcept {
    constexpr bool receives = (detail::is_recv<D> && ...);
    constexpr bool sends = (detail::is_send_to<D> && ...);
    static_assert(!(detail::is_request<D> || ...),
                  "dat: a datagram endpoint has no connection: plain sends, RDMA and atomics need an ep<dat::rc>; here "
                  "post dat::ib::send_to{memory, address_handle}");
    static_assert(receives || sends || (detail::is_request<D> || ...),
                  "dat: post either receives or sends (dat::ib::send_to) in one call: they go to different queues");
    if constexpr (detail::checked_build && (receives || sends))
      if (auto ok = detail::track(posting(), detail::request_access::of(operations)...); !ok) return ok;
    if constexpr (receives)
      return detail::post(detail::recv_queue(posting()), detail::request_access::of(operations)...);
    else if constexpr (sends)
      return detail::post(detail::datagram_queue(posting()), detail::datagram_access::of(operations)...);
    else
      return error(return_type::invalid_handle);
  }
  /// Posts operations by a policy of <dat/policies.hpp>.
  /// Errors, Allocates, Blocks and Thread safety: as the policy documents.
  template <class Policy, class... D>
  requires(Policy::is_posting_policy && sizeof...(D) > 0) expected<void> post(const D&... operations)
  const noexcept {
    if constexpr ((detail::is_send_to<D> && ...)) {
      if (auto ok = Policy::before(posting(), detail::request_access::of(operations)...); !ok) return ok;
      return detail::post(detail::datagram_queue(posting()), detail::datagram_access::of(operations)...);
    } else if constexpr ((detail::is_recv<D> && ...)) {
      return Policy::post(posting(), operations...);
    } else {
      return post(operations...); // does not compile, and names the possible operations
    }
  }

  /// Asks the datagram_service with `qualifier` at `remote` for its endpoint (IB extensions §4.3). The connect evd gets
  /// exactly one of `ib::datagram_established`, `peer_rejected`, `non_peer_rejected`, `connection_unreachable` and
  /// `connection_timed_out` within `limit`. Several requests may be under way at once. The peer gets `data`, at most
  /// 128 bytes, with the request; a program that does not use dat finds 32 bytes of dat before it.
  ///
  /// Errors: `invalid_parameter` for a limit that is not positive or too much data; `invalid_address`; `invalid_state`
  /// when disconnected; `insufficient_resources`; `invalid_handle`.
  /// Allocates: yes.
  /// Blocks: no.
  /// Thread safety: safe.
  expected<void> connect(const ia_address& remote, conn_qual qualifier, timeout limit,
                         std::span<const std::byte> data = {}) noexcept;

  /// The address of this endpoint, for a peer, which may get it by any channel. `family`: the kind of address that
  /// peers are to use on RoCE.
  /// Errors: `invalid_address` when the adapter has no address of that family; `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  [[nodiscard]] expected<ib::datagram_address> address(address_family family = address_family::ipv4) const noexcept;

  /// The address handle of a peer whose address is known. Members of `quality` that are not set are those of the
  /// endpoint.
  /// Errors: `invalid_address` when this adapter has no address of that family, or no path leads to the peer;
  /// `insufficient_resources`; `invalid_parameter` for an address that the device does not accept, or a value of
  /// `quality` that is out of its range; `invalid_handle`.
  /// Allocates: yes.
  /// Blocks: up to a second in the kernel, if the link address of the peer is unknown.
  /// Thread safety: safe.
  [[nodiscard]] expected<ib::address_handle> address_of(const ib::datagram_address& peer,
                                                        const qos& quality = {}) const noexcept;

  /// The address handle of the sender of a message, from the event and the header in the buffer. Keep the handle rather
  /// than create it for each message.
  /// Errors: as address_of.
  /// Allocates: yes.
  /// Blocks: briefly, in the kernel.
  /// Thread safety: safe.
  [[nodiscard]] expected<ib::address_handle> reply_to(const ib::datagram_recv_done& message, const ib::grh& header,
                                                      std::uint32_t qkey = ib::default_qkey) const noexcept;
  /// The address handle of the sender of a message, from the event and its buffer.
  /// Errors, Allocates, Blocks and Thread safety: as above.
  [[nodiscard]] expected<ib::address_handle> reply_to(const ib::datagram_recv_done& message,
                                                      const ib::datagram_view& buffer) const noexcept {
    return reply_to(message, buffer.header());
  }

  /// The address handle of a peer from its descriptor.
  /// Errors: as address_of; `invalid_parameter` for a descriptor of a connection endpoint or of another link layer.
  /// Allocates, Blocks and Thread safety: as address_of.
  [[nodiscard]] expected<ib::address_handle> connect(const ib::descriptor& peer,
                                                     const qos& quality = {}) const noexcept;
  /// The descriptor of this endpoint: its `address` in a form with a checksum, for any channel.
  /// Errors, Allocates, Blocks and Thread safety: as address.
  [[nodiscard]] expected<ib::descriptor> export_descriptor(address_family family = address_family::ipv4) const noexcept;

  /// Ends all outstanding operations: sends and receives complete as flushed, and the connect evd gets `disconnected`.
  /// Peers are not notified. To forget one peer only, drop its address handle (IB extensions §4.5). On a disconnected
  /// endpoint the call succeeds and has no effect.
  /// Errors: `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  expected<void> disconnect() noexcept;
  /// Makes a disconnected endpoint ready again. The endpoint then has another number, and its address handles stay
  /// valid. Completions that were not taken may be lost.
  /// Errors: `insufficient_resources` when the device has no queue pair left; `invalid_handle`.
  /// Allocates: no.
  /// Blocks: briefly, in the driver.
  /// Thread safety: must not overlap posts.
  expected<void> reset() noexcept;
  /// Frees the endpoint. Outstanding operations never complete, and the consumer may reuse their memory when the call
  /// returns.
  /// Errors: `invalid_handle`.
  /// Allocates: no.
  /// Blocks: briefly, in the driver.
  /// Thread safety: must not overlap any other use of the object.
  expected<void> close() noexcept;

  /// The state, and whether anything is outstanding. (uDAPL 2.0 §6.6.9)
  /// Errors: `invalid_handle`.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe, also in signal handlers.
  template <class Result = ep_status>
  [[nodiscard]] expected<detail::if_complete<Result>> status() const noexcept {
    static_assert(detail::complete<Result>, "dat: include <dat/ep_params.hpp> to query the status of an endpoint");
    if constexpr (detail::complete<Result>) {
      if (!alive()) return empty_handle("ep.status");
      return Result{state(), core_->receives().used() == 0, core_->requests().used() == 0};
    }
  }
  /// `connected` while it can send, otherwise `disconnected`.
  [[nodiscard]] ep_state state() const noexcept { return ref_.state(); }
  /// The queue pair number, to which peers send.
  [[nodiscard]] std::uint32_t number() const noexcept { return ref_.number(); }
  /// The maximum length of a message in bytes; receives need 40 more. 0 for an empty handle.
  [[nodiscard]] std::uint32_t max_message_size() const noexcept { return posting().max_message(); }
  /// The maximum number of bytes that `.inlined()` may copy.
  [[nodiscard]] std::uint32_t max_inline() const noexcept { return posting().max_inline(); }

  operator ep_ref() const noexcept { return ref_; }
  friend bool operator==(const ep& a, ep_ref b) noexcept { return a.ref_ == b; }

  /// The queue pair, for verbs calls that dat does not cover. Null for an empty or closed endpoint. `reset` destroys it
  /// and makes another one: it must not overlap this call, nor a use of the queue pair.
  [[nodiscard]] ibv_qp* native_handle() const noexcept { return core_ ? core_->qp() : nullptr; }

  /// Creates an endpoint; called by pz::create_ep.
  ///
  /// Errors: as pz::create_ep.
  /// Allocates: yes.
  /// Blocks: for calls of the kernel.
  /// Thread safety: safe.
  [[nodiscard]] static expected<ep> create(const detail::ref<detail::pz_core>& pz, const ib::datagram_evds& evds,
                                           const ep_attributes& attributes) noexcept;
  /// Creates an endpoint whose events all go to the evd `all`; called by pz::create_ep.
  /// Errors, Allocates, Blocks and Thread safety: as above.
  template <streams S>
  [[nodiscard]] static expected<ep> create(const detail::ref<detail::pz_core>& pz, const evd<S>& all,
                                           const ep_attributes& attributes) noexcept {
    if constexpr (detail::has_streams<S, streams::dto | streams::connection | streams::datagrams>())
      return create(pz, ib::datagram_evds{all, all, all}, attributes);
  }

private:
  explicit ep(detail::ref<detail::ep_core> core) noexcept : unique_object(std::move(core)), ref_(core_.get()) {}
  [[nodiscard]] detail::ep_posting& posting() const noexcept { return detail::core_access::posting(ref_); }
  [[nodiscard]] expected<ib::address_handle> make(const char* call, const detail::datagram_target& to,
                                                  const qos& quality = {}) const noexcept {
    return detail::address_access::make(call, detail::ud_core::of(*core_), to, quality);
  }
  detail::emptied_by_move<ep_ref> ref_;
};

namespace ib {

/// Listens on a connection qualifier, at the adapter's IPv4 and IPv6 addresses, for peers that request the address of a
/// datagram endpoint (IB extensions §4.2). It is independent of a psp on the same qualifier, which listens for
/// connections: a program may have both, and ib::service_point is both.
///
/// Move-only.
/// Thread safety: `close` and destruction must not overlap other uses.
class datagram_service {
public:
  datagram_service() noexcept = default;

  /// Starts to listen. Each request becomes one `ib::datagram_request` on `requests`; if that evd has no room, the peer
  /// is refused.
  /// Errors: `conn_qual_in_use`; `privileges_violation` for a port below 1024, for which the process has no right;
  /// `invalid_address` when the adapter has no address; `invalid_handle`; `insufficient_resources`.
  /// Allocates: yes.
  /// Blocks: no.
  /// Thread safety: safe.
  [[nodiscard]] static expected<datagram_service>
  listen(ia& at, conn_qual qualifier,
         const evd_ref<streams::connection_requests | streams::datagrams>& requests) noexcept;

  /// Stops listening. Requests that were delivered can still be answered.
  /// Errors: `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: must not overlap any other use of the object.
  expected<void> close() noexcept { return core_.close("datagram_service.close", return_subtype::handle_psp); }
  /// The port that it listens on, in host byte order; 0 for an empty handle.
  [[nodiscard]] std::uint16_t port() const noexcept { return core_ ? core_->port() : std::uint16_t{0}; }
  explicit operator bool() const noexcept { return static_cast<bool>(core_); }

private:
  explicit datagram_service(detail::ref<detail::ud_service> core) noexcept : core_(std::move(core)) {}
  detail::handle<detail::ud_service> core_;
};

/// A public service point for connections and for datagrams at one qualifier (IB extensions §4.2): a psp and a
/// datagram_service that begin and end together. Their requests are events of their own types on one evd.
///
/// Move-only.
/// Thread safety: `close` and destruction must not overlap other uses.
class service_point {
public:
  service_point() noexcept = default; ///< names no service point

  /// Starts to listen for both kinds of requests, or for none.
  /// Errors: as ia::create_psp and datagram_service::listen; `conn_qual_in_use` when either kind is taken.
  /// Allocates: yes.
  /// Blocks: no.
  /// Thread safety: safe.
  template <streams S>
  [[nodiscard]] static expected<service_point> listen(ia& at, conn_qual qualifier, const evd<S>& requests,
                                                      psp_flags flags = psp_flags::consumer) noexcept {
    auto connections = at.create_psp(qualifier, requests, flags);
    if (!connections) return connections.assume_error();
    auto datagrams = datagram_service::listen(at, qualifier, requests);
    if (!datagrams) return datagrams.assume_error();
    return service_point(std::move(connections).assume_value(), std::move(datagrams).assume_value());
  }

  /// Stops listening. Requests that were delivered can still be answered.
  /// Errors: `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: must not overlap any other use of the object.
  expected<void> close() noexcept {
    auto first = connections_.close();
    auto second = datagrams_.close();
    return first ? second : first;
  }
  /// The name of the service point in requests for connections: compare with `cr::service()`.
  [[nodiscard]] service_id id() const noexcept { return connections_.id(); }
  /// The port that it listens on, in host byte order; 0 for an empty handle.
  [[nodiscard]] std::uint16_t port() const noexcept { return connections_.port(); }
  explicit operator bool() const noexcept { return static_cast<bool>(connections_); }

private:
  service_point(dat::psp connections, datagram_service datagrams) noexcept
      : connections_(std::move(connections)), datagrams_(std::move(datagrams)) {}
  dat::psp connections_;
  datagram_service datagrams_;
};

} // namespace ib

}} // namespace dat::v0

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/impl/ud.ipp>
#endif
