// The operations of OFA's dtestx with dat: immediate data, both atomics in both directions, and datagrams. The two
// sides are two endpoints of one program.
// SPDX-License-Identifier: BSL-1.0
#include <array>
#include <cstdio>
#include <dat/dat.hpp>
#include <dat/try.hpp>
#include <dat/ud.hpp>
#include <string_view>
using namespace std::chrono_literals;

namespace {

constexpr auto streams =
    dat::stream::dto | dat::stream::connection | dat::stream::connection_requests | dat::stream::datagrams;
constexpr auto rights = dat::local_read | dat::local_write | dat::remote_write | dat::remote_atomic;
constexpr std::size_t size = 256;
using bytes = dat::lmr<std::byte, rights>;
using words = dat::lmr<std::uint64_t, rights>;

struct side {
  std::array<std::byte, size> memory{};
  std::array<std::uint64_t, 2> word{}; // one for the peer's atomics, one for old values
  dat::evd<streams> evd;
  dat::ep<dat::rc> ep;
  dat::ep<dat::ud> ud;
  bytes region;
  words atomics;

  dat::expected<void> open(dat::ia& ia, dat::pz& pz) {
    DAT_TRY(evd, ia.create_evd<streams>(64));
    DAT_TRY(ep, pz.create_ep<dat::rc>(evd));
    DAT_TRY(ud, pz.create_ep<dat::ud>(evd));
    DAT_TRY(region, pz.register_memory(memory, rights));
    DAT_TRY(atomics, pz.register_memory(word, rights));
    return dat::success();
  }
};

void say(std::string_view what, std::uint64_t a, std::uint64_t b) {
  std::printf("%-34.*s 0x%llx 0x%llx\n", static_cast<int>(what.size()), what.data(), static_cast<unsigned long long>(a),
              static_cast<unsigned long long>(b));
}

dat::expected<void> connect(dat::ia& ia, side& client, side& server) {
  DAT_TRY(auto psp, ia.create_psp(7471, server.evd));
  DAT_TRYV(client.ep.connect(ia.address(), 7471, 2s));
  DAT_TRY(auto request, server.evd.wait_for<dat::connection_request>(2s));
  DAT_TRYV(request.accept(server.ep));
  DAT_TRYV(client.evd.wait_for<dat::established>(2s));
  DAT_TRYV(server.evd.wait_for<dat::established>(2s));
  return dat::success();
}

dat::expected<void> write_immediate(side& from, side& to, std::uint32_t value) {
  DAT_TRYV(to.ep.post(dat::recv{}.cookie(1)));
  DAT_TRYV(from.ep.post(dat::rdma_write{from.region, to.region.remote()}.immediate(value).cookie(2)));
  DAT_TRYV(from.evd.wait_for<dat::ib::rdma_write_immediate_done>(2s));
  DAT_TRY(auto got, to.evd.wait_for<dat::ib::recv_write_immediate_done>(2s));
  say("RDMA write with immediate: data, bytes", got.immediate(), got.bytes());
  return dat::success();
}

dat::expected<void> compare_and_swap(side& from, side& to, std::uint64_t compare, std::uint64_t swap) {
  DAT_TRY(auto old, from.atomics.slice(1, 1));
  DAT_TRYV(from.ep.post(dat::ib::compare_and_swap{old, to.atomics.remote(), compare, swap}));
  DAT_TRYV(from.evd.wait_for<dat::ib::compare_and_swap_done>(2s));
  say("compare and swap: old, new", from.word[1], to.word[0]);
  return dat::success();
}

dat::expected<void> fetch_and_add(side& from, side& to, std::uint64_t add) {
  DAT_TRY(auto old, from.atomics.slice(1, 1));
  DAT_TRYV(from.ep.post(dat::ib::fetch_and_add{old, to.atomics.remote(), add}));
  DAT_TRYV(from.evd.wait_for<dat::ib::fetch_and_add_done>(2s));
  say("fetch and add: old, new", from.word[1], to.word[0]);
  return dat::success();
}

dat::expected<void> datagrams(dat::ia& ia, side& client, side& server) {
  DAT_TRY(auto service, dat::ib::datagram_service::listen(ia, 7472, server.evd));
  DAT_TRYV(server.ud.post(dat::recv{server.region}));
  DAT_TRYV(client.ud.connect(ia.address(), 7472, 2s));
  DAT_TRY(auto request, server.evd.wait_for<dat::ib::datagram_request>(2s));
  DAT_TRYV(request.accept(server.ud));
  DAT_TRY(auto known, client.evd.wait_for<dat::ib::datagram_established>(2s));
  DAT_TRY(auto peer, known.peer());
  DAT_TRY(auto message, client.region.slice(0, 64));
  DAT_TRYV(client.ud.post(dat::ib::send_to{message, peer}.immediate(0x7777)));
  DAT_TRY(auto got, server.evd.wait_for<dat::ib::datagram_recv_immediate_done>(2s));
  say("datagram: data, bytes", got.immediate(), got.payload_bytes());
  return dat::success();
}

dat::expected<void> run() {
  DAT_TRY(auto ia, dat::ia::open());
  DAT_TRY(auto pz, ia.create_pz());
  side client;
  side server;
  DAT_TRYV(client.open(ia, pz));
  DAT_TRYV(server.open(ia, pz));
  DAT_TRYV(connect(ia, client, server));
  DAT_TRYV(write_immediate(client, server, 0x1111));
  DAT_TRYV(write_immediate(server, client, 0x7777));
  client.word[0] = 0x12345;
  server.word[0] = 0x54321;
  DAT_TRYV(compare_and_swap(client, server, 0x54321, 0x98765));
  DAT_TRYV(compare_and_swap(server, client, 0x54321, 0x98765)); // the word has another value and keeps it
  DAT_TRYV(fetch_and_add(client, server, 0x10));
  DAT_TRYV(fetch_and_add(server, client, 0x100));
  return datagrams(ia, client, server);
}

} // namespace

int main() {
  if (const auto r = run(); !r) return std::fprintf(stderr, "%s\n", r.error().message().c_str()), 1;
  return 0;
}
