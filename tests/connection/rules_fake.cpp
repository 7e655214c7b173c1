// Connection rules that need a scripted world: late answers, unusual rejects, dead peers, queries from other threads.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/csp.hpp>
#include <dat/ep_params.hpp>
#include <dat/rsp.hpp>
#include <dat/srq.hpp>

#include <support/worker.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <netinet/in.h>
#include <type_traits>

using namespace unit;
using dat::ep_state;
using dat::return_subtype;
using dat::return_type;

namespace {

constexpr dat::communicator tcp{AF_INET, SOCK_STREAM, 0};

/// Two sides; the passive one listens.
struct two_adapters {
  clean_world world;
  end a{"fk1"};
  end b{"fk2"};
  dat::psp psp = must(b.ia.create_psp(service, b.evd));

  void settle() { unit::settle(a, b); }
  dat::cr ask(std::string_view data = {}) {
    if (!a.ep) a.make_ep();
    must(a.ep.connect(b.ia.address(), service, plenty, bytes_of(data)));
    settle();
    return request_on(b.evd);
  }
};

// A member of the name `modify`, whatever its parameters, makes the name ambiguous in `named_twice`.
struct has_the_name {
  void modify();
};
template <class T>
struct named_twice : T, has_the_name {};
template <class T>
concept has_no_modify = requires {
  &named_twice<T>::modify;
};
template <class T>
concept names_the_unchangeable = requires(T& c) {
  c.state;
}
|| requires(T& c) { c.srq; }
|| requires(T& c) { c.remote_address; }
|| requires(T& c) { c.number; }
|| requires(T& c) { c.soft_high_watermark; }
|| requires(T& c) { c.hard_high_watermark; }
|| requires(T& c) { c.local_port; }
|| requires(T& c) { c.ia; };
template <class T>
concept changeable = requires(T& t, dat::ep_changes c) {
  t.modify(c);
};
template <class T>
concept takes_size_and_pointer = requires(T& t, std::size_t n, const std::byte* p) {
  t.reject(n, p);
};
template <class T>
concept accepts_size_and_pointer = requires(T& t, dat::ep<dat::rc>& ep, std::size_t n, const std::byte* p) {
  t.accept(ep, n, p);
};
template <class T>
concept queried = requires(const T& t) {
  t.query().value();
};
template <class T>
concept has_data = requires(const T& t) {
  t.remote_address();
  t.private_data();
  t.service();
};
template <class T>
concept takes_mask = requires(T& t, std::uint64_t mask) {
  t.query(mask);
};
template <class T>
concept modifies_by_mask = requires(T& t, std::uint64_t mask, const dat::ep_params& p) {
  t.modify(mask, p);
};
template <class T>
concept takes_out_pointers = requires(T& t, std::uint32_t* p) {
  t.recv_query(p, p);
};
template <class Options>
concept duplicates_with = requires(dat::ep<dat::rc>& ep, const Options& o) {
  ep.dup_connect(ep, dat::timeout(1), std::span<const std::byte>(), o);
};
template <class Options>
concept connects_commonly_with = requires(dat::ep<dat::rc>& ep, dat::ia_address a, const Options& o) {
  ep.common_connect(a, dat::timeout(1), std::span<const std::byte>(), o);
};
template <class T>
concept connects_with_pointer = requires(T& t, dat::ia_address a, std::size_t n, const std::byte* p) {
  t.connect(a, dat::conn_qual(7), dat::timeout(1), n, p);
};
template <class T>
concept connects_commonly_by_qualifier = requires(T& t, dat::ia_address a) {
  t.common_connect(a, dat::conn_qual(7), dat::timeout(1));
};
template <class T>
concept connects_from_port = requires(T& t, dat::ia_address a) {
  t.connect(a, dat::conn_qual(7), dat::conn_qual(8), dat::timeout(1));
};
template <class T>
concept names_own_address = requires(T& t) {
  t.local_address;
}
|| requires(T& t) { t.local_port; };
using requests_evd = dat::evd<dat::stream::connection_requests>;
template <class IA, class... Options>
concept creates_psp_with = requires(IA& ia, const requests_evd& evd) {
  ia.create_psp(dat::conn_qual(7), evd, std::declval<Options>()...);
};
template <class IA, class... Options>
concept creates_csp_with = requires(IA& ia, const requests_evd& evd) {
  ia.create_csp(tcp, dat::ia_address(), evd, std::declval<Options>()...);
};
template <class T>
concept connects = requires(T& t, dat::ia_address a) {
  t.connect(a, dat::conn_qual(7), dat::timeout(1));
};

} // namespace

