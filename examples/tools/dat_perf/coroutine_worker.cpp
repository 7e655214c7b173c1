// Moves data by coroutines: for each endpoint one that sends, and one that receives.
// SPDX-License-Identifier: BSL-1.0
#include "worker.hpp"

#include <dat/coro.hpp>
#include <dat/task.hpp>
#include <dat/try.hpp>

#include <algorithm>
#include <array>
#include <deque>
#include <stdexcept>

namespace perf {

namespace {

using namespace std::chrono_literals;
using task = dat::task<dat::expected<void>>;
using posted_receive = dat::coro::posted<dat::coro::receive_result>;
using posted_request = dat::coro::posted<dat::transfer>;

class coroutine_worker final : public worker {
public:
  coroutine_worker(links& on, const parameters& run, bool client)
      : worker(on, run, client), driver_(on.evd()), ends_(run.endpoints) {
    for (std::uint32_t e = 0; e < run.endpoints; ++e) {
      for (std::uint32_t i = 0; i < on.receive_slots(); ++i) post_receive(e, ends_[e].receives.emplace_back(), i);
      if (on.receive_slots() != 0) tasks_.spawn(receive(e));
    }
  }

  void wake() override { links_.evd().wake().value(); }

  void run(const std::function<bool()>& condition) override {
    while (!condition()) {
      const auto ran = driver_.run_once([](const auto&) {}, 100ms);
      if (!ran && ran.error().type() != dat::return_type::timeout_expired &&
          ran.error().type() != dat::return_type::interrupted_call)
        throw std::runtime_error(ran.error().message());
      if (tasks_.failure()) throw std::runtime_error(tasks_.failure()->message());
      look_at_clock();
    }
  }

private:
  /// One endpoint.
  struct end {
    std::deque<posted_receive> receives;                       // done one after the other
    std::array<posted_request, links::credit_slots> credits{}; // messages with credits
    std::array<bool, links::credit_slots> credit_under_way{};
    dat::coro::slot<bool>* waiting = nullptr; // for credits, or for an answer
  };

  void start_sending() override {
    for (std::uint32_t e = 0; e < flows_.size(); ++e) tasks_.spawn(run_.there_and_back() ? send_messages(e) : send(e));
  }

  void post_receive(std::uint32_t e, posted_receive& into, std::uint32_t slot) {
    const auto memory = links_.receive_part(e, slot);
    driver_.post(into, links_.endpoint(e), dat::recv{memory}).value();
  }
  void post_request(std::uint32_t e, posted_request& into, std::uint32_t slot, std::uint32_t immediate = 0) {
    links_.with_request(e, slot, immediate, [&](const auto& operation) {
      if constexpr (!std::is_same_v<std::remove_cvref_t<decltype(operation)>, dat::ib::send_to<1>>)
        driver_.post(into, links_.endpoint(e), operation).value();
    });
  }

  /// Keeps `depth` operations under way.
  task send(std::uint32_t e) {
    std::deque<posted_request> window(run_.depth);
    std::uint64_t next = 0, oldest = 0;
    while (sends_more(flows_[e]) || oldest != next) {
      flow& f = flows_[e];
      const bool more = sends_more(f) && next - oldest < run_.depth;
      if (more && f.credits.take()) {
        const auto slot = static_cast<std::uint32_t>(next++ % run_.depth);
        count_posted(f, slot);
        post_request(e, window[slot], slot);
      } else if (oldest != next) {
        const auto slot = static_cast<std::uint32_t>(oldest++ % run_.depth);
        DAT_CO_TRYV(co_await window[slot]);
        if (run_.atomic()) links_.check_word(e, slot);
        count_completed(f, slot);
        if (run_.test != test::latency) last_ = clock::now();
      } else {
        auto credit = driver_.make_slot<bool>();
        ends_[e].waiting = &credit;
        const auto given = co_await credit;
        ends_[e].waiting = nullptr;
        if (!given) co_return given.error();
      }
    }
    co_return dat::success();
  }

  /// Messages there and back: the client's side.
  task send_messages(std::uint32_t e) {
    posted_request request;
    while (sends_more(flows_[e])) {
      flow& f = flows_[e];
      auto answer = driver_.make_slot<bool>();
      ends_[e].waiting = &answer;
      count_posted(f, 0);
      post_request(e, request, 0, ++f.sequence);
      const auto came = co_await answer;
      if (!came) co_return came.error();
      count_completed(f, 0);
      DAT_CO_TRYV(co_await request);
    }
    co_return dat::success();
  }

  /// Takes messages, answers and credits, in all runs.
  task receive(std::uint32_t e) {
    end& mine = ends_[e];
    std::array<posted_request, 4> answers{};
    for (std::uint64_t i = 0;; ++i) {
      const auto slot = static_cast<std::uint32_t>(i % mine.receives.size());
      DAT_CO_TRY(const auto got, co_await mine.receives[slot]);
      const auto bytes = static_cast<std::uint32_t>(got.bytes());
      post_receive(e, mine.receives[slot], slot);
      flow& f = flows_[e];
      last_arrival_ = clock::now();
      if (run_.there_and_back()) {
        count_received(f, bytes);
        if (client_) {
          (void)mine.waiting->set(true); // false when the driver has ended
        } else {
          posted_request& answer = answers[i % answers.size()];
          if (i >= answers.size()) DAT_CO_TRYV(co_await answer);
          post_request(e, answer, 0);
        }
      } else if (links_.with_credits() && links_.active() && bytes == 0) {
        ++f.credits_received;
        f.credits.give(credits_of_message());
        if (mine.waiting) (void)mine.waiting->set(true); // false when it has been set already
      } else {
        count_received(f, bytes);
        while (takes_credits_due(f)) {
          const auto place =
              static_cast<std::size_t>(std::find(mine.credit_under_way.begin(), mine.credit_under_way.end(), false) -
                                       mine.credit_under_way.begin());
          mine.credit_under_way[place] = true;
          driver_.post(mine.credits[place], links_.endpoint(e), dat::send()).value();
          tasks_.spawn(await_credit(e, place));
        }
      }
    }
  }
  task await_credit(std::uint32_t e, std::size_t place) {
    DAT_CO_TRYV(co_await ends_[e].credits[place]);
    ends_[e].credit_under_way[place] = false;
    --flows_[e].credits_under_way;
    co_return dat::success();
  }

  dat::coro::driver<lean> driver_;
  std::vector<end> ends_;
  dat::task_group tasks_; // ends first
};

} // namespace

std::unique_ptr<worker> make_coroutine_worker(links& on, const parameters& run, bool client) {
  return std::make_unique<coroutine_worker>(on, run, client);
}

} // namespace perf
