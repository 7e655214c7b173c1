// Requests of datagram endpoints at the service: what they show, how they end, and how long the answers are kept.
// SPDX-License-Identifier: BSL-1.0
#include <unit/datagram_end.hpp>
#include <unit/raw_request.hpp>
#include <unit/world.hpp>

#include <dat/ud.hpp>

#include <cerrno>
#include <string>

using namespace unit;
using dat::return_subtype;
using dat::return_type;

namespace {

const dat::ia_address peer_host = must(dat::ia_address::parse("10.99.1.1"));

/// A service of fk2 and the endpoint that answers.
struct answering {
  datagram_end b{"fk2"};
  dat::ib::datagram_service listener = must(dat::ib::datagram_service::listen(b.ia, service, b.evd));
  auto request() { return request_of(b.ia, b.evd); }
};

/// The service, and peers that ask it from several addresses.
class crowd {
public:
  static constexpr std::size_t hosts = 8;
  static fake::world world() {
    fake::world w;
    for (std::size_t i = 1; i < hosts; ++i) w.devices[0].ports[0].addresses.push_back(text(i));
    return w;
  }
  /// The peer with this number asks. Returns whether its request reaches the consumer, who then rejects it.
  bool asks(std::size_t host, std::size_t number) {
    const auto from = must(dat::ia_address::parse(text(host)));
    const raw_request r(from.with_port(static_cast<std::uint16_t>(41000 + number)), header_of(from), "x");
    return at_.request().has_value();
  }

private:
  static std::string text(std::size_t host) { return "10.99.1." + std::to_string(host + 1); }
  answering at_;
};

} // namespace

TEST_CASE("the newest 64 answers to one address are kept, and an older one gives way", "[ud]") {
  const clean_world clean(crowd::world());
  crowd c;
  for (std::size_t i = 0; i < 64; ++i) REQUIRE(c.asks(0, i));
  CHECK_FALSE(c.asks(0, 0)); // repeated by the cache
  REQUIRE(c.asks(0, 64));
  CHECK_FALSE(c.asks(0, 1));
  CHECK(c.asks(0, 0)); // forgotten
}

TEST_CASE("the newest 256 answers to all addresses are kept, and an older one gives way", "[ud]") {
  const clean_world clean(crowd::world());
  crowd c;
  for (std::size_t i = 0; i < 256; ++i) REQUIRE(c.asks(i % crowd::hosts, i));
  CHECK_FALSE(c.asks(0, 0));
  REQUIRE(c.asks(0, 256));
  CHECK_FALSE(c.asks(1, 1));
  CHECK(c.asks(0, 0));
}

TEST_CASE("answers that replace older ones to the same address leave those to other addresses", "[ud]") {
  const clean_world clean(crowd::world());
  crowd c;
  for (std::size_t i = 0; i < 64 + 200; ++i) REQUIRE(c.asks(0, i));
  for (std::size_t i = 0; i < 3 * 64; ++i) REQUIRE(c.asks(1 + i % 3, i));
  for (std::size_t i = 200; i < 264; ++i) CHECK_FALSE(c.asks(0, i)); // repeated by the cache
  for (std::size_t i = 0; i < 3 * 64; ++i) CHECK_FALSE(c.asks(1 + i % 3, i));
}

TEST_CASE("a datagram request shows its peer: number, addresses, and the data with its length", "[ud]") {
  const clean_world clean;
  answering s;
  const auto from = peer_host.with_port(40001);
  const raw_request asked(from, header_of(peer_host), "who");
  const auto request = s.request();
  REQUIRE(request);
  CHECK(*request);
  CHECK(request->remote_number() == 17);
  CHECK(request->remote_address() == from);
  CHECK(request->local_address() == must(dat::ia_address::parse("10.99.2.1")).with_port(service));
  CHECK(text_of(request->private_data()) == "who");
  CHECK_THAT(request->message(),
             support::contains_text("ib::datagram_request") && support::contains_text("10.99.1.1:40001"));
}

TEST_CASE("a datagram request of a program without dat has no number, and its data is followed by zeros", "[ud]") {
  const clean_world clean;
  answering s;
  const raw_request asked(peer_host.with_port(40001), {}, "plain");
  auto request = s.request();
  REQUIRE(request);
  CHECK(request->remote_number() == 0);
  CHECK(request->private_data().size() == 180);
  CHECK(unpadded(request->private_data()) == "plain");
  must(request->accept(s.b.ep));
  const auto e = must(s.b.evd.dequeue());
  const auto& known = std::get<dat::ib::datagram_established>(e);
  CHECK(known.is_passive());
  CHECK(known.remote_address() == peer_host.with_port(40001));
  is_error(known.peer(), return_type::model_not_supported);
}

