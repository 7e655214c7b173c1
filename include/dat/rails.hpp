// Rails: several adapters or ports to one peer act as one endpoint. Each message arrives once, even if a rail fails.
// SPDX-License-Identifier: BSL-1.0
#pragma once

//     // the active side; the peer calls dat::rails::listen with its adapters in the same order
//     const std::array paths{dat::rail_path{&first, address_1, 7471}, dat::rail_path{&second, address_2, 7471}};
//     DAT_TRY(auto rails, dat::rails::connect(paths, {.failover_within = 2s}));
//     DAT_TRY(auto memory, rails.register_memory(buffer));
//     DAT_TRYV(rails.write(memory, 0, bytes, there, 0, {.cookie = 7, .tag = 1, .ordered = true}));
//     while (!done) DAT_TRYV(rails.wait(visitor, 100ms)); // the thread that calls it does all the work
//
// A message is an RDMA write with immediate data: its bytes go straight into the peer's memory, and the peer gets a
// `rails_message` with its tag. A rail that fails is replaced by the others, and connects again after a cool-down.
// Messages arrive exactly once; those of the ordered class in the order of their writes. Not part of <dat/dat.hpp>.
//
// The protocol, for programs that use it without this header. All numbers are big-endian, other than the immediate
// data, whose lowest byte is first.
//
// | item | bytes |
// |---|---|
// | private data of a connect | "datr", version 1, rail, number of rails, 0, life of the rail (4), session (8) |
// | control message (a send of 24 bytes) | kind, rail, version 1, 0, life (4), count (8), session (8) |
//
// | bits of the immediate data of a message | meaning |
// |---|---|
// | 31-30 | 0 unordered, 1 ordered, 2 and 3 the same without a message |
// | 29-16 | sequence number of its class |
// | 15-0 | tag |
//
// A life is one connection of a rail; the active side numbers them from 1. Control messages:
//
// | kind | sender | meaning of count |
// |---|---|---|
// | 1 hello | the active side, first on each life | 0. The passive side sends nothing on a life before it |
// | 2 credit | the receiver of messages | the messages of this life that the peer may send, from the first one |
// | 3 closed | a side that has closed `life` of `rail`, on any rail that works | the messages of it that have arrived |
//
// A side that notices a failure disconnects the rail, so that no late packet can change its memory. Then it takes the
// last completions, and reports the count. A connection delivers in order, so the count identifies the messages that
// have arrived; a message that the adapter has delivered twice counts once. The peer sends exactly the others again, on
// other rails. A side repeats a report until the send of the report has completed. A report of a life that is settled
// has no effect.
//
// In each class, the number of a message is less than 8191 - 2 * (rails - 1) * depth ahead of that of the oldest
// message that is not done. The receiver would take a message further ahead for a repeated one, and drop it.

#include <dat/dto.hpp>
#include <dat/ep.hpp>
#include <dat/error.hpp>
#include <dat/expected.hpp>
#include <dat/ia.hpp>
#include <dat/lmr.hpp>
#include <dat/port.hpp>
#include <dat/privileges.hpp>
#include <dat/pz.hpp>
#include <dat/segment.hpp>
#include <dat/status.hpp>
#include <dat/timeout.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace dat { inline namespace v0 {

/// One rail: an adapter of this host and, on the active side, the peer's address and port.
struct rail_path {
  dat::ia* ia = nullptr; ///< must outlive the rails
  ia_address remote{};   ///< the address of the peer's adapter; not used by `listen`
  conn_qual port = 7471; ///< the port of the peer; for `listen`, the port to listen on
};

/// The rule by which the next message chooses one of the rails that are up.
enum class rails_spread : std::uint8_t {
  by_bytes,   ///< the rail with the fewest bytes under way: a slow rail gets less
  round_robin ///< one rail after the other
};
/// Returns the name of the enumerator, or "unknown ..." for a value outside the enumeration. Never allocates.
[[nodiscard]] constexpr std::string_view to_string(rails_spread value) noexcept {
  return value == rails_spread::by_bytes      ? "by_bytes"
         : value == rails_spread::round_robin ? "round_robin"
                                              : "unknown rails_spread";
}

/// Options of rails. Every member has a working default. `depth` is the peer's, too.
struct rails_options {
  rails_spread spread = rails_spread::by_bytes;
  /// The time from the failure of a rail until its messages go by another one, 90 ms to 60 s. It chooses the retries of
  /// the adapters, and how often an idle rail is probed. The rails must be run more often than that.
  std::chrono::milliseconds failover_within{2000};
  std::chrono::milliseconds cool_down{1000}; ///< from a failure to the next attempt; doubles with each failed attempt
  std::chrono::milliseconds max_cool_down{30000}; ///< the maximum of the doubled time
  /// The messages under way on a rail, and the receives posted for them: 1 to 4096, and with several rails at most 2048
  /// divided by the number of the others.
  std::uint32_t depth = 64;
  std::uint32_t window = 1024; ///< messages that are written and not done, 1 to 8192
  /// The clock, for programs that simulate time. Must not go backwards.
  std::chrono::steady_clock::time_point (*clock)() noexcept = &std::chrono::steady_clock::now;
};

