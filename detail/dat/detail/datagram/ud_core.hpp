// The core of datagram endpoints: their addresses, and the exchange of addresses between two endpoints.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>
#include <dat/expected.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/adapter/path.hpp>
#include <dat/detail/base/big_endian.hpp>
#include <dat/detail/base/control_mutex.hpp>
#include <dat/detail/datagram/reply_cache.hpp>
#include <dat/detail/endpoint/core.hpp>

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

namespace dat { inline namespace v0 { namespace detail {

/// Largest private data of a request or a reply between datagram endpoints.
inline constexpr std::size_t max_datagram_data = 128;

/// The address to which datagrams for an endpoint are sent.
struct datagram_target {
  ibv_ah_attr path{};
  std::uint32_t qp_num = 0; ///< 0: unknown
  std::uint32_t qkey = datagram_qkey;
};

/// The header before the private data of a request. It names the sender, which the InfiniBand message does not: mark
/// (4), version (1), length of the private data (1), lid (2), number (4), key (4), gid (16).
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
  /// Empty when the peer's program does not use dat.
  [[nodiscard]] static std::optional<qp_place> read(std::span<const std::byte> data) noexcept {
    if (data.size() < size || std::memcmp(data.data(), mark.data(), mark.size()) != 0 || data[4] != version ||
        static_cast<std::size_t>(data[5]) > data.size() - size)
      return {};
    qp_place p;
    p.lid = get_be<std::uint16_t>(&data[6]);
    p.qp_num = get_be<std::uint32_t>(&data[8]) & 0xffffff;
    p.qkey = get_be<std::uint32_t>(&data[12]) & 0x7fffffff; // a Q_Key with the highest bit is privileged
    std::memcpy(p.gid.raw, &data[16], sizeof p.gid.raw);
    return p;
  }
};

/// An address handle of verbs. The device reads it until the last send that names it has completed, so the endpoint's
/// list keeps it until then.
struct address_node : list_node {
  std::atomic<ibv_ah*> ah{nullptr}; ///< any thread may end the endpoint, which makes it null
  std::uint64_t until = 0;          ///< number of requests that were posted when the owner dropped it
};

/// A multicast group that the endpoint's queue pair is attached to.
struct group_node : list_node {
  ibv_gid gid{};
  std::uint16_t lid = 0;
  ibv_qp* qp = nullptr; ///< while linked
};

/// The part that only datagram endpoints have. The endpoint and every address handle keep it.
class ud_core final : public ia_child {
public:
  [[nodiscard]] static result<ref<ep_core>> create_ep(const char* call, const ref<pz_core>& pz,
                                                      const ep_core::queues& evds, const ep_attributes& a) noexcept;
  explicit ud_core(ref<ia_core> ia, ref<pz_core> pz) noexcept : ia_child(std::move(ia), table), pz_(std::move(pz)) {}

  /// The datagram part of an endpoint that has one.
  [[nodiscard]] static ref<ud_core> of(const ep_core& ep) noexcept {
    return ref<ud_core>(static_cast<ud_core*>(ep.datagrams()));
  }
  /// The endpoint, unless it has ended.
  [[nodiscard]] ref<ep_core> endpoint() noexcept {
    const std::lock_guard lock(mutex_);
    return ep_ && ep_->try_add_ref() ? ref<ep_core>(ep_, adopt) : ref<ep_core>();
  }

  [[nodiscard]] result<address_node*> make_address(const char* call, const ibv_ah_attr& path,
                                                   const qos& quality) noexcept;
  void drop_address(address_node* node) noexcept;

  [[nodiscard]] expected<void> connect(const ref<ep_core>& ep, const ia_address& to, std::uint16_t port, timeout limit,
                                       std::span<const std::byte> data) noexcept;
  /// Queues an event of the connection stream, unless the endpoint has ended.
  void announce(record::kind what, ref<connection_base> source, int reason) noexcept;
  [[nodiscard]] expected<void> disconnect() noexcept;

  /// Attaches the endpoint's queue pair to a group. Returns 0 or an errno.
  [[nodiscard]] int attach(group_node& group) noexcept;
  void detach(group_node& group) noexcept;

  post_counter sent; ///< sends that the device has taken

  // Used by the table that ia_child::type_for makes.
  ~ud_core() {
    while (address_node* n = dropped_.pop_front()) delete n;
  }
  void teardown() noexcept;
  static constexpr child_kind kind_of_child = child_kind::connection; // ends with its endpoint

private:
  void reap() noexcept;
  static void requeue(ia_child& core, ibv_qp* to) noexcept;
  static void destroy(address_node& n) noexcept {
    if (ibv_ah* const ah = n.ah.exchange(nullptr)) ibv_destroy_ah(ah);
  }
  static const child_type table;

  control_mutex mutex_; // taken after the lock of the endpoint
  ep_core* ep_ = nullptr;
  ref<pz_core> pz_;
  intrusive_list<address_node> held_;    // owned by an address handle of the consumer
  intrusive_list<address_node> dropped_; // dropped, but a send may still use it
  intrusive_list<group_node> groups_;
};

inline constexpr child_type ud_core::table = type_for<ud_core>();

/// One exchange of addresses with a peer: an rdma_cm_id for datagrams, on either side. The exchange is one request and
/// one reply; afterwards the id has no use.
class ud_connection final : public connection_base {
public:
  explicit ud_connection(ref<ia_core> ia) noexcept : connection_base(std::move(ia), table) {
    timer_.run = &on_timer;
    timer_.self = this;
    answered_.request = this;
  }

