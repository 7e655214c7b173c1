// Answers to requests, and attempts, of which a call of rdma_cm fails: which failures the consumer sees, and as what.
// SPDX-License-Identifier: BSL-1.0
#include "datagram_end.hpp"
#include "world.hpp"

#include <dat/ud.hpp>

#include <cerrno>

using namespace unit;
using dat::return_subtype;
using dat::return_type;

TEST_CASE("a reject succeeds where the peer has given up, and returns any other failure", "[connection][CR-063]") {
  struct {
    int err;
    bool fails;
  } const all[] = {{EINVAL, false}, {ECONNRESET, false}, {EIO, true}, {ENOMEM, true}, {EINVAL + 1, true}};
  for (const auto& [err, fails] : all) {
    INFO(fake::errno_name(err));
    const clean_world world;
    end a("fk1"), b("fk2");
    const auto psp = must(b.ia.create_psp(service, b.evd));
    a.make_ep();
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle(a, b);
    auto request = request_on(b.evd);
    fake::fail(fake::call::rdma_reject, 1, err);
    const auto r = request.reject();
    CHECK(r.has_value() != fails);
    if (!r) {
      CHECK(r.error().verb() == "rdma_reject");
      CHECK(r.error().sys_errno() == err);
      must(request.reject()); // the request can still be answered
    }
    settle(a, b);
    CHECK(a.take().size() == 1);
  }
}

TEST_CASE("a reject of a datagram request succeeds where the peer has given up, and returns any other failure",
          "[ud]") {
  for (const int err : {EINVAL, EIO}) {
    INFO(fake::errno_name(err));
    const clean_world world;
    datagram_end a("fk1"), b("fk2");
    const auto listener = must(dat::ib::datagram_service::listen(b.ia, service, b.evd));
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle(a.ia, b.ia);
    auto e = must(b.evd.dequeue());
    auto request = std::move(std::get<dat::ib::datagram_request>(e));
    const std::string most(128, 'x');
    is_error(request.reject(bytes_of(most + 'x')), return_type::invalid_parameter, return_subtype::arg2);
    fake::fail(fake::call::rdma_reject, 1, err);
    const auto r = request.reject(bytes_of(most));
    CHECK(r.has_value() == (err == EINVAL));
    if (r) is_error(request.reject(), return_type::invalid_handle, return_subtype::handle_cr);
    if (!r) CHECK(r.error().sys_errno() == EIO);
    a.ep = {};
  }
}

TEST_CASE("a datagram attempt that fails at once names the call, and what is wrong with the address", "[ud]") {
  struct {
    fake::call verb;
    int err;
    return_type type;
  } const all[] = {{fake::call::rdma_create_id, ENOMEM, return_type::insufficient_resources},
                   {fake::call::rdma_bind_addr, ENOMEM, return_type::insufficient_resources},
                   {fake::call::rdma_resolve_addr, ENOMEM, return_type::insufficient_resources},
                   {fake::call::rdma_resolve_addr, ENODEV, return_type::invalid_address}};
  const clean_world world;
  datagram_end a("fk1"), b("fk2");
  const auto listener = must(dat::ib::datagram_service::listen(b.ia, service, b.evd));
  for (const auto& [verb, err, type] : all) {
    INFO(fake::name(verb));
    fake::fail(verb, 1, err);
    const auto r = a.ep.connect(b.ia.address(), service, plenty);
    REQUIRE_FALSE(r);
    CHECK(r.error().type() == type);
    CHECK((r.error().subtype() == return_subtype::address_unreachable) == (err == ENODEV));
    CHECK(r.error().verb() == fake::name(verb));
    CHECK(r.error().sys_errno() == err);
    settle(a.ia, b.ia);
    CHECK(a.evd.dequeue().error().type() == return_type::queue_empty);
  }
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a.ia, b.ia);
  CHECK(std::holds_alternative<dat::ib::datagram_request>(must(b.evd.dequeue())));
}

TEST_CASE("a datagram has at most 256 bytes where the port does not report its MTU", "[ud]") {
  for (const int mtu : {0, 1, 3, 5, 6}) {
    INFO(mtu);
    fake::world w;
    w.devices[0].attr = fake::rxe_attr(); // so that no personality replaces the device
    w.devices[0].ports[0].active_mtu = static_cast<ibv_mtu>(mtu);
    const clean_world world(w);
    auto ia = must(dat::ia::open("fk1", manual));
    auto pz = must(ia.create_pz());
    auto evd = must(ia.create_evd<ud_streams>(8));
    const std::uint32_t most = mtu == 3 ? 1024 : mtu == 5 ? 4096 : 256;
    CHECK(pz.create_ep<dat::ud>(evd, {.max_message_size = most}));
    is_error(pz.create_ep<dat::ud>(evd, {.max_message_size = most + 1}), return_type::invalid_parameter,
             return_subtype::arg7);
  }
}
