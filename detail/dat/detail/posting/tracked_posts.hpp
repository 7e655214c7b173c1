// The records of the policy dat::tracked: posted operations, and the memory that they name.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/checked.hpp>

#include <dat/detail/adapter/ia_core.hpp>
#include <dat/detail/base/checked.hpp>
#include <dat/detail/base/control_mutex.hpp>
#include <dat/detail/handle/handle.hpp>
#include <dat/detail/memory/pz_core.hpp>
#include <dat/detail/posting/ep_posting.hpp>
#include <dat/detail/request/work_request.hpp>
#include <dat/detail/work/work_arena.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <span>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

/// The operations posted on an ia by the policy `tracked`: one record for each work entry, found by the entry's number.
/// Thread safety: safe.
class tracked_posts final : public posts_observer {
public:
  struct offender {
    bool known = false;
    dto_operation operation{};
    dat::cookie cookie{};
    std::uint32_t ep = 0;
  };

  /// Records requests that are about to be posted. Refuses those that name a region which is closed.
  template <std::size_t... N>
  [[nodiscard]] static expected<void> remember(ia_core& ia, ep_posting& ep, const send_request<N>&... r) noexcept {
    return remember_in(
        ia, ep, ep.requests(), "ep.post",
        [&](const auto& one) { return ep.datagram_counter() ? dto_operation::send_ud : one.operation(); }, r...);
  }
  /// Records receives that are about to be posted, and refuses as above.
  template <std::size_t... N>
  [[nodiscard]] static expected<void> remember(ia_core& ia, ep_posting& ep, const recv_request<N>&... r) noexcept {
    return remember_in(
        ia, ep, ep.receives(), "ep.post(recv)",
        [&](const auto&) { return ep.datagram_counter() ? dto_operation::recv_ud : dto_operation::recv; }, r...);
  }

  [[nodiscard]] static expected<void> verify(const ref<ia_core>& ia) noexcept {
    static constexpr const char* call = "tracked.verify";
    if (!ia || ia->closed()) return empty_handle(call, return_subtype::handle_ia);
    tracked_posts* const w = of(*ia);
    if (!w) return success();
    const std::lock_guard lock(w->mutex_);
    return w->find(call, [&](const record& r, const segment& s) -> const char* {
      if (!registered(*ia, s)) return r.closed_hint();
      return mapped(s) ? nullptr : "The memory of this operation, which is posted, is no longer mapped.";
    });
  }
  [[nodiscard]] static expected<void> unreferenced(const ref<ia_core>& ia, std::span<const std::byte> memory) noexcept {
    static constexpr const char* call = "tracked.unreferenced";
    if (!ia || ia->closed()) return empty_handle(call, return_subtype::handle_ia);
    tracked_posts* const w = of(*ia);
    if (!w) return success();
    const std::lock_guard lock(w->mutex_);
    const auto first = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(memory.data()));
    return w->find(call, [&](const record&, const segment& s) -> const char* {
      const bool apart = s.address >= first + memory.size() || first >= s.address + s.length;
      return apart ? nullptr : "An operation that is posted names this memory: take its completion first.";
    });
  }
  [[nodiscard]] static offender last_offender(const ref<ia_core>& ia) noexcept {
    tracked_posts* const w = ia ? of(*ia) : nullptr;
    if (!w) return {};
    const std::lock_guard lock(w->mutex_);
    return w->offender_;
  }
  static void on_misuse(void (*tell)(const error&) noexcept) noexcept {
    teller().store(tell, std::memory_order_release);
  }

