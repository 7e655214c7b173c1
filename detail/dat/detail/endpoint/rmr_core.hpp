// The memory window behind dat::rmr: its current binding, and the binding of a posted bind.
//
// Three sides change a window: the consumer that binds it, the completion of a bind (or a message that invalidates),
// and an endpoint or a region that ends. One lock for all windows of an ia keeps them apart; it is a leaf, taken for a
// few stores, and for the post itself.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/quick_mutex.hpp>
#include <dat/detail/endpoint/core.hpp>
#include <dat/detail/memory/registration.hpp>
#include <dat/detail/text/errno.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

/// The rights of a window, for its request.
[[nodiscard]] constexpr unsigned window_access(mem_priv rights) noexcept {
  return static_cast<unsigned>(verbs_access(rights)) &
         (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
}

inline constexpr mem_priv remote_rights = mem_priv::remote_read | mem_priv::remote_write | mem_priv::remote_atomic;
[[nodiscard]] constexpr bool includes_any(mem_priv held, mem_priv wanted) noexcept {
  return (held & wanted) != mem_priv::none;
}

/// What a window is bound to; without a region it is unbound.
struct window_place {
  lmr_core* region = nullptr;
  ep_core* through = nullptr; ///< of a window for one endpoint: the only one that the key works on
  std::uint64_t address = 0;  ///< in the region
  std::uint64_t length = 0;
  mem_priv rights{};
  unsigned access = 0; ///< the rights as verbs has them
  bool zero_based = false;
  bool writable = false; ///< the adapter may write to the region

  explicit operator bool() const noexcept { return region != nullptr; }
  /// The address by which a peer names its first byte.
  [[nodiscard]] std::uint64_t first() const noexcept { return zero_based ? 0 : address; }
};

/// The binding of a window: keeps its region, and counts as a user of it.
struct window_binding : window_place {
  std::uint32_t key = 0;
  ref<lmr_core> keeps;

  void set(const window_place& place, std::uint32_t named) noexcept {
    static_cast<window_place&>(*this) = place;
    key = named;
    if (!region) return;
    region->users.fetch_add(1, std::memory_order_relaxed);
    keeps = ref(region);
  }
  /// Ends the binding. The caller releases the region when it holds no lock.
  [[nodiscard]] ref<lmr_core> end() noexcept {
    if (region) region->users.fetch_sub(1, std::memory_order_release);
    region = nullptr;
    through = nullptr; // it may be gone before the next binding
    return std::move(keeps);
  }
  /// Takes over the binding of `o`, which then has none. This one has none before.
  void take(window_binding& o) noexcept {
    static_cast<window_place&>(*this) = o;
    key = o.key;
    keeps = std::move(o.keeps);
    o.region = nullptr;
    o.through = nullptr;
  }
};

/// The flags of a bind's request.
using bind_flags = send_request<0>;

class rmr_core;

/// All windows of an ia, found by their keys.
struct windows_of_ia final : window_table {
  quick_mutex mutex;
  std::array<rmr_core*, 256> by_key{};

  windows_of_ia() noexcept;
  /// The low byte of the key counts the binds; the other bytes identify the window.
  [[nodiscard]] rmr_core*& chain(std::uint32_t key) noexcept { return by_key[(key >> 8) % by_key.size()]; }
  [[nodiscard]] rmr_core* find(std::uint32_t key) noexcept;
};

class rmr_core final : public ia_child {
public:
  static constexpr const char* bind_call = "rmr.bind";
  static constexpr const char* unbind_call = "rmr.unbind";

  [[nodiscard]] static result<ref<rmr_core>> create(const ref<pz_core>& pz, bool for_ep) noexcept {
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
    const std::lock_guard lock(all->mutex);
    if (auto ok = made->provide(call); !ok) return ok.assume_error();
    return made;
  }

  rmr_core(ref<pz_core> pz, windows_of_ia& all, bool for_ep) noexcept
      : ia_child(ref(&pz->ia()), table), pz_(std::move(pz)), table_(all), for_ep_(for_ep) {
    pz_->users.fetch_add(1, std::memory_order_relaxed);
  }

  [[nodiscard]] bool for_ep() const noexcept { return for_ep_; }
  [[nodiscard]] ibv_mw* window() const noexcept { return window_; }
  [[nodiscard]] const pz_core& pz() const noexcept { return *pz_; }
  [[nodiscard]] error at(error e, const char* call) const noexcept { return e.at(call, object_kind::rmr, key_ >> 8); }

  /// Binds to `wanted`, whose address is an offset in the region. Returns the new key.
  [[nodiscard]] result<std::uint32_t> bind(ep_core* ep, window_place& wanted, const bind_flags& flags) noexcept {
    lmr_core* const region = wanted.region;
    if (!region || region->dead())
      return at(error(return_type::invalid_handle, return_subtype::handle_lmr), bind_call)
          .hint("The lmr is empty or closed.");
    if (region->pz() != pz_.get()) return wrong_zone(bind_call);
    if (!region->bindable())
      return at({return_type::privileges_violation, return_subtype::privileges_write}, bind_call)
          .hint("Memory that the process may not write, on-demand memory and dmabuf memory cannot be bound.");
    if (wanted.zero_based && !for_ep_)
      return at(error(return_type::model_not_supported), bind_call)
          .hint("Only an rmr of create_rmr_for_ep can be zero-based.");
    wanted.address += region->address();
    if (for_ep_) wanted.through = ep;
    return start(bind_call, ep, wanted, flags);
  }
  [[nodiscard]] expected<void> unbind(ep_core* ep, const bind_flags& flags) noexcept {
    auto started = start(unbind_call, ep, window_place(), flags);
    if (!started) return started.assume_error();
    return success();
  }

  /// The binding, if there is one; an outstanding bind does not count yet.
  [[nodiscard]] window_binding binding() noexcept {
    const std::lock_guard lock(table_.mutex);
    return current_;
  }
  [[nodiscard]] bool is(std::uint32_t key) noexcept {
    const std::lock_guard lock(table_.mutex);
    return key >> 8 == key_ >> 8;
  }

  std::atomic<std::uint32_t> users{0}; ///< a bind is outstanding

  // Used by the table that ia_child::type_for makes.
  ~rmr_core() = default;
  void teardown() noexcept {
    leftovers over;
    {
      const std::lock_guard lock(table_.mutex);
      discard_window(over);
      forget_bind(over);
      leave_table();
    }
    pz_->users.fetch_sub(1, std::memory_order_release);
  }
  static constexpr child_kind kind_of_child = child_kind::window;

private:
  friend struct windows_of_ia;

  /// Objects that a window no longer needs, released when no lock is held.
  struct leftovers {
    ref<lmr_core> current;
    ref<lmr_core> pending;
    ref<rmr_core> self;
  };

  // --- with the table locked ---------------------------------------------------------------------------------------

  /// Creates the device's window.
  [[nodiscard]] expected<void> provide(const char* call) noexcept {
    window_ = ibv_alloc_mw(pz_->pd(), for_ep_ ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1);
    if (!window_) return at(map_errno(errno, return_subtype::resource_memory_region).from("ibv_alloc_mw", errno), call);
    leave_table();
    key_ = window_->rkey;
    rmr_core*& chain = table_.chain(key_);
    next_ = chain;
    chain = this;
    return success();
  }
  void leave_table() noexcept {
    for (rmr_core** p = &table_.chain(key_); *p; p = &(*p)->next_)
      if (*p == this) {
        *p = next_;
        return;
      }
  }

  void expect_bind(ep_core& ep, const window_place& wanted, dto_operation operation, std::uint32_t key) noexcept {
    pending_.set(wanted, key);
    posted_to_ = &ep;
    if (!ep.has_windows.load(std::memory_order_relaxed)) ep.has_windows.store(true, std::memory_order_release);
    operation_ = operation;
    pending_key_ = key;
    old_key_ = window_->rkey;
    told_ = false;
    self_ = ref(this);
    users.store(1, std::memory_order_relaxed);
  }
  /// The outstanding bind has ended, with success or without.
  void forget_bind(leftovers& over) noexcept {
    if (!posted_to_) return;
    posted_to_ = nullptr;
    over.pending = pending_.end();
    over.self = std::move(self_);
    users.store(0, std::memory_order_release);
  }
  /// Frees the device's window, and with it the binding. A new window is created when it is needed.
  void discard_window(leftovers& over) noexcept {
    if (window_) ibv_dealloc_mw(window_);
    window_ = nullptr;
    over.current = current_.end();
  }

  [[nodiscard]] error wrong_zone(const char* call) const noexcept {
    return at(error(return_type::protection_violation), call)
        .hint("The rmr, the lmr and the endpoint must be of one pz.");
  }

  [[nodiscard]] result<std::uint32_t> start(const char* call, ep_core* ep, const window_place& wanted,
                                            const bind_flags& flags) noexcept {
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
    leftovers over;
    const std::lock_guard lock(table_.mutex);
    if (posted_to_)
      return at(error(return_type::invalid_state), call)
          .hint("A bind of this rmr is posted already: take its completion first.");
    if (current_.through && current_.through != ep) {
      if (current_.through->state() == ep_state::connected)
        return at(error(return_type::invalid_state), call)
            .hint("The rmr is bound through another endpoint: unbind it there first.");
      discard_window(over); // the endpoint of the old binding can no longer post the unbind
    }
    if (!window_) [[unlikely]]
      if (auto ok = provide(call); !ok) return ok.assume_error();
    return for_ep_ ? post_type_2(call, *ep, wanted, flags, over) : post_type_1(call, *ep, wanted, flags, over);
  }

  /// The entry of a bind. No bind is unsignaled in verbs, because its window changes with its completion.
  static void stage(work_entry& e, dto_operation operation, std::uint32_t key, const bind_flags& flags) noexcept {
    e.posted.cookie = flags.cookie;
    e.posted.length = key;
    e.posted.kind =
        internal_if((flags.flags & IBV_SEND_SIGNALED) == 0, no_notify_if(flags.no_notify, kind_of_work(operation)));
  }
  /// An unbind of an unbound window is a request without effect, in the order of the queue.
  [[nodiscard]] static ibv_send_wr nothing_to_do(unsigned flags) noexcept {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = flags;
    return wr;
  }

  [[nodiscard, gnu::always_inline]] result<std::uint32_t> post_type_1(const char* call, ep_core& ep,
                                                                      const window_place& wanted,
                                                                      const bind_flags& flags,
                                                                      leftovers& over) noexcept {
    const dto_operation operation = wanted ? dto_operation::bind : dto_operation::unbind;
    if (!wanted && !current_) return post_nothing(call, ep, flags, over);
    work_ring& ring = ep.requests();
    work_entry* const e = ring.next();
    if (!ring.has_room(e, 1)) return ep.queue_full(call, 0);
    ibv_mw_bind bind{};
    bind.wr_id = e->id();
    bind.send_flags = flags.flags | IBV_SEND_SIGNALED;
    bind.bind_info.mr =
        (wanted ? wanted.region : current_.region)->mr(); // providers read the address even for length 0
    if (wanted) {
      bind.bind_info.addr = wanted.address;
      bind.bind_info.length = wanted.length;
      bind.bind_info.mw_access_flags = wanted.access;
    }
    const std::uint32_t key = ibv_inc_rkey(window_->rkey);
    stage(*e, operation, key, flags);
    expect_bind(ep, wanted, operation, key);
    ring.set_next(e->next);
    trace_points::post(ep.number(), operation, 0, flags.cookie.value());
    if (const int err = ibv_bind_mw(ep.qp(), window_, &bind)) {
      trace_points::refused(ep.number(), 1u, err);
      ring.set_next(e);
      forget_bind(over);
      return at(map_errno(err, return_subtype::resource_tep, true).from("ibv_bind_mw", err), call);
    }
    return key;
  }

  [[nodiscard]] result<std::uint32_t> post_type_2(const char* call, ep_core& ep, const window_place& wanted,
                                                  const bind_flags& flags, leftovers& over) noexcept {
    if (!wanted && !current_) return post_nothing(call, ep, flags, over);
    // A window of this type must be unbound before it is bound. So there are two requests, and the second one
    // completes.
    const std::uint32_t old = window_->rkey;
    const std::uint32_t key = wanted ? ibv_inc_rkey(old) : old;
    const std::uint32_t n = wanted && current_ ? 2 : 1;
    work_ring& ring = ep.requests();
    work_entry* const first = ring.next();
    if (!ring.has_room(first, n)) {
      const error full = ep.queue_full(call, 0);
      if (n == 2) return full.hint("A bind of a bound rmr takes two places of max_request_dtos, and fewer are free.");
      return full;
    }
    work_entry* const last = n == 2 ? first->next : first;
    std::array<ibv_send_wr, 2> wr{};
    if (current_) {
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
                                  wanted.access | (wanted.zero_based ? unsigned{IBV_ACCESS_ZERO_BASED} : 0u)};
    }
    expect_bind(ep, wanted, operation, key);
    ring.set_next(last->next);
    ibv_send_wr* bad = wr.data();
    trace_points::post(ep.number(), operation, 0, flags.cookie.value());
    if (const int err = ibv_post_send(ep.qp(), wr.data(), &bad)) {
      trace_points::refused(ep.number(), 1u, err);
      const bool freed = n == 2 && bad == &second; // the window loses its binding and gets no new one
      ring.set_next(freed ? last : first);
      forget_bind(over);
      if (freed) over.current = current_.end();
      return at(map_errno(err, return_subtype::resource_tep, true).from("ibv_post_send", err), call);
    }
    window_->rkey = key; // verbs leaves this check to the caller of ibv_post_send
    return key;
  }

  [[nodiscard]] result<std::uint32_t> post_nothing(const char* call, ep_core& ep, const bind_flags& flags,
                                                   leftovers& over) noexcept {
    work_ring& ring = ep.requests();
    work_entry* const e = ring.next();
    if (!ring.has_room(e, 1)) return ep.queue_full(call, 0);
    ibv_send_wr wr = nothing_to_do(flags.flags | IBV_SEND_SIGNALED);
    wr.wr_id = e->id();
    stage(*e, dto_operation::unbind, window_->rkey, flags);
    expect_bind(ep, window_place(), dto_operation::unbind, window_->rkey);
    ring.set_next(e->next);
    ibv_send_wr* bad;
    trace_points::post(ep.number(), dto_operation::unbind, 0, flags.cookie.value());
    if (const int err = ibv_post_send(ep.qp(), &wr, &bad)) {
      trace_points::refused(ep.number(), 1u, err);
      ring.set_next(e);
      forget_bind(over);
      return at(map_errno(err, return_subtype::resource_tep, true).from("ibv_post_send", err), call);
    }
    return window_->rkey;
  }

  [[nodiscard]] bind_outcome bind_ended(bool done, bool first_half, leftovers& over) noexcept {
    const bind_outcome outcome{told_ ? nullptr : static_cast<const void*>(this), operation_};
    if (first_half) { // the second half is outstanding, and its flush is no event
      told_ = true;
      return outcome;
    }
    if (done) {
      over.current = current_.end();
      // The region of the binding may have ended meanwhile, and the window with the region.
      if (window_) current_.take(pending_);
    } else if (window_) {
      window_->rkey = old_key_; // the device does not know the new key
    }
    forget_bind(over);
    return outcome;
  }
  [[nodiscard]] static windows_of_ia* table_of(ia_core& ia) noexcept {
    if (window_table* const t = ia.windows.load(std::memory_order_acquire)) return static_cast<windows_of_ia*>(t);
    auto* const made = new (std::nothrow) windows_of_ia;
    window_table* other = nullptr;
    if (!made || ia.windows.compare_exchange_strong(other, made, std::memory_order_acq_rel)) return made;
    delete made;
    return static_cast<windows_of_ia*>(other);
  }

  ref<pz_core> pz_;
  windows_of_ia& table_;
  const bool for_ep_;
  // The lock of the table guards these members.
  ibv_mw* window_ = nullptr;
  std::uint32_t key_ = 0; // the key in the table: that of the window at its creation
  rmr_core* next_ = nullptr;
  window_binding current_;
  window_binding pending_;        // of an outstanding bind; no region for an unbind
  ep_core* posted_to_ = nullptr;  // the endpoint of an outstanding bind
  ref<rmr_core> self_;            // set while a bind is outstanding, because its completion uses the window
  std::uint32_t pending_key_ = 0; // the key in the entry of the bind
  std::uint32_t old_key_ = 0;     // the previous key of the window
  dto_operation operation_{};     // bind or unbind
  bool told_ = false;             // the consumer has got the failure

  static const child_type table;
};

