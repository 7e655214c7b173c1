// Posting: the path of every DTO from the consumer to the device, and the part of an endpoint that it touches.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ep_attributes.hpp>
#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <dat/detail/basics.hpp>
#include <dat/detail/handle.hpp>
#include <dat/detail/null_device.hpp>
#include <dat/detail/work_request.hpp>
#include <dat/detail/work_ring.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <tuple>
#include <utility>

namespace dat::inline v0::detail {

class ud_core;

inline constexpr const char* quiet_hint = "unsignalled operations need an endpoint whose attribute for that queue, "
                                          "recv_completion or request_completion, is unsignalled";

inline constexpr const char* offset_hint = "data is copied during the post from addresses of this process; a region "
                                           "that is addressed from 0 has none: post it without inlined()";

/// What `state` holds once the endpoint is gone: no DAT state, every call answers invalid_handle.
inline constexpr ep_state ep_dead = static_cast<ep_state>(255);
/// What it holds while a datagram endpoint may send: connected to the consumer, but to nobody for a request that names
/// no address.
inline constexpr ep_state ep_datagram = static_cast<ep_state>(254);
[[nodiscard]] constexpr bool is_up(ep_state s) noexcept { return s == ep_state::connected || s == ep_datagram; }

/// Whether a zone or an evd is missing, and with them the queue pair.
[[nodiscard]] constexpr bool is_unconfigured(ep_state s) noexcept {
  return s == ep_state::unconfigured_unconnected || s == ep_state::unconfigured_reserved ||
         s == ep_state::unconfigured_passive || s == ep_state::unconfigured_tentative;
}

/// The base of every endpoint. By itself it is an endpoint that is gone: such a one stands in where a handle names
/// none.
class ep_posting {
public:
  constexpr ep_posting() noexcept = default;
  ep_posting(const ep_posting&) = delete;
  ep_posting& operator=(const ep_posting&) = delete;

