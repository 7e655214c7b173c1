// Data transfer operations that can be posted to an endpoint.
//
// Each type describes one operation as a value: it is created on the stack, without an allocation, posted by
// `ep::post`, and may be posted again (a prepared DTO). The memory that it names must stay registered and unchanged
// until its completion has been taken from the evd. The object itself may end as soon as `post` returns.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/cookie.hpp>
#include <dat/iov.hpp>
#include <dat/segment.hpp>
#include <dat/status.hpp>

#include <dat/detail/request/work_request.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {
template <class T, template <std::size_t> class D>
inline constexpr bool is_some = false;
template <std::size_t N, template <std::size_t> class D>
inline constexpr bool is_some<D<N>, D> = true;
// An argument that names no memory, in the place of memory.
template <class S, template <std::size_t> class D>
concept no_memory_for = !names_local<S> && !is_some<std::remove_cvref_t<S>, D>;
template <class S, class R>
concept no_transfer_with = !names_local<S> || !names_remote<R>;

/// The properties that every request (send, RDMA) has. Its members are members of dat::send and the other requests.
///
/// Members return the object itself, so they chain: `dat::send{out}.cookie(7).solicited()`.
template <class Self, std::size_t N>
class request {
public:
  static constexpr std::size_t max_segments = N;

  /// The completion event returns the cookie. Any 64-bit value or pointer; it need not be unique (uDAPL 2.0 §6.6.20
  /// user_cookie).
  Self& cookie(dat::cookie c) & noexcept { return wr_.cookie = c, self(); }
  Self&& cookie(dat::cookie c) && noexcept { return wr_.cookie = c, std::move(self()); }

  /// Requests no event on success; a failure is still reported (DAT_COMPLETION_SUPPRESS_FLAG). Verbs calls such a
  /// request unsignaled. Its place in the queue becomes free when a later completion of this endpoint's requests is
  /// taken from the evd, so every queue needs an unsuppressed request from time to time.
  Self& suppress_completion() & noexcept { return wr_.suppress_completion(), self(); }
  Self&& suppress_completion() && noexcept { return wr_.suppress_completion(), std::move(self()); }

  /// Its completion wakes no waiting thread (DAT_COMPLETION_UNSIGNALLED_FLAG). It is queued like any other, and taken
  /// with the next event that wakes, or when the wait is over. It needs the attribute `request_completion` of the
  /// endpoint to be `completion_notification::selective`, otherwise `post` returns `invalid_parameter`. (In verbs,
  /// "unsignaled" means no completion at all: see `suppress_completion`.)
  Self& suppress_notification() & noexcept { return wr_.no_notify = true, self(); }
  Self&& suppress_notification() && noexcept { return wr_.no_notify = true, std::move(self()); }

  /// The request does not start before all earlier RDMA reads and atomics of this endpoint are done
  /// (DAT_COMPLETION_BARRIER_FENCE_FLAG).
  Self& fence() & noexcept { return wr_.set(send_flag::fence), self(); }
  Self&& fence() && noexcept { return wr_.set(send_flag::fence), std::move(self()); }

protected:
  request() noexcept = default;
  send_request<N> wr_;

private:
  friend struct request_access;
  Self& self() noexcept { return static_cast<Self&>(*this); }
};

/// The properties of requests that carry local data to the peer.
template <class Self, std::size_t N>
class outward_request : public request<Self, N> {
public:
  /// Sends 32 additional bits, unchanged from memory; the completion of the peer's receive has them (IB extensions §2,
  /// immediate data). Between hosts of different byte orders the consumer converts them: `immediate(htole32(n))` here,
  /// `le32toh(e.immediate())` there. On an RDMA write this consumes one receive of the peer.
  Self& immediate(std::uint32_t value) & noexcept { return this->wr_.immediate(value), self(); }
  Self&& immediate(std::uint32_t value) && noexcept { return this->wr_.immediate(value), std::move(self()); }

  /// The adapter copies the data during `post`, so that the memory may be reused afterwards. `post` refuses a DTO of
  /// more than `max_inline` bytes of the endpoint with `length_error`.
  Self& inlined() & noexcept { return this->wr_.set(send_flag::inlined), self(); }
  Self&& inlined() && noexcept { return this->wr_.set(send_flag::inlined), std::move(self()); }

protected:
  using request<Self, N>::request;
  /// The completion of the matching receive of the peer notifies (DAT_COMPLETION_SOLICITED_WAIT_FLAG).
  Self& solicit() noexcept { return this->wr_.set(send_flag::solicited), self(); }

private:
  Self& self() noexcept { return static_cast<Self&>(*this); }
};

}}} // namespace dat::v0::detail

