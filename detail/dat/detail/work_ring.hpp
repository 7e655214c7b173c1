// What was posted and not yet completed, per queue.
//
// The wr_id of a work request names the entry that remembers it, see work_arena. Entries of a queue form a ring that is
// linked, not indexed: taking the next one for a post, and freeing one by its completion, are a load and a store each.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/cookie.hpp>
#include <dat/status.hpp>

#include <dat/detail/basics.hpp>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace dat::inline v0::detail {

/// Most work requests of one queue, one of the library's included.
inline constexpr std::uint32_t max_ring = 1u << 20;

/// What an entry stands for: a dto_operation, or one that no consumer can post. Shifted, so that it can be joined with
/// the status of a completion and both be looked at together; the sign tells receives from requests, and the odd ones
/// are also numbered from 128 on, so that an RDMA write stands between the others that are usual.
enum class work_kind : std::int32_t {};
[[nodiscard]] constexpr work_kind kind_of_work(dto_operation o) noexcept {
  const std::uint32_t receive = o == dto_operation::recv ? 1u << 31 : 0u;
  const auto n = static_cast<std::uint32_t>(o);
  return static_cast<work_kind>(n << 8 | (n & 1) << 15 | receive);
}
/// A receive of a datagram endpoint. Not known to kind_of_work, which is in the path of every post.
inline constexpr work_kind recv_ud_work = static_cast<work_kind>(
    static_cast<std::int32_t>(static_cast<std::uint32_t>(kind_of_work(dto_operation::recv_ud)) | 1u << 31));
/// A request of the library's own that tells that all before it are done.
inline constexpr work_kind marker_work = kind_of_work(static_cast<dto_operation>(255));
/// A receive that was posted to a shared receive queue: whose it is, its completion tells.
inline constexpr work_kind shared_recv_work =
    static_cast<work_kind>(static_cast<std::int32_t>(kind_of_work(dto_operation::recv)) | 1 << 18);
/// A receive that was posted before the connection was known to be up.
inline constexpr work_kind early_recv_work =
    static_cast<work_kind>(static_cast<std::int32_t>(kind_of_work(dto_operation::recv)) | 1 << 16);

/// Joined with a kind: the completion is no notification.
inline constexpr std::int32_t quiet_work = 1 << 17;
/// Likewise: a success is the library's to know, and no event. A bind whose completion is suppressed still completes,
/// because its window changes then.
inline constexpr std::int32_t silent_work = 1 << 20;
[[nodiscard]] constexpr work_kind silent_if(bool silent, work_kind k) noexcept {
  return silent ? static_cast<work_kind>(static_cast<std::int32_t>(k) | silent_work) : k;
}
/// Likewise: the first of two requests that make one bind. It takes the old binding away, and only tells when it fails.
inline constexpr std::int32_t first_half_work = 1 << 21;
[[nodiscard]] constexpr work_kind quiet_if(bool quiet, work_kind k) noexcept {
  return quiet ? static_cast<work_kind>(static_cast<std::int32_t>(k) | quiet_work) : k;
}

/// Longest message that a request can have: the bit above it is taken.
inline constexpr std::uint32_t longest_message = (1u << 31) - 1;
inline constexpr std::uint32_t immediate_mark = longest_message + 1;

/// What the consumer wanted to be reminded of.
struct posted_work {
  dat::cookie cookie{};
  std::uint32_t length = 0; ///< see bytes(); of a bind, the key of its window
  work_kind kind{};