/// The properties of a message.
struct rails_write {
  std::uint64_t cookie = 0; ///< returned by rails_write_done
  std::uint16_t tag = 0;    ///< delivered to the peer
  bool ordered = false;     ///< delivered after all earlier ordered messages
};

// --- events ---------------------------------------------------------------------------------------------------------

/// The message has arrived at the peer's adapter; its memory may be reused.
struct rails_write_done {
  std::uint64_t cookie;
};
/// The message is at fault, not a rail: the peer's memory may not be written, or was deregistered. It never arrives.
struct rails_write_failed {
  std::uint64_t cookie;
  dto_status status;
};
/// A message of the peer: its bytes are in this side's memory.
struct rails_message {
  std::uint16_t tag;
  bool ordered;
  std::uint32_t bytes;
};
/// A rail carries messages from now on.
struct rail_up {
  std::size_t rail;
};
/// A rail has failed; its messages go by others, or wait for one.
struct rail_down {
  std::size_t rail;
  std::string_view cause; ///< a sentence; valid until the rails end
  std::size_t up;         ///< the number of rails that are left
};
/// The events that `rails::run` and `rails::wait` pass to their visitor.
using rails_event = std::variant<rails_write_done, rails_write_failed, rails_message, rail_up, rail_down>;

/// The health of one rail.
struct rail_health {
  bool up = false;
  std::uint32_t lives = 0;     ///< connections since the beginning, attempts included
  std::uint64_t sent = 0;      ///< messages that were posted on this rail, repeated ones included
  std::uint64_t received = 0;  ///< messages that arrived on it
  std::uint32_t under_way = 0; ///< messages
  std::uint64_t bytes_under_way = 0;
  std::string_view cause; ///< the cause of the latest failure; empty when there was none
};

// --- memory ---------------------------------------------------------------------------------------------------------

/// The rights with which rails register memory.
inline constexpr auto rails_rights = dat::local_read | dat::local_write | dat::remote_write;

/// Memory that is registered with the adapters of all rails. Move-only; must outlive its writes.
class rails_memory {
public:
  rails_memory() noexcept = default; ///< names no memory
  [[nodiscard]] std::size_t size_bytes() const noexcept { return regions_ ? regions_->front().size_bytes() : 0; }
  explicit operator bool() const noexcept { return regions_ != nullptr; }
  /// The data that the peer needs to write there, for `rails_remote::from_wire`: 24 bytes for each rail. Allocates.
  [[nodiscard]] std::vector<std::byte> to_wire() const;

private:
  friend class rails;
  using region = lmr<std::byte, rails_rights.value>;
  std::unique_ptr<std::vector<region>> regions_;
};

/// Memory of the peer. Move-only; must outlive the writes to it.
class rails_remote {
public:
  using segment = remote_segment<std::byte, mem_priv::remote_write>;
  rails_remote() noexcept = default; ///< names no memory
  /// Reads the bytes of the peer's `rails_memory::to_wire`.
  /// Errors: `invalid_parameter` when the bytes are not a number of segments of one length, 1 to 16; as
  /// remote_segment::from_wire.
  /// Allocates: yes; std::bad_alloc passes through.
  /// Blocks: never.
  /// Thread safety: safe.
  [[nodiscard]] static expected<rails_remote> from_wire(std::span<const std::byte> bytes);
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return segments_ ? segments_->front().size_bytes() : 0; }
  explicit operator bool() const noexcept { return segments_ != nullptr; }

private:
  friend class rails;
  std::unique_ptr<std::vector<segment>> segments_;
};

// --- rails ----------------------------------------------------------------------------------------------------------

/// A set of rails to one peer. `connect` makes the active side and `listen` the passive one; both write and receive.
///
/// No thread is started: `run` and `wait` do all the work, connecting and failing over included, so the program calls
/// one of them often. Nothing blocks while rails are down: up to `window` messages wait.
///
/// Exactly once holds between two `rails` objects. If a process ends, the other side keeps the messages that were not
/// done, and its rails stay down. The peer's next process is another session, and is rejected.
///
/// Move-only.
/// Thread safety: one thread at a time.
class rails {
public:
  static constexpr std::size_t max_rails = 16;

  rails() noexcept;
  rails(rails&&) noexcept;
  rails& operator=(rails&&) noexcept;
  ~rails(); ///< disconnects the rails at once; messages under way may or may not arrive

  /// Begins to connect the rails. Each rail connects independently; rail_up reports it.
  /// Errors: `invalid_parameter` for no path or more than max_rails, a path without ia, an option out of its range;
  /// `model_not_supported` for an adapter of iWARP;
  /// as ia::create_pz, ia::create_evd and pz::register_memory.
  /// Allocates: yes; std::bad_alloc passes through.
  /// Blocks: briefly, in the driver.
  /// Thread safety: safe.
  [[nodiscard]] static expected<rails> connect(std::span<const rail_path> paths, const rails_options& options = {});
  /// Begins to listen for the rails of one peer, each at its own ia and port.
  /// Errors: as connect, and as ia::create_psp.
  /// Allocates, Blocks and Thread safety: as connect.
  [[nodiscard]] static expected<rails> listen(std::span<const rail_path> paths, const rails_options& options = {});

