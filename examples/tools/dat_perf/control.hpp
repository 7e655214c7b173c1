// The connection by which client and server agree on tests. A thread takes its events, so that a message, and the end
// of the peer, are noticed while a test runs.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "protocol.hpp"

#include <dat/dat.hpp>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace perf {

/// The first bytes of the private data of a connection request, and of its answer.
struct greeting {
  enum class kind : std::uint8_t { control = 'c', endpoint = 'e', busy = 'b' };
  kind what = kind::control;
  std::uint64_t token = 0;
  std::uint32_t index = 0;

  static constexpr std::size_t wire_size = 24;
  using wire = std::array<std::byte, wire_size>;
  [[nodiscard]] wire to_wire() const;
  /// Empty for the private data of another program.
  [[nodiscard]] static std::optional<greeting> from_wire(std::span<const std::byte> data);
};

/// The address of a host in the family of the adapter's address.
[[nodiscard]] dat::ia_address address_of(const dat::ia& from, const std::string& host);
[[nodiscard]] dat::timeout as_timeout(double seconds);

class control {
public:
  static constexpr std::size_t max_message = std::size_t{256} * 1024; // bytes

  control(dat::ia& ia, dat::pz& pz, double limit);
  control(const control&) = delete;
  control& operator=(const control&) = delete;
  ~control();

  void connect(const dat::ia_address& server, std::uint16_t port);
  void accept(dat::cr request);

  void send(const message& m);
  /// Sends the report of a failure; the peer may already have ended.
  void try_send(const failure& m) noexcept;
  /// The next message. Throws when the peer reports a failure or has ended, and without a message within the limit.
  message receive();
  /// Receives a message of one type; without a limit when `limit` is false.
  template <class M>
  M expect(bool limited = true) {
    message m = receive_within(limited);
    if (M* const wanted = std::get_if<M>(&m)) return std::move(*wanted);
    throw std::runtime_error("the peer has sent a message of another kind: is it the same version of dat-perf?");
  }
  message receive_within(bool limited);
  /// Whether receive would return or throw at once. Fast: a test polls it.
  [[nodiscard]] bool arrived() const noexcept { return arrived_.load(std::memory_order_acquire); }
  /// Throws when the peer has ended the connection, or the connection broke. The exception has the report of the peer,
  /// if there is one.
  void check();
  /// Sets the function that the thread of the connection calls whenever something has arrived; an empty one removes it.
  void on_arrival(std::function<void()> wake);
  /// Waits a moment for the report of the peer, and throws it, because it explains more than a broken connection.
  void explain();
  /// Ends a test: from now on receive and check throw. Safe at any time.
  void abandon(const std::string& why);
  /// Ends the connection when all messages have left.
  void finish();

private:
  static constexpr auto streams = dat::stream::dto | dat::stream::connection;
  static constexpr std::size_t slots = 4;
  void begin();
  void take_events();
  void post_receive(std::uint64_t slot);
  void add(std::string text);
  void end(std::string why);
  void notify();
  bool throw_report(); // under the lock; false when the peer has reported no failure

  dat::timeout limit_;
  std::vector<char> memory_;
  dat::evd<streams> evd_;
  dat::lmr<char, dat::mem_priv::local_read | dat::mem_priv::local_write> region_;
  dat::ep<dat::rc> ep_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> messages_;
  std::string ended_; // why nothing more comes; empty while the connection is up
  bool up_ = true;
  bool sending_ = false, stop_ = false;
  std::atomic<bool> arrived_ = false;
  std::function<void()> wake_;
  std::thread thread_;
};

} // namespace perf
