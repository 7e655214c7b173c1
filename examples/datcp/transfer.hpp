// Copying a tree over a channel: the two roles. Each side of the connection can take either role.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "channel.hpp"
#include "files.hpp"
#include "observer.hpp"

#include <string>

namespace datcp {

/// The target of a receiver: a directory, or a new name.
struct destination {
  tree base;
  std::string rename; ///< replaces the first part of every path; empty: names are kept

  /// Chooses as cp does: into `path` if that is a directory, otherwise as `path`. Throws file_error.
  static destination choose(const tree& from, const std::string& path, bool must_be_directory);
  [[nodiscard]] std::string place(const std::string& path) const;
};

/// Sends `path`, and with `recursive` its contents.
void send_tree(channel& to, const tree& from, const std::string& path, bool recursive, observer& watcher);

/// Receives the tree that the peer sends by send_tree. With `resume`, it continues the parts of an earlier attempt and
/// skips complete files.
void receive_tree(channel& from, const destination& to, bool resume, observer& watcher);

} // namespace datcp
