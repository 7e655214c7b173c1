// Events in words: names, messages, causes and reasons, and their printing by <dat/describe.hpp>.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/describe.hpp>
#include <dat/ud.hpp>

#include <set>
#include <sstream>
#include <string_view>

using namespace unit;

namespace {

template <class... E>
std::vector<std::string_view> names_of(std::variant<E...>*) {
  return {E::name...};
}

/// The one event of type E that is queued.
template <class E>
E only(end& of) {
  auto e = must(of.evd.dequeue());
  if (!std::holds_alternative<E>(e)) FAIL("not " << E::name << " but " << dat::describe(e));
  return std::get<E>(std::move(e));
}
std::string on(std::string_view name, const dat::ep<dat::rc>& ep) {
  return std::string(name) + " on ep (qp " + std::to_string(ep.number()) + ")";
}

} // namespace

TEST_CASE("each event has a name of its own", "[event]") {
  constexpr auto all = dat::stream::dto | dat::stream::rmr_bind | dat::stream::connection |
                       dat::stream::connection_requests | dat::stream::software | dat::stream::async |
                       dat::stream::datagrams;
  const auto names = names_of(static_cast<dat::event<all>*>(nullptr));
  CHECK(std::set(names.begin(), names.end()).size() == names.size());
  CHECK(std::ranges::none_of(names, &std::string_view::empty));
}

TEST_CASE("completions say what they completed", "[event]") {
  const clean_world world;
  pair p;
  must(p.b.ep.post(dat::recv{p.b.mem}.cookie(5)));
  must(p.a.ep.post(dat::send{p.a.at(0, 64)}.cookie(7)));
  p.settle();
  std::ostringstream out;
  p.a.evd.drain([&](const auto& e) { out << e << '\n'; });
  p.b.evd.drain([&](const auto& e) { out << e << '\n'; });
  CHECK(out.str() ==
        on("send_done", p.a.ep) + ": 64 bytes, cookie 7\n" + on("recv_done", p.b.ep) + ": 64 bytes, cookie 5\n");
}

TEST_CASE("an event is read as its own type, and its name is in the error of another", "[event][mistakes]") {
  const clean_world world;
  pair p;
  must(p.b.ep.post(dat::recv{p.b.mem}));
  must(p.a.ep.post(dat::send{p.a.at(0, 64)}.cookie(7)));
  p.settle();
  auto e = must(p.a.evd.dequeue());
  CHECK(dat::get<dat::send_done>(e).bytes() == 64);
  CHECK(dat::get<dat::send_done>(std::as_const(e)).cookie() == 7);
  CHECK(dat::get_if<dat::send_done>(&e) == &std::get<dat::send_done>(e));
  CHECK(dat::get_if<dat::established>(&std::as_const(e)) == nullptr);
  CHECK_THROWS_WITH(dat::get<dat::established>(e), support::contains_text("dat::get") &&
                                                       support::contains_text("\"send_done\"") &&
                                                       support::contains_text("wait_for<E>"));
  CHECK(dat::get<dat::send_done>(std::move(e)).bytes() == 64);
}

TEST_CASE("a connection that ends says which side ended it", "[event][connection]") {
  const clean_world world;
  pair p;
  must(p.a.ep.disconnect(dat::close_mode::abrupt));
  p.settle();
  const auto near = only<dat::disconnected>(p.a);
  const auto far = only<dat::disconnected>(p.b);
  CHECK(near.reason() == dat::end_reason::local);
  CHECK(far.reason() == dat::end_reason::peer);
  CHECK(near.message() == on("disconnected", p.a.ep) + ": This side ended the connection.");
  CHECK_THAT(far.message(), support::contains_text("The peer ended the connection"));
}

TEST_CASE("a connection that breaks says why", "[event][connection]") {
  const clean_world world;
  pair p;
  SECTION("because an operation failed") {
    fake::hold(p.a.ep.native_handle());
    must(p.a.ep.post(dat::send{p.a.at(0, 8)}));
    REQUIRE(fake::complete(p.a.ep.native_handle(), {}, IBV_WC_RETRY_EXC_ERR));
    const auto failed = only<dat::dto_failure>(p.a);
    CHECK(failed.cause() == dat::usual_cause(dat::dto_status::transport));
    p.settle();
    const auto broken = only<dat::connection_broken>(p.a);
    CHECK(broken.reason() == dat::end_reason::operation_failed);
    CHECK_THAT(broken.message(), support::contains_text("its dto_failure has the cause"));
  }
  SECTION("because an evd lost completions") {
    fake::async(IBV_EVENT_CQ_ERR, p.a.evd.native_handle());
    p.settle();
    const auto broken = only<dat::connection_broken>(p.a);
    CHECK(broken.reason() == dat::end_reason::completions_lost);
    CHECK_THAT(broken.message(), support::contains_text("was full and lost completions"));
  }
  SECTION("because the device failed") {
    fake::async(IBV_EVENT_QP_FATAL, p.a.ep.native_handle());
    p.settle();
    CHECK(only<dat::connection_broken>(p.a).reason() == dat::end_reason::device_failed);
  }
  SECTION("because the connection manager reports its end") {
    fake::deliver({.event = RDMA_CM_EVENT_CONNECT_ERROR, .qp_num = p.a.ep.number()});
    p.settle();
    CHECK(only<dat::connection_broken>(p.a).reason() == dat::end_reason::connection_manager);
  }
  SECTION("because the device was removed") {
    fake::deliver({.event = RDMA_CM_EVENT_DEVICE_REMOVAL, .qp_num = p.a.ep.number()});
    p.settle();
    CHECK(only<dat::connection_broken>(p.a).reason() == dat::end_reason::device_failed);
  }
}

TEST_CASE("a refused connection says whether a program dropped the request or none listens", "[event][connection]") {
  const clean_world world;
  end a("fk1");
  end b("fk2");
  a.make_ep();
  std::string expected;
  SECTION("none listens") {
    must(a.ep.connect(b.ia.address(), service, plenty));
    CHECK(a.ep.state() == dat::ep_state::active_connection_pending);
    expected = "no program listens there";
  }
  SECTION("a program dropped the request") {
    auto psp = must(b.ia.create_psp(service, b.evd));
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle(a, b);
    {
      const auto request = request_on(b.evd);
      CHECK(request.message() == "connection_request from " + request.remote_address().to_string());
    }
    expected = "the peer's program dropped the request without an answer";
    settle(a, b);
  }
  settle(a, b);
  const auto refused = only<dat::non_peer_rejected>(a);
  CHECK_THAT(refused.message(), support::contains_text(expected));
  CHECK_THAT(std::string(refused.cause()), support::contains_text(expected));
}

TEST_CASE("asynchronous events name their object", "[event][ia]") {
  const clean_world world;
  pair p;
  const auto first = [&] { return dat::describe(must(p.a.ia.async_evd().dequeue())); };
  fake::async(IBV_EVENT_CQ_ERR, p.a.evd.native_handle());
  p.settle();
  CHECK_THAT(first(), Catch::Matchers::StartsWith("evd_overflow of evd ") &&
                          support::contains_text("create it with a larger qlen"));
  fake::async(IBV_EVENT_PORT_ERR, p.a.ia.native_handle());
  p.settle();
  CHECK(first() == "port_down");
  (void)p.b.take();
}
