// <dat/srq.hpp>: receives go to a shared receive queue or to an endpoint, never to the wrong one of them.
// SPDX-License-Identifier: BSL-1.0
#include <dat/dat.hpp>
#include <dat/ep_params.hpp>
#include <dat/policies.hpp>
#include <dat/srq.hpp>

using dat::mem_priv;
using shared_ep = dat::ep<dat::with_srq<dat::rc>>;
template <mem_priv P>
using local = dat::local_segment<char, P>;
constexpr auto writable = mem_priv::local_write;
constexpr auto readable = mem_priv::local_read;

//! case: a receive posted to an endpoint that has a shared receive queue
//! error: dat: this endpoint takes its receives from a shared receive queue: post them there
//! tags: [EP-025][DTO-027]
#ifdef DAT_EXPECT_FAIL
auto bad_place(shared_ep& ep, local<writable> s) { return ep.post(dat::recv{s}); }
#else
auto good_place(dat::srq& srq, local<writable> s) { return srq.post(dat::recv{s}); }
#endif

//! case: a receive posted by a policy to an endpoint that has a shared receive queue
//! error: dat: this endpoint takes its receives from a shared receive queue: post them there
#ifdef DAT_EXPECT_FAIL
auto checked_place(shared_ep& ep, local<writable> s) { return ep.post<dat::tracked>(dat::recv{s}); }
#else
auto checked_send(shared_ep& ep, local<readable> s) { return ep.post<dat::tracked>(dat::send{s}); }
#endif

//! case: a send posted to a shared receive queue
//! error: dat: a shared receive queue takes dat::recv only
//! tags: [SRQ-072]
#ifdef DAT_EXPECT_FAIL
auto bad_kind(dat::srq& srq, local<readable> s) { return srq.post(dat::send{s}); }
#else
auto good_kind(shared_ep& ep, local<readable> s) { return ep.post(dat::send{s}); }
#endif

//! case: a buffer for a shared receive queue that the adapter may not write
//! error: dat: recv needs memory registered with dat::local_write
//! tags: [SRQ-089]
#ifdef DAT_EXPECT_FAIL
auto bad_right(dat::srq& srq, local<readable> s) { return srq.post(dat::recv{s}); }
#else
auto good_right(dat::srq& srq, local<writable> s) { return srq.post(dat::recv{s}); }
#endif

//! case: a shared receive queue created with a low watermark
//! error: has no non-static data member named .low_watermark|'low_watermark' does not refer to any field
//! tags: [SRQ-011]
#ifdef DAT_EXPECT_FAIL
const dat::srq_attributes bad_start{.max_recv_dtos = 10, .low_watermark = 3};
#else
auto good_start(dat::srq& srq) { return srq.set_low_watermark(3); }
#endif

//! case: a new shared receive queue for an existing endpoint
//! error: has no non-static data member named .srq|'srq' does not refer to any field
//! tags: [EP-026][DTO-025]
#ifdef DAT_EXPECT_FAIL
const dat::ep_changes bad_change{.srq = nullptr};
#else
auto good_change(dat::pz& pz, dat::evd<dat::stream::dto | dat::stream::connection>& evd, dat::srq& other) {
  return pz.create_ep<dat::rc>(evd, other);
}
#endif

//! case: an endpoint with a shared receive queue and no evd for its connection
//! error: dat: an endpoint's only evd needs dat::stream::connection, which this one lacks
#ifdef DAT_EXPECT_FAIL
auto bad_evd(dat::pz& pz, dat::evd<dat::stream::dto>& evd, dat::srq& srq) { return pz.create_ep<dat::rc>(evd, srq); }
#else
auto good_evd(dat::pz& pz, dat::evd<dat::stream::dto>& evd, dat::srq& srq) {
  return pz.create_ep<dat::rc>({.recv = evd, .request = evd}, srq);
}
#endif
