// Completions of an earlier life of an endpoint, taken while the endpoint has a new one.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/detail/handle/core_access.hpp>

using namespace unit;
using dat::ep_state;
namespace detail = dat::detail;

namespace {

constexpr auto data = dat::stream::dto | dat::stream::software;

/// A connection; one of its endpoints has a completions-only evd.
template <dat::streams S>
struct split_connection : pair {
  dat::evd<S> evd = must(a.ia.template create_evd<S>(64));
  dat::ep<dat::rc> ep = must(a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd}));
  dat::ep<dat::rc> far = must(b.pz.create_ep<dat::rc>(b.evd));

  void connect() {
    must(ep.connect(b.ia.address(), service, plenty));
    settle();
    must(must(b.evd.template wait_for<dat::connection_request>(plenty)).accept(far));
    settle();
    (void)a.take();
    (void)b.take();
    REQUIRE(ep.state() == ep_state::connected);
  }
  /// Ends the present life of the endpoint and begins the next.
  void reconnect() {
    must(ep.disconnect());
    settle();
    (void)a.take();
    (void)b.take();
    must(ep.reset());
    must(far.reset());
    connect();
  }
};

/// Takes one completion and holds it, as a thread that is preempted before it calls its visitor.
struct held {
  template <dat::streams S>
  explicit held(split_connection<S>& c) {
    auto& core = *detail::core_access::of(c.evd);
    if constexpr (dat::is_completions_only(S)) {
      REQUIRE(core.poll(1, &wc) == 1);
      detail::work_entry* const e = core.find(wc);
      REQUIRE(e);
      posted = detail::work_ring::read(*e);
      life = wc.wr_id;
      owner = detail::ref<detail::ep_core>(&detail::endpoint_of(*e));
      detail::work_ring::retire(*e);
    } else {
      detail::record r;
      std::uint32_t left;
      REQUIRE(detail::as_merged<S>(core).take(r, left));
      wc = r.wc;
      posted = r.posted;
      life = r.tag;
      owner = detail::ref<detail::ep_core>(static_cast<detail::ep_core*>(r.endpoint.get()));
    }
  }
  template <dat::streams S>
  void go_on() {
    const auto visit = [&](const auto& e) { seen.push_back(describe{}(e)); };
    (void)detail::visit_completion<S>(*owner, life, wc, posted, visit);
  }
  ibv_wc wc{};
  detail::posted_work posted;
  detail::ep_generation life = 0;
  detail::ref<detail::ep_core> owner;
  events seen;
};

} // namespace

TEMPLATE_TEST_CASE_SIG("a failed completion of a previous life does not break the present connection", "[evd][ep]",
                       ((dat::streams S), S), dat::stream::dto, data) {
  const clean_world clean;
  split_connection<S> c;
  c.connect();
  must(c.ep.post(dat::recv{}.cookie(1)));
  must(c.ep.disconnect());
  c.settle();
  (void)c.a.take();
  (void)c.b.take();
  held old(c); // the flushed receive
  must(c.ep.reset());
  must(c.far.reset());
  c.connect();
  old.template go_on<S>();
  CHECK(old.seen.size() == 1); // the consumer takes a failure
  c.settle();
  CHECK(c.ep.state() == ep_state::connected);
  CHECK(c.a.take().empty());
}

TEMPLATE_TEST_CASE_SIG("a failed completion of the present life breaks the connection", "[evd][ep]",
                       ((dat::streams S), S), dat::stream::dto, data) {
  const clean_world clean;
  split_connection<S> c;
  c.connect();
  c.reconnect();
  fake::hold(c.ep.native_handle());
  must(c.ep.post(dat::send{}.cookie(1)));
  REQUIRE(fake::complete(c.ep.native_handle(), {}, IBV_WC_RETRY_EXC_ERR));
  held failed(c);
  failed.template go_on<S>();
  c.settle();
  CHECK(c.ep.state() == ep_state::disconnected);
  CHECK(c.a.take() == events{"broken"});
}

TEST_CASE("wr_ids of one life have equal generations, and wr_ids of two lives do not", "[work]") {
  CHECK(detail::same_life(5ull << 32 | 1, 5ull << 32 | 99));
  CHECK_FALSE(detail::same_life(5ull << 32 | 1, 6ull << 32 | 1));
}

TEST_CASE("dat does not poll a completions-only evd behind the consumer's back", "[evd]") {
  const clean_world clean;
  split_connection<dat::stream::dto> c;
  const auto armed = fake::count(fake::call::ibv_req_notify_cq);
  const auto queried = fake::count(fake::call::ibv_query_qp);
  c.connect();
  const auto once = fake::count(fake::call::ibv_req_notify_cq); // armings of the peer, whose evd is merged
  must(c.far.post(dat::recv{}));
  must(c.ep.post(dat::send{}));
  c.settle();
  CHECK(fake::count(fake::call::ibv_req_notify_cq) == once);
  CHECK(once <= armed + 1);
  CHECK(fake::count(fake::call::ibv_query_qp) == queried);
  // The break appears as a failed completion, and then as an event.
  must(c.ep.post(dat::recv{}));
  fake::break_qp(c.ep.native_handle());
  c.settle();
  CHECK(c.ep.state() == ep_state::connected);
  DEVIATES("EPS-060");
  CHECK(take(c.evd).size() == 2);
  c.settle();
  CHECK(c.ep.state() == ep_state::disconnected);
  CHECK(c.a.take() == events{"broken"});
}

TEST_CASE("a merged evd reports a break when no thread takes its completions", "[evd]") {
  const clean_world clean;
  split_connection<data> c;
  c.connect();
  must(c.ep.post(dat::recv{}));
  fake::break_qp(c.ep.native_handle());
  while (c.ep.state() == ep_state::connected) c.a.ia.run(1s);
  CHECK(c.a.take() == events{"broken"});
  CHECK(take(c.evd).size() == 1);
}
