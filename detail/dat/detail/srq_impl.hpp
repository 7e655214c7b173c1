// Definitions of shared_queue and srq_core.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/basics.hpp>
#include <dat/detail/core.hpp>
#include <dat/detail/errno.hpp>
#include <dat/detail/handle.hpp>

#include <cerrno>

namespace dat::inline v0::detail {

// --- posting -------------------------------------------------------------------------------------------------------

inline error shared_queue::gone() const noexcept {
  if (this == &no_srq) return empty_handle("srq.post", return_subtype::handle_srq);
  return at({return_type::invalid_handle, return_subtype::handle_srq}, "srq.post").hint("the srq is closed");
}

inline expected<void> shared_queue::full(work_entry** entries, std::uint32_t taken) noexcept {
  for (std::uint32_t i = 0; i < taken; ++i) give_back(*entries[i]);
  if (!native()) return gone();
  return at({return_type::insufficient_resources, return_subtype::resource_srq}, "srq.post")
      .hint("as many buffers are outstanding as the queue has room for: take completions of its endpoints first, or "
            "resize it");
}

inline expected<void> shared_queue::not_posted(int err, work_entry** entries, std::uint32_t n,
                                               std::uint32_t taken) noexcept {
  // A queue that failed hands its buffers back when it is closed, and not before: these are among them
  // (uDAPL 2.0 §6.5.7).
  if (failed_.load(std::memory_order_acquire)) return success();
  if (err == refused) taken = 0;
  for (std::uint32_t i = taken; i < n; ++i) give_back(*entries[i]);
  if (err == refused) return gone();
  return at(map_errno(err, return_subtype::resource_srq, true).from("ibv_post_srq_recv", err), "srq.post").index(taken);
}

// --- creation and end ----------------------------------------------------------------------------------------------

inline srq_core::srq_core(ref<pz_core> pz) noexcept : ia_child(ref(&pz->ia()), table), pz_(std::move(pz)) {
  pz_->users.fetch_add(1, std::memory_order_relaxed);
  entries_ = ia().work.base();
}

inline result<ref<srq_core>> srq_core::create(const ref<pz_core>& pz, const srq_attributes& wanted) noexcept {
  static constexpr const char* call = "pz.create_srq";
  const auto refuse = [](return_type type, return_subtype subtype, const char* hint) {
    return error(type, subtype).at(call, object_kind::srq).hint(hint);
  };
  if (pz->dead()) return error(return_type::invalid_handle, return_subtype::handle_pz).at(call, object_kind::srq);
  const ibv_device_attr& device = pz->ia().device();
  if (device.max_srq <= 0)
    return refuse(return_type::model_not_supported, return_subtype::none, "this adapter has no shared receive queues");
  const auto most = smaller(static_cast<std::uint32_t>(device.max_srq_wr), max_ring);
  if (wanted.max_recv_dtos == 0 || wanted.max_recv_dtos > most || wanted.max_recv_iov == 0 ||
      wanted.max_recv_iov > static_cast<std::uint32_t>(device.max_srq_sge))
    return refuse(return_type::invalid_parameter, return_subtype::arg3,
                  "max_recv_dtos and max_recv_iov must be at least 1 and at most the device's max_srq_wr and "
                  "max_srq_sge");
  ref<srq_core> q(new (std::nothrow) srq_core(pz), adopt);
  if (!q) return error(return_type::insufficient_resources, return_subtype::resource_memory).at(call, object_kind::srq);
  ibv_srq_init_attr init{};
  init.srq_context = q.get();
  init.attr.max_wr = wanted.max_recv_dtos;
  init.attr.max_sge = wanted.max_recv_iov;
  ibv_srq* const made = ibv_create_srq(pz->pd(), &init);
  if (!made)
    return map_errno(errno, return_subtype::resource_srq, true)
        .at(call, object_kind::srq)
        .from("ibv_create_srq", errno);
  q->srq_ = made;
  q->number_ = made->handle;
  ibv_srq_attr real{};
  if (const int err = ibv_query_srq(made, &real))
    return map_errno(err, return_subtype::resource_srq).at(call, object_kind::srq).from("ibv_query_srq", err);
  const auto size = within(wanted.max_recv_dtos, real.max_wr, most);
  if (!q->add_entries(size))
    return error(return_type::insufficient_resources, return_subtype::resource_memory).at(call, object_kind::srq);
  q->capacity_.store(size, std::memory_order_relaxed);
  q->max_iov_ = larger(wanted.max_recv_iov, real.max_sge);
  q->zone_ = common_zone(pz.get());
  return q;
}

inline bool srq_core::add_entries(std::uint32_t n) noexcept {
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

inline void srq_core::teardown() noexcept {
  {
    const std::lock_guard lock(mutex_);
    zone_ = common_zone::none();
    free_.store(0, std::memory_order_release);
    if (native()) ibv_destroy_srq(std::exchange(srq_, nothing.srq()));
  }
  {
    const std::lock_guard lock(ia().work_mutex);
    for (const block* b = blocks_; b; b = b->older) work_arena::forget(b->first, b->count);
  }
  // A thread that found this queue by a completion which an endpoint has left behind is inside an evd; wait until it
  // has left.
  ia().for_each(child_kind::events, [](ia_child& c) {
    if (merged_evd* m = merged(static_cast<evd_core*>(&c))) m->barrier();
  });
  {
    const std::lock_guard lock(ia().work_mutex);
    for (const block* b = blocks_; b; b = b->older) ia().work.free(b->first, b->count);
  }
  pz_->users.fetch_sub(1, std::memory_order_release);
}

inline error srq_core::in_error(const char* call) const noexcept {
  return at({return_type::invalid_state, return_subtype::srq_error}, call)
      .hint("the device cannot read the queue any more: close its endpoints, then the queue");
}

// --- size ----------------------------------------------------------------------------------------------------------

inline int srq_core::ask_size(std::uint32_t& size) const noexcept {
  ibv_srq_attr real{};
  const int err = ibv_query_srq(srq_, &real);
  if (err == 0) size = smaller(real.max_wr, max_ring);
  return err;
}

inline bool srq_core::withdraw(std::uint32_t n) noexcept {
  for (std::uint32_t i = 0; i < n; ++i) {
    work_entry* e;
    if (!take(e)) {
      put_back(i);
      return false;
    }
    store(e->next, spare_); // others may be looking at what was on top
    spare_ = e;
    ++spares_;
  }
  return true;
}

inline void srq_core::put_back(std::uint32_t n) noexcept {
  for (; n != 0; --n, --spares_) {
    work_entry* const e = spare_;
    spare_ = e->next;
    give_back(*e);
  }
}

inline expected<void> srq_core::resize(std::uint32_t n) noexcept {
  static constexpr const char* call = "srq.resize";
  const std::lock_guard lock(mutex_);
  if (!native()) return at({return_type::invalid_handle, return_subtype::handle_srq}, call);
  if (failed()) return in_error(call);
  if (n == 0 || n > smaller(static_cast<std::uint32_t>(ia().device().max_srq_wr), max_ring))
    return at({return_type::invalid_parameter, return_subtype::arg2}, call)
        .hint("the size must be at least 1 and at most the device's max_srq_wr");
  if (n < low_)
    return at({return_type::invalid_state, return_subtype::srq_in_use}, call)
        .hint("the low watermark is higher than that: lower it first");
  return n < capacity() ? shrink(n) : n > capacity() ? grow(n) : success();
}

/// Entries first: what a post takes meanwhile is not taken from it again.
inline expected<void> srq_core::shrink(std::uint32_t n) noexcept {
  const std::uint32_t before = capacity();
  if (!withdraw(before - n))
    return at({return_type::invalid_state, return_subtype::srq_in_use}, "srq.resize")
        .hint("more buffers are outstanding than the new size has room for: take completions first");
  ibv_srq_attr attr{};
  attr.max_wr = n;
  std::uint32_t now = n;
  // A queue may stay larger than it was asked to be: a device that refuses leaves it as it was.
  if (ibv_modify_srq(srq_, &attr, IBV_SRQ_MAX_WR) != 0)
    now = before;
  else if (ask_size(now) == 0)
    now = within(n, now, before);
  put_back(now - n);
  capacity_.store(now, std::memory_order_relaxed);
  return success();
}

inline expected<void> srq_core::grow(std::uint32_t n) noexcept {
  static constexpr const char* call = "srq.resize";
  const std::uint32_t before = capacity();
  ibv_srq_attr attr{};
  attr.max_wr = n;
  const int err = ibv_modify_srq(srq_, &attr, IBV_SRQ_MAX_WR);
  std::uint32_t now = n;
  const bool asked = ask_size(now) == 0;
  if (err != 0 && !(asked && now >= n)) {
    const bool cannot = err == EINVAL || err == EOPNOTSUPP || err == ENOSYS; // some devices never resize
    return at(map_errno(cannot ? ENOMEM : err, return_subtype::resource_srq).from("ibv_modify_srq", err), call)
        .hint("the device does not give the queue more room: create it with the size that it is to have");
  }
  now = larger(now, n);
  const std::uint32_t more = now - before;
  const std::uint32_t kept = smaller(more, spares_);
  if (!add_entries(more - kept))
    return at({return_type::insufficient_resources, return_subtype::resource_memory}, call);
  put_back(kept);
  capacity_.store(now, std::memory_order_relaxed);
  return success();
}

// --- watermark and counts ------------------------------------------------------------------------------------------

inline bool srq_core::count_available(std::uint32_t& n) noexcept {
  bool known = true;
  ia().for_each_endpoint([&](ep_core& ep) {
    ref<evd_core> e;
    ep.locked([&](ep_core& one) {
      if (one.srq().get() == this) e = one.evds().recv;
    });
    if (!e) return;
    if (merged_evd* m = merged(e.get()))
      m->drain();
    else
      known = false; // only the device knows what is in that queue
  });
  const std::uint32_t held = held_.load(std::memory_order_relaxed);
  const std::uint32_t all = outstanding();
  n = all > held ? all - held : 0;
  return known;
}

inline expected<void> srq_core::set_low_watermark(std::uint32_t low) noexcept {
  static constexpr const char* call = "srq.set_low_watermark";
  const std::lock_guard lock(mutex_);
  if (!native()) return at({return_type::invalid_handle, return_subtype::handle_srq}, call);
  if (failed()) return in_error(call);
  if (low > capacity())
    return at({return_type::invalid_parameter, return_subtype::arg2}, call)
        .hint("the watermark is higher than the queue has room for buffers");
  ibv_srq_attr attr{};
  attr.srq_limit = low;
  if (const int err = ibv_modify_srq(srq_, &attr, IBV_SRQ_LIMIT))
    return at(map_errno(err, return_subtype::resource_srq).from("ibv_modify_srq", err), call);
  rearmed_ = rearmed_ || low_ != 0;
  low_ = low;
  armed_ = low != 0;
  if (!armed_) return success();
  // The device looks only when a buffer is taken.
  std::uint32_t there;
  if (!count_available(there)) there = outstanding(); // or fewer
  if (there >= low) return success();
  attr.srq_limit = 0;
  (void)ibv_modify_srq(srq_, &attr, IBV_SRQ_LIMIT); // if it tells all the same, that is not told again
  raise_low();
  return success();
}

inline void srq_core::query(srq_params& p) noexcept {
  const std::lock_guard lock(mutex_);
  p.state = failed() ? srq_state::error : srq_state::operational;
  p.pz = pz_.get();
  p.max_recv_dtos = capacity();
  p.max_recv_iov = max_iov_;
  p.low_watermark = low_;
  std::uint32_t there;
  const bool known = count_available(there);
  p.outstanding = outstanding();
  if (known) p.available = smaller(there, p.outstanding);
}

} // namespace dat::inline v0::detail
