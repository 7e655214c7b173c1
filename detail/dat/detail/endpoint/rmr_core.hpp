// The memory window behind dat::rmr: its current binding, and the binding of a posted bind.
//
// Three sides change a window: the consumer that binds it, the completion of a bind (or a message that invalidates),
// and an endpoint or a region that ends. One lock for all windows of an ia serialises these sides. It is a leaf, held
// for a few stores and for the post itself.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/quick_mutex.hpp>
#include <dat/detail/endpoint/core.hpp>
#include <dat/detail/memory/registration.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
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

/// The memory that a window is bound to; without a region the window is unbound.
struct window_place {
  lmr_core* region = nullptr;
  ep_core* through = nullptr; ///< for a window of one endpoint: the only endpoint on which the key works
  std::uint64_t address = 0;  ///< the first byte in the region
  std::uint64_t length = 0;
  mem_priv rights{};
  bool zero_based = false;
  bool writable = false; ///< the adapter may write to the region

  explicit operator bool() const noexcept { return region != nullptr; }
  /// The address by which a peer names its first byte.
  [[nodiscard]] std::uint64_t first() const noexcept { return zero_based ? 0 : address; }
};

/// The binding of a window. It counts as a user of its region, which ends it before the region itself ends: see
/// ia_core::release_windows.
struct window_binding : window_place {
  std::uint32_t key = 0;

  /// Copies member by member: a copy as one block would put a place from registers into memory.
  [[gnu::always_inline]] void set(const window_place& to, std::uint32_t named) noexcept {
    region = to.region;
    through = to.through;
    address = to.address;
    length = to.length;
    rights = to.rights;
    zero_based = to.zero_based;
    writable = to.writable;
    key = named;
    if (region) region->users.fetch_add(1, std::memory_order_relaxed);
  }
  void end() noexcept {
    if (region) region->users.fetch_sub(1, std::memory_order_release);
    region = nullptr;
    through = nullptr; // the endpoint may end before the next binding
  }
};

/// A copy of a binding that holds a reference to the region.
struct kept_binding : window_binding {
  explicit kept_binding(const window_binding& of) noexcept : window_binding(of), keeps(of.region) {}
  ref<lmr_core> keeps;
};

/// Cookie and flags of the request of a bind.
struct bind_flags {
  dat::cookie cookie;
  unsigned flags;
  bool no_notify;

  [[gnu::always_inline]] bind_flags(const request_header& r) noexcept // NOLINT(google-explicit-constructor)
      : cookie(r.cookie), flags(r.flags), no_notify(r.no_notify) {}
};

class rmr_core;

/// All windows of an ia, found by their keys.
struct windows_of_ia final : window_table {
  quick_mutex mutex;
  std::array<rmr_core*, 256> by_key{};

  windows_of_ia() noexcept;
  /// The low byte of the key counts the binds; the other bytes identify the window.
  [[nodiscard]] rmr_core*& chain(std::uint32_t key) noexcept { return by_key[(key >> 8) % by_key.size()]; }
  [[nodiscard]] rmr_core* find(std::uint32_t key) noexcept;
  [[nodiscard]] rmr_core* find_bound(std::uint32_t key) noexcept;
  [[nodiscard]] bind_outcome bind_done_here(std::uint32_t key) noexcept;
  [[nodiscard]] bind_outcome bind_failed_here(std::uint32_t key, bool first_half) noexcept;
  [[nodiscard]] bool invalidated_here(std::uint32_t key) noexcept;
  void release_here(const ia_child& user) noexcept;
};

class rmr_core final : public ia_child {
public:
  static constexpr const char* bind_call = "rmr.bind";
  static constexpr const char* unbind_call = "rmr.unbind";

  [[nodiscard]] static result<ref<rmr_core>> create(const ref<pz_core>& pz, bool for_ep) noexcept;
  rmr_core(ref<pz_core> pz, windows_of_ia& all, bool for_ep) noexcept;

  [[nodiscard]] bool for_ep() const noexcept { return for_ep_; }
  [[nodiscard]] ibv_mw* window() const noexcept { return window_; }
  [[nodiscard]] const pz_core& pz() const noexcept { return *pz_; }
  [[nodiscard]] error at(error e, const char* call) const noexcept { return e.at(call, object_kind::rmr, key_ >> 8); }

  /// Binds to a part of a region. Returns the new key.
  [[nodiscard, gnu::always_inline]] result<std::uint32_t> bind(ep_core* ep, const window_place& to,
                                                               bind_flags flags) noexcept {
    if (for_ep_ || to.zero_based || to.region->pz() != pz_.get() || !to.region->bindable() || !ep ||
        ep->state() != ep_state::connected || ep->pz() != pz_.get() ||
        !includes(ep->evds().request->stream_set(), streams::rmr_bind) ||
        (flags.no_notify && !ep->takes_no_notify_requests())) [[unlikely]]
      return bind_otherwise(ep, to, flags);
    {
      const std::lock_guard lock(table_.mutex);
      if (window_ && !posted_to_) [[likely]] // without a window, one of the objects may have ended
        return post_type_1(bind_call, *ep, *to.region, to, dto_operation::bind, flags);
    }
    return bind_otherwise(ep, to, flags);
  }
  [[nodiscard]] expected<void> unbind(ep_core* ep, bind_flags flags) noexcept;
  /// The error of a bind to an empty lmr, or to elements that the lmr does not have.
  [[nodiscard, gnu::cold]] error no_such_memory(bool region) const noexcept;

  /// The binding, if there is one; an outstanding bind does not count yet.
  [[nodiscard]] kept_binding binding() noexcept {
    const std::lock_guard lock(table_.mutex);
    return kept_binding(*current_);
  }
  [[nodiscard]] bool is(std::uint32_t key) noexcept {
    const std::lock_guard lock(table_.mutex);
    return key >> 8 == key_ >> 8;
  }

