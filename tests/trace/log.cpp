// The log: which errors and events it gets, with which text, and which it does not.
// SPDX-License-Identifier: BSL-1.0
#include "datagram_end.hpp"
#include "records.hpp"

#include <dat/srq.hpp>
#include <dat/try.hpp>
#include <dat/ud.hpp>

using namespace trace_tests;
using dat::log_level;

namespace {

struct line {
  log_level level;
  std::string text;
  bool of_call;
};
std::mutex lines_mutex;
std::vector<line> lines;

/// The log of a test.
struct log_of_test {
  log_of_test() {
    take();
    dat::on_log([](const dat::log_entry& e) noexcept {
      const std::lock_guard lock(lines_mutex);
      lines.push_back({e.level(), e.message(), e.error() != nullptr});
    });
  }
  log_of_test(const log_of_test&) = delete;
  log_of_test& operator=(const log_of_test&) = delete;
  ~log_of_test() { dat::on_log(nullptr); }
  std::vector<line> take() {
    const std::lock_guard lock(lines_mutex);
    return std::exchange(lines, {});
  }
};

/// Passes an error on, as the functions of a program do.
dat::expected<dat::cno> outer(dat::ia& ia, int depth) {
  if (depth != 0) {
    DAT_TRY(auto made, outer(ia, depth - 1));
    return made;
  }
  dat::wait_proxy_agent agent;
  agent.instance = &ia;
  return ia.create_cno(agent); // the agent has data without a function
}

} // namespace

TEST_CASE("levels of the log have their names", "[log]") {
  STATIC_REQUIRE(to_string(log_level::error) == "error");
  STATIC_REQUIRE(to_string(log_level::warning) == "warning");
  STATIC_REQUIRE(to_string(log_level::info) == "info");
  STATIC_REQUIRE(to_string(static_cast<log_level>(3)) == "unknown log_level");
}

TEST_CASE("a call that fails is logged once, with the message of its error", "[log]") {
  const clean_world world;
  end e;
  log_of_test log;
  const auto refused = e.ia.create_evd<dat::stream::dto>(0);
  REQUIRE_FALSE(refused);
  auto all = log.take();
  REQUIRE(all.size() == 1);
  CHECK(all[0].text == refused.error().message());
  CHECK(all[0].level == log_level::error);
  CHECK(all[0].of_call);

  SECTION("copies of the error, and functions that pass it on, are not logged again") {
    const dat::expected<int> copy = refused.error();
    const dat::error other = refused.error().hint("Another hint.");
    const dat::expected<void> moved = other;
    CHECK((!copy && !moved));
    CHECK_FALSE(outer(e.ia, 5));
    all = log.take();
    REQUIRE(all.size() == 1); // this is the error of create_cno
    CHECK(all[0].text.starts_with("ia.create_cno"));
  }
  SECTION("the same call that fails again is logged again") {
    CHECK_FALSE(e.ia.create_evd<dat::stream::dto>(0));
    CHECK(log.take().size() == 1);
  }
  SECTION("an error that names no call is the program's own") {
    const dat::expected<int> own = dat::error(dat::return_type::invalid_state);
    CHECK_FALSE(own);
    CHECK(log.take().empty());
  }
  SECTION("success is not logged") {
    must(e.ia.create_evd<dat::stream::dto>(8));
    CHECK(log.take().empty());
  }
  SECTION("without a function, nothing is") {
    dat::on_log(nullptr);
    CHECK_FALSE(e.ia.create_evd<dat::stream::dto>(0));
    CHECK(log.take().empty());
  }
  SECTION("an error that quotes text keeps its quotation, and its mark") {
    const auto parsed = dat::ia_address::parse("no address");
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().quoted() == "no address");
    const auto first = log.take();
    REQUIRE(first.size() == 1);
    CHECK(first[0].text == parsed.error().message());
    const dat::expected<void> again = parsed.error().quote("another");
    CHECK(again.error().quoted() == "another");
    CHECK(log.take().empty());
  }
}

TEST_CASE("ordinary results are not logged", "[log]") {
  const clean_world world;
  end e;
  log_of_test log;
  is_error(e.evd.dequeue(), dat::return_type::queue_empty);
  CHECK_FALSE(e.evd.wait(1us));
  must(e.evd.wake());
  is_error(e.evd.wait(plenty), dat::return_type::interrupted_call);
  CHECK(log.take().empty());
}

TEST_CASE("the events of connections are logged with their messages", "[log]") {
  const clean_world world;
  end a("fk1");
  end b("fk2");
  a.make_ep();
  b.make_ep();
  auto psp = must(b.ia.create_psp(service, b.evd));
  log_of_test log;
  std::vector<std::string> messages;
  const auto drain = [&](end& of) {
    of.evd.drain([&](const auto& e) {
      if constexpr (requires { e.message(); }) messages.push_back(e.message());
    });
  };
  const auto logged = [&](log_level level) {
    const auto all = log.take();
    std::vector<std::string> text;
    for (const line& l : all) {
      CHECK(l.level == level);
      CHECK_FALSE(l.of_call);
      text.push_back(l.text);
    }
    return text;
  };
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  auto request = request_on(b.evd);
  SECTION("established, and disconnected") {
    must(request.accept(b.ep));
    settle(a, b);
    drain(a);
    drain(b);
    CHECK(messages.size() == 2);
    auto all = logged(log_level::info);
    std::sort(all.begin(), all.end());
    std::sort(messages.begin(), messages.end());
    CHECK(all == messages);
    messages.clear();
    must(a.ep.disconnect(dat::close_mode::abrupt));
    settle(a, b);
    drain(a);
    drain(b);
    CHECK(messages.size() == 2);
    all = logged(log_level::info);
    std::sort(all.begin(), all.end());
    std::sort(messages.begin(), messages.end());
    CHECK(all == messages);
  }
  SECTION("rejected by the peer") {
    must(request.reject());
    settle(a, b);
    drain(a);
    REQUIRE(messages.size() == 1);
    CHECK(logged(log_level::warning) == messages);
  }
  SECTION("rejected without a decision") {
    request = {};
    settle(a, b);
    drain(a);
    REQUIRE(messages.size() == 1);
    CHECK(messages[0].starts_with("non_peer_rejected on ep"));
    CHECK(logged(log_level::error) == messages);
  }
  SECTION("an event that no thread takes is logged, too") {
    must(request.reject());
    settle(a, b);
    CHECK(logged(log_level::warning).size() == 1);
  }
}

