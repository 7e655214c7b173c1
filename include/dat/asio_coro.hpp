// Boost.Asio: awaiting single operations and events with completion tokens. Opt-in, not part of dat.hpp.
// SPDX-License-Identifier: BSL-1.0
//
//     auto loop = dat::asio::loop<streams>::create(io.get_executor(), ia, evd).value();
//
//     boost::asio::awaitable<dat::expected<void>> echo(...) {
//       DAT_CO_TRY(const auto got, co_await dat::asio::async_post(loop, ep, dat::recv{in},
//       boost::asio::use_awaitable)); DAT_CO_TRYV(co_await dat::asio::async_post(loop, ep, dat::send{in},
//       boost::asio::use_awaitable)); co_return dat::success();
//     }
//
// Some coroutine types await only what is made for them, among them boost::asio::awaitable. The functions here take
// every completion token: use_awaitable, use_future, callbacks. (boost::asio::co_spawn needs a result that can be made
// without a value, which an expected is not: spawn an awaitable<void> that awaits the others.)
#pragma once

#include <dat/asio.hpp>
#include <dat/coro.hpp>
#include <dat/cr.hpp>
#include <dat/ep.hpp>
#include <dat/evd.hpp>
#include <dat/expected.hpp>
#include <dat/ia.hpp>

#include <dat/detail/base/intrusive_list.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/system/error_code.hpp>

#include <coroutine>
#include <exception>
#include <memory>
#include <span>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 { namespace asio {

/// Takes the events of an evd in an executor of Boost.Asio, for the functions below: async_post, async_connect,
/// async_accept, async_disconnect, async_next. It takes events while at least one of their operations is outstanding.
/// An event that no operation awaits is dropped, unless the driver keeps it (see coro::driver, "Kept events").
///
/// Handlers are posted to their executor, and get an expected with the result. Move-only. Destruction completes the
/// outstanding operations with `abort`; their DTOs stay posted. Destroy it before the io_context.
/// Thread safety: as basic_notifier.
template <streams S, class Executor = boost::asio::any_io_executor>
class basic_loop {
public:
  using executor_type = Executor;

  basic_loop(basic_loop&&) noexcept = default;
  basic_loop& operator=(basic_loop&& o) noexcept {
    if (this != &o) {
      end();
      state_ = std::move(o.state_);
    }
    return *this;
  }
  ~basic_loop() { end(); }

  /// A loop that takes the events of `events` on `executor`.
  /// Errors: as basic_notifier::create and basic_notifier::watch.
  /// Allocates: yes.
  /// Blocks: no.
  /// Thread safety: safe.
  [[nodiscard]] static expected<basic_loop> create(const Executor& executor, ia& of, evd<S>& events) {
    auto made = basic_notifier<Executor>::create(executor, of);
    if (!made) return made.assume_error();
    if (auto ok = made.assume_value().watch(events); !ok) return ok.assume_error();
    return basic_loop(std::make_shared<state>(std::move(made).assume_value(), events));
  }

  [[nodiscard]] Executor get_executor() const noexcept { return state_->notifier.get_executor(); }

  /// Starts what `make` returns for a driver, such as `driver.post(...)`, and completes with its result. The functions
  /// below use it. The completion signature is `void(R)`. Allocates.
  template <class R, class Make, class Token>
  auto async_start(Make make, Token&& token) {
    return boost::asio::async_initiate<Token, void(R)>(
        [](auto handler, std::shared_ptr<state> all, Make begin) {
          run<R>(*all, std::move(begin), std::move(handler));
        },
        token, state_, std::move(make));
  }

private:
  struct state;
  /// An operation whose handler was not posted yet. It lives in the frame of its coroutine.
  struct pending_base : detail::list_node {
    std::coroutine_handle<> frame;
    void (*abort)(pending_base&) = nullptr;
  };
  template <class R, class Handler>
  class pending : public pending_base {
  public:
    pending(state& all, Handler&& h)
        : handler_(std::move(h)), work_(boost::asio::get_associated_executor(handler_, all.notifier.get_executor())) {
      this->abort = [](pending_base& self) {
        auto& p = static_cast<pending&>(self);
        const std::coroutine_handle<> whole = p.frame;
        p.complete(R(error(return_type::abort, return_subtype::interrupted)
                         .at("asio::loop", object_kind::evd)
                         .hint("The loop was destroyed.")));
        whole.destroy();
      };
    }
    void complete(R&& result) {
      this->unlink();
      boost::asio::post(work_.get_executor(),
                        [h = std::move(handler_), r = std::move(result)]() mutable { std::move(h)(std::move(r)); });
    }

  private:
    Handler handler_;
    boost::asio::executor_work_guard<boost::asio::associated_executor_t<Handler, Executor>> work_;
  };

  /// Handlers of the notifier hold references to it. It owns the frames of pending operations.
  struct state : std::enable_shared_from_this<state> {
    state(basic_notifier<Executor>&& n, const evd<S>& events) : notifier(std::move(n)), driver(events) {}
    state(const state&) = delete;
    state& operator=(const state&) = delete;
    ~state() = default;

