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
#include <dat/pz.hpp>

#include <dat/detail/core_access.hpp>
#include <dat/detail/ud_core.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace dat::inline v0 {

/// The evds of a datagram endpoint, as ep_evds for others. All have the stream `dat::datagrams` besides the one that
/// they are for: their events then have the alternatives that only datagrams give. None can be left out; for events
/// that nobody wants, name `dat::drop_events`.
struct ib::datagram_evds {
  evd_ref<dto | datagrams> recv{};           ///< received_datagram, received_datagram_immediate
  evd_ref<dto | datagrams> request{};        ///< datagram_sent
  evd_ref<connection | datagrams> connect{}; ///< datagram_established, and unreachable, peer_rejected, ...

private:
  friend class dat::ep<ud>;
  [[nodiscard]] detail::ep_core::queues shared() const noexcept {
    return {recv.shared(), request.shared(), connect.shared(), recv.dropped(), request.dropped(), connect.dropped()};
  }
};

/// A datagram endpoint (InfiniBand UD). Made by `pz::create_ep<dat::ud>`; can send at once, to everybody whose address
/// handle it has made: from `connect` and `accept`, from a message that has come, or from an address that was carried
/// by other means.
///
///     auto ep = pz.create_ep<dat::ud>(evd);                  // an evd of dto | connection | datagrams
///     ep->connect(address, 7471, 2s);
///     auto known = evd.wait_for<dat::ib::datagram_established>(2s);
///     auto peer = known->peer();
///     ep->post(dat::ib::send_to{out, *peer});
///
/// Receives need 40 bytes more than the message, for the header that comes before it: see ib::datagram_view. Post them
/// with room for max_message_size and that: what is longer than its receive is dropped by adapters, and breaks the
/// endpoint on Soft-RoCE (`local_length`, then `broken`; `reset` makes it ready again).
/// `attributes.max_message_size` is at most the MTU of the adapter's port, which is the default. Of the other
/// attributes, those about RDMA reads and repeating have no meaning.
///
/// Move-only. Thread safety: as ep<rc>; connect, address_of and reply_to may be called from any thread.
template <>
class ep<ud> : public dat::object<ep<ud>, object_kind::ep> {
public:
  ep() noexcept = default; ///< names no endpoint; every call answers invalid_handle
  ep(ep&& o) noexcept : core_(std::move(o.core_)), posting_(std::exchange(o.posting_, &detail::no_ep)) {}
  ep& operator=(ep&& o) noexcept {
    if (this == &o) return *this;
    posting_ = std::exchange(o.posting_, &detail::no_ep);
    core_ = std::move(o.core_);
    return *this;
  }
  ~ep() = default;

  /// Posts sends to addresses, or receives; one doorbell however many there are.
  ///
  ///     ep.post(dat::ib::send_to{out, peer}.cookie(1));
  ///     ep.post(dat::recv{in});
  ///
  /// Errors, each before anything reaches the device, for all operations of the call together: those of ep_ref::post,
  /// and `length_error` for a message of more than max_message_size; `protection_violation` for an address handle of
  /// another endpoint, or an empty one. Allocates: never. Blocks: never.
  template <class... D>
  requires(sizeof...(D) > 0) [[gnu::always_inline]] expected<void> post(const D&... operations) const noexcept {
    constexpr bool receives = (detail::is_recv<D> && ...);
    constexpr bool sends = (detail::is_send_to<D> && ...);
    static_assert(!(detail::is_request<D> || ...),
                  "dat: a datagram endpoint has no connection: plain sends, RDMA and atomics need an ep<dat::rc>; here "
                  "post dat::ib::send_to{memory, address_handle}");
    static_assert(receives || sends || (detail::is_request<D> || ...),
                  "dat: post either receives or sends (dat::ib::send_to) in one call: they go to different queues");
    if constexpr (receives)
      return posting_->post(detail::request_access::of(operations)...);
    else if constexpr (sends)
      return detail::ud_posting::post(*posting_, detail::datagram_access::of(operations)...);
    else
      return error(return_type::invalid_handle);
  }
  /// The same by a policy of <dat/policies.hpp>.
  template <class Policy, class... D>
  requires(Policy::is_posting_policy && sizeof...(D) > 0) expected<void> post(const D&... operations)
  const noexcept {
    if constexpr ((detail::is_send_to<D> && ...))
      if (auto ok = Policy::before(*posting_, detail::request_access::of(operations)...); !ok) return ok;
    if constexpr ((detail::is_recv<D> && ...))
      return Policy::post(*posting_, operations...);
    else
      return post(operations...);
  }

