// The board: the counts of every life, in memory that all processes share and that survives their death.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace soak {

enum class operation : std::uint8_t { send, receive, write, read, atomic, bind, datagram, event };
inline constexpr std::size_t operations = 8;

/// The ways in which a side of a life can have ended. soak.py uses the same numbers.
enum class outcome : std::uint64_t {
  absent = 0,  ///< the side never took part
  open = 1,    ///< under way, or its process was killed
  drained = 2, ///< one terminal event has arrived, and every operation has completed
  left = 3     ///< the endpoint was closed with operations outstanding
};

using word = std::atomic<std::uint64_t>;

/// One side of a life: a client (0) or a server (1).
struct side {
  word pid;
  word state;
  word accepted[operations]; ///< posts that succeeded
  word done[operations];     ///< successful completions
  word failed[operations];   ///< flushed or failed completions
  word dropped[operations];  ///< outstanding when the endpoint was closed
  word bytes;                ///< bytes of successful completions
  word numbered;             ///< messages that were given a number and accepted
  word acknowledged;         ///< those of them that have completed with success
  word unanswered;           ///< reads and atomics that the device completed without their data
  word repeated;             ///< messages that the device sent a second time
  word arrived;              ///< messages of the other side that have arrived, whole and in order
};

/// One connection, or one exchange of datagrams.
struct life {
  word id; ///< 0: the place is free
  word service;
  side sides[2];
};

/// The memory behind a file. soak.py reads it: all members are 64-bit words.
class board {
public:
  static constexpr std::size_t places = 16384;

  /// Two mailboxes for connections without a connection manager; see descriptor_lane.cpp.
  static constexpr std::size_t mailbox_words = 14;
  struct mailbox {
    word offer;  ///< the life that the client offers
    word answer; ///< the life for which the server is connected
    word over;   ///< the life that the client has ended
    word spare;
    word from_client[mailbox_words];
    word from_server[mailbox_words];
  };

  explicit board(const std::string& path);
  board(const board&) = delete;
  board& operator=(const board&) = delete;
  ~board();

  /// A free place with a number of its own. Null while all places are in use: soak.py frees them at rest.
  [[nodiscard]] life* begin(std::uint64_t service) noexcept;
  /// The place of a life that the other side has begun; null when the number is not that of a life under way.
  [[nodiscard]] life* find(std::uint64_t id) noexcept;
  [[nodiscard]] mailbox& box(std::size_t which) noexcept { return shared_->boxes[which]; }

private:
  struct contents {
    word words_per_life;
    word places;
    word last;
    word spare;
    mailbox boxes[2];
    life lives[board::places];
  };
  contents* shared_ = nullptr;
};

} // namespace soak
