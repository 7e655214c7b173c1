// Observes the progress of a copy: the client shows it to its user, and the server writes a log.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "protocol.hpp"

#include <cstdint>
#include <string>

namespace datcp {

class observer {
public:
  observer() = default;
  observer(const observer&) = delete;
  observer& operator=(const observer&) = delete;
  virtual ~observer() = default;

  /// The total size of the copy.
  virtual void expect(std::uint64_t /*bytes*/) {}
  /// These bytes of `path` have been moved, or (`resumed`) are known to be there.
  virtual void moved(const std::string& /*path*/, std::uint64_t /*bytes*/, bool /*resumed*/ = false) {}
  /// A file, directory or link is complete at the receiver; for a file, both sides' checksums agree.
  virtual void copied(const entry& what, const checksum& sum) = 0;
  /// The receiver had the file already.
  virtual void skipped(const entry& what) = 0;
  virtual void problem(const std::string& path, const std::string& why) = 0;
};

} // namespace datcp
