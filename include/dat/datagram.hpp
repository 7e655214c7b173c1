// Datagrams: the send to an address, what arrives, and the addresses. For datagram endpoints, see ud.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>
#include <dat/dto.hpp>
#include <dat/event.hpp>
#include <dat/expected.hpp>
#include <dat/segment.hpp>

#include <dat/detail/completion.hpp>
#include <dat/detail/ud_core.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

namespace dat::inline v0::ib {

/// The key that datagram endpoints of dat and of rdma_cm take messages with.
inline constexpr std::uint32_t default_qkey = detail::datagram_qkey;

// --- addresses -----------------------------------------------------------------------------------------------------

/// Where a datagram endpoint is: what an address handle is made of, and what may be carried to others by any means.
/// `ep<ud>::address` gives one's own. A value.
struct datagram_address {
  std::array<std::byte, 16> gid{};   ///< of its adapter's port; on RoCE its IP address, IPv4 as ::ffff:a.b.c.d
  std::uint16_t lid = 0;             ///< of its port on InfiniBand; 0 on Ethernet
  std::uint32_t qp_number = 0;       ///< ep<ud>::number()
  std::uint32_t qkey = default_qkey; ///< a message with another key is dropped by the receiver

  /// The endpoint number `qp` at an IP address, on RoCE.
  [[nodiscard]] static datagram_address at(const ia_address& host, std::uint32_t qp,
                                           std::uint32_t key = default_qkey) noexcept {
    datagram_address a;
    const ibv_gid g = detail::gid_of(host);
    std::memcpy(a.gid.data(), g.raw, sizeof g.raw);
    a.qp_number = qp;
    a.qkey = key;
    return a;
  }
  friend bool operator==(const datagram_address&, const datagram_address&) = default;
};

/// Names a peer that datagrams can be sent to, for one endpoint (DAT_IB_ADDR_HANDLE, IB extensions §1.10). Made by
/// `ep<ud>::address_of`, `reply_to` or an event; what it holds of the adapter is freed when it goes, but not before the
/// last send to it has completed: it may be dropped as soon as `post` is back.
///
/// Move-only; keeps no endpoint alive: after that has gone it names nobody. Thread safety: may be dropped in any
/// thread, but not while it is being posted.
class address_handle {
public:
  address_handle() noexcept = default; ///< names nobody; a send to it is refused
  address_handle(address_handle&& o) noexcept
      : owner_(std::move(o.owner_)), node_(std::exchange(o.node_, nullptr)), raw_(std::exchange(o.raw_, {})) {}
  address_handle& operator=(address_handle&& o) noexcept {
    if (this != &o) {
      drop();
      owner_ = std::move(o.owner_);
      node_ = std::exchange(o.node_, nullptr);
      raw_ = std::exchange(o.raw_, {});
    }
    return *this;
  }
  ~address_handle() { drop(); }

  explicit operator bool() const noexcept { return node_ != nullptr; }
  /// The peer's number and key.
  [[nodiscard]] std::uint32_t qp_number() const noexcept { return raw_.qp_num; }
  [[nodiscard]] std::uint32_t qkey() const noexcept { return raw_.qkey; }
  /// The verbs address handle; null for an empty one, and once the endpoint is gone.
  [[nodiscard]] ibv_ah* native_handle() const noexcept { return node_ ? node_->ah : nullptr; }

private:
  template <std::size_t>
  friend class send_to;
  friend struct detail::address_access;
  address_handle(detail::ref<detail::ud_core> owner, detail::address_node* node,
                 const detail::datagram_target& to) noexcept
      : owner_(std::move(owner)), node_(node), raw_{node->ah, to.qp_num, to.qkey, owner_.get()} {}
  void drop() noexcept {
    if (node_) owner_->drop_address(node_);
    node_ = nullptr;
  }
  detail::ref<detail::ud_core> owner_;
  detail::address_node* node_ = nullptr;
  detail::raw_address raw_;
};

} // namespace dat::inline v0::ib

