// The connection by which client and server agree on tests.
// SPDX-License-Identifier: BSL-1.0
#include "control.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace perf {

namespace {
constexpr std::string_view mark = "dat-perf"; // 8 bytes
}

greeting::wire greeting::to_wire() const {
  wire w{};
  std::memcpy(w.data(), mark.data(), mark.size());
  w[8] = static_cast<std::byte>(what);
  for (std::size_t i = 0; i < 8; ++i) w[12 + i] = static_cast<std::byte>(token >> (56 - 8 * i));
  for (std::size_t i = 0; i < 4; ++i) w[20 + i] = static_cast<std::byte>(index >> (24 - 8 * i));
  return w;
}

std::optional<greeting> greeting::from_wire(std::span<const std::byte> data) {
  if (data.size() < wire_size || std::memcmp(data.data(), mark.data(), mark.size()) != 0) return std::nullopt;
  greeting g;
  g.what = static_cast<kind>(data[8]);
  for (std::size_t i = 0; i < 8; ++i) g.token = g.token << 8 | static_cast<std::uint64_t>(data[12 + i]);
  for (std::size_t i = 0; i < 4; ++i) g.index = g.index << 8 | static_cast<std::uint32_t>(data[20 + i]);
  return g;
}

dat::ia_address address_of(const dat::ia& from, const std::string& host) {
  const auto addresses = dat::resolve(host).value();
  for (const auto& a : addresses)
    if (a.family() == from.address().family()) return a;
  return addresses.front();
}

dat::timeout as_timeout(double seconds) {
  return std::chrono::duration_cast<dat::timeout>(std::chrono::duration<double>(seconds));
}

control::control(dat::ia& ia, dat::pz& pz, double limit)
    : limit_(as_timeout(limit)),
      memory_((slots + 1) * max_message),
      evd_(ia.create_evd<streams>(16).value()),
      region_(pz.register_memory(memory_, dat::local_read | dat::local_write).value()) {
  dat::ep_attributes attributes{.max_request_dtos = 4, .max_recv_dtos = slots};
  // At least ten seconds, because a test may keep both processors busy, and its links may be bad.
  (void)attributes.detect_dead_peer_within(std::max<std::chrono::microseconds>(limit_, std::chrono::seconds(10)));
  ep_ = pz.create_ep<dat::rc>(evd_, attributes).value();
  for (std::uint64_t i = 0; i < slots; ++i) post_receive(i);
}

control::~control() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  (void)evd_.wake(); // fails for an empty evd only
  thread_.join();
}

void control::connect(const dat::ia_address& server, std::uint16_t port) {
  ep_.connect(server, dat::conn_qual::make(port).value(), limit_, greeting().to_wire()).value();
  const auto answer =
      evd_.wait_for_any<dat::established, dat::peer_rejected>(ep_, limit_ + std::chrono::seconds(1)).value();
  const auto data = std::visit([](const auto& e) { return e.private_data(); }, answer);
  const auto theirs = greeting::from_wire(data);
  if (!theirs) throw std::runtime_error(fmt::format("the server at port {} is no dat-perf", port));
  if (theirs->what == greeting::kind::busy)
    throw std::runtime_error("the server is busy with another client: repeat the test when that has ended");
  if (std::holds_alternative<dat::peer_rejected>(answer)) throw std::runtime_error("the server refuses the connection");
  begin();
}

void control::accept(dat::cr request) {
  request.accept(ep_, greeting().to_wire()).value();
  evd_.wait_for<dat::established>(ep_, limit_).value();
  begin();
}

void control::begin() {
  thread_ = std::thread([this] { take_events(); });
}

void control::post_receive(std::uint64_t slot) {
  const auto part = region_.slice(slot * max_message, max_message).value();
  ep_.post(dat::recv{part}.cookie(slot)).value();
}

