// The queues of an endpoint as the post path sees them: requests of a connection, sends of datagrams, receives.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <dat/detail/posting/ep_posting.hpp>
#include <dat/detail/posting/post_path.hpp>
#include <dat/detail/request/work_request.hpp>
#include <dat/detail/verbs/extended_post.hpp>
#include <dat/detail/work/call_class.hpp>
#include <dat/detail/work/trace_points.hpp>
#include <dat/detail/work/work_ring.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace dat { inline namespace v0 { namespace detail {

/// The next `N` entries of a ring.
template <std::size_t N>
class ring_slots {
public:
  explicit ring_slots(work_ring& ring) noexcept : ring_(ring), first_(ring.next()), next_(first_) {}
  [[nodiscard]] bool has_room() const noexcept { return ring_.has_room(first_, N); }
  /// Returns no list, because the entries of a chain are the last ones of the ring.
  [[nodiscard]] work_entry* const* entries() const noexcept { return nullptr; }
  [[nodiscard, gnu::always_inline]] work_entry* take() noexcept {
    work_entry* const e = next_;
    next_ = e->next;
    return e;
  }
  void commit() noexcept { ring_.set_next(next_); }

private:
  work_ring& ring_;
  work_entry* first_;
  work_entry* next_;
};

/// The name of a call, for its errors.
struct ep_post {
  static constexpr const char* name = "ep.post";
};
struct ep_post_n {
  static constexpr const char* name = "ep.post_n";
};
struct ep_post_batch {
  static constexpr const char* name = "ep.post(batch)";
};

/// Stores the values of a request in its work entry.
template <std::size_t N>
[[gnu::always_inline]] inline void note_work(posted_work& to, const send_request<N>& r) noexcept {
  to.cookie = r.cookie;
  to.set(static_cast<std::uint32_t>(r.data.bytes()), no_notify_if(r.no_notify, kind_of_work(r.operation())));
}

/// Requests of a connection.
template <class Call>
class basic_request_queue {
public:
  using work_request = ibv_send_wr;
  static consteval bool keeps_link(std::size_t room) noexcept { return 1 <= room && room <= ep_posting::wide; }

  explicit basic_request_queue(ep_posting& ep) noexcept : ep_(ep) {}

  template <std::size_t N>
  [[nodiscard, gnu::always_inline]] bool accepts(const send_request<N>& r) const noexcept {
    return ep_.accepts(r);
  }
  [[nodiscard, gnu::always_inline]] bool takes_in_list(const request_header& r) const noexcept {
    return ep_.takes_in_list(r);
  }
  [[nodiscard]] bool has_room(std::size_t n) const noexcept {
    return ep_.requests().has_room(ep_.requests().next(), n);
  }
  template <std::size_t Room>
  [[nodiscard]] auto* kept_link() const noexcept {
    if constexpr (Room == 1)
      return ep_.link();
    else
      return ep_.wide_link();
  }
  template <std::size_t N>
  [[nodiscard]] ring_slots<N> reserve() const noexcept {
    return ring_slots<N>(ep_.requests());
  }
  [[nodiscard]] work_ring& ring() const noexcept { return ep_.requests(); }
  template <std::size_t N>
  [[gnu::always_inline]] void fill(ibv_send_wr& wr, work_entry& e, const send_request<N>& r) const noexcept {
    r.fill(wr);
    note_work(e.posted, r);
  }
  [[nodiscard]] ibv_send_wr** refused() const noexcept { return ep_.refused_request(); }
  [[gnu::always_inline]] int submit(ibv_send_wr* wr, ibv_send_wr** bad, std::size_t n) const noexcept {
    if constexpr (trace_build) trace_points::post_last(ep_.number(), ring(), wr, n);
    return ibv_post_send(ep_.send_to(), wr, bad);
  }

  [[nodiscard]] expected<void> supports(const request_header& r) const noexcept { return ep_.check_support(call, r); }
  [[nodiscard]] expected<void> usable(std::size_t n) const noexcept {
    if (!ep_.takes_requests()) return ep_.wrong_state(call);
    if (!has_room(n)) return ep_.queue_full(call, 0);
    return success();
  }
  [[nodiscard]] error no_room() const noexcept {
    return ep_.takes_requests() ? ep_.queue_full(call, 0) : ep_.wrong_state(call);
  }
  template <std::size_t N>
  [[nodiscard]] expected<void> check(const send_request<N>& r, zone_tag zone) const noexcept {
    return ep_.check(call, r, r.data, zone);
  }
  [[nodiscard]] expected<void> not_posted(int err, ibv_send_wr* wr, ibv_send_wr* bad,
                                          work_entry* const*) const noexcept {
    std::uint32_t taken = 0;
    return ep_.not_posted(call, ep_.takes_requests(), err, wr, bad, taken);
  }

