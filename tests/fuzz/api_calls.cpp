// Sequences of calls of the public functions, with closed objects, moved-from handles and wrong arguments among them.
//
// Each kind of object has a few slots, which begin as empty handles. The input chooses a call, its slots and its
// arguments. Calls that a program must not make (undefined behaviour by the documentation) are not in the grammar.
// SPDX-License-Identifier: BSL-1.0
#include "calls.hpp"
#include "world.hpp"

#include <dat/batch.hpp>
#include <dat/ib_query.hpp>
#include <dat/memory.hpp>
#include <dat/multicast.hpp>

namespace fuzz {

using namespace std::chrono_literals;

template <class Evd>
void run::take(Evd& evd) {
  const auto visit = [&](auto& e) {
    using E = std::remove_cvref_t<decltype(e)>;
    if constexpr (std::is_same_v<E, dat::cr>) {
      (void)e.remote_address();
      any(requests) = std::move(e);
    } else if constexpr (std::is_same_v<E, dat::ib::datagram_request>) {
      any(asked) = std::move(e);
    } else if constexpr (std::is_same_v<E, dat::ib::datagram_established>) {
      put(peers, e.peer());
    } else if constexpr (std::is_same_v<E, dat::ib::datagram_recv_done>) {
      if (dat::ib::grh header{}; in.flag()) put(peers, any(datagrams).reply_to(e, header));
    }
  };
  (void)evd.drain(visit, in.below(8) + 1);
}

void run::adapters() {
  dat::ia& ia = any(ias);
  switch (in.below(8)) {
  case 0:
  case 1: {
    static constexpr const char* names[] = {"fk1", "fk2", "fk1/2", "none", "", "fk1/"};
    return put(ias, dat::ia::open(in.one_of(names), {.progress = dat::progress::manual}));
  }
  case 2:
    check(ia.close(static_cast<dat::close_mode>(in.below(3))));
    return;
  case 3:
    return put(cnos, ia.create_cno());
  case 4:
    check(ia.query());
    check(ia.query<dat::provider_attributes>());
    check(dat::ib::query_extensions(ia));
    return;
  case 5:
    ia.async_evd().drain([](const auto&) {}, 4);
    check(ia.address(in.flag() ? dat::address_family::ipv4 : dat::address_family::ipv6));
    return;
  case 6:
    return put(zones, ia.create_pz());
  default:
    ia.run();
  }
}

void run::events() {
  queue& evd = any(evds);
  switch (in.below(16)) {
  case 0:
  case 1:
    return put(evds, any(ias).create_evd<all_streams>(count()));
  case 2:
    return put(lean, any(ias).create_evd<completions>(count()));
  case 3:
  case 4:
    return take(evd);
  case 5:
    return take(any(lean));
  case 6:
    (void)evd.wait(0us);
    return;
  case 7:
    (void)evd.wait(0us, count());
    return;
  case 8:
    (void)evd.post(dat::cookie(count()));
    return;
  case 9:
    check(evd.resize(count()));
    return;
  case 10:
    check(any(lean).resize(count()));
    return;
  case 11:
    check(evd.modify_cno(any(cnos)));
    return;
  case 12:
    (void)evd.wake();
    (void)evd.query();
    return;
  case 13:
    check(in.flag() ? evd.enable() : evd.disable());
    return;
  case 14:
    check(in.flag() ? evd.set_unwaitable() : evd.clear_unwaitable());
    return;
  default:
    (void)any(cnos).wait(0us);
    (void)any(cnos).modify_agent({});
  }
}

void run::service_points() {
  dat::cr& r = any(requests);
  switch (in.below(12)) {
  case 0:
  case 1:
    return put(psps, any(ias).create_psp(port(), any(evds), static_cast<dat::psp_flags>(in.below(3))));
  case 2:
    return put(rsps, any(ias).create_rsp(port(), any(eps), any(evds)));
  case 3:
    return put(csps, any(ias).create_csp(tcp, address(), any(evds)));
  case 4:
    (void)any(psps).query();
    (void)any(rsps).query();
    (void)any(csps).query();
    return;
  case 5:
  case 6:
    check(r.accept(any(eps), in.data(60)));
    return;
  case 7:
    check(r.accept());
    return;
  case 8:
    check(r.reject(in.data(60)));
    return;
  case 9:
    check(r.handoff(port()));
    return;
  case 10:
    check(r.accept(any(sharing)));
    return;
  default:
    (void)r.private_data();
    (void)r.local_ep();
    (void)r.service();
    if (r.ep())
      check(r.ep().modify({.pz = &any(zones), .recv = any(evds), .request = any(evds), .connect = any(evds)}));
  }
}

void run::endpoints() {
  auto& ep = any(eps);
  switch (in.below(16)) {
  case 0:
  case 1:
    return put(eps, any(zones).create_ep<dat::rc>(any(evds), attributes()));
  case 2:
    return put(eps, any(zones).create_ep<dat::rc>(queues(), attributes()));
  case 3:
    return put(eps, any(ias).create_ep<dat::rc>(queues(), attributes()));
  case 4:
    return put(srqs, any(zones).create_srq({.max_recv_dtos = count(), .max_recv_iov = count()}));
  case 5:
    return put(sharing, any(zones).create_ep<dat::rc>(any(evds), any(srqs), attributes()));
  case 6:
  case 7:
    check(ep.connect(address(), port(), in.flag() ? plenty : dat::timeout(0us), in.data(60)));
    return;
  case 8:
    check(ep.common_connect(address(), plenty, in.data(60)));
    return;
  case 9:
    check(ep.dup_connect(any(eps), plenty));
    return;
  case 10:
    check(ep.disconnect(static_cast<dat::close_mode>(in.below(3))));
    return;
  case 11:
    check(ep.reset());
    return;
  case 12:
    check(ep.modify({.pz = &any(zones),
                     .recv = any(evds),
                     .request = any(evds),
                     .connect = any(evds),
                     .max_request_dtos = count(),
                     .max_recv_dtos = count()}));
    return;
  case 13:
    (void)ep.query();
    (void)ep.status();
    (void)ep.recv_query();
    (void)ep.set_watermark(count(), count());
    (void)ep.remote_address();
    return;
  case 14:
    if (auto d = ep.export_descriptor()) any(descriptors) = d.value();
    return;
  default:
    check(ep.connect(any(descriptors)));
  }
}

void run::posts() {
  auto& ep = any(eps);
  switch (in.below(16)) {
  case 0:
  case 1:
    check(ep.post(dat::recv{piece()}.cookie(in.byte())));
    return;
  case 2:
  case 3:
    check(ep.post(dat::send{piece()}.cookie(in.byte())));
    return;
  case 4:
    check(ep.post(dat::rdma_write{piece(), remote}));
    return;
  case 5:
    check(ep.post(dat::rdma_read{piece(), remote}.suppress_completion()));
    return;
  case 6:
    check(ep.post(dat::send{piece()}.suppress_completion(), dat::rdma_write{piece(), remote}.immediate(7)));
    return;
  case 7: {
    auto old = any(word_regions).slice(in.below(9), in.below(3));
    auto word = any(word_regions).remote(in.below(9), 1);
    if (old && word) check(ep.post(dat::ib::fetch_and_add{old.value(), word.value(), 1}));
    return;
  }
  case 8:
    check(any(srqs).post(dat::recv{piece()}));
    return;
  case 9:
    (void)any(srqs).query();
    (void)any(srqs).set_low_watermark(count());
    (void)any(srqs).resize(count());
    return;
  case 10: {
    dat::batch<4> many;
    for (unsigned n = in.below(6); n != 0; --n) (void)many.push_back(dat::send{piece()});
    check(ep.post(many));
    return;
  }
  case 11:
    check(ep.post(dat::send{piece()}.inlined()));
    return;
  case 12: {
    const dat::iov list{piece(), piece(), piece()};
    check(in.flag() ? ep.post(dat::send{list}) : ep.post(dat::recv{list}));
    return;
  }
  case 13:
    check(any(sharing).post(dat::send{piece()}));
    (void)any(sharing).disconnect();
    return;
  case 14:
    (void)any(sharing).connect(address(), port(), plenty);
    return;
  default:
    check(ep.post(dat::send_with_invalidate{piece(), remote}));
  }
}

void run::memory_calls() {
  switch (in.below(10)) {
  case 0:
  case 1: {
    const std::size_t first = in.byte();
    return put(regions, any(zones).register_memory(std::span(memory).subspan(first, in.byte()), all_rights));
  }
  case 2:
    return put(word_regions, any(zones).register_memory(words, word_rights));
  case 3:
    if (auto r = any(regions).remote(in.byte(), in.byte())) remote = r.value();
    return;
  case 4: { // keys and addresses that no peer has sent
    auto r = dat::remote_segment<char, all_rights.value>::make(in.number<std::uint64_t>(), in.byte(), count());
    if (r) remote = r.value();
    return;
  }
  case 5:
    return put(windows, in.flag() ? any(zones).create_rmr() : any(zones).create_rmr_for_ep());
  case 6:
    if (auto bound = any(windows).bind(any(eps), dat::bind{any(regions), in.byte(), in.byte(), all_rights}))
      remote = dat::remote_segment<char, all_rights.value>::make(bound.value().address(), bound.value().size(),
                                                                 bound.value().rkey())
                   .value();
    return;
  case 7:
    check(any(windows).unbind(any(eps)));
    (void)any(windows).query();
    return;
  case 8:
    (void)dat::query(any(regions));
    (void)dat::sync_rdma_read(any(ias), any(regions));
    (void)dat::sync_rdma_write(any(ias), any(regions));
    return;
  default:
    if (auto target = any(windows).read_target<char>(any(eps), in.byte(), in.byte()))
      check(any(eps).post(dat::rdma_read{target.value(), remote}));
  }
}

void run::datagram_calls() {
  auto& ep = any(datagrams);
  switch (in.below(14)) {
  case 0:
  case 1:
    return put(datagrams, any(zones).create_ep<dat::ud>(any(evds), attributes()));
  case 2:
    return put(services, dat::ib::datagram_service::listen(any(ias), port(), any(evds)));
  case 3:
    check(ep.connect(address(), port(), plenty, in.data(130)));
    return;
  case 4:
    check(any(asked).accept(ep, in.data(130)));
    return;
  case 5:
    check(any(asked).reject(in.data(130)));
    return;
  case 6:
    check(ep.post(dat::ib::send_to{piece(), any(peers)}));
    return;
  case 7:
    check(ep.post(dat::recv{piece()}));
    return;
  case 8:
    if (auto here = ep.address()) put(peers, any(datagrams).address_of(here.value()));
    return;
  case 9:
    return put(groups, dat::ib::multicast_group::join(ep, address()));
  case 10:
    if (auto to = any(groups).peer()) any(peers) = std::move(to).value();
    return;
  case 11:
    if (auto d = ep.export_descriptor()) any(descriptors) = d.value();
    return;
  case 12:
    return put(peers, ep.connect(any(descriptors)));
  default:
    check(in.flag() ? ep.reset() : ep.disconnect());
  }
}

/// Creates the usual objects of a program that do not exist yet: an adapter, a zone, an evd, memory and an endpoint,
/// twice.
void run::objects() {
  static constexpr const char* names[] = {"fk1", "fk2"};
  for (std::size_t i = 0; i < 2; ++i) {
    if (!ias[i]) give(ias[i], dat::ia::open(names[i], {.progress = dat::progress::manual}));
    if (!evds[i]) give(evds[i], ias[i].create_evd<all_streams>(64));
    if (!zones[i]) give(zones[i], ias[i].create_pz());
    if (!regions[i]) give(regions[i], zones[i].register_memory(memory, all_rights));
    if (!eps[i]) give(eps[i], zones[i].create_ep<dat::rc>(evds[i], {.max_request_dtos = 4, .max_recv_dtos = 4}));
  }
}

void run::connection() {
  objects();
  if (!psps[0]) give(psps[0], ias[1].create_psp(must(dat::conn_qual::make(service)), evds[1]));
  const bool shared = in.flag();
  if (shared && !srqs[0]) give(srqs[0], zones[1].create_srq({.max_recv_dtos = 4}));
  if (shared && !sharing[0]) give(sharing[0], zones[1].create_ep<dat::rc>(evds[1], srqs[0]));
  check(eps[0].connect(ias[1].address(), must(dat::conn_qual::make(service)), plenty));
  turn();
  evds[1].drain(dat::overloaded{[&](dat::cr& r) { requests[0] = std::move(r); }, [](const auto&) {}});
  check(shared ? requests[0].accept(sharing[0]) : requests[0].accept(eps[1]));
  turn();
  if (auto r = regions[1].remote(0, regions[1].size())) remote = r.value();
}

void run::datagrams_known() {
  objects();
  for (std::size_t i = 0; i < 2; ++i)
    if (!datagrams[i]) give(datagrams[i], zones[i].create_ep<dat::ud>(evds[i], {.max_recv_dtos = 4}));
  if (!services[0])
    give(services[0], dat::ib::datagram_service::listen(ias[1], must(dat::conn_qual::make(service)), evds[1]));
  check(datagrams[0].connect(ias[1].address(), must(dat::conn_qual::make(service)), plenty));
  turn();
  evds[1].drain(dat::overloaded{[&](dat::ib::datagram_request& r) { asked[0] = std::move(r); }, [](const auto&) {}});
  check(asked[0].accept(datagrams[1]));
  turn();
  evds[0].drain(dat::overloaded{[&](const dat::ib::datagram_established& e) { give(peers[0], e.peer()); }, //
                                [](const auto&) {}});
}

void run::scene(unsigned what) {
  if (what == 1) objects();
  if (what == 2) connection();
  if (what == 3) datagrams_known();
}

void run::step() {
  switch (in.below(11)) {
  case 0:
    return adapters();
  case 1:
    return events();
  case 2:
    return service_points();
  case 3:
    return endpoints();
  case 4:
    return posts();
  case 5:
    return memory_calls();
  case 6:
    return datagram_calls();
  case 7: // time passes
    for (dat::ia& ia : ias) ia.run();
    return;
  case 8:
    switch (in.below(8)) {
    case 0:
      return end(ias);
    case 1:
      return end(evds);
    case 2:
      return end(lean);
    case 3:
      return end(cnos);
    case 4:
      return end(zones);
    case 5:
      return end(regions);
    case 6:
      return end(windows);
    default:
      return end(srqs);
    }
  case 9:
    switch (in.below(9)) {
    case 0:
      return end(eps);
    case 1:
      return end(sharing);
    case 2:
      return end(datagrams);
    case 3:
      return end(psps);
    case 4:
      return end(rsps);
    case 5:
      return end(csps);
    case 6:
      return end(requests);
    case 7:
      return end(peers);
    default:
      return end(services);
    }
  default:
    return scene(in.below(4));
  }
}

} // namespace fuzz

using namespace fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  return in_new_world([&] {
    input in(bytes, size);
    run r(in);
    r.scene(in.below(4));
    for (int steps = 0; !in.empty() && steps < 300; ++steps) r.step();
    for (int i = 0; i < 3; ++i)
      for (dat::ia& ia : r.ias) ia.run();
  });
}
