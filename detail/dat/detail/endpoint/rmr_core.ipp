// Definitions of rmr_core.hpp: everything but the common case, a bind of a window for a zone.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/inside_dat.hpp>
#include <dat/detail/endpoint/rmr_core.hpp>
#include <dat/detail/text/errno.hpp>

#include <array>
#include <cerrno>
#include <mutex>
#include <new>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

// --- creation and end ------------------------------------------------------------------------------------------------

DAT_DECL result<ref<rmr_core>> rmr_core::create(const ref<pz_core>& pz, bool for_ep) noexcept {
  const inside_dat section;
  const char* const call = for_ep ? "pz.create_rmr_for_ep" : "pz.create_rmr";
  const auto none = [&] {
    return error(return_type::insufficient_resources, return_subtype::resource_memory).at(call, object_kind::rmr);
  };
  if (!pz || pz->dead()) return empty_handle(call, return_subtype::handle_pz);
  const unsigned needed =
      for_ep ? IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B : IBV_DEVICE_MEM_WINDOW;
  if ((pz->ia().device().device_cap_flags & needed) == 0)
    return error(return_type::model_not_supported)
        .at(call, object_kind::rmr)
        .hint("This adapter has no memory windows of that scope.");
  windows_of_ia* const all = table_of(pz->ia());
  if (!all) return none();
  ref<rmr_core> made(new (std::nothrow) rmr_core(pz, *all, for_ep), adopt);
  if (!made) return none();
  if (auto ok = made->take_place(return_subtype::resource_memory_region); !ok)
    return ok.assume_error().at(call, object_kind::rmr);
  const std::lock_guard lock(all->mutex);
  if (auto ok = made->provide(call); !ok) return ok.assume_error();
  return made;
}

DAT_DECL rmr_core::rmr_core(ref<pz_core> pz, windows_of_ia& all, bool for_ep) noexcept
    : ia_child(ref(&pz->ia()), table), pz_(std::move(pz)), table_(all), for_ep_(for_ep) {
  pz_->users.fetch_add(1, std::memory_order_relaxed);
}

DAT_DECL void rmr_core::teardown() noexcept {
  ref<rmr_core> over; // released without the lock
  {
    const std::lock_guard lock(table_.mutex);
    discard_window();
    over = forget_bind();
    leave_table();
  }
  pz_->users.fetch_sub(1, std::memory_order_release);
}

DAT_DECL expected<void> rmr_core::provide(const char* call) noexcept {
  window_ = ibv_alloc_mw(pz_->pd(), for_ep_ ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1);
  if (!window_) return at(map_errno(errno, return_subtype::resource_memory_region).from("ibv_alloc_mw", errno), call);
  leave_table();
  key_ = window_->rkey;
  rmr_core*& chain = table_.chain(key_);
  next_ = chain;
  chain = this;
  return success();
}

DAT_DECL void rmr_core::leave_table() noexcept {
  for (rmr_core** p = &table_.chain(key_); *p; p = &(*p)->next_)
    if (*p == this) {
      *p = next_;
      return;
    }
}

DAT_DECL void rmr_core::discard_window() noexcept {
  if (window_) ibv_dealloc_mw(window_);
  window_ = nullptr;
  current_->end();
}

// --- binding ---------------------------------------------------------------------------------------------------------

DAT_DECL error rmr_core::wrong_zone(const char* call) const noexcept {
  return at(error(return_type::protection_violation), call)
      .hint("The rmr, the lmr and the endpoint must be of one pz.");
}

DAT_DECL error rmr_core::no_such_memory(bool region) const noexcept {
  if (!region)
    return at(error(return_type::invalid_handle, return_subtype::handle_lmr), bind_call)
        .hint("The lmr is empty or closed.");
  return at({return_type::invalid_parameter, return_subtype::arg3}, bind_call)
      .hint(
          "The elements [first, first + count) must lie inside the lmr, and count must not be 0. To close the window, "
          "call unbind.");
}

DAT_DECL result<std::uint32_t> rmr_core::bind_otherwise(ep_core* ep, window_place to, bind_flags flags) noexcept {
  const lmr_core* const region = to.region;
  if (region->dead()) return no_such_memory(false);
  if (region->pz() != pz_.get()) return wrong_zone(bind_call);
  if (!region->bindable())
    return at({return_type::privileges_violation, return_subtype::privileges_write}, bind_call)
        .hint("Memory that the process may not write, on-demand memory and dmabuf memory cannot be bound.");
  if (to.zero_based && !for_ep_)
    return at(error(return_type::model_not_supported), bind_call)
        .hint("Only an rmr of create_rmr_for_ep can be zero-based.");
  if (for_ep_) to.through = ep;
  return start(bind_call, ep, to, flags);
}

DAT_DECL expected<void> rmr_core::unbind(ep_core* ep, bind_flags flags) noexcept {
  auto started = start(unbind_call, ep, window_place(), flags);
  if (!started) return started.assume_error();
  return success();
}