namespace dat::inline v0::detail {
struct address_access {
  [[nodiscard]] static expected<ib::address_handle> make(const char* call, const ref<ud_core>& of,
                                                         const datagram_target& to) noexcept {
    auto node = of->make_address(call, to.path);
    if (!node) return node.assume_error();
    return ib::address_handle(of, node.assume_value(), to);
  }
};
} // namespace dat::inline v0::detail

namespace dat::inline v0::ib {

// --- sending -------------------------------------------------------------------------------------------------------

/// Sends a message to one peer (IB extensions §4.1, dat_ib_post_send_ud). Its completion, `ib::datagram_sent`, says
/// that the memory is free; whether the message arrives is not known: one that is lost, damaged, too long for the
/// receive that it meets, or finds none, is dropped. The memory needs `local_read`.
///
///     ep.post(dat::ib::send_to{out, peer}.cookie(7));
///     ep.post(dat::ib::send_to{out, peer}.immediate(1), dat::ib::send_to{out, another}.immediate(2));
///     ep.post(dat::ib::send_to{peer}.immediate(3)); // an empty message
template <std::size_t N>
class send_to : public outward_request<send_to<N>, N> {
public:
  explicit send_to(const address_handle& peer) noexcept : to_(peer.raw_) { this->wr_.start(dto_operation::send); }
  template <detail::names_memory S>
  send_to(S&& from, const address_handle& peer) noexcept : to_(peer.raw_) {
    static_assert(detail::readable<S>, "dat: send_to needs memory registered with dat::local_read");
    static_assert(detail::outlives_call<S>, "dat: the lmr must outlive the send_to: pass an lvalue, not a temporary");
    this->wr_.start(dto_operation::send, from);
  }
  template <mem_priv P>
  send_to(const iov<N, P>& from, const address_handle& peer) noexcept : to_(peer.raw_) {
    static_assert(includes(P, mem_priv::local_read), "dat: send_to needs memory registered with dat::local_read");
    this->wr_.start_list(dto_operation::send, from);
  }
  /// Asks that the matching receive at the peer be a notification (DAT_COMPLETION_SOLICITED_WAIT_FLAG).
  send_to& solicited() & noexcept { return this->solicit(); }
  send_to&& solicited() && noexcept { return std::move(this->solicit()); }
  template <bool Never = false>
  void fence() const noexcept {
    static_assert(Never, "dat: a datagram endpoint has no RDMA reads that a fence could wait for: leave fence() out");
  }

private:
  friend struct detail::datagram_access;
  detail::raw_address to_;
};
send_to(const address_handle&)->send_to<0>;
template <detail::names_memory S>
send_to(S&&, const address_handle&) -> send_to<1>;
template <std::size_t N, mem_priv P>
send_to(const iov<N, P>&, const address_handle&) -> send_to<N>;

// --- receiving -----------------------------------------------------------------------------------------------------

/// What stands before the payload of every datagram that has arrived: the global routing header of InfiniBand, or on
/// RoCE over IPv4 twenty unused bytes and the IP header.
class grh {
public:
  static constexpr std::size_t size = 40;

