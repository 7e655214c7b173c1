// <dat/evd.hpp>, <dat/ia.hpp>, <dat/ep.hpp>: evds without a needed stream, events that never come, copied handles.
// SPDX-License-Identifier: BSL-1.0
#include <dat/csp.hpp>
#include <dat/dat.hpp>
#include <dat/rsp.hpp>

#include <chrono>

using namespace std::chrono_literals;
using completions = dat::evd<dat::stream::dto>;
using connections = dat::evd<dat::stream::connection>;
using requests = dat::evd<dat::stream::connection_requests>;
using all = dat::evd<dat::stream::dto | dat::stream::connection | dat::stream::connection_requests>;

//! case: receives to an evd without completions
//! error: dat: this evd lacks dat::stream::dto, which the object feeds
//! tags: [EVENT-026][EP-007][EP-008]
#ifdef DAT_EXPECT_FAIL
auto bad_recv(dat::pz& pz, connections& c, completions& d) {
  return pz.create_ep<dat::rc>({.recv = c, .request = d, .connect = c});
}
#else
auto good_recv(dat::pz& pz, connections& c, completions& d) {
  return pz.create_ep<dat::rc>({.recv = d, .request = d, .connect = c});
}
#endif

//! case: requests to an evd without completions
//! error: dat: this evd lacks dat::stream::dto, which the object feeds
//! tags: [EVENT-026][EP-007][EP-008]
#ifdef DAT_EXPECT_FAIL
auto bad_request(dat::pz& pz, connections& c, completions& d) {
  return pz.create_ep<dat::rc>({.recv = d, .request = c, .connect = c});
}
#else
auto good_request(dat::pz& pz, all& a, completions& d) {
  return pz.create_ep<dat::rc>({.recv = d, .request = a, .connect = a});
}
#endif

//! case: connection events to an evd without that stream
//! error: dat: this evd lacks dat::stream::connection, which the object feeds
//! tags: [CONN-035][EVENT-026][EP-007][EP-008]
#ifdef DAT_EXPECT_FAIL
auto bad_connect(dat::pz& pz, completions& d) { return pz.create_ep<dat::rc>({.recv = d, .request = d, .connect = d}); }
#else
auto good_connect(dat::pz& pz, completions& d, connections& c) {
  return pz.create_ep<dat::rc>({.recv = d, .request = d, .connect = c});
}
#endif

//! case: one evd for an endpoint, without connection events
//! error: dat: an endpoint's only evd needs dat::stream::connection, which this one lacks
#ifdef DAT_EXPECT_FAIL
auto bad_only(dat::pz& pz, completions& d) { return pz.create_ep<dat::rc>(d); }
#else
auto good_only(dat::pz& pz, all& a) { return pz.create_ep<dat::rc>(a); }
#endif

//! case: a service point on an evd without requests
//! error: dat: this evd lacks dat::stream::connection_requests, which the object feeds
//! tags: [PSP-010][EVENT-026]
#ifdef DAT_EXPECT_FAIL
auto bad_psp(dat::ia& ia, connections& c) { return ia.create_psp(7471, c); }
#else
auto good_psp(dat::ia& ia, requests& r) { return ia.create_psp(7471, r); }
#endif

//! case: a reserved service point on an evd without requests
//! error: dat: this evd lacks dat::stream::connection_requests, which the object feeds
//! tags: [PSP-010][EVENT-026]
#ifdef DAT_EXPECT_FAIL
auto bad_rsp(dat::ia& ia, const dat::ep<dat::rc>& e, connections& c) { return ia.create_rsp(7471, e, c); }
#else
auto good_rsp(dat::ia& ia, const dat::ep<dat::rc>& e, requests& r) { return ia.create_rsp(7471, e, r); }
#endif

//! case: a common service point on an evd without requests
//! error: dat: this evd lacks dat::stream::connection_requests, which the object feeds
//! tags: [PSP-010][EVENT-026]
#ifdef DAT_EXPECT_FAIL
auto bad_csp(dat::ia& ia, const dat::communicator& comm, connections& c) { return ia.create_csp(comm, c); }
#else
auto good_csp(dat::ia& ia, const dat::communicator& comm, requests& r) { return ia.create_csp(comm, r); }
#endif

//! case: asynchronous events to an evd without that stream
//! error: dat: this evd cannot take asynchronous events
//! tags: [EVENT-026][IA-010]
#ifdef DAT_EXPECT_FAIL
auto bad_async(connections& c) { return dat::ia::open("mlx5_0", {.async_evd = c}).has_value(); }
#else
auto good_async(dat::evd<dat::stream::async>& a) { return dat::ia::open("mlx5_0", {.async_evd = a}).has_value(); }
#endif

