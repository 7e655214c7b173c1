// What the policies of posting do: leave checks out, or remember what is posted.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/core.hpp>

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

namespace dat::inline v0::detail {

struct trusting_post {
  template <std::size_t... N>
  [[gnu::always_inline]] static expected<void> post(ep_posting& ep, const send_request<N>&... r) noexcept {
    if ((r.quiet || ...)) [[unlikely]]
      return ep.post(r...);
    if constexpr (sizeof...(N) == 1 && ((N == 1) && ...)) {
      return one(ep, r...);
    } else {
      work_entry* const first = ep.sq_.next();
      if (!ep.sq_.has_room(first, sizeof...(N))) [[unlikely]]
        return ep.post(r...);
      return ep.post_chain(ep.send_to_.load(std::memory_order_acquire), first, r...);
    }
  }
  template <std::size_t... N>
  [[gnu::always_inline]] static expected<void> post(ep_posting& ep, const recv_request<N>&... r) noexcept {
    if ((r.quiet || ...)) [[unlikely]]
      return ep.post(r...);
    if constexpr (sizeof...(N) == 1 && ((N == 1) && ...)) {
      return one(ep, r...);
    } else {
      work_entry* const first = ep.rq_.next();
      if (!ep.rq_.has_room(first, sizeof...(N))) [[unlikely]]
        return ep.post(r...);
      return ep.post_chain(ep.recv_to_.load(std::memory_order_acquire), first, r...);
    }
  }

private:
  [[gnu::always_inline]] static expected<void> one(ep_posting& ep, const send_request<1>& r) noexcept {
    work_entry* const e = ep.sq_.next();
    if (ep.sq_.taken(e)) [[unlikely]]
      return ep.post(r);
    constexpr std::size_t last = ep_posting::prepared_requests - 1;
    copy_triplet(&ep.prepared_[last].sge, r.data.list());
    r.fill(ep.prepared_[last].wr);
    ep.stage(ep.prepared_[last].wr, *e, r);
    ep.sq_.set_next(e->next);
    if (const int err = ibv_post_send(ep.send_to_.load(std::memory_order_acquire), &ep.prepared_[last].wr,
                                      &ep.bad_send_)) [[unlikely]]
      return ep.group_not_posted(err, 1);
    return success();
  }
  [[gnu::always_inline]] static expected<void> one(ep_posting& ep, const recv_request<1>& r) noexcept {
    work_entry* const e = ep.rq_.next();
    if (ep.rq_.taken(e)) [[unlikely]]
      return ep.post(r);
    copy_triplet(&ep.recv_sge_, r.gather.list());
    ep.stage(ep.recv_wr_, *e, r);
    ep.rq_.set_next(e->next);
    if (const int err = ibv_post_recv(ep.recv_to_.load(std::memory_order_acquire), &ep.recv_wr_, &ep.bad_recv_))
        [[unlikely]]
      return ep.recv_failed<1>(err);
    if (!peek(ep.up_)) [[unlikely]]
      ep.came_late();
    return success();
  }
};

/// All that is posted on an ia by the policy `checked`: one record for each work entry, found by the entry's number.
class watch final : public post_watch {
public:
  struct blamed {
    bool known = false;
    dto_operation operation{};
    dat::cookie cookie{};
    std::uint32_t ep = 0;
  };

  template <std::size_t... N>
  [[nodiscard]] static expected<void> post(ep_posting& ep, const send_request<N>&... r) noexcept {
    if (auto ok = remember_requests(ep, r...); !ok) return ok;
    return ep.post(r...);
  }
  /// What post does before; for requests that have a way of their own to be posted.
  template <std::size_t... N>
  [[nodiscard]] static expected<void> remember_requests(ep_posting& ep, const send_request<N>&... r) noexcept {
    return remember(ep, true, ep.sq_, r...);
  }
  template <std::size_t... N>
  [[nodiscard]] static expected<void> post(ep_posting& ep, const recv_request<N>&... r) noexcept {
    if (auto ok = remember(ep, false, ep.rq_, r...); !ok) return ok;
    return ep.post(r...);
  }

