// Streams, rights and memory that are known at run time: each use is checked, and has the result of its typed twin.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/dynamic.hpp>
#include <dat/rmr.hpp>

#include <algorithm>
#include <span>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <unordered_set>
#include <vector>

using namespace unit;
using dat::return_subtype;
using dat::return_type;
namespace dynamic = dat::dynamic;

namespace {

constexpr auto with_all = dat::streams::dto | dat::streams::connection | dat::streams::connection_requests;

/// Two pages that begin at a page.
struct two_pages {
  explicit two_pages(int kind)
      : bytes(static_cast<std::byte*>(::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | kind, -1, 0)),
              2 * page) {
    REQUIRE(static_cast<void*>(bytes.data()) != MAP_FAILED);
  }
  two_pages(const two_pages&) = delete;
  two_pages& operator=(const two_pages&) = delete;
  ~two_pages() { ::munmap(bytes.data(), bytes.size()); }
  static inline const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::span<std::byte> bytes;
};

/// One adapter with a dynamic evd, an endpoint that feeds it, and memory with all rights.
struct dynamic_side {
  dynamic_side(std::string_view device, dat::streams streams)
      : ia(must(dat::ia::open(device, manual))),
        pz(must(ia.create_pz())),
        evd(must(dynamic::create_evd(ia, streams, 64))),
        mem(must(dynamic::register_memory(pz, std::as_writable_bytes(std::span(memory)), all_rights.value))) {
    const auto completions = must(evd.to<dat::stream::dto>());
    ep = must(pz.create_ep<dat::rc>({completions, completions, must(evd.to<dat::stream::connection>())}));
  }
  std::array<char, 256> memory{};
  dat::ia ia;
  dat::pz pz;
  dynamic::evd evd;
  dynamic::lmr mem;
  dat::ep<dat::rc> ep;

  /// The name of the next event, as dequeue takes it; a request is kept.
  std::string next() {
    fake::finish();
    std::string name = "none";
    (void)evd.dequeue([&]<class E>(E& e) {
      name = E::name;
      if constexpr (std::is_same_v<E, dat::cr>) request = std::move(e);
    });
    return name;
  }
  dat::cr request;
};

/// Two connected sides.
struct linked {
  explicit linked(dat::streams more = {}) : a("fk1", with_all | more), b("fk2", with_all | more) {
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle(a.ia, b.ia);
    REQUIRE(b.next() == "connection_request");
    must(b.request.accept(b.ep));
    settle(a.ia, b.ia);
    REQUIRE(a.next() == "established");
    REQUIRE(b.next() == "established");
  }
  dynamic_side a;
  dynamic_side b;
  dat::psp psp = must(b.ia.create_psp(service, must(b.evd.to<dat::stream::connection_requests>())));
};

/// A send of a, and its receive at b.
void send_one(linked& l) {
  must(l.b.ep.post(dat::recv{must(l.b.mem.slice(0, 8, dat::local_write))}));
  must(l.a.ep.post(dat::send{must(l.a.mem.slice(0, 8, dat::local_read))}));
  settle(l.a.ia, l.b.ia);
}

} // namespace

TEST_CASE("a dynamic evd serves the uses that its streams allow, and refuses others", "[dynamic]") {
  const clean_world clean;
  auto ia = must(dat::ia::open("fk1", manual));
  auto evd = must(dynamic::create_evd(ia, dat::streams::dto | dat::streams::rmr_bind, 16));
  CHECK(evd.stream_set() == (dat::streams::dto | dat::streams::rmr_bind));
  CHECK(must(evd.query()).streams == evd.stream_set());
  CHECK(evd.to<dat::stream::dto>());
  CHECK(must(evd.to<dat::stream::rmr_bind>()));
  is_error(evd.to<dat::stream::connection>(), return_type::invalid_parameter);
  is_error(evd.to<dat::stream::dto | dat::stream::datagrams>(), return_type::invalid_parameter);
  is_error(evd.to_async(), return_type::invalid_parameter);
  is_error(evd.post(7), return_type::invalid_parameter);
  CHECK(must(dynamic::create_evd(ia, dat::streams::async, 4)).to_async());
  is_error(dynamic::create_evd(ia, {}, 16), return_type::invalid_parameter, return_subtype::arg4);
  is_error(dynamic::create_evd(ia, static_cast<dat::streams>(0x2000), 16), return_type::invalid_parameter,
           return_subtype::arg4);
  is_error(dynamic::create_evd(ia, dat::streams::dto, 0), return_type::invalid_parameter, return_subtype::arg2);
  dat::ia none;
  is_error(dynamic::create_evd(none, dat::streams::dto, 16), return_type::invalid_handle, return_subtype::handle_ia);
}

