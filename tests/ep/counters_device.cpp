// Counters beside those of the device.
// SPDX-License-Identifier: BSL-1.0
#include "support.hpp"

#include <dat/counters.hpp>

#include <algorithm>

namespace device {

namespace {

std::uint64_t value_of(const std::vector<dat::device_counter>& all, std::string_view name) {
  for (const auto& c : all)
    if (c.name == name) return c.value;
  FAIL("no counter " << name);
  return 0;
}

} // namespace

TEST_CASE("messages that dat counts are packets that the device counts", "[counters]") {
  connected_pair link;
  const auto before = dat::read_device_counters(link.a.ia);
  dat::counters a;
  dat::counters b;
  buffer out(link.a.pz, 64);
  buffer in(link.b.pz, 64);
  constexpr std::uint64_t messages = 20;
  for (std::uint64_t i = 0; i < messages; ++i) {
    must(b.post(link.passive, dat::recv{in.lmr}));
    must(a.post(link.active, dat::send{out.slice(0, 32)}));
    bool sent = false;
    bool received = false;
    while (!sent)
      must(a.wait_and_drain(
          link.a.evd, dat::overloaded{[&](const dat::send_done&) { sent = true; }, [](const auto&) {}}, patience));
    while (!received)
      must(b.wait_and_drain(
          link.b.evd, dat::overloaded{[&](const dat::recv_done&) { received = true; }, [](const auto&) {}}, patience));
  }
  CHECK(a.read().of(dat::dto_operation::send).completed == messages);
  CHECK(a.read().of(dat::dto_operation::send).bytes == messages * 32);
  CHECK(b.read().of(dat::dto_operation::recv).completed == messages);
  CHECK(b.read().of(dat::dto_operation::recv).bytes == messages * 32);
  if (!before) {
    CHECK(before.error().type() == type::model_not_supported);
    return;
  }
  const auto after = must(dat::read_device_counters(link.a.ia));
  CHECK(std::ranges::is_sorted(after, {}, &dat::device_counter::name));
  if (!in_lab()) return; // the names are those of Soft-RoCE
  const auto enough = value_of(before.value(), "sent_pkts") + messages;
  // The kernel may answer from values that it has read a moment ago.
  CHECK(comes_true([&] { return value_of(must(dat::read_device_counters(link.a.ia)), "sent_pkts") >= enough; }));
}

} // namespace device
