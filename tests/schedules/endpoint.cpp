// Pairs of operations on one endpoint, from several threads, in many orders. Each accepted operation completes at most
// once, and exactly once unless the endpoint was reset; each connection ends with one event; the next life has its
// whole queue. SPDX-License-Identifier: BSL-1.0
#include "schedule.hpp"

#include <unit/world.hpp>

#include <dat/ep_params.hpp>

#include <map>
#include <mutex>
#include <set>

using namespace unit;

namespace {

/// The kinds of evds that the endpoint uses.
enum class evds { merged, lean };

constexpr int depth = 4;

/// A connected endpoint, with a record of its events.
class scene {
public:
  explicit scene(evds kind) {
    const dat::ep_attributes small{.max_request_dtos = depth, .max_recv_dtos = depth};
    a.ep =
        must(kind == evds::merged ? a.pz.create_ep<dat::rc>(a.evd, small)
                                  : a.pz.create_ep<dat::rc>({.recv = lean, .request = lean, .connect = a.evd}, small));
    b.make_ep();
    connect();
    for (int i = 0; i < 2; ++i) must(b.ep.post(dat::recv{}));
  }

  void connect() {
    must(a.ep.connect(b.ia.address(), service, plenty));
    must(must(b.evd.wait_for<dat::connection_request>(plenty)).accept(b.ep));
    (void)must(a.evd.wait_for<dat::established>(plenty));
    (void)must(b.evd.wait_for<dat::established>(plenty));
    ends = 0;
  }

  // --- the actions of the threads --------------------------------------------------------------------------------

  void take() {
    for (int i = 0; i < 3; ++i) collect();
  }
  void take_one() { (void)count(a.evd.dequeue()); }
  void wait() { (void)count(a.evd.wait(1ms)); }
  void wait_for_send() {
    if (const auto taken = a.evd.wait_for<dat::send_done>(1ms)) count_event(taken.value());
  }
  void send() {
    for (int i = 0; i < 2; ++i) post(dat::send{}, 1000);
  }
  void recv() {
    for (int i = 0; i < 2; ++i) post(dat::recv{}, 2000);
  }
  void disconnect() { (void)a.ep.disconnect(); }
  void finish() { (void)a.ep.disconnect(dat::close_mode::graceful); }
  void peer() { (void)b.ep.disconnect(); }
  void reset() {
    (void)a.ep.disconnect();
    while (a.ep.state() != dat::ep_state::disconnected) std::this_thread::yield();
    must(a.ep.reset());
    was_reset = true;
  }
  /// Ends the connection and establishes another one, while other threads may take its events.
  void renew() {
    reset();
    while (b.ep.state() != dat::ep_state::disconnected) std::this_thread::yield();
    must(b.ep.reset());
    must(a.ep.connect(b.ia.address(), service, plenty));
    must(must(b.evd.wait_for<dat::connection_request>(plenty)).accept(b.ep));
    while (a.ep.state() != dat::ep_state::connected || b.ep.state() != dat::ep_state::connected)
      std::this_thread::yield();
  }
  void fatal() { fake::async(IBV_EVENT_QP_FATAL, a.ep.native_handle()); }
  void look() { (void)a.ep.state(), (void)a.ep.status(), (void)a.ep.query(), (void)a.ep.remote_address(); }
  void close() {
    must(a.ep.close());
    was_closed = true;
  }

  // --- the checks --------------------------------------------------------------------------------------------------

