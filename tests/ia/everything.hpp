// One object of each kind.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <rig.hpp>

#include <dat/csp.hpp>
#include <dat/ep_params.hpp>
#include <dat/rmr.hpp>
#include <dat/rsp.hpp>
#include <dat/srq.hpp>

#include <array>
#include <netinet/in.h>

namespace objects {

using rig::must;
using rig::patience;

inline constexpr auto all_streams = dat::stream::dto | dat::stream::connection | dat::stream::connection_requests;
inline constexpr auto all_rights = dat::local_read | dat::local_write | dat::remote_read | dat::remote_write;
using region = dat::lmr<char, all_rights.value>;
inline constexpr dat::communicator tcp{AF_INET, SOCK_STREAM, IPPROTO_TCP};

/// One object of each kind, and two endpoints, which are connecting.
struct everything {
  everything() {
    rig::begin();
    ia = rig::open(rig::manual);
    pz = must(ia.create_pz());
    evd = must(ia.create_evd<all_streams>(64));
    completions_only = must(ia.create_evd<dat::stream::dto>(64));
    cno = must(ia.create_cno());
    psp = must(ia.create_psp(port, evd));
    csp = must(ia.create_csp(tcp, evd));
    lmr = must(pz.register_memory(memory, all_rights));
    rmr = must(pz.create_rmr());
    srq = must(pz.create_srq());
    ep = must(pz.create_ep<dat::rc>(evd));
    far = must(pz.create_ep<dat::rc>(evd));
    reserved = must(pz.create_ep<dat::rc>(evd));
    rsp = must(ia.create_rsp(rig::port(), reserved, evd));
    must(ep.connect(ia.address(), port, patience));
    request = must(evd.wait_for<dat::connection_request>(patience));
  }
  /// Calls `f` with each object.
  template <class F>
  void each(F f) {
    f(ia), f(pz), f(evd), f(completions_only), f(cno), f(psp), f(csp), f(rsp), f(lmr), f(rmr), f(srq), f(ep), f(far),
        f(request);
  }
  std::array<char, 64> memory{};
  dat::conn_qual port = rig::port();
  dat::ia ia;
  dat::pz pz;
  dat::evd<all_streams> evd;
  dat::evd<dat::stream::dto> completions_only;
  dat::cno cno;
  dat::psp psp;
  dat::csp csp;
  region lmr;
  dat::rmr rmr;
  dat::srq srq;
  dat::ep<dat::rc> ep, far, reserved;
  dat::rsp rsp;
  dat::cr request;
};

} // namespace objects
