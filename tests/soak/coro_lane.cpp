// Connections by coroutines: every operation that is awaited resumes exactly once.
// SPDX-License-Identifier: BSL-1.0
#include "lanes.hpp"
#include "session.hpp"

#include <dat/coro.hpp>

#include <unistd.h>

#include <array>
#include <coroutine>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

namespace soak {

namespace {

using namespace std::chrono_literals;

constexpr auto streams = dat::stream::dto | dat::stream::connection | dat::stream::connection_requests;
using driver = dat::coro::driver<streams>;
constexpr std::size_t receives = 4;

/// A coroutine that starts at once and is destroyed with its owner.
struct task {
  struct promise_type {
    task get_return_object() { return task(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() { std::terminate(); }
  };
  explicit task(std::coroutine_handle<promise_type> h) noexcept : coroutine(h) {}
  task(task&& o) noexcept : coroutine(std::exchange(o.coroutine, {})) {}
  task& operator=(task&& o) noexcept {
    std::swap(coroutine, o.coroutine);
    return *this;
  }
  ~task() {
    if (coroutine) coroutine.destroy();
  }
  [[nodiscard]] bool done() const { return !coroutine || coroutine.done(); }
  std::coroutine_handle<promise_type> coroutine;
};

class coro_lane {
public:
  coro_lane(process& owner, dat::ia& ia, lane& where)
      : owner_(owner), ia_(ia), lane_(where), random_(owner.generator(where)) {}

  void run() {
    if (auto ok = open(); !ok) return owner_.violation(lane_, 0, ok.error().message());
    driver events(evd_);
    task current = lane_.client ? ask(events) : serve(events);
    const auto visit = [&](const auto& event) {
      if constexpr (requires { event.cookie(); })
        owner_.violation(lane_, life_, "a completion that no coroutine awaits");
    };
    for (auto left = clock::time_point::max(); !owner_.leaving() || !current.done();) {
      const bool rest = owner_.now() == phase::rest;
      lane_.idle = rest && life_ == 0;
      if (lane_.client && current.done()) {
        if (owner_.leaving()) break;
        if (rest) {
          owner_.pause(1s);
          continue;
        }
        current = ask(events);
      }
      if (owner_.leaving()) {
        stop_.request_stop();
        all_.request_stop();
        if (left == clock::time_point::max()) left = clock::now() + patience;
        if (clock::now() > left) break;
      }
      (void)events.run_once(visit, lane_.idle ? 1s : 200ms); // a time limit or a signal, which is no fault
      watch();
    }
    lane_.idle = true;
  }

private:
  dat::expected<void> open() {
    auto zone = ia_.create_pz();
    if (!zone) return zone.error();
    pz_ = std::move(zone.value());
    auto evd = ia_.create_evd<streams>(64);
    if (!evd) return evd.error();
    evd_ = std::move(evd.value());
    auto region = pz_.register_memory(memory_, dat::local_read | dat::local_write);
    if (!region) return region.error();
    region_ = std::move(region.value());
    const auto port = dat::conn_qual::make(owner_.port(lane_)).value();
    for (const auto until = clock::now() + patience; !lane_.client;) {
      auto made = ia_.create_psp(port, evd_);
      if (made) {
        psp_ = std::move(made.value());
        break;
      }
      if (clock::now() > until || owner_.leaving()) return made.error();
      owner_.pause(100ms);
    }
    return dat::success();
  }

  /// Stops a stalled life, like a program would do. The stop source of the life ends an attempt to connect, and the end
  /// of its connection ends the posted operations.
  void watch() {
    if (life_ == 0) return;
    const auto silence = clock::now() - moved_;
    const auto most = lane_.client ? 25s : 50s;
    if (silence > most && !stop_.stop_requested()) {
      owner_.note(lane_, "no progress; the connection is cut");
      stop_.request_stop();
      if (ep_) (void)ep_->disconnect(dat::close_mode::abrupt); // refused if the stop has ended the attempt
    }
    if (silence < most + patience) return;
    owner_.violation(lane_, life_, "a coroutine was not resumed");
    moved_ = clock::now();
  }