  std::atomic<std::uint32_t> users{0}; ///< a bind is outstanding

  // Used by the table that ia_child::type_for makes.
  ~rmr_core() = default;
  void teardown() noexcept;
  static constexpr child_kind kind_of_child = child_kind::window;

private:
  friend struct windows_of_ia;

  /// Any other bind, or the reason why it is refused.
  [[nodiscard]] result<std::uint32_t> bind_otherwise(ep_core* ep, window_place to, bind_flags flags) noexcept;
  [[nodiscard]] error wrong_zone(const char* call) const noexcept;
  [[nodiscard]] result<std::uint32_t> start(const char* call, ep_core* ep, const window_place& wanted,
                                            bind_flags flags) noexcept;

  // --- with the table locked ---------------------------------------------------------------------------------------

  /// Creates the device's window.
  [[nodiscard]] expected<void> provide(const char* call) noexcept;
  void leave_table() noexcept;
  /// Frees the device's window, and with it the binding. A new window is created when it is needed.
  void discard_window() noexcept;

  /// A bind is about to be posted. Takes a reference to this object, because the completion of the bind uses it.
  [[gnu::always_inline]] void expect_bind(ep_core& ep, const window_place& wanted, dto_operation operation,
                                          std::uint32_t old, std::uint32_t key) noexcept {
    pending_->set(wanted, key);
    posted_to_ = &ep;
    if (!ep.has_windows.load(std::memory_order_relaxed)) ep.has_windows.store(true, std::memory_order_release);
    operation_ = operation;
    old_key_ = old;
    told_ = false;
    add_ref();
    users.store(1, std::memory_order_relaxed);
  }
  /// The outstanding bind, if there is one, has ended. Returns the reference that the bind held; the caller releases it
  /// without the lock.
  [[nodiscard]] ref<rmr_core> forget_bind() noexcept {
    if (!posted_to_) return {};
    posted_to_ = nullptr;
    pending_->end();
    users.store(0, std::memory_order_release);
    return {this, adopt};
  }
  /// The device has refused the bind.
  [[nodiscard, gnu::cold]] error refused(const char* call, const char* verb, int err) noexcept;

  /// The entry of a bind. No bind is unsignaled in verbs, because its window changes with its completion.
  [[gnu::always_inline]] static void stage(work_entry& e, dto_operation operation, std::uint32_t key,
                                           bind_flags flags) noexcept {
    e.posted.cookie = flags.cookie;
    e.posted.length = key;
    e.posted.kind =
        internal_if((flags.flags & IBV_SEND_SIGNALED) == 0, no_notify_if(flags.no_notify, kind_of_work(operation)));
  }

  /// `region`: that of `wanted`, or of the binding that ends, because providers read its address even for length 0.
  [[nodiscard, gnu::always_inline]] result<std::uint32_t>
  post_type_1(const char* call, ep_core& ep, const lmr_core& region, const window_place& wanted,
              dto_operation operation, bind_flags flags) noexcept {
    work_ring& ring = ep.requests();
    work_entry* const e = ring.next();
    if (!ring.has_room(e, 1)) [[unlikely]]
      return ep.queue_full(call, 0);
    const std::uint32_t old = window_->rkey;
    const std::uint32_t key = ibv_inc_rkey(old);
    ibv_mw_bind bind; // all members follow
    bind.wr_id = e->id();
    bind.send_flags = flags.flags | IBV_SEND_SIGNALED;
    bind.bind_info.mr = region.mr();
    bind.bind_info.addr = wanted.address;
    bind.bind_info.length = wanted.length;
    bind.bind_info.mw_access_flags = window_access(wanted.rights);
    stage(*e, operation, key, flags);
    expect_bind(ep, wanted, operation, old, key);
    ring.set_next(e->next);
    trace_points::post(ep.number(), operation, 0, flags.cookie.value());
    if (const int err = ibv_bind_mw(ep.qp(), window_, &bind)) [[unlikely]] {
      ring.set_next(e);
      return refused(call, "ibv_bind_mw", err);
    }
    return key;
  }
  [[nodiscard]] result<std::uint32_t> post_type_2(const char* call, ep_core& ep, const window_place& wanted,
                                                  bind_flags flags) noexcept;
  /// Posts an unbind of a window that is not bound.
  [[nodiscard]] result<std::uint32_t> post_nothing(const char* call, ep_core& ep, bind_flags flags) noexcept;

  [[nodiscard]] static windows_of_ia* table_of(ia_core& ia) noexcept;

  ref<pz_core> pz_;
  windows_of_ia& table_;
  const bool for_ep_;
  // The lock of the table guards these members.
  ibv_mw* window_ = nullptr;
  std::uint32_t key_ = 0; // the key in the table: that of the window at its creation
  rmr_core* next_ = nullptr;
  window_binding bindings_[2];
  window_binding* current_ = &bindings_[0];
  window_binding* pending_ = &bindings_[1]; // the binding of an outstanding bind; it has no region for an unbind
  ep_core* posted_to_ = nullptr;            // the endpoint of an outstanding bind
  std::uint32_t old_key_ = 0;               // the previous key of the window
  dto_operation operation_{};               // bind or unbind
  bool told_ = false;                       // the consumer has received the failure

  static const child_type table;
};

inline constexpr child_type rmr_core::table = type_for<rmr_core>();

inline rmr_core* windows_of_ia::find(std::uint32_t key) noexcept {
  for (rmr_core* w = chain(key); w; w = w->next_)
    if (w->key_ >> 8 == key >> 8) return w;
  return nullptr;
}

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/endpoint/rmr_core.ipp>
#endif
