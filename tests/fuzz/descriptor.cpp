// Descriptors from a peer: any bytes result in an error, or in a descriptor that has the same bytes and harms no
// endpoint.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/descriptor.hpp>
#include <dat/ud.hpp>

#include <support/sealed_descriptor.hpp>

#include <algorithm>

namespace {

using namespace fuzz;
using dat::ib::descriptor;

/// Tries the descriptor on endpoints of both services.
void use(const descriptor& d) {
  two_ends s;
  (void)d.host().to_string();
  auto ep = must(s.a.pz.create_ep<dat::rc>(s.a.evd));
  const auto up = ep.connect(d);
  if (up) {
    require(d.kind() == descriptor::service::rc, "a connection to a datagram endpoint");
    require(ep.state() == dat::ep_state::connected, "connected, but in another state");
    (void)ep.post(dat::send{s.a.at(0, 8)});
    must(ep.disconnect());
  } else {
    require(ep.state() == dat::ep_state::unconnected || ep.state() == dat::ep_state::disconnected, "a stuck endpoint");
  }
  must(ep.reset());
  auto datagrams = must(s.a.pz.create_ep<dat::ud>(s.a.evd));
  if (auto to = datagrams.connect(d)) {
    require(d.kind() == descriptor::service::ud, "datagrams to a connection");
    (void)datagrams.post(dat::ib::send_to{s.a.at(0, 8), to.value()});
  }
  s.settle();
}

void read(std::span<const std::byte> bytes) {
  const auto d = descriptor::from_wire(bytes);
  if (!d) return require(!d.error().message().empty(), "an error without a reason");
  require(std::ranges::equal(d.value().to_wire(), bytes), "the descriptor has other bytes");
  require(d.value().number() <= 0xffffff, "a number that no endpoint has");
  (void)in_new_world([&] { use(d.value()); });
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const auto all = std::as_bytes(std::span(bytes, size));
  read(all);
  if (size != descriptor::wire_size) return 0;
  descriptor::wire sealed;
  std::copy(all.begin(), all.end(), sealed.begin());
  support::seal(sealed);
  read(sealed);
  return 0;
}