  [[nodiscard]] static expected<void> verify(const ref<ia_core>& ia) noexcept {
    static constexpr const char* call = "checked.verify";
    if (!ia || ia->closed()) return empty_handle(call, return_subtype::handle_ia);
    watch* const w = of(*ia);
    if (!w) return success();
    const std::lock_guard lock(w->mutex_);
    return w->find(call, [&](const record& r, const segment& s) -> const char* {
      if (!registered(*ia, s)) return r.closed_hint();
      return mapped(s) ? nullptr : "the memory of this operation, which is posted, is not mapped any more";
    });
  }
  [[nodiscard]] static expected<void> unused(const ref<ia_core>& ia, std::span<const std::byte> memory) noexcept {
    static constexpr const char* call = "checked.unused";
    if (!ia || ia->closed()) return empty_handle(call, return_subtype::handle_ia);
    watch* const w = of(*ia);
    if (!w) return success();
    const std::lock_guard lock(w->mutex_);
    const auto first = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(memory.data()));
    return w->find(call, [&](const record&, const segment& s) -> const char* {
      const bool apart = s.address >= first + memory.size() || first >= s.address + s.length;
      return apart ? nullptr : "an operation that is posted names this memory: take its completion first";
    });
  }
  [[nodiscard]] static blamed culprit(const ref<ia_core>& ia) noexcept {
    watch* const w = ia ? of(*ia) : nullptr;
    if (!w) return {};
    const std::lock_guard lock(w->mutex_);
    return w->blamed_;
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
      return "the region of this operation, which is posted, has been closed";
    }
  };
  static constexpr std::size_t page_size = 64;
  struct page {
    std::uint32_t number;
    page* next;
    std::array<record, page_size> records;
  };

  explicit watch(ia_core& ia) noexcept
      : post_watch{[](post_watch& w, const ibv_mr& mr, bool ending) noexcept {
                     return static_cast<watch&>(w).region_ends(mr, ending);
                   },
                   [](post_watch& w) noexcept { delete static_cast<watch*>(&w); }},
        base_(ia.work.base()) {}
  ~watch() {
    for (page*& chain : pages_)
      while (chain) {
        page* const p = chain;
        chain = p->next;
        delete p;
      }
  }

  [[nodiscard]] static watch* of(ia_core& ia) noexcept {
    return static_cast<watch*>(ia.watched.load(std::memory_order_acquire));
  }
  [[nodiscard]] static watch* made_for(ia_core& ia) noexcept {
    if (watch* const w = of(ia)) return w;
    auto* const made = new (std::nothrow) watch(ia);
    post_watch* other = nullptr;
    if (!made || ia.watched.compare_exchange_strong(other, made, std::memory_order_acq_rel)) return made;
    delete made;
    return static_cast<watch*>(other);
  }
  [[nodiscard]] static std::atomic<void (*)(const error&) noexcept>& teller() noexcept {
    static constinit std::atomic<void (*)(const error&) noexcept> tell{nullptr};
    return tell;
  }

  [[nodiscard]] static bool registered(ia_core& ia, const segment& s) noexcept {
    return static_cast<bool>(ia.find(child_kind::memory, [&](const ia_child& c) {
      const auto& m = static_cast<const lmr_core&>(c);
      return m.mr() && m.mr()->lkey == s.key;
    }));
  }
  [[nodiscard]] static bool mapped(const segment& s) noexcept {
    const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const std::uint64_t first = s.address & ~(page_bytes - 1);
    if (first == 0) return true; // addressed from 0: where it is, only the device knows
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
    return r.wr_id != 0 && work_arena::find(base_, r.wr_id, e) && e->ring().holds(*e) && e->posted.cookie == r.cookie;
  }
  [[nodiscard]] error blame(const record& r, const char* call, return_subtype why, const char* hint) noexcept {
    blamed_ = {true, r.operation, r.cookie, r.ep};
    return error(return_type::invalid_state, why).at(call, object_kind::ep, r.ep).hint(hint);
  }
  /// The first operation with a segment of which `wrong` gives a hint.
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
            return s.key == mr.lkey ? "an operation that is posted names this region: take its completion first"
                                    : nullptr;
          },
          return_subtype::lmr_in_use);
    }
    if (!ok && ending)
      if (const auto tell = teller().load(std::memory_order_acquire)) tell(ok.assume_error());
    return ok;
  }

  template <class... R>
  [[nodiscard]] static expected<void> remember(ep_posting& ep, bool requests, work_ring& ring, const R&... r) noexcept {
    if (&ep == &no_ep || ep.state() == ep_dead || is_unconfigured(ep.state())) return success(); // the post will say
    const char* const call = requests ? "ep.post" : "ep.post(recv)";
    ia_core& ia = static_cast<ep_core&>(ep).ia();
    watch* const w = made_for(ia);
    const auto none = [&] {
      return ep.at(error(return_type::insufficient_resources, return_subtype::resource_memory), call);
    };
    if (!w) return none();
    const std::lock_guard lock(w->mutex_);
    work_entry* e = ring.next();
    if (!ring.has_room(e, sizeof...(R))) return success(); // likewise
    expected<void> ok = success();
    const bool datagrams = static_cast<ep_core&>(ep).datagrams() != nullptr;
    const auto add = [&](const auto& list, dto_operation posted, dat::cookie c) {
      const dto_operation operation = !datagrams ? posted : requests ? dto_operation::send_ud : dto_operation::recv_ud;
      record* const to = w->at(e->id());
      if (!to) return ok = none(), false;
      *to = record();
      to->cookie = c;
      to->operation = operation;
      to->ep = ep.number();
      for (std::uint32_t i = 0; i < list.count() && to->count < most; ++i) {
        const segment s{list[i].addr, list[i].length, list[i].lkey};
        if (s.length == 0) continue;
        if (!registered(ia, s)) {
          w->blamed_ = {true, operation, c, ep.number()};
          ok = ep.at(error(return_type::privileges_violation), call)
                   .hint("a segment's region has been closed: register it again, and slice anew");
          return false;
        }
        to->segments[to->count++] = s;
      }
      to->wr_id = e->id();
      e = e->next;
      return true;
    };
    if constexpr ((requires { r.data; } && ...))
      (void)(add(r.data, r.operation, r.cookie) && ...);
    else
      (void)(add(r.gather, dto_operation::recv, r.cookie) && ...);
    return ok;
  }

  const std::byte* base_;
  std::mutex mutex_; // guards what follows
  std::array<page*, 1024> pages_{};
  blamed blamed_;
};

} // namespace dat::inline v0::detail
