// Many threads that post, wait, forbid waits, change cnos and interrupt at once. At the end every count must balance.
// SPDX-License-Identifier: BSL-1.0
#include "../support/worker.hpp"
#include <rig.hpp>
#include <support/streams.hpp>

#include <array>
#include <atomic>
#include <csignal>
#include <latch>
#include <list>
#include <pthread.h>
#include <sys/epoll.h>
#include <thread>
#include <unistd.h>

using namespace std::chrono_literals;
using dat::return_subtype;
using dat::return_type;
using rig::must;
using rig::patience;
using support::worker;

namespace {

using support::mixed;
constexpr std::uint64_t producers = 3;
constexpr std::uint64_t stations = 4;
/// The software events that each producer posts for each station. Most go to stations whose thread waits on the evd: a
/// cno takes two system calls for each, and the lab's machine emulates these.
constexpr std::array<std::uint64_t, stations> share = {128, 1, 1, 1};
constexpr std::uint64_t shares = 131;
constexpr std::uint64_t messages = rig::stress_messages; // the number of messages of each connection

/// An evd, the connection that completes on it, and counts of the events that were taken.
struct station {
  std::uint64_t each = 0; ///< the number of software events of each producer
  dat::evd<mixed> evd;
  dat::ep<dat::rc> far;
  std::atomic<std::uint64_t> software{0};
  std::atomic<std::uint64_t> sum{0}; ///< the sum over the software events, each of which is taken once
  std::atomic<std::uint64_t> received{0};
};

struct scene {
  /// Each producer posts its software events in `turns` parts.
  explicit scene(std::uint64_t turns) {
    for (std::size_t i = 0; i < stations; ++i) {
      station& s = all[i];
      s.each = turns * share[i];
      s.evd = must(ia.create_evd<mixed>(512));
      s.far = must(pz.create_ep<dat::rc>({.recv = s.evd, .request = s.evd, .connect = connections}));
    }
    const auto port = rig::port();
    const auto psp = must(ia.create_psp(port, connections));
    for (std::size_t i = 0; i < near.size(); ++i) {
      near[i] =
          must(pz.create_ep<dat::rc>({.recv = completions_only, .request = completions_only, .connect = connections}));
      must(near[i].connect(ia.address(), port, patience));
      must(must(connections.wait_for<dat::connection_request>(patience)).accept(all[i].far));
      (void)must(connections.wait_for<dat::established>(near[i], patience));
      (void)must(connections.wait_for<dat::established>(all[i].far, patience));
    }
  }

  [[nodiscard]] bool complete(const station& s) const {
    return broken || (s.software == producers * s.each && s.received == messages);
  }
  /// Ends the test after an error, so that no thread waits for events that will not come.
  void give_up(worker& w, const dat::error& why, const char* where) {
    w.check(false, why.message().c_str(), 0);
    w.check(false, where, 0);
    broken = true;
  }