  [[nodiscard]] auto part(std::size_t buffer, std::size_t bytes) const {
    return region_.slice(buffer * largest_message, bytes).value();
  }
  [[nodiscard]] std::span<std::byte> room(std::size_t buffer) {
    return std::span(memory_).subspan(buffer * largest_message, largest_message);
  }
  void fault(const std::string& what) { owner_.violation(lane_, life_, what); }
  static std::size_t at(operation kind) { return static_cast<std::size_t>(kind); }

  void begin(life& place) {
    life_ = place.id;
    mine_ = &place.sides[lane_.client ? 0 : 1];
    mine_->pid = static_cast<std::uint64_t>(getpid());
    mine_->state = static_cast<std::uint64_t>(outcome::open);
    moved_ = clock::now();
    stop_ = std::stop_source();
    in_ = out_ = taken_ = 0;
  }
  void end(outcome how) {
    mine_->state = static_cast<std::uint64_t>(how);
    life_ = 0;
    ep_ = nullptr;
  }

  using receiving = dat::coro::posted<dat::coro::receive_result>;
  void post_receive(driver& events, receiving& with, const dat::ep<dat::rc>& ep, std::size_t i) {
    posted_[i] = static_cast<bool>(events.post(with, ep, dat::recv{part(i, largest_message)}));
    if (posted_[i]) ++mine_->accepted[at(operation::receive)];
  }
  /// The index of the receive that completes next.
  [[nodiscard]] std::size_t next() const noexcept { return taken_ % receives; }
  /// Takes the result of a receive. False when it failed.
  bool received(const dat::expected<dat::coro::receive_result>& got) {
    const auto i = next();
    ++taken_;
    posted_[i] = false;
    if (!got && got.error().type() == dat::return_type::abort) { // the endpoint was closed
      ++mine_->dropped[at(operation::receive)];
      return false;
    }
    ++(got ? mine_->done : mine_->failed)[at(operation::receive)];
    if (!got) return false;
    moved_ = clock::now();
    mine_->bytes += got.value().bytes();
    message_header header;
    if (const char* why = read_message(room(i), got.value().bytes(), life_, header))
      return fault(std::string("a message ") + why), false;
    if (header.number != in_)
      return fault("message " + std::to_string(header.number) + " in place of " + std::to_string(in_)), false;
    ++in_;
    ++mine_->arrived;
    return true;
  }
  [[nodiscard]] std::size_t write(message_kind kind) {
    return write_message(room(receives), {life_, out_, kind, 0, 0, 0, 0}, below(random_, largest_payload), random_);
  }

  /// Sends one message and awaits its completion.
  struct sending {
    dat::coro::posted<dat::transfer> operation{};
    bool accepted = false;
  };
  void start_send(driver& events, sending& s, const dat::ep<dat::rc>& ep, message_kind kind) {
    ++mine_->numbered; // counted before the post, because the peer may have the message at once
    s.accepted = static_cast<bool>(events.post(s.operation, ep, dat::send{part(receives, write(kind))}));
    if (s.accepted)
      ++out_, ++mine_->accepted[at(operation::send)];
    else
      --mine_->numbered;
  }
  bool sent(const sending& s, const dat::expected<dat::transfer>& done) {
    if (!s.accepted) return false;
    ++(done ? mine_->done : mine_->failed)[at(operation::send)];
    if (!done) return false;
    ++mine_->acknowledged;
    mine_->bytes += done.value().bytes();
    moved_ = clock::now();
    return true;
  }

