// One side of a connection: its posted operations, its events, and its end.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "book.hpp"
#include "process.hpp"

#include <dat/ib.hpp>
#include <dat/rmr.hpp>
#include <dat/srq.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace soak {

/// The way in which the client plans to end a connection. The server gets the plan with the request.
enum class ending : std::uint8_t {
  client_graceful, ///< after all operations
  client_cuts,     ///< abruptly, after `cut` of them
  client_leaves,   ///< the client closes its endpoint after `cut` of them
  client_early,    ///< gracefully, after `cut` of them and with others under way
  server_graceful, ///< after `cut` messages have arrived
  server_cuts,     ///< abruptly, after `cut` messages have arrived
  server_leaves,   ///< the server closes its endpoint after `cut` messages have arrived
  count            ///< no end, but the number of ends
};

/// The private data of a request for a connection.
struct plan {
  std::uint64_t life = 0;
  std::uint32_t total = 0; ///< operations of the client that expect an answer or a value
  std::uint32_t cut = 0;
  ending how{};
  std::uint8_t windows = 0; ///< whether the client writes through windows of the server only
  std::uint8_t spare[6]{};
};

constexpr auto all_rights =
    dat::local_read | dat::local_write | dat::remote_read | dat::remote_write | dat::remote_atomic;
using remote_bytes = dat::remote_segment<std::byte, all_rights.value>;
using window_bytes = dat::remote_segment<std::byte, dat::remote_write.value>;

/// The buffers of a shared receive queue. They belong to the lane.
struct shared_buffers {
  explicit shared_buffers(process& of, lane& where) : owner(&of), place(&where) {}
  dat::expected<void> open(dat::pz& pz, std::uint32_t count);
  dat::expected<void> post(std::size_t buffer);
  [[nodiscard]] std::span<std::byte> at(std::size_t buffer) {
    return std::span(memory).subspan(buffer * largest_message, largest_message);
  }
  /// Checks that no buffer was lost while no endpoint exists. All buffers are in the queue, except that an endpoint
  /// that is closed in the middle of a message loses the buffer of the message. Then creates a new queue.
  void check(dat::pz& pz);

  process* owner;
  lane* place;
  std::vector<std::byte> memory{};
  dat::lmr<std::byte, all_rights.value> region{};
  dat::srq queue{};
  std::vector<bool> posted{};
  std::size_t endpoints = 0; ///< the endpoints that have used the queue since the last check
};

class session {
public:
  session(process& owner, lane& where, life& counts, const plan& agreed, bool client, random seed);
  session(const session&) = delete;
  session& operator=(const session&) = delete;
  ~session();

  /// Registers memory, takes the endpoint and posts its receives. With `shared`, the lane posts them.
  dat::expected<void> open(dat::pz& pz, dat::ep<dat::rc> endpoint, shared_buffers* shared);
  /// The client's first step. `limit` is the stated time of the attempt.
  dat::expected<void> connect(const dat::ia_address& peer, dat::conn_qual port, dat::timeout limit);
  dat::expected<void> accept(dat::connection_request& request);
  /// The steps of connections without a connection manager.
  dat::expected<void> connect(const dat::ib::descriptor& peer, const remote_bytes& area);

  // Events.
  void on(const dat::established& up);
  void on_received(dat::cookie cookie, std::size_t bytes, std::optional<std::uint32_t> immediate,
                   std::optional<std::uint32_t> invalidated);
  void on_done(const dat::transfer& done);
  void on_bound(const dat::bind_done& done);
  void on(const dat::dto_failure& failed);
  void on_end(const char* event, bool established_expected);

  /// Time limits, keep-alives, and whether the session is over. Returns true when it can be destroyed.
  bool over(clock::time_point now);
  [[nodiscard]] std::string state_of_queue_pair() const;
  /// The lane ends: closes the endpoint with all operations that are under way.
  void leave();
  /// Ends the connection, because its peer has ended or its adapter was removed.
  void cut();

