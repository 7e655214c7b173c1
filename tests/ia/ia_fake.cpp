// Opening and closing an ia: the choice of the adapter, several opens, fork, versions.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/ep_params.hpp>
#include <dat/memory.hpp>
#include <dat/pool.hpp>
#include <dat/registration_cache.hpp>
#include <dat/rmr.hpp>
#include <dat/srq.hpp>

#include <fcntl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace unit;
using type = dat::return_type;

namespace {

/// The exit code of a child process, which the child chooses; 0 is success.
template <class Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

std::size_t calls_made() {
  std::size_t sum = 0;
  for (const auto c : fake::calls()) sum += fake::count(c);
  return sum;
}

} // namespace

TEST_CASE("ia::open without a name opens the first adapter with an active port, otherwise the first adapter", "[ia]") {
  fake::reset();
  const auto chosen = [] { return std::string(must(dat::ia::open(manual)).name()); };
  CHECK(chosen() == "fk1");
  fake::set_port_state("fk1", 1, IBV_PORT_DOWN);
  CHECK(chosen() == "fk2");
  fake::set_port_state("fk2", 1, IBV_PORT_DOWN);
  CHECK(chosen() == "fk1");
  CHECK(must(must(dat::ia::open("fk1", manual)).query()).state == dat::port_state::down);
}

TEST_CASE("the adapters of the host are listed port by port, whether or not they can be opened",
          "[ia][IA-071][REQ-007][REQ-183]") {
  fake::world w;
  w.devices.push_back({"fk3", {{{"10.99.3.1"}}, {{"10.99.4.1"}, IBV_PORT_DOWN}}});
  fake::reset(w);
  const auto listed = [] {
    events all;
    for (const auto& a : must(dat::ia::list_adapters()))
      all.push_back(std::string(a.name.view()).append(" ").append(to_string(a.state)));
    return all;
  };
  CHECK(listed() == events{"fk1 active", "fk2 active", "fk3 active", "fk3/2 down"});
  for (const auto& a : must(dat::ia::list_adapters())) CHECK(must(dat::ia::open(a.name.view(), manual)));
  fake::fail(fake::call::ibv_open_device, 2, EACCES);
  CHECK(listed() == events{"fk1 active", "fk2 unknown", "fk3 active", "fk3/2 down"});
  fake::fail(fake::call::ibv_get_device_list, 1, ENOSYS);
  CHECK(listed().empty());
  fake::fail(fake::call::ibv_get_device_list, 1, EPERM);
  const auto refused = dat::ia::list_adapters();
  REQUIRE_FALSE(refused);
  CHECK(refused.error().call() == "ia.list_adapters");
  CHECK(refused.error().verb() == "ibv_get_device_list");
  CHECK(fake::leaks() == "");
}

TEST_CASE("a forked child cannot use its parent's objects, and does not affect them", "[ia][REQ-026]"
                                                                                      "[SAFE-005]") {
  for (const bool with_thread : {false, true}) {
    fake::reset();
    {
      end a("fk1", with_thread ? automatic : manual);
      auto psp = must(a.ia.create_psp(7471, a.evd));
      auto cno = must(a.ia.create_cno());
      auto near = must(a.pz.create_ep<dat::rc>(a.evd));
      auto far = must(a.pz.create_ep<dat::rc>(a.evd));
      must(near.connect(a.ia.address(), 7471, plenty));
      auto request = must(a.evd.wait_for<dat::connection_request>(plenty));
      must(request.accept(far));
      (void)must(a.evd.wait_for<dat::established>(near, plenty));
      (void)must(a.evd.wait_for<dat::established>(far, plenty));

      const int descriptor = cno.fd();
      const int found = in_child([&] {
        const auto before = calls_made();
        if (cno.fd() != -1 || ::fcntl(descriptor, F_GETFD) >= 0) return 10; // a child does not inherit it
        const auto refused = [](const auto& r) { return !r && r.assume_error().type() == type::invalid_handle; };
        if (!refused(a.ia.create_pz())) return 1;
        if (!refused(a.ia.create_evd<dat::stream::dto>(8))) return 2;
        if (!refused(a.ia.query())) return 3;
        if (!refused(near.close())) return 4;
        if (!refused(a.mem.close())) return 5;
        if (!refused(a.ia.close(dat::close_mode::abrupt))) return 6;
        if (!refused(a.evd.wait(1s))) return 7;
        if (!refused(cno.wait(1s))) return 8;
        // All objects are destroyed.
        far = {}, psp = {}, cno = {}, a.mem = {}, a.evd = {}, a.pz = {}, a.ia = {}, request = {};
        return calls_made() == before ? 0 : 9;
      });
      CHECK(found == 0);
      CHECK((cno.fd() == descriptor && ::fcntl(descriptor, F_GETFD) >= 0));
      // The parent's objects are not affected.
      must(far.post(dat::recv{a.mem}));
      must(near.post(dat::send{a.mem}));
      (void)must(a.evd.wait_for<dat::recv_done>(plenty));
      must(near.disconnect());
      (void)must(a.evd.wait_for<dat::disconnected>(near, plenty));
    }
    while (with_thread && fake::live().total() != 0) std::this_thread::yield();
    CHECK(fake::leaks() == "");
  }
}

