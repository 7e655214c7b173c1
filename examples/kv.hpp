// The protocol of kv_server and kv_client, one message each way for each operation, and what both sides open.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <dat/dat.hpp>
#include <dat/try.hpp>
#include <iostream>
#include <string_view>

namespace kv {

inline constexpr dat::conn_qual port = 7473;
inline constexpr auto streams = dat::stream::dto | dat::stream::connection | dat::stream::connection_requests;
inline constexpr std::size_t longest = 1 << 20; ///< bytes of a value
using place = dat::remote_segment<char, dat::remote_read>;

enum class kind : std::uint32_t { get, put, value, done, missing, refused };

/// A request or its answer. Both hosts have the same byte order. A short value is in the message. A long one stays
/// where it is, and the other side reads it from `where`.
struct message {
  kind what{};
  std::uint32_t size = 0; ///< of the value
  std::array<char, 32> key{};
  place::wire where{};
  std::array<char, 96> text{};

  static message of(kind what, std::string_view key, std::string_view value = {}, const place::wire& where = {}) {
    message m{.what = what, .size = static_cast<std::uint32_t>(value.size()), .where = where};
    std::copy_n(key.begin(), std::min(key.size(), m.key.size() - 1), m.key.begin());
    if (m.is_short()) std::ranges::copy(value, m.text.begin());
    return m;
  }
  [[nodiscard]] bool is_short() const { return size <= text.size(); }
};

/// What each side has: an adapter, and registered messages, `Messages` to come and one to go.
template <std::size_t Messages>
struct node {
  dat::ia ia{};
  dat::pz pz{};
  dat::evd<streams> evd{};
  std::array<message, Messages> inbox{};
  std::array<message, 1> outbox{};
  dat::lmr<message, dat::local_write> in{};
  dat::lmr<message, dat::local_read> out{};

  dat::expected<void> open(const char* host) {
    DAT_TRY(ia, host ? dat::ia::open_by_route(host) : dat::ia::open());
    DAT_TRY(pz, ia.create_pz());
    DAT_TRY(evd, ia.create_evd<streams>(64)); // grows with each endpoint
    DAT_TRY(in, pz.register_memory(inbox, dat::local_write));
    DAT_TRY(out, pz.register_memory(outbox, dat::local_read));
    return dat::success();
  }
};

} // namespace kv