TEST_CASE("an empty datagram request shows nothing, and cannot be answered", "[ud]") {
  const clean_world clean;
  datagram_end b("fk2");
  dat::ib::datagram_request none;
  CHECK_FALSE(none);
  CHECK(none.private_data().empty());
  CHECK(none.remote_address() == dat::ia_address());
  CHECK(none.local_address() == dat::ia_address());
  CHECK(none.remote_number() == 0);
  is_error(none.accept(b.ep), return_type::invalid_handle, return_subtype::handle_cr);
  is_error(none.reject(), return_type::invalid_handle, return_subtype::handle_cr);
  is_error(none.handoff(unit::service), return_type::invalid_handle, return_subtype::handle_cr);
}

TEST_CASE("an answered datagram request is empty, and holds nothing of the adapter", "[ud]") {
  const clean_world clean;
  answering s;
  for (const bool with_dat : {true, false})
    for (const std::string how : {"accept", "reject", "drop"}) {
      INFO(how << (with_dat ? " of dat" : " of another program"));
      const auto header = with_dat ? std::optional(header_of(peer_host)) : std::nullopt;
      raw_request asked(peer_host.with_port(40001), header, how);
      const auto before = fake::live().ids;
      auto request = s.request();
      REQUIRE(request);
      CHECK(fake::live().ids == before + 1);
      if (how == "accept") must(request->accept(s.b.ep));
      if (how == "reject") must(request->reject());
      if (how == "drop") request.reset();
      CHECK_FALSE((request && *request));
      CHECK(fake::live().ids == before);
      CHECK(asked.next() == (how == "accept" ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_UNREACHABLE));
      s.b.evd.drain([](const auto&) {});
    }
}

TEST_CASE("an answer to a datagram request has at most 128 bytes, and a refused call leaves the request open", "[ud]") {
  const clean_world clean;
  answering s;
  datagram_end other("fk2");
  auto disconnected = must(s.b.pz.create_ep<dat::ud>(s.b.evd));
  must(disconnected.disconnect());
  (void)s.b.evd.dequeue();
  const std::string most(128, 'x');
  raw_request asked(peer_host.with_port(40001), header_of(peer_host), "who");
  auto request = s.request();
  REQUIRE(request);
  is_error(request->accept(s.b.ep, bytes_of(most + 'x')), return_type::invalid_parameter, return_subtype::arg4);
  is_error(request->accept(other.ep), return_type::invalid_handle, return_subtype::handle_ep);
  is_error(request->accept(disconnected), return_type::invalid_state, return_subtype::ep_disconnected);
  dat::ep<dat::ud> none;
  is_error(request->accept(none), return_type::invalid_handle, return_subtype::handle_ep);
  is_error(request->reject(bytes_of(most + 'x')), return_type::invalid_parameter, return_subtype::arg2);
  fake::fail(fake::call::rdma_accept, 1, ENOMEM);
  const auto failed = request->accept(s.b.ep);
  is_error(failed, return_type::insufficient_resources, return_subtype::resource_tep);
  CHECK(failed.error().verb() == "rdma_accept");
  CHECK(failed.error().sys_errno() == ENOMEM);
  CHECK(*request);
  CHECK_FALSE(asked.next());
  must(request->accept(s.b.ep, bytes_of(most)));
  CHECK_FALSE(*request);
  CHECK(asked.next() == RDMA_CM_EVENT_ESTABLISHED);
  CHECK(std::holds_alternative<dat::ib::datagram_established>(must(s.b.evd.dequeue())));
}

TEST_CASE("a datagram service needs a port, an evd of its ia, and a free port", "[ud]") {
  const clean_world clean;
  datagram_end b("fk2");
  datagram_end other("fk1");
  dat::ib::datagram_service none;
  CHECK_FALSE(none);
  CHECK(none.port() == 0);
  is_error(none.close(), return_type::invalid_handle, return_subtype::handle_psp);
  dat::ia no_ia;
  is_error(dat::ib::datagram_service::listen(no_ia, service, b.evd), return_type::invalid_handle,
           return_subtype::handle_ia);
  is_error(dat::ib::datagram_service::listen(b.ia, service, other.evd), return_type::invalid_handle,
           return_subtype::handle_evd_cr);
  const auto before = fake::live().ids;
  auto listener = must(dat::ib::datagram_service::listen(b.ia, service, b.evd));
  CHECK(listener);
  CHECK(listener.port() == service);
  const auto with_listener = fake::live().ids;
  const auto second = dat::ib::datagram_service::listen(b.ia, service, b.evd);
  is_error(second, return_type::conn_qual_in_use);
  CHECK(second.error().call() == "datagram_service.listen");
  CHECK(fake::live().ids == with_listener);
  must(listener.close());
  CHECK(fake::live().ids == before);
}