TEST_CASE("service points and requests cannot be modified, and only endpoints connect",
          "[type][CONN-006][CR-024][EP-050][EP-063]") {
  STATIC_REQUIRE(changeable<dat::ep<dat::rc>>);
  STATIC_REQUIRE_FALSE(has_no_modify<dat::ep<dat::rc>>);
  STATIC_REQUIRE(names_the_unchangeable<dat::ep_params>);
  STATIC_REQUIRE_FALSE(names_the_unchangeable<dat::ep_changes>);
  SHOWS("EP-069");
  SHOWS("EP-068");
  STATIC_REQUIRE(has_no_modify<dat::psp>);
  STATIC_REQUIRE(has_no_modify<dat::rsp>);
  STATIC_REQUIRE(has_no_modify<dat::csp>);
  STATIC_REQUIRE(queried<dat::psp>);
  STATIC_REQUIRE(queried<dat::rsp>);
  STATIC_REQUIRE(queried<dat::csp>);
  SHOWS("PSP-002");
  STATIC_REQUIRE(has_no_modify<dat::cr>);
  STATIC_REQUIRE(has_data<dat::cr>);
  SHOWS("CR-002");
  STATIC_REQUIRE_FALSE(connects<dat::ia>);
  STATIC_REQUIRE(connects<dat::ep<dat::rc>>);
  // Connect takes no local port, but modify does.
  STATIC_REQUIRE_FALSE(connects_from_port<dat::ep<dat::rc>>);
  STATIC_REQUIRE_FALSE(names_own_address<dat::connect_options>);
  STATIC_REQUIRE(names_own_address<dat::ep_changes>);
  SHOWS("ADDR-017");
  // A duplicate has a quality of service and no flags, a common connect neither.
  STATIC_REQUIRE(duplicates_with<dat::qos>);
  STATIC_REQUIRE_FALSE(duplicates_with<dat::connect_options>);
  SHOWS("CONN-090", "CONN-013", "CONN-084");
  STATIC_REQUIRE_FALSE(connects_commonly_with<dat::qos>);
  STATIC_REQUIRE_FALSE(connects_commonly_with<dat::connect_options>);
  STATIC_REQUIRE_FALSE(connects_commonly_by_qualifier<dat::ep<dat::rc>>);
  SHOWS("CONN-073");
  // The types imply the rule: data is a span with its size, attributes are an object and no pointer, and a query has no
  // mask.
  STATIC_REQUIRE_FALSE(takes_size_and_pointer<dat::cr>);
  STATIC_REQUIRE_FALSE(accepts_size_and_pointer<dat::cr>);
  STATIC_REQUIRE_FALSE(connects_with_pointer<dat::ep<dat::rc>>);
  SHOWS("CONN-044");
  STATIC_REQUIRE_FALSE(takes_mask<dat::cr>);
  SHOWS("CR-006");
  STATIC_REQUIRE_FALSE(takes_mask<dat::psp>);
  STATIC_REQUIRE_FALSE(takes_mask<dat::rsp>);
  STATIC_REQUIRE_FALSE(takes_mask<dat::csp>);
  SHOWS("PSP-041", "RSP-027", "CSP-021");
  // A psp has flags and no length of its own queue, and a csp has no flags.
  STATIC_REQUIRE((dat::psp_flags{0} == dat::psp_flags::consumer && dat::psp_flags{1} == dat::psp_flags::provider));
  SHOWS("PSP-017");
  STATIC_REQUIRE(creates_psp_with<dat::ia, dat::psp_flags>);
  STATIC_REQUIRE_FALSE(creates_psp_with<dat::ia, dat::psp_flags, std::uint32_t>);
  STATIC_REQUIRE_FALSE(creates_psp_with<dat::ia, std::uint32_t>);
  SHOWS("PSP-005");
  STATIC_REQUIRE(creates_csp_with<dat::ia>);
  STATIC_REQUIRE_FALSE(creates_csp_with<dat::ia, dat::psp_flags>);
  SHOWS("CSP-001");
  STATIC_REQUIRE_FALSE(dat::cr::truncated()); // a request cannot carry more data than private_data holds
  SHOWS("CR-009");
  // Attributes are no pointer that could be null, and each has a default.
  STATIC_REQUIRE_FALSE(std::is_constructible_v<dat::ep_attributes, std::nullptr_t>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<const dat::ep_attributes*, dat::ep_attributes>);
  STATIC_REQUIRE(dat::ep_attributes{.retry_count = 1}.max_recv_iov == dat::ep_attributes().max_recv_iov);
  SHOWS("EP-024");
  STATIC_REQUIRE_FALSE(takes_mask<dat::ep<dat::rc>>);
  STATIC_REQUIRE_FALSE(modifies_by_mask<dat::ep<dat::rc>>);
  SHOWS("EP-071");
  STATIC_REQUIRE(queried<dat::srq>);
  STATIC_REQUIRE_FALSE(takes_mask<dat::srq>);
  SHOWS("SRQ-054");
  STATIC_REQUIRE_FALSE(takes_out_pointers<dat::ep<dat::rc>>);
}

