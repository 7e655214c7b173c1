// Definitions of srq_core.hpp: creation, watermarks, resizing and the end of a shared receive queue.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/config.hpp>
#include <dat/detail/base/inside_dat.hpp>
#include <dat/detail/base/utility.hpp>
#include <dat/detail/endpoint/core.hpp>
#include <dat/detail/handle/handle.hpp>
#include <dat/detail/text/errno.hpp>

#include <cerrno>

namespace dat { inline namespace v0 { namespace detail {

// --- creation and end ----------------------------------------------------------------------------------------------

DAT_DECL srq_core::srq_core(ref<pz_core> pz) noexcept : ia_child(ref(&pz->ia()), table), pz_(std::move(pz)) {
  pz_->users.fetch_add(1, std::memory_order_relaxed);
  entries_ = ia().work.base();
}

DAT_DECL result<ref<srq_core>> srq_core::create(const ref<pz_core>& pz, const srq_attributes& wanted) noexcept {
  const inside_dat section;
  static constexpr const char* call = "pz.create_srq";
  const auto refuse = [](return_type type, return_subtype subtype, const char* hint) {
    return error(type, subtype).at(call, object_kind::srq).hint(hint);
  };
  if (pz->dead()) return error(return_type::invalid_handle, return_subtype::handle_pz).at(call, object_kind::srq);
  const ibv_device_attr& device = pz->ia().device();
  if (device.max_srq <= 0)
    return refuse(return_type::model_not_supported, return_subtype::none, "This adapter has no shared receive queues.");
  const auto most = min(static_cast<std::uint32_t>(device.max_srq_wr), max_ring);
  if (wanted.max_recv_dtos == 0 || wanted.max_recv_dtos > most)
    return refuse(return_type::invalid_parameter, return_subtype::arg3,
                  "max_recv_dtos must be within 1..ia_attributes::max_recv_per_srq.");
  if (wanted.max_recv_iov == 0 || wanted.max_recv_iov > static_cast<std::uint32_t>(device.max_srq_sge))
    return refuse(return_type::invalid_parameter, return_subtype::arg3,
                  "max_recv_iov must be at least 1, and at most the device's limit for a shared queue (max_srq_sge of "
                  "ibv_query_device).");
  ref<srq_core> q(new (std::nothrow) srq_core(pz), adopt);
  if (!q) return error(return_type::insufficient_resources, return_subtype::resource_memory).at(call, object_kind::srq);
  if (auto ok = q->take_place(return_subtype::resource_srq); !ok) return ok.assume_error().at(call, object_kind::srq);
  ibv_srq_init_attr init{};
  init.srq_context = static_cast<ia_child*>(q.get());
  init.attr.max_wr = wanted.max_recv_dtos;
  init.attr.max_sge = wanted.max_recv_iov;
  ibv_srq* const made = ibv_create_srq(pz->pd(), &init);
  if (!made)
    return map_errno(errno, return_subtype::resource_srq, true)
        .at(call, object_kind::srq)
        .from("ibv_create_srq", errno);
  q->srq_ = made;
  q->number_ = made->handle;
  // A driver without ibv_query_srq (siw) has written the actual sizes into `init`.
  ibv_srq_attr real = init.attr;
  if (const int err = ibv_query_srq(made, &real); err != 0 && err != EOPNOTSUPP && err != ENOSYS)
    return map_errno(err, return_subtype::resource_srq).at(call, object_kind::srq).from("ibv_query_srq", err);
  const auto size = within(wanted.max_recv_dtos, real.max_wr, most);
  if (!q->add_entries(size))
    return error(return_type::insufficient_resources, return_subtype::resource_memory).at(call, object_kind::srq);
  q->capacity_.store(size, std::memory_order_relaxed);
  q->fed_.store(size, std::memory_order_relaxed);
  q->max_iov_ = max(wanted.max_recv_iov, real.max_sge);
  q->zone_ = zone_tag(pz.get());
  return q;
}

DAT_DECL bool srq_core::add_entries(std::uint32_t n) noexcept {
  if (n == 0) return true;
  auto* const b = new (std::nothrow) block{nullptr, nullptr, n};
  if (!b) return false;
  {
    const std::lock_guard lock(ia().work_mutex);
    b->first = ia().work.allocate(n);
    if (b->first) (void)ia().work.renew(b->first, n);
  }
  if (!b->first) {
    delete b;
    return false;
  }
  b->older = std::exchange(blocks_, b);
  for (std::uint32_t i = n; i-- > 0;) {
    b->first[i].queue = this;
    b->first[i].posted.kind = shared_recv_work;
    give_back(b->first[i]);
  }
  return true;
}

DAT_DECL void srq_core::teardown() noexcept {
  {
    const std::lock_guard lock(mutex_);
    zone_ = zone_tag::none();
    free_.store(0, std::memory_order_release);
    if (native()) ibv_destroy_srq(std::exchange(srq_, null_device_instance.srq()));
  }
  {
    const std::lock_guard lock(ia().work_mutex);
    for (const block* b = blocks_; b; b = b->older) work_arena::forget(b->first, b->count);
  }
  // A thread that found this queue by a completion may be inside an evd: wait until it has left.
  ia().for_each(child_kind::events, [](ia_child& c) {
    if (merged_evd* m = merged(static_cast<evd_core*>(&c))) m->barrier();
  });
  {
    const std::lock_guard lock(ia().work_mutex);
    for (const block* b = blocks_; b; b = b->older) ia().work.free(b->first, b->count);
  }
  pz_->users.fetch_sub(1, std::memory_order_release);
}

DAT_DECL error srq_core::in_error(const char* call) const noexcept {
  return at({return_type::invalid_state, return_subtype::srq_error}, call)
      .hint("The device can no longer read the queue: close its endpoints, then the queue.");
}

// --- size ----------------------------------------------------------------------------------------------------------

DAT_DECL int srq_core::ask_size(std::uint32_t& size) const noexcept {
  ibv_srq_attr real{};
  const int err = ibv_query_srq(srq_, &real);
  if (err == 0) size = min(real.max_wr, max_ring);
  return err;
}

DAT_DECL bool srq_core::withdraw(std::uint32_t n) noexcept {
  for (std::uint32_t i = 0; i < n; ++i) {
    work_entry* e;
    if (!take(e)) {
      put_back(i);
      return false;
    }
    store(e->next, spare_); // other threads may be reading the previous top
    spare_ = e;
    ++spares_;
  }
  return true;
}

DAT_DECL void srq_core::put_back(std::uint32_t n) noexcept {
  for (; n != 0; --n, --spares_) {
    work_entry* const e = spare_;
    spare_ = e->next;
    give_back(*e);
  }
}

DAT_DECL expected<void> srq_core::resize(std::uint32_t n) noexcept {
  static constexpr const char* call = "srq.resize";
  if (foreign()) return at({return_type::invalid_handle, return_subtype::handle_srq}, call);
  const std::lock_guard lock(mutex_);
  if (!native()) return at({return_type::invalid_handle, return_subtype::handle_srq}, call);
  if (failed()) return in_error(call);
  if (n == 0 || n > min(static_cast<std::uint32_t>(ia().device().max_srq_wr), max_ring))
    return at({return_type::invalid_parameter, return_subtype::arg2}, call)
        .hint("`max_recv_dtos` must be within 1..ia_attributes::max_recv_per_srq.");
  if (n < low_)
    return at({return_type::invalid_state, return_subtype::srq_in_use}, call)
        .hint("The low watermark is higher than max_recv_dtos: lower it first.");
  return n < capacity() ? shrink(n) : n > capacity() ? grow(n) : success();
}

/// Removes entries first: entries that a post takes meanwhile stay in use.
DAT_DECL expected<void> srq_core::shrink(std::uint32_t n) noexcept {
  const std::uint32_t before = capacity();
  if (!withdraw(before - n))
    return at({return_type::invalid_state, return_subtype::srq_in_use}, "srq.resize")
        .hint("More buffers are outstanding than the new size has room for: take completions first.");
  ibv_srq_attr attr{};
  attr.max_wr = n;
  std::uint32_t now = n;
  // A queue may stay larger than requested: a refusal of the device changes nothing.
  if (ibv_modify_srq(srq_, &attr, IBV_SRQ_MAX_WR) != 0)
    now = before;
  else
    (void)ask_size(now); // changes nothing if the device does not report the size
  now = within(n, now, before);
  put_back(now - n);
  capacity_.store(now, std::memory_order_relaxed);
  fed_.store(now, std::memory_order_relaxed);
  return success();
}

DAT_DECL expected<void> srq_core::feed(std::uint32_t n) noexcept {
  // An endpoint attaches its evd, and then reads this number. So either the loop finds the evd, or the endpoint finds
  // the number: the lock of the evd orders both.
  fed_.store(n, std::memory_order_relaxed);
  expected<void> room = success();
  ia().for_each(child_kind::events, [&](ia_child& c) {
    if (room) room = static_cast<evd_core&>(c).grow_feed(this, n);
  });
  return room;
}

DAT_DECL expected<void> srq_core::grow(std::uint32_t n) noexcept {
  static constexpr const char* call = "srq.resize";
  const std::uint32_t before = capacity();
  const auto unchanged = [&](const error& why) {
    fed_.store(before, std::memory_order_relaxed);
    return at(why, call);
  };
  if (auto room = feed(n); !room) return unchanged(room.assume_error());
  ibv_srq_attr attr{};
  attr.max_wr = n;
  const int err = ibv_modify_srq(srq_, &attr, IBV_SRQ_MAX_WR);
  std::uint32_t now = n;
  const bool asked = ask_size(now) == 0;
  if (err != 0 && !(asked && now >= n)) {
    const bool cannot = err == EINVAL || err == EOPNOTSUPP || err == ENOSYS; // some devices never resize
    return unchanged(map_errno(cannot ? ENOMEM : err, return_subtype::resource_srq).from("ibv_modify_srq", err))
        .hint("The device does not give the queue more room: create the queue with its final size.");
  }
  now = max(now, n);
  // The device may have more room than was requested. The queue uses it if the evds have room for it, too.
  if (now != n && !feed(now)) now = n;
  const std::uint32_t more = now - before;
  const std::uint32_t kept = min(more, spares_);
  if (!add_entries(more - kept))
    return unchanged({return_type::insufficient_resources, return_subtype::resource_memory});
  put_back(kept);
  capacity_.store(now, std::memory_order_relaxed);
  fed_.store(now, std::memory_order_relaxed);
  return success();
}

// --- watermark and counts ------------------------------------------------------------------------------------------

DAT_DECL std::uint32_t srq_core::count_available() noexcept {
  ia().for_each(child_kind::endpoint, [&](ia_child& c) {
    auto& ep = static_cast<ep_core&>(c);
    ref<evd_core> e;
    ep.locked([&](ep_core& one) {
      if (one.srq().get() == this) e = one.evds().recv;
    });
    if (e) merged(e.get())->drain(); // ep_core::attach refuses every other evd
  });
  const std::uint32_t held = held_.load(std::memory_order_relaxed);
  const std::uint32_t all = outstanding();
  return all > held ? all - held : 0;
}

DAT_DECL expected<void> srq_core::set_low_watermark(std::uint32_t low) noexcept {
  static constexpr const char* call = "srq.set_low_watermark";
  if (foreign()) return at({return_type::invalid_handle, return_subtype::handle_srq}, call);
  const std::lock_guard lock(mutex_);
  if (!native()) return at({return_type::invalid_handle, return_subtype::handle_srq}, call);
  if (failed()) return in_error(call);
  if (low > capacity())
    return at({return_type::invalid_parameter, return_subtype::arg2}, call)
        .hint("`low` must be at most the number of buffers that the queue has room for: srq_params::max_recv_dtos.");
  ibv_srq_attr attr{};
  attr.srq_limit = low;
  if (const int err = ibv_modify_srq(srq_, &attr, IBV_SRQ_LIMIT))
    return at(map_errno(err, return_subtype::resource_srq).from("ibv_modify_srq", err), call);
  rearmed_ = rearmed_ || low_ != 0;
  low_ = low;
  armed_ = low != 0;
  if (!armed_) return success();
  // The device checks its limit only when a buffer is taken.
  if (count_available() >= low) return success();
  attr.srq_limit = 0;
  (void)ibv_modify_srq(srq_, &attr, IBV_SRQ_LIMIT); // limit_reached ignores an event that has not arrived yet
  raise_low();
  return success();
}

DAT_DECL void srq_core::limit_reached() noexcept {
  const std::lock_guard lock(mutex_);
  if (!armed_ || !native()) return;
  ibv_srq_attr now{};
  // A device that has reported its limit has no limit any longer.
  if (rearmed_ && ibv_query_srq(srq_, &now) == 0 && now.srq_limit != 0) return;
  raise_low();
}

DAT_DECL void srq_core::query(srq_params& p) noexcept {
  const std::lock_guard lock(mutex_);
  p.state = failed() ? srq_state::error : srq_state::operational;
  p.pz = pz_.get();
  p.max_recv_dtos = capacity();
  p.max_recv_iov = max_iov_;
  p.low_watermark = low_;
  const std::uint32_t there = count_available();
  p.outstanding = outstanding();
  p.available = min(there, p.outstanding);
}

}}} // namespace dat::v0::detail
