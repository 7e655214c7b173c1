// Connection attempts on a device that end without a connection: refused, unanswered, cancelled, timed out.
// SPDX-License-Identifier: BSL-1.0
#include "device_checks.hpp"
#include "device_table.hpp"

#include <dat/ep_params.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

namespace device {

TEST_CASE("a connect without a listener is refused and flushes the receives", "[connection][CONN-060][NAME-016]") {
  const auto how = GENERATE(dat::progress::automatic, dat::progress::manual);
  two_sides link({.progress = how});
  auto ep = link.a.make_ep();
  post_receives(ep, 8);
  must(ep.connect(link.target(), next_port(), patience));
  const auto refused = ends_with<dat::non_peer_rejected>(link.a.evd, 8);
  DEVIATES("CONN-007", "REQ-093");
  CHECK(refused.reason() == this_device().no_listener);
  SHOWS("CONN-022", "CONN-023", "EPS-009", "EVENT-095", "REQ-057", "REQ-076");
  CHECK(refused.ep() == ep);
  CHECK(ep.state() == state::disconnected);
  SHOWS("CONN-059", "EPS-009", "EPS-044");

  // After a reset the same endpoint connects, with newly posted receives.
  must(ep.reset());
  must(ep.post(dat::recv{}.cookie(5)));
  auto passive = link.b.make_ep();
  link.connect(ep, passive);
  must(passive.post(dat::send{}));
  CHECK(link.at_a<dat::recv_done>().cookie() == dat::cookie(5));
}

TEST_CASE("a consumer's reject arrives with exactly its data", "[connection]") {
  two_sides link;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{55}, std::size_t{56}}) {
    auto ep = link.a.make_ep();
    post_receives(ep, 2);
    must(ep.connect(link.target(), link.port(), patience));
    auto request = link.at_b<dat::connection_request>();
    auto data = pattern(size, 3);
    if (size == 56) std::fill(data.begin() + 20, data.end(), std::byte{0}); // trailing zeros count, too
    must(request.reject(data));
    CHECK_FALSE(request);
    CHECK(error_of(request.reject()) == dat::error(type::invalid_handle, subtype::handle_cr));
    SHOWS("CR-061", "CR-056", "CR-015", "SAFE-032", "EVENT-015");
    const auto rejected = ends_with<dat::peer_rejected>(link.a.evd, 2);
    CHECK(std::equal(data.begin(), data.end(), rejected.private_data().begin(), rejected.private_data().end()));
    SHOWS("CR-052", "CR-057", "CR-059", "CR-064", "REQ-056", "EVENT-095", "EVENT-018");
    CHECK(ep.state() == state::disconnected);
    SHOWS("CONN-021", "EPS-008", "REQ-057", "REQ-075", "CONN-059");
  }
}

TEST_CASE("a request comes to one evd and wakes one cno, and so does the answer", "[connection]") {
  two_sides link;
  auto earlier = must(link.b.ia.create_cno());
  auto cno = must(link.b.ia.create_cno());
  auto mine = must(link.a.ia.create_cno());
  auto elsewhere = must(link.b.ia.create_evd<dat::stream::connection_requests>(4));
  must(elsewhere.modify_cno(earlier));
  must(link.b.evd.modify_cno(earlier));
  must(link.b.evd.modify_cno(cno)); // replaces the first cno
  must(link.a.evd.modify_cno(mine));
  auto ep = link.a.make_ep();
  must(ep.connect(link.target(), link.port(), patience));
  CHECK(must(cno.wait(patience)) == link.b.evd.id());
  CHECK(error_of(cno.wait(0s)).type() == type::queue_empty); // once
  CHECK(error_of(earlier.wait(0s)).type() == type::queue_empty);
  must(link.at_b<dat::connection_request>().reject());
  CHECK(is_empty(link.b.evd));
  CHECK(is_empty(elsewhere));
  SHOWS("REQ-053", "PSP-004");
  CHECK(must(mine.wait(patience)) == link.a.evd.id());
  (void)link.at_a<dat::peer_rejected>();
  SHOWS("REQ-041", "CONN-002");
  // Requests are taken in the order of their arrival.
  auto earlier_ep = link.a.make_ep();
  auto later_ep = link.a.make_ep();
  must(earlier_ep.connect(link.target(), link.port(), patience, bytes_of("earlier")));
  CHECK(must(cno.wait(patience)) == link.b.evd.id()); // the request has arrived
  must(link.b.evd.modify_cno({}));
  must(later_ep.connect(link.target(), link.port(), patience, bytes_of("later")));
  auto both = must(link.b.evd.wait(patience, 2));
  auto& first = std::get<dat::connection_request>(both.first);
  check_private_data(first.private_data(), bytes_of("earlier"));
  auto second = link.at_b<dat::connection_request>();
  check_private_data(second.private_data(), bytes_of("later"));
  SHOWS("REQ-150");
  must(first.reject());
  must(second.reject());
}

