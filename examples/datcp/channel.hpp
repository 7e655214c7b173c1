// One connection between two datcp programs: messages both ways, and blocks of file data written straight into the
// peer's memory. channel.hpp and channel.cpp contain all RDMA code of datcp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "protocol.hpp"

#include <dat/dat.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

namespace datcp {

/// The connection has ended, or was never established.
struct connection_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// The peer does not use this protocol, or uses another version of it.
struct stranger : connection_error {
  using connection_error::connection_error;
};
/// The user pressed Ctrl-C or asked the server to end.
struct interrupted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A block of file data that the peer has written into this side's ring.
struct block {
  std::span<const std::byte> data;
};

/// Thread safety: one thread uses a channel. Channels of one dat::ia are independent of each other.
class channel {
public:
  /// Reserves and registers the memory for rings of at most `limit`.
  /// `should_stop` is called at intervals while the channel waits; when it returns true, the wait ends with
  /// `interrupted`.
  channel(dat::ia& ia, geometry limit, std::function<bool()> should_stop);
  channel(const channel&) = delete;
  channel& operator=(const channel&) = delete;

  /// Client: connects to a server.
  void connect(const dat::ia_address& server, dat::conn_qual port);
  /// Server: accepts a client's request. A foreign program's request is refused, and the constructor throws.
  void accept(dat::cr request);
  /// Waits until all that was sent is at the peer, then ends the connection.
  void hang_up() noexcept;

  void send(const message& m);
  /// The next message. Throws connection_error when the peer disconnects.
  message receive();
  template <class M>
  M receive() {
    return expect<M>(receive());
  }
  /// The next message; empty when the peer has disconnected.
  std::optional<message> receive_or_end();
  /// Whether receive() would return at once.
  [[nodiscard]] bool message_waiting();
  /// The next block or message, in the order in which the peer sent them.
  std::variant<block, message> receive_any();

  /// A free block for the caller to fill and then write to the peer.
  std::span<std::byte> next_block();
  void write_block(std::size_t bytes);
  /// Releases the oldest block that receive_any() returned, so that the peer may write another block there.
  void release_block();

  template <class M>
  static M expect(message m) {
    if (auto* wanted = std::get_if<M>(&m)) return std::move(*wanted);
    throw protocol_error("the peer sent a message that was not its turn");
  }

private:
  using evd = dat::evd<dat::stream::dto | dat::stream::connection>;
  struct receive_result { // a block (its index in the ring) or a message
    std::uint64_t block_number = 0;
    std::uint32_t block_bytes = 0;
    std::optional<message> said{};
  };

  void adopt(std::span<const std::byte> private_data);
  [[nodiscard]] greeting greet() const;
  void wait();
  void wait_for_arrival();
  [[nodiscard]] bool at_end() const noexcept { return !end_.empty(); }
  void repost(dat::cookie which);

  // A handler for each event that can come; wait() has the list.
  void on(const dat::recv_done& e);
  void on(const dat::ib::recv_write_immediate_done& e);
  void on(const dat::ib::rdma_write_immediate_done&) noexcept { ++written_; }
  void on(const dat::send_done& e) { free_messages_.push_back(e.cookie().as<std::size_t>()); }
  void on(const dat::dto_failure& e);
  void on(const dat::disconnected&);
  void on(const dat::connection_broken&);
  void on(const auto&) noexcept {}

  geometry geometry_;
  std::function<bool()> should_stop_;

  // The order matters: the endpoint is declared last, so that it ends before the memory that its operations name.
  std::vector<std::byte> ring_memory_, inbox_memory_, outbox_memory_;
  evd evd_;
  dat::pz pz_;
  dat::lmr<std::byte, (dat::local_read | dat::local_write | dat::remote_write)> ring_;
  dat::lmr<std::byte, dat::mem_priv::local_write> inbox_;
  dat::lmr<std::byte, dat::mem_priv::local_read> outbox_;
  remote_ring peer_ring_;
  dat::ep<dat::rc> ep_;

  // Sending: blocks are numbered from the beginning of the connection; block n uses index n % blocks in both rings.
  std::uint64_t posted_ = 0;  // posted to the adapter
  std::uint64_t written_ = 0; // completed here: this side's copy may be overwritten
  std::uint64_t granted_ = 0; // consumed by the peer: the peer's copy may be overwritten
  std::deque<std::size_t> free_messages_;

  // Receiving.
  std::deque<receive_result> arrivals_;
  std::uint64_t arrived_ = 0;  // blocks
  std::uint64_t consumed_ = 0; // released
  std::uint64_t credited_ = 0; // credits that were reported to the peer
  std::string failure_;        // the first operation that failed, to explain why the connection broke
  std::string end_;            // why the connection is over; empty while it is up
};

} // namespace datcp
