// <dat/evd.hpp>, <dat/ia.hpp>, <dat/ep.hpp>: evds given to what they cannot hold, events that never come, handles
// copied. SPDX-License-Identifier: BSL-1.0
#include <dat/dat.hpp>

#include <chrono>

using namespace std::chrono_literals;
using completions = dat::evd<dat::dto>;
using connections = dat::evd<dat::connection>;
using requests = dat::evd<dat::connection_requests>;
using all = dat::evd<dat::dto | dat::connection | dat::connection_requests>;

//! case: receives to an evd without completions
//! error: dat: this evd lacks a stream that the object feeds
//! tags: [EP-008][EVENT-026]
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
//! error: dat: this evd lacks a stream that the object feeds
//! tags: [EP-008][EVENT-026]
#ifdef DAT_EXPECT_FAIL
auto bad_request(dat::pz& pz, connections& c, completions& d) {
  return pz.create_ep<dat::rc>({.recv = d, .request = c, .connect = c});
}
#else
auto good_request(dat::pz& pz, all& a, completions& d) {
  return pz.create_ep<dat::rc>({.recv = d, .request = a, .connect = a});
}
#endif

//! case: connection events to an evd without them
//! error: dat: this evd lacks a stream that the object feeds
//! tags: [EP-008][CONN-035][EVENT-026]
#ifdef DAT_EXPECT_FAIL
auto bad_connect(dat::pz& pz, completions& d) { return pz.create_ep<dat::rc>({.recv = d, .request = d, .connect = d}); }
#else
auto good_connect(dat::pz& pz, completions& d, connections& c) {
  return pz.create_ep<dat::rc>({.recv = d, .request = d, .connect = c});
}
#endif

//! case: one evd for an endpoint, without connection events
//! error: dat: an endpoint's only evd needs the streams
//! tags: [EP-008]
#ifdef DAT_EXPECT_FAIL
auto bad_only(dat::pz& pz, completions& d) { return pz.create_ep<dat::rc>(d); }
#else
auto good_only(dat::pz& pz, all& a) { return pz.create_ep<dat::rc>(a); }
#endif

//! case: a service point on an evd without requests
//! error: dat: this evd lacks a stream that the object feeds
//! tags: [PSP-010][EVENT-026]
#ifdef DAT_EXPECT_FAIL
auto bad_psp(dat::ia& ia, connections& c) { return ia.create_psp(7471, c); }
#else
auto good_psp(dat::ia& ia, requests& r) { return ia.create_psp(7471, r); }
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
auto one_stream(dat::ia& ia) { return ia.create_evd<dat::connection>(8).has_value(); }
#endif

//! case: waiting for an event that the evd never delivers
//! error: dat: this evd never delivers that event
#ifdef DAT_EXPECT_FAIL
auto never(connections& c) { return c.wait_for<dat::received>(2s).has_value(); }
#else
auto perhaps(all& a) { return a.wait_for<dat::received>(2s).has_value(); }
#endif

//! case: waiting for a request where there are none
//! error: dat: this evd never delivers that event
#ifdef DAT_EXPECT_FAIL
auto no_requests(connections& c) { return c.wait_for<dat::connection_request>(2s).has_value(); }
#else
auto some_requests(requests& r) { return r.wait_for<dat::connection_request>(2s).has_value(); }
#endif

//! case: waiting for one event of a completion queue
//! error: dat: wait_for leaves other events in the queue
#ifdef DAT_EXPECT_FAIL
auto lean_wait_for(completions& d) { return d.wait_for<dat::received>(2s).has_value(); }
#else
auto lean_wait(completions& d) { return d.wait(2s).has_value(); }
#endif

//! case: a visitor that misses an event
//! error: dat: the visitor must be callable with every event
#ifdef DAT_EXPECT_FAIL
auto misses(completions& d) {
  return d.drain(dat::overloaded{[](const dat::sent&) {}, [](const dat::received&) {}});
}
#else
auto takes_all(completions& d) {
  return d.drain(dat::overloaded{[](const dat::sent&) {}, [](const auto&) {}});
}
#endif

//! case: a visitor that would copy a request
//! error: dat: the visitor must be callable with every event
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

//! case: a copied request, which two would answer
//! error: deleted
//! tags: [CR-015]
#ifdef DAT_EXPECT_FAIL
auto copied_cr(const dat::cr& h) { return dat::cr(h); }
#else
auto moved_cr(dat::cr& h) { return dat::cr(std::move(h)); }
#endif

//! case: a post whose failure nobody looks at
//! error: -Werror=unused-result|-Wunused-result
#ifdef DAT_EXPECT_FAIL
void unlooked_post(dat::ep_ref e) { e.post(dat::recv{}); }
#else
bool looked_post(dat::ep_ref e) { return e.post(dat::recv{}).has_value(); }
#endif

//! case: an opened ia that nobody keeps
//! error: -Werror=unused-result|-Wunused-result
#ifdef DAT_EXPECT_FAIL
void unkept() { dat::ia::open("rxe0"); }
#else
bool kept() { return dat::ia::open("rxe0").has_value(); }
#endif

//! case: a wait whose event nobody takes
//! error: -Werror=unused-result|-Wunused-result
#ifdef DAT_EXPECT_FAIL
void untaken(all& a) { a.wait(2s); }
#else
bool taken(all& a) { return a.wait(2s).has_value(); }
#endif

//! case: a time limit in a unit finer than microseconds
//! error: no matching (member )?function|could not convert|no viable conversion
//! tags: [EVD-050]
#ifdef DAT_EXPECT_FAIL
auto finer(all& a) { return a.wait(5ns); }
#else
auto coarser(all& a) { return a.wait(5us); }
#endif

//! case: a software event for an evd without their stream
//! error: dat: software events need their stream
//! tags: [EVD-071][EVENT-025]
constexpr auto usual = dat::connection_requests | dat::dto | dat::connection | dat::rmr_bind | dat::async;
#ifdef DAT_EXPECT_FAIL
bool post_to_usual(dat::evd<usual>& e) { return e.post(1).has_value(); }
#else
bool post_to_mixed(dat::evd<usual | dat::software>& e) { return e.post(1).has_value(); }
#endif

//! case: an event of the library's, posted by the consumer
//! error: no matching (member )?function|no viable conversion|could not convert|cannot convert
//! tags: [EVD-070]
#ifdef DAT_EXPECT_FAIL
bool post_event(dat::evd<dat::software>& e, const dat::sent& s) { return e.post(s).has_value(); }
#else
bool post_cookie(dat::evd<dat::software>& e, const dat::sent& s) { return e.post(s.cookie()).has_value(); }
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
auto suppressed(dat::ep<dat::rc>& ep) { return ep.post(dat::recv{}.suppress()).has_value(); }
#else
auto unsignalled(dat::ep<dat::rc>& ep) { return ep.post(dat::recv{}.unsignalled()).has_value(); }
#endif

//! case: an evd with a stream that does not exist
//! error: dat: a stream that does not exist
//! tags: [EVENT-023]
#ifdef DAT_EXPECT_FAIL
auto unknown_stream(dat::ia& ia) { return ia.create_evd<static_cast<dat::streams>(0x400)>(8).has_value(); }
#else
auto known_stream(dat::ia& ia) { return ia.create_evd<static_cast<dat::streams>(0x020)>(8).has_value(); }
#endif
