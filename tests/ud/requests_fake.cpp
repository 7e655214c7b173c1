// Datagram requests that are repeated, unanswered, or meant for another service.
// SPDX-License-Identifier: BSL-1.0
#include "known_pair.hpp"
#include "world.hpp"

#include <dat/ud.hpp>

#include <cstring>
#include <functional>
#include <optional>

using namespace unit;

namespace {

/// A request that the test sends itself from a chosen port, so that it can be repeated.
class question {
public:
  /// `number` is the number of the sender's endpoint in the header, or 0 for a program that does not use dat.
  question(std::uint16_t from, std::uint32_t number, std::string_view text) {
    REQUIRE(dat::detail::make_nonblocking(channel_->fd) == 0);
    REQUIRE(rdma_create_id(channel_, &id_, nullptr, RDMA_PS_UDP) == 0);
    const auto here = must(dat::ia_address::parse("10.99.1.1")).with_port(from);
    const auto there = must(dat::ia_address::parse("10.99.2.1")).with_port(unit::service);
    const auto raw = [](const dat::ia_address& a) { return const_cast<sockaddr*>(a.native_handle()); };
    REQUIRE(rdma_bind_addr(id_, raw(here)) == 0);
    REQUIRE(rdma_resolve_addr(id_, nullptr, raw(there), 1000) == 0);
    REQUIRE(next().starts_with("RDMA_CM_EVENT_ADDR_RESOLVED"));
    REQUIRE(rdma_resolve_route(id_, 1000) == 0);
    REQUIRE(next().starts_with("RDMA_CM_EVENT_ROUTE_RESOLVED"));
    std::array<std::byte, 180> data{};
    std::byte* to = data.data();
    if (number != 0) {
      dat::detail::qp_place place;
      place.gid = dat::detail::gid_of(here);
      place.qp_num = number;
      to = dat::detail::datagram_header::write(place, text.size(), to);
    }
    std::memcpy(to, text.data(), text.size());
    rdma_conn_param p{};
    p.private_data = data.data();
    p.private_data_len = data.size();
    REQUIRE(rdma_connect(id_, &p) == 0);
  }
  question(const question&) = delete;
  question& operator=(const question&) = delete;
  ~question() {
    rdma_destroy_id(id_);
    rdma_destroy_event_channel(channel_);
  }
  /// Name, number and data of the next event; empty when there is none.
  std::string next() {
    rdma_cm_event* e = nullptr;
    if (rdma_get_cm_event(channel_, &e) != 0) return {};
    std::string all = rdma_event_str(e->event);
    if (e->event == RDMA_CM_EVENT_ESTABLISHED) all += ' ' + std::to_string(e->param.ud.qp_num);
    const auto* data = static_cast<const char*>(e->param.ud.private_data);
    for (std::size_t i = 0; data && i < e->param.ud.private_data_len; ++i)
      if (data[i] > ' ') all += data[i];
    rdma_ack_cm_event(e);
    return all;
  }

private:
  rdma_event_channel* channel_ = rdma_create_event_channel();
  rdma_cm_id* id_ = nullptr;
};

} // namespace

TEST_CASE("a peer that repeats its datagram request gets the same reply, and the consumer gets one request",
          "[ud][IBX-056][IBX-057][CR-050][CR-065]") {
  clean_world world;
  known_pair p;
  auto listener = must(dat::ib::datagram_service::listen(p.b.ia, unit::service, p.b.evd));
  using request = dat::ib::datagram_request;
  const auto asked = [&]() -> std::optional<request> {
    p.b.ia.run();
    auto e = p.b.evd.dequeue();
    if (!e) return {};
    return std::move(std::get<request>(e.value()));
  };
  struct answer {
    const char* name;
    std::function<void(request)> give;
  };
  const answer answers[] = {{"yes", [&](request r) { must(r.accept(p.b.ep, bytes_of("welcome"))); }},
                            {"no", [&](request r) { must(r.reject(bytes_of("busy"))); }},
                            {"dropped", [](request) {}}};
  std::uint16_t port = 40000;
  for (const auto& a : answers) {
    INFO(a.name);
    ++port;
    std::string first;
    {
      question q(port, 17, "who");
      auto r = asked();
      REQUIRE(r);
      a.give(std::move(*r));
      first = q.next();
      CHECK_FALSE(first.empty());
    }
    (void)p.events_of(p.b);
    for (int again = 0; again < 2; ++again) {
      question q(port, 17, "who");
      CHECK_FALSE(asked());
      CHECK(q.next() == first);
    }
    const auto asks_anew = [&](std::uint16_t from, std::uint32_t number, std::string_view text) {
      const question q(from, number, text);
      return asked().has_value();
    };
    CHECK(asks_anew(static_cast<std::uint16_t>(port + 100), 17, "who"));
    CHECK(asks_anew(port, 18, "who"));
    CHECK(asks_anew(port, 17, "what"));
  }
  // For a program that does not use dat, a repeated request cannot be recognised.
  for (int i = 0; i < 2; ++i) {
    question q(39000, 0, "plain");
    auto r = asked();
    REQUIRE(r);
    must(r->accept(p.b.ep));
    CHECK(q.next().starts_with("RDMA_CM_EVENT_ESTABLISHED"));
    (void)p.events_of(p.b);
  }
  // Replies are dropped with their service, which then listens again.
  must(listener.close());
  listener = must(dat::ib::datagram_service::listen(p.b.ia, unit::service, p.b.evd));
  const question q(40001, 17, "who");
  CHECK(asked());
  CHECK(fake::violations().empty());
}

