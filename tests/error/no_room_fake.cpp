// File descriptors run out at each point of opening, finding, creating and connecting, and a device has no room for
// another object: the call reports it, succeeds when it is repeated, and leaves nothing behind.
// SPDX-License-Identifier: BSL-1.0
#include "no_memory.hpp"

#include <dat/coro_set.hpp>
#include <dat/pool.hpp>
#include <dat/registry.hpp>
#include <dat/rmr.hpp>
#include <dat/srq.hpp>

#include <support/limits.hpp>

#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <sys/resource.h>
#include <unistd.h>

using namespace unit;

namespace no_room {
namespace {

/// While the object exists, this process can open `room` more descriptors.
class few_descriptors {
public:
  explicit few_descriptors(int room) {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const int next = ::dup(STDERR_FILENO); // the lowest free descriptor
    REQUIRE(next >= 0);
    ::close(next);
    rlimit tight = before_;
    tight.rlim_cur = static_cast<rlim_t>(next + room);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &tight) == 0);
  }
  few_descriptors(const few_descriptors&) = delete;
  few_descriptors& operator=(const few_descriptors&) = delete;
  ~few_descriptors() { raise(); }
  void raise() const { (void)::setrlimit(RLIMIT_NOFILE, &before_); }

private:
  rlimit before_{};
};

[[nodiscard]] int open_descriptors() {
  int n = 0;
  for (int fd = 0; fd < 1024; ++fd) n += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return n;
}

/// The calls of a flow. A call that fails without descriptors is repeated with more descriptors, and then succeeds.
class steps {
public:
  explicit steps(const few_descriptors& limit) : limit_(limit) {}
  template <class Call>
  auto operator()(Call call) {
    auto r = call();
    if (r) return must(std::move(r));
    limit_.raise(); // before the checks: UndefinedBehaviorSanitizer needs descriptors
    {
      INFO(r.error().message());
      explains(r.error());
      CHECK_THAT(r.error().message(), support::contains_text("ulimit -n"));
    }
    ++failures;
    return must(call());
  }
  int failures = 0;

private:
  const few_descriptors& limit_;
};

/// Runs the flow with room for 0, 1, 2 ... descriptors until it needs no more. Returns how many it needs.
template <class Flow>
int for_each_descriptor(Flow flow) {
  for (int room = 0;; ++room) {
    INFO("room for " << room << " descriptors");
    fake::reset(); // the fake library keeps the descriptors of ended objects until then
    const int before = open_descriptors();
    int failures;
    {
      const clean_world world;
      const few_descriptors limit(room);
      steps step(limit);
      flow(step);
      failures = step.failures;
    }
    fake::reset();
    CHECK(open_descriptors() == before);
    CHECK(failures <= 1);
    if (failures == 0) return room;
    REQUIRE(room < 100);
  }
}

} // namespace

TEST_CASE("without descriptors, opening, creating and connecting fail, name the limit, and can be repeated",
          "[no_room][EVD-004][CNO-018]") {
  const int needed = for_each_descriptor([](steps& step) {
    dat::ia ia_a = step([] { return dat::ia::open("fk1", manual); });
    dat::ia ia_b = step([] { return dat::ia::open(must(dat::ia_address::parse("10.99.2.1")), manual); });
    auto cno = step([&] { return ia_a.create_cno(); });
    auto evd_a = step([&] { return ia_a.create_evd<all_streams>(16); });
    auto lean_a = step([&] { return ia_a.create_evd<dat::stream::dto>(16); });
    auto evd_b = step([&] { return ia_b.create_evd<all_streams>(16); });
    step([&] { return evd_a.modify_cno(cno); });
    step([&] { return lean_a.modify_cno(cno); });
    auto pz_a = step([&] { return ia_a.create_pz(); });
    auto pz_b = step([&] { return ia_b.create_pz(); });
    auto psp = step([&] { return ia_b.create_psp(service, evd_b); });
    auto a = step([&] { return pz_a.create_ep<dat::rc>(dat::ep_evds{lean_a, lean_a, evd_a}); });
    auto b = step([&] { return pz_b.create_ep<dat::rc>(evd_b); });
    step([&] { return a.connect(ia_b.address(), service, plenty); });
    settle(ia_a, ia_b);
    step([&] { return request_on(evd_b).accept(b); });
    settle(ia_a, ia_b);
    CHECK(take(evd_a) == events{"established"});
    CHECK(take(evd_b) == events{"established"});
    step([&] { return b.post(dat::recv{}); });
    step([&] { return a.post(dat::send{}); });
    CHECK(take(lean_a) == events{"sent 0"});
    CHECK(take(evd_b) == events{"received 0"});
    step([&] { return a.disconnect(); });
    settle(ia_a, ia_b);
    CHECK(take(evd_a) == events{"disconnected"});
  });
  CHECK(needed > 10);
}