namespace {
int (*true_poll)(ibv_cq*, int, ibv_wc*);
std::atomic<bool> late{false};
} // namespace

TEST_CASE("completions flushed late by the device are reported once each", "[DISC-020]") {
  const auto flushed_late = [](auto& completions, end& a, end& b, dat::ep<dat::rc>& ep) {
    auto& ops = ep.native_handle()->context->ops;
    true_poll =
        std::exchange(ops.poll_cq, [](ibv_cq* cq, int n, ibv_wc* wc) { return late ? 0 : true_poll(cq, n, wc); });
    fake::hold(ep.native_handle());
    must(ep.post(dat::recv{}.cookie(1), dat::recv{}.cookie(2)));
    must(ep.post(dat::send{}.cookie(1), dat::send{}.cookie(2)));
    late = true;
    must(ep.disconnect());
    CHECK(ep.state() == ep_state::disconnected);
    settle(a, b);
    events all = take(completions);
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(completions)>, decltype(a.evd)>) {
      CHECK(all == events{"disconnected"}); // the event does not wait for the completions
      DEVIATES("REQ-071");
    }
    late = false;
    settle(a, b);
    for (const auto& e : take(completions)) all.push_back(e);
    CHECK(std::count(all.begin(), all.end(), "flushed 1") == 2);
    CHECK(std::count(all.begin(), all.end(), "flushed 2") == 2);
    must(ep.post(dat::recv{}.cookie(3)));
    settle(a, b);
    CHECK(take(completions) == events{"flushed 3"});
    must(ep.reset());
    settle(a, b);
    CHECK(take(completions).empty());
    ops.poll_cq = true_poll;
  };
  two_adapters t;
  SECTION("on a merged evd") {
    t.a.make_ep();
    t.b.make_ep();
    must(t.ask().accept(t.b.ep));
    t.settle();
    (void)t.a.take();
    flushed_late(t.a.evd, t.a, t.b, t.a.ep);
  }
  SECTION("on a completions-only evd") {
    auto completions_only = must(t.a.ia.create_evd<dat::stream::dto>(16));
    t.a.ep =
        must(t.a.pz.create_ep<dat::rc>({.recv = completions_only, .request = completions_only, .connect = t.a.evd}));
    t.b.make_ep();
    must(t.ask().accept(t.b.ep));
    t.settle();
    flushed_late(completions_only, t.a, t.b, t.a.ep);
  }
}