TEST_CASE("a forked child cannot change the endpoints and connection requests of its parent", "[ia][ep][cr]") {
  const clean_world world;
  pair p;
  auto waits = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  must(waits.connect(p.b.ia.address(), service, plenty));
  p.settle();
  auto request = request_on(p.b.evd);
  const int found = in_child([&] {
    const auto before = calls_made();
    const auto refused = [](const auto& r) { return !r && r.assume_error().type() == type::invalid_handle; };
    if (!refused(p.a.ep.query())) return 1;
    if (!refused(p.a.ep.status())) return 2;
    if (!refused(p.a.ep.recv_query())) return 3;
    if (!refused(p.a.ep.set_watermark(1, 2))) return 4;
    if (!refused(p.a.ep.modify({.min_rnr_timer = 1ms}))) return 5;
    if (!refused(p.a.ep.connect(p.b.ia.address(), service, 1s))) return 6;
    if (!refused(p.a.ep.common_connect(p.b.ia.address(), 1s))) return 7;
    if (!refused(p.a.ep.dup_connect(p.a.ep, 1s))) return 8;
    if (!refused(p.a.ep.disconnect())) return 9;
    if (!refused(p.a.ep.reset())) return 10;
    if (!refused(p.a.ep.local_address())) return 11;
    if (!refused(p.a.ep.close())) return 12;
    if (!refused(request.query())) return 13;
    if (!refused(request.accept(p.b.ep))) return 14;
    if (!refused(request.reject())) return 15;
    if (!refused(request.handoff(service))) return 16;
    return calls_made() == before ? 0 : 17;
  });
  CHECK(found == 0);
  // The parent's objects are not affected.
  CHECK(p.a.ep.state() == dat::ep_state::connected);
  must(request.reject());
  p.settle();
  CHECK(p.a.take() == events{"peer_rejected"});
  must(p.b.ep.post(dat::recv{p.b.at(0, 8)}));
  must(p.a.ep.post(dat::send{p.a.at(0, 8)}));
  fake::finish();
  CHECK(p.b.take().size() == 1);
}

TEST_CASE("a forked child cannot use the memory, windows and shared queues of its parent", "[ia][lmr][srq][rmr]") {
  const clean_world world;
  end a;
  std::array<char, 64> cached{}, other{};
  auto cache = must(dat::registration_cache<all_rights.value>::create(a.pz));
  auto held = must(cache.find_or_register(cached));
  auto pool = must(dat::memory_pool<all_rights.value>::create(a.pz, 4096));
  auto srq = must(a.pz.create_srq({.max_recv_dtos = 31}));
  auto rmr = must(a.pz.create_rmr());
  const int found = in_child([&] {
    const auto before = calls_made();
    const auto refused = [](const auto& r) { return !r && r.assume_error().type() == type::invalid_handle; };
    if (!refused(a.pz.register_memory(other, all_rights))) return 1;
    if (!refused(dat::register_over(a.pz, a.mem, all_rights))) return 2;
    if (!refused(dat::query(a.mem))) return 3;
    if (!refused(dat::memory_pool<all_rights.value>::create(a.pz, 4096))) return 4;
    if (!refused(pool.close())) return 5;
    if (!refused(dat::registration_cache<all_rights.value>::create(a.pz))) return 6;
    if (!refused(cache.find_or_register(cached))) return 7;
    if (!refused(cache.find_or_register(other))) return 8;
    if (cache.forget(cached.data(), cached.size()) != 0 || cache.trim() != 0 || cache.read().regions != 0) return 9;
    held.release();
    if (!refused(cache.close())) return 10;
    if (!refused(a.pz.create_srq({}))) return 11;
    if (!refused(srq.resize(63))) return 12;
    if (!refused(srq.set_low_watermark(1))) return 13;
    if (!refused(srq.query())) return 14;
    if (!refused(srq.close())) return 15;
    if (!refused(a.pz.create_rmr())) return 16;
    if (!refused(rmr.query())) return 17;
    if (!refused(rmr.close())) return 18;
    if (!refused(a.pz.create_ep<dat::rc>(a.evd))) return 19;
    if (!refused(a.evd.query())) return 20;
    if (!refused(a.evd.resize(128))) return 21;
    return calls_made() == before ? 0 : 22;
  });
  CHECK(found == 0);
  // The parent's objects are not affected.
  CHECK(must(srq.query()).max_recv_dtos == 31);
  CHECK((cache.read().regions == 1 && cache.read().in_use == 1));
  held.release();
  must(cache.close());
  must(pool.close());
}

TEST_CASE("a forked child opens an adapter of its own", "[ia]") {
  fake::reset();
  const end a("fk1");
  CHECK(in_child([&] {
          auto own = dat::ia::open("fk1", manual);
          if (!own) return 1;
          if (!own.assume_value().create_pz()) return 2;
          if (!own.assume_value().query()) return 3;
          return own.assume_value().close() ? 0 : 4;
        }) == 0);
}

TEST_CASE("an adapter that is opened several times has one ia for each open", "[ia][IA-001][REQ-020]") {
  fake::reset();
  std::vector<dat::ia> all;
  for (int i = 0; i < 20; ++i) all.push_back(must(dat::ia::open("fk1", i % 2 == 0 ? manual : automatic)));
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) CHECK(all[i].native_handle() != all[j].native_handle());
  for (std::size_t i = 0; i < all.size(); i += 3) must(all[i].close(dat::close_mode::graceful));
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(static_cast<bool>(all[i]) == (i % 3 != 0));
  for (auto& ia : all)
    if (ia) CHECK(must(ia.query()).adapter_name.view() == "fk1");
  all.clear();
  CHECK(fake::leaks() == "");
}
