// Which completions of an endpoint wake a thread: its notification mode, at creation and when it changes.
// SPDX-License-Identifier: BSL-1.0
#include "one_evd.hpp"
#include <support/streams.hpp>

#include <dat/ep_params.hpp>

using namespace one_evd;
using namespace std::chrono_literals;
using dat::return_subtype;
using dat::return_type;
using rig::must;
using rig::patience;

TEST_CASE("endpoints that feed one evd must agree on the notification mode", "[evd]") {
  NEEDS_FEATURE(solicited_waits);
  rig::begin();
  adapter a;
  auto completions_only = must(a.ia.create_evd<dat::stream::dto>(16));
  auto other = must(a.ia.create_evd<dat::stream::dto>(16));
  auto ring = must(a.ia.create_evd<mixed>(16));
  const auto make = [&](const auto& recv, const auto& request, dat::completion_notification on_recv,
                        dat::completion_notification on_request) {
    return a.pz.create_ep<dat::rc>({.recv = recv, .request = request, .connect = a.evd},
                                   {.recv_completion = on_recv, .request_completion = on_request});
  };
  const auto refused = dat::error(return_type::invalid_parameter, return_subtype::arg7);
  {
    const auto usual = must(a.pz.create_ep<dat::rc>({.recv = ring, .request = ring, .connect = a.evd}));
    CHECK(usual.attributes().recv_completion == dat::completion_notification::evd_threshold);
    CHECK(usual.attributes().request_completion == dat::completion_notification::evd_threshold);
    SHOWS("COMP-027");
  }
  STATIC_REQUIRE(dat::ep_attributes().recv_completion == dat::completion_notification::by_default);
  STATIC_REQUIRE(static_cast<int>(dat::completion_notification::by_default) == 0);
  STATIC_REQUIRE(static_cast<int>(dat::completion_notification::solicited_wait) == 0x02);
  STATIC_REQUIRE(static_cast<int>(dat::completion_notification::selective) == 0x04);
  STATIC_REQUIRE(static_cast<int>(dat::completion_notification::evd_threshold) == 0x10);
  SHOWS("EPATTR-005");
  constexpr std::array all{dat::completion_notification::evd_threshold, dat::completion_notification::selective,
                           dat::completion_notification::solicited_wait};
  for (const dat::completion_notification r : all)
    for (const dat::completion_notification q : all) {
      // Queues on one evd need the same mode, and requests cannot be solicited.
      const auto one = make(ring, ring, r, q);
      CHECK(one.has_value() == (r == q && r != dat::completion_notification::solicited_wait));
      if (!one) CHECK(one.error() == refused);
      // The receives of two endpoints on one evd.
      const auto first = make(ring, other, r, dat::completion_notification::evd_threshold);
      REQUIRE(first.has_value());
      CHECK(make(ring, other, q, dat::completion_notification::evd_threshold).has_value() == (r == q));
      // Receives of one endpoint and requests of another.
      CHECK(make(other, ring, dat::completion_notification::evd_threshold, q).has_value() ==
            (r == q && q != dat::completion_notification::solicited_wait));
      SHOWS("EVENT-027", "EP-016", "EP-018", "COMP-009", "DTO-041");
      CHECK(must(ring.query()).config == r);
    }
  SHOWS("ERR-042", "EVD-021");
  CHECK(must(ring.query()).config == dat::completion_notification::evd_threshold);
  SHOWS("EVENT-049");
  for (const dat::completion_notification q :
       {dat::completion_notification::evd_threshold, dat::completion_notification::selective}) {
    const auto first = must(make(other, ring, dat::completion_notification::evd_threshold, q));
    for (const dat::completion_notification r : all) // the requests of two endpoints
      CHECK(make(other, ring, dat::completion_notification::evd_threshold, r).has_value() == (r == q));
  }
  // A completions-only evd cannot set aside completions without notification; solicited receives need no such room.
  CHECK(make(completions_only, other, dat::completion_notification::selective,
             dat::completion_notification::evd_threshold)
            .error() == refused);
  CHECK(make(completions_only, other, dat::completion_notification::solicited_wait,
             dat::completion_notification::evd_threshold)
            .has_value());
  // With other streams, every completion must notify.
  CHECK(make(a.evd, other, dat::completion_notification::solicited_wait, dat::completion_notification::evd_threshold)
            .error() == refused);
  CHECK(make(a.evd, a.evd, dat::completion_notification::selective, dat::completion_notification::selective).error() ==
        refused);
  const auto of_requests = must(a.ia.create_evd<dat::stream::dto | dat::stream::connection_requests>(16));
  for (const auto how : {dat::completion_notification::selective, dat::completion_notification::solicited_wait})
    CHECK(make(of_requests, other, how, dat::completion_notification::evd_threshold).error() == refused);
  const auto of_connections = must(a.ia.create_evd<dat::stream::dto | dat::stream::connection>(16));
  const auto of_adapter = must(a.ia.create_evd<dat::stream::dto | dat::stream::async>(16));
  for (const auto how : {dat::completion_notification::selective, dat::completion_notification::solicited_wait}) {
    CHECK(make(of_connections, other, how, dat::completion_notification::evd_threshold).error() == refused);
    CHECK(make(of_adapter, other, how, dat::completion_notification::evd_threshold).error() == refused);
  }
  SHOWS("EVENT-029", "EP-017", "EP-019");
  CHECK(make(a.evd, a.evd, dat::completion_notification::evd_threshold, dat::completion_notification::evd_threshold)
            .has_value());
  SHOWS("EVENT-028");
  CHECK(make(ring, ring, static_cast<dat::completion_notification>(0x40), dat::completion_notification::evd_threshold)
            .error() == refused);
}

