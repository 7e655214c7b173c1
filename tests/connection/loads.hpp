// Connections with operations of each kind in flight, and their events, sorted by queue.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "rig.hpp"
#include "support.hpp"

#include <dat/srq.hpp>

#include <algorithm>
#include <array>

namespace device {
namespace loads {

inline constexpr bool instrumented = rig::instrumented; // with a sanitizer the heap is not the program's own

enum class how { abrupt, graceful, closed };
enum class load { nothing, receives, sends, shared };

/// "sent 3", "received 3", "flushed 3", "disconnected": an event with its cookie.
inline std::string brief(const event& e) {
  return std::visit(
      []<class E>(const E& one) -> std::string {
        if constexpr (std::is_same_v<E, dat::dto_failure>)
          return std::string(to_string(one.status())) + ' ' + std::to_string(one.cookie().value());
        else if constexpr (std::is_same_v<E, dat::send_done>)
          return "sent " + std::to_string(one.cookie().value());
        else if constexpr (std::is_same_v<E, dat::recv_done>)
          return "received " + std::to_string(one.cookie().value());
        else
          return describe(one);
      },
      e);
}

/// The events of a connection, sorted by queue. Events of one queue are in order, and errors have no order to events of
/// other queues (uDAPL 2.0 §6.3.1). Also records whether a success came after the end.
struct story {
  std::vector<std::string> receives;
  std::vector<std::string> requests;
  std::vector<std::string> connection;
  bool late = false;

  explicit story(const std::vector<event>& all) {
    for (const auto& e : all) {
      const auto text = brief(e);
      if (const auto* f = std::get_if<dat::dto_failure>(&e)) {
        (f->operation() == dat::dto_operation::recv ? receives : requests).push_back(text);
        continue;
      }
      if (text.starts_with("sent") || text.starts_with("received")) late = late || !connection.empty();
      (text.starts_with("sent") ? requests : text.starts_with("received") ? receives : connection).push_back(text);
    }
  }
};

using texts = std::vector<std::string>;

/// "flushed 1" ... "flushed n".
inline texts each(const char* what, unsigned first, unsigned last) {
  texts w;
  for (unsigned i = first; i <= last; ++i) w.push_back(std::string(what) + ' ' + std::to_string(i));
  return w;
}
inline texts operator+(texts a, const texts& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Removes the events of one endpoint from `all`, and returns them.
inline std::vector<event> of(dat::ep_ref ep, std::vector<event>& all) {
  const auto is_its = [&](const event& e) {
    return std::visit(
        [&](const auto& one) {
          if constexpr (requires { one.ep() == ep; })
            return one.ep() == ep;
          else
            return false;
        },
        e);
  };
  const auto others = std::stable_partition(all.begin(), all.end(), [&](const event& e) { return !is_its(e); });
  std::vector<event> its(std::make_move_iterator(others), std::make_move_iterator(all.end()));
  all.erase(others, all.end());
  return its;
}

/// One side of a connection, with operations of each kind in flight.
struct loaded {
  load l;
  dat::srq pool;
  endpoint ep;
  unsigned receives = 0;
  unsigned sends = 0;

  loaded(side& s, load kind) : l(kind) {
    if (l == load::shared) {
      pool = must(s.pz.create_srq());
      ep = must(s.pz.create_ep<dat::rc>(s.evd, pool));
    } else {
      ep = s.make_ep({.retry_count = 3, .ack_timeout = std::chrono::milliseconds(30)});
    }
  }
  void post(buffer& memory) {
    receives = l == load::nothing ? 0 : l == load::receives ? 4 : 2;
    sends = l == load::sends || l == load::shared ? 3 : 0;
    for (unsigned i = 1; i <= receives; ++i) {
      const auto r = dat::recv{memory.slice(0, 8)}.cookie(i);
      must(l == load::shared ? pool.post(r) : ep.post(r));
    }
    for (unsigned i = 1; i <= sends; ++i) must(ep.post(dat::send{memory.slice(64, 8)}.cookie(i)));
  }
  /// The number of receives that are flushed at the end of the connection; those of a shared queue are not.
  [[nodiscard]] unsigned flushed() const { return l == load::shared ? 0 : receives; }
};
inline constexpr std::array all_loads{load::nothing, load::receives, load::sends, load::shared};

} // namespace loads

using namespace loads;

} // namespace device