  /// Ends the connection if it has not ended, and checks all its events.
  void check(evds kind) {
    if (!was_closed && !was_reset) {
      (void)a.ep.disconnect();
      while (ends == 0) {
        collect();
        if (ends == 0) (void)count(a.evd.wait(plenty));
      }
      fake::finish();
      collect();
      CHECK(ends == 1);
      CHECK(a.ep.state() == dat::ep_state::disconnected);
    }
    collect();
    CHECK(ends <= 1);
    for (const auto& [cookie, times] : completed) {
      INFO("cookie " << cookie);
      CHECK(accepted.count(cookie) == 1);
      CHECK(times == 1);
    }
    if (!was_closed && !was_reset) CHECK(completed.size() == accepted.size());
    if (!was_closed) live_again(kind);
  }

private:
  /// Checks that the next life of the endpoint has its whole queue, and one end event.
  void live_again(evds kind) {
    if (!was_reset) must(a.ep.reset());
    collect();
    (void)b.ep.disconnect();
    while (b.ep.state() != dat::ep_state::disconnected) (void)b.evd.wait(plenty);
    must(b.ep.reset());
    b.evd.drain([](const auto&) {}, 1000);
    accepted.clear();
    completed.clear();
    connect();
    for (int i = 0; i < depth; ++i) CHECK(post(dat::recv{}, 2000));
    for (int i = 0; i < depth; ++i) must(b.ep.post(dat::recv{}));
    for (int i = 0; i < depth; ++i) CHECK(post(dat::send{}, 1000));
    while (completed.size() < depth) {
      collect();
      if (completed.size() < depth) (void)(kind == evds::lean ? count(lean.wait(plenty)) : count(a.evd.wait(plenty)));
    }
    CHECK(ends == 0);
    CHECK(a.ep.state() == dat::ep_state::connected);
    must(a.ep.disconnect());
    while (ends == 0) (void)count(a.evd.wait(plenty));
    collect();
    CHECK(ends == 1);
    CHECK(completed.size() == 2 * depth);
  }

  /// Posts an empty message with its own cookie, and records whether the endpoint has accepted it.
  template <class Request>
  bool post(Request request, std::uint64_t from) {
    std::uint64_t cookie = 0;
    {
      const std::lock_guard lock(mutex_);
      cookie = from + ++number_;
    }
    const bool done = a.ep.post(request.cookie(cookie)).has_value();
    const std::lock_guard lock(mutex_);
    if (done) accepted.insert(cookie);
    return done;
  }

  void collect() {
    lean.drain([this](const auto& e) { count_event(e); }, 100);
    a.evd.drain([this](const auto& e) { count_event(e); }, 100);
  }
  template <class Event>
  void count_event(const Event& e) {
    const std::lock_guard lock(mutex_);
    if constexpr (requires { e.cookie(); })
      ++completed[e.cookie().value()];
    else if constexpr (std::is_same_v<Event, dat::disconnected> || std::is_same_v<Event, dat::connection_broken>)
      ++ends;
  }
  template <class R>
  bool count(R r) {
    if (r) std::visit([this](const auto& e) { count_event(e); }, r.value());
    return r.has_value();
  }

public:
  end a{"fk1", automatic};
  end b{"fk2", automatic};
  dat::evd<dat::stream::dto> lean = must(a.ia.create_evd<dat::stream::dto>(64));
  dat::psp psp = must(b.ia.create_psp(service, b.evd));

private:
  std::mutex mutex_; // guards the members below
  std::map<std::uint64_t, int> completed;
  std::set<std::uint64_t> accepted;
  std::uint64_t number_ = 0;
  int ends = 0;
  bool was_reset = false, was_closed = false;
};

struct operation {
  const char* name;
  char kind; ///< r, v: posts of requests, of receives; g: one that ends the connection; x: reset; c: close; t: takes
             ///< from a completions-only evd; else any
  void (scene::*run)();
};
constexpr operation operations[] = {
    {"take", 't', &scene::take},
    {"dequeue", 'q', &scene::take_one},
    {"wait", 'w', &scene::wait},
    {"wait for a send", 's', &scene::wait_for_send},
    {"send", 'r', &scene::send},
    {"recv", 'v', &scene::recv},
    {"disconnect", 'd', &scene::disconnect},
    {"graceful disconnect", 'g', &scene::finish},
    {"the peer disconnects", 'p', &scene::peer},
    {"reset", 'x', &scene::reset},
    {"the device fails the queue pair", 'f', &scene::fatal},
    {"query", 'l', &scene::look},
    {"close", 'c', &scene::close},
};

/// Whether docs/thread-safety.md lets two operations overlap.
bool may_overlap(evds kind, char one, char two) {
  // A wait for a send ends with the connection, and does not name the operation that failed.
  for (const char ends : {'d', 'g', 'p', 'f', 'x', 'c'})
    if ((one == 's' && two == ends) || (one == ends && two == 's')) return false;
  if (one == 'g') one = 'r';
  if (two == 'g') two = 'r';
  const auto both = [&](char x, char y) { return (one == x && two == y) || (one == y && two == x); };
  if (one == two && (one == 'r' || one == 'v' || one == 'c' || one == 'x' || one == 'w')) return false;
  if (both('x', 'r') || both('x', 'v')) return false;
  if (both('x', 'f')) return false; // the event would name a destroyed queue pair
  for (const char use : {'r', 'v', 'd', 'x', 'l', 'f'})
    if (both('c', use)) return false;
  if (kind == evds::lean && (both('t', 't') || both('t', 'c') || both('t', 'x'))) return false;
  if (both('w', 'q') || both('w', 't')) return false; // these calls are refused, and not forbidden
  return true;
}

} // namespace