TEST_CASE("a request that the consumer drops is refused", "[connection][PSP-026][EVENT-015]") {
  const auto how = GENERATE(dat::progress::automatic, dat::progress::manual);
  two_sides link({.progress = how});
  auto ep = link.a.make_ep();
  must(ep.connect(link.target(), link.port(), patience));
  { const auto dropped = link.at_b<dat::connection_request>(); }
  const auto refused = link.at_a<dat::non_peer_rejected>();
  CHECK(refused.reason() != 8);
}

TEST_CASE("connect refuses an impossible address",
          "[connection][CONN-054][CONN-057][EPS-012][ADDR-005][ADDR-006][ADDR-020]") {
  side a(0);
  auto ep = a.make_ep();
  must(ep.post(dat::recv{}.cookie(9)));
  const struct {
    const char* text;
    subtype why;
  } impossible[] = {{"224.0.0.1", subtype::address_unsupported}, {"255.255.255.255", subtype::address_unsupported},
                    {"ff02::1", subtype::address_unsupported},   {"0.0.0.0", subtype::address_malformed},
                    {"::", subtype::address_malformed},          {"fe80::1", subtype::address_malformed},
                    {"240.0.0.1", subtype::address_malformed},   {"4000::1", subtype::address_malformed}};
  for (const auto& [text, why] : impossible) {
    INFO(text);
    const auto e = error_of(ep.connect(must(dat::ia_address::parse(text)), next_port(), patience));
    CHECK(e == dat::error(type::invalid_address, why));
    SHOWS("ADDR-007", "ERR-038", "ERR-040", "EPS-020", "NAME-016");
    CHECK_THAT(e.message(), support::starts_with_text("ep.connect"));
    CHECK(ep.state() == state::unconnected);
  }
  const std::uint16_t none = 0;
  CHECK(error_of(ep.connect(a.ia.address(), none, patience)).type() == type::invalid_parameter);
  CHECK(ep.state() == state::unconnected);
  CHECK(is_empty(a.evd));
  SHOWS("CONN-056");
  // The next connection uses the receive, which is still posted.
  side b(1);
  const auto psp = must(b.ia.create_psp(next_port(), b.evd));
  auto passive = b.make_ep();
  must(ep.connect(b.ia.address(), must(dat::conn_qual::make(psp.port())), patience));
  must(must(b.evd.wait_for<dat::connection_request>(patience)).accept(passive));
  (void)next<dat::established>(a.evd);
  (void)next<dat::established>(b.evd);
  must(passive.post(dat::send{}));
  CHECK(next<dat::recv_done>(a.evd).cookie() == dat::cookie(9));
}

TEST_CASE("an unused address is unreachable within the time limit", "[connection]") {
  if (!in_lab()) SKIP("only the lab's network is known to have no such host");
  const auto how = GENERATE(dat::progress::automatic, dat::progress::manual);
  side a(0, how);
  auto ep = a.make_ep();
  post_receives(ep, 2);
  must(ep.connect(must(dat::ia_address::parse("10.78.1.99")), next_port(), 300ms));
  if (how == dat::progress::manual) { // later calls continue the attempt
    CHECK(ep.state() == state::active_connection_pending);
    SHOWS("CONN-002", "REQ-041");
  }
  const auto end = ends_with<dat::connection_unreachable>(a.evd, 2);
  CHECK(end.reason() != 0);
  SHOWS("CONN-024", "CONN-055", "EVENT-096", "REQ-081");
  CHECK(ep.state() == state::disconnected);
  SHOWS("CONN-026", "CONN-059", "EPS-006", "EPS-007", "EPS-011", "EPS-020", "EPS-044", "NAME-016");
}