TEST_CASE("a failed operation is logged, and the operations that an end flushes are not", "[log]") {
  const clean_world world;
  pair p;
  log_of_test log;
  SECTION("a failure") {
    auto gone = must(p.b.pz.register_memory(p.b.memory, all_rights));
    const auto there = gone.remote();
    must(gone.close());
    for (unsigned i = 0; i < 3; ++i) must(p.a.ep.post(dat::recv{p.a.at(0, 8)}));
    must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), there}.cookie(1)));
    p.settle();
    std::vector<std::string> failures;
    while (p.a.evd.drain([&](const auto& e) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(e)>, dat::dto_failure>)
        if (e.status() != dat::dto_status::flushed) failures.push_back(e.message());
    }) != 0) {
    }
    REQUIRE(failures.size() == 1);
    const auto all = log.take();
    CHECK(std::count_if(all.begin(), all.end(), [&](const line& l) { return l.text == failures[0]; }) == 1);
    CHECK(std::none_of(all.begin(), all.end(), [](const line& l) { return l.text.find("flushed") != l.text.npos; }));
    CHECK(std::count_if(all.begin(), all.end(),
                        [](const line& l) { return l.text.starts_with("connection_broken on ep"); }) == 1);
  }
  SECTION("a flush") {
    for (unsigned i = 0; i < 3; ++i) must(p.a.ep.post(dat::recv{p.a.at(0, 8)}));
    must(p.a.ep.disconnect(dat::close_mode::abrupt));
    p.settle();
    CHECK(p.a.take().size() == 4);
    for (const line& l : log.take()) CHECK(l.level == log_level::info);
  }
}

TEST_CASE("asynchronous events are logged with their messages, whether or not a thread takes them", "[log]") {
  const clean_world world;
  end e("fk1");
  e.make_ep();
  log_of_test log;
  const auto one = [&](log_level level) {
    e.ia.run();
    const auto all = log.take();
    REQUIRE(all.size() == 1);
    CHECK(all[0].level == level);
    std::string taken;
    e.ia.async_evd().drain([&](const auto& event) { taken = event.message(); });
    CHECK(all[0].text == taken);
  };
  fake::async(IBV_EVENT_PORT_ERR, e.ia.native_handle());
  one(log_level::warning);
  fake::async(IBV_EVENT_PORT_ACTIVE, e.ia.native_handle());
  one(log_level::info);
  fake::async(IBV_EVENT_GID_CHANGE, e.ia.native_handle());
  one(log_level::warning);
  fake::async(IBV_EVENT_QP_ACCESS_ERR, e.ep.native_handle());
  one(log_level::error);
  fake::async(IBV_EVENT_CQ_ERR, e.evd.native_handle());
  one(log_level::error);
  auto srq = must(e.pz.create_srq({.max_recv_dtos = 8, .max_recv_iov = 1}));
  fake::async(IBV_EVENT_SRQ_ERR, srq.native_handle());
  one(log_level::error);
  fake::async(IBV_EVENT_DEVICE_FATAL, e.ia.native_handle());
  one(log_level::error);
}

TEST_CASE("a request that is refused for want of room is logged with the remedy", "[log]") {
  const clean_world world;
  end a("fk1");
  end b("fk2");
  auto small = must(b.ia.create_evd<dat::stream::connection_requests>(1));
  auto psp = must(b.ia.create_psp(service, small));
  std::vector<dat::ep<dat::rc>> eps;
  log_of_test log;
  for (int i = 0; i < 2; ++i) {
    eps.push_back(must(a.pz.create_ep<dat::rc>(a.evd)));
    must(eps.back().connect(b.ia.address(), service, plenty));
    settle(a, b);
  }
  auto all = log.take();
  std::erase_if(all, [](const line& l) { return l.text.starts_with("non_peer_rejected"); });
  REQUIRE(all.size() == 1);
  CHECK(all[0].level == log_level::warning);
  CHECK(all[0].text == "request on port 7471 refused: The evd of the service point has no room for requests. Take "
                       "events more often, or create it with a larger qlen.");
}

TEST_CASE("a datagram request that is refused for want of room is logged, and one that is taken is not", "[log][ud]") {
  const clean_world world;
  datagram_end a("fk1");
  end b("fk2");
  auto small = must(b.ia.create_evd<dat::stream::connection_requests | dat::stream::datagrams>(1));
  auto listener = must(dat::ib::datagram_service::listen(b.ia, service, small));
  log_of_test log;
  for (std::size_t asked = 0; asked < 2; ++asked) {
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle(a.ia, b.ia);
    auto all = log.take();
    std::erase_if(all, [](const line& l) { return !l.text.starts_with("request on port 7471 refused"); });
    CHECK(all.size() == asked);
  }
}
