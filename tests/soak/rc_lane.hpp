// Lanes of connections: a server and a client for each arrangement of evds and queues.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "session.hpp"

#include <algorithm>
#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace soak {

/// Gives each event to the session that is the context of its endpoint.
template <class Request>
struct dispatcher {
  Request request; ///< what a request for a connection runs

  template <class E>
  [[nodiscard]] static session* of(const E& event) {
    return event.ep().template context<session>(); // null: the endpoint was closed with events in the queue
  }
  void operator()(const dat::recv_done& e) const {
    if (auto* s = of(e)) s->on_received(e.cookie(), e.bytes(), {}, e.invalidated());
  }
  void operator()(const dat::ib::recv_write_immediate_done& e) const {
    if (auto* s = of(e)) s->on_received(e.cookie(), e.bytes(), e.immediate(), {});
  }
  void operator()(const dat::transfer& e) const {
    if (auto* s = of(e)) s->on_done(e);
  }
  void operator()(const dat::dto_failure& e) const {
    if (auto* s = of(e)) s->on(e);
  }
  void operator()(const dat::bind_done& e) const {
    if (auto* s = of(e)) s->on_bound(e);
  }
  void operator()(const dat::established& e) const {
    if (auto* s = of(e)) s->on(e);
  }
  void operator()(const dat::disconnected& e) const { end(e, "disconnected", true); }
  void operator()(const dat::connection_broken& e) const { end(e, "connection_broken", true); }
  void operator()(const dat::peer_rejected& e) const { end(e, "peer_rejected", false); }
  void operator()(const dat::non_peer_rejected& e) const { end(e, "non_peer_rejected", false); }
  void operator()(const dat::accept_completion_error& e) const { end(e, "accept_completion_error", false); }
  void operator()(const dat::connection_timed_out& e) const { end(e, "connection_timed_out", false); }
  void operator()(const dat::connection_unreachable& e) const { end(e, "connection_unreachable", false); }
  void operator()(dat::connection_request& e) const { request(e); }

  template <class E>
  static void end(const E& event, const char* name, bool established) {
    if (auto* s = of(event)) s->on_end(name, established);
  }
};
template <class Request>
dispatcher(Request) -> dispatcher<Request>;

/// One evd for everything.
struct merged_events {
  static constexpr auto streams =
      dat::stream::dto | dat::stream::connection | dat::stream::connection_requests | dat::stream::rmr_bind;
  dat::evd<streams> all{};

  dat::expected<void> open(dat::ia& ia) {
    auto made = ia.create_evd<streams>(64);
    if (!made) return made.error();
    all = std::move(made.value());
    return dat::success();
  }
  [[nodiscard]] dat::ep_evds evds() const { return {all, all, all}; }
  [[nodiscard]] const dat::evd<streams>& requests() const { return all; }
  template <class Visitor>
  void pump(Visitor&& visit, dat::timeout limit) {
    (void)all.wait_and_drain(visit, limit); // a time limit or a signal ended the wait, and neither is a fault
  }
};

/// A completion queue and nothing else for the completions; a cno wakes for it and for the evd of connections.
struct lean_events {
  static constexpr auto streams = dat::stream::connection | dat::stream::connection_requests;
  dat::cno cno{};
  dat::evd<dat::stream::dto> completions{};
  dat::evd<streams> connections{};

  dat::expected<void> open(dat::ia& ia) {
    auto notified = ia.create_cno();
    if (!notified) return notified.error();
    cno = std::move(notified.value());
    auto first = ia.create_evd<dat::stream::dto>(64);
    if (!first) return first.error();
    completions = std::move(first.value());
    auto second = ia.create_evd<streams>(64);
    if (!second) return second.error();
    connections = std::move(second.value());
    if (auto ok = completions.modify_cno(cno); !ok) return ok;
    return connections.modify_cno(cno);
  }
  [[nodiscard]] dat::ep_evds evds() const { return {completions, completions, connections}; }
  [[nodiscard]] const dat::evd<streams>& requests() const { return connections; }
  template <class Visitor>
  void pump(Visitor&& visit, dat::timeout limit) {
    // Takes `established` first: earlier completions would find a session that is not connected.
    if (connections.drain(visit) + completions.drain(visit) == 0) (void)cno.wait(limit);
  }
};

