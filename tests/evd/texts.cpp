// The texts of events, each compared as a whole.
// SPDX-License-Identifier: BSL-1.0
#include <dat/address.hpp>
#include <dat/async_events.hpp>

#include <dat/detail/adapter/async_info.hpp>
#include <dat/detail/text/event_text.hpp>

#include <support/catch.hpp>

#include <cerrno>
#include <string>
#include <vector>

namespace texts_test {

using namespace dat::detail;
using dat::dto_operation;
using dat::dto_status;

TEST_CASE("each completion has its values in its text", "[event]") {
  CHECK(transfer_text("send_done", 17, 7, 64) == "send_done on ep (qp 17): 64 bytes, cookie 7");
  CHECK(bind_text("bind_done", dto_operation::bind, 17, 8) == "bind_done on ep (qp 17): bind, cookie 8");
  CHECK(bind_text("bind_done", dto_operation::unbind, 18, 9) == "bind_done on ep (qp 18): unbind, cookie 9");
  const std::string cause(usual_cause(dto_status::remote_access));
  CHECK(failure_text(dto_operation::rdma_write, dto_status::remote_access, 17, 10, 0) ==
        "rdma_write on ep (qp 17): remote access error (verbs status 10): " + cause);
  CHECK(failure_text(dto_operation::send, dto_status::remote_access, 5, 10, 1) ==
        "send on ep (qp 5): remote access error (verbs status 10, vendor code 1): " + cause);
  CHECK(software_text("software_event", 3) == "software_event, cookie 3");
}

TEST_CASE("each connection event has its object and its cause in its text", "[event]") {
  CHECK(connection_text("established", 17, {}) == "established on ep (qp 17)");
  CHECK(connection_text("disconnected", 17, "Why.") == "disconnected on ep (qp 17): Why.");
  const auto from = dat::ia_address::parse("10.0.0.1:4000");
  REQUIRE(from);
  CHECK(request_text("connection_request", from.value()) == "connection_request from 10.0.0.1:4000");
  CHECK(request_refused_text(7471, ENOBUFS) ==
        "request on port 7471 refused: The evd of the service point has no room for requests. Take events more often, "
        "or create it with a larger qlen.");
  CHECK(request_refused_text(1, ECONNREFUSED) ==
        "request on port 1 refused: The service point is a reserved one that has already received its request, or "
        "it has just been closed.");
  CHECK(request_refused_text(2, ENOMEM).starts_with("request on port 2 refused: ENOMEM"));
  const int known[] = {10, 35, ECONNREFUSED, ECONNRESET, 8};
  for (const int& one : known)
    for (const int& other : known) CHECK((refusal_cause(one) == refusal_cause(other)) == (&one == &other));
  CHECK(refusal_cause(28) == refusal_cause(8));
}

TEST_CASE("each asynchronous event has its object and its cause in its text", "[event]") {
  const std::string full(evd_overflow_cause);
  struct {
    async_kind what;
    async_info info;
    std::string text;
  } const all[] = {
      {async_kind::evd_overflow, {.number = 96}, "evd_overflow of evd 96: " + full},
      {async_kind::evd_overflow, {.number = 1}, "evd_overflow of evd 1: " + full},
      {async_kind::evd_overflow, {}, "evd_overflow: " + full},
      {async_kind::ia_catastrophic, {.number = 4}, "ia_catastrophic"},
      {async_kind::ep_broken,
       {.number = 17, .reason = 0},
       "ep_broken of ep 17: " + std::string(to_string(static_cast<dat::ep_error>(0)))},
      {async_kind::provider_internal_error,
       {.verb = "ibv_poll_cq", .number = 96, .reason = ENOMEM},
       "provider_internal_error of evd 96: ibv_poll_cq gave "},
      {async_kind::provider_internal_error, {.verb = "x", .reason = EIO}, "provider_internal_error: x gave "},
      {async_kind::provider_internal_error, {.number = 0, .reason = EIO}, "provider_internal_error gave "},
      {async_kind::port_down, {}, "port_down"},
      {async_kind::port_active, {}, "port_active"},
      {async_kind::port_changed,
       {.number = 3, .reason = 1},
       "port_changed: " + std::string(to_string(static_cast<dat::port_change>(1)))},
      {async_kind::srq_low_watermark, {}, "srq_low_watermark"},
      {async_kind::srq_error, {}, "srq_error"},
      {async_kind::ep_soft_high_watermark, {.number = 17}, "ep_soft_high_watermark of ep 17"},
  };
  for (const auto& [what, info, text] : all) {
    const std::string said = async_message(what, info);
    if (what == async_kind::provider_internal_error) {
      CHECK(said.starts_with(text));
      CHECK(said.starts_with(text + (info.reason == EIO ? "EIO" : "ENOMEM")));
    } else {
      CHECK(said == text);
    }
  }
}

} // namespace texts_test
