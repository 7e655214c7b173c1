// Datagrams: sends to an address, the events of arrived messages, and addresses. For datagram endpoints, see ud.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>
#include <dat/dto.hpp>
#include <dat/event.hpp>
#include <dat/expected.hpp>
#include <dat/segment.hpp>

#include <dat/detail/datagram/ud_core.hpp>
#include <dat/detail/delivery/drain.hpp>
#include <dat/detail/posting/endpoint_queues.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 { namespace ib {

/// The key of messages that datagram endpoints of dat and of rdma_cm accept.
inline constexpr std::uint32_t default_qkey = detail::datagram_qkey;

// --- addresses -----------------------------------------------------------------------------------------------------

/// The address of a datagram endpoint, from which a peer creates an address handle. Any channel may carry it.
/// `ep<ud>::address` returns the address of an endpoint. A value.
struct datagram_address {
  std::array<std::byte, 16> gid{};   ///< the GID of the port; on RoCE its IP address, IPv4 as ::ffff:a.b.c.d
  std::uint16_t lid = 0;             ///< the LID of the port on InfiniBand; 0 on Ethernet
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

/// Names a peer to which one endpoint can send datagrams (DAT_IB_ADDR_HANDLE, IB extensions §1.10).
/// `ep<ud>::address_of`, `reply_to` and events create it. It may be dropped as soon as `post` returns: its resources of
/// the adapter are freed after the last send to it has completed.
///
/// Move-only. It keeps no endpoint alive; when the endpoint ends, it names no peer.
/// Thread safety: any thread may drop it, but not while a thread posts a send to it.
class address_handle {
public:
  address_handle() noexcept = default; ///< names no peer; a send to it is refused
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
  /// The number and the key of the peer.
  [[nodiscard]] std::uint32_t qp_number() const noexcept { return raw_.qp_num; }
  [[nodiscard]] std::uint32_t qkey() const noexcept { return raw_.qkey; }
  /// The verbs address handle; null for an empty handle, and when the endpoint has ended.
  [[nodiscard]] ibv_ah* native_handle() const noexcept { return node_ ? node_->ah.load() : nullptr; }

private:
  template <std::size_t>
  friend class send_to;
  friend struct detail::address_access;
  address_handle(detail::ref<detail::ud_core> owner, detail::address_node* node,
                 const detail::datagram_target& to) noexcept
      : owner_(std::move(owner)), node_(node), raw_{node->ah.load(), to.qp_num, to.qkey, &owner_->sent} {}
  void drop() noexcept {
    if (node_) owner_->drop_address(node_);
    node_ = nullptr;
  }
  detail::ref<detail::ud_core> owner_;
  detail::address_node* node_ = nullptr;
  detail::raw_address raw_;
};

}}} // namespace dat::v0::ib

namespace dat { inline namespace v0 { namespace detail {
struct address_access {
  [[nodiscard]] static expected<ib::address_handle> make(const char* call, const ref<ud_core>& of,
                                                         const datagram_target& to, const qos& quality = {}) noexcept {
    if (auto ok = check_qos(quality, false, return_subtype::arg3); !ok)
      return ok.assume_error().at(call, object_kind::ep);
    auto node = of->make_address(call, to.path, quality);
    if (!node) return node.assume_error();
    return ib::address_handle(of, node.assume_value(), to);
  }
};
}}} // namespace dat::v0::detail

namespace dat { inline namespace v0 { namespace ib {

// --- sending -------------------------------------------------------------------------------------------------------

/// Sends a message to one peer (IB extensions §4.1, dat_ib_post_send_ud). The memory needs `local_read`. The
/// completion, `ib::datagram_send_done`, means that the memory may be reused. It does not mean that the message has
/// arrived: a message may be lost or damaged, may be longer than its receive, or may find no receive.
///
///     ep.post(dat::ib::send_to{out, peer}.cookie(7));
///     ep.post(dat::ib::send_to{out, peer}.immediate(1), dat::ib::send_to{out, another}.immediate(2));
///     ep.post(dat::ib::send_to{peer}.immediate(3)); // an empty message
template <std::size_t N>
class send_to : public detail::outward_request<send_to<N>, N> {
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
  /// The completion of the matching receive at the peer notifies (DAT_COMPLETION_SOLICITED_WAIT_FLAG).
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

/// The header before the payload of every datagram: the global routing header of InfiniBand, or on RoCE over IPv4
/// twenty unused bytes and the IP header.
class grh {
public:
  static constexpr std::size_t size = 40;

