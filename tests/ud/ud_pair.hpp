// Datagram endpoints on a device that know each other.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "support.hpp"

#include <dat/ud.hpp>

#include <utility>

namespace device {
namespace known_datagrams {

inline constexpr auto streams = all_streams | dat::stream::datagrams;
using datagrams = dat::ep<dat::ud>;
using address = dat::ib::address_handle;

struct ud_side {
  dat::ia ia;
  dat::pz pz;
  dat::evd<streams> evd;
  explicit ud_side(std::size_t which, std::uint32_t qlen = 1024) : ud_side(addresses()[which], qlen) {}
  explicit ud_side(const dat::ia_address& at, std::uint32_t qlen = 1024)
      : ia(must(dat::ia::open(at))), pz(must(ia.create_pz())), evd(must(ia.create_evd<streams>(qlen))) {}
  [[nodiscard]] datagrams make_ep(const dat::ep_attributes& a = {}) { return must(pz.create_ep<dat::ud>(evd, a)); }
};

/// Waits for the next event, which must be an E.
template <class E, dat::streams S>
E expect(dat::evd<S>& at, place where = place::here()) {
  auto r = at.wait(patience);
  if (!r) fail(r.assume_error().message(), where);
  auto* e = std::get_if<E>(&r.assume_value());
  if (!e) fail("another event came, alternative " + std::to_string(r.assume_value().index()), where);
  return std::move(*e);
}

/// Two endpoints, each with the address handle of the other.
struct ud_pair {
  ud_side a{0};
  ud_side b{1};
  datagrams active = a.make_ep();
  datagrams passive = b.make_ep();
  dat::ib::datagram_service service = must(dat::ib::datagram_service::listen(b.ia, next_port(), b.evd));
  buffer out{a.pz, 4200};
  buffer in{b.pz, 4200};
  buffer back{a.pz, 4200};
  address to_b;
  address to_a;

  ud_pair() {
    must(active.connect(b.ia.address(), port(), patience, bytes_of("hello")));
    auto request = expect<dat::ib::datagram_request>(b.evd);
    if (request.remote_number() != active.number()) FAIL("another number");
    must(request.accept(passive, bytes_of("welcome")));
    to_a = must(expect<dat::ib::datagram_established>(b.evd).peer());
    to_b = must(expect<dat::ib::datagram_established>(a.evd).peer());
  }
  [[nodiscard]] dat::conn_qual port() const { return must(dat::conn_qual::make(service.port())); }
};

} // namespace known_datagrams

using namespace known_datagrams;

} // namespace device
