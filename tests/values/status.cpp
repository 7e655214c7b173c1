// Completion status and operations: values, texts, and the map from ibv_wc_status.
// SPDX-License-Identifier: BSL-1.0
#include <dat/status.hpp>

#include <dat/detail/verbs/wc_status.hpp>

#include <support/catch.hpp>

#include <array>
#include <set>
#include <string_view>

using dat::dto_operation;
using dat::dto_status;
using dat::detail::to_dto_status;

namespace {

constexpr auto value(dto_status status) { return static_cast<unsigned>(status); }
constexpr auto value(dto_operation operation) { return static_cast<unsigned>(operation); }

constexpr std::array requests{
    dto_operation::send,
    dto_operation::rdma_write,
    dto_operation::rdma_read,
    dto_operation::fetch_and_add,
    dto_operation::rdma_write_immediate,
    dto_operation::compare_and_swap,
    dto_operation::send_ud,
    dto_operation::send_with_invalidate,
    dto_operation::send_immediate,
    dto_operation::rdma_read_to_rmr,
    dto_operation::atomic_write,
    dto_operation::flush,
};
constexpr std::array receives{
    dto_operation::recv,    dto_operation::recv_with_invalidate, dto_operation::recv_rdma_immediate,
    dto_operation::recv_ud, dto_operation::recv_ud_immediate,    dto_operation::recv_immediate,
};
constexpr std::array binds{dto_operation::bind, dto_operation::unbind};

constexpr bool plain_send(dto_operation operation) {
  return operation == dto_operation::send || operation == dto_operation::send_immediate ||
         operation == dto_operation::send_ud;
}

// The table of applicable operations (uDAPL 2.0 §6.8.2). Extensions have the row of the base operation that they
// resemble.
bool applicable(dto_status status, dto_operation operation) {
  if (operation == dto_operation::bind || operation == dto_operation::unbind)
    return status == dto_status::success || status == dto_status::local_ep || status == dto_status::flushed ||
           status == dto_status::rmr_operation_failed;
  switch (status) {
  case dto_status::success:
  case dto_status::flushed:
  case dto_status::local_length:
  case dto_status::local_ep:
  case dto_status::local_protection:
  case dto_status::transport:
    return true;
  case dto_status::bad_response:
  case dto_status::remote_responder:
  case dto_status::receiver_not_ready:
    return !is_receive(operation);
  case dto_status::remote_access:
    return !is_receive(operation) && !plain_send(operation);
  default:
    return false;
  }
}

// One row of the map: the DAT status for a request, a receive and a bind.
struct row {
  int wc;
  dto_status request, receive, bind;
};

constexpr std::array rows{
    row{IBV_WC_SUCCESS, dto_status::success, dto_status::success, dto_status::success},
    row{IBV_WC_LOC_LEN_ERR, dto_status::local_length, dto_status::local_length, dto_status::rmr_operation_failed},
    row{IBV_WC_LOC_QP_OP_ERR, dto_status::local_ep, dto_status::local_length, dto_status::local_ep},
    row{IBV_WC_LOC_EEC_OP_ERR, dto_status::transport, dto_status::transport, dto_status::local_ep},
    row{IBV_WC_LOC_PROT_ERR, dto_status::local_protection, dto_status::local_protection,
        dto_status::rmr_operation_failed},
    row{IBV_WC_WR_FLUSH_ERR, dto_status::flushed, dto_status::flushed, dto_status::flushed},
    row{IBV_WC_MW_BIND_ERR, dto_status::local_ep, dto_status::local_ep, dto_status::rmr_operation_failed},
    row{IBV_WC_BAD_RESP_ERR, dto_status::bad_response, dto_status::transport, dto_status::local_ep},
    row{IBV_WC_LOC_ACCESS_ERR, dto_status::local_protection, dto_status::local_protection,
        dto_status::rmr_operation_failed},
    row{IBV_WC_REM_INV_REQ_ERR, dto_status::remote_responder, dto_status::local_ep, dto_status::local_ep},
    row{IBV_WC_REM_ACCESS_ERR, dto_status::remote_access, dto_status::local_protection,
        dto_status::rmr_operation_failed},
    row{IBV_WC_REM_OP_ERR, dto_status::remote_responder, dto_status::local_ep, dto_status::local_ep},
    row{IBV_WC_RETRY_EXC_ERR, dto_status::transport, dto_status::transport, dto_status::local_ep},
    row{IBV_WC_RNR_RETRY_EXC_ERR, dto_status::receiver_not_ready, dto_status::transport, dto_status::local_ep},
    row{IBV_WC_LOC_RDD_VIOL_ERR, dto_status::transport, dto_status::transport, dto_status::local_ep},
    row{IBV_WC_REM_INV_RD_REQ_ERR, dto_status::transport, dto_status::transport, dto_status::local_ep},
    row{IBV_WC_REM_ABORT_ERR, dto_status::remote_responder, dto_status::local_ep, dto_status::local_ep},
    row{IBV_WC_INV_EECN_ERR, dto_status::transport, dto_status::transport, dto_status::local_ep},
    row{IBV_WC_INV_EEC_STATE_ERR, dto_status::transport, dto_status::transport, dto_status::local_ep},
    row{IBV_WC_FATAL_ERR, dto_status::transport, dto_status::transport, dto_status::local_ep},
    row{IBV_WC_RESP_TIMEOUT_ERR, dto_status::transport, dto_status::transport, dto_status::local_ep},
    row{IBV_WC_GENERAL_ERR, dto_status::transport, dto_status::transport, dto_status::local_ep},
    row{IBV_WC_TM_ERR, dto_status::transport, dto_status::transport, dto_status::local_ep},
    row{IBV_WC_TM_RNDV_INCOMPLETE, dto_status::transport, dto_status::transport, dto_status::local_ep},
};

/// The rule of each row; none if dat deviates, or if no rule names the status.
constexpr const char* rule_of_row[] = {"COMP-051", "COMP-052", nullptr,    "COMP-054", "COMP-055", "COMP-056",
                                       "COMP-057", "COMP-058", "COMP-059", nullptr,    "COMP-061", "COMP-062",
                                       "COMP-063", "COMP-064", "COMP-054", "COMP-054", "COMP-062", "COMP-054",
                                       "COMP-054", "COMP-066", "COMP-065", "COMP-066", "COMP-066", "COMP-066"};
static_assert(std::size(rule_of_row) == IBV_WC_TM_RNDV_INCOMPLETE + 1);

} // namespace

