// The messages by which client and server agree on a test, and compare what they have counted.
// SPDX-License-Identifier: BSL-1.0
//
//   client                          server
//   setup: parameters, memory  ->
//                              <-   ready: adapter, memory     (or failed)
//   connects the endpoints of the test
//   start: size                ->                              (each size)
//                              <-   start
//   ended: what was sent       <->  ended
//   received: what arrived     <->  received
//   bye                        ->
//                              <-   bye
#pragma once

#include "options.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace perf {

/// The data that a peer needs to reach this side: wire forms of dat as hexadecimal digits.
struct grants {
  std::string data, words;            ///< remote segments; empty where the test needs none
  std::vector<std::string> datagrams; ///< descriptors of datagram endpoints
};

struct setup {
  parameters run;
  grants memory;
};
struct ready {
  std::string host, adapter, address; ///< of the server
  std::uint32_t max_inline = 0;
  std::uint64_t token = 0; ///< names the test in connection requests
  grants memory;
};
struct start {
  std::uint32_t size = 0;
};
/// A side sends no more in this run.
struct ended {
  std::vector<std::uint64_t> sent; ///< operations of each endpoint
  double seconds = 0;
};
/// A side has received all that the other one has sent.
struct received {
  std::vector<std::uint64_t> counts;  ///< operations of each endpoint
  std::vector<std::uint64_t> credits; ///< messages with credits that each endpoint has sent
};
struct failure {
  std::string problem;
};
struct bye {};

using message = std::variant<setup, ready, start, ended, received, failure, bye>;

[[nodiscard]] std::string to_text(const message& m);
/// Throws std::runtime_error for anything that is no message of this version.
[[nodiscard]] message from_text(std::string_view text);

} // namespace perf