inline constexpr child_type rmr_core::table = type_for<rmr_core>();

inline windows_of_ia::windows_of_ia() noexcept
    : window_table{[](window_table& t, std::uint32_t key, bool done, bool first_half) noexcept {
                     auto& self = static_cast<windows_of_ia&>(t);
                     rmr_core::leftovers over; // released without the lock
                     const std::lock_guard lock(self.mutex);
                     rmr_core* const w = self.find(key);
                     if (!w || !w->posted_to_ || w->pending_key_ != key) return bind_outcome{};
                     return w->bind_ended(done, first_half, over);
                   },
                   [](window_table& t, std::uint32_t key) noexcept {
                     auto& self = static_cast<windows_of_ia&>(t);
                     ref<lmr_core> over;
                     const std::lock_guard lock(self.mutex);
                     rmr_core* const w = self.find(key);
                     if (!w || !w->for_ep_) return false;
                     // The peer has the key since the bind was posted: its message may overtake the bind's completion,
                     // which then leaves the window unbound.
                     window_binding& named = w->pending_ && w->pending_.key == key ? w->pending_ : w->current_;
                     if (!named || named.key != key) return false;
                     over = named.end();
                     return true;
                   },
                   [](window_table& t, const ia_child& user) noexcept {
                     auto& self = static_cast<windows_of_ia&>(t);
                     for (bool more = true; more;) {
                       more = false;
                       rmr_core::leftovers over;
                       const std::lock_guard lock(self.mutex);
                       for (rmr_core* w : self.by_key)
                         for (; w && !more; w = w->next_) {
                           const auto uses = [&](const window_binding& b) {
                             return b && (static_cast<const ia_child*>(b.region) == &user ||
                                          static_cast<const ia_child*>(b.through) == &user);
                           };
                           const bool posted = static_cast<const ia_child*>(w->posted_to_) == &user;
                           if (!posted && !uses(w->current_) && !uses(w->pending_)) continue;
                           more = true;
                           w->discard_window(over);
                           if (posted) // the completion will not come
                             w->forget_bind(over);
                           else
                             over.pending = w->pending_.end();
                         }
                     }
                   },
                   [](window_table& t) noexcept { delete static_cast<windows_of_ia*>(&t); }} {}

inline rmr_core* windows_of_ia::find(std::uint32_t key) noexcept {
  for (rmr_core* w = chain(key); w; w = w->next_)
    if (w->key_ >> 8 == key >> 8) return w;
  return nullptr;
}

}}} // namespace dat::v0::detail