    void take_events() {
      taking = true;
      notifier.async_wait([self = this->shared_from_this()](boost::system::error_code failed, evd_id) {
        self->taking = false;
        if (failed == boost::asio::error::operation_aborted) return;
        self->driver.poll([](const auto&) {});
        if (!failed && !self->all.empty() && !self->taking) self->take_events();
      });
    }
    void end() {
      ended = true;
      while (pending_base* const p = all.front()) p->abort(*p);
      notifier.cancel();
    }

    basic_notifier<Executor> notifier;
    coro::driver<S> driver;
    detail::intrusive_list<pending_base> all;
    bool taking = false;
    bool ended = false;
  };

  /// A coroutine that owns itself, or belongs to the state while its operation is outstanding.
  struct detached {
    struct promise_type {
      [[nodiscard]] detached get_return_object() const noexcept { return {}; }
      [[nodiscard]] std::suspend_never initial_suspend() const noexcept { return {}; }
      [[nodiscard]] std::suspend_never final_suspend() const noexcept { return {}; }
      void return_void() const noexcept {}
      void unhandled_exception() const noexcept { std::terminate(); } // no memory to post a handler
    };
  };
  /// Stores the handle of the awaiting coroutine, and does not suspend it.
  struct frame_of {
    pending_base& of;
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> h) const noexcept {
      of.frame = h;
      return false;
    }
    void await_resume() const noexcept {}
  };

  template <class R, class Make, class Handler>
  static detached run(state& all, Make make, Handler handler) {
    pending<R, Handler> me(all, std::move(handler));
    if (all.ended) {
      me.complete(R(error(return_type::abort, return_subtype::interrupted)
                        .at("asio::loop", object_kind::evd)
                        .hint("The loop was destroyed.")));
      co_return;
    }
    co_await frame_of{me};
    all.all.push_back(me);
    auto operation = make(all.driver);
    if (!operation.done() && !all.taking) all.take_events();
    R result = co_await operation;
    me.complete(std::move(result));
  }

  explicit basic_loop(std::shared_ptr<state> s) noexcept : state_(std::move(s)) {}
  void end() {
    if (state_) state_->end();
  }
  std::shared_ptr<state> state_;
};

/// The loop for the executors that most programs use.
template <streams S>
using loop = basic_loop<S>;

/// Posts a DTO, as coro::driver::post, when the operation is initiated. Completes with expected<transfer>, or
/// expected<coro::receive_result> for a receive; the errors are those of coro::posted. Allocates.
template <streams S, class Executor, class D, class Token>
requires(detail::is_recv<D> || detail::is_request<D>) //
    auto async_post(basic_loop<S, Executor>& in, ep_ref ep, D operation, Token&& token, std::stop_token stop = {}) {
  using result = expected<std::conditional_t<detail::is_recv<D>, coro::receive_result, transfer>>;
  return in.template async_start<result>(
      [ep, operation, stop = std::move(stop)](coro::driver<S>& d) { return d.post(ep, operation, stop); },
      std::forward<Token>(token));
}

/// Connects, as coro::driver::connect. Completes with expected<established>. `ep` and `data` must stay until the
/// operation has been initiated. Allocates.
template <streams S, class Executor, class Service, class Token>
auto async_connect(basic_loop<S, Executor>& in, ep<Service>& ep, const ia_address& remote, conn_qual qualifier,
                   timeout limit, Token&& token, std::span<const std::byte> data = {}, std::stop_token stop = {}) {
  return in.template async_start<expected<established>>(
      [&ep, remote, qualifier, limit, data, stop = std::move(stop)](coro::driver<S>& d) {
        return d.connect(ep, remote, qualifier, limit, data, stop);
      },
      std::forward<Token>(token));
}

/// Accepts a request, as coro::driver::accept. Completes with expected<established>. Allocates.
template <streams S, class Executor, class Service, class Token>
auto async_accept(basic_loop<S, Executor>& in, cr&& request, ep<Service>& ep, Token&& token,
                  std::span<const std::byte> data = {}, std::stop_token stop = {}) {
  return in.template async_start<expected<established>>(
      [request = std::move(request), &ep, data, stop = std::move(stop)](coro::driver<S>& d) mutable {
        return d.accept(request, ep, data, stop);
      },
      std::forward<Token>(token));
}

/// Ends a connection, as coro::driver::disconnect. Completes with expected<void>. Allocates.
template <streams S, class Executor, class Service, class Token>
auto async_disconnect(basic_loop<S, Executor>& in, ep<Service>& ep, close_mode how, Token&& token,
                      std::stop_token stop = {}) {
  return in.template async_start<expected<void>>(
      [&ep, how, stop = std::move(stop)](coro::driver<S>& d) { return d.disconnect(ep, how, stop); },
      std::forward<Token>(token));
}

/// Awaits the next event of type `E`, as coro::driver::next. Completes with expected<E>. Allocates.
template <class E, streams S, class Executor, class Token>
auto async_next(basic_loop<S, Executor>& in, Token&& token, ep_ref of = {}, std::stop_token stop = {}) {
  return in.template async_start<expected<E>>(
      [of, stop = std::move(stop)](coro::driver<S>& d) { return d.template next<E>(of, stop); },
      std::forward<Token>(token));
}

}}} // namespace dat::v0::asio
