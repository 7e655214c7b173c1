// Uses of one object by others: it cannot be closed while one is left, whichever ends first.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/cno.hpp>
#include <dat/ep_params.hpp>
#include <dat/rmr.hpp>
#include <dat/srq.hpp>
#include <dat/ud.hpp>

#include <functional>

using namespace unit;
using dat::return_subtype;

namespace {

/// Two users of `used`, which are closed one after the other: `used` closes only behind both.
template <class Used, class Make>
void closes_behind_both(Used& used, return_subtype why, Make make) {
  auto first = make();
  auto second = make();
  is_error(used.close(), dat::return_type::invalid_state, why);
  must(first.close());
  is_error(used.close(), dat::return_type::invalid_state, why);
  must(second.close());
  must(used.close());
}

} // namespace

TEST_CASE("a zone closes behind the last of its regions, endpoints, queues and windows", "[pz]") {
  const clean_world world;
  end e;
  auto pz = must(e.ia.create_pz());
  constexpr auto why = return_subtype::pz_in_use;
  SECTION("regions") {
    closes_behind_both(pz, why, [&] { return must(pz.register_memory(e.memory, all_rights)); });
  }
  SECTION("endpoints") {
    closes_behind_both(pz, why, [&] { return must(pz.create_ep<dat::rc>(e.evd)); });
  }
  SECTION("shared queues") {
    closes_behind_both(pz, why, [&] { return must(pz.create_srq()); });
  }
  SECTION("windows") {
    closes_behind_both(pz, why, [&] { return must(pz.create_rmr()); });
  }
  SECTION("windows of endpoints") {
    closes_behind_both(pz, why, [&] { return must(pz.create_rmr_for_ep()); });
  }
  SECTION("datagram endpoints") {
    auto evd = must(e.ia.create_evd<ud_streams>(64));
    closes_behind_both(pz, why, [&] { return must(pz.create_ep<dat::ud>(evd)); });
  }
}

TEST_CASE("an evd closes behind the last endpoint and service point that it serves", "[evd]") {
  const clean_world world;
  end e;
  auto evd = must(e.ia.create_evd<ud_streams>(64));
  constexpr auto why = return_subtype::evd_in_use;
  std::uint16_t port = service;
  SECTION("receives") {
    closes_behind_both(
        evd, why, [&] { return must(e.pz.create_ep<dat::rc>({.recv = evd, .request = e.evd, .connect = e.evd})); });
  }
  SECTION("requests") {
    closes_behind_both(
        evd, why, [&] { return must(e.pz.create_ep<dat::rc>({.recv = e.evd, .request = evd, .connect = e.evd})); });
  }
  SECTION("connections") {
    closes_behind_both(
        evd, why, [&] { return must(e.pz.create_ep<dat::rc>({.recv = e.evd, .request = e.evd, .connect = evd})); });
  }
  SECTION("endpoints that were moved there") {
    closes_behind_both(evd, why, [&] {
      auto ep = must(e.pz.create_ep<dat::rc>(e.evd));
      must(ep.modify({.recv = evd, .request = evd, .connect = evd}));
      return ep;
    });
  }
  SECTION("service points") {
    closes_behind_both(evd, why, [&] { return must(e.ia.create_psp(must(dat::conn_qual::make(port++)), evd)); });
  }
  SECTION("datagram services") {
    closes_behind_both(evd, why, [&] {
      return must(dat::ib::datagram_service::listen(e.ia, must(dat::conn_qual::make(port++)), evd));
    });
  }
}

TEST_CASE("an evd is free again when its endpoints have moved away", "[evd][ep]") {
  const clean_world world;
  end e;
  auto from = must(e.ia.create_evd<all_streams>(64));
  auto to = must(e.ia.create_evd<all_streams>(64));
  auto first = must(e.pz.create_ep<dat::rc>(from));
  auto second = must(e.pz.create_ep<dat::rc>(from));
  must(first.modify({.recv = to, .request = to, .connect = to}));
  is_error(from.close(), dat::return_type::invalid_state, return_subtype::evd_in_use);
  must(second.modify({.recv = to, .request = to, .connect = to}));
  must(from.close());
  must(first.close());
  is_error(to.close(), dat::return_type::invalid_state, return_subtype::evd_in_use);
  must(second.close());
  must(to.close());
}

TEST_CASE("a zone is free again when its endpoints have moved away", "[pz][ep]") {
  const clean_world world;
  end e;
  auto from = must(e.ia.create_pz());
  auto to = must(e.ia.create_pz());
  auto first = must(from.create_ep<dat::rc>(e.evd));
  auto second = must(from.create_ep<dat::rc>(e.evd));
  must(first.modify({.pz = &to}));
  is_error(from.close(), dat::return_type::invalid_state, return_subtype::pz_in_use);
  must(second.modify({.pz = &to}));
  must(from.close());
  must(first.close());
  is_error(to.close(), dat::return_type::invalid_state, return_subtype::pz_in_use);
  must(second.close());
  must(to.close());
}

TEST_CASE("a shared queue closes behind the last of its endpoints", "[srq]") {
  const clean_world world;
  end e;
  auto srq = must(e.pz.create_srq());
  closes_behind_both(srq, return_subtype::srq_in_use, [&] { return must(e.pz.create_ep<dat::rc>(e.evd, srq)); });
}

TEST_CASE("a cno closes behind the last evd that triggers it", "[cno]") {
  const clean_world world;
  end e;
  auto cno = must(e.ia.create_cno());
  closes_behind_both(cno, return_subtype::cno_in_use, [&] {
    auto evd = must(e.ia.create_evd<dat::stream::software>(4));
    must(evd.modify_cno(cno));
    return evd;
  });
  auto other = must(e.ia.create_cno());
  auto again = must(e.ia.create_cno());
  auto evd = must(e.ia.create_evd<dat::stream::software>(4));
  must(evd.modify_cno(other));
  must(evd.modify_cno(again)); // and no longer the first one
  must(other.close());
  is_error(again.close(), dat::return_type::invalid_state, return_subtype::cno_in_use);
  must(evd.close());
  must(again.close());
}
