// Atomic writes on a device: Soft-RoCE has them since Linux 6.3.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>

namespace device {

namespace {

struct word_pair : connected_pair {
  static constexpr auto rights = decltype(all_rights)::value;
  buffer out{a.pz, 64};
  buffer in{b.pz, 64};
  std::array<std::uint64_t, 4> value{};
  dat::lmr<std::uint64_t, rights> mem = must(b.pz.register_memory(value, all_rights));

  [[nodiscard]] auto at(std::size_t i) const {
    return must(must(dat::remote_segment<std::uint64_t, rights>::from_wire(mem.remote().to_wire())).slice(i, 1));
  }
  [[nodiscard]] std::uint64_t seen(std::size_t i) { return std::atomic_ref(value[i]).load(); }
};

} // namespace

TEST_CASE("an atomic write puts its word at the peer, behind the data that was written before it", "[ib]") {
  word_pair link;
  const dat::ib::atomic_write one{link.at(1), 0x0123'4567'89ab'cdef};
  if (!this_device().atomic_writes) {
    CHECK(error_of(link.active.post(one)).type() == type::model_not_supported);
    const auto unconnected = must(link.a.pz.create_ep<dat::rc>(link.a.evd));
    CHECK(error_of(unconnected.post(one)).type() == type::model_not_supported);
    CHECK(error_of(unconnected.post(dat::send{})).type() == type::invalid_state);
    SHOWS("IBX-003");
    must(link.passive.post(dat::recv{}));
    must(link.active.post(dat::send{}.cookie(1)));
    CHECK(next<dat::send_done>(link.a.evd).cookie() == dat::cookie(1));
    return;
  }
  must(link.active.post(dat::ib::atomic_write{one}.cookie(5)));
  const auto done = next<dat::ib::atomic_write_done>(link.a.evd);
  CHECK((done.cookie() == dat::cookie(5) && done.bytes() == 8));
  CHECK((link.seen(0) == 0 && link.seen(1) == 0x0123'4567'89ab'cdef && link.seen(2) == 0));

  // A reader that reads the number also gets the data that was written before it.
  for (std::uint64_t i = 1; i <= 50; ++i) {
    fill(link.out.bytes, static_cast<std::uint32_t>(i));
    must(link.active.post(dat::rdma_write{link.out.slice(0, 64), link.in.remote()}.suppress_completion()));
    must(link.active.post(dat::ib::atomic_write{link.at(3), i}.cookie(i)));
    while (link.seen(3) != i) std::this_thread::yield();
    CHECK(has_pattern(link.in.bytes, static_cast<std::uint32_t>(i)));
    CHECK(next<dat::ib::atomic_write_done>(link.a.evd).cookie() == dat::cookie(i));
  }
}

TEST_CASE("an atomic write of a word that the peer has not granted fails as an RDMA write does", "[ib]") {
  word_pair link;
  if (!this_device().atomic_writes) {
    CHECK(error_of(link.active.post(dat::ib::atomic_write{link.at(0), 1})).type() == type::model_not_supported);
    return;
  }
  auto there = link.at(0);
  must(link.mem.close());
  must(link.active.post(dat::ib::atomic_write{there, 1}.cookie(4)));
  const auto e = next<dat::dto_failure>(link.a.evd);
  CHECK((e.cookie() == dat::cookie(4) && e.operation() == dat::dto_operation::atomic_write));
  CHECK(e.status() == dat::dto_status::remote_access);
  CHECK(link.seen(0) == 0);
}

} // namespace device
