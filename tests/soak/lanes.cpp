// The services of the soak, and the lanes that are their servers and clients.
// SPDX-License-Identifier: BSL-1.0
#include "lanes.hpp"
#include "rc_lane.hpp"

#include <algorithm>
#include <stdexcept>

namespace soak {

namespace {

template <class Events, rc_options Options>
void connections(process& owner, dat::ia& ia, lane& where) {
  rc_lane<Events>(owner, ia, where, Options).run();
}

/// A service. Its index in this table is its number on the board and in its port.
struct service {
  const char* name;
  void (*run)(process&, dat::ia&, lane&);
};
constexpr service services[] = {
    {"merged", connections<merged_events, rc_options{.width = 2}>},
    {"lean", connections<lean_events, rc_options{.width = 2}>},
    {"shared", connections<merged_events, rc_options{.shared = true, .width = 3}>},
    {"windows", connections<merged_events, rc_options{.windows = true, .width = 1}>},
    {"datagrams", datagrams},
    {"coroutines", coroutines},
    {"descriptors", descriptors},
    {"crowds", crowds},
};

} // namespace

std::vector<std::unique_ptr<lane>> make_lanes(const std::vector<std::string>& wanted) {
  std::vector<std::unique_ptr<lane>> lanes;
  for (const auto& name : wanted)
    if (std::none_of(std::begin(services), std::end(services), [&](const service& s) { return name == s.name; }))
      throw std::runtime_error("no service: " + name);
  unsigned number = 0;
  for (const service& s : services) {
    ++number;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), s.name) == wanted.end()) continue;
    for (const bool client : {false, true}) {
      auto l = std::make_unique<lane>();
      l->name = std::string(s.name) + (client ? " client" : " server");
      l->service = number;
      l->client = client;
      l->run = s.run;
      lanes.push_back(std::move(l));
    }
  }
  return lanes;
}

} // namespace soak
