// Checked builds: the watch over posted and registered memory, with AddressSanitizer and by checksums.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/checked.hpp>

#include <dat/detail/base/checked.hpp>
#include <dat/detail/base/control_mutex.hpp>
#include <dat/detail/work/work_watch.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#define DAT_HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DAT_HAS_ASAN 1
#endif
#endif
#ifdef DAT_HAS_ASAN
#include <sanitizer/allocator_interface.h>
#include <sanitizer/asan_interface.h>
#endif

namespace dat { inline namespace v0 { namespace detail {

/// The memory of posted operations: a record for each work entry, and one for each region. `stage` makes the record,
/// `arm` puts it into the table when the post reaches the device, and the completion removes it. AddressSanitizer works
/// with granules of eight bytes, so only whole granules are poisoned. The sums are of copies that process_vm_readv
/// makes: no sanitizer checks them, and memory that is not mapped does no harm.
class posted_memory {
public:
  static constexpr std::uint32_t most = 8; ///< segments of an operation that are watched
  struct piece {
    std::uintptr_t first = 0;
    std::size_t length = 0;
    [[nodiscard]] bool overlaps(std::uintptr_t from, std::size_t n) const noexcept {
      return first < from + n && from < first + length;
    }
  };
  struct record {
    const work_entry* entry = nullptr;
    record* next = nullptr;
    memory_use use = memory_use::none;
    bool summed = false;
    std::uint32_t count = 0;
    std::array<piece, most> pieces{};
    std::uint64_t sum = 0;
    const char* call = nullptr;
    const char* object = nullptr;
    std::uint32_t id = 0;
    const void* from = nullptr;

    [[nodiscard]] checked::misuse blame(checked::finding what, const char* seen_by, const void* at,
                                        const char* remedy) const noexcept {
      return {what, seen_by, call, object, id, at, from, remedy};
    }
  };

  /// The post that runs in a thread: its name and place, and its operations.
  struct post {
    const char* call = "";
    const char* object = "";
    std::uint32_t id = 0;
    const void* from = nullptr;
    record* staged = nullptr; // in reverse order
    std::array<const work_entry*, 64> armed{};
    std::uint32_t count = 0;
    bool inside = false; // this thread has locked the table
  };
  [[nodiscard]] static post& current() noexcept {
    static thread_local post p;
    return p;
  }

