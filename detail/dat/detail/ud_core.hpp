// Behind datagram endpoints: their addresses, how they get to know each other, and the path of one send.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>
#include <dat/expected.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/core.hpp>
#include <dat/detail/port_place.hpp>
#include <dat/detail/ud_answers.hpp>
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

/// What precedes the private data of a request, since that message of InfiniBand has no place for who sends it:
/// mark (4), version (1), length of the private data (1), lid (2), number (4), key (4), gid (16).
struct datagram_header {
  static constexpr std::size_t size = 32;
  static constexpr std::array<std::byte, 4> mark{std::byte{'D'}, std::byte{'A'}, std::byte{'T'}, std::byte{'U'}};
  static constexpr std::byte version{1};

  static std::byte* write(const qp_place& from, std::size_t data_size, std::byte* to) noexcept {
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
  [[nodiscard]] static std::optional<qp_place> read(std::span<const std::byte> data) noexcept {
    if (data.size() < size || std::memcmp(data.data(), mark.data(), mark.size()) != 0 || data[4] != version ||
        static_cast<std::size_t>(data[5]) > data.size() - size)
      return {};
    qp_place p;
    p.lid = get_be<std::uint16_t>(&data[6]);
    p.qp_num = get_be<std::uint32_t>(&data[8]);
    p.qkey = get_be<std::uint32_t>(&data[12]);
    std::memcpy(p.gid.raw, &data[16], sizeof p.gid.raw);
    return p;
  }
};

/// An address handle of verbs. The device reads it until the last send that names it is done, so it outlives its
/// owner in the endpoint's list until then.
struct address_node : list_node {
  ibv_ah* ah = nullptr;
  std::uint64_t until = 0; ///< requests that were posted when it was dropped
};

/// A multicast group that the endpoint's queue pair is attached to.
struct group_node : list_node {
  ibv_gid gid{};
  std::uint16_t lid = 0;
  ibv_qp* qp = nullptr; ///< while linked
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

  /// Attaches the endpoint's queue pair to a group. Returns 0 or an errno.
  [[nodiscard]] int attach(group_node& group) noexcept;
  void detach(group_node& group) noexcept;