TEST_CASE("an accept that fails in its last step gives an event, and the peer is refused",
          "[CR-039][CR-041][EPS-025][EPS-027]") {
  for (const int err : {EINVAL, ENOMEM, EIO}) {
    two_adapters t;
    t.b.make_ep();
    must(t.b.ep.post(dat::recv{t.b.at(0, 8)}.cookie(1)));
    auto request = t.ask();
    // dat checks the consumer's arguments first, so no such errno can be caused by an argument.
    is_error(t.b.pz.create_ep<dat::rc>(t.b.evd, {.max_rdma_read_in = std::uint8_t{200}}),
             return_type::invalid_parameter, return_subtype::arg7);
    is_error(request.accept(t.b.ep, std::array<std::byte, 57>{}), return_type::invalid_parameter, return_subtype::arg4);
    is_error(request.accept(t.b.ep, {}, {.qos = {.service_level = 16}}), return_type::invalid_parameter,
             return_subtype::arg6);
    CHECK((request && t.b.ep.state() == ep_state::unconnected && t.b.take().empty()));
    fake::fail(fake::call::rdma_accept, 1, err);
    must(request.accept(t.b.ep));
    t.settle();
    CHECK(t.b.ep.state() == ep_state::disconnected);
    auto seen = t.b.take();
    std::sort(seen.begin(), seen.end());
    CHECK(seen == events{"accept_completion_error " + std::to_string(err), "flushed 1"});
    CHECK(t.a.take() == events{"non_peer_rejected 28"});
  }
}

TEST_CASE("connect is repeated within its time limit while the peer still has an older connection",
          "[CONN-069][CONN-022][EPS-013]") {
  two_adapters t;
  t.a.make_ep();
  must(t.a.ep.post(dat::recv{t.a.at(0, 8)}.cookie(1)));
  const auto stale = [&] {
    fake::deliver({.event = RDMA_CM_EVENT_REJECTED, .status = 10, .qp_num = t.a.ep.number()});
    t.settle();
  };
  const auto number = t.a.ep.number();
  dat::cr request = t.ask("the same");
  const auto from = must(t.a.ep.local_address());
  SECTION("until the peer has forgotten the older connection") {
    for (int tries = 0; tries < 2; ++tries) {
      stale();
      CHECK(t.a.take().empty());
      CHECK(t.a.ep.state() == ep_state::active_connection_pending);
      (void)t.b.take();
      while (fake::count(fake::call::rdma_connect) < static_cast<std::size_t>(tries) + 2) t.settle();
      request = request_on(t.b.evd);
      CHECK(request.remote_address() == from);
      CHECK(text_of(request.private_data()) == "the same");
    }
    t.b.make_ep();
    must(request.accept(t.b.ep));
    t.settle();
    CHECK(t.a.take() == events{"established"});
    CHECK(t.a.ep.number() == number);
    must(t.b.ep.post(dat::send{t.b.at(0, 8)}));
    CHECK(t.a.take() == events{"received 1"});
  }
  SECTION("with longer pauses from one to the next") {
    (void)t.b.take();
    must(t.a.ep.disconnect());
    (void)t.a.take();
    must(t.a.ep.reset());
    const auto before = fake::count(fake::call::rdma_connect);
    must(t.a.ep.connect(t.b.ia.address(), service, 500ms)); // pauses of 20, 40, 80 and 160 ms, and none of 320 ms
    while (t.a.ep.state() == ep_state::active_connection_pending) {
      const auto asked = fake::count(fake::call::rdma_connect);
      t.settle();
      (void)t.b.take();
      if (fake::count(fake::call::rdma_connect) != asked) stale();
    }
    CHECK(fake::count(fake::call::rdma_connect) <= before + 5);
    CHECK(t.a.take().size() == 1);
  }
  SECTION("until the endpoint disconnects") {
    stale();
    must(t.a.ep.disconnect());
    t.settle();
    CHECK(t.a.take() == events{"disconnected", "flushed 1"});
  }
  SECTION("until a call fails") {
    const auto which = GENERATE(fake::call::rdma_create_id, fake::call::rdma_bind_addr, fake::call::rdma_resolve_addr);
    const auto requests = fake::count(fake::call::rdma_connect);
    fake::fail(which, 1, ENOMEM);
    stale();
    while (t.a.ep.state() == ep_state::active_connection_pending) t.settle();
    CHECK(fake::count(fake::call::rdma_connect) == requests);
    CHECK(t.a.take() == events{"non_peer_rejected " + std::to_string(ENOMEM), "flushed 1"});
  }
  SECTION("until the time limit, when the peer answers no later request") {
    must(t.a.ep.disconnect());
    (void)t.a.take();
    must(t.a.ep.reset());
    must(t.a.ep.connect(t.b.ia.address(), service, 300ms));
    t.settle();
    const auto before = fake::count(fake::call::rdma_connect);
    if (t.a.ep.state() == ep_state::active_connection_pending) stale();
    while (fake::count(fake::call::rdma_connect) == before && t.a.ep.state() == ep_state::active_connection_pending)
      t.settle();
    const auto ended = must(t.a.evd.wait(plenty));
    CHECK(std::visit(describe{}, ended).find("established") == std::string::npos);
    CHECK(t.a.ep.state() == ep_state::disconnected);
  }
  SECTION("until the time limit") {
    must(t.a.ep.disconnect());
    (void)t.a.take();
    // On a busy machine, a limit can pass during an attempt. Then the timeout is reported, and a longer limit follows.
    // The first pause is 20 ms, and each pause is twice the one before it.
    for (auto [limit, most] = std::pair(600ms, std::size_t{5});; limit *= 2, ++most) {
      (void)t.b.take();
      must(t.a.ep.reset());
      must(t.a.ep.post(dat::recv{t.a.at(0, 8)}.cookie(2)));
      const auto before = fake::count(fake::call::rdma_connect);
      must(t.a.ep.connect(t.b.ia.address(), service, limit));
      t.settle();
      while (t.a.ep.state() == ep_state::active_connection_pending) {
        if (fake::id_of_qp(t.a.ep.number())) stale();
        t.settle();
      }
      CHECK(t.a.ep.state() == ep_state::disconnected);
      const auto attempts = fake::count(fake::call::rdma_connect) - before;
      CHECK(attempts <= most);
      const auto came = t.a.take();
      REQUIRE(came.size() == 2);
      if (came[0] == "timed_out" || came[0] == "unreachable " + std::to_string(ETIMEDOUT)) continue;
      CHECK(came == events{"non_peer_rejected 10", "flushed 2"});
      CHECK(attempts > 1);
      break;
    }
    CHECK((fake::count(fake::call::rdma_reject) == 0 && fake::count(fake::call::rdma_disconnect) == 0));
  }
}