  void stage(const work_entry& e, memory_use use, const piece* pieces, std::uint32_t count) noexcept {
    post& p = current();
    const guard lock(*this);
    auto* const r = new (std::nothrow) record;
    if (!r) return; // not watched
    r->entry = &e;
    r->use = use;
    for (std::uint32_t i = 0; i < count && r->count < most; ++i)
      if (pieces[i].length != 0) r->pieces[r->count++] = pieces[i];
    r->call = p.call;
    r->object = p.object;
    r->id = p.id;
    r->from = p.from;
    r->next = std::exchange(p.staged, r);
  }
  void unstage() noexcept {
    post& p = current();
    if (!p.staged) return;
    const guard lock(*this);
    while (p.staged) delete std::exchange(p.staged, p.staged->next);
  }
  void arm() noexcept {
    post& p = current();
    p.count = 0;
    if (!p.staged) return;
    checked::misuse report;
    if (!arm_locked(p, report)) report_misuse(report);
  }
  /// False when memory of an operation is not mapped.
  [[nodiscard]] bool arm_locked(post& p, checked::misuse& report) noexcept {
    const guard lock(*this);
    hook_free();
    bool good = true;
    record* in_order = nullptr;
    while (p.staged) {
      record* const r = std::exchange(p.staged, p.staged->next);
      r->next = std::exchange(in_order, r);
    }
    while (in_order) {
      record* const r = std::exchange(in_order, in_order->next);
      if (p.count < p.armed.size()) p.armed[p.count++] = r->entry;
      remove(*r->entry);
      if (const void* const gone = unmapped(*r)) {
        report = r->blame(checked::finding::unmapped_memory, r->call, gone,
                          "The memory of this operation is not mapped: its lmr outlives the memory.");
        good = false;
      } else {
        r->summed = r->use == memory_use::read && sum_of(*r, r->sum);
        if (r->use == memory_use::written) poison(*r);
      }
      record*& chain = chain_of(*r->entry);
      r->next = std::exchange(chain, r);
      records_.fetch_add(1, std::memory_order_relaxed);
    }
    return good;
  }
  void refused(std::uint32_t taken) noexcept {
    const post& p = current();
    const guard lock(*this);
    for (std::uint32_t i = taken; i < p.count; ++i) remove(*p.armed[i]);
  }
  /// The record stays as it is, so that a finding names the post.
  void moved(const work_entry& from, const work_entry& to) noexcept {
    if (records_.load(std::memory_order_relaxed) == 0) return;
    const guard lock(*this);
    record** const at = find(from);
    if (!*at) return;
    record* const r = std::exchange(*at, (*at)->next);
    r->entry = &to;
    record*& chain = chain_of(to);
    r->next = std::exchange(chain, r);
  }
  /// `completed`: the completion was taken; otherwise the memory may be gone, and is not read.
  void end(const work_entry& e, bool completed) noexcept {
    if (records_.load(std::memory_order_relaxed) == 0) return;
    checked::misuse report;
    bool bad = false;
    {
      const guard lock(*this);
      record** const at = find(e);
      if (!*at) return;
      const record& r = **at;
      std::uint64_t now = 0;
      const void* const gone = completed ? unmapped(r) : nullptr;
      if (gone) {
        bad = true;
        report = r.blame(checked::finding::unmapped_memory, "completion", gone,
                         "The memory of an operation was unmapped before its completion: take the completion first.");
      } else if (completed && r.summed && sum_of(r, now) && now != r.sum) {
        bad = true;
        report = r.blame(checked::finding::changed_send_buffer, "completion",
                         reinterpret_cast<const void*>(r.pieces[0].first),
                         "The memory of a request changed before its completion, so the peer may have received "
                         "either contents: take the completion before the buffer is written again.");
      }
      remove(e);
    }
    if (bad) report_misuse(report);
  }
  /// Memory is registered, until `unregistered`.
  void registered(const void* lmr, const void* memory, std::size_t n, std::uint32_t id) noexcept {
    const guard lock(*this);
    hook_free();
    auto* const r = new (std::nothrow) region{lmr, {reinterpret_cast<std::uintptr_t>(memory), n}, id, regions_};
    if (!r) return; // not watched
    regions_ = r;
    region_count_.fetch_add(1, std::memory_order_relaxed);
  }
  void unregistered(const void* lmr) noexcept {
    const guard lock(*this);
    for (region** at = &regions_; *at; at = &(*at)->next)
      if ((*at)->lmr == lmr) {
        remove(*at);
        return;
      }
  }
  /// Called when the allocator frees memory. Reports a posted operation that names a part of the memory. Without such
  /// an operation, reports a region that contains a part of it.
  void freed(const void* memory, std::size_t n) noexcept {
    const bool none =
        records_.load(std::memory_order_relaxed) == 0 && region_count_.load(std::memory_order_relaxed) == 0;
    if (none || current().inside) return;
    const auto first = reinterpret_cast<std::uintptr_t>(memory);
    checked::misuse report;
    bool bad = false;
    {
      const guard lock(*this);
      for (record* chain : table_)
        for (record* r = chain; r; r = r->next)
          for (std::uint32_t i = 0; i < r->count; ++i)
            if (r->pieces[i].overlaps(first, n)) {
              if (!bad)
                report = r->blame(checked::finding::freed_memory, "free", memory,
                                  "A posted operation names memory that is freed: take its completion first.");
              bad = true;
              unpoison(*r);
              r->count = 0; // from now on the memory belongs to the allocator
              r->summed = false;
            }
      for (region** at = &regions_; *at;) {
        if (!(*at)->memory.overlaps(first, n)) {
          at = &(*at)->next;
          continue;
        }
        if (!bad)
          report = {
              checked::finding::freed_memory,
              "free",
              "pz.register_memory",
              "lmr",
              (*at)->id,
              memory,
              nullptr,
              "An lmr still registers memory that is freed: close the lmr first, and declare it after its memory."};
        bad = true;
        remove(*at); // reported once
      }
    }
    if (bad) report_misuse(report);
  }