namespace dat { inline namespace v0 {

/// Sends a message to the peer's next receive (uDAPL 2.0 §6.6.20 dat_ep_post_send). The memory needs `local_read`.
///
///     ep.post(dat::send{out});            // one segment or lmr
///     ep.post(dat::send{iov});            // several
///     ep.post(dat::send{}.cookie(1));     // an empty message
template <std::size_t N>
class send : public detail::outward_request<send<N>, N> {
public:
  send() noexcept { this->wr_.start(dto_operation::send); }
  template <detail::names_memory S>
  explicit send(S&& from) noexcept { // NOLINT(bugprone-forwarding-reference-overload): names_memory excludes send
    static_assert(detail::readable<S>, "dat: send needs memory registered with dat::local_read");
    static_assert(detail::outlives_call<S>, "dat: the lmr must outlive the send: pass an lvalue, not a temporary");
    this->wr_.start(dto_operation::send, from);
  }
  /// Catch-all: turns a wrong argument into a readable diagnostic.
  template <detail::no_memory_for<send> S, class... More>
  explicit send(S&&, More&&...) noexcept {
    static_assert(detail::is_local<S>, "dat: send takes an lmr, a segment or a dat::iov: register the memory first, by "
                                       "pz.register_memory; unwrap what is an expected, by DAT_TRY or value()");
  }
  template <mem_priv P>
  explicit send(const iov<N, P>& from) noexcept {
    static_assert(includes(P, mem_priv::local_read), "dat: send needs memory registered with dat::local_read");
    this->wr_.start_list(dto_operation::send, from);
  }
  /// The completion of the matching receive at the peer notifies (DAT_COMPLETION_SOLICITED_WAIT_FLAG).
  send& solicited() & noexcept { return this->solicit(); }
  send&& solicited() && noexcept { return std::move(this->solicit()); }
};
send()->send<0>;
template <detail::no_memory_for<send> S, class... More>
send(S&&, More&&...) -> send<1>;
template <detail::names_memory S>
send(S&&) -> send<1>;
template <std::size_t N, mem_priv P>
send(const iov<N, P>&) -> send<N>;

/// Writes local memory to the peer's memory without the peer's participation (uDAPL 2.0 §6.6.25
/// dat_ep_post_rdma_write). Local memory needs `local_read`, the remote segment `remote_write`. With `.immediate()` the
/// peer gets one receive completion after all data is in place.
template <std::size_t N>
class rdma_write : public detail::outward_request<rdma_write<N>, N> {
public:
  template <detail::names_memory S, detail::names_remote R>
  rdma_write(S&& from, const R& to) noexcept {
    static_assert(detail::readable<S>, "dat: rdma_write reads memory registered with dat::local_read");
    static_assert(detail::outlives_call<S>, "dat: the lmr must outlive the rdma_write: pass an lvalue");
    static_assert(detail::remotely_writable<R>, "dat: rdma_write needs a remote segment with dat::remote_write");
    this->wr_.start(dto_operation::rdma_write, from);
    this->wr_.target(to);
  }
  /// Catch-all: turns a wrong argument into a readable diagnostic.
  template <class R, detail::no_transfer_with<R> S>
  rdma_write(S&&, const R&) noexcept {
    static_assert(detail::is_local<S>,
                  "dat: rdma_write takes local memory first, an lmr, a segment or a dat::iov, and then a "
                  "remote segment; unwrap what is an expected, by DAT_TRY or value()");
    static_assert(detail::is_remote<std::remove_cvref_t<R>>,
                  "dat: rdma_write takes local memory first, and then a remote segment: one that the "
                  "peer has sent, read by remote_segment::from_wire");
  }
  template <mem_priv P, detail::names_remote R>
  rdma_write(const iov<N, P>& from, const R& to) noexcept {
    static_assert(includes(P, mem_priv::local_read), "dat: rdma_write reads memory registered with dat::local_read");
    static_assert(detail::remotely_writable<R>, "dat: rdma_write needs a remote segment with dat::remote_write");
    this->wr_.start_list(dto_operation::rdma_write, from);
    this->wr_.target(to);
  }
  /// As `immediate`, and the completion of the consumed receive at the peer notifies. (A plain RDMA write has no
  /// receive to solicit.)
  rdma_write& solicited_immediate(std::uint32_t value) & noexcept { return this->solicit().immediate(value); }
  rdma_write&& solicited_immediate(std::uint32_t value) && noexcept {
    return std::move(this->solicit().immediate(value));
  }
};
template <detail::names_memory S, detail::names_remote R>
rdma_write(S&&, const R&) -> rdma_write<1>;
template <class R, detail::no_transfer_with<R> S>
rdma_write(S&&, const R&) -> rdma_write<1>;
template <std::size_t N, mem_priv P, detail::names_remote R>
rdma_write(const iov<N, P>&, const R&) -> rdma_write<N>;

/// Reads the peer's memory into local memory (uDAPL 2.0 §6.6.23 dat_ep_post_rdma_read). Local memory needs
/// `local_write`, the remote segment `remote_read`.
template <std::size_t N>
class rdma_read : public detail::request<rdma_read<N>, N> {
public:
  template <detail::names_memory S, detail::names_remote R>
  rdma_read(S&& into, const R& from) noexcept {
    static_assert(detail::writable<S>, "dat: rdma_read writes memory registered with dat::local_write");
    static_assert(detail::outlives_call<S>, "dat: the lmr must outlive the rdma_read: pass an lvalue");
    static_assert(detail::remotely_readable<R>, "dat: rdma_read needs a remote segment with dat::remote_read");
    this->wr_.start(dto_operation::rdma_read, into);
    this->wr_.target(from);
  }
  /// Catch-all: turns a wrong argument into a readable diagnostic.
  template <class R, detail::no_transfer_with<R> S>
  rdma_read(S&&, const R&) noexcept {
    static_assert(detail::is_local<S>,
                  "dat: rdma_read takes local memory first, an lmr, a segment or a dat::iov, and then a "
                  "remote segment; unwrap what is an expected, by DAT_TRY or value()");
    static_assert(detail::is_remote<std::remove_cvref_t<R>>,
                  "dat: rdma_read takes local memory first, and then a remote segment: one that the "
                  "peer has sent, read by remote_segment::from_wire");
  }
  template <mem_priv P, detail::names_remote R>
  rdma_read(const iov<N, P>& into, const R& from) noexcept {
    static_assert(includes(P, mem_priv::local_write), "dat: rdma_read writes memory registered with dat::local_write");
    static_assert(detail::remotely_readable<R>, "dat: rdma_read needs a remote segment with dat::remote_read");
    this->wr_.start_list(dto_operation::rdma_read, into);
    this->wr_.target(from);
  }
};
template <detail::names_memory S, detail::names_remote R>
rdma_read(S&&, const R&) -> rdma_read<1>;
template <class R, detail::no_transfer_with<R> S>
rdma_read(S&&, const R&) -> rdma_read<1>;
template <std::size_t N, mem_priv P, detail::names_remote R>
rdma_read(const iov<N, P>&, const R&) -> rdma_read<N>;

/// Provides a buffer for the peer's next send (uDAPL 2.0 §6.6.22 dat_ep_post_recv). The memory needs `local_write`. It
/// may be posted before the endpoint is connected. `dat::recv{}` takes an empty message or a notification. A message
/// longer than the memory, or than ep_attributes::max_message_size, breaks the connection.
template <std::size_t N>
class recv {
public:
  recv() noexcept = default;
  template <detail::names_memory S>
  explicit recv(S&& into) noexcept { // NOLINT(bugprone-forwarding-reference-overload): names_memory excludes recv
    static_assert(detail::writable<S>, "dat: recv needs memory registered with dat::local_write");
    static_assert(detail::outlives_call<S>, "dat: the lmr must outlive the recv: pass an lvalue, not a temporary");
    wr_.data.start(detail::raw_of(into));
  }
  /// Catch-all: turns a wrong argument into a readable diagnostic.
  template <detail::no_memory_for<recv> S, class... More>
  explicit recv(S&&, More&&...) noexcept {
    static_assert(detail::is_local<S>, "dat: recv takes an lmr, a segment or a dat::iov: register the memory first, by "
                                       "pz.register_memory; unwrap what is an expected, by DAT_TRY or value()");
  }
  template <mem_priv P>
  explicit recv(const iov<N, P>& into) noexcept {
    static_assert(includes(P, mem_priv::local_write), "dat: recv needs memory registered with dat::local_write");
    wr_.data.assign(detail::sge_list_access::of(into));
  }
  /// Its completion wakes no waiting thread. It needs the attribute `recv_completion` of the endpoint to be
  /// `completion_notification::selective`, otherwise `post` returns `invalid_parameter`.
  recv& suppress_notification() & noexcept { return wr_.no_notify = true, *this; }
  recv&& suppress_notification() && noexcept { return wr_.no_notify = true, std::move(*this); }
  /// The completion event returns the cookie.
  recv& cookie(dat::cookie c) & noexcept { return wr_.cookie = c, *this; }
  recv&& cookie(dat::cookie c) && noexcept { return wr_.cookie = c, std::move(*this); }

private:
  friend struct detail::request_access;
  detail::recv_request<N> wr_;
};
recv()->recv<0>;
template <detail::no_memory_for<recv> S, class... More>
recv(S&&, More&&...) -> recv<1>;
template <detail::names_memory S>
recv(S&&) -> recv<1>;
template <std::size_t N, mem_priv P>
recv(const iov<N, P>&) -> recv<N>;

}} // namespace dat::v0

namespace dat { inline namespace v0 { namespace detail {
template <std::size_t N>
inline constexpr bool is_recv<recv<N>> = true;
template <std::size_t N>
inline constexpr bool is_request<send<N>> = true;
template <std::size_t N>
inline constexpr bool is_request<rdma_write<N>> = true;
template <std::size_t N>
inline constexpr bool is_request<rdma_read<N>> = true;
}}} // namespace dat::v0::detail