TEST_CASE("completion statuses have the values of the C header", "[DTO-064]") {
  STATIC_REQUIRE(value(dto_status::success) == 0);
  STATIC_REQUIRE(value(dto_status::flushed) == 1);
  STATIC_REQUIRE(value(dto_status::local_length) == 2);
  STATIC_REQUIRE(value(dto_status::local_ep) == 3);
  STATIC_REQUIRE(value(dto_status::local_protection) == 4);
  STATIC_REQUIRE(value(dto_status::bad_response) == 5);
  STATIC_REQUIRE(value(dto_status::remote_access) == 6);
  STATIC_REQUIRE(value(dto_status::remote_responder) == 7);
  STATIC_REQUIRE(value(dto_status::transport) == 8);
  STATIC_REQUIRE(value(dto_status::receiver_not_ready) == 9);
  STATIC_REQUIRE(value(dto_status::partial_packet) == 10);
  STATIC_REQUIRE(value(dto_status::rmr_operation_failed) == 11);
  STATIC_REQUIRE(value(dto_status::local_mm_error) == 12);
}

TEST_CASE("operations have the codes of DAT and of its InfiniBand extensions", "[DTO-054][IBX-010][COMP-070]") {
  STATIC_REQUIRE(value(dto_operation::send) == 0);
  STATIC_REQUIRE(value(dto_operation::rdma_write) == 1);
  STATIC_REQUIRE(value(dto_operation::rdma_read) == 2);
  STATIC_REQUIRE(value(dto_operation::recv) == 3);
  STATIC_REQUIRE(value(dto_operation::recv_with_invalidate) == 4);
  STATIC_REQUIRE(value(dto_operation::rdma_write_immediate) == 7);
  STATIC_REQUIRE(value(dto_operation::recv_rdma_immediate) == 8);
  STATIC_REQUIRE(value(dto_operation::fetch_and_add) == 9);
  STATIC_REQUIRE(value(dto_operation::compare_and_swap) == 10);
  STATIC_REQUIRE(value(dto_operation::recv_immediate) == 11);
  STATIC_REQUIRE(value(dto_operation::send_ud) == 12);
  STATIC_REQUIRE(value(dto_operation::recv_ud) == 13);
  STATIC_REQUIRE(value(dto_operation::recv_ud_immediate) == 14);

  STATIC_REQUIRE(dat_code(dto_operation::fetch_and_add) == 9U);
  STATIC_REQUIRE(dat_code(dto_operation::compare_and_swap) == 10U);
  STATIC_REQUIRE(dat_code(dto_operation::send_with_invalidate) == 0U);
  STATIC_REQUIRE(dat_code(dto_operation::rdma_read_to_rmr) == 2U);
  STATIC_REQUIRE_FALSE(dat_code(dto_operation::bind).has_value());
  STATIC_REQUIRE_FALSE(dat_code(dto_operation::atomic_write).has_value());
  STATIC_REQUIRE_FALSE(dat_code(dto_operation::flush).has_value());
  STATIC_REQUIRE_FALSE(dat_code(static_cast<dto_operation>(5)).has_value());
  STATIC_REQUIRE_FALSE(dat_code(static_cast<dto_operation>(6)).has_value());
  STATIC_REQUIRE_FALSE(dat_code(static_cast<dto_operation>(200)).has_value());
}