TEST_CASE("every two operations on an endpoint that may overlap lose nothing, in many orders",
          "[schedules][SAFE-060]") {
  const evds kind = GENERATE(evds::merged, evds::lean);
  for (const auto& one : operations)
    for (const auto& two : operations) {
      if (&one > &two || !may_overlap(kind, one.kind, two.kind)) continue;
      INFO((kind == evds::lean ? "completions-only evd: " : "merged evd: ") << one.name << " beside " << two.name);
      schedule::explore(schedule::usual, [&](schedule::session& s) {
        const clean_world world;
        scene all(kind);
        s.together({[&] { (all.*one.run)(); }, [&] { (all.*two.run)(); }});
        all.check(kind);
      });
    }
}

TEST_CASE("a taker, a poster and an end of the connection at once lose nothing, in many orders",
          "[schedules][SAFE-060]") {
  const evds kind = GENERATE(evds::merged, evds::lean);
  for (const auto& end : operations) {
    if (std::string_view("dpfg").find(end.kind) == std::string_view::npos) continue;
    INFO((kind == evds::lean ? "completions-only evd: " : "merged evd: ") << end.name);
    schedule::explore(schedule::usual, [&](schedule::session& s) {
      const clean_world world;
      scene all(kind);
      s.together({[&] { all.take(); }, [&] { all.recv(); }, [&] { (all.*end.run)(); }});
      all.check(kind);
    });
  }
}

TEST_CASE("a reset beside takers, after the end of a connection, leaves the next life whole", "[schedules]") {
  for (const bool graceful : {false, true}) {
    INFO((graceful ? "graceful" : "abrupt"));
    schedule::explore(schedule::usual, [&](schedule::session& s) {
      const clean_world world;
      scene all(evds::merged);
      all.send();
      all.recv();
      s.together({[&] { all.take(); },
                  [&] {
                    if (graceful) all.finish();
                    all.reset();
                  },
                  [&] { all.take(); }});
      all.check(evds::merged);
    });
  }
}

TEST_CASE("a new connection is not ended by what a taker still holds of the earlier one", "[schedules]") {
  const evds kind = GENERATE(evds::merged, evds::lean);
  INFO((kind == evds::lean ? "completions-only evd" : "merged evd"));
  schedule::explore(schedule::usual, [&](schedule::session& s) {
    const clean_world world;
    scene all(kind);
    all.recv();
    s.together({[&] { all.take(); }, [&] { all.renew(); }});
    fake::finish();
    all.take();
    CHECK(all.a.ep.state() == dat::ep_state::connected);
    CHECK(all.b.ep.state() == dat::ep_state::connected);
  });
}