TEST_CASE("an empty dynamic evd refuses every call", "[dynamic]") {
  const auto ignore = [](const auto&) {};
  dynamic::evd evd;
  CHECK_FALSE(evd);
  is_error(evd.to<dat::stream::dto>(), return_type::invalid_handle, return_subtype::handle_evd_recv);
  is_error(evd.to_async(), return_type::invalid_handle, return_subtype::handle_evd_recv);
  is_error(evd.dequeue(ignore), return_type::invalid_handle, return_subtype::handle_evd_recv);
  is_error(evd.wait(ignore, 0us, 1), return_type::invalid_handle, return_subtype::handle_evd_recv);
  is_error(evd.post(1), return_type::invalid_handle, return_subtype::handle_evd_recv);
}

TEST_CASE("a visitor takes the events of a dynamic evd one at a time", "[dynamic]") {
  const clean_world clean;
  linked l;
  CHECK(l.a.evd.dequeue([](const auto&) {}).error().type() == return_type::queue_empty);
  send_one(l);
  CHECK(l.a.next() == "send_done");
  CHECK(l.b.next() == "recv_done");
  CHECK(l.b.next() == "none");
  must(l.a.ep.disconnect());
  settle(l.a.ia, l.b.ia);
  CHECK(l.a.next() == "disconnected");
  CHECK(l.b.next() == "disconnected");
}

TEST_CASE("a dequeue copies common completions in place of their events, and visits the others", "[dynamic]") {
  const clean_world clean;
  linked l;
  std::string seen;
  const auto visit = [&]<class E>(E&) { seen += std::string(E::name) + " "; };
  const auto copy = [&](dat::dto_operation what, dat::cookie posted, std::size_t bytes, dat::cookie endpoint) noexcept {
    seen += std::to_string(static_cast<int>(what)) + ":" + std::to_string(posted.value()) + ":" +
            std::to_string(bytes) + ":" + std::to_string(endpoint.value()) + " ";
  };
  must(l.a.ep.set_context(dat::cookie(70)));
  must(l.b.ep.set_context(dat::cookie(80)));
  const auto from = must(l.a.mem.slice(0, 8, dat::local_read));
  const auto into = must(l.a.mem.slice(8, 8, dat::local_write));
  const auto window = must(l.b.mem.remote(0, 8, dat::remote_read | dat::remote_write));
  for (int i = 1; i <= 2; ++i) must(l.b.ep.post(dat::recv{must(l.b.mem.slice(0, 16, dat::local_write))}.cookie(i)));
  must(l.a.ep.post(dat::send{from}.cookie(3), dat::rdma_write{from, window}.cookie(4),
                   dat::rdma_read{into, window}.cookie(5)));
  settle(l.a.ia, l.b.ia);
  while (l.a.evd.dequeue(visit, copy)) {
  }
  CHECK(seen == "0:3:8:70 1:4:8:70 2:5:8:70 ");
  seen.clear();
  must(l.b.evd.dequeue(visit, copy));
  CHECK(seen == "3:1:8:80 ");
  must(l.a.ep.post(dat::send{from}));
  must(l.a.ep.disconnect());
  settle(l.a.ia, l.b.ia);
  seen.clear();
  while (l.b.evd.dequeue(visit, copy)) {
  }
  CHECK(seen == "recv_done disconnected "); // the evd has queued both
  CHECK(l.b.evd.dequeue(visit, copy).error().type() == return_type::queue_empty);
  is_error(dynamic::evd().dequeue(visit, copy), return_type::invalid_handle, return_subtype::handle_evd_recv);
}