TEST_CASE("every status and operation has a name, every failure a usual cause", "[DTO-064][DTO-054]") {
  std::set<std::string_view> names;
  std::set<std::string_view> causes;
  for (std::uint8_t i = 0; i < dat::dto_status_count; ++i) {
    const auto status = static_cast<dto_status>(i);
    names.insert(to_string(status));
    causes.insert(usual_cause(status));
    CHECK(usual_cause(status).empty() == (status == dto_status::success));
  }
  CHECK(names.size() == dat::dto_status_count);
  CHECK(causes.size() == dat::dto_status_count);
  CHECK(names.count("unknown dto_status") == 0);
  STATIC_REQUIRE(to_string(static_cast<dto_status>(13)) == "unknown dto_status");
  STATIC_REQUIRE_FALSE(usual_cause(static_cast<dto_status>(13)).empty());

  names.clear();
  for (std::uint8_t i = 0; i < dat::dto_operation_count; ++i) names.insert(to_string(static_cast<dto_operation>(i)));
  CHECK(names.size() == dat::dto_operation_count - 1); // 5 and 6 belong to kernel DAPL, and both are unknown
  CHECK(names.count("unknown dto_operation") == 1);
  STATIC_REQUIRE(to_string(dto_operation::rdma_write) == "rdma_write");
  STATIC_REQUIRE(to_string(dto_operation::atomic_write) == "atomic_write");
  STATIC_REQUIRE(to_string(dto_operation::flush) == "flush");
  STATIC_REQUIRE(to_string(static_cast<dto_operation>(22)) == "unknown dto_operation");
}

TEST_CASE("receives are those operations that complete on the receive queue") {
  for (const auto operation : receives) CHECK(is_receive(operation));
  for (const auto operation : requests) CHECK_FALSE(is_receive(operation));
  for (const auto operation : binds) CHECK_FALSE(is_receive(operation));
  CHECK(requests.size() + receives.size() + binds.size() == dat::dto_operation_count - 2);
}

