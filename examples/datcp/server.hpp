// datcp serve DIR.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "protocol.hpp"

#include <dat/dat.hpp>

#include <cstddef>
#include <optional>
#include <string>

namespace datcp {

struct serve_job {
  std::string directory;
  std::optional<dat::ia_address> address; ///< empty: the host's first adapter
  dat::conn_qual port = 7471;
  geometry ring;
  std::size_t clients = 16; ///< clients at a time
  bool read_only = false;
};

/// Serves until SIGINT or SIGTERM.
void run_server(const serve_job& job);

} // namespace datcp
