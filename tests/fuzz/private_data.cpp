// Private data of connection requests, replies and rejects: a consumer gets the data that the peer sent, and no more.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/cr.hpp>

#include <algorithm>

namespace {

using namespace fuzz;

constexpr std::size_t usual = 56; // the private data that a peer with dat can send

struct setting : two_ends {
  dat::psp psp = must(b.ia.create_psp(service, b.evd));
};

bool same(std::span<const std::byte> a, std::span<const std::byte> b) { return std::ranges::equal(a, b); }

std::vector<std::byte> padded(std::span<const std::byte> data, std::size_t size) {
  std::vector<std::byte> all(data.begin(), data.end());
  all.resize(size);
  return all;
}

/// A request arrives at the service point of b.
void request(setting& s, input& in) {
  static constexpr const char* from[] = {"10.99.1.77", "fd99:1::77", "fe80::77", "0.0.0.0", "255.255.255.255", "::"};
  fake::cm_event e{.event = RDMA_CM_EVENT_CONNECT_REQUEST, .port = service};
  e.remote_address = in.one_of(from);
  e.remote_qp_num = in.number<std::uint32_t>();
  e.responder_resources = in.byte();
  e.initiator_depth = in.byte();
  const unsigned what = in.below(4);
  const bool marked = in.flag();
  e.flow_control = in.flag() ? 1 : 0;
  const auto answer = in.data(80);
  const auto all = in.rest();
  std::vector<std::byte> data(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(usual, all.size())));
  if (marked) add_mark(data, usual - 4, data.size());
  e.private_data = text_of(data);
  data.resize(usual);
  if (e.flow_control != 0) data.resize(marked_length(data, usual - 4));
  fake::deliver(e);
  s.settle();
  auto r = next<dat::cr>(s.b.evd);
  require(r.has_value(), "a request did not arrive");
  require(same(r->private_data(), data), "a request with other private data");
  (void)r->remote_address().to_string();
  auto ep = must(s.b.pz.create_ep<dat::rc>(s.b.evd));
  dat::expected<void> ok = dat::error(dat::return_type::invalid_state);
  if (what == 0) ok = r->accept(ep, answer);
  if (what == 1) ok = r->reject(answer);
  if (what < 2 && answer.size() > usual) require(!ok, "private data of more than 56 bytes was accepted");
  if (what == 1 && answer.size() <= usual) require(static_cast<bool>(ok), "a reject failed");
  r.reset();
  s.settle();
}

/// a connects, and its request is answered by the bytes of the input.
void reply(setting& s, input& in) {
  const bool reject = in.flag();
  fake::cm_event e{.event = reject ? RDMA_CM_EVENT_REJECTED : RDMA_CM_EVENT_CONNECT_RESPONSE};
  e.status = reject ? in.byte() : 0;
  e.remote_qp_num = in.number<std::uint32_t>();
  e.responder_resources = in.byte();
  e.initiator_depth = in.byte();
  const bool with_mark = !reject && in.flag();
  const auto all_of_it = in.rest();
  const auto some = all_of_it.first(std::min<std::size_t>(reject ? 148 : 196, all_of_it.size()));
  std::vector<std::byte> data(some.begin(), some.end());
  if (with_mark) add_mark(data, usual, data.size());
  e.private_data = text_of(data);
  auto ep = must(s.a.pz.create_ep<dat::rc>(s.a.evd));
  fake::drop_next(RDMA_CM_EVENT_CONNECT_REQUEST);
  must(ep.connect(s.b.ia.address(), service, plenty));
  s.settle();
  e.qp_num = ep.number();
  fake::deliver(e);
  s.settle();
  const auto sent = std::as_bytes(std::span(e.private_data));
  auto got = s.a.evd.dequeue();
  if (!got) return require(reject && e.status == 10, "no outcome"); // a stale connection: another attempt follows
  if (!reject) {
    if (const auto* up = std::get_if<dat::established>(&got.value())) {
      const auto all = padded(sent, 196);
      const auto shown = up->private_data();
      const bool more =
          std::ranges::any_of(std::span(all).subspan(usual), [](std::byte b) { return b != std::byte{0}; });
      const auto length = marked_length(all, usual);
      require(shown.size() == (length == all.size() && !more ? usual : length), "a reply with another length");
      require(same(shown, std::span(all).first(shown.size())), "a reply with other data");
    }
    return;
  }
  if (const auto* no = std::get_if<dat::peer_rejected>(&got.value())) {
    require(e.status == 28, "a reject of the kernel was taken for the consumer's");
    const auto shown = no->private_data();
    const auto all = padded(sent, 148);
    const bool marked = sent.size() > 3 && e.private_data.starts_with("DAT");
    const auto behind = std::span(all).subspan(marked ? 4 : 0);
    require(shown.size() <= behind.size() && same(shown, behind.first(shown.size())), "a reject with other data");
    if (marked) require(shown.size() <= std::to_integer<std::size_t>(all[3]), "more data than the length says");
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  return in_new_world([&] {
    setting s;
    input in(bytes, size);
    if (in.flag())
      request(s, in);
    else
      reply(s, in);
    s.settle();
  });
}
