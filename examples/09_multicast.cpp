// Multicast: one message reaches all members of a group. Nothing else connects the programs.
// Start `09_multicast`, then twice `09_multicast TEXT`, on any hosts of one network.
// SPDX-License-Identifier: BSL-1.0
#include "peer.hpp"
#include <dat/multicast.hpp>
#include <dat/ud.hpp>
#include <string_view>
using namespace std::chrono_literals;

namespace {

constexpr auto streams = dat::stream::dto | dat::stream::connection | dat::stream::datagrams;
constexpr std::size_t messages = 2; // the listener ends after this number of messages
using page = std::array<char, dat::ib::grh::size + 64>;

dat::expected<void> run(const char* text) {
  DAT_TRY(auto ia, dat::ia::open());
  DAT_TRY(auto pz, ia.create_pz());
  DAT_TRY(auto evd, ia.create_evd<streams>(16));
  DAT_TRY(auto ep, pz.create_ep<dat::ud>(evd));
  std::array<page, messages> pages{};
  DAT_TRY(auto memory, pz.register_memory(pages, dat::local_write));
  for (std::size_t i = 0; i < messages; ++i) {
    DAT_TRY(const auto one, memory.slice(i, 1));
    DAT_TRYV(ep.post(dat::recv{one}.cookie(i)));
  }

  // The membership lasts as long as this object. 239.0.0.0/8 is for the use inside an organisation.
  DAT_TRY(const auto address, dat::ia_address::parse("239.7.4.71"));
  DAT_TRY(auto group, dat::ib::multicast_group::join(ep, address));
  DAT_TRYV(evd.wait_for<dat::ib::group_joined>(10s));

  if (text) {
    const std::string_view message = text;
    DAT_TRY(auto out, pz.register_memory(message, dat::local_read));
    DAT_TRY(const auto all, group.peer());
    DAT_TRYV(ep.post(dat::ib::send_to{out, all}));
    DAT_TRYV(evd.wait_for<dat::ib::datagram_send_done>(10s));
    return dat::success();
  }
  std::cout << "listening on " << group.address().host_string() << " port 0" << std::endl;
  for (std::size_t i = 0; i < messages; ++i) {
    DAT_TRY(const auto got, evd.wait_for<dat::ib::datagram_recv_done>());
    const dat::ib::datagram_view view(got, std::as_bytes(std::span(pages[got.cookie().as<std::size_t>()])));
    const auto payload = view.payload();
    std::cout << "endpoint " << got.source_qp_number() << " of " << view.header().source().host_string()
              << " says: " << std::string_view(reinterpret_cast<const char*>(payload.data()), payload.size()) << '\n';
  }
  return dat::success();
}

} // namespace

int main(int argc, char** argv) { return report(run(argc > 1 ? argv[1] : nullptr)); }
