// Names of events, and private data as text, for tests.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/dat.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace support {

inline std::span<const std::byte> bytes_of(std::string_view s) {
  return {reinterpret_cast<const std::byte*>(s.data()), s.size()};
}
inline std::string text_of(std::span<const std::byte> data) {
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}
/// Private data without its padding.
inline std::string unpadded(std::span<const std::byte> data) {
  auto s = text_of(data);
  s.resize(s.find_last_not_of('\0') + 1);
  return s;
}

/// The name of an event and its most important value: "established", "received 7", "flushed 3" (the cookie of a
/// completion, the status of a failure).
struct describe {
  std::string operator()(const dat::send_done& e) const { return with("sent", e); }
  std::string operator()(const dat::recv_done& e) const { return with("received", e); }
  std::string operator()(const dat::rdma_write_done& e) const { return with("written", e); }
  std::string operator()(const dat::rdma_read_done& e) const { return with("read", e); }
  std::string operator()(const dat::ib::recv_immediate_done& e) const { return with("received immediate", e); }
  std::string operator()(const dat::ib::recv_write_immediate_done& e) const { return with("write arrived", e); }
  std::string operator()(const dat::ib::rdma_write_immediate_done& e) const { return with("written immediate", e); }
  std::string operator()(const dat::ib::fetch_and_add_done& e) const { return with("added", e); }
  std::string operator()(const dat::ib::compare_and_swap_done& e) const { return with("compared", e); }
  std::string operator()(const dat::ib::atomic_write_done& e) const { return with("word written", e); }
  std::string operator()(const dat::ib::flush_done& e) const { return with("memory flushed", e); }
  std::string operator()(const dat::bind_done& e) const { return with(to_string(e.operation()), e); }
  std::string operator()(const dat::dto_failure& e) const { return with(to_string(e.status()), e); }
  std::string operator()(const dat::established&) const { return text("established"); }
  std::string operator()(const dat::peer_rejected&) const { return text("peer_rejected"); }
  std::string operator()(const dat::non_peer_rejected& e) const { return reason("non_peer_rejected", e); }
  std::string operator()(const dat::accept_completion_error& e) const { return reason("accept_completion_error", e); }
  std::string operator()(const dat::disconnected&) const { return text("disconnected"); }
  std::string operator()(const dat::connection_broken&) const { return text("broken"); }
  std::string operator()(const dat::connection_timed_out&) const { return text("timed_out"); }
  std::string operator()(const dat::connection_unreachable& e) const { return reason("unreachable", e); }
  std::string operator()(const dat::cr&) const { return text("request"); }
  std::string operator()(const dat::software_event& e) const {
    return "software " + std::to_string(e.cookie().value());
  }

private:
  // This function is out of line: g++ 12 warns about overflows in inlined copies of literals into strings.
  [[gnu::noinline]] static std::string text(std::string_view what) { return std::string(what); }
  [[gnu::noinline]] static std::string with(std::string_view what, const dat::completion& e) {
    return text(what).append(" ").append(std::to_string(e.cookie().value()));
  }
  template <class E>
  [[gnu::noinline]] static std::string reason(const char* what, const E& e) {
    return text(what).append(" ").append(std::to_string(e.reason()));
  }
};

using events = std::vector<std::string>;

} // namespace support
