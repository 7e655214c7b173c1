// Connects and disconnects again and again.
// SPDX-License-Identifier: BSL-1.0
#include "session.hpp"

#include <fmt/format.h>

#include <optional>
#include <stdexcept>

namespace perf {

namespace {

using namespace std::chrono_literals;
constexpr dat::ep_attributes small{.max_request_dtos = 1, .max_recv_dtos = 1};
constexpr dat::timeout until_next_look = 100ms;

/// Takes the events that are there, or waits for them.
template <class Visitor>
void take_events(mode by, dat::evd<dat::stream::connection>& evd, Visitor&& visit) {
  if (by == mode::polled) {
    evd.drain(visit);
    return;
  }
  const auto n = evd.wait_and_drain(visit, until_next_look);
  if (!n && n.error().type() != dat::return_type::timeout_expired &&
      n.error().type() != dat::return_type::interrupted_call)
    throw std::runtime_error(n.error().message());
}

/// An endpoint that connects and disconnects.
struct caller {
  dat::ep<dat::rc> ep;
  clock::time_point began;
};

} // namespace

result connect_again_and_again(control& peer, dat::ia& ia, dat::pz& pz, const options& o, const dat::ia_address& server,
                               std::uint64_t token, const observer& seen) {
  const parameters& run = o.run;
  auto connections = ia.create_evd<dat::stream::connection>(4 * run.endpoints).value();
  const auto completions = ia.create_evd<dat::stream::dto>(2 * run.endpoints).value();
  const auto qualifier = dat::conn_qual::make(o.port).value();
  std::vector<caller> callers(run.endpoints);
  result out;
  out.endpoints.resize(run.endpoints);
  std::vector<std::uint64_t> begun(run.endpoints);
  std::uint64_t established = 0, open = 0;
  const auto start_time = clock::now();
  bool over = false;
  const auto begin = [&](std::uint32_t i) {
    if (over || (run.iterations != 0 && begun[i] == run.iterations)) return;
    caller& c = callers[i];
    c.began = clock::now();
    c.ep = pz.create_ep<dat::rc>(dat::ep_evds{completions, completions, connections}, small).value();
    c.ep.set_context(std::uint64_t{i}).value();
    c.ep.connect(server, qualifier, as_timeout(o.limit), greeting{greeting::kind::endpoint, token, i}.to_wire())
        .value();
    ++begun[i];
    ++open;
  };
  // The events are handled after the drain, because the handling ends endpoints.
  std::vector<std::pair<std::uint32_t, bool>> happened; // the endpoint, and whether it is connected
  std::string problem;
  const auto add = [&](const dat::connection_event& e, bool connected) {
    happened.emplace_back(static_cast<std::uint32_t>(e.ep().context().value().value()), connected);
  };
  const dat::overloaded visit{
      [&](const dat::established& e) { add(e, true); },
      [&](const dat::disconnected& e) { add(e, false); },
      [&](const auto& e) {
        if (problem.empty()) problem = e.message();
      },
  };
  for (std::uint32_t i = 0; i < run.endpoints; ++i) begin(i);
  while (open != 0) {
    take_events(run.mode, connections, visit);
    peer.check();
    if (!problem.empty()) throw std::runtime_error(problem);
    const auto now = clock::now();
    if (run.iterations == 0 && std::chrono::duration<double>(now - start_time).count() >= run.seconds) over = true;
    for (const auto& [i, connected] : happened) {
      caller& c = callers[i];
      if (connected) {
        out.times.record(std::chrono::duration<double, std::micro>(now - c.began).count());
        ++established;
        ++out.endpoints[i];
        c.ep.disconnect().value();
      } else {
        c.ep.close().value();
        --open;
        begin(i);
      }
    }
    happened.clear();
    if (seen) seen(now, established);
  }
  out.out = {established, std::chrono::duration<double>(clock::now() - start_time).count()};
  peer.send(ended{{established}, out.out.seconds});
  const auto counted = peer.expect<received>();
  if (counted.counts != std::vector<std::uint64_t>{established})
    throw std::runtime_error(fmt::format("{} connections were established, and the server has counted {}", established,
                                         counted.counts.empty() ? 0 : counted.counts.front()));
  return out;
}

connection_target::connection_target(dat::ia& ia, dat::pz& pz, const parameters& run)
    : pz_(pz),
      run_(run),
      connections_(ia.create_evd<dat::stream::connection>(4 * run.endpoints).value()),
      completions_(ia.create_evd<dat::stream::dto>(2 * run.endpoints).value()) {}

void connection_target::accept(dat::cr& request) {
  auto ep = pz_.create_ep<dat::rc>(dat::ep_evds{completions_, completions_, connections_}, small).value();
  const std::lock_guard lock(mutex_);
  request.accept(endpoints_.emplace_back(std::move(ep))).value();
}

void connection_target::serve(control& peer) {
  struct quiet {
    explicit quiet(control& c) : of(c) {}
    quiet(const quiet&) = delete;
    quiet& operator=(const quiet&) = delete;
    ~quiet() { of.on_arrival({}); }
    control& of;
  } at_end(peer);
  peer.on_arrival([this] { connections_.wake().value(); });
  std::vector<dat::ep_ref> gone;
  const dat::overloaded visit{
      [&](const dat::established&) { ++established_; },
      [&](const dat::disconnected& e) { gone.push_back(e.ep()); },
      [&](const auto& e) {
        if (failure_.empty()) failure_ = e.message();
      },
  };
  std::optional<ended> theirs;
  while (!theirs || ended_ < theirs->sent.at(0)) {
    take_events(run_.mode, connections_, visit);
    if (!failure_.empty()) throw std::runtime_error(failure_);
    for (const dat::ep_ref which : gone) {
      const std::lock_guard lock(mutex_);
      endpoints_.remove_if([&](const auto& ep) { return ep == which; });
      ++ended_;
    }
    gone.clear();
    if (peer.arrived() && !theirs) theirs = peer.expect<ended>();
    peer.check();
  }
  peer.send(received{{established_}, {}});
}

} // namespace perf
