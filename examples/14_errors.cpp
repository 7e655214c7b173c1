// Errors: what an error has, what an error of the wire looks like, and what a program does with either.
// SPDX-License-Identifier: BSL-1.0
#include <array>
#include <cstdint>
#include <dat/dat.hpp>
#include <dat/try.hpp>
#include <iostream>
using namespace std::chrono_literals;

namespace {

constexpr auto streams = dat::stream::dto | dat::stream::connection | dat::stream::connection_requests;

/// An error is a value of 48 bytes. `message` returns one line with the remedy. Programs use the other members.
void show(const dat::error& e) {
  std::cout << e.message() << "\n    type " << to_string(e.type()) << ", call " << e.call();
  if (!e.verb().empty()) std::cout << ", errno " << e.sys_errno() << " of " << e.verb();
  std::cout << '\n';
}

/// Connects to a service that may start later: repeats the attempts whose failure may be temporary, and returns all
/// other errors.
dat::expected<void> connect(dat::ia& ia, dat::evd<streams>& evd, dat::ep<dat::rc>& ep, dat::conn_qual port) {
  for (int tries = 0;; ++tries) {
    DAT_TRYV(ep.connect(ia.address(), port, 2s));
    const auto up = evd.wait_for<dat::established>(ep, 3s);
    if (up) return dat::success();
    // A refused attempt leaves the endpoint disconnected. Its receives are flushed, and are posted again after a reset.
    if (tries == 2 || ep.state() != dat::ep_state::disconnected) return up.error();
    DAT_TRYV(ep.reset());
  }
}

dat::expected<void> run() {
  // 1. A call that fails: DAT_TRY would return this error to the caller.
  if (const auto none = dat::ia::open("no_such_device"); !none) show(none.error());

  DAT_TRY(auto ia, dat::ia::open());
  DAT_TRY(auto pz, ia.create_pz());
  DAT_TRY(auto evd, ia.create_evd<streams>(64));
  std::array<std::uint64_t, 8> words{};
  DAT_TRY(auto memory, pz.register_memory(words, dat::local_read | dat::local_write | dat::remote_read));

  // 2. A slice that is out of range is refused before anything reaches the adapter.
  if (const auto beyond = memory.slice(6, 4); !beyond) show(beyond.error());

  // 3. No program listens. A program compares the type of an error, or converts the error to std::error_code.
  DAT_TRY(auto client, pz.create_ep<dat::rc>(evd));
  if (const auto refused = connect(ia, evd, client, 7999); !refused) {
    show(refused.error());
    const std::error_code code = refused.error().code();
    std::cout << "    as std::error_code: " << code.category().name() << ' ' << code.value() << '\n';
  }

  // 4. An operation that the peer's adapter refuses fails later: its completion is a dto_failure, and the connection
  //    breaks. Here the wire form names more memory than the peer has registered.
  DAT_TRYV(client.reset());
  DAT_TRY(auto server, pz.create_ep<dat::rc>(evd));
  DAT_TRY(auto psp, ia.create_psp_any(evd));
  DAT_TRY(const auto port, dat::conn_qual::make(psp.port()));
  DAT_TRYV(client.connect(ia.address(), port, 2s));
  DAT_TRY(auto request, evd.wait_for<dat::connection_request>(2s));
  DAT_TRYV(request.accept(server));
  DAT_TRYV(evd.wait_for<dat::established>(client, 2s));
  auto wire = memory.remote().to_wire();
  wire[14] = std::byte{1}; // the length, now 256 bytes more
  using remote_words = dat::remote_segment<std::uint64_t, dat::remote_read>;
  DAT_TRY(const auto wrong, remote_words::from_wire(wire));
  DAT_TRY(const auto outside, wrong.slice(8, 8));
  DAT_TRYV(client.post(dat::rdma_read{memory, outside}.cookie(4)));
  DAT_TRY(const auto failed, evd.wait_for<dat::dto_failure>(client, 5s));
  std::cout << failed.message() << "\n    cookie " << failed.cookie().value() << ", status "
            << to_string(failed.status()) << '\n';
  DAT_TRYV(evd.wait_for<dat::connection_broken>(client, 5s)); // the terminal event of the connection

  // 5. value() of an error throws dat::failure, whose what() is the message.
  try {
    (void)client.connect(ia.address(), 7999, 0s).value();
  } catch (const dat::failure& e) {
    std::cout << "thrown: " << e.what() << '\n';
  }
  return dat::success();
}

} // namespace

int main() {
  const auto done = run();
  if (!done) show(done.error());
  return done ? 0 : 1;
}
