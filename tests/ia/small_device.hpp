// A device of the fake world with limits of its own, each different.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "world.hpp"

#include <dat/ib_query.hpp>

#include <cstring>

namespace unit {

inline fake::world small_device() {
  auto attr = fake::rxe_attr();
  std::strcpy(attr.fw_ver, "20.31.1014");
  attr.vendor_id = 0x02c9;
  attr.vendor_part_id = 4119;
  attr.hw_ver = 3;
  attr.max_qp = 100;
  attr.max_qp_wr = 128;
  attr.max_qp_rd_atom = 9;
  attr.max_qp_init_rd_atom = 5;
  attr.max_res_rd_atom = 900;
  attr.max_cq = 77;
  attr.max_cqe = 200;
  attr.max_sge = 6;
  attr.max_sge_rd = 3;
  attr.max_mr = 11;
  attr.max_mr_size = std::uint64_t{1} << 40;
  attr.max_pd = 12;
  fake::world w;
  w.devices[0].attr = attr;
  w.devices[0].ports[0].active_mtu = IBV_MTU_4096;
  return w;
}

inline dat::ia opened(const fake::world& w) {
  fake::reset(w);
  return must(dat::ia::open("fk1", manual));
}

/// The core of an adapter that dat::ia::open refuses.
inline dat::detail::ref<dat::detail::ia_core> core_of(const fake::world& w) {
  fake::reset(w);
  dat::detail::adapter_location where;
  std::string_view("fk1").copy(where.device.data(), where.device.size() - 1);
  auto core = dat::detail::ia_core::open(where, false);
  REQUIRE(core);
  return core.assume_value();
}

} // namespace unit