  /// The call in its class, for checked builds.
  [[nodiscard]] class_member enter() const noexcept {
    return class_member(ep_.is_null() ? nullptr : ep_.request_calls(), call, "ep", ep_.number(), false);
  }
  [[nodiscard]] error overlaps() const noexcept { return ep_.overlaps(call); }
  static constexpr const char* call_name = Call::name;
  static constexpr const char* object_name = "ep";
  [[nodiscard]] std::uint32_t number() const noexcept { return ep_.number(); }

protected:
  static constexpr const char* call = call_name;
  ep_posting& ep_;
};
using request_queue = basic_request_queue<ep_post>;

/// Atomic writes and flushes, which only the functions of an extended queue pair post.
class extended_queue : public request_queue {
public:
  using request_queue::request_queue;
  static consteval bool keeps_link(std::size_t) noexcept { return false; }
  [[nodiscard]] bool accepts(const send_request<0>& r) const noexcept {
    return (r.is_flush() ? accepts_flush(r) : accepts_atomic_write(r)) &&
           (!r.no_notify || ep_.takes_no_notify_requests());
  }
  void fill(ibv_send_wr& wr, work_entry& e, const send_request<0>& r) const noexcept {
    wr.opcode = r.opcode;
    wr.send_flags = r.flags;
    wr.wr.atomic.remote_addr = r.remote.address;
    wr.wr.atomic.compare_add = r.is_flush() ? r.remote.length : r.compare_add;
    wr.wr.atomic.swap = r.swap;
    wr.wr.atomic.rkey = r.remote.key;
    e.posted.cookie = r.cookie;
    e.posted.set(r.is_flush() ? 0 : word_size, no_notify_if(r.no_notify, kind_of_work(r.operation())));
  }
  [[nodiscard]] int submit(ibv_send_wr* wr, ibv_send_wr** bad, std::size_t n) const noexcept {
    if constexpr (trace_build) trace_points::post_last(ep_.number(), ring(), wr, n);
    ibv_qp* const qp = ep_.send_to();
    return qp == ep_.qp() ? post_extended(qp, *wr) : ibv_post_send(qp, wr, bad);
  }

private:
  [[nodiscard]] bool accepts_atomic_write(const request_header& r) const noexcept {
    return ep_.extended_ops().includes(extended_op::atomic_write) && r.remote.length >= word_size &&
           r.remote.address % word_size == 0;
  }
  [[nodiscard]] bool accepts_flush(const request_header& r) const noexcept {
    return ep_.extended_ops().includes(extended_op::flush) && ep_.has_reads() &&
           (r.covers_region() || (r.remote.length != 0 && r.remote.length <= longest_flush));
  }
};

/// The queue for the requests of one post, `Usual` for those that verbs posts as a chain.
template <class Usual, class... D>
struct queue_of {
  static constexpr bool alone = (is_posted_alone<D> || ...);
  static_assert(!alone || sizeof...(D) == 1,
                "dat: verbs posts an atomic write or a flush by itself: post it in a call of its own");
  using type = std::conditional_t<alone, extended_queue, Usual>;
};
template <class Usual, class... D>
using queue_for = typename queue_of<Usual, D...>::type;

/// Requests of a connection without the checks of zones, lengths and limits.
class unchecked_request_queue : public request_queue {
public:
  using request_queue::request_queue;
  template <std::size_t N>
  [[nodiscard]] bool accepts(const send_request<N>& r) const noexcept {
    return (N != 1 || r.data.count() == 1) && (!r.no_notify || ep_.takes_no_notify_requests());
  }
};