//! case: a service point on qualifier 0
//! error: a_connection_qualifier_is_a_port_from_1_to_65535
//! tags: [PSP-019]
#ifdef DAT_EXPECT_FAIL
auto psp_zero(dat::ia& ia, requests& r) { return ia.create_psp(0, r); }
#else
auto psp_one(dat::ia& ia, requests& r) { return ia.create_psp(1, r); }
#endif

//! case: a service point on qualifier 65536
//! error: a_connection_qualifier_is_a_port_from_1_to_65535
//! tags: [PSP-019]
#ifdef DAT_EXPECT_FAIL
auto psp_beyond(dat::ia& ia, requests& r) { return ia.create_psp(65536, r); }
#else
auto psp_last(dat::ia& ia, requests& r) { return ia.create_psp(65535, r); }
#endif

//! case: connecting to qualifier 0
//! error: a_connection_qualifier_is_a_port_from_1_to_65535
//! tags: [CONN-056]
#ifdef DAT_EXPECT_FAIL
auto to_zero(dat::ep<dat::rc>& e, const dat::ia_address& a) { return e.connect(a, 0, 2s); }
#else
auto to_one(dat::ep<dat::rc>& e, const dat::ia_address& a) { return e.connect(a, 1, 2s); }
#endif

//! case: connecting to qualifier 65537
//! error: a_connection_qualifier_is_a_port_from_1_to_65535
//! tags: [CONN-056]
#ifdef DAT_EXPECT_FAIL
auto to_beyond(dat::ep<dat::rc>& e, const dat::ia_address& a) { return e.connect(a, 65537, 2s); }
#else
auto to_last(dat::ep<dat::rc>& e, const dat::ia_address& a) { return e.connect(a, 65535, 2s); }
#endif

//! case: a service that does not exist
//! error: dat: create_ep<dat::rc> and
//! tags: [EPATTR-001]
#ifdef DAT_EXPECT_FAIL
struct telepathy {};
auto unknown_service(dat::pz& pz, all& a) { return pz.create_ep<telepathy>(a).has_value(); }
#else
auto known_service(dat::pz& pz, all& a) { return pz.create_ep<dat::rc>(a).has_value(); }
#endif

//! case: an evd without streams
//! error: dat: an evd needs at least one stream
//! tags: [EVENT-023]
#ifdef DAT_EXPECT_FAIL
auto no_streams(dat::ia& ia) { return ia.create_evd<dat::streams{}>(8).has_value(); }
#else
auto one_stream(dat::ia& ia) { return ia.create_evd<dat::stream::connection>(8).has_value(); }
#endif

//! case: waiting for an event that the evd never delivers
//! error: dat: this evd never delivers that event
#ifdef DAT_EXPECT_FAIL
auto never(connections& c) { return c.wait_for<dat::recv_done>(2s).has_value(); }
#else
auto perhaps(all& a) { return a.wait_for<dat::recv_done>(2s).has_value(); }
#endif

//! case: waiting for a request on an evd without requests
//! error: dat: this evd never delivers that event
#ifdef DAT_EXPECT_FAIL
auto no_requests(connections& c) { return c.wait_for<dat::connection_request>(2s).has_value(); }
#else
auto some_requests(requests& r) { return r.wait_for<dat::connection_request>(2s).has_value(); }
#endif

//! case: waiting for one event of a completion queue
//! error: dat: wait_for leaves other events in the queue
#ifdef DAT_EXPECT_FAIL
auto lean_wait_for(completions& d) { return d.wait_for<dat::recv_done>(2s).has_value(); }
#else
auto lean_wait(completions& d) { return d.wait(2s).has_value(); }
#endif

//! case: a visitor that misses an event
//! error: dat: the visitor must be callable with every event
#ifdef DAT_EXPECT_FAIL
auto misses(completions& d) {
  return d.drain(dat::overloaded{[](const dat::send_done&) {}, [](const dat::recv_done&) {}});
}
#else
auto takes_all(completions& d) {
  return d.drain(dat::overloaded{[](const dat::send_done&) {}, [](const auto&) {}});
}
#endif

//! case: the event that a visitor misses, by its name
//! error(gcc): dat::v0::rdma_write_done>
//! error(clang): dat::rdma_write_done>
#ifdef DAT_EXPECT_FAIL
auto misses_writes(completions& d) {
  return d.drain(dat::overloaded{[](const dat::send_done&) {}, [](const dat::recv_done&) {}});
}
#else
auto takes_writes(completions& d) {
  return d.drain(dat::overloaded{[](const dat::send_done&) {}, [](const auto&) {}});
}
#endif

//! case: a visitor that would copy a request
//! error: dat: the visitor takes this event by value: take events by reference
#ifdef DAT_EXPECT_FAIL
auto by_value(requests& r) {
  return r.drain([](dat::cr) {});
}
#else
auto by_reference(requests& r) {
  return r.drain([](dat::cr&) {});
}
#endif

