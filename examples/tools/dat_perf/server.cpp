// The server: serves one client after the other.
// SPDX-License-Identifier: BSL-1.0
#include "progress.hpp"
#include "session.hpp"

#include <fmt/format.h>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <random>
#include <stdexcept>

namespace perf {

namespace {

/// Calls `stop`, in a thread of its own, after SIGINT and SIGTERM and, if asked to, at the end of the standard input.
class stopper {
public:
  stopper(bool with_input, std::function<void()> stop) : stop_(std::move(stop)) {
    sigset_t ends{};
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, nullptr); // threads that are created later inherit the mask
    signals_ = signalfd(-1, &ends, SFD_CLOEXEC);
    over_ = eventfd(0, EFD_CLOEXEC);
    if (signals_ < 0 || over_ < 0) throw std::runtime_error("no descriptor for signals: too many files are open");
    thread_ = std::thread([this, with_input] { watch(with_input ? STDIN_FILENO : -1); });
  }
  stopper(const stopper&) = delete;
  stopper& operator=(const stopper&) = delete;
  ~stopper() {
    (void)eventfd_write(over_, 1); // cannot fail: the counter is 0
    thread_.join();
    close(signals_);
    close(over_);
  }

private:
  void watch(int input) {
    for (;;) {
      std::array<pollfd, 3> set{{{over_, POLLIN, 0}, {signals_, POLLIN, 0}, {input, POLLIN, 0}}};
      if (poll(set.data(), set.size(), -1) < 0) continue; // a signal
      if (set[0].revents != 0) return;
      std::array<char, 256> ignored{};
      const bool input_ends = set[2].revents != 0 && ::read(input, ignored.data(), ignored.size()) <= 0;
      if (set[1].revents == 0 && !input_ends) continue;
      return stop_();
    }
  }
  std::function<void()> stop_;
  int signals_ = -1, over_ = -1;
  std::thread thread_;
};

class server {
public:
  explicit server(const options& o) : o_(o), stopper_(o.end_with_input, [this] { stop(); }), ia_(open(o)) {
    pz_ = ia_.create_pz().value();
    requests_ = ia_.create_evd<dat::stream::connection_requests>(2048).value();
    psp_ = ia_.create_psp(dat::conn_qual::make(o.port).value(), requests_).value();
    fmt::print("dat-perf: serving on {} at {}, port {}\n", ia_.name(), ia_.address().host_string(), psp_.port());
    std::fflush(stdout);
    listener_ = std::thread([this] { listen(); });
  }
  server(const server&) = delete;
  server& operator=(const server&) = delete;
  ~server() {
    stop();
    listener_.join();
  }

  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || next_; });
      if (stop_) return;
      dat::cr request = std::move(*next_);
      lock.unlock();
      serve(std::move(request));
      lock.lock();
      next_.reset(); // from now on another client may come
      if (o_.once) return;
    }
  }

private:
  static dat::ia open(const options& o) {
    return o.address.empty() ? dat::ia::open().value()
                             : dat::ia::open(dat::ia_address::parse(o.address).value()).value();
  }

  void stop() {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
    if (peer_ != nullptr) peer_->abandon("the server was stopped");
    if (requests_.capacity() != 0) requests_.wake().value();
  }

  void listen() {
    for (;;) {
      auto event = requests_.wait();
      const std::lock_guard lock(mutex_);
      if (stop_) return;
      if (!event) continue; // interrupted
      try {
        std::visit(dat::overloaded{[&](dat::connection_request& r) { answer(r); }, [](const auto&) {}},
                   event.assume_value());
      } catch (const std::exception& e) { // the test of this client fails and reports the error
        if (peer_ != nullptr) peer_->abandon(e.what());
      }
    }
  }

  /// Under the lock.
  void answer(dat::connection_request& request) {
    const auto theirs = greeting::from_wire(request.private_data());
    if (theirs && theirs->what == greeting::kind::endpoint && theirs->token == token_ && accept_)
      return accept_(request, theirs->index);
    if (theirs && theirs->what == greeting::kind::control && !next_) {
      next_ = std::move(request);
      return changed_.notify_all();
    }
    request.reject(greeting{greeting::kind::busy}.to_wire()).value();
  }

  void serve(dat::cr request) {
    const std::string from = request.remote_address().host_string();
    std::optional<control> peer;
    try {
      peer.emplace(ia_, pz_, o_.limit);
      peer->accept(std::move(request));
      {
        const std::lock_guard lock(mutex_);
        if (stop_) return;
        peer_ = &*peer;
      }
      test(*peer);
      forget();
      peer->finish();
    } catch (const std::exception& e) {
      fmt::print(stderr, "dat-perf: client {}: {}\n", from, e.what());
      std::fflush(stderr);
      forget();
      try {
        if (peer) peer->finish();
      } catch (const std::exception&) { // the client has gone
      }
    }
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    peer_ = nullptr;
    accept_ = {};
  }

  void test(control& peer) {
    const setup theirs = peer.expect<setup>();
    const parameters& run = theirs.run;
    ready mine{host_name(), std::string(ia_.name()), ia_.address().host_string(), 0, 0, {}};
    mine.token = std::uniform_int_distribution<std::uint64_t>()(random_);
    std::unique_ptr<links> on;
    std::unique_ptr<connection_target> target;
    try {
      if (run.test == test::connections) {
        target = std::make_unique<connection_target>(ia_, pz_, run);
        admit(mine.token, [&](dat::cr& r, std::uint32_t) { target->accept(r); });
        peer.send(mine);
        target->serve(peer);
      } else {
        on = std::make_unique<links>(ia_, pz_, run, false);
        move_data(peer, theirs, mine, *on);
      }
      (void)peer.expect<bye>();
      peer.send(bye());
    } catch (const std::exception& e) { // reported before the endpoints end, because the client notices their end
      forget();
      peer.try_send(failure{e.what()});
      throw;
    }
    forget(); // called before the endpoints end
  }
  void move_data(control& peer, const setup& theirs, ready& mine, links& on) {
    const parameters& run = theirs.run;
    on.take(theirs.memory);
    mine.memory = on.offer();
    mine.max_inline = on.max_inline();
    const auto with = make_worker(on, run, false);
    admit(mine.token, [&](dat::cr& r, std::uint32_t index) { on.accept(r, index); });
    peer.send(mine);
    on.wait_established(as_timeout(o_.limit));
    for (const std::uint32_t size : run.sizes) {
      const start begin = peer.expect<start>(false);
      if (begin.size != size) throw std::runtime_error("the client begins another test than it has announced");
      with->begin(size);
      peer.send(begin);
      (void)exchange(peer, on, *with, run, {});
    }
  }
  void admit(std::uint64_t token, std::function<void(dat::cr&, std::uint32_t)> accept) {
    const std::lock_guard lock(mutex_);
    token_ = token;
    accept_ = std::move(accept);
  }

  const options& o_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::optional<dat::connection_request> next_; // a client; also while it is served
  control* peer_ = nullptr;
  std::uint64_t token_ = 0;
  std::function<void(dat::cr&, std::uint32_t)> accept_;
  std::mt19937_64 random_{std::random_device()()};
  stopper stopper_;
  dat::ia ia_;
  dat::pz pz_;
  dat::evd<dat::stream::connection_requests> requests_;
  dat::psp psp_;
  std::thread listener_;
};

} // namespace

int run_server(const options& o) {
  server all(o);
  all.run();
  return 0;
}

} // namespace perf