  std::atomic<bool> broken{false};
  std::atomic<std::uint64_t> interrupted{0};
  std::atomic<std::uint64_t> forbidden{0};
  dat::ia ia = rig::open();
  dat::pz pz = must(ia.create_pz());
  dat::cno cno = must(ia.create_cno());    // serves two stations
  dat::cno spare = must(ia.create_cno());  // has no waiter
  dat::cno polled = must(ia.create_cno()); // serves a station that polls by epoll
  dat::evd<dat::stream::connection | dat::stream::connection_requests> connections =
      must(ia.create_evd<dat::stream::connection | dat::stream::connection_requests>(64));
  dat::evd<dat::stream::dto> completions_only = must(ia.create_evd<dat::stream::dto>(512));
  dat::evd<dat::stream::software> bell =
      must(ia.create_evd<dat::stream::software>(1)); // wakes the threads that sleep on the cno
  std::array<station, stations> all;
  std::array<dat::ep<dat::rc>, stations> near;
};

/// Takes the events of a station. A single thread gets them in the order of their producers.
class taker {
public:
  taker(station& s, worker& w, bool alone) noexcept : station_(s), worker_(w), alone_(alone) {}
  void operator()(const dat::software_event& e) {
    const auto who = e.cookie().value() >> 32;
    const auto which = e.cookie().value() & 0xffff'ffff;
    if (alone_) worker_.check(which == next_[who]++);
    station_.sum += which;
    ++station_.software;
  }
  void operator()(const dat::recv_done& e) {
    if (alone_) worker_.check(e.cookie() == dat::cookie(next_message_++));
    ++station_.received;
  }
  template <class Other>
  void operator()(const Other&) {
    worker_.check(false);
  }

private:
  station& station_;
  worker& worker_;
  bool alone_;
  std::array<std::uint64_t, producers> next_{};
  std::uint64_t next_message_ = 0;
};

// The waiting threads. A lost wake-up ends by `patience` and is an error.
void wait_on_evd(scene& all, station& s, worker& w) {
  taker take(s, w, true);
  while (!all.complete(s)) {
    auto e = s.evd.wait(patience);
    if (e) {
      std::visit(take, e.value());
      s.evd.drain(take, 64);
    } else if (e.error().type() == return_type::interrupted_call) {
      ++all.interrupted;
    } else if (e.error().subtype() == return_subtype::evd_unwaitable) {
      ++all.forbidden;
      s.evd.drain(take);
    } else {
      return all.give_up(w, e.error(), "waiting on an evd");
    }
  }
}
void wait_on_cno(scene& all, station& s, station& t, worker& w) {
  taker take_s(s, w, false);
  taker take_t(t, w, false);
  while (!all.complete(s) || !all.complete(t)) {
    const auto id = all.cno.wait(patience);
    if (!id && id.error().type() != return_type::interrupted_call)
      return all.give_up(w, id.error(), "waiting on a cno");
    if (!id) ++all.interrupted;
    while (s.evd.drain(take_s) + t.evd.drain(take_t) != 0) {
    }
  }
  w.check(all.bell.wake().has_value()); // the other thread may sleep
}
void wait_by_epoll(scene& all, station& s, worker& w) {
  taker take(s, w, true);
  const int set = ::epoll_create1(EPOLL_CLOEXEC);
  epoll_event e{};
  e.events = EPOLLIN | EPOLLET;
  w.check(::epoll_ctl(set, EPOLL_CTL_ADD, all.polled.fd(), &e) == 0);
  while (!all.complete(s)) {
    const int n = ::epoll_wait(set, &e, 1, static_cast<int>(patience / 1ms));
    if (n < 0 && errno == EINTR) ++all.interrupted;
    if (n == 0) all.give_up(w, dat::error(return_type::timeout_expired), "waiting by epoll");
    if (n != 1) continue;
    std::uint64_t which;
    (void)!::read(all.polled.fd(), &which, sizeof which);
    while (s.evd.drain(take) != 0) {
    }
  }
  ::close(set);
}
void wait_on_lean(scene& all, worker& w) {
  std::array<std::uint64_t, stations> next{};
  for (std::uint64_t sent = 0; sent < stations * messages && !all.broken;) {
    const auto e = all.completions_only.wait(patience);
    if (e) {
      const auto* s = std::get_if<dat::send_done>(&e.value());
      w.check(s && s->cookie().value() % messages == next[s->cookie().value() / messages]++);
      ++sent;
    } else if (e.error().type() == return_type::interrupted_call) {
      ++all.interrupted;
    } else {
      return all.give_up(w, e.error(), "waiting on completions");
    }
  }
}

// The threads that wake the waiting threads.
void post_software(scene& all, std::uint64_t who, worker& w) {
  std::array<std::uint64_t, stations> next{};
  while (next[0] < all.all[0].each && !all.broken)
    for (std::size_t i = 0; i < stations; ++i)
      for (const std::uint64_t end = next[i] + share[i]; next[i] < end && !all.broken;) {
        const auto r = all.all[i].evd.post(who << 32 | next[i]);
        if (r) {
          ++next[i];
        } else {
          w.check(r.error().type() == return_type::queue_full);
          std::this_thread::sleep_for(100us); // lets the waiters run
        }
      }
}
void send_messages(scene& all, worker& w) {
  const auto until_there_is_room = [&](auto&& post) {
    for (;;) {
      const auto r = post();
      if (r || all.broken) return;
      w.check(r.error().type() == return_type::insufficient_resources);
      std::this_thread::sleep_for(100us);
    }
  };
  for (std::uint64_t m = 0; m < messages; ++m)
    for (std::size_t i = 0; i < stations; ++i) {
      until_there_is_room([&] { return all.all[i].far.post(dat::recv{}.cookie(m)); });
      until_there_is_room([&] { return all.near[i].post(dat::send{}.cookie(i * messages + m)); });
    }
}

} // namespace