TEST_CASE("a wait for several events is refused where some completions do not notify", "[EVENT-048][EVD-049][EVD-046]"
                                                                                       "[REQ-162]") {
  rig::begin();
  adapter a;
  auto evd = must(a.ia.create_evd<mixed>(8));
  auto requests = must(a.ia.create_evd<dat::stream::dto>(8));
  must(evd.post(1));
  must(evd.post(2));
  auto ep = must(a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd},
                                         {.recv_completion = dat::completion_notification::selective,
                                          .request_completion = dat::completion_notification::selective}));
  CHECK(evd.wait(patience, 2).error() == dat::error(return_type::invalid_state, return_subtype::evd_config_notify));
  SHOWS("ERR-034");
  CHECK(must(evd.wait(patience, 1)).more == 1); // software events may share such an evd: uDAPL 2.0, lines 2724-2746
  SHOWS("EP-017");
  must(ep.close());
  CHECK(must(evd.query()).config == dat::completion_notification::evd_threshold); // no endpoint feeds the evd now
  CHECK(evd.wait(0s, 2).error().type() == return_type::timeout_expired);
  ep = must(a.pz.create_ep<dat::rc>({.recv = evd, .request = requests, .connect = a.evd},
                                    {.recv_completion = dat::completion_notification::solicited_wait}));
  CHECK(evd.wait(patience, 2).error() == dat::error(return_type::invalid_state, return_subtype::evd_config_solicited));
  SHOWS("ERR-034");
  CHECK(number(std::get<dat::software_event>(must(evd.wait(patience)))) == 2);
  SHOWS("EP-019");
  must(ep.close());
  // The requests of an endpoint suffice.
  ep = must(a.pz.create_ep<dat::rc>({.recv = requests, .request = evd, .connect = a.evd},
                                    {.request_completion = dat::completion_notification::selective}));
  CHECK(evd.wait(0s, 2).error() == dat::error(return_type::invalid_state, return_subtype::evd_config_notify));
}

