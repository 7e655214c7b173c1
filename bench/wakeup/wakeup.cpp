// The time until a thread that sleeps for a completion has it: dat's ways of waiting beside hand-written verbs.
// SPDX-License-Identifier: BSL-1.0
#include "../pingpong/raw_link.hpp"

#include <dat/coro.hpp>
#include <dat/dat.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <string>
#include <sys/epoll.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using pingpong::give_up;

namespace {

using timer = std::chrono::steady_clock;

template <class T>
T must(dat::expected<T>&& r) {
  if (!r) give_up("dat", r.error().message().c_str());
  if constexpr (!std::is_void_v<T>) return std::move(r).value();
}

/// One thread sleeps until a message arrives; the other one sends while it sleeps.
class wakes {
public:
  explicit wakes(std::size_t n) : sent_(n), seen_(n) {}

  /// The waiting thread: `one` returns when it has taken the next completion.
  template <class One>
  void wait(One one) {
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      waiting_.store(i + 1);
      one();
      seen_[i] = timer::now();
      taken_.store(i + 1);
    }
  }
  /// The sending thread. It sleeps, too, so that the waiting thread has a processor.
  template <class Send>
  void send(Send one) {
    for (std::size_t i = 0; i < sent_.size(); ++i) {
      while (waiting_.load() != i + 1) std::this_thread::sleep_for(50us);
      std::this_thread::sleep_for(500us); // by now the waiting thread is nearly always asleep
      sent_[i] = timer::now();
      one();
      while (taken_.load() != i + 1) std::this_thread::sleep_for(200us);
    }
  }
  [[nodiscard]] double median_us() const {
    std::vector<double> all(sent_.size());
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = std::chrono::duration<double, std::micro>(seen_[i] - sent_[i]).count();
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
    std::nth_element(all.begin(), middle, all.end());
    return *middle;
  }

private:
  std::vector<timer::time_point> sent_;
  std::vector<timer::time_point> seen_;
  std::atomic<std::size_t> waiting_{0};
  std::atomic<std::size_t> taken_{0};
};

struct ends {
  std::string server;
  std::string client;
};
std::uint16_t next_port() {
  static std::uint16_t port = 21000;
  return ++port;
}

double raw(const ends& e, std::size_t n) {
  pingpong::raw_link server;
  pingpong::raw_link client;
  wakes w(n);
  const std::uint16_t port = next_port();
  std::atomic<bool> ready{false};
  std::thread waiter([&] {
    server.serve(e.server, port, [&] { ready = true; });
    w.wait([&, before = std::size_t{0}]() mutable {
      ++before;
      server.until<pingpong::waiting::events>([&] { return server.done.received >= before; });
    });
  });
  while (!ready) std::this_thread::yield();
  client.connect(e.client, e.server, port);
  w.send([&, sent = std::size_t{0}]() mutable {
    client.send(8);
    ++sent;
    if (sent % 16 == 0) client.until<pingpong::waiting::polling>([&] { return client.done.sent == sent; });
  });
  waiter.join();
  return w.median_us();
}

/// A connection whose server completes on an evd with the streams `S`.
template <dat::streams S>
struct link {
  using conn = dat::evd<dat::stream::connection | dat::stream::connection_requests>;
  static dat::ia_address at(const std::string& text) { return must(dat::ia_address::parse(text)); }

  link(const ends& e, dat::progress how)
      : far(must(dat::ia::open(at(e.server), {.progress = how}))),
        near(must(dat::ia::open(at(e.client)))),
        far_pz(must(far.create_pz())),
        near_pz(must(near.create_pz())),
        evd(must(far.create_evd<S>(64))),
        far_connections(must(far.create_evd<dat::stream::connection | dat::stream::connection_requests>(8))),
        near_connections(must(near.create_evd<dat::stream::connection | dat::stream::connection_requests>(8))),
        near_dtos(must(near.create_evd<dat::stream::dto>(64))),
        cno(must(far.create_cno())),
        in(must(far_pz.register_memory(memory, dat::local_write))),
        out(must(near_pz.register_memory(message, dat::local_read))),
        server(must(far_pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = far_connections}))),
        client(
            must(near_pz.create_ep<dat::rc>({.recv = near_dtos, .request = near_dtos, .connect = near_connections}))) {
    const auto port = must(dat::conn_qual::make(next_port()));
    auto psp = must(far.create_psp(port, far_connections));
    must(client.connect(far.address(), port, 5s));
    must(must(far_connections.template wait_for<dat::connection_request>(5s)).accept(server));
    (void)must(near_connections.template wait_for<dat::established>(5s));
    (void)must(far_connections.template wait_for<dat::established>(5s));
  }
  void receive() { must(server.post(dat::recv{in})); }

  /// Measures a way of waiting; `one` returns when the next receive has completed, and posts another one.
  template <class One>
  double measure(std::size_t n, One one) {
    wakes w(n);
    std::thread waiter([&] { w.wait(one); });
    w.send([&] {
      must(client.post(dat::send{out}));
      near_dtos.drain([](const auto&) {});
    });
    waiter.join();
    return w.median_us();
  }

  std::array<char, 8> memory{};
  const std::array<char, 8> message{};
  dat::ia far;
  dat::ia near;
  dat::pz far_pz;
  dat::pz near_pz;
  dat::evd<S> evd;
  conn far_connections;
  conn near_connections;
  dat::evd<dat::stream::dto> near_dtos;
  dat::cno cno;
  dat::lmr<char, dat::mem_priv::local_write> in;
  dat::lmr<const char, dat::mem_priv::local_read> out;
  dat::ep<dat::rc> server;
  dat::ep<dat::rc> client;
};

