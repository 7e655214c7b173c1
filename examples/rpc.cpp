// 100 remote procedure calls at once over 4 connections, with time limits and cancellation. The server ends gracefully.
// SPDX-License-Identifier: BSL-1.0
#include <array>
#include <dat/coro.hpp>
#include <dat/dat.hpp>
#include <dat/task.hpp>
#include <dat/try.hpp>
#include <deque>
#include <iostream>
#include <map>
#include <stop_token>
#include <thread>
using namespace std::chrono_literals;
constexpr auto streams = dat::stream::dto | dat::stream::connection | dat::stream::connection_requests;
constexpr auto rights = dat::local_read | dat::local_write;
constexpr std::size_t connections = 4, depth = 32; // of these, messages under way in each direction
using driver = dat::coro::driver<streams>;
using outcome = dat::expected<std::uint32_t>;
using nothing = dat::expected<void>;
enum class work : std::uint32_t { quick, slow, endless };
struct message {
  std::uint32_t id, value;
  work kind;
};

// One end of a connection. Its memory outlives every call, because an abandoned call may leave a posted operation.
struct connection {
  std::array<message, 2 * depth> messages{}; // messages that arrive, then messages to send
  dat::lmr<message, rights.value> memory;
  dat::ep<dat::rc> ep;
  std::map<std::uint32_t, dat::coro::slot<std::uint32_t>*> calls; // the client's, by id
  std::array<dat::coro::posted<dat::coro::receive_result>, depth> ahead;

  nothing open(dat::pz& pz, dat::evd<streams>& evd, driver& events) {
    DAT_TRY(memory, pz.register_memory(messages, rights));
    DAT_TRY(ep, pz.create_ep<dat::rc>(evd));
    for (std::size_t i = 0; i < depth; ++i) DAT_TRYV(listen(events, i));
    return dat::success();
  }
  nothing listen(driver& events, std::size_t i) {
    DAT_TRY(const auto room, memory.slice(i, 1));
    return events.post(ahead[i], ep, dat::recv{room});
  }
};
dat::task<dat::expected<dat::transfer>> send(driver& events, connection& c, message m) {
  const std::size_t place = depth + m.id / connections % depth;
  c.messages[place] = m;
  DAT_CO_TRY(const auto data, c.memory.slice(place, 1));
  co_return co_await events.post(c.ep, dat::send{data});
}

// Passes every message to `handle`, until the connection ends.
template <class Handle>
dat::task<> receive(driver& events, connection& c, Handle handle) {
  for (std::size_t i = 0;; i = (i + 1) % depth) {
    auto& next = c.ahead[i];
    if (const auto got = co_await next; !got) co_return;
    handle(c.messages[i]);
    if (!c.listen(events, i)) co_return;
  }
}

dat::task<> answer(driver& events, connection& c, message m) {
  // A stop of the driver ends the sleep, and the answer is sent at once.
  if (m.kind != work::quick) (void)co_await events.sleep_for(m.kind == work::slow ? dat::timeout(1s) : dat::infinite);
  m.value *= 2;
  (void)co_await send(events, c, m); // the client may have gone
}
dat::task<> accept(driver& events, dat::pz& pz, dat::evd<streams>& evd, dat::task_group& group,
                   std::deque<connection>& all) {
  for (;;) { // until the driver is stopped
    auto request = co_await events.next<dat::connection_request>();
    if (!request) co_return;
    connection& c = all.emplace_back();
    if (!c.open(pz, evd, events)) continue; // the request is refused
    if (const auto up = co_await events.accept(request.value(), c.ep); up)
      group.spawn(receive(events, c, [&](const message& m) { group.spawn(answer(events, c, m)); }));
  }
}

dat::task<outcome> call(driver& events, connection& c, message m, dat::timeout limit, std::stop_token stop = {}) {
  auto answer = events.make_slot<std::uint32_t>();
  c.calls[m.id] = &answer;
  DAT_CO_TRYV(co_await send(events, c, m));
  auto value = co_await events.within(limit, answer, std::move(stop));
  c.calls.erase(m.id); // a late answer finds no call
  co_return value;
}
dat::task<nothing> client(driver& events, dat::ia_address server, dat::task_group& group, std::deque<connection>& all,
                          std::stop_token stop) {
  for (connection& c : all) {
    DAT_CO_TRYV(co_await events.connect(c.ep, server, 7472, 5s));
    group.spawn(receive(events, c, [&c](const message& m) {
      if (const auto found = c.calls.find(m.id); found != c.calls.end()) found->second->set(m.value);
    }));
  }
  std::deque<dat::task<outcome>> calls;
  for (std::uint32_t i = 0; i < 100; ++i) {
    const message m{i, i, static_cast<work>(i % 3)};
    const dat::timeout limit = m.kind == work::quick ? 10s : m.kind == work::slow ? 300ms : dat::infinite;
    calls.push_back(call(events, all[i % connections], m, limit, m.kind == work::endless ? stop : std::stop_token()));
  }
  co_await dat::when_all(calls);
  std::map<std::string_view, int> counts;
  std::uint32_t sum = 0;
  for (auto& one : calls) {
    sum += one.result() ? one.result().value() : 0;
    ++counts[one.result() ? "answered" : to_string(one.result().error().type())];
  }
  for (const auto& [what, n] : counts) std::cout << what << ": " << n << '\n';
  for (std::uint32_t i = 0; i < connections; ++i) // the connections are as before
    DAT_CO_TRYV(co_await call(events, all[i], {100 + i, 1, work::quick}, 10s));
  for (connection& c : all) DAT_CO_TRYV(co_await events.disconnect(c.ep, dat::close_mode::graceful));
  if (sum != 2 * 33 * 51 || counts["timeout_expired"] != 33 || counts["interrupted_call"] != 33)
    co_return dat::error(dat::return_type::internal_error);
  co_return dat::success();
}

nothing run() {
  DAT_TRY(auto ia, dat::ia::open());
  DAT_TRY(auto pz, ia.create_pz());
  DAT_TRY(auto server_evd, ia.create_evd<streams>(256));
  DAT_TRY(auto client_evd, ia.create_evd<streams>(256));
  DAT_TRY(auto psp, ia.create_psp(7472, server_evd));
  const auto ignore = [](const auto&) {};
  driver serving(server_evd);
  const std::jthread server([&](const std::stop_token& stop) {
    const std::stop_callback graceful(stop, [&] { serving.stop(); });
    std::deque<connection> all;
    dat::task_group group;
    group.spawn(accept(serving, pz, server_evd, group, all));
    (void)serving.run_until([&] { return group.empty(); }, ignore);
  });
  std::deque<connection> all(connections);
  dat::task_group group; // declared after `all`, so that its tasks end before the receives that they await
  driver asking(client_evd);
  for (connection& c : all) DAT_TRYV(c.open(pz, client_evd, asking));
  std::stop_source cancel;
  auto result = client(asking, ia.address(), group, all, cancel.get_token());
  const std::jthread canceller([&] { std::this_thread::sleep_for(100ms), cancel.request_stop(); });
  result.start();
  DAT_TRYV(asking.run_until([&] { return result.done() && (group.empty() || !result.result()); }, ignore, 30s));
  return result.result();
}

int main() {
  const auto done = run();
  std::cout << (done ? "The connections are as before." : done.error().message()) << '\n';
  return done ? 0 : 1;
}
