// Behind datagram endpoints: their addresses, how they get to know each other, and the path of one send.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>
#include <dat/expected.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/core.hpp>
#include <dat/detail/wire.hpp>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <utility>

namespace dat::inline v0::detail {

/// Most private data of a request or an answer between datagram endpoints.
inline constexpr std::size_t max_datagram_data = 128;

/// What is known of an endpoint that datagrams can go to.
struct datagram_target {
  ibv_ah_attr path{};
  std::uint32_t qp_num = 0; ///< 0: unknown
  std::uint32_t qkey = datagram_qkey;
};

/// Where an endpoint is, as it tells others.
struct datagram_place {
  ibv_gid gid{};
  std::uint16_t lid = 0; ///< 0 on Ethernet
  std::uint32_t qp_num = 0;
  std::uint32_t qkey = 0;
};

/// What precedes the private data of a request, since that message of InfiniBand has no place for who sends it:
/// mark (4), version (1), length of the private data (1), lid (2), number (4), key (4), gid (16).
struct datagram_header {
  static constexpr std::size_t size = 32;
  static constexpr std::array<std::byte, 4> mark{std::byte{'D'}, std::byte{'A'}, std::byte{'T'}, std::byte{'U'}};
  static constexpr std::byte version{1};

  static std::byte* write(const datagram_place& from, std::size_t data_size, std::byte* to) noexcept {
    copy_bytes(mark, to);
    to[4] = version;
    to[5] = static_cast<std::byte>(data_size);
    put_be(to + 6, from.lid);
    put_be(to + 8, from.qp_num);
    put_be(to + 12, from.qkey);
    std::memcpy(to + 16, from.gid.raw, sizeof from.gid.raw);
    return to + size;
  }
  /// Nothing when the peer is a program that is not dat.
  [[nodiscard]] static std::optional<datagram_place> read(std::span<const std::byte> data) noexcept {
    if (data.size() < size || std::memcmp(data.data(), mark.data(), mark.size()) != 0 || data[4] != version ||
        static_cast<std::size_t>(data[5]) > data.size() - size)
      return {};
    datagram_place p;
    p.lid = get_be<std::uint16_t>(&data[6]);
    p.qp_num = get_be<std::uint32_t>(&data[8]);
    p.qkey = get_be<std::uint32_t>(&data[12]);
    std::memcpy(p.gid.raw, &data[16], sizeof p.gid.raw);
    return p;
  }
};

/// The index of a gid of this adapter, of the kind that rdma_cm uses; negative when it has none.
[[nodiscard]] inline int gid_index_of(const ia_core& ia, const ibv_gid& gid) noexcept {
  ibv_port_attr port{};
  if (ibv_query_port(ia.context(), ia.where().port, &port) != 0) return -1;
  int found = -1;
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_gid_entry e{};
    if (ibv_query_gid_ex(ia.context(), ia.where().port, static_cast<std::uint32_t>(i), &e, 0) != 0) continue;
    if (std::memcmp(e.gid.raw, gid.raw, sizeof gid.raw) != 0) continue;
    if (e.gid_type == IBV_GID_TYPE_ROCE_V2) return i;
    if (found < 0) found = i;
  }
  return found;
}

/// An IP address in the form of a gid.
[[nodiscard]] inline ibv_gid gid_of(const ia_address& a) noexcept {
  ibv_gid gid{};
  if (a.family() == address_family::ipv4) {
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw + 12, &reinterpret_cast<const sockaddr_in*>(a.native_handle())->sin_addr, 4);
  } else {
    std::memcpy(gid.raw, &reinterpret_cast<const sockaddr_in6*>(a.native_handle())->sin6_addr, 16);
  }
  return gid;
}
[[nodiscard]] inline bool is_ipv4(const ibv_gid& gid) noexcept {
  constexpr std::uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, prefix, sizeof prefix) == 0;
}