void control::take_events() {
  const dat::overloaded visit{
      [&](const dat::recv_done& r) {
        const auto slot = r.cookie().value();
        add(std::string(memory_.data() + slot * max_message, r.bytes()));
        post_receive(slot);
      },
      [&](const dat::send_done&) {
        const std::lock_guard lock(mutex_);
        sending_ = false;
        changed_.notify_all();
      },
      [&](const dat::disconnected&) { end("the peer has ended the connection"); },
      [&](const dat::connection_broken& e) { end(e.message()); },
      [](const auto&) {},
  };
  for (;;) {
    auto event = evd_.wait();
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return;
    }
    if (!event) {
      if (event.error().type() == dat::return_type::interrupted_call) continue;
      return end(event.error().message());
    }
    try {
      std::visit(visit, event.assume_value());
    } catch (const std::exception& e) {
      end(e.what());
    }
  }
}

void control::add(std::string text) {
  const std::lock_guard lock(mutex_);
  messages_.push_back(std::move(text));
  notify();
}

void control::end(std::string why) {
  const std::lock_guard lock(mutex_);
  if (ended_.empty()) ended_ = std::move(why);
  up_ = sending_ = false;
  notify();
}

void control::notify() {
  arrived_.store(!messages_.empty() || !ended_.empty(), std::memory_order_release);
  changed_.notify_all();
  if (wake_ && arrived_) wake_();
}

void control::on_arrival(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
  if (wake_ && arrived_) wake_();
}

void control::check() {
  if (!arrived()) return;
  const std::lock_guard lock(mutex_);
  if (ended_.empty()) return;
  throw_report();
  throw std::runtime_error(ended_);
}

void control::explain() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::min<dat::timeout>(limit_, std::chrono::seconds(2)),
                    [&] { return !ended_.empty() || throw_report(); });
  throw_report(); // both the report and the end of the connection may have come already
}

bool control::throw_report() {
  for (const std::string& text : messages_)
    if (const message m = from_text(text); const auto* const problem = std::get_if<failure>(&m))
      throw std::runtime_error("the peer reports: " + problem->problem);
  return false;
}

void control::abandon(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (ended_.empty()) ended_ = why;
  notify();
}

void control::send(const message& m) {
  const std::string text = to_text(m);
  if (text.size() > max_message) throw std::runtime_error("a message of the test is too long: use fewer endpoints");
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, limit_, [&] { return !sending_; }))
    throw std::runtime_error("the peer does not take messages: it hangs, or the link is down");
  if (!up_) throw std::runtime_error(ended_);
  std::memcpy(memory_.data() + slots * max_message, text.data(), text.size());
  const auto part = region_.slice(slots * max_message, text.size()).value();
  ep_.post(dat::send{part}).value();
  sending_ = true;
}

void control::try_send(const failure& m) noexcept {
  try {
    send(m);
  } catch (const std::exception&) { // the peer has gone: its own error names the reason
  }
}

message control::receive() { return receive_within(true); }

message control::receive_within(bool limited) {
  std::unique_lock lock(mutex_);
  const auto there = [&] { return !messages_.empty() || !ended_.empty(); };
  if (!limited)
    changed_.wait(lock, there);
  else if (!changed_.wait_for(lock, limit_, there))
    throw std::runtime_error(fmt::format("the peer has not answered for {} ms: it hangs, or the link is down; --limit "
                                         "gives it more time",
                                         std::chrono::duration_cast<std::chrono::milliseconds>(limit_).count()));
  if (messages_.empty()) throw std::runtime_error(ended_);
  const std::string text = std::move(messages_.front());
  messages_.pop_front();
  arrived_.store(there(), std::memory_order_release);
  lock.unlock();
  message m = from_text(text);
  if (const auto* const problem = std::get_if<failure>(&m))
    throw std::runtime_error("the peer reports: " + problem->problem);
  return m;
}

void control::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit_, [&] { return !sending_; });
  if (!up_) return; // the peer was first
  ep_.disconnect(dat::close_mode::graceful).value();
  changed_.wait_for(lock, limit_, [&] { return !up_; });
}

} // namespace perf
