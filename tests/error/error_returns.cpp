// The error of each kind of failure: type and subtype of every class of the specification that dat returns.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/csp.hpp>
#include <dat/registry.hpp>
#include <dat/rmr.hpp>
#include <dat/rsp.hpp>
#include <dat/srq.hpp>

using namespace unit;
using dat::return_subtype;
using dat::return_type;
using fake::call;

namespace {

/// "invalid_state/ep_unconnected"; the subtype is left out when there is none.
std::string said(const dat::error& e) {
  std::string text(to_string(e.type()));
  if (e.subtype() != return_subtype::none) text.append("/").append(to_string(e.subtype()));
  return text;
}
template <class T>
std::string said(const dat::expected<T>& r) {
  return r ? std::string("success") : said(r.assume_error());
}

} // namespace

TEST_CASE("each exhausted resource has its own error", "[error][ERR-015][ERR-031]") {
  fake::reset();
  end a;
  const auto without = [](call which, auto act) {
    fake::fail(which, 1, ENOMEM);
    return said(act());
  };
  CHECK(without(call::ibv_alloc_pd, [&] { return a.ia.create_pz(); }) ==
        "insufficient_resources/resource_protection_domain");
  fail_registration(ENOMEM);
  CHECK(said(a.pz.register_memory(a.memory, all_rights)) == "insufficient_resources/resource_memory_region");
  fake::forget_faults(); // the failing verbs call was not reached
  CHECK(without(call::ibv_create_cq, [&] { return a.ia.create_evd<dat::stream::dto>(8); }) ==
        "insufficient_resources/resource_tevd");
  CHECK(without(call::ibv_create_qp, [&] { return a.pz.create_ep<dat::rc>(a.evd); }) ==
        "insufficient_resources/resource_tep");
  auto ep = must(a.pz.create_ep<dat::rc>(a.evd, {.max_recv_dtos = 2}));
  must(ep.post(dat::recv{}, dat::recv{}));
  CHECK(said(ep.post(dat::recv{})) == "insufficient_resources/resource_tep");
  CHECK(without(call::ibv_create_srq, [&] { return a.pz.create_srq(); }) == "insufficient_resources/resource_srq");
  CHECK(without(call::ibv_open_device, [&] { return dat::ia::open("fk2", manual); }) ==
        "insufficient_resources/resource_device");
  CHECK(said(a.ia.create_evd<dat::stream::dto>(1u << 30)) == "invalid_parameter/arg2");
}

TEST_CASE("an invalid handle error names the kind of the handle", "[error][ERR-017][ERR-032][REG-016]") {
  CHECK(said(dat::ia().create_pz()) == "invalid_handle/handle_ia");
  CHECK(said(dat::pz().close()) == "invalid_handle/handle_pz");
  CHECK(said(dat::ep<dat::rc>().disconnect()) == "invalid_handle/handle_ep");
  CHECK(said(region().close()) == "invalid_handle/handle_lmr");
  CHECK(said(dat::psp().close()) == "invalid_handle/handle_psp");
  CHECK(said(dat::cr().reject()) == "invalid_handle/handle_cr");
  CHECK(said(dat::cno().wait(0us)) == "invalid_handle/handle_cno");
  CHECK(said(dat::evd<dat::stream::dto>().dequeue()) == "invalid_handle/handle_evd_recv");
  CHECK(said(dat::rmr().close()) == "invalid_handle/handle_rmr");
  CHECK(said(dat::rsp().close()) == "invalid_handle/handle_rsp");
  CHECK(said(dat::csp().close()) == "invalid_handle/handle_csp");
  CHECK(said(dat::srq().close()) == "invalid_handle/handle_srq");
  fake::reset();
  end a("fk1"), b("fk2");
  const auto evds = [](end& recv, end& request, end& connect) {
    return dat::ep_evds{.recv = recv.evd, .request = request.evd, .connect = connect.evd};
  };
  CHECK(said(a.pz.create_ep<dat::rc>(evds(b, a, a))) == "invalid_handle/handle_evd_recv");
  CHECK(said(a.pz.create_ep<dat::rc>(evds(a, b, a))) == "invalid_handle/handle_evd_request");
  CHECK(said(a.pz.create_ep<dat::rc>(evds(a, a, b))) == "invalid_handle/handle_evd_conn");
  CHECK(said(a.ia.create_psp(7471, b.evd)) == "invalid_handle/handle_evd_cr");
}