  [[nodiscard]] std::span<const std::byte, size> bytes() const noexcept { return bytes_; }
  /// Whether it is an IPv4 header.
  [[nodiscard]] bool is_ipv4() const noexcept {
    return (bytes_[0] >> 4) != std::byte{6} && (bytes_[20] >> 4) == std::byte{4};
  }
  /// The addresses of the sender and of the destination: IP addresses, or GIDs in the form of IPv6 addresses.
  [[nodiscard]] ia_address source() const noexcept { return at(is_ipv4() ? 32 : 8); }
  [[nodiscard]] ia_address destination() const noexcept { return at(is_ipv4() ? 36 : 24); }
  /// The number of routers that the datagram could still have passed.
  [[nodiscard]] std::uint8_t hop_limit() const noexcept {
    return static_cast<std::uint8_t>(bytes_[is_ipv4() ? 28 : 7]);
  }

private:
  [[nodiscard]] ia_address at(std::size_t offset) const noexcept {
    if (is_ipv4()) {
      sockaddr_in a{};
      std::memcpy(&a.sin_addr, &bytes_[offset], sizeof a.sin_addr);
      return ia_address(a);
    }
    sockaddr_in6 a{};
    std::memcpy(&a.sin6_addr, &bytes_[offset], sizeof a.sin6_addr);
    return ia_address(a);
  }
  std::array<std::byte, size> bytes_;
};
static_assert(sizeof(grh) == 40 && alignof(grh) == 1 && std::is_trivially_copyable_v<grh>);

/// A datagram has arrived in the receive that `cookie()` names (operation RECV_UD). `bytes()` is the length in the
/// buffer, including the header of 40 bytes; see datagram_view.
class datagram_recv_done : public transfer {
public:
  static constexpr std::string_view name = "ib::datagram_recv_done";
  [[nodiscard]] std::string message() const { return text(name); }
  [[nodiscard]] static constexpr dto_operation operation() noexcept { return dto_operation::recv_ud; }
  /// Bytes of the message itself.
  [[nodiscard]] std::size_t payload_bytes() const noexcept { return bytes() > grh::size ? bytes() - grh::size : 0; }
  /// The number of the sender's endpoint.
  [[nodiscard]] std::uint32_t source_qp_number() const noexcept { return source_qp_; }

protected:
  friend struct detail::event_access;
  datagram_recv_done(detail::event_key key, detail::ep_core* ep, dat::cookie c, const ibv_wc& wc) noexcept
      : transfer(key, ep, c, wc.byte_len),
        source_qp_(wc.src_qp),
        slid_(wc.slid),
        pkey_index_(wc.pkey_index),
        flags_(static_cast<std::uint8_t>(wc.wc_flags)),
        sl_(wc.sl),
        path_bits_(wc.dlid_path_bits) {}

private:
  friend struct detail::datagram_access;
  std::uint32_t source_qp_;
  std::uint16_t slid_;
  std::uint16_t pkey_index_;
  std::uint8_t flags_;
  std::uint8_t sl_;
  std::uint8_t path_bits_;
};

/// A datagram with immediate data has arrived (operation RECV_UD_IMMED).
class datagram_recv_immediate_done : public datagram_recv_done {
public:
  static constexpr std::string_view name = "ib::datagram_recv_immediate_done";
  [[nodiscard]] std::string message() const { return text(name); }
  [[nodiscard]] static constexpr dto_operation operation() noexcept { return dto_operation::recv_ud_immediate; }
  /// The 32 bits as the peer gave them; the consumers agree on the byte order.
  [[nodiscard]] std::uint32_t immediate() const noexcept { return immediate_; }

private:
  friend struct detail::event_access;
  datagram_recv_immediate_done(detail::event_key key, detail::ep_core* ep, dat::cookie c, const ibv_wc& wc) noexcept
      : datagram_recv_done(key, ep, c, wc), immediate_(wc.imm_data) {}
  std::uint32_t immediate_;
};

/// A datagram was sent, and its memory may be reused (operation SEND_UD). The completion does not mean that the peer
/// has the message.
class datagram_send_done : public transfer {
public:
  static constexpr std::string_view name = "ib::datagram_send_done";
  [[nodiscard]] std::string message() const { return text(name); }
  [[nodiscard]] static constexpr dto_operation operation() noexcept { return dto_operation::send_ud; }