TEST_CASE("modify can change which completions wake until a receive is posted",
          "[EP-076][EP-077][EPATTR-007][EVENT-027][EVENT-028]") {
  rig::begin();
  adapter a;
  auto evd = must(a.ia.create_evd<mixed>(8));
  auto other = must(a.ia.create_evd<mixed>(8));
  const auto make = [&](const auto& recv, const auto& request) {
    return must(a.pz.create_ep<dat::rc>({.recv = recv, .request = request, .connect = a.evd}));
  };
  const auto mode = [](auto& of) { return must(of.query()).config; };
  using dat::completion_notification;
  auto ep = make(evd, evd);
  must(ep.modify({.recv_completion = completion_notification::selective,
                  .request_completion = completion_notification::selective}));
  CHECK(mode(evd) == completion_notification::selective);
  CHECK(ep.attributes().recv_completion == completion_notification::selective);
  CHECK(must(ep.query()).attributes.request_completion == completion_notification::selective);
  // Queues on one evd need the same mode, and requests cannot be solicited: modify changes nothing then.
  const auto refused = [&](const dat::ep_changes& c) {
    CHECK(ep.modify(c).error().type() == return_type::invalid_parameter);
    CHECK(mode(evd) == completion_notification::selective);
    CHECK(ep.attributes().recv_completion == completion_notification::selective);
    CHECK(ep.attributes().request_completion == completion_notification::selective);
  };
  refused({.recv_completion = completion_notification::evd_threshold});
  refused({.request_completion = completion_notification::evd_threshold});
  refused({.request_completion = completion_notification::solicited_wait});
  for (const int no_mode : {0x01, 0x08}) // DAT_COMPLETION_SUPPRESS_FLAG and _BARRIER_FENCE_FLAG
    refused({.recv_completion = static_cast<completion_notification>(no_mode),
             .request_completion = static_cast<completion_notification>(no_mode)});
  // Another endpoint that feeds the evd must have the same mode.
  {
    auto second = must(a.pz.create_ep<dat::rc>({.recv = evd, .request = other, .connect = a.evd},
                                               {.recv_completion = completion_notification::selective}));
    refused({.recv_completion = completion_notification::evd_threshold,
             .request_completion = completion_notification::evd_threshold});
    must(second.close());
  }
  // An evd whose completions have another mode is refused, and the endpoint keeps its evd.
  {
    auto third = must(a.ia.create_evd<mixed>(8));
    auto second = must(a.pz.create_ep<dat::rc>({.recv = third, .request = other, .connect = a.evd}));
    const auto before = must(ep.query());
    refused({.recv = third});
    refused({.request = third});
    const auto now = must(ep.query());
    CHECK((now.recv == before.recv && now.request == before.request));
    SHOWS("EP-075");
    must(second.close());
  }
  // modify moves the mode to another evd, and no endpoint feeds the previous evd.
  must(ep.modify({.request = other,
                  .recv_completion = completion_notification::solicited_wait,
                  .request_completion = completion_notification::evd_threshold}));
  CHECK(mode(evd) == completion_notification::solicited_wait);
  CHECK(mode(other) == completion_notification::evd_threshold);
  // Each queue feeds its own evd, so only the value itself is refused.
  const auto why = [&](const dat::ep_changes& c) { return ep.modify(c).error().type(); };
  for (const int no_mode : {0x01, 0x08}) {
    CHECK(why({.recv_completion = static_cast<completion_notification>(no_mode)}) == return_type::invalid_parameter);
    CHECK(why({.request_completion = static_cast<completion_notification>(no_mode)}) == return_type::invalid_parameter);
  }
  CHECK(why({.request_completion = completion_notification::solicited_wait}) == return_type::invalid_parameter);
  CHECK(mode(other) == completion_notification::evd_threshold);
  must(ep.post(dat::recv{}));
  CHECK(ep.modify({.recv_completion = completion_notification::evd_threshold}).error() ==
        dat::error(return_type::invalid_state, return_subtype::ep_notready));
  SHOWS("EP-068");
  CHECK(mode(evd) == completion_notification::solicited_wait);
  // The mode of requests does not affect receives.
  must(ep.modify({.request_completion = completion_notification::selective}));
  CHECK(mode(other) == completion_notification::selective);
  must(ep.close());
  CHECK(mode(evd) == completion_notification::evd_threshold);
  CHECK(mode(other) == completion_notification::evd_threshold);
}