TEST_CASE("each ibv_wc_status becomes the DAT status of the table, by kind of operation", "") {
  REQUIRE(rows.size() == IBV_WC_TM_RNDV_INCOMPLETE + 1);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& r = rows[i];
    CAPTURE(r.wc);
    REQUIRE(r.wc == static_cast<int>(i)); // every enumerator has a row
    CHECK(to_dto_status(r.wc, dto_operation::rdma_write) == r.request);
    CHECK(to_dto_status(r.wc, dto_operation::recv) == r.receive);
    CHECK(to_dto_status(r.wc, dto_operation::bind) == r.bind);
    // The same holds for every operation of each kind, except for three that DAT or Soft-RoCE treats differently.
    for (const auto operation : requests) {
      const bool no_access = r.wc == IBV_WC_REM_ACCESS_ERR && plain_send(operation);
      CHECK(to_dto_status(r.wc, operation) == (no_access ? dto_status::remote_responder : r.request));
    }
    for (const auto operation : receives) {
      const bool datagram = operation == dto_operation::recv_ud || operation == dto_operation::recv_ud_immediate;
      const bool too_long = r.wc == IBV_WC_REM_INV_REQ_ERR && datagram;
      CHECK(to_dto_status(r.wc, operation) == (too_long ? dto_status::local_length : r.receive));
    }
    for (const auto operation : binds) {
      const bool refused = r.wc == IBV_WC_LOC_QP_OP_ERR && operation == dto_operation::unbind;
      CHECK(to_dto_status(r.wc, operation) == (refused ? dto_status::rmr_operation_failed : r.bind));
    }
    if (rule_of_row[i]) SHOWS(rule_of_row[i]);
  }
  CHECK(to_dto_status(IBV_WC_BAD_RESP_ERR, dto_operation::send) == dto_status::bad_response);
  SHOWS("COMP-038", "DTO-157");
}

TEST_CASE("a request whose queue pair cannot work ends in local_ep", "[COMP-053][COMP-035]") {
  STATIC_REQUIRE(to_dto_status(IBV_WC_LOC_QP_OP_ERR, dto_operation::send) == dto_status::local_ep);
  STATIC_REQUIRE(to_dto_status(IBV_WC_LOC_QP_OP_ERR, dto_operation::bind) == dto_status::local_ep);
  for (const auto operation : requests) CHECK(to_dto_status(IBV_WC_LOC_QP_OP_ERR, operation) == dto_status::local_ep);
  // Soft-RoCE reports this status when it refuses the invalidation of an unbind.
  STATIC_REQUIRE(to_dto_status(IBV_WC_GENERAL_ERR, dto_operation::unbind) == dto_status::local_ep);
  for (const auto operation : receives) // other inconsistencies of a receive (COMP-053)
    CHECK(to_dto_status(IBV_WC_MW_BIND_ERR, operation) == dto_status::local_ep);
  STATIC_REQUIRE(to_dto_status(IBV_WC_LOC_PROT_ERR, dto_operation::send) != dto_status::local_ep);
}

TEST_CASE("a message longer than its receive buffer is local_length with hardware and with Soft-RoCE",
          "[DTO-118][COMP-033]") {
  STATIC_REQUIRE(to_dto_status(IBV_WC_LOC_LEN_ERR, dto_operation::recv) == dto_status::local_length);
  STATIC_REQUIRE(to_dto_status(IBV_WC_LOC_QP_OP_ERR, dto_operation::recv) == dto_status::local_length);
  STATIC_REQUIRE(to_dto_status(IBV_WC_REM_INV_REQ_ERR, dto_operation::recv_ud) == dto_status::local_length);
  STATIC_REQUIRE(to_dto_status(IBV_WC_REM_INV_REQ_ERR, dto_operation::send) == dto_status::remote_responder);
  STATIC_REQUIRE(to_dto_status(IBV_WC_REM_OP_ERR, dto_operation::send) == dto_status::remote_responder);
}

