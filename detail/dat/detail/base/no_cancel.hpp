// Keeps pthread_cancel out of the library's waits.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <pthread.h>

namespace dat { inline namespace v0 { namespace detail {

/// Disables the cancellation of the calling thread while it lives. Waits contain cancellation points (ppoll, read), and
/// the forced unwinding of a cancelled thread would end the program at the first function that is noexcept. A request
/// to cancel stays pending, and acts at the next cancellation point after the wait.
class no_cancel {
public:
  no_cancel() noexcept { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  no_cancel(const no_cancel&) = delete;
  no_cancel& operator=(const no_cancel&) = delete;
  ~no_cancel() { ::pthread_setcancelstate(before_, nullptr); }

private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}}} // namespace dat::v0::detail