/// The requests of a batch.
class batch_queue : public basic_request_queue<ep_post_batch> {
public:
  using basic_request_queue::accepts;
  using basic_request_queue::basic_request_queue;
  /// Whether sends and writes of one segment can be posted as they are.
  [[nodiscard]] bool accepts(zone_tag zone, std::uint64_t bytes) const noexcept { return ep_.accepts(zone, bytes); }
  [[nodiscard]] bool has_immediate() const noexcept { return ep_.has_immediate(); }
  /// Checks a request of a batch. It is no argument of the call, so the error names none.
  template <std::size_t N>
  [[nodiscard]] expected<void> check(const send_request<N>& r, zone_tag zone) const noexcept {
    auto ok = basic_request_queue::check(r, zone);
    if (ok || ok.assume_error().type() != return_type::invalid_parameter) return ok;
    return ep_.at(error(return_type::invalid_parameter), call).hint(ok.assume_error().hint().data()); // a literal
  }
};

/// Receives of an endpoint's own queue.
class recv_queue {
public:
  using work_request = ibv_recv_wr;
  static consteval bool keeps_link(std::size_t room) noexcept { return room == 1; }

  explicit recv_queue(ep_posting& ep) noexcept : ep_(ep) {}

  template <std::size_t N>
  [[nodiscard, gnu::always_inline]] bool accepts(const recv_request<N>& r) const noexcept {
    return ep_.accepts(r);
  }
  template <std::size_t N>
  [[nodiscard]] ring_slots<N> reserve() const noexcept {
    return ring_slots<N>(ep_.receives());
  }
  [[nodiscard]] work_ring& ring() const noexcept { return ep_.receives(); }
  template <std::size_t>
  [[nodiscard]] auto* kept_link() const noexcept {
    return ep_.link_of_receive();
  }
  template <std::size_t N>
  [[gnu::always_inline]] void fill(ibv_recv_wr&, work_entry& e, const recv_request<N>& r) const noexcept {
    e.posted.cookie = r.cookie; // its length comes with the completion
    if (r.no_notify) [[unlikely]]
      e.posted.kind = no_notify_if(true, ep_.receives().usual());
  }
  [[nodiscard]] ibv_recv_wr** refused() const noexcept { return ep_.refused_receive(); }
  [[gnu::always_inline]] int submit(ibv_recv_wr* wr, ibv_recv_wr** bad, std::size_t n) const noexcept {
    if constexpr (trace_build) trace_points::post_last(ep_.number(), ring(), wr, n);
    const int err = ibv_post_recv(ep_.recv_to(), wr, bad);
    if (err == 0) [[likely]]
      ep_.flush_if_down();
    return err;
  }

  [[nodiscard]] expected<void> usable(std::size_t n) const noexcept {
    const ep_state now = ep_.state();
    if (now == ep_dead || (is_unconfigured(now) && ep_.shares_receives())) return ep_.wrong_state(call);
    if (ep_.shares_receives()) return ep_.no_receives_here(call);
    if (!ep_.receives().has_room(ep_.receives().next(), n)) return ep_.recv_queue_full(call);
    ep_.begin_recv_checks();
    return success();
  }
  [[nodiscard]] error no_room() const noexcept {
    const auto ok = usable(0);
    return ok ? ep_.recv_queue_full(call) : ok.assume_error();
  }
  template <std::size_t N>
  [[nodiscard]] expected<void> check(const recv_request<N>& r, zone_tag zone) const noexcept {
    return ep_.check(call, r.no_notify, r.data, zone);
  }
  template <std::size_t N>
  void shorten(recv_request<N>& r) const noexcept {
    ep_.shorten(r);
  }
  [[nodiscard]] expected<void> not_posted(int err, ibv_recv_wr* wr, ibv_recv_wr* bad,
                                          work_entry* const*) const noexcept {
    return ep_.not_posted(call, err, wr, bad);
  }

  /// The call in its class, for checked builds.
  [[nodiscard]] class_member enter() const noexcept {
    return class_member(ep_.is_null() ? nullptr : ep_.recv_calls(), call, "ep", ep_.number(), false);
  }
  [[nodiscard]] error overlaps() const noexcept { return ep_.overlaps(call); }
  static constexpr const char* call_name = "ep.post(recv)";
  static constexpr const char* object_name = "ep";
  [[nodiscard]] std::uint32_t number() const noexcept { return ep_.number(); }

protected:
  static constexpr const char* call = call_name;
  ep_posting& ep_;
};

/// Receives without the checks of zones and limits. They are not cut to max_message_size.
class unchecked_recv_queue : public recv_queue {
public:
  using recv_queue::recv_queue;
  template <std::size_t N>
  [[nodiscard]] bool accepts(const recv_request<N>& r) const noexcept {
    return (N != 1 || r.data.count() == 1) && !r.no_notify;
  }
};

