// Evds that overflow by intent: more requests than a server has room for, and more software events than an evd holds.
// SPDX-License-Identifier: BSL-1.0
#include "book.hpp"
#include "lanes.hpp"

#include <dat/try.hpp>

#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

namespace soak {

namespace {

using namespace std::chrono_literals;

constexpr auto server_streams = dat::stream::connection_requests;
constexpr auto client_streams = dat::stream::dto | dat::stream::connection | dat::stream::software;
constexpr std::uint32_t room = 4;   ///< the room of the server's evd
constexpr std::size_t crowd = 12;   ///< attempts at a time
constexpr std::size_t flood = 1000; ///< posts of software events at a time

/// The server takes requests slowly and rejects them. Requests for which its evd has no room are refused at once.
void serve(process& owner, dat::ia& ia, lane& where) {
  auto evd = ia.create_evd<server_streams>(room);
  if (!evd) return owner.violation(where, 0, evd.error().message());
  const auto port = dat::conn_qual::make(owner.port(where)).value();
  dat::psp psp;
  for (const auto until = clock::now() + patience; !psp;) {
    auto made = ia.create_psp(port, evd.value());
    if (made)
      psp = std::move(made.value());
    else if (clock::now() > until || owner.leaving())
      return owner.violation(where, 0, made.error().message());
    else
      owner.pause(100ms);
  }
  while (!owner.leaving()) {
    where.idle = owner.now() == phase::rest;
    auto request = evd.value().wait_for<dat::connection_request>(where.idle ? 1s : 200ms);
    if (!request) continue;         // a time limit or a signal
    (void)request.value().reject(); // it cannot fail, and the destructor of the request would also refuse it
    if (!where.idle) owner.pause(20ms);
  }
  where.idle = true;
}

/// A crowd of attempts, each of which must have exactly one outcome, and a flood of software events.
class client {
public:
  client(process& owner, dat::ia& ia, lane& where) : owner_(owner), ia_(ia), lane_(where) {}

  void run() {
    while (!owner_.leaving()) {
      lane_.idle = owner_.now() == phase::rest;
      if (lane_.idle) {
        owner_.pause(1s);
        continue;
      }
      auto* const place = owner_.counts().begin(lane_.service);
      if (place) {
        life_ = place->id;
        mine_ = &place->sides[0];
        mine_->pid = static_cast<std::uint64_t>(getpid());
        mine_->state = static_cast<std::uint64_t>(outcome::open);
        const auto done = attempts();
        mine_->state = static_cast<std::uint64_t>(outcome::left);
        ++(done ? lane_.lives : lane_.ends);
      }
      owner_.pause(500ms);
    }
    lane_.idle = true;
  }

private:
  struct attempt {
    dat::ep<dat::rc> ep{};
    bool begun = false;
    unsigned outcomes = 0;
  };
  static constexpr auto event = static_cast<std::size_t>(operation::event);
  void fault(const std::string& what) { owner_.violation(lane_, life_, what); }

  dat::expected<void> attempts() {
    DAT_TRY(auto pz, ia_.create_pz());
    DAT_TRY(auto evd, ia_.create_evd<client_streams>(16));
    std::vector<attempt> all(crowd);
    for (auto& one : all) {
      DAT_TRY(one.ep, pz.create_ep<dat::rc>(evd, {.max_request_dtos = 2, .max_recv_dtos = 2}));
      DAT_TRYV(one.ep.set_context(&one));
    }
    const auto port = dat::conn_qual::make(owner_.port(lane_)).value();
    for (auto& one : all) {
      one.begun = static_cast<bool>(one.ep.connect(owner_.peer(), port, limit));
      mine_->accepted[event] += one.begun;
    }
    // The flood comes first: no outcome of an attempt may be lost by it.
    std::size_t posted = 0;
    for (std::size_t i = 0; i < flood; ++i) posted += static_cast<bool>(evd.post(posted));
    if (posted == flood) fault("a small evd took every software event");
    mine_->accepted[event] += posted;

    std::size_t taken = 0;
    const auto until = clock::now() + limit + patience;
    const auto open = [&](const attempt& one) { return one.begun && one.outcomes == 0; };
    while ((taken < posted || std::any_of(all.begin(), all.end(), open)) && clock::now() < until && !owner_.leaving())
      (void)evd.wait_and_drain(dat::overloaded{[&](const dat::software_event& e) {
                                                 if (e.cookie().as<std::size_t>() != taken)
                                                   fault("a software event out of order");
                                                 ++taken;
                                                 ++mine_->done[event];
                                               },
                                               [&](const dat::peer_rejected& e) { outcome_of(e, true); },
                                               [&](const dat::non_peer_rejected& e) { outcome_of(e, true); },
                                               [&](const dat::connection_unreachable& e) { outcome_of(e, true); },
                                               [&](const dat::connection_timed_out& e) { outcome_of(e, true); },
                                               [&](const dat::established& e) { outcome_of(e, false); },
                                               [](const auto&) {}},
                               200ms);
    if (owner_.leaving()) { // the adapter has been removed
      mine_->dropped[event] += mine_->accepted[event] - mine_->done[event];
      return dat::error(dat::return_type::abort).at("crowd");
    }
    if (taken < posted) fault(std::to_string(posted - taken) + " software events were lost");
    if (std::any_of(all.begin(), all.end(), open)) fault("an attempt has no outcome");
    return dat::success();
  }

  template <class E>
  void outcome_of(const E& e, bool expected) {
    auto* const one = e.ep().template context<attempt>();
    if (!expected) fault("a server that rejects has accepted");
    if (!one || ++one->outcomes > 1) return fault("an attempt has two outcomes");
    ++mine_->done[event];
  }

  static constexpr dat::timeout limit = 10s;
  process& owner_;
  dat::ia& ia_;
  lane& lane_;
  side* mine_ = nullptr;
  std::uint64_t life_ = 0;
};

} // namespace

void crowds(process& owner, dat::ia& ia, lane& where) {
  if (where.client)
    client(owner, ia, where).run();
  else
    serve(owner, ia, where);
}

} // namespace soak
