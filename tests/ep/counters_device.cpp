// Counters beside those of the device.
// SPDX-License-Identifier: BSL-1.0
#include "support.hpp"

#include <dat/batch.hpp>
#include <dat/counters.hpp>
#include <dat/srq.hpp>

#include <algorithm>
#include <type_traits>

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
  // The kernel may return values that it has read a moment ago.
  CHECK(comes_true([&] { return value_of(must(dat::read_device_counters(link.a.ia)), "sent_pkts") >= enough; }));
}

TEST_CASE("what is posted by post_n, as a batch and into a shared queue is what completes", "[counters]") {
  two_sides sides;
  constexpr std::uint32_t messages = 20;
  auto srq = must(sides.b.pz.create_srq({.max_recv_dtos = messages}));
  auto active = sides.a.make_ep();
  auto passive = must(sides.b.pz.create_ep<dat::rc>(sides.b.evd, srq));
  sides.connect(active, passive);
  buffer out(sides.a.pz, 64);
  buffer in(sides.b.pz, 64);
  const auto far = in.remote();
  dat::counters a;
  dat::counters b;
  for (std::uint32_t i = 0; i < messages; ++i) must(b.post(srq, dat::recv{in.lmr}));
  CHECK(b.read().most_receives == messages);

  must(a.post_n(active, messages - 1, [&](std::size_t i) { return dat::send{out.slice(0, i + 1)}; }));
  dat::batch<3> batch;
  REQUIRE(batch.push_back(dat::rdma_write{out.slice(0, 40), far}));
  REQUIRE(batch.push_back(dat::rdma_read{out.slice(0, 50), far}));
  REQUIRE(batch.push_back(dat::send{out.slice(0, 60)}));
  must(a.post(active, batch));
  // How many of the operations have completed, all of them with success.
  const auto take = [](dat::counters& by, auto& evd, std::size_t left) {
    const auto count = [&left]<class E>(const E&) {
      if constexpr (std::is_base_of_v<dat::transfer, E>) --left;
    };
    while (left != 0) must(by.wait_and_drain(evd, count, patience));
  };
  take(a, sides.a.evd, messages + 2);
  take(b, sides.b.evd, messages);
  constexpr std::uint64_t bytes = (messages - 1) * messages / 2 + 60;
  using numbers = dat::counter_values::by_operation;
  const auto requests = a.read();
  CHECK(requests.of(dat::dto_operation::send) == numbers{messages, bytes, messages, bytes});
  CHECK(requests.of(dat::dto_operation::rdma_write) == numbers{1, 40, 1, 40});
  CHECK(requests.of(dat::dto_operation::rdma_read) == numbers{1, 50, 1, 50});
  CHECK(b.read().of(dat::dto_operation::recv) == numbers{messages, messages * 64, messages, bytes});
}

} // namespace device