TEST_CASE("private data of each length arrives with its length at both datagram endpoints", "[ud]") {
  clean_world world;
  known_pair p;
  const auto listener = must(dat::ib::datagram_service::listen(p.b.ia, unit::service, p.b.evd));
  constexpr std::size_t most = 128;
  for (std::size_t n = 0; n <= most; ++n) {
    INFO(n << " bytes");
    std::string data(n, 'x');
    if (n % 2 == 0) std::fill(data.begin() + static_cast<std::ptrdiff_t>(n / 2), data.end(), '\0');
    if (n == most) data.replace(52, 4, "DAT4"); // as the mark of another message
    must(p.a.ep.connect(p.b.ia.address(), unit::service, plenty, bytes_of(data)));
    settle(p.a.ia, p.b.ia);
    auto request = must(p.b.evd.wait_for<dat::ib::datagram_request>(plenty));
    CHECK(text_of(request.private_data()) == data);
    must(request.accept(p.b.ep, bytes_of(data)));
    settle(p.a.ia, p.b.ia);
    CHECK(text_of(must(p.a.evd.wait_for<dat::ib::datagram_established>(plenty)).private_data()) == data);
    CHECK(text_of(must(p.b.evd.wait_for<dat::ib::datagram_established>(plenty)).private_data()) == data);
  }
}

TEST_CASE("a datagram request without an answer ends at its time limit, by how far it came", "[ud]") {
  clean_world world;
  known_pair p;
  const auto listener = must(dat::ib::datagram_service::listen(p.b.ia, unit::service, p.b.evd));
  const auto ends_with = [&]() -> std::string {
    auto e = must(p.a.evd.wait(plenty));
    if (std::holds_alternative<dat::connection_timed_out>(e)) return "timed out";
    return std::holds_alternative<dat::connection_unreachable>(e) ? "unreachable" : "another";
  };
  fake::hold_events(RDMA_CM_EVENT_ADDR_RESOLVED);
  must(p.a.ep.connect(p.b.ia.address(), unit::service, 1ms));
  CHECK(ends_with() == "unreachable"); // no request was sent
  fake::release_events();
  must(p.a.ep.connect(p.b.ia.address(), unit::service, 1ms)); // the peer does not answer
  const auto second = ends_with();
  CHECK((second == "timed out" || second == "unreachable"));
}

TEST_CASE("a datagram request that is handed on meets a full evd, a closed service, and its own repetition",
          "[ud][CR-018]") {
  clean_world world;
  end b{"fk2"};
  const auto port = [](int n) { return must(dat::conn_qual::make(static_cast<std::uint16_t>(unit::service + n))); };
  auto first_evd = must(b.ia.create_evd<ud_streams>(8));
  auto second_evd = must(b.ia.create_evd<ud_streams | dat::stream::software>(1));
  auto first = must(dat::ib::datagram_service::listen(b.ia, port(0), first_evd));
  auto second = must(dat::ib::datagram_service::listen(b.ia, port(1), second_evd));
  const auto ep = must(b.pz.create_ep<dat::ud>(first_evd));
  const auto request_of = [&](auto& evd) {
    b.ia.run();
    return must(evd.template wait_for<dat::ib::datagram_request>(plenty));
  };
  std::optional<question> one(std::in_place, 40001, 77, "one");
  auto request = request_of(first_evd);
  std::uint64_t filler = 0;
  while (second_evd.post(filler)) ++filler;
  const auto full = request.handoff(port(1));
  is_error(full, dat::return_type::invalid_state);
  CHECK(full.error().call() == "datagram_request.handoff");
  CHECK(request);
  second_evd.drain([](const auto&) {});
  must(request.handoff(port(1)));
  auto there = request_of(second_evd);
  CHECK(there.local_address().port() == unit::service);
  must(second.close());
  is_error(there.handoff(port(1)), dat::return_type::invalid_parameter, dat::return_subtype::arg2); // where it was
  must(there.reject());
  b.ia.run();
  CHECK(one->next().starts_with("RDMA_CM_EVENT_UNREACHABLE"));
  one.reset();
  question again(40001, 77, "one"); // gets the same answer, from the service that it was sent to
  b.ia.run();
  CHECK(again.next().starts_with("RDMA_CM_EVENT_UNREACHABLE"));
  CHECK(first_evd.dequeue().error().type() == dat::return_type::queue_empty);
}

TEST_CASE("a connection request goes to service points, not to datagram services", "[ud][CR-066][CR-075]") {
  clean_world world;
  end a{"fk1"};
  end b{"fk2"};
  auto asked = must(b.ia.create_evd<ud_streams>(8));
  const auto port = [](int n) { return must(dat::conn_qual::make(static_cast<std::uint16_t>(unit::service + n))); };
  const auto datagrams_1 = must(dat::ib::datagram_service::listen(b.ia, port(1), asked));
  const auto datagrams_2 = must(dat::ib::datagram_service::listen(b.ia, port(2), asked));
  const auto first = must(b.ia.create_psp(port(0), b.evd));
  const auto second = must(b.ia.create_psp(port(1), b.evd)); // the second service point has the same qualifier
  a.make_ep();
  b.make_ep();
  must(a.ep.connect(b.ia.address(), port(0), plenty));
  settle(a, b);
  auto request = request_on(b.evd);
  is_error(request.handoff(port(2)), dat::return_type::invalid_parameter, dat::return_subtype::arg2);
  must(request.handoff(port(1)));
  request = request_on(b.evd);
  CHECK(request.service() == second.id());
  must(request.accept(b.ep));
  settle(a, b);
  CHECK(a.take() == events{"established"});
  CHECK(asked.dequeue().error().type() == dat::return_type::queue_empty);
}
