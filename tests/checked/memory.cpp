// Memory of posted operations in a checked build: poisoned, freed, unmapped and changed memory, and the same programs
// without the mistake.
// SPDX-License-Identifier: BSL-1.0
#include "findings.hpp"

#include <dat/ep_params.hpp>
#include <dat/srq.hpp>

#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#ifdef DAT_HAS_ASAN
#include <sanitizer/asan_interface.h>
#endif

using namespace checked_tests;

namespace {

#ifdef DAT_HAS_ASAN
constexpr bool asan = true;
bool poisoned(const void* at) { return __asan_address_is_poisoned(at) != 0; }
#else
constexpr bool asan = false;
bool poisoned(const void*) { return false; }
#endif

/// A page of its own.
struct mapping {
  std::size_t bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mapping() { REQUIRE(at != MAP_FAILED); }
  mapping(const mapping&) = delete;
  mapping& operator=(const mapping&) = delete;
  ~mapping() { unmap(); }
  void unmap() {
    if (at) ::munmap(std::exchange(at, nullptr), bytes);
  }
  std::span<char> chars() const { return {static_cast<char*>(at), bytes}; }
};

} // namespace

TEST_CASE("the buffer of a receive is poisoned until its event is taken, in whole granules", "[checked]") {
  const clean_world world;
  const findings all;
  pair p;
  alignas(8) std::array<char, 64> bytes{};
  auto mem = must(p.a.pz.register_memory(bytes, all_rights));
  must(p.a.ep.post(dat::recv{must(mem.slice(4, 24))}));
  CHECK_FALSE(poisoned(&bytes[4])); // its granule has other data, too
  CHECK(poisoned(&bytes[8]) == asan);
  CHECK(poisoned(&bytes[23]) == asan);
  CHECK_FALSE(poisoned(&bytes[24]));
  must(p.b.ep.post(dat::send{p.b.at(0, 3)}));
  CHECK(poisoned(&bytes[8]) == asan); // the completion is queued, and no thread has taken it
  CHECK(p.a.take() == events{"received 0"});
  CHECK_FALSE(poisoned(&bytes[8]));
  CHECK(found.empty());
}

TEST_CASE("the target of an RDMA read is poisoned until its event is taken, and the source is not", "[checked]") {
  const clean_world world;
  pair p;
  std::string_view("12345678").copy(p.b.memory.data(), 8);
  must(p.a.ep.post(dat::rdma_read{p.a.at(0, 8), must(p.b.mem.remote(0, 8))}));
  CHECK(poisoned(p.a.memory.data()) == asan);
  CHECK_FALSE(poisoned(p.b.memory.data()));
  (void)p.a.take();
  CHECK(std::string_view(p.a.memory.data(), 8) == "12345678");
}

TEST_CASE("posted memory is no longer poisoned after a flush, a reset, a close, and a refusal of the device",
          "[checked]") {
  const clean_world world;
  pair p;
  const auto* const first = p.a.memory.data();
  fake::fail(fake::call::ibv_post_recv, 1, ENOMEM);
  CHECK_FALSE(p.a.ep.post(dat::recv{p.a.at(0, 8)}));
  CHECK_FALSE(poisoned(first));
  must(p.a.ep.post(dat::recv{p.a.at(0, 8)}, dat::recv{p.a.at(8, 8)}));
  CHECK(poisoned(first) == asan);
  must(p.a.ep.disconnect());
  p.settle();
  CHECK(p.a.take().size() == 3);
  CHECK_FALSE(poisoned(first));
  must(p.a.ep.post(dat::recv{p.a.at(0, 8)}));
  must(p.a.ep.reset());
  CHECK_FALSE(poisoned(first));
  must(p.a.ep.post(dat::recv{p.a.at(0, 8)}));
  CHECK(poisoned(first) == asan);
  must(p.a.ep.close());
  CHECK_FALSE(poisoned(first));
}

