// Boost.Asio: waiting for the events of evds in an io_context. Opt-in, not part of dat.hpp; needs Boost.Asio's headers.
// SPDX-License-Identifier: BSL-1.0
//
//     boost::asio::io_context io;
//     auto notifier = dat::asio::notifier::create(io.get_executor(), ia).value();
//     notifier.watch(evd);                                                // any number of evds of this ia
//     notifier.async_drain(evd, visitor, [&](auto error, std::size_t events) {...});
//     co_await notifier.async_wait(boost::asio::use_awaitable);           // where the compiler and Boost have it
//
// <dat/asio_coro.hpp> has single operations with completion tokens. With the coroutines of <dat/coro.hpp>, call
// driver.poll(visitor) after async_wait. With g++, Boost 1.74 has boost::asio::awaitable. With clang 14 on the standard
// library of g++, Boost does not have it: use callbacks, futures or dat's own coroutines.
#pragma once

#include <dat/cno.hpp>
#include <dat/evd.hpp>
#include <dat/expected.hpp>
#include <dat/ia.hpp>

#include <dat/detail/base/fd.hpp>
#include <dat/detail/delivery/dequeue.hpp>
#include <dat/detail/handle/core_access.hpp>
#include <dat/detail/text/errno.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/compose.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/posix/basic_stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/system/error_code.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <sys/epoll.h>
#include <utility>

namespace dat { inline namespace v0 { namespace asio {

/// Notifies an executor of Boost.Asio when the evds of an ia have events. It has its own cno, and the evds that it
/// watches notify that cno and no other.
///
/// Completion tokens of every kind work: callbacks, use_future, use_awaitable.
/// Several operations may wait at once; each trigger completes one of them. With manual progress, waiting also does the
/// pending work of the ia (`ia::run`), in the threads that run the executor.
///
/// Move-only. Destruction and `cancel` complete waiting operations with `operation_aborted`, without waiting for their
/// handlers. It must be destroyed before the io_context.
///
/// Thread safety: distinct objects are safe. Like all I/O objects of Asio, one object is for one thread at a time: use
/// a strand when several threads run the executor.
template <class Executor = boost::asio::any_io_executor>
class basic_notifier {
public:
  using executor_type = Executor;

  basic_notifier(basic_notifier&&) noexcept = default;
  basic_notifier& operator=(basic_notifier&& o) noexcept {
    if (this != &o) {
      cancel();
      state_ = std::move(o.state_);
    }
    return *this;
  }
  ~basic_notifier() { cancel(); }

  /// A notifier whose handlers run on `executor`.
  /// Errors: `insufficient_resources`; `invalid_handle` for an ia that is empty or closed.
  /// Allocates: yes.
  /// Blocks: no.
  /// Thread safety: safe.
  [[nodiscard]] static expected<basic_notifier> create(const Executor& executor, ia& of) {
    static constexpr const char* call = "asio::notifier::create";
    auto made = of.create_cno();
    if (!made) return made.assume_error();
    const auto failed = [](const char* verb, int err) {
      return detail::map_errno(err, return_subtype::resource_device).from(verb, err).at(call, object_kind::cno);
    };
    // An operation of Asio waits for one descriptor, so all descriptors that can end the wait are in one epoll set.
    detail::unique_fd set(::epoll_create1(EPOLL_CLOEXEC));
    if (!set) return failed("epoll_create1", errno);
    epoll_event e{};
    e.events = EPOLLIN;
    for (const int fd : {made.assume_value().fd(), of.fd()}) // the second is -1 with automatic progress
      if (fd != -1 && ::epoll_ctl(set.get(), EPOLL_CTL_ADD, fd, &e) != 0) return failed("epoll_ctl", errno);
    auto all = std::make_shared<state>(executor, std::move(made).assume_value(), std::move(set));
    boost::system::error_code assigned;
    all->descriptor.assign(all->set.get(), assigned);
    if (assigned) return failed("epoll_ctl", assigned.value());
    return basic_notifier(std::move(all));
  }

  [[nodiscard]] Executor get_executor() const noexcept { return state_->descriptor.get_executor(); }
  /// The cno, for calls such as evd::modify_cno, or for `wait` in another thread.
  [[nodiscard]] dat::cno& cno() noexcept { return state_->cno; }

  /// From now on, events of this evd complete operations; so do the events that are already queued. Equal to
  /// `evd.modify_cno(cno())`.
  /// Errors, Allocates, Blocks and Thread safety: as evd::modify_cno.
  template <streams S>
  expected<void> watch(evd<S>& which) noexcept {
    return which.modify_cno(state_->cno);
  }

