// Copying a tree over a channel: the two roles. Either side of the connection can play either.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "channel.hpp"
#include "files.hpp"
#include "observer.hpp"

#include <string>

namespace datcp {

/// Where a receiver puts what comes: into a directory, under its own name or another.
struct destination {
  tree base;
  std::string rename; ///< replaces the first part of every path; empty: names stay

  /// As cp does it: into `path` if that is a directory, else as `path`. Throws file_error.
  static destination choose(const tree& from, const std::string& path, bool must_be_directory);
  [[nodiscard]] std::string place(const std::string& path) const;
};

/// Sends `path`, and with `recursive` all that is in it.
void send_tree(channel& to, const tree& from, const std::string& path, bool recursive, observer& watcher);

/// Receives what the peer's send_tree sends. With `resume`, goes on with parts of an earlier attempt, and leaves
/// complete files alone.
void receive_tree(channel& from, const destination& to, bool resume, observer& watcher);

} // namespace datcp