DAT_DECL result<std::uint32_t> rmr_core::start(const char* call, ep_core* ep, const window_place& wanted,
                                               bind_flags flags) noexcept {
  if (dead()) return at(error(return_type::invalid_handle, return_subtype::handle_rmr), call);
  if (!ep || ep->dead()) return at(error(return_type::invalid_handle, return_subtype::handle_ep), call);
  if (!ep->takes_requests()) return ep->wrong_state(call);
  if (ep->pz() != pz_.get()) return wrong_zone(call);
  if (!includes(ep->evds().request->stream_set(), streams::rmr_bind))
    return at(error(return_type::invalid_parameter, return_subtype::arg6), call)
        .hint("The request evd of the endpoint must take completions of binds: create it with dat::stream::dto | "
              "dat::stream::rmr_bind.");
  if (flags.no_notify && !ep->takes_no_notify_requests())
    return at(error(return_type::invalid_parameter, return_subtype::arg8), call).hint(no_notify_hint);
  const std::lock_guard lock(table_.mutex);
  if (posted_to_)
    return at(error(return_type::invalid_state), call)
        .hint("A bind of this rmr is posted already: take its completion first.");
  if (current_->through && current_->through != ep) {
    if (current_->through->state() == ep_state::connected)
      return at(error(return_type::invalid_state), call)
          .hint("The rmr is bound through another endpoint: unbind it there first.");
    discard_window(); // the endpoint of the old binding can no longer post the unbind
  }
  if (!window_)
    if (auto ok = provide(call); !ok) return ok.assume_error();
  if (!wanted && !*current_) return post_nothing(call, *ep, flags);
  if (for_ep_) return post_type_2(call, *ep, wanted, flags);
  return post_type_1(call, *ep, wanted ? *wanted.region : *current_->region, wanted,
                     wanted ? dto_operation::bind : dto_operation::unbind, flags);
}

DAT_DECL error rmr_core::refused(const char* call, const char* verb, int err) noexcept {
  trace_points::refused(posted_to_->number(), 1u, err);
  const ref<rmr_core> over = forget_bind(); // the handle keeps the object
  return at(map_errno(err, return_subtype::resource_tep, true).from(verb, err), call);
}

DAT_DECL result<std::uint32_t> rmr_core::post_type_2(const char* call, ep_core& ep, const window_place& wanted,
                                                     bind_flags flags) noexcept {
  // A window of this type must be unbound before it is bound. So there are two requests, and the second one
  // completes.
  const std::uint32_t old = window_->rkey;
  const std::uint32_t key = wanted ? ibv_inc_rkey(old) : old;
  const std::uint32_t n = wanted && *current_ ? 2 : 1;
  work_ring& ring = ep.requests();
  work_entry* const first = ring.next();
  if (!ring.has_room(first, n)) {
    const error full = ep.queue_full(call, 0);
    if (n == 2) return full.hint("A bind of a bound rmr takes two places of max_request_dtos, and fewer are free.");
    return full;
  }
  work_entry* const last = n == 2 ? first->next : first;
  std::array<ibv_send_wr, 2> wr{};
  if (*current_) {
    wr[0].opcode = IBV_WR_LOCAL_INV;
    wr[0].wr_id = first->id();
    wr[0].invalidate_rkey = old;
    wr[0].send_flags = flags.flags & ~static_cast<unsigned>(IBV_SEND_SIGNALED);
    stage(*first, dto_operation::unbind, key, flags);
    first->posted.kind = with_bits(first->posted.kind, first_half_bit);
  }
  ibv_send_wr& second = wr[n - 1];
  second.wr_id = last->id();
  second.send_flags = flags.flags | IBV_SEND_SIGNALED;
  if (n == 2) wr[0].next = &second;
  const dto_operation operation = wanted ? dto_operation::bind : dto_operation::unbind;
  stage(*last, operation, key, flags);
  if (wanted) {
    second.opcode = IBV_WR_BIND_MW;
    second.bind_mw.mw = window_;
    second.bind_mw.rkey = key;
    second.bind_mw.bind_info = {wanted.region->mr(), wanted.address, wanted.length,
                                window_access(wanted.rights) |
                                    (wanted.zero_based ? unsigned{IBV_ACCESS_ZERO_BASED} : 0u)};
  }
  expect_bind(ep, wanted, operation, old, key);
  ring.set_next(last->next);
  ibv_send_wr* bad = wr.data();
  trace_points::post(ep.number(), operation, 0, flags.cookie.value());
  if (const int err = ibv_post_send(ep.qp(), wr.data(), &bad)) {
    const bool freed = n == 2 && bad == &second; // the window loses its binding and gets no new one
    ring.set_next(freed ? last : first);
    if (freed) current_->end();
    return refused(call, "ibv_post_send", err);
  }
  window_->rkey = key; // verbs leaves this check to the caller of ibv_post_send
  return key;
}

