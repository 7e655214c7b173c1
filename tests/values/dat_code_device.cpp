// The numbers of DAT for events of a device.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <dat/buffer.hpp>
#include <dat/dat_code.hpp>
#include <dat/ud.hpp>

#include <set>

namespace device {

using dat::event_number;

TEST_CASE("events of connections and transfers have the numbers of uDAPL and of its extensions", "[dat_code]") {
  NEEDS_FEATURE(atomics);
  connected_pair link;
  alignas(8) std::array<std::uint64_t, 8> words{};
  auto there = must(link.b.pz.register_memory(words, dat::local_read | dat::local_write | dat::remote_read |
                                                         dat::remote_write | dat::remote_atomic));
  alignas(8) std::array<std::uint64_t, 8> mine{};
  auto here = must(link.a.pz.register_memory(mine, dat::local_read | dat::local_write));
  std::set<unsigned> numbers;
  std::set<unsigned> types;
  std::set<unsigned> numbers_of_types;
  const auto note = [&](const auto& e) {
    const auto n = dat::event_number_of(e);
    if (n) numbers.insert(static_cast<unsigned>(*n));
    if (const auto t = dat::ib_ext_type_of(e)) {
      types.insert(static_cast<unsigned>(*t));
      numbers_of_types.insert(n ? static_cast<unsigned>(*n) : 0u);
    }
  };
  const auto target = must(there.remote().word(0));
  const auto result = must(must(here.slice(0, 8)).word(0));
  must(link.passive.post(dat::recv{}, dat::recv{}));
  must(link.active.post(dat::ib::fetch_and_add{result, target, 1}));
  must(link.active.post(dat::ib::compare_and_swap{result, target, 1, 2}));
  must(link.active.post(dat::rdma_write{must(here.slice(0, 1)), must(there.remote(4, 1))}.immediate(3)));
  must(link.active.post(dat::send{}.immediate(4)));
  for (int i = 0; i < 4; ++i) note(must(link.a.evd.wait(patience)));
  for (int i = 0; i < 2; ++i) note(must(link.b.evd.wait(patience)));
  CHECK(numbers == std::set<unsigned>{0x1, 0x40000}); // the send with immediate data has the number of a send
  CHECK(types == std::set<unsigned>{0, 1, 2, 3, 4});
  CHECK(numbers_of_types == std::set<unsigned>{0x40000});
  SHOWS("IBX-005", "IBX-007");
  CHECK(dat::event_number_of<dat::ib::rdma_write_immediate_done>() == event_number(0x40000));
  CHECK(dat::event_number_of<dat::ib::recv_write_immediate_done>() == event_number(0x40000));
  CHECK(dat::event_number_of<dat::ib::fetch_and_add_done>() == event_number(0x40000));
  CHECK(dat::event_number_of<dat::ib::compare_and_swap_done>() == event_number(0x40000));
  SHOWS("IBX-005", "IBX-028", "IBX-048");
  CHECK(dat::event_number_of<dat::ib::datagram_request>() == event_number(0x40001));
  CHECK(dat::event_number_of<dat::ib::datagram_established>() == event_number(0x40002));
  SHOWS("IBX-004");
  CHECK(dat::ib_op_of(dat::dto_operation::fetch_and_add) == dat::ib_op(0));
  CHECK(dat::ib_op_of(dat::dto_operation::compare_and_swap) == dat::ib_op(1));
  CHECK(dat::ib_op_of(dat::dto_operation::rdma_write_immediate) == dat::ib_op(2));
  CHECK(dat::ib_op_of(dat::dto_operation::send_ud) == dat::ib_op(3));
  SHOWS("IBX-006");
  CHECK(dat::ib_ext_type_of(dat::dto_operation::fetch_and_add) == dat::ib_ext_type(0));
  CHECK(dat::ib_ext_type_of(dat::dto_operation::compare_and_swap) == dat::ib_ext_type(1));
  CHECK(dat::ib_ext_type_of(dat::dto_operation::rdma_write_immediate) == dat::ib_ext_type(2));
  CHECK(dat::ib_ext_type_of(dat::dto_operation::recv_rdma_immediate) == dat::ib_ext_type(3));
  CHECK(dat::ib_ext_type_of(dat::dto_operation::recv_immediate) == dat::ib_ext_type(4));
  SHOWS("IBX-007");
  CHECK(dat::event_number_of<dat::ha_down_to_1>() == event_number(0x8101));
  CHECK(dat::event_number_of<dat::ha_up_to_multi_path>() == event_number(0x8102));
  SHOWS("HA-015");
  numbers.clear();
  must(link.active.disconnect());
  note(must(link.a.evd.wait(patience)));
  CHECK(numbers == std::set<unsigned>{0x4005});
}

TEST_CASE("the flags with which an operation reaches a device have the bits of DAT", "[dat_code]") {
  connected_pair link;
  must(link.passive.post(dat::recv{}, dat::recv{}));
  const auto quiet = dat::send{}.suppress_completion();
  const auto loud = dat::send{}.fence().solicited();
  CHECK(static_cast<unsigned>(dat::completion_flags_of(quiet)) == 0x01);
  CHECK(static_cast<unsigned>(dat::completion_flags_of(loud)) == 0x0a);
  must(link.active.post(quiet, loud));
  (void)next<dat::send_done>(link.a.evd);
  for (int i = 0; i < 2; ++i) (void)next<dat::recv_done>(link.b.evd);
  CHECK(is_empty(link.a.evd)); // the suppressed operation has no event
  SHOWS("DTO-051");
}

} // namespace device
