// Coroutines that await one operation, connection or event, and return a text that names the result.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "driven_pair.hpp"
#include <support/coroutine.hpp>
#include <support/streams.hpp>

#include <dat/coro.hpp>

#include <cstdint>
#include <stop_token>
#include <string>
#include <variant>

namespace text_tasks {

using namespace unit;
using support::task;

using text_task = task<std::string>;

using support::ignore;

inline text_task receive(queue_driver& d, dat::ep_ref ep, std::uint64_t cookie = 0, std::stop_token stop = {}) {
  const auto got = co_await d.post(ep, dat::recv{}.cookie(cookie), stop);
  co_return told(got, "received");
}
template <class D>
text_task request(queue_driver& d, dat::ep_ref ep, D operation) {
  const auto done = co_await d.post(ep, operation);
  if (!done) co_return std::string(to_string(done.error().type()));
  co_return std::to_string(done.value().bytes()) + " with " + std::to_string(done.value().cookie().value());
}
inline text_task arrive(queue_driver& d, end& e, std::uint64_t cookie) {
  const auto got = co_await d.post(e.ep, dat::recv{e.mem}.cookie(cookie));
  if (!got) co_return std::string(to_string(got.error().type()));
  co_return std::to_string(got.value().bytes()) + " with " + std::to_string(got.value().cookie().value()) +
      (got.value().immediate() ? " and " + std::to_string(*got.value().immediate()) : "") +
      (got.value().written() ? " written" : "") + (got.value().ep() == e.ep ? "" : " elsewhere");
}
/// Records every event that no other coroutine takes.
inline text_task listen(queue_driver& d, events& log, std::stop_token stop = {}) {
  for (;;) {
    const auto e = co_await d.next(stop);
    if (!e) co_return std::string(to_string(e.error().type()));
    log.push_back(std::visit(describe{}, e.value()));
  }
}
template <class E>
text_task next(queue_driver& d, dat::ep_ref of = {}, std::stop_token stop = {}) {
  const auto e = co_await d.template next<E>(of, stop);
  co_return e ? describe{}(e.value()) : std::string(to_string(e.error().type()));
}
inline text_task connect(queue_driver& d, dat::ep<dat::rc>& ep, dat::ia_address to, std::stop_token stop = {}) {
  auto attempt = d.connect(ep, to, service, plenty, {}, stop);
  const auto up = co_await attempt;
  if (up) co_return "established";
  co_return std::string(to_string(up.error().type())) +
      (attempt.outcome() ? ", " + std::visit(describe{}, *attempt.outcome()) : "");
}
inline text_task accept(queue_driver& d, dat::ep<dat::rc>& ep, std::stop_token stop = {}) {
  auto request = co_await d.next<dat::connection_request>();
  if (!request) co_return std::string(to_string(request.error().type()));
  co_return told(co_await d.accept(request.value(), ep, {}, stop), "established");
}
inline text_task disconnect(queue_driver& d, dat::ep<dat::rc>& ep, dat::close_mode how, std::stop_token stop = {}) {
  co_return told(co_await d.disconnect(ep, how, stop), "disconnected");
}

} // namespace text_tasks
