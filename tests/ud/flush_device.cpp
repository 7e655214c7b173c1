// Flushes on a device: Soft-RoCE has them since Linux 6.2, its library since rdma-core 45 (`dat-lab --rdma-core
// trixie`). SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <dat/dynamic.hpp>
#include <dat/ib_query.hpp>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <string>

namespace device {

namespace {

using dat::mem_priv;
using dat::persistence;

/// Whether the library of the devices has flushes. That of Debian 12 has none; the lab names another one.
[[nodiscard]] bool library_flushes() { return this_device().flushes && std::getenv("DAT_LAB_RDMA_CORE") != nullptr; }

constexpr mem_priv flush_rights = mem_priv::local_write | mem_priv::remote_write | mem_priv::flush_global;
using flush_window = dat::remote_segment<std::byte, flush_rights>;

/// The bytes of a peer that sends false rights.
template <mem_priv P, class S>
[[nodiscard]] dat::remote_segment<std::byte, P> falsified(const S& granted) {
  auto wire = granted.to_wire();
  wire[22] |= static_cast<std::byte>(P);
  return must(dat::remote_segment<std::byte, P>::from_wire(wire));
}

struct flush_link : connected_pair {
  std::array<std::byte, 4096> bytes{};
  buffer out{a.pz, 4096};
};

/// Writes and flushes memory of its parent, and lives until it is killed.
int flusher_role(channel& to, const std::vector<std::string>& args) {
  side a(0);
  const auto port = must(dat::conn_qual::make(std::stoul(args.at(0))));
  auto ep = a.make_ep();
  must(ep.connect(addresses()[1], port, patience));
  const auto up = must(a.evd.wait_for<dat::established>(patience));
  const auto there = must(flush_window::from_wire(up.private_data()));
  buffer out(a.pz, 4096);
  fill(out.bytes, 7);
  must(ep.post(dat::rdma_write{out.slice(0, 4096), must(there.slice(0, 4096))}.suppress_completion()));
  if (const auto flushed = ep.post(dat::ib::flush{must(there.slice(0, 4096)), persistence::global}.cookie(1)); !flushed)
    to.say(std::string(to_string(flushed.error().type())));
  else
    to.say(must(a.evd.wait_for<dat::ib::flush_done>(patience)).cookie() == dat::cookie(1) ? "flushed"
                                                                                          : "another event");
  (void)to.closed();
  return 0;
}
const role flusher_registered("flusher", &flusher_role);

} // namespace

TEST_CASE("an adapter with flushes registers memory for them, another one refuses it", "[ib]") {
  side b(1);
  std::array<std::byte, 4096> bytes{};
  const auto global = b.pz.register_memory(bytes, dat::local_write | dat::flush_global);
  const auto has = must(dat::ib::query_extensions(b.ia));
  CHECK(has.flush_global == this_device().flushes);
  CHECK(has.flush_persistent == this_device().flushes);
  CHECK(has.supports(dat::dto_operation::flush) == this_device().flushes);
  const auto persistent = b.pz.register_memory(bytes, dat::local_write | dat::flush_persistent);
  if (this_device().flushes) {
    CHECK(global.has_value());
    // This memory is not persistent, and the device checks that.
    CHECK(error_of(persistent).type() == type::invalid_parameter);
  } else {
    CHECK(error_of(global).type() == type::model_not_supported);
    CHECK(error_of(persistent).type() == type::model_not_supported);
  }
}

TEST_CASE("a flush completes behind the writes before it, for a range and for the whole region", "[ib]") {
  flush_link link;
  if (!this_device().flushes) {
    const auto there = falsified<mem_priv::flush_global>(buffer(link.b.pz, 64).lmr.remote());
    CHECK(error_of(link.active.post(dat::ib::flush{there, persistence::global})).type() == type::model_not_supported);
    return;
  }
  const auto mem =
      must(link.b.pz.register_memory(link.bytes, dat::local_write | dat::remote_write | dat::flush_global));
  const auto there = mem.remote();
  if (!library_flushes()) {
    CHECK(error_of(link.active.post(dat::ib::flush{there, persistence::global})).type() == type::model_not_supported);
    must(link.passive.post(dat::recv{}));
    must(link.active.post(dat::send{}.cookie(1)));
    CHECK(next<dat::send_done>(link.a.evd).cookie() == dat::cookie(1));
    return;
  }
  for (std::uint32_t i = 1; i <= 20; ++i) {
    fill(link.out.bytes, i);
    must(link.active.post(dat::rdma_write{link.out.slice(0, 4096), there}.suppress_completion()));
    auto f = dat::ib::flush{must(there.slice(i, 64)), persistence::global};
    if (i % 2 == 0) f.whole_region();
    must(link.active.post(f.cookie(i)));
    const auto done = next<dat::ib::flush_done>(link.a.evd);
    CHECK((done.cookie() == dat::cookie(i) && done.bytes() == 0));
    CHECK(has_pattern(link.bytes, i));
  }
  must(link.active.post(dat::ib::flush{there, persistence::global}.fence().suppress_completion()));
  must(link.passive.post(dat::recv{}));
  must(link.active.post(dat::send{}.cookie(30)));
  CHECK(next<dat::send_done>(link.a.evd).cookie() == dat::cookie(30));
}

TEST_CASE("a flush of memory that the peer has not granted fails as an RDMA write does", "[ib]") {
  flush_link link;
  const auto mem = must(link.b.pz.register_memory(link.bytes, dat::local_write | dat::remote_write));
  const auto there = falsified<flush_rights>(mem.remote());
  const bool whole = GENERATE(false, true);
  auto f = dat::ib::flush{there, persistence::global};
  if (whole) f.whole_region();
  if (!library_flushes()) {
    CHECK(error_of(link.active.post(f)).type() == type::model_not_supported);
    return;
  }
  must(link.active.post(f.cookie(4)));
  const auto e = next<dat::dto_failure>(link.a.evd);
  CHECK((e.cookie() == dat::cookie(4) && e.operation() == dat::dto_operation::flush));
  CHECK(e.status() == dat::dto_status::remote_access);
}

TEST_CASE("a flush beyond the end of the peer's memory fails", "[ib]") {
  flush_link link;
  if (!library_flushes()) {
    const auto there = falsified<flush_rights>(must(link.b.pz.register_memory(link.bytes, dat::remote_write)).remote());
    CHECK(error_of(link.active.post(dat::ib::flush{there, persistence::global})).type() == type::model_not_supported);
    return;
  }
  const auto mem = must(link.b.pz.register_memory(std::span(link.bytes).first(64),
                                                  dat::local_write | dat::remote_write | dat::flush_global));
  const auto longer =
      must(flush_window::make(reinterpret_cast<std::uintptr_t>(link.bytes.data()), 65, mem.remote().rkey()));
  must(link.active.post(dat::ib::flush{longer, persistence::global}.cookie(5)));
  const auto e = next<dat::dto_failure>(link.a.evd);
  CHECK((e.cookie() == dat::cookie(5) && e.status() == dat::dto_status::remote_access));
}

TEST_CASE("what a process has written and flushed is there after the process was killed", "[ib]") {
  side b(1);
  std::array<std::byte, 4096> bytes{};
  if (!this_device().flushes) {
    CHECK(error_of(b.pz.register_memory(bytes, dat::flush_global)).type() == type::model_not_supported);
    return;
  }
  const auto mem = must(b.pz.register_memory(bytes, dat::local_write | dat::remote_write | dat::flush_global));
  const auto port = next_port();
  const auto psp = must(b.ia.create_psp(port, b.evd));
  auto ep = b.make_ep();
  peer_process writer("flusher", {std::to_string(port.port())});
  must(must(b.evd.wait_for<dat::connection_request>(patience)).accept(ep, mem.remote().to_wire()));
  if (!library_flushes()) {
    CHECK(writer.hear() == "model_not_supported");
    return;
  }
  CHECK(writer.hear() == "flushed");
  writer.kill();
  CHECK(writer.wait() == 128 + 9);
  CHECK(has_pattern(bytes, 7));
  CHECK(comes_true([&] { return ep.state() == state::disconnected; }));
  CHECK(has_pattern(bytes, 7));
}

} // namespace device
