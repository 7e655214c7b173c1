// Multicast groups on a device.
// SPDX-License-Identifier: BSL-1.0
#include "descriptor_text.hpp"
#include "device_table.hpp"
#include "support.hpp"

#include <dat/descriptor.hpp>
#include <dat/ep_params.hpp>
#include <dat/multicast.hpp>
#include <dat/ud.hpp>

namespace device {
namespace {

/// Arguments: the group's address. Reports each datagram that arrives, until a message of one byte.
int group_role(channel& to, const std::vector<std::string>& args) {
  side s(1);
  auto evd = must(s.ia.create_evd<ud_streams>(64));
  auto ep = must(s.pz.create_ep<dat::ud>(evd));
  buffer memory(s.pz, 4 * 128);
  for (std::size_t i = 0; i < 4; ++i) must(ep.post(dat::recv{memory.slice(i * 128, 128)}.cookie(i)));
  auto group = must(dat::ib::multicast_group::join(ep, must(dat::ia_address::parse(args.at(0)))));
  const auto joined = must(evd.wait_for<dat::ib::group_joined>(patience));
  if (joined.group() != group.address()) return 1;
  to.say("joined");
  const auto got = must(evd.wait_for<dat::ib::datagram_recv_done>(patience));
  const auto where = memory.slice(static_cast<std::size_t>(got.cookie().value()) * 128, 128);
  to.say(std::to_string(got.payload_bytes()) + ' ' + std::to_string(got.source_qp_number()) + ' ' +
         (has_pattern(dat::ib::datagram_view(got, where).payload(), 77) ? "right" : "wrong") + " from " +
         dat::ib::datagram_view(got, where).header().source().to_string() + " to " +
         dat::ib::datagram_view(got, where).header().destination().to_string());
  must(group.leave());
  to.say(to_hex(must(ep.export_descriptor()).to_wire()));
  // Two messages follow, one to the group and one to the endpoint itself: only the second one arrives.
  const auto last = must(evd.wait_for<dat::ib::datagram_recv_done>(patience));
  to.say(std::to_string(last.payload_bytes()));
  return 0;
}
const role group_registered("group member", &group_role);

} // namespace

TEST_CASE("a multicast message reaches the group's members in another process until they leave", "[multicast]") {
  NEEDS_FEATURE(datagrams);
  const std::string where = "239.10.20.30";
  peer_process member("group member", {where});
  side s(0);
  auto evd = must(s.ia.create_evd<ud_streams>(64));
  auto ep = must(s.pz.create_ep<dat::ud>(evd));
  buffer out(s.pz, 64);
  fill(out.bytes, 77);
  CHECK(error_of(dat::ib::multicast_group::join(ep, s.ia.address())).type() == type::invalid_address);
  auto group = must(dat::ib::multicast_group::join(ep, must(dat::ia_address::parse(where))));
  CHECK(error_of(dat::ib::multicast_group{}.peer()).type() == type::invalid_handle);
  (void)must(evd.wait_for<dat::ib::group_joined>(patience));
  const auto all = must(group.peer());
  CHECK(all.qp_number() == 0xff'ffff);
  REQUIRE(member.hear() == "joined");
  must(ep.post(dat::ib::send_to{out.lmr, all}));
  (void)must(evd.wait_for<dat::ib::datagram_send_done>(patience));
  CHECK(member.hear() ==
        "64 " + std::to_string(ep.number()) + " right from " + s.ia.address().host_string() + " to " + where);
  // The member has left the group.
  const auto alone = must(ep.connect(must(descriptor::from_wire(from_hex(member.hear())))));
  must(ep.post(dat::ib::send_to{out.slice(0, 10), all}, dat::ib::send_to{out.slice(0, 20), alone}));
  CHECK(member.hear() == "20");
  CHECK(member.wait() == 0);
  group = {};
  // Reset keeps the membership, and the end of the endpoint ends it.
  auto again = must(dat::ib::multicast_group::join(ep, must(dat::ia_address::parse(where))));
  (void)must(evd.wait_for<dat::ib::group_joined>(patience));
  must(ep.disconnect());
  must(ep.reset());
  must(ep.close());
  must(again.leave());
}

TEST_CASE("a multicast group of an IPv6 address is not supported on RoCE v2, and the endpoint can join one of IPv4",
          "[multicast]") {
  NEEDS_FEATURE(datagrams);
  side s(0);
  if (!s.ia.address(dat::address_family::ipv6)) SKIP("needs an adapter with an IPv6 address");
  if (!in_lab()) SKIP("needs Soft-RoCE, which is RoCE v2");
  auto evd = must(s.ia.create_evd<ud_streams>(64));
  auto ep = must(s.pz.create_ep<dat::ud>(evd));
  const auto refused = error_of(dat::ib::multicast_group::join(ep, must(dat::ia_address::parse("ff0e::1:2"))));
  CHECK(refused.type() == type::model_not_supported);
  CHECK_THAT(refused.message(), support::contains_text("join one of 224.0.0.0/4"));
  const auto group = must(dat::ib::multicast_group::join(ep, must(dat::ia_address::parse("239.10.20.32"))));
  CHECK(must(evd.wait_for<dat::ib::group_joined>(patience)).group() == group.address());
}

} // namespace device