/// Replaces the endpoint's counter in an address that no endpoint created.
inline constinit post_counter no_counter;

/// The address of a datagram for verbs, and the endpoint that created it.
struct raw_address {
  ibv_ah* ah = nullptr;
  std::uint32_t qp_num = 0;
  std::uint32_t qkey = 0;
  const post_counter* owner = &no_counter;
};
static_assert(offsetof(raw_address, qp_num) == 8 && offsetof(raw_address, qkey) == 12 &&
              offsetof(ibv_send_wr, wr.ud.remote_qpn) == offsetof(ibv_send_wr, wr.ud.ah) + 8 &&
              offsetof(ibv_send_wr, wr.ud.remote_qkey) == offsetof(ibv_send_wr, wr.ud.ah) + 12);

template <std::size_t N>
struct datagram_request : send_request<N> {
  raw_address to;
};

/// Sends of a datagram endpoint.
class datagram_queue : public request_queue {
public:
  using request_queue::request_queue;

  template <std::size_t N>
  [[nodiscard, gnu::always_inline]] bool accepts(const datagram_request<N>& r) const noexcept {
    return r.to.owner == ep_.datagram_counter() && ep_.accepts(r);
  }
  template <std::size_t N>
  [[gnu::always_inline]] void fill(ibv_send_wr& wr, work_entry& e, const datagram_request<N>& r) const noexcept {
    r.fill(wr);
    copy_16(&wr.wr.ud, &r.to);
    e.posted.cookie = r.cookie;
    e.posted.set(static_cast<std::uint32_t>(r.data.bytes()),
                 no_notify_if(r.no_notify, kind_of_work(dto_operation::send_ud)));
  }
  /// Sends and receives of datagrams are allowed in the same states: the null device replaces the queue pair for both.
  [[gnu::always_inline]] int submit(ibv_send_wr* wr, ibv_send_wr** bad, std::size_t n) const noexcept {
    if constexpr (trace_build) trace_points::post_last(ep_.number(), ring(), wr, n);
    const int err = ibv_post_send(ep_.recv_to(), wr, bad);
    if (err == 0) [[likely]]
      ep_.datagram_counter()->add(static_cast<std::uint32_t>(n));
    return err;
  }

  [[nodiscard]] expected<void> usable(std::size_t n) const noexcept {
    if (!ep_.takes_datagrams()) return ep_.wrong_state(call);
    if (!has_room(n)) return ep_.queue_full(call, 0);
    return success();
  }
  [[nodiscard]] error no_room() const noexcept {
    return ep_.takes_datagrams() ? ep_.queue_full(call, 0) : ep_.wrong_state(call);
  }
  template <std::size_t N>
  [[nodiscard]] expected<void> check(const datagram_request<N>& r, zone_tag zone) const noexcept {
    if (r.to.owner != ep_.datagram_counter())
      return ep_.at(error(return_type::protection_violation), call)
          .hint(
              "An address handle is only for the endpoint that made it, and this one is empty or of another endpoint: "
              "make one with this endpoint.");
    return ep_.check(call, r, r.data, zone);
  }
  [[nodiscard]] expected<void> not_posted(int err, ibv_send_wr* wr, ibv_send_wr* bad,
                                          work_entry* const*) const noexcept {
    std::uint32_t taken = 0;
    auto posted = ep_.not_posted(call, ep_.takes_datagrams(), err, wr, bad, taken);
    if (taken != 0) ep_.datagram_counter()->add(taken);
    return posted;
  }
};

#ifdef DAT_SEPARATE_COMPILATION
// The rare parts of a post of one operation with one segment are compiled once, in ep_posting.ipp.
extern template error no_room(request_queue) noexcept;
extern template error no_room(recv_queue) noexcept;
extern template expected<void> not_posted(request_queue, int, ibv_send_wr*, ibv_send_wr*, work_entry* const*) noexcept;
extern template expected<void> not_posted(recv_queue, int, ibv_recv_wr*, ibv_recv_wr*, work_entry* const*) noexcept;
extern template expected<void> kept_not_posted<1>(request_queue, int) noexcept;
extern template expected<void> kept_not_posted<1>(recv_queue, int) noexcept;
extern template expected<void> post_checked(request_queue, send_request<1>) noexcept;
extern template expected<void> post_checked(recv_queue, recv_request<1>) noexcept;
#endif

}}} // namespace dat::v0::detail