  /// Completes with `void(boost::system::error_code, dat::evd_id)` when an evd has triggered. The id is that of the evd
  /// that triggered last. Take events from all watched evds until they are empty, because they do not trigger again for
  /// events that were left.
  /// Errors: `operation_aborted` when cancelled; `bad_descriptor` when the ia was closed. The end of an evd ends no
  /// wait.
  /// Allocates: as Asio does, for the handler.
  template <class Token>
  auto async_wait(Token&& token) {
    return boost::asio::async_compose<Token, void(boost::system::error_code, evd_id)>(wait_operation{state_}, token,
                                                                                      state_->descriptor);
  }

  /// Takes up to `max` events of a watched evd and calls `visit` with each, as evd::drain; waits until there is one.
  /// Completes with `void(boost::system::error_code, std::size_t)`; the second argument is the number of events.
  /// `visit` is called in the executor, and copied or moved into the operation. Call it only if no other evd is
  /// watched, because it also takes the triggers of other evds.
  /// Errors: as async_wait; also `bad_descriptor` for an evd that was closed before, and `invalid_argument` for a `max`
  /// of 0.
  template <streams S, class Visitor, class Token>
  auto async_drain(const evd<S>& from, Visitor visit, Token&& token, std::size_t max = 16) {
    if constexpr (!detail::visits_all<Visitor, detail::event_list<S>>)
      detail::refuse_visitor<Visitor, detail::event_list<S>>();
    return boost::asio::async_compose<Token, void(boost::system::error_code, std::size_t)>(
        drain_operation<S, Visitor>{state_, detail::core_access::of(from), std::move(visit), max}, token,
        state_->descriptor);
  }

  /// Completes everything that waits with `operation_aborted`.
  void cancel() noexcept {
    boost::system::error_code ignored;
    if (state_) state_->descriptor.cancel(ignored);
  }

private:
  using wait_type = boost::asio::posix::descriptor_base;

  /// Each operation holds a reference, so the state outlives the notifier while a handler has still to run.
  struct state {
    state(const Executor& executor, dat::cno&& c, detail::unique_fd&& fd)
        : cno(std::move(c)), set(std::move(fd)), descriptor(executor) {}
    state(const state&) = delete;
    state& operator=(const state&) = delete;
    ~state() {
      if (descriptor.is_open()) descriptor.release(); // the descriptor belongs to `set`, and Asio would close it
    }
    dat::cno cno;
    detail::unique_fd set;
    boost::asio::posix::basic_stream_descriptor<Executor> descriptor;
  };
  explicit basic_notifier(std::shared_ptr<state> s) noexcept : state_(std::move(s)) {}

  /// Whether a trigger may still arrive after a failed attempt to take one. It may if another operation took the
  /// trigger, or the descriptor was readable for the work of the ia.
  [[nodiscard]] static bool may_come(const error& e) noexcept {
    return e.type() == return_type::queue_empty || e.type() == return_type::interrupted_call;
  }

  struct wait_operation {
    std::shared_ptr<state> all;
    bool armed = false;

    template <class Self>
    void operator()(Self& self, boost::system::error_code failed = {}) {
      if (failed) return self.complete(failed, evd_id());
      if (armed) {
        auto trigger = all->cno.wait(timeout::zero());
        if (trigger && trigger.assume_value()) return self.complete({}, trigger.assume_value());
        if (trigger || !may_come(trigger.assume_error()))
          return self.complete(boost::asio::error::bad_descriptor, evd_id());
      }
      armed = true;
      auto& descriptor = all->descriptor;
      descriptor.async_wait(wait_type::wait_read, std::move(self));
    }
  };

  template <streams S, class Visitor>
  struct drain_operation {
    std::shared_ptr<state> all;
    detail::ref<detail::evd_core> evd;
    Visitor visit;
    std::size_t max;
    enum { begin, looking, waiting } phase = begin;

    template <class Self>
    void operator()(Self& self, boost::system::error_code failed = {}) {
      if (failed) return self.complete(failed, 0);
      if (phase == begin) { // never calls the handler before it returns
        phase = looking;
        auto executor = all->descriptor.get_executor();
        return boost::asio::post(executor, std::move(self));
      }
      if (max == 0) return self.complete(boost::asio::error::invalid_argument, 0); // it would wait without end
      if (!evd || evd->dead()) return self.complete(boost::asio::error::bad_descriptor, 0);
      if (phase == waiting) { // before the drain, so that an event that arrives later triggers again
        auto trigger = all->cno.wait(timeout::zero());
        if (!trigger && !may_come(trigger.assume_error())) return self.complete(boost::asio::error::bad_descriptor, 0);
      }
      if (const std::size_t n = detail::drain<S>(*evd, visit, max); n != 0) return self.complete({}, n);
      phase = waiting;
      auto& descriptor = all->descriptor;
      descriptor.async_wait(wait_type::wait_read, std::move(self));
    }
  };

  std::shared_ptr<state> state_;
};

/// The notifier for the executors that most programs use.
using notifier = basic_notifier<>;

}}} // namespace dat::v0::asio