TEST_CASE("a wait of a dynamic evd counts the events, and calls the visitor with the first", "[dynamic]") {
  const clean_world clean;
  auto ia = must(dat::ia::open("fk1", manual));
  auto evd = must(dynamic::create_evd(ia, dat::streams::software, 8));
  for (int i = 0; i < 3; ++i) must(evd.post(i));
  int seen = -1;
  const auto number = [&](const auto& e) {
    if constexpr (std::is_same_v<decltype(e), const dat::software_event&>) seen = e.cookie().template as<int>();
  };
  CHECK(must(evd.wait(number, 0us, 3)) == 2);
  CHECK(seen == 0);
  const auto more = evd.wait(number, 0us, 3);
  is_error(more, return_type::timeout_expired);
  CHECK(more.error().index() == 2);
  CHECK(seen == 0);
  is_error(evd.wait(number, 0us, 0), return_type::invalid_parameter, return_subtype::arg3);
  is_error(evd.wait(number, 0us, 9), return_type::invalid_parameter, return_subtype::arg3);
}

TEST_CASE("a wait copies a common completion that has come before it, and counts the rest", "[dynamic]") {
  const clean_world clean;
  linked l;
  std::string seen;
  const auto visit = [&]<class E>(E&) { seen += std::string(E::name) + " "; };
  const auto copy = [&](dat::dto_operation, dat::cookie posted, std::size_t, dat::cookie) noexcept {
    seen += std::to_string(posted.value()) + " ";
  };
  const auto from = must(l.a.mem.slice(0, 8, dat::local_read));
  const auto window = must(l.b.mem.remote(0, 8, dat::remote_write));
  const auto write = [&](std::uint64_t cookie) { must(l.a.ep.post(dat::rdma_write{from, window}.cookie(cookie))); };
  for (const std::uint64_t cookie : {1u, 2u, 3u}) write(cookie);
  CHECK(must(l.a.evd.wait(visit, 0us, 1, copy)) == 2);
  CHECK(must(l.a.evd.wait(visit, 0us, 2, copy)) == 1);
  CHECK(must(l.a.evd.wait(visit, 0us, 1, copy)) == 0);
  CHECK(seen == "1 rdma_write_done 3 "); // a wait with a threshold copies nothing
  is_error(l.a.evd.wait(visit, 0us, 1, copy), return_type::timeout_expired);
  write(4);
  must(l.a.evd.set_unwaitable());
  is_error(l.a.evd.wait(visit, 0us, 1, copy), return_type::invalid_state, return_subtype::evd_unwaitable);
  must(l.a.evd.clear_unwaitable());
  must(l.a.evd.wake());
  is_error(l.a.evd.wait(visit, 0us, 1, copy), return_type::interrupted_call);
  seen.clear();
  CHECK(must(l.a.evd.wait(visit, 0us, 1, copy)) == 0);
  CHECK(seen == "4 ");
  is_error(l.a.evd.wait(visit, 0us, 0, copy), return_type::invalid_parameter, return_subtype::arg3);
  is_error(dynamic::evd().wait(visit, 0us, 1, copy), return_type::invalid_handle, return_subtype::handle_evd_recv);
}

TEST_CASE("a wait copies the common completions that the evd has queued, and visits other events", "[dynamic]") {
  const clean_world clean;
  linked l;
  std::string seen;
  const auto visit = [&]<class E>(E&) { seen += std::string(E::name) + " "; };
  const auto copy = [&](dat::dto_operation what, dat::cookie posted, std::size_t bytes, dat::cookie) noexcept {
    seen +=
        std::string(dat::to_string(what)) + " " + std::to_string(posted.value()) + ":" + std::to_string(bytes) + " ";
  };
  const auto next = [&](dynamic_side& of) {
    const std::size_t left = must(of.evd.wait(visit, plenty, 1, copy));
    return std::exchange(seen, std::string()) + std::to_string(left);
  };
  const auto from = must(l.a.mem.slice(0, 8, dat::local_read));
  const auto into = must(l.b.mem.slice(0, 8, dat::local_write));
  SECTION("successes before a failure and the end of the connection") {
    for (const std::uint64_t cookie : {1u, 2u}) {
      must(l.b.ep.post(dat::recv{into}.cookie(cookie + 10)));
      must(l.a.ep.post(dat::send{from}.cookie(cookie)));
    }
    must(l.b.ep.post(dat::recv{into}.cookie(13)));
    must(l.b.ep.disconnect());
    settle(l.a.ia, l.b.ia);
    CHECK(next(l.a) == "send 1:8 2");
    CHECK(next(l.a) == "send 2:8 1");
    CHECK(next(l.a) == "disconnected 0");
    CHECK(next(l.b).starts_with("recv 11:8 "));
    CHECK(next(l.b).starts_with("recv 12:8 "));
    std::vector<std::string> rest{next(l.b), next(l.b)}; // some devices flush late
    std::ranges::sort(rest);
    CHECK((rest[0].starts_with("disconnected ") && rest[1].starts_with("dto_failure ")));
  }
  SECTION("a message that is copied no longer counts towards the watermark") {
    must(l.b.ep.set_watermark(2, dat::no_watermark));
    for (int i = 0; i < 3; ++i) {
      send_one(l);
      CHECK(next(l.b) == "recv 0:8 0");
    }
    CHECK_FALSE(l.b.ia.async_evd().dequeue());
  }
  SECTION("completions of an endpoint that ends are no events") {
    for (const std::uint64_t cookie : {1u, 2u, 3u}) {
      must(l.b.ep.post(dat::recv{into}));
      must(l.a.ep.post(dat::send{from}.cookie(cookie)));
    }
    CHECK(next(l.a) == "send 1:8 2");
    must(l.a.ep.close());
    is_error(l.a.evd.wait(visit, 0us, 1, copy), return_type::timeout_expired);
    CHECK(seen.empty());
  }
}