TEST_CASE("the part of a receive behind max_message_size is not poisoned", "[checked]") {
  const clean_world world;
  end a;
  a.make_ep({.max_message_size = 16});
  must(a.ep.post(dat::recv{dat::iov{a.at(0, 8), a.at(8, 16), a.at(64, 8)}}));
  CHECK(poisoned(a.memory.data() + 15) == asan);
  CHECK_FALSE(poisoned(a.memory.data() + 16));
  CHECK_FALSE(poisoned(a.memory.data() + 64));
}

TEST_CASE("the buffer of a receive that moves to another queue pair is poisoned until its event is taken",
          "[checked]") {
  const clean_world world;
  end a("fk1"), b("fk2");
  const auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep();
  b.ep = must(b.ia.create_ep<dat::rc>());
  must(b.ep.post(dat::recv{b.at(0, 8)}.cookie(1)));
  CHECK(poisoned(b.memory.data()) == asan);
  must(b.ep.modify({.pz = &b.pz, .recv = b.evd, .request = b.evd, .connect = b.evd}));
  CHECK(poisoned(b.memory.data()) == asan);
  must(b.ep.modify({.max_recv_dtos = 3}));
  CHECK(poisoned(b.memory.data()) == asan);
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(b.ep));
  settle(a, b);
  must(a.ep.post(dat::send{a.at(0, 1)}));
  CHECK(b.take() == events{"established", "received 1"});
  CHECK_FALSE(poisoned(b.memory.data()));
  (void)a.take();
}

TEST_CASE("memory that two receives have stays poisoned until both completed", "[checked]") {
  const clean_world world;
  pair p;
  must(p.a.ep.post(dat::recv{p.a.at(0, 8)}, dat::recv{p.a.at(0, 8)}));
  must(p.b.ep.post(dat::send{p.b.at(0, 1)}));
  CHECK(p.a.take().size() == 1);
  CHECK(poisoned(p.a.memory.data()) == asan);
  must(p.b.ep.post(dat::send{p.b.at(0, 1)}));
  CHECK(p.a.take().size() == 1);
  CHECK_FALSE(poisoned(p.a.memory.data()));
}

TEST_CASE("a buffer of a shared receive queue is poisoned until its event is taken", "[checked]") {
  const clean_world world;
  end a;
  {
    auto srq = must(a.pz.create_srq());
    must(srq.post(dat::recv{a.at(0, 8)}));
    CHECK(poisoned(a.memory.data()) == asan);
  }
  CHECK_FALSE(poisoned(a.memory.data()));
}

#ifdef DAT_HAS_ASAN
TEST_CASE("memory that is freed while it is posted is reported at the free", "[checked]") {
  const clean_world world;
  const findings all;
  pair p;
  auto bytes = std::make_unique<std::array<char, 64>>();
  const void* const at = bytes.get();
  auto mem = must(p.a.pz.register_memory(*bytes, all_rights));
  must(p.a.ep.post(dat::recv{must(mem.slice(8, 8))}));
  bytes.reset();
  REQUIRE(found.size() == 1);
  CHECK(found[0].what == finding::freed_memory);
  CHECK(found[0].call == "free");
  CHECK(found[0].other_call == "ep.post(recv)");
  CHECK(found[0].object_id == p.a.ep.number());
  CHECK(found[0].address == at);
  CHECK(found[0].posted_from != nullptr);
  found.clear();
  must(p.a.ep.close());
  must(mem.close());
  CHECK(poisoned(at)); // AddressSanitizer's own mark of freed memory stays
}

TEST_CASE("memory that is freed while it is registered is reported at the free, and once", "[checked]") {
  const clean_world world;
  const findings all;
  end a("fk1");
  auto bytes = std::make_unique<std::array<char, 64>>();
  const void* const at = bytes.get();
  auto mem = must(a.pz.register_memory(*bytes, all_rights));
  auto half = must(a.pz.register_memory(std::span(*bytes).first(32), all_rights));
  bytes.reset();
  REQUIRE(found.size() == 1);
  CHECK(found[0].what == finding::freed_memory);
  CHECK(found[0].call == "free");
  CHECK(found[0].other_call == "pz.register_memory");
  CHECK(found[0].object == "lmr");
  CHECK((found[0].object_id == mem.native_handle()->lkey || found[0].object_id == half.native_handle()->lkey));
  CHECK(found[0].address == at);
  CHECK_THAT(std::string(found[0].remedy), support::contains_text("close the lmr first"));
}

