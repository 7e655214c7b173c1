// One run of a test, from the start to counts that agree: the same on both sides.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "control.hpp"
#include "results.hpp"
#include "worker.hpp"

#include <list>
#include <mutex>
#include <string>

namespace perf {

/// The result of a run on one side.
struct outcome {
  ended mine, theirs;     ///< the operations that both sides have sent
  received arrived_there; ///< the operations that the other side has received
};

/// Runs `size` with a worker, when the other side is ready. Throws when the counts of both sides differ.
[[nodiscard]] outcome exchange(control& peer, links& on, worker& with, const parameters& run, observer seen);

/// The client's side of a test of connections.
[[nodiscard]] result connect_again_and_again(control& peer, dat::ia& ia, dat::pz& pz, const options& o,
                                             const dat::ia_address& server, std::uint64_t token, const observer& seen);

/// The server's side: accepts on `request`, in another thread.
class connection_target {
public:
  connection_target(dat::ia& ia, dat::pz& pz, const parameters& run);
  void accept(dat::cr& request);
  /// Serves until the client has ended its run.
  void serve(control& peer);

private:
  dat::pz& pz_;
  const parameters& run_;
  dat::evd<dat::stream::connection> connections_;
  dat::evd<dat::stream::dto> completions_;
  std::mutex mutex_;
  std::list<dat::ep<dat::rc>> endpoints_;
  std::uint64_t established_ = 0, ended_ = 0;
  std::string failure_;
};

} // namespace perf
