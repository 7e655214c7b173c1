// Definitions of ia_child and ia_core: opening, children, closing.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/adapter/ia_core.hpp>
#include <dat/detail/base/closed_on_fork.hpp>
#include <dat/detail/base/inside_dat.hpp>
#include <dat/detail/text/errno.hpp>
#include <dat/detail/verbs/extended_post.hpp>

#include <cerrno>
#include <chrono>
#include <endian.h>
#include <new>
#include <poll.h>
#include <pthread.h>
#include <sched.h>

namespace dat { inline namespace v0 { namespace detail {

// --- children --------------------------------------------------------------------------------------------------------

DAT_DECL ia_child::ia_child(ref<ia_core> ia, const child_type& type) noexcept
    : counted(&on_last_release), ia_(ia.detach()), type_(type) {
  ia_->add(*this);
  if (kind() != child_kind::connection) ia_->retain_adapter();
}
DAT_DECL ia_child::~ia_child() {
  ia_->remove(*this);
  ia_->release();
}
DAT_DECL void ia_child::on_last_release(counted& c) noexcept {
  auto& self = static_cast<ia_child&>(c);
  if (self.foreign()) return; // the object belongs to the parent process
  self.end();
  self.type_.destroy(self);
}
DAT_DECL bool ia_child::begin_end() noexcept {
  if (foreign() || dead_.exchange(true, std::memory_order_seq_cst)) return false;
  inside_dat::enter();
  ia_->hide(*this);
  return true;
}
DAT_DECL void ia_child::finish_end() noexcept {
  if (has_place_) ia_->leave_place(kind());
  if (kind() != child_kind::connection) ia_->release_adapter();
  inside_dat::leave();
}

DAT_DECL expected<void> ia_child::take_place(return_subtype resource) noexcept {
  has_place_ = ia_->take_place(kind());
  if (has_place_) return success();
  return error(return_type::insufficient_resources, resource)
      .hint("The ia has as many objects of this kind as the adapter's attributes report (ia::query). Close some of "
            "them.");
}

/// The number of objects of a kind that the attributes report.
[[nodiscard]] DAT_DECL int most_of(child_kind kind, const ibv_device_attr& d) noexcept {
  switch (kind) {
  case child_kind::window:
    return d.max_mw;
  case child_kind::endpoint:
    return d.max_qp;
  case child_kind::shared_queue:
    return d.max_srq;
  case child_kind::memory:
    return d.max_mr;
  case child_kind::events:
    return d.max_cq;
  default:
    return d.max_pd;
  }
}

DAT_DECL bool ia_core::take_place(child_kind kind) noexcept {
  const std::lock_guard lock(mutex_);
  int& taken = places_[static_cast<std::size_t>(kind)];
  if (taken >= most_of(kind, device_)) return false;
  ++taken;
  return true;
}
DAT_DECL void ia_core::leave_place(child_kind kind) noexcept {
  const std::lock_guard lock(mutex_);
  --places_[static_cast<std::size_t>(kind)];
}

DAT_DECL void ia_core::add(ia_child& c) noexcept {
  const std::lock_guard lock(mutex_);
  children(c.kind()).push_back(c);
}
DAT_DECL void ia_core::remove(ia_child& c) noexcept {
  const std::lock_guard lock(mutex_);
  c.unlink();
}
DAT_DECL void ia_core::hide(ia_child& c) noexcept {
  const std::lock_guard lock(mutex_);
  c.published_.store(false, std::memory_order_relaxed);
}

DAT_DECL bool ia_core::in_use() noexcept {
  const std::lock_guard lock(mutex_);
  return has_child_in_use();
}
DAT_DECL bool ia_core::known_in_use() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock && has_child_in_use();
}
DAT_DECL bool ia_core::has_child_in_use() noexcept {
  for (auto& of_kind : children_)
    for (ia_child* c = of_kind.front(); c; c = of_kind.after(*c))
      if (!c->dead() && c->kind() != child_kind::connection && c != own_evd_) return true;
  return false;
}

DAT_DECL bool ia_core::can_close_here() noexcept {
  if (inside_dat::here()) return false;
  const auto last = clock::now() + std::chrono::seconds(1);
  bool in_time = true;
  const auto await = [&](auto in_use) noexcept {
    for (int looks = 0; in_time && in_use(); ++looks) {
      // Another thread releases its lock within microseconds. The interrupted thread cannot: sleep, as a handler may.
      if (looks < 100)
        ::sched_yield();
      else
        ::poll(nullptr, 0, 1);
      in_time = clock::now() < last;
    }
  };
  const auto await_evd = [&](const ia_child& evd) noexcept {
    if (const auto in_use = evd.type().in_use) await([&] { return in_use(evd); });
  };
  if (const window_table* const t = windows.load(std::memory_order_acquire)) await([t] { return t->in_use(*t); });
  if (borrowed_evd_) await_evd(*borrowed_evd_);
  for_each(child_kind::events, await_evd);
  return in_time;
}

DAT_DECL void ia_core::end_waits() noexcept {
  // Sequentially consistent: a waiter that begins to sleep after this sees it.
  closed_.store(true, std::memory_order_seq_cst);
  closing.raise();
  for_each(child_kind::events, [](ia_child& evd) noexcept { evd.type().on_close(evd); });
}

DAT_DECL void ia_core::close_abruptly() noexcept {
  end_waits();
  for (std::size_t kind = 0; kind < child_kinds; ++kind) end_all(static_cast<child_kind>(kind));
  reactor.settle(); // releases the references that the reactor holds for a short time
  until_closed_ = {};
}

DAT_DECL void ia_core::close_gracefully() noexcept {
  end_waits(); // for asynchronous events
  end_all(child_kind::connection);
  reactor.settle(); // the reactor may be ending one of them itself
  until_closed_ = {};
}

DAT_DECL void ia_core::end_all(child_kind kind) noexcept {
  for (;;) {
    ref<ia_child> victim;
    {
      const std::lock_guard lock(mutex_);
      ia_child* const c = children(kind).pop_front(); // the destructor's own unlink then has no effect
      if (!c) return;
      if (c->try_add_ref()) victim = ref<ia_child>(c, adopt);
    }
    if (victim) victim->end();
  }
}

// --- opening and closing ---------------------------------------------------------------------------------------------

DAT_DECL ia_core::ia_core() noexcept : counted([](counted& c) noexcept { static_cast<ia_core&>(c).last_release(); }) {}
DAT_DECL ia_core::~ia_core() {
  if (window_table* const t = windows.load(std::memory_order_relaxed)) t->destroy(*t);
  if (posts_observer* const w = posts_observed_by.load(std::memory_order_relaxed)) w->destroy(*w);
}

DAT_DECL std::uint16_t ia_core::pkey_index() const noexcept {
  if (ethernet_) return 0;
  // The subnet manager may change the table at any time, so each call queries it.
  const int index = ibv_get_pkey_index(context(), where_.port, htobe16(where_.pkey));
  return static_cast<std::uint16_t>(index < 0 ? 0 : index);
}

DAT_DECL bool ia_core::is_ours(const rdma_cm_id& id) const noexcept {
  return id.verbs && id.port_num == where_.port && name() == ibv_get_device_name(id.verbs->device);
}

/// Counts the forks of this process from now on, and closes descriptors in the children. Returns 0 or an errno.
[[nodiscard]] DAT_DECL int count_forks() noexcept {
  static const int err = ::pthread_atfork(&closed_on_fork::before_fork, &closed_on_fork::in_parent, []() noexcept {
    closed_on_fork::in_child();
    forks.fetch_add(1, std::memory_order_relaxed);
  });
  return err;
}

DAT_DECL result<ref<ia_core>> ia_core::open(const adapter_location& where, bool automatic,
                                            const dat::qos& qos) noexcept {
  const inside_dat section;
  static constexpr const char* call = "ia.open";
  const auto failed = [](const char* verb, int err, return_subtype resource = return_subtype::resource_device) {
    return map_errno(err, resource).at(call, object_kind::ia).from(verb, err);
  };
  ref<ia_core> core(new (std::nothrow) ia_core, adopt);
  if (!core) return failed("operator new", ENOMEM, return_subtype::resource_memory);
  core->where_ = where;
  core->automatic_ = automatic;
  core->qos_ = qos;
  if (const int err = count_forks()) return failed("pthread_atfork", err, return_subtype::resource_memory);
  // Before Linux 5.12 a fork moves the parent to copies of its registered pages, while the adapter keeps the originals.
  // Verbs itself checks whether the kernel needs the call. It refuses the call when the process has already registered
  // memory.
  if (ibv_is_fork_initialized() == IBV_FORK_DISABLED) (void)ibv_fork_init();

  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (!list) return failed("ibv_get_device_list", errno);
  ibv_device* found = nullptr;
  for (int i = 0; i < count; ++i)
    if (core->name() == ibv_get_device_name(list[i])) found = list[i];
  if (found) core->context_.reset(ibv_open_device(found));
  const int open_errno = errno;
  ibv_free_device_list(list);
  if (!found)
    return error(return_type::provider_not_found, return_subtype::name_not_registered).at(call, object_kind::ia);
  if (!core->context_) return failed("ibv_open_device", open_errno);

  ibv_device_attr_ex device{};
  if (const int err = ibv_query_device_ex(core->context(), nullptr, &device)) return failed("ibv_query_device", err);
  core->device_ = device.orig_attr;
  core->extended_ops_ = extended_ops_of(device.device_cap_flags_ex);
  core->flush_access_ = flush_access_of(device.device_cap_flags_ex);
  ibv_port_attr port{};
  if (const int err = ibv_query_port(core->context(), where.port, &port)) return failed("ibv_query_port", err);
  core->max_message_ = min(port.max_msg_sz, longest_message);
  core->ethernet_ = port.link_layer == IBV_LINK_LAYER_ETHERNET;

  core->channel_.reset(rdma_create_event_channel());
  if (!core->channel_) return failed("rdma_create_event_channel", errno);
  if (const int err = core->work.reserve()) return failed("mmap", err, return_subtype::resource_memory);
  if (const int err = core->closing.open()) return failed("eventfd", err);
  if (const int err = core->reactor.open()) return failed("epoll_create1", err);
  for (const int fd : {core->channel_->fd, core->context_->async_fd})
    if (const int err = make_nonblocking(fd)) return failed("fcntl", err);
  core->cm_source_ = {{&on_cm}, core.get(), core->channel_->fd, "rdma_get_cm_event"};
  core->async_source_ = {{&on_async}, core.get(), core->context_->async_fd, "ibv_get_async_event"};
  for (member_source* s : {&core->cm_source_, &core->async_source_})
    if (const int err = core->reactor.watch(s->fd, *s)) return failed("epoll_ctl", err);
  if (automatic)
    if (const int err = core->reactor.start(&service, core.get()))
      return failed("pthread_create", err, return_subtype::resource_error_handler);
  return core;
}

DAT_DECL void* ia_core::service(void* self) noexcept {
  auto* core = static_cast<ia_core*>(self);
  core->reactor.loop();
  if (core->orphaned_) delete core;
  return nullptr;
}

DAT_DECL void ia_core::last_release() noexcept {
  if (foreign()) return;
  // Deleting joins the service thread. When that thread itself released the last reference, it finishes its round first
  // and deletes the object when it ends.
  orphaned_ = reactor.on_service_thread();
  reactor.stop();
  if (!orphaned_) delete this;
}

DAT_DECL expected<void> ia_core::check_remote(const ia_address& to) const noexcept {
  const ia_address* own = address(to.family());
  if (to.is_loopback() && !(own && own->is_loopback()))
    return error(return_type::invalid_address, return_subtype::address_unsupported)
        .hint(
            "RDMA adapters have no loopback address. To connect to this host, use the address of one of its adapters, "
            "such as ia.address().");
  return to.check(address_role::remote);
}

DAT_DECL expected<void> ia_core::check_infiniband() const noexcept {
  if (!iwarp()) return success();
  return error(return_type::model_not_supported)
      .hint("The adapter is one of iWARP, which has no datagrams, no multicast and no connections by descriptors.");
}

}}} // namespace dat::v0::detail
