// Messages from the peers of a datagram endpoint: requests with any header, replies, and messages with any routing
// header.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/ud.hpp>

#include <algorithm>

namespace {

using namespace fuzz;
using dat::detail::datagram_header;

constexpr std::size_t request_data = 180; // the private data of a message of this kind (SIDR_REQ)
constexpr std::size_t reply_data = 136;   // SIDR_REP

struct setting : two_ends {
  dat::ib::datagram_service asked = must(dat::ib::datagram_service::listen(b.ia, service, b.evd));
};

std::span<const std::byte> at_most(std::span<const std::byte> s, std::size_t n) {
  return s.first(std::min(s.size(), n));
}

/// The header that a request of dat has, with one field or none changed by the input.
std::vector<std::byte> request_bytes(input& in) {
  const bool raw = in.flag();
  if (raw) {
    const auto data = at_most(in.rest(), request_data);
    return {data.begin(), data.end()};
  }
  static constexpr const char* gids[] = {"10.99.1.1", "10.99.2.1", "10.99.1.77", "fd99:1::1", "224.0.0.1", "0.0.0.0"};
  dat::detail::qp_place place;
  place.gid = dat::detail::gid_of(must(dat::ia_address::parse(in.one_of(gids))));
  place.lid = in.number<std::uint16_t>();
  place.qp_num = in.number<std::uint32_t>();
  place.qkey = in.number<std::uint32_t>();
  const std::size_t stated = in.byte();
  const auto data = at_most(in.rest(), request_data - datagram_header::size);
  std::vector<std::byte> all(datagram_header::size + data.size());
  std::copy(data.begin(), data.end(), datagram_header::write(place, stated, all.data()));
  return all;
}

void check_header(std::span<const std::byte> bytes) {
  const auto place = datagram_header::read(bytes);
  if (!place) return;
  require(place->qp_num <= 0xffffff && (place->qkey & 0x80000000) == 0, "a number that no endpoint has");
  require(std::to_integer<std::size_t>(bytes[5]) + datagram_header::size <= bytes.size(), "more data than was sent");
}

/// A peer sends a request. The service reports the request, and the consumer answers it.
void request(setting& s, input& in) {
  const unsigned what = in.below(4);
  const auto answer = in.data(140);
  const auto port = static_cast<std::uint16_t>(40000 + in.below(4));
  auto bytes = request_bytes(in);
  bytes.resize(request_data); // in the form of the wire
  check_header(bytes);
  plain_peer peer(RDMA_PS_UDP);
  peer.ask(port, service, bytes);
  s.settle();
  auto ep = must(s.b.pz.create_ep<dat::ud>(s.b.evd));
  auto r = next<dat::ib::datagram_request>(s.b.evd);
  if (!r) { // refused, because it names another address, or answered, because it repeats a request
    require(peer.read().has_value(), "a request vanished");
    return;
  }
  const auto shown = r->private_data();
  require(shown.size() <= request_data, "more data than was sent");
  if (r->remote_number() != 0)
    require(std::ranges::equal(shown, std::span(bytes).subspan(datagram_header::size, shown.size())), "other data");
  dat::expected<void> ok = dat::error(dat::return_type::invalid_state);
  if (what == 0) ok = r->accept(ep, answer);
  if (what == 1) ok = r->reject(answer);
  if (what < 2 && answer.size() > 128) require(!ok, "private data of more than 128 bytes was accepted");
  r.reset();
  s.settle();
  if (auto known = next<dat::ib::datagram_established>(s.b.evd))
    if (auto to = known->peer()) (void)ep.post(dat::ib::send_to{s.b.at(0, 8), to.value()});
  s.settle();
  require(peer.read().has_value(), "a request got no answer");
}

/// An endpoint sends a request, and a peer answers with any data.
void reply(setting& s, input& in) {
  plain_peer peer(RDMA_PS_UDP);
  peer.listen(service + 1);
  auto ep = must(s.b.pz.create_ep<dat::ud>(s.b.evd));
  must(ep.connect(s.a.ia.address(), service + 1, plenty));
  s.settle();
  const std::uint32_t number = in.flag() ? in.number<std::uint32_t>() : 0;
  const bool marked = in.flag();
  const auto rest = at_most(in.rest(), reply_data);
  std::vector<std::byte> data(rest.begin(), rest.end());
  if (marked) add_mark(data, dat::detail::max_datagram_data, data.size());
  if (!peer.answer(number, data)) return;
  s.settle();
  auto e = s.b.evd.dequeue();
  require(static_cast<bool>(e), "no outcome");
  if (const auto* known = std::get_if<dat::ib::datagram_established>(&e.value())) {
    require(number != 0, "a reject was taken for a reply");
    data.resize(reply_data);
    data.resize(marked_length(data, dat::detail::max_datagram_data));
    require(std::ranges::equal(known->private_data(), data), "other data");
    if (auto to = known->peer()) (void)ep.post(dat::ib::send_to{s.b.at(0, 8), to.value()});
  } else if (const auto* no = std::get_if<dat::peer_rejected>(&e.value())) {
    require(number == 0 && no->private_data().size() <= reply_data, "a reject with too much data");
  }
}

/// A message arrives, with any bytes in the place of the routing header.
void message(setting& s, input& in) {
  auto ep = must(s.a.pz.create_ep<dat::ud>(s.a.evd));
  const auto length = in.number<std::uint16_t>() % 257u;
  const auto data = at_most(in.rest(), 256);
  must(ep.post(dat::recv{s.a.at(0, 256)}));
  std::copy(data.begin(), data.end(), reinterpret_cast<std::byte*>(s.a.memory.data()));
  require(fake::complete_recv(ep.native_handle(), {}, IBV_WC_SUCCESS, length), "no receive");
  s.settle();
  const auto got = next<dat::ib::datagram_recv_done>(s.a.evd);
  require(got.has_value(), "a message did not arrive");
  const dat::ib::datagram_view view(*got, s.a.at(0, 256));
  require(view.payload().size() == got->payload_bytes(), "a payload of another size");
  const auto header = view.header();
  (void)header.source().to_string();
  (void)header.destination().to_string();
  if (auto back = ep.reply_to(*got, view)) (void)ep.post(dat::ib::send_to{s.a.at(512, 8), back.value()});
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  input in(bytes, size);
  const unsigned what = in.below(4);
  if (what == 0) {
    check_header(in.rest());
    return 0;
  }
  return in_new_world([&] {
    setting s;
    if (what == 1)
      reply(s, in);
    else if (what == 2)
      message(s, in);
    else
      request(s, in);
    s.settle();
  });
}
