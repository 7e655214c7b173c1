// The parts of rails: numbers on the wire, messages, one rail, and all of them. On public headers only.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/cno.hpp>
#include <dat/cr.hpp>
#include <dat/dto.hpp>
#include <dat/evd.hpp>
#include <dat/event.hpp>
#include <dat/psp.hpp>
#include <dat/rails.hpp>

#include <array>
#include <bit>
#include <deque>

namespace dat { inline namespace v0 { namespace detail { namespace rail {

using time_point = std::chrono::steady_clock::time_point;

// The immediate data of a message, and sequence numbers, which wrap.
inline constexpr std::uint32_t sequences = 1u << 14;
inline constexpr std::uint32_t half = sequences / 2; ///< messages of a class that may be between the first and the last
inline constexpr std::uint32_t classes = 2;

/// The most messages that follow the latest one before the peer takes a message that is done. Done means that it has
/// arrived in a queue of the peer, which takes its queues one after the other. The credits of the other rails let the
/// peer take up to `depth` messages of each of them first, and grant as many again.
[[nodiscard]] constexpr std::size_t overtaking(std::size_t rails, std::size_t depth) noexcept {
  return 2 * (rails - 1) * depth;
}

/// The contents of the immediate data of a message. The adapter sends the bytes as they are in memory; on the wire the
/// lowest byte is first.
struct label {
  bool ordered = false;
  bool skip = false; ///< a number without a message
  std::uint32_t sequence = 0;
  std::uint16_t tag = 0;

  [[nodiscard]] constexpr std::uint32_t immediate() const noexcept {
    return lowest_first((skip ? 1u << 31 : 0) | (ordered ? 1u << 30 : 0) | sequence << 16 | tag);
  }
  [[nodiscard]] static constexpr label of(std::uint32_t immediate) noexcept {
    immediate = lowest_first(immediate);
    return {(immediate >> 30 & 1) != 0, immediate >> 31 != 0, immediate >> 16 & (sequences - 1),
            static_cast<std::uint16_t>(immediate & 0xffff)};
  }

private:
  [[nodiscard]] static constexpr std::uint32_t lowest_first(std::uint32_t n) noexcept {
    return std::endian::native == std::endian::little ? n : __builtin_bswap32(n);
  }
};

/// A message that only the rails send to each other.
struct control {
  static constexpr std::size_t size = 24;
  enum class kind_type : std::uint8_t { hello = 1, credit = 2, closed = 3 };

  kind_type kind{};
  std::uint8_t rail = 0;
  std::uint32_t life = 0;
  std::uint64_t count = 0;
  std::uint64_t session = 0;

  void write(std::span<std::byte> to) const noexcept;
  [[nodiscard]] static std::optional<control> read(std::span<const std::byte> from) noexcept;
};

/// The private data of a connect.
struct greeting {
  static constexpr std::size_t size = 20;
  std::uint8_t rail = 0;
  std::uint8_t rails = 0;
  std::uint32_t life = 0;
  std::uint64_t session = 0;

  [[nodiscard]] std::array<std::byte, size> bytes() const noexcept;
  [[nodiscard]] static std::optional<greeting> read(std::span<const std::byte> from) noexcept;
};

/// A message that was written and is not done.
struct message {
  const std::vector<lmr<std::byte, rails_rights.value>>* from = nullptr;
  const std::vector<rails_remote::segment>* to = nullptr;
  std::size_t first = 0;
  std::size_t bytes = 0;
  std::uint64_t at = 0;
  std::uint64_t cookie = 0;
  std::uint32_t sequence = 0;
  std::uint16_t tag = 0;
  bool ordered = false;
  bool skip = false; ///< its own fault: only its sequence number is sent
};

/// Numbers in order, as many as it was made for.
class place_queue {
public:
  explicit place_queue(std::size_t most = 0) : all_(most) {}
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::uint32_t operator[](std::size_t i) const noexcept { return all_[(first_ + i) % all_.size()]; }
  void push_back(std::uint32_t n) noexcept { all_[(first_ + size_++) % all_.size()] = n; }
  void push_front(std::uint32_t n) noexcept {
    first_ = (first_ + all_.size() - 1) % all_.size();
    all_[first_] = n;
    ++size_;
  }
  std::uint32_t pop_front() noexcept {
    const std::uint32_t n = all_[first_];
    first_ = (first_ + 1) % all_.size();
    --size_;
    return n;
  }

private:
  std::vector<std::uint32_t> all_;
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

/// Messages that were posted on a life that has ended, until the peer reports how many have arrived.
struct unsettled {
  std::size_t rail;
  std::uint32_t life;
  std::uint64_t completed; ///< completed messages before `posted`
  std::vector<std::uint32_t> posted;
};

/// The end of a life that the peer has not learned yet.
struct report {
  std::size_t rail;
  std::uint32_t life;
  std::uint64_t received;
  std::optional<std::size_t> on = {}; ///< the rail that carries it now
};

enum class stage : std::uint8_t { down, connecting, up, closing };

/// One rail.
struct rail {
  static constexpr streams all = stream::dto | stream::connection | stream::connection_requests;
  static constexpr std::uint32_t controls = 32; ///< receives for control messages, and buffers to send them from