TEST_CASE("a dynamic evd of completions alone can be waited on for several of them", "[dynamic]") {
  const clean_world clean;
  linked l;
  auto evd = must(dynamic::create_evd(l.a.ia, dat::streams::dto, 8));
  const auto completions = must(evd.to<dat::stream::dto>());
  l.a.ep = must(l.a.pz.create_ep<dat::rc>({completions, completions, must(l.a.evd.to<dat::stream::connection>())}));
  for (int i = 0; i < 2; ++i) must(l.a.ep.post(dat::recv{}.cookie(i)));
  must(l.a.ep.connect(l.b.ia.address(), service, plenty));
  settle(l.a.ia, l.b.ia);
  REQUIRE(l.b.next() == "disconnected"); // the first connection has ended with its endpoint
  REQUIRE(l.b.next() == "connection_request");
  auto peer =
      must(l.b.pz.create_ep<dat::rc>({must(l.b.evd.to<dat::stream::dto>()), must(l.b.evd.to<dat::stream::dto>()),
                                      must(l.b.evd.to<dat::stream::connection>())}));
  must(l.b.request.accept(peer));
  settle(l.a.ia, l.b.ia);
  for (int i = 0; i < 2; ++i) must(peer.post(dat::send{}));
  settle(l.a.ia, l.b.ia);
  int first = -1;
  const auto number = [&](const auto& e) {
    if constexpr (std::is_same_v<decltype(e), const dat::recv_done&>) first = e.cookie().template as<int>();
  };
  CHECK(must(evd.wait(number, plenty, 2)) == 1);
  CHECK(first == 0);
}

TEST_CASE("dynamic evds are compared, hashed and moved as other handles", "[dynamic]") {
  const clean_world clean;
  auto ia = must(dat::ia::open("fk1", manual));
  auto a = must(dynamic::create_evd(ia, dat::streams::dto, 8));
  const auto b = must(dynamic::create_evd(ia, dat::streams::dto, 8));
  CHECK(a == a);
  CHECK_FALSE(a == b);
  CHECK(std::hash<dynamic::evd>()(a) == std::hash<const void*>()(a.identity()));
  const void* const identity = a.identity();
  const dynamic::evd moved = std::move(a);
  CHECK(moved.identity() == identity);
  CHECK(moved.stream_set() == dat::streams::dto);
}