TEST_CASE("threads that post, wait, forbid waits, change cnos and interrupt lose no event and take none twice",
          "[stress]") {
  rig::begin();
  struct sigaction handler {};
  handler.sa_handler = [](int) {}; // without SA_RESTART
  struct sigaction before {};
  REQUIRE(sigaction(SIGUSR1, &handler, &before) == 0);

  scene all((rig::stress_events - 2 * stations * messages) / (producers * shares) + 1);
  station& first = all.all[0];
  station& second = all.all[1];
  station& third = all.all[2];
  station& fourth = all.all[3];
  must(second.evd.modify_cno(all.cno));
  must(third.evd.modify_cno(all.cno));
  must(all.bell.modify_cno(all.cno));
  must(fourth.evd.modify_cno(all.polled));

  std::latch finished(5);
  std::list<worker> waiters;
  std::array<std::atomic<pthread_t>, 5> ids{};
  const auto start = [&](auto wait) {
    waiters.emplace_back([&, wait, place = waiters.size()](worker& w) {
      ids[place] = pthread_self();
      wait(w);
      finished.count_down();
    });
  };
  start([&](worker& w) { wait_on_evd(all, first, w); });
  start([&](worker& w) { wait_on_cno(all, second, third, w); });
  start([&](worker& w) { wait_on_cno(all, second, third, w); });
  start([&](worker& w) { wait_by_epoll(all, fourth, w); });
  start([&](worker& w) { wait_on_lean(all, w); });

  // These two threads pause, so that the others can run.
  std::atomic<bool> done{false};
  worker meddler([&](worker& w) {
    while (!done) {
      w.check(first.evd.set_unwaitable().has_value());
      w.check(first.evd.clear_unwaitable().has_value());
      w.check(first.evd.wake().has_value());
      w.check(second.evd.modify_cno(all.spare).has_value());
      w.check(second.evd.modify_cno(all.cno).has_value());
      w.check(third.evd.disable().has_value());
      w.check(third.evd.enable().has_value());
      std::this_thread::sleep_for(200us);
    }
  });
  worker interrupter([&](worker&) {
    for (std::size_t i = 0; !done; i = (i + 1) % ids.size()) {
      if (const pthread_t id = ids[i]) pthread_kill(id, SIGUSR1);
      std::this_thread::sleep_for(100us);
    }
  });
  std::list<worker> sources;
  for (std::uint64_t p = 0; p < producers; ++p) sources.emplace_back([&, p](worker& w) { post_software(all, p, w); });
  sources.emplace_back([&](worker& w) { send_messages(all, w); });

  finished.wait();
  for (worker& w : sources) w.join();
  done = true;
  meddler.join();
  interrupter.join();
  for (worker& w : waiters) w.join();
  sigaction(SIGUSR1, &before, nullptr);

  std::uint64_t events = stations * messages; // the completions of the senders
  for (station& s : all.all) {
    CHECK(s.software == producers * s.each);
    CHECK(s.sum == producers * (s.each * (s.each - 1) / 2));
    CHECK(s.received == messages);
    CHECK(s.evd.dequeue().error().type() == return_type::queue_empty);
    SHOWS("EVENT-003", "EVENT-066", "EVENT-108", "CNO-010");
    events += s.software + s.received;
  }
  CHECK(all.completions_only.dequeue().error().type() == return_type::queue_empty);
  CHECK(all.connections.dequeue().error().type() == return_type::queue_empty);
  CHECK(all.ia.async_evd().dequeue().error().type() == return_type::queue_empty);
  CHECK(events >= rig::stress_events);
  SHOWS("EVENT-107", "EVD-029", "EVD-032");
  CHECK(all.interrupted > 0); // of ten thousands of signals some interrupted a sleeping thread
  CHECK(all.forbidden > 0);
}
