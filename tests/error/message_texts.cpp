// The texts of errors and events: their parts, in which cases each part is there, and singular and plural.
// SPDX-License-Identifier: BSL-1.0
#include <dat/error.hpp>

#include <dat/detail/text/event_text.hpp>

#include <support/catch.hpp>

#include <cerrno>
#include <string>

using dat::error;
using dat::object_kind;
using dat::return_subtype;
using dat::return_type;

namespace {

/// The part of a message between the failure's own meaning and the remedy.
std::string taken(std::uint32_t index, object_kind kind) {
  const auto text = error(return_type::internal_error).at("f", kind, 7).index(index).message();
  const auto plain = error(return_type::internal_error).at("f", kind, 7).message();
  const auto end = plain.rfind('.');
  REQUIRE(text.size() >= plain.size());
  return text.substr(end, text.size() - plain.size());
}

} // namespace

TEST_CASE("a message counts the operations that an endpoint took, and the events that stay in an evd", "[error]") {
  CHECK(taken(0, object_kind::ep).empty());
  CHECK(taken(1, object_kind::ep) == " after 1 operation was taken");
  CHECK(taken(2, object_kind::ep) == " after 2 operations were taken");
  CHECK(taken(1, object_kind::evd) == " with 1 event queued");
  CHECK(taken(2, object_kind::evd) == " with 2 events queued");
}

TEST_CASE("a message has the object and its number, or one of them, or neither", "[error]") {
  const error plain(return_type::internal_error);
  const auto meaning = std::string(plain.major());
  CHECK(plain.message().starts_with(meaning));
  CHECK(plain.at("f").message().starts_with("f failed: " + meaning));
  CHECK(plain.at("f", object_kind::ep).message().starts_with("f on ep failed: " + meaning));
  CHECK(plain.at("f", object_kind::ep, 1).message().starts_with("f on ep 1 failed: " + meaning));
  CHECK(plain.at(nullptr, object_kind::evd, 5).message().starts_with("on evd 5 failed: " + meaning));
}

TEST_CASE("a message names the system call and its errno, where each is known", "[error]") {
  const error plain(return_type::internal_error);
  const auto meaning = std::string(plain.major());
  CHECK(plain.from("open", 0).message().starts_with(meaning + ": open"));
  CHECK(plain.from("open", 0).message().find("gave") == std::string::npos);
  CHECK(plain.from("open", ENOENT).message().find(": open gave ENOENT (No such file or directory)") !=
        std::string::npos);
  CHECK(plain.from(nullptr, ENOENT).message().find(": ENOENT (No such file or directory)") != std::string::npos);
  CHECK(plain.from("open", -ENOENT).sys_errno() == ENOENT);
  CHECK(plain.from("open", 4711).message().find("open gave errno 4711") != std::string::npos);
}

TEST_CASE("from and index forget the object's number only with a quoted text", "[error]") {
  const error of = error(return_type::internal_error).at("f", object_kind::ep, 7);
  CHECK(of.from("open", ENOENT).object_id() == 7);
  CHECK(of.index(3).object_id() == 7);
  CHECK(of.quote("\1\2\3\4\5\6\7\1\2\3\4\5\6\7\1\2\3").from("open", ENOENT).object_id() == 0);
  CHECK(of.quote("\1\2\3\4\5\6\7\1\2\3\4\5\6\7\1\2\3").from("open", ENOENT).index() == 0);
  CHECK(of.quote("\1\2\3\4\5\6\7\1\2\3\4\5\6\7\1\2\3").index(9).sys_errno() == 0);
  CHECK(of.quote("\1\2\3\4\5\6\7\1\2\3\4\5\6\7\1\2\3").index(9).verb().empty());
}

TEST_CASE("a return word is a warning by its class, and no error is one", "[error]") {
  CHECK_FALSE(dat::is_warning(0));
  CHECK_FALSE(dat::is_warning(error(return_type::invalid_state).value()));
  CHECK(dat::is_warning(static_cast<std::uint32_t>(dat::return_class::warning)));
  CHECK(dat::is_warning(static_cast<std::uint32_t>(dat::return_class::warning) | 5));
}

TEST_CASE("events have texts with the values that matter", "[error][event]") {
  using namespace dat::detail;
  CHECK(transfer_text("recv_done", 17, 5, 8) == "recv_done on ep (qp 17): 8 bytes, cookie 5");
  CHECK(bind_text("bind_done", dat::dto_operation::bind, 17, 5) ==
        "bind_done on ep (qp 17): " + std::string(to_string(dat::dto_operation::bind)) + ", cookie 5");
  CHECK(connection_text("disconnected", 17, "") == "disconnected on ep (qp 17)");
  CHECK(connection_text("disconnected", 17, "The peer.") == "disconnected on ep (qp 17): The peer.");
  CHECK(software_text("software_event", 9) == "software_event, cookie 9");
  CHECK(async_text("port_down", "ep", 0, "") == "port_down");
  CHECK(async_text("ep_broken", "ep", 17, "") == "ep_broken of ep 17");
  CHECK(async_text("ep_broken", "ep", 17, "x") == "ep_broken of ep 17: x");
  CHECK(async_text("ep_broken", "ep", 0, "x") == "ep_broken: x");
  CHECK(verb_text("failure", 3, "ibv_poll_cq", EIO) == "failure of evd 3: ibv_poll_cq gave EIO (Input/output error)");
  CHECK(verb_text("failure", 0, "ibv_poll_cq", EIO) == "failure: ibv_poll_cq gave EIO (Input/output error)");
}

TEST_CASE("the text of a refused request names the port and the cause", "[error][event]") {
  using dat::detail::request_refused_text;
  CHECK(request_refused_text(7471, ENOBUFS).starts_with("request on port 7471 refused: The evd "));
  CHECK(request_refused_text(7471, ECONNREFUSED).starts_with("request on port 7471 refused: The service point "));
  CHECK(request_refused_text(7471, ENOMEM) == "request on port 7471 refused: ENOMEM (Cannot allocate memory)");
}

TEST_CASE("the text of a refused connection depends on the reason that the peer's side gave", "[error][event]") {
  using dat::detail::refusal_cause;
  CHECK(refusal_cause(10).find("earlier connection") != std::string_view::npos);
  CHECK(refusal_cause(35).find("dropped the request without an answer, or its evd") != std::string_view::npos);
  CHECK(refusal_cause(ECONNREFUSED) == "The connection was refused: no program listens there.");
  CHECK(refusal_cause(ECONNRESET).find("or its process is gone") != std::string_view::npos);
  CHECK(refusal_cause(28).find("the listener's queue is full") != std::string_view::npos);
}
