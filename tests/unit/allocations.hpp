// The memory that the calling thread requests: counted, and refused on demand.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>

namespace unit {

/// Whether this build counts requests. The sanitizers replace operator new themselves.
extern const bool counts_allocations;
/// The number of requests of the calling thread up to now.
[[nodiscard]] std::size_t allocations() noexcept;

/// While the object exists, counts the memory that this thread has requested and not freed since, if this build counts
/// requests. Memory that is requested or freed while `other` returns true does not count.
class unfreed {
public:
  explicit unfreed(bool (*other)() noexcept) noexcept;
  ~unfreed();
  unfreed(const unfreed&) = delete;
  unfreed& operator=(const unfreed&) = delete;

  [[nodiscard]] long count() const noexcept;
};

/// Whether this build can refuse requests. The operators of ThreadSanitizer cannot be replaced one by one.
extern const bool refuses_allocations;

/// While the object exists, the request number `n` of this thread fails, counted from 0; later ones succeed. dat
/// requests memory by the functions that return a null pointer on failure, except where its documentation names
/// std::bad_alloc.
class out_of_memory {
public:
  explicit out_of_memory(int n) noexcept;
  ~out_of_memory();
  out_of_memory(const out_of_memory&) = delete;
  out_of_memory& operator=(const out_of_memory&) = delete;

  /// Whether a request has failed since the latest object was made.
  [[nodiscard]] static bool failed() noexcept;
  /// Lets all further requests of this thread succeed.
  static void stop() noexcept;

  /// While the object exists, requests that throw std::bad_alloc count and fail, too, if this build counts requests.
  /// Requests for which `other` returns true do not count.
  class throwing {
  public:
    explicit throwing(bool (*other)() noexcept) noexcept;
    ~throwing();
    throwing(const throwing&) = delete;
    throwing& operator=(const throwing&) = delete;
  };
};

} // namespace unit