  task serve(driver& events) {
    while (!owner_.leaving()) {
      auto request = co_await events.next<dat::connection_request>(all_.get_token());
      if (!request) co_return;
      plan wanted;
      std::memcpy(&wanted, request.value().private_data().data(), sizeof wanted);
      auto* const place = owner_.counts().find(wanted.life);
      if (!place) continue; // its client was killed
      auto made = pz_.create_ep<dat::rc>(evd_);
      if (!made) continue;
      auto ep = std::move(made.value());
      begin(*place);
      ep_ = &ep;
      std::array<receiving, receives> all;
      for (std::size_t i = 0; i < receives; ++i) post_receive(events, all[i], ep, i);
      sending out;
      auto up = co_await events.accept(request.value(), ep, {}, stop_.get_token());
      for (bool good = static_cast<bool>(up); good;) {
        const auto i = next();
        auto& message = all[i];
        const auto got = co_await message;
        if (!received(got)) break;
        post_receive(events, message, ep, i);
        start_send(events, out, ep, message_kind::answer);
        auto& answer = out.operation;
        const auto done = co_await answer;
        good = sent(out, done);
      }
      // Then every receive that is outstanding must resume its coroutine.
      (void)co_await events.disconnect(ep,
                                       below(random_, 2) == 0 ? dat::close_mode::graceful : dat::close_mode::abrupt);
      if (ep.state() == dat::ep_state::unconnected) (void)events.close(ep); // the attempt failed: they stay posted
      while (posted_[next()]) {
        auto& rest = all[next()];
        (void)received(co_await rest);
      }
      end(outcome::drained);
    }
  }

  task ask(driver& events) {
    auto* const place = owner_.counts().begin(lane_.service);
    if (!place) co_return;
    begin(*place);
    plan wanted;
    wanted.life = life_;
    const auto total = 10 + below(random_, 60);
    const bool early = below(random_, 3) == 0;
    const auto cut = early ? below(random_, total) : total;
    auto made = pz_.create_ep<dat::rc>(evd_);
    if (!made) {
      end(outcome::left);
      co_return owner_.pause(50ms);
    }
    auto ep = std::move(made.value());
    ep_ = &ep;
    std::array<receiving, receives> all;
    for (std::size_t i = 0; i < receives; ++i) post_receive(events, all[i], ep, i);
    sending out;
    const auto port = dat::conn_qual::make(owner_.port(lane_)).value();
    auto up =
        co_await events.connect(ep, owner_.peer(), port, 10s, std::as_bytes(std::span(&wanted, 1)), stop_.get_token());
    std::uint64_t n = 0;
    for (; up && n < cut; ++n) {
      start_send(events, out, ep, message_kind::request);
      auto& question = out.operation;
      const auto done = co_await question;
      if (!sent(out, done)) break;
      const auto i = next();
      auto& answer = all[i];
      const auto got = co_await answer;
      if (!received(got)) break;
      post_receive(events, answer, ep, i);
    }
    if (n == total && !early)
      ++lane_.lives;
    else
      ++lane_.ends;
    const bool wait = !up;
    // Then every receive that is outstanding must resume its coroutine.
    (void)co_await events.disconnect(ep, below(random_, 2) == 0 ? dat::close_mode::graceful : dat::close_mode::abrupt);
    if (ep.state() == dat::ep_state::unconnected) (void)events.close(ep); // the attempt failed: they stay posted
    while (posted_[next()]) {
      auto& rest = all[next()];
      (void)received(co_await rest);
    }
    end(outcome::drained);
    if (wait) owner_.pause(50ms);
  }

  process& owner_;
  dat::ia& ia_;
  lane& lane_;
  random random_;
  dat::pz pz_{};
  dat::evd<streams> evd_{};
  dat::psp psp_{};
  std::vector<std::byte> memory_ = std::vector<std::byte>((receives + 1) * largest_message);
  dat::lmr<std::byte, (dat::local_read | dat::local_write).value> region_{};
  std::stop_source all_{};  ///< stops the lane
  std::stop_source stop_{}; ///< stops the life
  std::uint64_t life_ = 0;
  dat::ep<dat::rc>* ep_ = nullptr; ///< the endpoint of the life
  side* mine_ = nullptr;
  std::uint64_t in_ = 0;
  std::uint64_t out_ = 0;
  std::size_t taken_ = 0; ///< the number of receives that have completed
  bool posted_[receives]{};
  clock::time_point moved_{};
};

} // namespace

void coroutines(process& owner, dat::ia& ia, lane& where) { coro_lane(owner, ia, where).run(); }

} // namespace soak