TEST_CASE("memory that is freed after its lmr, or beside it, or under an lmr that moved, is no finding", "[checked]") {
  const clean_world world;
  const findings all;
  end a("fk1");
  auto bytes = std::make_unique<std::array<char, 64>>();
  auto other = std::make_unique<std::array<char, 64>>();
  {
    auto first = must(a.pz.register_memory(*bytes, all_rights));
    other.reset();
    auto second = std::move(first);
    must(second.close());
  }
  bytes.reset();
  CHECK(found.empty());
}

TEST_CASE("memory that is freed after its completion was taken is no finding", "[checked]") {
  const clean_world world;
  const findings all;
  pair p;
  auto bytes = std::make_unique<std::array<char, 64>>();
  auto mem = must(p.a.pz.register_memory(*bytes, all_rights));
  must(p.a.ep.post(dat::recv{must(mem.slice(8, 8))}));
  must(p.b.ep.post(dat::send{}));
  CHECK(p.a.take().size() == 1);
  must(mem.close());
  bytes.reset();
  CHECK(found.empty());
}
#endif

TEST_CASE("a post of memory that is no longer mapped is reported, and an unmap before the completion", "[checked]") {
  const clean_world world;
  const findings all;
  pair p;
  mapping map;
  const auto mem = must(p.a.pz.register_memory(map.chars(), all_rights));
  must(p.a.ep.post(dat::recv{must(mem.slice(0, 8))}));
  CHECK(found.empty());
  const void* const at = map.at;
  map.unmap();
  must(p.b.ep.post(dat::send{}));
  CHECK(p.a.take().size() == 1);
  REQUIRE(found.size() == 1);
  CHECK(found[0].what == finding::unmapped_memory);
  CHECK(found[0].call == "completion");
  CHECK(found[0].other_call == "ep.post(recv)");
  CHECK(found[0].address == at);
  found.clear();
  must(p.a.ep.post(dat::recv{must(mem.slice(0, 8))}));
  REQUIRE(found.size() == 1);
  CHECK(found[0].what == finding::unmapped_memory);
  CHECK(found[0].call == "ep.post(recv)");
}

TEST_CASE("a send buffer that changes before its completion is reported when the completion is taken", "[checked]") {
  const clean_world world;
  const findings all;
  pair p;
  must(p.b.ep.post(dat::recv{p.b.at(0, 8)}, dat::recv{p.b.at(0, 8)}, dat::recv{p.b.at(0, 8)}));
  fake::hold(p.a.ep.native_handle());
  must(p.a.ep.post(dat::send{p.a.at(0, 8)}.cookie(1)));
  p.a.memory[7] = 'x';
  fake::hold(p.a.ep.native_handle(), false);
  CHECK(p.a.take() == events{"sent 1"});
  REQUIRE(found.size() == 1);
  CHECK(found[0].what == finding::changed_send_buffer);
  CHECK(found[0].call == "completion");
  CHECK(found[0].other_call == "ep.post");
  CHECK(found[0].address == p.a.memory.data());
  CHECK(found[0].object_id == p.a.ep.number());
}

TEST_CASE("a send buffer that changes after its completion, or beside it, or of an inlined send, is no finding",
          "[checked]") {
  const clean_world world;
  const findings all;
  pair p({.max_inline = 8});
  must(p.b.ep.post(dat::recv{p.b.at(0, 8)}, dat::recv{p.b.at(0, 8)}));
  fake::hold(p.a.ep.native_handle());
  must(p.a.ep.post(dat::send{p.a.at(0, 8)}.cookie(1)));
  must(p.a.ep.post(dat::send{p.a.at(16, 8)}.inlined().cookie(2)));
  p.a.memory[8] = 'x';
  p.a.memory[16] = 'x';
  fake::hold(p.a.ep.native_handle(), false);
  CHECK(p.a.take() == events{"sent 1", "sent 2"});
  p.a.memory[0] = 'x';
  CHECK(found.empty());
}