  [[nodiscard]] const dat::ep<dat::rc>& endpoint() const noexcept { return ep_; }
  [[nodiscard]] dat::ep<dat::rc> take_endpoint() noexcept { return std::move(ep_); }
  [[nodiscard]] remote_bytes area() const noexcept;
  [[nodiscard]] bool successful() const noexcept { return successful_; }
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  [[nodiscard]] std::uint64_t id() const noexcept { return plan_.life; }
  [[nodiscard]] const plan& agreed() const noexcept { return plan_; }

private:
  static constexpr std::size_t window = 8;    ///< operations of a client that are under way at a time
  static constexpr std::size_t receives = 24; ///< receives that are posted at a time
  static constexpr std::size_t out_at = 0, out_buffers = 2 * window + 2;
  static constexpr std::size_t in_at = out_at + out_buffers * largest_message;
  static constexpr std::size_t area_at = in_at + receives * largest_message; ///< the place where the client writes
  static constexpr std::size_t constant_at = area_at + window * largest_message;
  static constexpr std::size_t words_at = constant_at + largest_message;
  static constexpr std::size_t size = words_at + 64;

  struct slot {
    unsigned awaited = 0; ///< completions and answers
    operation kind{};
    std::uint64_t before = 0; ///< the value that the atomic must find in a counter
  };

  [[nodiscard]] std::span<std::byte> piece(std::size_t at, std::size_t bytes = largest_message) {
    return std::span(memory_).subspan(at, bytes);
  }
  template <class D>
  bool post(operation kind, std::size_t where, D what);
  bool post_receive(std::size_t buffer);
  bool send(message_kind kind, std::size_t slot, std::span<const std::byte> content = {});
  void fill();
  void start_operation(std::size_t at);
  bool write_with_notice(std::size_t at);
  bool write_through_window(std::size_t at);
  void step_done(std::size_t at);
  void free_buffer(std::size_t buffer);
  void message_again(std::size_t buffer);
  void server_message(const message_header& header);
  void client_message(const message_header& header, std::span<const std::byte> payload);
  void check_written(std::size_t at);
  void check_fetched(operation kind, std::size_t buffer, std::size_t at);
  bool bind_window();
  void begin_end(ending how);
  void fault(const std::string& what) { owner_->violation(*lane_, plan_.life, what); }
  [[nodiscard]] std::size_t free_out_buffer() const noexcept;

  process* owner_;
  lane* lane_;
  side* mine_;
  plan plan_;
  bool client_;
  random random_;
  book book_;
  std::vector<std::byte> memory_;
  dat::lmr<std::byte, all_rights.value> region_{};
  dat::rmr rmr_{};
  dat::ep<dat::rc> ep_{};
  shared_buffers* shared_ = nullptr;
  remote_bytes theirs_{};
  std::optional<window_bytes> open_window_{};

  slot slots_[window];
  bool out_busy_[out_buffers]{};
  std::deque<std::uint32_t> answers_{}; ///< slots whose answers wait for a buffer
  std::uint64_t out_number_ = 0;
  std::uint64_t in_number_ = 0;
  std::uint32_t started_ = 0;
  std::uint32_t finished_ = 0;
  std::uint64_t added_ = 0; ///< additions to the server's counter

  bool pending_ = false; ///< an attempt to connect or to accept has begun
  bool up_ = false;
  bool ending_ = false; ///< this side ends the connection
  bool ended_ = false;  ///< the terminal event has arrived
  std::string end_;     ///< the name of that event
  bool leaving_ = false;
  bool successful_ = false;
  bool stall_cut_ = false;
  bool binding_ = false;    ///< the completion of a bind has not come
  bool window_due_ = false; ///< the client waits for a window that can be bound then
  bool silent_end_ = false; ///< without a connection manager, the peer announces no end
  clock::time_point began_;
  clock::time_point moved_;
  clock::time_point pinged_;
  clock::time_point ended_at_{};
  clock::duration attempt_limit_{};
};

} // namespace soak
