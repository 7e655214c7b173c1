// Objects whose header was not included: the message names the header.
// SPDX-License-Identifier: BSL-1.0
#include <dat/dat.hpp>

//! case: a shared receive queue without its header
//! error: dat: include <dat/srq.hpp> to create shared receive queues
#ifdef DAT_EXPECT_FAIL
bool srq(dat::pz& pz) { return pz.create_srq({.max_recv_dtos = 8}).has_value(); }
#else
#include <dat/srq.hpp>
bool srq(dat::pz& pz) { return pz.create_srq({.max_recv_dtos = 8}).has_value(); }
#endif

//! case: a remote memory region without its header
//! error: dat: include <dat/rmr.hpp> to create remote memory regions
#ifdef DAT_EXPECT_FAIL
bool rmr(dat::pz& pz) { return pz.create_rmr().has_value(); }
#else
#include <dat/rmr.hpp>
bool rmr(dat::pz& pz) { return pz.create_rmr().has_value(); }
#endif

//! case: a remote memory region for one endpoint without its header
//! error: dat: include <dat/rmr.hpp> to create remote memory regions
#ifdef DAT_EXPECT_FAIL
bool rmr_for_ep(dat::pz& pz) { return pz.create_rmr_for_ep().has_value(); }
#else
#include <dat/rmr.hpp>
bool rmr_for_ep(dat::pz& pz) { return pz.create_rmr_for_ep().has_value(); }
#endif

//! case: a descriptor without its header
//! error: dat: include <dat/descriptor.hpp> to export descriptors
#ifdef DAT_EXPECT_FAIL
bool descriptor(const dat::ep<dat::rc>& ep) { return ep.export_descriptor().has_value(); }
#else
#include <dat/descriptor.hpp>
bool descriptor(const dat::ep<dat::rc>& ep) { return ep.export_descriptor().has_value(); }
#endif

//! case: a datagram endpoint without its header
//! error: dat: include <dat/ud.hpp> to create datagram endpoints
#ifdef DAT_EXPECT_FAIL
bool ud(dat::pz& pz, dat::evd<dat::stream::dto | dat::stream::connection>& evd) {
  return pz.create_ep<dat::ud>(evd).has_value();
}
#else
#include <dat/ud.hpp>
using datagrams = dat::evd<dat::stream::dto | dat::stream::connection | dat::stream::datagrams>;
bool ud(dat::pz& pz, datagrams& evd) { return pz.create_ep<dat::ud>(evd).has_value(); }
#endif

//! case: a query of an endpoint without its header
//! error: dat: include <dat/ep_params.hpp> to query the parameters of an endpoint
#ifdef DAT_EXPECT_FAIL
bool parameters(const dat::ep<dat::rc>& ep) { return ep.query().has_value(); }
#else
#include <dat/ep_params.hpp>
bool parameters(const dat::ep<dat::rc>& ep) { return ep.query().has_value(); }
#endif

//! case: a query of the status of an endpoint without its header
//! error: dat: include <dat/ep_params.hpp> to query the status of an endpoint
#ifdef DAT_EXPECT_FAIL
bool status(const dat::ep<dat::rc>& ep) { return ep.status().has_value(); }
#else
#include <dat/ep_params.hpp>
bool status(const dat::ep<dat::rc>& ep) { return ep.status().has_value(); }
#endif

//! case: a query of the receives of an endpoint without its header
//! error: dat: include <dat/ep_params.hpp> to query the receive buffers of an endpoint
#ifdef DAT_EXPECT_FAIL
bool receives(const dat::ep<dat::rc>& ep) { return ep.recv_query().has_value(); }
#else
#include <dat/ep_params.hpp>
bool receives(const dat::ep<dat::rc>& ep) { return ep.recv_query().has_value(); }
#endif

//! case: a recorder in a program without trace points
//! error: dat: a recorder needs a program whose source files all define DAT_TRACE
//! tags: [trace]
#ifdef DAT_EXPECT_FAIL
#include <dat/trace_recorder.hpp>
void record() { dat::trace::recorder recorder(16); }
#else
#include <dat/trace.hpp>
void record() { dat::trace::set_sink(nullptr); }
#endif
