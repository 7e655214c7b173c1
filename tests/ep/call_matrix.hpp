// One object of each kind, and each call of docs/thread-safety.md that may overlap others.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../unit/world.hpp"

#include <dat/credits.hpp>
#include <dat/csp.hpp>
#include <dat/descriptor.hpp>
#include <dat/ep_params.hpp>
#include <dat/ib_query.hpp>
#include <dat/memory.hpp>
#include <dat/pool.hpp>
#include <dat/registry.hpp>
#include <dat/rmr.hpp>
#include <dat/rsp.hpp>
#include <dat/srq.hpp>
#include <dat/strerror.hpp>
#include <dat/ud.hpp>

#include <functional>
#include <netinet/in.h>

namespace unit {

inline constexpr auto everything = all_streams | dat::stream::rmr_bind | dat::stream::software;

/// One of each kind of object, all in use, and every call of docs/thread-safety.md that may overlap others.
struct matrix {
  struct entry {
    const char* name;
    char lane; ///< calls of one lane must not overlap: posts of one kind on one endpoint, changes of one registry
    std::function<void()> call;
  };

  matrix() {
    connect(ep, far);
    must(busy.connect(b.ia.address(), 7472, plenty)); // this request stays unanswered
    request = must(pending.wait_for<dat::connection_request>(plenty));
  }
  void connect(dat::ep<dat::rc>& from, dat::ep<dat::rc>& to) {
    must(from.connect(b.ia.address(), service, plenty));
    must(must(b.evd.wait_for<dat::connection_request>(plenty)).accept(to));
    (void)must(evd.wait_for<dat::established>(plenty));
    (void)must(b.evd.wait_for<dat::established>(plenty));
  }
  /// Takes all queued events between two pairs of calls.
  void take_all() {
    evd.drain([](const auto&) {}, 1000);
    b.evd.drain([](const auto&) {}, 1000);
    ud_evd.drain([](const auto&) {}, 1000);
    must(evd.clear_unwaitable());
    (void)evd.wait(0us); // takes a pending wake
    if (third.state() == dat::ep_state::disconnected) (void)third.reset();
  }

  end a{"fk1", automatic};
  end b{"fk2", automatic};
  dat::evd<everything> evd = must(a.ia.create_evd<everything>(256));
  dat::evd<dat::stream::connection_requests> pending = must(b.ia.create_evd<dat::stream::connection_requests>(8));
  dat::cno cno = must(a.ia.create_cno());
  dat::psp psp = must(b.ia.create_psp(service, b.evd));
  dat::psp slow = must(b.ia.create_psp(7472, pending));
  dat::csp csp = must(a.ia.create_csp({AF_INET, SOCK_STREAM, IPPROTO_TCP}, a.evd));
  dat::ep<dat::rc> ep = must(a.pz.create_ep<dat::rc>(evd));
  dat::ep<dat::rc> far = must(b.pz.create_ep<dat::rc>(b.evd));
  dat::ep<dat::rc> busy = must(a.pz.create_ep<dat::rc>(a.evd));
  dat::ep<dat::rc> third = must(a.pz.create_ep<dat::rc>(a.evd, {.comm = {AF_INET, SOCK_STREAM, IPPROTO_TCP}}));
  dat::ep<dat::rc> reserved = must(a.pz.create_ep<dat::rc>(a.evd));
  dat::rsp rsp = must(a.ia.create_rsp(7473, reserved, a.evd));
  dat::srq srq = must(a.pz.create_srq());
  dat::ep<dat::with_srq<dat::rc>> sharing =
      must(a.pz.create_ep<dat::rc>({.recv = evd, .request = a.evd, .connect = a.evd}, srq));
  dat::rmr rmr = must(a.pz.create_rmr());
  dat::memory_pool<all_rights.value> pool = must(dat::memory_pool<all_rights.value>::create(a.pz, 4096, all_rights));
  dat::registry registry = must(dat::registry::system());
  dat::cr request;
  dat::evd<dat::stream::dto | dat::stream::connection | dat::stream::datagrams> ud_evd =
      must(a.ia.create_evd<dat::stream::dto | dat::stream::connection | dat::stream::datagrams>(256));
  dat::evd<dat::stream::dto | dat::stream::connection | dat::stream::datagrams> far_ud_evd =
      must(b.ia.create_evd<dat::stream::dto | dat::stream::connection | dat::stream::datagrams>(8));
  dat::ep<dat::ud> ud = must(a.pz.create_ep<dat::ud>(ud_evd));
  dat::ep<dat::ud> far_ud = must(b.pz.create_ep<dat::ud>(far_ud_evd));
  dat::ib::descriptor far_descriptor = must(far_ud.export_descriptor());
  dat::ib::address_handle peer = must(ud.connect(far_descriptor));
  dat::send_credits there{4};
  dat::recv_credits here{4};