/// The parts of a lane of connections.
struct rc_options {
  bool shared = false;  ///< the server's receives come from a shared queue
  bool windows = false; ///< the client writes through windows of the server
  unsigned width = 1;   ///< connections of the client at a time
};

template <class Events>
class rc_lane {
public:
  rc_lane(process& owner, dat::ia& ia, lane& where, const rc_options& options)
      : owner_(owner),
        ia_(ia),
        lane_(where),
        options_(options),
        random_(owner.generator(where)),
        shared_(owner, where) {}

  void run() {
    if (auto ok = open(); !ok) return owner_.violation(lane_, 0, ok.error().message());
    while (!owner_.leaving()) {
      const bool rest = owner_.now() != phase::work;
      lane_.idle = rest && sessions_.empty();
      if (lane_.client && lane_.idle) {
        spare_ = {};
        owner_.pause(std::chrono::seconds(1));
        continue;
      }
      if (lane_.client && !rest)
        while (sessions_.size() < options_.width && start()) {
        }
      events_.pump(dispatcher{[this](dat::connection_request& r) { accept(r); }}, std::chrono::milliseconds(200));
      reap();
      if (lane_.idle && options_.shared && !lane_.client) shared_.check(pz_);
    }
    end();
  }

private:
  static constexpr std::uint32_t shared_count = 96;
  static constexpr dat::timeout connect_limit = std::chrono::seconds(10);

  dat::expected<void> open() {
    auto zone = ia_.create_pz();
    if (!zone) return zone.error();
    pz_ = std::move(zone.value());
    if (auto ok = events_.open(ia_); !ok) return ok;
    if (lane_.client) return dat::success();
    if (options_.shared)
      if (auto ok = shared_.open(pz_, shared_count); !ok) return ok;
    return listen();
  }

  /// The port of a process that was killed recently may be in use for a moment.
  dat::expected<void> listen() {
    const auto port = dat::conn_qual::make(owner_.port(lane_)).value();
    const auto until = clock::now() + patience;
    for (;;) {
      auto made = ia_.create_psp(port, events_.requests());
      if (made) {
        psp_ = std::move(made.value());
        return dat::success();
      }
      if (clock::now() > until || owner_.leaving()) return made.error();
      owner_.pause(std::chrono::milliseconds(100));
    }
  }

  [[nodiscard]] dat::ep_attributes attributes() const {
    dat::ep_attributes a;
    a.accept_timeout = std::chrono::seconds(10);
    a.retry_count = 5;
    // Soft-RoCE executes a bind again when a request before it is retransmitted: see docs/lab.md.
    if (options_.windows) a.ack_timeout = std::chrono::seconds(2);
    return a;
  }

  [[nodiscard]] dat::expected<dat::ep<dat::rc>> endpoint() {
    if (spare_) return std::move(spare_);
    if (options_.shared && !lane_.client) {
      auto made = pz_.create_ep<dat::rc>(events_.evds(), shared_.queue, attributes());
      if (!made) return made.error();
      return dat::ep<dat::rc>(std::move(made.value()));
    }
    return pz_.create_ep<dat::rc>(events_.evds(), attributes());
  }

  [[nodiscard]] plan next_plan(std::uint64_t id) {
    plan p;
    p.life = id;
    p.total = static_cast<std::uint32_t>(options_.windows ? 5 + below(random_, 20) : 20 + below(random_, 150));
    p.cut = static_cast<std::uint32_t>(1 + below(random_, p.total));
    p.how = below(random_, 2) == 0 ? ending::client_graceful
                                   : static_cast<ending>(below(random_, static_cast<std::uint64_t>(ending::count)));
    p.windows = options_.windows;
    return p;
  }