  // Active.
  [[nodiscard]] int start(ref<ud_core> of, const qp_place& own, const ia_address& from, const ia_address& to,
                          timeout limit, std::span<const std::byte> data, const char*& verb) noexcept;
  // Passive.
  void adopt_request(rdma_cm_id* child, const cm_event& request, ref<reply_cache> answers,
                     const connection_base& listener) noexcept;
  std::uint16_t service_port = 0; ///< of the service that has the request
  [[nodiscard]] expected<void> accept(ep_core& with, std::span<const std::byte> data) noexcept;
  [[nodiscard]] expected<void> reject(std::span<const std::byte> data) noexcept;

  /// Whether the address in the header is the address that the request came from.
  [[nodiscard]] bool names_its_address() const noexcept;
  /// Refuses the request without caching the refusal.
  void drop_unanswered() noexcept {
    keep_no_answer();
    refuse();
  }
  void keep_no_answer() noexcept { answers_ = {}; }

  [[nodiscard]] const std::optional<datagram_target>& target() const noexcept { return target_; }
  [[nodiscard]] std::uint32_t peer_number() const noexcept { return peer_ ? peer_->qp_num : 0; }

  // Used by the table that ia_child::type_for makes.
  ~ud_connection() = default;
  void teardown() noexcept {
    cancel_timer();
    destroy_id();
  }
  static constexpr child_kind kind_of_child = child_kind::connection;

private:
  friend class reply_cache;
  static const child_type table;
  [[nodiscard]] static consteval child_type make_table() noexcept {
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
  /// Passive: accepts for the endpoint of that number, or refuses when `number` is 0. Returns 0 or errno.
  [[nodiscard]] int answer(std::uint32_t number, std::span<const std::byte> data) noexcept;
  /// Sends the decided answer through this id. Returns 0 or errno.
  [[nodiscard]] int answer_by(rdma_cm_id* id) const noexcept;
  /// Whether `other` repeats this request.
  [[nodiscard]] bool asks_like(const ud_connection& other) const noexcept;
  void refuse() noexcept;
  struct owned_timer : task {
    ud_connection* self = nullptr;
  };
  static void on_timer(task& t) noexcept {
    const ref<ud_connection> self(static_cast<owned_timer&>(t).self, adopt); // the task was armed with a reference
    self->over(self->asked_ ? record::kind::timed_out : record::kind::unreachable, ETIMEDOUT);
  }
  void cancel_timer() noexcept {
    if (ia().reactor.cancel(timer_)) release();
  }

  ref<ud_core> of_;
  std::atomic<bool> over_{false};
  bool asked_ = false;                    // the request has been sent
  std::optional<datagram_target> target_; // written before the event that shows it
  std::optional<qp_place> peer_;
  std::uint8_t out_size_ = 0;
  std::array<std::byte, datagram_header::size + max_datagram_data> out_{}; // the data of the request, or of the reply
  owned_timer timer_;
  ref<reply_cache> answers_; // passive: that of the service at which the peer repeats the request
  std::uint32_t answer_number_ = 0;
  answered answered_;
};

inline constexpr child_type ud_connection::table = ud_connection::make_table();

/// Listens for requests of datagram endpoints.
class ud_service final : public connection_base {
public:
  [[nodiscard]] static result<ref<ud_service>> create(const ref<ia_core>& ia, const ref<evd_core>& evd,
                                                      std::uint16_t port) noexcept;
  ud_service(ref<ia_core> ia, ref<evd_core> evd, ref<reply_cache> answers) noexcept
      : connection_base(std::move(ia), table), evd_(std::move(evd)), answers_(std::move(answers)) {
    evd_->users.fetch_add(1, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint16_t port() const noexcept { return local_.port(); }
  /// Passes a request to the service at another port of the ia.
  [[nodiscard]] static expected<void> hand_off(const ref<ud_connection>& request, std::uint16_t port) noexcept;

  // Used by the table that ia_child::type_for makes.
  ~ud_service() = default;
  void teardown() noexcept {
    if (other_family_) other_family_->end();
    destroy_id();
    evd_->users.fetch_sub(1, std::memory_order_release);
    answers_ = {}; // no request is being handled any longer
  }
  static constexpr child_kind kind_of_child = child_kind::datagram_service;

private:
  static const child_type table;
  [[nodiscard]] static consteval child_type make_table() noexcept {
    child_type t = type_for<ud_service>();
    t.on_event = [](connection_base&, const cm_event&) noexcept { return false; };
    t.on_request = [](connection_base& c, rdma_cm_id* child, const rdma_cm_event& e) noexcept {
      static_cast<ud_service&>(c).take_request(child, e);
    };
    return t;
  }
  void take_request(rdma_cm_id* child, const rdma_cm_event& e) noexcept;
  [[nodiscard]] expected<void> listen(const ia_address& where) noexcept;
  ref<evd_core> evd_;
  ref<reply_cache> answers_;     // shared with other_family_
  ref<ud_service> other_family_; // an id listens at one address: this object listens at the adapter's other address
};

inline constexpr child_type ud_service::table = ud_service::make_table();

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/datagram/ud_core.ipp>
#endif
