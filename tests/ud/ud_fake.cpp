// Datagram endpoints, groups and descriptors, with failures that a device does not show on demand.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/buffer.hpp>
#include <dat/descriptor.hpp>
#include <dat/multicast.hpp>
#include <dat/ud.hpp>

#include <support/sealed_descriptor.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>

using namespace unit;

namespace {

using queue = dat::evd<ud_streams>;
using datagrams = dat::ep<dat::ud>;

struct describe_datagrams : describe {
  using describe::operator();
  std::string operator()(const dat::ib::datagram_send_done& e) const {
    return "sent " + std::to_string(e.cookie().value());
  }
  std::string operator()(const dat::ib::datagram_recv_done& e) const {
    return "received " + std::to_string(e.cookie().value());
  }
  std::string operator()(const dat::ib::datagram_established&) const { return "known"; }
  std::string operator()(const dat::ib::group_joined&) const { return "joined"; }
  std::string operator()(const dat::ib::datagram_request&) const { return "asked"; }
};

struct ud_end {
  std::array<char, 4096> memory{};
  dat::ia ia;
  dat::pz pz;
  queue evd;
  region mem;
  datagrams ep;
};

/// Runs through all operations of datagram endpoints. The first failure ends the run and is its result.
class ud_flow {
public:
  std::string run() {
    if (!both() && why_.empty()) why_ = "no reason";
    return why_;
  }

private:
  template <class T>
  bool is(dat::expected<T>&& r, T& to) {
    if (!r) return why_ = r.error().message(), false;
    to = std::move(r).value();
    return true;
  }
  bool is(dat::expected<void>&& r) { return r ? true : (why_ = r.error().message(), false); }
  void settle() { unit::settle(a_.ia, b_.ia); }
  /// Takes the next event of a side, which must be an E.
  template <class E>
  std::optional<E> take(ud_end& at) {
    settle();
    auto e = at.evd.dequeue();
    if (!e) {
      why_ = "nothing came: " + e.error().message();
      return {};
    }
    if (auto* wanted = std::get_if<E>(&e.value())) return std::move(*wanted);
    why_ = "event " + std::visit(describe_datagrams{}, e.value());
    return {};
  }
  bool open(ud_end& e, const char* device) {
    return is(dat::ia::open(device, manual), e.ia) && is(e.ia.create_pz(), e.pz) &&
           is(e.ia.create_evd<ud_streams>(64), e.evd) && is(e.pz.register_memory(e.memory, all_rights), e.mem) &&
           is(e.pz.create_ep<dat::ud>(e.evd), e.ep);
  }
  auto part(ud_end& e, std::size_t first, std::size_t n) { return must(e.mem.slice(first, n)); }
  /// Sends one message from a to b by `to`.
  bool send(const dat::ib::address_handle& to, const char* text) {
    std::memcpy(a_.memory.data(), text, 5);
    if (!is(b_.ep.post(dat::recv{part(b_, 0, 64)}.cookie(1)))) return false;
    if (!is(a_.ep.post(dat::ib::send_to{part(a_, 0, 5), to}.cookie(2)))) return false;
    if (!take<dat::ib::datagram_send_done>(a_)) return false;
    const auto got = take<dat::ib::datagram_recv_done>(b_);
    if (!got) return false;
    const dat::ib::datagram_view view(*got, part(b_, 0, 64));
    CHECK(text_of(view.payload()) == std::string_view(text, 5));
    CHECK(got->source_qp_number() == a_.ep.number());
    CHECK(view.header().source() == must(dat::ia_address::parse("10.99.1.1")));
    last_ = view.header();
    event_ = got;
    return true;
  }
  bool both() {
    if (!open(a_, "fk1") || !open(b_, "fk2")) return false;
    dat::ib::datagram_service service;
    if (!is(dat::ib::datagram_service::listen(b_.ia, unit::service, b_.evd), service)) return false;
    if (!is(a_.ep.connect(b_.ia.address(), unit::service, plenty, bytes_of("who")))) return false;
    auto request = take<dat::ib::datagram_request>(b_);
    if (!request) return settle(), false;
    CHECK(text_of(request->private_data()) == "who");
    if (!is(request->accept(b_.ep, bytes_of("me")))) return false;
    const auto at_b = take<dat::ib::datagram_established>(b_);
    const auto at_a = at_b ? take<dat::ib::datagram_established>(a_) : std::nullopt;
    if (!at_a) return false;
    CHECK(unpadded(at_a->private_data()) == "me");
    dat::ib::address_handle to_b;
    dat::ib::address_handle to_a;
    if (!is(at_a->peer(), to_b) || !is(at_b->peer(), to_a) || !send(to_b, "hello")) return false;
    dat::ib::address_handle reply;
    if (!is(b_.ep.reply_to(*event_, last_), reply)) return false;
    CHECK(reply.qp_number() == a_.ep.number());
    // The endpoints exchange descriptors.
    dat::ib::descriptor where;
    dat::ib::address_handle found;
    if (!is(b_.ep.export_descriptor(), where) || !is(a_.ep.connect(where), found) || !send(found, "again"))
      return false;
    if (!connections()) return false;
    // A group, whose membership a reset keeps.
    dat::ib::multicast_group group;
    if (!is(dat::ib::multicast_group::join(b_.ep, must(dat::ia_address::parse("239.1.2.3"))), group)) return false;
    if (!take<dat::ib::group_joined>(b_)) return false;
    if (!is(b_.ep.disconnect()) || !take<dat::disconnected>(b_) || !is(b_.ep.reset())) return false;
    dat::ib::multicast_group sender;
    if (!is(dat::ib::multicast_group::join(a_.ep, must(dat::ia_address::parse("239.1.2.3")),
                                           dat::ib::membership::send_only),
            sender))
      return false;
    dat::ib::address_handle all;
    if (!take<dat::ib::group_joined>(a_) || !is(sender.peer(), all) || !send(all, "group")) return false;
    return is(group.leave()) && is(a_.ep.close()) && is(service.close());
  }
  bool connections() {
    dat::ep<dat::rc> near;
    dat::ep<dat::rc> far;
    dat::ib::descriptor of_near;
    dat::ib::descriptor of_far;
    if (!is(a_.pz.create_ep<dat::rc>(a_.evd), near) || !is(b_.pz.create_ep<dat::rc>(b_.evd), far) ||
        !is(near.export_descriptor(), of_near) || !is(far.export_descriptor(), of_far))
      return false;
    if (!is(far.post(dat::recv{part(b_, 0, 64)})) || !is(near.connect(of_far)) || !is(far.connect(of_near)))
      return false;
    if (!take<dat::established>(a_) || !take<dat::established>(b_)) return false;
    if (!is(near.post(dat::send{part(a_, 0, 5)}.immediate(7)))) return false;
    const auto done = take<dat::send_done>(a_);
    const auto got = done ? take<dat::ib::recv_immediate_done>(b_) : std::nullopt;
    if (!got) return false;
    CHECK(got->immediate() == 7);
    return true;
  }