private:
  static constexpr std::size_t most = 8;
  struct segment {
    std::uint64_t address = 0;
    std::uint32_t length = 0;
    std::uint32_t key = 0;
  };
  struct record {
    std::uint64_t wr_id = 0; ///< 0: none
    dat::cookie cookie{};
    dto_operation operation{};
    std::uint32_t ep = 0;
    std::uint32_t count = 0;
    std::array<segment, most> segments;

    [[nodiscard]] static const char* closed_hint() noexcept {
      return "The region of this operation, which is posted, has been closed.";
    }
  };
  static constexpr std::size_t page_size = 64;
  struct page {
    std::uint32_t number;
    page* next;
    std::array<record, page_size> records;
  };

  explicit tracked_posts(ia_core& ia) noexcept
      : posts_observer{[](posts_observer& w, const ibv_mr& mr, bool ending) noexcept {
                         return static_cast<tracked_posts&>(w).region_ends(mr, ending);
                       },
                       [](posts_observer& w) noexcept { delete static_cast<tracked_posts*>(&w); },
                       [](posts_observer& w, std::uint64_t from, std::uint64_t to) noexcept {
                         return static_cast<tracked_posts&>(w).move_record(from, to);
                       }},
        base_(ia.work.base()) {}
  ~tracked_posts() {
    for (page*& chain : pages_)
      while (chain) {
        page* const p = chain;
        chain = p->next;
        delete p;
      }
  }

  [[nodiscard]] static tracked_posts* of(ia_core& ia) noexcept {
    return static_cast<tracked_posts*>(ia.posts_observed_by.load(std::memory_order_acquire));
  }
  [[nodiscard]] static tracked_posts* made_for(ia_core& ia) noexcept {
    if (tracked_posts* const w = of(ia)) return w;
    auto* const made = new (std::nothrow) tracked_posts(ia);
    posts_observer* other = nullptr;
    if (!made || ia.posts_observed_by.compare_exchange_strong(other, made, std::memory_order_acq_rel)) return made;
    delete made;
    return static_cast<tracked_posts*>(other);
  }
  [[nodiscard]] static std::atomic<void (*)(const error&) noexcept>& teller() noexcept {
    static constinit std::atomic<void (*)(const error&) noexcept> tell{nullptr};
    return tell;
  }

  [[nodiscard]] static bool registered(ia_core& ia, const segment& s) noexcept {
    return static_cast<bool>(ia.find(child_kind::memory, [&](const ia_child& c) {
      const auto& m = static_cast<const lmr_core&>(c);
      return m.local_key() == s.key;
    }));
  }
  /// Replaces the address of a segment that counts from 0 or from an iova by that of the process, or by 0 if the
  /// process has none. Returns false when the region has ended. Runs with the ia's children locked, so the region
  /// cannot end.
  [[nodiscard]] static bool locate(ia_core& ia, segment& s) noexcept {
    const std::uint64_t named = s.address;
    return static_cast<bool>(ia.find(child_kind::memory, [&](const ia_child& c) {
      const auto& m = static_cast<const lmr_core&>(c);
      if (m.local_key() != s.key) return false;
      if (m.iova) s.address = m.of_process ? reinterpret_cast<std::uintptr_t>(m.mr()->addr) + (named - *m.iova) : 0;
      return true;
    }));
  }
  [[nodiscard]] static bool mapped(const segment& s) noexcept {
    const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const std::uint64_t first = s.address & ~(page_bytes - 1);
    if (first == 0) return true; // memory of another device: see locate
    return ::msync(reinterpret_cast<void*>(static_cast<std::uintptr_t>(first)), s.address + s.length - first,
                   MS_ASYNC) == 0 ||
           errno != ENOMEM;
  }

  [[nodiscard]] record* at(std::uint64_t wr_id) noexcept {
    const std::uint32_t nth = static_cast<std::uint32_t>(wr_id) / static_cast<std::uint32_t>(sizeof(work_entry));
    const std::uint32_t number = nth / page_size;
    page*& chain = pages_[number % pages_.size()];
    for (page* p = chain; p; p = p->next)
      if (p->number == number) return &p->records[nth % page_size];
    auto* const p = new (std::nothrow) page{number, chain, {}};
    if (!p) return nullptr;
    chain = p;
    return &p->records[nth % page_size];
  }
  [[nodiscard]] bool outstanding(const record& r) const noexcept {
    work_entry* e;
    return r.wr_id != 0 && work_arena::find(base_, r.wr_id, e) && e->ring().holds(*e) && e->posted.cookie == r.cookie &&
           e->posted.operation() == r.operation; // a bind, which has no record, may have the entry now
  }
  [[nodiscard]] bool move_record(std::uint64_t from, std::uint64_t to) noexcept {
    const std::lock_guard lock(mutex_);
    const record* const old = at(from);
    if (!old) return false;
    if (old->wr_id != from) return true; // it was posted without the policy
    record* const fresh = at(to);
    if (!fresh) return false;
    *fresh = *old;
    fresh->wr_id = to;
    return true;
  }
  [[nodiscard]] error blame(const record& r, const char* call, return_subtype why, const char* hint) noexcept {
    offender_ = {true, r.operation, r.cookie, r.ep};
    return error(return_type::invalid_state, why).at(call, object_kind::ep, r.ep).hint(hint);
  }
  /// The first operation with a segment for which `wrong` returns a hint.
  template <class Wrong>
  [[nodiscard]] expected<void> find(const char* call, Wrong wrong, return_subtype why = return_subtype::none) noexcept {
    for (page* p : pages_)
      for (; p; p = p->next)
        for (const record& r : p->records)
          if (outstanding(r))
            for (std::uint32_t i = 0; i < r.count; ++i)
              if (const char* const hint = wrong(r, r.segments[i])) return blame(r, call, why, hint);
    return success();
  }
  [[nodiscard]] expected<void> region_ends(const ibv_mr& mr, bool ending) noexcept {
    expected<void> ok = success();
    {
      const std::lock_guard lock(mutex_);
      ok = find(
          ending ? "lmr.~lmr" : "lmr.close",
          [&](const record&, const segment& s) {
            return s.key == mr.lkey ? "An operation that is posted names this region: take its completion first."
                                    : nullptr;
          },
          return_subtype::lmr_in_use);
    }
    if constexpr (checked_build)
      if (!ok && ending)
        report_misuse({checked::finding::closed_region, "lmr.~lmr", "ep.post", "ep", ok.assume_error().object_id(),
                       mr.addr, nullptr,
                       "A posted operation names the region: take its completion before the lmr is destroyed."});
    if (!ok && ending)
      if (const auto tell = teller().load(std::memory_order_acquire)) tell(ok.assume_error());
    return ok;
  }

  template <class Operation, class... R>
  [[nodiscard]] static expected<void> remember_in(ia_core& ia, ep_posting& ep, work_ring& ring, const char* call,
                                                  Operation operation_of, const R&... r) noexcept {
    tracked_posts* const all = made_for(ia);
    const auto none = [&] {
      return ep.at(error(return_type::insufficient_resources, return_subtype::resource_memory), call);
    };
    if (!all) return none();
    const std::lock_guard lock(all->mutex_);
    work_entry* e = ring.next();
    if (!ring.has_room(e, sizeof...(R))) return success(); // likewise
    expected<void> ok = success();
    const auto add = [&](const auto& one) {
      const auto& list = one.data;
      const dto_operation operation = operation_of(one);
      record* const to = all->at(e->id());
      if (!to) return ok = none(), false;
      *to = record();
      to->cookie = one.cookie;
      to->operation = operation;
      to->ep = ep.number();
      for (std::uint32_t i = 0; i < list.count() && to->count < most; ++i) {
        segment s{list[i].addr, list[i].length, list[i].lkey};
        if (s.length == 0) continue;
        if (!locate(ia, s)) {
          all->offender_ = {true, operation, one.cookie, ep.number()};
          ok = ep.at(error(return_type::privileges_violation), call)
                   .hint("The region of a segment has been closed: register the memory again, and make a new slice.");
          return false;
        }
        to->segments[to->count++] = s;
      }
      to->wr_id = e->id();
      e = e->next;
      return true;
    };
    (void)(add(r) && ...);
    return ok;
  }

  const std::byte* base_;
  control_mutex mutex_; // guards what follows
  std::array<page*, 1024> pages_{};
  offender offender_;
};

}}} // namespace dat::v0::detail
