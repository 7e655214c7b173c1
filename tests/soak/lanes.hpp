// The lanes that rc_lane.hpp does not have.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "process.hpp"

namespace soak {

void datagrams(process& owner, dat::ia& ia, lane& where);
void coroutines(process& owner, dat::ia& ia, lane& where);
void descriptors(process& owner, dat::ia& ia, lane& where);
void crowds(process& owner, dat::ia& ia, lane& where);

} // namespace soak