TEST_CASE("an unanswered connect times out, and a late answer has no effect", "[connection]") {
  if (!this_device().attempts_end_at_once)
    SKIP("this device ends an attempt only when the peer has answered, or after 10 s");
  const auto how = GENERATE(dat::progress::automatic, dat::progress::manual);
  two_sides link({.progress = how});
  auto first = link.a.make_ep();
  const auto target = link.target();
  const bool four = target.family() == dat::address_family::ipv4;
  auto second = link.a.make_ep({.comm = {four ? AF_INET : AF_INET6, SOCK_STREAM, 0}});
  // Attributes that the device cannot provide are refused by create_ep, not by connect or accept.
  CHECK(error_of(link.b.pz.create_ep<dat::rc>(link.b.evd, {.max_rdma_read_in = std::uint8_t{255}})).type() ==
        type::invalid_parameter);
  post_receives(first, 1);
  must(first.connect(target, link.port(), unanswered_limit, bytes_of("first")));
  auto unanswered = link.at_b<dat::connection_request>();
  const auto end = ends_with<dat::connection_timed_out>(link.a.evd, 1);
  CHECK(end.ep() == first);
  CHECK(first.state() == state::disconnected);
  SHOWS("CONN-025", "CONN-026", "EPS-010", "EVENT-096", "REQ-049", "EPS-004", "REQ-048", "CONN-059");
  must(second.common_connect(target.with_port(link.psp.port()), unanswered_limit));
  auto another = link.at_b<dat::connection_request>();
  if (how == dat::progress::automatic) { // no call of this thread ends the attempt
    CHECK(comes_true([&] { return second.state() == state::disconnected; }));
    CHECK(must(second.query()).state == state::disconnected);
    const auto queued = link.a.evd.wait_for<dat::connection_timed_out>(0s); // queued with the change of the state
    CHECK(queued);
    CHECK(must(queued).ep() == second);
  } else {
    CHECK(link.at_a<dat::connection_timed_out>().ep() == second);
  }
  SHOWS("CONN-080", "REQ-080", "EPS-004");

  // Both requests are still queued. Accepting one of them succeeds and then leads to an event; rejecting the other
  // succeeds.
  CHECK(is_empty(link.b.evd)); // this side is not notified
  check_private_data(unanswered.private_data(), bytes_of("first"));
  SHOWS("CR-013", "CONN-025");
  auto passive = link.b.make_ep();
  post_receives(passive, 3);
  must(unanswered.accept(passive));
  CHECK_FALSE(unanswered);
  SHOWS("CR-038", "EPS-026");
  const auto late = ends_with<dat::accept_completion_error>(link.b.evd, 3);
  CHECK(late.ep() == passive);
  CHECK(passive.state() == state::disconnected);
  SHOWS("REQ-080", "CR-037", "CR-038", "EPS-025", "EPS-026", "EVENT-097", "REQ-050", "REQ-077");
  must(another.reject());
  CHECK_FALSE(another);
  SHOWS("CR-063");
  CHECK(is_empty(link.a.evd));
  CHECK(is_empty(link.b.evd)); // a reject that comes too late is no event on either side
  SHOWS("REQ-050");

  // Both endpoints can connect again.
  must(first.reset());
  must(passive.reset());
  link.connect(first, passive);
}

