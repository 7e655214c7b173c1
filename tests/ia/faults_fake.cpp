// An adapter whose device is removed or floods it with events, and threads that use its children at the same time.
// SPDX-License-Identifier: BSL-1.0
#include "async_events.hpp"
#include "world.hpp"

#include <dat/detail/handle/core_access.hpp>

#include <dat/memory.hpp>
#include <dat/registry.hpp>

#include <dat/detail/discovery/missing.hpp>
#include <dat/detail/text/errno.hpp>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <unistd.h>

using namespace unit;
using type = dat::return_type;

TEST_CASE("after a device reset the reactor stops reading its dead descriptors, and reports once", "[ia][async]") {
  const clean_world clean;
  pair p;
  auto& ia = p.a.ia;
  fake::disassociate("fk1");
  for (int i = 0; i < 20; ++i) ia.run();
  const auto reads = fake::count(fake::call::ibv_get_async_event);
  CHECK(reads < 40);
  for (int i = 0; i < 20; ++i) ia.run();
  CHECK(fake::count(fake::call::ibv_get_async_event) == reads);
  CHECK(take_async<dat::ia_catastrophic>(ia) == 1);
  CHECK(p.a.ep.state() == dat::ep_state::disconnected);
}

TEST_CASE("after a device reset the service thread sleeps", "[ia][async]") {
  const clean_world clean;
  auto ia = must(dat::ia::open("fk1", automatic));
  fake::disassociate("fk1");
  (void)must(ia.async_evd().wait_for<dat::ia_catastrophic>(plenty));
  const auto reads = fake::count(fake::call::ibv_get_async_event);
  // A service thread that still watched the descriptor would read it again before it does other work.
  for (int i = 0; i < 3; ++i) {
    auto evd = must(ia.create_evd<dat::stream::software>(4));
    auto cno = must(ia.create_cno());
    must(evd.modify_cno(cno));
    must(evd.post(1));
    CHECK(must(cno.wait(plenty)) == evd.id());
  }
  dat::detail::core_access::of(ia)->reactor.settle();
  CHECK(fake::count(fake::call::ibv_get_async_event) <= reads + 1);
}

TEST_CASE("an ia whose device was reset can be closed, and the adapter opened again", "[ia]") {
  const clean_world clean;
  {
    pair p;
    fake::disassociate("fk1");
    p.settle();
    must(p.a.ia.close());
  }
  pair again;
  must(again.b.ep.post(dat::recv{again.b.at(0, 8)}.cookie(1)));
  must(again.a.ep.post(dat::send{again.a.at(0, 8)}.cookie(2)));
  CHECK(again.a.take() == events{"sent 2"});
  CHECK(again.b.take() == events{"received 1"});
}

TEST_CASE("a descriptor whose reads fail a few times stays watched", "[ia][async]") {
  const clean_world clean;
  end a;
  for (unsigned n = 1; n <= 3; ++n) fake::fail(fake::call::ibv_get_async_event, n, EIO);
  fake::async(IBV_EVENT_GID_CHANGE, a.ia.native_handle());
  a.ia.run();
  std::vector<std::string> reported;
  a.ia.async_evd().drain(dat::overloaded{
      [&](const dat::provider_internal_error& e) { reported.push_back(e.verb() + (' ' + std::to_string(e.code()))); },
      [&](const auto& e) { reported.emplace_back(e.name); }});
  CHECK(reported == events{"ibv_get_async_event " + std::to_string(EIO), "port_changed"});
}

TEST_CASE("only failures in a row make a descriptor a dead one", "[ia][async]") {
  const clean_world clean;
  end a;
  for (int round = 1; round <= 4; ++round) {
    for (unsigned n = 1; n <= 3; ++n) fake::fail(fake::call::ibv_get_async_event, n, EIO);
    fake::async(IBV_EVENT_GID_CHANGE, a.ia.native_handle());
    a.ia.run();
    std::size_t changed = 0, failed = 0;
    a.ia.async_evd().drain(dat::overloaded{[&](const dat::port_changed&) { ++changed; },
                                           [&](const dat::provider_internal_error&) { ++failed; }, [](const auto&) {}});
    CHECK(changed == 1);
    CHECK(failed == 1); // the first one of each row is reported
  }
  CHECK(take_async<dat::ia_catastrophic>(a.ia) == 0);
}

