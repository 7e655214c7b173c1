// Two adapters of the fake world, and the objects that a test needs on each of them.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fake_verbs/fake_verbs.hpp>
#include <fake_verbs/personality.hpp>

#include <dat/dat.hpp>

#include <support/catch.hpp>
#include <support/words.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace unit {

using namespace std::chrono_literals;

inline constexpr auto all_streams = dat::stream::dto | dat::stream::connection | dat::stream::connection_requests;
inline constexpr auto ud_streams = all_streams | dat::stream::datagrams;
inline constexpr auto all_rights = dat::local_read | dat::local_write | dat::remote_read | dat::remote_write;
using region = dat::lmr<char, all_rights.value>;
inline constexpr dat::ia_options manual{.progress = dat::progress::manual};
inline constexpr dat::ia_options automatic{.progress = dat::progress::automatic};
/// Longer than any wait that a test expects to succeed; none takes that long.
inline constexpr dat::timeout plenty = 20s;

/// The value, or a failed test with the reason.
template <class T>
T must(dat::expected<T>&& r) {
  if (!r) FAIL(r.error().message());
  return std::move(r).value();
}
inline void must(dat::expected<void>&& r) {
  if (!r) FAIL(r.error().message());
}
/// Checks that the call failed with this error and that the error names a call.
template <class T>
void is_error(const dat::expected<T>& r, dat::return_type type, dat::return_subtype subtype = {}) {
  REQUIRE_FALSE(r);
  INFO(r.error().message());
  CHECK(r.error().type() == type);
  CHECK(r.error().subtype() == subtype);
  CHECK_FALSE(r.error().call().empty());
}

using support::bytes_of;
using support::describe;
using support::events;
using support::text_of;
using support::unpadded;

/// Takes all queued events, including those that the device has delayed.
template <dat::streams S>
events take(dat::evd<S>& evd) {
  fake::finish();
  events all;
  while (evd.drain([&](const auto& e) { all.push_back(describe{}(e)); }) != 0) {
  }
  return all;
}

/// One adapter with a zone, registered memory, and one evd for everything.
struct end {
  explicit end(std::string_view device = "fk1", const dat::ia_options& options = manual)
      : ia(must(dat::ia::open(device, options))),
        pz(must(ia.create_pz())),
        evd(must(ia.create_evd<all_streams>(64))),
        mem(must(pz.register_memory(memory, all_rights))) {}

  std::array<char, 4096> memory{};
  dat::ia ia;
  dat::pz pz;
  dat::evd<all_streams> evd;
  region mem;
  dat::ep<dat::rc> ep;

  dat::local_segment<char, all_rights.value> at(std::size_t first, std::size_t count) {
    return must(mem.slice(first, count));
  }
  void make_ep(const dat::ep_attributes& a = {}) { ep = must(pz.create_ep<dat::rc>(evd, a)); }
  events take() { return unit::take(evd); }
};

/// Runs the pending work of two ias with manual progress.
inline void settle(dat::ia& a, dat::ia& b) {
  for (int i = 0; i < 12; ++i) {
    fake::finish();
    a.run();
    b.run();
  }
}
inline void settle(end& a, end& b) { settle(a.ia, b.ia); }

/// The request at the head of an evd.
template <dat::streams S>
dat::cr request_on(dat::evd<S>& evd) {
  auto e = must(evd.dequeue());
  auto* r = std::get_if<dat::cr>(&e);
  if (!r) FAIL("not a request but: " << std::visit(describe{}, e));
  return std::move(*r);
}

inline constexpr std::uint16_t service = 7471;

/// Two connected sides with manual progress: all work is done in the calling thread.
struct pair {
  explicit pair(const dat::ep_attributes& attributes = {}) : pair(attributes, attributes) {}
  pair(const dat::ep_attributes& active, const dat::ep_attributes& passive) {
    a.make_ep(active);
    b.make_ep(passive);
    connect();
  }
  end a{"fk1"};
  end b{"fk2"};
  dat::psp psp = must(b.ia.create_psp(service, b.evd));

  void connect() {
    connect(a.ep, b.ep);
    CHECK(a.take() == events{"established"});
    CHECK(b.take() == events{"established"});
    REQUIRE(a.ep.state() == dat::ep_state::connected);
    REQUIRE(b.ep.state() == dat::ep_state::connected);
  }
  /// Connects an endpoint of `a` to one of `b`. Their events stay in the evds.
  void connect(dat::ep<dat::rc>& from, dat::ep<dat::rc>& to) {
    must(from.connect(b.ia.address(), service, plenty));
    settle();
    must(request_on(b.evd).accept(to));
    settle();
  }
  void settle() { unit::settle(a, b); }
};

/// Makes the next registration fail. ibv_reg_mr is a macro: the symbol that it calls depends on whether the compiler
/// can evaluate the rights, and so on the optimisation level.
inline void fail_registration(int error) {
  fake::fail(fake::call::ibv_reg_mr, 1, error);
  fake::fail(fake::call::ibv_reg_mr_iova2, 1, error);
}

/// The service thread may hold the last reference to an ia and still be ending; a real leak stays.
inline void until_nothing_is_left() {
  for (const auto until = std::chrono::steady_clock::now() + 5s;
       fake::leaks() != "" && std::chrono::steady_clock::now() < until;)
    std::this_thread::yield();
}

/// fake::reset begins a new world, and a service thread of an earlier test must not destroy objects in it.
inline const bool ends_each_run = (support::world().end_run = until_nothing_is_left, true);

/// A world whose devices register regions of up to 1 TiB.
inline fake::world with_large_regions() {
  fake::world w;
  for (auto& d : w.devices) {
    d.attr = fake::rxe_attr();
    d.attr->max_mr_size = std::uint64_t{1} << 40;
  }
  return w;
}

/// Starts a new world, and checks at the end that no object is left.
struct clean_world {
  explicit clean_world(const fake::world& w = {}) { fake::reset(w); }
  clean_world(const clean_world&) = delete;
  clean_world& operator=(const clean_world&) = delete;
  ~clean_world() {
    until_nothing_is_left();
    CHECK(fake::leaks() == "");
  }
};

} // namespace unit