TEST_CASE("remote access is never reported for a plain send or a receive", "[DTO-159][COMP-039][COMP-061]") {
  STATIC_REQUIRE(to_dto_status(IBV_WC_REM_ACCESS_ERR, dto_operation::send) == dto_status::remote_responder);
  STATIC_REQUIRE(to_dto_status(IBV_WC_REM_ACCESS_ERR, dto_operation::recv) == dto_status::local_protection);
  STATIC_REQUIRE(to_dto_status(IBV_WC_REM_ACCESS_ERR, dto_operation::send_with_invalidate) ==
                 dto_status::remote_access);
  STATIC_REQUIRE(to_dto_status(IBV_WC_REM_ACCESS_ERR, dto_operation::rdma_read) == dto_status::remote_access);
  STATIC_REQUIRE(to_dto_status(IBV_WC_REM_ACCESS_ERR, dto_operation::rdma_write) == dto_status::remote_access);
  STATIC_REQUIRE(to_dto_status(IBV_WC_REM_ACCESS_ERR, dto_operation::rdma_read_to_rmr) == dto_status::remote_access);
  STATIC_REQUIRE(to_dto_status(IBV_WC_REM_ACCESS_ERR, dto_operation::fetch_and_add) == dto_status::remote_access);
}

TEST_CASE("a bind ends in one of the four statuses that binds have", "[COMP-045]") {
  STATIC_REQUIRE(to_dto_status(IBV_WC_MW_BIND_ERR, dto_operation::bind) == dto_status::rmr_operation_failed);
  STATIC_REQUIRE(to_dto_status(IBV_WC_WR_FLUSH_ERR, dto_operation::bind) == dto_status::flushed);
  STATIC_REQUIRE(to_dto_status(IBV_WC_LOC_QP_OP_ERR, dto_operation::unbind) == dto_status::rmr_operation_failed);
  STATIC_REQUIRE(to_dto_status(IBV_WC_MW_BIND_ERR, dto_operation::rdma_write) != dto_status::rmr_operation_failed);
}

TEST_CASE("whatever a device reports, the status is one that DAT allows for the operation", "[status]") {
  const auto check = [](dto_operation operation) {
    for (int wc = 0; wc < 128; ++wc) {
      const auto status = to_dto_status(wc, operation);
      CAPTURE(wc, to_string(operation), to_string(status));
      if (!applicable(status, operation)) FAIL("not applicable");
      if ((status == dto_status::success) != (wc == IBV_WC_SUCCESS)) FAIL("success");
      if ((status == dto_status::flushed) != (wc == IBV_WC_WR_FLUSH_ERR)) FAIL("flushed");
    }
  };
  for (const auto operation : requests) check(operation);
  for (const auto operation : receives) check(operation);
  for (const auto operation : binds) check(operation);
  SUCCEED();
  SHOWS("COMP-038", "COMP-039", "COMP-041", "COMP-043", "COMP-044", "COMP-045", "COMP-067", "DTO-159");
}

TEST_CASE("a status that no verbs release knows is a transport error and never a flush",
          "[COMP-042][COMP-050][COMP-066]") {
  constexpr auto unknown = 99;
  STATIC_REQUIRE(to_dto_status(unknown, dto_operation::send) == dto_status::transport);
  STATIC_REQUIRE(to_dto_status(unknown, dto_operation::recv) == dto_status::transport);
  STATIC_REQUIRE(to_dto_status(unknown, dto_operation::bind) == dto_status::local_ep);
  for (const auto operation : requests) CHECK(to_dto_status(unknown, operation) == dto_status::transport);
  for (const auto operation : receives) CHECK(to_dto_status(unknown, operation) == dto_status::transport);
  // The meaning of the other names of the C header: only DAT_DTO_FAILURE and DAT_RMR_BIND_FAILURE are flushes.
  for (const auto operation : {dto_operation::send, dto_operation::recv, dto_operation::bind, dto_operation::unbind}) {
    CHECK(to_dto_status(IBV_WC_SUCCESS, operation) == dto_status::success);
    for (int wc = 0; wc <= unknown; ++wc)
      CHECK((to_dto_status(wc, operation) == dto_status::flushed) == (wc == IBV_WC_WR_FLUSH_ERR));
  }
  CHECK(to_dto_status(IBV_WC_LOC_LEN_ERR, dto_operation::recv) == dto_status::local_length); // DAT_DTO_LENGTH_ERROR
}
