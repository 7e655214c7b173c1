// The two tables of functions by which connections and service points call endpoints.
//
// The layer of connections knows an endpoint only as an ia_child with one of these tables.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/expected.hpp>
#include <dat/service_id.hpp>

#include <dat/detail/adapter/ia_core.hpp>
#include <dat/detail/base/control_mutex.hpp>
#include <dat/detail/base/ref.hpp>
#include <dat/detail/events/event_queue.hpp>

#include <mutex>

namespace dat { inline namespace v0 { namespace detail {

class connection_state;

/// The user of a connection. Every function but `lock` is called with the user locked.
struct connection_observer {
  /// The lock that guards the user's state and, while the user is attached, the connection.
  control_mutex& (*lock)(ia_child& user) noexcept;
  /// Called before an event or a time limit ends an accepted connection that waits for ESTABLISHED. If a message of the
  /// peer waits, the connection is established, and the user calls `data_arrived`.
  void (*look_for_message)(ia_child& user) noexcept;
  /// The connection is up.
  void (*established)(ia_child& user) noexcept;
  /// The connection has ended, or the attempt at one. The user ends the connection and announces `what`.
  void (*ended)(ia_child& user, record::kind what, int reason) noexcept;
};

/// The functions of endpoints that service points and requests call. Called with no lock of the endpoint held.
struct request_endpoints {
  /// Reserves an endpoint for the request of a service point; `release` undoes that.
  expected<void> (*reserve)(ia_child& ep, const char* call, const ia_core& of) noexcept;
  void (*release)(ia_child& ep) noexcept;
  /// Creates an unconfigured endpoint for a request. Returns null when memory is exhausted.
  ref<ia_child> (*create_for)(const ref<connection_state>& request) noexcept;
  /// Gives a request to the endpoint that was reserved for it. `push(context)` queues the request, with the endpoint
  /// locked; when it returns false, nothing has changed.
  bool (*take_request)(ia_child& ep, const ref<connection_state>& request, bool (*push)(void*) noexcept,
                       void* context) noexcept;
  /// True while the endpoint has an unanswered request of that service point.
  bool (*has_request_of)(ia_child& ep, const service_id& service) noexcept;
  /// The request was rejected, or handed to another service point.
  void (*request_gone)(ia_child& ep) noexcept;
};

}}} // namespace dat::v0::detail