  /// Registers the bytes of a contiguous range with the adapter of each rail.
  /// Errors: as pz::register_memory.
  /// Allocates: yes; std::bad_alloc passes through.
  /// Blocks: as pz::register_memory.
  /// Thread safety: as the class.
  template <class Range>
  [[nodiscard]] expected<rails_memory> register_memory(Range& range) {
    const std::span all(range);
    static_assert(transferable<typename decltype(all)::element_type>,
                  "dat: only trivially copyable elements can be transferred as bytes");
    static_assert(!std::is_const_v<typename decltype(all)::element_type>,
                  "dat: rails register memory for the peer's writes: it must not be const");
    return register_bytes(std::as_writable_bytes(all));
  }

  /// Writes `bytes` bytes of `from` to the byte `at` of `to`, as one message. With 0 bytes it only notifies. The memory
  /// must stay unchanged until `rails_write_done`.
  /// Errors:
  /// - `insufficient_resources` (resource_credits): `window` messages are not done, or a message of the same class
  ///   that is thousands of messages older is not done; run the rails
  /// - `invalid_parameter`: a range exceeds its memory, or the memory is of rails of another number
  /// - `length_error`: the message is longer than an adapter can send
  /// - `invalid_handle`: an object is empty
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: as the class.
  expected<void> write(const rails_memory& from, std::size_t first, std::size_t bytes, const rails_remote& to,
                       std::uint64_t at, const rails_write& properties = {}) noexcept;

  /// Does all pending work without waiting, and calls `visit` with each event. Returns their number. `visit` takes the
  /// five types of rails_event, and may write.
  /// Errors: `invalid_handle`.
  /// Allocates: when a rail connects.
  /// Blocks: never.
  /// Thread safety: as the class.
  template <class Visitor>
  expected<std::size_t> run(Visitor&& visit) {
    std::size_t n = 0;
    const auto give = [&] {
      for (; auto e = next(); ++n) std::visit(visit, *e);
    };
    give(); // what is left of a run whose visitor has thrown: the rails take no more messages meanwhile
    if (auto ok = step(); !ok) return ok.assume_error();
    give();
    return n;
  }
  /// As run; if there is no event, waits up to `limit` for one.
  /// Errors: as run; `timeout_expired`; `interrupted_call` when a signal interrupted the wait.
  /// Allocates: as run.
  /// Blocks: up to `limit`.
  /// Thread safety: as the class.
  template <class Visitor>
  expected<std::size_t> wait(Visitor&& visit, timeout limit) {
    // A century counts as unlimited, and adding a century cannot overflow the clock.
    const auto until =
        std::chrono::steady_clock::now() + std::clamp<timeout>(limit, timeout::zero(), std::chrono::hours(24 * 36525));
    for (;;) {
      auto n = run(visit);
      if (!n || n.assume_value() != 0) return n;
      if (auto ok = sleep(until); !ok) return ok.assume_error();
    }
  }
  /// Descriptors that are readable when `run` has work, for poll and epoll. Also call `run` every `failover_within /
  /// 4`. The rails own them. Allocates.
  [[nodiscard]] std::vector<int> descriptors() const;
  /// Resets the descriptors: call it when one is readable, before `run`.
  void take_triggers() noexcept;

  [[nodiscard]] std::size_t size() const noexcept;     ///< the number of rails
  [[nodiscard]] std::size_t up() const noexcept;       ///< the number of rails that are up
  [[nodiscard]] std::size_t not_done() const noexcept; ///< messages that were written and are neither done nor failed
  /// The number of messages that arrived twice and were dropped. It is 0 unless the peer violates the protocol, or an
  /// adapter delivers a message again. Soft-RoCE of Linux 6.1 sometimes does so when an acknowledgement was lost.
  [[nodiscard]] std::uint64_t duplicates() const noexcept;
  /// The health of the rail with this index; an empty one for another index.
  [[nodiscard]] rail_health health(std::size_t rail) const noexcept;
  /// Disconnects a rail, as if it had failed: for maintenance, and for tests. It connects again after the cool-down.
  /// Errors: `invalid_parameter` for an index that is not below size(); `invalid_handle`.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: as the class.
  expected<void> disconnect(std::size_t rail) noexcept;
  explicit operator bool() const noexcept { return impl_ != nullptr; }

private:
  struct impl;
  explicit rails(std::unique_ptr<impl> i) noexcept;
  [[nodiscard]] static expected<rails> make(std::span<const rail_path> paths, const rails_options& options,
                                            bool active);
  [[nodiscard]] expected<rails_memory> register_bytes(std::span<std::byte> bytes);
  expected<void> step();
  [[nodiscard]] std::optional<rails_event> next() noexcept;
  expected<void> sleep(std::chrono::steady_clock::time_point until) noexcept;

  std::unique_ptr<impl> impl_;
};

}} // namespace dat::v0

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/impl/rails.ipp>
#endif
