// Event streams: the kinds of events that an evd can deliver.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

namespace dat { inline namespace v0 {

/// The streams that an evd merges, as bits; the values are those of DAT_EVD_FLAGS (uDAPL 2.0 §6.3.4.1). Part of the
/// evd's type: `dat::evd<dat::stream::dto | dat::stream::connection>` can deliver completions and connection events and
/// nothing else.
enum class streams : std::uint32_t {
  software = 0x001,            ///< events that the consumer posts itself
  connection_requests = 0x010, ///< requests that arrive at service points
  dto = 0x020,                 ///< completions of data transfer operations
  connection = 0x040,          ///< established, rejected, disconnected ... of endpoints
  rmr_bind = 0x080,            ///< completions of binds and unbinds of rmrs; besides dto
  async = 0x100,               ///< failures and changes of the adapter and its objects
  datagrams = 0x200            ///< extends other streams by the events of datagram endpoints, see <dat/ud.hpp>
};

[[nodiscard]] constexpr streams operator|(streams a, streams b) noexcept {
  return static_cast<streams>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}
[[nodiscard]] constexpr streams operator&(streams a, streams b) noexcept {
  return static_cast<streams>(static_cast<std::uint32_t>(a) & static_cast<std::uint32_t>(b));
}

/// True when every stream in `wanted` is in `held`.
[[nodiscard]] constexpr bool includes(streams held, streams wanted) noexcept { return (held & wanted) == wanted; }

/// True for an evd that is only a completion queue: no ring, no lock, polled straight from the device.
[[nodiscard]] constexpr bool is_completions_only(streams s) noexcept {
  return includes(s, streams::dto) && includes(streams::dto | streams::rmr_bind | streams::datagrams, s);
}

/// The streams as constants: `dat::stream::dto | dat::stream::connection`.
namespace stream {
inline constexpr streams software = streams::software;                       ///< as streams::software
inline constexpr streams dto = streams::dto;                                 ///< as streams::dto
inline constexpr streams connection = streams::connection;                   ///< as streams::connection
inline constexpr streams connection_requests = streams::connection_requests; ///< as streams::connection_requests
inline constexpr streams rmr_bind = streams::rmr_bind;                       ///< as streams::rmr_bind
inline constexpr streams async = streams::async;                             ///< as streams::async
inline constexpr streams datagrams = streams::datagrams;                     ///< as streams::datagrams
/// The streams of an evd that serves every object but datagram endpoints (DAT_EVD_DEFAULT_FLAG): all of uDAPL but
/// software events.
inline constexpr streams standard = connection_requests | dto | connection | rmr_bind | async;
} // namespace stream

}} // namespace dat::v0