  /// Asks for the endpoint that the datagram_service with `qualifier` at `remote` stands for (IB extensions §4.3). The
  /// connect evd gets exactly one of `ib::datagram_established`, `peer_rejected`, `non_peer_rejected`, `unreachable`
  /// and `timed_out` within `limit`. May be called any number of times, also while others are under way. `data` (at
  /// most 128 bytes) is shown to the peer with the request; a program that is not dat finds 32 bytes of dat's before
  /// it. Errors: `invalid_parameter` for a time-out that is not positive or too much data; `invalid_address`;
  /// `invalid_state` when disconnected; `insufficient_resources`; `invalid_handle`. Allocates: yes. Blocks: no.
  expected<void> connect(const ia_address& remote, conn_qual qualifier, timeout limit,
                         std::span<const std::byte> data = {}) noexcept {
    if (!alive()) return gone("ep.connect");
    return core_->datagrams()->connect(core_.shared(), remote, qualifier.port(), limit, data);
  }

  /// Where this endpoint is: to be carried to a peer by any means. `family`: on RoCE the kind of address that peers are
  /// to use. Errors: `invalid_address` when the adapter has none of that family; `invalid_handle`.
  template <class Address = ib::datagram_address> // a template, so that only who calls it pays for compiling it
  [[nodiscard]] expected<Address> address(address_family family = address_family::ipv4) const noexcept {
    static constexpr const char* call = "ep.address";
    if (!alive()) return gone(call);
    auto here = detail::place_of(core_->ia(), family == address_family::ipv4);
    if (!here) return core_->at(here.assume_error(), call);
    const detail::qp_place& p = here.assume_value().place;
    Address a;
    std::memcpy(a.gid.data(), p.gid.raw, sizeof p.gid.raw);
    a.lid = p.lid;
    a.qp_number = number();
    return a;
  }

  /// A peer by its address. Errors: `invalid_address` when this adapter has no address of that family, or no way leads
  /// there; `insufficient_resources`; `invalid_parameter` for an address that the device does not accept;
  /// `invalid_handle`. Allocates: yes. Blocks: in the kernel, for a second at most, where the peer's link address is
  /// not known yet.
  [[nodiscard]] expected<ib::address_handle> address_of(const ib::datagram_address& peer) const noexcept {
    static constexpr const char* call = "ep.address_of";
    if (!alive()) return gone(call);
    detail::qp_place p;
    std::memcpy(p.gid.raw, peer.gid.data(), sizeof p.gid.raw);
    p.lid = peer.lid;
    auto path = detail::path_to(core_->ia(), p);
    if (!path) return core_->at(path.assume_error(), call);
    return make(call, {path.assume_value(), peer.qp_number, peer.qkey});
  }

  /// Who sent a message that has come: by the event and the header in the buffer. Errors: as address_of. Allocates:
  /// yes. Blocks: briefly, in the kernel; keep the handle rather than make it for each message.
  [[nodiscard]] expected<ib::address_handle> reply_to(const ib::received_datagram& message, const ib::grh& header,
                                                      std::uint32_t qkey = ib::default_qkey) const noexcept {
    static constexpr const char* call = "ep.reply_to";
    if (!alive()) return gone(call);
    ibv_wc wc = detail::datagram_access::completion_of(message);
    ibv_grh raw;
    std::memcpy(static_cast<void*>(&raw), header.bytes().data(), sizeof raw);
    static_assert(sizeof raw == ib::grh::size);
    detail::datagram_target to;
    if (ibv_init_ah_from_wc(core_->ia().context(), core_->ia().where().port, &wc, &raw, &to.path) != 0)
      return core_->at(error(return_type::invalid_address, return_subtype::address_unreachable)
                           .from("ibv_init_ah_from_wc", errno)
                           .hint("the header is not that of the message, or came to an address that this port does not "
                                 "have any more"),
                       call);
    to.qp_num = wc.src_qp;
    to.qkey = qkey;
    return make(call, to);
  }
  [[nodiscard]] expected<ib::address_handle> reply_to(const ib::received_datagram& message,
                                                      const ib::datagram_view& buffer) const noexcept {
    return reply_to(message, buffer.header());
  }

