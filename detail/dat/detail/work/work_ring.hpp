// The work that was posted to a queue and has not completed.
//
// The wr_id of a work request names the entry that records it, see work_arena. Entries of a queue form a linked ring
// without indices. A post takes the next entry, and a completion frees one, by a load and a store each.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/cookie.hpp>
#include <dat/status.hpp>

#include <dat/detail/base/checked.hpp>
#include <dat/detail/base/utility.hpp>
#include <dat/detail/work/work_watch.hpp>

#include <infiniband/verbs.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace dat { inline namespace v0 { namespace detail {

/// The maximum of work requests of one queue, including one of the library's own.
inline constexpr std::uint32_t max_ring = 1u << 20;

/// The kind of work of an entry: a dto_operation, or a kind that no consumer can post. Shifted, so that it can be
/// joined with the status of a completion and one comparison covers both. The sign distinguishes receives from
/// requests.
enum class work_kind : std::int32_t {};
[[nodiscard]] constexpr work_kind kind_of_work(dto_operation o) noexcept {
  const std::uint32_t receive = o == dto_operation::recv ? 1u << 31 : 0u;
  return static_cast<work_kind>(static_cast<std::uint32_t>(o) << 8 | receive);
}
[[nodiscard]] constexpr work_kind with_bits(work_kind k, std::int32_t bits) noexcept {
  return static_cast<work_kind>(static_cast<std::int32_t>(k) | bits);
}
[[nodiscard]] constexpr bool has_bits(work_kind k, std::int32_t bits) noexcept {
  return (static_cast<std::int32_t>(k) & bits) != 0;
}
/// A receive of a datagram endpoint. kind_of_work does not handle it, because that function is in the path of every
/// post.
inline constexpr work_kind recv_ud_work = static_cast<work_kind>(
    static_cast<std::int32_t>(static_cast<std::uint32_t>(kind_of_work(dto_operation::recv_ud)) | 1u << 31));
// Flag bits that can be added to a kind.
/// The receive was posted before the connection was known to be up.
inline constexpr std::int32_t pre_connect_bit = 1 << 16;
/// The completion is no notification.
inline constexpr std::int32_t no_notify_bit = 1 << 17;
/// The receive is of another zone than its endpoint, because the endpoint got its zone after the post.
inline constexpr std::int32_t foreign_bit = 1 << 19;
/// The receive was posted to a shared receive queue: its completion names the endpoint that took it.
inline constexpr std::int32_t shared_bit = 1 << 18;
/// A success concerns only the library and is no event. A bind whose completion is suppressed still completes, because
/// its window changes then.
inline constexpr std::int32_t internal_bit = 1 << 20;
/// The first of two requests that make one bind. It takes the old binding away, and is an event only when it fails.
inline constexpr std::int32_t first_half_bit = 1 << 21;
/// A request of the library's own, which is no part of the ring.
inline constexpr std::int32_t own_bit = 1 << 22;

/// The request of a graceful disconnect: its completion means that all requests before it are done.
inline constexpr work_kind marker_work = with_bits(kind_of_work(static_cast<dto_operation>(255)), own_bit);
/// The request by which an idle connection tests its peer.
inline constexpr work_kind probe_work = with_bits(kind_of_work(static_cast<dto_operation>(254)), own_bit);
inline constexpr work_kind shared_recv_work = with_bits(kind_of_work(dto_operation::recv), shared_bit);
inline constexpr work_kind pre_connect_recv_work = with_bits(kind_of_work(dto_operation::recv), pre_connect_bit);

[[nodiscard]] constexpr work_kind internal_if(bool internal, work_kind k) noexcept {
  return internal ? with_bits(k, internal_bit) : k;
}
[[nodiscard]] constexpr work_kind no_notify_if(bool no_notify, work_kind k) noexcept {
  return no_notify ? with_bits(k, no_notify_bit) : k;
}

/// Longest message that a request can have: the bit above is the mark of immediate data.
inline constexpr std::uint32_t longest_message = (1u << 31) - 1;
inline constexpr std::uint32_t immediate_mark = longest_message + 1;

/// The part of a posted operation that its entry keeps.
struct posted_work {
  dat::cookie cookie{};
  std::uint32_t length = 0; ///< see bytes(); for a bind, the key of its window
  work_kind kind{};