/// Where this adapter is for a peer that is reached by the same kind of address. Errors: by errno.
struct port_place {
  datagram_place place;
  int gid_index = -1;
  std::uint8_t link = IBV_LINK_LAYER_UNSPECIFIED;
  ibv_mtu mtu = IBV_MTU_1024;
};
[[nodiscard]] inline result<port_place> place_of(const ia_core& ia, bool ipv4) noexcept {
  ibv_port_attr port{};
  if (const int err = ibv_query_port(ia.context(), ia.where().port, &port))
    return map_errno(err, return_subtype::resource_device).from("ibv_query_port", err);
  port_place p;
  p.link = port.link_layer;
  p.mtu = port.active_mtu;
  if (port.link_layer == IBV_LINK_LAYER_INFINIBAND) {
    p.place.lid = port.lid;
    p.gid_index = 0;
    if (ibv_query_gid(ia.context(), ia.where().port, 0, &p.place.gid) != 0)
      return map_errno(errno, return_subtype::resource_device).from("ibv_query_gid", errno);
    return p;
  }
  const ia_address* own = ia.address(ipv4 ? address_family::ipv4 : address_family::ipv6);
  if (!own) return error(return_type::invalid_address, return_subtype::address_unsupported);
  p.place.gid = gid_of(*own);
  p.gid_index = gid_index_of(ia, p.place.gid);
  if (p.gid_index < 0)
    return error(return_type::invalid_address, return_subtype::address_unreachable)
        .hint("the adapter has no GID for its address");
  return p;
}

/// The way to `to`, for verbs.
[[nodiscard]] inline result<ibv_ah_attr> path_to(const ia_core& ia, const datagram_place& to) noexcept {
  auto own = place_of(ia, is_ipv4(to.gid));
  if (!own) return own.assume_error();
  const port_place& here = own.assume_value();
  ibv_ah_attr path{};
  path.port_num = ia.where().port;
  path.dlid = to.lid;
  if (here.link == IBV_LINK_LAYER_INFINIBAND && to.lid != 0) return path; // of the same subnet
  path.is_global = 1;
  path.grh.dgid = to.gid;
  path.grh.sgid_index = static_cast<std::uint8_t>(here.gid_index);
  path.grh.hop_limit = 64;
  return path;
}

/// An address handle of verbs. The device reads it until the last send that names it is done, so it outlives its
/// owner in the endpoint's list until then.
struct address_node : list_node {
  ibv_ah* ah = nullptr;
  std::uint64_t until = 0; ///< requests that were posted when it was dropped
};

/// The part of a datagram endpoint that others have not. Kept by the endpoint and by every address handle.
class ud_core final : public ia_child {
public:
  [[nodiscard]] static result<ref<ep_core>> create_ep(const char* call, const ref<pz_core>& pz,
                                                      const ep_core::queues& evds, const ep_attributes& a) noexcept;
  explicit ud_core(ref<ia_core> ia, ref<pz_core> pz) noexcept : ia_child(std::move(ia), table), pz_(std::move(pz)) {}

  /// The endpoint, unless it is gone.
  [[nodiscard]] ref<ep_core> endpoint() noexcept {
    const std::lock_guard lock(mutex_);
    return ep_ && ep_->try_add_ref() ? ref<ep_core>(ep_, adopt) : ref<ep_core>();
  }

  [[nodiscard]] result<address_node*> make_address(const char* call, const ibv_ah_attr& path) noexcept;
  void drop_address(address_node* node) noexcept;

  [[nodiscard]] expected<void> connect(const ref<ep_core>& ep, const ia_address& to, std::uint16_t port, timeout limit,
                                       std::span<const std::byte> data) noexcept;
  /// Tells an event of the connection stream. Nothing when the endpoint is gone.
  void announce(record::kind what, ref<connection_base> source, int reason) noexcept;
  [[nodiscard]] expected<void> disconnect() noexcept;