  ud_end a_;
  ud_end b_;
  std::string why_;
  dat::ib::grh last_{};
  std::optional<dat::ib::datagram_recv_done> event_;
};

} // namespace

TEST_CASE("every failing call of datagrams, groups and descriptors is returned and leaves no resource behind",
          "[ud][descriptor][multicast]") {
  const fake::with roce{fake::personality::kind};
  const auto result = fake::for_each_failure([](const fake::injected& i) {
    const std::string told = ud_flow().run();
    INFO(i.text() << " -> " << told);
    if (!i.active) CHECK(told.empty());
    // A failure that no call can return becomes an event. Two failures need no report: of reading a table of which one
    // entry is used, and an adapter without an address.
    if (!told.empty() && !told.starts_with("event") && !told.starts_with("nothing came")) {
      const std::string_view name = fake::name(i.which);
      if (!name.starts_with("ibv_reg_mr") && !name.starts_with("ibv_query_gid") && name != "rdma_bind_addr")
        CHECK_THAT(told, support::contains_text(std::string(name.substr(0, name.find("_ex")))));
    }
  });
  for (const auto& d : result.dirty) UNSCOPED_INFO(d);
  CHECK(result.dirty.empty());
  CHECK(result.runs > 50);
}

namespace {

/// Two sides whose endpoints have each other's address by descriptors.
struct known_pair {
  ud_end a;
  ud_end b;
  dat::ib::address_handle to_b;
  known_pair() {
    for (auto* e : {&a, &b}) {
      e->ia = must(dat::ia::open(e == &a ? "fk1" : "fk2", manual));
      e->pz = must(e->ia.create_pz());
      e->evd = must(e->ia.create_evd<ud_streams>(64));
      e->mem = must(e->pz.register_memory(e->memory, all_rights));
      e->ep = must(e->pz.create_ep<dat::ud>(e->evd, {.max_request_dtos = 4}));
    }
    to_b = must(a.ep.connect(must(b.ep.export_descriptor())));
  }
  [[nodiscard]] auto out(std::size_t n) { return must(a.mem.slice(0, n)); }
  [[nodiscard]] std::vector<std::string> events_of(ud_end& e) {
    std::vector<std::string> all;
    while (e.evd.drain([&](const auto& x) { all.push_back(describe_datagrams{}(x)); }) != 0) {
    }
    return all;
  }
};

} // namespace