  [[nodiscard]] std::span<const std::byte, size> bytes() const noexcept { return bytes_; }
  /// Whether it is an IPv4 header.
  [[nodiscard]] bool is_ipv4() const noexcept {
    return (bytes_[0] >> 4) != std::byte{6} && (bytes_[20] >> 4) == std::byte{4};
  }
  /// Where it came from and where it went to: IP addresses, or GIDs in the form of IPv6 addresses.
  [[nodiscard]] ia_address source() const noexcept { return at(is_ipv4() ? 32 : 8); }
  [[nodiscard]] ia_address destination() const noexcept { return at(is_ipv4() ? 36 : 24); }
  /// Routers that it may still have passed.
  [[nodiscard]] std::uint8_t hop_limit() const noexcept {
    return static_cast<std::uint8_t>(bytes_[is_ipv4() ? 28 : 7]);
  }

private:
  [[nodiscard]] ia_address at(std::size_t offset) const noexcept {
    if (is_ipv4()) {
      sockaddr_in a{};
      a.sin_family = AF_INET;
      std::memcpy(&a.sin_addr, &bytes_[offset], sizeof a.sin_addr);
      return ia_address(a);
    }
    sockaddr_in6 a{};
    a.sin6_family = AF_INET6;
    std::memcpy(&a.sin6_addr, &bytes_[offset], sizeof a.sin6_addr);
    return ia_address(a);
  }
  std::array<std::byte, size> bytes_;
};
static_assert(sizeof(grh) == 40 && alignof(grh) == 1 && std::is_trivially_copyable_v<grh>);

/// A datagram has arrived in the receive that `cookie()` names (operation RECV_UD). `bytes()` is the length in the
/// buffer, the header of 40 bytes included; see datagram_view.
class received_datagram : public transfer {
public:
  /// Bytes of the message itself.
  [[nodiscard]] std::size_t payload_bytes() const noexcept { return bytes() > grh::size ? bytes() - grh::size : 0; }
  /// Who sent it.
  [[nodiscard]] std::uint32_t source_qp_number() const noexcept { return source_qp_; }

protected:
  friend struct detail::event_access;
  friend struct detail::datagram_access;
  received_datagram(detail::ep_core* ep, dat::cookie c, const ibv_wc& wc) noexcept
      : transfer(ep, c, wc.byte_len),
        source_qp_(wc.src_qp),
        slid_(wc.slid),
        pkey_index_(wc.pkey_index),
        flags_(static_cast<std::uint8_t>(wc.wc_flags)),
        sl_(wc.sl),
        path_bits_(wc.dlid_path_bits) {}

private:
  std::uint32_t source_qp_;
  std::uint16_t slid_;
  std::uint16_t pkey_index_;
  std::uint8_t flags_;
  std::uint8_t sl_;
  std::uint8_t path_bits_;
};

/// A datagram with immediate data has arrived (operation RECV_UD_IMMED).
class received_datagram_immediate : public received_datagram {
public:
  /// The 32 bits as the peer gave them; the consumers agree on the byte order.
  [[nodiscard]] std::uint32_t immediate() const noexcept { return immediate_; }

private:
  friend struct detail::event_access;
  received_datagram_immediate(detail::ep_core* ep, dat::cookie c, const ibv_wc& wc) noexcept
      : received_datagram(ep, c, wc), immediate_(wc.imm_data) {}
  std::uint32_t immediate_;
};

/// A datagram is sent: its memory is free (operation SEND_UD). Nothing is known of the peer.
class datagram_sent : public transfer {
  using transfer::transfer;
  friend struct detail::event_access;
};

/// A receive buffer as what has arrived in it: header and payload. Does not own the memory.
class datagram_view {
public:
  /// `buffer`: the memory that the receive was posted with; it must be in one piece.
  datagram_view(const received_datagram& arrived, std::span<const std::byte> buffer) noexcept
      : whole_(buffer.first(detail::smaller(buffer.size(), arrived.bytes()))) {}
  template <class T, mem_priv P>
  datagram_view(const received_datagram& arrived, const local_segment<T, P>& buffer) noexcept
      : datagram_view(arrived, std::as_bytes(buffer.elements())) {}
  template <class T, mem_priv P>
  datagram_view(const received_datagram& arrived, const lmr<T, P>& buffer) noexcept
      : datagram_view(arrived, std::as_bytes(buffer.elements())) {}

