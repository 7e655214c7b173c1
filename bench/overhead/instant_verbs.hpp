// A device whose operations complete at once, so that what remains of an operation's cost is the caller's.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <infiniband/verbs.h>

namespace instant {

/// Gives `context` (of the fake verbs library, or of any provider) data path operations that do nothing but put a
/// completion into a ring of 256, and take it out. All queue pairs and completion queues of all contexts share that
/// ring: leave it empty before going on with another queue. Posting checks nothing. Buffers of shared receive queues
/// are drawn by the queue pair with the number `draws`.
void take_over(ibv_context& context, std::uint32_t draws);
/// Gives the context its own operations back.
void give_back(ibv_context& context);

} // namespace instant