TEST_CASE("a dropped address handle is kept until its sends have completed", "[ud][IBX-063]") {
  clean_world world;
  known_pair p;
  fake::hold(p.a.ep.native_handle());
  must(p.a.ep.post(dat::ib::send_to{p.out(1), p.to_b}.cookie(1)));
  must(p.a.ep.post(dat::ib::send_to{p.out(1), p.to_b}.cookie(2).suppress_completion()));
  auto other = must(p.a.ep.connect(must(p.b.ep.export_descriptor())));
  must(p.a.ep.post(dat::ib::send_to{p.out(1), other}.cookie(3)));
  p.to_b = {};
  other = {};
  CHECK(fake::live().ahs == 2);
  REQUIRE(fake::complete(p.a.ep.native_handle()));
  CHECK(p.events_of(p.a) == std::vector<std::string>{"sent 1"});
  auto third = must(p.a.ep.connect(must(p.b.ep.export_descriptor())));
  CHECK(fake::live().ahs == 3); // the suppressed send may still be outstanding
  fake::hold(p.a.ep.native_handle(), false);
  CHECK(p.events_of(p.a) == std::vector<std::string>{"sent 3"});
  third = {};
  CHECK(fake::live().ahs == 0);
  CHECK(fake::violations().empty());
}

TEST_CASE("refused sends do not end an address handle that other sends still use", "[ud][IBX-063]") {
  clean_world world;
  known_pair p;
  fake::hold(p.a.ep.native_handle());
  auto other = must(p.a.ep.connect(must(p.b.ep.export_descriptor())));
  const auto refuse_one = [&] {
    fake::fail(fake::call::ibv_post_send, 1, ENOMEM);
    CHECK_FALSE(p.a.ep.post(dat::ib::send_to{p.out(1), other}));
    fake::fail(fake::call::ibv_post_send, 1, ENOMEM);
    CHECK_FALSE(p.a.ep.post(dat::ib::send_to{p.out(1), other}, dat::ib::send_to{p.out(1), other}));
  };
  refuse_one();
  must(p.a.ep.post(dat::ib::send_to{p.out(1), p.to_b}.cookie(1)));
  p.to_b = {};
  refuse_one();
  auto third = must(p.a.ep.connect(must(p.b.ep.export_descriptor()))); // frees handles that no send uses
  CHECK(fake::live().ahs == 3);
  fake::hold(p.a.ep.native_handle(), false);
  CHECK(p.events_of(p.a) == std::vector<std::string>{"sent 1"});
  third = {};
  other = {};
  CHECK(fake::live().ahs == 0);
  CHECK(fake::violations().empty());
}

TEST_CASE("an address handle that outlives its endpoint is harmless and names no peer", "[ud]") {
  clean_world world;
  known_pair p;
  auto kept = std::move(p.to_b);
  p.a.ep = {};
  CHECK(fake::live().ahs == 0);
  p.a.ep = must(p.a.pz.create_ep<dat::ud>(p.a.evd));
  CHECK(p.a.ep.post(dat::ib::send_to{p.out(1), kept}).error().type() == dat::return_type::protection_violation);
  CHECK(p.b.ep.post(dat::ib::send_to{kept}).error().type() == dat::return_type::protection_violation);
}

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