//! case: a copied ia
//! error: deleted
//! lines: 40
#ifdef DAT_EXPECT_FAIL
auto copied_ia(const dat::ia& h) { return dat::ia(h); }
#else
auto moved_ia(dat::ia& h) { return dat::ia(std::move(h)); }
#endif

//! case: a copied zone
//! error: deleted
#ifdef DAT_EXPECT_FAIL
auto copied_pz(const dat::pz& h) { return dat::pz(h); }
#else
auto moved_pz(dat::pz& h) { return dat::pz(std::move(h)); }
#endif

//! case: a copied evd
//! error: deleted
#ifdef DAT_EXPECT_FAIL
auto copied_evd(const all& h) { return all(h); }
#else
auto moved_evd(all& h) { return all(std::move(h)); }
#endif

//! case: a copied endpoint
//! error: deleted
#ifdef DAT_EXPECT_FAIL
auto copied_ep(const dat::ep<dat::rc>& h) { return dat::ep<dat::rc>(h); }
#else
auto moved_ep(dat::ep<dat::rc>& h) { return dat::ep<dat::rc>(std::move(h)); }
#endif

//! case: a copied service point
//! error: deleted
#ifdef DAT_EXPECT_FAIL
auto copied_psp(const dat::psp& h) { return dat::psp(h); }
#else
auto moved_psp(dat::psp& h) { return dat::psp(std::move(h)); }
#endif

//! case: a copied request
//! error: deleted
//! lines: 40
//! tags: [CR-015]
#ifdef DAT_EXPECT_FAIL
auto copied_cr(const dat::cr& h) { return dat::cr(h); }
#else
auto moved_cr(dat::cr& h) { return dat::cr(std::move(h)); }
#endif

//! case: a post whose result is discarded
//! error: -Werror=unused-result|-Wunused-result
#ifdef DAT_EXPECT_FAIL
void unlooked_post(dat::ep_ref e) { e.post(dat::recv{}); }
#else
bool looked_post(dat::ep_ref e) { return e.post(dat::recv{}).has_value(); }
#endif

//! case: an opened ia that is discarded
//! error: -Werror=unused-result|-Wunused-result
#ifdef DAT_EXPECT_FAIL
void unkept() { dat::ia::open("rxe0"); }
#else
bool kept() { return dat::ia::open("rxe0").has_value(); }
#endif

//! case: a wait whose event is discarded
//! error: -Werror=unused-result|-Wunused-result
#ifdef DAT_EXPECT_FAIL
void untaken(all& a) { a.wait(2s); }
#else
bool taken(all& a) { return a.wait(2s).has_value(); }
#endif

//! case: a time limit in a unit finer than microseconds
//! error: dat: a time limit is a whole number with a unit of microseconds or more, such as 5ms or 2s
//! tags: [EVD-050]
#ifdef DAT_EXPECT_FAIL
auto finer(all& a) { return a.wait(5ns); }
#else
auto coarser(all& a) { return a.wait(5us); }
#endif

//! case: a software event for an evd without their stream
//! error: dat: software events need their stream
//! tags: [EVD-071][EVENT-025][EVD-060][EVD-069]
#ifdef DAT_EXPECT_FAIL
bool post_to_standard(dat::evd<dat::stream::standard>& e) { return e.post(1).has_value(); }
#else
bool post_to_mixed(dat::evd<dat::stream::standard | dat::stream::software>& e) { return e.post(1).has_value(); }
#endif

//! case: an event of the library that the consumer posts
//! error(gcc): deleted function 'dat.*::cookie::cookie\(a_cookie_is_an_integer_an_enumerator_or_a_pointer\)
//! error(clang): 'const dat::send_done' to 'dat::cookie' invokes a deleted function
//! tags: [EVD-070][REQ-160]
#ifdef DAT_EXPECT_FAIL
bool post_event(dat::evd<dat::stream::software>& e, const dat::send_done& s) { return e.post(s).has_value(); }
#else
bool post_cookie(dat::evd<dat::stream::software>& e, const dat::send_done& s) { return e.post(s.cookie()).has_value(); }
#endif

//! case: an agent that may throw
//! error: no viable conversion|invalid conversion|cannot convert|no known conversion|could not convert
#ifdef DAT_EXPECT_FAIL
const dat::wait_proxy_agent throwing{[](void*, dat::evd_id) {}, nullptr};
#else
const dat::wait_proxy_agent quiet{[](void*, dat::evd_id) noexcept {}, nullptr};
#endif

//! case: a receive whose completion is suppressed
//! error: no member named .suppress
//! tags: [COMP-012][COMP-020][COMP-023]
#ifdef DAT_EXPECT_FAIL
auto suppressed(dat::ep<dat::rc>& ep) { return ep.post(dat::recv{}.suppress_completion()).has_value(); }
#else
auto unsignalled(dat::ep<dat::rc>& ep) { return ep.post(dat::recv{}.suppress_notification()).has_value(); }
#endif