TEST_CASE("a dynamic region gives segments with the rights that it has", "[dynamic]") {
  const clean_world clean;
  dynamic_side s("fk1", with_all);
  const auto inside = must(s.mem.slice(16, 32, dat::local_read | dat::local_write));
  CHECK(inside.size_bytes() == 32);
  CHECK(static_cast<void*>(inside.data()) == s.memory.data() + 16);
  const auto there = must(s.mem.remote(8, 16, dat::remote_write));
  CHECK(there.address() == s.mem.address() + 8);
  CHECK(there.rkey() == s.mem.native_handle()->rkey);
  CHECK(must(s.mem.slice(256, 0, dat::local_read)).empty());
  CHECK(must(s.mem.remote(256, 0, dat::remote_read)).address() == s.mem.address() + 256);
  CHECK(must(s.mem.remote(0, 256, dat::remote_read)).size_bytes() == 256);
  is_error(s.mem.remote(8, 249, dat::remote_read), return_type::invalid_parameter);
  is_error(s.mem.slice(225, 32, dat::local_read), return_type::invalid_parameter);
  is_error(s.mem.slice(~std::size_t{0}, 2, dat::local_read), return_type::invalid_parameter);
  is_error(s.mem.remote(257, 0, dat::remote_read), return_type::invalid_parameter);
  is_error(s.mem.remote(0, 8, dat::remote_atomic), return_type::privileges_violation);
}

TEST_CASE("a dynamic region names the right that a use lacks", "[dynamic]") {
  const clean_world clean;
  dynamic_side s("fk1", with_all);
  const auto none = must(dynamic::register_memory(s.pz, std::as_writable_bytes(std::span(s.memory)), {}));
  CHECK(none.rights() == dat::mem_priv::none);
  CHECK_FALSE(must(none.query()).remote_key);
  CHECK(must(s.mem.query()).remote_key == s.mem.native_handle()->rkey);
  is_error(none.slice(0, 8, dat::local_read), return_type::privileges_violation, return_subtype::privileges_read);
  is_error(none.slice(0, 8, dat::local_write), return_type::privileges_violation, return_subtype::privileges_write);
  is_error(none.remote(0, 8, dat::remote_read), return_type::privileges_violation,
           return_subtype::privileges_rdma_read);
  is_error(none.remote(0, 8, dat::remote_write), return_type::privileges_violation,
           return_subtype::privileges_rdma_write);
  is_error(
      dynamic::register_memory(s.pz, std::as_writable_bytes(std::span(s.memory)), static_cast<dat::mem_priv>(0x80)),
      return_type::invalid_parameter, return_subtype::arg6);
  is_error(dynamic::register_memory(s.pz, {}, dat::mem_priv::local_read), return_type::invalid_parameter,
           return_subtype::arg3);
  dat::pz no_zone;
  is_error(dynamic::register_memory(no_zone, std::as_writable_bytes(std::span(s.memory)), {}),
           return_type::invalid_handle, return_subtype::handle_pz);
}

TEST_CASE("a closed dynamic region gives no segments", "[dynamic]") {
  const clean_world clean;
  dynamic_side s("fk1", with_all);
  must(s.mem.close());
  is_error(s.mem.slice(0, 8, dat::local_read), return_type::invalid_handle, return_subtype::handle_lmr);
  is_error(s.mem.remote(0, 8, dat::remote_read), return_type::invalid_handle, return_subtype::handle_lmr);
  is_error(s.mem.query(), return_type::invalid_handle, return_subtype::handle_lmr);
  is_error(s.mem.close(), return_type::invalid_handle, return_subtype::handle_lmr);
  CHECK(s.mem.size_bytes() == 0);
  auto open = must(dynamic::register_memory(s.pz, std::as_writable_bytes(std::span(s.memory)), all_rights.value));
  must(s.ia.close());
  is_error(open.slice(0, 8, dat::local_read), return_type::invalid_handle, return_subtype::handle_lmr);
}

TEST_CASE("dynamic regions of other kinds are as their typed twins", "[dynamic]") {
  const clean_world clean;
  dynamic_side s("fk1", with_all);
  const auto again = must(dynamic::register_over(s.pz, s.mem, dat::mem_priv::local_read));
  CHECK(must(again.query()).type == dat::mem_type::lmr);
  CHECK(must(again.query()).origin == s.mem.identity());
  CHECK(again.address() == s.mem.address());
  is_error(dynamic::register_over(s.pz, dynamic::lmr(), {}), return_type::invalid_handle, return_subtype::handle_lmr);

  const two_pages shared(MAP_SHARED);
  const two_pages own(MAP_PRIVATE);
  const dat::shared_cookie name{std::byte{1}};
  const auto common = must(dynamic::register_shared(s.pz, shared.bytes, name, dat::mem_priv::local_read));
  CHECK(must(common.query()).cookie == name);
  is_error(dynamic::register_shared(s.pz, own.bytes, name, dat::mem_priv::local_read), return_type::invalid_state);

  const auto zero = must(dynamic::register_zero_based(s.pz, own.bytes, dat::mem_priv::local_read));
  CHECK(must(zero.query()).zero_based);
  CHECK(zero.address() == 0);
  CHECK(must(zero.slice(8, 8, dat::local_read)).data() == reinterpret_cast<std::byte*>(8));
  is_error(dynamic::register_zero_based(s.pz, own.bytes.subspan(8), dat::mem_priv::local_read),
           return_type::model_not_supported);
}

