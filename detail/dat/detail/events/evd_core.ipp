// Definitions of evd_core.hpp: creation, what feeds an evd, its waiter, its cno and its failures.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/inside_dat.hpp>
#include <dat/detail/base/to_read.hpp>
#include <dat/detail/base/utility.hpp>
#include <dat/detail/events/evd_core.hpp>
#include <dat/detail/text/errno.hpp>

#include <array>
#include <cerrno>
#include <mutex>
#include <new>
#include <poll.h>
#include <sched.h>

namespace dat { inline namespace v0 { namespace detail {

/// The poll events of a dead descriptor, from which every read fails.
inline constexpr short dead_descriptor = POLLERR | POLLHUP | POLLNVAL;
inline constexpr const char* device_gone_hint = "The device was reset, removed or unbound, and no operation completes "
                                                "any more. Close the ia, and open it again when "
                                                "the device is back.";

DAT_DECL evd_core::evd_core(ref<ia_core> ia, streams which, std::uint32_t qlen, const child_type& type) noexcept
    : ia_child(std::move(ia), type),
      evd_polling(this->ia().work.base()),
      streams_(which),
      qlen_(qlen),
      number_(this->ia().next_evd_number()),
      wakeup_(*this, number_, this->ia().reactor) {
  channel_source_.self = this;
  channel_source_.ready = [](event_source& s) noexcept { static_cast<channel_source&>(s).self->channel_ready(); };
}

DAT_DECL evd_core::~evd_core() {
  while (shared_) delete std::exchange(shared_, shared_->next);
}

// --- creation and end ------------------------------------------------------------------------------------------------

DAT_DECL result<ref<evd_core>> evd_core::create(const ref<ia_core>& ia, streams which, std::uint32_t qlen,
                                                std::optional<std::uint32_t> vector) noexcept {
  const inside_dat section;
  static constexpr const char* call = "ia.create_evd";
  if (ia->closed()) return error(return_type::invalid_handle, return_subtype::handle_ia).at(call, object_kind::ia);
  ref<evd_core> evd(is_completions_only(which) ? new (std::nothrow) evd_core(ia, which, qlen)
                                               : new (std::nothrow) merged_evd(ia, which, qlen),
                    adopt);
  if (!evd)
    return error(return_type::insufficient_resources, return_subtype::resource_memory).at(call, object_kind::evd);
  if (auto ok = evd->check_length(qlen, call); !ok) return ok.assume_error();
  merged_evd* const m = merged(evd.get());
  if (m)
    if (auto r = m->prepare(call); !r) return r.assume_error();
  if (includes(which, streams::dto))
    if (auto r = evd->create_queue(call, vector); !r) return r.assume_error();
  if (m && includes(which, streams::async)) m->listen();
  evd->publish();
  return evd;
}

DAT_DECL expected<void> evd_core::create_queue(const char* call, std::optional<std::uint32_t> vector) noexcept {
  const auto failed = [&](const char* verb, int err, return_subtype resource) {
    return at(map_errno(err, resource).from(verb, err), call);
  };
  const auto vectors = static_cast<std::uint32_t>(max(ia().context()->num_comp_vectors, 1));
  if (vector && *vector >= vectors)
    return at(error(return_type::invalid_parameter, return_subtype::arg3), call)
        .hint("`completion_vector` must be below ia_attributes::num_comp_vectors.");
  if (auto ok = take_place(return_subtype::resource_tevd); !ok) return at(ok.assume_error(), call);
  vector_ = vector.value_or(number_ % vectors);
  channel_ = ibv_create_comp_channel(ia().context());
  if (!channel_) return failed("ibv_create_comp_channel", errno, return_subtype::resource_tevd);
  if (const int err = make_nonblocking(channel_->fd)) return failed("fcntl", err, return_subtype::resource_tevd);
  cq_ = ibv_create_cq(ia().context(), static_cast<int>(queue_depth(qlen())), static_cast<ia_child*>(this), channel_,
                      static_cast<int>(vector_));
  if (!cq_) return failed("ibv_create_cq", errno, return_subtype::resource_tevd);
  polled_ = cq_;
  arming_.set_queue(cq_, channel_, number_);
  return success();
}

DAT_DECL void evd_core::await_waiter() noexcept {
  while (ia().closed() && wakeup_.has_other_waiter()) {
    wakeup_.kick();
    ::sched_yield();
  }
}

DAT_DECL void evd_core::teardown() noexcept {
  await_waiter();
  detach_cno();
  polled_ = null_device_instance.cq();
  if (cq_) {
    arming_.acknowledge_all();
    ibv_destroy_cq(cq_);
    cq_ = nullptr;
  }
  if (channel_) ibv_destroy_comp_channel(channel_);
  channel_ = nullptr;
  arming_.set_queue(nullptr, nullptr, number_);
}

DAT_DECL void evd_core::queue_failed() noexcept {
  if (!lost_completions()) return; // reported before
  ia().overflowed(number());
  // Verbs does not report the endpoints whose completions were lost, so every endpoint of this evd may wait for a
  // completion that never arrives.
  ia().for_each(child_kind::endpoint, [this](ia_child& ep) {
    ep.type().on_device(ep, {.what = device_report::kind::completions_lost, .source = this});
  });
}

// --- size ------------------------------------------------------------------------------------------------------------

DAT_DECL std::uint32_t evd_core::queue_depth(std::uint32_t n) const noexcept {
  // Reserves more than is needed, because some devices keep the completions of a destroyed queue pair in the queue.
  // Drivers of iWARP cannot resize a queue, so it has room for some endpoints from the start.
  const std::uint32_t least = ia().iwarp() ? 4096 : 0;
  return min(max(max(n, fed_) + 16, least), static_cast<std::uint32_t>(ia().device().max_cqe));
}

DAT_DECL expected<void> evd_core::check_length(std::uint32_t n, const char* call) const noexcept {
  if (n != 0 && n <= static_cast<std::uint32_t>(ia().device().max_cqe)) return success();
  return at(error(return_type::invalid_parameter, return_subtype::arg2), call)
      .hint("`qlen` must be within 1..ia_attributes::max_evd_qlen.");
}

DAT_DECL expected<void> evd_core::resize_queue(std::uint32_t n) noexcept {
  static constexpr const char* call = "evd.resize";
  const auto depth = static_cast<int>(queue_depth(n));
  if (cq_ && !(ia().iwarp() && depth <= cq_->cqe))
    if (const int err = ibv_resize_cq(cq_, depth)) {
      // The length is in range, so EINVAL, which some drivers negate, can only mean that more completions are queued
      // than would fit.
      if (err == EINVAL || err == -EINVAL)
        return at(error(return_type::invalid_state, return_subtype::evd_in_use).from("ibv_resize_cq", err), call)
            .hint("More events are queued than the new length has room for. Take them first.");
      return at(map_errno(err, return_subtype::resource_tevd).from("ibv_resize_cq", err), call);
    }
  qlen_.store(n, std::memory_order_relaxed);
  note_change();
  return success();
}

DAT_DECL expected<void> evd_core::resize(std::uint32_t n) noexcept {
  static constexpr const char* call = "evd.resize";
  if (dead()) return closed(call);
  if (auto ok = check_length(n, call); !ok) return ok;
  const std::lock_guard lock(feed_mutex_);
  if (merged_evd* m = merged(this)) return m->resize_merged(n);
  return resize_queue(n);
}

/// Afterwards the ring of a merged evd and the completion queue have room for `entries` completions.
DAT_DECL expected<void> evd_core::make_room(std::uint32_t entries) noexcept {
  if (merged_evd* m = merged(this); m && !m->reserve_completions(entries))
    return error(return_type::insufficient_resources, return_subtype::resource_memory);
  if (!cq_ || entries <= static_cast<std::uint32_t>(cq_->cqe)) return success();
  const auto limit = static_cast<std::uint32_t>(ia().device().max_cqe);
  const error too_small = error(return_type::insufficient_resources, return_subtype::resource_tevd).index(entries);
  if (entries > limit)
    return too_small.hint("Together, the endpoints of this evd can have more completions outstanding than the "
                          "device's max_cqe. Divide them among several evds, or lower max_request_dtos and "
                          "max_recv_dtos.");
  // The size doubles, so that many endpoints need few resizes.
  const std::uint32_t ample = min(max(entries, 2 * static_cast<std::uint32_t>(cq_->cqe)), limit);
  int err = ibv_resize_cq(cq_, static_cast<int>(ample));
  if (err != 0 && ample > entries) err = ibv_resize_cq(cq_, static_cast<int>(entries));
  if (err == 0) return success();
  return too_small.from("ibv_resize_cq", err)
      .hint("The completions of this endpoint have no room in its evd, and the device cannot resize it. Create the evd "
            "with a length of at least that many events.");
}

// --- the queues that feed it -----------------------------------------------------------------------------------------

DAT_DECL evd_core::shared_feed** evd_core::find_shared(const void* srq) noexcept {
  shared_feed** at = &shared_;
  while (*at && (*at)->srq != srq) at = &(*at)->next;
  return at;
}

DAT_DECL expected<void> evd_core::add_entries(const evd_feed& f, std::uint32_t more, std::uint32_t leaving) noexcept {
  shared_feed** const known = f.shared ? find_shared(f.shared) : nullptr;
  const std::uint32_t before = known && *known ? (*known)->entries : 0;
  const std::uint32_t total = fed_ + max(f.entries, before) - before;
  if (auto ok = make_room(total + more - leaving); !ok) return ok;
  if (known && !*known) {
    *known = new (std::nothrow) shared_feed{f.shared, 0, 0, nullptr};
    if (!*known) return error(return_type::insufficient_resources, return_subtype::resource_memory);
  }
  if (known) {
    (*known)->entries = max(f.entries, before);
    ++(*known)->users;
  }
  fed_ = total;
  return success();
}

DAT_DECL void evd_core::remove_entries(const evd_feed& f) noexcept {
  if (!f.shared) {
    fed_ -= f.entries;
    return;
  }
  shared_feed** const known = find_shared(f.shared);
  if (!*known || --(*known)->users != 0) return;
  shared_feed* const last = *known;
  fed_ -= last->entries;
  *known = last->next;
  delete last;
}

DAT_DECL expected<void> evd_core::grow_feed(const void* shared, std::uint32_t entries) noexcept {
  const std::lock_guard lock(feed_mutex_);
  shared_feed* const known = *find_shared(shared);
  if (!known || known->entries >= entries) return success();
  const std::uint32_t total = fed_ + entries - known->entries;
  if (auto ok = make_room(total); !ok) return ok;
  known->entries = entries;
  fed_ = total;
  return success();
}

DAT_DECL completion_notification evd_core::usual_mode(bool shared) noexcept {
  constexpr auto selective = completion_notification::selective;
  const std::lock_guard lock(feed_mutex_);
  const bool wanted = shared || (arming_.feeds() != 0 && mode() == selective);
  return wanted && check_mode({.mode = selective}, 0) ? selective : completion_notification::evd_threshold;
}
DAT_DECL expected<void> evd_core::check_mode(const evd_feed& f, std::uint32_t leaving) const noexcept {
  const auto refuse = [](const char* hint) {
    return error(return_type::invalid_parameter, return_subtype::arg7).hint(hint);
  };
  if (f.mode != completion_notification::evd_threshold) {
    if (!includes(streams::dto | streams::rmr_bind | streams::software | streams::datagrams, streams_))
      return refuse("An evd on which not every completion notifies may have no streams other than dto, datagrams, "
                    "rmr_bind and software.");
    if (f.mode == completion_notification::selective && is_completions_only(streams_))
      return refuse("Selective completions need an evd that can set completions aside. Create it with "
                    "dat::stream::dto | dat::stream::software.");
    if (f.mode == completion_notification::solicited_wait && f.requests)
      return refuse("Only receives can be solicited.");
    if (awaits_several())
      return error(return_type::invalid_state, return_subtype::evd_waiter)
          .hint("A thread waits on the evd for several events.");
  }
  if (arming_.feeds() > leaving && mode() != f.mode)
    return refuse("All queues that feed one evd must have the same recv_completion and request_completion.");
  return success();
}

DAT_DECL expected<void> evd_core::attach(const evd_feed& f, const leaving_feeds& leaving, std::uint32_t more) noexcept {
  const merged_evd* const m = merged(this);
  const bool sink = m && m->is_sink();
  const std::lock_guard feeds(feed_mutex_);
  if (!sink)
    if (auto ok = check_mode(f, leaving.count); !ok) return ok;
  if (auto ok = add_entries(f, more, leaving.entries); !ok) return ok;
  bool watched;
  {
    const std::lock_guard lock(cno_mutex_);
    arming_.set_mode(sink ? completion_notification::evd_threshold : f.mode);
    arming_.add_feed(); // set before the check for a waiter: a later waiter sees the feed
    watched = watching_.load(std::memory_order_relaxed) == watching::always;
  }
  if (has_waiter()) { // the waiter arms the device in this mode
    arming_.mark_fired();
    wakeup_.kick();
  }
  if (!watched) return success();
  if (const int err = arming_.arm()) {
    remove_entries(f);
    arming_.remove_feed();
    return map_errno(err).from("ibv_req_notify_cq", err);
  }
  return success();
}

DAT_DECL void evd_core::detach(const evd_feed& f) noexcept {
  const std::lock_guard feeds(feed_mutex_);
  remove_entries(f);
  const std::lock_guard lock(cno_mutex_);
  if (arming_.remove_feed() == 0) arming_.set_mode(completion_notification::evd_threshold);
}

DAT_DECL void evd_core::restore_mode(completion_notification f) noexcept {
  const merged_evd* const m = merged(this);
  const std::lock_guard lock(cno_mutex_);
  if (!m || !m->is_sink()) arming_.set_mode(f);
}

DAT_DECL void evd_core::watch_connection() noexcept {
  merged_evd* const m = merged(this);
  // Counts first, because the end of a watch depends on the count.
  if (!m || !m->breaks().add_connection() || !channel_) return;
  int err;
  {
    const std::lock_guard lock(cno_mutex_);
    err = watch_channel(watching::once);
  }
  if (err == 0 && !arming_.armed()) err = arming_.arm();
  if (err != 0) ia().failed_inside("ibv_req_notify_cq", err, number());
}

DAT_DECL void evd_core::unwatch_connection() noexcept {
  if (merged_evd* m = merged(this)) m->breaks().remove_connection();
}

// --- waiting ---------------------------------------------------------------------------------------------------------

DAT_DECL error evd_core::expired(const char* call) const noexcept {
  const error late = at(error(return_type::timeout_expired), call);
  return left_outstanding_.load(std::memory_order_relaxed)
             ? late.hint("An endpoint of this evd was closed or destroyed while operations of it were outstanding, and "
                         "these have no completions. Take the completions of an endpoint before its end; after a "
                         "disconnect, outstanding operations complete as flushed.")
             : late;
}

DAT_DECL expected<void> evd_core::sleep(const deadline& until) noexcept {
  static constexpr const char* call = "evd.wait";
  const auto closed = [&] { return at(error(return_type::abort, return_subtype::interrupted), call); };
  if (ia().closed()) return closed(); // from here on, a close of the ia wakes this thread
  // Each descriptor makes the wait slower, so a close of the ia uses the descriptor of the other wake-ups.
  std::array fds{to_read(wakeup_.fd()), to_read(channel_ ? channel_->fd : -1),
                 to_read(ia().automatic() ? -1 : ia().reactor.fd())};
  trace_points::sleep(number_);
  const int ready = poll_until(fds.data(), fds.size(), until);
  const int err = errno;
  trace_points::wake(number_, ready < 0 ? err : ready == 0 ? ETIMEDOUT : 0);
  wakeup_.woke_up(ready > 0 && fds[0].revents != 0);
  if (ready < 0)
    return at((err == EINTR ? error(return_type::interrupted_call) : map_errno(err)).from("ppoll", err), call);
  if (ready == 0) return expired(call);
  if (ia().closed() || dead() || (fds[0].revents & dead_descriptor) != 0) return closed();
  if ((fds[1].revents & dead_descriptor) != 0)
    return at(map_errno(EIO).from("ppoll", EIO), call).hint(device_gone_hint);
  ia().progress(0);
  if (fds[1].revents != 0) {
    arming_.mark_unread();
    if (arming_.is_selective()) arming_.read_unread();
  }
  return success();
}

// --- failures --------------------------------------------------------------------------------------------------------

DAT_DECL error evd_core::poll_error(const char* call) const noexcept {
  return at(map_errno(EIO).from("ibv_poll_cq", EIO), call)
      .hint("The device failed to return completions. Posted operations are still outstanding.");
}

DAT_DECL void evd_core::report_poll_failure() noexcept {
  if (take_poll_failure() && !poll_failure_reported_.exchange(true, std::memory_order_relaxed))
    ia().failed_inside("ibv_poll_cq", EIO, number());
}

DAT_DECL void evd_core::answer_poll_failure() noexcept {
  if (has_waiter())
    wakeup_.kick();
  else
    report_poll_failure();
}

// --- the completion channel and the cno ------------------------------------------------------------------------------

DAT_DECL int evd_core::watch_channel(watching how) noexcept {
  const watching now = watching_.load(std::memory_order_relaxed);
  if (!channel_ || now > how || (now == how && how == watching::always)) return 0;
  const bool once = how == watching::once;
  const int err = now == watching::off ? ia().reactor.watch(channel_->fd, channel_source_, once)
                                       : ia().reactor.watch_again(channel_->fd, channel_source_, once);
  if (err == 0) watching_.store(how, std::memory_order_release);
  return err;
}

DAT_DECL void evd_core::watch_again() noexcept {
  const std::lock_guard lock(cno_mutex_);
  (void)watch_channel(watching::once);
}

DAT_DECL void evd_core::channel_ready() noexcept {
  const bool always = watching_.load(std::memory_order_acquire) == watching::always;
  merged_evd* const m = merged(this);
  if (m) m->breaks().look_later();
  if (!always && has_waiter()) return; // the waiter reads the channel
  if (const int err = arming_.read_all()) return channel_failed(err);
  channel_failures_ = 0;
  if (!always) return wake(); // a thread may have begun to wait
  const bool sink = m && m->is_sink();
  if (sink || (enabled() && notifies_cno())) // arms before it polls, so that later completions notify again
    if (const int err = arming_.arm()) ia().failed_inside("ibv_req_notify_cq", err, number());
  if (sink) return m->discard();
  const bool something = !m || m->count_events() != 0;
  if (poll_has_failed()) answer_poll_failure();
  // A waiter has to arm the device again, also when the notification was for no event.
  if (!something || mode() == completion_notification::selective)
    return wakeup_.kick(); // the poll itself has triggered the cno for events that notify
  wake();
}

/// The channel of a removed device stays readable, and reading it fails.
DAT_DECL void evd_core::channel_failed(int err) noexcept {
  pollfd p = to_read(channel_->fd);
  const bool gone = ::poll(&p, 1, 0) > 0 && (p.revents & dead_descriptor) != 0;
  if (!gone && ++channel_failures_ < 8) return wake();
  {
    const std::lock_guard lock(cno_mutex_);
    watching_.store(watching::dead, std::memory_order_release);
  }
  ia().reactor.unwatch(channel_->fd, channel_source_);
  ia().failed_inside("ibv_get_cq_event", err, number());
  wake();
}

DAT_DECL expected<void> evd_core::set_cno(ref<cno_core> cno) noexcept {
  static constexpr const char* call = "evd.modify_cno";
  if (dead()) return closed(call);
  if (cno && (cno->dead() || &cno->ia() != &ia()))
    return at({return_type::invalid_handle, return_subtype::handle_cno}, call);
  const auto attached = static_cast<bool>(cno);
  ref<cno_core> old;
  {
    const std::lock_guard lock(cno_mutex_);
    if (attached) {
      if (const int err = watch_channel(watching::always))
        return at(map_errno(err, return_subtype::resource_tevd).from("epoll_ctl", err), call);
      cno->users.fetch_add(1, std::memory_order_relaxed);
    }
    old = std::exchange(cno_, std::move(cno));
    store(notifies_cno_, attached);
    note_change();
  }
  if (old) old->remove_user(false);
  if (attached) arm_for_cno();
  return success();
}

DAT_DECL void evd_core::set_enabled(bool enabled) noexcept {
  if (enabled_.exchange(enabled, std::memory_order_acq_rel) == enabled) return;
  note_change();
  if (enabled) arm_for_cno();
}

DAT_DECL void evd_core::arm_for_cno() noexcept {
  // Queued events trigger the cno now: one trigger too many is harmless, a missing one is not.
  (void)arming_.arm();
  merged_evd* const m = merged(this);
  if (!m || m->has_notification()) notify();
}

DAT_DECL void evd_core::notify() noexcept {
  if (!enabled()) return;
  ref<cno_core> cno;
  {
    const std::lock_guard lock(cno_mutex_);
    cno = cno_;
  }
  if (cno) cno->trigger(number_);
}

DAT_DECL void evd_core::detach_cno() noexcept {
  ref<cno_core> cno;
  watching before;
  {
    const std::lock_guard lock(cno_mutex_);
    cno = std::move(cno_);
    store(notifies_cno_, false);
    before = watching_.exchange(watching::dead, std::memory_order_acq_rel);
  }
  if (before == watching::once || before == watching::always) ia().reactor.unwatch(channel_->fd, channel_source_);
  if (cno) cno->remove_user(true);
}

DAT_DECL result<ref<evd_core>> async_evd_for(ia_core& ia, evd_core* given, std::uint32_t qlen) noexcept {
  static constexpr const char* call = "ia.open";
  if (!given) {
    auto own = evd_core::create(ref(&ia), streams::async, qlen);
    if (!own) return own.assume_error().at(call, object_kind::ia);
    own.assume_value()->users.store(1, std::memory_order_relaxed); // the reference that the ia itself holds
    ia.set_own_evd(own.assume_value().get());
    return own;
  }
  if (given->dead() || !given->ia().same_adapter(ia))
    return error(return_type::invalid_handle, return_subtype::handle_evd_async)
        .at(call, object_kind::ia)
        .hint("The evd for asynchronous events is closed, or belongs to another adapter.");
  ia.borrow_evd(ref<ia_child>(given));
  return ref<evd_core>();
}

}}} // namespace dat::v0::detail