TEST_CASE("a datagram endpoint whose device fails breaks once and can be reset", "[ud][IBX-068]") {
  clean_world world;
  known_pair p;
  must(p.a.ep.post(dat::recv{must(p.a.mem.slice(0, 64))}.cookie(4)));
  fake::hold(p.a.ep.native_handle());
  must(p.a.ep.post(dat::ib::send_to{p.out(3), p.to_b}.cookie(5)));
  REQUIRE(fake::complete(p.a.ep.native_handle(), {}, IBV_WC_LOC_QP_OP_ERR));
  auto seen = p.events_of(p.a);
  p.a.ia.run();
  for (auto& e : p.events_of(p.a)) seen.push_back(e);
  CHECK(std::ranges::count(seen, "broken") == 1);
  CHECK(std::ranges::count(seen, "flushed 4") == 1);
  CHECK(p.a.ep.state() == dat::ep_state::disconnected);
  must(p.a.ep.reset());
  CHECK(p.a.ep.state() == dat::ep_state::connected);
  must(p.a.ep.post(dat::ib::send_to{p.out(3), p.to_b}.cookie(6)));
  CHECK(p.events_of(p.a) == std::vector<std::string>{"sent 6"});
  // The failure does not change the queue pair, but its receives are flushed.
  must(p.a.ep.post(dat::recv{must(p.a.mem.slice(0, 64))}.cookie(7)));
  fake::async(IBV_EVENT_QP_FATAL, p.a.ep.native_handle());
  p.a.ia.run();
  auto both = p.events_of(p.a);
  std::ranges::sort(both);
  CHECK(both == std::vector<std::string>{"broken", "flushed 7"});
}

TEST_CASE("a full queue of datagrams refuses posts, and takes posts again when completions are taken",
          "[ud][IBX-066]") {
  clean_world world;
  known_pair p;
  fake::hold(p.a.ep.native_handle());
  for (std::uint64_t i = 0; i < 4; ++i) must(p.a.ep.post(dat::ib::send_to{p.to_b}.cookie(i)));
  CHECK(p.a.ep.post(dat::ib::send_to{p.to_b}).error().type() == dat::return_type::insufficient_resources);
  fake::hold(p.a.ep.native_handle(), false);
  CHECK(p.events_of(p.a).size() == 4);
  must(p.a.ep.post(dat::ib::send_to{p.to_b}, dat::ib::send_to{p.out(2), p.to_b}));
  CHECK(p.events_of(p.a).size() == 2);
  fake::fail(fake::call::ibv_post_send, 1, EIO);
  CHECK(p.a.ep.post(dat::ib::send_to{p.to_b}).error().sys_errno() == EIO);
  must(p.a.ep.post(dat::ib::send_to{p.to_b}));
  CHECK(p.events_of(p.a).size() == 1);
}

TEST_CASE("a descriptor is refused unless every bit is valid", "[descriptor][DOCA-031]") {
  clean_world world;
  end e;
  e.make_ep();
  const auto good = must(e.ep.export_descriptor()).to_wire();
  CHECK(must(dat::ib::descriptor::from_wire(good)).to_wire() == good);
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    auto bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    if (dat::ib::descriptor::from_wire(bad)) FAIL("bit " << bit << " does not matter");
  }
  std::vector<std::byte> longer(good.begin(), good.end());
  longer.push_back({});
  for (std::size_t n = 0; n <= longer.size(); ++n)
    CHECK(dat::ib::descriptor::from_wire(std::span(longer).first(n)).has_value() == (n == good.size()));
  auto swapped = good;
  std::swap(swapped[6], swapped[7]);
  CHECK_THAT(dat::ib::descriptor::from_wire(swapped).error().message(), support::contains_text("byte order"));
  auto newer = good;
  newer[4] = std::byte{2};
  CHECK_THAT(dat::ib::descriptor::from_wire(newer).error().message(), support::contains_text("version"));
}

TEST_CASE("a hostile descriptor gives an error, or a connection to the endpoint it names", "[descriptor][DOCA-031]") {
  clean_world world;
  end e;
  queue evd = must(e.ia.create_evd<ud_streams>(8));
  auto ud = must(e.pz.create_ep<dat::ud>(evd));
  std::mt19937 random(20240607);
  std::size_t taken = 0;
  for (int i = 0; i < 2000; ++i) {
    e.make_ep();
    auto w = must(e.ep.export_descriptor()).to_wire();
    const auto changes = 1 + random() % 6;
    for (std::size_t n = 0; n < changes; ++n) w[4 + random() % 56] = static_cast<std::byte>(random());
    if (random() % 4 == 0)
      for (auto& b : w) b = static_cast<std::byte>(random());
    if (random() % 8 != 0) {
      std::memcpy(w.data(), "DATE\1", 5);
      w[6] = std::byte{1};
      w[7] = std::byte{2};
    }
    support::seal(w);
    const auto d = dat::ib::descriptor::from_wire(w);
    if (!d) continue;
    ++taken;
    const auto r = e.ep.connect(d.value());
    CHECK((e.ep.state() == dat::ep_state::connected) == r.has_value());
    (void)ud.connect(d.value());
    e.evd.drain([](const auto&) {});
  }
  CHECK(taken > 0);
  CHECK(taken < 2000);
}