TEST_CASE("a redirecting reject is not reported as a reject of the consumer", "[CONN-012][CONN-023][EPS-019]") {
  for (const int reason : {1, 12, 13, 14, 15, 16, 17, 24, 25, 26, 32}) {
    two_adapters t;
    auto request = t.ask();
    fake::deliver({.event = RDMA_CM_EVENT_REJECTED, .status = reason, .qp_num = t.a.ep.number()});
    t.settle();
    CHECK(t.a.take() == events{"non_peer_rejected " + std::to_string(reason)});
    CHECK(t.a.ep.state() == ep_state::disconnected);
    must(t.a.ep.reset());
  }
}

TEST_CASE("a connection manager error ends a connect before its time limit", "[CONN-042][CONN-080][EPS-011][REQ-081]") {
  two_adapters t;
  SECTION("an infinite limit, and the peer does not answer") {
    t.a.make_ep();
    must(t.a.ep.connect(t.b.ia.address(), service, dat::infinite));
    t.settle();
    fake::deliver({.event = RDMA_CM_EVENT_UNREACHABLE, .status = -ETIMEDOUT, .qp_num = t.a.ep.number()});
    t.settle();
    CHECK(t.a.take() == events{"unreachable " + std::to_string(ETIMEDOUT)});
  }
  SECTION("a short limit, by common_connect") {
    t.a.make_ep({.comm = tcp});
    must(t.a.ep.common_connect(t.b.ia.address().with_port(service), 1s)); // time to send the request
    t.settle();                                                           // the request has been sent
    const auto e = must(t.a.evd.wait(plenty));
    CHECK(std::visit(describe{}, e) == "timed_out");
  }
}

TEST_CASE("an accept that starts moves the queue pair three times, sends one message and does not wait", "[CR-047]") {
  two_adapters t;
  t.b.make_ep();
  auto request = t.ask();
  fake::hold_events(); // the peer does not answer
  const auto moves = fake::count(fake::call::ibv_modify_qp);
  const auto messages = fake::count(fake::call::rdma_accept);
  must(request.accept(t.b.ep));
  CHECK(fake::count(fake::call::ibv_modify_qp) <= moves + 3);
  CHECK(fake::count(fake::call::rdma_accept) == messages + 1);
  CHECK(t.b.ep.state() == ep_state::completion_pending);
  fake::release_events();
  t.settle();
  CHECK(t.b.take() == events{"established"});
}