  [[nodiscard]] static posted_memory& all() noexcept;

private:
  struct region {
    const void* lmr = nullptr;
    piece memory{};
    std::uint32_t id = 0;
    region* next = nullptr;
  };
  void remove(region*& at) noexcept {
    region* const r = std::exchange(at, at->next);
    region_count_.fetch_sub(1, std::memory_order_relaxed);
    delete r;
  }

  class guard {
  public:
    explicit guard(posted_memory& m) noexcept : memory_(m) {
      memory_.mutex_.lock();
      current().inside = true;
    }
    guard(const guard&) = delete;
    guard& operator=(const guard&) = delete;
    ~guard() {
      current().inside = false;
      memory_.mutex_.unlock();
    }

  private:
    posted_memory& memory_;
  };

  [[nodiscard]] record*& chain_of(const work_entry& e) noexcept {
    return table_[reinterpret_cast<std::uintptr_t>(&e) / 16 % table_.size()];
  }
  [[nodiscard]] record** find(const work_entry& e) noexcept {
    record** at = &chain_of(e);
    while (*at && (*at)->entry != &e) at = &(*at)->next;
    return at;
  }
  void remove(const work_entry& e) noexcept {
    record** const at = find(e);
    if (!*at) return;
    record* const r = std::exchange(*at, (*at)->next);
    records_.fetch_sub(1, std::memory_order_relaxed);
    if (r->use == memory_use::written) unpoison(*r);
    delete r;
  }
  /// The first segment with a page that is not mapped; null: none.
  [[nodiscard]] static const void* unmapped(const record& r) noexcept {
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    for (std::uint32_t i = 0; i < r.count; ++i) {
      const std::uintptr_t first = r.pieces[i].first & ~(page - 1);
      void* const at = reinterpret_cast<void*>(first);
      if (::msync(at, r.pieces[i].first + r.pieces[i].length - first, MS_ASYNC) != 0 && errno == ENOMEM)
        return reinterpret_cast<const void*>(r.pieces[i].first);
    }
    return nullptr;
  }
  /// False when the memory cannot be read.
  [[nodiscard]] static bool sum_of(const record& r, std::uint64_t& sum) noexcept {
    sum = 14695981039346656037u; // FNV-1a
    std::array<unsigned char, 4096> copy;
    for (std::uint32_t i = 0; i < r.count; ++i)
      for (std::size_t done = 0; done < r.pieces[i].length;) {
        const std::size_t n = r.pieces[i].length - done < copy.size() ? r.pieces[i].length - done : copy.size();
        const iovec to{copy.data(), n};
        const iovec from{reinterpret_cast<void*>(r.pieces[i].first + done), n};
        const ssize_t got = ::process_vm_readv(::getpid(), &to, 1, &from, 1, 0);
        if (got <= 0) return false;
        for (std::size_t k = 0; k < static_cast<std::size_t>(got); ++k) sum = (sum ^ copy[k]) * 1099511628211u;
        done += static_cast<std::size_t>(got);
      }
    return true;
  }

#ifdef DAT_HAS_ASAN
  /// Calls `f(first, bytes)` with the whole granules of each segment.
  template <class F>
  static void each_granules(const record& r, F f) noexcept {
    for (std::uint32_t i = 0; i < r.count; ++i) {
      const std::uintptr_t first = (r.pieces[i].first + 7) & ~std::uintptr_t{7};
      const std::uintptr_t end = (r.pieces[i].first + r.pieces[i].length) & ~std::uintptr_t{7};
      if (first < end) f(reinterpret_cast<void*>(first), end - first);
    }
  }
  static void poison(const record& r) noexcept {
    each_granules(r, [](void* at, std::size_t n) { __asan_poison_memory_region(at, n); });
  }
  /// Other operations may have the same memory, which stays poisoned for them.
  void unpoison(const record& r) noexcept {
    each_granules(r, [](void* at, std::size_t n) { __asan_unpoison_memory_region(at, n); });
    for (const record* chain : table_)
      for (const record* o = chain; o; o = o->next)
        if (o != &r && o->use == memory_use::written) {
          bool shared = false;
          for (std::uint32_t i = 0; i < r.count; ++i)
            for (std::uint32_t k = 0; k < o->count; ++k)
              shared = shared || o->pieces[k].overlaps(r.pieces[i].first, r.pieces[i].length);
          if (shared) poison(*o);
        }
  }
  void hook_free() noexcept {
    if (!std::exchange(hooked_, true))
      (void)__sanitizer_install_malloc_and_free_hooks([](const volatile void*, std::size_t) {},
                                                      [](const volatile void* p) {
                                                        const auto* const at = const_cast<const void*>(p);
                                                        if (at) all().freed(at, __sanitizer_get_allocated_size(at));
                                                      });
  }
#else
  static void poison(const record&) noexcept {}
  static void unpoison(const record&) noexcept {}
  static void hook_free() noexcept {}
#endif