  rail_path path;
  dat::pz pz;
  dat::cno cno;
  dat::evd<all> evd;
  dat::psp psp;
  std::vector<std::byte> memory; ///< for control messages: received ones, then sent ones
  lmr<std::byte, (dat::local_read | dat::local_write).value> region;
  dat::ep<rc> ep;
  std::size_t largest = 0; ///< bytes of a message
  dat::cr waiting;         ///< the request for the next life, while this one closes
  greeting wanted;         ///< the greeting of `waiting`

  stage at = stage::down;
  bool known = false; ///< the peer may have messages for, or of, this life
  bool was_up = false;
  bool ended = false; ///< its last event has arrived
  std::string_view cause;
  std::uint32_t life = 0;
  std::uint64_t received = 0;
  std::uint64_t granted = 0;   ///< messages granted to the peer, by a credit message
  std::uint64_t allowed = 0;   ///< messages allowed by the peer
  std::uint64_t completed = 0; ///< messages of this life
  place_queue posted;
  std::uint64_t bytes = 0;              ///< bytes of the messages in `posted`
  std::optional<std::uint64_t> settled; ///< the peer's report of this life, while it closes
  bool hello_due = false;
  bool credit_under_way = false;
  bool probing = false;
  std::vector<std::uint32_t> free_controls;
  time_point active{}; ///< when the rail was last seen to work
  time_point connect_at{};
  std::chrono::milliseconds pause{};
  rail_health health;
};

// Cookies of requests; those of messages are their places.
inline constexpr std::uint64_t control_cookie = std::uint64_t{1} << 32; ///< and the buffer
inline constexpr std::uint64_t probe_cookie = std::uint64_t{2} << 32;

}}}} // namespace dat::v0::detail::rail

namespace dat { inline namespace v0 {

struct rails::impl {
  using rail = detail::rail::rail;

  rails_options options;
  bool active = false;
  std::uint64_t session = 0;
  std::deque<rail> all; ///< rails do not move
  std::size_t turn = 0; ///< the next rail of round_robin

  // Messages to the peer.
  std::vector<detail::rail::message> messages;
  std::vector<std::uint32_t> free;
  detail::rail::place_queue queue;
  std::array<std::uint32_t, detail::rail::classes> next_sequence{};
  std::array<std::uint32_t, detail::rail::classes> oldest{}; ///< the oldest number that is not settled
  std::array<std::vector<bool>, detail::rail::classes> settled;
  std::vector<detail::rail::unsettled> lives;
  std::vector<detail::rail::report> reports;

  // Messages of the peer.
  struct arrival {
    std::uint32_t bytes = 0;
    std::uint16_t tag = 0;
    bool here = false;
    bool skip = false;
  };
  std::array<std::vector<arrival>, detail::rail::classes> arrivals;
  std::array<std::uint32_t, detail::rail::classes> expected_sequence{};
  std::uint64_t twice = 0;

  std::deque<rails_event> events;

  [[nodiscard]] detail::rail::time_point now() const noexcept { return options.clock(); }
  [[nodiscard]] std::chrono::milliseconds probe_interval() const noexcept { return options.failover_within / 4; }
  [[nodiscard]] std::size_t up() const noexcept;
  [[nodiscard]] expected<void> open(std::span<const rail_path> paths);
  void step();
  void take(rail& r);
  void connect(rail& r);
  void accept(rail& r);
  [[nodiscard]] expected<void> make_ep(rail& r);
  void requested(rail& r, cr& request);
  void established(rail& r);
  void is_up(rail& r);
  void fail(rail& r, std::string_view cause) noexcept;
  void finish(rail& r);
  void received(rail& r, const detail::rail::control& c);
  void arrived(rail& r, std::uint32_t immediate, std::size_t bytes);
  void failed(rail& r, const dto_failure& e);
  void completed(rail& r, std::uint64_t cookie);
  void settle(const detail::rail::unsettled& life, std::uint64_t arrived);
  void done(std::uint32_t place, bool report);
  void send_controls(rail& r);
  [[nodiscard]] bool send(rail& r, const detail::rail::control& c);
  void pump();
  [[nodiscard]] rail* choose() noexcept;
  [[nodiscard]] expected<void> post(rail& r, std::uint32_t place) noexcept;
  [[nodiscard]] detail::rail::time_point next_time() const noexcept;
  [[nodiscard]] std::size_t index_of(const rail& r) const noexcept;
};

}} // namespace dat::v0
