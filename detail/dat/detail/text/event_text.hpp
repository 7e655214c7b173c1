// Sentences about events, for logs and errors.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>
#include <dat/status.hpp>

#include <dat/detail/base/config.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dat { inline namespace v0 { namespace detail {

/// "send_done on ep (qp 17): 64 bytes, cookie 7".
[[nodiscard]] std::string transfer_text(std::string_view name, std::uint32_t qp, std::uint64_t cookie,
                                        std::size_t bytes);
/// "bind_done on ep (qp 17): unbind, cookie 7".
[[nodiscard]] std::string bind_text(std::string_view name, dto_operation operation, std::uint32_t qp,
                                    std::uint64_t cookie);
[[nodiscard]] std::string failure_text(dto_operation operation, dto_status status, std::uint32_t qp, int verbs,
                                       std::uint32_t vendor);
/// "disconnected on ep (qp 17): The peer ended the connection.".
[[nodiscard]] std::string connection_text(std::string_view name, std::uint32_t qp, std::string_view cause);
/// "connection_request from 10.0.0.1:4000".
[[nodiscard]] std::string request_text(std::string_view name, const ia_address& from);
/// "request on port 7471 refused: The evd ...".
[[nodiscard]] std::string request_refused_text(std::uint32_t port, int err);
/// "software_event, cookie 7".
[[nodiscard]] std::string software_text(std::string_view name, std::uint64_t cookie);
/// "evd_overflow of evd 96: ...", without "of evd 96" for 0.
[[nodiscard]] std::string async_text(std::string_view name, std::string_view object, std::uint32_t number,
                                     std::string_view cause);

/// "provider_internal_error of evd 96: ibv_poll_cq gave ENOMEM".
[[nodiscard]] std::string verb_text(std::string_view name, std::uint32_t evd, std::string_view verb, int err);

inline constexpr std::string_view peer_rejected_cause = "The peer rejected the connection request.";
inline constexpr std::string_view accept_completion_cause = "The peer gave up before the connection was complete.";
inline constexpr std::string_view timed_out_cause =
    "The peer did not answer the connection request in time: its program is busy or does not accept, or, on RoCE v2, a "
    "firewall drops UDP port 4791.";
inline constexpr std::string_view unreachable_cause =
    "No answer from that address: check that the host is up, that the address is right, and, on RoCE v2, that UDP port "
    "4791 is open.";
/// The usual cause of a refused connection, for an InfiniBand reject reason or an errno.
[[nodiscard]] std::string_view refusal_cause(int reason) noexcept;

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/text/event_text.ipp>
#endif
