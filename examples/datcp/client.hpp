// datcp SERVER:PATH LOCAL and datcp LOCAL SERVER:PATH.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "protocol.hpp"
#include "report.hpp"

#include <dat/dat.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace datcp {

/// A user's name for a file: "SERVER:PATH", "[IPv6]:PATH", or a local path. A name with a colon is local when a
/// slash comes before it: "./a:b".
struct location {
  std::optional<std::string> server;
  std::string path;
  static location parse(std::string_view text);
};

struct copy_job {
  std::vector<location> sources;
  location target;
  dat::conn_qual port = 7471;
  geometry ring;
  bool recursive = false;
  bool resume = false;
};

/// Runs the copy. Reports single files to `to`. Throws when the copy as a whole cannot continue.
void run_copy(const copy_job& job, report& to);

} // namespace datcp