TEST_CASE("an invalid parameter error names the position in the C signature", "[error][ERR-018][ERR-033][IA-004]") {
  const dat::registry none({});
  CHECK(said(none.related("x", "x")) == "invalid_parameter/arg1");
  CHECK(said(dat::ia::open("", manual)) == "invalid_parameter/arg1");
  CHECK(said(dat::ia::open("fk1/0", manual)) == "invalid_parameter/arg1");
  CHECK(said(dat::ia::open(std::string(256, 'x'), manual)) == "invalid_parameter/arg1");
  CHECK(said(dat::ia::open(std::string(255, 'x'), manual)) == "provider_not_found/name_not_registered");
  CHECK(said(dat::strerror(0xFFFFFFFF)) == "invalid_parameter/arg1");
  fake::reset();
  const end a;
  auto cno = must(const_cast<dat::ia&>(a.ia).create_cno());
  CHECK(said(cno.wait(-1us)) == "invalid_parameter/arg2");
}

TEST_CASE("an invalid state error names the state of the endpoint", "[error][ERR-019][ERR-034][ERR-035]") {
  fake::reset();
  end a;
  auto psp = must(a.ia.create_psp(7471, a.evd));
  auto near = must(a.pz.create_ep<dat::rc>(a.evd));
  auto far = must(a.pz.create_ep<dat::rc>(a.evd));
  const auto posting = [&](dat::ep<dat::rc>& ep) { return said(ep.post(dat::send{})); };
  CHECK(posting(near) == "invalid_state/ep_unconnected");
  CHECK(said(near.disconnect()) == "invalid_state/ep_unconnected");
  must(near.connect(a.ia.address(), 7471, plenty));
  CHECK(posting(near) == "invalid_state/ep_actconnpending");
  auto request = must(a.evd.wait_for<dat::connection_request>(plenty));
  must(request.accept(far));
  CHECK(posting(far) == "invalid_state/ep_complpending");
  (void)must(a.evd.wait_for<dat::established>(near, plenty));
  (void)must(a.evd.wait_for<dat::established>(far, plenty));
  CHECK(said(near.connect(a.ia.address(), 7471, plenty)) == "invalid_state/ep_connected");
  CHECK(said(near.reset()) == "invalid_state/ep_connected");
  must(near.disconnect());
  (void)must(a.evd.wait_for<dat::disconnected>(near, plenty));
  CHECK(said(near.connect(a.ia.address(), 7471, plenty)) == "invalid_state/ep_disconnected");
  // The subtype for other objects names the object that keeps them in use.
  CHECK(said(a.pz.close()) == "invalid_state/pz_in_use");
  CHECK(said(a.evd.close()) == "invalid_state/evd_in_use");
  CHECK(said(a.ia.close(dat::close_mode::graceful)) == "invalid_state/ia_in_use");
  CHECK(said(a.ia.close(static_cast<dat::close_mode>(2))) == "invalid_parameter/arg2");
  must(a.evd.set_unwaitable());
  CHECK(said(a.evd.wait(1us)) == "invalid_state/evd_unwaitable");
}

TEST_CASE("lengths, zones and rights that do not fit have errors of their own", "[error][ERR-020][ERR-023]") {
  fake::reset();
  end a;
  auto psp = must(a.ia.create_psp(7471, a.evd));
  auto near = must(a.pz.create_ep<dat::rc>(a.evd, {.max_message_size = 16}));
  auto far = must(a.pz.create_ep<dat::rc>(a.evd));
  must(near.connect(a.ia.address(), 7471, plenty));
  must(must(a.evd.wait_for<dat::connection_request>(plenty)).accept(far));
  (void)must(a.evd.wait_for<dat::established>(near, plenty));
  CHECK(said(near.post(dat::send{a.at(0, 17)})) == "length_error");
  CHECK(said(near.post(dat::rdma_write{a.at(0, 9), must(a.mem.remote(0, 8))})) == "length_error");
  auto other = must(a.ia.create_pz());
  std::array<char, 16> memory{};
  auto foreign = must(other.register_memory(memory, all_rights));
  CHECK(said(near.post(dat::send{foreign})) == "protection_violation/protection_read");
  // A segment with fewer rights than its type requests.
  auto readable = must(a.pz.register_memory(memory, dat::local_read | dat::remote_read));
  using writable = dat::remote_segment<char, dat::mem_priv::remote_write>;
  CHECK(said(writable::from_wire(readable.remote().to_wire())) == "privileges_violation/privileges_rdma_write");
}