  const std::vector<entry> all{
      {"ia.open", 0, [] { (void)dat::ia::open("fk1", manual); }},
      {"ia.list_adapters", 0, [] { (void)dat::ia::list_adapters(), (void)dat::ia::list_adapters_near(0); }},
      {"ia.query", 0, [&] { (void)a.ia.query(), (void)a.ia.query<dat::provider_attributes>(); }},
      {"ib.query", 0, [&] { (void)dat::ib::query_extensions(a.ia); }},
      {"set_context", 0, [&] { (void)ep.set_context(1), (void)evd.set_context(2), (void)a.ia.set_context(3); }},
      {"context", 0, [&] { (void)ep.context(), (void)evd.context(), (void)a.ia.context(); }},
      {"create_cno", 0, [&] { (void)a.ia.create_cno(); }},
      {"cno.wait", 0, [&] { (void)cno.wait(0us); }},
      {"cno.latest", 0, [&] { (void)cno.latest(), (void)cno.agent(), (void)cno.fd(); }},
      {"cno.query", 0, [&] { (void)cno.query(); }},
      {"cno.modify_agent", 0, [&] { (void)cno.modify_agent({}); }},
      {"create_evd", 0, [&] { (void)a.ia.create_evd<dat::stream::dto>(8); }},
      {"evd.query", 0, [&] { (void)evd.query(), (void)evd.capacity(); }},
      {"evd.modify_cno", 0, [&] { (void)evd.modify_cno(cno); }},
      {"evd.modify_cno, none", 0, [&] { (void)evd.modify_cno({}); }},
      {"evd.disable", 0, [&] { (void)evd.disable(), (void)evd.enable(); }},
      {"evd.set_unwaitable", 0, [&] { (void)evd.set_unwaitable(), (void)evd.clear_unwaitable(); }},
      {"evd.resize", 0, [&] { (void)evd.resize(512), (void)evd.resize(256); }},
      {"evd.wait", 0, [&] { (void)evd.wait(0us); }},
      {"evd.dequeue", 0, [&] { (void)evd.dequeue(); }},
      {"evd.drain", 0, [&] { evd.drain([](const auto&) {}, 4); }},
      {"evd.post", 0, [&] { (void)evd.post(7); }},
      {"evd.wake", 0, [&] { (void)evd.wake(); }},
      {"create_psp", 0, [&] { (void)a.ia.create_psp(7476, a.evd); }},
      {"create_csp", 0,
       [&] {
         (void)a.ia.create_csp({AF_INET, SOCK_STREAM, IPPROTO_TCP}, a.evd);
       }},
      {"create_rsp", 0, [&] { (void)a.ia.create_rsp(7474, a.evd); }},
      {"service points, query", 0, [&] { (void)psp.query(), (void)csp.query(), (void)rsp.query(); }},
      {"cr.query", 0, [&] { (void)request.remote_address(), (void)request.private_data(), (void)request.service(); }},
      {"create_srq", 0, [&] { (void)a.pz.create_srq(); }},
      {"srq.query", 0, [&] { (void)srq.query(); }},
      {"srq.set_low_watermark", 0, [&] { (void)srq.set_low_watermark(2); }},
      {"srq.resize", 0, [&] { (void)srq.resize(64); }},
      {"srq.post", 0, [&] { (void)srq.post(dat::recv{a.at(0, 8)}); }},
      {"create_ep", 0, [&] { (void)a.pz.create_ep<dat::rc>(evd); }},
      {"create_ep, srq", 0, [&] { (void)a.pz.create_ep<dat::rc>(a.evd, srq); }},
      {"ep.status", 0, [&] { (void)ep.state(), (void)ep.status(), (void)sharing.status(); }},
      {"ep.query", 0, [&] { (void)ep.query(), (void)ep.attributes(), (void)ep.remote_address(); }},
      {"ep.recv_query", 0, [&] { (void)ep.recv_query(), (void)sharing.recv_query(); }},
      {"ep.set_watermark", 0, [&] { (void)sharing.set_watermark(3, 5); }},
      {"ep.connect", 0, [&] { (void)third.connect(b.ia.address(), service, plenty); }},
      {"ep.common_connect", 0, [&] { (void)third.common_connect(b.ia.address().with_port(service), plenty); }},
      {"ep.dup_connect", 0, [&] { (void)third.dup_connect(ep, plenty); }},
      {"ep.modify", 0, [&] { (void)third.modify({.rnr_retry_count = std::uint8_t{3}}); }},
      {"ep.disconnect", 0, [&] { (void)third.disconnect(); }},
      {"ep.reset", 0, [&] { (void)third.reset(); }},
      {"ep.post, request", 'r',
       [&] {
         (void)ep.post(dat::rdma_write{a.at(0, 8), b.mem.remote()});
       }},
      {"ep.post, another request", 'r',
       [&] {
         (void)ep.post(dat::rdma_read{a.at(16, 8), b.mem.remote()}.suppress_completion());
       }},
      {"ep.post, receive", 'v', [&] { (void)ep.post(dat::recv{a.at(8, 8)}); }},
      {"rmr.bind", 'r',
       [&] {
         (void)rmr.bind(ep, dat::bind{a.mem, dat::remote_read});
       }},
      {"rmr.query", 0, [&] { (void)rmr.query(); }},
      {"create_pz", 0, [&] { (void)a.ia.create_pz(), (void)a.pz.owner(); }},
      {"create_rmr", 0, [&] { (void)a.pz.create_rmr(), (void)a.pz.create_rmr_for_ep(); }},
      {"register_memory", 0, [&] { (void)a.pz.register_memory(a.memory, all_rights); }},
      {"lmr.query", 0, [&] { (void)dat::query(a.mem), (void)a.mem.slice(0, 8), (void)a.mem.remote(); }},
      {"sync_rdma_read", 0, [&] { (void)dat::sync_rdma_read(a.ia, a.mem); }},
      {"sync_rdma_write", 0, [&] { (void)dat::sync_rdma_write(a.ia, a.mem); }},
      {"pool", 0,
       [&] {
         if (void* p = pool.try_allocate(64)) pool.resource().deallocate(p, 64);
       }},
      {"address handles", 0, [&] { (void)ud.connect(far_descriptor); }},              // creates a handle, and drops it
      {"ep<ud>.connect", 0, [&] { (void)ud.connect(b.ia.address(), 7475, plenty); }}, // no program listens on this port
      {"ep<ud>.post", 'd',
       [&] {
         (void)ud.post(dat::ib::send_to{a.at(24, 8), peer});
       }},
      {"ep<ud>, queries", 0, [&] { (void)ud.state(), (void)ud.number(); }},
      {"export_descriptor", 0, [&] { (void)ud.export_descriptor(), (void)ep.export_descriptor(); }},
      {"identity", 0, [&] { (void)ep.identity(), (void)evd.owner(), (void)(a.pz == b.pz), (void)evd.id(); }},
      {"ia, what it is", 0,
       [&] { (void)a.ia.name(), (void)a.ia.address(), (void)a.ia.fd(), (void)a.ia.native_handle(); }},
      {"ia.async_evd", 0, [&] { a.ia.async_evd().drain([](const auto&) {}, 4); }},
      {"ia.run", 0, [&] { a.ia.run(); }},
      {"ia.open_by_route", 0, [] { (void)dat::ia::open_by_route("10.99.2.1", manual); }},
      {"credits", 0,
       [&] {
         if (there.take()) there.give();
         here.reposted();
         (void)here.take();
         (void)there.left();
       }},
      {"registry, read", 0,
       [&] { (void)registry.list(), (void)registry.find("fk1"), (void)registry.related("fk1", "fk2"); }},
      {"name service", 0, [&] { (void)dat::find_adapter(a.ia.address()), (void)dat::resolve("10.99.2.1"); }},
      {"name service, backward", 0, [&] { (void)dat::find_adapter_on("lo"), (void)dat::list_devices(); }},
      {"strerror", 0, [] { (void)dat::strerror(0x80050000u); }},
  };
};

} // namespace unit
