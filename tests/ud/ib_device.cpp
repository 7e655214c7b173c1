// The InfiniBand extensions on a device: their events and names, and writes with immediate data.
// SPDX-License-Identifier: BSL-1.0
#include "atomic_pair.hpp"
#include "device_table.hpp"
#include "support.hpp"

#include <dat/ib_query.hpp>

#include <cstdint>
#include <string>
#include <type_traits>

namespace device {

TEST_CASE("each extension event carries exactly its operation's data, on the right side",
          "[ib][IBX-005][IBX-014][IBX-017][IBX-019][IBX-022][IBX-042][IBX-048]") {
  NEEDS_FEATURE(atomics);
  atomic_pair link;
  constexpr std::uint32_t word = 0x80c0e0f1;
  buffer out(link.a.pz, 100);
  buffer in(link.b.pz, 100);
  buffer inbox(link.b.pz, 100);
  fill(out.bytes, 1);
  const auto is = [](const auto& e, const endpoint& ep, std::uint64_t cookie, std::size_t bytes) {
    CHECK(e.ep() == ep);
    CHECK(e.cookie() == dat::cookie(cookie));
    CHECK(e.bytes() == bytes);
  };
  constexpr auto tells = []<class E>(std::type_identity<E>) {
    return requires(const E& e) { e.immediate(); };
  };
  // The sender knows its own data.
  STATIC_REQUIRE_FALSE(tells(std::type_identity<dat::ib::rdma_write_immediate_done>{}));
  STATIC_REQUIRE_FALSE(tells(std::type_identity<dat::ib::fetch_and_add_done>{}));
  STATIC_REQUIRE_FALSE(tells(std::type_identity<dat::ib::compare_and_swap_done>{}));
  STATIC_REQUIRE_FALSE(tells(std::type_identity<dat::send_done>{}));
  STATIC_REQUIRE_FALSE(tells(std::type_identity<dat::recv_done>{}));
  // A message of four bytes is not immediate data; each of these sends uses one receive.
  for (std::uint64_t i = 0; i < 4; ++i) must(link.passive.post(dat::recv{inbox.slice(i * 20, 20)}.cookie(50 + i)));
  must(link.active.post(dat::send{out.slice(0, 4)}.cookie(10),
                        dat::rdma_write{out.slice(10, 90), in.remote(5, 95)}.immediate(word).cookie(11),
                        dat::send{out.slice(20, 20)}.immediate(~word).cookie(12),
                        dat::rdma_write{out.slice(0, 0), in.remote(0, 0)}.immediate(0).cookie(13)));
  is(next<dat::recv_done>(link.b.evd), link.passive, 50, 4);
  const auto written = next<dat::ib::recv_write_immediate_done>(link.b.evd);
  is(written, link.passive, 51, 90);
  CHECK(written.immediate() == word);
  CHECK(std::equal(out.bytes.begin() + 10, out.bytes.end(), in.bytes.begin() + 5));
  const auto came = next<dat::ib::recv_immediate_done>(link.b.evd);
  is(came, link.passive, 52, 20);
  CHECK(came.immediate() == ~word);
  CHECK(std::equal(out.bytes.begin() + 20, out.bytes.begin() + 40, inbox.bytes.begin() + 40));
  const auto notice = next<dat::ib::recv_write_immediate_done>(link.b.evd);
  is(notice, link.passive, 53, 0);
  CHECK(notice.immediate() == 0);
  for (const std::size_t untouched : {std::size_t{4}, std::size_t{20}, std::size_t{60}, std::size_t{80}})
    CHECK(inbox.bytes[untouched] == std::byte{});
  SHOWS("IBX-029");
  is(next<dat::send_done>(link.a.evd), link.active, 10, 4);
  is(next<dat::ib::rdma_write_immediate_done>(link.a.evd), link.active, 11, 90);
  is(next<dat::send_done>(link.a.evd), link.active, 12, 20);
  is(next<dat::ib::rdma_write_immediate_done>(link.a.evd), link.active, 13, 0);
  // Only a fence orders an atomic behind an earlier read, so each kind has it.
  constexpr auto fences = []<class T>(std::type_identity<T>) {
    return requires(T & t) { t.fence(); };
  };
  STATIC_REQUIRE(fences(std::type_identity<dat::ib::fetch_and_add>()));
  STATIC_REQUIRE(fences(std::type_identity<dat::ib::compare_and_swap>()));
  // The old value of an atomic is in the local word, even if other events come in between. The peer gets no event.
  link.far.value = {word, 7, 9};
  must(link.active.post(dat::ib::fetch_and_add{link.near.at(3), link.far.remote(0), 5}.cookie(14),
                        dat::ib::compare_and_swap{link.near.at(4), link.far.remote(1), 7, 70}.cookie(15),
                        dat::ib::compare_and_swap{link.near.at(5), link.far.remote(2), 8, 80}.cookie(16)));
  is(next<dat::ib::fetch_and_add_done>(link.a.evd), link.active, 14, 8);
  is(next<dat::ib::compare_and_swap_done>(link.a.evd), link.active, 15, 8);
  is(next<dat::ib::compare_and_swap_done>(link.a.evd), link.active, 16, 8);
  SHOWS("DTO-036", "DTO-048", "DTO-049", "COMP-068", "COMP-069", "COMP-010");
  CHECK(link.near.value == decltype(link.near.value){0, 0, 0, word, 7, 9});
  CHECK(link.far.value == decltype(link.far.value){word + 5u, 70, 9});
  CHECK(is_empty(link.a.evd));
  CHECK(is_empty(link.b.evd));
  SHOWS("DTO-046");
  SHOWS("DOCA-001");
}

TEST_CASE("extensions are queried by value and by name", "[ib][IBX-001][IBX-002]") {
  side s(0);
  const auto e = must(dat::ib::query_extensions(s.ia));
  const auto a = must(s.ia.query());
  CHECK(e.version == a.extension_version);
  ibv_device_attr device{};
  REQUIRE(::ibv_query_device(s.ia.native_handle(), &device) == 0);
  CHECK((e.fetch_and_add && e.compare_and_swap) == (device.atomic_cap != IBV_ATOMIC_NONE));
  CHECK(e.atomic_write == this_device().atomic_writes);
  if (in_lab() && !this_device().infiniband)
    CHECK((e.version == 0 && !e.immediate_data && !e.fetch_and_add && !e.datagrams));
  else if (in_lab())
    CHECK((e.version == 2 && e.immediate_data && e.fetch_and_add && e.datagrams));
  CHECK((e.version != 0) == (a.extension_supported == dat::extension::infiniband));
  const auto named = must(s.ia.query<dat::provider_attributes>()).specific;
  const auto said = [&](const char* name) {
    const auto* value = named.find(name);
    CHECK((!value || value->view() == "TRUE")); // the presence of the name means support
    return value != nullptr;
  };
  for (const char* name : {"DAT_IB_IMMED_DATA_OP", "DAT_IB_IMMED_DATA", "DAT_EXT_RDMA_WRITE_IMMED"})
    CHECK(said(name) == e.immediate_data);
  for (const char* name : {"DAT_IB_FETCH_AND_ADD_OP", "DAT_IB_FETCH_AND_ADD", "DAT_EXT_FETCH_AND_ADD"})
    CHECK(said(name) == e.fetch_and_add);
  for (const char* name : {"DAT_IB_CMP_AND_SWAP_OP", "DAT_IB_CMP_AND_SWAP", "DAT_EXT_CMP_AND_SWAP"})
    CHECK(said(name) == e.compare_and_swap);
  CHECK(said("DAT_IB_UD") == e.datagrams);
  CHECK(said("DAT_EXTENSION_INTERFACE") == (e.version != 0));
  const auto* version = named.find("DAT_EXTENSION_VERSION");
  CHECK((version ? version->view() == std::to_string(e.version) : e.version == 0));
  CHECK_FALSE(e.masked_atomics);
}

TEST_CASE("a write with immediate data takes the flags of a write, and a failed one is no success at the peer",
          "[ib][IBX-023][IBX-024][IBX-027][IBX-031]") {
  NEEDS_FEATURE(immediate_data);
  connected_pair link;
  buffer out(link.a.pz, 32);
  buffer in(link.b.pz, 32);
  // A fenced write waits for the read before it: it writes the last bytes that were read.
  constexpr std::size_t size = 256 * 1024;
  buffer source(link.b.pz, size);
  buffer sink(link.a.pz, size);
  for (std::uint32_t round = 1; round <= 4; ++round) {
    fill(source.bytes, round);
    must(link.passive.post(dat::recv{}));
    must(link.active.post(dat::rdma_read{sink.lmr, source.remote()}.suppress_completion(),
                          dat::rdma_write{sink.slice(size - 8, 8), in.remote(0, 8)}.immediate(round).fence()));
    CHECK(next<dat::ib::recv_write_immediate_done>(link.b.evd).immediate() == round);
    CHECK(std::ranges::equal(in.part(0, 8), source.part(size - 8, 8)));
    SHOWS("IBX-024");
    (void)next<dat::ib::rdma_write_immediate_done>(link.a.evd);
  }
  // The list of segments belongs to the consumer when the post returns.
  fill(out.bytes, 7);
  must(link.passive.post(dat::recv{}));
  dat::iov<2, all_rights.value> parts{out.slice(0, 16), out.slice(16, 16)};
  must(link.active.post(dat::rdma_write{parts, in.remote()}.immediate(5)));
  parts.clear();
  CHECK(next<dat::ib::recv_write_immediate_done>(link.b.evd).immediate() == 5);
  CHECK(has_pattern(in.bytes, 7));
  (void)next<dat::ib::rdma_write_immediate_done>(link.a.evd);
  fill(out.bytes, 8);
  for (std::uint64_t i = 1; i <= 3; ++i) must(link.passive.post(dat::recv{}.cookie(i)));
  must(link.active.post(dat::rdma_write{out.lmr, in.remote()}.solicited_immediate(1).suppress_completion(),
                        dat::rdma_write{out.lmr, in.remote()}.immediate(2).fence().cookie(9)));
  // There is one completion, because the first write is suppressed.
  const auto done = next<dat::ib::rdma_write_immediate_done>(link.a.evd);
  CHECK(done.cookie() == dat::cookie(9));
  CHECK(done.bytes() == 32);
  CHECK(next<dat::ib::recv_write_immediate_done>(link.b.evd).immediate() == 1);
  CHECK(next<dat::ib::recv_write_immediate_done>(link.b.evd).immediate() == 2);
  CHECK(has_pattern(in.bytes, 8));
  // An invalid key: the write fails, and the waiting receive is neither a success nor immediate data.
  auto wire = in.remote().to_wire();
  wire[16] ^= std::byte{0xff};
  must(link.active.post(dat::rdma_write{out.lmr, must(window::from_wire(wire))}.immediate(3).cookie(10)));
  const auto failed = next<dat::dto_failure>(link.a.evd);
  CHECK(failed.operation() == dat::dto_operation::rdma_write_immediate);
  CHECK(failed.status() == dat::dto_status::remote_access);
  // The peer detects the failure, too. On a busy machine the peer may be the first to end the connection.
  (void)must(link.a.evd.wait_for_any<dat::connection_broken, dat::disconnected>(link.active, patience));
  const auto unmet = link.at_b<dat::dto_failure>();
  CHECK(unmet.cookie() == dat::cookie(3));
  CHECK(unmet.operation() == dat::dto_operation::recv);
  SHOWS("DOCA-022", "DOCA-028");
  // The next operation is flushed, like a write.
  must(link.active.post(dat::rdma_write{out.lmr, in.remote()}.immediate(4).cookie(11)));
  const auto late = next<dat::dto_failure>(link.a.evd);
  CHECK(late.status() == dat::dto_status::flushed);
  CHECK(late.operation() == dat::dto_operation::rdma_write_immediate);
}

} // namespace device