  /// A send with immediate data is marked in its length and has the kind of a send: both end in the same event, by the
  /// shortest way. Both members at once where the kind is 0: compilers do not join the two stores.
  [[gnu::always_inline]] void set(std::uint32_t bytes, work_kind k) noexcept {
    if (k == kind_of_work(dto_operation::send_immediate)) {
      length = bytes | immediate_mark;
      kind = work_kind{};
    } else if (std::endian::native == std::endian::little && k == work_kind{}) { // known when compiling
      using word [[gnu::may_alias]] = std::uint64_t;
      static_assert(offsetof(posted_work, kind) == offsetof(posted_work, length) + 4);
      *reinterpret_cast<word*>(reinterpret_cast<std::byte*>(this) + offsetof(posted_work, length)) = bytes;
    } else {
      length = bytes;
      kind = k;
    }
  }
  /// Of an atomic. Two stores of constants: g++ makes them one of a register, and has none to spare.
  [[gnu::always_inline]] void set_word(work_kind k) noexcept {
    static_cast<volatile std::uint32_t&>(length) = sizeof(std::uint64_t);
    static_cast<volatile work_kind&>(kind) = k;
  }
  [[nodiscard]] bool is_quiet() const noexcept { return (static_cast<std::int32_t>(kind) & quiet_work) != 0; }
  [[nodiscard]] bool is_silent() const noexcept { return (static_cast<std::int32_t>(kind) & silent_work) != 0; }
  [[nodiscard]] bool is_first_half() const noexcept { return (static_cast<std::int32_t>(kind) & first_half_work) != 0; }
  [[nodiscard]] bool is_bind() const noexcept { return operation() == dto_operation::bind || is_unbind(); }
  [[nodiscard]] bool is_unbind() const noexcept { return operation() == dto_operation::unbind; }
  [[nodiscard]] bool is_early() const noexcept {
    constexpr auto bit =
        static_cast<std::int32_t>(early_recv_work) ^ static_cast<std::int32_t>(kind_of_work(dto_operation::recv));
    return (static_cast<std::int32_t>(kind) & bit) != 0;
  }
  [[nodiscard]] bool is_receive() const noexcept { return static_cast<std::int32_t>(kind) < 0; }
  [[nodiscard]] bool is_datagram() const noexcept {
    return operation() == dto_operation::send_ud || operation() == dto_operation::recv_ud;
  }
  [[nodiscard]] bool is_shared() const noexcept { return kind == shared_recv_work; }
  /// Posted by the consumer, with no property that the rest of this list is about, to a queue of the endpoint's own.
  [[nodiscard]] bool is_plain() const noexcept {
    return (static_cast<std::int32_t>(kind) & 0x7fff'0000) == 0 && kind != marker_work;
  }
  [[nodiscard]] dto_operation operation() const noexcept {
    const auto known = static_cast<dto_operation>(static_cast<std::uint32_t>(kind) >> 8 & 0x7f);
    return known == dto_operation::send && (length & immediate_mark) != 0 ? dto_operation::send_immediate : known;
  }
  /// How much a request was to transfer.
  [[nodiscard]] std::uint32_t bytes() const noexcept { return length & ~immediate_mark; }
};

class ep_core;
class work_queue;
class work_ring;
class shared_queue;

/// An entry of a queue. Lives in a work_arena.
struct work_entry {
  std::uint64_t wr_id = 0;    ///< what names it in this life of its endpoint. First, see work_arena::find
  work_entry* next = nullptr; ///< around the ring; in a shared queue, the next free one
  work_queue* queue = nullptr;
  posted_work posted;

  [[nodiscard, gnu::always_inline]] std::uint64_t id() const noexcept { return wr_id; }
  /// Where it belongs to: a shared queue if `posted` says so.
  [[nodiscard, gnu::always_inline]] work_ring& ring() const noexcept;
  [[nodiscard, gnu::always_inline]] shared_queue& shared() const noexcept;
};

// Words that one thread writes while another reads them. Reading is a plain load: compilers do not fold an atomic one
// into the comparison that it is for, and all of these are compared once, are aligned, and order nothing but stores
// that depend on the comparison. ThreadSanitizer sees atomic loads.
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

template <class T>
[[nodiscard, gnu::always_inline]] inline T peek(const T& word) noexcept {
  if constexpr (thread_sanitizer)
    return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
  else
    return word;
}
template <class T>
[[gnu::always_inline]] inline void store(T& word, std::type_identity_t<T> value) noexcept {
  __atomic_store_n(&word, value, __ATOMIC_RELEASE);
}

/// What entries belong to. The device orders what is written to an entry, a post before its completion; ThreadSanitizer
/// does not see it, and is told.
class work_queue {
public:
  /// For ThreadSanitizer: what the poster wrote is there, as the device has shown.
  [[gnu::always_inline]] static void observe(const work_entry& e) noexcept {
    if constexpr (thread_sanitizer) (void)e.queue->next_.load(std::memory_order_acquire);
  }
  /// What was posted with `e`.
  [[nodiscard, gnu::always_inline]] static posted_work read(const work_entry& e) noexcept {
    observe(e);
    return {e.posted.cookie, e.posted.length, e.posted.kind}; // by member: what nobody reads costs nothing
  }

protected:
  constexpr work_queue() noexcept = default;
  work_queue(const work_queue&) = delete;
  work_queue& operator=(const work_queue&) = delete;
  ~work_queue() = default;