  /// A peer by what it has exported. Errors: as address_of; `invalid_parameter` for a descriptor of a connection
  /// endpoint or of another link layer.
  [[nodiscard]] expected<ib::address_handle> connect(const ib::descriptor& peer) const noexcept {
    static constexpr const char* call = "ep.connect";
    if (!alive()) return gone(call);
    const detail::direct_peer& raw = detail::direct_connection::of(peer);
    if (auto ok = detail::direct_connection::check(*core_, raw, call); !ok) return ok.assume_error();
    auto path = detail::path_to(core_->ia(), raw.place);
    if (!path) return core_->at(path.assume_error(), call);
    return make(call, {path.assume_value(), raw.place.qp_num, raw.place.qkey});
  }
  /// What a peer needs for that; `address` in a form that is checked, for any channel. Errors: as address.
  template <class Descriptor = ib::descriptor>
  [[nodiscard]] expected<Descriptor> export_descriptor(address_family family = address_family::ipv4) const noexcept {
    static constexpr const char* call = "ep.export_descriptor";
    if (!alive()) return gone(call);
    return detail::direct_connection::describe<Descriptor>(*core_, call, family);
  }

  /// Ends all that is outstanding: sends and receives complete as flushed, the connect evd gets `disconnected`. Peers
  /// learn nothing. To forget one peer only, drop its address handle (IB extensions §4.5). On a disconnected endpoint:
  /// success, no effect. Errors: `invalid_handle`. Blocks: no.
  expected<void> disconnect() noexcept {
    if (!alive()) return gone("ep.disconnect");
    return core_->datagrams()->disconnect();
  }
  /// Makes a disconnected endpoint ready again; it has another number then, and address handles that it made stay
  /// valid. Completions that were not taken may be lost. Must not overlap posts. Errors: `insufficient_resources` when
  /// the device has no queue pair left; `invalid_handle`.
  expected<void> reset() noexcept {
    if (!alive()) return gone("ep.reset");
    return core_->reset();
  }
  /// Frees the endpoint. What is outstanding never completes; its memory is free when this returns. Errors:
  /// `invalid_handle`. Blocks: no.
  expected<void> close() noexcept {
    posting_ = &detail::no_ep;
    return core_.close("ep.close", return_subtype::handle_ep);
  }

  /// `connected` while it can send, `disconnected` else.
  [[nodiscard]] ep_state state() const noexcept { return static_cast<ep_ref>(*this).state(); }
  /// The queue pair number: what peers send to.
  [[nodiscard]] std::uint32_t number() const noexcept { return posting_->number(); }
  /// Most bytes of a message; receives need 40 more. 0 for an empty handle.
  [[nodiscard]] std::uint32_t max_message_size() const noexcept { return posting_->max_message(); }
  /// Most bytes that `.inlined()` may copy.
  [[nodiscard]] std::uint32_t max_inline() const noexcept { return posting_->max_inline(); }

  explicit operator bool() const noexcept { return static_cast<bool>(core_); }
  operator ep_ref() const noexcept { return ep_ref(core_.get()); }
  friend bool operator==(const ep& a, ep_ref b) noexcept { return static_cast<ep_ref>(a) == b; }

