// Datagram endpoints.
// SPDX-License-Identifier: BSL-1.0
#include <dat/ib.hpp>
#include <dat/ud.hpp>

namespace {
using namespace std::chrono_literals;
using datagrams = dat::ep<dat::ud>;
using out = dat::lmr<std::byte, dat::mem_priv::local_read>;
using in = dat::lmr<std::byte, dat::mem_priv::local_write>;
using peer = dat::ib::address_handle;
} // namespace

//! case: a plain send on a datagram endpoint
//! error: dat: a datagram endpoint has no connection
//! tags: [ud][IBX-067]
#ifdef DAT_EXPECT_FAIL
auto plain_send(datagrams& e, out& m) { return e.post(dat::send{m}).has_value(); }
#else
auto send_to_peer(datagrams& e, out& m, peer& p) { return e.post(dat::ib::send_to{m, p}).has_value(); }
#endif

//! case: an atomic on a datagram endpoint
//! error: dat: a datagram endpoint has no connection
//! tags: [ud][IBX-040][IBX-067]
using word = dat::lmr<std::uint64_t, dat::mem_priv::local_write>;
using remote_word = dat::remote_segment<std::uint64_t, dat::mem_priv::remote_atomic>;
#ifdef DAT_EXPECT_FAIL
auto add(datagrams& e, word& w, remote_word r) { return e.post(dat::ib::fetch_and_add{w, r, 1}).has_value(); }
#else
auto add(dat::ep<dat::rc>& e, word& w, remote_word r) { return e.post(dat::ib::fetch_and_add{w, r, 1}).has_value(); }
#endif

//! case: a datagram without an address on a connection
//! error: dat: post either receives or requests
//! tags: [ud][IBX-066]
#ifdef DAT_EXPECT_FAIL
auto wrong_kind(dat::ep<dat::rc>& e, out& m, peer& p) { return e.post(dat::ib::send_to{m, p}).has_value(); }
#else
auto right_kind(dat::ep<dat::rc>& e, out& m, peer&) { return e.post(dat::send{m}).has_value(); }
#endif

//! case: a fence on a datagram
//! error: dat: a datagram endpoint has no RDMA reads
//! tags: [ud][IBX-064]
#ifdef DAT_EXPECT_FAIL
void fenced(out& m, peer& p) { dat::ib::send_to{m, p}.fence(); }
#else
void solicited(out& m, peer& p) { dat::ib::send_to{m, p}.solicited(); }
#endif

//! case: an evd without the stream datagrams
//! error: dat: this evd lacks dat::stream::datagrams, which the object feeds
//! tags: [ud][EVENT-026][IBX-016]
using plain_evd = dat::evd<dat::stream::dto | dat::stream::connection>;
using datagram_evd = dat::evd<dat::stream::dto | dat::stream::connection | dat::stream::datagrams>;
#ifdef DAT_EXPECT_FAIL
auto without(dat::pz& z, plain_evd& e) { return z.create_ep<dat::ud>(e).has_value(); }
#else
auto with(dat::pz& z, datagram_evd& e) { return z.create_ep<dat::ud>(e).has_value(); }
#endif
