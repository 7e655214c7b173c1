// Coroutines: DTOs that a coroutine awaits. Part of coro.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/dto.hpp>
#include <dat/ep.hpp>
#include <dat/event.hpp>
#include <dat/expected.hpp>

#include <dat/detail/delivery/coro_core.hpp>
#include <dat/detail/delivery/dequeue.hpp>
#include <dat/detail/delivery/drain.hpp>
#include <dat/detail/handle/core_access.hpp>

#include <cstdint>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 { namespace coro {

template <streams S>
class driver;

/// The message that arrived in a receive.
class receive_result : public transfer {
public:
  /// The 32 bits of immediate data, if the peer sent any (IB extensions §2).
  [[nodiscard]] std::optional<std::uint32_t> immediate() const noexcept { return immediate_; }
  /// True when the receive reports an RDMA write of the peer with immediate data. Its buffer is then unchanged.
  [[nodiscard]] bool written() const noexcept { return written_; }

  receive_result(detail::event_key key, detail::ep_core* ep, dat::cookie c, std::uint32_t bytes,
                 std::optional<std::uint32_t> immediate, bool written) noexcept
      : transfer(key, ep, c, bytes), immediate_(immediate), written_(written) {}

private:
  std::optional<std::uint32_t> immediate_;
  bool written_;
};

/// A posted DTO: the result of driver::post. `co_await` returns an expected<transfer> for requests and an
/// expected<receive_result> for receives, with the cookie of the DTO. A DTO may be awaited later, or never, and several
/// may be outstanding at once.
///
/// Not movable. It may be in the frame of the coroutine that awaits it, or elsewhere. When it is done,
/// `driver.post(it, ...)` can use it again, for example for receives that are posted ahead, in an array. If it is
/// destroyed before it is done, the DTO stays posted, because an adapter cannot withdraw a DTO. Its memory must stay
/// until it completes; the driver drops the late completion. If a coroutine is destroyed while it awaits an operation
/// elsewhere, the operation continues, and another coroutine can await it.
template <class Result>
class [[nodiscard]] posted : public detail::coro_dto {
public:
  posted() noexcept = default; ///< nothing was posted; awaiting it returns `invalid_handle` at once

  /// The result of the operation.
  /// Errors:
  /// - as ep::post, when the operation was not posted
  /// - `invalid_state` (ep_disconnected): the operation failed. failure() is the completion, and the hint names the
  ///   usual cause.
  /// - `interrupted_call`: it was flushed because a stop was requested
  /// - `abort`: the driver closed or reset the endpoint, or the ia was closed
  /// Allocates: never.
  /// Blocks: no; `co_await` suspends the coroutine.
  /// Thread safety: the thread of the driver.
  [[nodiscard]] expected<Result> await_resume() const noexcept {
    using access = detail::event_access;
    if (failed()) return failure_reason();
    if constexpr (std::is_same_v<Result, receive_result>)
      return access::make<receive_result>(whose(), cookie_, bytes_,
                                          outcome_ != outcome::success ? std::optional(immediate_) : std::nullopt,
                                          outcome_ == outcome::written);
    else
      return access::make<transfer>(whose(), cookie_, bytes_);
  }
  /// The failed completion, if the operation ended with one.
  [[nodiscard]] std::optional<dto_failure> failure() const noexcept {
    if (outcome_ != outcome::failure) return std::nullopt;
    return detail::event_access::make<dto_failure>(whose(), cookie_, operation_, status_, bytes_,
                                                   static_cast<std::uint8_t>(immediate_));
  }

private:
  template <streams>
  friend class driver;

  template <class D>
  [[gnu::always_inline]] posted(detail::coro_driver& d, ep_ref ep, D& operation) noexcept : coro_dto(d) {
    start(d, ep, operation);
  }
  template <class D>
  posted(detail::coro_driver& d, ep_ref ep, D& operation, std::stop_token&& stop) noexcept : coro_dto(d) {
    start(d, ep, operation, std::move(stop));
  }
  /// Starts another operation in this object.
  template <class D>
  void restart(detail::coro_driver& d, ep_ref ep, D& operation, std::stop_token&& stop) noexcept {
    begin(d);
    forget_result();
    start(d, ep, operation, std::move(stop));
  }
  template <class D>
  void start(detail::coro_driver& d, ep_ref ep, D& operation, std::stop_token&& stop) noexcept {
    if (stop.stop_requested()) return fail(stopped(post_call, "A stop was requested before, so nothing was posted."));
    start(d, ep, operation);
    on_stop = &posted::end_by_hanging_up;
    watch(std::move(stop));
  }
  template <class D>
  [[gnu::always_inline]] void start(detail::coro_driver& d, ep_ref ep, D& operation) noexcept {
    using access = detail::request_access;
    cookie_ = access::of(operation).cookie;
    if (ep) [[likely]] {
      detail::ep_core* const e = detail::core_access::of(ep);
      set_endpoint(e);
      if (feeds<D>(*e) != d.evd() && !e->dead()) [[unlikely]]
        return refuse(*e, detail::is_recv<D>);
    } else {
      set_endpoint(nullptr);
    }
    operation.cookie(key_ = d.next_key());
    if constexpr (!detail::is_recv<D>) access::change(operation).set(detail::send_flag::signaled);
    d.expect(*this);
    if (auto ok = ep.post(operation); !ok) fail(ok.assume_error());
  }
  template <class D>
  [[nodiscard]] static const detail::evd_core* feeds(const detail::ep_core& e) noexcept {
    return (detail::is_recv<D> ? e.evds().recv : e.evds().request).get();
  }
  void refuse(const detail::ep_core& e, bool receive) noexcept {
    fail(e.at({return_type::invalid_handle,
               receive ? return_subtype::handle_evd_recv : return_subtype::handle_evd_request},
              post_call)
             .hint("The endpoint's completions of this kind go to another evd than the driver's."));
  }
};

}}} // namespace dat::v0::coro
