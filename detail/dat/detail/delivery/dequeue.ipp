// Definition of dequeue.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/delivery/dequeue.hpp>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL error no_event(evd_core& e, const char* call) noexcept {
  if (e.dead()) return e.closed(call);
  if (e.has_waiter()) return has_waiter_already(e, e.waking(), call);
  if (e.take_poll_failure()) return e.poll_error(call);
  return e.at(error(return_type::queue_empty), call);
}

}}} // namespace dat::v0::detail
