// Two adapters of the fake verbs library, and a plain rdma_cm peer that sends any data.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "input.hpp"

#include <fake_verbs/fake_verbs.hpp>
#include <fake_verbs/personality.hpp>

#include <dat/dat.hpp>
#include <dat/rmr.hpp>
#include <dat/ud.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <string>
#include <vector>

namespace fuzz {

inline constexpr auto all_streams = dat::stream::dto | dat::stream::connection | dat::stream::connection_requests |
                                    dat::stream::datagrams | dat::stream::rmr_bind | dat::stream::software;
inline constexpr auto all_rights = dat::local_read | dat::local_write | dat::remote_read | dat::remote_write;
inline constexpr dat::timeout plenty = std::chrono::seconds(20);
inline constexpr std::uint16_t service = 7471;
using queue = dat::evd<all_streams>;
using region = dat::lmr<char, all_rights.value>;

/// One adapter with manual progress, so that a run depends on its input alone.
struct end {
  explicit end(std::string_view device)
      : ia(must(dat::ia::open(device, {.progress = dat::progress::manual}))),
        pz(must(ia.create_pz())),
        evd(must(ia.create_evd<all_streams>(64))),
        mem(must(pz.register_memory(memory, all_rights))) {}
  std::array<char, 1024> memory{};
  dat::ia ia;
  dat::pz pz;
  queue evd;
  region mem;

  [[nodiscard]] auto at(std::size_t first, std::size_t count) { return must(mem.slice(first, count)); }
};

struct two_ends {
  end a{"fk1"};
  end b{"fk2"};

  void settle() {
    for (int i = 0; i < 6; ++i) {
      fake::finish();
      a.ia.run();
      b.ia.run();
    }
  }
};

/// Runs `f` in a world of its own, in which no object must be left. The world is freed at the end, so that libFuzzer
/// finds memory that the library has not freed. Returns the result of a target.
template <class F>
int in_new_world(F f) {
  fake::reset();
  f();
  if (const auto left = fake::leaks(); !left.empty()) fail(left + "\nthe last calls:\n" + fake::trace(60));
  fake::reset();
  return 0;
}

/// The next event of an evd, when it is an E.
template <class E>
std::optional<E> next(queue& evd) {
  auto e = evd.dequeue();
  if (!e) return {};
  if (auto* one = std::get_if<E>(&e.value())) return std::move(*one);
  return {};
}

/// A peer at 10.99.1.1 that uses rdma_cm without dat.
class plain_peer {
public:
  explicit plain_peer(rdma_port_space space) {
    require(channel_ != nullptr && ::fcntl(channel_->fd, F_SETFL, O_NONBLOCK) == 0, "rdma_create_event_channel");
    require(rdma_create_id(channel_, &id_, nullptr, space) == 0, "rdma_create_id");
  }
  plain_peer(const plain_peer&) = delete;
  plain_peer& operator=(const plain_peer&) = delete;
  ~plain_peer() {
    if (asked_) rdma_destroy_id(asked_);
    rdma_destroy_id(id_);
    rdma_destroy_event_channel(channel_);
  }
  /// Sends a request with this data to 10.99.2.1.
  void ask(std::uint16_t from, std::uint16_t to, std::span<const std::byte> data) {
    const auto here = must(dat::ia_address::parse("10.99.1.1")).with_port(from);
    const auto there = must(dat::ia_address::parse("10.99.2.1")).with_port(to);
    require(rdma_bind_addr(id_, raw(here)) == 0, "rdma_bind_addr");
    require(rdma_resolve_addr(id_, nullptr, raw(there), 1000) == 0, "rdma_resolve_addr");
    (void)read();
    require(rdma_resolve_route(id_, 1000) == 0, "rdma_resolve_route");
    (void)read();
    rdma_conn_param p{};
    p.private_data = data.data();
    p.private_data_len = static_cast<std::uint8_t>(data.size());
    require(rdma_connect(id_, &p) == 0, "rdma_connect");
  }
  void listen(std::uint16_t port) {
    const auto here = must(dat::ia_address::parse("10.99.1.1")).with_port(port);
    require(rdma_bind_addr(id_, raw(here)) == 0 && rdma_listen(id_, 8) == 0, "rdma_listen");
  }
  /// Accepts the request that has arrived on the endpoint of a number or, with 0, rejects it. Returns false if no
  /// request has arrived.
  bool answer(std::uint32_t number, std::span<const std::byte> data) {
    if (read() != RDMA_CM_EVENT_CONNECT_REQUEST || !asked_) return false;
    const auto size = static_cast<std::uint8_t>(data.size());
    if (number == 0) return rdma_reject(asked_, data.data(), size) == 0;
    rdma_conn_param p{};
    p.private_data = data.data();
    p.private_data_len = size;
    p.qp_num = number;
    return rdma_accept(asked_, &p) == 0;
  }
  /// The kind of the next event, which is acknowledged; empty when there is none.
  std::optional<rdma_cm_event_type> read() {
    rdma_cm_event* e = nullptr;
    if (rdma_get_cm_event(channel_, &e) != 0) return {};
    const auto type = e->event;
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) asked_ = e->id;
    rdma_ack_cm_event(e);
    return type;
  }

private:
  static sockaddr* raw(const dat::ia_address& a) { return const_cast<sockaddr*>(a.native_handle()); }
  rdma_event_channel* channel_ = rdma_create_event_channel();
  rdma_cm_id* id_ = nullptr;
  rdma_cm_id* asked_ = nullptr;
};

/// The length of a message's data if the message ends like one of dat, else that of the message. `mark`: where the mark
/// would be.
inline std::size_t marked_length(std::span<const std::byte> message, std::size_t mark) {
  const auto at = [&](std::size_t i) { return std::to_integer<char>(message[i]); };
  if (at(mark) != 'D' || at(mark + 1) != 'A' || at(mark + 2) != 'T') return message.size();
  const auto length = std::to_integer<std::size_t>(message[mark + 3]);
  if (length > mark) return message.size();
  for (std::size_t i = length; i < message.size(); ++i)
    if ((i < mark || i >= mark + 4) && at(i) != 0) return message.size();
  return length;
}

/// Makes a message end like one of dat, which bytes by chance hardly ever do.
inline void add_mark(std::vector<std::byte>& message, std::size_t mark, std::size_t length) {
  if (message.size() < mark + 4) message.resize(mark + 4);
  std::memcpy(&message[mark], "DAT", 3);
  message[mark + 3] = static_cast<std::byte>(length);
}

} // namespace fuzz