//! case: an evd with a stream that does not exist
//! error: dat: the value has a bit that is no stream
//! tags: [EVENT-023]
#ifdef DAT_EXPECT_FAIL
auto unknown_stream(dat::ia& ia) { return ia.create_evd<static_cast<dat::streams>(0x400)>(8).has_value(); }
#else
auto known_stream(dat::ia& ia) { return ia.create_evd<static_cast<dat::streams>(0x020)>(8).has_value(); }
#endif

//! case: a generic visitor by value, of an evd with requests
//! error: dat: the visitor takes this event by value: take events by reference
#ifdef DAT_EXPECT_FAIL
auto generic_by_value(all& a) {
  return a.drain([](auto) {});
}
#else
auto generic_by_reference(all& a) {
  return a.drain([](auto&) {});
}
#endif

//! case: an endpoint on the expected evd that create_evd returned
//! error: dat: the result of create_evd is an expected: unwrap it
#ifdef DAT_EXPECT_FAIL
auto on_expected(dat::pz& pz, dat::expected<all>& a) { return pz.create_ep<dat::rc>(a); }
#else
auto on_value(dat::pz& pz, dat::expected<all>& a) { return pz.create_ep<dat::rc>(a.value()); }
#endif

//! case: a service point on the expected evd that create_evd returned
//! error: dat: the result of create_evd is an expected: unwrap it
#ifdef DAT_EXPECT_FAIL
auto listen_on_expected(dat::ia& ia, dat::expected<all>& a) { return ia.create_psp(7471, a); }
#else
auto listen_on_value(dat::ia& ia, dat::expected<all>& a) { return ia.create_psp(7471, a.value()); }
#endif

//! case: a wait with a number as its time limit
//! error: dat: a time limit is a whole number with a unit of microseconds or more, such as 5ms or 2s
#ifdef DAT_EXPECT_FAIL
auto wait_5(all& e) { return e.wait(5); }
#else
auto wait_5(all& e) { return e.wait(5ms); }
#endif

//! case: a drain with a time limit
//! error: dat: drain takes what is there and never waits; with a time limit, call wait_and_drain
#ifdef DAT_EXPECT_FAIL
void drain_5ms(all& e) {
  e.drain([](const auto&) {}, 5ms);
}
#else
void drain_5ms(all& e) {
  (void)e.wait_and_drain([](const auto&) {}, 5ms);
}
#endif

//! case: a wait for one kind of event with a number as its time limit
//! error: dat: a time limit is a whole number with a unit of microseconds or more, such as 5ms or 2s
#ifdef DAT_EXPECT_FAIL
auto wait_for_5(all& e) { return e.wait_for<dat::established>(5); }
#else
auto wait_for_5(all& e) { return e.wait_for<dat::established>(5ms); }
#endif

//! case: a wait for an event of one endpoint with a number as its time limit
//! error: dat: a time limit is a whole number with a unit of microseconds or more, such as 5ms or 2s
#ifdef DAT_EXPECT_FAIL
auto wait_for_ep_5(all& e, dat::ep<dat::rc>& ep) { return e.wait_for<dat::established>(ep, 0.5); }
#else
auto wait_for_ep_5(all& e, dat::ep<dat::rc>& ep) { return e.wait_for<dat::established>(ep, 500ms); }
#endif

//! case: a wait on a cno with a number as its time limit
//! error: dat: a time limit is a whole number with a unit of microseconds or more, such as 5ms or 2s
#ifdef DAT_EXPECT_FAIL
auto cno_wait_5(dat::cno& c) { return c.wait(5); }
#else
auto cno_wait_5(dat::cno& c) { return c.wait(5ms); }
#endif

//! case: a connect with a number as its time limit
//! error: dat: a time limit is a whole number with a unit of microseconds or more, such as 5ms or 2s
#ifdef DAT_EXPECT_FAIL
auto connect_5(dat::ep<dat::rc>& ep, dat::ia& ia) { return ep.connect(ia.address(), 7471, 5); }
#else
auto connect_5(dat::ep<dat::rc>& ep, dat::ia& ia) { return ep.connect(ia.address(), 7471, 5s); }
#endif

//! case: the streams of an evd as an argument of the call
//! error: dat: the streams are a template argument: ia.create_evd<dat::stream::dto>\(64\)
#ifdef DAT_EXPECT_FAIL
auto evd_of(dat::ia& ia) { ia.create_evd(64, dat::stream::dto); }
#else
auto evd_of(dat::ia& ia) { return ia.create_evd<dat::stream::dto>(64); }
#endif
