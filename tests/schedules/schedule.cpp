// The scheduler. Only the thread that has the turn runs, so nothing here needs a lock.
// SPDX-License-Identifier: BSL-1.0
#include "schedule.hpp"
#include "agents.hpp"
#include "search.hpp"

#include <support/catch.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <sched.h>

namespace schedule {

namespace impl {

namespace {

/// The time that passes between two points.
constexpr nanoseconds step = 50;
/// A thread that has not given up its turn after this number of points spins without a yield.
constexpr unsigned longest_turn = 20'000;

/// One processor suffices for threads that run one at a time, and a switch costs half there.
class one_processor {
public:
  one_processor() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  one_processor(const one_processor&) = delete;
  one_processor& operator=(const one_processor&) = delete;
  ~one_processor() { sched_setaffinity(0, sizeof before_, &before_); }

private:
  cpu_set_t before_{};
};

struct world {
  std::optional<one_processor> where;
  std::vector<std::unique_ptr<agent>> agents; // the first is the thread of the test
  std::map<int, nanoseconds> timers;
  std::mt19937_64 random;
  std::uint64_t seed = 0;
  std::uint64_t points = 0;
  std::uint64_t writes = 0;
  nanoseconds clock = 0;
  bool free = false;            // threads switch at every point, not only where a thread waits
  search* all_orders = nullptr; // if set, the search makes the choices in place of the seed
  bool by_priority = false;
  std::uint64_t accesses = 0; // one in so many memory accesses is a point; 0: none is
  std::uint64_t odds = 2;     // one in so many points switches threads; or one in 8 times as many lowers a priority
  bool looked = false;        // all threads have checked their descriptors since the last point
  unsigned turn = 0;          // the points since the last switch
};

world* the_world = nullptr;
nanoseconds past = 0; // the clock minus that of the kernel, when the last session ended
thread_local agent* mine = nullptr;

/// While the scheduler itself runs, accesses to memory are no points: it shares functions of the standard library with
/// the instrumented code.
thread_local bool busy = false;
class quiet {
public:
  quiet() noexcept : before_(busy) { busy = true; }
  ~quiet() { busy = before_; }
  quiet(const quiet&) = delete;
  quiet& operator=(const quiet&) = delete;

private:
  bool before_;
};

using state = agent::state;

bool eligible(const world& w, const agent& a) {
  return a.is == state::ready || (a.is == state::polling && a.seen != w.writes);
}

[[noreturn]] void report_deadlock(const world& w) {
  std::fprintf(stderr, "deadlock in the schedule of seed %llu, after %llu points:\n",
               static_cast<unsigned long long>(w.seed), static_cast<unsigned long long>(w.points));
  for (std::size_t i = 0; i < w.agents.size(); ++i)
    std::fprintf(stderr, "  thread %zu: %s\n", i, w.agents[i]->is == state::done ? "ended" : w.agents[i]->call);
  std::_Exit(3);
}

/// Moves the clock to the earliest limit, because all threads wait.
void pass_time(world& w) {
  nanoseconds next = forever;
  for (const auto& a : w.agents)
    if (a->is != state::done) next = std::min(next, a->deadline);
  for (const auto& [fd, when] : w.timers) next = std::min(next, when);
  if (next == forever) report_deadlock(w);
  w.clock = std::max(w.clock, next);
  for (const auto& a : w.agents)
    if (a->is != state::done && a->deadline <= w.clock) {
      a->expired = true;
      a->is = state::ready;
    }
  for (auto it = w.timers.begin(); it != w.timers.end();)
    if (it->second <= w.clock) {
      fire(it->first);
      ++w.writes;
      it = w.timers.erase(it);
    } else {
      ++it;
    }
}

/// Chooses one of `options`, which are equally good.
std::size_t pick(world& w, std::size_t options) {
  return w.free && w.all_orders ? w.all_orders->choose(options) : w.random() % options;
}

/// The thread that runs next if a search makes the choices: `stay`, or another thread in its place.
agent& preempt(world& w, agent& stay) {
  std::vector<agent*> can = {&stay};
  for (const auto& a : w.agents)
    if (a.get() != &stay && eligible(w, *a)) can.push_back(a.get());
  return *can[w.all_orders->choose_with_preemption(can.size())];
}

/// The thread that runs next. The thread `stay` may keep the turn.
agent& choose(world& w, agent* stay) {
  if (stay && w.free && w.all_orders) return preempt(w, *stay);
  if (stay && !w.by_priority && (!w.free || w.random() % w.odds != 0)) return *stay;
  std::vector<agent*> can;
  for (;;) {
    for (const auto& a : w.agents)
      if (eligible(w, *a)) can.push_back(a.get());
    if (!can.empty()) break;
    if (!w.looked) {
      ++w.writes; // a descriptor may have changed without a write, so all threads check once
      w.looked = true;
    } else {
      pass_time(w);
    }
  }
  if (w.by_priority)
    return **std::max_element(can.begin(), can.end(), [](auto* a, auto* b) { return a->priority < b->priority; });
  return *can[pick(w, can.size())];
}

void give_turn(world& w, agent& me, agent& next) {
  if (&next == &me) return;
  w.turn = 0;
  sem_post(&next.turn);
  while (sem_wait(&me.turn) != 0) {
  }
}

/// Lets another thread run, and returns when the caller is chosen again.
void leave(world& w, agent& me) {
  agent& next = choose(w, nullptr);
  if (next.is == state::polling) next.is = state::ready;
  give_turn(w, me, next);
}

void count_point(world& w) {
  ++w.points;
  ++w.turn;
  w.looked = false;
  w.clock += step;
}

/// Moves the priority of a thread below all others.
void lower(world& w, agent& me) {
  std::uint64_t least = me.priority;
  for (const auto& a : w.agents) least = std::min(least, a->priority);
  me.priority = least == 0 ? 0 : least - 1;
}

agent& add(world& w) {
  auto a = std::make_unique<agent>();
  sem_init(&a->turn, 0, 0);
  a->priority = 1'000'000 + w.random() % 1'000'000;
  a->number = w.agents.size();
  return *w.agents.emplace_back(std::move(a));
}

struct starting {
  void* (*body)(void*);
  void* argument;
  agent* of;
};

void* run(void* p) {
  const auto s = *std::unique_ptr<starting>(static_cast<starting*>(p));
  while (sem_wait(&s.of->turn) != 0) {
  }
  mine = s.of;
  void* const result = s.body(s.argument);
  const quiet now_quiet;
  world& w = *the_world;
  s.of->is = state::done;
  wake(s.of);
  mine = nullptr;
  agent& next = choose(w, nullptr);
  if (next.is == state::polling) next.is = state::ready;
  w.turn = 0;
  sem_post(&next.turn);
  return result;
}

} // namespace

agent* self() noexcept { return mine; }
nanoseconds now() noexcept { return the_world ? the_world->clock : real_now() + past; }
nanoseconds skipped() noexcept { return past; }

void point() noexcept {
  if (!mine) return;
  const quiet now_quiet;
  world& w = *the_world;
  count_point(w);
  if (w.turn > longest_turn) return yield();
  if (!w.free) return;
  if (w.by_priority && w.random() % (8 * w.odds) == 0) lower(w, *mine);
  agent& next = choose(w, mine);
  if (next.is == state::polling) next.is = state::ready;
  give_turn(w, *mine, next);
}

void access() noexcept {
  if (!mine || busy) return;
  const quiet now_quiet;
  world& w = *the_world;
  if (w.free && w.accesses != 0 && w.random() % w.accesses == 0) point();
}

void yield() noexcept {
  const quiet now_quiet;
  world& w = *the_world;
  count_point(w);
  lower(w, *mine);
  // In a session that does not switch freely, all other threads must get their turn.
  std::vector<agent*> others;
  for (const auto& a : w.agents)
    if (a.get() != mine && eligible(w, *a)) others.push_back(a.get());
  if (others.empty()) {
    w.clock += 1000 * step; // the thread waits for a time only
    for (const auto& a : w.agents)
      if (a->is != state::done && a->is != state::ready && a->deadline <= w.clock) {
        a->expired = true;
        a->is = state::ready;
      }
    for (auto& [fd, when] : w.timers)
      if (when <= w.clock) {
        fire(fd);
        when = forever;
        ++w.writes;
      }
    w.turn = 0;
    return;
  }
  // A search has no choice here, because two threads that spin could yield to each other indefinitely. The next thread
  // in the circle runs.
  const auto following = std::find_if(others.begin(), others.end(), [](agent* a) { return a->number > mine->number; });
  agent& next = w.free && w.all_orders ? *(following != others.end() ? *following : others.front())
                                       : *others[w.random() % others.size()];
  if (next.is == state::polling) next.is = state::ready;
  give_turn(w, *mine, next);
}

bool block(const void* on, const char* call, nanoseconds deadline) noexcept {
  const quiet now_quiet;
  agent& me = *mine;
  me.is = state::blocked;
  me.on = on;
  me.call = call;
  me.deadline = deadline;
  me.expired = false;
  leave(*the_world, me);
  me.on = nullptr;
  me.deadline = forever;
  return !std::exchange(me.expired, false);
}

void wake(const void* on, bool all) noexcept {
  if (!the_world || !mine) return;
  const quiet now_quiet;
  std::vector<agent*> waiting;
  for (const auto& a : the_world->agents)
    if (a->is == state::blocked && a->on == on) waiting.push_back(a.get());
  if (waiting.empty()) return;
  if (!all) waiting = {waiting[pick(*the_world, waiting.size())]};
  for (agent* a : waiting) a->is = state::ready;
}

bool wait_for_change(const char* call, nanoseconds deadline) noexcept {
  const quiet now_quiet;
  agent& me = *mine;
  me.is = state::polling;
  me.seen = the_world->writes;
  me.call = call;
  me.deadline = deadline;
  me.expired = false;
  leave(*the_world, me);
  me.deadline = forever;
  return !std::exchange(me.expired, false);
}

void changed() noexcept {
  if (the_world) ++the_world->writes;
}

void set_timer(int fd, nanoseconds when) noexcept {
  const quiet now_quiet;
  if (when == forever)
    the_world->timers.erase(fd);
  else
    the_world->timers[fd] = when;
}

int start(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) noexcept {
  const quiet now_quiet;
  agent& a = add(*the_world);
  const int err = real_create(thread, attributes, &run, new starting{body, argument, &a});
  if (err != 0)
    the_world->agents.pop_back();
  else
    a.thread = *thread;
  return err;
}

bool await_end(pthread_t thread) noexcept {
  const quiet now_quiet;
  for (const auto& a : the_world->agents) {
    if (!pthread_equal(a->thread, thread)) continue;
    while (a->is != state::done) block(a.get(), "pthread_join");
    a->thread = {}; // the number may be used again
    return true;
  }
  return false;
}

} // namespace impl

using impl::the_world;

session::session(std::uint64_t seed) {
  const impl::quiet now_quiet;
  static impl::world w;
  w.where.emplace();
  w.agents.clear();
  w.timers.clear();
  w.points = 0;
  w.free = false;
  w.turn = 0;
  w.all_orders = nullptr;
  w.clock = impl::real_now() + impl::past;
  the_world = &w;
  reseed(seed);
  impl::mine = &impl::add(w);
  impl::mine->thread = pthread_self();
}

session::~session() {
  // Threads that were detached may still be ending.
  const impl::quiet now_quiet;
  const auto all_ended = [] {
    return std::all_of(the_world->agents.begin() + 1, the_world->agents.end(),
                       [](auto& a) { return a->is == impl::agent::state::done; });
  };
  the_world->free = false;
  while (!all_ended()) impl::yield();
  impl::past = the_world->clock - impl::real_now();
  impl::mine = nullptr;
  the_world->where.reset();
  the_world = nullptr;
}

void session::reseed(std::uint64_t seed) {
  const impl::quiet now_quiet;
  auto& w = *the_world;
  w.seed = seed;
  w.random.seed(seed);
  w.by_priority = false;
  constexpr std::uint64_t often[] = {2, 4, 16, 64};
  w.odds = often[w.random() % std::size(often)];
  constexpr std::uint64_t seldom[] = {0, 8, 64};
  w.accesses = seldom[w.random() % std::size(seldom)];
}

void session::follow(impl::search& all_orders) {
  the_world->all_orders = &all_orders;
  the_world->accesses = 0;
}

void session::together(std::initializer_list<std::function<void()>> all) {
  auto& w = *the_world;
  const bool by_priority = w.random() % 2 == 0 && !w.all_orders;
  std::vector<std::thread> threads;
  for (const auto& f : all) threads.emplace_back(f);
  for (const auto& a : w.agents) a->priority = 1'000'000 + w.random() % 1'000'000;
  w.by_priority = by_priority;
  w.free = true;
  for (auto& t : threads) t.join();
  w.free = w.by_priority = false;
}

std::uint64_t session::points() const noexcept { return the_world->points; }

namespace {

unsigned number_in(const char* variable, unsigned otherwise) {
  const char* const text = std::getenv(variable);
  return text && *text ? static_cast<unsigned>(std::stoul(text)) : otherwise;
}

} // namespace

unsigned runs(unsigned few) { return number_in("DAT_SCHEDULES", few); }
unsigned most_preemptions(unsigned few) { return number_in("DAT_PREEMPTIONS", few); }

void explore(unsigned few, const std::function<void(session&)>& body) {
  const char* const one = std::getenv("DAT_SCHEDULE");
  const std::uint64_t first = one && *one ? std::stoull(one) : 1;
  const std::uint64_t last = one && *one ? first : runs(few);
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    INFO("DAT_SCHEDULE=" << seed << " replays this schedule");
    session s(seed);
    body(s);
  }
}

bool replays() { return std::getenv("DAT_SCHEDULE_CHOICES") != nullptr; }

std::size_t explore_all(unsigned preemptions, const std::function<void(session&)>& body) {
  const auto run = [&](impl::search& choices) {
    session s(1);
    s.follow(choices);
    body(s);
  };
  {
    impl::search first(0); // this run creates objects that are created only once
    run(first);
  }
  impl::search choices(preemptions);
  if (replays()) {
    choices.replay(std::getenv("DAT_SCHEDULE_CHOICES"));
    run(choices);
    return 1;
  }
  std::size_t orders = 0;
  do {
    ++orders;
    INFO("order " << orders << ": DAT_SCHEDULE_CHOICES=" << [&] { return choices.text(); }() << " replays it");
    run(choices);
  } while (choices.advance());
  return orders;
}

} // namespace schedule