template <dat::streams S>
double evd_wait(const ends& e, std::size_t n) {
  link<S> l(e, dat::progress::automatic);
  l.receive();
  return l.measure(n, [&] {
    (void)must(l.evd.wait());
    l.receive();
  });
}
double evd_drain(const ends& e, std::size_t n) {
  link<dat::stream::dto> l(e, dat::progress::automatic);
  l.receive();
  return l.measure(n, [&] { (void)must(l.evd.wait_and_drain([&](const auto&) { l.receive(); }, dat::infinite)); });
}
template <dat::progress How>
double cno_wait(const ends& e, std::size_t n) {
  link<dat::stream::dto> l(e, How);
  must(l.evd.modify_cno(l.cno));
  l.receive();
  return l.measure(n, [&] {
    while (l.evd.drain([&](const auto&) { l.receive(); }) == 0) (void)must(l.cno.wait());
  });
}
double cno_epoll(const ends& e, std::size_t n) {
  link<dat::stream::dto> l(e, dat::progress::automatic);
  must(l.evd.modify_cno(l.cno));
  const dat::detail::unique_fd set(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(set.get(), EPOLL_CTL_ADD, l.cno.fd(), &event) != 0) give_up("epoll_ctl", "failed");
  l.receive();
  return l.measure(n, [&] {
    while (l.evd.drain([&](const auto&) { l.receive(); }) == 0) {
      if (::epoll_wait(set.get(), &event, 1, -1) != 1) give_up("epoll_wait", "failed");
      std::uint64_t trigger;
      if (::read(l.cno.fd(), &trigger, sizeof trigger) < 0 && errno != EAGAIN) give_up("read", "failed");
    }
  });
}

struct forever {
  struct promise_type {
    forever get_return_object() { return forever(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() { std::terminate(); }
  };
  explicit forever(std::coroutine_handle<promise_type> h) noexcept : coroutine(h) {}
  forever(forever&& o) noexcept : coroutine(std::exchange(o.coroutine, {})) {}
  ~forever() {
    if (coroutine) coroutine.destroy();
  }
  std::coroutine_handle<promise_type> coroutine;
};
forever count(dat::coro::driver<dat::stream::dto>& driver, link<dat::stream::dto>& l, std::size_t& received) {
  for (;; ++received) {
    const auto got = co_await driver.post(l.server, dat::recv{l.in});
    if (!got) co_return;
  }
}
double coroutine(const ends& e, std::size_t n) {
  link<dat::stream::dto> l(e, dat::progress::automatic);
  dat::coro::driver driver(l.evd);
  std::size_t received = 0;
  const forever counting = count(driver, l, received);
  return l.measure(n, [&, before = std::size_t{0}]() mutable {
    ++before;
    must(driver.run_until([&] { return received >= before; }, [](const auto&) {}));
  });
}

struct way {
  const char* name;
  double (*measure)(const ends&, std::size_t);
};
constexpr std::array<way, 7> ways = {{{"evd.wait", &evd_wait<dat::stream::dto>},
                                      {"evd.drain with a limit", &evd_drain},
                                      {"evd.wait, merged", &evd_wait<dat::stream::dto | dat::stream::software>},
                                      {"coroutine", &coroutine},
                                      {"cno.wait, manual", &cno_wait<dat::progress::manual>},
                                      {"cno.wait, automatic", &cno_wait<dat::progress::automatic>},
                                      {"epoll on cno.fd, automatic", &cno_epoll}}};

} // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("usage: wakeup ROUNDS WAKES SERVER CLIENT\n"
               "Prints way|microseconds|of verbs by hand just before|and just after: the medians of each turn\n",
               stderr);
    return 2;
  }
  const ends e{argv[3], argv[4]};
  const auto n = static_cast<std::size_t>(std::stoul(argv[2]));
  for (unsigned long round = std::stoul(argv[1]); round != 0; --round) {
    double before = raw(e, n);
    for (const way& w : ways) {
      const double here = w.measure(e, n);
      const double after = raw(e, n);
      std::printf("%s|%.3f|%.3f|%.3f\n", w.name, here, before, after);
      std::fflush(stdout);
      before = after;
    }
  }
  return 0;
}