  control_mutex mutex_;
  std::array<record*, 4096> table_{};
  std::atomic<std::uint32_t> records_{0};
  region* regions_ = nullptr;
  std::atomic<std::uint32_t> region_count_{0};
  [[maybe_unused]] bool hooked_ = false;
};

/// One for the whole program, also where its parts are compiled with hidden visibility.
[[gnu::visibility("default")]] inline constinit posted_memory posted_memory_instance;
inline posted_memory& posted_memory::all() noexcept { return posted_memory_instance; }

inline void work_watch<true>::done(const work_entry& e) noexcept { posted_memory::all().end(e, true); }
inline void work_watch<true>::forget(const work_entry& e) noexcept { posted_memory::all().end(e, false); }
inline void work_watch<true>::moved(const work_entry& from, const work_entry& to) noexcept {
  posted_memory::all().moved(from, to);
}
inline void work_watch<true>::registered(const void* lmr, const void* memory, std::size_t n,
                                         std::uint32_t id) noexcept {
  posted_memory::all().registered(lmr, memory, n, id);
}
inline void work_watch<true>::unregistered(const void* lmr) noexcept { posted_memory::all().unregistered(lmr); }
[[gnu::noinline]] inline void work_watch<true>::begin(const char* call, const char* object, std::uint32_t id) noexcept {
  posted_memory::all().unstage();
  posted_memory::post& p = posted_memory::current();
  p.call = call;
  p.object = object;
  p.id = id;
  p.from = __builtin_return_address(0);
}
template <class Sge>
void work_watch<true>::stage(const work_entry& e, memory_use use, const Sge* list, std::uint32_t count) noexcept {
  std::array<posted_memory::piece, posted_memory::most> pieces{};
  std::uint32_t n = 0;
  for (; n < count && n < pieces.size(); ++n)
    pieces[n] = {static_cast<std::uintptr_t>(list[n].addr), static_cast<std::size_t>(list[n].length)};
  posted_memory::all().stage(e, use, pieces.data(), n);
}
inline void work_watch<true>::arm() noexcept { posted_memory::all().arm(); }
inline void work_watch<true>::refused(std::uint32_t taken) noexcept { posted_memory::all().refused(taken); }

}}} // namespace dat::v0::detail
