// Definitions of event_text.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/text/error_text.hpp>
#include <dat/detail/text/event_text.hpp>

#include <cerrno>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL std::string on_ep(std::string_view name, std::uint32_t qp) {
  std::string text(name);
  text += " on ep (qp ";
  text += std::to_string(qp);
  text += ')';
  return text;
}

DAT_DECL std::string transfer_text(std::string_view name, std::uint32_t qp, std::uint64_t cookie, std::size_t bytes) {
  std::string text = on_ep(name, qp);
  text += ": ";
  text += std::to_string(bytes);
  text += " bytes, cookie ";
  text += std::to_string(cookie);
  return text;
}

DAT_DECL std::string bind_text(std::string_view name, dto_operation operation, std::uint32_t qp, std::uint64_t cookie) {
  std::string text = on_ep(name, qp);
  text += ": ";
  text += to_string(operation);
  text += ", cookie ";
  text += std::to_string(cookie);
  return text;
}

DAT_DECL std::string failure_text(dto_operation operation, dto_status status, std::uint32_t qp, int verbs,
                                  std::uint32_t vendor) {
  std::string text = on_ep(to_string(operation), qp);
  text += ": ";
  text += to_string(status);
  text += " (verbs status ";
  text += std::to_string(verbs);
  if (vendor != 0) {
    text += ", vendor code ";
    text += std::to_string(vendor);
  }
  text += "): ";
  text += usual_cause(status);
  return text;
}

DAT_DECL std::string connection_text(std::string_view name, std::uint32_t qp, std::string_view cause) {
  std::string text = on_ep(name, qp);
  if (!cause.empty()) {
    text += ": ";
    text += cause;
  }
  return text;
}

DAT_DECL std::string request_text(std::string_view name, const ia_address& from) {
  std::string text(name);
  text += " from ";
  text += from.to_string();
  return text;
}

DAT_DECL std::string request_refused_text(std::uint32_t port, int err) {
  std::string text("request on port ");
  text += std::to_string(port);
  text += " refused: ";
  if (err == ENOBUFS)
    text += "The evd of the service point has no room for requests. Take events more often, or create it with a larger "
            "qlen.";
  else if (err == ECONNREFUSED)
    text += "The service point is a reserved one that has already received its request, or it has just "
            "been closed.";
  else
    text += errno_text(err);
  return text;
}

DAT_DECL std::string software_text(std::string_view name, std::uint64_t cookie) {
  std::string text(name);
  text += ", cookie ";
  text += std::to_string(cookie);
  return text;
}

DAT_DECL std::string async_text(std::string_view name, std::string_view object, std::uint32_t number,
                                std::string_view cause) {
  std::string text(name);
  if (number != 0) {
    text += " of ";
    text += object;
    text += ' ';
    text += std::to_string(number);
  }
  if (!cause.empty()) {
    text += ": ";
    text += cause;
  }
  return text;
}

DAT_DECL std::string verb_text(std::string_view name, std::uint32_t evd, std::string_view verb, int err) {
  std::string text = async_text(name, "evd", evd, verb);
  text += " gave ";
  text += errno_text(err);
  return text;
}

DAT_DECL std::string_view refusal_cause(int reason) noexcept {
  switch (reason) {
  case 10: // IB_CM_REJ_STALE_CONN
    return "The connection was refused: the peer still has an earlier connection with the same numbers. Connect again.";
  case 35: // IB_CM_REJ_VENDOR_OPTION_NOT_SUPPORTED, which only a library sends
    return "The connection was refused: the peer's program dropped the request without an answer, or its evd had no "
           "room for requests.";
  case ECONNREFUSED: // the answer of TCP, on iWARP
    return "The connection was refused: no program listens there.";
  case ECONNRESET:
    return "The connection was refused: the peer's program dropped the request without an answer, its evd had no room "
           "for requests, or its process is gone.";
  default:
    return "The connection was refused: no program listens there, the listener's queue is full, or its process is "
           "gone.";
  }
}

}}} // namespace dat::v0::detail
