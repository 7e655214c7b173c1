// A device whose operations complete at once, so that the remaining cost of an operation is the caller's.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <infiniband/verbs.h>

namespace instant {

/// Gives `context` (of the fake verbs library, or of any provider) data path operations that only put a completion into
/// a ring of 4,096 entries and take it out. All queue pairs and completion queues of all contexts share that ring:
/// leave the ring empty before you use another queue. Posting checks nothing. Buffers of shared receive queues complete
/// on the queue pair with the number `draws`.
void take_over(ibv_context& context, std::uint32_t draws);
/// Restores the operations of the context.
void give_back(ibv_context& context);
/// The extended queue pair of `qp`, on the same ring. There is one at a time.
[[nodiscard]] ibv_qp_ex* extend(const ibv_qp& qp);

} // namespace instant
