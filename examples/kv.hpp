// The protocol of kv_server, one message each way for each operation, and its client.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "peer.hpp"
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace kv {

inline constexpr dat::conn_qual port = 7473;
inline constexpr std::size_t longest = 1 << 20; ///< bytes of a value
using place = dat::remote_segment<char, dat::remote_read>;

enum class kind : std::uint32_t { get, put, value, done, missing, refused };

/// A request or its answer. Both hosts have the same byte order. A short value is in the message. A long value stays in
/// its memory, and the other side reads it from `where`.
struct message {
  kind what{};
  std::uint32_t size = 0; ///< of the value
  std::array<char, 32> key{};
  place::wire where{};
  std::array<char, 16> text{}; // so that a message of 80 bytes can be sent inline by every device

  static message of(kind what, std::string_view key = {}, std::string_view value = {}, const place::wire& where = {}) {
    message m{.what = what, .size = static_cast<std::uint32_t>(value.size()), .where = where};
    std::copy_n(key.begin(), std::min(key.size(), m.key.size() - 1), m.key.begin());
    if (m.is_short()) std::ranges::copy(value, m.text.begin());
    return m;
  }
  [[nodiscard]] bool is_short() const { return size <= text.size(); }
};

/// A client of kv_server. When the server has died, the client connects again and repeats its request.
struct client : peer<> {
  std::array<message, 1> inbox{};
  std::array<message, 1> outbox{};
  std::vector<char> chars = std::vector<char>(longest);
  dat::lmr<message, dat::local_write> in{};
  dat::lmr<message, dat::local_read> out{};
  dat::lmr<char, dat::local_write | dat::remote_read> page{};

  dat::expected<void> open() {
    DAT_TRYV(peer::open());
    DAT_TRY(in, pz.register_memory(inbox, dat::local_write));
    DAT_TRY(out, pz.register_memory(outbox, dat::local_read));
    DAT_TRY(page, pz.register_memory(chars, dat::local_write | dat::remote_read));
    return dat::success();
  }
  /// False when the server has no room for the value.
  dat::expected<bool> put(std::string_view key, std::string_view value) {
    DAT_TRY(const auto where, page.remote(0, value.size())); // refuses a value that is too long
    std::ranges::copy(value, chars.begin());
    DAT_TRY(const auto answer, call(message::of(kind::put, key, value, where.to_wire())));
    return answer.what == kind::done;
  }
  /// Empty when the server has no such key.
  dat::expected<std::optional<std::string>> get(std::string_view key) {
    DAT_TRY(const auto answer, call(message::of(kind::get, key)));
    if (answer.what != kind::value) return std::optional<std::string>();
    return std::optional(std::string(answer.is_short() ? answer.text.data() : chars.data(), answer.size));
  }

  /// Repeats the request until there is an answer. Every request may be repeated, because a repetition has no effect.
  dat::expected<message> call(const message& request) {
    for (int tries = 0;; ++tries) {
      const auto done = ask(request);
      if (done) return inbox[0];
      if (tries == 50) return done.error();
      if (ep.state() != dat::ep_state::connected)
        std::this_thread::sleep_for(std::chrono::milliseconds(100)); // there may be no server
      ep = {};
    }
  }
  dat::expected<void> ask(const message& request) {
    if (ep.state() != dat::ep_state::connected) { // a new endpoint, which no earlier connection can affect
      evd.drain([](const auto&) {});
      DAT_TRY(ep, pz.create_ep<dat::rc>(evd));
      DAT_TRYV(connect({}, port));
    }
    outbox[0] = request;
    DAT_TRYV(ep.post(dat::recv{in}));
    DAT_TRYV(ep.post(dat::send{out}));
    DAT_TRYV(evd.wait_for<dat::send_done>(ep, limit));
    DAT_TRYV(evd.wait_for<dat::recv_done>(ep, limit));
    if (inbox[0].what != kind::value || inbox[0].is_short()) return dat::success();
    DAT_TRY(const auto from, place::from_wire(inbox[0].where)); // a long value: read it from the server
    DAT_TRY(const auto into, page.slice(0, inbox[0].size));
    DAT_TRYV(ep.post(dat::rdma_read{into, from}));
    DAT_TRYV(evd.wait_for<dat::rdma_read_done>(ep, limit));
    return dat::success();
  }
};

} // namespace kv
