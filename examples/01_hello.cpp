// Hello over RDMA: one program connects to itself through its adapter and sends itself a message.
// SPDX-License-Identifier: BSL-1.0
//! [readme]
#include <array>
#include <dat/dat.hpp>
#include <dat/try.hpp>
#include <iostream>
using namespace std::chrono_literals;

dat::expected<std::size_t> hello(std::span<const char> text, std::span<char> inbox) {
  DAT_TRY(auto ia, dat::ia::open()); // this host's adapter; or open("mlx5_0"), open_by_route("storage-7")
  DAT_TRY(auto pz, ia.create_pz());
  DAT_TRY(auto evd, ia.create_evd<dat::stream::dto | dat::stream::connection | dat::stream::connection_requests>(64));
  DAT_TRY(auto psp, ia.create_psp(7471, evd));
  DAT_TRY(auto client, pz.create_ep<dat::rc>(evd));
  DAT_TRY(auto server, pz.create_ep<dat::rc>(evd));
  DAT_TRY(auto out, pz.register_memory(text, dat::local_read));
  DAT_TRY(auto in, pz.register_memory(inbox, dat::local_write));

  DAT_TRYV(server.post(dat::recv{in}.cookie(2))); // a message needs a posted receive at its target
  DAT_TRYV(client.connect(ia.address(), 7471, 2s));
  DAT_TRY(auto request, evd.wait_for<dat::connection_request>(2s));
  DAT_TRYV(request.accept(server));
  DAT_TRYV(evd.wait_for<dat::established>(client, 2s));
  DAT_TRYV(client.post(dat::send{out}.cookie(1))); // recv{out} would not compile: out is for reading
  DAT_TRY(auto got, evd.wait_for<dat::recv_done>(2s));
  return got.bytes();
}

int main() {
  std::array<char, 64> inbox{};
  const auto bytes = hello("Hello, RDMA!", inbox);
  std::cout << (bytes ? inbox.data() : bytes.error().message()) << '\n';
  return bytes ? 0 : 1;
}
//! [readme]