TEST_CASE("a service point whose evd is full refuses the next request at once", "[connection]") {
  side a(0);
  side b(1);
  auto requests = must(b.ia.create_evd<dat::stream::connection_requests>(3));
  const auto one = must(b.ia.create_psp(next_port(), requests));
  const auto two = must(b.ia.create_psp(next_port(), requests));
  const auto to = [&](const dat::psp& p) { return must(dat::conn_qual::make(p.port())); };
  std::vector<endpoint> eps;
  const auto ask = [&](const dat::psp& p) {
    eps.push_back(a.make_ep());
    must(eps.back().connect(b.ia.address(), to(p), patience));
  };
  // Requests one connection more than the evd has room for, from both service points.
  for (int i = 0; i < 4; ++i) ask(i % 2 == 0 ? one : two);
  const auto refused = next<dat::non_peer_rejected>(a.evd);
  CHECK(refused.reason() == this_device().dropped);
  const auto is_over = [](const endpoint& ep) { return ep.state() == state::disconnected; };
  CHECK(std::ranges::count_if(eps, is_over) == 1);
  SHOWS("EPS-009");
  SHOWS("PSP-005", "PSP-007", "CONN-022", "EVENT-071", "MODEL-001", "REQ-051");
  // The evd holds three requests, and takes one more when one has been taken.
  std::vector<std::uint16_t> ports;
  auto first = next<dat::connection_request>(requests);
  ports.push_back(first.local_address().port());
  ask(two);
  ask(one);
  CHECK(next<dat::non_peer_rejected>(a.evd).reason() == this_device().dropped);
  SHOWS("PSP-006", "MODEL-001", "REQ-076");
  for (int i = 0; i < 3; ++i) {
    auto r = next<dat::connection_request>(requests);
    ports.push_back(r.local_address().port());
    must(r.reject());
    (void)next<dat::peer_rejected>(a.evd);
  }
  CHECK(is_empty(requests));
  SHOWS("PSP-004", "EVENT-075", "PSP-007");
  CHECK(error_of(b.ia.async_evd().wait_for<dat::evd_overflow>(0s)) == dat::error(type::timeout_expired));
  SHOWS("PSP-007", "PSP-008", "EVENT-071");
  CHECK(std::count(ports.begin(), ports.end(), one.port()) >= 1);
  CHECK(std::count(ports.begin(), ports.end(), two.port()) >= 1);
  SHOWS("PSP-003", "PSP-005", "REQ-053");
  auto passive = b.make_ep();
  must(first.accept(passive));
  (void)next<dat::established>(a.evd);
  (void)next<dat::established>(b.evd);
}

TEST_CASE("a connection attempt can be cancelled",
          "[connection][DISC-021][EPS-006][EPS-016][CONN-005][REQ-046][EPS-046][DISC-004]") {
  if (!this_device().attempts_end_at_once)
    SKIP("this device ends an attempt only when the peer has answered, or after 10 s");
  two_sides link;
  const auto flags = GENERATE(dat::close_mode::abrupt, dat::close_mode::graceful);
  auto ep = link.a.make_ep();
  post_receives(ep, 2);
  must(ep.connect(link.target(), link.port(), patience));
  auto request = link.at_b<dat::connection_request>();
  SECTION("disconnect cancels the attempt, with an event") {
    must(ep.disconnect(flags));
    CHECK(ep.state() == state::disconnected);
    (void)ends_with<dat::disconnected>(link.a.evd, 2);
  }
  SECTION("close cancels the attempt, without an event") {
    must(ep.close());
    CHECK(is_empty(link.a.evd));
  }
  auto passive = link.b.make_ep();
  post_receives(passive, 1);
  must(request.accept(passive));
  (void)ends_with<dat::accept_completion_error>(link.b.evd, 1); // the reply is refused, because it comes too late
  CHECK(passive.state() == state::disconnected);
  CHECK(is_empty(link.a.evd));
  SHOWS("DISC-041", "EP-035", "DISC-037");
}

TEST_CASE("a late answer to a cancelled attempt does not reach the next attempt of the endpoint",
          "[connection][DISC-049]") {
  if (!this_device().attempts_end_at_once)
    SKIP("this device ends an attempt only when the peer has answered, or after 10 s");
  two_sides link;
  const bool accepts = GENERATE(true, false);
  auto ep = link.a.make_ep();
  must(ep.connect(link.target(), link.port(), patience));
  auto request = link.at_b<dat::connection_request>();
  must(ep.disconnect());
  (void)link.at_a<dat::disconnected>();
  must(ep.reset());
  must(ep.connect(link.target(), link.port(), patience));
  auto of_next = link.at_b<dat::connection_request>();
  auto late = link.b.make_ep();
  if (accepts) {
    must(request.accept(late));
    (void)link.at_b<dat::accept_completion_error>(late);
  } else {
    must(request.reject());
  }
  CHECK(ep.state() == state::active_connection_pending);
  auto passive = link.b.make_ep();
  must(of_next.accept(passive));
  CHECK(link.at_a<dat::established>().ep() == ep);
  CHECK(link.at_b<dat::established>().ep() == passive);
  exchange(link.a.evd, ep, link.b.evd, passive);
  CHECK(ep.state() == state::connected);
  CHECK((is_empty(link.a.evd) && is_empty(link.b.evd)));
}