TEST_CASE("a connection by descriptors that the device refuses half way needs a reset", "[descriptor]") {
  clean_world world;
  end a("fk1");
  end b("fk2");
  a.make_ep();
  b.make_ep();
  must(a.ep.post(dat::recv{a.at(0, 10)}.cookie(1)));
  const auto to_b = must(b.ep.export_descriptor());
  fake::fail(fake::call::ibv_modify_qp, 1, EIO);
  CHECK(a.ep.connect(to_b).error().sys_errno() == EIO);
  CHECK(a.ep.state() == dat::ep_state::unconnected);   // its receive is still posted
  fake::fail(fake::call::ibv_modify_qp, 1, ETIMEDOUT); // the host does not answer
  CHECK(a.ep.connect(to_b).error().type() == dat::return_type::invalid_address);
  fake::fail(fake::call::ibv_modify_qp, 2, EIO);
  CHECK_THAT(a.ep.connect(to_b).error().message(), support::contains_text("reset"));
  CHECK(a.ep.state() == dat::ep_state::disconnected);
  CHECK(a.take() == events{"non_peer_rejected 5", "flushed 1"});
  must(a.ep.reset());
  must(a.ep.connect(to_b));
  must(b.ep.connect(must(a.ep.export_descriptor())));
  CHECK(a.take() == events{"established"});
}

TEST_CASE("the address of a datagram peer has a handle of a type of its own", "[ud][type][IBX-011]") {
  using address = dat::ib::address_handle;
  STATIC_REQUIRE_FALSE(std::is_convertible_v<address, dat::ep_ref>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<dat::ep<dat::ud>, address>);
  STATIC_REQUIRE(std::is_nothrow_move_constructible_v<address>);
}

TEST_CASE("extension events carry at most 64 bytes", "[ud][IBX-015]") {
  STATIC_REQUIRE(sizeof(dat::ib::datagram_recv_immediate_done) <= 64);
  STATIC_REQUIRE(sizeof(dat::ib::recv_immediate_done) <= 64);
  STATIC_REQUIRE(sizeof(dat::ib::datagram_established) <= 64);
  STATIC_REQUIRE(sizeof(dat::ib::datagram_request) <= 64);
  STATIC_REQUIRE(sizeof(dat::ib::datagram_send_done) <= 64);
  STATIC_REQUIRE(sizeof(dat::ib::datagram_recv_done) <= 64);
  STATIC_REQUIRE(sizeof(dat::ib::recv_write_immediate_done) <= 64);
  STATIC_REQUIRE(sizeof(dat::ib::rdma_write_immediate_done) <= 64);
  STATIC_REQUIRE(sizeof(dat::ib::fetch_and_add_done) <= 64);
  STATIC_REQUIRE(sizeof(dat::ib::compare_and_swap_done) <= 64);
}

TEST_CASE("the data section of a buffer grows piece by piece, and never beyond its room",
          "[DOCA-009][DOCA-010][DOCA-013]") {
  clean_world world;
  std::array<std::byte, 48> bytes{};
  auto ia = must(dat::ia::open("fk1", manual));
  auto pz = must(ia.create_pz());
  auto region = must(pz.register_memory(bytes, all_rights));
  dat::buffer<3, all_rights.value> chain;
  for (std::size_t i = 0; i < 3; ++i) REQUIRE(chain.push_back(must(region.slice(16 * i, 16))));
  CHECK_FALSE(chain.push_back(must(region.slice(0, 1))));
  REQUIRE(chain.append(40));
  CHECK(chain.data_size(0) == 16);
  CHECK(chain.data_size(1) == 16);
  CHECK(chain.data_size(2) == 8);
  CHECK(chain.room().size_bytes() == 8);
  CHECK(chain.data().size() == 3);
  CHECK_FALSE(chain.append(9));
  CHECK(chain.data_size() == 40);
  dat::buffer<1, all_rights.value> small;
  CHECK_FALSE(small.push_back(must(region.slice(0, 4)), 5));
  CHECK(small.pieces() == 0);
  dat::remote_buffer<all_rights.value> remote(region.remote(), 100);
  CHECK(remote.data_size() == 48);
  CHECK_FALSE(remote.append(1));
  CHECK(remote.data(7).size() == 7);
}
