// Writes, flushes and writes a word between the lab's two adapters. `./dev test --only rdma-core` compiles it with the
// headers of a newer rdma-core, and runs it with those libraries. SPDX-License-Identifier: BSL-1.0
#include <dat/dat.hpp>
#include <dat/ib.hpp>
#include <dat/ib_query.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>

using namespace std::chrono_literals;

static_assert(dat::detail::verbs_has_flushes<> && dat::detail::verbs_has_atomic_writes<>,
              "these are not the headers of rdma-core 45 or later");

namespace {

constexpr auto rights = dat::local_write | dat::remote_write | dat::flush_global;
constexpr auto streams = dat::stream::dto | dat::stream::connection | dat::stream::connection_requests;

struct side {
  explicit side(const char* address)
      : ia(dat::ia::open(dat::ia_address::parse(address).value()).value()),
        pz(ia.create_pz().value()),
        evd(ia.create_evd<streams>(64).value()),
        ep(pz.create_ep<dat::rc>(evd).value()) {}
  dat::ia ia;
  dat::pz pz;
  dat::evd<streams> evd;
  dat::ep<dat::rc> ep;
};

int run() {
  side a("10.78.1.1");
  side b("10.78.2.1");
  std::array<std::uint64_t, 8> here{1, 2, 3, 4, 5, 6, 7, 8};
  std::array<std::uint64_t, 8> there{};
  const auto from = a.pz.register_memory(here, dat::local_read).value();
  const auto to = b.pz.register_memory(there, rights).value();
  const auto port = dat::conn_qual::make(4711).value();
  const auto psp = b.ia.create_psp(port, b.evd).value();
  a.ep.connect(b.ia.address(), port, 30s).value();
  b.evd.wait_for<dat::connection_request>(30s).value().accept(b.ep).value();
  (void)a.evd.wait_for<dat::established>(30s).value();
  if (!dat::ib::query_extensions(a.ia).value().supports(dat::dto_operation::flush)) return std::puts("no flushes"), 1;

  a.ep.post(dat::rdma_write{from, to.remote()}.suppress_completion()).value();
  a.ep.post(dat::ib::flush{to.remote(), dat::persistence::global}).value();
  (void)a.evd.wait_for<dat::ib::flush_done>(a.ep, 30s).value();
  if (there != here) return std::puts("the bytes are not there"), 1;

  a.ep.post(dat::ib::atomic_write{to.remote().slice(7, 1).value(), 9}).value();
  a.ep.post(dat::ib::flush{to.remote(), dat::persistence::global}.whole_region()).value();
  (void)a.evd.wait_for<dat::ib::flush_done>(a.ep, 30s).value();
  if (there[7] != 9) return std::puts("the word is not there"), 1;
  return 0;
}

} // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& e) {
    std::printf("%s\n", e.what());
    return 1;
  }
}