TEST_CASE("the adapter cannot copy from a segment that has no pointer", "[dynamic]") {
  const clean_world clean;
  linked l;
  const two_pages own(MAP_PRIVATE);
  const auto zero = must(dynamic::register_zero_based(l.a.pz, own.bytes, dat::mem_priv::local_read));
  const auto segment = must(zero.slice(0, 8, dat::local_read));
  is_error(l.a.ep.post(dat::send{segment}.inlined()), return_type::invalid_parameter, return_subtype::arg5);
  must(l.a.ep.post(dat::send{segment}));
}

TEST_CASE("a bind with rights of run time opens a window as a typed bind does", "[dynamic]") {
  const clean_world clean;
  linked l(dat::streams::rmr_bind);
  auto rmr = must(l.a.pz.create_rmr_for_ep());
  const auto window =
      must(dynamic::post(rmr, l.a.ep, dynamic::bind{l.a.mem, 16, 64, dat::mem_priv::remote_write}.cookie(5)));
  settle(l.a.ia, l.b.ia);
  CHECK(l.a.next() == "bind_done");
  CHECK(window.address() == l.a.mem.address() + 16);
  CHECK(window.size_bytes() == 64);
  const auto binding = must(rmr.query()).binding;
  REQUIRE(binding);
  CHECK(binding->key == window.rkey());
  CHECK(binding->rights == dat::mem_priv::remote_write);
  is_error(l.a.mem.close(), return_type::invalid_state, return_subtype::lmr_in_use);
  const std::size_t all = l.a.mem.size_bytes() - 16; // up to the last byte
  CHECK(must(dynamic::post(rmr, l.a.ep, dynamic::bind{l.a.mem, 16, all, dat::mem_priv::remote_write})).size_bytes() ==
        all);
  settle(l.a.ia, l.b.ia);
}

TEST_CASE("a bind with rights of run time is refused where a typed one does not compile", "[dynamic]") {
  const clean_world clean;
  linked l(dat::streams::rmr_bind);
  auto rmr = must(l.a.pz.create_rmr_for_ep());
  const auto readable =
      must(dynamic::register_memory(l.a.pz, std::as_writable_bytes(std::span(l.a.memory)), dat::mem_priv::local_read));
  const auto writable =
      must(dynamic::register_memory(l.a.pz, std::as_writable_bytes(std::span(l.a.memory)), dat::mem_priv::local_write));
  const auto post = [&](const dynamic::lmr& m, std::size_t first, std::size_t n, dat::mem_priv rights) {
    return dynamic::post(rmr, l.a.ep, dynamic::bind{m, first, n, rights});
  };
  is_error(post(readable, 0, 8, dat::mem_priv::remote_write), return_type::privileges_violation,
           return_subtype::privileges_write);
  is_error(post(writable, 0, 8, dat::mem_priv::remote_read), return_type::privileges_violation,
           return_subtype::privileges_read);
  for (const auto flush : {dat::mem_priv::flush_global, dat::mem_priv::flush_persistent})
    is_error(post(readable, 0, 8, dat::mem_priv::remote_read | flush), return_type::privileges_violation, {});
  is_error(post(writable, 250, 8, dat::mem_priv::remote_write), return_type::invalid_parameter, return_subtype::arg3);
  is_error(post(writable, 0, 0, dat::mem_priv::remote_write), return_type::invalid_parameter, return_subtype::arg3);
  is_error(post(dynamic::lmr(), 0, 8, dat::mem_priv::remote_write), return_type::invalid_handle,
           return_subtype::handle_lmr);
  dat::rmr none;
  is_error(dynamic::post(none, l.a.ep, dynamic::bind{writable, 0, 8, dat::mem_priv::remote_write}),
           return_type::invalid_handle, return_subtype::handle_rmr);
}