  /// Where it came from. All zero when the buffer is shorter than a header, which then holds no datagram.
  [[nodiscard]] grh header() const noexcept {
    grh h{};
    if (whole_.size() >= sizeof h) std::memcpy(&h, whole_.data(), sizeof h);
    return h;
  }
  /// The message itself.
  [[nodiscard]] std::span<const std::byte> payload() const noexcept {
    return whole_.subspan(detail::smaller(whole_.size(), grh::size));
  }
  /// The message as a value, when it has at least its size.
  template <transferable T>
  [[nodiscard]] std::optional<T> payload_as() const noexcept {
    if (payload().size() < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, payload().data(), sizeof value);
    return value;
  }

private:
  std::span<const std::byte> whole_;
};

// --- getting to know each other ------------------------------------------------------------------------------------

/// A peer is known now (DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED): what ep<ud>::connect gives on one side and
/// datagram_request::accept on the other. Endpoints know any number of peers, and take messages of those they do not
/// know: a message of the peer that was accepted may come before this event, for it does not wait for this side.
class datagram_established : public connection_event {
public:
  /// The side that accepted: what the peer gave to `connect`. The other: what it gave to `accept`, followed by zeros,
  /// for the length is not on the wire. Valid as long as this event.
  [[nodiscard]] std::span<const std::byte> private_data() const noexcept { return data(); }
  /// Where the peer is (`ia_addr` of DAT_IB_ADDR_HANDLE): what was given to `connect`, or where the request came from.
  [[nodiscard]] ia_address remote_address() const noexcept {
    return source() ? source()->remote_address() : ia_address();
  }
  /// Whether this side accepted (type UD_PASSIVE_REMOTE_AH), or asked (UD_REMOTE_AH).
  [[nodiscard]] bool is_passive() const noexcept { return passive(); }
  /// The peer, for sends of this endpoint. Errors: `model_not_supported` where the peer is a program that does not say
  /// its number with the request: reply to its messages instead; `invalid_handle` when the endpoint is gone;
  /// `insufficient_resources`. Allocates: yes.
  [[nodiscard]] expected<address_handle> peer() const noexcept {
    static constexpr const char* call = "datagram_established.peer";
    const auto* c = static_cast<const detail::ud_connection*>(source());
    if (!c || !c->target())
      return error(return_type::model_not_supported)
          .at(call, object_kind::ep, ep().number())
          .hint("the peer's request did not say who it is: wait for a message of it and use ep.reply_to");
    auto* core = const_cast<detail::ep_core*>(ep().native());
    return detail::address_access::make(call, detail::ref<detail::ud_core>(core->datagrams()), *c->target());
  }

private:
  using connection_event::connection_event;
  friend struct detail::event_access;
};

/// The endpoint is in a multicast group from now on; see <dat/multicast.hpp>. When it cannot be, `unreachable` comes
/// instead.
class group_joined : public connection_event {
public:
  /// The address that was given to `join`.
  [[nodiscard]] ia_address group() const noexcept { return source() ? source()->remote_address() : ia_address(); }

private:
  using connection_event::connection_event;
  friend struct detail::event_access;
};

/// A peer wants to get to know an endpoint of this side (DAT_IB_UD_CONNECTION_REQUEST_EVENT); comes from a
/// datagram_service. Ends by `accept` or `reject`; one that is dropped is rejected. When the network loses the answer,
/// the peer asks again and is given the same answer, unless it is a program that is not dat or the service is closed by
/// then: the request of such a program comes a second time. Move-only. Thread safety: one thread at a time.
class datagram_request {
public:
  datagram_request() noexcept = default;

  /// What the peer gave to `connect`, exactly; from a program that is not dat, what it sent, followed by zeros.
  [[nodiscard]] std::span<const std::byte> private_data() const noexcept {
    return request_ ? request_.get()->private_data() : std::span<const std::byte>();
  }
  [[nodiscard]] ia_address remote_address() const noexcept {
    return request_ ? request_.get()->remote_address() : ia_address();
  }
  [[nodiscard]] ia_address local_address() const noexcept {
    return request_ ? request_.get()->local_address() : ia_address();
  }
  /// The number of the peer's endpoint; 0 from a program that is not dat.
  [[nodiscard]] std::uint32_t remote_number() const noexcept { return request_ ? core()->peer_number() : 0; }

