// Two connected adapters of the fake world: one binds memory windows, the other one reads and writes.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "world.hpp"

#include <dat/rmr.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace windows {

using namespace unit;

inline constexpr auto with_binds = all_streams | dat::stream::rmr_bind;
inline constexpr auto lean_with_binds = dat::stream::dto | dat::stream::rmr_bind;
inline constexpr auto local_rights = dat::local_read | dat::local_write;
using local_region = dat::lmr<char, local_rights.value>;
using window = dat::remote_segment<char, dat::mem_priv::remote_read | dat::mem_priv::remote_write>;
inline constexpr auto both = dat::remote_read | dat::remote_write;

[[gnu::noinline]] inline std::string tagged(std::string text, bool invalidating) {
  return invalidating ? text.append(" invalidating") : text;
}
struct describe_binds : describe {
  using describe::operator();
  std::string operator()(const dat::recv_done& e) const {
    return tagged(describe::operator()(e), e.operation() == dat::dto_operation::recv_with_invalidate);
  }
};

/// One adapter; completions go to a completions-only or a merged evd.
struct place {
  place(std::string_view device, bool lean_one)
      : completions_only(lean_one),
        ia(must(dat::ia::open(device, manual))),
        pz(must(ia.create_pz())),
        evd(must(ia.create_evd<with_binds>(64))),
        completions(must(ia.create_evd<lean_with_binds>(64))),
        mem(must(pz.register_memory(memory, local_rights))),
        own(must(pz.register_memory(inbox, local_rights))) {
    make_ep();
  }
  bool completions_only;
  std::array<char, 256> memory{};
  std::array<char, 64> inbox{};
  dat::ia ia;
  dat::pz pz;
  dat::evd<with_binds> evd;
  dat::evd<lean_with_binds> completions;
  local_region mem;
  local_region own;
  dat::ep<dat::rc> ep;

  dat::ep<dat::rc> new_ep(const dat::ep_attributes& a = {}) {
    if (completions_only) return must(pz.create_ep<dat::rc>(dat::ep_evds{completions, completions, evd}, a));
    return must(pz.create_ep<dat::rc>(evd, a));
  }
  void make_ep() { ep = new_ep(); }
  events take() {
    fake::finish();
    events all;
    const auto keep = [&](const auto& e) { all.push_back(describe_binds{}(e)); };
    while (completions.drain(keep) != 0 || evd.drain(keep) != 0) {
    }
    return all;
  }
};

/// Two adapters: `b` binds, `a` reads and writes.
struct two {
  explicit two(bool completions_only = false)
      : a("fk1", completions_only), b("fk2", completions_only), psp(must(b.ia.create_psp(service, b.evd))) {
    connect(a.ep, b.ep);
  }
  place a;
  place b;
  dat::psp psp;

  void settle() { unit::settle(a.ia, b.ia); }
  void connect(dat::ep<dat::rc>& from, dat::ep<dat::rc>& to) {
    must(from.connect(b.ia.address(), service, plenty));
    settle();
    must(request_on(b.evd).accept(to));
    settle();
    REQUIRE(a.take() == events{"established"});
    REQUIRE(b.take() == events{"established"});
  }
  template <class W>
  std::string write(const W& to, dat::ep<dat::rc>& by) {
    must(by.post(dat::rdma_write{must(a.mem.slice(0, to.size())), to}.cookie(1)));
    const auto seen = a.take();
    REQUIRE_FALSE(seen.empty());
    return seen.front();
  }
  template <class W>
  std::string write(const W& to) {
    return write(to, a.ep);
  }
};

/// A failure in the form of `take`. (This function is out of line: g++ 12 warns about overflows in inlined strings.)
[[gnu::noinline]] inline std::string failed(dat::dto_status s, std::uint64_t cookie) {
  return std::string(to_string(s)).append(" ").append(std::to_string(cookie));
}
inline const std::string refused = failed(dat::dto_status::remote_access, 1);

inline dat::rmr make(place& at, bool for_ep) {
  return for_ep ? must(at.pz.create_rmr_for_ep()) : must(at.pz.create_rmr());
}

/// Binds a window of one endpoint, and binds it again: the work that takes the first binding away fails.
inline void fail_second_bind(two& t, dat::rmr& rmr) {
  must(rmr.bind(t.b.ep, dat::bind{t.b.mem, both}));
  CHECK(t.b.take() == events{"bind 0"});
  fake::hold(t.b.ep.native_handle());
  must(rmr.bind(t.b.ep, dat::bind{t.b.own, both}.cookie(2)));
  REQUIRE(fake::complete(t.b.ep.native_handle(), {}, IBV_WC_MW_BIND_ERR));
  fake::finish();
}

} // namespace windows