  /// The queue pair, for what dat does not cover. Null for an empty or closed endpoint.
  [[nodiscard]] ibv_qp* native_handle() const noexcept { return core_ ? core_->qp() : nullptr; }

private:
  friend dat::object<ep, object_kind::ep>;
  friend class pz;
  friend class ib::datagram_request;
  friend struct detail::group_access;
  template <class Evds>
  [[nodiscard]] static expected<ep> create(const detail::ref<detail::pz_core>& pz, const Evds& evds,
                                           const ep_attributes& attributes) noexcept {
    static constexpr const char* call = "pz.create_ep";
    if (!pz) return detail::empty_handle(call, return_subtype::handle_pz);
    detail::ep_core::queues queues;
    if constexpr (std::is_convertible_v<const Evds&, const ib::datagram_evds&>)
      queues = static_cast<const ib::datagram_evds&>(evds).shared();
    else
      queues = ib::datagram_evds{evds, evds, evds}.shared();
    auto core = detail::ud_core::create_ep(call, pz, queues, attributes);
    if (!core) return core.assume_error();
    return ep(std::move(core).assume_value());
  }
  explicit ep(detail::ref<detail::ep_core> core) noexcept : core_(std::move(core)), posting_(core_.get()) {}
  [[nodiscard]] bool alive() const noexcept { return core_ && !core_->dead(); }
  [[nodiscard]] static error gone(const char* call) noexcept {
    return detail::empty_handle(call, return_subtype::handle_ep);
  }
  [[nodiscard]] expected<ib::address_handle> make(const char* call, const detail::datagram_target& to) const noexcept {
    return detail::address_access::make(call, detail::ref<detail::ud_core>(core_->datagrams()), to);
  }
  [[nodiscard]] auto* entity() const noexcept { return core_.get(); }
  detail::handle<detail::ep_core> core_;
  detail::ep_posting* posting_ = &detail::no_ep; // never null: a post need not ask
};

inline expected<void> ib::datagram_request::accept(ep<ud>& with, std::span<const std::byte> data) noexcept {
  static constexpr const char* call = "datagram_request.accept";
  if (!request_) return detail::empty_handle(call, return_subtype::handle_cr);
  if (!with.core_ || with.core_->dead()) return detail::empty_handle(call, return_subtype::handle_ep);
  auto r = core()->accept(*with.core_, data);
  if (r) request_.done();
  return r;
}

namespace ib {

/// Listens on a connection qualifier, at the adapter's IPv4 and IPv6 addresses, for peers that want to know a datagram
/// endpoint (IB extensions §4.2). Has nothing to do with a psp on the same qualifier, which listens for connections: a
/// program may have both.
///
/// Move-only. Thread safety: `close` and destruction must not overlap other uses.
class datagram_service {
public:
  datagram_service() noexcept = default;

  /// Each request becomes one `ib::datagram_request` on `requests`; where that has no room, the peer is refused.
  /// Errors: `conn_qual_in_use`; `privileges_violation` for a port below 1024 without the right to it;
  /// `invalid_handle`; `insufficient_resources`. Allocates: yes.
  [[nodiscard]] static expected<datagram_service>
  listen(ia& at, conn_qual qualifier, const evd_ref<connection_requests | datagrams>& requests) noexcept;

  /// Stops listening. Requests that were delivered stay answerable. Errors: `invalid_handle`. Blocks: no.
  expected<void> close() noexcept { return core_.close("datagram_service.close", return_subtype::handle_psp); }
  /// The port it listens on, in host byte order; 0 for an empty handle.
  [[nodiscard]] std::uint16_t port() const noexcept { return core_ ? core_->port() : std::uint16_t{0}; }
  explicit operator bool() const noexcept { return static_cast<bool>(core_); }

private:
  explicit datagram_service(detail::ref<detail::ud_service> core) noexcept : core_(std::move(core)) {}
  detail::handle<detail::ud_service> core_;
};

inline expected<datagram_service>
datagram_service::listen(ia& at, conn_qual qualifier,
                         const evd_ref<connection_requests | datagrams>& requests) noexcept {
  if (!at) return detail::empty_handle("datagram_service.listen", return_subtype::handle_ia);
  auto core =
      detail::ud_service::create(detail::core_access::of(at), detail::core_access::of(requests), qualifier.port());
  if (!core) return core.assume_error();
  return datagram_service(std::move(core).assume_value());
}

} // namespace ib

} // namespace dat::inline v0
