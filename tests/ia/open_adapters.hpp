// Opens adapters of a device by address and by name.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "device_table.hpp"
#include "support.hpp"

namespace device {

inline dat::ia open_first() { return must(dat::ia::open(addresses()[0])); }

/// The name of one of the lab's adapters.
inline std::string rx(int n) { return (this_device().name == "siw" ? "siw" : "rx") + std::to_string(n); }

} // namespace device
