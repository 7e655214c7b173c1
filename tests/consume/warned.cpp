// Code for which users reported a warning inside dat: options.py compiles it with each option.
// SPDX-License-Identifier: BSL-1.0
#include <array>
#include <cstdio>
#include <dat/coro.hpp>
#include <dat/dat.hpp>
#include <dat/task.hpp>
#include <dat/try.hpp>

// g++ 12, -O3: -Wrestrict in the text of an error.
void show_error() {
  const auto ia = dat::ia::open();
  if (!ia) std::puts(ia.error().message().c_str());
}

// g++ 12, -O3: -Wrestrict in the text of an address, and of an error that quotes.
void show_address(const char* text) {
  const auto address = dat::ia_address::parse(text);
  std::puts(address ? address.value().with_port(7471).to_string().c_str() : address.error().message().c_str());
}

// g++ 12, -O1 to -O3: -Wmaybe-uninitialized for a segment of constant length in an operation that a coroutine awaits.
using memory = dat::lmr<char, (dat::local_read | dat::local_write)>;
using driver = dat::coro::driver<dat::stream::dto | dat::stream::connection>;
dat::task<dat::expected<void>> echo(driver& events, dat::ep<dat::rc>& ep, memory& bytes) {
  const auto piece = bytes.slice(0, 8);
  auto answer = events.post(ep, dat::recv{piece.value()});
  const auto sent = co_await events.post(ep, dat::send{piece.value()});
  if (!sent) co_return sent.error();
  DAT_CO_TRY(const auto got, co_await answer);
  DAT_CO_TRY(const auto text, bytes.slice(0, got.bytes()));
  DAT_CO_TRYV(co_await events.post(ep, dat::send{text}.inlined()));
  co_return dat::success();
}

// The same segment without a coroutine.
dat::expected<std::size_t> call(dat::pz& pz, dat::evd<dat::stream::dto | dat::stream::connection>& evd) {
  std::array<char, 16> chars{};
  DAT_TRY(auto ep, pz.create_ep<dat::rc>(evd));
  DAT_TRY(memory bytes, pz.register_memory(chars, dat::local_read | dat::local_write));
  DAT_TRYV(ep.post(dat::recv{bytes.slice(8, 8).value()}));
  DAT_TRYV(ep.post(dat::send{bytes.slice(0, 8).value()}));
  DAT_TRY(const auto got, evd.wait_for<dat::recv_done>(ep));
  return got.bytes();
}

// g++ 12, -O1 to -O3: -Wmaybe-uninitialized for an operation that is handed on, of a list whose number of segments is
// known at run time.
[[gnu::noinline]] dat::expected<void> post_with_fence(dat::ep<dat::rc>& ep, dat::rdma_read<4> operation) {
  operation.fence();
  return ep.post(operation);
}
[[gnu::noinline]] dat::expected<void> read(dat::ep<dat::rc>& ep, std::size_t n,
                                           const dat::local_segment<char, dat::local_write>* pieces,
                                           const dat::remote_segment<char, dat::remote_read>& from, bool fence) {
  dat::iov<4, dat::local_write> list;
  for (std::size_t i = 0; i < n; ++i) (void)list.push_back(pieces[i]);
  dat::rdma_read operation(list, from);
  operation.cookie(n);
  return fence ? post_with_fence(ep, operation) : ep.post(operation);
}
