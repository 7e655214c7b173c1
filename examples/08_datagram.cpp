// Datagrams: one endpoint exchanges messages with any number of peers without connections. A message may be lost.
// Start `08_datagram`, then `08_datagram HOST`.
// SPDX-License-Identifier: BSL-1.0
#include "peer.hpp"
#include <cstdint>
#include <dat/ud.hpp>
using namespace std::chrono_literals;

namespace {

constexpr auto streams =
    dat::stream::dto | dat::stream::connection | dat::stream::connection_requests | dat::stream::datagrams;
using number = std::uint64_t;
constexpr std::size_t room = dat::ib::grh::size + sizeof(number); // the adapter puts a header before each message

/// A datagram endpoint with one buffer each way.
struct node {
  dat::ia ia{};
  dat::pz pz{};
  dat::evd<streams> evd{};
  dat::ep<dat::ud> ep{};
  std::array<std::byte, room> inbox{};
  std::array<number, 1> outbox{};
  dat::lmr<std::byte, dat::local_write> in{};
  dat::lmr<number, dat::local_read> out{};

  dat::expected<void> open(const char* host) {
    DAT_TRY(ia, host ? dat::ia::open_by_route(host) : dat::ia::open());
    DAT_TRY(pz, ia.create_pz());
    DAT_TRY(evd, ia.create_evd<streams>(16));
    DAT_TRY(ep, pz.create_ep<dat::ud>(evd));
    DAT_TRY(in, pz.register_memory(inbox, dat::local_write));
    DAT_TRY(out, pz.register_memory(outbox, dat::local_read));
    return ep.post(dat::recv{in});
  }
  dat::expected<void> send(number n, const dat::ib::address_handle& to) {
    outbox[0] = n;
    DAT_TRYV(ep.post(dat::ib::send_to{out, to}));
    DAT_TRYV(evd.wait_for<dat::ib::datagram_send_done>(1s)); // the memory is free; the message may still be lost
    return dat::success();
  }
};

/// Returns the square of each number to its sender. 0 ends the server.
dat::expected<void> serve(node& self) {
  DAT_TRY(auto service, dat::ib::datagram_service::listen(self.ia, 7472, self.evd));
  std::cout << "listening on " << self.ia.address().host_string() << " port " << service.port() << std::endl;
  for (number n = 1; n != 0;) {
    DAT_TRY(auto event, self.evd.wait());
    if (auto* const request = dat::get_if<dat::ib::datagram_request>(&event)) DAT_TRYV(request->accept(self.ep));
    if (auto* const got = dat::get_if<dat::ib::datagram_recv_done>(&event)) {
      const dat::ib::datagram_view message(*got, self.in);
      n = message.payload_as<number>().value_or(1);
      DAT_TRY(const auto sender, self.ep.reply_to(*got, message)); // from the header in the buffer
      DAT_TRYV(self.ep.post(dat::recv{self.in}));
      DAT_TRYV(self.send(n * n, sender));
    }
  }
  return dat::success();
}

/// The answer to a number. A lost message is sent again.
dat::expected<number> ask(node& self, number n, const dat::ib::address_handle& server) {
  for (int tries = 0; tries < 10; ++tries) {
    DAT_TRYV(self.send(n, server));
    const auto got = self.evd.wait_for<dat::ib::datagram_recv_done>(500ms);
    if (!got && got.error().type() == dat::return_type::timeout_expired) continue;
    if (!got) return got.error();
    const auto answer = dat::ib::datagram_view(got.value(), self.in).payload_as<number>();
    DAT_TRYV(self.ep.post(dat::recv{self.in}));
    if (answer == n * n) return n * n; // otherwise this is a late answer to an earlier number
  }
  return dat::error(dat::return_type::timeout_expired).at("ask");
}

dat::expected<void> run(const char* host) {
  node self;
  DAT_TRYV(self.open(host));
  if (!host) return serve(self);
  DAT_TRY(const auto addresses, dat::resolve(host));
  DAT_TRYV(self.ep.connect(addresses.front(), 7472, 10s)); // asks for the address of an endpoint: no connection
  DAT_TRY(const auto known, self.evd.wait_for<dat::ib::datagram_established>(10s));
  DAT_TRY(const auto server, known.peer());
  for (const number n : {7u, 8u, 9u, 0u}) {
    DAT_TRY(const auto square, ask(self, n, server));
    std::cout << n << " squared is " << square << '\n';
  }
  return dat::success();
}

} // namespace

int main(int argc, char** argv) { return report(run(argc > 1 ? argv[1] : nullptr)); }
