// One connection: how its memory, its endpoint and its credits work.
// SPDX-License-Identifier: BSL-1.0
#include "channel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <endian.h>
#include <utility>

namespace datcp {

using namespace std::chrono_literals;

namespace {

constexpr auto connect_limit = 5s;
/// The interval at which a waiting side checks for a stop, and the time without data after which it checks that the
/// peer's host is up.
constexpr auto look_around = 250ms;
constexpr int looks_before_probe = 20;

/// A host that is busy for longer delays acknowledgements. The adapter then repeats requests, which Soft-RoCE may take
/// twice (docs/devices.md). A copy has the time to wait.
constexpr auto ack_limit = 500ms;

/// Buffers for messages to send.
constexpr std::size_t outbox_messages = 8;

/// Receives in addition to those for blocks. The protocol limits the peer to this many messages that this side has not
/// taken yet: begin + done, or total + entry, or an answer; and one credit for each quarter of the ring.
constexpr std::size_t spare_receives = 8;

[[nodiscard]] std::size_t receives(const geometry& g) { return g.blocks + spare_receives; }

} // namespace

channel::channel(dat::ia& ia, geometry limit, std::function<bool()> should_stop)
    : geometry_(limit),
      should_stop_(std::move(should_stop)),
      ring_memory_(limit.bytes()),
      inbox_memory_(receives(limit) * message_size),
      outbox_memory_(outbox_messages * message_size) {
  // value() throws dat::failure, whose what() is one line: the call, the reason, the remedy.
  const auto requests = static_cast<std::uint32_t>(limit.blocks + outbox_messages + 1); // 1: the probe of wait()
  const auto recvs = static_cast<std::uint32_t>(receives(limit));
  evd_ = ia.create_evd<dat::stream::dto | dat::stream::connection>(requests + recvs + 4).value();
  pz_ = ia.create_pz().value();
  // The ring is the only memory that the peer can write to.
  ring_ = pz_.register_memory(ring_memory_, dat::local_read | dat::local_write | dat::remote_write).value();
  inbox_ = pz_.register_memory(inbox_memory_, dat::local_write).value();
  outbox_ = pz_.register_memory(outbox_memory_, dat::local_read).value();
  ep_ = pz_.create_ep<dat::rc>(evd_, {.max_request_dtos = requests,
                                      .max_recv_dtos = recvs,
                                      .max_rdma_read_out = 0,
                                      .max_rdma_read_in = 0,
                                      // Credits guarantee that a receive is always posted: RNR retries would only hide
                                      // an error in this accounting.
                                      .rnr_retry_count = 0,
                                      .ack_timeout = ack_limit})
            .value();
  // The receives are posted before the connection exists, because the peer may send at once.
  for (std::size_t i = 0; i < receives(limit); ++i) repost(i);
  for (std::size_t i = 0; i < outbox_messages; ++i) free_messages_.push_back(i);
}

greeting channel::greet() const {
  return {.blocks = geometry_.blocks, .block_size = geometry_.block_size, .ring = ring_.remote().to_wire()};
}

/// Reads the peer's greeting from the private data. That of a foreign program may have any content.
void channel::adopt(std::span<const std::byte> private_data) {
  greeting peer;
  try {
    peer = decode_prefix<greeting>(private_data);
  } catch (const protocol_error&) {
    peer.protocol = {};
  }
  if (peer.protocol != magic) throw stranger("it does not speak datcp's protocol");
  if (peer.version != protocol_version)
    throw stranger(
        fmt::format("it speaks version {} of datcp's protocol, this is version {}", peer.version, protocol_version));
  const geometry offered{peer.block_size, peer.blocks};
  auto ring = remote_ring::from_wire(peer.ring);
  if (!offered.valid() || !ring || ring.assume_value().size() < offered.bytes())
    throw stranger("its greeting makes no sense");
  peer_ring_ = ring.assume_value();
  geometry_ = {std::min(geometry_.block_size, offered.block_size), std::min(geometry_.blocks, offered.blocks)};
}

void channel::connect(const dat::ia_address& server, dat::conn_qual port) {
  ep_.connect(server, port, connect_limit, encode_prefix(greet())).value();
  // The attempt ends with exactly one event of these. The variant lists all events that can come.
  const auto no = [](const std::string& why) { throw connection_error(why); };
  while (peer_ring_.empty()) {
    if (should_stop_()) throw interrupted("interrupted");
    auto event = evd_.wait(look_around);
    if (!event) {
      const auto type = event.assume_error().type();
      if (type != dat::return_type::timeout_expired && type != dat::return_type::interrupted_call) event.value();
      continue;
    }
    std::visit(
        dat::overloaded{
            [&](const dat::established& e) { adopt(e.private_data()); },
            [&](const dat::peer_rejected& e) {
              try {
                const auto r = decode_prefix<refusal>(e.private_data());
                if (r.protocol == magic) no(fmt::format("the server says: {}", r.reason));
              } catch (const protocol_error&) {
              }
              throw stranger("refused by a program that does not speak datcp's protocol");
            },
            [&](const dat::non_peer_rejected&) { no(fmt::format("no datcp server answers on port {}", port.port())); },
            [&](const dat::connection_unreachable&) { no("no way to that host"); },
            [&](const dat::connection_timed_out&) { no("no answer from that host"); },
            [&](const dat::disconnected&) { no("the server hung up at once"); },
            [](const auto&) {},
        },
        event.assume_value());
  }
}

void channel::accept(dat::cr request) {
  try {
    adopt(request.private_data());
  } catch (const stranger& s) {
    // A datcp of another version shows the text to its user. Any other program sees a plain reject.
    (void)request.reject(encode_prefix(refusal{.reason = fmt::format("version {} wanted", protocol_version)}));
    throw;
  }
  request.accept(ep_, encode_prefix(greet())).value();
  // The accepting side may not post a request before the connection is established either.
  if (auto up = evd_.wait_for<dat::established>(ep_, connect_limit); !up)
    throw connection_error("the client gave up before the connection was complete");
}

void channel::hang_up() noexcept {
  // A graceful disconnect completes posted operations first. A slow peer can delay it by two seconds at most.
  if (at_end() || !ep_.disconnect(dat::close_mode::graceful)) return;
  (void)evd_.wait_for<dat::disconnected>(ep_, 2s);
}

// --- the event loop -----------------------------------------------------------------------------------------------

/// Handles all queued events, or waits for one.
void channel::wait() {
  const auto handle = [this](const auto& event) { on(event); };
  for (int silent = 1;; ++silent) {
    if (evd_.drain(handle) > 0) return;
    if (at_end()) throw connection_error(end_);
    if (should_stop_()) throw interrupted("interrupted");
    if (auto event = evd_.wait(look_around)) {
      std::visit(handle, event.assume_value());
      return;
    } else if (const auto type = event.assume_error().type();
               type != dat::return_type::timeout_expired && type != dat::return_type::interrupted_call) {
      throw connection_error(event.assume_error().message());
    }
    // A side that only receives would never detect that the peer's host has lost power, because adapters do not probe.
    // An RDMA write of length 0 transfers nothing and wakes no thread, but the peer's adapter must acknowledge it.
    // Without the acknowledgement the write fails and the connection breaks.
    if (silent % looks_before_probe == 0) {
      const auto nothing = ring_.slice(0, 0).value();
      const auto nowhere = peer_ring_.slice(0, 0).value();
      (void)ep_.post(dat::rdma_write{nothing, nowhere});
    }
  }
}

void channel::on(const dat::recv_done& e) {
  const auto place = inbox_.slice(e.cookie().as<std::size_t>() * message_size, e.bytes()).value();
  message m = decode(place.elements());
  // Decoding has copied the message, so its receive is posted again at once. This comes before any message that shows
  // the peer that there is room.
  repost(e.cookie());
  if (const auto* c = std::get_if<credit>(&m)) {
    if (c->consumed < granted_ || c->consumed > posted_)
      throw protocol_error("the peer gave a credit it does not have");
    granted_ = c->consumed;
  } else {
    if (arrivals_.size() >= receives(geometry_)) throw protocol_error("the peer does not wait for its turn");
    arrivals_.push_back({.said = std::move(m)});
  }
}

void channel::on(const dat::ib::recv_write_immediate_done& e) {
  // The write has changed the ring; of the receive it used only the completion, and the buffer is unchanged.
  repost(e.cookie());
  const auto number = arrived_++;
  if (le32toh(e.immediate()) != static_cast<std::uint32_t>(number) || e.bytes() == 0 ||
      e.bytes() > geometry_.block_size || number - consumed_ >= geometry_.blocks)
    throw protocol_error("the peer wrote a block that was not its turn");
  arrivals_.push_back({.block_number = number, .block_bytes = static_cast<std::uint32_t>(e.bytes())});
}

void channel::on(const dat::dto_failure& e) {
  // After the first failed operation all others are flushed, so only the first one names the cause.
  if (failure_.empty() && e.status() != dat::dto_status::flushed) failure_ = to_string(e.status());
}

void channel::on(const dat::disconnected&) {
  if (end_.empty()) end_ = "the peer ended the connection";
}

void channel::on(const dat::connection_broken&) {
  if (end_.empty())
    end_ = failure_.empty() ? "the connection broke" : fmt::format("the connection broke ({})", failure_);
}

void channel::repost(dat::cookie which) {
  const auto place = inbox_.slice(which.as<std::size_t>() * message_size, message_size).value();
  ep_.post(dat::recv{place}.cookie(which)).value();
}

// --- messages -----------------------------------------------------------------------------------------------------

void channel::send(const message& m) {
  const auto bytes = encode(m);
  if (bytes.size() > message_size) throw protocol_error("a name or text is too long");
  while (free_messages_.empty()) wait();
  const auto which = free_messages_.front();
  const auto place = outbox_.slice(which * message_size, bytes.size()).value();
  std::ranges::copy(bytes, place.elements().begin());
  if (auto posted = ep_.post(dat::send{place}.cookie(which)); !posted) {
    // The connection has ended, and the event with the cause is on its way.
    while (!at_end()) wait();
    throw connection_error(end_);
  }
  free_messages_.pop_front();
}

void channel::wait_for_arrival() {
  while (arrivals_.empty()) wait();
}

std::variant<block, message> channel::receive_any() {
  wait_for_arrival();
  receive_result a = std::move(arrivals_.front());
  arrivals_.pop_front();
  if (a.said) return std::move(*a.said);
  const auto place = a.block_number % geometry_.blocks;
  return block{ring_.slice(place * geometry_.block_size, a.block_bytes).value().elements()};
}

message channel::receive() {
  auto any = receive_any();
  if (auto* m = std::get_if<message>(&any)) return std::move(*m);
  throw protocol_error("the peer sent data that was not its turn");
}

std::optional<message> channel::receive_or_end() {
  while (arrivals_.empty() && !at_end()) {
    try {
      wait();
    } catch (const connection_error&) {
      if (!at_end()) throw;
    }
  }
  if (arrivals_.empty()) return std::nullopt;
  return receive();
}

bool channel::message_waiting() {
  evd_.drain([this](const auto& event) { on(event); });
  return !arrivals_.empty();
}

// --- blocks -------------------------------------------------------------------------------------------------------

std::span<std::byte> channel::next_block() {
  // Neither of these two conditions implies the other. The peer's credit may overtake the completion of the write that
  // it answers, because that completion waits for the adapter's acknowledgement.
  while (posted_ - written_ >= geometry_.blocks || posted_ - granted_ >= geometry_.blocks) wait();
  const auto place = posted_ % geometry_.blocks;
  return ring_.slice(place * geometry_.block_size, geometry_.block_size).value().elements();
}

void channel::write_block(std::size_t bytes) {
  const auto place = posted_ % geometry_.blocks * geometry_.block_size;
  // The immediate data makes the write notify the peer: it uses a receive there, whose completion comes after all the
  // data. Reliable connections keep the order, so a counter would do; the number is a check. Its lowest byte is first,
  // so hosts of either byte order agree.
  const auto from = ring_.slice(place, bytes).value();
  const auto to = peer_ring_.slice(place, bytes).value();
  if (auto posted = ep_.post(dat::rdma_write{from, to}.immediate(htole32(static_cast<std::uint32_t>(posted_))));
      !posted) {
    while (!at_end()) wait();
    throw connection_error(end_);
  }
  ++posted_;
}

void channel::release_block() {
  ++consumed_;
  // One credit for a quarter of the ring: few messages, and the credit arrives before the peer has used up the ring.
  if (consumed_ - credited_ >= std::max(1u, geometry_.blocks / 4u)) {
    credited_ = consumed_;
    send(credit{consumed_});
  }
}

} // namespace datcp