TEST_CASE("empty and full queues and passed time limits have errors of their own",
          "[error][ERR-024][ERR-025][ERR-026]") {
  fake::reset();
  auto ia = must(dat::ia::open("fk1", manual));
  auto evd = must(ia.create_evd<dat::stream::software>(2));
  auto cno = must(ia.create_cno());
  CHECK(said(evd.dequeue()) == "queue_empty");
  CHECK(said(cno.wait(1us)) == "queue_empty");
  CHECK(said(evd.wait(1us)) == "timeout_expired");
  must(evd.post(1));
  must(evd.post(2));
  CHECK(said(evd.post(3)) == "queue_full");
  CHECK(said(evd.dequeue()) == "success");
  CHECK(said(evd.post(3)) == "success");
}

TEST_CASE("a taken qualifier, exhausted qualifiers and a taken port have different errors",
          "[error][ERR-014][ERR-028][ERR-029]") {
  fake::reset();
  end a;
  const auto first = must(a.ia.create_psp(7471, a.evd));
  CHECK(said(a.ia.create_psp(7471, a.evd)) == "conn_qual_in_use");
  fake::fail(call::rdma_bind_addr, 1, EADDRINUSE);
  CHECK(said(a.ia.create_psp_any(a.evd)) == "conn_qual_unavailable");
  CHECK(said(a.ia.create_csp({.domain = AF_INET, .type = SOCK_STREAM}, a.ia.address().with_port(7471), a.evd)) ==
        "port_in_use");
  CHECK(said(a.ia.create_csp({.domain = AF_UNIX, .type = SOCK_STREAM}, a.ia.address().with_port(7472), a.evd)) ==
        "comm_not_supported");
}

TEST_CASE("an invalid address and one of another family have different errors", "[error][NAME-008][NAME-017]") {
  CHECK(said(dat::ia_address::parse("not an address")) == "invalid_address/address_malformed");
  sockaddr_storage unix_address{};
  unix_address.ss_family = AF_UNIX;
  CHECK(dat::ia_address::from(reinterpret_cast<const sockaddr*>(&unix_address), sizeof unix_address).error().type() ==
        return_type::invalid_address);
  CHECK(must(dat::ia_address::parse("10.0.0.1")).native_handle()->sa_family == AF_INET);
  CHECK(must(dat::ia_address::parse("fd00::1")).native_handle()->sa_family == AF_INET6);
}

TEST_CASE("each adapter can be asked whether it has an address", "[error][NAME-012][NAME-015][REG-018]") {
  fake::reset();
  // Implements the algorithm of the specification word by word.
  const auto found = [](std::string_view text) {
    const auto wanted = must(dat::ia_address::parse(text));
    for (const auto& candidate : must(dat::ia::list_adapters())) {
      const auto ia = must(dat::ia::open(candidate.name.view(), manual));
      CHECK(ia.name() == candidate.name.view());
      CHECK(must(ia.query()).adapter_name.view() == candidate.name.view());
      for (const auto family : {dat::address_family::ipv4, dat::address_family::ipv6})
        if (const auto address = ia.address(family); address && address.assume_value() == wanted)
          return std::string(ia.name());
    }
    return std::string("none");
  };
  for (const auto* address : {"10.99.1.1", "10.99.2.1", "fd99:1::1", "fd99:2::1"})
    CHECK(found(address) == must(dat::find_adapter(must(dat::ia_address::parse(address)))));
  CHECK(found("10.99.9.9") == "none");
}