TEST_CASE("a lack of memory while events are read only delays them", "[ia][async]") {
  const clean_world clean;
  end a;
  for (unsigned n = 1; n <= 20; ++n) fake::fail(fake::call::rdma_get_cm_event, n, ENOMEM);
  auto psp = must(a.ia.create_psp(service, a.evd));
  fake::deliver({.event = RDMA_CM_EVENT_CONNECT_REQUEST, .port = service});
  for (const auto until = std::chrono::steady_clock::now() + plenty; std::chrono::steady_clock::now() < until;) {
    a.ia.run(10ms);
    if (auto e = a.evd.dequeue()) {
      CHECK(std::holds_alternative<dat::cr>(e.value()));
      break;
    }
  }
  CHECK(take_async<dat::ia_catastrophic>(a.ia) == 0);
}

TEST_CASE("a flood of events does not keep the reactor from its other work", "[ia][progress]") {
  const clean_world clean;
  end b("fk2");
  auto psp = must(b.ia.create_psp(service, b.evd));
  // Reading a request delivers the next one, so the descriptor is never empty.
  const auto next = [] { fake::deliver({.event = RDMA_CM_EVENT_CONNECT_REQUEST, .port = service}); };
  std::atomic<int> left{100'000};
  fake::intercept(fake::call::rdma_ack_cm_event, [&] {
    if (left.fetch_sub(1) > 0) next();
  });
  next();
  static std::atomic<bool> called;
  called = false;
  auto soft = must(b.ia.create_evd<dat::stream::software>(4));
  auto cno = must(b.ia.create_cno({[](void*, dat::evd_id) noexcept { called = true; }, nullptr}));
  must(soft.modify_cno(cno));
  must(soft.post(1));
  for (int i = 0; i < 8 && !called; ++i) b.ia.run();
  CHECK(called);
  CHECK(left > 90'000);
  left = 0;
  for (int i = 0; i < 4; ++i) b.ia.run();
}

TEST_CASE("regions are looked up while another thread registers and closes others", "[lmr][memory]") {
  const clean_world clean;
  end a;
  std::array<char, 4096> other{};
  const auto mine = a.at(0, 64);
  std::atomic<bool> stop{false};
  std::jthread t([&] {
    for (int i = 0; i < 2000; ++i) (void)must(a.pz.register_memory(other, all_rights)).close();
    stop = true;
  });
  bool all = true;
  while (!stop) all = all && dat::sync_rdma_write(a.ia, mine);
  t.join();
  CHECK(all);
}

TEST_CASE("a region can be found from its completion to the begin of its end", "[lmr][memory]") {
  const clean_world clean;
  end a;
  auto& core = *dat::detail::core_access::of(a.ia);
  const auto regions = [&] {
    int n = 0;
    (void)core.find(dat::detail::child_kind::memory, [&](const dat::detail::ia_child& c) {
      CHECK(static_cast<const dat::detail::lmr_core&>(c).length() != 0);
      ++n;
      return false;
    });
    return n;
  };
  CHECK(regions() == 1);
  std::array<char, 64> more{};
  int while_made = -1;
  int while_ended = -1;
  fake::intercept(fake::call::ibv_reg_mr, [&] { while_made = regions(); });
  fake::intercept(fake::call::ibv_reg_mr_iova2, [&] { while_made = regions(); });
  fake::intercept(fake::call::ibv_dereg_mr, [&] { while_ended = regions(); });
  auto r = must(a.pz.register_memory(more, all_rights));
  CHECK(while_made == 1);
  CHECK(regions() == 2);
  must(r.close());
  CHECK(while_ended == 1);
  fake::intercept(fake::call::ibv_dereg_mr, {});
}

TEST_CASE("an ia that was opened by the address of one interface has no address of another", "[ia]") {
  fake::world w;
  w.devices = {{"fk1", {{{"10.99.1.1", "fd99:1::1", "10.50.0.1"}}}}};
  w.devices[0].ports[0].interfaces = {"eth0", "eth0", "eth0.50"};
  const clean_world clean(w);
  {
    const auto vlan = must(dat::ia::open(must(dat::ia_address::parse("10.50.0.1")), manual));
    CHECK(vlan.address().host_string() == "10.50.0.1");
    is_error(vlan.address(dat::address_family::ipv6), type::invalid_address, dat::return_subtype::address_unsupported);
    const auto other = must(dat::ia::open(must(dat::ia_address::parse("10.99.1.1")), manual));
    CHECK(must(other.address(dat::address_family::ipv6)).host_string() == "fd99:1::1");
    const auto v6 = must(dat::ia::open(must(dat::ia_address::parse("fd99:1::1")), manual));
    CHECK(must(v6.address(dat::address_family::ipv4)).host_string() == "10.99.1.1");
  }
  // The second family of the device is on another interface.
  w.devices[0].ports[0].interfaces = {"eth0", "eth0.50", "eth0.50"};
  fake::reset(w);
  const auto first = must(dat::ia::open("fk1", manual));
  CHECK(first.address().host_string() == "10.99.1.1");
  CHECK_FALSE(first.address(dat::address_family::ipv6));
}

TEST_CASE("verbs is prepared for forks on kernels that need it, and on no others", "[ia][REQ-027]") {
  fake::world w;
  for (const auto status : {IBV_FORK_UNNEEDED, IBV_FORK_DISABLED, IBV_FORK_ENABLED}) {
    w.fork_status = status;
    const clean_world clean(w);
    const end a;
    CHECK(fake::count(fake::call::ibv_fork_init) == (status == IBV_FORK_DISABLED ? 1u : 0u));
  }
}

TEST_CASE("a missing kernel module, permission or device each has its own error", "[ia][error]") {
  using dat::detail::lacking;
  CHECK(dat::detail::what_is_missing("/nonexistent/rdma_cm") == lacking::kernel_module);
  fake::world none;
  none.devices.clear();
  fake::reset(none);
  CHECK(dat::detail::what_is_missing("/dev/null") == lacking::device);
  fake::reset();
  CHECK(dat::detail::what_is_missing("/dev/null") == lacking::none);
  CHECK(fake::live().device_lists == 0);
  if (::geteuid() != 0) CHECK(dat::detail::what_is_missing("/etc/shadow") == lacking::permission);
  for (const auto what : {lacking::kernel_module, lacking::permission, lacking::device})
    CHECK(std::string_view(dat::detail::remedy_of(what)).ends_with("."));
}

TEST_CASE("what a host lacks is listed with the remedies", "[ia][registry]") {
  const auto lists_a_device = [] {
    return std::ranges::any_of(dat::list_missing(), [](const std::string& m) {
      return m.find("RDMA device: load the adapter's driver") != std::string::npos;
    });
  };
  fake::reset();
  CHECK_FALSE(lists_a_device());
  // One entry for the connection manager, and one for each device that this user cannot open.
  const auto closed = [](const std::string& file) { return ::access(file.c_str(), R_OK | W_OK) != 0; };
  std::vector<std::string> files;
  for (const char* file : {"/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1"})
    if (closed(file)) files.emplace_back(file);
  const auto listed = dat::list_missing();
  REQUIRE(listed.size() == files.size() + (closed("/dev/infiniband/rdma_cm") ? 1 : 0));
  for (std::size_t i = 0; i < files.size(); ++i)
    CHECK(listed[listed.size() - files.size() + i].starts_with(files[i] + ": "));
  CHECK(fake::live().device_lists == 0);
  fake::world none;
  none.devices.clear();
  fake::reset(none);
  CHECK(lists_a_device());
  fake::reset();
}

TEST_CASE("a negative errno of a driver means the same as its absolute value", "[error]") {
  const auto e = dat::detail::map_errno(-ENOMEM, dat::return_subtype::resource_tep).from("ibv_post_recv", -ENOMEM);
  CHECK(e.type() == type::insufficient_resources);
  CHECK(e.sys_errno() == ENOMEM);
  const clean_world clean;
  pair p;
  fake::fail(fake::call::ibv_post_recv, 1, -EINVAL);
  const auto failed = p.a.ep.post(dat::recv{p.a.at(0, 8)});
  REQUIRE_FALSE(failed);
  CHECK(failed.error().sys_errno() == EINVAL);
}