namespace {

/// The number of armed timers of this process. The kernel shows timers with their descriptors.
int armed_timers() {
  int armed = 0;
  for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone; // a descriptor may be closed meanwhile
    if (std::filesystem::read_symlink(fd.path(), gone).string() != "anon_inode:[timerfd]") continue;
    std::ifstream info("/proc/self/fdinfo/" + fd.path().filename().string());
    for (std::string line; std::getline(info, line);)
      if (line.starts_with("it_value:")) armed += line != "it_value: (0, 0)";
  }
  return armed;
}

} // namespace

TEST_CASE("a request waits without a timer for as long as its consumer leaves it", "[connection]") {
  two_sides link({.progress = dat::progress::manual});
  auto active = link.a.make_ep();
  must(active.connect(link.target(), link.port(), dat::infinite));
  auto request = link.at_b<dat::connection_request>();
  link.a.ia.run();
  link.b.ia.run();
  CHECK(armed_timers() == 0);
  CHECK(active.state() == state::active_connection_pending);
  STATIC_REQUIRE(std::is_same_v<dat::timeout::period, std::micro>);
  STATIC_REQUIRE(dat::infinite == dat::timeout::max());
  SHOWS("CR-014", "CONN-040");
  auto limited = link.a.make_ep();
  must(limited.connect(link.target(), link.port(), patience));
  CHECK(armed_timers() == 1); // the time limit of that attempt
  must(link.at_b<dat::connection_request>().reject());
  (void)link.at_a<dat::peer_rejected>();
  auto passive = link.b.make_ep();
  must(request.accept(passive)); // the request is still valid
  (void)link.at_a<dat::established>();
  (void)link.at_b<dat::established>();
}

