// Loss, damage or delay on the wire of the lab.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "support.hpp"

#include <cstdlib>
#include <string>

namespace device {

/// While the object exists, the kernel treats what leaves the first link so, in the words of netem: "loss 1%". False
/// outside of the lab.
class netem {
public:
  explicit netem(const std::string& how)
      : done_(in_lab() && std::system(("tc qdisc add dev v1 root netem " + how).c_str()) == 0) {}
  netem(const netem&) = delete;
  netem& operator=(const netem&) = delete;
  ~netem() {
    if (done_) (void)!std::system("tc qdisc del dev v1 root");
  }
  explicit operator bool() const noexcept { return done_; }

private:
  const bool done_;
};

} // namespace device