  /// For the reader of the count: a request is posted. Called by who posts.
  void count_post() noexcept { posted_.store(posted_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

private:
  friend class ia_child;
  ~ud_core() {
    while (address_node* n = dropped_.pop_front()) delete n;
  }
  void teardown() noexcept;
  void reap() noexcept;
  static void requeue(ud_core& self, ibv_qp* to) noexcept;
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
  intrusive_list<group_node> groups_;
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
    answered_.request = this;
  }

  // Active.
  [[nodiscard]] int start(ref<ud_core> of, const qp_place& own, const ia_address& from, const ia_address& to,
                          timeout limit, std::span<const std::byte> data, const char*& verb) noexcept;
  // Passive.
  void adopt_request(rdma_cm_id* child, const cm_event& request, ref<ud_answers> answers,
                     const connection_base& listener) noexcept;
  [[nodiscard]] expected<void> accept(ep_core& with, std::span<const std::byte> data) noexcept;
  [[nodiscard]] expected<void> reject(std::span<const std::byte> data) noexcept;

  [[nodiscard]] const std::optional<datagram_target>& target() const noexcept { return target_; }
  [[nodiscard]] std::uint32_t peer_number() const noexcept { return peer_ ? peer_->qp_num : 0; }

private:
  friend class ia_child;
  friend class ud_answers;
  ~ud_connection() = default;
  static constexpr child_kind kind_of_child = child_kind::connection;
  static const child_type table;
  [[nodiscard]] static constexpr child_type make_table() noexcept {
    child_type t = type_for<ud_connection>();
    t.on_event = [](connection_base& c, const cm_event& e) noexcept {
      static_cast<ud_connection&>(c).handle(e);
      return false;
    };
    t.abandon = [](connection_base& c) noexcept { static_cast<ud_connection&>(c).refuse(); };
    return t;
  }
  void handle(const cm_event& e) noexcept;
  void established(const cm_event& e) noexcept;
  void over(record::kind what, int reason) noexcept;
  /// Passive: yes, by the endpoint of that number, or no, for which it is 0. Returns 0 or errno.
  [[nodiscard]] int answer(std::uint32_t number, std::span<const std::byte> data) noexcept;
  /// The answer that was decided on, by this id. Returns 0 or errno.
  [[nodiscard]] int answer_by(rdma_cm_id* id) const noexcept;
  /// Whether the other one is of the same question, asked again.
  [[nodiscard]] bool asks_like(const ud_connection& other) const noexcept;
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
  std::optional<qp_place> peer_;
  std::uint8_t out_size_ = 0;
  std::array<std::byte, datagram_header::size + max_datagram_data> out_{}; // the question, or the answer
  owned_timer timer_;
  ref<ud_answers> answers_; // passive
  std::uint32_t answer_number_ = 0;
  answered answered_;
};

inline constexpr child_type ud_connection::table = ud_connection::make_table();

/// Listens for datagram endpoints that want to get to know one of this side.
class ud_service final : public connection_base {
public:
  [[nodiscard]] static result<ref<ud_service>> create(const ref<ia_core>& ia, const ref<evd_core>& evd,
                                                      std::uint16_t port) noexcept;
  ud_service(ref<ia_core> ia, ref<evd_core> evd, ref<ud_answers> answers) noexcept
      : connection_base(std::move(ia), table), evd_(std::move(evd)), answers_(std::move(answers)) {
    evd_->users.fetch_add(1, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint16_t port() const noexcept { return local_.port(); }

private:
  friend class ia_child;
  ~ud_service() = default;
  static constexpr child_kind kind_of_child = child_kind::datagram_service;
  static const child_type table;
  [[nodiscard]] static constexpr child_type make_table() noexcept {
    child_type t = type_for<ud_service>();
    t.on_event = [](connection_base&, const cm_event&) noexcept { return false; };
    t.on_request = [](connection_base& c, rdma_cm_id* child, const rdma_cm_event& e) noexcept {
      static_cast<ud_service&>(c).take_request(child, e);
    };
    return t;
  }
  void take_request(rdma_cm_id* child, const rdma_cm_event& e) noexcept;
  [[nodiscard]] expected<void> listen(const ia_address& where) noexcept;
  void teardown() noexcept {
    if (twin_) twin_->end();
    destroy_id();
    evd_->users.fetch_sub(1, std::memory_order_release);
    answers_ = {}; // no request is being taken any more
  }
  ref<evd_core> evd_;
  ref<ud_answers> answers_; // also the twin's
  ref<ud_service> twin_;    // an id listens on one address: this is the one on the adapter's other address
};

inline constexpr child_type ud_service::table = ud_service::make_table();

/// What a send needs of its destination: what verbs wants to know, as it stands in a work request, and whose it is.
struct raw_address {
  ibv_ah* ah = nullptr;
  std::uint32_t qp_num = 0;
  std::uint32_t qkey = 0;
  ud_core* owner = nullptr;
};
using ud_part = decltype(ibv_send_wr::wr.ud);
static_assert(sizeof(ud_part) == 16 && offsetof(ud_part, remote_qpn) == offsetof(raw_address, qp_num) &&
              offsetof(ud_part, remote_qkey) == offsetof(raw_address, qkey));

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
    if constexpr (sizeof...(N) == 1 && ((N == 1) && ...)) {
      return post_one(ep, s...);
    } else {
      work_entry* const first = ep.sq_.next();
      if (!(ep.state_.load(std::memory_order_acquire) == ep_datagram && ep.sq_.has_room(first, sizeof...(N)) &&
            (acceptable(ep, s) && ...) && !(s.request.quiet || ...))) [[unlikely]]
        return post_slowly(ep, kept<N>{s.request.copy(), s.to}...);
      return post_chain(ep, first, s...);
    }
  }

private:
  // One message of one segment, which most are: in a prepared request, as those of connections. Where datagrams may not
  // be sent, none may be received, and the null device stands in for both.
  [[nodiscard, gnu::always_inline]] static expected<void> post_one(ep_posting& ep, const send<1>& s) noexcept {
    const send_request<1>& r = s.request;
    ep_posting::prepared_request& to = ep.prepared_[ep_posting::prepared_requests - 1];
    work_entry* const e = ep.sq_.next();
    fill(to.wr, s);
    copy_triplet(&to.sge, r.data.list());
    if (!ep.sq_.taken(e) && acceptable(ep, s) && !r.quiet) [[likely]] {
      stage(to.wr, *e, r);
      ep.sq_.set_next(e->next);
      s.to.owner->count_post();
      const int err = ibv_post_send(ep.recv_to_.load(std::memory_order_acquire), &to.wr, &ep.bad_send_);
      if (err == 0) [[likely]]
        return success();
      return ep_posting::relay(not_posted<1>(ep, err));
    }
    const ep_posting::refused_post why{r.data.zone().value(), r.cookie.value(), 0, r.operation, r.quiet};
    return ep_posting::relay(not_acceptable<1>(ep, why, s.to.owner));
  }
  template <std::size_t One>
  [[nodiscard, gnu::cold, gnu::noinline]] static expected<void>
  not_acceptable(ep_posting& ep, ep_posting::refused_post why, ud_core* owner) noexcept {
    const ep_posting::prepared_request& p = ep.prepared_[ep_posting::prepared_requests - 1];
    const ud_part& to = p.wr.wr.ud;
    return post_slowly(ep, kept<One>{ep_posting::in_full<One>(p, why), {to.ah, to.remote_qpn, to.remote_qkey, owner}});
  }
  /// By the device, or the null device, which tells that the state has to be looked at.
  template <std::size_t One>
  [[nodiscard, gnu::cold, gnu::noinline]] static expected<void> not_posted(ep_posting& ep, int err) noexcept {
    work_entry* const e = ep.sq_.before(ep.sq_.next());
    ibv_send_wr* const wr = &ep.prepared_[ep_posting::prepared_requests - 1].wr;
    if (err != refused) return ep.not_posted(err, wr, wr, e);
    ep.sq_.set_next(e);
    // Of its zone, as it was acceptable.
    return not_acceptable<One>(ep, {ep.own_zone_.value(), e->posted.cookie.value(), 0, dto_operation::send, false},
                               ep.ud_);
  }
  /// What the request says and what the entry remembers. The chain and the segments are the caller's.
  template <std::size_t N>
  [[gnu::always_inline]] static void fill(ibv_send_wr& w, const send<N>& one) noexcept {
    one.request.fill(w);
    copy_triplet(&w.wr.ud, &one.to);
  }
  template <std::size_t N>
  [[gnu::always_inline]] static void stage(ibv_send_wr& w, work_entry& e, const send_request<N>& r) noexcept {
    e.posted.cookie = dat::cookie(r.cookie.value());
    e.posted.set(static_cast<std::uint32_t>(r.data.bytes()), quiet_if(r.quiet, kind_of_work(dto_operation::send_ud)));
    w.wr_id = e.id();
  }
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
      fill(w, one);
      stage(w, *e, one.request);
      w.sg_list = list.from(one.request.data);
      w.num_sge = static_cast<int>(one.request.data.count());
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
    if (!ep.sq_.has_room(first, sizeof...(N))) return ep.queue_full(call, 0);
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