  /// Tells the peer the number of `with`, which gets `datagram_established` (IB extensions §4.2). `data`: at most 128
  /// bytes. Errors, with the request left open: `invalid_parameter` for too much data; `invalid_state` for a
  /// disconnected endpoint; `invalid_handle`; `insufficient_resources`. Allocates: no. Blocks: no.
  expected<void> accept(ep<ud>& with, std::span<const std::byte> data = {}) noexcept;
  /// Says no: the peer gets `peer_rejected` with `data` (at most 128 bytes). Errors: `invalid_parameter` for too much
  /// data; `invalid_handle`. On success the request is empty. Allocates: no. Blocks: no.
  expected<void> reject(std::span<const std::byte> data = {}) noexcept {
    if (!request_) return detail::empty_handle("datagram_request.reject", return_subtype::handle_cr);
    auto r = core()->reject(data);
    if (r) request_.done();
    return r;
  }
  explicit operator bool() const noexcept { return static_cast<bool>(request_); }

private:
  friend struct detail::event_access;
  explicit datagram_request(detail::request_ref r) noexcept : request_(std::move(r)) {}
  [[nodiscard]] detail::ud_connection* core() const noexcept {
    return static_cast<detail::ud_connection*>(request_.get());
  }
  detail::request_ref request_;
};

} // namespace dat::inline v0::ib

namespace dat::inline v0::detail {

template <class D>
inline constexpr bool is_send_to = false;
template <std::size_t N>
inline constexpr bool is_send_to<ib::send_to<N>> = true;

struct datagram_access {
  template <std::size_t N>
  static ud_posting::send<N> of(const ib::send_to<N>& s) noexcept {
    return {request_access::of(s), s.to_};
  }
  /// The work completion that an event was made of, as far as a reply needs it.
  static ibv_wc completion_of(const ib::received_datagram& e) noexcept {
    ibv_wc wc{};
    wc.src_qp = e.source_qp_;
    wc.slid = e.slid_;
    wc.pkey_index = e.pkey_index_;
    wc.wc_flags = e.flags_;
    wc.sl = e.sl_;
    wc.dlid_path_bits = e.path_bits_;
    return wc;
  }
};

template <streams S, class Visitor>
void visit_datagram(ep_core& ep, const ibv_wc& wc, const posted_work& posted, Visitor& visit) {
  using access = event_access;
  if (!posted.is_receive()) {
    auto e = access::make<ib::datagram_sent>(&ep, posted.cookie, posted.bytes());
    visit(e);
  } else if ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) {
    auto e = access::make<ib::received_datagram_immediate>(&ep, posted.cookie, wc);
    visit(e);
  } else {
    auto e = access::make<ib::received_datagram>(&ep, posted.cookie, wc);
    visit(e);
  }
}

template <streams S, class Visitor>
[[gnu::always_inline]] inline bool take_datagram_sent(work_entry& e, Visitor& visit) {
  return take_done<ib::datagram_sent>(e, visit);
}
template <streams S, class Visitor>
[[gnu::always_inline]] inline bool take_datagram_received(work_entry& e, const ibv_wc& wc, Visitor& visit) {
  posted_work posted = work_ring::read(e);
  posted.kind = recv_ud_work; // which is known here, and need not be asked for below
  ep_core& ep = e.ring().owner();
  work_ring::retire(e); // first: the visitor may post
  visit_datagram<S>(ep, wc, posted, visit);
  return true;
}

template <streams S, class Visitor>
bool take_datagram_record(record& r, Visitor& visit) {
  using kind = record::kind;
  if constexpr (includes(S, streams::connection)) {
    const auto give = [&]<class E>(std::type_identity<E>) {
      ref<ep_core> ep(static_cast<ep_core*>(r.endpoint.detach()), adopt);
      auto e = event_access::make<E>(std::move(ep), std::move(r.source), r.reason);
      visit(e);
      return true;
    };
    if (r.what == kind::datagram_established) return give(std::type_identity<ib::datagram_established>{});
    if (r.what == kind::group_joined) return give(std::type_identity<ib::group_joined>{});
  }
  if constexpr (includes(S, streams::connection_requests))
    if (r.what == kind::datagram_request) {
      auto e = event_access::make<ib::datagram_request>(std::move(r.request));
      visit(e);
      return true;
    }
  return false;
}

} // namespace dat::inline v0::detail