  using transfer::transfer;
};

/// A receive buffer with a datagram: header and payload. Does not own the memory.
class datagram_view {
public:
  /// `buffer`: the memory that the receive was posted with; it must be in one piece.
  datagram_view(const datagram_recv_done& arrived, std::span<const std::byte> buffer) noexcept
      : whole_(buffer.first(detail::min(buffer.size(), arrived.bytes()))) {}
  template <class T, mem_priv P>
  datagram_view(const datagram_recv_done& arrived, const local_segment<T, P>& buffer) noexcept
      : datagram_view(arrived, std::as_bytes(buffer.elements())) {}
  template <class T, mem_priv P>
  datagram_view(const datagram_recv_done& arrived, const lmr<T, P>& buffer) noexcept
      : datagram_view(arrived, std::as_bytes(buffer.elements())) {}

  /// The header. All zero when the buffer is shorter than a header; it then holds no datagram.
  [[nodiscard]] grh header() const noexcept {
    grh h{};
    if (whole_.size() >= sizeof h) std::memcpy(&h, whole_.data(), sizeof h);
    return h;
  }
  /// The message.
  [[nodiscard]] std::span<const std::byte> payload() const noexcept {
    return whole_.subspan(detail::min(whole_.size(), grh::size));
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

// --- exchange of addresses -----------------------------------------------------------------------------------------

/// The address of a peer is now known (DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED): the result of ep<ud>::connect on one
/// side and of datagram_request::accept on the other. An endpoint may know the addresses of any number of peers, and
/// also receives messages from other peers. A message of the accepted peer may arrive before this event.
class datagram_established : public connection_event {
public:
  static constexpr std::string_view name = "ib::datagram_established";
  [[nodiscard]] std::string message() const { return text(name); }
  /// On the side that accepted: the data that the peer gave to `connect`. On the other side: the data that the peer
  /// gave to `accept`. Both have their length. If the peer's program does not use dat, the data is followed by zeros.
  /// Valid as long as this event.
  [[nodiscard]] std::span<const std::byte> private_data() const noexcept { return data(); }
  /// The address of the peer (`ia_addr` of DAT_IB_ADDR_HANDLE): the one that was given to `connect`, or the source of
  /// the request.
  [[nodiscard]] ia_address remote_address() const noexcept {
    return source() ? source()->remote_address() : ia_address();
  }
  /// Whether this side accepted (type UD_PASSIVE_REMOTE_AH), or asked (UD_REMOTE_AH).
  [[nodiscard]] bool is_passive() const noexcept { return passive(); }
  /// The peer, as the destination of sends of this endpoint.
  /// Errors: `model_not_supported` when the peer's program does not send its number with the request (reply to its
  /// messages instead); `invalid_handle` when the endpoint has ended; `insufficient_resources`.
  /// Allocates: yes.
  /// Blocks: briefly, in the kernel.
  /// Thread safety: safe.
  [[nodiscard]] expected<address_handle> peer() const noexcept {
    static constexpr const char* call = "datagram_established.peer";
    const auto* c = static_cast<const detail::ud_connection*>(source());
    if (!c || !c->target())
      return error(return_type::model_not_supported)
          .at(call, object_kind::ep, ep().number())
          .hint("The peer's request did not name its endpoint: wait for a message of the peer, and use ep.reply_to.");
    auto* core = const_cast<detail::ep_core*>(ep().native());
    return detail::address_access::make(call, detail::ud_core::of(*core), *c->target());
  }

  using connection_event::connection_event;
};

/// The endpoint is now a member of a multicast group; see <dat/multicast.hpp>. If it cannot become one, the evd gets
/// `connection_unreachable` instead.
class group_joined : public connection_event {
public:
  static constexpr std::string_view name = "ib::group_joined";
  [[nodiscard]] std::string message() const { return text(name); }
  /// The address that was given to `join`.
  [[nodiscard]] ia_address group() const noexcept { return source() ? source()->remote_address() : ia_address(); }

  using connection_event::connection_event;
};

/// A peer requests the address of an endpoint of this side (DAT_IB_UD_CONNECTION_REQUEST_EVENT). It comes from a
/// datagram_service. It ends by `accept` or `reject`; dropping it rejects it. If the network loses the answer, the peer
/// repeats the request and gets the same answer. There are two exceptions, in which the request arrives a second time:
/// the service was closed meanwhile, or the peer's program does not use dat. Move-only.
/// Thread safety: one thread at a time.
class datagram_request {
public:
  static constexpr std::string_view name = "ib::datagram_request";
  [[nodiscard]] std::string message() const { return detail::request_text(name, remote_address()); }
  datagram_request() noexcept = default;

  /// The data that the peer gave to `connect`, with its length. If the peer's program does not use dat, the data is
  /// followed by zeros.
  [[nodiscard]] std::span<const std::byte> private_data() const noexcept {
    return request_ ? request_.get()->private_data() : std::span<const std::byte>();
  }
  [[nodiscard]] ia_address remote_address() const noexcept {
    return request_ ? request_.get()->remote_address() : ia_address();
  }
  [[nodiscard]] ia_address local_address() const noexcept {
    return request_ ? request_.get()->local_address() : ia_address();
  }
  /// The number of the peer's endpoint; 0 from a program that does not use dat.
  [[nodiscard]] std::uint32_t remote_number() const noexcept { return request_ ? core()->peer_number() : 0; }

  /// Sends the number of `with` to the peer. `with` gets `datagram_established` (IB extensions §4.2). The peer gets
  /// `data`, at most 128 bytes. On success the request is empty.
  /// Errors: `invalid_parameter` for too much data; `invalid_state` for a disconnected endpoint; `invalid_handle`;
  /// `insufficient_resources`. They leave the request open.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: one thread at a time for the request.
  expected<void> accept(ep<ud>& with, std::span<const std::byte> data = {}) noexcept;
  /// Rejects the request. The peer gets `peer_rejected` with `data`, at most 128 bytes. On success the request is
  /// empty.
  /// Errors: `invalid_parameter` for too much data; `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: one thread at a time for the request.
  expected<void> reject(std::span<const std::byte> data = {}) noexcept {
    if (!request_) return detail::empty_handle("datagram_request.reject", return_subtype::handle_cr);
    auto r = core()->reject(data);
    if (r) request_.done();
    return r;
  }
  /// Passes the request to the datagram service at another qualifier of the same ia, which queues it as if it had
  /// arrived there. On success the request is empty (uDAPL 2.0 §6.4.5.4).
  /// Errors: all of them leave the request open. `invalid_parameter`: no datagram service of the ia listens there, or
  /// the request is at that service already; `invalid_state`: the evd of that service is full; `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: one thread at a time for the request.
  expected<void> handoff(conn_qual to) noexcept;
  explicit operator bool() const noexcept { return static_cast<bool>(request_); }

  datagram_request(detail::event_key, detail::request_ref r) noexcept : request_(std::move(r)) {}

private:
  [[nodiscard]] detail::ud_connection* core() const noexcept {
    return static_cast<detail::ud_connection*>(request_.get());
  }
  detail::request_ref request_;
};

}}} // namespace dat::v0::ib

namespace dat { inline namespace v0 { namespace detail {

template <class D>
inline constexpr bool is_send_to = false;
template <std::size_t N>
inline constexpr bool is_send_to<ib::send_to<N>> = true;

struct datagram_access {
  template <std::size_t N>
  static datagram_request<N> of(const ib::send_to<N>& s) noexcept {
    return {request_access::of(s), s.to_};
  }
  /// The part of the work completion of an event that a reply needs.
  static ibv_wc completion_of(const ib::datagram_recv_done& e) noexcept {
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

/// Calls a visitor with the event of a datagram's completion.
template <streams S, class Visitor>
void visit_datagram(ep_core& ep, const ibv_wc& wc, const posted_work& posted, Visitor& visit) {
  using access = event_access;
  if (!posted.is_receive()) {
    auto e = access::make<ib::datagram_send_done>(&ep, posted.cookie, posted.bytes());
    visit(e);
  } else if ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) {
    auto e = access::make<ib::datagram_recv_immediate_done>(&ep, posted.cookie, wc);
    visit(e);
  } else {
    auto e = access::make<ib::datagram_recv_done>(&ep, posted.cookie, wc);
    visit(e);
  }
}

template <streams S, class Visitor>
[[gnu::always_inline]] inline bool take_datagram_send_done(work_entry& e, Visitor& visit) {
  return take_done<ib::datagram_send_done>(e, visit);
}
template <streams S, class Visitor>
[[gnu::always_inline]] inline bool take_datagram_received(work_entry& e, const ibv_wc& wc, Visitor& visit) {
  posted_work posted = work_ring::read(e);
  posted.kind = recv_ud_work; // the kind is known here, so the called functions need not determine it
  ep_core& ep = detail::endpoint_of(e);
  work_ring::retire(e); // before the visitor, which may post
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

}}} // namespace dat::v0::detail