TEST_CASE("cancelling an attempt may overlap the reply, and the events stay consistent",
          "[connection][DISC-022][DISC-023][EPS-017][CR-048][CONN-016][CONN-027]") {
  two_sides link;
  std::mt19937 random(random_seed());
  INFO("DAT_TEST_SEED=" << random_seed());
  for (int round = 0; round < 40; ++round) {
    auto active = link.a.make_ep();
    auto passive = link.b.make_ep();
    must(active.connect(link.target(), link.port(), patience));
    auto request = link.at_b<dat::connection_request>();
    const bool by_active = random() % 2 == 0;
    const auto delay = std::uniform_int_distribution<int>(0, 3'000)(random);
    must(request.accept(passive));
    for (int spin = 0; spin < delay; ++spin) (void)active.state(); // a delay of random length
    must((by_active ? active : passive).disconnect());
    for (auto* s : {&link.a, &link.b}) {
      auto first = take(s->evd, 1);
      if (std::holds_alternative<dat::established>(first.front())) {
        INFO("round " << round << ", called off by " << (by_active ? "active" : "passive") << ", waiting at "
                      << (s == &link.a ? "active, " : "passive, ") << to_string(active.state()) << ", "
                      << to_string(passive.state()));
        const auto second = take(s->evd, 1);
        CHECK(std::holds_alternative<dat::disconnected>(second.front()));
      } else {
        // The side that disconnects gets disconnected, and the other side gets the failure of the attempt.
        const bool here = by_active == (s == &link.a);
        INFO(sequence(first) << (here ? ", called off here" : ", called off there"));
        CHECK((here        ? std::holds_alternative<dat::disconnected>(first.front())
               : by_active ? std::holds_alternative<dat::accept_completion_error>(first.front())
                           : std::holds_alternative<dat::non_peer_rejected>(first.front())));
      }
    }
    CHECK(active.state() == state::disconnected);
    CHECK(passive.state() == state::disconnected);
    CHECK(is_empty(link.a.evd));
    CHECK(is_empty(link.b.evd));
  }
  // Close ends an accept, too.
  auto active = link.a.make_ep();
  auto passive = link.b.make_ep();
  must(active.connect(link.target(), link.port(), patience));
  must(link.at_b<dat::connection_request>().accept(passive));
  must(passive.close());
  auto ends = take(link.a.evd, 1);
  if (std::holds_alternative<dat::established>(ends.front())) ends = take(link.a.evd, 1);
  INFO(sequence(ends));
  CHECK((std::holds_alternative<dat::disconnected>(ends.front()) ||
         std::holds_alternative<dat::non_peer_rejected>(ends.front())));
  CHECK(active.state() == state::disconnected);
  SHOWS("EPS-046");
}

TEST_CASE("the timeout of connect may overlap the reply, and one of the two decides the attempt",
          "[connection][CONN-043][CONN-016]") {
  if (!this_device().attempts_end_at_once)
    SKIP("this device ends an attempt only when the peer has answered, or after 10 s");
  two_sides link;
  int up = 0;
  for (int round = 0; round < 40; ++round) {
    auto active = link.a.make_ep();
    auto passive = link.b.make_ep();
    must(active.connect(link.target(), link.port(), std::chrono::microseconds(1 + 270 * round)));
    std::optional<event> end;
    while (!end) {
      if (auto e = link.b.evd.dequeue())
        if (auto* request = std::get_if<dat::connection_request>(&e.assume_value())) {
          const auto from = active.local_address(); // the request may belong to the previous round
          if (from && request->remote_address() == from.assume_value()) must(request->accept(passive));
        }
      if (auto e = link.a.evd.dequeue()) end.emplace(std::move(e.assume_value()));
    }
    INFO("round " << round << ": " << describe(*end));
    if (std::holds_alternative<dat::established>(*end)) {
      ++up;
      CHECK(active.state() == state::connected);
      must(active.disconnect());
      (void)next<dat::disconnected>(link.a.evd);
    } else {
      CHECK((std::holds_alternative<dat::connection_timed_out>(*end) ||
             std::holds_alternative<dat::connection_unreachable>(*end)));
      CHECK(active.state() == state::disconnected);
    }
    CHECK(is_empty(link.a.evd));  // the close of the endpoint would take its events along
    SHOWS("EPS-084", "CONN-043"); // the timer, the thread of connections and this thread
    must(passive.close());
    must(active.close());
  }
  INFO(up << " came up in time");
}

TEST_CASE("a peer process that is killed before it answers is reported as a refusal", "[connection][REQ-057]") {
  side a(0);
  peer_process peer("hold request");
  const auto port = must(dat::conn_qual::make(std::stoul(peer.hear())));
  auto ep = a.make_ep();
  must(ep.connect(addresses()[1], port, patience));
  CHECK(peer.hear() == "request");
  CHECK(ep.state() == state::active_connection_pending);
  peer.kill();
  CHECK(next<dat::non_peer_rejected>(a.evd).reason() == this_device().peer_killed);
  SHOWS("CR-013", "CR-064", "REQ-076");
  if (!this_device().attempts_end_at_once) return;
  // After the time limit, the failure of the passive side ends its request without another event.
  peer_process second("hold request");
  const auto its_port = must(dat::conn_qual::make(std::stoul(second.hear())));
  must(ep.reset());
  must(ep.connect(addresses()[1], its_port, unanswered_limit));
  CHECK(second.hear() == "request");
  (void)next<dat::connection_timed_out>(a.evd);
  second.kill();
  (void)second.wait();
  auto later = a.make_ep();
  must(
      later.connect(addresses()[1], next_port(), patience)); // its answer comes behind what the killed process has sent
  CHECK(next<dat::non_peer_rejected>(a.evd).ep() == later);
  CHECK(ep.state() == state::disconnected);
  SHOWS("REQ-050");
}

namespace {

int hold_request_role(channel& to, const std::vector<std::string>&) {
  side b(1);
  const auto port = next_port();
  const auto psp = must(b.ia.create_psp(port, b.evd));
  to.say(std::to_string(port.port()));
  const auto request = must(b.evd.wait_for<dat::connection_request>(patience));
  to.say("request");
  (void)to.closed();
  return 0;
}
const role hold_request_registered("hold request", &hold_request_role);

} // namespace
} // namespace device