  [[nodiscard]] ep_state state() const noexcept { return state_.load(std::memory_order_acquire); }
  [[nodiscard]] const ep_attributes& attributes() const noexcept { return attributes_; }
  [[nodiscard]] std::uint32_t number() const noexcept { return number_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t max_inline() const noexcept { return max_inline_; }
  [[nodiscard]] std::uint32_t max_message() const noexcept { return max_message_; }
  [[nodiscard]] bool invalidates() const noexcept { return invalidates_; }
  [[nodiscard]] std::uint8_t read_depth() const noexcept { return read_depth_; }
  [[nodiscard]] std::uint8_t atomic_depth() const noexcept { return atomic_depth_; }
  [[nodiscard]] bool takes_quiet_requests() const noexcept {
    return attributes_.request_completion == waking::unsignalled;
  }
  /// Its receives come from a shared queue.
  [[nodiscard]] bool shares_receives() const noexcept { return shares_; }
  [[nodiscard]] common_zone zone() const noexcept { return own_zone_; }
  /// What only a datagram endpoint has; null for others.
  [[nodiscard]] ud_core* datagrams() const noexcept { return ud_; }
  /// The zone of segments that need no other check: none where the consumer has set a limit of its own.
  [[nodiscard]] common_zone simple_zone() const noexcept { return zones_[1]; }
  [[nodiscard]] ibv_qp* qp() const noexcept { return qp_; }
  [[nodiscard]] error at(error e, const char* call) const noexcept { return e.at(call, object_kind::ep, number()); }

  /// Requests, with one doorbell. Inlined into the caller, where what the request is is known: what remains of it are
  /// the few stores that verbs needs, and the checks.
  template <std::size_t... N>
  [[nodiscard, gnu::always_inline]] expected<void> post(const send_request<N>&... r) noexcept {
    if ((r.quiet || ...)) [[unlikely]] // known when compiling, nearly always
      return post_slowly(r.copy()...);
    if constexpr (sizeof...(N) <= prepared_requests && ((N == 1) && ...)) {
      return post_prepared(r...);
    } else if constexpr (sizeof...(N) == 1 && ((N <= prepared_segments) && ...)) {
      return post_list(r...);
    } else {
      work_entry* const first = sq_.next();
      if (!(sq_.has_room(first, sizeof...(N)) && (simply_acceptable(r) && ...))) [[unlikely]]
        return post_slowly(r.copy()...); // copies, so that the originals need not be in memory
      return post_chain(send_to_.load(std::memory_order_acquire), first, r...);
    }
  }

  /// The requests of a batch, from `from` to before `end`: staged before, but for what only this endpoint knows.
  template <class Staged>
  [[nodiscard]] expected<void> post_staged(Staged* from, Staged* end) noexcept {
    if (!takes_requests()) [[unlikely]]
      return wrong_state("ep.post(batch)");
    work_entry* const first = sq_.next();
    if (!sq_.has_room(first, static_cast<std::size_t>(end - from))) [[unlikely]]
      return queue_full("ep.post(batch)", 0);
    work_entry* e = first;
    for (Staged* s = from; s != end; ++s, e = e->next) {
      e->posted = s->posted;
      s->wr.wr_id = e->id();
    }
    return submit(qp_, &from->wr, first, e);
  }

  /// As many requests of one segment as are wanted at run time, which `make` gives one after the other.
  template <class Make>
  [[nodiscard, gnu::always_inline]] expected<void> post_made(std::size_t n,
                                                             Make& make) noexcept(noexcept(make(std::size_t{}))) {
    work_entry* e = sq_.next();
    if (!sq_.has_room(e, n)) [[unlikely]]
      return relay(no_room_for_all());
    refused_post why;
    prepared_request* const end = prepared_ + prepared_requests;
    for (std::size_t i = 0; i != n;) {
      std::size_t group = smaller(n - i, prepared_requests);
      prepared_request* const first = end - group;
      prepared_request* at = first;
      prepared_request* odd = nullptr;
      const auto add = [&](prepared_request & to, std::size_t nth) __attribute__((always_inline)) {
        const auto made = make(nth);
        const auto& r = request_access::of(made);
        write_down<false>(to, r);
        if (r.quiet || !simply_acceptable(r)) [[unlikely]] {
          why = {r.data.zone().value(), r.cookie.value(), r.remote.length, r.operation, r.quiet};
          odd = &to;
          return false;
        }
        stage(to.wr, *e, r);
        e = e->next;
        return true;
      };
      const auto add_each = [&]<std::size_t... K>(std::index_sequence<K...>, prepared_request * to, std::size_t nth)
          __attribute__((always_inline)) {
        return (add(to[K], nth + K) && ...);
      };
      for (;;) {
        // Several at a time, which saves most of the counting.
        for (std::size_t rounds = group / made_at_once;
             rounds != 0 && add_each(std::make_index_sequence<made_at_once>(), at, i); --rounds)
          at += made_at_once, i += made_at_once;
        while (!odd && at != end && add(*at, i)) ++at, ++i;
        if (!odd) [[likely]]
          break;
        i += static_cast<std::size_t>(odd - at);
        if (!made_in_place(*odd, *e, why)) break;
        at = std::exchange(odd, nullptr) + 1;
        group = static_cast<std::size_t>(end - at);
        e = e->next;
        ++i;
      }
      if (odd) [[unlikely]] {
        auto r = made_slowly(*first, *odd, e, why);
        if (!r) return made_not_posted(r.assume_error(), i - static_cast<std::size_t>(odd - first));
        ++i;
        e = sq_.next();
        continue;
      }
      sq_.set_next(e);
      bad_send_ = &first->wr; // not every provider sets it
      if (const int err = ibv_post_send(send_to_.load(std::memory_order_acquire), &first->wr, &bad_send_))
          [[unlikely]] {
        const auto all = static_cast<std::size_t>(end - first);
        if (auto r = group_not_posted(err, all); !r) return made_not_posted(r.assume_error(), i - all);
      }
    }
    return success();
  }

  template <std::size_t... N>
  [[nodiscard, gnu::always_inline]] expected<void> post(const recv_request<N>&... r) noexcept {
    if ((r.quiet || ...)) [[unlikely]] // known when compiling, nearly always
      return post_slowly(r.copy()...);
    if constexpr (sizeof...(N) == 1 && ((N == 1) && ...)) {
      return post_prepared(r...);
    } else {
      work_entry* const first = rq_.next();
      if (!(rq_.has_room(first, sizeof...(N)) && (simply_acceptable(r) && ...))) [[unlikely]]
        return post_slowly(r.copy()...);
      return post_chain(recv_to_.load(std::memory_order_acquire), first, r...);
    }
  }

  /// Whether the endpoint's limits admit a request with a tidy list; the conditions that only run time knows
  /// (uDAPL 2.0 §6.6.20).
  template <std::size_t N>
  [[nodiscard]] bool acceptable(const send_request<N>& r) const noexcept {
    return r.data.within(own_zone_) && r.data.bytes() <= max_message_ && within_limits(r) &&
           (!r.quiet || takes_quiet_requests());
  }
  template <std::size_t N>
  [[nodiscard]] bool acceptable(const recv_request<N>& r) const noexcept {
    return r.gather.within(own_zone_) && within_limits(r) &&
           (!r.quiet || attributes_.recv_completion == waking::unsignalled);
  }
  /// The error for a request that is not acceptable.
  template <std::size_t N>
  [[nodiscard, gnu::cold, gnu::noinline]] error refuse(const send_request<N>& r, std::uint32_t index) const noexcept {
    return refusal(r.data.count(), r.data.bytes(), r.data.within(own_zone_), r, index);
  }
  template <std::size_t N>
  [[nodiscard, gnu::cold, gnu::noinline]] error refuse(const recv_request<N>& r) const noexcept {
    if (!r.gather.within(own_zone_)) return wrong_zone("ep.post(recv)");
    if (within_limits(r))
      return at(error(return_type::invalid_parameter, return_subtype::arg5), "ep.post(recv)").hint(quiet_hint);
    return at(error(return_type::invalid_parameter, return_subtype::arg2), "ep.post(recv)")
        .hint("more segments than the endpoint's max_recv_iov");
  }

protected:
  friend struct ud_posting;
  friend struct trusting_post;
  friend class watch;
  ~ep_posting() = default;

  // A work request of one segment that is kept ready.
  struct prepared_request {
    ibv_send_wr wr;
    ibv_sge sge;
  };
  // How many of them an endpoint has, for the posts of one call; and segments for the posts of a list.
  static constexpr std::size_t prepared_requests = 16;
  static constexpr std::size_t prepared_segments = message_parts;
  // How many of those that a callable makes are made between two looks at the count. More than that, and g++ 12 has
  // them in memory first.
#if defined(__clang__)
  static constexpr std::size_t made_at_once = 8;
#else
  static constexpr std::size_t made_at_once = 4;
#endif

  // The same for any list; false also for one that is to be tidied first.
  template <std::size_t N>
  [[nodiscard, gnu::always_inline]] bool simply_acceptable(const send_request<N>& r) const noexcept {
    // The zone also says that no segment is longer than its part of a message, how many there may be, and whether the
    // peer serves reads and atomics.
    if constexpr (N <= 1)
      return r.data.simply_within(zone_for(r)) && has_lengths(r, r.data.few_bytes());
    else if constexpr (N <= prepared_segments)
      return r.data.simply_within(zones_[r.data.count()]) && simply_within_limits(r, r.data.few_bytes());
    else
      return r.data.simply_within(zones_[1]) && r.data.bytes() <= max_message_ && within_limits(r);
  }
  template <std::size_t N>
  [[nodiscard, gnu::always_inline]] bool simply_acceptable(const recv_request<N>& r) const noexcept {
    return r.gather.simply_within(zones_[1]) && within_limits(r);
  }
  template <std::size_t N>
  [[nodiscard, gnu::always_inline]] bool within_limits(const send_request<N>& r) const noexcept {
    return (N <= 1 || r.data.count() <= attributes_.max_request_iov) && simply_within_limits(r, r.data.bytes());
  }
  /// But for the number of segments, which have so many bytes.
  template <std::size_t N>
  [[nodiscard, gnu::always_inline]] bool simply_within_limits(const send_request<N>& r,
                                                              std::uint64_t bytes) const noexcept {
    if (r.opcode == IBV_WR_RDMA_READ && read_depth_ == 0) return false;
    if (r.is_atomic() && atomic_depth_ == 0) return false;
    return has_lengths(r, bytes);
  }
  /// But for reads and atomics that the peer does not serve, too.
  template <std::size_t N>
  [[nodiscard, gnu::always_inline]] bool has_lengths(const send_request<N>& r, std::uint64_t bytes) const noexcept {
    if (r.one_sided() && bytes > r.remote.length) return false;
    if (r.opcode == IBV_WR_SEND_WITH_INV && !invalidates_) return false;
    if (r.is_atomic() && bytes != word_size) return false; // of the remote word all was looked at before
    return (r.flags & IBV_SEND_INLINE) == 0 || bytes <= max_inline_;
  }
  /// What stands in for simple_zone() for one segment of this request.
  template <std::size_t N>
  [[nodiscard, gnu::always_inline]] common_zone zone_for(const send_request<N>& r) const noexcept {
    return r.opcode == IBV_WR_RDMA_READ ? read_zone_ : r.is_atomic() ? atomic_zone_ : zones_[N];
  }
  template <std::size_t N>
  [[nodiscard, gnu::always_inline]] bool within_limits(const recv_request<N>& r) const noexcept {
    return N <= 1 || r.gather.count() <= attributes_.max_recv_iov;
  }

  [[nodiscard, gnu::always_inline]] bool takes_requests() const noexcept {
    return state_.load(std::memory_order_acquire) == ep_state::connected || flushes_requests();
  }

  // A few requests of one segment each, which most are: in work requests that keep what never changes. They are written
  // before the checks, so that what these refuse can be looked at there, and the request itself need not be in memory.
  template <std::size_t... One>
  [[nodiscard, gnu::always_inline]] expected<void> post_prepared(const send_request<One>&... r) noexcept {
    constexpr std::size_t n = sizeof...(One);
    prepared_request* const at = prepared_ + (prepared_requests - n); // the last ones: their chain ends where it should
    work_entry* e = sq_.next();
    std::size_t i = 0;
    // Lengths are looked at first: what was compared need not be kept for those who ask why, who are told a length of
    // the peer's memory that is too short or is not.
    if constexpr (n == 1)
      if (!(has_lengths(r, r.data.few_bytes()), ...)) [[unlikely]] {
#if defined(__clang__)
        asm volatile(""); // or clang does what both ways begin with before the look
#endif
        (write_down<true>(*at, r), ...);
        const std::uint64_t fits = ((r.data.few_bytes() > r.remote.length) || ...) ? 0 : ~std::uint64_t{0};
        return told(one_refused((r.data.zone().value(), ...), (r.cookie.value(), ...), fits, (r.operation, ...)));
      }
    if (((prepare<n == 1>(at[i], e, r) && (++i, e = e->next, true)) && ...)) [[likely]] {
      sq_.set_next(e);
      if constexpr (n > 1) bad_send_ = &at->wr; // not every provider sets it
      const int err = ibv_post_send(send_to_.load(std::memory_order_acquire), &at->wr, &bad_send_);
      if (err == 0) [[likely]]
        return success();
      return told(post_failed(err, n));
    } else if constexpr (n == 1) {
      return told(
          one_refused((r.data.zone().value(), ...), (r.cookie.value(), ...), ~std::uint64_t{0}, (r.operation, ...)));
    } else {
      return relay(post_slowly(r.copy()...));
    }
  }
  template <bool Alone>
  [[nodiscard, gnu::always_inline]] bool prepare(prepared_request& to, work_entry* e,
                                                 const send_request<1>& r) noexcept {
    write_down<Alone>(to, r);
    if (sq_.taken(e) || !(Alone ? r.data.simply_within(zone_for(r)) : simply_acceptable(r))) [[unlikely]]
      return false;
    stage(to.wr, *e, r);
    return true;
  }
  template <bool Alone>
  [[gnu::always_inline]] static void write_down(prepared_request& to, const send_request<1>& r) noexcept {
    copy_triplet(&to.sge, r.data.list());
    r.fill<Alone>(to.wr);
  }
  // What an unusual way out gives, read where it was kept: an error that is returned has an address, which takes a
  // register from those who post in a loop.
  [[nodiscard, gnu::always_inline]] expected<void> told(bool posted) const noexcept {
    if (posted) return success();
    return why_not_;
  }
  [[nodiscard]] bool keep(const expected<void>& r) noexcept;
  // The same for others. Clang 14 keeps in memory what a call out of line may write to: so that is not the
  // result of the post itself.
  [[gnu::always_inline]] static expected<void> relay(expected<void> r) noexcept {
    if (r) return success();
    return r.assume_error();
  }
  // What a prepared request that was not posted said, besides what stands in it.
  struct refused_post {
    std::uint64_t zone; // no values from the start: g++ would store them in every post
    std::uint64_t cookie;
    std::uint64_t remote_length;
    dto_operation operation;
    bool quiet;
  };
  template <std::size_t One = 1> // templates from here on, so that only who posts pays for compiling it
  [[nodiscard, gnu::cold, gnu::noinline]] bool
  one_refused(std::uint64_t zone, std::uint64_t cookie, std::uint64_t remote_length, dto_operation operation) noexcept {
    return keep(
        post_slowly(in_full<One>(prepared_[prepared_requests - 1], {zone, cookie, remote_length, operation, false})));
  }
  template <std::size_t One = 1>
  [[nodiscard, gnu::cold, gnu::noinline]] bool post_failed(int err, std::size_t n) noexcept {
    return keep(group_not_posted<One>(err, n));
  }
  template <std::size_t One = 1>
  [[nodiscard, gnu::cold, gnu::noinline]] expected<void> group_not_posted(int err, std::size_t n) noexcept {
    ibv_send_wr* const wr = &prepared_[prepared_requests - n].wr;
    work_entry* first = sq_.next();
    for (std::size_t i = 0; i < n; ++i) first = sq_.before(first);
    return not_posted(err, wr, n > 1 ? bad_send_ : wr, first);
  }
  // Of those that a callable makes.
  template <std::size_t One = 1>
  [[nodiscard, gnu::cold, gnu::noinline]] expected<void> no_room_for_all() const noexcept {
    if (!takes_requests()) return wrong_state("ep.post_n");
    return queue_full("ep.post_n", 0);
  }
  template <std::size_t One = 1>
  [[nodiscard, gnu::cold, gnu::noinline]] error made_not_posted(const error& why, std::size_t before) const noexcept {
    return at(why.index(static_cast<std::uint32_t>(before) + why.index()), "ep.post_n");
  }
  /// One that needs another look: whether it can be posted as it stands there.
  template <std::size_t One = 1>
  [[nodiscard, gnu::cold, gnu::noinline]] bool made_in_place(prepared_request& odd, work_entry& e,
                                                             refused_post why) noexcept {
    send_request<One> r = in_full<One>(odd, why);
    if ((r.flags & IBV_SEND_INLINE) != 0 && r.data.zone().has_offsets()) return false;
    r.data.tidy();
    if (r.data.count() != 1 || !acceptable(r)) return false;
    stage(odd.wr, e, r);
    return true;
  }
  /// One that is refused or has nothing to transfer, after those that are made and not posted yet, which go first.
  template <std::size_t One = 1>
  [[nodiscard, gnu::cold, gnu::noinline]] expected<void> made_slowly(prepared_request& first, prepared_request& odd,
                                                                     work_entry* end, refused_post why) noexcept {
    const auto before = static_cast<std::uint32_t>(&odd - &first);
    send_request<One> r = in_full<One>(odd, why);
    if (before != 0) {
      ibv_send_wr& last = (&odd - 1)->wr;
      work_entry* const from = sq_.next();
      last.next = nullptr;
      auto posted = submit(send_to_.load(std::memory_order_acquire), &first.wr, from, end);
      last.next = &odd.wr;
      if (!posted) return posted;
    }
    auto posted = post_slowly(r);
    if (!posted) return posted.assume_error().index(before);
    return success();
  }
  // One request of several segments.
  template <std::size_t N>
  [[nodiscard, gnu::always_inline]] expected<void> post_list(const send_request<N>& r) noexcept {
    work_entry* const e = sq_.next();
    if (sq_.taken(e) || !simply_acceptable(r)) [[unlikely]]
      return relay(post_slowly(r.copy()));
    r.data.copy_to(list_sge_);
    list_wr_.num_sge = static_cast<int>(r.data.count());
    r.fill(list_wr_);
    stage(list_wr_, *e, r);
    sq_.set_next(e->next);
    if (const int err = ibv_post_send(send_to_.load(std::memory_order_acquire), &list_wr_, &bad_send_)) [[unlikely]]
      return relay(list_not_posted(err));
    return success();
  }
  template <std::size_t One>
  [[nodiscard, gnu::always_inline]] expected<void> post_prepared(const recv_request<One>& r) noexcept {
    work_entry* const e = rq_.next();
    copy_triplet(&recv_sge_, r.gather.list());
    if (!rq_.taken(e) && simply_acceptable(r)) [[likely]] {
      stage(recv_wr_, *e, r);
      rq_.set_next(e->next);
      const int err = ibv_post_recv(recv_to_.load(std::memory_order_acquire), &recv_wr_, &bad_recv_);
      if (err == 0) [[likely]] {
        if (!peek(up_)) [[unlikely]]
          came_late();
        return success();
      }
      return relay(recv_failed<One>(err));
    }
    return relay(recv_refused<One>(r.gather.zone().value(), r.cookie.value()));
  }
  /// What a prepared request says, and what it does not.
  template <std::size_t One>
  [[nodiscard]] static send_request<One> in_full(const prepared_request& p, const refused_post& why) noexcept {
    const ibv_send_wr& wr = p.wr;
    send_request<One> r;
    // Nothing in the list, or nothing that transfers, has no zone.
    if (why.zone != 0) r.data.push(p.sge, common_zone::of(why.zone));
    r.cookie = dat::cookie(why.cookie);
    r.opcode = wr.opcode;
    if (r.is_atomic()) {
      const auto& a = wr.wr.atomic;
      r.remote = {a.remote_addr, why.remote_length, a.rkey};
      r.compare_add = a.compare_add;
      r.swap = a.swap;
    } else {
      r.remote = {wr.wr.rdma.remote_addr, why.remote_length, wr.wr.rdma.rkey};
    }
    r.flags = wr.send_flags;
    r.operation = why.operation;
    r.imm = wr.imm_data; // or the key, in the same place
    r.quiet = why.quiet;
    return r;
  }
  // Several, or with several segments.
  template <std::size_t... N>
  [[nodiscard, gnu::always_inline]] expected<void> post_chain(ibv_qp* qp, work_entry* first,
                                                              const send_request<N>&... r) noexcept {
    // What is a function of its own takes addresses, and what has an address is copied to memory: so all is inlined.
    constexpr std::uint32_t n = sizeof...(N);
    std::array<ibv_send_wr, n> wr;
    std::tuple<posted_list<N>...> lists;
    work_entry* e = first;
    const auto add = [&]<std::size_t M>(ibv_send_wr & w, posted_list<M> & list, const send_request<M>& request)
        __attribute__((always_inline)) {
      stage(w, *e, request);
      request.fill(w);
      w.sg_list = list.from(request.data);
      w.num_sge = static_cast<int>(request.data.count());
      e = e->next;
    };
    [&]<std::size_t... I>(std::index_sequence<I...>) __attribute__((always_inline)) {
      (add(wr[I], std::get<I>(lists), r), ...);
      ((wr[I].next = I + 1 < n ? &wr[I] + 1 : nullptr), ...);
    }
    (std::make_index_sequence<n>());
    return submit(qp, wr.data(), first, e);
  }
  template <std::size_t... N>
  [[nodiscard, gnu::always_inline]] expected<void> post_chain(ibv_qp* qp, work_entry* first,
                                                              const recv_request<N>&... r) noexcept {
    constexpr std::uint32_t n = sizeof...(N);
    std::array<ibv_recv_wr, n> wr;
    std::tuple<posted_list<N>...> lists;
    work_entry* e = first;
    const auto add = [&]<std::size_t M>(ibv_recv_wr & w, posted_list<M> & list, const recv_request<M>& request)
        __attribute__((always_inline)) {
      stage(w, *e, request);
      w.sg_list = list.from(request.gather);
      w.num_sge = static_cast<int>(request.gather.count());
      e = e->next;
    };
    [&]<std::size_t... I>(std::index_sequence<I...>) __attribute__((always_inline)) {
      (add(wr[I], std::get<I>(lists), r), ...);
      ((wr[I].next = I + 1 < n ? &wr[I] + 1 : nullptr), ...);
    }
    (std::make_index_sequence<n>());
    return submit(qp, wr.data(), first, e);
  }

  /// What could not be posted at once: made tidy and checked in the order that errors are reported in.
  template <std::size_t... N>
  [[nodiscard, gnu::cold, gnu::noinline]] expected<void> post_slowly(send_request<N>... r) noexcept {
    const bool bad_inline = ((((r.flags & IBV_SEND_INLINE) != 0) && r.data.zone().has_offsets()) || ...);
    (r.data.tidy(), ...);
    if (!takes_requests()) return wrong_state("ep.post");
    if (bad_inline) return at({return_type::invalid_parameter, return_subtype::arg5}, "ep.post").hint(offset_hint);
    work_entry* const first = sq_.next();
    if (!sq_.has_room(first, sizeof...(N))) return queue_full("ep.post", 0);
    error why;
    if (!((acceptable(r) || (why = refuse(r, 0), false)) && ...)) return why;
    return post_chain(qp_, first, r...);
  }
  template <std::size_t... N>
  [[nodiscard, gnu::cold, gnu::noinline]] expected<void> post_slowly(recv_request<N>... r) noexcept {
    (r.gather.tidy(), ...);
    const ep_state now = state();
    if (now == ep_dead || is_unconfigured(now)) return wrong_state("ep.post(recv)");
    if (shares_) return receives_elsewhere();
    work_entry* const first = rq_.next();
    if (!rq_.has_room(first, sizeof...(N))) return recv_queue_full();
    error why;
    if (!((acceptable(r) || (why = refuse(r), false)) && ...)) return why;
    return post_chain(is_up(now) ? qp_ : nothing.qp(), first, r...);
  }

  // What the entry remembers, and what the request says. The chain and the segments are the caller's.
  template <std::size_t N>
  [[gnu::always_inline]] static void stage(ibv_send_wr& wr, work_entry& e, const send_request<N>& r) noexcept {
    // Member by member: two or three stores, where a copy of the whole takes more.
    e.posted.cookie = dat::cookie(r.cookie.value());
    const auto kind = quiet_if(r.quiet, kind_of_work(r.operation));
    if (r.is_atomic())
      e.posted.set_word(kind);
    else
      e.posted.set(static_cast<std::uint32_t>(r.data.few_bytes()), kind);
    wr.wr_id = e.id();
  }
  template <std::size_t N>
  [[gnu::always_inline]] static void stage(ibv_recv_wr& wr, work_entry& e, const recv_request<N>& r) noexcept {
    e.posted.cookie = r.cookie; // its length comes with the completion
    if (r.quiet) [[unlikely]]
      e.posted.kind = quiet_if(true, e.ring().usual());
    wr.wr_id = e.id();
  }
  /// Posts requests whose entries are those from `first` to before `end`.
  [[nodiscard, gnu::always_inline]] expected<void> submit(ibv_qp* qp, ibv_send_wr* wr, work_entry* first,
                                                          work_entry* end) noexcept {
    sq_.set_next(end);
    ibv_send_wr* bad = wr; // not every provider sets it
    if (const int err = ibv_post_send(qp, wr, &bad)) [[unlikely]]
      return not_posted(err, wr, bad, first);
    return success();
  }
  [[nodiscard, gnu::always_inline]] expected<void> submit(ibv_qp* qp, ibv_recv_wr* wr, work_entry* first,
                                                          work_entry* end) noexcept {
    rq_.set_next(end);
    ibv_recv_wr* bad = wr;
    if (const int err = ibv_post_recv(qp, wr, &bad)) [[unlikely]]
      return not_posted(err, wr, bad, first);
    if (!peek(up_)) [[unlikely]]
      came_late();
    return success();
  }
  [[nodiscard, gnu::cold, gnu::noinline]] expected<void> list_not_posted(int err) noexcept {
    return not_posted(err, &list_wr_, &list_wr_, sq_.before(sq_.next())); // found again: not kept in the fast path
  }
  template <std::size_t One>
  [[nodiscard, gnu::cold, gnu::noinline]] expected<void> recv_refused(std::uint64_t zone,
                                                                      std::uint64_t cookie) noexcept {
    recv_request<One> r;
    if (zone != 0) r.gather.push(recv_sge_, common_zone::of(zone));
    r.cookie = dat::cookie(cookie);
    return post_slowly(r);
  }
  template <std::size_t One>
  [[nodiscard, gnu::cold, gnu::noinline]] expected<void> recv_failed(int err) noexcept {
    return not_posted(err, &recv_wr_, &recv_wr_, rq_.before(rq_.next()));
  }
  /// What the device refused, or the null device, which tells that the state has to be looked at.
  [[nodiscard, gnu::cold]] expected<void> not_posted(int err, ibv_send_wr* wr, const ibv_send_wr* bad,
                                                     work_entry* first) noexcept;
  [[nodiscard, gnu::cold]] expected<void> not_posted(int err, ibv_recv_wr* wr, const ibv_recv_wr* bad,
                                                     work_entry* first) noexcept;

  // Errors, out of line so that the fast path stays small.
  [[nodiscard]] bool flushes_requests() const noexcept { return state() == ep_state::disconnected && !ud_; }
  [[nodiscard, gnu::cold]] error wrong_state(const char* call) const noexcept;
  [[nodiscard, gnu::cold]] error queue_full(const char* call, std::uint32_t index) const noexcept;
  [[nodiscard, gnu::cold]] error recv_queue_full() const noexcept;
  [[nodiscard, gnu::cold]] error receives_elsewhere() const noexcept;
  [[nodiscard, gnu::cold]] error wrong_zone(const char* call) const noexcept;
  template <std::size_t N>
  [[nodiscard]] error refusal(std::uint32_t count, std::uint64_t bytes, bool zone_ok, const send_request<N>& r,
                              std::uint32_t index) const noexcept;

  void flush_queues() noexcept;
  /// A receive was posted without a connection: some devices do not flush what comes after the flush.
  [[gnu::cold, gnu::noinline]] void came_late() noexcept {
    if (state() == ep_state::disconnected) flush_queues();
  }

  void set_state(ep_state s) noexcept {
    // Where nothing may be posted, or not without further thought, the null device stands in.
    const bool up = is_up(s);
    send_to_.store((up || s == ep_state::disconnected) && !ud_ ? qp_ : nothing.qp(), std::memory_order_release);
    recv_to_.store(up ? qp_ : nothing.qp(), std::memory_order_release);
    store(up_, up);
    state_.store(s, std::memory_order_release);
  }

  // What a post needs, together.
  std::atomic<ep_state> state_{ep_dead};
  bool up_ = false;     // is_up(state_)
  bool shares_ = false; // receives come from a shared queue, and rq_ has no room
  std::uint8_t read_depth_ = 0;
  std::uint8_t atomic_depth_ = 0; // as read_depth_; 0 also on an adapter without atomics
  bool invalidates_ = false;      // the adapter can invalidate a peer's window
  std::uint32_t max_message_ = 0;
  std::uint32_t max_inline_ = 0;
  // Of segments that need no other check, by their number; see simply_acceptable.
  common_zone zones_[prepared_segments + 1] = {};
  common_zone read_zone_; // of one segment; of none where depths are 0
  common_zone atomic_zone_;
  std::atomic<ibv_qp*> send_to_{nothing.qp()}; // where the fast path posts
  std::atomic<ibv_qp*> recv_to_{nothing.qp()};
  work_ring sq_;
  work_ring rq_;
  prepared_request prepared_[prepared_requests] = {}; // a chain
  ibv_send_wr list_wr_{};
  ibv_sge list_sge_[prepared_segments] = {};
  ibv_recv_wr recv_wr_{};
  ibv_sge recv_sge_{};
  ibv_send_wr* bad_send_ = nullptr; // what verbs wants to have, and nobody reads
  ibv_recv_wr* bad_recv_ = nullptr;
  ibv_qp* qp_ = nullptr;
  common_zone own_zone_;
  error why_not_ = empty_handle("ep.post", return_subtype::handle_ep); // of the last request that was refused; see told
  ud_core* ud_ = nullptr;                                              // the endpoint keeps it
  std::atomic<std::uint32_t> number_{0}; // asked for from any thread, also while reset replaces qp_
  ep_attributes attributes_{};
};

inline constinit struct no_endpoint final : ep_posting { constexpr no_endpoint() noexcept = default; } no_ep;

/// Of no endpoint, what is kept stays as it is: any thread may try to post to it.
inline bool ep_posting::keep(const expected<void>& r) noexcept {
  if (!r && this != &no_ep) why_not_ = r.assume_error();
  return r.has_value();
}

} // namespace dat::inline v0::detail
