// A client and a server in two processes: a message each way, and the end of the connection.
// Start `02_client_server` on one host, and `02_client_server HOST` on another one or in another terminal.
// SPDX-License-Identifier: BSL-1.0
//! [readme]
#include <array>
#include <cctype>
#include <dat/dat.hpp>
#include <dat/try.hpp>
#include <iostream>
#include <string_view>
using namespace std::chrono_literals;

constexpr auto streams = dat::stream::dto | dat::stream::connection | dat::stream::connection_requests;

dat::expected<void> serve() {
  DAT_TRY(auto ia, dat::ia::open());
  DAT_TRY(auto pz, ia.create_pz());
  DAT_TRY(auto evd, ia.create_evd<streams>(16));
  DAT_TRY(auto ep, pz.create_ep<dat::rc>(evd));
  std::array<char, 64> text{};
  DAT_TRY(auto memory, pz.register_memory(text, dat::local_read | dat::local_write));
  DAT_TRY(auto psp, ia.create_psp(7471, evd));
  std::cout << "listening on " << ia.address().host_string() << " port " << psp.port() << std::endl;

  DAT_TRY(auto request, evd.wait_for<dat::connection_request>());
  DAT_TRYV(ep.post(dat::recv{memory})); // before accept: the client may send at once
  DAT_TRYV(request.accept(ep));
  DAT_TRY(const auto got, evd.wait_for<dat::recv_done>(ep, 10s));
  for (char& c : std::span(text).first(got.bytes())) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  DAT_TRY(const auto answer, memory.slice(0, got.bytes()));
  DAT_TRYV(ep.post(dat::send{answer}));
  DAT_TRYV(evd.wait_for<dat::disconnected>(ep, 10s)); // the client has the answer, and the memory is free
  return dat::success();
}

dat::expected<void> ask(const char* host, std::string_view question) {
  DAT_TRY(const auto addresses, dat::resolve(host));
  DAT_TRY(auto ia, dat::ia::open_by_route(host)); // the adapter that leads there
  DAT_TRY(auto pz, ia.create_pz());
  DAT_TRY(auto evd, ia.create_evd<streams>(16));
  DAT_TRY(auto ep, pz.create_ep<dat::rc>(evd));
  std::array<char, 64> text{};
  DAT_TRY(auto out, pz.register_memory(question, dat::local_read));
  DAT_TRY(auto in, pz.register_memory(text, dat::local_write));

  DAT_TRYV(ep.post(dat::recv{in}));
  DAT_TRYV(ep.connect(addresses.front(), 7471, 10s));
  DAT_TRYV(evd.wait_for<dat::established>(ep, 10s));
  DAT_TRYV(ep.post(dat::send{out}));
  DAT_TRY(const auto got, evd.wait_for<dat::recv_done>(ep, 10s));
  std::cout << "the server says: " << std::string_view(text.data(), got.bytes()) << '\n';
  DAT_TRYV(ep.disconnect(dat::close_mode::graceful)); // both sides get `disconnected`
  DAT_TRYV(evd.wait_for<dat::disconnected>(ep, 10s));
  return dat::success();
}

int main(int argc, char** argv) {
  const auto done = argc > 1 ? ask(argv[1], "hello, server") : serve();
  if (!done) std::cerr << done.error().message() << '\n';
  return done ? 0 : 1;
}
//! [readme]