  /// For the reader of the count: a request is posted. Called by who posts.
  void count_post() noexcept { posted_.store(posted_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

private:
  friend class ia_child;
  ~ud_core() {
    while (address_node* n = dropped_.front()) n->unlink(), delete n;
  }
  void teardown() noexcept;
  void reap() noexcept;
  static void destroy(address_node& n) noexcept {
    if (n.ah) ibv_destroy_ah(std::exchange(n.ah, nullptr));
  }
  static constexpr child_kind kind_of_child = child_kind::connection; // goes with its endpoint
  static const child_type table;

  std::mutex mutex_; // after that of the endpoint
  ep_core* ep_ = nullptr;
  ref<pz_core> pz_;
  intrusive_list<address_node> held_;    // by an address handle of the consumer
  intrusive_list<address_node> dropped_; // but a send may be under way to it
  std::atomic<std::uint64_t> posted_{0};
};

inline constexpr child_type ud_core::table = type_for<ud_core>();

/// One attempt to get to know a peer: an rdma_cm_id for datagrams, on either side. The exchange is one question and one
/// answer; after it the id has done its work.
class ud_connection final : public connection_base {
public:
  explicit ud_connection(ref<ia_core> ia) noexcept : connection_base(std::move(ia), table) {
    timer_.fired = &on_timer;
    timer_.self = this;
  }

  // Active.
  [[nodiscard]] int start(ref<ud_core> of, const datagram_place& own, const ia_address& from, const ia_address& to,
                          timeout limit, std::span<const std::byte> data, const char*& verb) noexcept;
  // Passive.
  void adopt_request(rdma_cm_id* child, const cm_event& request) noexcept;
  [[nodiscard]] expected<void> accept(ep_core& with, std::span<const std::byte> data) noexcept;
  [[nodiscard]] expected<void> reject() noexcept;

  [[nodiscard]] const std::optional<datagram_target>& target() const noexcept { return target_; }
  [[nodiscard]] std::uint32_t peer_number() const noexcept { return peer_ ? peer_->qp_num : 0; }

private:
  friend class ia_child;
  ~ud_connection() = default;
  static constexpr child_kind kind_of_child = child_kind::connection;
  static const child_type table;
  [[nodiscard]] static constexpr child_type make_table() noexcept {
    child_type t = type_for<ud_connection>();
    t.on_event = [](connection_base& c, const cm_event& e) noexcept { static_cast<ud_connection&>(c).handle(e); };
    t.abandon = [](connection_base& c) noexcept { static_cast<ud_connection&>(c).refuse(); };
    return t;
  }
  void handle(const cm_event& e) noexcept;
  void established(const cm_event& e) noexcept;
  void over(record::kind what, int reason) noexcept;
  void refuse() noexcept;
  void teardown() noexcept {
    cancel_timer();
    destroy_id();
  }
  struct owned_timer : timer {
    ud_connection* self = nullptr;
  };
  static void on_timer(timer& t) noexcept {
    const ref<ud_connection> self(static_cast<owned_timer&>(t).self, adopt); // armed with a reference
    self->over(self->asked_ ? record::kind::timed_out : record::kind::unreachable, ETIMEDOUT);
  }
  void cancel_timer() noexcept {
    if (ia().reactor.cancel(timer_)) release();
  }

  ref<ud_core> of_;
  std::atomic<bool> over_{false};
  bool asked_ = false;                    // the request is out
  std::optional<datagram_target> target_; // written before the event that shows it
  std::optional<datagram_place> peer_;
  std::uint8_t out_size_ = 0;
  std::array<std::byte, datagram_header::size + max_datagram_data> out_{};
  owned_timer timer_;
};

inline constexpr child_type ud_connection::table = ud_connection::make_table();

/// Listens for datagram endpoints that want to get to know one of this side.
class ud_service final : public connection_base {
public:
  [[nodiscard]] static result<ref<ud_service>> create(const ref<ia_core>& ia, const ref<evd_core>& evd,
                                                      std::uint16_t port) noexcept;
  ud_service(ref<ia_core> ia, ref<evd_core> evd) noexcept
      : connection_base(std::move(ia), table), evd_(std::move(evd)) {
    evd_->users.fetch_add(1, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint16_t port() const noexcept { return local_.port(); }

private:
  friend class ia_child;
  ~ud_service() = default;
  static constexpr child_kind kind_of_child = child_kind::service_point;
  static const child_type table;
  [[nodiscard]] static constexpr child_type make_table() noexcept {
    child_type t = type_for<ud_service>();
    t.on_event = [](connection_base&, const cm_event&) noexcept {};
    t.on_request = [](connection_base& c, rdma_cm_id* child, const rdma_cm_event& e) noexcept {
      static_cast<ud_service&>(c).take_request(child, e);
    };
    return t;
  }
  void take_request(rdma_cm_id* child, const rdma_cm_event& e) noexcept;
  void teardown() noexcept {
    destroy_id();
    evd_->users.fetch_sub(1, std::memory_order_release);
  }
  ref<evd_core> evd_;
};

inline constexpr child_type ud_service::table = ud_service::make_table();

/// What a send needs of its destination.
struct raw_address {
  ibv_ah* ah = nullptr;
  const ud_core* owner = nullptr;
  std::uint32_t qp_num = 0;
  std::uint32_t qkey = 0;
};

/// The path of a send to an address: what ep_posting does for requests of connections.
struct ud_posting {
  template <std::size_t N>
  struct send {
    const send_request<N>& request;
    const raw_address& to;
  };

  /// One doorbell for all.
  template <std::size_t... N>
  [[nodiscard, gnu::always_inline]] static expected<void> post(ep_posting& ep, const send<N>&... s) noexcept {
    work_entry* const first = ep.sq_.next();
    if (!(ep.state_.load(std::memory_order_acquire) == ep_datagram && ep.sq_.room(first) >= sizeof...(N) &&
          (acceptable(ep, s) && ...) && !(s.request.quiet || ...))) [[unlikely]]
      return post_slowly(ep, kept<N>{s.request.copy(), s.to}...);
    return post_chain(ep, first, s...);
  }

private:
  template <std::size_t N>
  struct kept {
    send_request<N> request;
    raw_address to;
  };

  template <std::size_t N>
  [[nodiscard, gnu::always_inline]] static bool acceptable(const ep_posting& ep, const send<N>& s) noexcept {
    const send_request<N>& r = s.request;
    return r.data.simply_within(ep.own_zone_) && r.data.bytes() <= ep.max_message_ && s.to.owner == ep.ud_ &&
           (N <= 1 || r.data.count() <= ep.attributes_.max_request_iov) &&
           ((r.flags & IBV_SEND_INLINE) == 0 || r.data.bytes() <= ep.max_inline_);
  }
  template <std::size_t... N>
  [[nodiscard, gnu::always_inline]] static expected<void> post_chain(ep_posting& ep, work_entry* first,
                                                                     const send<N>&... s) noexcept {
    constexpr std::uint32_t n = sizeof...(N);
    std::array<ibv_send_wr, n> wr;
    std::tuple<posted_list<N>...> lists;
    work_entry* e = first;
    const auto add = [&]<std::size_t M>(ibv_send_wr& w, posted_list<M>& list, const send<M>& one) {
      const send_request<M>& r = one.request;
      e->posted.cookie = r.cookie;
      e->posted.length = static_cast<std::uint32_t>(r.data.bytes());
      e->posted.kind = quiet_if(r.quiet, kind_of_work(dto_operation::send_ud));
      w.wr_id = e->id();
      w.opcode = r.opcode;
      w.send_flags = r.flags;
      if (r.opcode == IBV_WR_SEND_WITH_IMM) w.imm_data = r.imm;
      w.wr.ud.ah = one.to.ah;
      w.wr.ud.remote_qpn = one.to.qp_num;
      w.wr.ud.remote_qkey = one.to.qkey;
      w.sg_list = list.from(r.data);
      w.num_sge = static_cast<int>(r.data.count());
      e = e->next;
    };
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (add(wr[I], std::get<I>(lists), s), ...);
      ((wr[I].next = I + 1 < n ? &wr[I] + 1 : nullptr), ...);
    }
    (std::make_index_sequence<n>());
    ep.sq_.set_next(e);
    ibv_send_wr* bad = wr.data(); // not every provider sets it
    const int err = ibv_post_send(ep.qp_, wr.data(), &bad);
    for (std::uint32_t i = 0; i < n; ++i) ep.ud_->count_post();
    if (err != 0) [[unlikely]]
      return ep.not_posted(err, wr.data(), bad, first);
    return success();
  }
  template <std::size_t... N>
  [[nodiscard, gnu::cold, gnu::noinline]] static expected<void> post_slowly(ep_posting& ep, kept<N>... s) noexcept {
    static constexpr const char* call = "ep.post";
    const ep_state now = ep.state();
    if (!ep.ud_ || (now != ep_datagram && now != ep_state::disconnected)) return ep.wrong_state(call);
    work_entry* const first = ep.sq_.next();
    if (ep.sq_.room(first) < sizeof...(N)) return ep.queue_full(call, 0);
    (s.request.data.tidy(), ...);
    error why;
    const auto fine = [&]<std::size_t M>(const kept<M>& k) {
      const send_request<M>& r = k.request;
      if (k.to.owner != ep.ud_)
        why = ep.at(error(return_type::protection_violation), call)
                  .hint("an address handle is of the endpoint that made it, and this is another or none: make one with "
                        "this endpoint");
      else if (r.data.bytes() > ep.max_message_)
        why = ep.at(error(return_type::length_error), call)
                  .hint("a datagram is one packet: it has at most max_message_size bytes, which is at most the MTU");
      else if (!r.data.within(ep.own_zone_) || !ep.within_limits(r) || (r.quiet && !ep.takes_quiet_requests()))
        why = ep.refuse(r, 0);
      else
        return true;
      return false;
    };
    if (!(fine(s) && ...)) return why;
    return post_chain(ep, first, send<N>{s.request, s.to}...);
  }
};

} // namespace dat::inline v0::detail

#include <dat/detail/ud_core_impl.hpp> // definitions