/// A request without effect, in the order of the queue.
DAT_DECL result<std::uint32_t> rmr_core::post_nothing(const char* call, ep_core& ep, bind_flags flags) noexcept {
  work_ring& ring = ep.requests();
  work_entry* const e = ring.next();
  if (!ring.has_room(e, 1)) return ep.queue_full(call, 0);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = flags.flags | IBV_SEND_SIGNALED;
  wr.wr_id = e->id();
  stage(*e, dto_operation::unbind, window_->rkey, flags);
  expect_bind(ep, window_place(), dto_operation::unbind, window_->rkey, window_->rkey);
  ring.set_next(e->next);
  ibv_send_wr* bad;
  trace_points::post(ep.number(), dto_operation::unbind, 0, flags.cookie.value());
  if (const int err = ibv_post_send(ep.qp(), &wr, &bad)) {
    ring.set_next(e);
    return refused(call, "ibv_post_send", err);
  }
  return window_->rkey;
}

// --- the windows of an ia --------------------------------------------------------------------------------------------

DAT_DECL windows_of_ia* rmr_core::table_of(ia_core& ia) noexcept {
  if (window_table* const t = ia.windows.load(std::memory_order_acquire)) return static_cast<windows_of_ia*>(t);
  auto* const made = new (std::nothrow) windows_of_ia;
  window_table* other = nullptr;
  if (!made || ia.windows.compare_exchange_strong(other, made, std::memory_order_acq_rel)) return made;
  delete made;
  return static_cast<windows_of_ia*>(other);
}

DAT_DECL windows_of_ia::windows_of_ia() noexcept
    : window_table{
          [](window_table& t, std::uint32_t key) noexcept {
            return static_cast<windows_of_ia&>(t).bind_done_here(key);
          },
          [](window_table& t, std::uint32_t key, bool first_half) noexcept {
            return static_cast<windows_of_ia&>(t).bind_failed_here(key, first_half);
          },
          [](window_table& t, std::uint32_t key) noexcept {
            return static_cast<windows_of_ia&>(t).invalidated_here(key);
          },
          [](window_table& t, const ia_child& user) noexcept { static_cast<windows_of_ia&>(t).release_here(user); },
          [](window_table& t) noexcept { delete static_cast<windows_of_ia*>(&t); },
          [](const window_table& t) noexcept { return static_cast<const windows_of_ia&>(t).mutex.in_use(); }} {}

/// The window whose outstanding bind has that key; null when there is none.
DAT_DECL rmr_core* windows_of_ia::find_bound(std::uint32_t key) noexcept {
  rmr_core* const w = find(key);
  return w && w->posted_to_ && w->pending_->key == key ? w : nullptr;
}

DAT_DECL bind_outcome windows_of_ia::bind_done_here(std::uint32_t key) noexcept {
  ref<rmr_core> over; // released without the lock
  const std::lock_guard lock(mutex);
  rmr_core* const w = find_bound(key);
  if (!w) return {};
  // The region of a binding may have ended meanwhile, and with it the window and both bindings. Otherwise the old
  // binding is the pending one now, and ends.
  if (w->window_) std::swap(w->current_, w->pending_);
  over = w->forget_bind();
  return {w, w->operation_};
}

DAT_DECL bind_outcome windows_of_ia::bind_failed_here(std::uint32_t key, bool first_half) noexcept {
  ref<rmr_core> over; // released without the lock
  const std::lock_guard lock(mutex);
  rmr_core* const w = find_bound(key);
  if (!w) return {};
  const bind_outcome outcome{w->told_ ? nullptr : w, w->operation_};
  if (first_half) { // the second half is outstanding, and its flush is no event
    w->told_ = true;
    return outcome;
  }
  if (w->window_) w->window_->rkey = w->old_key_; // the device does not know the new key
  over = w->forget_bind();
  return outcome;
}

DAT_DECL bool windows_of_ia::invalidated_here(std::uint32_t key) noexcept {
  const std::lock_guard lock(mutex);
  rmr_core* const w = find(key);
  if (!w || !w->for_ep_) return false;
  // The peer may have had the key since the bind was posted. So its message may overtake the completion of the bind,
  // which then leaves the window unbound.
  window_binding& named = *w->pending_ && w->pending_->key == key ? *w->pending_ : *w->current_;
  if (!named || named.key != key) return false;
  named.end();
  return true;
}

DAT_DECL void windows_of_ia::release_here(const ia_child& user) noexcept {
  for (bool more = true; more;) {
    more = false;
    ref<rmr_core> over; // released without the lock
    const std::lock_guard lock(mutex);
    for (rmr_core* w : by_key)
      for (; w && !more; w = w->next_) {
        const auto uses = [&](const window_binding& b) {
          return b &&
                 (static_cast<const ia_child*>(b.region) == &user || static_cast<const ia_child*>(b.through) == &user);
        };
        const bool posted = static_cast<const ia_child*>(w->posted_to_) == &user;
        if (!posted && !uses(*w->current_) && !uses(*w->pending_)) continue;
        more = true;
        w->discard_window();
        if (posted) // the completion will not come
          over = w->forget_bind();
        else
          w->pending_->end();
      }
  }
}

}}} // namespace dat::v0::detail