  /// Starts a connection of the client. Returns false when no connection can start now.
  bool start() {
    auto* const place = owner_.counts().begin(lane_.service);
    if (!place) return wait_a_moment();
    auto made = endpoint();
    if (!made) {
      forget(*place);
      return wait_a_moment();
    }
    auto fresh = std::make_unique<session>(owner_, lane_, *place, next_plan(place->id), true, random(random_()));
    if (auto ok = fresh->open(pz_, std::move(made.value()), nullptr); !ok) return wait_a_moment();
    const auto port = dat::conn_qual::make(owner_.port(lane_)).value();
    if (auto ok = fresh->connect(owner_.peer(), port, connect_limit); !ok) return wait_a_moment();
    sessions_.push_back(std::move(fresh));
    return true;
  }
  bool wait_a_moment() {
    owner_.pause(std::chrono::milliseconds(50));
    return false;
  }
  static void forget(life& place) {
    auto& mine = place.sides[0];
    mine.state = static_cast<std::uint64_t>(outcome::left);
  }

  void accept(dat::connection_request& request) {
    plan wanted;
    std::memcpy(&wanted, request.private_data().data(), sizeof wanted);
    auto* const place = owner_.counts().find(wanted.life);
    if (!place || wanted.how >= ending::count) return; // its client was killed, and its place is free again
    // A closed endpoint keeps the buffers of messages that have arrived, but this lane needs all of them.
    if (options_.shared && wanted.how == ending::server_leaves) wanted.how = ending::server_cuts;
    if (place->sides[1].state != 0) return owner_.note(lane_, "a second request of one life; it is refused");
    auto made = endpoint();
    if (!made) return;
    auto fresh = std::make_unique<session>(owner_, lane_, *place, wanted, false, random(random_()));
    if (auto ok = fresh->open(pz_, std::move(made.value()), options_.shared ? &shared_ : nullptr); !ok) return;
    if (auto ok = fresh->accept(request); !ok) return;
    sessions_.push_back(std::move(fresh));
  }

  /// Ends the sessions that are over, outside of any call that takes events.
  void reap() {
    const auto now = clock::now();
    for (auto at = sessions_.begin(); at != sessions_.end();) {
      session& s = **at;
      if (!s.over(now)) {
        ++at;
        continue;
      }
      ++(s.successful() ? lane_.lives : lane_.ends);
      const bool failed = lane_.client && !s.successful() && !s.ended();
      keep(s);
      at = sessions_.erase(at);
      if (failed) wait_a_moment();
    }
  }

  /// Half of the endpoints of a client are used for a further life.
  void keep(session& s) {
    if (!lane_.client || spare_ || !s.endpoint() || s.endpoint().state() != dat::ep_state::disconnected) return;
    if (below(random_, 2) == 0) return;
    auto ep = s.take_endpoint();
    if (ep.set_context(dat::cookie()) && ep.reset()) spare_ = std::move(ep);
  }

  /// The adapter was removed or the process ends: each connection must still end.
  void end() {
    spare_ = {};
    const auto until = clock::now() + patience;
    for (auto& s : sessions_) s->cut();
    while (!sessions_.empty() && clock::now() < until) {
      events_.pump(dispatcher{[](dat::connection_request&) {}}, std::chrono::milliseconds(20));
      reap();
    }
    if (!sessions_.empty())
      owner_.violation(lane_, sessions_.front()->id(), "a connection did not end when its adapter was gone");
    sessions_.clear();
    lane_.idle = true;
  }

  process& owner_;
  dat::ia& ia_;
  lane& lane_;
  rc_options options_;
  random random_;
  dat::pz pz_{};
  Events events_{};
  shared_buffers shared_;
  dat::psp psp_{};
  dat::ep<dat::rc> spare_{};
  std::list<std::unique_ptr<session>> sessions_{};
};

} // namespace soak