  /// A send with immediate data has a mark in its length and the kind of a send, because both end in the same event.
  void set(std::uint32_t bytes, work_kind k) noexcept {
    const bool immediate = k == kind_of_work(dto_operation::send_immediate);
    length = immediate ? bytes | immediate_mark : bytes;
    kind = immediate ? kind_of_work(dto_operation::send) : k;
  }
  [[nodiscard]] bool notifies() const noexcept { return !has_bits(kind, no_notify_bit); }
  [[nodiscard]] bool is_internal() const noexcept { return has_bits(kind, internal_bit); }
  [[nodiscard]] bool is_first_half() const noexcept { return has_bits(kind, first_half_bit); }
  [[nodiscard]] bool is_bind() const noexcept { return operation() == dto_operation::bind || is_unbind(); }
  [[nodiscard]] bool is_unbind() const noexcept { return operation() == dto_operation::unbind; }
  [[nodiscard]] bool is_pre_connect() const noexcept { return has_bits(kind, pre_connect_bit); }
  [[nodiscard]] bool is_foreign() const noexcept { return has_bits(kind, foreign_bit); }
  void set_foreign(bool foreign) noexcept {
    kind = static_cast<work_kind>(static_cast<std::int32_t>(kind) & ~foreign_bit);
    if (foreign) kind = with_bits(kind, foreign_bit);
  }
  [[nodiscard]] bool is_receive() const noexcept { return static_cast<std::int32_t>(kind) < 0; }
  [[nodiscard]] bool is_datagram() const noexcept {
    return operation() == dto_operation::send_ud || operation() == dto_operation::recv_ud;
  }
  [[nodiscard]] bool is_shared() const noexcept { return kind == shared_recv_work; }
  /// True when an ordinary operation of the consumer on the endpoint's own queue, with none of the bits above, has
  /// succeeded. One comparison suffices, because the bits of a kind above the lower 16 and a status have no bits in
  /// common.
  [[nodiscard]] bool is_plain_success(ibv_wc_status s) const noexcept {
    return ((static_cast<std::int32_t>(kind) & 0x7fff'0000) | static_cast<std::int32_t>(s)) == 0;
  }
  [[nodiscard]] dto_operation operation() const noexcept {
    const auto known = static_cast<dto_operation>(static_cast<std::uint32_t>(kind) >> 8 & 0x7f);
    return known == dto_operation::send && (length & immediate_mark) != 0 ? dto_operation::send_immediate : known;
  }
  /// The operation of a request without any of the bits above; `send` for a send with immediate data, too.
  [[nodiscard]] dto_operation request() const noexcept {
    return static_cast<dto_operation>(static_cast<std::uint32_t>(kind) >> 8);
  }
  /// The number of bytes of a request.
  [[nodiscard]] std::uint32_t bytes() const noexcept { return length & ~immediate_mark; }
};

class completion_owner;
class work_queue;
class work_ring;

/// An entry of a queue. Lives in a work_arena.
struct work_entry {
  std::uint64_t wr_id = 0;    ///< its name in this life of its endpoint. The first member, see work_entries::find
  work_entry* next = nullptr; ///< around the ring; in a shared queue, the next free one
  work_queue* queue = nullptr;
  posted_work posted;

  [[nodiscard, gnu::always_inline]] std::uint64_t id() const noexcept { return wr_id; }
  /// The ring that it belongs to, unless `posted.is_shared()`: then see shared_queue::of.
  [[nodiscard, gnu::always_inline]] work_ring& ring() const noexcept;
};

#if defined(__SANITIZE_THREAD__)
inline constexpr bool thread_sanitizer = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool thread_sanitizer = true;
#else
inline constexpr bool thread_sanitizer = false;
#endif
#else
inline constexpr bool thread_sanitizer = false;
#endif

/// Reads a word that another thread may write with `store` meanwhile. A plain load, because compilers do not fold an
/// atomic one into the comparison that it is for. Every such word is aligned and is compared once, and the load orders
/// nothing but stores that depend on the comparison. For ThreadSanitizer it is an atomic load.
template <class T>
[[nodiscard, gnu::always_inline]] inline T load_plain(const T& word) noexcept {
  if constexpr (thread_sanitizer)
    return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
  else
    return word;
}
template <class T>
[[gnu::always_inline]] inline void store(T& word, std::type_identity_t<T> value) noexcept {
  __atomic_store_n(&word, value, __ATOMIC_RELEASE);
}

/// The entries of an arena, for finding many of them.
class work_entries {
public:
  constexpr work_entries() noexcept = default; ///< has no arena, so no entry may be looked up
  explicit work_entries(const std::byte* base) noexcept
      : base_(base), mask_(*reinterpret_cast<const std::uint64_t*>(base)) {}
  /// Finds the entry with this wr_id; false when there is none. A foreign wr_id may point between entries: the word
  /// that is read there equals no wr_id, aligned or not.
  [[nodiscard, gnu::always_inline]] bool find(std::uint64_t wr_id, work_entry*& e) const noexcept
      __attribute__((no_sanitize("alignment"))) {
    const auto* const at = reinterpret_cast<const std::uint64_t*>(base_ + (wr_id & mask_));
    e = reinterpret_cast<work_entry*>(const_cast<std::uint64_t*>(at));
    return load_plain(*at) == wr_id;
  }

private:
  const std::byte* base_ = nullptr;
  std::uint64_t mask_ = 0;
};

/// The queue that entries belong to. The device orders the stores to an entry before its completion. ThreadSanitizer
/// does not see that order, so `tsan_acquire` shows it.
class work_queue {
public:
  /// For ThreadSanitizer: orders the stores of the thread that posted `e` before what follows.
  [[gnu::always_inline]] static void tsan_acquire(const work_entry& e) noexcept {
    if constexpr (thread_sanitizer) (void)e.queue->next_.load(std::memory_order_acquire);
  }
  /// The work of `e`.
  [[nodiscard, gnu::always_inline]] static posted_work read(const work_entry& e) noexcept {
    tsan_acquire(e);
    return e.posted;
  }

  work_queue(const work_queue&) = delete;
  work_queue& operator=(const work_queue&) = delete;

protected:
  constexpr work_queue() noexcept = default;
  ~work_queue() = default;

  std::atomic<work_entry*> next_{nullptr};
};

/// One thread may post while another retires: each writes one word that the other reads.
class work_ring : public work_queue {
public:
  /// Links `capacity + 1` entries at `first`. One of them stays free, so that a full ring differs from an empty one.
  /// All entries have the kind `usual` until a post sets another.
  void place(work_entry* first, std::uint32_t capacity, completion_owner* owner, work_kind usual) noexcept {
    first_ = first;
    count_ = capacity + 1;
    owner_ = owner;
    usual_ = usual;
    for (std::uint32_t i = 0; i < count_; ++i) {
      first[i].next = first + (i + 1 < count_ ? i + 1 : 0);
      first[i].queue = this;
    }
    clear();
  }
  /// Forgets all posted work. No thread may post or retire meanwhile.
  void clear() noexcept {
    for (std::uint32_t i = 0; i < count_; ++i) first_[i].posted.kind = usual_;
    next_.store(first_, std::memory_order_relaxed);
    store(last_retired_, first_ + count_ - 1);
    seen_ = first_ + count_ - 1;
    seen_position_ = retired_position_ = 0;
  }

  [[nodiscard]] completion_owner& owner() const noexcept { return *owner_; }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return count_ - 1; }
  /// The kind of its entries, unless a post sets another.
  [[nodiscard]] work_kind usual() const noexcept { return usual_; }
  /// Posted and not retired.
  [[nodiscard]] std::uint32_t used() const noexcept { return distance(load_plain(last_retired_), next()) - 1; }

  /// Posted and not completed. For a queue whose completions all pass `position` or `retire_next`.
  [[nodiscard]] std::uint32_t not_completed() const noexcept { return distance(seen_, next()) - 1; }

  /// Whether `e` is posted and not retired.
  [[nodiscard]] bool holds(const work_entry& e) const noexcept {
    const work_entry* const last = load_plain(last_retired_);
    return distance(last, &e) < distance(last, next());
  }

  // Posting side.
  /// The entry that the next post takes, if the ring is not full.
  [[nodiscard, gnu::always_inline]] work_entry* next() const noexcept { return next_.load(std::memory_order_relaxed); }
  /// Whether a post must not take `e`, which is next() or an entry after it.
  [[nodiscard, gnu::always_inline]] bool taken(const work_entry* e) const noexcept {
    return e == load_plain(last_retired_);
  }
  /// Whether a post may take `n` entries, starting with `e`, which is next(). Counts in bytes, so that it needs no
  /// division.
  [[nodiscard, gnu::always_inline]] bool has_room(const work_entry* e, std::size_t n) const noexcept {
    if (n == 1) return !taken(e);
    if (n > max_ring) return false;
    const auto free = reinterpret_cast<std::intptr_t>(load_plain(last_retired_)) - reinterpret_cast<std::intptr_t>(e);
    const auto wanted = static_cast<std::intptr_t>(n * sizeof(work_entry));
    return free >= wanted || (free < 0 && free + count_ * std::intptr_t{sizeof(work_entry)} >= wanted);
  }
  /// The entry that is `n` after `e`.
  [[nodiscard]] static work_entry* after(work_entry* e, std::uint32_t n) noexcept {
    for (; n != 0; --n) e = e->next;
    return e;
  }
  /// The entry that is `n` before `e`.
  [[nodiscard]] work_entry* before(work_entry* e, std::uint32_t n) const noexcept {
    for (; n != 0; --n) e = before(e);
    return e;
  }
  [[nodiscard]] work_entry* before(work_entry* e) const noexcept { return e == first_ ? first_ + count_ - 1 : e - 1; }
  /// All entries before `e` are posted.
  [[gnu::always_inline]] void set_next(work_entry* e) noexcept {
    next_.store(e, thread_sanitizer ? std::memory_order_release : std::memory_order_relaxed);
  }

  // Retiring side. A queue completes in order: all work that was posted before a completed entry is done as well.
  /// Frees `e` and all before it. For completions that are taken in the order in which they come.
  [[gnu::always_inline]] static void retire(work_entry& e) noexcept {
    if constexpr (checked_build) e.ring().end_watch(e);
    store(e.ring().last_retired_, &e);
  }
  /// The number of the post that `e` completes now. For completions that are set aside and taken later, in any order,
  /// when the entry may belong to another post. Called for every completion, in order.
  [[nodiscard]] std::uint32_t position(work_entry& e) noexcept {
    seen_position_ += distance(seen_, &e);
    seen_ = &e;
    return seen_position_;
  }
  /// Frees the entry of that post and all before it, unless a later one was freed already.
  void retire_through(work_entry& e, std::uint32_t position) noexcept {
    if (static_cast<std::int32_t>(position - retired_position_) <= 0) return;
    retired_position_ = position;
    retire(e);
  }
  /// As retire, for the first completion that is taken directly after others were set aside. All entries of those have
  /// been freed, so positions may start again at `e`.
  [[gnu::always_inline]] void retire_next(work_entry& e) noexcept {
    seen_ = &e;
    retire(e);
  }
  /// Frees `e` and all before it, unless `e` was freed already.
  void retire_up_to(work_entry& e) noexcept {
    if (holds(e)) retire(e);
  }

private:
  /// Checked builds: the work of `e`, and all before it, has completed.
  void end_watch(const work_entry& e) const noexcept {
    const work_entry* done = last_retired_;
    do {
      done = done->next;
      work_watch<checked_build>::done(*done);
    } while (done != &e);
  }
  // The result is 1 for the next entry, and count_ for the entry itself.
  [[nodiscard]] std::uint32_t distance(const work_entry* from, const work_entry* to) const noexcept {
    return static_cast<std::uint32_t>(to > from ? to - from : to - from + count_);
  }
  work_entry* last_retired_ = nullptr;
  work_entry* first_ = nullptr;
  completion_owner* owner_ = nullptr;
  std::uint32_t count_ = 0;
  work_kind usual_{};
  std::uint32_t seen_position_ = 0;
  std::uint32_t retired_position_ = 0;
  work_entry* seen_ = nullptr;
};

inline work_ring& work_entry::ring() const noexcept { return static_cast<work_ring&>(*queue); }

}}} // namespace dat::v0::detail

#ifdef DAT_CHECKED
#include <dat/detail/work/posted_memory.hpp>
#endif