TEST_CASE("without descriptors, no way of finding an adapter takes another adapter or loses an address",
          "[no_room][registry]") {
  char name[] = "/tmp/dat-conf-XXXXXX";
  const int file = ::mkstemp(name);
  REQUIRE(file >= 0);
  static constexpr std::string_view text = "named u2.0 threadsafe default libdat.so dapl.2.0 \"10.99.2.1 1\" \"\"\n";
  REQUIRE(::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  ::close(file);
  REQUIRE(::setenv("DAT_OVERRIDE", name, 1) == 0);
  struct way {
    const char* name;
    const char* device;
    std::function<dat::expected<dat::ia>()> open;
  };
  const way ways[] = {
      {"the first", "fk1", [] { return dat::ia::open(manual); }},
      {"by name", "fk2", [] { return dat::ia::open("fk2", manual); }},
      {"by address", "fk2", [] { return dat::ia::open(must(dat::ia_address::parse("10.99.2.1")), manual); }},
      {"by what reaches", "fk2", [] { return dat::ia::open_by_route("10.99.2.1", manual); }},
      {"by a name of dat.conf", "fk2", [] { return dat::ia::open("named", manual); }},
      {"with a service thread", "fk1", [] { return dat::ia::open("fk1", automatic); }},
  };
  for (const way& w : ways) {
    INFO(w.name);
    const int needed = for_each_descriptor([&](steps& step) {
      auto ia = step([&] { return w.open(); });
      CHECK(ia.name() == w.device);
      CHECK(ia.address(dat::address_family::ipv4));
      CHECK(ia.address(dat::address_family::ipv6));
    });
    CHECK(needed > 4);
  }
  ::unsetenv("DAT_OVERRIDE");
  ::unlink(name);
  const int listed = for_each_descriptor([](steps& step) {
    const auto all = step([] { return dat::list_devices(); });
    REQUIRE(all.size() == 2);
    for (const auto& port : all) {
      CHECK(port.addresses.size() == 2);
      CHECK(port.state == dat::port_state::active);
    }
    CHECK(step([] { return dat::find_adapter_on("net-fk2-1"); }) == "fk2");
    CHECK(step([] { return dat::find_adapter_reaching("10.99.2.1"); }) == "fk2");
  });
  CHECK(listed >= 2);
}

TEST_CASE("without descriptors, a set of drivers is not made, and its drivers go on", "[no_room][coro]") {
  const int needed = for_each_descriptor([](steps& step) {
    auto ia = step([] { return dat::ia::open("fk1", manual); });
    auto evd = step([&] { return ia.create_evd<dat::stream::software>(8); });
    dat::coro::driver driver(evd);
    auto set = step([&] { return dat::coro::driver_set<dat::stream::software>::create(ia, driver); });
    step([&] { return evd.post(1); });
    std::size_t n = 0;
    CHECK(must(set.run_once([&](const auto&) { ++n; }, plenty)) == 1);
    CHECK(n == 1);
  });
  CHECK(needed > 4);
}

TEST_CASE("a pool without addresses is not made, and the error names what is missing", "[no_room][pool]") {
  if (!support::limits_addresses()) SKIP(support::no_limit_on_addresses);
  using pool = dat::memory_pool<all_rights.value>;
  const clean_world world;
  end e;
  for (const auto kind : {dat::pages::normal, dat::pages::huge_or_normal, dat::pages::huge}) {
    const auto refused = [&] {
      const support::few_addresses few(32 << 20);
      return pool::create(e.pz, 64 << 20, kind);
    }();
    REQUIRE_FALSE(refused);
    explains(refused.error());
    CHECK_THAT(refused.error().message(),
               support::contains_text(kind == dat::pages::huge ? "vm.nr_hugepages" : "ulimit -v"));
    if (kind != dat::pages::huge) CHECK(pool::create(e.pz, 1 << 20, kind));
  }
}

TEST_CASE("a device without room for another object refuses it and keeps the others",
          "[no_room][PZ-004][LMR-028][EVD-004][EP-030][SRQ-015][EP-014][SRQ-003]") {
  using dat::return_subtype;
  struct limit {
    const char* name;
    int ibv_device_attr::*most;
    return_subtype subtype;
    const char* says;
    std::function<dat::expected<void>(end&)> create; ///< creates an object and keeps it
  };
  std::vector<std::function<void()>> kept; // each frees an object
  const auto keep = [&](auto&& r) -> dat::expected<void> {
    if (!r) return r.error();
    auto object = std::make_shared<std::remove_reference_t<decltype(r.value())>>(std::move(r).value());
    kept.push_back([object] { must(object->close()); });
    return dat::success();
  };
  const limit limits[] = {
      {"max_pd", &ibv_device_attr::max_pd, return_subtype::resource_protection_domain, "protection zones",
       [&](end& e) { return keep(e.ia.create_pz()); }},
      {"max_cq", &ibv_device_attr::max_cq, return_subtype::resource_tevd, "no room for another completion queue",
       [&](end& e) { return keep(e.ia.create_evd<dat::stream::dto>(8)); }},
      {"max_qp", &ibv_device_attr::max_qp, return_subtype::resource_tep, "no room for another endpoint",
       [&](end& e) { return keep(e.pz.create_ep<dat::rc>(e.evd)); }},
      {"max_mr", &ibv_device_attr::max_mr, return_subtype::resource_memory_region, "register less",
       [&](end& e) { return keep(e.pz.register_memory(e.memory, all_rights)); }},
      {"max_mw", &ibv_device_attr::max_mw, return_subtype::none, "memory window",
       [&](end& e) { return keep(e.pz.create_rmr()); }},
      {"max_srq", &ibv_device_attr::max_srq, return_subtype::resource_srq, "no room for another shared receive queue",
       [&](end& e) { return keep(e.pz.create_srq()); }},
  };
  for (const limit& l : limits) {
    INFO(l.name);
    fake::world w;
    w.devices[0].attr = fake::rxe_attr();
    (*w.devices[0].attr).*l.most = 6;
    const clean_world world(w);
    {
      end a("fk1");
      end beside("fk1"); // as another program does: the device counts the objects of all
      end b("fk2");
      for (int n = 0; n < 2; ++n) must(l.create(beside));
      std::optional<dat::error> why;
      for (int n = 0; n < 6 && !why; ++n)
        if (auto r = l.create(a); !r) why = r.error();
      REQUIRE(why);
      explains(*why);
      CHECK_THAT(why->message(), support::contains_text(l.says));
      if (l.subtype != return_subtype::none) CHECK(to_string(why->subtype()) == to_string(l.subtype));
      SHOWS("DTO-067");
      REQUIRE(kept.size() >= 4);
      kept.back()();
      kept.pop_back();
      must(l.create(a));
      CHECK_FALSE(l.create(a));
      for (auto& free : kept) free();
      kept.clear();
      // The adapter works as before.
      auto psp = must(b.ia.create_psp(service, b.evd));
      a.make_ep();
      b.make_ep();
      must(a.ep.connect(b.ia.address(), service, plenty));
      settle(a, b);
      must(request_on(b.evd).accept(b.ep));
      settle(a, b);
      CHECK(a.take() == events{"established"});
    }
  }
}

} // namespace no_room
