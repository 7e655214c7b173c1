// Connected pairs of the fake world, one with a completions-only evd and one with merged evds.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "world.hpp"

#include <cstdint>
#include <string>

namespace unit {

inline const std::string flushed_status(to_string(dat::dto_status::flushed));

/// An endpoint at `a` with a completions-only evd, connected to an endpoint at `b` with one merged evd.
struct lean_pair {
  clean_world world;
  end a{"fk1"};
  end b{"fk2"};
  dat::evd<dat::stream::dto> completions = must(a.ia.create_evd<dat::stream::dto>(64));
  dat::psp psp = must(b.ia.create_psp(service, b.evd));

  lean_pair() {
    b.make_ep();
    a.ep = must(a.pz.create_ep<dat::rc>({.recv = completions, .request = completions, .connect = a.evd}));
    connect();
  }
  void connect() {
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle();
    must(request_on(b.evd).accept(b.ep));
    settle();
    REQUIRE(a.take() == events{"established"});
    REQUIRE(b.take() == events{"established"});
  }
  void settle() { unit::settle(a, b); }
  dat::rdma_write<1> write(std::uint64_t cookie) { return dat::rdma_write{a.at(0, 8), b.mem.remote()}.cookie(cookie); }
  ibv_qp* qp() { return a.ep.native_handle(); }
};

struct merged_pair : pair {
  dat::rdma_write<1> write(std::uint64_t cookie) { return dat::rdma_write{a.at(0, 8), b.mem.remote()}.cookie(cookie); }
  ibv_qp* qp() { return a.ep.native_handle(); }
};

} // namespace unit