  std::atomic<work_entry*> next_{nullptr};
};

/// One thread may post while another retires: each writes one word that the other reads.
class work_ring : public work_queue {
public:
  /// Links `capacity + 1` entries at `first`. One of them stays free, so that a full ring differs from an empty one.
  /// All entries stand for `usual` work until told otherwise.
  void place(work_entry* first, std::uint32_t capacity, ep_core* owner, work_kind usual) noexcept {
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
  /// Forgets everything posted. Nobody may post or retire meanwhile.
  void clear() noexcept {
    for (std::uint32_t i = 0; i < count_; ++i) first_[i].posted.kind = usual_;
    next_.store(first_, std::memory_order_relaxed);
    store(last_retired_, first_ + count_ - 1);
    seen_ = first_ + count_ - 1;
    seen_position_ = retired_position_ = 0;
  }

  [[nodiscard]] ep_core& owner() const noexcept { return *owner_; }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return count_ - 1; }
  /// What its entries stand for, unless told otherwise.
  [[nodiscard]] work_kind usual() const noexcept { return usual_; }
  /// Posted and not retired.
  [[nodiscard]] std::uint32_t used() const noexcept { return distance(peek(last_retired_), next()) - 1; }

  /// Whether `e` is posted and not retired.
  [[nodiscard]] bool holds(const work_entry& e) const noexcept {
    const work_entry* const last = peek(last_retired_);
    return distance(last, &e) < distance(last, next());
  }

  // Posting side.
  /// The entry that the next post takes, if the ring is not full.
  [[nodiscard, gnu::always_inline]] work_entry* next() const noexcept { return next_.load(std::memory_order_relaxed); }
  /// Whether `e`, next or one that follows it, may not be taken.
  [[nodiscard, gnu::always_inline]] bool taken(const work_entry* e) const noexcept { return e == peek(last_retired_); }
  /// Whether `n` may be taken from `e`, which is next, on. Counted in bytes, to need no division.
  [[nodiscard, gnu::always_inline]] bool has_room(const work_entry* e, std::size_t n) const noexcept {
    if (n > max_ring) return false;
    const auto free = reinterpret_cast<std::intptr_t>(peek(last_retired_)) - reinterpret_cast<std::intptr_t>(e);
    const auto wanted = static_cast<std::intptr_t>(n * sizeof(work_entry));
    return free >= wanted || (free < 0 && free + count_ * std::intptr_t{sizeof(work_entry)} >= wanted);
  }
  /// The entry that is `n` after `e`.
  [[nodiscard]] static work_entry* after(work_entry* e, std::uint32_t n) noexcept {
    for (; n != 0; --n) e = e->next;
    return e;
  }
  [[nodiscard]] work_entry* before(work_entry* e) const noexcept { return e == first_ ? first_ + count_ - 1 : e - 1; }
  /// All entries before `e` are posted.
  [[gnu::always_inline]] void set_next(work_entry* e) noexcept {
    next_.store(e, thread_sanitizer ? std::memory_order_release : std::memory_order_relaxed);
  }

  // Retiring side. A queue completes in order: whatever was posted before a completed entry is done as well.
  /// Frees `e` and all before it. For completions that are taken as they come.
  [[gnu::always_inline]] static void retire(work_entry& e) noexcept { store(e.ring().last_retired_, &e); }
  /// The number of the post that `e` completes now. For completions that are set aside and taken later, in any order,
  /// when the entry may stand for another post. Called for every completion, in order.
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
  /// Frees everything. Nobody may post meanwhile.
  void retire_all() noexcept {
    work_entry* last = before(next());
    if (last != seen_) retired_position_ = position(*last);
    retire(*last);
  }

private:
  // From 1, the neighbour, to count_, the entry itself.
  [[nodiscard]] std::uint32_t distance(const work_entry* from, const work_entry* to) const noexcept {
    return static_cast<std::uint32_t>(to > from ? to - from : to - from + count_);
  }
  work_entry* last_retired_ = nullptr;
  work_entry* first_ = nullptr;
  ep_core* owner_ = nullptr;
  std::uint32_t count_ = 0;
  work_kind usual_{};
  std::uint32_t seen_position_ = 0;
  std::uint32_t retired_position_ = 0;
  work_entry* seen_ = nullptr;
};

inline work_ring& work_entry::ring() const noexcept { return static_cast<work_ring&>(*queue); }

} // namespace dat::inline v0::detail
