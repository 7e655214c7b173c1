// Posts that are refused at once on a device, and the connection afterwards.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <dat/ep_params.hpp>
#include <dat/rmr.hpp>

#include <algorithm>

namespace device {

TEST_CASE("requests need a connection and receives do not",
          "[dto][DTO-038][DTO-069][EPS-001][EPS-067][REQ-097][DTO-071]") {
  two_sides link({.progress = dat::progress::manual});
  auto active = link.a.make_ep();
  auto passive = link.b.make_ep();
  buffer out(link.a.pz, 16);
  buffer in(link.b.pz, 16);
  fill(out.bytes, 3);
  using old_value = dat::local_segment<std::uint64_t, dat::mem_priv::local_write>;
  using word = dat::remote_segment<std::uint64_t, dat::mem_priv::remote_atomic>;
  const auto refused = [&](endpoint& ep, subtype why) {
    const auto expected = dat::error(type::invalid_state, why);
    CHECK(error_of(ep.post(dat::send{})) == expected);
    CHECK(error_of(ep.post(dat::send{}.immediate(1), dat::send{})) == expected);
    CHECK(error_of(ep.post(dat::rdma_write{out.lmr, in.remote()})) == expected);
    CHECK(error_of(ep.post(dat::rdma_read{out.lmr, in.remote()})) == expected);
    CHECK(error_of(ep.post(dat::rdma_write{out.lmr, in.remote()}.immediate(1))) == expected);
    SHOWS("IBX-027");
    CHECK(error_of(ep.post(dat::send_with_invalidate{in.remote()})) == expected);
    SHOWS("DTO-067", "DTO-102");
    CHECK(error_of(ep.post(dat::ib::fetch_and_add{old_value(), word(), 1})) == expected);
    CHECK(error_of(ep.post(dat::ib::compare_and_swap{old_value(), word(), 1, 2})) == expected);
    const bool first = &ep == &active;
    auto rmr = must((first ? link.a : link.b).pz.create_rmr());
    CHECK(error_of(rmr.bind(ep, dat::bind{(first ? out : in).lmr, dat::remote_write})) == expected);
    must(ep.post(dat::recv{}));
  };
  refused(active, subtype::ep_unconnected);
  must(active.connect(link.target(), link.port(), patience));
  refused(active, subtype::ep_actconnpending);
  auto request = link.at_b<dat::connection_request>();
  refused(passive, subtype::ep_unconnected);
  must(request.accept(passive));
  CHECK_FALSE(request); // the peer has answered when the call returns
  CHECK(passive.state() == state::completion_pending);
  SHOWS("CR-049");
  refused(passive, subtype::ep_complpending); // with manual progress, the state of this side does not change
  (void)link.at_a<dat::established>();
  (void)link.at_b<dat::established>();

  NEEDS_FEATURE(immediate_data);
  // No refused request is ever sent: the peer gets the two sends below and no other.
  must(active.post(dat::send{}.immediate(42)));
  must(passive.post(dat::send{}.immediate(43)));
  CHECK(link.at_b<dat::ib::recv_immediate_done>().immediate() == 42);
  CHECK(in.bytes == std::vector<std::byte>(16)); // a write that was sent would precede that message
  CHECK(link.at_a<dat::ib::recv_immediate_done>().immediate() == 43);
  SHOWS("REQ-019"); // calls and extensions work on two adapters, and take no adapter as argument
  (void)link.at_a<dat::send_done>();
  (void)link.at_b<dat::send_done>();
  CHECK(is_empty(link.a.evd));
  CHECK(is_empty(link.b.evd));

  endpoint none;
  CHECK(error_of(none.post(dat::send{})) == dat::error(type::invalid_handle, subtype::handle_ep));
  CHECK(error_of(none.post(dat::recv{})) == dat::error(type::invalid_handle, subtype::handle_ep));
  SHOWS("DTO-067", "DTO-124");
  const auto no_ep = dat::error(type::invalid_handle, subtype::handle_ep);
  CHECK(error_of(none.post(dat::send_with_invalidate{in.remote()})) == no_ep);
  CHECK(error_of(none.post(dat::rdma_write{out.lmr, in.remote()})) == no_ep);
  CHECK(error_of(none.post(dat::rdma_write{out.lmr, in.remote()}.immediate(1))) == no_ep);
  SHOWS("IBX-027");
  CHECK(error_of(none.post(dat::rdma_read{out.lmr, in.remote()})) == no_ep);
}

TEST_CASE("a post that breaks a rule is refused and the link goes on", "[dto]") {
  connected_pair link({.active = {.max_request_iov = 2, .max_recv_iov = 1, .max_message_size = 4096}});
  buffer out(link.a.pz, 8192);
  buffer in(link.b.pz, 8192);
  std::fill(in.bytes.begin(), in.bytes.end(), std::byte{1});
  const auto most_of_read = must(link.a.ia.query()).max_iov_segments_per_rdma_read;
  auto& ep = link.active;

  // too long
  CHECK(error_of(ep.post(dat::send{out.slice(0, 4097)})).type() == type::length_error);
  CHECK(error_of(ep.post(dat::rdma_write{out.slice(0, 4097), in.remote()})).type() == type::length_error);
  CHECK(error_of(ep.post(dat::rdma_read{out.slice(0, 4097), in.remote()})).type() == type::length_error);
  CHECK(error_of(ep.post(dat::rdma_write{out.slice(0, 4097), in.remote()}.immediate(1))).type() ==
        (has(feature::immediate_data) ? type::length_error : type::model_not_supported));
  SHOWS("IBX-027");
  CHECK(error_of(ep.post(dat::send{dat::iov{out.slice(0, 4000), out.slice(0, 97)}})) == dat::error(type::length_error));
  // The length is checked first: the segment belongs to no window.
  CHECK(error_of(ep.post(dat::send_with_invalidate{out.slice(0, 4097), in.remote()})).type() == type::length_error);
  SHOWS("ERR-020");
  DEVIATES("DTO-087", "COMP-034");
  buffer closed(link.a.pz, 8);
  must(closed.lmr.close());
  CHECK(error_of(ep.post(dat::recv{closed.lmr})) == dat::error(type::privileges_violation, subtype::privileges_write));
  SHOWS("DTO-124");
  CHECK(error_of(ep.post(dat::send{closed.lmr})) == dat::error(type::privileges_violation, subtype::privileges_read));
  SHOWS("ERR-036");
  still_works(link);
  SHOWS("DTO-086");
  must(ep.post(dat::rdma_write{out.slice(0, 4096), in.remote()}));
  CHECK(next<dat::rdma_write_done>(link.a.evd).bytes() == 4096);
  must(ep.post(dat::rdma_read{out.slice(0, 4096), in.remote()}));
  CHECK(next<dat::rdma_read_done>(link.a.evd).bytes() == 4096);
  SHOWS("EP-012", "EPATTR-003");

  must(link.passive.post(dat::recv{in.slice(0, 4096)}));
  must(ep.post(dat::send{out.slice(0, 4096)}));
  CHECK(next<dat::recv_done>(link.b.evd).bytes() == 4096);
  (void)next<dat::send_done>(link.a.evd);
  SHOWS("EP-012");
  must(link.passive.post(dat::recv{in.slice(8000, 8)}));
  must(ep.post(dat::send{dat::iov{out.slice(0, 1), out.slice(2, 1)}})); // max_request_iov segments
  CHECK(next<dat::recv_done>(link.b.evd).bytes() == 2);
  CHECK(next<dat::send_done>(link.a.evd).bytes() == 2);
  SHOWS("EPATTR-012", "EP-011");
  if (most_of_read == 1) SKIP("this device reads into one segment");
  must(ep.post(dat::rdma_read{dat::iov{out.slice(8000, 1), out.slice(8002, 1)}, in.remote(7000, 2)}));
  CHECK(next<dat::rdma_read_done>(link.a.evd).bytes() == 2);
  must(ep.post(dat::rdma_write{dat::iov{out.slice(0, 1), out.slice(2, 1)}, in.remote(7000, 2)}));
  CHECK(next<dat::rdma_write_done>(link.a.evd).bytes() == 2);
  SHOWS("EPATTR-018");

  // longer than the remote segment: refused; shorter: writes only its own length
  CHECK(error_of(ep.post(dat::rdma_read{out.slice(0, 61), in.remote(0, 60)})).type() == type::length_error);
  CHECK(error_of(ep.post(dat::rdma_write{out.slice(0, 61), in.remote(0, 60)})).type() == type::length_error);
  const dat::iov sum_of_61{out.slice(0, 30), out.slice(30, 31)};
  CHECK(error_of(ep.post(dat::rdma_read{sum_of_61, in.remote(0, 60)})).type() == type::length_error);
  CHECK(error_of(ep.post(dat::rdma_write{sum_of_61, in.remote(0, 60)})).type() == type::length_error);
  SHOWS("DTO-093", "ERR-020");
  CHECK(error_of(ep.post(dat::rdma_write{out.slice(0, 61), in.remote(0, 60)}.immediate(1))).type() ==
        type::length_error);
  SHOWS("IBX-027");
  still_works(link);
  std::fill(out.bytes.begin(), out.bytes.end(), std::byte{2});
  must(ep.post(dat::rdma_read{dat::iov{out.slice(0, 25), out.slice(25, 35)}, in.remote(5000, 100)}));
  CHECK(next<dat::rdma_read_done>(link.a.evd).bytes() == 60);
  CHECK(out.bytes[59] == std::byte{1});
  CHECK(out.bytes[60] == std::byte{2});
  SHOWS("DTO-129", "DTO-130");
  must(ep.post(dat::rdma_write{out.slice(60, 60), in.remote(6000, 100)}));
  CHECK(next<dat::rdma_write_done>(link.a.evd).bytes() == 60);
  still_works(link);
  CHECK((in.bytes[5999] == std::byte{1} && in.bytes[6000] == std::byte{2}));
  CHECK((in.bytes[6059] == std::byte{2} && in.bytes[6060] == std::byte{1}));
  SHOWS("DTO-149", "REQ-096");

  // too many segments
  const dat::iov three{out.slice(0, 1), out.slice(1, 1), out.slice(2, 1)};
  CHECK(error_of(ep.post(dat::send{three})) == dat::error(type::invalid_parameter, subtype::arg2));
  SHOWS("DTO-067", "DTO-081");
  CHECK(error_of(ep.post(dat::rdma_write{three, in.remote()})) == dat::error(type::invalid_parameter, subtype::arg2));
  SHOWS("EPATTR-018");
  CHECK(error_of(ep.post(dat::rdma_read{three, in.remote()})) == dat::error(type::invalid_parameter, subtype::arg2));
  SHOWS("EPATTR-017");
  CHECK(error_of(ep.post(dat::send_with_invalidate{three, in.remote()})) ==
        dat::error(type::invalid_parameter, subtype::arg2));
  CHECK(error_of(ep.post(dat::recv{dat::iov{out.slice(0, 1), out.slice(1, 1)}})) ==
        dat::error(type::invalid_parameter, subtype::arg2));
  SHOWS("EPATTR-011", "DTO-081", "DTO-124");
  CHECK(error_of(ep.post(dat::rdma_write{three, in.remote()}.immediate(1))) ==
        dat::error(type::invalid_parameter, subtype::arg2));
  SHOWS("IBX-027");
  still_works(link);

  // memory of another zone, of this adapter or another
  auto other_zone = must(link.a.ia.create_pz());
  buffer foreign(other_zone, 64);
  side stranger(0);
  buffer strange(stranger.pz, 64);
  for (buffer* b : {&foreign, &strange}) {
    const dat::error unreadable(type::protection_violation, subtype::protection_read);
    const dat::error unwritable(type::protection_violation, subtype::protection_write);
    const dat::iov both_faults{b->slice(0, 1), b->slice(1, 1), b->slice(2, 1)}; // too many segments, too
    const auto either = error_of(ep.post(dat::send{both_faults})).type();
    CHECK((either == type::protection_violation || either == type::invalid_parameter));
    SHOWS("DTO-085");
    CHECK(error_of(ep.post(dat::send{b->lmr})) == unreadable);
    CHECK(error_of(ep.post(dat::rdma_write{b->lmr, in.remote()})) == unreadable);
    CHECK(error_of(ep.post(dat::rdma_write{b->lmr, in.remote()}.immediate(1))) == unreadable);
    SHOWS("IBX-027");
    CHECK(error_of(ep.post(dat::send_with_invalidate{b->lmr, in.remote()})) == unreadable);
    CHECK(error_of(ep.post(dat::rdma_read{b->lmr, in.remote()})) == unwritable);
    SHOWS("DTO-067");
    CHECK(error_of(ep.post(dat::recv{b->lmr})) == unwritable);
    SHOWS("DTO-124");
    CHECK(error_of(ep.post(dat::send{dat::iov{out.slice(0, 1), b->slice(0, 1)}})) == unreadable);
    // An empty segment transfers nothing, so its zone does not matter.
    std::fill(in.bytes.begin(), in.bytes.end(), std::byte{1});
    must(link.passive.post(dat::recv{in.slice(0, 8)}));
    must(ep.post(dat::send{dat::iov{out.slice(59, 1), b->slice(7, 0), out.slice(60, 1)}}));
    CHECK(next<dat::recv_done>(link.b.evd).bytes() == 2);
    CHECK((in.bytes[0] == out.bytes[59] && in.bytes[1] == out.bytes[60] && in.bytes[2] == std::byte{1}));
    SHOWS("DTO-055");
    (void)next<dat::send_done>(link.a.evd);
    SHOWS("DTO-083", "DTO-137", "EP-003", "ERR-023", "LMR-001", "MODEL-013", "MODEL-018", "PZ-002", "REQ-137",
          "IA-122");
    SHOWS("ERR-036");
    still_works(link);
  }
}

} // namespace device
