// <dat/coro.hpp>: events that a driver's evd never delivers, and visitors that would lose events.
// SPDX-License-Identifier: BSL-1.0
#include <dat/coro.hpp>
#include <dat/dat.hpp>

using transfers = dat::coro::driver<dat::stream::dto>;
using everything = dat::coro::driver<dat::stream::dto | dat::stream::connection>;
template <class D>
void connect(D& driver, dat::ep<dat::rc>& ep) {
  auto attempt = driver.connect(ep, dat::ia_address(), 7471, dat::infinite);
  (void)attempt.done();
}

//! case: connecting with a driver for completions alone
//! error: dat: connections need their stream in the driver's evd
#ifdef DAT_EXPECT_FAIL
void bad_connect(transfers& d, dat::ep<dat::rc>& ep) { connect(d, ep); }
#else
void good_connect(everything& d, dat::ep<dat::rc>& ep) { connect(d, ep); }
#endif

//! case: awaiting an event that the driver's evd never delivers
//! error: dat: this evd never delivers that event
#ifdef DAT_EXPECT_FAIL
bool bad_next(transfers& d) { return d.next<dat::disconnected>().done(); }
#else
bool good_next(everything& d) { return d.next<dat::disconnected>().done(); }
#endif

//! case: a visitor of a driver that takes some events only
//! error: dat: the visitor must be callable with every event
#ifdef DAT_EXPECT_FAIL
void bad_visitor(everything& d) {
  d.poll([](const dat::recv_done&) {});
}
#else
void good_visitor(everything& d) {
  d.poll([](const auto&) {});
}
#endif

//! case: an operation of requests that is used for a receive
//! error: dat: post receives with a posted<receive_result>, and requests with a posted<transfer>
#ifdef DAT_EXPECT_FAIL
void bad_reuse(transfers& d, dat::coro::posted<dat::transfer>& op, dat::ep_ref ep) {
  (void)d.post(op, ep, dat::recv{});
}
#else
void good_reuse(transfers& d, dat::coro::posted<dat::coro::receive_result>& op, dat::ep_ref ep) {
  (void)d.post(op, ep, dat::recv{});
}
#endif
